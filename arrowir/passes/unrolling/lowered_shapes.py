"""What lowered loops are made of, and how many instructions that is (rules U2, O6).

A lowered loop of a block `B` becomes a branch at the end of what stands before it in `B`, and the blocks
`LoopEntry` (registers are set), `LoopBody` (the loop's blocks; at the end what decides about the next iteration),
`LoopExit` and `Resume`, which has what stood behind the loop.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.passes.unrolling.runtime_loops import Form, constant_form
from arrowir.runs import expand
from arrowir.store import Array, starts

if TYPE_CHECKING:
    from arrowir.passes.unrolling.loops import Loops

NO_LATCH, AT_END, APART = range(3)
"""Where the instructions behind an iteration stand: nowhere, in the last block of the body, in a block of their own."""


@dataclass(frozen=True)
class _Tails:
    """What comes of rows and blocks, lowered loops aside."""

    leaves: Array
    """Mask of the rows of which some terminator comes."""
    last: Array
    """For each block the last row of which something comes, -1 where nothing does."""
    ended: Array
    """Mask of the rows of which the last instruction is a terminator."""


class LoweredShapes:
    """The lowered loops of a batch; arrays have one item for each, in the order of their instructions.

    Parameters
    ----------
    loops
        All loops.
    """

    def __init__(self, loops: "Loops") -> None:
        self.loops = loops
        self.number = np.flatnonzero(loops.lowered)
        """Their loop numbers."""
        self.row = loops.rows[self.number]
        """Their instructions."""
        self.forms: list[Form] = list(loops.runtime.forms)
        self.form = self._form()
        """For each the number of its form."""
        self.numbers = self._numbers()
        """For each the numbers that its form leaves open."""
        bodies = np.flatnonzero(np.append(loops.lowered, False)[loops.owning_loop])
        self.bodies = bodies
        """Their blocks, each loop's in order."""
        place = np.full(len(loops.rows), -1, np.int64)
        place[self.number] = np.arange(len(self.number))
        self.place = place
        """For each loop number the place among the lowered ones, -1 for others."""
        self.of_body = place[loops.owning_loop[bodies]]
        """For each of these blocks the lowered loop."""
        self.blocks = np.bincount(self.of_body, minlength=len(self.number))
        """Number of blocks of each."""
        self.last_body = np.full(len(self.number), -1, np.int64)
        self.last_body[self.of_body] = bodies
        self.markers = 1 + np.maximum(self.blocks, 1)
        """Rows that stand for each while it is flat: one before it, one behind each of its blocks."""
        self._ends()
        entry = np.array([len(form.entry) for form in self.forms], np.int64)[self.form]
        latch = np.array([len(form.latch) for form in self.forms], np.int64)[self.form]
        self.added = ~self.left + entry + np.where(self.latch == NO_LATCH, 0, latch) + 1 + self.empty
        """Instructions that each gets."""

    def _form(self) -> Array:
        loops = self.loops
        found = np.zeros(len(self.number), np.int64)
        constant = loops.constant[self.number]
        of_run_time = np.cumsum(~loops.constant) - 1
        found[~constant] = loops.runtime.form[of_run_time[self.number[~constant]]]
        stride = loops.written[2][self.number]
        for up in (True, False):
            mine = constant & ((stride > 0) == up)
            if mine.any():
                found[mine] = len(self.forms)
                self.forms.append(constant_form(up=up))
        return found

    def _numbers(self) -> Array:
        loops = self.loops
        given = loops.runtime.numbers
        found = np.zeros((len(self.number), given.shape[1]), np.int64)
        of_run_time = np.cumsum(~loops.constant) - 1
        mine = ~loops.constant[self.number]
        found[mine] = given[of_run_time[self.number[mine]]]
        return found

    def _ends(self) -> None:
        """Find where branches are needed, and what would be left empty."""
        loops, block = self.loops, self.loops.block
        tails = self._tails()
        before = starts(tails.leaves)
        first = np.searchsorted(block, np.arange(len(loops.owner) + 1))
        of_block = block[self.row]
        begin = first[of_block]
        behind = np.append(-1, self.row[:-1]) + 1  # the row behind the lowered loop before
        begin = np.maximum(begin, behind)
        self.left = before[self.row] > before[begin]
        """Mask of those before which a terminator stands: nothing more is put there."""
        last = self.last_body
        end = first[last + 1]
        begin = first[last]
        lowered_before = np.searchsorted(self.row, end) - 1
        inner = np.append(self.row, -1)[lowered_before]
        begin = np.maximum(begin, np.where(lowered_before >= 0, inner, -1) + 1)
        tail = np.where(last >= 0, tails.last[last], -1)
        ended = (tail >= 0) & np.append(tails.ended, False)[tail]
        crossed = (last >= 0) & (before[end] > before[np.minimum(begin, end)])
        self.latch = np.where(ended, NO_LATCH, np.where(crossed, APART, AT_END))
        """Where the instructions behind an iteration stand."""
        closed = np.zeros(len(loops.owner) + 1, bool)
        closed[last[self.latch == AT_END]] = True
        closed[-1] = False
        self.empty = (tails.last[of_block] == self.row) & ~closed[of_block]
        """Mask of those behind which nothing stands."""

    def _tails(self) -> _Tails:
        loops = self.loops
        block, rows = loops.block, len(loops.block)
        ended = np.isin(loops.opcode, vocab.TERMINATORS)
        leaves, comes = ended.copy(), np.ones(rows, bool)
        for values in (ended, leaves):
            values[loops.rows] = False
        comes[loops.rows] = loops.lowered
        first = np.searchsorted(block, np.arange(len(loops.owner) + 1))
        last = np.full(len(loops.owner), -1, np.int64)
        for level in reversed(loops.levels):
            count = first[level + 1] - first[level]
            inside = expand(first[level], count)
            of = np.repeat(level, count)
            some = comes[inside]
            last[of[some]] = inside[some]  # rows rise, so that the last one stays
            crossed = np.zeros(len(loops.owner), bool)
            crossed[of[leaves[inside]]] = True
            loop = loops.owning_loop[level]
            flat = level[(loop >= 0) & ~np.append(loops.lowered, True)[loop]]
            loop = loops.owning_loop[flat]
            runs = (loops.trips[loop] > 0).astype(bool) & (last[flat] >= 0)
            flat, row = flat[runs], loops.rows[loop[runs]]
            comes[row], leaves[row], ended[row] = True, crossed[flat], ended[last[flat]]
        return _Tails(leaves, last, ended)
