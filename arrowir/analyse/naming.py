"""Names of rows for frames: gathered from columns that are made once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from arrowir import frames, schema
from arrowir import vocabulary as vocab
from arrowir.derived import first_of_run
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

    from arrowir.ir import IR


def names(ir: "IR", table: str, ids: Array, column: str = "name") -> "pl.Series":
    """Return a text or pooled column of some rows; null where an id is negative."""
    made = frames.copied if ir.count(table) <= frames.COPIED else frames.viewed
    return gathered(made(ir, table, schema.BY_NAME[table].column(column)), ids)


def gathered(values: "pl.Series", ids: Array) -> "pl.Series":
    """Return the values of some rows; null where an id is negative."""
    import polars as pl

    if len(ids) and not len(values):
        return pl.Series([None], dtype=values.dtype).new_from_index(0, len(ids))
    if not len(ids) or ids.min() >= 0:
        return values.gather(ids)
    places = pl.Series(ids, dtype=pl.Int64)
    return values.gather(places.set(places < 0, None))


def spelled(ir: "IR", table: str, column: str, codes: Array) -> "pl.Series":
    """Return codes as an Enum over their vocabulary; null where a code is negative."""
    import polars as pl

    texts = ir.pools.of(schema.BY_NAME[table].column(column)).texts
    return gathered(pl.Series(column, texts, pl.Enum(texts)), codes)


def numbers(name: str, values: Array, absent: Array | None = None) -> "pl.Series":
    """Return whole numbers, null where they are absent (by default: the smallest int64)."""
    import polars as pl

    lacking = values == schema.NULL_INT if absent is None else absent
    made = pl.Series(name, np.where(lacking, 0, values).astype(np.int64))
    if not lacking.any():
        return made
    return made.zip_with(pl.Series(~lacking), pl.Series(name, [None], dtype=pl.Int64).new_from_index(0, len(made)))


def ids(name: str, values: Array) -> "pl.Series":
    """Return row numbers as Int32, null where they are negative."""
    import polars as pl

    return numbers(name, values, values < 0).cast(pl.Int32)


def slots(ir: "IR") -> Array:
    """Return the number of each operand in its list: of the inputs, the index operands or the outputs."""
    operands = ir.tables["operands"]
    key = operands["instruction_id"].astype(np.int64) * 4 + operands["role"]
    return np.arange(len(key)) - first_of_run(key)


def slot_names(roles: Array, places: Array) -> "pl.Series":
    """Return operands as ``ins[0]``, ``outs[1]``; null where the role is negative."""
    import polars as pl

    most = int(places.max()) + 1 if len(places) else 0
    texts = [f"{of}[{k}]" for of in vocab.ROLE_MEMBERS for k in range(most)]
    codes = np.where((roles < 0) | (roles > vocab.ROLE_OUT), -1, roles.astype(np.int64) * most + places)
    return gathered(pl.Series("slot", texts, pl.String), codes)


def about(ir: "IR", instruction: Array, wanted: Sequence[str]) -> "dict[str, pl.Series]":
    """Return what instructions stand in, by name: some of module, function, block and instruction."""
    instructions = ir.tables["instructions"]
    found: dict[str, pl.Series] = {}
    for what in wanted:
        if what == "instruction":
            rows = instruction
        elif what == "block":
            rows = instructions["block_id"][instruction]
        else:
            rows = ir.array("instructions", f"{what}_id")[instruction]
        found[what] = names(ir, f"{what}s", rows).alias(what)
    return found
