"""Footprints and overlaps against brute force on drawn modules."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir import build
from arrowir.analyse import live_ranges
from arrowir.simulate.dtypes import dtype
from arrowir.simulate.memory import Access, Memory
from arrowir.testing import strategies
from arrowir.testing.executable import document
from tests.oracle import footprints as oracle
from tests.simulated import HELD
from tests.single_pass import read

DTYPES = ("uint8", "bfloat16", "float32", "int64")
STEPS = st.integers(-9, 9)


@st.composite
def accesses(draw: st.DrawFn) -> dict[str, Any]:
    """A location and an access to it; in SB and PSUM lanes are whole partitions apart."""
    memory = draw(st.sampled_from(["SB", "PSUM", "DRAM"]))
    kind = draw(st.sampled_from(DTYPES))
    row = draw(st.integers(1, 24))
    place = {
        "memory": memory,
        "shape": [draw(st.integers(1, 16)), row],
        "dtype": kind,
        "addr": draw(st.integers(0, 64)) * 8,
        "base": draw(st.sampled_from([0, 32, 64, 96])) if memory != "DRAM" else 0,
    }
    rest = [[draw(STEPS), draw(st.integers(1, 5))] for _ in range(draw(st.integers(0, 3)))]
    lanes = draw(st.integers(1, 6))
    step = draw(st.integers(-3, 3)) * (row if memory != "DRAM" else 1)
    offset = draw(st.integers(0, 80))
    rest_of_row = draw(st.sampled_from([0, 0, 0, 1, 2, 3]))
    return {"place": place, "ap": [[step, lanes], *rest], "offset": offset, "spare": rest_of_row}


def expanded(row: dict[str, Any]) -> oracle.Cells:
    """The cells that a row of footprints says."""
    first = row["first_partition"]
    lanes = [0] if first is None else [first + k * row["partition_step"] for k in range(row["partitions"])]
    return frozenset((p, b) for p in lanes for i in row["intervals"] for b in range(i["start"], i["end"]))


@settings(max_examples=100)
@given(accesses())
def test_a_footprint_is_what_brute_force_touches(drawn: dict[str, Any]) -> None:
    place = dict(drawn["place"])
    module = build.module()
    main = module.function()
    memory, shape = place.pop("memory"), place.pop("shape")
    tile = main.tensor("t", memory, shape, **place)
    main.add("TensorCopy", [tile.access(pattern=drawn["ap"], offset=drawn["offset"])], [])
    document = module.json()
    (item,) = document["functions"][0]["allocations"]
    (location,) = item["memorylocations"]
    (operand,) = document["functions"][0]["blocks"][0]["instructions"][0]["ins"]
    spare = min(drawn["spare"], oracle.SIZES[operand["dtype"]] - 1)  # fewer bytes than an element, behind a row
    location["dims"][1] += spare
    row = air.footprints(read(document)).row(0, named=True)
    assert not row["undecided"]
    wanted = oracle.cells(operand, location)
    assert expanded(row) == wanted
    assert row["start_byte"] == min(b for _, b in wanted)
    assert row["end_byte"] == max(b for _, b in wanted) + 1
    assert row["touched_bytes"] * (row["partitions"] or 1) == len(wanted)
    gaps = [b["start"] - a["end"] for a, b in zip(row["intervals"], row["intervals"][1:], strict=False)]
    assert all(gap > 0 for gap in gaps)
    check_simulator(row, location, operand, wanted)


def check_simulator(row: dict[str, Any], location: dict[str, Any], operand: dict[str, Any], wanted: Any) -> None:
    """An access that the simulator takes is inside, and it touches the same bytes; one that it refuses is not."""
    partitions, pitch = location["dims"]
    flat = location["type"] == "DRAM"
    base, addr = location.get("base", 0), location["addr"]
    memory = Memory("t", partitions, pitch, flat=flat, base=base)
    # The simulator knows neither partitions in falling order nor rows with a rest.
    strange = not flat and (operand["ap"][0][0] < 0 or pitch % oracle.SIZES[operand["dtype"]] > 0)
    try:
        access = Access(memory, dtype(operand["dtype"]), operand["offset"], [(s, n) for s, n in operand["ap"]])
    except air.SimulationError:
        assert not row["inside"] or strange
        return
    assert row["inside"]
    size = access.dtype.size
    numbers = np.unique(access.numbers())[:, None] * size + np.arange(size)
    cells = {(0, addr + b) if flat else (base + b // pitch, addr + b % pitch) for b in numbers.reshape(-1).tolist()}
    assert cells == wanted


@settings(max_examples=25)
@given(strategies.documents())
def test_every_operand_of_a_drawn_module_is_a_row(document: dict[str, Any]) -> None:
    ir = read(document)
    found = air.footprints(ir)
    assert found["operand_id"].to_list() == list(range(ir.count("operands")))
    known = found.filter(pl.col("start_byte").is_not_null())
    assert not known["undecided"].any()
    assert found.filter(pl.col("kind").is_in(["symbolic_ap", "register_ap"]))["undecided"].all()


@st.composite
def placements(draw: st.DrawFn) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(draw(st.integers(0, 12))):
        memory = draw(st.sampled_from(["SB", "PSUM", "DRAM"]))
        found.append(
            {
                "type": memory,
                "dims": [draw(st.integers(0, 4)), draw(st.integers(0, 6))],
                "addr": draw(st.integers(0, 10)),
                "base": draw(st.integers(0, 4)) if memory != "DRAM" else 0,
                "bank": draw(st.integers(0, 1)) if memory == "PSUM" else 0,
                "allocated": draw(st.integers(0, 4)) > 0,
            }
        )
    return found


@settings(max_examples=60)
@given(placements())
def test_overlaps_are_the_pairs_that_share_a_byte(places: list[dict[str, Any]]) -> None:
    sets = [
        {
            "name": f"s{n}",
            "kind": "Internal",
            "dtype": "uint8",
            "Skind": "memory_location_set",
            "tensor_shape": place["dims"],
            "memorylocations": [{"name": f"l{n}", **place}],
        }
        for n, place in enumerate(places)
    ]
    function = {"name": "f", "allocations": sets, "blocks": []}
    ir = read({"version": 2, "arch": "gen3", "functions": [function]})
    found = air.overlaps(ir, live=False)
    assert set(found.select("location_id", "other_id").iter_rows()) == oracle.pairs(places)
    assert len(found) == found.unique(["location_id", "other_id"]).height
    for row in found.iter_rows(named=True):
        both = oracle.pairs([places[row["location_id"]], places[row["other_id"]]])
        assert both
        assert row["shared_bytes"] == row["end_byte"] - row["start_byte"] > 0
    assert air.overlaps(ir).is_empty()  # nothing uses them


@pytest.mark.parametrize("part", range(4))
def test_ranges_hold_all_that_stands_between_a_write_and_its_reads(part: int) -> None:
    """What was written last and is read is live at every instruction that is executed between."""
    reads = 0
    for seed in range(20 * part, 20 * part + 20):
        ir = air.run(read(document(seed)), [air.passes.InlineNkiKernel(allocated=None)], verify="none").ir
        position, used, found = ir.array("instructions", "position"), live_ranges.uses(ir), live_ranges.measure(ir)
        sets = ir.sets.select("kind", "dtype", "tensor_shape", set_id="id")
        storage = ir.locations.filter(function_id=0).join(sets, on="set_id")
        random = np.random.default_rng(seed)
        inputs = {
            row["name"]: random.integers(0, 3, row["tensor_shape"]).astype(HELD[row["dtype"]])
            for row in storage.iter_rows(named=True)
            if "Input" in row["kind"]
        }
        executed = air.simulate(ir, inputs, trace=True).trace["instruction_id"].to_numpy()
        at = position[executed]
        written: dict[int, int] = {}
        for step, instruction in enumerate(executed.tolist()):
            mine = np.flatnonzero(used.instruction == instruction)
            mine = mine[np.argsort(used.writes[mine], kind="stable")]  # an instruction reads before it writes
            for location, writes in zip(used.location[mine].tolist(), used.writes[mine].tolist(), strict=True):
                if writes:
                    written[location] = step
                elif location in written:
                    reads += 1
                    between = at[written[location] : step + 1]
                    assert found.start[location] <= between.min() <= between.max() <= found.end[location], seed
    assert reads > 500
