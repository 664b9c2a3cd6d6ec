"""The verifier: `arrowir.verify(ir)` says what is wrong with modules, and where.

The function of that name is `arrowir.verify.checking.verify`; the package itself can be called, so that both spellings
do. Rules are grouped in the files of this package by what they are about (`registry.FAMILIES`).

Examples
--------
>>> import arrowir as air
>>> air.verify(air.read("data/samples/klr009")).height
0
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

    import polars as pl

    from arrowir.verify.checking import verify
    from arrowir.verify.registry import DEFAULT, LEVELS, Rule, rules

__all__ = ["DEFAULT", "LEVELS", "Rule", "rules", "verify"]

_HOMES = {"DEFAULT": "registry", "LEVELS": "registry", "Rule": "registry", "rules": "registry", "verify": "checking"}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


class _Package(ModuleType):
    """The class of this package, which verifies a batch when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> "pl.DataFrame":
        """Verify a batch; see `verify`."""
        from arrowir.verify.checking import verify

        return verify(*arguments, **options)

    @property
    def __signature__(self) -> "Signature":
        """The signature of the function, for `help` and notebooks; it is imported when somebody asks."""
        from inspect import signature

        from arrowir.verify.checking import verify

        return signature(verify)

    def __reduce__(self) -> tuple[object, ...]:
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
