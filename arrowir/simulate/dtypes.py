"""Element types: how each is held in numpy, what its values are in float32, and how values are written to it.

`bfloat16` and the 8-bit floats come from `ml_dtypes`, which is imported when one of them is first used.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from arrowir import vocabulary
from arrowir.diagnostics import SimulationError
from arrowir.store import Array

Kind = Literal["float", "int", "bits"]
Decide = Callable[[str, str], str]
"""Gives the chosen reading of an undecided case, or raises; the second argument says what was met."""

F32 = NDArray[np.float32]

_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8e3": "float8_e3m4",
    "float8e4": "float8_e4m3",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8e5": "float8_e5m2",
}
_PACKED = {
    "float4_e2m1fn_x4": np.uint16,
    "float8_e8m0fnu": np.uint8,
    "float8_e4m3fn_x4": np.uint32,
    "float8_e5m2_x4": np.uint32,
    "bool": np.uint8,
    "float8_e4m3": np.uint8,
}
"""Types whose bits are held: several values in one element, scales, and those that only some readers know."""

_CANONICAL_NAN = {"bfloat16": 0x7FC0, "float16": 0x7E00}
_LARGEST = float(np.finfo(np.float32).max)
_EXACT = 1 << 24
"""Integers up to this are values of float32."""


@dataclass(frozen=True, slots=True, eq=False)
class Dtype:
    """An element type."""

    name: str
    """As files spell it."""
    size: int
    kind: Kind
    """`bits` for types that are moved only."""
    numpy: np.dtype[Any]
    unsigned: np.dtype[Any]
    """Unsigned integers of the same size: the bit patterns."""
    table: F32 | None = field(default=None, repr=False)
    """For 8-bit floats the value of each bit pattern."""

    @property
    def lowest(self) -> int:
        """The smallest value of an integer type."""
        return int(np.iinfo(self.numpy).min)

    @property
    def highest(self) -> int:
        """The largest value of an integer type."""
        return int(np.iinfo(self.numpy).max)


@cache
def dtype(name: str) -> Dtype:
    """Return the element type of a spelling.

    Parameters
    ----------
    name
        As files spell it.

    Raises
    ------
    SimulationError
        If it is unknown, or needs `ml_dtypes` and that is not installed.

    Examples
    --------
    >>> dtype("float32r").numpy, dtype("int16").kind
    (dtype('float32'), 'int')
    """
    code = vocabulary.DTYPES.code(name)
    if code < 0:
        raise SimulationError(f"the dtype `{name}` is not known")
    size = vocabulary.DTYPE_BYTES[code]
    unsigned = np.dtype(f"u{size}")
    if name in _PACKED:
        return Dtype(name, size, "bits", np.dtype(_PACKED[name]), unsigned)
    if name in _ML_DTYPES:
        try:
            import ml_dtypes
        except ImportError:
            raise SimulationError(f"`{name}` needs ml_dtypes; install it with `pip install 'arrowir[sim]'`") from None
        held = np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
        table = np.arange(256, dtype=np.uint8).view(held).astype(np.float32) if size == 1 else None
        return Dtype(name, size, "float", held, unsigned, table)
    held = np.dtype("float32" if name == "float32r" else name)
    return Dtype(name, size, "float" if held.kind == "f" else "int", held, unsigned)


def number(value: Any, what: str) -> float:
    """Return a number of a file, which may be spelled `inf`, `-inf` or `nan`.

    Raises
    ------
    SimulationError
        If it is none, or leaves float32: then it is not known what the compiler makes of it.
    """
    if isinstance(value, str) and value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SimulationError(f"{what} is {value!r:.60}; expected a number")
    if _LARGEST < abs(value) != np.inf:
        raise SimulationError(f'{what} is {value!r:.60}; expected a number of float32, or "inf" or "-inf"')
    return float(value)


def to_float32(values: Array, of: Dtype, decide: Decide) -> F32:
    """Return values of an element type as float32, in a new array.

    Parameters
    ----------
    values
        An array of the type's numpy dtype.
    of
        The type.
    decide
        Asked where an integer is no value of float32.
    """
    if of.table is not None:
        return of.table[values.view(np.uint8)]
    if of.kind == "int" and of.size >= 4:
        check_exact(values, decide)
    if of.kind == "bits":
        raise SimulationError(f"`{of.name}` is no type to compute with")
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return values.astype(np.float32)


def check_exact(values: Array, decide: Decide) -> bool:
    """Tell whether integers are values of float32; ask where they are not (`integer_arithmetic`)."""
    if not values.size or (values.max() <= _EXACT and values.min() >= -_EXACT):
        return True
    size = np.where(values < 0, -values, values).astype(np.uint64)
    # Without its factors of 2 such an integer has 24 bits at most.
    lowest = np.maximum(size & (~size + np.uint64(1)), np.uint64(1))
    bad = size // lowest >= _EXACT
    if not bad.any():
        return True
    decide("integer_arithmetic", f"the integer {int(values[bad].flat[0])} is no value of float32")
    return False


def convert(values: Array, to: Dtype, decide: Decide) -> Array:
    """Return values as an element type: what writing them to memory does.

    Parameters
    ----------
    values
        Numbers of any numpy dtype. Those of the type's own dtype come back as they are.
    to
        The type.
    decide
        Asked where the reference semantics leave open what is written.
    """
    if values.dtype == to.numpy:
        return values
    if to.kind == "float":
        return _to_float(values, to)
    if to.kind == "bits":
        raise SimulationError(f"`{to.name}` can be moved but not computed; give both operands this dtype")
    return _to_int(values, to, decide)


def _to_float(values: Array, to: Dtype) -> Array:
    """Round to nearest even, by way of float32; NaNs of 16 bits have one pattern."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        single = values if values.dtype == np.float32 else values.astype(np.float32)
        out = single.astype(to.numpy) if to.numpy != np.float32 else single
    pattern = _CANONICAL_NAN.get(to.name)
    if pattern is not None:
        nan = np.isnan(single)
        if nan.any():
            out.view(np.uint16)[nan] = pattern
    return out


def _to_int(values: Array, to: Dtype, decide: Decide) -> Array:
    low, high = to.lowest, to.highest
    if values.dtype.kind in "iub":
        if values.size and (int(values.min()) < low or int(values.max()) > high):
            outside = int(values[(values < low) | (values > high)][0])
            how = decide("integer_overflow", f"{outside} does not fit `{to.name}`")
            if how == "saturate":
                bounds = np.iinfo(values.dtype)
                values = values.clip(max(low, int(bounds.min)), min(high, int(bounds.max)))
        return values.astype(to.numpy)
    wide = values.astype(np.float64)
    whole = np.rint(wide)
    past = float(high + 1)  # a power of 2, so that it is exact
    inside = (whole >= low) & (whole < past)
    if (inside & (whole == wide)).all():
        return whole.astype(to.numpy)
    met = float(values[~(inside & (whole == wide))].flat[0])
    if decide("float_to_int", f"{met} is written to `{to.name}`") == "truncate":
        whole = np.trunc(wide)
        inside = (whole >= low) & (whole < past)
    out = np.zeros(whole.shape, to.numpy)
    out[inside] = whole[inside].astype(to.numpy)
    out[whole >= past] = high
    out[whole < low] = low
    return out
