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
