"""What lowered loops need before anything is unrolled: registers, and texts that name them (rules U2, U5)."""

import copy
from dataclasses import dataclass

import numpy as np

from arrowir import layouts
from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import fresh_names, numbered, picked, put, suffixed
from arrowir.passes.unrolling.loops import Loops
from arrowir.passes.unrolling.marking import marked_text
from arrowir.passes.unrolling.runtime_loops import AXIS, TABLE_CODES, slot_references
from arrowir.passes.unrolling.symbolic import NOT_ATTRIBUTES
from arrowir.runs import Runs, blank
from arrowir.store import Array, Ids, Strings, Table, first_of, starts

_SYMBOLIC = (vocab.OPERAND_SYMBOLIC_AP, vocab.OPERAND_SYMBOLIC_PWAP, vocab.OPERAND_SYMBOLIC_IMM_VALUE)


@dataclass(frozen=True)
class Names:
    """Names of what is made for lowered loops: `<block>_<what>_<n>`, `n` counting the lowered loops of a function."""

    blocks: Strings
    """The names of all blocks."""
    block: Array
    """For each lowered loop the block of the function that it stands in, at whatever depth."""
    number: Array

    def of(self, loops: Array, what: str, behind: str = "") -> Strings:
        """Return names for some lowered loops (places)."""
        bases = suffixed(picked(self.blocks, self.block[loops]), f"_{what}")
        names = numbered(bases, np.arange(len(loops)), self.number[loops], "_")
        return suffixed(names, behind) if behind else names


class Lowering:
    """The batch with registers for lowered loops, and their axes named by them.

    Parameters
    ----------
    loops
        The loops; some are lowered.
    """

    def __init__(self, loops: Loops) -> None:
        self.before, self.shapes = loops, loops.shapes
        ir, rows = loops.ir, loops.shapes.row
        function = ir.tables["blocks"]["function_id"]
        top = np.arange(len(loops.owner))
        for level in loops.levels[1:]:
            top[level] = top[loops.parent[level]]
        block = top[loops.block[rows]]
        self.function: Array = function[block]
        """The function of each lowered loop."""
        order = np.lexsort((ir.array("instructions", "position")[rows], self.function))
        self.order = order
        """The lowered loops in program order."""
        ranked = self.function[order]
        number = np.empty(len(rows), np.int64)
        number[order] = 1 + np.arange(len(rows)) - np.searchsorted(ranked, ranked)
        self.names = Names(ir.tables["blocks"].text(), block, number)
        self.functions = np.unique(self.function)
        self.registers: Array | None = None
        """For each register of the result its row before, -1 for new ones; None where there are no new ones."""
        ir = self._with_registers(ir)
        self.slots = self._slots(ir)
        self.loops = copy.copy(loops)
        self.loops.ir = self._marked(ir)

    # -- registers ---------------------------------------------------------------------------------------------

    def _with_registers(self, ir: IR) -> IR:
        """Add registers behind the allocations of their functions, loop by loop in program order."""
        shapes, order = self.shapes, self.order
        wanted = np.array([len(form.registers) for form in shapes.forms], np.int64)
        counts = wanted[shapes.form[order]]
        loop = np.repeat(order, counts)
        which = np.arange(len(loop)) - np.repeat(starts(counts)[:-1], counts)
        self._first = np.zeros(len(order), np.int64)
        self._first[order] = starts(counts)[:-1]
        self._ids: Array = np.zeros(0, np.int64)
        if not len(loop):
            return ir
        old, function = ir.tables["registers"], self.function[loop]
        kinds = sorted({name for form in shapes.forms for name in form.registers})
        kind_of = np.full((len(shapes.forms), int(wanted.max())), -1, np.int64)
        for number, form in enumerate(shapes.forms):
            kind_of[number, : len(form.registers)] = [kinds.index(name) for name in form.registers]
        kind = kind_of[shapes.form[loop], which]
        parts = [(np.flatnonzero(kind == k), self.names.of(loop[kind == k], kinds[k])) for k in range(len(kinds))]
        names = together(parts)
        mine = np.flatnonzero(np.isin(old["function_id"], self.functions))
        names = fresh_names(picked(old.text(), mine), old["function_id"][mine], names, function)
        allocations = np.full(ir.count("functions"), -1, np.int64)
        for table in ("sets", "registers"):
            np.maximum.at(allocations, ir.tables[table]["function_id"], ir.tables[table]["ordinal"])
        begins = np.searchsorted(function, function)
        added = Table.of(
            "registers",
            len(loop),
            function_id=function,
            ordinal=allocations[function] + 1 + np.arange(len(loop)) - begins,
            name=names,
            storage=vocab.STORAGE_REGISTER,
            layout=ir.pools.layouts.intern(layouts.of(["Skind", "name"])),
        )
        edit = Edit(self._with_allocations(ir), {"registers": added})
        edit.keep("registers", Runs.inserting(len(old), first_of(old["function_id"], function + 1)))
        made = edit.build()
        places = edit.places("registers")
        self._ids = np.arange(len(old), len(old) + len(loop)) if places is None else places[0][len(old) :]
        source = edit.runs["registers"].source()
        self.registers = np.where(source < len(old), source, -1)
        return made

    def _with_allocations(self, ir: IR) -> IR:
        """Give functions without allocations the key."""
        functions = ir.tables["functions"]
        layout = functions["layout"].copy()
        layout[self.functions] = layouts.add_key(ir.pools.layouts, layout[self.functions], "allocations")
        return ir if (layout == functions["layout"]).all() else ir.replace(functions=functions.replace(layout=layout))

    def register(self, loops: Array, name: str) -> Array:
        """Return the ids of registers of some lowered loops (places); -1 where one has none of the name."""
        which = [form.registers.index(name) if name in form.registers else -1 for form in self.shapes.forms]
        at = np.array(which, np.int64)[self.shapes.form[loops]]
        return np.where(at >= 0, take(self._ids, np.where(at >= 0, self._first[loops] + at, -1)), -1)

    def _slots(self, ir: IR) -> tuple[Ids, Ids]:
        """Return which reference rows of the batch there are, with axes of lowered loops as their registers."""
        references = ir.tables["references"]
        target, kind = references["target_id"].copy(), references["target"]
        axes = np.flatnonzero((kind == TABLE_CODES["loops"]) & (target >= 0))
        if len(axes):
            number = self.before.number[ir.tables["loops"]["instruction_id"][target[axes]]]
            place = np.where(number >= 0, take(self.shapes.place, number), -1)
            found = np.full(len(axes), -1, np.int64)
            found[place >= 0] = self.register(place[place >= 0], AXIS)
            target[axes] = found
            kind = np.where((kind == TABLE_CODES["loops"]), TABLE_CODES["registers"], kind)
        return kind, target

    def slot(self, loops: Array, slot: int) -> Array:
        """Return the registers that a placeholder in the bounds of some lowered loops (places) names."""
        return self.slots[1][slot_references(self.before.ir, self.shapes.row[loops], slot)]

    # -- texts -------------------------------------------------------------------------------------------------

    def _marked(self, ir: IR) -> IR:
        """Mark the axes of lowered loops in texts that are worked out."""
        references = ir.tables["references"]
        if not len(references):
            return ir
        axis = (references["target"] == TABLE_CODES["loops"]) & (references["target_id"] >= 0) & (self.slots[1] >= 0)
        if not axis.any():
            return ir
        tables, retargeted = dict[str, Table](), np.zeros(len(references), bool)
        operands, is_loop = ir.tables["operands"], self.before.number >= 0
        for name in ("instructions", "operands", "dependencies"):
            mine = np.flatnonzero(references["table"] == TABLE_CODES[name])
            row = references["row"][mine]
            slot = np.arange(len(mine)) - np.searchsorted(row, row)
            some = axis[mine]
            if name == "operands":
                some = some & np.isin(operands["kind"][row], _SYMBOLIC)
            elif name == "instructions":
                some = some & ~is_loop[row]
            if some.any():
                excluded = NOT_ATTRIBUTES if name == "instructions" else frozenset[str]()
                tables[name], found = _with_marks(ir, name, row[some], slot[some], excluded)
                retargeted[mine[some][found]] = True
        if not tables:
            return ir
        kind, target, path = references["target"].copy(), references["target_id"].copy(), references["path"].copy()
        kind[retargeted] = TABLE_CODES["registers"]
        target[retargeted] = self.slots[1][retargeted]
        path[retargeted] = ir.pools.names.map(path[retargeted], _register_path, name="lowered axis")
        return ir.replace(**tables, references=references.replace(target=kind, target_id=target, path=path))


def _with_marks(ir: IR, name: str, row: Array, slot: Array, excluded: frozenset[str]) -> tuple[Table, Array]:
    """Return a table with axes in some places of its texts marked, and which of the places that is done in."""
    table, pool = ir.tables[name], ir.pools.extras
    rows, of = np.unique(row, return_inverse=True)
    text = table["extra"][rows]
    group = text.astype(np.int64)
    for number in range(int(slot.max()) + 1):
        has = np.zeros(len(rows), np.int64)
        has[of[slot == number]] = 1
        group = np.unique(group * 2 + has, return_inverse=True)[1].astype(np.int64)
    count = int(group.max()) + 1
    first = np.full(count, -1, np.int64)
    first[group[::-1]] = np.arange(len(rows))[::-1]
    inside = np.argsort(of, kind="stable")
    bounds = starts(np.bincount(of, minlength=len(rows)))
    new, done = np.full(count, -1, np.int32), np.zeros((count, int(slot.max()) + 1), bool)
    for each, place in enumerate(first.tolist()):
        slots = frozenset(slot[inside[bounds[place] : bounds[place + 1]]].tolist())
        made, marks = marked_text(pool[int(text[place])], slots, excluded)
        new[each] = pool.intern(made)
        done[each, list(marks)] = True
    extra = table["extra"].copy()
    extra[rows] = new[group]
    return table.replace(extra=extra), done[group[of], slot]


def _register_path(path: str) -> str:
    """Return the path of a register that stands where an axis stood."""
    if path.endswith("AxisLabel"):
        return f"{path.removesuffix('AxisLabel')}idx.regref"
    return f"{path.removesuffix('axis')}regref"


def together(parts: list[tuple[Array, Strings]]) -> Strings:
    """Put texts together that belong to some rows each."""
    total = sum(len(rows) for rows, _ in parts)
    made = blank(total)
    for rows, texts in parts:
        if len(rows):
            made = put(made, rows, texts)
    return made
