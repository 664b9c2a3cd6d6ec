"""DMA queues: triggers start blocks of descriptors."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.diagnostics import SimulationError
from arrowir.testing import bir, emitting, lowering
from tests.simulated import Bench

f32 = np.float32
GIVEN = np.arange(24, dtype=f32).reshape(4, 6)


class Queued:
    """A module with one queue, an input `a` and an output `out`."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.a = self.bench.given("a", GIVEN, memory="DRAM")
        self.out = self.bench.output("out", (4, 6), fill=0)
        self.queue = self.bench.module.queue("q", num_dma_engines=16)

    def block(self, name: str, rows: Sequence[tuple[str, Any, Any, dict[str, Any]]], **members: Any) -> None:
        with self.queue.nested("DMABlock", engine="DMA", name=name, **members):
            for opcode, source, target, more in rows:
                ins = source if isinstance(source, list) else [source]
                self.queue.add(opcode, ins, [target], engine="DMA", **more)

    def copy(self, name: str, source: int, target: int, **members: Any) -> None:
        """Add a block that copies a row."""
        rows = self.a[source : source + 1, :], self.out[target : target + 1, :]
        self.block(name, [("DMADescriptorCopy", *rows, {"num_tiling_dimensions": 1})], **members)

    def trigger(self, *names: str, queue: str | None = "q", **members: Any) -> None:
        more = {} if queue is None else {"queue": queue}
        self.bench.add("DMATrigger", dma_blocks=list(names), **more, **members)

    def run(self, **options: Any) -> list[list[float]]:
        return self.bench.run(**options)["out"].tolist()


def rows(*numbers: int | None) -> list[list[float]]:
    return [[0.0] * 6 if number is None else GIVEN[number].tolist() for number in numbers]


def test_a_trigger_starts_its_block() -> None:
    q = Queued()
    q.copy("one", 3, 0)
    q.copy("other", 2, 1)
    q.trigger("other")
    assert q.run() == rows(None, 2, None, None)
    q.trigger("one")
    assert q.run() == rows(3, 2, None, None)


def test_the_descriptors_of_a_block_are_executed_in_order() -> None:
    q = Queued()
    a, out = q.a, q.out
    four = [(6, 1), (1, 1), (1, 1), (1, 6)]
    q.block(
        "all",
        [
            ("DMADescriptorCopy", a[:1, :], out[:1, :], {}),
            ("DMADescriptorReplicate", a[1:2, :], out[1:3, :], {}),
            ("DMADescriptorCCE", [a[:1, :], a[1:2, :]], out[2:3, :], {"op": "add", "constants": [2.0, 1.0]}),
            ("DMADescriptorTranspose", a.access(four, 18), out.access(four, 18), {"transpose_op": "None"}),
        ],
    )
    q.trigger("all")
    found = q.run()
    assert found[0] == GIVEN[0].tolist()
    assert found[1] == GIVEN[1].tolist()
    assert found[2] == (2 * GIVEN[0] + GIVEN[1]).tolist()
    assert found[3] == GIVEN[3].tolist()


def test_a_trigger_starts_where_it_stands() -> None:
    q = Queued()
    with q.queue.nested("DMABlock", engine="DMA", name="b"):
        q.queue.add("DMADescriptorCopy", [q.a.access()], [q.out.access()], engine="DMA")
    q.trigger("b")
    q.bench.add("Memset", [], [q.out[:1, :]], mode="Const", constant=0)
    assert q.run() == rows(None, 1, 2, 3)


def test_a_trace_has_the_descriptors() -> None:
    q = Queued()
    q.copy("one", 3, 0)
    q.trigger("one", name="t")
    table = q.bench.run(trace=True).trace
    assert table["opcode"].to_list() == ["DMADescriptorCopy"]
    assert table["bytes_written"].to_list() == [24]
    assert table["function"].to_list() == [None]


def test_a_trigger_in_a_loop_starts_its_block_each_time() -> None:
    q = Queued()
    total = q.bench.output("total", (4, 6), fill=0)
    q.block("add", [("DMADescriptorCCE", [q.a, total.access()], total.access(), {"op": "add"})])
    with q.bench.function.loop(0, 3):
        q.trigger("add")
    assert np.array_equal(q.bench.run()["total"], 3 * GIVEN)


def test_a_trigger_in_a_kernel() -> None:
    module = build.module()
    main = module.function()
    a, out = main.tensor("a", "DRAM", [2, 3]), main.tensor("out", "DRAM", [2, 3], kind="ExternalOutput")
    kernel = module.kernel("kernel")
    kernel.add("DMATrigger", queue="q", dma_blocks=["b"])
    queue = module.queue("q")
    with queue.nested("DMABlock", name="b", engine="DMA"):
        queue.add("DMADescriptorCopy", [a], [out], engine="DMA")
    main.add("NKIKernel", func="kernel")
    assert np.array_equal(air.simulate(module.ir(), {"a": GIVEN[:2, :3]})["out"], GIVEN[:2, :3])


# -- several blocks ----


def several() -> Queued:
    q = Queued()
    for number in range(3):
        q.copy(f"b{number}", number, number)
    return q


def test_which_of_several_blocks_is_started_is_a_choice() -> None:
    q = several()
    q.trigger("b0", "b1", "b2")
    with pytest.raises(SimulationError, match="the trigger names 3 blocks; choose"):
        q.run()
    assert q.run(readings={"dma_trigger": "all"}) == rows(0, 1, 2, None)
    assert q.run(readings={"dma_trigger": "next"}) == rows(0, None, None, None)
    assert q.run(readings={"dma_trigger": "next"}) == rows(0, None, None, None)  # each run for itself


@pytest.mark.parametrize("trips", [1, 2, 3, 5])
def test_blocks_are_started_in_turn(trips: int) -> None:
    q = several()
    counts = q.bench.output("counts", (1, 3), fill=0)
    ones = q.bench.given("ones", np.ones((1, 1), f32))
    for number in range(3):
        cell = counts.access([(3, 1), (1, 1)], number)
        q.block(f"c{number}", [("DMADescriptorCCE", [ones.access(), cell], cell, {"op": "add"})])
    with q.bench.function.loop(0, trips):
        q.trigger("c0", "c1", "c2")
    found = q.bench.run(readings={"dma_trigger": "next"})["counts"][0]
    assert found.tolist() == [(trips + 2) // 3, (trips + 1) // 3, trips // 3]


@pytest.mark.parametrize("opcode", ["SwitchQueueInstance", "ResetQueueInstance"])
def test_another_instance_of_a_queue(opcode: str) -> None:
    def run(trips: int, queue: str = "q", **members: Any) -> None:
        q = several()
        with q.bench.function.loop(0, trips):
            q.trigger("b0", "b1", name="t")
        q.bench.add(opcode, queue=queue, instance="i", **members)
        q.bench.run(readings={"dma_trigger": "next"})

    run(2)
    run(1, queue="other")
    with pytest.raises(SimulationError, match="the trigger `t` is in the middle of its blocks"):
        run(1)
    if opcode == "SwitchQueueInstance":
        run(1, no_rearm=True)


# -- names ----


def test_of_blocks_of_one_name_that_of_the_trigger_is_started() -> None:
    q = Queued()
    q.copy("b", 3, 0, dma_trigger="one")
    q.copy("b", 2, 1, dma_trigger="other")
    q.trigger("b", name="other")
    assert q.run() == rows(None, 2, None, None)
    q.trigger("b", name="third")
    with pytest.raises(SimulationError, match="2 blocks are named `b` in `q`"):
        q.run()


def test_blocks_are_looked_up_in_the_queue() -> None:
    q = Queued()
    q.copy("b", 3, 0)
    other = q.bench.module.queue("other")
    with other.nested("DMABlock", name="b", engine="DMA"):
        other.add("DMADescriptorCopy", [q.a[:1, :]], [q.out[3:, :]], engine="DMA")
    q.trigger("b", queue="other")
    assert q.run() == rows(None, None, None, 0)


@pytest.mark.parametrize(
    ("names", "queue", "message"),
    [
        (["none"], "q", "Block does not exist! `none` in `q`"),
        (["b"], "none", "Queue does not exist! `none`"),
        ([], "q", "DMATrigger must have queue and block set"),
        (["b"], None, "DMATrigger must have queue and block set"),
    ],
)
def test_what_is_wrong_with_a_trigger(names: list[str], queue: str | None, message: str) -> None:
    q = Queued()
    q.copy("b", 0, 0)
    q.trigger(*names, queue=queue)
    with pytest.raises(SimulationError, match=message):
        q.run()


def test_an_error_in_a_descriptor_names_it() -> None:
    q = Queued()
    q.block("b", [("DMADescriptorCopy", q.a[:1, :3], q.out, {"name": "small"})])
    q.trigger("b")
    with pytest.raises(SimulationError, match=r"3 elements are copied to 24 .*`small`"):
        q.run()


# -- lowered modules ----


def test_a_module_after_lowering_computes_what_it_did_before() -> None:
    module = build.module(arch="gen3")
    main = module.function()
    a, out = main.tensor("a", "DRAM", [4, 6]), main.tensor("out", "DRAM", [4, 6], kind="ExternalOutput")
    one, other = main.tensor("one", "SB", [4, 6]), main.tensor("other", "SB", [4, 6])

    def moved(opcode: str, source: build.Tensor, target: build.Tensor) -> dict[str, Any]:
        keys = {"mode": "Copy"} if opcode == "DMACopy" else {}
        return bir.instruction(
            f"{source.name}-{target.name}", opcode, "SP", [source.access()], [target.access()], keys=keys
        )

    body = emitting.Body()
    body.instructions += [
        moved("DMACopy", a, one),
        moved("TensorCopy", one, other),
        moved("DMACopy", other, one),
        moved("TensorCopy", one, other),
        moved("DMACopy", other, one),
        moved("DMACopy", one, out),
    ]
    document = lowering.lower(module.json()["functions"][0]["allocations"], body, emitting.Style(), arch="gen3")
    ir = air.read_json(json.dumps(document).encode())
    opcodes = ir.instructions["opcode"].to_list()
    assert opcodes.count("DMATrigger") == opcodes.count("DMABlock") == opcodes.count("DMADescriptorCopy") == 2
    assert np.array_equal(air.simulate(ir, {"a": GIVEN})["out"], GIVEN)
