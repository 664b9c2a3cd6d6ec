"""Rules about gathers and what looks for elements."""

from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import Operands
from arrowir.verify.registry import Found

_GA, _SB, _NZ = "Gather", "GetSequenceBounds", "NonzeroWithCount"
_FOUR = 4


def _dims(g: Group, o: Operands) -> Found | None:
    return g.at(o, o.is_ap & (o.dims > _FOUR), dimensions=o.dims)


def _params_type(g: Group) -> Found | None:
    params, out = g.arg(0), g.out(0)
    bad = params.is_ap & out.is_ap & (params.dtype != out.dtype)
    return g.on(bad, params_dtype=params.dtype_text, outputs_dtype=out.dtype_text)


def _each(g: Group) -> Found | None:
    indices, out = g.arg(1), g.out(0)
    bad = indices.is_ap & out.is_ap & (indices.each != out.each)
    return g.on(bad, indices_per_partition=indices.each, outputs_per_partition=out.each)


def _lanes(g: Group, other: Operands, word: str) -> Found | None:
    params = g.arg(0)
    bad = params.is_ap & other.is_ap & (params.lanes != other.lanes)
    return g.at(other, bad, params_partitions=params.lanes, **{word: other.lanes})


def _engine(g: Group) -> Found | None:
    return g.on(g.assigned & ~g.engine("Pool", "ALL"), actual=g.engine_text)


def _three(g: Group, o: Operands) -> Found | None:
    return g.at(o, o.is_ap & (o.dims != 3), actual=o.dims)


def _one(g: Group, o: Operands) -> Found | None:
    return g.at(o, o.is_ap & (o.lanes != 1), actual=o.lanes)


def _bound_type(g: Group, o: Operands) -> Found | None:
    return g.at(o, o.is_ap & ~o.is_dtype("int32", "float32"), acutal=o.dtype_text)


def _twice(g: Group) -> Found | None:
    source, target = g.arg(0), g.out(0)
    bad = source.is_ap & target.is_ap & (target.each != 2 * source.each) & (target.last_num == 2)
    return g.on(bad, source_num=source.each, dst_num=target.each)


def _integer(g: Group, o: Operands) -> Found | None:
    return g.at(o, o.is_ap & ~o.is_dtype("int32"), type=o.dtype_text)


_JOIN, _COUNT, _TYPE = "join dimensions", "correct the patterns", "convert it"

RULES = [
    of(_GA, "BIR099", "the data has at most four dimensions", _JOIN, lambda g: _dims(g, g.arg(0))),
    of(_GA, "BIR100", "the indices have at most four dimensions", _JOIN, lambda g: _dims(g, g.arg(1))),
    of(_GA, "BIR101", "the output has at most four dimensions", _JOIN, lambda g: _dims(g, g.out(0))),
    of(_GA, "BIR102", "the output has the dtype of the data", _TYPE, _params_type),
    of(_GA, "BIR103", "there is an index for each element of the output", _COUNT, _each),
    of(_GA, "BIR104", "the indices have the partitions of the data", _COUNT,
       lambda g: _lanes(g, g.arg(1), "indices_partitions")),
    of(_GA, "BIR105", "the output has the partitions of the data", _COUNT,
       lambda g: _lanes(g, g.out(0), "outputs_partitions")),
    of(_GA, "BIR106", "the indices are uint32", _TYPE,
       lambda g: g.at(g.arg(1), ~g.arg(1).is_dtype("uint32"), indices_dtype=g.arg(1).dtype_text)),
    of(_SB, "BIR122", "it is done by Pool", "set the engine `Pool`", _engine),
    of(_SB, "BIR123", "the input has three dimensions", _JOIN, lambda g: _three(g, g.arg(0))),
    of(_SB, "BIR124", "the output has three dimensions", _JOIN, lambda g: _three(g, g.out(0))),
    of(_SB, "BIR125", "the input is in one partition", _COUNT, lambda g: _one(g, g.arg(0))),
    of(_SB, "BIR126", "the output is in one partition", _COUNT, lambda g: _one(g, g.out(0))),
    of(_SB, "BIR127", "the output is pairs of bounds", _COUNT,
       lambda g: g.at(g.out(0), g.out(0).is_ap & (g.out(0).last_num != 2), actual=g.out(0).last_num)),
    of(_SB, "BIR128", "the input is int32 or float32", _TYPE, lambda g: _bound_type(g, g.arg(0))),
    of(_SB, "BIR129", "the output is int32 or float32", _TYPE, lambda g: _bound_type(g, g.out(0))),
    of(_SB, "BIR130", "there are two bounds for each element", _COUNT, _twice),
    of(_NZ, "SIM205", "the output is int32", _TYPE, lambda g: _integer(g, g.out(0))),
    of(_NZ, "SIM206", "the input is int32", _TYPE, lambda g: _integer(g, g.arg(0))),
]  # fmt: skip
