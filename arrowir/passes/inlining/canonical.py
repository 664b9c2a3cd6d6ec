"""Canonical copies of kernel functions: inner call-sites inlined, loops unrolled, constants propagated (rule N3).

Level by level, each function after those that its call-sites name. One level is one edit for the whole batch: the
functions are cut out, changed as `splice`, `unroll`, `lower` and `propagate` change any function, their bodies of
several blocks closed, and put behind the batch. A function that all this would leave as it is has itself as its copy.
"""

from dataclasses import dataclass, field, replace

import numpy as np

from arrowir.derived import take
from arrowir.diagnostics import Diagnostic, make
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.passes.constant_propagate import needs_propagation, propagate
from arrowir.passes.inlining.binding import Binding
from arrowir.passes.inlining.closing import Shape, close, shape
from arrowir.passes.inlining.extended import STORAGE, Extended, kept_blocks, stretches
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_bodies import Bodies, BodyErrors, chains_in
from arrowir.passes.inlining.kernel_calls import Sites, levels
from arrowir.passes.inlining.splice import Inlining, splice
from arrowir.passes.lower_generic_indirect import lower, needs_lowering
from arrowir.passes.unroll import expand, needs_unroll
from arrowir.passes.unrolling.loops import Loops
from arrowir.store import Array


@dataclass
class Canonical:
    """The batch with canonical copies behind it, and where the body of each callee stands."""

    batch: Extended
    bodies: Bodies
    notes: list[Diagnostic] = field(default_factory=list[Diagnostic])
    """What constants did to kernels (rule C4)."""


def canonicalise(
    ir: IR,
    sites: Sites,
    binding: Binding,
    loops: Loops,
    found: Shape,
    order: Array,
    errors: FirstErrors,
    assume_finite: bool = False,
) -> Canonical:
    """Make the canonical copy of every function that call-sites name.

    Parameters
    ----------
    ir
        The batch.
    sites, binding
        Call-sites of ordinary functions and of kernels, and what their parameters are bound to.
    loops
        The loops of all functions, and the value of shard ids while kernels are unrolled.
    found
        How functions are made of blocks.
    order
        Place of each function's own errors in the order of checks.
    errors
        Gets the errors. Bodies of failing modules may be anything.
    assume_finite
        Whether there is neither NaN nor infinity in kernels (rule C2).
    """
    callees = np.unique(sites.callee)
    bodies = Bodies.of(ir, callees, found)
    work = needs_unroll(ir, loops) | needs_lowering(ir) | found.split
    work[sites.function] = True
    rest = np.zeros(len(work), bool)
    rest[callees] = ~work[callees]
    work |= needs_propagation(ir, rest, assume_finite=assume_finite)
    batch = Extended(ir)
    notes: list[Diagnostic] = []
    fail = BodyErrors(batch, bodies, order[callees], errors)
    bad = np.zeros(ir.count("functions"), bool)
    if work[callees].any():
        for level in levels(ir, sites):
            bad[sites.function[bad[sites.callee]]] = True
            functions = level[work[level] & ~bad[level]]
            if len(functions):
                failures, found_out = _level(
                    batch, bodies, sites, binding, functions, loops.shard_id, assume_finite=assume_finite
                )
                notes += found_out
                fail.passed_on(2, failures)
                bad[list(failures)] = True
    bodies.drop_returns(batch.column("instructions", "opcode"))
    fail.nested()
    fail.names()
    return Canonical(batch, bodies, notes)


def _level(
    batch: Extended,
    bodies: Bodies,
    sites: Sites,
    binding: Binding,
    functions: Array,
    shard_id: int,
    *,
    assume_finite: bool,
) -> tuple[dict[int, Diagnostic], tuple[Diagnostic, ...]]:
    """Make the copies of functions whose inner bodies are known; return what keeps functions from it, and notes."""
    ir = batch.ir
    wanted = np.zeros(ir.count("functions"), bool)
    wanted[functions] = True
    inner = wanted[sites.function]
    home: dict[str, Array] = {}
    todo: Inlining | None = None
    if inner.any():
        bodies.drop_returns(batch.column("instructions", "opcode"))
        chosen = sites.pick(inner)
        given = bodies.pick(np.isin(bodies.callee, chosen.callee))
        todo = Inlining(
            batch, chosen, binding.pick(inner), given, np.searchsorted(given.callee, chosen.callee),
            dropped=np.zeros(len(wanted), bool), blocks=kept_blocks(ir, wanted),
        )  # fmt: skip
        made = splice(todo)
        scratch, edit = made.ir, made.edit
        home = {table: _inverse(edit, table, scratch) for table in STORAGE}
    else:
        edit = Edit(ir)
        edit.keep("blocks", stretches(kept_blocks(ir, wanted)))
        scratch = edit.build()
    rows = {table: _inverse(edit, table, scratch) for table in ("blocks", "instructions")}
    expansion = expand(scratch, wanted, shard_id)
    if expansion.registers is not None:  # lowered loops have brought some
        before = home.get("registers", np.arange(scratch.count("registers")))
        home["registers"] = take(before, expansion.registers)
    failures = {f: _at_home(d, {**home, **rows}) for f, d in expansion.failures.items()}
    failures |= _lost(ir, functions[functions >= expansion.ir.count("functions")])
    functions = functions[~np.isin(functions, list(failures))]
    lowered = lower(expansion.ir, np.isin(np.arange(len(wanted)), functions))
    failures |= {f: replace(d, block_id=None, instruction_id=None) for f, d in lowered.failures.items()}
    functions = functions[~np.isin(functions, list(failures))]
    if lowered.edit is not None:  # chains have brought locations to compute in
        for table in ("sets", "locations", "aliases"):
            before = home.get(table, np.arange(scratch.count(table)))
            home[table] = take(before, _inverse(lowered.edit, table, lowered.ir))
    unrolled = np.isin(np.arange(len(wanted)), functions)
    propagated = propagate(lowered.ir, unrolled, assume_finite=assume_finite)
    failures |= {f: replace(d, block_id=None, instruction_id=None) for f, d in propagated.failures.items()}
    functions = functions[~np.isin(functions, list(failures))]
    found = shape(propagated.ir)
    closed = close(propagated.ir, functions[found.split[functions]])
    first = batch.count("call_chains")
    if todo is None:
        places = batch.append(closed.ir, functions, home)
    else:
        rows_, owner = _chain_rows(closed.ir, functions, home["call_chains"], todo)
        places = batch.append(closed.ir, functions, home, rows_)
        _point_at_chains(bodies, owner, first)
    _point_at(bodies, closed.ir, functions, places)
    batch.made = np.concatenate((batch.made, _kept(places["instructions"][closed.made])))
    batch.branching = np.concatenate((batch.branching, _kept(places["instructions"][closed.returns])))
    return failures, propagated.notes


def _lost(ir: IR, functions: Array) -> dict[int, Diagnostic]:
    """Say which functions canonicalisation took away."""
    table = ir.tables["functions"]
    found: dict[int, Diagnostic] = {}
    for function in functions.tolist():
        name = table.text()[function]
        text = f"Cannot find lowering function {name} after unroll"
        module = int(table["module_id"][function])
        found[function] = make("callee_lost", text, module_id=module, function=name, function_id=function)
    return found


def _kept(rows: Array) -> Array:
    return rows[rows >= 0]


def _inverse(edit: Edit, table: str, made: IR) -> Array:
    """Return the row of the batch that each row of an edited batch was, -1 for new ones."""
    places = edit.places(table)
    if places is None:  # rows stay, new ones follow
        rows = np.arange(made.count(table))
        return np.where(rows < edit.ir.count(table), rows, -1)
    own = places[0][: edit.ir.count(table)]
    out = np.full(made.count(table), -1, np.int64)
    kept = np.flatnonzero(own >= 0)
    out[own[kept]] = kept
    return out


def _at_home(found: Diagnostic, rows: dict[str, Array]) -> Diagnostic:
    """Express a finding about a cut-out function in ids of the batch; what is new there has none."""
    changes: dict[str, int | None] = {}
    for table, places in rows.items():
        name = f"{table[:-1]}_id"
        number = getattr(found, name, None)
        if number is not None:
            changes[name] = int(places[number]) if places[number] >= 0 else None
    return replace(found, **changes)


def _point_at(bodies: Bodies, source: IR, functions: Array, places: dict[str, Array]) -> None:
    """Let bodies be the copies that were appended."""
    mine = np.searchsorted(bodies.callee, functions)
    found = shape(source)
    made = Bodies.of(source, functions, found)
    block, start = made.block, made.start
    bodies.block[mine] = (
        np.where(block >= 0, places["blocks"][np.maximum(block, 0)], -1) if source.count("blocks") else -1
    )
    if source.count("instructions"):
        at = places["instructions"][np.minimum(start, source.count("instructions") - 1)]
        bodies.start[mine] = np.where(made.rows > 0, at, 0)
    bodies.rows[mine], bodies.blocks[mine] = made.rows, made.blocks
    bodies.split[mine], bodies.own_entry[mine] = made.split, made.own_entry
    for table in ("sets", "locations", "registers"):
        if table not in places:
            continue
        first, rows = made.windows[table]
        has = rows > 0
        moved = np.zeros(len(functions), np.int64)
        moved[has] = places[table][first[has]]
        before = bodies.windows[table][0][mine]
        bodies.moved[table][mine] = np.where(has, moved - before, 0)
        bodies.windows[table][0][mine] = np.where(has, moved, before)
        bodies.windows[table][1][mine] = rows


def _chain_rows(source: IR, functions: Array, home: Array, todo: Inlining) -> tuple[Array, Array]:
    """Return the call chains of copies, by function: those that it had before, then those of its call-sites.

    `home` is the row of each in the batch, -1 for new ones. The second array says whose each is.
    """
    added = 1 + todo.bodies.windows["call_chains"][1][todo.body]
    owner, row = chains_in(source, functions)
    before = home[row] >= 0
    owner = np.concatenate((owner[before], np.repeat(todo.sites.function, added)))
    row = np.concatenate((row[before], np.flatnonzero(home < 0)))
    order = np.argsort(owner, kind="stable")
    return row[order], owner[order]


def _point_at_chains(bodies: Bodies, owner: Array, first: int) -> None:
    """Let bodies be those with the call chains that were appended; `owner` is the function of each."""
    functions, at, count = np.unique(owner, return_index=True, return_counts=True)
    mine = np.searchsorted(bodies.callee, functions)
    bodies.windows["call_chains"][0][mine] = first + at
    bodies.windows["call_chains"][1][mine] = count
