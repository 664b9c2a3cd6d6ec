"""Rules about dependencies between instructions."""

from weakref import WeakKeyDictionary

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.store import Array, starts
from arrowir.verify.facts import Facts, found
from arrowir.verify.registry import Found, rule
from arrowir_kernels import peel


def _plain(facts: Facts) -> tuple[Array, Array]:
    """Return the plain edges that lead somewhere: who waits, and for whom."""
    edges = facts.ir.tables["dependencies"]
    known = (edges["relation"] == vocab.RELATION_PLAIN) & (edges["on_instruction_id"] >= 0)
    return edges["instruction_id"][known].astype(np.int64), edges["on_instruction_id"][known].astype(np.int64)


def _self(facts: Facts) -> Found | None:
    edges = facts.ir.tables["dependencies"]
    own = (edges["relation"] == vocab.RELATION_PLAIN) & (edges["on_instruction_id"] == edges["instruction_id"])
    return found("dependencies", own)


_CYCLIC: "WeakKeyDictionary[Facts, Array]" = WeakKeyDictionary()


def _cyclic(facts: Facts) -> Array:
    """Return a mask of the instructions on cycles of plain dependencies, and between such cycles."""
    if facts not in _CYCLIC:
        _CYCLIC[facts] = _peeled(facts)
    return _CYCLIC[facts]


def _peeled(facts: Facts) -> Array:
    waits, on = _plain(facts)
    waits, on = waits[waits != on], on[waits != on]
    rows = facts.ir.count("instructions")
    # Edges to earlier rows alone make no cycle; rows of nested blocks stand behind those around them.
    if not len(waits) or (on < waits).all():
        return np.zeros(rows, bool)
    marked = np.ones(rows, bool)
    for one, other in ((waits, on), (on, waits)):
        order = np.argsort(one, kind="stable")
        left, queue = np.empty(rows, np.int64), np.empty(rows, np.int64)
        peel(starts(np.bincount(one, minlength=rows)), other[order], left, queue)
        marked &= left > 0
    return marked


def _cycles(facts: Facts) -> Found | None:
    """Return the first instruction on cycles of each function."""
    cyclic = np.flatnonzero(_cyclic(facts))
    function = facts.ir.array("instructions", "function_id")[cyclic]
    _, first = np.unique(function, return_index=True)
    mask = np.zeros(facts.ir.count("instructions"), bool)
    mask[cyclic[first]] = True
    return found("instructions", mask)


def _order(facts: Facts) -> Found | None:
    """Return the edges on an instruction that stands later in the same block; those of a cycle have no order."""
    edges = facts.ir.tables["dependencies"]
    block, cyclic = facts.ir.tables["instructions"]["block_id"], _cyclic(facts)
    waits, on = edges["instruction_id"], edges["on_instruction_id"]
    known = (edges["relation"] == vocab.RELATION_PLAIN) & (on > waits)
    later = np.zeros(len(edges), bool)
    waiting, target = waits[known], on[known]
    later[known] = (block[waiting] == block[target]) & ~(cyclic[waiting] & cyclic[target])
    return found(
        "dependencies",
        later,
        name=lambda rows: facts.names("instructions", waits[rows]),
        on=lambda rows: facts.names("instructions", on[rows]),
    )


RULES = [
    rule("INST-selfdep", "structure", "an instruction does not wait for itself", "remove the dependency", _self,
         text="an instruction depends on itself (this != former)"),
    rule("SCH725", "structure", "no instruction waits, by way of others, for itself",
         "remove a dependency of the cycle", _cycles, same=("SCH718",)),
    rule("SCH719", "structure", "what an instruction waits for stands before it in its block",
         "move the instruction, or remove the dependency", _order, severity="warning",
         text="topological order violations (`{name}` stands before `{on}`)"),
]  # fmt: skip
