"""Lowered loops: each engine counts and branches by itself, and all of them go the same way."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.build import FunctionBuilder, Register
from arrowir.diagnostics import SimulationError

ROWS, WIDTH = 5, 3
SCALE = {"op0": "mult", "const0": 2.0, "reverse0": False, "op1": "bypass", "const1": 0.0, "reverse1": False}
RNG = np.random.default_rng(3)
GIVEN = RNG.standard_normal((ROWS, WIDTH)).astype(np.float32)


class Lowered:
    """A loop that doubles rows, as it stands after lowering: SP loads, DVE computes, Activation stores."""

    def __init__(self, trips: Mapping[str, int] = {}, *, order: Sequence[str] = ("SP", "DVE", "Activation")) -> None:
        self.module = build.module()
        self.main = main = self.module.function()
        self.x, self.y = main.input("x", (ROWS, WIDTH)), main.output("y", (ROWS, WIDTH))
        tile = main.tensor("tile", "SB", (1, WIDTH))
        self.counters = {engine: main.register(f"iv-<{engine}>") for engine in order}
        for engine, counter in self.counters.items():
            main.add("RegisterMove", [0], [counter], engine=engine)
        main.block("body")
        main.add("Load", [self.row(self.x, self.counters["SP"])], [tile], engine="SP", name="load")
        main.add("TensorScalar", [tile], [tile], engine="DVE", **SCALE)
        main.add("Save", [tile], [self.row(self.y, self.counters["Activation"])], engine="Activation")
        for engine in order:
            self.count(main, engine, trips.get(engine, ROWS))
        main.block("exit")

    @staticmethod
    def row(tensor: build.Tensor, counter: Register) -> dict[str, Any]:
        """Return the access to the row whose number is in a register."""
        term = {"coef": WIDTH, "offset_expr": {"kind": "IntRuntimeValueKind", "regref": counter.name}}
        pattern = [[WIDTH, 1], [1, WIDTH]]
        return tensor.access(pattern, dynamic_ap_info={"aff_expr": [term], "c": 0, "indirect_dim": 0})

    def count(self, main: FunctionBuilder, engine: str, trips: int) -> None:
        """Add the step of an engine's counter and its branch."""
        counter = self.counters[engine]
        main.add("RegisterAlu", [counter, 1], [counter], engine=engine, op="add", is_64bit=False)
        main.compare(counter, "IS_LTIMM", trips, "body", "exit", engine=engine)

    def run(self, **options: Any) -> np.ndarray:
        return air.simulate(self.module.ir("lowered"), {"x": GIVEN}, **options)["y"]


def test_every_engine_takes_its_own_branch() -> None:
    lowered = Lowered()
    lowered.main.add("NoOp", engine="ALL", name="behind")
    assert np.array_equal(lowered.run(), 2 * GIVEN)
    run = air.simulate(lowered.module.ir(), {"x": GIVEN}, trace=True)
    assert run.trace["name"].to_list().count("load") == ROWS
    assert run.steps == 3 + ROWS * 9 + 1


def test_the_order_of_the_branches_means_nothing() -> None:
    for order in (("Activation", "SP", "DVE"), ("DVE", "Activation", "SP")):
        assert np.array_equal(Lowered(order=order).run(), 2 * GIVEN)


def test_engines_that_part_ways_are_refused() -> None:
    with pytest.raises(
        SimulationError, match=r"engines part ways, .*: `SP` goes to `exit`, `DVE` goes to `body`, "
    ) as e:
        Lowered({"SP": 1}).run()
    assert (e.value.function, e.value.block, e.value.opcode) == ("sg0000", "body", "CompareAndBranch")


def test_what_stands_behind_an_engine_s_branch_is_skipped_for_that_engine_alone() -> None:
    lowered = Lowered()
    blocks = lowered.main.json()["blocks"]
    rows = blocks[1]["instructions"]
    # The engine's counter moves on behind its branch: it never does so, and the others do.
    for engine, change in (("SP", 100), ("DVE", 0)):
        made = {"name": "late", "opcode": "RegisterAlu", "engine": engine, "op": "add", "is_64bit": False}
        held = lowered.counters[engine].access()
        step = {"dtype": "int32", "kind": "imm_value", "value": change}
        rows.insert(5, {**made, "ins": [held, step], "outs": [held]})
    assert [row["opcode"] for row in rows[3:5]] == ["RegisterAlu", "CompareAndBranch"]
    document = lowered.module.json()
    document["functions"][0]["blocks"] = blocks
    ir = air.read_json(json.dumps(document).encode())
    assert np.array_equal(air.simulate(ir, {"x": GIVEN})["y"], 2 * GIVEN)


@pytest.mark.parametrize("engine", ["ALL", "Unassigned"])
def test_an_instruction_of_all_engines_between_branches_is_refused(engine: str) -> None:
    module = build.module()
    main = module.function()
    main.branch("end", engine="SP")
    main.add("NoOp", engine=engine, name="between")
    main.branch("end", engine="PE")
    main.block("end")
    with pytest.raises(SimulationError, match=f"to no single engine \\(`{engine}`\\), and stands where `SP` has") as e:
        air.simulate(module.ir())
    assert e.value.instruction == "between"


@pytest.mark.parametrize("opcode", ["Break", "Return", "Exit"])
def test_loops_and_functions_are_left_by_all_engines(opcode: str) -> None:
    module = build.module()
    main = module.function()
    out = main.tensor("out", "SB", [1, 3], kind="ExternalOutput")
    main.add("Memset", [], [out], mode="Const", constant=0, engine="Pool")
    with main.loop(0, 3):
        main.add(opcode, engine="Pool")
        for place, engine in enumerate(("Pool", "DVE")):  # the second one still runs
            main.add("Memset", [], [out[:, place : place + 1]], mode="Const", constant=0x3F800000, engine=engine)
        main.add(opcode, engine="DVE")
        main.add("Memset", [], [out], mode="Const", constant=0x3F800000, engine="DVE")
    if opcode == "Break":
        main.add("Memset", [], [out[:, 2:]], mode="Const", constant=0x3F800000, engine="DVE")
    assert air.simulate(module.ir())["out"].tolist() == [[0, 1, opcode == "Break"]]
