"""`air.simulate`: inputs and outputs, what it says when something is wrong, and looking into a run."""

import pickle
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import polars as pl
import pytest

import arrowir as air
from arrowir import build
from arrowir.diagnostics import OptionError, SimulationError
from arrowir.simulate.readings import READINGS
from arrowir.vocabulary import OPCODES
from tests.simulated import HELD, Bench

f32 = np.float32
SAMPLES = Path(__file__).parents[3] / "data" / "samples"
rng = np.random.default_rng(9)


def scale_add() -> air.IR:
    return air.read(str(SAMPLES / "klr009" / "scale_add.bir.json"))


# -- samples ----


def test_samples_compute_what_their_sources_say() -> None:
    a = rng.standard_normal((128, 512)).astype(f32)

    def run(name: str, **inputs: np.ndarray) -> np.ndarray:
        return air.simulate(air.read(str(SAMPLES / "klr009" / f"{name}.bir.json")), inputs)["out"]

    assert np.array_equal(run("scale_add", a=a), a * f32(2.5) + f32(1))
    half = a.astype(np.float16)
    assert np.array_equal(run("dtypes_f16", a=half), (half.astype(f32) * f32(0.1)).astype(np.float16))
    assert np.array_equal(run("ptr_two", a=a[:32]), a[:32])


def test_a_kernel_in_a_module() -> None:
    a = rng.standard_normal((128, 512)).astype(f32)
    found = air.simulate(air.read(str(SAMPLES / "bir_json_example.json")), {"input0": a})
    assert np.array_equal(found["output0"], a + f32(1))


def test_the_package_is_the_function() -> None:
    ir, a = scale_add(), {"a": np.ones((128, 512), f32)}
    assert np.array_equal(air.simulate.simulate(ir, a)["out"], air.simulate(ir, inputs=a, module_id=0)["out"])
    assert pickle.loads(pickle.dumps(air.simulate)) is air.simulate


def test_one_module_of_a_batch() -> None:
    ir = air.concat([air.read(str(SAMPLES / "bir_json_example.json")), scale_add()])
    found = air.simulate(ir, {"a": np.ones((128, 512), f32)}, module_id=1, watch="out", until="noop_test")
    assert found.content("a")[0, 0] == 1
    assert air.simulate(ir, {"a": np.ones((128, 512), f32)}, module_id=1)["out"][0, 0] == 3.5
    with pytest.raises(OptionError, match="module ids go from 0 to 1"):
        air.simulate(ir, {}, module_id=2)


# -- inputs and outputs ----


def test_an_input_that_is_read_and_was_not_given() -> None:
    with pytest.raises(
        SimulationError, match=r"`in 0` reads .* of `a` that were never written.*; the input `a` was not"
    ):
        air.simulate(scale_add())


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"b": np.ones((128, 512), f32)}, r"`b` is no location of `sg0000`; inputs: `a`, `out`"),
        ({"a": np.ones((128, 512))}, "`a` holds `float32`, and was given float64"),
        ({"a": np.ones((512, 128), f32)}, r"`a` has the shape \(128, 512\), and was given \(512, 128\)"),
        ({"a": np.ones(5, f32)}, r"was given \(5,\)"),
        ({"a": [["x"]]}, "was given <U1"),
        ({"a": [[1], [1, 2]]}, "`a` is no array: setting an array element with a sequence"),
        ({"a": np.ones((), f32)}, r"was given \(\)"),
        ({"a": np.ma.masked_less(np.zeros((128, 512), f32), 1)}, "`a` has masked elements"),
        ({"a": np.ones((128, 512), f32), "a_set": np.ones((128, 512), f32)}, "another of the inputs are one location"),
    ],
)
def test_inputs_that_do_not_fit(inputs: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        air.simulate(scale_add(), inputs)


def test_inputs_may_be_flat_named_by_their_set_and_are_not_changed() -> None:
    flat = rng.standard_normal(128 * 512).astype(f32)
    before = flat.copy()
    out = air.simulate(scale_add(), {"a_set": flat})["out"]
    assert np.array_equal(out.reshape(-1), flat * f32(2.5) + f32(1))
    assert np.array_equal(flat, before)
    strided = rng.standard_normal((512, 128)).astype(f32).T
    for array in (strided, strided.astype(">f4"), np.repeat(strided, 2, axis=1)[:, ::2]):
        assert np.array_equal(air.simulate(scale_add(), {"a": array})["out"], strided * f32(2.5) + f32(1))


@pytest.mark.parametrize("dtype", HELD)
def test_arrays_of_every_type(dtype: str) -> None:
    given = rng.integers(0, 9, (3, 5)).astype(f32).astype(HELD[dtype])
    bench = Bench()
    bench.add("TensorCopy", [bench.given("a", given)], [bench.output("out", (3, 5), dtype)])
    out = bench.run()["out"]
    assert out.dtype == given.dtype
    assert out.tobytes() == given.tobytes()


def test_bits_from_a_file_of_numpy(tmp_path: Path) -> None:
    given = rng.standard_normal((2, 3)).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "a.npy", given)
    bench = Bench()
    bench.add("TensorCopy", [bench.given("a", given)], [bench.output("out", (2, 3), "bfloat16")])
    bench.content["a"] = np.load(tmp_path / "a.npy")
    assert bench.run()["out"].tobytes() == given.tobytes()


def test_an_output_that_is_not_written_completely() -> None:
    bench = Bench()
    out = bench.output("out", (2, 4))
    bench.add("Memset", [], [out[:, :3]], mode="Const", constant=0)
    with pytest.raises(SimulationError, match="8 of 32 bytes of the output `out` were never written"):
        bench.run()
    bench.content["out"] = np.full((2, 4), 7, f32)
    assert bench.run()["out"].tolist() == [[0, 0, 0, 7]] * 2


def test_constants_come_from_files_beside_the_module(tmp_path: Path) -> None:
    module = build.module()
    main = module.function()
    weights = main.tensor("w", "DRAM", (1, 3), kind="Const", set_members={"file": "w.npy"})
    main.add("DMACopy", [weights], [main.output("y", (1, 3))], mode="Copy")
    module.ir().write_json(tmp_path / "m.json")
    ir = air.read(str(tmp_path / "m.json"))
    with pytest.raises(SimulationError, match=r"it is a constant, and its file `w\.npy` is not beside the module"):
        air.simulate(ir)
    np.save(tmp_path / "w.npy", np.array([[1, 2, 3]], f32))
    assert air.simulate(ir)["y"].tolist() == [[1, 2, 3]]
    assert air.simulate(ir, {"w": np.zeros((1, 3), f32)})["y"].tolist() == [[0, 0, 0]]
    (tmp_path / "w.npy").write_bytes(b"nothing")
    with pytest.raises(OptionError, match="the constant `w` cannot be read from"):
        air.simulate(ir)


def test_locations_that_must_alias_are_the_same_bytes() -> None:
    def made(kind: int) -> air.IR:
        module = build.module()
        main = module.function()
        x = main.input("x", (1, 2), alias=[["y", kind]])
        y = main.output("y", (1, 2), alias=[["x", kind]])
        tile = main.sb("tile", (1, 2))
        main.add("Load", [x], [tile])
        main.add("Save", [tile[:, :1]], [y[:, 1:]])
        return module.ir("m")

    value = {"x": np.array([[1, 2]], f32)}
    assert air.simulate(made(3), value)["y"].tolist() == [[1, 1]]
    with pytest.raises(
        SimulationError, match=r"m: undecided: `y` may share its bytes with `x`; choose `readings=\{'may_alias'"
    ):
        air.simulate(made(1), value)
    assert air.simulate(made(1), value, readings={"may_alias": "shared"})["y"].tolist() == [[1, 1]]
    with pytest.raises(SimulationError, match="4 of 8 bytes of the output"):
        air.simulate(made(1), value, readings={"may_alias": "separate"})


# -- errors ----


def test_an_error_says_where() -> None:
    module = build.module()
    main = module.function()
    main.add("NoOp")
    main.add("Matmult", [], [], name="bad")
    with pytest.raises(SimulationError) as caught:
        air.simulate(module.ir("m"))
    error = caught.value
    assert str(error) == (
        "m: expected 2 operands in `ins`, found 0 "
        "(instruction `bad` (Matmult), block `Block1`, function `sg0000`, step 2)"
    )
    assert (error.instruction, error.opcode, error.function, error.step) == ("bad", "Matmult", "sg0000", 2)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.reason) == (str(error), error.reason)


@pytest.mark.parametrize("opcode", ["CollectiveSend", "Generic", "MatmultBase", "Terminator", "NoSuchThing"])
def test_opcodes_that_are_not_modelled(opcode: str) -> None:
    module = build.module()
    module.function().add(opcode)
    with pytest.raises(SimulationError, match=f"the opcode `{opcode}` is not modelled"):
        air.simulate(module.ir())


def test_predicates_are_not_modelled() -> None:
    module = build.module()
    module.function().add("NoOp", predicates=[{"x": 1}])
    with pytest.raises(SimulationError, match="it has predicates"):
        air.simulate(module.ir())


def test_operands_that_name_nothing() -> None:
    bench = Bench()
    bench.add("TensorCopy", [build.Tensor("gone", "gone_set", "SB", (1, 2), "float32")], [bench.output("out", (1, 2))])
    with pytest.raises(SimulationError, match="`in 0` names `gone`, which is not there"):
        bench.run()


def test_memory_of_other_types_is_not_modelled() -> None:
    bench = Bench()
    state = bench.scratch("state", (1, 2), memory="RNGSTATE")
    bench.add("TensorCopy", [state], [bench.output("out", (1, 2))])
    with pytest.raises(SimulationError, match="`state` is of the type `RNGSTATE`"):
        bench.run()
    pointer = Bench()
    bench = pointer.function.tensor("p", "DRAM", (1, 2), kind="Pointer")
    pointer.add("TensorCopy", [bench], [pointer.output("out", (1, 2))])
    with pytest.raises(SimulationError, match="`p` holds a pointer"):
        pointer.run()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"readings": {"mood": "floor"}}, "`mood` is no undecided case; did you mean `mod`"),
        ({"readings": {"mod": "up"}}, "`up` is no reading of `mod`; there are `floor`, `truncate`"),
        ({"nan": "perhaps"}, '`nan` is "allow" or "raise"'),
        ({"until": "noop"}, "no instruction of `scale_add` is named `noop`; did you mean `noop_test`"),
        ({"until": [0, 3]}, "no instruction of `scale_add` has the id 3"),
        ({"watch": "nothing"}, "no location of `scale_add` is named `nothing`"),
        ({"max_steps": 0}, "`max_steps` takes a number of at least 1, got 0"),
    ],
)
def test_options_that_do_not_exist(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        air.simulate(scale_add(), **options)


@pytest.mark.parametrize(
    "name", ["ir", "inputs", "module_id", "function", "shard_id", "readings", "nan", "max_steps", "until", "watch"]
)
def test_no_bare_error_of_python_leaves_it(name: str) -> None:
    given = {"ir": scale_add(), "inputs": {"a": np.ones((128, 512), f32)}}
    for value in (1.5, "no", b"no", object(), [3.5], [[1]], {"a": 1}, {3: {}}):
        with pytest.raises((OptionError, SimulationError)):
            air.simulate(**{**given, name: value})


def test_functions_are_chosen_by_name() -> None:
    module = build.module()
    for name, value in (("first", 1), ("main", 2), ("last", 3)):
        function = module.function(name)
        function.add("Memset", [], [function.output("y", (1, 1), "uint8")], mode="Const", constant=value)
    ir = module.ir()
    assert air.simulate(ir)["y"].tolist() == [[2]]
    assert air.simulate(ir, function="last")["y"].tolist() == [[3]]
    with pytest.raises(SimulationError, match="no function is named `other`; there are `first`, `main`, `last`"):
        air.simulate(ir, function="other")
    with pytest.raises(SimulationError, match="the module has no ordinary function"):
        air.simulate(build.module().ir())


def test_every_undecided_case_has_choices_with_a_meaning() -> None:
    table = air.simulate.undecided_cases()
    assert table["case"].unique(maintain_order=True).to_list() == list(READINGS)
    assert all(name == reading.name for name, reading in READINGS.items())
    assert table.null_count().sum_horizontal().item() == 0
    assert (table["means"].str.len_chars() > 2).all()


def test_every_opcode_that_is_modelled_says_what_it_computes_and_has_a_test() -> None:
    table = air.simulate.coverage()
    assert table["opcode"].to_list()[: len(OPCODES)] == list(OPCODES.values)
    modelled = table.filter("modelled")
    assert (modelled["computes"].str.len_chars() > 3).all()
    assert set(modelled["basis"]) <= {"certain", "strong", "inferred"}
    paths = [path for path in Path(__file__).parent.glob("test_*.py") if path.name != "test_malformed.py"]
    tests = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert [name for name in modelled["opcode"].to_list() if f'"{name}"' not in tests] == []


def test_nan_may_be_an_error() -> None:
    bench = Bench()
    a = bench.given("a", np.array([[1, 0], [0, 0]], f32))
    bench.add("TensorTensor", [a, a], [bench.output("out", (2, 2))], op="divide", name="divides")
    assert np.isnan(bench.run()["out"]).sum() == 3
    with pytest.raises(SimulationError, match=r"a NaN is written to `out 0`, at \[0, 1\] of the access .*`divides`"):
        bench.run(nan="raise")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8e4", "float8e5", "float8_e4m3fn"])
def test_nan_is_found_in_every_float(dtype: str) -> None:
    bench = Bench()
    a = bench.given("a", np.array([[1, np.nan]], f32).astype(HELD[dtype]))
    bench.add("TensorCopy", [a], [bench.output("out", (1, 2), dtype)])
    with pytest.raises(SimulationError, match="a NaN is written"):
        bench.run(nan="raise")


# -- looking into a run ----


def chain() -> Bench:
    bench = Bench()
    a, tile = bench.given("a", np.array([[1, np.nan, -3]], f32)), bench.scratch("tile", (1, 3))
    bench.add("TensorCopy", [a], [tile], name="first", engine="DVE")
    bench.add("TensorTensor", [tile, tile], [tile], op="add", name="second", engine="Pool")
    bench.add("TensorCopy", [tile[:, ::2]], [bench.output("out", (1, 2), "bfloat16")], name="third")
    return bench


def test_a_trace_has_a_row_for_each_instruction() -> None:
    bench = chain()
    bench.function.add("NoOp")
    found = bench.run(trace=True)
    assert found.steps == 4
    wanted = pl.DataFrame(
        {
            "step": [1, 2, 3],
            "instruction_id": [0, 1, 2],
            "name": ["first", "second", "third"],
            "opcode": ["TensorCopy", "TensorTensor", "TensorCopy"],
            "engine": ["DVE", "Pool", "Unassigned"],
            "bytes_read": [12, 24, 8],
            "bytes_written": [12, 12, 4],
            "min": [-3.0, -6.0, -6.0],
            "max": [1.0, 2.0, 2.0],
            "nan": [1, 1, 0],
        }
    )
    assert found.trace.drop("function", "block").equals(wanted)
    assert chain().run().trace.shape == (0, 12)


def test_a_run_may_be_stopped_and_looked_into() -> None:
    found = chain().run(until="second")
    assert not found.finished
    assert found.steps == 2
    assert list(found) == []
    assert np.array_equal(found.content("tile"), [[2, np.nan, -6]], equal_nan=True)
    assert chain().run(until=0).content("tile")[0, 0] == 1
    with pytest.raises(OptionError, match="no location `nothing` has been read"):
        chain().run(until=["first"]).content("nothing")
    assert chain().run(until=None).finished


def test_locations_may_be_watched() -> None:
    found = chain().run(watch=["tile", "out"])
    seen = [(w.step, w.instruction, w.values[0, 0].item()) for w in found.watched["tile"]]
    assert seen == [(1, "first", 1.0), (2, "second", 2.0)]
    assert [w.instruction for w in found.watched["out"]] == ["third"]
    assert found.trace.is_empty()


def test_how_a_simulation_shows_itself() -> None:
    assert repr(chain().run()) == "<arrowir.Simulation: `out` bfloat16[1, 2], 3 steps>"
