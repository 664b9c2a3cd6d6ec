"""Rules U0 to U3, U8 and O6 of `unroll`, clause by clause; what must come out is written down by hand."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir.passes.unroll import Unroll, expand, needs_unroll, predicted_rows
from arrowir.testing.assertions import assert_valid
from tests.oracle.builders import (
    access,
    affine,
    axis,
    call,
    constant,
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
    symbolic,
)
from tests.single_pass import Json, Passed, read, refused, run_pass, written

unroll = partial(run_pass, "unroll")
SMALL, LARGE = -(2**63), 2**63 - 1


def body(*instructions: Json, sets: list[Json] = (), **more: Any) -> Json:  # type: ignore[assignment]
    """A module of one function with one block."""
    return module(function("main", list(sets), *instructions), **more)


def fault(*instructions: Json, sets: list[Json] = (), **options: Any) -> str:  # type: ignore[assignment]
    """The code of the one error that unrolling gives."""
    return refused("unroll", body(*instructions, sets=sets), **options).code


def values(outcome: Passed, key: str = "v") -> list[Any]:
    return [each[key] for each in rows(outcome.doc) if key in each]


def dram(name: str = "t", shape: tuple[int, ...] = (128, 16), **more: Any) -> Json:
    return memory_set(f"{name}_set", "Internal", location(name), tensor_shape=list(shape), **more)


# U0: which functions


def test_u0_all_functions_kernel_functions_too() -> None:
    nest = loop("L", "i", (0, 2, 1), op("a"))
    document = module(function("main", [], nest, call("C")), function("g", [], nest), kernels=[function("k", [], nest)])
    outcome = unroll(document)
    assert names(outcome.doc) == ["a-0", "a-1", "C"]
    assert names(outcome.doc, 1) == ["a-0", "a-1"]
    assert [each["name"] for each in outcome.doc["nki_functions"]["functions"][0]["blocks"][0]["instructions"]] == [
        "a-0",
        "a-1",
    ]


def test_u0_nothing_to_do_is_unchanged() -> None:
    assert unroll(body(op("a", ins=[access("t")], x=[1.10]), sets=[dram()])).status == "unchanged"
    assert unroll(module()).status == "unchanged"
    assert unroll(module(function("main", []))).status == "unchanged"


def test_u0_each_block_of_a_function_stays_with_its_branches() -> None:
    document = module(function("main", []))
    document["functions"][0]["blocks"] = [
        {
            "name": "A",
            "instructions": [loop("L", "i", (0, 2, 1), op("a")), op("br", "UnconditionalBranch", target="B")],
        },
        {"name": "empty", "instructions": []},
        {"name": "B", "instructions": [loop("M", "i", (0, 1, 1), op("b")), op("c", dependencies=["a"])]},
    ]
    outcome = unroll(document)
    assert [names(outcome.doc, 0, block) for block in range(3)] == [["a-0", "a-1", "br"], [], ["b-0", "c"]]
    assert row(outcome.doc, "br")["target"] == "B"
    assert rows(outcome.doc, 0, 2)[1]["dependencies"] == ["a-1"]


# U1: trips


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 10, 3), [0, 3, 6, 9]),
        ((9, -1, -3), [9, 6, 3, 0]),
        ((-2, 1, 1), [-2, -1, 0]),
        ((3, 4, 100), [3]),
        ((None, 2, 1), [0, 1]),
        ((2, None, -1), [2, 1]),
        ((constant(1), affine("x", 0, 3) | {"terms": []}, constant(1)), [1, 2]),
        ((0, {"kind": "ShardIDKind", "ub": 4}, 1), [0, 1, 2]),
        (({"terms": [], "c": 7, "op": "Mod", "op_param": 4}, 5, 1), [3, 4]),
        ((LARGE - 2, LARGE, 1), [LARGE - 2, LARGE - 1]),
        ((LARGE, SMALL, SMALL), [LARGE, -1]),
        ((SMALL, SMALL + 1, LARGE), [SMALL]),
    ],
)
def test_u1_values_of_the_range(bounds: tuple[Any, Any, Any], expected: list[int]) -> None:
    document = body(loop("L", "i", bounds, op("a", v=axis("i"))))
    assert values(unroll(document, shard_id=3)) == expected


def test_u1_an_absent_bound_is_0_and_a_loop_needs_no_header() -> None:
    nest = {
        "opcode": "Loop",
        "LoopAxis": {"name": "i", "ub": 2, "stride": 1},
        "blocks": [{"name": "b", "instructions": [op("a", v=axis("i"))]}],
    }
    assert values(unroll(body(nest))) == [0, 1]


@pytest.mark.parametrize("bounds", [(0, 0, 1), (3, 3, 1), (5, 2, 1), (2, 5, -1), (LARGE, SMALL, 1)])
def test_u1_a_loop_without_trips_goes_with_its_body_unseen(bounds: tuple[int, int, int]) -> None:
    unseen = [
        op("a", predicates=[{}], v={"kind": "NoSuchKind"}),
        op("b", "DoWhile", cond=constant(1), blocks=[]),
        loop("M", "j", (0, 2, 0), op("c", "Break")),
    ]
    outcome = unroll(body(op("p"), loop("L", "i", bounds, *unseen), op("q", dependencies=[["a", "Flow"]])))
    assert names(outcome.doc) == ["p", "q"]
    assert "dependencies" not in row(outcome.doc, "q")


def test_u1_nests_are_row_major_and_flat() -> None:
    inner = loop("M", "j", (0, 3, 1), op("b", v=affine("i", 10), w=axis("j")))
    outcome = unroll(body(op("p"), loop("L", "i", (0, 2, 1), op("a"), inner, op("c")), op("z")))
    assert names(outcome.doc) == ["p", "a-0", "b-0", "b-1", "b-2", "c-0", "a-1", "b-3", "b-4", "b-5", "c-1", "z"]
    assert values(outcome) == [0, 0, 0, 10, 10, 10]
    assert values(outcome, "w") == [0, 1, 2, 0, 1, 2]


def test_u1_a_loop_with_trips_but_no_body() -> None:
    empty = loop("L", "i", (0, 2**40, 1)) | {"blocks": []}
    outcome = unroll(body(op("p"), empty, loop("M", "j", (0, 2**40, 1)), op("z", dependencies=["L", "M"])))
    assert names(outcome.doc) == ["p", "z"]


@pytest.mark.parametrize("bounds", [(0, 2, 0), (0, 0, 0), (0, 2, None), (0, 2, constant(0))])
def test_u1_stride_0(bounds: tuple[int, int, Any]) -> None:
    assert fault(loop("L", "i", bounds, op("a"))) == "zero_stride"


@pytest.mark.parametrize(
    "bound", [runtime("r"), {"kind": "AffExprKind", "c": 0, "terms": [{"idx": axis("i"), "coeff": 0}]}]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_u1_other_bounds_are_dynamic(bound: Json, place: int) -> None:
    bounds: list[Any] = [0, 2, 1]
    bounds[place] = bound
    inner = loop("M", "j", (bounds[0], bounds[1], bounds[2]), op("a"))
    assert fault(loop("L", "i", (0, 1, 1), inner), sets=[register("r")]) == "dynamic_loop"


@pytest.mark.parametrize(
    ("bound", "code"),
    [
        ({"kind": "FloorDivKind", "numer": constant(1), "denom": 0}, "division_by_zero"),
        ({"kind": "MultKind", "var": constant(2**62), "scale": 2}, "integer_overflow"),
        ({"kind": "NoSuchKind"}, "bad_expression"),
        ({"terms": [{"AxisLabel": "i", "coef": 1}], "c": 0}, "dynamic_loop"),
    ],
)
def test_u1_bounds_that_cannot_be_worked_out(bound: Json, code: str) -> None:
    assert fault(loop("L", "i", (0, bound, 1), op("a"))) == code


# U2: bodies


def test_u2_a_break_in_an_inner_loop_without_trips_is_not_seen() -> None:
    inner = loop("M", "j", (0, 0, 1), op("a", "Break"))
    assert names(unroll(body(loop("L", "i", (0, 2, 1), inner, op("b")))).doc) == ["b-0", "b-1"]


def test_u2_a_branch_out_of_the_loop_is_repeated() -> None:
    outcome = unroll(body(loop("L", "i", (0, 2, 1), op("br", "UnconditionalBranch", target="Block1"))))
    assert [each["target"] for each in rows(outcome.doc)] == ["Block1", "Block1"]


def test_u2_storage_is_shared_by_all_iterations() -> None:
    document = body(loop("L", "i", (0, 3, 1), op("a", outs=[access("t")])), sets=[dram()])
    outcome = unroll(document)
    assert outcome.doc["functions"][0]["allocations"] == document["functions"][0]["allocations"]
    assert [each["outs"][0]["memref"] for each in rows(outcome.doc)] == ["t", "t", "t"]


@pytest.mark.parametrize("mark", [{"tensor_class": "NeuronBlockTensor"}, {"tensor_class": "My Block"}, {"NBlocks": 0}])
def test_u2_block_tensors_in_loops(mark: Json) -> None:
    sets = [dram(**mark)]
    for used in (
        access("t"),
        symbolic("t_set", constant(0), constant(0)),
        access("t") | {"memref": None, "memsetref": "t_set"},
    ):
        assert fault(loop("L", "i", (0, 1, 1), op("a", ins=[used])), sets=sets) == "block_tensor"
    assert unroll(body(op("a", ins=[access("t")]), sets=sets)).status == "unchanged"
    assert (
        unroll(body(loop("L", "i", (0, 1, 1), op("a", ins=[access("t")])), sets=[dram(NBlocks=None)])).status
        == "changed"
    )


def test_u2_blocks_of_what_is_no_loop() -> None:
    inner = [{"name": "q", "instructions": [op("n", v=constant(3), dependencies=["a"])]}]
    assert fault(loop("L", "i", (0, 2, 1), op("F", "Foo", blocks=inner))) == "not_supported"
    outcome = unroll(body(op("F", "Foo", blocks=inner), loop("L", "i", (0, 2, 1), op("a"))))
    [nested] = row(outcome.doc, "F")["blocks"][0]["instructions"]
    assert (nested["name"], nested["v"], nested["dependencies"]) == ("n", constant(3), ["a-1"])


# U3: names


def test_u3_the_flat_number_over_the_whole_nest() -> None:
    nest = loop("L", "i", (0, 2, 1), loop("M", "j", (5, 0, -3), loop("N", "k", (0, 6, 1), op("a"))))
    outcome = unroll(body(nest))
    assert names(outcome.doc) == [f"a-{n}" for n in range(24)]
    instructions = outcome.ir.tables["instructions"]
    assert instructions.text("original_name").tolist() == ["a"] * 24


def test_u3_instructions_outside_keep_their_names() -> None:
    outcome = unroll(body(op("x-0"), loop("L", "i", (0, 1, 1), op("a")), op("z")))
    assert names(outcome.doc) == ["x-0", "a-0", "z"]
    assert outcome.ir.tables["instructions"].text("original_name").tolist() == ["", "a", ""]


def test_r6_names_that_are_taken() -> None:
    nest = loop("L", "i", (0, 2, 1), op("a"), op("a"))
    outcome = unroll(body(op("a-1"), op("a-0.1"), nest, loop("a-1.1", "j", (0, 1, 1), op("b", dependencies=["a"]))))
    # a-0.1 and a-1 are there; so is a-1.1, a loop that goes.
    assert names(outcome.doc) == ["a-1", "a-0.1", "a-0", "a-0.2", "a-1.2", "a-1.3", "b-0"]
    assert row(outcome.doc, "b-0")["dependencies"] == ["a-1.3"]


def test_r6_other_functions_do_not_matter() -> None:
    nest = loop("L", "i", (0, 2, 1), op("a"))
    outcome = unroll(module(function("main", [], op("a-0"), op("a-1")), function("g", [], nest)))
    assert names(outcome.doc, 1) == ["a-0", "a-1"]


def test_u3_names_as_long_and_odd_as_they_come() -> None:
    outcome = unroll(body(loop("L", "i", (0, 11, 1), op("é-" * 100), op(""))))
    assert names(outcome.doc)[-2:] == ["é-" * 100 + "-10", "-10"]


# U8: what goes


def test_u8_loopnest_goes_from_all_instructions() -> None:
    outcome = unroll(
        body(op("p", loopnest=None), loop("L", "i", (0, 1, 1), op("a", loopnest=["i"])), op("z", loopnest=[]))
    )
    assert all("loopnest" not in each for each in rows(outcome.doc))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["need_dce", "need_unroll", "x"], ["need_dce", "x"]),
        (["need_unroll"], []),
        ({"need_unroll": True, "n": 1.50}, {"n": 1.5}),
        ({"need_unroll": False}, {}),
    ],
)
def test_u8_need_unroll_goes_from_the_attributes(before: Any, after: Any) -> None:
    document = module(function("main", [], op("a"), attributes=before), function("g", [], op("a"), attributes=["x"]))
    outcome = unroll(document)
    assert [each["attributes"] for each in outcome.doc["functions"]] == [after, ["x"]]


# O6: size


@pytest.mark.parametrize(("limit", "passes"), [(19, False), (20, True)])
def test_o6_size_before_anything_is_made(limit: int, passes: bool) -> None:
    nest = loop("L", "i", (0, 3, 1), loop("M", "j", (0, 2, 1), op("a"), op("b")), op("c"))
    document = module(function("main", [], nest, op("z")), function("g", [], op("p"), op("q"), op("r"), op("s")))
    assert predicted_rows(read(document)).tolist() == [16, 4]
    if passes:
        assert unroll(document, max_instructions=limit).status == "changed"
    else:
        message = refused("unroll", document, max_instructions=limit)
        assert (message.code, message.compiler_code) == ("too_many_instructions", "ELUR015")
        assert message.message.startswith("20 instructions")


def test_o6_a_module_without_loops_is_counted_too() -> None:
    assert refused("unroll", body(op("a"), op("b")), max_instructions=1).code == "too_many_instructions"
    assert unroll(body(op("a"), op("b")), max_instructions=2).status == "unchanged"


def test_o6_numbers_beyond_64_bits() -> None:
    nest = op("a")
    for depth in range(5):
        nest = loop(f"L{depth}", f"i{depth}", (0, 10**15, 1), nest)
    message = refused("unroll", body(nest))
    assert message.message.startswith(f"{10**75} instructions")
    assert predicted_rows(read(body(nest))).tolist() == [2**63 - 1]


def test_o6_loops_are_checked_before_the_size_and_that_before_the_rest() -> None:
    huge = loop("L", "i", (0, 10**9, 1), op("a", v={"kind": "SumKind", "terms": [axis("q")]}))
    assert fault(huge) == "too_many_instructions"
    assert fault(huge, op("b", predicates=[1])) == "predicated_instruction"


def test_o6_a_loop_that_cannot_be_unrolled_counts_as_it_stands() -> None:
    dynamic = loop("D", "k", (0, runtime("r"), 1), op("a"), op("b"))
    document = body(loop("L", "i", (0, 3, 1), dynamic, op("c")), sets=[register("r")])
    assert predicted_rows(read(document)).tolist() == [3 * (1 + 2 + 1)]


# Parts that inlining uses


def test_needs_unroll_by_function() -> None:
    quiet = [
        op("a"),
        op("b", dependencies=["a"], loop_carried_dependencies=[["a", "Flow", [1]]], attr={"kind": "AllReduce"}),
    ]
    busy = [
        loop("L", "i", (0, 1, 1)),
        op("a", loopnest=["i"]),
        op("a", v=constant(1)),
        op("a", ins=[symbolic("t_set", constant(0), constant(0))]),
        op("a", ins=[{"kind": "symbolic_imm_value", "dtype": "int32", "value_list": [1]}]),
        op("a", predicates=[1]),
        op("a", unroll_dependencies=[["a", "Flow", []]]),
    ]
    functions = [function("main", [], *quiet)] + [function(f"f{n}", [dram()], each) for n, each in enumerate(busy)]
    functions.append(function("g", [], attributes=["need_unroll"]))
    assert needs_unroll(read(module(*functions))).tolist() == [False] + [True] * (len(busy) + 1)


def test_expand_unrolls_some_functions_and_leaves_the_others() -> None:
    nest = loop("L", "i", (0, 2, 1), op("a"))
    bad = loop("L", "i", (0, 2, 0), op("a"))
    document = module(
        function("main", [], nest), function("f", [], nest), function("g", [], bad), function("h", [], bad)
    )
    ir = read(document)
    expansion = expand(ir, np.array([False, True, True, False]))
    assert_valid(expansion.ir)
    after = json.loads(expansion.ir.to_json(0))
    assert [names(after, n) for n in range(4)] == [["L"], ["a-0", "a-1"], ["L"], ["L"]]
    assert {function: row.code for function, row in expansion.failures.items()} == {2: "zero_stride"}
    assert ir.to_json(0) == written(document)


def test_expand_refuses_what_is_too_large() -> None:
    huge = loop("L", "i", (0, 10**12, 1), op("a"))
    expansion = expand(read(body(huge)), np.ones(1, bool))
    assert expansion.failures[0].code == "too_many_instructions"


# The batch


def test_o2_o9_modules_of_a_batch_do_not_touch_each_other() -> None:
    good = body(loop("L", "i", (0, 2, 1), op("a", v=axis("i"))))
    documents = [
        good,
        body(op("p")),
        body(loop("L", "i", (0, 2, 1), op("a", v=axis("q")))),
        good,
        body(loop("L", "i", (0, 2, 0))),
    ]
    ir = air.concat([read(document, f"m{n}") for n, document in enumerate(documents)])
    result = Unroll()(ir)
    assert_valid(result.ir)
    assert result.status.to_list() == ["changed", "unchanged", "failed", "changed", "failed"]
    assert [(m.module, m.code) for m in result.messages] == [("m2", "unresolved_name"), ("m4", "zero_stride")]
    for module_id, document in enumerate(documents):
        assert result.ir.to_json(module_id) == Unroll()(read(document)).ir.to_json(0)


def test_the_first_error_of_a_module_in_the_order_of_checks() -> None:
    first = loop(
        "L",
        "i",
        (0, 2, 1),
        op("a", v=axis("q")),
        op("b", dependencies=[["b", "Flow"]], unroll_dependencies=[["b", "Flow"]]),
    )
    document = module(function("main", [], first), function("g", [], loop("M", "j", (0, 2, 0))))
    message = refused("unroll", document)
    assert (message.code, message.function, message.instruction) == ("zero_stride", "g", "M")
    message = refused("unroll", module(function("main", [], first)))
    assert (message.code, message.function, message.block, message.instruction) == (
        "unresolved_name",
        "main",
        "L_body",
        "a",
    )


def test_u01_to_u07_of_the_real_cases_together() -> None:
    nest = loop("L", "i", (0, 10, 3), loop("M", "j", (9, -1, -3), op("a", v=affine("i", 100), w=axis("j"))))
    outcome = unroll(body(nest))
    assert len(rows(outcome.doc)) == 16
    assert [(each["v"] // 100, each["w"]) for each in rows(outcome.doc)][:5] == [(0, 9), (0, 6), (0, 3), (0, 0), (3, 9)]


def test_f4_400_nested_loops() -> None:
    inner = op("x", v=affine("i0", 1), w=axis("i399"), dependencies=["o399"])
    nest = inner
    for depth in reversed(range(400)):
        nest = loop(f"L{depth}", f"i{depth}", (0, 2 if depth in (0, 399) else 1, 1), op(f"o{depth}"), nest)
    text = "".join(_pieces(body(nest)))
    result = air.passes.unroll(air.read_json(text.encode()))
    assert_valid(result.ir)
    assert result.ir.instructions["name"].to_list()[-3:] == ["x-2", "o399-3", "x-3"]
    assert result.ir.dependencies["on_instruction_id"].to_list()[-1] == len(result.ir.instructions) - 2


def _pieces(value: Any) -> list[str]:
    """JSON text of a value, nested as deep as it may be."""
    out: list[str] = []
    work: list[Any] = [value]
    while work:
        item = work.pop()
        if isinstance(item, Text):
            out.append(item)
        elif isinstance(item, dict):
            parts = [part for key, each in item.items() for part in (Text(","), Text(json.dumps(key) + ":"), each)][1:]
            work.extend(reversed([Text("{"), *parts, Text("}")]))
        elif isinstance(item, list):
            parts = [part for each in item for part in (Text(","), each)][1:]
            work.extend(reversed([Text("["), *parts, Text("]")]))
        else:
            out.append(json.dumps(item))
    return out


class Text(str):
    """A piece of JSON as it is."""
