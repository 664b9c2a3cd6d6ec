"""Rules N1 to N3, N9, N10, N12, N15, N16, N18, N19, O6 and O7: call-sites, bodies, and what is left behind.

What must come out is written down by hand. Bindings, memory and edges have files of their own.
"""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import arrowir as air
from tests.oracle.builders import (
    access,
    axis,
    call,
    constant,
    function,
    location,
    loop,
    memory_set,
    module,
    names,
    op,
    register,
    row,
    rows,
    runtime,
    sb_set,
    symbolic,
)
from tests.oracle.calls import bare, kernel, one_call
from tests.single_pass import Json, read, refused, run_pass, written

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "bir_json_example.json"
SKIPPED = (
    "Skip lowering C because the allocation status of the kernel is not consistent "
    "with the current location of the pass"
)


def kernels(*functions: Json, main: tuple[Json, ...]) -> Json:
    return module(function("main", [], *main), kernels=list(functions))


def kernel_names(document: Json) -> list[str]:
    return [f["name"] for f in document["nki_functions"]["functions"]]


def all_names(document: Json) -> list[str]:
    """Names of the instructions of the first function in program order, nested ones in brackets."""

    def walk(instructions: list[Json]) -> list[str]:
        found: list[str] = []
        for each in instructions:
            inner = [n for b in each.get("blocks", []) for n in walk(b["instructions"])]
            found += [each["name"], *(["[", *inner, "]"] if "blocks" in each else [])]
        return found

    return walk(rows(document))


# N1: call-sites


def test_n1_every_call_site_of_every_ordinary_function() -> None:
    document = module(
        function("main", [], call("A"), op("p"), call("B", "k2")),
        function("other", [], call("C"), call("D")),
        kernels=[function("k", [], op("K")), function("k2", [], op("L"), op("M"))],
    )
    outcome = inline(document)
    assert names(outcome.doc) == ["A_K", "p", "B_L", "B_M"]
    assert names(outcome.doc, 1) == ["C_K", "D_K"]
    assert outcome.codes == []


@pytest.mark.parametrize("opcode", ["Loop", "DynamicForLoop", "DoWhile"])
def test_n1_call_sites_at_any_depth(opcode: str) -> None:
    inner = loop("L2", "j", (0, 2, 1), call("A"), op("q"))
    outer = loop("L1", "i", (0, 2, 1), op("p"), inner, call("B"), op("z", dependencies=["B"]))
    if opcode != "Loop":
        outer["opcode"] = opcode
        axis_of = outer.pop("LoopAxis")
        if opcode == "DynamicForLoop":
            bounds = {key: constant(axis_of[key]) for key in ("lb", "ub", "stride")}
            outer["DynamicForLoopAxis"] = {"name": "i", **bounds}
    outcome = inline(kernels(function("k", [], op("K1"), op("K2")), main=(call("C"), outer)))
    expected = "C_K1 C_K2 L1 [ p L2 [ A_K1 A_K2 q ] B_K1 B_K2 z ]"
    assert all_names(outcome.doc) == expected.split()
    body = rows(outcome.doc)[2]["blocks"][0]["instructions"]
    assert body[-1]["dependencies"] == ["B_K1", "B_K2"]


def test_n1_functions_that_nobody_reaches_are_left_alone() -> None:
    document = kernels(function("k", [], op("K")), function("lone", [], call("X", "k")), main=(op("p"),))
    assert inline(document).status == "unchanged"


def test_n1_without_call_sites_nothing_changes() -> None:
    assert inline(kernels(function("k", [], op("K")), main=(op("p"),))).status == "unchanged"
    assert inline(module(function("main", []))).status == "unchanged"
    assert inline(module()).status == "unchanged"


@pytest.mark.parametrize(
    ("main", "path"),
    [
        (("k1",), "k1 -> k2 -> k1"),
        (("k2",), "k2 -> k1 -> k2"),
        (("k3", "k2"), "k2 -> k1 -> k2"),
        (("k0", "k2"), "k1 -> k2 -> k1"),
        (("self", "k1"), "self -> self"),
    ],
)
def test_n1_a_cycle_is_named_from_where_the_walk_meets_it(main: tuple[str, ...], path: str) -> None:
    document = kernels(
        function("k2", [], op("K"), call("B", "k1")),
        function("k1", [], call("A", "k2")),
        function("k0", [], op("K"), call("A", "k1")),
        function("k3", [], op("K")),
        function("self", [], call("S", "self")),
        main=tuple(call(f"C{n}", name) for n, name in enumerate(main)),
    )
    message = fault(document)
    assert message.code == "recursive_kernel"
    assert f"{path};" in message.message


def test_n1_a_cycle_deeper_down_and_inside_a_loop() -> None:
    document = kernels(
        function("a", [], op("K"), loop("L", "i", (0, 2, 1), call("A", "b"))),
        function("b", [], call("B", "c"), call("B2", "b")),
        function("c", [], op("K")),
        main=(loop("M", "i", (0, 2, 1), call("C", "a")),),
    )
    assert "b -> b;" in fault(document).message


@pytest.mark.parametrize("allocated", [True, False, None])
def test_n1_a_cycle_counts_whether_or_not_the_gate_passes(allocated: bool | None) -> None:
    document = kernels(function("k", [], call("K", "k")), main=(call("C", is_allocated=True),))
    assert fault(document, allocated=allocated).code == "recursive_kernel"


def test_n1_a_cycle_that_no_call_site_reaches_is_no_matter() -> None:
    document = kernels(
        function("k", [], op("K")),
        function("k1", [], call("A", "k2")),
        function("k2", [], call("B", "k1")),
        main=(call("C"),),
    )
    assert inline(document).status == "changed"


def test_n1_one_cycle_is_one_row_and_other_modules_are_inlined() -> None:
    bad = kernels(
        function("k", [], op("K")),
        function("k1", [], call("A", "k1"), call("B", "k1")),
        main=(*(call(f"G{n}") for n in range(10)), call("C", "k1"), call("D", "k1")),
    )
    good = bare(op("K"))
    ir = air.concat([read(good, "good"), read(bad, "bad"), read(good, "also")])
    result = air.passes.inline_nki_kernel(ir)
    assert result.status.to_list() == ["changed", "failed", "changed"]
    assert result.diagnostics.select("module", "code").rows() == [("bad", "recursive_kernel")]
    assert result.ir.to_json(1) == written(bad)
    assert result.ir.to_json(2) == written(inline(good).doc)


# N2: the gate


def gated(*storage: Json, **site: Any) -> Json:
    return module(function("main", [], call("C", **site)), kernels=[function("k", list(storage), op("K"))])


SB = sb_set("t_set", 0)
LOOSE = sb_set("t_set", 0, allocated=False)
PSUM = memory_set("u_set", "Internal", location("u", type="PSUM", allocated=True))


@pytest.mark.parametrize(
    ("document", "status"),
    [
        (gated(), False),
        (gated(LOOSE), False),
        (gated(SB), True),
        (gated(LOOSE, PSUM), True),
        (gated(memory_set("d_set", "Internal", location("d", allocated=True))), False),
        (gated(memory_set("n_set", "Internal", location("n", type=32, allocated=True))), True),
        (gated(LOOSE, is_allocated=True), True),
        (gated(SB, is_allocated=False), False),
        (gated(SB, is_allocated=None), True),
        (gated(LOOSE, is_allocated=1), False),
        (gated(LOOSE, is_allocated="true"), False),
    ],
)
def test_n2_the_status_of_a_call_site(document: Json, status: bool) -> None:
    assert inline(document, allocated=status).status == "changed"
    assert inline(document).status == "changed"
    outcome = inline(document, allocated=not status)
    assert (outcome.status, outcome.codes) == ("unchanged", [("note", "call_site_skipped")])
    message = outcome.messages[0]
    assert message.message == SKIPPED
    assert (message.function, message.block, message.instruction) == ("main", "Block1", "C")
    assert (message.function_id, message.block_id, message.instruction_id) == (0, 0, 0)


def test_n2_parameters_count_too() -> None:
    formal = memory_set("f_set", "ExternalInput", location("f", type="SB", allocated=True))
    actual = memory_set("x_set", "Internal", location("x", type="SB"))
    document = module(
        function("main", [actual], call("C", func_args={"f": "x"})), kernels=[function("k", [formal], op("K"))]
    )
    assert inline(document, allocated=False).status == "unchanged"
    assert inline(document, allocated=True).status == "changed"


def test_n2_the_key_is_an_option() -> None:
    document = gated(SB, is_allocated=False, status=True)
    assert inline(document, allocated=True, allocated_key="status").status == "changed"
    assert inline(document, allocated=False, allocated_key="status").status == "unchanged"
    assert inline(document, allocated=True).status == "unchanged"


def test_n2_each_call_site_is_judged_alone_and_a_callee_that_is_still_named_stays() -> None:
    document = kernels(function("k", [], op("K")), main=(call("A", is_allocated=True), call("B"), call("C")))
    outcome = inline(document, allocated=False)
    assert outcome.codes == [("note", "call_site_skipped")]
    assert names(outcome.doc) == ["A", "B_K", "C_K"]
    assert rows(outcome.doc)[0] == rows(document)[0]
    assert kernel_names(outcome.doc) == ["k"]
    assert names(inline(outcome.doc, allocated=True).doc) == ["A_K", "B_K", "C_K"]


def test_n2_a_skipped_call_site_is_not_checked() -> None:
    document = gated(SB, kernel_source_val="no", func_args={"nobody": "nothing"}, sync_info={"on_wait": []})
    assert inline(document, allocated=False).codes == [("note", "call_site_skipped")]


# N4, R4: the callee


@pytest.mark.parametrize("site", [{"func": "nobody"}, {"func": "main2"}, {"func": None}])
def test_n4_no_callee(site: Json) -> None:
    message = fault(kernels(function("k", [], op("K")), main=(call("C", **site),)))
    assert (message.code, message.compiler_code) == ("no_callee", "NKI001")
    assert message.message == "NKI Kernel Instruction does not have a valid function"
    assert message.instruction == "C"


def test_n4_a_call_site_without_the_member_has_no_callee() -> None:
    site = call("C")
    del site["func"]
    assert fault(kernels(function("k", [], op("K")), main=(site,))).code == "no_callee"


@pytest.mark.parametrize("copies", [2, 3])
def test_r4_n25_several_candidates(copies: int) -> None:
    twins = [function("k", [], op(f"K{n}")) for n in range(copies)]
    message = fault(kernels(*twins, main=(call("C"),)))
    assert message.code == "ambiguous_callee"
    assert f"{copies} functions are named `k`" in message.message
    assert inline(kernels(*twins, function("one", [], op("L")), main=(call("C", "one"),))).status == "changed"


def test_r4_a_kernel_function_goes_before_an_ordinary_one_of_the_name() -> None:
    document = module(
        function("main", [], call("C")), function("k", [], op("wrong")), kernels=[function("k", [], op("K"))]
    )
    outcome = inline(document)
    assert names(outcome.doc) == ["C_K"]
    assert [f["name"] for f in outcome.doc["functions"]] == ["main", "k"]
    assert kernel_names(outcome.doc) == []


def test_r4_older_files_have_kernels_among_the_functions() -> None:
    document = module(function("main", [], call("C"), op("z")), function("k", [], op("K")))
    outcome = inline(document)
    assert names(outcome.doc) == ["C_K", "z"]
    assert [f["name"] for f in outcome.doc["functions"]] == ["main"]
    assert "nki_functions" not in outcome.doc


# N3: the canonical body


def test_n3_the_body_is_unrolled_and_the_shard_id_is_an_option() -> None:
    nest = loop(
        "L",
        "i",
        (0, 4, 2),
        op(
            "K", v=axis("i"), s={"kind": "ShardIDKind"}, ins=[symbolic("a_set", constant(0), axis("i"))], loopnest=["i"]
        ),
    )
    document = one_call(callee=kernel(nest, op("W", outs=[access("c")]), storage=[]))
    outcome = inline(document, shard_id=3)
    assert names(outcome.doc) == ["C_K-0", "C_K-1", "C_W"]
    made = row(outcome.doc, "C_K-1")
    assert (made["v"], made["s"], "loopnest" in made) == (2, 3, False)
    assert made["ins"] == [access("x", ap=[[16, 128], [1, 1]], offset=2, memsetref="x_set")]
    assert row(inline(document).doc, "C_K-1")["s"] == 0


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (loop("L", "i", (0, 1, 0), op("K")), "zero_stride"),
        (loop("L", "i", (0, runtime("r"), 1), op("K")), "dynamic_loop"),
        (op("K", predicates=[{"expr": 1}]), "predicated_instruction"),
    ],
)
def test_n3_what_unrolling_refuses_fails_the_module(body: Json, code: str) -> None:
    document = module(function("main", [], call("C")), kernels=[function("k", [register("r")], body)])
    message = fault(document)
    assert message.code == code
    assert message.function == "k"


def test_n3_the_modules_own_function_is_not_unrolled() -> None:
    nest = loop("L", "i", (0, 2, 1), op("K", loopnest=["i"]))
    document = kernels(function("k", [], nest), main=(call("A", is_allocated=True), call("B")))
    outcome = inline(document, allocated=False)
    assert names(outcome.doc) == ["A", "B_K-0", "B_K-1"]
    assert outcome.doc["nki_functions"] == document["nki_functions"]


def test_n3_version_1_stays() -> None:
    old = {"terms": [], "c": 5}
    document = module(
        function("main", [], call("C")), kernels=[function("k", [register("r")], op("K", w=old))], version=1
    )
    outcome = inline(document)
    assert outcome.doc["version"] == 1
    assert row(outcome.doc, "C_K")["w"] == 5


def test_n3_the_copy_taken_literally_through_json() -> None:
    """The pass takes the function itself for its canonical form; here the form is written and read again."""
    document = one_call(callee=kernel(loop("L", "i", (0, 3, 1), op("K", v=axis("i"))), op("W", outs=[access("c")])))
    alone = module(document["nki_functions"]["functions"][0])
    again = json.loads(read(alone).to_json(0))["functions"][0]
    document["nki_functions"]["functions"] = [again]
    assert inline(document).doc == inline(one_call(callee=alone["functions"][0])).doc


@pytest.mark.parametrize(
    "body",
    [
        op("K", ins=[access("gone")]),
        op("K", outs=[access("gone")]),
        op("K", indirection_ins=[access("gone")]),
        op("K", ins=[{"kind": "register_ap", "memsetref": "gone", "regref": "r", "ap": [[1, 1]], "dtype": "int32"}]),
        op("K", ins=[{"kind": "register_access", "dtype": "int32", "regref": "gone"}]),
        op("K", ins=[access("t", reg_ap_offset="gone")]),
        op("K", v={"deep": [runtime("gone")]}),
        op("K", dependencies=["gone"]),
        op("K", loop_carried_dependencies=[["gone", "Flow", 1]]),
        op("K", "UnconditionalBranch", target="gone"),
        op("K", "CompareAndBranch", on_true="gone", on_false="gone"),
    ],
)
def test_n3_r5_a_name_of_the_body_that_does_not_resolve(body: Json) -> None:
    document = module(
        function("main", [memory_set("gone_set"), register("gone")], op("gone"), call("C")),
        kernels=[function("k", [memory_set("t_set"), register("r")], op("J"), body)],
    )
    message = fault(document)
    assert message.code == "unresolved_name"
    assert "`gone`" in message.message
    assert (message.function, message.instruction) == ("k", "K")


def test_n3_r5_some_names_may_stay_unresolved() -> None:
    wait = {"on_wait": [{"from": "dma", "id": 1, "wait_value": 2}]}
    storage = [
        memory_set("t_set", "Internal", location("t", alias=[["gone", 3]])),
        memory_set("u_set", "Internal", location("u", pointer_ref_memloc="gone")),
    ]
    hint = op("K", "BranchHint", associate_branch="gone", sync_info=wait)
    outcome = inline(module(function("main", [], call("C")), kernels=[function("k", storage, hint)]))
    assert row(outcome.doc, "C_K") == hint | {"name": "C_K"}
    made = [s["memorylocations"][0] for s in outcome.doc["functions"][0]["allocations"]]
    assert (made[0]["alias"], made[1]["pointer_ref_memloc"]) == ([["gone", 3]], "gone")


def test_n3_a_loop_without_trips_is_not_looked_into() -> None:
    never = loop("L", "i", (0, 0, 1), op("K", ins=[access("gone")]), op("R", "Return"))
    outcome = inline(kernels(function("k", [], never, op("K")), main=(call("C"),)))
    assert names(outcome.doc) == ["C_K"]


# N9: kernel sources


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, "Beta1"),
        ({"kernel_source_val": None}, "Beta1"),
        *(({"kernel_source_val": written}, f"Beta{n + 1}") for n in range(3) for written in (n, f"Beta{n + 1}")),
    ],
)
def test_n9_kernel_sources(given: Json, kept: str) -> None:
    outcome = inline(bare(op("K"), **given))
    assert outcome.ir.instructions["kernel_source"].to_list() == [None, kept, None]


@pytest.mark.parametrize("value", ["Beta4", "beta1", "", "0", 3, -1])
def test_n9_an_unknown_kernel_source(value: Any) -> None:
    message = fault(bare(op("K"), kernel_source_val=value))
    assert message.code == "unknown_kernel_source"
    assert message.message == "Unrecognized kernel source encountered."


# N10: clones


def test_n10_attributes_are_copied_unchanged() -> None:
    instruction = op(
        "K",
        "Odd",
        z={"deep": [1.5, None, "t"]},
        a=2**70,
        debug={"lineno": 7},
        ins=[access("t", ap=[[512, 128], [-1, 4]], offset=99), {"kind": "imm_value", "dtype": "float32", "value": 1.0}],
        outs=[access("t", dtype="bfloat16", odd=[])],
    )
    document = module(function("main", [], call("C")), kernels=[function("k", [memory_set("t_set")], instruction)])
    made = row(inline(document).doc, "C_K")
    renamed = json.dumps(instruction | {"name": "C_K"}).replace('"memref": "t"', '"memref": "C:t"')
    assert written(made) == written(json.loads(renamed))


@pytest.mark.parametrize(("given", "kept"), [(15, 3), (12, 0), (16, 16), (0xFF, 0xF3), (["x", "y"], ["x", "y"])])
def test_n10_opt_in_passes(given: Any, kept: Any) -> None:
    outcome = inline(bare(op("K", optin_passes=given)))
    assert row(outcome.doc, "C_K")["optin_passes"] == kept
    if isinstance(kept, int):
        assert outcome.ir.instructions["optin_mask"].to_list() == [15, kept, 15]


def test_n10_an_absent_opt_in_mask() -> None:
    outcome = inline(bare(op("K")))
    assert "optin_passes" not in row(outcome.doc, "C_K")
    assert outcome.ir.instructions["optin_mask"].to_list() == [15, 3, 15]


# N12: in place


def test_n12_the_body_stands_in_the_place_of_the_call_site() -> None:
    document = kernels(function("k", [], op("K1"), op("K2")), main=(op("p"), call("A"), call("B"), op("z"), call("C")))
    assert names(inline(document).doc) == ["p", "A_K1", "A_K2", "B_K1", "B_K2", "z", "C_K1", "C_K2"]


def test_n12_a_final_return_is_dropped() -> None:
    outcome = inline(bare(op("K1"), op("R", "Return", dependencies=["K1"])))
    assert names(outcome.doc) == ["p", "C_K1", "z"]
    assert names(inline(bare(op("R", "Return"))).doc) == ["p", "z"]
    assert names(inline(bare(loop("L", "i", (0, 2, 1), op("K")), op("R", "Return"))).doc) == [
        "p",
        "C_K-0",
        "C_K-1",
        "z",
    ]


def test_n12_an_empty_body() -> None:
    assert names(inline(bare()).doc) == ["p", "z"]
    document = bare()
    document["nki_functions"]["functions"][0]["blocks"] = []
    assert names(inline(document).doc) == ["p", "z"]


def test_t10_t12_calls_of_calls_are_no_recursion() -> None:
    chain = [function(f"k{n}", [], op("A"), call("X", f"k{n + 1}")) for n in range(3)]
    outcome = inline(kernels(*chain, function("k3", [], op("K")), main=(call("C", "k0"),)))
    assert names(outcome.doc) == ["C_A", "C_X_A", "C_X_X_A", "C_X_X_X_K"]
    assert (outcome.codes, kernel_names(outcome.doc)) == ([], [])
    finds = fault(kernels(*chain, function("k3", [], call("Y", "k3")), main=(call("C", "k0"),)))
    assert finds.code == "recursive_kernel"
    assert "k3 -> k3;" in finds.message


# the sample


def test_n3_n8_n14_the_sample_module() -> None:
    document = json.loads(SAMPLE.read_text())
    outcome = inline(document)
    site = "inst__nki_add_one"
    assert names(outcome.doc)[2:] == [f"{site}_K-{step}-{n}" for n in range(4) for step in (1, 2, 3)]
    made = {s["name"]: s["memorylocations"][0]["addr"] for s in outcome.doc["functions"][0]["allocations"]}
    assert (made[f"{site}:t_in_set"], made[f"{site}:t_out_set"]) == (18_432, 18_944)
    last = row(outcome.doc, f"{site}_K-3-3")
    assert last["dependencies"] == [[f"{site}_K-2-3", "Flow"], [f"{site}_K-2-2", "Anti"]]
    assert (last["outs"][0]["memref"], last["outs"][0]["memsetref"]) == ("output0", "output0_set")
    assert outcome.doc["nki_functions"] == {"functions": []}
    assert inline(document, allocated=False).status == "unchanged"


def test_n3_a_callee_that_is_gone_after_unrolling_fails_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    from arrowir.passes.inlining import canonical
    from arrowir.passes.unroll import Expansion

    nothing = air.read_json(json.dumps(module(function("other", []))).encode())
    monkeypatch.setattr(canonical, "expand", lambda *_: Expansion(nothing, {}))
    ir = read(bare(loop("L", "i", (0, 2, 1), op("K"))))
    result = air.passes.inline_nki_kernel(ir)
    (message,) = result.messages
    assert result.status.to_list() == ["failed"]
    assert (message.code, message.compiler_code) == ("callee_lost", "NKI002")
    assert message.message == "Cannot find lowering function k after unroll"
