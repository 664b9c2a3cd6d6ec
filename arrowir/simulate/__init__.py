"""A numerical interpreter of BIR in numpy: `arrowir.simulate(ir, inputs)` runs a module.

The function of that name is `arrowir.simulate.simulate`; the package itself can be called, so that both spellings do.
Opcodes are registered by the files in `arrowir/simulate/opcodes`.

Examples
--------
>>> import arrowir as air
>>> import numpy as np
>>> ir = air.read("data/samples/klr009/scale_add.bir.json")
>>> air.simulate(ir, {"a": np.zeros((128, 512), np.float32)})
<arrowir.Simulation: `out` float32[128, 512], 3 steps>
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inspect import Signature

    from arrowir.simulate.kernels import define_kernel, undefine_kernel
    from arrowir.simulate.running import Simulation, simulate
    from arrowir.simulate.tables import coverage, undecided_cases
    from arrowir.simulate.trace import Watched

__all__ = [
    "Simulation",
    "Watched",
    "coverage",
    "define_kernel",
    "simulate",
    "undecided_cases",
    "undefine_kernel",
]

_HOMES = {
    "Simulation": "running",
    "Watched": "trace",
    "coverage": "tables",
    "define_kernel": "kernels",
    "simulate": "running",
    "undecided_cases": "tables",
    "undefine_kernel": "kernels",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


class _Package(ModuleType):
    """The class of this package, which runs a module when it is called."""

    def __call__(self, *arguments: Any, **options: Any) -> "Simulation":
        """Run a module; see `simulate`."""
        from arrowir.simulate.running import simulate

        return simulate(*arguments, **options)

    @property
    def __signature__(self) -> "Signature":
        """The signature of the function, for `help` and notebooks; it is imported when somebody asks."""
        from inspect import signature

        from arrowir.simulate.running import simulate

        return signature(simulate)

    def __reduce__(self) -> tuple[object, ...]:
        return import_module, (self.__name__,)


sys.modules[__name__].__class__ = _Package
