"""Rules about activations, and what computes like them."""

import numpy as np

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import MX, Operands
from arrowir.verify.registry import Found

_ACT = "Activation"
_PLAIN = ("Copy", "Reciprocal")
_PAIRS = (("mult", "add"), ("mult", "subtract"), ("mult", "bypass"), ("add", "bypass"), ("subtract", "bypass"),
          ("bypass", "bypass"))  # fmt: skip


def _bias(g: Group) -> Operands:
    return g.arg(2)


def _second(g: Group) -> Array:
    return g.key("is_activate2").among(True)


def _immediate(g: Group) -> Found | None:
    func = g.key("func")
    old = (g.level >= 0) & (g.level < 30)
    return g.at(_bias(g), old & _bias(g).is_imm & func.other_than(*_PLAIN), actual=func.text)


def _bias_type(g: Group, *, plain: bool) -> Found | None:
    bias, func = _bias(g), g.key("func")
    of_func = func.among(*_PLAIN)
    bad = ~bias.is_dtype("float32") & ~_second(g) & (of_func if plain else ~of_func & (g.level >= 20))
    return g.at(bias, bad, dtype=bias.dtype_text)


def _bias_shape(g: Group) -> Found | None:
    bias, data = _bias(g), g.arg(0)
    bad = bias.is_ap & data.is_ap & (bias.elements != 1) & (bias.lanes < data.lanes) & ~_second(g)
    return g.at(bias, bad, input_partitions=data.lanes, shape=bias.pattern_text)


def _microscaled(g: Group) -> Found | None:
    copying = g.key("func").among("Copy")
    mixed = g.arg(0).is_dtype(*MX) | g.out(0).is_dtype(*MX)
    return g.on(copying & mixed)


# -- the second form ----


def _old(g: Group) -> Found | None:
    return g.on(_second(g) & (g.level >= 0) & (g.level != 40))


def _types(g: Group) -> Found | None:
    one, other, last = g.arg(1), g.arg(2), g.arg(3)
    there = one.there & other.there & last.there
    bad = there & ((one.dtype != other.dtype) | (one.dtype != last.dtype))
    return g.on(_second(g) & bad, imm0_dtype=one.dtype_text, imm1_dtype=other.dtype_text,
                relu_param_dtype=last.dtype_text)  # fmt: skip


def _operations(g: Group) -> Found | None:
    op0, op1 = g.key("op0"), g.key("op1")
    good = np.zeros(len(g), bool)
    for first, second in _PAIRS:
        good |= op0.among(first) & op1.among(second)
    return g.on(_second(g) & ~good, op0=op0.text, op1=op1.text)


def _accumulation(g: Group) -> Found | None:
    acc = g.key("acc")
    return g.on(_second(g) & acc.other_than("Idle", "Zero", "AddAccumulate", "ZeroAccumulate"), acc=acc.text)


def _quadrants(g: Group) -> Found | None:
    operands = [g.arg(k) for k in range(4)]
    known = np.all([o.decided & o.in_sb for o in operands], axis=0)
    quadrant = [o.partition // 32 for o in operands]
    bad = known & np.any([q != quadrant[0] for q in quadrant], axis=0)
    names = ("src_quadrant", "imm0_quadrant", "imm1_quadrant", "relu_param_quadrant")
    return g.on(_second(g) & bad, **dict(zip(names, quadrant, strict=True)))


_BIAS = "give the bias as float32"

RULES = [
    of(_ACT, "BIR605", "before gen3, a bias is an immediate only for `Copy` and `Reciprocal`",
       "give the bias as a tensor", _immediate),
    of(_ACT, "IBVF032", "the bias of `Copy` and `Reciprocal` is float32", _BIAS, lambda g: _bias_type(g, plain=True)),
    of(_ACT, "IBVF033", "a bias is float32", _BIAS, lambda g: _bias_type(g, plain=False)),
    of(_ACT, "IBVF036", "a bias is one value, or one for each partition of the input", "give as many values",
       _bias_shape),
    of(_ACT, "IBVF037", "the address of a bias is static", "copy the bias first",
       lambda g: g.at(_bias(g), _bias(g).dynamic)),
    of(_ACT, "BIR221", "no scaled numbers are copied by an activation", "use a `TensorCopy`", _microscaled),
    of(_ACT, "IBIR238", "the second form of an activation is known on core_v4", "compile for core_v4", _old),
    of(_ACT, "IBIR239", "the parameters of the second form have one dtype", "convert them", _types),
    of(_ACT, "IBIR240", "the second form knows six pairs of operations", "use another pair", _operations),
    of(_ACT, "IBIR241", "the second form accumulates in four ways", "use another `acc`", _accumulation),
    of(_ACT, "IBIR242", "the operands of the second form start in one quarter of the partitions", "move them",
       _quadrants),
]  # fmt: skip
