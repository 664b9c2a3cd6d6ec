"""What wrong arguments and odd documents get: a row or an `ArrowIRError`, never another exception."""

import json
from typing import Any

import pytest

import arrowir as air
from tests.oracle.builders import access, call, function, memory_set, module, op, sb_set
from tests.single_pass import read

BATCH = read(module(function("main", [], op("a"))))


@pytest.mark.parametrize("wanted", [[1.5], [True, False], ["m"], [1], [-1]])
def test_a_selection_is_by_ids_or_by_a_mask_of_the_right_length(wanted: Any) -> None:
    with pytest.raises(air.OptionError, match="module"):
        BATCH.select(wanted)


def test_a_module_that_is_not_there() -> None:
    for ask in (lambda: BATCH.to_json(1), lambda: BATCH.text(7), lambda: BATCH.module_id("nothing")):
        with pytest.raises(air.OptionError, match="module"):
            ask()
    with pytest.raises(air.OptionError, match="no batch"):
        air.concat([])


@pytest.mark.parametrize(
    "make",
    [
        lambda: air.passes.Unroll(shard_id="x"),
        lambda: air.passes.InlineNkiKernel(allocated="x"),
        lambda: air.passes.RuntimeMemoryReservation(usable_sbuf_bytes="x"),
    ],
)
def test_options_of_a_pass_are_checked_when_it_is_made(make: Any) -> None:
    with pytest.raises(air.OptionError, match=r"option `\w+` of pass `\w+` takes .*, got 'x'"):
        make()


def test_a_function_in_a_pipeline_returns_the_modules_that_it_got() -> None:
    two = air.concat([air.read_json(BATCH.to_json(), name=name) for name in ("a", "b")])
    with pytest.raises(air.OptionError, match="same modules in the same order"):
        air.run(two, passes=[lambda ir: ir.select([1, 0])])


def test_terms_that_are_no_list_are_a_bad_expression() -> None:
    base = {"kind": "AffExprKind", "terms": 5, "c": 0}
    ir = read(module(function("main", [], op("a", "Iota", base=base, pattern=[[1, 8]]))))
    assert [m.code for m in air.passes.unroll(ir).messages] == ["bad_expression"]


@pytest.mark.parametrize("key", ["sb_buf_shape", "psum_buf_shape"])
def test_f3_shapes_of_scratchpads_are_lists(key: str) -> None:
    document = module(function("main", [], call("C", **{key: "x"})), kernels=[function("k", [], op("K"))])
    with pytest.raises(air.FormatError, match=rf"{key}.*expected a list"):
        air.read_json(json.dumps(document).encode())


def test_n4_sizes_are_compared_exactly_beyond_64_bits() -> None:
    actual = memory_set("x_set", "ExternalInput")
    actual["memorylocations"][0].update(name="x", dims=[2**32, 2**32])
    formal = memory_set("a_set", "ExternalInput")
    formal["memorylocations"][0].update(name="a", dims=[2**33, 2**32])
    caller = function("main", [actual], call("C", ins=[access("x")]))
    ir = read(module(caller, kernels=[function("k", [formal], op("K"))]))
    assert [m.code for m in air.passes.inline_nki_kernel(ir).messages] == ["parameter_size_mismatch"]


def test_m5_a_set_that_is_joined_has_a_dtype_afterwards() -> None:
    empty = {"Skind": "memory_location_set", "name": "EvalAccelReservedLoc_set", "kind": "Internal",
             "memorylocations": []}  # fmt: skip
    after = air.passes.runtime_memory_reservation(read(module(function("main", [empty], op("a")))))
    assert after.status.to_list() == ["changed"]
    (storage,) = json.loads(air.read_json(after.ir.to_json()).to_json())["functions"][0]["allocations"]
    assert list(storage) == ["Skind", "name", "kind", "memorylocations", "allocated", "dtype", "tensorId2MemLocSize"]
    assert storage["dtype"] == "uint8"


@pytest.mark.parametrize("query", ["select interval 1 day", "selec", "select '\ud800'", None, ""])
def test_a_query_that_cannot_be_answered(query: Any) -> None:
    with pytest.raises(air.ArrowIRError):
        BATCH.sql(query)


def test_a_long_path_is_shortened_in_a_message() -> None:
    deep: Any = "x"
    for _ in range(400):
        deep = [deep]
    error = air.FormatError("wrong", json_path="a" + "[0]" * 400)
    assert len(str(error)) < 400
    assert " ... " in str(error)


def test_sums_that_leave_64_bits_are_told_exactly() -> None:
    kernel = function("k", [sb_set("t_set", 2**63 - 1)], op("K"))
    (message,) = air.passes.inline_nki_kernel(read(module(function("main", [], call("C")), kernels=[kernel]))).messages
    assert message.code == "sb_overflow"
    assert str(2**63 - 1) in message.message
