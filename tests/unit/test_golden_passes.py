"""Listings of small modules before and after the passes."""

from collections.abc import Callable
from pathlib import Path

import pytest

import arrowir as air
from arrowir import build

EXAMPLE = Path(__file__).parents[2] / "data" / "samples" / "bir_json_example.json"


def example() -> air.IR:
    """Return the sample: a pinned tile, and a kernel with a loop that brings its own addresses."""
    return air.read(EXAMPLE)


def chained() -> air.IR:
    """Return two calls of one kernel and one of another, with edges on and of the call-sites."""
    module = build.module(arch="gen3")
    main = module.function("sg0000")
    x, y, z = main.input("x", (128, 64)), main.dram("y", (128, 64)), main.output("z", (128, 64))
    scale = module.kernel("scale")
    a, c = scale.input("a", (128, 64)), scale.output("c", (128, 64))
    tile = scale.sb("tile", (128, 64))
    load = scale.add("Load", [a], [tile], name="load")
    twice = scale.add("TensorScalar", [tile], [tile], name="twice", op0="mult", const0=2.0, reverse0=False,
                     op1="bypass", const1=0.0, reverse1=False, after=[load])  # fmt: skip
    scale.add("Save", [tile], [c], name="save", after=[twice])
    first = main.call(scale, {a: x}, {c: y}, name="first")
    second = main.call(scale, {a: y}, {c: z}, name="second", after=[first])
    main.add("NoOp", name="end", after=[second])
    return module.ir()


def nested() -> air.IR:
    """Return a call of a kernel that calls a kernel that calls one: three deep, the outermost of several blocks."""
    module = build.module(arch="gen3")
    inner = module.kernel("scale")
    a, c = inner.input("a", (128, 64)), inner.output("c", (128, 64))
    tile = inner.sb("tile", (128, 64), addr=0)
    load = inner.add("Load", [a], [tile], name="load", engine="SP")
    twice = inner.add("TensorScalar", [tile], [tile], name="twice", op0="mult", const0=2.0, reverse0=False,
                      op1="bypass", const1=0.0, reverse1=False, after=[load], engine="DVE")  # fmt: skip
    inner.add("Save", [tile], [c], name="save", after=[twice], engine="SP")
    middle = module.kernel("twice_scaled")
    b, d = middle.input("b", (128, 64)), middle.output("d", (128, 64))
    between, pad = middle.dram("between", (128, 64)), middle.sb("pad", (128, 64), addr=256)
    first = middle.call(inner, {a: b}, {c: between}, scratch=[pad], name="first")
    middle.call(inner, {a: between}, {c: d}, scratch=[pad], name="second", after=[first])
    outer = module.kernel("if_wanted")
    e, f = outer.input("e", (128, 64)), outer.output("f", (128, 64))
    pad, wanted = outer.sb("pad", (128, 256), addr=512), outer.register("wanted")
    outer.compare(wanted, "IS_EQIMM", 0, "Skip", "Work", name="test")
    outer.block("Work")
    outer.call(middle, {b: e}, {d: f}, scratch=[pad], name="work")
    outer.branch("Done", name="done")
    outer.block("Skip")
    outer.add("Return", name="skip")
    outer.block("Done")
    outer.add("NoOp", name="end")
    main = module.function("sg0000")
    x, z = main.input("x", (128, 64)), main.output("z", (128, 64))
    pad = main.sb("pad", (128, 1024), addr=16384)
    clear = main.add("Memset", [], [z], name="clear", mode="Const", constant=0, engine="Pool")
    call = main.call(outer, {e: x}, {f: z}, scratch=[pad], name="call", after=[clear], engine="Pool")
    main.add("NoOp", name="after", after=[call], engine="Pool")
    return module.ir("nested")


def test_provenance_three_deep_in_split_blocks(golden: Callable[[str, str], None]) -> None:
    ir = nested()
    result = air.run(ir)
    assert result.ok, result.diagnostics
    golden("nested_before", ir.text(0))
    golden("nested_provenance", result.ir.text(0, provenance=True))
    golden("nested_diff", f"{air.diff(ir, result.ir)}\n")


def branching() -> air.IR:
    """Return a call of a kernel that goes round a block and leaves early, between two instructions of a block."""
    module = build.module(arch="gen3")
    main = module.function("sg0000")
    x, y = main.input("x", (128, 64)), main.output("y", (128, 64))
    halve = module.kernel("halve")
    a, c = halve.input("a", (128, 64)), halve.output("c", (128, 64))
    tile, left = halve.sb("tile", (128, 64)), halve.register("left")
    halve.block("entry")
    load = halve.add("Load", [a], [tile], name="load")
    halve.compare(left, "IS_EQIMM", 0, "done", "again", name="nothing", after=[load])
    halve.block("again")
    once = halve.add("TensorScalar", [tile], [tile], name="once", op0="mult", const0=0.5, reverse0=False,
                     op1="bypass", const1=0.0, reverse1=False, after=[load])  # fmt: skip
    halve.compare(left, "IS_GTIMM", 0, "again", "save", name="more", after=[once])
    halve.block("done")
    halve.add("Return", name="leave", after=[load])
    halve.block("save")
    halve.add("Save", [tile], [c], name="save", after=[once])
    first = main.add("NoOp", name="first")
    call = main.call(halve, {a: x}, {c: y}, name="call", after=[first])
    main.add("NoOp", name="last", after=[call])
    return module.ir()


def stacked() -> air.IR:
    """Return a call of a kernel that calls another one in a loop, with a scratchpad at each level."""
    module = build.module(arch="gen3")
    main = module.function("sg0000")
    x, y, pad = main.input("x", (128, 64)), main.output("y", (128, 64)), main.sb("pad", (128, 512), addr=4096)
    inner = module.kernel("scale")
    a, c, tile = inner.input("a", (128, 64)), inner.output("c", (128, 64)), inner.sb("tile", (128, 64), addr=64)
    load = inner.add("Load", [a], [tile], name="load")
    inner.add("Save", [tile], [c], name="save", after=[load])
    outer = module.kernel("twice")
    b, d, buffer = outer.input("b", (128, 64)), outer.output("d", (128, 64)), outer.dram("buffer", (128, 64))
    space = outer.sb("space", (128, 256), addr=1024)
    first = outer.call(inner, {a: b}, {c: buffer}, name="in", scratch=[space])
    with outer.loop(0, 2, name="loop"):
        outer.call(inner, {a: buffer}, {c: d}, name="out", scratch=[space], after=[first])
    call = main.call(outer, {b: x}, {d: y}, name="call", scratch=[pad])
    main.add("NoOp", name="end", after=[call])
    return module.ir()


def library() -> air.IR:
    """Return a norm and an activation by library kernels, between two instructions."""
    module = build.module(arch="gen3")
    main = module.function("sg0000")
    x, gamma = main.input("x", (192, 64), "bfloat16"), main.input("gamma", (64,), "bfloat16")
    t, y = main.dram("t", (192, 64), "bfloat16"), main.output("y", (192, 64), "bfloat16")
    row = gamma.access([[1, 1], [1, 64]])
    first = main.add("NoOp", name="first", engine="SP")
    norm = main.add("BIRKernel", [x, row], [t], name="norm", kernel_name="RMSNorm", after=[first],
                    srcs_shape=[[192, 64], [64]], dsts_shape=[[192, 64]], kernel_attrs=[["eps", "1e-5"]])  # fmt: skip
    act = main.add("BIRKernel", [t], [y], name="act", kernel_name="Activation", after=[norm],
                   srcs_shape=[[192, 64]], dsts_shape=[[192, 64]], kernel_attrs=[["act_fn", "GELU"]])  # fmt: skip
    main.add("NoOp", name="last", engine="SP", after=[act])
    return module.ir()


MODULES = [
    ("example", example),
    ("chained", chained),
    ("branching", branching),
    ("stacked", stacked),
    ("library", library),
]


@pytest.mark.parametrize(("name", "module"), MODULES)
def test_listings_before_and_after_the_run(
    name: str, module: Callable[[], air.IR], golden: Callable[[str, str], None]
) -> None:
    ir = module()
    result = air.run(ir)
    assert result.ok
    golden(f"{name}_before", ir.text(0))
    golden(f"{name}_after", result.ir.text(0))


def test_listing_before_and_after_unrolling(golden: Callable[[str, str], None]) -> None:
    ir = air.read(EXAMPLE.parents[1] / "generated" / "loops.json")
    result = air.passes.unroll(ir)
    assert result.status.to_list() == ["changed"]
    golden("loops_before", ir.text(0))
    golden("loops_unrolled", result.ir.text(0))


def test_listing_before_and_after_loops_become_branches(golden: Callable[[str, str], None]) -> None:
    ir = air.read(EXAMPLE.parents[1] / "generated" / "experts.json")
    result = air.passes.unroll(ir)
    assert result.status.to_list() == ["changed"]
    golden("experts_before", ir.text(0))
    golden("experts_unrolled", result.ir.text(0))


def exchanging() -> air.IR:
    """Return a kernel that exchanges the parts of a tensor in a loop over channels, with a step behind it."""
    module = build.module(arch="gen3")
    main = module.function("sg0000")
    x, y = main.input("x", (4, 32)), main.output("y", (4, 32))
    swap = module.kernel("swap")
    a, c = swap.input("a", (4, 32)), swap.output("c", (4, 32))
    part = [[32, 4], [1, 8]]
    clear = swap.add("Memset", [], [c], name="clear", engine="Pool", mode="Const", constant=0)
    with swap.loop(0, 4, name="channels") as i:
        ins, outs = ([tensor.at(0, 8 * i, pattern=part)] for tensor in (a, c))
        keys = {"kind": "PermuteImplicit", "cc_channel": i, "replica_groups": [[0]]}
        send = swap.add("CollectiveCompute", ins, outs, name="send", engine="Pool", after=[clear], **keys)
    swap.add("NoOp", name="sent", engine="SP", after=[send])
    main.call(swap, {a: x}, {c: y}, name="call")
    return module.ir()


def test_listing_before_and_after_coalescing(golden: Callable[[str, str], None]) -> None:
    inlined = air.passes.inline_nki_kernel(exchanging()).ir
    result = air.passes.coalesce_multichannel_cc_ops(inlined)
    assert result.status.to_list() == ["changed"]
    golden("collectives_before", inlined.text(0))
    golden("collectives_after", result.ir.text(0))
    assert air.equivalent(exchanging(), result.ir).ok


def gathering() -> air.IR:
    """Return a kernel that reads rows of a table by index and adds them to those of another table."""
    module = build.module(arch="gen3")
    main = module.function("sg0000")
    x, y, where = main.input("x", (20, 8)), main.output("y", (20, 8)), main.input("where", (4, 1), dtype="int32")
    move = module.kernel("move")
    a, c, at = move.input("a", (20, 8)), move.output("c", (20, 8)), move.input("at", (4, 1), dtype="int32")
    rows, index = move.sb("rows", (4, 8)), move.sb("index", (4, 1), dtype="int32")
    load = move.add("Load", [at], [index], name="load", engine="SP")
    keys = {"engine": "Pool", "indirect_dims": ["W"]}
    get = move.add("GenericIndirectLoad", [a, index], [rows], name="get", after=[load], **keys)
    move.add("GenericIndirectSave", [rows, index], [c], name="put", after=[get], **keys)
    main.call(move, {a: x, at: where}, {c: y}, name="call")
    return module.ir()


def test_listing_before_and_after_lowering_indirect_accesses(golden: Callable[[str, str], None]) -> None:
    ir = gathering()
    result = air.passes.inline_nki_kernel(ir)
    assert result.status.to_list() == ["changed"]
    golden("indirect_before", ir.text(0))
    golden("indirect_after", result.ir.text(0))
    assert air.equivalent(ir, result.ir).ok
