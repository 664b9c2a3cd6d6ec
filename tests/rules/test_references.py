"""Rules R: what names mean, and what is said where they mean nothing or too much."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arrowir.formats.bir_json import read_documents, read_json, to_json
from arrowir.formats.rebinding import rebinding_names
from arrowir.ir import IR
from arrowir.store import Strings
from tests.documents import (
    Json,
    block,
    codes,
    compact,
    function,
    instruction,
    load,
    loop,
    module,
    operand,
    register,
    storage,
)

ROOT = Path(__file__).parents[2]


def messages(ir: IR, code: str) -> list[str]:
    return [message.message for message in ir.messages if message.code == code]


def test_r1_names_need_not_be_unique() -> None:
    same = [storage("a"), storage("a"), register("a"), register("a")]
    rows = [instruction("I"), instruction("I"), loop("i", block("b", instruction("I")), block("b"), name="I")]
    ir = load(module(function("f", same, rows), function("f"), queues=[{"name": "q"}, {"name": "q"}]))
    assert [ir.count(t) for t in ("functions", "locations", "registers", "instructions", "queues")] == [2, 2, 2, 4, 2]


def test_r1_written_names_are_those_of_the_targets() -> None:
    ir = load(
        module(
            function("f", [storage("a")], [instruction("I", ins=[operand("a")]), instruction("J", dependencies=["I"])])
        )
    )
    locations, rows = ir.tables["locations"], ir.tables["instructions"]
    renamed = ir.replace(
        locations=locations.replace(name=Strings.of(["new"])), instructions=rows.replace(name=Strings.of(["X", "Y"]))
    )
    text = to_json(renamed).decode()
    assert '"memref":"new"' in text
    assert '"dependencies":["X"]' in text


def every_reference() -> Json:
    axis = {"kind": "AffIVKind", "axis": "i"}
    runtime = {
        "kind": "AffExprKind",
        "terms": [{"idx": {"kind": "IntRuntimeValueKind", "regref": "r"}, "coeff": 1}],
        "c": 0,
    }
    older = {"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1}
    inner = [
        instruction(
            "L-1",
            ins=[
                {"kind": "symbolic_ap", "dtype": "int8", "ap": [[1, 1]], "memsetref": "a_set", "addrs": [axis,
                older, runtime]},
                {"kind": "register_ap", "dtype": "int8", "ap": [[1, 1]], "memsetref": "a_set", "regref": "r",
                 "reg_ap_offset": "s", "reg_sub_tensor_id": "r"},
                operand("x", memref_owner_func="k",
                dynamic_ap_info={"aff_expr": [{"offset_expr": runtime["terms"][0]["idx"], "coef": 1}], "c": 0}),
            ],
            order=[axis],
            zz={"deep": [{"more": older}]},
            unroll_dependencies=[["L-1", "Flow", [axis, runtime], []]],
        ),
    ]  # fmt: skip
    rows = [
        loop("i", block("in", *inner), name="L"),
        {
            "name": "D",
            "opcode": "DynamicForLoop",
            "DynamicForLoopAxis": {"name": "j", "lb": 0, "ub": runtime},
            "blocks": [],
        },
        instruction("B", "BranchHint", associate_branch="C"),
        instruction("C", "CompareAndBranch", on_true="b0", on_false="nowhere"),
        instruction("W", sync_info={"on_wait": [{"from": "B", "id": 1}, {"from": "dma", "id": 2}]}),
        instruction("K", "NKIKernel", func="k", func_args={"x": "a", "kr": "r"}, func_outs=[["y_set", "b_set"]]),
        instruction("Call", "Call", target="k", arguments=[["x", "a"]]),
    ]
    allocations = [
        storage("a", memory="DRAM", alias=[["b_set", "b", 3], ["b", 1]]),
        storage("b", "Pointer", pointer_ref_memloc="a"),
        register("r"),
        register("s"),
    ]
    kernel = function("k", [storage("x", "ExternalInput"), storage("y", "ExternalOutput"), register("kr")])
    return module(function("main", allocations, rows), nki_functions={"functions": [kernel]})


def test_r0_every_kind_of_reference_is_resolved() -> None:
    ir = load(every_reference())
    assert codes(ir) == ["unresolved_name"]
    assert "`nowhere`" in messages(ir, "unresolved_name")[0]
    references = ir.references.select("table", "path", "target", "target_id", "name").rows()
    terms = "terms[0].idx.regref"
    assert references == [
        ("instructions", "associate_branch", "instructions", 3, None),
        ("instructions", "order[0].axis", "loops", 0, None),
        ("instructions", "zz.deep[0].more.terms[0].AxisLabel", "loops", 0, None),
        ("operands", "addrs[0].axis", "loops", 0, None),
        ("operands", "addrs[1].terms[0].AxisLabel", "loops", 0, None),
        ("operands", f"addrs[2].{terms}", "registers", 0, None),
        ("operands", "reg_ap_offset", "registers", 1, None),
        ("operands", "reg_sub_tensor_id", "registers", 0, None),
        ("operands", "memref_owner_func", "functions", 1, None),
        ("operands", "dynamic_ap_info.aff_expr[0].offset_expr.regref", "registers", 0, None),
        ("locations", "pointer_ref_memloc", "locations", 0, None),
        ("loops", f"ub.{terms}", "registers", 0, None),
        ("dependencies", "[1][0].axis", "loops", 0, None),
        ("dependencies", f"[1][1].{terms}", "registers", 0, None),
    ]
    assert ir.operands.select("location_id", "set_id", "register_id").rows() == [
        (None, 0, None),
        (None, 0, 0),
        (2, None, None),
    ]
    assert ir.aliases.select("target_location_id", "target_set_id", "kind").rows() == [(1, 1, 3), (1, None, 1)]
    assert ir.branches.select("slot", "block_id", "name").rows() == [
        ("on_true", 0, None),
        ("on_false", None, "nowhere"),
    ]
    assert ir.semaphores.select("from_instruction_id", "name").rows() == [(2, None), (None, "dma")]
    assert ir.calls["callee_id"].to_list() == [1, 1]
    columns = (
        "direction",
        "formal",
        "formal_set_id",
        "formal_register_id",
        "actual_location_id",
        "actual_set_id",
        "actual_register_id",
    )
    assert ir.call_arguments.select(columns).rows() == [
        ("in", "x", 2, None, 0, None, None),
        ("in", "kr", None, 2, None, None, 0),
        ("out", "y_set", 3, None, 1, 1, None),
        ("argument", "x", 2, None, 0, None, None),
    ]


def test_r0_other_names_are_data() -> None:
    row = instruction("I", "DMATrigger", queue="a", dma_blocks=["a"], loopnest=["a"], reduce_axes=["a"], regref="a",
                      zz={"axis": "a", "regref": "a", "kind": "Other", "terms": [{"AxisLabel": "a"}]})  # fmt: skip
    ir = load(module(function("f", [storage("a", alloced_func="a")], [row])))
    assert ir.references.is_empty()
    assert codes(ir) == []


def test_r2_outputs_prefer_output_kinds_and_inputs_input_kinds() -> None:
    allocations = [storage("x"), storage("x", "Output"), storage("x", "Input"), storage("x", "ExternalOutput")]
    uses = {"ins": [operand("x")], "indirection_ins": [operand("x")], "outs": [operand("x")]}
    ir = load(module(function("f", allocations, [{**instruction("I"), **uses}])))
    assert ir.operands.select("role", "location_id").rows() == [("in", 2), ("indirection", 2), ("out", 1)]
    assert codes(ir) == ["ambiguous_name"]
    sets = [{"kind": "symbolic_ap", "memsetref": "x_set"}]
    ir = load(module(function("f", allocations, [instruction("I", ins=sets, outs=sets)])))
    assert ir.operands["set_id"].to_list() == [2, 1]


def test_r2_else_the_first_in_file_order() -> None:
    allocations = [storage("x", "Output"), storage("x", "Internal"), register("r"), register("r")]
    ir = load(module(function("f", allocations, [instruction("I", ins=[operand("x"), operand("x", regref="r")])])))
    assert ir.operands.select("location_id", "register_id").rows() == [(0, None), (0, 0)]
    assert sorted(message.split("`")[1] for message in messages(ir, "ambiguous_name")) == ["r", "x"]


def test_r2_choosing_is_noted_once_per_name_and_function() -> None:
    def body(name: str) -> Json:
        rows = [instruction(f"I{n}", ins=[operand("x")], outs=[operand("x"), operand("y")]) for n in range(5)]
        return function(name, [storage("x"), storage("x"), storage("y"), storage("y")], rows)

    ir = load(module(body("f"), body("g")))
    noted = [(m.severity, m.function, m.location) for m in ir.messages]
    assert noted == [("note", "f", "x"), ("note", "f", "y"), ("note", "g", "x"), ("note", "g", "y")]


def test_r2_memref_wins_over_memsetref() -> None:
    allocations = [storage("a"), storage("b"), {**storage("c", set_name="a_set")}]
    named = [operand("b", memsetref="a_set"), operand("c", memsetref="a_set"), operand("b", memsetref="none")]
    ir = load(module(function("f", allocations, [instruction("I", ins=named)])))
    assert ir.operands.select("location_id", "set_id", "set_name").rows() == [
        (1, 0, None),
        (2, 2, None),
        (1, None, "none"),
    ]


def test_r2_the_owner_function_is_where_locations_are_looked_for() -> None:
    rows = [
        instruction("I", ins=[operand("x", memref_owner_func=owner, memsetref="x_set") for owner in ("g", "f", "none")])
    ]
    ir = load(module(function("f", [storage("x")], rows), function("g", [storage("x"), storage("x", "Input")])))
    assert ir.operands.select("location_id", "set_id", "name").rows() == [(2, 2, None), (0, 0, None), (None, None, "x")]
    assert ir.references["target_id"].to_list() == [1, 0, None]


def edges(*rows: Json) -> list[int | None]:
    return load(module(function("f", [], list(rows)))).dependencies["on_instruction_id"].to_list()


def test_r3_nearest_earlier_of_the_same_block_comes_first() -> None:
    x, user = instruction("x"), instruction("u", dependencies=["x"])
    assert edges(x, x, user, x) == [1]
    # The loop's rows stand behind those of the blocks around it: x, loop, u are 0, 1, 2.
    assert edges(x, loop("i", block("b", x, x)), user) == [0]


def test_r3_else_the_nearest_earlier_in_program_order_a_loop_before_its_body() -> None:
    x, user = instruction("x"), instruction("u", dependencies=["x"])
    assert edges(loop("i", block("b", x, x)), user, x) == [4]
    assert edges(x, loop("i", block("b", user), name="x"), x) == [1]
    assert edges(x, instruction("o"), loop("i", block("b", user)), x) == [0]


def test_r3_else_the_first_later_else_the_instruction_itself() -> None:
    x = instruction("x")
    assert edges(instruction("u", dependencies=["x"]), loop("i", block("b", x, x)), x) == [3]
    assert edges(instruction("u", dependencies=["x"]), x, x) == [1]
    assert edges(instruction("x", dependencies=["x"])) == [0]
    assert edges(instruction("x", dependencies=["x"]), x) == [1]


def test_r3_applies_to_all_relations_waits_and_hints() -> None:
    user = instruction(
        "u",
        "BranchHint",
        dependencies=["x"],
        loop_carried_dependencies=[["x", "Flow"]],
        unroll_dependencies=["x"],
        sync_info={"on_wait": [{"from": "x"}]},
        associate_branch="x",
    )
    ir = load(module(function("f", [], [instruction("x"), instruction("x"), user, instruction("x")])))
    assert ir.dependencies["on_instruction_id"].to_list() == [1, 1, 1]
    assert ir.dependencies["relation"].to_list() == ["plain", "loop_carried", "unroll"]
    assert ir.semaphores["from_instruction_id"].to_list() == [1]
    assert ir.references["target_id"].to_list() == [1]


def test_r3_names_in_queues_mean_the_queue_first_then_the_function() -> None:
    def entry(name: str, *names: str) -> Json:
        waits = {"on_wait": [{"from": n} for n in names]}
        return {"name": name, "opcode": "DMABlock", "sync_info": waits, "dependencies": list(names), "blocks": []}

    queue = {"name": "q", "blocks": [block("b", entry("d"), entry("d"), entry("e", "d", "m", "none"))]}
    first, main = function("first", [], [instruction("m")]), function("main", [storage("x")], [instruction("m")])
    ir = load(module(first, main, queues=[queue]))
    assert ir.semaphores["from_instruction_id"].to_list() == [3, 1, None]
    assert ir.dependencies["on_instruction_id"].to_list() == [3, 1, None]
    assert [m.severity for m in ir.messages] == ["warning"]  # for the edge alone: a wait may name anything


def test_r4_branches_look_in_their_list_then_outwards() -> None:
    def jump(name: str) -> Json:
        return instruction("j", "UnconditionalBranch", target=name)

    inner = [block("x", jump("x"), jump("y"), jump("z")), block("y")]
    outer = function("f", blocks=[block("x", loop("i", *inner), jump("x")), block("z"), block("x"), block("z")])
    ir = load(module(outer))
    assert ir.blocks["name"].to_list() == ["x", "z", "x", "z", "x", "y"]
    assert ir.branches["block_id"].to_list() == [0, 4, 5, 1]


def calls(document: Json) -> list[tuple[Any, ...]]:
    return load(document).calls.select("callee_id", "candidates", "name").rows()


def site(name: str, opcode: str = "NKIKernel") -> Json:
    return instruction("c", opcode, **{"func" if opcode == "NKIKernel" else "target": name})


def test_r4_calls_prefer_kernel_functions() -> None:
    for opcode in ("NKIKernel", "Call"):
        main = function("main", instructions=[site("k", opcode)])
        assert calls(module(main, function("k"), nki_functions=[function("o"), function("k")])) == [(3, 1, None)]
        assert calls(module(main, function("k"))) == [(1, 1, None)]
        assert calls(module(main, function("k"), function("k"))) == [(1, 2, None)]
        assert calls(module(main, nki_functions={"functions": [function("k"), function("k")]})) == [(1, 2, None)]
        assert calls(module(main)) == [(None, 0, "k")]


def test_r4_main_and_the_first_function_are_no_kernels() -> None:
    caller = function("f", instructions=[site("main")])
    ir = load(module(function("a"), caller, function("main")))
    assert ir.calls["callee_id"].to_list() == [2]
    assert ir.functions["is_kernel"].to_list() == [False, False, False]
    # Of the two, the second counts as a kernel function: the first one of the file never does.
    assert calls(module(function("k", instructions=[site("k")]), function("k"))) == [(1, 1, None)]


def test_n25_functions_of_one_name_are_kept_apart() -> None:
    ir = load(module(function("f", instructions=[site("add")]), function("add"), function("add", [storage("a")])))
    assert ir.calls["candidates"].to_list() == [2]
    assert ir.functions["name"].to_list() == ["f", "add", "add"]


def test_r5_what_does_not_resolve_keeps_its_name() -> None:
    row = instruction(
        "I",
        "NKIKernel",
        ins=[operand("t", memsetref="t_set", regref="r", reg_ap_offset="r")],
        dependencies=["gone"],
        target="nowhere",
        func="k",
        func_args={"a": "t"},
        order=[{"kind": "AffIVKind", "axis": "i"}],
    )
    ir = load(module(function("f", [storage("a", alias=[["x_set", "x", 1]], pointer_ref_memloc="y")], [row])))
    assert ir.operands.select("name", "set_name", "register_name").rows() == [("t", "t_set", "r")]
    assert ir.dependencies["name"].to_list() == ["gone"]
    assert ir.branches["name"].to_list() == ["nowhere"]
    assert ir.calls["name"].to_list() == ["k"]
    assert ir.call_arguments["name"].to_list() == ["t"]
    assert ir.aliases.select("name", "set_name").rows() == [("x", "x_set")]
    assert ir.references["name"].to_list() == ["i", "r", "y"]
    named = {message.message.split("`")[1]: message for message in ir.messages}
    assert set(named) == {"t", "t_set", "r", "gone", "nowhere", "k", "i", "x", "x_set", "y"}
    assert {message.code for message in ir.messages} == {"unresolved_name"}
    assert all(m.severity == "warning" and m.function == "f" and m.module == "document" for m in ir.messages)
    assert named["x"].location == "a"
    assert (named["gone"].instruction, named["gone"].instruction_id) == ("I", 0)


EMPTY = (
    ("instructions", "dependencies", "on_instruction_id"), ("instructions", "semaphores", "from_instruction_id"),
    ("blocks", "branches", "block_id"), ("functions", "calls", "callee_id"), ("registers", "operands", "register_id"),
    ("registers", "call_arguments", "formal_register_id"), ("registers", "call_arguments", "actual_register_id"),
)  # fmt: skip


def unnamed(table: str, **name: Any) -> Json:
    """Rows of the tables whose rows need no name, those of one with this name or none; `""` is referred to."""
    named: dict[str, Json] = {of: {"name": f"the {of}"} for of in ("instructions", "blocks", "functions", "registers")}
    named[table] = name
    rows = [
        {**loop("i"), **named["instructions"]},
        instruction("J", ins=[{"kind": "register_access", "regref": ""}], dependencies=[""],
                    sync_info={"on_wait": [{"from": "", "id": 1}]}),
        instruction("C", "NKIKernel", func="" if table == "functions" else "the functions", func_args={"": ""}),
        instruction("B", "UnconditionalBranch", target=""),
    ]  # fmt: skip
    own = {"Skind": "register", **named["registers"]}
    kernel = {**named["functions"], "allocations": [own], "blocks": []}
    main = {"name": "main", "allocations": [own], "blocks": [{**named["blocks"], "instructions": rows}]}
    return module(main, nki_functions={"functions": [kernel]})


@pytest.mark.parametrize(("table", "source", "column"), EMPTY)
def test_r0_what_has_no_name_is_not_found_by_an_empty_one(table: str, source: str, column: str) -> None:
    assert (load(unnamed(table, name="")).tables[source][column] >= 0).any()
    for nothing in ({}, {"name": None}):
        ir = load(unnamed(table, **nothing))
        assert not (ir.tables[source][column] >= 0).any()
        assert rebinding_names(ir) == []


def test_r7_a_reference_to_what_has_no_name_is_noted() -> None:
    axis = {"name": "i", "lb": 0, "ub": 4, "stride": 1}
    rows = [{"opcode": "Loop", "LoopAxis": axis, "blocks": []}, instruction("J", dependencies=["J"])]
    ir = load(module(function("f", [], rows)))
    assert rebound(ir) == []
    edges = ir.tables["dependencies"].replace(on_instruction_id=np.zeros(1, np.int32))
    assert rebound(ir.replace(dependencies=edges)) == [("", "f")]


def test_n07_unresolved_names_are_counted_and_the_list_is_cut() -> None:
    rows = [instruction(f"I-{n}", ins=[operand("t1_i1")], outs=[operand("t1_i1")]) for n in range(12)]
    good = compact(module(function("f", [], [instruction("a")]))).encode()
    ir, found = read_documents([("good", good), ("bad", compact(module(function("f", [], rows))).encode())])
    assert len(ir) == 2
    assert len(found) == 1
    assert found[0].message.startswith("no location in reach is named `t1_i1`, which is referred to 24 times, ")
    assert "in instructions `I-0`, `I-1`, `I-2` and 9 more" in found[0].message
    assert (found[0].module, found[0].module_id, found[0].function_id) == ("bad", 1, 1)
    assert ir.operands["name"].to_list() == ["t1_i1"] * 24


def test_r5_ids_in_diagnostics_are_those_of_the_batch() -> None:
    data = compact(
        module(function("f", [storage("x"), storage("x")], [instruction("I", ins=[operand("x"), operand("z")])]))
    ).encode()
    ir, found = read_documents([("a", data), ("b", data)])
    last = {row.code: row for row in found[2:]}
    assert last["ambiguous_name"].location_id == 2
    assert last["unresolved_name"].instruction_id == 1
    assert ir.locations["name"][2] == "x"


# -- R7 ----


def rebound(ir: IR) -> list[tuple[str, str | None]]:
    found = rebinding_names(ir)
    assert all(row.code == "rebinding_name" and row.severity == "note" for row in found)
    return [(row.message.split("`")[1], row.function) for row in found]


def test_r7_a_name_that_would_mean_another_row_is_noted() -> None:
    rows = [instruction("I", ins=[operand("a"), operand("b")]), instruction("J", dependencies=["I"]), instruction("K")]
    ir = load(module(function("f", [storage("a"), storage("b")], rows)))
    assert rebound(ir) == []
    locations = ir.tables["locations"]
    twice = ir.replace(locations=locations.replace(name=Strings.of(["a", "a"])))
    assert rebound(twice) == [("a", "f")]
    names = ir.tables["instructions"].replace(name=Strings.of(["I", "J", "I"]))
    assert rebound(ir.replace(instructions=names)) == []  # the earlier one is meant, and is found


def test_r7_an_unresolved_name_that_would_be_found_is_noted() -> None:
    ir = load(module(function("f", [storage("a")], [instruction("I", ins=[operand("b")])])))
    assert rebound(ir) == []
    assert rebound(ir.replace(locations=ir.tables["locations"].replace(name=Strings.of(["b"])))) == [("b", "f")]


@pytest.mark.parametrize("kind", ["instructions", "blocks", "functions", "registers", "sets"])
def test_r7_every_kind_of_name(kind: str) -> None:
    main = function("main", [register("r"), register("s"), storage("a"), storage("b")], blocks=[
        block("x", instruction("I"), instruction("J", ins=[{"kind": "register_access", "regref": "s"},
                                                           {"kind": "symbolic_ap", "memsetref": "b_set"}])),
        block("y", instruction("K", "UnconditionalBranch", target="y", dependencies=["I"]),
              instruction("C", "NKIKernel", func="l")),
    ])  # fmt: skip
    ir = load(module(main, nki_functions=[function("k"), function("l")]))
    assert rebound(ir) == []
    names = ir.tables[kind].text().tolist()
    renamed = {"instructions": ["I", "I", "K", "C"], "blocks": ["y", "y", *names[2:]], "functions": ["main", "l", "l"],
               "registers": ["s", "s"], "sets": ["b_set", "b_set"]}[kind]  # fmt: skip
    changed = ir.replace(**{kind: ir.tables[kind].replace(name=Strings.of(renamed))})
    assert len(rebound(changed)) == 1


@pytest.mark.parametrize(
    ("table", "column", "notes"), [("branches", "block_id", [("a", "f")]), ("dependencies", "on_instruction_id", [])]
)
def test_r7_what_means_nothing_is_no_name(table: str, column: str, notes: list[tuple[str, str]]) -> None:
    """It is written as null; a file with a null dependency cannot be read back at all."""
    rows = [instruction("I", ins=[operand("a"), operand("b")]), instruction("J", dependencies=["I"])]
    ends = [block(name, instruction(f"B{name}", "UnconditionalBranch", target="y")) for name in "xy"]
    ends[0]["instructions"][:0] = rows
    ir = load(module(function("f", [storage("a"), storage("b")], blocks=ends)))
    twice = ir.replace(locations=ir.tables["locations"].replace(name=Strings.of(["a", "a"])))
    assert rebound(twice) == [("a", "f")]
    ids = ir.tables[table][column].copy()
    ids[0] = -1
    assert rebound(twice.replace(**{table: ir.tables[table].replace(**{column: ids})})) == notes


def test_r7_modules_can_be_picked_and_samples_have_none() -> None:
    paths = [*sorted((ROOT / "data/samples/klr009").glob("*4.bir.json")), ROOT / "data/samples/opcode_zoo.json"]
    ir, _ = read_documents(paths)
    assert rebinding_names(ir) == []
    rows = [instruction("I", ins=[operand("a"), operand("b")])]
    ir, _ = read_documents([compact(module(function("f", [storage("a"), storage("b")], rows))).encode()] * 2)
    twice = ir.replace(locations=ir.tables["locations"].replace(name=Strings.of(["a", "a", "a", "a"])))
    assert [row.module_id for row in rebinding_names(twice)] == [0, 1]
    assert [row.module_id for row in rebinding_names(twice, [1])] == [1]


def test_r7_read_json_gives_no_note_for_what_stands_in_a_file() -> None:
    assert "rebinding_name" not in codes(read_json(ROOT / "data/generated/kernel_lowered.json"))
