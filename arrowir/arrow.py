"""Columns as Arrow arrays: views over the same memory, with nulls where cells are absent."""

import json
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from arrowir import derived, schema
from arrowir.store import Array, Strings

if TYPE_CHECKING:
    from arrowir.ir import IR


def validity(absent: Array) -> pa.Buffer | None:
    """Return the validity bitmap of a mask of absent cells, or None when all are present."""
    if not absent.any():
        return None
    return pa.py_buffer(np.packbits(~absent, bitorder="little"))


def array(values: Array, kind: schema.Kind) -> pa.Array:
    """Wrap a column of one number per row; the buffer is shared."""
    valid = validity(values == schema.NULLS[kind])
    if kind == "flag":
        bits = pa.py_buffer(np.packbits(values == 1, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(values), [valid, bits])
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, pa.py_buffer(values)])


def strings(values: Strings, absent: Array | None = None) -> pa.Array:
    """Wrap a text column; the buffers are shared."""
    valid = None if absent is None else validity(absent)
    buffers = [valid, pa.py_buffer(values.offsets), pa.py_buffer(values.data)]
    return pa.Array.from_buffers(pa.large_string(), len(values), buffers)


def texts(values: list[str]) -> pa.Array:
    """Make a string array of Python strings."""
    return strings(Strings.of(values))


def lists(pool: list[str], ids: Array) -> pa.Array:
    """Return interned JSON lists of integers as a list column."""
    distinct, place = np.unique(ids, return_inverse=True)
    values = [json.loads(pool[i]) if i >= 0 else None for i in distinct.tolist()]
    return pa.array(values, pa.large_list(pa.int64())).take(array(place.astype(np.int64), "int"))


def patterns(pool: list[str]) -> pa.Array:
    """Return interned access patterns as lists of {step, num}."""
    kind = pa.large_list(pa.struct([("step", pa.int64()), ("num", pa.int64())]))
    return pa.array([[{"step": s, "num": n} for s, n in json.loads(text)] for text in pool], kind)


def column(ir: "IR", table: str, declared: schema.Column) -> pa.Array:
    """Return one column of a batch as an Arrow array.

    Codes and pooled text become dictionaries, so that no string is repeated; shapes become lists.
    """
    if declared.kind == "list":
        return patterns(ir.pools.patterns.texts[: ir.pattern_count])
    values = derived.cells(ir, table, declared)
    if values is None:
        return pa.nulls(ir.count(table), pa.large_string())
    if isinstance(values, Strings):
        nullable = declared.name == "original_name"
        return strings(values, ir.tables[table]["call_chain_id"] < 0 if nullable else None)
    if declared.of == "shapes":
        return lists(ir.pools.shapes.texts, values)
    if declared.kind in ("code", "pooled"):
        return pa.DictionaryArray.from_arrays(array(values, declared.kind), texts(ir.pools.of(declared).texts))
    return array(values, declared.kind)


def table(ir: "IR", name: str) -> pa.Table:
    """Return one table of a batch as a pyarrow table."""
    declared = schema.BY_NAME[name].columns
    return pa.table([column(ir, name, c) for c in declared], [c.name for c in declared])
