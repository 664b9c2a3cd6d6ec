"""Whatever a document holds, people can look at it: listing, typed keys, SQL, notebook representation."""

import json
import re
from typing import Any

import polars as pl
from hypothesis import given, reject, settings

from arrowir import IR, FormatError, read_json, schema
from arrowir.display import html
from arrowir.testing.strategies import documents, unrollable_documents

NUMBERED = re.compile(r" *\d+ ")


def read(document: dict[str, Any]) -> IR:
    """Read a document; one that is refused is no matter here."""
    try:
        return read_json(json.dumps(document).encode(), name="drawn")
    except FormatError:
        reject()


@given(documents())
def test_a_listing_has_one_line_per_instruction_and_block(document: dict[str, Any]) -> None:
    ir = read(document)
    text = ir.text(0)
    assert text.isascii()
    lines = text.split("\n")
    assert text.splitlines() == lines[:-1]
    assert sum(bool(NUMBERED.match(line)) for line in lines) == ir.count("instructions")
    assert sum(line.lstrip().startswith("block ") for line in lines) >= ir.count("blocks")
    assert sum(line.startswith(("function ", "kernel ", "queue ")) for line in lines) == sum(
        ir.count(table) for table in ("functions", "queues")
    )
    assert "\\u0001" not in text.replace("\\\\", "")


@given(unrollable_documents())
def test_program_order_is_the_order_of_the_lines(document: dict[str, Any]) -> None:
    ir = read(document)
    numbers = [int(line.split()[0]) for line in ir.text(0).splitlines() if NUMBERED.match(line)]
    expected = [n for f in range(ir.count("functions")) for n in range(sum(ir.instructions["function_id"] == f))]
    assert numbers == expected


@given(documents())
def test_typed_keys_say_what_the_document_says(document: dict[str, Any]) -> None:
    ir = read(document)
    for opcode in ir.instructions["opcode"].drop_nulls().unique().sort().to_list():
        frame = ir.attributes(opcode)
        assert frame.height == ir.instructions.filter(pl.col("opcode") == opcode).height
        assert frame.columns[2:] == sorted(frame.columns[2:])
        assert not any("\x01" in str(cell) for row in frame.iter_rows() for cell in row)


@given(documents())
@settings(max_examples=20)
def test_every_view_can_be_read_and_agrees_in_size(document: dict[str, Any]) -> None:
    ir = read(document)
    counts = ", ".join(f'(select count(*) from "{t.name}") as "{t.name}"' for t in schema.TABLES)
    assert ir.sql(f"select {counts}").row(0, named=True) == {t.name: ir.count(t.name) for t in schema.TABLES}
    for table in ("instructions", "operands", "loops"):
        filled = ir.sql(f"select extra from {table} order by id")["extra"].to_list()
        for text, stored in zip(filled, ir.frame(table)["extra"].to_list(), strict=True):
            assert (text is None) == (stored is None)
            if text is not None:
                assert "\x01" not in text
                assert list(json.loads(text)) == list(json.loads(stored.replace("\x01", "0")))


@given(documents())
def test_a_representation_counts_what_is_there(document: dict[str, Any]) -> None:
    ir = read(document)
    text = html.batch(ir)
    assert text.count("<table>") == text.count("</table>")
    for table in ("functions", "blocks", "instructions", "operands", "locations"):
        assert html.first_row(ir, table, 1) - html.first_row(ir, table, 0) == ir.count(table)
