"""Rules about accesses that a tensor of indices addresses, on engines and by the generic loads and saves."""

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Facts, Group, found
from arrowir.verify.operands import BYTE_FLOATS, Operands
from arrowir.verify.registry import Found, rule

_MM, _TSP, _CP = ("Matmult", "MatmultSparse", "MatmultMx"), "TensorScalarPtr", "CopyPredicated"
_FREE = ("dma", "indirect", "collective", "kernel", "control", "sync", "misc", "older")
_GENERIC = ("GenericIndirectLoad", "GenericIndirectSave")
_SMALL = ("float16", "bfloat16", *BYTE_FLOATS)


def _on_engine(facts: Facts) -> Array:
    """Return a mask of the instructions of engines that compute."""
    texts = facts.ir.pools.codes["opcode"].texts
    mine = [vocab.family(t) is not None and vocab.family(t) not in _FREE for t in texts]
    return np.append(np.array(mine, bool), False)[facts.ir.tables["instructions"]["opcode"]]


def _any(g: Group) -> Array:
    every = [o.indirect for o in (*g.args(), *g.outs())]
    return np.any(every, axis=0) if every else np.zeros(len(g), bool)


def _old(facts: Facts) -> Found | None:
    owner = facts.ir.tables["operands"]["instruction_id"]
    level = facts.levels[facts.module[owner]]
    return found("operands", facts.indirect & _on_engine(facts)[owner] & (level >= 0) & (level < 40))


def _gathered(g: Group) -> list[Found]:
    operands = g.args()

    def bad(o: Operands) -> Array:
        return o.indirect & ~o.is_dtype(*_SMALL)

    made = [g.at(o, bad(o), index=k, actual=o.dtype_text) for k, o in enumerate(operands)]
    return [m for m in made if m is not None]


def _scattered(g: Group) -> list[Found]:
    made = [g.at(o, o.indirect & o.in_psum, index=k) for k, o in enumerate(g.outs())]
    return [m for m in made if m is not None]


def _with(g: Group, key: str) -> Found | None:
    return g.on(_any(g) & g.key(key).among(True))


def _reduced(g: Group) -> Found | None:
    return g.on(_any(g) & g.key("axis").among("C", "XYZWC"))


def _tiled(g: Group, index: int) -> Found | None:
    size = g.key("tile_size").item(index)
    other = g.key("tile_size").item(0)
    whole = 128
    bad = (size >= 0) & (size < whole) & ((index == 0) | (other < 0) | (other >= whole))
    return g.on(_any(g) & bad)


def _predicated(g: Group) -> Found | None:
    return g.on(_any(g) & (g.key("reduce_op").among("max") | (g.n_in > 2)))


def _tensor(g: Group) -> Found | None:
    return g.on(
        _any(g) & g.key("reduce_op").among("bypass", None) & (g.n_in == 2) & g.arg(1).is_ap & (g.arg(1).each != 1)
    )


# -- PSUM ----


def _psum(facts: Facts, *, outs: bool) -> Found | None:
    """Return the indirect accesses by DMA and the like that are in PSUM."""
    operands = facts.ir.tables["operands"]
    role = operands["role"] == vocab.ROLE_OUT
    bad = facts.indirect & (facts.footprints.memory == vocab.MEM_PSUM) & (role == outs)
    return found("operands", bad & ~_on_engine(facts)[operands["instruction_id"]])


# -- generic ----


def _index_count(g: Group) -> Found | None:
    given = g.key("indirect_dims").length()
    return g.on((given > 0) & (given != g.n_in + g.n_inner - 1))


def _index_each(g: Group) -> Found | None:
    o = g.arg(1)
    return g.at(o, o.is_ap & (o.each != 1))


_STATIC, _MEMORY = "gather or scatter with a copy before or behind", "move the tensor"

RULES = [
    rule("BIR701", "operands", "engines gather and scatter from core_v4 on", _STATIC, _old),
    of(_MM, "BIR705", "products gather float16, bfloat16 and 8-bit floats", "convert it", _gathered),
    of("Activation", "BIR706", "activations do not scatter to PSUM", "write to SB", _scattered),
    of("TensorReduce", "BIR709", "no reduction over partitions gathers", _STATIC, _reduced),
    of(_CP, "BIR710", "a copy under a predicate that gathers does not reduce", _STATIC, _predicated),
    of(_CP, "BIR711", "a copy under a predicate that gathers has a scalar source", _STATIC, _tensor),
    of(_TSP, "BIR712", "an operation with addresses of scalars does not gather", _STATIC,
       lambda g: _with(g, "is_tensor_scalar_addr")),
    of(_TSP, "BIR713", "a scalar-tensor-tensor operation does not gather", _STATIC,
       lambda g: _with(g, "is_scalar_tensor_tensor")),
    of(_TSP, "BIR714", "a scan does not gather", _STATIC, lambda g: _with(g, "is_tensor_tensor_scan")),
    of(_MM, "BIR715", "a transpose does not gather", _STATIC, lambda g: _with(g, "is_transpose")),
    of(_MM, "BIR716", "a product on some rows of the array does not gather", _STATIC, lambda g: _tiled(g, 0)),
    of(_MM, "BIR717", "a product on some columns of the array does not gather", _STATIC, lambda g: _tiled(g, 1)),
    rule("SIM060", "operands", "rows are not gathered from PSUM", _MEMORY, lambda f: _psum(f, outs=False)),
    rule("SIM064", "operands", "rows are not scattered to PSUM", _MEMORY, lambda f: _psum(f, outs=True)),
    of(_GENERIC, "LGI-1", "there is an index operand for each indirect dimension", "correct `indirect_dims`",
       _index_count),
    of(_GENERIC, "LGI-3", "indices are one for each partition", "correct the pattern", _index_each),
]  # fmt: skip
