"""Rule B5: the library's kernels compute what their definitions say, on every legal shape, dtype and option."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir import build, library
from arrowir.build import FunctionBuilder, Tensor
from arrowir.library import KernelError
from arrowir.library.views import Grid, merged, pieces, split
from arrowir.testing.assertions import assert_valid
from tests.bir_kernels import Json, call, one_call, random, whole
from tests.single_pass import read

FLOATS = ("float32", "bfloat16", "float16")
DRAWN = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def held(
    main: FunctionBuilder, name: str, shape: Sequence[int], dtype: str, how: str, kind: str
) -> tuple[Tensor, Json]:
    """Add storage for an argument; return it, and the access to the argument's elements.

    `how` is a memory, or ``"part"`` for every second element of a larger tensor in DRAM.
    """
    if how == "part":
        tensor = main.dram(name, (*shape[:-1], 2 * shape[-1] + 3), dtype, kind=kind)
        key: Any = (*(slice(None) for _ in shape[:-1]), slice(1, 2 * shape[-1] + 1, 2))
        return tensor, tensor[key]
    if how == "DRAM":
        tensor = main.dram(name, shape, dtype, kind=kind)
        return tensor, whole(tensor)
    rows = math.prod(shape[:-1])
    tensor = main.tensor(name, how, (rows, shape[-1]), dtype, kind=kind)
    return tensor, whole(tensor)


def computed(
    kernel: str,
    inputs: Sequence[np.ndarray],
    dtype: str,
    out: Sequence[int],
    *,
    how: Sequence[str] = (),
    attrs: Mapping[str, str] | None = None,
    dtypes: Sequence[str] = (),
    **members: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """Return what a call-site computes when it is executed by its definition, and what its body computes."""
    module = build.module()
    main = module.function()
    content: dict[str, np.ndarray] = {}
    accesses: list[Json] = []
    for number, array in enumerate(inputs):
        place = how[number] if number < len(how) else "DRAM"
        tensor, access = held(main, f"x{number}", array.shape, dtypes[number], place, "ExternalInput")
        accesses.append(access)
        content[tensor.name] = np.zeros(tensor.shape, array.dtype)
        if place == "part":
            content[tensor.name][..., 1 : 2 * array.shape[-1] + 1 : 2] = array
        else:
            content[tensor.name][...] = array.reshape(tensor.shape)
    target, access = held(main, "out", out, dtype, how[-1] if len(how) > len(inputs) else "DRAM", "ExternalOutput")
    shapes = {"srcs_shape": [list(a.shape) for a in inputs], "dsts_shape": [list(out)]}
    call(main, accesses, [access], kernel, attrs=attrs, **shapes, name="C", **members)
    ir = module.ir()
    result = air.passes.inline_bir_kernel(ir)
    assert result.ok, result.diagnostics["message"].to_list()
    assert_valid(result.ir)
    assert result.ir.count("instructions") == _size(kernel, ir)
    empty = {"out": np.zeros(target.shape, _numpy(dtype))}
    one, other = (np.asarray(air.simulate(b, content | empty)["out"], np.float64) for b in (ir, result.ir))
    if target.shape[-1] > out[-1]:  # elements beside the output stay
        assert not one[..., 0].any()
        assert not other[..., 2::2].any()
        one, other = (a[..., 1 : 2 * out[-1] + 1 : 2] for a in (one, other))
    return one.reshape(tuple(out)), other.reshape(tuple(out))


def _numpy(dtype: str) -> Any:
    return random((1,), dtype, 0).dtype


def _size(kernel: str, ir: air.IR) -> int:
    """Return the size that a kernel tells before it makes the body."""
    from arrowir.passes.inlining.library_calls import find_calls, read_call

    calls = find_calls(ir, np.ones(1, bool))
    assert calls is not None
    made = library.create(read_call(calls, 0))
    made.build()
    assert made.result().ok
    return made.instructions


def check(kernel: str, dtype: str, by_definition: np.ndarray, by_body: np.ndarray) -> None:
    allowed = library.get(kernel).tolerance[dtype]
    scale = np.maximum(1, np.maximum(np.abs(by_definition), np.abs(by_body)))
    worst = (np.abs(by_definition - by_body) / scale).max(initial=0)
    assert worst <= allowed, (worst, allowed)


SHAPES = st.one_of(
    st.tuples(st.integers(1, 400)),
    st.tuples(st.integers(1, 300), st.integers(1, 40)),
    st.tuples(st.integers(1, 4), st.integers(1, 60), st.integers(1, 12)),
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 70)),
)
ON_CHIP = st.sampled_from(["DRAM", "DRAM", "part", "SB", "PSUM"])


def places(how: Sequence[str], shape: Sequence[int]) -> list[str]:
    """Return memories for arguments; what has too many rows stays in DRAM, and PSUM holds few bytes."""
    rows = math.prod(shape[:-1])
    good = rows <= 128
    return [h if h in ("DRAM", "part") or (good and (h == "SB" or shape[-1] <= 500)) else "DRAM" for h in how]


# -- Activation ----

REFERENCE = {
    "SiLU": lambda x: x / (1 + math.exp(-x)),
    "GELU": lambda x: x * 0.5 * math.erfc(-x / math.sqrt(2)),
    "GELU_Tanh_Approx": lambda x: x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))),
    "Swish": lambda x: x / (1 + math.exp(-1.702 * x)),
    "ReLU": lambda x: max(x, 0.0),
}
"""Written in another way than in the kernel."""


@pytest.mark.parametrize("name", REFERENCE)
def test_b5_the_functions_of_activation(name: str) -> None:
    x = np.linspace(-20, 20, 256, dtype=np.float32).reshape(64, 4)
    number = list(REFERENCE).index(name)
    for given_as in (name, str(number)):
        by_definition, by_body = computed(
            "Activation", [x], "float32", x.shape, dtypes=["float32"], attrs={"act_fn": given_as}
        )
        expected = np.array([REFERENCE[name](float(v)) for v in x.reshape(-1)]).reshape(x.shape)
        check("Activation", "float32", expected, by_definition)
        check("Activation", "float32", expected, by_body)


@DRAWN
@given(
    SHAPES,
    st.sampled_from(FLOATS),
    st.sampled_from(FLOATS),
    st.sampled_from(sorted(REFERENCE)),
    st.sampled_from(["1", "7", "64", "2048"]),
    st.tuples(ON_CHIP, ON_CHIP),
    st.integers(0, 99),
)
def test_b5_activation(
    shape: tuple[int, ...], source: str, target: str, function: str, tile: str, how: tuple[str, str], seed: int
) -> None:
    x = random(shape, source, seed)
    attrs = {"act_fn": function, "tile_size": tile}
    found = computed("Activation", [x], target, shape, how=places(how, shape), dtypes=[source], attrs=attrs)
    check("Activation", target, *found)


def test_b5_values_that_are_no_numbers() -> None:
    x = np.array([[np.inf, -np.inf, np.nan, 0.0, -0.0, 3e38, -3e38, 1e-40]], np.float32)
    for name in REFERENCE:
        for out in computed("Activation", [x], "float32", x.shape, dtypes=["float32"], attrs={"act_fn": name}):
            assert np.array_equal(out[0, 3:5], [0, 0])
            assert np.isnan(out[0, 2]) or name == "ReLU"
            assert out[0, 0] == np.inf


# -- RMSNorm ----


def norm_reference(x: np.ndarray, kind: int, eps: float, gamma: Any, beta: Any) -> np.ndarray:
    """Compute row by row."""
    rows = x.astype(np.float64).reshape(-1, x.shape[-1])
    out = np.empty_like(rows)
    for number, row in enumerate(rows):
        centre = math.fsum(row) / len(row) if kind == 2 else 0.0
        mean_square = math.fsum((v - centre) ** 2 for v in row) / len(row)
        out[number] = [(v - centre) / math.sqrt(mean_square + eps) for v in row]
    return (out * (1 if gamma is None else gamma.astype(np.float64)) + (0 if beta is None else beta)).reshape(x.shape)


@DRAWN
@given(
    SHAPES,
    st.sampled_from([(1, 1), (3, 0), (2, 0), (2, 1), (2, 2)]),
    st.sampled_from(FLOATS),
    st.sampled_from(FLOATS),
    st.sampled_from(FLOATS),
    st.sampled_from(["1", "5", "64", "2048"]),
    st.tuples(ON_CHIP, ON_CHIP),
    st.integers(0, 99),
)
def test_b5_norms(
    shape: tuple[int, ...], kind: tuple[int, int], source: str, gain: str, target: str, tile: str,
    how: tuple[str, str], seed: int,
) -> None:  # fmt: skip
    number, factors = kind
    eps = 1e-3  # of rows of one element the variance is 0
    x = random(shape, source, seed)
    gains = [random(shape[-1:], gain, seed + n + 1) for n in range(factors)]
    own = places(how, shape)
    found = computed(
        "RMSNorm", [x, *gains], target, shape, how=[own[0], *["DRAM"] * factors, own[1]],
        dtypes=[source, *[gain] * factors], attrs={"tile_size": tile, "eps": str(eps)}, norm_type=number,
    )  # fmt: skip
    gamma, beta = [*gains, None, None][:2]
    expected = norm_reference(x, number, eps, gamma, beta)
    check("RMSNorm", target, expected, found[0])
    check("RMSNorm", target, *found)


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_b5_long_rows(kind: int) -> None:
    x = random((3, 8192), "float32", 1)
    gains = [random((8192,), "float32", 2)] if kind == 1 else []
    found = computed("RMSNorm", [x, *gains], "float32", x.shape, dtypes=["float32"] * 2, norm_type=kind)
    check("RMSNorm", "float32", *found)


@pytest.mark.parametrize("memory", ["DRAM", "SB"])
def test_b5_factors_of_one_row(memory: str) -> None:
    module = build.module()
    main = module.function()
    x, gamma = main.input("x", (200, 16)), main.tensor("gamma", memory, (1, 16), kind="ExternalInput")
    call(main, [x, gamma], [main.output("y", (200, 16))], "RMSNorm", name="C")
    ir = module.ir()
    result = air.passes.inline_bir_kernel(ir)
    assert result.ok
    assert air.equivalent(ir, result.ir, tolerance=2e-5).ok


# -- definitions in the simulator ----


def test_b5_the_simulator_asks_the_library_for_definitions() -> None:
    ir = read(one_call(attrs={"act_fn": "ReLU"}))
    x = random((128, 64), "float32", 3)
    assert np.array_equal(air.simulate(ir, {"x": x})["y"], np.maximum(x, 0))
    for document, text in (
        (one_call(kernel="none"), "has no definition"),
        (one_call(attrs={"act_fn": "none"}), "option `act_fn` takes SiLU"),
        (one_call(bogus=1), "has the option `bogus`"),
    ):
        with pytest.raises(air.SimulationError, match=text):
            air.simulate(read(document), {"x": x})


def test_b5_a_definition_given_by_hand_wins() -> None:
    from arrowir import simulate

    ir = read(one_call())
    simulate.define_kernel("Activation", lambda inputs, options: [inputs[0] + 1])
    try:
        assert (simulate(ir, {"x": np.zeros((128, 64), np.float32)})["y"] == 1).all()
    finally:
        simulate.undefine_kernel("Activation")


def test_b5_a_run_is_checked_by_execution() -> None:
    ir = read(one_call((128, 64), attrs={"act_fn": "ReLU"}))
    result = air.run(ir, check=2)
    assert result.ok
    assert set(result.checks.statuses.values()) == {"equal"}


@pytest.mark.parametrize("name", library.names())
def test_b5_documentation_states_shapes_dtypes_and_tolerance(name: str) -> None:
    cls = library.get(name)
    text = cls.__doc__ or ""
    assert "Parameters" in text
    assert "in0" in text
    assert "out0" in text
    for dtype, allowed in cls.tolerance.items():
        assert dtype in text
        assert f"{allowed:.0e}".replace("e-0", "e-") in text
    assert all(option.meaning for option in cls.options)


# -- views ----


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 6)), min_size=1, max_size=4),
    st.integers(1, 40),
    st.integers(1, 5),
    st.integers(1, 7),
    st.integers(0, 9),
)
@settings(max_examples=150, deadline=None)
def test_b5_tiles_are_the_elements_in_their_order(
    factors: list[tuple[int, int]], columns: int, tall: int, wide: int, offset: int
) -> None:
    step, dims = 1, list[tuple[int, int]]()
    for gap, num in reversed(factors):
        dims.insert(0, (step * gap, num))
        step *= gap * num
    elements = offset + sum(
        index * step for index, (step, _) in zip(np.indices([n for _, n in dims]), dims, strict=True)
    )
    total = elements.size
    argument = library.Argument("in0", (total,), "float32", "DRAM", 1, 1 << 20, 0, tuple(dims), offset, "in0")
    try:
        grid = Grid.of(argument, columns)
    except KernelError:
        assert split(merged(dims), columns) is None
        return
    table = elements.reshape(-1, columns)
    assert (grid.height, grid.width) == table.shape
    for row, rows in zip(*pieces(grid.height, tall, [grid.rows]), strict=True):
        for column, count in zip(*pieces(grid.width, wide, [grid.columns]), strict=True):
            tile = grid.tile(int(row), int(rows), int(column), int(count))
            ap = tile["ap"]
            named = tile["offset"] + sum(
                index * step for index, (step, _) in zip(np.indices([n for _, n in ap]), ap, strict=True)
            )
            assert np.array_equal(named.reshape(-1), table[row : row + rows, column : column + count].reshape(-1))


def test_b5_rows_that_are_no_rows_are_refused() -> None:
    module = build.module()
    main = module.function()
    x, y = main.input("x", (130, 8)), main.output("y", (10, 16))
    ragged = x.access([[16, 10], [3, 4], [1, 4]])
    call(main, [ragged, main.input("g", (8,)).access([[1, 1], [1, 8]])], [y.access([[16, 10], [1, 16]])], "RMSNorm",
         srcs_shape=[[20, 8], [8]], dsts_shape=[[20, 8]], name="C")  # fmt: skip
    result = air.passes.inline_bir_kernel(module.ir())
    assert result.status.to_list() == ["changed"]
    gamma = main.input("h", (13,)).access([[1, 1], [1, 13]])
    call(main, [x.access([[8, 13], [2, 3]]), gamma], [y.access([[1, 1], [1, 39]])], "RMSNorm",
         srcs_shape=[[3, 13], [13]], dsts_shape=[[3, 13]], name="D")  # fmt: skip
    result = air.passes.inline_bir_kernel(module.ir())
    assert result.diagnostics["code"].to_list() == ["kernel_shape_mismatch"]
    assert "no rows of 13 elements" in result.diagnostics["message"][0]
