"""Cutting flat blocks where lowered loops stood: branches, and blocks between them (rule U2).

All rows of a lowered loop stand one behind the other in the flat result, between markers. So nothing moves: blocks
begin at the markers, and rows come in their place.
"""

from dataclasses import dataclass

import numpy as np

from arrowir import extras, layouts
from arrowir import vocabulary as vocab
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import fresh_names, picked, put, suffixed
from arrowir.passes.unrolling import iterations as marker
from arrowir.passes.unrolling.iterations import Iterations
from arrowir.passes.unrolling.lowered_shapes import APART, NO_LATCH
from arrowir.passes.unrolling.lowering import Lowering, together
from arrowir.passes.unrolling.runtime_loops import BODY, EXIT, Row, Use
from arrowir.runs import Runs
from arrowir.store import Array, Ids, Pool, Strings, Table, starts

ENTRY_BLOCK, BODY_BLOCK, NEXT_BLOCK, EXIT_BLOCK, RESUME_BLOCK = (
    "LoopEntry", "LoopBody", "LoopNext", "LoopExit", "Resume",
)  # fmt: skip
_BLOCKS = (ENTRY_BLOCK, BODY_BLOCK, NEXT_BLOCK, EXIT_BLOCK, RESUME_BLOCK)
ENTRY, FIRST, NEXT, LEAVE, REST = range(len(_BLOCKS))
"""Kinds of new blocks; what begins behind a marker between two blocks of a body is a `FIRST` too, of a later one."""

_JUMP = Row("branch", vocab.OP_UNCONDITIONAL_BRANCH, on_true="entry")
_ONWARD = Row("branch", vocab.OP_UNCONDITIONAL_BRANCH, on_true="resume")
_NOTHING = Row("noop", vocab.OP_NOOP)

_ORDER = 1 << 10
"""More than what comes at one marker."""


@dataclass
class _Block:
    """Blocks that begin at markers of one kind: their lowered loops, markers, and places among what comes there."""

    loop: Array
    place: Array
    rank: Array
    kind: Array
    body: Array
    """For a block of a loop's body the block that it was, -1 for others."""


@dataclass
class _Rows:
    """New instructions of one kind."""

    loop: Array
    place: Array
    rank: int
    row: Row
    where: str
    """The name of the block that they are named after."""


class Cut:
    """Makes the blocks.

    Parameters
    ----------
    lowering
        The lowered loops.
    iterations
        The instances.
    flat
        The batch with all loops unrolled, and markers among its instructions.
    branches
        The row that each row of its `branches` comes from.
    """

    def __init__(self, lowering: Lowering, iterations: Iterations, flat: IR, branches: Array) -> None:
        self.lowering, self.shapes, self.flat = lowering, lowering.shapes, flat
        self.iterations, self.branch_source = iterations, branches
        at = np.flatnonzero(iterations.marker)
        loop = self.shapes.place[iterations.loops.number[iterations.source[at]]]
        kind = iterations.marker[at]
        self.begin, self.end = (np.zeros(len(self.shapes.row), np.int64) for _ in range(2))
        self.begin[loop[kind == marker.BEGIN]] = at[kind == marker.BEGIN]
        self.end[loop[kind == marker.END]] = at[kind == marker.END]
        self.between = at[kind == marker.BETWEEN], loop[kind == marker.BETWEEN]
        self._find_blocks()
        self._find_rows()

    # -- what there is -------------------------------------------------------------------------------------------

    def _find_blocks(self) -> None:
        """Find the new blocks, in order."""
        shapes, every = self.shapes, np.arange(len(self.shapes.row))
        first = np.full(len(every), -1, np.int64)
        first[shapes.of_body[::-1]] = shapes.bodies[::-1]
        apart = np.flatnonzero(shapes.latch == APART)
        place, of = self.between
        order = np.lexsort((place, of))
        place, of = place[order], of[order]
        later = np.ones(len(shapes.bodies), bool)
        later[np.searchsorted(shapes.of_body, every[shapes.blocks > 0])] = False
        parts = [
            (every, self.begin, 2, ENTRY, np.full(len(every), -1)),
            (every, self.begin, 4, FIRST, first),
            (of, place, 2, FIRST, shapes.bodies[later]),
            (apart, self.end[apart], 0, NEXT, np.full(len(apart), -1)),
            (every, self.end, 2, LEAVE, np.full(len(every), -1)),
            (every, self.end, 4, REST, np.full(len(every), -1)),
        ]
        loop, place, rank, kind, body = (
            np.concatenate([np.broadcast_to(part[k], part[0].shape) for part in parts]) for k in range(5)
        )
        order = np.lexsort((rank, place))
        self.blocks = _Block(loop[order], place[order], rank[order], kind[order], body[order])
        self.block_of = np.full((len(_BLOCKS), len(every)), -1, np.int64)
        new = self.flat.count("blocks") + np.arange(len(order))
        first_ones = (self.blocks.kind != FIRST) | (self.blocks.rank == 4)
        self.block_of[self.blocks.kind[first_ones], self.blocks.loop[first_ones]] = new[first_ones]

    def _find_rows(self) -> None:
        """Find the new instructions."""
        shapes, every = self.shapes, np.arange(len(self.shapes.row))
        open_ = np.flatnonzero(~shapes.left)
        found = [_Rows(open_, self.begin[open_], 1 * _ORDER, _JUMP, f"br_to_{ENTRY_BLOCK}")]
        for number, form in enumerate(shapes.forms):
            mine = np.flatnonzero(shapes.form == number)
            for k, row in enumerate(form.entry):
                found.append(_Rows(mine, self.begin[mine], 3 * _ORDER + k, row, ENTRY_BLOCK))
            again = mine[shapes.latch[mine] != NO_LATCH]
            for k, row in enumerate(form.latch):
                found.append(_Rows(again, self.end[again], 1 * _ORDER + k, row, BODY_BLOCK))
        empty = np.flatnonzero(shapes.empty)
        found.append(_Rows(every, self.end, 3 * _ORDER, _ONWARD, EXIT_BLOCK))
        found.append(_Rows(empty, self.end[empty], 5 * _ORDER, _NOTHING, RESUME_BLOCK))
        self.rows = [rows for rows in found if len(rows.loop)]

    # -- building ------------------------------------------------------------------------------------------------

    def build(self) -> IR:
        """Make the batch."""
        flat, old = self.flat, self.flat.count("instructions")
        loop = np.concatenate([rows.loop for rows in self.rows])
        place = np.concatenate([rows.place for rows in self.rows])
        rank = np.concatenate([np.full(len(rows.loop), rows.rank) for rows in self.rows])
        which = np.repeat(np.arange(len(self.rows)), [len(rows.loop) for rows in self.rows])
        order = np.lexsort((rank, place))
        self._number_of = np.empty(len(order), np.int64)
        self._number_of[order] = np.arange(len(order))
        block = self._block_at(place[order], rank[order] // _ORDER)
        names = self._row_names(which)
        function = self.lowering.function[loop[order]]
        names = self._free("instructions", picked(names, order), function)
        added = {
            "instructions": self._instructions(which[order], block, names),
            "operands": self._operands(old),
            "branches": self._branches(old),
            "blocks": self._blocks(),
            "references": self._block_references(),
        }
        kept = self.iterations.marker == marker.NONE
        stays = self._rows_in_blocks(self._breaks(self._branches_in_bodies(flat)))
        edit = Edit(stays, {name: table for name, table in added.items() if len(table)})
        real = np.flatnonzero(kept)
        sources = np.concatenate((real, old + np.arange(len(order))))
        places, ranks = (
            np.concatenate((real, place[order])),
            np.concatenate((np.zeros(len(real), np.int64), rank[order])),
        )
        edit.keep("instructions", Runs.picking(sources[np.lexsort((ranks, places))]))
        behind = self._flat_block(self.blocks.place) + 1
        edit.keep("blocks", Runs.inserting(flat.count("blocks"), behind))
        return edit.build()

    def _flat_block(self, place: Array) -> Array:
        """Return the block of the flat batch that rows of it stand in."""
        return self.flat.tables["instructions"]["block_id"][place].astype(np.int64)

    def _block_at(self, place: Array, rank: Array) -> Array:
        """Return the block that things at markers are in: the last that begins before them, else the flat one."""
        flat_block = self._flat_block(place)
        blocks = self.blocks
        key = blocks.place * 8 + blocks.rank
        last = np.searchsorted(key, place * 8 + rank) - 1
        known = last >= 0
        known[known] = self._flat_block(blocks.place[last[known]]) == flat_block[known]
        return np.where(known, self.flat.count("blocks") + last, flat_block)

    def _rows_in_blocks(self, flat: IR) -> IR:
        """Put the instructions that stay into their blocks."""
        instructions = flat.tables["instructions"]
        touched = np.zeros(flat.count("blocks"), bool)
        touched[self._flat_block(self.blocks.place)] = True
        rows = np.flatnonzero(touched[instructions["block_id"]])
        block = instructions["block_id"].copy()
        block[rows] = self._block_at(rows, np.full(len(rows), 7))
        return flat.replace(instructions=instructions.replace(block_id=block))

    # -- new rows ------------------------------------------------------------------------------------------------

    def _row_names(self, which: Array) -> Strings:
        names = self.lowering.names
        parts = list[tuple[Array, Strings]]()
        for number, rows in enumerate(self.rows):
            behind = "" if rows.row is _JUMP else f"_{rows.row.name}"
            parts.append((np.flatnonzero(which == number), names.of(rows.loop, rows.where, behind)))
        return together(parts)

    def _free(self, table: str, wanted: Strings, function: Array) -> Strings:
        """Make names free (rule R6): taken are those that the functions had when the pass started."""
        before = self.lowering.before.ir
        of = before.array(table, "function_id")
        taken = np.flatnonzero(np.isin(of, self.lowering.functions))
        return fresh_names(picked(before.tables[table].text(), taken), of[taken], wanted, function)

    def _instructions(self, which: Array, block: Array, names: Strings) -> Table:
        pool, extra_pool = self.flat.pools.layouts, self.flat.pools.extras
        layout, extra, opcode = (np.empty(len(self.rows), np.int64) for _ in range(3))
        for number, rows in enumerate(self.rows):
            keys = [(layouts.COLUMN, key) for key in ("engine", "ins", "name", "opcode", "outs")]
            text = -1
            if rows.row.op:
                key = "op" if rows.row.out is not None else "comp_op"
                keys.append((layouts.RAW, key))
                text = extra_pool.intern(extras.join([(key, extras.dump(rows.row.op))]))
            if rows.row.on_false:
                keys += [(layouts.COLUMN, "on_false"), (layouts.COLUMN, "on_true")]
            elif rows.row.on_true:
                keys.append((layouts.COLUMN, "target"))
            layout[number] = pool.intern(layouts.layout(sorted(keys, key=lambda member: member[1])))
            extra[number], opcode[number] = text, rows.row.opcode
        return Table.of(
            "instructions", len(which), block_id=block, name=names, opcode=opcode[which], layout=layout[which],
            extra=extra[which], engine=vocab.ENGINE_ALL,
        )  # fmt: skip

    def _uses(self) -> list[tuple[Array, Array, Use, int, int]]:
        """Return the operands: new instruction, lowered loop, what it is, role, place among the operands."""
        found = list[tuple[Array, Array, Use, int, int]]()
        base = 0
        for rows in self.rows:
            number = self._number_of[base : base + len(rows.loop)]
            base += len(rows.loop)
            for place, use in enumerate(rows.row.ins):
                found.append((number, rows.loop, use, vocab.ROLE_IN, place))
            if rows.row.out is not None:
                found.append((number, rows.loop, rows.row.out, vocab.ROLE_OUT, len(rows.row.ins)))
        return found

    def _operands(self, old: int) -> Table:
        uses = self._uses()
        if not uses:
            return Table.empty("operands")
        pools = self.flat.pools
        columns: dict[str, list[Array]] = {name: [] for name in ("owner", "place", "role", "register", "extra")}
        for number, loop, use, role, place in uses:
            register, extra = self._value(loop, use)
            for name, values in zip(columns, (number, place, role, register, extra), strict=True):
                columns[name].append(np.broadcast_to(np.asarray(values, np.int64), number.shape))
        owner, place, role, register, extra = (np.concatenate(values) for values in columns.values())
        order = np.lexsort((place, owner))
        named = register[order] >= 0
        kind = np.where(named, vocab.OPERAND_REGISTER_ACCESS, vocab.OPERAND_IMM_VALUE)
        access = pools.layouts.intern(layouts.of(["dtype", "kind", "regref"]))
        value = pools.layouts.intern(layouts.layout([("c", "dtype"), ("c", "kind"), ("r", "value")]))
        return Table.of(
            "operands", len(order), instruction_id=old + owner[order], role=role[order], kind=kind,
            dtype=vocab.DTYPES.code("int32"), register_id=register[order], extra=extra[order],
            layout=np.where(named, access, value),
        )  # fmt: skip

    def _value(self, loop: Array, use: Use) -> tuple[Array, Array]:
        """Return register and text of an operand."""
        nothing = np.full(len(loop), -1, np.int64)
        if use.what == "register":
            return self.lowering.register(loop, str(use.value)), nothing
        if use.what == "slot":
            return self.lowering.slot(loop, int(use.value)).astype(np.int64), nothing
        if use.what == "number":
            numbers = self.shapes.numbers[loop, int(use.value)]
        else:
            bound = ("lb", "ub", "stride").index(str(use.value))
            numbers = self.lowering.before.written[bound][self.shapes.number[loop]]
        distinct, place = np.unique(numbers, return_inverse=True)
        pool = self.flat.pools.extras
        texts = np.array([pool.intern(f'{{"value":{number}}}') for number in distinct.tolist()], np.int64)
        return nothing, texts[place.reshape(-1)]

    def _branches(self, old: int) -> Table:
        owner, slot, block = list[Array](), list[Array](), list[Array]()
        base = 0
        for rows in self.rows:
            number = self._number_of[base : base + len(rows.loop)]
            base += len(rows.loop)
            goes = {"entry": ENTRY, BODY: FIRST, EXIT: LEAVE, "resume": REST}
            slots = (vocab.SLOT_ON_TRUE, vocab.SLOT_ON_FALSE) if rows.row.on_false else (vocab.SLOT_TARGET, -1)
            for where, target in zip(slots, (rows.row.on_true, rows.row.on_false), strict=True):
                if target:
                    owner.append(number)
                    slot.append(np.full(len(number), where))
                    block.append(self.block_of[goes[target], rows.loop])
        owners, slots_, blocks = np.concatenate(owner), np.concatenate(slot), np.concatenate(block)
        order = np.lexsort((slots_, owners))
        return Table.of(
            "branches", len(order), instruction_id=old + owners[order], slot=slots_[order], block_id=blocks[order]
        )

    # -- blocks --------------------------------------------------------------------------------------------------

    def _blocks(self) -> Table:
        """Make the new blocks. Those of a body keep what members they had; all but its first show their old name."""
        blocks, names = self.blocks, self.lowering.names
        before = self.lowering.before.ir.tables["blocks"]
        texts = before.text()
        parts = list[tuple[Array, Strings]]()
        for kind, what in enumerate(_BLOCKS):
            mine = np.flatnonzero(blocks.kind == kind)
            parts.append((mine, names.of(blocks.loop[mine], what)))
        made = together(parts)
        later = np.flatnonzero((blocks.kind == FIRST) & (blocks.rank != 4))
        if len(later):
            made = put(made, later, _joined(suffixed(picked(made, later), "_"), picked(texts, blocks.body[later])))
        function = self.lowering.function[blocks.loop]
        made = self._free("blocks", made, function)
        plain = self.flat.pools.layouts.intern(layouts.of(["name", "instructions"]))
        was = np.maximum(blocks.body, 0)
        layout = np.where(blocks.body >= 0, self._named(before["layout"][was]), plain)
        extra = np.where(blocks.body >= 0, before["extra"][was], -1)
        return Table.of(
            "blocks", len(was), function_id=function, instruction_id=-1, queue_id=-1, name=made, layout=layout,
            extra=extra, owner=self.flat.pools.codes["block_owner"].find("function"),
        )  # fmt: skip

    def _named(self, layout: Ids) -> Ids:
        """Return layouts of blocks with their name in its column."""
        return layouts.add_key(self.flat.pools.layouts, layout, "name")

    def _block_references(self) -> Table:
        """Take along what other members of the blocks of bodies name; of an axis nothing is left but its name."""
        references = self.lowering.loops.ir.tables["references"]
        code = self.flat.pools.codes["table"].find
        mine = np.flatnonzero(references["table"] == code("blocks"))
        number = np.full(self.lowering.before.ir.count("blocks"), -1, np.int64)
        bodies = np.flatnonzero(self.blocks.body >= 0)
        number[self.blocks.body[bodies]] = self.flat.count("blocks") + bodies
        mine = mine[number[references["row"][mine]] >= 0]
        if not len(mine):
            return Table.empty("references")
        target, name = references["target_id"][mine].copy(), references["name"][mine].copy()
        lost = np.flatnonzero((references["target"][mine] == code("loops")) & (target >= 0))
        name[lost] = self.lowering.loops.ir.tables["loops"]["axis"][target[lost]]
        target[lost] = -1
        return Table.of(
            "references", len(mine), table=code("blocks"), row=number[references["row"][mine]], target_id=target,
            target=references["target"][mine], path=references["path"][mine], name=name,
        )  # fmt: skip

    def _branches_in_bodies(self, flat: IR) -> IR:
        """Let branches to the blocks of a body go to the new ones."""
        branches = flat.tables["branches"]
        if not len(branches):
            return flat
        new = np.full(self.lowering.before.ir.count("blocks") + 1, -1, np.int64)
        bodies = np.flatnonzero(self.blocks.body >= 0)
        new[self.blocks.body[bodies]] = flat.count("blocks") + bodies
        target = new[self.lowering.before.ir.tables["branches"]["block_id"][self.branch_source]]
        block = np.where(target >= 0, target, branches["block_id"]).astype(np.int32)
        return flat.replace(branches=branches.replace(block_id=block))

    # -- breaks --------------------------------------------------------------------------------------------------

    def _breaks(self, flat: IR) -> IR:
        """Make branches of the `Break`s in lowered loops, to the exit of the innermost one."""
        instructions, source = flat.tables["instructions"], self.iterations.source
        rows = np.flatnonzero((instructions["opcode"] == vocab.OP_BREAK) & (self.iterations.marker == marker.NONE))
        loops = self.iterations.loops
        owning = loops.owning_loop[loops.block[source[rows]]]
        loop = np.where(owning >= 0, self.shapes.place[np.maximum(owning, 0)], -1) if len(self.shapes.place) else owning
        rows, loop = rows[loop >= 0], loop[loop >= 0]
        if not len(rows):
            return flat
        pools = flat.pools
        opcode, layout, extra = (instructions[name].copy() for name in ("opcode", "layout", "extra"))
        opcode[rows] = vocab.OP_UNCONDITIONAL_BRANCH
        layout[rows] = layouts.add_key(pools.layouts, layout[rows], "target")
        extra[rows] = pools.extras.map_ids(extra[rows], lambda i: _without_target(pools.extras, i))
        branches = flat.tables["branches"]
        stays = ~(np.isin(branches["instruction_id"], rows) & (branches["slot"] == vocab.SLOT_TARGET))
        columns = {name: branches[name][stays] for name in branches.columns}
        new = {"instruction_id": rows, "slot": vocab.SLOT_TARGET, "block_id": self.block_of[LEAVE, loop], "name": -1}
        joined = {
            name: np.concatenate((values, np.broadcast_to(np.asarray(new[name], values.dtype), rows.shape)))
            for name, values in columns.items()
        }
        order = np.lexsort((joined["slot"], joined["instruction_id"]))
        table = Table("branches", {name: values[order] for name, values in joined.items()}, len(order))
        changed = instructions.replace(opcode=opcode, layout=layout, extra=extra if instructions.has("extra") else None)
        return flat.replace(instructions=changed, branches=table)


def _without_target(pool: Pool, number: int) -> int:
    """Return members without a `target` that was no name of a block."""
    rest = extras.without(pool[number], "target")
    return pool.intern(rest) if rest else -1


def _joined(first: Strings, second: Strings) -> Strings:
    """Return texts put together row by row."""
    lengths = np.diff(first.offsets) + np.diff(second.offsets)
    offsets = starts(lengths)
    data = np.empty(int(offsets[-1]), np.uint8)
    for part, begin in ((first, offsets[:-1]), (second, offsets[:-1] + np.diff(first.offsets))):
        size = np.diff(part.offsets)
        at = np.arange(int(size.sum())) - np.repeat(starts(size)[:-1], size)
        data[np.repeat(begin, size) + at] = part.data[np.repeat(part.offsets[:-1], size) + at]
    return Strings(offsets, data)
