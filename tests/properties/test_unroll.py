"""The pass `unroll` against the oracle, and what has to hold for whatever it is given."""

import json
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir.ir import IR
from arrowir.passes.base import STATUS
from arrowir.passes.unroll import Unroll, expand, needs_unroll, predicted_rows
from arrowir.testing.assertions import assert_valid
from arrowir.testing.executable import document as executable
from arrowir.testing.strategies import faulty_unrollable_documents, inlinable_documents, unrollable_documents
from tests.oracle import run_unroll
from tests.properties.nests import nest
from tests.single_pass import frozen, read, written

relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])

# One number each: so many choices, drawn one by one, would be too much for Hypothesis.
nests = st.integers(0, 2**32).map(lambda seed: nest(Random(seed)))
branching = st.integers(0, 2**32).map(lambda seed: executable(seed, lowerable=True))
loops_of_all_kinds = st.integers(0, 2**32).map(executable)
faulty = faulty_unrollable_documents().map(lambda pair: pair[0])
anything = st.one_of(unrollable_documents(), nests, branching, loops_of_all_kinds, faulty)


def check_against_the_oracle(document: Any, shard_id: int) -> None:
    ir = read(document)
    held = frozen(ir)
    result = Unroll(shard_id=shard_id)(ir)
    outcome = run_unroll(document, shard_id=shard_id)
    assert {(m.severity, m.code) for m in result.messages} == outcome.codes()
    assert STATUS[int(result.codes[0])] == outcome.status
    after = result.ir.to_json(0)
    # Text, so that the order of members counts, and 1 is not 1.0.
    assert json.dumps(json.loads(after)) == json.dumps(outcome.doc)
    assert_valid(result.ir)
    assert frozen(ir) == held
    assert (outcome.status == "changed") == (after != written(document))


@settings(relaxed, max_examples=100)
@given(unrollable_documents(), st.integers(0, 3))
def test_sound_documents(document: Any, shard_id: int) -> None:
    check_against_the_oracle(document, shard_id)


@settings(relaxed, max_examples=100)
@given(nests, st.integers(0, 3))
def test_dense_nests(document: Any, shard_id: int) -> None:
    check_against_the_oracle(document, shard_id)


@settings(relaxed, max_examples=60)
@given(st.one_of(branching, loops_of_all_kinds), st.integers(0, 3))
def test_loops_that_become_branches(document: Any, shard_id: int) -> None:
    check_against_the_oracle(document, shard_id)


@relaxed
@given(faulty_unrollable_documents())
def test_faulty_documents(pair: tuple[Any, str]) -> None:
    check_against_the_oracle(pair[0], 0)


@settings(relaxed, max_examples=25)
@given(inlinable_documents())
def test_kernels_and_call_sites(document: Any) -> None:
    check_against_the_oracle(document, 0)


def batch_of(batch: list[Any]) -> IR:
    return air.concat([read(document, f"m{n}") for n, document in enumerate(batch)])


@settings(relaxed, max_examples=25)
@given(st.lists(anything, min_size=2, max_size=5))
def test_o5_a_batch_is_its_modules_one_by_one(batch: list[Any]) -> None:
    result = Unroll()(batch_of(batch))
    assert_valid(result.ir)
    for module_id, document in enumerate(batch):
        alone = Unroll()(read(document))
        assert result.ir.to_json(module_id) == alone.ir.to_json(0)
        assert result.codes[module_id] == alone.codes[0]
        mine = [(m.code, m.message, m.instruction) for m in result.messages if m.module_id == module_id]
        assert mine == [(m.code, m.message, m.instruction) for m in alone.messages]


@settings(relaxed, max_examples=40)
@given(anything)
def test_o6_predicted_rows_are_those_that_come(document: Any) -> None:
    ir = read(document)
    predicted, result = predicted_rows(ir), Unroll()(ir)
    if STATUS[int(result.codes[0])] != "failed":
        function = result.ir.array("instructions", "function_id")
        assert np.bincount(function[function >= 0], minlength=len(predicted)).tolist() == predicted.tolist()


@settings(relaxed, max_examples=40)
@given(st.lists(anything, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_expand_does_to_some_functions_what_the_pass_does(batch: list[Any], random: Random) -> None:
    ir = batch_of(batch)
    chosen = np.array([random.random() < 0.5 for _ in range(ir.count("functions"))], bool)
    expansion = expand(ir, chosen)
    assert_valid(expansion.ir)
    needs = needs_unroll(ir)
    assert all(chosen[function] and needs[function] for function in expansion.failures)
    all_of_them = expand(ir, np.ones(len(chosen), bool))
    first = ir.array("functions", "module_id").searchsorted(np.arange(len(ir)))
    for module_id in range(len(ir)):
        before, whole, some = (json.loads(each.to_json(module_id)) for each in (ir, all_of_them.ir, expansion.ir))
        functions = zip(functions_of(before), functions_of(whole), functions_of(some), strict=True)
        for function, (old, new, made) in enumerate(functions, int(first[module_id])):
            assert made == (new if chosen[function] else old)
            assert needs[function] or new == old


def functions_of(document: Any) -> list[Any]:
    kernels = document.get("nki_functions") or []
    return [*document["functions"], *(kernels["functions"] if isinstance(kernels, dict) else kernels)]
