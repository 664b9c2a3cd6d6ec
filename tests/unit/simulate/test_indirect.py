"""Loads and saves of table rows by index, against loops over plain arrays."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import HELD, Array, Bench, Pattern

rng = np.random.default_rng(23)
f32 = np.float32
BIAS = 1 << 32
CODED = ("int32", "uint64", "int64")


def some(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(0, 100, shape).astype(f32).astype(HELD[dtype])


def bits(shape: tuple[int, int], dtype: str) -> Array:
    size = np.dtype(HELD[dtype]).itemsize
    return rng.integers(0, 256, (shape[0], shape[1] * size)).astype(np.uint8).view(HELD[dtype])


def same(one: Array, other: Array) -> bool:
    return np.array_equal(np.ascontiguousarray(one).view(np.uint8), np.ascontiguousarray(other).view(np.uint8))


def coded(index: Any, dtype: str) -> Array:
    """Return indices as a table of addresses holds them."""
    values = np.asarray(index)
    if dtype == "int32":
        return values.astype(np.uint32).view(np.int32)
    return (values.astype(np.int64).view(np.uint64) + np.uint64(BIAS)).view(HELD[dtype])


def name_of(array: Array) -> str:
    return next(name for name, held in HELD.items() if np.dtype(held) == array.dtype)


def load(
    table: Array,
    index: Array,
    shape: tuple[int, int],
    *,
    opcode: str = "IndirectLoad",
    pattern: Pattern | None = None,
    offset: int = 0,
    separate: bool = True,
    memory: str = "DRAM",
    fill: Any = None,
    readings: Any = None,
    **members: Any,
) -> Array:
    bench = Bench()
    a, i = bench.given("table", table, memory=memory), bench.given("index", index)
    out = bench.output("out", shape, name_of(table), fill=fill)
    source = a.access(pattern, offset)
    if separate:
        bench.add(opcode, [source], [out], indirection=[i], **members)
    else:
        bench.add(opcode, [source, i], [out], **members)
    return bench.run(readings=readings)["out"]


def save(
    table: Array,
    index: Array,
    rows: Array,
    *,
    opcode: str = "IndirectSave",
    separate: bool = True,
    memory: str = "DRAM",
    readings: Any = None,
    **members: Any,
) -> Array:
    bench = Bench()
    bench.content["table"] = table
    target = bench.function.tensor("table", memory, table.shape, name_of(table), kind="ExternalOutput")
    data, i = bench.given("rows", rows), bench.given("index", index)
    if separate:
        bench.add(opcode, [data], [target], indirection=[i], **members)
    else:
        bench.add(opcode, [data, i], [target], **members)
    return bench.run(readings=readings)["table"]


# -- loads ----


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("index_dtype", CODED)
@pytest.mark.parametrize("separate", [False, True])
def test_elements_are_loaded(dtype: str, index_dtype: str, separate: bool) -> None:
    table, index = bits((5, 8), dtype), rng.integers(0, 40, (3, 6))
    found = load(table, coded(index, index_dtype), (3, 6), separate=separate)
    assert same(found, table.reshape(-1)[index])


@pytest.mark.parametrize("partitions", [1, 3, 32, 128])
@pytest.mark.parametrize("index_dtype", CODED)
def test_runs_of_elements_are_loaded(partitions: int, index_dtype: str) -> None:
    table, rows = some((50, 6)), rng.integers(0, 50, (partitions, 1))
    found = load(table, coded(rows * 6, index_dtype), (partitions, 6))
    for row, number in zip(found, rows[:, 0], strict=True):
        assert np.array_equal(row, table[number])


def test_indices_are_counted_by_the_last_step_of_the_table() -> None:
    table = some((4, 10))
    found = load(table, coded([[0, 3, 7]], "int32"), (1, 3), pattern=[(10, 4), (2, 5)])
    assert found.tolist() == [table.reshape(-1)[[0, 6, 14]].tolist()]
    backwards = load(table, np.array([[BIAS - 4]]), (1, 1), pattern=[(10, 4), (-1, 1)])
    assert backwards.tolist() == [[table[0, 4]]]


def test_the_last_index_of_64_bits_is_left_out() -> None:
    table = some((4, 3))
    found = load(table, coded([[3], [-1], [0]], "uint64"), (3, 1), fill=7)
    assert found.tolist() == [[table[1, 0]], [7], [table[0, 0]]]
    assert load(table, coded([[-1], [-1]], "int64"), (2, 1), fill=7).tolist() == [[7], [7]]


def test_minus_1_of_32_bits_is_a_choice() -> None:
    table = some((4, 3))

    def found(readings: dict[str, str] | None) -> Array:
        return load(table, coded([[3], [-1]], "int32"), (2, 1), fill=7, readings=readings)

    with pytest.raises(SimulationError, match="`indirection 0` holds the index -1; choose"):
        found(None)
    assert found({"negative_index": "skip"}).tolist() == [[table[1, 0]], [7]]
    with pytest.raises(SimulationError, match="means element 4294967295 of `table`, which has 12"):
        found({"negative_index": "unsigned"})


def test_an_offset_of_the_table_is_a_choice() -> None:
    table = some((4, 3))

    def found(readings: dict[str, str] | None) -> list[list[float]]:
        pattern = [(3, 3), (1, 3)]
        return load(table, coded([[1]], "int32"), (1, 1), pattern=pattern, offset=3, readings=readings).tolist()

    with pytest.raises(SimulationError, match="`in 0` has the offset 3; choose"):
        found(None)
    assert found({"indirect_offset": "added"}) == [[table[1, 1]]]
    assert found({"indirect_offset": "ignored"}) == [[table[0, 1]]]


def test_tables_in_sb() -> None:
    table = some((4, 6))
    found = load(table, coded([[6], [21]], "int32"), (2, 3), memory="SB")
    assert np.array_equal(found, np.stack([table[1, :3], table[3, 3:]]))
    with pytest.raises(SimulationError, match="`in 0` runs over the end of a partition of `table`"):
        load(table, coded([[4], [21]], "int32"), (2, 3), memory="SB")
    readings = {"partition_crossing": "linear"}
    crossing = load(table, coded([[4], [21]], "int32"), (2, 3), memory="SB", readings=readings)
    assert crossing[0].tolist() == [*table[0, 4:], table[1, 0]]


LOAD_ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"index": coded([[36]], "int32")}, "out of bounds: `in 0` means element 36 of `table`, which has 36"),
    ({"index": coded([[-2]], "int64")}, "out of bounds: `in 0` means element -2"),
    ({"index": np.array([[1 << 63]], np.uint64)}, "out of bounds|leaves 64 bits"),
    ({"index": np.array([[1]], np.uint32)}, "loading mem addr, which must be uint64: `indirection 0` is `uint32`"),
    ({"index": coded([[1, 2, 3]], "int32"), "shape": (1, 4)}, "3 indices mean 4 elements, which are no whole number"),
    ({"index": coded([[1]], "int32"), "memory": "PSUM"}, "Indirect read should not read from Psum!"),
]


@pytest.mark.parametrize(("members", "message"), LOAD_ERRORS, ids=range(len(LOAD_ERRORS)))
def test_what_is_wrong_with_a_load(members: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        load(some((6, 6)), members.pop("index"), members.pop("shape", (1, 1)), **members)


def test_which_operands_a_load_takes() -> None:
    def run(number: int, dtype: str = "float32", pattern: Pattern | None = None) -> None:
        bench = Bench()
        a, i = bench.given("table", some((6, 6)), memory="DRAM"), bench.given("index", coded([[1], [2]], "int32"))
        out = bench.output("out", (2, 4), dtype, fill=0)
        operand = out.access(pattern or [(4, 2), (1, 1)])
        bench.add("IndirectLoad", [a, i][: 1 + (number > 1)], [operand], indirection=[i] if number else [])
        bench.run()

    run(1)
    with pytest.raises(SimulationError, match="0 operands hold indices; expected one"):
        run(0)
    with pytest.raises(SimulationError, match="2 operands hold indices; expected one"):
        run(2)
    with pytest.raises(SimulationError, match="`out 0` is `int32` and the table `float32`; expected the same type"):
        run(1, "int32")
    with pytest.raises(SimulationError, match="Must have step 1 in final dim of IndirectLoad output AP"):
        run(1, pattern=[(4, 2), (2, 2)])


# -- saves ----


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("index_dtype", CODED)
@pytest.mark.parametrize("separate", [False, True])
def test_runs_of_elements_are_saved_in_order(dtype: str, index_dtype: str, separate: bool) -> None:
    table, rows, index = bits((9, 4), dtype), bits((12, 4), dtype), rng.integers(0, 9, (12, 1))
    found = save(table, coded(index * 4, index_dtype), rows, separate=separate)
    expected = table.copy()
    for number, row in zip(index[:, 0], rows, strict=True):
        expected[number] = row
    assert same(found, expected)


def test_overlapping_runs_are_saved_in_order() -> None:
    table, rows = some((1, 9)), some((3, 4))
    found = save(table, coded([[2], [0], [3]], "int32"), rows)
    expected = table[0].copy()
    for number, row in zip([2, 0, 3], rows, strict=True):
        expected[number : number + 4] = row
    assert found[0].tolist() == expected.tolist()


def test_what_is_left_out_is_not_saved() -> None:
    table, rows = some((4, 3)), some((2, 3))
    found = save(table, coded([[-1], [6]], "uint64"), rows)
    assert np.array_equal(found, np.stack([table[0], table[1], rows[1], table[3]]))


def test_what_is_wrong_with_a_save() -> None:
    with pytest.raises(SimulationError, match="Indirect write should not write to Psum!"):
        save(some((4, 3)), coded([[0]], "int32"), some((1, 3)), memory="PSUM")
    with pytest.raises(SimulationError, match="out of bounds: `out 0` means element 12 of `table`"):
        save(some((4, 3)), coded([[10]], "int32"), some((1, 3)))
    with pytest.raises(SimulationError, match="`in 0` is `int32` and the table `float32`"):
        save(some((4, 3)), coded([[0]], "int32"), some((1, 3), "int32"))


# -- sums ----

ACCUMULATING = ("float32", "bfloat16", "float16", "float8e3", "float8e4", "float8e5")


def added(table: Array, numbers: Any, rows: Array) -> Array:
    """One row after the other, each sum rounded."""
    out = table.copy().reshape(-1)
    for number, row in zip(numbers, rows, strict=True):
        for k, value in enumerate(row):
            total = out[number + k].astype(f32) + value.astype(f32)
            out[number + k] = total.astype(table.dtype)
    return out.reshape(table.shape)


@pytest.mark.parametrize("dtype", ACCUMULATING)
@pytest.mark.parametrize("op", [None, "add"])
def test_rows_are_added_in_order(dtype: str, op: str | None) -> None:
    table, rows = (rng.standard_normal((n, 3)).astype(f32).astype(HELD[dtype]) for n in (5, 40))
    index = rng.integers(0, 5, (40, 1)).astype(np.int32)
    more = {} if op is None else {"op": op}
    found = save(table, index, rows, opcode="IndirectSaveAccumulate", num_indices=40, entry_step_elements=3, **more)
    assert same(found, added(table, index[:, 0] * 3, rows))


@pytest.mark.parametrize("step", [0, 1, 2, 5])
def test_rows_that_overlap_are_added_in_order(step: int) -> None:
    table, rows = rng.standard_normal((1, 60)).astype(f32), rng.standard_normal((8, 5)).astype(f32)
    index = rng.integers(0, 10, (1, 8)).astype(np.int32)
    found = save(table, index, rows, opcode="IndirectSaveAccumulate", num_indices=8, entry_step_elements=step)
    assert same(found, added(table, index[0] * step, rows))


def test_rows_may_also_overwrite() -> None:
    table, rows = some((4, 2)), some((3, 2))
    index = np.array([[1, 3, 1]], np.int32)
    more = {"num_indices": 3, "entry_step_elements": 2, "op": "bypass"}
    found = save(table, index, rows, opcode="IndirectSaveAccumulate", **more)
    assert np.array_equal(found, np.stack([table[0], rows[2], table[2], rows[1]]))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums_of_integers_wrap(dtype: str) -> None:
    top = np.iinfo(dtype).max
    table, rows = np.array([[top, 0]], dtype), np.array([[1], [1]], dtype)
    more = {"num_indices": 2, "entry_step_elements": 1}
    found = save(table, np.array([[0, 0]], np.int32), rows, opcode="IndirectSaveAccumulate", **more)
    assert found.tolist() == [[np.iinfo(dtype).min + 1, 0]]


def test_indices_past_their_number_are_left_out() -> None:
    table, rows = some((4, 2)), some((4, 2))
    more = {"num_indices": 2, "entry_step_elements": 2}
    found = save(table, np.array([[1, 3, 0, 0]], np.int32), rows, opcode="IndirectSaveAccumulate", **more)
    assert np.array_equal(found, added(table, [2, 6], rows[:2]))


def test_which_indices_count_is_a_choice() -> None:
    table, rows, index = some((4, 2)), some((4, 2)), np.array([[0, 1], [2, 3]], np.int32)

    def found(number: int, readings: dict[str, str] | None) -> Array:
        more = {"num_indices": number, "entry_step_elements": 2, "readings": readings}
        return save(table, index, rows, opcode="IndirectSaveAccumulate", **more)

    assert np.array_equal(found(4, None), table + rows)
    with pytest.raises(SimulationError, match="1 of 4 indices in 2 partitions count; choose"):
        found(1, None)
    assert np.array_equal(found(1, {"num_indices": "flat"}), table + rows * [[1], [0], [0], [0]])
    assert np.array_equal(found(1, {"num_indices": "partition"}), table + rows * [[1], [0], [1], [0]])


SUM_ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"num_indices": 3}, "IndirectSaveAccumulate: insufficient indices; 3 of 2 are asked for"),
    ({"op": "max"}, "Invalid AluOpType 'max' for MemoryReductionOp. Must be 'bypass' or 'add'"),
    ({"entry_step_elements": 40}, "out of bounds: `out 0` means element"),
    ({"memory": "PSUM"}, "Indirect write should not write to Psum!"),
    ({"index": [[-1, 0]]}, "out of bounds: `out 0` means element -3"),
]


@pytest.mark.parametrize(("members", "message"), SUM_ERRORS, ids=range(len(SUM_ERRORS)))
def test_what_is_wrong_with_a_sum(members: dict[str, Any], message: str) -> None:
    index = np.array(members.pop("index", [[1, 0]]), np.int32)
    more = {"num_indices": 2, "entry_step_elements": 3, **members}
    with pytest.raises(SimulationError, match=message):
        save(some((4, 3)), index, some((2, 3)), opcode="IndirectSaveAccumulate", **more)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "uint64", "float8_e4m3fn"])
def test_other_types_are_not_added(dtype: str) -> None:
    more = {"num_indices": 1, "entry_step_elements": 1}
    with pytest.raises(SimulationError, match=f"cast_accumulate: unsupported dtype {dtype}"):
        save(
            some((1, 2), dtype), np.array([[0]], np.int32), some((1, 1), dtype), opcode="IndirectSaveAccumulate", **more
        )


# -- several indices ----


@pytest.mark.parametrize("index_dtype", CODED)
@pytest.mark.parametrize("separate", [False, True])
def test_generic_rows_by_one_index(index_dtype: str, separate: bool) -> None:
    table, index, rows = some((9, 4)), rng.integers(0, 9, (5, 1)), rng.standard_normal((5, 4)).astype(f32)
    held = coded(index, index_dtype)
    found = load(table, held, (5, 4), opcode="GenericIndirectLoad", separate=separate, indirect_dims=["W"])
    assert np.array_equal(found, table[index[:, 0]])
    summed = save(table, held, rows, opcode="GenericIndirectSave", separate=separate, indirect_dims=["W"])
    assert same(summed, added(table, index[:, 0] * 4, rows))
    more = {"indirect_dims": [0], "op": "bypass", "separate": separate}
    written = save(table, held, rows, opcode="GenericIndirectSave", **more)
    expected = table.copy()
    for number, row in zip(index[:, 0], rows, strict=True):
        expected[number] = row
    assert np.array_equal(written, expected)


CUBE: Pattern = [(60, 4), (20, 3), (5, 4), (1, 5)]


@pytest.mark.parametrize(
    "dims", [["W"], ["W", "Z"], ["Z", "W"], ["W", "Z", "Y"], ["W", "Z", "Y", "X"], ["X", "Y", "Z", "W"]]
)
def test_generic_rows_by_several_indices(dims: list[str]) -> None:
    table = rng.standard_normal((4, 60)).astype(f32)
    cube, sizes = table.reshape(4, 3, 4, 5), dict(zip("WZYX", (4, 3, 4, 5), strict=True))
    index = {letter: rng.integers(0, sizes[letter], (6, 1)) for letter in dims}
    ordered = [letter for letter in "WZYX" if letter in dims]
    expected = np.stack([cube[tuple(index[letter][row, 0] for letter in ordered)].reshape(-1) for row in range(6)])
    bench = Bench()
    a = bench.given("table", table, memory="DRAM")
    operands = [bench.given(f"i{letter}", coded(index[letter], "int32")) for letter in dims]
    out = bench.output("out", expected.shape)
    bench.add("GenericIndirectLoad", [a.access(CUBE), *operands], [out], indirect_dims=dims)
    assert np.array_equal(bench.run()["out"], expected)


def test_a_generic_table_may_begin_later() -> None:
    table = some((5, 4))
    pattern: Pattern = [(4, 4), (1, 4)]
    more = {"opcode": "GenericIndirectLoad", "indirect_dims": ["W"], "pattern": pattern, "offset": 4}
    found = load(table, coded([[2], [0]], "int32"), (2, 4), **more)
    assert np.array_equal(found, table[[3, 1]])


def argument(number: int = 1) -> dict[str, Any]:
    return {"kind": "IndirectArgId", "arg_id": number}


def test_generic_symbolic_addresses() -> None:
    table, rows = some((9, 4)), rng.standard_normal((3, 4)).astype(f32)
    index = np.array([[7], [2], [7]])
    bench = Bench()
    a, i = bench.given("table", table, memory="DRAM"), bench.given("index", coded(index, "int32"))
    source = a.at(pattern=[(4, 3), (1, 4)], addrs=[argument(), 0])
    bench.add("GenericIndirectLoad", [source, i], [bench.output("out", (3, 4))], indirect_dims=["W"])
    assert np.array_equal(bench.run()["out"], table[[7, 2, 7]])
    bench = Bench()
    bench.content["table"] = table
    target = bench.function.tensor("table", "DRAM", table.shape, "float32", kind="ExternalOutput")
    i, data = bench.given("index", coded(index, "uint64")), bench.given("rows", rows)
    out = target.at(pattern=[(4, 3), (1, 4)], addrs=[argument(), 0])
    bench.add("GenericIndirectSave", [data, i], [out], indirect_dims=["W"])
    assert same(bench.run()["table"], added(table, [28, 8, 28], rows))


def test_symbolic_addresses_in_sb_step_by_whole_partitions() -> None:
    table = some((4, 6))
    bench = Bench()
    a, i = bench.given("table", table), bench.given("index", coded([[3], [1]], "int32"))
    source = a.at(pattern=[(12, 2), (1, 4)], addrs=[argument(), 2], dtype="uint16")
    bench.add("GenericIndirectLoad", [source, i], [bench.output("out", (2, 4), "uint16")], indirect_dims=["W"])
    assert np.array_equal(bench.run()["out"], table.view(np.uint16)[[3, 1], 2:6])


def test_a_row_is_left_out_when_one_of_its_indices_is() -> None:
    table = some((4, 6))
    bench = Bench()
    a, out = bench.given("table", table, memory="DRAM"), bench.output("out", (3, 1), fill=7)
    i, j = bench.given("i", coded([[-1], [2], [3]], "int64")), bench.given("j", coded([[0], [-1], [5]], "int64"))
    source = a.at(pattern=[(6, 3), (1, 1)], addrs=[argument(1), argument(2)])
    bench.add("GenericIndirectLoad", [source, i, j], [out], indirect_dims=["W", "Z"])
    assert bench.run()["out"].tolist() == [[7], [7], [table[3, 5]]]
    bench.add("GenericIndirectLoad", [a.access([(6, 4), (6, 1), (6, 1), (1, 6)]), i], [out], indirect_dims=["W"])
    with pytest.raises(SimulationError, match="3 indices mean 18 elements, and `out 0` has 3"):
        bench.run()


def test_an_element_that_lies_in_two_partitions_is_a_choice() -> None:
    table = np.arange(12, dtype=np.uint16).reshape(4, 3)
    bench = Bench()
    a, i = bench.given("table", table), bench.given("index", coded([[1]], "int32"))
    out = bench.output("out", (1, 1), "uint32")
    source = a.at(pattern=[(1, 1), (1, 1)], addrs=[argument(), 0], dtype="uint32")
    bench.add("GenericIndirectLoad", [source, i], [out], indirect_dims=["W"])
    assert bench.run(readings={"partition_crossing": "linear"})["out"].view(np.uint16).tolist() == [[2, 3]]
    with pytest.raises(SimulationError, match="`in 0` runs over the end of a partition of `table`"):
        bench.run()


GENERIC_ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"indirect_dims": []}, "must be one less than instruction argument number; found 0 for 1 operands"),
    ({"indirect_dims": ["W", "Z"]}, "must be one less than instruction argument number; found 2 for 1 operands"),
    ({"indirect_dims": ["X"]}, "the dimension X of a pattern of 2 is not modelled; only that of W is known"),
    ({"indirect_dims": ["Q"]}, "`indirect_dims` holds 'Q'; expected W, Z, Y or X"),
    ({"indirect_dims": [4]}, "`indirect_dims` holds 4; expected W, Z, Y or X"),
    ({"indirect_dims": "W"}, "`indirect_dims` is 'W'; expected a list of dimensions"),
    ({"indirect_dims": ["Z"], "pattern": [(4, 6), (4, 1), (4, 1), (1, 4)]}, "expected the outermost dimensions"),
    ({"pattern": [(8, 3), (1, 4)]}, "the table's elements do not lie one after the other"),
    ({"memory": "PSUM"}, "from Psum!"),
    ({"index": coded([[6], [0]], "int32")}, "out of bounds: `in 0` means element 24"),
    ({"index": np.zeros((2, 1), np.uint16)}, "loading mem addr, which must be uint64"),
    ({"shape": (2, 3)}, "2 indices mean 8 elements, and `out 0` has 6"),
]


@pytest.mark.parametrize(("members", "message"), GENERIC_ERRORS, ids=range(len(GENERIC_ERRORS)))
def test_what_is_wrong_with_a_generic_load(members: dict[str, Any], message: str) -> None:
    index, shape = members.pop("index", coded([[1], [0]], "int32")), members.pop("shape", (2, 4))
    more = {"indirect_dims": ["W"], **members}
    with pytest.raises(SimulationError, match=message):
        load(some((6, 4)), index, shape, opcode="GenericIndirectLoad", separate=False, **more)


def test_what_is_wrong_with_a_generic_save() -> None:
    index, rows = coded([[1], [0]], "int32"), some((2, 4))
    more: dict[str, Any] = {"opcode": "GenericIndirectSave", "indirect_dims": ["W"]}
    with pytest.raises(SimulationError, match=r"Invalid AluOpType 'min' for MemoryReductionOp\. Must be 'bypass' or"):
        save(some((6, 4)), index, rows, op="min", **more)
    with pytest.raises(SimulationError, match="Indirect write should not write to Psum!"):
        save(some((6, 4)), index, rows, memory="PSUM", **more)


def test_index_operands_agree_in_their_number() -> None:
    bench = Bench()
    a = bench.given("table", some((4, 60)), memory="DRAM")
    i, j = (bench.given(name, coded([[0]] * n, "int32")) for name, n in (("i", 3), ("j", 2)))
    bench.add("GenericIndirectLoad", [a.access(CUBE), i, j], [bench.output("out", (3, 20))], indirect_dims=["W", "Z"])
    with pytest.raises(SimulationError, match="the index operands have 3 and 2 elements"):
        bench.run()
    bench = Bench()
    a = bench.given("table", some((4, 6)), memory="DRAM")
    i, j = (bench.given(name, coded([[0]] * n, "int32")) for name, n in (("i", 3), ("j", 2)))
    source = a.at(pattern=[(6, 3), (1, 1)], addrs=[argument(1), argument(2)])
    bench.add("GenericIndirectLoad", [source, i, j], [bench.output("out", (3, 1))], indirect_dims=["W", "Z"])
    with pytest.raises(SimulationError, match="the index operands have 3 and 2 elements"):
        bench.run()


def test_dimensions_and_symbolic_addresses_agree_in_their_number() -> None:
    bench = Bench()
    a, i = bench.given("table", some((4, 6)), memory="DRAM"), bench.given("i", coded([[0]] * 3, "int32"))
    source = a.at(pattern=[(6, 3), (1, 6)], addrs=[argument(), 0])
    bench.add("GenericIndirectLoad", [source, i], [bench.output("out", (3, 6))], indirect_dims=["W", "Z"])
    with pytest.raises(SimulationError, match="Indirect dimensions must be one less than instruction argument number"):
        bench.run()


# -- addresses ----


@pytest.mark.parametrize("dtype", ["uint64", "int64"])
def test_the_address_of_a_location(dtype: str) -> None:
    bench = Bench()
    a, out = bench.given("table", some((4, 6)), memory="DRAM"), bench.output("out", (3, 1), dtype)
    bench.add("ReadVarAddr", [a], [out])
    assert bench.run()["out"].tolist() == [[BIAS]] * 3


def test_a_load_by_an_address_that_was_read() -> None:
    table = some((6, 4))
    bench = Bench()
    a, address = bench.given("table", table, memory="DRAM"), bench.scratch("address", (1, 1), "int64")
    out = bench.output("out", (1, 4))
    bench.add("ReadVarAddr", [a], [address])
    bench.add("IndirectLoad", [a], [out], indirection=[address])
    assert np.array_equal(bench.run()["out"], table[:1])


def test_what_is_wrong_with_reading_an_address() -> None:
    def run(memory: str, dtype: str) -> None:
        bench = Bench()
        a, out = bench.given("table", some((4, 6)), memory=memory), bench.output("out", (3, 1), dtype)
        bench.add("ReadVarAddr", [a], [out])
        bench.run()

    with pytest.raises(SimulationError, match="`table` has partitions; expected a location in DRAM"):
        run("SB", "uint64")
    with pytest.raises(SimulationError, match="an address of 64 bits is written to `int32`"):
        run("DRAM", "int32")
