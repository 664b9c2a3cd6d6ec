"""The one decorator that compiles a loop: lazily, and only for work that is worth it."""

import os
import sys
import warnings
from collections.abc import Callable
from functools import update_wrapper
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")

THRESHOLD = 32_768
"""Elements of all array arguments together, below which a loop runs as plain Python while Numba is not loaded."""


class Kernel(Generic[P, R]):
    """A loop over numpy arrays, run as plain Python on small arrays and compiled by Numba on large ones.

    The Python function is the reference (`kernel.plain`); the compiled one (`kernel.compiled`) does the same.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        self.plain = function
        self._compiled: Callable[P, R] | None = None
        update_wrapper(self, function)

    @property
    def compiled(self) -> Callable[P, R]:
        """The compiled loop; the plain one where Numba is missing or switched off."""
        if self._compiled is None:
            self._compiled = _compile(self.plain)
        return self._compiled

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the loop."""
        if self._compiled is None:
            work = sum(a.size for a in args if isinstance(a, np.ndarray))
            if work < THRESHOLD and "numba" not in sys.modules:
                return _wrapping(self.plain)(*args, **kwargs)
        return self.compiled(*args, **kwargs)


def kernel(function: Callable[P, R]) -> Kernel[P, R]:
    """Make a compute kernel of a plain Python loop over numpy arrays."""
    return Kernel(function)


def _compile(function: Callable[P, R]) -> Callable[P, R]:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        return _wrapping(function)
    try:
        import numba
    except ImportError:
        warnings.warn("numba is not installed: loops run as plain Python, slowly", RuntimeWarning, stacklevel=4)
        return _wrapping(function)
    options: dict[str, Any] = {"nogil": True, "boundscheck": None}
    try:
        cached = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no folder for the cache is writable
        warnings.warn(
            "numba has no folder to keep compiled code in: set NUMBA_CACHE_DIR to one that is writable",
            RuntimeWarning,
            stacklevel=4,
        )
        return numba.njit(**options)(function)
    return _surviving(cached, function, options)


def _wrapping(function: Callable[P, R]) -> Callable[P, R]:
    """Let integers wrap without a warning, as they do when compiled."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with np.errstate(over="ignore"):
            return function(*args, **kwargs)

    return call


def _surviving(cached: Callable[P, R], function: Callable[P, R], options: dict[str, Any]) -> Callable[P, R]:
    """Compile afresh when the cache holds a damaged file: loading it fails before anything has run."""

    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal chosen
        try:
            return chosen(*args, **kwargs)
        except Exception as error:
            if not _from_cache(error.__traceback__):
                raise
            import numba

            chosen = numba.njit(**options)(function)
            return chosen(*args, **kwargs)

    chosen = cached
    return call


def _from_cache(traceback: TracebackType | None) -> bool:
    """Tell whether an exception came out of Numba's cache."""
    while traceback is not None:
        if traceback.tb_frame.f_globals.get("__name__") == "numba.core.caching":
            return True
        traceback = traceback.tb_next
    return False
