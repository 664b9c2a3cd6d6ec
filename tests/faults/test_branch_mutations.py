"""Faults in how loops become branches are caught."""

import json

import pytest

import arrowir as air
from arrowir.ir import IR
from arrowir.passes.base import FAILED, PassResult
from arrowir.testing.assertions import assert_valid
from arrowir.testing.executable import document
from docs.generator.rules import RULES
from tests.faults.branch_mutations import BRANCH_MUTATIONS
from tests.faults.mutations import MUTATIONS, Mutation
from tests.oracle import run_unroll
from tests.single_pass import Json, read

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = (*range(46), 62, 80)
"""Modules on which the faults have to show; the last ones have a `DoWhile` that does."""
MODULES = len(SEEDS)
PART = 8
FEWER = 16


@pytest.fixture(scope="module")
def documents() -> list[Json]:
    return [document(seed, lowerable=True, calls=False) for seed in SEEDS]


@pytest.fixture(scope="module")
def batch(documents: list[Json]) -> IR:
    return air.concat([read(each, f"m{number}") for number, each in enumerate(documents)])


def run(mutation: Mutation, ir: IR) -> PassResult:
    with mutation.applied():
        return air.passes.unroll(ir)


def executed_differently(ir: IR, result: PassResult) -> bool:
    good = [module_id for module_id in range(len(ir)) if result.codes[module_id] != FAILED]
    found = air.equivalent(ir, result.ir, trials=1, modules=good, max_steps=20_000)
    return "different" in found.statuses.values()


@pytest.mark.parametrize("mutation", [m for m in BRANCH_MUTATIONS if m.caught == "execution"], ids=lambda m: m.name)
def test_execution_shows_the_fault(mutation: Mutation, batch: IR) -> None:
    parts = (batch.select(range(first, first + PART)) for first in range(0, MODULES, PART))
    assert any(executed_differently(part, run(mutation, part)) for part in parts)


@pytest.mark.parametrize("mutation", [m for m in BRANCH_MUTATIONS if m.caught == "oracle"], ids=lambda m: m.name)
def test_execution_does_not_show_the_fault_and_the_oracle_does(
    mutation: Mutation, batch: IR, documents: list[Json]
) -> None:
    ir = batch.select(range(FEWER))
    result = run(mutation, ir)
    assert_valid(result.ir)
    assert not executed_differently(ir, result)
    written = (json.loads(result.ir.to_json(module_id)) for module_id in range(FEWER))
    assert any(found != run_unroll(each).doc for found, each in zip(written, documents, strict=False))


def test_without_a_fault_nothing_is_caught(batch: IR, documents: list[Json]) -> None:
    ir = batch.select(range(FEWER))
    result = air.passes.unroll(ir)
    assert not (result.codes == FAILED).any()
    assert not executed_differently(ir, result)
    for module_id in range(FEWER):
        assert json.loads(result.ir.to_json(module_id)) == run_unroll(documents[module_id]).doc


def test_faults_have_names_and_rules() -> None:
    assert [m.name for m in BRANCH_MUTATIONS if m.rule not in RULES] == []
    names = [m.name for m in (*MUTATIONS, *BRANCH_MUTATIONS)]
    assert len(set(names)) == len(names)
