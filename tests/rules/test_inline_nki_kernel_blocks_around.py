"""Rules N20 and N14 where bodies of several blocks are inlined: several call-sites in one block, and edges.

Where the blocks go is in the file about rule N13.
"""

from functools import partial

import pytest

from tests.block_bodies import LISTS, around, body_of, branch, edges, many, ordered, three
from tests.oracle.builders import block, call, flow, function, jump, loop, names, op, row, rows
from tests.single_pass import Json, run_pass

inline = partial(run_pass, "inline_nki_kernel")

P = {"dependencies": ["p"]}
C = {"dependencies": ["C"]}


# N20: several call-sites in one block


def test_n20_one_after_the_other() -> None:
    outcome = inline(three([op("K1")], [op("K2")]))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["a", "C_K1"]),
        ("C_b2", ["C_K2", "C_br_to_continuation"]),
        ("C_continuation", ["b", "D_K1"]),
        ("D_b2", ["D_K2", "D_br_to_continuation"]),
        ("D_continuation", ["c"]),
    ]
    for site in ("C", "D"):
        assert row(outcome.doc, f"{site}_br_to_continuation")["target"] == f"{site}_continuation"


def test_n20_entries_of_their_own() -> None:
    outcome = inline(three([op("K1")], [jump("K2", "b1")]))
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["a", "C_br_to_entry"]),
        ("C_b1", ["C_K1"]),
        ("C_b2", ["C_K2"]),
        ("C_continuation", ["b", "D_br_to_entry"]),
        ("D_b1", ["D_K1"]),
        ("D_b2", ["D_K2"]),
        ("D_continuation", ["c"]),
    ]
    assert row(outcome.doc, "D_br_to_entry") == branch("D_br_to_entry", "D_b1")


def test_n20_side_by_side_and_with_bodies_of_one_block_between() -> None:
    document = three([op("K1")], [op("K2", "Exit")])
    document["nki_functions"]["functions"].append(function("one", [], op("M")))
    rows(document)[:] = [call("A", "one"), call("C"), call("D"), call("B", "one"), call("E"), call("F", "one")]
    assert list(flow(inline(document).doc).items()) == [
        ("Block1", ["A_M", "C_K1"]),
        ("C_b2", ["C_K2"]),
        ("C_continuation", ["D_K1"]),
        ("D_b2", ["D_K2"]),
        ("D_continuation", ["B_M", "E_K1"]),
        ("E_b2", ["E_K2"]),
        ("E_continuation", ["F_M"]),
    ]


def test_n20_who_names_the_noop_of_what_is_left_empty() -> None:
    document = three([], [op("K2", "Exit")])
    document["nki_functions"]["functions"].append(function("none", []))
    rows(document)[:] = [call("A", "none"), call("C"), call("D"), call("E", "none"), call("F", "none")]
    assert list(flow(inline(document).doc).items()) == [
        ("Block1", ["C_noop"]),
        ("C_b2", ["C_K2"]),
        ("C_continuation", ["D_noop"]),
        ("D_b2", ["D_K2"]),
        ("D_continuation", ["F_noop"]),
    ]
    # Behind D there is nothing at all.
    del rows(document)[3:]
    assert flow(inline(document).doc)["D_continuation"] == ["D_continuation_noop"]


def test_n20_different_callees() -> None:
    document = three([op("K1")], [op("R", "Return")])
    other = function("k2", [], blocks=[block("b1", op("L1")), block("b9", op("L2")), block("b8", jump("J", "b1"))])
    document["nki_functions"]["functions"].append(other)
    rows(document)[1]["func"] = "k2"
    assert list(flow(inline(document).doc).items()) == [
        ("Block1", ["a", "C_br_to_entry"]),
        ("C_b1", ["C_L1"]),
        ("C_b9", ["C_L2"]),
        ("C_b8", ["C_J"]),
        ("C_continuation", ["b", "D_K1"]),
        ("D_b2", ["D_br_to_continuation"]),
        ("D_continuation", ["c"]),
    ]


def test_n20_branches_to_the_block_and_from_what_stood_between() -> None:
    document = three([op("K1")], [op("K2")])
    rows(document)[2] = op("b", "CompareAndBranch", on_true="Block1", on_false="Block2")
    document["functions"][0]["blocks"].append(block("Block2", call("E"), jump("back", "Block1")))
    outcome = inline(document)
    assert list(flow(outcome.doc))[4:] == ["D_continuation", "Block2", "E_b2", "E_continuation"]
    assert flow(outcome.doc)["C_continuation"] == ["b", "D_K1"]
    assert (row(outcome.doc, "b")["on_true"], row(outcome.doc, "b")["on_false"]) == ("Block1", "Block2")
    assert row(outcome.doc, "back")["target"] == "Block1"


def test_n20_in_the_body_of_a_loop() -> None:
    document = three([op("K1")], [op("K2")])
    rows(document)[:] = [loop("L", "i", (0, 2, 1), *rows(document)), op("z")]
    outcome = inline(document)
    assert flow(outcome.doc) == {"Block1": ["L", "z"]}
    assert list(body_of(outcome.doc, "L").items()) == [
        ("L_body", ["a", "C_K1"]),
        ("C_b2", ["C_K2", "C_br_to_continuation"]),
        ("C_continuation", ["b", "D_K1"]),
        ("D_b2", ["D_K2", "D_br_to_continuation"]),
        ("D_continuation", ["c"]),
    ]


def test_n20_n2_a_skipped_call_site_is_a_row_like_others() -> None:
    document = three([op("K1")], [op("K2")])
    rows(document)[3]["is_allocated"] = True
    outcome = inline(document, allocated=False)
    assert flow(outcome.doc)["C_continuation"] == ["b", "D", "c"]
    second = inline(outcome.doc, allocated=True)
    at_once = inline(document)
    assert second.doc == at_once.doc
    assert names(second.doc, block=2) == ["b", "D_K1"]


def test_n20_many_call_sites_in_one_block() -> None:
    document = three([op("K1")], [op("R", "Return")])
    count = 200
    rows(document)[:] = [each for n in range(count) for each in (call(f"C{n}"), op(f"w{n}"))]
    blocks = list(flow(inline(document).doc).items())
    assert len(blocks) == 1 + 2 * count
    assert blocks[0] == ("Block1", ["C0_K1"])
    for n in range(count):
        following = [f"C{n + 1}_K1"] if n + 1 < count else []
        assert blocks[2 * n + 1] == (f"C{n}_b2", [f"C{n}_br_to_continuation"])
        assert blocks[2 * n + 2] == (f"C{n}_continuation", [f"w{n}", *following])


# N14: ends over all blocks


def test_n14_roots_and_sinks_are_found_over_all_blocks() -> None:
    document = around(
        block("b1", op("K1"), op("K2", dependencies=["K1"])),
        block("b2", op("K3"), op("K4", dependencies=["K2"])),
        block("b3", op("K5", dependencies=["K3"]), op("K6", "Exit")),
        of=P,
        on={"dependencies": [["C", "Anti", 5], "p"]},
    )
    outcome = inline(document)
    assert [edges(outcome, f"C_K{n}").get("dependencies") for n in range(1, 7)] == [
        ["p"],
        ["C_K1"],
        ["p"],
        ["C_K2"],
        ["C_K3"],
        ["p"],
    ]
    sinks = [[f"C_K{n}", "Anti", 5] for n in (4, 5, 6)]
    assert edges(outcome, "z") == {"dependencies": [*sinks, "p"]}


@pytest.mark.parametrize("key", LISTS)
def test_n14_edges_of_any_relation_between_blocks_count(key: str) -> None:
    document = around(block("b1", op("K1")), block("b2", op("K2", **{key: ["K1"]}), op("R", "Return")), of=P, on=C)
    outcome = inline(document)
    assert edges(outcome, "C_K1") == P
    assert edges(outcome, "C_K2") == {LISTS[0] if key == LISTS[2] else key: ["C_K1"]}
    assert edges(outcome, "z") == {"dependencies": ["C_K2", "C_br_to_continuation"]}


@pytest.mark.parametrize("relation", LISTS)
def test_n14_edges_of_and_on_the_call_site_keep_their_relation(relation: str) -> None:
    entry = [["p", "Flow", "x"], "gone"]
    document = around(block("b1", op("K1")), block("b2", op("K2")), of={relation: entry}, on={relation: ["p", "C"]})
    outcome = inline(document)
    assert edges(outcome, "C_K1") == edges(outcome, "C_K2") == {relation: entry}
    assert edges(outcome, "z") == {relation: ["p", "C_K1", "C_K2"]}


def test_n14_a_return_that_becomes_a_branch_is_a_clone_with_its_edges() -> None:
    document = around(
        block("b1", op("K1"), op("K2", dependencies=["R"])),
        block("b2", op("R", "Return", dependencies=["K1"])),
        block("b3", op("S", "Return")),
        of=P,
        on=C,
    )
    outcome = inline(document)
    assert edges(outcome, "C_K2") == {"dependencies": ["C_br_to_continuation"]}
    assert edges(outcome, "C_br_to_continuation") == {"dependencies": ["C_K1"]}
    assert edges(outcome, "C_br_to_continuation.1") == P
    assert edges(outcome, "z") == {"dependencies": ["C_K2", "C_br_to_continuation.1"]}


def test_n14_new_branches_and_noops_are_no_clones() -> None:
    document = around(
        block("b1", op("K1")), block("b2"), block("b3", jump("K2", "b1", dependencies=["K1"])), block("b4"), of=P, on=C
    )
    rows(document).pop(2)
    rows(document)[0]["dependencies"] = ["C"]
    outcome = inline(document)
    new = ["C_br_to_entry", "C_noop", "C_br_to_continuation", "C_continuation_noop"]
    assert [name for found in flow(outcome.doc).values() for name in found if name in new] == new
    assert all(edges(outcome, name) == {} for name in new)
    assert edges(outcome, "C_K1") == P
    assert edges(outcome, "p") == {"dependencies": ["C_K2"]}


def test_n14_f01_edges_of_rows_that_move_and_on_them() -> None:
    document = around(block("b1", op("K1")), block("b2", op("K2")), on={"dependencies": ["p", "C"]})
    rows(document).append(op("y", dependencies=[["z", "Anti"], "C"], loop_carried_dependencies=["y"]))
    rows(document)[0]["loop_carried_dependencies"] = ["y", "z"]
    document["functions"][0]["blocks"].append(block("Block2", op("x", dependencies=["z", "C", "p"])))
    outcome = inline(document)
    both = ["C_K1", "C_K2"]
    assert edges(outcome, "z") == {"dependencies": ["p", *both]}
    assert edges(outcome, "y") == {"dependencies": [["z", "Anti"], *both], "loop_carried_dependencies": ["y"]}
    assert edges(outcome, "p") == {"loop_carried_dependencies": ["y", "z"]}
    assert edges(outcome, "x") == {"dependencies": ["z", *both, "p"]}


def test_n14_n20_call_sites_on_each_other_and_on_themselves() -> None:
    document = three([op("K1")], [op("K2"), op("K3", "Exit", dependencies=["K2"])])
    rows(document)[3] |= {"dependencies": ["C"], "loop_carried_dependencies": [["D", "Flow", 2]]}
    rows(document)[1]["dependencies"] = ["a"]
    rows(document)[4]["dependencies"] = ["D", "b"]
    outcome = inline(document)
    carried = {"loop_carried_dependencies": [["D_K1", "Flow", 2], ["D_K3", "Flow", 2]]}
    assert edges(outcome, "C_K1") == edges(outcome, "C_K2") == {"dependencies": ["a"]}
    assert edges(outcome, "D_K1") == edges(outcome, "D_K2") == {"dependencies": ["C_K1", "C_K3"]} | carried
    assert edges(outcome, "D_K3") == {"dependencies": ["D_K2"]}
    assert edges(outcome, "c") == {"dependencies": ["D_K1", "D_K3", "b"]}


def test_n14_in_the_body_of_a_loop() -> None:
    nest = loop("L", "i", (0, 2, 1), call("D", dependencies=["p"]), op("q", dependencies=["D"]))
    document = around(block("b1", op("K1")), block("b2", op("K2", dependencies=["K1"])))
    rows(document)[1:] = [nest, op("z", dependencies=["D"])]
    outcome = inline(document)
    inner = [each for b in row(outcome.doc, "L")["blocks"] for each in b["instructions"]]
    assert {i["name"]: i.get("dependencies") for i in inner} == {
        "D_K1": ["p"],
        "D_K2": ["D_K1"],
        "D_br_to_continuation": None,
        "q": ["D_K2"],
    }
    assert edges(outcome, "z") == {"dependencies": ["D_K2"]}


def test_n14_f09_waits_and_hints_are_repointed_per_copy_over_blocks() -> None:
    wait = {"on_wait": [{"from": "K1", "id": 3}, {"from": "R", "id": 4}, {"from": "dma", "id": 5}]}
    document = around(
        block("b1", op("K1")),
        block("b2", op("K2", "BranchHint", sync_info=wait, associate_branch="R"), op("R", "Return")),
    )
    rows(document).append(call("D"))
    outcome = inline(document)
    for site in ("C", "D"):
        made = row(outcome.doc, f"{site}_K2")
        assert [w["from"] for w in made["sync_info"]["on_wait"]] == [f"{site}_K1", f"{site}_br_to_continuation", "dma"]
        assert made["associate_branch"] == f"{site}_br_to_continuation"


@pytest.mark.parametrize(
    ("of", "on", "joined"),
    [
        (P, {"dependencies": [["C", "Anti", 1]]}, {"dependencies": [["p", "Anti", 1]]}),
        ({"loop_carried_dependencies": [["p", "Flow", 3]]}, C, {"loop_carried_dependencies": [["p", "Flow", 3]]}),
        (P, {"unroll_dependencies": [["C", "Flow", []]]}, {"unroll_dependencies": [["p", "Flow", []]]}),
        (P, {"dependencies": ["p", "C"]}, P),
        ({}, C, {}),
    ],
)
def test_n14_a_body_of_empty_blocks_joins_what_stands_around_it(of: Json, on: Json, joined: Json) -> None:
    outcome = inline(around(block("b1"), block("b2"), block("b3"), of=of, on=on))
    assert flow(outcome.doc) == {
        "Block1": ["p"],
        "C_b2": ["C_noop"],
        "C_b3": ["C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert edges(outcome, "z") == joined
    assert edges(outcome, "C_noop") == edges(outcome, "C_br_to_continuation") == {}


# N14: what gathers many ends


def test_n14_a_done_stands_behind_the_last_clone_of_all_blocks() -> None:
    outcome = inline(around(block("b1", *many(5)), block("b2", *many(5, 5)), on=C))
    made = [f"C_K{n}" for n in range(10)]
    assert flow(outcome.doc) == {
        "Block1": ["p", *made[:5]],
        "C_b2": [*made[5:], "C_done", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert edges(outcome, "C_done") == ordered(*made)
    assert edges(outcome, "z") == {"dependencies": ["C_done"]}


def test_n14_a_done_where_the_last_blocks_are_empty() -> None:
    outcome = inline(around(block("b1", op("K")), block("b2", *many(9)), block("b3"), block("b4"), on=C))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K"],
        "C_b2": [*(f"C_K{n}" for n in range(9)), "C_done"],
        "C_b3": ["C_noop"],
        "C_b4": ["C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert edges(outcome, "C_done") == ordered("C_K", *(f"C_K{n}" for n in range(9)))


def test_n14_a_done_in_the_entry_when_only_that_has_rows() -> None:
    outcome = inline(around(block("b1", *many(9)), block("b2"), on=C))
    assert flow(outcome.doc)["Block1"] == ["p", *(f"C_K{n}" for n in range(9)), "C_done"]
    assert flow(outcome.doc)["C_b2"] == ["C_br_to_continuation"]


@pytest.mark.parametrize("opcode", ["Terminator", "CompareAndBranch", "UnconditionalBranch", "Return", "Exit", "Break"])
def test_n14_a_done_stands_before_a_terminator_wherever_other_exits_are(opcode: str) -> None:
    last = jump("X", "b2") if opcode == "UnconditionalBranch" else op("X", opcode)
    exits = [op("E", "Exit"), op("R", "Return")]
    outcome = inline(around(block("b1", *many(9), *exits), block("b2", *many(1, 9), last), on=C))
    name = "C_br_to_continuation.1" if opcode == "Return" else "C_X"
    assert flow(outcome.doc)["Block1"][-2:] == ["C_E", "C_br_to_continuation"]
    assert flow(outcome.doc)["C_b2"] == ["C_K9", "C_done", name]
    assert edges(outcome, "C_done")["dependencies"][-1] == [name, "Ordered"]


def test_n14_a_terminator_before_the_last_clone_does_not_move_the_done() -> None:
    outcome = inline(around(block("b1", *many(9)), block("b2", op("E", "Exit"), op("K9")), on=C))
    assert flow(outcome.doc)["C_b2"] == ["C_E", "C_K9", "C_done", "C_br_to_continuation"]


def test_n14_a_start_stands_before_the_first_clone() -> None:
    two = {"dependencies": ["p", ["p", "Anti", 1]], "loop_carried_dependencies": ["gone"]}
    outcome = inline(around(block("b1", *many(1)), block("b2", *many(8, 1)), of=two))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_start", "C_K0"],
        "C_b2": [*(f"C_K{n}" for n in range(1, 9)), "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert edges(outcome, "C_start") == two
    assert all(edges(outcome, f"C_K{n}") == ordered("C_start") for n in range(9))
    assert edges(outcome, "C_br_to_continuation") == {}


@pytest.mark.parametrize("goes_back", [False, True])
@pytest.mark.parametrize("before", [False, True])
def test_n14_a_start_in_an_entry_without_clones(before: bool, goes_back: bool) -> None:
    last = jump("J", "b1" if goes_back else "b2")
    document = around(block("b1"), block("b2", *many(8), last), of={"dependencies": ["p", "p"]})
    if not before:
        rows(document)[:2] = [rows(document)[1], op("p")]
    outcome = inline(document)
    there = ["p"] if before else []
    if goes_back:
        assert flow(outcome.doc)["Block1"] == [*there, "C_br_to_entry"]
        assert flow(outcome.doc)["C_b1"] == ["C_start"]
    else:
        assert flow(outcome.doc)["Block1"] == [*there, "C_start"]
    assert edges(outcome, "C_start") == {"dependencies": ["p", "p"]}
    assert edges(outcome, "C_J") == ordered("C_start")


def test_n14_a_start_in_an_entry_of_its_own_with_clones() -> None:
    document = around(block("b1", *many(8)), block("b2", jump("J", "b1")), of={"dependencies": ["p", "p"]}, on=C)
    outcome = inline(document)
    made = [*(f"C_K{n}" for n in range(8)), "C_J"]
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_b1": ["C_start", *made[:-1]],
        "C_b2": ["C_done", "C_J"],
        "C_continuation": ["z"],
    }
    assert edges(outcome, "C_done") == ordered(*made)
    assert edges(outcome, "C_br_to_entry") == {}


@pytest.mark.parametrize(("count", "made"), [(7, False), (8, True)])
def test_n14_a_return_counts_among_the_ends_and_new_rows_do_not(count: int, made: bool) -> None:
    document = around(
        block("b1", *many(count)), block("b2", op("R", "Return")), block("b3"), of={"dependencies": ["p", "p"]}, on=C
    )
    outcome = inline(document)
    found = [name for each in flow(outcome.doc).values() for name in each]
    assert ("C_start" in found, "C_done" in found) == (made, made)
    # The branch that was the Return is the last clone and a terminator.
    assert flow(outcome.doc)["C_b2"] == [*(["C_done"] if made else []), "C_br_to_continuation"]


def test_n14_n20_helpers_of_each_call_site() -> None:
    document = three(many(5), many(4, 5))
    rows(document)[1]["dependencies"] = ["a", "a"]
    rows(document)[3]["dependencies"] = ["C", "b"]
    rows(document)[4]["dependencies"] = ["D"]
    outcome = inline(document)
    first, second = [[[f"{s}_K{n}" for n in range(a, b)] for a, b in ((0, 5), (5, 9))] for s in "CD"]
    assert list(flow(outcome.doc).values()) == [
        ["a", "C_start", *first[0]],
        [*first[1], "C_done", "C_br_to_continuation"],
        ["b", "D_start", *second[0]],
        [*second[1], "D_done", "D_br_to_continuation"],
        ["c"],
    ]
    assert edges(outcome, "D_start") == {"dependencies": ["C_done", "b"]}
    assert edges(outcome, "c") == {"dependencies": ["D_done"]}
