"""Collective operations, as one core sees them.

One core is simulated. A group of that core alone is settled: each operation then copies. Of a larger group the other
cores' data is not known; the reading `collective` may say that it is the same on all of them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from arrowir import expressions
from arrowir.diagnostics import SimulationError
from arrowir.simulate.alu import Numbers, apply
from arrowir.simulate.registry import opcode, refuse
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_REDUCTIONS = ("add", "max", "min")
_REDUCING = ("AllReduce", "ReduceScatter")
_COPYING = ("AllGather", "AllToAll", "Permute", "PermuteImplicit")

refuse(
    "CollectiveSend", "CollectiveRecv", why="what it sends to or takes from another core has no part in one core's run"
)
refuse("GPSIMDSB2SB", why="it moves data to another core, and one core is simulated")

_OPEN = {
    "SendRecv": "what arrives is another core's",
    "SendRecvCCE": "what arrives is another core's",
    "AllToAllV": "how its buffers are divided is not known",
    "PermuteReduce": "what it reduces is not known",
    "PermuteReduceImplicit": "what it reduces is not known",
}
"""Why a kind is not modelled."""


@opcode(
    "CollectiveCompute", ins=(1, None), outs=(1, None), basis="strong",
    keys="kind replica_groups op cc_channel cc_dim cc_type_hint stream_id src_target_pairs is_local pipe_id"
    " initial_corebarrier unique_tensors",
)  # fmt: skip
def collective_compute(step: Step) -> None:
    """By `kind`: of one core a copy; of more, which hold the same, a sum, a maximum, the parts side by side, ..."""
    members = _members(step)
    kind = _word(members, "kind", "AllReduce")
    if kind not in _REDUCING and kind not in _COPYING:
        raise SimulationError(f"`{kind}` is not modelled: {_OPEN.get(kind, 'it is not known')}")
    op = _word(members, "op", "bypass")
    if kind in _REDUCING and op not in _REDUCTIONS:
        raise SimulationError(f"{kind} CollectiveCompute does not support {op}; expected add, max or min")
    if kind in _COPYING and op != "bypass":
        raise SimulationError(f"{kind} CollectiveCompute does not support {op}; expected bypass")
    if len(step.ins) != len(step.outs):
        raise SimulationError(f"{len(step.ins)} inputs and {len(step.outs)} outputs; expected as many")
    size = _group_size(step, kind, members)
    if size > 1:
        step.decide("collective", f"`{kind}` of {size} cores")
    dimension = _word(members, "cc_dim", "Free")
    for source, target in zip(step.ins, step.outs, strict=True):
        if source.code.dtype != target.code.dtype:
            raise SimulationError(
                f"Output dtype must match input: `{source.code.dtype}` and `{target.code.dtype}` do not agree"
            )
        _move(step, kind, op, size, dimension, source, target)


def _members(step: Step) -> Mapping[str, Any]:
    """Return the keys, those that stand within `cc_channel` in newer builds included."""
    known = step.code.members
    channel = known.get("cc_channel")
    return {**known, **channel} if isinstance(channel, dict) and not expressions.is_expression(channel) else known


def _word(members: Mapping[str, Any], key: str, default: str) -> str:
    value = members.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise SimulationError(f"`{key}` is {value!r:.60}; expected a word")
    return value


def _group_size(step: Step, kind: str, members: Mapping[str, Any]) -> int:
    """Return how many cores take part."""
    pairs = members.get("src_target_pairs")
    if kind == "Permute" and pairs:
        if not isinstance(pairs, list) or not all(
            isinstance(p, list) and len(p) == 2 and all(map(expressions.is_integer, p)) for p in pairs
        ):
            raise SimulationError(f"`src_target_pairs` is {pairs!r:.60}; expected pairs of cores")
        sources, targets = {p[0] for p in pairs}, {p[1] for p in pairs}
        if sources != targets:
            raise SimulationError("`src_target_pairs` leaves a core out, whose output is not known")
        return len(sources)
    groups = members.get("replica_groups")
    if not groups:
        if kind == "AllGather":
            return _ratio(step.outs[0], step.ins[0])
        if kind == "ReduceScatter":
            return _ratio(step.ins[0], step.outs[0])
        raise SimulationError("it has no `replica_groups`, so that it is not known how many cores take part")
    if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
        raise SimulationError(f"`replica_groups` is {groups!r:.60}; expected lists of cores")
    sizes = {len(group) for group in groups}
    if len(sizes) != 1 or 0 in sizes:
        raise SimulationError(f"the groups in `replica_groups` have {sorted(sizes)} cores; expected as many in each")
    return sizes.pop()


def _ratio(larger: Operand, smaller: Operand) -> int:
    if larger.count % smaller.count:
        raise SimulationError(f"{larger.count} elements are no multiple of {smaller.count}")
    return larger.count // smaller.count


def _move(step: Step, kind: str, op: str, size: int, dimension: str, source: Operand, target: Operand) -> None:
    wanted = {"AllGather": source.count * size, "ReduceScatter": source.count // size}.get(kind, source.count)
    if target.count != wanted or (kind == "ReduceScatter" and source.count % size):
        raise SimulationError(
            f"`{kind}` of {size} cores makes {wanted} elements of {source.count}, and the output has {target.count}"
        )
    if kind == "AllToAll" and size > 1:
        raise SimulationError(f"`AllToAll` of {size} cores is not modelled: how its buffers are divided is not known")
    if kind in _REDUCING:
        total = _reduced(step, op, size, source)
        if kind == "ReduceScatter" and size > 1:
            total = _first_part(total.reshape(source.shape), size, dimension, target)
        target.write(total)
        return
    bits = source.read_bits()
    target.write_bits(_repeated(bits, size, dimension, target) if kind == "AllGather" and size > 1 else bits)


def _reduced(step: Step, op: str, size: int, source: Operand) -> Array:
    """Fold what each core holds, which is the same."""
    if source.dtype.kind == "bits":
        raise SimulationError(f"`{source.dtype.name}` is no type to compute with")
    value = source.numbers()
    total: Numbers = value
    for _ in range(size - 1 if op == "add" else 0):
        total = apply(op, total, value, step.decide)
    return total.result


def _repeated(bits: Array, size: int, dimension: str, target: Operand) -> Array:
    """Return the parts of all cores side by side: along the partitions, or along the free dimensions."""
    partitions = len(bits)
    if dimension == "Partition" and target.shape[0] == partitions * size:
        return np.concatenate([bits.reshape(partitions, -1)] * size, axis=0)
    if dimension == "Free" and target.shape[0] == partitions:
        return np.concatenate([bits.reshape(partitions, -1)] * size, axis=1)
    raise SimulationError(
        f"AllGather on {dimension} of {size} cores: {list(bits.shape)} and {list(target.shape)} do not fit"
    )


def _first_part(total: Array, size: int, dimension: str, target: Operand) -> Array:
    """Return the part of the first core."""
    rows = total.reshape(len(total), -1)
    if dimension == "Partition" and target.shape[0] * size == len(rows):
        return rows[: target.shape[0]]
    if dimension == "Free" and target.shape[0] == len(rows):
        return rows[:, : rows.shape[1] // size]
    raise SimulationError(
        f"ReduceScatter on {dimension} of {size} cores: {list(total.shape)} and {list(target.shape)} do not fit"
    )


# -- ranks ------------------------------------------------------------------------------------------------------------


@opcode("GetGlobalRankId", ins=(0, None), outs=1, keys="world_size", basis="strong")
def global_rank(step: Step) -> None:
    """The rank of the core: 0 when it is the only one."""
    if not (step.has("world_size") and step.integer("world_size") == 1):
        step.decide("rank", "the rank of this core among all")
    _write_integer(step.out, 0)


@opcode(
    "GetCurProcessingRankID", ins=(0, None), outs=1, keys="iter_id channel_id stream_id replica_groups",
    basis="inferred",
)  # fmt: skip
def current_rank(step: Step) -> None:
    """The core whose data is being processed: of a group of one core, that one."""
    groups = step.attribute("replica_groups")
    if not (isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], list) and len(groups[0]) == 1):
        raise SimulationError("in which order the cores of a group take turns is not known; expected a group of one")
    if not expressions.is_integer(groups[0][0]):
        raise SimulationError(f"`replica_groups` is {groups!r:.60}; expected lists of cores")
    _write_integer(step.out, groups[0][0])


def _write_integer(out: Operand, value: int) -> None:
    if out.kind == "register_access":
        out.write_integer(value)
        return
    if out.dtype.kind != "int":
        raise SimulationError(f"`{out.code.title}` is `{out.dtype.name}`; expected an integer")
    out.write(np.full(out.shape, value, np.int64))
