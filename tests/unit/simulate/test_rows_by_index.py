"""Copies of rows that a tensor of indices addresses, against loops over plain arrays."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import HELD, Array, Bench, Pattern

rng = np.random.default_rng(5)
f32 = np.float32
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")


def some(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(0, 100, shape).astype(f32).astype(HELD[dtype])


def bits(shape: tuple[int, int], dtype: str) -> Array:
    size = np.dtype(HELD[dtype]).itemsize
    return rng.integers(0, 256, (shape[0], shape[1] * size)).astype(np.uint8).view(HELD[dtype])


def same(one: Array, other: Array) -> bool:
    return np.array_equal(np.ascontiguousarray(one).view(np.uint8), np.ascontiguousarray(other).view(np.uint8))


def argument(number: int = 1) -> dict[str, Any]:
    return {"kind": "IndirectArgId", "arg_id": number}


def dynamic(limit: int | None, number: int = 1, coef: int | None = None, **more: Any) -> dict[str, Any]:
    """Return `dynamic_ap_info`."""
    term: dict[str, Any] = {"offset_expr": argument(number)}
    if coef is not None:
        term["coef"] = coef
    info = {"aff_expr": [term], "c": 0, "indirect_dim": "W", "indirect_dim_max_index": limit, **more}
    return {key: value for key, value in info.items() if value is not None}


class Rows:
    """A table in DRAM, rows in SB, and indices: what most tests copy between."""

    def __init__(
        self, index: Any, table: Array, width: int | None = None, *, index_dtype: str = "uint32", fill: float = 0
    ) -> None:
        self.bench = Bench()
        self.index = np.asarray(index).astype(HELD[index_dtype]).reshape(-1, 1)
        self.given = table
        self.length = table.shape[1]
        self.dtype = next(name for name, held in HELD.items() if np.dtype(held) == table.dtype)
        self.indices = self.bench.given("index", self.index)
        self.shape = len(self.index), width or self.length
        self.fill = fill

    @property
    def pattern(self) -> Pattern:
        """Of the table: as many rows as there are indices."""
        return [(self.length, self.shape[0]), (1, self.shape[1])]

    def gather(self, pattern: Pattern | None = None, offset: int = 0, *, separate: bool = False, **members: Any) -> Any:
        info = members.pop("info", None) or dynamic(len(self.given), 0 if separate else 1)
        table = self.bench.given("table", self.given, memory="DRAM")
        out = self.bench.output("out", self.shape, self.dtype, fill=self.fill)
        source = table.access(pattern or self.pattern, offset, dynamic_ap_info=info)
        readings, more = members.pop("readings", None), {"indirection": [self.indices]} if separate else {}
        ins = [source] if separate else [source, self.indices]
        self.bench.add("DMACopy", ins, [out], mode="Copy", **more, **members)
        return self.bench.run(readings=readings)["out"]

    def scatter(self, rows: Array, pattern: Pattern | None = None, offset: int = 0, **members: Any) -> Any:
        info = members.pop("info", None) or dynamic(len(self.given))
        self.bench.content["table"] = self.given
        table = self.bench.function.tensor("table", "DRAM", self.given.shape, self.dtype, kind="ExternalOutput")
        data = self.bench.given("rows", rows)
        target = table.access(pattern or self.pattern, offset, dynamic_ap_info=info)
        readings = members.pop("readings", None)
        self.bench.add("DMACopy", [data, self.indices], [target], **{"mode": "Copy", **members})
        return self.bench.run(readings=readings)["table"]


# -- gathers ----


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("count", [1, 3, 32, 128])
def test_rows_are_gathered(dtype: str, count: int) -> None:
    table, index = bits((50, 6), dtype), rng.integers(0, 50, count)
    found = Rows(index, table).gather()
    for row, number in zip(found, index, strict=True):
        assert same(row, table[number])


@pytest.mark.parametrize("index_dtype", INTEGERS)
def test_indices_may_be_of_any_integer_type(index_dtype: str) -> None:
    table, index = some((100, 4)), [99, 0, 7, 7, 42]
    assert np.array_equal(Rows(index, table, index_dtype=index_dtype).gather(), table[index])


@pytest.mark.parametrize("separate", [False, True])
def test_indices_stand_behind_the_data_or_by_themselves(separate: bool) -> None:
    table, index = some((9, 4)), [3, 8, 0]
    assert np.array_equal(Rows(index, table).gather(separate=separate), table[index])


@pytest.mark.parametrize("pattern", [[(6, 4), (1, 2)], [(6, 4), (-2, 2)], [(6, 4), (3, 2), (-1, 2)], [(6, 4), (0, 3)]])
def test_what_is_gathered_of_each_row_follows_the_pattern(pattern: Pattern) -> None:
    table, index = some((10, 6)), [9, 1, 1, 4]
    width = int(np.prod([num for _, num in pattern[1:]]))
    found = Rows(index, table, width).gather(pattern, 2)
    grid = np.indices([num for _, num in pattern[1:]]).reshape(len(pattern) - 1, -1)
    inner = 2 + sum(axis * step for axis, (step, _) in zip(grid, pattern[1:], strict=True))
    expected = [[table.reshape(-1)[6 * number + place] for place in inner.tolist()] for number in index]
    assert found.tolist() == np.array(expected).tolist()


def test_the_actual_pattern_counts_where_there_is_one() -> None:
    table, index = some((9, 4)), [3, 8, 0]
    info = dynamic(9, actual_ap=[[4, 3], [1, 4]], num_tensor_indirect_indices=3)
    assert np.array_equal(Rows(index, table).gather([(4, 9), (1, 4)], info=info), table[index])


def test_rows_beyond_the_limit_are_left_out() -> None:
    table = some((5, 3))
    found = Rows([4, 5, 0, 60000], table, fill=7).gather(oob_is_err=False)
    assert np.array_equal(found, np.stack([table[4], [7] * 3, table[0], [7] * 3]))
    assert (Rows([5, 9], table, fill=7).gather(oob_is_err=False) == 7).all()
    with pytest.raises(SimulationError, match=r"Indirect index \(5\) must be less than IndirectDimMaxIndex \(5\)"):
        Rows([4, 5], table).gather()


def test_a_negative_index_is_a_choice() -> None:
    table = some((5, 3))

    def found(readings: dict[str, str] | None) -> Array:
        return Rows([4, -1, 2], table, index_dtype="int32", fill=7).gather(oob_is_err=False, readings=readings)

    with pytest.raises(SimulationError, match="`in 1` holds the index -1; choose `readings="):
        found(None)
    expected = np.stack([table[4], [7] * 3, table[2]])
    assert np.array_equal(found({"negative_index": "skip"}), expected)
    assert np.array_equal(found({"negative_index": "unsigned"}), expected)  # a number beyond the limit
    with pytest.raises(SimulationError, match=r"Indirect index \(4294967295\) must be less"):
        Rows([-1], table, index_dtype="int32").gather(readings={"negative_index": "unsigned"})
    with pytest.raises(SimulationError, match=r"Indirect index \(254\) must be less"):
        Rows([-2], table, index_dtype="int8").gather(readings={"negative_index": "unsigned"})
    with pytest.raises(SimulationError, match=r"Indirect index \(1099511627774\) must be less"):
        Rows([-2], table, index_dtype="int64").gather(readings={"negative_index": "unsigned"})


def test_one_index_moves_the_whole_access() -> None:
    table = some((6, 4))
    bench = Bench()
    index, a = bench.given("index", np.array([[2]], np.int32)), bench.given("table", table, memory="DRAM")
    out = bench.output("out", (3, 4))
    bench.add("DMACopy", [a.access([(4, 3), (1, 4)], dynamic_ap_info=dynamic(None, coef=4)), index], [out])
    assert np.array_equal(bench.run()["out"], table[2:5])
    bench.add("DMACopy", [a.access([(4, 3), (1, 4)], dynamic_ap_info=dynamic(None)), index], [out])
    with pytest.raises(SimulationError, match="the offset has no `coef`"):
        bench.run()


def test_two_strides_are_a_choice() -> None:
    table, index = some((9, 4)), [3, 2, 0]

    def found(readings: dict[str, str] | None, coef: int = 8) -> Array:
        return Rows(index, table).gather(info=dynamic(9, coef=coef), readings=readings)

    assert np.array_equal(found(None, 4), table[index])
    assert np.array_equal(Rows([0, 0], table).gather(info=dynamic(9, coef=8)), table[[0, 0]])
    with pytest.raises(SimulationError, match="rows are 4 elements apart by the pattern, and 8 by `coef`"):
        found(None)
    assert np.array_equal(found({"dynamic_stride": "pattern"}), table[index])
    assert np.array_equal(found({"dynamic_stride": "coef"}), table[[6, 4, 0]])


def test_two_offsets_are_a_choice() -> None:
    table, index = some((9, 4)), [3, 2, 0]

    def found(readings: dict[str, str] | None, offset: int, static: int) -> Array:
        return Rows(index, table).gather(None, offset, info=dynamic(9, c=static), readings=readings)

    assert np.array_equal(found(None, 4, 0), table[[4, 3, 1]])
    assert np.array_equal(found(None, 0, 8), table[[5, 4, 2]])
    with pytest.raises(SimulationError, match="`offset` is 4, and `c` is 8; choose"):
        found(None, 4, 8)
    assert np.array_equal(found({"dynamic_offset": "static"}, 4, 8), table[[5, 4, 2]])
    assert np.array_equal(found({"dynamic_offset": "sum"}, 4, 8), table[[6, 5, 3]])


def test_two_operands_that_may_be_meant_are_a_choice() -> None:
    table = some((9, 4))

    def found(readings: dict[str, str] | None, number: int = 1) -> list[list[float]]:
        bench = Bench()
        a, out = bench.given("table", table, memory="DRAM"), bench.output("out", (2, 4))
        one, other = (bench.given(name, np.array(v, np.uint32)) for name, v in (("i", [[1], [2]]), ("j", [[7], [8]])))
        source = a.access([(4, 2), (1, 4)], dynamic_ap_info=dynamic(9, number))
        bench.add("DMACopy", [source], [out], indirection=[one, other], mode="Copy")
        return bench.run(readings=readings)["out"].tolist()

    with pytest.raises(SimulationError, match="`arg_id` 1 may mean indirection 0 or indirection 1"):
        found(None)
    with pytest.raises(SimulationError, match="`indirection 0` has no part in the copy"):
        found({"indirect_argument": "indirection"})
    with pytest.raises(SimulationError, match=r"Requested Indirect Argument index 5 out of bounds \(3\)"):
        found(None, 5)


def test_what_was_never_written_is_not_gathered() -> None:
    bench = Bench()
    tile, out = bench.function.tensor("tile", "DRAM", (4, 3), "float32"), bench.output("out", (2, 3), fill=7)
    index = bench.given("index", np.array([[1], [3]], np.uint32))
    bench.add("Memset", [], [tile[:3, :]], mode="Const", constant=0)
    source = tile.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(4))
    bench.add("DMACopy", [source, index], [out], mode="Copy")
    with pytest.raises(
        SimulationError, match="reads 3 elements of `tile` that were never written, the first for index"
    ):
        bench.run()
    bench = Bench()
    tile, out = bench.function.tensor("tile", "DRAM", (4, 3), "float32"), bench.output("out", (2, 3), fill=7)
    index = bench.given("index", np.array([[1], [3]], np.uint32))
    bench.add("Memset", [], [tile[:3, :]], mode="Const", constant=0)
    source = tile.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(4))
    bench.add("DMACopy", [source, index], [out], mode="Copy", can_read_uninit=True)
    with pytest.raises(SimulationError, match="undecided: `in 0` reads 3 elements of `tile`"):
        bench.run()
    assert bench.run(readings={"uninitialized": "zeros"})["out"].tolist() == [[0, 0, 0]] * 2
    ones = bench.run(readings={"uninitialized": "ones"})["out"]
    assert ones.view(np.uint32).tolist() == [[0] * 3, [0xFFFFFFFF] * 3]


def test_rows_that_are_left_out_need_not_be_written() -> None:
    bench = Bench()
    tile, out = bench.function.tensor("tile", "DRAM", (4, 3), "float32"), bench.output("out", (2, 3), fill=7)
    index = bench.given("index", np.array([[9], [3]], np.uint32))
    bench.add("Memset", [], [tile[3:, :]], mode="Const", constant=0)
    source = tile.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(4))
    bench.add("DMACopy", [source, index], [out], mode="Copy", oob_is_err=False)
    assert bench.run()["out"].tolist() == [[7] * 3, [0] * 3]


# -- scatters ----


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("count", [1, 3, 32, 128])
def test_rows_are_scattered(dtype: str, count: int) -> None:
    table, rows, index = bits((200, 5), dtype), bits((count, 5), dtype), rng.integers(0, 200, count)
    found = Rows(index, table).scatter(rows)
    expected = table.copy()
    for number, row in zip(index, rows, strict=True):
        expected[number] = row  # of several the last one stays
    assert same(found, expected)


def test_rows_that_are_scattered_beyond_the_limit_are_left_out() -> None:
    table, rows = some((5, 3)), some((3, 3))
    found = Rows([4, 9, 0], table).scatter(rows, oob_is_err=False)
    expected = table.copy()
    expected[[4, 0]] = rows[[0, 2]]
    assert np.array_equal(found, expected)
    with pytest.raises(SimulationError, match=r"Indirect index \(9\)"):
        Rows([4, 9, 0], table).scatter(rows)


@pytest.mark.parametrize("pattern", [[(6, 3), (1, 2)], [(6, 3), (-2, 2)], [(6, 3), (3, 2), (-1, 2)]])
def test_where_rows_are_scattered_to_follows_the_pattern(pattern: Pattern) -> None:
    width = int(np.prod([num for _, num in pattern[1:]]))
    table, rows, index = some((10, 6)), some((3, width)), [9, 1, 4]
    found = Rows(index, table, width).scatter(rows, pattern, 2)
    grid = np.indices([num for _, num in pattern[1:]]).reshape(len(pattern) - 1, -1)
    inner = 2 + sum(axis * step for axis, (step, _) in zip(grid, pattern[1:], strict=True))
    expected = table.copy().reshape(-1)
    for number, row in zip(index, rows, strict=True):
        for place, value in zip(inner.tolist(), row, strict=True):
            expected[6 * number + place] = value
    assert np.array_equal(found.reshape(-1), expected)


def test_what_is_scattered_counts_as_written() -> None:
    bench = Bench()
    table, out = bench.function.tensor("table", "DRAM", (4, 3), "float32"), bench.output("out", (2, 3))
    rows, index = bench.given("rows", some((2, 3))), bench.given("index", np.array([[2], [1]], np.uint32))
    target = table.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(4))
    bench.add("DMACopy", [rows, index], [target], mode="Copy")
    bench.add("DMACopy", [table.access([(3, 2), (1, 3)], 3)], [out], mode="Copy")
    assert np.array_equal(bench.run()["out"], bench.content["rows"][::-1])
    bench.add("DMACopy", [table.access([(3, 2), (1, 3)], 6)], [out], mode="Copy")
    with pytest.raises(SimulationError, match="3 of 6 elements of `table` that were never written"):
        bench.run()


def test_a_trace_knows_what_is_scattered() -> None:
    rows = Rows([1, 0], some((3, 4)))
    bench = rows.bench
    rows.scatter(np.array([[1, 2, 3, 4], [5, 6, 7, 8]], f32))
    row = bench.run(trace=True).trace.row(0, named=True)
    assert (row["bytes_read"], row["bytes_written"], row["min"], row["max"]) == (8 + 32, 32, 1, 8)
    watched = bench.run(watch="table").watched["table"]
    assert watched[0].values[:2].tolist() == [[5, 6, 7, 8], [1, 2, 3, 4]]


def test_a_nan_is_found_in_what_is_scattered() -> None:
    rows = Rows([1, 0], some((3, 2)))
    rows.scatter(np.array([[1, np.nan], [5, 6]], f32))
    with pytest.raises(SimulationError, match="a NaN is written to `out 0`"):
        rows.bench.run(nan="raise")


# -- sums ----


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8e3", "float8e4", "float8e5"])
@pytest.mark.parametrize("count", [1, 5, 64])
def test_rows_are_added(dtype: str, count: int) -> None:
    held = HELD[dtype]
    table, rows = (rng.standard_normal((n, 4)).astype(f32).astype(held) for n in (64, count))
    index = rng.permutation(64)[:count]
    found = Rows(index, table).scatter(rows, cce_op="add")
    expected = table.copy()
    for number, row in zip(index, rows, strict=True):
        expected[number] = (expected[number].astype(f32) + row.astype(f32)).astype(held)
    assert same(found, expected)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_sums_of_integers_wrap(dtype: str) -> None:
    top = np.iinfo(dtype).max
    table, rows = np.array([[top, 1], [2, 3]], dtype), np.array([[1, 1]], dtype)
    found = Rows([0], table).scatter(rows, cce_op="add")
    assert found.tolist() == [[np.iinfo(dtype).min, 2], [2, 3]]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "uint64", "float8_e4m3fn"])
def test_other_types_are_not_added(dtype: str) -> None:
    with pytest.raises(SimulationError, match=f"cast_accumulate: unsupported dtype {dtype}"):
        Rows([0], some((2, 2), dtype)).scatter(some((1, 2), dtype), cce_op="add")


def test_rows_beyond_the_limit_are_not_added() -> None:
    table, rows = some((5, 3)), some((2, 3))
    found = Rows([9, 1], table).scatter(rows, cce_op="add", oob_is_err=False)
    expected = table.copy()
    expected[1] += rows[1]
    assert np.array_equal(found, expected)
    assert np.array_equal(Rows([9, 8], table).scatter(rows, cce_op="add", oob_is_err=False), table)


def test_sums_take_different_indices_and_no_other_operation() -> None:
    table, rows = some((5, 3)), some((3, 3))
    with pytest.raises(SimulationError, match=r"Duplicate indices not allowed on DGE .* numbers \[0, 2\]"):
        Rows([2, 1, 2], table).scatter(rows, cce_op="add")
    with pytest.raises(SimulationError, match=r"Invalid CCE op type 'max' for DGE DstReduce\. Must be 'add'"):
        Rows([2, 1, 0], table).scatter(rows, cce_op="max")
    with pytest.raises(SimulationError, match="`cce_op` is `add` for rows that are gathered"):
        Rows([2, 1, 0], table).gather(cce_op="add")


# -- symbolic addresses ----


def symbolic(shape: tuple[int, ...], index: Any, pattern: Pattern, **members: Any) -> Any:
    """Gather from a table in DRAM whose addresses are expressions."""
    table = np.arange(np.prod(shape), dtype=f32).reshape(shape)
    bench = Bench()
    a, indices = bench.given("table", table, memory="DRAM"), bench.given("index", np.asarray(index))
    out = bench.output("out", (1, int(np.prod([num for _, num in pattern]))))
    bench.add("DMACopy", [a.at(pattern=pattern, **members), indices], [out], mode="Copy")
    return bench.run()["out"].reshape(-1)


INDEX = np.array([[5], [0], [3]], np.int32)


def test_symbolic_addresses_of_rows() -> None:
    found = symbolic((6, 4), INDEX, [(4, 3), (1, 4)], addrs=[argument(), 0])
    assert np.array_equal(found.reshape(3, 4), np.arange(24).reshape(6, 4)[[5, 0, 3]])


def test_symbolic_addresses_of_single_elements() -> None:
    flat = symbolic((24,), INDEX * 4, [(1, 3)], addrs=[argument()])
    assert flat.tolist() == [20, 0, 12]
    spread = symbolic((24,), INDEX.T.copy(), [(24, 1), (1, 3)], addrs=[argument()])
    assert spread.tolist() == [5, 0, 3]


def test_symbolic_addresses_are_worked_out_for_each_index() -> None:
    affine = {"kind": "AffExprKind", "c": 1, "terms": [{"idx": argument(), "coeff": 2}]}
    times = {"kind": "MultKind", "var": argument(), "scale": 3}
    total = {"kind": "SumKind", "terms": [times, {"kind": "AffExprKind", "c": 4, "terms": []}]}
    halved = {"kind": "FloorDivKind", "numer": affine, "denom": 3}
    left = {"kind": "ModuloKind", "numer": total, "denom": 4}
    for expression, expected in (
        (affine, [11, 1, 7]), (times, [15, 0, 9]), (total, [19, 4, 13]), (halved, [3, 0, 2]), (left, [3, 0, 1]),
    ):  # fmt: skip
        assert symbolic((40,), INDEX, [(1, 3)], addrs=[expression]).tolist() == expected
    both = symbolic((6, 4), INDEX % 4, [(4, 3)], addrs=[argument(), argument()])
    assert both.tolist() == [5, 0, 15]


def test_symbolic_addresses_in_a_loop() -> None:
    table = np.arange(24, dtype=f32).reshape(6, 4)
    bench = Bench()
    a, indices = bench.given("table", table, memory="DRAM"), bench.given("index", INDEX)
    out = bench.output("out", (3, 4))
    with bench.function.loop(0, 4, axis="i") as i:
        source = a.at(0, 0, pattern=[(4, 3), (1, 1)], addrs=[argument(), {"kind": "AffIVKind", "axis": "i"}])
        bench.add("DMACopy", [source, indices], [out.at(0, i, pattern=[(4, 3), (1, 1)])], mode="Copy")
    assert np.array_equal(bench.run()["out"], table[[5, 0, 3]])


SYMBOLIC_ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"addrs": [argument()]}, "has 1 addresses for the 2 dimensions of `table_set`"),
    ({"addrs": [argument(), 0], "pattern": [(4, 2), (1, 4)]}, "has 2 rows, and there are 3 indices"),
    ({"addrs": [argument(), 0], "num_tensor_indirect_indices": 2}, "`num_tensor_indirect_indices` is 2, and there are"),
    ({"addrs": [0, 0], "tensor_indirect_arg_id": 0}, "has a `tensor_indirect_arg_id`, which is not modelled"),
    ({"addrs": [{**argument(), "arg_id": "x"}, 0]}, "`arg_id` is 'x'; expected a number"),
    ({"addrs": [{"kind": "IndirectArgId"}, 0]}, "lacks the member `arg_id`"),
    ({"addrs": [{"kind": "MultKind", "var": argument(), "scale": 1.5}, 0]}, "1.5 in an expression is no integer"),
    ({"addrs": [{"kind": "MultKind", "var": argument(), "scale": 1 << 61}, 0]}, "leaves 64 bits"),
    ({"addrs": [{"kind": "ModuloKind", "numer": argument(), "denom": 0}, 0]}, "an expression divides by 0"),
    ({"addrs": [{"kind": "CCDivKind", "numer": argument(), "denom": 1}, 0]}, "`CCDivKind` is not modelled"),
    ({"addrs": [{"kind": "SumKind", "terms": argument()}, 0]}, "`terms` in an expression is .*; expected a list"),
    ({"addrs": [{"kind": "AffExprKind", "terms": [[argument()]]}, 0]}, "is no object with a member `idx`"),
    ({"addrs": [{"terms": [argument()]}, 0]}, "an index in an expression of the kind `None` is not modelled"),
    ({"addrs": [{"kind": "SumKind", "terms": [argument(), 1 << 30]}, 0]}, "out of bounds: `in 0` means element"),
    ({"addrs": [{"kind": "SumKind", "terms": [argument(), 1 << 40]}, 0]}, "the address 1099511627776 is out of bounds"),
]


@pytest.mark.parametrize(("members", "message"), SYMBOLIC_ERRORS, ids=range(len(SYMBOLIC_ERRORS)))
def test_what_is_wrong_with_symbolic_addresses(members: dict[str, Any], message: str) -> None:
    pattern = members.pop("pattern", [(4, 3), (1, 4)])
    with pytest.raises(SimulationError, match=message):
        symbolic((6, 4), INDEX, pattern, **members)


# -- what is wrong ----

DYNAMIC_ERRORS: list[tuple[dict[str, Any], str]] = [
    (dynamic(0), "DynamicAPINFO::IndirectDimMaxIndex must be > 0; `in 0` has 0"),
    (dynamic(5, indirect_dim="X"), "the only supported indirectDim is 0; found 'X'"),
    (dynamic(5, num_tensor_indirect_indices=4), "`num_tensor_indirect_indices` is 4, and there are 2 indices"),
    (dynamic(5, aff_expr=[argument()]), "must have Indirect Arg ID as a top level expression!"),
    (dynamic(5, aff_expr=[{"offset_expr": argument(), "coef": 1.5}]), "rows are 3 elements apart"),
    (dynamic(5, aff_expr=[{"offset_expr": argument()}] * 2), "must have Indirect Arg ID as a top level expression!"),
    (
        dynamic(5, aff_expr=[{"offset_expr": {"kind": "MultKind", "var": argument(), "scale": 2}}]),
        "must have Indirect Arg ID as a top level expression!",
    ),
    (dynamic(5, actual_ap=[[3, 5], [1, 3]]), "`in 0` has 5 rows, and there are 2 indices"),
    (dynamic(5, actual_ap=[3, 2]), r"`actual_ap` is \[3, 2\]; expected pairs of step and num"),
    (dynamic(5, 2), r"Requested Indirect Argument index 2 out of bounds \(2\)"),
    (dynamic(500, coef=1000), "rows are 3 elements apart"),
    (dynamic(5, c="x"), "`c` is 'x'; expected an integer"),
    (dynamic(5, c=1 << 63), "the offset 9223372036854775808 is out of bounds"),
    (dynamic(5, actual_ap=[[3, 2], [1, 1 << 40]]), r"the access pattern \[\[1,1099511627776\]\] is too large"),
    (dynamic(5, actual_ap=[[3, 2], [1 << 62, 2]]), "is too large"),
]


@pytest.mark.parametrize(("info", "message"), DYNAMIC_ERRORS, ids=range(len(DYNAMIC_ERRORS)))
def test_what_is_wrong_with_dynamic_accesses(info: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        Rows([2, 1], some((5, 3))).gather(info=info)


def test_rows_outside_of_the_table_are_refused() -> None:
    with pytest.raises(SimulationError, match="out of bounds: `in 0` means element 15 of `table`, which has 15"):
        Rows([5], some((5, 3))).gather(info=dynamic(9))
    with pytest.raises(SimulationError, match="out of bounds: `in 0` means element 15"):
        Rows([5], some((5, 3))).gather(info=dynamic(None), oob_is_err=False)


def test_the_table_lies_in_dram_and_one_side_is_dynamic() -> None:
    def copied(memory: str, target: bool, dtype: str = "float32") -> None:
        bench = Bench()
        a = bench.given("table", some((5, 3)), memory=memory)
        index = bench.given("index", np.array([[1], [2]], np.uint32))
        out = bench.output("out", (2, 3), dtype, "DRAM", 0)
        info = {"dynamic_ap_info": dynamic(2)} if target else {}
        source = a.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(5))
        bench.add("DMACopy", [source, index], [out.access(**info)], mode="Copy")
        bench.run()

    copied("DRAM", target=False)
    with pytest.raises(
        SimulationError, match="Indirect tensor `table` of Vector DGE DMACopy must have MemoryType::DRAM"
    ):
        copied("SB", target=False)
    with pytest.raises(SimulationError, match=r"Only one of the src and dst can contain dynamic access\."):
        copied("DRAM", target=True)
    with pytest.raises(
        SimulationError, match="an input and an output of the same type, but it has in float32 out int32"
    ):
        copied("DRAM", target=False, dtype="int32")


def test_counts_must_agree_and_each_operand_has_a_part() -> None:
    with pytest.raises(SimulationError, match="2 indices mean 4 elements, and `out 0` has 6"):
        Rows([2, 1], some((5, 3))).gather([(3, 2), (1, 2)])
    with pytest.raises(SimulationError, match="2 indices mean 4 elements, and `in 0` has 6"):
        Rows([2, 1], some((5, 3))).scatter(some((2, 3)), [(3, 2), (1, 2)])
    bench = Bench()
    a, out = bench.given("table", some((5, 3)), memory="DRAM"), bench.output("out", (2, 3))
    index, other = (bench.given(name, np.array([[1], [2]], np.uint32)) for name in ("i", "j"))
    bench.add("DMACopy", [a.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(5)), index, other], [out], mode="Copy")
    with pytest.raises(SimulationError, match="`in 2` has no part in the copy"):
        bench.run()


@pytest.mark.parametrize("mode", ["Replicate", "CCE"])
def test_other_modes_take_no_indices(mode: str) -> None:
    bench = Bench()
    a, out = bench.given("table", some((5, 3)), memory="DRAM"), bench.output("out", (2, 3))
    index = bench.given("index", np.array([[1], [2]], np.uint32))
    source = a.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(5, 0))
    more = {"cce_op": "add"} if mode == "CCE" else {}
    bench.add("DMACopy", [source], [out], indirection=[index], mode=mode, **more)
    with pytest.raises(SimulationError, match=r"ha(s|ve) no part in (a sum|it)"):
        bench.run()


def test_other_opcodes_take_no_indices() -> None:
    bench = Bench()
    a, out = bench.given("table", some((5, 3)), memory="DRAM"), bench.output("out", (2, 3))
    source = a.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(5, num_tensor_indirect_indices=2))
    bench.add("TensorCopy", [source], [out])
    with pytest.raises(SimulationError, match="`in 0` is indexed by a tensor, which is not modelled for `TensorCopy`"):
        bench.run()


def test_rows_of_one_location_are_a_choice() -> None:
    given = some((6, 3))
    bench = Bench()
    a = bench.given("a", given, memory="DRAM", kind="ExternalOutput")
    index = bench.given("index", np.array([[4], [0]], np.uint32))
    source, target = a.access([(3, 2), (1, 3)], dynamic_ap_info=dynamic(6)), a.access([(3, 2), (1, 3)], 6)
    bench.add("DMACopy", [source, index], [target], mode="Copy")
    expected = given.copy()
    expected[2:4] = given[[4, 0]]
    assert np.array_equal(bench.run()["a"], expected)
    bench.add("DMACopy", [source, index], [a.access([(3, 2), (1, 3)])], mode="Copy")
    with pytest.raises(SimulationError, match="`in 0` and `out 0` share elements of `a`"):
        bench.run()
    expected[:2] = expected[[4, 0]]
    assert np.array_equal(bench.run(readings={"overlap": "snapshot"})["a"], expected)


# -- transposes ----


def gathered_transpose(index: Any, columns: int = 5, op: str = "XZYW", **members: Any) -> tuple[Array, Array]:
    table = some((40, columns), "bfloat16")
    count = len(index)
    bench = Bench()
    a, indices = bench.given("table", table, memory="DRAM"), bench.given("index", np.array(index, np.uint32)[:, None])
    out = bench.output("out", (columns, count), "bfloat16", fill=7)
    source = a.access([(columns, count), (1, 1), (1, 1), (1, columns)], dynamic_ap_info=dynamic(40))
    target = out.access([(count, columns), (1, 1), (1, 1), (1, count)])
    bench.add("DMACopy", [source, indices], [target], mode="Transpose", transpose_op=op, **members)
    return table, bench.run()["out"]


@pytest.mark.parametrize("count", [16, 32, 128])
def test_gathered_rows_are_transposed(count: int) -> None:
    index = rng.integers(0, 40, count)
    table, found = gathered_transpose(index)
    for column, number in zip(found.T, index, strict=True):
        assert np.array_equal(column, table[number])


def test_rows_beyond_the_limit_are_left_out_of_a_transpose_at_its_end() -> None:
    index = [*range(16), *[99] * 16]
    table, found = gathered_transpose(index, oob_is_err=False)
    assert np.array_equal(found[:, :16], table[:16].T)
    assert (found[:, 16:].astype(f32) == 7).all()
    with pytest.raises(SimulationError, match=r"can only be OOB after first OOB index found\. But index 31 is not"):
        gathered_transpose([*[99] * 16, *range(16)], oob_is_err=False)
    with pytest.raises(SimulationError, match="non-OOB indices must be a multiple of 16, but it is 15"):
        gathered_transpose([*range(15), 99], oob_is_err=False)
    with pytest.raises(SimulationError, match="non-OOB indices must be a multiple of 16, but it is 24"):
        gathered_transpose(range(24))
    with pytest.raises(SimulationError, match="only supports TransposeOps::XZYW, but it is XYZW"):
        gathered_transpose(range(16), op="XYZW")


def test_a_sum_takes_no_rows_by_index() -> None:
    bench = Bench()
    a, out = bench.given("table", some((5, 3)), memory="DRAM"), bench.output("out", (2, 3))
    index = bench.given("index", np.array([[1], [2]], np.uint32))
    bench.add("DMACopy", [a.access(dynamic_ap_info=dynamic(5)), index], [out], mode="CCE", cce_op="add")
    with pytest.raises(SimulationError, match="`in 0` is addressed by a tensor of indices, which is not modelled"):
        bench.run()
