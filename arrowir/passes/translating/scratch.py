"""Scratchpads of call-sites: how much an allocated kernel needs, and the storage that is made for it (rules N6, N7)."""

from dataclasses import dataclass

import numpy as np

from arrowir import layouts, vocabulary
from arrowir.ir import IR
from arrowir.names import fresh_names, numbered, suffixed
from arrowir.runs import join_text
from arrowir.schema import NULL_INT
from arrowir.store import Array, Strings, Table
from arrowir.vocabulary import PSUM_BANK_BYTES

PARTITIONS = 128
BANKS = 8
"""PSUM of every architecture that has eight banks; the smallest, which has four, is checked by its own numbers."""

_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Needs:
    """What functions need of scratchpads: one item per function; nothing where no memory on the chip is allocated."""

    sb_bytes: Array
    """End of the highest allocated SB location."""
    banks: Array
    """Highest bank of an allocated PSUM location, and one."""
    partitions: Array
    """Most partitions of an allocated PSUM location."""


def needs_of(ir: IR) -> Needs:
    """Return what the functions of a batch need."""
    locations, count = ir.tables["locations"], ir.count("functions")
    function = ir.array("locations", "function_id")
    allocated = locations["allocated"] == 1

    def largest(of: int, values: Array) -> Array:
        mine = allocated & (locations["type"] == of)
        found = np.zeros(count, np.int64)
        np.maximum.at(found, function[mine], values[mine])
        return found

    addr, size, bank, partitions = (
        np.where(locations[name] == NULL_INT, 0, np.maximum(locations[name], 0)).astype(np.uint64)
        for name in ("addr", "bytes", "bank", "partitions")
    )
    ends = np.minimum(addr + size, np.uint64(_LARGEST)).astype(np.int64)
    banks = np.minimum(bank + np.uint64(1), np.uint64(_LARGEST)).astype(np.int64)
    return Needs(
        largest(vocabulary.MEM_SB, ends),
        largest(vocabulary.MEM_PSUM, banks),
        largest(vocabulary.MEM_PSUM, partitions.astype(np.int64)),
    )


@dataclass(frozen=True)
class Pads:
    """Scratchpads to make: one item each, by call-site, that in SB before those in PSUM."""

    site: Array
    function: Array
    """The caller."""
    memory: Array
    bank: Array
    partitions: Array
    bytes: Array


def pads_of(site: Array, function: Array, sb_bytes: Array, banks: Array, partitions: Array) -> Pads:
    """List the scratchpads of call-sites.

    Parameters
    ----------
    site, function
        The call-sites and their functions.
    sb_bytes, banks, partitions
        What is to be made for each: none where it is 0.
    """
    in_sb = sb_bytes > 0
    count = in_sb + banks
    item = np.repeat(np.arange(len(site)), count)
    within = np.arange(len(item)) - np.repeat(np.cumsum(count) - count, count)
    is_sb = in_sb[item] & (within == 0)
    return Pads(
        site[item],
        function[item],
        np.where(is_sb, vocabulary.MEM_SB, vocabulary.MEM_PSUM),
        np.where(is_sb, 0, within - in_sb[item]),
        np.where(is_sb, PARTITIONS, partitions[item]),
        np.where(is_sb, sb_bytes[item], PSUM_BANK_BYTES),
    )


def tables_of(
    ir: IR, pads: Pads, names: Strings, first_set: int, first_location: int, addr: int | None
) -> dict[str, Table]:
    """Make the sets, locations and operands of scratchpads.

    Parameters
    ----------
    ir
        The batch of the callers.
    pads
        The scratchpads.
    names
        Names of the call-sites of the scratchpads, one for each.
    first_set, first_location
        Ids of the first of each.
    addr
        The SB address that they are placed at; None leaves them to an allocator.
    """
    count, pools = len(pads.site), ir.pools
    is_sb = pads.memory == vocabulary.MEM_SB
    wanted = _wanted(pads, names, is_sb)
    scope = pads.function.astype(np.int32)
    location_names = fresh_names(ir.tables["locations"].text(), ir.array("locations", "function_id"), wanted, scope)
    set_names = fresh_names(ir.tables["sets"].text(), ir.tables["sets"]["function_id"], suffixed(wanted, "_set"), scope)
    made = {"allocated": int(addr is not None)}
    classes = np.where(
        is_sb, *(vocabulary.TENSOR_CLASSES.code(name) for name in ("NeuronSBTensor", "NeuronPSUMTensor"))
    )
    shapes = [f"[{p},{b}]" for p, b in zip(pads.partitions.tolist(), pads.bytes.tolist(), strict=True)]
    patterns = [f"[[{b},{p}],[1,{b}]]" for p, b in zip(pads.partitions.tolist(), pads.bytes.tolist(), strict=True)]
    uint8 = vocabulary.DTYPES.code("uint8")
    sets = Table.of(
        "sets", count,
        function_id=pads.function,
        ordinal=_ordinals(ir, pads.function),
        name=set_names,
        kind=vocabulary.KIND_INTERNAL,
        tensor_class=classes,
        dtype=uint8,
        tensor_shape=np.array([pools.shapes.intern(shape) for shape in shapes], np.int32),
        **made,
        tensor_id_size=1,
        layout=_layout(ir, ["allocated", "dtype", "kind", "memorylocations", "name", "tensorId2MemLocSize",
                            "tensor_class", "tensor_shape"], ["Skind", "partition_dim"]),
        extra=pools.extras.intern('{"Skind":"memory_location_set","partition_dim":0}'),
    )  # fmt: skip
    locations = Table.of(
        "locations", count,
        set_id=first_set + np.arange(count),
        name=location_names,
        type=pads.memory,
        addr=np.where(is_sb, addr or 0, 0),
        partitions=pads.partitions,
        bytes=pads.bytes,
        bank=pads.bank,
        base=0,
        **made,
        tensor_id=0,
        layout=_layout(ir, ["addr", "allocated", "bank", "base", "dims", "name", "tensor_id", "type"], ["Skind"]),
        extra=pools.extras.intern('{"Skind":"memory_location"}'),
    )  # fmt: skip
    operands = Table.of(
        "operands", count,
        instruction_id=pads.site,
        role=vocabulary.ROLE_OUT,
        kind=vocabulary.OPERAND_PHYSICAL_AP,
        dtype=uint8,
        location_id=first_location + np.arange(count),
        set_id=first_set + np.arange(count),
        offset=0,
        pattern_id=np.array([pools.patterns.intern(pattern) for pattern in patterns], np.int32),
        layout=_layout(ir, ["ap", "dtype", "kind", "memref", "memsetref", "offset"], []),
    )  # fmt: skip
    return {"sets": sets, "locations": locations, "operands": operands}


def _wanted(pads: Pads, names: Strings, is_sb: Array) -> Strings:
    """Return the names that scratchpads would have: `<call-site>_sb_scratch`, `<call-site>_psum_scratch_<bank>`."""
    both = join_text([suffixed(names, "_sb_scratch"), suffixed(names, "_psum_scratch")])
    source = np.arange(len(names)) + np.where(is_sb, 0, len(names))
    return numbered(both, source, np.where(is_sb, -1, pads.bank), "_")


def _ordinals(ir: IR, function: Array) -> Array:
    """Return places behind all allocations of functions, which stand in rising order."""
    last = np.zeros(ir.count("functions"), np.int64)
    for table in ("sets", "registers"):
        np.maximum.at(last, ir.tables[table]["function_id"], ir.tables[table]["ordinal"] + 1)
    return last[function] + np.arange(len(function)) - np.searchsorted(function, function)


def _layout(ir: IR, columns: list[str], raw: list[str]) -> int:
    members = [(layouts.COLUMN, key) for key in columns] + [(layouts.RAW, key) for key in raw]
    return ir.pools.layouts.intern(layouts.layout(sorted(members, key=lambda member: member[1])))
