"""Rule N14: dependencies inside bodies, around call-sites, and over empty ones."""

from functools import partial
from typing import Any

import pytest

import arrowir as air
from tests.oracle.builders import access, axis, call, function, loop, memory_set, module, names, op, register, row, rows
from tests.oracle.builders import runtime as register_value
from tests.oracle.calls import bare
from tests.single_pass import Json, Passed, read, run_pass

inline = partial(run_pass, "inline_nki_kernel")

LISTS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")


def around(*body: Json, of: Json | None = None, on: Json | None = None) -> Json:
    """`p`, the call-site `C` with the edges `of`, and `z` with the edges `on`."""
    main = function("main", [], op("p"), call("C", **(of or {})), op("z", **(on or {})))
    return module(main, kernels=[function("k", [], *body)])


def edges(outcome: Passed, name: str) -> Json:
    """The lists of one instruction, in the order of their keys."""
    assert outcome.status == "changed"
    made = row(outcome.doc, name)
    return {key: value for key, value in made.items() if key in LISTS}


def many(count: int, opcode: str = "NoOp") -> list[Json]:
    return [op(f"K{n}", opcode) for n in range(count)]


# inside a body


def test_n14_edges_inside_a_body_are_cloned() -> None:
    lists = {
        "dependencies": ["K1", ["K1", "Anti"], ["K1", "Flow", "extra"], ["K1", 2]],
        "loop_carried_dependencies": [["K1", "Flow", [1]], ["K2", "Output", 2]],
    }
    outcome = inline(around(op("K1"), op("K2", **lists)))
    assert edges(outcome, "C_K2") == {
        "dependencies": ["C_K1", ["C_K1", "Anti"], ["C_K1", "Flow", "extra"], ["C_K1", 2]],
        "loop_carried_dependencies": [["C_K1", "Flow", [1]], ["C_K2", "Output", 2]],
    }
    # The canonical body has no unroll dependencies left (rule U7).
    outcome = inline(around(op("K1"), op("K2", unroll_dependencies=[["K1", "Anti", []]], dependencies=["K1"])))
    assert edges(outcome, "C_K2") == {"dependencies": ["C_K1", ["C_K1", "Anti"]]}


def test_n14_each_call_site_has_its_own_clones() -> None:
    document = around(op("K1"), op("K2", dependencies=["K1"]))
    rows(document).append(call("D"))
    outcome = inline(document)
    assert edges(outcome, "C_K2") == {"dependencies": ["C_K1"]}
    assert edges(outcome, "D_K2") == {"dependencies": ["D_K1"]}


# edges of the call-site


def test_n14_edges_of_the_call_site_go_to_every_root() -> None:
    of = {
        "dependencies": [["p", "Flow", "extra"], "p", ["p", 1], "gone", ["away", "Anti"]],
        "loop_carried_dependencies": [["p", "Anti", 2], ["gone", "Flow"]],
        "unroll_dependencies": [["p", "Flow", []]],
    }
    outcome = inline(around(op("K1"), op("K2", dependencies=["K1"]), op("K3"), of=of))
    assert edges(outcome, "C_K1") == of
    assert edges(outcome, "C_K2") == {"dependencies": ["C_K1"]}
    assert edges(outcome, "C_K3") == of


def test_n14_without_edges_roots_get_no_lists() -> None:
    outcome = inline(around(op("K1"), op("K2", dependencies=[])))
    assert edges(outcome, "C_K1") == {}
    assert edges(outcome, "C_K2") == {"dependencies": []}


def test_n14_a_root_with_an_empty_list_fills_it() -> None:
    body = {"dependencies": [], **op("K")}
    outcome = inline(around(body, of={"dependencies": ["p"]}))
    assert list(row(outcome.doc, "C_K")) == list(body)
    assert edges(outcome, "C_K") == {"dependencies": ["p"]}


@pytest.mark.parametrize("key", LISTS)
def test_n14_an_edge_of_any_relation_makes_no_root(key: str) -> None:
    outcome = inline(around(op("K1"), op("K2", **{key: ["K1"]}), of={"dependencies": ["p"]}))
    assert edges(outcome, "C_K1") == {"dependencies": ["p"]}
    assert edges(outcome, "C_K2") == {LISTS[0] if key == LISTS[2] else key: ["C_K1"]}


def test_n14_an_edge_on_itself_makes_no_root() -> None:
    outcome = inline(around(op("K", loop_carried_dependencies=["K"]), of={"dependencies": ["p"]}))
    assert edges(outcome, "C_K") == {"loop_carried_dependencies": ["C_K"]}


def test_n14_control_instructions_are_roots_and_sinks_too() -> None:
    outcome = inline(around(op("K"), op("E", "Exit"), of={"dependencies": ["p"]}, on={"dependencies": ["C"]}))
    assert edges(outcome, "C_E") == {"dependencies": ["p"]}
    assert edges(outcome, "z") == {"dependencies": ["C_K", "C_E"]}


# edges on the call-site


def test_n14_edges_on_the_call_site_go_to_every_sink_where_the_entry_stood() -> None:
    on = {
        "dependencies": [["p", "Flow"], ["C", "Anti", "extra"], "p", "C"],
        "loop_carried_dependencies": ["p", ["C", "Flow", 3]],
        "unroll_dependencies": [["C", "Output", []], ["p", "Flow", []]],
    }
    outcome = inline(around(op("K1"), op("K2", dependencies=["K1"]), op("K3"), on=on))
    assert edges(outcome, "z") == {
        "dependencies": [
            ["p", "Flow"],
            ["C_K2", "Anti", "extra"],
            ["C_K3", "Anti", "extra"],
            "p",
            "C_K2",
            "C_K3",
        ],
        "loop_carried_dependencies": ["p", ["C_K2", "Flow", 3], ["C_K3", "Flow", 3]],
        "unroll_dependencies": [["C_K2", "Output", []], ["C_K3", "Output", []], ["p", "Flow", []]],
    }
    assert list(row(outcome.doc, "z")) == list(op("z", **on))


@pytest.mark.parametrize("key", LISTS)
def test_n14_one_that_another_depends_on_is_no_sink(key: str) -> None:
    outcome = inline(around(op("K1"), op("K2", **{key: ["K1"]}), op("K3"), on={"dependencies": ["C"]}))
    assert edges(outcome, "z") == {"dependencies": ["C_K2", "C_K3"]}


def test_n14_one_that_only_itself_depends_on_is_a_sink() -> None:
    outcome = inline(around(op("K", unroll_dependencies=["K"]), on={"dependencies": ["C"]}))
    assert edges(outcome, "z") == {"dependencies": ["C_K"]}


def test_n14_sinks_stand_in_the_order_of_the_body() -> None:
    body = (op("K1", dependencies=["K3"]), op("K2"), op("K3"), op("K4", dependencies=["K2"]))
    outcome = inline(around(*body, on={"dependencies": ["C"]}))
    assert edges(outcome, "z") == {"dependencies": ["C_K1", "C_K4"]}


def test_n14_a_dropped_return_is_neither_root_nor_sink() -> None:
    body = (op("K1", dependencies=["R"]), op("K2", dependencies=["K1", "R"]), op("R", "Return", dependencies=["K2"]))
    outcome = inline(around(*body, of={"dependencies": ["p"]}, on={"dependencies": ["C"]}))
    assert edges(outcome, "C_K1") == {"dependencies": ["p"]}
    assert edges(outcome, "C_K2") == {"dependencies": ["C_K1"]}
    assert edges(outcome, "z") == {"dependencies": ["C_K2"]}


def test_n14_a_list_that_becomes_empty_loses_its_key() -> None:
    body = (op("K1"), op("K2", loop_carried_dependencies=["R"], dependencies=["K1"]), op("R", "Return"))
    assert edges(inline(around(*body)), "C_K2") == {"dependencies": ["C_K1"]}
    outcome = inline(around(on={"dependencies": ["C"], "loop_carried_dependencies": ["p", "C"]}))
    assert edges(outcome, "z") == {"loop_carried_dependencies": ["p"]}


def test_n14_call_sites_on_each_other_and_on_themselves() -> None:
    document = around(op("K1"), op("K2"), of={"dependencies": ["p"]})
    rows(document).insert(2, call("D", dependencies=["C"], loop_carried_dependencies=[["D", "Flow", 1]]))
    outcome = inline(document)
    for root in ("D_K1", "D_K2"):
        assert edges(outcome, root) == {
            "dependencies": ["C_K1", "C_K2"],
            "loop_carried_dependencies": [["D_K1", "Flow", 1], ["D_K2", "Flow", 1]],
        }


def test_n14_instructions_before_the_call_site_may_depend_on_it() -> None:
    main = function("main", [], op("p", loop_carried_dependencies=["C"]), call("C", dependencies=["p"]))
    outcome = inline(module(main, kernels=[function("k", [], op("K"))]))
    assert edges(outcome, "p") == {"loop_carried_dependencies": ["C_K"]}


def test_n14_from_other_blocks_and_out_of_loops() -> None:
    inner = loop("L", "i", (0, 2, 1), op("q", dependencies=["C"]), call("D", dependencies=["C"]))
    document = around(op("K1"), op("K2"))
    rows(document).insert(2, inner)
    document["functions"][0]["blocks"].append({"name": "b2", "instructions": [op("w", dependencies=["D", "C"])]})
    outcome = inline(document)
    body = rows(outcome.doc)[3]["blocks"][0]["instructions"]
    assert [(i["name"], i["dependencies"]) for i in body] == [
        ("q", ["C_K1", "C_K2"]),
        ("D_K1", ["C_K1", "C_K2"]),
        ("D_K2", ["C_K1", "C_K2"]),
    ]
    assert rows(outcome.doc, 0, 1)[0]["dependencies"] == ["D_K1", "D_K2", "C_K1", "C_K2"]


def test_n14_expressions_in_entries_come_along() -> None:
    entry = ["p", "Flow", [axis("i"), register_value("r")]]
    site = call("C", unroll_dependencies=[entry])
    late = op("z", unroll_dependencies=[["C", "Flow", [register_value("r"), axis("i")]], entry])
    main = function("main", [register("r")], loop("L", "i", (0, 2, 1), op("p"), site, late))
    outcome = inline(module(main, kernels=[function("k", [], op("K1"), op("K2"))]))
    body = rows(outcome.doc)[0]["blocks"][0]["instructions"]
    assert [i.get("unroll_dependencies") for i in body] == [
        None,
        [entry],
        [entry],
        [
            ["C_K1", "Flow", [register_value("r"), axis("i")]],
            ["C_K2", "Flow", [register_value("r"), axis("i")]],
            entry,
        ],
    ]


def test_f09_waits_are_repointed_per_copy() -> None:
    wait = {"on_wait": [{"from": "K1", "id": 3}, {"from": "R", "id": 4}], "on_update": [{"id": 1, "update_value": 2}]}
    document = around(op("K1"), op("K2", sync_info=wait), op("R", "Return"))
    rows(document).append(call("D"))
    rows(document).append(op("y", sync_info={"on_wait": [{"from": "C", "id": 3}]}))
    outcome = inline(document)
    for site in ("C", "D"):
        made = row(outcome.doc, f"{site}_K2")["sync_info"]
        assert made["on_wait"] == [{"from": f"{site}_K1", "id": 3}, {"from": "R", "id": 4}]
        assert made["on_update"] == wait["on_update"]
    # What waited for the call-site keeps the text: several instructions stand in its place.
    assert row(outcome.doc, "y")["sync_info"]["on_wait"] == [{"from": "C", "id": 3}]


def test_f09_hints_are_repointed_per_copy() -> None:
    document = around(op("K1"), op("K2", "BranchHint", associate_branch="K1"))
    rows(document).append(call("D"))
    outcome = inline(document)
    assert [row(outcome.doc, f"{site}_K2")["associate_branch"] for site in "CD"] == ["C_K1", "D_K1"]


def test_f09_hints_on_what_is_gone_keep_the_name() -> None:
    outcome = inline(around(op("K"), on={"opcode": "BranchHint", "associate_branch": "C"}))
    assert row(outcome.doc, "z")["associate_branch"] == "C"
    outcome = inline(around(op("K", "BranchHint", associate_branch="R"), op("R", "Return")))
    assert row(outcome.doc, "C_K")["associate_branch"] == "R"


def test_n14_edges_of_unrolled_bodies() -> None:
    nest = loop("L", "i", (0, 2, 1), op("K"), op("M", dependencies=["K"], loop_carried_dependencies=["M"]))
    outcome = inline(around(nest, of={"dependencies": ["p"]}, on={"dependencies": ["C"]}))
    assert edges(outcome, "C_K-0") == {"dependencies": ["p"]}
    assert edges(outcome, "C_K-1") == {"dependencies": ["p"]}
    assert edges(outcome, "C_M-0") == {"dependencies": ["C_K-0"]}
    assert edges(outcome, "C_M-1") == {"dependencies": ["C_K-1", "C_M-0"]}
    assert edges(outcome, "z") == {"dependencies": ["C_M-1"]}


# empty bodies


@pytest.mark.parametrize(
    ("of", "on", "joined"),
    [
        ({"dependencies": [["p", "Flow"]]}, {"dependencies": ["C"]}, {"dependencies": ["p"]}),
        ({"dependencies": ["p"]}, {"dependencies": [["C", "Anti"]]}, {"dependencies": [["p", "Anti"]]}),
        (
            {"loop_carried_dependencies": [["p", "Flow", 3]]},
            {"dependencies": [["C", "Anti"]]},
            {"loop_carried_dependencies": [["p", "Anti", 3]]},
        ),
        (
            {"loop_carried_dependencies": [["p", "Output", 3]]},
            {"dependencies": ["C"]},
            {"loop_carried_dependencies": [["p", "Flow", 3]]},
        ),
        (
            {"dependencies": [["p", "Flow"]]},
            {"loop_carried_dependencies": [["C", "Anti", 2]]},
            {"loop_carried_dependencies": [["p", "Anti", 2]]},
        ),
        (
            {"loop_carried_dependencies": [["p", "Flow", 3]]},
            {"unroll_dependencies": [["C", "Anti", [1]]]},
            {"unroll_dependencies": [["p", "Anti", [1]]]},
        ),
        (
            {"unroll_dependencies": [["p", "Flow", [1]]]},
            {"loop_carried_dependencies": [["C", "Output", 2]]},
            {"loop_carried_dependencies": [["p", "Output", 2]]},
        ),
        ({}, {"dependencies": ["C"]}, {}),
        ({"dependencies": ["gone"]}, {"dependencies": [["C", "Anti"]]}, {"dependencies": [["gone", "Anti"]]}),
        ({"dependencies": ["p", "q"]}, {"dependencies": ["C"]}, {"dependencies": ["p", "q"]}),
    ],
)
def test_n14_an_empty_body_joins_what_stands_around_it(of: Json, on: Json, joined: Json) -> None:
    assert edges(inline(around(of=of, on=on)), "z") == joined
    assert edges(inline(around(op("R", "Return"), of=of, on=on)), "z") == joined
    assert edges(inline(around(loop("L", "i", (0, 0, 1), op("K")), of=of, on=on)), "z") == joined


@pytest.mark.parametrize(
    ("of", "there", "added"),
    [
        (["gone"], ["gone"], False),
        (["gone"], ["away"], True),
        ([["p", "Flow"]], [["p", "Flow"]], False),
        ([["p", "Flow"]], ["p"], False),
        ([["p", "Flow"]], [["p", 4]], False),
        ([["p", "Flow"]], [["p", 2]], True),
        ([["p", "Flow"]], [["p", "Flow", "extra"]], True),
        (["p", "p"], [], True),
        (["p", ["p", "Anti"]], ["p"], False),
    ],
)
def test_n14_a_joined_edge_is_not_added_twice(of: Any, there: Any, added: bool) -> None:
    document = around(of={"dependencies": of}, on={"dependencies": ["C", *there]})
    assert len(edges(inline(document), "z")["dependencies"]) == len(there) + added


def test_n14_joined_edges_stand_where_the_entry_stood() -> None:
    document = around(of={"dependencies": ["q", "p"]}, on={"dependencies": [["p", "Flow"], ["C", "Anti"], "y"]})
    for name in ("q", "y"):
        rows(document).insert(0, op(name))
    expected = [["p", "Flow"], ["q", "Anti"], ["p", "Anti"], "y"]
    assert edges(inline(document), "z") == {"dependencies": expected}


def test_n14_an_edge_that_changes_its_list_is_appended_there() -> None:
    of = {"loop_carried_dependencies": [["p", "Flow", 3]]}
    on = {"dependencies": ["C", "p"], "loop_carried_dependencies": ["q"]}
    document = around(of=of, on=on)
    rows(document).insert(0, op("q"))
    assert edges(inline(document), "z") == {
        "dependencies": ["p"],
        "loop_carried_dependencies": ["q", ["p", "Flow", 3]],
    }


def test_n14_joins_go_on_through_empty_bodies_and_end_in_circles() -> None:
    main = function(
        "main",
        [],
        op("p"),
        call("C", dependencies=["p", "D"]),
        call("D", dependencies=["C"], loop_carried_dependencies=["D"]),
        call("E", "full", dependencies=["D"]),
        op("z", dependencies=["D", "E"]),
    )
    outcome = inline(module(main, kernels=[function("k", []), function("full", [], op("K1"), op("K2"))]))
    assert edges(outcome, "E_K1") == edges(outcome, "E_K2") == {"dependencies": ["p"]}
    assert edges(outcome, "z") == {"dependencies": ["p", "E_K1", "E_K2"]}


def test_n14_an_empty_body_after_a_full_one() -> None:
    main = function("main", [], call("A", "full"), call("C", dependencies=[["A", "Anti"]]), op("z", dependencies=["C"]))
    outcome = inline(module(main, kernels=[function("k", []), function("full", [], op("K1"), op("K2"))]))
    assert edges(outcome, "z") == {"dependencies": ["A_K1", "A_K2"]}


def test_n14_joined_entries_keep_their_expressions() -> None:
    entry = ["p", "Flow", [register_value("r")]]
    main = function(
        "main", [register("r")], op("p"), call("C", unroll_dependencies=[entry]), op("z", dependencies=["C"])
    )
    outcome = inline(module(main, kernels=[function("k", [])]))
    assert edges(outcome, "z") == {"unroll_dependencies": [entry]}


# helpers


def test_n14_a_done_gathers_more_than_8_sinks() -> None:
    outcome = inline(around(*many(9), on={"dependencies": ["p", ["C", "Anti", "extra"]]}))
    assert names(outcome.doc)[-2:] == ["C_done", "z"]
    done = row(outcome.doc, "C_done")
    assert list(done.items()) == [
        ("dependencies", [[f"C_K{n}", "Ordered"] for n in range(9)]),
        ("engine", "DVE"),
        ("ins", []),
        ("name", "C_done"),
        ("opcode", "NoOp"),
        ("outs", []),
    ]
    assert edges(outcome, "z") == {"dependencies": ["p", ["C_done", "Anti", "extra"]]}


def test_n14_8_sinks_need_no_done() -> None:
    outcome = inline(around(*many(8), on={"dependencies": ["C"]}))
    assert edges(outcome, "z") == {"dependencies": [f"C_K{n}" for n in range(8)]}
    chained = [op(f"M{n}", dependencies=["K0"]) for n in range(8)]
    assert "C_done" not in names(inline(around(op("K0"), *chained, on={"dependencies": ["C"]})).doc)


@pytest.mark.parametrize(
    ("of", "on", "made"),
    [
        ({}, {}, False),
        ({"dependencies": ["p"]}, {"dependencies": ["p"]}, False),
        ({}, {"loop_carried_dependencies": ["C"]}, True),
        ({}, {"unroll_dependencies": [["C", "Flow", []]]}, True),
        ({"loop_carried_dependencies": ["C"]}, {}, True),
    ],
)
def test_n14_a_done_only_where_somebody_depends(of: Json, on: Json, made: bool) -> None:
    assert ("C_done" in names(inline(around(*many(9), of=of, on=on)).doc)) == made


@pytest.mark.parametrize("opcode", ["Terminator", "Exit", "Break"])
@pytest.mark.parametrize("returns", [False, True])
def test_n14_a_done_stands_before_a_terminator(opcode: str, returns: bool) -> None:
    body = (*many(9), op("E", opcode), *([op("R", "Return")] if returns else []))
    outcome = inline(around(*body, on={"dependencies": ["C"]}))
    assert names(outcome.doc)[-4:] == ["C_K8", "C_done", "C_E", "z"]
    assert edges(outcome, "C_done")["dependencies"][-2:] == [["C_K8", "Ordered"], ["C_E", "Ordered"]]


def test_n14_a_dropped_return_does_not_move_the_done() -> None:
    outcome = inline(around(*many(9), op("R", "Return"), on={"dependencies": ["C"]}))
    assert names(outcome.doc)[-3:] == ["C_K8", "C_done", "z"]


def test_n14_a_terminator_that_is_not_last_does_not_move_the_done() -> None:
    outcome = inline(around(op("E", "Exit"), *many(9), on={"dependencies": ["C"]}))
    assert names(outcome.doc)[-2:] == ["C_done", "z"]


def test_n14_a_start_gathers_more_than_8_roots() -> None:
    of = {
        "dependencies": ["p", "gone"],
        "loop_carried_dependencies": [["p", "Anti", 1]],
        "unroll_dependencies": [["p", "Flow", []]],
    }
    outcome = inline(around(*many(9), op("W", dependencies=["K0"]), of=of))
    assert names(outcome.doc)[:3] == ["p", "C_start", "C_K0"]
    start = row(outcome.doc, "C_start")
    expected = {"dependencies": of["dependencies"], "engine": "DVE", "ins": [], **of, "name": "C_start"}
    assert start == {**expected, "opcode": "NoOp", "outs": []}
    assert list(start) == sorted(start)
    for n in range(9):
        assert edges(outcome, f"C_K{n}") == {"dependencies": [["C_start", "Ordered"]]}
    assert edges(outcome, "C_W") == {"dependencies": ["C_K0"]}


@pytest.mark.parametrize(
    ("roots", "of", "made"),
    [
        (8, {"dependencies": ["p", "p"]}, False),
        (9, {}, False),
        (9, {"dependencies": ["p"]}, False),
        (9, {"dependencies": ["gone", "away"]}, True),
        (9, {"dependencies": ["p"], "loop_carried_dependencies": ["C"]}, True),
        (9, {"loop_carried_dependencies": ["p"], "unroll_dependencies": ["p"]}, True),
    ],
)
def test_n14_a_start_only_for_several_edges(roots: int, of: Json, made: bool) -> None:
    outcome = inline(around(*many(roots), of=of))
    assert ("C_start" in names(outcome.doc)) == made
    if not made:
        assert edges(outcome, "C_K3") == of


def test_n14_a_start_and_a_done_on_themselves() -> None:
    outcome = inline(around(*many(9), of={"dependencies": ["p"], "loop_carried_dependencies": [["C", "Flow", 1]]}))
    assert names(outcome.doc) == ["p", "C_start", *(f"C_K{n}" for n in range(9)), "C_done", "z"]
    assert edges(outcome, "C_start") == {
        "dependencies": ["p"],
        "loop_carried_dependencies": [["C_done", "Flow", 1]],
    }


def test_n14_helpers_count_clones() -> None:
    nest = loop("L", "i", (0, 9, 1), op("K"))
    outcome = inline(around(nest, of={"dependencies": ["p", "p"]}, on={"dependencies": ["C"]}))
    assert names(outcome.doc)[1:3] == ["C_start", "C_K-0"]
    assert names(outcome.doc)[-3:] == ["C_K-8", "C_done", "z"]


def test_n14_helpers_of_call_sites_one_after_the_other() -> None:
    document = around(*many(9), of={"dependencies": ["p", "p"]})
    rows(document)[2:2] = [call("D", dependencies=["C", "p"])]
    rows(document)[-1]["dependencies"] = ["D"]
    outcome = inline(document)
    clones = [[f"{site}_K{n}" for n in range(9)] for site in "CD"]
    expected = ["p", "C_start", *clones[0], "C_done", "D_start", *clones[1], "D_done", "z"]
    assert names(outcome.doc) == expected
    assert edges(outcome, "D_start") == {"dependencies": ["C_done", "p"]}


def test_n14_helpers_inside_a_loop() -> None:
    inner = loop("L", "i", (0, 2, 1), op("p"), call("C", dependencies=["p", "p"]), op("z", dependencies=["C"]))
    outcome = inline(module(function("main", [], inner), kernels=[function("k", [], *many(9))]))
    body = rows(outcome.doc)[0]["blocks"][0]["instructions"]
    assert [i["name"] for i in body][:2] == ["p", "C_start"]
    assert [i["name"] for i in body][-2:] == ["C_done", "z"]


def test_n14_u7_a_joined_unroll_edge_has_an_index_for_each_loop_around_what_it_is_on() -> None:
    def joined(of: str, indices: list[Any]) -> Any:
        inner = loop("M", "j", (0, 2, 1), op("m"), call("C", dependencies=[of]), op("b"))
        other = loop("O", "o", (0, 2, 1), op("n"))
        z = op("z", unroll_dependencies=[["C", "Flow", indices]])
        nest = loop("L", "i", (0, 3, 1), op("a"), inner, z)
        outcome = inline(module(function("main", [], op("p"), other, nest), kernels=[function("k", [])]))
        document = read(outcome.doc)
        if of != "n":  # in a loop of its own: no index says which iteration of that
            assert air.passes.unroll(document).status.to_list() == ["changed"]
        return row(outcome.doc, "L")["blocks"][0]["instructions"][-1]["unroll_dependencies"]

    both = [axis("i"), 1]
    assert joined("p", both) == [["p", "Flow", []]]
    assert joined("a", both) == [["a", "Flow", [axis("i")]]]
    assert joined("m", both) == [["m", "Flow", both]]
    assert joined("n", both) == [["n", "Flow", both]]


def test_n14_a_start_takes_joined_edges() -> None:
    main = function(
        "main", [], op("p"), call("E", "empty", dependencies=["p", "q"]), op("q"), call("C", dependencies=["E", "q"])
    )
    outcome = inline(module(main, kernels=[function("k", [], *many(9)), function("empty", [])]))
    assert edges(outcome, "C_start") == {"dependencies": ["p", "q"]}


def test_r3_names_resolve_by_position_before_anything_moves() -> None:
    document = bare(op("K"))
    rows(document).insert(2, op("C"))
    outcome = inline(document)
    # The nearest earlier `C` is the NoOp, not the call-site.
    assert edges(outcome, "z") == {"dependencies": [["p", "Flow"], ["C", "Anti"], ["p", "Anti"]]}


def test_n14_operands_do_not_matter_for_edges() -> None:
    body = (op("K1", outs=[access("t")]), op("K2", ins=[access("t")]))
    main = function("main", [], call("C"), op("z", dependencies=["C"]))
    outcome = inline(module(main, kernels=[function("k", [memory_set("t_set")], *body)]))
    assert edges(outcome, "z") == {"dependencies": ["C_K1", "C_K2"]}
