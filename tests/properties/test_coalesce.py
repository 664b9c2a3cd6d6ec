"""The pass `coalesce_multichannel_cc_ops` against the oracle, and batches against their modules one by one."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir.passes.base import STATUS
from arrowir.passes.coalesce_multichannel_cc_ops import CoalesceMultichannelCcOps
from arrowir.testing.assertions import assert_valid
from tests.oracle import run_coalesce
from tests.properties.channels import collectives
from tests.single_pass import frozen, read, written

# One number each: so many choices, drawn one by one, would be too much for Hypothesis.
drawn = st.integers(0, 2**32).map(lambda seed: collectives(Random(seed)))


def check_against_the_oracle(document: Any) -> str:
    ir = read(document)
    held = frozen(ir)
    result = CoalesceMultichannelCcOps()(ir)
    outcome = run_coalesce(document)
    assert_valid(result.ir)
    assert frozen(ir) == held
    assert [(m.code, m.compiler_code, m.message, m.function, m.block, m.instruction) for m in result.messages] == [
        (m.code, m.compiler_code, m.message, m.function, m.block, m.instruction) for m in outcome.diagnostics
    ]
    assert STATUS[int(result.codes[0])] == outcome.status
    after = result.ir.to_json(0)
    # Text, so that the order of members counts, and 1 is not 1.0.
    assert json.dumps(json.loads(after)) == json.dumps(outcome.doc)
    assert (outcome.status == "changed") == (after != written(document))
    return outcome.status


@settings(max_examples=50)
@given(drawn)
def test_drawn_documents(document: Any) -> None:
    check_against_the_oracle(document)


@pytest.mark.slow
@settings(max_examples=1500)
@given(drawn)
def test_many_drawn_documents(document: Any) -> None:
    check_against_the_oracle(document)


def test_every_outcome_and_code_is_drawn() -> None:
    outcomes = [run_coalesce(collectives(Random(seed))) for seed in range(250)]
    assert {outcome.status for outcome in outcomes} == {"changed", "unchanged", "failed"}
    found = {row.compiler_code for outcome in outcomes for row in outcome.diagnostics}
    assert found == {f"CCO{n:03}" for n in range(1, 11)}


@settings(max_examples=12)
@given(st.lists(drawn, min_size=2, max_size=5))
def test_o5_a_batch_is_its_modules_one_by_one(batch: list[Any]) -> None:
    ir = air.concat([read(document, f"m{n}") for n, document in enumerate(batch)])
    result = CoalesceMultichannelCcOps()(ir)
    assert_valid(result.ir)
    for module_id, document in enumerate(batch):
        alone = CoalesceMultichannelCcOps()(read(document))
        assert result.ir.to_json(module_id) == alone.ir.to_json(0)
        assert result.codes[module_id] == alone.codes[0]
        mine = [(m.compiler_code, m.message, m.instruction) for m in result.messages if m.module_id == module_id]
        assert mine == [(m.compiler_code, m.message, m.instruction) for m in alone.messages]


@settings(max_examples=50)
@given(drawn)
def test_what_has_been_merged_is_not_merged_again(document: Any) -> None:
    result = CoalesceMultichannelCcOps()(read(document))
    if STATUS[int(result.codes[0])] != "failed":
        assert CoalesceMultichannelCcOps()(result.ir).status.to_list() == ["unchanged"]
