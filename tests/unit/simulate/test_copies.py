"""Copies and constants, against indexing of plain arrays."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import HELD, Bench, elements, single, written

COPIES = ("Load", "Save", "TensorCopy", "GenericCopy", "AbstractCopy", "DMACopy", "DMADescriptorCopy")
rng = np.random.default_rng(7)


def keys(opcode: str) -> dict[str, Any]:
    return {"mode": "Copy"} if opcode == "DMACopy" else {}


def some(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return rng.integers(0, 100, shape).astype(np.float32).astype(HELD[dtype])


@pytest.mark.parametrize("opcode", COPIES)
@pytest.mark.parametrize("shape", [(1, 7), (3, 5, 4), (32, 2), (128, 6)])
def test_a_whole_tensor_is_copied(opcode: str, shape: tuple[int, ...]) -> None:
    given = rng.standard_normal(shape).astype(np.float32)
    assert np.array_equal(single(opcode, [given], shape, **keys(opcode)), given)


ACCESSES = [
    ([(12, 4), (1, 12)], 0, [(12, 4), (1, 12)], 0),
    ([(12, 4), (-1, 12)], 11, [(12, 4), (1, 12)], 0),
    ([(12, 2), (-3, 4), (1, 3)], 21, [(12, 4), (1, 6)], 3),
    ([(24, 2), (0, 3), (2, 5)], 1, [(12, 3), (1, 10)], 12),
    ([(12, 3), (4, 3), (2, 2), (1, 2)], 12, [(12, 4), (-1, 9)], 10),
]


@pytest.mark.parametrize(("source", "at", "target", "to"), ACCESSES)
@pytest.mark.parametrize("memories", [("SB", "SB"), ("DRAM", "SB"), ("SB", "DRAM"), ("PSUM", "SB")])
def test_elements_are_matched_by_their_order(
    source: list[tuple[int, int]], at: int, target: list[tuple[int, int]], to: int, memories: tuple[str, str]
) -> None:
    before, given = some((4, 12), "int16"), some((4, 12), "int16")
    bench = Bench()
    a, out = bench.given("a", given, memory=memories[0]), bench.output("out", (4, 12), "int16", memories[1], before)
    bench.add("DMACopy", [a.access(source, at)], [out.access(target, to)], mode="Copy")
    assert np.array_equal(bench.run()["out"], written(before, target, to, elements(given, source, at)))


@pytest.mark.parametrize("of", HELD)
def test_a_copy_to_another_type_is_a_cast_of_the_values(of: str) -> None:
    given = rng.integers(0, 9, (3, 5)).astype(np.float32).astype(HELD[of])  # exact in every type
    bench = Bench()
    source = bench.given("a", given)
    for to in HELD:
        bench.add("TensorCopy", [source], [bench.output(to, (3, 5), to)])
    for to, found in bench.run().items():
        assert found.dtype == HELD[to]
        assert np.array_equal(found.astype(np.float32), given.astype(np.float32))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8e4", "float32"])
def test_a_copy_to_the_same_type_moves_the_bits(dtype: str) -> None:
    size = np.dtype(HELD[dtype]).itemsize
    bits = rng.integers(0, 1 << 8 * size, (4, 64), dtype=np.uint64).astype(f"u{size}")
    found = single("TensorCopy", [bits.view(HELD[dtype])], (4, 64), dtype)
    assert np.array_equal(found.view(f"u{size}"), bits)  # NaNs too


@pytest.mark.parametrize("dtype", ["float8_e4m3fn_x4", "float8_e8m0fnu", "float4_e2m1fn_x4", "float32r"])
def test_types_that_are_not_computed_with_are_moved(dtype: str) -> None:
    from arrowir.simulate.dtypes import dtype as known

    bench = Bench()
    bits = rng.integers(0, 255, (2, 3 * known(dtype).size)).astype(np.uint8).view(known(dtype).numpy)
    a, out = bench.given("a", bits, dtype), bench.output("out", (2, 3), dtype)
    bench.add("TensorCopy", [a], [out])
    assert np.array_equal(bench.run()["out"].view(np.uint8), bits.view(np.uint8))


def test_the_bytes_are_read_by_the_type_of_the_access() -> None:
    given = rng.standard_normal((3, 4)).astype(np.float32)
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (3, 8), "uint16")
    bench.add("TensorCopy", [a.access([(8, 3), (1, 8)], dtype="uint16")], [out])
    assert np.array_equal(bench.run()["out"], given.view(np.uint16))


def test_rounding_is_to_nearest_even() -> None:
    given = np.array([[1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8 - 2**-20]], np.float32)
    assert single("TensorCopy", [given], (1, 3), "bfloat16").astype(np.float32).tolist() == [
        [1.0, 1 + 2**-6, -1 - 2**-7]
    ]


def test_casts_of_large_integers_are_a_choice() -> None:
    bench = Bench()
    a, out = bench.given("a", np.array([[2**24 + 1, 5]], np.int32)), bench.output("out", (1, 2), "int64")
    bench.add("TensorCopy", [a], [out])
    with pytest.raises(SimulationError, match="16777217 is no value of float32"):
        bench.run()
    assert bench.run(readings={"integer_arithmetic": "exact"})["out"].tolist() == [[2**24 + 1, 5]]
    assert bench.run(readings={"integer_arithmetic": "float32"})["out"].tolist() == [[2**24, 5]]


def test_counts_must_agree() -> None:
    with pytest.raises(SimulationError, match="12 elements are copied to 6"):
        single("TensorCopy", [np.zeros((3, 4), np.float32)], (3, 2))


def test_other_modes_of_memset_and_patterns_of_other_sizes_are_refused() -> None:
    with pytest.raises(SimulationError, match="300 is no bit pattern of `uint8`"):
        single("Memset", [], (1, 2), "uint8", mode="Const", constant=300)


@pytest.mark.parametrize("dtype", HELD)
def test_memset_writes_a_bit_pattern(dtype: str) -> None:
    size = np.dtype(HELD[dtype]).itemsize
    bits = int(np.array(3, np.float32).astype(HELD[dtype]).view(f"u{size}"))
    bench = Bench()
    out = bench.output("out", (2, 5), dtype, fill=1)
    bench.add("Memset", [], [out[:, 1::2]], mode="Const", constant=bits)
    assert bench.run()["out"].astype(np.float32).tolist() == [[1, 3, 1, 3, 1]] * 2


# -- what was never written ----


def test_unwritten_elements_are_not_read() -> None:
    bench = Bench()
    tile, out = bench.scratch("tile", (2, 4)), bench.output("out", (2, 4))
    bench.add("Memset", [], [tile[:, :3]], mode="Const", constant=0)
    bench.add("TensorCopy", [tile], [out], name="reads")
    with pytest.raises(
        SimulationError, match=r"reads 2 of 8 elements of `tile` that were never written, first \[0, 3\]"
    ):
        bench.run()


def test_unwritten_elements_are_copied_as_such() -> None:
    bench = Bench()
    tile, middle, out = bench.scratch("tile", (2, 4)), bench.scratch("middle", (2, 4)), bench.output("out", (2, 3))
    bench.add("Memset", [], [tile[:, :3]], mode="Const", constant=0)
    bench.add("TensorCopy", [tile], [middle], can_read_uninit=True)
    bench.add("TensorCopy", [middle[:, :3]], [out])
    assert bench.run()["out"].tolist() == [[0, 0, 0]] * 2
    bench.add("TensorCopy", [middle[:, 1:]], [out], name="late")
    with pytest.raises(SimulationError, match="2 of 6 elements of `middle`"):
        bench.run()
    assert bench.run(readings={"uninitialized": "zeros"})["out"].tolist() == [[0, 0, 0]] * 2
    ones = bench.run(readings={"uninitialized": "ones"})["out"]
    assert ones[:, 2].view(np.uint32).tolist() == [0xFFFFFFFF] * 2


# -- overlaps ----


def test_a_copy_that_would_read_what_it_wrote_is_a_choice() -> None:
    bench = Bench()
    tile = bench.given("tile", np.arange(5, dtype=np.float32)[None], kind="ExternalOutput")
    bench.add("TensorCopy", [tile[:, :4]], [tile[:, 1:]])
    with pytest.raises(SimulationError, match="read after they are written; choose `readings="):
        bench.run()
    assert bench.run(readings={"overlap": "snapshot"})["tile"].tolist() == [[0, 0, 1, 2, 3]]


def test_a_copy_towards_the_front_is_none() -> None:
    bench = Bench()
    tile = bench.given("tile", np.arange(5, dtype=np.float32)[None], kind="ExternalOutput")
    bench.add("TensorCopy", [tile[:, 1:]], [tile[:, :4]])
    assert bench.run()["tile"].tolist() == [[1, 2, 3, 4, 4]]


def test_partitions_are_left_on_request() -> None:
    given = np.arange(8, dtype=np.float32).reshape(2, 4)
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (1, 8))
    bench.add("TensorCopy", [a.access([(8, 1), (1, 8)])], [out])
    with pytest.raises(SimulationError, match="runs over the end of a partition"):
        bench.run()
    assert bench.run(readings={"partition_crossing": "linear"})["out"].tolist() == [list(range(8))]
