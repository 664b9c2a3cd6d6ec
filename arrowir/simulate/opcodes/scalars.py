"""Tensors with scalars that stand in memory, one for each partition; running values along a partition."""

from collections.abc import Callable

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate import alu
from arrowir.simulate.accumulators import Accumulated, accumulate, owner_of, read, write_reduction
from arrowir.simulate.alu import Numbers
from arrowir.simulate.dtypes import F32
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import check_apart, check_column, column, paired, rearranged, transpose_blocks
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_FORMS = ("is_tensor_scalar_addr", "is_scalar_tensor_tensor", "is_tensor_tensor_scan", "apply_transpose")


@opcode(
    "TensorScalarPtr", ins=(1, 3), outs=(1, 2), elementwise=True, basis="strong",
    keys="op0 reverse0 op1 reverse1 acc negate_second_output " + " ".join(_FORMS),
)  # fmt: skip
def tensor_scalar_ptr(step: Step) -> None:
    """``op1(op0(in, s0), s1)``, each swappable, with one scalar for each partition; s1 may be a tensor, s0 recur.

    `is_scalar_tensor_tensor` takes a tensor in place of the second scalar; `is_tensor_tensor_scan` takes the result for
    the element before in place of the first one; `is_tensor_scalar_addr` computes with integers of 64 bits.
    """
    forms = [form for form in _FORMS if step.flag(form)]
    if len(forms) > 1:
        raise SimulationError(f"{' and '.join(f'`{form}`' for form in forms)} together are not modelled")
    if step.flag("negate_second_output") and len(step.outs) < 2:
        raise SimulationError("`negate_second_output` is set, and there is no second output")
    if len(step.outs) == 2:
        step.decide("second_output", "a `TensorScalarPtr` has a second output")
    form = forms[0] if forms else ""
    if form == "is_tensor_scalar_addr":
        _addresses(step)
        return
    if form == "is_tensor_tensor_scan":
        found = _scan(step)
    elif form == "apply_transpose":
        found = _transposed(step)
    else:
        found = _applied(step, _rows(step.ins[0]), tensor=form == "is_scalar_tensor_tensor")
    step.out.write(found.result)
    command = step.word("acc")
    accumulate(step, command, found.single)
    write_reduction(step, command, engine="Unassigned", negate=step.flag("negate_second_output"))


def _rows(operand: Operand) -> Numbers:
    return operand.numbers().reshape(operand.partitions, -1)


def _pair(step: Step, place: int, value: Numbers, other: Numbers) -> Numbers:
    """Return operation number 0 or 1 of the instruction, with its operands swapped on request."""
    pair = (other, value) if step.flag(f"reverse{place}") else (value, other)
    return alu.apply(step.word(f"op{place}"), *pair, step.decide)


def _applied(step: Step, value: Numbers, *, tensor: bool = False) -> Numbers:
    """Return the two operations on rows, with the scalars or the tensor that the operands give."""
    partitions = value.shape[0]
    for place in (0, 1):
        if len(step.ins) <= place + 1:
            name = step.word(f"op{place}")
            if name not in alu.UNARY or step.flag(f"reverse{place}"):
                raise SimulationError(f"`op{place}` is `{name}`, and there is no operand {place + 1} for it")
            value = alu.apply(name, value, value, step.decide)
            continue
        operand = step.ins[place + 1]
        if tensor and place == 1:
            paired(step.ins[0], operand)
            other = operand.numbers().reshape(partitions, -1)
        else:
            other = column(operand, partitions)
        value = _spread(_pair(step, place, value, other), value)
    return value


def _spread(found: Numbers, like: Numbers) -> Numbers:
    """Return a result in the shape of the elements: a scalar that was passed on is one for each of them."""
    if found.shape == like.shape:
        return found
    return rearranged(found, lambda values: np.broadcast_to(values, like.shape))


def _transposed(step: Step) -> Numbers:
    """Return the two operations, before or behind which blocks of 32 by 32 are transposed."""
    check_apart(step)
    value = _rows(step.ins[0])
    first = _applied(step, rearranged(value, transpose_blocks))
    last = rearranged(_applied(step, value), transpose_blocks)
    if np.array_equal(first.result, last.result, equal_nan=True):
        return first
    met = "`apply_transpose` with scalars that differ from partition to partition"
    return first if step.decide("apply_transpose", met) == "input" else last


def _scan(step: Step) -> Numbers:
    """Return ``r[i] = op1(op0(in[i], r[i - 1]), y[i])`` along each partition; r begins with a scalar."""
    if len(step.ins) != 3:
        raise SimulationError(f"expected 3 operands in `ins` for `is_tensor_tensor_scan`, found {len(step.ins)}")
    data = _rows(step.ins[0])
    partitions, length = data.shape
    whole = [o.in_memory and o.count == step.ins[0].count for o in step.ins[1:]]
    if all(whole) and length == 1:
        raise SimulationError("which operand a scan of one element begins with is not known")
    if sum(whole) != 1:
        raise SimulationError(f"a scan takes a second operand of {step.ins[0].count} elements, and one of {partitions}")
    tensor, first = (step.ins[1], step.ins[2]) if whole[0] else (step.ins[2], step.ins[1])
    other = tensor.numbers().reshape(partitions, -1)
    state = column(first, partitions)
    if state.shape[0] != partitions:
        state = rearranged(state, lambda values: np.broadcast_to(values, (partitions, 1)))
    found: list[Numbers] = []
    for number in range(length):
        here = (slice(None), slice(number, number + 1))
        value = _pair(step, 0, _part(data, here), state)
        state = _pair(step, 1, value, _part(other, here))
        found.append(state)
    if all(part.exact is not None for part in found):
        return Numbers(None, np.hstack([part.exact for part in found if part.exact is not None]))
    return Numbers(np.hstack([part.single for part in found]))


def _part(values: Numbers, part: tuple[slice, slice]) -> Numbers:
    return rearranged(values, lambda array: array[part])


_ADDRESS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "mult": np.multiply,
}


def _addresses(step: Step) -> None:
    """Compute with integers of 64 bits, modulo their range."""
    if step.word("acc") != "Idle" or len(step.outs) > 1:
        raise SimulationError("an accumulation with `is_tensor_scalar_addr` is not modelled")
    for operand in (*step.ins, step.out):
        if operand.dtype.name not in ("int64", "uint64"):
            raise SimulationError(
                f"`{operand.code.title}` is `{operand.dtype.name}`; `is_tensor_scalar_addr` takes integers of 64 bits"
            )
    partitions = step.ins[0].partitions
    value = step.ins[0].read_bits().reshape(partitions, -1)
    for place, operand in enumerate(step.ins[1:]):
        name = step.word(f"op{place}")
        check_column(operand, partitions)
        other = operand.read_bits().reshape(-1, 1)
        pair = (other, value) if step.flag(f"reverse{place}") else (value, other)
        if name == "bypass":
            value = np.broadcast_to(pair[0], value.shape)
        elif name in _ADDRESS:
            value = _ADDRESS[name](*pair)
        else:
            raise SimulationError(f"the operation `{name}` on addresses is not modelled")
    for place in range(len(step.ins) - 1, 2):
        if step.word(f"op{place}") != "bypass":
            raise SimulationError(f"`op{place}` is `{step.word(f'op{place}')}`, and there is no operand for it")
    step.out.write_bits(np.ascontiguousarray(value))


# -- running values ----

_RUNNING = {"add": 0.0, "subtract": 0.0, "mult": 1.0, "max": -np.inf, "min": np.inf}
"""What an accumulation may use as its second operation, with the number that this leaves alone."""
_NO_SCALAR = ("rsqrt", "average", "elemwise_mul", "mod_int")


@opcode(
    "TensorScalarCache", ins=(2, 3), outs=(1, 2), keys="op0 reverse0 op1 reverse1 mode acc", basis="strong",
)  # fmt: skip
def tensor_scalar_cache(step: Step) -> None:
    """A running value along each partition, ``c = op1(op0(in[i], c), c)``; the last one is written, or all are.

    What the first operation takes besides the element is undecided where that makes a difference.
    """
    mode, command = step.word("mode"), step.word("acc")
    _check_cache(step, mode, command)
    x = step.ins[0].rows()
    start = np.float32(step.ins[2].scalar()) if len(step.ins) == 3 else None
    owner = owner_of(step, "DVE")
    if command == "AddAccumulate":
        step.decide("cache_continues", "a `TensorScalarCache` goes on with `AddAccumulate`")
        held = read(step, len(x), engine="DVE")
    else:
        held = None
    found = _running(step, x, start, held)
    last = found[:, -1]
    if mode == "Reduce":
        if len(step.outs) > 1 or step.out.count != len(x):
            raise SimulationError(f"the mode `Reduce` gives {len(x)} elements, one for each partition, to one output")
        step.out.write(last)
    else:
        step.out.write(found)
        if len(step.outs) > 1:
            _write_last(step, step.outs[1], last)
    # Whether this is the accumulator that others read is undecided: it is the one only for who chose so.
    if step.machine.readings.get("cache_continues"):
        step.machine.accumulators[owner] = Accumulated(last, None)
    else:
        step.machine.accumulators.pop(owner, None)


def _check_cache(step: Step, mode: str, command: str) -> None:
    op0, op1 = step.word("op0"), step.word("op1")
    if command not in ("ZeroAccumulate", "AddAccumulate", "LoadAccumulate"):
        raise SimulationError(
            "InstTensorScalarCache EngineAccumulationType must be one of ZeroAccumulate/AddAccumulate/LoadAccumulate, "
            f"but it is {command}"
        )
    if (command == "LoadAccumulate") != (len(step.ins) == 3):
        raise SimulationError(f"it has {len(step.ins)} operands in `ins`; 3 go with `LoadAccumulate`, 2 with others")
    if op1 not in _RUNNING:
        raise SimulationError(f"InstTensorScalarCache op1 must be add/subtract/mult/min/max, but it is {op1}")
    if op0 in alu.INTEGER or op0 in _NO_SCALAR:
        raise SimulationError(f"InstTensorScalarCache op0 must be arithmetic, but it is {op0}")
    if mode == "TensorScan" and (op0 != "bypass" or step.flag("reverse0")):
        raise SimulationError("the mode `TensorScan` takes `bypass` as `op0`, and no `reverse0`")
    if mode not in ("Reduce", "Cumulative", "TensorScan"):
        raise SimulationError(f"the mode `{mode}` is not modelled")


def _running(step: Step, x: F32, start: np.float32 | None, held: F32 | None) -> F32:
    """Return all running values."""
    immediate = np.float32(step.ins[1].scalar())

    def run(reading: str) -> F32:
        first = np.float32(_RUNNING[step.word("op1")] if reading == "immediate" else 0)
        begin = held if held is not None else np.full(len(x), start if start is not None else first, np.float32)
        running, found = Numbers(begin), np.empty_like(x)
        for number in range(x.shape[1]):
            other = Numbers(np.broadcast_to(immediate, len(x))) if reading == "immediate" else running
            value = _pair(step, 0, Numbers(x[:, number]), other)
            running = _pair(step, 1, value, running)
            found[:, number] = running.single
        return found

    chosen = step.machine.readings.get("scalar_cache")
    if chosen is not None:
        return run(chosen)
    one, other = run("cache"), run("immediate")
    ends = np.s_[:, -1:] if step.word("mode") == "Reduce" else np.s_[:, :]
    if not np.array_equal(one[ends], other[ends], equal_nan=True):
        step.decide("scalar_cache", "a `TensorScalarCache`")
    return one


def _write_last(step: Step, out: Operand, last: F32) -> None:
    if out.count != len(last):
        raise SimulationError(
            f"InstTensorScalarCache reduce output must have 1 element per partition, but it has {out.count} for "
            f"{len(last)} partitions"
        )
    if out.dtype.kind != "float":
        raise SimulationError(
            f"InstTensorScalarCache reduce output must have a floating-point Dtype, but it has Dtype::{out.dtype.name}"
        )
    out.write(last)
