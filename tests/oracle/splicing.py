"""Putting the bodies in place of the call-sites of one function (N8, N10, N11, N14).

Memory first, then clones, then edges, then the blocks (`placing`), then names. All but the blocks works on
the clones of a call-site in body order, whatever block they are in. A body's rows are all alike here, those
that an expansion inside the kernel function added included.
"""

from collections.abc import Collection
from typing import Any

from tests.oracle.binding import Site, sb_base
from tests.oracle.canonical import Canonical
from tests.oracle.edit import (
    edge_changes,
    edited,
    entry_ref,
    give_fresh_names,
    lists_of,
    taken_names,
    with_ref,
)
from tests.oracle.graph import (
    OPERAND_LISTS,
    RELATIONS,
    Function,
    Instruction,
    Location,
    MemorySet,
    Node,
    Ref,
    Register,
    map_refs,
)
from tests.oracle.joins import Lists, join_over_gaps
from tests.oracle.outcome import Provenance
from tests.oracle.placing import Expansion, Flow, flow_of, new_row, put_in_place

MANY = 8
OPTIN_CLEARED = 0xC


def splice(function: Function, sites: list[Site], bodies: dict[Function, Canonical]) -> None:
    """Expand the call-sites of one function."""
    taken = taken_names(function)
    wanted: dict[Node, str] = {}
    expansions: dict[Node, Expansion] = {}
    depended_on = {
        entry_ref(entry).target
        for instruction in function.instructions()
        for relation in RELATIONS
        for entry in instruction.entries(relation)
    }
    for site in sites:
        targets = clone_memory(site, bodies[site.callee], wanted)
        flow = flow_of(site, bodies[site.callee], wanted)
        clones = clone_body(site, bodies[site.callee], targets | flow.blocks, flow, wanted)
        expansion = Expansion(site, flow, clones, roots_of(clones.values()), sinks_of(clones.values()))
        add_helpers(expansion, wanted, is_depended_on=site.instruction in depended_on)
        expansions[site.instruction] = expansion
    # Of the call-sites themselves too: their lists are what their roots get.
    lists = {each: lists_of(each) for each in function.instructions()}
    for expansion in expansions.values():
        add_body_edges(expansion, lists)
    returns = {clone: flow_changes for each in expansions.values() for clone, flow_changes in each.returns()}
    for instruction, entries in lists.items():
        if instruction not in expansions:
            reach_bodies(instruction, entries, expansions, returns.get(instruction, {}))
    # In program order, as if one after the other (N20).
    for expansion in expansions.values():
        put_in_place(expansion, wanted)
    give_fresh_names(function, taken, wanted)
    for node in wanted:
        if isinstance(node, Instruction) and not node.provenance.depth:
            # N16: what is new here is from now on a row of this function.
            node.original_name = node.name


def clone_memory(site: Site, body: Canonical, wanted: dict[Node, str]) -> dict[Node, Node]:
    """N8: the callee's own storage again in the caller; gives what each storage of the body becomes (N11)."""
    base = sb_base(site)
    becomes: dict[Node, Node] = {}
    for formal, actual in site.sets.items():
        location = actual if isinstance(actual, Location) else actual.locations[0]
        becomes[body.twin[formal]] = location.set
        becomes[body.twin[formal.locations[0]]] = location
    for formal_register, actual_register in site.registers.items():
        becomes[body.twin[formal_register]] = actual_register
    made: list[Node] = []
    for storage in body.function.storages:
        if storage in becomes:
            continue
        is_set = isinstance(storage, MemorySet)
        clone = clone_set(storage, base, becomes) if is_set else Register(dict(storage.obj))
        becomes[storage] = clone
        made.append(clone)
    for storage, clone in list(becomes.items()):
        if clone in made:
            for old, new in zip([storage, *locations_of(storage)], [clone, *locations_of(clone)], strict=True):
                # Names inside storage (`alias`, `pointer_ref_memloc`) follow once everything is there.
                new.obj = map_refs(new.obj, lambda ref: rewired(ref, becomes))
                wanted[new] = f"{site.name}:{old.name}"
    if made:
        function = site.caller
        function.obj = edited(function.obj, {"allocations": [*function.storages, *made]})
    return becomes


def locations_of(storage: Node) -> list[Location]:
    return storage.locations if isinstance(storage, MemorySet) else []


def clone_set(original: MemorySet, base: int, becomes: dict[Node, Node]) -> MemorySet:
    """N8: origin NKI on the set; SB addresses rebased, all else copied."""
    clone = MemorySet({})
    locations = []
    for location in original.locations:
        obj = dict(location.obj)
        address = base + location.number("addr")
        if location.memory == "SB" and address != location.number("addr"):
            obj = edited(obj, {"addr": address})
        becomes[location] = Location(obj, clone)
        locations.append(becomes[location])
    members = dict(original.obj)
    if original.locations:
        members["memorylocations"] = locations
    clone.obj = edited(members, {"origin": "NKI"})
    return clone


def rewired(ref: Ref, becomes: dict[Node, Node]) -> Ref:
    """N11: a bound formal is the actual, everything else of the body is its clone, the rest stays."""
    return Ref(ref.raw, becomes.get(ref.target, ref.target) if ref.target is not None else None)


def clone_body(
    site: Site, body: Canonical, becomes: dict[Node, Node], flow: Flow, wanted: dict[Node, str]
) -> dict[Instruction, Instruction]:
    """N10, N11: each instruction again, its names pointing to the caller's things."""
    originals = body.body()
    clones = {original: Instruction({}, site.instruction.block) for original in originals}
    # `memref_owner_func` naming the callee becomes the caller (R2).
    # What an inner body names as the callee's own is the storage of the file, not that of the copy.
    owned = {original: becomes[twin] for original, twin in body.twin.items() if twin in becomes}
    becomes = {**owned, **becomes, **clones, body.function: site.caller}
    dropped = {each for block in body.function.blocks for each in block.instructions} - set(originals)
    for original, clone in clones.items():
        obj = without_edges_on(original.obj, dropped)
        obj = map_refs(obj, lambda ref: rewired(ref, becomes))
        for role in OPERAND_LISTS:
            for operand in obj.get(role) or []:
                follow_location(operand)
                follow_owner(operand, site)
        mask = obj.get("optin_passes")
        if isinstance(mask, int) and not isinstance(mask, bool):
            obj["optin_passes"] = mask & ~OPTIN_CLEARED
        clone.obj = obj
        clone.original_name = original.original_name
        clone.provenance = provenance_in(site, original)
        wanted[clone] = flow.clone_name(original)
    return clones


def provenance_in(site: Site, original: Instruction) -> Provenance:
    """N16: a row of the kernel itself gets its first record, an inlined one a longer chain."""
    inner = original.provenance
    if not inner.depth:
        return Provenance(original.original_name, site.callee.name, site.source, (site.name,), 1)
    return inner._replace(chain=(site.name, *inner.chain), depth=inner.depth + 1)


def without_edges_on(obj: dict[str, Any], dropped: set[Instruction]) -> dict[str, Any]:
    """U7, N12: an edge on a `Return` that is dropped goes; other names of it stay as they were written."""
    lists = {
        relation: [entry for entry in obj.get(relation) or [] if entry_ref(entry).target not in dropped]
        for relation in RELATIONS
    }
    changes, drop = edge_changes(obj, lists)
    return map_refs(edited(obj, changes, drop), lambda ref: Ref(ref.raw, None if ref.target in dropped else ref.target))


def follow_location(operand: Any) -> None:
    """R2: the set that is written beside a location is the location's set."""
    if not isinstance(operand, dict):
        return
    location, named_set = operand.get("memref"), operand.get("memsetref")
    if isinstance(location, Ref) and isinstance(location.target, Location) and isinstance(named_set, Ref):
        operand["memsetref"] = Ref(named_set.raw, location.target.set)


def follow_owner(operand: Any, site: Site) -> None:
    """R2: an inner body that names the callee as the owner names the caller now."""
    owner = operand.get("memref_owner_func") if isinstance(operand, dict) else None
    if isinstance(owner, Ref) and owner.target is site.callee:
        operand["memref_owner_func"] = Ref(owner.raw, site.caller)


def inner_targets(clone: Instruction, inside: set[Instruction]) -> list[Any]:
    """What a clone depends on inside its body, over all three relations."""
    named = [entry_ref(entry).target for relation in RELATIONS for entry in clone.entries(relation)]
    return [target for target in named if target in inside]


def roots_of(clones: Collection[Instruction]) -> list[Instruction]:
    """N14: clones without an edge inside the body."""
    inside = set(clones)
    return [clone for clone in clones if not inner_targets(clone, inside)]


def sinks_of(clones: Collection[Instruction]) -> list[Instruction]:
    """N14: clones that no other clone depends on."""
    inside = set(clones)
    depended_on = {target for clone in clones for target in inner_targets(clone, inside) if target is not clone}
    return [clone for clone in clones if clone not in depended_on]


def add_helpers(expansion: Expansion, wanted: dict[Node, str], *, is_depended_on: bool) -> None:
    """N14, to stay linear: a `_done` for more than 8 sinks, a `_start` for more than 8 roots."""
    site = expansion.site
    if len(expansion.sinks) > MANY and is_depended_on:
        expansion.done = new_row(site)
        wanted[expansion.done] = f"{site.name}_done"
    edges = sum(len(site.instruction.entries(relation)) for relation in RELATIONS)
    if len(expansion.roots) > MANY and edges > 1:
        expansion.start = new_row(site)
        wanted[expansion.start] = f"{site.name}_start"


def on(instruction: Instruction) -> Ref:
    return Ref("", instruction)


def add_body_edges(expansion: Expansion, lists: dict[Instruction, Lists]) -> None:
    """N14: the clones' own edges, the call-site's on the roots (or on `_start`), the sinks' on `_done`."""
    for clone in expansion.clones.values():
        lists[clone] = lists_of(clone)
    inherited = lists[expansion.site.instruction]
    if expansion.start is not None:
        lists[expansion.start] = {relation: list(inherited[relation]) for relation in RELATIONS}
        for root in expansion.roots:
            lists[root]["dependencies"].append([on(expansion.start), "Ordered"])
    else:
        for root in expansion.roots:
            for relation in RELATIONS:
                lists[root][relation] += inherited[relation]
    if expansion.done is not None:
        ordered = [[on(sink), "Ordered"] for sink in expansion.sinks]
        lists[expansion.done] = {relation: [] for relation in RELATIONS} | {"dependencies": ordered}


def reach_bodies(
    instruction: Instruction, lists: Lists, expansions: dict[Node, Expansion], more: dict[str, Any]
) -> None:
    """N14: entries on a call-site become entries on its exits; an empty body joins.

    `more` has what else changes in the instruction: all that is added to it is added at once (F6).
    """

    def gap_lists(target: Any) -> Lists | None:
        if target in expansions and not expansions[target].clones:
            return lists_of(target)
        return None

    joined = join_over_gaps(lists, gap_lists)
    reached: Lists = {relation: [] for relation in RELATIONS}
    for relation in RELATIONS:
        for entry in joined[relation]:
            target = entry_ref(entry).target
            if target in expansions:
                reached[relation] += [with_ref(entry, on(each)) for each in expansions[target].exits]
            else:
                reached[relation].append(entry)
    changes, drop = edge_changes(instruction.obj, reached)
    instruction.obj = edited(instruction.obj, changes | more, drop)
