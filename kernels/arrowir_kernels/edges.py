"""Rows that keys point at, and edges inside bodies of instructions."""

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Rows = NDArray[np.int64]
Mask = NDArray[np.int8]


@kernel
def mark_rows(keys: NDArray[np.int32], out: NDArray[np.bool_]) -> None:
    """Mark the rows that keys point at.

    Parameters
    ----------
    keys
        Rows; negative ones are absent.
    out
        Set to True where a key points.
    """
    for key in keys:
        if key >= 0:
            out[key] = True


@kernel
def mark_ends(
    start: Rows,
    kept: Rows,
    rows: Rows,
    first: Rows,
    edges: Rows,
    waiting: NDArray[np.int32],
    on: NDArray[np.int32],
    base: Rows,
    waits: Mask,
    waited: Mask,
    lost: Mask,
) -> None:
    """Mark the instructions of bodies that wait for others of their body, and those that others wait for.

    Parameters
    ----------
    start, rows, kept
        First instruction and number of instructions of each body, and how many of them stay: the rest is dropped.
    first, edges
        First edge and number of edges of each body.
    waiting, on
        Of each edge the instruction that waits, and what it waits for.
    base
        Where the marks of each body begin.
    waits, waited
        Set to 1, per instruction of the bodies.
    lost
        Set to 1, per edge of the table: those of an instruction that stays on one that is dropped.
    """
    for body in range(len(start)):
        for edge in range(first[body], first[body] + edges[body]):
            x, y = waiting[edge] - start[body], on[edge] - start[body]
            if x >= kept[body]:
                continue
            if y >= kept[body] and y < rows[body]:
                lost[edge] = 1
                continue
            waits[base[body] + x] = 1
            if 0 <= y < rows[body] and y != x:
                waited[base[body] + y] = 1
