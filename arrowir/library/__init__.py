"""Library kernels: what stands behind the `kernel_name` of a `BIRKernel` call-site (rules B1 to B5).

The pass `inline_bir_kernel` asks the factory here for a kernel and drives it through its steps; the simulator asks it
for the kernel's definition. `arrowir kernels` lists what there is.

Examples
--------
>>> import arrowir as air
>>> [option.name for option in air.library.get("Activation").options]
['act_fn', 'tile_size']
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arrowir.library.bodies import Body, BodyBuilder
    from arrowir.library.call import Argument, Call, Pad
    from arrowir.library.kernel import Kernel, Target
    from arrowir.library.options import Option
    from arrowir.library.registry import create, get, names, register, unregister
    from arrowir.library.status import KernelError, Status
    from arrowir.library.views import Grid

__all__ = [
    "Argument",
    "Body",
    "BodyBuilder",
    "Call",
    "Grid",
    "Kernel",
    "KernelError",
    "Option",
    "Pad",
    "Status",
    "Target",
    "create",
    "get",
    "names",
    "register",
    "unregister",
]

_HOMES = {
    "Argument": "call",
    "Body": "bodies",
    "BodyBuilder": "bodies",
    "Call": "call",
    "Grid": "views",
    "Kernel": "kernel",
    "KernelError": "status",
    "Option": "options",
    "Pad": "call",
    "Status": "status",
    "Target": "kernel",
    "create": "registry",
    "get": "registry",
    "names": "registry",
    "register": "registry",
    "unregister": "registry",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module `{__name__}` has no attribute `{name}`")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
