"""Faults that are put into the passes are caught: that is what the checks of the passes are worth."""

import json
from typing import Any

import pytest

import arrowir as air
from arrowir.ir import IR
from arrowir.passes.base import FAILED, PassResult
from arrowir.testing.assertions import assert_valid
from arrowir.testing.checking import difference
from arrowir.testing.executable import Seeded, document
from arrowir.testing.foldable import FoldableModule
from docs.generator.rules import RULES
from tests.faults.mutations import MUTATIONS, Mutation
from tests.oracle import run_constants, run_inline, run_reservation, run_unroll
from tests.single_pass import Json, read

pytestmark = pytest.mark.usefixtures("quiet")

MODULES = 35
PART = 7
FEWER = 14
FIRST = {"unroll": (30, 18, 2, 6, 0, 31, 10), "inline_nki_kernel": (2, 33, 1, 12, 3, 23, 42)}
"""Modules in which many faults show: they are looked at before the others."""
LEAST = 25

ORACLES = {
    "inline_nki_kernel": run_inline,
    "unroll": run_unroll,
    "runtime_memory_reservation": run_reservation,
    "constant_propagate": run_constants,
}


def documents_for(name: str) -> list[Json]:
    """The modules on which faults of a pass have to show."""
    first = FIRST.get(name, ())
    seeds = [*first, *(seed for seed in range(MODULES) if seed not in first)]
    if name == "constant_propagate":
        return [FoldableModule(Seeded(seed), executable=True).draw() for seed in seeds]
    return [document(seed, unrollable=name == "unroll") for seed in seeds]


@pytest.fixture(scope="module")
def documents() -> dict[str, list[Json]]:
    return {name: documents_for(name)[: FEWER if name == "runtime_memory_reservation" else None] for name in ORACLES}


@pytest.fixture(scope="module")
def batches(documents: dict[str, list[Json]]) -> dict[str, IR]:
    return {name: air.concat([read(each, f"m{k}") for k, each in enumerate(documents[name])]) for name in ORACLES}


def run(mutation: Mutation, ir: IR) -> PassResult:
    with mutation.applied():
        return air.passes.make(mutation.of)(ir)


def executed_differently(ir: IR, result: PassResult) -> str | None:
    """Execute module after module until one is different, and say what is."""
    for module_id in range(len(ir)):
        if result.codes[module_id] != FAILED:
            found = air.equivalent(ir, result.ir, trials=1, modules=[module_id])
            if found.statuses[module_id] == "different":
                return found.comparisons[0].reason
    return None


def differs_from_the_oracle(name: str, result: PassResult, documents: list[Json]) -> bool:
    oracle: Any = ORACLES[name]
    written = (json.loads(result.ir.to_json(module_id)) for module_id in range(len(result.ir)))
    return any(difference(found, oracle(each).doc) is not None for found, each in zip(written, documents, strict=False))


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.caught == "execution"], ids=lambda m: m.name)
def test_execution_shows_the_fault(mutation: Mutation, batches: dict[str, IR]) -> None:
    ir = batches[mutation.of]
    parts = (ir.select(range(first, min(first + PART, len(ir)))) for first in range(0, len(ir), PART))
    assert any(executed_differently(part, run(mutation, part)) for part in parts)


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.caught == "assert_valid"], ids=lambda m: m.name)
def test_the_check_of_tables_shows_the_fault(mutation: Mutation, batches: dict[str, IR]) -> None:
    result = run(mutation, batches[mutation.of])
    with pytest.raises(AssertionError):
        assert_valid(result.ir)


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.caught == "oracle"], ids=lambda m: m.name)
def test_execution_does_not_show_the_fault_and_the_oracle_does(
    mutation: Mutation, batches: dict[str, IR], documents: dict[str, list[Json]]
) -> None:
    ir = batches[mutation.of].select(range(FEWER))
    result = run(mutation, ir)
    assert_valid(result.ir)
    assert executed_differently(ir, result) is None
    assert differs_from_the_oracle(mutation.of, result, documents[mutation.of])


@pytest.mark.parametrize("name", ORACLES)
def test_without_a_fault_nothing_is_caught(name: str, batches: dict[str, IR], documents: dict[str, list[Json]]) -> None:
    ir = batches[name].select(range(min(len(batches[name]), 20)))
    result = air.passes.make(name)(ir)
    assert not (result.codes == FAILED).any()
    assert_valid(result.ir)
    assert air.equivalent(ir, result.ir, trials=1).ok
    assert not differs_from_the_oracle(name, result, documents[name])


def test_there_are_enough_faults_that_execution_shows() -> None:
    assert sum(m.caught == "execution" for m in MUTATIONS) >= LEAST
    assert len({m.name for m in MUTATIONS}) == len(MUTATIONS)
    assert [m.name for m in MUTATIONS if m.rule not in RULES] == []


def test_a_fault_is_gone_behind_its_test(batches: dict[str, IR]) -> None:
    mutation = next(m for m in MUTATIONS if m.name == "offsets_lost")
    ir = batches[mutation.of].select([0])
    assert executed_differently(ir, run(mutation, ir)) is not None
    assert executed_differently(ir, air.passes.make(mutation.of)(ir)) is None
