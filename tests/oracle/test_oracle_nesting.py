"""The oracle of rules N1, N3 and N16 for kernels that call kernels, against hand-worked documents."""

from tests.oracle import Provenance
from tests.oracle.builders import (
    Obj,
    access,
    allocations,
    block,
    call,
    flow,
    function,
    jump,
    location,
    memory_set,
    module,
    names,
    op,
    register,
    row,
    rows,
    runtime,
    sb_set,
)
from tests.oracle.calls import MAPS, actuals, edges, failure, inlined, kernel
from tests.oracle.nested_calls import bound, kernel_names, nested, scratch

# N1: bottom-up


def test_n1_names_and_edges_of_an_inner_body() -> None:
    doc = nested(op("A"), call("D", "k2", dependencies=["A"]), op("B", dependencies=["D"]))
    outcome = inlined(doc)
    assert names(outcome.doc) == ["p", "C_A", "C_D_K1", "C_D_K2", "C_B", "z"]
    assert edges(outcome, "C_A") == ["p"]
    assert edges(outcome, "C_D_K1") == ["C_A"]
    assert edges(outcome, "C_D_K2") == ["C_D_K1"]
    assert edges(outcome, "C_B") == ["C_D_K2"]
    assert edges(outcome, "z") == ["C_B"]
    assert outcome.doc["nki_functions"] == {"functions": []}
    assert outcome.codes() == set()


def test_n14_ends_of_the_outer_body_are_found_among_the_inner_clones() -> None:
    outcome = inlined(nested(call("D", "k2")))
    assert names(outcome.doc) == ["p", "C_D_K1", "C_D_K2", "z"]
    assert edges(outcome, "C_D_K1") == ["p"]
    assert edges(outcome, "z") == ["C_D_K2"]


def test_n14_an_inner_body_that_is_empty_joins() -> None:
    doc = nested(
        op("A"),
        call("D", "k2", dependencies=["A"]),
        op("B", dependencies=["D"]),
        inner=function("k2", [], op("R", "Return")),
    )
    outcome = inlined(doc)
    assert names(outcome.doc) == ["p", "C_A", "C_B", "z"]
    assert edges(outcome, "C_B") == ["C_A"]


def test_n14_a_whole_body_that_is_empty_because_of_the_inner_one() -> None:
    # The inner level gives the block a NoOp; it is the outer body then.
    outcome = inlined(nested(call("D", "k2"), inner=function("k2", [])))
    assert names(outcome.doc) == ["p", "C_D_noop", "z"]
    assert edges(outcome, "C_D_noop") == ["p"]
    assert edges(outcome, "z") == ["C_D_noop"]


def test_n1_four_levels_and_a_kernel_that_is_inner_and_outer() -> None:
    doc = module(
        function("main", [], call("C", "k1"), call("E", "k3")),
        kernels=[
            function("k1", [], call("a", "k2"), op("x")),
            function("k2", [], call("b", "k3"), call("c", "k3")),
            function("k3", [], call("d", "k4"), op("y")),
            function("k4", [], op("w")),
        ],
    )
    outcome = inlined(doc)
    assert names(outcome.doc) == [
        "C_a_b_d_w",
        "C_a_b_y",
        "C_a_c_d_w",
        "C_a_c_y",
        "C_x",
        "E_d_w",
        "E_y",
    ]
    assert kernel_names(outcome.doc) == []
    assert [each.depth for each in outcome.provenance] == [4, 3, 4, 3, 1, 2, 1]
    assert outcome.provenance[2] == Provenance("w", "k4", "Beta1", ("C", "a", "c", "d"), 4)


def test_n1_a_long_chain() -> None:
    depth = 1500
    chain = [function(f"k{n}", [], call("c", f"k{n + 1}")) for n in range(depth)]
    doc = module(function("main", [], call("c", "k0")), kernels=[*chain, function(f"k{depth}", [], op("x"))])
    outcome = inlined(doc)
    assert names(outcome.doc) == ["c_" * (depth + 1) + "x"]
    assert outcome.provenance[0].depth == depth + 1
    assert outcome.doc["nki_functions"] == {"functions": []}


def test_n3_once_per_callee() -> None:
    # Doubling at each of 12 levels; the bodies are made once each.
    deep = [function(f"k{n}", [], call("a", f"k{n + 1}"), call("b", f"k{n + 1}")) for n in range(12)]
    doc = module(function("main", [], call("C", "k0")), kernels=[*deep, function("k12", [], op("x"))])
    assert len(names(inlined(doc).doc)) == 2**12
    assert failure(doc, max_instructions=2**12) == "too_many_instructions"


def test_n1_kernels_in_the_functions_list() -> None:
    doc = module(
        function("main", [], call("C", "k1")), function("k1", [], call("D", "k2")), function("k2", [], op("x"))
    )
    outcome = inlined(doc)
    assert [each["name"] for each in outcome.doc["functions"]] == ["main"]
    assert names(outcome.doc) == ["C_D_x"]


def test_n1_an_ordinary_function_as_callee() -> None:
    # `main` is not first: it is an ordinary function all the same, and called.
    doc = module(
        function("first", [], call("C", "main")),
        function("main", [], op("x"), call("D", "k")),
        kernels=[function("k", [], op("K"))],
    )
    outcome = inlined(doc)
    assert [names(outcome.doc, index) for index in (0, 1)] == [["C_x", "C_D_K"], ["x", "D_K"]]
    assert kernel_names(outcome.doc) == []


# N4, N5: binding through levels


def test_n4_parameters_are_handed_through() -> None:
    outcome = inlined(bound())
    assert names(outcome.doc) == ["C_D_K1", "C_D_K2"]
    made = row(outcome.doc, "C_D_K1")
    assert (made["ins"][0]["memref"], made["ins"][0]["memsetref"]) == ("x", "x_set")
    assert made["outs"][0]["memref"] == "C:D:t"
    assert row(outcome.doc, "C_D_K2")["outs"][0]["memref"] == "y"
    assert list(allocations(outcome.doc)) == ["x_set", "y_set", "w_set", "C:t_set", "C:D:t_set"]


def test_n5_no_capture_through_levels() -> None:
    # `k1` gives its own `c` for the inner `a`, and its own `a` for the inner `c`.
    made = inlined(bound(func_args={"a": "c"}, func_outs={"c": "a"})).doc
    assert row(made, "C_D_K1")["ins"][0]["memref"] == "y"
    assert row(made, "C_D_K2")["outs"][0]["memref"] == "x"


def test_n4_internal_storage_and_registers_of_the_outer_kernel() -> None:
    inner = function(
        "k2",
        [memory_set("a_set", "Input"), register("q"), register("q2")],
        op("K", ins=[access("a")], v=[runtime("q"), runtime("q2")]),
    )
    outer = function("k1", [memory_set("t_set"), register("r")], call("D", "k2", func_args={"a": "t", "q": "r"}))
    outcome = inlined(nested(inner=inner, outer=outer))
    made = row(outcome.doc, "C_D_K")
    assert made["ins"][0]["memref"] == "C:t"
    assert made["v"] == [runtime("C:r"), runtime("C:D:q2")]
    assert list(allocations(outcome.doc)) == ["C:t_set", "C:r", "C:D:q2"]


def test_n4_by_position_inside_a_kernel() -> None:
    outer = kernel(call("D", "k2", ins=[access("t")], outs=[access("c")]), name="k1")
    doc = module(function("main", actuals(), call("C", "k1", **MAPS)), kernels=[outer, kernel(name="k2")])
    outcome = inlined(doc)
    assert row(outcome.doc, "C_D_K1")["ins"][0]["memref"] == "C:t"
    assert row(outcome.doc, "C_D_K2")["outs"][0]["memref"] == "y"


def test_r2_the_owner_of_an_operand_becomes_the_outermost_caller() -> None:
    doc = bound(op("K", ins=[access("a", memref_owner_func="k2")], outs=[access("c")]))
    assert row(inlined(doc).doc, "C_D_K")["ins"][0]["memref_owner_func"] == "main"


def test_r2_an_owner_that_is_inlined_at_the_next_level() -> None:
    inner = function("k2", [], op("K", ins=[access("s", memref_owner_func="k1")]), op("J", "Call", target="k1"))
    doc = nested(inner=inner, outer=function("k1", [memory_set("s_set")], call("D", "k2")))
    outcome = inlined(doc)
    assert row(outcome.doc, "C_D_K")["ins"] == [access("C:s", memref_owner_func="main")]
    # A `Call` goes on naming the function.
    assert row(outcome.doc, "C_D_J")["target"] == "k1"


# N3, N8: storage


def test_n3_storage_order() -> None:
    inner = function("k2", [memory_set("i_set")], op("K"))
    outer = function("k1", [memory_set("o_set")], call("D", "k2"), call("E", "k2"))
    doc = module(function("main", [], call("C", "k1"), call("F", "k2")), kernels=[outer, inner])
    outcome = inlined(doc)
    assert list(allocations(outcome.doc)) == ["C:o_set", "C:D:i_set", "C:E:i_set", "F:i_set"]
    assert [each["memorylocations"][0]["name"] for each in allocations(outcome.doc).values()] == [
        "C:o",
        "C:D:i",
        "C:E:i",
        "F:i",
    ]
    assert all(each["origin"] == "NKI" for each in allocations(outcome.doc).values())


def addresses(doc: Obj) -> dict[str, int]:
    return {name: each["memorylocations"][0]["addr"] for name, each in allocations(doc).items()}


def test_n7_bases_add_up() -> None:
    assert addresses(inlined(scratch()).doc) == {
        "m_set": 1000,
        "C:o_set": 1008,
        "C:pad_set": 1200,
        "C:D:i_set": 1216,
    }


def test_n7_the_inner_base_is_that_of_the_formal_itself() -> None:
    pad = memory_set("pad_set", "ExternalOutput", location("pad", type="SB", addr=200, allocated=True))
    doc = scratch(pad=pad)
    rows(doc)[0]["func_outs"] = {"pad": "m"}
    assert addresses(inlined(doc).doc) == {"m_set": 1000, "C:o_set": 1008, "C:D:i_set": 1216}


def test_n8_each_level_is_checked() -> None:
    fits = 229376 - 64 - 200 - 1000
    assert addresses(inlined(scratch(fits)).doc)["C:D:i_set"] == fits + 1200
    for too_far, where in ((fits + 1, "main"), (fits + 1001, "k1")):
        outcome = inlined(scratch(too_far))
        [found] = outcome.diagnostics
        assert (found.code, found.function) == ("sb_overflow", where)
        assert found.instruction == {"main": "C", "k1": "D"}[where]
    assert failure(scratch() | {"arch": "gen9"}) == "unknown_arch"


def test_n7_faults_of_an_inner_scratchpad() -> None:
    assert failure(scratch(pad=sb_set("pad_set", 200, base=32))) == "scratchpad_base"
    loose = scratch(pad=sb_set("pad_set", 200, allocated=False))
    outcome = inlined(loose)
    [found] = outcome.diagnostics
    assert (found.code, found.function, found.block, found.instruction) == (
        "scratchpad_unallocated",
        "k1",
        "Block1",
        "D",
    )
    # A status on the inner call-site wins; a kernel without SB of its own takes such a scratchpad.
    assert inlined(scratch(pad=sb_set("pad_set", 200, allocated=False), is_allocated=False)).status == "changed"


# R6: names at every level


def test_r6_names_are_made_free_at_every_level() -> None:
    inner = function("k2", [memory_set("t_set")], op("K", outs=[access("t")]))
    outer = function("k1", [memory_set("D:t_set", "Internal", location("D:t"))], op("D_K"), call("D", "k2"))
    main = function("main", [], op("C_D_K"), op("C_D_K.1.1"), call("C", "k1"))
    outcome = inlined(module(main, kernels=[outer, inner]))
    # In the kernel: D_K, D_K.1; the first is C_D_K.1 in the caller, so the second cannot be, nor C_D_K.1.1.
    assert names(outcome.doc) == ["C_D_K", "C_D_K.1.1", "C_D_K.1", "C_D_K.1.2"]
    assert list(allocations(outcome.doc)) == ["C:D:t_set", "C:D:t_set.1"]
    assert row(outcome.doc, "C_D_K.1.2")["outs"][0]["memref"] == "C:D:t.1"


def test_r6_the_name_of_an_inner_call_site_is_free_in_the_caller_only() -> None:
    # Inside `k1` the clone `D_K` is taken by the call-site of that name.
    doc = nested(call("D", "k2"), call("D_K1", "k3"))
    doc["nki_functions"]["functions"].append(function("k3", [], op("x")))
    assert names(inlined(doc).doc) == ["p", "C_D_K1.1", "C_D_K2", "C_D_K1_x", "z"]


# Several blocks, through levels


def test_n13_a_split_inner_body_makes_the_outer_one_split() -> None:
    inner = function("k2", [], blocks=[block("b1", op("K1")), block("b2", op("R", "Return"))])
    outcome = inlined(nested(op("A"), call("D", "k2"), op("B"), op("S", "Return"), inner=inner))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_A", "C_D_K1"],
        "C_D_b2": ["C_D_br_to_continuation"],
        "C_D_continuation": ["C_B", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert row(outcome.doc, "C_D_br_to_continuation")["target"] == "C_D_continuation"
    assert row(outcome.doc, "C_br_to_continuation")["target"] == "C_continuation"
    sinks = ["C_A", "C_D_K1", "C_D_br_to_continuation", "C_B", "C_br_to_continuation"]
    assert edges(outcome, "z") == sinks


def test_n14_helpers_of_the_inner_level_are_rows_of_the_outer_body() -> None:
    again = op("K1", "CompareAndBranch", on_true="b1", on_false="b2")
    inner = function("k2", [], blocks=[block("b1", again), block("b2")])
    outcome = inlined(nested(call("D", "k2"), inner=inner))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_D_br_to_entry"],
        "C_D_b1": ["C_D_K1"],
        "C_D_b2": ["C_D_br_to_continuation"],
        "C_D_continuation": ["C_D_continuation_noop", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    # No edges among them: each is a root and a sink of the outer body.
    clones = ["C_D_br_to_entry", "C_D_K1", "C_D_br_to_continuation", "C_D_continuation_noop"]
    assert all(edges(outcome, name) == ["p"] for name in clones)
    assert edges(outcome, "z") == clones
    assert edges(outcome, "C_br_to_continuation") is None


def test_n14_start_and_done_of_the_inner_level() -> None:
    inner = function("k2", [], *(op(f"K{n}") for n in range(9)))
    doc = nested(op("A"), op("A2"), call("D", "k2", dependencies=["A", "A2"]), op("B", dependencies=["D"]), inner=inner)
    outcome = inlined(doc)
    made = [f"C_D_K{n}" for n in range(9)]
    assert names(outcome.doc) == ["p", "C_A", "C_A2", "C_D_start", *made, "C_D_done", "C_B", "z"]
    assert edges(outcome, "C_D_start") == ["C_A", "C_A2"]
    assert edges(outcome, "C_B") == ["C_D_done"]
    # Of the inner rows none is an end of the outer body.
    assert edges(outcome, "z") == ["C_B"]
    assert edges(outcome, "C_A") == ["p"]
    start, done = outcome.provenance[3], outcome.provenance[13]
    assert start == Provenance("D_start", "k1", "Beta1", ("C",), 1)
    assert done == Provenance("D_done", "k1", "Beta1", ("C",), 1)
    assert outcome.provenance[4] == Provenance("K0", "k2", "Beta1", ("C", "D"), 2)


def test_n20_split_bodies_in_one_block_of_a_kernel() -> None:
    inner = function("k2", [], blocks=[block("b1", op("K1")), block("b2", op("K2", "Exit"))])
    outcome = inlined(nested(call("D", "k2"), call("E", "k2"), jump("J", "Block1"), inner=inner))
    # `J` goes to the entry of the outer body, which then stands by itself.
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_Block1": ["C_D_K1"],
        "C_D_b2": ["C_D_K2"],
        "C_D_continuation": ["C_E_K1"],
        "C_E_b2": ["C_E_K2"],
        "C_E_continuation": ["C_J"],
        "C_continuation": ["z"],
    }
    assert row(outcome.doc, "C_J")["target"] == "C_Block1"


# N16


def test_n16_sources_of_each_level() -> None:
    doc = nested(op("A"), call("D", "k2", kernel_source_val="Beta3"), site={"kernel_source_val": 1})
    outcome = inlined(doc)
    assert outcome.provenance[1:3] == [
        Provenance("A", "k1", "Beta2", ("C",), 1),
        Provenance("K1", "k2", "Beta3", ("C", "D"), 2),
    ]
