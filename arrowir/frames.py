"""Tables as Polars frames.

A large table becomes views of the arrays, through Arrow. A small one is copied cell by cell, which takes no time and no
pyarrow: loading that is most of the time that it takes to look at one small file.
"""

import json
from typing import TYPE_CHECKING, Any

from arrowir import derived, schema
from arrowir.store import Strings

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from arrowir.ir import IR

COPIED = 1_000
"""Most rows of a table that is copied."""


def frame(ir: "IR", name: str) -> "pl.DataFrame":
    """Return one table of a batch as a Polars frame; layouts, which only the JSON writer needs, are left out."""
    import polars as pl

    made = copied if ir.count(name) <= COPIED else viewed
    columns = [c for c in schema.BY_NAME[name].columns if c.of != "layouts"]
    return pl.DataFrame([made(ir, name, column) for column in columns])


def copied(ir: "IR", table: str, column: schema.Column) -> "pl.Series":
    """Return a column as a series of its own."""
    import polars as pl

    if column.kind == "list":
        pairs = [json.loads(text) for text in ir.pools.patterns.texts[: ir.pattern_count]]
        kind = pl.List(pl.Struct({"step": pl.Int64, "num": pl.Int64}))
        return pl.Series(column.name, [[{"step": s, "num": n} for s, n in pattern] for pattern in pairs], kind)
    values = derived.cells(ir, table, column)
    if values is None:
        return pl.Series(column.name, [None] * ir.count(table), pl.String)
    if isinstance(values, Strings):
        absent = (ir.tables[table]["call_chain_id"] < 0).tolist() if column.name == "original_name" else None
        texts: list[Any] = values.tolist()
        if absent is not None:
            texts = [None if lacks else text for text, lacks in zip(texts, absent, strict=True)]
        return pl.Series(column.name, texts, pl.String)
    null = schema.NULLS[column.kind]
    cells: list[Any] = [None if value == null else value for value in values.tolist()]
    if column.of == "shapes":
        shapes = ir.pools.shapes.texts
        return pl.Series(column.name, [None if c is None else json.loads(shapes[c]) for c in cells], pl.List(pl.Int64))
    if column.kind in ("code", "pooled"):
        pool = ir.pools.of(column).texts
        spelled = pl.Enum(pool) if column.kind == "code" else pl.String
        return pl.Series(column.name, [None if c is None else pool[c] for c in cells], spelled)
    if column.kind == "flag":
        return pl.Series(column.name, [None if c is None else c == 1 for c in cells], pl.Boolean)
    return pl.Series(column.name, cells, pl.Int32 if column.kind == "id" else pl.Int64)


def viewed(ir: "IR", table: str, column: schema.Column) -> "pl.Series":
    """Return a column as a series over the memory that holds it."""
    import polars as pl

    from arrowir import arrow

    if column.kind in ("code", "pooled") and column.of != "shapes":
        ids = _taken(arrow.array(ir.array(table, column.name), column.kind))
        return _spelled(ids.cast(pl.UInt32), column, ir.pools.of(column).texts)
    made = _taken(arrow.column(ir, table, column))
    return (made.cast(pl.List(pl.Int64)) if column.of == "shapes" else made).alias(column.name)


class _Exported:
    """An array behind the Arrow C interface alone: Polars takes it over without importing more of pyarrow."""

    def __init__(self, values: "pa.Array") -> None:
        self.values = values

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.values.__arrow_c_array__(requested_schema)


def _taken(values: "pa.Array") -> "pl.Series":
    import polars as pl

    exported: Any = _Exported(values)
    return pl.Series(exported)


def _spelled(ids: "pl.Series", declared: schema.Column, texts: list[str]) -> "pl.Series":
    """Return ids as what they stand for: codes as an Enum over their vocabulary, pooled text as strings."""
    import polars as pl

    if declared.kind == "code":
        return ids.cat.to(pl.Enum(texts)).alias(declared.name)
    if ids.null_count() == len(ids):
        return pl.Series(declared.name, [None], dtype=pl.String).new_from_index(0, len(ids))
    return pl.Series(declared.name, texts, dtype=pl.String).gather(ids)
