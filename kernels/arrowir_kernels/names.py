"""Names as bytes: joining prefixes to runs of names, and finding names that are free."""

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]


@kernel
def measure_names(offsets: Rows, more_offsets: Rows, start: Rows, length: Rows, extra: Rows, out: Rows) -> None:
    """Compute where each name of a new column begins: the first of two passes.

    Parameters
    ----------
    offsets, more_offsets
        Offsets of the source column, which stands in two parts (see `copy_runs`).
    start, length
        Runs of source rows.
    extra
        Bytes that each run puts before its names.
    out
        Offsets of the new column, one longer than its rows.
    """
    split = len(offsets) - 1
    place, total = 0, 0
    out[0] = 0
    for run in range(len(start)):
        begin, rows, more = start[run], length[run], extra[run]
        ends = offsets[begin : begin + rows + 1]
        if begin >= split:
            ends = more_offsets[begin - split : begin - split + rows + 1]
        target = out[place + 1 : place + 1 + rows]
        base = total - ends[0] if rows > 0 else total
        for row in range(rows):
            target[row] = base + ends[row + 1] + more * (row + 1)
        if rows > 0:
            total = target[rows - 1]
        place += rows


@kernel
def fill_names(
    offsets: Rows,
    data: Bytes,
    more_offsets: Rows,
    more_data: Bytes,
    start: Rows,
    length: Rows,
    prefix: Rows,
    prefix_offsets: Rows,
    prefix_data: Bytes,
    begins: Rows,
    out: Bytes,
) -> None:
    """Write prefix and name of each row: the second of two passes.

    Parameters
    ----------
    offsets, data, more_offsets, more_data
        The source column, in two parts.
    start, length
        Runs of source rows.
    prefix
        For each run the number of its prefix, or -1.
    prefix_offsets, prefix_data
        The prefixes.
    begins
        Offsets of the new column, from `measure_names`.
    out
        Filled.
    """
    split = len(offsets) - 1
    done = 0
    alike = np.full(64, -1, np.int64)  # a run before that may be of the same rows, and the first row that it became
    begun = np.zeros(64, np.int64)
    for run in range(len(start)):
        begin, number, rows = start[run], prefix[run], length[run]
        ends, source = offsets[begin : begin + rows + 1], data
        if begin >= split:
            ends, source = more_offsets[begin - split : begin - split + rows + 1], more_data
        if rows > 0 and number < 0:  # all names of the run in one piece
            text = source[ends[0] : ends[rows]]
            target = out[begins[done] : begins[done + rows]]
            for k in range(len(text)):
                target[k] = text[k]
        elif rows > 0:
            before = prefix_data[prefix_offsets[number] : prefix_offsets[number + 1]]
            width = len(before)
            other, from_row = alike[begin & 63], begun[begin & 63]
            alike[begin & 63], begun[begin & 63] = run, done
            if other >= 0 and start[other] == begin and length[other] == rows:
                last = prefix_data[prefix_offsets[prefix[other]] : prefix_offsets[prefix[other] + 1]]
                if len(last) == width:  # the names of that run, in which some bytes of the prefix differ
                    text = out[begins[from_row] : begins[from_row + rows]]
                    target = out[begins[done] : begins[done + rows]]
                    for k in range(len(text)):
                        target[k] = text[k]
                    low, high = 0, width
                    while low < high and before[low] == last[low]:
                        low += 1
                    while low < high and before[high - 1] == last[high - 1]:
                        high -= 1
                    for row in range(rows):
                        target = out[begins[done + row] + low : begins[done + row] + high]
                        for k in range(high - low):
                            target[k] = before[low + k]
                    done += rows
                    continue
            for row in range(rows):
                text = source[ends[row] : ends[row + 1]]
                target = out[begins[done + row] : begins[done + row + 1]]
                for k in range(width):
                    target[k] = before[k]
                for k in range(len(text)):
                    target[width + k] = text[k]
        done += rows


@kernel
def free_suffixes(
    offsets: Rows,
    data: Bytes,
    scope: NDArray[np.int32],
    fresh: NDArray[np.int8],
    slots: NDArray[np.uint64],
    counts: NDArray[np.int32],
    scopes: NDArray[np.int32],
    out: NDArray[np.int32],
) -> None:
    """Find for each fresh name the suffix that makes it free: 0 for none, n for `.n` (rule R6).

    Names are compared by a 64-bit hash within their scope. The names that are taken stand first in the column, fresh
    ones after.

    Parameters
    ----------
    offsets, data
        The names.
    scope
        A number per row; names are unique within a scope.
    fresh
        1 where the name must be free, 0 where it is taken.
    slots, counts, scopes
        Hash table, zeroed; its length is a power of two larger than twice the rows: hashes, last suffix tried, scopes
        + 1.
    out
        Filled, per row.
    """
    mask = len(slots) - 1
    basis = np.uint64(14695981039346656037)
    prime = np.uint64(1099511628211)
    high = np.uint64(29)
    for row in range(len(scope)):
        base = basis ^ np.uint64(scope[row])
        base = base * prime
        for k in range(offsets[row], offsets[row + 1]):
            base = (base ^ np.uint64(data[k])) * prime
        mixed = base ^ (base >> high)
        slot = np.int64(mixed & np.uint64(mask))
        while scopes[slot] != 0 and not (scopes[slot] == scope[row] + 1 and slots[slot] == mixed):
            slot = (slot + 1) & mask
        out[row] = 0
        if scopes[slot] == 0:
            scopes[slot] = scope[row] + 1
            slots[slot] = mixed
            continue
        if fresh[row] == 0:
            continue
        home = slot
        number = counts[home]
        while True:
            number += 1
            state = (base ^ np.uint64(46)) * prime
            power = 1
            while power * 10 <= number:
                power *= 10
            rest = number
            while power > 0:
                state = (state ^ np.uint64(48 + rest // power)) * prime
                rest %= power
                power //= 10
            mixed = state ^ (state >> high)
            slot = np.int64(mixed & np.uint64(mask))
            while scopes[slot] != 0 and not (scopes[slot] == scope[row] + 1 and slots[slot] == mixed):
                slot = (slot + 1) & mask
            if scopes[slot] == 0:
                scopes[slot] = scope[row] + 1
                slots[slot] = mixed
                break
        counts[home] = number
        out[row] = number


@kernel
def hash_names(offsets: Rows, data: Bytes, scope: Rows, mark: int, out: NDArray[np.uint64]) -> None:
    """Hash each name with its scope and a mark behind it.

    Parameters
    ----------
    offsets, data, scope
        The names.
    mark
        The byte put behind.
    out
        Filled.
    """
    prime = np.uint64(1099511628211)
    for row in range(len(scope)):
        state = (np.uint64(14695981039346656037) ^ np.uint64(scope[row])) * prime
        for k in range(offsets[row], offsets[row + 1]):
            state = (state ^ np.uint64(data[k])) * prime
        out[row] = (state ^ np.uint64(mark)) * prime


@kernel
def prefix_hits(
    offsets: Rows, data: Bytes, scope: Rows, mark: int, hashes: NDArray[np.uint64], out: NDArray[np.int8]
) -> None:
    """Tell which names begin with one of some prefixes and the mark.

    Parameters
    ----------
    offsets, data, scope
        The names.
    mark
        The byte that ends a prefix.
    hashes
        Hashes of the prefixes with the mark, from `hash_names`, sorted.
    out
        Filled: 1 where a name does.
    """
    prime = np.uint64(1099511628211)
    for row in range(len(scope)):
        out[row] = 0
        state = (np.uint64(14695981039346656037) ^ np.uint64(scope[row])) * prime
        for k in range(offsets[row], offsets[row + 1]):
            state = (state ^ np.uint64(data[k])) * prime
            if data[k] == mark:
                low, high = 0, len(hashes)
                while low < high:
                    middle = (low + high) // 2
                    if hashes[middle] < state:
                        low = middle + 1
                    else:
                        high = middle
                if low < len(hashes) and hashes[low] == state:
                    out[row] = 1
                    break


@kernel
def repeated_names(
    offsets: Rows,
    data: Bytes,
    start: Rows,
    length: Rows,
    slots: NDArray[np.uint64],
    stamps: Rows,
    out: NDArray[np.int8],
) -> None:
    """Tell which runs of names have one twice; names are compared by a 64-bit hash.

    Parameters
    ----------
    offsets, data
        The names.
    start, length
        First name and number of names of each run.
    slots, stamps
        Hash table, zeroed; its length is a power of two larger than twice the longest run: hashes, run + 1.
    out
        Set to 1 for runs that have.
    """
    mask = len(slots) - 1
    prime = np.uint64(1099511628211)
    for run in range(len(start)):
        for row in range(start[run], start[run] + length[run]):
            state = np.uint64(14695981039346656037)
            for k in range(offsets[row], offsets[row + 1]):
                state = (state ^ np.uint64(data[k])) * prime
            state = state ^ (state >> np.uint64(29))
            slot = np.int64(state & np.uint64(mask))
            while stamps[slot] == run + 1 and slots[slot] != state:
                slot = (slot + 1) & mask
            if stamps[slot] == run + 1:
                out[run] = 1
                break
            stamps[slot] = run + 1
            slots[slot] = state
