"""The factory: which kernel a `kernel_name` means (rules B2, B3).

Kernels come from the entry-point group `arrowir.library`, those of this package like anybody's: the name of an entry
point is the `kernel_name`, its object a subclass of `Kernel`. An entry point is loaded when its kernel is asked for.
`register` adds one for the running process.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from arrowir import arguments
from arrowir.diagnostics import OptionError
from arrowir.library.call import Call
from arrowir.library.kernel import Kernel
from arrowir.library.options import Option, read_options
from arrowir.library.status import KernelError
from arrowir.store import Array

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "arrowir.library"
"""The entry-point group that kernels are found through."""

_registered: dict[str, type[Kernel]] = {}
_K = TypeVar("_K", bound=type[Kernel])


@cache
def _installed() -> "dict[str, list[EntryPoint]]":
    """Return the entry points of installed packages by name."""
    from importlib.metadata import entry_points  # not for commands that need no kernel: it takes long to load

    found: dict[str, dict[str, EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, {})[point.value] = point
    return {name: list(points.values()) for name, points in found.items()}


def names() -> list[str]:
    """Return the names of all kernels, in alphabetical order.

    Examples
    --------
    >>> import arrowir as air
    >>> air.library.names()
    ['Activation', 'RMSNorm']
    """
    return sorted({*_installed(), *_registered})


def get(name: str) -> type[Kernel]:
    """Return the class of a kernel.

    Parameters
    ----------
    name
        Its `kernel_name`; upper and lower case count.

    Raises
    ------
    KernelError
        If there is none of that name (`unknown_bir_kernel`, with the nearest ones), or it cannot be loaded.

    Examples
    --------
    >>> import arrowir as air
    >>> air.library.get("RMSNorm").name
    'RMSNorm'
    >>> air.library.get("rmsnorm")
    Traceback (most recent call last):
    arrowir.library.status.KernelError: there is no BIR kernel `rmsnorm`; nearest is `RMSNorm`
    """
    arguments.text(name, "the name of a kernel")
    if name in _registered:
        return _registered[name]
    points = _installed().get(name)
    if points is None:
        raise KernelError("unknown_bir_kernel", f"there is no BIR kernel `{name}`; {_nearest(name)}")
    if len(points) > 1:
        listed = " and ".join(f"`{point.value}`" for point in points)
        raise KernelError("kernel_failed", f"several packages have a kernel `{name}`: {listed}; uninstall one of them")
    return _loaded(points[0])


def _loaded(point: "EntryPoint") -> type[Kernel]:
    try:
        found = point.load()
    except Exception as error:  # whatever importing a foreign package raises
        reason = f"{type(error).__name__}: {error}"
        raise KernelError("kernel_failed", f"kernel `{point.name}` cannot be loaded: {reason}") from error
    if problem := _problem(found):
        raise KernelError("kernel_failed", f"kernel `{point.name}` cannot be used: `{point.value}` {problem}")
    return found


def _problem(found: object) -> str:
    """Say why something is no kernel; nothing when it is one."""
    if not (isinstance(found, type) and issubclass(found, Kernel)):
        return "is no subclass of `arrowir.library.Kernel`"
    if not isinstance(getattr(found, "name", None), str):
        return "has no `name`"
    options: Any = found.options
    if not isinstance(options, tuple | list) or not all(isinstance(one, Option) for one in options):  # type: ignore[reportUnknownVariableType]
        return f"has the `options` {options!r:.60}; expected a tuple of `arrowir.library.Option`"
    names = [one.name for one in options]
    twice = next((name for name in names if names.count(name) > 1), None)
    return "" if twice is None else f"declares the option `{twice}` twice"


def _nearest(name: str) -> str:
    """List the known names that are most like one."""
    from difflib import SequenceMatcher

    known = names()

    def likeness(other: str) -> float:
        return SequenceMatcher(None, name.lower(), other.lower()).ratio()

    near = sorted((other for other in known if likeness(other) > 0.5), key=likeness, reverse=True)[:3]
    if near:
        return f"nearest {'is' if len(near) == 1 else 'are'} {', '.join(f'`{other}`' for other in near)}"
    return f"known are {', '.join(f'`{other}`' for other in known) or 'none'}"


def register(cls: _K, *, replace: bool = False) -> _K:
    """Add a kernel for this process; packages do it with an entry point of the group `arrowir.library`.

    Parameters
    ----------
    cls
        A subclass of `Kernel` with a `name`.
    replace
        Take the place of a kernel of that name.

    Returns
    -------
    type
        The class, so that this serves as a decorator.

    Raises
    ------
    OptionError
        If it is no kernel, or its name is taken.

    Examples
    --------
    >>> import arrowir as air
    >>> @air.library.register
    ... class Nothing(air.library.Kernel):
    ...     name = "Nothing"
    >>> "Nothing" in air.library.names()
    True
    >>> air.library.unregister("Nothing")
    """
    if problem := _problem(cls):
        raise OptionError(f"{cls!r} {problem}")
    known = _registered.get(cls.name)
    same = known is not None and (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)
    if cls.name in names() and not (same or replace):
        raise OptionError(f"there is a kernel `{cls.name}` already; choose another name, or give `replace=True`")
    _registered[cls.name] = cls
    return cls


def unregister(name: str) -> None:
    """Take back `register`; an installed kernel that was replaced comes to light again."""
    _registered.pop(arguments.text(name, "the name of a kernel"), None)


def create(call: Call) -> Kernel:
    """Make the kernel for a call: the factory of rule B2.

    Raises
    ------
    KernelError
        If there is no such kernel.
    """
    return get(call.kernel_name)(call)


Definition = Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]


def definition(name: str) -> Definition | None:
    """Return what a kernel computes, as the simulator takes it; None when there is no such kernel.

    Parameters
    ----------
    name
        The kernel.

    Returns
    -------
    callable or None
        A function of the inputs and the op-specific members of the call-site. Outputs that are float64 become float32.

    Examples
    --------
    >>> import numpy as np
    >>> run = definition("Activation")
    >>> run([np.array([[-1.0, 2.0]], np.float32)], {"kernel_attrs": [["act_fn", "ReLU"]]})[0].tolist()
    [[0.0, 2.0]]
    """
    if name not in names():
        return None
    cls = get(name)

    def run(inputs: Sequence[Array], members: Mapping[str, Any]) -> Sequence[Array]:
        values = read_options(name, cls.options, members)
        with np.errstate(all="ignore"):
            found = cls.define([np.asarray(x).astype(np.float64) for x in inputs], values)
            return [out.astype(np.float32) if out.dtype == np.float64 else out for out in map(np.asarray, found)]

    return run
