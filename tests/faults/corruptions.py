"""Random corruptions of single cells of sound tables, and what notices them."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

import arrowir as air
from arrowir import schema
from arrowir.ir import IR
from arrowir.testing.assertions import assert_valid
from arrowir.verify import checking

RECORDED = Path(__file__).with_name("corruptions.json")
"""The counts of the last run, which the documentation shows."""

TOTAL = 1000
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Corruption:
    """One cell with another value."""

    table: str
    column: str
    row: int
    value: int

    def of(self, ir: IR) -> IR:
        """Return the batch with the cell changed."""
        table = ir.tables[self.table]
        values = table[self.column].copy()
        values[self.row] = self.value
        return ir.replace(**{self.table: table.replace(**{self.column: values})})


def modules() -> list[IR]:
    """Return sound modules: a caller with a kernel, the same inlined, loops, and one late in the compiler."""
    tiny = air.read(ROOT / "data/generated/tiny.json")
    return [
        tiny,
        air.run(tiny, verify="none").ir,
        air.read(ROOT / "data/generated/loops.json"),
        air.read(ROOT / "data/generated/kernel_lowered.json"),
    ]


def drawn(ir: IR, random: Random, count: int) -> Iterator[Corruption]:
    """Draw corruptions: a column, each as likely as the next, then a row, then another value of the column's kind."""
    columns = [
        (table.name, column)
        for table in schema.TABLES
        if table.stored and table.name not in ("modules", "call_chains") and ir.count(table.name)
        for column in table.stored
        if column.kind != "text" and ir.tables[table.name].present(column.name)
    ]
    while count:
        table, column = random.choice(columns)
        row = random.randrange(ir.count(table))
        old = int(ir.tables[table][column.name][row])
        value = _other(ir, column, old, random)
        if value != old:
            count -= 1
            yield Corruption(table, column.name, row, value)


def _other(ir: IR, column: schema.Column, old: int, random: Random) -> int:
    if column.kind == "flag":
        return random.choice((0, 1))
    if column.kind == "int":
        by = random.choice((1, 8, 64, 4096, 1 << 20))
        return max(0 if old == schema.NULL_INT else old, -(1 << 40)) + random.choice((by, -by))
    if column.kind == "id":
        rows = ir.count(column.of) if column.of else 2 * max(old, 8)  # of a reference, the table stands beside it
        return random.randrange(-1, rows)
    return random.randrange(-1, len(ir.pools.of(column).texts))


def notices(ir: IR, before: set[Any], corruption: Corruption) -> str:
    """Return what notices a corruption: `tables`, `error`, `warning or note`, or `nothing`."""
    spoilt = corruption.of(ir)
    try:
        assert_valid(spoilt)
    except (AssertionError, IndexError, ValueError, TypeError):
        return "tables"
    found = checking.find(spoilt, "all")
    errors = found.errors
    for name, rows in (("error", np.flatnonzero(errors)), ("warning or note", np.flatnonzero(~errors))):
        if not set(checking.identities(found, rows)) <= before:
            return name
    return "nothing"


def measured() -> list[dict[str, Any]]:
    """Return for each column how many corruptions there were, and what noticed them."""
    random = Random(6)
    counts: Counter[tuple[str, str, str]] = Counter()
    every = modules()
    for ir in every:
        before = set(checking.identities(checking.find(ir, "all")))
        for corruption in drawn(ir, random, TOTAL // len(every)):
            counts[corruption.table, corruption.column, notices(ir, before, corruption)] += 1
    columns = sorted({(table, column) for table, column, _ in counts})
    names = ("tables", "error", "warning or note", "nothing")
    return [
        {"table": table, "column": column, **{name: counts[table, column, name] for name in names}}
        for table, column in columns
    ]


def main() -> None:
    """Measure anew and record the counts."""
    RECORDED.write_text(json.dumps(measured(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
