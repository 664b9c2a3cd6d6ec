"""Rows about the default pipeline: each pass on a large module, and all of them on that and on many modules."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal

from tests.benchmarks.inputs import anew
from tests.benchmarks.registry import Case, Inputs, Peer, Row

if TYPE_CHECKING:
    from arrowir import IR, RunResult

PASSES = (
    "translate_nki_ast_to_bir",
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
        ir = air.read_parquet(inputs.path("prefill_32"))
        if number:
            ir = air.run(ir, steps[:number], verify="none").ir
        after = air.run(ir, [steps[number]], verify="none").ir
        count = max(ir.count("instructions"), after.count("instructions"))

        def run(given: "IR") -> "RunResult":
            return air.run(given, [steps[number]], verify="none")

        return Case(run, count, "instructions", fresh=partial(anew, ir), check=_check)

    return set_up


def _pipeline(name: str, verify: Literal["none", "ends"]) -> Callable[[Inputs], Case]:
    def set_up(inputs: Inputs) -> Case:
        import arrowir as air

        ir = air.read_parquet(inputs.path(name))
        made = air.run(ir, verify="none").ir
        facts = {"modules": len(ir), "instructions before": ir.count("instructions")}
        return Case(
            partial(air.run, verify=verify),
            made.count("instructions"),
            "instructions",
            fresh=partial(anew, ir),
            check=_check,
            facts=facts,
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
    *(
        row
        for name, what in (("prefill_32", "a prefill of 32 layers"), ("modules_300", "300 modules of 3 MB"))
        for row in (
            Row(name, f"the default pipeline, without the verifier: {what}", _pipeline(name, "none"), needs=(name,)),
            Row(
                f"{name}_verified",
                f"the default pipeline, verified before and after as by default: {what}",
                _pipeline(name, "ends"),
                needs=(name,),
                peers=(Peer(name),),
            ),
        )
    ),
)
