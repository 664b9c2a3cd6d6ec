"""Strings, pools, tables, and what a batch promises: it never changes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import arrowir as air
from arrowir import diagnostics as diag
from arrowir import schema, store
from arrowir.ir import IR
from arrowir.store import Pool, Pools, Strings, Table, children, no_rows, pointing, starts
from tests import tables
from tests.single_pass import frozen
from tests.tables import contents, random_rows

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "bir_json_example.json"
TEXTS = ["", "a", "ü", "\U0001f600 b", "a", ""]


# strings


def test_strings_hold_what_they_are_given() -> None:
    made = Strings.of(TEXTS)
    assert len(made) == 6
    assert made.tolist() == TEXTS
    assert [made[n] for n in range(6)] == TEXTS
    assert made.take(np.array([3, 0, 3])) == [TEXTS[3], "", TEXTS[3]]
    assert (made.offsets.dtype, made.data.dtype) == (np.int64, np.uint8)
    assert len(Strings.of([])) == 0
    assert Strings.of([]).tolist() == []


@pytest.mark.parametrize("text", ["", "a", "ü", "\U0001f600 b", "b", "aa"])
def test_strings_are_compared_whole(text: str) -> None:
    assert Strings.of(TEXTS).equal(text).tolist() == [t == text for t in TEXTS]
    assert Strings.of([]).equal(text).tolist() == []


def test_strings_may_begin_inside_their_data() -> None:
    part = Strings(np.array([1, 3, 4]), np.frombuffer(b"xabcy", np.uint8))
    assert part.tolist() == ["ab", "c"]
    assert part.equal("ab").tolist() == [True, False]


def test_strings_cannot_be_given_other_parts() -> None:
    with pytest.raises(AttributeError):
        Strings.of(["a"]).data = np.empty(0, np.uint8)  # type: ignore[misc]


# pools


def test_a_pool_knows_each_text_once() -> None:
    pool = Pool(["a", "b"])
    assert [pool.intern(t) for t in ("b", "c", "a", "c")] == [1, 2, 0, 2]
    assert (len(pool), pool[2], pool.find("c"), pool.find("d")) == (3, "c", 2, -1)


def test_a_pool_knows_many_texts_at_once() -> None:
    pool = Pool(["a", "b"])
    assert pool.intern_all(["c", "b", "c", "d"]).tolist() == [2, 1, 2, 3]
    assert pool.texts == ["a", "b", "c", "d"]
    assert [pool.find(text) for text in pool.texts] == [0, 1, 2, 3]
    assert len(pool.intern_all([])) == 0


def test_a_pool_serves_threads() -> None:
    pool = Pool()
    words = [f"w{n % 50}" for n in range(2_000)]
    with ThreadPoolExecutor(4) as threads:
        ids = list(threads.map(pool.intern, words))
    assert len(pool) == 50
    assert all(pool[i] == word for i, word in zip(ids, words, strict=True))


def test_texts_are_mapped_once_per_distinct_id() -> None:
    pool = Pool(["a", "b", "c"])
    asked: list[str] = []

    def change(text: str) -> str:
        asked.append(text)
        return text * 2

    ids = np.array([2, -1, 0, 2, 0], np.int32)
    mapped = pool.map(ids, change, name="double")
    assert [pool[i] if i >= 0 else None for i in mapped.tolist()] == ["cc", None, "aa", "cc", "aa"]
    assert mapped.dtype == np.int32
    assert sorted(asked) == ["a", "c"]
    assert pool.map(np.array([0, 1], np.int32), change, name="double").tolist() == [mapped[2], pool.find("bb")]
    assert sorted(asked) == ["a", "b", "c"]
    pool.map(np.array([0], np.int32), change)
    assert asked.count("a") == 2
    assert pool[int(pool.map(np.array([0], np.int32), lambda text: text + "x")[0])] == "ax"


@pytest.mark.parametrize("ids", [[], [-1, -1]])
def test_mapping_of_what_is_absent_asks_nothing(ids: list[int]) -> None:
    assert Pool.map_ids(np.array(ids, np.int32), lambda i: 1 // 0).tolist() == ids


def test_a_copy_of_pools_grows_on_its_own() -> None:
    pools = Pools()
    pools.names.intern("a")
    known = len(pools.codes["opcode"])
    copied = pools.copy()
    assert copied.names.intern("b") == 1
    assert copied.codes["opcode"].intern("never seen") == known
    assert (len(pools.names), len(pools.codes["opcode"])) == (1, known)
    assert copied.codes["opcode"].texts[:known] == pools.codes["opcode"].texts


# tables


def test_a_table_of_columns_and_numbers() -> None:
    made = Table.of("locations", 3, set_id=np.array([0, 0, 1]), name=Strings.of(["a", "b", "c"]), bank=7)
    assert len(made) == 3
    assert made["set_id"].tolist() == [0, 0, 1]
    assert (made["set_id"].dtype, made["bank"].dtype) == (np.int32, np.int64)
    assert made["bank"].tolist() == [7, 7, 7]
    assert made["addr"].tolist() == [schema.NULL_INT] * 3
    assert made["pinned"].tolist() == [-1] * 3
    assert (made.has("bank"), made.has("addr")) == (True, False)
    assert made.text().tolist() == ["a", "b", "c"]
    assert made.text("original_name").tolist() == ["", "", ""]
    assert made.bounds(3).tolist() == [0, 2, 3, 3]


def test_a_column_may_be_there_with_nothing_in_it() -> None:
    made = Table.of("locations", 2, addr=schema.NULL_INT, bank=np.array([schema.NULL_INT, 0]))
    assert made.has("addr")
    assert not made.present("addr")
    assert made.present("bank")
    assert not made.present("base")


def test_columns_are_replaced_in_a_new_table() -> None:
    made = Table.of("locations", 2, set_id=0, bank=1)
    other = made.replace(bank=np.array([5, 6]), base=None)
    assert made["bank"].tolist() == [1, 1]
    assert other["bank"].tolist() == [5, 6]
    assert other.columns["set_id"] is made.columns["set_id"]


@pytest.mark.parametrize("name", schema.STORED)
def test_an_empty_table_has_every_column(name: str) -> None:
    made = Table.empty(name)
    assert len(made) == 0
    assert list(made.columns) == [c.name for c in schema.BY_NAME[name].stored]
    for column in schema.BY_NAME[name].stored:
        assert len(no_rows(column)) == 0
        if column.kind == "text":
            assert made.text(column.name).tolist() == []
        else:
            assert made[column.name].dtype == schema.DTYPES[column.kind]


def test_where_runs_begin() -> None:
    assert starts(np.array([2, 0, 3])).tolist() == [0, 2, 2, 5]
    assert starts(np.empty(0, np.int64)).tolist() == [0]
    assert starts(np.array([2**31, 2**31], np.uint32)).tolist() == [0, 2**31, 2**32]


# batches


@pytest.fixture
def ir() -> IR:
    return air.read(SAMPLE)


def test_frames_never_change_the_batch(ir: IR) -> None:
    held, text = frozen(ir), ir.to_json(0)
    for table in (t.name for t in schema.TABLES):
        frame = ir.frame(table)
        if not len(frame):
            continue
        for column in frame.columns:
            values = frame[column].to_numpy() if frame[column].dtype.is_numeric() else None
            if values is not None and values.flags.writeable:
                values[:] = 0
        frame[0, "id"] = 7
        frame.drop_in_place(frame.columns[-1])
        again = ir.frame(table)
        assert again["id"].to_list() == list(range(len(again)))
        assert len(again.columns) == len(frame.columns) + 1
    assert frozen(ir) == held
    assert ir.to_json(0) == text


def test_numbers_of_a_frame_cannot_be_written_into_the_batch(ir: IR) -> None:
    held = frozen(ir)
    series = ir.locations["addr"]
    with pytest.raises(ValueError, match="read-only"):
        series.to_numpy(allow_copy=False)[:] = 1
    column = ir.to_arrow()["locations"]["bytes"].chunk(0)
    with pytest.raises(ValueError, match="read-only"):
        column.to_numpy(zero_copy_only=True)[:] = 1
    assert frozen(ir) == held


def test_a_frame_is_made_once(ir: IR) -> None:
    assert ir.instructions.equals(ir.frame("instructions"))
    assert ir.instructions is not ir.instructions
    with pytest.raises((KeyError, air.ArrowIRError)):
        ir.frame("nothing")


def test_passes_share_what_they_leave_alone(ir: IR) -> None:
    result = air.passes.runtime_memory_reservation(ir)
    assert result.status.to_list() == ["changed"]
    assert result.ir is not ir
    for name in ("instructions", "blocks", "dependencies", "functions"):
        assert result.ir.tables[name] is ir.tables[name]
    assert result.ir.tables["sets"] is not ir.tables["sets"]


def test_replaced_tables_make_a_new_batch(ir: IR) -> None:
    note = diag.make("ambiguous_name", "here", module_id=0)
    ir = IR(ir.tables, ir.pools, diagnostics=[note], history=["p"])
    instructions = ir.tables["instructions"]
    names = Strings.of([f"x{n}" for n in range(len(instructions))])
    other = ir.replace(instructions=instructions.replace(name=names))
    assert other.instructions["name"][0] == "x0"
    assert ir.instructions["name"][0] != "x0"
    assert other.pools is ir.pools
    assert (other.messages, other.history) == ((note,), ("p",))
    assert (ir.after("q", {}).messages, ir.select([0]).messages) == ((note,), (note,))


def test_history_grows_in_the_new_batch(ir: IR) -> None:
    after = ir.after("some_pass", {"b": 1, "a": None})
    assert ir.history == ()
    assert after.history == ('{"options": {"a": null, "b": 1}, "pass": "some_pass"}',)
    assert after.after("p", {}).history == (*after.history, '{"options": {}, "pass": "p"}')
    assert after.tables["instructions"] is ir.tables["instructions"]


def test_patterns_that_come_later_are_not_the_batchs(ir: IR) -> None:
    count = ir.count("patterns")
    assert count == 4 == ir.operands["pattern_id"].n_unique()
    ir.pools.patterns.intern("[[1,2],[3,4],[5,6]]")
    assert ir.count("patterns") == count == len(ir.patterns)


def test_columns_and_arrays(ir: IR) -> None:
    table = ir.tables["locations"]
    assert ir.column("locations", "addr") is table.columns["addr"]
    assert ir.array("locations", "function_id").tolist() == ir.locations["function_id"].to_list()
    assert ir.column("locations", "function_id") is ir.column("locations", "function_id")
    absent = tables.build({"modules": [{"name": "m", "layout": "[]"}]})
    assert absent.column("modules", "arch") is None
    assert absent.array("modules", "arch").tolist() == [-1]


def test_modules_are_found_by_name() -> None:
    rows = random_rows(0)
    ir = tables.build(rows)
    assert [ir.module_id(f"m{n}") for n in range(3)] == [0, 1, 2]
    with pytest.raises((KeyError, air.ArrowIRError), match="0 modules are named `m3`"):
        ir.module_id("m3")
    twice = air.concat([ir, ir])
    with pytest.raises((KeyError, air.ArrowIRError), match="2 modules are named `m1`"):
        twice.module_id("m1")


def test_sizes_of_a_batch(ir: IR) -> None:
    assert len(ir) == 1
    total = sum(
        part.nbytes
        for table in ir.tables.values()
        for column in table.columns.values()
        if column is not None
        for part in ((column.offsets, column.data) if isinstance(column, Strings) else (column,))
    )
    assert ir.memory_bytes == total
    assert f"{ir.count('operands'):,} operands" in repr(ir)


def test_missing_tables_are_empty() -> None:
    ir = IR({}, Pools())
    assert len(ir) == 0
    assert all(ir.count(name) == 0 for name in schema.STORED)
    assert all(len(ir.frame(table.name)) == 0 for table in schema.TABLES)
    assert contents(ir) == {name: [] for name in schema.STORED}


def test_the_batch_is_an_arrow_stream_of_instructions(ir: IR) -> None:
    stream: Any = ir
    assert pa.table(stream).num_rows == ir.count("instructions")
    assert pl.DataFrame(stream).height == ir.count("instructions")


# rows that keys point at


@pytest.mark.parametrize("threshold", [0, 1 << 20])
@pytest.mark.parametrize("seed", range(20))
def test_children_are_those_with_the_key_of_a_run(seed: int, threshold: int) -> None:
    random = np.random.default_rng(seed)
    column = np.sort(random.integers(0, 12, int(random.integers(0, 40)))).astype(np.int32)
    rows, count = random.integers(0, 14, 9), random.integers(0, 4, 9)
    with patch.object(store, "THRESHOLD", threshold):
        first, number = children(column, rows, count)
        alone = children(column, rows)
    for k, row in enumerate(rows.tolist()):
        assert first[k] == alone[0][k] == sum(key < row for key in column.tolist())
        assert number[k] == sum(row <= key < row + count[k] for key in column.tolist())
        assert alone[1][k] == column.tolist().count(row)


def test_rows_are_selected_by_what_their_key_points_at() -> None:
    marked = np.array([True, False, True])
    assert pointing(np.array([2, -1, 1, 0, 2], np.int32), marked).tolist() == [0, 3, 4]
    assert len(pointing(np.empty(0, np.int32), marked)) == 0


def test_cells_are_read_where_they_are_wanted() -> None:
    table = Table.of("branches", 3, slot=np.array([2, 0, 1]))
    assert table.at("slot", np.array([2, 0])).tolist() == [1, 2]
    assert table.at("block_id", np.array([2, 0])).tolist() == [-1, -1]
    assert table.holding("slot", [1, 2, 7]).tolist() == [0, 2]
    assert table.holding("block_id", [1]).tolist() == []
