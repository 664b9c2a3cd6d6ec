"""Live ranges: from where to where in program order the content of each memory location counts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arrowir import arguments, schema
from arrowir import vocabulary as vocab
from arrowir.analyse import naming
from arrowir.analyse.footprints import has_member
from arrowir.derived import take
from arrowir.runs import expand
from arrowir.store import Array, Table, starts
from arrowir_kernels import nest_spans, reached_over

if TYPE_CHECKING:
    import polars as pl

    from arrowir.ir import IR

REASONS = ("uses", "loop", "parameter", "constant", "pinned", "reserved", "aliased", "queue", "elsewhere")
"""What makes a live range: the `uses`; a `loop` that carries the content around; else it is live throughout, as a
`parameter`, a `constant`, `pinned`, `reserved`, `aliased` (or pointed at), used by a DMA `queue`, or by another
function (`elsewhere`)."""

_USES, _LOOP, _PARAMETER, _CONSTANT, _PINNED, _RESERVED, _ALIASED, _QUEUE, _ELSEWHERE = range(len(REASONS))


@dataclass(frozen=True)
class LiveRanges:
    """Live ranges as arrays over the locations of a batch, in positions of the location's function.

    All four ends are -1 where there is no use; a range is closed: it holds its first and its last instruction.
    """

    reads: Array
    writes: Array
    """Number of operands that read and write it."""
    first: Array
    last: Array
    """First and last use; -1 where there is none in its function."""
    start: Array
    end: Array
    """The live range."""
    reason: Array
    """Index in `REASONS`; -1 without a live range."""
    written_first: Array
    """Whether the first use writes and does not read."""


@dataclass(frozen=True)
class Uses:
    """Every use of a location by an instruction, in no particular order."""

    location: Array
    instruction: Array
    writes: Array


def uses(ir: "IR") -> Uses:
    """Return who uses which location: operands, and the arguments of calls; a set stands for all its locations."""
    operands, arguments_ = ir.tables["operands"], ir.tables["call_arguments"]
    by_set = operands["location_id"] < 0
    by_set &= (operands["set_id"] >= 0) & (operands["name"] < 0)
    named = operands["location_id"] >= 0
    set_rows = np.flatnonzero(by_set)
    bounds = ir.tables["locations"].bounds(ir.count("sets"))
    counts = np.diff(bounds)
    location = [operands["location_id"][named].astype(np.int64)]
    instruction = [operands["instruction_id"][named]]
    writes = [operands["role"][named] == vocab.ROLE_OUT]
    for owner, at, wrote in (
        (
            operands["set_id"][set_rows],
            operands["instruction_id"][set_rows],
            operands["role"][set_rows] == vocab.ROLE_OUT,
        ),
        *_by_set(arguments_),
    ):
        mine = counts[owner]
        location.append(expand(bounds[:-1][owner], mine))
        instruction.append(np.repeat(at, mine))
        writes.append(np.repeat(wrote, mine))
    direct = np.flatnonzero(arguments_["actual_location_id"] >= 0)
    direction = arguments_["direction"][direct]
    # The argument of a `Call` may be read and written.
    for mask, wrote in ((direction != vocab.DIRECTION_OUT, False), (direction != vocab.DIRECTION_IN, True)):
        rows = direct[mask]
        location.append(arguments_["actual_location_id"][rows].astype(np.int64))
        instruction.append(arguments_["instruction_id"][rows])
        writes.append(np.full(len(rows), wrote))
    return Uses(np.concatenate(location), np.concatenate(instruction), np.concatenate(writes))


def _by_set(table: Table) -> list[tuple[Array, Array, Array]]:
    """Return what the arguments that name sets use: set, instruction, whether it is written."""
    rows = np.flatnonzero((table["actual_location_id"] < 0) & (table["actual_set_id"] >= 0))
    direction = table["direction"][rows]
    found: list[tuple[Array, Array, Array]] = []
    for mask, wrote in ((direction != vocab.DIRECTION_OUT, False), (direction != vocab.DIRECTION_IN, True)):
        mine = rows[mask]
        found.append((table["actual_set_id"][mine], table["instruction_id"][mine], np.full(len(mine), wrote)))
    return found


def measure(ir: "IR") -> LiveRanges:
    """Return the live ranges of all locations as arrays."""
    rows = ir.count("locations")
    used = uses(ir)
    owner = ir.array("locations", "function_id")
    function = ir.array("instructions", "function_id")[used.instruction]
    position = ir.array("instructions", "position")
    here = function == owner[used.location]
    reads, writes = (np.bincount(used.location[used.writes == wrote], minlength=rows) for wrote in (False, True))
    top = np.iinfo(np.int64).max
    at, location, wrote = position[used.instruction[here]], used.location[here], used.writes[here]
    first_read, first_write, last = np.full(rows, top), np.full(rows, top), np.full(rows, -1)
    np.minimum.at(first_read, location[~wrote], at[~wrote])
    np.minimum.at(first_write, location[wrote], at[wrote])
    np.maximum.at(last, location, at)
    first = np.minimum(first_read, first_write)
    unused = last < 0
    first[unused] = -1
    written_first = ~unused & (first_write < first_read)
    of_function = ir.array("instructions", "function_id")
    size = np.bincount(of_function[of_function >= 0], minlength=ir.count("functions"))
    start, end, looped = _around_loops(ir, owner, first.copy(), last.copy(), written_first)
    reason = np.where(unused, -1, np.where(looped, _LOOP, _USES)).astype(np.int8)
    elsewhere = ~here
    for why, mask in (
        (_ELSEWHERE, _mark(rows, used.location[elsewhere & (function >= 0)])),
        (_QUEUE, _mark(rows, used.location[elsewhere & (function < 0)])),
        *_throughout(ir),
    ):
        start[mask], reason[mask] = 0, why
        end[mask] = np.maximum(size[owner[mask]] - 1, 0)
    return LiveRanges(reads, writes, first, last, start, end, reason, written_first)


def _mark(rows: int, some: Array) -> Array:
    mask = np.zeros(rows, bool)
    mask[some] = True
    return mask


def _throughout(ir: "IR") -> "list[tuple[int, Array]]":
    """Return which locations are live throughout, whoever uses them; the last reason that applies counts."""
    locations = ir.tables["locations"]
    kind = ir.tables["sets"]["kind"][locations["set_id"]]
    aliased = _mark(len(locations), np.flatnonzero(has_member(ir, "locations", "pointer_ref_memloc")))
    aliases, references = ir.tables["aliases"], ir.tables["references"]
    aliased[aliases["location_id"]] = True
    targets = aliases["target_location_id"]
    aliased[targets[targets >= 0]] = True
    if len(references):
        code = schema.STRUCTURAL["table"].index("locations")
        pointed = (references["target"] == code) & (references["table"] == code) & (references["target_id"] >= 0)
        aliased[references["target_id"][pointed]] = True
    return [
        (_ALIASED, aliased),
        (_CONSTANT, kind == vocab.KIND_CONST),
        (_PARAMETER, np.isin(kind, sorted(vocab.INPUT_KINDS | vocab.OUTPUT_KINDS))),
        (_PINNED, locations["pinned"] == 1),
        (_RESERVED, locations["runtime_reserved"] == 1),
    ]


# -- loops ----


@dataclass(frozen=True)
class Flow:
    """Where control goes back and where it skips, in a count of the instructions of all functions in turn."""

    start: Array
    """First instruction of each loop: of an instruction with blocks, that is this one."""
    end: Array
    depth: Array
    idle: Array
    """Whether a loop may have no trip."""
    jump: Array
    """The branches forward, in order."""
    target: Array
    """First instruction of the block that each of these leads to."""

    def skipped(self, first: Array, last: Array) -> Array:
        """Tell whether a branch may go past the first of some instructions, and not past the last one."""
        ends, order = np.sort(self.target), np.argsort(first, kind="stable")
        rank = np.empty(len(ends), np.int64)
        rank[np.argsort(self.target, kind="stable")] = np.arange(len(ends))
        low, high = (np.searchsorted(ends, at[order], side="right") for at in (first, last))
        found = np.zeros(len(first), np.int8)
        reached_over(self.jump, rank, first[order], low, high, np.zeros(len(ends) + 1, np.int64), found)
        out = np.zeros(len(first), bool)
        out[order] = found == 1
        return out


def control_flow(ir: "IR") -> Flow:
    """Return the loops and the branches forward of a batch.

    A loop is an instruction with blocks, and a branch to a block that does not stand after it: then the loop goes from
    that block's first instruction to the branch. Of spans that cross the first is made longer, so that it holds the
    other.
    """
    function = ir.array("instructions", "function_id")
    position = ir.array("instructions", "position")
    offset = _offsets(ir, function)
    place = np.where(function < 0, -1, offset[np.maximum(function, 0)] + position)
    blocks = ir.tables["blocks"]
    block = ir.tables["instructions"]["block_id"]
    first = np.full(len(blocks), np.iinfo(np.int64).max)
    np.minimum.at(first, block, place)
    owner = blocks["instruction_id"]
    nested = np.flatnonzero((owner >= 0) & (blocks["function_id"] >= 0))
    loops = np.unique(owner[nested])
    branches = ir.tables["branches"]
    at = place[branches["instruction_id"]]
    begin = np.full(len(at), np.iinfo(np.int64).max)
    known = branches["block_id"] >= 0
    begin[known] = first[branches["block_id"][known]]
    back = (begin <= at) & (at >= 0)
    jumps = np.flatnonzero(known & (begin > at) & (at >= 0))
    jumps = jumps[np.argsort(at[jumps], kind="stable")]
    start = np.concatenate((place[loops], begin[back]))
    idle = np.append(ir.tables["instructions"]["opcode"][loops] == vocab.OP_DYNAMIC_FOR_LOOP, begin[back] < 0)
    end = np.concatenate((_last_inside(place, take(owner, block))[loops], at[back]))
    order = np.lexsort((-end, start))
    start, end = start[order], end[order]
    depth = np.empty(len(start), np.int64)
    nest_spans(start, end, np.empty(len(start), np.int64), depth)
    return Flow(start, end, depth, idle[order], at[jumps], begin[jumps])


def _offsets(ir: "IR", function: Array) -> Array:
    return starts(np.bincount(function[function >= 0], minlength=ir.count("functions")))


def _last_inside(place: Array, parent: Array) -> Array:
    """Return for each instruction the last place of what is nested in it: its own without blocks."""
    last = place.copy()
    inner = np.flatnonzero(parent >= 0)
    while True:
        before = last.copy()
        np.maximum.at(last, parent[inner], last[inner])
        if np.array_equal(before, last):
            return last


def _around_loops(ir: "IR", owner: Array, first: Array, last: Array, local: Array) -> tuple[Array, Array, Array]:
    """Extend ranges over loops: to the end of one that they enter, to the beginning of one whose trips hand content on.

    What is first written in a loop was not needed from the trip before, if no trip goes past that write: by a branch
    over it, or because it stands in an inner loop that may have no trip.
    """
    looped = np.zeros(len(first), bool)
    flow = control_flow(ir)
    start, end, depth = flow.start, flow.end, flow.depth
    if not len(start):
        return first, last, looped
    offset = _offsets(ir, ir.array("instructions", "function_id"))[owner]
    used = np.flatnonzero(last >= 0)
    low, high = first[used] + offset[used], last[used] + offset[used]
    local = local[used] & ~flow.skipped(low, high)
    for level in range(int(depth.max()), -1, -1):
        mine = np.flatnonzero(depth == level)
        begins, ends = start[mine], end[mine]
        around_low, around_high = (_span_of(begins, ends, at) for at in (low, high))
        carried = (around_low >= 0) & ~local
        entered = (around_high >= 0) & (carried | (around_low != around_high))
        for bounds, around, values, moved in ((begins, around_low, low, carried), (ends, around_high, high, entered)):
            values[moved] = bounds[around[moved]]
            looped[used[moved]] = True
        local &= ~(flow.idle[mine[around_low]] & (around_low >= 0) & (around_low != around_high))
    first[used], last[used] = low - offset[used], high - offset[used]
    return first, last, looped


def _span_of(begins: Array, ends: Array, places: Array) -> Array:
    """Return the span that holds each place, -1 for none; spans are apart and in order."""
    found = np.searchsorted(begins, places, side="right") - 1
    return np.where((found >= 0) & (places <= ends[np.maximum(found, 0)]), found, -1)


# -- as a frame ----


def live_ranges(ir: "IR") -> "pl.DataFrame":
    """Return from where to where in program order each memory location is live.

    A range goes from the first to the last use, both included, in positions (`instructions.position`) of the function.
    It goes on to the end of a loop that it enters, since the next trip may want the content. Where the first use of all
    stands in a loop and reads, or a trip may leave it out and still get to the last one, the range covers that loop,
    since the trip before made the content. A branch backwards makes a loop, too. Whether a write is partial is not
    looked at. An operand that names a set uses all locations of it.

    Parameters
    ----------
    ir
        The batch.

    Returns
    -------
    polars.DataFrame
        A row per location: `module`, `function`, `location`, `set`, by name; `memory`; `reads` and `writes`, the
        operands that name it; `first_use` and `last_use`, positions, with `first_instruction` and `last_instruction`,
        by name; `live_from` and `live_to`, positions of the range; `reason`, what makes it (one of `REASONS`); then the
        ids `module_id`, `function_id`, `set_id`, `location_id`. Null where there is no use.

    Raises
    ------
    OptionError
        If `ir` is no batch.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/generated/loops.json")
    >>> ranges = air.live_ranges(ir).filter(memory="SB", function="rows_norm")
    >>> ranges.select("location", "first_use", "last_use", "live_from", "live_to", "reason").row(0)
    ('buffers', 2, 5, 2, 5, 'uses')
    """
    import polars as pl

    from arrowir.ir import IR

    arguments.typed(ir, IR, "`live_ranges`", "an `arrowir.IR` (`arrowir.read` makes one of files)")
    made = measure(ir)
    locations = ir.tables["locations"]
    function = ir.array("locations", "function_id")
    unused, lacking = made.last < 0, made.reason < 0
    instruction = _by_position(ir)
    texts = pl.Series("reason", REASONS, pl.Enum(REASONS))
    module = ir.array("locations", "module_id")

    def at(position: Array) -> "pl.Series":
        return naming.names(ir, "instructions", np.where(unused, -1, instruction(function, position)))

    return pl.DataFrame(
        [
            naming.names(ir, "modules", module).alias("module"),
            naming.names(ir, "functions", function).alias("function"),
            naming.names(ir, "locations", np.arange(len(locations))).alias("location"),
            naming.names(ir, "sets", locations["set_id"]).alias("set"),
            naming.spelled(ir, "locations", "type", locations["type"]).alias("memory"),
            pl.Series("reads", made.reads),
            pl.Series("writes", made.writes),
            naming.numbers("first_use", made.first, unused),
            naming.numbers("last_use", made.last, unused),
            at(made.first).alias("first_instruction"),
            at(made.last).alias("last_instruction"),
            naming.numbers("live_from", made.start, lacking),
            naming.numbers("live_to", made.end, lacking),
            naming.gathered(texts, made.reason.astype(np.int64)),
            naming.ids("module_id", module),
            naming.ids("function_id", function),
            naming.ids("set_id", locations["set_id"]),
            naming.ids("location_id", np.arange(len(locations))),
        ]
    )


def _by_position(ir: "IR") -> "Callable[[Array, Array], Array]":
    """Return a function that finds the instruction of a function at a position."""
    function = ir.array("instructions", "function_id")
    mine = np.flatnonzero(function >= 0)
    offset = _offsets(ir, function)
    row = np.empty(len(mine), np.int64)
    row[offset[function[mine]] + ir.array("instructions", "position")[mine]] = mine

    def find(of: Array, position: Array) -> Array:
        if not len(row):
            return np.full(len(of), -1, np.int64)
        return row[np.clip(offset[of] + position, 0, len(row) - 1)]

    return find
