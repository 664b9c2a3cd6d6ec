"""Copying runs of rows: the loop behind every edit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Rows = NDArray[np.int64]


@kernel
def copy_runs(first: NDArray[Any], second: NDArray[Any], start: Rows, length: Rows, out: NDArray[Any]) -> None:
    """Copy runs of a column, one after the other.

    The column stands in two arrays: row i is `first[i]`, and after its end `second[i - len(first)]`.

    Parameters
    ----------
    first, second
        The column, any dtype.
    start, length
        First row and number of rows of each run; a run lies in one of the two arrays.
    out
        Filled; as long as the lengths together.
    """
    split = len(first)
    place = 0
    for run in range(len(start)):
        begin, rows = start[run], length[run]
        if begin < split:
            out[place : place + rows] = first[begin : begin + rows]
        else:
            out[place : place + rows] = second[begin - split : begin - split + rows]
        place += rows


@kernel
def shift_runs(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    start: Rows,
    length: Rows,
    shift: Rows,
    out: NDArray[np.int32],
) -> None:
    """Copy runs of a key column, adding to each key the number of its run; -1 stays.

    Parameters
    ----------
    first, second, start, length
        As in `copy_runs`.
    shift
        What is added, per run.
    out
        Filled.
    """
    split = len(first)
    place = 0
    for run in range(len(start)):
        begin, rows, by = start[run], length[run], shift[run]
        for row in range(rows):
            at = begin + row
            key = first[at] if at < split else second[at - split]
            out[place + row] = key + by if key >= 0 else -1
        place += rows


@kernel
def map_runs(
    first: NDArray[np.int32],
    second: NDArray[np.int32],
    start: Rows,
    length: Rows,
    shift: Rows,
    places: NDArray[np.int32],
    out: NDArray[np.int32],
) -> None:
    """Copy runs of a key column, looking each key up: `places[key + shift]`; -1 stays.

    Parameters
    ----------
    first, second, start, length
        As in `copy_runs`.
    shift
        Where the part of `places` begins that a run looks into, less the first key of that part.
    places
        The new key of each old one, for the rows themselves and then for each copy.
    out
        Filled.
    """
    split = len(first)
    place = 0
    for run in range(len(start)):
        begin, rows, by = start[run], length[run], shift[run]
        for row in range(rows):
            at = begin + row
            key = first[at] if at < split else second[at - split]
            out[place + row] = places[key + by] if key >= 0 else -1
        place += rows


@kernel
def number_runs(
    start: NDArray[np.int64], length: NDArray[np.int64], value: NDArray[np.int64], out: NDArray[np.int32]
) -> None:
    """Write a counter into runs of an array: `out[start + i] = value + i`.

    Parameters
    ----------
    start, length, value
        First place, number of places, and first number of each run.
    out
        Written where runs are.
    """
    for run in range(len(start)):
        begin, first = start[run], value[run]
        for row in range(length[run]):
            out[begin + row] = first + row
