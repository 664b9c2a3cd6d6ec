"""The oracle of rules M against documents whose answer is worked out by hand."""

import copy
from typing import Any

import pytest

from tests.oracle import run_reservation
from tests.oracle.builders import Obj, allocations, call, function, location, memory_set, module, sb_set
from tests.oracle.reservation import SINGLE_FUNCTION, align8

NAME = "EvalAccelReservedLoc"
SET = f"{NAME}_set"


def one(*sets: Obj, arch: str | None = "gen3", **more: Any) -> Obj:
    return module(function("main", list(sets), **more), arch=arch)


def reserved(doc: Obj) -> Obj:
    return allocations(doc)[SET]["memorylocations"][-1]


def test_m1_exactly_one_ordinary_function() -> None:
    for doc in (module(), module(function("a", []), function("b", []))):
        outcome = run_reservation(doc)
        assert outcome.status == "unchanged"
        assert outcome.doc == doc
        assert outcome.codes() == {("error", "single_function_required")}
    assert outcome.diagnostics[0].message == SINGLE_FUNCTION
    assert len(SINGLE_FUNCTION) == 88


def test_m1_r4_kernel_functions_do_not_count() -> None:
    named = module(function("main", [], call("c", "k")), function("k", []))
    assert run_reservation(named).status == "changed"
    apart = module(function("main", []), kernels=[function("k", []), function("k2", [])])
    assert run_reservation(apart).status == "changed"
    # A kernel that only itself names is an ordinary function.
    alone = module(function("main", []), function("k", [], call("c", "k")))
    assert run_reservation(alone).codes() == {("error", "single_function_required")}
    # `main` and the first function are ordinary whoever names them.
    first = module(function("f", []), function("g", [], call("c", "f")))
    assert run_reservation(first).codes() == {("error", "single_function_required")}
    main = module(function("f", [], call("c", "main")), function("main", []))
    assert run_reservation(main).codes() == {("error", "single_function_required")}


@pytest.mark.parametrize(
    ("arch", "code"),
    [
        ("sunda", "arch_below_30"),
        ("inf1", "arch_below_30"),
        ("trn1", "arch_below_30"),
        ("core_v5", "unknown_arch"),
        ("trn4", "unknown_arch"),
        ("GEN3", "unknown_arch"),
        (None, "unknown_arch"),
    ],
)
def test_m2_arch(arch: str | None, code: str) -> None:
    outcome = run_reservation(one(arch=arch))
    note = code == "arch_below_30"
    assert outcome.codes() == {("note" if note else "error", code)}
    assert outcome.status == ("unchanged" if note else "failed")


@pytest.mark.parametrize(("arch", "capacity"), [("gen3", 229376), ("trn2", 229376), ("mariana", 262144)])
def test_m3_path_1_default(arch: str, capacity: int) -> None:
    made = reserved(run_reservation(one(arch=arch)).doc)
    assert (made["addr"], made["dims"]) == (capacity - 8, [128, 8])


def test_m3_path_1_configured() -> None:
    made = reserved(run_reservation(one(), usable_sbuf_bytes=200000).doc)
    assert (made["addr"], made["dims"]) == (200000, [128, 29376])


def test_m3_path_2_by_name_and_by_option() -> None:
    pinned = sb_set("p_set", 100, pinned=True, dims=[128, 13])
    loose = sb_set("l_set", 5000)
    dram = memory_set("d_set", "Internal", location("d", pinned=True, addr=90000))
    doc = one(pinned, loose, dram)
    for options in ({"reserved_name": "other"}, {"size_from": "pinned_high_water_mark"}):
        made = reserved(run_reservation(doc, **options).doc)
        assert (made["name"], made["addr"], made["dims"]) == (NAME, 0, [128, 116])
    by_size = run_reservation(doc, reserved_name="other", size_from="arch_capacity")
    assert reserved(by_size.doc)["addr"] == 229368
    with pytest.raises(ValueError, match="size_from"):
        run_reservation(doc, size_from="nonsense")


def test_m3_f3_memory_type_as_number() -> None:
    doc = one(memory_set("p_set", "Internal", location("p", [128, 8], type=16, addr=8, pinned=True)))
    assert reserved(run_reservation(doc, reserved_name="x").doc)["dims"] == [128, 16]


def test_m4_align8() -> None:
    assert [align8(n) for n in (0, 1, 7, 8, 9)] == [0, 8, 8, 8, 16]


def test_m5_new_set_and_location() -> None:
    doc = one(sb_set("a_set"))
    before = copy.deepcopy(doc)
    after = run_reservation(doc)
    assert doc == before
    assert after.status == "changed"
    added = after.doc["functions"][0]["allocations"][-1]
    assert list(added.items()) == [
        ("Skind", "memory_location_set"),
        ("allocated", True),
        ("dtype", "uint8"),
        ("kind", "Internal"),
        ("memorylocations", added["memorylocations"]),
        ("name", SET),
        ("partition_dim", 0),
        ("tensorId2MemLocSize", 1),
        ("tensor_class", "NeuronSBTensor"),
        ("tensor_shape", [128, 8]),
    ]
    assert list(added["memorylocations"][0].items()) == [
        ("Skind", "memory_location"),
        ("addr", 229368),
        ("allocated", True),
        ("bank", 0),
        ("base", 0),
        ("dims", [128, 8]),
        ("name", NAME),
        ("runtime_reserved", True),
        ("tensor_id", 0),
        ("type", "SB"),
    ]
    assert len(after.doc["functions"][0]["allocations"]) == 2


def test_m5_joins_the_first_set_of_that_name() -> None:
    ids = [location("x", tensor_id=4), location("y")]
    doc = one(memory_set(SET, "Internal", *ids), memory_set(SET, "Internal", location("z")))
    first, second = run_reservation(doc).doc["functions"][0]["allocations"]
    assert [each["name"] for each in first["memorylocations"]] == ["x", "y", NAME]
    assert first["memorylocations"][-1]["tensor_id"] == 5
    assert first["tensorId2MemLocSize"] == 6
    assert second["memorylocations"] == [location("z")]


def test_m5_f6_keys_added_to_a_joined_set() -> None:
    unsorted_set = memory_set(SET, "Internal", location("x"))
    keys = list(allocations(run_reservation(one(unsorted_set)).doc)[SET])
    assert keys == [*unsorted_set, "allocated", "tensorId2MemLocSize"]
    sorted_set = dict(sorted(unsorted_set.items()))
    keys = list(allocations(run_reservation(one(sorted_set)).doc)[SET])
    assert keys == sorted(keys)


def test_m5_absent_ids_and_empty_set() -> None:
    absent = run_reservation(one(memory_set(SET, "Internal", location("x"))))
    assert reserved(absent.doc)["tensor_id"] == 1
    empty = memory_set(SET, "Internal")
    empty["memorylocations"] = []
    assert reserved(run_reservation(one(empty)).doc)["tensor_id"] == 0


def test_m5_unassigned_tensor_id() -> None:
    outcome = run_reservation(one(memory_set(SET, "Internal", location("x", tensor_id=-1))))
    assert outcome.codes() == {("error", "unassigned_tensor_id")}
    assert outcome.diagnostics[0].message == "Unassigned tensorId"


def test_m6_already_reserved_and_name_taken() -> None:
    there = memory_set("s", "Internal", location(NAME, type="SB", runtime_reserved=True))
    assert run_reservation(one(there)).codes() == {("note", "already_reserved")}
    taken = memory_set("s", "Internal", location(NAME, type="SB"))
    outcome = run_reservation(one(taken))
    assert (outcome.status, outcome.codes()) == ("failed", {("error", "name_taken")})


def test_m6_twice_is_once() -> None:
    once = run_reservation(one()).doc
    twice = run_reservation(once)
    assert (twice.status, twice.doc) == ("unchanged", once)


@pytest.mark.parametrize("usable", [-1, 229377])
def test_m7_outside_the_sbuf(usable: int) -> None:
    outcome = run_reservation(one(), usable_sbuf_bytes=usable)
    assert outcome.codes() == {("error", "reservation_exceeds_sbuf")}


def test_m7_size_0_is_recorded() -> None:
    made = reserved(run_reservation(one(), reserved_name="x").doc)
    assert (made["addr"], made["dims"]) == (0, [128, 0])
    made = reserved(run_reservation(one(), usable_sbuf_bytes=229376).doc)
    assert (made["addr"], made["dims"]) == (229376, [128, 0])


def test_m7_path_2_above_the_capacity() -> None:
    pinned = sb_set("p_set", 229376, pinned=True)
    assert run_reservation(one(pinned), reserved_name="x").codes() == {("error", "reservation_exceeds_sbuf")}


@pytest.mark.parametrize(
    ("place", "warned"),
    [
        ({"addr": 229300, "dims": [128, 69]}, True),
        ({"addr": 229300, "dims": [128, 68]}, False),
        ({"addr": 229368, "dims": [128, 8], "allocated": False}, False),
        ({"addr": 229368, "dims": [128, 0]}, False),
        ({"addr": 229368, "dims": [32, 8], "base": 128}, False),
        ({"addr": 229368, "dims": [128, 8], "type": "PSUM"}, False),
    ],
)
def test_m8_overlap_path_1(place: Obj, warned: bool) -> None:
    doc = one(memory_set("a_set", "Internal", location("a", **({"type": "SB", "allocated": True} | place))))
    outcome = run_reservation(doc)
    assert outcome.status == "changed"
    assert outcome.codes() == ({("warning", "reservation_overlaps")} if warned else set())


def test_m8_path_2_spares_what_is_wholly_inside() -> None:
    pinned = sb_set("p_set", 64, pinned=True)
    inside = sb_set("i_set", 0)
    assert run_reservation(one(pinned, inside), reserved_name="x").codes() == set()
    across = sb_set("a_set", 100)
    outcome = run_reservation(one(pinned, across), reserved_name="x")
    assert outcome.codes() == {("warning", "reservation_overlaps")}
    assert "`a`" in outcome.diagnostics[0].message
