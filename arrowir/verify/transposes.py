"""Rules about transposes by DMA."""

import numpy as np

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import MX, Operands
from arrowir.verify.registry import Found

_COPY = "DMACopy"
_ORDERS = ("XZYW", "XYZW")


def _transposing(g: Group) -> Array:
    return g.key("mode").among("Transpose")


def _by_crossbar(g: Group) -> Array:
    """Return the transposes whose descriptors software or hardware makes: the crossbar does these."""
    return _transposing(g) & g.key("dge_type").among("SWDGE", "HWDGE")


def _indexed(g: Group) -> Array:
    return _by_crossbar(g) & g.arg(0).indirect


def _order(g: Group) -> Found | None:
    op = g.key("transpose_op")
    return g.on(_transposing(g) & op.other_than(*_ORDERS, "None"), actual=op.text)


def _types(g: Group) -> Found | None:
    source, target = g.arg(0), g.out(0)
    bad = source.is_ap & target.is_ap & (source.dtype != target.dtype)
    return g.on(_transposing(g) & bad, **{"in": source.dtype_text, "out": target.dtype_text})


def _packed(g: Group) -> Found | None:
    return g.on(_transposing(g) & (g.arg(0).is_dtype(*MX) | g.out(0).is_dtype(*MX)))


def _target(g: Group) -> Found | None:
    o = g.out(0)
    return g.at(o, _by_crossbar(g) & (o.memory >= 0) & ~o.in_sb, actual=o.memory_text)


def _source(g: Group) -> Found | None:
    o = g.arg(0)
    return g.at(o, _by_crossbar(g) & (o.memory >= 0) & ~o.in_sb & ~o.in_dram, actual=o.memory_text)


def _size(g: Group) -> Found | None:
    o = g.arg(0)
    bad = _by_crossbar(g) & (o.size > 0) & (o.size != 2) & ~o.is_dtype(*MX)
    return g.at(o, bad, type=o.dtype_text, size=o.size)


def _consecutive(g: Group, o: Operands) -> Found | None:
    return g.at(o, _by_crossbar(g) & o.is_ap & (o.last_step != 1), actual=o.last_step)


def _aligned(g: Group) -> Found | None:
    o = g.out(0)
    bad = _by_crossbar(g) & o.in_sb & o.decided & (o.start % 32 != 0) & (o.of_location("allocated") == 1)
    return g.at(o, bad, actual=o.start, remainder=o.start % 32)


def _steps(g: Group) -> list[Found]:
    """Return the outputs with a step between the first and the last that is no multiple of 32 bytes."""
    o = g.out(0)
    found: list[Found] = []
    for dimension in range(1, 4):
        step = o.step(dimension)
        inner = (dimension < o.dims - 1) & (o.num(dimension) > 1)
        bad = _by_crossbar(g) & o.in_sb & inner & (step * o.size % 32 != 0)
        one = g.at(o, bad, dim=dimension, step=step, dtype_size=o.size)
        found += [one] if one is not None else []
    return found


# -- rows by indices ----


def _software(g: Group) -> Found | None:
    made = g.key("dge_type")
    return g.on(_indexed(g) & made.among("HWDGE"), actual=made.text)


def _engine(g: Group) -> Found | None:
    bad = _indexed(g) & g.key("dge_type").among("SWDGE") & g.assigned & ~g.engine("Pool", "ALL")
    return g.on(bad, actual=g.engine_text)


def _index_type(g: Group) -> Found | None:
    o = g.inner(0)
    return g.at(o, _indexed(g) & ~o.is_dtype("uint32"), tensor_name=o.location_text, actual=o.dtype_text)


def _index_memory(g: Group) -> Found | None:
    o = g.inner(0)
    bad = _indexed(g) & (o.memory >= 0) & ~o.in_sb
    return g.at(o, bad, tensor_name=o.location_text, actual=o.memory_text)


def _index_count(g: Group) -> Found | None:
    o = g.inner(0)
    return g.at(o, _indexed(g) & o.is_ap & (o.elements % 16 != 0), actual=o.elements)


def _index_each(g: Group) -> Found | None:
    o = g.inner(0)
    return g.at(o, _indexed(g) & o.is_ap & (o.each != 1), tensor_name=o.location_text, actual=o.each)


def _index_order(g: Group) -> Found | None:
    op = g.key("transpose_op")
    return g.on(_indexed(g) & op.among("XYZW"), actual=op.text)


def _outputs(g: Group) -> Found | None:
    count = np.sum([o.is_ap for o in g.outs()], axis=0) if len(g) and g.outs() else g.n_out
    return g.on(_indexed(g) & (count > 1), actual=count)


def _old(g: Group) -> Found | None:
    return g.on(_transposing(g) & g.arg(0).indirect & (g.level >= 0) & (g.level < 30))


_MEMORY, _TYPE, _SHAPE = "move the tensor", "convert it", "correct the patterns"

RULES = [
    of(_COPY, "BIR181", "dimensions are put in one of two orders", "use another `transpose_op`", _order,
       same=("BIR171",)),
    of(_COPY, "BIR511", "a transpose converts nothing", _TYPE, _types),
    of(_COPY, "IBIR283", "scaled numbers are not transposed", "transpose before they are quantised", _packed),
    of(_COPY, "BIR172", "a transpose writes to SB", _MEMORY, _target),
    of(_COPY, "BIR173", "a transpose reads SB or DRAM", _MEMORY, _source),
    of(_COPY, "BIR174", "elements of two bytes are transposed", _TYPE, _size),
    of(_COPY, "BIR177", "elements of a row of the input stand beside each other", _SHAPE,
       lambda g: _consecutive(g, g.arg(0))),
    of(_COPY, "BIR178", "elements of a row of the output stand beside each other", _SHAPE,
       lambda g: _consecutive(g, g.out(0))),
    of(_COPY, "BIR180", "the output starts at a multiple of 32 bytes", "align the address or the offset", _aligned),
    of(_COPY, "BIR155", "rows of the output are a multiple of 32 bytes apart", _SHAPE, _steps),
    of(_COPY, "BIR500", "software makes the descriptors of a transpose by indices", "set `dge_type` to `SWDGE`",
       _software),
    of(_COPY, "BIR501", "a transpose by indices is done by Pool", "set the engine `Pool`", _engine),
    of(_COPY, "BIR504", "indices are uint32", _TYPE, _index_type),
    of(_COPY, "BIR505", "indices are in SB", _MEMORY, _index_memory),
    of(_COPY, "BIR506", "indices are a multiple of 16", _SHAPE, _index_count),
    of(_COPY, "BIR507", "there is an index for each partition", _SHAPE, _index_each),
    of(_COPY, "BIR510", "a transpose by indices has one order", "set `transpose_op` to `XZYW`", _index_order),
    of(_COPY, "BIR518", "a transpose by indices has one output", _SHAPE, _outputs),
    of(_COPY, "BIR519", "transposes by indices are known from gen3 on", "compile for gen3", _old),
]  # fmt: skip
