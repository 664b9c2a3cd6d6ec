"""The oracle of rules N1 to N9 (call-sites, binding, memory) against hand-worked documents."""

import copy
from typing import Any

import pytest

from tests.oracle import Outcome
from tests.oracle.builders import (
    Obj,
    access,
    allocations,
    call,
    function,
    location,
    loop,
    memory_set,
    module,
    names,
    op,
    register,
    row,
    rows,
    runtime,
    sb_set,
)
from tests.oracle.calls import MAPS, actuals, bare, edges, failure, inlined, kernel, one_call, walk

# N1, R4: call-sites and callees


def test_n1_call_sites_at_any_depth() -> None:
    doc = bare(op("K"))
    rows(doc).append(loop("L", "i", (0, 2, 1), call("D")))
    outcome = inlined(doc)
    assert names(outcome.doc) == ["p", "C_K", "z", "L"]
    assert [each["name"] for each in walk(row(outcome.doc, "L")["blocks"][0])] == ["D_K"]


def test_n1_recursion_is_found_whether_or_not_the_gate_passes() -> None:
    def cyclic(*, allocated: bool | None) -> Outcome:
        doc = module(
            function("main", [], call("C", "k1")),
            kernels=[
                function("k2", [], call("b", "k1")),
                function("k1", [], op("x"), call("a", "k2")),
            ],
        )
        return inlined(doc, allocated=allocated)

    for allocated in (None, True, False):
        outcome = cyclic(allocated=allocated)
        assert outcome.codes() == {("error", "recursive_kernel")}
        assert outcome.diagnostics[0].message.endswith(": k1 -> k2 -> k1")


def test_n1_self_recursion_and_unreached_cycles() -> None:
    itself = module(function("main", [], call("C")), kernels=[function("k", [], call("a"))])
    assert failure(itself) == "recursive_kernel"
    unreached = module(function("main", [], op("p")), kernels=[function("k", [], call("a"))])
    assert inlined(unreached).status == "unchanged"


def test_n1_chains_are_no_cycles() -> None:
    doc = module(
        function("main", [], call("C", "k1")),
        kernels=[function("k1", [], call("a", "k2"), call("b", "k2")), function("k2", [], op("x"))],
    )
    assert names(inlined(doc).doc) == ["C_a_x", "C_b_x"]


def test_r4_kernel_in_the_functions_list() -> None:
    doc = module(function("main", [], call("C")), function("k", [], op("K")))
    outcome = inlined(doc)
    assert [each["name"] for each in outcome.doc["functions"]] == ["main"]
    assert names(outcome.doc) == ["C_K"]


def test_r4_a_kernel_function_before_a_function_of_that_name() -> None:
    doc = module(
        function("main", [], call("C")),
        function("k", [], op("ordinary")),
        kernels=[function("k", [], op("K"))],
    )
    outcome = inlined(doc)
    assert names(outcome.doc) == ["C_K"]
    assert [each["name"] for each in outcome.doc["functions"]] == ["main", "k"]
    assert outcome.doc["nki_functions"] == {"functions": []}


def test_r4_ambiguous_callee() -> None:
    doc = module(function("main", [], call("C")), kernels=[function("k", []), function("k", [])])
    assert failure(doc) == "ambiguous_callee"
    named_twice = module(function("main", [], call("C")), function("k", []), function("k", []))
    assert failure(named_twice) == "ambiguous_callee"


@pytest.mark.parametrize("func", [None, "nobody"])
def test_n4_no_callee(func: str | None) -> None:
    outcome = inlined(module(function("main", [], call("C", func))))
    [found] = outcome.diagnostics
    assert (found.code, found.compiler_code) == ("no_callee", "NKI001")
    assert found.message == "NKI Kernel Instruction does not have a valid function"


# N2: the gate


def test_n2_status_of_the_callee() -> None:
    loose = kernel(storage=[memory_set("t_set", "Internal", location("t", type="SB"))])
    placed = kernel(storage=[memory_set("t_set", "Internal", location("t", type="PSUM", allocated=True))])
    dram = kernel(storage=[memory_set("t_set", "Internal", location("t", allocated=True))])
    for callee, status in ((loose, False), (placed, True), (dram, False)):
        taken = inlined(one_call(callee=callee), allocated=status)
        assert taken.status == "changed"
        left = inlined(one_call(callee=callee), allocated=not status)
        assert (left.status, left.codes()) == ("unchanged", {("note", "call_site_skipped")})
        assert inlined(one_call(callee=callee)).status == "changed"
    assert left.diagnostics[0].message.startswith("Skip lowering C because the allocation status")


def test_n2_recorded_status_wins() -> None:
    doc = one_call(is_allocated=True)
    assert inlined(doc, allocated=True).status == "changed"
    assert inlined(doc, allocated=False).status == "unchanged"
    other = one_call(flag=True, is_allocated="yes")
    assert inlined(other, allocated=True).status == "unchanged"
    assert inlined(other, allocated=True, allocated_key="flag").status == "changed"


def test_n2_n15_skipped_call_site_keeps_its_callee() -> None:
    doc = bare(op("K"))
    rows(doc).append(call("S", is_allocated=True))
    outcome = inlined(doc, allocated=False)
    assert names(outcome.doc) == ["p", "C_K", "z", "S"]
    assert [each["name"] for each in outcome.doc["nki_functions"]["functions"]] == ["k"]
    assert outcome.codes() == {("note", "call_site_skipped")}


# N4: binding


def test_n4_maps_by_location_and_by_set_as_objects_and_pairs() -> None:
    for maps in (
        MAPS,
        {"func_args": {"a_set": "x_set"}, "func_outs": {"c_set": "y"}},
        {"func_args": [["a", "x_set"]], "func_outs": [["c_set", "y"]]},
        # Both maps may name any parameter.
        {"func_args": {"c": "y", "a": "x"}, "func_outs": {}},
    ):
        outcome = inlined(one_call(**maps))
        assert row(outcome.doc, "C_K1")["ins"][0]["memref"] == "x"
        assert row(outcome.doc, "C_K2")["outs"][0]["memref"] == "y"


def test_n4_last_entry_wins() -> None:
    doc = one_call(func_args=[["a", "w"], ["a", "x"]], func_outs=[["c", "w"], ["a", "w"], ["c", "y"]])
    outcome = inlined(doc)
    assert row(outcome.doc, "C_K1")["ins"][0]["memref"] == "w"
    assert row(outcome.doc, "C_K2")["outs"][0]["memref"] == "y"


def test_n4_preferred_kinds() -> None:
    # One name for an input and an output formal, as in klr's files; and so for the actuals.
    storage = [memory_set("o_set", "Input", location("o")), memory_set("o_set", "Output", location("o"))]
    callee = function("k", storage, op("K", ins=[access("o")], outs=[access("o")]))
    sets = [memory_set("v_set", "Output", location("v", addr=1)), memory_set("v_set", "Input", location("v", addr=2))]
    caller = function("main", sets, call("C", func_args={"o": "v"}, func_outs={"o": "v"}))
    [made] = rows(inlined(module(caller, kernels=[callee])).doc)
    assert (made["ins"][0]["memref"], made["outs"][0]["memref"]) == ("v", "v")


def test_n4_by_position() -> None:
    storage = [memory_set("a1_set", "Input"), memory_set("c1_set", "Output"), memory_set("a2_set", "Input")]
    callee = function("k", storage, op("K", ins=[access("a1"), access("a2")], outs=[access("c1")]))
    ins = [
        {"kind": "imm_value", "dtype": "int32", "value": 1},
        {"kind": "register_access", "dtype": "int32", "regref": "r"},
        access("x"),
        {"kind": "register_ap", "memsetref": "w_set", "regref": "r"},
    ]
    doc = module(
        function("main", [*actuals(), register("r")], call("C", ins=ins, outs=[access("y")])), kernels=[callee]
    )
    [made] = rows(inlined(doc).doc)
    assert [each["memref"] for each in made["ins"] + made["outs"]] == ["x", "w", "y"]


def test_n4_by_position_skips_what_entries_of_the_map_name() -> None:
    storage = [memory_set("a1_set", "Input"), memory_set("a2_set", "Input")]
    callee = function("k", storage, op("K", ins=[access("a1"), access("a2")]))
    ins = [access("w"), access("x")]
    doc = module(function("main", actuals(), call("C", ins=ins, func_args={"a2": "w"})), kernels=[callee])
    [made] = rows(inlined(doc).doc)
    assert [each["memref"] for each in made["ins"]] == ["x", "w"]


def test_n4_outputs_by_position_without_scratchpads() -> None:
    outs = [access("y"), access("pad"), access("bank")]
    sets = [*actuals(), sb_set("pad_set"), memory_set("bank_set", "Internal", location("bank", type="PSUM"))]
    site = {"func_outs": {}, "outs": outs, "sb_buf_shape": [128, 64], "psum_buf_shape": [1, 128, 64]}
    outcome = inlined(one_call(sets=sets, **site))
    assert row(outcome.doc, "C_K2")["outs"][0]["memref"] == "y"
    site["outs"] = outs[1:]
    assert failure(one_call(sets=sets, **site)) == "unbound_parameter"
    site["outs"] = outs[2:]
    assert failure(one_call(sets=sets, **site)) == "scratchpad_count"


@pytest.mark.parametrize(
    ("site", "code"),
    [
        ({"func_args": {}}, "unbound_parameter"),
        ({"func_args": {"a": "x", "t": "w"}}, "unknown_parameter"),
        ({"func_args": {"a": "x", "q": "w"}}, "unknown_parameter"),
        ({"func_args": {"a": "nowhere"}}, "unresolved_name"),
        ({"func_args": {"a": "big"}}, "parameter_size_mismatch"),
        ({"func_args": {"a": "two_set"}}, "parameter_location_count"),
        ({"func_args": {}, "ins": [access("nowhere")]}, "unresolved_name"),
        ({"kernel_source_val": "Beta4"}, "unknown_kernel_source"),
        ({"kernel_source_val": 3}, "unknown_kernel_source"),
        ({"sync_info": {"on_wait": []}}, "call_site_not_plain"),
        ({"predicates": [{}]}, "call_site_not_plain"),
    ],
)
def test_n4_n9_n14_faults_of_a_call_site(site: Obj, code: str) -> None:
    sets = [
        *actuals(),
        memory_set("big_set", "Internal", location("big", [128, 65])),
        memory_set("two_set", "Internal", location("t1"), location("t2")),
    ]
    assert failure(one_call(sets=sets, **site)) == code


def test_n4_formal_without_exactly_one_location() -> None:
    callee = kernel()
    callee["allocations"][0]["memorylocations"].append(location("a2"))
    outcome = inlined(one_call(callee=callee))
    [found] = outcome.diagnostics
    assert (found.code, found.compiler_code) == ("parameter_location_count", "NKI006")


def test_n4_size_counts_bytes_not_shapes() -> None:
    sets = actuals()
    sets[0]["memorylocations"][0]["dims"] = [64, 128]
    assert inlined(one_call(sets=sets)).status == "changed"


def test_n4_registers_bind_through_the_maps() -> None:
    callee = function("k", [register("ra"), register("rb")], op("K", v=runtime("ra"), ins=[{"regref": "rb"}]))
    caller = function("main", [register("r0"), memory_set("x_set")], call("C", func_args={"ra": "r0"}))
    outcome = inlined(module(caller, kernels=[callee]))
    [made] = rows(outcome.doc)
    assert made["v"] == runtime("r0")
    assert made["ins"] == [{"regref": "C:rb"}]
    assert list(allocations(outcome.doc)) == ["r0", "x_set", "C:rb"]
    rows_doc = module(copy.deepcopy(caller), kernels=[callee])
    rows(rows_doc)[0]["func_args"] = {"ra": "x"}
    assert failure(rows_doc) == "unresolved_name"


def test_n5_no_capture() -> None:
    storage = [memory_set("a_set", "Input"), memory_set("b_set", "Input")]
    callee = function("k", storage, op("K", ins=[access("a"), access("b")]))
    sets = [memory_set("a_set"), memory_set("b_set")]
    caller = function("main", sets, call("C", func_args={"a": "b", "b": "a"}))
    [made] = rows(inlined(module(caller, kernels=[callee])).doc)
    assert [each["memref"] for each in made["ins"]] == ["b", "a"]


def test_n4_a_set_operand_stands_for_its_location() -> None:
    # The first operand is what the entry names, by its set; the second one has two locations.
    storage = [memory_set("a1_set", "Input"), memory_set("a2_set", "Input")]
    callee = function("k", storage, op("K", ins=[access("a1"), access("a2")]))
    sets = [memory_set("x_set"), memory_set("two_set", "Internal", location("t1"), location("t2"))]
    by_set = [{"kind": "register_ap", "memsetref": name} for name in ("x_set", "two_set")]
    caller = function("main", sets, call("C", ins=by_set, func_args={"a1": "x"}))
    assert failure(module(caller, kernels=[callee])) == "parameter_location_count"
    caller = function("main", sets, call("C", ins=[by_set[0], access("t2")], func_args={"a1": "x"}))
    [made] = rows(inlined(module(caller, kernels=[callee])).doc)
    assert [each["memref"] for each in made["ins"]] == ["x", "t2"]


def test_n4_location_names_before_set_names() -> None:
    sets = [memory_set("x", "Internal", location("other")), *actuals()]
    assert row(inlined(one_call(sets=sets)).doc, "C_K1")["ins"][0]["memref"] == "x"
    only_set = [memory_set("x", "Internal", location("other")), *actuals()[1:]]
    assert row(inlined(one_call(sets=only_set)).doc, "C_K1")["ins"][0]["memref"] == "other"


# N6, N7, N8: memory


def scratch_call(callee_addr: int = 16, pad: Obj | None = None, **site: Any) -> Obj:
    place = sb_set("pad_set", 1000) if pad is None else pad
    options = {"outs": [access("y"), access("pad")], "sb_buf_shape": [128, 64]} | site
    return one_call(callee=kernel(storage=[sb_set("t_set", callee_addr)]), sets=[*actuals(), place], **options)


def address(outcome: Outcome) -> Any:
    return allocations(outcome.doc)["C:t_set"]["memorylocations"][0]["addr"]


def test_n7_base_is_the_scratchpads_address() -> None:
    assert address(inlined(scratch_call())) == 1016


def test_n7_without_a_scratchpad_the_first_sb_output_else_0() -> None:
    doc = scratch_call(sb_buf_shape=[0, 0], psum_buf_shape=None)
    assert address(inlined(doc)) == 1016
    doc = scratch_call(sb_buf_shape=None, outs=[access("y")])
    assert address(inlined(doc)) == 16


def test_n6_not_sb_in_the_scratchpads_place() -> None:
    # `y` is DRAM: it gives no base, the SB output before it does; `y` still binds nothing by position.
    site = {"outs": [access("pad"), access("y")], "func_outs": {}}
    outcome = inlined(scratch_call(**site))
    assert address(outcome) == 1016
    assert row(outcome.doc, "C_K2")["outs"][0]["memref"] == "pad"


def test_n7_scratchpad_faults() -> None:
    assert failure(scratch_call(pad=sb_set("pad_set", 0, base=32))) == "scratchpad_base"
    loose = sb_set("pad_set", 0, allocated=False)
    assert failure(scratch_call(pad=loose)) == "scratchpad_unallocated"
    # A kernel that is recorded as not allocated, and one without SB, take such a scratchpad.
    assert inlined(scratch_call(pad=loose, is_allocated=False)).status == "changed"
    doc = scratch_call(pad=loose, is_allocated=True)
    doc["nki_functions"]["functions"] = [kernel()]
    assert inlined(doc).status == "changed"


def test_n8_overflow_and_arch() -> None:
    fits = 229376 - 1000 - 64
    assert address(inlined(scratch_call(fits))) == fits + 1000
    assert failure(scratch_call(fits + 1)) == "sb_overflow"
    unknown = scratch_call() | {"arch": "gen9"}
    assert failure(unknown) == "unknown_arch"
    assert inlined(one_call() | {"arch": "gen9"}).status == "changed"


@pytest.mark.parametrize(
    ("arch", "capacity"), [("tonga", 98304), ("trn1", 196608), ("cayman", 229376), ("trn3", 262144)]
)
def test_n8_capacity_of_each_arch(arch: str, capacity: int) -> None:
    fits = scratch_call(capacity - 1064) | {"arch": arch}
    assert address(inlined(fits)) == capacity - 64
    assert failure(scratch_call(capacity - 1063) | {"arch": arch}) == "sb_overflow"
    assert failure(scratch_call() | {"arch": "core_v5"}) == "unknown_arch"


def test_n8_storage_is_recreated() -> None:
    storage = [
        register("r"),
        memory_set("t_set", "Internal", location("t", type="PSUM", addr=3, bank=2), location("t2"), zz=[1]),
        {"Skind": "oddity", "name": "o", "memorylocations": 7},
        memory_set("w_set", "Const", location("w", allocated=False)),
    ]
    outcome = inlined(one_call(callee=kernel(storage=storage)))
    made = outcome.doc["functions"][0]["allocations"]
    assert [each["name"] for each in made[:3]] == ["x_set", "y_set", "w_set"]
    assert [each["name"] for each in made[3:]] == ["C:r", "C:t_set", "C:o", "C:w_set"]
    assert made[3] == register("C:r")
    assert made[4] == storage[1] | {
        "name": "C:t_set",
        "origin": "NKI",
        "memorylocations": [
            location("C:t", type="PSUM", addr=3, bank=2),
            location("C:t2"),
        ],
    }
    assert made[5] == {"Skind": "oddity", "name": "C:o", "memorylocations": 7}


def test_n8_f6_where_origin_stands() -> None:
    unsorted_set = memory_set("t_set")
    outcome = inlined(one_call(callee=kernel(storage=[unsorted_set])))
    assert list(allocations(outcome.doc)["C:t_set"]) == [*unsorted_set, "origin"]
    sorted_set = dict(sorted(unsorted_set.items()))
    outcome = inlined(one_call(callee=kernel(storage=[sorted_set])))
    keys = list(allocations(outcome.doc)["C:t_set"])
    assert keys == sorted(keys)
    with_origin = {"origin": "Penguin"} | unsorted_set
    outcome = inlined(one_call(callee=kernel(storage=[with_origin])))
    assert next(iter(allocations(outcome.doc)["C:t_set"].items())) == ("origin", "NKI")


def test_n8_names_inside_storage_follow() -> None:
    storage = [
        memory_set(
            "t_set",
            "Internal",
            location("t", alias=[["u_set", "u", 3], ["a", 1], ["gone", 1]], pointer_ref_memloc="u"),
        ),
        memory_set("u_set"),
    ]
    outcome = inlined(one_call(callee=kernel(storage=storage)))
    [place] = allocations(outcome.doc)["C:t_set"]["memorylocations"]
    assert place["alias"] == [["C:u_set", "C:u", 3], ["x", 1], ["gone", 1]]
    assert place["pointer_ref_memloc"] == "C:u"


def test_n3_n8_order_is_by_call_site() -> None:
    doc = one_call()
    rows(doc).append(call("D", **MAPS))
    outcome = inlined(doc)
    assert list(allocations(outcome.doc))[3:] == ["C:t_set", "D:t_set"]
    assert names(outcome.doc) == ["C_K1", "C_K2", "D_K1", "D_K2"]


def test_r6_fresh_names() -> None:
    doc = one_call(op("C_K1"), sets=[*actuals(), memory_set("C:t_set"), memory_set("s", "Internal", location("C:t.1"))])
    rows(doc).append(call("C", **MAPS))
    outcome = inlined(doc)
    assert names(outcome.doc) == ["C_K1", "C_K1.1", "C_K2", "C_K1.2", "C_K2.1"]
    assert edges(outcome, "C_K2.1") == [["C_K1.2", "Flow"]]
    assert list(allocations(outcome.doc))[5:] == ["C:t_set.1", "C:t_set.2"]
    assert [each["memorylocations"][0]["name"] for each in outcome.doc["functions"][0]["allocations"][5:]] == [
        "C:t.2",
        "C:t.3",
    ]
    assert row(outcome.doc, "C_K1.2")["outs"][0]["memref"] == "C:t.3"
