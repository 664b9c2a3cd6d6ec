"""DMA: transposes, sums of inputs, replication, against loops over plain arrays."""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from arrowir.vocabulary import VOCABULARIES
from tests.simulated import HELD, Array, Bench, elements, written

rng = np.random.default_rng(11)
f32 = np.float32

ORDERS = {
    "None": "WZYX", **{name: name for name in VOCABULARIES["transpose_op"].values if name != "None"}
}  # fmt: skip
TRANSPOSES = ("DMACopy", "DMADescriptorTranspose")


def some(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(0, 100, shape).astype(f32).astype(HELD[dtype])


def bits(shape: tuple[int, ...], dtype: str) -> Array:
    size = np.dtype(HELD[dtype]).itemsize
    return rng.integers(0, 256, (*shape[:-1], shape[-1] * size)).astype(np.uint8).view(HELD[dtype])


def keys(opcode: str, **members: Any) -> dict[str, Any]:
    return {"mode": "Transpose", **members} if opcode == "DMACopy" else members


# -- transposes ----


def transposed(values: Array, order: str) -> Array:
    """Element by element: the letters of the result, in order, name dimensions of the input."""
    sizes = dict(zip("WZYX", values.shape, strict=True))
    out = np.empty([sizes[letter] for letter in order], values.dtype)
    for place in product(*map(range, out.shape)):
        at = dict(zip(order, place, strict=True))
        out[place] = values[at["W"], at["Z"], at["Y"], at["X"]]
    return out


@pytest.mark.parametrize("opcode", TRANSPOSES)
@pytest.mark.parametrize("op", ORDERS)
@pytest.mark.parametrize("memory", ["SB", "DRAM"])
def test_every_transpose(opcode: str, op: str, memory: str) -> None:
    given = some((3, 2, 4, 5))
    expected = transposed(given, ORDERS[op])
    bench = Bench()
    a = bench.given("a", given.reshape(3, 40), memory=memory)
    out = bench.output("out", (expected.shape[0], 120 // expected.shape[0]), memory="DRAM")
    source = a.access([(40, 3), (20, 2), (5, 4), (1, 5)])
    w, z, y, x = expected.shape
    target = out.access([(z * y * x, w), (y * x, z), (x, y), (1, x)])
    bench.add(opcode, [source], [target], **keys(opcode, transpose_op=op))
    assert np.array_equal(bench.run()["out"].reshape(-1), expected.reshape(-1))


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize(("rows", "columns"), [(1, 7), (16, 32), (128, 3)])
def test_the_usual_transpose_moves_bits(dtype: str, rows: int, columns: int) -> None:
    given = bits((rows, columns), dtype)
    bench = Bench()
    a, out = bench.given("a", given, memory="DRAM"), bench.output("out", (columns, rows), dtype)
    source = a.access([(columns, rows), (1, 1), (1, 1), (1, columns)])
    target = out.access([(rows, columns), (1, 1), (1, 1), (1, rows)])
    bench.add("DMACopy", [source], [target], mode="Transpose", transpose_op="XZYW")
    found = bench.run()["out"]
    assert found.shape == (columns, rows)
    assert np.array_equal(np.ascontiguousarray(found.T).view(np.uint8), given.view(np.uint8))


def test_a_transpose_of_strided_patterns() -> None:
    given, before = some((6, 24)), some((8, 12))
    source, target = [(48, 3), (-8, 2), (3, 2), (-1, 4)], [(12, 4), (6, 2), (3, 2), (-1, 3)]
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (8, 12), fill=before)
    operands = [a.access(source, 20)], [out.access(target, 26)]
    bench.add("DMACopy", *operands, mode="Transpose", transpose_op="XZYW")
    expected = transposed(elements(given, source, 20), "XZYW")
    assert np.array_equal(bench.run()["out"], written(before, target, 26, expected))


def test_unwritten_elements_are_transposed_as_such() -> None:
    bench = Bench()
    tile, middle, out = bench.scratch("tile", (2, 3)), bench.scratch("middle", (3, 2)), bench.output("out", (2, 2))
    bench.add("Memset", [], [tile[:, :2]], mode="Const", constant=0)
    bench.add(
        "DMACopy", [tile.access([(3, 2), (1, 1), (1, 1), (1, 3)])], [middle.access([(2, 3), (1, 1), (1, 1), (1, 2)])],
        mode="Transpose", transpose_op="XZYW", can_read_uninit=True,
    )  # fmt: skip
    bench.add("TensorCopy", [middle[:2, :]], [out])
    assert bench.run()["out"].tolist() == [[0, 0], [0, 0]]
    bench.add("TensorCopy", [middle[1:, :]], [out])
    with pytest.raises(SimulationError, match=r"2 of 4 elements of `middle` that were never written, first \[1, 0\]"):
        bench.run()


def square(patterns: Sequence[Any], dtypes: Sequence[str] = ("float32", "float32"), **members: Any) -> Bench:
    bench = Bench()
    a, out = bench.given("a", some((4, 4), dtypes[0])), bench.output("out", (4, 4), dtypes[1], fill=0)
    bench.add("DMACopy", [a.access(patterns[0])], [out.access(patterns[-1])], **{"mode": "Transpose", **members})
    return bench


FOUR = [(4, 4), (1, 1), (1, 1), (1, 4)]
TRANSPOSE_ERRORS: list[tuple[Bench, str]] = [
    (square([[(4, 4), (1, 4)]], transpose_op="XZYW"), "must be 4-D; found 2 and 2 dimensions"),
    (square([FOUR, [(4, 4), (1, 4)]], transpose_op="XZYW"), "must be 4-D; found 4 and 2 dimensions"),
    (square([FOUR], ("float32", "int32"), transpose_op="XZYW"), "should have the same type, but it has in float32"),
    (square([FOUR], transpose_op="WZXY"), r"transposed by `WZXY` is \[4, 1, 4, 1\], not \[4, 1, 1, 4\]"),
    (square([FOUR], transpose_op="XXYW"), "the transpose `XXYW` is not modelled"),
    (square([FOUR], transpose_op="XZYW", cce_op="add"), "DMACopy does not support add with Transpose mode"),
    (square([FOUR], transpose_op="XZYW", mode="Copy"), "`transpose_op` is `XZYW` in the mode `Copy`"),
    (square([FOUR], transpose_op="XZYW", constants=[2.0]), "`constants` are given in the mode `Transpose`"),
    (square([FOUR], mode="Dynamic"), "the mode `Dynamic` is not modelled"),
    (square([FOUR], mode="Copy", cce_op="add"), "CCE op is only valid on DMACopys that have mode=CCE"),
    (square([FOUR], mode="Copy", replica_groups=[[0]]), "`replica_groups` of .* is not modelled"),
    (square([FOUR], mode="Copy", oob_is_err=3, cce_op="max"), "CCE op is only valid"),
]


@pytest.mark.parametrize(("bench", "message"), TRANSPOSE_ERRORS, ids=range(len(TRANSPOSE_ERRORS)))
def test_what_is_wrong_with_a_copy_or_a_transpose(bench: Bench, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        bench.run()


@pytest.mark.parametrize("mode", ["Copy", "Transpose", "Replicate"])
def test_one_input_is_expected(mode: str) -> None:
    bench = Bench()
    a, b, out = bench.given("a", some((4, 4))), bench.given("b", some((4, 4))), bench.output("out", (4, 4))
    bench.add("DMACopy", [a, b], [out], mode=mode)
    with pytest.raises(SimulationError, match="`in 1` has no part in it; expected one input"):
        bench.run()


def test_a_transpose_in_place_is_a_choice() -> None:
    given = some((4, 4))
    bench = Bench()
    a = bench.given("a", given, kind="ExternalOutput")
    bench.add("DMACopy", [a.access(FOUR)], [a.access(FOUR)], mode="Transpose", transpose_op="XZYW")
    with pytest.raises(SimulationError, match="`in 0` and `out 0` share elements of `a`"):
        bench.run()
    assert np.array_equal(bench.run(readings={"overlap": "snapshot"})["a"], given.T)


def test_the_absent_mode_is_a_copy() -> None:
    given = some((4, 4))
    bench = Bench()
    bench.add("DMACopy", [bench.given("a", given)], [bench.output("out", (4, 4))])
    assert np.array_equal(bench.run()["out"], given)


# -- sums ----

COMBINES = ("DMACopy", "DMADescriptorCCE")


def cce(opcode: str, op: str, **members: Any) -> dict[str, Any]:
    return {"mode": "CCE", "cce_op": op, **members} if opcode == "DMACopy" else {"op": op, **members}


def combined(op: str, values: Sequence[Array], constants: Sequence[float]) -> Array:
    """In float32, one input after the other."""
    total = None
    for value, constant in zip(values, constants, strict=True):
        scaled = (value.astype(f32) * f32(constant)).astype(f32)
        if total is None:
            total = scaled
        else:
            total = {"add": np.add, "max": np.maximum, "min": np.minimum}[op](total, scaled).astype(f32)
    assert total is not None
    return total


@pytest.mark.parametrize("opcode", COMBINES)
@pytest.mark.parametrize("op", ["add", "max", "min"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8e4", "float8e5"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_inputs_are_folded_in_float32(opcode: str, op: str, dtype: str, count: int) -> None:
    values = [rng.standard_normal((3, 7)).astype(HELD[dtype]) for _ in range(count)]
    bench = Bench()
    operands = [bench.given(f"in{n}", value, memory="DRAM") for n, value in enumerate(values)]
    bench.add(opcode, operands, [bench.output("out", (3, 7))], **cce(opcode, op))
    assert np.array_equal(bench.run()["out"], combined(op, values, [1] * count))


@pytest.mark.parametrize("opcode", COMBINES)
def test_inputs_are_multiplied_by_constants(opcode: str) -> None:
    values, constants = [rng.standard_normal((128, 3)).astype(f32) for _ in range(3)], [0.5, -1.25, 3.7]
    bench = Bench()
    operands = [bench.given(f"in{n}", value) for n, value in enumerate(values)]
    bench.add(opcode, operands, [bench.output("out", (128, 3), "bfloat16")], **cce(opcode, "add", constants=constants))
    expected = combined("add", values, constants).astype(HELD["bfloat16"])
    assert np.array_equal(bench.run()["out"], expected)


def test_patterns_of_inputs_may_differ() -> None:
    one, other, before = some((4, 12)), some((2, 24)), some((4, 12))
    first, second = [(12, 4), (-2, 3)], [(24, 2), (3, 2), (-1, 3)]
    bench = Bench()
    a, b = bench.given("a", one), bench.given("b", other)
    out = bench.output("out", (4, 12), fill=before)
    bench.add(
        "DMACopy", [a.access(first, 11), b.access(second, 5)], [out.access([(12, 3), (2, 4)], 13)],
        mode="CCE", cce_op="add",
    )  # fmt: skip
    total = elements(one, first, 11).reshape(-1) + elements(other, second, 5).reshape(-1)
    assert np.array_equal(bench.run()["out"], written(before, [(12, 3), (2, 4)], 13, total))


def test_integers_are_exact() -> None:
    bench = Bench()
    a, b = bench.given("a", np.array([[1 << 20, 5]], np.int32)), bench.given("b", np.array([[-3, 7]], np.int32))
    bench.add("DMACopy", [a, b], [bench.output("out", (1, 2), "int32")], mode="CCE", cce_op="add", constants=[2, 1])
    assert bench.run()["out"].tolist() == [[(1 << 21) - 3, 17]]


def test_of_a_nan_and_a_number_the_number_is_chosen() -> None:
    nan = np.nan
    bench = Bench()
    a, b = bench.given("a", np.array([[nan, 1, nan]], f32)), bench.given("b", np.array([[2, nan, nan]], f32))
    bench.add("DMACopy", [a, b], [bench.output("out", (1, 3))], mode="CCE", cce_op="max")
    found = bench.run()["out"][0]
    assert found[:2].tolist() == [2, 1]
    assert np.isnan(found[2])


def test_constants_of_a_maximum_are_a_choice() -> None:
    def maximum(constants: list[float], readings: dict[str, str] | None = None) -> list[list[float]]:
        bench = Bench()
        a, b = bench.given("a", np.array([[1, 2]], f32)), bench.given("b", np.array([[3, 1]], f32))
        bench.add("DMACopy", [a, b], [bench.output("out", (1, 2))], mode="CCE", cce_op="max", constants=constants)
        return bench.run(readings=readings)["out"].tolist()

    assert maximum([1.0, 1.0]) == [[3, 2]]
    with pytest.raises(SimulationError, match=r"`max` of inputs with the constants \[4.0, 1.0\]; choose"):
        maximum([4.0, 1.0])
    assert maximum([4.0, 1.0], {"cce_constants": "scaled"}) == [[4, 8]]
    assert maximum([4.0, 1.0], {"cce_constants": "plain"}) == [[3, 2]]


def summed(count: int = 2, dtype: str = "float32", shape: tuple[int, int] = (2, 4), **members: Any) -> Bench:
    bench = Bench()
    held = bits(shape, "uint32").view(np.uint32) if dtype.endswith("_x4") else some(shape, dtype)
    operands = [bench.given(f"in{n}", held, dtype) for n in range(count)]
    bench.add("DMACopy", operands, [bench.output("out", (2, 4))], **{"mode": "CCE", "cce_op": "add", **members})
    return bench


CCE_ERRORS: list[tuple[Bench, str]] = [
    (summed(constants=[1.0]), "DMA CCE: Scale array must match number of inputs; found 1 for 2"),
    (summed(constants=["x", 1]), "`constants` is .*; expected numbers"),
    (summed(cce_op="mult"), "DMACopy does not support mult in CCE mode; expected add, max or min"),
    (summed(cce_op="bypass"), "DMACopy does not support bypass in CCE mode"),
    (summed(shape=(2, 3)), "`in 0` has 6 elements, the output 8"),
    (summed(dtype="float8_e4m3fn_x4"), "DMA non-bypass CCE is not allowed for MX data types; found `float8_e4m3fn_x4`"),
]


@pytest.mark.parametrize(("bench", "message"), CCE_ERRORS, ids=range(len(CCE_ERRORS)))
def test_what_is_wrong_with_a_sum(bench: Bench, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        bench.run()


def test_a_sum_into_an_input() -> None:
    given = some((2, 4))
    bench = Bench()
    a = bench.given("a", given, kind="ExternalOutput")
    bench.add("DMACopy", [a, a], [a], mode="CCE", cce_op="add")
    assert np.array_equal(bench.run()["a"], given + given)
    bench.add("DMACopy", [a[:, :3], a[:, :3]], [a[:, 1:]], mode="CCE", cce_op="add")
    with pytest.raises(SimulationError, match="read after they are written"):
        bench.run()


def test_a_sum_of_what_was_not_written_is_not_written() -> None:
    bench = Bench()
    a, tile = bench.given("a", some((2, 4))), bench.scratch("tile", (2, 4))
    middle, out = bench.scratch("middle", (2, 4)), bench.output("out", (2, 2))
    bench.add("Memset", [], [tile[:, :2]], mode="Const", constant=0)
    bench.add("DMACopy", [a, tile], [middle], mode="CCE", cce_op="add", can_read_uninit=True)
    bench.add("TensorCopy", [middle[:, :2]], [out])
    assert np.array_equal(bench.run()["out"], bench.content["a"][:, :2])
    bench.add("TensorCopy", [middle[:, 1:3]], [out])
    with pytest.raises(SimulationError, match="2 of 4 elements of `middle`"):
        bench.run()


# -- replication ----

REPLICATES = ("DMACopy", "DMADescriptorReplicate")


def replication(opcode: str, source: Array, rows: int, **options: Any) -> Array:
    bench = Bench()
    dtype = next(name for name, held in HELD.items() if np.dtype(held) == source.dtype)
    a, out = bench.given("a", source, memory="DRAM"), bench.output("out", (rows, source.shape[1]), dtype)
    bench.add(opcode, [a], [out], **({"mode": "Replicate"} if opcode == "DMACopy" else {}))
    return bench.run(**options)["out"]


@pytest.mark.parametrize("opcode", REPLICATES)
@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("rows", [1, 3, 32, 128])
def test_a_row_is_replicated(opcode: str, dtype: str, rows: int) -> None:
    given = bits((1, 5), dtype)
    found = replication(opcode, given, rows)
    assert found.shape == (rows, 5)
    for row in found:
        assert np.array_equal(np.ascontiguousarray(row).view(np.uint8), given[0].view(np.uint8))


def test_a_strided_row_is_replicated() -> None:
    given, before = some((2, 12)), some((4, 6))
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (4, 6), fill=before)
    bench.add("DMACopy", [a.access([(12, 1), (-3, 3)], 20)], [out.access([(12, 2), (2, 3)], 1)], mode="Replicate")
    expected = before.copy()
    for row in (0, 2):
        expected[row, 1::2] = given[1, [8, 5, 2]]
    assert np.array_equal(bench.run()["out"], expected)


def test_several_rows_are_a_choice() -> None:
    given = some((2, 3))
    with pytest.raises(SimulationError, match="2 rows are replicated to 6"):
        replication("DMACopy", given, 6)
    tiled = replication("DMACopy", given, 6, readings={"replicate_rows": "tile"})
    assert np.array_equal(tiled, given[[0, 1, 0, 1, 0, 1]])
    repeated = replication("DMACopy", given, 6, readings={"replicate_rows": "repeat"})
    assert np.array_equal(repeated, given[[0, 0, 0, 1, 1, 1]])
    assert np.array_equal(replication("DMACopy", given, 2), given)
    assert np.array_equal(replication("DMACopy", given[[0, 0]], 4), given[[0] * 4])


def replicated(source: Any, target: Any, dtype: str = "float32", **members: Any) -> Bench:
    bench = Bench()
    a, out = bench.given("a", some((4, 6), dtype)), bench.output("out", (4, 6), fill=0)
    bench.add("DMACopy", [a.access(source)], [out.access(target)], mode="Replicate", **members)
    return bench


ROW, ROWS = [(6, 1), (1, 6)], [(6, 4), (1, 6)]
REPLICATE_ERRORS: list[tuple[Bench, str]] = [
    (replicated([(6, 1), (3, 2), (1, 3)], ROWS), "access patterns of 2 dimensions; found 3 and 2"),
    (replicated([(6, 3), (1, 6)], ROWS), r"\[3, 6\] cannot be replicated to \[4, 6\]"),
    (replicated([(6, 1), (1, 5)], ROWS), r"\[1, 5\] cannot be replicated to \[4, 6\]"),
    (replicated(ROW, ROWS, "int32"), "takes an input and an output of the same type, but it has in int32"),
    (replicated(ROW, ROWS, cce_op="max"), "DMACopy does not support max with Replicate mode"),
]


@pytest.mark.parametrize(("bench", "message"), REPLICATE_ERRORS, ids=range(len(REPLICATE_ERRORS)))
def test_what_is_wrong_with_a_replication(bench: Bench, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        bench.run()


def test_replication_into_its_own_row_is_a_choice() -> None:
    bench = Bench()
    a = bench.given("a", some((4, 6)), kind="ExternalOutput")
    bench.add("DMACopy", [a[:1, :]], [a], mode="Replicate")
    with pytest.raises(SimulationError, match="`in 0` and `out 0` share elements of `a`"):
        bench.run()
    given = bench.content["a"]
    assert np.array_equal(bench.run(readings={"overlap": "snapshot"})["a"], given[[0] * 4])


def test_unwritten_elements_are_replicated_as_such() -> None:
    bench = Bench()
    tile, middle, out = bench.scratch("tile", (1, 3)), bench.scratch("middle", (4, 3)), bench.output("out", (4, 2))
    bench.add("Memset", [], [tile[:, :2]], mode="Const", constant=0)
    bench.add("DMACopy", [tile], [middle], mode="Replicate", can_read_uninit=True)
    bench.add("TensorCopy", [middle[:, :2]], [out])
    assert bench.run()["out"].tolist() == [[0, 0]] * 4
    bench.add("TensorCopy", [middle[:, 1:]], [out])
    with pytest.raises(SimulationError, match="4 of 8 elements of `middle`"):
        bench.run()
