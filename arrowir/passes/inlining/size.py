"""The size that inlining would produce, known before anything is built (rule O6)."""

import numpy as np

from arrowir import diagnostics as diag
from arrowir import vocabulary
from arrowir.ir import IR
from arrowir.passes.inlining.closing import Shape
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_calls import SIZE, Sites, called_by, levels, removable
from arrowir.passes.lower_generic_indirect import more_rows
from arrowir.passes.unrolling.loops import Loops
from arrowir.store import Array, children, first_of

MAX_NESTING = 1_000
"""Levels of kernels in kernels: each is an edit of its own."""


def check_size(ir: IR, sites: Sites, loops: Loops, found: Shape, limit: int, errors: FirstErrors) -> None:
    """Fail modules that would become too large.

    Counted are the functions that stay, with bodies in place of their call-sites, and each body once: unrolled, with
    its own call-sites inlined.
    """
    if not len(sites):
        return
    repeats = loops.repeats()
    block = loops.block[sites.row]
    body = loops.function_rows().astype(np.float64)
    generic, more = more_rows(ir)
    if len(generic):
        np.add.at(body, ir.array("instructions", "function_id")[generic], more * repeats[loops.block[generic]])
    split, dropped = found.split | _lowers(ir, loops), _drops_return(ir, loops, found, repeats)
    dropped &= ~split
    given = body - dropped
    cut = np.zeros(len(loops.owner), bool)
    nested = levels(ir, sites)
    for functions in nested:
        wanted = np.zeros(len(body), bool)
        wanted[functions] = True
        inner = np.flatnonzero(wanted[sites.function])
        if len(inner):
            callee, function = sites.callee[inner], sites.function[inner]
            split[function[split[callee]]] = True
            at = block[inner[split[callee]]]
            at = at[loops.owning_loop[at] >= 0]
            if len(at):  # loops around a body of several blocks are lowered
                cut[at] = True
                loops = Loops(ir, loops.functions, loops.shard_id, cut)
                repeats = loops.repeats()
                body[functions] = loops.function_rows().astype(np.float64)[functions]
            np.add.at(body, function, repeats[block[inner]] * (given[callee] - 1))
            emptied = _emptied(loops.block, block[inner], ~split[callee] & (given[callee] == 0))
            np.add.at(body, ir.tables["blocks"]["function_id"][emptied], repeats[emptied])
        given[functions] = body[functions] - (dropped & ~split)[functions]
    rows = loops.rows_now().astype(np.float64)
    outer = sites.ordinary
    callee = sites.callee[outer]
    np.add.at(rows, sites.function[outer], given[callee] - 1)
    emptied = _emptied(loops.block, block[outer], ~split[callee] & (given[callee] == 0))
    np.add.at(rows, ir.tables["blocks"]["function_id"][emptied], 1)
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


def _lowers(ir: IR, loops: Loops) -> Array:
    """Tell for each function whether some loop of it becomes branches, which makes several blocks of one."""
    found = np.zeros(len(loops.functions), bool)
    found[ir.array("instructions", "function_id")[loops.rows[loops.lowered]]] = True
    return found


def _emptied(of_row: Array, block: Array, nothing: Array) -> Array:
    """Return the blocks of which nothing is left, so that they get a NoOp: those of call-sites whose body is empty.

    `of_row` is the block of every instruction; `block` that of each call-site, `nothing` whether nothing comes of it.
    """
    blocks, count = np.unique(block[nothing], return_counts=True)
    return blocks[count == children(of_row, blocks)[1]]


def _drops_return(ir: IR, loops: Loops, found: Shape, repeats: Array) -> Array:
    """Tell for each function whether it is spliced and, once unrolled, ends in its only Return."""
    opcode, of_block = loops.opcode, loops.block
    at = np.flatnonzero(opcode == vocabulary.OP_RETURN)
    function = ir.tables["blocks"]["function_id"][of_block[at]]
    returns = np.bincount(function[function >= 0], repeats[of_block[at[function >= 0]]], minlength=len(found.first))
    row = first_of(of_block, found.first + 1) - 1
    block = np.where((found.blocks == 1) & ~found.own_entry & (returns == 1), found.first, -1)
    row = np.where((block >= 0) & (row >= 0), row, -1)
    row[row >= 0] = np.where(of_block[row[row >= 0]] == block[row >= 0], row[row >= 0], -1)
    body = np.full(len(loops.rows), -1, np.int64)
    bodies = np.flatnonzero(loops.owning_loop >= 0)
    body[loops.owning_loop[bodies]] = bodies
    while True:  # into the loops that end it, past those that come to nothing
        loop = np.where(row >= 0, loops.number[np.maximum(row, 0)], -1) if len(loops.number) else row
        inside = np.flatnonzero(loop >= 0)
        if not len(inside):
            break
        inner = body[loop[inside]]
        last = first_of(of_block, inner + 1) - 1
        runs = (loops.trips[loop[inside]] > 0).astype(bool) & (inner >= 0) & (last >= 0)
        runs[runs] = of_block[last[runs]] == inner[runs]
        before = row[inside] - 1
        stays = (before >= 0) & (of_block[np.maximum(before, 0)] == of_block[row[inside]])
        row[inside] = np.where(runs, last, np.where(stays, before, -1))
    drops = row >= 0
    drops[drops] = opcode[row[drops]] == vocabulary.OP_RETURN
    return drops
