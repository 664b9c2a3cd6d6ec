"""Rules C1 and C2: which locations are constant, and what constants decide."""

from typing import Any

import pytest

from tests.constant_modules import COPY, MEMSET, ONE, copy, fill, logical, main, propagate, rows_of, select, tensors
from tests.oracle.builders import (
    access,
    block,
    function,
    location,
    loop,
    memory_set,
    op,
    register,
    row,
    runtime,
    symbolic,
)
from tests.single_pass import Json, refused


def is_constant(*rows: Json, tensor: Json | None = None, **more: Any) -> bool:
    """Whether `c`, which `rows` fill, is constant: a copy of it to the output becomes a Memset."""
    own = tensor or memory_set("c_set")
    document = main(*rows, copy("z", "c", "y"), names=("d",), more=[own, *more.pop("sets", [])])
    outcome = propagate(document | more)
    return f"z{MEMSET}: Memset" in rows_of(outcome)


# C1


def test_c1_a_location_that_one_memset_fills_is_constant() -> None:
    assert is_constant(fill("m", "c"))


@pytest.mark.parametrize("kind", ["ExternalInput", "ExternalOutput", "Const", "InternalInterface"])
def test_c1_only_internal_locations_are(kind: str) -> None:
    assert not is_constant(fill("m", "c"), tensor=memory_set("c_set", kind))


@pytest.mark.parametrize(
    "member",
    [
        {"pinned": True},
        {"runtime_reserved": True},
        {"written_by_another_core": True},
        {"alias": [["d", 1]]},
        {"alias": [["d_set", "d", 3]]},
        {"pointer_ref_memloc": "d"},
    ],
)
def test_c1_not_aliased_nor_pinned_nor_reserved_nor_used_by_others(member: Json) -> None:
    assert not is_constant(fill("m", "c"), tensor=memory_set("c_set", "Internal", location("c", **member)))


def test_c1_flags_that_are_false_say_nothing() -> None:
    place = location("c", pinned=False, runtime_reserved=False, written_by_another_core=False)
    assert is_constant(fill("m", "c"), tensor=memory_set("c_set", "Internal", place))


@pytest.mark.parametrize("alias", [[["c", 1]], [["c_set", "c", 1]]])
def test_c1_nor_the_target_of_an_alias(alias: list[Any]) -> None:
    assert not is_constant(fill("m", "c"), sets=[memory_set("f_set", "Internal", location("f", alias=alias))])


def test_c1_nor_the_target_of_a_pointer() -> None:
    pointer = memory_set("p_set", "Pointer", location("p", pointer_ref_memloc="c"))
    assert not is_constant(fill("m", "c"), sets=[pointer])


def test_c1_nor_volatile() -> None:
    assert not is_constant(fill("m", "c"), tensor=memory_set("c_set", volatile=True))


def test_c1_its_only_writer_is_the_memset() -> None:
    assert not is_constant(fill("m", "c"), fill("n", "c"))
    assert not is_constant(fill("m", "c"), op("n", "Iota", outs=[access("c", offset=1, ap=[[16, 1], [1, 1]])]))
    assert not is_constant(fill("m", "c"), op("n", "NewOpcode", outs=[access("c")]))


@pytest.mark.parametrize(
    "keys", [{"mode": "Random"}, {"constant": runtime("r")}, {"constant": -1}, {"constant": 1 << 32}, {"constant": 1.5}]
)
def test_c1_the_memset_is_const_with_a_bit_pattern(keys: Json) -> None:
    rows = [fill("m", "c") | keys]
    assert not is_constant(*rows, sets=[register("r")])


def test_c1_a_memset_with_predicates_may_not_be_executed() -> None:
    assert not is_constant(fill("m", "c", predicates=[{"a": 1}]))
    assert is_constant(fill("m", "c", predicates=[]))


@pytest.mark.parametrize(
    ("out", "covers"),
    [
        (access("c", ap=[[16, 128], [1, 15]]), False),
        (access("c", ap=[[16, 127], [1, 16]]), False),
        (access("c", ap=[[16, 128], [2, 8]]), False),
        (access("c", offset=1), False),
        (access("c", ap=[[16, 128], [-1, 16]], offset=15), True),
        (access("c", ap=[[16, 128], [4, 4], [1, 4]]), True),
        (access("c", ap=[[16, 128], [4, 4], [1, 5]]), False),
        (access("c", ap=[[16, 128], [1, 16], [0, 2]]), True),
        (access("c", ap=[[16, 128], [4, 3], [1, 8]]), True),
        (access("c", ap=[[1, 2048]]), True),
        (access("c", dtype="bfloat16", ap=[[32, 128], [1, 32]]), True),
        (access("c", dtype="bfloat16"), False),
        (access("c", dtype="float24"), False),
        (access("c", dynamic_ap_info={"c": 0}), False),
        (access("c", dynamic_ap_info=None), True),
        (
            symbolic(
                "c_set", {"kind": "AffExprKind", "terms": [], "c": 0}, {"kind": "AffExprKind", "terms": [], "c": 0}
            ),
            False,
        ),
    ],
)
def test_c1_it_covers_every_element_by_a_physical_access(out: Json, covers: bool) -> None:
    dtype = out["dtype"]
    read, written = access("c", dtype=dtype, ap=[[16, 1], [1, 8]]), access("y", dtype=dtype, ap=[[16, 1], [1, 8]])
    document = main(fill("m", "c", out=out), op("z", "TensorCopy", ins=[read], outs=[written]))
    assert (f"z{MEMSET}: Memset" in rows_of(propagate(document))) == covers


def test_c1_it_stands_before_every_reader_in_program_order() -> None:
    assert not is_constant(copy("a", "c", "y"), fill("m", "c"))
    # A loop stands before its body.
    body = loop("L", "i", (0, 2, 1), copy("a", "c", "y"))
    assert is_constant(fill("m", "c"), body)
    assert not is_constant(body, fill("m", "c"))


def test_c1_a_reader_that_goes_does_not_count() -> None:
    # `a` is dead code: behind it the Memset stands before every reader (C4).
    outcome = propagate(main(copy("a", "c", "d"), fill("m", "c"), copy("z", "c", "y")))
    assert rows_of(outcome) == [f"z{MEMSET}: Memset"]


@pytest.mark.parametrize("opcode", ["NKIKernel", "BIRKernel", "NKIKLIRKernel", "Call"])
def test_c1_calls_read_and_write_what_they_name(opcode: str) -> None:
    assert not is_constant(fill("m", "c"), op("k", opcode, ins=[access("c")]))


def test_c1_argument_maps_name_what_calls_read_and_write() -> None:
    kernel = function("k", [memory_set("a_set", "ExternalInput")])
    call = op("k", "NKIKernel", func="k", func_args={"a": "c"})
    assert not is_constant(fill("m", "c"), call, nki_functions={"functions": [kernel]})
    assert not is_constant(fill("m", "c"), op("k", "Call", target="k", arguments=[["a", "c_set"]]))


def test_c1_what_has_the_address_reads_and_writes() -> None:
    assert not is_constant(
        fill("m", "c"), op("a", "ReadVarAddr", ins=[access("c")], outs=[access("d")]), copy("b", "d", "y")
    )


def test_c1_dma_descriptors_of_queues_read_and_write_what_they_name() -> None:
    descriptor = {"name": "d", "opcode": "DMADescriptorCopy", "ins": [access("c")], "outs": []}
    rows = {"name": "b", "opcode": "DMABlock", "blocks": [{"instructions": [descriptor]}]}
    queues = [{"name": "q", "blocks": [{"name": "b", "instructions": [rows]}]}]
    assert not is_constant(fill("m", "c"), queues=queues)


def test_c1_what_another_function_names_is_not_constant() -> None:
    operand = access("c", memref_owner_func="main")
    other = function("other", tensors("d"), op("a", "TensorCopy", ins=[operand], outs=[access("y")]))
    document = main(fill("m", "c"), copy("z", "c", "y"))
    assert propagate(document | {"functions": [*document["functions"], other]}).status == "unchanged"


def test_c1_what_data_of_an_instruction_names_is_not_constant() -> None:
    held = op("S", "Strange", blocks=[block("b", copy("a", "c", "y"))])
    assert not is_constant(fill("m", "c"), held)


# C2


@pytest.mark.parametrize("opcode", ["TensorCopy", "GenericCopy", "Load", "Save", "DMACopy"])
def test_c2_a_copy_of_a_constant_becomes_a_memset(opcode: str) -> None:
    outcome = propagate(main(fill("m", "c", ONE), copy("z", "c", "y", opcode, engine="SP")))
    assert outcome.doc["functions"][0]["blocks"][0]["instructions"] == [
        fill(f"z{MEMSET}", "y", ONE, engine="SP"),
    ]


def test_c2_common_and_unknown_keys_stay_and_the_old_opcodes_own_go() -> None:
    more = {
        "can_read_uninit": True,
        "queue": "q",
        "dge_type": None,
        "optin_passes": 3,
        "note": [1],
        "debug": {"lineno": 7},
    }
    outcome = propagate(main(fill("m", "c"), copy("z", "c", "y", "DMACopy", mode="Copy", **more)))
    (made,) = outcome.doc["functions"][0]["blocks"][0]["instructions"]
    # Unsorted keys: the new one is last, and one that both opcodes have keeps its place (F6).
    assert list(made) == [
        "name",
        "opcode",
        "engine",
        "ins",
        "outs",
        "mode",
        "optin_passes",
        "note",
        "debug",
        "constant",
    ]
    assert (made["mode"], made["constant"], made["ins"]) == ("Const", 0, [])


def test_c2_f6_new_keys_stand_in_their_places_among_sorted_ones() -> None:
    rows = [fill("m", "c"), copy("z", "c", "y")]
    rows[1] = {key: rows[1][key] for key in sorted(rows[1])}
    (made,) = propagate(main(*rows)).doc["functions"][0]["blocks"][0]["instructions"]
    assert list(made) == ["constant", "engine", "ins", "mode", "name", "opcode", "outs"]


def test_c2_references_of_keys_that_go_go_with_them() -> None:
    more = {"can_read_uninit": runtime("r"), "order": [runtime("s")]}
    outcome = propagate(main(fill("m", "c"), copy("z", "c", "y", **more), more=[register("r"), register("s")]))
    (made,) = outcome.doc["functions"][0]["blocks"][0]["instructions"]
    assert made["order"] == [runtime("s")]
    assert "can_read_uninit" not in made


@pytest.mark.parametrize(
    "keys",
    [
        {"mode": "Transpose"},
        {"mode": "CCE", "cce_op": "add"},
        {"cce_op": "add"},
        {"constants": [1.0]},
        {"remote_notification": [1]},
        {"replica_groups": [[0, 1]]},
    ],
)
def test_c2_a_dma_copy_that_does_more_than_copy_stays(keys: Json) -> None:
    assert propagate(main(fill("m", "c"), copy("z", "c", "y", "DMACopy", **keys))).status == "unchanged"


def test_c2_one_input_and_no_indirection() -> None:
    two = op("z", "DMACopy", ins=[access("c"), access("c")], outs=[access("y")])
    indirect = copy("z", "c", "y", "DMACopy", indirection_ins=[access("x")])
    moving = op("z", "TensorCopy", ins=[access("c", dynamic_ap_info={"c": 0})], outs=[access("y")])
    into = op("z", "TensorCopy", ins=[access("c")], outs=[access("y", dynamic_ap_info={"c": 0})])
    for instruction in (two, indirect, moving, into):
        assert propagate(main(fill("m", "c"), instruction)).status == "unchanged"


def test_c2_the_dtypes_of_input_output_and_memset_are_equal() -> None:
    narrow = access("y", dtype="bfloat16", ap=[[32, 128], [1, 16]])
    cast = op("z", "TensorCopy", ins=[access("c")], outs=[narrow])
    other = op("z", "TensorCopy", ins=[access("c", dtype="int32")], outs=[access("y", dtype="int32")])
    for instruction in (cast, other):
        assert propagate(main(fill("m", "c", ONE), instruction)).status == "unchanged"


def test_c2_a_partial_read_counts_and_one_outside_does_not() -> None:
    part, outside = access("c", ap=[[16, 2], [3, 2]], offset=5), access("c", offset=1)
    out = access("y", ap=[[16, 2], [1, 2]])
    assert propagate(main(fill("m", "c"), op("z", "TensorCopy", ins=[part], outs=[out]))).status == "changed"
    assert (
        propagate(main(fill("m", "c"), op("z", "TensorCopy", ins=[outside], outs=[access("y")]))).status == "unchanged"
    )


def test_c2_constants_go_on_through_copies() -> None:
    outcome = propagate(main(fill("m", "c"), copy("a", "c", "d"), copy("b", "d", "e"), copy("z", "e", "y")))
    assert rows_of(outcome) == [f"z{MEMSET}: Memset"]


@pytest.mark.parametrize(("constant", "chosen"), [(ONE, "x"), (0, "e"), (1 << 31, "e")])
def test_c2_a_select_by_a_constant_becomes_a_copy_of_what_it_chooses(constant: int, chosen: str) -> None:
    outcome = propagate(main(fill("m", "c", constant), copy("a", "x", "e"), select("c", "x", "e")))
    made = row(outcome.doc, f"s{COPY}")
    assert (made["opcode"], made["ins"], made["outs"]) == ("GenericCopy", [access(chosen)], [access("y")])
    assert rows_of(outcome) == ([] if chosen == "x" else ["a: TensorCopy"]) + [f"s{COPY}: GenericCopy"]


def test_c2_a_copy_that_was_a_select_goes_on() -> None:
    outcome = propagate(main(fill("m", "c", ONE), fill("n", "d", 7), select("c", "d", "x")))
    assert rows_of(outcome) == [f"s{COPY}{MEMSET}: Memset"]
    assert row(outcome.doc, f"s{COPY}{MEMSET}")["constant"] == 7


def test_c2_scp001_a_constant_that_is_no_predicate_fails_the_module() -> None:
    message = refused("constant_propagate", main(fill("m", "c", 7), select("c", "x", "x")))
    assert (message.code, message.compiler_code) == ("invalid_select_predicate", "SCP001")
    assert message.message == "Invalid predicate value for Select s"
    assert (message.function, message.instruction) == ("main", "s")


def test_c2_a_predicate_of_a_dtype_whose_one_is_not_known_is_left() -> None:
    dtype = {"dtype": "float8_e8m0fnu", "ap": [[64, 128], [1, 64]]}
    ins = [access("c", **dtype), access("x"), access("x")]
    document = main(fill("m", "c", 7, out=access("c", **dtype)), op("s", "Select", ins=ins, outs=[access("y")]))
    assert propagate(document).status == "unchanged"


def test_c2_an_immediate_is_not_copied() -> None:
    ins = [access("c"), {"kind": "imm_value", "dtype": "float32", "value": 1.0}, access("x")]
    document = main(fill("m", "c", ONE), op("s", "Select", ins=ins, outs=[access("y")]))
    assert propagate(document).status == "unchanged"


@pytest.mark.parametrize(
    ("which", "constant", "bits"),
    [("and", 0, 0), ("or", ONE, ONE), ("and", ONE, None), ("or", 0, None), ("or", 7, None)],
)
@pytest.mark.parametrize("ins", [("c", "x"), ("x", "c")])
def test_c2_logical_operations_that_a_constant_decides(which: str, constant: int, bits: int | None, ins: Any) -> None:
    outcome = propagate(main(fill("m", "c", constant), logical(which, *ins)))
    assert outcome.status == ("unchanged" if bits is None else "changed")
    if bits is not None:
        made = row(outcome.doc, f"t{MEMSET}")
        assert (made["opcode"], made["constant"], made["ins"]) == ("Memset", bits, [])
        assert "op" not in made


def test_c2_the_one_is_that_of_the_outputs_dtype() -> None:
    out = access("y", dtype="bfloat16", ap=[[32, 128], [1, 16]])
    rows = [fill("m", "c", ONE), op("t", "TensorTensor", ins=[access("c"), access("x")], outs=[out], op="logical_or")]
    assert row(propagate(main(*rows)).doc, f"t{MEMSET}")["constant"] == 0x3F80
    rows[1]["outs"] = [access("y", dtype="float8_e8m0fnu", ap=[[64, 128], [1, 16]])]
    assert propagate(main(*rows)).status == "unchanged"


def test_c2_what_goes_into_an_accumulator_as_well_stays() -> None:
    assert propagate(main(fill("m", "c"), logical("and", "c", "x", acc="ZeroAccumulate"))).status == "unchanged"
    assert propagate(main(fill("m", "c"), logical("and", "c", "x", acc="Idle"))).status == "changed"


def matmult(name: str, **keys: Any) -> Json:
    return op(name, "Matmult", engine="PE", ins=[access("x"), access("c")], outs=[access("y")], **keys)


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        ({"accumulation_flag": 1}, "memset"),
        ({"accumulation_flag": 3}, "memset"),
        ({"start_tensor_calc": True, "accumulation_flag": 2}, "memset"),
        ({"accumulation_flag": 2}, "removed"),
        ({"start_tensor_calc": False}, "removed"),
        ({"start_tensor_calc": False, "ifmap_quant_offset": 0}, "removed"),
        ({"accumulation_flag": 0}, "left"),
        ({}, "left"),
        ({"accumulation_flag": 1, "ifmap_quant_offset": 3}, "left"),
        ({"accumulation_flag": 2, "weights_quant_offset": 3}, "left"),
        ({"accumulation_flag": 1, "is_transpose": True}, "left"),
        ({"accumulation_flag": 1, "psum_zero_region": 1}, "left"),
        ({"accumulation_flag": runtime("r")}, "left"),
        ({"accumulation_flag": 2, "sync_info": {"on_update": []}}, "left"),
    ],
)
def test_c2_with_finite_operands_products_with_zeros(keys: Json, made: str) -> None:
    document = main(fill("m", "c"), matmult("p", **keys), more=[register("r")])
    expected = {
        "memset": [f"p{MEMSET}: Memset"],
        "removed": ["Block1_noop: NoOp"],
        "left": ["m: Memset", "p: Matmult"],
    }
    assert rows_of(propagate(document, assume_finite=True)) == expected[made]
    assert propagate(document).status == "unchanged"


def test_c2_a_product_that_becomes_a_memset_loses_all_its_keys() -> None:
    document = main(fill("m", "c"), matmult("p", accumulation_flag=1, tile_size=[1, 2], stop_tensor_calc=True, note=1))
    made = row(propagate(document, assume_finite=True).doc, f"p{MEMSET}")
    assert list(made) == ["name", "opcode", "engine", "ins", "outs", "note", "constant", "mode"]


def test_c2_products_without_zeros_stay() -> None:
    assert (
        propagate(main(fill("m", "c", ONE), matmult("p", accumulation_flag=1)), assume_finite=True).status
        == "unchanged"
    )


@pytest.mark.parametrize(("which", "constant"), [("and", ONE), ("or", 0)])
def test_c2_with_finite_operands_logical_operations_that_leave_one_as_it_is(which: str, constant: int) -> None:
    document = main(fill("m", "c", constant), logical(which, "c", "x"))
    made = row(propagate(document, assume_finite=True).doc, f"t{COPY}")
    assert (made["opcode"], made["ins"]) == ("GenericCopy", [access("x")])
    assert "op" not in made
    assert propagate(document).status == "unchanged"


def test_c2_edges_and_names_of_a_rewritten_row() -> None:
    rows = [
        fill("m", "c"),
        copy("z", "c", "y", dependencies=[["p", "Anti"], "m"]),
        op("w", dependencies=[["z", "Flow"]], sync_info={"on_wait": [{"from": "z", "id": 1}]}),
    ]
    outcome = propagate(main(op("p"), *rows))
    assert row(outcome.doc, f"z{MEMSET}")["dependencies"] == [["p", "Anti"]]
    follower = row(outcome.doc, "w")
    assert follower["dependencies"] == [[f"z{MEMSET}", "Flow"]]
    assert follower["sync_info"]["on_wait"][0]["from"] == f"z{MEMSET}"


def test_c2_r6_new_names_are_free_also_of_names_that_go() -> None:
    rows = [fill("m", "c"), copy("z", "c", "y"), op(f"z{MEMSET}"), fill(f"z{MEMSET}.1", "d"), copy("z", "c", "y")]
    assert rows_of(propagate(main(*rows))) == [
        f"z{MEMSET}.2: Memset", f"z{MEMSET}: NoOp", f"z{MEMSET}.3: Memset",
    ]  # fmt: skip


def test_c2_n16_the_old_name_is_remembered() -> None:
    outcome = propagate(main(fill("m", "c"), copy("z", "c", "y")))
    assert outcome.ir.tables["instructions"].text("original_name").tolist() == ["z"]
