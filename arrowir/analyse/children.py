"""Rows without a name of their own - operands, edges, branch targets, ... - matched within the rows that own them.

Of every row after that was there before, or is a clone of one that was, the children are expected to be those of that
row. What is there is held against what is expected: by place, then, where order means little, by what is named.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arrowir import schema
from arrowir.analyse.sides import Twins, hashed, mixed, pair, rank
from arrowir.derived import take
from arrowir.runs import expand
from arrowir.store import Array, starts

if TYPE_CHECKING:
    from arrowir.analyse.matching import Match


@dataclass(frozen=True)
class Kind:
    """How the rows of a table hang on others."""

    owner: str
    """The table of the owners."""
    key: str
    """The column that names the owner."""
    slot: str | None = None
    """The column that says which of the owner's lists a row is in."""


CHILDREN: dict[str, Kind] = {
    "loops": Kind("instructions", "instruction_id"),
    "calls": Kind("instructions", "instruction_id"),
    "operands": Kind("instructions", "instruction_id", "role"),
    "branches": Kind("instructions", "instruction_id", "slot"),
    "semaphores": Kind("instructions", "instruction_id", "side"),
    "aliases": Kind("locations", "location_id"),
    "call_arguments": Kind("instructions", "instruction_id", "direction"),
    "dependencies": Kind("instructions", "instruction_id", "relation"),
    "references": Kind("", "row", None),
}
"""Tables whose rows have no name of their own, in the order in which they are matched."""


@dataclass(frozen=True)
class Kin:
    """The children of matched owners."""

    before: Array
    after: Array
    """Pairs of rows."""
    lost: Array
    """Rows before that an owner after lacks."""
    owner: Array
    """That owner after."""


def owners(match: "Match", table: str) -> tuple[Array, Array]:
    """Return the owner of each row of a table of children, on each side; of references, in one numbering for all."""
    sides = match.sides
    if table != "references":
        return sides.arrays(table, CHILDREN[table].key)
    begin = bases(match)
    found: list[Array] = []
    for side, ir in enumerate((sides.before, sides.after)):
        rows = ir.tables["references"]
        found.append(begin[side][rows["table"]] + rows["row"])
    return found[0], found[1]


def bases(match: "Match") -> tuple[Array, Array]:
    """Return where the rows of each table begin in a numbering of the rows of all tables that may hold references."""
    names = schema.STRUCTURAL["table"]
    counts = [match.sides.count(name) if name in schema.REFERRING else (0, 0) for name in names]
    return starts(np.array([c[0] for c in counts])), starts(np.array([c[1] for c in counts]))


def _sources(match: "Match", table: str) -> tuple[Array, Array]:
    """Return the origin of each possible owner after, and whether it was there before."""
    if table != "references":
        owner = CHILDREN[table].owner
        return match.origin[owner], match.kept(owner)
    begin = bases(match)[0]
    names = [n for n in schema.STRUCTURAL["table"] if n in schema.REFERRING]  # as `bases` numbers them
    base = [begin[schema.STRUCTURAL["table"].index(n)] for n in names]
    origin = [np.where(match.origin[n] < 0, -1, match.origin[n] + b) for n, b in zip(names, base, strict=True)]
    return np.concatenate(origin), np.concatenate([match.kept(n) for n in names])


def match_children(match: "Match", table: str) -> Kin:
    """Match the rows of a table of children; their twins and origins are noted in the match."""
    sides = match.sides
    twins = match.twins[table] = Twins(sides.count(table))
    own, there = owners(match, table)
    origin, kept = _sources(match, table)
    order = np.argsort(own, kind="stable")
    count = np.bincount(own, minlength=int(origin.max(initial=-1)) + 1)
    rows = np.flatnonzero(origin >= 0)
    number = count[origin[rows]]
    owner = np.repeat(rows, number)
    expected = order[expand(starts(count)[:-1][origin[rows]], number)]
    actual = np.flatnonzero(take(origin, there) >= 0)
    before, after = _pairs(match, table, (owner, expected), (there[actual], actual))
    lost = np.ones(len(expected), bool)
    lost[before] = False
    kin = Kin(expected[before], actual[after], expected[lost], owner[lost])
    stays = kept[there[kin.after]]
    twins.set(kin.before[stays], kin.after[stays])
    match.origin[table] = np.full(twins.after, -1, np.int64)
    match.origin[table][kin.after] = kin.before
    return kin


Rows = tuple[Array, Array]
"""Owner after, and row."""


def _pairs(match: "Match", table: str, expected: Rows, actual: Rows) -> Rows:
    """Pair expected rows with those that are there; return places in either."""
    slot = CHILDREN[table].slot
    groups = expected[0].astype(np.int64), actual[0].astype(np.int64)
    if slot is not None:
        cells = match.sides.cells(table, slot)
        width = int(max(c.max(initial=0) for c in cells)) + 2
        groups = groups[0] * width + cells[0][expected[1]] + 1, groups[1] * width + cells[1][actual[1]] + 1
    first, second = pair(*groups)
    if table not in _IDENTITY:
        return first, second
    named = _IDENTITY[table](match, actual)
    named = named[0][expected[1]], named[1]
    same = named[0][first] == named[1][second]
    if same.all():
        return first, second
    # Lists without a fixed order: what is named decides, and then the place among the rest.
    found = Twins((len(expected[0]), len(actual[0])))
    found.set(first[same], second[same])
    found.join((mixed(groups[0], named[0]), mixed(groups[1], named[1])))
    if table == "dependencies":
        _join_call_sites(match, found, (expected[1], actual), groups)
    found.join(groups)
    first = np.flatnonzero(found.twin >= 0)
    return first, found.twin[first]


def _edge_identity(match: "Match", actual: Rows) -> Rows:
    """Return what each edge names: of those before, and of those after that are looked at, in common numbers."""
    target, name = match.sides.arrays("dependencies", "on_instruction_id"), match.sides.cells("dependencies", "name")
    image = match.image("instructions", target[1][actual[1]], match.chains("instructions")[actual[0]])
    return np.where(target[0] < 0, -2 - name[0], target[0]), np.where(image == -1, -2 - name[1][actual[1]], image)


def _join_call_sites(match: "Match", found: Twins, edges: tuple[Array, Rows], groups: Rows) -> None:
    """Pair edges on call-sites that are gone with the first edges on what each of them has brought."""
    sides, chains = match.sides, match.sides.after.tables["call_chains"]
    left = np.flatnonzero(found.twin < 0), np.flatnonzero(found.source < 0)
    if not len(left[0]) or not len(left[1]) or not len(chains):
        return
    targets, owner = sides.arrays("dependencies", "on_instruction_id"), edges[1][0][left[1]]
    site = targets[0][edges[0][left[0]]]
    chain, around = (take(match.chains("instructions"), ids) for ids in (targets[1][edges[1][1][left[1]]], owner))
    # Of the call-sites that a row came in by, the one that stood beside the owner of the edge.
    while (inner := (chain >= 0) & (take(chains["parent_id"], chain) != around)).any():
        chain = np.where(inner, take(chains["parent_id"], chain), chain)
    left = left[0][site >= 0], left[1][chain >= 0]
    keys = np.zeros(found.before, np.uint64), np.zeros(found.after, np.uint64)
    for side, (table, ids) in enumerate((("instructions", site), ("call_chains", chain))):
        names = hashed(sides.text(bool(side), table).gather(ids[ids >= 0]))
        keys[side][left[side]] = mixed(groups[side][left[side]], names)
    found.join(keys, (keys[0] != 0, keys[1] != 0))


def _argument_identity(match: "Match", actual: Rows) -> Rows:
    formal = match.sides.cells("call_arguments", "formal")
    return formal[0], formal[1][actual[1]]


_IDENTITY = {"dependencies": _edge_identity, "call_arguments": _argument_identity}
"""What tells the rows of such a list apart, where they are not told apart by their place."""


def slots(match: "Match", table: str, is_after: bool) -> Rows:
    """Return the code of the list that each row of a table is in, -1 where there is but one, and its place there."""
    own = owners(match, table)[is_after].astype(np.int64)
    slot = CHILDREN[table].slot
    code = np.full(len(own), -1, np.int16) if slot is None else match.sides.arrays(table, slot)[is_after]
    return code, rank(own * (int(code.max(initial=0)) + 2) + code + 1)
