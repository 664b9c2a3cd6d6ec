"""Opcodes that are known and not modelled: their errors say why."""

import numpy as np
import pytest

from arrowir import simulate
from arrowir.diagnostics import SimulationError
from tests.simulated import Bench, single

f32 = np.float32

RANDOM = ("Dropout", "Rand", "Rand2", "Rng", "GetRandState", "SetRandState", "RandGetState", "RandSetState")


@pytest.mark.parametrize("opcode", [*RANDOM, "MatmultSparse"])
def test_the_error_says_why(opcode: str) -> None:
    bench = Bench()
    a = bench.given("a", np.ones((2, 3), f32))
    bench.add(opcode, [a], [bench.output("out", (2, 3))], name="this")
    why = "random state" if opcode in RANDOM else "weight"
    with pytest.raises(SimulationError, match=f"the opcode `{opcode}` is not modelled: .*{why}.* .instruction `this`"):
        bench.run()


def test_they_do_not_count_as_modelled() -> None:
    table = simulate.coverage()
    assert set(RANDOM) <= set(table.filter(~table["modelled"])["opcode"])


@pytest.mark.parametrize(("mode", "reason"), [("Random", "random values are not modelled"), ("Any", "the mode `Any`")])
def test_random_content_is_refused(mode: str, reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        single("Memset", [], (2, 3), "uint8", mode=mode, constant=0)


def test_packed_numbers_are_not_cast() -> None:
    bench = Bench()
    four = bench.given("four", np.zeros((2, 3), np.uint32), "float8_e5m2_x4")
    bench.add("TensorCopy", [four], [bench.output("out", (2, 3))])
    with pytest.raises(SimulationError, match="a cast of `float8_e5m2_x4` to `float32` is not modelled"):
        bench.run()
