"""The oracle of inner call-sites in loops of a kernel (N3, U), and of nesting as repeated application."""

import copy
from typing import Any

import pytest

from tests.oracle import Provenance, run_unroll
from tests.oracle.builders import (
    Obj,
    access,
    affine,
    allocations,
    block,
    call,
    constant,
    function,
    jump,
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
from tests.oracle.calls import edges, failure, inlined


def looped(*body: Obj, inner: Obj | None = None, trips: int = 2, **site: Any) -> Obj:
    """`main` calls `k1` at `C`; a loop of `k1` has this body, one of whose rows calls `k2` at `D`."""
    main = function("main", [], op("p"), call("C", "k1", dependencies=["p"]), op("z", dependencies=["C"]))
    callee = inner or function("k2", [], op("K1"), op("K2", dependencies=["K1"]))
    return module(main, kernels=[function("k1", [], loop("L", "i", (0, trips, 1), *body)), callee])


# Names, storage, provenance


def test_u3_an_inner_body_is_expanded_before_the_loop() -> None:
    outcome = inlined(looped(op("A"), call("D", "k2")))
    assert names(outcome.doc) == [
        "p",
        "C_A-0",
        "C_D_K1-0",
        "C_D_K2-0",
        "C_A-1",
        "C_D_K1-1",
        "C_D_K2-1",
        "z",
    ]
    assert outcome.provenance[2] == outcome.provenance[5] == Provenance("K1", "k2", "Beta1", ("C", "D"), 2)


def test_u3_loops_of_both_levels() -> None:
    inner = function("k2", [], loop("M", "j", (0, 2, 1), op("K")))
    outcome = inlined(looped(call("D", "k2"), inner=inner))
    assert names(outcome.doc) == ["p", "C_D_K-0-0", "C_D_K-1-0", "C_D_K-0-1", "C_D_K-1-1", "z"]


def test_u3_r6_names_are_made_free_before_and_after_unrolling() -> None:
    # In the kernel `D_K1` is taken, so the clone is `D_K1.1`; unrolling wants `D_K1.1-0`, which is there.
    doc = looped(call("D", "k2"))
    doc["nki_functions"]["functions"][0]["blocks"][0]["instructions"][:0] = [op("D_K1"), op("D_K1.1-0")]
    assert names(inlined(doc).doc) == [
        "p",
        "C_D_K1",
        "C_D_K1.1-0",
        "C_D_K1.1-0.1",
        "C_D_K2-0",
        "C_D_K1.1-1",
        "C_D_K2-1",
        "z",
    ]


def test_n3_iterations_share_the_storage_of_an_inner_call_site() -> None:
    inner = function("k2", [memory_set("t_set"), register("r")], op("K", outs=[access("t")], v=runtime("r")))
    outcome = inlined(looped(call("D", "k2"), inner=inner, trips=3))
    assert list(allocations(outcome.doc)) == ["C:D:t_set", "C:D:r"]
    assert [row(outcome.doc, f"C_D_K-{n}")["outs"][0]["memref"] for n in range(3)] == ["C:D:t"] * 3


def test_u4_what_an_inner_body_is_bound_to_may_be_addressed_by_the_loop_around_it() -> None:
    inner = function("k2", [memory_set("a_set", "Input")], op("K", ins=[symbolic("a_set", constant(1), constant(2))]))
    doc = looped(call("D", "k2", func_args={"a": "t"}, ins=[symbolic("t_set", affine("i"), constant(0))]), inner=inner)
    doc["nki_functions"]["functions"][0]["allocations"] = [memory_set("t_set")]
    made = row(inlined(doc).doc, "C_D_K-1")["ins"][0]
    # The inner offset only: 1 * 16 + 2.
    assert (made["kind"], made["offset"], made["memref"], made["memsetref"]) == ("physical_ap", 18, "C:t", "C:t_set")


def test_u2_a_block_tensor_of_an_inner_kernel_inside_a_loop_of_the_outer() -> None:
    blocky = memory_set("t_set", tensor_class="NeuronBlockTensor")
    inner = function("k2", [blocky], op("K", outs=[access("t")]))
    assert failure(looped(call("D", "k2"), inner=inner)) == "block_tensor"
    alone = module(function("main", [], call("D", "k2")), kernels=[inner])
    assert inlined(alone).status == "changed"


# Edges


def test_u7_edges_of_and_on_an_inner_call_site() -> None:
    outcome = inlined(looped(op("A"), call("D", "k2", dependencies=["A"]), op("B", dependencies=["D"])))
    for n in (0, 1):
        assert edges(outcome, f"C_D_K1-{n}") == [f"C_A-{n}"]
        assert edges(outcome, f"C_D_K2-{n}") == [f"C_D_K1-{n}"]
        assert edges(outcome, f"C_B-{n}") == [f"C_D_K2-{n}"]


def test_u7_carried_and_unroll_edges_of_an_inner_call_site() -> None:
    carried = {"loop_carried_dependencies": [["D", "Flow", [1]]]}
    outcome = inlined(looped(call("D", "k2", **carried), trips=3))
    assert [edges(outcome, f"C_D_K1-{n}") for n in range(3)] == [
        ["p"],
        [["C_D_K2-0", "Flow"]],
        [["C_D_K2-1", "Flow"]],
    ]
    by_index = {"unroll_dependencies": [["D", "Anti", [affine("i", c=-2)]]]}
    outcome = inlined(looped(call("D", "k2"), op("B", **by_index), trips=3))
    assert [edges(outcome, f"C_B-{n}") for n in range(3)] == [["p"], ["p"], [["C_D_K2-0", "Anti"]]]


def test_u7_carried_edges_that_an_inner_body_keeps_are_carried_by_the_loop_around_it() -> None:
    inner = function("k2", [], op("K1", loop_carried_dependencies=[["K2", "Anti", 1]]), op("K2"))
    alone = inlined(module(function("main", [], call("D", "k2")), kernels=[inner]))
    assert edges(alone, "D_K1", "loop_carried_dependencies") == [["D_K2", "Anti", 1]]
    outcome = inlined(looped(call("D", "k2"), inner=inner))
    assert edges(outcome, "C_D_K1-1") == [["C_D_K2-0", "Anti"]]
    assert edges(outcome, "C_D_K1-0") == ["p"]
    assert edges(outcome, "C_D_K1-1", "loop_carried_dependencies") is None


def test_n14_an_inner_body_that_is_empty_in_a_loop() -> None:
    carried = {"loop_carried_dependencies": [["D", "Flow", 1]]}
    doc = looped(op("A"), call("D", "k2", dependencies=["A"]), op("B", **carried), inner=function("k2", []))
    outcome = inlined(doc)
    # B -> D -> A, carried: B of one iteration on A of the one before.
    assert names(outcome.doc) == ["p", "C_A-0", "C_B-0", "C_A-1", "C_B-1", "z"]
    assert edges(outcome, "C_B-1") == [["C_A-0", "Flow"]]


def test_n14_u3_helpers_of_an_inner_body_in_a_loop() -> None:
    inner = function("k2", [], *(op(f"K{n}") for n in range(9)))
    outcome = inlined(looped(call("D", "k2"), op("B", dependencies=["D"]), inner=inner))
    assert names(outcome.doc)[9:13] == ["C_D_K8-0", "C_D_done-0", "C_B-0", "C_D_K0-1"]
    assert edges(outcome, "C_B-1") == ["C_D_done-1"]
    assert outcome.provenance[10] == Provenance("D_done", "k1", "Beta1", ("C",), 1)


# Control flow


def split_kernel() -> Obj:
    return function("k2", [], blocks=[block("b1", op("K1")), block("b2", op("K2"))])


@pytest.mark.parametrize(
    "inner",
    [
        split_kernel(),
        function("k2", [], op("R", "Return"), op("K")),
        function("k2", [], op("K"), jump("J", "Block1")),
        function("k2", [], op("K", "Break")),
    ],
)
def test_u2_a_split_body_in_a_loop_of_a_kernel(inner: Obj) -> None:
    outcome = inlined(looped(call("D", "k2"), inner=inner))
    assert outcome.status == "changed"
    assert "C_Block1_LoopBody_1" in [block["name"] for block in outcome.doc["functions"][0]["blocks"]]
    # A loop that is not unrolled, one of the caller, takes it.
    doc = module(function("main", [], loop("L", "i", (0, 2, 1), call("D", "k2"))), kernels=[inner])
    assert inlined(doc).status == "changed"
    # Nor does anybody look into a loop without trips.
    assert names(inlined(looped(call("D", "k2"), inner=inner, trips=0)).doc) == ["p", "z"]


def test_u2_a_final_return_in_a_loop_of_a_kernel_is_dropped() -> None:
    outcome = inlined(looped(call("D", "k2"), inner=function("k2", [], op("K"), op("R", "Return"))))
    assert names(outcome.doc) == ["p", "C_D_K-0", "C_D_K-1", "z"]


def test_u6_a_skipped_inner_call_site_is_unrolled() -> None:
    doc = looped(call("D", "k2", is_allocated=True, loopnest=["i"], dependencies=["A"]), op("A"))
    outcome = inlined(doc, allocated=False)
    assert names(outcome.doc) == ["p", "C_D-0", "C_A-0", "C_D-1", "C_A-1", "z"]
    made = row(outcome.doc, "C_D-1")
    assert (made["func"], made["dependencies"], "loopnest" in made) == ("k2", ["C_A-1"], False)
    assert outcome.provenance[1] == Provenance("D", "k1", "Beta1", ("C",), 1)
    predicated = looped(call("D", "k2", is_allocated=True, predicates=[{}]))
    assert failure(predicated, allocated=False) == "predicated_instruction"


# Repeated application: the levels one by one, each through a file, come to the same


def through_files(doc: Obj) -> Obj:
    """Inline `k1`'s call-sites with `k1` as an ordinary function, unroll it, then inline it in `main`."""
    main, (outer, *others) = doc["functions"][0], doc["nki_functions"]["functions"]
    stand_in = module(function("main", []), outer, kernels=others)
    expanded = inlined(stand_in).doc
    alone = {key: value for key, value in expanded.items() if key != "nki_functions"}
    unrolled = run_unroll(alone).doc["functions"][1]
    return inlined(module(main, kernels=[unrolled, *others])).doc


def plain_levels() -> Obj:
    inner = function(
        "k2",
        [memory_set("a_set", "Input"), memory_set("c_set", "Output"), sb_set("i_set", 8), register("r")],
        op("K1", ins=[access("a")], outs=[access("i")], v=runtime("r")),
        loop("M", "j", (0, 2, 1), op("K2", ins=[access("i")], outs=[access("c")], dependencies=["K1"])),
    )
    outer = function(
        "k1",
        [memory_set("a_set", "Input"), memory_set("c_set", "Output"), sb_set("o_set", 64), memory_set("t_set")],
        op("A", ins=[access("a")], outs=[access("t")]),
        call("D", "k2", func_args={"a": "t"}, func_outs={"c": "c"}, outs=[access("o")], dependencies=["A"]),
        op("B", dependencies=["D"]),
    )
    sets = [
        memory_set("x_set"),
        memory_set("y_set"),
        memory_set("m_set", "Internal", location("m", type="SB", addr=512)),
    ]
    maps = {"func_args": {"a": "x"}, "func_outs": {"c": "y"}}
    main = function("main", sets, op("p"), call("C", "k1", outs=[access("m")], dependencies=["p"], **maps), op("z"))
    return module(main, kernels=[outer, inner])


def looped_levels() -> Obj:
    doc = plain_levels()
    block_rows = rows(doc["nki_functions"])
    carried = {"loop_carried_dependencies": [["B", "Anti", 1]]}
    block_rows[1:] = [loop("L", "i", (0, 3, 1), block_rows[1] | carried, block_rows[2])]
    return doc


def split_levels() -> Obj:
    doc = plain_levels()
    outer, inner = doc["nki_functions"]["functions"]
    first, second = inner["blocks"][0]["instructions"]
    last = block("b3", op("R", "Return"), zz=1)
    inner["blocks"] = [block("b1", first), block("b2", second, jump("J", "b1")), block("b2x"), last]
    outer["blocks"][0]["instructions"].append(op("S", "Return", dependencies=["B"]))
    outer["blocks"].append(block("late", jump("T", "Block1")))
    return doc


@pytest.mark.parametrize("levels", [plain_levels, looped_levels, split_levels])
def test_n3_nesting_is_repeated_application(levels: Any) -> None:
    doc = levels()
    before = copy.deepcopy(doc)
    outcome = inlined(doc)
    assert outcome.status == "changed"
    assert outcome.doc["functions"] == through_files(before)["functions"]
