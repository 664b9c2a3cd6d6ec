"""Matrix multiplication into PSUM."""

from typing import Literal

import numpy as np

from arrowir.derived import bank_start
from arrowir.diagnostics import SimulationError
from arrowir.simulate.dtypes import F32
from arrowir.simulate.registry import opcode
from arrowir.simulate.step import Operand, Step
from arrowir.vocabulary import PSUM_BANK_BYTES, arch

Mode = Literal["start", "accumulate", "overwrite"]

PIECE = 8
ROWS, COLUMNS, WIDTH = 128, 128, 512
"""The most partitions of the operands, columns of the stationary one, and columns of the moving one."""
_PLAIN_LEVEL = 20
"""Up to this level of architecture a transpose is a product like any other."""

STORING = "accumulation_flag tile_size tile_position psum_zero_region"
"""Keys that say where a product goes."""


@opcode(
    "Matmult", ins=2, outs=1,
    keys=f"{STORING} start_tensor_calc stop_tensor_calc ifmap_quant_offset weights_quant_offset perf_mode"
    " is_transpose is_fmap_onezero is_weight_onezero",
)  # fmt: skip
def matmult(step: Step) -> None:
    """``out[m, n] = sum over k of moving[k, n] * stationary[k, m]`` in float32, stored or added as the mode says.

    With a performance mode each partition holds two rows of the sum. A transpose moves the stationary operand, with its
    bits, when the moving one is an identity matrix.
    """
    moving, stationary = step.ins
    if step.flag("is_transpose") and _transposes_apart(step):
        _transpose(step, moving, stationary)
        return
    if (moving.dtype.name == "float32r") != (stationary.dtype.name == "float32r"):
        raise SimulationError("one operand is `float32r` and the other is not")
    x = _operand(step, moving, "ifmap")
    w = _operand(step, stationary, "weights")
    if len(x) != len(w):
        raise SimulationError(f"the operands have {len(x)} and {len(w)} partitions; the sum is over these")
    rows = len(x)
    x, w = _unpacked(step, x, w)
    if rows > ROWS or w.shape[1] > COLUMNS or x.shape[1] > WIDTH:
        raise SimulationError(
            f"a product of {w.shape[1]}x{rows}x{x.shape[1]} exceeds the array's {COLUMNS}x{ROWS}x{WIDTH}"
        )
    store(step, product(w, x))


def product(stationary: F32, moving: F32) -> F32:
    """Return ``stationary.T @ moving`` in float32.

    It is computed eight columns at a time: so small a product is one thread's work, and its bits depend neither on the
    number of threads nor on how many columns there are.
    """
    rows, width = moving.shape
    pieces = -(-width // PIECE)
    padded = moving if width % PIECE == 0 else np.pad(moving, ((0, 0), (0, pieces * PIECE - width)))
    columns = np.ascontiguousarray(padded.reshape(rows, pieces, PIECE).transpose(1, 0, 2))
    with np.errstate(all="ignore"):
        found = np.matmul(np.ascontiguousarray(stationary.T), columns)
    return found.transpose(1, 0, 2).reshape(-1, pieces * PIECE)[:, :width]


# -- operands ----


def _operand(step: Step, operand: Operand, name: Literal["ifmap", "weights"]) -> F32:
    """Return an operand as float32; zero points are taken from bytes."""
    held, offset = operand.dtype, f"{name}_quant_offset"
    zero = step.integer(offset)
    if held.name == "uint8":
        values = operand.rows() - np.float32(zero)
    elif held.kind != "float":
        raise SimulationError(f"Invalid {name} data type for matmult: `{held.name}`")
    elif zero:
        raise SimulationError(f"`{offset}` is {zero}, and the operand is `{held.name}`; expected `uint8`")
    else:
        values = operand.rows()
    if held.name == "float32r":
        values = _rounded(step, values)
    onezero = "is_fmap_onezero" if name == "ifmap" else "is_weight_onezero"
    if step.flag(onezero) and not np.isin(values, (0, 1)).all():
        raise SimulationError(f"`{onezero}` is set, and the operand holds {values[~np.isin(values, (0, 1))][0]}")
    return values


def _rounded(step: Step, values: F32) -> F32:
    """Round operands of `float32r`."""
    if step.decide("float32r", "a product rounds operands of `float32r`, and how is not known") == "unrounded":
        return values
    bits = values.view(np.uint32)
    half = np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    return np.where(np.isfinite(values), ((bits + half) & np.uint32(0xFFFFE000)).view(np.float32), values)


def _unpacked(step: Step, x: F32, w: F32) -> tuple[F32, F32]:
    """Return operands with one row for each row of the sum: a performance mode has two of them in a partition."""
    mode = step.word("perf_mode")
    if mode == "None":
        return x, w
    if mode not in ("DoubleRow", "DoublePixel", "DoubleRowSwInterleave"):
        raise SimulationError(f"the `perf_mode` `{mode}` is not modelled")
    for name, operand in (("moving", x), ("stationary", w)):
        if operand.shape[1] % 2:
            raise SimulationError(
                f"the {name} operand has partitions of {operand.shape[1]} elements; with the `perf_mode` `{mode}` "
                "each holds two rows"
            )
    double = 2 * len(w)
    rows = w.reshape(double, -1)
    interleaved = w.reshape(len(w), -1, 2).transpose(0, 2, 1).reshape(double, -1)
    if mode == "DoubleRowSwInterleave":
        rows = interleaved
    elif mode == "DoublePixel":
        step.decide("double_pixel", "a `Matmult` with the `perf_mode` `DoublePixel`")
    elif not np.array_equal(rows, interleaved, equal_nan=True):
        chosen = step.decide("double_row", "a `Matmult` with the `perf_mode` `DoubleRow`")
        rows = interleaved if chosen == "interleaved" else rows
    return x.reshape(double, -1), rows


# -- transposes ----


def _transposes_apart(step: Step) -> bool:
    """Tell whether a transpose is something else than a product here."""
    program = step.machine.program
    known = arch(program.pooled("modules", "arch", program.module_id) or None)
    return known is None or known.level > _PLAIN_LEVEL


def _transpose(step: Step, moving: Operand, stationary: Operand) -> None:
    """Move the stationary operand to the output, transposed."""
    for what, operand in (("moving", moving), ("stationary", stationary)):
        if operand.dtype.name != step.out.dtype.name:
            raise SimulationError(
                f"For CoreV3+, Matmult in transpose mode must have same input and output dtype ({what} input "
                f"{operand.dtype.name} != output {step.out.dtype.name})"
            )
    if step.word("perf_mode") != "None":
        raise SimulationError(f"a transpose with the `perf_mode` `{step.word('perf_mode')}` is not modelled")
    identity = moving.rows()
    if not np.array_equal(identity, np.eye(len(identity), dtype=np.float32)):
        raise SimulationError(
            "`is_transpose` is set, and the moving operand is no identity matrix; what that computes is not known"
        )
    data = stationary.read_bits().reshape(stationary.partitions, -1)
    if len(data) != len(identity):
        raise SimulationError(f"the operands have {len(identity)} and {len(data)} partitions; the sum is over these")
    how = mode(step)
    if how == "accumulate":
        raise SimulationError("a transpose that is added to what PSUM holds is not modelled")
    _check_target(step, how, data.size)
    if how == "start":
        _clear(step)
    step.out.write_bits(np.ascontiguousarray(data.T))


# -- PSUM ----


def mode(step: Step) -> Mode:
    """Return what a product does to PSUM: by `start_tensor_calc`, or by the bits of `accumulation_flag`."""
    if step.has("start_tensor_calc"):
        if step.has("accumulation_flag") and step.integer("accumulation_flag") != 0:
            raise SimulationError("it has both `start_tensor_calc` and `accumulation_flag`")
        return "start" if step.flag("start_tensor_calc") else "accumulate"
    flag = step.integer("accumulation_flag")
    if not 0 <= flag <= 3:
        raise SimulationError(f"`accumulation_flag` is {flag}; expected 0 to 3")
    return "start" if flag & 1 else "accumulate" if flag & 2 else "overwrite"


def store(step: Step, product: F32) -> None:
    """Write a product, or add it to what PSUM holds."""
    out, how = step.out, mode(step)
    _check_target(step, how, product.size)
    if how == "start":
        _clear(step)
    if how == "accumulate":
        with np.errstate(all="ignore"):
            out.write(out.float32().reshape(product.shape) + product)
    else:
        out.write(product)


def _check_target(step: Step, how: Mode, count: int) -> None:
    if step.out.count != count:
        raise SimulationError(f"the product has {count} elements, and the output {step.out.count}")
    memory = step.out.access.memory
    if how != "overwrite" and step.machine.program.placement(memory.location).kind != "PSUM":
        raise SimulationError(f"`{memory.name}` is not in PSUM, and only that accumulates")


def _clear(step: Step) -> None:
    """Zero what a start zeroes beyond the output: with a `psum_zero_region` of several banks, the rest of these.

    Within one bank nothing else is zeroed: kernels compute parts of a bank one after the other.
    """
    power = step.integer("psum_zero_region") if step.has("psum_zero_region") else 0
    if not 0 <= power <= 3:
        raise SimulationError(f"`psum_zero_region` is {power}; there are 8 banks, expected 0 to 3")
    if power == 0:
        return
    access = step.out.access
    memory, bytes_ = access.memory, access.bytes().reshape(-1)
    region = PSUM_BANK_BYTES << power
    program = step.machine.program
    bank = program.integer("locations", "bank", memory.location) or 0
    addr = program.placement(memory.location).addr or 0
    base = (int(bank_start(np.array([bank]), np.array([addr]))[0]) + addr) % region
    columns = bytes_ % memory.pitch
    low = (int(columns.min()) + base) // region * region - base
    high = min((int(columns.max()) + base) // region * region + region - base, memory.pitch)
    inside = np.zeros((memory.partitions, memory.pitch), bool)
    inside[np.unique(bytes_ // memory.pitch), max(low, 0) : high] = True
    flat = inside.reshape(-1)
    flat[bytes_] = False
    flat &= memory.shadow != 0
    if not flat.any():
        return
    met = f"a start zeroes {1 << power} banks, in which `{memory.name}` holds more"
    if step.decide("psum_zero_region", met) == "banks":
        memory.data[flat] = 0
