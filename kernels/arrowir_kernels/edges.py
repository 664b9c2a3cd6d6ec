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
def select_pointing(keys: NDArray[np.int32], marked: NDArray[np.bool_], out: Rows) -> int:
    """Select the rows whose key points at a marked row.

    Parameters
    ----------
    keys
        Rows; negative ones are absent.
    marked
        One item for each row that keys can point at.
    out
        Filled from its beginning; as long as `keys`.

    Returns
    -------
    int
        The number of rows selected.
    """
    count = 0
    for row in range(len(keys)):
        key = keys[row]
        out[count] = row  # overwritten by the next one, unless it counts
        count += 1 if key >= 0 and marked[key] else 0
    return count


@kernel
def count_uses(target: NDArray[np.int32], role: NDArray[np.int16], writing: int, reads: Rows, writes: Rows) -> None:
    """Count how often operands read and write each of their targets.

    Parameters
    ----------
    target
        What each operand names; negative ones name nothing.
    role, writing
        The role of each operand, and the one of those that write.
    reads, writes
        One is added for each operand, per target.
    """
    for row in range(len(target)):
        at = target[row]
        if at >= 0:
            if role[row] == writing:
                writes[at] += 1
            else:
                reads[at] += 1


@kernel
def mark_differing(
    target: NDArray[np.int32], owner: NDArray[np.int32], named: NDArray[np.int32], lost: NDArray[np.int32], out: Mask
) -> None:
    """Mark rows whose target belongs to another owner than the one that is named beside it.

    Parameters
    ----------
    target
        What each row names; negative ones name nothing.
    owner
        The owner of each target.
    named, lost
        Of each row the owner that is named, and the name of one that was not found; negative ones are absent.
    out
        Set to 1 where one is named and differs.
    """
    for row in range(len(target)):
        at = target[row]
        if at >= 0 and owner[at] != named[row] and (named[row] >= 0 or lost[row] >= 0):
            out[row] = 1


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
        begin, stay, count = start[body], kept[body], rows[body]
        waits_here, waited_here = waits[base[body] : base[body] + count], waited[base[body] : base[body] + count]
        for edge in range(first[body], first[body] + edges[body]):
            x, y = waiting[edge] - begin, on[edge] - begin
            if x >= stay:
                continue
            if stay <= y < count:
                lost[edge] = 1
                continue
            waits_here[x] = 1
            if 0 <= y < count and y != x:
                waited_here[y] = 1


@kernel
def list_unmarked(base: Rows, marks: Mask, begin: Rows, out: Rows) -> int:
    """List what is not marked in each of consecutive groups, by its number in the group.

    Parameters
    ----------
    base
        Where the marks of each group begin, and their number as last item.
    marks
        0 for what is listed.
    begin
        Filled: where the list of each group begins, and the number of all listed as last item.
    out
        Filled from its beginning; as long as the marks.

    Returns
    -------
    int
        The number of all listed.
    """
    count = 0
    for group in range(len(base) - 1):
        begin[group] = count
        for place in range(base[group], base[group + 1]):
            out[count] = place - base[group]  # overwritten by the next one, unless it counts
            count += 1 if marks[place] == 0 else 0
    begin[len(base) - 1] = count
    return count


@kernel
def reach_over(
    first: Rows,
    on: NDArray[np.int32],
    gap: Mask,
    start: Rows,
    stamp: Rows,
    node: Rows,
    at: Rows,
    found_start: Rows,
    found_edge: Rows,
) -> int:
    """Follow edges over instructions that go, to what is behind them, in the order of the edges.

    Parameters
    ----------
    first
        First edge of each instruction, and their number as last item.
    on
        Of each edge what it is on; negative where that is a mere name.
    gap
        1 for the instructions that go.
    start
        Edges on such instructions: where to begin.
    stamp
        Zeros, one for each instruction.
    node, at
        Room for as many items as there are instructions that go.
    found_start, found_edge
        Set to the number of the beginning, and to the last edge, of each way; each instruction is passed once from one
        beginning. Where there is no room nothing is set.

    Returns
    -------
    int
        The number of ways.
    """
    count = 0
    for i in range(len(start)):
        top = 0
        node[0] = on[start[i]]
        at[0] = first[node[0]]
        stamp[node[0]] = i + 1
        while top >= 0:
            edge = at[top]
            if edge == first[node[top] + 1]:
                top -= 1
                continue
            at[top] = edge + 1
            target = on[edge]
            if target < 0 or gap[target] == 0:
                if count < len(found_edge):
                    found_start[count] = i
                    found_edge[count] = edge
                count += 1
            elif stamp[target] != i + 1:
                stamp[target] = i + 1
                top += 1
                node[top] = target
                at[top] = first[target]
    return count
