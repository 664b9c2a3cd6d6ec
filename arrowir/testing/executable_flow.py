"""Drawing blocks and branches of functions that come to an end: forward branches, and back edges that are counted."""

from dataclasses import dataclass, field

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawn_bodies import Axes, Placed
from arrowir.testing.executable_bodies import INDICES, ExecutableDrawer

SWAPPED = {"LT": "GE", "GE": "LT", "EQ": "NE", "NE": "EQ", "GT": "LE", "LE": "GT"}
"""For each comparison the one that holds when it does not."""
TERMINATORS = ("CompareAndBranch", "UnconditionalBranch", "Return")


@dataclass(slots=True)
class FlowDrawer:
    """Draws the blocks of one function, or cuts the bodies of its loops into blocks.

    Parameters
    ----------
    drawer : ExecutableDrawer
        Draws what stands in the blocks.
    blocks : list of str
        The names of the function's blocks.
    kernel : bool
        Whether the function is one that is called, and may return early.
    counters : list of str
        Registers that count back edges: made here, to be set to 0 before.
    entry_counter : str, optional
        A register that counts the back edge to the first block; it has to be set before the function is entered.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> flow = FlowDrawer(ExecutableDrawer(Simplest(), 2, "b"), ["B0", "B1"])
    >>> [block["name"] for block in flow.draw()]
    ['B0', 'B1']
    """

    drawer: ExecutableDrawer
    blocks: list[str]
    kernel: bool = False
    counters: list[str] = field(default_factory=list[str])
    entry_counter: str | None = None
    at: int = 0
    """The number of the block that is being drawn."""

    def draw(self) -> list[Json]:
        """Return the blocks; all that they need is written in the first one by the caller.

        The last one ends the function; it does not stand last when the blocks come out in another order.
        """
        s = self.drawer.source
        # the last block has something, so that a function computes something
        found: list[Json] = []
        for place, name in enumerate(self.blocks):
            self.at = place
            least = int(name == self.blocks[-1])
            found.append(bir.block(name, self.drawer.rows(s.count(3) or least, 2)))
        for place, block in enumerate(found[:-1]):
            self._end(place, block["instructions"])
        if len(found) > 2 and s.chance(30):
            return self._moved(found)
        if self.kernel and s.chance(30):
            found[-1]["instructions"].append(self._row("ret", "Return"))
        return found

    def _moved(self, found: list[Json]) -> list[Json]:
        """Put the blocks behind the first one into another order; none falls through."""
        s = self.drawer.source
        for place, block in enumerate(found):
            rows: list[Json] = block["instructions"]
            if place == len(found) - 1:
                rows.append(self._row("ret", "Return"))
            elif not rows or rows[-1]["opcode"] not in TERMINATORS:
                rows.append(self._row("br", "UnconditionalBranch", target=self.blocks[place + 1]))
        rest = found[1:]
        return [found[0], *(rest.pop(s.digit(len(rest))) for _ in range(len(rest)))]

    def _end(self, place: int, rows: list[Json]) -> None:
        """Put a terminator behind a block, or none."""
        s = self.drawer.source
        later = self.blocks[place + 1 :]
        form = s.digit(10)
        if len(later) == 1 and self.entry_counter is not None:
            self._back(rows, self.entry_counter, self.blocks[0], later[0])
        elif form in (1, 2, 3, 4) and self.drawer.registers and len(later) > 1:
            yes = s.digit(len(later))
            rows.append(self.compare(later[yes], later[(yes + 1 + s.digit(len(later) - 1)) % len(later)]))
        elif form in (5, 6) and place:
            self.counters.append(s.fresh(f"n_{self.drawer.prefix}"))
            self._back(rows, self.counters[-1], s.of(self.blocks[1 : place + 1]), later[0])
        elif form == 7:
            rows.append(self._row("br", "UnconditionalBranch", target=s.of(later)))
        elif form == 8 and self.kernel and place:
            rows.append(self._row("ret", "Return"))

    def _row(self, prefix: str, opcode: str, ins: list[Json] | None = None, **keys: str) -> Json:
        name = self.drawer.source.fresh(f"{prefix}_{self.drawer.prefix}")
        return bir.instruction(name, opcode, "SP", ins or [], [], full_keys=False, keys=dict(keys))

    def _back(self, rows: list[Json], counter: str, target: str, after: str) -> None:
        """Go back to a block a few times: a register counts, and is never set back."""
        s, register = self.drawer.source, bir.register_access(counter)
        one = bir.immediate(1, "int32")
        rows.append(self.drawer.row("RegisterAlu", [register, one], [register], "SP", op="add"))
        self.drawer.placed.append(Placed(rows[-1], (), ()))
        self.drawer.joined.add(id(rows[-1]))
        word, times = s.of((("LT", 2), ("LE", 2), ("LT", 3)))
        slots = target, after
        if s.chance(40):
            word, slots = SWAPPED[word], (after, target)
        keys = {"comp_op": f"IS_{word}IMM", "on_true": slots[0], "on_false": slots[1]}
        ins = [bir.register_access(counter), bir.immediate(times, "int32")]
        rows.append(self._row("cmp", "CompareAndBranch", ins, **keys))

    def compare(self, yes: str, no: str) -> Json:
        """Return a branch that depends on a register."""
        s = self.drawer.source
        left = bir.register_access(s.of(self.drawer.registers))
        word = s.of(("LT", "GE", "EQ", "NE", "GT", "LE"))
        if s.chance(50):
            right, kind = bir.immediate(s.digit(INDICES), "int32"), "IMM"
        else:
            right, kind = bir.register_access(s.of(self.drawer.registers)), "REG"
        return self._row("cmp", "CompareAndBranch", [left, right], comp_op=f"IS_{word}{kind}", on_true=yes, on_false=no)

    def cut_loop(self, loop: Json, axes: Axes) -> None:
        """Cut the body of a loop into blocks, sometimes: with branches over some of it, and with a `Break`."""
        s = self.drawer.source
        body: list[Json] = loop["blocks"][0]["instructions"]
        if not body or not self.drawer.registers or not s.chance(70):
            return
        places = self.drawer.places(body)
        first, second = sorted((s.of(places), s.of(places)))
        pieces = [body[:first], body[first:second], body[second:]]
        if s.chance(65):
            pieces[1].append(self._row("brk", "Break"))
        pieces[0].append(self.compare(*(("block1", "block2") if s.chance(50) else ("block2", "block1"))))
        later = self.blocks[self.at + 1 :]
        if later and s.chance(70):
            # out of all loops
            ways = s.of(later), "block3"
            pieces[2].append(self.compare(*(ways if s.chance(50) else reversed(ways))))
            pieces.append([self._row("nop", "NoOp")])
        names = [f"block{number}" for number in range(len(pieces))]
        loop["blocks"] = [bir.block(name, rows) for name, rows in zip(names, pieces, strict=True)]
