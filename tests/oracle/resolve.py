"""Putting references into the tree: every name of R0 becomes a `Ref`, resolved by R2, R3 and R4."""

from typing import Any

from tests.oracle.edit import entry_ref
from tests.oracle.graph import (
    OPERAND_LISTS,
    RELATIONS,
    Function,
    Instruction,
    Location,
    Module,
    Ref,
)
from tests.oracle.names import (
    find_block,
    find_callees,
    find_formal,
    find_instruction,
    find_location,
    find_owner,
    find_register,
    find_set,
    kernel_functions,
    preferred_kinds,
)

BRANCH_KEYS = {"UnconditionalBranch": ("target",), "CompareAndBranch": ("on_true", "on_false")}
ARGUMENT_MAPS = {"NKIKernel": ("func_args", "func_outs"), "Call": ("arguments",)}
CALLEE_KEYS = {"NKIKernel": "func", "Call": "target"}
REGISTER_KEYS = ("regref", "reg_ap_offset", "reg_sub_tensor_id")


def load(doc: dict[str, Any]) -> Module:
    """R1: parse a document and resolve every reference in it, once."""
    module = Module(doc)
    # Decided on the names as written, before any of them is replaced.
    kernel_functions(module)
    for function in module.all_functions:
        resolve_function(module, function)
    return module


def resolve_function(module: Module, function: Function) -> None:
    for location in function.locations:
        resolve_location(function, location)
    order = list(function.instructions())
    for instruction in order:
        resolve_instruction(module, function, order, instruction)


def is_name(value: Any) -> bool:
    return isinstance(value, str)


def resolve_location(function: Function, location: Location) -> None:
    """R0: `alias` targets and `pointer_ref_memloc`."""
    pointed = location.obj.get("pointer_ref_memloc")
    if is_name(pointed):
        location.obj["pointer_ref_memloc"] = Ref(pointed, find_location(function, pointed))
    if isinstance(location.obj.get("alias"), list):
        location.obj["alias"] = [resolve_alias(function, entry) for entry in location.obj["alias"]]


def resolve_alias(function: Function, entry: Any) -> Any:
    """An alias entry: [location, kind], or [set, location, kind]."""
    if not isinstance(entry, list):
        return entry
    if len(entry) == 2 and is_name(entry[0]):
        return [Ref(entry[0], find_location(function, entry[0])), entry[1]]
    if len(entry) == 3 and is_name(entry[0]) and is_name(entry[1]):
        named = find_set(function, entry[0])
        inside = [] if named is None else [each for each in named.locations if each.name == entry[1]]
        target = inside[0] if inside else find_location(function, entry[1])
        return [Ref(entry[0], named), Ref(entry[1], target), entry[2]]
    return entry


def resolve_instruction(module: Module, function: Function, order: list[Instruction], instruction: Instruction) -> None:
    obj = instruction.obj
    opcode = instruction.opcode
    for key, value in obj.items():
        if key in OPERAND_LISTS and value:
            obj[key] = [resolve_operand(module, function, operand, key) for operand in value]
        elif key in RELATIONS and value:
            obj[key] = [resolve_entry(function, order, instruction, entry) for entry in value]
        elif key == "sync_info":
            obj[key] = resolve_waits(order, instruction, value)
        elif key in BRANCH_KEYS.get(opcode, ()) and is_name(value):
            obj[key] = Ref(value, find_block(instruction, value))
        elif key == "associate_branch" and opcode == "BranchHint" and is_name(value):
            obj[key] = Ref(value, find_instruction(instruction, order, value))
        elif key == CALLEE_KEYS.get(opcode) and is_name(value):
            obj[key] = resolve_callee(module, value)
        elif key not in ("blocks", "debug") and key not in ARGUMENT_MAPS.get(opcode, ()):
            obj[key] = resolve_registers(function, value)
    # The maps last: what a name on the actual side may be depends on the callee.
    for key in ARGUMENT_MAPS.get(opcode, ()):
        if obj.get(key):
            obj[key] = resolve_map(module, function, instruction, key)


def resolve_operand(module: Module, function: Function, operand: Any, role: str) -> Any:
    """R2: the names in an operand; `memref_owner_func` says whose locations are meant."""
    if not isinstance(operand, dict):
        return operand
    resolved = resolve_registers(function, operand)
    owner: Function | None = function
    written_owner = operand.get("memref_owner_func")
    if is_name(written_owner):
        owner = find_owner(module, function, written_owner)
        resolved["memref_owner_func"] = Ref(written_owner, owner)
    kinds = preferred_kinds(role)
    if is_name(operand.get("memref")):
        name = operand["memref"]
        resolved["memref"] = Ref(name, find_location(owner, name, kinds) if owner else None)
    if is_name(operand.get("memsetref")):
        name = operand["memsetref"]
        resolved["memsetref"] = Ref(name, find_set(owner, name, kinds) if owner else None)
    for key in REGISTER_KEYS:
        if is_name(operand.get(key)):
            resolved[key] = Ref(operand[key], find_register(function, operand[key]))
    return resolved


def resolve_registers(function: Function, value: Any) -> Any:
    """R0: registers in expressions, wherever an expression stands."""
    if isinstance(value, list):
        return [resolve_registers(function, item) for item in value]
    if not isinstance(value, dict):
        return value
    resolved = {key: resolve_registers(function, member) for key, member in value.items()}
    if value.get("kind") == "IntRuntimeValueKind" and is_name(value.get("regref")):
        resolved["regref"] = Ref(value["regref"], find_register(function, value["regref"]))
    return resolved


def resolve_entry(function: Function, order: list[Instruction], instruction: Instruction, entry: Any) -> Any:
    """R3: an edge; its index expressions may hold registers."""
    name = entry_ref(entry)
    ref = Ref(name, find_instruction(instruction, order, name))
    return [ref, *resolve_registers(function, entry[1:])] if isinstance(entry, list) else ref


def resolve_waits(order: list[Instruction], instruction: Instruction, sync_info: Any) -> Any:
    """R0: `sync_info.on_wait[].from`, when it names an instruction."""
    if not isinstance(sync_info, dict) or not isinstance(sync_info.get("on_wait"), list):
        return sync_info
    waits = []
    for wait in sync_info["on_wait"]:
        if isinstance(wait, dict) and is_name(wait.get("from")):
            name = wait["from"]
            waits.append({**wait, "from": Ref(name, find_instruction(instruction, order, name))})
        else:
            waits.append(wait)
    return {**sync_info, "on_wait": waits}


def resolve_callee(module: Module, name: str) -> Ref:
    """R4: several candidates leave the reference open; who needs it reports `ambiguous_callee`."""
    found = find_callees(module, name)
    return Ref(name, found[0] if len(found) == 1 else None)


def resolve_map(module: Module, function: Function, instruction: Instruction, key: str) -> Any:
    """R0, N4: the actual side of an argument map, a JSON object or a list of pairs."""
    callee = instruction.obj.get(CALLEE_KEYS[instruction.opcode])
    target = callee.target if isinstance(callee, Ref) else None

    def actual(formal: Any, name: Any) -> Any:
        if not is_name(name):
            return name
        formal_register = None
        if isinstance(target, Function) and is_name(formal):
            formal_register = find_formal(target, formal, key).register
        found = find_actual(function, name, key, wants_register=formal_register is not None)
        return Ref(name, found)

    written = instruction.obj[key]
    if isinstance(written, dict):
        return {formal: actual(formal, name) for formal, name in written.items()}
    return [[pair[0], actual(pair[0], pair[1]), *pair[2:]] for pair in written]


def find_actual(function: Function, name: str, role: str, *, wants_register: bool) -> Any:
    """N4: a register for a register; else a location name, else a set name, else (unbound use) a register."""
    register = find_register(function, name)
    if wants_register:
        return register
    kinds = preferred_kinds(role)
    location = find_location(function, name, kinds)
    if location is not None:
        return location
    memory_set = find_set(function, name, kinds)
    return register if memory_set is None else memory_set
