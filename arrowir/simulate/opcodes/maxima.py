"""The largest elements of each partition, where values stand, and what replaces them."""

import numpy as np
from numpy.typing import NDArray

from arrowir.diagnostics import SimulationError
from arrowir.simulate import dtypes
from arrowir.simulate.dtypes import F32
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import cast, paired
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_LARGEST = 8
"""How many elements `Max` finds in each partition."""
_SHORTEST, _LONGEST = 8, 16384
"""How many elements it takes."""
_NOWHERE = 0xFFFFFFFF
"""The index of a value that does not occur."""


@opcode("Max", ins=1, outs=1)
def maxima(step: Step) -> None:
    """The 8 largest elements of each partition, the largest first; equal ones in the order in which they stand."""
    rows = step.ins[0].rows()
    length = rows.shape[1]
    if not _SHORTEST <= length <= _LONGEST:
        raise SimulationError(f"partitions of {length} elements; expected {_SHORTEST} to {_LONGEST}")
    if step.out.count != len(rows) * _LARGEST:
        raise SimulationError(
            f"{_LARGEST} elements for each of {len(rows)} partitions go to an output of {step.out.count}"
        )
    if np.isnan(rows).any():
        raise SimulationError("undecided: among the largest elements, where a NaN stands is not known")
    order = np.argsort(-rows, axis=1, kind="stable")[:, :_LARGEST]
    step.out.write(np.take_along_axis(rows, order, axis=1))


def _matches(data: F32, values: F32) -> NDArray[np.int64]:
    """Return for each value of a row the first place in the row's data that holds it and no earlier value has taken."""
    found = np.full(values.shape, -1, np.int64)
    free = np.ones(data.shape, bool)
    rows = np.arange(len(data))
    for number in range(values.shape[1]):
        equal = (data == values[:, number : number + 1]) & free
        place = equal.argmax(axis=1)
        hit = equal[rows, place]
        found[hit, number] = place[hit]
        free[rows[hit], place[hit]] = False
    return found


def _found(step: Step) -> tuple[Operand, NDArray[np.int64]]:
    """Return the data operand, and where its partitions hold the values."""
    data, values = step.ins
    if values.partitions != data.partitions:
        raise SimulationError(f"data of {data.partitions} partitions, and values of {values.partitions}")
    return data, _matches(data.rows(), values.rows())


def _write_indices(out: Operand, found: NDArray[np.int64]) -> None:
    out.write(np.where(found < 0, _NOWHERE, found))


def _write_replaced(step: Step, data: Operand, out: Operand, found: NDArray[np.int64]) -> None:
    paired(out, data)
    kept: Array = cast(data, out).reshape(data.partitions, -1)
    row, number = np.nonzero(found >= 0)
    with np.errstate(over="ignore"):
        fill = np.array([step.number("imm_value")], np.float64).astype(np.float32)
    if len(row):
        kept[row, found[row, number]] = dtypes.convert(fill, out.dtype, step.decide)[0]
    out.write(kept)


@opcode("MaxIndex", ins=2, outs=1)
def max_index(step: Step) -> None:
    """For each value the index of the first element equal to it, none twice; 0xFFFFFFFF where there is none."""
    _, found = _found(step)
    _write_indices(step.out, found)


@opcode("MatchReplace", ins=2, outs=1, keys="imm_value")
def match_replace(step: Step) -> None:
    """The data, in which for each value the first element equal to it, none twice, is replaced by `imm_value`."""
    data, found = _found(step)
    _write_replaced(step, data, step.out, found)


@opcode("MaxIndexAndMatchReplace", ins=2, outs=2, keys="imm_value", basis="strong")
def max_index_and_match_replace(step: Step) -> None:
    """The outputs of `MatchReplace` and of `MaxIndex`, told apart by their numbers of elements or their dtypes."""
    data, found = _found(step)
    indices = [
        out.count == found.size and (out.count != data.count or out.code.dtype != data.code.dtype) for out in step.outs
    ]
    if sum(indices) != 1:
        raise SimulationError(
            f"which of the outputs takes the {found.size} indices, and which the {data.count} elements, is not known"
        )
    place = indices.index(True)
    _write_replaced(step, data, step.outs[1 - place], found)
    _write_indices(step.outs[place], found)
