"""The edit that puts bodies in place of call-sites (rules N8, N10 to N14, N16).

It serves the callers' functions, and the copies of kernels into which inner kernels are inlined.
"""

from dataclasses import dataclass, field

import numpy as np

from arrowir import layouts, vocabulary
from arrowir.derived import take
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import picked, put, suffixed
from arrowir.passes.inlining import call_edges, layout
from arrowir.passes.inlining.binding import Binding, is_parameter
from arrowir.passes.inlining.call_edges import LAST, Dependencies, Places
from arrowir.passes.inlining.extended import Extended, groups, stretches
from arrowir.passes.inlining.free_names import free_names, look_for_repeated
from arrowir.passes.inlining.kernel_bodies import Bodies
from arrowir.passes.inlining.kernel_calls import Sites
from arrowir.passes.inlining.layout import CONTINUATION, DONE, ENTRY, START, TO_ENTRY, Layout, Placed
from arrowir.passes.inlining.tensor_names import Names
from arrowir.runs import Runs, blank, concat_tables, expand, join_text
from arrowir.schema import NULL_INT
from arrowir.store import Array, Strings, Table, children, starts
from arrowir_kernels import mark_differing

ALL_OPTIN = 0xF
"""Opt-in bits where none are written."""

OPTIN_CLEARED = 0xC
"""Opt-in bits that a clone loses (rule N10)."""

MARKS = {"instructions": "_", "blocks": "_", "sets": ":", "locations": ":", "registers": ":"}
"""What stands between the call-site's name and the name in the kernel (rules N8, N10)."""


@dataclass(frozen=True)
class Inlining:
    """Call-sites, what their parameters are bound to, and the bodies that they get."""

    batch: Extended
    sites: Sites
    binding: Binding
    bodies: Bodies
    body: Array
    """The body of each call-site."""
    dropped: Array
    """Mask of the functions that go."""
    blocks: Array
    """Mask of the blocks of the batch that stay."""
    origin: int = vocabulary.ORIGIN_NKI
    """Code of the origin of the sets that are made again (rules N8, B2)."""
    tensor_names: dict[int, Names] = field(default_factory=dict[int, Names])
    """By module the names that change in its tensor map (rule N17)."""


@dataclass(frozen=True)
class Spliced:
    """The batch with bodies in place of call-sites."""

    ir: IR
    edit: Edit
    owners: Array
    """Instructions whose edges were made anew."""


def splice(todo: Inlining) -> Spliced:
    """Make the batch in which bodies stand in place of call-sites."""
    batch, sites, bodies, body = todo.batch, todo.sites, todo.bodies, todo.body
    ir = batch.ir
    names = picked(ir.tables["instructions"].text(), sites.row)
    repeated = look_for_repeated(todo, MARKS)
    edges = Dependencies(batch)
    ends = call_edges.find_ends(batch, bodies, edges)
    calls = call_edges.survey(ir, sites.row, body, ends)
    plan = layout.lay_out(batch, sites.row, bodies, body, calls)
    helpers = layout.helpers(batch, sites.row, names, plan)
    ordered, first = _ordered_edges(ir, len(names)), len(edges)
    edges.extend(ordered)
    added = dict(batch.added)
    added["instructions"] = concat_tables([batch.of("instructions"), helpers])
    added["dependencies"] = concat_tables([batch.of("dependencies"), ordered])
    added["branches"] = concat_tables([batch.of("branches"), _to_entries(batch, plan)])
    chain = batch.count("call_chains") + np.arange(len(names))
    added["call_chains"] = concat_tables([batch.of("call_chains"), _chains(todo, names)])

    edit = Edit(ir, added, 1 + len(names))
    edit.mark(np.append(-1, chain))
    prefixes = {mark: join_text([blank(1), suffixed(names, mark)]) for mark in set(MARKS.values())}
    for table, mark in MARKS.items():
        edit.prefix(table, prefixes[mark])
    _bind(edit, todo, plan)
    _lay_out_storage(edit, todo)
    _lay_out_chains(edit, todo)
    _change_clones(edit, todo)
    _rebase(edit, todo)
    edit.begin("sets", "locations", "registers")
    _lay_out_blocks(edit, todo, plan)
    placed = _lay_out_instructions(edit, todo, plan)
    _settle_foreign(edit, todo)
    edit.begin("operands")
    places = _places(edit, todo, plan, placed)
    owners, had, has = call_edges.rewrite(
        edit, bodies, ends, edges, calls, sites.row, places, first + np.arange(len(names))
    )
    _settle_blocks(edit, todo, plan, placed)
    _settle_made(edit, todo, places, owners, had, has)
    out = edit.build()
    out = _settle_operands(out, edit, todo)
    return Spliced(free_names(out, edit, todo, names, MARKS, repeated), edit, owners)


# -- new rows ---------------------------------------------------------------------------------------------------------


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


def _to_entries(batch: Extended, plan: Layout) -> Table:
    """Make the targets of branches to entries; the blocks are settled later."""
    row = batch.count("instructions") + plan.present[:TO_ENTRY].sum() + np.arange(plan.present[TO_ENTRY].sum())
    return Table.of("branches", len(row), instruction_id=row, slot=vocabulary.SLOT_TARGET, block_id=-1)


def _chains(todo: Inlining, names: Strings) -> Table:
    """Make the call chain of each call-site, behind the one that it has itself (rule N16)."""
    ir, sites = todo.batch.ir, todo.sites
    instructions, chains = ir.tables["instructions"], ir.tables["call_chains"]
    kernels = ir.pools.names.intern_all(todo.batch.texts("functions", todo.bodies.callee).tolist())
    parent = instructions.at("call_chain_id", sites.row)
    inlined = np.flatnonzero(parent >= 0)
    if len(inlined):
        names = put(names, inlined, picked(instructions.text("original_name"), sites.row[inlined]))
    return Table.of(
        "call_chains",
        len(names),
        module_id=sites.module,
        parent_id=parent if len(inlined) else None,
        name=names,
        kernel=kernels[todo.body],
        kernel_source=sites.source.astype(np.int16),
        depth=_depth_of(chains, parent) + 1,
    )


def _depth_of(chains: Table, rows: Array) -> Array:
    return np.maximum(take(chains["depth"], rows), 0) if len(chains) else np.zeros(len(rows), np.int64)


# -- what keys of clones become ----------------------------------------------------------------------------------------


def _bind(edit: Edit, todo: Inlining, plan: Layout) -> None:
    """Say what clones refer to: bodies and their storage, with parameters bound to actuals (rule N11)."""
    batch, sites, bodies, body, binding = todo.batch, todo.sites, todo.bodies, todo.body, todo.binding
    ir = batch.ir
    number = np.arange(1, len(sites) + 1)
    windows = {table: bodies.windows[table] for table in ("sets", "locations", "registers")}
    windows["functions"] = bodies.callee, np.ones_like(bodies.callee)
    windows["blocks"] = np.maximum(bodies.block, 0), bodies.blocks
    windows["instructions"] = bodies.start, bodies.rows
    if bodies.windows["call_chains"][1].any():
        windows["call_chains"] = bodies.windows["call_chains"]
    for table, (first, rows) in windows.items():
        edit.look_into(table, np.append(0, first[body]), np.append(0, rows[body]))

    edit.bind("functions", number, sites.callee, sites.function)
    entry = np.flatnonzero((bodies.block[body] >= 0) & ~bodies.own_entry[body])
    block, copy = _block_of_segment(todo, plan, plan.segments.of_site[entry])
    edit.bind("blocks", number[entry], bodies.block[body[entry]], block, copy)
    formal_body = body[binding.site]
    edit.bind(
        "sets",
        binding.site + 1,
        binding.formal + bodies.moved["sets"][formal_body],
        ir.tables["locations"]["set_id"][binding.actual],
    )
    formal = binding.formal_location + bodies.moved["locations"][formal_body]
    edit.bind("locations", binding.site + 1, formal, binding.actual)
    formal = binding.register_formal + bodies.moved["registers"][body[binding.register_site]]
    edit.bind("registers", binding.register_site + 1, formal, binding.register_actual)


def _block_of_segment(todo: Inlining, plan: Layout, segment: Array) -> tuple[Array, Array]:
    """Return block and copy that segments are in: the callers' own, or a continuation, the last block of a body."""
    segments, bodies, body = plan.segments, todo.bodies, todo.body
    opened = segments.opened_by[segment]
    own = todo.batch.ir.tables["instructions"]["block_id"][todo.sites.row[segments.last[segment]]]
    last_block = bodies.block[body[opened]] + bodies.blocks[body[opened]] - 1
    return np.where(opened < 0, own, last_block), opened + 1


# -- where rows go -----------------------------------------------------------------------------------------------------


def _lay_out_storage(edit: Edit, todo: Inlining) -> None:
    """Put the storage of bodies behind that of the callers, call-site by call-site (rule N3)."""
    batch, bodies, body = todo.batch, todo.bodies, todo.body
    kept = ~todo.dropped
    number = np.arange(len(body))
    edit.keep("functions", stretches(kept))
    first, length, pieces = _own_sets(batch, bodies)
    item = expand(starts(pieces)[:-1][body], pieces[body])
    _append(edit, "sets", todo, first[item], length[item], np.repeat(number, pieces[body]))
    first, rows = (column[body] for column in bodies.windows["registers"])
    register, site = expand(first, rows), np.repeat(number, rows)
    binding, width = todo.binding, batch.count("registers") + 1
    formal = binding.register_formal + bodies.moved["registers"][body[binding.register_site]]
    bound = np.isin(site * width + register, binding.register_site * width + formal) if len(formal) else site < 0
    _append(edit, "registers", todo, register[~bound], np.ones((~bound).sum(), np.int64), site[~bound])


def _own_sets(batch: Extended, bodies: Bodies) -> tuple[Array, Array, Array]:
    """Return first and length of the runs of sets that are no parameters, body after body, and how many each has."""
    first, rows = bodies.windows["sets"]
    row = expand(first, rows)
    body, number = groups(rows)
    own = ~is_parameter(batch.column("sets", "kind")[row])
    begins = own & ((number == 0) | ~np.append(False, own[:-1])) if len(own) else own
    run = np.cumsum(begins)[own] - 1
    at = np.flatnonzero(begins)
    return row[at], np.bincount(run, minlength=len(at)), np.bincount(body[at], minlength=len(rows))


def _append(edit: Edit, table: str, todo: Inlining, first: Array, length: Array, site: Array) -> None:
    owner = edit.ir.tables[table]["function_id"]
    functions = np.flatnonzero(~todo.dropped)
    begin, own = children(owner, functions)
    key = np.concatenate((functions, todo.sites.function[site]))
    order = np.argsort(key, kind="stable")
    copy = np.concatenate((np.zeros(len(functions), np.int64), site + 1))[order]
    edit.keep(table, Runs.of(np.concatenate((begin, first))[order], np.concatenate((own, length))[order], copy))


def _lay_out_chains(edit: Edit, todo: Inlining) -> None:
    """Put the chain of each call-site, and behind it those of its body, at the end of the module's."""
    ir, sites = edit.ir, todo.sites
    first, rows = (column[todo.body] for column in todo.bodies.windows["call_chains"])
    old = ir.count("call_chains")
    at = np.searchsorted(ir.tables["call_chains"]["module_id"], sites.module + 1)
    bounds = np.append(np.unique(at), old)
    begin = np.append(0, bounds[:-1])
    number = np.arange(len(sites))
    own = edit.rows("call_chains") - len(sites) + number
    key = np.concatenate((bounds * 2, at * 2 + 1, at * 2 + 1))
    second = np.concatenate((bounds * 0, number * 2, number * 2 + 1))
    order = np.lexsort((second, key))
    start = np.concatenate((begin, own, first))[order]
    length = np.concatenate((bounds - begin, np.ones(len(sites), np.int64), rows))[order]
    copy = np.concatenate((bounds * 0, number * 0, number + 1))[order]
    edit.keep("call_chains", Runs.of(start, length, copy))
    if rows.any():
        runs = edit.runs["call_chains"]
        at = np.flatnonzero(runs.copy > 0)
        row = expand(runs.begins[:-1][at], runs.length[at])
        around = np.repeat(edit.added["call_chains"]["depth"][own - old][runs.copy[at] - 1], runs.length[at])
        depth = np.concatenate([t["depth"] for t in (ir.tables["call_chains"], edit.added["call_chains"])])
        edit.settle("call_chains", "depth", row, depth[expand(runs.start[at], runs.length[at])] + around)


def _lay_out_blocks(edit: Edit, todo: Inlining, plan: Layout) -> None:
    """Put the blocks of bodies that split a block behind it, in the order of their call-sites (rules N13, N20)."""
    ir, bodies, body = edit.ir, todo.bodies, todo.body
    own = stretches(todo.blocks)
    site = np.flatnonzero(bodies.split[body])
    site = site[np.argsort(todo.sites.row[site])]
    if not len(site):
        edit.keep("blocks", own)
        return
    of_site = body[site]
    merged = ~bodies.own_entry[of_site]
    around = ir.tables["instructions"]["block_id"][todo.sites.row[site]]
    pieces = _cut(own, around + 1)
    key = np.concatenate((pieces[0] * 2, around * 2 + 1))
    order = np.argsort(key, kind="stable")
    start = np.concatenate((pieces[0], (bodies.block[of_site] + merged)))[order]
    length = np.concatenate((pieces[1], (bodies.blocks[of_site] - merged)))[order]
    copy = np.concatenate((np.zeros(len(pieces[0]), np.int64), site + 1))[order]
    edit.keep("blocks", Runs.of(start, length, copy))


def _cut(runs: Runs, at: Array) -> tuple[Array, Array]:
    """Cut runs of old rows before some rows; return starts and lengths."""
    ends = runs.start + runs.length
    inside = np.unique(at)
    run = np.searchsorted(runs.start, inside, side="right") - 1
    inside = inside[(run >= 0) & (inside > runs.start[run]) & (inside < ends[run])]
    start = np.sort(np.concatenate((runs.start, inside)))
    return start, np.sort(np.concatenate((ends, inside))) - start


def _lay_out_instructions(edit: Edit, todo: Inlining, plan: Layout) -> Placed:
    """Put the body of each call-site in its place, helpers around it (rules N12 to N14)."""
    batch = todo.batch
    rows = todo.blocks[edit.ir.tables["instructions"]["block_id"]]
    rows[todo.sites.row] = False
    placed = layout.place(todo.sites.row, stretches(rows), todo.bodies, todo.body, plan, batch.count("instructions"))
    edit.keep("instructions", placed.runs)
    return placed


def _places(edit: Edit, todo: Inlining, plan: Layout, placed: Placed) -> Places:
    """Return where instructions come to stand."""
    rows = edit.ir.count("instructions")
    found = edit.places("instructions")
    assert found is not None
    site = np.full(rows, -1, np.int64)
    site[todo.sites.row] = np.arange(len(todo.sites))
    return Places(
        own=found[0][:rows],
        first=placed.first,
        head=plan.head,
        start=placed.helper[START],
        done=placed.helper[DONE],
        site=site,
        body=todo.body,
    )


# -- columns that change -----------------------------------------------------------------------------------------------


def _change_clones(edit: Edit, todo: Inlining) -> None:
    """Set the origin of sets and clear opt-in bits of instructions (rules N8, N10)."""
    batch, pool = todo.batch, todo.batch.ir.pools.layouts
    edit.instead("sets", "origin", todo.origin)
    layout_, rows = batch.column("sets", "layout").copy(), expand(*todo.bodies.windows["sets"])
    layout_[rows] = layouts.add_key(pool, layout_[rows], "origin")
    edit.instead("sets", "layout", layout_)
    tables = (edit.ir.tables["instructions"], edit.added["instructions"])
    if any(table.has("optin_mask") for table in tables):
        mask = np.concatenate([table["optin_mask"] for table in tables])
        edit.instead("instructions", "optin_mask", np.where(mask == NULL_INT, ALL_OPTIN, mask) & ~OPTIN_CLEARED)
    else:
        edit.instead("instructions", "optin_mask", ALL_OPTIN & ~OPTIN_CLEARED)


def _settle_blocks(edit: Edit, todo: Inlining, plan: Layout, placed: Placed) -> None:
    """Say in which blocks helpers, and callers' rows behind a body that splits their block, come to stand."""
    bodies, body, segments = todo.bodies, todo.body, plan.segments
    found = edit.places("blocks")
    splits = bool(bodies.split[body].any())
    if not splits and not plan.present.any():
        return

    def new(block: Array, copy: Array) -> Array:
        return block if found is None else found[0][block + (found[1][copy] if len(found[1]) > 1 else 0)]

    rows: list[Array] = []
    blocks: list[Array] = []
    for kind in np.flatnonzero(plan.present.any(axis=1)).tolist():
        site = np.flatnonzero(plan.present[kind])
        own_entry = bodies.own_entry[body[site]]
        if kind == DONE:
            block, copy = plan.exit_block[site], site + 1
        elif kind == CONTINUATION:
            block, copy = bodies.block[body[site]] + bodies.blocks[body[site]] - 1, site + 1
        else:
            block, copy = _block_of_segment(todo, plan, segments.of_site[site])
            inside = own_entry if kind in (START, ENTRY) else np.zeros(len(site), bool)
            block = np.where(inside, bodies.block[body[site]], block)
            copy = np.where(inside, site + 1, copy)
        rows.append(placed.helper[kind, site])
        blocks.append(new(block, copy))
    if splits:
        own = edit.places("instructions")
        assert own is not None
        opened = np.flatnonzero(segments.opened_by >= 0)
        length = segments.end[opened] - segments.begin[opened]
        block = new(*_opened_by(todo, segments.opened_by[opened]))
        at = own[0][expand(segments.begin[opened], length)]
        rows.append(at[at >= 0])
        blocks.append(np.repeat(block, length)[at >= 0])
        site = np.flatnonzero(plan.present[TO_ENTRY])
        _settle_owners(edit, todo, plan)
        edit.follow()
        runs = edit.runs["branches"]
        mine = runs.begins[:-1][runs.start >= todo.batch.count("branches")]
        order = np.argsort(placed.helper[TO_ENTRY, site])
        edit.settle("branches", "block_id", mine, new(bodies.block[body[site]], site + 1)[order])
    edit.settle("instructions", "block_id", np.concatenate(rows), np.concatenate(blocks))


def _opened_by(todo: Inlining, site: Array) -> tuple[Array, Array]:
    """Return the continuation of call-sites: the last block of their body, and its copy."""
    body = todo.body[site]
    return todo.bodies.block[body] + todo.bodies.blocks[body] - 1, site + 1


def _settle_owners(edit: Edit, todo: Inlining, plan: Layout) -> None:
    """Let blocks of bodies be owned by what owns the block that was split, a loop's body for instance."""
    ir = edit.ir
    owner = ir.tables["blocks"]["instruction_id"][ir.tables["instructions"]["block_id"][todo.sites.row]]
    found = edit.places("instructions")
    assert found is not None
    runs = edit.runs["blocks"]
    inside = np.flatnonzero(runs.copy > 0)
    inside = inside[owner[runs.copy[inside] - 1] >= 0]
    if not len(inside):
        return
    row = expand(runs.begins[:-1][inside], runs.length[inside])
    of = np.repeat(owner[runs.copy[inside] - 1], runs.length[inside])
    edit.settle("blocks", "instruction_id", row, found[0][of])
    code = ir.pools.codes["block_owner"].find("instruction")
    edit.settle("blocks", "owner", row, np.full(len(row), code))


def _settle_made(edit: Edit, todo: Inlining, places: Places, owners: Array, had: Array, has: Array) -> None:
    """Settle the keys of edge lists that come and go (rule N14), and what call-sites say of rows made with bodies."""
    batch, bodies, body = todo.batch, todo.bodies, todo.body
    runs = edit.runs["instructions"]
    pool = edit.ir.pools.layouts
    site, row, returned = _made_rows(batch, bodies, body)
    at = places.clone(site, row - bodies.start[body[site]])
    if len(site):
        engine = batch.ir.tables["instructions"]["engine"][todo.sites.row[site]]
        edit.settle("instructions", "engine", at, np.where(engine < 0, vocabulary.ENGINE_UNASSIGNED, engine))
    rows, come, lost = owners, has & ~had, had & ~has
    if returned.any():
        more = np.setdiff1d(at[returned], owners)
        rows, come, lost = np.append(rows, more), np.append(come, more * 0), np.append(lost, more * 0)
        come[np.isin(rows, at[returned])] |= 8
    run = np.searchsorted(runs.begins, rows, side="right") - 1
    source = runs.start[run] + rows - runs.begins[run]
    layout_ = edit.at("instructions", "layout", source)
    change = come * 16 + lost
    for code in np.flatnonzero(np.bincount(change)).tolist():
        keys = [[EDGE_KEYS[r] for r in range(5) if (bits | (bits & 8) << 1) >> r & 1] for bits in divmod(code, 16)]
        mine = change == code
        layout_[mine] = layouts.edit_keys(pool, layout_[mine], keys[0], keys[1])
    edit.settle("instructions", "layout", rows, layout_)
    _no_clones(edit, todo, at[~returned])


EDGE_KEYS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies", "target", "engine")
"""Members that hold the edges of each relation, and those that a Return gets that becomes a branch."""


def _made_rows(batch: Extended, bodies: Bodies, body: Array) -> tuple[Array, Array, Array]:
    """Return call-site and row of what stands in bodies with the call-site's engine, and which rows were Returns."""
    rows = np.concatenate((batch.made, batch.branching))
    if not len(rows):
        return rows, rows, rows.astype(bool)
    of = bodies.of_rows(rows)
    rows, of, returned = rows[of >= 0], of[of >= 0], (np.arange(len(rows)) >= len(batch.made))[of >= 0]
    order = np.argsort(of, kind="stable")
    count = np.bincount(of, minlength=len(bodies.callee))
    item = expand(starts(count)[:-1][body], count[body])
    return np.repeat(np.arange(len(body)), count[body]), rows[order][item], returned[order][item]


def _no_clones(edit: Edit, todo: Inlining, rows: Array) -> None:
    """Let what bodies were closed with, instructions and the continuation, not be as clones are (rules N10, N16)."""
    if len(rows):
        edit.settle("instructions", "optin_mask", rows, np.full(len(rows), NULL_INT))
        edit.settle("instructions", "call_chain_id", rows, np.full(len(rows), -1))
        edit.forget("instructions", todo.batch.made)
    runs = edit.runs["blocks"]
    last = np.flatnonzero(runs.copy > 0)
    last = last[todo.bodies.split[todo.body[runs.copy[last] - 1]]]
    if len(last):
        at = runs.begins[1:][last] - 1
        edit.settle("blocks", "call_chain_id", at, np.full(len(at), -1))
        edit.forget("blocks", np.unique(runs.start[last] + runs.length[last] - 1))


def _rebase(edit: Edit, todo: Inlining) -> None:
    """Rebase SB addresses, and place new storage behind the function's own (rule N8)."""
    batch, base = todo.batch, np.append(0, todo.binding.base)
    edit.follow(["locations"])
    if base.any():
        addr = batch.column("locations", "addr")
        on_chip = batch.column("locations", "type") == vocabulary.MEM_SB
        edit.increase("locations", "addr", base, on_chip & (addr != NULL_INT))
        absent = on_chip & (addr == NULL_INT)
        if absent.any():
            runs = edit.runs["locations"]
            source, added = runs.source(), runs.spread(base[runs.copy])
            rows = np.flatnonzero(absent[source] & (added != 0))
            layout_ = edit.at("locations", "layout", source[rows])
            edit.settle("locations", "addr", rows, added[rows])
            edit.settle("locations", "layout", rows, layouts.add_key(edit.ir.pools.layouts, layout_, "addr"))
    offset = _ordinal_offsets(todo)
    for table in ("sets", "registers"):
        edit.increase(table, "ordinal", offset)


def _ordinal_offsets(todo: Inlining) -> Array:
    """Return what is added to the places among allocations of each copy's storage."""
    batch, sites, bodies = todo.batch, todo.sites, todo.bodies
    count = batch.ir.count("functions")
    allocations, of_body = np.zeros(count, np.int64), np.zeros(len(bodies.callee), np.int64)
    for table in ("sets", "registers"):
        rows = batch.ir.tables[table]
        np.maximum.at(allocations, rows["function_id"], rows["ordinal"] + 1)
        first, length = bodies.windows[table]
        body, _ = groups(length)
        np.maximum.at(of_body, body, batch.column(table, "ordinal")[expand(first, length)] + 1)
    before = starts(of_body[todo.body])[:-1]
    first = np.searchsorted(sites.function, sites.function)
    return np.append(0, allocations[sites.function] + before - before[first])


def _settle_foreign(edit: Edit, todo: Inlining) -> None:
    """Let clones name what another function owns as the rows themselves do (rules R2, N11)."""
    if not edit.rows("references"):
        return
    for table, key in (("locations", "location_id"), ("sets", "set_id")):
        rows = todo.bodies.foreign(todo.batch, table)
        if not len(rows):
            continue
        named = todo.batch.column("operands", key)
        foreign = np.zeros(len(named), bool)
        foreign[rows] = True
        edit.instead("operands", key, np.where(foreign, -1, named))
        edit.follow(["operands"])
        runs, found = edit.runs["operands"], edit.places(table)
        source = runs.source()
        at = np.flatnonzero(foreign[source] & runs.spread(runs.copy > 0))
        target = named[source[at]]
        edit.settle("operands", key, at, target if found is None else found[0][target])


def _settle_operands(out: IR, edit: Edit, todo: Inlining) -> IR:
    """Let the set written beside a location be the location's set, in clones where it was not (rule R2)."""
    batch = todo.batch
    location, named = batch.column("operands", "location_id"), batch.column("operands", "set_id")
    lost = batch.column("operands", "set_name") if batch.present("operands", "set_name") else named
    differs = np.zeros(len(location), np.int8)
    mark_differing(location, batch.column("locations", "set_id"), named, lost, differs)
    if not differs.any():
        return out
    operands, runs = out.tables["operands"], edit.runs["operands"]
    rows = np.flatnonzero((differs[runs.source()] == 1) & runs.spread(runs.copy > 0))
    set_id, set_name = operands["set_id"].copy(), operands["set_name"].copy()
    set_id[rows] = out.tables["locations"]["set_id"][operands["location_id"][rows]]
    set_name[rows] = -1
    return out.replace(operands=operands.replace(set_id=set_id, set_name=set_name))
