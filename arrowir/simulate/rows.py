"""What handlers of several families share: operands by partition, values for another dtype, writes of a part.

Rows are an operand's elements as two dimensions: its partitions, and all else.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from arrowir.diagnostics import SimulationError
from arrowir.simulate import dtypes
from arrowir.simulate.alu import Numbers
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

LANES = 32
"""Partitions that transposes and shuffles work on at a time."""


def cast(source: Operand, target: Operand) -> Array:
    """Return an operand's elements in the numpy dtype of another one, as a copy would write them.

    Where both have one dtype the bits stay as they are.
    """
    if source.code.dtype == target.code.dtype:
        return source.read()
    held, to = source.dtype, target.dtype
    decide = target.step.decide
    if "bits" in (held.kind, to.kind):
        raise SimulationError(f"a cast of `{held.name}` to `{to.name}` is not modelled")
    if held.kind == "int" and to.kind == "int":
        values = source.int64()
        # Values are cast by way of float32, which makes a difference for large ones.
        exact = dtypes.check_exact(values, decide)
        rounded = exact or source.step.machine.readings.get("integer_arithmetic") == "exact"
        return dtypes.convert(values if rounded else values.astype(np.float32), to, decide)
    return dtypes.convert(source.float32(), to, decide)


def column(operand: Operand, partitions: int) -> Numbers:
    """Return one value for each partition, as a column; an immediate or a register is one for all.

    Parameters
    ----------
    operand
        Has one element in memory for each partition, or is an immediate or a register.
    partitions
        How many there are.

    Raises
    ------
    SimulationError
        If it has another number of elements.
    """
    check_column(operand, partitions)
    return operand.numbers().reshape(-1, 1)


def check_column(operand: Operand, partitions: int) -> None:
    """Refuse an operand that has neither one element for each partition, nor one that is no access to memory."""
    if operand.count != partitions and (operand.in_memory or operand.count != 1):
        raise SimulationError(
            f"`{operand.code.title}` has {operand.count} elements; expected {partitions}, one for each partition"
        )


def paired(*operands: Operand) -> int:
    """Check that operands have as many elements as the first one, and return how many partitions that has."""
    first = operands[0]
    for other in operands[1:]:
        if other.count != first.count:
            raise SimulationError(
                f"`{first.code.title}` has {first.count} elements, and `{other.code.title}` {other.count}"
            )
    return first.partitions


def write_where(step: Step, out: Operand, chosen: NDArray[np.bool_], values: Array) -> None:
    """Write some elements of an output, and leave the others as they are, written or not.

    Parameters
    ----------
    step
        The instruction.
    out
        The output.
    chosen
        Which elements are written, in linear order.
    values
        A value for each element, in the numpy dtype of the output.
    """
    access = out.access
    if not access.unique:
        raise SimulationError(f"`{out.code.title}` has an element twice, and only some of its elements are written")
    mask = chosen.reshape(access.shape)
    new = np.ascontiguousarray(values).reshape(access.shape)
    before, written = access.written(), None
    if before is not None:
        written = mask | before
    if step.unwritten is not None:
        known = ~step.unwritten.reshape(access.shape)
        written = known if written is None else written & known
    step.machine.check_values(step, out, new[mask])
    access.store(np.where(mask, new.view(access.dtype.unsigned), access.bits()), written)
    step.machine.count_written(access, new[mask])


def rearranged(values: Numbers, change: Callable[[Array], Array]) -> Numbers:
    """Return numbers with their elements moved."""
    if values.exact is not None:
        return Numbers(None, change(values.exact))
    return Numbers(change(values.single))


def transpose_blocks(values: Array) -> Array:
    """Transpose every block of 32 rows and 32 columns within itself.

    Raises
    ------
    SimulationError
        If rows or columns are no multiple of 32.

    Examples
    --------
    >>> transpose_blocks(np.arange(2048).reshape(32, 64))[1, :3].tolist()
    [1, 65, 129]
    """
    rows, columns = values.shape
    if rows % LANES or columns % LANES:
        raise SimulationError(
            f"{rows} partitions of {columns} elements are transposed; both are to be multiples of {LANES}"
        )
    blocks = values.reshape(rows // LANES, LANES, columns // LANES, LANES)
    return np.ascontiguousarray(blocks.transpose(0, 3, 2, 1)).reshape(rows, columns)


def transpose_lanes(values: Array) -> Array:
    """Return the elements of each 32 rows column by column, in one dimension."""
    rows, columns = values.shape
    lanes = min(rows, LANES)
    if rows % lanes:
        raise SimulationError(f"the results of {rows} partitions are transposed; expected a multiple of {LANES}")
    return np.ascontiguousarray(values.reshape(-1, lanes, columns).transpose(0, 2, 1)).reshape(-1)


def check_apart(step: Step, *, in_place: bool = False) -> None:
    """Refuse an instruction that moves elements to other places and writes to where it reads.

    Parameters
    ----------
    step
        The instruction.
    in_place
        Whether input and output may be the same access.
    """
    for out in step.outs:
        target = out.access
        for operand in step.ins:
            if not operand.in_memory or operand.access.memory is not target.memory:
                continue
            source = operand.access
            same = (source.offset, source.steps, source.shape) == (target.offset, target.steps, target.shape)
            if same and in_place and source.dtype.size == target.dtype.size:
                continue
            if len(np.intersect1d(source.bytes(), target.bytes())):
                step.decide(
                    "overlap",
                    f"`{out.code.title}` and `{operand.code.title}` share elements of `{target.memory.name}`, and "
                    f"`{step.opcode}` moves elements to other places",
                )
