"""Rows about the other passes."""

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.inputs import (
    CHANNELS,
    TRIPS,
    anew,
    collective_runs,
    constant_groups,
    gathers,
    nest_instructions,
    nest_trips,
    runtime_loops,
    sites,
    tiles,
)
from tests.benchmarks.registry import Case, Inputs, Peer, Row

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


def _library(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_parquet(inputs.path("library_1000"))
    count = sites(inputs, 1000) * tiles(inputs) * 3

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert result.ir.count("instructions") == count, result.ir

    return Case(air.passes.InlineBirKernel(), count, "instructions", fresh=partial(anew, ir), check=check)


def _unroll(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_json(inputs.path("nest.json"))
    count = nest_instructions(*nest_trips(inputs))

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert result.ir.count("instructions") == count, result.ir
        assert result.ir.count("loops") == 0

    return Case(air.passes.Unroll(), count, "instructions", fresh=partial(anew, ir), check=check)


def _branches(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_json(inputs.path("runtime_loops.json"))
    count = runtime_loops(inputs)
    # before each loop a branch, then four instructions; the copies, two, and a branch; the last one has nothing behind
    rows = count * (1 + 4 + TRIPS + 2 + 1) + 1

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert result.ir.count("instructions") == rows, result.ir
        assert result.ir.count("blocks") == 4 * count + 1

    return Case(air.passes.Unroll(), rows, "instructions", fresh=partial(anew, ir), check=check)


def _coalesce(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_parquet(inputs.path("collectives"))
    runs = collective_runs(inputs)

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert result.ir.count("instructions") == runs, result.ir
        assert result.ir.count("operands") == ir.count("operands")

    return Case(
        air.passes.CoalesceMultichannelCcOps(), runs * CHANNELS, "instructions", fresh=partial(anew, ir), check=check
    )


def _constants(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_parquet(inputs.path("constants"))
    groups = constant_groups(inputs)

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert result.ir.count("instructions") == 2 * groups * len(ir), result.ir
        assert result.ir.count("dependencies") == (2 * groups - 1) * len(ir)

    count = 4 * groups * len(ir)
    return Case(air.passes.ConstantPropagate(), count, "instructions", fresh=partial(anew, ir), check=check)


def _lower_indirect(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_parquet(inputs.path("gathers"))
    count = gathers(inputs)

    def check(result: "PassResult") -> None:
        assert result.ok, result.diagnostics
        assert result.ir.count("instructions") == 6 * count, result.ir
        assert result.ir.count("locations") == ir.count("locations") + 2 * count

    return Case(air.passes.LowerGenericIndirect(), count, "instructions", fresh=partial(anew, ir), check=check)


ROWS = (
    Row("reservation_1000", "runtime_memory_reservation: 1,000 modules", _reservation, needs=("modules_1000",)),
    Row(
        "library_1000",
        "inline_bir_kernel: 1,000 equal call-sites of a library kernel",
        _library,
        needs=("library_1000",),
        peers=(Peer("inline_1000"),),
    ),
    Row("unroll_million", "unroll: a nest of three loops to 1,000,000 instructions", _unroll, needs=("nest.json",)),
    Row(
        "branches_20000",
        "unroll: 20,000 loops that are counted at run time, to 320,000 instructions",
        _branches,
        needs=("runtime_loops.json",),
    ),
    Row("lower_indirect_50000", "lower_generic_indirect: 50,000 loads by index", _lower_indirect, needs=("gathers",)),
    Row(
        "coalesce_100000",
        "coalesce_multichannel_cc_ops: 100,000 collectives of 8 channels",
        _coalesce,
        needs=("collectives",),
    ),
    Row(
        "constants_100000",
        "constant_propagate: 100,000 instructions, half of which go and a quarter change",
        _constants,
        needs=("constants",),
    ),
)
