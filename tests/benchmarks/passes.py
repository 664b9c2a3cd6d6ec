"""Rows about the other passes."""

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.inputs import anew, nest_instructions, nest_trips
from tests.benchmarks.registry import Case, Inputs, Row

if TYPE_CHECKING:
    from arrowir import PassResult


def _reservation(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_parquet(inputs.path("modules_1000"))

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert set(result.status) == {"changed"}, result.status
        assert result.ir.count("locations") == ir.count("locations") + len(ir)

    return Case(air.passes.RuntimeMemoryReservation(), len(ir), "modules", fresh=partial(anew, ir), check=check)


def _unroll(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_json(inputs.path("nest.json"))
    count = nest_instructions(*nest_trips(inputs))

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert result.ir.count("instructions") == count, result.ir
        assert result.ir.count("loops") == 0

    return Case(air.passes.Unroll(), count, "instructions", fresh=partial(anew, ir), check=check)


ROWS = (
    Row("reservation_1000", "runtime_memory_reservation: 1,000 modules", _reservation, needs=("modules_1000",)),
    Row("unroll_million", "unroll: a nest of three loops to 1,000,000 instructions", _unroll, needs=("nest.json",)),
)
