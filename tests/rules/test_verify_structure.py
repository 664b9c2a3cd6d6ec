"""The verifier's rules about references and structure: each is broken by one change of a sound module."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir.verify import registry
from tests.single_pass import Json, read
from tests.verified import (
    Broken,
    Case,
    Module,
    broken,
    dram,
    imm,
    keys,
    location,
    operand,
    reg,
    retyped,
    sb,
    sound,
)

T = partial(sb, 128, 64)


def added() -> Module:
    """Two tensors added, after an instruction `fill_in0`; it has a register, and queues."""
    made = sound("TensorTensor", [T(), T()], [T()], engine="DVE", op="add")
    made.doc["queues"] = [{"name": "q", "blocks": []}]
    return made


def with_register() -> Module:
    return sound("RegisterMove", [reg()], [reg()])


def in_loop() -> Module:
    """A tile written in a loop, at an address that the axis moves."""
    made = sound("TensorCopy", [T()], [sb(128, 64)])
    access = made.x["outs"][0]
    index = {"kind": "AffExprKind", "c": 0, "terms": [{"idx": {"kind": "AffIVKind", "axis": "i"}, "coeff": 16}]}
    zero = {"kind": "AffExprKind", "c": 0, "terms": []}
    made.x["outs"][0] = {
        "kind": "symbolic_ap", "memsetref": "out0_set", "dtype": access["dtype"], "ap": [[64, 128], [1, 16]],
        "addrs": [zero, index],
    }  # fmt: skip
    loop = {"name": "loop", "opcode": "Loop", "LoopAxis": {"name": "i", "lb": 0, "ub": 4, "stride": 1},
            "blocks": [{"name": "body", "instructions": [made.x]}]}  # fmt: skip
    made.rows[made.rows.index(made.x)] = loop
    return made


def address(made: Module) -> Json:
    return made.x["outs"][0]["addrs"][1]


def queued(opcode: str = "DMACopy") -> Module:
    if opcode == "DMACopy":
        made = sound("DMACopy", [dram(128, 64)], [T()], engine="SP", queue="q")
    else:
        made = sound(opcode, queue="q", instance="i", instance_name="i")
    made.doc["queues"] = [{"name": "q", "blocks": []}]
    return made


def jumping() -> Module:
    made = Module()
    made.add("n", "NoOp")
    made.x = made.add("x", "UnconditionalBranch", target="e")
    made.main["blocks"].append({"name": "e", "instructions": [{"name": "r", "opcode": "Return", "engine": "Unassigned",
                                                               "ins": [], "outs": []}]})  # fmt: skip
    return made


def pointing() -> Module:
    """A tensor in DRAM that may share bytes with another, which points at it."""
    made = sound("TensorCopy", [dram(128, 64)], [T()])
    made.tensor("other", dram(128, 64), "ExternalInput")
    made.place_of("in0")["alias"] = [["other_set", "other", 3]]
    made.place_of("other")["pointer_ref_memloc"] = "in0"
    return made


def binding() -> Module:
    """A call-site that binds a tensor and a register of its kernel."""
    made = sound("NKIKernel", [dram(8, 8)], [], func="k", sb_buf_shape=[0, 0], psum_buf_shape=[0, 0, 0],
                 func_args={"p": "in0", "n": "r"})  # fmt: skip
    made.register()
    place = {"name": "p", "type": "DRAM", "dims": [8, 32], "addr": 0, "tensor_id": 0}
    parameter = {"Skind": "memory_location_set", "name": "p_set", "kind": "ExternalInput", "dtype": "float32",
                 "tensor_shape": [8, 8], "memorylocations": [place]}  # fmt: skip
    noop = {"name": "n", "opcode": "NoOp", "engine": "Unassigned", "ins": [], "outs": []}
    kernel = {"name": "k", "allocations": [parameter, {"Skind": "register", "name": "n"}],
              "blocks": [{"name": "b", "instructions": [noop]}]}  # fmt: skip
    made.doc["nki_functions"] = {"functions": [kernel]}
    return made


def forked(d: Module) -> None:
    d.x.update(opcode="CompareAndBranch", ins=[imm(1, "int32"), imm(2, "int32")], comp_op="IS_LTIMM", on_true="e",
               on_false="gone")  # fmt: skip
    d.x.pop("target")


def rowwise(member: str, **changed: Any) -> Any:
    return lambda d: d.x.__setitem__(member, [{**d.x[member][0], **changed}])


def symbolic(dtype: str) -> Json:
    zero = {"kind": "AffExprKind", "c": 0, "terms": []}
    return {"kind": "symbolic_imm_value", "dtype": dtype, "value_list": [{"value": 1}], "expr": zero}


REFERENCES = [
    Case("BIR036", partial(sound, "TensorCopy", [dram(8, 8)], [T()]),
         lambda d: d.x["ins"].append({**d.x["ins"][0], "memref": "t1_i1"})),
    Case("BIR016", with_register, operand("ins", 0, regref="gone")),
    Case("BIR014", added, keys(dependencies=["gone"])),
    Case("BIR048", added, keys(unroll_dependencies=[["gone", "Flow", [], []]])),
    Case("BIR227", in_loop, lambda d: address(d)["terms"][0]["idx"].update(axis="j")),
    Case("unresolved_block", jumping, forked),
    Case("unresolved_alias", pointing, lambda d: d.place_of("in0")["alias"][0].__setitem__(1, "gone")),
    Case("unresolved_argument", binding, lambda d: d.x["func_args"].update(p="gone")),
    Case("unresolved_callee", partial(sound, "Call", target="f"), keys(target="gone")),
    Case("unresolved_reference", pointing, location("other", pointer_ref_memloc="gone")),
    Case("unresolved_queue", queued, keys(queue="gone")),
    Case("SQI002", partial(queued, "SwitchQueueInstance"), keys(queue="gone")),
    Case("SQI005", partial(queued, "ResetQueueInstance"), keys(queue="gone")),
    Case("BIR091", partial(sound, "Sink", [imm(1.0)]), operand("ins", 0, kind="imm_tensor")),
    Case("BIR024", partial(sound, "Sink", [imm(1.0)]), operand("ins", 0, dtype="float5")),
    Case("BIR015", partial(sound, "BNBackprop", total_elements=4.0), keys(total_elements=None)),
    Case("BIR532", added, keys(op=None)),
    Case("BIR533", partial(sound, "TensorReduce", [T()], [T()], op="add", axis="X"), keys(axis="Q")),
    Case("BIR115", partial(sound, "Sink", [imm(1.0)]), operand("ins", 0, dtype="float8e4")),
    Case("BIR118", partial(sound, "Sink", [symbolic("float32")]), operand("ins", 0, dtype="float32r")),
    Case("BIR120", partial(sound, "Sink", [{"kind": "imm_array", "dtype": "float32", "value_array": [1]}]),
         operand("ins", 0, dtype="float32r")),
    Case("BIR132", in_loop, lambda d: d.x["outs"][0]["addrs"].__setitem__(1, {"kind": "CeilDivKind", "numer": 1,
                                                                             "denom": 2})),
]  # fmt: skip


def aliased(kind: str = "DRAM") -> Module:
    made = Module()
    made.tensor("a", dram(8, 8), "ExternalInput")
    made.tensor("b", dram(8, 8), "ExternalInput")
    made.place_of("a")["alias"] = [["b", 3]]
    made.add("n", "NoOp")
    if kind != "DRAM":
        made.set_of("b")["kind"] = "Internal"
        made.place_of("b").update(type="SB", pinned=True, allocated=True)
    return made


def on_chip_alias(d: Module) -> None:
    d.set_of("b")["kind"] = "Internal"
    d.place_of("b").update(type="SB", pinned=True)


def two_functions() -> Module:
    made = added()
    made.doc["functions"].append({"name": "g", "allocations": [], "blocks": [{"name": "b", "instructions": [
        {"name": "n", "opcode": "NoOp", "engine": "Unassigned", "ins": [], "outs": []}]}]})  # fmt: skip
    return made


def small_floats() -> Module:
    return sound("TensorCopy", [T(dtype="float8e4")], [T(dtype="float8e4")])


def chained() -> Module:
    return sound("TensorTensor", [T(), T()], [T()], engine="DVE", op="add", dependencies=["fill_in0"])


def cyclic(d: Module) -> None:
    d.rows[0]["dependencies"] = [["x", "Ordered"]]


STRUCTURE = [
    Case("BIR001", added, lambda d: d.doc.update(arch="gen9")),
    Case("EBIR021", added, lambda d: d.doc.update(revision="v2")),
    Case("unknown_version", added, lambda d: d.doc.update(version=3)),
    Case("BIR025", added, lambda d: d.doc.update(nki_functions={"functions": [], "more": 1})),
    Case("IBIR280", two_functions, lambda d: d.doc["functions"][1].update(blocks=[])),
    Case("BIR078", partial(sound, "NoOp"), lambda d: d.rows.clear()),
    Case("BIR044", added, lambda d: d.main.update(attributes=["split_BB"])),
    Case("BIR095", two_functions, lambda d: d.main.update(attributes=["stage_unroll_completed"])),
    Case("MLO003", added, keys(optin_passes=32)),
    Case("BIR156", added, lambda d: d.set_of("in0").update(tensor_shape=[65536, 16384])),
    Case("empty_location", partial(sound, "Sink", [dram(8, 8)]), lambda d: emptied(d)),
    Case("MLOC-alias", aliased, on_chip_alias),
    Case("MLOC-packid", added, location("in0", pack_id_hint=2)),
    Case("MLOC-tensorid", added, location("in0", tensor_id=-1)),
    Case("BIR092", partial(sound, "Sink", [dram(8, 8)]),
         location("in0", type="SB", addr=0, allocated=True)),
    Case("EOCP001", small_floats, retyped("outs", 0, "float8_e4m3fn")),
    Case("INST-selfdep", chained, keys(dependencies=["x"])),
    Case("SCH725", chained, cyclic),
    Case("SCH719", chained, lambda d: d.rows[0].update(dependencies=[["sink", "Ordered"]])),
]  # fmt: skip


def emptied(d: Module) -> None:
    """Let a tensor have no bytes, and nobody use it."""
    d.place_of("in0")["dims"] = [128, 0]
    d.rows.clear()
    d.add("n", "NoOp")


def mirrored(d: Module) -> None:
    d.set_of("in0")["allocated"] = False


def smaller(d: Module) -> None:
    d.set_of("in0")["tensor_shape"] = [128, 65]


def bound() -> Module:
    """A call of a kernel that takes one tensor."""
    made = sound("NKIKernel", [dram(8, 8)], [], func="k", func_args={"p": "in0"})
    place = {"name": "p", "type": "DRAM", "dims": [8, 32], "addr": 0, "tensor_id": 0}
    taken = {"name": "p_set", "kind": "ExternalInput", "dtype": "float32", "tensor_shape": [8, 8],
             "memorylocations": [place]}  # fmt: skip
    body = [{"name": "b", "instructions": [{"name": "n", "opcode": "NoOp", "engine": "Unassigned", "ins": [],
                                            "outs": []}]}]  # fmt: skip
    made.doc["nki_functions"] = {"functions": [{"name": "k", "allocations": [taken], "blocks": body}]}
    return made


def one_more_byte(d: Module) -> None:
    d.doc["nki_functions"]["functions"][0]["allocations"][0]["memorylocations"][0]["dims"] = [8, 36]


CONSISTENCY = [
    Case("set_of_location", added, operand("ins", 0, memsetref="in1_set")),
    Case("location_too_small", added, smaller),
    Case("allocated_mirror", added, mirrored),
    Case("tensor_id_range", added, lambda d: d.set_of("in0").update(tensorId2MemLocSize=0)),
    Case("bank_outside_psum", added, location("in0", bank=2)),
    Case("base_outside_chip", partial(sound, "Sink", [dram(8, 8)]), location("in0", base=32)),
    Case("zero_stride", in_loop, lambda d: d.rows[1]["LoopAxis"].update(stride=0)),
    Case("unknown_parameter", bound, keys(func_args={"q": "in0"})),
    Case("parameter_size", bound, one_more_byte),
]  # fmt: skip

CASES = [*REFERENCES, *STRUCTURE, *CONSISTENCY]


def test_case_n25_two_functions_of_one_name() -> None:
    made = two_functions()
    kernel = made.doc["functions"].pop()
    made.doc["nki_functions"] = {"functions": [{**kernel, "name": "k"}, {**kernel, "name": "k"}]}
    made.add("call", "NKIKernel", func="k")
    found = air.verify(made.ir())
    assert found.select("rule", "message", "instruction").rows() == [
        ("ambiguous_callee", "several functions are named `k`", "call")
    ]


def test_case_n01_a_set_of_size_zero_is_named() -> None:
    made = Module()
    made.tensor("t", sb(128, 512))
    made.place_of("t")["dims"] = [128, 0]
    made.set_of("t")["tensor_shape"] = [0, 512]
    made.add("n", "NoOp")
    (row,) = air.verify(made.ir()).rows(named=True)
    assert row["message"] == "memory location `t` of set `t_set` has size 0"
    assert (row["severity"], row["location"], row["set"]) == ("warning", "t", "t_set")


@pytest.mark.parametrize(
    ("dims", "size"),
    [
        ([-1, 256], "-1 partitions of 256 bytes"),
        ([128, -256], "128 partitions of -256 bytes"),
        ([], "no `dims`"),
        ([0, 256], "size 0"),
    ],
)
def test_dims_that_are_no_size_are_told(dims: list[int], size: str) -> None:
    made = Module()
    made.tensor("t", sb(128, 64))
    made.place_of("t")["dims"] = dims
    made.add("n", "NoOp")
    (message,) = air.verify(made.ir()).filter(rule="empty_location")["message"]
    assert message == f"memory location `t` of set `t_set` has {size}"


@pytest.mark.parametrize(
    ("value", "rule", "message"),
    [
        ({"kind": "physical_ap", "ap": [[1, 1], [1, 1]], "offset": 0, "dtype": "int32"},
         "BIR036", "MemoryLocation with name none not found"),
        ({"kind": "register_access", "dtype": "int32"}, "BIR016", "Register with name none not found"),
        ({"dtype": "int32"}, "BIR091", "Unknown ArgumentKind (`none`)"),
        ({"kind": None, "dtype": "int32"}, "BIR091", "Unknown ArgumentKind (`none`)"),
    ],
)  # fmt: skip
def test_an_operand_without_a_name_or_a_kind_is_told(value: Json, rule: str, message: str) -> None:
    made = sound("Sink", [imm(1.0)])
    made.x["ins"][0] = value
    found = air.verify(made.ir()).select("rule", "message", "instruction", "slot")
    assert found.rows() == [(rule, message, "x", "ins[0]")]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"p": "gone"}, "the argument `p` is bound to `gone`, and the caller has no such tensor"),
        ({"p": "r"}, "the argument `p` is bound to `r`, and the caller has no such tensor"),
        ({"p": "in0", "n": "in0"}, "the argument `n` is bound to `in0`, and the caller has no such register"),
    ],
)
def test_r5_an_argument_that_the_caller_does_not_have(entries: Json, message: str) -> None:
    made = binding()
    made.x["func_args"] = entries
    found = air.verify(made.ir()).filter(severity="error").select("rule", "message", "instruction")
    assert found.rows() == [("unresolved_argument", message, "x")]
    result = air.run(made.ir(), ["inline_nki_kernel"], options={"inline_nki_kernel": {"allocated": None}})
    assert result.diagnostics.filter(severity="error")["code"].to_list() == ["unresolved_name"]


@pytest.mark.parametrize(
    ("table", "column", "code"),
    [
        ("call_arguments", "actual_location_id", "unresolved_argument"),
        ("aliases", "target_location_id", "unresolved_alias"),
        ("references", "target_id", "unresolved_reference"),
    ],
)
def test_a_reference_that_a_pass_has_lost_is_told(table: str, column: str, code: str) -> None:
    ir = (binding() if table == "call_arguments" else pointing()).ir()
    changed = {column: np.full(ir.count(table), -1, ir.tables[table][column].dtype)}
    if table == "call_arguments":
        changed["actual_set_id"] = changed[column]
    found = air.verify(ir.replace(**{table: ir.tables[table].replace(**changed)}))
    assert code in found.filter(severity="error")["rule"].to_list()
    assert "`none`" in found.filter(rule=code)["message"][0]


def test_an_owner_that_is_not_there_is_told_by_its_location() -> None:
    made = added()
    made.x["ins"][0]["memref_owner_func"] = "gone"
    assert made.codes() == {"BIR036", "GCA056"}


@pytest.mark.parametrize(
    "case",
    [case for case in REFERENCES if registry.rules()[case.code].level == "references"],
    ids=lambda case: case.code,
)
def test_what_is_not_there_is_named(case: Case) -> None:
    made = case.base()
    case.change(made)
    message = air.verify(made.ir()).filter(rule=case.code)["message"][0]
    assert any(name in message for name in ("gone", "t1_i1", "Axis j", "argument 3")), message


def test_queues_are_looked_up_in_the_module_of_each_instruction() -> None:
    modules = [queued() for _ in range(3)]
    for number, made in enumerate(modules):
        made.x["queue"] = made.doc["queues"][0]["name"] = f"q{number}"
    modules[1].x["queue"] = "q0"
    found = air.verify(air.concat([made.ir() for made in modules]))
    assert found.filter(severity="error").select("module_id", "rule", "message").rows() == [
        (1, "unresolved_queue", "Queue does not exist! (`q0`)")
    ]


def test_case_n07_an_undefined_name_is_one_row_each_and_no_exception() -> None:
    made = added()
    for k in range(12):
        made.add(f"u{k}", "Sink", [{**made.x["ins"][0], "memref": f"t{k}_i1"}])
    found = air.verify(made.ir())
    assert found["rule"].to_list() == ["BIR036"] * 12
    assert found["message"][3] == "MemoryLocation with name t3_i1 not found"
    assert found["slot"].unique().to_list() == ["ins[0]"]


def test_case_n24_an_unknown_arch_and_version_are_warnings() -> None:
    made = added()
    made.doc.update(version=3, arch="gen9")
    found = air.verify(made.ir())
    assert set(found.select("rule", "severity").rows()) == {("BIR001", "warning"), ("unknown_version", "warning")}


def test_findings_name_their_module() -> None:
    good, bad = added(), added()
    bad.x.pop("op")
    batch = air.concat([read(good.doc, "good"), read(bad.doc, "bad"), read(good.doc, "other")])
    (row,) = air.verify(batch).rows(named=True)
    assert (row["module"], row["module_id"], row["function"], row["block"], row["instruction"]) == (
        "bad",
        1,
        "f",
        "b",
        "x",
    )
    assert row["level"] == "structure"
    assert row["advice"] == "add the key"


@pytest.fixture(scope="module")
def found() -> Broken:
    return broken(CASES)


@pytest.mark.parametrize("code", [case.code for case in CASES])
def test_a_rule_is_broken_by_one_change(code: str, found: Broken) -> None:
    assert found[code] == (set(), {code})
