"""The canonical copy of a kernel function (N3), and what is refused there for now."""

import json
from dataclasses import dataclass
from typing import Any

from tests.oracle.graph import (
    OPERAND_LISTS,
    Block,
    Function,
    Instruction,
    Location,
    MemorySet,
    Module,
    Node,
    Ref,
    parse_function,
    refs_in,
    render,
    walk,
)
from tests.oracle.names import OUTPUT_KINDS, call_sites
from tests.oracle.outcome import PassFailure
from tests.oracle.resolve import ARGUMENT_MAPS, BRANCH_KEYS, CALLEE_KEYS, resolve_function
from tests.oracle.unrolling import LoopPlan, loop_range, trip_count, unroll_function


@dataclass(eq=False)
class Canonical:
    """A body ready to be cloned; `twin` gives the copy's storage for that of the function in the module."""

    function: Function
    twin: dict[Node, Any]

    def body(self) -> list[Instruction]:
        """N12: the instructions of the one block, a final `Return` dropped."""
        instructions = [each for block in self.function.blocks for each in block.instructions]
        return instructions[:-1] if ends_in_return(instructions) else instructions

    def output_formals(self) -> list[MemorySet]:
        return [memory_set for memory_set in self.function.sets if memory_set.kind in OUTPUT_KINDS]

    def written(self) -> set[MemorySet]:
        """N19: the sets that some `outs` operand or the arguments of some `Call` name."""
        sets: set[MemorySet] = set()
        for instruction in walk(self.function.blocks):
            named = list(refs_in(instruction.operands("outs")))
            for key in ARGUMENT_MAPS.get(instruction.opcode, ()):
                named += refs_in(instruction.obj.get(key))
            for ref in named:
                if isinstance(ref.target, Location):
                    sets.add(ref.target.set)
                elif isinstance(ref.target, MemorySet):
                    sets.add(ref.target)
        return sets


def canonicalise(module: Module, callee: Function, shard_id: int) -> Canonical:
    """N3: a copy through JSON text, its own call-sites expanded, then the passes on it, in that order."""
    copy = parse_function(json.loads(json.dumps(render(callee))))
    resolve_function(module, copy)
    expand_inner_call_sites(copy)
    refuse_several_blocks(copy)
    unroll_function(LoopPlan(copy, shard_id))
    lower_and_propagate(copy)
    refuse_control_flow(copy)
    check_resolved(copy)
    return Canonical(copy, twins(callee, copy))


def twins(callee: Function, copy: Function) -> dict[Node, Any]:
    """By position: names may repeat."""
    pairs: dict[Node, Any] = dict(zip(callee.storages, copy.storages, strict=True))
    pairs.update(zip(callee.locations, copy.locations, strict=True))
    return pairs


def not_supported(function: Function, what: str) -> PassFailure:
    return PassFailure("not_supported", f"`{function.name}` has {what}", function=function.name)


def expand_inner_call_sites(copy: Function) -> None:
    """N1, N3: where nesting comes in; for now a call-site inside a kernel function is refused."""
    if call_sites(copy):
        raise not_supported(copy, "a call-site of its own")


def lower_and_propagate(copy: Function) -> None:
    """N3: the one place where `lower_generic_indirect` (G) and `constant_propagate` (C) will run."""


def refuse_several_blocks(copy: Function) -> None:
    """N13 comes in here; for now a body has one block."""
    if len(copy.blocks) > 1:
        raise not_supported(copy, f"{len(copy.blocks)} blocks")


def refuse_control_flow(copy: Function) -> None:
    """N12, N13: a `Return` before the end, or a branch to the entry block."""
    instructions = list(copy.instructions())
    for instruction in instructions:
        if instruction.opcode == "Return" and instruction is not instructions[-1]:
            raise not_supported(copy, "a `Return` before its end")
        for key in BRANCH_KEYS.get(instruction.opcode, ()):
            target = instruction.obj.get(key)
            if isinstance(target, Ref) and isinstance(target.target, Block):
                raise not_supported(copy, "a branch to its entry block")


def ends_in_return(instructions: list[Instruction]) -> bool:
    return bool(instructions) and instructions[-1].opcode == "Return"


def check_resolved(copy: Function) -> None:
    """N3, R5: operands, registers, edges and branch targets must resolve; other references may stay raw."""
    for instruction in copy.instructions():
        for ref in needed_refs(instruction):
            if ref.target is None:
                raise PassFailure(
                    "unresolved_name",
                    f"`{ref.raw}` is not there; a kernel's body has to name what exists",
                    function=copy.name,
                    instruction=instruction.name,
                )


def needed_refs(instruction: Instruction) -> list[Ref]:
    """Operands, edges and branch targets, and the registers of expressions elsewhere."""
    refs: list[Ref] = []
    spared = {"sync_info", "associate_branch", "debug", CALLEE_KEYS.get(instruction.opcode)}
    spared.update(ARGUMENT_MAPS.get(instruction.opcode, ()))
    for key, value in instruction.obj.items():
        if key in OPERAND_LISTS:
            for operand in value or []:
                refs += operand_refs(operand)
        elif key not in spared:
            refs += refs_in(value)
    return refs


def operand_refs(operand: Any) -> list[Ref]:
    """R2: with a location that resolves, the set that is written beside it is not needed."""
    location = operand.get("memref") if isinstance(operand, dict) else None
    if isinstance(location, Ref) and location.target is not None:
        return list(refs_in({key: value for key, value in operand.items() if key != "memsetref"}))
    return list(refs_in(operand))


def surviving(blocks: list[Block], shard_id: int) -> list[Instruction]:
    """The instructions of a body that have an instance when it is flat: none of a loop without trips."""
    found = []
    for block in blocks:
        for instruction in block.instructions:
            found.append(instruction)
            trips = trips_of(instruction, shard_id)
            if trips is None or trips:
                found += surviving(instruction.blocks, shard_id)
    return found


def trips_of(instruction: Instruction, shard_id: int) -> range | None:
    """The trips of a loop; None of anything else, and of a loop that cannot be unrolled and fails later."""
    if instruction.opcode != "Loop":
        return None
    try:
        return loop_range(instruction, shard_id)
    except PassFailure:
        return None


def unrolled_rows(callee: Function, shard_id: int, *, without_return: bool) -> int:
    """O6: the rows of a body when it is flat; what cannot be unrolled counts as it stands and fails later."""

    def rows_of(blocks: list[Block]) -> int:
        return sum(row_count(instruction) for block in blocks for instruction in block.instructions)

    def row_count(instruction: Instruction) -> int:
        trips = trips_of(instruction, shard_id)
        inside = rows_of(instruction.blocks)
        return 1 + inside if trips is None else trip_count(trips) * inside

    rows = rows_of(callee.blocks)
    last = [each for block in callee.blocks for each in block.instructions][-1:]
    return rows - 1 if without_return and ends_in_return(last) else rows
