"""Rules G1 to G5, `lower_generic_indirect`, clause by clause."""

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir.passes.indirect.forms import EXACT
from tests.oracle.builders import call, function, loop, memory_set, module, names, op, row, rows
from tests.single_pass import Json, read, refused, run_pass

NAME = "lower_generic_indirect"
lower = partial(run_pass, NAME)
BIAS = 1 << 32
CHAIN = ["_TSPAddGenericAddr", "_ReadVarAddr", "_TSPAddAddr", "_MemsetTileOffset", "_TSPAddOffset"]


def tensor(
    name: str, memory: str, shape: list[int], dtype: str = "float32", kind: str = "Internal", **more: Any
) -> Json:
    size = {"float32": 4, "int32": 4, "int64": 8, "int16": 2, "bfloat16": 2}[dtype]
    width = int(np.prod(shape[1:])) * size
    place = {"name": name, "type": memory, "addr": 0, "dims": [shape[0], width]}
    return memory_set(f"{name}_set", kind, place, dtype=dtype, tensor_shape=shape, **more)


def access(name: str, ap: list[list[int]], dtype: str = "float32", offset: int = 0, **more: Any) -> Json:
    return {
        "kind": "physical_ap",
        "ap": ap,
        "dtype": dtype,
        "offset": offset,
        "memref": name,
        "memsetref": f"{name}_set",
    } | more


def index(name: str, count: int = 4, dtype: str = "int32", pitch: int = 1, offset: int = 0) -> Json:
    return access(name, [[pitch, count], [1, 1]], dtype, offset)


def symbolic(name: str, addresses: list[Any], count: int = 4, entry: int = 6, dtype: str = "float32") -> Json:
    return {
        "kind": "symbolic_ap", "addrs": addresses, "ap": [[6, count], [1, entry]], "dtype": dtype,
        "memsetref": f"{name}_set",
    }  # fmt: skip


def argument(number: int) -> Json:
    return {"kind": "IndirectArgId", "arg_id": number}


def constant(value: int) -> Json:
    return {"kind": "AffExprKind", "terms": [], "c": value}


TABLE = access("t", [[6, 10], [1, 6]])
OUT = access("out", [[6, 4], [1, 6]])


def gather(name: str = "g", ins: list[Json] | None = None, **more: Any) -> Json:
    """A load of four rows of a table of ten."""
    given = [TABLE, index("i")] if ins is None else ins
    return op(name, "GenericIndirectLoad", ins=given, outs=[OUT], indirect_dims=["W"] * (len(given) - 1)) | more


def scatter(name: str = "g", **more: Any) -> Json:
    return op(name, "GenericIndirectSave", ins=[OUT, index("i")], outs=[TABLE], indirect_dims=["W"]) | more


def storage(dtype: str = "int32", shape: list[int] | None = None) -> list[Json]:
    return [
        tensor("t", "DRAM", shape or [10, 6], kind="ExternalInput"),
        tensor("out", "SB", [4, 6]),
        tensor("i", "SB", [4, 1], dtype),
        tensor("j", "SB", [4, 1], dtype),
    ]


def body(*instructions: Json, sets: list[Json] | None = None, **more: Any) -> Json:
    return module(function("main", storage() if sets is None else sets, *instructions), **more)


def lowered(*instructions: Json, sets: list[Json] | None = None) -> Json:
    outcome = lower(body(*instructions, sets=sets))
    assert outcome.status == "changed", outcome.messages
    return outcome.doc


def fault(instruction: Json, sets: list[Json] | None = None) -> str:
    found = refused(NAME, body(op("x"), instruction, sets=sets))
    assert (found.function, found.block, found.instruction) == ("main", "Block1", "g")
    return found.code


def invariant(instruction: Json, sets: list[Json] | None = None) -> str:
    found = refused(NAME, body(op("x"), instruction, sets=sets))
    assert found.code == "generic_indirect_invariant"
    return found.message


# G1: the chain


def test_g1_opcodes_and_suffixes_in_order() -> None:
    doc = lowered(op("x"), gather(), op("z"))
    assert names(doc) == ["x", *(f"g{suffix}" for suffix in CHAIN), "g_IndirectLoad", "z"]
    assert [each["opcode"] for each in rows(doc)[1:-1]] == [
        "TensorScalarPtr", "ReadVarAddr", "TensorScalarPtr", "Memset", "TensorScalarPtr", "IndirectLoad",
    ]  # fmt: skip
    keys = [{key: each.get(key) for key in ("op0", "op1")} for each in rows(doc)[1:-1]]
    assert keys[2] == {"op0": "mult", "op1": "add"}
    assert keys[4]["op0"] == "add"


def test_g1_a_save() -> None:
    doc = lowered(scatter(op="bypass"))
    assert names(doc) == [*(f"g{suffix}" for suffix in CHAIN), "g_IndirectSave"]
    last = rows(doc)[-1]
    assert (last["opcode"], last["ins"]) == ("IndirectSave", [OUT])
    assert [each["memref"] for each in (*last["indirection_ins"], *last["outs"])] == ["g_ScratchSpaceTensor", "t"]
    assert not {"op", "indirect_dims"} & last.keys()


@pytest.mark.parametrize("more", [{}, {"op": "add"}, {"op": None}])
def test_g1_a_save_that_adds(more: Json) -> None:
    last = rows(lowered(scatter(**more)))[-1]
    assert (last["name"], last["opcode"]) == ("g_IndirectSave", "IndirectSaveAccumulate")
    assert (last["op"], last["num_indices"], last["entry_step_elements"]) == ("add", 4, 1)


def test_g1_a_step_for_each_index() -> None:
    table = symbolic("t", [argument(1), argument(2), constant(0)])
    sets = storage(shape=[5, 2, 6])
    doc = lowered(gather(ins=[table, index("i"), index("j")]), sets=sets)
    assert names(doc)[:3] == ["g_TSPAddGenericAddr", "g_TSPAddGenericAddr.1", "g_ReadVarAddr"]
    first, second = rows(doc)[:2]
    assert [each["memref"] for each in (first["ins"][0], second["ins"][0])] == ["i", "j"]
    assert first["ins"][1]["value"] == 2
    assert (first["op0"], first["op1"], second["op0"], second["op1"]) == ("mult", "bypass", "bypass", "add")


def test_g1_the_access_keeps_its_own_row() -> None:
    kept = {
        "engine": "SP",
        "queue": "q",
        "dge_type": "SWDGE",
        "debug": {"lineno": 3},
        "unknown": 1.5,
        "optin_passes": 7,
    }
    doc = lowered(gather(**kept))
    assert {key: rows(doc)[-1].get(key) for key in kept} == kept
    for each in rows(doc)[:-1]:
        assert each["engine"] == "Unassigned"
        assert each["debug"] == {"lineno": 3}
        assert not {"queue", "dge_type", "unknown", "optin_passes"} & each.keys()
        assert list(each) == sorted(each)


def test_g1_f6_order_of_keys() -> None:
    apart = scatter()
    assert list(apart) != sorted(apart)
    added = ["dependencies", "entry_step_elements", "indirection_ins", "num_indices", "op"]
    kept = [key for key in apart if key != "indirect_dims"]
    assert list(rows(lowered(apart))[-1]) == [*kept, *added]
    ordered = {key: apart[key] for key in sorted(apart)}
    assert list(rows(lowered(ordered))[-1]) == sorted([*kept, *added])


def test_g1_u0_all_functions_and_loop_bodies() -> None:
    sets = storage()
    document = module(
        function("main", sets, loop("L", "n", (0, 2, 1), gather()), op("z")), kernels=[function("k", sets, gather("h"))]
    )
    doc = lower(document).doc
    assert names(doc) == ["L", "z"]
    inside = rows(doc)[0]["blocks"][0]["instructions"]
    assert [each["name"] for each in inside] == [*(f"g{suffix}" for suffix in CHAIN), "g_IndirectLoad"]
    kernel = doc["nki_functions"]["functions"][0]
    assert kernel["blocks"][0]["instructions"][-1]["name"] == "h_IndirectLoad"


def test_g1_modules_without_accesses_are_unchanged() -> None:
    assert lower(body(op("a"), op("b", "IndirectLoad", ins=[TABLE], outs=[OUT]))).status == "unchanged"


def test_g1_r4_blocks_of_what_is_no_loop_are_data() -> None:
    inner = op("x", "DevicePrint", blocks=[{"name": "b", "instructions": [gather()]}])
    assert lower(body(inner)).status == "unchanged"


def test_g1_o6_the_size_is_checked_first() -> None:
    assert run_pass(NAME, body(gather(), op("z")), max_instructions=7).status == "changed"
    found = refused(NAME, body(gather(), op("z")), max_instructions=6)
    assert found.code == "too_many_instructions"
    assert "7 instructions" in found.message
    assert run_pass(NAME, body(op("a"), op("b")), max_instructions=1).status == "failed"


# G2: invariants


def test_g2_as_many_dimensions_as_indices() -> None:
    text = "Indirect dimensions must be one less than instruction argument number"
    for dims in ([], ["W", "Z"], None, "W"):
        assert invariant(gather(indirect_dims=dims)) == text
    assert invariant(gather(ins=[TABLE, index("i"), index("j")], indirect_dims=["W"])) == text
    assert invariant(gather(ins=[TABLE], indirection_ins=[index("i")], indirect_dims=[])) == text
    doc = lowered(gather(ins=[TABLE], indirection_ins=[index("i")], indirect_dims=["W"]))
    assert rows(doc)[0]["ins"][0] == index("i")


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "symbolic_ap", "addrs": [0, 0]},
        {"kind": "register_access", "regref": "r"},
        {"dynamic_ap_info": {"c": 1}},
    ],
)
def test_g2_one_access_for_each_index(wrong: Json) -> None:
    text = "Compiler middle end must have already flattened IndexAP to be only one AP"
    assert invariant(gather(ins=[TABLE, index("i") | wrong])) == text


def test_g2_one_element_in_each_partition() -> None:
    text = "GenericIndirectLoad/Save must have 1 element per partition for IndexAP"
    assert invariant(gather(ins=[TABLE, access("i", [[2, 4], [1, 2]], "int32")])) == text


@pytest.mark.parametrize("ap", [[[1, 4]], [[1, 4], [1, 1], [1, 1]]])
def test_g2_two_dimensions(ap: Any) -> None:
    text = "indirect DMA's AddrAP should be 2D"
    assert invariant(gather(ins=[TABLE, access("i", ap, "int32")])) == text


def test_g2_all_partitions_of_the_tensor() -> None:
    text = "Addr Tensor partition dim must match its tensor shape"
    assert invariant(gather(ins=[TABLE, index("i", 3)])) == text


def test_g2_in_this_order_and_the_first_access_counts() -> None:
    several = access("i", [[1, 3], [1, 2], [1, 1]], "int32")
    assert "1 element" in invariant(gather(ins=[TABLE, several]))
    assert "one less" in invariant(gather(ins=[TABLE, several], indirect_dims=[]))
    document = body(gather("a"), gather("b", indirect_dims=[]), gather("c", indirect_dims=[]))
    found = refused(NAME, document)
    assert found.instruction == "b"


def test_g2_o2_other_modules_go_on() -> None:
    ir = air.concat([read(body(gather(indirect_dims=[])), "bad"), read(body(gather()), "good")])
    result = air.passes.lower_generic_indirect(ir)
    assert result.status.to_list() == ["failed", "changed"]
    assert result.ir.to_json(0) == ir.to_json(0)


# G3: what is computed


def executed(document: Json, **inputs: Any) -> None:
    """Assert that a module computes the same before and after."""
    ir = read(document)
    result = air.passes.lower_generic_indirect(ir, strict=True)
    readings = {"negative_index": "skip"}
    compared = air.equivalent(ir, result.ir, inputs=inputs, trials=1, readings=readings)
    assert compared.ok, compared.frame["reason"].to_list()


def gathering(*instructions: Json, shape: list[int] | None = None, dtype: str = "int32") -> Json:
    """A module around accesses: indices come from inputs, and what is loaded goes to an output."""
    whole = access("i", [[1, 4], [1, 1]], dtype)
    ins = [op(f"load_{n}", "Load", ins=[whole | {"memref": f"d{n}", "memsetref": f"d{n}_set"}],
              outs=[whole | {"memref": n, "memsetref": f"{n}_set"}]) for n in "ij"]  # fmt: skip
    clear = op("clear", "Memset", outs=[OUT], mode="Const", constant=0)
    save = op("save", "Save", ins=[OUT], outs=[OUT | {"memref": "y", "memsetref": "y_set"}])
    sets = [*storage(dtype, shape), tensor("y", "DRAM", [4, 6], kind="ExternalOutput")]
    sets += [tensor(f"d{n}", "DRAM", [4, 1], dtype, kind="ExternalInput") for n in "ij"]
    return body(*ins, clear, *instructions, save, sets=sets)


def numbers(*values: int, dtype: str = "int32") -> Any:
    bias = 0 if dtype == "int32" else BIAS
    return (np.array(values, np.int64) + bias).astype(dtype).reshape(-1, 1)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_g3_rows_of_a_table(dtype: str) -> None:
    load = gather(ins=[TABLE, index("i", dtype=dtype)])
    executed(gathering(load, dtype=dtype), di=numbers(9, 0, 3, 3, dtype=dtype), dj=numbers(0, 0, 0, 0, dtype=dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_g3_rows_by_two_indices_with_constants(dtype: str) -> None:
    first = {"kind": "AffExprKind", "terms": [{"idx": argument(1), "coeff": 1}], "c": 1}
    table = symbolic("t", [first, argument(2), constant(0)])
    load = gather(ins=[table, index("i", dtype=dtype), index("j", dtype=dtype)])
    document = gathering(load, shape=[5, 2, 6], dtype=dtype)
    executed(document, di=numbers(0, 3, 2, 1, dtype=dtype), dj=numbers(1, 0, 0, 1, dtype=dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_g3_an_index_of_minus_one_is_left_out(dtype: str) -> None:
    load = gather(ins=[TABLE, index("i", dtype=dtype)])
    executed(gathering(load, dtype=dtype), di=numbers(9, -1, 3, -1, dtype=dtype), dj=numbers(0, 0, 0, 0, dtype=dtype))


def test_g3_the_constant_of_the_tile() -> None:
    """Addresses of 64 bits carry 2**32, which steps multiply: the constant takes that away."""
    sets = storage("int64", [5, 2, 6])
    table = symbolic("t", [argument(1), argument(2), constant(2)], entry=4)
    out = access("out", [[6, 4], [1, 4]])
    load = gather(ins=[table, index("i", dtype="int64"), index("j", dtype="int64")], outs=[out])
    memset = row(lowered(load, sets=sets), "g_MemsetTileOffset")
    assert memset["constant"] == (2 - BIAS * (2 + 1) * 6) % (1 << 64)
    assert memset["mode"] == "Const"
    narrow = row(lowered(gather(ins=[access("t", [[6, 9], [1, 6]], offset=6), index("i")])), "g_MemsetTileOffset")
    assert narrow["constant"] == 6


def test_g3_indices_of_32_bits_come_first() -> None:
    sets = [*storage(shape=[5, 2, 6])[:3], tensor("j", "SB", [4, 1], "int64")]
    table = symbolic("t", [argument(1), argument(2), constant(0)])
    doc = lowered(gather(ins=[table, index("j", dtype="int64"), index("i")]), sets=sets)
    assert [each["ins"][0]["memref"] for each in rows(doc)[:2]] == ["i", "j"]
    assert [each.get("is_tensor_scalar_addr", False) for each in rows(doc)[:2]] == [False, True]


def test_g3_several_indices_of_32_bits_count_exactly() -> None:
    def code(count: int) -> str | None:
        sets = [tensor("t", "DRAM", [count, 2, 6], kind="ExternalInput"), *storage()[1:]]
        table = symbolic("t", [argument(1), argument(2), constant(0)])
        outcome = lower(body(gather(ins=[table, index("i"), index("j")]), sets=sets))
        return outcome.messages[0].code if outcome.messages else None

    assert code(EXACT // 2) is None
    assert code(EXACT // 2 + 1) == "not_supported"


def test_g3_the_last_operand_is_the_whole_table() -> None:
    last = rows(lowered(gather(ins=[access("t", [[6, 9], [1, 6]], offset=6), index("i")])))[-1]
    assert last["ins"][0] == access("t", [[6, 10], [1, 6]])
    table = symbolic("t", [argument(1), constant(0)]) | {"access_shape": [4, 6]}
    last = rows(lowered(gather(ins=[table, index("i")])))[-1]
    # By row number: an index counts as many elements as the last step says.
    assert {key: last["ins"][0].get(key) for key in ("kind", "ap", "offset", "memref", "memsetref")} == {
        "kind": "physical_ap", "ap": [[1, 6], [6, 10]], "offset": 0, "memref": "t", "memsetref": "t_set",
    }  # fmt: skip
    assert not {"addrs", "access_shape"} & last["ins"][0].keys()


def symbolic_load(*addresses: Any) -> Json:
    return gather(ins=[symbolic("t", list(addresses)), index("i")])


@pytest.mark.parametrize(
    ("instruction", "code"),
    [
        (symbolic_load(argument(1)), "address_rank_mismatch"),
        (symbolic_load({"kind": "AffIVKind", "axis": "n"}, argument(1)), "runtime_address"),
        (symbolic_load({"kind": "ShardIDKind", "ub": 2}, argument(1)), "runtime_address"),
        (symbolic_load({"kind": "FloorDivKind", "numer": argument(1), "denom": 2}, constant(0)), "not_supported"),
        (symbolic_load(argument(3), constant(0)), "bad_expression"),
        (symbolic_load(argument(1), constant(1 << 41)), "address_out_of_bounds"),
        (gather(ins=[access("t", [[12, 5], [1, 6]]), index("i")]), "not_supported"),
        (gather(ins=[TABLE, index("i")], outs=[access("out", [[6, 4], [2, 3]])]), "not_supported"),
        (gather(ins=[TABLE, index("i", dtype="int16")]), "not_supported"),
        (gather(ins=[TABLE, index("gone")]), "unresolved_name"),
        (gather(ins=[access("gone", [[6, 10], [1, 6]]), index("i")]), "unresolved_name"),
        (gather(ins=[access("out", [[6, 4], [1, 6]]), index("i")]), "not_supported"),
        (gather(ins=[TABLE | {"dtype": "strange"}, index("i")]), "unknown_dtype"),
        (gather(ins=[TABLE, index("i")], predicates=[{}]), "predicated_instruction"),
        (scatter(op="max"), "not_supported"),
    ],
)
def test_g3_what_cannot_be_lowered(instruction: Json, code: str) -> None:
    assert fault(instruction) == code


def test_g3_unrolling_comes_first() -> None:
    """An address that depends on an axis is worked out by unrolling; the rest of it stays symbolic until here."""
    terms = [{"idx": argument(1), "coeff": 1}, {"idx": {"kind": "AffIVKind", "axis": "n"}, "coeff": 5}]
    address = {"kind": "AffExprKind", "terms": terms, "c": 0}
    load = gather(ins=[symbolic("t", [address, constant(0)]), index("i")])
    document = gathering(loop("L", "n", (0, 2, 1), load))
    assert refused(NAME, document).code == "runtime_address"
    unrolled = json.loads(air.passes.unroll(read(document)).ir.to_json(0))
    executed(unrolled, di=numbers(4, 0, 3, 3), dj=numbers(0, 0, 0, 0))


# G4: edges and waits


def test_g4_edges_of_the_access_on_the_first_and_edges_on_it_from_the_last() -> None:
    carried = [["z", "Anti", [1]]]
    doc = lowered(
        op("p"),
        gather(dependencies=["p", ["gone", "Anti"]], loop_carried_dependencies=carried),
        op("z", dependencies=[["g", "Flow"], "p"]),
        op("h", "BranchHint", hint="LikelyTaken", associate_branch="g"),
        op("w", sync_info={"on_wait": [{"id": 1, "from": "g", "wait_value": 1}]}),
    )
    first, last = row(doc, "g_TSPAddGenericAddr"), row(doc, "g_IndirectLoad")
    assert first["dependencies"] == ["p", ["gone", "Anti"]]
    assert first["loop_carried_dependencies"] == carried
    assert "loop_carried_dependencies" not in last
    assert row(doc, "z")["dependencies"] == [["g_IndirectLoad", "Flow"], "p"]
    assert row(doc, "h")["associate_branch"] == "g_IndirectLoad"
    assert row(doc, "w")["sync_info"]["on_wait"][0]["from"] == "g_IndirectLoad"


def test_g4_each_of_the_chain_waits_for_what_it_reads() -> None:
    doc = lowered(gather())
    found = {each["name"]: each.get("dependencies") for each in rows(doc)}
    step, read_, address, memset, offset = (f"g{suffix}" for suffix in CHAIN)
    assert found == {
        step: None,
        read_: [[step, "Ordered"]],
        address: [[step, "Flow"], [read_, "Flow"]],
        memset: [[address, "Ordered"]],
        offset: [[address, "Flow"], [memset, "Flow"]],
        "g_IndirectLoad": [[offset, "Flow"]],
    }
    adding = row(lowered(scatter()), offset)
    assert adding["dependencies"] == [[read_, "Flow"], [address, "Flow"], [memset, "Flow"]]


def test_g4_waits_on_the_first_updates_on_the_last() -> None:
    wait, update = {"id": 1, "wait_value": 2}, {"id": 3, "update_value": 1}
    doc = lowered(gather(sync_info={"on_wait": [wait], "on_update": [update], "more": 1}))
    assert row(doc, "g_TSPAddGenericAddr")["sync_info"] == {"on_wait": [wait]}
    assert row(doc, "g_IndirectLoad")["sync_info"] == {"on_update": [update], "more": 1}
    doc = lowered(gather(sync_info={"on_wait": [wait]}))
    assert "sync_info" not in row(doc, "g_IndirectLoad")
    doc = lowered(gather(sync_info={"on_update": [update]}))
    assert "sync_info" not in row(doc, "g_TSPAddGenericAddr")


# G5: helpers and names


def test_g5_two_locations_for_each_access() -> None:
    doc = lowered(gather("g"), gather("h"))
    sets = {each["name"]: each for each in doc["functions"][0]["allocations"]}
    assert list(sets)[4:] == [f"{n}{helper}_set" for n in "gh" for helper in ("_DstTensor", "_ScratchSpaceTensor")]
    made = sets["g_ScratchSpaceTensor_set"]
    assert list(made) == sorted(made)
    assert (made["kind"], made["tensor_class"], made["dtype"]) == ("Internal", "NeuronSBTensor", "int64")
    assert (made["tensor_shape"], made["tensorId2MemLocSize"]) == ([4, 2], 1)
    (place,) = made["memorylocations"]
    assert (place["name"], place["type"], place["dims"]) == ("g_ScratchSpaceTensor", "SB", [4, 16])
    assert place["allocated"] is False
    assert row(doc, "g_ReadVarAddr")["outs"][0]["memref"] == "g_DstTensor"


def test_g5_r6_names_are_free() -> None:
    sets = [*storage(), tensor("g_DstTensor", "SB", [4, 1])]
    doc = lowered(op("g_IndirectLoad"), gather(), gather(), op("g_ReadVarAddr"), sets=sets)
    found = names(doc)
    assert len(set(found)) == len(found)
    assert found[6] == "g_IndirectLoad.1"
    assert found[2] == "g_ReadVarAddr.1"
    assert found[8] == "g_ReadVarAddr.2"
    allocations = [each["name"] for each in doc["functions"][0]["allocations"]][5:]
    assert allocations == [
        "g_DstTensor_set.1", "g_ScratchSpaceTensor_set", "g_DstTensor_set.2", "g_ScratchSpaceTensor_set.1",
    ]  # fmt: skip


def test_g5_n16_rows_remember_the_name_in_the_file() -> None:
    outcome = lower(body(gather()))
    assert set(outcome.ir.tables["instructions"].text("original_name").tolist()) == {"g"}


# On canonical copies


def kernel_module(*instructions: Json, calls: int = 1) -> Json:
    bound = {"func_args": {"t": "t"}, "func_outs": {"y": "y"}}
    outside = [tensor("t", "DRAM", [10, 6], kind="ExternalInput"), tensor("y", "DRAM", [4, 6], kind="ExternalOutput")]
    inside = [*outside, *storage()[1:]]
    sites = [call(f"c{n}", **bound) for n in range(calls)]
    return module(function("main", outside, *sites), kernels=[function("k", inside, *instructions)])


def test_g1_n3_kernels_are_lowered_after_unrolling() -> None:
    clear = op("clear", "Iota", outs=[index("i")], base=0, pattern=[[0, 1]], channel_multiplier=2)
    address = {"kind": "SumKind", "n_terms": 2, "terms": [argument(1), {"kind": "AffIVKind", "axis": "n"}]}
    load = gather(ins=[symbolic("t", [address, constant(0)]), index("i")], dependencies=["clear"])
    save = op("save", "Save", ins=[OUT], outs=[OUT | {"memref": "y", "memsetref": "y_set"}], dependencies=["g"])
    document = kernel_module(clear, loop("L", "n", (0, 3, 1), load), save, calls=2)
    ir = read(document)
    result = air.passes.inline_nki_kernel(ir, strict=True)
    found = result.ir.instructions["name"].to_list()
    chain = [f"{suffix}" for suffix in (*CHAIN, "_IndirectLoad")]
    assert found == [
        name
        for n in range(2)
        for name in (f"c{n}_clear", *(f"c{n}_g-{k}{suffix}" for k in range(3) for suffix in chain), f"c{n}_save")
    ]
    assert row(json.loads(result.ir.to_json(0)), "c0_save")["dependencies"] == ["c0_g-2_IndirectLoad"]
    locations = result.ir.locations["name"].to_list()
    assert "c1:g-2_DstTensor" in locations
    assert "c0:g-0_ScratchSpaceTensor" in locations
    compared = air.equivalent(ir, result.ir)
    assert compared.ok, compared.frame["reason"].to_list()
    assert set(result.ir.instructions.filter(opcode="ReadVarAddr")["original_name"].to_list()) == {"g"}


def test_g2_n3_a_kernel_that_cannot_be_lowered_fails_the_module() -> None:
    ir = read(kernel_module(gather(indirect_dims=[])))
    result = air.passes.inline_nki_kernel(ir)
    (message,) = result.messages
    assert (message.code, message.instruction, message.function) == ("generic_indirect_invariant", "g", "k")
    assert result.ir.to_json(0) == ir.to_json(0)


def test_g1_n3_o6_what_lowering_adds_counts() -> None:
    save = op("save", "Save", ins=[OUT], outs=[OUT | {"memref": "y", "memsetref": "y_set"}])
    ir = read(kernel_module(loop("L", "n", (0, 2, 1), gather()), save))
    # Two chains of six and the save, in the caller and as a body.
    assert air.passes.inline_nki_kernel(ir, max_instructions=26).ok
    (message,) = air.passes.inline_nki_kernel(ir, max_instructions=25).messages
    assert message.code == "too_many_instructions"
