"""Selections and affine functions of the place, against loops over single elements."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from arrowir.build import imm
from arrowir.diagnostics import SimulationError
from tests.simulated import FLOATS, HELD, Array, Bench, elements, single, written

f32 = np.float32
rng = np.random.default_rng(12)

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "is_equal": lambda a, x: a == x,
    "not_equal": lambda a, x: a != x,
    "is_gt": lambda a, x: a > x,
    "is_ge": lambda a, x: a >= x,
    "is_lt": lambda a, x: a < x,
    "is_le": lambda a, x: a <= x,
}


# -- Select ----


@pytest.mark.parametrize("dtype", [*FLOATS, "int32", "uint8"])
@pytest.mark.parametrize("predicate", ["uint8", "float32", "bfloat16", "int32"])
@pytest.mark.parametrize("partitions", [1, 3, 128])
def test_select(dtype: str, predicate: str, partitions: int) -> None:
    shape = (partitions, 7)
    p = (rng.random(shape) < 0.5).astype(HELD[predicate])
    one, other = (rng.integers(0, 100, shape).astype(HELD[dtype]) for _ in range(2))
    wanted = [[one[i] if p[i] == 1 else other[i] for i in [(r, c) for c in range(7)]] for r in range(partitions)]
    found = single("Select", [p, one, other], shape, dtype)
    assert np.array_equal(found, np.array(wanted, found.dtype))
    if dtype == "float32":
        narrow = single("Select", [p, one, other], shape, "bfloat16")
        assert np.array_equal(narrow, found.astype(HELD["bfloat16"]))


def test_select_by_patterns_and_immediates() -> None:
    p, a = (rng.random((3, 8)) < 0.5).astype(np.uint8), rng.standard_normal((3, 16)).astype(f32)
    before, target, pattern = np.zeros((3, 12), f32), [(12, 3), (-1, 8)], [(16, 3), (8, 2), (-2, 4)]
    bench = Bench()
    ins = [bench.given("p", p), bench.given("a", a).access(pattern, 7), 2.5]
    bench.add("Select", ins, [bench.output("out", (3, 12), fill=0).access(target, 9)])
    wanted = np.where(p == 1, elements(a, pattern, 7).reshape(3, 8), f32(2.5))
    assert np.array_equal(bench.run()["out"], written(before, target, 9, wanted))


def test_select_keeps_bits() -> None:
    one = np.array([[0x7FC00001, 0xFF800123]], np.uint32).view(f32)
    found = single("Select", [np.ones((1, 2), np.uint8), one, np.zeros((1, 2), f32)], (1, 2))
    assert found.view(np.uint32).tolist() == [[0x7FC00001, 0xFF800123]]


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (np.array([[0, 2, 1]], f32), "the predicate holds 2.0; expected 0 or 1"),
        (np.array([[0, np.nan, 1]], f32), "the predicate holds nan"),
        (np.array([[0, 1]], f32), "`out 0` has 3 elements, and `in 0` 2"),
    ],
)
def test_what_select_refuses(p: Array, reason: str) -> None:
    a = np.ones((1, 3), f32)
    with pytest.raises(SimulationError, match=reason):
        single("Select", [p, a, a], (1, 3))
    with pytest.raises(SimulationError, match="`in 2` has 2 elements, and `out 0` 3"):
        single("Select", [a, a, np.ones((1, 2), f32)], (1, 3))


# -- CopyPredicated ----


@pytest.mark.parametrize("dtype", [*FLOATS, "int16"])
@pytest.mark.parametrize("predicate", ["uint8", "uint16", "int32"])
@pytest.mark.parametrize("reverse", [False, True])
def test_copy_predicated(dtype: str, predicate: str, reverse: bool) -> None:
    shape = (33, 5)
    p = rng.integers(0, 3, shape).astype(predicate)
    source, before = (rng.integers(-50, 50, shape).astype(HELD[dtype]) for _ in range(2))
    bench = Bench()
    out = bench.output("out", shape, dtype, fill=before)
    bench.add("CopyPredicated", [bench.given("p", p), bench.given("s", source)], [out], reverse_pred=reverse)
    found = bench.run()["out"]
    for place in np.ndindex(shape):
        assert found[place] == (source[place] if (p[place] != 0) != reverse else before[place])


def test_copy_predicated_by_patterns() -> None:
    p, source = rng.integers(0, 2, (3, 8)).astype(np.uint8), rng.standard_normal((3, 20)).astype(f32)
    before, target, pattern = rng.standard_normal((3, 12)).astype(f32), [(12, 3), (-1, 8)], [(20, 3), (10, 2), (-2, 4)]
    bench = Bench()
    ins = [bench.given("p", p), bench.given("s", source).access(pattern, 7)]
    bench.add("CopyPredicated", ins, [bench.output("out", (3, 12), fill=before).access(target, 8)])
    kept = elements(before, target, 8)
    wanted = np.where(p != 0, elements(source, pattern, 7).reshape(3, 8), kept)
    assert np.array_equal(bench.run()["out"], written(before, target, 8, wanted))


def test_copy_predicated_leaves_what_was_never_written() -> None:
    p, source = np.array([[1, 0, 1]], np.uint8), np.array([[1, 2, 3]], f32)
    bench = Bench()
    tile = bench.scratch("tile", (1, 3))
    bench.add("CopyPredicated", [bench.given("p", p), bench.given("s", source)], [tile])
    bench.add("TensorCopy", [tile[:, ::2]], [bench.output("out", (1, 2))])
    assert bench.run(nan="raise")["out"].tolist() == [[1, 3]]
    bench.add("TensorCopy", [tile[:, 1:2]], [bench.output("more", (1, 1))])
    with pytest.raises(SimulationError, match="never written"):
        bench.run()


def test_copy_predicated_of_what_was_never_written() -> None:
    bench = Bench()
    source, out = bench.scratch("s", (1, 4)), bench.scratch("out", (1, 4))
    bench.add("TensorCopy", [bench.given("a", np.array([[1, 2]], f32))], [source[:, :2]])
    p = bench.given("p", np.array([[1, 0, 1, 0]], np.uint8))
    bench.add("CopyPredicated", [p, source], [out], can_read_uninit=True)
    bench.add("TensorCopy", [out[:, :1]], [bench.output("first", (1, 1))])
    assert bench.run()["first"].tolist() == [[1]]
    bench.add("TensorCopy", [out], [bench.output("all", (1, 4))])
    with pytest.raises(
        SimulationError, match=r"reads 3 of 4 elements of `out` that were never written, first \[0, 1\]"
    ):
        bench.run()


def test_copy_predicated_of_an_immediate() -> None:
    p = np.array([[1, 0, 7]], np.uint8)
    bench = Bench()
    out = bench.output("out", (1, 3), "int16", fill=5)
    bench.add("CopyPredicated", [bench.given("p", p), imm(-3, "int16")], [out])
    assert bench.run()["out"].tolist() == [[-3, 5, -3]]
    bench.add("CopyPredicated", [bench.given("q", p), imm(-3, "int32")], [out])
    with pytest.raises(SimulationError, match=r"Immediate value type \(int32\) must match output type \(int16\)"):
        bench.run()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("fill", ["immediate", "memory"])
@pytest.mark.parametrize("partitions", [1, 5, 128])
def test_the_largest_of_selected_elements(reverse: bool, fill: str, partitions: int) -> None:
    shape = (partitions, 6)
    p, source = rng.integers(0, 2, shape).astype(np.uint8), rng.standard_normal(shape).astype(HELD["bfloat16"])
    other = np.full((partitions, 1), -1.5, f32)
    other = other if fill == "immediate" else other + np.arange(partitions, dtype=f32)[:, None]
    bench = Bench()
    ins = [bench.given("p", p), bench.given("s", source), bench.given("f", other) if fill == "memory" else -1.5]
    outs = [bench.output("out", shape), bench.output("max", (partitions, 1))]
    more = {"reverse_pred": reverse, "reduce_op": "max"}
    bench.add("CopyPredicated", ins, outs, accumulator_cmd="ZeroAccumulate", **more)
    bench.add("CopyPredicated", ins, [bench.output("again", shape)], accumulator_cmd="AddAccumulate", **more)
    bench.add("DveReadAccumulator", [], [bench.output("read", (partitions, 1))])
    found = bench.run()
    wanted = np.where((p != 0) != reverse, source.astype(f32), other)
    assert np.array_equal(found["out"], wanted)
    assert np.array_equal(found["max"][:, 0], wanted.max(axis=1))
    assert np.array_equal(found["read"], found["max"])


def test_maxima_go_on() -> None:
    bench = Bench()
    for place, values in enumerate(([[1, 9], [2, 3]], [[4, 5], [8, -1]])):
        ins = [
            bench.given(f"p{place}", np.ones((2, 2), np.uint8)),
            bench.given(f"s{place}", np.array(values, f32)),
            0.0,
        ]
        command = "AddAccumulate" if place else "ZeroAccumulate"
        bench.add("CopyPredicated", ins, [bench.output(f"o{place}", (2, 2))], reduce_op="max", accumulator_cmd=command)
    bench.add("DveReadAccumulator", [], [bench.output("read", (2, 1))])
    assert bench.run()["read"].tolist() == [[9], [8]]


ONE, SRC = np.ones((2, 3), np.uint8), np.ones((2, 3), f32)


@pytest.mark.parametrize(
    ("ins", "more", "reason"),
    [
        ([SRC, SRC], {}, "`in 0` is `float32`; expected an integer dtype"),
        ([ONE, SRC], {"reduce_op": "add"}, "only allows max as Reduce Operator. Given: add"),
        ([ONE, SRC], {"reduce_op": "max", "accumulator_cmd": "Zero"}, "Idle, ZeroAccumulate, or AddAccumulate"),
        ([ONE, SRC], {"accumulator_cmd": "ZeroAccumulate"}, "does not have a corresponding ReductionCmd"),
        ([ONE, SRC], {"reduce_op": "max"}, "requires 3 arguments"),
        ([ONE[:, :2], SRC], {}, "`out 0` has 6 elements, and `in 0` 4"),
        ([ONE, SRC[:, :2]], {}, "`in 1` has 4 elements, and `out 0` 6"),
        ([ONE, SRC, SRC], {"reduce_op": "max"}, "`in 2` has 6 elements; expected 2"),
    ],
)
def test_what_copy_predicated_refuses(ins: list[Array], more: dict[str, Any], reason: str) -> None:
    bench = Bench()
    operands = [bench.given(f"in{place}", array.copy()) for place, array in enumerate(ins)]
    bench.add("CopyPredicated", operands, [bench.output("out", (2, 3), fill=0)], **more)
    with pytest.raises(SimulationError, match=reason):
        bench.run()


def test_copy_predicated_to_one_element_twice_is_refused() -> None:
    bench = Bench()
    out = bench.output("out", (2, 3), fill=0).access([(3, 2), (0, 3)])
    bench.add("CopyPredicated", [bench.given("p", ONE), bench.given("s", SRC)], [out])
    with pytest.raises(SimulationError, match="`out 0` has an element twice"):
        bench.run()


# -- affine functions ----


def affine(shape: tuple[int, ...], base: int, steps: tuple[int, ...]) -> Array:
    """``base + sum of step * index`` for the dimensions, partitions first."""
    out = np.empty(shape, np.int64)
    for place in np.ndindex(shape):
        out[place] = base + sum(i * s for i, s in zip(place, steps, strict=True))
    return out


@pytest.mark.parametrize("dtype", ["int32", "float32", "int16", "bfloat16"])
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("spelled", [False, True])
@pytest.mark.parametrize("partitions", [1, 3, 128])
def test_iota(dtype: str, whole: bool, spelled: bool, partitions: int) -> None:
    pairs = [[-7, 2], [3, 5]] if not whole else [[2, partitions], [-7, 2], [3, 5]]
    pattern = [{"step": s, "num": n} for s, n in pairs] if spelled else pairs
    out = single(
        "Iota", [], (partitions, 10), dtype, base=-4, pattern=pattern, **({} if whole else {"channel_multiplier": 2})
    )
    wanted = affine((partitions, 2, 5), -4, (2, -7, 3)).reshape(partitions, 10)
    assert np.array_equal(out.astype(f32), wanted.astype(HELD[dtype]).astype(f32))


def test_iota_of_a_pattern_and_of_expressions() -> None:
    bench = Bench()
    out = bench.output("out", (2, 6), "int32", fill=0)
    with bench.function.loop(0, 3) as i:
        more = {"base": i * 10, "pattern": [[1, 2]], "channel_multiplier": 4}
        bench.add("Iota", [], [out.access([(6, 2), (-1, 2)], 3)], **more)
    assert bench.run()["out"].tolist() == [[0, 0, 21, 20, 0, 0], [0, 0, 25, 24, 0, 0]]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"pattern": [[1, 4]]}, "`pattern` names 4 elements; expected 6, or the 3 of one partition"),
        ({"pattern": [[1, 2], [1, 3]], "channel_multiplier": 1}, "and so has `channel_multiplier`"),
        ({"pattern": [[1]]}, "`pattern` holds"),
        ({"pattern": [[1, 0]]}, "`pattern` holds"),
        ({"pattern": {"step": 1}}, "expected a list of pairs"),
        ({"pattern": [[1, 3]], "base": 2**31 - 1}, "2147483648 does not fit `int32`"),
    ],
)
def test_what_iota_refuses(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        single("Iota", [], (2, 3), "int32", **{"base": 0, **more})


@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize("dtype", [*FLOATS, "int32"])
@pytest.mark.parametrize("partitions", [1, 3, 33])
def test_affine_select(name: str, dtype: str, partitions: int) -> None:
    x = rng.integers(1, 50, (partitions, 6)).astype(HELD[dtype])
    found = single(
        "TensorScalarAffineSelect", [x], x.shape, dtype,
        base=2, pattern=[[-3, 2], [1, 3]], channel_multiplier=1, compare_op=name, fill_value=-7,
    )  # fmt: skip
    place = affine((partitions, 2, 3), 2, (1, -3, 1)).reshape(x.shape)
    for at in np.ndindex(x.shape):
        assert found[at] == (x[at] if COMPARE[name](place[at], 0) else -7)


@pytest.mark.parametrize("fill", ["immediate", "memory"])
def test_a_fill_of_nan_takes_an_operand(fill: str) -> None:
    x, other = rng.standard_normal((3, 4)).astype(f32), np.array([[5], [6], [7]], f32)
    bench = Bench()
    ins = [bench.given("x", x), bench.given("f", other) if fill == "memory" else 5.0]
    more = {"base": 0, "pattern": [[1, 4]], "channel_multiplier": -1, "compare_op": "is_ge", "fill_value": "nan"}
    bench.add("TensorScalarAffineSelect", ins, [bench.output("out", (3, 4))], **more)
    keep = np.arange(4) - np.arange(3)[:, None] >= 0
    assert np.array_equal(bench.run()["out"], np.where(keep, x, other if fill == "memory" else f32(5)))


def test_affine_select_of_patterns() -> None:
    x, before = rng.standard_normal((3, 16)).astype(f32), np.zeros((3, 9), f32)
    pattern, target = [(16, 3), (8, 2), (-2, 4)], [(9, 3), (-1, 8)]
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (3, 9), fill=0)
    more = {"base": -3, "pattern": [[1, 8]], "compare_op": "is_gt", "fill_value": "-inf"}
    bench.add("TensorScalarAffineSelect", [source.access(pattern, 7)], [out.access(target, 8)], **more)
    wanted = np.where(np.arange(8) > 3, elements(x, pattern, 7).reshape(3, 8), -np.inf)
    assert np.array_equal(bench.run()["out"], written(before, target, 8, wanted))


def test_a_fill_that_is_not_used_need_not_fit() -> None:
    x = np.array([[1, 2]], np.int32)
    more = {"base": 1, "pattern": [[1, 2]], "compare_op": "is_gt", "fill_value": 0.5}
    assert single("TensorScalarAffineSelect", [x], (1, 2), "int32", **more).tolist() == [[1, 2]]
    with pytest.raises(SimulationError, match=r"0\.5 is written to `int32`"):
        single("TensorScalarAffineSelect", [x], (1, 2), "int32", **more | {"base": 0})


@pytest.mark.parametrize(
    ("count", "more", "reason"),
    [
        (1, {"fill_value": "nan"}, "NaN fill value should have exactly 2 arguments, but found 1"),
        (2, {"fill_value": 1}, r"non-NaN fill value '1\.0' should have exactly 1 argument, but found 2"),
        (1, {"compare_op": "add"}, "the comparison `add`"),
        (1, {"pattern": [[1, 2]]}, "`pattern` names 2 elements"),
    ],
)
def test_what_affine_select_refuses(count: int, more: dict[str, Any], reason: str) -> None:
    given = {"base": 0, "pattern": [[1, 3]], "compare_op": "is_gt", "fill_value": 0} | more
    with pytest.raises(SimulationError, match=reason):
        single("TensorScalarAffineSelect", [np.ones((2, 3), f32)] * count, (2, 3), **given)


# -- RangeSelect ----

RANGES = ("is_equal", "is_gt", "is_ge", "is_lt", "is_le")


@pytest.mark.parametrize("lower", RANGES)
@pytest.mark.parametrize("upper", RANGES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_range_select(lower: str, upper: str, dtype: str) -> None:
    x = rng.standard_normal((5, 9)).astype(HELD[dtype])
    low, high = rng.integers(0, 6, (5, 1)).astype(f32), rng.integers(3, 12, (5, 1)).astype(f32)
    bench = Bench()
    ins = [bench.given("x", x), bench.given("low", low), bench.given("high", high)]
    outs = [bench.output("out", x.shape, dtype), bench.output("max", (5, 1))]
    bench.add("RangeSelect", ins, outs, base=2, compare_op0=lower, compare_op1=upper, fill_value=-4)
    bench.add("DveReadAccumulator", [], [bench.output("read", (5, 1))])
    found = bench.run()
    wanted = np.empty(x.shape, f32)
    for p, i in np.ndindex(x.shape):
        keep = COMPARE[lower](i + 2, low[p, 0]) and COMPARE[upper](i + 2, high[p, 0])
        wanted[p, i] = x[p, i] if keep else -4
    assert np.array_equal(found["out"].astype(f32), wanted)
    assert np.array_equal(found["max"][:, 0], wanted.max(axis=1))
    assert np.array_equal(found["read"], found["max"])


def ranged(x: Any, out: Any = None, bench: Bench | None = None, **more: Any) -> Bench:
    bench = bench or Bench()
    source = bench.given("x", x) if isinstance(x, np.ndarray) else x
    target = bench.output("out", x.shape) if out is None else out
    given = {"compare_op0": "is_ge", "compare_op1": "is_lt", "fill_value": 0.0} | more
    bench.add("RangeSelect", [source, 2.0, 5.0], [target], **given)
    return bench


def test_a_fill_is_rounded_and_the_largest_is_not() -> None:
    lowest = float(np.finfo(f32).min)
    bench = Bench()
    out = bench.output("out", (1, 2), "bfloat16")
    ranged(bench.given("x", np.ones((1, 2), HELD["bfloat16"])), out, bench, fill_value=lowest, reduce_cmd="Idle")
    assert bench.run()["out"].astype(f32).tolist() == [[-np.inf, -np.inf]]


def test_which_index_counts_is_a_choice_where_it_makes_a_difference() -> None:
    x = rng.standard_normal((2, 6)).astype(f32)

    def made(pattern: list[tuple[int, int]]) -> Bench:
        bench = Bench()
        source, out = bench.given("x", x), bench.output("out", (2, 6))
        return ranged(source.access(pattern), out, bench)

    assert made([(6, 2), (3, 1), (1, 6)]).run()["out"][:, 2:5].tolist() == x[:, 2:5].tolist()
    with pytest.raises(SimulationError, match=r"a `RangeSelect` of \[2, 2, 3\] elements"):
        made([(6, 2), (3, 2), (1, 3)]).run()
    index = np.arange(6)
    for choice, at in (("linear", index), ("innermost", index % 3)):
        found = made([(6, 2), (3, 2), (1, 3)]).run(readings={"range_index": choice})["out"]
        assert np.array_equal(found, np.where((at >= 2) & (at < 5), x, 0))


def test_patterns_of_range_select() -> None:
    x, before = rng.standard_normal((3, 16)).astype(f32), np.zeros((3, 9), f32)
    bench = Bench()
    source, out = bench.given("x", x), bench.output("out", (3, 9), fill=0)
    ranged(source.access([(16, 3), (-2, 8)], 14), out.access([(9, 3), (-1, 8)], 8), bench)
    at = np.arange(8)
    wanted = np.where((at >= 2) & (at < 5), elements(x, [(16, 3), (-2, 8)], 14), 0)
    assert np.array_equal(bench.run()["out"], written(before, [(9, 3), (-1, 8)], 8, wanted))


def test_nan_among_selected_elements_is_a_choice() -> None:
    x = np.array([[0, 0, np.nan, 4, 5]], f32)
    with pytest.raises(SimulationError, match="some are NaN"):
        ranged(x).run()
    for choice, largest in (("number", 5.0), ("nan", np.nan)):
        bench = ranged(x)
        bench.add("DveReadAccumulator", [], [bench.output("max", (1, 1))])
        found = bench.run(readings={"nan_comparison": choice})
        assert np.array_equal(found["max"], [[largest]], equal_nan=True)
        assert np.array_equal(found["out"], [[0, 0, np.nan, 4, 5]], equal_nan=True)


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"compare_op0": "not_equal"}, "expects the compare_op0 to be one of isEQ"),
        ({"compare_op1": "add"}, "expects the compare_op1 to be one of isEQ"),
        ({"reduce_op": "add"}, "only supports max reduce op, but got add op"),
        ({"reduce_cmd": "Accumulate"}, "InstRangeSelect does not support EngineAccumulationType Accumulate"),
        ({"reduce_cmd": "LoadAccumulate"}, "must provide an immediate"),
        ({"num_active_channels": 2}, "`num_active_channels` is 2, with 3 partitions"),
        ({"base": True}, "what a `base` of `true` means"),
        ({"fill_value": None}, "the key `fill_value` is missing"),
    ],
)
def test_what_range_select_refuses(more: dict[str, Any], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        ranged(np.ones((3, 4), f32), **more).run()


def test_range_select_casts_nothing_and_changes_no_size() -> None:
    for shape, dtype, reason in (
        ((3, 4), "bfloat16", "input is float32 type and output is bfloat16 type"),
        ((3, 5), "float32", "input has 12 elements and output has 15 elements"),
    ):
        bench = Bench()
        ranged(bench.given("x", np.ones((3, 4), f32)), bench.output("out", shape, dtype), bench)
        with pytest.raises(SimulationError, match=reason):
            bench.run()
    assert ranged(np.ones((3, 4), f32), base=False, num_active_channels=3).run()["out"].sum() == 6
