"""The loops of a batch: trip counts, what they hold, and what would come of them (rules U1, U2, O6).

Everything is said of *blocks*. A loop that is unrolled has one block, its body; what it does to that it does to all
that stands in it. A loop that cannot be unrolled is *lowered*: it stays a loop, of branches and registers. Its blocks
have one instance each, as if it ran once. Loops around a lowered one are lowered too, those in it need not be.
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
from arrowir.passes.unrolling.lowered_shapes import LoweredShapes
from arrowir.passes.unrolling.runtime_loops import LARGEST_COUNT, SMALLEST_COUNT, RuntimeLoops, axis_rows
from arrowir.schema import NULL_INT
from arrowir.store import Array
from arrowir_kernels import mark_rows

STRUCTURED = (vocab.OP_LOOP, vocab.OP_DYNAMIC_FOR_LOOP, vocab.OP_DO_WHILE)
"""Opcodes whose `blocks` are nested code."""

JUMPS = (vocab.OP_UNCONDITIONAL_BRANCH, vocab.OP_COMPARE_AND_BRANCH)
"""Opcodes that go to the blocks which they name."""

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
    split
        Mask of the blocks that will be several before loops are unrolled, since a call-site in them is inlined.
    """

    ir: IR
    functions: Array
    shard_id: int
    split: Array | None = None
    rows: Array = field(init=False)
    """The instructions that are loops, of whatever kind."""
    lower: Array = field(init=False)
    stride: Array = field(init=False)
    trips: Array = field(init=False)
    """int64 for each loop; Python integers where one does not fit. 1 for loops that are lowered."""
    written: tuple[Array, Array, Array] = field(init=False)
    """Lower and upper bound and stride as they are in the file; of run time ones 0."""
    lowered: Array = field(init=False)
    """Mask of the loops that become branches and registers."""
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
        rows = instructions.holding("opcode", STRUCTURED)
        self.rows = rows[self.looked_at[self.block[rows]]]
        self.number = np.full(len(self.block), -1, np.int64)
        """For each instruction its loop number, -1 where it is none."""
        self.number[self.rows] = np.arange(len(self.rows))
        self.constant = self.opcode[self.rows] == vocab.OP_LOOP
        """Mask of the loops that have a trip count."""
        self.runtime = RuntimeLoops(self.ir, self.rows[~self.constant], self.shard_id)
        self.lower, upper, self.stride, self.bound_faults = self._bounds()
        self.trips = _trip_counts(self.lower, upper, self.stride)
        self.trips[~self.constant] = 1
        self.lowered = self._find_lowered()
        self.written = self.lower, upper, self.stride
        if self.lowered.any():
            self.lower, self.stride = np.where(self.lowered, 0, self.lower), np.where(self.lowered, 1, self.stride)
            self.trips = np.where(self.lowered, 1, self.trips)

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

    def _find_lowered(self) -> Array:
        """Return a mask of the loops that become branches: those of run time, with several blocks, with a `Break` or a
        branch to a block of their own, and the loops around them (rule U2).
        """  # noqa: D205
        found = ~self.constant
        if not len(self.rows):
            return found
        of_loop = self.owning_loop
        bodies = of_loop[of_loop >= 0]
        found |= np.bincount(bodies, minlength=len(found)) > 1
        breaks = self.block[self.opcode == vocab.OP_BREAK]
        branches = self.ir.tables["branches"]
        at = [breaks, np.zeros(0, np.int64) if self.split is None else np.flatnonzero(self.split)]
        if len(branches):
            owner, target = branches["instruction_id"], branches["block_id"]
            jumps = (target >= 0) & (np.append(of_loop, -1)[target] >= 0)
            jumps[jumps] = np.isin(self.opcode[owner[jumps]], JUMPS) & self.seen[self.block[owner[jumps]]]
            at.append(target[jumps])
        marked = np.concatenate(at)
        if len(marked):
            marked = marked[self.seen[marked]]
            found[of_loop[marked[of_loop[marked] >= 0]]] = True
        if not found.any():
            return found
        found &= self.seen[self.block[self.rows]] & (self.trips > 0).astype(bool)
        found[list(self.bound_faults)] = False
        for level in reversed(self.levels[2:]):
            inner = level[(of_loop[level] >= 0) & found[of_loop[level]]]
            around = of_loop[self.parent[inner]]
            found[around[around >= 0]] = True
        return found

    @cached_property
    def shapes(self) -> LoweredShapes:
        """What the lowered loops are made of."""
        return LoweredShapes(self)

    # -- bounds ----------------------------------------------------------------------------------------------

    def _bounds(self) -> tuple[Array, Array, Array, dict[int, tuple[str, str]]]:
        """Return lower and upper bound and stride of each loop; an absent one is 0 (rule U1)."""
        axes = self.ir.tables["loops"]
        row = axis_rows(self.ir, self.rows)
        found: list[Array] = []
        for key in ("lb", "ub", "stride"):
            values = take(axes[key], row)
            found.append(np.where((row < 0) | (values == NULL_INT), 0, values))
        faults: dict[int, tuple[str, str]] = {}
        raw = take(axes["extra"], row) if axes.has("extra") else np.full(len(row), -1, np.int32)
        raw = np.where((row < 0) | ~self.constant, -1, raw)
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
        of_run_time = np.flatnonzero(~self.constant)
        for values, known in zip(found, self.runtime.bounds, strict=True):
            values[of_run_time] = known
        faults.update({int(of_run_time[place]): problem for place, problem in self.runtime.faults.items()})
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
        """Look at what lowered loops count by, and at other instructions with blocks in loops."""
        counted = np.flatnonzero(self.lowered & self.constant & seen[self.rows])
        lower, upper, stride = (values[counted] for values in self.written)
        for k in np.flatnonzero(_leaves_registers(lower, upper, stride)).tolist():
            message = (
                f"the loop counts from {int(lower[k])} to {int(upper[k])} by {int(stride[k])}, which a register of 32 "
                "bits cannot hold; its body has control flow, so that it is counted at run time"
            )
            self._fault(faults, int(self.rows[counted[k]]), 3, "integer_overflow", message)
        # Blocks of an instruction that is no loop cannot be repeated with it yet.
        first = np.flatnonzero(self.opaque & ~take(self.opaque, self.parent))
        for block in first[self.seen[self.parent[first]] & (self.owning_loop[self.parent[first]] >= 0)].tolist():
            message = "an instruction in a loop has blocks of its own and is no loop; such a loop cannot be unrolled"
            self._fault(faults, int(self.owner[block]), 1, "not_supported", message)

    # -- size ------------------------------------------------------------------------------------------------

    @cached_property
    def block_rows(self) -> Array:
        """The number of instructions in each block, as they stand."""
        return np.bincount(self.block, minlength=len(self.owner))

    def rows_now(self) -> Array:
        """Return how many instructions each function has."""
        function = self.ir.tables["blocks"]["function_id"]
        total = np.zeros(len(self.functions) + 1, np.int64)
        np.add.at(total, function, self.block_rows)  # the last is that of queues
        return total[:-1]

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
        sizes = self.block_rows - np.bincount(self.block[self.rows[known]], minlength=len(self.owner))
        sizes = sizes.astype(dtype)
        if self.lowered.any():
            lowered = np.flatnonzero(self.lowered)
            np.add.at(sizes, self.block[self.rows[lowered]], self.shapes.added.astype(dtype))
        for level in reversed(self.levels[1:]):
            loop = self.owning_loop[level]
            times = np.ones(len(level), dtype)
            counted = (loop >= 0) & known[loop] if len(known) else np.zeros(len(level), bool)
            times[counted] = self.trips[loop[counted]].astype(dtype)
            np.add.at(sizes, self.parent[level], times * sizes[level])
        return sizes


def _leaves_registers(lower: Array, upper: Array, stride: Array) -> Array:
    """Tell where a count does not stay in 32 bits, the step behind the last value included."""
    wide = np.zeros(len(lower), bool)
    for values in (lower, upper, stride):
        wide |= (values < SMALLEST_COUNT) | (values > LARGEST_COUNT)
    some = ~wide
    trips = _trip_counts(lower[some], upper[some], stride[some])
    behind = lower[some] + trips * stride[some]
    wide[some] = (behind < SMALLEST_COUNT) | (behind > LARGEST_COUNT)
    return wide


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
    return _facts(ids, size, fact, absent)[ids]


def rows_of(ids: Array, size: int, fact: Callable[[int], int]) -> tuple[Array, Array]:
    """Return the rows of whose id something is true, asked as by `of_each`, and the fact about each."""
    facts = _facts(ids, size, fact, 0)
    rows = np.flatnonzero(facts[ids]) if facts.any() else np.empty(0, np.int64)
    return rows, facts[ids[rows]]


def _facts(ids: Array, size: int, fact: Callable[[int], int], absent: int) -> Array:
    """Return the fact for each id that is there, and as the last item for what is absent."""
    present = np.zeros(size, bool)
    mark_rows(ids, present)
    facts = np.full(size + 1, absent, np.int64)
    for i in np.flatnonzero(present).tolist():
        facts[i] = fact(i)
    return facts
