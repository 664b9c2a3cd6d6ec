"""The oracle of rules N12, N13 and N20 (where bodies stand in blocks) against hand-worked documents."""

from typing import Any

import pytest

from tests.oracle.builders import Obj, block, call, flow, function, jump, loop, memory_set, module, names, op, row, rows
from tests.oracle.calls import bare, edges, failure, in_blocks, inlined


def new_branch(name: str, target: str) -> Obj:
    """N13: a new branch has these members, sorted, and the call-site's engine."""
    return {"engine": "DVE", "ins": [], "name": name, "opcode": "UnconditionalBranch", "outs": [], "target": target}


def new_noop(name: str) -> Obj:
    return {"engine": "DVE", "ins": [], "name": name, "opcode": "NoOp", "outs": []}


# N13: the split


def test_n13_the_callers_block_is_split() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2")), block("b3", op("K3")))
    doc["functions"][0]["blocks"].append(block("Block2", op("y")))
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_K2"],
        "C_b3": ["C_K3", "C_br_to_continuation"],
        "C_continuation": ["z"],
        "Block2": ["y"],
    }
    made = row(outcome.doc, "C_br_to_continuation")
    assert made == new_branch("C_br_to_continuation", "C_continuation")
    assert list(made) == sorted(made)
    assert outcome.codes() == set()


def test_n13_the_entry_stands_by_itself_when_something_branches_to_it() -> None:
    again = op("K2", "CompareAndBranch", comp_op="eq", on_true="b1", on_false="b2")
    outcome = inlined(in_blocks(block("b1", op("K1"), again), block("b2", op("K3"))))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_b1": ["C_K1", "C_K2"],
        "C_b2": ["C_K3", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert row(outcome.doc, "C_br_to_entry") == new_branch("C_br_to_entry", "C_b1")
    made = row(outcome.doc, "C_K2")
    assert (made["on_true"], made["on_false"]) == ("C_b1", "C_b2")


def test_n13_a_body_of_one_block_that_branches_to_itself() -> None:
    outcome = inlined(bare(op("K"), jump("J", "Block1")))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_Block1": ["C_K", "C_J"],
        "C_continuation": ["z"],
    }
    assert row(outcome.doc, "C_J")["target"] == "C_Block1"
    with_return = inlined(bare(op("K", "CompareAndBranch", on_true="Block1", on_false=None), op("R", "Return")))
    assert flow(with_return.doc)["C_Block1"] == ["C_K", "C_br_to_continuation"]
    assert row(with_return.doc, "C_K")["on_false"] is None


def test_n13_branches_in_a_body() -> None:
    doc = in_blocks(
        block("b1", op("K1", "CompareAndBranch", on_true="b3", on_false="b2")),
        block("b2", jump("K2", "b3")),
        block("b3", op("K3"), op("R", "Return")),
    )
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_K2"],
        "C_b3": ["C_K3", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    made = row(outcome.doc, "C_K1")
    assert (made["on_true"], made["on_false"]) == ("C_b3", "C_b2")
    assert row(outcome.doc, "C_K2")["target"] == "C_b3"


def test_n13_branches_elsewhere_go_on_naming_the_callers_block() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2")))
    rows(doc).append(jump("again", "Block1"))
    doc["functions"][0]["blocks"].append(
        block("Block2", op("y", "CompareAndBranch", on_true="Block1", on_false="Block2"))
    )
    outcome = inlined(doc)
    assert flow(outcome.doc)["C_continuation"] == ["z", "again"]
    assert row(outcome.doc, "again")["target"] == "Block1"
    assert (row(outcome.doc, "y")["on_true"], row(outcome.doc, "y")["on_false"]) == ("Block1", "Block2")


def test_n13_blocks_of_one_name_are_told_apart() -> None:
    # The kernel's `Block1` is its own; the jump goes to the second block of the kernel.
    outcome = inlined(in_blocks(block("Block1", jump("K1", "Block2")), block("Block2", op("K2"))))
    assert row(outcome.doc, "C_K1")["target"] == "C_Block2"


def test_n13_an_early_return_of_one_block() -> None:
    outcome = inlined(bare(op("K1"), op("R", "Return"), op("K2")))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1", "C_br_to_continuation", "C_K2", "C_br_to_continuation.1"],
        "C_continuation": ["z"],
    }
    # None is dropped, not even a final one.
    both = inlined(bare(op("R", "Return"), op("K"), op("S", "Return")))
    assert flow(both.doc)["Block1"] == ["p", "C_br_to_continuation", "C_K", "C_br_to_continuation.1"]


def test_n13_a_return_becomes_a_branch_and_keeps_the_rest() -> None:
    written = {
        "name": "R",
        "opcode": "Return",
        "engine": "SP",
        "zz": [1],
        "ins": [],
        "outs": [],
        "dependencies": [["K1", "Flow"]],
    }
    outcome = inlined(in_blocks(block("b1", op("K1")), block("b2", written)))
    made = row(outcome.doc, "C_br_to_continuation")
    assert made == {
        "name": "C_br_to_continuation",
        "opcode": "UnconditionalBranch",
        "engine": "DVE",
        "zz": [1],
        "ins": [],
        "outs": [],
        "dependencies": [["C_K1", "Flow"]],
        "target": "C_continuation",
    }
    assert list(made) == [*written, "target"]
    assert edges(outcome, "z") == [["p", "Flow"], ["C_br_to_continuation", "Anti"], ["p", "Anti"]]


def test_f6_what_a_returns_clone_is_given_stands_in_order() -> None:
    unsorted_row = {"name": "R", "opcode": "Return", "engine": "SP", "ins": [], "outs": []}
    early = inlined(bare(unsorted_row, op("K")))
    assert list(row(early.doc, "C_br_to_continuation")) == [*unsorted_row, "dependencies", "target"]
    sorted_row = dict(sorted((unsorted_row | {"zz": 0}).items()))
    early = inlined(bare(sorted_row, op("K")))
    keys = list(row(early.doc, "C_br_to_continuation"))
    assert keys == sorted(keys)


@pytest.mark.parametrize("opcode", ["Terminator", "Exit", "Break", "CompareAndBranch", "UnconditionalBranch"])
def test_n13_a_last_block_that_ends_already(opcode: str) -> None:
    outcome = inlined(in_blocks(block("b1", op("K1")), block("b2", op("K2", opcode))))
    assert flow(outcome.doc)["C_b2"] == ["C_K2"]


def test_n13_only_the_last_block_gets_a_branch() -> None:
    outcome = inlined(in_blocks(block("b1", op("K1")), block("b2", op("R", "Return")), block("b3", op("K3", "Exit"))))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_br_to_continuation"],
        "C_b3": ["C_K3"],
        "C_continuation": ["z"],
    }


def test_n13_members_of_blocks() -> None:
    doc = in_blocks(block("b1", op("K1"), zz=1), {"zz": 2} | block("b2", op("K2")))
    doc["functions"][0]["blocks"][0]["zz"] = 0
    blocks = inlined(doc).doc["functions"][0]["blocks"]
    assert [(each["name"], each.get("zz")) for each in blocks] == [("Block1", 0), ("C_b2", 2), ("C_continuation", None)]
    assert list(blocks[1]) == ["zz", "name", "instructions"]
    assert list(blocks[2]) == ["instructions", "name"]


def test_n13_in_the_body_of_a_loop() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2")))
    nest = loop("L", "i", (0, 2, 1), op("a"), call("D"), op("b"), jump("J", "L_body"))
    rows(doc)[1] = nest
    outcome = inlined(doc)
    assert names(outcome.doc) == ["p", "L", "z"]
    inner = row(outcome.doc, "L")["blocks"]
    assert {each["name"]: [found["name"] for found in each["instructions"]] for each in inner} == {
        "L_body": ["a", "D_K1"],
        "D_b2": ["D_K2", "D_br_to_continuation"],
        "D_continuation": ["b", "J"],
    }
    assert inner[2]["instructions"][1]["target"] == "L_body"


def test_n13_a_loop_behind_the_call_site_moves_with_its_body() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2")))
    rows(doc).append(loop("L", "i", (0, 2, 1), call("D"), op("b")))
    outcome = inlined(doc)
    assert flow(outcome.doc)["C_continuation"] == ["z", "L"]
    assert [each["name"] for each in row(outcome.doc, "L")["blocks"]] == ["L_body", "D_b2", "D_continuation"]


def test_n13_loops_of_a_body_are_gone_before() -> None:
    nest = loop("L", "i", (0, 2, 1), op("K"))
    outcome = inlined(in_blocks(block("b1", nest), block("b2", loop("M", "j", (0, 0, 1), op("N")), op("R", "Return"))))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K-0", "C_K-1"],
        "C_b2": ["C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    returns = inlined(bare(loop("L", "i", (0, 2, 1), op("K"), op("R", "Return"))))
    assert flow(returns.doc)["Block1"] == ["p", "C_K-0", "C_br_to_continuation", "C_K-1", "C_br_to_continuation.1"]
    once = inlined(bare(loop("L", "i", (0, 1, 1), op("K"), op("R", "Return"))))
    assert flow(once.doc) == {"Block1": ["p", "C_K-0", "z"]}


def test_n13_a_branch_out_of_a_loop_of_the_body() -> None:
    nest = loop("L", "i", (0, 2, 1), op("K", "CompareAndBranch", on_true="b2", on_false="b2"))
    outcome = inlined(in_blocks(block("b1", nest), block("b2", op("K2"))))
    assert [row(outcome.doc, f"C_K-{n}")["on_true"] for n in (0, 1)] == ["C_b2", "C_b2"]


def test_n13_storage_and_binding_are_as_ever() -> None:
    callee = function("k", [memory_set("t_set")], blocks=[block("b1", op("K1")), block("b2", op("K2"))])
    outcome = inlined(module(function("main", [], call("C")), kernels=[callee]))
    assert [each["name"] for each in outcome.doc["functions"][0]["allocations"]] == ["C:t_set"]
    assert outcome.doc["nki_functions"] == {"functions": []}


def test_n3_r5_a_branch_that_leads_nowhere() -> None:
    assert failure(in_blocks(block("b1", jump("K1", "gone")), block("b2", op("K2")))) == "unresolved_name"


# N13: blocks that would be empty


def test_n13_an_empty_tail() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("R", "Return")))
    rows(doc).pop()
    outcome = inlined(doc)
    assert flow(outcome.doc)["C_continuation"] == ["C_continuation_noop"]
    made = row(outcome.doc, "C_continuation_noop")
    assert made == new_noop("C_continuation_noop")
    assert list(made) == sorted(made)


def test_n13_empty_blocks_of_a_body() -> None:
    doc = in_blocks(block("b1"), block("b2"), block("b3", op("K")), {"name": "b4"}, block("b5"))
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p"],
        "C_b2": ["C_noop"],
        "C_b3": ["C_K"],
        "C_b4": ["C_noop.1"],
        "C_b5": ["C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert row(outcome.doc, "C_noop") == new_noop("C_noop")


def test_n13_an_empty_entry_and_nothing_before() -> None:
    doc = in_blocks(block("b1"), block("b2", op("K")))
    del rows(doc)[0]
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["C_noop"],
        "C_b2": ["C_K", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }


def test_n13_an_empty_entry_that_stands_by_itself() -> None:
    doc = in_blocks(block("b1"), block("b2", jump("K", "b1")))
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_b1": ["C_noop"],
        "C_b2": ["C_K"],
        "C_continuation": ["z"],
    }


def test_n13_a_block_that_unrolling_emptied() -> None:
    nothing = loop("L", "i", (0, 0, 1), op("K1"))
    outcome = inlined(in_blocks(block("b1", op("K0")), block("b2", nothing), block("b3", op("K2"))))
    assert flow(outcome.doc)["C_b2"] == ["C_noop"]


def test_n12_a_call_site_that_was_alone_and_leaves_nothing() -> None:
    doc = module(function("main", [], call("C")), kernels=[function("k", [], op("R", "Return"))])
    assert flow(inlined(doc).doc) == {"Block1": ["C_noop"]}
    # A block that was empty before is no affair of the pass.
    doc["functions"][0]["blocks"].append(block("Block2"))
    assert flow(inlined(doc).doc)["Block2"] == []


def test_n13_the_last_call_site_names_the_noop_of_a_block() -> None:
    doc = module(function("main", [], call("C"), call("D")), kernels=[function("k", [])])
    assert flow(inlined(doc).doc) == {"Block1": ["D_noop"]}


# N14: a split body and the edges around it


def test_n14_ends_are_found_over_all_blocks() -> None:
    doc = in_blocks(
        block("b1", op("K1"), op("K2", dependencies=["K1"])),
        block("b2", op("K3"), jump("K4", "b3", dependencies=["K2"])),
        block("b3", op("K5", dependencies=["K3"]), op("R", "Return", dependencies=["K5", "K4"])),
    )
    outcome = inlined(doc)
    # Roots K1 and K3; only the branch that was the Return is a sink.
    assert edges(outcome, "C_K1") == [["p", "Flow"]]
    assert edges(outcome, "C_K3") == [["p", "Flow"]]
    assert edges(outcome, "C_K4") == ["C_K2"]
    assert edges(outcome, "C_br_to_continuation") == ["C_K5", "C_K4"]
    assert edges(outcome, "z") == [["p", "Flow"], ["C_br_to_continuation", "Anti"], ["p", "Anti"]]


def test_n14_new_rows_are_no_clones() -> None:
    again = op("K2", "CompareAndBranch", on_true="b1", on_false="b2", dependencies=["K1"])
    doc = in_blocks(block("b1", op("K1"), again), block("b2"), block("b3", op("K3", dependencies=["K2"])))
    outcome = inlined(doc)
    for new in ("C_br_to_entry", "C_br_to_continuation", "C_noop"):
        assert edges(outcome, new) is None
    assert edges(outcome, "z") == [["p", "Flow"], ["C_K3", "Anti"], ["p", "Anti"]]


def test_n14_edges_of_rows_behind_stay() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2", dependencies=["K1"])))
    rows(doc).append(op("y", dependencies=["z", "C"], sync_info={"on_wait": [{"from": "z"}, {"from": "C"}]}))
    outcome = inlined(doc)
    made = row(outcome.doc, "y")
    assert made["dependencies"] == ["z", "C_K2"]
    assert made["sync_info"] == {"on_wait": [{"from": "z"}, {"from": "C"}]}


def test_n14_a_body_of_empty_blocks_joins() -> None:
    outcome = inlined(in_blocks(block("b1"), block("b2"), block("b3")))
    assert flow(outcome.doc) == {
        "Block1": ["p"],
        "C_b2": ["C_noop"],
        "C_b3": ["C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert edges(outcome, "z") == [["p", "Flow"], ["p", "Anti"]]


def many(count: int, first: int = 0) -> list[Obj]:
    return [op(f"K{n}") for n in range(first, first + count)]


def test_n14_start_and_done_of_several_blocks() -> None:
    doc = in_blocks(block("b1", *many(5)), block("b2", *many(5, 5)), dependencies=["p", "p"])
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_start", "C_K0", "C_K1", "C_K2", "C_K3", "C_K4"],
        "C_b2": ["C_K5", "C_K6", "C_K7", "C_K8", "C_K9", "C_done", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert edges(outcome, "C_start") == ["p", "p"]
    assert edges(outcome, "C_K9") == [["C_start", "Ordered"]]
    assert edges(outcome, "C_done") == [[f"C_K{n}", "Ordered"] for n in range(10)]
    assert edges(outcome, "z")[1] == ["C_done", "Anti"]


def test_n14_start_in_an_entry_of_its_own_and_done_before_the_last_return() -> None:
    doc = in_blocks(
        block("b1", *many(8)),
        block("b2", op("X", "Exit"), jump("Y", "b1")),
        block("b3", op("R", "Return")),
        dependencies=["p", "p"],
    )
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_b1": ["C_start", *(f"C_K{n}" for n in range(8))],
        "C_b2": ["C_X", "C_Y"],
        "C_b3": ["C_done", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    # 11 roots and sinks: the branch that was the Return is one, the new branch is none.
    ends = [*(f"C_K{n}" for n in range(8)), "C_X", "C_Y", "C_br_to_continuation"]
    assert edges(outcome, "C_done") == [[name, "Ordered"] for name in ends]
    assert all(edges(outcome, name) == [["C_start", "Ordered"]] for name in ends)


def test_n14_done_where_the_last_clone_is_and_start_in_an_empty_entry() -> None:
    doc = in_blocks(block("b1"), block("b2", *many(9)), block("b3"), dependencies=["p", "p"])
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_start"],
        "C_b2": [*(f"C_K{n}" for n in range(9)), "C_done"],
        "C_b3": ["C_br_to_continuation"],
        "C_continuation": ["z"],
    }


# N20: several call-sites in one block


def test_n20_one_after_the_other() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("R", "Return")))
    rows(doc).extend([call("D", dependencies=["C"]), op("y", dependencies=["D"]), call("E", "k3"), op("x")])
    doc["nki_functions"]["functions"].append(function("k3", [], op("M")))
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_br_to_continuation"],
        "C_continuation": ["z", "D_K1"],
        "D_b2": ["D_br_to_continuation"],
        "D_continuation": ["y", "E_M", "x"],
    }
    assert row(outcome.doc, "D_br_to_continuation")["target"] == "D_continuation"
    assert edges(outcome, "D_K1") == ["C_K1", "C_br_to_continuation"]
    assert edges(outcome, "y") == ["D_K1", "D_br_to_continuation"]


def test_n20_side_by_side() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2", "Exit")))
    rows(doc)[1:] = [call("C"), call("D")]
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_K2"],
        "C_continuation": ["D_K1"],
        "D_b2": ["D_K2"],
        "D_continuation": ["D_continuation_noop"],
    }


def test_n20_what_names_a_block_that_is_left_empty() -> None:
    # Behind C stands D, so C's continuation has no `_continuation_noop`; D leaves it empty.
    doc = in_blocks(block("b1"), block("b2", op("K2", "Exit")))
    rows(doc)[:] = [call("C"), call("D"), call("E", "nothing")]
    doc["nki_functions"]["functions"].append(function("nothing", []))
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["C_noop"],
        "C_b2": ["C_K2"],
        "C_continuation": ["D_noop"],
        "D_b2": ["D_K2"],
        "D_continuation": ["E_noop"],
    }


def test_n20_entries_of_their_own() -> None:
    doc = bare(op("K"), jump("J", "Block1"))
    rows(doc)[1:] = [call("C"), call("D")]
    outcome = inlined(doc)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_Block1": ["C_K", "C_J"],
        "C_continuation": ["D_br_to_entry"],
        "D_Block1": ["D_K", "D_J"],
        "D_continuation": ["D_continuation_noop"],
    }


def test_n20_branches_to_the_block_that_was_split() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2")))
    rows(doc).extend([call("D"), jump("back", "Block1")])
    outcome = inlined(doc)
    assert flow(outcome.doc)["D_continuation"] == ["back"]
    assert row(outcome.doc, "back")["target"] == "Block1"


def test_n20_in_two_blocks_that_branch_to_each_other() -> None:
    doc = in_blocks(block("b1", op("K1")), block("b2", op("K2", "Exit")))
    rows(doc).append(jump("J1", "Block2"))
    doc["functions"][0]["blocks"].append(block("Block2", call("D"), jump("J2", "Block1")))
    outcome = inlined(doc)
    assert list(flow(outcome.doc)) == ["Block1", "C_b2", "C_continuation", "Block2", "D_b2", "D_continuation"]
    assert (row(outcome.doc, "J1")["target"], row(outcome.doc, "J2")["target"]) == ("Block2", "Block1")


# R6


def test_r6_names_of_blocks_and_branches() -> None:
    doc = in_blocks(block("continuation", op("K1")), block("continuation", op("K2")), block("b3", op("R", "Return")))
    doc["functions"][0]["blocks"].append(block("C_b3", op("C_br_to_continuation")))
    outcome = inlined(doc)
    assert list(flow(outcome.doc)) == ["Block1", "C_continuation", "C_b3.1", "C_continuation.1", "C_b3"]
    assert flow(outcome.doc)["C_b3.1"] == ["C_br_to_continuation.1"]
    assert row(outcome.doc, "C_br_to_continuation.1")["target"] == "C_continuation.1"


def test_r6_a_clone_and_a_new_row_of_one_name() -> None:
    # In row order: the clone of `noop` stands before the NoOp of the empty block.
    outcome = inlined(in_blocks(block("b1", op("noop")), block("b2"), block("b3", op("noop"))))
    assert [name for found in flow(outcome.doc).values() for name in found] == [
        "p",
        "C_noop",
        "C_noop.1",
        "C_noop.2",
        "C_br_to_continuation",
        "z",
    ]
    assert row(outcome.doc, "C_noop.1") == new_noop("C_noop.1")


# N16, O6


def test_n16_provenance_of_a_split_body() -> None:
    outcome = inlined(in_blocks(block("b1", op("K1")), block("b2"), block("b3", op("R", "Return"), op("K2"))))
    found = [(each.original_name, each.chain) for each in outcome.provenance]
    clone: Any = ("C",)
    # p, K1, the NoOp, the branch that was `R`, K2, the new branch, z.
    assert found == [(None, ()), ("K1", clone), (None, ()), ("R", clone), ("K2", clone), (None, ()), (None, ())]


def test_o6_a_return_that_becomes_a_branch_is_counted() -> None:
    # p, z, 2 clones, and the body of 2.
    doc = in_blocks(block("b1", op("K1")), block("b2", op("R", "Return")))
    assert inlined(doc, max_instructions=6).status == "changed"
    assert failure(doc, max_instructions=5) == "too_many_instructions"
    # One block with an early Return, dropped only if it is the last row: 2 + 3 + 3.
    early = bare(op("R", "Return"), op("K1"), op("S", "Return"))
    assert inlined(early, max_instructions=8).status == "changed"
    assert failure(early, max_instructions=7) == "too_many_instructions"
    # A loop of one trip that ends the body with its Return: 2 + 1 + 2.
    once = bare(loop("L", "i", (0, 1, 1), op("K"), op("R", "Return")))
    assert inlined(once, max_instructions=5).status == "changed"
    assert failure(once, max_instructions=4) == "too_many_instructions"


def test_o6_the_noop_of_a_block_that_is_left_empty_is_counted() -> None:
    doc = module(function("main", [], call("C")), kernels=[function("k", [])])
    assert inlined(doc, max_instructions=1).status == "changed"
    assert failure(doc, max_instructions=0) == "too_many_instructions"
