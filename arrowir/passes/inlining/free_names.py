"""Names of clones (rule R6): mostly none can meet another, which is seen without reading them."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import Prefixes, fresh_names, picked, put, repeated_runs
from arrowir.passes.inlining.extended import groups
from arrowir.passes.inlining.layout import HELPERS
from arrowir.runs import Work, expand
from arrowir.store import Array, Strings, Table, distinct, pointing

if TYPE_CHECKING:
    from arrowir.passes.inlining.splice import Inlining


def free_names(
    out: IR, edit: Edit, todo: "Inlining", names: Strings, marks: dict[str, str], repeated: Work[Array]
) -> IR:
    """Make the names of clones and helpers free.

    Parameters
    ----------
    out, edit
        The new batch, and the edit that made it.
    todo
        The call-sites.
    names
        Their names.
    marks
        By table what stands between them and the names in the kernel.
    repeated
        What `look_for_repeated` finds in these tables.
    """
    ir, sites = edit.ir, todo.sites
    old_function = np.flatnonzero(~todo.dropped)  # the old number of each new function
    callers = np.zeros(ir.count("functions"), bool)
    callers[sites.function] = True
    changes: dict[str, Table] = {}
    prefixes: dict[str, Prefixes] = {}
    for (table, mark), doubled in zip(marks.items(), repeated.done(), strict=True):
        made, runs = out.tables[table], edit.runs[table]
        fresh = (runs.copy > 0) | (runs.start >= todo.batch.count(table))
        if not fresh.any():
            continue
        scope = ir.array(table, "function_id")
        here = pointing(scope, callers)
        if mark not in prefixes:
            prefixes[mark] = Prefixes(names, sites.function, mark)
        met = prefixes[mark].met_by(picked(ir.tables[table].text(), here), scope[here])
        if (runs.start >= todo.batch.count(table)).any():
            doubled |= _like_helpers(todo, table)
        mixed = distinct(np.concatenate((prefixes[mark].meeting, met, sites.function[doubled[todo.body]])))
        if not len(mixed):
            continue
        function = out.array(table, "function_id")
        new_scope = np.where(function < 0, -1, old_function[function])
        rows = np.flatnonzero(runs.spread(fresh) & np.isin(new_scope, mixed))
        taken = np.flatnonzero(np.isin(scope, mixed))
        texts = made.text()
        free = fresh_names(picked(ir.tables[table].text(), taken), scope[taken], picked(texts, rows), new_scope[rows])
        changes[table] = made.replace(name=put(texts, rows, free))
    return out.replace(**changes) if changes else out


def look_for_repeated(todo: "Inlining", tables: Iterable[str]) -> Work[Array]:
    """Begin to look for bodies that have a name twice: a mask over bodies for each table."""
    return Work([partial(_repeated, todo, table) for table in tables], int(todo.bodies.rows.sum()))


def _repeated(todo: "Inlining", table: str) -> Array:
    batch, (first, count) = todo.batch, _named(todo, table)
    old = batch.ir.count(table)
    bad = np.zeros(len(first), bool)
    for part, mine, base in ((batch.ir.tables[table], first < old, 0), (batch.of(table), first >= old, old)):
        bad[mine] = repeated_runs(part.text(), first[mine] - base, count[mine])
    return bad


def _like_helpers(todo: "Inlining", table: str) -> Array:
    """Return a mask of the bodies that have a name which helpers are called by."""
    first, count = _named(todo, table)
    bad = np.zeros(len(first), bool)
    rows, (scope, _) = expand(first, count), groups(count)
    names = todo.batch.texts(table, rows)
    for word in HELPERS:
        bad[scope[names.equal(word)]] = True
    return bad


def _named(todo: "Inlining", table: str) -> tuple[Array, Array]:
    """Return first and number of the rows of a table that clones of each body are named after."""
    bodies = todo.bodies
    if table == "instructions":
        return bodies.start, bodies.count
    if table == "blocks":
        return bodies.block, np.where(bodies.split, bodies.blocks, 0)
    return bodies.windows[table]
