"""Rules about copies under a predicate, and selections by ranges."""

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import INTEGERS, Operands
from arrowir.verify.registry import Found

_CP, _RS = "CopyPredicated", "RangeSelect"
_COMMANDS = ("Idle", "ZeroAccumulate", "AddAccumulate")
_WIDE = ("float32r", "uint64", "int64", "int32", "uint32")


def _reducing(g: Group) -> Array:
    """Return the copies that reduce, too: a reduction, or a third input, makes one."""
    return (g.key("reduce_op").among("max") | (g.n_in > 2)) & (g.n_in > 1)


def _scalar(g: Group) -> Array:
    return g.arg(1).is_imm & ~_reducing(g)


def _reduction(g: Group) -> Found | None:
    op = g.key("reduce_op")
    return g.on(op.other_than("max", "bypass"), actual=op.text)


def _command(g: Group) -> Found | None:
    command = g.key("accumulator_cmd")
    return g.on(command.other_than(*_COMMANDS), actual=command.text)


def _command_alone(g: Group) -> Found | None:
    command, op = g.key("accumulator_cmd"), g.key("reduce_op")
    bad = command.among(*_COMMANDS[1:]) & op.among("bypass", None)
    return g.on(bad, accumulation_cmd=command.text, reduce_cmd=op.text)


def _three(g: Group) -> Found | None:
    return g.on(g.key("reduce_op").among("max") & (g.n_in != 3), actual=g.n_in)


def _whole(g: Group) -> Array:
    return _reducing(g) & (g.n_in == 3)


def _source(g: Group) -> Found | None:
    return g.at(g.arg(1), _whole(g) & ~g.arg(1).is_ap)


def _other(g: Group) -> Found | None:
    o = g.arg(2)
    return g.at(o, _whole(g) & o.is_ap & (o.each != 1))


def _types(g: Group) -> Found | None:
    predicate, source = g.arg(0), g.arg(1)
    bad = _whole(g) & source.is_ap & (source.is_dtype(*_WIDE) | predicate.is_dtype("float32r", "uint64", "int64"))
    return g.on(bad, src_type=source.dtype_text, pred_type=predicate.dtype_text)


def _counts(g: Group) -> Found | None:
    predicate, out = g.arg(0), g.out(0)
    bad = predicate.is_ap & out.is_ap & (predicate.elements != out.elements)
    return g.on(bad, pred_shape=predicate.elements, out_shape=out.elements)


def _shapes(g: Group) -> Found | None:
    predicate, source, out = g.arg(0), g.arg(1), g.out(0)
    bad = source.is_ap & out.is_ap & (source.elements != out.elements) & (predicate.elements == out.elements)
    return g.on(bad & (source.each != 1), src_shape=source.elements, pred_shape=predicate.elements,
                out_shape=out.elements)  # fmt: skip


def _immediate(g: Group) -> Found | None:
    o = g.arg(2)
    return g.at(o, _whole(g) & o.is_imm & ~o.is_dtype("float32"), actual=o.dtype_text)


def _scalar_type(g: Group) -> Found | None:
    o, out = g.arg(1), g.out(0)
    return g.at(o, _scalar(g) & out.there & (o.dtype != out.dtype), imm_type=o.dtype_text, out_type=out.dtype_text)


def _reversed(g: Group) -> Found | None:
    return g.on(g.key("reverse_pred").among(True) & ~_reducing(g) & g.arg(1).is_ap & (g.arg(1).each != 1))


def _predicate(g: Group) -> Found | None:
    o = g.arg(0)
    bad = o.is_ap & ~o.is_dtype(*INTEGERS) & ~o.is_dtype("float32r", "uint64", "int64")
    return g.at(o, bad, pred_type=o.dtype_text)


def _on_true(g: Group) -> Found | None:
    o = g.arg(1)
    return g.at(o, ~_whole(g) & o.is_ap & o.is_dtype("float32r", "uint64", "int64"), src_type=o.dtype_text)


# -- ranges ----


def _range_types(g: Group) -> Found | None:
    data, out = g.arg(0), g.out(0)
    return g.on(data.is_ap & out.is_ap & (data.dtype != out.dtype), inType=data.dtype_text, outType=out.dtype_text)


def _range_counts(g: Group) -> Found | None:
    data, out = g.arg(0), g.out(0)
    bad = data.is_ap & out.is_ap & (data.elements != out.elements)
    return g.on(bad, inputSize=data.elements, outputSize=out.elements)


def _bounds(g: Group) -> list[Found]:
    data = g.arg(0)

    def bad(o: Operands) -> Array:
        return o.is_ap & data.is_ap & ((o.lanes != data.lanes) | (o.each != 1))

    found = [
        g.at(o, bad(o), bound=f"bound{k}", boundNumPartitions=o.lanes, numInElementsPerPartition=data.lanes)
        for k, o in enumerate((g.arg(1), g.arg(2)))
    ]
    return [f for f in found if f is not None]


def _range_dims(g: Group) -> list[Found]:
    found = [
        g.at(o, o.is_ap & (o.dims != 3), name=name, size=o.dims)
        for name, o in (("input", g.arg(0)), ("output", g.out(0)))
    ]
    return [f for f in found if f is not None]


def _comparisons(g: Group) -> list[Found]:
    good = ("is_equal", "is_gt", "is_ge", "is_lt", "is_le")
    found = [g.on(g.key(name).other_than(*good), compare_op=name) for name in ("compare_op0", "compare_op1")]
    return [f for f in found if f is not None]


_COUNT, _TYPE = "correct the operands", "convert it"

RULES = [
    of(_CP, "BIR207", "a reduction takes the largest", "set `reduce_op` to `max`", _reduction),
    of(_CP, "BIR208", "the accumulation is none, starts, or adds", "use another `accumulator_cmd`", _command),
    of(_CP, "BIR209", "what accumulates reduces, too", "set `reduce_op`", _command_alone),
    of(_CP, "BIR210", "a reduction has three inputs", _COUNT, _three),
    of(_CP, "BIR211", "the source of a reduction is memory", _COUNT, _source),
    of(_CP, "BIR212", "the other source of a reduction is a scalar", _COUNT, _other),
    of(_CP, "BIR213", "a reduction has dtypes of up to 16 bits, or float32", _TYPE, _types),
    of(_CP, "BIR214", "there is a predicate for each element of the output", _COUNT, _counts),
    of(_CP, "BIR215", "there is a source for each element of the output", _COUNT, _shapes),
    of(_CP, "BIR216", "the immediate of a reduction is float32", _TYPE, _immediate),
    of(_CP, "BIR217", "an immediate has the dtype of the output", _TYPE, _scalar_type),
    of(_CP, "BIR218", "a predicate is reversed for scalars and reductions alone", "leave out `reverse_pred`",
       _reversed),
    of(_CP, "EBIR024", "the source is a number of up to 32 bits", _TYPE, _on_true),
    of(_CP, "EBIR025", "predicates are integers", _TYPE, _predicate),
    of(_RS, "BIR255", "the accumulation is none that adds to what is there alone", "use another `reduce_cmd`",
       lambda g: g.on(g.key("reduce_cmd").among("Accumulate"))),
    of(_RS, "SIM095", "input and output have one dtype", _TYPE, _range_types),
    of(_RS, "SIM096", "input and output have as many elements", _COUNT, _range_counts),
    of(_RS, "SIM097", "a bound is one value for each partition of the input", _COUNT, _bounds),
    of(_RS, "SIM098", "input and output have three dimensions", "split or join dimensions", _range_dims),
    of(_RS, "SIM099", "the comparisons are equal, greater, less, and the like", "use another comparison", _comparisons),
    of(_RS, "SIM100", "a reduction takes the largest", "set `reduce_op` to `max`",
       lambda g: g.on(g.key("reduce_op").other_than("max"), op=g.key("reduce_op").text)),
]  # fmt: skip
