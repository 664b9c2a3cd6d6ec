"""Copying runs of rows: the loop behind every edit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Rows = NDArray[np.int64]


def copy_runs(first: NDArray[Any], second: NDArray[Any], start: Rows, length: Rows, out: NDArray[Any]) -> None:
    """Copy runs of a column, one after the other.

    The column stands in two arrays: row i is `first[i]`, and after its end `second[i - len(first)]`.

    Parameters
    ----------
    first, second
        The column, contiguous, of one dtype.
    start, length
        First row and number of rows of each run; a run lies in one of the two arrays.
    out
        Filled; as long as the lengths together.
    """
    size = out.itemsize
    copy_bytes(first.view(np.uint8), second.view(np.uint8), start * size, length * size, out.view(np.uint8))


@kernel
def copy_bytes(
    first: NDArray[np.uint8], second: NDArray[np.uint8], start: Rows, length: Rows, out: NDArray[np.uint8]
) -> None:
    """Copy runs of bytes; one compiled loop serves columns of every dtype.

    Parameters
    ----------
    first, second, start, length, out
        As in `copy_runs`, in bytes.
    """
    split = len(first)
    place = 0
    for run in range(len(start)):
        begin, count = start[run], length[run]
        source = first[begin : begin + count] if begin < split else second[begin - split : begin - split + count]
        target = out[place : place + count]
        for k in range(count):  # over slices from 0: compiled to wide copies, which slice assignment is not
            target[k] = source[k]
        place += count


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
        begin, rows, by = start[run], length[run], np.int32(shift[run])
        source = first[begin : begin + rows] if begin < split else second[begin - split : begin - split + rows]
        target = out[place : place + rows]
        for row in range(rows):
            target[row] = source[row] + by if source[row] >= 0 else np.int32(-1)
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
) -> int:
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

    Returns
    -------
    int
        The number of keys that were present and are so no longer.
    """
    split = len(first)
    place, lost = 0, 0
    for run in range(len(start)):
        begin, rows, by = start[run], length[run], shift[run]
        source = first[begin : begin + rows] if begin < split else second[begin - split : begin - split + rows]
        target = out[place : place + rows]
        for row in range(rows):
            key = places[source[row] + by] if source[row] >= 0 else np.int32(-1)
            lost += 1 if key < 0 and source[row] >= 0 else 0
            target[row] = key
        place += rows
    return lost


@kernel
def find_children(keys: NDArray[np.int32], start: Rows, length: Rows, first: Rows, count: Rows) -> None:
    """Find the children of runs of parents: where they begin in a column of rising keys, and how many there are.

    Looking goes on from where the run before ended, in steps that double, so that runs in order cost little each.

    Parameters
    ----------
    keys
        The key of the parent, rising.
    start, length
        First row and number of rows of each run of parents.
    first, count
        Filled, per run.
    """
    place, before = 0, np.int64(0)
    for run in range(len(start)):
        for end in range(2):
            wanted = start[run] + end * length[run]
            low = place if wanted >= before else 0
            step, high = 1, low
            while high < len(keys) and keys[high] < wanted:
                low = high + 1
                high += step
                step *= 2
            high = min(high, len(keys))
            while low < high:
                middle = (low + high) // 2
                if keys[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            place, before = low, wanted
            if end == 0:
                first[run] = low
            else:
                count[run] = low - first[run]


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
        target, first = out[start[run] : start[run] + length[run]], value[run]
        for row in range(length[run]):
            target[row] = first + row


@kernel
def place_clones(
    own: NDArray[np.int32],
    base: Rows,
    shift: Rows,
    copy: Rows,
    start: Rows,
    length: Rows,
    value: Rows,
    places: NDArray[np.int32],
) -> None:
    """Fill in where rows come to stand for each copy: where it has a run of them, there, else as the rows themselves.

    Parameters
    ----------
    own
        The new place of each row itself.
    base, shift
        Where the places of each copy begin, and what is added to a row to get its place among them; rising.
    copy, start, length, value
        Copy, first row, number of rows and first new place of each run of a clone, by copy.
    places
        Filled, copy after copy.
    """
    run = 0
    for number in range(len(base)):
        end = base[number + 1] if number + 1 < len(base) else len(places)
        target = places[base[number] : end]
        source = own[base[number] - shift[number] : end - shift[number]]
        for row in range(len(target)):
            target[row] = source[row]
        while run < len(copy) and copy[run] == number:
            begin = start[run] + shift[number]
            target, first = places[begin : begin + length[run]], value[run]
            for row in range(length[run]):
                target[row] = first + row
            run += 1


@kernel
def increase_runs(start: Rows, length: Rows, by: Rows, chosen: NDArray[np.bool_], out: NDArray[np.int64]) -> None:
    """Add a number of each run to its copies of some source rows.

    Parameters
    ----------
    start, length, by
        First source row, number of rows, and what is added, per run.
    chosen
        Whether copies of a source row are concerned.
    out
        The copies, run after run; changed.
    """
    place = 0
    for run in range(len(start)):
        rows, more = length[run], by[run]
        if more != 0:
            target, mine = out[place : place + rows], chosen[start[run] : start[run] + rows]
            for row in range(rows):
                target[row] += more if mine[row] else 0
        place += rows


@kernel
def fill_runs(length: Rows, chosen: NDArray[np.bool_], value: NDArray[Any], out: NDArray[Any]) -> None:
    """Fill the absent keys of some of consecutive runs of a column with one key each.

    Parameters
    ----------
    length, chosen, value
        Number of rows of each run, whether it is filled, and with what.
    out
        Written where it is negative, in the runs chosen.
    """
    place = 0
    for run in range(len(length)):
        if chosen[run]:
            target = out[place : place + length[run]]
            for row in range(length[run]):
                target[row] = value[run] if target[row] < 0 else target[row]
        place += length[run]
