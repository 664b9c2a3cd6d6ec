"""Inlining and reservation on generated modules: against a second implementation, alone and in batches."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir import runs
from arrowir.ir import IR
from arrowir.passes.base import STATUS, Pass, PassResult
from arrowir.testing.assertions import assert_valid
from arrowir.testing.checking import difference
from arrowir.testing.executable import document as executable
from arrowir.testing.strategies import faulty_inlinable_documents, inlinable_documents, reservable_documents
from arrowir_kernels import jit
from tests.oracle import Outcome, Provenance, run_inline, run_reservation
from tests.single_pass import Json, frozen, read, written

few = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
fewer = settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow])
most = settings(max_examples=3000, suppress_health_check=[HealthCheck.too_slow])

positions = st.sampled_from([None, None, True, False])
plain_documents = inlinable_documents()
# Kernels of several blocks that call each other; mixed with the plain ones, in which less meets less.
large_documents = inlinable_documents(multi_block=True, nested=True)
call_documents = st.one_of(plain_documents, large_documents)
branching_documents = st.integers(0, 2**32).map(lambda seed: executable(seed, lowerable=True))
faulty_pairs = st.one_of(faulty_inlinable_documents(), faulty_inlinable_documents(multi_block=True, nested=True))
call_modules = st.one_of(call_documents, faulty_pairs.map(lambda pair: pair[0]))
modules = st.one_of(call_modules, call_documents, reservable_documents())

# Columns by which rows name other rows, and the tables that they stand in.
KEYS = {
    "operands": ("location_id", "set_id", "register_id"),
    "dependencies": ("on_instruction_id",),
    "branches": ("block_id",),
    "calls": ("callee_id",),
    "call_arguments": ("actual_location_id", "actual_set_id", "actual_register_id"),
    "semaphores": ("from_instruction_id",),
    "aliases": ("target_location_id", "target_set_id"),
    "references": ("target_id",),
}


def changes_nothing(step: Pass, ir: IR) -> PassResult:
    """Run a pass; the input stays as it is, in memory and as JSON, and the output holds together."""
    held, texts = frozen(ir), [ir.to_json(m) for m in range(len(ir))]
    result = step(ir)
    assert frozen(ir) == held
    assert [ir.to_json(m) for m in range(len(ir))] == texts
    assert_valid(result.ir)
    return result


def equals(result: PassResult, wanted: Outcome) -> None:
    """Compare the result for one module with that of the other implementation."""
    assert (result.status[0], sorted((m.severity, m.code) for m in result.messages)) == (
        wanted.status,
        sorted((m.severity, m.code) for m in wanted.diagnostics),
    )
    assert difference(json.loads(result.ir.to_json(0)), wanted.doc) is None


def provenance(ir: IR) -> list[Provenance]:
    """Where each instruction came from, in program order, functions one after the other."""
    chains = ir.call_chains.rows(named=True)
    found: list[Provenance] = []
    rows = ir.instructions.drop_nulls("function_id").sort("function_id", "position")
    for line in rows.rows(named=True):
        sites: list[str] = []
        chain = line["call_chain_id"]
        while chain is not None:
            sites.insert(0, chains[chain]["name"])
            chain = chains[chain]["parent_id"]
        assert line["depth"] == len(sites)
        found.append(
            Provenance(line["original_name"], line["kernel"], line["kernel_source"], tuple(sites), line["depth"])
        )
    return found


# against the oracle


def check_inlining(document: Json, allocated: bool | None, shard_id: int) -> None:
    step = air.passes.InlineNkiKernel(allocated=allocated, shard_id=shard_id)
    result = changes_nothing(step, read(document))
    wanted = run_inline(document, allocated=allocated, shard_id=shard_id)
    equals(result, wanted)
    assert provenance(result.ir) == wanted.provenance


@given(plain_documents, positions, st.integers(0, 3))
@few
def test_n1_to_n19_inlining_agrees_with_the_oracle(document: Json, allocated: bool | None, shard_id: int) -> None:
    check_inlining(document, allocated, shard_id)


@given(large_documents, positions, st.integers(0, 3))
@few
def test_n1_n13_n20_blocks_and_nesting_agree_with_the_oracle(
    document: Json, allocated: bool | None, shard_id: int
) -> None:
    check_inlining(document, allocated, shard_id)


@given(faulty_pairs, positions)
@few
def test_n1_to_n9_faults_are_found_as_the_oracle_finds_them(pair: tuple[Json, str], allocated: bool | None) -> None:
    document, _ = pair
    check_inlining(document, allocated, 0)
    check_inlining(document, None, 0)
    assert air.passes.inline_nki_kernel(read(document)).status.to_list() == ["failed"]


@given(branching_documents, st.integers(0, 3))
@few
def test_u2_kernels_with_loops_that_become_branches(document: Json, shard_id: int) -> None:
    check_inlining(document, None, shard_id)


@pytest.mark.slow
@given(call_modules, positions, st.integers(0, 3))
@most
def test_n1_to_n20_inlining_agrees_with_the_oracle_at_length(
    document: Json, allocated: bool | None, shard_id: int
) -> None:
    check_inlining(document, allocated, shard_id)


reservations = st.fixed_dictionaries(
    {},
    optional={
        "reserved_name": st.sampled_from(["EvalAccelReservedLoc", "other", ""]),
        "size_from": st.sampled_from([None, "arch_capacity", "pinned_high_water_mark"]),
        "usable_sbuf_bytes": st.sampled_from([None, -1, 0, 196_600, 229_368, 229_376, 229_377, 262_144]),
    },
)


def check_reservation(document: Json, options: dict[str, Any]) -> None:
    result = changes_nothing(air.passes.RuntimeMemoryReservation(**options), read(document))
    equals(result, run_reservation(document, **options))


@given(st.one_of(reservable_documents(), reservable_documents(), inlinable_documents()), reservations)
@few
def test_m1_to_m8_reserving_agrees_with_the_oracle(document: Json, options: dict[str, Any]) -> None:
    check_reservation(document, options)


@pytest.mark.slow
@given(st.one_of(reservable_documents(), call_modules), reservations)
@many
def test_m1_to_m8_reserving_agrees_with_the_oracle_at_length(document: Json, options: dict[str, Any]) -> None:
    check_reservation(document, options)


# batches


def about_module(result: PassResult, module_id: int) -> list[tuple[Any, ...]]:
    """What is said about a module, without ids, which are those of the batch."""
    fields = ("severity", "code", "message", "compiler_code", "function", "block", "instruction", "set", "location")
    return [tuple(getattr(m, f) for f in fields) for m in result.messages if m.module_id == module_id]


def check_batch(documents: list[Json], order: list[int], step: Pass) -> None:
    alone = [step(read(document, f"m{n}")) for n, document in enumerate(documents)]
    batch = air.concat([read(documents[n], f"m{n}") for n in order])
    result = changes_nothing(step, batch)
    for place, number in enumerate(order):
        expected = alone[number]
        assert result.ir.to_json(place) == expected.ir.to_json(0)
        assert result.status[place] == expected.status[0]
        assert about_module(result, place) == about_module(expected, 0)
        assert provenance(result.ir.select([place])) == provenance(expected.ir)
    assert [m.module for m in result.messages] == [f"m{order[m.module_id or 0]}" for m in result.messages]


steps = st.sampled_from(
    [
        air.passes.InlineNkiKernel(),
        air.passes.InlineNkiKernel(allocated=False),
        air.passes.InlineNkiKernel(allocated=True),
        air.passes.RuntimeMemoryReservation(),
        air.passes.RuntimeMemoryReservation(reserved_name="x"),
    ]
)


@st.composite
def batches(draw: st.DrawFn, most: int) -> tuple[list[Json], list[int]]:
    documents = draw(st.lists(modules, min_size=1, max_size=most))
    return documents, draw(st.permutations(range(len(documents))))


@given(st.lists(large_documents, min_size=2, max_size=5), positions)
@fewer
def test_o5_a_batch_of_blocks_and_nesting_is_its_modules(documents: list[Json], allocated: bool | None) -> None:
    check_batch(documents, list(range(len(documents))), air.passes.InlineNkiKernel(allocated=allocated))


@given(batches(4), steps)
@fewer
def test_o5_a_batch_is_its_modules_in_any_order(batch: tuple[list[Json], list[int]], step: Pass) -> None:
    check_batch(*batch, step)


@pytest.mark.slow
@given(batches(6), steps)
@settings(parent=many, max_examples=150)
def test_o5_a_batch_is_its_modules_in_any_order_at_length(batch: tuple[list[Json], list[int]], step: Pass) -> None:
    check_batch(*batch, step)


# names and references of the result


def spaces(document: Json) -> dict[tuple[str, str], list[str]]:
    """The names of each kind in each function under `functions` (rule R6)."""
    found: dict[tuple[str, str], list[str]] = {}

    def walk(function: str, blocks: list[Json]) -> None:
        for block in blocks:
            found.setdefault((function, "blocks"), []).append(block.get("name", ""))
            for each in block["instructions"]:
                found.setdefault((function, "instructions"), []).append(each.get("name", ""))
                if isinstance(each.get("blocks"), list):
                    walk(function, each["blocks"])

    for function in document["functions"]:
        name = function["name"]
        for storage in function.get("allocations", []):
            kind = "sets" if storage.get("Skind", "memory_location_set") == "memory_location_set" else "registers"
            found.setdefault((name, kind), []).append(storage.get("name", ""))
            if kind == "sets":
                for location in storage.get("memorylocations") or []:
                    found.setdefault((name, "locations"), []).append(location["name"])
        walk(name, function["blocks"])
    return found


def unique(names: list[str]) -> bool:
    return max(Counter(names).values(), default=0) < 2


def keys(ir: IR) -> dict[tuple[str, str], list[int]]:
    return {(table, column): ir.array(table, column).tolist() for table, columns in KEYS.items() for column in columns}


def check_names(document: Json) -> None:
    result = air.passes.inline_nki_kernel(read(document))
    after = json.loads(result.ir.to_json(0))
    old, new = spaces(document), spaces(after)
    if unique([f["name"] for f in document["functions"]]):
        assert all(unique(new.get(space, [])) for space, names in old.items() if unique(names))
    again = air.read_json(result.ir.to_json(0))
    assert again.to_json(0) == result.ir.to_json(0)
    lost = [m.message for m in again.messages if m.code == "unresolved_name"]
    # A wait for what nothing reads, and is gone, keeps the name (C3), which may be another's in the caller.
    awaited = result.ir.tables["semaphores"]["name"] < 0
    if awaited.all() and not any(m.code == "unresolved_name" for m in read(document).messages):
        assert lost == []
    if all(unique(names) for names in (*old.values(), *new.values())):
        # Read again, every name finds the row that it stood for.
        found, stood = keys(again), keys(result.ir)
        for each in (found, stood):
            each["semaphores", "from_instruction_id"] = np.compress(
                awaited, each["semaphores", "from_instruction_id"]
            ).tolist()
        assert found == stood


@given(call_documents)
@few
def test_r6_names_stay_unique_and_every_name_finds_its_row(document: Json) -> None:
    check_names(document)


@pytest.mark.slow
@given(call_documents)
@many
def test_r6_names_stay_unique_and_every_name_finds_its_row_at_length(document: Json) -> None:
    check_names(document)


# what a result does not depend on


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Spread columns of any size over some threads."""
    with patch.object(runs, "THREADS", count), patch.object(runs, "PARALLEL_ROWS", 0):
        yield


@contextmanager
def compiled(wanted: bool) -> Iterator[None]:
    """Run all compute kernels compiled, or all as plain Python."""

    def call(kernel: Any, *args: Any) -> Any:
        if wanted:
            return kernel.compiled(*args)
        with np.errstate(over="ignore"):
            return kernel.plain(*args)

    with patch.object(jit.Kernel, "__call__", call):
        yield


def texts(step: Pass, documents: list[Json]) -> list[bytes]:
    result = step(air.concat([read(document, f"m{n}") for n, document in enumerate(documents)]))
    answers = [STATUS[code].encode() for code in result.codes.tolist()]
    return [*(result.ir.to_json(m) for m in range(len(documents))), *answers, repr(result.messages).encode()]


@given(st.lists(modules, min_size=1, max_size=3), steps)
@fewer
def test_o5_neither_threads_nor_compilation_matter(documents: list[Json], step: Pass) -> None:
    with threads(1), compiled(False):
        plain = texts(step, documents)
    with threads(2), compiled(False):
        assert texts(step, documents) == plain
    with threads(2), compiled(True):
        assert texts(step, documents) == plain
    with threads(1), compiled(True):
        assert texts(step, documents) == plain


@given(modules, steps)
@fewer
def test_o5_twice_is_the_same(document: Json, step: Pass) -> None:
    ir = read(document)
    first, second = step(ir), step(ir)
    assert first.ir.to_json(0) == second.ir.to_json(0)
    assert first.messages == second.messages
    assert written(json.loads(first.ir.to_json(0))) == second.ir.to_json(0)
