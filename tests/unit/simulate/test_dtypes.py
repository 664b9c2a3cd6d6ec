"""Element types: values in float32, and what writing does to a value."""

import math
from bisect import bisect_left
from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from arrowir.simulate import dtypes
from arrowir.simulate.dtypes import convert, dtype, to_float32
from arrowir.vocabulary import DTYPE_BYTES, DTYPES
from tests.simulated import HELD

# Exponent bits, mantissa bits, whether the largest exponent is kept for infinity and NaN.
FORMS = {
    "float16": (5, 10, True),
    "bfloat16": (8, 7, True),
    "float8e3": (3, 4, True),
    "float8e4": (4, 3, True),
    "float8e5": (5, 2, True),
    "float8_e4m3fn": (4, 3, False),
}


def refuse(case: str, met: str) -> str:
    raise SimulationError(f"{case}: {met}")


def value_of(bits: int, name: str) -> float:
    """Return the value of a bit pattern, from the definition of such formats."""
    exponents, mantissas, special = FORMS[name]
    sign = -1 if bits >> (exponents + mantissas) else 1
    exponent, mantissa = bits >> mantissas & (1 << exponents) - 1, bits & (1 << mantissas) - 1
    bias = (1 << exponents - 1) - 1
    last = exponent == (1 << exponents) - 1
    if last and special:
        return math.nan if mantissa else sign * math.inf
    if last and mantissa == (1 << mantissas) - 1:
        return math.nan
    if exponent == 0:
        return sign * float(Fraction(mantissa, 1 << mantissas) * Fraction(2) ** (1 - bias))
    return sign * float((1 + Fraction(mantissa, 1 << mantissas)) * Fraction(2) ** (exponent - bias))


@cache
def finite_values(name: str) -> tuple[list[Fraction], bool]:
    """Return the values of a format from 0 on, and whether it has an infinity."""
    exponents, mantissas, _ = FORMS[name]
    values = [value_of(bits, name) for bits in range(1 << exponents + mantissas)]
    return [Fraction(v) for v in values if math.isfinite(v)], math.inf in values


def nearest(value: float, name: str) -> float:
    """Round to nearest even by search among all values of a format."""
    finite, infinity = finite_values(name)
    magnitude = Fraction(abs(value))
    if magnitude >= finite[-1] + (finite[-1] - finite[-2]) / 2:
        return math.copysign(math.inf, value) if infinity else math.nan
    above = min(bisect_left(finite, magnitude), len(finite) - 1)
    place = min((max(above - 1, 0), above), key=lambda k: (abs(finite[k] - magnitude), k % 2))
    return math.copysign(float(finite[place]), value)


def test_sizes_are_those_of_the_vocabulary() -> None:
    for name, size in zip(DTYPES.values, DTYPE_BYTES, strict=True):
        held = dtype(name)
        assert (held.size, held.numpy.itemsize, held.unsigned.itemsize) == (size, size, size)
    with pytest.raises(SimulationError, match="`float99` is not known"):
        dtype("float99")


@pytest.mark.parametrize("name", FORMS)
def test_every_bit_pattern_has_its_value(name: str) -> None:
    exponents, mantissas, _ = FORMS[name]
    bits = np.arange(1 << exponents + mantissas + 1)
    bits = bits if len(bits) <= 4096 else bits[:: len(bits) // 1111]
    held = dtype(name)
    found = to_float32(bits.astype(held.unsigned).view(held.numpy), held, refuse)
    assert np.array_equal(found, np.array([value_of(b, name) for b in bits.tolist()], np.float32), equal_nan=True)


@pytest.mark.parametrize("name", ["float8e3", "float8e4", "float8e5", "float8_e4m3fn"])
def test_floats_are_rounded_to_nearest_even(name: str) -> None:
    held = dtype(name)
    rng = np.random.default_rng(1)
    exact = np.array([value_of(b, name) for b in range(1 << 7)], np.float32)
    exact = exact[np.isfinite(exact)]
    halves = (exact[1:] + exact[:-1]) / 2
    scaled = rng.standard_normal(60) * 2.0 ** rng.integers(-18, 18, 60)
    values = np.concatenate([halves, -halves, exact, scaled, [0.0, -0.0, 1e30, -1e30]]).astype(np.float32)
    found = convert(values, held, refuse).astype(np.float32)
    wanted = np.array([nearest(v, name) for v in values.tolist()], np.float32)
    assert np.array_equal(found, wanted, equal_nan=True)
    number = ~np.isnan(wanted)
    assert np.array_equal(np.signbit(found[number]), np.signbit(wanted[number]))


def test_nan_of_16_bits_has_one_pattern() -> None:
    nans = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    assert convert(nans, dtype("bfloat16"), refuse).view(np.uint16).tolist() == [0x7FC0, 0x7FC0]
    assert convert(nans, dtype("float16"), refuse).view(np.uint16).tolist() == [0x7E00, 0x7E00]


def test_overflow_of_floats() -> None:
    large = np.array([1e30, -1e30, 3.4e38], np.float32)
    assert convert(large, dtype("float16"), refuse).view(np.uint16).tolist() == [0x7C00, 0xFC00, 0x7C00]
    assert convert(large[2:], dtype("bfloat16"), refuse).view(np.uint16).tolist() == [0x7F80]
    assert np.isinf(convert(large, dtype("float8e4"), refuse).astype(np.float32)).all()
    assert np.isnan(convert(large, dtype("float8_e4m3fn"), refuse).astype(np.float32)).all()


def test_values_of_their_own_type_are_not_touched() -> None:
    bits = np.array([0x7F81, 0xFFFF, 0x0001], np.uint16)
    given = bits.view(ml_dtypes.bfloat16)
    assert convert(given, dtype("bfloat16"), refuse).view(np.uint16).tolist() == bits.tolist()


@pytest.mark.parametrize("name", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"])
def test_whole_floats_become_integers(name: str) -> None:
    held = dtype(name)
    values = [v for v in (0.0, 1.0, -1.0, 100.0, -128.0, 255.0, 65535.0, -(2.0**31), 2.0**40) if held.lowest <= v]
    values = [v for v in values if v <= held.highest]
    assert convert(np.array(values, np.float32), held, refuse).tolist() == [int(v) for v in values]


@pytest.mark.parametrize("name", ["uint8", "int16", "int32", "uint64", "int64"])
@pytest.mark.parametrize(("choice", "whole"), [("nearest", [2, 2, 4]), ("truncate", [1, 2, 3])])
def test_other_floats_are_a_choice(name: str, choice: str, whole: list[int]) -> None:
    held = dtype(name)
    values = np.array([1.5, 2.5, 3.75, np.nan, 1e30, -1e30, np.inf], np.float32)
    found = convert(values, held, lambda case, met: choice)
    assert found.dtype == held.numpy
    assert found.tolist() == [*whole, 0, held.highest, held.lowest, held.highest]
    for value in values:
        with pytest.raises(SimulationError, match="float_to_int"):
            convert(np.array([1, value], np.float32), held, refuse)


def test_integers_that_do_not_fit_are_a_choice() -> None:
    values = np.array([-1, 256, 255], np.int64)
    assert convert(values, dtype("uint8"), lambda case, met: "wrap").tolist() == [255, 0, 255]
    assert convert(values, dtype("uint8"), lambda case, met: "saturate").tolist() == [0, 255, 255]
    with pytest.raises(SimulationError, match="integer_overflow: -1 does not fit `uint8`"):
        convert(values, dtype("uint8"), refuse)
    assert convert(values[2:], dtype("uint8"), refuse).tolist() == [255]


@pytest.mark.parametrize("value", [2**24, 2**24 + 2, -(2**24) - 2, 2**31 - 128, -(2**63), 3 * 2**40])
def test_integers_of_float32_are_exact(value: int) -> None:
    array = np.array([value, 3], np.int64)
    assert to_float32(array, dtype("int64"), refuse).tolist() == [float(value), 3.0]


@pytest.mark.parametrize("value", [2**24 + 1, -(2**24) - 1, 2**31 - 1, 2**63 - 1, 3 * 2**40 + 1])
def test_integers_beyond_float32_are_a_choice(value: int) -> None:
    array = np.array([5, value], np.int64)
    with pytest.raises(SimulationError, match=f"integer_arithmetic: the integer {value} is"):
        to_float32(array, dtype("int64"), refuse)
    assert to_float32(array, dtype("int64"), lambda case, met: "float32")[1] == np.float32(value)


def test_packed_types_are_moved_only() -> None:
    held = dtype("float8_e4m3fn_x4")
    with pytest.raises(SimulationError, match="no type to compute with"):
        to_float32(np.zeros(1, np.uint32), held, refuse)
    with pytest.raises(SimulationError, match="can be moved but not computed"):
        convert(np.zeros(1, np.float32), held, refuse)


def test_types_that_need_ml_dtypes_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    dtypes.dtype.cache_clear()
    try:
        with pytest.raises(SimulationError, match=r"`bfloat16` needs ml_dtypes; install it with .*arrowir\[sim\]"):
            dtype("bfloat16")
        assert dtype("float16").numpy == np.float16
    finally:
        dtypes.dtype.cache_clear()


def test_the_helper_of_the_tests_knows_the_same_types() -> None:
    assert {name: np.dtype(held) for name, held in HELD.items()} == {name: dtype(name).numpy for name in HELD}
