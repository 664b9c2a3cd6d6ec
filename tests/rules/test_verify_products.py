"""The verifier's rules about matrix products: each is broken by one change of a sound module."""

from functools import partial
from typing import Any

import pytest

from tests.verified import (
    SIZES,
    Broken,
    Case,
    Module,
    both,
    broken,
    instead,
    keys,
    location,
    operand,
    psum,
    reg,
    retyped,
    sb,
    sound,
)


def product(arch: str = "gen3", dtype: str = "float32", rows: int = 64, columns: int = 256, **more: Any) -> Module:
    moving, stationary = sb(rows, columns, dtype=dtype), sb(rows, 32, dtype=dtype)
    return sound("Matmult", [moving, stationary], [psum(32, columns)], arch=arch, engine="PE", **more)


def transpose(arch: str = "gen3") -> Module:
    operands = [sb(64, 64), sb(64, 64)]
    return sound("Matmult", operands, [psum(64, 64)], arch=arch, engine="PE", is_transpose=True)


def tiled(arch: str = "gen3", row: int = 0, column: int = 0, size: tuple[int, int] = (64, 64)) -> Module:
    return product(arch, tile_position=[row, column], tile_size=list(size))


def sparse() -> Module:
    moving = sb(64, 256, ap=((256, 64), (64, 4), (1, 64)))
    return sound("MatmultSparse", [moving, sb(64, 32)], [psum(32, 256)], engine="PE", compress_ratio=4)


def larger(name: str, count: int) -> Any:
    """Make partitions of a tensor longer, and place it where there is room."""

    def change(d: Module) -> None:
        held, size = d.place_of(name), SIZES[d.set_of(name)["dtype"]]
        held["dims"][1] = count * size
        if held["type"] == "SB":
            held["addr"] = 96 * 1024 + 20 * 1024 * [a["name"] for a in d.main["allocations"]].index(f"{name}_set")
        for row in d.rows:
            for o in (*row["ins"], *row["outs"]):
                if o.get("memref") == name:
                    o["ap"] = [[count, o["ap"][0][1]], [1, count]]

    return change


def moved(name: str, base: int) -> Any:
    return location(name, base=base)


def across(d: Module) -> None:
    """Let the output end in the next bank."""
    d.x["outs"][0].update(ap=[[1024, 32], [1, 256]], offset=384)
    d.rows[-1]["ins"][0].update(ap=[[1024, 32], [1, 1024]])


def elsewhere(d: Module, memory: str) -> None:
    """Write to another memory."""
    held = d.place_of("out0")
    held.pop("bank")
    held.update(type=memory, addr=128 * 1024, allocated=memory == "SB")


MATMULT = [
    Case("BIR031", transpose, retyped("ins", 0, "float32r")),
    Case("BIR032", transpose, retyped("ins", 1, "float32r")),
    Case("BIR034", product, retyped("ins", 1, "bfloat16")),
    Case("BIR035", partial(transpose, "sunda"), retyped("ins", 1, "float32r")),
    Case("BIR039", product, larger("in0", 600)),
    Case("BIR040", product, larger("in1", 200)),
    Case("BIR041", product, larger("out0", 513)),
    Case("BIR110", product, both(location("out0", dims=[32, 4096]), lambda d: across(d))),
    Case("BIR050", tiled, keys(tile_size=[-1, -1])),
    Case("IBIR302", partial(tiled, row=0), keys(tile_position=[16, 0])),
    Case("IBIR303", tiled, keys(tile_position=[0, 16])),
    Case("IBIR304", tiled, keys(tile_size=[96, 64])),
    Case("IBIR305", tiled, keys(tile_size=[64, 48])),
    Case("BIR051", partial(tiled, "sunda"), keys(tile_position=[0, 96], tile_size=[64, 32])),
    Case("BIR057", partial(product, "sunda"), moved("out0", 96)),
    Case("BIR058", partial(product, "sunda", rows=32), keys(tile_position=[0, 0], tile_size=[32, 32])),
    Case("BIR052", tiled, both(moved("in0", 64), moved("in1", 64))),
    Case("BIR054", tiled, keys(tile_size=[32, 64])),
    Case("BIR412", product, lambda d: elsewhere(d, "SB")),
    Case("SIM069", partial(product, accumulation_flag=2), lambda d: elsewhere(d, "SB")),
    Case("SIM070", partial(product, accumulation_flag=2), lambda d: elsewhere(d, "DRAM")),
    Case("BIR150", transpose, instead("outs", 0, reg())),
    Case("BIR151", transpose, moved("out0", 64)),
    Case("BIR028", sparse, keys(compress_ratio=5)),
    Case("BIR029", sparse, keys(compress_ratio=2)),
]  # fmt: skip


def scaled(arch: str = "core_v4") -> Module:
    """64 partitions, 16 outputs, 32 columns: elements packed by four, a scale for each of them."""
    dtype, scale = "float8_e4m3fn_x4", "float8_e8m0fnu"
    ins = [sb(64, 32, dtype=dtype), sb(64, 16, dtype=dtype), sb(64, 32, dtype=scale), sb(64, 16, dtype=scale)]
    return sound("MatmultMx", ins, [psum(16, 32)], arch=arch, engine="PE")


def lanes(name: str, count: int) -> Any:
    """Let the instruction access fewer partitions of a tensor."""

    def change(d: Module) -> None:
        for o in (*d.x["ins"], *d.x["outs"]):
            if o.get("memref") == name:
                o["ap"][0][1] = count

    return change


def each(name: str, count: int) -> Any:
    """Let the instruction access fewer elements in each partition of a tensor."""

    def change(d: Module) -> None:
        for o in (*d.x["ins"], *d.x["outs"]):
            if o.get("memref") == name:
                o["ap"][-1][1] = count

    return change


def quantised(arch: str = "core_v4") -> Module:
    ins, dtype = [sb(64, 128, dtype="bfloat16")], "float8_e4m3fn_x4"
    return sound("QuantizeMx", ins, [sb(64, 32, dtype=dtype), sb(64, 32, dtype="uint8")], arch=arch, engine="DVE")


MICROSCALING = [
    Case("BIR530", scaled, lambda d: d.doc.update(arch="gen3")),
    Case("BIR157", scaled, keys(replication_num_rows=2)),
    Case("BIR167", scaled, moved("in2", 64)),
    Case("BIR168", scaled, moved("in3", 64)),
    Case("BIR169", scaled, both(lanes("in2", 32), lanes("in0", 32), lanes("in1", 32), lanes("in3", 32),
                                operand("ins", 2, offset=2 * 32))),
    Case("BIR185", scaled, both(*(lanes(f"in{k}", 32) for k in range(4)), operand("ins", 2, offset=16 * 32))),
    Case("BIR186", scaled, both(*(lanes(f"in{k}", 32) for k in range(4)), operand("ins", 3, offset=16 * 16))),
    Case("BIR183", scaled, each("in2", 16)),
    Case("BIR184", scaled, each("in3", 8)),
    Case("BIR187", scaled, both(larger("in0", 4128), larger("in2", 4128))),
    Case("BIR188", scaled, both(larger("in1", 130), larger("in3", 130))),
    Case("BIR189", scaled, both(*(lanes(f"in{k}", 16) for k in range(4)))),
    Case("BIR190", scaled, both(lanes("in1", 32), lanes("in3", 32))),
    Case("BIR191", scaled, lanes("out0", 8)),
    Case("BIR192", scaled, each("out0", 16)),
    Case("BIR193", scaled, lanes("in2", 32)),
    Case("BIR194", scaled, lanes("in3", 32)),
    Case("BIR195", scaled, keys(tile_position=[0, 0], tile_size=[128, 128])),
    Case("BIR196", scaled, keys(tile_position=[0, 0], tile_size=[64, 64])),
    Case("BIR259", scaled, both(each("in1", 15), each("in3", 15), lanes("out0", 15))),
    Case("BIR164", quantised, both(operand("ins", 0, ap=[[128, 64], [2, 64]]), each("out0", 16), each("out1", 16))),
    Case("BIR165", quantised, operand("ins", 0, ap=[[128, 64], [5, 16], [1, 8]])),
    Case("BIR166", quantised, each("out0", 16)),
    Case("BIR219", quantised, both(lanes("in0", 32), lanes("out0", 32), lanes("out1", 32),
                                   operand("outs", 1, offset=16 * 32))),
    Case("BIR220", quantised, lanes("out1", 32)),
    Case("BIR225", quantised, each("out1", 16)),
    Case("IBIR286", partial(sound, "TensorCopy", [sb(8, 8, dtype="uint32")], [sb(8, 8, dtype="uint32")]),
         both(keys(opcode="TensorScalar", op0="add", const0=1.0, reverse0=False, op1="bypass", const1=0.0,
                   reverse1=False), retyped("ins", 0, "float8_e4m3fn_x4"))),
]  # fmt: skip

CASES = [*MATMULT, *MICROSCALING]


@pytest.fixture(scope="module")
def found() -> Broken:
    return broken(CASES)


@pytest.mark.parametrize("code", [case.code for case in CASES])
def test_a_rule_is_broken_by_one_change(code: str, found: Broken) -> None:
    assert found[code] == (set(), {code})
