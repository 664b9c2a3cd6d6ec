"""Rules N4, N5, N6 and N11: what parameters are bound to, and what clones name."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir.passes.inlining.splice import splice
from tests.oracle.builders import (
    access,
    call,
    constant,
    function,
    location,
    loop,
    memory_set,
    module,
    op,
    register,
    row,
    runtime,
)
from tests.oracle.calls import kernel, one_call
from tests.single_pass import Json, Passed, read, refused, run_pass

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")

INPUTS = ("ExternalInput", "ExternalInputParameter", "Input")
OUTPUTS = ("ExternalOutput", "ExternalOutputParameter", "Output")


def uses(*locations: str) -> Json:
    """A body that reads each of some locations of the kernel."""
    return op("K", ins=[access(name) for name in locations])


def bound(outcome: Passed, site: str = "C", name: str = "K") -> list[str]:
    """What the clone of `uses` reads."""
    assert outcome.status == "changed"
    return [operand["memref"] for operand in row(outcome.doc, f"{site}_{name}")["ins"]]


def parameters(*pairs: tuple[str, str], body: Json | None = None) -> Json:
    """A kernel with parameters, given by name and kind, that reads all of them."""
    storage = [memory_set(f"{name}_set", kind) for name, kind in pairs]
    return function("k", storage, body or uses(*(name for name, _ in pairs)))


def caller(callee: Json, *actuals: str, **site: Any) -> Json:
    """A caller with some tensors and one call-site `C`."""
    return module(function("main", [memory_set(f"{a}_set") for a in actuals], call("C", **site)), kernels=[callee])


# N4: by name


@pytest.mark.parametrize("formal", ["a", "a_set"])
@pytest.mark.parametrize("actual", ["x", "x_set"])
@pytest.mark.parametrize("pairs", [False, True])
def test_n4_both_sides_name_a_location_or_a_set(formal: str, actual: str, pairs: bool) -> None:
    entries: Any = [[formal, actual]] if pairs else {formal: actual}
    assert bound(inline(caller(parameters(("a", "Input")), "x", func_args=entries))) == ["x"]
    assert bound(inline(caller(parameters(("a", "Output")), "x", func_outs=entries))) == ["x"]


@pytest.mark.parametrize("kind", [*INPUTS, *OUTPUTS])
@pytest.mark.parametrize("side", ["func_args", "func_outs"])
def test_n4_both_maps_may_name_any_parameter(kind: str, side: str) -> None:
    assert bound(inline(caller(parameters(("a", kind)), "x", **{side: {"a": "x"}}))) == ["x"]


@pytest.mark.parametrize("kind", ["Internal", "Const", "Pointer", "InternalInterface"])
def test_n4_sets_of_other_kinds_are_no_parameters(kind: str) -> None:
    message = fault(caller(parameters(("a", kind)), "x", func_args={"a": "x"}))
    assert message.code == "unknown_parameter"
    assert "`a`" in message.message
    assert message.instruction == "C"


def test_n4_each_map_prefers_its_own_kinds() -> None:
    storage = [memory_set("o_set", "Output", location("v")), memory_set("i_set", "Input", location("v"))]
    body = op("K", ins=[access("v"), {"kind": "register_ap", "memsetref": "o_set"}])
    document = caller(function("k", storage, body), "x", "y", func_args={"v": "x"}, func_outs={"v": "y"})
    made = row(inline(document).doc, "C_K")["ins"]
    assert (made[0]["memref"], made[1]["memsetref"]) == ("x", "y_set")


def test_n4_a_location_of_the_name_goes_before_a_set() -> None:
    storage = [memory_set("v", "Input", location("a")), memory_set("w", "Input", location("v"))]
    document = caller(function("k", storage, uses("a", "v")), "x", "y", func_args={"v": "x", "a": "y"})
    assert bound(inline(document)) == ["y", "x"]
    actuals = [memory_set("x", "Internal", location("p")), memory_set("y", "Internal", location("x"))]
    document = module(function("main", actuals, call("C", func_args={"a": "x"})), kernels=[parameters(("a", "Input"))])
    assert bound(inline(document)) == ["x"]


def test_n4_a_parameter_goes_before_an_internal_set_of_the_name() -> None:
    storage = [memory_set("t_set", "Internal", location("v")), memory_set("o_set", "Output", location("v"))]
    body = op("K", ins=[{"kind": "register_ap", "memsetref": "o_set"}])
    document = caller(function("k", storage, body), "x", func_args={"v": "x"})
    assert row(inline(document).doc, "C_K")["ins"][0]["memsetref"] == "x_set"


@pytest.mark.parametrize(
    ("site", "expected"),
    [
        ({"func_args": [["a", "x"], ["a", "y"]]}, "y"),
        ({"func_args": [["a", "x"], ["a_set", "y"]]}, "y"),
        ({"func_args": {"a_set": "x", "a": "y"}}, "y"),
        ({"func_args": {"a": "x"}, "func_outs": {"a": "y"}}, "y"),
        ({"func_outs": {"a": "y"}, "func_args": {"a": "x"}}, "y"),
    ],
)
def test_n4_the_last_entry_wins(site: Json, expected: str) -> None:
    assert bound(inline(caller(parameters(("a", "Input")), "x", "y", **site))) == [expected]


@pytest.mark.parametrize("entries", [{"nobody": "x"}, {"r2": "x"}, {"": "x"}])
def test_n4_an_entry_that_names_no_parameter(entries: Json) -> None:
    message = fault(caller(parameters(("a", "Input")), "x", func_args={"a": "x", **entries}))
    assert message.code == "unknown_parameter"
    assert "func_args" in message.message


def test_n4_an_entry_that_names_no_actual() -> None:
    message = fault(caller(parameters(("a", "Input")), "x", func_args={"a": "nobody"}))
    assert message.code == "unresolved_name"
    assert "`nobody`" in message.message
    # Every entry is looked at, those that a later one overrules too.
    overruled = [["a", "nobody"], ["a", "x"]]
    assert fault(caller(parameters(("a", "Input")), "x", func_args=overruled)).code == "unresolved_name"


def test_n4_a_name_of_the_callee_is_no_actual() -> None:
    assert fault(caller(parameters(("a", "Input")), "x", func_args={"a": "a"})).code == "unresolved_name"


# N4: by position


def test_n4_what_has_no_entry_binds_by_position() -> None:
    callee = parameters(("a", "Input"), ("c", "Output"), ("b", "ExternalInput"), ("d", "Output"))
    site: Json = {"ins": [access("x"), access("y")], "outs": [access("z"), access("w")]}
    assert bound(inline(caller(callee, *"xyzw", **site))) == ["x", "z", "y", "w"]


def test_n4_immediates_and_registers_are_skipped() -> None:
    immediate = {"kind": "imm_value", "dtype": "int32", "value": 1}
    items = [immediate, access("x"), {"kind": "register_access", "dtype": "int32", "regref": "r"}, access("y")]
    document = caller(parameters(("a", "Input"), ("b", "Input")), "x", "y", ins=items)
    document["functions"][0]["allocations"].append(register("r"))
    assert bound(inline(document)) == ["x", "y"]


def test_n4_indirection_operands_do_not_count() -> None:
    document = caller(parameters(("a", "Input")), "x", "y", indirection_ins=[access("y")], ins=[access("x")])
    assert bound(inline(document)) == ["x"]


def test_n4_operands_that_an_entry_of_the_same_map_names_are_skipped() -> None:
    callee = parameters(("a", "Input"), ("b", "Input"))
    ins = [access("x"), access("y"), access("x")]
    assert bound(inline(caller(callee, "x", "y", func_args={"b": "x"}, ins=ins))) == ["y", "x"]
    assert bound(inline(caller(callee, "x", "y", func_args={"b": "x_set"}, ins=ins))) == ["y", "x"]
    overruled = {"func_args": [["b", "y"], ["b", "x"]], "ins": [access("x"), access("y"), access("z")]}
    assert bound(inline(caller(callee, "x", "y", "z", **overruled))) == ["z", "x"]


def test_n4_operands_that_an_entry_of_the_other_map_names_are_not() -> None:
    callee = parameters(("a", "Input"), ("c", "Output"))
    site: Json = {"func_outs": {"c": "x"}, "ins": [access("x"), access("y")]}
    assert bound(inline(caller(callee, "x", "y", **site))) == ["x", "x"]


def test_n4_a_location_that_stands_twice_counts_twice() -> None:
    callee = parameters(("a", "Input"), ("b", "Input"))
    assert bound(inline(caller(callee, "x", "y", ins=[access("x"), access("x"), access("y")]))) == ["x", "x"]


def test_n4_an_operand_that_names_its_set_alone() -> None:
    site = {"kind": "register_ap", "memsetref": "x_set", "regref": "r", "ap": [[1, 1]], "dtype": "int32"}
    document = caller(parameters(("a", "Input")), "x", ins=[site])
    document["functions"][0]["allocations"].append(register("r"))
    assert bound(inline(document)) == ["x"]
    document["functions"][0]["allocations"][0]["memorylocations"].append(location("x2"))
    assert fault(document).code == "parameter_location_count"


@pytest.mark.parametrize(
    "site",
    [
        {},
        {"ins": [access("x")]},
        {"ins": [access("x"), {"kind": "imm_value", "dtype": "int32", "value": 1}]},
        {"func_args": {"a": "x"}, "ins": [access("x")]},
        {"outs": [access("x"), access("x")]},
    ],
)
def test_n4_a_parameter_that_stays_unbound(site: Json) -> None:
    message = fault(caller(parameters(("a", "Input"), ("b", "Input")), "x", **site))
    assert message.code == "unbound_parameter"
    expected = "a_set" if "func_args" not in site and "ins" not in site else "b_set"
    assert f"`{expected}` of `k`" in message.message


def test_n4_operands_left_over_are_no_matter() -> None:
    assert bound(inline(caller(parameters(("a", "Input")), "x", "y", ins=[access("x"), access("y")]))) == ["x"]


def test_n4_an_unresolved_operand_is_an_error_where_a_parameter_would_take_it() -> None:
    callee = parameters(("a", "Input"))
    message = fault(caller(callee, "x", ins=[access("gone"), access("x")]))
    assert message.code == "unresolved_name"
    assert "`gone`" in message.message
    assert bound(inline(caller(callee, "x", ins=[access("x"), access("gone")]))) == ["x"]


@pytest.mark.parametrize("owner", ["k", "other"])
def test_n4_an_operand_in_another_function_is_no_actual(owner: str) -> None:
    foreign = access("y" if owner == "other" else "a", memref_owner_func=owner)
    document = caller(parameters(("a", "Input")), "x", ins=[foreign, access("x")])
    document["functions"].append(function("other", [memory_set("y_set")]))
    message = fault(document)
    assert message.code == "unresolved_name"
    assert f"`{foreign['memref']}`, which is not in `main`" in message.message
    own = access("x", memref_owner_func="main")
    assert bound(inline(caller(parameters(("a", "Input")), "x", ins=[own]))) == ["x"]
    # One that nothing takes is no matter.
    document["functions"][0]["blocks"][0]["instructions"][0]["ins"].reverse()
    assert bound(inline(document)) == ["x"]


# N4: registers


def test_n4_registers_bind_through_the_maps() -> None:
    operand = {"kind": "register_access", "dtype": "int32"}
    body = op(
        "K", ins=[operand | {"regref": "p"}, operand | {"regref": "q"}, operand | {"regref": "own"}], v=runtime("q")
    )
    callee = function("k", [register("p"), register("q"), register("own")], body)
    site: Json = {"func_args": {"p": "r1"}, "func_outs": [["q", "r1"], ["q", "r2"]]}
    outcome = inline(module(function("main", [register("r1"), register("r2")], call("C", **site)), kernels=[callee]))
    made = row(outcome.doc, "C_K")
    assert [o["regref"] for o in made["ins"]] == ["r1", "r2", "C:own"]
    assert made["v"] == runtime("r2")
    assert [s["name"] for s in outcome.doc["functions"][0]["allocations"]] == ["r1", "r2", "C:own"]


@pytest.mark.parametrize("actual", ["x", "x_set", "nobody"])
def test_n4_a_register_bound_to_no_register(actual: str) -> None:
    callee = function("k", [register("p")], op("K"))
    assert fault(caller(callee, "x", func_args={"p": actual})).code == "unresolved_name"


def test_n4_a_location_bound_to_a_register() -> None:
    document = caller(parameters(("a", "Input")), "x", func_args={"a": "r"})
    document["functions"][0]["allocations"].append(register("r"))
    assert fault(document).code == "unresolved_name"


def test_n4_a_parameter_goes_before_a_register_of_the_name() -> None:
    callee = parameters(("a", "Input"))
    callee["allocations"].insert(0, register("a"))
    outcome = inline(caller(callee, "x", func_args={"a": "x"}))
    assert bound(outcome) == ["x"]
    assert [s["name"] for s in outcome.doc["functions"][0]["allocations"]] == ["x_set", "C:a"]


# N4: numbers of locations and bytes


@pytest.mark.parametrize("count", [0, 2, 3])
def test_n4_a_parameters_set_has_one_location(count: int) -> None:
    callee = function("k", [memory_set("a_set", "Input", location("a"))], op("K"))
    callee["allocations"][0]["memorylocations"] = [location("a" if not n else f"a{n}") for n in range(count)]
    message = fault(caller(callee, "x", func_args={"a_set": "x"}))
    assert (message.code, message.compiler_code) == ("parameter_location_count", "NKI006")
    expected = f"Input/Output DRAM memory location set should only has one location, but got {count} locations"
    assert message.message == expected


def test_n4_an_actual_given_by_its_set_has_one_location() -> None:
    document = caller(parameters(("a", "Input")), "x", func_args={"a": "x_set"})
    document["functions"][0]["allocations"][0]["memorylocations"].append(location("x2"))
    message = fault(document)
    assert message.code == "parameter_location_count"
    assert "but got 2 locations" in message.message
    document["functions"][0]["blocks"][0]["instructions"][0]["func_args"] = {"a": "x2"}
    assert bound(inline(document)) == ["x2"]


@pytest.mark.parametrize(
    ("formal", "actual", "fits"),
    [
        ([128, 64], [128, 64], True),
        ([64, 128], [128, 64], True),
        ([1, 8192], [128, 64], True),
        ([128, 64], [128, 65], False),
        ([0, 64], [64, 0], True),
        ([2**40, 2**40], [2**41, 2**39], True),
        ([2**32, 2**32], [2**33, 2**32], False),
        ([2**40, 2**40], [2**40, 2**40 + 1], False),
    ],
)
def test_n4_bytes_are_the_product_of_dims(formal: list[int], actual: list[int], fits: bool) -> None:
    callee = function("k", [memory_set("a_set", "Input", location("a", formal))], uses("a"))
    actuals = [memory_set("x_set", "Internal", location("x", actual))]
    document = module(function("main", actuals, call("C", func_args={"a": "x"})), kernels=[callee])
    if fits:
        assert bound(inline(document)) == ["x"]
        return
    message = fault(document)
    assert message.code == "parameter_size_mismatch"
    assert str(formal) in message.message
    assert str(actual) in message.message


def test_n4_memory_types_may_differ() -> None:
    callee = function("k", [memory_set("a_set", "Input", location("a", type="SB"))], uses("a"))
    assert bound(inline(caller(callee, "x", func_args={"a": "x"}))) == ["x"]


# N5: at once


def test_n5_m10_actuals_that_are_called_like_parameters_are_not_captured() -> None:
    callee = parameters(("value", "Input"), ("v", "Input"))
    callee["allocations"].append(memory_set("w_set"))
    callee["blocks"][0]["instructions"].append(op("L", ins=[access("w")]))
    outcome = inline(caller(callee, "v", "value", "w", func_args={"value": "v", "v": "value"}))
    assert bound(outcome) == ["v", "value"]
    assert bound(outcome, name="L") == ["C:w"]
    assert bound(inline(caller(callee, "v", "value", "w", func_args={"value": "w", "v": "w"}))) == ["w", "w"]


def test_n5_one_actual_for_several_parameters() -> None:
    callee = parameters(("a", "Input"), ("b", "Output"))
    assert bound(inline(caller(callee, "x", func_args={"a": "x"}, func_outs={"b": "x"}))) == ["x", "x"]


def test_n5_n11_two_call_sites_bind_each_for_itself() -> None:
    callee = parameters(("a", "Input"), ("b", "Input"))
    document = caller(callee, "x", "y", func_args={"a": "x", "b": "y"})
    document["functions"][0]["blocks"][0]["instructions"].append(call("D", func_args={"a": "y", "b": "x"}))
    outcome = inline(document)
    assert bound(outcome) == ["x", "y"]
    assert bound(outcome, "D") == ["y", "x"]


# N6: scratchpads

PADS: Json = {"sb_buf_shape": [128, 64], "psum_buf_shape": [2, 128, 64]}


@pytest.mark.parametrize(
    ("site", "pads"),
    [
        ({}, 0),
        ({"sb_buf_shape": None, "psum_buf_shape": None}, 0),
        ({"sb_buf_shape": [], "psum_buf_shape": []}, 0),
        ({"sb_buf_shape": [0, 0], "psum_buf_shape": [0, 128, 64]}, 0),
        ({"sb_buf_shape": [128, 64]}, 1),
        ({"sb_buf_shape": [0, 64]}, 1),
        ({"sb_buf_shape": [128, 0]}, 1),
        ({"psum_buf_shape": [2, 0, 0]}, 2),
        (PADS, 3),
    ],
)
def test_n6_the_last_outputs_are_scratchpads(site: Json, pads: int) -> None:
    """Two output parameters take the outputs before the scratchpads, and one output fewer is not enough."""
    callee = parameters(("a", "Output"), ("b", "Output"))
    outputs = ("x", "y", "p", "q", "s")[: 2 + pads]
    document = caller(callee, *"xypqs", outs=[access(o) for o in outputs], **site)
    assert bound(inline(document)) == ["x", "y"]
    short = caller(callee, *"xypqs", outs=[access(o) for o in outputs[1:]], **site)
    assert fault(short).code == "unbound_parameter"


@pytest.mark.parametrize(("count", "banks"), [(0, 1), (1, 1), (2, 2)])
def test_n6_too_few_outputs(count: int, banks: int) -> None:
    site: Json = {"sb_buf_shape": [128, 64], "psum_buf_shape": [banks, 128, 64], "outs": [access("x")] * count}
    message = fault(caller(parameters(), "x", **site))
    assert (message.code, message.compiler_code) == ("scratchpad_count", "NKI003")
    assert message.message == (
        f"Insufficient number of outputs param, expect 1 SB buffers and {banks} PSUM buffers, "
        f"but only got {count} outputs"
    )


def test_n6_scratchpads_stay_in_the_caller_and_bind_by_name() -> None:
    callee = parameters(("a", "Output"))
    document = caller(callee, "x", "p", outs=[access("x"), access("p")], sb_buf_shape=[128, 64])
    outcome = inline(document)
    assert [s["name"] for s in outcome.doc["functions"][0]["allocations"]] == ["x_set", "p_set"]
    document["functions"][0]["blocks"][0]["instructions"][0]["func_outs"] = {"a": "p"}
    assert bound(inline(document)) == ["p"]


def test_n6_an_output_in_the_sb_place_that_is_not_sb_binds_nothing_either() -> None:
    document = caller(parameters(("a", "Output")), "x", "d", outs=[access("x"), access("d")], sb_buf_shape=[1, 1])
    assert bound(inline(document)) == ["x"]
    document = caller(parameters(("a", "Output")), "d", outs=[access("d")], sb_buf_shape=[1, 1])
    assert fault(document).code == "unbound_parameter"


# N11: what clones name


def test_n11_every_kind_of_reference() -> None:
    storage = [memory_set("t_set"), register("r")]
    dynamic = {
        "kind": "register_ap",
        "dtype": "float32",
        "ap": [[1, 1]],
        "memsetref": "t_set",
        "regref": "r",
        "reg_ap_offset": "r",
        "reg_sub_tensor_id": "r",
        "dynamic_ap_info": {"aff_expr": [{"offset_expr": runtime("r"), "coef": 1}]},
    }
    body = op(
        "K",
        ins=[dynamic, access("a", memsetref="a_set", memref_owner_func="k")],
        indirection_ins=[access("t", memsetref="t_set")],
        outs=[access("c")],
        deep=[{"x": runtime("r")}],
    )
    made = row(inline(one_call(callee=kernel(body, storage=storage))).doc, "C_K")
    assert made == body | {
        "name": "C_K",
        "ins": [
            dynamic
            | {
                "memsetref": "C:t_set",
                "regref": "C:r",
                "reg_ap_offset": "C:r",
                "reg_sub_tensor_id": "C:r",
                "dynamic_ap_info": {"aff_expr": [{"offset_expr": runtime("C:r"), "coef": 1}]},
            },
            access("x", memsetref="x_set", memref_owner_func="main"),
        ],
        "indirection_ins": [access("C:t", memsetref="C:t_set")],
        "outs": [access("y")],
        "deep": [{"x": runtime("C:r")}],
    }


def test_n11_r2_the_set_beside_a_location_becomes_its_set() -> None:
    """A set that disagrees with its location, or is not there, is put right in the clone."""
    body = op("K", ins=[access("a", memsetref="t_set"), access("a", memsetref="none"), access("t", memsetref="a_set")])
    made = row(inline(one_call(callee=kernel(body, op("W", outs=[access("c")])))).doc, "C_K")["ins"]
    assert [(o["memref"], o["memsetref"]) for o in made] == [("x", "x_set"), ("x", "x_set"), ("C:t", "C:t_set")]


def test_n11_a_set_reference_to_a_parameter_becomes_the_actuals_set() -> None:
    body = op("K", ins=[{"kind": "register_ap", "memsetref": "a_set", "ap": [[1, 1]], "dtype": "int32"}])
    assert row(inline(one_call(callee=kernel(body, op("W", outs=[access("c")])))).doc, "C_K")["ins"][0] == {
        "kind": "register_ap",
        "memsetref": "x_set",
        "ap": [[1, 1]],
        "dtype": "int32",
    }


def test_n11_offsets_patterns_and_dtypes_stay() -> None:
    body = op("K", ins=[access("a", offset=7, ap=[[16, 4], [-2, 3]], dtype="bfloat16")], outs=[access("c")])
    made = row(inline(one_call(callee=kernel(body))).doc, "C_K")["ins"]
    assert made == [access("x", offset=7, ap=[[16, 4], [-2, 3]], dtype="bfloat16")]


def test_n11_references_in_unrolled_bodies() -> None:
    body = loop("L", "i", (0, 2, 1), op("K", ins=[access("a"), access("t")], v=runtime("r"), w=constant(4)))
    callee = kernel(body, op("W", outs=[access("c")]), storage=[memory_set("t_set"), register("r")])
    outcome = inline(one_call(callee=callee))
    for n in range(2):
        made = row(outcome.doc, f"C_K-{n}")
        assert [o["memref"] for o in made["ins"]] == ["x", "C:t"]
        assert (made["v"], made["w"]) == (runtime("C:r"), 4)


def test_n11_arguments_of_a_call_in_the_body() -> None:
    inner = op("K", "Call", target="k9", arguments={"q": "t", "q_set": "a_set", "p": "r", "n": "gone"})
    document = one_call(callee=kernel(inner, op("W", outs=[access("c")]), storage=[memory_set("t_set"), register("r")]))
    made = row(inline(document).doc, "C_K")
    assert made["arguments"] == {"q": "C:t", "q_set": "x_set", "p": "C:r", "n": "gone"}
    assert made["target"] == "k9"


@pytest.mark.parametrize("before", [True, False])
def test_n11_a_call_in_the_body_names_a_function_that_stays(before: bool) -> None:
    inner = op("K", "Call", target="k9", arguments={"q": "t", "q_set": "a_set"})
    document = one_call(callee=kernel(inner, op("W", outs=[access("c")])))
    called = function("k9", [memory_set("q_set", "Input"), memory_set("z_set", "Input", location("q"))], op("N"))
    document["nki_functions"]["functions"].insert(0 if before else 1, called)
    outcome = inline(document)
    made = row(outcome.doc, "C_K")
    assert made["arguments"] == {"q": "C:t", "q_set": "x_set"}
    assert made["target"] == "k9"
    assert outcome.ir.calls["callee_id"].to_list() == [1]
    assert outcome.doc["nki_functions"]["functions"] == [called]


@pytest.mark.parametrize("place", ["before", "after", "kernel"])
def test_r2_a_location_of_another_function_stays(place: str) -> None:
    other = function("other", [memory_set("q_set")], op("o"))
    body = op("K", ins=[access("q", memsetref="q_set", memref_owner_func="other"), access("q")])
    document = module(
        function("main", [memory_set("q_set")], call("C")), kernels=[function("k", [memory_set("q_set")], body)]
    )
    if place == "kernel":
        document["nki_functions"]["functions"].append(other)
    else:
        document["functions"].insert(0 if place == "before" else 1, other)
    outcome = inline(document)
    made = row(outcome.doc, "C_K", 1 if place == "before" else 0)["ins"]
    assert made == [access("q", memsetref="q_set", memref_owner_func="other"), access("C:q")]


# R2, N11: storage of other functions


@pytest.mark.parametrize("behind", [True, False])
def test_r2_n11_clones_go_on_naming_storage_of_another_function(behind: bool) -> None:
    other = function("other", [memory_set("o_set"), memory_set("p_set")])
    mine = [memory_set("t_set"), memory_set("u_set")]
    operands = [
        access("p", memref_owner_func="other", memsetref="p_set"),
        access("u", memref_owner_func="k"),
        access("x", memref_owner_func="main"),
    ]
    main = function("main", [memory_set("x_set")], call("C"), call("D"))
    callers = [main, other] if behind else [other, main]
    document = module(*callers, kernels=[function("k", mine, op("K", ins=operands, outs=[access("t")]))])
    made = inline(document).doc
    for site in "CD":
        clone = row(made, f"{site}_K", callers.index(main))
        assert clone["ins"] == [
            operands[0],
            access(f"{site}:u", memref_owner_func="main"),
            operands[2],
        ]
        assert clone["outs"] == [access(f"{site}:t")]


def test_r2_n15_storage_of_a_kernel_that_goes_keeps_its_name() -> None:
    operand = access("t", memref_owner_func="k2", memsetref="t_set")
    callees = [function("k", [], op("K", ins=[operand])), function("k2", [memory_set("t_set")], op("L"))]
    outcome = inline(module(function("main", [], call("C"), call("D", "k2")), kernels=callees))
    assert row(outcome.doc, "C_K")["ins"] == [operand]
    assert outcome.ir.count("functions") == 1


def test_n1_storage_of_another_function_costs_a_call_site_nothing() -> None:
    operand = access("x0", memref_owner_func="main", memsetref="x0_set")
    main = function("main", [memory_set(f"x{n}_set") for n in range(50)], *(call(f"C{n}") for n in range(40)))
    callee = function("k", [memory_set("t_set")], op("K", ins=[operand]))
    ir = read(module(main, kernels=[callee]))
    edit = splice(air.passes.InlineNkiKernel().plan(ir, np.ones(1, bool)).edit).edit
    for table in ("sets", "locations"):
        found = edit.places(table)
        assert found is not None
        assert len(found[0]) == ir.count(table) + 40
