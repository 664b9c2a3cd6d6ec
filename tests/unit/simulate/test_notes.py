"""Instructions that change nothing, and those that are refused."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from arrowir.simulate.registry import handlers, reasons
from arrowir.vocabulary import OPCODES
from tests.simulated import Bench

f32 = np.float32


def after(*opcodes: tuple[str, dict[str, Any]], readings: dict[str, str] | None = None) -> float:
    """Add 1 after some instructions; return the sum."""
    bench = Bench()
    out = bench.output("out", (1, 1), fill=1)
    for opcode, members in opcodes:
        bench.add(opcode, **members)
    bench.add("TensorTensor", [out, out], [out], op="add")
    return bench.run(readings=readings)["out"].item()


@pytest.mark.parametrize("mode", ["Default", "DebugTensorRead"])
def test_marks_change_nothing(mode: str) -> None:
    assert after(("TensorCompletion", {"mode": mode})) == 2


def test_a_print_reads_its_operand() -> None:
    bench = Bench()
    tile, out = bench.scratch("tile", (2, 3)), bench.output("out", (2, 3), fill=4)
    bench.add("DevicePrint", [out], [], prefix="x", output_buffer="stdout")
    assert (bench.run()["out"] == 4).all()
    bench.add("DevicePrint", [tile], [], prefix="x", output_buffer="stdout")
    with pytest.raises(SimulationError, match="`in 0` reads 6 of 6 elements of `tile` that were never written"):
        bench.run()
    bench = Bench()
    bench.add("DevicePrint", [bench.register("r", 1)], [], prefix="x", output_buffer="stdout")
    with pytest.raises(SimulationError, match="must be a PhysicalAccessPattern, but it is a register_access"):
        bench.run()
    bench = Bench()
    out = bench.output("out", (2, 3), fill=4)
    bench.add("DevicePrint", [out], [out], prefix="x", output_buffer="stdout")
    with pytest.raises(SimulationError, match="expected 0 operands in `outs`, found 1"):
        bench.run()


def test_a_halt_at_the_end_changes_nothing() -> None:
    bench = Bench()
    bench.output("out", (1, 1), fill=3)
    bench.add("Halt")
    assert bench.run()["out"].item() == 3


def test_a_halt_before_the_end_is_a_choice() -> None:
    with pytest.raises(SimulationError, match="undecided: instructions follow it; choose"):
        after(("Halt", {}))
    assert after(("Halt", {}), readings={"halt": "ignore"}) == 2
    assert after(("Halt", {}), readings={"halt": "stop"}) == 1
    bench = Bench()
    out = bench.output("out", (1, 1), fill=1)
    with bench.function.loop(0, 2):
        bench.add("TensorTensor", [out, out], [out], op="add")
        bench.add("Halt")
    with pytest.raises(SimulationError, match="undecided: instructions follow it"):
        bench.run()
    assert bench.run(readings={"halt": "stop"})["out"].item() == 2
    assert bench.run(readings={"halt": "ignore"})["out"].item() == 4


@pytest.mark.parametrize("opcode", sorted(reasons()))
def test_opcodes_that_are_not_modelled_say_why(opcode: str) -> None:
    with pytest.raises(SimulationError, match=f"the opcode `{opcode}` is not modelled: "):
        after((opcode, {}))


def test_every_opcode_is_modelled_or_refused_with_a_reason() -> None:
    known, refused = set(handlers()), set(reasons())
    assert known & refused == set()
    assert set(OPCODES.values) <= known | refused
