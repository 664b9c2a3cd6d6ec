"""Finding what a name means (R2, R3, R4, N4); names repeat, so each look-up says which candidate it takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from tests.oracle.graph import Block, Function, Instruction, Location, MemorySet, Module, Register, walk

INPUT_KINDS = ("ExternalInput", "ExternalInputParameter", "Input")
OUTPUT_KINDS = ("ExternalOutput", "ExternalOutputParameter", "Output")
PARAMETER_KINDS = INPUT_KINDS + OUTPUT_KINDS

Storage = TypeVar("Storage", MemorySet, Location)


def preferred_kinds(role: str) -> tuple[str, ...]:
    """R2: the set kinds that an operand prefers; `indirection_ins` count as inputs."""
    return OUTPUT_KINDS if role in ("outs", "func_outs") else INPUT_KINDS


def set_of(node: MemorySet | Location) -> MemorySet:
    return node.set if isinstance(node, Location) else node


def best(candidates: Sequence[Storage], kinds: Sequence[str]) -> Storage | None:
    """R2: the first candidate whose set is of a preferred kind, else the first in file order."""
    for candidate in candidates:
        if set_of(candidate).kind in kinds:
            return candidate
    return candidates[0] if candidates else None


def find_location(function: Function, name: str, kinds: Sequence[str] = ()) -> Location | None:
    """R2: a location of the function by name."""
    return best([location for location in function.locations if location.name == name], kinds)


def find_set(function: Function, name: str, kinds: Sequence[str] = ()) -> MemorySet | None:
    """R2: likewise among sets."""
    return best([memory_set for memory_set in function.sets if memory_set.name == name], kinds)


def find_register(function: Function, name: str) -> Register | None:
    """R2: the first register of that name."""
    return next((register for register in function.registers if register.name == name), None)


def find_instruction(instruction: Instruction, order: list[Instruction], name: str) -> Instruction | None:
    """R3: what a dependency of `instruction` names; `order` is the function's program order."""
    here = order.index(instruction)
    named = [(place, other) for place, other in enumerate(order) if other.name == name]
    earlier = [other for place, other in named if place < here]
    same_block = [other for other in earlier if other.block is instruction.block]
    later = [other for place, other in named if place > here]
    if same_block:
        return same_block[-1]
    if earlier:
        return earlier[-1]
    if later:
        return later[0]
    return instruction if instruction.name == name else None


def find_block(instruction: Instruction, name: str) -> Block | None:
    """R4: a block of the same list, else of the enclosing lists outwards."""
    block = instruction.block
    while True:
        for candidate in block.siblings:
            if candidate.name == name:
                return candidate
        if isinstance(block.owner, Function):
            return None
        block = block.owner.block


def find_owner(module: Module, function: Function, name: str) -> Function | None:
    """R2: the function that `memref_owner_func` names, the operand's own first."""
    if function.name == name:
        return function
    return next((other for other in module.all_functions if other.name == name), None)


def kernel_functions(module: Module) -> list[Function]:
    """R4: `nki_functions`, and members of `functions` that a call-site of another function names."""
    return [*module.nki_functions, *named_by_call_sites(module)]


def ordinary_functions(module: Module) -> list[Function]:
    named = named_by_call_sites(module)
    return [function for function in module.functions if function not in named]


def named_by_call_sites(module: Module) -> list[Function]:
    """R4: members of `functions`, neither `main` nor the first, that call-sites of other functions mean.

    Decided once, when the module is first asked: it is a property of the file.
    """
    if module.called_functions is None:
        module.called_functions = look_for_called_functions(module)
    return module.called_functions


def look_for_called_functions(module: Module) -> list[Function]:
    apart = {function.name for function in module.nki_functions}
    named: list[Function] = []
    for function in module.functions[1:]:
        if function.name == "main" or function.name in apart:
            continue
        callers = [other for other in module.all_functions if other is not function]
        if any(written_callee(site) == function.name for other in callers for site in call_sites(other)):
            named.append(function)
    return named


def call_sites(function: Function) -> list[Instruction]:
    """N1: the `NKIKernel` instructions of a function, at any nesting depth."""
    return [each for each in walk(function.blocks) if each.opcode == "NKIKernel"]


def written_callee(call_site: Instruction) -> str | None:
    """The name under `func`, whether or not it has been resolved already."""
    func = call_site.obj.get("func")
    return func if func is None or isinstance(func, str) else func.raw


def find_callees(module: Module, name: str) -> list[Function]:
    """R4: the candidates of a call; kernel functions, and only without any of that name functions."""
    for functions in (kernel_functions(module), ordinary_functions(module)):
        found = [function for function in functions if function.name == name]
        if found:
            return found
    return []


@dataclass(frozen=True)
class Formal:
    """What the formal side of a map entry names: the set of a parameter, or a register, or nothing of use."""

    memory_set: MemorySet | None = None
    register: Register | None = None


def find_formal(callee: Function, name: str, role: str) -> Formal:
    """N4: a location name, else a set name, of a parameter; else a register. An Internal set is neither."""
    kinds = preferred_kinds(role)
    locations = [location for location in callee.locations if location.name == name]
    sets = [memory_set for memory_set in callee.sets if memory_set.name == name]
    for candidates in (locations, sets):
        parameters = [each for each in candidates if set_of(each).kind in PARAMETER_KINDS]
        chosen = best(parameters, kinds)
        if chosen is not None:
            return Formal(memory_set=set_of(chosen))
    return Formal(register=find_register(callee, name))
