"""The oracle of rules U (and R3, R6, F6 where unrolling uses them) against hand-worked documents."""

import copy
from typing import Any

import pytest

from tests.oracle import Outcome, run_unroll
from tests.oracle.builders import (
    Obj,
    access,
    affine,
    axis,
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


def unrolled(*instructions: Obj, sets: list[Obj] | None = None, **options: Any) -> Outcome:
    doc = module(function("main", sets or [], *instructions))
    before = copy.deepcopy(doc)
    outcome = run_unroll(doc, **options)
    assert doc == before
    if outcome.status != "changed":
        assert outcome.doc == before
    return outcome


def failure(*instructions: Obj, sets: list[Obj] | None = None) -> str:
    outcome = unrolled(*instructions, sets=sets)
    assert outcome.status == "failed"
    [row_] = outcome.diagnostics
    return row_.code


def values(outcome: Outcome, key: str = "v") -> list[Any]:
    return [each[key] for each in rows(outcome.doc)]


def edges(outcome: Outcome, name: str, key: str = "dependencies") -> Any:
    return row(outcome.doc, name).get(key)


# Loops


def test_u0_all_functions() -> None:
    doc = module(
        function("main", [], loop("L", "i", (0, 2, 1), op("a"))),
        kernels=[function("k", [], loop("L", "i", (0, 1, 1), op("b")))],
    )
    after = run_unroll(doc).doc
    assert names(after) == ["a-0", "a-1"]
    assert after["nki_functions"]["functions"][0]["blocks"][0]["instructions"][0]["name"] == "b-0"


def test_u0_o2_unchanged() -> None:
    assert unrolled(op("a", dependencies=[])).status == "unchanged"


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0, 10, 3), [0, 3, 6, 9]),
        ((9, -1, -3), [9, 6, 3, 0]),
        ((5, 5, 1), []),
        ((5, 0, 1), []),
        ((None, 2, 1), [0, 1]),
        ((constant(1), constant(3), constant(1)), [1, 2]),
        (({"kind": "ShardIDKind", "ub": 2}, 3, 1), [1, 2]),
    ],
)
def test_u1_values_of_a_loop(bounds: Any, expected: list[int]) -> None:
    body = op("a", "X", v=axis("i"))
    assert values(unrolled(loop("L", "i", bounds, body), op("z", v=-9), shard_id=1))[:-1] == expected


def test_u1_absent_bounds_are_0() -> None:
    body = loop("L", "i", (0, 2, 1), op("a"))
    del body["LoopAxis"]["lb"]
    assert names(unrolled(body).doc) == ["a-0", "a-1"]


def test_u1_zero_stride() -> None:
    assert failure(loop("L", "i", (0, 0, 0), op("a"))) == "zero_stride"


def test_u1_dynamic_bounds() -> None:
    assert failure(loop("L", "i", (0, runtime("r"), 1)), sets=[register("r")]) == "dynamic_loop"
    inner = loop("M", "j", (0, axis("i"), 1), op("a"))
    assert failure(loop("L", "i", (0, 2, 1), inner)) == "dynamic_loop"


def test_u1_no_trips_body_unseen() -> None:
    bad = loop("M", "j", (0, 1, 0), op("a", predicates=[{}]))
    outcome = unrolled(op("z"), loop("L", "i", (3, 3, 1), bad))
    assert names(outcome.doc) == ["z"]


def test_u1_nest_is_row_major_and_flat() -> None:
    inner = loop("M", "j", (0, 2, 1), op("a", v=[axis("i"), axis("j")]))
    outcome = unrolled(loop("L", "i", (0, 3, 2), inner))
    assert values(outcome) == [[0, 0], [0, 1], [2, 0], [2, 1]]
    assert names(outcome.doc) == ["a-0", "a-1", "a-2", "a-3"]


def test_u2_control_flow_in_a_body() -> None:
    two = loop("L", "i", (0, 2, 1), op("a"))
    two["blocks"].append({"name": "b2", "instructions": []})
    back = op("b", "UnconditionalBranch", target="L_body")
    deeper = loop("M", "j", (0, 1, 1), op("b", "CompareAndBranch", on_true="L_body", on_false="Block1"))
    for lowered in (
        two,
        loop("L", "i", (0, 1, 1), op("b", "Break")),
        loop("L", "i", (0, 1, 1), back),
        loop("L", "i", (0, 1, 1), deeper),
        op("d", "DoWhile", cond=constant(0), blocks=[]),
        op("d", "DynamicForLoop", DynamicForLoopAxis={"ub": runtime("r"), "stride": 1}, blocks=[]),
    ):
        blocks = unrolled(lowered, sets=[register("r")]).doc["functions"][0]["blocks"]
        assert [block["name"] for block in blocks[:3]] == ["Block1", "Block1_LoopEntry_1", "Block1_LoopBody_1"]
    out = op("b", "UnconditionalBranch", target="Block1")
    outcome = unrolled(loop("L", "i", (0, 2, 1), out))
    assert len(outcome.doc["functions"][0]["blocks"]) == 1


@pytest.mark.parametrize("more", [{"tensor_class": "NeuronBlockTensor"}, {"NBlocks": 4}])
def test_u2_block_tensor_in_a_loop(more: Obj) -> None:
    sets = [memory_set("t_set", **more)]
    assert failure(loop("L", "i", (0, 1, 1), op("a", ins=[access("t")])), sets=sets) == "block_tensor"
    assert unrolled(op("a", ins=[access("t")]), sets=sets).status == "unchanged"


def test_u3_number_over_the_whole_nest() -> None:
    inner = loop("M", "j", (0, 3, 1), op("a"))
    outcome = unrolled(op("x"), loop("L", "i", (0, 2, 1), op("b"), inner))
    assert names(outcome.doc) == ["x", "b-0", "a-0", "a-1", "a-2", "b-1", "a-3", "a-4", "a-5"]


def test_u3_r6_taken_names() -> None:
    outcome = unrolled(op("a-1"), loop("L", "i", (0, 2, 1), op("a"), op("a")), op("a-1.1"))
    assert names(outcome.doc) == ["a-1", "a-0", "a-0.1", "a-1.2", "a-1.3", "a-1.1"]


# Operands


def dram(name: str = "t", shape: list[int] | None = None, dims: list[int] | None = None) -> Obj:
    return memory_set(f"{name}_set", "Internal", location(name, dims), tensor_shape=shape or [128, 16])


def test_u4_dram_strides_are_row_major() -> None:
    sets = [dram("t", [4, 3, 5], [1, 240])]
    inner = op("a", ins=[symbolic("t_set", axis("i"), constant(1), constant(2))])
    outcome = unrolled(loop("L", "i", (1, 3, 1), inner), sets=sets)
    assert [each["ins"][0]["offset"] for each in rows(outcome.doc)] == [15 + 5 + 2, 30 + 5 + 2]


@pytest.mark.parametrize("kind", ["SB", "PSUM"])
def test_u4_first_stride_of_on_chip_memory(kind: str) -> None:
    place = location("t", [128, 100], type=kind)
    sets = [memory_set("t_set", "Internal", place, tensor_shape=[128, 16])]
    operand = symbolic("t_set", constant(2), constant(3), dtype="bfloat16")
    outcome = unrolled(op("a", outs=[operand]), sets=sets)
    assert rows(outcome.doc)[0]["outs"][0]["offset"] == 2 * 50 + 3


def test_u4_members_of_the_physical_operand() -> None:
    operand = symbolic("t_set", constant(0), constant(1), zzz=7)
    outcome = unrolled(op("a", ins=[operand], indirection_ins=[dict(sorted(operand.items()))]), sets=[dram()])
    [made] = rows(outcome.doc)[0]["ins"]
    assert list(made) == ["kind", "ap", "dtype", "memsetref", "zzz", "memref", "offset"]
    assert (made["kind"], made["memref"], made["memsetref"], made["offset"]) == ("physical_ap", "t", "t_set", 1)
    [sorted_one] = rows(outcome.doc)[0]["indirection_ins"]
    assert list(sorted_one) == sorted(made)
    assert sorted_one == made


def test_u4_symbolic_pwap_and_version_1_addresses() -> None:
    old = {"terms": [{"AxisLabel": "i", "coef": 4}], "c": 1}
    operand = symbolic("t_set", {"terms": [], "c": 0}, old) | {"kind": "symbolic_pwap"}
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a", ins=[operand])), sets=[dram()])
    assert [each["ins"][0]["offset"] for each in rows(outcome.doc)] == [1, 5]
    assert rows(outcome.doc)[0]["ins"][0]["kind"] == "physical_ap"


@pytest.mark.parametrize(
    ("operand", "sets", "code"),
    [
        (symbolic("t_set", constant(0)), [dram()], "address_rank_mismatch"),
        (
            symbolic("t_set", constant(0), constant(0)),
            [memory_set("t_set", "Internal", location("a"), location("b"))],
            "symbolic_location_count",
        ),
        (symbolic("t_set", constant(-1), constant(0)), [dram()], "address_out_of_bounds"),
        (symbolic("t_set", constant(127), constant(16)), [dram()], "address_out_of_bounds"),
        (symbolic("t_set", constant(2**62), constant(0)), [dram()], "integer_overflow"),
        (symbolic("t_set", constant(0), runtime("r")), [dram(), register("r")], "runtime_address"),
        (symbolic("t_set", constant(0), {"kind": "IndirectArgId", "arg_id": 1}), [dram()], "runtime_address"),
        (symbolic("t_set", constant(0), axis("nowhere")), [dram()], "unresolved_name"),
        (symbolic("nowhere", constant(0), constant(0)), [dram()], "unresolved_name"),
        (symbolic("t_set", constant(0), {"kind": "NoSuchKind"}), [dram()], "bad_expression"),
        (
            symbolic("t_set", constant(0), {"kind": "FloorDivKind", "numer": constant(1), "denom": 0}),
            [dram()],
            "division_by_zero",
        ),
    ],
)
def test_u4_u5_faults_of_an_address(operand: Obj, sets: list[Obj], code: str) -> None:
    assert failure(op("a", ins=[operand]), sets=sets) == code


def test_u4_last_element_is_in_bounds() -> None:
    operand = symbolic("t_set", constant(127), constant(15))
    assert rows(unrolled(op("a", ins=[operand]), sets=[dram()]).doc)[0]["ins"][0]["offset"] == 2047


@pytest.mark.parametrize("opcode", ["GenericIndirectLoad", "GenericIndirectSave"])
def test_u4_generic_access_keeps_its_kind(opcode: str) -> None:
    argument = {"kind": "IndirectArgId", "arg_id": 1}
    operand = symbolic("t_set", argument, affine("i", 2, 1))
    outcome = unrolled(loop("L", "i", (3, 4, 1), op("a", opcode, ins=[operand])), sets=[dram()])
    [made] = rows(outcome.doc)[0]["ins"]
    assert made == operand | {"addrs": [argument, {"kind": "AffExprKind", "terms": [], "c": 7}]}
    assert list(made["addrs"][1]) == ["kind", "terms", "c"]


# Expressions


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (affine("i", 3, 1), 16),
        ({"kind": "SumKind", "n_terms": 2, "terms": [axis("i"), constant(4)]}, 9),
        ({"kind": "MultKind", "var": axis("i"), "scale": -2}, -10),
        ({"kind": "FloorDivKind", "numer": affine("i", -1), "denom": 2}, -3),
        ({"kind": "ModuloKind", "numer": affine("i", -1), "denom": 3}, 1),
        ({"kind": "CCModKind", "numer": axis("i"), "denom": 3}, 2),
        ({"kind": "ShardIDKind", "ub": 4}, 2),
        ({"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1}, 11),
        ({"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1, "op": "Div", "op_param": 4}, 2),
        ({"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1, "op": "Mod", "op_param": 4}, 3),
        ({"kind": "AffExprKind"}, 0),
    ],
)
def test_u5_every_form(expression: Obj, expected: int) -> None:
    outcome = unrolled(loop("L", "i", (5, 6, 1), op("a", v=expression)), shard_id=2)
    assert values(outcome) == [expected]


def test_u5_nearest_enclosing_axis() -> None:
    inner = loop("M", "i", (7, 8, 1), op("a", v=axis("i")))
    assert values(unrolled(loop("L", "i", (0, 1, 1), inner, op("b", v=axis("i"))))) == [7, 0]


def test_u5_runtime_values_stay_and_the_rest_is_folded() -> None:
    r = runtime("r")

    def folded(expression: Obj) -> Any:
        return values(unrolled(loop("L", "i", (5, 6, 1), op("a", v=expression)), sets=[register("r")]))[0]

    mixed = {"kind": "AffExprKind", "c": 1, "terms": [{"idx": axis("i"), "coeff": 2}, {"idx": r, "coeff": 3}]}
    assert folded(mixed) == {"kind": "AffExprKind", "c": 11, "terms": [{"idx": r, "coeff": 3}]}
    sum_ = {"kind": "SumKind", "n_terms": 4, "terms": [r, axis("i"), r, constant(2)]}
    assert folded(sum_) == {"kind": "SumKind", "n_terms": 3, "terms": [r, constant(7), r]}
    one = {"kind": "SumKind", "n_terms": 2, "terms": [affine("i"), r]}
    assert folded(one) == one | {"terms": [constant(5), r]}
    assert list(folded(one)["terms"][0]) == ["kind", "terms", "c"]
    ratio = {"kind": "CCDivKind", "numer": axis("i"), "denom": 2, "replica_groups_id": 0}
    assert folded(ratio) == ratio | {"numer": constant(5)}
    assert list(folded(ratio)["numer"]) == ["c", "kind", "terms"]
    product = {"kind": "MultKind", "var": {"kind": "ModuloKind", "numer": mixed, "denom": 4}, "scale": 2}
    assert folded(product)["var"]["numer"]["c"] == 11
    sorted_constant = folded({"kind": "SumKind", "n_terms": 3, "terms": [constant(1), r, constant(2)]})["terms"][0]
    assert list(sorted_constant.items()) == [("c", 3), ("kind", "AffExprKind"), ("terms", [])]
    rank = {"kind": "CCGetRankKind", "iteration_id": 1, "channel_id": 2}
    assert folded(rank) == rank
    old = {"terms": [{"AxisLabel": "i", "coef": 2}], "c": 1, "op": "CCGetRank", "op_param": 2}
    assert folded(old) == {"terms": [], "c": 11, "op": "CCGetRank", "op_param": 2}


def test_u6_attributes_at_any_depth_but_not_what_is_excluded() -> None:
    kept = {
        "debug": {"x": axis("i")},
        "sync_info": {"x": constant(1)},
        "func_args": {"a": "b"},
    }
    outcome = unrolled(
        loop(
            "L", "i", (4, 5, 1), op("a", order=[axis("i")], cc_channel=affine("i", 2), deep=[{"x": axis("i")}], **kept)
        )
    )
    [made] = rows(outcome.doc)
    assert (made["order"], made["cc_channel"], made["deep"]) == ([4], 8, [{"x": 4}])
    assert {key: made[key] for key in kept} == kept
    assert rows(unrolled(op("b", v=constant(3))).doc)[0]["v"] == 3


def test_u6_symbolic_immediates() -> None:
    def immediate(**more: Any) -> Obj:
        return {"kind": "symbolic_imm_value", "dtype": "float32"} | more

    picked = immediate(expr=axis("i"), value_list=[{"value": 1.5}, 2.5])
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a", ins=[picked])))
    assert [each["ins"] for each in rows(outcome.doc)] == [
        [{"kind": "imm_value", "dtype": "float32", "value": 1.5}],
        [{"kind": "imm_value", "dtype": "float32", "value": 2.5}],
    ]
    only = immediate(value_list=[{"value": 9}])
    assert rows(unrolled(op("a", ins=[only])).doc)[0]["ins"][0]["value"] == 9
    for bad in (immediate(expr=constant(2), value_list=[1, 2]), immediate(expr=constant(-1), value_list=[1, 2])):
        assert failure(op("a", ins=[bad])) == "immediate_out_of_range"


def test_u6_predicates() -> None:
    assert failure(op("a", predicates=[{"x": 1}])) == "predicated_instruction"
    assert unrolled(op("a", predicates=[])).status == "unchanged"


# Dependencies


def test_u7_same_iteration_and_last_iteration() -> None:
    body = [op("a"), op("b", dependencies=[["a", "Flow"], ["p", "Anti"]])]
    outcome = unrolled(op("p"), loop("L", "i", (0, 2, 1), *body), op("z", dependencies=["b"]))
    assert edges(outcome, "b-0") == [["a-0", "Flow"], ["p", "Anti"]]
    assert edges(outcome, "b-1") == [["a-1", "Flow"], ["p", "Anti"]]
    assert edges(outcome, "z") == ["b-1"]


def test_u7_inner_loop_alone_gives_its_last_iteration() -> None:
    inner = loop("M", "j", (0, 3, 1), op("a"))
    outcome = unrolled(loop("L", "i", (0, 2, 1), inner, op("b", dependencies=[["a", "Flow"]])))
    assert [edges(outcome, f"b-{n}") for n in (0, 1)] == [[["a-2", "Flow"]], [["a-5", "Flow"]]]


def test_u7_no_instance_no_edge() -> None:
    empty = loop("L", "i", (0, 0, 1), op("a"))
    outcome = unrolled(empty, op("b", dependencies=[["a", "Flow"]]))
    assert "dependencies" not in rows(outcome.doc)[0]


def test_u7_edges_of_and_on_a_loop() -> None:
    body = [op("a"), op("b", dependencies=[["a", "Flow"]]), op("c")]
    outcome = unrolled(
        op("p"),
        loop("L", "i", (0, 2, 1), *body, dependencies=[["p", "Output"]]),
        op("z", dependencies=[["p", "Flow"], ["L", "Anti"], "p"]),
    )
    assert edges(outcome, "a-0") == [["p", "Output"]]
    assert edges(outcome, "b-0") == [["a-0", "Flow"]]
    assert edges(outcome, "c-1") == [["p", "Output"]]
    on_sinks = [[name, "Anti"] for name in ("b-0", "c-0", "b-1", "c-1")]
    assert edges(outcome, "z") == [["p", "Flow"], *on_sinks, "p"]


def test_u7_edges_on_an_inner_loop_are_of_that_outer_iteration() -> None:
    inner = loop("M", "j", (0, 2, 1), op("a", loop_carried_dependencies=[["a", "Flow"]]))
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("b"), inner | {"dependencies": ["b"]}, op("c", dependencies=["M"])))
    assert edges(outcome, "a-0") == ["b-0"]
    assert edges(outcome, "a-1") == [["a-0", "Flow"]]
    assert edges(outcome, "a-2") == ["b-1"]
    # a-1 depends on a-0, so it alone is a sink.
    assert edges(outcome, "c-0") == ["a-1"]
    assert edges(outcome, "c-1") == ["a-3"]


def test_u7_an_edge_of_the_inner_loop_makes_its_roots_inner_edges() -> None:
    inner = loop("M", "j", (0, 2, 1), op("a"), dependencies=["b"])
    outer = loop("L", "i", (0, 1, 1), op("b"), inner, dependencies=["p"])
    outcome = unrolled(op("p"), outer, op("z", dependencies=["L"]))
    assert edges(outcome, "b-0") == ["p"]
    assert edges(outcome, "a-0") == ["b-0"]
    assert edges(outcome, "z") == ["a-0", "a-1"]


def test_u7_edges_on_the_loop_around_do_not_count_for_its_ends() -> None:
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a", dependencies=["L"]), dependencies=["M"]), *mutual()[1:])
    assert edges(outcome, "a-0") == ["a-0", "a-1", "m-0"]


def mutual() -> list[Obj]:
    return [
        loop("L", "i", (0, 1, 1), op("a", dependencies=["M"])),
        loop("M", "j", (0, 1, 1), op("m", dependencies=["L"])),
    ]


def test_u7_loops_on_each_other() -> None:
    outcome = unrolled(*mutual())
    assert (edges(outcome, "a-0"), edges(outcome, "m-0")) == (["m-0"], ["a-0"])


def test_u7_n14_a_loop_without_trips_joins() -> None:
    empty = loop("L", "i", (0, 0, 1), op("a"), dependencies=[["p", "Flow"], ["q", "Flow"]])
    outcome = unrolled(op("p"), op("q"), empty, op("z", dependencies=[["q", "Anti"], ["L", "Anti"]]))
    assert edges(outcome, "z") == [["q", "Anti"], ["p", "Anti"]]


def test_u7_a_loop_of_empty_loops_joins_too() -> None:
    inner = loop("M", "j", (0, 0, 1), op("a"))
    outer = loop("L", "i", (0, 3, 1), inner, dependencies=["p"])
    outcome = unrolled(op("p"), outer, op("z", dependencies=[["L", "Ordered"]]))
    assert names(outcome.doc) == ["p", "z"]
    assert edges(outcome, "z") == [["p", "Ordered"]]


@pytest.mark.parametrize("extra", [[], [2], [[2]]])
def test_u7_loop_carried_distance(extra: list[Any]) -> None:
    outcome = unrolled(loop("L", "i", (0, 4, 1), op("a"), op("b", loop_carried_dependencies=[["a", "Anti", *extra]])))
    back = 2 if extra else 1
    for n in range(4):
        wanted = [[f"a-{n - back}", "Anti"]] if n >= back else None
        assert edges(outcome, f"b-{n}") == wanted
        assert edges(outcome, f"b-{n}", "loop_carried_dependencies") is None


def test_u7_loop_carried_in_the_innermost_common_loop() -> None:
    inner = loop("M", "j", (0, 2, 1), op("a", loop_carried_dependencies=["a"]))
    outcome = unrolled(loop("L", "i", (0, 2, 1), inner))
    assert [edges(outcome, f"a-{n}") for n in range(4)] == [None, ["a-0"], None, ["a-2"]]


def test_u7_loop_carried_without_a_common_loop_stays() -> None:
    outcome = unrolled(
        loop("L", "i", (0, 2, 1), op("a")), op("b", v=constant(1), loop_carried_dependencies=[["a", "Anti", [3]]])
    )
    assert edges(outcome, "b", "loop_carried_dependencies") == [["a-1", "Anti", [3]]]
    assert edges(outcome, "b") is None


def test_u7_distance_below_1() -> None:
    assert failure(loop("L", "i", (0, 2, 1), op("a", loop_carried_dependencies=[["a", "Anti", 0]]))) == "bad_distance"


def test_u7_unroll_dependencies() -> None:
    entry = ["a", "Flow", [affine("i", 1, -1), constant(2)], []]
    nest = loop("L", "i", (0, 3, 1), loop("M", "j", (0, 4, 2), op("a")), op("b", unroll_dependencies=[entry]))
    outcome = unrolled(nest)
    # Index values, not iteration numbers: j is 0 or 2.
    assert [edges(outcome, f"b-{n}") for n in range(3)] == [None, [["a-1", "Flow"]], [["a-3", "Flow"]]]
    assert edges(outcome, "b-1", "unroll_dependencies") is None


def test_u7_unroll_dependency_faults() -> None:
    def fault(*extras: Any) -> str:
        return failure(loop("L", "i", (0, 2, 1), op("a"), op("b", unroll_dependencies=[["a", "Flow", *extras]])))

    assert fault([]) == "index_rank_mismatch"
    assert fault([axis("i"), axis("i")]) == "index_rank_mismatch"
    assert fault([axis("i")], [{"p": 1}]) == "predicated_dependency"
    assert fault([axis("q")]) == "unresolved_name"


def test_u7_order_in_the_list_and_forms() -> None:
    body = op(
        "b",
        loop_carried_dependencies=["a"],
        unroll_dependencies=[["a", 4, [axis("i")]]],
        dependencies=["a", ["a", "Output", "kept"]],
    )
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a"), body))
    assert edges(outcome, "b-1") == ["a-1", ["a-1", "Output", "kept"], "a-0", ["a-1", 4]]


def test_u7_r5_unresolved_names_stay() -> None:
    body = op("b", dependencies=[["gone", "Flow"]], unroll_dependencies=[["gone", "Flow", [axis("i")]]])
    outcome = unrolled(loop("L", "i", (0, 2, 1), body))
    for n in (0, 1):
        assert edges(outcome, f"b-{n}") == [["gone", "Flow"]]
        assert edges(outcome, f"b-{n}", "unroll_dependencies") == [["gone", "Flow", [axis("i")]]]


def test_r3_which_of_repeated_names() -> None:
    # The nearest earlier one of the block comes before the nearer one of another block.
    body = loop("L", "i", (0, 1, 1), op("a", v=2), op("x", dependencies=["a"]))
    outcome = unrolled(op("a", v=1), body, op("a", v=3), op("y", dependencies=["a"]))
    assert edges(outcome, "x-0") == ["a-0"]
    assert edges(outcome, "y") == ["a"]
    outcome = unrolled(op("y", dependencies=["a"]), loop("L", "i", (0, 1, 1), op("a")), op("a"))
    assert edges(outcome, "y") == ["a-0"]
    outcome = unrolled(op("a", dependencies=["a"]), loop("L", "i", (0, 1, 1), op("a")))
    assert edges(outcome, "a") == ["a-0"]
    outcome = unrolled(op("a"), loop("L", "i", (0, 1, 1), op("a")), op("z", dependencies=["a"]))
    assert edges(outcome, "z") == ["a"]
    outcome = unrolled(loop("L", "i", (0, 1, 1), op("a", dependencies=["a"])))
    assert edges(outcome, "a-0") == ["a-0"]


def test_r0_waits_follow_the_plain_rule() -> None:
    wait = {"on_wait": [{"from": "a", "id": 1}, {"from": "dma7", "id": 2}]}
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a"), op("b", sync_info=wait)), op("c", sync_info=wait))
    found = [row(outcome.doc, name)["sync_info"]["on_wait"][0]["from"] for name in ("b-0", "b-1", "c")]
    assert found == ["a-0", "a-1", "a-1"]
    assert row(outcome.doc, "c")["sync_info"]["on_wait"][1] == {"from": "dma7", "id": 2}


def test_f6_where_added_keys_stand() -> None:
    unsorted_op = op("b", loop_carried_dependencies=["a"])
    outcome = unrolled(loop("L", "i", (0, 2, 1), op("a"), unsorted_op, dict(sorted(unsorted_op.items()))))
    assert list(rows(outcome.doc)[4]) == ["name", "opcode", "engine", "ins", "outs", "dependencies"]
    assert list(rows(outcome.doc)[5]) == ["dependencies", "engine", "ins", "name", "opcode", "outs"]


def test_u8_loopnest_and_need_unroll() -> None:
    doc = module(function("main", [], op("a", loopnest=["i"]), attributes=["need_dce", "need_unroll"]))
    after = run_unroll(doc).doc["functions"][0]
    assert after["attributes"] == ["need_dce"]
    assert "loopnest" not in after["blocks"][0]["instructions"][0]
    doc["functions"][0]["attributes"] = {"need_unroll": True, "x": 1}
    assert run_unroll(doc).doc["functions"][0]["attributes"] == {"x": 1}


@pytest.mark.parametrize(("bounds", "rows_"), [((5, 25_000_006, 1), 25_000_001), ((9, -50_000_000, -2), 25_000_005)])
def test_o6_counts_trips(bounds: Any, rows_: int) -> None:
    outcome = unrolled(loop("L", "i", bounds, op("a")))
    assert outcome.codes() == {("error", "too_many_instructions")}
    assert outcome.diagnostics[0].message.startswith(f"{rows_} ")


def test_o6_size_before_it_is_made() -> None:
    huge = loop("L", "i", (0, 10**4, 1), loop("M", "j", (0, 10**4, 1), op("a")))
    outcome = unrolled(huge)
    assert outcome.codes() == {("error", "too_many_instructions")}
    assert "100000000" in outcome.diagnostics[0].message
    assert outcome.diagnostics[0].compiler_code == "ELUR015"


def test_r2_sets_by_role() -> None:
    sets = [
        memory_set("t_set", "Input", location("in")),
        memory_set("t_set", "Output", location("out")),
    ]
    operand = symbolic("t_set", constant(0), constant(0))
    outcome = unrolled(op("a", ins=[operand], outs=[operand], indirection_ins=[operand]), sets=sets)
    [made] = rows(outcome.doc)
    assert [made[role][0]["memref"] for role in ("ins", "outs", "indirection_ins")] == ["in", "out", "in"]
