"""Rule R6, fresh names; and cases that people met elsewhere, by their numbers: names, cycles, order, memory."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import arrowir as air
from arrowir import vocabulary
from arrowir.names import fresh_names
from arrowir.passes.inlining.size import MAX_NESTING
from arrowir.store import Strings
from tests.oracle.builders import (
    access,
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
    sb_set,
)
from tests.single_pass import Json, Passed, read, refused, run_pass, written

inline = partial(run_pass, "inline_nki_kernel")
fault = partial(refused, "inline_nki_kernel")

ROOT = Path(__file__).parents[2]


def kernels(*functions: Json, main: tuple[Json, ...], storage: tuple[Json, ...] = ()) -> Json:
    return module(function("main", list(storage), *main), kernels=list(functions))


def allocated_names(outcome: Passed) -> list[str]:
    return [s["name"] for s in outcome.doc["functions"][0]["allocations"]]


def location_names(outcome: Passed) -> list[str]:
    sets = outcome.doc["functions"][0]["allocations"]
    return [e["name"] for s in sets for e in s.get("memorylocations", [])]


# R6: the rule itself


def free(taken: list[str], wanted: list[str]) -> list[str]:
    scopes = [np.zeros(len(n), np.int32) for n in (taken, wanted)]
    return fresh_names(Strings.of(taken), scopes[0], Strings.of(wanted), scopes[1]).tolist()


@pytest.mark.parametrize(
    ("taken", "wanted", "given_"),
    [
        ([], [], []),
        ([], ["a"], ["a"]),
        (["b"], ["a", "c"], ["a", "c"]),
        (["a"], ["a"], ["a.1"]),
        (["a", "a.1"], ["a"], ["a.2"]),
        (["a", "a.2"], ["a", "a"], ["a.1", "a.3"]),
        ([], ["a", "a", "a"], ["a", "a.1", "a.2"]),
        ([], ["a", "a", "a.1"], ["a", "a.1", "a.1.1"]),
        ([], ["a.1", "a", "a"], ["a.1", "a", "a.2"]),
        (["a", "a", "a"], ["a"], ["a.1"]),
        (["", "é\U0001f600"], ["", "é\U0001f600"], [".1", "é\U0001f600.1"]),
        (["a", *(f"a.{n}" for n in range(1, 12))], ["a", "a"], ["a.12", "a.13"]),
        (["a", *(f"a.{n}" for n in range(1, 10))], ["a", "a"], ["a.10", "a.11"]),
        (["a", *(f"a.{n}" for n in range(1, 100))], ["a"], ["a.100"]),
        (["a.01", "a.1.", "a1", ".1"], ["a", "a"], ["a", "a.1"]),
    ],
)
def test_r6_the_first_suffix_that_is_free(taken: list[str], wanted: list[str], given_: list[str]) -> None:
    assert free(taken, wanted) == given_


def test_r6_each_scope_is_a_space_of_its_own() -> None:
    taken, wanted = Strings.of(["a", "b"]), Strings.of(["a", "a", "b", "b"])
    found = fresh_names(taken, np.array([0, 1], np.int32), wanted, np.array([0, 1, 1, 0], np.int32))
    assert found.tolist() == ["a.1", "a", "b.1", "b"]


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", ".1", ".2", ".1.1", ".10"]), st.integers(0, 1))),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", ".1", ".2", ".1.1", ".10"]), st.integers(0, 1))),
)
def test_r6_against_a_plain_search(taken: list[tuple[str, str, int]], wanted: list[tuple[str, str, int]]) -> None:
    known = {(a + b, scope) for a, b, scope in taken}
    expected: list[str] = []
    for a, b, scope in wanted:
        name, number = a + b, 0
        while (name, scope) in known:
            number += 1
            name = f"{a}{b}.{number}"
        known.add((name, scope))
        expected.append(name)
    columns = [
        (Strings.of([a + b for a, b, _ in part]), np.array([s for *_, s in part], np.int32)) for part in (taken, wanted)
    ]
    assert fresh_names(*columns[0], *columns[1]).tolist() == expected


# R6: the spaces of names, in inlining


def test_r6_each_kind_is_a_space_of_its_own() -> None:
    """Names of one kind are no matter for the others; registers share theirs with storage of unknown kinds."""
    callee = function("k", [memory_set("n", "Internal", location("n")), register("n")], op("n"), op("m"))
    caller_storage = (memory_set("C:x"), register("C_n"), memory_set("y", "Internal", location("C:x")))
    outcome = inline(kernels(callee, main=(call("C"), op("C:n")), storage=caller_storage))
    assert names(outcome.doc) == ["C_n", "C_m", "C:n"]
    assert allocated_names(outcome)[3:] == ["C:n", "C:n"]
    assert location_names(outcome)[2:] == ["C:n"]


@pytest.mark.parametrize(
    ("storage", "made"),
    [
        (memory_set("C:n", "Internal", location("x")), ["C:n.1", "C:n", "C:n"]),
        (memory_set("x", "Internal", location("C:n")), ["C:n", "C:n.1", "C:n"]),
        (register("C:n"), ["C:n", "C:n", "C:n.1"]),
        ({"Skind": "odd", "name": "C:n"}, ["C:n", "C:n", "C:n.1"]),
        (memory_set("C:n", "Internal", location("C:n")), ["C:n.1", "C:n.1", "C:n"]),
    ],
)
def test_r6_a_taken_name_of_the_kind_gets_a_suffix(storage: Json, made: list[str]) -> None:
    callee = function("k", [memory_set("n", "Internal", location("n")), register("n")], op("K", ins=[access("n")]))
    outcome = inline(kernels(callee, main=(call("C"),), storage=(storage,)))
    entries = outcome.doc["functions"][0]["allocations"]
    assert entries[0] == storage
    assert [entries[1]["name"], entries[1]["memorylocations"][0]["name"], entries[2]["name"]] == made
    assert row(outcome.doc, "C_K")["ins"] == [access(made[1])]


def test_r6_nested_blocks_are_part_of_the_space() -> None:
    inner = loop("C_K", "i", (0, 1, 1), op("C_L"), call("D"))
    outcome = inline(kernels(function("k", [], op("K"), op("L")), main=(call("C"), inner, op("D_K"))))
    assert names(outcome.doc) == ["C_K.1", "C_L.1", "C_K", "D_K"]
    assert [i["name"] for i in rows(outcome.doc)[2]["blocks"][0]["instructions"]] == ["C_L", "D_K.1", "D_L"]


def test_r6_another_function_is_another_space() -> None:
    document = module(
        function("main", [], call("C")),
        function("other", [memory_set("C:t_set")], op("C_K")),
        kernels=[function("k", [memory_set("t_set")], op("K"))],
    )
    outcome = inline(document)
    assert names(outcome.doc) == ["C_K"]
    assert allocated_names(outcome) == ["C:t_set"]


def test_r6_names_of_rows_that_go_are_taken_too() -> None:
    document = kernels(function("k", [], op("K")), function("k2", [], op("L")), main=(call("C"), call("C_K", "k2")))
    assert names(inline(document).doc) == ["C_K.1", "C_K_L"]


def test_r6_fresh_names_are_taken_in_row_order() -> None:
    inner = loop("L", "i", (0, 1, 1), call("C"))
    outcome = inline(kernels(function("k", [memory_set("t_set")], op("K")), main=(inner, call("C"), call("C"))))
    assert names(outcome.doc) == ["L", "C_K", "C_K.1"]
    assert rows(outcome.doc)[0]["blocks"][0]["instructions"][0]["name"] == "C_K.2"
    assert allocated_names(outcome) == ["C:t_set", "C:t_set.1", "C:t_set.2"]


def test_r6_a_body_that_has_a_name_twice() -> None:
    body = (op("K"), op("K", dependencies=["K"]), op("K.1", dependencies=["K"]))
    outcome = inline(kernels(function("k", [], *body), main=(call("C"),)))
    assert names(outcome.doc) == ["C_K", "C_K.1", "C_K.1.1"]
    assert [i.get("dependencies") for i in rows(outcome.doc)] == [None, ["C_K"], ["C_K.1"]]


def test_r6_helpers_take_free_names_too() -> None:
    many = [op(f"K{n}") for n in range(9)]
    main = (op("C_done"), call("C", dependencies=["C_done", "C_done"]), op("z", dependencies=["C"]))
    outcome = inline(kernels(function("k", [], op("start"), *many), main=main))
    made = names(outcome.doc)
    assert made[:4] == ["C_done", "C_start", "C_start.1", "C_K0"]
    assert made[-2:] == ["C_done.1", "z"]
    assert row(outcome.doc, "z")["dependencies"] == ["C_done.1"]
    assert row(outcome.doc, "C_start.1")["dependencies"] == [["C_start", "Ordered"]]


def test_r6_names_of_the_caller_stay_even_where_they_are_not_unique() -> None:
    document = kernels(function("k", [], op("K")), main=(op("C_K"), call("C"), op("C_K")))
    assert names(inline(document).doc) == ["C_K", "C_K.1", "C_K"]


# names: cases


def test_m01_a_kernels_memory_is_called_like_the_callers() -> None:
    body = op("K", ins=[access("x")], outs=[access("C:x")])
    callee = function("k", [memory_set("x_set"), memory_set("C:x_set")], body)
    main = (op("p", ins=[access("x"), access("C:x")]), call("C"))
    outcome = inline(kernels(callee, main=main, storage=(memory_set("x_set"), memory_set("C:x_set"))))
    assert location_names(outcome) == ["x", "C:x", "C:x.1", "C:C:x"]
    assert rows(outcome.doc)[0] == main[0]
    made = row(outcome.doc, "C_K")
    assert (made["ins"][0]["memref"], made["outs"][0]["memref"]) == ("C:x.1", "C:C:x")


def test_m02_m11_two_call_sites_that_both_clash_have_names_of_their_own() -> None:
    callee = function("k", [memory_set("t_set")], op("K", ins=[access("t")]), op("L", outs=[access("t")]))
    storage = tuple(memory_set(f"{site}:t_set") for site in "AB")
    outcome = inline(kernels(callee, main=(op("A_K"), call("A"), call("B"), op("B_L")), storage=storage))
    assert names(outcome.doc) == ["A_K", "A_K.1", "A_L", "B_K", "B_L.1", "B_L"]
    assert location_names(outcome) == ["A:t", "B:t", "A:t.1", "B:t.1"]
    assert [[o["memref"] for o in i["ins"] + i["outs"]] for i in rows(outcome.doc)[1:5]] == [
        ["A:t.1"],
        ["A:t.1"],
        ["B:t.1"],
        ["B:t.1"],
    ]
    ir = outcome.ir
    of_row, of_location = (ir.array(table, "call_chain_id") for table in ("instructions", "locations"))
    operands = ir.tables["operands"]
    assert (of_row[operands["instruction_id"]] == of_location[operands["location_id"]]).all()


def test_m04_constants_of_one_name_are_both_kept() -> None:
    def constant_kernel(name: str, file: str) -> Json:
        constant = memory_set("__constant_4xi8", "Const", location("__constant_4xi8"), file=file)
        return function(name, [constant], op("K", ins=[access("__constant_4xi8")]))

    callees = (constant_kernel("k", "one.npy"), constant_kernel("k2", "two.npy"))
    outcome = inline(kernels(*callees, main=(call("A"), call("B", "k2"))))
    entries = outcome.doc["functions"][0]["allocations"]
    assert [(s["name"], s["file"]) for s in entries] == [
        ("A:__constant_4xi8", "one.npy"),
        ("B:__constant_4xi8", "two.npy"),
    ]
    assert row(outcome.doc, "B_K")["ins"][0]["memref"] == "B:__constant_4xi8"


def test_m09_prefixes_that_begin_alike() -> None:
    document = kernels(
        function("k", [memory_set("t")], op("K")),
        function("k2", [memory_set("B:t")], op("B_K")),
        main=(call("A_B"), call("A", "k2"), call("A:B"), op("A_B_")),
    )
    outcome = inline(document)
    assert names(outcome.doc) == ["A_B_K", "A_B_K.1", "A:B_K", "A_B_"]
    assert allocated_names(outcome) == ["A_B:t", "A:B:t", "A:B:t.1"]


PROGRAM = """
import sys
import arrowir as air
ir = air.concat([air.read_json(path) for path in sys.argv[1:]])
result = air.run(ir)
for number in range(len(ir)):
    sys.stdout.buffer.write(result.ir.to_json(number))
sys.stdout.buffer.write(repr(result.diagnostics.rows()).encode())
"""


def test_m14_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    callee = function("k", [memory_set("t_set"), register("r")], op("K"), op("K"), op("L", odd={"z": 1, "a": 2}))
    document = kernels(callee, main=(call("A"), call("B", is_allocated=True), call("A")))
    paths = [ROOT / "data" / "samples" / "bir_json_example.json", tmp_path / "m.json"]
    paths[1].write_bytes(written(document))
    out: list[bytes] = []
    for seed in ("0", "1"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *map(str, paths)], env=environment, capture_output=True, check=True
        )
        out.append(done.stdout)
    assert out[0] == out[1]
    assert b"A_K.1" in out[0]


def test_m17_names_of_any_characters() -> None:
    odd = ["/ : - # space", "\U0001f600 ü", "\x00\x01\n", "x" * 300, ""]
    body = tuple(op(name, ins=[access(name)], dependencies=odd[:n][-1:]) for n, name in enumerate(odd))
    storage = [memory_set(name, "Internal", location(name)) for name in odd]
    main = [op("p"), *(call(name) for name in odd)]
    outcome = inline(kernels(function("k", storage, *body), main=tuple(main)))
    assert names(outcome.doc) == ["p", *(f"{site}_{name}" for site in odd for name in odd)]
    assert location_names(outcome) == [f"{site}:{name}" for site in odd for name in odd]
    made = rows(outcome.doc)[1:]
    assert [i["ins"][0]["memref"] for i in made] == location_names(outcome)
    assert made[6]["dependencies"] == [f"{odd[1]}_{odd[0]}"]


def test_n11_indirect_operands_at_two_call_sites() -> None:
    operand = {
        "kind": "register_ap",
        "dtype": "float32",
        "ap": [[16, 128], [1, 16]],
        "memsetref": "a_set",
        "regref": "r",
        "offset": 3,
    }
    callee = function("k", [memory_set("a_set", "Input"), register("r")], op("K", ins=[operand]))
    main = (call("A", func_args={"a": "x"}), call("B", func_args={"a": "y"}))
    outcome = inline(kernels(callee, main=main, storage=(memory_set("x_set"), memory_set("y_set"))))
    for site, actual in (("A", "x_set"), ("B", "y_set")):
        made = row(outcome.doc, f"{site}_K")["ins"]
        assert made == [operand | {"memsetref": actual, "regref": f"{site}:r"}]
    assert outcome.ir.operands["set_id"].to_list() == [0, 1]


def test_n25_functions_of_one_name_are_never_merged() -> None:
    twins = [function("add_computation", [memory_set(f"{n}_set")], op(n)) for n in "ab"]
    document = module(
        function("main", [], op("J", "Call", target="add_computation", arguments={}), call("C")),
        *twins,
        kernels=[function("k", [], op("K"))],
    )
    outcome = inline(document)
    assert outcome.doc["functions"][1:] == twins
    assert outcome.before.calls.filter(pl.col("instruction_id") == 0)["candidates"].to_list() == [2]
    message = fault(kernels(*twins, main=(call("C", "add_computation"),)))
    assert (message.code, message.instruction) == ("ambiguous_callee", "C")
    assert "2 functions are named `add_computation`" in message.message


# cycles: cases


def test_t01_t03_t11_cycles_of_each_length() -> None:
    for length in (1, 2, 3, 7):
        ring = [function(f"k{n}", [], op("K"), call("X", f"k{(n + 1) % length}")) for n in range(length)]
        message = fault(kernels(*ring, main=(call("C", "k0"),)))
        assert message.code == "recursive_kernel"
        path = " -> ".join(f"k{n % length}" for n in range(length + 1))
        assert f": {path};" in message.message


def test_t04_t12_the_module_of_the_cycle_fails_and_says_which() -> None:
    good = [function(f"g{n}", [], op("K")) for n in range(10)]
    bad = function("again", [], call("X", "again"))
    broken = kernels(*good, bad, main=(*(call(f"C{n}", f"g{n}") for n in range(10)), call("D", "again")))
    sound = kernels(*good, main=tuple(call(f"C{n}", f"g{n}") for n in range(10)))
    result = air.passes.inline_nki_kernel(air.concat([read(broken, "broken"), read(sound, "sound")]))
    assert result.status.to_list() == ["failed", "changed"]
    found = result.diagnostics.select("module", "severity", "code", "message").rows()
    assert found[0][:3] == ("broken", "error", "recursive_kernel")
    assert "again -> again" in found[0][3]
    assert len(found) == 1
    assert result.ir.to_json(0) == written(broken)


def test_t06_ten_thousand_functions_and_one_small_cycle() -> None:
    count = 10_000
    callees = [function(f"k{n}", [], op("K")) for n in range(count)]
    callees += [function("tick", [], call("X", "tock")), function("tock", [], call("Y", "tick"))]
    document = kernels(*callees, main=tuple(call(f"C{n}", f"k{n}") for n in range(count)))
    sound = read(document)
    rows(document).append(call("D", "tick"))
    result = air.passes.inline_nki_kernel(air.concat([read(document), sound]))
    assert result.status.to_list() == ["failed", "changed"]
    assert result.diagnostics["code"].to_list() == ["recursive_kernel"]
    assert "tick -> tock -> tick" in result.diagnostics["message"][0]
    clones = result.ir.instructions.filter(pl.col("kernel").is_not_null())
    assert (clones["module_id"] == 1).all()
    assert clones["kernel"].to_list() == [f"k{n}" for n in range(count)]


def chain_of(depth: int, *last: Json) -> Json:
    """`main` calls `k0`, each kernel the next, and `k<depth>` has the last rows."""
    links = [function(f"k{n}", [], call("X", f"k{n + 1}")) for n in range(depth)]
    return kernels(*links, function(f"k{depth}", [], *last), main=(call("C", "k0"),))


def test_t08_a_chain_of_60_kernels() -> None:
    depth = 60
    outcome = inline(chain_of(depth, op("K")))
    assert names(outcome.doc) == ["_".join(["C", *["X"] * depth, "K"])]
    assert outcome.doc["nki_functions"] == {"functions": []}
    (made,) = outcome.ir.instructions.rows(named=True)
    assert (made["original_name"], made["kernel"], made["depth"]) == ("K", f"k{depth}", depth + 1)
    parents = outcome.ir.call_chains.select("id", "parent_id", "name").rows()
    assert [name for _, _, name in parents] == ["C", *["X"] * depth]
    assert [parent for _, parent, _ in parents] == [None, *(chain for chain, _, _ in parents[:-1])]


def test_t08_a_chain_of_5000_kernels() -> None:
    depth = 5_000
    good = kernels(function("k", [], op("K")), main=(call("C"),))
    result = air.passes.inline_nki_kernel(air.concat([read(chain_of(depth, op("K")), "deep"), read(good, "good")]))
    assert result.status.to_list() == ["failed", "changed"]
    (message,) = result.messages
    assert (message.code, message.module) == ("not_supported", "deep")
    assert f"more than {MAX_NESTING:,} levels deep" in message.message
    assert MAX_NESTING == 1_000


def test_t08_a_ring_of_5000_kernels() -> None:
    depth = 5_000
    message = fault(chain_of(depth, call("X", "k0")))
    assert message.code == "recursive_kernel"
    assert f"k{depth - 1} -> k{depth} -> k0;" in message.message


def test_t06_a_ladder_of_calls_is_walked_once_per_call() -> None:
    """Each rung is named twice by the one above: a walk that forgets where it has been takes 2^60 steps."""
    ladder = [function(f"k{n}", [], call("X", f"k{n + 1}"), call("Y", f"k{n + 1}")) for n in range(60)]
    document = kernels(*ladder, function("k60", [], op("K")), main=(call("C", "k0"),))
    message = fault(document)
    assert message.code == "too_many_instructions"
    assert "25,000,000 allowed" in message.message


# order and memory: cases


def test_f10_no_text_names_what_was_removed() -> None:
    inner = op("L", dependencies=["K"], sync_info={"on_wait": [{"from": "K", "id": 1}]})
    callee = function("kern", [memory_set("a_set", "Input"), sb_set("t_set", 0)], op("K", ins=[access("a")]), inner)
    main = (op("p"), call("Site", "kern", func_args={"a": "x"}, dependencies=["p"]), op("z", dependencies=["Site"]))
    outcome = inline(kernels(callee, main=main, storage=(memory_set("x_set"),)))
    text = outcome.ir.to_json(0).decode()
    assert '"kern"' not in text
    assert '"Site"' not in text
    assert '"a"' not in text


def test_f12_the_input_stays_and_the_tables_map_new_to_old() -> None:
    callee = function("k", [sb_set("t_set", 0), register("r")], op("K"), op("L"))
    outcome = inline(kernels(callee, main=(op("p"), call("C"), call("D"))))
    before, after = outcome.before, outcome.ir
    assert before.call_chains.height == 0
    originals = before.instructions.join(before.functions, left_on="function_id", right_on="id").select(
        kernel="name_right", original_name="name"
    )
    clones = after.instructions.filter(pl.col("original_name").is_not_null())
    assert clones.select("name", "kernel", "original_name").rows() == [
        ("C_K", "k", "K"),
        ("C_L", "k", "L"),
        ("D_K", "k", "K"),
        ("D_L", "k", "L"),
    ]
    matched = clones.join(originals, on=["kernel", "original_name"], how="semi")
    assert matched.height == clones.height


def test_n12_a_pinned_region_and_what_reaches_into_it() -> None:
    pinned = memory_set("s", "Internal", location("DynamicDMAScratchLoc", [128, 16_384], type="SB", pinned=True))
    document = module(function("main", [pinned, sb_set("late_set", 16_376)]))
    outcome = run_pass("runtime_memory_reservation", document, reserved_name="DynamicDMAScratchLoc")
    assert outcome.codes == [("warning", "reservation_overlaps")]
    assert "`late`" in outcome.messages[0].message
    assert "[0, 16384)" in outcome.messages[0].message
    beside = module(function("main", [pinned, sb_set("late_set", 16_384)]))
    assert run_pass("runtime_memory_reservation", beside, reserved_name="x").codes == []


def test_n18_allocated_memory_in_an_unallocated_caller() -> None:
    callee = function("k", [sb_set("t_set", 512), sb_set("u_set", 1024, allocated=False)], op("K"))
    caller_storage = (sb_set("x_set", 0, allocated=False),)
    outcome = inline(kernels(callee, main=(call("C"),), storage=caller_storage))
    assert outcome.ir.locations.select("name", "addr", "allocated").rows() == [
        ("x", 0, False),
        ("C:t", 512, True),
        ("C:u", 1024, False),
    ]
    assert outcome.doc["functions"][0]["allocations"][0] == caller_storage[0]


def test_r05_reserved_and_usable_bytes_fit_each_architecture() -> None:
    known = [arch for arch in vocabulary.ARCHES if arch.sbuf_bytes is not None]
    assert {arch.level for arch in known} >= {20, 30, 40}
    for arch in known:
        assert arch.sbuf_bytes is not None
        assert 0 < vocabulary.EVAL_RESERVED_BYTES < arch.sbuf_bytes
        if arch.level <= vocabulary.EVAL_RESERVED_ABOVE_LEVEL:
            continue
        outcome = run_pass("runtime_memory_reservation", module(function("main", []), arch=arch.name))
        (made,) = outcome.ir.locations.select("addr", "bytes").rows()
        usable, reserved = made
        assert usable + reserved == arch.sbuf_bytes
        assert reserved == vocabulary.EVAL_RESERVED_BYTES


def test_m13_names_do_not_depend_on_functions_that_have_no_part() -> None:
    callee = function("k", [memory_set("t_set")], op("K"))
    document = kernels(callee, main=(call("C"), op("C_K")))
    alone: Any = inline(document).doc["functions"][0]
    more = json.loads(json.dumps(document))
    more["functions"].append(function("more", [memory_set("C:t_set")], op("C_K")))
    more["nki_functions"]["functions"].insert(0, function("unused", [memory_set("t_set")], op("K")))
    assert inline(more).doc["functions"][0] == alone
