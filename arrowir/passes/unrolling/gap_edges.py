"""Edges over loops of which nothing comes: Y -> loop -> X becomes Y -> X (rules U7, N14)."""

from dataclasses import dataclass

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.ir import IR
from arrowir.store import Array


@dataclass
class SourceEdges:
    """Edges as written, joined over what leaves nothing behind; owner after owner, relation after relation."""

    owner: Array
    relation: Array
    on: Array
    edge: Array
    name: Array
    extra: Array
    carrier: Array
    """The dependency row whose placeholders `extra` has."""
    joined: Array
    """Mask of edges whose `extra` was written in another instruction."""

    def __len__(self) -> int:
        return len(self.owner)

    def pick(self, which: Array) -> "SourceEdges":
        """Return some of the edges."""
        return SourceEdges(*(getattr(self, name)[which] for name in self.__dataclass_fields__))


class LoopsAround:
    """Tells which loops stand around instructions.

    Parameters
    ----------
    ir
        The batch.
    """

    def __init__(self, ir: IR) -> None:
        self._block = ir.tables["instructions"]["block_id"]
        self._owner = ir.tables["blocks"]["instruction_id"]

    def of(self, row: int) -> tuple[int, ...]:
        """Return the loops around an instruction, outermost first."""
        found: list[int] = []
        owner = int(self._owner[self._block[row]])
        while owner >= 0:
            found.append(owner)
            owner = int(self._owner[self._block[owner]])
        return tuple(reversed(found))

    def shortened(self, text: str, gap: int, on: int) -> str:
        """Return the text of an unroll edge on a gap as that of one on what the gap depends on.

        An index is for a loop around what the edge is on. Where that stands further out now, the indices of the loops
        around the gap alone go; where it stands in other loops, what is written stays.
        """
        rows = len(self._block)
        written = extras.items(text)
        if len(written) < 2 or not written[1].startswith("[") or not (0 <= on < rows and 0 <= gap < rows):
            return text
        kind, listed, *rest = written
        indices, inner, outer = extras.items(listed), self.of(gap), self.of(on)
        further_out = len(outer) < len(inner) == len(indices) and inner[: len(outer)] == outer
        if not further_out or any(extras.PLACEHOLDER in item for item in rest):
            return text
        return "[" + ",".join((kind, "[" + ",".join(indices[: len(outer)]) + "]", *rest)) + "]"


Edge = tuple[int, int, int, int, int, int, bool]
"""Relation, on, edge, name, extra, carrier, joined."""


def source_edges(ir: IR, gap: Array, looked_at: Array) -> SourceEdges:
    """Return the edges of a batch.

    Parameters
    ----------
    ir
        The batch.
    gap
        Mask of the instructions that leave nothing behind.
    looked_at
        Mask of the instructions whose edges are joined.
    """
    table = ir.tables["dependencies"]
    on = table["on_instruction_id"]
    rows = np.arange(len(table))
    plain = SourceEdges(
        table["instruction_id"],
        table["relation"],
        on,
        table["edge"],
        table["name"],
        table["extra"],
        rows,
        np.zeros(len(rows), bool),
    )
    over = np.flatnonzero(on >= 0)
    over = over[gap[on[over]] & looked_at[plain.owner[over]]]
    if not len(over):
        return plain
    owners = np.unique(plain.owner[over])
    joined = _Joins(ir, plain, gap)
    made: list[tuple[int, Edge]] = [(owner, edge) for owner in owners.tolist() for edge in joined.joined(owner)]
    kept = plain.pick(~np.isin(plain.owner, owners))
    columns = list(zip(*((owner, *edge) for owner, edge in made), strict=True)) if made else [()] * 8
    new = SourceEdges(
        *(np.array(column, array.dtype) for column, array in zip(columns, vars(plain).values(), strict=True))
    )
    both = SourceEdges(*(np.concatenate(pair) for pair in zip(vars(kept).values(), vars(new).values(), strict=True)))
    return both.pick(np.argsort(both.owner, kind="stable"))


class _Joins:
    """Joins the edges of one instruction after the other; few instructions have an edge on a loop without trips."""

    def __init__(self, ir: IR, edges: SourceEdges, gap: Array) -> None:
        self.ir, self.edges, self.gap, self.around = ir, edges, gap, LoopsAround(ir)
        self._lists: dict[int, list[list[Edge]]] = {}

    def lists(self, owner: int) -> list[list[Edge]]:
        """Return the edges of an instruction as written, by relation."""
        if owner not in self._lists:
            edges = self.edges
            first, last = np.searchsorted(edges.owner, [owner, owner + 1]).tolist()
            found: list[list[Edge]] = [[] for _ in vocab.RELATIONS.values]
            for k in range(first, last):
                row = (
                    int(c[k]) for c in (edges.relation, edges.on, edges.edge, edges.name, edges.extra, edges.carrier)
                )
                edge: Edge = (*row, False)  # type: ignore[assignment]
                found[edge[0]].append(edge)
            self._lists[owner] = found
        return self._lists[owner]

    def is_gap(self, edge: Edge) -> bool:
        """Tell whether an edge is on something that leaves nothing behind."""
        return edge[1] >= 0 and bool(self.gap[edge[1]])

    def joined(self, owner: int) -> list[Edge]:
        """Return the edges of an instruction, those on gaps replaced, none added twice (rule N14)."""
        lists = self.lists(owner)
        there = [{self._identity(edge) for edge in edges if not self.is_gap(edge)} for edges in lists]
        stay: list[list[Edge]] = [[] for _ in lists]
        moved: list[list[Edge]] = [[] for _ in lists]
        for relation, edges in enumerate(lists):
            for edge in edges:
                if not self.is_gap(edge):
                    stay[relation].append(edge)
                    continue
                for onward in self._onward(edge):
                    identity = self._identity(onward)
                    if identity not in there[onward[0]]:
                        there[onward[0]].add(identity)
                        (stay if onward[0] == relation else moved)[onward[0]].append(onward)
        return [edge for relation in range(len(lists)) for edge in (*stay[relation], *moved[relation])]

    def _onward(self, edge: Edge) -> list[Edge]:
        """Return what an edge on a gap becomes, through any number of gaps, each passed once on one way."""
        found: list[Edge] = []
        stack: list[tuple[Edge, frozenset[int]]] = [(edge, frozenset())]
        while stack:
            at, passed = stack.pop()
            if not self.is_gap(at):
                found.append(at)
            elif at[1] not in passed:
                through = passed | {at[1]}
                onward = [self._join(at, then) for edges in self.lists(at[1]) for then in edges]
                stack.extend((each, through) for each in reversed(onward))
        return found

    def _join(self, edge: Edge, then: Edge) -> Edge:
        """Return Y -> X of Y -> gap -> X: the first's kind; plain if both are, else what is not, with its extras."""
        relation, _, kind, _, extra, carrier, joined = edge
        onward, on, _, name, onward_extra, onward_carrier, _ = then
        pool = self.ir.pools.extras
        if relation == vocab.RELATION_UNROLL and extra >= 0:
            extra = pool.intern(self.around.shortened(pool[extra], edge[1], on))
        if relation != vocab.RELATION_PLAIN or onward == vocab.RELATION_PLAIN:
            return relation, on, kind, name, extra, carrier, joined
        carried = extras.items(pool[onward_extra])[1:] if onward_extra >= 0 else ()
        written = extras.items(pool[extra])[:1] if extra >= 0 else ()
        if carried:
            text = "[" + ",".join((*(written or ('"Flow"',)), *carried)) + "]"
            return onward, on, kind, name, pool.intern(text), onward_carrier, True
        return onward, on, kind, name, -1 if extra < 0 else pool.intern(f"[{','.join(written)}]"), carrier, joined

    def _identity(self, edge: Edge) -> tuple[object, ...]:
        """What makes two edges of one relation the same: target, kind and extras, names filled in."""
        _, on, kind, name, extra, carrier, _ = edge
        tail = extras.items(self.ir.pools.extras[extra])[1:] if extra >= 0 else ()
        text = ",".join(tail)
        if extras.PLACEHOLDER in text:
            text = extras.fill(text, self._names(carrier)[: text.count(extras.PLACEHOLDER)])
        return on, name if on < 0 else -1, kind, text

    def _names(self, carrier: int) -> list[str]:
        references, pools = self.ir.tables["references"], self.ir.pools
        code = self.ir.pools.codes["table"].find("dependencies")
        names: list[str] = []
        for row in np.flatnonzero((references["table"] == code) & (references["row"] == carrier)).tolist():
            target = int(references["target_id"][row])
            table = pools.codes["table"][int(references["target"][row])]
            if target < 0:
                names.append(pools.names[int(references["name"][row])])
            elif table == "loops":
                names.append(pools.names[int(self.ir.tables["loops"]["axis"][target])])
            else:
                names.append(self.ir.tables[table].text()[target])
        return names
