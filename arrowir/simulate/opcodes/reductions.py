"""Reductions over the dimensions of an access pattern."""

import math

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate import alu
from arrowir.simulate.alu import Numbers
from arrowir.simulate.dtypes import F32
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import LANES, check_apart, rearranged, transpose_blocks, transpose_lanes
from arrowir.simulate.step import Step

_FREE = {"X": 1, "XY": 2, "XYZ": 3, "XYZW": 4, "XYZWC": 5}
"""How many of the innermost dimensions each axis list folds."""

_SEQUENTIAL = {"add": np.add, "mult": np.multiply}


@opcode("TensorReduce", ins=1, outs=1, keys="op axis negate apply_transpose")
def tensor_reduce(step: Step) -> None:
    """Fold dimensions with `op`, one element after the other; negate the result on request."""
    values = step.ins[0].numbers()
    folded = _transposed_fold(step, values) if step.flag("apply_transpose") else _fold_axes(step, values)
    result = folded.result
    step.out.write(-result if step.flag("negate") else result)


def _fold_axes(step: Step, values: Numbers) -> Numbers:
    return fold(step, step.word("op"), grouped(step, values))


def _transposed_fold(step: Step, values: Numbers) -> Numbers:
    """Fold with `apply_transpose`: what it transposes is undecided where that makes a difference."""
    partitions = step.ins[0].partitions
    check_apart(step)
    if step.out.count % partitions:
        raise SimulationError("`apply_transpose` of a reduction over partitions is not modelled")
    last = rearranged(_fold_axes(step, values), lambda found: transpose_lanes(found.reshape(partitions, -1)))
    rows = values.reshape(partitions, -1)
    met = "`apply_transpose` of a reduction"
    if rows.shape[0] % LANES or rows.shape[1] % LANES:
        if step.decide("apply_transpose", met) == "result":
            return last
        return _fold_axes(step, rearranged(rows, transpose_blocks))
    first = _fold_axes(step, rearranged(rows, transpose_blocks))
    if np.array_equal(first.result, last.result, equal_nan=True):
        return last
    return last if step.decide("apply_transpose", met) == "result" else first


def grouped(step: Step, values: Numbers) -> Numbers:
    """Return the input of a reduction as two dimensions: results, and what is folded into each.

    An access pattern of fewer than four dimensions has the middle ones left out. Whether an axis list then counts the
    partitions among the innermost dimensions follows from the number of elements of the output.
    """
    source, axis, count = step.ins[0], step.word("axis"), step.out.count
    shape = source.shape
    if axis == "C":
        free = math.prod(shape[1:])
        if count != free:
            raise SimulationError(f"a reduction over partitions gives {free} elements, and the output has {count}")
        return _transposed(values.reshape(shape[0], -1))
    folds = _FREE.get(axis)
    if folds is None:
        raise SimulationError(f"the axis list `{axis}` is not modelled")
    padded = (shape[0], *(1,) * max(0, 4 - len(shape)), *shape[1:])
    forms = {math.prod(dims[: max(0, len(dims) - folds)]) for dims in (padded, shape)}
    if axis != "XYZWC":
        forms.add(math.prod(padded[: max(1, len(padded) - folds)]))
    if count not in forms:
        expected = " or ".join(map(str, sorted(forms)))
        raise SimulationError(
            f"a reduction of {list(shape)} over {axis} gives {expected} elements, the output has {count}"
        )
    return values.reshape(count, -1)


def _transposed(values: Numbers) -> Numbers:
    exact = values.exact
    if exact is not None:
        return Numbers(None, np.ascontiguousarray(exact.T))
    return Numbers(np.ascontiguousarray(values.single.T))


def fold(step: Step, op: str, values: Numbers) -> Numbers:
    """Fold the second dimension with an operation, from the first element on."""
    if op == "average":
        return Numbers(_average(values.single))
    if op not in alu.ARITHMETIC | alu.BITWISE or op in alu.UNARY:
        raise SimulationError(f"a reduction with `{op}` is not modelled")
    if op in _SEQUENTIAL and values.exact is None:
        return Numbers(_accumulated(_SEQUENTIAL[op], values.single))
    if op in ("max", "min") and values.exact is None and not np.isnan(values.single).any():
        return Numbers((np.max if op == "max" else np.min)(values.single, axis=1))
    result = _column(values, 0)
    for number in range(1, values.shape[1]):
        result = alu.apply(op, result, _column(values, number), step.decide)
    return result


def _column(values: Numbers, number: int) -> Numbers:
    if values.exact is not None:
        return Numbers(None, values.exact[:, number])
    return Numbers(values.single[:, number])


def _accumulated(operation: np.ufunc, values: F32) -> F32:
    """Fold rows in float32 from left to right, as a loop would."""
    with np.errstate(all="ignore"):
        return operation.accumulate(values, axis=1, dtype=np.float32)[:, -1]


def _average(values: F32) -> F32:
    """Add the elements, each divided by their number first."""
    number = np.float32(values.shape[1])
    with np.errstate(all="ignore"):
        terms = values * (np.float32(1) / number)
        terms[:, 0] = values[:, 0] / number
    return _accumulated(np.add, terms)


@opcode("Pool", ins=1, outs=1, keys="func")
def pool(step: Step) -> None:
    """The largest, or the average, of the two innermost dimensions.

    The largest is -FLT_MAX at least, and NaNs count for nothing. An average is a sum in float32, times ``1 / N`` in
    float64. The order of that sum is not known: it goes from left to right here, so that last bits may differ.
    """
    source = step.ins[0]
    size = math.prod(source.shape[1:][-2:])
    if step.out.count * size != source.count:
        raise SimulationError(
            f"the two innermost dimensions of {list(source.shape)} are pooled, which gives {source.count // size} "
            f"elements, and the output has {step.out.count}"
        )
    rows, func = source.float32().reshape(-1, size), step.word("func")
    if func == "Max":
        step.out.write(np.fmax(np.fmax.reduce(rows, axis=1), np.finfo(np.float32).min))
    elif func == "Avg":
        with np.errstate(all="ignore"):
            step.out.write((_accumulated(np.add, rows).astype(np.float64) * (1.0 / size)).astype(np.float32))
    else:
        raise SimulationError(f"the pool function `{func}` is not modelled")
