"""The verifier's rules about call-sites and unrolled functions: each is broken by one change of a sound module."""

from functools import partial
from typing import Any

import pytest

import arrowir as air
from tests.single_pass import Json
from tests.verified import Broken, Case, Module, broken, dram, keys, location, sb, sound

T = partial(sb, 128, 64)


def noop() -> Json:
    return {"name": "n", "opcode": "NoOp", "engine": "Unassigned", "ins": [], "outs": []}


def called(**more: Any) -> Module:
    """A call of a kernel without parameters, with a scratchpad in SB."""
    base: Json = {"func": "k", "sb_buf_shape": [128, 256], "psum_buf_shape": [0, 0, 0], "kernel_source_val": "Beta2"}
    made = sound("NKIKernel", [], [T()], **{**base, **more})
    made.rows[:] = [made.x]
    kernel = {"name": "k", "allocations": [], "blocks": [{"name": "b", "instructions": [noop()]}]}
    made.doc["nki_functions"] = {"functions": [kernel]}
    return made


def second_location(d: Module) -> None:
    d.set_of("out0")["memorylocations"].append({**d.place_of("out0"), "name": "other", "tensor_id": 1, "addr": 4096})
    d.add("fill", "Memset", [], [{**d.x["outs"][0], "memref": "other"}], mode="Const", constant=0)
    d.add("sink", "Sink", [{**d.x["outs"][0], "memref": "other"}])


def parameter(d: Module) -> None:
    """Give the kernel a parameter of two locations."""
    place = {"type": "DRAM", "dims": [8, 8], "addr": 0}
    held = [{**place, "name": name, "tensor_id": k} for k, name in enumerate("ab")]
    d.doc["nki_functions"]["functions"][0]["allocations"].append(
        {"name": "p", "kind": "ExternalInput", "dtype": "uint8", "memorylocations": held, "tensor_shape": [8, 8]}
    )


def calling() -> Module:
    """A function that two others call with a tensor of their own."""
    made = Module()
    for name in "ab":
        access = made.tensor(name, dram(8, 8), "ExternalOutput")
        made.x = made.add(f"call_{name}", "Call", [], [access], target="g")
    body = [{"name": "b", "instructions": [noop()]}]
    made.doc["functions"].append({"name": "g", "allocations": [], "blocks": body})
    return made


CALLS = [
    Case("BIR205", called, keys(func=None)),
    Case("EBIR014", called, keys(func="gone")),
    Case("EBIR015", called, keys(sb_buf_shape=[64, 256])),
    Case("EBIR016", called, keys(sb_buf_shape=[128, 0])),
    Case("EBIR017", partial(called, sb_buf_shape=[0, 0]), lambda d: nine(d)),
    Case("EBIR018", called, keys(psum_buf_shape=[0, 256, 2048])),
    Case("EBIR019", called, keys(psum_buf_shape=[1, 128, 2048])),
    Case("EBIR020", called, keys(address_rotation_scope_val=7)),
    Case("SEED-source", called, keys(kernel_source_val=3)),
    Case("KERN-base0", called, lambda d: lower_half(d)),
    Case("NKI004", called, second_location),
    Case("NKI006", called, parameter),
    Case("LNK001", calling, lambda d: d.x["outs"].append(dict(d.rows[0]["outs"][0]))),
]  # fmt: skip


def lower_half(d: Module) -> None:
    """Place half of the scratchpad at partition 64."""
    d.place_of("out0").update(base=64, dims=[64, 256])
    d.set_of("out0")["tensor_shape"] = [64, 64]
    d.x["outs"][0]["ap"][0][1] = 64


def nine(d: Module) -> None:
    """Nine scratchpads in PSUM, where there are eight banks; two are one."""
    d.x["psum_buf_shape"] = [9, 128, 2048]
    d.x["outs"] = [dict(d.x["outs"][0]) for _ in range(9)]


def unrolled(opcode: str, **members: Any) -> Module:
    """A function that says it is unrolled, with an instruction in its last block."""
    made = sound("NoOp")
    made.main["attributes"] = []
    made.x.update(opcode=opcode, **members)
    return made


def says(d: Module) -> None:
    d.main["attributes"].append("stage_unroll_completed")


def body(*rows: Json) -> list[Json]:
    return [{"name": "body", "instructions": list(rows)}]


AXIS = {"name": "i", "lb": 0, "ub": 2, "stride": 1}
RUNTIME = {"kind": "IntRuntimeValueKind", "regref": "r"}


def counted() -> Module:
    bounds = {
        "lb": {"kind": "AffExprKind", "c": 0, "terms": []},
        "ub": {"kind": "AffExprKind", "c": 0, "terms": [{"idx": RUNTIME, "coeff": 1}]},
        "stride": {"kind": "AffExprKind", "c": 1, "terms": []},
    }
    made = unrolled("DynamicForLoop", DynamicForLoopAxis={"name": "i", **bounds}, blocks=body(noop()))
    made.register()
    return made


def until(*rows: Json) -> Module:
    made = unrolled("DoWhile", cond=RUNTIME, blocks=body(*(rows or (noop(),))))
    made.register()
    return made


def symbolic(set_name: str) -> Json:
    zero = {"kind": "AffExprKind", "c": 0, "terms": []}
    return {"kind": "symbolic_ap", "memsetref": set_name, "dtype": "float32", "ap": [[64, 128], [1, 64]],
            "addrs": [zero, zero]}  # fmt: skip


def moved_by_address() -> Module:
    made = sound("TensorCopy", [T()], [T()], engine="DVE")
    made.main["attributes"] = []
    made.x["outs"][0] = symbolic("out0_set")
    return made


UNROLLED = [
    Case("BIR430", partial(unrolled, "Loop", LoopAxis=AXIS, blocks=body(noop())), says),
    Case("BIR431", counted, says),
    Case("BIR432", until, says),
    Case("BIR433", lambda: generic(), says),
    Case("BIR434", moved_by_address, says),
]  # fmt: skip


def generic() -> Module:
    made = sound("GenericIndirectLoad", [dram(512, 64), sb(128, 1, dtype="int32")], [T()], indirect_dims=["W"])
    made.main["attributes"] = []
    return made


@pytest.mark.parametrize(("member", "code"), [("ins", "BIR087"), ("outs", "BIR088")])
def test_symbolic_accesses_in_a_do_while(member: str, code: str) -> None:
    made = sound("TensorCopy", [T()], [T()], engine="DVE")
    made.register()
    loop = {"name": "loop", "opcode": "DoWhile", "engine": "Unassigned", "ins": [], "outs": [], "cond": RUNTIME,
            "blocks": body(made.x)}  # fmt: skip
    made.rows[made.rows.index(made.x)] = loop
    made.main["attributes"] = ["stage_unroll_completed"]
    assert made.codes() == {"BIR432"}
    made.x[member][0] = symbolic("in0_set" if member == "ins" else "out0_set")
    assert made.codes() == {"BIR432", code}


def test_the_level_unrolled_takes_every_function_when_it_is_chosen() -> None:
    made = unrolled("Loop", LoopAxis=AXIS, blocks=body(noop()))
    assert made.codes() == set()
    assert made.codes("unrolled") == {"BIR430"}
    assert made.codes(["unrolled", "memory"]) == {"BIR430"}


def test_u8_after_the_pass_unroll_nothing_is_left() -> None:
    ir = air.read("data/generated/loops.json")
    assert not air.verify(ir, "unrolled").is_empty()
    assert air.verify(air.passes.unroll(ir).ir, "unrolled").is_empty()


ALLOCATED = [Case("BIR440", partial(sound, "TensorCopy", [T()], [T()]), location("in0", allocated=False), "all")]

CASES = [*CALLS, *UNROLLED, *ALLOCATED]


@pytest.fixture(scope="module")
def found() -> Broken:
    return broken(CASES)


@pytest.mark.parametrize("code", [case.code for case in CASES])
def test_a_rule_is_broken_by_one_change(code: str, found: Broken) -> None:
    assert found[code] == (set(), {code})
