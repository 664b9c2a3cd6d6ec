"""Pooling, against loops over the two innermost dimensions."""

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Array, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(14)


def largest(window: Array) -> np.float32:
    result = np.finfo(f32).min
    for value in window.reshape(-1):
        result = value if value > result or np.isnan(result) else result
    return f32(result)


def average(window: Array) -> np.float32:
    total = f32(0)
    for value in window.reshape(-1):
        total = f32(total + value)
    return f32(float(total) * (1.0 / window.size))


@pytest.mark.parametrize("dtype", [*FLOATS, "uint8"])
@pytest.mark.parametrize("func", ["Max", "Avg"])
@pytest.mark.parametrize("partitions", [1, 3, 33])
@pytest.mark.parametrize("pattern", [[(1, 12)], [(6, 2), (1, 3)], [(20, 2), (7, 2), (-2, 3)], [(1, 2), (3, 2), (2, 2)]])
def test_pool(dtype: str, func: str, partitions: int, pattern: list[tuple[int, int]]) -> None:
    x = rng.integers(0, 100, (partitions, 40)).astype(HELD[dtype])
    whole = [(40, partitions), *pattern]
    windows = elements(x, whole, 5).astype(f32)
    kept = windows.shape[: max(1, windows.ndim - 2)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (partitions, int(np.prod(kept)) // partitions))
    bench.add("Pool", [source.access(whole, 5)], [out], func=func)
    wanted = [(largest if func == "Max" else average)(w) for w in windows.reshape(int(np.prod(kept)), -1)]
    assert bench.run()["out"].reshape(-1).tolist() == [float(w) for w in wanted]


def test_averages_are_close_in_any_order() -> None:
    x = rng.standard_normal((4, 3, 50)).astype(f32)
    bench = Bench()
    bench.add(
        "Pool", [bench.given("x", x).access([(150, 4), (50, 3), (1, 50)])], [bench.output("out", (4, 1))], func="Avg"
    )
    found = bench.run()["out"]
    assert np.allclose(found[:, 0], x.astype(np.float64).mean(axis=(1, 2)), rtol=1e-5, atol=1e-7)


def test_the_output_may_have_a_pattern() -> None:
    x, target = rng.standard_normal((3, 4, 2, 2)).astype(f32), [(10, 3), (-2, 4)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (3, 10), fill=0)
    bench.add("Pool", [source.access([(16, 3), (4, 4), (2, 2), (1, 2)])], [out.access(target, 7)], func="Max")
    assert np.array_equal(bench.run()["out"], written(np.zeros((3, 10), f32), target, 7, x.max(axis=(2, 3))))


def test_the_largest_of_what_is_no_number() -> None:
    x = np.array([[np.nan, 3, -np.inf], [np.nan, np.nan, np.nan], [-np.inf] * 3], f32)
    lowest = float(np.finfo(f32).min)
    assert single("Pool", [x], (3, 1), func="Max").tolist() == [[3], [lowest], [lowest]]


def test_what_is_refused() -> None:
    with pytest.raises(SimulationError, match="which gives 3 elements, and the output has 6"):
        single("Pool", [np.ones((3, 4), f32)], (3, 2), func="Max")
    with pytest.raises(SimulationError, match="the pool function `Min`"):
        single("Pool", [np.ones((3, 4), f32)], (3, 1), func="Min")
