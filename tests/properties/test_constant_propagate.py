"""The pass `constant_propagate` against the oracle, by execution, and what has to hold for whatever it is given."""

import json
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir.passes.base import STATUS
from arrowir.passes.constant_propagate import ConstantPropagate, Propagation, needs_propagation, propagate
from arrowir.passes.constants.code import Code
from arrowir.passes.constants.state import COPY, COPY_MEMSET, KEPT, MEMSET, REMOVED
from arrowir.testing.assertions import assert_valid
from arrowir.testing.checking import difference
from arrowir.testing.executable import Seeded
from arrowir.testing.foldable import FoldableModule
from arrowir.testing.strategies import documents, executable_documents, foldable_documents, inlinable_documents
from tests.oracle import run_constants, run_inline
from tests.single_pass import Json, frozen, read, written

relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


def foldable(seed: int, *, executable: bool = False, booleans: bool = False) -> Json:
    """A module by a seed: many times as quick as drawing one."""
    return FoldableModule(Seeded(seed), executable=executable, booleans=booleans).draw()


def check_against_the_oracle(document: Any, *, assume_finite: bool) -> str:
    ir = read(document)
    held = frozen(ir)
    result = ConstantPropagate(assume_finite=assume_finite)(ir)
    outcome = run_constants(document, assume_finite=assume_finite)
    assert STATUS[int(result.codes[0])] == outcome.status
    assert sorted((m.severity, m.code) for m in result.messages) == sorted(
        (d.severity, d.code) for d in outcome.diagnostics
    )
    after = result.ir.to_json(0)
    # Text, so that the order of members counts, and 1 is not 1.0.
    assert json.dumps(json.loads(after)) == json.dumps(outcome.doc), difference(json.loads(after), outcome.doc)
    if outcome.status == "failed":
        where = outcome.diagnostics[0]
        assert [(m.message, m.function, m.instruction) for m in result.messages] == [
            (where.message, where.function, where.instruction)
        ]
    assert_valid(result.ir)
    assert frozen(ir) == held
    assert (outcome.status == "changed") == (after != written(document))
    return outcome.status


@settings(relaxed, max_examples=20)
@given(foldable_documents(), st.booleans())
def test_c1_to_c5_agree_with_the_oracle(document: Json, assume_finite: bool) -> None:
    check_against_the_oracle(document, assume_finite=assume_finite)


def test_c1_to_c5_agree_with_the_oracle_on_many_modules() -> None:
    statuses = Counter(check_against_the_oracle(foldable(n), assume_finite=bool(n % 2)) for n in range(80))
    assert set(statuses) == {"changed", "unchanged", "failed"}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_c1_to_c5_agree_with_the_oracle_on_very_many_modules(part: int) -> None:
    for seed in range(1000 + part * 1000, 2000 + part * 1000):
        check_against_the_oracle(foldable(seed), assume_finite=bool(seed % 2))


@settings(relaxed, max_examples=8)
@given(
    st.one_of(inlinable_documents(multi_block=True, nested=True), executable_documents(), documents()), st.booleans()
)
def test_modules_of_other_passes_agree_with_the_oracle(document: Json, assume_finite: bool) -> None:
    check_against_the_oracle(document, assume_finite=assume_finite)


def check_inlining(document: Json, *, assume_finite: bool) -> str:
    result = air.passes.InlineNkiKernel(assume_finite=assume_finite)(read(document))
    outcome = run_inline(document, assume_finite=assume_finite)
    assert result.status[0] == outcome.status
    assert sorted((m.severity, m.code) for m in result.messages) == sorted(
        (d.severity, d.code) for d in outcome.diagnostics
    )
    after = json.loads(result.ir.to_json(0))
    assert json.dumps(after) == json.dumps(outcome.doc), difference(after, outcome.doc)
    assert_valid(result.ir)
    return outcome.status


def test_n3_inlining_with_constants_agrees_with_the_oracle() -> None:
    statuses = Counter(check_inlining(foldable(n), assume_finite=bool(n % 2)) for n in range(60))
    assert {"changed", "failed"} <= set(statuses)


@pytest.mark.slow
def test_n3_inlining_with_constants_agrees_with_the_oracle_on_many_modules() -> None:
    for seed in range(1000, 3000):
        check_inlining(foldable(seed), assume_finite=bool(seed % 2))


def test_modules_are_drawn_in_which_everything_happens() -> None:
    forms: Counter[int] = Counter()
    for seed in range(60):
        ir = read(foldable(seed))
        found = Propagation(Code(ir, np.ones(ir.count("functions"), bool)), assume_finite=True)
        forms.update(found.state.form.tolist())
    assert min(forms[form] for form in (KEPT, MEMSET, COPY, COPY_MEMSET, REMOVED)) > 0


# execution


def check_by_execution(document: Json, *, assume_finite: bool = False) -> str:
    before = read(document)
    result = ConstantPropagate(assume_finite=assume_finite)(before)
    found = air.equivalent(before, result.ir, trials=2)
    assert found.statuses[0] != "different", found
    return found.statuses[0]


def test_c2_c3_what_is_executed_stays_the_same() -> None:
    statuses = Counter(check_by_execution(foldable(seed, executable=True)) for seed in range(25))
    assert statuses["equal"] == 25, statuses


def test_c2_with_finite_inputs_what_is_executed_stays_the_same() -> None:
    documents = (foldable(seed, executable=True, booleans=True) for seed in range(20))
    statuses = Counter(check_by_execution(document, assume_finite=True) for document in documents)
    assert statuses["equal"] == 20, statuses


@pytest.mark.slow
def test_c2_c3_what_is_executed_stays_the_same_in_very_many_modules() -> None:
    for seed in range(1000, 1600):
        finite = bool(seed % 2)
        document = foldable(seed, executable=True, booleans=finite)
        assert check_by_execution(document, assume_finite=finite) == "equal"


@settings(relaxed, max_examples=8)
@given(foldable_documents(executable=True))
def test_c5_what_is_executed_stays_the_same_with_nan_and_infinity(document: Json) -> None:
    before = read(document)
    result = ConstantPropagate()(before)
    found = air.equivalent(before, result.ir, trials=2, nonfinite=True)
    assert found.statuses[0] != "different", found


@settings(relaxed, max_examples=6)
@given(executable_documents())
def test_programs_of_all_kinds_stay_the_same(document: Json) -> None:
    check_by_execution(document)


def test_n3_inlining_with_constants_keeps_what_is_executed() -> None:
    for seed in range(15):
        before = read(foldable(seed, executable=True))
        result = air.passes.InlineNkiKernel()(before)
        assert result.status[0] == "changed"
        assert air.equivalent(before, result.ir, trials=1).ok


# batches, copies


@settings(relaxed, max_examples=8)
@given(st.lists(st.integers(0, 5000), min_size=2, max_size=6), st.booleans())
def test_o5_a_batch_is_its_modules_one_by_one(seeds: list[int], assume_finite: bool) -> None:
    batch = [foldable(seed) for seed in seeds]
    step = ConstantPropagate(assume_finite=assume_finite)
    result = step(air.concat([read(document, f"m{n}") for n, document in enumerate(batch)]))
    assert_valid(result.ir)
    for module_id, document in enumerate(batch):
        alone = step(read(document))
        assert result.ir.to_json(module_id) == alone.ir.to_json(0)
        assert result.codes[module_id] == alone.codes[0]
        mine = [(m.code, m.message, m.instruction) for m in result.messages if m.module_id == module_id]
        assert mine == [(m.code, m.message, m.instruction) for m in alone.messages]


@settings(relaxed, max_examples=8)
@given(st.lists(st.integers(0, 5000), min_size=2, max_size=4), st.integers(0, 2**16))
def test_n3_some_functions_are_propagated_each_by_itself(seeds: list[int], mask: int) -> None:
    ir = air.concat([read(foldable(seed), f"m{n}") for n, seed in enumerate(seeds)])
    chosen = np.array([mask >> n & 1 for n in range(ir.count("functions"))], bool)
    made = propagate(ir, chosen)
    assert_valid(made.ir)
    needs = needs_propagation(ir, chosen)
    changed = {note.function_id for note in made.notes}
    assert set(np.flatnonzero(needs).tolist()) == changed | set(made.failures)
    for function in range(ir.count("functions")):
        one = np.zeros(len(chosen), bool)
        one[function] = chosen[function]
        alone = propagate(ir, one)
        rows = [
            each.ir.instructions.filter(each.ir.instructions["function_id"] == function)
            .select("name", "opcode", "extra")
            .rows()
            for each in (made, alone)
        ]
        assert rows[0] == rows[1]


@settings(relaxed, max_examples=12)
@given(foldable_documents())
def test_c4_a_second_run_finds_nothing(document: Json) -> None:
    result = ConstantPropagate()(read(document))
    if result.status[0] != "failed":
        again = ConstantPropagate()(read(json.loads(result.ir.to_json(0))))
        assert again.status[0] == "unchanged"
