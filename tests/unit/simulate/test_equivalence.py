"""`air.equivalent`: two versions of a module on the same inputs, byte by byte."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import polars as pl
import pytest

import arrowir as air
from arrowir import build
from arrowir.ir import IR
from arrowir.simulate.contents import LARGEST, SMALLEST, Contents, parameters
from arrowir.simulate.equivalence import Comparison, Equivalence
from arrowir.simulate.machine import Machine
from arrowir.simulate.program import Program
from arrowir.testing.executable import document

f32 = np.float32


def scalar(op: str, constant: float) -> dict[str, Any]:
    return {"op0": op, "const0": constant, "reverse0": False, "op1": "bypass", "const1": 0.0, "reverse1": False}


def scaled(factor: float = 2.0, dtype: str = "float32", *, rows: int = 2, name: str = "main", whole: bool = True) -> IR:
    """``y = factor * x``, of the second row alone when not `whole`."""
    made = build.module()
    f = made.function(name)
    x, y = f.input("x", (2, 3), dtype), f.output("y", (2, 3), dtype)
    tile = f.sb("tile", (2, 3), dtype)
    f.add("Load", [x], [tile], name="load")
    f.add("TensorScalar", [tile], [tile], name="scale", **scalar("mult", factor))
    f.add("Save", [tile if whole else tile[1:2]], [y if whole else y[1:2]], name="save")
    return made.ir("m")


def only(found: Equivalence) -> Comparison:
    (row,) = found.comparisons
    return row


def compared(before: IR, after: IR, **options: Any) -> Comparison:
    return only(air.equivalent(before, after, trials=1, **options))


# -- what comes of it ---------------------------------------------------------------------------------------------


def test_equal_modules_have_a_row_per_trial() -> None:
    found = air.equivalent(scaled(), scaled(), trials=4)
    assert found.ok
    assert found.statuses == {0: "equal"}
    assert [(c.trial, c.status, c.steps_before, c.steps_after) for c in found.comparisons] == [
        (trial, "equal", 3, 3) for trial in range(4)
    ]
    assert repr(found) == "<arrowir.Equivalence: modules: 1 equal>"


def test_a_difference_names_output_element_values_and_instruction() -> None:
    x = np.arange(1, 7, dtype=f32).reshape(2, 3)
    made = build.module()
    f = made.function("main")
    a, y, tile = f.input("x", (2, 3)), f.output("y", (2, 3)), f.sb("tile", (2, 3))
    f.add("Load", [a], [tile])
    f.add("TensorScalar", [tile], [tile], **scalar("mult", 2.0))
    f.add("Save", [tile], [y], name="save")
    f.add("Memset", [], [y[1:2, 1:2]], name="spoil", mode="Const", constant=0x40A00000)
    row = compared(scaled(), made.ir("m"), inputs={"x": x})
    assert (row.module, row.module_id, row.trial, row.status, row.function) == ("m", 0, 0, "different", "main")
    assert (row.output, row.element, row.before, row.after) == ("y", (1, 1), "10.0", "5.0")
    assert (row.instruction, row.opcode, row.instruction_id, row.call_chain) == ("spoil", "Memset", 3, ())
    assert row.reason == "`y` differs first at [1, 1]: 10.0 before, 5.0 after; written last by `spoil`"


def test_the_frame_has_a_row_per_module_and_trial() -> None:
    before = air.concat([scaled(), scaled(), scaled()])
    after = air.concat([scaled(), scaled(3.0), scaled()])
    found = air.equivalent(before, after, trials=2)
    assert not found.ok
    assert found.statuses == {0: "equal", 1: "different", 2: "equal"}
    frame = found.frame
    assert frame.height == 6
    assert frame.filter(status="different")["module_id"].to_list() == [1, 1]
    assert frame.schema["element"] == pl.List(pl.Int64)
    assert air.equivalent(before, after, modules=[2, 0]).statuses == {2: "equal", 0: "equal"}
    assert air.equivalent(before, after, modules=[]).frame.schema == frame.schema
    assert "1 different; `y` differs first" in repr(found)


def test_an_error_in_the_second_version_alone_is_a_difference() -> None:
    made = build.module()
    f = made.function()
    x, y = f.input("x", (2, 3)), f.output("y", (2, 3))
    f.add("Load", [f.sb("nothing", (2, 3))], [y], name="bad")
    del x
    row = compared(scaled(name="sg0000"), made.ir("m"))
    assert (row.status, row.instruction, row.opcode) == ("different", "bad", "Load")
    assert row.reason is not None
    assert row.reason.startswith("it cannot be executed any more: `in 0` reads 6 of 6 elements of `nothing`")


def test_what_cannot_be_executed_is_neither_equal_nor_different() -> None:
    made = build.module()
    f = made.function()
    f.add("BrandNewOp", [f.input("x", (2, 3))], [f.output("y", (2, 3))], name="new")
    ir = made.ir("m")
    found = air.equivalent(ir, ir, trials=1)
    assert not found.ok
    row = only(found)
    assert (row.status, row.function, row.instruction, row.opcode) == ("not_executable", "sg0000", "new", "BrandNewOp")
    assert repr(found) == "<arrowir.Equivalence: modules: 1 not executable>"


def test_nothing_that_a_caller_sees_is_nothing_to_compare() -> None:
    made = build.module()
    f = made.function()
    f.add("Memset", [], [f.sb("tile", (2, 3))], mode="Const", constant=0)
    row = compared(made.ir(), made.ir())
    assert (row.status, row.reason) == (
        "not_executable",
        "it writes nothing that a caller sees: there is nothing to compare",
    )
    made.function("f").output("y", (2, 3))
    assert compared(made.ir(), made.ir()).status == "not_executable"
    empty = build.module()
    empty.kernel("k").output("y", (2, 3))
    assert compared(empty.ir(), empty.ir()).reason == "it has no function that is no kernel"


def test_elements_that_only_one_version_writes_are_a_difference() -> None:
    assert compared(scaled(whole=False), scaled(whole=False)).status == "equal"
    row = compared(scaled(whole=False), scaled())
    assert (row.output, row.element, row.instruction) == ("y", (0, 0), "save")
    row = compared(scaled(), scaled(whole=False))
    assert (row.element, row.instruction) == ((0, 0), None)
    assert row.reason is not None
    assert row.reason.endswith("nothing writes it after")


def test_inputs_that_are_written_are_compared_too() -> None:
    def module(constant: int) -> IR:
        made = build.module()
        f = made.function()
        x, y = f.input("x", (2, 3)), f.output("y", (2, 3))
        f.add("Load", [x], [y])
        f.add("Memset", [], [x[0:1]], name="set", mode="Const", constant=constant)
        return made.ir()

    assert compared(module(0), module(0)).status == "equal"
    row = compared(module(0), module(0x3F800000))
    assert (row.output, row.element, row.before, row.after, row.instruction) == ("x", (0, 0), "0.0", "1.0", "set")


def test_values_that_look_alike_are_shown_with_their_bits() -> None:
    def module(constant: int) -> IR:
        made = build.module()
        f = made.function()
        f.add("Memset", [], [f.output("y", (1, 1), "bfloat16")], mode="Const", constant=constant)
        return made.ir()

    row = compared(module(0x7FC0), module(0x7FC1))
    assert (row.before, row.after) == ("nan (0x7fc0)", "nan (0x7fc1)")
    assert compared(module(0x7FC0), module(0x7FC1), tolerance=0.1).status == "equal"
    assert compared(module(0x0000), module(0x8000)).after == "-0.0"


def test_a_tolerance_is_for_floats() -> None:
    before, after = scaled(1.0), scaled(1.0 + 2**-10)
    assert compared(before, after).status == "different"
    assert compared(before, after, tolerance=1e-4).status == "different"
    assert compared(before, after, tolerance=1e-2).status == "equal"

    def integers(constant: int) -> IR:
        made = build.module()
        f = made.function()
        f.add("Memset", [], [f.output("y", (1, 2), "int32")], mode="Const", constant=constant)
        return made.ir()

    row = compared(integers(7), integers(8), tolerance=100)
    assert (row.status, row.before, row.after) == ("different", "7", "8")


@pytest.mark.parametrize(
    ("dtype", "shown"),
    [("float8_e8m0fnu", ("0x01", "0x02")), ("uint8", ("1", "2")), ("float4_e2m1fn_x4", ("0x0001", "0x0002"))],
)
def test_bits_are_shown_as_bits(dtype: str, shown: tuple[str, str]) -> None:
    def module(constant: int) -> IR:
        made = build.module()
        f = made.function()
        f.add("Memset", [], [f.output("y", (1, 2), dtype)], mode="Const", constant=constant)
        return made.ir()

    row = compared(module(1), module(2))
    assert (row.before, row.after) == shown


# -- call chains --------------------------------------------------------------------------------------------------


def calls(factor: float) -> IR:
    """Two levels of kernels; the inner one multiplies."""
    made = build.module()
    inner = made.kernel("inner")
    a, b = inner.input("a", (2, 3), kind="Input"), inner.output("b", (2, 3), kind="Output")
    inner.add("TensorScalar", [a], [b], name="multiply", **scalar("mult", factor))
    outer = made.kernel("outer")
    c, d = outer.input("c", (2, 3), kind="Input"), outer.output("d", (2, 3), kind="Output")
    outer.call(inner, {a: c}, {b: d}, name="deep")
    f = made.function()
    f.call(outer, {c: f.input("x", (2, 3))}, {d: f.output("y", (2, 3))}, name="call")
    return made.ir("m")


def test_the_call_chain_of_what_is_executed_and_of_what_was_inlined() -> None:
    row = compared(calls(2.0), calls(3.0))
    assert (row.instruction, row.call_chain) == ("multiply", ("call", "deep"))
    assert row.reason is not None
    assert row.reason.endswith("written last by `multiply` (reached through `call` > `deep`)")
    inlined = air.passes.inline_nki_kernel(calls(3.0)).ir
    row = compared(calls(2.0), inlined)
    assert (row.instruction, row.call_chain) == ("call_deep_multiply", ("call", "deep"))
    assert air.equivalent(calls(3.0), inlined).ok


def test_the_instruction_that_wrote_last_is_told_also_of_scattered_writes() -> None:
    def module(value: int) -> IR:
        made = build.module()
        f = made.function()
        table, x = f.output("table", (4, 4)), f.input("x", (1, 4))
        index = f.sb("index", (1, 1), "int32")
        f.add("Memset", [], [table], name="clear", mode="Const", constant=0)
        f.add("Memset", [], [index], mode="Const", constant=value)
        f.add("IndirectSave", [x], [table], indirection=[index], name="scatter")
        return made.ir()

    row = compared(module(4), module(8))
    assert (row.element, row.instruction) == ((1, 0), "clear")
    row = compared(module(8), module(4))
    assert (row.element, row.instruction) == ((1, 0), "scatter")


# -- functions ----------------------------------------------------------------------------------------------------


def two_functions(first: float, second: float, *, names: tuple[str, str] = ("aux", "main")) -> IR:
    made = build.module()
    for name, factor in zip(names, (first, second), strict=True):
        f = made.function(name)
        f.add("TensorScalar", [f.input("x", (2, 3))], [f.output("y", (2, 3))], name=name, **scalar("mult", factor))
    return made.ir("m")


def test_all_functions_that_nothing_calls_are_compared() -> None:
    assert compared(two_functions(2, 3), two_functions(2, 3)).steps_before == 2
    row = compared(two_functions(2, 3), two_functions(4, 3))
    assert (row.function, row.instruction) == ("aux", "aux")
    assert compared(two_functions(2, 3), two_functions(2, 4)).function == "main"


def test_functions_of_one_name_are_told_apart() -> None:
    names = ("f", "f")
    assert compared(two_functions(2, 3, names=names), two_functions(2, 3, names=names)).status == "equal"
    assert compared(two_functions(2, 3, names=names), two_functions(2, 5, names=names)).status == "different"


def test_a_function_or_a_parameter_that_is_gone_is_a_difference() -> None:
    row = compared(two_functions(2, 3), two_functions(2, 3, names=("other", "main")))
    assert (row.status, row.reason) == ("different", "the function `aux` is not there any more")
    made = build.module()
    f = made.function("main")
    f.add("Memset", [], [f.output("z", (2, 3))], mode="Const", constant=0)
    row = compared(scaled(), made.ir())
    assert (row.output, row.reason) == ("x", "the input `x` is only before")
    row = compared(scaled(), scaled(dtype="bfloat16"))
    assert (row.status, row.reason) == (
        "different",
        "the parameters differ: `y` has 24 bytes of `float32` before and 12 of `bfloat16` after",
    )


# -- inputs -------------------------------------------------------------------------------------------------------


def test_given_inputs_are_those_of_both() -> None:
    square = build.module()
    f = square.function("main")
    x, y = f.input("x", (2, 3)), f.output("y", (2, 3))
    f.add("TensorTensor", [x, x], [y], op="mult")
    before, after = square.ir(), scaled()
    assert compared(before, after).status == "different"
    assert compared(before, after, inputs={"x": np.full((2, 3), 2, f32)}).status == "equal"
    both = air.concat([before, before])
    inputs = [{"x": np.full((2, 3), 2, f32)}, {"x": np.full((2, 3), 3, f32)}]
    assert air.equivalent(both, air.concat([after, after]), inputs, trials=1).statuses == {0: "equal", 1: "different"}


def test_where_nothing_is_drawn_one_trial_is_enough() -> None:
    given = {"x": np.ones((2, 3), f32), "y": np.ones((2, 3), f32)}
    assert len(air.equivalent(scaled(), scaled(), given, trials=5).comparisons) == 1
    assert len(air.equivalent(scaled(), scaled(), {"x": given["x"]}, trials=5).comparisons) == 5


def drawn(dtype: str, trial: int = 0, *, nonfinite: bool = False, seed: int = 0) -> Any:
    """What an input of a type is given."""
    made = build.module()
    f = made.function()
    f.input("x", (64, 64), dtype)
    program = Program(made.ir(), 0)
    machine = Machine(program, program.entry(None))
    Contents(seed, trial, nonfinite=nonfinite).fill(machine, {})
    location = parameters(program, machine.frame.function)["input", "x", 0]
    return machine.content(machine.touch(machine.frame, location))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float8e4", "float8e3", "float8e5", "float8_e4m3fn"]
)
def test_random_floats_are_finite_and_of_moderate_size(dtype: str) -> None:
    for trial in range(4):
        values = drawn(dtype, trial).astype(np.float64)
        assert np.isfinite(values).all()
        assert np.abs(values).max() <= LARGEST
        assert np.abs(values).min() >= SMALLEST * 0.9
        assert (values > 0).all() == (trial % 2 == 1)
        assert len(np.unique(values)) > 20


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "uint32", "int64", "uint64"])
def test_random_integers_are_in_range(dtype: str) -> None:
    values = drawn(dtype)
    assert (values >= 0).all()
    assert 100 < values.max() < 128


@pytest.mark.parametrize("dtype", ["float4_e2m1fn_x4", "float8_e4m3fn_x4", "float8_e5m2_x4", "float8_e8m0fnu", "bool"])
def test_packed_types_get_bits_that_mean_something(dtype: str) -> None:
    held = drawn(dtype)
    parts = held.reshape(-1).view(np.uint8)
    if dtype == "float8_e4m3fn_x4":
        assert np.isfinite(parts.view(ml_dtypes.float8_e4m3fn).astype(f32)).all()
    elif dtype == "float8_e5m2_x4":
        assert np.isfinite(parts.view(ml_dtypes.float8_e5m2).astype(f32)).all()
    elif dtype == "float8_e8m0fnu":
        assert (parts < 0xFF).all()
    elif dtype == "bool":
        assert set(parts.tolist()) == {0, 1}
    assert len(np.unique(parts)) > 1


def test_nan_and_infinity_come_on_request_alone() -> None:
    values = drawn("bfloat16", nonfinite=True).astype(f32)
    assert np.isnan(values).any()
    assert np.isposinf(values).any()
    assert np.isneginf(values).any()
    assert np.isfinite(values).mean() > 0.9
    assert compared(scaled(), scaled(), nonfinite=True).status == "equal"


def test_draws_depend_on_seed_trial_and_name_alone() -> None:
    first = drawn("float32")
    assert np.array_equal(first, drawn("float32"))
    assert not np.array_equal(first, drawn("float32", trial=2))
    assert not np.array_equal(first, drawn("float32", seed=1))


def indexed(width: int) -> IR:
    """Elements by number, of rows of a width."""
    made = build.module()
    f = made.function()
    data, index = f.sb("data", (2, width), kind="ExternalInput"), f.sb("index", (2, 3), "uint32", kind="ExternalInput")
    f.add("Gather", [data, index], [f.output("y", (2, 3))])
    return made.ir()


@pytest.mark.parametrize("width", [128, 8, 2])
def test_integers_are_as_small_as_a_module_needs_them(width: int) -> None:
    assert compared(indexed(width), indexed(width)).status == "equal"


def test_the_first_reason_is_told_where_no_integers_will_do() -> None:
    row = compared(indexed(1), indexed(1))
    assert row.status == "not_executable"
    assert row.reason is not None
    assert "index" in row.reason or "element" in row.reason


def test_constants_without_a_file_are_drawn_and_not_compared() -> None:
    made = build.module()
    f = made.function()
    c = f.dram("c", (2, 3), kind="Const", set_members={"file": "c.npy"})
    f.add("Load", [c], [f.output("y", (2, 3))])
    assert compared(made.ir(), made.ir()).status == "equal"


def test_options_of_the_simulator_are_passed_on() -> None:
    made = build.module()
    f = made.function()
    x, y = f.input("x", (2, 3)), f.output("y", (2, 3), "int32")
    f.add("TensorCopy", [x], [y])
    ir = made.ir()
    assert compared(ir, ir).status == "not_executable"
    assert compared(ir, ir, readings={"float_to_int": "nearest"}).status == "equal"
    assert compared(scaled(), scaled(), max_steps=2).status == "not_executable"


def test_a_second_version_that_does_not_end_is_stopped() -> None:
    made = build.module()
    f = made.function("main")
    f.add("TensorScalar", [f.input("x", (2, 3))], [f.output("y", (2, 3))], **scalar("mult", 2.0))
    f.branch("Block1")
    row = compared(scaled(), made.ir())
    assert row.status == "different"
    assert row.reason is not None
    assert "instructions have been executed" in row.reason


# -- arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ir: air.equivalent(ir, air.concat([ir, ir])), "`before` has 1 modules and `after` has 2"),
        (lambda ir: air.equivalent("x", ir), "`before` takes an `arrowir.IR`"),
        (lambda ir: air.equivalent(ir, None), "`after` takes an `arrowir.IR`"),
        (lambda ir: air.equivalent(ir, ir, trials=0), "`trials` takes a number of at least 1, got 0"),
        (lambda ir: air.equivalent(ir, ir, seed=-1), "`seed` takes a number of at least 0"),
        (lambda ir: air.equivalent(ir, ir, tolerance=-1), "`tolerance` takes a number of at least 0"),
        (lambda ir: air.equivalent(ir, ir, tolerance="x"), "`tolerance` takes a number of at least 0"),
        (lambda ir: air.equivalent(ir, ir, modules=[1]), "module"),
        (lambda ir: air.equivalent(ir, ir, modules=3), "`modules` takes ids of modules"),
        (lambda ir: air.equivalent(ir, ir, {"z": np.ones(3)}), "`z` is no location of a function of `m`"),
        (lambda ir: air.equivalent(ir, ir, {"x": np.ones((2, 3))}), "`x` holds `float32`, and was given float64"),
        (lambda ir: air.equivalent(ir, ir, [{}, {}]), "`inputs` holds 2 mappings for 1 modules"),
        (lambda ir: air.equivalent(ir, ir, 3), "`inputs` takes arrays by name, or a mapping"),
        (lambda ir: air.equivalent(ir, ir, readings={"mood": "x"}), "`mood` is no undecided case"),
        (lambda ir: air.equivalent(ir, ir, progress=3), "`progress` takes a function or None"),
    ],
)
def test_wrong_arguments_are_told(call: Any, message: str) -> None:
    with pytest.raises(air.OptionError, match=message):
        call(scaled())


WRONG: list[Any] = [
    None,
    True,
    -1,
    2.5,
    float("nan"),
    "no",
    b"no",
    object(),
    len,
    [3],
    [None],
    (1, 2),
    {"a": 1},
    {3: {}},
]


@pytest.mark.parametrize(
    "name", ["inputs", "trials", "seed", "tolerance", "modules", "shard_id", "readings", "max_steps", "progress"]
)
def test_no_bare_error_of_python_leaves_it(name: str) -> None:
    refused = 0
    for value in WRONG:
        try:
            air.equivalent(scaled(), scaled(), **{"trials": 1, name: value})
        except air.OptionError:
            refused += 1
        except TypeError:
            assert name == "progress"  # a function that takes something else
    assert refused >= 9


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    both = air.concat([scaled(), scaled()])
    air.equivalent(both, both, trials=1, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 2), (1, 2)]


def test_modules_of_a_batch_are_what_they_are_alone() -> None:
    """References are grouped by module: those of one must not be taken for another's."""
    alone = [air.read_json(json.dumps(document(seed)).encode(), name=f"m{seed}") for seed in range(4)]
    batch = air.concat(alone)
    for seed, ir in enumerate(alone):
        assert air.equivalent(ir, batch.select([seed]), trials=1).ok
    assert air.equivalent(batch, batch.select(range(4)), trials=1).ok
