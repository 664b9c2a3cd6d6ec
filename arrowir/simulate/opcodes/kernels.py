"""Kernels that are not written in BIR, by their definitions in numpy."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arrowir.attributes import COMMON
from arrowir.diagnostics import SimulationError
from arrowir.simulate.binding import scratchpads
from arrowir.simulate.kernels import definition
from arrowir.simulate.registry import declared_keys, opcode, refuse
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_ANY = (0, None)

refuse("NKIKLIRKernel", why="its body stands in a file of its own; let the kernel be a function of the module")


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
    define = definition(name)
    if define is None:
        raise SimulationError(f"the {what} `{name:.60}` has no definition; give one with `simulate.define_kernel`")
    inputs = [operand for operand in step.ins if operand.in_memory]
    shapes = step.attribute(shapes_key) if shapes_key and step.has(shapes_key) else []
    arrays = [_shaped(operand, place, shapes) for place, operand in enumerate(inputs)]
    results = list(define(arrays, _options(step)))
    if len(results) != len(outs):
        raise SimulationError(f"the definition of `{name}` gives {len(results)} outputs, the call-site has {len(outs)}")
    for out, result in zip(outs, results, strict=True):
        out.write(np.asarray(result))


def _options(step: Step) -> Mapping[str, Any]:
    return {key: step.attribute(key) for key in step.code.members if key not in COMMON and step.has(key)}


def _shaped(operand: Operand, place: int, shapes: Any) -> Array:
    values = operand.read()
    shape = shapes[place] if isinstance(shapes, list) and place < len(shapes) else None
    return values.reshape(shape) if isinstance(shape, list) and math.prod(shape) == values.size else values
