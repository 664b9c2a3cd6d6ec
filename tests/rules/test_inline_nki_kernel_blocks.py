"""Rules N12 and N13: bodies of several blocks, and what becomes of the block around their call-site.

What must come out is written down by hand. Several call-sites in one block, edges, names, provenance and size have a
file of their own.
"""

from functools import partial
from typing import Any

import pytest

from arrowir.vocabulary import TERMINATORS
from tests.block_bodies import body_of, branch, noop
from tests.oracle.builders import (
    access,
    block,
    call,
    constant,
    flow,
    function,
    jump,
    loop,
    memory_set,
    module,
    op,
    row,
    rows,
    symbolic,
)
from tests.oracle.calls import bare, in_blocks, kernel, one_call
from tests.single_pass import Json, refused, run_pass

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")

TWO = (block("b1", op("K1")), block("b2", op("K2")))


# N13: the block is split


def test_n13_the_block_is_split_around_the_call_site() -> None:
    document = in_blocks(*TWO, block("b3", op("K3")))
    rows(document)[:0] = [op("o")]
    rows(document).append(op("q"))
    document["functions"][0]["blocks"].append(block("Block2", op("y")))
    outcome = inline(document)
    assert list(flow(outcome.doc).items()) == [
        ("Block1", ["o", "p", "C_K1"]),
        ("C_b2", ["C_K2"]),
        ("C_b3", ["C_K3", "C_br_to_continuation"]),
        ("C_continuation", ["z", "q"]),
        ("Block2", ["y"]),
    ]
    assert (outcome.codes, outcome.doc["nki_functions"]) == ([], {"functions": []})
    assert row(outcome.doc, "q") == op("q")


def test_n13_nothing_before_and_nothing_behind() -> None:
    document = in_blocks(*TWO)
    rows(document)[:] = [call("C")]
    assert flow(inline(document).doc) == {
        "Block1": ["C_K1"],
        "C_b2": ["C_K2", "C_br_to_continuation"],
        "C_continuation": ["C_continuation_noop"],
    }


def test_n13_the_block_keeps_its_members_and_new_ones_have_theirs() -> None:
    document = in_blocks(
        block("b1", op("K1"), lost=1), {"zz": {"m": "x"}, **block("b2", op("K2"))}, block("b3", op("K3"))
    )
    caller = document["functions"][0]
    caller["blocks"] = [{"zz": [1], "instructions": rows(document), "name": "Block1", "aa": None}]
    blocks = inline(document).doc["functions"][0]["blocks"]
    assert next(iter(blocks[0].items())) == ("zz", [1])
    assert list(blocks[0]) == ["zz", "instructions", "name", "aa"]
    assert (list(blocks[1]), blocks[1]["zz"]) == (["zz", "name", "instructions"], {"m": "x"})
    assert list(blocks[2]) == ["name", "instructions"]
    assert list(blocks[3]) == ["instructions", "name"]


def test_n13_the_block_that_is_split_is_not_the_last() -> None:
    document = in_blocks(*TWO)
    document["functions"][0]["blocks"][:0] = [block("Block0", op("a"), call("B"))]
    assert flow(inline(document).doc) == {
        "Block0": ["a", "B_K1"],
        "B_b2": ["B_K2", "B_br_to_continuation"],
        "B_continuation": ["B_continuation_noop"],
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_K2", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }


def test_n13_in_functions_one_by_one() -> None:
    document = in_blocks(*TWO)
    document["functions"] += [function("f", [], op("a"), call("C"), op("b")), function("g", [], op("c"))]
    outcome = inline(document)
    split = {"C_b2": ["C_K2", "C_br_to_continuation"]}
    assert flow(outcome.doc) == {"Block1": ["p", "C_K1"], **split, "C_continuation": ["z"]}
    assert flow(outcome.doc, 1) == {"Block1": ["a", "C_K1"], **split, "C_continuation": ["b"]}
    assert flow(outcome.doc, 2) == {"Block1": ["c"]}


def test_n13_storage_and_binding_are_as_ever() -> None:
    callee = kernel(storage=[memory_set("t_set")])
    first, second = callee["blocks"][0]["instructions"]
    callee["blocks"] = [block("b1", first), block("b2", second)]
    outcome = inline(one_call(op("p"), callee=callee))
    assert flow(outcome.doc)["C_b2"] == ["C_K2", "C_br_to_continuation"]
    assert row(outcome.doc, "C_K1")["ins"] == [access("x", memsetref="x_set")]
    assert row(outcome.doc, "C_K1")["outs"] == [access("C:t")]
    assert (row(outcome.doc, "C_K2")["ins"], row(outcome.doc, "C_K2")["outs"]) == ([access("C:t")], [access("y")])


# N13: in the body of a loop


@pytest.mark.parametrize("opcode", ["Loop", "DynamicForLoop", "DoWhile"])
def test_n13_f07_in_the_block_list_of_a_loop(opcode: str) -> None:
    document = in_blocks(*TWO)
    nest = loop("L", "i", (0, 2, 1), op("a"), call("D"), op("b")) | {"opcode": opcode}
    if opcode != "Loop":
        axis_of = nest.pop("LoopAxis")
        if opcode == "DynamicForLoop":
            nest["DynamicForLoopAxis"] = {"name": "i"} | {k: constant(axis_of[k]) for k in ("lb", "ub", "stride")}
    nest["blocks"].append(block("late", op("y"), jump("J", "L_body")))
    rows(document)[1] = nest
    outcome = inline(document)
    assert flow(outcome.doc) == {"Block1": ["p", "L", "z"]}
    assert body_of(outcome.doc, "L") == {
        "L_body": ["a", "D_K1"],
        "D_b2": ["D_K2", "D_br_to_continuation"],
        "D_continuation": ["b"],
        "late": ["y", "J"],
    }
    made = row(outcome.doc, "L")["blocks"][1]["instructions"][1]
    assert made == branch("D_br_to_continuation", "D_continuation")


def test_n13_in_loops_of_loops_and_around_them() -> None:
    inner = loop("M", "j", (0, 2, 1), call("E"), op("c"))
    document = in_blocks(*TWO)
    rows(document).insert(2, loop("L", "i", (0, 2, 1), call("D"), inner))
    outcome = inline(document)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_K2", "C_br_to_continuation"],
        "C_continuation": ["L", "z"],
    }
    assert body_of(outcome.doc, "L") == {
        "L_body": ["D_K1"],
        "D_b2": ["D_K2", "D_br_to_continuation"],
        "D_continuation": ["M"],
    }
    nested = row(outcome.doc, "L")["blocks"][2]["instructions"][0]["blocks"]
    assert [[b["name"], *(i["name"] for i in b["instructions"])] for b in nested] == [
        ["M_body", "E_K1"],
        ["E_b2", "E_K2", "E_br_to_continuation"],
        ["E_continuation", "c"],
    ]


# N13: the entry


GOES_BACK = [
    (block("b1", op("K1"), jump("J", "b1")), block("b2")),
    (block("b1", op("K1")), block("b2", jump("J", "b1"))),
    (block("b1", op("K1")), block("b2", op("J", "CompareAndBranch", on_true="b1", on_false="b2"))),
    (block("b1", op("K1")), block("b2", op("J", "CompareAndBranch", on_true=None, on_false="b1"))),
    (block("b1", op("K1")), block("b2", loop("L", "i", (0, 1, 1), jump("J", "b1")))),
]


@pytest.mark.parametrize("blocks", GOES_BACK)
def test_n13_an_entry_to_which_something_branches_is_a_block_of_its_own(blocks: tuple[Json, ...]) -> None:
    outcome = inline(in_blocks(*blocks))
    made = flow(outcome.doc)
    assert list(made) == ["Block1", "C_b1", "C_b2", "C_continuation"]
    assert made["Block1"] == ["p", "C_br_to_entry"]
    assert made["C_b1"][0] == "C_K1"
    assert row(outcome.doc, "C_br_to_entry") == branch("C_br_to_entry", "C_b1")
    assert list(row(outcome.doc, "C_br_to_entry")) == sorted(branch("", ""))


@pytest.mark.parametrize(
    "instruction",
    [
        op("J", "BranchHint", associate_branch="K1"),
        op("J", "Call", target="b1", arguments={}),
        loop("L", "i", (0, 0, 1), jump("J", "b1")),
        jump("J", "b2"),
    ],
)
def test_n13_what_is_no_branch_to_the_entry(instruction: Json) -> None:
    document = in_blocks(block("b1", op("K1")), block("b2", instruction, op("K2")))
    document["functions"][0]["blocks"].append(block("b1", jump("elsewhere", "b1")))
    outcome = inline(document)
    assert list(flow(outcome.doc)) == ["Block1", "C_b2", "C_continuation", "b1"]
    assert flow(outcome.doc)["Block1"] == ["p", "C_K1"]
    assert row(outcome.doc, "elsewhere")["target"] == "b1"


def test_n12_n13_one_block_to_which_something_branches() -> None:
    outcome = inline(bare(op("K"), op("J", "CompareAndBranch", on_true="Block1", on_false=None), op("R", "Return")))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_Block1": ["C_K", "C_J", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }
    assert (row(outcome.doc, "C_J")["on_true"], row(outcome.doc, "C_J")["on_false"]) == ("C_Block1", None)


# N13: returns, and the end of the last block


def test_n13_a_return_before_the_end_of_one_block() -> None:
    outcome = inline(bare(op("K1"), op("R", "Return"), op("K2"), op("S", "Return")))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1", "C_br_to_continuation", "C_K2", "C_br_to_continuation.1"],
        "C_continuation": ["z"],
    }
    open_end = inline(bare(op("R", "Return"), op("K1")))
    assert flow(open_end.doc)["Block1"] == ["p", "C_br_to_continuation", "C_K1", "C_br_to_continuation.1"]
    assert row(open_end.doc, "C_br_to_continuation.1") == branch("C_br_to_continuation.1", "C_continuation")


def test_n13_a_return_becomes_a_branch_and_all_else_of_it_stays() -> None:
    operand = access("t", odd=1)
    returns = op(
        "R", "Return", engine="SP", ins=[operand], on_true=7, debug={"lineno": 3}, dependencies=[["K1", "Anti", "x"]]
    )
    callee = function("k", [memory_set("t_set")], blocks=[block("b1", op("K1")), block("b2", returns)])
    document = bare()
    document["nki_functions"]["functions"] = [callee]
    outcome = inline(document)
    made = row(outcome.doc, "C_br_to_continuation")
    assert made == returns | {
        "name": "C_br_to_continuation",
        "opcode": "UnconditionalBranch",
        "engine": "DVE",
        "ins": [access("C:t", odd=1)],
        "dependencies": [["C_K1", "Anti", "x"]],
        "target": "C_continuation",
    }
    assert list(made) == [*returns, "target"]


@pytest.mark.parametrize("written", ["text", {"deep": [1]}, None, "b1"])
def test_n13_a_target_that_a_return_has_is_replaced_where_it_stands(written: Any) -> None:
    returns = {"target": written, **op("R", "Return")}
    outcome = inline(in_blocks(block("b1", op("K1")), block("b2", returns)))
    made = row(outcome.doc, "C_br_to_continuation")
    assert list(made)[:6] == ["target", "name", "opcode", "engine", "ins", "outs"]
    assert made["target"] == "C_continuation"
    assert "C_br_to_entry" not in flow(outcome.doc)["Block1"]


def test_f6_what_a_return_gets_stands_in_its_place() -> None:
    ordered = {"aa": 0, "engine": "SP", "ins": [], "name": "R", "opcode": "Return", "outs": [], "zz": 0}
    outcome = inline(bare(ordered, op("K1")))
    assert list(row(outcome.doc, "C_br_to_continuation")) == sorted([*ordered, "target", "dependencies"])
    loose = {"zz": 0, "name": "R", "opcode": "Return", "engine": "SP", "ins": [], "outs": []}
    outcome = inline(bare(loose, op("K1")))
    assert list(row(outcome.doc, "C_br_to_continuation")) == [*loose, "dependencies", "target"]


ENDS = ["Terminator", "CompareAndBranch", "UnconditionalBranch", "Return", "Exit", "Break"]


@pytest.mark.parametrize("opcode", [*ENDS, "NoOp", "Call", "BranchHint", "Odd"])
def test_n13_f05_the_end_of_the_last_block(opcode: str) -> None:
    last = jump("K2", "b1x") if opcode == "UnconditionalBranch" else op("K2", opcode)
    outcome = inline(in_blocks(block("b1", op("K1")), block("b1x", op("K")), block("b2", last)))
    made = {"Return": ["C_br_to_continuation"]}.get(opcode, ["C_K2"])
    assert flow(outcome.doc)["C_b2"] == [*made, *([] if opcode in ENDS else ["C_br_to_continuation"])]
    assert len(TERMINATORS) == len(ENDS)


def test_n13_the_last_instruction_counts_not_one_before_it() -> None:
    outcome = inline(in_blocks(block("b1", op("K1")), block("b2", op("K2", "Exit"), op("K3"))))
    assert flow(outcome.doc)["C_b2"] == ["C_K2", "C_K3", "C_br_to_continuation"]


def test_n13_other_blocks_get_no_branch() -> None:
    blocks = [
        block("b1", op("K1")),
        block("b2", op("R", "Return")),
        block("b3", op("K3")),
        block("b4", jump("J", "b2")),
    ]
    outcome = inline(in_blocks(*blocks))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K1"],
        "C_b2": ["C_br_to_continuation"],
        "C_b3": ["C_K3"],
        "C_b4": ["C_J"],
        "C_continuation": ["z"],
    }


def test_n13_several_returns_go_to_the_one_continuation() -> None:
    test = op("K1", "CompareAndBranch", on_true="b2", on_false="b3")
    blocks = [block("b1", test), block("b2", op("R", "Return")), block("b3", op("S", "Return"))]
    outcome = inline(in_blocks(*blocks, dependencies=[]))
    for name in ("C_br_to_continuation", "C_br_to_continuation.1"):
        assert row(outcome.doc, name) == op(name, "UnconditionalBranch", engine="DVE", target="C_continuation")
    assert outcome.ir.branches["block_id"].to_list() == [1, 2, 3, 3]


@pytest.mark.parametrize("engine", ["Unassigned", "SP", "ALL", "Odd"])
def test_n13_new_rows_have_the_engine_of_the_call_site(engine: str) -> None:
    document = in_blocks(block("b1", op("K1")), block("b2"), block("b3", jump("J", "b1")), block("b4"), engine=engine)
    rows(document).pop()
    outcome = inline(document)
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_br_to_entry"],
        "C_b1": ["C_K1"],
        "C_b2": ["C_noop"],
        "C_b3": ["C_J"],
        "C_b4": ["C_br_to_continuation"],
        "C_continuation": ["C_continuation_noop"],
    }
    assert row(outcome.doc, "C_br_to_entry") == branch("C_br_to_entry", "C_b1", engine)
    assert row(outcome.doc, "C_br_to_continuation") == branch("C_br_to_continuation", "C_continuation", engine)
    for name in ("C_noop", "C_continuation_noop"):
        assert row(outcome.doc, name) == noop(name, engine)
        assert list(row(outcome.doc, name)) == sorted(noop(name))
    assert row(outcome.doc, "C_K1")["engine"] == "Pool"


# N13: where branches go


def test_n13_branches_inside_go_to_the_cloned_blocks() -> None:
    document = in_blocks(
        block("Block1", op("K1", "CompareAndBranch", on_true="Block3", on_false="Block2")),
        block("Block2", jump("K2", "Block3")),
        block("Block3", op("K3", "CompareAndBranch", on_true="Block2", on_false="Block3")),
    )
    document["functions"][0]["blocks"] += [block("Block2", op("x")), block("Block3", op("y"))]
    rows(document).append(call("D"))
    outcome = inline(document)
    for site in ("C", "D"):
        first, last = row(outcome.doc, f"{site}_K1"), row(outcome.doc, f"{site}_K3")
        assert (first["on_true"], first["on_false"]) == (f"{site}_Block3", f"{site}_Block2")
        assert row(outcome.doc, f"{site}_K2")["target"] == f"{site}_Block3"
        assert (last["on_true"], last["on_false"]) == (f"{site}_Block2", f"{site}_Block3")


def test_n13_branches_out_of_loops_of_the_body() -> None:
    nest = loop("L", "i", (0, 2, 1), op("K1", "CompareAndBranch", on_true="b2", on_false="b1x"))
    outcome = inline(in_blocks(block("b1", nest), block("b1x", op("K")), block("b2", op("K2"))))
    assert flow(outcome.doc)["Block1"] == ["p", "C_K1-0", "C_K1-1"]
    for name in ("C_K1-0", "C_K1-1"):
        assert (row(outcome.doc, name)["on_true"], row(outcome.doc, name)["on_false"]) == ("C_b2", "C_b1x")


def test_n13_f01_the_end_of_the_callers_block_moves_and_goes_where_it_went() -> None:
    document = in_blocks(*TWO)
    rows(document).append(jump("J", "B1"))
    document["functions"][0]["blocks"].append(block("B1", op("y", dependencies=["J", "z", "C", "p"])))
    outcome = inline(document)
    assert flow(outcome.doc)["C_continuation"] == ["z", "J"]
    assert row(outcome.doc, "J")["target"] == "B1"
    assert row(outcome.doc, "y")["dependencies"] == ["J", "z", "C_K1", "C_K2", "p"]


def test_n13_f04_branches_before_the_call_site_stay() -> None:
    document = in_blocks(*TWO)
    targets = [{"on_true": f"t{n}", "on_false": f"t{n + 1}"} for n in (0, 2)]
    rows(document)[:1] = [op(f"j{n}", "CompareAndBranch", **goes) for n, goes in enumerate(targets)]
    document["functions"][0]["blocks"] += [block(f"t{n}", op("t")) for n in range(4)]
    outcome = inline(document)
    assert flow(outcome.doc)["Block1"] == ["j0", "j1", "C_K1"]
    for n, goes in enumerate(targets):
        assert {k: row(outcome.doc, f"j{n}")[k] for k in goes} == goes


def test_n13_branches_elsewhere_that_named_the_block_still_do() -> None:
    document = in_blocks(*TWO)
    late = loop("L", "i", (0, 2, 1), jump("inside", "Block1"))
    rows(document).extend([jump("tail", "Block1"), late])
    other = op("other", "CompareAndBranch", on_true="Block1", on_false="Block2")
    document["functions"][0]["blocks"].append(block("Block2", other))
    outcome = inline(document)
    assert flow(outcome.doc)["C_continuation"] == ["z", "tail", "L"]
    assert row(outcome.doc, "tail")["target"] == "Block1"
    assert row(outcome.doc, "L")["blocks"][0]["instructions"][0]["target"] == "Block1"
    assert (row(outcome.doc, "other")["on_true"], row(outcome.doc, "other")["on_false"]) == ("Block1", "Block2")
    targets = outcome.ir.branches.join(outcome.ir.blocks, left_on="block_id", right_on="id")["name_right"]
    assert sorted(targets.to_list()) == ["Block1", "Block1", "Block1", "Block2", "C_continuation"]


@pytest.mark.parametrize("slot", ["target", "on_true", "on_false"])
def test_n13_r5_a_branch_of_the_body_that_leads_nowhere(slot: str) -> None:
    opcode = "UnconditionalBranch" if slot == "target" else "CompareAndBranch"
    document = in_blocks(block("b1", op("K1")), block("b2", op("K2", opcode, **{slot: "Block1"})))
    message = fault(document)
    assert (message.code, message.function, message.instruction) == ("unresolved_name", "k", "K2")
    assert "`Block1`" in message.message


# N13: blocks that would be empty


@pytest.mark.parametrize(
    ("first", "before", "there"),
    [
        (block("b1"), [op("p")], ["p"]),
        (block("b1"), [], ["C_noop"]),
        (block("b1", op("K1")), [], ["C_K1"]),
        (block("b1", loop("L", "i", (0, 0, 1), op("K1"))), [], ["C_noop"]),
    ],
)
def test_n13_an_entry_that_is_appended_and_may_be_empty(first: Json, before: list[Json], there: list[str]) -> None:
    document = in_blocks(first, block("b2", op("K2")))
    rows(document)[:1] = before
    outcome = inline(document)
    assert flow(outcome.doc) == {
        "Block1": there,
        "C_b2": ["C_K2", "C_br_to_continuation"],
        "C_continuation": ["z"],
    }


def test_n13_an_empty_entry_that_stands_by_itself() -> None:
    document = in_blocks(block("b1"), block("b2", jump("K", "b1")))
    del rows(document)[0]
    outcome = inline(document)
    assert flow(outcome.doc) == {
        "Block1": ["C_br_to_entry"],
        "C_b1": ["C_noop"],
        "C_b2": ["C_K"],
        "C_continuation": ["z"],
    }


def test_n13_empty_blocks_get_a_noop_and_the_last_one_its_branch() -> None:
    never = loop("L", "i", (3, 3, 1), op("N"))
    blocks = [block("b1"), block("b2"), block("b3", never), block("b4"), block("b5", op("K")), block("b6", never)]
    outcome = inline(in_blocks(*blocks))
    assert flow(outcome.doc) == {
        "Block1": ["p"],
        "C_b2": ["C_noop"],
        "C_b3": ["C_noop.1"],
        "C_b4": ["C_noop.2"],
        "C_b5": ["C_K"],
        "C_b6": ["C_br_to_continuation"],
        "C_continuation": ["z"],
    }


def test_n13_a_body_of_nothing_but_empty_blocks() -> None:
    document = in_blocks(block("b1"), block("b2"), block("b3"))
    rows(document)[:] = [call("C")]
    assert flow(inline(document).doc) == {
        "Block1": ["C_noop"],
        "C_b2": ["C_noop.1"],
        "C_b3": ["C_br_to_continuation"],
        "C_continuation": ["C_continuation_noop"],
    }


def test_n13_empty_blocks_of_the_caller_are_left_alone() -> None:
    document = in_blocks(*TWO)
    document["functions"][0]["blocks"].append(block("Block2"))
    document["functions"].append(function("f", []))
    outcome = inline(document)
    assert flow(outcome.doc)["Block2"] == []
    assert flow(outcome.doc, 1) == {"Block1": []}


@pytest.mark.parametrize("body", [[], [op("R", "Return")], [loop("L", "i", (0, 0, 1), op("K"))]])
def test_n12_n13_a_block_that_only_had_a_call_site_that_leaves_nothing(body: list[Json]) -> None:
    document = module(function("main", [], call("C")), kernels=[function("k", [], *body)])
    outcome = inline(document)
    assert flow(outcome.doc) == {"Block1": ["C_noop"]}
    assert row(outcome.doc, "C_noop") == noop("C_noop")
    rows(document).append(call("D"))
    assert flow(inline(document).doc) == {"Block1": ["D_noop"]}
    rows(document).insert(1, op("m"))
    assert flow(inline(document).doc) == {"Block1": ["m"]}


def test_n12_n13_a_callee_without_blocks() -> None:
    document = module(function("main", [], call("C")), kernels=[function("k", [], blocks=[])])
    assert flow(inline(document).doc) == {"Block1": ["C_noop"]}


def test_n13_the_loop_body_that_a_call_site_leaves_empty() -> None:
    document = bare(op("R", "Return"))
    rows(document)[1] = loop("L", "i", (0, 2, 1), call("D"))
    outcome = inline(document)
    assert body_of(outcome.doc, "L") == {"L_body": ["D_noop"]}


def test_n13_loops_of_a_body_are_unrolled_before_it_is_judged() -> None:
    returns = loop("L", "i", (0, 2, 1), op("K"), op("R", "Return"))
    outcome = inline(bare(returns))
    assert flow(outcome.doc) == {
        "Block1": ["p", "C_K-0", "C_br_to_continuation", "C_K-1", "C_br_to_continuation.1"],
        "C_continuation": ["z"],
    }
    returns["LoopAxis"]["ub"] = 1
    assert flow(inline(bare(returns)).doc) == {"Block1": ["p", "C_K-0", "z"]}
    returns["LoopAxis"]["ub"] = 0
    assert flow(inline(bare(returns)).doc) == {"Block1": ["p", "z"]}


def test_n13_u4_what_stands_in_later_blocks_is_made_canonical_too() -> None:
    nest = loop("L", "i", (0, 2, 1), op("K2", ins=[symbolic("t_set", constant(1), {"kind": "AffIVKind", "axis": "i"})]))
    callee = function("k", [memory_set("t_set")], blocks=[block("b1", op("K1")), block("b2", nest)])
    outcome = inline(module(function("main", [], call("C")), kernels=[callee]))
    assert flow(outcome.doc)["C_b2"] == ["C_K2-0", "C_K2-1", "C_br_to_continuation"]
    assert [row(outcome.doc, f"C_K2-{n}")["ins"][0]["offset"] for n in (0, 1)] == [16, 17]
