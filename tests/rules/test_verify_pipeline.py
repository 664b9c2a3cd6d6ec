"""Rule P2: when the verifier runs in a pipeline, and what comes of an error that a pass brings in."""

import json
import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings

import arrowir as air
from arrowir.ir import IR
from arrowir.passes import verifying
from arrowir.testing.strategies import inlinable_documents, reservable_documents, unrollable_documents
from arrowir.verify import checking
from tests.single_pass import read
from tests.verified import Module, sb, sound

When = Literal["ends", "each"]
BOTH = pytest.mark.parametrize("when", ["ends", "each"])


def tile() -> Module:
    return sound("TensorCopy", [sb(128, 64)], [sb(128, 64)], engine="DVE")


def batch(*names: str) -> IR:
    return air.concat([read(tile().doc, name) for name in names])


def renamed(ir: IR, suffix: str, modules: list[int]) -> IR:
    """Append to the names of the instructions of some modules."""
    documents = [json.loads(ir.to_json(m)) for m in range(len(ir))]
    for m in modules:
        for row in documents[m]["functions"][0]["blocks"][0]["instructions"]:
            row["name"] += suffix
    return air.concat([read(d, name) for d, name in zip(documents, ir.modules["name"], strict=True)])


def label(ir: IR) -> IR:
    """A sound pass: it renames all instructions."""
    return renamed(ir, "_l", list(range(len(ir))))


def stray(ir: IR) -> IR:
    """A faulty pass: in module `b` every access begins one element later."""
    names = np.array(ir.modules["name"].to_list())
    operands = ir.tables["operands"]
    moved = operands["offset"] + (names[ir.array("operands", "module_id")] == "b")
    return ir.replace(operands=operands.replace(offset=moved))


def late(ir: IR) -> IR:
    """Another sound pass."""
    return renamed(ir, "_z", list(range(len(ir))))


def test_p2_further_errors_are_counted() -> None:
    texts = [verifying.refused(verifying.New(0, "X", "wrong", n, {}), batch("a"), "p").message for n in (1, 2, 1_003)]
    told = "the pass brings in an error: wrong"
    assert texts == [told, f"{told} (and 1 more error)", f"{told} (and 1,002 more errors)"]


@BOTH
def test_p2_an_error_that_a_pass_brings_in_fails_the_module_and_names_the_pass(when: When) -> None:
    ir = batch("a", "b", "c")
    result = air.run(ir, [label, stray, late], verify=when)
    assert result.status.to_list() == ["changed", "failed", "changed"]
    (row,) = result.diagnostics.filter(severity="error").rows(named=True)
    assert (row["module"], row["module_id"], row["pass"], row["code"]) == ("b", 1, "stray", "introduced_error")
    assert row["compiler_code"] == "IBIR158"
    assert "Access pattern out of bounds on instruction 'fill_in0_l'" in row["message"]
    assert "(and 3 more errors)" in row["message"]
    assert row["instruction"] == "fill_in0_l"
    # O2: it comes out as it went into that pass, and takes no further one.
    names = [set(result.ir.instructions.filter(module_id=m)["name"]) for m in range(3)]
    assert names == [{"fill_in0_l_z", "x_l_z", "sink_l_z"}, {"fill_in0_l", "x_l", "sink_l"}, names[0]]
    steps = result.steps.select("module", "pass", "status").rows()
    assert steps == [
        *(("a", name, status) for name, status in (("label", "changed"), ("stray", "unchanged"), ("late", "changed"))),
        *(("b", name, status) for name, status in (("label", "changed"), ("stray", "failed"))),
        *(("c", name, status) for name, status in (("label", "changed"), ("stray", "unchanged"), ("late", "changed"))),
    ]
    assert result.ir.modules["name"].to_list() == ["a", "b", "c"]


def forgetting(table: str, column: str) -> Callable[[IR], IR]:
    """Return a faulty pass: it takes away the first row that a column names."""

    def forget(ir: IR) -> IR:
        ids = ir.tables[table][column].copy()
        ids[np.flatnonzero(ids >= 0)[0]] = -1
        return ir.replace(**{table: ir.tables[table].replace(**{column: ids})})

    return forget


@BOTH
@pytest.mark.parametrize(
    ("file", "table", "column", "code"),
    [
        ("kernel_lowered", "branches", "block_id", "unresolved_block"),
        ("kernel_lowered", "dependencies", "on_instruction_id", "BIR014"),
        ("kernel_lowered", "operands", "register_id", "BIR016"),
        ("kernel_lowered", "references", "target_id", "BIR016"),
        ("loops", "references", "target_id", "BIR227"),
        ("tiny", "calls", "callee_id", "BIR205"),
    ],
)
def test_p2_a_pass_that_takes_away_what_is_named_is_found(
    when: When, file: str, table: str, column: str, code: str
) -> None:
    ir = air.read(f"data/generated/{file}.json")
    result = air.run(ir, [forgetting(table, column)], verify=when)
    (row,) = result.diagnostics.filter(severity="error").rows(named=True)
    assert (row["pass"], row["code"], row["compiler_code"]) == ("forget", "introduced_error", code)


@pytest.mark.parametrize(("table", "column"), [("branches", "block_id"), ("dependencies", "on_instruction_id")])
def test_p2_none_takes_what_names_nothing(table: str, column: str) -> None:
    """R7: where names repeat, what a step made is read back; that must not depend on the verifier."""
    assert air.run(air.read("data/generated/kernel_lowered.json"), [forgetting(table, column)], verify="none").ok


def test_p2_none_looks_at_nothing() -> None:
    result = air.run(batch("b"), [stray], verify="none")
    assert result.ok
    assert set(air.verify(result.ir)["rule"]) == {"IBIR158"}


def test_p2_ends_is_the_default() -> None:
    assert air.run(batch("b"), [stray]).status.to_list() == ["failed"]


@BOTH
def test_p2_what_was_wrong_before_fails_nothing(when: When) -> None:
    made = tile()
    made.x["ins"][0]["offset"] = 1
    result = air.run(read(made.doc), [label_nothing, "unroll"], verify=when)
    assert result.ok, result.diagnostics


def label_nothing(ir: IR) -> IR:
    """A pass that changes something beside the instructions."""
    documents = [json.loads(ir.to_json(m)) for m in range(len(ir))]
    for document in documents:
        document["attributes"]["seen"] = True
    return air.concat([read(d, name) for d, name in zip(documents, ir.modules["name"], strict=True)])


@BOTH
def test_p2_strict_raises_on_it(when: When) -> None:
    with pytest.raises(air.PassError, match="introduced_error"):
        air.run(batch("a", "b"), [stray], verify=when, strict=True)


def called() -> Any:
    """A call of a kernel that reads beyond a partition in its loop."""
    made = tile()
    made.x["ins"][0]["offset"] = 1
    kernel = {**made.main, "name": "k"}
    body = made.rows
    loop = {"name": "loop", "opcode": "Loop", "LoopAxis": {"name": "i", "lb": 0, "ub": 2, "stride": 1},
            "blocks": [{"name": "body", "instructions": body}]}  # fmt: skip
    kernel["blocks"] = [{"name": "b", "instructions": [loop]}]
    site = {"name": "call", "opcode": "NKIKernel", "engine": "Pool", "ins": [], "outs": [], "func": "k",
            "sb_buf_shape": [0, 0], "psum_buf_shape": [0, 0, 0]}  # fmt: skip
    main = {"name": "f", "allocations": [], "blocks": [{"name": "b", "instructions": [site]}]}
    return {**made.doc, "functions": [main], "nki_functions": {"functions": [kernel]}}


@BOTH
def test_p2_an_error_of_a_kernel_is_not_brought_in_by_inlining_it(when: When) -> None:
    ir = read(called())
    assert set(air.verify(ir).filter(severity="error")["rule"]) == {"IBIR158"}
    result = air.run(ir, verify=when)
    assert result.ok, result.diagnostics
    found = air.verify(result.ir).filter(severity="error")
    assert found.select("kernel", "original_name").unique().rows() == [("k", "x")]
    assert len(found) == 2  # two trips


@BOTH
def test_p2_an_error_in_a_loop_is_not_brought_in_by_unrolling_it(when: When) -> None:
    document = called()
    (kernel,) = document["nki_functions"]["functions"]
    ir = read({**document, "functions": [{**kernel, "name": "f"}], "nki_functions": {"functions": []}})
    result = air.run(ir, ["unroll"], verify=when)
    assert result.status.to_list() == ["changed"]
    assert set(air.verify(result.ir).filter(severity="error")["instruction"]) == {"x-0", "x-1"}


# -- what the passes of this library bring in ----


def check(document: Any, *passes: Any) -> None:
    """Assert that passes leave no name behind that nothing has; other rules look at what drawn modules make up."""
    ir = read(document)
    result = air.run(ir, passes, verify="none")
    before, after = (set(checking.identities(checking.find(each, "references"))) for each in (ir, result.ir))
    assert {(code, kernel, re.sub(r"-\d+$", "", name), slot) for code, kernel, name, slot in after} <= before | {
        (code, kernel, re.sub(r"-\d+$", "", name), slot) for code, kernel, name, slot in before
    }


@settings(max_examples=20)
@given(inlinable_documents())
def test_p2_inlining_leaves_no_name_behind(document: Any) -> None:
    check(document, "inline_nki_kernel")


@settings(max_examples=15)
@given(inlinable_documents(multi_block=True, nested=True))
def test_p2_inlining_blocks_and_nested_kernels_leaves_no_name_behind(document: Any) -> None:
    check(document, "inline_nki_kernel")


@settings(max_examples=20)
@given(unrollable_documents())
def test_p2_unrolling_leaves_no_name_behind(document: Any) -> None:
    check(document, "unroll")


@settings(max_examples=20)
@given(reservable_documents())
def test_p2_a_reservation_brings_in_no_error_but_overlaps(document: Any) -> None:
    ir = read(document)
    result = air.passes.runtime_memory_reservation(ir)
    new = verifying.introduced(ir, result.ir, np.flatnonzero(result.status == "changed"))
    # M8: what lies in the region is a warning of the pass, and an error of the verifier.
    assert {each.code for each in new} <= {"INLA001"}
