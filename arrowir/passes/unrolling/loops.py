"""The loops of a batch: trip counts, what they hold, and what would come of them (rules U1, U2, O6).

Everything is said of *blocks*. A loop has one block, its body; what it does to that it does to all that stands in it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from arrowir import expressions, extras
from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.ir import IR
from arrowir.passes.unrolling.faults import Fault, Faults
from arrowir.schema import NULL_INT
from arrowir.store import Array
from arrowir_kernels import mark_rows

STRUCTURED = (vocab.OP_LOOP, vocab.OP_DYNAMIC_FOR_LOOP, vocab.OP_DO_WHILE)
"""Opcodes whose `blocks` are nested code."""

_EXACT_FLOATS = 2**53
_SAFE = 2**61


@dataclass
class Loops:
    """The loops of some functions, before anything is unrolled.

    Parameters
    ----------
    ir
        The batch.
    functions
        Mask of the functions that are looked at; all else stays as it is.
    shard_id
        The value of the shard, in bounds.
    """

    ir: IR
    functions: Array
    shard_id: int
    rows: Array = field(init=False)
    """The `Loop` instructions."""
    lower: Array = field(init=False)
    stride: Array = field(init=False)
    trips: Array = field(init=False)
    """int64 for each loop; Python integers where one does not fit."""
    bound_faults: dict[int, tuple[str, str]] = field(init=False)
    """By loop number what is wrong with its bounds: code and message."""

    def __post_init__(self) -> None:
        instructions, blocks = self.ir.tables["instructions"], self.ir.tables["blocks"]
        self.block = instructions["block_id"]
        self.opcode = instructions["opcode"]
        self.owner = blocks["instruction_id"]
        self.parent = take(self.block, self.owner)
        """For each block the one that holds the instruction which owns it."""
        function = blocks["function_id"]
        wanted = np.zeros(len(function), bool)
        wanted[function >= 0] = self.functions[function[function >= 0]]
        self.looked_at = wanted & ~self.opaque
        """Blocks whose instructions are looked at."""
        in_scope = self.looked_at[self.block] if len(self.block) else np.zeros(0, bool)
        self.rows = np.flatnonzero(in_scope & (self.opcode == vocab.OP_LOOP))
        self.number = np.full(len(self.block), -1, np.int64)
        """For each instruction its loop number, -1 where it is none."""
        self.number[self.rows] = np.arange(len(self.rows))
        self.lower, upper, self.stride, self.bound_faults = self._bounds()
        self.trips = _trip_counts(self.lower, upper, self.stride)

    # -- structure -------------------------------------------------------------------------------------------

    @cached_property
    def levels(self) -> list[Array]:
        """Blocks by how deep they are nested, outermost first."""
        found = [np.flatnonzero(self.owner < 0)]
        rest = np.flatnonzero(self.owner >= 0)
        placed = self.owner < 0
        while len(rest):
            ready = placed[self.parent[rest]]
            level = rest[ready]
            found.append(level)
            rest = rest[~ready]
            placed[level] = True
        return found

    @cached_property
    def opaque(self) -> Array:
        """Mask of the blocks that stand in an instruction that is no loop, at any depth: they are data of it."""
        inside = np.zeros(len(self.owner), bool)
        for level in self.levels[1:]:
            inside[level] = inside[self.parent[level]] | ~np.isin(self.opcode[self.owner[level]], STRUCTURED)
        return inside

    @cached_property
    def owning_loop(self) -> Array:
        """For each block the number of the loop that it is the body of, -1 for others."""
        return take(self.number, self.owner)

    @cached_property
    def seen(self) -> Array:
        """Mask of the blocks that are looked at: not those inside a loop without trips."""
        found = self.looked_at.copy()
        for level in self.levels[1:]:
            loop = self.owning_loop[level]
            runs = np.ones(len(level), bool)
            runs[loop >= 0] = (self.trips[loop[loop >= 0]] > 0).astype(bool)
            found[level] &= found[self.parent[level]] & runs
        return found

    # -- bounds ----------------------------------------------------------------------------------------------

    def _bounds(self) -> tuple[Array, Array, Array, dict[int, tuple[str, str]]]:
        """Return lower and upper bound and stride of each loop; an absent one is 0 (rule U1)."""
        axes = self.ir.tables["loops"]
        row = np.full(len(self.block), -1, np.int64)
        row[axes["instruction_id"][::-1]] = np.arange(len(axes))[::-1]  # the first, of several
        row = row[self.rows]
        found: list[Array] = []
        for key in ("lb", "ub", "stride"):
            values = take(axes[key], row)
            found.append(np.where((row < 0) | (values == NULL_INT), 0, values))
        faults: dict[int, tuple[str, str]] = {}
        raw = take(axes["extra"], row) if axes.has("extra") else np.full(len(row), -1, np.int32)
        raw = np.where(row < 0, -1, raw)
        names = self.ir.pools.names
        for text in np.unique(raw[raw >= 0]).tolist():
            mine = np.flatnonzero(raw == text)
            bounds = _written_bounds(self.ir.pools.extras[text], self.shard_id)
            for values, (value, _) in zip(found, bounds, strict=True):
                if value is not None:
                    values[mine] = value
            problem = next((problem for _, problem in bounds if problem), None)
            if problem is not None:
                faults.update(dict.fromkeys(mine.tolist(), problem))
        for loop in np.flatnonzero(found[2] == 0).tolist():
            axis = int(axes["axis"][row[loop]]) if row[loop] >= 0 else -1
            what = f"axis `{names[axis]}`" if axis >= 0 else "an axis"
            faults.setdefault(loop, ("zero_stride", f"loop {what} has stride 0 or none; give it one that is not 0"))
        return found[0], found[1], found[2], faults

    # -- checks ----------------------------------------------------------------------------------------------

    def check(self) -> Faults:
        """Look at all that the rules ask of loops and instructions before any of them is unrolled (U1, U2, U6)."""
        faults = Faults(self.ir)
        if not len(self.block):
            return faults
        seen = self.seen[self.block]
        for row in np.flatnonzero(seen & self._predicated()).tolist():
            self._fault(
                faults,
                row,
                0,
                "predicated_instruction",
                "an instruction with predicates cannot be unrolled; lower them first",
            )
        for row in np.flatnonzero(seen & np.isin(self.opcode, STRUCTURED[1:])).tolist():
            opcode = self.ir.pools.codes["opcode"][int(self.opcode[row])]
            self._fault(faults, row, 1, "dynamic_loop", f"`{opcode}` has no constant trip count; lower it first")
        for loop, (code, message) in self.bound_faults.items():
            if seen[self.rows[loop]]:
                self._fault(faults, int(self.rows[loop]), 2, code, message)
        self._check_bodies(faults, seen)
        return faults

    def _fault(self, faults: Faults, row: int, rank: int, code: str, message: str) -> None:
        place = int(self.ir.array("instructions", "position")[row])
        faults.add(Fault((place, rank), code, message, row))

    def _predicated(self) -> Array:
        """Mask of the instructions whose `predicates` are not empty."""
        texts = self.ir.pools.extras.texts
        ids = self.ir.tables["instructions"]["extra"]
        return of_each(ids, len(texts), lambda i: _is_predicated(texts[i])) > 0

    def _check_bodies(self, faults: Faults, seen: Array) -> None:
        """Rule U2: one block, no `Break` in it, no branch to it."""
        runs = np.zeros(len(self.rows), bool)
        runs[:] = seen[self.rows] & (self.trips > 0).astype(bool)
        loops_of = self.owning_loop[self.owning_loop >= 0]
        blocks = np.bincount(loops_of, minlength=len(self.rows)) if len(self.rows) else np.zeros(0, np.int64)
        breaks = np.zeros(len(self.rows), bool)
        at = np.unique(self.block[self.looked_at[self.block] & (self.opcode == vocab.OP_BREAK)])
        while len(at):
            loop = self.owning_loop[at]
            breaks[loop[loop >= 0]] = True
            at = np.unique(self.parent[at])
            at = at[at >= 0]
        branches = self.ir.tables["branches"]
        own = np.zeros(len(self.rows), bool)
        if len(branches):
            jumps = np.isin(
                self.opcode[branches["instruction_id"]], (vocab.OP_UNCONDITIONAL_BRANCH, vocab.OP_COMPARE_AND_BRANCH)
            )
            target = branches["block_id"][jumps & (branches["block_id"] >= 0)]
            loop = self.owning_loop[target]
            own[loop[loop >= 0]] = True
        advice = "; lower its control flow first"
        for loop in np.flatnonzero(runs & ((blocks > 1) | breaks | own)).tolist():
            if blocks[loop] > 1:
                message = f"the loop's body has {int(blocks[loop])} blocks, and only one can be unrolled{advice}"
            else:
                message = f"the loop's body has {'a `Break`' if breaks[loop] else 'a branch to its own block'}{advice}"
            self._fault(faults, int(self.rows[loop]), 3, "loop_with_control_flow", message)
        # Blocks of an instruction that is no loop cannot be repeated with it yet.
        first = np.flatnonzero(self.opaque & ~take(self.opaque, self.parent))
        for block in first[self.seen[self.parent[first]] & (self.owning_loop[self.parent[first]] >= 0)].tolist():
            message = "an instruction in a loop has blocks of its own and is no loop; such a loop cannot be unrolled"
            self._fault(faults, int(self.owner[block]), 1, "not_supported", message)

    # -- size ------------------------------------------------------------------------------------------------

    def function_rows(self) -> Array:
        """Return how many instructions each function would have (rule O6): Python integers where 64 bits may not do.

        A loop whose trips are not known counts as it stands.
        """
        sizes = self._sizes(np.float64)
        if sizes.max(initial=0) >= _EXACT_FLOATS:
            sizes = self._sizes(object)
        function = self.ir.tables["blocks"]["function_id"][self.levels[0]]
        total = np.zeros(len(self.functions), sizes.dtype)
        np.add.at(total, function[function >= 0], sizes[self.levels[0][function >= 0]])
        return total if total.dtype == object else total.astype(np.int64)

    def repeats(self) -> Array:
        """Return how many instances each block would have, as float64; a loop whose trips are not known counts once."""
        count = np.ones(len(self.owner))
        known = np.ones(len(self.rows), bool)
        known[list(self.bound_faults)] = False
        for level in self.levels[1:]:
            loop = self.owning_loop[level]
            count[level] = count[self.parent[level]]
            counted = (loop >= 0) & known[loop] if len(known) else np.zeros(len(level), bool)
            count[level[counted]] *= self.trips[loop[counted]].astype(np.float64)
        return count

    def _sizes(self, dtype: type) -> Array:
        """Return how many instructions would stand in each block."""
        known = np.ones(len(self.rows), bool)
        known[list(self.bound_faults)] = False
        vanishes = np.zeros(len(self.block), bool)
        vanishes[self.rows[known]] = True
        sizes = np.bincount(self.block[~vanishes], minlength=len(self.owner)).astype(dtype)
        for level in reversed(self.levels[1:]):
            loop = self.owning_loop[level]
            times = np.ones(len(level), dtype)
            counted = (loop >= 0) & known[loop] if len(known) else np.zeros(len(level), bool)
            times[counted] = self.trips[loop[counted]].astype(dtype)
            np.add.at(sizes, self.parent[level], times * sizes[level])
        return sizes


def _is_predicated(text: str) -> bool:
    return '"predicates"' in text and bool(extras.parse(text).get("predicates"))


def _trip_counts(lower: Array, upper: Array, stride: Array) -> Array:
    """Return the length of each range; 0 where the stride is 0."""
    if max((int(np.abs(a.astype(np.float64)).max(initial=0)) for a in (lower, upper, stride)), default=0) < _SAFE:
        step = np.where(stride == 0, 1, stride)
        trips = (upper - lower + step - np.sign(step)) // step
        return np.where(stride == 0, 0, np.maximum(trips, 0))
    counts = [
        max(0, (b - a + s - (1 if s > 0 else -1)) // s) if s else 0
        for a, b, s in zip(lower.tolist(), upper.tolist(), stride.tolist(), strict=True)
    ]
    return np.array(counts, object if max(counts) > expressions.LARGEST else np.int64)


def _written_bounds(text: str, shard_id: int) -> list[tuple[int | None, tuple[str, str] | None]]:
    """Return for `lb`, `ub` and `stride` the value of an expression in a loop's text, or what is wrong with it."""
    written = dict(extras.members(text))
    return [
        (None, None) if key not in written else _written_bound(key, expressions.read(written[key]), shard_id)
        for key in ("lb", "ub", "stride")
    ]


def _written_bound(key: str, bound: object, shard_id: int) -> tuple[int | None, tuple[str, str] | None]:
    older = bound.get("terms") if isinstance(bound, dict) else None
    named = isinstance(older, list) and any(isinstance(term, dict) and "AxisLabel" in term for term in older)
    if named or expressions.holds(bound, "AffIVKind"):
        return 0, ("dynamic_loop", f"bound `{key}` of the loop depends on another loop's axis; make it a constant")
    compiler = expressions.Compiler()
    folded = compiler.fold(bound)
    if isinstance(folded, expressions.Rest):
        return 0, ("dynamic_loop", f"bound `{key}` of the loop is known only at run time; make it a constant")
    nowhere = (np.zeros(1, np.int64), np.ones(1, bool))
    result = expressions.run(compiler.program(), 1, axis=lambda _: nowhere, shard_id=shard_id)
    if result.fault[0]:
        code = expressions.FAULTS[result.fault[0]]
        return 0, (code, f"bound `{key}` of the loop: {expressions.EXPLAINED[code]}")
    return int(result.whole(folded.step)[0]), None


def of_each(ids: Array, size: int, fact: Callable[[int], int], absent: int = 0) -> Array:
    """Return a fact about what each id means, asked once for each distinct id; ids are below `size`, -1 is absent."""
    present = np.zeros(size, bool)
    mark_rows(ids, present)
    facts = np.full(size + 1, absent, np.int64)
    for i in np.flatnonzero(present).tolist():
        facts[i] = fact(i)
    return facts[ids]
