"""Gathers within partitions, and copies with an offset that is known at run time only."""

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.indices import is_indirect
from arrowir.simulate.memory import Access, CrossingError
from arrowir.simulate.opcodes.copies import copy
from arrowir.simulate.registry import opcode
from arrowir.simulate.scattered import Numbers, Scattered, refuse_overlap
from arrowir.simulate.step import Operand, Step

_CORE = 16
"""Partitions that share their indices in an `IndirectCopy`."""


@opcode("Gather", ins=2, outs=1)
def gather(step: Step) -> None:
    """``out[p, j] = data[p, indices[p, j]]``."""
    data, indices = step.ins
    _check_operands(step, data, indices)
    if indices.dtype.name != "uint32":
        raise SimulationError(f"Gather instruction expects type uint32 for indices: {indices.dtype.name}")
    length = indices.count // indices.partitions
    if length != step.out.count // step.out.partitions:
        raise SimulationError(
            "Gather instruction expects the same number of elements per partition for indices: "
            f"{length} and outputs: {step.out.count // step.out.partitions}"
        )
    _take(step, indices.int64().reshape(indices.partitions, length))


@opcode("IndirectCopy", ins=2, outs=1, keys="num_valid_indices", basis="strong")
def indirect_copy(step: Step) -> None:
    """Elements of each partition by number, the first `num_valid_indices` of the indices."""
    data, indices = step.ins
    _check_operands(step, data, indices)
    if indices.dtype.kind != "int" or indices.dtype.lowest < 0:
        raise SimulationError(f"the indices are `{indices.dtype.name}`; expected integers without sign")
    valid, width = step.integer("num_valid_indices"), step.out.count // step.out.partitions
    rows = indices.int64().reshape(indices.partitions, -1)
    by_row = _by_row(rows, valid, width)
    by_core = _by_core(rows, valid, width)
    if by_row is None and by_core is None:
        raise SimulationError(
            f"{valid} valid indices of {rows.shape[1]} for each partition do not fit {width} elements of the output"
        )
    if by_row is None or by_core is None or np.array_equal(by_row, by_core):
        found = by_row if by_row is not None else by_core
    else:
        what = f"{rows.shape[1]} indices in each of {len(rows)} partitions"
        found = by_row if step.decide("indirect_copy", what) == "row" else by_core
    assert found is not None
    _take(step, found)


def _by_row(rows: Numbers, valid: int, width: int) -> Numbers | None:
    """Return the elements to take when each partition has indices of its own."""
    return rows[:, :valid] if 0 < valid <= min(rows.shape[1], width) else None


def _by_core(rows: Numbers, valid: int, width: int) -> Numbers | None:
    """Return the elements to take when 16 partitions share their indices, and each means a run of elements."""
    if len(rows) % _CORE or not 0 < valid <= rows.shape[1] * _CORE or width % valid:
        return None
    shared = rows.reshape(-1, _CORE, rows.shape[1]).transpose(0, 2, 1).reshape(len(rows) // _CORE, -1)[:, :valid]
    run = np.arange(width // valid)
    taken = (shared[:, :, None] + run).reshape(len(shared), -1)
    return np.repeat(taken, _CORE, axis=0)


def _check_operands(step: Step, data: Operand, indices: Operand) -> None:
    out = step.out
    for what, operand in (("params", data), ("indices", indices), ("outputs", out)):
        if len(operand.shape) > 4:
            raise SimulationError(
                f"{step.opcode} instruction expects maximum 4 dimensions in {what} access pattern but found "
                f"{len(operand.shape)}"
            )
    if data.code.dtype != out.code.dtype:
        raise SimulationError(
            f"{step.opcode} instruction expects the same data type for params: {data.code.dtype} and outputs: "
            f"{out.code.dtype}"
        )
    for what, operand in (("indices", indices), ("outputs", out)):
        if operand.partitions != data.partitions:
            raise SimulationError(
                f"{step.opcode} instruction expects the same number of partitions for params: {data.partitions} and "
                f"{what}: {operand.partitions}"
            )


def _take(step: Step, index: Numbers) -> None:
    """Write elements of each partition of the data to the front of the same partition of the output."""
    data, out = step.ins[0], step.out
    held = data.count // data.partitions
    beyond = index >= held
    if beyond.any():
        partition, place = np.argwhere(beyond)[0].tolist()
        raise SimulationError(
            f"Parameter index {int(index[partition, place])} is equal to or greater than parameters per partition "
            f"{held} at partition {partition} and index {place}"
        )
    source, target = Scattered.of(data, data.partitions), Scattered.of(out, out.partitions)
    chosen = Scattered(data, source.memory, source.dtype, np.take_along_axis(source.numbers, index, axis=1))
    written = Scattered(out, target.memory, target.dtype, target.numbers[:, : index.shape[1]])
    refuse_overlap(chosen, written)
    written.write(chosen.read())


# -- copies with an offset --------------------------------------------------------------------------------------------


@opcode("TensorCopyDynamicSrc", ins=(1, 2), outs=1, keys="scale", basis="strong")
def copy_from_offset(step: Step) -> None:
    """A copy from an offset that stands in a register, or in memory and is scaled."""
    _dynamic_copy(step, step.ins[0])


@opcode("TensorCopyDynamicDst", ins=(1, 2), outs=1, keys="scale", basis="strong")
def copy_to_offset(step: Step) -> None:
    """A copy to an offset that stands in a register, or in memory and is scaled."""
    _dynamic_copy(step, step.out)


def _dynamic_copy(step: Step, moved: Operand) -> None:
    """Copy, after moving one operand by the offset that the second input holds."""
    source, target = step.ins[0], step.out
    for operand in (source, target):
        if is_indirect(operand.code):
            raise SimulationError(f"`{operand.code.title}` is addressed by a tensor of indices, which is not modelled")
    scale = step.integer("scale") if step.has("scale") else 1
    if len(step.ins) == 1:
        if scale != 1:
            raise SimulationError(f"`scale` is {scale}, and there is no offset that it could multiply")
        step.check_overlap()
    else:
        _move(moved, _offset(step, step.ins[1], scale))
        if source.access.memory is target.access.memory:
            refuse_overlap(Scattered.of(source, 1), Scattered.of(target, 1))
    step.elementwise = True
    copy(source, target)


def _offset(step: Step, operand: Operand, scale: int) -> int:
    if operand.kind == "register_access":
        if scale != 1:
            raise SimulationError(f"`scale` is {scale} for an offset in a register, which is not modelled")
        return operand.integer()
    if not operand.in_memory:
        raise SimulationError(f"the offset is a `{operand.kind}`; expected a register or an access to one element")
    return operand.integer() * scale


def _move(operand: Operand, offset: int) -> None:
    """Let an operand mean elements that lie by an offset further on."""
    if offset == 0:
        return
    step, access = operand.step, operand.access
    if access.dtype.size > 1 and step.decide("dynamic_copy_offset", f"the offset is {offset}") == "bytes":
        if offset % access.dtype.size:
            raise SimulationError(f"an offset of {offset} bytes lies within an element of {access.dtype.size} bytes")
        offset //= access.dtype.size
    pattern = list(zip(access.steps, access.shape, strict=True))
    try:
        moved = Access(access.memory, access.dtype, access.offset + offset, pattern)
    except CrossingError as error:
        step.decide("partition_crossing", error.reason)
        moved = Access(access.memory, access.dtype, access.offset + offset, pattern, linear=True)
    operand.move(moved)
