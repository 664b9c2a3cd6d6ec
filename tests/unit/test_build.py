"""The builder: documents that it makes, and that the reader takes them."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from arrowir import build
from arrowir.diagnostics import ArrowIRError, OptionError

Json = dict[str, Any]


def value(e: Any, axes: Mapping[str, int]) -> int:
    """Compute an expression of version 2, written from the format's description alone."""
    match e["kind"]:
        case "AffExprKind":
            return sum(value(t["idx"], axes) * t["coeff"] for t in e["terms"]) + e["c"]
        case "AffIVKind":
            return axes[e["axis"]]
        case "ShardIDKind":
            return axes["shard"]
        case "IntRuntimeValueKind":
            return axes[e["regref"]]
        case "SumKind":
            assert e["n_terms"] == len(e["terms"])
            return sum(value(t, axes) for t in e["terms"])
        case "MultKind":
            return value(e["var"], axes) * e["scale"]
        case "FloorDivKind":
            return value(e["numer"], axes) // e["denom"]
        case "ModuloKind":
            return value(e["numer"], axes) % e["denom"]
    raise AssertionError(e)


@pytest.fixture
def main() -> build.FunctionBuilder:
    return build.module().function()


@pytest.mark.parametrize(
    ("shape", "dtype", "dims", "ap"),
    [
        ([128, 512], "float32", [128, 2048], [[512, 128], [1, 512]]),
        ([64, 4, 8], "bfloat16", [64, 64], [[32, 64], [1, 32]]),
        ([16], "int8", [16, 1], [[1, 16], [1, 1]]),
    ],
)
def test_a_tensor_is_sized_by_shape_and_dtype(
    main: build.FunctionBuilder, shape: list[int], dtype: str, dims: list[int], ap: list[list[int]]
) -> None:
    tensor = main.sb("t", shape, dtype)
    (made,) = main.json()["allocations"]
    assert made["memorylocations"][0]["dims"] == dims
    assert (made["tensor_shape"], made["dtype"], made["kind"]) == (shape, dtype, "Internal")
    access = tensor.access()
    assert (access["ap"], access["offset"], access["dtype"]) == (ap, 0, dtype)
    assert (access["memref"], access["memsetref"]) == ("t", "t_set")


def test_an_access_by_another_dtype_covers_the_same_bytes(main: build.FunctionBuilder) -> None:
    tensor = main.sb("t", [128, 512], "float32")
    assert tensor.access(dtype="uint8")["ap"] == [[2048, 128], [1, 2048]]
    assert tensor.at(0, 0, dtype="bfloat16")["ap"] == [[1024, 128], [1, 1024]]


@pytest.mark.parametrize(
    ("key", "elements"),
    [
        ((slice(None), slice(8, 12)), [p * 32 + f for p in range(4) for f in range(8, 12)]),
        ((slice(1, 4, 2), slice(None, None, 16)), [p * 32 + f for p in (1, 3) for f in (0, 16)]),
        ((2,), [2 * 32 + f for f in range(32)]),
        ((-1, -2), [3 * 32 + 30]),
        ((0, slice(3, 0, -1)), [3, 2, 1]),
    ],
)
def test_a_slice_addresses_what_it_says(main: build.FunctionBuilder, key: Any, elements: list[int]) -> None:
    access = main.sb("t", [4, 32])[key]
    reached = [access["offset"]]
    for step, num in access["ap"]:
        reached = [place + step * i for place in reached for i in range(num)]
    assert reached == elements


@pytest.mark.parametrize("key", [(4,), (-5,), (slice(2, 2), 0), (0, 0, 0)])
def test_a_slice_outside_is_refused(main: build.FunctionBuilder, key: Any) -> None:
    tensor = main.sb("t", [4, 32])
    with pytest.raises(OptionError, match="`t`"):
        tensor[key]


def test_bad_tensors_are_refused(main: build.FunctionBuilder) -> None:
    with pytest.raises(ArrowIRError, match="`float31` is no dtype; use one of uint8"):
        main.sb("t", [1, 1], "float31")
    with pytest.raises(OptionError, match="`t` has no dimensions"):
        main.sb("t", [])
    other = build.module().function().sb("t", [1, 1])
    with pytest.raises(OptionError, match="has no set `t_set`"):
        main.place(other, "u")


def test_only_a_tensor_with_an_address_is_allocated(main: build.FunctionBuilder) -> None:
    main.sb("a", [1, 1], addr=0)
    main.psum("b", [1, 1], bank=2)
    main.dram("c", [1, 1], pinned=True)
    a, b, c = (s["memorylocations"][0] for s in main.json()["allocations"])
    assert [x["allocated"] for x in (a, b, c)] == [True, False, False]
    assert (b["bank"], c["pinned"], a["type"], b["type"], c["type"]) == (2, True, "SB", "PSUM", "DRAM")


def test_a_set_can_have_several_locations(main: build.FunctionBuilder) -> None:
    first = main.sb("t0", [128, 4], set_name="t", addr=0)
    second = main.place(first, "t1", addr=16)
    (made,) = main.json()["allocations"]
    assert [x["name"] for x in made["memorylocations"]] == ["t0", "t1"]
    assert [x["tensor_id"] for x in made["memorylocations"]] == [0, 1]
    assert made["tensorId2MemLocSize"] == 2
    assert (second.access()["memref"], second.access()["memsetref"]) == ("t1", "t")


FORMULAS: list[Callable[[Any, Any, Any, Any], Any]] = [
    lambda i, j, r, s: i,
    lambda i, j, r, s: 2 * i + 3 * j - 4,
    lambda i, j, r, s: 7 - i * 2,
    lambda i, j, r, s: -(i - j) + r + s,
    lambda i, j, r, s: (i + 5) // 3,
    lambda i, j, r, s: (i * 4 + j) % 7 + 2 * (j // 2) - 1,
    lambda i, j, r, s: ((i + j) // 2 % 3) * 10,
    lambda i, j, r, s: (i - 9) // 4 + (r % 5) * s,
]


@pytest.mark.parametrize("number", range(len(FORMULAS)))
def test_expressions_compute_what_python_computes(number: int) -> None:
    i, j = build.Expression.axis("i"), build.Expression.axis("j")
    r, s = build.Register("r").value, build.shard_id(2)
    formula = FORMULAS[number]
    # The product of two unknowns is no affine expression: the last formula takes the shard id as a number.
    made = [(formula(i, j, r, known if number == 7 else s), known) for known in (0, 1)]
    for e, known in made:
        for x, y, z in [(0, 0, 0), (3, 5, 11), (-4, 2, -7)]:
            expected = formula(x, y, z, known)
            assert value(e.json(), {"i": x, "j": y, "r": z, "shard": known}) == expected


def test_loops_nest(main: build.FunctionBuilder) -> None:
    tensor = main.sb("t", [128, 512])
    before = main.add("Load", [], [tensor])
    with main.loop(0, 4) as i:
        with main.loop(6, 0, -2, axis="k") as k:
            inside = main.add("Memset", [], [tensor.at(0, 128 * i + k)], mode="Const", constant=i + 1)
        between = main.add("NoOp")
    after = main.add("Save", [tensor], [], after=[i.instruction, before])
    (block,) = main.json()["blocks"]
    assert [x["name"] for x in block["instructions"]] == [before.name, i.instruction.name, after.name]
    outer = block["instructions"][1]
    assert outer["LoopAxis"] == {"lb": 0, "name": "i", "stride": 1, "ub": 4}
    ((loop, noop),) = [b["instructions"] for b in outer["blocks"]]
    assert (loop["LoopAxis"]["name"], noop["name"]) == ("k", between.name)
    (memset,) = loop["blocks"][0]["instructions"]
    assert memset["name"] == inside.name
    assert [value(e, {"i": 2, "k": 6}) for e in memset["outs"][0]["addrs"]] == [0, 262]
    assert value(memset["constant"], {"i": 2}) == 3
    assert after.members["dependencies"] == ["I-2", "I-1"]


def test_an_exception_in_a_loop_closes_it(main: build.FunctionBuilder) -> None:
    with pytest.raises(ZeroDivisionError), main.loop(0, 2):
        raise ZeroDivisionError
    main.add("NoOp", name="outside")
    assert [x["name"] for x in main.json()["blocks"][0]["instructions"]] == ["I-1", "outside"]


def test_a_dynamic_loop_has_expressions_as_bounds(main: build.FunctionBuilder) -> None:
    count = main.register("n")
    with main.loop(0, count.value, opcode="DynamicForLoop"):
        main.add("NoOp")
    axis = main.json()["blocks"][0]["instructions"][0]["DynamicForLoopAxis"]
    assert [value(axis[key], {"n": 9}) for key in ("lb", "ub", "stride")] == [0, 9, 1]


def test_blocks_and_branches(main: build.FunctionBuilder) -> None:
    counter = main.register("n")
    main.add("RegisterMove", [0], [counter])
    body = main.block("body")
    main.add("RegisterAlu", [counter, 1], [counter], op="add")
    main.compare(counter, "IS_LTIMM", 4, body, "end", engine="SP")
    main.block("end")
    main.branch("body")
    blocks = main.json()["blocks"]
    assert [b["name"] for b in blocks] == ["Block1", "body", "end"]
    compare = blocks[1]["instructions"][1]
    assert (compare["on_true"], compare["on_false"], compare["comp_op"]) == ("body", "end", "IS_LTIMM")
    assert compare["ins"] == [
        {"dtype": "int32", "kind": "register_access", "regref": "n"},
        {"dtype": "int32", "kind": "imm_value", "value": 4},
    ]
    assert blocks[2]["instructions"][0]["target"] == "body"


def test_operands_of_all_kinds(main: build.FunctionBuilder) -> None:
    tensor, register = main.sb("t", [128, 4]), main.register("r")
    raw = {"kind": "symbolic_imm_value", "dtype": "int32", "value_list": [{"value": 1}]}
    made = main.add("CustomOp", [tensor, register, 2.5, 3, build.imm([1, 2]), raw], [tensor.via(register)])
    kinds = [(o["kind"], o["dtype"]) for o in made.members["ins"]]
    assert kinds == [
        ("physical_ap", "float32"),
        ("register_access", "int32"),
        ("imm_value", "float32"),
        ("imm_value", "int32"),
        ("imm_array", "int32"),
        ("symbolic_imm_value", "int32"),
    ]
    assert made.members["outs"][0]["kind"] == "register_ap"
    assert made.members["outs"][0]["regref"] == "r"


def test_edges_and_semaphores(main: build.FunctionBuilder) -> None:
    first = main.add("NoOp", update=[(7, 1)])
    second = main.add(
        "NoOp",
        after=[first, (first, "Anti")],
        carried=[("later", "Flow", [2])],
        unroll=[(first, "Flow", [build.Expression.axis("i") + 1])],
        wait=[(7, 1, first), (8, 2)],
    )
    made = second.members
    assert first.members["sync_info"] == {"on_update": [{"id": 7, "update_value": 1}]}
    assert made["dependencies"] == ["I-1", ["I-1", "Anti"]]
    assert made["loop_carried_dependencies"] == [["later", "Flow", [2]]]
    assert value(made["unroll_dependencies"][0][2][0], {"i": 4}) == 5
    assert made["sync_info"]["on_wait"] == [
        {"from": "I-1", "id": 7, "wait_value": 1},
        {"id": 8, "wait_value": 2},
    ]


def test_calls_bind_by_name_and_by_position() -> None:
    module = build.module()
    kernel = module.kernel("k")
    a, c, n = kernel.input("a", [128, 4]), kernel.output("c", [128, 4]), kernel.register("n")
    main = module.function()
    x, y, m = main.input("x", [128, 4]), main.output("y", [128, 4]), main.register("m")
    pad, banks = main.sb("pad", [128, 64], addr=512), [main.psum(f"p{i}", [128, 512]) for i in range(2)]
    named = main.call(kernel, {a: x, n: m}, {"c": y}, scratch=[pad, *banks]).members
    assert (named["func"], named["func_args"], named["func_outs"]) == ("k", {"a": "x", "n": "m"}, {"c": "y"})
    assert [o["memref"] for o in named["ins"]] == ["x"]
    assert [o["memref"] for o in named["outs"]] == ["y", "pad", "p0", "p1"]
    assert (named["sb_buf_shape"], named["psum_buf_shape"]) == ([128, 256], [2, 128, 2048])
    placed = main.call("k", [x], [y], name="again", kernel_source_val="Beta2").members
    assert "func_args" not in placed
    assert "func_outs" not in placed
    assert [placed[key] for key in ("name", "kernel_source_val", "sb_buf_shape")] == ["again", "Beta2", [0, 0]]
    assert c.name == "c"


def test_a_nest_too_deep_to_write_is_refused(main: build.FunctionBuilder) -> None:
    from contextlib import ExitStack

    module = build.module()
    main = module.function()
    with ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(main.loop(0, 1))
    assert module.ir().loops.height == 100
    with ExitStack() as stack:
        for _ in range(2000):
            stack.enter_context(main.loop(0, 1))
    with pytest.raises(OptionError, match="nested too deeply"):
        module.json()


def test_queues_hold_dma_blocks() -> None:
    module = build.module()
    main = module.function()
    x, t = main.input("x", [128, 4]), main.sb("t", [128, 4])
    queue = module.queue("q0", num_dma_engines=16)
    with queue.nested("DMABlock", name="d0", dma_trigger="I-1"):
        queue.add("DMADescriptorCopy", [x], [t])
    (made,) = module.json()["queues"]
    assert (made["name"], made["num_dma_engines"]) == ("q0", 16)
    dma = made["blocks"][0]["instructions"][0]
    assert dma["blocks"][0]["instructions"][0]["ins"][0]["memref"] == "x"


def test_the_document_is_a_copy() -> None:
    module = build.module(attributes={"neuron_core_id": 1})
    module.function().add("NoOp", after=["x"])
    document = module.json()
    document["functions"][0]["blocks"].clear()
    assert module.json()["functions"][0]["blocks"]
    assert module.json()["attributes"] == {"neuron_core_id": 1}


def test_members_are_sorted_and_none_leaves_out() -> None:
    module = build.module(arch=None)
    made = module.function().add("NoOp", zebra=1, apple=2, engine_id=None)
    assert list(module.json()) == ["attributes", "functions", "nki_functions", "version"]
    assert list(made.members) == ["apple", "engine", "ins", "name", "opcode", "outs", "zebra"]


def whole() -> build.ModuleBuilder:
    """Return a module that uses everything."""
    module = build.module()
    kernel = module.kernel("k")
    a, c, t = kernel.input("a", [128, 512]), kernel.output("c", [128, 512]), kernel.sb("t", [128, 512], addr=0)
    load = kernel.add("Load", [a], [t])
    with kernel.loop(0, 4) as i:
        part = [[512, 128], [1, 128]]
        add = kernel.add("TensorScalar", [t.at(0, 128 * i, pattern=part), 1.0], [t.at(0, 128 * i, pattern=part)])
    kernel.add("Save", [t], [c], after=[i.instruction], carried=[(add, "Flow", [1])])
    main = module.function(attributes=["need_unroll"])
    x, y, pad = main.input("x", [128, 512]), main.output("y", [128, 512]), main.sb("pad", [128, 512], addr=1024)
    r = main.register("r")
    main.add("RegisterMove", [4], [r], engine="SP", update=[(3, 1)])
    call = main.call(kernel, {a: x}, {c: y}, scratch=[pad])
    main.block("Block2")
    main.compare(r, "IS_LTIMM", 2, "Block2", "Block3")
    main.block("Block3")
    main.add("GenericIndirectLoad", [x], [pad.via(r)], indirection=[pad], after=[(call, "Flow")], wait=[(3, 1)])
    queue = module.queue("q0")
    with queue.nested("DMABlock", name="d0"):
        queue.add("DMADescriptorCopy", [x], [y])
    assert load.name == "I-1"
    return module


def test_a_built_module_is_read_without_a_complaint_and_written_as_it_was() -> None:
    import json

    module = whole()
    ir = module.ir("whole")
    assert ir.diagnostics.rows() == []
    assert ir.modules["name"].to_list() == ["whole"]
    assert json.loads(ir.to_json()) == module.json()
    assert ir.calls["callee_id"].null_count() == 0
    assert ir.operands["location_id"].null_count() < ir.operands.height
