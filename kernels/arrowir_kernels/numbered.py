"""Names with a number behind them, as bytes: `<name>-<n>`, `<name>.<n>`."""

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]


@kernel
def measure_numbered(offsets: Rows, source: Rows, number: Rows, out: Rows) -> None:
    """Compute where each name of a new column begins: the first of two passes.

    Parameters
    ----------
    offsets
        Offsets of the source column.
    source
        The source row of each new one.
    number
        What is put behind each name, with a separator of one byte; nothing where it is negative.
    out
        Offsets of the new column, one longer than its rows.
    """
    total = 0
    out[0] = 0
    for row in range(len(source)):
        at = source[row]
        total += offsets[at + 1] - offsets[at]
        rest = number[row]
        if rest >= 0:
            total += 2
            while rest >= 10:
                rest //= 10
                total += 1
        out[row + 1] = total


@kernel
def fill_numbered(
    offsets: Rows, data: Bytes, source: Rows, number: Rows, separator: int, begins: Rows, out: Bytes
) -> None:
    """Write each name and its number: the second of two passes.

    Parameters
    ----------
    offsets, data
        The source column.
    source, number
        As in `measure_numbered`.
    separator
        The byte between a name and its number.
    begins
        Offsets of the new column, from `measure_numbered`.
    out
        Filled.
    """
    for row in range(len(source)):
        at = source[row]
        place = begins[row]
        for k in range(offsets[at], offsets[at + 1]):
            out[place] = data[k]
            place += 1
        rest = number[row]
        if rest >= 0:
            out[place] = separator
            place = begins[row + 1] - 1
            while True:
                out[place] = 48 + rest % 10
                rest //= 10
                place -= 1
                if rest == 0:
                    break
