"""Bodies of several blocks: what makes them fit between the two halves of a split block (rule N13).

Done once for each distinct body, before it is cloned: a last block `continuation`, to which every `Return` branches,
as does the open end of the body. So a clone's branches are clones like others.
"""

from dataclasses import dataclass

import numpy as np

from arrowir import extras, layouts, vocabulary
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import picked, put
from arrowir.runs import Runs, take_rows
from arrowir.store import Array, Ids, Strings, Table, children, first_of

CONTINUATION, BRANCH, EMPTY = "continuation", "br_to_continuation", "noop"
"""Names in the kernel, from which a call-site makes its own."""


@dataclass(frozen=True)
class Shape:
    """How functions are made of blocks; one item a function."""

    first: Array
    """First block."""
    blocks: Array
    """Number of blocks."""
    split: Array
    """Whether the block around a call-site has to be split: several blocks, a Return before the end, or a branch back
    to the entry."""
    own_entry: Array
    """Whether something branches to the entry, which then is a block of its own."""


def shape(ir: IR) -> Shape:
    """Look at the blocks of every function of a batch."""
    blocks, instructions, branches = ir.tables["blocks"], ir.tables["instructions"], ir.tables["branches"]
    owner = np.where(blocks["instruction_id"] < 0, blocks["function_id"], -1)
    own = np.flatnonzero(owner >= 0)
    count = np.bincount(owner[own], minlength=ir.count("functions"))
    first = np.full(ir.count("functions"), -1, np.int64)
    first[owner[own][::-1]] = own[::-1]
    is_entry = np.zeros(len(blocks), bool)
    is_entry[first[first >= 0]] = True
    own_entry = np.zeros(ir.count("functions"), bool)
    target = branches["block_id"]
    target = target[target >= 0]
    own_entry[blocks["function_id"][target[is_entry[target]]]] = True
    at = instructions.holding("opcode", [vocabulary.OP_RETURN])
    block = instructions["block_id"][at]
    behind = at + 1 < len(instructions)
    early = behind & (instructions.at("block_id", at + behind) == block)
    split = (count > 1) | own_entry
    split[owner[block[early & (owner[block] >= 0)]]] = True
    return Shape(first, count, split, own_entry)


@dataclass(frozen=True)
class Closed:
    """A batch whose bodies of several blocks are closed."""

    ir: IR
    made: Array
    """Mask of the instructions that are new: no clones, for the rules of edges."""
    returns: Array
    """Mask of the instructions that were Returns."""


def close(ir: IR, functions: Array) -> Closed:
    """Close the bodies of some functions of a batch (row numbers)."""
    count = ir.count("instructions")
    if not len(functions):
        return Closed(ir, np.zeros(count, bool), np.zeros(count, bool))
    blocks, instructions = ir.tables["blocks"], ir.tables["instructions"]
    found = shape(ir)
    last = found.first[functions] + found.blocks[functions] - 1
    of_block = instructions["block_id"]
    of_function = np.full(ir.count("functions") + 1, -1, np.int64)
    of_function[functions] = len(blocks) + np.arange(len(functions))  # the continuation
    mine = (blocks["instruction_id"] < 0) & (of_function[blocks["function_id"]] >= 0)
    returns = np.flatnonzero((instructions["opcode"] == vocabulary.OP_RETURN) & mine[of_block])
    first_row, rows = children(of_block, last)
    end_row, open_ended = first_row + rows, rows == 0
    ends = np.flatnonzero(~open_ended)
    open_ended[ends] = ~np.isin(instructions["opcode"][end_row[ends] - 1], vocabulary.TERMINATORS)
    filled = np.zeros(len(blocks), bool)
    filled[of_block] = True
    filled[last] = True
    filled[found.first[functions]] = True  # what an empty entry needs is seen at the call-site
    empty = np.flatnonzero(mine & ~filled)

    ends = last[open_ended]
    block = np.concatenate((ends, empty))
    new = _instructions(ir, block, len(ends))
    owner = np.concatenate((returns, count + np.arange(len(ends))))
    goes_to = of_function[blocks["function_id"][np.concatenate((of_block[returns], ends))]]
    targets = Table.of(
        "branches", len(owner), instruction_id=owner, slot=vocabulary.BRANCH_SLOTS.code("target"), block_id=goes_to
    )
    ir = _returns_to_branches(ir, returns)
    edit = Edit(ir, {"blocks": _continuations(ir, functions), "instructions": new, "branches": targets})
    edit.keep("blocks", Runs.inserting(len(blocks), last + 1))
    order = np.argsort(block, kind="stable")
    edit.keep("instructions", Runs.inserting(count, first_of(of_block, block[order] + 1), order))
    before = np.concatenate((2 * returns + 1, 2 * end_row[open_ended]))  # new ones come before the next row's
    order = np.argsort(before, kind="stable")
    at = first_of(ir.tables["branches"]["instruction_id"], before[order] // 2)
    edit.keep("branches", Runs.inserting(ir.count("branches"), at, order))
    out = edit.build()
    runs = edit.runs["instructions"]
    made = runs.spread(runs.start >= count)
    places = edit.places("instructions")
    was_return = np.zeros(len(made), bool)
    was_return[returns if places is None else places[0][returns]] = True
    return Closed(out, made, was_return)


def _instructions(ir: IR, block: Array, branches: int) -> Table:
    """Make branches to the continuation, and then NoOps; their engine is the call-site's and comes with it."""
    rows, keys = len(block), ["name", "opcode", "engine", "ins", "outs"]
    is_branch = np.arange(rows) < branches
    layout = [ir.pools.layouts.intern(layouts.of(keys)), ir.pools.layouts.intern(layouts.of([*keys, "target"]))]
    return Table.of(
        "instructions",
        rows,
        block_id=block,
        name=Strings.of([BRANCH] * branches + [EMPTY] * (rows - branches)),
        opcode=np.where(is_branch, vocabulary.OP_UNCONDITIONAL_BRANCH, vocabulary.OP_NOOP),
        engine=vocabulary.ENGINE_UNASSIGNED,
        layout=np.where(is_branch, layout[1], layout[0]),
    )


def _continuations(ir: IR, functions: Array) -> Table:
    return Table.of(
        "blocks",
        len(functions),
        function_id=functions,
        instruction_id=-1,
        queue_id=-1,
        owner=ir.pools.codes["block_owner"].find("function"),
        name=Strings.of([CONTINUATION] * len(functions)),
        layout=ir.pools.layouts.intern(layouts.of(["name", "instructions"])),
    )


def _returns_to_branches(ir: IR, rows: Array) -> IR:
    """Make branches of Returns. What they were called is remembered; keys are settled with the call-site's."""
    if not len(rows):
        return ir
    table, branches = ir.tables["instructions"], ir.tables["branches"]
    names, known = table.text(), table.text("original_name")
    unknown = rows[np.diff(known.offsets)[rows] == 0]
    opcode, extra = table["opcode"].copy(), table["extra"].copy()
    opcode[rows] = vocabulary.OP_UNCONDITIONAL_BRANCH
    extra[rows] = _without_target(ir, extra[rows])
    changed = table.replace(
        name=put(names, rows, Strings.of([BRANCH] * len(rows))),
        original_name=put(known, unknown, picked(names, unknown)),
        opcode=opcode,
        extra=extra if table.has("extra") else None,
    )
    old = np.isin(branches["instruction_id"], rows) & (branches["slot"] == vocabulary.SLOT_TARGET)
    return ir.replace(instructions=changed, branches=take_rows(branches, np.flatnonzero(~old)))


def _without_target(ir: IR, ids: Ids) -> Ids:
    """Return members without a `target` that was no name of a block."""
    pool = ir.pools.extras

    def change(number: int) -> int:
        rest = extras.without(pool[number], "target")
        return pool.intern(rest) if rest else -1

    return pool.map_ids(ids, change)
