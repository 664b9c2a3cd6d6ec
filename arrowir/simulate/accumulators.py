"""The accumulators of the engines, kept from instruction to instruction until they are written out.

An instruction's value for a partition is the sum of its elements there, or the largest. Whether an accumulator takes in
that value, or every element by itself, shows only when it is written out, by how many elements are asked for: both are
kept.
"""

from dataclasses import dataclass

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate import alu
from arrowir.simulate.alu import Numbers
from arrowir.simulate.dtypes import F32
from arrowir.simulate.step import Step

_NO_ACCUMULATE = ("TensorScalarPtr", "TensorTensor", "RangeSelect")
"""Opcodes that the compiler refuses with the engine accumulation `Accumulate`."""


@dataclass(frozen=True)
class Accumulated:
    """What an accumulator holds."""

    sums: F32
    """One number for each partition."""
    elements: F32 | None
    """Partitions and elements, as long as all that was taken in had one shape."""


def accumulate(
    step: Step,
    command: str,
    rows: F32,
    *,
    op: str = "add",
    load: F32 | None = None,
    engine: str = "Unassigned",
) -> None:
    """Do with an engine's accumulator what an instruction says.

    Parameters
    ----------
    step
        The instruction.
    command
        A value of the vocabulary `engine_accumulation`.
    rows
        What is taken in: in each row one partition's elements, which are folded from left to right.
    op
        What folds them, and joins them with what is held: `add` or `max`.
    load
        What `LoadAccumulate` begins with: one number, or one for each partition. None if the instruction has none.
    engine
        Whose accumulator it is, when the instruction is assigned to no engine.
    """
    if command == "Idle":
        return
    if command == "Accumulate" and step.opcode in _NO_ACCUMULATE:
        raise SimulationError(
            f"Instruction Type Inst{step.opcode} does not support EngineAccumulationType Accumulate, only supports "
            "Idle, Zero, ZeroAccumulate, and AddAccumulate"
        )
    owner = owner_of(step, engine)
    held = step.machine.accumulators
    if command == "Zero":
        step.decide("accumulator_zero", "the engine accumulation `Zero`")
        held[owner] = Accumulated(np.zeros(len(rows), np.float32), np.zeros_like(rows))
    elif command == "ZeroAccumulate":
        held[owner] = Accumulated(_folded(step, op, rows), rows.copy())
    elif command == "LoadAccumulate":
        if load is None:
            raise SimulationError("an instruction that does a LoadAccumulate must provide an immediate")
        first = np.broadcast_to(load.reshape(-1, 1), (len(rows), 1)).astype(np.float32)
        held[owner] = Accumulated(_folded(step, op, np.hstack((first, rows))), None)
    elif command in ("AddAccumulate", "Accumulate"):
        if command == "Accumulate":
            step.decide("accumulator_accumulate", "the engine accumulation `Accumulate`")
        before = _held(step, owner)
        if len(before.sums) != len(rows):
            raise SimulationError(
                f"the accumulator of `{owner}` holds {len(before.sums)} partitions, and {len(rows)} are added"
            )
        same = before.elements is not None and before.elements.shape == rows.shape
        elements = _joined(step, op, before.elements, rows) if same and before.elements is not None else None
        held[owner] = Accumulated(_joined(step, op, before.sums, _folded(step, op, rows)), elements)
    else:
        raise SimulationError(f"the engine accumulation `{command}` is not modelled for `{step.opcode}`")


def _joined(step: Step, op: str, a: F32, x: F32) -> F32:
    return alu.apply(op, Numbers(a), Numbers(x), step.decide).single


def _folded(step: Step, op: str, rows: F32) -> F32:
    if op == "add":
        with np.errstate(all="ignore"):
            return np.add.accumulate(rows, axis=1, dtype=np.float32)[:, -1]
    nan = np.isnan(rows)
    if (nan.any(axis=1) & ~nan.all(axis=1)).any():
        met = "the largest of elements of which some are NaN is accumulated"
        if step.decide("nan_comparison", met) == "nan":
            return np.max(rows, axis=1)
    return np.fmax.reduce(rows, axis=1)


def write_reduction(step: Step, command: str, *, engine: str, negate: bool = False) -> None:
    """Write what the accumulator holds after an instruction to its second output, if it has one.

    Parameters
    ----------
    step
        The instruction.
    command
        What it did with the accumulator.
    engine
        Whose accumulator it is, when the instruction is assigned to no engine.
    negate
        Whether the negative is written.
    """
    if len(step.outs) < 2:
        return
    if command == "Idle":
        raise SimulationError("it has a second output for the accumulator, and accumulates nothing")
    values = read(step, step.outs[1].count, engine=engine)
    step.outs[1].write(-values if negate else values)


def read(step: Step, count: int, *, engine: str = "Unassigned") -> F32:
    """Return what an engine's accumulator holds.

    Parameters
    ----------
    step
        The instruction that writes it out.
    count
        How many numbers are asked for: one for each partition, or as many as were taken in.
    engine
        Whose accumulator it is, when the instruction is assigned to no engine.

    Raises
    ------
    SimulationError
        If nothing has been accumulated, or something else than is asked for.
    """
    owner = owner_of(step, engine)
    held = _held(step, owner)
    if count == len(held.sums):
        return held.sums
    if held.elements is not None and count == held.elements.size:
        return held.elements
    raise SimulationError(f"the accumulator of `{owner}` holds {len(held.sums)} partitions, and {count} are asked for")


def owner_of(step: Step, engine: str) -> str:
    """Return the engine whose accumulator an instruction uses; one is named for when it is assigned to none."""
    owner = step.code.engine if step.code.engine not in ("Unassigned", "") else engine
    if owner == "Unassigned":
        raise SimulationError("it is assigned to no engine, so that it is not known whose accumulator is meant")
    return owner


def _held(step: Step, owner: str) -> Accumulated:
    held = step.machine.accumulators.get(owner)
    if held is None:
        raise SimulationError(f"the accumulator of `{owner}` is used, and nothing has been accumulated")
    return held
