"""The canonical copy of a kernel function (N3): whether it is split or spliced, and what it has to name."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.oracle.constants import propagate_copy
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
from tests.oracle.indirect import lower_function
from tests.oracle.names import OUTPUT_KINDS
from tests.oracle.outcome import PassFailure
from tests.oracle.resolve import ARGUMENT_MAPS, BRANCH_KEYS, CALLEE_KEYS, resolve_function
from tests.oracle.unrolling import LoopPlan, unroll_function


@dataclass(eq=False)
class Canonical:
    """A body ready to be cloned; `twin` gives the copy's storage for that of the function in the module."""

    function: Function
    twin: dict[Node, Any]
    is_propagated: bool = False
    """C4: whether constants changed something, which is a note."""

    @property
    def is_split(self) -> bool:
        """N12, N13: whether the caller's block has to be split for this body."""
        several = len(self.function.blocks) > 1
        return several or self.branches_to_entry or returns_early(list(self.function.instructions()))

    @property
    def branches_to_entry(self) -> bool:
        """N13: whether something in the body branches to its entry block."""
        return any(
            isinstance(target, Block) and target is self.function.blocks[0]
            for instruction in self.function.instructions()
            for target in branch_targets(instruction)
        )

    def body(self) -> list[Instruction]:
        """What is cloned: all instructions, but N12 drops a final `Return`."""
        instructions = list(self.function.instructions())
        drops_return = ends_in_return(instructions) and not self.is_split
        return instructions[:-1] if drops_return else instructions

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


def canonicalise(
    module: Module,
    callee: Function,
    shard_id: int,
    expand_inner_call_sites: Callable[[Function, Function], None],
    *,
    assume_finite: bool = False,
) -> Canonical:
    """N3: a copy through JSON text, its own call-sites expanded, then the passes on it, in that order.

    `expand_inner_call_sites` gets the function of the module and its copy.
    """
    copy = parse_function(json.loads(json.dumps(render(callee))))
    resolve_function(module, copy)
    twin = twins(callee, copy)
    expand_inner_call_sites(callee, copy)
    unroll_function(LoopPlan(copy, shard_id))
    is_propagated = lower_and_propagate(copy, assume_finite)
    check_resolved(copy)
    return Canonical(copy, twin, is_propagated)


def twins(callee: Function, copy: Function) -> dict[Node, Any]:
    """By position: names may repeat."""
    pairs: dict[Node, Any] = dict(zip(callee.storages, copy.storages, strict=True))
    pairs.update(zip(callee.locations, copy.locations, strict=True))
    return pairs


def lower_and_propagate(copy: Function, assume_finite: bool) -> bool:
    """N3: the one place where `lower_generic_indirect` (G) runs, and then `constant_propagate` (C)."""
    lower_function(copy)
    return propagate_copy(copy, assume_finite)


def branch_targets(instruction: Instruction) -> list[Any]:
    """What a branch goes to (R4); None for a name that did not resolve."""
    refs = [instruction.obj.get(key) for key in BRANCH_KEYS.get(instruction.opcode, ())]
    return [ref.target for ref in refs if isinstance(ref, Ref)]


def returns_early(instructions: list[Instruction]) -> bool:
    return any(each.opcode == "Return" for each in instructions[:-1])


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
