"""Activation functions, against the definitions in Python's own floats."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from arrowir.simulate.functions import FUNCTIONS
from arrowir.vocabulary import ACTIVATION_FUNCTIONS
from tests.simulated import FLOATS, HELD, Bench, elements, single

f32 = np.float32
rng = np.random.default_rng(11)


def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def _softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def _slope(function: Callable[[float], float], h: float = 1e-5) -> Callable[[float], float]:
    return lambda x: (function(x + h) - function(x - h)) / (2 * h)


def _gelu(x: float) -> float:
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


DEFINITIONS: dict[str, Callable[[float], float]] = {
    "Identity": lambda x: x,
    "Copy": lambda x: x,
    "Square": lambda x: x**2,
    "Relu": lambda x: max(x, 0.0),
    "Lrelu": lambda x: x if x > 0 else x / 100,
    "Sigmoid": _sigmoid,
    "Tanh": math.tanh,
    "Exp": math.exp,
    "Softplus": _softplus,
    "Sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "Rsqrt": lambda x: 1 / math.sqrt(x) if x > 0 else math.nan,
    "Ln": lambda x: math.log(x) if x > 0 else math.nan,
    "Erf": math.erf,
    "Sin": math.sin,
    "Arctan": math.atan,
    "Sign": lambda x: math.copysign(1, x) if x else 0,
    "Gelu": _gelu,
    "Mish": lambda x: x * math.tanh(_softplus(x)),
    "Gelu_apprx_tanh": lambda x: x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "Gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "Derivative_Gelu_apprx_sigmoid": lambda x: _slope(lambda u: u * _sigmoid(u))(1.702 * x),
    "Derivative_Gelu": _slope(_gelu),
    "Derivative_Erf": _slope(math.erf),
    "Abs": abs,
    "Reciprocal": lambda x: 1 / x,
    "Abs_reciprocal_sqrt": lambda x: 1 / math.sqrt(abs(x)),
    "Silu": lambda x: x * _sigmoid(x),
    "Derivative_silu": _slope(lambda x: x * _sigmoid(x)),
    "Ln_prime": lambda x: 1 / x,
    "MemsetZero": lambda x: 0.0,
    "memset_zero": lambda x: 0.0,
}


def close(found: np.ndarray, wanted: np.ndarray, places: float = 2e-6) -> bool:
    return bool(np.allclose(found, wanted, rtol=places, atol=places, equal_nan=True))


def run(func: str, x: np.ndarray, dtype: str = "float32", **keys: Any) -> np.ndarray:
    return single("Activation", [x], x.shape, dtype, func=func, **{"scale": 1.0, "alpha": 0.0, **keys})


def test_every_function_of_the_vocabulary_is_there_or_refused() -> None:
    refused = {"Is_finite", "Unknown", "Dsqrt", "Prelu"}
    assert set(ACTIVATION_FUNCTIONS.values) - refused == set(FUNCTIONS) - {"memset_zero"}
    assert set(DEFINITIONS) == set(FUNCTIONS)
    for name in sorted(refused - {"Prelu"}):
        with pytest.raises(SimulationError, match=f"Unsupported activation function Simulator::simulation: {name}"):
            run(name, np.ones((1, 1), f32))


@pytest.mark.parametrize("func", DEFINITIONS)
def test_functions(func: str) -> None:
    x = np.concatenate([np.linspace(-8, 8, 130, dtype=f32), np.array([1e-3, -1e-3, 0.25, -0.25], f32)]).reshape(2, 67)
    wanted = np.array([DEFINITIONS[func](float(v)) for v in x.flat]).reshape(x.shape)
    assert close(run(func, x), wanted)


@pytest.mark.parametrize("func", DEFINITIONS)
def test_large_arguments_have_the_limit(func: str) -> None:
    if func in ("Sin", "Square", "Exp"):
        return
    x = np.array([[300.0, -300.0]], f32)
    limits: dict[str, list[float]] = {
        "Sigmoid": [1, 0], "Tanh": [1, -1], "Softplus": [300, 0], "Erf": [1, -1], "Gelu": [300, 0], "Mish": [300, 0],
        "Gelu_apprx_tanh": [300, 0], "Gelu_apprx_sigmoid": [300, 0], "Derivative_Gelu_apprx_sigmoid": [1, 0],
        "Derivative_Gelu": [1, 0], "Derivative_Erf": [0, 0], "Silu": [300, 0], "Derivative_silu": [1, 0],
    }  # fmt: skip
    wanted = limits.get(func) or [DEFINITIONS[func](v) for v in (300.0, -300.0)]
    assert close(run(func, x), np.array([wanted]))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("to", ["float32", "bfloat16"])
def test_types(dtype: str, to: str) -> None:
    x = (rng.integers(-16, 16, (5, 11)) / 8).astype(HELD[dtype])
    wanted = np.array([f32(math.tanh(v)) for v in x.astype(f32).flat.__iter__()], f32).astype(HELD[to])
    found = run("Tanh", x, to)
    assert np.allclose(found.astype(f32), wanted.reshape(x.shape).astype(f32), rtol=2**-8 if to == "bfloat16" else 1e-6)


@pytest.mark.parametrize("partitions", [1, 3, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_scale_and_bias_of_each_partition(partitions: int, dtype: str) -> None:
    x = rng.standard_normal((partitions, 4, 6)).astype(f32)
    scale, bias = (rng.standard_normal((partitions, 1)).astype(HELD[dtype]) for _ in range(2))
    bench = Bench()
    operands = [bench.given("x", x), bench.given("scale", scale), bench.given("bias", bias)]
    out = bench.output("out", x.shape)
    bench.add("Activation", operands, [out], func="Square", scale=99.0, alpha=0.0)
    inner = x * scale.astype(f32)[:, :, None] + bias.astype(f32)[:, :, None]
    assert close(bench.run()["out"], inner * inner)


def test_an_operand_wins_over_a_key() -> None:
    x = np.array([[1, 2]], f32)
    bench = Bench()
    given, out = bench.given("x", x), bench.output("out", (1, 2))
    bench.add("Activation", [given, 2.0, 0.5], [out], func="Identity", scale=7.0, alpha=0.0)
    assert bench.run()["out"].tolist() == [[2.5, 4.5]]


def test_the_key_scales() -> None:
    assert run("Identity", np.array([[1, -2]], f32), scale=0.5).tolist() == [[0.5, -1]]


@pytest.mark.parametrize("as_operand", [False, True])
def test_prelu(as_operand: bool) -> None:
    x = np.array([[-2, 0, 3]], f32)
    bench = Bench()
    given, out = bench.given("x", x), bench.output("out", (1, 3))
    ins = [given, 1.0, 0.0, 0.25] if as_operand else [given]
    bench.add("Activation", ins, [out], func="Prelu", scale=1.0, alpha=9.0 if as_operand else 0.25)
    assert bench.run()["out"].tolist() == [[-0.5, 0, 3]]


def test_patterns() -> None:
    x = rng.standard_normal((4, 12)).astype(f32)
    source, target = [(12, 4), (-2, 5)], [(10, 4), (1, 5)]
    bench = Bench()
    given, out = bench.given("x", x), bench.output("out", (4, 10), fill=5)
    bench.add("Activation", [given.access(source, 11)], [out.access(target, 3)], func="Abs", scale=1.0, alpha=0.0)
    found = bench.run()["out"]
    assert np.array_equal(found[:, 3:8], np.abs(elements(x, source, 11)))
    assert (np.delete(found, range(3, 8), axis=1) == 5).all()


def test_a_copy_keeps_every_value() -> None:
    x = np.array([[-0.0, np.inf, np.nan, 1e-40]], f32)
    assert run("Copy", x).view(np.uint32).tolist() == x.view(np.uint32).tolist()


def test_immediates_must_be_float32() -> None:
    bench = Bench()
    x, out = bench.given("x", np.ones((1, 2), f32)), bench.output("out", (1, 2))
    bench.add("Activation", [x, 2], [out], func="Identity", scale=1.0, alpha=0.0)
    with pytest.raises(SimulationError, match="only support float32 bias/scale/alpha"):
        bench.run()


def test_without_a_scale_there_is_a_choice() -> None:
    bench = Bench()
    x, out = bench.given("x", np.full((1, 2), 3, f32)), bench.output("out", (1, 2))
    bench.add("Activation", [x], [out], func="Square", alpha=0.0)
    with pytest.raises(SimulationError, match="has no `scale`"):
        bench.run()
    assert bench.run(readings={"activation_scale": "one"})["out"].tolist() == [[9, 9]]
    assert bench.run(readings={"activation_scale": "zero"})["out"].tolist() == [[0, 0]]


def test_other_forms_are_refused() -> None:
    for keys, reason in (({"is_activate2": True}, "is_activate2"), ({"op0": "add"}, "`op0` of 'add'")):
        with pytest.raises(SimulationError, match=reason):
            run("Identity", np.ones((1, 2), f32), **keys)
    bench = Bench()
    x, bias = bench.given("x", np.ones((4, 2), f32)), bench.given("bias", np.ones((3, 1), f32))
    bench.add("Activation", [x, 1.0, bias], [bench.output("out", (4, 2))], func="Identity", scale=1.0, alpha=0.0)
    with pytest.raises(SimulationError, match="3 elements; expected 1 or 4"):
        bench.run()


@pytest.mark.parametrize("dtype", FLOATS)
def test_reciprocal(dtype: str) -> None:
    x = rng.integers(1, 9, (3, 5)).astype(HELD[dtype])
    assert np.array_equal(single("Reciprocal", [x], (3, 5)), f32(1) / x.astype(f32))
