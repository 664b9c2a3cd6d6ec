"""Rows of many modules to the tables of one batch."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from arrowir import schema
from arrowir.diagnostics import FormatError
from arrowir.formats.bir_reader import BirReader
from arrowir.formats.members import slots_of
from arrowir.store import Array, Strings, Table

_MAX_ROWS = 2**31 - 1


@dataclass(frozen=True)
class Part:
    """The columns of one module, ids counted within it; None for a column that is absent throughout."""

    lengths: dict[str, int]
    columns: dict[str, dict[str, Array | Strings | None]]


def part_of(reader: BirReader) -> Part:
    """Return the rows of a reader as columns."""
    lengths: dict[str, int] = {}
    columns: dict[str, dict[str, Array | Strings | None]] = {}
    for name in schema.STORED:
        slots = slots_of(name)
        flat = reader.rows[name]
        if name == "references":
            flat = [cell for table in schema.REFERRING for cell in reader.references[table]]
        lengths[name] = len(flat) // len(slots)
        columns[name] = dict.fromkeys(c.name for c in schema.BY_NAME[name].stored)
        if not flat:
            continue
        cells = np.array(flat, np.int64).reshape(-1, len(slots))
        for column in schema.BY_NAME[name].stored:
            if column.name == "name" and column.kind == "text":
                columns[name]["name"] = Strings.of(reader.texts[name])
            elif column.name in slots:
                values = cells[:, slots.index(column.name)].astype(schema.DTYPES[column.kind])
                if not column.nullable or (values != schema.NULLS[column.kind]).any():
                    columns[name][column.name] = values
    return Part(lengths, columns)


def tables_of(parts: Sequence[Part]) -> dict[str, Table]:
    """Return the tables of a batch of modules, in order.

    Raises
    ------
    FormatError
        If a table would have more rows than ids can count.
    """
    begins = begins_of(parts)
    tables: dict[str, Table] = {}
    for name in schema.STORED:
        total = sum(part.lengths[name] for part in parts)
        if total > _MAX_ROWS:
            raise FormatError(f"the batch has {total:,} {name}, more than ids can count; read it in parts")
        if total:
            tables[name] = Table(
                name, {c.name: _join(name, c, parts, begins) for c in schema.BY_NAME[name].stored}, total
            )
        else:
            tables[name] = Table.empty(name)
    return tables


def begins_of(parts: Sequence[Part]) -> list[dict[str, int]]:
    """Return where the rows of each module begin, by table."""
    begins: list[dict[str, int]] = []
    at = dict.fromkeys(schema.STORED, 0)
    for part in parts:
        begins.append(dict(at))
        for name in schema.STORED:
            at[name] += part.lengths[name]
    return begins


def _join(
    table: str, column: schema.Column, parts: Sequence[Part], begins: Sequence[dict[str, int]]
) -> Array | Strings | None:
    columns = [part.columns[table][column.name] for part in parts]
    if column.kind == "text":
        if all(c is None for c in columns):
            return None
        return _join_text([c for c in columns if isinstance(c, Strings)])
    if all(c is None for c in columns):
        return None
    joined: list[Array] = []
    for part, begin, values in zip(parts, begins, columns, strict=True):
        rows = part.lengths[table]
        if not rows:
            continue
        if values is None:
            joined.append(np.full(rows, schema.NULLS[column.kind], schema.DTYPES[column.kind]))
            continue
        assert not isinstance(values, Strings)
        joined.append(_shifted(table, column, part, begin, values))
    return joined[0] if len(joined) == 1 else np.concatenate(joined)


def _shifted(table: str, column: schema.Column, part: Part, begin: dict[str, int], values: Array) -> Array:
    if column.kind != "id" or not any(begin.values()):
        return values
    if table == "references":  # the table that these point into is a column
        of = part.columns[table]["table" if column.name == "row" else "target"]
        assert isinstance(of, np.ndarray)
        by_code = np.array([begin.get(name, 0) for name in schema.STRUCTURAL["table"]], np.int32)
        shift: Array | int = by_code[of]
    else:
        shift = begin.get(column.of or "", 0)  # patterns are a pool: they do not move
    return np.where(values < 0, values, values + shift).astype(np.int32)


def _join_text(texts: list[Strings]) -> Strings:
    if len(texts) == 1:
        return texts[0]
    offsets = [np.zeros(1, np.int64)]
    at = 0
    for text in texts:
        offsets.append(text.offsets[1:] + at)
        at += len(text.data)
    return Strings(np.concatenate(offsets), np.concatenate([text.data for text in texts]))
