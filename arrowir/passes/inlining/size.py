"""The size that inlining would produce, known before anything is built (rule O6)."""

import numpy as np

from arrowir import diagnostics as diag
from arrowir import vocabulary
from arrowir.ir import IR
from arrowir.passes.inlining.closing import shape
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_calls import SIZE, Sites, called_by, levels, removable
from arrowir.passes.unrolling.loops import Loops
from arrowir.store import Array

MAX_NESTING = 1_000
"""Levels of kernels in kernels: each is an edit of its own."""


def check_size(ir: IR, sites: Sites, limit: int, errors: FirstErrors) -> None:
    """Fail modules that would become too large.

    Counted are the functions that stay, with bodies in place of their call-sites, and each body once: unrolled, with
    its own call-sites inlined.
    """
    if not len(sites):
        return
    loops = Loops(ir, np.ones(ir.count("functions"), bool), 0)
    times = loops.repeats()[loops.block[sites.row]]
    alone = loops.function_rows().astype(np.float64)
    spliced = ends_in_return(ir)
    body, given = alone.copy(), alone - spliced
    nested = levels(ir, sites)
    for functions in nested:
        wanted = np.zeros(len(body), bool)
        wanted[functions] = True
        inner = wanted[sites.function]
        if inner.any():
            np.add.at(body, sites.function[inner], times[inner] * (given[sites.callee[inner]] - 1))
        given[functions] = body[functions] - spliced[functions]
    function = ir.array("instructions", "function_id")
    rows = np.bincount(function[function >= 0], minlength=len(body)).astype(np.float64)
    outer = sites.ordinary
    np.add.at(rows, sites.function[outer], given[sites.callee[outer]] - 1)
    removed = removable(ir, sites, called_by(ir, sites))
    module = ir.tables["functions"]["module_id"]
    rows[removed] = 0
    callees = np.unique(sites.callee)
    predicted = np.bincount(module, rows, minlength=len(ir))
    predicted += np.bincount(module[callees], body[callees], minlength=len(ir))
    large = np.flatnonzero(predicted[sites.module] > limit)
    errors.add(
        SIZE,
        0,
        large,
        sites.module[large],
        lambda s: diag.make(
            "too_many_instructions",
            f"the module would have {int(predicted[sites.module[s]]):,} instructions, more than the "
            f"{limit:,} allowed; raise `max_instructions`",
            module_id=int(sites.module[s]),
        ),
    )
    deep = np.zeros(len(body), bool)
    for functions in nested[MAX_NESTING:]:
        deep[functions] = True
    over = np.flatnonzero(deep[sites.callee])
    errors.add(
        SIZE,
        1,
        over,
        sites.module[over],
        lambda s: diag.make(
            "not_supported",
            f"kernels call kernels more than {MAX_NESTING:,} levels deep; inline some of them first, "
            "or let them call each other less deeply",
            module_id=int(sites.module[s]),
        ),
    )


def ends_in_return(ir: IR) -> Array:
    """Tell for each function whether it is spliced and its last instruction, a Return, dropped."""
    found, of_block = shape(ir), ir.tables["instructions"]["block_id"]
    last = np.searchsorted(of_block, found.first + found.blocks) - 1
    has = (found.blocks == 1) & ~found.split & (last >= 0)
    has[has] = (of_block[last[has]] == found.first[has]) & (
        ir.tables["instructions"]["opcode"][last[has]] == vocabulary.OP_RETURN
    )
    return has
