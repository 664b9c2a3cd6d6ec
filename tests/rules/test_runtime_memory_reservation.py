"""Rules M1 to M8, clause by clause; what must come out is written down by hand."""

import copy
from functools import partial
from typing import Any

import pytest

import arrowir as air
from tests.oracle.builders import call, function, location, memory_set, module, op, register, sb_set
from tests.single_pass import Json, Passed, read, refused, run_pass, written

NAME = "EvalAccelReservedLoc"
SET = "EvalAccelReservedLoc_set"
GEN3, GEN4 = 229376, 262144

reserve = partial(run_pass, "runtime_memory_reservation")
fault = partial(refused, "runtime_memory_reservation")


def one(*storage: Json, arch: Any = "gen3", **more: Any) -> Json:
    return module(function("main", list(storage), op("p")), arch=arch, **more)


def sb(name: str, addr: int, size: int, **more: Any) -> Json:
    return sb_set(f"{name}_set", addr, **({"dims": [128, size]} | more))


def region(outcome: Passed) -> tuple[int, int]:
    """Address and size of the location that was recorded."""
    assert outcome.status == "changed"
    (row,) = outcome.ir.locations.filter(name=NAME).select("addr", "bytes").rows()
    return row


def storage_of(document: Json, index: int = 0) -> list[Json]:
    return document["functions"][index]["allocations"]


# M1: one ordinary function


@pytest.mark.parametrize("functions", [(), ("main", "other"), ("a", "a"), ("a", "b", "c")])
def test_m1_not_one_function_is_a_non_fatal_error(functions: tuple[str, ...]) -> None:
    outcome = reserve(module(*(function(name, []) for name in functions)))
    assert outcome.status == "unchanged"
    assert outcome.codes == [("error", "single_function_required")]
    text = "this pass should run in pre-linker phase, which should have only one Function per Module"
    assert len(text) == 88
    assert outcome.messages[0].message == text


def test_m1_o8_later_passes_run_and_strict_raises() -> None:
    document = module(function("main", [], call("C")), function("other", []), kernels=[function("k", [], op("K"))])
    run = air.run(read(document), ["runtime_memory_reservation", "inline_nki_kernel"])
    assert run.steps["status"].to_list() == ["unchanged", "changed"]
    assert not run.ok
    with pytest.raises(air.PassError, match="only one Function per Module"):
        air.passes.runtime_memory_reservation(read(document), strict=True)


@pytest.mark.parametrize("array", [False, True])
def test_m1_functions_under_nki_functions_do_not_count(array: bool) -> None:
    document = module(function("main", []), kernels=[function("k", []), function("main", [])])
    if array:
        document["nki_functions"] = document["nki_functions"]["functions"]
    assert reserve(document).status == "changed"


def test_m1_r4_functions_that_call_sites_name_do_not_count() -> None:
    document = module(function("main", [], call("C", "k")), function("k", [sb("t", 0, 8)]))
    outcome = reserve(document)
    assert outcome.status == "changed"
    assert outcome.doc["functions"][1] == document["functions"][1]
    assert [s["name"] for s in storage_of(outcome.doc)] == [SET]


@pytest.mark.parametrize(
    "functions",
    [
        (function("main", [], op("C", "Call", target="k", arguments={})), function("k", [])),
        (function("main", []), function("k", [], call("C", "k"))),
        (function("first", []), function("g", [], call("C", "first"))),
        (function("g", [], call("C", "main")), function("main", [])),
    ],
    ids=["called by a Call", "named by itself alone", "the first is named", "main is named"],
)
def test_m1_r4_functions_that_stay_ordinary(functions: tuple[Json, ...]) -> None:
    assert reserve(module(*functions)).codes == [("error", "single_function_required")]


def test_m1_modules_of_a_batch_are_judged_alone() -> None:
    good, bad = one(), module(function("a", []), function("b", []))
    ir = air.concat([read(good, "g"), read(bad, "b"), read(good, "h")])
    result = air.passes.runtime_memory_reservation(ir)
    assert result.status.to_list() == ["changed", "unchanged", "changed"]
    assert [result.ir.to_json(n) for n in range(3)] == [
        written(reserve(good).doc),
        written(bad),
        written(reserve(good).doc),
    ]
    assert result.diagnostics["module"].to_list() == ["b"]


# M2: the architecture


@pytest.mark.parametrize(
    ("arch", "level"),
    [
        *((name, 10) for name in ("inferentia", "tonga", "inf1")),
        *((name, 20) for name in ("sunda", "gen2", "trainium", "trn1", "inf2")),
    ],
)
def test_m2_levels_below_30_are_left_alone(arch: str, level: int) -> None:
    outcome = reserve(one(arch=arch))
    assert outcome.status == "unchanged"
    assert outcome.codes == [("note", "arch_below_30")]
    assert f"`{arch}` has level {level}" in outcome.messages[0].message
    assert outcome.before.modules["arch_level"].to_list() == [level]


@pytest.mark.parametrize(
    ("arch", "level", "capacity"),
    [
        *((name, 30, GEN3) for name in ("gen3", "cayman", "trn2")),
        *((name, 40, GEN4) for name in ("core_v4", "gen4", "mariana", "trn3")),
    ],
)
def test_m2_levels_above_29_get_a_region(arch: str, level: int, capacity: int) -> None:
    outcome = reserve(one(arch=arch))
    assert outcome.codes == []
    assert region(outcome) == (capacity - 8, 8)
    assert outcome.before.modules["arch_level"].to_list() == [level]


@pytest.mark.parametrize("arch", ["core_v5", "trn4", "GEN3", "Gen3", "gen3 ", "gen9", "", None])
def test_m2_unknown_architectures_and_level_50_fail(arch: str | None) -> None:
    message = fault(one(arch=arch))
    assert message.code == "unknown_arch"
    assert ("absent" if arch is None else f"`{arch}`") in message.message


def test_m2_an_absent_architecture_fails() -> None:
    document = one()
    del document["arch"]
    assert fault(document).code == "unknown_arch"


def test_m1_comes_before_m2() -> None:
    outcome = reserve(module(function("a", []), function("b", []), arch="gen9"))
    assert outcome.codes == [("error", "single_function_required")]


# M3: two paths


def test_m3_path_1_takes_the_capacity_less_what_is_usable() -> None:
    assert region(reserve(one())) == (GEN3 - 8, 8)
    assert region(reserve(one(), usable_sbuf_bytes=200_000)) == (200_000, GEN3 - 200_000)
    assert region(reserve(one(), usable_sbuf_bytes=0)) == (0, GEN3)
    assert region(reserve(one(arch="trn3"), usable_sbuf_bytes=200_001)) == (200_001, GEN4 - 200_001)


def test_m3_path_1_does_not_look_at_what_is_pinned() -> None:
    assert region(reserve(one(sb("a", 100, 13, pinned=True)))) == (GEN3 - 8, 8)


@pytest.mark.parametrize("name", ["other", "", NAME.lower(), f"{NAME}_set"])
def test_m3_any_other_name_selects_path_2_and_the_literal_is_recorded(name: str) -> None:
    outcome = reserve(one(sb("a", 100, 13, pinned=True)), reserved_name=name)
    assert region(outcome) == (0, 116)
    assert storage_of(outcome.doc)[-1]["name"] == SET


def test_m3_size_from_overrides_the_name() -> None:
    document = one(sb("a", 100, 16, pinned=True))
    assert region(reserve(document, size_from="pinned_high_water_mark")) == (0, 116)
    assert region(reserve(document, reserved_name="other", size_from="arch_capacity")) == (GEN3 - 8, 8)
    assert region(reserve(document, reserved_name=NAME, size_from=None)) == (GEN3 - 8, 8)


def test_m3_size_from_is_one_of_two() -> None:
    with pytest.raises(air.OptionError, match=r"'arch_capacity' \| 'pinned_high_water_mark' .*'capacity'"):
        air.passes.RuntimeMemoryReservation(size_from="capacity")  # type: ignore[arg-type]


def test_m3_path_2_is_the_end_of_the_highest_pinned_sb_location() -> None:
    storage = (
        sb("low", 8, 8, pinned=True),
        sb("high", 4096, 100, pinned=True, allocated=False),
        sb("loose", 9000, 8),
        sb("unpinned", 9500, 8, pinned=False),
        memory_set("d_set", "Internal", location("d", pinned=True, addr=10_000)),
        memory_set("p_set", "Internal", location("p", type="PSUM", pinned=True, addr=11_000)),
        memory_set(
            "two_set",
            "Internal",
            location("t0", [128, 8], type="SB", pinned=True, addr=16),
            location("t1", [128, 3], type=16, pinned=True, addr=5000),
        ),
    )
    assert region(reserve(one(*storage), reserved_name="x")) == (0, 5008)
    assert region(reserve(one(*storage[:-1]), reserved_name="x")) == (0, 4096 + 104)
    assert region(reserve(one(*storage[2:-1]), reserved_name="x")) == (0, 0)


def test_m3_path_2_looks_at_the_function_alone() -> None:
    kernel = function("k", [sb("t", 9000, 8, pinned=True)])
    document = module(function("main", [sb("a", 0, 8, pinned=True)], call("C")), kernels=[kernel])
    assert region(reserve(document, reserved_name="x")) == (0, 8)


# M4: multiples of 8


@pytest.mark.parametrize(("size", "end"), [(0, 0), (1, 8), (7, 8), (8, 8), (9, 16), (4095, 4096)])
def test_m4_sizes_are_rounded_up_to_8(size: int, end: int) -> None:
    assert region(reserve(one(sb("a", 0, size, pinned=True)), reserved_name="x")) == (0, end)


def test_m4_the_size_is_rounded_not_the_end() -> None:
    assert region(reserve(one(sb("a", 3, 9, pinned=True)), reserved_name="x")) == (0, 19)


# M5: how it is recorded


def test_m5_a_set_with_one_location() -> None:
    document = one(sb("a", 0, 64))
    outcome = reserve(document, usable_sbuf_bytes=229_000)
    assert list(storage_of(outcome.doc)[-1].items()) == [
        ("Skind", "memory_location_set"),
        ("allocated", True),
        ("dtype", "uint8"),
        ("kind", "Internal"),
        ("memorylocations", storage_of(outcome.doc)[-1]["memorylocations"]),
        ("name", SET),
        ("partition_dim", 0),
        ("tensorId2MemLocSize", 1),
        ("tensor_class", "NeuronSBTensor"),
        ("tensor_shape", [128, 376]),
    ]
    (made,) = storage_of(outcome.doc)[-1]["memorylocations"]
    assert list(made.items()) == [
        ("Skind", "memory_location"),
        ("addr", 229_000),
        ("allocated", True),
        ("bank", 0),
        ("base", 0),
        ("dims", [128, 376]),
        ("name", NAME),
        ("runtime_reserved", True),
        ("tensor_id", 0),
        ("type", "SB"),
    ]


def test_m5_behind_the_last_allocation_and_nothing_else_changes() -> None:
    storage = (sb("a", 0, 64), register("r"), {"Skind": "odd", "name": "o", "x": [1]})
    document = one(*storage, attributes={"TotalRuntimeDramSize": 4096}, TotalRuntimeDramSize=4096)
    outcome = reserve(document)
    assert [s["name"] for s in storage_of(outcome.doc)] == ["a_set", "r", "o", SET]
    expected = copy.deepcopy(document)
    storage_of(expected).append(storage_of(outcome.doc)[-1])
    assert written(outcome.doc) == written(expected)


def test_m5_behind_no_allocation_at_all() -> None:
    assert [s["name"] for s in storage_of(reserve(one()).doc)] == [SET]


def test_m5_the_new_rows_in_the_tables() -> None:
    ir = reserve(one(sb("a", 0, 64), register("r"))).ir
    row = ir.locations.row(-1, named=True)
    assert (row["name"], row["type"], row["partitions"], row["bank"], row["base"]) == (NAME, "SB", 128, 0, 0)
    assert (row["allocated"], row["runtime_reserved"], row["pinned"], row["tensor_id"]) == (True, True, None, 0)
    assert ir.sets.row(-1, named=True)["tensor_shape"] == [128, 8]
    assert (row["set_id"], ir.sets["ordinal"].to_list()) == (1, [0, 2])


def test_m5_joins_existing_set() -> None:
    there = memory_set(SET, "Const", location("x", tensor_id=4), location("y"), unknown={"u": 1}, allocated=False)
    outcome = reserve(one(there, sb("b", 0, 8)))
    joined = storage_of(outcome.doc)[0]
    assert len(storage_of(outcome.doc)) == 2
    assert joined["memorylocations"][:2] == there["memorylocations"]
    assert joined["memorylocations"][2] == {
        "Skind": "memory_location",
        "addr": GEN3 - 8,
        "allocated": True,
        "bank": 0,
        "base": 0,
        "dims": [128, 8],
        "name": NAME,
        "runtime_reserved": True,
        "tensor_id": 5,
        "type": "SB",
    }
    assert joined == there | {
        "memorylocations": joined["memorylocations"],
        "allocated": True,
        "tensorId2MemLocSize": 6,
    }


def test_m5_the_index_of_a_joined_set_is_renewed() -> None:
    there = memory_set(SET, "Internal", location("x", tensor_id=1), tensorId2MemLocSize=77)
    assert storage_of(reserve(one(there)).doc)[0]["tensorId2MemLocSize"] == 3


def test_m5_joins_the_first_of_several_sets() -> None:
    first, second = (memory_set(SET, "Internal", location(x, tensor_id=n)) for x, n in (("x", 2), ("y", 9)))
    outcome = reserve(one(sb("a", 0, 8), first, second))
    assert [[e["name"] for e in s["memorylocations"]] for s in storage_of(outcome.doc)] == [["a"], ["x", NAME], ["y"]]
    assert storage_of(outcome.doc)[1]["memorylocations"][1]["tensor_id"] == 3
    assert storage_of(outcome.doc)[2] == second


@pytest.mark.parametrize(
    ("ids", "expected"), [([None], 1), ([None, None], 1), ([0], 1), ([7, 3], 8), ([None, 2], 3), ([], 0)]
)
def test_m5_tensor_id_of_the_new_location(ids: list[int | None], expected: int) -> None:
    there = memory_set(SET, "Internal", location("x"))
    there["memorylocations"] = [location(f"x{n}") | ({} if i is None else {"tensor_id": i}) for n, i in enumerate(ids)]
    joined = storage_of(reserve(one(there)).doc)[0]
    assert joined["memorylocations"][-1]["tensor_id"] == expected
    assert joined["tensorId2MemLocSize"] == expected + 1


def test_m5_joins_a_set_without_the_member() -> None:
    there = memory_set(SET, "Internal", location("x"))
    del there["memorylocations"]
    (joined,) = storage_of(reserve(one(there)).doc)
    assert [e["name"] for e in joined["memorylocations"]] == [NAME]


def test_m5_f6_keys_added_to_a_joined_set() -> None:
    there = memory_set(SET, "Internal", location("x"))
    assert list(there) != sorted(there)
    assert list(storage_of(reserve(one(there)).doc)[0]) == [*there, "allocated", "tensorId2MemLocSize"]
    ordered = dict(sorted(there.items()))
    keys = list(storage_of(reserve(one(ordered)).doc)[0])
    assert keys == sorted({*there, "allocated", "tensorId2MemLocSize"})


def test_m5_a_set_of_another_function_or_a_register_is_not_joined() -> None:
    kernel = function("k", [memory_set(SET, "Internal", location("x"))])
    document = module(function("main", [register(SET)], call("C")), kernels=[kernel])
    outcome = reserve(document)
    assert outcome.doc["nki_functions"] == document["nki_functions"]
    assert [s["name"] for s in storage_of(outcome.doc)] == [SET, SET]
    assert storage_of(outcome.doc)[0] == register(SET)


@pytest.mark.parametrize("ids", [[-1], [3, -2], [-5, 3]])
def test_m5_a_negative_tensor_id_in_that_set_is_an_error(ids: list[int]) -> None:
    locations = [location(f"x{n}", tensor_id=i) for n, i in enumerate(ids)]
    message = fault(one(memory_set(SET, "Internal", *locations)))
    assert (message.code, message.message) == ("unassigned_tensor_id", "Unassigned tensorId")
    assert message.location == f"x{[i < 0 for i in ids].index(True)}"


def test_m5_a_negative_tensor_id_elsewhere_is_no_matter() -> None:
    other = memory_set("b_set", "Internal", location("b", tensor_id=-1))
    second = memory_set(SET, "Internal", location("c", tensor_id=-1))
    assert reserve(one(other)).status == "changed"
    assert reserve(one(memory_set(SET, "Internal", location("a")), second)).status == "changed"


# M6: what has the name already


def test_m6_already_reserved() -> None:
    there = memory_set("s", "Internal", location("x"), location(NAME, type="SB", runtime_reserved=True))
    outcome = reserve(one(there))
    assert outcome.status == "unchanged"
    assert outcome.codes == [("note", "already_reserved")]
    message = outcome.messages[0]
    assert (message.function, message.location, message.location_id) == ("main", NAME, 1)


@pytest.mark.parametrize("options", [{}, {"reserved_name": "x"}, {"usable_sbuf_bytes": 0}])
def test_m6_r01_twice_is_once(options: Json) -> None:
    once = reserve(one(sb("a", 0, 8, pinned=True)), **options).doc
    twice = reserve(once, **options)
    assert (twice.status, twice.codes) == ("unchanged", [("note", "already_reserved")])
    assert twice.doc == once


@pytest.mark.parametrize("flag", [{}, {"runtime_reserved": False}, {"runtime_reserved": None}])
def test_m6_the_name_without_the_flag_is_an_error(flag: Json) -> None:
    message = fault(one(memory_set("s", "Internal", location(NAME, **flag))))
    assert (message.code, message.location, message.location_id) == ("name_taken", NAME, 0)


def test_m6_one_of_several_with_the_flag_is_enough() -> None:
    sets = (
        memory_set("s", "Internal", location(NAME)),
        memory_set("t", "Internal", location(NAME, runtime_reserved=True)),
    )
    assert reserve(one(*sets)).codes == [("note", "already_reserved")]


def test_m6_the_name_in_a_kernel_function_is_no_matter() -> None:
    kernel = function("k", [memory_set("s", "Internal", location(NAME))])
    assert reserve(module(function("main", [], call("C")), kernels=[kernel])).status == "changed"


def test_m6_a_set_or_register_of_the_locations_name_is_no_matter() -> None:
    assert reserve(one(register(NAME), memory_set(NAME, "Internal", location("x")))).status == "changed"


# M7: within SBUF


@pytest.mark.parametrize("usable", [-1, -8, GEN3 + 1, 2**63 - 1, 2**64, -(2**64)])
def test_m7_path_1_outside_of_sbuf(usable: int) -> None:
    message = fault(one(), usable_sbuf_bytes=usable)
    assert message.code == "reservation_exceeds_sbuf"
    assert all(str(number) in message.message for number in (usable, GEN3 - usable, GEN3))
    assert (message.function, message.function_id) == ("main", 0)


def test_m7_path_2_above_the_capacity() -> None:
    assert region(reserve(one(sb("a", GEN3 - 8, 8, pinned=True)), reserved_name="x")) == (0, GEN3)
    message = fault(one(sb("a", GEN3 - 8, 9, pinned=True)), reserved_name="x")
    assert message.code == "reservation_exceeds_sbuf"
    assert str(GEN3 + 8) in message.message


def test_m7_path_2_a_negative_size() -> None:
    assert fault(one(sb("a", -64, 8, pinned=True)), reserved_name="x").code == "reservation_exceeds_sbuf"


@pytest.mark.parametrize(("addr", "size"), [(2**63 - 8, 8), (0, 2**63 - 1), (2**62, 2**62)])
def test_m7_path_2_sums_do_not_wrap(addr: int, size: int) -> None:
    message = fault(one(sb("a", addr, size, pinned=True), sb("b", 100, 8, pinned=True)), reserved_name="x")
    assert message.code == "reservation_exceeds_sbuf"
    assert str(addr + (size + 7) // 8 * 8) in message.message


def test_m7_size_0_is_recorded() -> None:
    assert region(reserve(one(), reserved_name="x")) == (0, 0)
    outcome = reserve(one(), usable_sbuf_bytes=GEN3)
    assert region(outcome) == (GEN3, 0)
    assert storage_of(outcome.doc)[-1]["tensor_shape"] == [128, 0]


def test_m6_comes_before_m7_and_m7_before_m5() -> None:
    negative = memory_set(SET, "Internal", location("x", tensor_id=-1))
    taken = memory_set("s", "Internal", location(NAME))
    assert fault(one(negative, taken), usable_sbuf_bytes=-1).code == "name_taken"
    assert fault(one(negative), usable_sbuf_bytes=-1).code == "reservation_exceeds_sbuf"


# M8: overlaps


@pytest.mark.parametrize(
    ("place", "warned"),
    [
        ({"addr": 229_300, "dims": [128, 69]}, True),
        ({"addr": 229_300, "dims": [128, 68]}, False),
        ({"addr": 229_368, "dims": [128, 8]}, True),
        ({"addr": 229_375, "dims": [128, 1]}, True),
        ({"addr": 229_376, "dims": [128, 8]}, False),
        ({"addr": 0, "dims": [128, 300_000]}, True),
        ({"addr": 229_368, "dims": [128, 8], "allocated": False}, False),
        ({"addr": 229_370, "dims": [128, 0]}, False),
        ({"addr": 229_368, "dims": [0, 8], "base": 32}, False),
        ({"addr": 229_368, "dims": [32, 8], "base": 96}, True),
        ({"addr": 229_368, "dims": [32, 8], "base": 128}, False),
        ({"addr": 229_368, "dims": [128, 8], "type": "PSUM"}, False),
        ({"addr": 229_368, "dims": [128, 8], "type": "DRAM"}, False),
        ({"addr": 229_368, "dims": [128, 8], "type": 16}, True),
        ({"addr": 1000, "dims": [128, 2**63 - 1]}, True),
        ({"addr": 229_368, "dims": [2**63 - 1, 8], "base": 64}, True),
    ],
)
def test_m8_path_1_what_shares_bytes_and_partitions(place: Json, warned: bool) -> None:
    storage = memory_set("a_set", "Internal", location("a", **({"type": "SB", "allocated": True} | place)))
    outcome = reserve(one(storage))
    assert outcome.codes == ([("warning", "reservation_overlaps")] if warned else [])
    assert storage_of(outcome.doc)[0] == storage
    assert region(outcome) == (GEN3 - 8, 8)


@pytest.mark.parametrize(
    ("place", "warned"),
    [
        ({"addr": 0, "dims": [128, 108]}, False),
        ({"addr": 0, "dims": [128, 109]}, True),
        ({"addr": 107, "dims": [128, 8]}, True),
        ({"addr": 108, "dims": [128, 8]}, False),
        ({"addr": -4, "dims": [128, 8]}, True),
        ({"addr": -8, "dims": [128, 8]}, False),
        ({"addr": 0, "dims": [64, 8], "base": 96}, True),
    ],
)
def test_m8_path_2_what_lies_wholly_inside_is_excepted(place: Json, warned: bool) -> None:
    storage = memory_set("a_set", "Internal", location("a", **({"type": "SB", "allocated": True} | place)))
    outcome = reserve(one(sb("p", 100, 8, pinned=True), storage), reserved_name="x")
    assert outcome.codes == ([("warning", "reservation_overlaps")] if warned else [])
    assert region(outcome) == (0, 108)


def test_m8_a_warning_names_up_to_ten() -> None:
    storage = [sb(f"loc{n}", GEN3 - 8, 8) for n in range(12)]
    outcome = reserve(one(*storage))
    (message,) = outcome.messages
    assert [n for n in range(12) if f"`loc{n}`" in message.message] == list(range(10))
    assert message.message.startswith("12 allocated locations")
    assert "2 more" in message.message
    assert (message.function, message.function_id) == ("main", 0)
    (message,) = reserve(one(*storage[:10])).messages
    assert [n for n in range(12) if f"`loc{n}`" in message.message] == list(range(10))
    assert "more" not in message.message


def test_m8_r06_an_allocated_module_is_reported_never_moved() -> None:
    document = one(sb("a", GEN3 - 64, 64), sb("b", 0, 64))
    outcome = reserve(document)
    assert "`a`" in outcome.messages[0].message
    assert "`b`" not in outcome.messages[0].message
    assert storage_of(outcome.doc)[:2] == storage_of(document)


def test_m8_kernel_functions_are_not_looked_at() -> None:
    kernel = function("k", [sb("t", GEN3 - 8, 8)])
    assert reserve(module(function("main", [], call("C")), kernels=[kernel])).codes == []


def test_m8_no_warning_from_a_module_that_fails() -> None:
    negative = memory_set(SET, "Internal", location("x", tensor_id=-1))
    assert fault(one(negative, sb("a", GEN3 - 8, 8))).code == "unassigned_tensor_id"
