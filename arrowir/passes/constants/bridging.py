"""Edges over instructions that go: Y -> gone -> X becomes Y -> X (rules C3, N14)."""

from dataclasses import dataclass

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.ir import IR
from arrowir.passes.unrolling.gap_edges import source_edges
from arrowir.passes.unrolling.loops import of_each
from arrowir.runs import expand
from arrowir.store import Array, children, distinct, first_of, starts
from arrowir_kernels import reach_over


@dataclass
class Bridged:
    """New edge lists of the instructions that depended on what goes, owner after owner."""

    owners: Array
    """The instructions, in rising order."""
    owner: Array
    """Of each edge the instruction that waits."""
    row: Array
    """The dependency row that it is, where it has not changed; -1 for new ones."""
    relation: Array
    on: Array
    edge: Array
    name: Array
    extra: Array
    carrier: Array
    """The dependency row whose placeholders `extra` has."""

    def pick(self, which: Array) -> "Bridged":
        """Return some of the edges."""
        return Bridged(self.owners, *(values[which] for name, values in vars(self).items() if name != "owners"))

    @classmethod
    def join(cls, parts: "list[Bridged]") -> "Bridged":
        """Put lists of different owners together."""
        names = [name for name in cls.__dataclass_fields__ if name != "owners"]
        columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        made = cls(np.sort(np.concatenate([part.owners for part in parts])), **columns)
        return made.pick(np.argsort(made.owner, kind="stable"))


def bridge(ir: IR, gone: Array) -> Bridged:
    """Return the new edge lists of all that depends on instructions that go (a mask over instructions)."""
    edges = ir.tables["dependencies"]
    on, waiting = edges["on_instruction_id"], edges["instruction_id"]
    over = np.flatnonzero(on >= 0)
    over = over[gone[on[over]] & ~gone[waiting[over]]]
    owners = distinct(waiting[over])
    plain = _plain_owners(ir, gone, owners)
    parts = [_bridged(ir, gone, owners[plain])]
    if not plain.all():
        parts.append(_joined_by_text(ir, gone, owners[~plain]))
    return Bridged.join(parts)


def _plain_owners(ir: IR, gone: Array, owners: Array) -> Array:
    """Tell which instructions are in functions in which nothing but plain edges leads on from what goes.

    Edges with references in them count as others.
    """
    edges = ir.tables["dependencies"]
    other = np.flatnonzero((edges["relation"] != vocab.RELATION_PLAIN) & gone[edges["instruction_id"]])
    if edges.has("extra"):
        pool = ir.pools.extras
        refers = of_each(edges["extra"], len(pool), lambda i: extras.PLACEHOLDER in pool[i]) > 0
        other = np.concatenate((other, np.flatnonzero(refers)))
    function = ir.array("instructions", "function_id")
    special = np.zeros(ir.count("functions") + 1, bool)
    special[function[edges["instruction_id"][other]]] = True
    return ~special[function[owners]]


def _bridged(ir: IR, gone: Array, owners: Array) -> Bridged:
    """Join edges: the relation, kind and extras of the first, the target of the last (rule N14)."""
    edges = ir.tables["dependencies"]
    on = edges["on_instruction_id"]
    old = expand(*children(edges["instruction_id"], owners))
    over = (on[old] >= 0) & gone[np.maximum(on[old], 0)] if len(old) else np.zeros(0, bool)
    began, last = _ways(ir, gone, old[over])
    # Where an edge stood stand those that come of it; the others stay.
    place = np.flatnonzero(over)[began]
    place = np.concatenate((np.flatnonzero(~over), place))
    target = np.concatenate((old[~over], last))
    order = np.argsort(place, kind="stable")
    place, target = place[order], target[order]
    source = old[place]
    made = Bridged(
        owners, edges["instruction_id"][source], np.where(over[place], -1, source), edges["relation"][source],
        on[target], edges["edge"][source], edges["name"][target], edges["extra"][source], source,
    )  # fmt: skip
    return made.pick(_added_once(ir, made))


def _ways(ir: IR, gone: Array, start: Array) -> tuple[Array, Array]:
    """Return the ways from edges on what goes to what is behind: the number of the first edge, and the last one."""
    edges, rows = ir.tables["dependencies"], ir.count("instructions")
    first = np.append(first_of(edges["instruction_id"], np.arange(rows)), len(edges))
    gap = gone.astype(np.int8)
    room = np.empty(int(gone.sum()) + 1, np.int64)
    found: tuple[Array, Array] = (np.empty(0, np.int64), np.empty(0, np.int64))
    for _ in range(2):  # how many, then which
        stamp = np.zeros(rows, np.int64)
        count = reach_over(first, edges["on_instruction_id"], gap, start, stamp, room, room.copy(), *found)
        if count == len(found[0]):
            break
        found = np.empty(count, np.int64), np.empty(count, np.int64)
    return found


def _added_once(ir: IR, made: Bridged) -> Array:
    """Leave out new edges that are there already, or come a second time: by relation, target, kind and extras."""
    pool = ir.pools.extras
    tails: dict[str, int] = {}
    tail = of_each(
        made.extra, len(pool), lambda i: tails.setdefault(",".join(extras.items(pool[i])[1:]), len(tails) + 1)
    )
    if tails.get("") is not None:
        tail[tail == tails[""]] = 0
    name = np.where(made.on < 0, made.name, -1)
    new = made.row < 0
    order = np.lexsort((np.arange(len(new)), new, tail, made.edge, name, made.on, made.relation, made.owner))
    keys = [column[order] for column in (made.owner, made.relation, made.on, name, made.edge, tail)]
    repeats = np.zeros(len(order), bool)
    repeats[1:] = np.logical_and.reduce([key[1:] == key[:-1] for key in keys])
    stays = np.ones(len(order), bool)
    stays[order] = ~repeats
    return np.flatnonzero(stays | ~new)


def _joined_by_text(ir: IR, gone: Array, owners: Array) -> Bridged:
    """Join edges of which some carry distances or expressions: few, each by itself."""
    looked_at = np.zeros(len(gone), bool)
    looked_at[owners] = True
    found = source_edges(ir, gone, looked_at)
    found = found.pick(np.flatnonzero(looked_at[found.owner]))
    return Bridged(
        owners, found.owner, np.full(len(found), -1), found.relation, found.on, found.edge, found.name, found.extra,
        found.carrier,
    )  # fmt: skip


def lists(ir: IR, owners: Array) -> Array:
    """Return which relations some instructions have edges of, as bit masks."""
    edges = ir.tables["dependencies"]
    first, count = children(edges["instruction_id"], owners)
    return relation_masks(starts(count), edges["relation"][expand(first, count)])


def relation_masks(begins: Array, relation: Array) -> Array:
    """Return which relations stand in each run, as bit masks."""
    masks = np.zeros(len(begins) - 1, np.int64)
    np.bitwise_or.at(masks, np.repeat(np.arange(len(masks)), np.diff(begins)), 1 << relation.astype(np.int64))
    return masks
