"""Instructions that change nothing: what is printed, marks for other parts of the device, the end of a program.

Also opcodes that are none: classes of opcodes, and names that only older builds had.
"""

from arrowir import vocabulary
from arrowir.diagnostics import SimulationError
from arrowir.simulate.registry import opcode, refuse
from arrowir.simulate.step import Step

_ANY = (0, None)

refuse(
    *(vocabulary.OPCODES.values[code] for code in vocabulary.ABSTRACT_OPCODES),
    why="it is a class of opcodes, and no instruction should have it",
)
refuse(
    *("Shuffle", "ShuffleSymbolic", "CalcVarAddr", "CalcVarAddrSymbolic"),
    why="only builds before 2.24 had it, and what it computes is not known",
)
refuse(
    *("MatmultSymbolic", "RangeSelectSymbolic", "StreamShuffleSymbolic", "TensorScalarSymbolic", "IotaSymbolic"),
    *("TensorScalarAffineSelectSymbolic",),
    why="only builds before 2.24 had this form of the opcode without `Symbolic`, with expressions in its keys",
)
refuse(
    "GenericRelu", "NonzeroWithCount", why="what it computes is not known well enough; no description of it executes it"
)
refuse("GetSequenceBounds", why="what it gives for elements without a segment is not known")
refuse("TongaReduceMacroSymbolic", why="it stands for a reduction that is expanded before anything is executed")


@opcode("DevicePrint", ins=1, keys="prefix output_buffer", basis="inferred")
def device_print(step: Step) -> None:
    """Nothing; its operand is read, so that it has to have been written."""
    operand = step.ins[0]
    if operand.kind != "physical_ap":
        raise SimulationError(f"InstDevicePrint argument must be a PhysicalAccessPattern, but it is a {operand.kind}")
    operand.read()


@opcode("TensorCompletion", ins=_ANY, outs=_ANY, keys="mode", control=True, basis="strong")
def tensor_completion(step: Step) -> None:
    """Nothing: a mark that a tensor is complete."""


@opcode("Halt", ins=_ANY, outs=_ANY, control=True, basis="strong")
def halt(step: Step) -> None:
    """Nothing where it is the last instruction; else a choice."""
    levels = step.machine.levels
    last = all(
        level.again is None and level.block + 1 == len(level.blocks) and level.at >= level.end for level in levels
    )
    if not last and step.decide("halt", "instructions follow it") == "stop":
        step.machine.leave_program(step)
