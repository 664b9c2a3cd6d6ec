"""The tables of a batch in which instructions are rewritten and removed (rules C2 to C4)."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from arrowir import diagnostics as diag
from arrowir import extras, layouts, schema
from arrowir import vocabulary as vocab
from arrowir.diagnostics import Diagnostic
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import fresh_names, picked, put, suffixed
from arrowir.passes.constants import bridging
from arrowir.passes.constants.attributes import own_keys
from arrowir.passes.constants.code import Code
from arrowir.passes.constants.state import COPY, COPY_MEMSET, MEMSET, REMOVED
from arrowir.passes.unrolling.symbolic import edited_layout
from arrowir.runs import Runs, concat_tables, join_text, take_rows
from arrowir.store import Array, Strings, Table, distinct

COPIED, FILLED = "_ConstantPropagate_copy", "_constant_propagate_memset"
"""What a rewritten instruction's name gets behind it."""
_RELATION_KEYS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")
_TABLE_CODES = {name: code for code, name in enumerate(schema.STRUCTURAL["table"])}


@dataclass
class Rewritten:
    """What becomes of some instructions."""

    code: Code
    number: Array
    """The instructions, in the numbering of `code`."""
    form: Array
    """What has become of each: never `KEPT`."""
    bits: Array
    """What a Memset fills with."""
    source: Array
    """The operand that a copy keeps, in the numbering of `code`."""

    @cached_property
    def rows(self) -> Array:
        """Rows of the instructions, which rise."""
        return self.code.rows[self.number]

    @property
    def functions(self) -> Array:
        """The functions that change."""
        return np.unique(self.code.function[self.number])

    def notes(self, ir: IR, *, by_function: bool) -> list[Diagnostic]:
        """Say how much was done (rule C4): one note for each module, or for each function."""
        functions, function = ir.tables["functions"], self.code.function[self.number]
        module = functions["module_id"][function]
        of = function if by_function else module
        found: list[Diagnostic] = []
        forms = [
            np.bincount(of[self.form == form], minlength=int(of.max(initial=0)) + 1) for form in range(REMOVED + 1)
        ]
        for each in np.unique(of).tolist():
            filled, copied, removed = (
                forms[MEMSET][each] + forms[COPY_MEMSET][each],
                forms[COPY][each],
                forms[REMOVED][each],
            )
            text = f"rewritten: {filled} to `Memset`, {copied} to `GenericCopy`; removed: {removed}"
            about: dict[str, Any] = {"module_id": each}
            if by_function:
                about = {"module_id": int(functions["module_id"][each]), "function_id": each}
                about["function"] = functions.text()[each]
            found.append(diag.make("constants_propagated", text, **about))
        return found


def rewritten_tables(ir: IR, todo: Rewritten, *, noops: bool) -> IR:
    """Make the new tables; with `noops` a block that is emptied gets a NoOp (rule C4)."""
    gone = np.zeros(ir.count("instructions"), bool)
    gone[todo.rows[todo.form == REMOVED]] = True
    edges = bridging.bridge(ir, gone)
    blocks = _emptied(ir, gone) if noops else np.zeros(0, np.int64)
    kept = np.flatnonzero(~gone)
    before = np.searchsorted(ir.tables["instructions"]["block_id"], blocks)
    order = np.argsort(np.concatenate((2 * kept + 1, 2 * before)), kind="stable")
    rows = np.concatenate((kept, len(gone) + np.arange(len(blocks))))[order]
    changed, made = _instructions(ir, todo, edges, rows, blocks)
    references = _references(ir, todo)
    ir = ir.replace(instructions=changed, references=references)
    edit = Edit(ir, _added(ir, made, edges))
    edit.keep("instructions", Runs.picking(rows))
    edit.keep("operands", Runs.picking(np.flatnonzero(_kept_operands(ir, todo, gone))))
    edit.keep("dependencies", Runs.picking(_dependencies(ir, gone, edges)))
    return edit.build()


def _emptied(ir: IR, gone: Array) -> Array:
    """Return the blocks that lose all their instructions."""
    block = ir.tables["instructions"]["block_id"]
    before = np.bincount(block, minlength=ir.count("blocks"))
    return np.flatnonzero((before > 0) & (np.bincount(block[gone], minlength=len(before)) == before))


# -- instructions -----------------------------------------------------------------------------------------------------


def _instructions(ir: IR, todo: Rewritten, edges: bridging.Bridged, order: Array, blocks: Array) -> tuple[Table, Table]:
    """Return the instructions with the rewritten ones changed, and the NoOps."""
    table = ir.tables["instructions"]
    stays = todo.form != REMOVED
    rows, form, bits = todo.rows[stays], todo.form[stays], todo.bits[stays]
    opcode = table["opcode"].copy()
    opcode[rows] = np.where(form == COPY, vocab.OP_GENERIC_COPY, vocab.OP_MEMSET)
    layout, extra = _members(ir, rows, form, bits, edges)
    names = _names(ir, rows, form, order, blocks)
    known = table.text("original_name")
    unknown = rows[np.diff(known.offsets)[rows] == 0]
    changed = table.replace(opcode=opcode, layout=layout, extra=extra)
    if len(rows):
        changed = changed.replace(
            name=put(table.text(), rows, picked(names, np.arange(len(rows)))),
            original_name=put(known, unknown, picked(table.text(), unknown)),
        )
    made = Table.of(
        "instructions",
        len(blocks),
        block_id=blocks,
        name=picked(names, len(rows) + np.arange(len(blocks))),
        opcode=vocab.OP_NOOP,
        engine=vocab.ENGINE_UNASSIGNED,
        layout=ir.pools.layouts.intern(layouts.of(["name", "opcode", "engine", "ins", "outs"])),
    )
    return changed, made


def _names(ir: IR, rows: Array, form: Array, order: Array, blocks: Array) -> Strings:
    """Return the names of rewritten rows and then of NoOps: they are free (rule R6)."""
    texts, count = ir.tables["instructions"].text(), ir.count("instructions")
    parts: list[Strings] = []
    places: list[Array] = []
    for each, suffix in ((MEMSET, FILLED), (COPY, COPIED), (COPY_MEMSET, COPIED + FILLED)):
        mine = np.flatnonzero(form == each)
        parts.append(suffixed(picked(texts, rows[mine]), suffix))
        places.append(rows[mine])
    parts.append(suffixed(picked(ir.tables["blocks"].text(), blocks), "_noop"))
    places.append(count + np.arange(len(blocks)))
    function = ir.array("instructions", "function_id")
    scope = np.concatenate((function, ir.tables["blocks"]["function_id"][blocks]))
    # In row order of the result names are given, and then brought into the order asked for.
    place = np.concatenate(places)
    rank = np.empty(count + len(blocks), np.int64)
    rank[order] = np.arange(len(order))
    result = np.argsort(rank[place])
    wanted = picked(join_text(parts), result)
    concerned = np.zeros(ir.count("functions") + 1, bool)
    concerned[scope[place]] = True
    taken = np.flatnonzero(concerned[function])
    free = fresh_names(picked(texts, taken), function[taken], wanted, scope[place[result]])
    return picked(free, np.argsort(place[result]))


def _members(ir: IR, rows: Array, form: Array, bits: Array, edges: bridging.Bridged) -> tuple[Array, Array]:
    """Return layouts and texts of all instructions: keys of the old opcode go, those of the new one come (rule C2).

    Keys of edge lists come and go with them. Whether keys are sorted is judged before (rule F6).
    """
    table = ir.tables["instructions"]
    layout, extra = table["layout"].copy(), table["extra"].copy()
    had = bridging.lists(ir, edges.owners)
    begins = np.searchsorted(edges.owner, np.append(edges.owners, np.iinfo(np.int32).max))
    has = bridging.relation_masks(begins, edges.relation)
    concerned = distinct(np.concatenate((rows, edges.owners[had != has])))
    columns = np.zeros((7, len(concerned)), np.int64)
    columns[0], columns[1], columns[2] = layout[concerned], extra[concerned], table["opcode"][concerned]
    mine = np.searchsorted(concerned, rows)
    columns[3, mine], columns[4, mine] = form, bits.view(np.int64)
    mine = np.searchsorted(concerned, edges.owners[had != has])
    columns[5, mine], columns[6, mine] = (has & ~had)[had != has], (had & ~has)[had != has]
    order = np.lexsort(columns)
    ranked = columns[:, order]
    begins = np.ones(len(order), bool)
    begins[1:] = (ranked[:, 1:] != ranked[:, :-1]).any(axis=0)
    made = [_edited(ir, *column) for column in ranked[:, begins].T.tolist()]
    if made:
        new = np.array(made, np.int32)[np.cumsum(begins) - 1]
        layout[concerned[order]], extra[concerned[order]] = new[:, 0], new[:, 1]
    return layout, extra


def _edited(
    ir: IR, layout: int, extra: int, opcode: int, form: int, bits: int, come: int, lost: int
) -> tuple[int, int]:
    """Return layout and text of one instruction."""
    pools = ir.pools
    added = {key: layouts.COLUMN for bit, key in enumerate(_RELATION_KEYS) if come >> bit & 1}
    dropped = {key for bit, key in enumerate(_RELATION_KEYS) if lost >> bit & 1}
    texts = dict(extras.members(pools.extras[extra])) if extra >= 0 else {}
    if form:
        new = {} if form == COPY else {"constant": str(bits % 2**64), "mode": '"Const"'}
        dropped |= keys_that_go(vocab.OPCODES.values[opcode], form) - new.keys()
        added |= dict.fromkeys(new, layouts.RAW)
        texts = {key: text for key, text in texts.items() if key not in dropped} | new
    made = edited_layout(pools.layouts[layout], added, dropped)
    raw = [(key, texts[key]) for where, key in layouts.entries(made) if where == layouts.RAW]
    return pools.layouts.intern(made), pools.extras.intern(extras.join(raw)) if raw else -1


def keys_that_go(opcode: str, form: int) -> frozenset[str]:
    """Return the keys of the opcodes that a rewritten instruction has had."""
    return own_keys(opcode) | own_keys("GenericCopy") if form == COPY_MEMSET else own_keys(opcode)


def _references(ir: IR, todo: Rewritten) -> Table:
    """Drop the references of keys that go."""
    table = ir.tables["references"]
    form = np.zeros(ir.count("instructions"), np.int8)
    form[todo.rows] = todo.form
    mine = np.flatnonzero(table["table"] == _TABLE_CODES["instructions"])
    mine = mine[form[table["row"][mine]] % REMOVED > 0]
    if not len(mine):
        return table
    opcodes, ids = ir.tables["instructions"]["opcode"], ir.tables["instructions"]["extra"]
    stays = np.ones(len(table), bool)
    for row in np.unique(table["row"][mine]).tolist():  # few keys hold expressions
        dropped = keys_that_go(vocab.OPCODES.values[int(opcodes[row])], int(form[row]))
        slots = [
            key not in dropped
            for key, text in extras.members(ir.pools.extras[int(ids[row])])
            for _ in range(text.count(extras.PLACEHOLDER))
        ]
        stays[mine[table["row"][mine] == row]] = slots
    return take_rows(table, np.flatnonzero(stays))


# -- what instructions own --------------------------------------------------------------------------------------------


def _kept_operands(ir: IR, todo: Rewritten, gone: Array) -> Array:
    """Return a mask of the operands that stay: a Memset has no inputs, a copy one."""
    operands = ir.tables["operands"]
    stays = ~gone[operands["instruction_id"]]
    form = np.zeros(len(gone), np.int8)
    form[todo.rows] = todo.form
    stays &= (form[operands["instruction_id"]] == 0) | (operands["role"] == vocab.ROLE_OUT)
    stays[todo.code.operands[todo.source[todo.form == COPY]]] = True
    return stays


def _dependencies(ir: IR, gone: Array, edges: bridging.Bridged) -> Array:
    """Return the dependency rows of the result, in order; new ones count on behind the old ones."""
    owner = ir.tables["dependencies"]["instruction_id"]
    listed = np.zeros(len(gone), bool)
    listed[edges.owners] = True
    old = np.flatnonzero(~gone[owner] & ~listed[owner])
    new = edges.row.copy()
    new[new < 0] = len(owner) + np.arange(int((new < 0).sum()))
    rows = np.concatenate((old, new))
    return rows[np.argsort(np.concatenate((owner[old], edges.owner)), kind="stable")]


def _added(ir: IR, made: Table, edges: bridging.Bridged) -> dict[str, Table]:
    """Return the rows that are new, and the references of new edges."""
    new = np.flatnonzero(edges.row < 0)
    dependencies = Table.of(
        "dependencies", len(new), instruction_id=edges.owner[new], relation=edges.relation[new],
        on_instruction_id=edges.on[new], edge=edges.edge[new], name=edges.name[new], extra=edges.extra[new],
    )  # fmt: skip
    added = {"instructions": made, "dependencies": dependencies}
    known = ir.tables["references"]
    mine = np.flatnonzero(known["table"] == _TABLE_CODES["dependencies"])
    if not len(mine) or not len(new):
        return added
    bounds = np.searchsorted(known["row"][mine], np.arange(ir.count("dependencies") + 1))
    tables: list[Table] = []
    for number in np.flatnonzero(np.diff(bounds)[edges.carrier[new]] > 0).tolist():  # few edges hold expressions
        text = ir.pools.extras[int(edges.extra[new[number]])] if edges.extra[new[number]] >= 0 else ""
        if extras.PLACEHOLDER in text:
            carrier = int(edges.carrier[new[number]])
            first = bounds[carrier]
            copied = take_rows(known, mine[first : first + text.count(extras.PLACEHOLDER)])
            row = np.full(len(copied), ir.count("dependencies") + number, np.int32)
            tables.append(copied.replace(row=row))
    return added | ({"references": concat_tables(tables)} if tables else {})
