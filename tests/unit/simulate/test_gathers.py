"""Gathers within partitions and copies with a dynamic offset, against loops over plain arrays."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import HELD, Array, Bench, Pattern, elements, written

rng = np.random.default_rng(3)
f32 = np.float32


def some(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(0, 100, shape).astype(f32).astype(HELD[dtype])


def bits(shape: tuple[int, int], dtype: str) -> Array:
    size = np.dtype(HELD[dtype]).itemsize
    return rng.integers(0, 256, (shape[0], shape[1] * size)).astype(np.uint8).view(HELD[dtype])


def same(one: Array, other: Array) -> bool:
    return np.array_equal(np.ascontiguousarray(one).view(np.uint8), np.ascontiguousarray(other).view(np.uint8))


# -- Gather ----


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("partitions", [1, 3, 32, 128])
def test_gather(dtype: str, partitions: int) -> None:
    data, index = bits((partitions, 9), dtype), rng.integers(0, 9, (partitions, 5)).astype(np.uint32)
    bench = Bench()
    operands = [bench.given("data", data), bench.given("index", index)]
    bench.add("Gather", operands, [bench.output("out", (partitions, 5), dtype)])
    found = bench.run()["out"]
    for p in range(partitions):
        for j in range(5):
            assert same(found[p, j : j + 1], data[p, index[p, j] : index[p, j] + 1])


def test_gather_with_patterns() -> None:
    data, index, before = some((4, 24)), rng.integers(0, 6, (4, 8)).astype(np.uint32), some((4, 12))
    of: Pattern = [(24, 3), (-8, 2), (3, 3)]
    at: Pattern = [(8, 3), (2, 4)]
    to: Pattern = [(12, 3), (-3, 2), (1, 2)]
    bench = Bench()
    a, i = bench.given("data", data), bench.given("index", index)
    out = bench.output("out", (4, 12), fill=before)
    bench.add("Gather", [a.access(of, 33), i.access(at, 9)], [out.access(to, 4)])
    params, numbers = elements(data, of, 33).reshape(3, 6), elements(index, at, 9).reshape(3, 4)
    expected = [[params[p, number] for number in numbers[p]] for p in range(3)]
    assert np.array_equal(bench.run()["out"], written(before, to, 4, np.array(expected)))


def gathered(data: Any, index: Any, out: Any, dtypes: tuple[str, str, str] = ("float32", "uint32", "float32")) -> Bench:
    bench = Bench()
    a, i = bench.given("data", some((4, 12), dtypes[0])), bench.given("index", some((4, 12), dtypes[1]))
    target = bench.output("out", (4, 12), dtypes[2], fill=0)
    bench.add("Gather", [a.access(data), i.access(index)], [target.access(out)])
    return bench


ALL: Pattern = [(12, 4), (1, 12)]
FIVE: Pattern = [(12, 1), (12, 1), (12, 1), (12, 1), (1, 12)]
GATHER_ERRORS: list[tuple[Bench, str]] = [
    (gathered(ALL, ALL, ALL, ("float32", "int32", "float32")), "expects type uint32 for indices: int32"),
    (
        gathered(ALL, ALL, ALL, ("float32", "uint32", "int32")),
        "the same data type for params: float32 and outputs: int32",
    ),
    (gathered(ALL, [(12, 3), (1, 12)], ALL), "the same number of partitions for params: 4 and indices: 3"),
    (gathered(ALL, ALL, [(12, 3), (1, 12)]), "the same number of partitions for params: 4 and outputs: 3"),
    (gathered(ALL, [(12, 4), (1, 5)], ALL), "elements per partition for indices: 5 and outputs: 12"),
    (
        gathered(FIVE, [(12, 1), (1, 12)], [(12, 1), (1, 12)]),
        "maximum 4 dimensions in params access pattern but found 5",
    ),
    (gathered([(12, 1), (1, 12)], FIVE, [(12, 1), (1, 12)]), "maximum 4 dimensions in indices access pattern"),
    (gathered([(12, 1), (1, 12)], [(12, 1), (1, 12)], FIVE), "maximum 4 dimensions in outputs access pattern"),
]


@pytest.mark.parametrize(("bench", "message"), GATHER_ERRORS, ids=range(len(GATHER_ERRORS)))
def test_what_is_wrong_with_a_gather(bench: Bench, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        bench.run()


@pytest.mark.parametrize(("opcode", "members"), [("Gather", {}), ("IndirectCopy", {"num_valid_indices": 2})])
def test_indices_are_checked(opcode: str, members: dict[str, int]) -> None:
    bench = Bench()
    index = np.array([[0, 1], [2, 3]], np.uint32)
    operands = [bench.given("data", some((2, 3))), bench.given("index", index)]
    bench.add(opcode, operands, [bench.output("out", (2, 2))], **members)
    with pytest.raises(
        SimulationError,
        match="Parameter index 3 is equal to or greater than parameters per partition 3 at partition 1 and index 1",
    ):
        bench.run()


def test_a_gather_into_its_data_is_a_choice() -> None:
    given, index = some((2, 4)), np.array([[3, 2, 1, 0], [0, 0, 0, 0]], np.uint32)
    bench = Bench()
    a, i = bench.given("a", given, kind="ExternalOutput"), bench.given("index", index)
    bench.add("Gather", [a, i], [a])
    with pytest.raises(SimulationError, match="`in 0` and `out 0` share elements of `a`"):
        bench.run()
    expected = [given[0, ::-1].tolist(), [given[1, 0]] * 4]
    assert bench.run(readings={"overlap": "snapshot"})["a"].tolist() == expected


def test_only_what_is_gathered_has_to_be_written() -> None:
    bench = Bench()
    tile, out = bench.scratch("tile", (1, 4)), bench.output("out", (1, 2))
    bench.add("Memset", [], [tile[:, :2]], mode="Const", constant=0)
    bench.add("Gather", [tile, bench.given("i", np.array([[1, 0]], np.uint32))], [out])
    assert bench.run()["out"].tolist() == [[0, 0]]
    bench.add("Gather", [tile, bench.given("j", np.array([[1, 3]], np.uint32))], [out])
    with pytest.raises(SimulationError, match="`in 0` reads 1 elements of `tile` that were never written"):
        bench.run()


# -- IndirectCopy ----


def indirect_copy(data: Array, index: Array, width: int, valid: int, fill: float = 7, **options: Any) -> Array:
    bench = Bench()
    dtype = next(name for name, held in HELD.items() if np.dtype(held) == data.dtype)
    operands = [bench.given("data", data), bench.given("index", index)]
    out = bench.output("out", (len(data), width), dtype, fill=fill)
    bench.add("IndirectCopy", operands, [out], num_valid_indices=valid)
    return bench.run(**options)["out"]


@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("index_dtype", ["uint16", "uint32", "uint8"])
def test_indices_of_each_partition(dtype: str, partitions: int, index_dtype: str) -> None:
    data, index = bits((partitions, 9), dtype), rng.integers(0, 9, (partitions, 5)).astype(index_dtype)
    found = indirect_copy(data, index, 6, 4)
    before = np.full((partitions, 6), 7).astype(HELD[dtype])
    for p in range(partitions):
        expected = np.concatenate([data[p, index[p, :4].astype(int)], before[p, 4:]])
        assert same(found[p], expected)


@pytest.mark.parametrize("partitions", [16, 128])
@pytest.mark.parametrize(("columns", "valid", "run"), [(4, 64, 1), (4, 50, 1), (2, 32, 3), (1, 7, 2)])
def test_indices_of_16_partitions(partitions: int, columns: int, valid: int, run: int) -> None:
    data = rng.standard_normal((partitions, 40)).astype(f32)
    index = (rng.integers(0, 40 // run, (partitions, columns)) * run).astype(np.uint16)
    found = indirect_copy(data, index, valid * run, valid, readings={"indirect_copy": "core"})
    for start in range(0, partitions, 16):
        flat = [int(index[start + p, c]) for c in range(columns) for p in range(16)][:valid]
        for p in range(start, start + 16):
            assert found[p].tolist() == [data[p, number + k] for number in flat for k in range(run)]


def test_whose_indices_count_is_a_choice() -> None:
    data, index = some((16, 9)), rng.integers(0, 9, (16, 4)).astype(np.uint16)
    with pytest.raises(SimulationError, match="4 indices in each of 16 partitions; choose"):
        indirect_copy(data, index, 4, 4)
    by_row = indirect_copy(data, index, 4, 4, readings={"indirect_copy": "row"})
    assert np.array_equal(by_row, np.take_along_axis(data, index.astype(int), 1))
    by_core = indirect_copy(data, index, 4, 4, readings={"indirect_copy": "core"})
    assert np.array_equal(by_core, data[:, index[:4, 0]])
    assert np.array_equal(indirect_copy(data, index * 0 + 5, 4, 4), data[:, [5] * 4])


@pytest.mark.parametrize(
    ("partitions", "columns", "width", "valid", "dtype", "message"),
    [
        (3, 4, 4, 5, "uint16", "5 valid indices of 4 for each partition do not fit 4 elements of the output"),
        (3, 4, 3, 4, "uint16", "4 valid indices of 4 for each partition do not fit 3 elements"),
        (3, 4, 3, 0, "uint16", "0 valid indices"),
        (16, 4, 64, 65, "uint16", "65 valid indices of 4"),
        (3, 4, 4, 4, "int32", "the indices are `int32`; expected integers without sign"),
        (3, 4, 4, 4, "float32", "the indices are `float32`; expected integers without sign"),
    ],
)
def test_what_is_wrong_with_an_indirect_copy(
    partitions: int, columns: int, width: int, valid: int, dtype: str, message: str
) -> None:
    with pytest.raises(SimulationError, match=message):
        indirect_copy(some((partitions, 9)), np.zeros((partitions, columns), HELD[dtype]), width, valid)


# -- copies with an offset ----

DYNAMIC = ("TensorCopyDynamicSrc", "TensorCopyDynamicDst")


def dynamic(opcode: str, offset: Any, dtype: str = "float32", to: str | None = None, **members: Any) -> tuple[Any, ...]:
    """Copy three columns of four partitions from or to where an offset says; return what was given, and the result."""
    wide, narrow = some((4, 12), dtype), some((4, 3), dtype)
    bench = Bench()
    readings = members.pop("readings", {"dynamic_copy_offset": "elements"})
    if isinstance(offset, str):
        index = bench.given("offset", np.array([[members.pop("value")]], HELD[offset]))
    else:
        index = bench.register("r", offset)
    into = to or dtype
    if opcode == "TensorCopyDynamicSrc":
        a, out = bench.given("a", wide), bench.output("out", (4, 3), into)
        bench.add(opcode, [a.access([(12, 4), (1, 3)]), index], [out], **members)
    else:
        a, out = bench.given("a", narrow), bench.output("out", (4, 12), into, fill=wide)
        bench.add(opcode, [a, index], [out.access([(12, 4), (1, 3)])], **members)
    return wide, narrow, bench.run(readings=readings)["out"]


def expected_copy(opcode: str, wide: Array, narrow: Array, offset: int, to: Any) -> Array:
    if opcode == "TensorCopyDynamicSrc":
        return wide[:, offset : offset + 3].astype(f32).astype(to)
    out = wide.astype(f32).astype(to)
    out[:, offset : offset + 3] = narrow.astype(f32).astype(to)
    return out


@pytest.mark.parametrize("opcode", DYNAMIC)
@pytest.mark.parametrize("offset", [0, 1, 9])
@pytest.mark.parametrize("dtype", HELD)
def test_an_offset_in_a_register(opcode: str, offset: int, dtype: str) -> None:
    wide, narrow, found = dynamic(opcode, offset, dtype)
    assert np.array_equal(found, expected_copy(opcode, wide, narrow, offset, HELD[dtype]))


@pytest.mark.parametrize("opcode", DYNAMIC)
@pytest.mark.parametrize("dtype", ["uint32", "int32", "uint16", "uint8"])
@pytest.mark.parametrize(("value", "scale"), [(0, 4), (2, 4), (3, 1), (1, 9)])
def test_an_offset_in_memory_is_scaled(opcode: str, dtype: str, value: int, scale: int) -> None:
    wide, narrow, found = dynamic(opcode, dtype, value=value, scale=scale)
    assert np.array_equal(found, expected_copy(opcode, wide, narrow, value * scale, f32))


@pytest.mark.parametrize("opcode", DYNAMIC)
def test_what_an_offset_counts_is_a_choice(opcode: str) -> None:
    with pytest.raises(SimulationError, match="the offset is 8; choose"):
        dynamic(opcode, 8, readings={})
    wide, narrow, found = dynamic(opcode, 8, readings={"dynamic_copy_offset": "bytes"})
    assert np.array_equal(found, expected_copy(opcode, wide, narrow, 2, f32))
    wide, narrow, found = dynamic(opcode, 8, "uint8", readings={})  # elements of one byte
    assert np.array_equal(found, expected_copy(opcode, wide, narrow, 8, np.uint8))
    wide, narrow, found = dynamic(opcode, 0, readings={})
    assert np.array_equal(found, expected_copy(opcode, wide, narrow, 0, f32))
    with pytest.raises(SimulationError, match="an offset of 6 bytes lies within an element of 4 bytes"):
        dynamic(opcode, 6, readings={"dynamic_copy_offset": "bytes"})


@pytest.mark.parametrize("opcode", DYNAMIC)
def test_a_dynamic_copy_casts(opcode: str) -> None:
    wide, narrow, found = dynamic(opcode, 4, "float32", "bfloat16")
    assert np.array_equal(found, expected_copy(opcode, wide, narrow, 4, HELD["bfloat16"]))


@pytest.mark.parametrize("opcode", DYNAMIC)
def test_an_operand_may_have_its_own_offset(opcode: str) -> None:
    given = some((2, 12))
    bench = Bench()
    r = bench.register("r", 2)
    info = {"aff_expr": [{"offset_expr": r.value.json(), "coef": 4}], "c": 1}
    a, out = bench.given("a", given), bench.output("out", (2, 3))
    bench.add(opcode, [a.access([(12, 2), (1, 3)], dynamic_ap_info=info)], [out])
    assert np.array_equal(bench.run()["out"], given[:, 9:12])


@pytest.mark.parametrize("opcode", DYNAMIC)
@pytest.mark.parametrize(
    ("offset", "members", "message"),
    [
        (10, {}, "out of bounds"),
        (-1, {}, "out of bounds"),
        (40, {}, "out of bounds"),
        (2, {"scale": 4}, "`scale` is 4 for an offset in a register, which is not modelled"),
    ],
)
def test_what_is_wrong_with_a_dynamic_copy(opcode: str, offset: int, members: dict[str, int], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        dynamic(opcode, offset, **members)


@pytest.mark.parametrize("opcode", DYNAMIC)
def test_which_operands_a_dynamic_copy_takes(opcode: str) -> None:
    def run(*ins: Any, **members: Any) -> None:
        bench = Bench()
        a = bench.given("a", some((2, 12)))
        bench.add(opcode, [a[:, :3], *ins], [bench.output("out", (2, 3))], **members)
        bench.run()

    with pytest.raises(SimulationError, match="`scale` is 2, and there is no offset that it could multiply"):
        run(scale=2)
    with pytest.raises(SimulationError, match="the offset is a `imm_value`; expected a register or an access to one"):
        run(1)
    run(scale=1)
    bench = Bench()
    a, index = bench.given("a", some((2, 12))), bench.given("i", np.zeros((2, 1), np.uint32))
    bench.add(opcode, [a[:, :3], index], [bench.output("out", (2, 3))])
    with pytest.raises(SimulationError, match="`in 1` has 2 elements; expected one"):
        bench.run()
    bench = Bench()
    a = bench.given("a", some((2, 12)), memory="DRAM")
    info = {"num_tensor_indirect_indices": 2, "aff_expr": []}
    bench.add(opcode, [a.access([(12, 2), (1, 3)], dynamic_ap_info=info)], [bench.output("out", (2, 3))])
    with pytest.raises(SimulationError, match="addressed by a tensor of indices, which is not modelled"):
        bench.run()


def test_a_dynamic_copy_onto_itself_is_a_choice() -> None:
    bench = Bench()
    a, r = bench.given("a", some((1, 6)), kind="ExternalOutput"), bench.register("r", 2)
    bench.add("TensorCopyDynamicSrc", [a[:, :3], r], [a[:, :3]])
    readings = {"dynamic_copy_offset": "elements"}
    with pytest.raises(SimulationError, match="`in 0` and `out 0` share elements of `a`"):
        bench.run(readings=readings)
    given = bench.content["a"][0]
    found = bench.run(readings={**readings, "overlap": "snapshot"})["a"][0]
    assert found.tolist() == [*given[2:5], *given[3:]]


def test_an_offset_beyond_the_partition_is_a_choice() -> None:
    given = some((2, 6))
    bench = Bench()
    a, r, out = bench.given("a", given), bench.register("r", 5), bench.output("out", (1, 3))
    bench.add("TensorCopyDynamicSrc", [a.access([(6, 1), (1, 3)]), r], [out])
    readings = {"dynamic_copy_offset": "elements"}
    with pytest.raises(SimulationError, match="runs over the end of a partition"):
        bench.run(readings=readings)
    found = bench.run(readings={**readings, "partition_crossing": "linear"})["out"]
    assert found.reshape(-1).tolist() == given.reshape(-1)[5:8].tolist()


def test_the_offset_may_change_from_trip_to_trip() -> None:
    given = some((2, 12))
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (2, 12))
    r = bench.register("r", 8)
    with bench.function.loop(0, 3, axis="i") as i:
        bench.add("TensorCopyDynamicSrc", [a[:, :4], r], [out.at(0, 4 * i, pattern=[(12, 2), (1, 4)])])
        bench.add("RegisterAlu", [r, 4], [r], op="subtract")
    found = bench.run(readings={"dynamic_copy_offset": "elements"})["out"]
    assert np.array_equal(found, given[:, [8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3]])
