"""Control flow graphs: reachable blocks, edges that go back, and which of them go to a block that dominates; cycles."""

import numpy as np
from numpy.typing import NDArray

from arrowir_kernels.jit import kernel

Rows = NDArray[np.int64]
Marks = NDArray[np.int8]


@kernel
def trace_blocks(
    bounds: Rows,
    edge_bounds: Rows,
    edge_target: Rows,
    entry_bounds: Rows,
    entry_source: Rows,
    work: Rows,
    state: Marks,
    retreating: Marks,
    dominating: Marks,
) -> None:
    """Walk each graph from its first node.

    Parameters
    ----------
    bounds
        Where the nodes of each graph start, and the end.
    edge_bounds, edge_target
        The edges of node i are `edge_bounds[i]` to `edge_bounds[i + 1]`.
    entry_bounds, entry_source
        The same edges the other way: which nodes lead to node i.
    work
        Work space of five rows per node.
    state
        Zeros; set to 2 for nodes that are reached.
    retreating
        Zeros; set to 1 for edges to a node that the walk is still in.
    dominating
        Zeros; set to 1 for retreating edges to a node that every way to their source passes.
    """
    nodes = len(state)
    for graph in range(len(bounds) - 1):
        low, high = bounds[graph], bounds[graph + 1]
        if low == high:
            continue
        count, height = 0, 1
        work[low] = low
        work[nodes + low] = edge_bounds[low]
        state[low] = 1
        while height > 0:
            node = work[low + height - 1]
            edge = work[nodes + node]
            if edge < edge_bounds[node + 1]:
                work[nodes + node] = edge + 1
                target = edge_target[edge]
                if state[target] == 0:
                    state[target] = 1
                    work[nodes + target] = edge_bounds[target]
                    work[low + height] = target
                    height += 1
                elif state[target] == 1:
                    retreating[edge] = 1
            else:
                state[node] = 2
                work[2 * nodes + low + count] = node  # nodes in the order in which they were left
                work[3 * nodes + node] = count  # and the place of each there
                work[4 * nodes + node] = -1  # the closest node that dominates it
                count += 1
                height -= 1
        work[4 * nodes + low] = low
        changed = True
        while changed:
            changed = False
            for place in range(count - 2, -1, -1):
                node = work[2 * nodes + low + place]
                closest = np.int64(-1)
                for entry in range(entry_bounds[node], entry_bounds[node + 1]):
                    other = entry_source[entry]
                    if state[other] != 2 or work[4 * nodes + other] < 0:
                        continue
                    if closest < 0:
                        closest = other
                        continue
                    while closest != other:
                        while work[3 * nodes + closest] < work[3 * nodes + other]:
                            closest = work[4 * nodes + closest]
                        while work[3 * nodes + other] < work[3 * nodes + closest]:
                            other = work[4 * nodes + other]
                if work[4 * nodes + node] != closest:
                    work[4 * nodes + node] = closest
                    changed = True
        for node in range(low, high):
            if state[node] != 2:
                continue
            for edge in range(edge_bounds[node], edge_bounds[node + 1]):
                if retreating[edge] == 0:
                    continue
                above = np.int64(node)
                while above != edge_target[edge] and above != low:
                    above = work[4 * nodes + above]
                if above == edge_target[edge]:
                    dominating[edge] = 1


@kernel
def peel(bounds: Rows, target: Rows, left: Rows, queue: Rows) -> None:
    """Take nodes without incoming edges away, with their edges, until every node that is left has one.

    Parameters
    ----------
    bounds, target
        The edges of node i are `bounds[i]` to `bounds[i + 1]`.
    left
        Set to the number of edges that still lead to each node: above 0 on cycles, and behind them.
    queue
        Work space, as long as the nodes.
    """
    left[:] = 0
    for edge in range(len(target)):
        left[target[edge]] += 1
    head, tail = 0, 0
    for node in range(len(left)):
        if left[node] == 0:
            queue[tail] = node
            tail += 1
    while head < tail:
        node = queue[head]
        head += 1
        for edge in range(bounds[node], bounds[node + 1]):
            left[target[edge]] -= 1
            if left[target[edge]] == 0:
                queue[tail] = target[edge]
                tail += 1
