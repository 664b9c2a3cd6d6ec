"""Tensors with tensors and with scalars, against plain numpy definitions."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(3)

FLOATING: dict[str, Callable[[float, float], float]] = {
    "bypass": lambda a, x: a,
    "add": lambda a, x: a + x,
    "subtract": lambda a, x: a - x,
    "mult": lambda a, x: a * x,
    "divide": lambda a, x: a / x,
    "max": lambda a, x: a if a > x else x,
    "min": lambda a, x: a if a < x else x,
    "logical_and": lambda a, x: float(a != 0 and x != 0),
    "logical_or": lambda a, x: float(a != 0 or x != 0),
    "logical_xor": lambda a, x: float((a != 0) != (x != 0)),
    "is_equal": lambda a, x: float(a == x),
    "not_equal": lambda a, x: float(a != x),
    "is_gt": lambda a, x: float(a > x),
    "is_ge": lambda a, x: float(a >= x),
    "is_lt": lambda a, x: float(a < x),
    "is_le": lambda a, x: float(a <= x),
    "pow": lambda a, x: math.pow(a, x),
    "rsqrt": lambda a, x: 1 / math.sqrt(a),
    "abs": lambda a, x: abs(a),
    "abs_max": lambda a, x: max(abs(a), abs(x)),
    "abs_min": lambda a, x: min(abs(a), abs(x)),
}

INTEGER: dict[str, Callable[[int, int], int]] = {
    "bitwise_and": lambda a, x: a & x,
    "bitwise_or": lambda a, x: a | x,
    "bitwise_xor": lambda a, x: a ^ x,
    "logical_shift_left": lambda a, x: a << x,
    "arith_shift_left": lambda a, x: a << x,
    "arith_shift_right": lambda a, x: a >> x,
    "logical_shift_right": lambda a, x: (a % 2**32) >> x,
    **{
        name: (lambda a, x, f=FLOATING[name]: int(f(a, x)))
        for name in ("add", "subtract", "mult", "max", "min", "is_equal", "is_gt", "logical_and", "abs", "abs_max")
    },
}


def by_element(function: Callable[..., float], *arrays: np.ndarray) -> np.ndarray:
    """Compute element by element in Python, rounding once to float32."""
    return np.array([f32(function(*map(float, values))) for values in zip(*(a.flat for a in arrays), strict=True)], f32)


@pytest.mark.parametrize("op", FLOATING)
@pytest.mark.parametrize("dtype", FLOATS)
def test_tensor_tensor(op: str, dtype: str) -> None:
    shape = (5, 9)
    positive = op in ("pow", "rsqrt")
    a, x = (rng.integers(1 if positive else -8, 8, shape).astype(f32) / 4 for _ in range(2))
    x = np.where(x == 0, f32(0.5), x) if op == "divide" else x
    a, x = a.astype(HELD[dtype]), x.astype(HELD[dtype])
    wanted = by_element(FLOATING[op], a.astype(f32), x.astype(f32)).reshape(shape)
    found = single("TensorTensor", [a, x], shape, op=op)
    assert found.dtype == f32
    assert np.array_equal(found, wanted)
    narrow = single("TensorTensor", [a, x], shape, dtype, op=op)
    assert np.array_equal(narrow.astype(f32), wanted.astype(HELD[dtype]).astype(f32))


@pytest.mark.parametrize("op", INTEGER)
@pytest.mark.parametrize("dtype", ["int32", "int16", "uint8"])
def test_tensor_tensor_of_integers(op: str, dtype: str) -> None:
    low = 0 if dtype == "uint8" or op == "subtract" else -50
    a, x = rng.integers(low, 12, (4, 7)).astype(dtype), rng.integers(0, 5, (4, 7)).astype(dtype)
    if op == "subtract":
        a = a + x
    shifted_down = op == "logical_shift_right" and dtype != "int32"
    a = np.abs(a).astype(dtype) if shifted_down else a
    wanted = [INTEGER[op](int(p), int(q)) for p, q in zip(a.flat, x.flat, strict=True)]
    found = single("TensorTensor", [a, x], (4, 7), "int32", op=op)
    assert found.reshape(-1).tolist() == [(w + 2**31) % 2**32 - 2**31 for w in wanted]


PATTERNS = [
    ([(10, 3), (1, 10)], 0),
    ([(10, 3), (-1, 10)], 9),
    ([(0, 3), (5, 2), (1, 5)], 20),
    ([(10, 3), (0, 5), (-2, 2)], 4),
]


@pytest.mark.parametrize(("left", "at"), PATTERNS)
@pytest.mark.parametrize(("right", "to"), PATTERNS)
def test_operands_are_matched_by_linear_order(
    left: list[tuple[int, int]], at: int, right: list[tuple[int, int]], to: int
) -> None:
    a, x = rng.standard_normal((3, 10)).astype(f32), rng.standard_normal((3, 10)).astype(f32)
    before, target = rng.standard_normal((3, 12)).astype(f32), [(12, 3), (2, 5), (-1, 2)]
    bench = Bench()
    one, other, out = bench.given("a", a), bench.given("x", x), bench.output("out", (3, 12), fill=before)
    bench.add("TensorTensor", [one.access(left, at), other.access(right, to)], [out.access(target, 1)], op="subtract")
    wanted = elements(a, left, at).reshape(-1) - elements(x, right, to).reshape(-1)
    assert np.array_equal(bench.run()["out"], written(before, target, 1, wanted))


@pytest.mark.parametrize("partitions", [1, 32, 96, 128])
def test_in_place(partitions: int) -> None:
    a, x = (rng.standard_normal((partitions, 6)).astype(f32) for _ in range(2))
    bench = Bench()
    tile, other = bench.given("tile", a, kind="ExternalOutput"), bench.given("x", x)
    bench.add("TensorTensor", [tile, other], [tile], op="mult")
    assert np.array_equal(bench.run()["tile"], a * x)


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize(("op0", "op1"), [("subtract", "divide"), ("divide", "subtract"), ("is_gt", "mult")])
def test_tensor_scalar(op0: str, op1: str, reverse0: bool, reverse1: bool) -> None:
    a = rng.integers(1, 9, (6, 5)).astype(f32)
    keys = {"op0": op0, "const0": 10.5, "reverse0": reverse0, "op1": op1, "const1": 0.3, "reverse1": reverse1}

    def wanted(value: np.ndarray, op: str, constant: float, reverse: bool) -> np.ndarray:
        other = np.full_like(value, constant)
        return by_element(FLOATING[op], *((other, value) if reverse else (value, other))).reshape(value.shape)

    first = wanted(a, op0, 10.5, reverse0)
    with np.errstate(all="ignore"):
        if op1 == "divide" and reverse1 and (first == 0).any():
            first = np.where(first == 0, f32(np.nan), first)
    if not np.isnan(first).any():
        assert np.array_equal(single("TensorScalar", [a], (6, 5), **keys), wanted(first, op1, 0.3, reverse1))


@pytest.mark.parametrize("name", ["inf", "-inf", "nan"])
def test_constants_may_be_spelled(name: str) -> None:
    found = single(
        "TensorScalar", [np.ones((1, 2), f32)], (1, 2), op0="mult", const0=name, op1="bypass", const1=0,
        reverse0=False, reverse1=False,
    )  # fmt: skip
    assert np.array_equal(found, np.full((1, 2), float(name), f32), equal_nan=True)


def test_constants_are_rounded_to_float32() -> None:
    keys = {"op0": "add", "const0": 0.1, "reverse0": False, "op1": "mult", "const1": 7, "reverse1": False}
    a = rng.standard_normal((2, 8)).astype(f32)
    assert np.array_equal(single("TensorScalar", [a], (2, 8), **keys), (a + f32(0.1)) * f32(7))


def test_division_by_zero_is_ieee() -> None:
    a, x = np.array([[1, -1, 0]], f32), np.zeros((1, 3), f32)
    found = single("TensorTensor", [a, x], (1, 3), op="divide")
    assert np.array_equal(found, [[np.inf, -np.inf, np.nan]], equal_nan=True)


# -- what is undecided ----


def chosen(op: str, a: np.ndarray, x: np.ndarray, dtype: str, case: str, choice: str, match: str) -> np.ndarray:
    """Run with a choice, after checking that it is needed."""
    bench = Bench()
    operands = [bench.given("a", a), bench.given("x", x)]
    bench.add("TensorTensor", operands, [bench.output("out", a.shape, dtype)], op=op)
    with pytest.raises(SimulationError, match=match):
        bench.run()
    return bench.run(readings={case: choice})["out"]


def test_the_sign_of_mod() -> None:
    a, x = np.array([[7, -7, 7.5, -7.5]], f32), np.array([[3, 3, -2, -2]], f32)
    for choice, wanted in (("floor", [1, 2, -0.5, -1.5]), ("truncate", [1, -1, 1.5, -1.5])):
        assert chosen("mod", a, x, "float32", "mod", choice, "operands of different signs").tolist() == [wanted]
    assert single("TensorTensor", [np.abs(a), np.abs(x)], (1, 4), op="mod").tolist() == [[1, 1, 1.5, 1.5]]


def test_nan_in_a_maximum() -> None:
    a, x = np.array([[np.nan, 1, np.nan]], f32), np.array([[2, np.nan, np.nan]], f32)
    for choice, wanted in (("number", [2, 1, np.nan]), ("nan", [np.nan] * 3)):
        found = chosen("max", a, x, "float32", "nan_comparison", choice, "a NaN is compared with a number")
        assert np.array_equal(found, [wanted], equal_nan=True)


def test_large_integers() -> None:
    a, x = np.array([[2**24 - 1, 2**24 + 2]], np.int32), np.array([[2, 0]], np.int32)
    for choice, wanted in (("exact", [2**24 + 1, 2**24 + 2]), ("float32", [2**24, 2**24 + 2])):
        found = chosen("add", a, x, "int32", "integer_arithmetic", choice, "`add` of integers gives 16777217")
        assert found.tolist() == [wanted]
    product = single("TensorTensor", [a[:, :1], x[:, :1]], (1, 1), "int32", op="mult")
    assert product.tolist() == [[2**25 - 2]]  # float32 has it
    with pytest.raises(SimulationError, match="is_equal"):
        single(
            "TensorTensor", [np.array([[2**24 + 1]], np.int32), np.array([[2**24]], np.int32)], (1, 1), op="is_equal"
        )
    with pytest.raises(SimulationError, match="may leave 64 bits"):
        single("TensorTensor", [np.full((1, 1), 2**40)] * 2, (1, 1), "int64", op="mult")
    with pytest.raises(SimulationError, match="the integer 16777217 is no value of float32"):
        single("TensorTensor", [np.array([[2**24 + 1]], np.int32), np.ones((1, 1), f32)], (1, 1), op="add")


def test_results_that_do_not_fit() -> None:
    a, x = np.array([[200, 10]], np.uint8), np.array([[100, 20]], np.uint8)
    for choice, wanted in (("wrap", [44, 30]), ("saturate", [255, 30])):
        found = chosen("add", a, x, "uint8", "integer_overflow", choice, "300 does not fit `uint8`")
        assert found.tolist() == [wanted]
    assert single("TensorTensor", [a, x], (1, 2), op="add").tolist() == [[300, 30]]


def test_fractions_written_to_integers() -> None:
    a, x = np.array([[5, 7, 4]], np.int32), np.array([[2, 2, 2]], np.int32)
    for choice, wanted in (("nearest", [2, 4, 2]), ("truncate", [2, 3, 2])):
        assert chosen("divide", a, x, "int32", "float_to_int", choice, "2.5 is written to `int32`").tolist() == [wanted]


@pytest.mark.parametrize(
    ("op", "dtypes", "reason"),
    [
        ("bitwise_and", ("float32", "int32"), "takes integers"),
        ("average", ("float32", "float32"), "`average` is not modelled"),
        ("elemwise_mul", ("float32", "float32"), "`elemwise_mul` is not modelled"),
        ("nonsense", ("float32", "float32"), "`nonsense` is not modelled"),
    ],
)
def test_operations_that_are_refused(op: str, dtypes: tuple[str, str], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        single("TensorTensor", [np.ones((1, 2), HELD[d]) for d in dtypes], (1, 2), "int32", op=op)


def test_shifts_by_too_much_are_refused() -> None:
    a = np.ones((1, 2), np.int32)
    with pytest.raises(SimulationError, match="by 32 to 33 bits"):
        single("TensorTensor", [a, a * [[32, 33]]], (1, 2), "int32", op="logical_shift_left")


def test_counts_must_agree() -> None:
    with pytest.raises(SimulationError, match="operands of 6 and 4 elements"):
        single("TensorTensor", [np.ones((2, 3), f32), np.ones((2, 2), f32)], (2, 3), op="add")
    with pytest.raises(SimulationError, match="`out 0` has 4 elements, and 6 values"):
        single("TensorTensor", [np.ones((2, 3), f32)] * 2, (2, 2), op="add")
