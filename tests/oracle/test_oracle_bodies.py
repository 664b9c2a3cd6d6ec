"""The oracle of rules N10 to N19 and N3 (clones, edges, clean-up) against hand-worked documents."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import Provenance
from tests.oracle.builders import (
    Obj,
    access,
    allocations,
    axis,
    call,
    constant,
    function,
    loop,
    memory_set,
    module,
    names,
    op,
    register,
    row,
    rows,
    runtime,
    symbolic,
)
from tests.oracle.calls import bare, edges, failure, inlined, kernel, one_call

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "bir_json_example.json"


# N10, N11: clones


def test_n10_attributes_are_copied() -> None:
    instruction = op("K", "Odd", z={"deep": [1.5, None, "t"]}, a=2**70)
    made = row(inlined(bare(instruction)).doc, "C_K")
    assert made == instruction | {"name": "C_K", "dependencies": [["p", "Flow"]]}
    assert list(made) == [*instruction, "dependencies"]


@pytest.mark.parametrize(("written", "cloned"), [(15, 3), (12, 0), (16, 16), (["x"], ["x"])])
def test_n10_optin_passes(written: Any, cloned: Any) -> None:
    assert row(inlined(bare(op("K", optin_passes=written))).doc, "C_K")["optin_passes"] == cloned
    assert "optin_passes" not in row(inlined(bare(op("K"))).doc, "C_K")


def test_n11_every_kind_of_reference() -> None:
    storage = [memory_set("t_set"), register("r")]
    dynamic = {
        "kind": "register_ap",
        "memsetref": "t_set",
        "regref": "r",
        "reg_ap_offset": "r",
        "reg_sub_tensor_id": "r",
        "dynamic_ap_info": {"aff_expr": [{"offset_expr": runtime("r"), "coef": 1}]},
    }
    owned = access("a", memsetref="wrong_set", memref_owner_func="k")
    callee = kernel(
        op(
            "K",
            ins=[dynamic, owned],
            indirection_ins=[access("t", memsetref="t_set")],
            outs=[access("c")],
            v=[runtime("r")],
        ),
        storage=storage,
    )
    made = row(inlined(one_call(callee=callee)).doc, "C_K")
    assert made["ins"][0] == dynamic | {
        "memsetref": "C:t_set",
        "regref": "C:r",
        "reg_ap_offset": "C:r",
        "reg_sub_tensor_id": "C:r",
        "dynamic_ap_info": {"aff_expr": [{"offset_expr": runtime("C:r"), "coef": 1}]},
    }
    # The set beside a location becomes the location's, and the owner the caller (R2).
    assert made["ins"][1] == owned | {"memref": "x", "memsetref": "x_set", "memref_owner_func": "main"}
    assert made["indirection_ins"][0]["memsetref"] == "C:t_set"
    assert made["v"] == [runtime("C:r")]


def test_n11_a_formals_set_becomes_the_actuals_set() -> None:
    callee = kernel(op("K", ins=[{"kind": "register_ap", "memsetref": "a_set"}], outs=[access("c")]))
    assert row(inlined(one_call(callee=callee)).doc, "C_K")["ins"][0]["memsetref"] == "x_set"


def test_n11_arguments_of_a_call_in_the_body() -> None:
    inner = op("K", "Call", target="k3", arguments={"q": "t", "q2": "a", "q3": "gone"})
    outcome = inlined(one_call(callee=kernel(inner, op("W", outs=[access("c")]))))
    assert row(outcome.doc, "C_K")["arguments"] == {"q": "C:t", "q2": "x", "q3": "gone"}
    assert row(outcome.doc, "C_K")["target"] == "k3"


def test_n12_in_place_and_final_return_dropped() -> None:
    outcome = inlined(bare(op("K1"), op("K2"), op("R", "Return", dependencies=["K1"])))
    assert names(outcome.doc) == ["p", "C_K1", "C_K2", "z"]
    # K1 is a sink: only the dropped Return depends on it.
    assert edges(outcome, "z")[1:3] == [["C_K1", "Anti"], ["C_K2", "Anti"]]
    assert names(inlined(bare(op("R", "Return"))).doc) == ["p", "z"]


@pytest.mark.parametrize(
    "instruction",
    [
        op("K", ins=[access("gone")]),
        op("K", ins=[{"kind": "register_access", "regref": "gone"}]),
        op("K", v=runtime("gone")),
        op("K", dependencies=["gone"]),
        op("K", "UnconditionalBranch", target="gone"),
    ],
)
def test_n3_r5_unresolved_names_of_a_body(instruction: Obj) -> None:
    assert failure(bare(instruction)) == "unresolved_name"


def test_n3_some_unresolved_names_stay() -> None:
    wait = {"on_wait": [{"from": "dma"}]}
    made = row(inlined(bare(op("K", "BranchHint", associate_branch="gone", sync_info=wait))).doc, "C_K")
    assert (made["associate_branch"], made["sync_info"]) == ("gone", wait)


# N3: canonicalisation


def test_n3_the_body_is_unrolled_first() -> None:
    storage = [memory_set("t_set")]
    nest = loop(
        "L", "i", (0, 2, 1), op("K", v=axis("i"), ins=[symbolic("a_set", constant(0), axis("i"))], loopnest=["i"])
    )
    outcome = inlined(one_call(callee=kernel(nest, op("W", outs=[access("c")]), storage=storage)))
    assert names(outcome.doc) == ["C_K-0", "C_K-1", "C_W"]
    made = row(outcome.doc, "C_K-1")
    assert made["v"] == 1
    assert (made["ins"][0]["memref"], made["ins"][0]["memsetref"], made["ins"][0]["offset"]) == ("x", "x_set", 1)


def test_n3_a_failure_of_unrolling_fails_the_module() -> None:
    assert failure(bare(loop("L", "i", (0, 1, 0), op("K")))) == "zero_stride"


def test_n3_the_modules_own_function_is_not_unrolled() -> None:
    doc = bare(loop("L", "i", (0, 2, 1), op("K")))
    rows(doc).append(call("S", is_allocated=True))
    outcome = inlined(doc, allocated=False)
    assert outcome.doc["nki_functions"] == doc["nki_functions"]


# N14: dependencies


def test_n14_edges_inside_are_cloned() -> None:
    outcome = inlined(bare(op("K1"), op("K2", dependencies=["K1"], unroll_dependencies=[["K1", "Flow", []]]), op("K3")))
    assert edges(outcome, "C_K2") == ["C_K1", ["C_K1", "Flow"]]


def test_n14_edge_of_call_site_goes_to_roots() -> None:
    site = {
        "dependencies": [["p", "Flow", "extra"], "p", "gone"],
        "loop_carried_dependencies": [["p", "Anti", 2]],
        "unroll_dependencies": [["p", "Flow", []]],
    }
    outcome = inlined(bare(op("K1"), op("K2", dependencies=["K1"]), op("K3"), **site))
    for root in ("C_K1", "C_K3"):
        made = row(outcome.doc, root)
        assert {key: made[key] for key in site} == site
    assert row(outcome.doc, "C_K2")["dependencies"] == ["C_K1"]
    assert "loop_carried_dependencies" not in row(outcome.doc, "C_K2")


def test_n14_edge_on_call_site_goes_to_sinks_where_it_stood() -> None:
    outcome = inlined(bare(op("K1"), op("K2"), op("K3", loop_carried_dependencies=["K1"])))
    assert edges(outcome, "z") == [["p", "Flow"], ["C_K2", "Anti"], ["C_K3", "Anti"], ["p", "Anti"]]


def test_n14_a_root_or_sink_is_one_over_all_relations() -> None:
    outcome = inlined(bare(op("K1"), op("K2", loop_carried_dependencies=["K1"])))
    assert edges(outcome, "C_K1") == [["p", "Flow"]]
    assert edges(outcome, "C_K2") is None
    assert edges(outcome, "C_K2", "loop_carried_dependencies") == ["C_K1"]


def test_n14_own_edge_makes_no_root_but_a_sink() -> None:
    outcome = inlined(bare(op("K1", loop_carried_dependencies=["K1"])))
    assert edges(outcome, "C_K1") is None
    assert edges(outcome, "z")[1] == ["C_K1", "Anti"]


def test_n14_call_sites_on_each_other() -> None:
    doc = bare(op("K1"), op("K2"))
    rows(doc).insert(2, call("D", dependencies=["C"], loop_carried_dependencies=[["D", "Flow", 1]]))
    outcome = inlined(doc)
    assert edges(outcome, "D_K1") == ["C_K1", "C_K2"]
    assert edges(outcome, "D_K2", "loop_carried_dependencies") == [["D_K1", "Flow", 1], ["D_K2", "Flow", 1]]


def test_n14_empty_body_joins() -> None:
    site = {"dependencies": [["p", "Flow"], ["q", "Flow"]]}
    doc = bare(**site)
    rows(doc).insert(0, op("q"))
    outcome = inlined(doc)
    assert names(outcome.doc) == ["q", "p", "z"]
    # [p, Anti] is there already, so it is not added again.
    assert edges(outcome, "z") == [["p", "Flow"], ["q", "Anti"], ["p", "Anti"]]


def test_n14_relation_of_a_join() -> None:
    def joined(of: Obj, on: Obj) -> Obj:
        caller = function("main", [], op("p"), call("C", **of), op("z", **on))
        after = inlined(module(caller, kernels=[function("k", [])])).doc
        return {key: value for key, value in row(after, "z").items() if key.endswith("dependencies")}

    plain, carried = {"dependencies": [["p", "Flow"]]}, {"loop_carried_dependencies": [["p", "Flow", 3]]}
    assert joined(plain, {"dependencies": ["C"]}) == {"dependencies": ["p"]}
    assert joined(carried, {"dependencies": [["C", "Anti"]]}) == {"loop_carried_dependencies": [["p", "Anti", 3]]}
    assert joined(plain, {"loop_carried_dependencies": [["C", "Anti", 2]]}) == {
        "loop_carried_dependencies": [["p", "Anti", 2]]
    }
    assert joined(carried, {"unroll_dependencies": [["C", "Anti", [1]]]}) == {
        "unroll_dependencies": [["p", "Anti", [1]]]
    }
    assert joined({}, {"dependencies": ["C"]}) == {}
    assert joined({"dependencies": ["gone"]}, {"dependencies": ["C"]}) == {"dependencies": ["gone"]}


@pytest.mark.parametrize(
    ("of", "there", "added"),
    [
        (["gone"], ["gone"], False),
        (["gone"], ["away"], True),
        ([["p", "Flow"]], [["p", "Flow"]], False),
        ([["p", "Flow"]], [["p", 4]], False),
        ([["p", "Flow"]], [["p", 2]], True),
        ([["p", "Flow"]], [["p", "Flow", "extra"]], True),
    ],
)
def test_n14_a_join_is_not_added_twice(of: Any, there: Any, added: bool) -> None:
    caller = function("main", [], op("p"), call("C", dependencies=of), op("z", dependencies=["C", *there]))
    outcome = inlined(module(caller, kernels=[function("k", [])]))
    assert len(edges(outcome, "z")) == len(there) + added


def test_n14_joins_through_two_empty_bodies() -> None:
    caller = function(
        "main",
        [],
        op("p"),
        call("C", dependencies=["p", "D"]),
        call("D", dependencies=["C"]),
        op("z", dependencies=["D"]),
    )
    outcome = inlined(module(caller, kernels=[function("k", [])]))
    assert edges(outcome, "z") == ["p"]


def test_n14_waits_are_repointed_per_copy() -> None:
    body_rows = [op("K1"), op("K2", sync_info={"on_wait": [{"from": "K1", "id": 3}], "on_update": []})]
    doc = bare(*body_rows)
    rows(doc).append(call("D"))
    outcome = inlined(doc)
    for site in ("C", "D"):
        assert row(outcome.doc, f"{site}_K2")["sync_info"]["on_wait"] == [{"from": f"{site}_K1", "id": 3}]


def test_n14_plain_call_sites() -> None:
    assert inlined(bare(op("K"), sync_info={}, predicates=[])).status == "changed"


def many(count: int) -> list[Obj]:
    return [op(f"K{n}") for n in range(count)]


def test_n14_done_for_more_than_8_sinks() -> None:
    outcome = inlined(bare(*many(9)))
    done = row(outcome.doc, "C_done")
    assert names(outcome.doc)[-2:] == ["C_done", "z"]
    assert done == {
        "dependencies": [[f"C_K{n}", "Ordered"] for n in range(9)],
        "engine": "DVE",
        "ins": [],
        "name": "C_done",
        "opcode": "NoOp",
        "outs": [],
    }
    assert list(done) == sorted(done)
    assert edges(outcome, "z")[1] == ["C_done", "Anti"]
    assert "C_done" not in names(inlined(bare(*many(8))).doc)


def test_n14_done_only_if_somebody_depends() -> None:
    doc = bare(*many(9))
    rows(doc)[2]["dependencies"] = ["p"]
    assert "C_done" not in names(inlined(doc).doc)
    rows(doc)[1]["loop_carried_dependencies"] = ["C"]
    assert "C_done" in names(inlined(doc).doc)


def test_n14_done_stands_before_a_terminator() -> None:
    outcome = inlined(bare(*many(9), op("E", "Exit")))
    assert names(outcome.doc)[-3:] == ["C_done", "C_E", "z"]
    assert edges(outcome, "C_done")[-1] == ["C_E", "Ordered"]


def test_n14_start_for_more_than_8_roots() -> None:
    outcome = inlined(bare(*many(9), dependencies=["p", "gone"], loop_carried_dependencies=["p"]))
    start = row(outcome.doc, "C_start")
    assert names(outcome.doc)[:3] == ["p", "C_start", "C_K0"]
    assert start["dependencies"] == ["p", "gone"]
    assert start["loop_carried_dependencies"] == ["p"]
    assert list(start) == sorted(start)
    assert edges(outcome, "C_K8") == [["C_start", "Ordered"]]
    assert "C_start" not in names(inlined(bare(*many(9))).doc)
    assert "C_start" not in names(inlined(bare(*many(8), dependencies=["p", "p"])).doc)


# N15, N16, N18, N19 and the rest


@pytest.mark.parametrize("form", ["object", "array"])
def test_n15_removed_and_the_form_kept(form: str) -> None:
    doc = bare(op("K"))
    if form == "array":
        doc["nki_functions"] = doc["nki_functions"]["functions"]
    outcome = inlined(doc)
    assert outcome.doc["nki_functions"] == ({"functions": []} if form == "object" else [])


def test_n15_what_somebody_still_names_stays() -> None:
    doc = bare(op("K"))
    doc["nki_functions"]["functions"].append(function("never", [], op("x", "Call", target="k")))
    outcome = inlined(doc)
    assert [each["name"] for each in outcome.doc["nki_functions"]["functions"]] == ["k", "never"]
    rows(doc).append(call("E", "never"))
    outcome = inlined(doc)
    assert outcome.doc["nki_functions"]["functions"] == [doc["nki_functions"]["functions"][0]]
    assert row(outcome.doc, "E_x")["target"] == "k"


def test_n15_a_call_in_a_loop_without_trips_names_nobody() -> None:
    doc = bare(op("K"))
    never = function("never", [], loop("L", "i", (0, 0, 1), op("x", "Call", target="k")))
    doc["nki_functions"]["functions"].append(never)
    rows(doc).append(call("E", "never"))
    assert inlined(doc).doc["nki_functions"] == {"functions": []}


def test_r2_owner_of_a_location_of_another_function() -> None:
    other = function("other", [memory_set("q_set")])
    doc = bare(op("K", ins=[access("q", memref_owner_func="other")]))
    doc["functions"].append(other)
    assert row(inlined(doc).doc, "C_K")["ins"] == [access("q", memref_owner_func="other")]
    rows(doc["nki_functions"])[0]["ins"][0]["memref_owner_func"] = "nobody"
    assert failure(doc) == "unresolved_name"


def test_n16_provenance() -> None:
    outcome = inlined(bare(loop("L", "i", (0, 2, 1), op("K")), kernel_source_val=2))
    before = Provenance()
    clone = Provenance("K", "k", "Beta3", ("C",), 1)
    assert outcome.provenance == [before, clone, clone, before]


@pytest.mark.parametrize(("written", "kept"), [(None, "Beta1"), ("Beta2", "Beta2"), (1, "Beta2")])
def test_n9_kernel_sources(written: Any, kept: str) -> None:
    outcome = inlined(bare(op("K"), kernel_source_val=written))
    assert outcome.provenance[1].kernel_source == kept


def test_n18_nothing_else_changes() -> None:
    doc = bare(op("K"))
    doc["functions"].append(function("other", [memory_set("q_set")], op("x", zz=None), extra=1))
    doc["functions"].append(function("other", [], op("y", dependencies=[])))
    outcome = inlined(doc)
    assert json.dumps(outcome.doc["functions"][1:]) == json.dumps(doc["functions"][1:])
    assert list(outcome.doc) == list(doc)
    assert json.dumps(rows(outcome.doc)[0]) == json.dumps(rows(doc)[0])


def test_o2_without_call_sites_unchanged() -> None:
    assert inlined(module(function("main", [], op("p")), kernels=[function("k", [])])).status == "unchanged"


def test_n19_output_that_is_never_written() -> None:
    unwritten = kernel(op("K", ins=[access("c")], outs=[access("t")]))
    outcome = inlined(one_call(callee=unwritten))
    assert (outcome.status, outcome.codes()) == ("changed", {("warning", "output_not_written")})
    assert inlined(one_call()).codes() == set()
    no_trips = kernel(loop("L", "i", (0, 0, 1), op("K", outs=[access("c")])))
    assert inlined(one_call(callee=no_trips)).codes() == {("warning", "output_not_written")}


def test_o6_size() -> None:
    # p, z, 6 clones, and the unrolled body with its Return: 2 + 6 + 7.
    doc = bare(loop("L", "i", (0, 3, 1), op("K1"), op("K2")), op("R", "Return"))
    assert inlined(doc, max_instructions=15).status == "changed"
    outcome = inlined(doc, max_instructions=14)
    assert outcome.codes() == {("error", "too_many_instructions")}
    assert "15" in outcome.diagnostics[0].message


def test_order_of_checks() -> None:
    doc = bare(loop("L", "i", (0, 3, 0), op("K")), kernel_source_val="x")
    assert failure(doc) == "unknown_kernel_source"
    assert failure(doc, max_instructions=1) == "too_many_instructions"
    rows(doc).append(call("D", "nobody"))
    assert failure(doc, max_instructions=1) == "no_callee"
    rows(doc)[-1]["is_allocated"] = True
    assert failure(doc, allocated=False) == "unknown_kernel_source"


def test_r3_edges_resolve_to_call_sites_by_position() -> None:
    doc = bare(op("K"))
    rows(doc).insert(2, op("C"))
    outcome = inlined(doc)
    # The nearest earlier `C` is the NoOp, not the call-site.
    assert edges(outcome, "z")[1] == ["C", "Anti"]


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample module is not there")
def test_sample_module() -> None:
    doc = json.loads(SAMPLE.read_text())
    outcome = inlined(doc)
    assert (outcome.status, outcome.codes()) == ("changed", set())
    site = "inst__nki_add_one"
    assert names(outcome.doc)[2:] == [f"{site}_K-{step}-{n}" for n in range(4) for step in (1, 2, 3)]
    made = allocations(outcome.doc)
    assert made[f"{site}:t_in_set"]["memorylocations"][0]["addr"] == 18432
    assert made[f"{site}:t_out_set"]["memorylocations"][0]["addr"] == 18432 + 512
    last = row(outcome.doc, f"{site}_K-3-3")
    assert (last["outs"][0]["memref"], last["outs"][0]["memsetref"]) == ("output0", "output0_set")
    assert last["outs"][0]["offset"] == 3 * 128
    assert last["dependencies"] == [[f"{site}_K-2-3", "Flow"], [f"{site}_K-2-2", "Anti"]]
    assert all(list(each) == sorted(each) for each in rows(outcome.doc))
    assert outcome.doc["nki_functions"] == {"functions": []}
    assert inlined(doc, allocated=False).status == "unchanged"
