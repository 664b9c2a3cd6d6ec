"""Collective operations as one core sees them, against plain arrays."""

from typing import Any

import numpy as np
import pytest

from arrowir.diagnostics import SimulationError
from tests.simulated import HELD, Array, Bench, Pattern, elements, written

rng = np.random.default_rng(31)
f32 = np.float32
EQUAL = {"collective": "equal"}
REDUCING, COPYING = ("AllReduce", "ReduceScatter"), ("AllGather", "AllToAll", "Permute", "PermuteImplicit")


def some(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return rng.integers(0, 100, shape).astype(f32).astype(HELD[dtype])


def collective(kind: str, given: Array, shape: tuple[int, int] | None = None, **members: Any) -> Array:
    bench = Bench()
    dtype = next(name for name, held in HELD.items() if np.dtype(held) == given.dtype)
    readings, memory = members.pop("readings", None), members.pop("memory", "DRAM")
    to = members.pop("to", dtype)
    a, out = bench.given("a", given, memory=memory), bench.output("out", shape or given.shape, to, memory)
    op = {"op": "add"} if kind in REDUCING and "op" not in members else {}
    bench.add("CollectiveCompute", [a], [out], kind=kind, **op, **members)
    return bench.run(readings=readings)["out"]


# -- a group of one core ----


@pytest.mark.parametrize("kind", [*REDUCING, *COPYING])
@pytest.mark.parametrize("dtype", HELD)
@pytest.mark.parametrize("partitions", [1, 3, 128])
def test_of_one_core_everything_is_a_copy(kind: str, dtype: str, partitions: int) -> None:
    given = some((partitions, 5), dtype)
    assert np.array_equal(collective(kind, given, replica_groups=[[0]]), given)


def test_the_default_kind_reduces_over_all_cores() -> None:
    given = some((2, 3))
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (2, 3))
    bench.add("CollectiveCompute", [a], [out], op="max", replica_groups=[[4]])
    assert np.array_equal(bench.run()["out"], given)


def test_patterns_of_a_collective() -> None:
    given, before = some((4, 12)), some((4, 12))
    of: Pattern = [(12, 4), (-2, 3)]
    to: Pattern = [(12, 3), (3, 4)]
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (4, 12), fill=before)
    bench.add("CollectiveCompute", [a.access(of, 11)], [out.access(to, 13)], kind="AllGather", replica_groups=[[0]])
    assert np.array_equal(bench.run()["out"], written(before, to, 13, elements(given, of, 11)))


def test_several_inputs_go_to_as_many_outputs() -> None:
    one, other = some((2, 3)), some((2, 5))
    bench = Bench()
    ins = [bench.given("a", one), bench.given("b", other)]
    outs = [bench.output("x", (2, 3)), bench.output("y", (2, 5))]
    bench.add("CollectiveCompute", ins, outs, kind="PermuteImplicit", replica_groups=[[7]])
    found = bench.run()
    assert np.array_equal(found["x"], one)
    assert np.array_equal(found["y"], other)
    bench.add("CollectiveCompute", ins, outs[:1], kind="PermuteImplicit", replica_groups=[[7]])
    with pytest.raises(SimulationError, match="2 inputs and 1 outputs; expected as many"):
        bench.run()


def test_keys_may_stand_in_the_channel() -> None:
    given = some((2, 3))
    channel = {"kind": "AllReduce", "op": "add", "replica_groups": [[0, 1]]}
    bench = Bench()
    a, out = bench.given("a", given), bench.output("out", (2, 3))
    bench.add("CollectiveCompute", [a], [out], cc_channel=channel)
    assert np.array_equal(bench.run(readings=EQUAL)["out"], given + given)
    bench.add(
        "CollectiveCompute", [a], [out], kind="AllReduce", op="max", replica_groups=[[0]],
        cc_channel={"kind": "AffExprKind", "c": 0, "terms": []}, cc_type_hint="TP", stream_id=1, is_local=True,
    )  # fmt: skip
    assert np.array_equal(bench.run(readings=EQUAL)["out"], given)


# -- more cores ----


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8e4"])
@pytest.mark.parametrize("op", ["add", "max", "min"])
def test_cores_that_hold_the_same_are_reduced(size: int, dtype: str, op: str) -> None:
    given = rng.standard_normal((3, 7)).astype(f32).astype(HELD[dtype])
    groups = [list(range(size)), list(range(size, 2 * size))]
    found = collective("AllReduce", given, op=op, replica_groups=groups, readings=EQUAL)
    total = given.astype(f32)
    for _ in range(size - 1 if op == "add" else 0):
        total = (total + given.astype(f32)).astype(f32)
    assert np.array_equal(found, total.astype(HELD[dtype]))


def test_integers_are_reduced_exactly() -> None:
    given = np.array([[1 << 20, -3]], np.int32)
    found = collective("AllReduce", given, replica_groups=[[0, 1, 2]], readings=EQUAL)
    assert found.tolist() == [[3 << 20, -9]]


@pytest.mark.parametrize("size", [2, 4])
def test_parts_of_all_cores_are_put_side_by_side(size: int) -> None:
    given = some((3, 4))
    groups = [list(range(size))]
    free = collective("AllGather", given, (3, 4 * size), replica_groups=groups, readings=EQUAL)
    assert np.array_equal(free, np.tile(given, (1, size)))
    rows = collective(
        "AllGather", given, (3 * size, 4), replica_groups=groups, cc_dim="Partition", readings=EQUAL
    )  # fmt: skip
    assert np.array_equal(rows, np.tile(given, (size, 1)))
    assert np.array_equal(
        collective("AllGather", given, (3, 4 * size), readings=EQUAL), free
    )  # by the size of the output


@pytest.mark.parametrize("size", [2, 4])
def test_the_first_core_gets_the_first_part(size: int) -> None:
    given = some((8, 12))
    groups = [list(range(size))]
    total = given * size
    free = collective("ReduceScatter", given, (8, 12 // size), replica_groups=groups, readings=EQUAL)
    assert np.array_equal(free, total[:, : 12 // size])
    more = {"cc_dim": "Partition", "readings": EQUAL}
    rows = collective("ReduceScatter", given, (8 // size, 12), replica_groups=groups, **more)
    assert np.array_equal(rows, total[: 8 // size])
    assert np.array_equal(collective("ReduceScatter", given, (8, 12 // size), readings=EQUAL), free)


def test_permutations_of_what_is_the_same() -> None:
    given = some((3, 4))
    pairs = [[0, 1], [1, 2], [2, 0]]
    assert np.array_equal(collective("Permute", given, src_target_pairs=pairs, readings=EQUAL), given)
    assert np.array_equal(collective("Permute", given, src_target_pairs=[[3, 3]]), given)
    assert np.array_equal(collective("PermuteImplicit", given, replica_groups=[[0, 1]], readings=EQUAL), given)


ERRORS: list[tuple[str, dict[str, Any], str]] = [
    ("SendRecv", {}, "`SendRecv` is not modelled: what arrives is another core's"),
    ("SendRecvCCE", {}, "`SendRecvCCE` is not modelled: what arrives is another core's"),
    ("AllToAllV", {}, "`AllToAllV` is not modelled: how its buffers are divided"),
    ("PermuteReduce", {}, "`PermuteReduce` is not modelled: what it reduces is not known"),
    ("PermuteReduceImplicit", {}, "`PermuteReduceImplicit` is not modelled: what it reduces is not known"),
    ("Other", {}, "`Other` is not modelled: it is not known"),
    ("AllReduce", {"replica_groups": [[0, 1]]}, "undecided: `AllReduce` of 2 cores; choose `readings="),
    ("AllReduce", {}, "it has no `replica_groups`, so that it is not known how many cores take part"),
    ("AllReduce", {"op": "mult"}, "AllReduce CollectiveCompute does not support mult; expected add, max or min"),
    ("AllGather", {"op": "add"}, "AllGather CollectiveCompute does not support add; expected bypass"),
    ("AllReduce", {"op": 3}, "`op` is 3; expected a word"),
    ("AllReduce", {"replica_groups": [0, 1]}, r"`replica_groups` is \[0, 1\]; expected lists of cores"),
    ("AllReduce", {"replica_groups": [[0], [1, 2]]}, r"the groups in `replica_groups` have \[1, 2\] cores"),
    ("AllReduce", {"replica_groups": [[0]], "shape": (2, 3)}, "makes 12 elements of 12, and the output has 6"),
    ("AllGather", {"shape": (3, 5)}, "15 elements are no multiple of 12"),
    (
        "AllGather",
        {"shape": (6, 4), "readings": EQUAL},
        r"AllGather on Free of 2 cores: \[3, 4\] and \[6, 4\] do not fit",
    ),
    ("ReduceScatter", {"shape": (1, 4), "readings": EQUAL}, r"ReduceScatter on Free of 3 cores: \[3, 4\] and \[1, 4\]"),
    ("ReduceScatter", {"replica_groups": [[0, 1, 2, 3, 4]], "readings": EQUAL}, "makes 2 elements of 12"),
    ("AllToAll", {"replica_groups": [[0, 1]], "readings": EQUAL}, "`AllToAll` of 2 cores is not modelled"),
    ("Permute", {"src_target_pairs": [[0, 1]]}, "`src_target_pairs` leaves a core out, whose output is not known"),
    ("Permute", {"src_target_pairs": [3]}, r"`src_target_pairs` is \[3\]; expected pairs of cores"),
    ("AllReduce", {"replica_groups": [[0]], "to": "int32"}, "Output dtype must match input: `float32` and `int32`"),
    ("AllReduce", {"replica_groups": [[0]], "permute_chain": [1]}, "`permute_chain` of .* is not modelled"),
    ("AllReduce", {"replica_groups": [[0]], "recv_from_rank": [1]}, "`recv_from_rank` of .* is not modelled"),
]


@pytest.mark.parametrize(("kind", "members", "message"), ERRORS, ids=range(len(ERRORS)))
def test_what_is_wrong_with_a_collective(kind: str, members: dict[str, Any], message: str) -> None:
    more = dict(members)
    with pytest.raises(SimulationError, match=message):
        collective(kind, some((3, 4)), more.pop("shape", None), **more)


def test_types_that_are_not_computed_with_are_not_reduced() -> None:
    bench = Bench()
    held = np.zeros((2, 3), np.uint32)
    a, out = bench.given("a", held, "float8_e4m3fn_x4"), bench.output("out", (2, 3), "float8_e4m3fn_x4")
    bench.add("CollectiveCompute", [a], [out], kind="AllReduce", op="add", replica_groups=[[0]])
    with pytest.raises(SimulationError, match="`float8_e4m3fn_x4` is no type to compute with"):
        bench.run()


# -- ranks ----


def rank(opcode: str, to: str = "register", **members: Any) -> int:
    bench = Bench()
    readings = members.pop("readings", None)
    out = bench.output("out", (1, 1), "int32" if to == "register" else to)
    target = bench.register("r") if to == "register" else out
    bench.add(opcode, [], [target], **members)
    if to == "register":
        bench.add("TensorSave", [target], [out])
    return bench.run(readings=readings)["out"].item()


@pytest.mark.parametrize("to", ["register", "int32", "uint32"])
def test_the_rank_of_the_only_core(to: str) -> None:
    assert rank("GetGlobalRankId", to, world_size=1) == 0
    assert rank("GetCurProcessingRankID", to, iter_id=0, channel_id=0, replica_groups=[[5]]) == 5


@pytest.mark.parametrize("members", [{"world_size": 4}, {}])
def test_the_rank_among_more_is_a_choice(members: dict[str, int]) -> None:
    with pytest.raises(SimulationError, match="the rank of this core among all; choose"):
        rank("GetGlobalRankId", **members)
    assert rank("GetGlobalRankId", readings={"rank": "zero"}, **members) == 0


def test_what_is_wrong_with_ranks() -> None:
    with pytest.raises(SimulationError, match="in which order the cores of a group take turns is not known"):
        rank("GetCurProcessingRankID", iter_id=0, channel_id=0, replica_groups=[[0, 1]])
    with pytest.raises(SimulationError, match=r"`replica_groups` is \[\['x'\]\]; expected lists of cores"):
        rank("GetCurProcessingRankID", iter_id=0, channel_id=0, replica_groups=[["x"]])
    with pytest.raises(SimulationError, match="`out 0` is `float32`; expected an integer"):
        rank("GetGlobalRankId", "float32", world_size=1)


@pytest.mark.parametrize("opcode", ["CollectiveSend", "CollectiveRecv"])
def test_what_other_cores_send_is_not_modelled(opcode: str) -> None:
    bench = Bench()
    a, out = bench.given("a", some((2, 3))), bench.output("out", (2, 3))
    bench.add(opcode, [a], [out], peer_id=1)
    with pytest.raises(SimulationError, match=f"the opcode `{opcode}` is not modelled: "):
        bench.run()
