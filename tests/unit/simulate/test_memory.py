"""Memory: what an access pattern means, its bounds, and the record of what has been written."""

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from arrowir.simulate.dtypes import dtype
from arrowir.simulate.memory import Access, CrossingError, Memory
from tests.simulated import Bench, numbers

PATTERNS = [
    ([(8, 4), (1, 8)], 0),
    ([(8, 3), (2, 4)], 9),
    ([(8, 2), (-1, 8)], 7),
    ([(16, 2), (-2, 3), (1, 2)], 4),
    ([(8, 4), (0, 5), (1, 3)], 2),
    ([(0, 1), (1, 1)], 31),
]


def filled(memory: Memory, values: np.ndarray) -> Memory:
    memory.fill(np.frombuffer(bytearray(values.tobytes()), np.uint8))
    return memory


@pytest.mark.parametrize(("pattern", "offset"), PATTERNS)
@pytest.mark.parametrize("name", ["uint8", "int16", "float32", "int64"])
def test_elements_are_found_by_their_number(pattern: list[tuple[int, int]], offset: int, name: str) -> None:
    held = dtype(name)
    values = np.arange(32, dtype=held.numpy)
    access = Access(filled(Memory("m", 4, 8 * held.size, flat=False), values), held, offset, pattern)
    assert np.array_equal(access.bits().view(held.numpy), values[numbers(pattern, offset)])
    assert np.array_equal(access.numbers(), numbers(pattern, offset).reshape(-1))


@pytest.mark.parametrize(
    ("pattern", "offset"),
    [([(8, 4), (1, 8)], 1), ([(8, 5), (1, 1)], 0), ([(8, 1), (-1, 2)], 0), ([(8, 1), (1, 1)], 32), ([(1, 1)], -1)],
)
def test_what_leaves_the_location_is_refused(pattern: list[tuple[int, int]], offset: int) -> None:
    with pytest.raises(SimulationError, match="out of bounds"):
        Access(Memory("m", 4, 8, flat=True), dtype("uint8"), offset, pattern)


@pytest.mark.parametrize(
    ("pattern", "offset", "reason"),
    [
        ([(8, 3), (1, 9)], 0, "runs over the end of a partition, which has 8 elements"),
        ([(8, 3), (1, 5)], 4, "runs over the end"),
        ([(8, 3), (-1, 2)], 8, "runs over the end"),
        ([(1, 4), (1, 1)], 0, "steps from partition to partition by 1 elements, a partition has 8"),
    ],
)
def test_partitions_are_left_on_request_alone(pattern: list[tuple[int, int]], offset: int, reason: str) -> None:
    memory = filled(Memory("m", 4, 8, flat=False), np.arange(32, dtype=np.uint8))
    with pytest.raises(CrossingError, match=reason):
        Access(memory, dtype("uint8"), offset, pattern)
    linear = Access(memory, dtype("uint8"), offset, pattern, linear=True)
    assert np.array_equal(linear.bits(), numbers(pattern, offset))
    flat = filled(Memory("m", 4, 8, flat=True), np.arange(32, dtype=np.uint8))
    assert np.array_equal(Access(flat, dtype("uint8"), offset, pattern).bits(), numbers(pattern, offset))


def test_other_faults_of_patterns() -> None:
    memory = Memory("m", 4, 8, flat=False)
    with pytest.raises(SimulationError, match="partition step -8"):
        Access(memory, dtype("uint8"), 24, [(-8, 4), (1, 8)])
    with pytest.raises(SimulationError, match="no elements"):
        Access(memory, dtype("uint8"), 0, [(8, 0), (1, 8)])
    with pytest.raises(CrossingError, match="elements of 4 bytes, and partitions of 6"):
        Access(Memory("m", 4, 6, flat=False), dtype("float32"), 0, [(1, 1)])
    with pytest.raises(SimulationError, match="128 partitions from partition 32 on"):
        Access(Memory("m", 128, 8, flat=False, base=32), dtype("uint8"), 0, [(8, 1)])


def test_what_is_too_large_is_refused_before_memory_is_taken() -> None:
    memory = Memory("m", 4, 8, flat=True)
    with pytest.raises(SimulationError, match="1,099,511,627,776 elements: too many"):
        Access(memory, dtype("uint8"), 0, [(0, 1 << 40)])
    bench = Bench()
    bench.add("Memset", [], [bench.scratch("huge", (128, 10**12), memory="DRAM")], mode="Const", constant=0)
    with pytest.raises(SimulationError, match="`huge` has 512,000,000,000,000 bytes; the simulator holds"):
        bench.run()


def test_written_bytes_are_remembered() -> None:
    memory = Memory("m", 2, 8, flat=False)
    half, whole = dtype("uint16"), dtype("uint32")
    access = Access(memory, whole, 0, [(2, 2), (1, 2)])
    assert not access.written().any()  # type: ignore[union-attr]
    Access(memory, half, 1, [(4, 2), (2, 2)]).store(np.zeros((2, 2), np.uint16))
    assert not access.written().any()  # type: ignore[union-attr]
    assert memory.unwritten == 8
    access.store(np.full((2, 2), 7, np.uint32))
    assert access.written() is None
    assert memory.complete
    assert memory.unwritten == 0


@pytest.mark.parametrize("seed", range(20))
def test_the_count_of_unwritten_bytes_is_that_of_the_record(seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory = Memory("m", 4, 16, flat=True)
    plain = np.zeros(64, bool)
    for _ in range(30):
        held = dtype(str(rng.choice(["uint8", "uint16", "uint32", "uint64"])))
        count, step = int(rng.integers(1, 4)), int(rng.integers(0, 3))
        offset = int(rng.integers(0, 64 // held.size - step * (count - 1)))
        access = Access(memory, held, offset, [(step, count)])
        wanted = access.written()
        places = (numbers([(step, count)], offset)[:, None] * held.size + np.arange(held.size)).reshape(count, -1)
        expected = plain[places].all(axis=1)
        assert np.array_equal(np.ones(count, bool) if wanted is None else wanted, expected)
        if rng.random() < 0.7:
            access.store(np.zeros(count, held.unsigned))
            plain[places] = True
        assert memory.unwritten == int((~plain).sum())


def test_of_an_element_that_stands_twice_the_last_value_stays() -> None:
    memory = Memory("m", 1, 16, flat=False)
    access = Access(memory, dtype("uint32"), 0, [(4, 1), (1, 2), (1, 3)])
    assert not access.unique
    access.store(np.arange(6, dtype=np.uint32).reshape(1, 2, 3))
    assert memory.data.view(np.uint32).tolist() == [0, 3, 4, 5]
    assert memory.complete


@pytest.mark.parametrize(
    ("pattern", "unique"),
    [([(8, 4), (1, 8)], True), ([(0, 2), (1, 8)], False), ([(3, 2), (2, 2)], True), ([(2, 3), (1, 3)], False)],
)
def test_whether_elements_stand_twice(pattern: list[tuple[int, int]], unique: bool) -> None:
    access = Access(Memory("m", 4, 8, flat=True), dtype("uint8"), 0, pattern)
    assert access.unique is unique
    assert (len(set(access.numbers().tolist())) == access.count) is unique


def test_marking_elements_as_unwritten_again() -> None:
    memory = filled(Memory("m", 1, 4, flat=False), np.arange(4, dtype=np.uint8))
    access = Access(memory, dtype("uint8"), 1, [(4, 1), (1, 2)])
    access.store(np.zeros((1, 2), np.uint8), np.array([[True, False]]))
    assert memory.unwritten == 1
    assert access.written().tolist() == [[True, False]]  # type: ignore[union-attr]
