"""Rules N15, N19, R5, O6, O7 and the order of checks for kernels that call kernels: what is checked, left and said."""

import copy
import logging
from functools import partial
from typing import Any

import pytest

from tests.block_bodies import kernel_names, many
from tests.oracle.builders import (
    access,
    axis,
    block,
    call,
    function,
    jump,
    loop,
    module,
    names,
    op,
    row,
    rows,
    sb_set,
)
from tests.oracle.nested_calls import bound, nested, scratch
from tests.single_pass import Json, refused, run_pass

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")


SKIPPED = (
    "Skip lowering E because the allocation status of the kernel is not consistent "
    "with the current location of the pass"
)


def kernels_of(document: Json) -> list[Json]:
    return document["nki_functions"]["functions"]


def with_kernels(document: Json, *more: Json) -> Json:
    kernels_of(document).extend(more)
    return document


def calls(name: str, target: str) -> Json:
    return op(name, "Call", target=target, arguments={})


# N15: clean-up


def test_n15_inner_and_outer_kernels_go_and_the_form_stays() -> None:
    document = with_kernels(nested(call("D", "k2")), function("never", [], op("x")))
    document["nki_functions"] = kernels_of(document)
    assert inline(document).doc["nki_functions"] == [function("never", [], op("x"))]


def test_n15_a_kernel_that_stays_keeps_those_that_its_call_sites_name() -> None:
    # `k1` stays for the call-site that is skipped, so `k2` does, although that one could be inlined.
    document = with_kernels(nested(call("D", "k2"), site={"is_allocated": False}), function("k3", [], op("x")))
    kernels_of(document)[1]["blocks"][0]["instructions"].append(call("E", "k3"))
    rows(document).append(call("S", "k1", is_allocated=True))
    outcome = inline(document, allocated=False)
    assert names(outcome.doc) == ["p", "C_D_K1", "C_D_K2", "C_D_E_x", "z", "S"]
    assert outcome.doc["nki_functions"] == document["nki_functions"]


def test_n15_a_call_of_an_ordinary_function_keeps_the_whole_path() -> None:
    document = nested(call("D", "k2"))
    document["functions"].append(function("other", [], calls("J", "k1")))
    assert kernel_names(inline(document).doc) == ["k1", "k2"]
    document["functions"][1]["blocks"][0]["instructions"] = [calls("J", "k2")]
    assert kernel_names(inline(document).doc) == ["k2"]


def test_n15_a_call_inside_an_inner_body_names_from_its_clone() -> None:
    document = with_kernels(nested(call("D", "k2"), inner=function("k2", [], calls("J", "k3"))), function("k3", []))
    rows(document).append(call("E", "k3"))
    outcome = inline(document)
    assert row(outcome.doc, "C_D_J")["target"] == "k3"
    assert kernel_names(outcome.doc) == ["k3"]


def test_n15_what_a_clone_names_keeps_what_that_names() -> None:
    # The clone of J names `k1`, which stays then, and with it `k2`, from which J came.
    outcome = inline(nested(call("D", "k2"), inner=function("k2", [], calls("J", "k1"))))
    assert names(outcome.doc) == ["p", "C_D_J", "z"]
    assert kernel_names(outcome.doc) == ["k1", "k2"]


def test_n15_a_call_in_a_loop_without_trips_of_an_inner_body_is_gone() -> None:
    inner = function("k2", [], op("K"), loop("M", "j", (0, 0, 1), calls("J", "k3")))
    document = with_kernels(nested(call("D", "k2"), inner=inner), function("k3", [], op("x")))
    rows(document).append(call("E", "k3"))
    assert kernel_names(inline(document).doc) == []
    # The loop of the outer kernel around the call-site likewise.
    document = with_kernels(
        nested(loop("L", "i", (0, 0, 1), call("D", "k2")), op("A"), inner=function("k2", [], calls("J", "k3"))),
        function("k3", [], op("x")),
    )
    rows(document).append(call("E", "k3"))
    assert kernel_names(inline(document).doc) == []


def test_n15_a_kernel_that_was_never_expanded_stays() -> None:
    document = with_kernels(nested(call("D", "k2"), calls("J", "k3")), function("k3", [], call("X", "k2")))
    # `k3` is named by a clone; it stays and names `k2`.
    assert kernel_names(inline(document).doc) == ["k2", "k3"]


def test_n15_a_skipped_inner_call_site_keeps_its_callee_alone() -> None:
    document = with_kernels(nested(call("D", "k2", is_allocated=True), call("E", "k3")), function("k3", [], op("x")))
    outcome = inline(document, allocated=False)
    assert kernel_names(outcome.doc) == ["k2"]
    assert outcome.ir.calls["callee_id"].to_list() == [1]


# N19: outputs that are never written


def test_n19_what_an_inner_body_writes_counts() -> None:
    assert inline(bound()).codes == []


def test_n19_a_warning_for_each_kernel_that_is_expanded() -> None:
    outcome = inline(bound(op("K", ins=[access("a")])))
    assert outcome.codes == [("warning", "output_not_written")] * 2
    assert sorted((m.function, m.set, m.location) for m in outcome.messages) == [
        ("k1", "c_set", "c"),
        ("k2", "c_set", "c"),
    ]


@pytest.mark.parametrize("maps", [{}, {"func_outs": {}, "outs": [access("c")]}])
def test_n19_what_a_skipped_inner_call_site_names_counts_as_written(maps: Json) -> None:
    outcome = inline(bound(op("K"), is_allocated=True, **maps), allocated=False)
    assert outcome.codes == [("note", "call_site_skipped")]


def test_n19_an_inner_call_site_in_a_loop_without_trips_writes_nothing() -> None:
    document = bound()
    site = rows(document["nki_functions"]).pop()
    rows(document["nki_functions"]).append(loop("L", "i", (0, 0, 1), site))
    outcome = inline(document)
    assert [(m.code, m.function) for m in outcome.messages] == [("output_not_written", "k1")]


# R5, R4, N4: faults inside kernels


def test_r5_an_unresolved_name_of_an_inner_body() -> None:
    message = fault(nested(call("D", "k2"), inner=function("k2", [], op("K", ins=[access("gone")]))))
    assert (message.code, message.function, message.instruction) == ("unresolved_name", "k2", "K")
    assert (message.function_id, "`gone`" in message.message) == (2, True)


def test_r5_an_unresolved_edge_of_an_inner_call_site_is_one_of_its_roots() -> None:
    message = fault(nested(call("D", "k2", dependencies=["gone"])))
    assert (message.code, message.function, message.instruction) == ("unresolved_name", "k1", "D_K1")
    assert "`gone`" in message.message


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"func": None}, "no_callee"),
        ({"func": "twin"}, "ambiguous_callee"),
        ({"kernel_source_val": 7}, "unknown_kernel_source"),
        ({"sync_info": {"on_wait": []}}, "call_site_not_plain"),
        ({"predicates": [{}]}, "call_site_not_plain"),
        ({"func_args": {"t": "a"}}, "unknown_parameter"),
        ({"func_args": {"a": "gone"}}, "unresolved_name"),
        ({"sb_buf_shape": [1]}, "scratchpad_count"),
        ({"func_args": {}}, "unbound_parameter"),
        ({"func_args": {"a": "small"}}, "parameter_size_mismatch"),
        ({"func_args": {"a": "empty_set"}}, "parameter_location_count"),
    ],
)
def test_n4_inner_call_sites_are_checked_like_outer_ones(changes: Json, code: str) -> None:
    document = with_kernels(bound(), *(function("twin", [], op("x")) for _ in range(2)))
    storage = kernels_of(document)[0]["allocations"]
    storage += [
        copy.deepcopy(storage[0])
        | {"name": f"{name}_set", "kind": "Internal", "memorylocations": [{"name": name} | more for more in locations]}
        for name, locations in (("small", [{"type": "DRAM", "addr": 0, "dims": [1, 4]}]), ("empty", []))
    ]
    rows(document["nki_functions"])[0].update(changes)
    message = fault(document)
    assert (message.code, message.function, message.block, message.instruction) == (code, "k1", "Block1", "D")
    assert (message.function_id, message.block_id, message.instruction_id) == (1, 1, 1)


def test_n1_call_sites_of_kernels_that_are_not_expanded_are_not_checked() -> None:
    document = nested(op("A"), inner=function("k2", [], call("X", "nobody"), call("Y", "k3", kernel_source_val="no")))
    with_kernels(document, function("k3", [], call("Z", "k3")))
    outcome = inline(document)
    assert (outcome.codes, kernel_names(outcome.doc)) == ([], ["k2", "k3"])
    rows(document)[1]["is_allocated"] = True
    rows(document["nki_functions"])[0] = call("D", "k2", func_args={"nobody": "nothing"})
    rows(document["nki_functions"], 1)[1]["func"] = "k2x"
    assert inline(document, allocated=False).codes == [("note", "call_site_skipped")]


# the order of checks


def test_order_of_checks_through_levels() -> None:
    """Faults are added from the last to the first that is looked for; each hides those before it."""
    document = scratch(pad=sb_set("pad_set", 200))
    main, (outer, inner) = document["functions"][0], kernels_of(document)
    outermost, pad = main["allocations"][0]["memorylocations"][0], outer["allocations"][1]["memorylocations"][0]
    first, inner_rows = rows(document["nki_functions"])[0], rows(document["nki_functions"], 1)

    def found(**options: Any) -> tuple[str, str | None]:
        message = fault(document, **options)
        return message.code, message.function

    outermost["base"] = 32
    assert found() == ("scratchpad_base", "main")
    outer["blocks"][0]["instructions"].append(op("A", ins=[access("gone")]))
    assert found() == ("unresolved_name", "k1")
    outer["blocks"][0]["instructions"].append(loop("L", "i", (0, 1, 0), op("B")))
    assert found() == ("zero_stride", "k1")
    pad["base"] = 32
    assert found() == ("scratchpad_base", "k1")
    inner_rows.append(op("M", dependencies=["gone"]))
    assert found() == ("unresolved_name", "k2")
    inner_rows.append(loop("L", "i", (0, 1, 0), op("N")))
    assert found() == ("zero_stride", "k2")
    first["func_outs"] = {"nobody": "o"}
    assert found() == ("unknown_parameter", "k1")
    first["kernel_source_val"] = "no"
    assert found() == ("unknown_kernel_source", "k1")
    rows(document)[0]["predicates"] = [{"expr": 1}]
    assert found() == ("call_site_not_plain", "main")
    assert found(max_instructions=1)[0] == "too_many_instructions"
    inner_rows.append(call("X", "k1"))
    assert found(max_instructions=1)[0] == "recursive_kernel"
    inner_rows.append(call("Y", "nobody"))
    assert found(max_instructions=1) == ("no_callee", "k2")
    assert inner["name"] == "k2"


def test_order_of_checks_functions_in_file_order() -> None:
    """A kernel among the functions stands before the function that calls it."""
    document = module(
        function("main", [], call("B", "k3")),
        function("k1", [], call("D", "k2", kernel_source_val="no")),
        function("late", [], call("C", "k1", predicates=[1])),
        kernels=[function("k2", [], op("K")), function("k3", [], op("K"))],
    )
    assert fault(document).code == "unknown_kernel_source"
    document["functions"][1:] = document["functions"][:0:-1]
    assert fault(document).code == "call_site_not_plain"


@pytest.mark.parametrize(("sites", "body"), [(("k1", "k3"), "k2"), (("k3", "k1"), "k3"), (("k1", "k2"), "k2")])
def test_order_of_checks_bodies_after_those_that_they_call(sites: tuple[str, ...], body: str) -> None:
    bad = loop("L", "i", (0, 1, 0), op("N"))
    document = module(
        function("main", [], *(call(f"C{n}", name) for n, name in enumerate(sites))),
        kernels=[
            function("k3", [], copy.deepcopy(bad)),
            function("k1", [], copy.deepcopy(bad), call("D", "k2")),
            function("k2", [], copy.deepcopy(bad)),
        ],
    )
    message = fault(document)
    assert (message.code, message.function) == ("zero_stride", body)


def test_order_of_checks_inner_call_sites_in_program_order() -> None:
    bad = function("kb", [], op("K", ins=[access("gone")]))
    worse = function("kw", [], loop("L", "i", (0, 1, 0), op("K")))
    for order, code in ((("kb", "kw"), "unresolved_name"), (("kw", "kb"), "zero_stride")):
        document = with_kernels(nested(call("D", order[0]), call("E", order[1])), bad, worse)
        assert fault(document).code == code


def test_o3_o9_a_fault_in_an_inner_body_leaves_everything_as_it_was() -> None:
    document = bound(op("K", ins=[access("a")]), op("L", ins=[access("gone")]))
    rows(document).append(call("S", "k2", is_allocated=True))
    # One row: the warnings and notes of a module that fails are left out.
    assert fault(document, allocated=False).code == "unresolved_name"


# O6: the size


INNER = function("k2", [], op("K1"), op("K2"), op("R", "Return"))


@pytest.mark.parametrize(
    ("document", "size"),
    [
        # k2 has 3 rows; k1: A, 2 and 2; main: p, z and k1's
        (nested(op("A"), call("D", "k2"), call("E", "k2"), inner=INNER), 3 + 5 + 7),
        # ... of which k1's Return is none
        (nested(call("D", "k2"), op("S", "Return"), inner=INNER), 3 + 3 + 4),
        (nested(loop("L", "i", (0, 3, 1), call("D", "k2"), op("A")), inner=INNER), 3 + 9 + 11),
        (nested(loop("L", "i", (0, 3, 1), loop("M", "j", (0, 2, 1), call("D", "k2"))), inner=INNER), 3 + 12 + 14),
        (nested(call("D", "k2"), inner=function("k2", [], loop("L", "i", (0, 4, 1), op("K")))), 4 + 4 + 6),
        # expanded, though nothing of it is left
        (nested(loop("L", "i", (0, 0, 1), call("D", "k2")), op("A"), inner=INNER), 3 + 1 + 3),
        # split: the Return stays
        (nested(call("D", "k2"), inner=function("k2", [], op("R", "Return"), op("K"))), 2 + 2 + 4),
        (nested(call("D", "k2"), op("S", "Return"), inner=function("k2", [], jump("J", "Block1"))), 1 + 2 + 4),
        (nested(call("D", "k2"), inner=function("k2", [], blocks=[block("a", op("K")), block("b")])), 1 + 1 + 3),
        # a kernel that stays: its rows as in the file
        (with_kernels(nested(call("D", "k2"), calls("J", "k1"), inner=INNER)), 3 + 3 + 5 + 2 + 3),
        # k0 and k1 call k2: once per callee
        (
            with_kernels(nested(call("D", "k2"), call("E", "k0"), inner=INNER), function("k0", [], call("F", "k2"))),
            3 + 2 + 4 + 6,
        ),
    ],
)  # fmt: skip
def test_o6_rows_after_the_pass_and_each_body_with_what_it_calls(document: Json, size: int) -> None:
    assert inline(document, max_instructions=size).status == "changed"
    message = fault(document, max_instructions=size - 1)
    assert (message.code, message.compiler_code) == ("too_many_instructions", "ELUR015")
    assert f"{size:,} instructions" in message.message


def test_o6_noops_that_empty_bodies_leave() -> None:
    empty = function("k2", [])
    once = nested(call("D", "k2"), inner=empty)
    assert f"{0 + 1 + 3} instructions" in fault(once, max_instructions=3).message
    looped = nested(loop("L", "i", (0, 3, 1), call("D", "k2")), inner=empty)
    assert names(inline(looped, max_instructions=8).doc) == ["p", "C_D_noop-0", "C_D_noop-1", "C_D_noop-2", "z"]
    assert f"{0 + 3 + 5} instructions" in fault(looped, max_instructions=7).message
    # Two rungs: a NoOp, two of them, four of them.
    ladder = [function(f"k{n}", [], call("X", f"k{n + 1}"), call("Y", f"k{n + 1}")) for n in range(3)]
    document = module(function("main", [], call("C", "k0")), kernels=[*ladder, function("k3", [])])
    assert len(names(inline(document, max_instructions=1 + 2 + 4 + 4).doc)) == 4
    assert fault(document, max_instructions=1 + 2 + 4 + 3).code == "too_many_instructions"


def test_o6_a_huge_product_through_levels_is_refused_before_anything_is_made() -> None:
    inner = function("k2", [], loop("M", "j", (0, 10**6, 1), op("K", v=axis("j"))))
    document = nested(loop("L", "i", (0, 10**6, 1), call("D", "k2")), inner=inner)
    message = fault(document)
    assert message.code == "too_many_instructions"
    assert "25,000,000 allowed" in message.message


def test_o6_what_is_skipped_is_a_row() -> None:
    document = nested(loop("L", "i", (0, 5, 1), call("D", "k2", is_allocated=True)), inner=INNER)
    assert inline(document, allocated=False, max_instructions=5 + 7 + 3).status == "changed"
    assert fault(document, allocated=False, max_instructions=5 + 7 + 2).code == "too_many_instructions"


# O7: log lines


def test_o7_log_lines_of_every_level(caplog: pytest.LogCaptureFixture) -> None:
    document = with_kernels(
        nested(call("D", "k2"), call("E", "k3", is_allocated=True), inner=function("k2", [], *many(1))),
        function("k3", [], call("X", "k2")),
    )
    with caplog.at_level(logging.INFO, "arrowir.passes.inline_nki_kernel"):
        inline(document, allocated=False)
    assert [r.getMessage() for r in caplog.records] == [
        "Found InstNKIKernel: C",
        "Found InstNKIKernel: D",
        "Found InstNKIKernel: E",
        SKIPPED,
        "dropping func k1",
    ]
