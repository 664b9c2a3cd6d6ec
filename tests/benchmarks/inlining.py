"""Rows about `inline_nki_kernel`, beside LLVM's always-inliner on the same shape."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.benchmarks.inputs import BLOCKS, anew, body, sites
from tests.benchmarks.llvm import AlwaysInliner, Shape
from tests.benchmarks.registry import Case, Inputs, Peer, Row

if TYPE_CHECKING:
    from arrowir import IR, PassResult

OPERANDS = 3


def inline(name: str, full: int, *, edges: bool = True, branches: int = 0) -> Callable[[Inputs], Case]:
    """Return the set-up of a row that inlines the call-sites of an input.

    `branches` of the instructions of a body are branches; then a NoOp stands in the last block, which is empty.
    """

    def set_up(inputs: Inputs) -> Case:
        import arrowir as air

        ir = air.read_parquet(inputs.path(name))
        count = sites(inputs, full) * body(inputs)
        inliner = air.passes.InlineNkiKernel()
        return Case(
            run=inliner,
            amount=count,
            unit="instructions",
            fresh=partial(anew, ir),
            check=partial(
                _check,
                ir=ir,
                instructions=count + (branches > 0),
                operands=OPERANDS * (count - branches * sites(inputs, full)),
                edges=edges,
            ),
        )

    return set_up


def _check(result: "PassResult", *, ir: "IR", instructions: int, operands: int, edges: bool) -> None:
    """Raise unless every call-site of every module became its body, with all that belongs to it."""
    assert result.ok, result.diagnostics
    assert set(result.status) == {"changed"}, result.status
    out = result.ir
    assert out.count("calls") == 0
    assert out.count("functions") == len(ir)
    assert out.count("instructions") == instructions, out
    assert out.count("operands") == operands, out
    assert (out.count("dependencies") > instructions) if edges else (out.count("dependencies") == 0), out
    names = out.tables["instructions"].text()
    assert len(names) == instructions
    assert len(names.data) > instructions


def llvm(full: int, **shape: Any) -> Callable[[Inputs], Case]:
    """Return the set-up of a row that runs LLVM's always-inliner."""

    def set_up(inputs: Inputs) -> Case:
        inliner = AlwaysInliner(Shape(sites(inputs, full), body(inputs), **shape))
        return Case(
            run=inliner.run,
            amount=inliner.shape.inlined - 1,
            unit="instructions",
            fresh=inliner.parse,
            check=inliner.check,
        )

    return set_up


ROWS = (
    Row(
        "inline_1000",
        "inline_nki_kernel: 1,000 call-sites of one kernel of 200 instructions, 3 operands each",
        inline("sites_1000", 1000),
        needs=("sites_1000",),
        peers=(Peer("llvm_inline_1000", at_most=1 / 10), Peer("llvm_inline_unnamed")),
        seconds=1 / 75,  # 15 million instructions per second
    ),
    Row(
        "inline_10000",
        "inline_nki_kernel: 10,000 call-sites",
        inline("sites_10000", 10_000),
        needs=("sites_10000",),
        peers=(Peer("llvm_inline_10000", at_most=1 / 25), Peer("inline_1000", at_most=12)),
        seconds=0.08,  # 25 million instructions per second
    ),
    Row(
        "inline_50000",
        "inline_nki_kernel: 50,000 call-sites of one kernel, 10 million instructions",
        inline("sites_50000", 50_000),
        needs=("sites_50000",),
        peers=(Peer("inline_10000", at_most=6),),
    ),
    Row(
        "inline_no_edges",
        "inline_nki_kernel: 1,000 call-sites, no dependencies",
        inline("sites_no_edges", 1000, edges=False),
        needs=("sites_no_edges",),
        peers=(Peer("llvm_inline_1000"), Peer("inline_1000", at_most=2)),
    ),
    Row(
        "inline_distinct",
        "inline_nki_kernel: 1,000 call-sites, each with a kernel of its own",
        inline("sites_distinct", 1000),
        needs=("sites_distinct",),
        peers=(Peer("llvm_inline_distinct"), Peer("inline_1000", at_most=2)),
    ),
    Row(
        "inline_nested",
        "inline_nki_kernel: 100 call-sites of a kernel that is 10 call-sites",
        inline("sites_nested", 1000),
        needs=("sites_nested",),
        peers=(Peer("inline_1000", at_most=2),),
    ),
    Row(
        "inline_blocks",
        "inline_nki_kernel: 1,000 call-sites of a kernel of four blocks",
        inline("sites_blocks", 1000, branches=BLOCKS),
        needs=("sites_blocks",),
        peers=(Peer("inline_1000", at_most=2),),
    ),
    Row(
        "inline_modules",
        "inline_nki_kernel: 1,000 modules of one call-site each in one batch",
        inline("modules_1000", 1000),
        needs=("modules_1000",),
        peers=(Peer("inline_1000", at_most=2),),
    ),
    Row("llvm_inline_1000", "LLVM's always-inliner: 1,000 calls of a function of 200 instructions", llvm(1000)),
    Row("llvm_inline_unnamed", "LLVM's always-inliner: the same, values without names", llvm(1000, named=False)),
    Row("llvm_inline_10000", "LLVM's always-inliner: 10,000 calls", llvm(10_000)),
    Row(
        "llvm_inline_distinct",
        "LLVM's always-inliner: 1,000 calls, each of a function of its own",
        llvm(1000, distinct=True),
    ),
)
