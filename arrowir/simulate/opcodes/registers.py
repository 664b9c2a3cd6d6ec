"""Integers in registers: moves, arithmetic, and the way to memory and back."""

from collections.abc import Callable

from arrowir.diagnostics import SimulationError
from arrowir.simulate.registry import opcode
from arrowir.simulate.step import Step

_64 = frozenset(("add", "subtract", "mult"))
"""Operations on 64 bits."""


def _shift(value: int, by: int) -> int:
    if not 0 <= by < 32:
        raise SimulationError(f"a shift by {by} bits; expected 0 to 31")
    return value << by


def _unsigned_shift(value: int, by: int) -> int:
    if not 0 <= by < 32:
        raise SimulationError(f"a shift by {by} bits; expected 0 to 31")
    return (value & 0xFFFFFFFF) >> by


def _signed_shift(value: int, by: int) -> int:
    if not 0 <= by < 32:
        raise SimulationError(f"a shift by {by} bits; expected 0 to 31")
    return value >> by


OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "bypass": lambda a, x: a,
    "add": lambda a, x: a + x,
    "subtract": lambda a, x: a - x,
    "mult": lambda a, x: a * x,
    "max": max,
    "min": min,
    "bitwise_not": lambda a, x: ~a,
    "bitwise_and": lambda a, x: a & x,
    "bitwise_or": lambda a, x: a | x,
    "bitwise_xor": lambda a, x: a ^ x,
    "logical_and": lambda a, x: int(bool(a) and bool(x)),
    "logical_or": lambda a, x: int(bool(a) or bool(x)),
    "logical_xor": lambda a, x: int(bool(a) != bool(x)),
    "logical_shift_left": _shift,
    "arith_shift_left": _shift,
    "logical_shift_right": _unsigned_shift,
    "arith_shift_right": _signed_shift,
    "is_equal": lambda a, x: int(a == x),
    "not_equal": lambda a, x: int(a != x),
    "is_gt": lambda a, x: int(a > x),
    "is_ge": lambda a, x: int(a >= x),
    "is_lt": lambda a, x: int(a < x),
    "is_le": lambda a, x: int(a <= x),
}
"""Operations on registers of 32 bits; `divide` and `mod` are not among them, since their rounding is not known."""


@opcode("RegisterMove", ins=1, outs=1)
def register_move(step: Step) -> None:
    """A register takes the value of a register or an immediate."""
    step.out.write_integer(step.ins[0].integer())


@opcode("RegisterAlu", ins=(1, 2), outs=1, keys="op is_64bit", basis="strong")
def register_alu(step: Step) -> None:
    """``op`` of two integers, wrapped to the width of the result."""
    name, wide = step.word("op"), step.flag("is_64bit")
    if name not in OPERATIONS or (wide and name not in _64):
        raise SimulationError(f"`{name}` on registers of {64 if wide else 32} bits is not modelled")
    if wide != (step.out.dtype.size == 8):
        raise SimulationError(f"`is_64bit` is {wide}, and the result is `{step.out.dtype.name}`")
    values = [operand.integer() for operand in step.ins]
    if len(values) == 1 and name not in ("bypass", "bitwise_not"):
        raise SimulationError(f"`{name}` takes two operands, found one")
    step.out.write_integer(OPERATIONS[name](values[0], values[-1]))


@opcode("TensorLoad", ins=1, outs=1, basis="strong")
def tensor_load(step: Step) -> None:
    """A register takes one integer from memory."""
    if not step.ins[0].in_memory:
        raise SimulationError(f"it loads from memory, and its operand is a `{step.ins[0].kind}`")
    step.out.write_integer(step.ins[0].integer())


@opcode("TensorSave", ins=1, outs=1, basis="strong")
def tensor_save(step: Step) -> None:
    """Memory takes one integer from a register or an immediate."""
    if step.out.dtype.kind != "int" or step.out.count != 1:
        raise SimulationError("it saves one integer, and its output is something else")
    import numpy as np

    step.out.write(np.array(step.ins[0].integer(), np.int64))
