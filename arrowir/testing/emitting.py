"""How a generated body is written: names, edges, headers, and the allocations that it needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.tiles import Choice, Tile


@dataclass(frozen=True, slots=True)
class Style:
    """How a body is written, apart from what it does.

    Parameters
    ----------
    edges : bool
        Write dependencies.
    debug : bool
        Write source positions.
    full_keys : bool
        Write members that have their default value, as the compiler does.
    duplicate_names : float
        The share of instructions that take the name of an earlier one; 1 gives all one name.
    borrowed : tuple of str
        Names of the caller's locations.
    borrow : float
        The share of tiles that take such a name.
    reuse_edges : bool
        Write the dependencies that come from tiles that lie where others lay.

    Examples
    --------
    >>> Style().edges
    True
    """

    edges: bool = True
    debug: bool = False
    full_keys: bool = True
    duplicate_names: float = 0.0
    borrowed: tuple[str, ...] = ()
    borrow: float = 0.0
    reuse_edges: bool = False


@dataclass(slots=True)
class Body:
    """A generated body.

    Parameters
    ----------
    instructions : list of dict
        Its instructions.
    tiles : list of Tile
        The tiles that it makes.
    registers : list of str
        Its registers.
    sb_bytes, psum_banks : int
        What it needs of the state buffer, per partition, and of PSUM.

    Examples
    --------
    >>> Body().instructions
    []
    """

    instructions: list[Json] = field(default_factory=list[Json])
    tiles: list[Tile] = field(default_factory=list[Tile])
    registers: list[str] = field(default_factory=list[str])
    sb_bytes: int = 0
    psum_banks: int = 0


class Emitter:
    """Appends instructions, with names, edges and header.

    Parameters
    ----------
    style : Style
        How to write.
    choice : Choice
        The source of choices.
    source : str
        The file that `debug` names.
    whole_dram : bool
        Writes to DRAM are to the whole tensor and order what follows; otherwise they are to parts of it.

    Examples
    --------
    >>> emitter = Emitter(Style(), Choice("a"), "k.py")
    >>> emitter.emit("NoOp", "SP", [], [])
    >>> emitter.instructions[0]["name"]
    'I-0'
    """

    def __init__(self, style: Style, choice: Choice, source: str, *, whole_dram: bool = False) -> None:
        self.style = style
        self.choice = choice
        self.source = source
        self.whole_dram = whole_dram
        self.instructions: list[Json] = []
        self._names: list[str] = []

    def emit(
        self,
        opcode: str,
        engine: str,
        ins: Sequence[tuple[Tile, Json]],
        outs: Sequence[tuple[Tile, Json]],
        keys: Json | None = None,
        *,
        registers_in: Sequence[Json] = (),
        registers_out: Sequence[Json] = (),
        name: str | None = None,
    ) -> None:
        """Append one instruction, named by its number unless a name is given."""
        number = len(self._names)
        name = self._name(number) if name is None else name
        # a DMA ends whenever its queue comes to it
        reader = f"{engine} {number}" if opcode == "DMACopy" else engine
        edges = self._edges(number, reader, [tile for tile, _ in ins], [tile for tile, _ in outs])
        more: dict[str, Any] = {}
        if self.style.debug:
            more["debug"] = {
                "filename": self.source,
                "lineno": 40 + 7 * (number % 90),
                "op_name": f"{self.source.removesuffix('.py')}.{opcode.lower()}",
            }
        self._names.append(name)
        self.instructions.append(
            bir.instruction(
                name,
                opcode,
                engine,
                [operand for _, operand in ins] + list(registers_in),
                [operand for _, operand in outs] + list(registers_out),
                edges=edges,
                full_keys=self.style.full_keys,
                keys=keys,
                **more,
            )
        )

    def _name(self, number: int) -> str:
        share = self.style.duplicate_names
        if share >= 1:
            return "noop_test"
        if number and share and self.choice.chance(share):
            return self.choice.of(self._names)
        return f"I-{number}"

    def _edges(self, number: int, reader: str, read: list[Tile], written: list[Tile]) -> list[list[str]]:
        found: dict[int, str] = {}
        for tile in read:
            if tile.writer >= 0:
                found[tile.writer] = "Flow"
            tile.readers[reader] = number
        for tile in written:
            if tile.memory == "DRAM" and not self.whole_dram:
                continue
            if tile.writer == number:
                continue
            before = [tile, *(tile.replaces if self.style.reuse_edges and tile.writer < 0 else [])]
            for earlier in before:
                if earlier.writer >= 0:
                    found.setdefault(earlier.writer, "Output")
                for other in earlier.readers.values():
                    if other != number:
                        found.setdefault(other, "Anti")
            tile.writer = number
            tile.readers = {}
            tile.replaces = []
        if not self.style.edges:
            return []
        return [[self._names[index], kind] for index, kind in found.items()]


def tile_allocations(body: Body, *, allocated: bool, full_keys: bool) -> list[Json]:
    """Return the sets and registers that a body needs.

    Parameters
    ----------
    body : Body
        The body.
    allocated : bool
        Whether the tiles have their final addresses.
    full_keys : bool
        Also write members that have their default value.

    Returns
    -------
    list of dict
        The sets, in the order in which the tiles were made, then the registers.

    Examples
    --------
    >>> tile_allocations(Body(registers=["r0"]), allocated=False, full_keys=True)
    [{'Skind': 'register', 'name': 'r0'}]
    """
    groups: dict[str, list[Tile]] = {}
    for tile in body.tiles:
        groups.setdefault(tile.set_name, []).append(tile)
    sets: list[Json] = []
    for name, tiles in groups.items():
        first = tiles[0]
        rows = 128 if first.memory == "PSUM" else first.partitions
        places = [
            bir.location(
                tile.name,
                tile.memory,
                [rows, tile.pitch_bytes],
                addr=tile.addr if allocated else 0,
                bank=tile.bank if allocated else 0,
                allocated=allocated,
                tensor_id=number,
                full_keys=full_keys,
            )
            for number, tile in enumerate(tiles)
        ]
        columns = first.pitch_bytes // bir.ITEM_BYTES[first.dtype]
        sets.append(
            bir.memory_set(
                name,
                places,
                dtype=first.dtype,
                shape=[rows, columns],
                tensor_class=bir.TENSOR_CLASS[first.memory],
                full_keys=full_keys,
            )
        )
    return [*sets, *(bir.register(name) for name in body.registers)]
