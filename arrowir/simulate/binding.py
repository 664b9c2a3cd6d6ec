"""What the parameters of a function are bound to at a call (rule N4), for one call at a time."""

from typing import TYPE_CHECKING, Any

from arrowir import expressions
from arrowir import vocabulary as vocab
from arrowir.diagnostics import SimulationError
from arrowir.simulate.frames import Register, Storage
from arrowir.simulate.program import OperandCode, Program, TensorSet
from arrowir.simulate.step import ADDRESSED

if TYPE_CHECKING:
    from arrowir.simulate.machine import Machine
    from arrowir.simulate.step import Step


def bind(machine: "Machine", step: "Step", *, positional: bool) -> tuple[int, Storage, dict[int, Register]]:
    """Bind the parameters of a call's function.

    Parameters
    ----------
    machine
        The machine that makes the call.
    step
        The call.
    positional
        Whether parameters that no entry names bind to operands, in order.

    Returns
    -------
    tuple
        The function; memory by the parameter's location; registers by the parameter.

    Raises
    ------
    SimulationError
        If there is no function, or a parameter cannot be bound.
    """
    program, code, frame = machine.program, step.code, step.frame
    callee = _callee(program, code.row)
    formals = [s for s in program.sets(callee) if s.kind in vocab.INPUT_KINDS | vocab.OUTPUT_KINDS]
    bound, registers = _entries(program, step, {s.row for s in formals})
    if positional:
        _by_position(program, step, formals, bound)
    memories: Storage = {}
    for formal in formals:
        if formal.row not in bound:
            raise SimulationError(f"parameter `{formal.name}` is bound to nothing")
        if len(formal.locations) != 1:
            raise SimulationError(f"parameter `{formal.name}` has {len(formal.locations)} locations, expected one")
        location, actual = formal.locations[0], bound[formal.row]
        one, other = program.placement(location), program.placement(actual)
        if one.partitions * one.pitch != other.partitions * other.pitch:
            raise SimulationError(
                f"parameter `{one.name}` has {one.partitions}x{one.pitch} bytes and is bound to `{other.name}` of "
                f"{other.partitions}x{other.pitch}"
            )
        memories[location] = machine.touch(frame, actual)
    return callee, memories, {formal: frame.register(actual) for formal, actual in registers.items()}


def _callee(program: Program, row: int) -> int:
    for number in program.children("calls", "instruction_id", row):
        callee = int(program.column("calls", "callee_id")[number])
        if callee < 0:
            raise SimulationError(f"it calls `{program.pooled('calls', 'name', number)}`, which is not there")
        if (program.integer("calls", "candidates", number) or 1) > 1:
            raise SimulationError(f"several functions are named `{program.text('functions', callee)}`")
        return callee
    raise SimulationError("it names no function to call")


def _entries(program: Program, step: "Step", formals: set[int]) -> tuple[dict[int, int], dict[int, int]]:
    """Bind by name; of several entries for a parameter the last one counts."""
    bound: dict[int, int] = {}
    registers: dict[int, int] = {}
    for number in program.children("call_arguments", "instruction_id", step.code.row):

        def cell(name: str, number: int = number) -> int:
            return int(program.column("call_arguments", name)[number])

        name = program.pooled("call_arguments", "formal", number)
        formal, register = cell("formal_set_id"), cell("formal_register_id")
        location, actual_set = cell("actual_location_id"), cell("actual_set_id")
        if formal in formals:
            if location < 0 and actual_set >= 0:
                raise SimulationError(f"`{name}` is bound to a set that has not exactly one location")
            if location < 0:
                raise SimulationError(f"`{name}` is bound to what is no location of the caller")
            bound[formal] = location
        elif register >= 0:
            if cell("actual_register_id") < 0:
                raise SimulationError(f"`{name}` is bound to what is no register of the caller")
            registers[register] = cell("actual_register_id")
        else:
            raise SimulationError(f"an argument map names `{name}`, which is no parameter of the function")
    return bound, registers


def _by_position(program: Program, step: "Step", formals: list[TensorSet], bound: dict[int, int]) -> None:
    """Bind the parameters that are left to the operands that are left, inputs and outputs apart."""
    members, outs = step.code.members, step.code.outs
    pads = scratchpads(members)
    if len(outs) < pads:
        raise SimulationError(f"it has {len(outs)} outputs and must end in {pads} scratchpads")
    left = outs[: len(outs) - pads]
    for operands, kinds, direction in (
        (step.code.ins, vocab.INPUT_KINDS, vocab.DIRECTION_IN),
        (left, vocab.OUTPUT_KINDS, vocab.DIRECTION_OUT),
    ):
        taken = _taken(program, step.code.row, direction)
        free = [o for o in operands if o.kind in ADDRESSED and _storage(program, o) not in taken]
        waiting = [formal for formal in formals if formal.kind in kinds and formal.row not in bound]
        for formal, operand in zip(waiting, free, strict=False):
            if operand.unresolved:
                raise SimulationError(f"parameter `{formal.name}` would be bound to `{operand.unresolved}`")
            location = _storage(program, operand)
            if location < 0:
                raise SimulationError(f"parameter `{formal.name}` would be bound to a set that has not one location")
            bound[formal.row] = location


def scratchpads(members: Any) -> int:
    """Return how many outputs of a call-site are scratchpads (rule N6)."""
    sb, psum = (_numbers(members, key) for key in ("sb_buf_shape", "psum_buf_shape"))
    return int(any(sb)) + (psum[0] if psum else 0)


def _numbers(members: Any, key: str) -> list[int]:
    value = members.get(key) or []
    if not isinstance(value, list) or not all(expressions.is_integer(item) and item >= 0 for item in value):
        raise SimulationError(f"`{key}` is {value!r:.60}; expected a list of sizes")
    return value


def _taken(program: Program, row: int, direction: int) -> set[int]:
    """Return the locations that entries of one argument map name."""
    return {
        int(program.column("call_arguments", "actual_location_id")[number])
        for number in program.children("call_arguments", "instruction_id", row)
        if int(program.column("call_arguments", "direction")[number]) == direction
    } - {-1}


def _storage(program: Program, operand: OperandCode) -> int:
    """Return the location that an operand names, itself or by a set with one location; -1 when there is none."""
    if operand.location >= 0 or operand.set < 0:
        return operand.location
    inside = program.tensor_set(operand.set).locations
    return inside[0] if len(inside) == 1 else -1
