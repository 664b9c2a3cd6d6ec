"""The op-specific keys of one opcode as typed columns.

The keys of an instruction that no column models stand as JSON text in its `extra`, which is interned. So each distinct
text is read once, a column is made of the distinct values, and the rows gather from it. Only values with a reference in
them differ from row to row: there the names are filled in row by row.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import extras, layouts, schema
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

    from arrowir.ir import IR

COMMON = frozenset(
    (
        *("name", "opcode", "engine", "ins", "outs", "origin", "engine_id", "scheduled_start", "scheduled_end"),
        *("optin_passes", "indirection_ins", "dependencies", "loop_carried_dependencies", "unroll_dependencies"),
        *("sync_info", "debug", "loopnest", "predicates", "order"),
    )
)
"""Keys that any instruction may have."""

_SPELLED_FLOATS = frozenset(("inf", "-inf", "nan"))

Cells = list[str | None]


def frame(ir: "IR", opcode: str) -> "pl.DataFrame":
    """Return the op-specific keys of one opcode: the answer of `IR.attributes`.

    Parameters
    ----------
    ir
        The batch.
    opcode
        Like ``"Activation"``.

    Returns
    -------
    polars.DataFrame
        As `IR.attributes` says. A key of the name of one of the first two columns gets an underscore appended.

    Examples
    --------
    >>> from arrowir import build
    >>> module = build.module()
    >>> main = module.function()
    >>> tile = main.sb("tile", [128, 4])
    >>> scale = main.add("Activation", [tile], [tile], func="Exp", scale=1)
    >>> half = main.add("Activation", [tile], [tile], func="Exp", scale=0.5)
    >>> frame(module.ir(), "Activation").to_dict(as_series=False)
    {'instruction_id': [0, 1], 'module_id': [0, 0], 'func': ['Exp', 'Exp'], 'scale': [1.0, 0.5]}
    """
    import polars as pl

    instructions = ir.tables["instructions"]
    code = ir.pools.codes["opcode"].find(opcode)
    rows = np.flatnonzero(instructions["opcode"] == code) if code >= 0 else np.empty(0, np.int64)
    made = {
        "instruction_id": pl.Series(rows, dtype=pl.Int32),
        "module_id": pl.Series(ir.array("instructions", "module_id")[rows], dtype=pl.Int32),
    }
    if not len(rows):
        return pl.DataFrame(made)
    distinct, place = np.unique(instructions["extra"][rows], return_inverse=True)
    texts = [ir.pools.extras[i] if i >= 0 else "{}" for i in distinct.tolist()]
    found: dict[str, Cells] = {key: [None] * len(texts) for key in _null_keys(ir, instructions["layout"][rows])}
    for number, text in enumerate(texts):
        for key, value in extras.members(text):
            if key not in COMMON:
                found.setdefault(key, [None] * len(texts))[number] = value
    names = reference_names(ir, "instructions", rows) if any(extras.PLACEHOLDER in t for t in texts) else {}
    for key in sorted(found):
        column = f"{key}_" if key in made else key
        cells = found[key]
        if any(cell and extras.PLACEHOLDER in cell for cell in cells):
            made[column] = pl.Series(_filled(key, cells, texts, place, rows, names), dtype=pl.String)
        else:
            values, dtype = _typed(cells)
            made[column] = pl.Series(values, dtype=dtype).gather(place)
    return pl.DataFrame(made)


def reference_names(ir: "IR", table: str, rows: Array | None = None) -> dict[int, list[str]]:
    """Return the names that fill the placeholders of rows, in order; rows without placeholders are left out.

    Parameters
    ----------
    ir
        The batch.
    table
        The table of the rows, one of `schema.REFERRING`.
    rows
        Rows of it; all by default.
    """
    references = ir.tables["references"]
    mine = np.flatnonzero(references["table"] == schema.STRUCTURAL["table"].index(table))
    if rows is not None:
        mine = mine[np.isin(references["row"][mine], rows)]
    found: dict[int, list[str]] = {}
    columns = (references[name][mine].tolist() for name in ("row", "target", "target_id", "name"))
    for row, target, target_id, name in zip(*columns, strict=True):
        if target_id >= 0:
            text = target_name(ir, schema.STRUCTURAL["table"][target], target_id)
        else:
            text = ir.pools.names[name] if name >= 0 else ""
        found.setdefault(row, []).append(text)
    return found


def target_name(ir: "IR", table: str, row: int) -> str:
    """Return the name of a row that a reference points at: of a loop, that of its axis."""
    if table != "loops":
        return ir.tables[table].text()[row]
    axes = ir.tables["loops"].columns["axis"]
    number = -1 if axes is None else int(np.asarray(axes)[row])
    return ir.pools.names[number] if number >= 0 else ""


def _null_keys(ir: "IR", ids: Array) -> set[str]:
    """Find the op-specific keys that are an explicit null in some row."""
    distinct = [ir.pools.layouts[i] for i in np.unique(ids).tolist() if i >= 0]
    columns = {c.key for c in schema.BY_NAME["instructions"].columns} | set(schema.BY_NAME["instructions"].children)
    return {
        key
        for text in distinct
        for where, key in layouts.entries(text)
        if where == layouts.NULL and key not in COMMON and key not in columns
    }


def _filled(key: str, cells: Cells, texts: list[str], place: Array, rows: Array, names: dict[int, list[str]]) -> Cells:
    """Return the JSON text of one key for each row, with names in place of the placeholders."""
    before = [_placeholders_before(text, key) for text in texts]
    out: Cells = []
    for number, row in zip(place.tolist(), rows.tolist(), strict=True):
        cell = cells[number]
        count = cell.count(extras.PLACEHOLDER) if cell else 0
        if cell and count:
            cell = extras.fill(cell, names[row][before[number] : before[number] + count])
        out.append(cell)
    return out


def _placeholders_before(text: str, key: str) -> int:
    """Count the placeholders in an object's text that stand before the value of a key."""
    count = 0
    for name, value in extras.members(text):
        if name == key:
            break
        count += value.count(extras.PLACEHOLDER)
    return count


def _typed(cells: Cells) -> tuple[list[Any], Any]:
    """Parse the JSON texts of one key and choose the narrowest type that holds all; JSON text is the last resort."""
    import polars as pl

    try:
        values = [None if cell is None else json.loads(cell) for cell in cells]
    except ValueError:  # an integer of thousands of digits
        return cells, pl.String
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return values, pl.Boolean
    if kinds == {int} and all(value is None or -(2**63) <= value < 2**63 for value in values):
        return values, pl.Int64
    if kinds <= {str} and all(value is None or _encodable(value) for value in values):
        return values, pl.String
    if kinds & {int, float} and kinds <= {int, float, str} and kinds != {int}:
        words = {value for value in values if isinstance(value, str)}
        if words <= _SPELLED_FLOATS:
            try:
                return [None if value is None else float(value) for value in values], pl.Float64
            except OverflowError:
                return cells, pl.String
    return cells, pl.String


def _encodable(text: str) -> bool:
    """Tell whether a text has no lone surrogates, which no Arrow string can hold."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
