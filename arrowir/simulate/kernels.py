"""Definitions in numpy of what is not written in BIR: library kernels, custom operations, machine code."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from arrowir.diagnostics import OptionError
from arrowir.store import Array

Definition: TypeAlias = Callable[[Sequence[Array], Mapping[str, Any]], Sequence[Array]]
"""What a kernel computes: from the arrays of its inputs and its options the arrays of its outputs."""

_definitions: dict[str, Definition] = {}


def define_kernel(name: str, definition: Definition, *, replace: bool = False) -> None:
    """Say what a kernel computes that is not written in BIR, so that modules that call it can be run.

    Parameters
    ----------
    name
        The `kernel_name` of its call-sites; of a `CustomOp` its `opFunctionName`, of `InlineASMBytes` its `asm_bytes`
        (in hexadecimal where they are a list).
    definition
        A function of two arguments: the inputs, each an array in the numpy dtype of its operand and in the shape that
        `srcs_shape` gives it (else that of the access pattern); and the options, which are the op-specific members of
        the call-site. It returns an array for each output, in order, scratchpads left out.
    replace
        Take the place of a definition of that name.

    Raises
    ------
    OptionError
        If the name has a definition.

    Examples
    --------
    >>> from arrowir import simulate
    >>> simulate.define_kernel("double", lambda inputs, options: [2 * inputs[0]])
    >>> simulate.undefine_kernel("double")
    """
    if name in _definitions and not replace:
        raise OptionError(f"the kernel `{name}` is defined already; give `replace=True` to define it anew")
    _definitions[name] = definition


def undefine_kernel(name: str) -> None:
    """Take back `define_kernel`."""
    _definitions.pop(name, None)


def definition(name: str) -> Definition | None:
    """Return the definition of a kernel, None when there is none."""
    return _definitions.get(name)
