"""Passes keep what modules compute: each is executed before and after, on the same inputs."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import arrowir as air
from arrowir.ir import IR
from arrowir.passes.base import CHANGED
from arrowir.testing.assertions import assert_valid
from arrowir.testing.checking import problems
from arrowir.testing.executable import document
from arrowir.testing.strategies import executable_documents
from tests.single_pass import Json, read, written

Passes = list[Any] | None

anything = {"unrollable": False}
unrollable = {"unrollable": True}
lowerable = {"lowerable": True}

RUNS: dict[str, tuple[Passes, dict[str, bool]]] = {
    "runtime_memory_reservation": (["runtime_memory_reservation"], anything),
    "unroll": (["unroll"], unrollable),
    "inline": ([air.passes.InlineNkiKernel(allocated=None)], anything),
    "inline allocated": ([air.passes.InlineNkiKernel(allocated=True)], anything),
    "inline unallocated": ([air.passes.InlineNkiKernel(allocated=False)], anything),
    "default": (None, anything),
    "unroll, then inline": (["unroll", air.passes.InlineNkiKernel(allocated=None)], unrollable),
    "reserve, unroll, inline": (
        ["runtime_memory_reservation", "unroll", air.passes.InlineNkiKernel(allocated=None)],
        unrollable,
    ),
    "unroll into branches": (["unroll"], lowerable),
    "inline loops of branches": ([air.passes.InlineNkiKernel(allocated=None)], lowerable),
    "unroll into branches, then inline": (["unroll", air.passes.InlineNkiKernel(allocated=None)], lowerable),
}
"""Pipelines, and what the modules are like that they are run on."""

PLAIN = 24
"""Modules for each of them; several hundred in all."""
AT_LENGTH = 500
"""The same at length: several thousand in all."""
CHUNK = 100


def batch(first: int, count: int, shape: dict[str, bool]) -> IR:
    return air.concat([read(document(seed, **shape), f"seed{seed}") for seed in range(first, first + count)])


counts = Counter[str]()


@pytest.fixture(scope="module", autouse=True)
def told(report: Callable[[str], None]) -> Iterator[None]:
    """Show how much has been compared."""
    yield
    if counts:
        report(
            f"{counts['modules']:,} modules, {counts['changed']:,} of them changed by the passes, compute the same "
            f"before and after: {counts['executions']:,} executions of {counts['instructions']:,} instructions"
        )


def check(ir: IR, passes: Passes, trials: int = 1) -> None:
    """Run passes on modules that can be executed; none is refused, and all compute what they did."""
    result = air.run(ir, passes, check=trials, verify="none")  # they run, and are not all laid out as a device wants
    assert [str(m) for m in result.messages if m.severity == "error" or m.code == "not_executable"] == []
    assert set(result.checks.statuses.values()) == {"equal"}
    assert_valid(result.ir)
    check_text(ir, result.ir, [m.module_id for m in result.messages if m.code == "rebinding_name"])
    steps = sum((c.steps_before or 0) + (c.steps_after or 0) for c in result.checks.comparisons)
    changed = int((result.codes == CHANGED).sum())
    counts.update(modules=len(ir), executions=2 * trials * len(ir), changed=changed, instructions=steps)


def check_text(before: IR, after: IR, rebound: list[int | None]) -> None:
    """Compare some modules with what is read back from JSON, where every name means what it meant."""
    some = [m for m in range(0, len(before), 8) if m not in rebound]
    if some:
        again = air.concat([air.read_json(after.to_json(m), name=f"read back {m}") for m in some])
        found = air.equivalent(before.select(some), again, trials=1, seed=1)
        assert found.ok, found


@pytest.mark.parametrize("name", RUNS)
def test_modules_compute_what_they_did(name: str) -> None:
    passes, shape = RUNS[name]
    check(batch(1000 * list(RUNS).index(name), PLAIN, shape), passes)


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("part", range(AT_LENGTH // CHUNK))
def test_modules_compute_what_they_did_at_length(name: str, part: int) -> None:
    passes, shape = RUNS[name]
    first = 1_000_000 + 100_000 * list(RUNS).index(name) + CHUNK * part
    check(batch(first, CHUNK, shape), passes, trials=2)


few = settings(
    max_examples=10 if settings.default.max_examples <= 50 else 100,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@given(executable_documents())
@few
def test_drawn_modules_are_sound_and_compute_what_they_did(drawn: Json) -> None:
    assert problems(drawn) == []
    check(read(drawn), [air.passes.InlineNkiKernel(allocated=None)])


@given(executable_documents(unrollable=True))
@few
def test_drawn_loops_are_sound_and_compute_what_they_did(drawn: Json) -> None:
    assert problems(drawn) == []
    check(read(drawn), ["unroll"])


@given(executable_documents(lowerable=True))
@few
def test_drawn_loops_that_become_branches_compute_what_they_did(drawn: Json) -> None:
    assert problems(drawn) == []
    check(read(drawn), ["unroll"])
    check(read(drawn), [air.passes.InlineNkiKernel(allocated=None)])


def test_u5_the_shard_of_the_passes_is_that_of_the_execution() -> None:
    ir = batch(9010, 6, unrollable)  # the results of one of them depend on the shard
    passes = ["unroll", air.passes.InlineNkiKernel(allocated=None)]
    options = {"unroll": {"shard_id": 3}, "inline_nki_kernel": {"shard_id": 3}}
    result = air.run(ir, passes, options=options, check=1, verify="none")
    assert result.ok
    assert result.checks.ok
    # with another one some modules compute something else, so the comparison does look at it
    assert "different" in air.equivalent(ir, result.ir, trials=1, shard_id=0).statuses.values()
    with pytest.raises(air.OptionError, match="different shards"):
        air.run(ir, passes, options={"unroll": {"shard_id": 3}}, check=1)


def test_the_same_seed_is_the_same_module() -> None:
    assert written(document(5)) == written(document(5))
    assert json.dumps(document(5)) != json.dumps(document(6))
