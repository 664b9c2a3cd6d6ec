"""Rules of our own: what a module says in two places is the same in both."""

import json
from typing import Any

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.analyse.footprints import dtype_bytes
from arrowir.derived import take, zeroed
from arrowir.schema import NULL_INT
from arrowir.store import Array
from arrowir.verify.facts import Facts, distinct, found
from arrowir.verify.registry import Found, rule

LARGEST = 1 << 60


def _other_set(facts: Facts) -> Found | None:
    """Return the operands that name a location and a set that it is not in."""
    operands = facts.ir.tables["operands"]
    location, named = operands["location_id"], operands["set_id"]
    own = take(facts.ir.tables["locations"]["set_id"], location)
    bad = (location >= 0) & (named >= 0) & (own != named)
    return found(
        "operands",
        bad,
        memset=lambda rows: facts.names("sets", named[rows]),
        own=lambda rows: facts.names("sets", own[rows]),
        memloc=lambda rows: facts.names("locations", location[rows]),
    )


def _elements(facts: Facts) -> Array:
    """Return the number of elements of each set, from its shape; -1 without one."""
    shape, texts = facts.ir.tables["sets"]["tensor_shape"], facts.ir.pools.shapes.texts
    count = np.full(len(texts) + 1, -1, np.int64)
    for number in distinct(shape):
        total = 1
        for size in json.loads(texts[number]):
            total = min(total * size, LARGEST)
        count[number] = total
    return count[shape]


def _too_small(facts: Facts) -> Found | None:
    """Return the locations that have fewer bytes than the tensor of their set, where that has one location."""
    sets, locations = facts.ir.tables["sets"], facts.ir.tables["locations"]
    owner = locations["set_id"]
    alone = np.diff(locations.bounds(len(sets)))[owner] == 1
    size = dtype_bytes(sets["dtype"])[owner].astype(np.float64)
    wanted = _elements(facts)[owner] * size
    held = locations["partitions"].astype(np.float64) * locations["bytes"]
    held[(locations["partitions"] < 0) | (locations["bytes"] < 0)] = 0
    # A tensor of 4 GiB is told by BIR156.
    bad = alone & (size > 0) & (wanted < 1 << 32) & (held > 0) & (held < wanted)
    return found(
        "locations",
        bad,
        held=lambda rows: [int(h) for h in held[rows].tolist()],
        wanted=lambda rows: [int(w) for w in wanted[rows].tolist()],
    )


def _mirrored(facts: Facts) -> Found | None:
    """Return the sets that say they are allocated, or are not, while all of their locations say otherwise."""
    sets, locations = facts.ir.tables["sets"], facts.ir.tables["locations"]
    every = np.bincount(locations["set_id"], minlength=len(sets))
    final = np.bincount(locations["set_id"][locations["allocated"] == 1], minlength=len(sets))
    said = sets["allocated"]
    bad = (every > 0) & (((said == 1) & (final == 0)) | ((said == 0) & (final == every)))
    return found("sets", bad, mset=lambda rows: facts.names("sets", rows))


def _table_size(facts: Facts) -> Found | None:
    """Return the sets whose table of locations is too small for their tensor ids."""
    sets, locations = facts.ir.tables["sets"], facts.ir.tables["locations"]
    most = np.full(len(sets), -1, np.int64)
    np.maximum.at(most, locations["set_id"], zeroed(locations["tensor_id"]))
    size = sets["tensor_id_size"]
    return found("sets", (size != NULL_INT) & (most >= size), size=size, most=most)


def _bank(facts: Facts) -> Found | None:
    locations = facts.ir.tables["locations"]
    bad = (locations["type"] != vocab.MEM_PSUM) & (zeroed(locations["bank"]) != 0)
    return found("locations", bad, bank=locations["bank"])


def _dram_base(facts: Facts) -> Found | None:
    locations = facts.ir.tables["locations"]
    on_chip = np.isin(locations["type"], (vocab.MEM_SB, vocab.MEM_PSUM))
    return found("locations", ~on_chip & (zeroed(locations["base"]) != 0), base=locations["base"])


def _zero_stride(facts: Facts) -> Found | None:
    loops = facts.ir.tables["loops"]
    return found("loops", loops["stride"] == 0)


# -- arguments of kernels ----


def _arguments(facts: Facts) -> tuple[Array, Array]:
    """Return the arguments of call-sites whose kernel is known, as a mask, and the kernel of each."""
    ir = facts.ir
    rows, calls = ir.tables["call_arguments"], ir.tables["calls"]
    callee = np.full(ir.count("instructions"), -1, np.int64)
    kernel = ir.tables["instructions"]["opcode"][calls["instruction_id"]] == vocab.OP_NKI_KERNEL
    callee[calls["instruction_id"][kernel]] = calls["callee_id"][kernel]
    mine = callee[rows["instruction_id"]]
    return mine >= 0, mine


def _parameter(facts: Facts) -> Found | None:
    """Return the arguments that name no parameter of the kernel."""
    ir, rows = facts.ir, facts.ir.tables["call_arguments"]
    known, callee = _arguments(facts)
    sets, registers = ir.tables["sets"], ir.tables["registers"]
    of_set = take(sets["function_id"], rows["formal_set_id"])
    of_register = take(registers["function_id"], rows["formal_register_id"])
    good = (of_set == callee) | (of_register == callee)
    texts = ir.pools.names.texts

    def formal(hits: Array) -> list[Any]:
        return [texts[n] if n >= 0 else None for n in rows["formal"][hits].tolist()]

    return found("call_arguments", known & ~good, formal=formal)


def _sizes(facts: Facts) -> Found | None:
    """Return the arguments of another number of bytes than the parameter has."""
    ir, rows = facts.ir, facts.ir.tables["call_arguments"]
    known, _ = _arguments(facts)
    locations = ir.tables["locations"]
    bounds = locations.bounds(ir.count("sets"))
    formal = rows["formal_set_id"]
    single = np.append(np.where(np.diff(bounds) == 1, bounds[:-1], -1), -1)[formal]
    size = np.append(locations["partitions"].astype(np.float64) * locations["bytes"], -1)
    actual = rows["actual_location_id"]
    bad = known & (single >= 0) & (actual >= 0) & (size[single] != size[actual])

    def number(of: Array) -> Any:
        return lambda hits: [int(size[n]) for n in of[hits].tolist()]

    return found(
        "call_arguments",
        bad,
        actual=lambda hits: facts.names("locations", actual[hits]),
        bytes=number(actual),
        formal=lambda hits: facts.names("locations", single[hits]),
        wanted=number(single),
    )


RULES = [
    rule("set_of_location", "references", "the set beside a location is that of the location",
         "correct `memsetref`; `memref` is what counts", _other_set, severity="warning",
         text="`{memloc}` is a memory location of `{own}`, not of `{memset}`"),
    rule("location_too_small", "structure", "a location has the bytes of the tensor",
         "correct `dims`, `tensor_shape` or `dtype`", _too_small, severity="warning",
         text="memory location `{mem}` has {held} bytes for a tensor of {wanted}"),
    rule("allocated_mirror", "structure", "a set says of being allocated what its locations say",
         "correct `allocated` of the set", _mirrored, severity="warning",
         text="`allocated` of set `{mset}` is not that of its memory locations"),
    rule("tensor_id_range", "structure", "the table of a set has room for its tensor ids",
         "correct `tensorId2MemLocSize`", _table_size, severity="warning",
         text="set `{mset}` has a table of {size} for tensor ids up to {most}"),
    rule("bank_outside_psum", "structure", "a bank is one of PSUM", "remove `bank`", _bank, severity="warning",
         text="memory location `{mem}` is not in PSUM, and has bank {bank}"),
    rule("base_outside_chip", "structure", "a first partition is one of SB or PSUM", "remove `base`", _dram_base,
         severity="warning", text="memory location `{mem}` has no partitions, and has base {base}"),
    rule("zero_stride", "control_flow", "a loop goes on", "give it a stride that is not 0", _zero_stride,
         text="the loop has stride 0"),
    rule("unknown_parameter", "call_sites", "an argument names a parameter of the kernel",
         "let the entry name an input or output of the kernel", _parameter,
         text="`{formal}` is no parameter of the kernel"),
    rule("parameter_size", "call_sites", "an argument has the bytes of the parameter", "bind storage of the same size",
         _sizes, text="`{actual}` has {bytes} bytes, and the parameter `{formal}` {wanted}"),
]  # fmt: skip
