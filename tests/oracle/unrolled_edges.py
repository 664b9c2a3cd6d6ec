"""Dependencies of unrolled instructions (U7)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.edit import entry_ref, lists_of, with_ref
from tests.oracle.expressions import Scope, evaluate
from tests.oracle.graph import RELATIONS, Instruction, Ref, map_refs
from tests.oracle.joins import Lists, join_over_gaps
from tests.oracle.outcome import PassFailure

Index = tuple[int, ...]


@dataclass(eq=False)
class Instance:
    """One instruction of the flat result; `index` has the iteration numbers of the loops around `source`."""

    source: Instruction
    index: Index
    scope: Scope
    node: Instruction
    edges: Lists = field(default_factory=dict)
    renamed: dict[str, Any] = field(default_factory=dict)
    break_out: Any = None
    """Of a `Break` the lowered loop that it leaves."""


@dataclass(eq=False)
class Edge:
    """An edge of an instance: `relation` is that of the result, `written` that of the file.

    It names its target by row and iteration. Which instances these are is asked for later: for a loop it
    depends on the edges inside that loop.
    """

    relation: str
    written: str
    entry: Any
    on: Instruction | None = None
    index: Index = ()


class UnrolledEdges:
    """Finds for every instance the instances that it depends on."""

    def __init__(self, plan: Any, instances: list[Instance]) -> None:
        self.trips: dict[Instruction, range] = plan.trips
        self.loops_of: dict[Instruction, tuple[Instruction, ...]] = plan.loops_of
        self.is_empty: Callable[[Instruction], bool] = plan.is_empty
        self.lowered: dict[Instruction, Any] = plan.lowered
        self.order = {each: place for place, each in enumerate(plan.function.instructions())}
        self.instances = instances
        self.shard_id: int = plan.shard_id
        self.lists = {each: join_over_gaps(lists_of(each), self.gap_lists) for each in self.loops_of}
        self.at = {(instance.source, instance.index): instance for instance in instances}
        self.ends: dict[tuple[Instruction, Index], tuple[list[Instance], list[Instance]]] = {}

    def gap_lists(self, target: Any) -> Lists | None:
        """U7: a loop without trips joins; so does one whose body leaves nothing."""
        if target in self.trips and self.is_empty(target):
            return lists_of(target)
        return None

    def give(self) -> None:
        """Fill in the edges of all instances, in the order plain, loop-carried, unroll."""
        for instance in self.instances:
            edges = self.edges_of(instance, None)
            instance.edges = {relation: [] for relation in RELATIONS}
            for written in RELATIONS:
                for edge in edges:
                    if edge.written != written:
                        continue
                    entries = instance.edges[edge.relation]
                    if edge.on is None:
                        entries.append(edge.entry)
                    for target in self.targets(edge):
                        entries.append(with_ref(edge.entry, Ref(target.source.name, target.node)))
            instance.renamed = self.renamed(instance)

    def edges_of(self, instance: Instance, within: Instruction | None) -> list[Edge]:
        """U7: an instance's own edges, and those of each loop of which it is a root, the inner loop's first.

        With `within`, only of the loops strictly inside that loop.
        """
        edges = self.own_edges(instance.source, instance.index)
        loops = self.loops_of[instance.source]
        for depth in reversed(range(len(loops))):
            if loops[depth] is within:
                break
            outer = instance.index[:depth]
            if instance in self.ends_of(loops[depth], outer)[0]:
                edges += self.own_edges(loops[depth], outer)
        return edges

    def own_edges(self, source: Instruction, index: Index) -> list[Edge]:
        edges = []
        for written in RELATIONS:
            for entry in self.lists[source][written]:
                edges += self.resolve(source, index, written, entry)
        return edges

    def resolve(self, source: Instruction, index: Index, written: str, entry: Any) -> list[Edge]:
        """U7: what one entry of `source` in one iteration means; nothing if its target has no instance."""
        on: Any = entry_ref(entry).target
        if written == "unroll_dependencies" and self.has_predicates(entry):
            raise PassFailure(
                "predicated_dependency",
                f"the edge on `{entry_ref(entry).raw}` has predicates",
                instruction=source.name,
            )
        if on is None:
            # R5: a name that did not resolve stays.
            return [Edge(written, written, entry)]
        if not self.has_instances(on):
            return []
        relation, target_index, result = "dependencies", None, self.as_plain(entry)
        common = self.common_depth(source, on)
        if written == "dependencies":
            target_index, result = self.plain_index(on, common, index), entry
        elif written == "unroll_dependencies":
            target_index = self.unroll_index(source, index, on, entry)
        elif common == 0 or self.loops_of[source][common - 1] in self.lowered:
            # No loop to count iterations of: the edge stays loop-carried.
            relation, target_index, result = written, self.plain_index(on, 0, index), entry
        else:
            carried = index[common - 1] - distance_of(source, entry)
            if carried >= 0:
                target_index = self.plain_index(on, common, (*index[: common - 1], carried))
        if target_index is None:
            return []
        return [Edge(relation, written, result, on, target_index)]

    def has_predicates(self, entry: Any) -> bool:
        return isinstance(entry, list) and len(entry) > 3 and bool(entry[3])

    def as_plain(self, entry: Any) -> Any:
        """U7: a plain edge has a name and a kind; bare names stay bare."""
        return entry[:2] if isinstance(entry, list) else entry

    def has_instances(self, on: Instruction) -> bool:
        """Whether a row is seen: one inside a loop without trips is not."""
        return on in self.loops_of and not (on in self.trips and self.is_empty(on))

    def common_depth(self, source: Instruction, on: Instruction) -> int:
        """The number of loops that enclose both."""
        depth = 0
        for one, other in zip(self.loops_of[source], self.loops_of[on], strict=False):
            if one is not other:
                break
            depth += 1
        return depth

    def plain_index(self, on: Instruction, common: int, index: Index) -> Index:
        """U7: the same values of the common loops, the last iteration of the others."""
        alone = self.loops_of[on][common:]
        return (*index[:common], *(len(self.trips[loop]) - 1 for loop in alone))

    def unroll_index(self, source: Instruction, index: Index, on: Instruction, entry: Any) -> Index | None:
        """U7: the index values of the target, from expressions over the loops of the source."""
        expressions = (entry[2] if isinstance(entry, list) and len(entry) > 2 else None) or []
        loops = self.loops_of[on]
        if len(expressions) != len(loops):
            raise PassFailure(
                "index_rank_mismatch",
                f"the edge on `{on.name}` has {len(expressions)} indices for {len(loops)} loops",
                instruction=source.name,
            )
        if any(loop in self.lowered for loop in loops) and self.order[on] >= self.order[source]:
            raise PassFailure(
                "dynamic_loop", f"which iteration of `{on.name}` is meant is not known", instruction=source.name
            )
        scope = self.scope_of(source, index)
        found = []
        for expression, loop in zip(expressions, loops, strict=True):
            if loop in self.lowered:
                found.append(0)
                continue
            value = evaluate(expression, scope, "runtime_address")
            if value not in self.trips[loop]:
                return None
            found.append(self.trips[loop].index(value))
        return tuple(found)

    def scope_of(self, source: Instruction, index: Index) -> Scope:
        scope = Scope(shard_id=self.shard_id)
        for loop, number in zip(self.loops_of[source], index, strict=True):
            axis = (loop.obj.get("LoopAxis") or loop.obj.get("DynamicForLoopAxis") or {}).get("name")
            if loop not in self.lowered:
                scope = scope.inside(axis, self.trips[loop][number])
            elif axis is not None:
                scope = scope.inside(axis, self.lowered[loop].register("LoopAxis"))
        return scope

    def targets(self, edge: Edge) -> list[Instance]:
        """An instruction's instance, or a loop's sinks in that outer iteration."""
        if edge.on is None:
            return []
        if edge.on in self.trips:
            return self.ends_of(edge.on, edge.index)[1]
        return [self.at[edge.on, edge.index]]

    def members(self, loop: Instruction, outer: Index) -> list[Instance]:
        depth = len(outer)
        return [
            instance
            for instance in self.instances
            if loop in self.loops_of[instance.source] and instance.index[:depth] == outer
        ]

    def ends_of(self, loop: Instruction, outer: Index) -> tuple[list[Instance], list[Instance]]:
        """N14 over all three relations: members without an edge inside; members on which no other depends.

        Edges on the loop itself or on a loop around it are not inside its body.
        """
        if (loop, outer) not in self.ends:
            members = self.members(loop, outer)
            dependent: set[Instance] = set()
            depended_on: set[Instance] = set()
            for member in members:
                for edge in self.edges_of(member, loop):
                    if edge.on is None or loop not in self.loops_of[edge.on]:
                        continue
                    inside = [target for target in self.targets(edge) if target in members]
                    if inside:
                        dependent.add(member)
                    depended_on.update(target for target in inside if target is not member)
            roots = [member for member in members if member not in dependent]
            sinks = [member for member in members if member not in depended_on]
            self.ends[loop, outer] = roots, sinks
        return self.ends[loop, outer]

    def renamed(self, instance: Instance) -> dict[str, Any]:
        """R0: other references to instructions follow the plain rule, where the target has an instance."""

        def follow(ref: Ref) -> Ref:
            on: Any = ref.target
            if not isinstance(on, Instruction):
                return Ref(ref.raw, on)
            if not self.has_instances(on) or on in self.trips:
                return Ref(ref.raw)
            index = self.plain_index(on, self.common_depth(instance.source, on), instance.index)
            return Ref(ref.raw, self.at[on, index].node)

        obj = instance.node.obj
        return {key: map_refs(obj[key], follow) for key in ("sync_info", "associate_branch") if key in obj}


def distance_of(source: Instruction, entry: Any) -> int:
    """U7: the optional third item, a number or a list of one; at least 1, default 1."""
    written = entry[2] if isinstance(entry, list) and len(entry) > 2 else None
    if isinstance(written, list):
        written = written[0] if written else None
    distance = 1 if written is None else written
    if not isinstance(distance, int) or distance < 1:
        raise PassFailure(
            "bad_distance",
            f"the edge on `{entry_ref(entry).raw}` has distance {distance}",
            instruction=source.name,
        )
    return distance
