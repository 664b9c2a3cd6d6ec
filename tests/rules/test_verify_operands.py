"""The verifier's rules about operands of single opcodes: each is broken by one change of a sound module."""

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
    imm,
    instead,
    keys,
    operand,
    reg,
    replaced,
    retyped,
    sb,
    sound,
    without,
)

T = partial(sb, 128, 64)


def activation(arch: str = "gen3", **more: Any) -> Module:
    ins = [T(), imm(1.0), sb(128, 1)]
    base: Json = {"func": "Exp", "scale": 1.0, "alpha": 0.0, "acc": "Idle"}
    return sound("Activation", ins, [T()], arch=arch, engine="Activation", **{**base, **more})


def second_form() -> Module:
    ins = [T(), sb(128, 1), sb(128, 1), sb(128, 1)]
    return sound("Activation", ins, [T()], arch="core_v4", engine="Activation", func="Relu", scale=1.0, alpha=0.0,
                 acc="Idle", is_activate2=True, op0="mult", op1="add")  # fmt: skip


ACTIVATION = [
    Case("BIR605", partial(activation, "sunda"), instead("ins", 2, imm(0.0))),
    Case("IBVF032", partial(activation, func="Copy"), retyped("ins", 2, "bfloat16")),
    Case("IBVF033", activation, retyped("ins", 2, "bfloat16")),
    Case("IBVF036", activation, operand("ins", 2, ap=[[1, 64], [1, 1]])),
    Case("IBVF037", activation, operand("ins", 2, dynamic_ap_info={"aff_expr": [], "c": 0})),
    Case("BIR221", partial(activation, "core_v4", func="Copy"), retyped("ins", 0, "float8_e4m3fn_x4")),
    Case("IBIR238", second_form, lambda d: d.doc.update(arch="gen3")),
    Case("IBIR239", second_form, retyped("ins", 3, "bfloat16")),
    Case("IBIR240", second_form, keys(op1="mult")),
    Case("IBIR241", second_form, keys(acc="LoadAccumulate")),
    Case("IBIR242", second_form, lambda d: shifted(d, "in3", 64)),
]  # fmt: skip


def shifted(d: Module, name: str, base: int) -> None:
    """Place a location at another first partition, where half of it fits."""
    d.place_of(name).update(base=base)
    d.place_of(name)["dims"][0] = d.set_of(name)["tensor_shape"][0] = 64
    for row in d.rows:
        for o in (*row["ins"], *row["outs"]):
            if o.get("memref") == name:
                o["ap"][0][1] = 64


def tensor_tensor(engine: str = "DVE", dtype: str = "float32", **more: Any) -> Module:
    return sound("TensorTensor", [T(dtype=dtype), T(dtype=dtype)], [T(dtype=dtype)], engine=engine, op="add", **more)


def integers_in_psum(d: Module) -> None:
    d.place_of("in0").update(type="PSUM", bank=0, addr=0)


def scalar_pointer(**flags: Any) -> Module:
    return sound("TensorScalarPtr", [T(), sb(128, 1), T()], [T()], engine="DVE", op0="mult", op1="add",
                 reverse0=False, reverse1=False, **flags)  # fmt: skip


FOUR = [[64, 128], [16, 2], [4, 4], [1, 4]]


def affine_select(**more: Any) -> Module:
    return sound("TensorScalarAffineSelect", [T()], [T()], base=0, pattern=[[1, 64]], compare_op="is_ge",
                 fill_value=0.0, **more)  # fmt: skip


ELEMENTWISE = [
    Case("BIR253", scalar_pointer, keys(acc="Accumulate")),
    Case("BIR254", tensor_tensor, keys(acc="Accumulate")),
    Case("BIR534", tensor_tensor, keys(acc="Zero")),
    Case("EBIR006", partial(tensor_tensor, "Pool", "int32"), integers_in_psum),
    Case("BIR133", partial(scalar_pointer, is_scalar_tensor_tensor=True), operand("ins", 0, ap=FOUR)),
    Case("BIR134", partial(scalar_pointer, is_scalar_tensor_tensor=True), operand("outs", 0, ap=FOUR)),
    Case("BIR226", partial(sound, "BNStatsAggregate", [sb(128, 6)], [sb(128, 2)]),
         operand("outs", 0, ap=[[2, 128], [1, 1]])),
    Case("BIR401", partial(sound, "Memset", [], [T()], arch="sunda", engine="DVE", mode="Random", constant=0),
         keys(engine="Pool")),
    Case("BIR402", partial(sound, "Memset", [], [T()], engine="Pool", mode="Random", constant=0),
         keys(engine="Activation")),
    Case("BIR403", partial(sound, "Rand", [sb(128, 1, dtype="uint32")], [T()], random_algorithm="LFSR",
                           rand_num_steps=1, distribution="Raw", params=[0.0]),
         retyped("ins", 0, "uint16")),
    Case("BIR481", partial(sound, "RandSetState", [sb(128, 6, dtype="uint32")], [], engine="Pool"),
         operand("ins", 0, ap=[[6, 128], [1, 5]])),
    Case("BIR482", partial(sound, "RandSetState", [sb(128, 24, dtype="uint32")], [], engine="DVE"),
         operand("ins", 0, ap=[[24, 128], [1, 6]])),
    Case("SIM040", affine_select, keys(fill_value="nan")),
    Case("SIM041", affine_select, again("ins")),
    Case("BIR131", partial(sound, "CustomOp", [T()], [T()], arch="sunda"), lambda d: d.doc.update(arch="gen3")),
]  # fmt: skip


def cache(mode: str = "Cumulative", arch: str = "gen3", **more: Any) -> Module:
    base: Json = {
        "op0": "mult",
        "reverse0": False,
        "op1": "add",
        "reverse1": False,
        "acc": "ZeroAccumulate",
        "mode": mode,
    }
    if mode == "TensorScan":
        base["op0"] = "bypass"
    second = imm(0.0) if mode == "TensorScan" else imm(1.0)
    return sound("TensorScalarCache", [T(), second], [T(), sb(128, 1)], arch=arch, engine="DVE", **{**base, **more})


def loading(d: Module) -> None:
    d.x["ins"].append(imm(1.0))
    d.x["acc"] = "LoadAccumulate"


LIST = {"kind": "symbolic_imm_value", "dtype": "float32", "value_list": [{"value": 0}, {"value": 1}], "expr": 0}

CACHE = [
    Case("BVF001", cache, without("ins", 1)),
    Case("BVF002", partial(cache, "TensorScan"), instead("ins", 0, imm(1.0))),
    Case("BVF003", cache, again("outs", 1)),
    Case("BVF004", cache, instead("outs", 0, reg("float32"))),
    Case("BVF005", cache, replaced("ins", 1, imm(1, "int32"))),
    Case("BVF006", cache, both(loading, replaced("ins", 1, imm(1.0)), lambda d: d.x["ins"][2].update(dtype="int32"))),
    Case("BVF007", cache, lambda d: d.x["ins"].append(imm(1.0))),
    Case("BVF008", cache, keys(acc="LoadAccumulate")),
    Case("BVF009", cache, instead("outs", 1, reg("float32"))),
    Case("BVF010", cache, lambda d: widened(d, "out1", 2)),
    Case("BVF011", cache, operand("outs", 1, ap=[[1, 64], [1, 1]])),
    Case("BVF012", cache, retyped("outs", 1, "int32")),
    Case("BVF013", cache, retyped("ins", 0, "float32r")),
    Case("BVF014", cache, retyped("outs", 0, "float32r")),
    Case("BVF015", cache, keys(op0="bitwise_and")),
    Case("BVF016", cache, keys(op1="divide")),
    Case("BVF017", partial(cache, "TensorScan"), keys(op0="mult")),
    Case("BVF018", partial(cache, "TensorScan"), keys(reverse0=True)),
    Case("BVF019", partial(cache, arch="sunda"), keys(reverse0=True)),
    Case("BVF020", partial(cache, arch="sunda"), keys(reverse1=True)),
    Case("BVF021", cache, keys(engine="Activation")),
    Case("BVF022", cache, keys(acc="Idle")),
    Case("BVF023", partial(cache, "TensorScan"), lambda d: d.x["ins"].__setitem__(1, dict(d.x["ins"][0]))),
    Case("BVF024", partial(cache, "TensorScan"), replaced("ins", 1, imm(1.0))),
    Case("BVF025", cache, keys(op1="rsqrt")),
    Case("BVF026", cache, replaced("ins", 1, LIST)),
]  # fmt: skip


def widened(d: Module, name: str, elements: int) -> None:
    d.place_of(name)["dims"][1] = 4 * elements
    for row in d.rows:
        for o in (*row["ins"], *row["outs"]):
            if o.get("memref") == name:
                o["ap"] = [[elements, 128], [1, elements]]


P = partial(sb, 128, 64, dtype="uint8")


def predicated(**more: Any) -> Module:
    base: Json = {"reduce_op": "bypass", "accumulator_cmd": "Idle", **more}
    return sound("CopyPredicated", [P(), T()], [T()], engine="DVE", **base)


def reducing() -> Module:
    return sound("CopyPredicated", [P(), T(), imm(0.0)], [T()], engine="DVE", reduce_op="max",
                 accumulator_cmd="ZeroAccumulate")  # fmt: skip


def scalar() -> Module:
    return sound("CopyPredicated", [P(), imm(1.0)], [T()], engine="DVE")


R = partial(sb, 128, 8, 8)


def ranged(**more: Any) -> Module:
    base: Json = {
        "compare_op0": "is_ge",
        "compare_op1": "is_lt",
        "reduce_op": "max",
        "reduce_cmd": "ZeroAccumulate",
        **more,
    }
    return sound("RangeSelect", [R(), sb(128, 1), sb(128, 1)], [R()], **base)


SELECTIONS = [
    Case("BIR207", predicated, keys(reduce_op="add")),
    Case("BIR208", reducing, keys(accumulator_cmd="Accumulate")),
    Case("BIR209", predicated, keys(accumulator_cmd="AddAccumulate")),
    Case("BIR210", reducing, without("ins", 2)),
    Case("BIR211", reducing, instead("ins", 1, imm(1.0))),
    Case("BIR212", reducing, lambda d: d.x["ins"].__setitem__(2, dict(d.x["ins"][1]))),
    Case("BIR213", reducing, retyped("ins", 1, "int32")),
    Case("BIR214", scalar, operand("ins", 0, ap=[[64, 128], [1, 32]])),
    Case("BIR215", predicated, operand("ins", 1, ap=[[64, 128], [1, 32]])),
    Case("BIR216", reducing, replaced("ins", 2, imm(1, "int32"))),
    Case("BIR217", scalar, replaced("ins", 1, imm(1, "bfloat16"))),
    Case("BIR218", predicated, keys(reverse_pred=True)),
    Case("EBIR024", predicated, retyped("ins", 1, "float32r")),
    Case("EBIR025", predicated, retyped("ins", 0, "float8e4")),
    Case("BIR255", ranged, keys(reduce_cmd="Accumulate")),
    Case("SIM095", ranged, retyped("ins", 0, "bfloat16")),
    Case("SIM096", ranged, operand("ins", 0, ap=[[64, 128], [8, 8], [1, 4]])),
    Case("SIM097", ranged, operand("ins", 1, ap=[[1, 64], [1, 1]])),
    Case("SIM098", ranged, operand("ins", 0, ap=[[64, 128], [1, 64]])),
    Case("SIM099", ranged, keys(compare_op1="not_equal")),
    Case("SIM100", ranged, keys(reduce_op="add")),
]  # fmt: skip


def gather() -> Module:
    return sound("Gather", [T(), sb(128, 16, dtype="uint32")], [sb(128, 16)])


FIVE = [[64, 128], [32, 2], [16, 2], [8, 2], [1, 8]]
SHORT = [[16, 128], [8, 2], [4, 2], [2, 2], [1, 2]]


def bounds() -> Module:
    return sound("GetSequenceBounds", [sb(1, 1, 16, dtype="int32")], [sb(1, 16, 2, dtype="int32")], engine="Pool")


def two_rows(d: Module, name: str) -> None:
    d.place_of(name)["dims"][0] = 2
    for row in d.rows:
        for o in (*row["ins"], *row["outs"]):
            if o.get("memref") == name:
                o["ap"][0][1] = 2


def nonzero() -> Module:
    return sound("NonzeroWithCount", [T(dtype="int32")], [T(dtype="int32")])


GATHERS = [
    Case("BIR099", gather, operand("ins", 0, ap=FIVE)),
    Case("BIR100", gather, operand("ins", 1, ap=SHORT)),
    Case("BIR101", gather, operand("outs", 0, ap=SHORT)),
    Case("BIR102", gather, retyped("outs", 0, "bfloat16")),
    Case("BIR103", gather, operand("ins", 1, ap=[[16, 128], [1, 8]])),
    Case("BIR104", gather, operand("ins", 1, ap=[[16, 64], [1, 16]])),
    Case("BIR105", gather, operand("outs", 0, ap=[[16, 64], [1, 16]])),
    Case("BIR106", gather, retyped("ins", 1, "int32")),
    Case("BIR122", bounds, keys(engine="DVE")),
    Case("BIR123", bounds, operand("ins", 0, ap=[[16, 1], [1, 16]])),
    Case("BIR124", bounds, operand("outs", 0, ap=[[32, 1], [4, 8], [2, 2], [1, 2]])),
    Case("BIR125", bounds, lambda d: two_rows(d, "in0")),
    Case("BIR126", bounds, lambda d: two_rows(d, "out0")),
    Case("BIR127", bounds, operand("outs", 0, ap=[[32, 1], [1, 16], [1, 1]])),
    Case("BIR128", bounds, retyped("ins", 0, "uint32")),
    Case("BIR129", bounds, retyped("outs", 0, "uint32")),
    Case("BIR130", bounds, operand("outs", 0, ap=[[32, 1], [2, 8], [1, 2]])),
    Case("SIM205", nonzero, retyped("outs", 0, "uint32")),
    Case("SIM206", nonzero, retyped("ins", 0, "uint32")),
]  # fmt: skip


def printed(d: Module) -> None:
    d.place_of("in0").update(type="PSUM", bank=0, addr=0)


MISCELLANEOUS = [
    Case("EDP001", partial(sound, "DevicePrint", [T()], []), again("ins")),
    Case("EDP002", partial(sound, "DevicePrint", [T()], []),
         instead("ins", 0, imm(1.0))),
    Case("EDP003", partial(sound, "DevicePrint", [T()], []), printed),
]  # fmt: skip

CASES = [*ACTIVATION, *ELEMENTWISE, *CACHE, *SELECTIONS, *GATHERS, *MISCELLANEOUS]


@pytest.fixture(scope="module")
def found() -> Broken:
    return broken(CASES)


@pytest.mark.parametrize("code", [case.code for case in CASES])
def test_a_rule_is_broken_by_one_change(code: str, found: Broken) -> None:
    assert found[code] == (set(), {code})
