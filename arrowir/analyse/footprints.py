"""Footprints: the memory, partitions and bytes that each operand touches.

In SB and PSUM an access has lanes, one per partition: lane i is in partition ``base + (offset + i * step) // pitch``,
and reads or writes in it the bytes ``addr + column * size``, where pitch is the whole elements that a partition of the
location holds, and the columns are ``offset % pitch`` plus what the pairs of the pattern after the first add. In DRAM
all pairs address one run of elements. Everything that follows from a pattern alone is worked out once per distinct
pattern.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arrowir import arguments, extras
from arrowir import vocabulary as vocab
from arrowir.analyse import naming
from arrowir.analyse.patterns import FAR, Patterns, intervals, patterns
from arrowir.derived import zeroed
from arrowir.schema import NULL_INT
from arrowir.store import Array, starts

if TYPE_CHECKING:
    import polars as pl

    from arrowir.ir import IR

REASONS = (
    "symbolic",
    "register",
    "dynamic",
    "unresolved",
    "several_locations",
    "no_pattern",
    "unknown_dtype",
    "no_size",
    "lanes",
    "too_large",
)
"""Why a footprint is undecided: `symbolic`, the address is an expression (unroll first); `register`, it stands in a
register; `dynamic`, it has dynamic offsets; `unresolved`, the memory that it names is not there; `several_locations`,
the set that it names has not exactly one; `no_pattern`, pattern or offset is missing or empty; `unknown_dtype`, the
size of its elements is not known; `no_size`, its location has no dims, or its partitions hold no element;
`lanes`, its lanes are not whole partitions apart; `too_large`, the address leaves 64 bits."""

DECIDED = -1

_MEMORIES = (vocab.MEM_SB, vocab.MEM_PSUM)
_ADDRESSED = (
    vocab.OPERAND_PHYSICAL_AP,
    vocab.OPERAND_SYMBOLIC_AP,
    vocab.OPERAND_SYMBOLIC_PWAP,
    vocab.OPERAND_REGISTER_AP,
)


@dataclass(frozen=True)
class Footprints:
    """Footprints as arrays over all operands of a batch; what is undecided, or no memory, has zeros."""

    ir: "IR"
    patterns: Patterns
    addressed: Array
    """Whether an operand means memory: it has an access pattern."""
    reason: Array
    """int8: `DECIDED`, or an index in `REASONS`."""
    location: Array
    """The location, also where it is the one of a set that is named; -1 where there is none."""
    memory: Array
    """Code of the location's type, -1 without one."""
    size: Array
    """Bytes of an element; 0 where that is not known."""
    pattern: Array
    """Row in `patterns`."""
    pitch: Array
    """Whole elements that a partition of the location holds; 0 outside of SB and PSUM."""
    partition: Array
    """First partition, counted from the memory's first."""
    lanes: Array
    """Number of partitions."""
    lane_step: Array
    """Partitions from one lane to the next; 0 where all are one."""
    start: Array
    end: Array
    """First byte, and the one behind the last: in each partition, or in the memory."""
    inside: Array
    """Whether it stays in its location; true where that is not decided."""

    @property
    def decided(self) -> Array:
        """Mask of the operands whose footprint is known."""
        return self.addressed & (self.reason == DECIDED)

    @cached_property
    def partitioned(self) -> Array:
        """Mask of the operands in SB or PSUM."""
        return np.isin(self.memory, _MEMORIES)


def measure(ir: "IR") -> Footprints:
    """Return the footprints of all operands as arrays."""
    operands, locations = ir.tables["operands"], ir.tables["locations"]
    kind = operands["kind"]
    addressed = np.isin(kind, _ADDRESSED)
    facts = patterns(ir)
    pattern = operands["pattern_id"].astype(np.int64)
    pattern[pattern < 0] = len(facts.dimensions) - 1
    reason = np.full(len(kind), DECIDED, np.int8)

    def undecided(mask: Array, why: str) -> None:
        reason[addressed & mask & (reason == DECIDED)] = REASONS.index(why)

    location, several = _locations(ir)
    undecided((kind == vocab.OPERAND_SYMBOLIC_AP) | (kind == vocab.OPERAND_SYMBOLIC_PWAP), "symbolic")
    undecided(kind == vocab.OPERAND_REGISTER_AP, "register")
    undecided(has_member(ir, "operands", "dynamic_ap_info"), "dynamic")
    undecided(several, "several_locations")
    undecided(location < 0, "unresolved")
    offset = operands["offset"]
    undecided((offset == NULL_INT) | ~facts.sound[pattern], "no_pattern")
    undecided(far(facts, pattern, offset), "too_large")
    size = dtype_bytes(operands["dtype"])
    undecided(size == 0, "unknown_dtype")

    def of_location(column: str, absent: int) -> Array:
        values = locations[column]
        if not len(values):
            return np.full(len(location), absent, np.int64)
        return values[location] if whole else np.where(location < 0, absent, values[place])

    whole = len(location) > 0 and int(location.min()) >= 0
    place = location if whole else np.maximum(location, 0)
    memory = of_location("type", -1)
    bytes_, held = of_location("bytes", -1), of_location("partitions", -1)
    addr, base = zeroed(of_location("addr", 0)), zeroed(of_location("base", 0))
    undecided((bytes_ < 0) | (held < 0), "no_size")
    partitioned = np.isin(memory, _MEMORIES)
    divisor = np.maximum(size, 1)
    pitch = np.where(partitioned, _divided(np.maximum(bytes_, 0), divisor)[0], 0)
    undecided(partitioned & (pitch == 0), "no_size")
    step, lanes = facts.steps[pattern, 0], facts.lanes[pattern]
    row = np.maximum(pitch, 1)
    rows_apart, between = _divided(step, row)
    undecided(partitioned & (lanes > 1) & (between != 0), "lanes")
    undecided(np.abs(addr) > FAR, "too_large")

    known = addressed & (reason == DECIDED)
    offset = np.where(known, offset, 0)
    low, high = facts.low[pattern], facts.high[pattern]
    reach = step * np.maximum(lanes - 1, 0)
    lane_step = np.where(partitioned & (lanes > 1), rows_apart, 0)
    first, column = _divided(offset, row)
    column = np.where(partitioned, column, offset)
    flat = ~partitioned
    start = column + low + np.where(flat, np.minimum(reach, 0), 0)
    end = column + high + np.where(flat, np.maximum(reach, 0), 0) + 1
    first = np.where(partitioned, first, 0)
    across = lane_step * np.maximum(lanes - 1, 0)
    lowest, highest = first + np.minimum(across, 0), first + np.maximum(across, 0)
    inside = (start >= 0) & (end <= pitch) & (lowest >= 0) & (highest < held)
    plain = np.flatnonzero(flat)
    inside[plain] = (start[plain] >= 0) & _fits(end[plain], size[plain], held[plain], bytes_[plain])
    blank = ~known
    for values in (start, end, first, lanes, lane_step):
        values[blank] = 0
    return Footprints(
        ir,
        facts,
        addressed,
        reason,
        location,
        memory,
        size,
        pattern,
        pitch,
        np.where(known & partitioned, base + lowest, 0),
        np.where(known & partitioned, np.where(lane_step == 0, np.minimum(lanes, 1), lanes), 0),
        np.abs(lane_step),
        np.where(known, addr + start * size, 0),
        np.where(known, addr + end * size, 0),
        inside | blank,
    )


def far(facts: Patterns, pattern: Array, offset: Array) -> Array:
    """Return which accesses reach elements whose numbers are too large to count with; an absent offset is not."""
    return ~facts.near[pattern] | ((offset != NULL_INT) & (np.abs(offset.astype(np.float64)) > FAR / 16))


def _divided(values: Array, by: Array) -> tuple[Array, Array]:
    """Divide by numbers above 0, rounded down, with what is left; most values are 0 or the number itself."""
    quotient, rest = (values == by).astype(np.int64), np.zeros(len(values), np.int64)
    other = np.flatnonzero((values != 0) & (values != by))
    if len(other):
        quotient[other], rest[other] = np.divmod(values[other], by[other])
    return quotient, rest


def _fits(end: Array, size: Array, partitions: Array, bytes_: Array) -> Array:
    """Tell whether an element number behind the last lies within a location; exact for sizes that no memory has too."""
    total = partitions.astype(np.float64) * bytes_
    exact = np.where(total < FAR, partitions * np.where(total < FAR, bytes_, 0), FAR)
    return end <= exact // np.maximum(size, 1)


def dtype_bytes(codes: Array) -> Array:
    """Return the bytes of an element for codes of dtypes; 0 for one that is not known."""
    sizes = np.array([*vocab.DTYPE_BYTES, 0], np.int64)
    return sizes[np.where((codes < 0) | (codes >= len(vocab.DTYPE_BYTES)), len(vocab.DTYPE_BYTES), codes)]


def _locations(ir: "IR") -> tuple[Array, Array]:
    """Return the location of each operand, by way of its set where it names that alone, and where there are several."""
    operands = ir.tables["operands"]
    location, owner = operands["location_id"].astype(np.int64), operands["set_id"]
    by_set = (location < 0) & (owner >= 0) & (operands["name"] < 0)
    several = np.zeros(len(location), bool)
    if by_set.any():
        bounds = ir.tables["locations"].bounds(ir.count("sets"))
        counts = np.diff(bounds)
        mine = owner[by_set]
        location[by_set] = np.where(counts[mine] == 1, bounds[:-1][mine], -1)
        several[by_set] = counts[mine] != 1
    return location, several


def has_member(ir: "IR", table: str, key: str) -> Array:
    """Return which rows of a table have a member, other than null, among those that no column models."""
    texts = ir.pools.extras.texts
    numbers = ir.tables[table]["extra"]
    quoted = f'"{key}"'
    distinct = np.flatnonzero(np.bincount(numbers[numbers >= 0], minlength=1)) if len(numbers) else []
    having = np.zeros(len(texts) + 1, bool)
    for number in distinct:
        text = texts[number]
        if quoted in text and text != "":
            having[number] = any(k == key for k, _ in extras.members(text))
    return having[numbers]


# -- as a frame ----


def footprints(ir: "IR", *, intervals: bool = True) -> "pl.DataFrame":
    """Return what every operand touches: memory, partitions and bytes.

    Every operand is a row, immediates and registers too, which touch no memory. In SB and PSUM bytes are those of one
    partition, the same in each that is touched; in DRAM and other memories there are no partitions. Addresses are those
    of the location as the file has them: final where `allocated`.

    Parameters
    ----------
    ir
        The batch.
    intervals
        Whether to list the byte intervals; without them the frame takes less memory.

    Returns
    -------
    polars.DataFrame
        `module`, `function`, `block`, `instruction`: names; `opcode`; `role` and `slot` of the operand (``ins[0]``);
        its `kind`; `memory`; `location`, by name; `bank` (PSUM); `allocated`; `first_partition` with the location's
        base, `partitions`, how many, and `partition_step`, from one to the next; `start_byte` and `end_byte`,
        exclusive; `touched_bytes`, per partition, counted once each; `inside`, whether it stays in its location;
        `undecided` and `reason` (one of `REASONS`); `intervals`, a list of {start, end} in bytes, disjoint and rising,
        null above a million pieces; then the ids `module_id`, `function_id`, `block_id`, `instruction_id`,
        `operand_id`, `location_id`. What does not apply, or is undecided, is null.

    Raises
    ------
    OptionError
        If `ir` is no batch.

    Examples
    --------
    >>> import arrowir as air
    >>> from arrowir import build
    >>> module = build.module()
    >>> main = module.function()
    >>> tile = main.sb("tile", [64, 8], "float32", addr=1024, base=32)
    >>> part = tile.access(pattern=[[8, 64], [-2, 3]], offset=7)
    >>> copy = main.add("TensorCopy", [part], [tile])
    >>> air.footprints(module.ir()).row(0, named=True)["intervals"]
    [{'start': 1036, 'end': 1040}, {'start': 1044, 'end': 1048}, {'start': 1052, 'end': 1056}]
    """
    import polars as pl

    from arrowir.ir import IR

    arguments.typed(ir, IR, "`footprints`", "an `arrowir.IR` (`arrowir.read` makes one of files)")
    made = measure(ir)
    operands, locations = ir.tables["operands"], ir.tables["locations"]
    instruction = operands["instruction_id"]
    known = made.decided
    held = made.partitioned & known
    listed, touched = _intervals(made, listed=intervals)
    texts = pl.Series("reason", REASONS, pl.Enum(REASONS))
    bank = np.full(len(known), NULL_INT, np.int64)
    in_psum = made.memory == vocab.MEM_PSUM
    bank[in_psum] = zeroed(locations["bank"][made.location[in_psum]])
    final = np.zeros(len(known), bool)
    final[made.location >= 0] = locations["allocated"][made.location[made.location >= 0]] == 1
    number = {"module": ir.array("instructions", "module_id"), "function": ir.array("instructions", "function_id")}
    columns = [
        *naming.about(ir, instruction, ("module", "function", "block", "instruction")).values(),
        naming.spelled(ir, "instructions", "opcode", ir.tables["instructions"]["opcode"][instruction]),
        naming.spelled(ir, "operands", "role", operands["role"]),
        naming.slot_names(operands["role"], naming.slots(ir)),
        naming.spelled(ir, "operands", "kind", operands["kind"]),
        naming.spelled(ir, "locations", "type", made.memory).alias("memory"),
        naming.names(ir, "locations", made.location).alias("location"),
        naming.numbers("bank", bank),
        naming.numbers("allocated", final.astype(np.int64), made.location < 0).cast(pl.Boolean),
        *(
            naming.numbers(name, values, ~held)
            for name, values in (
                ("first_partition", made.partition),
                ("partitions", made.lanes),
                ("partition_step", made.lane_step),
            )
        ),
        *(
            naming.numbers(name, values, ~known)
            for name, values in (("start_byte", made.start), ("end_byte", made.end))
        ),
        naming.numbers("touched_bytes", touched, ~known | (touched < 0)),
        naming.numbers("inside", made.inside.astype(np.int64), ~known).cast(pl.Boolean),
        pl.Series("undecided", made.addressed & (made.reason != DECIDED)),
        naming.gathered(texts, made.reason.astype(np.int64)),
        *([] if listed is None else [listed]),
        naming.ids("module_id", number["module"][instruction]),
        naming.ids("function_id", number["function"][instruction]),
        naming.ids("block_id", ir.tables["instructions"]["block_id"][instruction]),
        naming.ids("instruction_id", instruction),
        naming.ids("operand_id", np.arange(len(known))),
        naming.ids("location_id", made.location),
    ]
    return pl.DataFrame(columns)


def _intervals(made: Footprints, *, listed: bool) -> "tuple[pl.Series | None, Array]":
    """Return the intervals of each operand as a list column, and the bytes that they hold together."""
    import polars as pl

    known = np.flatnonzero(made.decided)
    flat = ~made.partitioned[known]
    width = 2 * (max(vocab.DTYPE_BYTES) + 1)
    key = made.pattern[known] * width + made.size[known] * 2 + flat
    distinct, place = np.unique(key, return_inverse=True)
    texts = made.ir.pools.patterns.texts
    parts: list[Array | None] = []
    for each in distinct.tolist():
        pairs = json.loads(texts[each // width])
        parts.append(intervals(pairs if each % 2 else pairs[1:], each % width // 2))
    low = np.array([0 if p is None else int(p[0, 0]) for p in parts], np.int64)
    held = np.array([-1 if p is None else int((p[:, 1] - p[:, 0]).sum()) for p in parts], np.int64)
    touched = np.full(len(made.reason), -1, np.int64)
    touched[known] = held[place] if len(distinct) else 0
    if not listed:
        return None, touched
    lengths = np.array([0 if p is None else len(p) for p in parts], np.int64)
    begins = starts(lengths)
    every = np.concatenate([p for p in parts if p is not None]) if begins[-1] else np.empty((0, 2), np.int64)
    counts = np.zeros(len(made.reason), np.int64)
    counts[known] = lengths[place] if len(distinct) else 0
    offsets = starts(counts)
    mine = counts[known]
    source = np.arange(int(offsets[-1])) + np.repeat(begins[:-1][place] - offsets[:-1][known], mine)
    moved = np.repeat(made.start[known] - low[place], mine)
    inner = pl.DataFrame({"start": every[source, 0] + moved, "end": every[source, 1] + moved})
    return _lists(offsets, inner.to_struct("intervals"), touched < 0), touched


def _lists(offsets: Array, inner: "pl.Series", absent: Array) -> "pl.Series":
    """Return a list column of rows that stand behind each other; null where it is absent."""
    import polars as pl
    import pyarrow as pa

    buffers = [pa.py_buffer(np.packbits(~absent, bitorder="little").tobytes()), pa.py_buffer(offsets)]
    values = inner.to_arrow()
    listed = pa.Array.from_buffers(pa.large_list(values.type), len(absent), buffers, children=[values])
    made = pl.from_arrow(listed)
    assert isinstance(made, pl.Series)
    return made.alias("intervals")
