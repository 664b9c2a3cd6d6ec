"""`assert_valid` finds what it says it finds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from arrowir import layouts, schema
from arrowir.formats.bir_json import read_documents
from arrowir.ir import IR
from arrowir.store import Array, Strings
from arrowir.testing.assertions import assert_valid

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def batch() -> IR:
    names = ("data/samples/bir_json_example.json", "data/generated/kernel_lowered.json", "data/generated/tiny.json")
    return read_documents([ROOT / name for name in names])[0]


def changed(table: str, column: str, change: Callable[[Array], object]) -> Callable[[IR], IR]:
    """Return a fault: a column changed in place in a copy."""

    def fault(ir: IR) -> IR:
        values = ir.tables[table][column].copy()
        answer = change(values)
        return ir.replace(**{table: ir.tables[table].replace(**{column: values if answer is None else answer})})

    return fault


def put(row: int, value: int) -> Callable[[Array], None]:
    def change(values: Array) -> None:
        values[row] = value

    return change


def swapped(values: Array) -> Array:
    return values[::-1].copy()


def other_layout(table: str, change: Callable[[str], str]) -> Callable[[IR], IR]:
    """Return a fault: all layouts of a table changed."""

    def fault(ir: IR) -> IR:
        ids = ir.pools.layouts.map(ir.tables[table]["layout"], change)
        return ir.replace(**{table: ir.tables[table].replace(layout=ids)})

    return fault


def text(table: str, strings: Callable[[Strings], Strings]) -> Callable[[IR], IR]:
    return lambda ir: ir.replace(**{table: ir.tables[table].replace(name=strings(ir.tables[table].text()))})


def without(key: str) -> Callable[[str], str]:
    return lambda layout: layouts.without_key(layout, key)


FAULTS: dict[str, tuple[Callable[[IR], IR], str]] = {
    "dtype": (changed("operands", "offset", lambda v: v.astype(np.int32)), "`operands.offset` has dtype int32"),
    "length": (changed("operands", "offset", lambda v: v[:-1]), "`operands.offset` has"),
    "id above": (changed("operands", "location_id", put(3, 10**6)), "`operands.location_id` row 3"),
    "id below": (changed("operands", "set_id", put(5, -2)), "`operands.set_id` row 5"),
    "pattern": (changed("operands", "pattern_id", put(0, 10**6)), "`operands.pattern_id` row 0"),
    "code": (changed("instructions", "opcode", put(2, 30_000)), "`instructions.opcode` row 2"),
    "pool": (changed("locations", "extra", put(1, 10**6)), "`locations.extra` row 1"),
    "flag": (changed("locations", "allocated", put(4, 2)), "`locations.allocated` row 4"),
    "null where none may be": (changed("locations", "set_id", put(0, -1)), "`locations.set_id` row 0"),
    "absent column": (lambda ir: ir.replace(sets=ir.tables["sets"].replace(function_id=None)),
    "`sets.function_id` is absent"),
    "missing column": (
        lambda ir: ir.replace(sets=type(ir.tables["sets"])("sets", {"function_id": None}, len(ir.tables["sets"]))),
        "`sets` has other columns",
    ),
    "children not grouped": (changed("operands", "instruction_id", swapped), "`operands.instruction_id` row"),
    "functions of modules": (changed("functions", "module_id", swapped), "`functions.module_id` row"),
    "kernels before functions": (changed("functions", "in_nki_functions", swapped), "`functions.in_nki_functions` row"),
    "roles": (changed("operands", "role", lambda v: 2 - v), "`operands.role` row"),
    "ordinals": (changed("sets", "ordinal", lambda v: -v), "`sets.ordinal` row"),
    "block in nothing": (changed("blocks", "function_id", put(0, -1)), "`blocks.function_id` row 0"),
    "block owner": (changed("blocks", "owner", put(0, 1)), "`blocks.owner` row 0"),
    "blocks not breadth first": (changed("blocks", "instruction_id", swapped), "`blocks."),
    "no layout": (changed("sets", "layout", put(2, -1)), "`sets."),
    "text of another layout": (changed("sets", "extra", put(0, 0)), "`sets.extra` row 0"),
    "raw member not in layout": (other_layout("locations", without("Skind")), "`locations.extra` row 0"),
    "operands without member": (other_layout("instructions", without("ins")), "`operands.role` row"),
    "edges without member": (other_layout("instructions", without("dependencies")), "`dependencies.relation` row"),
    "locations without member": (other_layout("sets", without("memorylocations")), "`locations.layout` row"),
    "blocks without member": (other_layout("instructions", without("blocks")), "`blocks.instruction_id` row"),
    "placeholders": (
        lambda ir: ir.replace(references=type(ir.tables["references"]).empty("references")),
        "placeholders in the text and rows of `references` differ",
    ),
    "reference to nothing": (changed("references", "target_id", put(0, 10**6)), "`references.target_id` row 0"),
    "reference without name": (changed("references", "target_id", put(0, -1)), "`references.name` row 0"),
    "reference from another table": (
        changed("references", "table", put(0, schema.STRUCTURAL["table"].index("calls"))),
        "`references.table` row 0",
    ),
    "offsets": (text("sets", lambda s: Strings(s.offsets[::-1].copy(), s.data)), "`sets.name`"),
    "offsets past the data": (text("sets", lambda s: Strings(s.offsets + 5, s.data)),
    "`sets.name` ends after its data"),
    "offsets of a dtype": (text("sets", lambda s: Strings(s.offsets.astype(np.int32), s.data)),
    "`sets.name` has offsets"),  # type: ignore[arg-type]
    "offsets inside a character": (
        text("sets", lambda s: Strings(np.r_[1, np.full(len(s), 4)].astype(np.int64),
        np.frombuffer("\u00e9\u00e9".encode(), np.uint8))),
        "`sets.name` row 0",
    ),
}  # fmt: skip


def test_a_batch_that_was_read_is_valid(batch: IR) -> None:
    assert_valid(batch)
    assert len(batch.tables["references"])
    assert (batch.tables["blocks"]["instruction_id"] >= 0).any()


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_found_and_named(batch: IR, name: str) -> None:
    fault, message = FAULTS[name]
    with pytest.raises(AssertionError) as caught:
        assert_valid(fault(batch))
    assert message in str(caught.value)
