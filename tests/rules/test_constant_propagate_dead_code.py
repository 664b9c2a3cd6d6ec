"""Rules C3 to C5: what nothing reads goes; the fixpoint; constants in kernels that are inlined."""

import pytest

import arrowir as air
from tests.constant_modules import COPY, MEMSET, ONE, copy, fill, logical, main, propagate, rows_of, select, tensors
from tests.oracle.builders import (
    access,
    affine,
    axis,
    block,
    function,
    location,
    loop,
    memory_set,
    module,
    op,
    register,
    row,
    symbolic,
)
from tests.single_pass import Json, refused, run_pass

# C3


def test_c3_what_nothing_reads_goes_and_then_what_only_that_read() -> None:
    outcome = propagate(main(copy("a", "x", "c"), copy("b", "c", "d"), copy("e", "d", "e"), op("n")))
    assert rows_of(outcome) == ["n: NoOp"]


@pytest.mark.parametrize(
    "reader",
    [
        copy("r", "c", "y"),
        op("r", "IndirectLoad", ins=[access("x")], indirection_ins=[access("c")], outs=[access("y")]),
        op("r", "DevicePrint", ins=[access("c", ap=[[16, 1], [1, 1]])], prefix=""),
        op("r", "NewOpcode", ins=[access("c")]),
        op("r", "TensorCopy", ins=[symbolic("c_set", 0, 0)], outs=[access("y")]),
        op("r", "NKIKernel", outs=[access("c")]),
    ],
)
def test_c3_nothing_reads_any_part(reader: Json) -> None:
    assert propagate(main(op("w", "Iota", outs=[access("c")], base=0, pattern=[[1, 16]]), reader)).status == "unchanged"


def test_c3_all_its_outputs_are_unread_internal_locations() -> None:
    for outs in (
        [access("c"), access("y")],
        [access("y")],
        [],
        [access("nowhere")],
        [access("c", memref_owner_func="k")],
    ):
        kernel = function("k", tensors("c"))
        document = main(op("w", "Activation", ins=[access("x")], outs=outs, func="Exp", acc="Idle"))
        outcome = propagate(document | {"nki_functions": {"functions": [kernel]}})
        assert outcome.status == "unchanged", outs
    document = main(
        op("w", "MaxIndexAndMatchReplace", ins=[access("x")], outs=[access("c"), access("d")], imm_value=0.0)
    )
    assert rows_of(propagate(document)) == ["Block1_noop: NoOp"]


@pytest.mark.parametrize("member", [{"pinned": True}, {"runtime_reserved": True}, {"alias": [["d", 1]]}])
def test_c3_not_aliased_pinned_or_reserved(member: Json) -> None:
    place = memory_set("c_set", "Internal", location("c", **member))
    document = main(copy("w", "x", "c"), names=("d",), more=[place])
    assert propagate(document).status == "unchanged"


def test_c3_an_instruction_that_reads_its_own_output_stays() -> None:
    document = main(op("w", "TensorTensor", ins=[access("c"), access("x")], outs=[access("c")], op="add"))
    assert propagate(document).status == "unchanged"


WAITS = {"sync_info": {"on_wait": []}}
ADDING = [
    ("Matmult", {"accumulation_flag": 2}), ("Matmult", {"start_tensor_calc": False, "stop_tensor_calc": True}),
    ("MatmultMx", {"accumulation_flag": 6}), ("DMACopy", {"cce_op": "add"}), ("GenericIndirectSave", {}),
    ("IndirectSaveAccumulate", {"op": "add"}),
]  # fmt: skip
WRITING = [
    ("Matmult", {"accumulation_flag": 3}), ("Matmult", {"start_tensor_calc": True, "stop_tensor_calc": True}),
    ("MatmultSparse", {}), ("DMACopy", {}), ("GenericIndirectSave", {"op": "bypass"}),
]  # fmt: skip


@pytest.mark.parametrize(("opcode", "keys"), ADDING)
def test_c3_what_is_added_to_by_an_instruction_that_stays_is_read(opcode: str, keys: Json) -> None:
    both = [access("x"), access("x")]
    rows = [fill("f", "c"), op("add", opcode, ins=both, outs=[access("c")], **keys, **WAITS)]
    assert propagate(main(*rows)).status == "unchanged"
    # one with two outputs stays for the other one's sake
    rows = [fill("f", "c"), op("add", opcode, ins=both, outs=[access("c"), access("d")], **keys), copy("r", "d", "y")]
    assert propagate(main(*rows)).status == "unchanged"
    # so it is when the last one that reads the sum goes
    rows = [fill("f", "c"), op("add", opcode, ins=both, outs=[access("c")], **keys, **WAITS), copy("r", "c", "d")]
    assert rows_of(propagate(main(*rows))) == ["f: Memset", f"add: {opcode}"]
    # one that stays for nothing but its sum goes, and then what it added to
    outcome = propagate(main(fill("f", "c"), op("add", opcode, ins=both, outs=[access("c")], **keys), op("n")))
    assert rows_of(outcome) == ["n: NoOp"]


@pytest.mark.parametrize(("opcode", "keys"), WRITING)
def test_c3_what_is_overwritten_is_not_read(opcode: str, keys: Json) -> None:
    both = [access("x"), access("x")]
    outcome = propagate(main(fill("f", "c"), op("put", opcode, ins=both, outs=[access("c")], **keys, **WAITS)))
    assert rows_of(outcome) == [f"put: {opcode}"]


@pytest.mark.parametrize(
    ("opcode", "keys"),
    [
        ("CollectiveCompute", {}), ("Rand", {}), ("Dropout", {}), ("GetRandState", {}), ("CustomOp", {}),
        ("InlineASMBytes", {}), ("DevicePrint", {}), ("LoadActFuncSet", {}), ("NewOpcode", {}), ("TensorSave", {}),
        ("DveReadAccumulator", {}), ("ReadActivationAccumulator", {}), ("GPSIMDSB2SB", {}), ("DMATrigger", {}),
        ("Activation", {"acc": "ZeroAccumulate"}), ("TensorTensor", {"acc": "AddAccumulate"}),
        ("Exponential", {"reduce_cmd": "ZeroAccumulate"}), ("CopyPredicated", {"accumulator_cmd": "AddAccumulate"}),
        ("RangeSelect", {}), ("Memset", {"mode": "Random"}), ("Memset", {}),
        ("TensorCopy", {"sync_info": {"on_wait": []}}),
        ("TensorCopy", {"target": "Block1"}), ("DMACopy", {"remote_notification": [1]}),
        ("IndirectLoad", {"runtime_semaphore_wait_value": 1}), ("NoOp", {}),
    ],
)  # fmt: skip
def test_c3_side_effects_stay(opcode: str, keys: Json) -> None:
    assert propagate(main(op("w", opcode, ins=[access("x")], outs=[access("c")], **keys))).status == "unchanged"


@pytest.mark.parametrize(
    ("opcode", "keys"),
    [
        ("Activation", {"acc": "Idle"}), ("Activation", {}), ("RangeSelect", {"reduce_cmd": "Idle"}), ("DMACopy", {}),
        ("TensorCopy", {"sync_info": {}}), ("Load", {}), ("IndirectLoad", {"runtime_semaphore_wait_value": 0}),
    ],
)  # fmt: skip
def test_c3_without_side_effects_they_go(opcode: str, keys: Json) -> None:
    document = main(op("w", opcode, ins=[access("x")], outs=[access("c")], **keys), op("n"))
    assert rows_of(propagate(document)) == ["n: NoOp"]


def test_c3_a_register_is_an_output_that_somebody_may_read() -> None:
    out = {"kind": "register_access", "dtype": "int32", "regref": "r"}
    document = main(op("w", "TensorReduce", ins=[access("x")], outs=[out]), more=[register("r")])
    assert propagate(document).status == "unchanged"


def test_c3_n14_edges_are_bridged() -> None:
    rows = [
        op("p"),
        op("q"),
        copy("a", "x", "c", dependencies=[["p", "Flow"], "q", ["p", "Anti"]]),
        copy("b", "c", "d", dependencies=[["a", "Flow"]]),
        op("y", dependencies=["q", ["b", "Anti"], ["p", "Ordered"]]),
        op("z", dependencies=[["b", "Output"]], loop_carried_dependencies=[["a", "Flow", [2]]]),
        op("w", dependencies=["b"]),
    ]
    doc = propagate(main(*rows)).doc
    assert row(doc, "y")["dependencies"] == ["q", ["p", "Anti"], ["q", "Anti"], ["p", "Ordered"]]
    assert row(doc, "z")["dependencies"] == [["p", "Output"], ["q", "Output"]]
    assert row(doc, "z")["loop_carried_dependencies"] == [["p", "Flow", [2]], ["q", "Flow", [2]]]
    assert row(doc, "w")["dependencies"] == ["p", "q"]


def test_c3_n14_edges_on_what_depends_on_nothing_go_with_their_key() -> None:
    rows = [copy("a", "x", "c"), op("y", dependencies=[["a", "Flow"]]), op("z", dependencies=["a", "y"])]
    doc = propagate(main(*rows)).doc
    assert "dependencies" not in row(doc, "y")
    assert row(doc, "z")["dependencies"] == ["y"]


def test_c3_n14_loop_carried_edges_keep_their_extras() -> None:
    rows = [
        op("p"),
        copy("a", "x", "c", loop_carried_dependencies=[["p", "Flow", [3]]]),
        op("y", dependencies=[["a", "Anti"]]),
    ]
    made = row(propagate(main(*rows)).doc, "y")
    assert "dependencies" not in made
    assert made["loop_carried_dependencies"] == [["p", "Anti", [3]]]


def test_c3_n14_u7_bridged_unroll_edges_have_an_index_for_each_loop_around_what_they_are_on() -> None:
    inner = loop("M", "j", (0, 2, 1), copy("b", "x", "c", dependencies=["a"]))
    y = op("y", unroll_dependencies=[["b", "Flow", [axis("i"), affine("i")]]])
    made = row(propagate(main(loop("L", "i", (0, 2, 1), op("a"), inner, y))).doc, "L")
    assert made["blocks"][0]["instructions"][-1]["unroll_dependencies"] == [["a", "Flow", [axis("i")]]]


def test_c3_names_of_what_is_gone_stay_where_they_are_mere_names() -> None:
    waits = {"on_wait": [{"from": "a", "id": 1}]}
    doc = propagate(
        main(copy("a", "x", "c"), op("y", sync_info=waits), op("h", "BranchHint", associate_branch="a"))
    ).doc
    assert row(doc, "y")["sync_info"] == waits
    assert row(doc, "h")["associate_branch"] == "a"


# C4, C5


def test_c4_to_the_fixpoint_with_a_note_that_counts() -> None:
    rows = [
        fill("m", "c", ONE),
        select("c", "x", "d", out="e"),
        copy("k", "c", "y"),
        copy("a", "e", "d"),
        copy("z", "e", "y"),
    ]
    outcome = propagate(main(*rows))
    assert rows_of(outcome) == [f"s{COPY}: GenericCopy", f"k{MEMSET}: Memset", "z: TensorCopy"]
    (note,) = outcome.messages
    assert (note.severity, note.code) == ("note", "constants_propagated")
    assert note.message == "rewritten: 1 to `Memset`, 1 to `GenericCopy`; removed: 2"


def test_c4_emptied_blocks_get_a_noop() -> None:
    blocks = [block("B", copy("a", "x", "c")), block("E"), block("F", loop("L", "i", (0, 2, 1), copy("b", "x", "c")))]
    document = module(function("main", tensors("c"), blocks=blocks))
    made = propagate(document).doc["functions"][0]["blocks"]
    noop = {"engine": "Unassigned", "ins": [], "name": "B_noop", "opcode": "NoOp", "outs": []}
    assert made[0]["instructions"] == [noop]
    assert made[1]["instructions"] == []
    assert made[2]["instructions"][0]["blocks"][0]["instructions"] == [noop | {"name": "L_body_noop"}]


def test_c4_the_noops_name_is_free() -> None:
    blocks = [block("B", copy("a", "x", "c")), block("D", op("B_noop"))]
    document = module(function("main", tensors("c"), blocks=blocks))
    assert rows_of(propagate(document)) == ["B_noop.1: NoOp", "B_noop: NoOp"]


def test_c4_all_functions_are_looked_at_and_a_failure_leaves_the_module_as_it_was() -> None:
    good = function("other", tensors("c"), fill("m", "c"), copy("z", "c", "y"))
    assert propagate(module(function("main", []), kernels=[good])).status == "changed"
    bad = function("k", tensors("c"), fill("m", "c", 5), select("c", "x", "x"))
    document = module(good, kernels=[bad])
    outcome = run_pass("constant_propagate", document)
    assert (outcome.status, outcome.doc) == ("failed", document)
    assert outcome.codes == [("error", "invalid_select_predicate")]


def test_c5_by_default_nothing_changes_under_nan_and_infinity() -> None:
    module_ = air.build.module(arch="gen3")
    main_ = module_.function("main")
    x, y = main_.input("x", [4, 8]), main_.output("y", [4, 8])
    zeros, ones = main_.sb("zeros", [4, 8]), main_.sb("ones", [4, 8])
    main_.add("Memset", [], [zeros], mode="Const", constant=0)
    main_.add("Memset", [], [ones], mode="Const", constant=ONE)
    first, second = main_.sb("first", [4, 8]), main_.sb("second", [4, 8])
    main_.add("TensorTensor", [x, zeros], [first], op="logical_and")
    main_.add("TensorTensor", [ones, x], [second], op="logical_or")
    main_.add("TensorTensor", [first, second], [y], op="add")
    before = module_.ir()
    result = air.passes.constant_propagate(before)
    assert result.ir.instructions["opcode"].to_list() == ["Memset", "Memset", "TensorTensor"]
    assert air.equivalent(before, result.ir, nonfinite=True).ok


def test_n3_kernels_are_propagated_in_their_copies() -> None:
    kernel = function(
        "k",
        [memory_set("a_set", "ExternalInput"), memory_set("b_set", "ExternalOutput"), memory_set("c_set")],
        fill("m", "c", ONE),
        op("s", "Select", ins=[access(name) for name in ("c", "a", "c")], outs=[access("b")]),
    )
    call = op("C", "NKIKernel", func="k", func_args={"a": "x"}, func_outs={"b": "y"}, engine="DVE")
    outcome = run_pass("inline_nki_kernel", module(function("main", tensors(), call), kernels=[kernel]))
    assert rows_of(outcome) == [f"C_s{COPY}: GenericCopy"]
    (note,) = outcome.messages
    assert (note.code, note.function) == ("constants_propagated", "k")
    assert outcome.ir.instructions["original_name"].to_list() == ["s"]


def test_n3_a_body_that_is_dead_leaves_nothing() -> None:
    kernel = function("k", [memory_set("a_set", "ExternalInput"), memory_set("c_set")], copy("w", "a", "c"))
    call = op("C", "NKIKernel", func="k", func_args={"a": "x"}, dependencies=["p"])
    document = module(function("main", tensors(), op("p"), call, op("z", dependencies=["C"])), kernels=[kernel])
    outcome = run_pass("inline_nki_kernel", document)
    assert rows_of(outcome) == ["p: NoOp", "z: NoOp"]
    assert row(outcome.doc, "z")["dependencies"] == ["p"]


def test_n3_a_bad_predicate_in_a_kernel_fails_the_module() -> None:
    kernel = function("k", tensors("c"), fill("m", "c", 5), select("c", "x", "x"))
    call = op("C", "NKIKernel", func="k", func_args={"x": "x"}, func_outs={"y": "y"})
    message = refused("inline_nki_kernel", module(function("main", tensors(), call), kernels=[kernel]))
    assert (message.code, message.function, message.instruction) == ("invalid_select_predicate", "k", "s")


def test_n3_assume_finite_is_an_option_of_inlining() -> None:
    kernel = function("k", tensors("c"), fill("m", "c"), logical("or", "c", "x"))
    call = op("C", "NKIKernel", func="k", func_args={"x": "x"}, func_outs={"y": "y"})
    document = module(function("main", tensors(), call), kernels=[kernel])
    assert rows_of(run_pass("inline_nki_kernel", document)) == ["C_m: Memset", "C_t: TensorTensor"]
    assert rows_of(run_pass("inline_nki_kernel", document, assume_finite=True)) == [f"C_t{COPY}: GenericCopy"]
