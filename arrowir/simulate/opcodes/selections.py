"""Selections: by a predicate, by an affine function of the place, by a range; and the affine function itself."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arrowir.diagnostics import SimulationError
from arrowir.expressions import is_integer
from arrowir.simulate import alu, dtypes
from arrowir.simulate.accumulators import accumulate, write_reduction
from arrowir.simulate.dtypes import F32
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import cast, column, paired, write_where
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_COMPARISONS = {name: alu.ARITHMETIC[name] for name in ("is_equal", "not_equal", "is_gt", "is_ge", "is_lt", "is_le")}


def _values(source: Operand, target: Operand) -> Array:
    """Return an operand's elements as the target would hold them, in one dimension; one immediate stands for all."""
    if source.in_memory and source.count != target.count:
        raise SimulationError(
            f"`{source.code.title}` has {source.count} elements, and `{target.code.title}` {target.count}"
        )
    return np.broadcast_to(cast(source, target).reshape(-1), (target.count,))


@opcode("Select", ins=3, outs=1, elementwise=True)
def select(step: Step) -> None:
    """``predicate ? on_true : on_false``; the predicate is 0 or 1."""
    predicate, on_true, on_false = step.ins
    paired(step.out, predicate)
    chosen = predicate.float32().reshape(-1)
    if not np.isin(chosen, (0, 1)).all():
        met = chosen[~np.isin(chosen, (0, 1))][0]
        raise SimulationError(f"the predicate holds {met}; expected 0 or 1")
    step.out.write(_either(chosen == 1, _values(on_true, step.out), _values(on_false, step.out)))


def _either(chosen: NDArray[np.bool_], one: Array, other: Array) -> Array:
    """Choose between values of one dtype, bits untouched."""
    unsigned = np.dtype(f"u{one.dtype.itemsize}")
    return np.where(chosen, one.view(unsigned), other.view(unsigned)).view(one.dtype)


@opcode(
    "CopyPredicated", ins=(2, 3), outs=(1, 2), elementwise=True, basis="strong",
    keys="reverse_pred reduce_op accumulator_cmd",
)  # fmt: skip
def copy_predicated(step: Step) -> None:
    """``out = source`` where the predicate is not 0; elsewhere out keeps its value, or takes the third operand.

    `reverse_pred` inverts the predicate. With a third operand the largest result of each partition may go into the
    accumulator.
    """
    predicate, source = step.ins[:2]
    if predicate.dtype.kind != "int":
        raise SimulationError(f"`{predicate.code.title}` is `{predicate.dtype.name}`; expected an integer dtype")
    partitions = paired(step.out, predicate)
    chosen = (predicate.read().reshape(-1) != 0) ^ step.flag("reverse_pred")
    reduce_op, command = step.word("reduce_op"), step.word("accumulator_cmd")
    if reduce_op not in ("bypass", "max"):
        raise SimulationError(f"CopyPredicated only allows max as Reduce Operator. Given: {reduce_op}")
    if command not in ("Idle", "ZeroAccumulate", "AddAccumulate"):
        raise SimulationError(
            "CopyPredicated only allows EngineAccumulationType of Idle, ZeroAccumulate, or AddAccumulate. "
            f"Given: {command}"
        )
    if reduce_op == "bypass" and command != "Idle":
        raise SimulationError(
            f"CopyPredicatedReduce has AccumulationCmd set to non-Idle ({command}), but does not have a corresponding "
            f"ReductionCmd ({reduce_op})."
        )
    if len(step.ins) == 2:
        if reduce_op != "bypass" or len(step.outs) > 1:
            raise SimulationError(
                "CopyPredicated is set to use reduction mode, requires 3 arguments. (pred_tensor, src_tensor, "
                "immediate) Received: 2"
            )
        if not source.in_memory and source.code.dtype != step.out.code.dtype:
            raise SimulationError(
                f"CopyPredicatedScalar Immediate value type ({source.code.dtype}) must match output type "
                f"({step.out.code.dtype})."
            )
        write_where(step, step.out, chosen, _values(source, step.out))
        return
    paired(step.out, source)
    other = np.broadcast_to(column(step.ins[2], partitions).single, (partitions, step.out.count // partitions))
    values = np.where(chosen, source.float32().reshape(-1), other.reshape(-1))
    step.out.write(values)
    accumulate(step, command, values.reshape(partitions, -1), op="max", engine="DVE")
    write_reduction(step, command, engine="DVE")


# -- affine functions of the place ----


def _pairs(step: Step) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    given = step.attribute("pattern")
    if not isinstance(given, list | tuple):
        raise SimulationError(f"`pattern` is {given!r:.60}; expected a list of pairs of step and num")
    for item in given:
        pair: Any = [item.get("step"), item.get("num")] if isinstance(item, Mapping) else item
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(is_integer(n) for n in pair) or pair[1] < 1:
            raise SimulationError(f"`pattern` holds {item!r:.60}; expected a pair of step and num")
        pairs.append((pair[0], pair[1]))
    return pairs


def affine(step: Step, operand: Operand) -> NDArray[np.int64]:
    """Return ``base + step_W * w + step_Z * z + ...`` for each element of an operand, as integers of 32 bits.

    The key `pattern` has a pair of step and num for each dimension. Where it leaves the partitions out,
    `channel_multiplier` is their step.
    """
    pairs, multiplier = _pairs(step), step.integer("channel_multiplier")
    partitions, count = operand.partitions, operand.count
    named = math.prod(num for _, num in pairs)
    if named * partitions == count:
        pairs.insert(0, (multiplier, partitions))
    elif named != count:
        raise SimulationError(
            f"`pattern` names {named} elements; expected {count}, or the {count // partitions} of one partition"
        )
    elif multiplier:
        raise SimulationError("`pattern` has a step for the partitions, and so has `channel_multiplier`")
    first = step.integer("base")
    if abs(first) + sum(abs(by) * num for by, num in pairs) >= 1 << 62:
        raise SimulationError(f"an affine function from {first} on by {pairs!r:.60} leaves 64 bits")
    total = np.full((1,) * len(pairs), first, np.int64)
    for axis, (by, num) in enumerate(pairs):
        form = [1] * len(pairs)
        form[axis] = num
        total = total + (np.arange(num, dtype=np.int64) * by).reshape(form)
    values = np.broadcast_to(total, [num for _, num in pairs]).reshape(-1)
    return dtypes.convert(values, dtypes.dtype("int32"), step.decide).astype(np.int64)


@opcode("Iota", outs=1, keys="base pattern channel_multiplier")
def iota(step: Step) -> None:
    """``int32(base + step_W * w + step_Z * z + step_Y * y + step_X * x)``, by the place of the element."""
    step.out.write(affine(step, step.out))


@opcode(
    "TensorScalarAffineSelect", ins=(1, 2), outs=1, elementwise=True, basis="inferred",
    keys="base pattern channel_multiplier compare_op fill_value",
)  # fmt: skip
def affine_select(step: Step) -> None:
    """``compare_op(v, 0) ? in : fill_value`` for the affine function v of the place; a fill of NaN takes operand 1."""
    fill, given = step.number("fill_value"), len(step.ins)
    if np.isnan(fill) and given != 2:
        raise SimulationError(
            f"InstTensorScalarAffineSelect with NaN fill value should have exactly 2 arguments, but found {given}"
        )
    if not np.isnan(fill) and given != 1:
        raise SimulationError(
            f"InstTensorScalarAffineSelect with non-NaN fill value '{fill}' should have exactly 1 argument, but found "
            f"{given}"
        )
    name = step.word("compare_op")
    if name not in _COMPARISONS:
        raise SimulationError(f"the comparison `{name}` is not modelled")
    source, out = step.ins[0], step.out
    partitions = paired(out, source)
    chosen: NDArray[np.bool_] = _COMPARISONS[name](affine(step, out), 0)
    filled = np.full((partitions, 1), fill, np.float32) if given == 1 else column(step.ins[1], partitions).single
    wide = np.broadcast_to(filled, (partitions, out.count // partitions)).reshape(-1)
    # Converted only where it is used: what is not need not fit.
    other = dtypes.convert(np.where(chosen, np.float32(0), wide), out.dtype, step.decide)
    out.write(_either(chosen, _values(source, out), other))


@opcode(
    "RangeSelect", ins=3, outs=(1, 2), elementwise=True, basis="strong",
    keys="base compare_op0 compare_op1 reduce_op reduce_cmd fill_value num_active_channels",
)  # fmt: skip
def range_select(step: Step) -> None:
    """``in`` where the index in the partition is in the partition's range, else a fill value; and the largest result.

    The index, counted from `base`, is compared with operand 1 by `compare_op0` and with operand 2 by `compare_op1`. The
    largest result of each partition may go into the accumulator.
    """
    source, out = step.ins[0], step.out
    if source.code.dtype != out.code.dtype:
        raise SimulationError(
            "InstRangeSelect expects the input and output access patterns have the same data types, but input is "
            f"{source.code.dtype} type and output is {out.code.dtype} type"
        )
    if source.count != out.count:
        raise SimulationError(
            "InstRangeSelect expects the input and output access patterns to have the same number of elements, but "
            f"input has {source.count} elements and output has {out.count} elements"
        )
    partitions = source.partitions
    if step.integer("num_active_channels") not in (0, partitions):
        raise SimulationError(
            f"`num_active_channels` is {step.integer('num_active_channels')}, with {partitions} partitions, which is "
            "not modelled"
        )
    chosen = _in_range(step, source)
    command = step.word("reduce_cmd")
    if command != "Idle" and step.word("reduce_op") != "max":
        raise SimulationError(f"InstRangeSelect only supports max reduce op, but got {step.word('reduce_op')} op")
    fill = np.float32(0) if chosen.all() else np.float32(step.number("fill_value"))
    values = np.where(chosen, source.rows(), fill)
    out.write(values)
    accumulate(step, command, values, op="max", engine="DVE")
    write_reduction(step, command, engine="DVE")


def _in_range(step: Step, source: Operand) -> NDArray[np.bool_]:
    """Return which elements are within the range of their partition."""
    partitions = source.partitions
    size = source.count // partitions
    base: Any = step.attribute("base")
    if base is True:
        raise SimulationError("what a `base` of `true` means is not known; expected an integer")
    first = 0 if base is False else step.integer("base")
    linear = _compared(step, np.arange(first, first + size), partitions)
    last = source.shape[-1]
    if last != size:
        inner = _compared(step, np.arange(size) % last + first, partitions)
        if not np.array_equal(linear, inner):
            met = f"a `RangeSelect` of {list(source.shape)} elements compares the index of each"
            return inner if step.decide("range_index", met) == "innermost" else linear
    return linear


def _compared(step: Step, index: NDArray[np.int64], partitions: int) -> NDArray[np.bool_]:
    found = np.ones((partitions, len(index)), bool)
    for place in (0, 1):
        name, bound = step.word(f"compare_op{place}"), step.ins[place + 1]
        if name not in _COMPARISONS or name == "not_equal":
            raise SimulationError(
                f"InstRangeSelect expects the compare_op{place} to be one of isEQ, IsGT, IsGE, IsLT, IsLE; it is {name}"
            )
        limits: F32 = column(bound, partitions).single
        found &= _COMPARISONS[name](index.astype(np.float32), limits)
    return found
