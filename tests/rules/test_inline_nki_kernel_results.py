"""Rules N15, N16, N18, N19, O6, O7 and the order of checks: what inlining leaves, records and says."""

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import arrowir as air
from arrowir.diagnostics import CODES
from tests.oracle.builders import (
    access,
    call,
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
    sb_set,
)
from tests.oracle.calls import bare, formals, kernel, one_call
from tests.single_pass import Json, read, refused, run_pass, written

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")

LOGGER = "arrowir.passes.inline_nki_kernel"


def kernels(*functions: Json, main: tuple[Json, ...]) -> Json:
    return module(function("main", [], *main), kernels=list(functions))


def kernel_names(document: Json) -> list[str]:
    return [f["name"] for f in document["nki_functions"]["functions"]]


def jump(name: str, target: str) -> Json:
    return op(name, "Call", target=target, arguments={})


# N15: clean-up


@pytest.mark.parametrize("form", ["object", "array", "object with more"])
def test_n15_kernels_are_removed_and_the_form_is_kept(form: str) -> None:
    document = bare(op("K"))
    if form == "array":
        document["nki_functions"] = document["nki_functions"]["functions"]
    if form == "object with more":
        document["nki_functions"] = {"a": 1, **document["nki_functions"], "b": None}
    expected = {"object": {"functions": []}, "array": [], "object with more": {"a": 1, "functions": [], "b": None}}
    assert inline(document).doc["nki_functions"] == expected[form]


def test_n15_one_that_nobody_ever_named_stays() -> None:
    document = kernels(function("k", [], op("K")), function("lone", [], op("L")), main=(call("C"),))
    outcome = inline(document)
    assert outcome.doc["nki_functions"]["functions"] == document["nki_functions"]["functions"][1:]


def test_n15_one_that_a_skipped_call_site_names_stays() -> None:
    document = kernels(function("k", [], op("K")), main=(call("C"), call("D", is_allocated=True)))
    assert kernel_names(inline(document, allocated=False).doc) == ["k"]
    assert kernel_names(inline(document).doc) == []


@pytest.mark.parametrize("place", ["main", "other", "kernel"])
def test_n15_one_that_a_call_of_any_function_that_stays_names_stays(place: str) -> None:
    remaining = jump("J", "k")
    document = module(
        function("main", [], call("C"), *([remaining] if place == "main" else [])),
        function("other", [], *([remaining] if place == "other" else [])),
        kernels=[function("k", [], op("K")), function("lone", [], *([remaining] if place == "kernel" else []))],
    )
    outcome = inline(document)
    assert kernel_names(outcome.doc) == ["k", "lone"]
    assert names(outcome.doc)[0] == "C_K"


def test_n15_a_call_site_in_a_kernel_that_stays_names_too() -> None:
    document = kernels(function("k", [], op("K")), function("lone", [], call("X", "k")), main=(call("C"),))
    assert kernel_names(inline(document).doc) == ["k", "lone"]


def test_n15_a_call_inside_a_body_names_from_its_clone() -> None:
    document = kernels(function("k", [], op("K")), function("b", [], jump("J", "k")), main=(call("C"), call("D", "b")))
    outcome = inline(document)
    assert names(outcome.doc) == ["C_K", "D_J"]
    assert row(outcome.doc, "D_J")["target"] == "k"
    assert kernel_names(outcome.doc) == ["k"]
    assert outcome.ir.calls["callee_id"].to_list() == [1]


def test_n15_a_call_in_a_loop_without_trips_is_gone() -> None:
    never = loop("L", "i", (0, 0, 1), jump("J", "k"))
    document = kernels(function("k", [], op("K")), function("b", [], never), main=(call("C"), call("D", "b")))
    assert kernel_names(inline(document).doc) == []


def test_n15_a_kernel_that_calls_itself_by_a_call_stays() -> None:
    document = kernels(function("k", [], op("K"), jump("J", "k")), main=(call("C"),))
    outcome = inline(document)
    assert names(outcome.doc) == ["C_K", "C_J"]
    assert row(outcome.doc, "C_J")["target"] == "k"
    assert kernel_names(outcome.doc) == ["k"]


def test_n15_what_a_removed_kernel_named_may_go_too() -> None:
    document = kernels(function("k", [], op("K")), function("k2", [], op("L")), main=(call("C"), call("D", "k2")))
    document["nki_functions"]["functions"].insert(1, function("between", [], op("M")))
    assert kernel_names(inline(document).doc) == ["between"]


def test_n15_an_ordinary_function_that_a_call_site_names_is_never_removed() -> None:
    document = module(function("first", [], op("F")), function("main", [], call("C", "first")))
    outcome = inline(document)
    assert names(outcome.doc, 1) == ["C_F"]
    assert outcome.doc["functions"][0] == document["functions"][0]


def test_n15_r1_what_else_names_a_removed_function_keeps_its_text() -> None:
    operand = access("t", memref_owner_func="k", memsetref="t_set")
    document = kernels(function("k", [memory_set("t_set")], op("K")), main=(call("C"), op("z", ins=[operand])))
    outcome = inline(document)
    assert kernel_names(outcome.doc) == []
    assert row(outcome.doc, "z")["ins"] == [operand]


# N16: provenance


def provenance(ir: air.IR) -> list[tuple[Any, ...]]:
    chains = dict(ir.call_chains.select("id", "name").rows())
    rows = ir.instructions.select("name", "original_name", "kernel", "kernel_source", "call_chain_id", "depth").rows()
    return [(*r[:4], None if r[4] is None else chains[r[4]], r[5]) for r in rows]


def test_n16_instructions() -> None:
    document = kernels(
        function("k", [], loop("L", "i", (0, 2, 1), op("K")), op("W")),
        function("k2", [], op("M")),
        main=(op("p"), call("C", kernel_source_val=2), call("D", "k2"), op("z")),
    )
    outcome = inline(document)
    assert provenance(outcome.ir) == [
        ("p", None, None, None, None, 0),
        ("C_K-0", "K", "k", "Beta3", "C", 1),
        ("C_K-1", "K", "k", "Beta3", "C", 1),
        ("C_W", "W", "k", "Beta3", "C", 1),
        ("D_M", "M", "k2", "Beta1", "D", 1),
        ("z", None, None, None, None, 0),
    ]
    assert outcome.ir.call_chains["parent_id"].to_list() == [None, None]


def test_n16_memory_and_registers() -> None:
    callee = function("k", [sb_set("t_set", 0), register("r"), *formals()], op("K", outs=[access("c")]))
    outcome = inline(one_call(callee=callee))
    for table, found in (("sets", "t_set"), ("locations", "t"), ("registers", "r")):
        inlined = outcome.ir.frame(table).filter(pl.col("call_chain_id").is_not_null())
        assert inlined.select("name", "original_name").rows() == [(f"C:{found}", found)]
        rest = outcome.ir.frame(table).filter(pl.col("call_chain_id").is_null())
        assert rest["original_name"].null_count() == len(rest)


def test_n16_helpers_have_none_and_debug_is_untouched() -> None:
    lines = [op(f"K{n}", debug={"filename": "k.py", "lineno": n}) for n in range(9)]
    outcome = inline(bare(*lines, debug={"filename": "main.py", "lineno": 42}))
    assert row(outcome.doc, "C_K3")["debug"] == {"filename": "k.py", "lineno": 3}
    assert provenance(outcome.ir)[-2] == ("C_done", None, None, None, None, 0)
    assert "original_name" not in outcome.ir.to_json(0).decode()


def test_n16_passes_one_after_the_other_keep_it() -> None:
    document = kernels(function("k", [], op("K")), main=(call("C", is_allocated=True), call("D")))
    first = air.passes.inline_nki_kernel(read(document), allocated=False)
    both = air.passes.inline_nki_kernel(first.ir, allocated=True)
    assert [p[:5] for p in provenance(both.ir)] == [
        ("C_K", "K", "k", "Beta1", "C"),
        ("D_K", "K", "k", "Beta1", "D"),
    ]


def test_n16_parquet_keeps_it(tmp_path: Path) -> None:
    outcome = inline(bare(op("K"), kernel_source_val=1))
    outcome.ir.write_parquet(tmp_path / "set")
    again = air.read_parquet(tmp_path / "set")
    assert provenance(again) == provenance(outcome.ir)
    assert provenance(again)[1] == ("C_K", "K", "k", "Beta2", "C", 1)


# N18: nothing else


def test_n18_all_else_stays_to_the_byte() -> None:
    document = bare(op("K"))
    del document["functions"][0]["blocks"][0]["instructions"][2]["dependencies"]
    document["zz"] = {"u": None, "f": 1e400}
    document["functions"][0]["x"] = [1.0, 1, True]
    document["functions"].append(function("other", [memory_set("q_set")], op("x", zz=None), extra=1))
    document["functions"].append(function("other", [], op("y", dependencies=[]), op("y")))
    document["queues"] = [{"name": "q", "blocks": [{"name": "b", "instructions": [op("C"), op("d")]}]}]
    outcome = inline(document)
    expected = json.loads(json.dumps(document))
    rows(expected)[1] = op("C_K", dependencies=[["p", "Flow"]])
    expected["nki_functions"] = {"functions": []}
    assert outcome.ir.to_json(0) == written(expected).replace(b"Infinity", b"Infinity")


def test_n18_f6_keys_added_to_instructions_stand_in_their_place() -> None:
    ordered = {"engine": "Pool", "ins": [], "name": "K", "opcode": "NoOp", "outs": []}
    outcome = inline(bare(ordered))
    assert list(row(outcome.doc, "C_K")) == ["dependencies", *ordered]
    loose = {"name": "K", "opcode": "NoOp", "engine": "Pool", "ins": [], "outs": []}
    outcome = inline(bare(loose, loop_carried_dependencies=["p"], unroll_dependencies=[["p", "Flow", []]]))
    keys = ["dependencies", "loop_carried_dependencies", "unroll_dependencies"]
    assert list(row(outcome.doc, "C_K")) == [*loose, *keys]


# N19: outputs that are never written


@pytest.mark.parametrize(
    ("body", "warned"),
    [
        (op("K", outs=[access("c")]), False),
        (op("K", outs=[{"kind": "register_ap", "memsetref": "c_set", "regref": "r"}]), False),
        (op("K", ins=[access("c")], outs=[access("t")]), True),
        (op("K", indirection_ins=[access("c")]), True),
        (loop("L", "i", (0, 0, 1), op("K", outs=[access("c")])), True),
        (loop("L", "i", (0, 1, 1), op("K", outs=[access("c")])), False),
        (op("K", "Call", target="k9", arguments={"q": "c"}), False),
        (op("K", "Call", target="k9", arguments={"q": "t"}), True),
    ],
)
def test_n19_f06_an_output_that_the_body_never_writes(body: Json, warned: bool) -> None:
    document = one_call(callee=kernel(body, storage=[memory_set("t_set"), register("r")]))
    outcome = inline(document)
    assert outcome.status == "changed"
    assert outcome.codes == ([("warning", "output_not_written")] if warned else [])
    if warned:
        message = outcome.messages[0]
        assert (message.function, message.set, message.location) == ("k", "c_set", "c")


def test_n19_one_row_per_output_and_callee() -> None:
    outputs = [memory_set(f"{name}_set", kind) for name, kind in (("a", "Output"), ("b", "ExternalOutputParameter"))]
    actuals = [memory_set("x_set"), memory_set("y_set")]
    site: Json = {"func_outs": {"a": "x", "b": "y"}}
    document = module(
        function("main", actuals, call("C", **site), call("D", **site)), kernels=[function("k", outputs, op("K"))]
    )
    assert [m.location for m in inline(document).messages] == ["a", "b"]


def test_n19_an_input_that_is_never_read_is_no_matter() -> None:
    assert inline(one_call(callee=kernel(op("K", outs=[access("c")]), storage=[]))).codes == []


# O6: the size


@pytest.mark.parametrize(
    ("document", "size"),
    [
        (bare(op("K1"), op("K2")), 2 + 2 + 2),
        (bare(), 2),
        (bare(op("K1"), op("R", "Return")), 2 + 1 + 2),
        (bare(loop("L", "i", (0, 3, 1), op("K1"), op("K2")), op("R", "Return")), 2 + 6 + 7),
        (bare(loop("L", "i", (0, 3, 1), loop("M", "j", (9, -1, -3), op("K")))), 2 + 12 + 12),
        (bare(loop("L", "i", (0, 0, 1), op("K")), op("W")), 2 + 1 + 1),
        (kernels(function("k", [], op("K")), main=(call("A"), call("B"), call("C"))), 3 + 1),
        (kernels(function("k", [], op("K")), function("n", [], op("N"), op("M")), main=(call("A"),)), 1 + 1 + 2),
        (kernels(function("k", [], op("K")), main=(loop("L", "i", (0, 9, 1), op("q")), call("A"))), 2 + 1 + 1),
        (kernels(function("k", [], op("K"), jump("J", "k")), main=(call("C"),)), 2 + 2 + 2),
    ],
)
def test_o6_rows_after_the_pass_and_each_unrolled_body(document: Json, size: int) -> None:
    document["queues"] = [{"name": "q", "blocks": [{"name": "b", "instructions": [op("d")] * 5}]}]
    assert inline(document, max_instructions=size).status == "changed"
    message = fault(document, max_instructions=size - 1)
    assert (message.code, message.compiler_code) == ("too_many_instructions", "ELUR015")
    assert f"{size:,} instructions" in message.message
    assert f"{size - 1:,} allowed" in message.message


def test_o6_a_callee_that_stays_counts_as_rows_and_as_a_body() -> None:
    document = kernels(function("k", [], op("K")), main=(call("C"), call("D", is_allocated=True)))
    assert inline(document, allocated=False, max_instructions=4).status == "changed"
    assert fault(document, allocated=False, max_instructions=3).code == "too_many_instructions"


def test_o6_n10_a_huge_product_is_refused_before_anything_is_made() -> None:
    nest = loop("L", "i", (0, 10**9, 1), loop("M", "j", (0, 10**9, 1), op("K")))
    message = fault(bare(nest))
    assert message.code == "too_many_instructions"
    assert "25,000,000 allowed" in message.message


def test_o6_a_module_without_call_sites_is_not_judged() -> None:
    assert inline(kernels(main=(op("p"), op("q"))), max_instructions=1).status == "unchanged"


# the order of checks


def test_order_of_checks() -> None:
    """Faults are added from the last to the first that is looked for; each hides those before it."""
    actuals = [sb_set("pad_set", 0, allocated=False, base=32), memory_set("x_set"), memory_set("short_set")]
    actuals[2]["memorylocations"][0]["dims"] = [1, 4]
    callee = function("k", [sb_set("t_set", 300_000), memory_set("a_set", "ExternalInput")], op("K"))
    site: Json = {"func_args": {"a": "x"}, "outs": [access("pad")], "sb_buf_shape": [128, 64]}
    caller = function("main", actuals, call("C", **site))
    document = module(caller, kernels=[callee])
    first = rows(document)[0]
    pad, formal = actuals[0]["memorylocations"][0], callee["allocations"][1]

    def code(**options: Any) -> str:
        return fault(document, **options).code

    assert code() == "scratchpad_base"
    pad["base"] = 0
    assert code() == "scratchpad_unallocated"
    pad["allocated"] = True
    assert code() == "sb_overflow"
    callee["blocks"][0]["instructions"].append(op("U", dependencies=["gone"]))
    assert code() == "unresolved_name"
    callee["blocks"][0]["instructions"].append(loop("L", "i", (0, 1, 0), op("M")))
    assert code() == "zero_stride"
    first["func_args"]["a"] = "short"
    assert code() == "parameter_size_mismatch"
    formal["memorylocations"].append(location("more"))
    assert code() == "parameter_location_count"
    callee["allocations"].append(memory_set("c_set", "ExternalOutput"))
    assert code() == "unbound_parameter"
    first["psum_buf_shape"] = [1, 128, 64]
    assert code() == "scratchpad_count"
    first["func_outs"] = {"nobody": "x"}
    assert code() == "unknown_parameter"
    first["predicates"] = [{"expr": 1}]
    assert code() == "call_site_not_plain"
    first["kernel_source_val"] = "no"
    assert code() == "unknown_kernel_source"
    assert code(max_instructions=1) == "too_many_instructions"
    document["nki_functions"]["functions"].append(function("self", [], call("S", "self")))
    rows(document).append(call("Z", "self"))
    assert code(max_instructions=1) == "recursive_kernel"
    rows(document).append(call("Y", "nobody"))
    assert code(max_instructions=1) == "no_callee"


def test_order_of_checks_the_first_call_site_in_program_order_counts() -> None:
    document = kernels(
        function("k", [], op("K")),
        main=(loop("L", "i", (0, 1, 1), call("A", predicates=[1])), call("B", kernel_source_val="no")),
    )
    message = fault(document)
    assert (message.code, message.instruction) == ("call_site_not_plain", "A")


def test_order_of_checks_memory_is_looked_at_call_site_by_call_site() -> None:
    pads = [sb_set("p_set", 0, base=32), sb_set("q_set", 229_376)]
    sites = [call(n, outs=[access(p)], sb_buf_shape=[128, 64]) for n, p in (("A", "q"), ("B", "p"))]
    document = module(function("main", pads, *sites), kernels=[function("k", [sb_set("t_set", 0)], op("K"))])
    assert (fault(document).code, fault(document).instruction) == ("sb_overflow", "A")


@pytest.mark.parametrize("fine", [{"sync_info": {}}, {"predicates": []}, {"sync_info": None}, {"predicates": None}])
def test_n14_call_sites_that_are_plain(fine: Json) -> None:
    assert names(inline(bare(op("K"), **fine)).doc) == ["p", "C_K", "z"]


@pytest.mark.parametrize(
    "site", [{"predicates": [{}]}, {"sync_info": {"on_wait": []}}, {"sync_info": {"on_update": [{"id": 1}]}}]
)
def test_n14_call_sites_that_are_not_plain(site: Json) -> None:
    assert fault(bare(op("K"), **site)).code == "call_site_not_plain"


def test_o3_warnings_and_notes_of_a_module_that_fails_are_left_out() -> None:
    document = one_call(callee=kernel(op("K", outs=[access("t")])))
    rows(document).append(call("D", kernel_source_val="no", func_args={"a": "x"}, func_outs={"c": "y"}))
    rows(document).append(call("E", is_allocated=True))
    assert fault(document, allocated=False).code == "unknown_kernel_source"


# O7: log lines


def lines(caplog: pytest.LogCaptureFixture, document: Json, **options: Any) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, LOGGER):
        inline(document, **options)
    assert {r.name for r in caplog.records} <= {LOGGER}
    return [r.getMessage() for r in caplog.records]


def test_o7_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    document = kernels(
        function("k", [], op("K")), main=(call("C"), loop("L", "i", (0, 1, 1), call("D", is_allocated=True)))
    )
    skip = (
        "Skip lowering D because the allocation status of the kernel is not consistent "
        "with the current location of the pass"
    )
    found = ["Found InstNKIKernel: C", "Found InstNKIKernel: D"]
    assert lines(caplog, document, allocated=False) == [*found, skip]
    assert lines(caplog, document) == [*found, "dropping func k"]


def test_o7_unroll_dependencies_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    document = bare(op("K1"), op("K2"), unroll_dependencies=[["p", "Flow", []]])
    rows(document)[2]["unroll_dependencies"] = ["C"]
    assert lines(caplog, document)[2:] == [
        "adding unroll dep from C_K1 to p",
        "adding unroll dep from C_K2 to p",
        "adding unroll dep from z to C_K1",
        "adding unroll dep from z to C_K2",
    ]
    assert lines(caplog, document)[:2] == ["Found InstNKIKernel: C", "dropping func k"]


def test_o7_nothing_is_logged_when_the_level_is_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, LOGGER):
        inline(bare(op("K")))
    assert caplog.records == []


def test_o3_every_code_is_registered_with_the_severity_it_is_given() -> None:
    document = kernels(
        function("k", [], op("K")), main=(call("C"), call("D", is_allocated=True), call("E", is_allocated=True))
    )
    outcome = inline(document, allocated=False)
    assert [(m.severity, m.code) for m in outcome.messages] == [("note", "call_site_skipped")] * 2
    assert all(CODES[m.code].severity == m.severity for m in outcome.messages)
