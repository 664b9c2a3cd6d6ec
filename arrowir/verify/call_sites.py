"""Rules about call-sites of kernels."""

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.schema import NULL_INT
from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Facts, Group, Keys
from arrowir.verify.operands import Operands
from arrowir.verify.registry import Found

_NKI, _KERNELS = "NKIKernel", ("NKIKernel", "BIRKernel", "NKIKLIRKernel")
LANES, BANKS = 128, 8


def _named(g: Group) -> Array:
    """Return the call-sites with a callee, or the name of one."""
    calls = g.facts.ir.tables["calls"]
    mask = np.zeros(g.facts.ir.count("instructions"), bool)
    mask[calls["instruction_id"][(calls["callee_id"] >= 0) | (calls["name"] >= 0)]] = True
    return mask[g.rows]


def _undefined(g: Group) -> Found | None:
    calls, texts = g.facts.ir.tables["calls"], g.facts.ir.pools.names.texts
    name = np.full(g.facts.ir.count("instructions"), -1, np.int64)
    name[calls["instruction_id"]] = calls["name"]
    mine = name[g.rows]
    return g.on(mine >= 0, name=lambda hits: [texts[n] for n in mine[hits].tolist()])


def _sb(g: Group) -> tuple[Array, Array]:
    shape = g.key("sb_buf_shape")
    return shape.item(0, 0), shape.item(1, 0)


def _psum(g: Group) -> tuple[Array, Array, Array]:
    shape = g.key("psum_buf_shape")
    return shape.item(0, 0), shape.item(1, 0), shape.item(2, 0)


def _lanes(g: Group) -> Found | None:
    lanes, size = _sb(g)
    return g.on((lanes > 0) & (size > 0) & (lanes != LANES), kernel_num_partitions=lanes, arch_num_partitions=LANES)


def _half(g: Group) -> Found | None:
    lanes, size = _sb(g)
    bad = ((lanes > 0) != (size > 0)) | (lanes < 0) | (size < 0)
    return g.on(bad, sb_num_partitions=lanes, sb_per_partition_size=size)


def _banks(g: Group) -> Found | None:
    banks = _psum(g)[0]
    most = g.facts.arch("psum_banks", BANKS)[g.facts.module[g.rows]]
    return g.on(banks > most, psum_bank_count=banks, arch_psum_banks=most)


def _psum_lanes(g: Group) -> Found | None:
    lanes = _psum(g)[1]
    most = g.facts.arch("psum_partitions", LANES)[g.facts.module[g.rows]]
    return g.on(lanes > most, psum_num_partitions=lanes, arch_num_partitions=most)


def _outputs(g: Group) -> Found | None:
    lanes, size = _sb(g)
    buffers = ((lanes != 0) | (size != 0)).astype(np.int64)
    banks = np.maximum(_psum(g)[0], 0)
    bad = g.n_out < buffers + banks
    return g.on(bad, actual_outputs=g.n_out, expected_min_outputs=buffers + banks, num_sb_buffers=buffers,
                num_psum_buffers=banks)  # fmt: skip


def _scope(g: Group) -> Found | None:
    scope = g.key("address_rotation_scope_val")
    good = ("None", "Kernel", "Global", 0, 1, 2)
    return g.on(scope.other_than(*good), scope=scope.text)


def _source(g: Group) -> Found | None:
    source: Keys = g.key("kernel_source_val")
    known = ("Beta1", "Beta2", "Beta3", 0, 1, 2, None)
    return g.on(source.test(lambda v: isinstance(v, bool) or v not in known), source=source.text)


def _base(g: Group) -> list[Found]:
    """Return the arguments of kernels in SB or PSUM that do not start at partition 0."""

    def bad(o: Operands) -> Array:
        base = o.of_location("base", 0)
        return (o.in_sb | o.in_psum) & (base != 0) & (base != NULL_INT)

    return g.each((*g.args(), *g.outs()), bad)


def _scratchpad(g: Group) -> Found | None:
    """Return the scratchpads in SB whose set has other than one location."""
    facts = g.facts
    lanes, size = _sb(g)
    banks = np.maximum(_psum(g)[0], 0)
    place = g.n_out - banks - 1
    has = ((lanes != 0) | (size != 0)) & (place >= 0)
    first, ins, inner, _ = facts.counts
    ids = np.where(has, first[g.rows] + ins[g.rows] + inner[g.rows] + place, -1)
    o = facts.operands(ids)
    return g.at(o, _set_size(facts, o) > 1)


def _set_size(facts: Facts, o: Operands) -> Array:
    """Return how many locations the set has that an operand is in; 0 where that is not known."""
    counts = np.diff(facts.ir.tables["locations"].bounds(facts.ir.count("sets")))
    named = take(facts.ir.tables["operands"]["set_id"], o.ids)
    owner = np.where(o.location >= 0, o.of_location("set_id"), named)
    return np.where(owner < 0, 0, np.append(counts, 0)[owner])


def _parameters(g: Group) -> list[Found]:
    """Return the call-sites whose callee has a parameter of other than one location."""
    ir = g.facts.ir
    sets = ir.tables["sets"]
    counts = np.diff(ir.tables["locations"].bounds(len(sets)))
    parameter = np.isin(sets["kind"], sorted(vocab.INPUT_KINDS | vocab.OUTPUT_KINDS))
    wrong = np.full(ir.count("functions") + 1, -1, np.int64)
    wrong[sets["function_id"][parameter & (counts != 1)]] = counts[parameter & (counts != 1)]
    calls = ir.tables["calls"]
    callee = np.full(ir.count("instructions"), -1, np.int64)
    callee[calls["instruction_id"]] = calls["callee_id"]
    mine = wrong[callee[g.rows]]
    one = g.on((callee[g.rows] >= 0) & (mine >= 0), memloc_count=mine)
    return [] if one is None else [one]


_SHAPES = "correct `sb_buf_shape`"

RULES = [
    of(_NKI, "BIR205", "a call-site names its kernel", "let `func` name a function",
       lambda g: g.on(~_named(g)), level="call_sites", same=("NKI001",)),
    of(_NKI, "EBIR014", "the kernel that a call-site names is in the module", "add the function, or correct `func`",
       _undefined, level="call_sites", text="NKI Kernel call references undefined Kernel (`{name}`)"),
    of(_KERNELS, "EBIR015", "a scratchpad in SB has 128 partitions", _SHAPES, _lanes, level="call_sites",
       same=("EDMA002",)),
    of(_KERNELS, "EBIR016", "a scratchpad in SB has partitions and bytes, or neither", _SHAPES, _half,
       level="call_sites"),
    of(_KERNELS, "EBIR017", "scratchpads in PSUM are as many as there are banks at most", "correct `psum_buf_shape`",
       _banks, level="call_sites"),
    of(_KERNELS, "EBIR018", "a scratchpad in PSUM has as many partitions as PSUM at most", "correct `psum_buf_shape`",
       _psum_lanes, level="call_sites"),
    of(_KERNELS, "EBIR019", "a call-site has an output for each scratchpad", "add the scratchpads to the outputs",
       _outputs, level="call_sites", same=("NKI003",)),
    of(_KERNELS, "EBIR020", "addresses are rotated in a known scope", "correct `address_rotation_scope_val`", _scope,
       level="call_sites"),
    of(_NKI, "SEED-source", "a kernel is of a known front end", "write `Beta1`, `Beta2` or `Beta3`", _source,
       level="call_sites", text="Unrecognized kernel source encountered. (`{source}`)"),
    of(_KERNELS, "KERN-base0", "arguments of a kernel start at partition 0", "place them at partition 0", _base,
       level="call_sites"),
    of(_NKI, "NKI004", "a scratchpad in SB is one location", "split the set", _scratchpad, level="call_sites"),
    of(_NKI, "NKI006", "a parameter of a kernel is one location", "split the set", _parameters, level="call_sites"),
]  # fmt: skip
