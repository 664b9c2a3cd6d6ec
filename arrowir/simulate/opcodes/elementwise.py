"""Element by element: tensors with tensors, tensors with scalars."""

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate import alu
from arrowir.simulate.accumulators import accumulate
from arrowir.simulate.registry import opcode
from arrowir.simulate.step import Step


@opcode("TensorTensor", ins=2, outs=1, keys="op acc", elementwise=True)
def tensor_tensor(step: Step) -> None:
    """``out = op(in0, in1)``; then the results may go into the engine's accumulator."""
    left, right = step.ins
    if left.count != right.count:
        raise SimulationError(f"operands of {left.count} and {right.count} elements")
    a, x = left.numbers().reshape(-1), right.numbers().reshape(-1)
    found = alu.apply(step.word("op"), a, x, step.decide)
    step.out.write(found.result)
    accumulate(step, step.word("acc"), found.single.reshape(left.partitions, -1))


@opcode("TensorScalar", ins=1, outs=1, keys="op0 const0 reverse0 op1 const1 reverse1", elementwise=True)
def tensor_scalar(step: Step) -> None:
    """``op1(op0(in, const0), const1)``, each with its operands swapped on request."""
    value = step.ins[0].numbers()
    for op, constant, reverse in (("op0", "const0", "reverse0"), ("op1", "const1", "reverse1")):
        name = step.word(op)
        if name == "bypass" and not (step.has(reverse) and step.flag(reverse)):
            continue
        scalar = alu.constant(step.number(constant))
        pair = (scalar, value) if step.flag(reverse) else (value, scalar)
        value = alu.apply(name, *pair, step.decide)
    result = value.result
    step.out.write(result if result.ndim else np.broadcast_to(result, step.out.shape))
