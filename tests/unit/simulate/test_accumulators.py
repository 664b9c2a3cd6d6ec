"""The engines' accumulators: what goes in, and how it comes out."""

import math
from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Bench, elements, written

f32 = np.float32
rng = np.random.default_rng(6)


def row_sums(values: np.ndarray) -> np.ndarray:
    """Add the elements of each row one after the other, in float32."""
    out = []
    for row in values:
        total = f32(0) + row[0]
        for value in row[1:]:
            total = f32(total + value)
        out.append(total)
    return np.array(out, f32)


def activations(*commands: str, engine: str = "Activation") -> tuple[Bench, list[np.ndarray]]:
    """Square a tensor for each command."""
    bench = Bench()
    given = [rng.standard_normal((5, 9)).astype(f32) for _ in commands]
    tile = bench.scratch("tile", (5, 9))
    for place, (command, values) in enumerate(zip(commands, given, strict=True)):
        x = bench.given(f"x{place}", values)
        bench.add("Activation", [x], [tile], func="Square", scale=1.0, alpha=0.0, acc=command, engine=engine)
    return bench, [values * values for values in given]


@pytest.mark.parametrize("opcode", ["ReadActivationAccumulator", "ActivationReadAccumulator"])
@pytest.mark.parametrize("engine", ["Activation", "Unassigned"])
def test_activations_are_accumulated(opcode: str, engine: str) -> None:
    bench, squares = activations("ZeroAccumulate", "Idle", "AddAccumulate", engine=engine)
    bench.add(opcode, [], [bench.output("out", (5, 1))], engine="Activation")
    assert np.array_equal(bench.run()["out"][:, 0], row_sums(squares[0]) + row_sums(squares[2]))


def test_a_new_accumulation_forgets_the_old_one() -> None:
    bench, squares = activations("ZeroAccumulate", "ZeroAccumulate")
    bench.add("ReadActivationAccumulator", [], [bench.output("out", (5, 1), "bfloat16")], engine="Activation")
    wanted = row_sums(squares[1])
    assert np.allclose(bench.run()["out"][:, 0].astype(f32), wanted, rtol=2**-8)


def test_elements_come_out_when_as_many_are_asked_for() -> None:
    bench, squares = activations("ZeroAccumulate", "AddAccumulate")
    bench.add("ReadActivationAccumulator", [], [bench.output("out", (5, 9))], engine="Activation")
    assert np.array_equal(bench.run()["out"], squares[0] + squares[1])


@pytest.mark.parametrize("negated", [False, True])
def test_sums_of_vector_instructions(negated: bool) -> None:
    a, x = (rng.standard_normal((3, 4)).astype(f32) for _ in range(2))
    bench = Bench()
    operands, tile = [bench.given("a", a), bench.given("x", x)], bench.scratch("tile", (3, 4), "bfloat16")
    bench.add("TensorTensor", operands, [tile], op="mult", acc="ZeroAccumulate", engine="DVE")
    bench.add("DveReadAccumulator", [], [bench.output("out", (3, 1))], negated=negated)
    assert np.array_equal(bench.run()["out"][:, 0], row_sums(a * x) * (-1 if negated else 1))


def test_engines_have_accumulators_of_their_own() -> None:
    bench, squares = activations("ZeroAccumulate")
    a = bench.given("a", np.ones((5, 2), f32))
    bench.add("TensorTensor", [a, a], [a], op="add", acc="ZeroAccumulate", engine="DVE")
    bench.add("ReadActivationAccumulator", [], [bench.output("one", (5, 1))])
    bench.add("DveReadAccumulator", [], [bench.output("two", (5, 1))])
    found = bench.run()
    assert np.array_equal(found["one"][:, 0], row_sums(squares[0]))
    assert found["two"].tolist() == [[4]] * 5


@pytest.mark.parametrize(
    ("commands", "shape", "reason"),
    [
        (("AddAccumulate",), (5, 1), "nothing has been accumulated"),
        (("Idle",), (5, 1), "nothing has been accumulated"),
        (("ZeroAccumulate",), (4, 1), "holds 5 partitions, and 4 are asked for"),
        (("LoadAccumulate",), (5, 1), "an instruction that does a LoadAccumulate must provide an immediate"),
        (("Anything",), (5, 1), "`Anything` is not modelled for `Activation`"),
    ],
)
def test_what_is_refused(commands: tuple[str, ...], shape: tuple[int, int], reason: str) -> None:
    bench, _ = activations(*commands)
    bench.add("ReadActivationAccumulator", [], [bench.output("out", shape)], engine="Activation")
    with pytest.raises(SimulationError, match=reason):
        bench.run()


def test_an_accumulator_of_no_engine_is_refused() -> None:
    bench = Bench()
    a = bench.given("a", np.ones((5, 2), f32))
    bench.add("TensorTensor", [a, a], [a], op="add", acc="ZeroAccumulate")
    with pytest.raises(SimulationError, match="not known whose accumulator"):
        bench.run()


@pytest.mark.parametrize(
    ("command", "case", "choice", "wanted"),
    [
        ("Zero", "accumulator_zero", "clear", lambda first, second: 0 * first),
        ("Accumulate", "accumulator_accumulate", "add", lambda first, second: first + second),
    ],
)
def test_commands_that_are_a_choice(command: str, case: str, choice: str, wanted: Any) -> None:
    bench, squares = activations("ZeroAccumulate", command)
    bench.add("ReadActivationAccumulator", [], [bench.output("out", (5, 1))], engine="Activation")
    with pytest.raises(SimulationError, match=f"undecided: the engine accumulation `{command}`"):
        bench.run()
    found = bench.run(readings={case: choice})["out"][:, 0]
    assert np.array_equal(found, wanted(row_sums(squares[0]), row_sums(squares[1])))


def exponential(values: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """The exponential of each element less its partition's number, rounded once to float32."""
    return np.array([[f32(math.exp(float(f32(v - m)))) for v in row] for row, m in zip(values, largest, strict=True)])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("given", ["memory", "immediate"])
@pytest.mark.parametrize("partitions", [1, 5, 128])
def test_exponentials_and_their_sums(dtype: str, given: str, partitions: int) -> None:
    x = rng.integers(-8, 9, (partitions, 6)).astype(HELD[dtype])
    largest = np.full((partitions, 1), 3, f32) if given == "immediate" else x.astype(f32).max(axis=1, keepdims=True)
    bench = Bench()
    ins = [bench.given("x", x), bench.given("m", largest) if given == "memory" else 3.0]
    outs = [bench.output("out", x.shape), bench.output("sum", (partitions, 1))]
    bench.add("Exponential", ins, outs, reduce_cmd="ZeroAccumulate")
    bench.add("Exponential", ins, [bench.output("narrow", x.shape, "bfloat16")], reduce_cmd="AddAccumulate")
    bench.add("DveReadAccumulator", [], [bench.output("read", (partitions, 1))])
    found = bench.run()
    wanted = exponential(x.astype(f32), largest[:, 0])
    assert np.allclose(found["out"], wanted, rtol=2**-22)
    assert np.array_equal(found["narrow"], found["out"].astype(HELD["bfloat16"]))
    assert np.array_equal(found["sum"][:, 0], row_sums(found["out"]))
    assert np.array_equal(found["read"], found["sum"] * f32(2))


@pytest.mark.parametrize("given", ["memory", "immediate"])
def test_a_sum_may_begin_with_a_number(given: str) -> None:
    x, start = rng.integers(-3, 1, (3, 4)).astype(f32), np.array([[1], [2], [3]], f32)
    bench = Bench()
    ins = [bench.given("x", x), 0.0, bench.given("s", start) if given == "memory" else 2.0]
    outs = [bench.output("out", (3, 4)), bench.output("sum", (3, 1))]
    bench.add("Exponential", ins, outs, reduce_cmd="LoadAccumulate")
    found = bench.run()
    first = start if given == "memory" else np.full((3, 1), 2, f32)
    assert np.array_equal(found["sum"][:, 0], row_sums(np.hstack((first, found["out"]))))


def test_exponentials_by_patterns() -> None:
    x, pattern, target = rng.integers(-8, 9, (3, 16)).astype(f32), [(16, 3), (8, 2), (-2, 4)], [(9, 3), (-1, 8)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (3, 9), fill=0)
    bench.add("Exponential", [source.access(pattern, 7), 1.0], [out.access(target, 8)], reduce_cmd="Idle")
    wanted = exponential(elements(x, pattern, 7).reshape(3, 8), np.ones(3, f32))
    assert np.allclose(bench.run()["out"], written(np.zeros((3, 9), f32), target, 8, wanted), rtol=2**-22)


@pytest.mark.parametrize(
    ("ins", "outs", "command", "reason"),
    [
        ([(2, 3)], [(2, 3)], "Idle", "expected 2 to 3 operands in `ins`, found 1"),
        ([(2, 3), (3, 1)], [(2, 3)], "Idle", "`in 1` has 3 elements; expected 2, one for each partition"),
        ([(2, 3), (2, 1)], [(2, 4)], "Idle", "`out 0` has 8 elements, and 6 values"),
        ([(2, 3), (2, 1)], [(2, 3), (2, 1)], "Idle", "a second output for the accumulator, and accumulates nothing"),
        ([(2, 3), (2, 1)], [(2, 3)], "LoadAccumulate", "must provide an immediate"),
        ([(2, 3), (2, 1)], [(2, 3), (3, 1)], "ZeroAccumulate", "holds 2 partitions, and 3 are asked for"),
    ],
)
def test_what_exponentials_refuse(ins: Any, outs: Any, command: str, reason: str) -> None:
    bench = Bench()
    operands = [bench.given(f"in{i}", np.ones(shape, f32)) for i, shape in enumerate(ins)]
    results = [bench.output(f"out{i}", shape) for i, shape in enumerate(outs)]
    bench.add("Exponential", operands, results, reduce_cmd=command)
    with pytest.raises(SimulationError, match=reason):
        bench.run()


def test_what_no_compiler_lets_pass() -> None:
    bench = Bench()
    a = bench.given("a", np.ones((5, 2), f32))
    bench.add("TensorTensor", [a, a], [a], op="add", acc="Accumulate", engine="DVE")
    with pytest.raises(SimulationError, match="InstTensorTensor does not support EngineAccumulationType Accumulate"):
        bench.run()


def test_activations_are_added_and_nothing_else() -> None:
    bench = Bench()
    a = bench.given("a", np.ones((5, 2), f32))
    more = {"func": "Square", "scale": 1.0, "alpha": 0.0, "acc": "ZeroAccumulate", "reduce_op": "max"}
    bench.add("Activation", [a], [a], engine="Activation", **more)
    with pytest.raises(SimulationError, match="an accumulation with `max` is not modelled"):
        bench.run()


def test_accumulations_of_other_partitions_are_refused() -> None:
    bench = Bench()
    for partitions, command in ((5, "ZeroAccumulate"), (3, "AddAccumulate")):
        a = bench.given(f"a{partitions}", np.ones((partitions, 2), f32))
        bench.add("TensorTensor", [a, a], [a], op="add", acc=command, engine="DVE")
    with pytest.raises(SimulationError, match="holds 5 partitions, and 3 are added"):
        bench.run()
