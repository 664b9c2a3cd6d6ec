"""Rules R6, N16, N18, N19, O6 and O7 where bodies of several blocks are inlined: names, records, sizes."""

import logging
from functools import partial

import pytest

from arrowir.passes import inline_nki_kernel
from tests.block_bodies import around, body_of, branch, edges, many, three
from tests.oracle.builders import access, block, call, flow, function, jump, loop, memory_set, module, op, row, rows
from tests.oracle.calls import bare, formals, in_blocks, one_call
from tests.single_pass import Json, refused, run_pass

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")


# R6: names, in the order of the rows of the result


def listed(document: Json) -> list[tuple[str, list[str]]]:
    blocks = document["functions"][0]["blocks"]
    return [(each["name"], [i["name"] for i in each["instructions"]]) for each in blocks]


def test_r6_names_that_are_taken_and_names_that_are_given() -> None:
    document = around(
        block("continuation", op("K1")), block("continuation", op("K2")), block("b3", op("R", "Return")), block("b4")
    )
    document["functions"][0]["blocks"].append(block("C_b3", op("C_br_to_continuation"), op("C_b4")))
    document["functions"][0]["blocks"].append(block("C_continuation.1"))
    outcome = inline(document)
    assert listed(outcome.doc) == [
        ("Block1", ["p", "C_K1"]),
        ("C_continuation", ["C_K2"]),
        ("C_b3.1", ["C_br_to_continuation.1"]),
        ("C_b4", ["C_br_to_continuation.2"]),
        ("C_continuation.2", ["z"]),
        ("C_b3", ["C_br_to_continuation", "C_b4"]),
        ("C_continuation.1", []),
    ]
    for number in (1, 2):
        assert row(outcome.doc, f"C_br_to_continuation.{number}")["target"] == "C_continuation.2"


def test_r6_blocks_and_instructions_are_spaces_of_their_own() -> None:
    document = around(block("b1", op("b2")), block("b2", op("continuation")))
    document["functions"][0]["blocks"].append(block("C_br_to_continuation", op("y")))
    assert listed(inline(document).doc) == [
        ("Block1", ["p", "C_b2"]),
        ("C_b2", ["C_continuation", "C_br_to_continuation"]),
        ("C_continuation", ["z"]),
        ("C_br_to_continuation", ["y"]),
    ]


def test_r6_clones_and_helpers_are_named_in_row_order() -> None:
    document = around(
        block("b1", op("noop"), op("br_to_entry")),
        block("b2"),
        block("b3", op("noop"), op("br_to_continuation"), op("continuation_noop")),
        block("b4", jump("J", "b1")),
        block("b5"),
    )
    rows(document).pop()
    assert [name for _, found in listed(inline(document).doc) for name in found] == [
        "p",
        "C_br_to_entry",
        "C_noop",
        "C_br_to_entry.1",
        "C_noop.1",
        "C_noop.2",
        "C_br_to_continuation",
        "C_continuation_noop",
        "C_J",
        "C_br_to_continuation.1",
        "C_continuation_noop.1",
    ]


def test_r6_start_and_done_are_named_in_row_order() -> None:
    body = (block("b1", op("done"), op("start"), *many(4)), block("b2", *many(4, 4), op("E", "Exit")))
    outcome = inline(around(*body, of={"dependencies": ["p", "p"]}, on={"dependencies": ["C"]}))
    assert [name for _, found in listed(outcome.doc) for name in found] == [
        *("p", "C_start", "C_done", "C_start.1", "C_K0", "C_K1", "C_K2", "C_K3"),
        *("C_K4", "C_K5", "C_K6", "C_K7", "C_done.1", "C_E", "z"),
    ]
    assert edges(outcome, "z") == {"dependencies": ["C_done.1"]}


def test_r6_rows_of_the_function_come_before_those_of_its_loops() -> None:
    document = around(block("b1", op("K1")), block("b2", op("K2")))
    rows(document)[0] = loop("L", "i", (0, 2, 1), call("C"), op("y"))
    outcome = inline(document)
    assert listed(outcome.doc) == [
        ("Block1", ["L", "C_K1"]),
        ("C_b2", ["C_K2", "C_br_to_continuation"]),
        ("C_continuation", ["z"]),
    ]
    assert body_of(outcome.doc, "L") == {
        "L_body": ["C_K1.1"],
        "C_b2.1": ["C_K2.1", "C_br_to_continuation.1"],
        "C_continuation.1": ["y"],
    }
    inner = row(outcome.doc, "L")["blocks"][1]["instructions"][1]
    assert inner == branch("C_br_to_continuation.1", "C_continuation.1")


def test_r6_call_sites_of_one_name() -> None:
    document = around(block("b1", op("K1")), block("b2", jump("K2", "b2")))
    rows(document)[2] = call("C")
    outcome = inline(document)
    assert listed(outcome.doc) == [
        ("Block1", ["p", "C_K1"]),
        ("C_b2", ["C_K2"]),
        ("C_continuation", ["C_K1.1"]),
        ("C_b2.1", ["C_K2.1"]),
        ("C_continuation.1", ["C_continuation_noop"]),
    ]
    assert (row(outcome.doc, "C_K2")["target"], row(outcome.doc, "C_K2.1")["target"]) == ("C_b2", "C_b2.1")


# N16: provenance


def test_n16_of_instructions_in_several_blocks() -> None:
    document = around(block("b1", op("K1"), jump("J", "b1")), block("b2"), block("b3", op("R", "Return"), op("K2")))
    rows(document).pop()
    outcome = inline(document)
    found = outcome.ir.instructions.select("name", "original_name", "kernel", "depth", "call_chain_id").rows()
    assert found == [
        ("p", None, None, 0, None),
        ("C_br_to_entry", None, None, 0, None),
        ("C_K1", "K1", "k", 1, 0),
        ("C_J", "J", "k", 1, 0),
        ("C_noop", None, None, 0, None),
        ("C_br_to_continuation", "R", "k", 1, 0),
        ("C_K2", "K2", "k", 1, 0),
        ("C_br_to_continuation.1", None, None, 0, None),
        ("C_continuation_noop", None, None, 0, None),
    ]
    assert outcome.ir.call_chains.select("name", "parent_id", "kernel").rows() == [("C", None, "k")]


def test_n16_of_blocks() -> None:
    document = around(block("b1", op("K1")), block("b2", jump("J", "b2")), block("b3", op("K")))
    rows(document).append(call("D"))
    outcome = inline(document)
    assert outcome.ir.blocks.select("name", "original_name", "call_chain_id").rows() == [
        ("Block1", None, None),
        ("C_b2", "b2", 0),
        ("C_b3", "b3", 0),
        ("C_continuation", None, None),
        ("D_b2", "b2", 1),
        ("D_b3", "b3", 1),
        ("D_continuation", None, None),
    ]


def test_n16_of_rows_that_move() -> None:
    document = three([op("K1")], [op("K2")])
    document["nki_functions"]["functions"].append(function("one", [], op("M")))
    rows(document)[4] = call("E", "one", is_allocated=True)
    first = inline(document, allocated=True)
    assert flow(first.doc) == {"Block1": ["a", "C", "b", "D", "E_M"]}
    second = inline_nki_kernel(first.ir).ir
    found = second.instructions.select("name", "original_name", "kernel", "block_id").rows()
    assert found[-2:] == [("D_br_to_continuation", None, None, 3), ("E_M", "M", "one", 4)]


# N19, O6, O7


def test_n19_an_output_that_a_later_block_writes() -> None:
    def callee(*last: Json) -> Json:
        return function("k", [*formals(), memory_set("t_set")], blocks=[block("b1", op("K1")), block("b2", *last)])

    assert inline(one_call(callee=callee(op("K2", outs=[access("c")])))).codes == []
    outcome = inline(one_call(callee=callee(op("K2", outs=[access("t")]))))
    assert outcome.codes == [("warning", "output_not_written")]


@pytest.mark.parametrize(
    ("document", "size"),
    [
        # p and z, the clones, and the body
        (in_blocks(block("b1", op("K1")), block("b2", op("K2"))), 2 + 2 + 2),
        (in_blocks(block("b1", op("K1")), block("b2", op("R", "Return"))), 2 + 2 + 2),
        (in_blocks(block("b1", jump("J", "b1")), block("b2")), 2 + 1 + 1),
        (in_blocks(block("b1"), block("b2"), block("b3")), 2),
        (in_blocks(block("b1", loop("L", "i", (0, 4, 1), op("K"))), block("b2", op("K2"))), 2 + 5 + 5),
        (bare(op("R", "Return"), op("K"), op("S", "Return")), 2 + 3 + 3),
        (bare(op("K"), jump("J", "Block1"), op("S", "Return")), 2 + 3 + 3),
        (bare(op("K"), op("S", "Return")), 2 + 1 + 2),
        (bare(loop("L", "i", (0, 1, 1), op("K"), op("R", "Return"))), 2 + 1 + 2),
        (bare(loop("L", "i", (0, 2, 1), op("K"), op("R", "Return"))), 2 + 4 + 4),
        # a block that is left empty has one NoOp
        (module(function("main", [], call("C")), kernels=[function("k", [])]), 1),
        (module(function("main", [], call("C"), call("D")), kernels=[function("k", [])]), 1),
        (module(function("main", [], call("C")), kernels=[function("k", [], op("R", "Return"))]), 1 + 1),
    ],
)
def test_o6_rows_of_bodies_of_several_blocks(document: Json, size: int) -> None:
    assert inline(document, max_instructions=size).status == "changed"
    if size > 1:
        message = fault(document, max_instructions=size - 1)
        assert message.code == "too_many_instructions"
        assert f"{size:,} instructions" in message.message


def test_o7_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    document = around(block("b1", op("K1")), block("b2", op("K2")), of={"unroll_dependencies": ["p"]})
    with caplog.at_level(logging.INFO, "arrowir.passes.inline_nki_kernel"):
        inline(document)
    assert [r.getMessage() for r in caplog.records] == [
        "Found InstNKIKernel: C",
        "dropping func k",
        "adding unroll dep from C_K1 to p",
        "adding unroll dep from C_K2 to p",
    ]


def test_n18_all_else_stays() -> None:
    document = around(block("b1", op("K1")), block("b2", op("K2")))
    document["zz"] = {"u": None}
    document["functions"][0]["x"] = [1.0, 1, True]
    document["functions"][0]["blocks"].insert(0, {"zz": 1, **block("first", op("C", zz=None))})
    document["functions"].insert(0, function("f", [memory_set("q_set")], op("x", odd={"a": []}), jump("J", "Block1")))
    outcome = inline(document)
    expected = document | {"functions": list(document["functions"]), "nki_functions": {"functions": []}}
    made = outcome.doc["functions"][1]
    assert made["blocks"][0] == document["functions"][1]["blocks"][0]
    expected["functions"][1] = document["functions"][1] | {"blocks": made["blocks"]}
    assert outcome.doc == expected
    assert list(outcome.doc) == list(document)


def test_n16_a_continuation_has_no_provenance_though_nothing_else_was_made() -> None:
    """The body's open ends are all branches of its own, so that closing it makes no instruction."""
    document = in_blocks(block("b1", op("J", "UnconditionalBranch", target="b2")), block("b2", op("R", "Return")))
    blocks = inline(document).ir.blocks
    kept = blocks.filter(blocks["name"].str.ends_with("_continuation"))
    assert kept["original_name"].to_list() == [None]
    assert kept["call_chain_id"].to_list() == [None]


def test_n10_n13_what_closes_a_body_keeps_all_opt_in_bits() -> None:
    document = in_blocks(block("b1", op("J", "UnconditionalBranch", target="b2")), block("b2", op("K")))
    rows = inline(document).ir.instructions
    masks = dict(zip(rows["name"].to_list(), rows["optin_mask"].to_list(), strict=True))
    assert {name: mask for name, mask in masks.items() if name.startswith("C_")} == {
        "C_J": 3,
        "C_K": 3,
        "C_br_to_continuation": 15,
    }
