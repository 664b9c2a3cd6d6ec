"""Batches put together and taken apart: whole modules move, and what is in them keeps its order."""

from collections.abc import Sequence

import numpy as np

from arrowir import arguments, schema
from arrowir.diagnostics import OptionError
from arrowir.ir import IR
from arrowir.runs import Runs, blank, concat_tables, copy_text
from arrowir.store import Array, Pool, Pools, Strings, Table, children, starts
from arrowir_kernels import copy_runs, shift_runs


def select_modules(ir: IR, modules: Array) -> IR:
    """Return a batch of some modules, in that order; a module may stand twice."""
    modules = np.asarray(modules, np.int64)
    runs: dict[str, Runs] = {}
    for name in schema.STORED:
        keys = np.arange(len(ir)) if name == "modules" else ir.array(name, "module_id")
        runs[name] = Runs(*children(keys, modules), np.zeros(len(modules), np.int64))
    shifts = {name: r.begins[:-1] - r.start for name, r in runs.items()}
    tables = {name: shifted(ir.tables[name], runs[name], shifts) for name in schema.STORED}
    messages = [m for m in ir.messages if m.module_id is None]
    for place, module in enumerate(modules.tolist()):
        by = {name: int(shift[place]) for name, shift in shifts.items()}
        messages += [m.moved(by) for m in ir.messages if m.module_id == module]
    return IR(tables, ir.pools, diagnostics=messages, history=ir.history)


def shifted(table: Table, runs: Runs, shifts: dict[str, Array]) -> Table:
    """Copy runs of a table, with keys moved by a constant per run and target table."""
    columns: dict[str, Array | Strings | None] = {}
    for column in table.schema.stored:
        if column.kind == "text":
            text = table.columns[column.name]
            columns[column.name] = None if text is None else copy_text(table.text(column.name), blank(0), runs)
        elif not table.has(column.name):
            columns[column.name] = None
        else:
            values = table[column.name]
            out = np.empty(runs.total, values.dtype)
            if column.kind == "id" and column.of in shifts:
                shift_runs(values, values[:0], runs.start, runs.length, shifts[column.of], out)
            else:
                copy_runs(values, values[:0], runs.start, runs.length, out)
            columns[column.name] = out
    made = Table(table.schema.name, columns, runs.total)
    return _shift_references(made, runs, shifts) if table.schema.name == "references" else made


def _shift_references(references: Table, runs: Runs, shifts: dict[str, Array]) -> Table:
    part = runs.spread(np.arange(len(runs.start)))
    moved: dict[str, Array | Strings | None] = {}
    for key, kind in (("row", "table"), ("target_id", "target")):
        values = references[key].copy()
        for code in np.unique(references[kind]).tolist():
            mine = (references[kind] == code) & (values >= 0)
            values[mine] += shifts[schema.STRUCTURAL["table"][code]][part[mine]].astype(np.int32)
        moved[key] = values
    return references.replace(**moved)


def concat(batches: Sequence[IR]) -> IR:
    """Put batches behind each other: `air.concat`.

    Parameters
    ----------
    batches
        At least one batch.

    Returns
    -------
    IR
        All modules, in order; ids are those of the new batch.

    Raises
    ------
    OptionError
        If there is no batch, or something else than batches.
    """
    batches = [
        arguments.typed(batch, IR, f"item {k} of `concat`", "an `arrowir.IR`")
        for k, batch in enumerate(arguments.listed(batches, "`concat`", "a list of batches"))
    ]
    if not batches:
        raise OptionError("there is no batch to put together; give at least one")
    if len(batches) == 1:
        return batches[0]
    pools = batches[0].pools
    if any(b.pools is not pools for b in batches):
        pools = pools.copy()
    maps = [_pool_maps(b.pools, pools) for b in batches]
    tables: dict[str, Table] = {}
    bases = {t: starts(np.array([b.count(t) for b in batches])) for t in schema.STORED}
    for name in schema.STORED:
        tables[name] = concat_tables([_rebased(b.tables[name], bases, maps[k], k) for k, b in enumerate(batches)])
    tables["references"] = _joined_references(tables["references"], bases)
    by = [{name: int(base[k]) for name, base in bases.items()} for k in range(len(batches))]
    messages = [m.moved(by[k]) for k, b in enumerate(batches) for m in b.messages]
    history = batches[0].history if all(b.history == batches[0].history for b in batches) else ()
    return IR(tables, pools, diagnostics=messages, history=history)


def behind(ir: IR, other: IR) -> dict[str, Table]:
    """Return the rows of another batch as rows that can be added to this one: ids go on where its own end.

    Parameters
    ----------
    ir
        The batch; its pools take in the text of the other one.
    other
        The batch whose rows are wanted.
    """
    bases = {name: np.array([0, ir.count(name)]) for name in schema.STORED}
    maps = _pool_maps(other.pools, ir.pools)
    tables = {name: _rebased(other.tables[name], bases, maps, 1) for name in schema.STORED}
    rows = tables["references"]
    tables["references"] = _shift_references(
        rows, Runs.whole(len(rows)), {name: base[1:] for name, base in bases.items()}
    )
    return tables


def _rebased(part: Table, bases: dict[str, Array], maps: dict[str, Array], k: int) -> Table:
    """Return the table of batch k with the ids that it has in all batches together."""
    changed: dict[str, Array | Strings | None] = {}
    for column in part.schema.stored:
        if not column.of or not part.has(column.name):
            continue
        if column.kind == "id" and column.of in bases:
            if k:
                values = part[column.name]
                changed[column.name] = np.where(values < 0, values, values + np.int32(bases[column.of][k]))
        elif len(places := maps.get(column.of, ())):
            values = part[column.name]
            changed[column.name] = np.where(values < 0, values, np.asarray(places)[values].astype(values.dtype))
    return part.replace(**changed) if changed else part


def _joined_references(references: Table, bases: dict[str, Array]) -> Table:
    if not len(references):
        return references
    runs = Runs(bases["references"][:-1], np.diff(bases["references"]), np.zeros(len(bases["modules"]) - 1, np.int64))
    return _shift_references(references, runs, {name: base[:-1] for name, base in bases.items()})


def _pool_maps(old: Pools, new: Pools) -> dict[str, Array]:
    """Return for each pool the new id of each old one; nothing where they are the same."""
    if old is new:
        return {}
    pairs: list[tuple[str, Pool, Pool]] = [(n, getattr(old, n), getattr(new, n)) for n in schema.POOLS]
    pairs += [(n, pool, new.codes[n]) for n, pool in old.codes.items()]
    return {name: np.array([b.intern(t) for t in a.texts], np.int64) for name, a, b in pairs}
