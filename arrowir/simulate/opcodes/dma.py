"""What DMA engines do: copies, transposes, replication, sums of several inputs; with addresses from tensors of indices.

`DMACopy` and the descriptors of queues do the same: a descriptor is named after the mode.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arrowir.diagnostics import SimulationError
from arrowir.simulate import alu, scattered
from arrowir.simulate.alu import Numbers
from arrowir.simulate.indices import find_indices, is_indirect
from arrowir.simulate.indices import scattered as by_indices
from arrowir.simulate.opcodes.copies import copy
from arrowir.simulate.registry import opcode
from arrowir.simulate.scattered import Scattered
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

DIMENSIONS = "WZYX"
"""Letters of the dimensions of a pattern of four, partitions first."""

_SEVERAL = (1, None)


@opcode(
    "DMACopy", ins=_SEVERAL, outs=1, indirection=(0, None), basis="strong",
    keys="mode oob_is_err transpose_op constants cce_op",
)  # fmt: skip
def dma_copy(step: Step) -> None:
    """By `mode`: a copy, with rows from or to where indices say and then perhaps added; a transpose; a sum, maximum or
    minimum of inputs; replication of rows.
    """  # noqa: D205
    mode, reduce = step.word("mode"), step.word("cce_op")
    if mode != "Transpose" and step.word("transpose_op") != "None":
        raise SimulationError(f"`transpose_op` is `{step.word('transpose_op')}` in the mode `{mode}`")
    if mode == "CCE":
        combine(step, reduce)
        return
    if step.has("constants") and step.attribute("constants"):
        raise SimulationError(f"`constants` are given in the mode `{mode}`; expected none")
    source, target = step.ins[0], step.out
    if mode == "Transpose":
        _no_reduction(mode, reduce)
        if is_indirect(source.code):
            _gather_transposed(step, step.word("transpose_op"))
        else:
            _single(step)
            transpose(step, step.word("transpose_op"))
    elif mode == "Replicate":
        _no_reduction(mode, reduce)
        _single(step)
        replicate(step)
    elif mode != "Copy":
        raise SimulationError(f"the mode `{mode}` is not modelled")
    elif is_indirect(source.code) or is_indirect(target.code):
        _copy_rows(step, reduce)
    else:
        if reduce != "bypass":
            raise SimulationError(
                f"CCE op is only valid on DMACopys that have mode=CCE or use vector DGE (dst_reduce); found `{reduce}`"
            )
        _single(step)
        step.check_overlap()
        step.elementwise = True
        copy(source, target)


@opcode("DMADescriptorTranspose", ins=1, outs=1, keys="transpose_op")
def transpose_descriptor(step: Step) -> None:
    """The dimensions of the input in the order that `transpose_op` spells."""
    transpose(step, step.word("transpose_op"))


@opcode("DMADescriptorReplicate", ins=1, outs=1)
def replicate_descriptor(step: Step) -> None:
    """The rows of the input again and again, until the output is full."""
    replicate(step)


@opcode("DMADescriptorCCE", ins=_SEVERAL, outs=1, keys="op constants")
def combine_descriptor(step: Step) -> None:
    """The sum of the inputs, each times its constant; or their maximum or minimum."""
    combine(step, step.word("op"))


def _no_reduction(mode: str, reduce: str) -> None:
    if reduce != "bypass":
        raise SimulationError(f"DMACopy does not support {reduce} with {mode} mode")


def _single(step: Step) -> None:
    """Look at the operands of an instruction with one input: registers may stand behind it, which that one names."""
    others = [o for o in (*step.ins[1:], *step.indirection) if o.kind != "register_access"]
    if others:
        raise SimulationError(f"`{others[0].code.title}` has no part in it; expected one input")
    _static(step.ins[0], step.out)


def _static(*operands: Operand) -> None:
    for operand in operands:
        if is_indirect(operand.code):
            raise SimulationError(f"`{operand.code.title}` is addressed by a tensor of indices, which is not modelled")


# -- transposes -------------------------------------------------------------------------------------------------------


def dimension_order(transpose_op: str) -> tuple[int, ...]:
    """Return for each dimension of the result the one of the input.

    Examples
    --------
    >>> dimension_order("XZYW")
    (3, 1, 2, 0)
    """
    if transpose_op == "None":
        return 0, 1, 2, 3
    order = tuple(DIMENSIONS.find(letter) for letter in transpose_op)
    if sorted(order) != [0, 1, 2, 3]:
        raise SimulationError(f"the transpose `{transpose_op}` is not modelled")
    return order


def transpose(step: Step, transpose_op: str) -> None:
    """Move elements so that dimensions change places."""
    source, target = step.ins[0], step.out
    order = _checked_order(source, source.shape, target, transpose_op)
    _refuse_shared(source, target)
    step.elementwise = True
    moved = source.read_bits().transpose(order)
    if step.unwritten is not None:
        step.unwritten = step.unwritten.reshape(source.shape).transpose(order).reshape(-1)
    target.write_bits(moved)


def _checked_order(source: Operand, shape: Sequence[int], target: Operand, transpose_op: str) -> tuple[int, ...]:
    if len(shape) != 4 or len(target.shape) != 4:
        raise SimulationError(
            f"Source and destination access pattern must be 4-D; found {len(shape)} and {len(target.shape)} dimensions"
        )
    _same_dtype(source, target, "DMA transpose input and output should have the same type")
    order = dimension_order(transpose_op)
    moved = tuple(shape[d] for d in order)
    if moved != target.shape:
        raise SimulationError(
            f"{list(shape)} transposed by `{transpose_op}` is {list(moved)}, not {list(target.shape)}"
        )
    return order


def _same_dtype(source: Operand, target: Operand, text: str) -> None:
    if source.code.dtype != target.code.dtype:
        raise SimulationError(f"{text}, but it has in {source.code.dtype} out {target.code.dtype}")


def _refuse_shared(source: Operand, target: Operand) -> None:
    if source.access.memory is target.access.memory:
        scattered.refuse_overlap(Scattered.of(source, 1), Scattered.of(target, 1))


def _gather_transposed(step: Step, transpose_op: str) -> None:
    """Gather rows by index, and transpose what they make up."""
    if transpose_op != "XZYW":
        raise SimulationError(f"DGE xbar dynamic transpose only supports TransposeOps::XZYW, but it is {transpose_op}")
    source, target = step.ins[0], step.out
    found = _rows(step, source)
    _check_used(step)
    pattern = source.code.members.get("dynamic_ap_info", {}).get("actual_ap") or source.code.pattern
    shape = tuple(num for _, num in pattern)
    order = _checked_order(source, shape, target, transpose_op)
    _check_suffix(found.kept)
    moved = found.read().reshape(shape).transpose(order)
    kept = np.broadcast_to(found.kept.reshape(-1, 1, 1, 1), shape).transpose(order).reshape(-1)
    written = Scattered.of(target, target.count, kept)
    scattered.refuse_overlap(found, written)
    written.write(np.ascontiguousarray(moved).reshape(-1, 1))


def _check_suffix(kept: NDArray[np.bool_]) -> None:
    number = int(kept.sum())
    if not kept[:number].all():
        first = int(np.flatnonzero(~kept)[0])
        raise SimulationError(
            "Dynamic DMA transpose indices can only be OOB after first OOB index found. But index "
            f"{int(np.flatnonzero(kept)[-1])} is not OOB, and index {first} is"
        )
    if number % 16:
        raise SimulationError(
            f"Dynamic DMA transpose number of non-OOB indices must be a multiple of 16, but it is {number}"
        )


# -- replication ------------------------------------------------------------------------------------------------------


def replicate(step: Step) -> None:
    """Write the rows of the input again and again."""
    source, target = step.ins[0], step.out
    if len(source.shape) != 2 or len(target.shape) != 2:
        raise SimulationError(
            f"replication takes access patterns of 2 dimensions; found {len(source.shape)} and {len(target.shape)}"
        )
    _same_dtype(source, target, "replication takes an input and an output of the same type")
    (rows, length), (wanted, width) = source.shape, target.shape
    if length != width or wanted % rows:
        raise SimulationError(f"{list(source.shape)} cannot be replicated to {list(target.shape)}")
    _refuse_shared(source, target)
    step.elementwise = True
    bits = source.read_bits()
    order = _row_order(step, bits, rows, wanted)
    if step.unwritten is not None:
        step.unwritten = step.unwritten.reshape(rows, length)[order].reshape(-1)
    target.write_bits(bits[order])


def _row_order(step: Step, bits: Array, rows: int, wanted: int) -> NDArray[np.int64]:
    """Return for each row of the output the one of the input."""
    tile, repeat = np.tile(np.arange(rows), wanted // rows), np.repeat(np.arange(rows), wanted // rows)
    if (tile == repeat).all() or (bits == bits[0]).all():
        return tile
    chosen = step.decide("replicate_rows", f"{rows} rows are replicated to {wanted}")
    return tile if chosen == "tile" else repeat


# -- sums -------------------------------------------------------------------------------------------------------------

_COMBINING = ("add", "max", "min")


def combine(step: Step, op: str) -> None:
    """Fold the inputs in float32, element by element and in order."""
    if op not in _COMBINING:
        raise SimulationError(f"DMACopy does not support {op} in CCE mode; expected add, max or min")
    if step.indirection:
        raise SimulationError("operands in `indirection_ins` have no part in a sum; expected none")
    _static(*step.ins, step.out)
    for operand in (*step.ins, step.out):
        if operand.dtype.kind == "bits":
            raise SimulationError(f"DMA non-bypass CCE is not allowed for MX data types; found `{operand.dtype.name}`")
        if operand.count != step.out.count:
            raise SimulationError(f"`{operand.code.title}` has {operand.count} elements, the output {step.out.count}")
    constants = _constants(step)
    step.check_overlap()
    step.elementwise = True
    values = [operand.numbers().reshape(-1) for operand in step.ins]
    scaled = _scaled(step, values, constants)
    result = _folded(step, op, scaled)
    if op != "add" and scaled is not values:
        as_they_are = _folded(step, op, values)
        if not np.array_equal(result.result, as_they_are.result, equal_nan=True):
            met = f"`{op}` of inputs with the constants {constants}"
            result = result if step.decide("cce_constants", met) == "scaled" else as_they_are
    step.out.write(result.result)


def _constants(step: Step) -> list[float]:
    given = step.attribute("constants") if step.has("constants") else ()
    if not isinstance(given, list | tuple):
        raise SimulationError(f"`constants` is {given!r:.60}; expected numbers")
    constants: list[Any] = list(given)
    if not constants:
        return [1.0] * len(step.ins)
    if len(constants) != len(step.ins):
        raise SimulationError(
            f"DMA CCE: Scale array must match number of inputs; found {len(constants)} for {len(step.ins)}"
        )
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in constants):
        raise SimulationError(f"`constants` is {constants!r:.60}; expected numbers")
    return [float(value) for value in constants]


def _decide(step: Step, case: str, met: str) -> str:
    """Answer what is known about DMA: of a NaN and a number, the number is the maximum."""
    return "number" if case == "nan_comparison" else step.decide(case, met)


def _scaled(step: Step, values: list[Numbers], constants: list[float]) -> list[Numbers]:
    if all(constant == 1 for constant in constants):
        return values
    pairs = zip(values, constants, strict=True)
    return [alu.apply("mult", v, alu.constant(c), step.decide) if c != 1 else v for v, c in pairs]


def _folded(step: Step, op: str, values: list[Numbers]) -> Numbers:
    total = values[0]
    for value in values[1:]:
        total = alu.apply(op, total, value, lambda case, met: _decide(step, case, met))
    return total


# -- rows by index ----------------------------------------------------------------------------------------------------


def _rows(step: Step, operand: Operand) -> Scattered:
    found = by_indices(operand, oob_is_err=step.flag("oob_is_err"))
    if not found.memory.flat:
        raise SimulationError(
            f"Indirect tensor `{found.memory.name}` of Vector DGE DMACopy must have MemoryType::DRAM, not partitions"
        )
    return found


def _copy_rows(step: Step, reduce: str) -> None:
    """Copy rows from where indices say, or to there."""
    source, target = step.ins[0], step.out
    _same_dtype(source, target, "a copy of rows by index takes an input and an output of the same type")
    if is_indirect(source.code) and is_indirect(target.code):
        raise SimulationError("Only one of the src and dst can contain dynamic access.")
    if is_indirect(source.code):
        if reduce != "bypass":
            raise SimulationError(f"`cce_op` is `{reduce}` for rows that are gathered, which is not modelled")
        found = _rows(step, source)
        _check_used(step)
        _same_count(found, target)
        written = Scattered.of(target, found.shape[0], found.kept)
        scattered.refuse_overlap(found, written)
        written.write(found.read())
        return
    written = _rows(step, target)
    _check_used(step)
    _same_count(written, source)
    scattered.refuse_overlap(written, Scattered.of(source, written.shape[0], written.kept))
    bits = source.read_bits().reshape(written.shape)
    if reduce == "bypass":
        written.write(bits)
        return
    if reduce != "add":
        raise SimulationError(f"Invalid CCE op type '{reduce}' for DGE DstReduce. Must be 'add'")
    rows = written.numbers[written.kept, 0]
    starts, counts = np.unique(rows, return_counts=True)
    if (counts > 1).any():
        twice = np.flatnonzero(np.isin(rows, starts[counts > 1])).tolist()
        raise SimulationError(
            f"Duplicate indices not allowed on DGE DstReduce instruction: numbers {twice[:8]} of the indices are equal"
        )
    written.add(bits)


def _check_used(step: Step) -> None:
    """Look whether each further input is one of indices that an address names."""
    named = [found.code.row for found in _named(step)]
    for operand in (*step.ins[1:], *step.indirection):
        if operand.code.row not in named and operand.kind != "register_access":
            raise SimulationError(f"`{operand.code.title}` has no part in the copy")


def _named(step: Step) -> list[Operand]:
    ids: list[object] = []

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if value.get("kind") == "IndirectArgId":
                ids.append(value.get("arg_id"))
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    for operand in (step.ins[0], step.out):
        members = operand.code.members
        walk(members.get("addrs"))
        walk(members.get("dynamic_ap_info"))
    return [find_indices(step, number) for number in ids]


def _same_count(rows: Scattered, other: Operand) -> None:
    if rows.count != other.count:
        raise SimulationError(
            f"{rows.shape[0]} indices mean {rows.count} elements, and `{other.code.title}` has {other.count}"
        )
