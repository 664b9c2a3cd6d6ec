"""Rules N4 to N8, N10, N11, N16, R2 and R6 for kernels that call kernels: what names, memory and operands become."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import arrowir as air
from tests.block_bodies import noop, provenance
from tests.oracle.builders import (
    access,
    affine,
    allocations,
    axis,
    block,
    call,
    constant,
    flow,
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
from tests.oracle.calls import actuals, kernel
from tests.oracle.nested_calls import bound, nested, scratch
from tests.single_pass import Json, Passed, read, refused, run_pass

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")


def addresses(document: Json) -> dict[str, int]:
    return {name: each["memorylocations"][0]["addr"] for name, each in allocations(document).items()}


def location_names(document: Json) -> list[str]:
    return [each["name"] for s in allocations(document).values() for each in s.get("memorylocations", [])]


# N4, N5: what parameters are bound to


def test_n4_parameters_are_handed_through() -> None:
    outcome = inline(bound())
    assert row(outcome.doc, "C_D_K1")["ins"] == [access("x", memsetref="x_set")]
    assert row(outcome.doc, "C_D_K1")["outs"] == [access("C:D:t")]
    assert row(outcome.doc, "C_D_K2")["outs"] == [access("y")]
    assert list(allocations(outcome.doc)) == ["x_set", "y_set", "w_set", "C:t_set", "C:D:t_set"]


@pytest.mark.parametrize("actual", ["a", "a_set"])
@pytest.mark.parametrize("formal", ["a", "a_set"])
def test_n4_by_location_or_by_set_at_both_levels(formal: str, actual: str) -> None:
    outcome = inline(bound(func_args=[[formal, actual]]))
    assert row(outcome.doc, "C_D_K1")["ins"] == [access("x", memsetref="x_set")]


def test_n4_by_position_at_both_levels() -> None:
    outer = kernel(call("D", "k2", ins=[access("t")], outs=[access("c")]), name="k1")
    main = function("main", actuals(), call("C", "k1", ins=[access("w")], outs=[access("y")]))
    outcome = inline(module(main, kernels=[outer, kernel(name="k2")]))
    assert row(outcome.doc, "C_D_K1")["ins"] == [access("C:t", memsetref="C:t_set")]
    assert row(outcome.doc, "C_D_K2")["outs"] == [access("y")]


def test_n5_no_capture_through_levels() -> None:
    made = inline(bound(func_args={"a": "c"}, func_outs={"c": "a"})).doc
    assert row(made, "C_D_K1")["ins"] == [access("y", memsetref="y_set")]
    assert row(made, "C_D_K2")["outs"] == [access("x")]


def test_n5_one_location_for_two_parameters() -> None:
    made = inline(bound(func_args={"a": "c"})).doc
    assert (row(made, "C_D_K1")["ins"][0]["memref"], row(made, "C_D_K2")["outs"][0]["memref"]) == ("y", "y")


def test_n5_names_that_all_levels_share() -> None:
    """`a` is the parameter of both kernels, a memory of `main`, and what the other call-site binds."""
    storage = [memory_set("a_set"), memory_set("c_set")]
    inner = function("k2", [memory_set("c_set", "Input"), memory_set("a_set")], op("K", ins=[access("c"), access("a")]))
    outer = function("k1", [memory_set("a_set", "Input"), memory_set("c_set")], call("D", "k2", func_args={"c": "a"}))
    main = function("main", storage, call("C", "k1", func_args={"a": "c"}), call("E", "k1", func_args={"a": "a"}))
    outcome = inline(module(main, kernels=[outer, inner]))
    assert [o["memref"] for o in row(outcome.doc, "C_D_K")["ins"]] == ["c", "C:D:a"]
    assert [o["memref"] for o in row(outcome.doc, "E_D_K")["ins"]] == ["a", "E:D:a"]


# N11: everything that an operand of an inner clone can name


def named_everything() -> Json:
    """`k2` names its parameters, memory and registers in every place; `k1` binds some of them to its own."""
    dynamic: Json = {
        "kind": "register_ap",
        "memsetref": "a_set",
        "regref": "q",
        "reg_ap_offset": "q2",
        "reg_sub_tensor_id": "q",
        "dynamic_ap_info": {"aff_expr": [{"offset_expr": runtime("q"), "coef": 1}], "c": affine("q2")},
    }
    dynamic["dynamic_ap_info"]["c"]["terms"][0]["idx"] = runtime("q2")
    rows_: list[Json] = [
        op("K1", ins=[dynamic, access("a", memsetref="wrong_set")], outs=[access("t", reg_ap_offset="q")]),
        op("K2", indirection_ins=[access("t", memsetref="t_set"), access("a")], outs=[access("c", memsetref="c_set")]),
        op("K3", ins=[{"kind": "register_access", "dtype": "int32", "regref": "q2"}], v={"deep": [runtime("q")]}),
        op("K4", ins=[symbolic("t_set", constant(1), constant(2)), access("t", memref_owner_func="k2")]),
        op("K5", "Call", target="k9", arguments={"x": "a", "y": "t_set", "z": "q", "w": "gone"}),
    ]
    inner = function(
        "k2",
        [
            memory_set("a_set", "Input"),
            memory_set("c_set", "Output"),
            memory_set("t_set", "Internal", location("t", alias=[["a", 1], ["c_set", "c", 3], ["t", 1]])),
            memory_set("u_set", "Internal", location("u", pointer_ref_memloc="a", alias=[["gone", 1]])),
            register("q"),
            register("q2"),
        ],
        *rows_,
    )
    maps = {"func_args": {"a": "a", "q": "r"}, "func_outs": {"c": "s"}}
    outer = function("k1", [memory_set("a_set", "Input"), memory_set("s_set"), register("r")], call("D", "k2", **maps))
    main = function("main", [memory_set("x_set"), register("m")], call("C", "k1", func_args={"a": "x", "r": "m"}))
    return module(main, kernels=[outer, inner])


def test_n11_registers_and_dynamic_access_patterns() -> None:
    outcome = inline(named_everything())
    made = row(outcome.doc, "C_D_K1")
    assert made["ins"][0] == {
        "kind": "register_ap",
        "memsetref": "x_set",
        "regref": "m",
        "reg_ap_offset": "C:D:q2",
        "reg_sub_tensor_id": "m",
        "dynamic_ap_info": {
            "aff_expr": [{"offset_expr": runtime("m"), "coef": 1}],
            "c": affine("", c=0) | {"terms": [{"idx": runtime("C:D:q2"), "coeff": 1}]},
        },
    }
    assert made["outs"] == [access("C:D:t", reg_ap_offset="m")]
    assert row(outcome.doc, "C_D_K3")["ins"] == [{"kind": "register_access", "dtype": "int32", "regref": "C:D:q2"}]
    assert row(outcome.doc, "C_D_K3")["v"] == {"deep": [runtime("m")]}
    assert list(allocations(outcome.doc)) == ["x_set", "m", "C:s_set", "C:D:t_set", "C:D:u_set", "C:D:q2"]


def test_n11_r2_locations_sets_and_owners() -> None:
    outcome = inline(named_everything())
    # The set written beside a location becomes the location's, the owner the function it is in now.
    assert row(outcome.doc, "C_D_K1")["ins"][1] == access("x", memsetref="x_set")
    made = row(outcome.doc, "C_D_K2")
    assert made["indirection_ins"] == [access("C:D:t", memsetref="C:D:t_set"), access("x")]
    assert made["outs"] == [access("C:s", memsetref="C:s_set")]
    first, second = row(outcome.doc, "C_D_K4")["ins"]
    assert (first["kind"], first["offset"], first["memref"], first["memsetref"]) == (
        *("physical_ap", 18, "C:D:t", "C:D:t_set"),
    )
    assert second == access("C:D:t", memref_owner_func="main")


def test_n11_the_arguments_of_a_call_in_an_inner_body() -> None:
    outcome = inline(named_everything())
    assert row(outcome.doc, "C_D_K5")["arguments"] == {"x": "x", "y": "C:D:t_set", "z": "m", "w": "gone"}
    assert row(outcome.doc, "C_D_K5")["target"] == "k9"


def test_n11_r0_aliases_and_pointers_of_inner_memory() -> None:
    made = {
        s["name"]: s["memorylocations"][0] for s in inline(named_everything()).doc["functions"][0]["allocations"][2:5]
    }
    assert made["C:D:t_set"]["alias"] == [["x", 1], ["C:s_set", "C:s", 3], ["C:D:t", 1]]
    assert (made["C:D:u_set"]["pointer_ref_memloc"], made["C:D:u_set"]["alias"]) == ("x", [["gone", 1]])


def test_n11_an_alias_of_the_outer_kernel_on_what_is_bound() -> None:
    own = [memory_set("a_set", "Input"), memory_set("s_set", "Internal", location("s", alias=[["a", 3]]))]
    inner = function("k2", [memory_set("b_set", "Input")], op("K", ins=[access("b")]))
    outer = function("k1", own, call("D", "k2", func_args={"b": "s"}))
    main = function("main", [memory_set("x_set")], call("C", "k1", func_args={"a": "x"}))
    outcome = inline(module(main, kernels=[outer, inner]))
    assert row(outcome.doc, "C_D_K")["ins"] == [access("C:s")]
    assert allocations(outcome.doc)["C:s_set"]["memorylocations"][0]["alias"] == [["x", 3]]


def test_n11_r2_an_owner_that_is_inlined_at_a_later_level_and_one_that_is_not() -> None:
    """`k1` is another function to the body of `k2`, and the callee at the next level; `main` is never one."""
    operands = [access("s", memref_owner_func="k1"), access("w", memref_owner_func="main")]
    inner = function("k2", [], op("K", ins=operands))
    outer = function("k1", [memory_set("s_set")], call("D", "k2"), op("A", ins=[access("s", memref_owner_func="k1")]))
    document = nested(outer=outer, inner=inner)
    document["functions"][0]["allocations"].append(memory_set("w_set"))
    outcome = inline(document)
    assert row(outcome.doc, "C_D_K")["ins"] == [access("C:s", memref_owner_func="main"), operands[1]]
    assert row(outcome.doc, "C_A")["ins"] == [access("C:s", memref_owner_func="main")]


def test_n11_descriptors_of_queues_go_on_naming_the_callers_memory() -> None:
    document = named_everything()
    descriptor = op("desc", "DMADescriptorCopy", ins=[access("x", memref_owner_func="main")], outs=[access("x")])
    entry = {"name": "d", "opcode": "DMABlock", "engine": "DMA", "blocks": [block("b", descriptor)]}
    document["queues"] = [{"name": "q", "blocks": [block("b0", entry)]}]
    outcome = inline(document)
    assert outcome.doc["queues"] == document["queues"]
    before, after = (
        ir.operands.join(ir.instructions, left_on="instruction_id", right_on="id")
        .filter(opcode="DMADescriptorCopy")["location_id"]
        .to_list()
        for ir in (outcome.before, outcome.ir)
    )
    assert before == after == [0, 0]


def test_n11_maps_of_call_sites_that_are_skipped_in_an_inner_body() -> None:
    """The actuals of `E` are a parameter that goes through both levels, and storage and registers of each level."""
    maps = {"func_args": [["f", "a"], ["f", "a_set"], ["g", "t"], ["g", "t_set"]], "func_outs": {"h": "q", "i": "u"}}
    own = [memory_set("a_set", "Input"), memory_set("u_set", "Output"), memory_set("t_set"), register("q")]
    inner = function("k2", own, call("E", "k3", is_allocated=True, **maps))
    bound_to = {"func_args": {"a": "a", "q": "r"}, "func_outs": {"u": "s"}}
    outer = function(
        "k1", [memory_set("a_set", "Input"), memory_set("s_set"), register("r")], call("D", "k2", **bound_to)
    )
    main = function("main", [memory_set("x_set"), register("m")], call("C", "k1", func_args={"a": "x", "r": "m"}))
    outcome = inline(module(main, kernels=[outer, inner, function("k3", [])]), allocated=False)
    made = row(outcome.doc, "C_D_E")
    assert made["func_args"] == [["f", "x"], ["f", "x_set"], ["g", "C:D:t"], ["g", "C:D:t_set"]]
    assert made["func_outs"] == {"h": "m", "i": "C:s"}


def test_n11_u4_what_the_loop_around_an_inner_call_site_addresses() -> None:
    """The map binds the whole location: how the loop of the caller addresses its operand does not matter."""
    inner = function("k2", [memory_set("a_set", "Input")], op("K", ins=[symbolic("a_set", constant(1), constant(2))]))
    site = call("D", "k2", func_args={"a": "s"}, ins=[symbolic("s_set", axis("i"), constant(0))])
    outer = function("k1", [memory_set("s_set")], loop("L", "i", (0, 2, 1), site))
    made = row(inline(nested(outer=outer, inner=inner)).doc, "C_D_K-1")["ins"][0]
    assert (made["kind"], made["offset"], made["memref"], made["memsetref"]) == ("physical_ap", 18, "C:s", "C:s_set")


def test_n10_opt_in_masks_through_levels() -> None:
    inner = function("k2", [], op("K", optin_passes=0xFF), op("L"))
    outcome = inline(nested(call("D", "k2", optin_passes=0), op("A", optin_passes=15), inner=inner))
    assert (row(outcome.doc, "C_D_K")["optin_passes"], row(outcome.doc, "C_A")["optin_passes"]) == (0xF3, 3)
    assert "optin_passes" not in row(outcome.doc, "C_D_L")
    assert outcome.ir.instructions["optin_mask"].to_list() == [15, 0xF3, 3, 3, 15]


# N3, N7, N8: memory


def test_n3_storage_is_appended_outer_first_then_inner_in_program_order() -> None:
    inner = function("k2", [memory_set("i_set"), register("ir")], op("K"))
    last = function("k3", [memory_set("l_set")], op("M"))
    late = loop("L", "i", (0, 2, 1), call("E", "k3"))
    outer = function("k1", [memory_set("o_set"), register("or")], late, call("D", "k2"), call("F", "k3"))
    main = function("main", [memory_set("m_set")], call("C", "k1"), call("G", "k2"), call("H", "k1"))
    outcome = inline(module(main, kernels=[last, outer, inner]))
    of_k1 = ["o_set", "or", "E:l_set", "D:i_set", "D:ir", "F:l_set"]
    assert list(allocations(outcome.doc)) == [
        "m_set",
        *(f"C:{name}" for name in of_k1),
        *("G:i_set", "G:ir"),
        *(f"H:{name}" for name in of_k1),
    ]
    assert location_names(outcome.doc)[:4] == ["m", "C:o", "C:E:l", "C:D:i"]
    made = [s for s in allocations(outcome.doc).values() if s["Skind"] != "register"][1:]
    assert [s["origin"] for s in made] == ["NKI"] * len(made)


def test_n3_u_iterations_share_the_storage_of_an_inner_call_site() -> None:
    inner = function("k2", [memory_set("t_set"), register("r")], op("K", outs=[access("t")], v=runtime("r")))
    outcome = inline(nested(loop("L", "i", (0, 3, 1), call("D", "k2")), inner=inner))
    assert list(allocations(outcome.doc)) == ["C:D:t_set", "C:D:r"]
    made = [row(outcome.doc, f"C_D_K-{n}") for n in range(3)]
    assert [(m["outs"][0]["memref"], m["v"]["regref"]) for m in made] == [("C:D:t", "C:D:r")] * 3


def test_n7_bases_add_up() -> None:
    assert addresses(inline(scratch()).doc) == {"m_set": 1000, "C:o_set": 1008, "C:pad_set": 1200, "C:D:i_set": 1216}


def test_n7_an_output_without_a_scratchpad_gives_the_inner_base() -> None:
    document = scratch(outs=[access("o")], sb_buf_shape=[0, 0])
    assert addresses(inline(document).doc)["C:D:i_set"] == 1000 + 8 + 16
    document = scratch(outs=[], sb_buf_shape=None)
    assert addresses(inline(document).doc)["C:D:i_set"] == 1000 + 16


def test_n7_a_parameter_gives_its_own_address_and_not_the_actuals() -> None:
    pad = memory_set("pad_set", "ExternalOutput", location("pad", type="SB", addr=200, allocated=True))
    document = scratch(pad=pad)
    rows(document)[0]["func_outs"] = {"pad": "m"}
    assert addresses(inline(document).doc) == {"m_set": 1000, "C:o_set": 1008, "C:D:i_set": 1216}


def test_n7_each_call_site_has_its_own_bases() -> None:
    document = scratch()
    main, outer = document["functions"][0], document["nki_functions"]["functions"][0]
    main["allocations"].append(sb_set("n_set", 5000))
    rows(document).append(call("G", "k1", outs=[access("n")], sb_buf_shape=[128, 64]))
    outer["allocations"].append(sb_set("other_set", 300))
    rows(document["nki_functions"]).append(call("E", "k2", outs=[access("other")], sb_buf_shape=[128, 64]))
    made = addresses(inline(document).doc)
    assert [made[f"{c}:{d}:i_set"] for c in "CG" for d in "DE"] == [1216, 1316, 5216, 5316]


@pytest.mark.parametrize("memory", ["PSUM", "DRAM"])
def test_n8_other_memory_keeps_its_address_at_every_level(memory: str) -> None:
    document = scratch()
    inner = document["nki_functions"]["functions"][1]
    inner["allocations"].append(memory_set("p_set", "Internal", location("p", type=memory, addr=64, bank=3)))
    made = allocations(inline(document).doc)["C:D:p_set"]["memorylocations"][0]
    assert (made["addr"], made["bank"]) == (64, 3)


@pytest.mark.parametrize("level", [1, 2])
def test_n8_the_bound_is_checked_at_each_level(level: int) -> None:
    fits = 229_376 - 64 - 200 - 1000
    assert addresses(inline(scratch(fits)).doc)["C:D:i_set"] == fits + 1200
    message = fault(scratch(fits + 1 if level == 1 else fits + 1001))
    assert (message.code, message.function, message.instruction) == (
        *("sb_overflow", "main" if level == 1 else "k1", "C" if level == 1 else "D"),
    )
    # By one byte in the caller, where 1000 more are added; by one byte in `k1` alone.
    assert "= 229377," in message.message


def test_n8_an_architecture_without_capacity_at_an_inner_call_site() -> None:
    document = nested(call("D", "k2"), inner=function("k2", [sb_set("t_set", allocated=False)], op("K")))
    message = fault(document | {"arch": "gen9"})
    assert (message.code, message.function, message.instruction) == ("unknown_arch", "k1", "D")


def test_n7_faults_of_an_inner_scratchpad() -> None:
    message = fault(scratch(pad=sb_set("pad_set", 200, base=32)))
    assert (message.code, message.function, message.block, message.instruction) == (
        *("scratchpad_base", "k1", "Block1", "D"),
    )
    assert (message.function_id, message.instruction_id) == (1, 1)
    loose = sb_set("pad_set", 200, allocated=False)
    message = fault(scratch(pad=loose))
    assert (message.code, message.function, message.instruction) == ("scratchpad_unallocated", "k1", "D")
    assert inline(scratch(pad=loose, is_allocated=False)).status == "changed"


# R6: names are made free at every level


def test_r6_names_are_made_free_at_every_level() -> None:
    inner = function("k2", [memory_set("t_set")], op("K", outs=[access("t")]))
    outer = function("k1", [memory_set("D:t_set", "Internal", location("D:t"))], op("D_K"), call("D", "k2"))
    main = function("main", [], op("C_D_K"), op("C_D_K.1.1"), call("C", "k1"))
    outcome = inline(module(main, kernels=[outer, inner]))
    assert names(outcome.doc) == ["C_D_K", "C_D_K.1.1", "C_D_K.1", "C_D_K.1.2"]
    assert list(allocations(outcome.doc)) == ["C:D:t_set", "C:D:t_set.1"]
    assert row(outcome.doc, "C_D_K.1.2")["outs"] == [access("C:D:t.1")]


def test_r6_names_are_made_free_before_and_after_unrolling() -> None:
    document = nested(op("D_K1"), op("D_K1.1-0"), loop("L", "i", (0, 2, 1), call("D", "k2")))
    assert names(inline(document).doc) == [
        *("p", "C_D_K1", "C_D_K1.1-0", "C_D_K1.1-0.1", "C_D_K2-0", "C_D_K1.1-1", "C_D_K2-1", "z"),
    ]


def test_r6_the_name_of_an_inner_call_site_is_taken_in_its_kernel_alone() -> None:
    document = nested(call("D", "k2"), call("D_K1", "k3"))
    document["nki_functions"]["functions"].append(function("k3", [], op("x")))
    rows(document).append(op("C_D"))
    assert names(inline(document).doc) == ["p", "C_D_K1.1", "C_D_K2", "C_D_K1_x", "z", "C_D"]


def test_r6_names_that_only_arise_at_one_of_two_call_sites() -> None:
    document = nested(call("D", "k2"))
    rows(document)[2:] = [op("E_D_K2"), call("E", "k1")]
    assert names(inline(document).doc) == ["p", "C_D_K1", "C_D_K2", "E_D_K2", "E_D_K1", "E_D_K2.1"]


def test_r6_blocks_and_new_rows_of_inner_levels() -> None:
    inner = function("k2", [], blocks=[block("b1", op("K1")), block("b2", op("K2")), block("b3")])
    own = [block("a1", op("D_br_to_continuation"), call("D", "k2")), block("D_b2", op("A"))]
    outcome = inline(nested(outer=function("k1", [], blocks=own), inner=inner))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["p", "C_D_br_to_continuation", "C_D_K1"]),
        ("C_D_b2.1", ["C_D_K2"]),
        ("C_D_b3", ["C_D_br_to_continuation.1"]),
        ("C_D_continuation", ["C_D_continuation_noop"]),
        ("C_D_b2", ["C_A", "C_br_to_continuation"]),
        ("C_continuation", ["z"]),
    ]
    assert row(outcome.doc, "C_D_continuation_noop") == noop("C_D_continuation_noop") | {"dependencies": ["p"]}


# N16: provenance


def deep() -> Json:
    inner = function("k2", [sb_set("i_set"), register("q")], op("K1"), loop("M", "j", (0, 2, 1), op("K2")))
    outer = function("k1", [sb_set("o_set")], op("A"), loop("L", "i", (0, 2, 1), call("D", "k2", kernel_source_val=2)))
    return nested(outer=outer, inner=inner, site={"kernel_source_val": "Beta2"})


def test_n16_chains_names_and_sources_through_levels_and_loops() -> None:
    outcome = inline(deep())
    found = provenance(outcome.ir)
    assert found["C_A"] == ("A", "k1", "Beta2", "C")
    assert found["C_D_K1-0"] == found["C_D_K1-1"] == ("K1", "k2", "Beta3", "C", "D")
    made = [f"C_D_K2-{n}-{m}" for m in range(2) for n in range(2)]
    assert [found[name] for name in made] == [("K2", "k2", "Beta3", "C", "D")] * 4
    assert outcome.ir.call_chains.select("parent_id", "name", "kernel", "kernel_source", "depth").rows() == [
        (None, "C", "k1", "Beta2", 1),
        (0, "D", "k2", "Beta3", 2),
    ]


def test_n16_memory_registers_and_blocks_through_levels() -> None:
    document = deep()
    document["nki_functions"]["functions"][1]["blocks"].append(block("b2", op("X")))
    document["nki_functions"]["functions"][0]["blocks"][0]["instructions"] = [call("D", "k2")]
    ir = inline(document).ir
    assert ir.sets.select("name", "original_name", "call_chain_id").rows() == [
        ("C:o_set", "o_set", 0),
        ("C:D:i_set", "i_set", 1),
    ]
    assert ir.locations.select("name", "original_name", "call_chain_id").rows() == [("C:o", "o", 0), ("C:D:i", "i", 1)]
    assert ir.registers.select("name", "original_name", "call_chain_id").rows() == [("C:D:q", "q", 1)]
    assert ir.blocks.select("name", "original_name", "call_chain_id").rows()[1:] == [
        ("C_D_b2", "b2", 1),
        ("C_D_continuation", "D_continuation", 0),
        ("C_continuation", None, None),
    ]


def test_n16_helpers_of_an_inner_level_are_rows_of_the_kernel_they_were_made_in() -> None:
    gathered = function("k2", [], *(op(f"K{n}") for n in range(9)))
    document = nested(call("D", "k2", dependencies=["A", "A"]), op("A", dependencies=["D"]), inner=gathered)
    found = provenance(inline(document).ir)
    assert found["C_D_start"] == ("D_start", "k1", "Beta1", "C")
    assert found["C_D_done"] == ("D_done", "k1", "Beta1", "C")
    assert found["C_D_K8"] == ("K8", "k2", "Beta1", "C", "D")


def test_n16_a_return_that_becomes_a_branch_keeps_its_name_at_every_level() -> None:
    inner = function("k2", [], blocks=[block("b1", op("K")), block("b2", op("R", "Return")), block("b3")])
    found = provenance(inline(nested(call("D", "k2"), op("S", "Return"), inner=inner)).ir)
    assert found["C_D_br_to_continuation"] == ("R", "k2", "Beta1", "C", "D")
    assert found["C_D_br_to_continuation.1"][:2] == ("D_br_to_continuation.1", "k1")
    assert found["C_br_to_continuation"] == ("S", "k1", "Beta1", "C")


def test_n16_fresh_names_do_not_show() -> None:
    document = nested(op("D_K1"), call("D", "k2"))
    found = provenance(inline(document).ir)
    assert found["C_D_K1"] == ("D_K1", "k1", "Beta1", "C")
    assert found["C_D_K1.1"] == ("K1", "k2", "Beta1", "C", "D")


def test_n16_each_path_has_a_chain_of_its_own() -> None:
    document = nested(call("D", "k2"), call("E", "k2"))
    rows(document).append(call("F", "k1"))
    chains = inline(document).ir.call_chains.select("id", "parent_id", "name", "depth").rows()
    of = {chain: (name, parent) for chain, parent, name, _ in chains}
    paths = sorted(f"{of[parent][0]}{name}" if parent is not None else name for _, parent, name, _ in chains)
    assert paths == ["C", "CD", "CE", "F", "FD", "FE"]


def test_n16_f13_lines_stay_and_the_chain_leads_through_them() -> None:
    inner = function("k2", [], op("K", debug={"filename": "k.py", "lineno": 7}))
    document = nested(
        call("D", "k2", debug={"filename": "k.py", "lineno": 42}), inner=inner, site={"debug": {"lineno": 99}}
    )
    outcome = inline(document)
    assert row(outcome.doc, "C_D_K")["debug"] == {"filename": "k.py", "lineno": 7}
    assert provenance(outcome.ir)["C_D_K"] == ("K", "k2", "Beta1", "C", "D")


def positions(document: Json) -> tuple[Passed, air.IR]:
    """The pass at both positions, tables handed on; and what the first one left."""
    first = inline(document, allocated=False)
    return first, air.passes.inline_nki_kernel(first.ir, allocated=True).ir


def test_n16_what_a_second_run_inlines_hangs_on_the_chain_of_the_first() -> None:
    inner = function("k2", [sb_set("i_set")], op("K"))
    document = nested(op("A"), call("D", "k2", kernel_source_val=1), inner=inner)
    first, second = positions(document)
    assert provenance(first.ir)["C_D"] == ("D", "k1", "Beta1", "C")
    assert provenance(second) == {"C_A": ("A", "k1", "Beta1", "C"), "C_D_K": ("K", "k2", "Beta2", "C", "D")}
    assert provenance(second) == provenance(
        inline(nested(op("A"), call("D", "k2", kernel_source_val=1), inner=inner)).ir
    )
    sets = second.sets.select("name", "original_name", "call_chain_id").rows()
    assert [(name, original) for name, original, _ in sets] == [("C_D:i_set", "i_set")]


def test_n16_parquet_keeps_it(tmp_path: Path) -> None:
    ir = inline(deep()).ir
    ir.write_parquet(tmp_path / "set")
    again = air.read_parquet(tmp_path / "set")
    assert provenance(again) == provenance(ir)
    assert again.call_chains.rows() == ir.call_chains.rows()


def test_n16_batches_keep_chains_apart() -> None:
    documents: list[Any] = [deep(), nested(call("D", "k2")), deep()]
    result = air.passes.inline_nki_kernel(air.concat([read(d, f"m{n}") for n, d in enumerate(documents)]))
    for number, document in enumerate(documents):
        assert provenance(result.ir.select([number])) == provenance(inline(document).ir)
