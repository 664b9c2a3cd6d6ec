"""Rows about analyses, and about executing modules."""

from functools import partial
from typing import TYPE_CHECKING

from tests.benchmarks.inputs import anew, body, sites
from tests.benchmarks.registry import Case, Inputs, Peer, Row

if TYPE_CHECKING:
    import polars as pl

    from arrowir import IR, Diff
    from arrowir.simulate.running import Simulation


def _inlined(inputs: Inputs) -> "tuple[IR, IR, int]":
    """Return a batch before and after inlining, and how many instructions come in."""
    import arrowir as air

    before = air.read_parquet(inputs.path("sites_1000"))
    return before, air.passes.inline_nki_kernel(before).ir, sites(inputs, 1000) * body(inputs)


def _diff(inputs: Inputs) -> Case:
    import arrowir as air

    before, after, count = _inlined(inputs)

    def check(found: "Diff") -> None:
        added = found.summary.filter(table="instructions", what="added")
        assert added["count"].to_list() == [count], added
        assert added["call_sites"].to_list() == [sites(inputs, 1000)], added

    return Case(lambda _: air.diff(before, after), count, "instructions", check=check)


def _same(inputs: Inputs) -> Case:
    import arrowir as air

    _, after, count = _inlined(inputs)

    def check(found: "Diff") -> None:
        assert not found, found

    return Case(lambda _: air.diff(after, after), count, "instructions", check=check)


def _rows(inputs: Inputs) -> Case:
    import arrowir as air

    before, after, count = _inlined(inputs)

    def check(rows: "pl.DataFrame") -> None:
        assert rows.filter(table="instructions", what="added").height == count

    return Case(lambda found: found.rows, count, "instructions", fresh=lambda: air.diff(before, after), check=check)


def _million(inputs: Inputs) -> Case:
    """Verify a module as it comes out of inlining; every run gets a batch that knows nothing yet."""
    import arrowir as air

    after = air.passes.inline_nki_kernel(air.read_parquet(inputs.path("sites_5000"))).ir
    return _verify(after, sites(inputs, 5000) * body(inputs))


def _small(inputs: Inputs) -> Case:
    """Verify many small modules in one sweep."""
    import arrowir as air

    ir = air.read_parquet(inputs.path("modules_10000"))
    after = air.passes.inline_nki_kernel(ir).ir
    return _verify(after, after.count("instructions"))


def _verify(ir: "IR", count: int) -> Case:
    import arrowir as air

    def check(found: "pl.DataFrame") -> None:
        assert found.filter(severity="error").is_empty(), found

    return Case(air.verify, count, "instructions", fresh=partial(anew, ir), check=check)


def _footprints(inputs: Inputs) -> Case:
    import arrowir as air

    _, after, _ = _inlined(inputs)

    def check(found: "pl.DataFrame") -> None:
        assert len(found) == after.count("operands")
        assert not found["undecided"].any()

    return Case(air.footprints, after.count("operands"), "operands", fresh=partial(anew, after), check=check)


def _overlaps(inputs: Inputs) -> Case:
    import arrowir as air

    _, after, _ = _inlined(inputs)
    return Case(air.overlaps, after.count("locations"), "locations", fresh=partial(anew, after))


def _simulated(ir: "IR", shape: tuple[int, int], names: str, count: int | None = None) -> Case:
    """Execute a module on random inputs of one shape."""
    import numpy as np

    import arrowir as air

    values = np.random.default_rng(1).standard_normal((len(names), *shape)).astype(np.float32)
    given = dict(zip(names, values, strict=True))
    rows = ir.count("instructions")

    def check(run: "Simulation") -> None:
        assert run.steps == rows == (count or rows), run.steps

    return Case(lambda _: air.simulate(ir, given), rows, "instructions", check=check)


def _product(inputs: Inputs) -> Case:
    from tests.programs import tiled_product

    size, width = inputs.size(2048, 256), inputs.size(512, 256)
    return _simulated(tiled_product(size, width), (size, size), "ab", None if inputs.quick else 3200)


def _attention(inputs: Inputs) -> Case:
    from tests.programs import Attention

    heads, length = inputs.size(3, 1), inputs.size(2048, 256)
    return _simulated(Attention(heads, length, 128, inputs.size(256, 128)).ir(), (heads * length, 128), "qkv")


ROWS = (
    Row("verify_inlined", "verify: a million instructions of one module", _million, needs=("sites_5000",), seconds=20),
    Row(
        "verify_modules",
        "verify: a million instructions of 10,000 modules",
        _small,
        needs=("modules_10000",),
        peers=(Peer("verify_inlined", at_most=1),),
    ),
    Row("footprints", "footprints: 600,000 operands, with intervals", _footprints, needs=("sites_1000",)),
    Row("overlaps", "overlaps: 41,000 locations, with live ranges", _overlaps, needs=("sites_1000",), seconds=1),
    Row("diff_inlined", "diff: before and after inlining 1,000 x 200", _diff, needs=("sites_1000",), seconds=5),
    Row(
        "diff_same",
        "diff: a batch of 200,000 instructions and itself",
        _same,
        needs=("sites_1000",),
        peers=(Peer("diff_inlined"),),
    ),
    Row("simulate_product", "simulate: a product of 2048 x 2048 in 3,200 instructions", _product, seconds=60),
    Row("simulate_attention", "simulate: a causal attention in 4,466 instructions", _attention, seconds=60),
    Row("diff_rows", "diff: every difference as a row", _rows, needs=("sites_1000",)),
)
