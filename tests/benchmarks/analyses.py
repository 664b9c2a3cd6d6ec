"""Rows about analyses: what two batches differ in."""

from typing import TYPE_CHECKING

from tests.benchmarks.inputs import body, sites
from tests.benchmarks.registry import Case, Inputs, Peer, Row

if TYPE_CHECKING:
    import polars as pl

    from arrowir import IR, Diff


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


ROWS = (
    Row("diff_inlined", "diff: before and after inlining 1,000 x 200", _diff, needs=("sites_1000",), seconds=5),
    Row(
        "diff_same",
        "diff: a batch of 200,000 instructions and itself",
        _same,
        needs=("sites_1000",),
        peers=(Peer("diff_inlined"),),
    ),
    Row("diff_rows", "diff: every difference as a row", _rows, needs=("sites_1000",)),
)
