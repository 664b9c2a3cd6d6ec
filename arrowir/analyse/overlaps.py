"""Overlaps: memory locations of a function that share bytes of the same partitions, at the same time."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arrowir import arguments
from arrowir import vocabulary as vocab
from arrowir.analyse import live_ranges, naming
from arrowir.analyse.patterns import FAR
from arrowir.derived import zeroed
from arrowir.schema import NULL_INT
from arrowir.store import Array, starts

if TYPE_CHECKING:
    import polars as pl

    from arrowir.ir import IR

RELATIONS = ("plain", "alias", "pinned", "reserved", "covered")
"""What two locations are to each other: `alias`, one lists the other (or both lie in one group of aliases); `reserved`,
one is reserved for the runtime; `covered`, the reserved one is a region that holds whatever was pinned when it was
made, and the other lies wholly in it; `pinned`, one is pinned; else `plain`."""

PLAIN, ALIAS, PINNED, RESERVED, COVERED = range(len(RELATIONS))

COVERING_NAME = "EvalAccelReservedLoc"
"""Name of the region that covers what was pinned, when its address is 0."""

CHUNK = 1 << 21
"""Pairs that are looked at in one go."""


@dataclass(frozen=True)
class Placed:
    """Where locations lie: arrays over the locations that have a final address, and a size."""

    row: Array
    space: Array
    """Number of the memory: equal for locations that can share bytes."""
    start: Array
    end: Array
    """Bytes, in each partition."""
    first: Array
    last: Array
    """Partitions, the last included; 0 and 0 where there are none."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of locations that share bytes, in order of their rows; `a` stands before `b`."""

    a: Array
    b: Array
    relation: Array
    """Index in `RELATIONS`."""
    alias: Array
    """The alias kind between the two, 0 for none."""
    start: Array
    end: Array
    """The bytes that they share, in each partition."""
    first: Array
    last: Array
    """The partitions that they share."""


def placed(ir: "IR") -> Placed:
    """Return where the locations with a final address lie.

    Those of SB and of each PSUM bank share that memory within their function. In DRAM, internal ones do; every other
    one has a memory of its own.
    """
    locations = ir.tables["locations"]
    memory, owner = locations["type"], ir.array("locations", "function_id").astype(np.int64)
    internal = ir.tables["sets"]["kind"][locations["set_id"]] == vocab.KIND_INTERNAL
    kind = np.where(memory == vocab.MEM_SB, 0, np.where(memory == vocab.MEM_PSUM, 1, -1))
    kind[(memory == vocab.MEM_DRAM) & internal] = 2
    # No memory is as large as what numbers are cut to, so that sums of them stay in 64 bits.
    partitions, size = (np.minimum(locations[name], FAR) for name in ("partitions", "bytes"))
    some = (kind >= 0) & (locations["allocated"] == 1) & (partitions > 0) & (size > 0)
    bank = np.where(kind == 1, zeroed(locations["bank"]), 0)
    row = np.flatnonzero(some)
    flat = kind[row] == 2
    addr, base = (np.clip(zeroed(locations[name][row]), -FAR, FAR) for name in ("addr", "base"))
    large = partitions[row].astype(np.float64) * size[row] > FAR
    held = np.where(flat, np.where(large, FAR, partitions[row] * np.where(large, 0, size[row])), size[row])
    banks = 1 << 20  # banks beyond that are no banks
    keys = (owner[row] * 3 + kind[row]) * 2 * banks + np.clip(bank[row], -banks, banks - 1)
    space = np.unique(keys, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return Placed(
        row,
        space,
        addr,
        addr + held,
        np.where(flat, 0, base),
        np.where(flat, 0, base + partitions[row] - 1),
    )


def measure(ir: "IR", *, live: bool = True, ranges: live_ranges.LiveRanges | None = None) -> Pairs:
    """Return all pairs of locations that share bytes and partitions and, with `live`, are live at the same time.

    `ranges` are the live ranges of the batch, where they are known.
    """
    made = placed(ir)
    count = len(made.row)
    ranges = (ranges or live_ranges.measure(ir)) if live else None
    if ranges is not None:
        keep = ranges.reason[made.row] >= 0
        made = Placed(*(getattr(made, name)[keep] for name in Placed.__dataclass_fields__))
        since, until = ranges.start[made.row], ranges.end[made.row]
    else:
        since, until = np.zeros(count, np.int64), np.zeros(count, np.int64)
    a, b = _meeting(
        made.space, [(made.start, made.end - 1), (since, until), (made.first, made.last)], dimensions=3 if live else 1
    )
    swap = made.row[a] > made.row[b]
    a, b = np.where(swap, b, a), np.where(swap, a, b)
    order = np.lexsort((made.row[b], made.row[a]))
    a, b = a[order], b[order]
    rows_a, rows_b = made.row[a], made.row[b]
    alias, joined = _aliases(ir, rows_a, rows_b)
    return Pairs(
        rows_a,
        rows_b,
        _relations(ir, made, a, b, joined),
        alias,
        np.maximum(made.start[a], made.start[b]),
        np.minimum(made.end[a], made.end[b]),
        np.maximum(made.first[a], made.first[b]),
        np.minimum(made.last[a], made.last[b]),
    )


def _meeting(space: Array, boxes: list[tuple[Array, Array]], *, dimensions: int) -> tuple[Array, Array]:
    """Return the pairs of boxes of one space that meet in every dimension; bounds are inclusive.

    The boxes are swept along the dimension in which the fewest meet: sorted by where they begin, each is compared with
    those that begin before it ends.
    """
    if len(space) < 2:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    sweeps = [_sweep(space, low, high) for low, high in boxes[: max(dimensions, 1)]]
    order, ends = min(sweeps, key=lambda sweep: int(sweep[1].sum()))
    bounds = [(low[order], high[order]) for low, high in boxes]
    found: list[tuple[Array, Array]] = []
    begins = starts(ends)
    cuts = np.unique(np.searchsorted(begins, np.arange(0, begins[-1] + CHUNK, CHUNK)))
    cuts = np.unique(np.append(cuts.clip(0, len(order)), len(order)))
    for low, high in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        one = np.repeat(np.arange(low, high), ends[low:high])
        other = np.arange(len(one)) - np.repeat(begins[low:high] - begins[low], ends[low:high]) + one + 1
        for least, most in bounds:
            meets = (least[one] <= most[other]) & (least[other] <= most[one])
            one, other = one[meets], other[meets]
        found.append((order[one], order[other]))
    return np.concatenate([a for a, _ in found]), np.concatenate([b for _, b in found])


def _sweep(space: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the order by space and beginning, and for each the number of those after it that begin before it ends."""
    order = np.lexsort((low, space))
    # Ranks keep spaces apart without sums that could leave 64 bits.
    ranked = np.unique(np.concatenate((low, high)), return_inverse=True)[1].astype(np.int64)
    width = len(ranked) + 1
    begin = space[order] * width + ranked[: len(low)][order]
    end = space[order] * width + ranked[len(low) :][order]
    return order, np.searchsorted(begin, end, side="right") - np.arange(len(order)) - 1


def _aliases(ir: "IR", a: Array, b: Array) -> tuple[Array, Array]:
    """Return the alias kind that two locations list for each other, and whether aliases join them."""
    aliases = ir.tables["aliases"]
    kind, joined = np.zeros(len(a), np.int64), np.zeros(len(a), bool)
    known = np.flatnonzero(aliases["target_location_id"] >= 0)
    if not len(known) or not len(a):
        return kind, joined
    rows = ir.count("locations")
    one, other = (aliases[name][known].astype(np.int64) for name in ("location_id", "target_location_id"))
    listed = np.maximum(np.where(aliases["kind"][known] == NULL_INT, 0, aliases["kind"][known]), 1)
    keys = np.minimum(one, other) * rows + np.maximum(one, other)
    order = np.argsort(keys, kind="stable")
    keys, listed = keys[order], listed[order]
    wanted = a * rows + b
    place = np.searchsorted(keys, wanted).clip(0, len(keys) - 1)
    hit = keys[place] == wanted
    kind[hit] = listed[place[hit]]
    group = _groups(rows, one, other)
    return kind, hit | ((group[a] == group[b]) & (group[a] >= 0))


def _groups(rows: int, one: Array, other: Array) -> Array:
    """Return the least location that aliases join each one with; -1 for one without aliases."""
    group = np.full(rows, -1, np.int64)
    ends = np.concatenate((one, other))
    group[ends] = ends
    while True:
        before = group.copy()
        least = np.minimum(group[one], group[other])
        np.minimum.at(group, one, least)
        np.minimum.at(group, other, least)
        joined = group[np.maximum(group, 0)]
        group = np.where(group < 0, -1, joined)
        if np.array_equal(before, group):
            return group


def _relations(ir: "IR", made: Placed, a: Array, b: Array, joined: Array) -> Array:
    locations = ir.tables["locations"]
    pinned, reserved = locations["pinned"] == 1, locations["runtime_reserved"] == 1
    covering = reserved & (zeroed(locations["addr"]) == 0) & locations.text().equal(COVERING_NAME)
    relation = np.full(len(a), PLAIN, np.int8)
    rows_a, rows_b = made.row[a], made.row[b]
    relation[pinned[rows_a] | pinned[rows_b]] = PINNED
    relation[reserved[rows_a] | reserved[rows_b]] = RESERVED
    for outer, inner, mask in ((a, b, covering[rows_a]), (b, a, covering[rows_b])):
        inside = (made.start[outer] <= made.start[inner]) & (made.end[inner] <= made.end[outer])
        inside &= (made.first[outer] <= made.first[inner]) & (made.last[inner] <= made.last[outer])
        relation[mask & inside] = COVERED
    relation[joined] = ALIAS
    return relation


def overlaps(ir: "IR", *, live: bool = True) -> "pl.DataFrame":
    """Return the pairs of memory locations of a function that share bytes of the same partitions.

    Only locations with a final address (`allocated`) and a size are compared, in SB, in each PSUM bank, and internal
    ones in DRAM. The pairs are found by a sweep line.

    Parameters
    ----------
    ir
        The batch.
    live
        Leave out pairs that are not live at the same time (see `live_ranges`), and locations without any use; those
        that are pinned or reserved are live throughout. False: all pairs, whenever they are used.

    Returns
    -------
    polars.DataFrame
        A row per pair: `module`, `function`, `memory`, `bank` (PSUM); `location` and `other`, by name, in order of the
        file; `relation` (one of `RELATIONS`); `alias_kind`, 1 for may and 3 for must, null where neither lists the
        other; `start_byte` and `end_byte`, exclusive, `shared_bytes`, per partition, `first_partition` and
        `partitions`: what they share; then the ids `module_id`, `function_id`, `location_id`, `other_id`.

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
    >>> scratch = main.sb("DynamicDMAScratchLoc", [128, 16384], "uint8", addr=0, pinned=True)
    >>> tile = main.sb("tile", [128, 16], "float32", addr=16376)
    >>> memset = main.add("Memset", [], [tile], mode="Const", constant=0)
    >>> air.overlaps(module.ir()).select("location", "other", "relation", "shared_bytes").row(0)
    ('DynamicDMAScratchLoc', 'tile', 'pinned', 8)
    """
    import polars as pl

    from arrowir.ir import IR

    arguments.typed(ir, IR, "`overlaps`", "an `arrowir.IR` (`arrowir.read` makes one of files)")
    arguments.typed(live, bool, "`live`", "true or false")
    made = measure(ir, live=live)
    locations = ir.tables["locations"]
    module, function = ir.array("locations", "module_id")[made.a], ir.array("locations", "function_id")[made.a]
    memory = locations["type"][made.a]
    flat = (memory != vocab.MEM_SB) & (memory != vocab.MEM_PSUM)
    texts = pl.Series("relation", RELATIONS, pl.Enum(RELATIONS))
    return pl.DataFrame(
        [
            naming.names(ir, "modules", module).alias("module"),
            naming.names(ir, "functions", function).alias("function"),
            naming.spelled(ir, "locations", "type", memory).alias("memory"),
            naming.numbers("bank", zeroed(locations["bank"][made.a]), memory != vocab.MEM_PSUM),
            naming.names(ir, "locations", made.a).alias("location"),
            naming.names(ir, "locations", made.b).alias("other"),
            naming.gathered(texts, made.relation.astype(np.int64)),
            naming.numbers("alias_kind", made.alias, made.alias == 0),
            pl.Series("start_byte", made.start),
            pl.Series("end_byte", made.end),
            pl.Series("shared_bytes", made.end - made.start),
            naming.numbers("first_partition", made.first, flat),
            naming.numbers("partitions", made.last - made.first + 1, flat),
            naming.ids("module_id", module),
            naming.ids("function_id", function),
            naming.ids("location_id", made.a),
            naming.ids("other_id", made.b),
        ]
    )
