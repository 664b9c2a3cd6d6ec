"""Rules about what is written and read: sizes, undefined uses, unused tensors, PSUM."""

from typing import Any

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.analyse.footprints import dtype_bytes
from arrowir.analyse.live_ranges import REASONS
from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Facts, Group, found
from arrowir.verify.registry import Found, rule

_TWO_INPUTS = ("TensorTensor", "Select", "TensorScalarPtr", "Matmult")


def _partition_bytes(facts: Facts) -> Array:
    return facts.arch("sbuf_bytes", -1)


def _two_inputs(group: Group) -> Found | None:
    one, other = group.arg(0), group.arg(1)
    capacity = _partition_bytes(group.facts)[group.facts.module[group.rows]]
    a, b = one.of_location("bytes"), other.of_location("bytes")
    bad = one.in_sb & other.in_sb & (capacity >= 0) & (a + b > capacity)
    return group.on(bad & (np.maximum(a, b) <= capacity), input1=a, input2=b, partitionSize=capacity)


def _all_operands(facts: Facts) -> Found | None:
    """Return the instructions whose locations in SB, each counted once, do not fit into a partition together."""
    made, locations = facts.footprints, facts.ir.tables["locations"]
    used = np.flatnonzero(made.addressed & (made.memory == vocab.MEM_SB))
    owner = facts.ir.tables["operands"]["instruction_id"][used].astype(np.int64)
    count = facts.ir.count("locations") + 1
    # Only those can be too large whose operands are, counted each time.
    every = np.zeros(facts.ir.count("instructions"))
    np.add.at(every, owner, np.maximum(locations["bytes"][made.location[used]], 0))
    capacity = _partition_bytes(facts)[facts.module] if len(facts.module) else facts.module
    suspects = (capacity >= 0) & (every > capacity)
    mine = suspects[owner]
    pairs = np.unique(owner[mine] * count + made.location[used][mine])
    total = np.zeros(len(every))
    sizes = locations["bytes"][pairs % count]
    np.add.at(total, pairs // count, np.maximum(sizes, 0))
    largest = np.zeros(len(every))
    np.maximum.at(largest, pairs // count, sizes)
    kernels = np.isin(
        facts.ir.tables["instructions"]["opcode"], (vocab.OP_NKI_KERNEL, vocab.OP_BIR_KERNEL, vocab.OP_CALL)
    )
    return found("instructions", suspects & (total > capacity) & (largest <= capacity) & ~kernels)


def _in_place(facts: Facts) -> Found | None:
    """Return outputs that lie a little behind an input of the same form: elements are written before they are read."""
    made = facts.footprints
    texts = facts.ir.pools.codes["opcode"].texts
    elementwise = np.array([*(vocab.family(t) in ("tensor", "copy") or t == "Activation" for t in texts), False], bool)
    found_: list[tuple[Array, Array]] = []
    first, ins, inner, outs = facts.counts
    rows = np.flatnonzero(elementwise[facts.ir.tables["instructions"]["opcode"]] & (outs > 0) & (ins > 0))
    for place in range(int(ins[rows].max()) if len(rows) else 0):
        mine = rows[ins[rows] > place]
        source, target = first[mine] + place, first[mine] + ins[mine] + inner[mine]
        same = (made.location[source] == made.location[target]) & made.decided[source] & made.decided[target]
        same &= (made.pattern[source] == made.pattern[target]) & (made.size[source] == made.size[target])
        same &= made.partition[source] == made.partition[target]
        same &= made.patterns.last_step[made.pattern[source]] > 0
        ahead = (made.start[target] > made.start[source]) & (made.start[target] < made.end[source])
        contiguous = made.patterns.last_step[made.pattern[source]] == 1
        contiguous |= (made.start[target] - made.start[source]) % np.maximum(
            made.size[source] * made.patterns.last_step[made.pattern[source]], 1
        ) == 0
        hits = same & ahead & contiguous
        found_.append((source[hits], target[hits]))
    source, target = (np.concatenate([pair[k] for pair in found_]) if found_ else rows[:0] for k in (0, 1))
    names = facts.names("locations", made.location[target])
    owner = facts.ir.tables["operands"]["instruction_id"][target]
    fill: dict[str, Any] = {"inst": facts.names("instructions", owner), "arg": _slot(facts, source), "out": names}
    return Found("operands", target, fill) if len(target) else None


def _slot(facts: Facts, operands: Array) -> list[str]:
    return [f"ins[{place}]" for place in facts.places[operands].tolist()]


# -- tensors ----


_KEPT = [vocab.MEMORY_TYPES.code(name) for name in ("RNGSTATE", "REG")]
"""Memories that hold something when a program starts, and keep it when it ends."""


def _plain(facts: Facts) -> Array:
    """Return a mask of the internal locations that only the instructions of their function use."""
    locations = facts.ir.tables["locations"]
    kind = facts.ir.tables["sets"]["kind"][locations["set_id"]]
    throughout = [REASONS.index(r) for r in ("pinned", "reserved", "aliased", "queue", "elsewhere", "constant")]
    kept = np.isin(locations["type"], _KEPT)
    return (kind == vocab.KIND_INTERNAL) & ~kept & ~np.isin(facts.live.reason, throughout)


def _undefined(facts: Facts) -> Found | None:
    """Return the locations that are read and never written."""
    live = facts.live
    bad = _plain(facts) & (live.reads > 0) & (live.writes == 0) & ~_by_reserve(facts) & ~_by_others(facts)
    return found("locations", bad, first_bad_use=lambda rows: facts.names("locations", rows))


def _by_others(facts: Facts) -> Array:
    """Return the locations that another core may write: those that say so, and shared ones in DRAM."""

    def remote(value: Any) -> bool:
        keys = ("written_by_another_core", "remote_writer_func", "remote_local_target")
        return any(value.get(key) not in (None, False, "") for key in keys)

    locations = facts.ir.tables["locations"]
    shared = facts.ir.tables["sets"]["addr_space"][locations["set_id"]] == vocab.ADDR_SPACES.code("Shared")
    told = facts.test("locations", remote, '"written_by_another_core"', '"remote_writer_func"', '"remote_local_target"')
    return told | (shared & (locations["type"] == vocab.MEM_DRAM))


def _by_reserve(facts: Facts) -> Array:
    """Return the locations that someone reads who may read what was never written."""
    every = np.arange(facts.ir.count("instructions"))
    lenient = np.append(facts.keys("can_read_uninit", every).among(True), False)
    uses = facts.uses
    mask = np.zeros(facts.ir.count("locations"), bool)
    mask[uses.location[lenient[uses.instruction] & ~uses.writes]] = True
    return mask


def _unread(facts: Facts) -> Found | None:
    live = facts.live
    bad = _plain(facts) & (live.reads == 0) & (live.writes > 0) & ~_scratch(facts)
    return found("locations", bad, first_bad_def=lambda rows: facts.names("locations", rows))


def _scratch(facts: Facts) -> Array:
    """Return the locations that a call-site writes: scratchpads are never read."""
    uses = facts.uses
    opcode = facts.ir.tables["instructions"]["opcode"][uses.instruction]
    mask = np.zeros(facts.ir.count("locations"), bool)
    mask[uses.location[np.isin(opcode, (vocab.OP_NKI_KERNEL, vocab.OP_BIR_KERNEL, vocab.OP_CALL))]] = True
    return mask


def _unused(facts: Facts) -> Found | None:
    live, locations = facts.live, facts.ir.tables["locations"]
    bad = _plain(facts) & (live.reads == 0) & (live.writes == 0)
    bad &= (locations["bytes"] != 0) & (locations["partitions"] != 0)
    return found("locations", bad)


# -- PSUM ----


def _psum_outputs(facts: Facts) -> Array:
    made = facts.footprints
    return made.addressed & (made.memory == vocab.MEM_PSUM) & (facts.ir.tables["operands"]["role"] == vocab.ROLE_OUT)


_BF16 = vocab.DTYPES.code("bfloat16")
_MATRIX = ("Matmult", "MatmultSparse", "MatmultMx", "MatmultBase", "Memset")


def _psum_opcodes(facts: Facts) -> Array:
    codes = [facts.ir.pools.codes["opcode"].find(opcode) for opcode in _MATRIX]
    owner = facts.ir.tables["operands"]["instruction_id"]
    return np.isin(facts.ir.tables["instructions"]["opcode"][owner], codes)


def _bf16(facts: Facts) -> Found | None:
    bad = _psum_outputs(facts) & (facts.ir.tables["operands"]["dtype"] == _BF16) & ~_psum_opcodes(facts)
    kernels = np.isin(
        facts.ir.tables["instructions"]["opcode"][facts.ir.tables["operands"]["instruction_id"]],
        (vocab.OP_NKI_KERNEL, vocab.OP_BIR_KERNEL),
    )
    return found("operands", bad & ~kernels)


def _narrow(facts: Facts) -> Found | None:
    """Return outputs in PSUM of other than four bytes; transposes keep their dtype, newer products have bfloat16."""
    operands = facts.ir.tables["operands"]
    owner = operands["instruction_id"]
    size = dtype_bytes(operands["dtype"])
    bad = _psum_outputs(facts) & (size > 0) & (size != 4)
    if not bad.any():
        return None
    opcode = facts.ir.tables["instructions"]["opcode"][owner]
    called = np.isin(opcode, (vocab.OP_NKI_KERNEL, vocab.OP_BIR_KERNEL, vocab.OP_CALL, vocab.OP_MEMSET))
    transposing = facts.keys("is_transpose", owner).among(True)
    newer = (facts.levels[facts.module[owner]] >= 40) & (operands["dtype"] == _BF16)
    other = (operands["dtype"] == _BF16) & ~_psum_opcodes(facts)  # told by that
    bad &= ~called & ~transposing & ~newer & ~other
    location = facts.footprints.location
    return found(
        "operands",
        bad,
        inst=lambda rows: facts.names("instructions", owner[rows]),
        mem=lambda rows: facts.names("locations", location[rows]),
        exceptions_msg="Transposes, and bfloat16 on core_v4, may have others.",
    )


def _several_in_psum(group: Group, word: str, *, scalars: bool) -> Found | None:
    """Return the instructions with more than one input in PSUM; single values do not count with `scalars`."""
    reads = [o.in_psum & ~(scalars & (o.each == 1)) for o in group.args()]
    count = np.sum(reads, axis=0) if reads else np.zeros(len(group), np.int64)

    def text(hits: Array) -> list[Any]:
        return [" and ".join(f"ins[{k}]" for k, r in enumerate(reads) if r[h]) for h in hits.tolist()]

    return group.on(count > 1, **{word: text})


def _base_partitions(group: Group) -> Found | None:
    one, other = group.arg(0), group.arg(1)
    bad = one.in_sb & other.in_sb & one.decided & other.decided & (one.partition != other.partition)
    return group.on(bad & ~group.engine("Pool"))


RULES = [
    of(_TWO_INPUTS, "BIR037", "both inputs fit into a partition of SB, each counted by itself", "split the tensors",
       _two_inputs, level="memory"),
    rule("BIR228", "memory", "all tensors of an instruction fit into a partition of SB together", "split the tensors",
         _all_operands, same=("BIR229",)),
    rule("BVF029", "memory", "an instruction that writes where it reads does not write ahead",
         "write to another tensor", _in_place),
    rule("GCA024", "memory", "what is read has been written", "write the tensor first, or correct the name", _undefined,
         same=("GCA055",)),
    rule("GCA056", "memory", "what is written is read", "remove what writes it", _unread, severity="note"),
    rule("BFD701", "memory", "a location has a writer or a reader", "remove the location", _unused, severity="note",
         text="Memloc has no writer or reader (`{mem}`)"),
    rule("BIR311", "memory", "nothing but products and `Memset` writes bfloat16 to PSUM", "write float32", _bf16),
    rule("BIR441", "memory", "outputs in PSUM have elements of four bytes", "write float32", _narrow),
    of(("TensorTensor", "Select"), "BVF028", "one input at most is in PSUM", "copy the other to SB first",
       lambda g: _several_in_psum(g, "args", scalars=False), level="memory"),
    of("TensorScalarPtr", "BVF027", "one input at most that is no scalar is in PSUM", "copy the other to SB first",
       lambda g: _several_in_psum(g, "args", scalars=True), level="memory"),
    of("TensorTensor", "BIR297", "inputs in SB start at the same partition", "move one of them", _base_partitions,
       level="memory"),
]  # fmt: skip
