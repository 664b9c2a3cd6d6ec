"""Batch normalisation: statistics of partitions, and gradients."""

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.dtypes import F32
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import LANES, check_apart, paired, transpose_blocks, transpose_lanes
from arrowir.simulate.step import Step

_STATISTICS = 6
"""Numbers that `BNStats` gives for each partition: count, mean and sum of squared deviations, twice."""


@opcode("BNStats", ins=1, outs=1, keys="apply_transpose")
def bn_stats(step: Step) -> None:
    """Count, mean and sum of squared deviations of each partition's elements at even places, then at odd ones."""
    rows = step.ins[0].rows()
    if step.out.count != _STATISTICS * len(rows):
        raise SimulationError(
            f"{_STATISTICS} numbers for each of {len(rows)} partitions; the output has {step.out.count}"
        )
    found = _statistics(rows)
    if step.flag("apply_transpose"):
        check_apart(step)
        last = transpose_lanes(found)
        first = _statistics(transpose_blocks(rows)) if not (len(rows) % LANES or rows.shape[1] % LANES) else None
        if first is None or not np.array_equal(first.reshape(-1), last, equal_nan=True):
            choice = step.decide("apply_transpose", "`apply_transpose` of statistics")
            found = last if choice == "result" else _statistics(transpose_blocks(rows))
    step.out.write(found)


def _statistics(rows: F32) -> F32:
    found = np.zeros((len(rows), _STATISTICS), np.float32)
    for part in (0, 1):
        found[:, 3 * part : 3 * part + 3] = _welford(rows[:, part::2])
    return found


def _welford(rows: F32) -> F32:
    """Return count, mean and sum of squared deviations of rows, by running updates in float32."""
    mean = np.zeros(len(rows), np.float32)
    deviations = np.zeros(len(rows), np.float32)
    with np.errstate(all="ignore"):
        for number in range(rows.shape[1]):
            x = rows[:, number]
            change = x - mean
            mean = mean + change / np.float32(number + 1)
            deviations = deviations + change * (x - mean)
    return np.stack([np.full_like(mean, rows.shape[1]), mean, deviations], axis=1).astype(np.float32)


@opcode("BNStatsAggregate", ins=1, outs=1)
def bn_stats_aggregate(step: Step) -> None:
    """Mean and population variance of each partition, of the statistics that `BNStats` gives for parts of it."""
    rows = step.ins[0].rows()
    if rows.shape[1] % _STATISTICS:
        raise SimulationError(f"partitions of {rows.shape[1]} numbers; expected a multiple of {_STATISTICS}")
    if step.out.count != 2 * len(rows):
        raise SimulationError(
            f"InstBNStatsAggregate must output 2 elements per partition, but it outputs {step.out.count / len(rows):g}"
        )
    parts = rows.reshape(len(rows), -1, 3)
    count, mean, deviations = np.zeros((3, len(rows)), np.float32)
    with np.errstate(all="ignore"):
        for number in range(parts.shape[1]):
            more, other, further = (parts[:, number, place] for place in range(3))
            total = count + more
            some = more != 0  # an empty part changes nothing
            change, share = other - mean, more / total
            mean = np.where(some, mean + change * share, mean)
            deviations = np.where(some, deviations + further + change * change * count * share, deviations)
            count = np.where(some, total, count)
        if (count == 0).any():
            raise SimulationError("the statistics of a partition count no element")
        step.out.write(np.stack([mean, deviations / count], axis=1))


@opcode("BNGradients", ins=(3, 4), outs=1, basis="inferred")
def bn_gradients(step: Step) -> None:
    """``[sum dy, sum (x - mean) * dy * factor ** 2, sum (x - mean) * dy * factor]`` for each partition."""
    tensors, (mean, factor) = _operands(step, 2)
    if step.out.count != 3 * len(mean):
        raise SimulationError(f"3 numbers for each of {len(mean)} partitions; the output has {step.out.count}")

    def found(x: F32, dy: F32) -> F32:
        with np.errstate(all="ignore"):
            product = (x - mean) * dy
            parts = (dy, product * (factor * factor), product * factor)
            return np.hstack([np.add.accumulate(part, axis=1, dtype=np.float32)[:, -1:] for part in parts])

    step.out.write(_ordered(step, "bn_gradients_operands", found(*tensors), found(*tensors[::-1])))


@opcode("BNBackprop", "BNBackprop2", ins=(3, 6), outs=1, keys="total_elements", basis="inferred")
def bn_backprop(step: Step) -> None:
    """``(dy * N - ((x - mean) * B + A)) * scale`` with N `total_elements`, and four numbers for each partition."""
    tensors, (mean, b, a, scale) = _operands(step, 4)
    number = np.float32(step.number("total_elements"))

    def found(x: F32, dy: F32) -> F32:
        with np.errstate(all="ignore"):
            return ((dy * number - ((x - mean) * b + a)) * scale).astype(np.float32)

    step.out.write(_ordered(step, "bn_backprop_operands", found(*tensors), found(*tensors[::-1])))


def _operands(step: Step, numbers: int) -> tuple[list[F32], list[F32]]:
    """Return the two tensors, and as columns the numbers for each partition, which may stand in one operand or more."""
    first, second = step.ins[:2]
    partitions = paired(first, second)
    columns: list[F32] = []
    for operand in step.ins[2:]:
        if not operand.in_memory or operand.partitions != partitions:
            raise SimulationError(f"`{operand.code.title}` is no access to {partitions} partitions")
        rows = operand.rows()
        columns += [rows[:, place : place + 1] for place in range(rows.shape[1])]
    if len(columns) != numbers:
        raise SimulationError(f"expected {numbers} numbers for each partition, found {len(columns)}")
    return [first.rows(), second.rows()], columns


def _ordered(step: Step, case: str, x_first: F32, dy_first: F32) -> F32:
    if np.array_equal(x_first, dy_first, equal_nan=True):
        return x_first
    return x_first if step.decide(case, f"the order of the operands of `{step.opcode}`") == "x first" else dy_first
