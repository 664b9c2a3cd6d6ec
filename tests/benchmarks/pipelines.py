"""Rows about the default pipeline: each pass on a large module, and all of them on that and on many modules."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.inputs import anew
from tests.benchmarks.registry import Case, Inputs, Row

if TYPE_CHECKING:
    from arrowir import IR, RunResult

PASSES = (
    "runtime_memory_reservation",
    "inline_nki_kernel",
    "coalesce_multichannel_cc_ops",
    "inline_bir_kernel",
    "inline_nki_kernel",
    "coalesce_multichannel_cc_ops",
)
"""The passes of the default pipeline."""


def _check(result: "RunResult") -> None:
    assert result.ok, result.diagnostics
    assert result.ir.count("instructions") > 0


def _step(number: int) -> Callable[[Inputs], Case]:
    """Return the set-up of one step of the pipeline, on what those before it make of the module."""

    def set_up(inputs: Inputs) -> Case:
        import arrowir as air
        from arrowir.passes.pipeline import default_steps

        steps = default_steps()
        assert [step.name for step in steps] == list(PASSES)
        ir = air.read_parquet(inputs.path("prefill_32"))
        if number:
            ir = air.run(ir, steps[:number], verify="none").ir
        after = air.run(ir, [steps[number]], verify="none").ir
        count = max(ir.count("instructions"), after.count("instructions"))

        def run(given: "IR") -> "RunResult":
            return air.run(given, [steps[number]], verify="none")

        return Case(run, count, "instructions", fresh=partial(anew, ir), check=_check)

    return set_up


def _pipeline(name: str) -> Callable[[Inputs], Case]:
    def set_up(inputs: Inputs) -> Case:
        import arrowir as air

        ir = air.read_parquet(inputs.path(name))
        made = air.run(ir).ir
        facts = {"modules": len(ir), "instructions before": ir.count("instructions")}
        return Case(
            air.run, made.count("instructions"), "instructions", fresh=partial(anew, ir), check=_check, facts=facts
        )

    return set_up


ROWS = (
    *(
        Row(
            f"prefill_32_{number}_{name}",
            f"step {number} of the pipeline, `{name}`: a prefill of 32 layers",
            _step(number - 1),
            needs=("prefill_32",),
        )
        for number, name in enumerate(PASSES, 1)
    ),
    Row("prefill_32", "the default pipeline: a prefill of 32 layers", _pipeline("prefill_32"), needs=("prefill_32",)),
    Row("modules_300", "the default pipeline: 300 modules of 3 MB", _pipeline("modules_300"), needs=("modules_300",)),
)
