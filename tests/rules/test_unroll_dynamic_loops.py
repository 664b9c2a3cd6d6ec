"""Rules U1, U2, U5 and R6 where loops become branches and registers; what must come out is written down by hand."""

from typing import Any

import pytest

import arrowir as air
from tests.dynamic_loops import (
    arithmetic,
    body,
    compared,
    counted,
    fault,
    moved,
    named,
    number,
    registers,
    repeated,
    same_as_the_oracle,
    several,
    unroll,
    went,
    worked,
)
from tests.oracle.builders import (
    affine,
    axis,
    block,
    constant,
    flow,
    jump,
    location,
    loop,
    memory_set,
    names,
    op,
    register,
    row,
    runtime,
)
from tests.single_pass import Json, read, refused

# U2: what a loop becomes


def test_u2_a_loop_that_is_counted_at_run_time() -> None:
    outcome = same_as_the_oracle(body(op("p"), counted("L", "i", (0, runtime("r"), 1), op("a")), op("z")))
    blocks = outcome.doc["functions"][0]["blocks"]
    assert blocks == [
        block("Block1", op("p"), went("Block1_br_to_LoopEntry_1", "Block1_LoopEntry_1")),
        block(
            "Block1_LoopEntry_1",
            moved("Block1_LoopEntry_1_axis", number(0), "Block1_LoopAxis_1"),
            moved("Block1_LoopEntry_1_step", number(1), "Block1_LoopStep_1"),
            moved("Block1_LoopEntry_1_end", named("r"), "Block1_LoopEnd_1"),
            compared(
                "Block1_LoopEntry_1_branch", "IS_LTREG", "Block1_LoopAxis_1", named("Block1_LoopEnd_1"),
                "Block1_LoopBody_1", "Block1_LoopExit_1",
            ),
        ),
        block(
            "Block1_LoopBody_1",
            op("a"),
            worked("Block1_LoopBody_1_next", "add", "Block1_LoopAxis_1", "Block1_LoopStep_1"),
            compared(
                "Block1_LoopBody_1_branch", "IS_LTREG", "Block1_LoopAxis_1", named("Block1_LoopEnd_1"),
                "Block1_LoopBody_1", "Block1_LoopExit_1",
            ),
        ),
        block("Block1_LoopExit_1", went("Block1_LoopExit_1_branch", "Block1_Resume_1")),
        block("Block1_Resume_1", op("z")),
    ]  # fmt: skip
    assert registers(outcome.doc) == ["r", "s", "Block1_LoopAxis_1", "Block1_LoopStep_1", "Block1_LoopEnd_1"]


def test_u2_new_objects_have_sorted_keys() -> None:
    outcome = unroll(body(counted("L", "i", (0, runtime("r"), 1), op("a"))))
    first, *new = outcome.doc["functions"][0]["blocks"]
    for each in (*new[0]["instructions"], first["instructions"][-1], outcome.doc["functions"][0]["allocations"][-1]):
        assert list(each) == sorted(each)
        for operand in (*each.get("ins", ()), *each.get("outs", ())):
            assert list(operand) == sorted(operand)
    assert list(new[0]) == ["instructions", "name"]


def test_u2_a_loop_that_goes_on_while_a_register_is_not_0() -> None:
    outcome = same_as_the_oracle(body(repeated("W", runtime("r"), op("a"))))
    assert flow(outcome.doc) == {
        "Block1": ["Block1_br_to_LoopEntry_1"],
        "Block1_LoopEntry_1": ["Block1_LoopEntry_1_branch"],
        "Block1_LoopBody_1": ["a", "Block1_LoopBody_1_branch"],
        "Block1_LoopExit_1": ["Block1_LoopExit_1_branch"],
        "Block1_Resume_1": ["Block1_Resume_1_noop"],
    }
    assert row(outcome.doc, "Block1_LoopBody_1_branch") == compared(
        "Block1_LoopBody_1_branch", "IS_NEIMM", "r", number(0), "Block1_LoopBody_1", "Block1_LoopExit_1"
    )
    assert row(outcome.doc, "Block1_LoopEntry_1_branch")["target"] == "Block1_LoopBody_1"
    assert row(outcome.doc, "Block1_Resume_1_noop")["engine"] == "ALL"
    assert registers(outcome.doc) == ["r", "s"]


@pytest.mark.parametrize("condition", [0, 1, constant(5)])
def test_u2_a_condition_that_is_a_constant(condition: Any) -> None:
    outcome = same_as_the_oracle(body(repeated("W", condition, op("a"))))
    value = condition if isinstance(condition, int) else condition["c"]
    assert row(outcome.doc, "Block1_LoopBody_1_condition")["ins"] == [number(value)]


def test_u2_a_constant_loop_of_several_blocks_needs_no_guard() -> None:
    two = several("L", (2, -4, -3), block("b0", op("a")), block("b1", op("b")))
    outcome = same_as_the_oracle(body(op("p"), two))
    assert flow(outcome.doc) == {
        "Block1": ["p", "Block1_br_to_LoopEntry_1"],
        "Block1_LoopEntry_1": [f"Block1_LoopEntry_1_{what}" for what in ("axis", "step", "branch")],
        "Block1_LoopBody_1": ["a"],
        "Block1_LoopBody_1_b1": ["b", "Block1_LoopBody_1_next", "Block1_LoopBody_1_branch"],
        "Block1_LoopExit_1": ["Block1_LoopExit_1_branch"],
        "Block1_Resume_1": ["Block1_Resume_1_noop"],
    }
    assert row(outcome.doc, "Block1_LoopEntry_1_branch")["opcode"] == "UnconditionalBranch"
    assert row(outcome.doc, "Block1_LoopBody_1_branch") == compared(
        "Block1_LoopBody_1_branch", "IS_GTIMM", "Block1_LoopAxis_1", number(-4), "Block1_LoopBody_1",
        "Block1_LoopExit_1",
    )  # fmt: skip


def test_u2_a_break_becomes_a_branch_to_the_exit_and_keeps_all_else() -> None:
    leave = {"opcode": "Break", "name": "b", "engine": "SP", "ins": [], "outs": [], "mine": 1, "dependencies": ["a"]}
    outcome = same_as_the_oracle(body(loop("L", "i", (0, 3, 1), op("a"), leave)))
    found = row(outcome.doc, "b")
    assert found == leave | {"opcode": "UnconditionalBranch", "target": "Block1_LoopExit_1"}
    assert list(found)[-1] == "target"  # keys were not sorted
    # nothing comes behind a branch
    assert flow(outcome.doc)["Block1_LoopBody_1"] == ["a", "b"]


def test_u2_a_break_leaves_the_innermost_loop() -> None:
    inner = counted("M", "j", (0, runtime("r"), 1), op("b", "Break"))
    outcome = same_as_the_oracle(body(loop("L", "i", (0, 3, 1), op("a"), inner)))
    assert row(outcome.doc, "b")["target"] == "Block1_LoopExit_2"


@pytest.mark.parametrize(
    "branch",
    [
        jump("br", "L_body"),
        op("br", "CompareAndBranch", comp_op="IS_EQREG", on_true="L_body", on_false="Block1"),
        loop("M", "j", (0, 1, 1), op("br", "CompareAndBranch", comp_op="IS_EQREG", on_false="L_body")),
    ],
)
def test_u2_a_branch_to_the_loops_own_block(branch: Json) -> None:
    outcome = same_as_the_oracle(body(loop("L", "i", (0, 2, 1), op("a"), branch)))
    found = outcome.doc["functions"][0]["blocks"][2]
    assert found["name"] == "Block1_LoopBody_1"
    assert "Block1_LoopBody_1" in str(found["instructions"][1])


def test_u2_a_branch_in_a_loop_without_trips_is_not_seen() -> None:
    inner = loop("M", "j", (0, 0, 1), jump("br", "L_body"))
    assert names(same_as_the_oracle(body(loop("L", "i", (0, 2, 1), inner, op("a")))).doc) == ["a-0", "a-1"]


def test_u2_branches_between_the_blocks_of_a_body_go_along() -> None:
    compare = op("c", "CompareAndBranch", comp_op="IS_EQREG", ins=[named("r"), named("s")])
    compare |= {"on_true": "b2", "on_false": "b1"}
    loops = several(
        "L", (0, 2, 1), block("b0", compare), block("b1", op("a")), block("b2", op("b"), jump("d", "Block2"))
    )
    document = body(loops)
    document["functions"][0]["blocks"].append(block("Block2", op("z")))
    outcome = same_as_the_oracle(document)
    found = row(outcome.doc, "c")
    assert (found["on_true"], found["on_false"]) == ("Block1_LoopBody_1_b2", "Block1_LoopBody_1_b1")
    assert row(outcome.doc, "d")["target"] == "Block2"


def test_u2_nested_loops_are_numbered_in_program_order() -> None:
    inner = counted("M", "j", (0, runtime("r"), 1), op("b"))
    loops = repeated("L", runtime("s"), inner, op("a")), repeated("N", runtime("s"), op("c"))
    outcome = same_as_the_oracle(body(*loops))
    assert flow(outcome.doc) == {
        "Block1": ["Block1_br_to_LoopEntry_1"],
        "Block1_LoopEntry_1": ["Block1_LoopEntry_1_branch"],
        "Block1_LoopBody_1": ["Block1_br_to_LoopEntry_2"],
        "Block1_LoopEntry_2": [f"Block1_LoopEntry_2_{what}" for what in ("axis", "step", "end", "branch")],
        "Block1_LoopBody_2": ["b", "Block1_LoopBody_2_next", "Block1_LoopBody_2_branch"],
        "Block1_LoopExit_2": ["Block1_LoopExit_2_branch"],
        "Block1_Resume_2": ["a", "Block1_LoopBody_1_branch"],
        "Block1_LoopExit_1": ["Block1_LoopExit_1_branch"],
        "Block1_Resume_1": ["Block1_br_to_LoopEntry_3"],
        "Block1_LoopEntry_3": ["Block1_LoopEntry_3_branch"],
        "Block1_LoopBody_3": ["c", "Block1_LoopBody_3_branch"],
        "Block1_LoopExit_3": ["Block1_LoopExit_3_branch"],
        "Block1_Resume_3": ["Block1_Resume_3_noop"],
    }


def test_u2_loops_around_a_loop_of_branches_are_lowered_and_those_in_it_unrolled() -> None:
    inner = loop("K", "k", (0, 2, 1), op("a", v=axis("k"), w=affine("i", 3, 1)))
    outcome = same_as_the_oracle(body(loop("L", "i", (0, 3, 1), counted("M", "j", (0, runtime("r"), 1), inner))))
    assert flow(outcome.doc)["Block1_LoopBody_2"][:2] == ["a-0", "a-1"]
    assert [row(outcome.doc, f"a-{n}")["v"] for n in range(2)] == [0, 1]
    assert row(outcome.doc, "a-1")["w"] == {
        "kind": "AffExprKind", "terms": [{"idx": runtime("Block1_LoopAxis_1"), "coeff": 3}], "c": 1,
    }  # fmt: skip


def test_u1_without_trips_a_loop_and_what_is_in_it_goes() -> None:
    outcome = same_as_the_oracle(body(op("p"), loop("L", "i", (1, 1, 1), counted("M", "j", (0, runtime("r"), 0)))))
    assert (names(outcome.doc), len(outcome.doc["functions"][0]["blocks"])) == (["p"], 1)


def test_u2_loops_without_blocks_and_with_empty_ones() -> None:
    empty = op("W", "DoWhile", cond=runtime("r"), blocks=[])
    outcome = same_as_the_oracle(body(empty, repeated("X", runtime("s")), op("z", dependencies=["W", "X"])))
    assert flow(outcome.doc)["Block1_LoopBody_1"] == ["Block1_LoopBody_1_branch"]
    assert flow(outcome.doc)["Block1_LoopBody_2"] == ["Block1_LoopBody_2_branch"]
    assert "dependencies" not in row(outcome.doc, "z")  # nothing comes of them (U7)


def test_u2_a_block_that_a_terminator_ends_gets_nothing_more() -> None:
    out = several("L", (0, 2, 1), block("b0", op("a")), block("b1", jump("j", "b0")))
    outcome = same_as_the_oracle(body(op("p"), op("q", "Return"), out))
    assert flow(outcome.doc)["Block1"] == ["p", "q"]
    assert flow(outcome.doc)["Block1_LoopBody_1_b1"] == ["j"]


def test_u2_where_a_branch_is_not_last_what_decides_stands_in_a_block_of_its_own() -> None:
    document = body(loop("L", "i", (0, 2, 1), op("a", "Break", engine="PE"), op("b", engine="SP")))
    outcome = same_as_the_oracle(document)
    assert flow(outcome.doc)["Block1_LoopBody_1"] == ["a", "b"]
    assert flow(outcome.doc)["Block1_LoopNext_1"] == ["Block1_LoopBody_1_next", "Block1_LoopBody_1_branch"]


def test_u2_blocks_of_a_body_keep_their_other_members() -> None:
    first = {"mine": {"kind": "IntRuntimeValueKind", "regref": "r"}, "instructions": [op("a")], "name": "b0"}
    outcome = unroll(body(several("L", (0, 2, 1), first, block("b1", more=2))))
    found = outcome.doc["functions"][0]["blocks"]
    assert found[2]["mine"] == first["mine"]
    assert list(found[2]) == ["mine", "instructions", "name"]
    assert found[3]["more"] == 2


# R6: names


def test_r6_names_are_free() -> None:
    taken = [op("Block1_br_to_LoopEntry_1"), op("Block1_LoopBody_1_next"), op("Block1_LoopExit_1_branch.1")]
    document = body(*taken, counted("L", "i", (0, runtime("r"), 1)), sets=[register("Block1_LoopStep_1")])
    document["functions"][0]["blocks"].append(block("Block1_LoopExit_1", op("Block1_LoopExit_1_branch")))
    outcome = same_as_the_oracle(document)
    assert list(flow(outcome.doc)) == [
        "Block1", "Block1_LoopEntry_1", "Block1_LoopBody_1", "Block1_LoopExit_1.1", "Block1_Resume_1",
        "Block1_LoopExit_1",
    ]  # fmt: skip
    assert flow(outcome.doc)["Block1"][-1] == "Block1_br_to_LoopEntry_1.1"
    assert flow(outcome.doc)["Block1_LoopExit_1.1"] == ["Block1_LoopExit_1_branch.2"]
    assert "Block1_LoopStep_1.1" in registers(outcome.doc)
    assert row(outcome.doc, "Block1_LoopBody_1_next.1")["ins"][1] == named("Block1_LoopStep_1.1")


# bounds and conditions


@pytest.mark.parametrize(
    ("upper", "steps"),
    [
        (runtime("r"), ["LoopEnd_1 = r"]),
        ({"kind": "AffExprKind", "terms": [{"idx": runtime("r"), "coeff": 1}], "c": 0}, ["LoopEnd_1 = r"]),
        (
            {"kind": "AffExprKind", "terms": [{"idx": runtime("r"), "coeff": 4}], "c": 2},
            [
                "LoopEnd_1 = 2", "LoopTerm1_1 = r", "LoopTerm2_1 = 4", "LoopTerm1_1 = LoopTerm1_1 mult LoopTerm2_1",
                "LoopEnd_1 = LoopEnd_1 add LoopTerm1_1",
            ],
        ),
        (
            {"kind": "SumKind", "n_terms": 2, "terms": [runtime("r"), runtime("s")]},
            ["LoopEnd_1 = r", "LoopEnd_1 = LoopEnd_1 add s"],
        ),
        (
            {"kind": "MultKind", "var": runtime("r"), "scale": 3},
            ["LoopEnd_1 = r", "LoopTerm1_1 = 3", "LoopEnd_1 = LoopEnd_1 mult LoopTerm1_1"],
        ),
        (
            {"kind": "FloorDivKind", "numer": runtime("r"), "denom": 8},
            ["LoopEnd_1 = r", "LoopTerm1_1 = 3", "LoopEnd_1 = LoopEnd_1 arith_shift_right LoopTerm1_1"],
        ),
        (
            {"kind": "ModuloKind", "numer": runtime("r"), "denom": 8},
            ["LoopEnd_1 = r", "LoopTerm1_1 = 7", "LoopEnd_1 = LoopEnd_1 bitwise_and LoopTerm1_1"],
        ),
    ],
)  # fmt: skip
def test_u2_bounds_are_worked_out_in_registers(upper: Json, steps: list[str]) -> None:
    outcome = same_as_the_oracle(body(counted("L", "i", (0, upper, 1), op("a"))))
    assert arithmetic(outcome, "Block1_LoopEntry_1", "_end") == steps


@pytest.mark.parametrize("value", [-9, -1, 0, 5, 17])
def test_u2_quotients_and_remainders_round_as_expressions_do(value: int) -> None:
    numer = {"kind": "AffExprKind", "terms": [{"idx": runtime("r"), "coeff": 1}], "c": 0}
    quotient = {"kind": "FloorDivKind", "numer": numer, "denom": 4}
    total = {"kind": "SumKind", "terms": [quotient, {"kind": "ModuloKind", "numer": numer, "denom": 8}, constant(3)]}
    out = {"kind": "physical_ap", "ap": [[1, 1], [1, 1]], "dtype": "int32", "memref": "t", "offset": 0}
    document = body(
        op("set", "RegisterMove", ins=[number(value)], outs=[named("r")]),
        op("zero", "RegisterMove", ins=[number(0)], outs=[named("s")]),
        counted(
            "L", "i", (-20, total, 1), op("n", "RegisterAlu", ins=[named("s"), number(1)], outs=[named("s")], op="add")
        ),
        op("save", "TensorSave", ins=[named("s")], outs=[out]),
        sets=[memory_set("t_set", "ExternalOutput", location("t", [1, 4]), dtype="int32", tensor_shape=[1, 1])],
    )
    before, after = read(document), unroll(document).ir
    counts = [air.simulate(ir)["t"][0, 0] for ir in (before, after)]
    assert counts == [max(0, 20 + value // 4 + value % 8 + 3)] * 2


def test_u2_bounds_of_inner_loops_may_depend_on_outer_axes() -> None:
    inner = counted("M", "j", (affine("i", 2), {"kind": "SumKind", "terms": [axis("i"), runtime("r")]}, 2), op("a"))
    outcome = same_as_the_oracle(body(counted("L", "i", (0, runtime("r"), 1), inner)))
    assert arithmetic(outcome, "Block1_LoopEntry_2", "_axis") == [
        "LoopAxis_2 = LoopAxis_1", "LoopTerm1_2 = 2", "LoopAxis_2 = LoopAxis_2 mult LoopTerm1_2",
    ]  # fmt: skip
    assert arithmetic(outcome, "Block1_LoopEntry_2", "_end") == [
        "LoopEnd_2 = LoopAxis_1",
        "LoopEnd_2 = LoopEnd_2 add r",
    ]
    assert registers(outcome.doc)[-4:] == [f"Block1_Loop{what}_2" for what in ("Axis", "Step", "End", "Term1")]


def test_u5_the_shard_is_a_constant_in_bounds() -> None:
    upper = {"kind": "SumKind", "terms": [runtime("r"), {"kind": "ShardIDKind", "ub": 4}]}
    outcome = unroll(body(counted("L", "i", (0, upper, 1), op("a"))), shard_id=3)
    assert arithmetic(outcome, "Block1_LoopEntry_1", "_end")[1] == "LoopTerm1_1 = 3"


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        ((0, runtime("r"), runtime("s")), "dynamic_loop"),
        ((0, runtime("r"), 0), "zero_stride"),
        ((0, runtime("r"), None), "zero_stride"),
        ((0, runtime("gone"), 1), "unresolved_name"),
        ((runtime("gone"), 4, 1), "unresolved_name"),
        ((0, {"kind": "FloorDivKind", "numer": runtime("r"), "denom": 3}, 1), "dynamic_loop"),
        ((0, {"kind": "FloorDivKind", "numer": runtime("r"), "denom": None}, 1), "bad_expression"),
        ((0, {"kind": "MultKind", "var": runtime("r")}, 1), "bad_expression"),
        ((0, {"kind": "CCGetRankKind", "iteration_id": 0, "channel_id": 0}, 1), "dynamic_loop"),
        ((0, {"kind": "NoSuchKind"}, 1), "bad_expression"),
        ((0, 2**31, 1), "integer_overflow"),
        ((-(2**31) - 1, runtime("r"), 1), "integer_overflow"),
        ((runtime("r"), 2**31 - 1, 2), "integer_overflow"),
        ((0, {"kind": "MultKind", "var": runtime("r"), "scale": 2**31}, 1), "integer_overflow"),
        ((0, {"kind": "MultKind", "var": constant(2**62), "scale": 4}, 1), "integer_overflow"),
    ],
)
def test_u2_bounds_that_registers_cannot_work_out(bounds: tuple[Any, Any, Any], code: str) -> None:
    assert fault(counted("L", "i", bounds, op("a"))) == code


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        (runtime("gone"), "unresolved_name"),
        ({"kind": "ModuloKind", "numer": runtime("r"), "denom": 6}, "dynamic_loop"),
        ({"kind": "IndirectArgId", "arg_id": 1}, "dynamic_loop"),
        (axis("nowhere"), "unresolved_name"),
    ],
)
def test_u2_conditions_that_registers_cannot_work_out(condition: Json, code: str) -> None:
    message = refused("unroll", body(repeated("W", condition, op("a"))))
    assert message.code == code
    assert message.instruction == "W"


def test_u2_a_loop_without_a_condition() -> None:
    found = repeated("W", 0)
    del found["cond"]
    assert fault(found) == "bad_expression"


@pytest.mark.parametrize("bounds", [(0, 2**31, 1), (0, 2**31 - 1, 2**30), (2**40, 0, -(2**39))])
def test_u2_a_constant_loop_with_control_flow_has_to_fit_its_registers(bounds: tuple[int, int, int]) -> None:
    assert fault(loop("L", "i", bounds, op("a", "Break"))) == "integer_overflow"


@pytest.mark.parametrize("bound", [runtime("r"), axis("i")])
def test_u1_bounds_of_a_constant_loop_are_constants_still(bound: Json) -> None:
    assert fault(counted("L", "i", (0, runtime("r"), 1), loop("M", "j", (0, bound, 1), op("a")))) == "dynamic_loop"


def test_u2_other_instructions_with_blocks_in_a_loop() -> None:
    inner = op("o", "BrandNew", blocks=[block("b", op("x"))])
    assert refused("unroll", body(counted("L", "i", (0, runtime("r"), 1), inner))).code == "not_supported"
