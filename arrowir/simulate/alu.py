"""Arithmetic and logical operations: ``f(a, x)`` of two arrays, as vector engines compute them.

Arithmetic is in float32. Operands of integer types are whole numbers of float32; where a result would differ from that
of exact integers, the case is undecided (`integer_arithmetic`). Bit operations and shifts take integers of 32 bits.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.dtypes import F32, Decide, check_exact
from arrowir.store import Array

Binary = Callable[[Any, Any], Any]

ARITHMETIC: dict[str, Binary] = {
    "add": np.add,
    "subtract": np.subtract,
    "mult": np.multiply,
    "max": np.fmax,
    "min": np.fmin,
    "abs_max": lambda a, x: np.fmax(np.abs(a), np.abs(x)),
    "abs_min": lambda a, x: np.fmin(np.abs(a), np.abs(x)),
    "abs": lambda a, x: np.abs(a),
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "is_equal": np.equal,
    "not_equal": np.not_equal,
    "is_gt": np.greater,
    "is_ge": np.greater_equal,
    "is_lt": np.less,
    "is_le": np.less_equal,
}
"""Operations with the same definition on float32 and on whole numbers."""

FLOATING: dict[str, Binary] = {
    "divide": np.divide,
    "pow": lambda a, x: np.power(a.astype(np.float64), x.astype(np.float64)),
    "rsqrt": lambda a, x: 1 / np.sqrt(a.astype(np.float64)),
}
"""Operations on float32 alone."""

BITWISE: dict[str, Binary] = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_not": lambda a, x: np.bitwise_not(a),
}
SHIFTS: dict[str, Binary] = {
    "arith_shift_left": np.left_shift,
    "arith_shift_right": np.right_shift,
    "logical_shift_left": np.left_shift,
    "logical_shift_right": lambda a, x: np.right_shift(a.view(np.uint32), x.view(np.uint32)).view(np.int32),
}
INTEGER = BITWISE.keys() | SHIFTS.keys()
"""Operations on integers alone."""

UNARY = frozenset(("bypass", "abs", "rsqrt", "bitwise_not"))
"""Operations that do not look at their second operand."""

_CHOOSING = frozenset(("max", "min", "abs_max", "abs_min"))


class Numbers:
    """The elements of an operand, as float32 and, when its type is an integer, also as they are.

    Parameters
    ----------
    single
        The elements in float32.
    exact
        The elements as integers of 64 bits. One of the two may be left out: then float32 is made of these.
    """

    __slots__ = ("_single", "exact")

    def __init__(self, single: F32 | None = None, exact: Array | None = None) -> None:
        self._single, self.exact = single, exact

    @property
    def single(self) -> F32:
        """The elements in float32."""
        if self._single is None:
            assert self.exact is not None
            self._single = self.exact.astype(np.float32)
        return self._single

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the elements."""
        held = self._single if self._single is not None else self.exact
        assert held is not None
        return held.shape

    @property
    def result(self) -> Array:
        """What is written: exact integers where there are any."""
        return self.single if self.exact is None else self.exact

    def reshape(self, *shape: int) -> "Numbers":
        """Return the elements in another shape."""
        single = None if self._single is None else self._single.reshape(shape)
        return Numbers(single, None if self.exact is None else self.exact.reshape(shape))


def constant(value: float) -> Numbers:
    """Return a number that is written in an instruction; one without fraction serves as an integer too."""
    whole = np.isfinite(value) and value == int(value) and abs(value) < 2**63
    return Numbers(np.asarray(value, np.float32), np.asarray(int(value), np.int64) if whole else None)


def apply(op: str, a: Numbers, x: Numbers, decide: Decide) -> Numbers:
    """Return ``op(a, x)``, element by element; the operands broadcast as in numpy.

    Parameters
    ----------
    op
        The operation, as files spell it.
    a, x
        First and second operand.
    decide
        Asked where the semantics leave the result open.

    Raises
    ------
    SimulationError
        If the operation is not modelled, or does not take operands of this type.

    Examples
    --------
    >>> apply("is_gt", constant(3.0), constant(2.5), lambda case, met: "").single.item()
    1.0
    """
    if op == "bypass":
        return a
    if op in INTEGER:
        return _integers(op, a, x)
    if a.exact is None or op in FLOATING or (x.exact is None and op not in UNARY):
        for operand in (a,) if op in UNARY else (a, x):
            if operand.exact is not None:
                check_exact(operand.exact, decide)
    if op == "mod":
        return _modulo(a, x, decide)
    if op not in ARITHMETIC and op not in FLOATING:
        raise SimulationError(f"the operation `{op}` is not modelled")
    with np.errstate(all="ignore"):
        single = (ARITHMETIC.get(op) or FLOATING[op])(a.single, x.single).astype(np.float32)
        if op in _CHOOSING:
            single = _chosen(a.single, x.single, single, decide)
        if a.exact is None or (x.exact is None and op not in UNARY) or op in FLOATING:
            return Numbers(single)
        other = x.exact if x.exact is not None else a.exact
        _check_range(op, a.exact, other)
        exact = ARITHMETIC[op](a.exact, other).astype(np.int64)
    return _agreed(op, single, exact, decide)


def _chosen(a: F32, x: F32, result: F32, decide: Decide) -> F32:
    """Look at maxima and minima with NaNs: `result` has the number."""
    mixed = np.isnan(a) != np.isnan(x)
    if mixed.any() and decide("nan_comparison", "a NaN is compared with a number") == "nan":
        return np.where(mixed, np.float32(np.nan), result)
    return result


def _agreed(op: str, single: F32, exact: Array, decide: Decide) -> Numbers:
    """Return a result on integers: float32 and exact arithmetic have to agree."""
    with np.errstate(invalid="ignore"):
        differ = (np.abs(single) >= 2.0**63) | (single.astype(np.int64) != exact)
    if not differ.any():
        return Numbers(single, exact)
    met = int(exact[differ][0]) if exact.ndim else int(exact)
    if decide("integer_arithmetic", f"`{op}` of integers gives {met}, and in float32 another number") == "float32":
        return Numbers(single)
    return Numbers(None, exact)


def _check_range(op: str, a: Array, x: Array) -> None:
    """Refuse integers whose sum or product might leave 64 bits."""
    if not a.size or not x.size:
        return
    left, right = (max(abs(int(v.min())), abs(int(v.max()))) for v in (a, x))
    if (left * right if op == "mult" else left + right) >= 1 << 63:
        raise SimulationError(
            f"`{op}` of integers of up to {left} and {right}, which may leave 64 bits, is not modelled"
        )


def _integers(op: str, a: Numbers, x: Numbers) -> Numbers:
    if a.exact is None or (x.exact is None and op not in UNARY):
        raise SimulationError(f"`{op}` takes integers, and an operand is none")
    left, right = _32(op, a.exact), _32(op, x.exact if x.exact is not None else a.exact)
    if op in SHIFTS:
        if right.size and (int(right.min()) < 0 or int(right.max()) > 31):
            raise SimulationError(f"`{op}` by {int(right.min())} to {int(right.max())} bits; expected 0 to 31")
        left, right = np.broadcast_arrays(left, right)
        return Numbers(None, SHIFTS[op](np.ascontiguousarray(left), np.ascontiguousarray(right)).astype(np.int64))
    return Numbers(None, BITWISE[op](left, right).astype(np.int64))


def _32(op: str, values: Array) -> Array:
    """Return the low 32 bits as signed integers."""
    if values.size and not -(2**31) <= int(values.min()) <= int(values.max()) < 2**32:
        raise SimulationError(f"`{op}` takes integers of 32 bits, and an operand is wider")
    return (values.astype(np.int64) & 0xFFFFFFFF).astype(np.uint32).view(np.int32)


def _modulo(a: Numbers, x: Numbers, decide: Decide) -> Numbers:
    with np.errstate(all="ignore"):
        truncated, floored = np.fmod(a.single, x.single), np.mod(a.single, x.single)
    differ = (truncated != floored) & ~(np.isnan(truncated) & np.isnan(floored))
    single = truncated
    if differ.any() and decide("mod", "`mod` of operands of different signs") == "floor":
        single = floored
    if a.exact is not None and x.exact is not None and x.exact.size and np.all(x.exact != 0):
        exact = np.fmod(a.exact, x.exact) if single is truncated else np.mod(a.exact, x.exact)
        return _agreed("mod", single, exact, decide)
    return Numbers(single)
