"""Rules about where memory locations lie: in their memory, and beside each other."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.analyse import overlaps
from arrowir.derived import bank_start, zeroed
from arrowir.store import Array
from arrowir.verify.facts import Facts, found
from arrowir.verify.registry import Found, rule

LANES = 128


class _Places:
    """Locations in SB and PSUM, and the memories of their modules."""

    def __init__(self, facts: Facts) -> None:
        locations = facts.ir.tables["locations"]
        module = facts.ir.array("locations", "module_id")
        self.sb, self.psum = locations["type"] == vocab.MEM_SB, locations["type"] == vocab.MEM_PSUM
        self.sized = (locations["bytes"] >= 0) & (locations["partitions"] >= 0)
        self.final = locations["allocated"] == 1
        self.addr, self.base, self.bank = (zeroed(locations[name]) for name in ("addr", "base", "bank"))
        self.bytes, self.partitions = locations["bytes"], locations["partitions"]
        banks, bank_bytes = facts.arch("psum_banks", -1)[module], facts.arch("psum_bank_bytes", -1)[module]
        self.banks = banks
        # What is in no bank of the memory is told by that.
        number = np.where(self.psum & (np.abs(self.bank) < banks), self.bank, 0)
        self.before = bank_start(number, self.addr, np.maximum(bank_bytes, 0))
        capacity = np.where(self.sb, facts.arch("sbuf_bytes", -1)[module], banks * bank_bytes)
        self.capacity = np.where(banks < 0, -1, capacity)
        self.known = (self.sb | self.psum) & self.sized & (self.capacity >= 0)
        self.lanes = np.where(self.sb, LANES, facts.arch("psum_partitions", LANES)[module])


_PLACES: "WeakKeyDictionary[Facts, _Places]" = WeakKeyDictionary()


def _places(facts: Facts) -> _Places:
    """Return the locations of a batch; they are looked at once."""
    if facts not in _PLACES:
        _PLACES[facts] = _Places(facts)
    return _PLACES[facts]


def _too_big(facts: Facts) -> Found | None:
    p = _places(facts)
    bad = p.known & p.sb & (p.bytes > p.capacity)
    return found("locations", bad, node=lambda rows: facts.names("locations", rows), bytes_per_partition=p.bytes)


def _outside(facts: Facts) -> Found | None:
    p = _places(facts)
    big = p.sb & (p.bytes > p.capacity)
    bad = p.known & p.final & ~big & ((p.addr.astype(np.float64) + p.before + p.bytes > p.capacity) | (p.addr < 0))

    def sums(rows: Array, *parts: Array) -> list[int]:
        return [sum(each) for each in zip(*(part[rows].tolist() for part in parts), strict=True)]

    return found(
        "locations",
        bad,
        type=lambda rows: facts.names("locations", rows, "type"),
        addr=lambda rows: sums(rows, p.before, p.addr),
        end=lambda rows: sums(rows, p.before, p.addr, p.bytes),
        capacity=p.capacity,
    )


def _base(facts: Facts) -> Found | None:
    p = _places(facts)
    return found(
        "locations", p.known & (p.partitions > 96) & (p.base != 0), tensor=lambda r: facts.names("locations", r)
    )


def _partitions(facts: Facts) -> Found | None:
    p = _places(facts)
    wide = (p.partitions > 96) & (p.base != 0)
    bad = p.known & ~wide & ((p.base + p.partitions > p.lanes) | (p.base < 0))
    return found("locations", bad, base=p.base, partitions=p.partitions, lanes=p.lanes)


def _quarter(facts: Facts) -> Found | None:
    p = _places(facts)
    fits = (p.base >= 0) & (p.base + p.partitions <= p.lanes)
    wide = (p.partitions > 96) & (p.base != 0)
    return found("locations", p.known & fits & ~wide & (p.base % 32 != 0), base=p.base)


def _bank(facts: Facts) -> Found | None:
    p = _places(facts)
    bad = p.known & p.psum & p.final & (np.abs(p.bank) >= p.banks)
    return found("locations", bad, bank=p.bank, banks=p.banks)


def _no_partitions(facts: Facts) -> Found | None:
    p = _places(facts)
    return found("locations", p.psum & p.sized & (p.partitions == 0) & (p.bytes > 0))


# -- pairs ----


def _pairs(facts: Facts, relations: tuple[int, ...]) -> tuple[overlaps.Pairs, Array]:
    """Return the overlaps of some kinds: those in which a write falls into the time of the other."""
    made = facts.pairs
    return made, np.flatnonzero(np.isin(made.relation, relations))


def _held(facts: Facts) -> Found | None:
    """Return the locations that share bytes with one that is pinned or reserved."""
    locations = facts.ir.tables["locations"]
    made, rows = _pairs(facts, (overlaps.PINNED, overlaps.RESERVED))
    if not len(rows):
        return None
    fixed = (locations["pinned"] == 1) | (locations["runtime_reserved"] == 1)
    a, b = made.a[rows], made.b[rows]
    other = np.where(fixed[a], a, b)
    mine = np.where(fixed[a], b, a)
    fill: dict[str, Any] = {
        "mem": facts.names("locations", mine),
        "other": facts.names("locations", other),
        "how": ["reserved" if locations["runtime_reserved"][o] == 1 else "pinned" for o in other.tolist()],
        "bytes": (made.end - made.start)[rows],
        "first": made.first[rows],
        "last": made.last[rows],
    }
    return Found("locations", mine, fill)


def _clash(facts: Facts) -> Found | None:
    """Return the pairs of ordinary locations of which one is written while the other holds what is read later."""
    made, rows = _pairs(facts, (overlaps.PLAIN,))
    if not len(rows):
        return None
    a, b = made.a[rows], made.b[rows]
    bad = _written_into(facts, a, b) | _written_into(facts, b, a)
    a, b = a[bad], b[bad]
    names = [f"`{x}` and `{y}`" for x, y in zip(facts.names("locations", a), facts.names("locations", b), strict=True)]
    fill: dict[str, Any] = {
        "names": names,
        "bytes": (made.end - made.start)[rows][bad],
        "memory": facts.names("locations", a, "type"),
    }
    return Found("locations", b, fill) if len(a) else None


def _written_into(facts: Facts, held: Array, writer: Array) -> Array:
    """Tell whether a location is written after another was written, and before its last read."""
    uses, live = facts.uses, facts.live
    width = facts.ir.count("instructions") + 1
    position = facts.ir.array("instructions", "position")
    writes = uses.writes
    keys = np.sort(uses.location[writes] * width + position[uses.instruction[writes]])
    low, high = live.start[held], live.end[held]
    after = np.searchsorted(keys, writer * width + low, side="right")
    until = np.searchsorted(keys, writer * width + high, side="left")
    return (live.reads[held] > 0) & (until > after)


RULES = [
    rule("GCA037", "memory", "a location fits into a partition of SB", "split the tensor", _too_big),
    rule("location_out_of_bounds", "memory", "an allocated location ends within its memory",
         "place it lower, or make it smaller", _outside,
         text="memory location `{mem}` takes bytes {addr} to {end} of a partition, and {type} has {capacity}"),
    rule("EGCA115", "memory", "a location of more than 96 partitions starts at partition 0", "set `base` to 0", _base),
    rule("location_partitions", "memory", "a location ends at the last partition", "set a lower `base`", _partitions,
         text="memory location `{mem}` has {partitions} partitions from partition {base} on, and there are {lanes}"),
    rule("location_base", "memory", "a location starts at a quarter of the partitions", "set `base` to 0, 32, 64 or 96",
         _quarter, text="memory location `{mem}` starts at partition {base}, which is none of 0, 32, 64, 96"),
    rule("psum_bank", "memory", "the bank of a PSUM location is one of the memory", "correct `bank`", _bank,
         text="memory location `{mem}` is in bank {bank}, and there are {banks}"),
    rule("GCA080", "memory", "a PSUM location has partitions", "correct `dims`", _no_partitions),
    rule("INLA001", "memory", "no location shares bytes with one that is pinned or reserved while it is in use",
         "place it elsewhere", _held, same=("SIM078",),
         text="memory location `{mem}` is overlapping with must-pinned memloc `{other}` ({how}): {bytes} bytes of "
         "partitions {first} to {last}"),
    rule("GCA038", "memory", "locations that are in use at the same time share no bytes", "place one of them elsewhere",
         _clash, severity="warning", text="The state buffer: {names} in sb_select, a bad allocation ({bytes} bytes of "
         "{memory})"),
]  # fmt: skip
