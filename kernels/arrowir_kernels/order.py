"""Orders: which rows have to move so that the others keep theirs."""

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Rows = NDArray[np.int64]


@kernel
def mark_moved(group: Rows, value: Rows, tails: Rows, previous: Rows, out: NDArray[np.int8]) -> None:
    """Mark, group by group, the fewest rows without which the values rise.

    Parameters
    ----------
    group
        Group of each row; rows of one group follow each other.
    value
        Values, distinct within a group.
    tails, previous
        Work space, as long as the rows.
    out
        Set to 1 for rows to move, else 0.
    """
    rows = len(group)
    begin = 0
    while begin < rows:
        end = begin + 1
        while end < rows and group[end] == group[begin]:
            end += 1
        # tails[begin + k] is the row that ends a rising sequence of k + 1 rows with the lowest value.
        length = 0
        for row in range(begin, end):
            out[row] = 1
            low, high = 0, length
            while low < high:
                middle = (low + high) // 2
                if value[tails[begin + middle]] < value[row]:
                    low = middle + 1
                else:
                    high = middle
            tails[begin + low] = row
            previous[row] = tails[begin + low - 1] if low > 0 else -1
            if low == length:
                length += 1
        row = tails[begin + length - 1]
        while row >= 0:
            out[row] = 0
            row = previous[row]
        begin = end
