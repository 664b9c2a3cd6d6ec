"""Rule U7 of `unroll`, clause by clause: dependencies, waits and what else names instructions."""

from functools import partial
from typing import Any

import pytest

import arrowir as air
from arrowir.passes.unrolling import edges as unrolled_edges
from tests.oracle.builders import (
    affine,
    axis,
    constant,
    function,
    loop,
    module,
    names,
    op,
    register,
    row,
    rows,
    runtime,
)
from tests.single_pass import Json, Passed, read, refused, run_pass

unroll = partial(run_pass, "unroll")

PLAIN, CARRIED, UNROLL = "dependencies", "loop_carried_dependencies", "unroll_dependencies"


def body(*instructions: Json, **more: Any) -> Json:
    return module(function("main", [register("r")], *instructions), **more)


def edges(outcome: Passed, name: str, key: str = PLAIN) -> Any:
    """The edges of an instruction, None where it has no such list."""
    return row(outcome.doc, name).get(key)


def unrolled(*instructions: Json) -> Passed:
    return unroll(body(*instructions))


def fault(*instructions: Json) -> str:
    return refused("unroll", body(*instructions)).code


# Plain edges: the same iteration of common loops, the last one of others


def test_u7_within_one_iteration() -> None:
    outcome = unrolled(
        op("p"), loop("L", "i", (0, 2, 1), op("a"), op("b", dependencies=[["a", "Flow"], ["p", "Anti"]]))
    )
    assert [edges(outcome, f"b-{n}") for n in (0, 1)] == [[[f"a-{n}", "Flow"], ["p", "Anti"]] for n in (0, 1)]


def test_u7_on_a_later_instruction_of_the_same_iteration() -> None:
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("b", dependencies=["a"]), op("a")))
    assert [edges(outcome, f"b-{n}") for n in (0, 1)] == [["a-0"], ["a-1"]]


def test_u7_last_iteration_of_the_loops_around_the_target_alone() -> None:
    inner = loop("M", "j", (0, 3, 1), loop("N", "k", (0, 2, 1), op("a")))
    outcome = unrolled(loop("L", "i", (0, 2, 1), inner, op("b", dependencies=["a"])), op("z", dependencies=["a"]))
    assert [edges(outcome, f"b-{n}") for n in (0, 1)] == [["a-5"], ["a-11"]]
    assert edges(outcome, "z") == ["a-11"]


def test_u7_between_two_nests_in_one_loop() -> None:
    first, second = (
        loop(f"L{k}", f"j{k}", (0, 2, 1), op(n, **m)) for k, (n, m) in enumerate([("a", {}), ("b", {PLAIN: ["a"]})])
    )
    outcome = unrolled(loop("L", "i", (0, 2, 1), first, second))
    assert [edges(outcome, f"b-{n}") for n in range(4)] == [["a-1"], ["a-1"], ["a-3"], ["a-3"]]


def test_u7_a_loop_body_on_what_stands_around_it() -> None:
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a"), loop("M", "j", (0, 2, 1), op("b", dependencies=["a"]))))
    assert [edges(outcome, f"b-{n}") for n in range(4)] == [["a-0"], ["a-0"], ["a-1"], ["a-1"]]


def test_u7_on_itself() -> None:
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a", dependencies=["a"])))
    assert [edges(outcome, f"a-{n}") for n in (0, 1)] == [["a-0"], ["a-1"]]


def test_u7_a_target_without_instance_takes_the_edge_with_it() -> None:
    never = loop("L", "i", (0, 0, 1), op("a"))
    outcome = unrolled(never, op("b", dependencies=[["a", "Flow"]]), op("c", dependencies=["a", "b"]))
    assert edges(outcome, "b") is None
    assert edges(outcome, "c") == ["b"]


def test_u7_forms_stay() -> None:
    entries = ["a", ["a"], ["a", 4], ["a", "Output", "x", 1.5]]
    outcome = unrolled(loop("L", "i", (0, 1, 1), op("a"), op("b", dependencies=entries)))
    assert edges(outcome, "b-0") == ["a-0", ["a-0"], ["a-0", 4], ["a-0", "Output", "x", 1.5]]


def test_r3_u7_names_that_repeat() -> None:
    outcome = unrolled(
        op("a"), loop("L", "i", (0, 2, 1), op("a"), op("b", dependencies=["a"])), op("c", dependencies=["a"])
    )
    assert edges(outcome, "b-1") == ["a-1"]
    assert edges(outcome, "c") == ["a"]


def test_r5_unresolved_names_stay_in_their_list() -> None:
    lists = {PLAIN: [["gone", "Flow"]], CARRIED: ["gone"], UNROLL: [["gone", "Flow", [axis("i")]]]}
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("b", **lists)))
    for n in (0, 1):
        assert {key: edges(outcome, f"b-{n}", key) for key in lists} == lists


# Edges of loops and on loops


def test_u7_edges_on_a_loop_go_to_its_sinks() -> None:
    nest = loop("L", "i", (0, 2, 1), op("a"), op("b", dependencies=["a"]), op("c"))
    outcome = unrolled(nest, op("z", dependencies=[["L", "Anti"]]))
    assert edges(outcome, "z") == [[name, "Anti"] for name in ("b-0", "c-0", "b-1", "c-1")]


def test_u7_edges_of_a_loop_go_to_its_roots() -> None:
    nest = loop(
        "L", "i", (0, 2, 1), op("a"), op("b", dependencies=["a"]), op("c", dependencies=["q"]), dependencies=["p"]
    )
    outcome = unrolled(op("p"), op("q"), nest)
    assert [edges(outcome, name) for name in ("a-0", "b-0", "c-0", "a-1")] == [["p"], ["a-0"], ["q", "p"], ["p"]]


def test_u7_roots_and_sinks_of_iterations_that_depend_on_each_other() -> None:
    nest = loop("L", "i", (0, 3, 1), op("a", loop_carried_dependencies=["a"]), dependencies=["p"])
    outcome = unrolled(op("p"), nest, op("z", dependencies=["L"]))
    assert [edges(outcome, f"a-{n}") for n in range(3)] == [["p"], ["a-0"], ["a-1"]]
    assert edges(outcome, "z") == ["a-2"]


def test_u7_inner_loops_in_each_outer_iteration() -> None:
    inner = loop("M", "j", (0, 2, 1), op("a", loop_carried_dependencies=["a"]), dependencies=["b"])
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("b"), inner, op("c", dependencies=["M"])))
    assert [edges(outcome, f"a-{n}") for n in range(4)] == [["b-0"], ["a-0"], ["b-1"], ["a-2"]]
    assert [edges(outcome, f"c-{n}") for n in range(2)] == [["a-1"], ["a-3"]]


def test_u7_edges_of_an_inner_loop_count_for_the_outer_one() -> None:
    inner = loop("M", "j", (0, 2, 1), op("a"), dependencies=["b"])
    outcome = unrolled(
        op("p"), loop("L", "i", (0, 1, 1), op("b"), inner, dependencies=["p"]), op("z", dependencies=["L"])
    )
    assert [edges(outcome, name) for name in ("b-0", "a-0", "a-1", "z")] == [["p"], ["b-0"], ["b-0"], ["a-0", "a-1"]]


def test_u7_a_loop_on_a_loop() -> None:
    first = loop("L", "i", (0, 2, 1), op("a"))
    outcome = unrolled(first, loop("M", "j", (0, 2, 1), op("b"), dependencies=[["L", "Flow"]]))
    assert [edges(outcome, f"b-{n}") for n in (0, 1)] == [[["a-0", "Flow"], ["a-1", "Flow"]]] * 2


def test_u7_edges_between_a_loop_and_what_it_holds() -> None:
    nest = loop("L", "i", (0, 2, 1), op("a", dependencies=["L"]), op("b", dependencies=["a"]), dependencies=["b"])
    outcome = unrolled(nest, op("z", dependencies=["L"]))
    # They make neither a nor b less of a root or a sink.
    assert [edges(outcome, name) for name in ("a-0", "a-1", "z")] == [["b-0", "b-1", "b-1"]] * 2 + [["b-0", "b-1"]]


def test_u7_an_edge_on_itself_makes_a_row_no_root_but_leaves_it_a_sink() -> None:
    nest = loop("L", "i", (0, 2, 1), op("a", dependencies=["a"]), dependencies=["p"])
    outcome = unrolled(op("p"), nest, op("z", dependencies=["L"]))
    assert [edges(outcome, name) for name in ("a-0", "a-1", "z")] == [["a-0"], ["a-1"], ["a-0", "a-1"]]


def test_u7_faults_of_a_loops_edges_are_met_at_its_roots() -> None:
    bad = {UNROLL: [["p", "Flow", [constant(1)]]]}
    assert fault(op("p"), loop("L", "i", (0, 2, 1), op("a"), **bad)) == "index_rank_mismatch"
    assert unrolled(op("p"), loop("L", "i", (0, 2, 1), op("a", dependencies=["a"]), **bad)).status == "changed"


def test_u7_an_index_over_a_loop_without_trips_is_for_the_loops_around_what_is_behind_it() -> None:
    empty = loop("E", "e", (0, 0, 1), op("x"), dependencies=["p"])
    inner = loop("M", "j", (0, 2, 1), op("m"), loop("F", "f", (0, 0, 1), op("v"), dependencies=["a"]))
    y, z = (
        op("y", **{UNROLL: [["F", "Flow", [axis("i"), constant(1)]]]}),
        op("z", **{UNROLL: [["E", "Flow", [axis("i")]]]}),
    )
    outcome = unrolled(op("p"), loop("L", "i", (0, 2, 1), op("a"), empty, inner, y, z))
    assert [edges(outcome, f"y-{n}") for n in range(2)] == [[["a-0", "Flow"]], [["a-1", "Flow"]]]
    assert [edges(outcome, f"z-{n}") for n in range(2)] == [[["p", "Flow"]], [["p", "Flow"]]]


def test_u7_own_edges_first_then_those_of_inner_loops() -> None:
    inner = loop("M", "j", (0, 1, 1), op("a", dependencies=["x"], loop_carried_dependencies=["q"]), dependencies=["y"])
    outer = loop("L", "i", (0, 1, 1), inner, dependencies=["z"], unroll_dependencies=[["x", "Anti", []]])
    outcome = unrolled(op("x"), op("y"), op("z"), op("q"), outer)
    assert edges(outcome, "a-0") == ["x", "y", "z", ["x", "Anti"]]
    assert edges(outcome, "a-0", CARRIED) == ["q"]


def test_u7_too_many_edges_between_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrolled_edges, "MAX_EDGES", 15)
    first, second = loop("L", "i", (0, 4, 1), op("a")), loop("M", "j", (0, 4, 1), op("b"), dependencies=["L"])
    assert fault(first, second) == "not_supported"
    assert unrolled(first, loop("M", "j", (0, 3, 1), op("b"), dependencies=["L"])).status == "changed"


# Loops without trips join


@pytest.mark.parametrize("empty", [(0, 0, 1), (0, 3, 1)])
def test_u7_n14_a_loop_of_which_nothing_comes_joins(empty: tuple[int, int, int]) -> None:
    nothing = [] if empty[1] else [op("a")]
    gap = loop("L", "i", empty, *nothing, dependencies=[["p", "Flow"], ["q", 3]])
    outcome = unrolled(op("p"), op("q"), gap, op("z", dependencies=[["q", "Anti"], ["L", "Anti"], "p"]))
    # The first edge's kind; on q it is there already; the list keeps the place of the old entry.
    assert edges(outcome, "z") == [["q", "Anti"], ["p", "Anti"], "p"]


def test_u7_n14_joins_through_several_and_around_circles() -> None:
    gaps = [loop(f"L{n}", "i", (0, 0, 1), dependencies=["L0", "L1", f"p{n}"]) for n in (0, 1)]
    outcome = unrolled(op("p0"), op("p1"), *gaps, op("z", dependencies=["L1"]))
    assert edges(outcome, "z") == ["p0", "p1"]


def test_u7_n14_the_relation_that_is_not_plain() -> None:
    carried = loop("L", "i", (0, 0, 1), loop_carried_dependencies=[["p", "Flow", [2]], "q"])
    nest = loop("M", "j", (0, 1, 1), op("z", dependencies=["L", ["L", "Anti", "x"]]))
    outcome = unrolled(op("p"), op("q"), carried, nest)
    assert edges(outcome, "z-0") is None
    assert edges(outcome, "z-0", CARRIED) == [["p", "Flow", [2]], "q", ["p", "Anti", [2]], ["q", "Anti"]]


def test_u7_n14_index_expressions_meet_the_loops_of_who_waits() -> None:
    gap = loop("G", "k", (0, 0, 1), unroll_dependencies=[["a", "Flow", [axis("i")]]])
    first = loop("L", "i", (0, 3, 1), op("a"), gap)
    outcome = unrolled(first, loop("M", "i", (1, 3, 1), op("z", dependencies=["G"])))
    assert [edges(outcome, f"z-{n}") for n in (0, 1)] == [[["a-1", "Flow"]], [["a-2", "Flow"]]]


# Loop-carried edges


@pytest.mark.parametrize(
    ("extra", "back"), [([], 1), ([1], 1), ([2], 2), ([[3]], 3), ([[]], 1), ([None], 1), ([2**70], 99)]
)
def test_u7_distance_of_carried_edges(extra: list[Any], back: int) -> None:
    outcome = unrolled(loop("L", "i", (9, 1, -2), op("a"), op("b", loop_carried_dependencies=[["a", "Anti", *extra]])))
    for n in range(4):
        assert edges(outcome, f"b-{n}") == ([[f"a-{n - back}", "Anti"]] if n >= back else None)
        assert edges(outcome, f"b-{n}", CARRIED) is None


def test_u7_carried_edges_go_back_in_the_innermost_common_loop() -> None:
    deep = loop("N", "k", (0, 2, 1), op("a"))
    inner = loop("M", "j", (0, 2, 1), deep, op("b", loop_carried_dependencies=["a"]))
    outcome = unrolled(loop("L", "i", (0, 2, 1), inner))
    assert [edges(outcome, f"b-{n}") for n in range(4)] == [None, ["a-1"], None, ["a-5"]]


def test_u7_a_carried_edge_without_a_common_loop_stays_one() -> None:
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a")), op("b", loop_carried_dependencies=[["a", "Anti", [3]]]))
    assert edges(outcome, "b", CARRIED) == [["a-1", "Anti", [3]]]
    assert edges(outcome, "b") is None


@pytest.mark.parametrize("distance", [0, -1, [0], 1.5, "x"])
def test_u7_a_distance_below_1(distance: Any) -> None:
    nest = loop("L", "i", (0, 2, 1), op("a", loop_carried_dependencies=[["a", "Anti", distance]]))
    (message,) = air.passes.unroll(read(body(nest))).messages
    assert (message.severity, message.code, message.instruction) == ("error", "bad_distance", "a")


# Unroll dependencies


def test_u7_index_expressions_give_values_of_axes() -> None:
    entry = ["a", "Flow", [affine("i", 1, -1), constant(2)], []]
    nest = loop("L", "i", (0, 3, 1), loop("M", "j", (0, 4, 2), op("a")), op("b", unroll_dependencies=[entry]))
    outcome = unrolled(nest)
    assert [edges(outcome, f"b-{n}") for n in range(3)] == [None, [["a-1", "Flow"]], [["a-3", "Flow"]]]
    assert edges(outcome, "b-1", UNROLL) is None


@pytest.mark.parametrize(("index", "target"), [(9, 0), (7, 1), (8, None), (3, 3), (1, None), (11, None), (2**62, None)])
def test_u7_indices_out_of_range_or_between(index: int, target: int | None) -> None:
    entry = ["a", "Flow", [constant(index)]]
    outcome = unrolled(loop("L", "i", (9, 2, -2), op("a")), op("z", unroll_dependencies=[entry]))
    assert edges(outcome, "z") == (None if target is None else [[f"a-{target}", "Flow"]])


def test_u7_an_index_on_what_no_loop_encloses() -> None:
    outcome = unrolled(op("a"), op("z", unroll_dependencies=[["a", "Flow", []], ["a", "Anti"], "a"]))
    assert edges(outcome, "z") == [["a", "Flow"], ["a", "Anti"], "a"]


@pytest.mark.parametrize(
    ("extras", "code"),
    [
        ([], "index_rank_mismatch"),
        ([[]], "index_rank_mismatch"),
        ([[axis("i"), axis("i")]], "index_rank_mismatch"),
        ([[axis("i")], [{"p": 1}]], "predicated_dependency"),
        ([[axis("q")]], "unresolved_name"),
        ([[runtime("r")]], "runtime_address"),
        ([[{"kind": "FloorDivKind", "numer": axis("i"), "denom": 0}]], "division_by_zero"),
    ],
)
def test_u7_unroll_dependencies_that_are_refused(extras: list[Any], code: str) -> None:
    nest = loop("L", "i", (0, 2, 1), op("a"), op("b", unroll_dependencies=[["a", "Flow", *extras]]))
    message = refused("unroll", body(nest))
    assert (message.code, message.instruction) == (code, "b")
    assert message.message.startswith("the dependency on `a` has ")


def test_u7_a_fault_behind_an_index_out_of_range_is_not_met() -> None:
    entry = ["a", "Flow", [constant(5), {"kind": "FloorDivKind", "numer": axis("i"), "denom": 0}]]
    nest = loop("L", "i", (0, 2, 1), loop("M", "j", (0, 2, 1), op("a")), op("b", unroll_dependencies=[entry]))
    assert edges(unrolled(nest), "b-0") is None


# The lists


def test_u7_order_of_the_list() -> None:
    lists = {CARRIED: ["a"], UNROLL: [["a", 4, [axis("i")]]], PLAIN: ["a", ["a", "Output", "kept"]]}
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a"), op("b", **lists)))
    assert edges(outcome, "b-1") == ["a-1", ["a-1", "Output", "kept"], "a-0", ["a-1", 4]]


@pytest.mark.parametrize("ordered", [False, True])
def test_f6_keys_of_lists_that_appear_or_become_empty(ordered: bool) -> None:
    instruction = op("b", loop_carried_dependencies=["a"])
    instruction = dict(sorted(instruction.items())) if ordered else instruction
    made = rows(unrolled(loop("L", "i", (0, 2, 1), op("a"), instruction)).doc)
    names_of = list(op("b"))
    assert list(made[1]) == (sorted(names_of) if ordered else names_of)
    assert list(made[3]) == (sorted([*names_of, PLAIN]) if ordered else [*names_of, PLAIN])


def test_u7_empty_and_null_lists_stay() -> None:
    lists = {PLAIN: [], CARRIED: None, UNROLL: []}
    waits = op("b", dependencies=None, unroll_dependencies=["p"])
    made = rows(unrolled(op("p"), loop("L", "i", (0, 1, 1), op("a", **lists), waits)).doc)
    assert {key: made[1][key] for key in lists} == lists
    assert list(made[2].items())[-1] == (PLAIN, ["p"])


# Other names of instructions


def test_r0_waits_follow_the_plain_rule() -> None:
    wait = {
        "on_wait": [{"from": "a", "id": 1}, {"from": "dma7", "id": 2}, {"from": "L", "id": 3}, {"from": "n", "id": 4}]
    }
    never = loop("N", "j", (0, 0, 1), op("n"))
    outcome = unrolled(never, loop("L", "i", (0, 2, 1), op("a"), op("b", sync_info=wait)), op("c", sync_info=wait))
    for name, target in (("b-0", "a-0"), ("b-1", "a-1"), ("c", "a-1")):
        found = [each["from"] for each in row(outcome.doc, name)["sync_info"]["on_wait"]]
        assert found == [target, "dma7", "L", "n"]


def test_r0_associate_branch_follows_the_plain_rule() -> None:
    hints = [
        op("h", "BranchHint", associate_branch="br", hint="LikelyTaken"),
        op("br", "UnconditionalBranch", target="Block1"),
    ]
    outcome = unrolled(loop("L", "i", (0, 2, 1), *hints), op("z", "BranchHint", associate_branch="br"))
    assert [row(outcome.doc, name)["associate_branch"] for name in ("h-0", "h-1", "z")] == ["br-0", "br-1", "br-1"]
    assert names(outcome.doc) == ["h-0", "br-0", "h-1", "br-1", "z"]


def test_r0_waits_in_queues() -> None:
    trigger = {"name": "d", "opcode": "DMABlock", "sync_info": {"on_wait": [{"from": "a", "id": 1, "wait_value": 1}]}}
    queue = {"name": "q", "blocks": [{"name": "b", "instructions": [trigger]}]}
    outcome = unroll(body(loop("L", "i", (0, 2, 1), op("a")), queues=[queue]))
    assert outcome.doc["queues"][0]["blocks"][0]["instructions"][0]["sync_info"]["on_wait"][0]["from"] == "a-1"
