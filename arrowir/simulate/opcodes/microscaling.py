"""Microscaled numbers: 32 elements, 4 of a row in each of 8 partitions, have a common power of two."""

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.dtypes import F32, dtype
from arrowir.simulate.memory import Access
from arrowir.simulate.opcodes.matmul import COLUMNS, ROWS, STORING, WIDTH, product, store
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import LANES
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_GROUP = 4
"""Elements of a row, and rows of scales for each 32 partitions."""
_PARTITIONS = 8
"""Partitions that have a scale in common."""
_STARTS = (0, 4, 8, 12)
"""Where scales may start within 32 partitions."""
_BIAS = 127
_BANKS = 8

_SCALES = ("float8_e8m0fnu", "uint8")
"""Dtypes of scales: exponents with the bias of float32."""
_ELEMENTS = {
    "float4_e2m1fn_x4": "float4_e2m1fn",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8e5": "float8_e5m2",
    "float8_e4m3fn_x4": "float8_e4m3fn",
    "float8_e5m2_x4": "float8_e5m2",
}
"""Dtypes of elements, of which those with `x4` hold four, the first one in the lowest bits."""
_GREATEST = {"float4_e2m1fn": (2, 6.0), "float8_e4m3fn": (8, 448.0), "float8_e5m2": (15, 57344.0)}
"""For each element type the exponent of its greatest value, and that value."""
_NIBBLES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""Values of 4 bits, without the sign."""


def _element(operand: Operand) -> str:
    name = operand.dtype.name
    if name not in _ELEMENTS:
        raise SimulationError(f"`{operand.code.title}` is `{name}`; expected one of {', '.join(_ELEMENTS)}")
    return _ELEMENTS[name]


def _packed(operand: Operand) -> bool:
    return operand.dtype.name.endswith("_x4")


def _decoded(operand: Operand) -> F32:
    """Return an operand's elements as numbers, in rows of groups of four."""
    name = _element(operand)
    bits = np.ascontiguousarray(operand.read_bits().reshape(operand.partitions, -1))
    if name == "float4_e2m1fn":
        codes = (bits[..., None] >> np.arange(0, 16, 4, dtype=np.uint16)) & np.uint16(15)
        return np.where(codes < 8, 1, -1).astype(np.float32) * _NIBBLES[codes & 7]
    table = dtype("float8e5" if name == "float8_e5m2" else name).table
    assert table is not None
    values = table[bits.view(np.uint8)]
    if values.shape[1] % _GROUP:
        raise SimulationError(f"`{operand.code.title}` has rows of {values.shape[1]} elements, no multiple of {_GROUP}")
    return values.reshape(len(values), -1, _GROUP)


def _scale_access(scales: Operand, partitions: int, groups: int) -> Access:
    """Return the scales that count: of each 32 partitions the first four."""
    if scales.dtype.name not in _SCALES:
        raise SimulationError(f"`{scales.code.title}` is `{scales.dtype.name}`; expected one of {', '.join(_SCALES)}")
    if scales.partitions != partitions or scales.count != partitions * groups:
        raise SimulationError(
            f"`{scales.code.title}` has {scales.count} scales in {scales.partitions} partitions; expected {groups} in "
            f"each of {partitions}"
        )
    if scales.first_partition % LANES not in _STARTS:
        raise SimulationError(
            f"`{scales.code.title}` starts at partition {scales.first_partition}; expected a multiple of {LANES} plus "
            "0, 4, 8 or 12"
        )
    whole = scales.access
    by = whole.steps[0]
    free = list(zip(whole.steps[1:], whole.shape[1:], strict=True))
    pattern = [(LANES * by, partitions // LANES), (by, _GROUP), *free]
    return Access(whole.memory, whole.dtype, whole.offset, pattern, linear=True)


def _factors(step: Step, data: Operand, scales: Operand, groups: int) -> F32:
    """Return the factor of each group of each partition."""
    access = _scale_access(scales, data.partitions, groups)
    if access.written() is not None:
        raise SimulationError(
            f"`{scales.code.title}` reads scales of `{access.memory.name}` that were never written{access.memory.why}"
        )
    step.machine.count_read(access)
    exponents = access.bits().reshape(-1, groups).astype(np.int32)
    return np.repeat(np.ldexp(np.float32(1), exponents - _BIAS), _PARTITIONS, axis=0).astype(np.float32)


def _dequantised(step: Step, data: Operand, scales: Operand) -> F32:
    values = _decoded(data)
    with np.errstate(all="ignore"):
        return values * _factors(step, data, scales, values.shape[1])[:, :, None]


@opcode("MatmultMx", ins=4, outs=1, keys=STORING, basis="strong")
def matmult_mx(step: Step) -> None:
    """``out[m, n] = sum over k, q of moving[k, n, q] * stationary[k, m, q]`` of scaled elements, stored like `Matmult`.

    The operands are the moving and the stationary elements, and scales for each, in this order too.
    """
    scales = [o for o in step.ins if o.dtype.name in _SCALES]
    data = [o for o in step.ins if o.dtype.name not in _SCALES]
    if len(scales) != 2:
        raise SimulationError(f"it has {len(scales)} operands of scales; expected 2, of {' or '.join(_SCALES)}")
    moving, stationary = data
    partitions = moving.partitions
    if stationary.partitions != partitions:
        raise SimulationError(
            f"Number of partitions accessed by ifmap {partitions} should equal number of partitions accessed by "
            f"weights {stationary.partitions}"
        )
    if partitions not in (32, 64, ROWS):
        raise SimulationError(f"Num active rows for instruction must be 32, 64 or 128. Got: {partitions}")
    x, w = (_dequantised(step, *pair) for pair in zip(data, scales, strict=True))
    if w.shape[1] > COLUMNS or x.shape[1] > WIDTH * _BANKS:
        raise SimulationError(
            f"a product of {w.shape[1]}x{partitions}x{x.shape[1]} exceeds the array's {COLUMNS}x{ROWS}x{WIDTH * _BANKS}"
        )
    store(step, product(_flat(w), _flat(x)))


def _flat(values: F32) -> F32:
    """Return one row for each element of a group."""
    return np.ascontiguousarray(values.transpose(0, 2, 1)).reshape(-1, values.shape[1])


@opcode("QuantizeMx", ins=1, outs=2, basis="strong")
def quantize_mx(step: Step) -> None:
    """Each 32 elements are divided by a power of two, rounded to nearest even and saturated; and its exponents.

    The exponent is that of the largest element less that of the element type's greatest value, 1 at least. The outputs
    are elements and scales.
    """
    source, (out, scales) = step.ins[0], step.outs
    partitions, innermost = source.partitions, source.access.steps[-1]
    if source.dtype.kind != "float":
        raise SimulationError(f"`{source.code.title}` is `{source.dtype.name}`; expected a float dtype")
    if partitions % LANES or source.shape[-1] % _GROUP or innermost != 1:
        raise SimulationError(
            f"`{source.code.title}` has {partitions} partitions, and rows of {source.shape[-1]} elements with the step "
            f"{innermost}; expected a multiple of {LANES}, a multiple of {_GROUP}, and the step 1"
        )
    name = _element(out)
    if out.count * (_GROUP if _packed(out) else 1) != source.count or out.partitions != partitions:
        raise SimulationError(
            f"Input AP and Output AP should access same number of elements. Input AP accesses {source.count} elements "
            f"and Output AP accesses {out.count * (_GROUP if _packed(out) else 1)} elements"
        )
    values = source.rows().reshape(partitions, -1, _GROUP)
    groups = values.shape[1]
    access = _scale_access(scales, partitions, groups)
    exponent, greatest = _GREATEST[name]
    parts = (values.view(np.uint32) >> np.uint32(23)) & np.uint32(0xFF)
    largest = parts.reshape(-1, _PARTITIONS, groups, _GROUP).max(axis=(1, 3)).astype(np.int32)
    chosen = np.maximum(largest - exponent, 1)
    factors = np.repeat(np.ldexp(np.float32(1), _BIAS - chosen), _PARTITIONS, axis=0)[:, :, None].astype(np.float32)
    with np.errstate(all="ignore"):
        scaled = np.clip(values * factors, np.float32(-greatest), np.float32(greatest))
    bits = _encoded(name, scaled)
    if _packed(out):
        out.write_bits(bits.reshape(partitions, -1))
    else:
        out.write_bits(bits.view(np.uint8).reshape(partitions, -1))
    stored = chosen.astype(np.uint8).reshape(access.shape)
    access.store(stored)
    step.machine.count_written(access, stored)


def _encoded(name: str, values: F32) -> Array:
    """Return groups of four numbers as one integer each, the first number in the lowest bits."""
    if name == "float4_e2m1fn":
        if np.isnan(values).any():
            raise SimulationError("a NaN is quantised to 4 bits, which have none")
        # Between two neighbours the middle goes to the one with an even code.
        middles = (_NIBBLES[1:] + _NIBBLES[:-1]) / 2
        size = np.abs(values)
        codes = np.searchsorted(middles, size, side="left")
        tie = np.isin(size, middles) & (codes % 2 == 1)
        codes = (codes + tie).astype(np.uint16) | (np.signbit(values).astype(np.uint16) << np.uint16(3))
        shifts = np.arange(0, 16, 4, dtype=np.uint16)
        return np.bitwise_or.reduce(codes << shifts, axis=-1)
    held = dtype("float8e5" if name == "float8_e5m2" else name).numpy
    with np.errstate(all="ignore"):
        return np.ascontiguousarray(values.astype(held).view(np.uint8)).view(np.uint32)[..., 0]
