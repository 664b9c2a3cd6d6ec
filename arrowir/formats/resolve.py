"""What names mean: locations, sets and registers (rule R2), instructions (R3), blocks and functions (R4)."""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from arrowir.vocabulary import INPUT_KINDS, OUTPUT_KINDS

Name = str | None
"""A name as a key: None is that of all that have none, and nothing can mean it; `""` is a name."""
Candidate = tuple[Name, int, int]
"""A name, its row, and the kind of its set."""

_PARAMETER_KINDS = INPUT_KINDS | OUTPUT_KINDS


def preferred(candidates: Iterable[Candidate], kinds: Collection[int]) -> dict[Name, int]:
    """Return the row that each name means: the first of a preferred kind, else the first in file order (rule R2).

    Examples
    --------
    >>> preferred([("x", 0, 7), ("x", 1, 3), ("y", 2, 7)], {3})
    {'x': 1, 'y': 2}
    """
    first: dict[Name, int] = {}
    better: dict[Name, int] = {}
    for name, row, kind in candidates:
        first.setdefault(name, row)
        if kind in kinds:
            better.setdefault(name, row)
    return first | better


def repeated(candidates: list[Candidate]) -> frozenset[str]:
    """Return the names that several rows have."""
    seen: set[str] = set()
    names = (name for name, _, _ in candidates if name is not None)
    return frozenset(name for name in names if name in seen or seen.add(name))


@dataclass(slots=True)
class Side:
    """The storage of a function as its inputs see it, or its outputs."""

    locations: dict[Name, int]
    sets: dict[Name, int]
    parameters: dict[Name, int]
    """Sets of parameters, by the name of a location of theirs, else by their own (rule N4)."""


@dataclass(slots=True)
class Storage:
    """The names of a function's storage."""

    locations: list[Candidate] = field(default_factory=list[Candidate])
    sets: list[Candidate] = field(default_factory=list[Candidate])
    registers: dict[Name, int] = field(default_factory=dict[Name, int])
    repeated_registers: set[str] = field(default_factory=set[str])
    repeated_locations: frozenset[str] = frozenset()
    repeated_sets: frozenset[str] = frozenset()
    rows_of: dict[Name, list[int]] = field(default_factory=dict[Name, list[int]])
    """Locations by name, in file order."""
    set_named: dict[Name, int] = field(default_factory=dict[Name, int])
    """First set of each name."""
    inside: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Locations by set."""
    inputs: Side = field(default_factory=lambda: Side({}, {}, {}))
    outputs: Side = field(default_factory=lambda: Side({}, {}, {}))

    def add_register(self, name: Name, row: int) -> None:
        """Add a register; of several the first is meant (rule R2)."""
        if self.registers.setdefault(name, row) != row and name is not None:
            self.repeated_registers.add(name)

    def finish(self, set_of: Callable[[int], int]) -> None:
        """Work out what each name means, once all are there."""
        self.repeated_locations = repeated(self.locations)
        self.repeated_sets = repeated(self.sets)
        self.set_named = preferred(self.sets, ())
        for name, row, _ in self.locations:
            self.rows_of.setdefault(name, []).append(row)
            self.inside.setdefault(set_of(row), []).append(row)
        inside = [(name, set_of(row), kind) for name, row, kind in self.locations if kind in _PARAMETER_KINDS]
        own = [candidate for candidate in self.sets if candidate[2] in _PARAMETER_KINDS]
        self.inputs, self.outputs = (
            Side(
                preferred(self.locations, kinds),
                preferred(self.sets, kinds),
                preferred(own, kinds) | preferred(inside, kinds),
            )
            for kinds in (INPUT_KINDS, OUTPUT_KINDS)
        )


class Instructions:
    """The instructions of a function or a queue by name.

    Parameters
    ----------
    names : dict
        Rows by name, ascending.
    block_of : callable
        The block of a row.
    """

    def __init__(self, names: dict[Name, list[int]], block_of: Callable[[int], int]) -> None:
        self._names = names
        self._block_of = block_of
        self.rank: dict[int, int] = {}
        """Program order of rows, where it is not that of the rows themselves."""
        self._ordered: dict[str, tuple[list[int], list[int]]] = {}
        self._in_block: dict[tuple[str, int], tuple[list[int], list[int]]] = {}

    def order(self, name: str) -> tuple[list[int], list[int]]:
        """Return the ranks and rows of a name that repeats, in program order."""
        if name not in self._ordered:
            rows = sorted(self._names[name], key=lambda row: self.rank.get(row, row))
            ranks = [self.rank.get(row, row) for row in rows]
            self._ordered[name] = ranks, rows
            for rank, row in zip(ranks, rows, strict=True):
                in_block = self._in_block.setdefault((name, self._block_of(row)), ([], []))
                in_block[0].append(rank)
                in_block[1].append(row)
        return self._ordered[name]

    def find(self, name: str, row: int) -> int:
        """Return the row that a name in the instruction `row` means, or -1 (rule R3).

        The nearest earlier one of the same block, else the nearest earlier one, else the first later one, else itself.
        """
        rows = self._names.get(name)
        if rows is None:
            return -1
        if len(rows) == 1:
            return rows[0]
        ranks, ordered = self.order(name)
        here = self.rank.get(row, row)
        near = self._in_block.get((name, self._block_of(row)))
        if near is not None and (place := bisect_left(near[0], here)):
            return near[1][place - 1]
        place = bisect_left(ranks, here)
        if place:
            return ordered[place - 1]
        later = ordered[0] != row
        return ordered[0] if later else ordered[1]

    def first(self, name: str) -> int:
        """Return the first row of a name in program order, or -1."""
        if name not in self._names:
            return -1
        return self.order(name)[1][0]


@dataclass(slots=True)
class BlockList:
    """A list of blocks: names are looked up in it, then in the lists around it (rule R4)."""

    names: dict[Name, int]
    around: "BlockList | None"
    path: "tuple[BlockList, int, int] | str"
    """The list, block and instruction that it stands in, or its JSON path."""

    def find(self, name: str) -> int:
        """Return the row of the first block of that name, or -1."""
        at: BlockList | None = self
        while at is not None:
            if name in at.names:
                return at.names[name]
            at = at.around
        return -1

    def json_path(self, block: int) -> str:
        """Return the JSON path of a block of the list, from the document's root."""
        tail = f"[{block}]"
        at: BlockList = self
        while not isinstance(at.path, str):
            at, owner, instruction = at.path
            tail = f"[{owner}].instructions[{instruction}].blocks{tail}"
        return at.path + tail


Axes = tuple["Axes", str, int] | None
"""The axes in sight: those around, then a name and its row."""


def find_axis(axes: Axes, name: str) -> int:
    """Return the `loops` row of the nearest axis of that name, or -1."""
    while axes is not None:
        axes, axis, row = axes
        if axis == name:
            return row
    return -1
