"""Rules about collectives."""

from typing import Any

import numpy as np

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.registry import Found

_CC = "CollectiveCompute"
_REDUCING = ("AllReduce", "ReduceScatter", "PermuteReduce", "PermuteReduceImplicit", "SendRecvCCE")
_COPYING = ("AllGather", "AllToAll", "AllToAllV", "Permute", "PermuteImplicit", "SendRecv")
_OPERATIONS = ("add", "mult", "max", "min", "bitwise_and", "bitwise_or", "bitwise_xor", "logical_and", "logical_or",
               "subtract", "average")  # fmt: skip


def _kind(g: Group, *names: str) -> Array:
    return g.key("kind").among(*names)


def _reduction(g: Group) -> Found | None:
    op = g.key("op")
    bad = _kind(g, *_REDUCING) & op.other_than(*_OPERATIONS)
    return g.on(bad, op=op.text, kind=g.key("kind").text)


def _copied(g: Group) -> Found | None:
    op = g.key("op")
    return g.on(_kind(g, *_COPYING) & op.other_than("bypass"), op=op.text, kind=g.key("kind").text)


def _in_sb(g: Group) -> Array:
    """Return the collectives with an operand in SB."""
    return np.any([o.in_sb for o in (*g.args(), *g.outs())], axis=0) if len(g) else np.zeros(0, bool)


def _groups(value: Any) -> int:
    """Return how many members each replica group has; 0 where that is not told."""
    if not isinstance(value, list) or not value or not all(isinstance(group, list) for group in value):
        return 0
    sizes = {len(group) for group in value}
    return sizes.pop() if len(sizes) == 1 else 0


def _members(g: Group) -> Array:
    key = g.key("replica_groups")
    return np.array([_groups(value) for value in key.values], np.int64)[key.place]


def _no_groups(g: Group) -> Found | None:
    empty = g.key("replica_groups").test(lambda value: value in (None, []))
    kinds = _kind(g, "AllReduce", "AllGather", "ReduceScatter")
    return g.on(_in_sb(g) & kinds & empty, kind=g.key("kind").text)


def _elsewhere(g: Group) -> list[Found]:
    operands = (
        *((f"ins[{k}]", o) for k, o in enumerate(g.args())),
        *((f"outs[{k}]", o) for k, o in enumerate(g.outs())),
    )
    made = [g.at(o, _in_sb(g) & (o.memory >= 0) & ~o.in_sb, arg=name) for name, o in operands]
    return [m for m in made if m is not None]


def _alone(g: Group) -> Array:
    return _in_sb(g) & (g.n_in == 1) & (g.n_out == 1) & g.arg(0).is_ap & g.out(0).is_ap


def _all_reduce(g: Group) -> Found | None:
    a, b = g.arg(0), g.out(0)
    return g.on(_alone(g) & _kind(g, "AllReduce") & ((a.lanes != b.lanes) | (a.each != b.each)))


def _ratio(g: Group, kind: str) -> Found | None:
    small, large = (g.arg(0), g.out(0)) if kind == "AllGather" else (g.out(0), g.arg(0))
    members = _members(g)
    along = g.key("cc_dim").among("Partition")
    lanes, each = np.where(along, members, 1), np.where(along, 1, members)
    bad = (large.lanes != small.lanes * lanes) | (large.each != small.each * each)
    return g.on(_alone(g) & _kind(g, kind) & (members > 0) & bad, dim=g.key("cc_dim").text)


def _both_lists(g: Group) -> Found | None:
    given = [
        g.key(name).test(lambda v: isinstance(v, list) and bool(v)) for name in ("replica_groups", "src_target_pairs")
    ]
    return g.on(given[0] & given[1])


def _received(g: Group) -> Found | None:
    count = g.key("recv_from_rank").length()
    return g.on(_kind(g, "SendRecvCCE") & (count > 0) & (count != g.n_in))


def _types(g: Group) -> Found | None:
    a, b = g.arg(0), g.out(0)
    return g.on(a.is_ap & b.is_ap & (a.dtype != b.dtype))


_SHAPE = "correct the patterns"

RULES = [
    of(_CC, "BIR066", "a collective that reduces has an operation that does", "use another `op`", _reduction),
    of(_CC, "BIR067", "a collective that copies has no operation", "set `op` to `bypass`", _copied),
    of(_CC, "BIR027", "a collective converts nothing", "use one dtype", _types),
    of(_CC, "BIR113", "a collective in SB has replica groups", "give `replica_groups`", _no_groups),
    of(_CC, "BIR422", "all operands of a collective in SB are there", "move the tensor", _elsewhere),
    of(_CC, "BIR424", "an `AllReduce` in SB keeps the shape", _SHAPE, _all_reduce),
    of(_CC, "BIR425", "an `AllGather` in SB makes the tensor as many times larger as a group has members", _SHAPE,
       lambda g: _ratio(g, "AllGather")),
    of(_CC, "BIR426", "a `ReduceScatter` in SB makes the tensor as many times smaller as a group has members", _SHAPE,
       lambda g: _ratio(g, "ReduceScatter")),
    of(_CC, "BIR427", "a collective in SB has one output", "split the collective",
       lambda g: g.on(_in_sb(g) & (g.n_out != 1))),
    of(_CC, "BIR428", "collectives are in SB from gen3 on", "use DRAM", lambda g: g.on(
        _in_sb(g) & (g.level >= 0) & (g.level < 30))),
    of(_CC, "BIR535", "local collectives are known from gen3 on", "compile for gen3", lambda g: g.on(
        g.key("is_local").among(True) & (g.level >= 0) & (g.level < 30))),
    of(_CC, "CCO010", "a collective has replica groups, or pairs, not both", "keep one of them", _both_lists),
    of(_CC, "BIR026", "there is an input for each rank that is received from", "correct `recv_from_rank`", _received),
]  # fmt: skip
