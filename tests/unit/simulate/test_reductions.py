"""Reductions, against loops over elements."""

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(5)

PAIRS = {
    "add": lambda a, x: f32(a + x),
    "mult": lambda a, x: f32(a * x),
    "max": lambda a, x: a if a > x else x,
    "min": lambda a, x: a if a < x else x,
    "abs_max": lambda a, x: max(abs(a), abs(x)),
    "logical_and": lambda a, x: f32(a != 0 and x != 0),
    "subtract": lambda a, x: f32(a - x),
}


def folded(op: str, rows: np.ndarray) -> np.ndarray:
    """Fold each row from left to right, one float32 operation at a time."""
    out = []
    for row in rows.astype(f32):
        value = row[0]
        for other in row[1:]:
            value = PAIRS[op](value, other)
        out.append(value)
    return np.array(out, f32)


@pytest.mark.parametrize("op", PAIRS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("partitions", [1, 3, 33])
def test_rows_are_folded_in_order(op: str, dtype: str, partitions: int) -> None:
    x = rng.standard_normal((partitions, 37)).astype(HELD[dtype])
    with np.errstate(all="ignore"):
        assert np.array_equal(single("TensorReduce", [x], (partitions, 1), op=op, axis="X")[:, 0], folded(op, x))


@pytest.mark.parametrize(
    ("axis", "pattern", "keep"),
    [
        ("X", [(80, 4), (12, 5), (1, 12)], 2),
        ("XY", [(80, 4), (12, 5), (1, 12)], 1),
        ("XY", [(80, 4), (30, 2), (12, 2), (-1, 3)], 2),
        ("XYZ", [(80, 4), (30, 2), (12, 2), (1, 3)], 1),
        ("X", [(80, 4), (0, 3), (1, 7)], 2),
        ("XYZW", [(80, 4), (30, 2), (12, 2), (1, 3)], 0),
        ("XYZW", [(80, 4), (30, 2), (12, 2), (1, 3)], 1),
        ("XYZW", [(80, 4), (30, 2), (15, 2), (5, 2), (1, 3)], 1),
        ("XYZ", [(80, 4), (1, 9)], 1),
        ("XY", [(80, 4), (1, 9)], 1),
        ("XY", [(80, 4), (1, 9)], 0),
    ],
)
def test_axes(axis: str, pattern: list[tuple[int, int]], keep: int) -> None:
    x = rng.standard_normal((4, 80)).astype(f32)
    values = elements(x, pattern, 5)
    rows = values.reshape(int(np.prod(values.shape[:keep])), -1)
    bench = Bench()
    given, out = bench.given("x", x), bench.output("out", (len(rows) if len(rows) % 4 else 4, max(1, len(rows) // 4)))
    bench.add("TensorReduce", [given.access(pattern, 5)], [out], op="add", axis=axis)
    assert np.array_equal(bench.run()["out"].reshape(-1), folded("add", rows))


def test_over_partitions() -> None:
    x = rng.standard_normal((7, 3, 2)).astype(f32)
    wanted = folded("add", x.reshape(7, 6).T)
    assert np.array_equal(single("TensorReduce", [x], (1, 6), op="add", axis="C")[0], wanted)


def test_average_divides_first() -> None:
    x = rng.standard_normal((3, 7)).astype(f32)
    wanted = []
    for row in x:
        value = row[0] / f32(7)
        for other in row[1:]:
            value = value + f32(1) / f32(7) * other
        wanted.append(value)
    found = single("TensorReduce", [x], (3, 1), op="average", axis="X")
    assert np.array_equal(found[:, 0], np.array(wanted, f32))


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integers(dtype: str) -> None:
    x = rng.integers(0, 50, (3, 9)).astype(dtype)
    assert single("TensorReduce", [x], (3, 1), "int32", op="add", axis="X")[:, 0].tolist() == x.sum(axis=1).tolist()
    assert single("TensorReduce", [x], (3, 1), dtype, op="max", axis="X")[:, 0].tolist() == x.max(axis=1).tolist()
    bits = single("TensorReduce", [x.astype(np.int32)], (3, 1), "int32", op="bitwise_xor", axis="X")
    assert bits[:, 0].tolist() == np.bitwise_xor.reduce(x.astype(np.int32), axis=1).tolist()


def test_the_result_is_negated() -> None:
    x = np.array([[1, 2, 4]], f32)
    assert single("TensorReduce", [x], (1, 1), op="add", axis="X", negate=True).tolist() == [[-7]]


def test_nan_in_a_maximum_is_a_choice() -> None:
    bench = Bench()
    x = bench.given("x", np.array([[1, np.nan, 3]], f32))
    bench.add("TensorReduce", [x], [bench.output("out", (1, 1))], op="max", axis="X")
    with pytest.raises(SimulationError, match="a NaN is compared"):
        bench.run()
    assert bench.run(readings={"nan_comparison": "number"})["out"].tolist() == [[3]]


@pytest.mark.parametrize(
    ("keys", "shape", "reason"),
    [
        ({"op": "add", "axis": "X"}, (3, 2), "over X gives 3 elements, the output has 6"),
        ({"op": "add", "axis": "C"}, (3, 1), "over partitions gives 5 elements, and the output has 3"),
        ({"op": "add", "axis": "Q"}, (3, 1), "axis list `Q`"),
        ({"op": "rsqrt", "axis": "X"}, (3, 1), "with `rsqrt` is not modelled"),
        ({"op": "add", "axis": "X", "apply_transpose": True}, (3, 1), "undecided: `apply_transpose` of a reduction"),
        ({"op": "add", "axis": "C", "apply_transpose": True}, (1, 5), "over partitions is not modelled"),
    ],
)
def test_what_is_refused(keys: dict[str, object], shape: tuple[int, int], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        single("TensorReduce", [np.ones((3, 5), f32)], shape, **keys)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op", ["add", "max", "mult"])
@pytest.mark.parametrize("negate", [False, True])
def test_over_partitions_of_patterns(dtype: str, op: str, negate: bool) -> None:
    x = rng.integers(1, 4, (33, 20)).astype(HELD[dtype])
    pattern, target = [(20, 33), (9, 2), (-2, 4)], [(12, 1), (-1, 8)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (1, 12), fill=0)
    more = {"op": op, "axis": "C", "negate": negate}
    bench.add("TensorReduce", [source.access(pattern, 7)], [out.access(target, 9)], **more)
    wanted = folded(op, elements(x, pattern, 7).reshape(33, 8).T) * (-1 if negate else 1)
    assert np.array_equal(bench.run()["out"], written(np.zeros((1, 12), f32), target, 9, wanted))


def test_an_average_is_negated() -> None:
    x = rng.standard_normal((3, 7)).astype(f32)
    plain, negated = (
        single("TensorReduce", [x], (3, 1), op="average", axis="X", negate=negate) for negate in (False, True)
    )
    assert np.array_equal(negated, -plain)
    x = np.array([[3, -7, 12]], np.int32)
    assert single("TensorReduce", [x], (1, 1), "int32", op="max", axis="X", negate=True).tolist() == [[-12]]


def test_what_a_transpose_of_a_reduction_means_is_a_choice() -> None:
    def made(x: np.ndarray, shape: tuple[int, int], axis: str = "X") -> Bench:
        bench = Bench()
        source = bench.given("x", x).access([(x.shape[1], len(x)), (32, x.shape[1] // 32), (1, 32)])
        bench.add("TensorReduce", [source], [bench.output("out", shape)], op="add", axis=axis, apply_transpose=True)
        return bench

    x = rng.integers(-9, 9, (64, 96)).astype(f32)
    with pytest.raises(SimulationError, match="undecided: `apply_transpose` of a reduction"):
        made(x, (64, 3)).run()
    blocks = x.reshape(2, 32, 3, 32)
    found = made(x, (64, 3)).run(readings={"apply_transpose": "input"})["out"]
    assert np.array_equal(found, blocks.sum(axis=1).transpose(0, 2, 1).reshape(64, 3))
    found = made(x, (64, 3)).run(readings={"apply_transpose": "result"})["out"]
    assert np.array_equal(found.reshape(-1), blocks.sum(axis=3).transpose(0, 2, 1).reshape(-1))
    # All elements equal: both mean the same.
    assert made(np.ones((32, 64), f32), (1, 32), "XY").run()["out"].tolist() == [[64] * 32]


def test_a_transposed_result_of_few_partitions() -> None:
    x = rng.integers(-9, 9, (5, 4)).astype(f32)
    bench = Bench()
    bench.add("TensorReduce", [bench.given("x", x)], [bench.output("out", (1, 5))], op="add", axis="X",
              apply_transpose=True)  # fmt: skip
    assert bench.run(readings={"apply_transpose": "result"})["out"].tolist() == [x.sum(axis=1).tolist()]
    with pytest.raises(SimulationError, match="5 partitions of 4 elements are transposed"):
        bench.run(readings={"apply_transpose": "input"})
    bench = Bench()
    bench.add("TensorReduce", [bench.given("x", np.ones((40, 4), f32))], [bench.output("out", (40, 1))], op="add",
              axis="X", apply_transpose=True)  # fmt: skip
    with pytest.raises(SimulationError, match="the results of 40 partitions are transposed; expected a multiple of 32"):
        bench.run(readings={"apply_transpose": "result"})


def test_integers_over_partitions() -> None:
    x = rng.integers(-50, 50, (9, 4)).astype(np.int32)
    assert single("TensorReduce", [x], (1, 4), "int32", op="add", axis="C").tolist() == [x.sum(axis=0).tolist()]
