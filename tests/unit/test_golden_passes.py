"""Listings of three small modules before and after the passes."""

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


@pytest.mark.parametrize(("name", "module"), [("example", example), ("chained", chained)])
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
