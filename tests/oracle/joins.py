"""Edges over something that leaves nothing behind: Y -> gap -> X becomes Y -> X (N14, U7)."""

from collections.abc import Callable
from typing import Any

from tests.oracle.edit import entry_ref, with_ref
from tests.oracle.graph import RELATIONS, Instruction, Ref, render
from tests.oracle.lowering import loops_around

EDGE_KINDS = {0: "Invalid", 1: "Ordered", 2: "Anti", 3: "Output", 4: "Flow"}
Lists = dict[str, list[Any]]


def edge_kind(entry: Any) -> Any:
    """The kind of an entry: a bare name is `Flow`, numbers stand for names."""
    kind = entry[1] if isinstance(entry, list) and len(entry) > 1 else "Flow"
    return EDGE_KINDS.get(kind, kind) if isinstance(kind, int) else kind


def extras(entry: Any) -> list[Any]:
    return entry[2:] if isinstance(entry, list) else []


def join(relation: str, entry: Any, next_relation: str, next_entry: Any) -> tuple[str, Any]:
    """N14: the kind of the first; plain if both are, else the relation that is not (the first's first)."""
    onward = entry_ref(next_entry)
    ref = Ref(onward.raw, onward.target)
    if relation == "unroll_dependencies":
        entry = for_loops_around(entry, onward.target)
    if relation != "dependencies" or next_relation == "dependencies":
        return relation, with_ref(entry, ref)
    carried = extras(next_entry)
    if not carried:
        return next_relation, [ref, *entry[1:2]] if isinstance(entry, list) else ref
    written_kind = entry[1] if isinstance(entry, list) and len(entry) > 1 else "Flow"
    return next_relation, [ref, written_kind, *carried]


def for_loops_around(entry: Any, target: Any) -> Any:
    """N14, U7: one index for each loop around the target, where these are around the gap as well."""
    gap = entry_ref(entry).target
    if not isinstance(target, Instruction) or len(entry) < 3 or not isinstance(entry[2], list):
        return entry
    inner, outer = ([*reversed(loops_around(each))] for each in (gap, target))
    if len(entry[2]) != len(inner) or len(outer) >= len(inner) or inner[: len(outer)] != outer:
        return entry
    return [*entry[:2], entry[2][: len(outer)], *entry[3:]]


def same_edge(entry: Any, other: Any) -> bool:
    """N14 "not added twice": the same target, kind and extras."""
    one, two = entry_ref(entry), entry_ref(other)
    same_target = one.target is two.target and (one.target is not None or one.raw == two.raw)
    return same_target and edge_kind(entry) == edge_kind(other) and render(extras(entry)) == render(extras(other))


def join_over_gaps(lists: Lists, gap_lists: Callable[[Any], Lists | None]) -> Lists:
    """The lists with every entry on a gap replaced; `gap_lists` gives a gap's own lists, else None."""
    kept = {
        relation: [entry for entry in lists[relation] if gap_lists(entry_ref(entry).target) is None]
        for relation in RELATIONS
    }
    result: Lists = {relation: [] for relation in RELATIONS}
    moved: Lists = {relation: [] for relation in RELATIONS}
    for relation in RELATIONS:
        for entry in lists[relation]:
            if gap_lists(entry_ref(entry).target) is None:
                result[relation].append(entry)
                continue
            for new_relation, joined in onward_edges(relation, entry, gap_lists, ()):
                present = [*kept[new_relation], *result[new_relation], *moved[new_relation]]
                if any(same_edge(joined, other) for other in present):
                    continue
                # It stands where the old one stood, unless that was in another list.
                (result if new_relation == relation else moved)[new_relation].append(joined)
    return {relation: [*result[relation], *moved[relation]] for relation in RELATIONS}


def onward_edges(
    relation: str, entry: Any, gap_lists: Callable[[Any], Lists | None], passed: tuple[Instruction, ...]
) -> list[tuple[str, Any]]:
    """The edges that an entry on a gap becomes, through any number of gaps, each passed once."""
    gap = entry_ref(entry).target
    lists = gap_lists(gap)
    if lists is None:
        return [(relation, entry)]
    if gap in passed:
        return []
    edges = []
    for next_relation in RELATIONS:
        for next_entry in lists[next_relation]:
            joined = join(relation, entry, next_relation, next_entry)
            edges += onward_edges(*joined, gap_lists, (*passed, gap))
    return edges
