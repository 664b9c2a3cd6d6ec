"""Rules N1, N2, N3, N13 and N14 for kernels that call kernels: which bodies go where.

What must come out is written down by hand. What operands, memory and names become has a file of its own, as have the
checks and what is left behind.
"""

from functools import partial
from typing import Any

import pytest

import arrowir as air
from tests.block_bodies import body_of, branch, edges, kernel_names, many, noop, ordered, provenance
from tests.oracle.builders import (
    access,
    affine,
    axis,
    block,
    call,
    flow,
    function,
    jump,
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
from tests.oracle.nested_calls import nested
from tests.single_pass import Json, read, refused, run_pass

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")


def looped(*body: Json, inner: Json | None = None, trips: int = 2) -> Json:
    """`main` calls `k1` at `C`; a loop of `k1` has this body, one of whose rows calls `k2` at `D`."""
    return nested(loop("L", "i", (0, trips, 1), *body), inner=inner)


SPLIT = function("k2", [], blocks=[block("b1", op("K1")), block("b2", op("R", "Return"))])


# N1: bottom-up, at any depth


def test_n1_t10_an_inner_body_stands_in_the_place_of_its_call_site() -> None:
    outcome = inline(nested(op("A"), call("D", "k2"), op("B")))
    assert names(outcome.doc) == ["p", "C_A", "C_D_K1", "C_D_K2", "C_B", "z"]
    assert (outcome.codes, outcome.doc["nki_functions"]) == ([], {"functions": []})


def test_n1_four_levels_and_kernels_that_are_inner_and_outer() -> None:
    document = module(
        function("main", [], call("C", "k1"), op("m"), call("E", "k3")),
        kernels=[
            function("k3", [], call("d", "k4"), op("y")),
            function("k1", [], call("a", "k2"), op("x"), call("f", "k4")),
            function("k4", [], op("w")),
            function("k2", [], call("b", "k3"), call("c", "k3")),
        ],
    )
    outcome = inline(document)
    assert names(outcome.doc) == [
        *("C_a_b_d_w", "C_a_b_y", "C_a_c_d_w", "C_a_c_y", "C_x", "C_f_w"),
        *("m", "E_d_w", "E_y"),
    ]
    assert kernel_names(outcome.doc) == []


def test_n1_from_several_functions_and_modules() -> None:
    document = nested(call("D", "k2"))
    document["functions"].append(function("other", [], call("X", "k2"), call("Y", "k1")))
    outcome = inline(document)
    assert names(outcome.doc, 1) == ["X_K1", "X_K2", "Y_D_K1", "Y_D_K2"]
    batch = air.concat([read(document, "a"), read(nested(call("D", "k2"), op("q")), "b"), read(document, "c")])
    result = air.passes.inline_nki_kernel(batch)
    assert result.ir.to_json(0) == result.ir.to_json(2) == outcome.ir.to_json(0)
    assert [n for n in result.ir.instructions.filter(module_id=1)["name"] if "q" in n] == ["C_q"]


@pytest.mark.parametrize("depth", [1, 3])
def test_n1_call_sites_in_loops_of_kernels(depth: int) -> None:
    body: Json = call("D", "k2")
    for n in range(depth):
        body = loop(f"L{n}", f"i{n}", (0, 2, 1), op(f"A{n}"), body)
    outcome = inline(nested(body, inner=function("k2", [], op("K"))))
    made = [name for name in names(outcome.doc) if name.startswith("C_D_K")]
    assert made == [f"C_D_K-{n}" for n in range(2**depth)]


def test_n1_a_call_site_inside_a_loop_of_the_caller_and_of_the_kernel() -> None:
    document = looped(call("D", "k2"))
    rows(document)[1] = loop("M", "j", (0, 2, 1), call("C", "k1"))
    assert body_of(inline(document).doc, "M") == {
        "M_body": ["C_D_K1-0", "C_D_K2-0", "C_D_K1-1", "C_D_K2-1"],
    }


def test_n1_r4_kernels_among_the_functions() -> None:
    document = module(
        function("main", [], call("C", "k1")), function("k2", [], op("x")), function("k1", [], call("D", "k2"))
    )
    outcome = inline(document)
    assert [each["name"] for each in outcome.doc["functions"]] == ["main"]
    assert names(outcome.doc) == ["C_D_x"]


def test_n1_an_ordinary_function_that_is_called_keeps_its_own_expansion() -> None:
    document = module(
        function("first", [], call("C", "main")),
        function("main", [], op("x"), call("D", "k")),
        kernels=[function("k", [memory_set("t_set")], op("K"))],
    )
    outcome = inline(document)
    assert [names(outcome.doc, n) for n in (0, 1)] == [["C_x", "C_D_K"], ["x", "D_K"]]
    assert [[s["name"] for s in f["allocations"]] for f in outcome.doc["functions"]] == [["C:D:t_set"], ["D:t_set"]]


@pytest.mark.parametrize("allocated", [True, False, None])
def test_n1_t01_a_cycle_behind_a_call_site_that_is_skipped(allocated: bool | None) -> None:
    document = nested(call("D", "k2"), inner=function("k2", [], call("X", "k1")), site={"is_allocated": True})
    message = fault(document, allocated=allocated)
    assert message.code == "recursive_kernel"
    assert "k1 -> k2 -> k1;" in message.message


def test_n1_a_cycle_in_a_loop_without_trips_is_one() -> None:
    document = nested(loop("L", "i", (0, 0, 1), call("D", "k1")))
    assert "k1 -> k1;" in fault(document).message


def test_n1_a_diamond_is_no_cycle_and_each_body_is_made_once() -> None:
    deep = [function(f"k{n}", [], call("a", f"k{n + 1}"), call("b", f"k{n + 1}")) for n in range(10)]
    document = module(function("main", [], call("C", "k0")), kernels=[*deep, function("k10", [], op("x"))])
    outcome = inline(document)
    paths = [f"{n:010b}".replace("0", "_a").replace("1", "_b") for n in range(2**10)]
    assert names(outcome.doc) == [f"C{path}_x" for path in paths]
    assert outcome.ir.call_chains.height == 2**11 - 1


# N2: the gate


def test_n2_an_outer_kernels_status_comes_from_its_own_memory() -> None:
    document = nested(op("A"), call("D", "k2"), inner=function("k2", [sb_set("t_set")], op("K")))
    skipped = [("note", "call_site_skipped")]
    first = inline(document, allocated=False)
    assert (names(first.doc), first.codes) == (["p", "C_A", "C_D", "z"], skipped)
    assert (first.messages[0].function, first.messages[0].instruction) == ("k1", "D")
    assert names(inline(first.doc, allocated=True).doc) == ["p", "C_A", "C_D_K", "z"]
    # Taken the other way round nothing happens, and what stands in `k1` is not looked at.
    other = inline(document, allocated=True)
    assert (other.status, other.codes, other.messages[0].instruction) == ("unchanged", skipped, "C")


@pytest.mark.parametrize("key", ["is_allocated", "status"])
def test_n2_a_status_recorded_on_an_inner_call_site_wins(key: str) -> None:
    document = nested(call("D", "k2", **{key: True}), call("E", "k2", **{key: False}), call("F", "k2"))
    outcome = inline(document, allocated=False, allocated_key=key)
    assert names(outcome.doc) == ["p", "C_D", "C_E_K1", "C_E_K2", "C_F_K1", "C_F_K2", "z"]
    assert [m.instruction for m in outcome.messages] == ["D"]
    assert kernel_names(outcome.doc) == ["k2"]
    assert row(outcome.doc, "C_D")[key] is True


def test_n2_one_note_for_each_call_site_of_the_file_in_row_order() -> None:
    document = nested(call("D", "k2", is_allocated=True), call("E", "k2", is_allocated=True))
    rows(document)[2:] = [call("F", "k1"), call("G", "k2", is_allocated=True)]
    outcome = inline(document, allocated=False)
    assert names(outcome.doc) == ["p", "C_D", "C_E", "F_D", "F_E", "G"]
    assert [(m.function, m.instruction) for m in outcome.messages] == [("main", "G"), ("k1", "D"), ("k1", "E")]
    assert [m.function_id for m in outcome.messages] == [0, 1, 1]


def test_n2_what_is_skipped_two_levels_down() -> None:
    document = nested(
        call("D", "k2", func_args={"a": "s"}),
        outer=function("k1", [memory_set("s_set")], call("D", "k2", func_args={"a": "s"})),
        inner=function("k2", [memory_set("a_set", "Input")], call("E", "k3", func_args={"q": "a"}, is_allocated=True)),
    )
    document["nki_functions"]["functions"].append(function("k3", [memory_set("q_set", "Input")], op("x")))
    outcome = inline(document, allocated=False)
    assert names(outcome.doc) == ["p", "C_D_E", "z"]
    assert row(outcome.doc, "C_D_E")["func_args"] == {"q": "C:s"}
    assert kernel_names(outcome.doc) == ["k3"]
    assert provenance(outcome.ir) == {"C_D_E": ("E", "k2", "Beta1", "C", "D")}
    assert outcome.ir.calls["callee_id"].to_list() == [1]


def skipping(**more: Any) -> Json:
    """`k1` calls the allocated `k2` with its parameter, its own memory and register, and a name that is nowhere."""
    inner = function("k2", [memory_set("a_set", "Input"), memory_set("c_set", "Output"), sb_set("i_set")], op("K"))
    own = [memory_set("a_set", "Input"), memory_set("t_set"), register("r")]
    site = call("D", "k2", ins=[access("a", memsetref="a_set")], outs=[access("t")], **more)
    outer = function("k1", own, op("A"), site, op("B", dependencies=["D"]))
    main = function("main", [memory_set("x_set")], call("C", "k1", func_args={"a": "x"}, dependencies=[]))
    return module(main, kernels=[outer, inner])


def test_n2_n3_a_skipped_inner_call_site_is_cloned_with_its_maps_rewired() -> None:
    maps: Json = {
        "func_args": {"a": "a", "b": "a_set", "odd": "gone"},
        "func_outs": [["c", "t"], ["c", "t_set"], ["q", "r"]],
    }
    more = {"dependencies": ["A"], "optin_passes": 15, "sb_buf_shape": [0, 0], "zz": {"a": "t"}, "debug": {"lineno": 1}}
    document = skipping(**maps, **more)
    outcome = inline(document, allocated=False)
    assert row(outcome.doc, "C_D") == rows(document["nki_functions"])[1] | {
        "name": "C_D",
        "func_args": {"a": "x", "b": "x_set", "odd": "gone"},
        "func_outs": [["c", "C:t"], ["c", "C:t_set"], ["q", "C:r"]],
        "ins": [access("x", memsetref="x_set")],
        "outs": [access("C:t")],
        "dependencies": ["C_A"],
        "optin_passes": 3,
    }
    assert list(row(outcome.doc, "C_D")) == list(rows(document["nki_functions"])[1])
    assert edges(outcome, "C_B") == {"dependencies": ["C_D"]}
    assert kernel_names(outcome.doc) == ["k2"]
    assert provenance(outcome.ir)["C_D"] == ("D", "k1", "Beta1", "C")


def test_n2_at_once_or_position_by_position() -> None:
    document = skipping(func_args={"a": "a"}, func_outs={"c": "t"})
    first = inline(document, allocated=False)
    second = inline(first.doc, allocated=True)
    at_once = inline(document)
    assert names(second.doc) == names(at_once.doc) == ["C_A", "C_D_K", "C_B"]
    assert second.doc["functions"][0]["blocks"] == at_once.doc["functions"][0]["blocks"]
    # The call-site that the storage is named after has another name by then.
    assert [s["name"] for s in at_once.doc["functions"][0]["allocations"]] == ["x_set", "C:t_set", "C:r", "C:D:i_set"]
    assert [s["name"] for s in second.doc["functions"][0]["allocations"]] == ["x_set", "C:t_set", "C:r", "C_D:i_set"]


def test_n2_u_a_skipped_call_site_in_a_loop_of_the_kernel_is_unrolled() -> None:
    site = call("D", "k2", is_allocated=True, loopnest=["i"], dependencies=["A"], v=axis("i"))
    outcome = inline(looped(site, op("A"), trips=3), allocated=False)
    assert names(outcome.doc) == ["p", *(f"C_{n}-{i}" for i in range(3) for n in "DA"), "z"]
    made = row(outcome.doc, "C_D-2")
    assert (made["v"], made["dependencies"], "loopnest" in made) == (2, ["C_A-2"], False)
    assert provenance(outcome.ir)["C_D-1"] == ("D", "k1", "Beta1", "C")
    predicated = looped(call("D", "k2", is_allocated=True, predicates=[{"expr": 1}]))
    message = fault(predicated, allocated=False)
    assert (message.code, message.function, message.instruction) == ("predicated_instruction", "k1", "D")


def test_n2_r4_a_skipped_inner_call_site_may_name_nobody() -> None:
    outcome = inline(nested(op("A"), call("D", "nobody", is_allocated=True)), allocated=False)
    assert row(outcome.doc, "C_D")["func"] == "nobody"


def test_n2_r5_operands_of_a_skipped_inner_call_site_have_to_resolve() -> None:
    document = nested(op("A"), call("D", "k2", is_allocated=True, ins=[access("gone")]))
    message = fault(document, allocated=False)
    assert (message.code, message.function, message.instruction) == ("unresolved_name", "k1", "D")
    # Those of one that is inlined are not needed.
    assert inline(document).status == "changed"


# N3: expansion comes before unrolling


def test_n3_u3_inner_bodies_are_unrolled_with_the_loops_around_their_call_site() -> None:
    outcome = inline(looped(op("A"), call("D", "k2"), op("B")))
    assert names(outcome.doc) == [
        "p",
        *(f"C_{name}-{n}" for n in (0, 1) for name in ("A", "D_K1", "D_K2", "B")),
        "z",
    ]


def test_n3_u3_loops_of_both_levels_number_one_after_the_other() -> None:
    inner = function("k2", [], loop("M", "j", (0, 3, 2), op("K", v=axis("j"))))
    outcome = inline(looped(call("D", "k2"), inner=inner))
    assert names(outcome.doc) == ["p", "C_D_K-0-0", "C_D_K-1-0", "C_D_K-0-1", "C_D_K-1-1", "z"]
    assert [row(outcome.doc, f"C_D_K-{n}-1")["v"] for n in (0, 1)] == [0, 2]


def test_n3_the_shard_id_reaches_every_level() -> None:
    shard = {"kind": "ShardIDKind"}
    document = nested(op("A", v=shard), call("D", "k2"), inner=function("k2", [], op("K", v=shard)))
    outcome = inline(document, shard_id=5)
    assert (row(outcome.doc, "C_A")["v"], row(outcome.doc, "C_D_K")["v"]) == (5, 5)


def test_n3_an_axis_of_the_outer_loop_means_nothing_to_the_inner_body() -> None:
    message = fault(looped(call("D", "k2"), inner=function("k2", [], op("K", v=axis("i")))))
    assert (message.code, message.function, message.instruction) == ("unresolved_name", "k2", "K")


def test_n3_the_modules_own_functions_are_not_changed() -> None:
    inner = function("k2", [sb_set("t_set", allocated=False)], loop("M", "j", (0, 2, 1), op("K", loopnest=["j"])))
    outer = function("k1", [memory_set("s_set")], loop("L", "i", (0, 2, 1), call("D", "k2"), op("A")))
    document = nested(inner=inner, outer=outer)
    rows(document).append(call("S", "k1", is_allocated=True))
    outcome = inline(document, allocated=False)
    assert len(names(outcome.doc)) == 2 + 6 + 1
    assert outcome.doc["nki_functions"] == document["nki_functions"]


def test_n3_a_loop_without_trips_is_not_looked_into_and_counts_as_expanded() -> None:
    document = nested(loop("L", "i", (0, 0, 1), call("D", "k2")), op("A"))
    document["nki_functions"]["functions"][1]["blocks"] = [block("b1", op("K1")), block("b2", op("R", "Return"))]
    outcome = inline(document)
    assert (names(outcome.doc), kernel_names(outcome.doc)) == (["p", "C_A", "z"], [])
    skipped = nested(loop("L", "i", (0, 0, 1), call("D", "k2", is_allocated=True)), op("A"))
    outcome = inline(skipped, allocated=False)
    assert (names(outcome.doc), kernel_names(outcome.doc)) == (["p", "C_A", "z"], ["k2"])
    assert outcome.codes == [("note", "call_site_skipped")]


# N13, N20: several blocks through levels


def test_n13_an_inner_body_that_splits_makes_the_outer_one_split() -> None:
    outcome = inline(nested(op("A"), call("D", "k2"), op("B"), op("S", "Return"), inner=SPLIT))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["p", "C_A", "C_D_K1"]),
        ("C_D_b2", ["C_D_br_to_continuation"]),
        ("C_D_continuation", ["C_B", "C_br_to_continuation"]),
        ("C_continuation", ["z"]),
    ]
    assert row(outcome.doc, "C_D_br_to_continuation")["target"] == "C_D_continuation"
    assert row(outcome.doc, "C_br_to_continuation")["target"] == "C_continuation"
    assert edges(outcome, "z") == {
        "dependencies": ["C_A", "C_D_K1", "C_D_br_to_continuation", "C_B", "C_br_to_continuation"]
    }


def test_n13_helpers_of_the_inner_level_are_rows_of_the_outer_body() -> None:
    again = op("K1", "CompareAndBranch", on_true="b1", on_false="b2")
    inner = function("k2", [], blocks=[block("b1", again), block("bx"), block("b2")])
    outcome = inline(nested(call("D", "k2", engine="SP"), inner=inner))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["p", "C_D_br_to_entry"]),
        ("C_D_b1", ["C_D_K1"]),
        ("C_D_bx", ["C_D_noop"]),
        ("C_D_b2", ["C_D_br_to_continuation"]),
        ("C_D_continuation", ["C_D_continuation_noop", "C_br_to_continuation"]),
        ("C_continuation", ["z"]),
    ]
    # The engine is that of their own level's call-site; at the next they are clones, each a root and a sink.
    made = branch("C_D_br_to_continuation", "C_D_continuation", "SP") | {"dependencies": ["p"]}
    assert row(outcome.doc, "C_D_br_to_continuation") == made
    assert row(outcome.doc, "C_D_br_to_entry") == branch("C_D_br_to_entry", "C_D_b1", "SP") | {"dependencies": ["p"]}
    assert row(outcome.doc, "C_D_noop") == noop("C_D_noop", "SP") | {"dependencies": ["p"]}
    assert row(outcome.doc, "C_br_to_continuation") == branch("C_br_to_continuation", "C_continuation")
    clones = ["C_D_br_to_entry", "C_D_K1", "C_D_noop", "C_D_br_to_continuation", "C_D_continuation_noop"]
    assert edges(outcome, "z") == {"dependencies": clones}


def test_n13_an_outer_body_that_splits_around_an_inner_one_of_one_block() -> None:
    outer = function("k1", [], blocks=[block("b1", op("A"), call("D", "k2")), block("b2", call("E", "k2"), op("B"))])
    assert list(flow(inline(nested(outer=outer)).doc).items()) == [
        ("Block1", ["p", "C_A", "C_D_K1", "C_D_K2"]),
        ("C_b2", ["C_E_K1", "C_E_K2", "C_B", "C_br_to_continuation"]),
        ("C_continuation", ["z"]),
    ]


def test_n13_bodies_that_split_at_three_levels() -> None:
    last = function("k3", [], blocks=[block("c1", op("X")), block("c2", op("Y", "Exit"))])
    inner = function("k2", [], blocks=[block("b1", op("K")), block("b2", call("E", "k3"), op("R", "Return"))])
    outer = function("k1", [], blocks=[block("a1", call("D", "k2"), op("A")), block("a2", jump("J", "a2"))])
    document = nested(inner=inner, outer=outer)
    document["nki_functions"]["functions"].append(last)
    outcome = inline(document)
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["p", "C_D_K"]),
        ("C_D_b2", ["C_D_E_X"]),
        ("C_D_E_c2", ["C_D_E_Y"]),
        ("C_D_E_continuation", ["C_D_br_to_continuation"]),
        ("C_D_continuation", ["C_A"]),
        ("C_a2", ["C_J"]),
        ("C_continuation", ["z"]),
    ]
    assert row(outcome.doc, "C_D_br_to_continuation")["target"] == "C_D_continuation"
    assert row(outcome.doc, "C_J")["target"] == "C_a2"


def test_n13_branches_of_the_outer_body_that_name_the_block_that_is_split() -> None:
    outer = function(
        "k1", [], blocks=[block("a1", op("A")), block("a2", call("D", "k2"), op("B"), jump("J", "a2")), block("a3")]
    )
    outcome = inline(nested(inner=SPLIT, outer=outer))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["p", "C_A"]),
        ("C_a2", ["C_D_K1"]),
        ("C_D_b2", ["C_D_br_to_continuation"]),
        ("C_D_continuation", ["C_B", "C_J"]),
        ("C_a3", ["C_br_to_continuation"]),
        ("C_continuation", ["z"]),
    ]
    assert row(outcome.doc, "C_J")["target"] == "C_a2"


def test_n13_what_branches_back_to_an_entry_whose_tail_has_moved() -> None:
    outcome = inline(nested(call("D", "k2"), op("A"), jump("J", "Block1"), inner=SPLIT))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["p", "C_br_to_entry"]),
        ("C_Block1", ["C_D_K1"]),
        ("C_D_b2", ["C_D_br_to_continuation"]),
        ("C_D_continuation", ["C_A", "C_J"]),
        ("C_continuation", ["z"]),
    ]
    assert row(outcome.doc, "C_J")["target"] == "C_Block1"


def test_n20_inner_bodies_that_split_one_after_the_other() -> None:
    outcome = inline(nested(call("D", "k2"), call("E", "k2"), op("A"), inner=SPLIT))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["p", "C_D_K1"]),
        ("C_D_b2", ["C_D_br_to_continuation"]),
        ("C_D_continuation", ["C_E_K1"]),
        ("C_E_b2", ["C_E_br_to_continuation"]),
        ("C_E_continuation", ["C_A", "C_br_to_continuation"]),
        ("C_continuation", ["z"]),
    ]


@pytest.mark.parametrize(
    "inner",
    [
        SPLIT,
        function("k2", [], op("R", "Return"), op("K")),
        function("k2", [], op("K"), jump("J", "Block1")),
        function("k2", [], op("K", "Break")),
    ],
)
def test_u2_an_inner_body_that_splits_in_a_loop_of_a_kernel(inner: Json) -> None:
    outcome = inline(looped(call("D", "k2"), inner=inner))
    assert outcome.status == "changed"
    assert {"C_Block1_LoopEntry_1", "C_Block1_LoopBody_1", "C_Block1_LoopExit_1"} <= set(flow(outcome.doc))
    # A loop of the caller is not unrolled and takes it.
    document = module(function("main", [], loop("L", "i", (0, 2, 1), call("D", "k2"))), kernels=[inner])
    assert inline(document).status == "changed"
    assert names(inline(looped(call("D", "k2"), inner=inner, trips=0)).doc) == ["p", "z"]


def test_n12_a_final_return_of_an_inner_body_is_dropped() -> None:
    inner = function("k2", [], op("K"), op("R", "Return"))
    assert names(inline(nested(call("D", "k2"), op("A"), inner=inner)).doc) == ["p", "C_D_K", "C_A", "z"]
    assert names(inline(looped(call("D", "k2"), inner=inner)).doc) == ["p", "C_D_K-0", "C_D_K-1", "z"]


# N14: edges through levels


def test_n14_edges_of_and_on_an_inner_call_site() -> None:
    document = nested(
        op("A"),
        call("D", "k2", dependencies=["A"], loop_carried_dependencies=[["B", "Anti", 2]]),
        op("B", dependencies=[["D", "Anti"], "A"]),
    )
    outcome = inline(document)
    assert edges(outcome, "C_A") == {"dependencies": ["p"]}
    assert edges(outcome, "C_D_K1") == {"dependencies": ["C_A"], "loop_carried_dependencies": [["C_B", "Anti", 2]]}
    assert edges(outcome, "C_D_K2") == {"dependencies": ["C_D_K1"]}
    assert edges(outcome, "C_B") == {"dependencies": [["C_D_K2", "Anti"], "C_A"]}
    # The first of D waits for B too: the outer body has no sink.
    assert edges(outcome, "z") == {}


def test_n14_inner_clones_are_the_ends_of_the_outer_body() -> None:
    inner = function("k2", [], op("K1"), op("K2", dependencies=["K1"]), op("K3"))
    outcome = inline(nested(call("D", "k2"), inner=inner))
    assert [edges(outcome, f"C_D_K{n}")["dependencies"] for n in (1, 2, 3)] == [["p"], ["C_D_K1"], ["p"]]
    assert edges(outcome, "z") == {"dependencies": ["C_D_K2", "C_D_K3"]}


def test_n14_call_sites_of_a_kernel_on_each_other() -> None:
    outcome = inline(nested(call("D", "k2", dependencies=["E"]), call("E", "k2", dependencies=["D"])))
    assert edges(outcome, "C_D_K1") == {"dependencies": ["C_E_K2"]}
    assert edges(outcome, "C_E_K1") == {"dependencies": ["C_D_K2"]}
    # Neither has a root or a sink.
    assert edges(outcome, "z") == {}


@pytest.mark.parametrize("inner", [[], [op("R", "Return")], [loop("M", "j", (0, 0, 1), op("K"))]])
def test_n14_an_empty_inner_body_joins(inner: list[Json]) -> None:
    outer_rows = (op("A"), call("D", "k2", dependencies=[["A", "Anti"]]), op("B", dependencies=[["D", "Output", 1]]))
    outcome = inline(nested(*outer_rows, inner=function("k2", [], *inner)))
    assert names(outcome.doc) == ["p", "C_A", "C_B", "z"]
    assert edges(outcome, "C_B") == {"dependencies": [["C_A", "Output", 1]]}


def test_n14_a_noop_that_an_empty_inner_body_leaves_is_the_outer_body() -> None:
    outcome = inline(nested(call("D", "k2"), inner=function("k2", [])))
    assert names(outcome.doc) == ["p", "C_D_noop", "z"]
    assert row(outcome.doc, "C_D_noop") == noop("C_D_noop") | {"dependencies": ["p"]}
    assert edges(outcome, "z") == {"dependencies": ["C_D_noop"]}
    assert provenance(outcome.ir) == {"C_D_noop": ("D_noop", "k1", "Beta1", "C")}


def test_n14_start_and_done_of_the_inner_level_are_clones_of_the_next() -> None:
    document = nested(
        op("A1"), op("A2"), call("D", "k2", dependencies=["A1", "A2"]), call("E", "k2", dependencies=["D", "D"]),
        inner=function("k2", [], *many(9)),
    )  # fmt: skip
    outcome = inline(document)
    made = {site: [f"C_{site}_K{n}" for n in range(9)] for site in "DE"}
    # Nobody depends on E: its clones are sinks of the outer body, more than 8, and `z` depends on that.
    assert names(outcome.doc) == [
        *("p", "C_A1", "C_A2", "C_D_start", *made["D"], "C_D_done"),
        *("C_E_start", *made["E"], "C_done", "z"),
    ]
    assert edges(outcome, "C_D_start") == {"dependencies": ["C_A1", "C_A2"]}
    assert edges(outcome, "C_D_K3") == ordered("C_D_start")
    assert edges(outcome, "C_D_done") == ordered(*made["D"])
    assert edges(outcome, "C_E_start") == {"dependencies": ["C_D_done", "C_D_done"]}
    assert edges(outcome, "C_done") == ordered(*made["E"])
    assert edges(outcome, "z") == {"dependencies": ["C_done"]}


def test_n14_u7_edges_of_an_inner_call_site_in_a_loop() -> None:
    site = call("D", "k2", dependencies=["A"], loop_carried_dependencies=[["D", "Flow", [1]]])
    by_index = {"unroll_dependencies": [["D", "Anti", [affine("i", c=-2)]]]}
    outcome = inline(looped(op("A"), site, op("B", dependencies=["D"], **by_index), trips=3))
    first = [edges(outcome, f"C_D_K1-{n}")["dependencies"] for n in range(3)]
    assert first == [["C_A-0"], ["C_A-1", ["C_D_K2-0", "Flow"]], ["C_A-2", ["C_D_K2-1", "Flow"]]]
    last = [edges(outcome, f"C_B-{n}")["dependencies"] for n in range(3)]
    assert last == [["C_D_K2-0"], ["C_D_K2-1"], ["C_D_K2-2", ["C_D_K2-0", "Anti"]]]


def test_n14_u7_what_an_inner_body_carries_is_carried_by_the_loop_around_it() -> None:
    inner = function("k2", [], op("K1", loop_carried_dependencies=[["K2", "Anti", 1]]), op("K2"))
    alone = inline(nested(call("D", "k2"), inner=inner))
    assert edges(alone, "C_D_K1") == {"loop_carried_dependencies": [["C_D_K2", "Anti", 1]]}
    outcome = inline(looped(call("D", "k2"), inner=inner))
    assert edges(outcome, "C_D_K1-1") == {"dependencies": [["C_D_K2-0", "Anti"]]}
    # Its edge has no instance in the first iteration: a root.
    assert edges(outcome, "C_D_K1-0") == {"dependencies": ["p"]}


def test_n14_u3_helpers_of_an_inner_body_in_a_loop() -> None:
    outcome = inline(looped(call("D", "k2"), op("B", dependencies=["D"]), inner=function("k2", [], *many(9))))
    assert names(outcome.doc)[9:13] == ["C_D_K8-0", "C_D_done-0", "C_B-0", "C_D_K0-1"]
    assert edges(outcome, "C_B-1") == {"dependencies": ["C_D_done-1"]}
    assert edges(outcome, "C_D_done-1") == ordered(*(f"C_D_K{n}-1" for n in range(9)))


def test_n14_an_empty_inner_body_in_a_loop_joins_over_iterations() -> None:
    carried = {"loop_carried_dependencies": [["D", "Flow", 1]]}
    document = looped(op("A"), call("D", "k2", dependencies=["A"]), op("B", **carried), inner=function("k2", []))
    outcome = inline(document)
    assert names(outcome.doc) == ["p", "C_A-0", "C_B-0", "C_A-1", "C_B-1", "z"]
    assert edges(outcome, "C_B-1") == {"dependencies": [["C_A-0", "Flow"]]}


def test_n14_f09_waits_and_hints_of_inner_bodies_are_repointed_per_copy() -> None:
    wait = {"on_wait": [{"from": "K1", "id": 3}, {"from": "dma", "id": 5}], "on_update": [{"id": 7}]}
    inner = function("k2", [], op("K1"), op("K2", "BranchHint", sync_info=wait, associate_branch="K1"))
    outer_wait = {"on_wait": [{"from": "D", "id": 1}]}
    outcome = inline(nested(call("D", "k2"), call("E", "k2"), op("A", sync_info=outer_wait), inner=inner))
    for site in "DE":
        made = row(outcome.doc, f"C_{site}_K2")
        assert [w["from"] for w in made["sync_info"]["on_wait"]] == [f"C_{site}_K1", "dma"]
        assert made["associate_branch"] == f"C_{site}_K1"
    # A call-site that is gone stays as text.
    assert row(outcome.doc, "C_A")["sync_info"] == outer_wait
