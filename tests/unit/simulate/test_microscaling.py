"""Microscaled numbers, against loops over groups and single elements."""

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import HELD, Array, Bench

f32 = np.float32
rng = np.random.default_rng(17)

TYPES: dict[str, Any] = {
    "float4_e2m1fn": ml_dtypes.float4_e2m1fn,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}
EIGHT = ("float8_e4m3fn", "float8_e5m2")


def codes(name: str) -> Array:
    """All bit patterns of a type that are finite, with their values."""
    if name == "float4_e2m1fn":
        return np.arange(16, dtype=np.uint8)
    values = np.arange(256, dtype=np.uint8).view(TYPES[name]).astype(f32)
    return np.flatnonzero(np.isfinite(values)).astype(np.uint8)


def value(name: str, code: int) -> float:
    """The value of a bit pattern, from its sign, exponent and fraction."""
    bits, fraction, bias = {"float4_e2m1fn": (4, 1, 1), "float8_e4m3fn": (8, 3, 7), "float8_e5m2": (8, 2, 15)}[name]
    sign = -1 if code >> (bits - 1) else 1
    size = code & ((1 << (bits - 1)) - 1)
    exponent, rest = size >> fraction, size & ((1 << fraction) - 1)
    if exponent == 0:
        return sign * rest * 2.0 ** (1 - bias - fraction)
    return sign * (1 + rest / (1 << fraction)) * 2.0 ** (exponent - bias)


def packed(name: str, elements: Array) -> Array:
    """Four bit patterns in one integer, the first in the lowest bits."""
    bits = 4 if name == "float4_e2m1fn" else 8
    out = np.zeros(elements.shape[:-1], np.uint64)
    for place in range(4):
        out |= elements[..., place].astype(np.uint64) << np.uint64(bits * place)
    return out.astype(f"u{bits // 2}")


def scales_of(exponents: Array, start: int = 0, dtype: Any = np.uint8) -> Array:
    """Scales as they stand in 32 partitions each: four rows from a start on, and 99 elsewhere."""
    out = np.full((len(exponents) // 4 * 32 + start, exponents.shape[1]), 99, dtype)
    for row, line in enumerate(exponents):
        out[row // 4 * 32 + row % 4 + start] = line
    return out


def operand(name: str, partitions: int, groups: int) -> tuple[Array, Array, Array]:
    """Elements as bit patterns, exponents, and the values that they mean."""
    elements = rng.choice(codes(name), (partitions, groups, 4))
    exponents = rng.integers(122, 132, (partitions // 8, groups))
    values = np.empty(elements.shape)
    for place in np.ndindex(elements.shape):
        p, g, _ = place
        values[place] = value(name, int(elements[place])) * 2.0 ** (int(exponents[p // 8, g]) - 127)
    return elements, exponents, values


def add(bench: Bench, title: str, name: str, elements: Array, whole: bool = False) -> Any:
    """A tensor of elements: packed by four, or one by one."""
    if whole:
        spelled = "float8e5" if name == "float8_e5m2" else name
        return bench.given(title, elements.reshape(len(elements), -1).view(HELD[spelled]), spelled)
    return bench.given(title, packed(name, elements), f"{name}_x4")


@pytest.mark.parametrize("moving", TYPES)
@pytest.mark.parametrize("stationary", TYPES)
@pytest.mark.parametrize(("partitions", "m", "n"), [(32, 1, 1), (64, 3, 5), (128, 4, 3)])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_products(moving: str, stationary: str, partitions: int, m: int, n: int, order: tuple[int, ...]) -> None:
    x, xs, xv = operand(moving, partitions, n)
    w, ws, wv = operand(stationary, partitions, m)
    bench = Bench("core_v4")
    given = [
        *(add(bench, t, name, e) for t, name, e in (("x", moving, x), ("w", stationary, w))),
        bench.given("xs", scales_of(xs)),
        bench.given("ws", scales_of(ws), "float8_e8m0fnu"),
    ]
    out = bench.output("out", (m, n), memory="PSUM", fill=1)
    for flag in (1, 2, 0, 2):
        bench.add("MatmultMx", [given[place] for place in order], [out], accumulation_flag=flag)
    wanted = np.zeros((m, n))
    for i, j in np.ndindex(m, n):
        wanted[i, j] = (wv[:, i] * xv[:, j]).sum()
    found = bench.run()["out"]
    assert np.allclose(found, 2 * wanted, rtol=1e-4, atol=np.abs(wv).max() * np.abs(xv).max() * 1e-4)


@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize("start", [0, 4, 8, 12])
def test_elements_one_by_one_and_scales_further_down(name: str, start: int) -> None:
    x, xs, xv = operand(name, 32, 3)
    w, ws, wv = operand(name, 32, 2)
    bench = Bench("core_v4")
    ins = [add(bench, "x", name, x, whole=True), add(bench, "w", name, w, whole=True)]
    for title, exponents in (("xs", xs), ("ws", ws)):
        given = bench.given(title, scales_of(exponents, start))
        ins.append(given[start : start + 32])
    bench.add("MatmultMx", ins, [bench.output("out", (2, 3), memory="PSUM")])
    wanted = np.einsum("kiq,kjq->ij", wv, xv)
    assert np.allclose(bench.run()["out"], wanted, rtol=1e-4, atol=np.abs(wv).max() * np.abs(xv).max() * 1e-4)


def mx(partitions: int = 32, dtypes: tuple[str, ...] = ("uint8", "uint8"), **change: Any) -> Bench:
    bench = Bench("core_v4")
    shapes = {"x": (partitions, 3), "w": (partitions, 2), "xs": (partitions, 3), "ws": (partitions, 2)} | change
    held = dict(zip(("xs", "ws"), dtypes, strict=True))
    ins = []
    for title, shape in shapes.items():
        if title in held:
            ins.append(bench.given(title, np.full(shape, 127, HELD[held[title]])))
        else:
            ins.append(bench.given(title, np.zeros(shape, np.uint32), "float8_e4m3fn_x4"))
    bench.add("MatmultMx", ins, [bench.output("out", (2, 3), memory="PSUM")])
    return bench


@pytest.mark.parametrize(
    ("bench", "reason"),
    [
        (lambda: mx(96), "must be 32, 64 or 128. Got: 96"),
        (lambda: mx(w=(64, 2)), "accessed by ifmap 32 should equal number of partitions accessed by weights 64"),
        (lambda: mx(dtypes=("uint8", "int8")), "it has 1 operands of scales"),
        (lambda: mx(xs=(32, 4)), "`in 2` has 128 scales in 32 partitions; expected 3 in each of 32"),
        (lambda: mx(xs=(64, 3)), "`in 2` has 192 scales in 64 partitions"),
        (lambda: mx(w=(32, 129), ws=(32, 129)), "a product of 129x32x3 exceeds the array's 128x128x4096"),
    ],
)
def test_what_products_refuse(bench: Any, reason: str) -> None:
    assert mx().run()["out"].tolist() == [[0] * 3] * 2
    with pytest.raises(SimulationError, match=reason):
        bench().run()


def test_operands_of_products_are_checked() -> None:
    bench = Bench("core_v4")
    scales = bench.given("s", np.full((48, 2), 127, np.uint8))
    data = bench.given("d", np.zeros((32, 2), np.uint32), "float8_e4m3fn_x4")
    out = bench.output("out", (2, 2), memory="PSUM")
    bench.add("MatmultMx", [data, data, scales[16:], scales[:32]], [out])
    with pytest.raises(SimulationError, match="`in 2` starts at partition 16; expected a multiple of 32 plus 0, 4, 8"):
        bench.run()
    bench = Bench("core_v4")
    scales = bench.given("s", np.full((32, 2), 127, np.uint8))
    plain = bench.given("p", np.zeros((32, 8), f32))
    out = bench.output("out", (2, 2), memory="PSUM")
    bench.add("MatmultMx", [plain, plain, scales, scales], [out])
    with pytest.raises(SimulationError, match="`in 0` is `float32`; expected one of float4_e2m1fn_x4"):
        bench.run()
    bench = Bench("core_v4")
    data = bench.given("d", np.zeros((32, 6), np.uint8).view(HELD["float8e5"]))
    scales = bench.given("s", np.full((32, 2), 127, np.uint8))
    bench.add("MatmultMx", [data, data, scales, scales], [bench.output("out", (2, 2), memory="PSUM")])
    with pytest.raises(SimulationError, match="rows of 6 elements, no multiple of 4"):
        bench.run()


def test_scales_have_to_be_written_where_they_count() -> None:
    bench = Bench("core_v4")
    data = bench.given("d", np.zeros((32, 2), np.uint32), "float8_e4m3fn_x4")
    scales, four = bench.scratch("s", (32, 2), "uint8"), bench.given("four", np.full((4, 2), 127, np.uint8))
    out = bench.output("out", (2, 2), memory="PSUM")
    bench.add("TensorCopy", [four[:3]], [scales[:3]])
    bench.add("MatmultMx", [data, data, scales, scales], [out], name="early")
    with pytest.raises(SimulationError, match="reads scales of `s` that were never written"):
        bench.run()
    bench = Bench("core_v4")
    data = bench.given("d", np.zeros((32, 2), np.uint32), "float8_e4m3fn_x4")
    scales, four = bench.scratch("s", (32, 2), "uint8"), bench.given("four", np.full((4, 2), 127, np.uint8))
    out = bench.output("out", (2, 2), memory="PSUM")
    bench.add("TensorCopy", [four], [scales[:4]])
    bench.add("MatmultMx", [data, data, scales, scales], [out])
    assert bench.run()["out"].tolist() == [[0, 0], [0, 0]]


# -- quantisation ----

GREATEST = {"float4_e2m1fn": 2, "float8_e4m3fn": 8, "float8_e5m2": 15}


def exponent(number: float) -> int:
    """The exponent of a float32 with its bias; 0 for numbers without a leading one."""
    return int(np.array(number, f32).view(np.uint32) >> 23) & 0xFF


def nearest(name: str, number: float) -> int:
    """The bit pattern whose value is nearest, of two the even one; numbers out of range have the greatest."""
    half, known, values = table(name)
    sign = half if np.signbit(number) else 0
    distance = np.abs(values - min(abs(number), values.max()))
    return sign | min(known[distance == distance.min()].tolist(), key=lambda code: code % 2)


@cache
def table(name: str) -> tuple[int, Array, Array]:
    """The bit patterns without a sign, of how many there are, and their values."""
    half = 8 if name == "float4_e2m1fn" else 128
    known = [int(code) for code in codes(name) if code < half]
    return half, np.array(known), np.array([value(name, code) for code in known])


def quantised(name: str, x: Array) -> tuple[Array, Array]:
    """Elements as bit patterns, and exponents, by the definition."""
    partitions, groups = x.shape[0], x.shape[1] // 4
    elements, exponents = np.zeros((partitions, groups, 4), np.uint8), np.zeros((partitions // 8, groups), np.uint8)
    for block, g in np.ndindex(exponents.shape):
        group = x[8 * block : 8 * block + 8, 4 * g : 4 * g + 4].astype(f32)
        chosen = max(1, max(0, max(exponent(v) for v in group.flat) - GREATEST[name]))
        exponents[block, g] = chosen
        for p, q in np.ndindex(8, 4):
            elements[8 * block + p, g, q] = nearest(name, float(group[p, q]) * 2.0 ** (127 - chosen))
    return elements, exponents


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("partitions", [32, 128])
def test_quantisation(name: str, dtype: str, partitions: int) -> None:
    x = (rng.standard_normal((partitions, 8)) * 2.0 ** rng.integers(-6, 7, (partitions, 8))).astype(HELD[dtype])
    x[:8, :4] = 0
    bench = Bench("core_v4")
    outs = [
        bench.output("out", (partitions, 2), "uint16" if name == "float4_e2m1fn" else "uint32"),
        bench.output("scales", (partitions, 2), "uint8", fill=99),
    ]
    as_packed = outs[0].access(dtype=f"{name}_x4")
    bench.add("QuantizeMx", [bench.given("x", x)], [as_packed, outs[1]])
    found = bench.run()
    elements, exponents = quantised(name, x)
    assert np.array_equal(found["out"], packed(name, elements))
    assert np.array_equal(found["scales"], scales_of(exponents))


@pytest.mark.parametrize("name", EIGHT)
def test_quantisation_to_elements_one_by_one(name: str) -> None:
    x = rng.standard_normal((32, 12)).astype(HELD["bfloat16"])
    spelled = "float8e5" if name == "float8_e5m2" else name
    bench = Bench("core_v4")
    outs = [bench.output("out", (32, 12), spelled), bench.output("scales", (64, 3), "uint8", fill=99)]
    scales = outs[1][12:44]
    bench.add("QuantizeMx", [bench.given("x", x)], [outs[0], scales])
    found = bench.run()
    elements, exponents = quantised(name, x)
    assert np.array_equal(found["out"].view(np.uint8), elements.reshape(32, 12))
    wanted = np.full((64, 3), 99)
    wanted[12:16] = exponents
    assert np.array_equal(found["scales"], wanted)


def test_large_and_small_numbers() -> None:
    x = np.zeros((32, 12), f32)
    x[0, :4] = [np.inf, -np.inf, 1.0, 3e38]
    x[8, 4:8] = [1e-40, -1e-45, 2.0**-126, 0]
    x[16, 8:12] = [np.nan, 1, 2, -3]
    bench = Bench("core_v4")
    outs = [bench.output("out", (32, 12), "float8e5"), bench.output("scales", (32, 3), "uint8", fill=0)]
    bench.add("QuantizeMx", [bench.given("x", x)], outs)
    found = bench.run()
    assert found["scales"][:4].tolist() == [[240, 1, 1], [1, 1, 1], [1, 1, 240], [1, 1, 1]]
    out = found["out"].astype(f32)
    assert out[0, :3].tolist() == [57344, -57344, 0]
    assert out[0, 3] == 28672  # 3e38 / 2**113 is 28911
    assert out[8, 4:].tolist() == [2**-7, 0, 1, 0, 0, 0, 0, 0]  # 1e-40 * 2**126 is 0.0085
    assert np.array_equal(out[16, 8:], [np.nan, 0, 0, 0], equal_nan=True)


def quantise(x: Array, out: tuple[int, int], dtype: str, scales: tuple[int, int], held: str = "uint8") -> Bench:
    bench = Bench("core_v4")
    outs = [bench.output("out", out, dtype), bench.output("scales", scales, held, fill=0)]
    bench.add("QuantizeMx", [bench.given("x", x)], outs)
    return bench


@pytest.mark.parametrize(
    ("x", "out", "dtype", "scales", "reason"),
    [
        (np.ones((32, 8), np.int16), (32, 8), "float8e5", (32, 2), "`in 0` is `int16`; expected a float dtype"),
        (np.ones((16, 8), f32), (16, 8), "float8e5", (16, 2), "has 16 partitions"),
        (np.ones((32, 6), f32), (32, 6), "float8e5", (32, 2), "rows of 6 elements with the step 1"),
        (np.ones((32, 8), f32), (32, 8), "float8e4", (32, 2), "`out 0` is `float8e4`; expected one of"),
        (np.ones((32, 8), f32), (32, 4), "float8e5", (32, 2), "accesses 256 elements and Output AP accesses 128"),
        (np.ones((32, 8), f32), (32, 8), "float8e5", (32, 3), "has 96 scales in 32 partitions; expected 2 in each"),
    ],
)
def test_what_quantisation_refuses(x: Array, out: Any, dtype: str, scales: Any, reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        quantise(x, out, dtype, scales).run()


def test_more_that_quantisation_refuses() -> None:
    with pytest.raises(SimulationError, match="`out 1` is `int8`; expected one of float8_e8m0fnu, uint8"):
        quantise(np.ones((32, 8), f32), (32, 8), "float8e5", (32, 2), "int8").run()
    bench = Bench("core_v4")
    outs = [
        bench.output("out", (32, 2), "uint16").access(dtype="float4_e2m1fn_x4"),
        bench.output("s", (32, 2), "uint8"),
    ]
    bench.add("QuantizeMx", [bench.given("x", np.full((32, 8), np.nan, f32))], outs)
    with pytest.raises(SimulationError, match="a NaN is quantised to 4 bits"):
        bench.run()
    bench = Bench("core_v4")
    outs = [bench.output("out", (32, 8), "float8e5"), bench.output("s", (32, 2), "uint8")]
    bench.add("QuantizeMx", [bench.given("x", np.ones((32, 16), f32))[:, ::2]], outs)
    with pytest.raises(SimulationError, match="rows of 8 elements with the step 2"):
        bench.run()


@pytest.mark.parametrize("name", EIGHT)
def test_quantised_operands_are_multiplied(name: str) -> None:
    """What is quantised and multiplied differs from the product by what rounding to few bits does."""
    x, w = (rng.standard_normal((64, 4 * cols)).astype(HELD["bfloat16"]) for cols in (3, 2))
    bench = Bench("core_v4")
    ins: list[Any] = []
    for title, array in (("x", x), ("w", w)):
        groups = array.shape[1] // 4
        data = bench.scratch(title + "q", (64, groups), f"{name}_x4")
        scales = bench.scratch(title + "s", (64, groups), "float8_e8m0fnu")
        bench.add("QuantizeMx", [bench.given(title, array)], [data, scales])
        ins += [data, scales]
    bench.add("MatmultMx", ins, [bench.output("out", (2, 3), memory="PSUM")])
    xv, wv = (array.astype(np.float64).reshape(64, -1, 4) for array in (x, w))
    wanted, most = np.einsum("kiq,kjq->ij", wv, xv), np.einsum("kiq,kjq->ij", np.abs(wv), np.abs(xv))
    share = {"float8_e4m3fn": 2**-3, "float8_e5m2": 2**-2}[name]
    assert (np.abs(bench.run()["out"] - wanted) <= share * most).all()
