"""Representations in HTML, for notebooks: small whatever the size of the batch, readable on light and dark ground.

They are made of counts: no frame is made and no table is walked, so that showing a batch of millions of rows costs a
few milliseconds. Text is escaped, rows and columns are capped, and nothing is loaded from elsewhere.
"""

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from arrowir import schema
from arrowir.diagnostics import Diagnostic
from arrowir.passes.base import STATUS
from arrowir.store import Strings, Table

if TYPE_CHECKING:
    import polars as pl

    from arrowir.analyse.diff import Diff
    from arrowir.ir import IR
    from arrowir.passes.base import PassResult
    from arrowir.passes.pipeline import RunResult

HEAD, TAIL = 5, 5
"""How many modules are shown from the beginning and from the end of a batch."""
TOP = 12
"""How many opcodes are shown."""
MESSAGES = 20
"""How many diagnostics are shown."""
WIDEST = 120
"""A cell of more characters is cut."""

# Borders and stripes are half-transparent grey and text has the colour around it: so any theme will do.
_STYLE = """<style>
.arrowir { color: inherit; font-size: 0.9em; }
.arrowir .row { display: flex; flex-wrap: wrap; gap: 1.5em; align-items: flex-start; margin-top: 0.5em; }
.arrowir table { border-collapse: collapse; color: inherit; background: transparent; margin: 0; }
.arrowir caption { text-align: left; font-weight: 600; padding-bottom: 0.2em; color: inherit; }
.arrowir th, .arrowir td { padding: 0.1em 0.6em; border-bottom: 1px solid rgba(128, 128, 128, 0.35); text-align: left; }
.arrowir .number { text-align: right; font-variant-numeric: tabular-nums; }
.arrowir .faint { opacity: 0.65; }
</style>"""

Cell = str | int | None


def batch(ir: "IR") -> str:
    """Return what a notebook shows of a batch: its modules, tables, opcodes and memory.

    Parameters
    ----------
    ir
        The batch.

    Examples
    --------
    >>> from arrowir import build
    >>> "1 module" in batch(build.module().ir())
    True
    """
    parts = [_modules(ir), _tables(ir), _opcodes(ir), _memory(ir)]
    noticed = f", {_count(len(ir.messages), 'diagnostic')} on reading" if ir.messages else ""
    title = f"arrowir: {_count(len(ir), 'module')}, {_count(ir.count('instructions'), 'instruction')}{noticed}"
    return _document(title, parts)


def pass_result(result: "PassResult") -> str:
    """Return what a notebook shows of a pass's result: how the modules ended, what was said, the batch.

    Parameters
    ----------
    result
        The result of one pass.
    """
    name = json.loads(result.ir.history[-1])["pass"] if result.ir.history else "pass"
    parts = [_said(result.messages)]
    return _document(f"{name}: {_statuses(result.codes)}", parts) + _folded(result.ir)


def run_result(result: "RunResult") -> str:
    """Return what a notebook shows of a run: the passes, how the modules ended, what was said, the batch.

    Parameters
    ----------
    result
        The result of a pipeline.
    """
    rows: list[Sequence[Cell]] = []
    for step in result.taken:
        grown = int(step.after["instructions"].sum() - step.before["instructions"].sum())
        counts = np.bincount(step.codes, minlength=len(STATUS)).tolist()
        rows.append((step.order, step.name, *counts, f"{grown:+,}" if grown else "0"))
    steps = _table("passes", ("order", "pass", *STATUS, "instructions"), rows)
    return _document(f"run: {_statuses(result.codes)}", [steps, _said(result.messages)]) + _folded(result.ir)


def diff(found: "Diff") -> str:
    """Return what a notebook shows of the difference of two batches: the first modules that differ, a line each kind.

    Parameters
    ----------
    found
        The difference.
    """
    from arrowir.analyse import telling

    title = telling.title(found)
    tables: list[str] = []
    for name, lines in telling.told(found):
        rows: list[Sequence[Cell]] = [(table, line) for table, line in lines]
        tables.append(_table(name, ("table", "difference"), rows))
    return _document(title, tables)


def diagnostics(df: "pl.DataFrame") -> str:
    """Return a diagnostics table as HTML, at most twenty rows of it.

    Parameters
    ----------
    df
        A diagnostics table, like `ir.diagnostics`.
    """
    about = ("function", "block", "instruction", "set", "location")
    rows: list[Sequence[Cell]] = [
        (
            *(row[c] for c in ("severity", "code", "module", "pass", "message")),
            ", ".join(f"{c} {row[c]}" for c in about if row[c] is not None),
        )
        for row in df.head(MESSAGES).iter_rows(named=True)
    ]
    return _document(_count(df.height, "diagnostic"), [_message_table(rows, df.height)])


# -- parts ------------------------------------------------------------------------------------------------------------


def _document(title: str, parts: Iterable[str]) -> str:
    body = "".join(parts)
    return f'{_STYLE}<div class="arrowir"><div>{escape(title)}</div><div class="row">{body}</div></div>'


def _folded(ir: "IR") -> str:
    return f'<details class="arrowir"><summary>the batch after it</summary>{batch(ir)}</details>'


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _statuses(codes: "np.ndarray[tuple[int, ...], np.dtype[np.int8]]") -> str:
    counts = np.bincount(codes, minlength=len(STATUS)).tolist()
    listed = ", ".join(f"{n:,} {name}" for name, n in zip(STATUS, counts, strict=True) if n)
    return listed or "no modules"


def _said(messages: Sequence[Diagnostic]) -> str:
    if not messages:
        return ""
    about = ("function", "block", "instruction", "set", "location")
    rows: list[Sequence[Cell]] = [
        (
            *(m.severity, m.code, m.module, m.pass_name, m.message),
            ", ".join(f"{c} {getattr(m, c)}" for c in about if getattr(m, c) is not None),
        )
        for m in messages[:MESSAGES]
    ]
    return _message_table(rows, len(messages))


def _message_table(rows: list[Sequence[Cell]], total: int) -> str:
    header = ("severity", "code", "module", "pass", "message", "about")
    return _table("diagnostics", header, rows, more=total - len(rows))


def _table(
    caption: str, header: Sequence[str], rows: Sequence[Sequence[Cell]], *, more: int = 0, gap: int | None = None
) -> str:
    """Return a table; `more` rows are said to be missing, at place `gap` or at the end."""
    body = [f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows]
    if more > 0:
        missing = f'<tr><td class="faint" colspan="{len(header)}">... {more:,} more</td></tr>'
        body.insert(len(body) if gap is None else gap, missing)
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    return f"<table><caption>{escape(caption)}</caption><tr>{head}</tr>{''.join(body)}</table>"


def _cell(cell: Cell) -> str:
    if isinstance(cell, int):
        return f'<td class="number">{cell:,}</td>'
    text = cell or ""
    if len(text) > WIDEST:
        text = f"{text[:WIDEST]}..."
    return f"<td>{escape(text)}</td>"


def _modules(ir: "IR") -> str:
    total = len(ir)
    some = total > HEAD + TAIL + 1
    shown = [*range(HEAD), *range(total - TAIL, total)] if some else list(range(total))
    counted = ("functions", "blocks", "instructions", "operands", "locations")
    names = ir.tables["modules"].text()
    rows: list[Sequence[Cell]] = [
        (
            *(str(m), names[m], _pooled(ir, "modules", "arch", m)),
            *(first_row(ir, table, m + 1) - first_row(ir, table, m) for table in counted),
        )
        for m in shown
    ]
    if total > 1:
        rows.append(("", "all", None, *(ir.count(table) for table in counted)))
    header = ("", "module", "arch", *counted)
    return _table("modules", header, rows, more=total - len(shown), gap=HEAD if some else None)


def _tables(ir: "IR") -> str:
    rows = [
        (name, len(table), _size(table_bytes(table)))
        for name, table in ir.tables.items()
        if len(table) and name != "modules"
    ]
    if ir.count("patterns"):
        rows.append(("patterns", ir.count("patterns"), ""))
    return _table("tables", ("table", "rows", "memory"), rows)


def _opcodes(ir: "IR") -> str:
    return _histogram(ir, "opcodes", "instructions", "opcode")


def _memory(ir: "IR") -> str:
    return _histogram(ir, "locations by memory", "locations", "type")


def _histogram(ir: "IR", caption: str, table: str, column: str) -> str:
    """Return how often each value of a code column occurs, most frequent first."""
    if not ir.count(table):
        return ""
    names = ir.pools.codes[schema.BY_NAME[table].column(column).of or ""]
    codes = ir.tables[table][column]
    counts = np.bincount(codes + 1).tolist()  # one more, because an absent code is -1
    found = sorted((-n, "" if code == 0 else names[code - 1]) for code, n in enumerate(counts) if n)
    rows: list[Sequence[Cell]] = [(name, -n) for n, name in found[:TOP]]
    return _table(caption, (column, "count"), rows, more=len(found) - len(rows))


def _pooled(ir: "IR", table: str, column: str, row: int) -> str | None:
    values = ir.tables[table].columns[column]
    number = -1 if values is None or isinstance(values, Strings) else int(values[row])
    return ir.pools.names[number] if number >= 0 else None


def _size(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def table_bytes(table: Table) -> int:
    """Return the bytes that the columns of a table hold."""
    total = 0
    for column in table.columns.values():
        if isinstance(column, Strings):
            total += column.offsets.nbytes + column.data.nbytes
        elif column is not None:
            total += column.nbytes
    return total


# -- rows of a module -------------------------------------------------------------------------------------------------

# From a table one step towards its module.
_ABOVE = {
    "functions": "module_id",
    "queues": "module_id",
    "locations": "set_id",
    "sets": "function_id",
    "registers": "function_id",
    "instructions": "block_id",
    "operands": "instruction_id",
}


def first_row(ir: "IR", table: str, module_id: int) -> int:
    """Return the first row of a module, or where it would be: a binary search, since its rows are one run."""
    return bisect_left(range(ir.count(table)), module_id, key=lambda row: _module_of(ir, table, row))


def _module_of(ir: "IR", table: str, row: int) -> int:
    while table != "modules":
        rows = ir.tables[table]
        if table == "blocks":
            key = "function_id" if _id(rows, "function_id", row) >= 0 else "queue_id"
        else:
            key = _ABOVE[table]
        row = _id(rows, key, row)
        table = schema.BY_NAME[table].column(key).of or "modules"
    return row


def _id(rows: Table, column: str, row: int) -> int:
    values = rows.columns[column]
    return -1 if values is None or isinstance(values, Strings) else int(values[row])
