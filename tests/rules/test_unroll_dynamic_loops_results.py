"""What stands in loops that become branches, by the rules U3 to U8, O6 and N13."""

from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir.passes.unroll import expand, predicted_rows
from arrowir.testing.assertions import assert_valid
from tests.dynamic_loops import (
    body,
    counted,
    fault,
    inline,
    named,
    registers,
    repeated,
    same_as_the_oracle,
    several,
    unroll,
)
from tests.oracle import run_inline
from tests.oracle.builders import (
    affine,
    axis,
    block,
    call,
    constant,
    flow,
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
    symbolic,
)
from tests.single_pass import Json, read, refused

# U4: addresses


def tensor(name: str = "t", shape: tuple[int, ...] = (128, 16), **more: Any) -> Json:
    return memory_set(f"{name}_set", "Internal", location(name, **more), tensor_shape=list(shape))


def test_u4_an_axis_in_an_address_becomes_a_dynamic_offset() -> None:
    read_at = symbolic("t_set", affine("i", 2, 1), {"kind": "SumKind", "terms": [affine("k", 4), constant(1)]}, name=1)
    inner = loop("K", "k", (0, 3, 1), op("a", ins=[read_at]))
    outcome = same_as_the_oracle(body(counted("L", "i", (0, runtime("r"), 1), inner), sets=[tensor(type="SB")]))
    assert row(outcome.doc, "a-2")["ins"] == [
        {
            "kind": "physical_ap", "ap": [[16, 128], [1, 1]], "dtype": "float32", "memsetref": "t_set", "name": 1,
            "dynamic_ap_info": {
                "aff_expr": [
                    {
                        "coef": 16,
                        "offset_expr": {
                            "kind": "AffExprKind", "terms": [{"idx": runtime("Block1_LoopAxis_1"), "coeff": 2}], "c": 1,
                        },
                    }
                ],
                "c": 0, "indirect_dim": 0, "indirect_dim_max_index": 128,
            },
            "memref": "t", "offset": 9,
        }
    ]  # fmt: skip


def test_u4_several_dimensions_move() -> None:
    addresses = axis("i"), {"kind": "SumKind", "n_terms": 2, "terms": [axis("j"), affine("i", 2)]}, constant(3)
    inner = repeated(
        "W", runtime("r"), counted("M", "j", (0, runtime("r"), 1), op("a", outs=[symbolic("t_set", *addresses)]))
    )
    document = body(counted("L", "i", (0, 4, 1), inner), sets=[tensor(shape=(4, 32, 8))])
    info = row(same_as_the_oracle(document).doc, "a")["outs"][0]["dynamic_ap_info"]
    assert [term["coef"] for term in info["aff_expr"]] == [256, 8]
    assert (info["indirect_dim"], info["indirect_dim_max_index"]) == (0, 4)
    only = symbolic("t_set", constant(1), axis("i"), constant(3))
    made = body(counted("L", "i", (0, 4, 1), op("a", outs=[only])), sets=[tensor(shape=(4, 32, 8))])
    operand = row(same_as_the_oracle(made).doc, "a")["outs"][0]
    assert operand["offset"] == 256 + 3
    assert (operand["dynamic_ap_info"]["indirect_dim"], operand["dynamic_ap_info"]["indirect_dim_max_index"]) == (2, 32)


def test_u4_the_constant_part_is_checked() -> None:
    for bad in (constant(-1), constant(2**40)):
        operand = symbolic("t_set", axis("i"), bad)
        assert fault(counted("L", "i", (0, runtime("r"), 1), op("a", ins=[operand])), sets=[tensor()]) == (
            "address_out_of_bounds"
        )


def test_u4_a_register_of_the_file_in_an_address_is_refused_still() -> None:
    for addresses in ((runtime("r"), constant(0)), (axis("i"), runtime("r"))):
        operand = symbolic("t_set", *addresses)
        code = fault(counted("L", "i", (0, runtime("r"), 1), op("a", ins=[operand])), sets=[tensor()])
        assert code == "runtime_address"


def test_u4_names_keep_their_order_where_keys_do_not() -> None:
    owner = {"memref_owner_func": "main"}
    for operand in (
        symbolic("t_set", axis("i"), constant(0), **owner),
        {**owner, **symbolic("t_set", axis("i"), constant(0))},
        dict(sorted(symbolic("t_set", axis("i"), constant(0), **owner).items())),
    ):
        document = body(counted("L", "i", (0, runtime("r"), 1), op("a", ins=[operand])), sets=[tensor()])
        found = row(same_as_the_oracle(document).doc, "a")["ins"][0]
        assert found["memref_owner_func"] == "main"
        assert found["dynamic_ap_info"]["aff_expr"][0]["offset_expr"] == runtime("Block1_LoopAxis_1")


def test_u4_an_operand_that_is_dynamic_already() -> None:
    operand = symbolic("t_set", axis("i"), constant(0), dynamic_ap_info={"aff_expr": [], "c": 0})
    document = body(counted("L", "i", (0, runtime("r"), 1), op("a", ins=[operand])), sets=[tensor()])
    assert refused("unroll", document).code == "not_supported"


def test_u4_operands_of_generic_accesses_keep_their_kind() -> None:
    operand = symbolic("t_set", {"kind": "IndirectArgId", "arg_id": 1}, affine("i", 2))
    made = op("a", "GenericIndirectLoad", ins=[operand])
    outcome = same_as_the_oracle(body(counted("L", "i", (0, runtime("r"), 1), made), sets=[tensor()]))
    found = row(outcome.doc, "a")["ins"][0]
    assert found["kind"] == "symbolic_ap"
    assert found["addrs"][1]["terms"][0]["idx"] == runtime("Block1_LoopAxis_1")


# U5, U6: expressions


def test_u6_attributes_keep_an_expression_of_the_register() -> None:
    tree = {"kind": "SumKind", "n_terms": 3, "terms": [axis("i"), affine("k", 2), constant(5)]}
    inner = loop("K", "k", (0, 2, 1), op("a", v=tree, w=[axis("i"), axis("k")]))
    outcome = same_as_the_oracle(body(counted("L", "i", (0, runtime("r"), 1), inner)))
    found = row(outcome.doc, "a-1")
    assert found["v"]["terms"] == [runtime("Block1_LoopAxis_1"), {"kind": "AffExprKind", "terms": [], "c": 7}]
    assert found["w"] == [runtime("Block1_LoopAxis_1"), 1]


@pytest.mark.parametrize("more", [{}, {"op": "Div", "op_param": 4}, {"op": "Mod", "op_param": 4}])
def test_u5_expressions_of_version_1_become_newer_ones(more: Json) -> None:
    older = {"terms": [{"AxisLabel": "i", "coef": 3}, {"AxisLabel": "k", "coef": 1}], "c": 2} | more
    inner = loop("K", "k", (0, 2, 1), op("a", v=older))
    outcome = same_as_the_oracle(body(counted("L", "i", (0, runtime("r"), 1), inner), version=1))
    total = {"c": 3, "kind": "AffExprKind", "terms": [{"coeff": 3, "idx": runtime("Block1_LoopAxis_1")}]}
    kinds = {None: total, "Div": {"denom": 4, "kind": "FloorDivKind", "numer": total}}
    kinds["Mod"] = {"denom": 4, "kind": "ModuloKind", "numer": total}
    assert row(outcome.doc, "a-1")["v"] == kinds[more.get("op")]


def test_u6_a_symbolic_immediate_must_be_known() -> None:
    values = {"dtype": "float32", "kind": "symbolic_imm_value", "value_list": [{"value": 1.0}, {"value": 2.0}]}
    made = op("a", ins=[values | {"expr": axis("i")}])
    assert fault(counted("L", "i", (0, runtime("r"), 1), made)) == "runtime_address"
    one = op("a", ins=[values | {"expr": axis("i"), "value_list": [7]}])
    outcome = same_as_the_oracle(body(counted("L", "i", (0, runtime("r"), 1), one)))
    assert row(outcome.doc, "a")["ins"] == [{"dtype": "float32", "kind": "imm_value", "value": 7}]


# U3, U7, U8


def test_u3_instructions_in_loops_of_branches_keep_their_names() -> None:
    inner = loop("K", "k", (0, 2, 1), op("b", loopnest=["i", "k"]))
    outcome = same_as_the_oracle(body(counted("L", "i", (0, runtime("r"), 1), op("a", loopnest=["i"]), inner)))
    assert flow(outcome.doc)["Block1_LoopBody_1"][:3] == ["a", "b-0", "b-1"]
    assert all("loopnest" not in each for each in rows(outcome.doc, 0, 2))


def test_u7_edges_of_a_loop_go_to_its_roots_and_edges_on_it_to_its_sinks() -> None:
    inside = [op("a"), op("b", dependencies=["a"]), loop("K", "k", (0, 2, 1), op("c"))]
    loops = counted("L", "i", (0, runtime("r"), 1), *inside, dependencies=[["p", "Anti"]])
    outcome = same_as_the_oracle(body(op("p"), loops, op("z", dependencies=["L"])))
    assert row(outcome.doc, "a")["dependencies"] == [["p", "Anti"]]
    assert row(outcome.doc, "b")["dependencies"] == ["a"]
    assert row(outcome.doc, "c-1")["dependencies"] == [["p", "Anti"]]
    assert row(outcome.doc, "z")["dependencies"] == ["b", "c-0", "c-1"]
    for name in ("Block1_br_to_LoopEntry_1", "Block1_LoopEntry_1_axis", "Block1_LoopBody_1_branch"):
        assert "dependencies" not in row(outcome.doc, name)


def test_u7_edges_into_and_out_of_a_loop_of_branches() -> None:
    inner = loop("K", "k", (0, 2, 1), op("b", dependencies=["a", "p"]))
    outcome = same_as_the_oracle(
        body(op("p"), counted("L", "i", (0, runtime("r"), 1), op("a"), inner), op("z", dependencies=["a", "b"]))
    )
    assert row(outcome.doc, "b-0")["dependencies"] == ["a", "p"]
    assert row(outcome.doc, "z")["dependencies"] == ["a", "b-1"]


def test_u7_an_edge_over_iterations_of_run_time_stays_as_it_is() -> None:
    carried = {"loop_carried_dependencies": [["a", "Flow", [2]], "b"]}
    blocks = block("b0", op("a")), block("b1", op("b", **carried))
    outcome = same_as_the_oracle(body(several("L", (0, 5, 1), *blocks)))
    assert row(outcome.doc, "b")["loop_carried_dependencies"] == [["a", "Flow", [2]], "b"]
    inner = loop("K", "k", (0, 3, 1), op("c"), op("d", loop_carried_dependencies=["c"]))
    outcome = same_as_the_oracle(body(repeated("W", runtime("r"), inner)))
    assert "dependencies" not in row(outcome.doc, "d-0")
    assert row(outcome.doc, "d-1")["dependencies"] == ["c-0"]


def test_u7_an_index_of_a_loop_of_run_time() -> None:
    back = op("b", unroll_dependencies=[["a", "Flow", [axis("i"), constant(1)], []]])
    loops = counted("L", "i", (0, runtime("r"), 1), loop("K", "k", (0, 2, 1), op("a")), back)
    assert row(same_as_the_oracle(body(loops)).doc, "b")["dependencies"] == [["a-1", "Flow"]]
    ahead = op("b", unroll_dependencies=[["a", "Flow", [constant(0)], []]])
    assert fault(counted("L", "i", (0, runtime("r"), 1), ahead, op("a"))) == "dynamic_loop"
    few = op("b", unroll_dependencies=[["a", "Flow", [], []]])
    assert fault(counted("L", "i", (0, runtime("r"), 1), op("a"), few)) == "index_rank_mismatch"


# the whole


def test_o6_predicted_rows_count_what_is_made() -> None:
    document = body(op("p"), counted("L", "i", (0, runtime("r"), 1), loop("K", "k", (0, 3, 1), op("a"))))
    # p, branch; axis, step, end, branch; a three times, next, branch; branch; noop
    assert predicted_rows(read(document)).tolist() == [2 + 4 + 5 + 1 + 1]
    assert unroll(document, max_instructions=13).status == "changed"
    message = refused("unroll", document, max_instructions=12)
    assert (message.code, message.message.split()[0]) == ("too_many_instructions", "13")


def test_u0_functions_without_such_loops_are_as_before_and_share_their_batch() -> None:
    plain = body(loop("L", "i", (0, 2, 1), op("a")), op("z"))
    branching = body(counted("L", "i", (0, runtime("r"), 1), op("a")))
    ir = air.concat([read(plain, "m0"), read(branching, "m1"), read(plain, "m2")])
    result = air.passes.unroll(ir)
    assert_valid(result.ir)
    for module_id, document in enumerate((plain, branching, plain)):
        assert result.ir.to_json(module_id) == unroll(document).ir.to_json(0)


def test_n3_expand_says_which_registers_are_new() -> None:
    ir = read(body(counted("L", "i", (0, runtime("r"), 1), op("a"))))
    found = expand(ir, np.ones(1, bool))
    assert found.registers is not None
    assert found.registers.tolist() == [0, 1, -1, -1, -1]
    assert expand(read(body(op("a"))), np.ones(1, bool)).registers is None


def test_a_function_without_allocations_gets_them() -> None:
    document = body(several("L", (0, 2, 1), block("b0", op("a")), block("b1")))
    del document["functions"][0]["allocations"]
    outcome = same_as_the_oracle(document)
    assert registers(outcome.doc) == ["Block1_LoopAxis_1", "Block1_LoopStep_1"]
    assert list(outcome.doc["functions"][0])[-1] == "allocations"


def calling(*kernels: Json) -> Json:
    main = function("main", [register("n")], op("p"), call("C", func_args={"r": "n"}), op("z"))
    return module(main, kernels=list(kernels))


def test_n13_a_kernel_with_such_a_loop_is_inlined() -> None:
    kernel = function("k", [register("r")], counted("L", "i", (0, runtime("r"), 1), op("a", v=axis("i"))))
    document = calling(kernel)
    outcome = inline(document)
    assert outcome.doc == run_inline(document).doc
    assert list(flow(outcome.doc)) == [
        "Block1", "C_Block1_LoopEntry_1", "C_Block1_LoopBody_1", "C_Block1_LoopExit_1", "C_Block1_Resume_1",
        "C_continuation",
    ]  # fmt: skip
    assert row(outcome.doc, "C_Block1_LoopEntry_1_end")["ins"] == [named("n")]
    assert row(outcome.doc, "C_a")["v"] == runtime("C:Block1_LoopAxis_1")
    assert registers(outcome.doc)[-3:] == [f"C:Block1_Loop{what}_1" for what in ("Axis", "Step", "End")]


def test_n3_loops_around_and_in_inner_kernels() -> None:
    inner = function("k2", [register("q")], counted("M", "j", (0, runtime("q"), 1), op("b")))
    site = call("D", "k2", func_args={"q": "r"})
    outer = function("k", [register("r")], loop("L", "i", (0, 2, 1), site, op("a")))
    document = calling(outer, inner)
    outcome = inline(document)
    assert outcome.doc == run_inline(document).doc
    # the loop around the body of several blocks is lowered at the next level
    assert row(outcome.doc, "C_D_Block1_LoopEntry_1_end")["ins"] == [named("n")]
    assert flow(outcome.doc)["C_Block1_LoopBody_1"][-1] == "C_D_Block1_br_to_LoopEntry_1"
    assert "C_a" in flow(outcome.doc)["C_Block1_LoopBody_1_D_continuation"]


def test_o6_inlining_counts_the_branches_of_loops_around_inner_bodies() -> None:
    inner = function("k2", [], blocks=[block("b1", op("x")), block("b2", op("y"))])
    outer = function("k", [register("r")], loop("L", "i", (0, 3, 1), call("D", "k2")))
    document = calling(outer, inner)
    # a branch; axis, step, branch; x, y, next, branch; branch; noop: in the caller, and in the kernel's copy
    size = 2 + 10 + 10 + 2
    assert inline(document, max_instructions=size).status == "changed"
    message = refused("inline_nki_kernel", document, max_instructions=size - 1)
    assert (message.code, str(size) in message.message) == ("too_many_instructions", True)


def test_f4_loops_of_branches_nested_deeply() -> None:
    nest = repeated("W0", runtime("r"), op("a"))
    for depth in range(1, 150):
        nest = repeated(f"W{depth}", runtime("r"), nest)
    outcome = unroll(body(nest))
    assert len(flow(outcome.doc)) == 1 + 4 * 150
    assert flow(outcome.doc)["Block1_LoopBody_150"] == ["a", "Block1_LoopBody_150_branch"]
