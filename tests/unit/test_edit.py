"""Runs and edits, against a twin that goes row by row."""

import gc
import random
import weakref
from collections import defaultdict
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from arrowir import build, runs, schema
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.runs import Runs, Work, concat_tables, copy_text, expand, join_text, lookup, slab
from arrowir.store import Strings, Table
from arrowir.testing.assertions import assert_valid
from arrowir_kernels import jit
from tests import tables
from tests.single_pass import frozen
from tests.tables import Row, Rows, contents, random_rows

Place = tuple[int, int]
"""A row of the new table: the old row, and the copy that it belongs to."""

KEPT_NAMES = {
    ("operands", "location_id"): "name",
    ("operands", "set_id"): "set_name",
    ("operands", "register_id"): "register_name",
    ("aliases", "target_location_id"): "name",
    ("aliases", "target_set_id"): "set_name",
    ("dependencies", "on_instruction_id"): "name",
    ("branches", "block_id"): "name",
    ("calls", "callee_id"): "name",
    ("call_arguments", "actual_location_id"): "name",
    ("call_arguments", "actual_set_id"): "name",
    ("call_arguments", "actual_register_id"): "name",
    ("semaphores", "from_instruction_id"): "name",
}
"""Where the name goes of what a key pointed at and what is gone; the last counts where several keys share a column."""

OF_CALLEES = {("calls", "callee_id"), ("call_arguments", "formal_set_id"), ("call_arguments", "formal_register_id")}
"""Keys on the function that a call names, which a clone of the call shares."""


# runs


def test_runs_leave_out_empty_ones() -> None:
    made = Runs.of(np.array([3, 0, 7]), np.array([2, 0, 1]), np.array([0, 5, 1]), np.array([10, 20, 30]))
    assert (made.start.tolist(), made.length.tolist(), made.copy.tolist()) == ([3, 7], [2, 1], [0, 1])
    assert made.shift is not None
    assert made.shift.tolist() == [10, 30]
    assert made.begins.tolist() == [0, 2, 3]
    assert made.total == 3
    assert made.source().tolist() == [3, 4, 7]
    assert made.spread(np.array([8, 9])).tolist() == [8, 8, 9]


def test_runs_of_nothing() -> None:
    made = Runs.of(np.empty(0), np.empty(0))
    assert (made.total, made.source().tolist()) == (0, [])
    assert Runs.whole(0).total == 0


def test_runs_of_a_whole_table() -> None:
    assert Runs.whole(3).source().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("rows", "at", "expected"),
    [
        (3, [], [0, 1, 2]),
        (3, [0], [3, 0, 1, 2]),
        (3, [3], [0, 1, 2, 3]),
        (3, [1, 1, 3], [0, 3, 4, 1, 2, 5]),
        (0, [0, 0], [0, 1]),
    ],
)
def test_runs_with_rows_put_in(rows: int, at: list[int], expected: list[int]) -> None:
    assert Runs.inserting(rows, np.array(at, np.int64)).source().tolist() == expected


def test_runs_with_chosen_rows_put_in() -> None:
    assert Runs.inserting(2, np.array([1, 2]), np.array([5, 4])).source().tolist() == [0, 7, 1, 6]


def test_expand() -> None:
    assert expand(np.array([5, 9, 0]), np.array([2, 0, 3])).tolist() == [5, 6, 0, 1, 2]
    assert expand(np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []


def test_lookup_keeps_what_is_absent() -> None:
    assert lookup(np.array([5, 6, -1], np.int32), np.array([1, -1, 2, 0], np.int32)).tolist() == [6, -1, -1, 5]
    assert lookup(np.empty(0, np.int32), np.array([-1], np.int32)).tolist() == [-1]


def test_slabs_are_arrays_of_their_own() -> None:
    made = slab([(np.int8, 3), (np.int64, 2), (np.int32, 0), (np.int16, 65)])
    for number, values in enumerate(made):
        values[:] = number
    assert [(a.dtype, len(a), set(a.tolist())) for a in made] == [
        (np.int8, 3, {0}),
        (np.int64, 2, {1}),
        (np.int32, 0, set()),
        (np.int16, 65, {3}),
    ]


@pytest.mark.parametrize(("threads", "rows"), [(1, 10**9), (2, 10**9), (2, 0)])
def test_parallel_work_keeps_its_order_and_raises(threads: int, rows: int) -> None:
    with patch.object(runs, "THREADS", threads):
        assert Work([lambda n=n: n * n for n in range(20)], rows).done() == [n * n for n in range(20)]
        with pytest.raises(ZeroDivisionError):
            Work([lambda: 1, lambda: 1 // 0], rows).done()


def test_text_is_copied_with_prefixes() -> None:
    first, second = Strings.of(["ä", "b", ""]), Strings.of(["cc", "d"])
    made = Runs.of(np.array([3, 0, 1]), np.array([2, 3, 1]), np.array([0, 1, 2]))
    copied = copy_text(first, second, made, np.array([-1, 1, 0]), Strings.of(["x:", ""]))
    assert copied.tolist() == ["cc", "d", "ä", "b", "", "x:b"]
    assert copy_text(first, second, made).tolist() == ["cc", "d", "ä", "b", "", "b"]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_runs_of_the_same_names_get_each_their_prefix(seed: int, compiled: bool) -> None:
    chance = random.Random(seed)
    names = ["".join(chance.choices("abü", k=chance.randrange(5))) for _ in range(90)]
    prefixes = ["", "x1_", "x2_", "y2_", "x23", "long_1_", "long_2_"]
    pieces = [(chance.choice((0, 64, 70)), chance.choice((3, 5)), chance.randrange(-1, 7)) for _ in range(40)]
    start, length, number = (np.array(column) for column in zip(*pieces, strict=True))
    with patch.object(runs, "fill_names", runs.fill_names if compiled else runs.fill_names.plain):
        made = copy_text(
            Strings.of(names[:70]), Strings.of(names[70:]), Runs.of(start, length), number, Strings.of(prefixes)
        )
    assert made.tolist() == [
        (prefixes[k] if k >= 0 else "") + name for first, rows, k in pieces for name in names[first : first + rows]
    ]


def test_text_columns_are_joined() -> None:
    assert join_text([Strings.of([]), Strings.of(["a", ""]), Strings.of(["ü"])]).tolist() == ["a", "", "ü"]
    assert join_text([Strings.of([])]).tolist() == []


def test_tables_are_joined() -> None:
    one = Table.of("branches", 2, instruction_id=0, slot=1)
    other = Table.of("branches", 1, instruction_id=3, slot=0, name=7)
    made = concat_tables([one, Table.empty("branches"), other])
    assert made["instruction_id"].tolist() == [0, 0, 3]
    assert made["name"].tolist() == [-1, -1, 7]
    assert not made.has("block_id")


# edits, row by row


class Twin:
    """The meaning of an edit, one row after the other, over rows with plain values."""

    def __init__(self, old: Rows, added: Rows, edit: Edit) -> None:
        self.edit = edit
        self.old = {table: [*old[table], *added.get(table, [])] for table in old}
        self.count = {table: len(rows) for table, rows in old.items()}
        self.places: dict[str, list[Place] | None] = {}
        for table in schema.TABLES:
            if table.name in schema.STORED and table.name != "references":
                self.places[table.name] = self._places(table)
        self.new = {
            table: {place: number for number, place in enumerate(places)}
            for table, places in self.places.items()
            if places is not None
        }

    def _places(self, table: schema.Table) -> list[Place] | None:
        given = self.edit.runs.get(table.name)
        if given is not None:
            return [
                (int(row), int(copy))
                for start, length, copy in zip(given.start, given.length, given.copy, strict=True)
                for row in range(start, start + length)
            ]
        above = table.column(table.parent).of if table.parent else None
        parents = self.places.get(above or "")
        if parents is not None and table.parent:
            children: dict[int, list[int]] = defaultdict(list)
            for number, row in enumerate(self.old[table.name]):
                children[row[table.parent]].append(number)
            return [(child, copy) for parent, copy in parents for child in children[parent]]
        if len(self.old[table.name]) > self.count[table.name]:
            return [(row, 0) for row in range(len(self.old[table.name]))]
        return None

    def move(self, table: str, row: int | None, copy: int) -> int | None:
        """Where a key of a copy points after the edit."""
        if row is None:
            return None
        if copy:
            bound = self.edit.bound.get(table)
            if bound is not None:
                for c, r, target, of in zip(*(a.tolist() for a in bound), strict=True):
                    if (c, r) == (copy, row):
                        return self.move(table, target, of)
            if (row, copy) in self.new.get(table, {}):
                return self.new[table][row, copy]
        if table not in self.new:
            return row
        return self.new[table].get((row, 0))

    def name_of(self, table: str, row: int) -> str:
        return self.old[table][row]["axis" if table == "loops" else "name"]

    def row(self, table: str, number: int, place: Place) -> Row:
        source, copy = place
        before = self.old[table][source]
        after = dict(before)
        for column in schema.BY_NAME[table].stored:
            if column.kind == "id" and column.of in schema.STORED:
                shared = (table, column.name) in OF_CALLEES
                after[column.name] = self.move(column.of, before[column.name], 0 if shared else copy)
        for (where, key), name in KEPT_NAMES.items():
            if where == table and before[key] is not None and after[key] is None:
                after[name] = self.name_of(schema.BY_NAME[table].column(key).of or "", before[key])
        if copy and table in self.edit.prefixes:
            after["name"] = self.edit.prefixes[table][copy] + before["name"]
        if copy and self.edit.chains is not None and "call_chain_id" in after:
            if after["call_chain_id"] is None:
                after["call_chain_id"] = self.move("call_chains", int(self.edit.chains[copy]), 0)
            after["original_name"] = before["original_name"] or before["name"]
        for (where, column_name), values in self.edit.replaced.items():
            if copy and where == table:
                after[column_name] = values if isinstance(values, int) else int(values[source])
        for (where, column_name), (by, chosen) in self.edit.increased.items():
            if copy and where == table and chosen[source]:
                after[column_name] += int(by[copy])
        for (where, column_name), (rows, values) in self.edit.settled.items():
            if where == table and number in rows:
                after[column_name] = int(values[list(rows).index(number)])
        parent = schema.BY_NAME[table].parent
        if parent is not None and table not in self.edit.runs:
            above = schema.BY_NAME[table].column(parent).of or ""
            if above in self.new:
                after[parent] = self.new[above][before[parent], copy]
        return after

    def build(self) -> Rows:
        made: Rows = {}
        for table in schema.STORED:
            if table == "references":
                continue
            places = self.places[table]
            listed = [(n, 0) for n in range(self.count[table])] if places is None else places
            made[table] = [self.row(table, number, place) for number, place in enumerate(listed)]
        made["references"] = self._references()
        return made

    def _references(self) -> Rows | Any:
        by_row: dict[tuple[str, int], list[Row]] = defaultdict(list)
        for reference in self.old["references"]:
            by_row[reference["table"], reference["row"]].append(reference)
        found: list[tuple[tuple[int, int, int], Row]] = []
        for rank, table in enumerate(schema.REFERRING):
            places = self.places[table]
            listed = [(n, 0) for n in range(self.count[table])] if places is None else places
            for number, (source, copy) in enumerate(listed):
                for reference in by_row[table, source]:
                    after = dict(reference) | {"row": number}
                    after["target_id"] = self.move(reference["target"], reference["target_id"], copy)
                    if after["target_id"] is None and reference["target_id"] is not None:
                        after["name"] = self.name_of(reference["target"], reference["target_id"])
                    found.append(((self._module(table, number), rank, number), after))
        return [row for _, row in sorted(found, key=lambda pair: pair[0])]

    def _module(self, table: str, number: int) -> int:
        """The module of a new row, up through its parents."""
        places = self.places[table]
        place = (number, 0) if places is None else places[number]
        row = self.row(table, number, place)
        if table == "modules":
            return number
        if table == "blocks":
            above, key = ("functions", "function_id") if row["function_id"] is not None else ("queues", "queue_id")
        else:
            key = schema.BY_NAME[table].parent or ""
            above = schema.BY_NAME[table].column(key).of or ""
        return self._module(above, row[key])


def pieces(chance: random.Random, rows: int, keep: float) -> list[tuple[int, int]]:
    """Cut a table into runs, some of which are left out."""
    cuts = sorted({0, rows, *(chance.randrange(rows + 1) for _ in range(4))})
    return [(a, b - a) for a, b in pairwise(cuts) if chance.random() < keep]


def random_edit(seed: int) -> tuple[Rows, Rows, IR, Edit]:
    """Drop rows, put rows in, clone runs of instructions and of storage, bind and settle keys."""
    chance = random.Random(seed)
    old = random_rows(seed, modules=1, size=4)
    for row in old["instructions"]:
        row["optin_mask"] = None
    ir = tables.build(old)
    if seed % 2:  # a column that is absent everywhere
        ir = ir.replace(instructions=ir.tables["instructions"].replace(optin_mask=None))
    counts = {table: ir.count(table) for table in schema.STORED}
    copies = 1 + chance.randrange(4)
    extra = random_rows(seed + 1000, modules=1, size=2)
    for row in extra["instructions"]:
        row["optin_mask"] = None
    added: Rows = {"call_chains": [{"module_id": 0, "name": f"c{copy}", "depth": 1} for copy in range(1, copies)]}
    if counts["blocks"]:
        added["instructions"] = [
            row | {"block_id": counts["blocks"] - 1, "call_chain_id": None, "original_name": "", "extra": None}
            for row in extra["instructions"][:3]
        ]
        owners = (counts["instructions"] + n for n in range(len(added["instructions"])) for _ in range(2))
        added["operands"] = [{"instruction_id": owner, "offset": owner, "layout": "[]"} for owner in owners]
    chains = [-1, *(counts["call_chains"] + n for n in range(copies - 1))]
    edit = Edit(ir, added_tables(ir, added), copies)
    edit.keep(
        "call_chains", Runs.of(np.array([counts["call_chains"], 0]), np.array([copies - 1, counts["call_chains"]]))
    )
    for table in ("instructions", "sets", "registers"):
        listed = [(a, n, 0) for a, n in pieces(chance, counts[table], 0.8)]
        listed += [(counts[table], len(added.get(table, [])), 0)]
        if counts[table]:
            for copy in range(1, copies):
                first = chance.randrange(counts[table])
                length = chance.randrange(counts[table] - first + 1)
                listed.insert(chance.randrange(len(listed) + 1), (first, length, copy))
        edit.keep(table, Runs.of(*(np.array(column) for column in zip(*listed, strict=True))))
        edit.prefix(table, Strings.of(["", *(f"c{copy}:" for copy in range(1, copies))]))
    for table in ("functions", "blocks", "instructions", "sets", "locations", "registers", "loops"):
        everything = np.full(copies, edit.rows(table))
        edit.look_into(table, np.zeros(copies, np.int64), everything)
    edit.mark(np.array(chains))
    edit.instead("instructions", "engine_id", np.arange(edit.rows("instructions")) + 77)
    edit.instead("instructions", "optin_mask", 3)
    edit.instead("sets", "tensor_id_size", 5)
    present = np.array([row["ordinal"] is not None for row in old["sets"]], bool)
    edit.increase("sets", "ordinal", np.arange(copies) * 10, present & (np.arange(len(present)) % 3 > 0))
    edit.increase("registers", "ordinal", np.arange(copies) * 10)
    total = edit.runs["instructions"].total
    some = np.array(sorted(chance.sample(range(total), min(total, 3))), np.int64)
    edit.settle("instructions", "scheduled_start", some, some + 1000)
    for table in ("locations", "blocks", "functions"):
        if counts[table] and copies > 1:
            pairs = {(chance.randrange(1, copies), chance.randrange(counts[table])) for _ in range(4)}
            clones = np.array(sorted(pairs))
            edit.bind(table, clones[:, 0], clones[:, 1], np.array([chance.randrange(counts[table]) for _ in clones]))
    return old, added, ir, edit


def added_tables(ir: IR, rows: Rows) -> dict[str, Table]:
    """Make tables of added rows in the pools of a batch."""
    made: dict[str, Table] = {}
    for name, listed in rows.items():
        columns: dict[str, Any] = {}
        for column in schema.BY_NAME[name].stored:
            cells = [row.get(column.name) for row in listed]
            if column.kind == "text":
                columns[column.name] = Strings.of([cell or "" for cell in cells])
                continue
            if column.kind in ("code", "pooled"):
                cells = [None if c is None else ir.pools.of(column).intern(c) for c in cells]
            null = schema.NULLS[column.kind]
            columns[column.name] = np.array([null if c is None else c for c in cells], schema.DTYPES[column.kind])
        made[name] = Table(name, columns, len(listed))
    return made


@pytest.mark.parametrize("seed", range(60))
def test_an_edit_is_what_it_says_row_by_row(seed: int) -> None:
    old, added, ir, edit = random_edit(seed)
    held = frozen(ir)
    expected = Twin(contents(ir), contents_of_added(ir, edit), edit).build()
    made = contents(edit.build())
    for table in schema.STORED:
        assert made[table] == expected[table], table
    assert frozen(ir) == held
    assert (set(old), bool(added)) == (set(schema.STORED), True)


def test_cells_are_those_of_old_and_added_rows() -> None:
    _, _, ir, edit = random_edit(2)
    column = np.concatenate([table["engine_id"] for table in (ir.tables["instructions"], edit.added["instructions"])])
    rows = np.array([len(column) - 1, 0, len(column) - 2, 1])
    assert edit.at("instructions", "engine_id", rows).tolist() == column[rows].tolist()
    assert edit.at("instructions", "engine_id", rows[1::2]).tolist() == column[rows[1::2]].tolist()
    assert len(edit.added["instructions"]) >= 2


def test_rows_that_are_added_alone_stand_behind_the_old_ones() -> None:
    rows = random_rows(5, modules=1, size=4)
    ir = tables.build(rows)
    assert ir.count("call_chains") > 1
    more = [row | {"parent_id": None} for row in rows["call_chains"][:2]]
    with patch.object(jit.Kernel, "__call__", lambda kernel, *arguments: kernel.plain(*arguments)):
        # Plain loops check their indices.
        made = contents(Edit(ir, added_tables(ir, {"call_chains": more})).build())
    assert made["call_chains"] == [*rows_of(ir, "call_chains"), *more]
    assert made["instructions"] == rows_of(ir, "instructions")


def rows_of(ir: IR, table: str) -> list[Row]:
    return contents(ir)[table]


def contents_of_added(ir: IR, edit: Edit) -> Rows:
    return contents(IR({name: table for name, table in edit.added.items() if len(table)}, ir.pools))


def test_an_edit_of_nothing_shares_everything() -> None:
    ir = tables.build(random_rows(1))
    made = Edit(ir).build()
    assert contents(made) == contents(ir)
    for name in set(schema.STORED) - {"references"}:
        assert made.tables[name] is ir.tables[name]


def test_columns_that_nothing_touches_are_shared() -> None:
    ir = tables.build(random_rows(2))
    edit = Edit(ir)
    edit.keep("registers", Runs.of(np.array([0]), np.array([1])))
    made = edit.build()
    assert made.tables["instructions"] is ir.tables["instructions"]
    assert made.tables["operands"].columns["location_id"] is ir.tables["operands"].columns["location_id"]
    assert len(made.tables["registers"]) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_matter(threads: int) -> None:
    expected = [contents(random_edit(seed)[3].build()) for seed in range(4)]
    with patch.object(runs, "THREADS", threads), patch.object(runs, "PARALLEL_ROWS", 0):
        assert [contents(random_edit(seed)[3].build()) for seed in range(4)] == expected


def test_what_an_edit_made_goes_with_its_result() -> None:
    edit = random_edit(1)[3]
    gc.disable()  # columns are large: they may not wait for the collector of cycles
    try:
        made = edit.build()
        column = weakref.ref(made.tables["instructions"]["block_id"])
        assert column() is not None
        del edit, made
        assert column() is None
    finally:
        gc.enable()


# merged rows


def test_merged_rows_leave_children_and_keys_to_the_first() -> None:
    made = build.module()
    main = made.function("main")
    register = main.register("r")
    main.add("NoOp", name="p")
    for number, name in enumerate("abc"):
        main.add("NoOp", [number, register], [register], name=name, after=["p", "a"][: number + 1])
    main.add("NoOp", name="z", after=["c", "p", "b"])
    ir = made.ir()
    owner = np.array([0, 1, 1, 1, 4])
    edit = Edit(ir)
    edit.keep("instructions", Runs.picking(np.array([0, 1, 4])))
    edit.unite("instructions", np.array([2, 3]), np.array([1, 1]))
    edit.hand_over("operands", owner, "role")
    kept = np.ones(ir.count("dependencies"), bool)
    kept[2] = False  # of b on a
    edit.hand_over("dependencies", owner, "relation", kept)
    out = edit.build()
    assert_valid(out)
    assert out.instructions["name"].to_list() == ["p", "a", "z"]
    operands = out.operands.select("instruction_id", "role", "kind").rows()
    pair = [(1, "in", "imm_value"), (1, "in", "register_access")]
    assert operands == [*pair * 3, *[(1, "out", "register_access")] * 3]
    edges = out.dependencies.select("instruction_id", "on_instruction_id").rows()
    assert edges == [(1, 0), (1, 0), (1, 0), (1, 1), (2, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("rows", [[], [0], [2, 3, 4], [4, 3, 2], [0, 1, 5, 6, 2]])
def test_runs_of_rows_in_any_order(rows: list[int]) -> None:
    made = Runs.picking(np.array(rows, np.int64))
    assert made.source().tolist() == rows
    assert len(made.start) == sum(b != a + 1 for a, b in pairwise([-2, *rows]))
