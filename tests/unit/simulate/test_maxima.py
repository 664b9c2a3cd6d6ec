"""The largest elements, where values stand, and what replaces them, against loops over single elements."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Array, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(13)

NOWHERE = 2**32 - 1


def eight(row: Array) -> list[float]:
    """The eight largest numbers, by insertion; an equal one goes behind."""
    held: list[float] = []
    for value in row.astype(f32).tolist():
        place = len([v for v in held if not value > v])
        held.insert(place, value)
        held = held[:8]
    return held


def places(row: Array, values: Array) -> list[int]:
    """For each value the first element equal to it that no value before it took."""
    taken: set[int] = set()
    out: list[int] = []
    for value in values.astype(f32):
        free = [i for i, x in enumerate(row.astype(f32)) if x == value and i not in taken]
        out.append(free[0] if free else -1)
        taken.update(free[:1])
    return out


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8"])
@pytest.mark.parametrize(("partitions", "length"), [(1, 8), (3, 9), (33, 40), (128, 17)])
def test_the_largest(dtype: str, partitions: int, length: int) -> None:
    low = 0 if dtype == "uint8" else -20
    x = rng.integers(low, 20, (partitions, length)).astype(HELD[dtype])
    found = single("Max", [x], (partitions, 8), dtype)
    assert found.astype(f32).tolist() == [eight(row) for row in x]


def test_the_largest_of_a_pattern() -> None:
    x, pattern, target = rng.standard_normal((3, 40)).astype(f32), [(40, 3), (20, 2), (-2, 8)], [(12, 3), (-1, 8)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (3, 12), fill=0)
    bench.add("Max", [source.access(pattern, 15)], [out.access(target, 9)])
    wanted = np.array([eight(row) for row in elements(x, pattern, 15).reshape(3, 16)], f32)
    assert np.array_equal(bench.run()["out"], written(np.zeros((3, 12), f32), target, 9, wanted))


def test_equal_and_infinite_elements() -> None:
    x = np.array([[0.0, -0.0, np.inf, 0.0, -np.inf, -np.inf, -np.inf, -np.inf, -np.inf]], f32)
    found = single("Max", [x], (1, 8))
    assert found.tolist() == [[np.inf, 0, 0, 0, *[-np.inf] * 4]]
    assert np.signbit(found)[0, 1:4].tolist() == [False, True, False]


def test_the_most_elements() -> None:
    x = rng.permutation(16384).reshape(1, -1).astype(f32)
    assert single("Max", [x], (1, 8)).tolist() == [list(range(16383, 16375, -1))]


@pytest.mark.parametrize(
    ("x", "shape", "reason"),
    [
        (np.ones((2, 7), f32), (2, 8), "partitions of 7 elements; expected 8 to 16384"),
        (np.ones((1, 16385), f32), (1, 8), "partitions of 16385 elements"),
        (np.ones((2, 9), f32), (2, 4), "8 elements for each of 2 partitions go to an output of 8"),
        (np.full((2, 9), np.nan, f32), (2, 8), "where a NaN stands is not known"),
    ],
)
def test_what_max_refuses(x: Array, shape: tuple[int, int], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        single("Max", [x], shape)


def given(dtype: str, partitions: int, length: int, count: int = 8) -> tuple[Array, Array]:
    """Data with many equal elements, and values of which some do not occur."""
    x = rng.integers(0, 12, (partitions, length)).astype(HELD[dtype])
    return x, rng.integers(0, 15, (partitions, count)).astype(HELD[dtype])


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@pytest.mark.parametrize(("partitions", "length"), [(1, 8), (3, 30), (33, 9), (128, 20)])
def test_where_values_stand(dtype: str, partitions: int, length: int) -> None:
    x, values = given(dtype, partitions, length)
    found = single("MaxIndex", [x, values], (partitions, 8), "uint32")
    wanted = [[NOWHERE if i < 0 else i for i in places(*rows)] for rows in zip(x, values, strict=True)]
    assert found.tolist() == wanted


def replaced(x: Array, values: Array, by: float) -> Array:
    out = x.copy()
    for row, wanted in zip(out, values, strict=True):
        for i in places(row.copy(), wanted):
            if i >= 0:
                row[i] = by
    return out


@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@pytest.mark.parametrize(("partitions", "length"), [(1, 8), (3, 30), (33, 9), (128, 20)])
def test_values_are_replaced(dtype: str, partitions: int, length: int) -> None:
    x, values = given(dtype, partitions, length)
    found = single("MatchReplace", [x, values], x.shape, dtype, imm_value=-3)
    assert np.array_equal(found, replaced(x, values, -3))


def test_values_are_replaced_in_place_and_by_patterns() -> None:
    x, values = given("float32", 3, 16, 4)
    bench = Bench()
    tile = bench.given("tile", x, kind="ExternalOutput")
    bench.add("MatchReplace", [tile, bench.given("v", values)], [tile], imm_value="-inf")
    assert np.array_equal(bench.run()["tile"], replaced(x, values, -np.inf))
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (3, 9), fill=0)
    pattern, target = [(16, 3), (8, 2), (-2, 4)], [(9, 3), (-1, 8)]
    v = bench.given("v", values).access([(4, 3), (-1, 3)], 3)
    bench.add("MatchReplace", [source.access(pattern, 7), v], [out.access(target, 8)], imm_value=0.5)
    wanted = replaced(elements(x, pattern, 7).reshape(3, 8), values[:, :0:-1], 0.5)
    assert np.array_equal(bench.run()["out"], written(np.zeros((3, 9), f32), target, 8, wanted))


def test_a_replacement_that_is_not_used_need_not_fit() -> None:
    x, values = np.array([[1, 2]], np.int32), np.array([[7]], np.int32)
    assert single("MatchReplace", [x, values], (1, 2), "int32", imm_value=0.5).tolist() == [[1, 2]]
    with pytest.raises(SimulationError, match=r"0\.5 is written to `int32`"):
        single("MatchReplace", [x, x], (1, 2), "int32", imm_value=0.5)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("length", [8, 21])
def test_indices_and_replaced_data(swapped: bool, length: int) -> None:
    x, values = given("bfloat16", 5, length)
    bench = Bench()
    outs = [bench.output("data", x.shape, "bfloat16"), bench.output("index", (5, 8), "uint32")]
    ins = [bench.given("x", x), bench.given("v", values)]
    bench.add("MaxIndexAndMatchReplace", ins, outs[::-1] if swapped else outs, imm_value=-1)
    found = bench.run()
    assert np.array_equal(found["data"], replaced(x, values, -1))
    wanted = [[NOWHERE if i < 0 else i for i in places(*rows)] for rows in zip(x, values, strict=True)]
    assert found["index"].tolist() == wanted


@pytest.mark.parametrize(
    ("opcode", "ins", "outs", "reason"),
    [
        ("MaxIndex", [(3, 9), (2, 8)], [(3, 8)], "data of 3 partitions, and values of 2"),
        ("MaxIndex", [(3, 9), (3, 8)], [(3, 7)], "`out 0` has 21 elements, and 24 values"),
        ("MatchReplace", [(3, 9), (3, 8)], [(3, 8)], "`out 0` has 24 elements, and `in 0` 27"),
        ("MaxIndexAndMatchReplace", [(3, 8), (3, 8)], [(3, 8), (3, 8)], "which of the outputs takes the 24 indices"),
        ("MaxIndexAndMatchReplace", [(3, 9), (3, 8)], [(3, 9), (3, 9)], "which of the outputs takes the 24 indices"),
    ],
)
def test_what_is_refused(opcode: str, ins: Any, outs: Any, reason: str) -> None:
    bench = Bench()
    operands = [bench.given(f"in{i}", np.ones(shape, f32)) for i, shape in enumerate(ins)]
    results = [bench.output(f"out{i}", shape) for i, shape in enumerate(outs)]
    more = {} if opcode == "MaxIndex" else {"imm_value": 0}
    bench.add(opcode, operands, results, **more)
    with pytest.raises(SimulationError, match=reason):
        bench.run()


def test_an_index_of_nothing_needs_32_bits() -> None:
    x = np.ones((1, 8), f32)
    assert single("MaxIndex", [x, x], (1, 8), "uint16").tolist() == [list(range(8))]
    with pytest.raises(SimulationError, match="4294967295 does not fit `uint16`"):
        single("MaxIndex", [x, x + 1], (1, 8), "uint16")
