"""`air.footprints`, `air.live_ranges`, `air.overlaps`: what they say of small modules, and what they cost."""

import time
from typing import Any

import numpy as np
import polars as pl
import pytest

import arrowir as air
from arrowir import build
from arrowir.analyse import footprints, live_ranges, overlaps
from arrowir.analyse.patterns import PIECES, intervals
from arrowir_kernels import nest_spans, peel, trace_blocks
from tests.single_pass import read


def one(operand: Any, main: build.FunctionBuilder, module: build.ModuleBuilder, **members: Any) -> dict[str, Any]:
    main.add("TensorCopy", [operand], [], **members)
    return air.footprints(module.ir()).row(-1, named=True)


@pytest.fixture
def module() -> build.ModuleBuilder:
    return build.module()


@pytest.fixture
def main(module: build.ModuleBuilder) -> build.FunctionBuilder:
    return module.function()


# -- footprints ----


def test_a_tile_has_the_partitions_of_its_base(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    tile = main.sb("tile", [32, 4], "bfloat16", addr=100, base=64)
    row = one(tile, main, module)
    assert (row["first_partition"], row["partitions"], row["partition_step"]) == (64, 32, 1)
    assert (row["start_byte"], row["end_byte"], row["touched_bytes"]) == (100, 108, 8)
    assert row["intervals"] == [{"start": 100, "end": 108}]
    assert (row["slot"], row["memory"], row["allocated"], row["inside"]) == ("ins[0]", "SB", True, True)


def test_psum_has_a_bank_and_dram_no_partitions(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    row = one(main.psum("acc", [8, 4], addr=16, bank=3), main, module)
    assert (row["bank"], row["start_byte"], row["end_byte"]) == (3, 16, 32)
    row = one(main.dram("x", [3, 4])[0:3, 1:3], main, module)
    assert (row["bank"], row["first_partition"], row["partitions"]) == (None, None, None)
    assert row["intervals"] == [{"start": s, "end": s + 8} for s in (4, 20, 36)]
    assert not row["allocated"]


def test_zero_and_negative_steps(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    tile = main.sb("tile", [4, 8], "float32", addr=0)
    row = one(tile.access(pattern=[[8, 4], [0, 9], [-1, 8]], offset=7), main, module)
    assert (row["intervals"], row["touched_bytes"], row["inside"]) == ([{"start": 0, "end": 32}], 32, True)
    row = one(tile.access(pattern=[[-8, 4], [1, 8]], offset=24), main, module)
    assert (row["first_partition"], row["partitions"], row["partition_step"]) == (0, 4, 1)
    row = one(tile.access(pattern=[[8, 4], [-1, 8]], offset=6), main, module)
    assert (row["start_byte"], row["inside"]) == (-4, False)


def test_n06_an_offset_of_one_leaves_the_location(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    tile = main.sb("tile", [128, 512], "float32", addr=0)
    assert not one(tile.access(pattern=[[512, 128], [1, 512]], offset=1), main, module)["inside"]
    assert one(tile.access(pattern=[[512, 128], [1, 512]]), main, module)["inside"]


def test_n04_the_first_partition_follows_from_offset(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    tile = main.sb("tile", [84, 406], "float32", addr=0)
    row = one(tile.access(pattern=[[406, 36], [1, 1], [1, 203]], offset=19_488), main, module)
    assert (row["first_partition"], row["partitions"]) == (48, 36)


@pytest.mark.parametrize(
    ("reason", "spoil"),
    [
        ("symbolic", lambda t, m: t.at(0, 0)),
        ("register", lambda t, m: {"kind": "register_ap", "ap": [[8, 4]], "dtype": "float32", "regref": "r",
                                   "memsetref": t.set_name}),
        ("dynamic", lambda t, m: t.access(dynamic_ap_info={"c": 1})),
        ("unresolved", lambda t, m: {**t.access(), "memref": "nothing"}),
        ("several_locations", lambda t, m: {"kind": "physical_ap", "ap": [[8, 4]], "dtype": "float32", "offset": 0,
                                            "memsetref": "two"}),
        ("no_pattern", lambda t, m: t.access(pattern=[[8, 0]])),
        ("unknown_dtype", lambda t, m: {**t.access(), "dtype": "float5"}),
        ("no_size", lambda t, m: m.sb("small", [4, 3], "uint8", addr=0).access(pattern=[[1, 1]], dtype="float32")),
        ("lanes", lambda t, m: t.access(pattern=[[3, 4], [1, 1]])),
        ("too_large", lambda t, m: t.access(offset=2**62)),
    ],
)  # fmt: skip
def test_what_is_undecided_is_a_row_and_says_why(
    reason: str, spoil: Any, main: build.FunctionBuilder, module: build.ModuleBuilder
) -> None:
    tile = main.sb("tile", [4, 8], "float32", addr=0)
    main.register("r")
    two = main.sb("a", [4, 8], set_name="two")
    main.allocations[-1]["memorylocations"].append({**main.allocations[-1]["memorylocations"][0], "name": "b"})
    assert two.set_name == "two"
    row = one(spoil(tile, main), main, module)
    assert (row["undecided"], row["reason"]) == (True, reason)
    assert row["start_byte"] is row["intervals"] is row["inside"] is row["partitions"] is None


def test_a_rest_of_a_partition_holds_no_element(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    """Of 10 bytes two elements of four bytes are used."""
    odd = main.sb("odd", [4, 10], "uint8", addr=64)
    row = one(odd.access(pattern=[[2, 3], [1, 1]], offset=3, dtype="float32"), main, module)
    assert (row["first_partition"], row["partitions"], row["start_byte"], row["end_byte"]) == (1, 3, 68, 72)
    assert row["inside"]


def test_the_reasons_of_the_test_above_are_all() -> None:
    marks = test_what_is_undecided_is_a_row_and_says_why.pytestmark  # type: ignore[attr-defined]
    assert [case[0] for case in marks[0].args[1]] == list(footprints.REASONS)


def test_n17_every_kind_of_operand_is_a_row(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    tile, register = main.sb("tile", [4, 8], addr=0), main.register("r")
    kinds = [tile, tile.at(0, 0), register, 2.0, {"kind": "register_ap", "regref": "r", "memsetref": "tile_set"}]
    main.add("TensorCopy", kinds, [tile])
    found = air.footprints(module.ir())
    assert found["slot"].to_list() == [*(f"ins[{k}]" for k in range(5)), "outs[0]"]
    assert found["undecided"].to_list() == [False, True, False, False, True, False]
    assert found["memory"].to_list() == ["SB", "SB", None, None, "SB", "SB"]


def test_intervals_can_be_left_out() -> None:
    ir = air.read("data/generated/tiny.json")
    assert "intervals" not in air.footprints(ir, intervals=False).columns
    both = air.footprints(ir)
    assert both.drop("intervals").equals(air.footprints(ir, intervals=False))
    empty = air.footprints(air.build.module().ir())
    assert empty.is_empty()
    assert empty.columns == both.columns


def test_a_pattern_of_very_many_pieces_is_not_listed() -> None:
    assert intervals([[2, PIECES + 1]], 1) is None
    few = intervals([[2, 1000]], 1)
    assert few is not None
    assert len(few) == 1000


@pytest.mark.parametrize("call", [air.footprints, air.overlaps, air.live_ranges])
def test_what_is_no_batch_is_refused(call: Any) -> None:
    with pytest.raises(air.OptionError, match=r"`arrowir\.IR`"):
        call("x.json")


# -- live ranges ----


def ranges(module: build.ModuleBuilder) -> dict[str, tuple[Any, ...]]:
    found = air.live_ranges(module.ir())
    return {row[0]: row[1:] for row in found.select("location", "live_from", "live_to", "reason").iter_rows()}


def test_a_range_is_closed_and_in_program_order(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    a, b, c = (main.sb(name, [4, 8]) for name in "abc")
    main.add("Memset", [], [a])
    main.add("TensorCopy", [a], [b])
    main.add("TensorCopy", [b], [a])
    assert ranges(module) == {"a": (0, 2, "uses"), "b": (1, 2, "uses"), "c": (None, None, None)}
    row = air.live_ranges(module.ir()).row(0, named=True)
    assert (row["reads"], row["writes"], row["first_instruction"], row["last_instruction"]) == (1, 2, "I-1", "I-3")
    assert c.name == "c"


def test_loops_that_a_range_enters_are_covered(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    before, carried, local, after = (main.sb(name, [4, 8]) for name in ("before", "carried", "local", "after"))
    main.add("Memset", [], [before])
    with main.loop(0, 4), main.loop(0, 4):
        main.add("TensorCopy", [before], [local])  # 3
        main.add("TensorCopy", [carried], [after])  # 4
        main.add("TensorCopy", [local], [carried])  # 5
        main.add("NoOp")  # 6
    main.add("TensorCopy", [after], [carried])  # 7
    assert ranges(module) == {
        "before": (0, 6, "loop"),
        "carried": (1, 7, "loop"),
        "local": (3, 5, "uses"),
        "after": (4, 7, "uses"),
    }


def test_what_a_trip_may_leave_out_begins_nothing(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    held, tile, copied = (main.sb(name, [4, 8]) for name in ("held", "tile", "copied"))
    main.branch("body")  # 0
    main.block("body")
    main.compare(main.register("q"), "IS_EQIMM", 0, "past", "into")  # 1
    main.block("into")
    main.add("Memset", [], [copied])  # 2
    main.add("TensorCopy", [copied], [held])  # 3
    main.branch("past")  # 4
    main.block("past")
    main.add("Memset", [], [tile])  # 5
    main.add("TensorCopy", [held], [tile])  # 6
    main.compare(main.register("r"), "IS_LTIMM", 3, "body", "end")  # 7
    main.block("end")
    main.add("NoOp")
    assert ranges(module) == {"held": (1, 7, "loop"), "tile": (5, 6, "uses"), "copied": (2, 3, "uses")}


def test_an_inner_loop_without_trips_begins_nothing(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    held, tile = main.sb("held", [4, 8]), main.sb("tile", [4, 8])
    with main.loop(0, 4):  # 0
        with main.loop(0, 4, opcode="DynamicForLoop"):  # 1
            main.add("Memset", [], [tile])  # 2
            main.add("TensorCopy", [tile], [held])  # 3
        main.add("TensorCopy", [held], [held])  # 4
    assert ranges(module) == {"held": (0, 4, "loop"), "tile": (2, 3, "uses")}


def test_a_branch_back_is_a_loop(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    held, tile = main.sb("held", [4, 8]), main.sb("tile", [4, 8])
    main.add("Memset", [], [held])
    main.branch("body")
    main.block("body")
    main.add("TensorCopy", [held], [tile])  # 2
    main.add("TensorCopy", [tile], [tile])  # 3
    main.compare(main.register("r"), "IS_LTIMM", 3, "body", "end")  # 4
    main.block("end")
    main.add("NoOp")
    assert ranges(module) == {"held": (0, 4, "loop"), "tile": (2, 3, "uses")}


def test_what_is_live_throughout(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.input("parameter", [4, 8])
    main.dram("constant", [4, 8], kind="Const")
    main.sb("pinned", [4, 8], pinned=True)
    main.sb("reserved", [4, 8], runtime_reserved=True, pinned=True)
    main.dram("aliased", [4, 8], alias=[["other", 3]])
    main.dram("other", [4, 8])
    queued = main.dram("queued", [4, 8])
    main.add("NoOp")
    main.add("NoOp")
    module.queue("q").add("DMADescriptorCopy", [queued], [])
    found = ranges(module)
    assert {name: reason for name, (*_, reason) in found.items()} == {
        "parameter": "parameter",
        "constant": "constant",
        "pinned": "pinned",
        "reserved": "reserved",
        "aliased": "aliased",
        "other": "aliased",
        "queued": "queue",
    }
    assert {ends[:2] for ends in found.values()} == {(0, 1)}


def test_r08_an_access_by_set_keeps_all_locations(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.register("r")
    main.sb("a", [4, 8], set_name="two")
    main.allocations[-1]["memorylocations"].append({**main.allocations[-1]["memorylocations"][0], "name": "b"})
    main.add("NoOp")
    main.add("TensorCopy", [{"kind": "register_ap", "regref": "r", "memsetref": "two"}], [])
    assert ranges(module) == {"a": (1, 1, "uses"), "b": (1, 1, "uses")}


def test_arguments_of_calls_are_uses(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    kernel = module.kernel("k")
    formal = kernel.input("f", [4, 8])
    tile = main.dram("tile", [4, 8])
    main.add("NoOp")
    main.add("NKIKernel", func="k", func_args={formal.name: tile.name})
    assert ranges(module)["tile"] == (1, 1, "uses")


@pytest.mark.parametrize("compiled", [False, True])
def test_spans_that_cross_are_made_to_nest(compiled: bool) -> None:
    start, end = np.array([0, 2, 4, 20, 21]), np.array([9, 6, 12, 30, 25])
    depth, stack = np.empty(5, np.int64), np.empty(5, np.int64)
    (nest_spans.compiled if compiled else nest_spans.plain)(start, end, stack, depth)
    assert depth.tolist() == [0, 1, 2, 0, 1]
    assert end.tolist() == [12, 12, 12, 30, 25]


# -- overlaps ----


def relations(module: build.ModuleBuilder, **how: Any) -> list[tuple[Any, ...]]:
    found = air.overlaps(module.ir(), **how)
    return found.select("location", "other", "relation", "start_byte", "end_byte").rows()


def test_n12_a_pinned_scratch_and_a_tile(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.sb("DynamicDMAScratchLoc", [128, 16_384], "uint8", addr=0, pinned=True)
    tile = main.sb("tile", [128, 16], addr=16_376)
    main.add("Memset", [], [tile])
    assert relations(module) == [("DynamicDMAScratchLoc", "tile", "pinned", 16_376, 16_384)]
    row = air.overlaps(module.ir()).row(0, named=True)
    assert (row["shared_bytes"], row["first_partition"], row["partitions"]) == (8, 0, 128)


def test_r09_ranges_are_closed(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    a, b, c = (main.sb(name, [4, 8], addr=0) for name in "abc")
    main.add("Memset", [], [a])
    main.add("TensorCopy", [a], [])
    main.add("Memset", [], [b])
    main.add("TensorCopy", [b], [c])
    assert relations(module) == [("b", "c", "plain", 0, 32)]
    assert len(relations(module, live=False)) == 3


def test_bases_and_banks_keep_locations_apart(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    tiles = [main.sb(f"s{base}", [32, 8], addr=0, base=base) for base in (0, 32, 64, 96)]
    tiles += [main.psum(f"p{bank}", [32, 8], addr=0, bank=bank) for bank in range(3)]
    main.add("Custom", tiles, [])
    assert relations(module) == []
    wide = main.sb("wide", [64, 8], addr=16, base=32)
    main.add("Custom", [wide, *tiles], [])
    assert [row[:2] for row in relations(module)] == [("s32", "wide"), ("s64", "wide")]


def test_s05_nothing_allocated_overlaps_nothing() -> None:
    assert air.overlaps(air.read("data/samples/klr009"), live=False).is_empty()


def test_n01_a_location_without_bytes_shares_none(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.sb("none", [128, 0], addr=0, pinned=True)
    main.sb("some", [128, 8], addr=0, pinned=True)
    assert relations(module, live=False) == []


def test_m3_what_a_path_2_reservation_covers_is_told_apart() -> None:
    module = build.module()
    main = module.function()
    main.sb("pinned", [128, 8], addr=32, pinned=True)
    main.add("NoOp")
    ir = air.passes.runtime_memory_reservation(module.ir(), reserved_name="other").ir
    found = air.overlaps(ir).select("location", "other", "relation").rows()
    assert found == [("pinned", "EvalAccelReservedLoc", "covered")]


def test_aliases_are_named_with_their_kind(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.dram("a", [4, 8], addr=0, alias=[["b", 3], ["c", 1]])
    main.dram("b", [4, 8], addr=0)
    main.dram("c", [4, 8], addr=0)
    main.dram("d", [4, 8], addr=0)
    found = air.overlaps(module.ir(), live=False).select("location", "other", "relation", "alias_kind").rows()
    assert ("a", "b", "alias", 3) in found
    assert ("a", "c", "alias", 1) in found
    assert ("b", "c", "alias", None) in found  # by way of `a`
    assert ("a", "d", "plain", None) in found


def test_a_reserved_location_is_told(main: build.FunctionBuilder, module: build.ModuleBuilder) -> None:
    main.sb("r", [128, 8], addr=8, runtime_reserved=True)
    main.add("Memset", [], [main.sb("t", [128, 8], addr=0)])
    assert relations(module) == [("r", "t", "reserved", 8, 32)]


def crowded(count: int) -> air.IR:
    """Return a module of many locations with random places and uses, ten to an instruction."""
    random = np.random.default_rng(1)
    steps = count // 10
    place, since = random.integers(0, 100, count) * 2048, random.integers(0, steps, count)
    until = np.minimum(since + random.integers(0, 12, count), steps - 1)
    reads: list[list[Any]] = [[] for _ in range(steps)]
    writes: list[list[Any]] = [[] for _ in range(steps)]
    allocations: list[Any] = []
    common = {"kind": "physical_ap", "ap": [[512, 128], [1, 512]], "offset": 0, "dtype": "float32"}
    for n in range(count):
        location = {"name": f"t{n}", "type": "SB", "dims": [128, 2048], "addr": int(place[n]), "allocated": True}
        allocations.append({"name": f"s{n}", "kind": "Internal", "dtype": "float32", "memorylocations": [location]})
        writes[since[n]].append({**common, "memref": f"t{n}"})
        reads[until[n]].append({**common, "memref": f"t{n}"})
    rows = [
        {"name": f"I-{k}", "opcode": "Custom", "engine": "DVE", "ins": reads[k], "outs": writes[k]}
        for k in range(steps)
    ]
    block = {"name": "b", "instructions": rows}
    return read({"version": 2, "functions": [{"name": "f", "allocations": allocations, "blocks": [block]}]})


def test_n20_thirty_five_thousand_locations_take_under_a_second() -> None:
    ir = crowded(35_000)
    air.overlaps(ir.select([0]))
    began = time.process_time()
    found = air.overlaps(ir)
    assert time.process_time() - began < 1
    assert len(found) > 10_000
    made = live_ranges.measure(ir)
    a, b = found["location_id"].to_numpy(), found["other_id"].to_numpy()
    assert (np.maximum(made.start[a], made.start[b]) <= np.minimum(made.end[a], made.end[b])).all()
    sample = overlaps.measure(ir, live=True)
    assert len(sample.a) == len(found)


def test_n21_sums_of_ranges_have_64_bits() -> None:
    assert air.live_ranges(air.read("data/generated/tiny.json")).schema["live_to"] == pl.Int64


# -- control flow, against definitions ----


def reachable(edges: list[tuple[int, int]], start: int, without: int = -1) -> set[int]:
    found, todo = {start} - {without}, [start] if start != without else []
    while todo:
        node = todo.pop()
        for a, b in edges:
            if a == node and b != without and b not in found:
                found.add(b)
                todo.append(b)
    return found


@pytest.mark.parametrize("seed", range(60))
def test_blocks_are_traced_as_the_definitions_say(seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes = int(random.integers(1, 8))
    edges = sorted({(int(a), int(b)) for a, b in random.integers(0, nodes, (int(random.integers(0, 14)), 2))})
    source, target = (np.array([e[k] for e in edges], np.int64) for k in (0, 1))
    bounds, entries = (np.concatenate(([0], np.cumsum(np.bincount(v, minlength=nodes)))) for v in (source, target))
    state, retreating, dominating = (np.zeros(n, np.int8) for n in (nodes, len(edges), len(edges)))
    backwards = source[np.argsort(target, kind="stable")]
    work = np.zeros(5 * nodes, np.int64)
    trace_blocks(np.array([0, nodes]), bounds, target, entries, backwards, work, state, retreating, dominating)
    assert set(np.flatnonzero(state == 2).tolist()) == reachable(edges, 0)
    for number, (a, b) in enumerate(edges):
        dominates = a in reachable(edges, 0) and (a == b or a not in reachable(edges, 0, without=b))
        assert bool(dominating[number]) == (dominates and bool(retreating[number]))
        # An edge to a block that dominates its source goes back, whatever way the walk took.
        assert not dominates or retreating[number]
        assert not retreating[number] or a in reachable(edges, b)


@pytest.mark.parametrize("seed", range(40))
def test_peeling_leaves_cycles_and_what_is_behind_them(seed: int) -> None:
    random = np.random.default_rng(seed)
    nodes = int(random.integers(1, 8))
    edges = sorted((int(a), int(b)) for a, b in random.integers(0, nodes, (int(random.integers(0, 10)), 2)))
    source, target = (np.array([e[k] for e in edges], np.int64) for k in (0, 1))
    bounds = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=nodes))))
    left, queue = np.empty(nodes, np.int64), np.empty(nodes, np.int64)
    peel(bounds, target, left, queue)
    cyclic = {a for a, b in edges if a in reachable(edges, b)}
    assert set(np.flatnonzero(left > 0).tolist()) == {n for c in cyclic for n in reachable(edges, c)}


def test_n03_sizes_and_addresses_that_no_memory_has_do_not_wrap(
    main: build.FunctionBuilder, module: build.ModuleBuilder
) -> None:
    for name, addr in (("a", 2**63 - 1), ("b", 2**62), ("c", 0)):
        main.dram(name, [4, 8], addr=addr)
        main.allocations[-1]["memorylocations"][0]["dims"] = [2**62, 2**62]
    found = air.overlaps(module.ir(), live=False)
    assert found.select("location", "other").rows() == [("a", "b")]  # numbers are cut where no memory reaches
    assert (found["shared_bytes"] > 0).all()
    assert air.verify(module.ir(), "memory").filter(severity="error").is_empty()
