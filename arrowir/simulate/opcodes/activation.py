"""Functions of one argument, and the accumulators that they and others fill."""

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.accumulators import accumulate, read, write_reduction
from arrowir.simulate.dtypes import F32
from arrowir.simulate.functions import FUNCTIONS
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import column
from arrowir.simulate.step import Operand, Step


@opcode("Activation", ins=(1, 4), outs=1, keys="func scale alpha acc reduce_op", elementwise=True)
def activation(step: Step) -> None:
    """``func(in * scale + bias, alpha)``; then the results may go into the engine's accumulator.

    `scale`, `bias` and `alpha` are operands 1 to 3, one value for each partition or one for all. Without an operand the
    keys `scale` and `alpha` hold, and a bias of 0.
    """
    x = step.ins[0].rows()
    name = step.word("func")
    scale, bias, alpha = (_parameter(step, place) for place in (1, 2, 3))
    with np.errstate(all="ignore"):
        if name in ("Identity", "Copy") and scale is None and bias is None and _is_one(step):
            value = x
        else:
            value = x * (scale if scale is not None else _scale(step))
            if bias is not None:
                value = value + bias
        result = _function(step, name, value, alpha)
    step.out.write(result)
    command = step.word("acc")
    if command != "Idle" and step.word("reduce_op") not in ("bypass", "add"):
        raise SimulationError(f"an accumulation with `{step.word('reduce_op')}` is not modelled")
    accumulate(step, command, result, engine="Activation")


def _function(step: Step, name: str, value: F32, alpha: F32 | None) -> F32:
    if name == "Prelu":
        factor = alpha if alpha is not None else np.float32(step.number("alpha"))
        return np.where(value <= 0, factor * value, value)
    function = FUNCTIONS.get(name)
    if function is None:
        raise SimulationError(f"Unsupported activation function Simulator::simulation: {name}")
    return value if name in ("Identity", "Copy") else function(value.astype(np.float64)).astype(np.float32)


def _parameter(step: Step, place: int) -> F32 | None:
    """Return an operand that gives one value for each partition, or for all."""
    if place >= len(step.ins):
        return None
    operand: Operand = step.ins[place]
    if operand.in_memory:
        partitions = step.ins[0].partitions
        if operand.count not in (1, partitions):
            raise SimulationError(
                f"`{operand.code.title}` has {operand.count} elements; expected 1 or {partitions}, one per partition"
            )
        return operand.float32().reshape(-1, 1)
    if operand.dtype.name != "float32":
        raise SimulationError("activation function only support float32 bias/scale/alpha")
    return operand.float32().reshape(-1)


def _scale(step: Step) -> np.float32:
    if step.has("scale"):
        return np.float32(step.number("scale"))
    return np.float32(step.decide("activation_scale", "the activation has no `scale`") == "one")


def _is_one(step: Step) -> bool:
    return float(_scale(step)) == 1


@opcode("Reciprocal", ins=1, outs=1, elementwise=True)
def reciprocal(step: Step) -> None:
    """``1 / in``."""
    with np.errstate(all="ignore"):
        step.out.write(np.float32(1) / step.ins[0].float32())


@opcode("ReadActivationAccumulator", "ActivationReadAccumulator", ins=(0, None), outs=1)
def read_activation_accumulator(step: Step) -> None:
    """The accumulator of the Activation engine is written out."""
    step.out.write(read(step, step.out.count, engine="Activation"))


@opcode("DveReadAccumulator", ins=(0, None), outs=1, keys="negated")
def read_dve_accumulator(step: Step) -> None:
    """The accumulator of the DVE is written out, negated on request."""
    held = read(step, step.out.count, engine="DVE")
    step.out.write(-held if step.flag("negated") else held)


@opcode("Exponential", ins=(2, 3), outs=(1, 2), keys="reduce_cmd", elementwise=True, basis="strong")
def exponential(step: Step) -> None:
    """``exp(in - max)`` with one maximum for each partition; the sum of each may go into the accumulator.

    A third operand is what `LoadAccumulate` begins with.
    """
    source, largest = step.ins[:2]
    partitions = source.partitions
    limit = column(largest, partitions).single
    with np.errstate(all="ignore"):
        result = np.exp((source.rows() - limit).astype(np.float64)).astype(np.float32)
    step.out.write(result)
    load = column(step.ins[2], partitions).single if len(step.ins) == 3 else None
    command = step.word("reduce_cmd")
    accumulate(step, command, result, load=load, engine="DVE")
    write_reduction(step, command, engine="DVE")
