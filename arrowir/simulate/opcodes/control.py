"""Loops, branches, calls, and instructions that compute nothing."""

from collections.abc import Callable, Sequence
from typing import Any

from arrowir.diagnostics import SimulationError
from arrowir.simulate.program import Reference
from arrowir.simulate.registry import opcode
from arrowir.simulate.step import Step

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "GE": lambda a, b: a >= b,
    "GT": lambda a, b: a > b,
}

_ANY = (0, None)


@opcode(
    "NoOp", "EventSemaphore", "AllEngineBarrier", "Drain", "GroupResetSemaphores", "CoreBarrier", "BranchHint",
    ins=_ANY, outs=_ANY, control=True,
    keys="is_reset_sema mode sema_group runtime_semaphore id cores hint associate_branch",
)  # fmt: skip
def nothing(step: Step) -> None:
    """Synchronisation, of which program order makes nothing."""


@opcode("LoadActFuncSet", ins=_ANY, outs=_ANY, keys="act_func_set_id")
def load_act_func_set(step: Step) -> None:
    """A table load: the number of the set has to be one."""
    if step.has("act_func_set_id") and step.integer("act_func_set_id") < 0:
        raise SimulationError(f"`act_func_set_id` is {step.integer('act_func_set_id')}; expected a number from 0 on")


# -- loops --------------------------------------------------------------------------------------------------------


class _Axis:
    """The axis of a loop: its row, and its bounds."""

    def __init__(self, step: Step) -> None:
        program = step.machine.program
        rows = program.children("loops", "instruction_id", step.code.row)
        if len(rows) != 1:
            raise SimulationError("the loop has no axis")
        self.row = rows[0]
        self._step = step
        members, references = program.members("loops", self.row), program.references("loops", self.row)
        self._bounds: dict[str, tuple[Any, Sequence[Reference]]] = {}
        for name in ("lb", "ub", "stride"):
            plain = program.integer("loops", name, self.row)
            self._bounds[name] = (plain if plain is not None else members.get(name) or 0, references)

    def bound(self, name: str) -> int:
        """Return the value of a bound now."""
        return self._step.evaluate(*self._bounds[name])

    def values(self) -> range:
        """Return the values that the axis takes."""
        stride = self.bound("stride")
        if stride == 0:
            raise SimulationError("the stride of the loop is 0")
        return range(self.bound("lb"), self.bound("ub"), stride)


def _counted(step: Step, axis: _Axis, check: Callable[[range], None] = lambda values: None) -> None:
    """Execute the blocks once for each value of the axis; before each of them a check may look at the values."""
    values = axis.values()
    remaining = iter(values)
    axes = step.frame.axes

    def again() -> bool:
        check(values)
        value = next(remaining, None)
        if value is None:
            axes.pop(axis.row, None)
            return False
        axes[axis.row] = value
        return True

    step.machine.loop(step, again)


@opcode("Loop", ins=_ANY, outs=_ANY, keys="LoopAxis blocks isParallel isBasicBlock unroll registers", control=True)
def loop(step: Step) -> None:
    """The values of ``range(lb, ub, stride)``, the bounds taken at the start (rule U1)."""
    _counted(step, _Axis(step))


@opcode("DynamicForLoop", ins=_ANY, outs=_ANY, keys="DynamicForLoopAxis blocks", control=True, basis="strong")
def dynamic_loop(step: Step) -> None:
    """A loop whose end stands in a register at its start; the body must not change that."""
    axis = _Axis(step)

    def check(values: range) -> None:
        if axis.values() != values:
            raise SimulationError("undecided: the body of the loop changes the loop's own bounds")

    _counted(step, axis, check)


@opcode("DoWhile", ins=_ANY, outs=_ANY, keys="cond blocks", control=True)
def do_while(step: Step) -> None:
    """The blocks once, and again for as long as the condition is not 0 after them."""
    first = True

    def again() -> bool:
        nonlocal first
        if first:
            first = False
            return True
        return step.integer("cond") != 0

    step.machine.loop(step, again)


# -- branches -----------------------------------------------------------------------------------------------------


@opcode("UnconditionalBranch", ins=_ANY, outs=_ANY, keys="target", control=True)
def branch(step: Step) -> None:
    """Go on with a block."""
    step.machine.branch(step, "target")


@opcode("CompareAndBranch", ins=2, keys="comp_op on_true on_false", control=True)
def compare_and_branch(step: Step) -> None:
    """Go on with one of two blocks, by a comparison of two integers."""
    name = step.word("comp_op")
    compare = _COMPARISONS.get(name[3:5])
    wanted = {"IMM": ("imm_value", "symbolic_imm_value"), "REG": ("register_access",)}.get(name[5:], ())
    if compare is None or not name.startswith("IS_") or not wanted:
        raise SimulationError(f"the comparison `{name}` is not modelled")
    left, right = step.ins
    if right.kind not in wanted:
        raise SimulationError(f"`{name}` compares with a `{wanted[0]}`, and the second operand is a `{right.kind}`")
    step.machine.branch(step, "on_true" if compare(left.integer(), right.integer()) else "on_false")


@opcode("Break", ins=_ANY, outs=_ANY, control=True)
def leave_loop(step: Step) -> None:
    """Leave the innermost loop."""
    step.machine.leave_loop(step)


@opcode("Return", ins=_ANY, outs=_ANY, control=True)
def leave_function(step: Step) -> None:
    """Return from the function."""
    step.machine.leave_function(step)


@opcode("Exit", ins=_ANY, outs=_ANY, control=True)
def leave_program(step: Step) -> None:
    """End the program."""
    step.machine.leave_program(step)


# -- calls --------------------------------------------------------------------------------------------------------


@opcode(
    "NKIKernel", ins=_ANY, outs=_ANY, indirection=_ANY, control=True,
    keys="func func_args func_outs sb_buf_shape psum_buf_shape address_rotation_scope_val kernel_source_val",
)  # fmt: skip
def kernel(step: Step) -> None:
    """Run a kernel on the caller's storage, as inlining it would (rules N4, N8)."""
    step.machine.call(step, positional=True)


@opcode("Call", ins=_ANY, outs=_ANY, indirection=_ANY, keys="target arguments table_id", control=True)
def call(step: Step) -> None:
    """Run a function on what its argument map binds, and on its own storage."""
    step.machine.call(step, positional=False)
