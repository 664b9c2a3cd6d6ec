"""Rules about what unrolling and allocating leave nothing of."""

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Facts, Group, found
from arrowir.verify.loops import inside
from arrowir.verify.registry import Found, rule

_SYMBOLIC = (vocab.OPERAND_SYMBOLIC_AP, vocab.OPERAND_SYMBOLIC_PWAP)


def _left(g: Group) -> Found | None:
    function = g.facts.ir.array("instructions", "function_id")[g.rows]
    return g.on(take(g.facts.unrolled, function) == 1)


def _symbolic(facts: Facts) -> Array:
    """Return a mask of the symbolic operands in functions that are unrolled."""
    operands = facts.ir.tables["operands"]
    if not facts.unrolled.any():
        return np.zeros(len(operands), bool)
    function = facts.ir.array("instructions", "function_id")[operands["instruction_id"]]
    return np.isin(operands["kind"], _SYMBOLIC) & (take(facts.unrolled.astype(np.int8), function) == 1)


def _patterns(facts: Facts) -> Found | None:
    looped = inside(facts, ("DoWhile",))[facts.ir.tables["operands"]["instruction_id"]]
    return found("operands", _symbolic(facts) & ~looped)


def _in_loops(facts: Facts, *, outs: bool) -> Found | None:
    operands = facts.ir.tables["operands"]
    looped = inside(facts, ("DoWhile",))[operands["instruction_id"]]
    return found("operands", _symbolic(facts) & looped & ((operands["role"] == vocab.ROLE_OUT) == outs))


def _unallocated(facts: Facts) -> Found | None:
    locations = facts.ir.tables["locations"]
    mine = np.isin(locations["type"], (vocab.MEM_SB, vocab.MEM_PSUM))
    return found(
        "locations",
        mine & (locations["allocated"] != 1),
        mem_type=lambda rows: facts.names("locations", rows, "type"),
        pass_name="the allocator",
    )


_UNROLL = "run the pass `unroll`"

RULES = [
    of("Loop", "BIR430", "no loop is left", _UNROLL, _left, level="unrolled"),
    of("DynamicForLoop", "BIR431", "no dynamic loop is left", "lower the loop", _left, level="unrolled"),
    of("DoWhile", "BIR432", "no `DoWhile` is left", "lower the loop", _left, level="unrolled"),
    of(("GenericIndirectLoad", "GenericIndirectSave"), "BIR433", "no generic load or save is left",
       "lower it to indirect copies", _left, level="unrolled"),
    rule("BIR434", "unrolled", "no symbolic access is left", _UNROLL, _patterns),
    rule("BIR087", "unrolled", "no input in a `DoWhile` is a symbolic access", _UNROLL,
         lambda f: _in_loops(f, outs=False)),
    rule("BIR088", "unrolled", "no output in a `DoWhile` is a symbolic access", _UNROLL,
         lambda f: _in_loops(f, outs=True)),
    rule("BIR440", "allocated", "every location in SB and PSUM has an address", "run the allocator", _unallocated,
         same=("LUR019", "LUR020")),
]  # fmt: skip
