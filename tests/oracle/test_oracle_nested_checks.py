"""The oracle of what is checked, skipped and removed when kernels call kernels (N1, N2, N15, N19, O6)."""

import copy
from typing import Any

import pytest

from tests.oracle import Provenance
from tests.oracle.builders import (
    Obj,
    access,
    allocations,
    block,
    call,
    function,
    loop,
    memory_set,
    module,
    names,
    op,
    register,
    row,
    rows,
    sb_set,
)
from tests.oracle.calls import failure, inlined
from tests.oracle.nested_calls import bound, kernel_names, nested, scratch

# N2: the gate inside kernels


def allocated_inner(**site: Any) -> Obj:
    """`k1` is not allocated, `k2` is; `k1` calls it with its parameter, its own memory and something unknown."""
    inner = function("k2", [memory_set("a_set", "Input"), memory_set("c_set", "Output"), sb_set("i_set")], op("K"))
    own = [memory_set("a_set", "Input"), memory_set("t_set"), register("r")]
    maps = {"func_args": {"a": "a_set"}, "func_outs": [["c", "t"], ["q", "gone"], ["i", "t_set"], ["u", "r"]]}
    outer = function("k1", own, op("A"), call("D", "k2", ins=[access("a")], outs=[access("t")], **(maps | site)))
    main = function("main", [memory_set("x_set")], call("C", "k1", func_args={"a": "x"}))
    return module(main, kernels=[outer, inner])


def test_n3_a_skipped_inner_call_site_is_cloned() -> None:
    doc = allocated_inner(dependencies=["A"], sb_buf_shape=[0, 0], optin_passes=15)
    outcome = inlined(doc, allocated=False)
    assert outcome.codes() == {("note", "call_site_skipped")}
    [note] = outcome.diagnostics
    assert (note.function, note.block, note.instruction) == ("k1", "Block1", "D")
    assert note.message.startswith("Skip lowering D because")
    assert names(outcome.doc) == ["C_A", "C_D"]
    inner_site = doc["nki_functions"]["functions"][0]["blocks"][0]["instructions"][1]
    assert row(outcome.doc, "C_D") == inner_site | {
        "name": "C_D",
        "func_args": {"a": "x_set"},
        "func_outs": [["c", "C:t"], ["q", "gone"], ["i", "C:t_set"], ["u", "C:r"]],
        "ins": [access("x")],
        "outs": [access("C:t")],
        "dependencies": ["C_A"],
        "optin_passes": 3,
    }
    assert outcome.provenance[1] == Provenance("D", "k1", "Beta1", ("C",), 1)
    # The outer kernel is gone, the inner one is still named.
    assert kernel_names(outcome.doc) == ["k2"]


def test_n2_the_second_position_takes_what_the_first_left() -> None:
    doc = allocated_inner(func_outs={"c": "t"})
    first = inlined(doc, allocated=False)
    second = inlined(first.doc, allocated=True)
    assert names(second.doc) == ["C_A", "C_D_K"]
    assert kernel_names(second.doc) == []
    # The rows of both at once; but the call-site whose storage it is has another name.
    at_once = inlined(doc)
    assert at_once.doc["functions"][0]["blocks"] == second.doc["functions"][0]["blocks"]
    assert [list(allocations(each.doc))[-1] for each in (at_once, second)] == ["C:D:i_set", "C_D:i_set"]


def test_n2_the_outer_kernels_status_is_its_own() -> None:
    doc = allocated_inner()
    outcome = inlined(doc, allocated=True)
    assert outcome.status == "unchanged"
    # What stands in a kernel that is not expanded is not looked at: one note, about `C`.
    assert [each.instruction for each in outcome.diagnostics] == ["C"]


def test_n2_a_status_recorded_on_an_inner_call_site() -> None:
    doc = nested(call("D", "k2", is_allocated=True), call("E", "k2", is_allocated=False))
    outcome = inlined(doc, allocated=False)
    assert names(outcome.doc) == ["p", "C_D", "C_E_K1", "C_E_K2", "z"]
    assert kernel_names(outcome.doc) == ["k2"]
    assert "NKIKernel" in [each["opcode"] for each in rows(outcome.doc)]
    nobody = nested(call("D", "nobody", is_allocated=True))
    assert row(inlined(nobody, allocated=False).doc, "C_D")["func"] == "nobody"


def test_n2_one_note_for_a_skipped_inner_call_site_however_often_it_is_cloned() -> None:
    doc = nested(call("D", "k2", is_allocated=True))
    rows(doc).append(call("E", "k1"))
    outcome = inlined(doc, allocated=False)
    assert names(outcome.doc) == ["p", "C_D", "z", "E_D"]
    assert [each.instruction for each in outcome.diagnostics] == ["D"]


def test_r5_operands_of_a_skipped_inner_call_site_have_to_resolve() -> None:
    doc = nested(call("D", "k2", is_allocated=True, ins=[access("gone")]))
    outcome = inlined(doc, allocated=False)
    [found] = outcome.diagnostics
    assert (found.code, found.function, found.instruction) == ("unresolved_name", "k1", "D")
    # Those of one that is expanded are not needed.
    assert inlined(nested(call("D", "k2", ins=[access("gone")]))).status == "changed"


def test_r5_unresolved_edges_of_an_inner_call_site() -> None:
    outcome = inlined(nested(call("D", "k2", dependencies=["gone"])))
    [found] = outcome.diagnostics
    assert (found.code, found.function, found.instruction) == ("unresolved_name", "k1", "D_K1")


# N15


def test_n15_a_kernel_that_only_a_removed_kernel_names() -> None:
    doc = nested(call("D", "k2"))
    doc["nki_functions"]["functions"].append(function("never", [], op("x")))
    assert kernel_names(inlined(doc).doc) == ["never"]
    # Named by a `Call` of the removed kernel only: never expanded, and its clone names it.
    doc["nki_functions"]["functions"][0]["blocks"][0]["instructions"].append(op("Y", "Call", target="never"))
    assert kernel_names(inlined(doc).doc) == ["never"]


def test_n15_a_kernel_that_stays_keeps_those_that_it_calls() -> None:
    doc = nested(call("D", "k2"), site={"is_allocated": False})
    rows(doc).append(call("S", "k1", is_allocated=True))
    outcome = inlined(doc, allocated=False)
    assert names(outcome.doc) == ["p", "C_D_K1", "C_D_K2", "z", "S"]
    assert outcome.doc["nki_functions"] == doc["nki_functions"]


def test_n15_a_call_inside_an_inner_body_remains() -> None:
    inner = function("k2", [], op("K", "Call", target="k3"))
    doc = nested(call("D", "k2"), inner=inner)
    doc["nki_functions"]["functions"].append(function("k3", [], op("x")))
    rows(doc).append(call("E", "k3"))
    outcome = inlined(doc)
    assert kernel_names(outcome.doc) == ["k3"]
    assert row(outcome.doc, "C_D_K")["target"] == "k3"


def test_n15_an_inner_call_site_in_a_loop_without_trips_is_expanded_all_the_same() -> None:
    doc = nested(loop("L", "i", (0, 0, 1), call("D", "k2")), op("A"))
    outcome = inlined(doc)
    assert names(outcome.doc) == ["p", "C_A", "z"]
    assert kernel_names(outcome.doc) == []
    skipped = nested(loop("L", "i", (0, 0, 1), call("D", "k2", is_allocated=True)), op("A"))
    assert kernel_names(inlined(skipped, allocated=False).doc) == ["k2"]


# N19


def test_n19_writes_through_a_binding() -> None:
    assert inlined(bound()).codes() == set()
    # The inner kernel writes neither: a warning each, for `k2` and for `k1`.
    unwritten = inlined(bound(op("K", ins=[access("a")])))
    assert sorted(each.function or "" for each in unwritten.diagnostics) == ["k1", "k2"]
    assert unwritten.codes() == {("warning", "output_not_written")}
    # What a skipped call-site names counts as written.
    assert inlined(bound(op("K"), is_allocated=True), allocated=False).codes() == {("note", "call_site_skipped")}


# Order of checks


def test_order_of_checks_inner_call_sites_are_checked_like_outer_ones() -> None:
    doc = bound()
    site = doc["nki_functions"]["functions"][0]["blocks"][0]["instructions"][0]

    def with_site(**changes: Any) -> Obj:
        changed = copy.deepcopy(doc)
        changed["nki_functions"]["functions"][0]["blocks"][0]["instructions"] = [site | changes]
        return changed

    for changes, code in (
        ({"func": None}, "no_callee"),
        ({"kernel_source_val": 7}, "unknown_kernel_source"),
        ({"sync_info": {"on_wait": []}}, "call_site_not_plain"),
        ({"func_args": {"t": "a"}}, "unknown_parameter"),
        ({"func_args": {"a": "gone"}}, "unresolved_name"),
        ({"sb_buf_shape": [1]}, "scratchpad_count"),
        ({"func_args": {}}, "unbound_parameter"),
    ):
        outcome = inlined(with_site(**changes))
        [found] = outcome.diagnostics
        assert (found.code, found.function, found.block, found.instruction) == (code, "k1", "Block1", "D")
    # An outer call-site stands before, whatever is wrong inside; but the callee is asked for first.
    rows(doc)[0]["kernel_source_val"] = 9
    site["sync_info"] = {"on_wait": []}
    assert failure(doc) == "unknown_kernel_source"
    site["func"] = "nobody"
    assert failure(doc) == "no_callee"


def test_order_of_checks_callee_cycle_size() -> None:
    doc = nested(call("D", "k2"), inner=function("k2", [], call("a", "k1"), call("b", "nobody")))
    assert failure(doc, max_instructions=0) == "no_callee"
    doc["nki_functions"]["functions"][1]["blocks"][0]["instructions"].pop()
    assert failure(doc, max_instructions=0) == "recursive_kernel"
    # Not expanded, not looked at.
    rows(doc)[1] = op("C")
    assert inlined(doc).status == "unchanged"


def test_order_of_checks_bodies_bottom_up() -> None:
    # The inner body has an unresolved name, the outer one a loop without a stride.
    doc = nested(
        loop("L", "i", (0, 1, 0), op("A")), call("D", "k2"), inner=function("k2", [], op("K", ins=[access("q")]))
    )
    assert failure(doc) == "unresolved_name"
    doc["nki_functions"]["functions"][1]["blocks"][0]["instructions"] = [op("K")]
    assert failure(doc) == "zero_stride"
    # The scratchpad of an inner call-site comes before the outer body's own faults.
    doc = scratch(pad=sb_set("pad_set", 200, base=32))
    doc["nki_functions"]["functions"][0]["blocks"][0]["instructions"].append(loop("L", "i", (0, 1, 0), op("A")))
    assert failure(doc) == "scratchpad_base"
    # But those of the outermost after all bodies.
    doc["nki_functions"]["functions"][0]["allocations"][1] = sb_set("pad_set", 200)
    doc["functions"][0]["allocations"][0] = sb_set("m_set", 1000, base=32)
    assert failure(doc) == "zero_stride"


@pytest.mark.parametrize("fault", ["inner", "outer"])
def test_o9_nothing_changes_when_a_level_fails(fault: str) -> None:
    inner = function("k2", [], op("K", ins=[access("gone")] if fault == "inner" else []))
    doc = nested(call("D", "k2"), op("A", ins=[access("gone")] if fault == "outer" else []), inner=inner)
    assert failure(doc) == "unresolved_name"


# O6


def test_o6_size_of_nested_bodies() -> None:
    # k2: 2 rows and a Return; k1: A, 2 + 2; main: p, z, 5. Sum 7 + 5 + 3.
    inner = function("k2", [], op("K1"), op("K2"), op("R", "Return"))
    doc = nested(op("A"), call("D", "k2"), call("E", "k2"), inner=inner)
    assert inlined(doc, max_instructions=15).status == "changed"
    outcome = inlined(doc, max_instructions=14)
    assert outcome.codes() == {("error", "too_many_instructions")}
    assert "15" in outcome.diagnostics[0].message


def test_o6_inner_bodies_in_loops() -> None:
    # k2: 2; k1: 3 * (2 + 1) and the Return of the outer body; main: p, z, 9. Sum 11 + 10 + 2.
    doc = nested(loop("L", "i", (0, 3, 1), call("D", "k2"), op("A")), op("R", "Return"))
    outcome = inlined(doc, max_instructions=23)
    assert len(names(outcome.doc)) == 11
    assert "23" in inlined(doc, max_instructions=22).diagnostics[0].message


def test_o6_a_loop_of_nothing_but_an_empty_body_is_counted() -> None:
    doc = nested(loop("L", "i", (0, 3, 1), call("D", "k2")), inner=function("k2", []))
    assert names(inlined(doc, max_instructions=8).doc) == ["p", "C_D_noop-0", "C_D_noop-1", "C_D_noop-2", "z"]
    assert failure(doc, max_instructions=7) == "too_many_instructions"
    huge = nested(loop("L", "i", (0, 10**12, 1), call("D", "k2")), inner=function("k2", []))
    assert failure(huge) == "too_many_instructions"


def test_o6_a_split_inner_body() -> None:
    # k2: 2 with the Return, split; k1: 2 + its own Return, a branch then; main: p, z, 3. Sum 5 + 3 + 2.
    inner = function("k2", [], blocks=[block("b1", op("K1")), block("b2", op("R", "Return"))])
    doc = nested(call("D", "k2"), op("S", "Return"), inner=inner)
    assert inlined(doc, max_instructions=10).status == "changed"
    assert failure(doc, max_instructions=9) == "too_many_instructions"
