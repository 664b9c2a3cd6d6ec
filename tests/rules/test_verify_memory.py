"""The verifier's rules about patterns, placements and contents: each is broken by one change of a sound module."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import arrowir as air
from arrowir import build
from tests.single_pass import Json
from tests.verified import (
    Broken,
    Case,
    Module,
    broken,
    dram,
    keys,
    location,
    operand,
    psum,
    retyped,
    sb,
    sound,
    whole,
)

T = partial(sb, 128, 64)


def copied(source: Any = None, target: Any = None) -> Module:
    return sound("TensorCopy", [source or T()], [target or T()], engine="DVE")


def pattern(*pairs: tuple[int, int], **more: Any) -> Callable[[Module], object]:
    return operand("ins", 0, ap=[list(pair) for pair in pairs], **more)


def two() -> Module:
    return sound("TensorTensor", [T(), T()], [T()], engine="DVE", op="add")


def half(name: str, base: int) -> Callable[[Module], object]:
    """Keep half of the partitions of a tensor, from another one on."""

    def change(d: Module) -> None:
        d.place_of(name).update(base=base, dims=[64, d.place_of(name)["dims"][1]])
        for row in d.rows:
            for o in (*row["ins"], *row["outs"]):
                if o.get("memref") == name:
                    o["ap"][0][1] = 64

    return change


def every_ap(name: str, lanes: int) -> Callable[[Module], object]:
    def change(d: Module) -> None:
        d.place_of(name)["dims"][0] = d.set_of(name)["tensor_shape"][0] = lanes
        for row in d.rows:
            for o in (*row["ins"], *row["outs"]):
                if o.get("memref") == name:
                    o["ap"][0][1] = lanes

    return change


PATTERNS = [
    Case("BIR003", copied, pattern((64, 128), (1, 0))),
    Case("pattern_too_large", copied, pattern((64, 128), (1 << 62, 4))),
    Case("BIR049", copied, pattern((64, 128), (32, 2), (16, 2), (8, 2), (4, 2), (1, 4))),
    Case("MLOC-negstep", copied, pattern((-64, 128), (1, 64), offset=127 * 64)),
    Case("VER-partition-1", copied, pattern((0, 129), (1, 64))),
    Case("IBIR158", copied, operand("ins", 0, offset=1)),
    Case("BIR429", partial(copied, dram(128, 64), T()), lambda d: d.place_of("out0").update(addr=2)),
    Case("VER-partition-2", copied, pattern((64, 64), (1, 64), offset=32 * 64)),
    Case("VER-partition-3", copied, pattern((64, 16), (1, 64), offset=48 * 64)),
]  # fmt: skip


def fixed() -> Module:
    """A scratch that is pinned from address 0 on, and tiles behind it."""
    made = Module()
    made.tensor("DynamicDMAScratchLoc", sb(128, 16_384, dtype="uint8"))
    made.place_of("DynamicDMAScratchLoc")["pinned"] = True
    tile = made.tensor("tile", sb(128, 16))
    made.add("fill", "Memset", [], [tile], mode="Const", constant=0)
    made.add("sink", "Sink", [tile])
    return made


def staged() -> Module:
    """Two tiles, one written, the other written, then both read."""
    made = Module()
    a, b = made.tensor("a", T()), made.tensor("b", T())
    made.add("fill_a", "Memset", [], [a], mode="Const", constant=0)
    made.add("fill_b", "Memset", [], [b], mode="Const", constant=0)
    made.add("sink", "Sink", [a, b])
    return made


def tall(name: str) -> Callable[[Module], object]:
    """Give a tensor an address above the capacity."""
    return location(name, addr=400_000)


PLACEMENTS = [
    Case("GCA037", copied, location("in0", dims=[128, 300_000])),
    Case("location_out_of_bounds", copied, tall("in0")),
    Case("EGCA115", partial(sound, "DMACopy", [dram(128, 64)], [T()], engine="SP"), location("out0", base=32)),
    Case("location_partitions", copied, lambda d: (every_ap("in0", 64)(d), location("in0", base=96)(d))),
    Case("location_base", partial(copied, dram(128, 64), T()),
         lambda d: (every_ap("out0", 16)(d), location("out0", base=8)(d), keys(opcode="DMACopy", engine="SP")(d),
                    d.x["ins"][0]["ap"][0].__setitem__(1, 16))),
    Case("psum_bank", partial(copied, psum(128, 64)), location("in0", bank=8)),
    Case("GCA080", staged, lambda d: (d.tensor("p", psum(0, 64)))),
    Case("INLA001", fixed, location("tile", addr=16_376)),
    Case("GCA038", staged, location("b", addr=128)),
]  # fmt: skip


def large() -> Module:
    """An instruction of three tensors that fill a partition of gen2 nearly."""
    return sound("Sink", [sb(1, 60_000, dtype="uint8"), sb(1, 60_000, dtype="uint8"), sb(1, 60_000, dtype="uint8")],
                 arch="sunda")  # fmt: skip


def larger(d: Module) -> None:
    """Make all of them larger; they lie in the same place, at other times for those who fill them."""
    for k in range(3):
        d.place_of(f"in{k}").update(dims=[1, 70_000], allocated=False)
        for row in d.rows:
            for o in (*row["ins"], *row["outs"]):
                if o.get("memref") == f"in{k}":
                    o["ap"] = [[70_000, 1], [1, 70_000]]


def many() -> Module:
    return sound("TensorTensor", [sb(1, 98_000, dtype="uint8"), sb(1, 98_000, dtype="uint8")], [dram(1, 8)],
                 arch="sunda", engine="DVE", op="add")  # fmt: skip


def more(d: Module) -> None:
    """N02: one tensor for both inputs, of which two do not fit."""
    d.x["ins"][1] = dict(d.x["ins"][0])
    d.rows[:] = [row for row in d.rows if row["name"] != "fill_in1"]
    d.main["allocations"].remove(d.set_of("in1"))
    d.place_of("in0")["dims"][1] = 98_568


def shifted() -> Module:
    """A tensor copied onto itself, in place."""
    made = copied()
    made.x["outs"][0] = {**made.x["ins"][0], "ap": [[64, 128], [1, 32]]}
    made.x["ins"][0] = dict(made.x["outs"][0])
    made.rows[-1]["ins"] = [whole(made, "in0")]
    made.main["allocations"].remove(made.set_of("out0"))
    return made


def added(*ins: Any) -> Module:
    return sound("TensorTensor", list(ins), [T()], engine="DVE", op="add")


def pointer() -> Module:
    return sound("TensorScalarPtr", [psum(128, 64), sb(128, 1), T()], [T()], engine="DVE", op0="mult", op1="add",
                 reverse0=False, reverse1=False, is_scalar_tensor_tensor=True)  # fmt: skip


def into_psum(name: str) -> Callable[[Module], object]:
    return location(name, type="PSUM", bank=3, addr=0)


def product() -> Module:
    return sound("Matmult", [sb(64, 64, dtype="float16"), sb(64, 32, dtype="float16")], [psum(32, 64)], engine="PE")


CONTENTS = [
    Case("BIR037", many, more),
    Case("BIR228", large, larger),
    Case("BVF029", shifted, operand("outs", 0, offset=1)),
    Case("GCA024", copied, lambda d: d.rows.pop(0)),
    Case("GCA056", copied, lambda d: d.rows.pop()),
    Case("BFD701", copied, lambda d: d.tensor("spare", T())),
    Case("BIR311", copied, lambda d: (retyped("outs", 0, "bfloat16")(d), into_psum("out0")(d))),
    Case("BIR441", product, retyped("outs", 0, "float16")),
    Case("BVF028", partial(added, psum(128, 64), T()), into_psum("in1")),
    Case("BVF027", pointer, into_psum("in2")),
    Case("BIR297", partial(added, sb(32, 64), sb(32, 64)), location("in1", base=32)),
]  # fmt: skip

CASES = [*PATTERNS, *PLACEMENTS, *CONTENTS]


@pytest.fixture(scope="module")
def found() -> Broken:
    return broken(CASES)


@pytest.mark.parametrize("code", [case.code for case in CASES])
def test_a_rule_is_broken_by_one_change(code: str, found: Broken) -> None:
    assert found[code] == (set(), {code})


# -- cases ----


def rules(module: build.ModuleBuilder) -> list[Json]:
    found = air.verify(module.ir())
    return found.filter(severity="error").select("rule", "message", "instruction", "location").to_dicts()


def test_case_n02_distinct_tensors_fit_and_operands_do_not() -> None:
    module = build.module(arch="gen2")
    main = module.function()
    a, b = main.sb("a", [128, 24_642], addr=0), main.sb("b", [128, 222], addr=98_568)
    main.add("Memset", [], [a], mode="Const", constant=0)
    main.add("TensorTensor", [a, a], [b], op="add")
    (row,) = rules(module)
    assert row["rule"] == "BIR037"
    assert "98568 + 98568 > 196608" in row["message"]


def test_case_n03_an_address_beyond_the_capacity() -> None:
    module = build.module(arch="gen3")
    main = module.function()
    main.add("Memset", [], [main.sb("t", [128, 1000], addr=400_000)], mode="Const", constant=0)
    (row,) = rules(module)
    assert row["rule"] == "location_out_of_bounds"
    assert row["message"].endswith("bytes 400000 to 404000 of a partition, and SB has 229376")


def test_a_tensor_that_goes_on_behind_the_last_bank() -> None:
    """A tensor may take several banks; `addr` counts from the first of them."""
    for bank, end in ((6, None), (7, 18_432), (-7, 18_432)):
        made = copied(psum(128, 1024), T())
        made.place_of("in0")["bank"] = bank
        found = air.verify(made.ir()).filter(rule="location_out_of_bounds")["message"].to_list()
        told = f"memory location `in0` takes bytes 14336 to {end} of a partition, and PSUM has 16384"
        assert found == ([] if end is None else [told])


def test_bytes_are_told_exactly() -> None:
    made = copied()
    made.place_of("in0")["addr"] = 2**63 - 1
    (message,) = air.verify(made.ir()).filter(rule="location_out_of_bounds")["message"]
    assert f"takes bytes {2**63 - 1} to {2**63 - 1 + 256} " in message


def test_case_n04_a_start_at_partition_48() -> None:
    module = build.module(arch="gen3")
    main = module.function()
    tile, out = main.sb("t", [84, 406], addr=0), main.sb("o", [36, 203], addr=4096)
    main.add("Memset", [], [tile], mode="Const", constant=0)
    part = tile.access(pattern=[[406, 36], [1, 1], [1, 203]], offset=19_488)
    main.add("TensorCopy", [part], [out], engine="DVE")
    (row,) = rules(module)
    assert (row["rule"], row["message"]) == (
        "VER-partition-3", "Access pattern did not start at parition 0 or 64. Starts at partition 48",
    )  # fmt: skip


def test_case_n12_a_tile_over_the_scratch_of_dynamic_dma() -> None:
    module = build.module(arch="gen3")
    main = module.function()
    main.sb("DynamicDMAScratchLoc", [128, 16_384], "uint8", addr=0, pinned=True)
    main.add("Memset", [], [main.sb("t", [128, 16], addr=16_376)], mode="Const", constant=0)
    (row,) = rules(module)
    assert (row["rule"], row["location"]) == ("INLA001", "t")
    assert "`t` is overlapping with must-pinned memloc `DynamicDMAScratchLoc`" in row["message"]
    assert "8 bytes of partitions 0 to 127" in row["message"]


def test_case_n15_counts_of_a_copy_differ() -> None:
    module = build.module(arch="gen3")
    main = module.function()
    source, target = main.input("s", [128, 512]), main.sb("t", [128, 256], addr=0)
    main.add("DMACopy", [source], [target], engine="SP")
    (row,) = rules(module)
    assert row["rule"] == "EBIR031"
    assert row["message"].endswith("but got in=512 and out=256")


def test_m3_what_a_reservation_covers_is_no_finding() -> None:
    module = build.module(arch="gen3")
    main = module.function()
    main.sb("DynamicDMAScratchLoc", [128, 16_384], "uint8", addr=0, pinned=True)
    main.add("NoOp")
    ir = air.passes.runtime_memory_reservation(module.ir(), reserved_name="other").ir
    assert air.verify(ir).is_empty()


def test_case_r02_reserved_and_pinned_tensors_are_never_unused() -> None:
    module = build.module(arch="gen3")
    main = module.function()
    main.sb("DynamicDMAScratchLoc", [128, 16_384], "uint8", addr=0, pinned=True)
    main.sb("reserved", [128, 2], addr=65_536, runtime_reserved=True)
    main.add("NoOp")
    assert air.verify(module.ir()).is_empty()


@pytest.mark.parametrize("told", [{"written_by_another_core": True}, {"remote_writer_func": "g"}])
def test_gca024_another_core_may_write(told: Json) -> None:
    made = Module()
    access = made.tensor("t", dram(8, 8))
    made.add("sink", "Sink", [access])
    assert made.codes() == {"GCA024"}
    made.place_of("t").update(told)
    assert made.codes() == set()
    made = Module()
    made.add("sink", "Sink", [made.tensor("t", dram(8, 8))])
    made.set_of("t")["addr_space"] = "Shared"
    assert made.codes() == set()


@pytest.mark.parametrize("offset", [1 << 57, 1 << 62, -(1 << 62)])
def test_an_offset_that_no_memory_has_is_told(offset: int) -> None:
    made = copied()
    made.x["ins"][0]["offset"] = offset
    found = air.verify(made.ir()).filter(severity="error")
    assert found.select("rule", "slot").rows() == [("pattern_too_large", "ins[0]")]
    assert found["message"][0].endswith(f"no memory has: [[64,128],[1,64]] from element {offset} on")
    assert air.footprints(made.ir()).filter(instruction="x", slot="ins[0]")["reason"].to_list() == ["too_large"]


@pytest.mark.parametrize(
    ("bank", "addr", "first"),
    [(0, 14_336, None), (7, 0, None), (7, 14_336, None), (-7, 0, None), (-7, 14_336, None), (3, 6144, None),
     (7, 2048, 16_384), (0, 16_384, 16_384), (3, -8, 6136)],
)  # fmt: skip
def test_psum_addresses_count_from_their_bank_or_from_the_partition(bank: int, addr: int, first: int | None) -> None:
    """A file may say where a location is in its bank, or where in the partition, in the bank that it names."""
    made = copied(psum(128, 512), sb(128, 512))
    made.place_of("in0").update(bank=bank, addr=addr)
    found = air.verify(made.ir()).filter(severity="error")["message"].to_list()
    if first is None:
        assert found == []
    else:
        (message,) = found
        assert message == (
            f"memory location `in0` takes bytes {first} to {first + 2048} of a partition, and PSUM has 16384"
        )


@pytest.mark.parametrize("memory", ["RNGSTATE", "REG"])
def test_gca024_state_that_is_there_from_the_start_may_be_read(memory: str) -> None:
    made = Module()
    access = made.tensor("state", dram(128, 6, dtype="uint32"))
    made.place_of("state")["type"] = memory
    made.add("read", "RandGetState", [access], [made.tensor("t", dram(128, 6, dtype="uint32"), "ExternalOutput")])
    assert made.codes() == set()
