"""Rules about branches, and about registers, which they compare."""

from typing import Any

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.store import Array
from arrowir.verify.control_flow import graph
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import Operands
from arrowir.verify.registry import Found

_COMPARED = ("float32", "int32", "uint32")
_CAB, _UB = "CompareAndBranch", "UnconditionalBranch"
_VALUES = (vocab.OPERAND_IMM_VALUE, vocab.OPERAND_SYMBOLIC_IMM_VALUE)  # the second becomes the first by unrolling


def _counts(group: Group, least: int, most: int, *, outs: bool = False, word: str = "actual") -> Found | None:
    count = group.n_out if outs else group.n_in
    return group.on((count < least) | (count > most), **{word: count})


def _fallthrough(group: Group) -> Found | None:
    """Return the branches of which no target is the block behind theirs."""
    facts = group.facts
    made = graph(facts)
    branches = facts.ir.tables["branches"]
    targets = np.full((len(vocab.BRANCH_SLOTS), facts.ir.count("instructions") + 1), -1, np.int64)
    targets[branches["slot"], branches["instruction_id"]] = branches["block_id"]
    true, false = targets[vocab.SLOT_ON_TRUE][group.rows], targets[vocab.SLOT_ON_FALSE][group.rows]
    block = facts.ir.tables["instructions"]["block_id"][group.rows]
    node = np.full(facts.ir.count("blocks"), -1, np.int64)
    node[made.block] = np.arange(len(made.block))
    after = np.full(len(made.block) + 1, -1, np.int64)
    follows = np.flatnonzero(made.function[1:] == made.function[:-1])
    after[follows] = made.block[follows + 1]
    following = after[node[block]]
    bad = (node[block] >= 0) & (true >= 0) & (false >= 0) & (true != following) & (false != following)

    def names(rows: Array) -> Any:
        return lambda hits: facts.names("blocks", rows[hits])

    return group.on(bad, next=names(following), true=names(true), false=names(false))


def _types_differ(group: Group) -> Found | None:
    one, other = group.arg(0), group.arg(1)
    bad = one.there & other.there & one.is_dtype(*_COMPARED) & other.is_dtype(*_COMPARED) & (one.dtype != other.dtype)
    return group.on(bad, dtype_1=one.dtype_text, dtype_2=other.dtype_text)


def _condition(group: Group, *, elements: bool) -> Found | None:
    """Return the conditions in memory that are no single value of up to four bytes."""
    one = group.arg(0)
    size = one.of_location("bytes") * np.maximum(one.of_location("partitions"), 0)
    if elements:
        bad = one.is_ap & (one.location >= 0) & (one.elements != 1)
        return group.at(one, bad, name=one.location_text, actual_size=one.elements)
    bad = one.is_ap & (one.location >= 0) & (size > 4) & (one.elements == 1)
    return group.at(one, bad, name=one.location_text, actual_size=size)


def _compared(operand: Operands) -> Array:
    return operand.is_placed | operand.is_register | operand.is_imm


def _kind(group: Group, operand: Operands, good: Array) -> Found | None:
    return group.at(operand, ~good, actual=operand.kind_text)


def _edges(group: Group) -> Found | None:
    """Return the branches with a plain dependency that does more than keep an order."""
    edges = group.facts.ir.tables["dependencies"]
    other = (edges["edge"] != vocab.EDGE_ORDERED) & (edges["relation"] == vocab.RELATION_PLAIN)
    first = np.full(group.facts.ir.count("instructions"), -1, np.int64)
    rows = np.flatnonzero(other)[::-1]
    first[edges["instruction_id"][rows]] = rows
    mine = first[group.rows]
    texts = vocab.EDGE_KINDS.values
    return group.on(mine >= 0, actual=lambda hits: [texts[edges["edge"][m]] for m in mine[hits].tolist()])


def _not_everywhere(group: Group) -> Found | None:
    engine = group.facts.ir.tables["instructions"]["engine"][group.rows]
    bad = group.assigned & (engine != vocab.ENGINES.code("ALL"))
    return group.on(bad, actual=group.engine_text)


def _widths(group: Group) -> Found | None:
    source, target = group.arg(0), group.out(0)
    bad = source.there & target.there & (source.size > 0) & (target.size > 0) & (source.size != target.size)
    return group.on(bad, src_type=source.dtype_text, dst_type=target.dtype_text)


def _input_widths(group: Group) -> Found | None:
    one, other = group.arg(0), group.arg(1)
    both = one.is_register & other.is_register & (one.size > 0) & (other.size > 0)

    def widths(hits: Array) -> list[str]:
        sizes = zip(one.size[hits].tolist(), other.size[hits].tolist(), strict=True)
        return [f"{8 * a} and {8 * b} bits" for a, b in sizes]

    return group.on(both & (one.size != other.size), str=widths)


def _wide_alu(group: Group) -> Found | None:
    op = group.key("op")
    wide = group.key("is_64bit").among(True)
    return group.on(wide & op.other_than("add", "subtract", "mult"), actual=op.text)


def _registers_only(group: Group) -> Found | None:
    one, other = group.arg(0), group.arg(1)
    everywhere = group.engine("ALL") & one.there & other.there
    return group.on(everywhere & ~(one.is_register & other.is_register), actual0=one.kind_text, actual1=other.kind_text)


def _tensor_kind(group: Group) -> list[Found]:
    allowed = (vocab.KIND_CONST, vocab.KIND_INTERNAL, vocab.KIND_POINTER)
    operands = (group.arg(0), group.out(0))

    def bad(o: Operands) -> Array:
        return o.is_ap & (o.tensor_kind >= 0) & ~np.isin(o.tensor_kind, allowed)

    return group.each(operands, bad, type=lambda o: o.tensor_kind_text)


_LS = ("TensorLoad", "TensorSave")
_COUNT = "give it as many operands as that"
_OPERAND = "give it an operand of that kind"

RULES = [
    of(_CAB, "BIR072", "a comparison has two inputs", _COUNT,
       lambda g: _counts(g, 2, 2, word="num_args"), level="control_flow", same=("EAE005",)),
    of(_CAB, "BIR073", "both sides of a comparison have one dtype", "convert one side", _types_differ,
       level="control_flow"),
    of(_CAB, "BIR111", "the first side of a comparison is float32, int32 or uint32", "convert it",
       lambda g: g.at(g.arg(0), ~g.arg(0).is_dtype(*_COMPARED), actual=g.arg(0).dtype_text), level="control_flow"),
    of(_CAB, "BIR112", "the second side of a comparison is float32, int32 or uint32", "convert it",
       lambda g: g.at(g.arg(1), ~g.arg(1).is_dtype(*_COMPARED), actual=g.arg(1).dtype_text), level="control_flow"),
    of(_CAB, "BIR142", "a comparison goes on to the next block, one way or the other",
       "let one target be the next block", _fallthrough, level="control_flow", same=("XCG008",)),
    of(_CAB, "EAE010", "a comparison has no outputs", "remove the outputs",
       lambda g: _counts(g, 0, 0, outs=True), level="control_flow"),
    of(_CAB, "EAE030", "the first side of a comparison is memory, a register or an immediate", _OPERAND,
       lambda g: _kind(g, g.arg(0), _compared(g.arg(0))), level="control_flow"),
    of(_CAB, "EAE031", "the second side of a comparison is memory, a register or an immediate", _OPERAND,
       lambda g: _kind(g, g.arg(1), _compared(g.arg(1))), level="control_flow"),
    of(_CAB, "EIL003", "a condition in memory has at most four bytes", "use a location of one value",
       lambda g: _condition(g, elements=False), level="control_flow"),
    of(_CAB, "EIL004", "a condition in memory is one element", "access one element",
       lambda g: _condition(g, elements=True), level="control_flow"),
    of(_CAB, "EIL010", "dependencies of a comparison only keep an order", "make the dependency `Ordered`", _edges,
       level="control_flow", severity="warning"),
    of(_UB, "EAE008", "a branch has no inputs", "remove the inputs", lambda g: _counts(g, 0, 0), level="control_flow"),
    of(_UB, "EAE009", "a branch has no outputs", "remove the outputs", lambda g: _counts(g, 0, 0, outs=True),
       level="control_flow"),
    of("GroupResetSemaphores", "XCG004", "semaphores are reset on all engines", "set the engine `ALL`", _not_everywhere,
       level="control_flow"),
    of(_LS, "BIR143", "a load or save of a register has an input", _COUNT, lambda g: g.on(g.n_in == 0),
       level="control_flow"),
    of(_LS, "BIR144", "a load or save of a register has an output", _COUNT, lambda g: g.on(g.n_out == 0),
       level="control_flow"),
    of(_LS, "BIR145", "registers are loaded from, and saved to, tensors that are no parameters",
       "copy the tensor to an internal one", _tensor_kind, level="control_flow"),
    of("TensorLoad", "EAE012", "a load of a register has one input", _COUNT,
       lambda g: g.on(g.n_in > 1, actual=g.n_in), level="control_flow"),
    of("TensorLoad", "EAE013", "a load of a register has one output", _COUNT,
       lambda g: g.on(g.n_out > 1, actual=g.n_out), level="control_flow"),
    of("TensorLoad", "EAE014", "a register is loaded from memory", _OPERAND,
       lambda g: _kind(g, g.arg(0), g.arg(0).is_placed), level="control_flow"),
    of("TensorLoad", "EAE015", "a load writes a register", _OPERAND,
       lambda g: _kind(g, g.out(0), g.out(0).is_register), level="control_flow"),
    of(_LS, "EBIR011", "a register and what it is loaded from or saved to have as many bytes", "use one dtype", _widths,
       level="control_flow"),
    of("RegisterAlu", "EAE017", "arithmetic on registers of all engines has two inputs", _COUNT,
       lambda g: g.on(g.engine("ALL") & (g.n_in != 2), actual=g.n_in), level="control_flow"),
    of("RegisterAlu", "EAE018", "arithmetic on registers has one output", _COUNT,
       lambda g: _counts(g, 1, 1, outs=True), level="control_flow"),
    of("RegisterAlu", "EAE019", "arithmetic on registers of all engines reads registers", _OPERAND, _registers_only,
       level="control_flow"),
    of("RegisterAlu", "EAE020", "arithmetic on registers writes a register", _OPERAND,
       lambda g: _kind(g, g.out(0), g.out(0).is_register), level="control_flow"),
    of("RegisterAlu", "EBIR010", "the registers of an operation have one width", "convert one of them", _input_widths,
       level="control_flow"),
    of("RegisterAlu", "EBIR013", "64 bits are added, subtracted or multiplied", "use 32 bits, or another operation",
       _wide_alu, level="control_flow"),
    of("RegisterMove", "EAE026", "a move of a register has one input", _COUNT, lambda g: _counts(g, 1, 1),
       level="control_flow"),
    of("RegisterMove", "EAE027", "a move of a register has one output", _COUNT,
       lambda g: _counts(g, 1, 1, outs=True), level="control_flow"),
    of("RegisterMove", "EAE028", "a register takes a register or an immediate", _OPERAND,
       lambda g: _kind(g, g.arg(0), g.arg(0).is_register | np.isin(g.arg(0).kind, _VALUES)),
       level="control_flow"),
    of("RegisterMove", "EAE029", "a move writes a register", _OPERAND,
       lambda g: _kind(g, g.out(0), g.out(0).is_register), level="control_flow"),
    of("RegisterMove", "EBIR012", "both ends of a move have one width", "use one dtype", _widths, level="control_flow"),
]  # fmt: skip
