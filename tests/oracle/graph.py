"""A module as a tree of JSON values in which nodes and references stand explicitly.

The tree is the document with two kinds of objects put into it: a `Node` where the document has an object
that can be named (function, set, location, register, block, instruction), and a `Ref` where it has a name
that refers to one. So a target is an object and never a string (R1), everything else keeps its place and
order, and `render` gives the document back, each reference written with the current name of its target.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tests.oracle.outcome import Provenance

# The opcodes whose `blocks` hold a nested body.
STRUCTURED = ("Loop", "DynamicForLoop", "DoWhile")
RELATIONS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")
OPERAND_LISTS = ("ins", "indirection_ins", "outs")


class Node:
    """An object of the document that can be named; `obj` holds its members in order."""

    def __init__(self, obj: dict[str, Any]) -> None:
        self.obj = obj

    @property
    def name(self) -> Any:
        return self.obj.get("name")

    @name.setter
    def name(self, value: str) -> None:
        self.obj["name"] = value


class MemorySet(Node):
    @property
    def locations(self) -> list[Location]:
        return self.obj.get("memorylocations") or []

    @property
    def kind(self) -> Any:
        return self.obj.get("kind")


class Location(Node):
    def __init__(self, obj: dict[str, Any], owner: MemorySet) -> None:
        super().__init__(obj)
        self.set = owner

    @property
    def memory(self) -> Any:
        """The memory type by name; files may hold its number (F3)."""
        return {8: "DRAM", 16: "SB", 32: "PSUM"}.get(self.obj.get("type"), self.obj.get("type"))

    @property
    def dims(self) -> list[int]:
        return self.obj.get("dims") or []

    @property
    def partition_bytes(self) -> int:
        return self.dims[1]

    @property
    def total_bytes(self) -> int:
        product = 1
        for size in self.dims:
            product *= size
        return product

    def number(self, key: str) -> int:
        """An integer member whose default is 0."""
        return self.obj.get(key) or 0


class Register(Node):
    """A register, and by N8 any storage of an unknown `Skind`."""


class Block(Node):
    def __init__(self, obj: dict[str, Any], siblings: list[Block], owner: Function | Instruction) -> None:
        super().__init__(obj)
        self.siblings = siblings
        self.owner = owner

    @property
    def instructions(self) -> list[Instruction]:
        return self.obj.get("instructions") or []


class Instruction(Node):
    def __init__(self, obj: dict[str, Any], block: Block) -> None:
        super().__init__(obj)
        self.block = block
        # The name in the file, which unrolling changes and provenance (N16) asks for.
        self.original_name = obj.get("name")
        self.provenance = Provenance()

    @property
    def opcode(self) -> Any:
        return self.obj.get("opcode")

    @property
    def blocks(self) -> list[Block]:
        return (self.obj.get("blocks") or []) if self.opcode in STRUCTURED else []

    def operands(self, role: str) -> list[dict[str, Any]]:
        return self.obj.get(role) or []

    def entries(self, relation: str) -> list[Any]:
        return self.obj.get(relation) or []


class Function(Node):
    @property
    def storages(self) -> list[MemorySet | Register]:
        return self.obj.get("allocations") or []

    @property
    def sets(self) -> list[MemorySet]:
        return [storage for storage in self.storages if isinstance(storage, MemorySet)]

    @property
    def registers(self) -> list[Register]:
        return [storage for storage in self.storages if isinstance(storage, Register)]

    @property
    def locations(self) -> list[Location]:
        return [location for memory_set in self.sets for location in memory_set.locations]

    @property
    def blocks(self) -> list[Block]:
        return self.obj.get("blocks") or []

    def instructions(self) -> Iterator[Instruction]:
        """Program order (R3): blocks in order, a loop before its body."""
        yield from walk(self.blocks)


def walk(blocks: list[Block]) -> Iterator[Instruction]:
    for block in blocks:
        for instruction in block.instructions:
            yield instruction
            yield from walk(instruction.blocks)


@dataclass(eq=False)
class Ref:
    """A name that refers to something: `target` is None where it did not resolve (R5)."""

    raw: str
    target: Node | None = None

    @property
    def name(self) -> str:
        return self.raw if self.target is None else self.target.name


class Module:
    """A document with nodes in it; `functions` and `nki_functions` are the lists that stand in the tree."""

    def __init__(self, doc: dict[str, Any]) -> None:
        self.tree = copy.deepcopy(doc)
        self.functions: list[Function] = parse_functions(self.tree, "functions")
        holder = self.tree.get("nki_functions")
        if isinstance(holder, dict):
            self.nki_functions: list[Function] = parse_functions(holder, "functions")
        else:
            self.nki_functions = parse_functions(self.tree, "nki_functions")
        self.called_functions: list[Function] | None = None

    @property
    def all_functions(self) -> list[Function]:
        return [*self.functions, *self.nki_functions]

    def remove(self, function: Function) -> None:
        for functions in (self.functions, self.nki_functions):
            if function in functions:
                functions.remove(function)

    def render(self) -> dict[str, Any]:
        return render(self.tree)


def parse_functions(holder: dict[str, Any], key: str) -> list[Function]:
    """Put function nodes into the list that `holder` has under `key`; give it, or a loose empty one."""
    found = holder.get(key)
    if not isinstance(found, list):
        return []
    found[:] = [parse_function(obj) for obj in found]
    return found


def parse_function(obj: dict[str, Any]) -> Function:
    function = Function(obj)
    if function.storages:
        obj["allocations"] = [parse_storage(storage) for storage in function.storages]
    if function.blocks:
        obj["blocks"] = parse_blocks(function.blocks, function)
    return function


def parse_storage(obj: dict[str, Any]) -> MemorySet | Register:
    kind = obj.get("Skind")
    if kind != "memory_location_set" and (kind is not None or "memorylocations" not in obj):
        return Register(obj)
    memory_set = MemorySet(obj)
    if obj.get("memorylocations"):
        obj["memorylocations"] = [Location(each, memory_set) for each in obj["memorylocations"]]
    return memory_set


def parse_blocks(objs: list[Any], owner: Function | Instruction) -> list[Block]:
    blocks: list[Block] = []
    for obj in objs:
        block = Block(obj, blocks, owner)
        if obj.get("instructions"):
            obj["instructions"] = [parse_instruction(each, block) for each in obj["instructions"]]
        blocks.append(block)
    return blocks


def parse_instruction(obj: dict[str, Any], block: Block) -> Instruction:
    instruction = Instruction(obj, block)
    if instruction.blocks:
        obj["blocks"] = parse_blocks(obj["blocks"], instruction)
    return instruction


def render(value: Any) -> Any:
    """The plain JSON value: R1, a written reference has the current name of its target."""
    if isinstance(value, Ref):
        return value.name
    if isinstance(value, Node):
        return render(value.obj)
    if isinstance(value, dict):
        return {key: render(member) for key, member in value.items()}
    if isinstance(value, list):
        return [render(item) for item in value]
    return value


def map_refs(value: Any, change: Callable[[Ref], Any]) -> Any:
    """A copy of a value of the tree, every reference in it replaced by what `change` gives for it."""
    if isinstance(value, Ref):
        return change(value)
    if isinstance(value, dict):
        return {key: map_refs(member, change) for key, member in value.items()}
    if isinstance(value, list):
        return [map_refs(item, change) for item in value]
    return value


def refs_in(value: Any) -> Iterator[Ref]:
    if isinstance(value, Ref):
        yield value
    elif isinstance(value, dict):
        for member in value.values():
            yield from refs_in(member)
    elif isinstance(value, list):
        for item in value:
            yield from refs_in(item)
