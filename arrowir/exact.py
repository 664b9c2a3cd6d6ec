"""Arithmetic on columns of 64-bit integers that never wraps.

Bounds say where it cannot; where it might, Python's own integers do the work.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from arrowir.store import Array

SMALLEST, LARGEST = -(2**63), 2**63 - 1


class Value(NamedTuple):
    """The results of a step: one for all cells or one for each, and bounds that hold for all of them."""

    data: Any
    low: int
    high: int


def value_of(data: Array | int) -> Value:
    """Return a value with the bounds that it has."""
    if isinstance(data, int):
        return Value(data, data, data)
    if not len(data):
        return Value(data, 0, 0)
    return Value(data, int(data.min()), int(data.max()))


_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}


def _bounds(op: str, left: Value, right: Value) -> tuple[int, int]:
    match op:
        case "add":
            return left.low + right.low, left.high + right.high
        case "mul":
            corners = [a * b for a in (left.low, left.high) for b in (right.low, right.high)]
            return min(corners), max(corners)
        case "div":
            most = max(abs(left.low), abs(left.high))
            return -most, most
        case _:
            most = max(abs(right.low), abs(right.high))
            return -most, most


def exactly(op: str, left: Value, right: Value) -> tuple[Value, Array | bool | None]:
    """Compute a sum, product, floor quotient or remainder; return also where the result does not fit 64 bits.

    Parameters
    ----------
    op
        ``"add"``, ``"mul"``, ``"div"`` or ``"mod"``; the last two like Python's `//` and `%`.
    left, right
        What it is of; no divisor is 0.

    Examples
    --------
    >>> exactly("mul", value_of(np.array([2, 3])), value_of(2**62))
    (Value(data=array([0, 0]), low=0, high=0), array([ True,  True]))
    """
    operate = _OPERATIONS[op]
    if isinstance(left.data, int) and isinstance(right.data, int):
        result = operate(left.data, right.data)
        return (value_of(result), None) if SMALLEST <= result <= LARGEST else (value_of(0), True)
    low, high = _bounds(op, left, right)
    narrow = right.low >= SMALLEST and right.high <= LARGEST
    if narrow and low > SMALLEST and high <= LARGEST:
        return Value(operate(left.data, right.data), low, high), None
    # Near the edge: Python's own integers, for as many cells as there are.
    wide = operate(_object(left.data), _object(right.data))
    over = np.array([not SMALLEST <= value <= LARGEST for value in wide.tolist()], bool)
    wide[over] = 0
    return value_of(wide.astype(np.int64)), over if over.any() else None


def _object(data: Any) -> Any:
    return data if isinstance(data, int) else data.astype(object)


def total(*parts: Array) -> Array:
    """Add columns; the sum is of Python's integers (dtype object) where one of 64 bits might wrap.

    Examples
    --------
    >>> total(np.array([1, 2]), np.array([3, 4]))
    array([4, 6])
    >>> total(np.array([2**62]), np.array([2**62]))
    array([9223372036854775808], dtype=object)
    """
    values = [value_of(part) for part in parts]
    if sum(max(abs(v.low), abs(v.high)) for v in values) <= LARGEST:
        return np.sum(parts, axis=0)
    return np.sum([part.astype(object) for part in parts], axis=0)
