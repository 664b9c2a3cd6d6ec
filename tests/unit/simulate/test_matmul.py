"""Matrix multiplication, against sums of products in float64."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from arrowir.simulate.opcodes.matmul import product
from tests.simulated import FLOATS, HELD, Bench, elements

f32 = np.float32
rng = np.random.default_rng(2)


def run(x: np.ndarray, w: np.ndarray, before: Any = None, dtype: str = "float32", **keys: Any) -> np.ndarray:
    bench = Bench()
    operands = [bench.given("x", x), bench.given("w", w)]
    out = bench.output("out", (w.shape[1], x.shape[1]), dtype, "PSUM", before)
    bench.add("Matmult", operands, [out], **keys)
    return bench.run()["out"]


def plain(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the sum over k of w[k, m] * x[k, n]."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    return np.array([[(w[:, m] * x[:, n]).sum() for n in range(x.shape[1])] for m in range(w.shape[1])])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("k", "m", "n"), [(1, 1, 1), (5, 3, 7), (128, 2, 9), (32, 64, 8)])
def test_products(dtype: str, k: int, m: int, n: int) -> None:
    x, w = (rng.integers(-4, 5, (k, cols)).astype(f32).astype(HELD[dtype]) for cols in (n, m))
    assert np.array_equal(run(x, w, accumulation_flag=1), plain(x, w))  # whole numbers: exact
    x, w = (rng.standard_normal((k, cols)).astype(HELD[dtype]) for cols in (n, m))
    assert np.allclose(run(x, w, accumulation_flag=1), plain(x, w), rtol=1e-5, atol=1e-4)


def test_the_largest_product() -> None:
    x, w = rng.integers(-3, 4, (128, 512)).astype(f32), rng.integers(-3, 4, (128, 128)).astype(f32)
    assert np.array_equal(run(x, w, accumulation_flag=1), w.astype(np.int64).T @ x.astype(np.int64))


def test_types_may_differ() -> None:
    x, w = rng.integers(-4, 5, (4, 6)).astype(f32), rng.integers(-4, 5, (4, 3)).astype(HELD["bfloat16"])
    assert np.array_equal(run(x, w, accumulation_flag=1), plain(x, w))


@pytest.mark.parametrize(
    ("keys", "adds"),
    [
        ({"accumulation_flag": 0}, False),
        ({"accumulation_flag": 1}, False),
        ({"accumulation_flag": 2}, True),
        ({"accumulation_flag": 3}, False),
        ({}, False),
        ({"start_tensor_calc": True, "stop_tensor_calc": False}, False),
        ({"start_tensor_calc": False, "stop_tensor_calc": True}, True),
    ],
)
def test_what_happens_to_psum(keys: dict[str, Any], adds: bool) -> None:
    x, w = rng.integers(-4, 5, (4, 6)).astype(f32), rng.integers(-4, 5, (4, 3)).astype(f32)
    before = rng.integers(-9, 9, (3, 6)).astype(f32)
    assert np.array_equal(run(x, w, before, **keys), plain(x, w) + (before if adds else 0))


def test_psum_of_bfloat16_is_rounded_after_each_addition() -> None:
    x, w = np.full((1, 1), 2**-8, f32), np.ones((1, 1), f32)
    assert run(x, w, 1, "bfloat16", accumulation_flag=2).astype(f32).tolist() == [[1.0]]


def test_patterns() -> None:
    x, w = rng.integers(-4, 5, (6, 20)).astype(f32), rng.integers(-4, 5, (6, 10)).astype(f32)
    moving, stationary = [(20, 6), (10, 2), (-2, 4)], [(10, 6), (3, 3)]
    bench = Bench()
    a, b = bench.given("x", x), bench.given("w", w)
    out = bench.output("out", (3, 16), memory="PSUM", fill=0)
    bench.add("Matmult", [a.access(moving, 9), b.access(stationary, 1)], [out.access([(16, 3), (2, 8)], 1)])
    wanted = plain(elements(x, moving, 9).reshape(6, 8), elements(w, stationary, 1))
    assert np.array_equal(bench.run()["out"][:, 1::2], wanted)


def test_zero_points_of_bytes() -> None:
    x, w = rng.integers(0, 255, (4, 6)).astype(np.uint8), rng.integers(0, 255, (4, 3)).astype(np.uint8)
    found = run(x, w, accumulation_flag=1, ifmap_quant_offset=128, weights_quant_offset=5)
    assert np.array_equal(found, plain(x.astype(f32) - 128, w.astype(f32) - 5))


def test_bits_do_not_depend_on_the_other_columns() -> None:
    w, x = rng.standard_normal((128, 100)).astype(f32), rng.standard_normal((128, 77)).astype(f32)
    whole = product(w, x)
    assert np.array_equal(whole[:, 16:21], product(w, x[:, 16:21]))
    assert np.array_equal(whole[:, :8], product(w, x[:, :8]))


@pytest.mark.parametrize(
    ("x", "w", "keys", "reason"),
    [
        ((4, 3), (5, 3), {}, "4 and 5 partitions"),
        ((4, 513), (4, 3), {}, "exceeds the array's 128x128x512"),
        ((4, 3), (4, 129), {}, "exceeds the array's"),
        ((4, 3), (4, 3), {"accumulation_flag": 4}, "expected 0 to 3"),
        ((4, 3), (4, 4), {"perf_mode": "DoubleRow"}, "the moving operand has partitions of 3 elements"),
        ((4, 4), (4, 3), {"perf_mode": "DoubleRow"}, "the stationary operand has partitions of 3 elements"),
        ((4, 4), (4, 4), {"perf_mode": "DoubleColumn"}, "the `perf_mode` `DoubleColumn`"),
        ((4, 4), (4, 4), {"replication_num_rows": 2}, "replication_num_rows"),
        ((4, 3), (4, 3), {"is_transpose": True}, "the moving operand is no identity matrix"),
        ((4, 3), (4, 3), {"accumulation_flag": 1, "psum_zero_region": 4}, "`psum_zero_region` is 4"),
        ((4, 3), (4, 3), {"ifmap_quant_offset": 1}, "expected `uint8`"),
        ((4, 3), (4, 3), {"start_tensor_calc": True, "accumulation_flag": 1}, "both `start_tensor_calc` and"),
    ],
)
def test_what_is_refused(x: tuple[int, int], w: tuple[int, int], keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        run(np.ones(x, f32), np.ones(w, f32), **keys)


def test_operands_of_other_types_are_refused() -> None:
    for x, w, name in ((np.int32, f32, "ifmap"), (f32, np.int8, "weights")):
        with pytest.raises(SimulationError, match=f"Invalid {name} data type for matmult"):
            run(np.ones((2, 2), x), np.ones((2, 2), w))


def test_outputs_have_the_size_of_the_product() -> None:
    bench = Bench()
    x, w = bench.given("x", np.ones((2, 3), f32)), bench.given("w", np.ones((2, 4), f32))
    bench.add("Matmult", [x, w], [bench.output("out", (4, 4), memory="PSUM")])
    with pytest.raises(SimulationError, match="the product has 12 elements, and the output 16"):
        bench.run()


def test_only_psum_accumulates() -> None:
    bench = Bench()
    x, w = bench.given("x", np.ones((2, 3), f32)), bench.given("w", np.ones((2, 4), f32))
    bench.add("Matmult", [x, w], [bench.output("out", (4, 3), fill=0)], accumulation_flag=2)
    with pytest.raises(SimulationError, match="`out` is not in PSUM"):
        bench.run()


def test_accumulating_on_what_was_never_written_is_refused() -> None:
    with pytest.raises(SimulationError, match="never written"):
        run(np.ones((2, 3), f32), np.ones((2, 3), f32), accumulation_flag=2)


def test_how_float32r_is_rounded_is_a_choice() -> None:
    def made(dtype: str) -> Bench:
        bench = Bench()
        x = bench.given("x", np.full((2, 3), 1.5, f32), "float32r")
        w = bench.given("w", np.full((2, 4), 2, f32), dtype)
        bench.add("Matmult", [x, w], [bench.output("out", (4, 3), memory="PSUM")], accumulation_flag=1)
        return bench

    with pytest.raises(SimulationError, match="undecided: a product rounds operands of `float32r`"):
        made("float32r").run()
    assert made("float32r").run(readings={"float32r": "unrounded"})["out"].tolist() == [[6] * 3] * 4
    with pytest.raises(SimulationError, match="one operand is `float32r` and the other is not"):
        made("float32").run()


# -- flags that change no values ----


def test_operands_of_zeros_and_ones() -> None:
    x, w = rng.integers(0, 2, (4, 6)).astype(f32), rng.integers(0, 2, (4, 3)).astype(f32)
    assert np.array_equal(run(x, w, is_fmap_onezero=True, is_weight_onezero=True), plain(x, w))
    for key in ("is_fmap_onezero", "is_weight_onezero"):
        with pytest.raises(SimulationError, match=rf"`{key}` is set, and the operand holds 2\.0"):
            run(x + 2 * (key == "is_fmap_onezero"), w + 2 * (key == "is_weight_onezero"), **{key: True})


def test_tiles_change_nothing() -> None:
    x, w = rng.integers(-4, 5, (4, 6)).astype(f32), rng.integers(-4, 5, (4, 3)).astype(f32)
    assert np.array_equal(run(x, w, tile_size=[32, 32], tile_position=[0, 64]), plain(x, w))


# -- performance modes ----


def doubled(x: np.ndarray, w: np.ndarray, *, interleaved: bool) -> np.ndarray:
    """The sum over both rows of each partition; the moving operand has its rows one after the other."""
    n, m = x.shape[1] // 2, w.shape[1] // 2
    out = np.zeros((m, n))
    for row in (0, 1):
        stationary = w[:, row::2] if interleaved else w[:, row * m : row * m + m]
        out += plain(x[:, row * n : row * n + n], stationary)
    return out


@pytest.mark.parametrize("dtype", ["float8e4", "float8e5", "bfloat16", "float32"])
@pytest.mark.parametrize(("k", "m", "n"), [(1, 1, 1), (5, 3, 7), (128, 16, 9), (32, 128, 8)])
def test_performance_modes(dtype: str, k: int, m: int, n: int) -> None:
    x, w = (rng.integers(-3, 4, (k, 2 * cols)).astype(HELD[dtype]) for cols in (n, m))

    def found(mode: str, **readings: str) -> np.ndarray:
        bench = Bench()
        out = bench.output("out", (m, n), memory="PSUM")
        bench.add("Matmult", [bench.given("x", x), bench.given("w", w)], [out], accumulation_flag=1, perf_mode=mode)
        return bench.run(readings=readings)["out"]

    assert np.array_equal(found("DoubleRowSwInterleave"), doubled(x, w, interleaved=True))
    assert np.array_equal(found("DoubleRow", double_row="rows"), doubled(x, w, interleaved=False))
    assert np.array_equal(found("DoubleRow", double_row="interleaved"), doubled(x, w, interleaved=True))
    assert np.array_equal(found("DoublePixel", double_pixel="rows"), doubled(x, w, interleaved=False))
    if m > 1 and k > 1:
        with pytest.raises(SimulationError, match="undecided: a `Matmult` with the `perf_mode` `DoubleRow`"):
            found("DoubleRow")
    with pytest.raises(SimulationError, match="undecided: a `Matmult` with the `perf_mode` `DoublePixel`"):
        found("DoublePixel")


def test_double_rows_that_do_not_differ_need_no_choice() -> None:
    x, w = rng.integers(-3, 4, (4, 6)).astype(f32), np.full((4, 8), 2, f32)
    bench = Bench()
    out = bench.output("out", (4, 3), memory="PSUM")
    bench.add("Matmult", [bench.given("x", x), bench.given("w", w)], [out], perf_mode="DoubleRow")
    assert np.array_equal(bench.run()["out"], doubled(x, w, interleaved=False))


# -- float32r ----


def test_float32r_may_be_rounded_to_ten_bits() -> None:
    x = (rng.standard_normal((3, 5)) * 10.0 ** rng.integers(-3, 4, (3, 5))).astype(f32)
    x[0, :4] = [1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-10, np.inf]
    bench = Bench()
    ins = [bench.given("x", x, "float32r"), bench.given("w", np.eye(3, dtype=f32)[:, :1].copy(), "float32r")]
    bench.add("Matmult", ins, [bench.output("out", (1, 5), memory="PSUM")], accumulation_flag=1)
    found = bench.run(readings={"float32r": "tf32"})["out"]
    for value, out in zip(x[0].tolist(), found[0].tolist(), strict=True):
        if np.isinf(value):
            assert out == value
            continue
        fraction, exponent = np.frexp(value)
        assert out == np.ldexp(np.rint(fraction * 2048), exponent - 11)  # 11 bits with the leading one
    assert found[0, :3].tolist() == [1, 1 + 2**-9, 1 + 2**-10]


# -- transposes ----


def transposed(arch: str, data: np.ndarray, moving: np.ndarray, dtype: str, **keys: Any) -> Bench:
    bench = Bench(arch)
    ins = [bench.given("moving", moving), bench.given("data", data)]
    out = bench.output("out", (data.shape[1], moving.shape[1]), dtype, "PSUM", 3)
    bench.add("Matmult", ins, [out], is_transpose=True, **keys)
    return bench


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("k", "m"), [(1, 1), (3, 8), (128, 5)])
@pytest.mark.parametrize("flag", [0, 1])
@pytest.mark.parametrize("arch", ["gen3", "trn3"])
def test_transposes(dtype: str, k: int, m: int, flag: int, arch: str) -> None:
    data = rng.standard_normal((k, m)).astype(HELD[dtype])
    data[0, 0] = np.nan
    found = transposed(arch, data, np.eye(k).astype(HELD[dtype]), dtype, accumulation_flag=flag).run()["out"]
    size = np.dtype(f"u{data.dtype.itemsize}")
    assert np.array_equal(found.view(size), data.T.copy().view(size))


def test_a_transpose_is_a_product_in_older_architectures() -> None:
    data, moving = rng.integers(-4, 5, (4, 3)).astype(f32), rng.integers(-4, 5, (4, 6)).astype(f32)
    assert np.array_equal(transposed("trn1", data, moving, "float32").run()["out"], plain(moving, data))


@pytest.mark.parametrize(
    ("data", "moving", "out", "keys", "reason"),
    [
        ("float32", "float32", "bfloat16", {}, r"\(moving input float32 != output bfloat16\)"),
        ("bfloat16", "float32", "float32", {}, r"\(stationary input bfloat16 != output float32\)"),
        ("float32", "float32", "float32", {"accumulation_flag": 2}, "a transpose that is added"),
        ("float32", "float32", "float32", {"perf_mode": "DoubleRow"}, "a transpose with the `perf_mode`"),
    ],
)
def test_what_transposes_refuse(data: str, moving: str, out: str, keys: dict[str, Any], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        transposed("gen3", np.ones((4, 3), HELD[data]), np.eye(4).astype(HELD[moving]), out, **keys).run()


def test_a_transpose_needs_as_many_partitions() -> None:
    with pytest.raises(SimulationError, match="the operands have 4 and 5 partitions"):
        transposed("gen3", np.ones((5, 3), f32), np.eye(4, dtype=f32), "float32").run()


# -- what a start zeroes ----


def banks(
    power: int, offset: int = 0, bank: int = 0, written: bool = True, flag: int = 1, addr: int | None = None
) -> Bench:
    bench = Bench()
    x, w = bench.given("x", np.full((2, 4), 2, f32)), bench.given("w", np.ones((2, 3), f32))
    tile = bench.function.tensor("tile", "PSUM", (5, 2048), "float32", kind="ExternalOutput", bank=bank, addr=addr)
    if written:
        bench.content["tile"] = np.full((5, 2048), 7, f32)
    target = tile.access([(2048, 3), (-1, 4)], offset + 2048 + 3)
    bench.add("Matmult", [x, w], [target], accumulation_flag=flag, psum_zero_region=power)
    return bench


@pytest.mark.parametrize(
    ("power", "offset", "bank", "zeroed"),
    [
        (1, 0, 0, (0, 1024)),
        (1, 520, 0, (0, 1024)),
        (1, 600, 1, (512, 1536)),
        (2, 1500, 0, (0, 2048)),
        (1, 8, 1, (0, 512)),
    ],
)
def test_several_banks_are_a_choice(power: int, offset: int, bank: int, zeroed: tuple[int, int]) -> None:
    with pytest.raises(SimulationError, match=f"a start zeroes {2**power} banks, in which `tile` holds more"):
        banks(power, offset, bank).run()
    wanted = np.full((5, 2048), 7, f32)
    wanted[1:4, offset : offset + 4] = 4
    assert np.array_equal(banks(power, offset, bank).run(readings={"psum_zero_region": "output"})["tile"], wanted)
    wanted[1:4, zeroed[0] : zeroed[1]] = 0
    wanted[1:4, offset : offset + 4] = 4
    assert np.array_equal(banks(power, offset, bank).run(readings={"psum_zero_region": "banks"})["tile"], wanted)


@pytest.mark.parametrize("addr", [0, 2048])
def test_the_address_counts_from_the_bank_or_lies_in_it(addr: int) -> None:
    wanted = np.full((5, 2048), 7, f32)
    wanted[1:4, 512:1536] = 0
    wanted[1:4, 600:604] = 4
    assert np.array_equal(banks(1, 600, 1, addr=addr).run(readings={"psum_zero_region": "banks"})["tile"], wanted)


def test_what_holds_nothing_else_needs_no_choice() -> None:
    assert banks(0).run()["tile"][1, :5].tolist() == [4, 4, 4, 4, 7]
    assert banks(1, flag=0).run()["tile"][1, :5].tolist() == [4, 4, 4, 4, 7]
    assert banks(1, flag=2).run()["tile"][1, :5].tolist() == [11, 11, 11, 11, 7]
    bench = banks(3, written=False)
    assert np.count_nonzero(bench.run(until="I-1").content("tile")[1:4] == 4) == 12
