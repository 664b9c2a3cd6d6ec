"""Changing the members of an object (F6), dependency entries, and fresh names (R6)."""

from collections.abc import Container, Iterable
from typing import Any

from tests.oracle.graph import (
    RELATIONS,
    Block,
    Function,
    Instruction,
    Location,
    MemorySet,
    Node,
    Ref,
    Register,
)


def edited(obj: dict[str, Any], changes: dict[str, Any], drop: Container[str] = ()) -> dict[str, Any]:
    """F6: a copy with members changed, dropped and added, the added ones in place if the keys were sorted."""
    keys = list(obj)
    was_sorted = keys == sorted(keys)
    result = {key: changes.get(key, obj[key]) for key in keys if key not in drop}
    added = sorted(key for key in changes if key not in obj)
    if was_sorted:
        present = {**result, **{key: changes[key] for key in added}}
        return {key: present[key] for key in sorted(present)}
    return {**result, **{key: changes[key] for key in added}}


def sorted_object(**members: Any) -> dict[str, Any]:
    """F6: new objects have sorted keys."""
    return {key: members[key] for key in sorted(members)}


# A dependency entry is a bare name, or a list that begins with the name.


def entry_ref(entry: Any) -> Ref:
    return entry[0] if isinstance(entry, list) else entry


def with_ref(entry: Any, ref: Ref) -> Any:
    """The same entry, in the same form, on another instruction."""
    return [ref, *entry[1:]] if isinstance(entry, list) else ref


def lists_of(instruction: Instruction) -> dict[str, list[Any]]:
    return {relation: list(instruction.entries(relation)) for relation in RELATIONS}


def edge_changes(obj: dict[str, Any], lists: dict[str, list[Any]]) -> tuple[dict[str, Any], set[str]]:
    """N14: members to set and keys to drop, so that a list that becomes empty loses its key."""
    changes: dict[str, Any] = {}
    drop: set[str] = set()
    for relation, entries in lists.items():
        if entries:
            changes[relation] = entries
        elif obj.get(relation):
            drop.add(relation)
    return changes, drop


KINDS_OF_NAMES = ("set", "location", "register", "block", "instruction")


def kind_of_name(node: Node) -> str:
    for kind, cls in zip(KINDS_OF_NAMES, (MemorySet, Location, Register, Block, Instruction), strict=True):
        if isinstance(node, cls):
            return kind
    raise TypeError(f"`{type(node).__name__}` has no space of names in a function")


def named_nodes(function: Function) -> Iterable[Node]:
    """Everything in a function that has a name, storage before code, each in document order."""
    for storage in function.storages:
        yield storage
        if isinstance(storage, MemorySet):
            yield from storage.locations
    yield from code_nodes(function.blocks)


def code_nodes(blocks: list[Block]) -> Iterable[Node]:
    """Blocks and instructions in row order: a level of nested blocks after the one around it."""
    while blocks:
        inner: list[Block] = []
        for block in blocks:
            yield block
            for instruction in block.instructions:
                yield instruction
                inner += instruction.blocks
        blocks = inner


def taken_names(function: Function) -> dict[str, set[Any]]:
    """R6: the names of each kind that the function has when the pass starts."""
    taken: dict[str, set[Any]] = {kind: set() for kind in KINDS_OF_NAMES}
    for node in named_nodes(function):
        taken[kind_of_name(node)].add(node.name)
    return taken


def give_fresh_names(function: Function, taken: dict[str, set[Any]], wanted: dict[Node, str]) -> None:
    """R6: name the new rows in row order of the result, with `.1`, `.2`, ... where a name is taken."""
    for node in named_nodes(function):
        if node not in wanted:
            continue
        names = taken[kind_of_name(node)]
        name = wanted[node]
        suffix = 0
        while name in names:
            suffix += 1
            name = f"{wanted[node]}.{suffix}"
        names.add(name)
        node.name = name
