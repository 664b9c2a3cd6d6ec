"""Rules about blocks, terminators, and the control flow graph of each function."""

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.store import Array, starts
from arrowir.verify.facts import Facts, found
from arrowir.verify.registry import Found, rule
from arrowir_kernels import trace_blocks

ENGINES = ("Pool", "Activation", "PE", "DVE", "SP")
"""Engines that run instructions of their own."""

_SHARED = tuple(vocab.ENGINES.code(name) for name in ("Unassigned", "ALL"))


@dataclass(frozen=True)
class Graph:
    """Control flow among the blocks that functions have themselves; nodes are those, in order."""

    block: Array
    """The block of each node."""
    function: Array
    several: Array
    """Whether the function has more than one block."""
    source: Array
    target: Array
    """Edges, each once: nodes."""
    entries: Array
    exits: Array
    """Number of edges to and from each node."""
    reached: Array
    retreating: Array
    dominating: Array
    """Per edge: whether it goes back to a block that the way to it passed, and whether every way passes that."""
    first: Array
    """The first node of each node's function."""


_GRAPHS: "WeakKeyDictionary[Facts, Graph]" = WeakKeyDictionary()


def terminators(facts: Facts) -> Array:
    """Return a mask of the instructions that end a block."""
    return np.isin(facts.ir.tables["instructions"]["opcode"], vocab.TERMINATORS)


def graph(facts: Facts) -> Graph:
    """Return the control flow graph; it is made once."""
    if facts not in _GRAPHS:
        _GRAPHS[facts] = _graph(facts)
    return _GRAPHS[facts]


def _graph(facts: Facts) -> Graph:
    ir = facts.ir
    blocks, instructions = ir.tables["blocks"], ir.tables["instructions"]
    block = np.flatnonzero((blocks["instruction_id"] < 0) & (blocks["function_id"] >= 0))
    function = blocks["function_id"][block]
    node = np.full(len(blocks) + 1, -1, np.int64)
    node[block] = np.arange(len(block))
    bounds = starts(np.bincount(function, minlength=ir.count("functions")))
    several = np.diff(bounds)[function] > 1
    ending = terminators(facts)
    ends = np.zeros(len(blocks), bool)
    ends[instructions["block_id"][ending]] = True
    falling = np.flatnonzero(~ends[block] & (np.arange(len(block)) + 1 < bounds[1:][function]))
    branches = ir.tables["branches"]
    of = node[instructions["block_id"][branches["instruction_id"]]]
    to = node[branches["block_id"]]  # one that does not resolve is the last item
    kept = (of >= 0) & (to >= 0) & ending[branches["instruction_id"]]
    pairs = np.stack((np.append(of[kept], falling), np.append(to[kept], falling + 1)), axis=1)
    pairs = np.unique(pairs, axis=0) if len(pairs) else pairs.reshape(0, 2)
    source, target = np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
    backwards = np.argsort(target, kind="stable")
    count = len(block)
    exits, entries = np.bincount(source, minlength=count), np.bincount(target, minlength=count)
    state, retreating, dominating = (np.zeros(n, np.int8) for n in (count, len(source), len(source)))
    trace_blocks(
        bounds, starts(exits), target, starts(entries), source[backwards], np.zeros(5 * count, np.int64), state,
        retreating, dominating,
    )  # fmt: skip
    return Graph(
        block, function, several, source, target, entries, exits, state == 2, retreating == 1, dominating == 1,
        bounds[:-1][function],
    )  # fmt: skip


def _names(facts: Facts, made: Graph, nodes: Array) -> list[Any]:
    return facts.names("blocks", made.block[nodes])


def _on(facts: Facts, made: Graph, mask: Array, **fill: Array) -> Found | None:
    """Return blocks as found; what is filled in are the names of nodes."""
    hits = np.flatnonzero(mask)
    filled = {word: _names(facts, made, nodes[hits]) for word, nodes in fill.items()}
    return Found("blocks", made.block[hits], dict(filled)) if len(hits) else None


def _on_edges(facts: Facts, made: Graph, mask: Array, **fill: Array) -> Found | None:
    hits = np.flatnonzero(mask)
    filled = {word: _names(facts, made, nodes[hits]) for word, nodes in fill.items()}
    return Found("blocks", made.block[made.source[hits]], dict(filled)) if len(hits) else None


# -- blocks ----


def _open_blocks(facts: Facts) -> Found | None:
    """Return the blocks of functions of several that end otherwise than in a terminator; the last may."""
    made = graph(facts)
    instructions = facts.ir.tables["instructions"]
    held = np.bincount(instructions["block_id"], minlength=facts.ir.count("blocks"))
    after = starts(held)[1:]
    last = after[made.block] - 1
    followed = np.append(made.function[1:] == made.function[:-1], False) if len(made.block) else made.several
    ending = terminators(facts)
    bad = made.several & followed & (held[made.block] > 0)
    bad[bad] = ~ending[last[bad]]
    has_one = np.zeros(len(held), bool)
    has_one[instructions["block_id"][ending]] = True
    hits = np.flatnonzero(bad & ~has_one[made.block])
    fill = {"inst_name": facts.names("instructions", last[hits])}
    return Found("blocks", made.block[hits], dict(fill)) if len(hits) else None


def _after_terminator(facts: Facts) -> Found | None:
    """Return what stands behind a terminator of its block and engine, and is none; engines have orders of their own."""
    ending = terminators(facts)
    instructions = facts.ir.tables["instructions"]
    block, engine = instructions["block_id"], instructions["engine"]
    rows = np.flatnonzero(ending & (facts.ir.array("instructions", "function_id") >= 0))
    if not len(rows):
        return None
    shared = np.isin(engine, _SHARED) | (engine < 0)
    late = np.full((facts.ir.count("blocks"), 64), len(block))  # where each engine of a block has ended
    own = np.where(shared, 0, np.clip(engine, 0, 62) + 1)
    np.minimum.at(late, (block[rows], own[rows]), rows)
    first, everywhere = late.min(axis=1), late[:, 0]
    after = np.where(shared, first[block], np.minimum(everywhere[block], late[block, own]))
    return found("instructions", (np.arange(len(block)) > after) & ~ending)


def _returns(facts: Facts) -> Array:
    """Return the number of returns in each block, of the engine that has most; common ones are of one engine."""
    instructions = facts.ir.tables["instructions"]
    rows = np.flatnonzero(instructions["opcode"] == vocab.OP_RETURN)
    engine = instructions["engine"][rows]
    own = np.where(np.isin(engine, _SHARED) | (engine < 0), 0, np.clip(engine, 0, 62) + 1)
    keys, count = np.unique(instructions["block_id"][rows].astype(np.int64) * 64 + own, return_counts=True)
    most = np.zeros(facts.ir.count("blocks"), np.int64)
    np.maximum.at(most, keys // 64, count)
    return most


def _several_returns(facts: Facts) -> Found | None:
    return found("blocks", _returns(facts) > 1)


def _per_engine(facts: Facts) -> Found | None:
    """Return terminators that are the second on their engine in a block."""
    instructions = facts.ir.tables["instructions"]
    rows = np.flatnonzero(terminators(facts))
    rows = rows[_returns(facts)[instructions["block_id"][rows]] < 2]
    key = instructions["block_id"][rows].astype(np.int64) * 64 + np.clip(instructions["engine"][rows], -1, 62) + 1
    _, first, count = np.unique(key, return_index=True, return_counts=True)
    mask = np.zeros(len(instructions), bool)
    mask[rows] = True
    mask[rows[first]] = False
    mask &= len(count) < len(rows)
    return found("instructions", mask, engine_name=lambda r: facts.names("instructions", r, "engine"))


def _engines(facts: Facts) -> tuple[Array, Array]:
    """Return for each block whether a terminator is on all engines, and on how many single ones there is one."""
    instructions = facts.ir.tables["instructions"]
    rows = np.flatnonzero(terminators(facts))
    block, engine = instructions["block_id"][rows], instructions["engine"][rows]
    blocks = facts.ir.count("blocks")
    shared = np.zeros(blocks, bool)
    shared[block[np.isin(engine, _SHARED) | (engine < 0)]] = True
    single = ~np.isin(engine, _SHARED) & (engine >= 0)
    pairs = np.unique(block[single].astype(np.int64) * 64 + np.minimum(engine[single], 63))
    return shared, np.bincount(pairs // 64, minlength=blocks)


def _mixed(facts: Facts) -> Found | None:
    shared, single = _engines(facts)
    return found("blocks", shared & (single > 0))


def _some_engines(facts: Facts) -> Found | None:
    shared, single = _engines(facts)
    bad = ~shared & (single > 0) & (single < len(ENGINES))
    return found("blocks", bad, actual=lambda rows: single[rows].tolist(), num_datapath_engines=len(ENGINES))


# -- graphs ----


def _exits(facts: Facts) -> Found | None:
    made = graph(facts)
    last = made.reached & (made.exits == 0)
    first = np.full(facts.ir.count("functions"), -1, np.int64)
    nodes = np.flatnonzero(last)[::-1]
    first[made.function[nodes]] = nodes
    more = last & (first[made.function] != np.arange(len(made.block)))
    return _on(facts, made, more, block_a=first[made.function], block_b=np.arange(len(made.block)))


def _endless(facts: Facts) -> Found | None:
    """Return the first block that goes back, of each function without an end."""
    made = graph(facts)
    ends = np.bincount(made.function[made.reached & (made.exits == 0)], minlength=facts.ir.count("functions"))
    back = made.source[made.retreating]
    back = np.sort(back[ends[made.function[back]] == 0])
    mask = np.zeros(len(made.block), bool)
    mask[back[np.unique(made.function[back], return_index=True)[1]]] = True
    return _on(facts, made, mask)


def _entries(facts: Facts) -> Found | None:
    made = graph(facts)
    own = np.arange(len(made.block))
    return _on(facts, made, _orphans(made), block_a=made.first, block_b=own)


def _orphans(made: Graph) -> Array:
    """Return the blocks that nothing leads to, but for the first of a function."""
    return (made.entries == 0) & (made.first != np.arange(len(made.block)))


def _no_entry(facts: Facts) -> Found | None:
    made = graph(facts)
    functions = facts.ir.count("functions")
    free = np.bincount(made.function[made.entries == 0], minlength=functions)
    return found("functions", (np.bincount(made.function, minlength=functions) > 0) & (free == 0))


def _unreachable(facts: Facts) -> Found | None:
    """Return blocks that only blocks lead to which nothing reaches; what follows an orphan is told by that."""
    made = graph(facts)
    orphaned = np.bincount(made.function[_orphans(made)], minlength=facts.ir.count("functions")) > 0
    return _on(facts, made, ~made.reached & ~orphaned[made.function], unreachable_block_name=np.arange(len(made.block)))


def _two_back_edges(facts: Facts) -> Found | None:
    made = graph(facts)
    back = np.flatnonzero(made.retreating & made.dominating)
    mask = np.zeros(len(made.source), bool)
    again = back[1:][made.source[back[1:]] == made.source[back[:-1]]]
    mask[again] = True
    before = np.concatenate((made.target[:1], made.target[:-1]))
    return _on_edges(facts, made, mask, source_block=made.source, target_block_1=before, target_block_2=made.target)


def _order(facts: Facts) -> Found | None:
    made = graph(facts)
    bad = ~made.retreating & (made.target <= made.source) & made.reached[made.source]
    return _on_edges(facts, made, bad, block1=made.target, block2=made.source)


def _irreducible(facts: Facts) -> Found | None:
    made = graph(facts)
    hits = np.flatnonzero(made.retreating & ~made.dominating)
    src, dst = _names(facts, made, made.source[hits]), _names(facts, made, made.target[hits])
    edges = [f"{a} -> {b}" for a, b in zip(src, dst, strict=True)]
    fill: dict[str, Any] = {"back_edge": edges, "src": src, "dst": dst}
    return Found("blocks", made.block[made.source[hits]], fill) if len(hits) else None


RULES = [
    # Readers of dumps let such a block go on in the next one, and so does rule N13.
    rule("BIR079", "control_flow", "a block ends in a terminator, where a function has several",
         "end the block in a branch or a `Return`", _open_blocks, severity="warning"),
    rule("BIR080", "control_flow", "nothing but terminators follows a terminator",
         "move the instruction before the terminators", _after_terminator),
    rule("SIM045", "control_flow", "a block has one `Return` for each engine, or for all", "keep one of them",
         _several_returns),
    rule("BIR107", "control_flow", "a block has one terminator for each engine", "keep one of them", _per_engine),
    rule("BIR108", "control_flow", "a terminator for all engines stands alone",
         "give all engines a terminator of their own, or keep the common one", _mixed),
    # A branch that inlining makes is on the engine of its call-site (rule N13), so this is no error.
    rule("BIR109", "control_flow", "every engine has a terminator, if there is none for all",
         "add terminators for the other engines, or set the engine `ALL`", _some_engines, severity="warning"),
    rule("BIR082", "control_flow", "a function ends in one block", "let the other blocks branch to the last one",
         _exits, same=("CFG001",)),
    rule("BIR083", "control_flow", "a function ends", "let a block end in a `Return`", _endless, same=("CFG002",)),
    rule("BIR084", "control_flow", "a function begins in one block", "remove the block, or branch to it", _entries,
         same=("CFG003", "CFG007", "CFG008")),
    rule("BIR085", "control_flow", "nothing leads back to the block that a function begins in",
         "begin the function with a block that branches there", _no_entry, same=("CFG004",)),
    rule("BIR097", "control_flow", "every block is reached", "remove the block, or branch to it", _unreachable,
         same=("CFG005",)),
    rule("BIR086", "control_flow", "a block goes back to one other block", "give each loop a block that ends it",
         _two_back_edges, same=("CFG006",)),
    rule("BIR090", "control_flow", "a block stands behind those that lead to it, loops aside", "move the block", _order,
         same=("CFG011",)),
    rule("CFG015", "control_flow", "a loop is entered at one block", "let all ways into the loop pass its first block",
         _irreducible),
]  # fmt: skip
