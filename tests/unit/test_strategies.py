"""Generated documents: sound, varied, small when they shrink, and at fault only where they are meant to be."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from arrowir.testing import strategies
from arrowir.testing.bir import Json
from arrowir.testing.call_faults import CALL_FAULTS, HUGE
from arrowir.testing.checking import difference, kernels_of, problems
from arrowir.testing.drawing import Simplest
from arrowir.testing.drawn_modules import ModuleDrawer
from arrowir.testing.format_documents import DocumentDrawer
from arrowir.testing.loop_faults import LOOP_FAULTS
from arrowir.testing.opcode_keys import ENUMS, OPCODE_KEYS, keys_of
from arrowir.testing.reservable import ReservationDrawer
from arrowir.testing.strategies import statistics
from tests import oracle

Examples = list[Any]


def examples(strategy: st.SearchStrategy[Any], count: int) -> Examples:
    """Return so many examples, always the same ones."""
    found: Examples = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def reached(documents: Examples) -> Counter[str]:
    """Count the documents that use each feature."""
    counts: Counter[str] = Counter()
    for document in documents:
        counts.update(key for key, count in statistics(document).items() if count)
    return counts


@pytest.fixture(scope="module")
def any_documents() -> Examples:
    return examples(strategies.documents(), 150)


@pytest.fixture(scope="module")
def inlinable() -> Examples:
    return examples(strategies.inlinable_documents(), 80)


@pytest.fixture(scope="module")
def unrollable() -> Examples:
    return examples(strategies.unrollable_documents(), 100)


@pytest.fixture(scope="module")
def reservable() -> Examples:
    return examples(strategies.reservable_documents(), 150)


def least(counts: Counter[str], wanted: dict[str, int]) -> dict[str, int]:
    """Return the features that are used less often than wanted."""
    return {key: counts[key] for key, count in wanted.items() if counts[key] < count}


# documents

FORMAT = (
    *(f"operand:{kind}" for kind in ("physical_ap", "symbolic_ap", "symbolic_pwap", "register_ap", "imm_value")),
    *(f"operand:{kind}" for kind in ("imm_array", "symbolic_imm_value", "register_access", "dynamic")),
    *(f"expression:{kind}Kind" for kind in ("AffExpr", "AffIV", "ShardID", "IntRuntimeValue", "Sum", "Mult")),
    *(f"expression:{kind}" for kind in ("FloorDivKind", "ModuloKind", "CCDivKind", "CCGetRankKind", "IndirectArgId")),
    *(f"expression:version 1 {kind}" for kind in ("plain", "Div", "Mod", "CCGetRank", "IndirectArgId")),
    *(f"storage:{kind}" for kind in ("memory_location_set", "register", "brand_new_kind", "block tensor")),
    *(f"location:{kind}" for kind in ("SB", "PSUM", "DRAM", "Input", "Output", "REG", "16", "alias", "pinned")),
    *(f"edge:plain:{form}" for form in ("bare", "2 items")),
    *(f"edge:loop_carried:{form}" for form in ("bare", "2 items", "3 items")),
    *(f"kernels:{form}" for form in ("absent", "NoneType", "dict", "list")),
    *(f"attributes:{form}" for form in ("absent", "dict", "list")),
    *(f"operands:{role} {form}" for role in ("ins", "outs") for form in ("absent", "empty", "some")),
    *("edge:unroll:4 items", "edge:kind as number", "unresolved edge", "unresolved storage name"),
    *("repeated instruction name", "repeated storage name", "set of no location", "set of several locations"),
    *("version:1", "version:2", "queue", "sync_info", "several blocks", "empty block", "unsorted object"),
    *("unknown member", "null member", "float", "bare non-finite float", "non-finite float as text"),
    *("integer beyond 64 bits", "odd text", "loop:depth 1", "loop:no trips", "loop:descending", "loop:other bounds"),
    *("location:pointer_ref_memloc", "member:target", "member:order", "member:debug", "opcode:BrandNewOp"),
    *("opcode:Loop", "opcode:DynamicForLoop", "opcode:DoWhile"),
)


def test_documents_reach_the_format(any_documents: Examples) -> None:
    assert least(reached(any_documents), dict.fromkeys(FORMAT, 1)) == {}


def test_documents_reach_most_opcodes(any_documents: Examples) -> None:
    counts = reached(any_documents)
    assert sum(counts[f"opcode:{opcode}"] > 0 for opcode in OPCODE_KEYS) > 0.8 * len(OPCODE_KEYS)


REQUIRED = {
    "module": {"version": int, "functions": list},
    "function": {"name": str, "allocations": list, "blocks": list},
    "block": {"name": str, "instructions": list},
    "instruction": {"name": str, "opcode": str, "engine": str},
    "location": {"name": str, "type": (str, int), "dims": list, "addr": int},
}


def assert_required(kind: str, value: Json) -> None:
    for key, expected in REQUIRED[kind].items():
        assert isinstance(value[key], expected), (kind, key)


def all_rows(blocks: list[Json]) -> Iterator[Json]:
    for block in blocks:
        assert_required("block", block)
        for row in block["instructions"]:
            yield row
            yield from all_rows(row.get("blocks") or [])


def test_documents_have_the_required_members(any_documents: Examples) -> None:
    for document in any_documents:
        assert_required("module", document)
        for function in [*document["functions"], *kernels_of(document)]:
            assert_required("function", function)
            for item in function["allocations"]:
                for place in item.get("memorylocations", []):
                    assert_required("location", place)
                assert not item.get("memorylocations") or item["dtype"]
            for row in all_rows(function["blocks"]):
                if row["opcode"] not in ("Loop", "DynamicForLoop", "DoWhile"):
                    assert_required("instruction", row)


def test_documents_survive_json(any_documents: Examples) -> None:
    for document in any_documents:
        text = json.dumps(document, ensure_ascii=False)
        assert difference(json.loads(text.encode().decode()), document) is None


def test_options_of_documents_leave_things_out() -> None:
    plain = reached(examples(strategies.documents(bare_nonfinite=False, odd_names=False), 60))
    assert plain["bare non-finite float"] == 0
    assert plain["float"] > 0


def test_difference_names_the_place() -> None:
    document = {"a": [1, {"b": float("nan")}], "c": 1.0}
    assert difference(document, json.loads(json.dumps(document))) is None
    assert difference(document, {"c": 1.0, "a": [1, {"b": 0.5}]}) is not None
    assert difference({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}]}) == "$.a[1].b: 2 is not 3"
    assert difference({"a": True}, {"a": 1}) == "$.a: True is not 1"
    assert difference([1], [1, 2]) == "$: 1 items are not 2"


def test_opcode_members_have_known_kinds() -> None:
    assert Simplest().fresh("x") == "x0"
    for opcode in OPCODE_KEYS:
        for key, kind in keys_of(opcode):
            assert key.isidentifier(), opcode
            assert kind, opcode
    assert all(len(set(values)) == len(values) for values in ENUMS.values())


# sound modules


def test_inlinable_documents_are_sound(inlinable: Examples) -> None:
    assert [line for document in inlinable for line in problems(document)] == []


@pytest.mark.parametrize("options", [{"nested": True}, {"multi_block": True}])
def test_larger_inlinable_documents_are_sound(options: dict[str, bool]) -> None:
    found = examples(strategies.inlinable_documents(**options), 20)
    assert [line for document in found for line in problems(document)] == []
    counts = reached(found)
    if "nested" in options:
        assert any("NKIKernel" in json.dumps(kernels_of(document)) for document in found)
    else:
        assert counts["member:target"] > 1


def test_unrollable_documents_are_sound(unrollable: Examples) -> None:
    assert [line for document in unrollable for line in problems(document)] == []


INLINABLE = {
    **dict.fromkeys(("call-site", "call:by name", "call:by position", "call:map dict", "call:map absent"), 15),
    **dict.fromkeys(("call:SB scratchpad", "call:map list", "location:allocated", "opcode:Loop"), 10),
    **dict.fromkeys(("call:PSUM scratchpad", "call:dependencies", "call:loop_carried_dependencies"), 5),
    **dict.fromkeys(("call:unroll_dependencies", "call:in a loop", "operand:dynamic", "opcode:Return"), 5),
    **dict.fromkeys(("operand:register_access", "operand:register_ap", "operand:symbolic_ap", "sync_info"), 10),
    **dict.fromkeys(("loop:no trips", "loop:descending", "loop:depth 2", "set of several locations"), 5),
    **dict.fromkeys(("repeated instruction name", "repeated storage name", "empty block", "kernels:list"), 2),
    **dict.fromkeys((f"call:source {name}" for name in ("Beta1", "Beta2", "Beta3", 0, 1, 2, None, "absent")), 1),
    **dict.fromkeys(("attributes:dict", "version:1", "unsorted object", "storage:register"), 2),
}


def test_inlinable_documents_reach_their_features(inlinable: Examples) -> None:
    assert least(reached(inlinable), INLINABLE) == {}
    sites = [statistics(document)["call-site"] for document in inlinable]
    assert {0, 1, 2, 3} < set(sites)
    assert sum(count > 1 for count in sites) > 25


def test_inlinable_documents_have_names_that_clash(inlinable: Examples) -> None:
    fresh = formal = repeated = 0
    for document in inlinable:
        caller = document["functions"][0]
        names = {item["name"] for item in caller["allocations"]}
        fresh += any(":" in name for name in names)
        formal += bool(names & {f"{letter}_set" for letter in "abcd"})
        called = [row["func"] for row in all_rows(caller["blocks"]) if row["opcode"] == "NKIKernel"]
        repeated += len(called) > len(set(called))
    assert min(fresh, formal, repeated) >= 10


UNROLLABLE = {
    **dict.fromkeys(("loop:depth 1", "loop:depth 2", "loop:depth 3", "loop:no trips", "loop:descending"), 7),
    **dict.fromkeys(("operand:symbolic_ap", "operand:symbolic_imm_value", "edge:loop_carried:3 items"), 10),
    **dict.fromkeys(("edge:plain:bare", "edge:unroll:4 items", "loop:other bounds", "member:order"), 4),
    **dict.fromkeys((f"expression:{kind}Kind" for kind in ("FloorDiv", "Modulo", "Sum", "Mult", "ShardID")), 4),
    **dict.fromkeys(("expression:version 1 Div", "expression:version 1 Mod", "expression:version 1 plain"), 2),
    **dict.fromkeys(("expression:IntRuntimeValueKind", "operand:symbolic_pwap", "repeated instruction name"), 2),
    **dict.fromkeys(("attributes:dict", "attributes:absent", "kernel", "unsorted object"), 2),
}


def test_unrollable_documents_reach_their_features(unrollable: Examples) -> None:
    assert least(reached(unrollable), UNROLLABLE) == {}


def test_reservable_documents_reach_their_features(reservable: Examples) -> None:
    wanted = {
        **dict.fromkeys(("location:pinned", "location:allocated", "location:SB", "location:PSUM"), 15),
        **dict.fromkeys(("location:runtime_reserved", "set of no location", "set of several locations"), 8),
        **dict.fromkeys(("kernel", "repeated storage name"), 3),
    }
    assert least(reached(reservable), wanted) == {}
    archs = {document.get("arch") for document in reservable}
    assert {None, "gen3", "core_v4"} <= archs
    assert len(archs) > 10
    assert {len(document["functions"]) for document in reservable} == {0, 1, 2}
    text = json.dumps(reservable)
    assert '"EvalAccelReservedLoc_set"' in text
    assert '"tensor_id": -1' in text


# against the plain passes


def test_inlining_succeeds(inlinable: Examples) -> None:
    outcomes = [oracle.run_inline(document) for document in inlinable[:40]]
    assert [error for outcome in outcomes for error in outcome.diagnostics if error.severity == "error"] == []
    assert sum(outcome.status == "changed" for outcome in outcomes) > 25


def test_unrolling_succeeds(unrollable: Examples) -> None:
    outcomes = [oracle.run_unroll(document) for document in unrollable]
    assert [error for outcome in outcomes for error in outcome.diagnostics if error.severity == "error"] == []
    assert sum(outcome.status == "changed" for outcome in outcomes) > 50


def test_reservation_ends_in_every_way(reservable: Examples) -> None:
    ends: Counter[str] = Counter()
    for document in reservable:
        outcome = oracle.run_reservation(document)
        ends[outcome.status] += 1
        ends.update({diagnostic.code for diagnostic in outcome.diagnostics})
    wanted = ("changed", "unchanged", "failed", "arch_below_30", "unknown_arch", "single_function_required")
    wanted += ("already_reserved", "name_taken", "unassigned_tensor_id", "reservation_overlaps")
    assert [key for key in wanted if not ends[key]] == []
    assert ends["changed"] > 60


def errors_of(outcome: oracle.Outcome) -> set[str]:
    return {diagnostic.code for diagnostic in outcome.diagnostics if diagnostic.severity == "error"}


@pytest.mark.parametrize("code", [code for code in LOOP_FAULTS if code not in HUGE])
def test_faulty_unrollable_documents_have_their_fault(code: str) -> None:
    for document, named in examples(strategies.faulty_unrollable_documents([code]), 4):
        assert named == code
        assert errors_of(oracle.run_unroll(document)) == {code}


@pytest.mark.parametrize("code", [code for code in CALL_FAULTS if code not in HUGE])
def test_faulty_inlinable_documents_have_their_fault(code: str) -> None:
    for document, named in examples(strategies.faulty_inlinable_documents([code]), 3):
        assert named == code
        assert errors_of(oracle.run_inline(document)) == {code}


@pytest.mark.parametrize(
    ("strategy", "run"),
    [
        (strategies.unrollable_documents(faulty=True), oracle.run_unroll),
        (strategies.inlinable_documents(faulty=True), oracle.run_inline),
    ],
    ids=["unrollable", "inlinable"],
)
def test_faulty_strategies_mix_both(strategy: st.SearchStrategy[Json], run: Callable[[Json], oracle.Outcome]) -> None:
    statuses = Counter(run(document).status for document in examples(strategy, 24))
    assert statuses["failed"] >= 3
    assert statuses["changed"] + statuses["unchanged"] >= 3


def test_unknown_faults_are_refused() -> None:
    with pytest.raises(ValueError, match="no fault for `nothing`"):
        strategies.faulty_unrollable_documents(["nothing"])
    with pytest.raises(ValueError, match="no fault for `nothing`"):
        strategies.faulty_inlinable_documents(["nothing"])


# shrinking


def test_examples_shrink() -> None:
    smallest = find(
        strategies.reservable_documents(),
        lambda document: statistics(document)["location:pinned"] > 0,
        settings=settings(max_examples=50, derandomize=True, database=None, deadline=None),
    )
    assert len(json.dumps(smallest)) < 600
    assert statistics(smallest)["unknown member"] == 0


def test_the_simplest_examples_are_small_and_plain() -> None:
    for drawer, size in (
        (DocumentDrawer(Simplest()).document, 900),
        (ModuleDrawer(Simplest()).draw, 3000),
        (ReservationDrawer(Simplest()).draw, 300),
    ):
        document = drawer()
        assert len(json.dumps(document)) < size
        counts = statistics(document)
        assert counts["unknown member"] == counts["odd text"] == 0
    # the simplest module for inlining calls its kernel
    assert statistics(ModuleDrawer(Simplest()).draw())["call-site"] == 1
