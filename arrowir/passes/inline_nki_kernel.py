"""Inlining of NKI kernels: every call-site becomes its kernel's body (rules N1 to N19).

The stages of a call-site, and the table operation that does each for all call-sites at once:

1. find call-sites, gate, cycles, size (`kernel_calls`);
2. bind parameters to actuals (`binding`);
3. canonicalise: unroll copies of the callees (`unroll.expand`), which stand behind the batch's own rows;
4. run lists: what each table is made of, callers' rows and clones of bodies (`edit.Runs`);
5. keys: clones point at clones, parameters at actuals (`Edit.bind`);
6. edges around the call-sites (`call_edges`);
7. columns that change in a clone: SB addresses, origin, opt-in mask, names.
"""

import logging
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
import polars as pl

from arrowir import diagnostics as diag
from arrowir import layouts, vocabulary
from arrowir.derived import take
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import fresh_names, picked, prefixed_scopes, put, repeated_scopes, suffixed
from arrowir.passes.base import CHANGED, FAILED, MAX_INSTRUCTIONS, UNCHANGED, Pass, Plan
from arrowir.passes.inlining import call_edges
from arrowir.passes.inlining.binding import Binding, bind, check_memory, is_parameter
from arrowir.passes.inlining.call_edges import LAST, CallEdges, Dependencies, Places
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_bodies import Bodies, canonicalise, ends_in_return, outputs_not_written
from arrowir.passes.inlining.kernel_calls import (
    SIZE,
    Sites,
    called_by,
    choose,
    find_cycles,
    find_sites,
    removable,
)
from arrowir.passes.unroll import predicted_rows
from arrowir.runs import Runs, blank, concat_tables, expand, join_text
from arrowir.schema import NULL_INT
from arrowir.store import Array, Strings, Table, starts

OPTIN_CLEARED = 0xC
"""Opt-in bits that a clone loses (rule N10)."""

MARKS = {"instructions": "_", "sets": ":", "locations": ":", "registers": ":"}
"""What stands between the call-site's name and the name in the kernel (rules N8, N10)."""


@dataclass(frozen=True)
class Inlining:
    """What `plan` decided: call-sites of modules that change, their bindings and bodies."""

    sites: Sites
    binding: Binding
    removed: Array
    """Mask of the functions that go."""
    bodies: Bodies
    body: Array
    """The body of each call-site."""

    @property
    def count(self) -> Array:
        """Instructions that each call-site gets, helpers aside."""
        return self.bodies.count[self.body]


@dataclass(frozen=True)
class InlineNkiKernel(Pass):
    """Replace every `NKIKernel` call-site by the body of the kernel function that it names.

    Memory of the kernel is made again in the caller with SB addresses rebased on the call-site's scratchpad, operands
    that name parameters are pointed at the actuals, edges around the call-site are re-made, and functions that nothing
    calls any more are removed.

    Parameters
    ----------
    allocated
        The pass's position: take only call-sites whose kernel is allocated (True) or is not (False); None takes both.
    allocated_key
        Member of a call-site that, as a boolean, records the status and wins over what the kernel's locations say.
    shard_id
        Value of shard ids while kernels are unrolled.
    max_instructions
        Limit of the instructions of a module after the pass.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> after = air.passes.inline_nki_kernel(ir).ir
    >>> after.instructions["name"].to_list()[:4]
    ['I-1', 'I-2', 'inst__nki_add_one_K-1-0', 'inst__nki_add_one_K-2-0']
    """

    name: ClassVar[str] = "inline_nki_kernel"

    allocated: bool | None = None
    allocated_key: str = "is_allocated"
    shard_id: int = 0
    max_instructions: int = MAX_INSTRUCTIONS

    def plan(self, ir: IR, active: Array) -> Plan:
        """Make every check, bind every parameter, and unroll the bodies."""
        errors = FirstErrors(len(ir))
        found = find_sites(ir, active, self.allocated_key)
        if self.log.isEnabledFor(logging.INFO):
            for name in ir.tables["instructions"].text().take(found.row):
                self.log.info("Found InstNKIKernel: %s", name)
        sites, status, notes = choose(ir, found, self.allocated, errors)
        for note in notes:
            self.log.info(note.message)
        find_cycles(ir, found, errors)
        removed = removable(ir, sites, called_by(ir, sites.callee))
        self._check_size(ir, sites, removed, errors)
        binding = bind(ir, sites, status, errors)
        bodies, body = canonicalise(ir, sites, self.shard_id, errors)
        check_memory(ir, sites, binding, errors)

        good = ~errors.failed
        outcome = np.where(errors.failed, FAILED, UNCHANGED).astype(np.int8)
        outcome[np.unique(sites.module[good[sites.module]])] = CHANGED
        messages = [*errors.diagnostics(), *(n for n in notes if good[n.module_id or 0])]
        messages += outputs_not_written(ir, bodies, good)
        messages.sort(key=lambda m: m.module_id or 0)
        kept = good[sites.module]
        bodies = bodies.pick(np.isin(np.arange(len(bodies.callee)), body[kept]))
        body = np.searchsorted(bodies.callee, sites.callee[kept])
        call_edges.find_ends(bodies, Dependencies(ir, bodies.added_table("dependencies")))
        chosen = sites.pick(kept)
        removed = removable(ir, chosen, bodies.calls(ir))
        return Plan(outcome, messages, Inlining(chosen, _of_sites(binding, kept), removed, bodies, body))

    def _check_size(self, ir: IR, sites: Sites, removed: Array, errors: FirstErrors) -> None:
        """Fail modules that would become too large, before anything is built (rule O6)."""
        function = ir.array("instructions", "function_id")
        rows = np.bincount(function[function >= 0], minlength=ir.count("functions")).astype(np.float64)
        module = ir.tables["functions"]["module_id"]
        predicted = np.bincount(module, np.where(removed, 0, rows), minlength=len(ir))
        body = predicted_rows(ir).astype(np.float64)
        returns = ends_in_return(ir, sites.callee)
        predicted += np.bincount(sites.module, body[sites.callee] - returns - 1, minlength=len(ir))
        callees, first = np.unique(sites.callee, return_index=True)
        predicted += np.bincount(sites.module[first], body[callees], minlength=len(ir))
        large = np.flatnonzero(predicted[sites.module] > self.max_instructions)
        errors.add(
            SIZE,
            0,
            large,
            sites.module[large],
            lambda s: diag.make(
                "too_many_instructions",
                f"the module would have {int(predicted[sites.module[s]]):,} instructions, more than the "
                f"{self.max_instructions:,} allowed; raise `max_instructions`",
                module_id=int(sites.module[s]),
            ),
        )

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Make the new tables."""
        todo: Inlining = plan.edit
        names = picked(ir.tables["instructions"].text(), todo.sites.row)
        if self.log.isEnabledFor(logging.INFO):
            for name in ir.tables["functions"].text().take(np.flatnonzero(todo.removed)):
                self.log.info("dropping func %s", name)
        calls = call_edges.survey(ir, todo.sites.row, todo.body, todo.bodies)
        edges = Dependencies(ir, todo.bodies.added_table("dependencies"))
        helpers = _helpers(ir, todo, calls, names)
        ordered = _ordered_edges(ir, len(names))
        added = dict(todo.bodies.added)
        added["instructions"] = concat_tables([todo.bodies.added_table("instructions"), helpers])
        added["dependencies"] = concat_tables([todo.bodies.added_table("dependencies"), ordered])
        added["call_chains"] = _chains(ir, todo, names)

        edit = Edit(ir, added, 1 + len(names))
        edit.mark(np.concatenate(([-1], ir.count("call_chains") + np.arange(len(names)))))
        for table, mark in MARKS.items():
            edit.prefix(table, join_text([blank(1), suffixed(names, mark)]))
        edit.give("sets", "origin", vocabulary.ORIGIN_NKI)
        if not any(t.present("optin_mask") for t in (ir.tables["instructions"], added["instructions"])):
            edit.give("instructions", "optin_mask", 15 & ~OPTIN_CLEARED)
        _look_into(edit, todo)
        places = _lay_out(edit, todo, calls)
        first_ordered = len(edges)
        edges.extend(ordered)
        owners, had, has = call_edges.rewrite(
            edit, todo.bodies, edges, calls, todo.sites.row, places, first_ordered + np.arange(len(names))
        )
        out = edit.build()
        out = _settle_memory(out, edit, todo)
        out = _settle_operands(out, edit, todo)
        out = _settle_instructions(out, edit, owners, had, has)
        self._log_unroll_dependencies(out, edit, owners)
        return _free_names(ir, out, edit, todo, names)

    def _log_unroll_dependencies(self, out: IR, edit: Edit, owners: Array) -> None:
        """Say which unroll edges were re-made: those between a body and what is around it."""
        if not self.log.isEnabledFor(logging.INFO):
            return
        edges, names, runs = out.tables["dependencies"], out.tables["instructions"].text(), edit.runs["instructions"]
        made = runs.spread(
            np.where(runs.copy > 0, runs.copy, -(runs.start >= edit.ir.count("instructions")).astype(int))
        )
        moved = (edges["relation"] == vocabulary.RELATION_UNROLL) & np.isin(edges["instruction_id"], owners)
        moved &= edges["on_instruction_id"] >= 0
        for row in np.flatnonzero(moved).tolist():
            waits, on = edges["instruction_id"][row], edges["on_instruction_id"][row]
            if made[waits] != made[on]:
                self.log.info("adding unroll dep from %s to %s", names[waits], names[on])


def _of_sites(binding: Binding, kept: Array) -> Binding:
    """Return the bindings of some call-sites, which are numbered anew."""
    number = np.cumsum(kept) - 1
    columns = {f.name: getattr(binding, f.name) for f in fields(binding)}
    for group in (
        ("site", "formal", "formal_location", "actual"),
        ("register_site", "register_formal", "register_actual"),
    ):
        mine = kept[columns[group[0]]]
        columns |= {name: columns[name][mine] for name in group}
        columns[group[0]] = number[columns[group[0]]]
    columns["base"] = binding.base[kept]
    return Binding(**columns)


def _own_sets(ir: IR, functions: Array) -> tuple[Array, Array, Array]:
    """Return (function number, first set, number of sets) of the runs of sets that are no parameters."""
    sets = ir.tables["sets"]
    own = ~is_parameter(sets["kind"])
    function = sets["function_id"]
    begins = own & ~(np.concatenate(([False], own[:-1] & (function[1:] == function[:-1])))) if len(own) else own
    first = np.flatnonzero(begins)
    place = np.searchsorted(functions, function[first])
    mine = place < len(functions)
    mine[mine] = functions[place[mine]] == function[first[mine]]
    ends = (
        np.flatnonzero(own & ~np.concatenate((own[1:] & (function[1:] == function[:-1]), [False]))) + 1
        if len(own)
        else first
    )
    return place[mine], first[mine], (ends - first)[mine]


# -- new rows ---------------------------------------------------------------------------------------------------------


def _helpers(ir: IR, todo: Inlining, calls: CallEdges, names: Strings) -> Table:
    """Make the `_start` and `_done` NoOps: first all starts, then all dones (rules N13, N14)."""
    start, done = np.flatnonzero(calls.start), np.flatnonzero(calls.done)
    site = np.concatenate((start, done))
    texts = [suffixed(picked(names, which), suffix) for which, suffix in ((start, "_start"), (done, "_done"))]
    instructions = ir.tables["instructions"]
    layout = layouts.of(["name", "opcode", "engine", "ins", "outs"])
    return Table.of(
        "instructions",
        len(site),
        block_id=instructions["block_id"][todo.sites.row[site]],
        name=join_text(texts),
        opcode=vocabulary.OP_NOOP,
        engine=instructions["engine"][todo.sites.row[site]],
        layout=ir.pools.layouts.intern(layout),
    )


def _ordered_edges(ir: IR, count: int) -> Table:
    """Make one plain `Ordered` edge per call-site, which the edges of and on its helpers are copies of."""
    return Table.of(
        "dependencies",
        count,
        instruction_id=LAST,
        relation=vocabulary.RELATION_PLAIN,
        edge=vocabulary.EDGE_ORDERED,
        extra=ir.pools.extras.intern('["Ordered"]'),
    )


def _chains(ir: IR, todo: Inlining, names: Strings) -> Table:
    """Make the call chain of each call-site (rule N16)."""
    functions = ir.tables["functions"].text()
    kernels = np.array([ir.pools.names.intern(functions[f]) for f in todo.bodies.callee.tolist()], np.int32)
    return Table.of(
        "call_chains",
        len(names),
        module_id=todo.sites.module,
        name=names,
        kernel=kernels[todo.body],
        kernel_source=todo.sites.source.astype(np.int16),
        depth=1,
    )


# -- where rows go and what keys become --------------------------------------------------------------------------------


def _look_into(edit: Edit, todo: Inlining) -> None:
    """Say what clones refer to: bodies and their callee's storage, with parameters bound to actuals (rule N11)."""
    ir, sites, binding = edit.ir, todo.sites, todo.binding
    number = np.arange(1, len(sites) + 1)
    for table in ("sets", "locations", "registers"):
        function = ir.array(table, "function_id")
        first = np.searchsorted(function, todo.bodies.callee)
        rows = np.searchsorted(function, todo.bodies.callee + 1) - first
        first, rows = todo.bodies.span(ir, table, first, rows)
        edit.look_into(table, np.append(0, first[todo.body]), np.append(0, rows[todo.body]))
    callee = todo.bodies.callee
    first, rows = todo.bodies.span(ir, "functions", callee, np.ones_like(callee))
    edit.look_into("functions", np.append(0, first[todo.body]), np.append(0, rows[todo.body]))
    block = todo.bodies.block[todo.body]
    edit.look_into("blocks", np.append(0, np.maximum(block, 0)), np.append(0, (block >= 0).astype(np.int64)))
    full = (todo.bodies.count + todo.bodies.returns)[todo.body]
    edit.look_into("instructions", np.append(0, todo.bodies.start[todo.body]), np.append(0, full))

    edit.bind("functions", number, sites.callee, sites.function)
    has = block >= 0
    edit.bind("blocks", number[has], block[has], ir.tables["instructions"]["block_id"][sites.row[has]])
    copy = binding.site + 1
    edit.bind("sets", copy, binding.formal, ir.tables["locations"]["set_id"][binding.actual])
    edit.bind("locations", copy, binding.formal_location, binding.actual)
    edit.bind("registers", binding.register_site + 1, binding.register_formal, binding.register_actual)


def _lay_out(edit: Edit, todo: Inlining, calls: CallEdges) -> Places:
    """Say which rows make up functions, blocks, storage and instructions; return where instructions come to stand."""
    ir, sites, bodies = edit.ir, todo.sites, todo.bodies
    number = np.arange(len(sites))
    kept = ~todo.removed
    edit.keep("functions", _stretches(kept))
    function = ir.tables["blocks"]["function_id"]
    edit.keep("blocks", _stretches((function < 0) | kept[function]))
    edit.keep(
        "call_chains",
        Runs.inserting(
            ir.count("call_chains"), np.searchsorted(ir.tables["call_chains"]["module_id"], sites.module + 1)
        ),
    )

    place, first, length = _own_sets(ir, bodies.callee)
    by_body = np.searchsorted(place, np.arange(len(bodies.callee) + 1))
    pieces = np.diff(by_body)[todo.body]
    item = expand(by_body[:-1][todo.body], pieces)
    _append(edit, "sets", kept, first[item], length[item], np.repeat(number, pieces), sites)
    owner = ir.tables["registers"]["function_id"]
    first = np.searchsorted(owner, sites.callee)
    rows = np.searchsorted(owner, sites.callee + 1) - first
    register, site = expand(first, rows), np.repeat(number, rows)
    bound = np.isin(
        site * (len(owner) + 1) + register, todo.binding.register_site * (len(owner) + 1) + todo.binding.register_formal
    )
    _append(edit, "registers", kept, register[~bound], np.ones((~bound).sum(), np.int64), site[~bound], sites)
    return _lay_out_instructions(edit, todo, calls, kept)


def _stretches(mask: Array) -> Runs:
    """Return the rows of a mask as runs."""
    edge = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return Runs.of(edge[::2], edge[1::2] - edge[::2])


def _append(edit: Edit, table: str, kept: Array, first: Array, length: Array, site: Array, sites: Sites) -> None:
    """Put runs of callees' storage behind the storage of the callers, call-site by call-site (rule N3)."""
    owner = edit.ir.tables[table]["function_id"]
    functions = np.flatnonzero(kept)
    begin = np.searchsorted(owner, functions)
    own = np.searchsorted(owner, functions + 1) - begin
    key = np.concatenate((functions, sites.function[site]))
    order = np.lexsort((np.concatenate((np.full(len(functions), -1), np.arange(len(site)))), key))
    start, length = np.concatenate((begin, first))[order], np.concatenate((own, length))[order]
    copy = np.concatenate((np.zeros(len(functions), np.int64), site + 1))[order]
    edit.keep(table, Runs.of(start, length, copy))


def _lay_out_instructions(edit: Edit, todo: Inlining, calls: CallEdges, kept: Array) -> Places:
    """Put the body of each call-site in its place, helpers around it (rules N12, N14)."""
    ir, sites, bodies = edit.ir, todo.sites, todo.bodies
    function = ir.array("instructions", "function_id")
    stays = (function < 0) | kept[function]
    stays[sites.row] = False
    own = _stretches(stays)
    count, start = todo.count, bodies.start[todo.body]
    split = calls.done & bodies.ends_block[todo.body] & (count > 0)
    head = count - split
    helper = ir.count("instructions") + len(bodies.added_table("instructions"))
    starts_at = helper + np.cumsum(calls.start) - 1
    dones_at = helper + calls.start.sum() + np.cumsum(calls.done) - 1
    number = np.arange(len(sites))
    pieces = (
        (own.start * 2, np.zeros(len(own.start), np.int64), own.start, own.length, own.copy),
        (sites.row * 2 + 1, number * 0, starts_at, calls.start.astype(np.int64), number * 0),
        (sites.row * 2 + 1, number * 0 + 1, start, head, number + 1),
        (sites.row * 2 + 1, number * 0 + 2, dones_at, calls.done.astype(np.int64), number * 0),
        (sites.row * 2 + 1, number * 0 + 3, start + head, split.astype(np.int64), number + 1),
    )
    key, second, begin, length, copy = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.lexsort((second, key))
    edit.keep("instructions", Runs.of(begin[order], length[order], copy[order]))

    at = np.empty(len(order), np.int64)
    at[order] = starts(length[order])[:-1]
    begin_of = len(own.start) + len(sites) * np.arange(4)[:, None] + number
    found = edit.places("instructions")
    assert found is not None
    site_at = np.full(ir.count("instructions"), -1, np.int64)
    site_at[sites.row] = number
    return Places(
        own=found[0][: ir.count("instructions")],
        first=at[begin_of[1]],
        last_shift=split.astype(np.int64),
        start=np.where(calls.start, at[begin_of[0]], -1),
        done=np.where(calls.done, at[begin_of[2]], -1),
        site=site_at,
        body=todo.body,
    )


# -- columns that change in a clone ------------------------------------------------------------------------------------


def _settle_memory(out: IR, edit: Edit, todo: Inlining) -> IR:
    """Rebase SB addresses, set the origin, and place new storage behind the function's own (rule N8)."""
    ir, sites = edit.ir, todo.sites
    base = np.append(0, todo.binding.base)
    runs = edit.runs["locations"]
    locations = out.tables["locations"]
    rebased = pl.DataFrame(
        {"addr": locations["addr"], "type": locations["type"], "base": runs.spread(base[runs.copy])}
    ).select(
        pl.when((pl.col("type") == vocabulary.MEM_SB) & (pl.col("base") != 0))
        .then(pl.when(pl.col("addr") == NULL_INT).then(0).otherwise(pl.col("addr")) + pl.col("base"))
        .otherwise(pl.col("addr"))
        .alias("addr")
    )["addr"]
    changes = {"locations": locations.replace(addr=rebased.to_numpy())}
    absent = (locations["addr"] == NULL_INT) & (changes["locations"]["addr"] != NULL_INT)
    if absent.any():
        layout = locations["layout"].copy()
        layout[absent] = layouts.add_key(out.pools.layouts, layout[absent], "addr")
        changes["locations"] = changes["locations"].replace(layout=layout)

    sets, cloned = out.tables["sets"], edit.runs["sets"].spread(edit.runs["sets"].copy > 0)
    layout = sets["layout"].copy()
    layout[cloned] = layouts.add_key(out.pools.layouts, layout[cloned], "origin")
    changes["sets"] = sets.replace(layout=layout)

    allocations = np.zeros(ir.count("functions"), np.int64)
    for table in ("sets", "registers"):
        np.maximum.at(allocations, ir.tables[table]["function_id"], ir.tables[table]["ordinal"] + 1)
    before = starts(allocations[sites.callee])[:-1]
    first = np.searchsorted(sites.function, sites.function)
    offset = np.append(0, allocations[sites.function] + before - before[first])
    for table in ("sets", "registers"):
        runs = edit.runs[table]
        made = changes.get(table) or out.tables[table]
        if (runs.copy > 0).any():
            changes[table] = made.replace(ordinal=made["ordinal"] + runs.spread(offset[runs.copy]))
    return out.replace(**changes)


def _settle_operands(out: IR, edit: Edit, todo: Inlining) -> IR:
    """Let the set written beside a location be the location's set, in clones where it was not (rule R2)."""
    ir, bodies = edit.ir, todo.bodies
    location, named, lost = (bodies.column(ir, "operands", c) for c in ("location_id", "set_id", "set_name"))
    differs = (location >= 0) & (
        (lost >= 0) | ((named >= 0) & (named != take(ir.tables["locations"]["set_id"], location)))
    )
    if not differs.any():
        return out
    operands, runs = out.tables["operands"], edit.runs["operands"]
    rows = np.flatnonzero(differs[runs.source()] & runs.spread(runs.copy > 0))
    set_id, set_name = operands["set_id"].copy(), operands["set_name"].copy()
    set_id[rows] = out.tables["locations"]["set_id"][operands["location_id"][rows]]
    set_name[rows] = -1
    return out.replace(operands=operands.replace(set_id=set_id, set_name=set_name))


def _settle_instructions(out: IR, edit: Edit, owners: Array, had: Array, has: Array) -> IR:
    """Clear opt-in bits of clones (rule N10), and give and take the keys of edge lists (rule N14)."""
    instructions, runs = out.tables["instructions"], edit.runs["instructions"]
    mask = instructions.columns["optin_mask"]
    if ("instructions", "optin_mask") not in edit.constants:
        written = instructions["optin_mask"]
        cloned = runs.spread(runs.copy > 0)
        mask = np.where(cloned, np.where(written == NULL_INT, 15, written) & ~OPTIN_CLEARED, written)
    layout = instructions["layout"].copy()
    lost = had & ~has
    for change in np.unique(np.stack((has & ~had, lost), axis=1), axis=0).tolist():
        keys = [[EDGE_KEYS[r] for r in range(3) if bits >> r & 1] for bits in change]
        rows = owners[((has & ~had) == change[0]) & (lost == change[1])]
        layout[rows] = layouts.edit_keys(out.pools.layouts, layout[rows], keys[0], keys[1])
    return out.replace(instructions=instructions.replace(optin_mask=mask, layout=layout))


EDGE_KEYS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")
"""Members that hold the edges of each relation."""


# -- names -------------------------------------------------------------------------------------------------------------


def _free_names(ir: IR, out: IR, edit: Edit, todo: Inlining, names: Strings) -> IR:
    """Make the names of clones free (rule R6). Mostly none can meet another, which is seen without reading them."""
    sites, bodies = todo.sites, todo.bodies
    old_function = np.flatnonzero(~todo.removed)  # the old number of each new function
    changes: dict[str, Table] = {}
    for table, mark in MARKS.items():
        made, runs = out.tables[table], edit.runs[table]
        added = ir.count(table) + len(bodies.added_table(table))
        fresh = runs.spread((runs.copy > 0) | (runs.start >= added))
        if not fresh.any():
            continue
        scope = ir.array(table, "function_id")
        mixed = prefixed_scopes(names, sites.function, mark, ir.tables[table].text(), scope)
        doubled = _doubled(ir, todo, table, runs)
        mixed = np.union1d(mixed, sites.function[doubled])
        if not len(mixed):
            continue
        function = out.array(table, "function_id")
        new_scope = np.where(function < 0, -1, old_function[function])
        rows = np.flatnonzero(fresh & np.isin(new_scope, mixed))
        taken = np.flatnonzero(np.isin(scope, mixed))
        texts = made.text()
        free = fresh_names(picked(ir.tables[table].text(), taken), scope[taken], picked(texts, rows), new_scope[rows])
        changes[table] = made.replace(name=put(texts, rows, free))
    return out.replace(**changes) if changes else out


def _doubled(ir: IR, todo: Inlining, table: str, runs: Runs) -> Array:
    """Return a mask of the call-sites whose clones may be called alike: the body has a name twice, or a helper's."""
    bodies = todo.bodies
    if table == "instructions":
        rows = expand(bodies.start, bodies.count)
        scope = np.repeat(np.arange(len(bodies.callee)), bodies.count)
        names = picked(join_text([ir.tables[table].text(), bodies.added_table(table).text()]), rows)
    else:
        function = ir.array(table, "function_id")
        scope = np.searchsorted(bodies.callee, function)
        mine = np.isin(function, bodies.callee)
        if table != "registers":
            set_id = np.arange(len(mine)) if table == "sets" else ir.tables[table]["set_id"]
            mine &= ~is_parameter(ir.tables["sets"]["kind"][set_id])
        rows = np.flatnonzero(mine)
        scope, names = scope[rows], picked(ir.tables[table].text(), rows)
    bad = np.zeros(len(bodies.callee), bool)
    bad[repeated_scopes(names, scope)] = True
    helpers = ir.count(table) + len(bodies.added_table(table))
    if (runs.start >= helpers).any():
        for word in ("start", "done"):
            bad[scope[names.equal(word)]] = True
    return bad[todo.body]
