"""Dependencies across an inlined call-site (rule N14).

Inside a body edges are cloned with it. Around it, an edge of the call-site becomes an edge of every *root* (a clone
without an edge inside the body), and an edge on it becomes edges on every *sink* (a clone that no other depends on).
The rows concerned get new lists of edges, computed here for all call-sites at once; all other edges are copied in
runs.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.passes.inlining import empty_bodies
from arrowir.passes.inlining.extended import Extended
from arrowir.passes.inlining.kernel_bodies import Bodies
from arrowir.runs import Runs, concat_tables, expand
from arrowir.store import Array, Table, children, distinct, in_parts, pointing, starts
from arrowir_kernels import list_unmarked, mark_ends, mark_rows

MANY = 8
"""More roots or sinks than this are gathered in one NoOp, so that cost stays linear."""


LAST = np.iinfo(np.int32).max
"""Stands for the instruction of added edges, which is settled later; larger than all others, to keep the order."""


class Dependencies:
    """The dependency table of a batch, and behind it rows that are added for edges that are new."""

    def __init__(self, batch: Extended) -> None:
        self._batch, self._more = batch, Table.empty("dependencies")
        self.instructions = batch.count("instructions")

    def extend(self, added: Table) -> None:
        """Put rows behind the others."""
        self._more = concat_tables([self._more, added])

    def __len__(self) -> int:
        return self._batch.count("dependencies") + len(self._more)

    def pick(self, name: str, rows: Array) -> Array:
        """Return the cells of a column in some rows, added ones too."""
        return in_parts(self._batch.column("dependencies", name), self._more[name], rows)

    @cached_property
    def instruction_id(self) -> Array:
        """The instruction that waits, in rising order; of the batch's rows."""
        return self._batch.column("dependencies", "instruction_id")

    @cached_property
    def on_instruction_id(self) -> Array:
        """The instruction that it waits for; of the batch's rows."""
        return self._batch.column("dependencies", "on_instruction_id")

    def of(self, first: Array, count: Array | int = 1) -> tuple[Array, Array]:
        """Return where the edges of runs of instructions begin, and how many there are."""
        return children(self.instruction_id, first, count)


@dataclass
class Ends:
    """The roots and sinks of bodies, as numbers within their body, body after body (rule N14)."""

    clones: Array
    """Number of clones that each body gives."""
    root_begin: Array
    roots: Array
    sink_begin: Array
    sinks: Array
    thinned: tuple[Array, Array]
    """(body, number) of instructions that lose an edge on the dropped Return."""


def find_ends(batch: Extended, bodies: Bodies, edges: Dependencies) -> Ends:
    """Find the roots and sinks of each body: what is made beside its clones is neither."""
    rows, count = bodies.rows, bodies.count
    base = starts(rows)
    first, number = edges.of(bodies.start, rows)
    waits, waited, lost = np.zeros(base[-1], np.int8), np.zeros(base[-1], np.int8), np.zeros(len(edges), np.int8)
    mark_ends(
        bodies.start, count, rows, first, number, edges.instruction_id, edges.on_instruction_id,
        base, waits, waited, lost,
    )  # fmt: skip
    # What is no clone is neither root nor sink: final Returns, and what is made beside clones.
    clones, made = count.copy(), bodies.of_rows(batch.made)
    of, row = made[made >= 0], batch.made[made >= 0] - bodies.start[made[made >= 0]]
    of, row = of[row < count[of]], row[row < count[of]]
    np.subtract.at(clones, of, 1)
    none = np.concatenate((expand(base[:-1] + count, rows - count), base[of] + row))
    waits[none] = waited[none] = 1
    ends: list[Array] = []
    for mask in (waits, waited):
        begin, numbers = np.empty_like(base), np.empty(base[-1], np.int64)
        ends += [begin, numbers[: list_unmarked(base, mask, begin, numbers)]]
    waiting = edges.instruction_id[np.flatnonzero(lost)]
    of = bodies.of_rows(waiting)
    return Ends(clones, *ends, thinned=(of, waiting - bodies.start[of]))


@dataclass
class CallEdges:
    """What the edges around each call-site ask for: helpers, and how many edges there are."""

    count: Array
    """Edges that the call-site has."""
    waited: Array
    """Whether anything depends on it."""
    start: Array
    """Whether a `_start` gathers its roots."""
    done: Array
    """Whether a `_done` gathers its sinks."""


def survey(ir: IR, row: Array, body: Array, ends: Ends) -> CallEdges:
    """Decide which call-sites get gatherers; `row` and `body` are the instruction and the body of each."""
    edges = ir.tables["dependencies"]
    _, count = children(edges["instruction_id"], row)
    depended = np.zeros(ir.count("instructions"), bool)
    mark_rows(edges["on_instruction_id"], depended)
    waited = depended[row]
    roots, sinks = np.diff(ends.root_begin)[body], np.diff(ends.sink_begin)[body]
    return CallEdges(count, waited, (roots > MANY) & (count > 1), (sinks > MANY) & waited)


@dataclass
class Lists:
    """New edge lists, one item per edge: whose it is, in which relation, its place, the row it is made of."""

    owner: Array
    """New row of the instruction."""
    order: Array
    source: Array
    """The dependency row (old or added) that gives kind, extras and name."""
    copy: Array
    on: Array
    """New row of what it waits for; -1 where a name stays unresolved."""

    @classmethod
    def join(cls, parts: "list[Lists]") -> "Lists":
        """Put lists behind each other."""
        return cls(
            *(np.concatenate([getattr(p, n) for p in parts]) for n in ("owner", "order", "source", "copy", "on"))
        )


@dataclass
class Places:
    """Where things are in the new instruction table."""

    own: Array
    """New row of each old row; -1 for call-sites."""
    first: Array
    """New row of each call-site's first clone."""
    head: Array
    """Clones of each call-site before its `_done`."""
    start: Array
    """New row of each call-site's `_start`, or -1."""
    done: Array
    site: Array
    """The call-site at each old row, or -1."""
    body: Array

    def clone(self, site: Array, number: Array) -> Array:
        """Return the new row of instructions of bodies."""
        return self.first[site] + number + ((number >= self.head[site]) & (self.done[site] >= 0))


def rewrite(
    edit: Edit,
    bodies: Bodies,
    ends: Ends,
    edges: Dependencies,
    calls: CallEdges,
    rows: Array,
    places: Places,
    ordered: Array,
) -> tuple[Array, Array, Array]:
    """Plan the new dependency table: runs of old edges, and new lists for the rows concerned.

    Parameters
    ----------
    edit
        The edit, whose instruction runs are known.
    bodies, ends, edges, calls, places
        What was found so far.
    rows
        Instruction of each call-site.
    ordered
        Added rows of the dependency table with the plain `Ordered` edge, one per call-site: the edges of and on
        helpers are copies of it.

    Returns
    -------
    owners, had, has
        New rows of the instructions whose lists were replaced, and as bit masks over relations whether lists were
        there before and are now.
    """
    sites = np.arange(len(rows))
    body = places.body
    waiting, touched = _of_callers(edges, rows, places)
    inherited = _inherited(ends, edges, rows, calls, places)
    lists = _reach(Lists.join([waiting, inherited]), ends, edges, rows, calls, places, edit)

    parts = [lists]
    with_start, with_done = sites[calls.start], sites[calls.done]
    for chosen, begin, gathered, of_helper in (
        (with_start, ends.root_begin, ends.roots, False),
        (with_done, ends.sink_begin, ends.sinks, True),
    ):
        first, number = begin[body[chosen]], np.diff(begin)[body[chosen]]
        site = np.repeat(chosen, number)
        end = places.clone(site, gathered[expand(first, number)])
        helper = (places.done if of_helper else places.start)[site]
        owner, on = (helper, end) if of_helper else (end, helper)
        parts.append(Lists(owner, np.arange(len(site)), ordered[site], np.zeros(len(site), np.int64), on))
    thin, thin_owner = _thinned(bodies, ends, edges, places)
    parts.append(thin)
    lists = Lists.join(parts)
    order = np.lexsort((lists.order, edges.pick("relation", lists.source), lists.owner))
    lists = Lists(*(getattr(lists, n)[order] for n in ("owner", "order", "source", "copy", "on")))

    owners = distinct(np.concatenate((lists.owner, touched, thin_owner)))
    runs, new_rows = _runs(edit.runs["instructions"], edges, owners, lists)
    edit.keep("dependencies", runs)
    edit.settle("dependencies", "instruction_id", new_rows, lists.owner)
    edit.settle("dependencies", "on_instruction_id", new_rows, lists.on)
    has = _masks(owners, lists.owner, edges.pick("relation", lists.source))
    return owners, _had(edit.runs["instructions"], edges, owners), has


def _of_callers(edges: Dependencies, rows: Array, places: Places) -> tuple[Lists, Array]:
    """Return all edges of the callers' instructions that depend on a call-site, as they are (with old rows in `on`)."""
    called = np.zeros(edges.instructions, bool)
    called[rows] = True
    owner = distinct(edges.instruction_id[pointing(edges.on_instruction_id, called)])
    owner = owner[places.own[owner] >= 0]
    first, number = edges.of(owner)
    row = expand(first, number)
    lists = Lists(
        places.own[edges.instruction_id[row]].astype(np.int64),
        row,
        row,
        np.zeros(len(row), np.int64),
        edges.on_instruction_id[row].astype(np.int64),
    )
    return lists, places.own[owner].astype(np.int64)


def _inherited(ends: Ends, edges: Dependencies, rows: Array, calls: CallEdges, places: Places) -> Lists:
    """Return the call-sites' own edges, for each root or for the `_start` (with old rows in `on`)."""
    sites = np.flatnonzero((calls.count > 0) & (ends.clones[places.body] > 0))
    roots = np.where(calls.start[sites], 1, np.diff(ends.root_begin)[places.body[sites]])
    heir_site = np.repeat(sites, roots)
    number = np.arange(len(heir_site)) - np.repeat(starts(roots)[:-1], roots)
    root = (
        ends.roots[np.minimum(ends.root_begin[places.body[heir_site]] + number, max(len(ends.roots) - 1, 0))]
        if len(ends.roots)
        else number
    )
    heir = np.where(calls.start[heir_site], places.start[heir_site], places.clone(heir_site, root))
    first, n = edges.of(rows[heir_site])
    row = expand(first, n)
    return Lists(
        np.repeat(heir, n), row, row, np.zeros(len(row), np.int64), edges.on_instruction_id[row].astype(np.int64)
    )


def _reach(
    lists: Lists, ends: Ends, edges: Dependencies, rows: Array, calls: CallEdges, places: Places, edit: Edit
) -> Lists:
    """Replace edges on call-sites by edges on their exits; `on` becomes new rows."""
    on_site = np.where(lists.on >= 0, places.site[np.maximum(lists.on, 0)] if len(places.site) else -1, -1)
    without = ends.clones[places.body] == 0
    if without[on_site[on_site >= 0]].any():
        gaps = np.where(without, rows, -1)
        lists = Lists(
            *empty_bodies.join(edit, edges, set(gaps[gaps >= 0].tolist()), lists.owner, lists.source, lists.on)
        )
        on_site = np.where(lists.on >= 0, places.site[np.maximum(lists.on, 0)], -1)
    begin, sinks = ends.sink_begin, ends.sinks
    to_site = on_site >= 0
    exits = np.ones(len(lists.on), np.int64)
    exits[to_site] = np.where(calls.done[on_site[to_site]], 1, np.diff(begin)[places.body[on_site[to_site]]])
    item = np.repeat(np.arange(len(exits)), exits)
    number = np.arange(len(item)) - np.repeat(starts(exits)[:-1], exits)
    site = on_site[item]
    on = np.where(lists.on[item] >= 0, places.own[np.maximum(lists.on[item], 0)] if len(places.own) else -1, -1).astype(
        np.int64
    )
    reached = np.flatnonzero(site >= 0)
    s = site[reached]
    by_done = calls.done[s]
    at = begin[places.body[s]] + np.where(by_done, 0, number[reached])
    sink = sinks[np.minimum(at, max(len(sinks) - 1, 0))] if len(sinks) else at
    on[reached] = np.where(by_done, places.done[s], places.clone(s, sink))
    return Lists(lists.owner[item], np.arange(len(item)), lists.source[item], lists.copy[item], on)


def _thinned(bodies: Bodies, ends: Ends, edges: Dependencies, places: Places) -> tuple[Lists, Array]:
    """Return the remaining edges of clones that lost one on a dropped Return, and those clones."""
    which, number = ends.thinned
    pairs = np.unique(np.stack((which, number), axis=1), axis=0) if len(which) else np.empty((0, 2), np.int64)
    site_order = np.argsort(places.body, kind="stable")
    first = np.searchsorted(places.body[site_order], pairs[:, 0])
    sites = np.searchsorted(places.body[site_order], pairs[:, 0] + 1) - first
    pair, site = np.repeat(np.arange(len(pairs)), sites), site_order[expand(first, sites)]
    x = bodies.start[pairs[pair, 0]] + pairs[pair, 1]
    owner = places.clone(site, pairs[pair, 1])
    begin, n = edges.of(x)
    row, owner_of, site_of = expand(begin, n), np.repeat(owner, n), np.repeat(site, n)
    y = edges.on_instruction_id[row] - bodies.start[places.body[site_of]]
    kept = y < bodies.count[places.body[site_of]]
    on = places.clone(site_of, y)
    return Lists(owner_of[kept], row[kept], row[kept], site_of[kept] + 1, on[kept]), owner


def _runs(instructions: Runs, edges: Dependencies, owners: Array, lists: Lists) -> tuple[Runs, Array]:
    """Cut the instruction runs at rows with new lists; return the edge runs and the new rows of the lists' edges."""
    begins = instructions.begins
    breaks = np.flatnonzero(np.diff(owners) != 1)
    first = owners[np.concatenate(([0], breaks + 1))] if len(owners) else owners
    last = owners[np.concatenate((breaks, [len(owners) - 1]))] + 1 if len(owners) else owners
    cuts = distinct(np.concatenate((begins, first, last)))
    at, end = cuts[:-1], cuts[1:]
    run = np.searchsorted(begins, at, side="right") - 1
    replaced = np.zeros(len(at), bool)
    if len(first):
        stretch = np.searchsorted(first, at, side="right") - 1
        replaced = (stretch >= 0) & (at < last[np.maximum(stretch, 0)])
    source = instructions.start[run] + at - begins[run]
    start, length = edges.of(source, end - at)
    copy = instructions.copy[run]
    shift = at - source
    old = ~replaced
    # The new lists' edges, one run each: where they stand among the old ones follows from their owners.
    order = np.argsort(np.concatenate((at[old], lists.owner)), kind="stable")
    start = np.concatenate((start[old], lists.source))[order]
    length = np.concatenate((length[old], np.ones(len(lists.owner), np.int64)))[order]
    copy = np.concatenate((copy[old], lists.copy))[order]
    shift = np.concatenate((shift[old], np.zeros(len(lists.owner), np.int64)))[order]
    new_rows = starts(length)[:-1][order >= old.sum()]
    return Runs.of(start, length, copy, shift), new_rows


def _masks(owners: Array, owner: Array, relation: Array) -> Array:
    mask = np.zeros(len(owners), np.int64)
    np.bitwise_or.at(mask, np.searchsorted(owners, owner), 1 << relation.astype(np.int64))
    return mask


def _had(instructions: Runs, edges: Dependencies, owners: Array) -> Array:
    """Return which relations the rows had edges in before."""
    run = np.searchsorted(instructions.begins, owners, side="right") - 1
    first, n = edges.of(instructions.start[run] + owners - instructions.begins[run])
    item = np.repeat(np.arange(len(owners)), n)
    mask = np.zeros(len(owners), np.int64)
    np.bitwise_or.at(mask, item, 1 << edges.pick("relation", expand(first, n)).astype(np.int64))
    return mask
