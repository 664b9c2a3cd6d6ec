"""Copies: element after element in linear order, with a cast where the dtypes differ; constants."""

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import cast
from arrowir.simulate.step import Operand, Step


def copy(source: Operand, target: Operand) -> None:
    """Copy the elements of one operand to another: bits where the dtypes agree, values where they differ."""
    if source.count != target.count:
        raise SimulationError(f"{source.count} elements are copied to {target.count}")
    if source.code.dtype == target.code.dtype:
        target.write_bits(source.read_bits())
        return
    target.write(cast(source, target))


@opcode(
    "Load", "Save", "TensorCopy", "GenericCopy", "AbstractCopy", "DMADescriptorCopy", ins=1, outs=1, elementwise=True
)
def plain_copy(step: Step) -> None:
    """``out[i] = cast(in[i])``."""
    copy(step.ins[0], step.out)


@opcode("Memset", outs=1, keys="mode constant")
def memset(step: Step) -> None:
    """Fill with a constant, which is given as the bit pattern of the output's dtype."""
    mode = step.word("mode")
    if mode == "Random":
        raise SimulationError(
            "random values are not modelled: which generator an engine uses is known, but not its state, nor which of "
            "its numbers goes to which element"
        )
    if mode != "Const":
        raise SimulationError(f"the mode `{mode}` is not modelled")
    constant, held = step.integer("constant", highest=(1 << 64) - 1), step.out.dtype
    if not 0 <= constant < 1 << (8 * held.size):
        raise SimulationError(f"the constant {constant} is no bit pattern of `{held.name}`")
    step.out.write_bits(np.full(step.out.shape, constant, held.unsigned))
