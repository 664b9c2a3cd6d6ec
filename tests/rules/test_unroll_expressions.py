"""Rules U4 to U6 of `unroll`: addresses, expressions, attributes, immediates."""

import json
from functools import partial
from typing import Any

import pytest

import arrowir as air
from tests.oracle.builders import (
    access,
    affine,
    axis,
    constant,
    function,
    location,
    loop,
    memory_set,
    module,
    op,
    register,
    row,
    rows,
    runtime,
    sb_set,
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


def operand(outcome: Passed, name: str, role: str = "ins", place: int = 0) -> Json:
    return row(outcome.doc, name)[role][place]


# U4: symbolic addresses


@pytest.mark.parametrize("kind", ["symbolic_ap", "symbolic_pwap"])
def test_u4_dram_strides_are_row_major(kind: str) -> None:
    sets = [memory_set("t_set", "Internal", location("t", [24, 64]), tensor_shape=[2, 3, 4])]
    used = symbolic("t_set", axis("i"), constant(2), affine("i", 3), kind=kind)
    outcome = unroll(body(loop("L", "i", (0, 2, 1), op("a", ins=[used])), sets=sets))
    kept = {key: value for key, value in used.items() if key not in ("kind", "addrs")}
    for n, offset in enumerate((8, 23)):
        assert operand(outcome, f"a-{n}") == {"kind": "physical_ap", "memref": "t", "offset": offset} | kept


@pytest.mark.parametrize(("dtype", "pitch"), [("float32", 16), ("bfloat16", 32), ("uint8", 64), ("int64", 8)])
@pytest.mark.parametrize("memory", ["SB", "PSUM", 16])
def test_u4_the_partition_stride_of_sb_and_psum(dtype: str, pitch: int, memory: Any) -> None:
    sets = [memory_set("t_set", "Internal", location("t", type=memory), tensor_shape=[128, 7])]
    used = symbolic("t_set", constant(3), constant(2), dtype=dtype)
    assert operand(unroll(body(op("a", ins=[used]), sets=sets)), "a")["offset"] == 3 * pitch + 2


def test_u4_the_set_of_the_location_counts() -> None:
    sets = [dram(shape=(128, 16)), dram("u", shape=(4,))]
    used = symbolic("u_set", constant(1), constant(1)) | {"memref": "t"}
    outcome = unroll(body(op("a", ins=[used]), sets=sets))
    assert {key: operand(outcome, "a")[key] for key in ("memref", "memsetref", "offset")} == {
        "memref": "t",
        "memsetref": "u_set",
        "offset": 17,
    }


def test_u4_everything_else_stays_as_it_was_written() -> None:
    used = symbolic("t_set", axis("i"), constant(0)) | {"odd": 1.50, "access_shape": [1], "reg": [{"n": None}]}
    used["dynamic_ap_info"] = {
        "aff_expr": [{"offset_expr": runtime("r"), "coef": 1}, {"offset_expr": axis("i"), "coef": 2}]
    }
    document = body(loop("L", "i", (0, 2, 1), op("a", ins=[used])), sets=[sb_set("t_set"), register("r")])
    outcome = unroll(document)
    assert {key: operand(outcome, "a-1")[key] for key in used if key not in ("kind", "addrs")} == {
        key: used[key] for key in used if key not in ("kind", "addrs")
    }
    assert b'"odd":1.5' in outcome.ir.to_json(0)


@pytest.mark.parametrize("ordered", [False, True])
def test_f6_where_the_added_keys_stand(ordered: bool) -> None:
    used = symbolic("t_set", constant(0), constant(0))
    used = dict(sorted(used.items())) if ordered else used
    made = operand(unroll(body(op("a", ins=[used]), sets=[sb_set("t_set")])), "a")
    expected = ["ap", "dtype", "kind", "memref", "memsetref", "offset"]
    assert list(made) == (expected if ordered else ["kind", "ap", "dtype", "memsetref", "memref", "offset"])


@pytest.mark.parametrize(
    ("address", "sets", "code"),
    [
        ([constant(0)], [dram()], "address_rank_mismatch"),
        ([constant(0)] * 3, [dram()], "address_rank_mismatch"),
        ([constant(0)] * 2, [dram(memorylocations=[location("t"), location("u")])], "symbolic_location_count"),
        ([constant(0)] * 2, [dram(memorylocations=[])], "symbolic_location_count"),
        ([constant(0)] * 2, [], "unresolved_name"),
        ([constant(-1), constant(0)], [dram()], "address_out_of_bounds"),
        ([constant(128), constant(0)], [dram()], "address_out_of_bounds"),
        ([constant(2**60), constant(0)], [dram()], "integer_overflow"),
        ([constant(2**58), constant(2**62)], [dram(shape=(2, 32))], "integer_overflow"),
        ([constant(0)] * 3, [dram(shape=(1, 2**32, 2**32))], "integer_overflow"),
        ([constant(0), runtime("r")], [dram(), register("r")], "runtime_address"),
        ([constant(0), {"kind": "IndirectArgId", "arg_id": 0}], [dram()], "runtime_address"),
        ([constant(0), {"kind": "CCGetRankKind", "iteration_id": 0, "channel_id": 0}], [dram()], "runtime_address"),
        ([constant(0), axis("nowhere")], [dram()], "unresolved_name"),
        ([constant(0), "text"], [dram()], "bad_expression"),
        ([constant(0), True], [dram()], "bad_expression"),
    ],
)
def test_u4_addresses_that_are_refused(address: list[Any], sets: list[Json], code: str) -> None:
    assert fault(op("a", ins=[symbolic("t_set", *address)]), sets=sets) == code


def test_u4_the_last_element_is_inside() -> None:
    used = symbolic("t_set", constant(127), constant(15))
    assert operand(unroll(body(op("a", outs=[used]), sets=[dram()])), "a", "outs")["offset"] == 2047


def test_u4_a_fault_in_the_last_iteration_names_the_operand() -> None:
    used = symbolic("t_set", axis("i"), constant(0))
    nest = loop("L", "i", (0, 129, 1), op("ok"), op("a", ins=[access("t"), used]))
    message = refused("unroll", body(nest, sets=[dram()]))
    assert (message.code, message.instruction, message.location) == ("address_out_of_bounds", "a", "t")
    assert message.message == "operand 1 (`ins`): offset 2048 is not inside location `t` of 2048 elements"


def test_u4_an_unknown_dtype() -> None:
    result = air.passes.unroll(
        read(body(op("a", ins=[symbolic("t_set", constant(0), constant(0), dtype="odd")]), sets=[dram()]))
    )
    assert [(m.code, m.instruction) for m in result.messages] == [("unknown_dtype", "a")]


@pytest.mark.parametrize("opcode", ["GenericIndirectLoad", "GenericIndirectSave"])
def test_u4_generic_operands_keep_their_kind(opcode: str) -> None:
    argument = {"kind": "IndirectArgId", "arg_id": 1}
    used = symbolic("t_set", argument, affine("i", 2, 1), axis("i"), 4)
    outcome = unroll(body(loop("L", "i", (3, 4, 1), op("a", opcode, ins=[used])), sets=[dram()]))
    folded = [argument, {"kind": "AffExprKind", "terms": [], "c": 7}, {"c": 3, "kind": "AffExprKind", "terms": []}, 4]
    assert operand(outcome, "a-0") == used | {"addrs": folded}
    assert fault(loop("L", "i", (3, 4, 1), op("a", "Load", ins=[used])), sets=[dram()]) == "address_rank_mismatch"
    plain = symbolic("t_set", constant(0), constant(1))
    assert operand(unroll(body(op("a", opcode, ins=[plain]), sets=[dram()])), "a")["kind"] == "physical_ap"
    assert unroll(body(op("a", opcode, ins=[symbolic("t_set", argument)]), sets=[dram()])).status == "unchanged"


# U5: expressions

AXES = {"i": 5, "j": -7}


def folded(expression: Any, shard_id: int = 0, old: bool = False) -> Any:
    """What an attribute becomes inside loops over i = 5 and j = -7."""
    nest = loop("L", "i", (5, 6, 1), loop("M", "j", (-7, -6, 1), op("a", v=expression)))
    outcome = unroll(body(nest, sets=[register("r")], version=1 if old else 2), shard_id=shard_id)
    return values(outcome)[0]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ({"kind": "AffExprKind"}, 0),
        (
            {"kind": "AffExprKind", "c": 3, "terms": [{"idx": axis("i"), "coeff": 2}, {"idx": axis("j"), "coeff": -1}]},
            20,
        ),
        (axis("j"), -7),
        ({"kind": "ShardIDKind", "ub": 2}, 9),
        ({"kind": "SumKind", "n_terms": 3, "terms": [axis("i"), axis("j"), constant(1)]}, -1),
        ({"kind": "SumKind", "n_terms": 0, "terms": []}, 0),
        ({"kind": "MultKind", "var": axis("i"), "scale": -3}, -15),
        ({"kind": "FloorDivKind", "numer": axis("j"), "denom": 2}, -4),
        ({"kind": "FloorDivKind", "numer": axis("j"), "denom": -2}, 3),
        ({"kind": "ModuloKind", "numer": axis("j"), "denom": 4}, 1),
        ({"kind": "ModuloKind", "numer": axis("i"), "denom": -4}, -3),
        ({"kind": "CCModKind", "numer": axis("i"), "denom": 3}, 2),
        ({"kind": "FloorDivKind", "numer": axis("j"), "denom": 2**70}, -1),
        ({"kind": "MultKind", "var": {"kind": "ModuloKind", "numer": axis("i"), "denom": 5}, "scale": 2**70}, 0),
        ({"terms": [{"AxisLabel": "j", "coef": 3}], "c": 1}, -20),
        ({"terms": [{"AxisLabel": "j", "coef": 1}], "c": 0, "op": "Div", "op_param": 2}, -4),
        ({"terms": [{"AxisLabel": "j", "coef": 1}], "c": 0, "op": "Mod", "op_param": 4}, 1),
    ],
)
def test_u5_every_form(expression: Json, value: int) -> None:
    assert folded(expression, shard_id=9) == value


def test_u5_the_nearest_loop_of_an_axis_name() -> None:
    inner = loop("M", "i", (7, 8, 1), op("a", v=axis("i")))
    assert values(unroll(body(loop("L", "i", (1, 2, 1), inner, op("b", v=axis("i")))))) == [7, 1]


RANK = {"kind": "CCGetRankKind", "iteration_id": 1, "channel_id": 2}


@pytest.mark.parametrize(
    ("expression", "rest"),
    [
        (runtime("r"), runtime("r")),
        (RANK, RANK),
        (
            {
                "kind": "AffExprKind",
                "c": 1,
                "x": 1.50,
                "terms": [{"idx": axis("i"), "coeff": 2}, {"idx": runtime("r"), "coeff": 3}],
            },
            {"kind": "AffExprKind", "c": 11, "x": 1.50, "terms": [{"idx": runtime("r"), "coeff": 3}]},
        ),
        (
            {"kind": "SumKind", "n_terms": 4, "terms": [runtime("r"), axis("i"), RANK, constant(2)]},
            {
                "kind": "SumKind",
                "n_terms": 3,
                "terms": [runtime("r"), {"c": 7, "kind": "AffExprKind", "terms": []}, RANK],
            },
        ),
        (
            {"kind": "SumKind", "n_terms": 2, "terms": [runtime("r"), constant(2) | {"y": 1}]},
            {"kind": "SumKind", "n_terms": 2, "terms": [runtime("r"), constant(2) | {"y": 1}]},
        ),
        (
            {"kind": "MultKind", "var": {"kind": "SumKind", "terms": [RANK, axis("j"), axis("i")]}, "scale": 2},
            {
                "kind": "MultKind",
                "var": {"kind": "SumKind", "terms": [RANK, {"c": -2, "kind": "AffExprKind", "terms": []}]},
                "scale": 2,
            },
        ),
        (
            {"kind": "CCDivKind", "numer": axis("i"), "denom": 2, "replica_groups_id": 0},
            {
                "kind": "CCDivKind",
                "numer": {"c": 5, "kind": "AffExprKind", "terms": []},
                "denom": 2,
                "replica_groups_id": 0,
            },
        ),
        (
            {"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1, "op": "CCGetRank", "op_param": 2},
            {"terms": [], "c": 11, "op": "CCGetRank", "op_param": 2},
        ),
        (
            {"kind": "FloorDivKind", "numer": runtime("r"), "denom": 0},
            {"kind": "FloorDivKind", "numer": runtime("r"), "denom": 0},
        ),
    ],
)
def test_u5_values_of_run_time_stay_and_the_rest_is_folded(expression: Json, rest: Json) -> None:
    made = folded(expression)
    assert made == rest
    assert json.dumps(made) == json.dumps(rest)


def test_u5_version_1_stays_version_1() -> None:
    old = {"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1}
    assert folded({"kind": "SumKind", "terms": [runtime("r"), old]}, old=True) == {
        "kind": "SumKind",
        "terms": [runtime("r"), {"terms": [], "c": 11}],
    }


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ({"kind": "FloorDivKind", "numer": axis("i"), "denom": 0}, "division_by_zero"),
        ({"kind": "ModuloKind", "numer": axis("i"), "denom": 0}, "division_by_zero"),
        ({"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1, "op": "Div"}, "division_by_zero"),
        (axis("k"), "unresolved_name"),
        ({"terms": [{"AxisLabel": "k", "coef": 2}], "c": 1}, "unresolved_name"),
        ({"kind": "SumKind", "terms": [{"kind": "NoSuchKind"}]}, "bad_expression"),
        ({"terms": [], "c": 1, "op": "Nop"}, "bad_expression"),
        ({"kind": "AffIVKind"}, "bad_expression"),
        ({"kind": "MultKind", "var": axis("i")}, "bad_expression"),
        ({"kind": "AffExprKind", "terms": [{"coeff": 1}]}, "bad_expression"),
        ({"kind": "MultKind", "var": axis("i"), "scale": 2**62}, "integer_overflow"),
        ({"kind": "AffExprKind", "terms": [], "c": 2**63}, "integer_overflow"),
        ({"kind": "FloorDivKind", "numer": constant(SMALL), "denom": -1}, "integer_overflow"),
        ({"kind": "SumKind", "terms": [constant(LARGE), axis("i"), constant(-9)]}, "integer_overflow"),
    ],
)
def test_u5_expressions_that_are_refused(expression: Json, code: str) -> None:
    nest = loop("L", "i", (5, 6, 1), op("a", v=expression))
    message = refused("unroll", body(nest))
    assert (message.code, message.instruction) == (code, "a")
    assert message.message.startswith("the expression in `v` cannot be worked out: ")


def test_u5_a_fault_in_one_iteration_of_many() -> None:
    hidden = {"kind": "MultKind", "var": {"kind": "FloorDivKind", "numer": axis("i"), "denom": 5000}, "scale": 2**62}
    assert fault(loop("L", "i", (0, 10_001, 1), op("a", v=hidden))) == "integer_overflow"
    assert unroll(body(loop("L", "i", (0, 10_000, 1), op("a", v=hidden)))).status == "changed"


# U6: attributes, immediates, predicates


def test_u6_attributes_at_any_depth() -> None:
    given = {"order": [axis("i")], "cc_channel": affine("i", 2), "unknown": {"a": [1.50, {"b": axis("i")}]}}
    [made] = rows(unroll(body(loop("L", "i", (4, 5, 1), op("a", **given)))).doc)
    assert {key: made[key] for key in given} == {"order": [4], "cc_channel": 8, "unknown": {"a": [1.5, {"b": 4}]}}


def test_u6_attributes_outside_loops() -> None:
    assert values(unroll(body(op("a", v=constant(3))))) == [3]


def test_u6_what_is_no_attribute_stays() -> None:
    kept = {
        "debug": {"x": constant(1)},
        "sync_info": {"x": axis("i"), "on_wait": [{"id": 1, "wait_value": 2, "y": axis("i")}]},
        "predicates": [],
        "dependencies": [["gone", "Flow", axis("i")]],
    }
    nest = loop("L", "i", (4, 6, 1), op("a", "NKIKernel", func="k", func_args={"x": "y"}, **kept))
    made = rows(unroll(body(nest)).doc)
    assert [{key: each[key] for key in kept} for each in made] == [kept, kept]
    assert made[1]["func_args"] == {"x": "y"}


def test_u6_distinct_values_make_distinct_texts() -> None:
    two = {"x": axis("i"), "y": [axis("j"), 1.10]}
    nest = loop("L", "i", (0, 3, 1), loop("M", "j", (0, 2, 1), op("a", v=two)))
    assert values(unroll(body(nest))) == [{"x": i, "y": [j, 1.1]} for i in range(3) for j in range(2)]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"value_list": [{"value": 1.5}, 2, {"value": "inf"}], "expr": axis("i")}, [1.5, 2, "inf"]),
        ({"value_list": [{"value": 7}], "expr": runtime("r")}, [7, 7, 7]),
        ({"value_list": [7]}, [7, 7, 7]),
    ],
)
def test_u6_symbolic_immediates(members: Json, expected: list[Any]) -> None:
    used = {"kind": "symbolic_imm_value", "dtype": "float32", "x": 1} | members
    outcome = unroll(body(loop("L", "i", (0, 3, 1), op("a", ins=[used])), sets=[register("r")]))
    made = [each["ins"][0] for each in rows(outcome.doc)]
    assert made == [{"kind": "imm_value", "dtype": "float32", "x": 1, "value": value} for value in expected]
    assert list(made[0]) == ["kind", "dtype", "x", "value"]


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"value_list": [1, 2], "expr": constant(2)}, "immediate_out_of_range"),
        ({"value_list": [1, 2], "expr": constant(-1)}, "immediate_out_of_range"),
        ({"value_list": [], "expr": constant(0)}, "immediate_out_of_range"),
        ({"value_list": [1, 2]}, "immediate_out_of_range"),
        ({"value_list": [1, 2], "expr": runtime("r")}, "runtime_address"),
        ({"value_list": [1, 2], "expr": axis("q")}, "unresolved_name"),
    ],
)
def test_u6_immediates_that_are_refused(members: Json, code: str) -> None:
    used = {"kind": "symbolic_imm_value", "dtype": "float32"} | members
    assert fault(op("a", ins=[used]), sets=[register("r")]) == code


def test_u6_number_literals_of_values_stay() -> None:
    used = {
        "kind": "symbolic_imm_value",
        "dtype": "float32",
        "value_list": [{"value": 0}, {"value": 1}],
        "expr": axis("i"),
    }
    text = written(body(loop("L", "i", (1, 2, 1), op("a", ins=[used])))).replace(b'{"value":1}', b'{"value":1.500e400}')
    assert b'"value":1.500e400' in air.passes.unroll(air.read_json(text)).ir.to_json(0)


@pytest.mark.parametrize("nested", [False, True])
def test_u6_predicates(nested: bool) -> None:
    instruction = op("a", predicates=[{"x": 1}])
    assert fault(loop("L", "i", (0, 1, 1), instruction) if nested else instruction) == "predicated_instruction"
    assert fault(loop("L", "i", (0, 1, 1), op("a"), predicates=[{"x": 1}])) == "predicated_instruction"
    assert unroll(body(op("a", predicates=[]))).status == "unchanged"
