"""Rules N7 and N8, and where storage is appended (N3): the kernel's memory in the caller."""

from functools import partial
from typing import Any

import pytest

from tests.oracle.builders import access, call, function, location, loop, memory_set, module, op, register, sb_set
from tests.single_pass import Json, Passed, refused, run_pass

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")

GEN2, GEN3, GEN4 = 196_608, 229_376, 262_144


def storage_of(outcome: Passed, index: int = 0) -> list[Json]:
    assert outcome.status == "changed"
    return outcome.doc["functions"][index]["allocations"]


def added(outcome: Passed) -> list[Json]:
    """Storage that came from kernels."""
    return [s for s in storage_of(outcome) if ":" in s["name"]]


def addresses(outcome: Passed) -> list[int]:
    return [e["addr"] for s in added(outcome) for e in s["memorylocations"]]


def one(*storage: Json, actuals: tuple[Json, ...] = (), arch: Any = "gen3", **site: Any) -> Json:
    """A kernel with some storage, called once by `C`."""
    caller = function("main", list(actuals), call("C", **site))
    return module(caller, kernels=[function("k", list(storage), op("K"))], arch=arch)


def pad(addr: int, **more: Any) -> Json:
    return sb_set("pad_set", addr, **more)


def padded(*storage: Json, addr: int = 4096, arch: Any = "gen3", site: Json | None = None, **more: Any) -> Json:
    """The same with an SB scratchpad."""
    made = {"outs": [access("pad")], "sb_buf_shape": [128, 64]} | (site or {})
    return one(*storage, actuals=(pad(addr, **more),), arch=arch, **made)


# N7: the base


def test_n7_the_scratchpads_address_is_added() -> None:
    assert addresses(inline(padded(sb_set("t_set", 0), sb_set("u_set", 256)))) == [4096, 4352]


def test_n7_without_a_scratchpad_the_first_sb_output() -> None:
    actuals = (memory_set("d_set"), sb_set("s_set", 512), sb_set("z_set", 1024))
    document = one(
        sb_set("t_set", 8),
        actuals=actuals,
        ins=[access("z")],
        outs=[{"kind": "imm_value", "dtype": "int32", "value": 1}, access("d"), access("s"), access("z")],
    )
    assert addresses(inline(document)) == [520]


def test_n7_an_output_bound_to_a_parameter_may_give_the_base() -> None:
    formal = memory_set("c_set", "ExternalOutput", location("c", type="SB"))
    document = one(
        formal, sb_set("t_set", 8), actuals=(sb_set("s_set", 512),), outs=[access("s")], func_outs={"c": "s"}
    )
    assert addresses(inline(document)) == [520]


def test_n7_without_any_sb_output_0() -> None:
    assert addresses(inline(one(sb_set("t_set", 8)))) == [8]
    document = one(
        sb_set("t_set", 8), actuals=(sb_set("s_set", 512), memory_set("d_set")), ins=[access("s")], outs=[access("d")]
    )
    assert addresses(inline(document)) == [8]


def test_n7_n6_a_scratchpad_that_is_not_sb_gives_no_base() -> None:
    actuals = (sb_set("s_set", 512), memory_set("d_set", "Internal", location("d", addr=8000)))
    document = one(sb_set("t_set", 8), actuals=actuals, outs=[access("s"), access("d")], sb_buf_shape=[128, 64])
    assert addresses(inline(document)) == [520]
    document = one(sb_set("t_set", 8), actuals=actuals[1:], outs=[access("d")], sb_buf_shape=[128, 64])
    assert addresses(inline(document)) == [8]


def test_n7_the_scratchpad_goes_before_other_sb_outputs_and_psum_pads_follow_it() -> None:
    psum = memory_set("p_set", "Internal", location("p", type="PSUM", addr=2048, allocated=True))
    document = one(
        sb_set("t_set", 8),
        actuals=(sb_set("s_set", 512), pad(4096), psum),
        outs=[access("s"), access("pad"), access("p"), access("p")],
        sb_buf_shape=[128, 64],
        psum_buf_shape=[2, 128, 2048],
    )
    assert addresses(inline(document)) == [4104]


def test_n7_the_type_may_be_a_number() -> None:
    document = padded(memory_set("t_set", "Internal", location("t", type=16, addr=8)))
    document["functions"][0]["allocations"][0]["memorylocations"][0]["type"] = 16
    assert addresses(inline(document)) == [4104]


@pytest.mark.parametrize("base", [1, 32, 96, -32])
@pytest.mark.parametrize("allocated", [True, False])
def test_n7_a_scratchpad_that_does_not_start_at_partition_0(base: int, allocated: bool) -> None:
    message = fault(padded(base=base, allocated=allocated))
    assert message.code == "scratchpad_base"
    assert f"partition {base}" in message.message
    assert message.instruction == "C"


@pytest.mark.parametrize("base", [{}, {"base": 0}, {"base": None}])
def test_n7_a_scratchpad_at_partition_0(base: Json) -> None:
    assert addresses(inline(padded(sb_set("t_set", 8), **base))) == [4104]


def test_n7_the_base_partition_of_an_output_that_is_no_scratchpad_is_no_matter() -> None:
    document = one(sb_set("t_set", 8), actuals=(sb_set("s_set", 512, base=32),), outs=[access("s")])
    assert addresses(inline(document)) == [520]


PSUM = memory_set("u_set", "Internal", location("u", type="PSUM", allocated=True))


@pytest.mark.parametrize(
    ("storage", "site", "failed"),
    [
        ((sb_set("t_set", 0),), {}, True),
        ((sb_set("t_set", 0, allocated=False),), {}, False),
        ((sb_set("t_set", 0, allocated=False), PSUM), {}, True),
        ((PSUM,), {}, False),
        ((), {}, False),
        ((sb_set("t_set", 0),), {"is_allocated": False}, False),
        ((sb_set("t_set", 0, allocated=False),), {"is_allocated": True}, True),
        ((), {"is_allocated": True}, False),
    ],
)
def test_n7_an_allocated_kernel_with_sb_memory_needs_an_allocated_scratchpad(
    storage: tuple[Json, ...], site: Json, failed: bool
) -> None:
    for allocated in (False, None):
        document = padded(*storage, allocated=allocated, site=site)
        if failed:
            message = fault(document)
            assert (message.code, message.instruction) == ("scratchpad_unallocated", "C")
            assert "`pad`" in message.message
        else:
            assert inline(document).status == "changed"
    assert inline(padded(*storage, allocated=True, site=site)).status == "changed"


def test_n7_parameters_in_sb_count_for_that() -> None:
    formal = memory_set("a_set", "Input", location("a", type="SB", allocated=True))
    document = padded(formal, allocated=False, site={"func_args": {"a": "pad"}})
    assert fault(document).code == "scratchpad_unallocated"


def test_n7_an_sb_output_that_is_no_scratchpad_may_be_unallocated() -> None:
    document = one(sb_set("t_set", 8), actuals=(sb_set("s_set", 512, allocated=False),), outs=[access("s")])
    assert addresses(inline(document)) == [520]


def test_n7_each_call_site_has_its_own_base() -> None:
    document = padded(sb_set("t_set", 8))
    caller = document["functions"][0]
    caller["allocations"].append(sb_set("other_set", 9000))
    caller["blocks"][0]["instructions"].append(call("D", outs=[access("other")], sb_buf_shape=[128, 64]))
    assert addresses(inline(document)) == [4104, 9008]


# N8: what is made again


def test_n8_names_origin_and_the_rest() -> None:
    storage = memory_set(
        "t_set",
        "Const",
        location("t0", type="SB", addr=8, base=32, allocated=True, pinned=True, tensor_id=1, odd=[1, None]),
        location("t1", type="SB", addr=16, allocated=False),
        file="w.npy",
        unknown={"u": 2**70},
    )
    (made,) = added(inline(padded(storage)))
    assert made == storage | {
        "name": "C:t_set",
        "origin": "NKI",
        "memorylocations": [
            storage["memorylocations"][0] | {"name": "C:t0", "addr": 4104},
            storage["memorylocations"][1] | {"name": "C:t1", "addr": 4112},
        ],
    }
    assert list(made) == [*storage, "origin"]
    assert [list(e) for e in made["memorylocations"]] == [list(e) for e in storage["memorylocations"]]


def test_n8_f6_the_origin_stands_in_its_place_among_sorted_keys() -> None:
    storage = dict(sorted(memory_set("t_set").items()))
    (made,) = added(inline(one(storage)))
    assert list(made) == sorted({*storage, "origin"})


@pytest.mark.parametrize("origin", ["Internal", "Penguin", "NKI", "Odd", "", None])
def test_n8_an_origin_that_is_there_is_replaced_where_it_stands(origin: Any) -> None:
    storage = {"origin": origin, **memory_set("t_set")}
    (made,) = added(inline(one(storage)))
    assert made["origin"] == "NKI"
    assert list(made) == list(storage)


def test_n8_only_sets_get_an_origin() -> None:
    made = added(inline(one(sb_set("t_set", 0), register("r"), {"Skind": "odd", "name": "o"})))
    assert ["origin" in s for s in made] == [True, False, False]
    assert "origin" not in made[0]["memorylocations"][0]


@pytest.mark.parametrize("memory", ["DRAM", "PSUM", "Register", "Odd", 32, 8])
def test_n8_other_memory_keeps_its_address_and_bank(memory: Any) -> None:
    entry = location("t", type=memory, addr=72, bank=3, base=32)
    outcome = inline(padded(memory_set("t_set", "Internal", entry)))
    assert added(outcome)[0]["memorylocations"] == [entry | {"name": "C:t"}]


@pytest.mark.parametrize("allocated", [True, False, None])
def test_n8_n18_allocated_or_not_addresses_are_rebased_and_the_flag_is_kept(allocated: bool | None) -> None:
    outcome = inline(padded(sb_set("t_set", 8, allocated=allocated)))
    assert added(outcome)[0]["memorylocations"][0] == location("C:t", type="SB", addr=4104, allocated=allocated)


def test_n8_registers_and_storage_of_unknown_kinds() -> None:
    odd = {"Skind": "odd", "name": "o", "origin": "x", "memorylocations": [{"name": "m"}]}
    outcome = inline(one(register("r") | {"zz": 1}, odd))
    assert storage_of(outcome) == [register("C:r") | {"zz": 1}, odd | {"name": "C:o"}]


def test_n8_storage_without_a_kind_is_a_set() -> None:
    storage = memory_set("t_set", "Internal", location("t", type="SB", addr=8))
    del storage["Skind"]
    (made,) = added(inline(padded(storage)))
    assert (made["name"], made["origin"], made["memorylocations"][0]["addr"]) == ("C:t_set", "NKI", 4104)


def test_n8_parameters_are_not_made_again() -> None:
    formals = [memory_set("a_set", "Input"), memory_set("c_set", "Output")]
    document = one(
        formals[0],
        sb_set("t_set", 0),
        formals[1],
        actuals=(memory_set("x_set"),),
        ins=[access("x")],
        outs=[access("x")],
    )
    assert [s["name"] for s in storage_of(inline(document))] == ["x_set", "C:t_set"]


def test_n3_n8_storage_is_appended_call_site_by_call_site_in_the_callees_order() -> None:
    first = function(
        "k1", [memory_set("b_set"), register("r"), memory_set("a_set"), {"Skind": "odd", "name": "o"}], op("K")
    )
    second = function("k2", [register("s"), memory_set("t_set")], op("K"))
    inner = loop("L", "i", (0, 2, 1), call("B", "k2"))
    document = module(
        function("main", [register("own"), memory_set("x_set")], call("A", "k1"), inner, call("C", "k1")),
        function("late", [memory_set("y_set")], call("D", "k2")),
        kernels=[second, first],
    )
    outcome = inline(document)
    made = ["b_set", "r", "a_set", "o"]
    expected = ["own", "x_set", *(f"A:{n}" for n in made), "B:s", "B:t_set", *(f"C:{n}" for n in made)]
    assert [s["name"] for s in storage_of(outcome)] == expected
    assert [s["name"] for s in storage_of(outcome, 1)] == ["y_set", "D:s", "D:t_set"]


def test_n8_a_set_without_locations() -> None:
    storage = memory_set("t_set")
    storage["memorylocations"] = []
    bare = memory_set("u_set")
    del bare["memorylocations"]
    made = added(inline(one(storage, bare)))
    assert made == [storage | {"name": "C:t_set", "origin": "NKI"}, bare | {"name": "C:u_set", "origin": "NKI"}]


def test_r0_aliases_and_pointers_of_clones() -> None:
    storage = [
        memory_set("a_set", "Input"),
        memory_set("t_set"),
        memory_set("u_set", "Internal", location("u", alias=[["t", 3], ["a", 1], ["t_set", "t", 1], ["gone", 1]])),
        memory_set("v_set", "Pointer", location("v", pointer_ref_memloc="t")),
        memory_set("w_set", "Pointer", location("w", pointer_ref_memloc="a")),
    ]
    document = one(*storage, actuals=(memory_set("x_set"),), func_args={"a": "x"})
    made = [s["memorylocations"][0] for s in added(inline(document))]
    assert made[1]["alias"] == [["C:t", 3], ["x", 1], ["C:t_set", "C:t", 1], ["gone", 1]]
    assert (made[2]["pointer_ref_memloc"], made[3]["pointer_ref_memloc"]) == ("C:t", "x")


# N8: the capacity


@pytest.mark.parametrize("allocated", [True, False])
@pytest.mark.parametrize(
    ("arch", "capacity"), [("sunda", GEN2), ("trn1", GEN2), ("gen3", GEN3), ("trn2", GEN3), ("core_v4", GEN4)]
)
def test_n8_the_end_is_checked_against_the_capacity(arch: str, capacity: int, allocated: bool) -> None:
    fits = sb_set("t_set", capacity - 4096 - 64, allocated=allocated)
    assert addresses(inline(padded(fits, arch=arch))) == [capacity - 64]
    message = fault(padded(sb_set("t_set", capacity - 4096 - 63, allocated=allocated), arch=arch))
    assert message.code == "sb_overflow"
    assert all(str(n) in message.message for n in (4096, capacity - 4096 - 63, 64, capacity + 1, capacity))
    assert (message.instruction, message.location) == ("C", "t")


@pytest.mark.parametrize("address", [400_000, 2**31, 2**32, 2**40, 2**62, 2**63 - 64, 2**63 - 1])
def test_n03_an_address_far_above_does_not_wrap(address: int) -> None:
    message = fault(one(sb_set("t_set", address)))
    assert message.code == "sb_overflow"
    assert f"= {address + 64}, " in message.message


def test_n03_sizes_and_bases_far_above_do_not_wrap() -> None:
    for size in (2**62, 2**63 - 1):
        entry = location("t", [128, size], type="SB", addr=8)
        assert fault(one(memory_set("t_set", "Internal", entry))).code == "sb_overflow"
        assert fault(padded(sb_set("t_set", 0), addr=size)).code == "sb_overflow"


def test_n03_a_base_and_an_address_far_below_do_not_wrap() -> None:
    lowest = -(2**63) + 1
    assert addresses(inline(padded(sb_set("t_set", 7), sb_set("u_set", 0), addr=lowest))) == [lowest + 7, lowest]
    message = fault(padded(sb_set("t_set", 7), sb_set("u_set", -7), addr=lowest))
    assert (message.code, message.location) == ("sb_overflow", "u")
    assert f"= {lowest - 7}, " in message.message


def test_n8_the_first_location_that_does_not_fit_is_named() -> None:
    storage = (sb_set("t_set", 0), sb_set("u_set", GEN3), sb_set("v_set", GEN3 + 8))
    assert fault(one(*storage)).location == "u"


@pytest.mark.parametrize("memory", ["DRAM", "PSUM"])
def test_n8_other_memory_is_not_checked(memory: str) -> None:
    entry = location("t", type=memory, addr=2**40)
    assert addresses(inline(padded(memory_set("t_set", "Internal", entry)))) == [2**40]


def test_n8_parameters_are_not_checked() -> None:
    formal = memory_set("a_set", "Input", location("a", type="SB", addr=2**40))
    assert inline(one(formal, actuals=(memory_set("x_set"),), func_args={"a": "x"})).status == "changed"


@pytest.mark.parametrize("arch", ["gen9", "core_v5", "trn4", "inferentia9", None])
def test_n8_an_architecture_without_capacity(arch: str | None) -> None:
    message = fault(one(sb_set("t_set", 0), arch=arch))
    assert message.code == "unknown_arch"
    others = (memory_set("d_set"), PSUM, register("r"), memory_set("a_set", "Input", location("a", type="SB")))
    document = one(*others, arch=arch, actuals=(memory_set("x_set"),), func_args={"a": "x"})
    assert inline(document).status == "changed"


def test_n8_an_architecture_without_capacity_and_memory_that_ends_below_0() -> None:
    assert fault(one(sb_set("t_set", -100), arch=None)).code == "unknown_arch"
    assert addresses(inline(one(sb_set("t_set", -100)))) == [-100]


def test_n8_an_absent_architecture() -> None:
    document = one(sb_set("t_set", 0))
    del document["arch"]
    assert fault(document).code == "unknown_arch"


def test_n8_the_provenance_of_memory_in_the_tables() -> None:
    ir = inline(padded(sb_set("t_set", 8))).ir
    assert ir.locations.select("name", "addr", "bytes", "allocated").rows() == [
        ("pad", 4096, 64, True),
        ("C:t", 4104, 64, True),
    ]
    assert ir.sets["origin"].to_list() == [None, "NKI"]
