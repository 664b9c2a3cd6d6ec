"""Tensors with scalars in memory and running values, against loops over single elements."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arrowir.build import imm
from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Array, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(11)

OPS: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, x: a + x,
    "subtract": lambda a, x: a - x,
    "mult": lambda a, x: a * x,
    "divide": lambda a, x: a / x,
    "max": max,
    "min": min,
    "is_gt": lambda a, x: float(a > x),
    "is_le": lambda a, x: float(a <= x),
    "logical_or": lambda a, x: float(a != 0 or x != 0),
    "abs_max": lambda a, x: max(abs(a), abs(x)),
    "bypass": lambda a, x: a,
    "abs": lambda a, x: abs(a),
    "rsqrt": lambda a, x: 1 / math.sqrt(a),
}


def once(op: str, reverse: bool, value: Any, other: Any) -> np.float32:
    """One operation on two numbers, in float32."""
    a, x = (other, value) if reverse else (value, other)
    return f32(OPS[op](float(a), float(x)))


def keys(op0: str, op1: str, reverse0: bool = False, reverse1: bool = False, **more: Any) -> dict[str, Any]:
    return {"op0": op0, "op1": op1, "reverse0": reverse0, "reverse1": reverse1, **more}


def with_scalars(x: Array, s0: Array, s1: Array, op0: str, op1: str, reverse0: bool, reverse1: bool) -> Array:
    """The definition, element by element; scalars are given for each partition."""
    out = np.empty(x.shape, f32)
    for p in range(len(x)):
        for place in np.ndindex(x.shape[1:]):
            first = once(op0, reverse0, x[(p, *place)], s0[p])
            out[(p, *place)] = once(op1, reverse1, first, s1[p])
    return out


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("op0", "op1"), [("subtract", "divide"), ("mult", "add"), ("is_gt", "max"), ("abs", "rsqrt")])
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_scalars_of_partitions(dtype: str, op0: str, op1: str, reverse0: bool, reverse1: bool) -> None:
    x = (rng.integers(1, 17, (3, 7)) / 4).astype(HELD[dtype])
    s0, s1 = (rng.integers(20, 60, (3, 1)).astype(f32) / 8 for _ in range(2))
    if op1 == "divide" and reverse1:
        s0 += f32(0.0625)  # so that no divisor is 0
    found = single("TensorScalarPtr", [x, s0, s1], x.shape, **keys(op0, op1, reverse0, reverse1))
    assert np.array_equal(found, with_scalars(x.astype(f32), s0[:, 0], s1[:, 0], op0, op1, reverse0, reverse1))


@pytest.mark.parametrize("partitions", [1, 33, 128])
def test_many_partitions(partitions: int) -> None:
    x, s = rng.standard_normal((partitions, 3)).astype(f32), rng.standard_normal((partitions, 2)).astype(f32)
    bench = Bench()
    a, b, out = bench.given("x", x), bench.given("s", s), bench.output("out", x.shape)
    bench.add("TensorScalarPtr", [a, b[:, :1], b[:, 1:]], [out], **keys("mult", "add"))
    assert np.array_equal(bench.run()["out"], with_scalars(x, s[:, 0], s[:, 1], "mult", "add", False, False))


def test_immediates_are_for_all_partitions() -> None:
    x, s = rng.standard_normal((5, 4)).astype(f32), rng.standard_normal((5, 1)).astype(f32)
    bench = Bench()
    a, b, out = bench.given("x", x), bench.given("s", s), bench.output("out", (5, 4))
    bench.add("TensorScalarPtr", [a, b, 2.5], [out], **keys("mult", "subtract", False, True))
    assert np.array_equal(bench.run()["out"], f32(2.5) - x * s)


def test_operations_without_an_operand() -> None:
    x, s = np.array([[1, -4]], f32), np.array([[3]], f32)
    assert single("TensorScalarPtr", [x, s], (1, 2), **keys("mult", "abs")).tolist() == [[3, 12]]
    assert single("TensorScalarPtr", [x], (1, 2), **keys("bypass", "abs")).tolist() == [[1, 4]]
    with pytest.raises(SimulationError, match="`op1` is `add`, and there is no operand 2 for it"):
        single("TensorScalarPtr", [x, s], (1, 2), **keys("mult", "add"))
    with pytest.raises(SimulationError, match="`op1` is `bypass`, and there is no operand 2"):
        single("TensorScalarPtr", [x, s], (1, 2), **keys("mult", "bypass", False, True))


def test_a_scalar_may_be_passed_on() -> None:
    x, s = np.zeros((2, 3), f32), np.array([[3], [4]], f32)
    found = single("TensorScalarPtr", [x, s], (2, 3), **keys("bypass", "bypass", True))
    assert found.tolist() == [[3] * 3, [4] * 3]


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_integers_and_bits(dtype: str) -> None:
    x = rng.integers(0, 60, (4, 9)).astype(dtype)
    s0, s1 = rng.integers(1, 4, (4, 1)).astype(np.int32), rng.integers(0, 255, (4, 1)).astype(np.int32)
    found = single("TensorScalarPtr", [x, s0, s1], x.shape, "int32", **keys("logical_shift_left", "bitwise_xor"))
    assert np.array_equal(found, (x.astype(np.int32) << s0) ^ s1)
    found = single("TensorScalarPtr", [x, s0, s1], x.shape, "int32", **keys("mult", "subtract", False, True))
    assert np.array_equal(found, s1 - x.astype(np.int32) * s0)


@pytest.mark.parametrize(
    ("pattern", "at"), [([(20, 3), (-1, 6)], 12), ([(20, 3), (6, 2), (2, 3)], 3), ([(0, 3), (5, 2), (-1, 3)], 44)]
)
def test_patterns(pattern: list[tuple[int, int]], at: int) -> None:
    x, s = rng.standard_normal((3, 20)).astype(f32), rng.standard_normal((3, 4)).astype(f32)
    before, target = rng.standard_normal((3, 16)).astype(f32), [(16, 3), (3, 2), (-1, 3)]
    bench = Bench()
    a, b, out = bench.given("x", x), bench.given("s", s), bench.output("out", (3, 16), fill=before)
    scalars = [b.access([(4, 3), (1, 1)], 3), b.access([(4, 3), (1, 1)], 1)]
    bench.add("TensorScalarPtr", [a.access(pattern, at), *scalars], [out.access(target, 4)], **keys("add", "mult"))
    given = elements(x, pattern, at).reshape(3, 6)
    wanted = with_scalars(given, s[:, 3], s[:, 1], "add", "mult", False, False)
    assert np.array_equal(bench.run()["out"], written(before, target, 4, wanted))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
def test_scalar_tensor_tensor(dtype: str, reverse0: bool, reverse1: bool) -> None:
    x, y = (rng.integers(1, 17, (5, 6)).astype(HELD[dtype]) for _ in range(2))
    s = rng.integers(20, 40, (5, 1)).astype(f32)
    found = single(
        "TensorScalarPtr", [x, s, y], (5, 6),
        **keys("subtract", "divide", reverse0, reverse1, is_scalar_tensor_tensor=True),
    )  # fmt: skip
    wanted = np.empty((5, 6), f32)
    for p, i in np.ndindex(5, 6):
        wanted[p, i] = once("divide", reverse1, once("subtract", reverse0, x[p, i], s[p, 0]), y[p, i])
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize(("first", "partitions"), [("memory", 33), ("immediate", 1)])
def test_scans(dtype: str, reverse0: bool, reverse1: bool, first: str, partitions: int) -> None:
    x, y = ((rng.integers(1, 9, (partitions, 11)) / 4).astype(HELD[dtype]) for _ in range(2))
    start = np.full((partitions, 1), 1.5, f32) if first == "immediate" else np.ones((partitions, 1), f32)
    start = start if first == "immediate" else start + np.arange(partitions, dtype=f32)[:, None]
    bench = Bench()
    a, b, s = bench.given("x", x), bench.given("y", y), bench.given("s", start)
    out = bench.output("out", x.shape)
    scan = keys("mult", "subtract", reverse0, reverse1, is_tensor_tensor_scan=True)
    bench.add("TensorScalarPtr", [a, s if first == "memory" else 1.5, b], [out], **scan)
    wanted = np.empty(x.shape, f32)
    for p in range(partitions):
        state = start[p, 0]
        for i in range(11):
            state = once("subtract", reverse1, once("mult", reverse0, x[p, i], state), y[p, i])
            wanted[p, i] = state
    assert np.array_equal(bench.run()["out"], wanted)


def test_the_scalar_of_a_scan_is_told_by_its_size() -> None:
    x, y, s = rng.standard_normal((2, 5)).astype(f32), rng.standard_normal((2, 5)).astype(f32), np.ones((2, 1), f32)
    scan = keys("mult", "add", is_tensor_tensor_scan=True)
    one, other = (single("TensorScalarPtr", ins, (2, 5), **scan) for ins in ([x, s, y], [x, y, s]))
    assert np.array_equal(one, other)


def test_a_scan_of_integers() -> None:
    x, start = np.array([[1, 2, 3]], np.int32), np.array([[2]], np.int32)
    scan = keys("mult", "add", is_tensor_tensor_scan=True)
    assert single("TensorScalarPtr", [x, start, x], (1, 3), "int32", **scan).tolist() == [[3, 8, 27]]


def test_addresses_are_integers_of_64_bits() -> None:
    x = np.array([[1 << 60, 5], [-7, 1 << 40]], np.int64)
    s0, s1 = np.array([[1 << 53], [3]], np.int64), np.array([[1 << 62], [1]], np.int64)
    form = keys("add", "mult", is_tensor_scalar_addr=True)
    found = single("TensorScalarPtr", [x, s0, s1], (2, 2), "int64", **form)
    wanted = [[(int(x[p, i]) + int(s0[p, 0])) * int(s1[p, 0]) for i in range(2)] for p in range(2)]
    assert found.tolist() == [[(v + 2**63) % 2**64 - 2**63 for v in row] for row in wanted]
    form = keys("subtract", "bypass", True, is_tensor_scalar_addr=True)
    found = single("TensorScalarPtr", [x.astype(np.uint64), s0.astype(np.uint64)], (2, 2), "uint64", **form)
    assert found.tolist() == [[(int(s0[p, 0]) - int(x[p, i])) % 2**64 for i in range(2)] for p in range(2)]


def blocks(x: Array) -> Array:
    out = np.empty_like(x)
    for p, e in np.ndindex(x.shape):
        out[(p & ~31) | (e & 31), (p & 31) | (e & ~31)] = x[p, e]
    return out


def test_what_apply_transpose_transposes_is_a_choice_where_partitions_differ() -> None:
    x, s = rng.standard_normal((64, 96)).astype(f32), rng.standard_normal((64, 1)).astype(f32)

    def made(scalar: Any) -> Bench:
        bench = Bench()
        operand = bench.given("s", s) if scalar is None else scalar
        out = bench.output("out", (64, 96))
        bench.add("TensorScalarPtr", [bench.given("x", x), operand], [out], **keys("add", "abs", apply_transpose=True))
        return bench

    assert np.array_equal(made(1.5).run()["out"], np.abs(blocks(x) + f32(1.5)))
    with pytest.raises(SimulationError, match="scalars that differ from partition to partition"):
        made(None).run()
    assert np.array_equal(made(None).run(readings={"apply_transpose": "input"})["out"], np.abs(blocks(x) + s))
    assert np.array_equal(made(None).run(readings={"apply_transpose": "result"})["out"], blocks(np.abs(x + s)))


@pytest.mark.parametrize("negate", [False, True])
def test_a_second_output_is_a_choice(negate: bool) -> None:
    x, s = rng.integers(-9, 9, (3, 8)).astype(f32), np.array([[1], [2], [3]], f32)

    def made(acc: str) -> Bench:
        bench = Bench()
        outs = [bench.output("out", (3, 8)), bench.output("sum", (3, 1))]
        ins = [bench.given("x", x), bench.given("s", s)]
        more = keys("mult", "bypass", acc=acc, negate_second_output=negate)
        bench.add("TensorScalarPtr", ins, outs, engine="DVE", **more)
        return bench

    with pytest.raises(SimulationError, match="undecided: a `TensorScalarPtr` has a second output"):
        made("ZeroAccumulate").run()
    found = made("ZeroAccumulate").run(readings={"second_output": "accumulator"})
    assert np.array_equal(found["out"], x * s)
    assert np.array_equal(found["sum"][:, 0], (x * s).sum(axis=1) * (-1 if negate else 1))
    with pytest.raises(SimulationError, match="a second output for the accumulator, and accumulates nothing"):
        made("Idle").run(readings={"second_output": "accumulator"})


@pytest.mark.parametrize("form", ["", "is_scalar_tensor_tensor", "is_tensor_tensor_scan"])
def test_results_go_into_the_accumulator(form: str) -> None:
    x, s = rng.integers(-9, 9, (3, 8)).astype(f32), np.ones((3, 1), f32)
    bench = Bench()
    a, b, tile = bench.given("x", x), bench.given("s", s), bench.output("tile", (3, 8))
    more = keys("add", "bypass", acc="ZeroAccumulate", **({form: True} if form else {}))
    bench.add("TensorScalarPtr", [a, b, *([a] if form else [])], [tile], engine="DVE", **more)
    bench.add("DveReadAccumulator", [], [bench.output("sum", (3, 1))])
    found = bench.run()
    assert np.array_equal(found["sum"][:, 0], found["tile"].sum(axis=1))


x3, s3 = np.ones((3, 4), f32), np.ones((3, 1), f32)


@pytest.mark.parametrize(
    ("ins", "more", "reason"),
    [
        ([x3, np.ones((2, 1), f32)], {}, "`in 1` has 2 elements; expected 3, one for each partition"),
        ([x3, x3], {}, "`in 1` has 12 elements; expected 3"),
        ([x3, s3], {"negate_second_output": True}, "there is no second output"),
        ([x3, s3], {"acc": "Accumulate"}, "InstTensorScalarPtr does not support EngineAccumulationType Accumulate"),
        ([x3, s3], {"acc": "ZeroAccumulate"}, "not known whose accumulator"),
        ([x3, s3], {"apply_transpose": True}, "3 partitions of 4 elements are transposed"),
        (
            [x3, s3, x3],
            {"is_scalar_tensor_tensor": True, "is_tensor_tensor_scan": True},
            "`is_scalar_tensor_tensor` and `is_tensor_tensor_scan` together",
        ),
        ([x3, s3, s3], {"is_scalar_tensor_tensor": True}, "`in 0` has 12 elements, and `in 2` 3"),
        ([x3, s3], {"is_tensor_tensor_scan": True}, "expected 3 operands"),
        ([x3, s3, s3], {"is_tensor_tensor_scan": True}, "a second operand of 12 elements"),
        ([s3, s3, s3], {"is_tensor_tensor_scan": True}, "a scan of one element"),
        ([x3, s3], {"is_tensor_scalar_addr": True}, "takes integers of 64 bits"),
    ],
)
def test_what_is_refused(ins: list[Array], more: dict[str, Any], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        single("TensorScalarPtr", ins, ins[0].shape, **keys("add", "bypass") | more)


def test_addresses_may_be_passed_on() -> None:
    x, s = np.array([[1, 2]], np.int64), np.array([[1 << 60]], np.int64)
    form = keys("bypass", "bypass", True, is_tensor_scalar_addr=True)
    assert single("TensorScalarPtr", [x, s], (1, 2), "int64", **form).tolist() == [[1 << 60] * 2]
    with pytest.raises(SimulationError, match="`in 1` has 2 elements; expected 1"):
        single("TensorScalarPtr", [x, x], (1, 2), "int64", **form)


def test_what_is_refused_of_addresses() -> None:
    x, s = np.ones((2, 3), np.int64), np.ones((2, 1), np.int64)
    for more, reason in (
        ({"op0": "max"}, "the operation `max` on addresses"),
        ({"op1": "add"}, "`op1` is `add`, and there is no operand"),
        ({"acc": "ZeroAccumulate"}, "an accumulation with `is_tensor_scalar_addr`"),
    ):
        with pytest.raises(SimulationError, match=reason):
            single(
                "TensorScalarPtr", [x, s], (2, 3), "int64",
                **keys("add", "bypass", is_tensor_scalar_addr=True) | more,
            )  # fmt: skip


def test_a_transpose_in_place_is_a_choice() -> None:
    bench = Bench()
    tile = bench.given("tile", rng.standard_normal((32, 32)).astype(f32))
    bench.add("TensorScalarPtr", [tile, 1.0], [tile], **keys("add", "bypass", apply_transpose=True))
    with pytest.raises(SimulationError, match="moves elements to other places"):
        bench.run()


# -- running values ----


def running(
    x: Array, start: float, op0: str, op1: str, reverse0: bool, reverse1: bool, immediate: float | None
) -> Array:
    """All running values; the first operation takes an immediate, or the running value."""
    out = np.empty(x.shape, f32)
    for p in range(len(x)):
        value = f32(start)
        for i in range(x.shape[1]):
            first = once(op0, reverse0, x[p, i], value if immediate is None else f32(immediate))
            value = once(op1, reverse1, first, value)
            out[p, i] = value
    return out


def cache(x: Array, mode: str, acc: str, *scalars: float, count: int | None = None, **more: Any) -> Bench:
    bench = Bench()
    a = bench.given("x", x)
    out = bench.output("out", (len(x), count or (1 if mode == "Reduce" else x.shape[1])))
    ins = [a, *(imm(value, "float32") for value in scalars)]
    bench.add("TensorScalarCache", ins, [out], mode=mode, acc=acc, engine="DVE", **more)
    return bench


IDENTITY = {"add": 0, "subtract": 0, "mult": 1, "max": -np.inf, "min": np.inf}


@pytest.mark.parametrize("mode", ["Reduce", "Cumulative"])
@pytest.mark.parametrize(("op0", "op1"), [("mult", "add"), ("add", "max"), ("subtract", "subtract"), ("max", "mult")])
@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("loaded", [False, True])
def test_running_values(mode: str, op0: str, op1: str, reverse0: bool, reverse1: bool, loaded: bool) -> None:
    x = (rng.integers(-8, 9, (5, 6)) / 4).astype(f32)
    scalars = (0.75, 2.5) if loaded else (0.75,)
    bench = cache(
        x, mode, "LoadAccumulate" if loaded else "ZeroAccumulate", *scalars, **keys(op0, op1, reverse0, reverse1)
    )
    one = running(x, 2.5 if loaded else 0, op0, op1, reverse0, reverse1, None)
    other = running(x, 2.5 if loaded else IDENTITY[op1], op0, op1, reverse0, reverse1, 0.75)
    if mode == "Reduce":
        one, other = one[:, -1:], other[:, -1:]
    assert not np.array_equal(one, other)
    with pytest.raises(SimulationError, match="undecided: a `TensorScalarCache`"):
        bench.run()
    assert np.array_equal(bench.run(readings={"scalar_cache": "cache"})["out"], one)
    assert np.array_equal(bench.run(readings={"scalar_cache": "immediate"})["out"], other)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("op1", ["add", "subtract"])
@pytest.mark.parametrize("mode", ["Cumulative", "TensorScan", "Reduce"])
@pytest.mark.parametrize("partitions", [1, 3, 128])
def test_sums_need_no_choice(dtype: str, op1: str, mode: str, partitions: int) -> None:
    x = rng.standard_normal((partitions, 9)).astype(HELD[dtype])
    wanted = running(x, 0, "bypass", op1, False, False, None)
    found = cache(x, mode, "ZeroAccumulate", 0.0, **keys("bypass", op1)).run()["out"]
    assert np.array_equal(found, wanted[:, -1:] if mode == "Reduce" else wanted)


def test_the_last_value_goes_to_a_second_output() -> None:
    x = rng.standard_normal((4, 7)).astype(f32)
    bench = Bench()
    outs = [bench.output("out", (4, 7)), bench.output("last", (4, 1), "bfloat16")]
    more = keys("bypass", "add", mode="Cumulative", acc="ZeroAccumulate")
    bench.add("TensorScalarCache", [bench.given("x", x), 0.0], outs, **more)
    found = bench.run()
    assert np.array_equal(found["out"], np.add.accumulate(x, axis=1))
    assert np.array_equal(found["last"], found["out"][:, -1:].astype(HELD["bfloat16"]))


def test_whether_it_goes_on_is_a_choice() -> None:
    x = rng.integers(-9, 9, (2, 5)).astype(f32)
    bench = cache(x, "Cumulative", "ZeroAccumulate", 0.0, **keys("bypass", "add"))
    out = bench.output("more", (2, 5))
    more = keys("bypass", "add", mode="Cumulative", acc="AddAccumulate", engine="DVE")
    bench.add("TensorScalarCache", [bench.given("y", x), 0.0], [out], **more)
    with pytest.raises(SimulationError, match="undecided: a `TensorScalarCache` goes on"):
        bench.run()
    found = bench.run(readings={"cache_continues": "engine"})["more"]
    assert np.array_equal(found, np.add.accumulate(x, axis=1) + x.sum(axis=1, keepdims=True))


def test_the_accumulator_that_others_read_is_not_known_after_it() -> None:
    bench = cache(np.ones((2, 3), f32), "Reduce", "ZeroAccumulate", 0.0, **keys("bypass", "add"))
    bench.add("DveReadAccumulator", [], [bench.output("sum", (2, 1))])
    with pytest.raises(SimulationError, match="nothing has been accumulated"):
        bench.run()


def test_patterns_of_running_values() -> None:
    x = rng.integers(-9, 9, (3, 20)).astype(f32)
    pattern, target = [(20, 3), (10, 2), (-2, 4)], [(9, 3), (-1, 8)]
    bench = Bench()
    a, out = bench.given("x", x), bench.output("out", (3, 9), fill=0)
    more = keys("bypass", "add", mode="Cumulative", acc="ZeroAccumulate")
    bench.add("TensorScalarCache", [a.access(pattern, 7), 0.0], [out.access(target, 8)], **more)
    wanted = np.add.accumulate(elements(x, pattern, 7).reshape(3, 8), axis=1)
    assert np.array_equal(bench.run()["out"], written(np.zeros((3, 9), f32), target, 8, wanted))


@pytest.mark.parametrize(
    ("more", "scalars", "reason"),
    [
        ({"acc": "Idle"}, (0.0,), "must be one of ZeroAccumulate/AddAccumulate/LoadAccumulate, but it is Idle"),
        ({"acc": "LoadAccumulate"}, (0.0,), "3 go with `LoadAccumulate`"),
        ({}, (0.0, 1.0), "3 go with `LoadAccumulate`"),
        ({"op1": "divide"}, (0.0,), "op1 must be add/subtract/mult/min/max, but it is divide"),
        ({"op0": "bitwise_and"}, (0.0,), "op0 must be arithmetic, but it is bitwise_and"),
        ({"op0": "rsqrt"}, (0.0,), "op0 must be arithmetic, but it is rsqrt"),
        ({"mode": "TensorScan", "op0": "add"}, (0.0,), "takes `bypass` as `op0`"),
        ({"mode": "TensorScan", "reverse0": True}, (0.0,), "no `reverse0`"),
        ({"mode": "Some"}, (0.0,), "the mode `Some`"),
        ({"acc": "AddAccumulate"}, (0.0,), "goes on with `AddAccumulate`"),
    ],
)
def test_what_is_refused_of_running_values(more: dict[str, Any], scalars: tuple[float, ...], reason: str) -> None:
    given = keys("bypass", "add", mode="Cumulative", acc="ZeroAccumulate") | more
    with pytest.raises(SimulationError, match=reason):
        cache(np.ones((2, 4), f32), given.pop("mode"), given.pop("acc"), *scalars, count=4, **given).run()


def test_outputs_of_running_values_have_a_size() -> None:
    with pytest.raises(SimulationError, match="the mode `Reduce` gives 2 elements"):
        cache(np.ones((2, 4), f32), "Reduce", "ZeroAccumulate", 0.0, count=4, **keys("bypass", "add")).run()
    for shape, dtype, reason in (
        ((2, 2), "float32", "must have 1 element per partition, but it has 4"),
        ((2, 1), "int32", "must have a floating-point Dtype, but it has Dtype::int32"),
    ):
        bench = Bench()
        outs = [bench.output("out", (2, 4)), bench.output("last", shape, dtype)]
        more = keys("bypass", "add", mode="Cumulative", acc="ZeroAccumulate")
        bench.add("TensorScalarCache", [bench.given("x", np.ones((2, 4), f32)), 0.0], outs, **more)
        with pytest.raises(SimulationError, match=reason):
            bench.run()
