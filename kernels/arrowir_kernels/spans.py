"""Spans of instructions: how deep each lies in others."""

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Rows = NDArray[np.int64]


@kernel
def nest_spans(start: Rows, end: Rows, stack: Rows, depth: Rows) -> None:
    """Make any two spans lie apart or one in the other, and count the spans that each lies in.

    Parameters
    ----------
    start
        First place of each span, rising; of equal ones the longest span comes first.
    end
        Last place of each span; one in which another starts that ends behind it is made longer.
    stack
        Work space, as long as the spans.
    depth
        Set to the number of spans around each.
    """
    height = 0
    for row in range(len(start)):
        while height > 0 and end[stack[height - 1]] < start[row]:
            height -= 1
        for below in range(height - 1, -1, -1):
            if end[stack[below]] >= end[row]:
                break
            end[stack[below]] = end[row]
        depth[row] = height
        stack[height] = row
        height += 1


@kernel
def reached_over(
    start: NDArray[np.int64],
    rank: NDArray[np.int64],
    first: NDArray[np.int64],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    tree: NDArray[np.int64],
    out: NDArray[np.int8],
) -> None:
    """Tell of places whether something begins before them and ends behind them, but not behind a bound.

    Parameters
    ----------
    start, rank
        Where each span begins, rising, and the rank of its end among all ends, from 0.
    first
        The places, rising.
    low, high
        How many ends are not behind each place, and not behind its bound.
    tree
        Zeros, one more than there are spans: a Fenwick tree of the ends met so far.
    out
        Filled: 1 where there is such a span.
    """
    met, size = 0, len(tree)
    for k in range(len(first)):
        while met < len(start) and start[met] < first[k]:
            at = rank[met] + 1
            while at < size:
                tree[at] += 1
                at += at & -at
            met += 1
        count, at = 0, high[k]
        while at > 0:
            count += tree[at]
            at -= at & -at
        at = low[k]
        while at > 0:
            count -= tree[at]
            at -= at & -at
        out[k] = count > 0
