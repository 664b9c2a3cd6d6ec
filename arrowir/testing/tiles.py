"""Tiles of a generated kernel: where they lie, which are still alive, how an operand addresses them."""

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from arrowir.testing import bir
from arrowir.testing.bir import Json, Pattern
from arrowir.testing.recipes import Formal, Recipe

ALIGNMENT = 64
Item = TypeVar("Item")


class Choice:
    """A seeded source of choices.

    It draws on `random()` alone, whose sequence Python promises to keep, so a seed means the same everywhere.

    Parameters
    ----------
    seed : str
        What names the sequence.

    Examples
    --------
    >>> Choice("a").below(1)
    0
    """

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed).random

    def below(self, bound: int) -> int:
        """Return an integer of 0 up to but not including `bound`."""
        return int(self.random() * bound)

    def chance(self, probability: float) -> bool:
        """Return true with the given probability."""
        return self.random() < probability

    def of(self, items: Sequence[Item]) -> Item:
        """Return one of the items."""
        return items[self.below(len(items))]


@dataclass(slots=True, eq=False)
class Tile:
    """A location that the body works on.

    Parameters
    ----------
    name : str
        The location's name.
    memory : str
        `DRAM`, `SB` or `PSUM`.
    partitions, elements : int
        The part of it that is written, in elements of `dtype`.
    dtype : str
        How it is accessed.
    pitch_bytes : int
        Bytes per partition of the location.
    addr, bank : int
        Its placement.
    set_name : str
        The set that holds it.

    Examples
    --------
    >>> Tile("x", "SB", 128, 4, "float32", 16).access(full_keys=False)["ap"]
    [[4, 128], [1, 4]]
    """

    name: str
    memory: str
    partitions: int
    elements: int
    dtype: str
    pitch_bytes: int
    addr: int = 0
    bank: int = 0
    set_name: str = ""
    writer: int = -1
    # the last reader on each engine; engines run in order, so it stands for the earlier ones
    readers: dict[str, int] = field(default_factory=dict[str, int])
    replaces: list["Tile"] = field(default_factory=list["Tile"])

    @property
    def pitch(self) -> int:
        """Elements from one partition (or row) to the next."""
        return self.pitch_bytes // bir.ITEM_BYTES[self.dtype]

    def access(
        self,
        partitions: int | None = None,
        elements: int | None = None,
        *,
        offset: int = 0,
        folds: Sequence[int] = (),
        full_keys: bool = True,
        **more: Json,
    ) -> Json:
        """Return an operand that addresses the first partitions and elements.

        Parameters
        ----------
        partitions, elements : int, optional
            How much; all that is written by default.
        offset : int
            The first element.
        folds : sequence of int
            Into how many equal parts to fold the elements, again and again; each gives one more dimension.
        full_keys : bool
            Also write the access shape.
        **more
            Further members.

        Returns
        -------
        dict
            The operand.
        """
        rows = self.partitions if partitions is None else partitions
        columns = self.elements if elements is None else elements
        free: Pattern = []
        for parts in folds:
            columns //= parts
            free.append([columns, parts])
        free.append([1, columns])
        return bir.access(
            self.name,
            [[self.pitch, rows], *free],
            self.dtype,
            offset=offset,
            set_name=self.set_name,
            full_keys=full_keys,
            **more,
        )


class TilePool:
    """The tiles of one body, and where they are placed.

    Tiles rotate through the state buffer; a few stay at its top for the whole kernel. The first of these ends
    at the high-water mark, so that the mark is reached exactly.

    Parameters
    ----------
    recipe : Recipe
        What the kernel is made of.
    choice : Choice
        The source of choices.
    sb_bytes : int
        The high-water mark, per partition.
    planned_sb, planned_psum, planned_transposed : int
        How many writes to tiles the body makes; they set when a new tile is due.
    borrowed : sequence of str
        Names of locations of the caller.
    borrow : float
        The share of the tiles that take such a name.

    Examples
    --------
    >>> from arrowir.testing.recipes import RECIPES
    >>> pool = TilePool(RECIPES["rope"], Choice("a"), 61440, 11, 0, 0)
    >>> pool.new("q_tile", 128, 64, "bfloat16", stay=True).addr
    61312
    """

    def __init__(
        self,
        recipe: Recipe,
        choice: Choice,
        sb_bytes: int,
        planned_sb: int,
        planned_psum: int,
        planned_transposed: int,
        *,
        borrowed: Sequence[str] = (),
        borrow: float = 0.0,
    ) -> None:
        self.choice = choice
        self.sb_bytes = sb_bytes
        self.banks = min(recipe.psum_banks, recipe.psum_tiles)
        self.tiles: list[Tile] = []
        self.live: deque[Tile] = deque()
        self.staying: list[Tile] = []
        self.in_bank: dict[int, Tile] = {}
        self.unread: deque[Tile] = deque()
        self._borrowed = deque(borrowed)
        self._borrow = borrow
        self._ring_end = sb_bytes * 6 // 10 // ALIGNMENT * ALIGNMENT
        self._cursor = 0
        self._top = sb_bytes
        self._may_stay = max(recipe.loaded_inputs, recipe.sb_tiles * 3 // 100, 1)
        # transposes write another type, so they keep to a bank of their own
        self._own_bank = bool(planned_transposed) and self.banks > 1
        share = round(recipe.psum_tiles * planned_transposed / planned_psum) if planned_psum else 0
        transposed = min(recipe.psum_tiles, max(1, share)) if planned_transposed else 0
        self._plan = {
            "SB": _Pace(recipe.sb_tiles, planned_sb),
            "matmul": _Pace(recipe.psum_tiles - transposed, planned_psum - planned_transposed),
            "transpose": _Pace(transposed, planned_transposed),
        }
        self.current: dict[str, Tile] = {}
        self._psum_made = 0

    def due(self, kind: str) -> bool:
        """Count one write (`SB`, `matmul`, `transpose`) and tell whether it should go to a new tile."""
        return self._plan[kind].step()

    def name(self, base: str) -> str:
        """Return a name for the next tile."""
        number = len(self.tiles)
        if number and self._borrowed and self.choice.chance(self._borrow):
            return self._borrowed.popleft()
        return f"{base}_i{number}"

    def new(self, base: str, partitions: int, elements: int, dtype: str, *, stay: bool = False) -> Tile:
        """Make a tile in the state buffer and return it."""
        size = elements * bir.ITEM_BYTES[dtype]
        room = -(-size // ALIGNMENT) * ALIGNMENT
        stay = stay and self._may_stay > 0 and self._top - room >= self._ring_end
        replaced: list[Tile] = []
        if stay:
            self._may_stay -= 1
            self._top -= room
            addr = self._top + (room - size if self._top + room == self.sb_bytes else 0)
        else:
            if self._cursor + room > self._ring_end:
                self._cursor = 0
            addr = self._cursor
            self._cursor += room
            while self.live and _overlap(self.live[0], addr, room):
                replaced.append(self.live.popleft())
        name = self.name(base)
        tile = Tile(name, "SB", partitions, elements, dtype, size, addr=addr, set_name=f"{name}_set")
        tile.replaces = replaced
        self.tiles.append(tile)
        (self.staying if stay else self.live).append(tile)
        return tile

    def accumulator(self, kind: str, partitions: int, elements: int, dtype: str) -> tuple[Tile, bool]:
        """Return the PSUM tile to write to, and whether it is a new one."""
        tile = self.current.get(kind)
        if not self.due(kind) and tile is not None:
            return tile, False
        name = self.name("psum" if kind == "matmul" else "psum_t")
        if self._own_bank and kind == "transpose":
            bank = self.banks - 1
        else:
            bank = self._psum_made % max(1, self.banks - self._own_bank)
            self._psum_made += 1
        width = bir.PSUM_BANK_BYTES
        tile = Tile(name, "PSUM", partitions, elements, dtype, width, bank=bank, set_name=f"{name}_set")
        self.tiles.append(tile)
        for other, lost in list(self.current.items()):
            if other != kind and lost.bank == bank:
                del self.current[other]
        self.current[kind] = tile
        tile.replaces = [self.in_bank[bank]] if bank in self.in_bank else []
        self.in_bank[bank] = tile
        self.unread.append(tile)
        return tile, True

    def spare_accumulator(self) -> None:
        """Make a PSUM tile that nothing writes."""
        name = self.name("psum_spare")
        bank = len(self.tiles) % max(1, self.banks)
        width = bir.PSUM_BANK_BYTES
        self.tiles.append(Tile(name, "PSUM", 128, width // 4, "float32", width, bank=bank, set_name=f"{name}_set"))

    def finished(self) -> Tile | None:
        """Return a PSUM tile that nothing has read yet, if there is one alive."""
        while self.unread:
            tile = self.unread.popleft()
            if self.in_bank.get(tile.bank) is tile:
                return tile
        return None

    def pick(self, suits: Callable[[Tile], bool] = lambda _: True, *, partitions: int = 128) -> Tile:
        """Return a written tile in the state buffer, most likely a recent one of at least so many partitions."""
        if self.choice.chance(0.94):
            try:
                return self._pick(lambda tile: tile.partitions >= partitions and suits(tile))
            except LookupError:
                pass
        return self._pick(suits)

    def _pick(self, suits: Callable[[Tile], bool]) -> Tile:
        recent = list(self.live)[-12:]
        groups: list[Iterable[Tile]] = [recent, self.staying, self.live]
        if self.choice.chance(0.15):
            groups.reverse()
        for group in groups:
            found = [tile for tile in group if suits(tile)]
            if found:
                return self.choice.of(found)
        raise LookupError("no tile in the state buffer suits the operation")


class _Pace:
    """Spreads `total` new tiles evenly over `writes` writes."""

    def __init__(self, total: int, writes: int) -> None:
        self.total = min(total, writes)
        self.writes = writes
        self.made = self.done = 0

    def step(self) -> bool:
        due = self.done * self.total >= self.made * self.writes and self.made < self.total
        self.done += 1
        self.made += due
        return due


def _overlap(tile: Tile, addr: int, size: int) -> bool:
    return tile.addr < addr + size and addr < tile.addr + tile.pitch_bytes


def parameter_tile(formal: Formal) -> Tile:
    """Return the tile that stands for a parameter.

    Parameters
    ----------
    formal : Formal
        The parameter.

    Returns
    -------
    Tile
        The tile.

    Examples
    --------
    >>> parameter_tile(Formal("x", (8, 4), "float32")).pitch_bytes
    16
    """
    rows, columns = formal.shape
    width = columns * bir.ITEM_BYTES[formal.dtype]
    return Tile(formal.name, formal.memory, rows, columns, formal.dtype, width, set_name=f"{formal.name}_set")
