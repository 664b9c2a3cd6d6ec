"""What the text of instructions says: which rewrite may apply, what a Memset writes, what has an effect (C1 to C3)."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.ir import IR
from arrowir.passes.constants.code import distinct_ids
from arrowir.passes.unrolling.loops import of_each
from arrowir.store import Array

NOTHING, COPY, SELECT, AND, OR, START, ACCUMULATE = range(7)
"""Kinds of instructions that rule C2 rewrites: the last two are products that begin a sum, and that add to one."""

_COPIES = (vocab.OP_TENSOR_COPY, vocab.OP_GENERIC_COPY, vocab.OP_LOAD, vocab.OP_SAVE)
_ACCUMULATORS = ("acc", "reduce_cmd", "accumulator_cmd")

_PURE_NAMES = (
    *(
        "GenericCopy",
        "GenericRelu",
        "AbstractCopy",
        "Activation",
        "Matmult",
        "MatmultSparse",
        "MatmultMx",
        "QuantizeMx",
    ),
    *("Memset", "GetGlobalRankId", "Load", "Save", "DMACopy", "ReadVarAddr", "GenericIndirectLoad", "IndirectLoad"),
    *("GenericIndirectSave", "IndirectSave", "IndirectSaveAccumulate", "Pool", "Reciprocal", "TensorCopy"),
    *(
        "TensorCopyDynamicSrc",
        "TensorCopyDynamicDst",
        "IndirectCopy",
        "TensorReduce",
        "TensorScalar",
        "TensorScalarPtr",
    ),
    *("TensorScalarCache", "TensorTensor", "BNStats", "BNStatsAggregate", "BNGradients", "BNBackprop", "BNBackprop2"),
    *("StreamShuffle", "StreamTranspose", "Select", "CopyPredicated", "Iota", "TensorScalarAffineSelect"),
    *("RangeSelect", "GetSequenceBounds", "Max", "MaxIndex", "MatchReplace", "MaxIndexAndMatchReplace", "Gather"),
    *("Exponential", "NonzeroWithCount"),
)
PURE = tuple(vocab.OPCODES.code(name) for name in _PURE_NAMES)
"""Opcodes that do nothing but write their outputs, unless a key says so (rule C3)."""


_PRODUCTS = tuple(vocab.OPCODES.code(name) for name in ("Matmult", "MatmultSparse", "MatmultMx"))
_SAVES = ("DMACopy", "GenericIndirectSave", "IndirectSaveAccumulate")
_ADDING = (*_PRODUCTS, *(vocab.OPCODES.code(name) for name in _SAVES))
"""Opcodes that add to what their outputs hold, if a key says so."""


@cache
def own_keys(opcode: str) -> frozenset[str]:
    """Return the keys that belong to an opcode, in all builds."""
    return frozenset(key.name for older in (False, True) for key in vocab.opcode_keys(opcode, older=older))


@cache
def _defaults(opcode: str) -> dict[str, Any]:
    return {key.name: key.default for older in (True, False) for key in vocab.opcode_keys(opcode, older=older)}


def _members(text: str) -> dict[str, Any]:
    return extras.parse(text) if text else {}


def rewriting_kinds(ir: IR, opcode: Array, extra: Array, *, assume_finite: bool) -> Array:
    """Return for each instruction the kind of rewrite that it may get, by its opcode and keys alone."""
    found = np.full(len(opcode), NOTHING, np.int8)
    found[np.isin(opcode, _COPIES)] = COPY
    found[opcode == vocab.OP_SELECT] = SELECT
    for code, kind in ((vocab.OP_DMA_COPY, _dma_kind), (vocab.OP_TENSOR_TENSOR, _logical_kind)):
        _tell(ir, opcode == code, extra, kind, found)
    if assume_finite:
        _tell(ir, opcode == vocab.OP_MATMULT, extra, _matmult_kind, found)
    return found


def _tell(ir: IR, mask: Array, extra: Array, kind: Callable[[dict[str, Any]], int], found: Array) -> None:
    pool, rows = ir.pools.extras, np.flatnonzero(mask)
    if len(rows):
        found[rows] = of_each(extra[rows], len(pool), lambda i: kind(_members(pool[i])), absent=kind({}))


def _dma_kind(members: dict[str, Any]) -> int:
    """A DMACopy is a copy in that mode, when it does nothing else on its way."""
    usual = {"mode": "Copy", "cce_op": "bypass", "transpose_op": "None"}
    plain = all(members.get(key) in (None, value) for key, value in usual.items())
    plain &= all(members.get(key) in (None, []) for key in ("constants", "remote_notification", "replica_groups"))
    return COPY if plain else NOTHING


def _logical_kind(members: dict[str, Any]) -> int:
    if members.get("acc") not in (None, "Idle"):
        return NOTHING
    return {"logical_and": AND, "logical_or": OR}.get(str(members.get("op")), NOTHING)


def _matmult_kind(members: dict[str, Any]) -> int:
    """Whether a product begins a sum or adds to one; not those with zero points, nor transposes.

    One that zeroes further banks of PSUM is no Memset either.
    """
    zeroes = ("ifmap_quant_offset", "weights_quant_offset", "is_transpose")
    if any(members.get(key) not in (None, 0, False) for key in zeroes):
        return NOTHING
    mode = _product_mode(members)
    if mode == START:
        return START if members.get("psum_zero_region") in (None, 0) else NOTHING
    return ACCUMULATE if mode == ACCUMULATE else NOTHING


def _product_mode(members: dict[str, Any]) -> int | None:
    """Return whether a product begins a sum, adds to one, or does neither (`NOTHING`); None where that is not known."""
    starts, flag = members.get("start_tensor_calc"), members.get("accumulation_flag")
    if starts is not None:
        return (START if starts else ACCUMULATE) if isinstance(starts, bool) else None
    if not isinstance(flag, int | None) or isinstance(flag, bool):
        return None
    return START if (flag or 0) & 1 else ACCUMULATE if (flag or 0) & 2 else NOTHING


def adding(ir: IR, opcode: Array, extra: Array) -> Array:
    """Tell for each instruction whether it adds to what its outputs hold, or may."""
    found = np.zeros(len(opcode), np.int8)
    for code in np.intersect1d(opcode, _ADDING).tolist():
        kind = _product_adds if code in _PRODUCTS else _dma_adds(vocab.OPCODES.values[code])
        _tell(ir, opcode == code, extra, kind, found)
    return found > 0


def _product_adds(members: dict[str, Any]) -> int:
    return int(_product_mode(members) in (ACCUMULATE, None))


def _dma_adds(opcode: str) -> Callable[[dict[str, Any]], int]:
    key = "cce_op" if opcode == "DMACopy" else "op"
    default = _defaults(opcode)[key]
    return lambda members: int((default if members.get(key) is None else members[key]) != "bypass")


def memset_bits(ir: IR, extra: Array) -> tuple[Array, Array]:
    """Return the bit pattern that each Memset fills with, and whether it is one that is known: `Const`, an integer."""
    pool = ir.pools.extras
    different, place = distinct_ids(extra)
    found = [_constant(_members(pool[i] if i >= 0 else "")) for i in different.tolist()]
    bits = np.array([0 if bits is None else bits for bits in found], np.uint64)
    return bits[place], np.array([bits is not None for bits in found], bool)[place]


def _constant(members: dict[str, Any]) -> int | None:
    constant = members.get("constant")
    if members.get("mode") != "Const" or not isinstance(constant, int) or isinstance(constant, bool):
        return None
    return constant if 0 <= constant < 2**64 else None


def predicated(ir: IR, extra: Array) -> Array:
    """Tell for each instruction whether it has predicates: then it may not be executed."""
    pool = ir.pools.extras
    return (
        of_each(extra, len(pool), lambda i: '"predicates"' in pool[i] and bool(_members(pool[i]).get("predicates"))) > 0
    )


def lasting(ir: IR, opcode: Array, extra: Array) -> Array:
    """Tell for each instruction of an opcode in `PURE` whether its keys say that it does more than write outputs."""
    pool = ir.pools.extras
    found = np.zeros(len(opcode), bool)
    for code in np.unique(opcode).tolist():
        name = vocab.OPCODES.values[code]
        mine = np.flatnonzero(opcode == code)
        fact = of_each(
            extra[mine], len(pool), lambda i, name=name: _lasts(name, _members(pool[i])), absent=_lasts(name, {})
        )
        found[mine] = fact > 0
    return found


def _lasts(opcode: str, members: dict[str, Any]) -> int:
    """Tell of engine accumulators, the random state, semaphores of the runtime, and what other cores are told."""
    defaults = _defaults(opcode)
    for key in _ACCUMULATORS:
        command = members.get(key)
        if (defaults.get(key) if command is None else command) not in (None, "Idle"):
            return 1
    if opcode == "Memset" and members.get("mode") != "Const":
        return 1
    told = ("remote_notification", "replica_groups", "runtime_semaphore_wait_value")
    return int(any(members.get(key) not in (None, [], 0) for key in told))
