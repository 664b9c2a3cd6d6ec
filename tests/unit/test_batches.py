"""Batches put together and taken apart: choosing and joining modules, against twins that go row by row."""

import numpy as np
import pytest

import arrowir as air
from arrowir import build, schema
from arrowir import diagnostics as diag
from arrowir.batches import select_modules
from arrowir.ir import IR
from arrowir.testing.assertions import assert_valid
from tests import tables
from tests.single_pass import frozen
from tests.tables import Row, Rows, contents, random_rows


def moved(rows: Rows, order: list[int]) -> Rows:
    """The rows of some modules, in order, with ids as they are in that batch."""
    made: Rows = {table: [] for table in rows}
    owner = {table: modules_of(rows, table) for table in rows}
    for place, module in enumerate(order):
        ids: dict[str, dict[int, int]] = {}
        for table in rows:
            mine = [n for n, m in enumerate(owner[table]) if m == module]
            ids[table] = {n: len(made[table]) + k for k, n in enumerate(mine)}
        for table in rows:
            for number in ids[table]:
                row = dict(rows[table][number])
                for column in schema.BY_NAME[table].stored:
                    if column.kind == "id" and column.of in rows and row[column.name] is not None:
                        row[column.name] = ids[column.of][row[column.name]]
                if table == "references":
                    row["row"] = ids[row["table"]][row["row"]]
                    if row["target_id"] is not None:
                        row["target_id"] = ids[row["target"]][row["target_id"]]
                made[table].append(row)
        assert len(made["modules"]) == place + 1
    return made


def modules_of(rows: Rows, table: str) -> list[int]:
    if table == "modules":
        return list(range(len(rows[table])))
    found: list[int] = []
    for row in rows[table]:
        if table == "references":
            found.append(modules_of_row(rows, row["table"], row["row"]))
        else:
            found.append(modules_of_row(rows, table, None, row))
    return found


def modules_of_row(rows: Rows, table: str, number: int | None, row: Row | None = None) -> int:
    if table == "modules":
        return number or 0
    row = row or rows[table][number or 0]
    if table == "blocks":
        key, above = ("function_id", "functions") if row["function_id"] is not None else ("queue_id", "queues")
    else:
        key = schema.BY_NAME[table].parent or ""
        above = schema.BY_NAME[table].column(key).of or ""
    return modules_of_row(rows, above, row[key])


@pytest.mark.parametrize("order", [[], [0], [2], [2, 0, 1], [1, 1], [0, 1, 2], [2, 2, 0, 2]])
@pytest.mark.parametrize("seed", range(3))
def test_modules_are_selected_in_any_order(seed: int, order: list[int]) -> None:
    ir = tables.build(random_rows(seed))
    held = frozen(ir)
    expected = moved(contents(ir), order)
    assert contents(select_modules(ir, np.array(order, np.int64))) == expected
    assert contents(ir.select(order)) == expected
    assert frozen(ir) == held


def test_modules_are_selected_by_mask_and_refused_out_of_range() -> None:
    ir = tables.build(random_rows(0))
    assert contents(ir.select([True, False, True])) == contents(ir.select([0, 2]))
    assert len(ir.select([False] * 3)) == 0
    for wrong in ([3], [-1], [0, 7]):
        with pytest.raises(air.OptionError, match="module ids go from 0 to 2"):
            ir.select(wrong)


def test_messages_of_a_selection_are_those_of_its_modules() -> None:
    rows = random_rows(0)
    first = [modules_of(rows, "functions").index(m) for m in range(3)]
    messages = [
        diag.make("unresolved_name", f"in {m}", module_id=m, function_id=first[m] + 1, module=f"m{m}") for m in range(3)
    ]
    messages.append(diag.make("format_error", "a file"))
    ir = tables.build(rows, diagnostics=messages)
    found = ir.select([2, 0, 2]).messages
    assert [(m.message, m.module_id) for m in found if m.module_id is not None] == [
        ("in 2", 0),
        ("in 0", 1),
        ("in 2", 2),
    ]
    selected = ir.select([2, 0, 2])
    begins = [selected.tables["functions"]["module_id"].tolist().index(n) for n in range(3)]
    assert [m.function_id for m in found if m.module_id is not None] == [begins[0] + 1, begins[1] + 1, begins[2] + 1]
    assert sum(m.module_id is None for m in found) == 1


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_p10_batches_are_put_behind_each_other(seed: int, shared: bool) -> None:
    rows = random_rows(seed)
    whole = tables.build(rows)
    if shared:
        parts = [whole.select([0]), whole.select([]), whole.select([1, 2])]
    else:
        alone = moved(rows_filled(rows), [0]), moved(rows_filled(rows), [1, 2])
        parts = [tables.build(alone[0]), tables.build(alone[1], used_pools=["x", "", "Store"])]
    held = [frozen(part) for part in parts]
    joined = air.concat(parts)
    assert contents(joined) == contents(whole)
    assert [frozen(part) for part in parts] == held
    assert (joined.pools is whole.pools) == shared
    assert contents(joined.select([2, 0])) == contents(whole.select([2, 0]))


def rows_filled(rows: Rows) -> Rows:
    """All columns in every row, absent ones as None."""
    return contents(tables.build(rows))


def test_p09_words_that_no_vocabulary_has_are_the_same_word_in_every_part() -> None:
    def module(*opcodes: str) -> IR:
        main = build.module().function("main")
        for opcode in opcodes:
            main.add(opcode, engine=f"Engine of {opcode}")
        built = build.module()
        built._functions.append(main)
        return built.ir()

    one, other = module("New", "Odd", "Load"), module("Odd", "Load", "Newer", "New")
    known = [len(part.pools.codes["opcode"]) for part in (one, other)]
    joined = air.concat([one, other])
    assert_valid(joined)
    assert [len(part.pools.codes["opcode"]) for part in (one, other)] == known
    opcodes = joined.instructions["opcode"]
    assert opcodes.to_list() == ["New", "Odd", "Load", "Odd", "Load", "Newer", "New"]
    codes = joined.tables["instructions"]["opcode"].tolist()
    assert codes[0] == codes[6]
    assert codes[1] == codes[3]
    assert codes[2] == codes[4] == one.tables["instructions"]["opcode"][2]
    assert joined.instructions["engine"].to_list() == [f"Engine of {o}" for o in opcodes.to_list()]
    assert [joined.to_json(0), joined.to_json(1)] == [one.to_json(0), other.to_json(0)]
    assert (len(one), len(other)) == (1, 1)


def test_a_concatenation_needs_a_batch_and_keeps_one_as_it_is() -> None:
    with pytest.raises(air.OptionError, match="give at least one"):
        air.concat([])
    ir = tables.build(random_rows(0))
    assert air.concat([ir]) is ir


def test_history_and_messages_of_a_concatenation() -> None:
    note = diag.make("ambiguous_name", "here", module_id=0, function_id=0)
    a = tables.build(random_rows(0), history=["p"], diagnostics=[note])
    b = tables.build(random_rows(1), history=["p"], diagnostics=[note])
    joined = air.concat([a, b])
    assert joined.history == ("p",)
    assert [(m.module_id, m.function_id) for m in joined.messages] == [(0, 0), (3, a.count("functions"))]
    assert air.concat([a, tables.build(random_rows(1))]).history == ()
