"""Rules about copies by DMA: shapes, modes, who makes the descriptors."""

import numpy as np

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import MX, Operands
from arrowir.verify.registry import Found

_COPY = "DMACopy"
_MOVING = ("DMACopy", "Load", "Save")
_MADE = (*_MOVING, "IndirectLoad", "IndirectSave", "IndirectSaveAccumulate", "DMATrigger", "GenericIndirectLoad",
         "GenericIndirectSave")  # fmt: skip
_COMBINING = ("add", "max", "min")
_GENERATED = ("SWDGE", "HWDGE")


def _mode(g: Group, *names: str) -> Array:
    return g.key("mode").among(*names)


def _static(g: Group) -> Array:
    """Return the plain copies of one input whose both ends are patterns of fixed places."""
    source, target = g.arg(0), g.out(0)
    plain = _mode(g, "Copy") & (g.n_in == 1)
    return plain & source.is_physical & target.is_physical & ~source.dynamic & ~target.dynamic


def _dimensions(g: Group) -> Found | None:
    source, target = g.arg(0), g.out(0)
    bad = _static(g) & (source.dims != target.dims) & (source.elements != target.elements)
    return g.on(bad, **{"in": source.dims, "out": target.dims})


def _elements(g: Group) -> list[Found]:
    """Return the copies that move another number of elements in some dimension than they write."""
    source, target = g.arg(0), g.out(0)
    same = _static(g) & (source.dims == target.dims) & (source.elements != target.elements)
    found: list[Found] = []
    told = np.zeros(len(g), bool)
    for dimension in range(5):
        bad = same & ~told & (dimension < source.dims) & (source.num(dimension) != target.num(dimension))
        told |= bad
        one = g.on(bad, index=dimension, **{"in": source.num(dimension), "out": target.num(dimension)})
        found += [one] if one is not None else []
    return found


def _combined(g: Group) -> Found | None:
    op = g.key("cce_op")
    return g.on(_mode(g, "CCE") & op.other_than(*_COMBINING), cce_op=op.text)


def _uncombined(g: Group) -> Found | None:
    op = g.key("cce_op")
    return g.on(_mode(g, "Transpose", "Replicate") & op.other_than("bypass"), cce_op=op.text, mode=g.key("mode").text)


def _misplaced(g: Group) -> Found | None:
    """Return plain copies with an operation; one that indices place may add to what is there."""
    by_index = g.arg(0).indirect | g.out(0).indirect
    return g.on(_mode(g, "Copy") & g.key("cce_op").other_than("bypass") & ~by_index)


def _constants(g: Group) -> Found | None:
    count = g.key("constants").length()
    return g.on(_mode(g, "CCE") & (count > 0) & (count != g.n_in))


def _engine(g: Group) -> Found | None:
    made = g.key("dge_type").among("HWDGE")
    return g.on(made & g.assigned & ~g.engine("Activation", "SP", "ALL", "DMA"), actual=g.engine_text)


def _old(g: Group) -> Found | None:
    return g.on(g.key("dge_type").among("HWDGE") & (g.level == 20))


def _generated(g: Group) -> Found | None:
    """Return dynamic accesses whose descriptors nobody makes."""
    dynamic = g.arg(0).dynamic | g.out(0).dynamic
    return g.on(dynamic & g.key("dge_type").among("None"))


def _packed(o: Operands) -> Array:
    return o.is_dtype(*MX)


def _cast(g: Group) -> Found | None:
    source, target = g.arg(0), g.out(0)
    bad = source.is_ap & target.is_ap & (_packed(source) | _packed(target)) & (source.dtype != target.dtype)
    return g.on(bad, in_dtype=source.dtype_text, out_dtype=target.dtype_text)


def _packed_sum(g: Group) -> Found | None:
    packed = _packed(g.arg(0)) | _packed(g.out(0))
    return g.on(_mode(g, "CCE") & g.key("cce_op").other_than("bypass") & packed)


# -- rows by indices, made by software or hardware ----


def _vector(g: Group) -> Array:
    return g.key("dge_type").among(*_GENERATED) & (g.arg(0).indirect | g.out(0).indirect) & _mode(g, "Copy")


def _side(g: Group, *, indirect: bool) -> list[Found]:
    source, target = g.arg(0), g.out(0)
    found: list[Found] = []
    for mine, other in ((source, target), (target, source)):
        operand = mine if indirect else other
        good = operand.in_dram if indirect else operand.in_sb
        bad = _vector(g) & mine.indirect & ~(other.indirect & (mine is target)) & (operand.memory >= 0) & ~good
        one = g.at(operand, bad, name=operand.location_text, actual=operand.memory_text)
        found += [one] if one is not None else []
    return found


def _index(g: Group) -> Found | None:
    o = g.inner(0)
    bad = _vector(g) & (o.memory >= 0) & ~o.in_sb
    return g.at(o, bad, name=o.location_text, actual=o.memory_text)


def _outputs(g: Group) -> Found | None:
    dynamic = g.key("dge_type").among(*_GENERATED) & (g.arg(0).dynamic | g.out(0).dynamic)
    dynamic &= ~_mode(g, "Transpose")  # those have a rule of their own
    return g.on(dynamic & (g.n_out != 1), num_outputs=g.n_out)


# -- what adds to memory ----


def _added(g: Group, *good: str) -> Found | None:
    op = g.key("op")
    return g.on(op.other_than(*good), op=op.text)


# -- between cores ----

_GP = "GPSIMDSB2SB"


def _ends(g: Group) -> tuple[Operands, Operands]:
    return g.arg(0), g.out(0)


def _both(g: Group) -> Array:
    source, target = _ends(g)
    return source.is_ap & target.is_ap


def _gp_dims(g: Group) -> Found | None:
    source, target = _ends(g)
    return g.on(_both(g) & ((source.dims > 4) | (target.dims > 4)))


def _gp_memory(g: Group) -> Found | None:
    source, target = _ends(g)
    known = (source.memory >= 0) & (target.memory >= 0)
    return g.on(_both(g) & known & ~(source.in_sb & target.in_sb))


def _gp_rows(g: Group) -> Found | None:
    source, target = _ends(g)
    return g.on(_both(g) & (source.lanes == target.lanes) & (source.lanes % 16 != 0))


def _gp_bytes(g: Group) -> Found | None:
    source, _ = _ends(g)
    size = source.each * source.size
    return g.on(_both(g) & (size > 1024), maxBPP=1024, bpp=size, maybeOverhead="")


_SHAPE, _MEMORY = "correct the patterns", "move the tensor"

RULES = [
    of(_COPY, "EBIR030", "input and output of a copy have as many dimensions", _SHAPE, _dimensions, same=("EBIR032",)),
    of(_COPY, "EBIR031", "input and output of a copy have as many elements in each dimension", _SHAPE, _elements,
       same=("EBIR033",)),
    of(_COPY, "BIR059", "inputs are combined by add, max or min", "use another `cce_op`", _combined),
    of(_COPY, "BIR077", "a transpose or a replication combines nothing", "set `cce_op` to `bypass`", _uncombined),
    of(_COPY, "BIR234", "a plain copy combines nothing", "set `mode` to `CCE`, or `cce_op` to `bypass`", _misplaced),
    of(_COPY, "SIM005", "there is a constant for each input", "correct `constants`", _constants),
    of("DMADescriptorCCE", "BIR063", "a descriptor combines by add, max or min", "use another `op`",
       lambda g: _added(g, *_COMBINING)),
    of("GenericIndirectSave", "BIR064", "a save by indices writes or adds", "use another `op`",
       lambda g: _added(g, "bypass", "add")),
    of("IndirectSaveAccumulate", "BIR065", "an accumulating save writes or adds", "use another `op`",
       lambda g: _added(g, "bypass", "add")),
    of(_MADE, "EDGE001", "the hardware makes descriptors for Activation and SP", "use one of these engines", _engine),
    of(_MADE, "DMA140", "no hardware makes descriptors on CoreV2", "set `dge_type` to `SWDGE`", _old),
    of(_MOVING, "SDD010", "descriptors of dynamic accesses are made at run time", "set `dge_type`", _generated),
    of(_MOVING, "SDD001", "a dynamic access has one output", "split the copy", _outputs),
    of(_MOVING, "IBIR285", "scaled numbers are copied as they are", "use one dtype", _cast),
    of(_COPY, "IBIR284", "scaled numbers are not combined", "set `cce_op` to `bypass`", _packed_sum),
    of(_COPY, "BIR230", "rows that indices choose are in DRAM", _MEMORY, lambda g: _side(g, indirect=True)),
    of(_COPY, "BIR231", "rows that indices choose go to and come from SB", _MEMORY, lambda g: _side(g, indirect=False)),
    of(_COPY, "BIR232", "indices are in SB", _MEMORY, _index),
    of(_GP, "BIR451", "cores exchange data from gen3 on", "compile for gen3", lambda g: g.on(
        (g.level >= 0) & (g.level < 30))),
    of(_GP, "BIR452", "an exchange converts nothing", "use one dtype",
       lambda g: g.on(_both(g) & (g.arg(0).dtype != g.out(0).dtype))),
    of(_GP, "BIR453", "both ends have as many elements", _SHAPE,
       lambda g: g.on(_both(g) & (g.arg(0).elements != g.out(0).elements))),
    of(_GP, "BIR454", "patterns have at most four dimensions", "join dimensions", _gp_dims),
    of(_GP, "BIR455", "both ends are in SB", _MEMORY, _gp_memory),
    of(_GP, "BIR456", "addresses are static", "copy to a fixed place first",
       lambda g: g.on(g.arg(0).dynamic | g.out(0).dynamic)),
    of(_GP, "BIR457", "partitions are a multiple of 16", _SHAPE, _gp_rows),
    of(_GP, "BIR458", "it is done by Pool", "set the engine `Pool`",
       lambda g: g.on(g.assigned & ~g.engine("Pool", "ALL"))),
    of(_GP, "BIR459", "it has one input and one output", "correct the operands",
       lambda g: g.on((g.n_in != 1) | (g.n_out != 1))),
    of(_GP, "BIR460", "1,024 bytes of a partition are moved at most", "split the exchange", _gp_bytes),
]  # fmt: skip
