"""Moves between partitions, against loops over single elements."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Array, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(16)

MASKS = {
    "reversed": list(range(31, -1, -1)),
    "one for all": [5] * 32,
    "some kept": [255 if i % 3 == 0 else (7 * i) % 32 for i in range(32)],
    "all kept": [255] * 32,
}


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8", "uint64"])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("partitions", [32, 96, 128])
def test_shuffles(dtype: str, mask: list[int], partitions: int) -> None:
    x, before = (rng.integers(0, 100, (partitions, 5)).astype(HELD[dtype]) for _ in range(2))
    bench = Bench()
    bench.add("StreamShuffle", [bench.given("x", x)], [bench.output("out", x.shape, dtype, fill=before)], mask=mask)
    found = bench.run()["out"]
    for p in range(partitions):
        source = mask[p % 32]
        wanted = before[p] if source == 255 else x[p // 32 * 32 + source]
        assert np.array_equal(found[p], wanted)


def test_shuffles_of_patterns_and_of_part_of_a_block() -> None:
    x, pattern, target = rng.standard_normal((7, 12)).astype(f32), [(12, 7), (6, 2), (-2, 3)], [(9, 7), (-1, 6)]
    mask = [6 - i if i < 7 else 255 for i in range(32)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (7, 9), fill=0)
    bench.add("StreamShuffle", [source.access(pattern, 4)], [out.access(target, 7)], mask=mask)
    wanted = elements(x, pattern, 4).reshape(7, 6)[::-1]
    assert np.array_equal(bench.run()["out"], written(np.zeros((7, 9), f32), target, 7, wanted))


def test_a_shuffle_in_place() -> None:
    x = rng.standard_normal((32, 4)).astype(f32)
    bench = Bench()
    tile = bench.given("tile", x, kind="ExternalOutput")
    bench.add("StreamShuffle", [tile], [tile], mask=MASKS["some kept"])
    wanted = [x[i] if m == 255 else x[m] for i, m in enumerate(MASKS["some kept"])]
    assert np.array_equal(bench.run()["tile"], wanted)


def test_what_is_kept_may_never_have_been_written() -> None:
    bench = Bench()
    tile = bench.scratch("tile", (32, 2))
    mask = [31 - i if i < 16 else 255 for i in range(32)]
    bench.add("StreamShuffle", [bench.given("x", np.arange(64, dtype=f32).reshape(32, 2))], [tile], mask=mask)
    bench.add("TensorCopy", [tile[:16]], [bench.output("out", (16, 2))])
    assert bench.run(nan="raise")["out"][:, 0].tolist() == list(range(62, 30, -2))
    bench.add("TensorCopy", [tile[16:]], [bench.output("more", (16, 2))])
    with pytest.raises(SimulationError, match="never written"):
        bench.run()


def test_bits_stay_as_they_are() -> None:
    bits = rng.integers(0, 2**32, (32, 32), dtype=np.uint32)
    for opcode, more in (("StreamShuffle", {"mask": list(range(32))}), ("StreamTranspose", {})):
        found = single(opcode, [bits.view(f32)], (32, 32), **more).view(np.uint32)
        assert np.array_equal(found, bits if more else bits.T)
        assert np.array_equal(single(opcode, [bits.view(f32)], (32, 32), "uint32", **more), found)


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8"])
@pytest.mark.parametrize("shape", [(32, 32), (32, 96), (96, 32), (128, 64)])
def test_transposes(dtype: str, shape: tuple[int, int]) -> None:
    x = rng.integers(0, 100, shape).astype(HELD[dtype])
    found = single("StreamTranspose", [x], shape, dtype)
    for p, e in np.ndindex(shape):
        assert found[(p & ~31) | (e & 31), (p & 31) | (e & ~31)] == x[p, e]


def test_transposes_of_patterns() -> None:
    x, pattern, target = rng.standard_normal((32, 80)).astype(f32), [(80, 32), (40, 2), (-1, 16)], [(70, 32), (-2, 32)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (32, 70), fill=0)
    bench.add("StreamTranspose", [source.access(pattern, 20)], [out.access(target, 65)])
    wanted = elements(x, pattern, 20).reshape(32, 32).T
    assert np.array_equal(bench.run()["out"], written(np.zeros((32, 70), f32), target, 65, wanted))


def test_a_transpose_in_place() -> None:
    x = rng.standard_normal((64, 32)).astype(f32)
    bench = Bench()
    tile = bench.given("tile", x, kind="ExternalOutput")
    bench.add("StreamTranspose", [tile], [tile])
    assert np.array_equal(bench.run()["tile"], np.vstack([x[:32].T, x[32:].T]))


@pytest.mark.parametrize(
    ("opcode", "x", "out", "more", "reason"),
    [
        ("StreamShuffle", (32, 4), (32, 4), {"mask": [0] * 31}, "expected 32 numbers up to 31, or 255"),
        ("StreamShuffle", (32, 4), (32, 4), {"mask": [32] * 32}, "expected 32 numbers up to 31, or 255"),
        ("StreamShuffle", (8, 4), (8, 4), {"mask": [8] * 32}, "`mask` names partition 8 of an input that has 8"),
        ("StreamShuffle", (32, 4), (32, 5), {"mask": [0] * 32}, "128 elements of 32 partitions are moved to 160 of 32"),
        ("StreamTranspose", (32, 64), (64, 32), {}, "2048 elements of 32 partitions are moved to 2048 of 64"),
        ("StreamTranspose", (32, 33), (32, 33), {}, "32 partitions of 33 elements are transposed"),
        ("StreamTranspose", (16, 32), (16, 32), {}, "16 partitions of 32 elements are transposed"),
    ],
)
def test_what_is_refused(opcode: str, x: Any, out: Any, more: dict[str, Any], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        single(opcode, [np.ones(x, f32)], out, **more)


def moved(source: Any, target: Any) -> Bench:
    bench = Bench()
    a = bench.given("a", np.ones((64, 64), f32))
    out = bench.output("out", (64, 64), fill=0)
    bench.add("StreamTranspose", [source(a)], [target(out)])
    return bench


def test_blocks_start_at_multiples_of_32() -> None:
    with pytest.raises(SimulationError, match="`in 0` starts at partition 16; expected a multiple of 32"):
        moved(lambda a: a[16:48, :32], lambda out: out[:32, :32]).run()
    with pytest.raises(SimulationError, match="`out 0` starts at partition 8"):
        moved(lambda a: a[:32, :32], lambda out: out[8:40, :32]).run()
    assert moved(lambda a: a[32:, :32], lambda out: out[:32, 32:]).run()["out"].sum() == 1024


def test_nothing_is_cast() -> None:
    with pytest.raises(SimulationError, match="`float32` is moved to `bfloat16`, and `StreamTranspose` casts nothing"):
        single("StreamTranspose", [np.ones((32, 32), f32)], (32, 32), "bfloat16")


def test_overlaps_are_a_choice() -> None:
    def made(array: Array) -> Bench:
        bench = Bench()
        tile = bench.given("tile", array, kind="ExternalOutput")
        bench.add("StreamTranspose", [tile[:, :32]], [tile[:, 16:48]])
        return bench

    x = rng.standard_normal((32, 64)).astype(f32)
    with pytest.raises(SimulationError, match="share elements of `tile`, and `StreamTranspose` moves elements"):
        made(x).run()
    assert np.array_equal(made(x).run(readings={"overlap": "snapshot"})["tile"][:, 16:48], x[:, :32].T)
