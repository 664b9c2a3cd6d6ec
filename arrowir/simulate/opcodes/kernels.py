"""Kernels that are not written in BIR, by their definitions in numpy."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arrowir.attributes import COMMON
from arrowir.diagnostics import SimulationError
from arrowir.expressions import is_integer
from arrowir.library.status import KernelError
from arrowir.simulate.binding import scratchpads
from arrowir.simulate.kernels import Definition, definition
from arrowir.simulate.registry import declared_keys, opcode, refuse
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_ANY = (0, None)

refuse(
    "NKIKLIRKernel",
    why="its body stands in a file of its own; let `translate_nki_ast_to_bir` make a function of the module of it",
)


@opcode("BIRKernel", ins=_ANY, outs=_ANY, keys=" ".join(declared_keys("BIRKernel")))
def bir_kernel(step: Step) -> None:
    """What the library kernel's definition in numpy computes."""
    outs = step.outs[: len(step.outs) - scratchpads(step.code.members)]
    _run(step, "library kernel", step.word("kernel_name"), outs, "srcs_shape")


@opcode("CustomOp", ins=_ANY, outs=_ANY, keys=" ".join(declared_keys("CustomOp")))
def custom_op(step: Step) -> None:
    """What the custom operation's definition in numpy computes, by `opFunctionName`."""
    _run(step, "custom operation", step.word("opFunctionName"), step.outs, "srcsShape")


@opcode("InlineASMBytes", ins=_ANY, outs=_ANY, keys=" ".join(declared_keys("InlineASMBytes")))
def inline_bytes(step: Step) -> None:
    """What the definition in numpy of these machine instructions computes, by `asm_bytes`."""
    code = step.attribute("asm_bytes")
    if isinstance(code, list) and all(isinstance(byte, int) and 0 <= byte < 256 for byte in code):
        code = bytes(code).hex()
    if not isinstance(code, str):
        raise SimulationError(f"`asm_bytes` is {code!r:.60}; expected text or a list of bytes")
    _run(step, "machine code", code, step.outs, "")


def _run(step: Step, what: str, name: str, outs: Sequence[Operand], shapes_key: str) -> None:
    """Apply a definition to the inputs, and write what it gives."""
    define = definition(name) or (_of_library(name) if step.opcode == "BIRKernel" else None)
    if define is None:
        raise SimulationError(f"the {what} `{name:.60}` has no definition; give one with `simulate.define_kernel`")
    inputs = [operand for operand in step.ins if operand.in_memory]
    shapes = step.attribute(shapes_key) if shapes_key and step.has(shapes_key) else []
    arrays = [_shaped(operand, place, shapes) for place, operand in enumerate(inputs)]
    try:
        results: Any = define(arrays, _options(step))
    except KernelError as error:
        raise SimulationError(str(error)) from error
    except Exception as error:  # whatever a definition raises; it is chained
        raise SimulationError(f"the definition of `{name}` fails: {type(error).__name__}: {error}") from error
    if not isinstance(results, Sequence) or isinstance(results, str):
        raise SimulationError(f"the definition of `{name}` gives {results!r:.40}; expected a list of arrays")
    if len(results) != len(outs):
        raise SimulationError(f"the definition of `{name}` gives {len(results)} outputs, the call-site has {len(outs)}")
    for out, result in zip(outs, results, strict=True):
        array = np.asarray(result)
        if array.dtype.kind not in "biufV":
            raise SimulationError(f"the definition of `{name}` gives {array.dtype} for `{out.code.title}`")
        out.write(array)


def _of_library(name: str) -> Definition | None:
    """Return what the library's kernel of a name computes."""
    from arrowir.library import registry  # not for modules that call no kernel: it takes long to load

    try:
        return registry.definition(name)
    except KernelError as error:
        raise SimulationError(str(error)) from error


def _options(step: Step) -> Mapping[str, Any]:
    return {key: step.attribute(key) for key in step.code.members if key not in COMMON and step.has(key)}


def _shaped(operand: Operand, place: int, shapes: Any) -> Array:
    values = operand.read()
    shape: Any = shapes[place] if isinstance(shapes, list) and place < len(shapes) else None
    sizes = isinstance(shape, list) and all(is_integer(size) and size >= 0 for size in shape)
    return values.reshape(shape) if sizes and math.prod(shape) == values.size else values
