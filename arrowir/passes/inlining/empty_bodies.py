"""Edges over a call-site whose body is empty: Y -> call-site -> X becomes Y -> X (rule N14).

Such bodies are rare, and each edge may go on through several of them, so this is plain Python over the edges concerned.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from arrowir import extras, vocabulary
from arrowir.edit import Edit
from arrowir.passes.unrolling.gap_edges import LoopsAround
from arrowir.runs import concat_tables
from arrowir.store import Array, Table

if TYPE_CHECKING:
    from arrowir.passes.inlining.call_edges import Dependencies

_RELATIONS = range(len(vocabulary.RELATIONS))


@dataclass(frozen=True)
class _Edge:
    relation: int
    on: int
    name: int
    edge: int
    extra: int
    source: int
    """The dependency row that the extras come from."""
    made: bool = False


def join(
    edit: Edit, edges: "Dependencies", gaps: set[int], owner: Array, source: Array, on: Array
) -> tuple[Array, Array, Array, Array, Array]:
    """Replace edges on empty call-sites by what those depend on.

    Parameters
    ----------
    edit
        Gets the dependency rows that are new.
    edges
        The dependency table, which is extended by them.
    gaps
        Instructions of the empty call-sites.
    owner, source, on
        Edge lists: whose the edge is, the dependency row it is made of, the old row that it is on (-1 for a name).

    Returns
    -------
    owner, order, source, copy, on
        The lists after the change.
    """
    made = _Made(edit, edges)
    out: list[tuple[int, int, int]] = []
    concerned = np.isin(owner, owner[np.isin(on, list(gaps))])
    for number in np.unique(owner[concerned]).tolist():
        mine = np.flatnonzero(owner == number)
        lists = [made.read(s, o) for s, o in zip(source[mine].tolist(), on[mine].tolist(), strict=True)]
        out += [(number, made.row(edge), edge.on) for edge in _joined(lists, gaps, made)]
    made.finish()
    rest = ~concerned
    new = np.array(out, np.int64).reshape(-1, 3)
    owners = np.concatenate((owner[rest], new[:, 0]))
    sources = np.concatenate((source[rest], new[:, 1]))
    ons = np.concatenate((on[rest], new[:, 2]))
    return owners, np.arange(len(owners)), sources, np.zeros(len(owners), np.int64), ons


class _Made:
    """Reads edges, and makes rows for those that are new."""

    def __init__(self, edit: Edit, edges: "Dependencies") -> None:
        self.edit, self.edges = edit, edges
        self.pool = edit.ir.pools.extras
        self.rows: list[_Edge] = []
        self.around = LoopsAround(edit.ir)

    def read(self, source: int, on: int) -> _Edge:
        relation, name, edge, extra = (
            int(self.edges.pick(c, np.array([source]))[0]) for c in ("relation", "name", "edge", "extra")
        )
        return _Edge(relation, on, name, edge, extra, source)

    def of(self, instruction: int) -> list[_Edge]:
        """Return the edges of an instruction."""
        first, count = self.edges.of(np.array([instruction]))
        rows = range(int(first[0]), int(first[0] + count[0]))
        return [self.read(row, int(self.edges.on_instruction_id[row])) for row in rows]

    def parts(self, extra: int) -> tuple[str, ...]:
        return extras.items(self.pool[extra]) if extra >= 0 else ()

    def row(self, edge: _Edge) -> int:
        """Return the dependency row of an edge, which is added when the edge is new."""
        if not edge.made:
            return edge.source
        self.rows.append(edge)
        return len(self.edges) + len(self.rows) - 1

    def finish(self) -> None:
        """Add the new rows, and the references of their extras."""
        from arrowir.passes.inlining.call_edges import LAST

        if not self.rows:
            return
        first = len(self.edges)
        table = Table.of(
            "dependencies",
            len(self.rows),
            instruction_id=LAST,
            **{n: np.array([getattr(e, n) for e in self.rows]) for n in ("relation", "edge", "name", "extra")},
        )
        self.edges.extend(table)
        self.edit.added["dependencies"] = concat_tables([self.edit.added["dependencies"], table])
        known = self.edit.ir.tables["references"]
        mine = known["table"] == self.edit.ir.pools.codes["table"].find("dependencies")
        for k, edge in enumerate(self.rows):
            rows = np.flatnonzero(mine & (known["row"] == edge.source)) if len(known) else []
            if len(rows):
                rows = rows[: self.pool[edge.extra].count(extras.PLACEHOLDER) if edge.extra >= 0 else 0]
                columns = {n: None if not known.has(n) else known[n][rows] for n in known.columns}
                copied = Table("references", columns, len(rows)).replace(row=np.full(len(rows), first + k, np.int32))
                self.edit.added["references"] = concat_tables([self.edit.added["references"], copied])


def _joined(lists: list[_Edge], gaps: set[int], made: _Made) -> list[_Edge]:
    """Return the lists of one instruction with every edge on a gap replaced."""
    kept = [e for e in lists if e.on not in gaps]
    result: list[_Edge] = []
    moved: list[_Edge] = []
    for relation in _RELATIONS:
        for edge in lists:
            if edge.relation != relation:
                continue
            if edge.on not in gaps:
                result.append(edge)
                continue
            for onward in _onward(edge, gaps, made, ()):
                if not any(_same(onward, other, made) for other in (*kept, *result, *moved)):
                    (result if onward.relation == relation else moved).append(onward)
    return sorted([*result, *moved], key=lambda e: e.relation)


def _onward(edge: _Edge, gaps: set[int], made: _Made, passed: tuple[int, ...]) -> list[_Edge]:
    """Return what an edge on a gap becomes, through any number of gaps, each passed once."""
    if edge.on not in gaps:
        return [edge]
    if edge.on in passed:
        return []
    found: list[_Edge] = []
    for following in sorted(made.of(edge.on), key=lambda e: e.relation):
        found += _onward(_join(edge, following, made), gaps, made, (*passed, edge.on))
    return found


def _join(edge: _Edge, following: _Edge, made: _Made) -> _Edge:
    """Join two edges: the kind of the first; plain if both are, else the relation that is not (the first's first)."""
    target = replace(edge, on=following.on, name=following.name, made=True)
    if edge.relation == vocabulary.RELATION_UNROLL and edge.extra >= 0:
        shorter = made.around.shortened(made.pool[edge.extra], edge.on, following.on)
        target = replace(target, extra=made.pool.intern(shorter))
    if edge.relation != vocabulary.RELATION_PLAIN or following.relation == vocabulary.RELATION_PLAIN:
        return target
    carried, kind = made.parts(following.extra)[1:], made.parts(edge.extra)[:1]
    if not carried:
        extra = -1 if edge.extra < 0 else made.pool.intern(f"[{','.join(kind)}]")
        return replace(target, relation=following.relation, extra=extra)
    text = ",".join((*(kind or ('"Flow"',)), *carried))
    return replace(target, relation=following.relation, extra=made.pool.intern(f"[{text}]"), source=following.source)


def _same(one: _Edge, other: _Edge, made: _Made) -> bool:
    """Tell whether two edges are equal: relation, target, kind and extras."""
    return (
        (one.relation, one.on, one.edge) == (other.relation, other.on, other.edge)
        and (one.on >= 0 or one.name == other.name)
        and made.parts(one.extra)[1:] == made.parts(other.extra)[1:]
    )
