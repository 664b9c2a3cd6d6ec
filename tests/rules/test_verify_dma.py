"""The verifier's rules about DMA, indices and collectives: each is broken by one change of a sound module."""

from functools import partial
from typing import Any

import pytest

from tests.single_pass import Json
from tests.verified import (
    Broken,
    Case,
    Module,
    again,
    both,
    broken,
    by_index,
    dram,
    keys,
    location,
    operand,
    psum,
    retyped,
    sb,
    sound,
    without,
)

T = partial(sb, 128, 64)


def copy(**more: Any) -> Module:
    return sound("DMACopy", [dram(128, 64)], [T()], engine="SP", **more)


def combining(op: str = "add", dtype: str = "float32") -> Module:
    source = dram(128, 64, dtype=dtype)
    return sound("DMACopy", [source, source], [T(dtype=dtype)], engine="SP", mode="CCE", cce_op=op)


def dynamic(d: Module) -> None:
    d.x["ins"][0]["dynamic_ap_info"] = {"aff_expr": [], "c": 0}


def rows_by_index(memory: str = "DRAM", **more: Any) -> Module:
    """A copy of rows that indices choose: they are the second of `ins` and `indirection_ins` together."""
    make = dram if memory == "DRAM" else sb
    source = make(128, 64, more=by_index(1, 128))
    base: Json = {"dge_type": "SWDGE", "engine": "Pool", "mode": "Copy", **more}
    return sound("DMACopy", [source], [T()], inner=[sb(128, 1, dtype="uint32")], **base)


def exchange() -> Module:
    return sound("GPSIMDSB2SB", [T()], [T()], engine="Pool")


def in_psum(name: str) -> Any:
    return location(name, type="PSUM", bank=0, addr=0)


def in_dram(name: str) -> Any:
    def change(d: Module) -> None:
        d.place_of(name).update(type="DRAM", allocated=False)

    return change


def in_sb(name: str) -> Any:
    """Move a parameter in DRAM to a tensor in SB that is written before."""

    def change(d: Module) -> None:
        d.set_of(name)["kind"] = "Internal"
        d.place_of(name).update(type="SB", allocated=True, addr=128 * 1024)
        fill = {"kind": "physical_ap", "memref": name, "offset": 0, "dtype": "float32", "ap": [[64, 128], [1, 64]]}
        row = {"name": "fill", "opcode": "Memset", "engine": "DVE", "mode": "Const", "constant": 0, "ins": []}
        if name.startswith("in"):
            d.rows.insert(0, {**row, "outs": [fill]})
        else:
            d.rows.append({"name": "sink2", "opcode": "Sink", "engine": "DVE", "ins": [fill], "outs": []})

    return change


def narrow(d: Module) -> None:
    for o in (d.x["ins"][0], d.x["outs"][0]):
        o["ap"][0][1] = 8


COPIES = [
    Case("EBIR030", copy, operand("ins", 0, ap=[[64, 64], [32, 2], [1, 32]])),
    Case("EBIR031", copy, operand("ins", 0, ap=[[64, 128], [1, 32]])),
    Case("BIR059", combining, keys(cce_op="mult")),
    Case("BIR077", copy, keys(mode="Replicate", cce_op="add")),
    Case("BIR234", partial(copy, mode="Copy"), keys(cce_op="add")),
    Case("SIM005", combining, keys(constants=[1.0])),
    Case("BIR063", partial(sound, "DMADescriptorCCE", [dram(128, 64)], [T()], op="add"), keys(op="mult")),
    Case("BIR064", partial(sound, "GenericIndirectSave", [T(), sb(128, 1, dtype="int32")], [dram(512, 64)], op="add",
                           indirect_dims=["W"]), keys(op="mult")),
    Case("BIR065", partial(sound, "IndirectSaveAccumulate", [T()], [dram(512, 64)],
                           inner=[sb(128, 1, dtype="int32")], op="add", num_indices=128, entry_step_elements=64),
         keys(op="mult")),
    Case("EDGE001", partial(copy, dge_type="HWDGE"), keys(engine="Pool")),
    Case("DMA140", partial(copy, arch="sunda", dge_type="SWDGE"), keys(dge_type="HWDGE")),
    Case("SDD010", partial(copy, dge_type="None"), dynamic),
    Case("SDD001", partial(copy, dge_type="SWDGE"), both(dynamic, again("outs"))),
    Case("IBIR285", partial(copy, mode="Replicate"), retyped("outs", 0, "float8_e4m3fn_x4")),
    Case("IBIR284", combining, both(retyped("ins", 0, "float8_e4m3fn_x4"), retyped("ins", 1, "float8_e4m3fn_x4"),
                                    retyped("outs", 0, "float8_e4m3fn_x4"))),
    Case("BIR230", rows_by_index, in_sb("in0")),
    Case("BIR231", rows_by_index, in_dram("out0")),
    Case("BIR232", rows_by_index, in_dram("ix0")),
    Case("BIR451", exchange, lambda d: d.doc.update(arch="sunda")),
    Case("BIR452", exchange, retyped("outs", 0, "int32")),
    Case("BIR453", exchange, operand("outs", 0, ap=[[64, 128], [1, 32]])),
    Case("BIR454", exchange, both(operand("ins", 0, ap=[[64, 128], [16, 4], [8, 2], [4, 2], [1, 4]]))),
    Case("BIR455", exchange, in_psum("in0")),
    Case("BIR456", exchange, dynamic),
    Case("BIR457", exchange, narrow),
    Case("BIR458", exchange, keys(engine="DVE")),
    Case("BIR459", exchange, again("ins")),
    Case("BIR460", partial(sound, "GPSIMDSB2SB", [sb(128, 256)], [sb(128, 256)], engine="Pool"),
         lambda d: repeat(d)),
]  # fmt: skip


def repeat(d: Module) -> None:
    for o in (d.x["ins"][0], d.x["outs"][0]):
        o["ap"] = [[256, 128], [0, 2], [1, 256]]


B = partial(sb, 128, 64, dtype="bfloat16")


def transposed(**more: Any) -> Module:
    source = dram(64, 128, dtype="bfloat16")
    base: Json = {"mode": "Transpose", "transpose_op": "XZYW", "dge_type": "SWDGE", "engine": "Pool", **more}
    return sound("DMACopy", [source], [B()], **base)


def transposed_rows(arch: str = "gen3", **more: Any) -> Module:
    source = dram(64, 128, dtype="bfloat16", more=by_index(1, 64))
    base: Json = {"mode": "Transpose", "transpose_op": "XZYW", "dge_type": "SWDGE", "engine": "Pool", **more}
    return sound("DMACopy", [source], [B()], inner=[sb(64, 1, dtype="uint32")], arch=arch, **base)


def off_by(d: Module) -> None:
    d.place_of("out0")["addr"] += 16


TRANSPOSES = [
    Case("BIR181", transposed, keys(transpose_op="WZXY")),
    Case("BIR511", transposed, retyped("outs", 0, "float16")),
    Case("IBIR283", transposed, both(retyped("ins", 0, "float4_e2m1fn_x4"), retyped("outs", 0, "float4_e2m1fn_x4"))),
    Case("BIR172", transposed, in_dram("out0")),
    Case("BIR173", transposed, lambda d: from_psum(d)),
    Case("BIR174", transposed, both(retyped("ins", 0, "uint8"), retyped("outs", 0, "uint8"))),
    Case("BIR177", transposed, operand("ins", 0, ap=[[128, 64], [2, 64]])),
    Case("BIR178", transposed, operand("outs", 0, ap=[[64, 128], [2, 32]])),
    Case("BIR180", transposed, off_by),
    Case("BIR155", transposed, operand("outs", 0, ap=[[64, 128], [8, 8], [1, 8]])),
    Case("BIR500", partial(transposed_rows, engine="Unassigned"), keys(dge_type="HWDGE")),
    Case("BIR501", transposed_rows, keys(engine="SP")),
    Case("BIR504", transposed_rows, retyped("indirection_ins", 0, "int32")),
    Case("BIR505", transposed_rows, in_dram("ix0")),
    Case("BIR506", transposed_rows, operand("indirection_ins", 0, ap=[[1, 24], [1, 1]])),
    Case("BIR507", transposed_rows, operand("indirection_ins", 0, ap=[[1, 32], [0, 2]])),
    Case("BIR510", transposed_rows, keys(transpose_op="XYZW")),
    Case("BIR518", partial(transposed_rows, dge_type="Unassigned"), lambda d: (again("outs")(d), by_software(d))),
    Case("BIR519", partial(transposed_rows, "gen3"), lambda d: d.doc.update(arch="sunda")),
]  # fmt: skip


def by_software(d: Module) -> None:
    d.x["dge_type"] = "SWDGE"


def from_psum(d: Module) -> None:
    d.set_of("in0")["kind"] = "Internal"
    d.place_of("in0").update(type="PSUM", allocated=True, addr=0, bank=0)
    access = {"kind": "physical_ap", "memref": "in0", "offset": 0, "dtype": "bfloat16", "ap": [[128, 64], [1, 128]]}
    d.rows.insert(0, {"name": "fill", "opcode": "Memset", "engine": "DVE", "mode": "Const", "constant": 0, "ins": [],
                      "outs": [access]})  # fmt: skip


G = by_index(2, 128)


def gathering(opcode: str, dtype: str = "bfloat16", **more: Any) -> Module:
    """An instruction of an engine, on core_v4, whose first input is rows that indices choose."""
    ins = [sb(128, 64, dtype=dtype, more=G), sb(128, 64, dtype=dtype)]
    out = psum(64, 64) if opcode == "Matmult" else sb(128, 64, dtype=dtype)
    return sound(opcode, ins, [out], inner=[sb(128, 1, dtype="uint32")], arch="core_v4", **more)


def pointer(**flags: Any) -> Module:
    return gathering("TensorScalarPtr", op0="mult", op1="add", reverse0=False, reverse1=False, **flags)


def predicated() -> Module:
    data, more = sb(128, 64, more=G), {"reduce_op": "bypass", "accumulator_cmd": "Idle"}
    return sound("CopyPredicated", [sb(128, 64, dtype="uint8", more=G), sb(128, 1)], [data], arch="core_v4",
                 inner=[sb(128, 1, dtype="uint32")], **more)  # fmt: skip


def generic() -> Module:
    ins = [dram(512, 64), sb(128, 1, dtype="int32")]
    return sound("GenericIndirectLoad", ins, [T()], indirect_dims=["W"])


def scattering() -> Module:
    return sound("Activation", [T()], [sb(128, 64, more=by_index(1, 128))], inner=[sb(128, 1, dtype="uint32")],
                 arch="core_v4", func="Exp", scale=1.0, alpha=0.0, acc="Idle")  # fmt: skip


def reduced(d: Module) -> None:
    d.x["reduce_op"] = "max"
    d.x["ins"].append({"kind": "imm_value", "dtype": "float32", "value": 0.0})
    d.x["ins"][1] = {**d.x["outs"][0]}
    d.x["ins"][1].pop("dynamic_ap_info")


INDICES = [
    Case("BIR701", partial(gathering, "TensorTensor", op="add"), lambda d: d.doc.update(arch="gen3")),
    Case("BIR705", partial(gathering, "Matmult"), both(retyped("ins", 0, "uint16"))),
    Case("BIR706", scattering, in_psum("out0")),
    Case("BIR709", partial(gathering, "TensorReduce", op="add", axis="X"), keys(axis="XYZWC")),
    Case("BIR710", predicated, lambda d: reducing(d)),
    Case("BIR711", predicated, lambda d: whole_source(d)),
    Case("BIR712", pointer, keys(is_tensor_scalar_addr=True)),
    Case("BIR713", pointer, keys(is_scalar_tensor_tensor=True)),
    Case("BIR714", pointer, keys(is_tensor_tensor_scan=True)),
    Case("BIR715", lambda: square_product(), keys(is_transpose=True)),
    Case("BIR716", partial(gathering, "Matmult", tile_position=[0, 0], tile_size=[128, 128]),
         lambda d: upper_rows(d)),
    Case("BIR717", partial(gathering, "Matmult", tile_position=[0, 0], tile_size=[128, 128]),
         keys(tile_size=[128, 64])),
    Case("SIM060", partial(sound, "IndirectLoad", [sb(128, 64, more=by_index(1, 128))], [T()],
                           inner=[sb(128, 1, dtype="int32")]), in_psum("in0")),
    Case("SIM064", partial(sound, "IndirectSave", [T()], [sb(128, 64, more=by_index(1, 128))],
                           inner=[sb(128, 1, dtype="int32")]), in_psum("out0")),
    Case("LGI-1", generic, keys(indirect_dims=["W", "Z"])),
    Case("LGI-3", generic, operand("ins", 1, ap=[[1, 64], [0, 2]])),
    Case("BIR298", rows_by_index, lambda d: d.x["ins"][0].update(by_index(7, 128))),
    Case("BIR030", rows_by_index, lambda d: d.x["ins"][0]["dynamic_ap_info"].update(indirect_dim_max_index=0)),
]  # fmt: skip


def square_product() -> Module:
    return sound("Matmult", [sb(128, 64, dtype="bfloat16", more=G), sb(128, 64, dtype="bfloat16")],
                 [psum(64, 64, dtype="bfloat16")], inner=[sb(128, 1, dtype="uint32")], arch="core_v4")  # fmt: skip


def upper_rows(d: Module) -> None:
    d.x["tile_size"] = [64, 128]
    for o in (*d.x["ins"], *d.x["indirection_ins"]):
        o["ap"][0][1] = 64


def reducing(d: Module) -> None:
    d.x["reduce_op"] = "max"
    d.x["accumulator_cmd"] = "ZeroAccumulate"
    d.x["ins"].append({"kind": "imm_value", "dtype": "float32", "value": 0.0})


def whole_source(d: Module) -> None:
    d.place_of("in1").update(dims=[128, 256], addr=96 * 1024)
    for row in d.rows:
        for o in (*row["ins"], *row["outs"]):
            if o.get("memref") == "in1":
                o["ap"] = [[64, 128], [1, 64]]


def collective(kind: str = "AllReduce", **more: Any) -> Module:
    base: Json = {
        "op": "add" if kind in ("AllReduce", "ReduceScatter") else "bypass",
        "replica_groups": [[0, 1]],
        **more,
    }
    return sound("CollectiveCompute", [dram(128, 64)], [dram(128, 64)], kind=kind, **base)


def on_chip(kind: str, columns: int = 64, out: int = 64, **more: Any) -> Module:
    base: Json = {
        "op": "add" if kind in ("AllReduce", "ReduceScatter") else "bypass",
        "replica_groups": [[0, 1]],
        **more,
    }
    return sound("CollectiveCompute", [sb(128, columns)], [sb(128, out)], kind=kind, **base)


COLLECTIVES = [
    Case("BIR066", collective, keys(op="is_gt")),
    Case("BIR067", partial(collective, "Permute"), keys(op="add")),
    Case("BIR027", collective, retyped("outs", 0, "bfloat16")),
    Case("BIR113", partial(on_chip, "AllReduce"), keys(replica_groups=[])),
    Case("BIR422", partial(on_chip, "Permute"), in_psum("out0")),
    Case("BIR424", partial(on_chip, "AllReduce"), operand("outs", 0, ap=[[64, 128], [1, 32]])),
    Case("BIR425", partial(on_chip, "AllGather", 32, 64), operand("outs", 0, ap=[[64, 128], [1, 32]])),
    Case("BIR426", partial(on_chip, "ReduceScatter", 64, 32), operand("ins", 0, ap=[[64, 128], [1, 32]])),
    Case("BIR427", partial(on_chip, "Permute"), again("outs")),
    Case("BIR428", partial(on_chip, "Permute"), lambda d: d.doc.update(arch="sunda")),
    Case("BIR535", partial(collective, is_local=True), lambda d: d.doc.update(arch="sunda")),
    Case("CCO010", collective, keys(src_target_pairs=[[0, 1]])),
    Case("BIR026", partial(collective, "SendRecvCCE", op="add", recv_from_rank=[0]), keys(recv_from_rank=[0, 1])),
]  # fmt: skip

CASES = [*COPIES, *TRANSPOSES, *INDICES, *COLLECTIVES]
assert callable(without)


@pytest.fixture(scope="module")
def found() -> Broken:
    return broken(CASES)


@pytest.mark.parametrize("code", [case.code for case in CASES])
def test_a_rule_is_broken_by_one_change(code: str, found: Broken) -> None:
    assert found[code] == (set(), {code})
