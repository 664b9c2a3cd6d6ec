"""Dependencies of unrolled instructions (rule U7)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from arrowir import expressions, extras
from arrowir import vocabulary as vocab
from arrowir.passes.unrolling.faults import Fault, Faults, first_places
from arrowir.passes.unrolling.gap_edges import source_edges
from arrowir.passes.unrolling.iterations import NONE, Iterations, Links
from arrowir.passes.unrolling.loops import of_each
from arrowir.passes.unrolling.values import CHUNK, LoopValues, Subjects
from arrowir.runs import expand
from arrowir.store import Array

MAX_EDGES = 100_000_000
"""Edges of and on loops that may come of one function: up to one for each pair of iterations of two loops."""

_OWN = 2**30
"""Deeper than any loop: the level of what is no loop's."""

_PLAIN, _CARRIED, _STAYS, _INDEXED, _UNRESOLVED, _GONE = range(6)


@dataclass
class Edges:
    """The edges of the result, in order."""

    owner: Array
    """Row of the result."""
    source: Array
    """The source edge that each comes from."""
    on: Array
    """Row of the result, -1 where the name did not resolve."""


@dataclass
class _Found:
    """Edges of loops, in each instance of the block that the loop stands in."""

    owner: Array
    """The instance."""
    source: Array
    target: Array
    """The instance of the block of what they are on; -1 for unresolved names."""

    def pick(self, which: Array) -> "_Found":
        return _Found(self.owner[which], self.source[which], self.target[which])


class UnrolledEdges:
    """Works out the edges of all instances.

    Parameters
    ----------
    iterations
        The instances.
    shard_id
        The value of the shard.
    faults
        Gets what is wrong.
    """

    def __init__(self, iterations: Iterations, shard_id: int, faults: Faults) -> None:
        self.iterations = iterations
        self.loops = iterations.loops
        self.ir = self.loops.ir
        self.faults = faults
        self.values = LoopValues(iterations, shard_id)
        self._waiting: list[tuple[Array, Array, list[tuple[str, str]]]] = []
        """Faults of loops' edges: edges, instances, code and message; a loop without roots meets none."""
        self.alive = iterations.count[self.loops.block] > 0
        gap = np.zeros(len(self.alive), bool)
        seen = self.loops.seen[self.loops.block[self.loops.rows]]  # also in a loop of which nothing comes
        gap[self.loops.rows] = seen & iterations.leaves_nothing
        looked_at = self.loops.looked_at[self.loops.block]
        self.edges = source_edges(self.ir, gap, looked_at & self.alive)
        self.has_instances = self.alive & ~gap
        self.edges = self.edges.pick(self.has_instances[self.edges.owner])
        self._look_at_edges(looked_at)

    # -- edges as written ------------------------------------------------------------------------------------

    def _look_at_edges(self, looked_at: Array) -> None:
        """Say of each source edge what becomes of it."""
        edges, iterations = self.edges, self.iterations
        resolved = edges.on >= 0
        goes = resolved & ~self.has_instances[np.maximum(edges.on, 0)] if len(edges) else resolved
        self.mode = np.where(resolved, _PLAIN, _UNRESOLVED)
        self.mode[goes] = _GONE
        self.linked = np.flatnonzero(resolved & ~goes)
        self.links = Links(iterations, self.loops.block[edges.owner[self.linked]], edges.on[self.linked])
        self.link = np.full(len(edges), -1, np.int64)
        self.link[self.linked] = np.arange(len(self.linked))
        relation = edges.relation[self.linked]
        opaque = ~looked_at[edges.owner[self.linked]]
        # Iterations of a lowered loop are not told apart: an edge over one stays as it is.
        lowered = iterations.lowered_depth[self.loops.block[edges.owner[self.linked]]]
        carried = (relation == vocab.RELATION_LOOP_CARRIED) & (self.links.depth > lowered)
        modes = np.full(len(self.linked), _PLAIN)
        modes[(relation == vocab.RELATION_LOOP_CARRIED) | opaque] = _STAYS
        modes[carried & ~opaque] = _CARRIED
        modes[(relation == vocab.RELATION_UNROLL) & ~opaque] = _INDEXED
        self.mode[self.linked] = modes
        self.cut = (self.mode == _CARRIED) | (self.mode == _INDEXED)
        """Edges that become plain ones, with a name and a kind alone."""
        self.relation = np.where(self.cut, vocab.RELATION_PLAIN, edges.relation)
        self._look_at_extras(looked_at[edges.owner])

    def _look_at_extras(self, looked_at: Array) -> None:
        edges, pool = self.edges, self.ir.pools.extras
        self.distance = np.ones(len(edges), np.int64)
        some = np.flatnonzero(self.mode == _CARRIED)
        if len(some):
            self.distance[some] = of_each(edges.extra[some], len(pool), lambda i: _distance(pool[i]), absent=1)
            for k in some[self.distance[some] < 1].tolist():
                what = extras.parse(pool[int(edges.extra[k])])[1]
                self._edge_fault(
                    k, "bad_distance", f"has distance {extras.dump(what)}; it must be an integer of at least 1"
                )
        some = np.flatnonzero((edges.relation == vocab.RELATION_UNROLL) & looked_at)
        if len(some):
            predicated = of_each(edges.extra[some], len(pool), lambda i: _has_predicates(pool[i]))
            for k in some[predicated > 0].tolist():
                self._edge_fault(k, "predicated_dependency", "has predicates; lower them first")
        some = np.flatnonzero(self.mode == _INDEXED)
        if len(some):
            found = of_each(edges.extra[some], len(pool), lambda i: len(_indices(pool[i])))
            wanted = self.iterations.depth[self.loops.block[edges.on[some]]]
            for k, has, needs in zip(some.tolist(), found.tolist(), wanted.tolist(), strict=True):
                if has != needs:
                    loops = "1 loop" if needs == 1 else f"{needs} loops"
                    self._edge_fault(
                        k, "index_rank_mismatch", f"has {has} index expressions for {loops}; give one for each loop"
                    )
            if self.iterations.has_lowered:
                self._look_at_lowered(some[found == wanted])

    def _look_at_lowered(self, some: Array) -> None:
        """Refuse index expressions on what stands further on, where a lowered loop is around that.

        Which iteration they mean is known at run time only. Where the instruction stands before, the edge is on its
        latest execution, which comes after all others.
        """
        edges, position = self.edges, self.ir.array("instructions", "position")
        lowered = self.iterations.lowered_depth[self.loops.block[edges.on[some]]] > 0
        ahead = position[edges.on[some]] >= position[edges.owner[some]]
        for k in some[lowered & ahead].tolist():
            message = (
                "has an index for a loop of run time, and stands further on: which iteration is meant is not known"
            )
            self._edge_fault(k, "dynamic_loop", message)

    def _edge_fault(self, k: int, code: str, message: str) -> None:
        """Note a fault that an edge has in each instance: it is met in the first."""
        block = int(self.loops.block[self.edges.owner[k]])
        first = int(self.iterations.first[block])
        self.mode[k] = _GONE
        if self.iterations.is_loop[self.edges.owner[k]]:
            instances = np.arange(first, first + int(self.iterations.count[block]))
            self._waiting.append((np.full(len(instances), k), instances, [(code, message)] * len(instances)))
        else:
            self._fault(k, first, code, message)

    def _fault(self, k: int, instance: int, code: str, message: str) -> None:
        """Note a fault of an edge in an instance; edges of a loop are looked at after those of what it holds."""
        owner, iterations = int(self.edges.owner[k]), self.iterations
        place = int(iterations.begin[instance] + iterations.within[owner])
        after = 0
        if iterations.is_loop[owner]:
            place += int(self.loop_rows(np.array([owner]))[0]) - 1
            after = 1 + int(iterations.depth.max()) - int(iterations.depth[self.loops.block[owner]])
        names, on = self.ir.pools.names, int(self.edges.on[k])
        name = names[int(self.edges.name[k])] if on < 0 else self.ir.tables["instructions"].text()[on]
        self.faults.add(Fault((1, place, after, k), code, f"the dependency on `{name}` {message}", owner))

    def _settle(self, ends: "_Ends") -> None:
        """Note the faults of loops' edges: they are met where the loop has a root, which they would go to."""
        for source, instance, found in self._waiting:
            count = ends.roots(self.edges.owner[source], instance)[1]
            for k in np.flatnonzero(count)[:1].tolist():
                self._fault(int(source[k]), int(instance[k]), *found[k])

    def loop_rows(self, rows: Array) -> Array:
        """Return how many rows come of loop instructions in one instance of their block."""
        return self.iterations.of_row[rows]

    # -- edges of instances ----------------------------------------------------------------------------------

    def find(self) -> Edges:
        """Return all edges of the result; where faults were found it means nothing."""
        edges, iterations = self.edges, self.iterations
        keeps = np.flatnonzero(self.mode != _GONE)
        of_loop = iterations.is_loop[edges.owner[keeps]]
        own, of_loops = keeps[~of_loop], keeps[of_loop]
        on_loop = self._on_loop(own)
        found, looser = self._of_instructions(own[~on_loop]), own[on_loop]
        if not len(of_loops) and not len(looser) and not self._waiting:
            return self._ordered(found.owner, found.source, found.on, None)
        on_loops = self._of_instructions(looser)
        # Of loops: for each instance of the block that the loop stands in.
        block = self.loops.block[edges.owner[of_loops]]
        source = np.repeat(of_loops, iterations.count[block])
        instance = expand(iterations.first[block], iterations.count[block])
        target = self._targets(source, instance)
        some = (target >= 0) | (self.mode[source] == _UNRESOLVED)
        return self._spread(found, on_loops, _Found(instance[some], source[some], target[some]))

    def _of_instructions(self, source_edges: Array) -> "_Spread":
        """Return the edges of rows of the result; `on` is a row of it, or for a loop an instance of its block."""
        iterations = self.iterations
        first = np.searchsorted(self.edges.owner[source_edges], np.arange(len(self.alive) + 1))
        number = np.diff(first)
        owner: list[Array] = []
        source: list[Array] = []
        on: list[Array] = []
        for begin in range(0, iterations.rows if len(source_edges) else 0, CHUNK):
            rows = iterations.source[begin : begin + CHUNK]
            counts = number[rows]
            row = np.repeat(np.arange(begin, begin + len(rows)), counts)
            edge = source_edges[expand(first[rows], counts)]
            target = self._targets(edge, iterations.instance[row])
            some = np.flatnonzero((target >= 0) | (self.mode[edge] == _UNRESOLVED))
            if len(some) < len(edge):
                row, edge, target = row[some], edge[some], target[some]
            owner.append(row)
            source.append(edge)
            on.append(self._rows_at(edge, target))
        rows, edges, places = (
            np.concatenate(parts) if parts else np.zeros(0, np.int64) for parts in (owner, source, on)
        )
        return _Spread(rows, edges, places, np.full(len(rows), _OWN))

    def _on_loop(self, source: Array) -> Array:
        on = self.edges.on[source]
        return (on >= 0) & self.iterations.is_loop[np.maximum(on, 0)]

    def _targets(self, source: Array, instance: Array) -> Array:
        """Return the instance that each edge is on; -1 where there is none."""
        target = np.full(len(source), -1, np.int64)
        mode = self.mode[source]
        simple = (mode == _PLAIN) | (mode == _STAYS)
        if simple.all():
            return self.links.follow(self.link[source], instance)
        target[simple] = self.links.follow(self.link[source[simple]], instance[simple])
        carried = np.flatnonzero(mode == _CARRIED)
        if len(carried):
            edge = source[carried]
            target[carried] = self.links.follow(self.link[edge], instance[carried], self.distance[edge])
        indexed = np.flatnonzero(mode == _INDEXED)
        if len(indexed):
            target[indexed] = self._indexed(source[indexed], instance[indexed])
        return target

    @cached_property
    def _index_subjects(self) -> Subjects:
        """The edges with index expressions, as rows whose text computes something."""
        edges, pool = self.edges, self.ir.pools.extras
        chosen = np.flatnonzero(self.mode == _INDEXED)
        lowered = self.iterations.lowered_depth[self.loops.block[np.maximum(edges.on[chosen], 0)]]
        keys = edges.extra[chosen].astype(np.int64) << 16 | lowered
        distinct, place = np.unique(keys, return_inverse=True)
        programs = [_index_program(pool[key >> 16], key & 0xFFFF) for key in distinct.tolist()]
        number = np.zeros(len(edges), np.int64)
        number[chosen] = place
        block = self.loops.block[edges.owner]
        return Subjects("dependencies", chosen, edges.carrier, block, number, programs, edges.joined)

    def _indexed(self, source: Array, instance: Array) -> Array:
        """Return the instances that index expressions lead to; -1 where one is out of range."""
        target = np.full(len(source), -1, np.int64)
        for cells, program, result in self.values.run(self._index_subjects, source, instance):
            target[cells] = self._instances_at(source[cells], program, result)
            bad = (result.fault > 0) & (target[cells] == -2)
            self._value_faults(source[cells][bad], instance[cells][bad], result.fault[bad])
        return target

    def _instances_at(self, source: Array, program: expressions.Program, result: expressions.Run) -> Array:
        """Turn index values into instances; -1 where one is out of range, -2 where one failed before that."""
        iterations, loops = self.iterations, self.loops
        first = iterations.first[loops.block[self.edges.on[source]]]
        flat = np.zeros(len(source), np.int64)
        state = np.zeros(len(source), np.int64)
        for depth, step in enumerate(program.results, 1):
            failed = (result.fault > 0) & (result.at <= step)
            state[(state == 0) & failed] = -2
            loop = loops.owning_loop[iterations.block[iterations.at_depth(depth)[first]]]
            lower, stride, trips = loops.lower[loop], loops.stride[loop], iterations.trips[loop]
            value = result.whole(step)
            last = lower + (trips - 1) * stride
            inside = (value >= np.minimum(lower, last)) & (value <= np.maximum(lower, last))
            away = _away(value, inside, lower, last)
            inside &= (away % stride == 0).astype(bool)
            state[(state == 0) & ~inside] = -1
            flat = flat * trips + np.where(inside, away // stride, 0).astype(np.int64)
        return np.where(state < 0, state, first + flat)

    def _value_faults(self, source: Array, instance: Array, fault: Array) -> None:
        """Note the first fault of each function among index expressions."""
        owner = self.edges.owner[source]
        of_loop = self.iterations.is_loop[owner]
        place = self.iterations.place(owner, instance)
        for k in first_places(
            self.ir.array("instructions", "function_id")[owner[~of_loop]], place[~of_loop], source[~of_loop]
        ):
            at = int(np.flatnonzero(~of_loop)[k])
            self._fault(int(source[at]), int(instance[at]), *_explained(int(fault[at])))
        for k in np.unique(source[of_loop]).tolist():
            mine = source == k
            self._waiting.append((source[mine], instance[mine], [_explained(f) for f in fault[mine].tolist()]))

    # -- edges of and on loops -------------------------------------------------------------------------------

    def _spread(self, plain: "_Spread", on_loops: "_Spread", of_loops: _Found) -> Edges:
        """Give edges of loops to roots of their instances, and those on loops to the sinks, innermost loops first."""
        edges, depth_of = self.edges, self.iterations.depth[self.loops.block]
        target_loop = self._on_loop(of_loops.source)
        # How deep the outermost loop is that an edge involves: it is inside the bodies of loops further out alone.
        on_least = depth_of[edges.on[on_loops.source]]
        of_least = depth_of[edges.owner[of_loops.source]]
        of_least[target_loop] = np.minimum(of_least, depth_of[np.maximum(edges.on[of_loops.source], 0)])[target_loop]
        loops = [edges.owner[of_loops.source], edges.on[on_loops.source], edges.on[of_loops.source][target_loop]]
        loops += [edges.owner[source] for source, _, _ in self._waiting]
        involved = np.unique(np.concatenate(loops))
        ends = _Ends(self, involved)
        done = plain
        for depth in sorted(set(depth_of[involved].tolist()), reverse=True):
            ends.find(depth, done)
            mine = on_least == depth
            done = done.join(self._to_sinks(on_loops.owner[mine], on_loops.source[mine], on_loops.on[mine], ends))
            done = done.join(self._from_roots(of_loops.pick(of_least == depth), ends))
        self._settle(ends)
        return self._ordered(done.owner, done.source, done.on, done.level)

    def _rows_at(self, source: Array, target: Array) -> Array:
        """Return the rows that edges are on, given their instances; for a loop that instance, -1 for a mere name."""
        iterations, on = self.iterations, self.edges.on[source]
        if len(on) and on.min() >= 0 and not iterations.is_loop[on].any():
            return iterations.place(on, target)
        at = iterations.place(np.maximum(on, 0), np.maximum(target, 0))
        return np.where(on < 0, -1, np.where(self._on_loop(source), target, at))

    def _to_sinks(self, owner: Array, source: Array, instance: Array, ends: "_Ends") -> "_Spread":
        rows, count = ends.sinks(self.edges.on[source], instance)
        which = np.repeat(np.arange(len(count)), count)
        return _Spread(owner[which], source[which], rows, np.full(len(which), _OWN))

    def _from_roots(self, found: _Found, ends: "_Ends") -> "_Spread":
        """Give the edges of loops to their roots, on sinks where they are on loops."""
        on_loop = self._on_loop(found.source)
        simple, nested = found.pick(~on_loop), found.pick(on_loop)
        sinks = self._to_sinks(nested.owner, nested.source, nested.target, ends)
        owner = np.concatenate((simple.owner, sinks.owner))
        source = np.concatenate((simple.source, sinks.source))
        on = np.concatenate((self._rows_at(simple.source, simple.target), sinks.on))
        rows, count = ends.roots(self.edges.owner[source], owner)
        which = np.repeat(np.arange(len(count)), count)
        level = self.iterations.depth[self.loops.block[self.edges.owner[source]]]
        return _Spread(rows, source[which], on[which], level[which])

    def _ordered(self, owner: Array, source: Array, on: Array, level: Array | None) -> Edges:
        """Put edges in order: by row, relation, relation as written; own ones first, then those of inner loops."""
        relation = self.relation[source]
        if level is None:
            key = owner * 3 + relation
            if (key[1:] >= key[:-1]).all():
                return Edges(owner, source, on)
            order = np.argsort(key, kind="stable")
        else:
            order = np.lexsort((on, source, -level, self.edges.relation[source], relation, owner))
        return Edges(owner[order], source[order], on[order])


class TooManyEdges(Exception):  # noqa: N818
    """More edges than can be made; the arguments are a loop that they are of or on, and their number."""


@dataclass
class _Spread:
    """Edges between rows of the result; `level` is how deep the loop is whose edge it was, large for an own one."""

    owner: Array
    source: Array
    on: Array
    level: Array

    def join(self, other: "_Spread") -> "_Spread":
        return _Spread(
            *(np.concatenate((a, b)) for a, b in zip(vars(self).values(), vars(other).values(), strict=True))
        )


class _Ends:
    """Roots and sinks of loops: rows without an edge inside the loop, rows on which no other row in it depends."""

    def __init__(self, edges: UnrolledEdges, involved: Array) -> None:
        self.edges = edges
        self.involved = involved
        self._roots: dict[int, Array] = {}
        self._sinks: dict[int, Array] = {}

    def find(self, depth: int, done: _Spread) -> None:
        """Find the ends of the loops of a depth.

        `done` has the edges of instructions and deeper loops alone: those of and on these loops, or loops around them,
        do not count.
        """
        iterations, loops = self.edges.iterations, self.edges.loops
        of_depth = self.involved[iterations.depth[loops.block[self.involved]] == depth]
        needed = np.zeros(len(loops.rows), bool)
        needed[loops.number[of_depth]] = True
        # What comes of one loop in one outer iteration is known by the first instance of its body there.
        around = iterations.at_depth(depth + 1)
        at = np.maximum(around, 0)
        region = np.where(
            (around >= 0) & needed[loops.owning_loop[iterations.block[at]]], iterations.first_together(at), -1
        )
        of_row = np.where(iterations.marker == NONE, region[iterations.instance], -1)
        inside = np.flatnonzero((done.on >= 0) & (of_row[done.owner] >= 0))
        inside = inside[of_row[done.owner[inside]] == of_row[done.on[inside]]]
        dependent = np.zeros(iterations.rows, bool)
        dependent[done.owner[inside]] = True
        needed_by_others = np.zeros(iterations.rows, bool)
        others = inside[done.owner[inside] != done.on[inside]]
        needed_by_others[done.on[others]] = True
        self._roots[depth] = np.flatnonzero((of_row >= 0) & ~dependent)
        self._sinks[depth] = np.flatnonzero((of_row >= 0) & ~needed_by_others)

    def roots(self, loop_row: Array, instance: Array) -> tuple[Array, Array]:
        """Return the roots of loops, each in one instance of its block: all in one array, and how many each has."""
        return self._within(self._roots, loop_row, instance)

    def sinks(self, loop_row: Array, instance: Array) -> tuple[Array, Array]:
        """Return the sinks of loops, like `roots`."""
        return self._within(self._sinks, loop_row, instance)

    def _within(self, ends: dict[int, Array], loop_row: Array, instance: Array) -> tuple[Array, Array]:
        iterations, loops = self.edges.iterations, self.edges.loops
        begin = iterations.place(loop_row, instance)
        end = begin + self.edges.loop_rows(loop_row)
        depth = iterations.depth[loops.block[loop_row]]
        first, count = np.zeros(len(begin), np.int64), np.zeros(len(begin), np.int64)
        rows: list[Array] = []
        base = 0
        for each in np.unique(depth).tolist():
            mine = depth == each
            low, high = np.searchsorted(ends[each], begin[mine]), np.searchsorted(ends[each], end[mine])
            first[mine], count[mine] = low + base, high - low
            rows.append(ends[each])
            base += len(ends[each])
        if int(count.sum()) > MAX_EDGES:
            function = self.edges.ir.array("instructions", "function_id")[loop_row]
            totals = np.bincount(function, weights=count)
            if totals.max() > MAX_EDGES:
                most = int(totals.argmax())
                raise TooManyEdges(int(loop_row[function == most][0]), int(totals[most]))
        return (np.concatenate(rows)[expand(first, count)] if rows else np.zeros(0, np.int64)), count


def _explained(fault: int) -> tuple[str, str]:
    code = expressions.FAULTS[fault]
    return code, f"has an index that cannot be worked out: {expressions.EXPLAINED[code]}"


def _distance(text: str) -> int:
    """Return the distance of a loop-carried edge, 1 by default; 0 for one that is wrong."""
    written = extras.parse(text)[1:2]
    if written and isinstance(written[0], list):
        written = written[0]
    if not written or written[0] is None:
        return 1
    return min(written[0], 2**62) if isinstance(written[0], int) and written[0] >= 1 else 0


def _has_predicates(text: str) -> bool:
    parsed = extras.parse(text)
    return len(parsed) > 2 and bool(parsed[2])


def _indices(text: str) -> list[Any]:
    """Return the index expressions of an unroll dependency, parsed."""
    parsed = expressions.read(text)
    return parsed[1] if len(parsed) > 1 and isinstance(parsed[1], list) else []


def _index_program(text: str, lowered: int) -> expressions.Program:
    """Return what computes index values; those of lowered loops, the outer ones, count for nothing."""
    compiler = expressions.Compiler()
    indices = _indices(text)
    return compiler.program(
        [compiler.constant(0) if depth < lowered else compiler.value(index) for depth, index in enumerate(indices)]
    )


def _away(value: Array, inside: Array, lower: Array, last: Array) -> Array:
    """Return how far values are from the first one of their range; 0 for those outside."""
    if max(int(np.abs(a.astype(np.float64)).max(initial=0)) for a in (lower, last)) < 2**61:
        return np.where(inside, value - lower, 0)
    return np.where(inside, value, lower).astype(object) - lower.astype(object)


def cut_extra(text: str) -> str:
    """Return what follows the name in an edge that becomes a plain one: its kind."""
    return f"[{','.join(extras.items(text)[:1])}]"
