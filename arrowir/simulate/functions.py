"""Activation functions, by the names of BIR: each of an array of float64, for a result that is rounded to float32."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]

_STEP = 1 / 64
_END = 6.0
"""Beyond this the error function is 1 in float64 arithmetic with a float32 result."""
_TERMS = 8


@cache
def _erf_table() -> F64:
    """Return Taylor coefficients of the error function around multiples of `_STEP`, one row for each."""
    places = np.arange(round(_END / _STEP) + 1) * _STEP
    rows = np.empty((_TERMS, len(places)))
    rows[0] = [math.erf(x) for x in places.tolist()]
    slope = 2 / math.sqrt(math.pi) * np.exp(-(places**2))
    # The derivatives are the slope times Hermite polynomials of alternating sign.
    before, hermite = np.zeros_like(places), np.ones_like(places)
    for n in range(1, _TERMS):
        rows[n] = slope * hermite * (-1) ** (n - 1) / math.factorial(n)
        before, hermite = hermite, 2 * places * hermite - 2 * (n - 1) * before
    return rows


def erf(x: F64) -> F64:
    """Return the error function, to about 1e-15.

    Examples
    --------
    >>> erf(np.array([0.0, 0.5, -3.0])).round(6).tolist()
    [0.0, 0.5205, -0.999978]
    """
    rows = _erf_table()
    size = np.minimum(np.abs(x), _END)
    nearest = np.where(np.isnan(size), 0, np.rint(size / _STEP)).astype(np.intp)
    rest = size - nearest * _STEP
    result = rows[-1][nearest]
    for row in rows[-2::-1]:
        result = result * rest + row[nearest]
    return np.copysign(result, x)


def sigmoid(x: F64) -> F64:
    """Return ``1 / (1 + exp(-x))``."""
    return 1 / (np.exp(-x) + 1)


def softplus(x: F64) -> F64:
    """Return ``log(1 + exp(x))``, as it is computed without overflow."""
    return np.log1p(np.exp(-np.abs(x))) + np.where(x <= 0, 0, x)


def _gelu_tanh(x: F64) -> F64:
    return 0.5 * x * (np.tanh((0.044715 * x**3 + x) * 0.7978845608028654) + 1)


def _derivative_gelu(x: F64) -> F64:
    return 0.5 * (erf(x * 0.7071067811865476) + 1) + x * 0.3989423 * np.exp(-(x**2) / 2)


def _derivative_silu(u: F64) -> F64:
    """Return ``(u + e^u + 1) e^u / (e^u + 1)^2``, divided through by ``e^2u`` where that would overflow."""
    small = np.exp(-np.abs(u))
    positive = (u * small + 1 + small) / (small + 1) ** 2
    negative = (u + small + 1) * small / (small + 1) ** 2
    limit = np.where(u > 0, 1.0, 0.0)
    return np.where(np.isinf(u), limit, np.where(u > 0, positive, negative))


FUNCTIONS: dict[str, Callable[[F64], F64]] = {
    "Identity": lambda x: x,
    "Copy": lambda x: x,
    "Square": lambda x: x * x,
    "Relu": lambda x: np.fmax(x, 0.0),
    "Lrelu": lambda x: np.where(x <= 0, 0.01 * x, x),
    "Sigmoid": sigmoid,
    "Tanh": np.tanh,
    "Exp": np.exp,
    "Softplus": softplus,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1 / np.sqrt(x),
    "Ln": np.log,
    "Erf": erf,
    "Sin": np.sin,
    "Arctan": np.arctan,
    "Sign": lambda x: (x > 0).astype(np.float64) - (x < 0).astype(np.float64),
    "Gelu": lambda x: 0.5 * x * (erf(x / 1.414213562373095) + 1),
    "Mish": lambda x: x * np.tanh(softplus(x)),
    "Gelu_apprx_tanh": _gelu_tanh,
    "Gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "Derivative_Gelu_apprx_sigmoid": lambda x: _derivative_silu(1.702 * x),
    "Derivative_Gelu": _derivative_gelu,
    "Derivative_Erf": lambda x: np.exp(-(x**2)) * 1.1283792,
    "Abs": np.abs,
    "Reciprocal": lambda x: 1 / x,
    "Abs_reciprocal_sqrt": lambda x: 1 / np.sqrt(np.abs(x)),
    "Silu": lambda x: x / (np.exp(-x) + 1),
    "Derivative_silu": _derivative_silu,
    "Ln_prime": lambda x: 1 / x,
    "MemsetZero": np.zeros_like,
    "memset_zero": np.zeros_like,
}
"""Functions of one argument. `Prelu` has a second one, and is treated apart."""
