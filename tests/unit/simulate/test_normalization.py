"""Batch normalisation, against definitions in float64 and loops over single elements."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Array, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(15)


def statistics(row: Array) -> list[float]:
    """Count, mean and sum of squared deviations of the even places, and of the odd ones."""
    out: list[float] = []
    for part in (row[0::2].astype(np.float64), row[1::2].astype(np.float64)):
        mean = part.sum() / len(part) if len(part) else 0.0
        out += [len(part), mean, float(((part - mean) ** 2).sum())]
    return out


@pytest.mark.parametrize("dtype", [*FLOATS, "int16"])
@pytest.mark.parametrize(("partitions", "length"), [(1, 1), (3, 2), (33, 31), (128, 64)])
def test_statistics(dtype: str, partitions: int, length: int) -> None:
    x = (rng.standard_normal((partitions, length)) * 4 + 3).astype(HELD[dtype])
    found = single("BNStats", [x], (partitions, 6), apply_transpose=False)
    wanted = np.array([statistics(row) for row in x])
    assert np.allclose(found, wanted, rtol=2e-5, atol=1e-4)
    assert np.array_equal(found[:, ::3], wanted[:, ::3])


def test_statistics_are_updated_element_by_element() -> None:
    x = rng.standard_normal((2, 9)).astype(f32)
    wanted = []
    for row in x:
        for part in (row[0::2], row[1::2]):
            mean = total = f32(0)
            for number, value in enumerate(part, 1):
                change = f32(value - mean)
                mean = f32(mean + f32(change / f32(number)))
                total = f32(total + f32(change * f32(value - mean)))
            wanted += [f32(len(part)), mean, total]
    assert np.array_equal(single("BNStats", [x], (2, 6), apply_transpose=False).reshape(-1), np.array(wanted))


def test_statistics_of_patterns() -> None:
    x, pattern, target = rng.integers(0, 9, (3, 20)).astype(f32), [(20, 3), (9, 2), (-2, 4)], [(8, 3), (-1, 6)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (3, 8), fill=0)
    bench.add("BNStats", [source.access(pattern, 7)], [out.access(target, 6)], apply_transpose=False)
    wanted = np.array([statistics(row) for row in elements(x, pattern, 7).reshape(3, 8)])
    assert np.allclose(bench.run()["out"], written(np.zeros((3, 8)), target, 6, wanted))


def test_what_a_transpose_of_statistics_means_is_a_choice() -> None:
    x = rng.integers(0, 9, (64, 32)).astype(f32)
    bench = Bench()
    bench.add("BNStats", [bench.given("x", x)], [bench.output("out", (64, 6))], apply_transpose=True)
    with pytest.raises(SimulationError, match="undecided: `apply_transpose` of statistics"):
        bench.run()
    turned = np.vstack([x[:32].T, x[32:].T])
    found = bench.run(readings={"apply_transpose": "input"})["out"]
    assert np.allclose(found, [statistics(row) for row in turned], rtol=1e-5)
    plain = np.array([statistics(row) for row in x])
    lanes = np.concatenate([plain[:32].T.reshape(-1), plain[32:].T.reshape(-1)])
    found = bench.run(readings={"apply_transpose": "result"})["out"]
    assert np.allclose(found.reshape(-1), lanes, rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lengths", [(9,), (1,), (16, 7, 2)])
@pytest.mark.parametrize("partitions", [1, 3, 128])
def test_statistics_are_joined(dtype: str, lengths: tuple[int, ...], partitions: int) -> None:
    x = (rng.standard_normal((partitions, sum(lengths))) + 1).astype(f32)
    bench = Bench()
    source, tile = bench.given("x", x), bench.scratch("tile", (partitions, 6 * len(lengths)))
    out = bench.output("out", (partitions, 2), dtype)
    first = 0
    for place, length in enumerate(lengths):
        stats = tile[:, 6 * place : 6 * place + 6]
        bench.add("BNStats", [source[:, first : first + length]], [stats], apply_transpose=False)
        first += length
    bench.add("BNStatsAggregate", [tile], [out])
    wanted = np.stack([x.astype(np.float64).mean(axis=1), x.astype(np.float64).var(axis=1)], axis=1)
    tolerance = {"float32": 1e-5, "bfloat16": 2**-8}[dtype]
    assert np.allclose(bench.run()["out"].astype(f32), wanted, rtol=tolerance, atol=1e-6)


def test_empty_parts_change_nothing() -> None:
    x = np.array([[0, 9, 9, 2, 5, 3, 0, 7, 7, 2, 7, 1]], f32)
    assert single("BNStatsAggregate", [x], (1, 2)).tolist() == [[6, 2]]
    with pytest.raises(SimulationError, match="count no element"):
        single("BNStatsAggregate", [np.zeros((1, 6), f32)], (1, 2))


@pytest.mark.parametrize(
    ("opcode", "x", "out", "reason"),
    [
        ("BNStats", (3, 4), (3, 5), "6 numbers for each of 3 partitions; the output has 15"),
        ("BNStatsAggregate", (3, 9), (3, 2), "partitions of 9 numbers; expected a multiple of 6"),
        ("BNStatsAggregate", (3, 6), (3, 3), "must output 2 elements per partition, but it outputs 3"),
    ],
)
def test_what_is_refused(opcode: str, x: Any, out: Any, reason: str) -> None:
    more = {"apply_transpose": False} if opcode == "BNStats" else {}
    with pytest.raises(SimulationError, match=reason):
        single(opcode, [np.ones(x, f32)], out, **more)


# -- gradients ----


def gradient_bench(opcode: str, ins: list[Array], shape: tuple[int, int], **more: Any) -> Bench:
    bench = Bench()
    bench.add(opcode, [bench.given(f"in{i}", a) for i, a in enumerate(ins)], [bench.output("out", shape)], **more)
    return bench


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("partitions", [1, 5, 128])
def test_gradients(packed: bool, partitions: int) -> None:
    x, dy = (rng.integers(-8, 9, (partitions, 7)).astype(f32) for _ in range(2))
    mean, factor = rng.integers(0, 4, (partitions, 1)).astype(f32), rng.integers(1, 4, (partitions, 1)).astype(f32)
    numbers = [np.hstack((mean, factor))] if packed else [mean, factor]
    bench = gradient_bench("BNGradients", [x, dy, *numbers], (partitions, 3))
    with pytest.raises(SimulationError, match="undecided: the order of the operands of `BNGradients`"):
        bench.run()
    for choice, (a, b) in (("x first", (x, dy)), ("dy first", (dy, x))):
        found = bench.run(readings={"bn_gradients_operands": choice})["out"]
        for p in range(partitions):
            m, v = mean[p, 0], factor[p, 0]
            total = sum((xv - m) * dv for xv, dv in zip(a[p], b[p], strict=True))
            assert found[p].tolist() == [b[p].sum(), total * v * v, total * v]


@pytest.mark.parametrize("opcode", ["BNBackprop", "BNBackprop2"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("partitions", [1, 5, 128])
def test_backpropagation(opcode: str, packed: bool, partitions: int) -> None:
    x, dy = (rng.integers(-8, 9, (partitions, 7)).astype(f32) for _ in range(2))
    mean, b, a, scale = (rng.integers(1, 5, (partitions, 1)).astype(f32) for _ in range(4))
    numbers = [np.hstack((mean, b, a, scale))] if packed else [mean, b, a, scale]
    bench = gradient_bench(opcode, [x, dy, *numbers], (partitions, 7), total_elements=12.0)
    with pytest.raises(SimulationError, match=f"undecided: the order of the operands of `{opcode}`"):
        bench.run()
    for choice, (one, other) in (("x first", (x, dy)), ("dy first", (dy, x))):
        found = bench.run(readings={"bn_backprop_operands": choice})["out"]
        for p, i in np.ndindex(partitions, 7):
            wanted = (other[p, i] * 12 - ((one[p, i] - mean[p, 0]) * b[p, 0] + a[p, 0])) * scale[p, 0]
            assert found[p, i] == wanted


def test_equal_tensors_need_no_choice() -> None:
    x, one = np.full((2, 3), 2, f32), np.ones((2, 1), f32)
    assert gradient_bench("BNGradients", [x, x, one, one], (2, 3)).run()["out"].tolist() == [[6, 6, 6]] * 2


def test_gradients_are_what_a_loss_changes_by() -> None:
    """The two together give the derivative of ``sum(dy * (x - mean) / std)`` by x."""
    x, dy = rng.standard_normal((4, 32)).astype(f32), rng.standard_normal((4, 32)).astype(f32)
    mean, std = x.mean(axis=1, keepdims=True), x.std(axis=1, keepdims=True)
    factor = 1 / std
    choice = {"bn_gradients_operands": "x first", "bn_backprop_operands": "x first"}
    sums = gradient_bench("BNGradients", [x, dy, mean, factor], (4, 3)).run(readings=choice)["out"]
    numbers = [mean, sums[:, 1:2].copy(), sums[:, :1].copy(), factor / f32(32)]
    found = gradient_bench("BNBackprop", [x, dy, *numbers], (4, 32), total_elements=32).run(readings=choice)["out"]

    def loss(values: Array) -> Array:
        return (dy * (values - values.mean(axis=1, keepdims=True)) / values.std(axis=1, keepdims=True)).sum(axis=1)

    for i in range(0, 32, 7):
        step = np.zeros((4, 32))
        step[:, i] = 1e-5
        slope = (loss(x.astype(np.float64) + step) - loss(x.astype(np.float64) - step)) / 2e-5
        assert np.allclose(found[:, i], slope, atol=1e-3)


@pytest.mark.parametrize(
    ("ins", "reason"),
    [
        ([(2, 3), (2, 4), (2, 2)], "`in 0` has 6 elements, and `in 1` 8"),
        ([(2, 3), (2, 3), (2, 3)], "expected 2 numbers for each partition, found 3"),
        ([(2, 3), (2, 3), (1, 2)], "`in 2` is no access to 2 partitions"),
    ],
)
def test_what_gradients_refuse(ins: list[tuple[int, int]], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        gradient_bench("BNGradients", [np.ones(shape, f32) for shape in ins], (2, 3)).run()
    one = np.ones((2, 1), f32)
    with pytest.raises(SimulationError, match="3 numbers for each of 2 partitions; the output has 4"):
        gradient_bench("BNGradients", [np.ones((2, 3), f32)] * 2 + [one, one], (2, 2)).run()
