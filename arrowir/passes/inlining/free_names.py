"""Names of clones (rule R6): mostly none can meet another, which is seen without reading them."""

from typing import TYPE_CHECKING

import numpy as np

from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import Prefixes, fresh_names, picked, put, repeated_runs
from arrowir.passes.inlining.extended import groups
from arrowir.passes.inlining.layout import HELPERS
from arrowir.runs import Runs, expand
from arrowir.store import Array, Strings, Table, distinct

if TYPE_CHECKING:
    from arrowir.passes.inlining.splice import Inlining


def free_names(out: IR, edit: Edit, todo: "Inlining", names: Strings, marks: dict[str, str]) -> IR:
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
    """
    ir, sites = edit.ir, todo.sites
    old_function = np.flatnonzero(~todo.dropped)  # the old number of each new function
    callers = np.zeros(ir.count("functions") + 1, bool)
    callers[sites.function] = True
    changes: dict[str, Table] = {}
    prefixes: dict[str, Prefixes] = {}
    for table, mark in marks.items():
        made, runs = out.tables[table], edit.runs[table]
        fresh = (runs.copy > 0) | (runs.start >= todo.batch.count(table))
        if not fresh.any():
            continue
        scope = ir.array(table, "function_id")
        here = np.flatnonzero((scope >= 0) & callers[scope])
        if mark not in prefixes:
            prefixes[mark] = Prefixes(names, sites.function, mark)
        met = prefixes[mark].met_by(picked(ir.tables[table].text(), here), scope[here])
        doubled = sites.function[_doubled(todo, table, runs)]
        mixed = distinct(np.concatenate((prefixes[mark].meeting, met, doubled)))
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


def _doubled(todo: "Inlining", table: str, runs: Runs) -> Array:
    """Return a mask of the call-sites whose clones may be called alike: the body has a name twice, or a helper's."""
    batch, bodies = todo.batch, todo.bodies
    if table == "instructions":
        first, count = bodies.start, bodies.count
    elif table == "blocks":
        first, count = bodies.block, np.where(bodies.split, bodies.blocks, 0)
    else:
        first, count = bodies.windows[table]
    old = batch.ir.count(table)
    bad = np.zeros(len(bodies.callee), bool)
    for part, mine, base in ((batch.ir.tables[table], first < old, 0), (batch.of(table), first >= old, old)):
        bad[mine] = repeated_runs(part.text(), first[mine] - base, count[mine])
    if (runs.start >= batch.count(table)).any():
        rows, (scope, _) = expand(first, count), groups(count)
        names = batch.texts(table, rows)
        for word in HELPERS:
            bad[scope[names.equal(word)]] = True
    return bad[todo.body]
