"""Operands and attributes of unrolled instructions: addresses and expressions become numbers (rules U2, U4, U6)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arrowir import expressions, extras, layouts
from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.expressions import Program, Template
from arrowir.passes.unrolling import symbolic
from arrowir.passes.unrolling.faults import Fault, Faults, first_places
from arrowir.passes.unrolling.iterations import Iterations
from arrowir.passes.unrolling.loops import of_each
from arrowir.passes.unrolling.moved_operands import MovedOperands
from arrowir.passes.unrolling.values import TABLE_CODES, LoopValues, Subjects
from arrowir.runs import expand
from arrowir.store import Array, Table, starts

SYMBOLIC = (vocab.OPERAND_SYMBOLIC_AP, vocab.OPERAND_SYMBOLIC_PWAP)
GENERIC = (vocab.OP_GENERIC_INDIRECT_LOAD, vocab.OP_GENERIC_INDIRECT_SAVE)


_ITEM_BYTES = np.array((*vocab.DTYPE_BYTES, 0), np.int64)


@dataclass
class NewCells:
    """What changes in a table: columns for all source rows, then cells of some rows of the result."""

    old: Table
    columns: dict[str, Array] = field(default_factory=dict[str, Array])
    cells: list[tuple[str, Array, Array]] = field(default_factory=list[tuple[str, Array, Array]])
    """Column, rows of the result, new values."""

    def column(self, name: str) -> Array:
        """Return a column of the source rows, to be changed."""
        if name not in self.columns:
            self.columns[name] = self.old[name].copy()
        return self.columns[name]


@dataclass
class UnrolledText:
    """What becomes of operands and attributes.

    Parameters
    ----------
    iterations
        The instances.
    shard_id
        The value of the shard.
    faults
        Gets what is wrong.
    """

    iterations: Iterations
    shard_id: int
    faults: Faults
    operand_source: Array = field(init=False)
    """For each operand of the result the one that it comes from."""
    operand_owner: Array = field(init=False)
    """For each operand of the result its instruction there."""
    operands: NewCells = field(init=False)
    instructions: NewCells = field(init=False)
    kept_references: Array = field(init=False)
    """Mask of the references whose placeholders stay."""
    reference_order: Array | None = None
    """For each reference its place among those of its row, where texts have them in another order than before."""

    def __post_init__(self) -> None:
        iterations = self.iterations
        self.loops = iterations.loops
        self.ir = self.loops.ir
        self.values = LoopValues(iterations, self.shard_id)
        self.texts = self.ir.pools.extras.texts
        operands = self.ir.tables["operands"]
        self.operands, self.instructions = NewCells(operands), NewCells(self.ir.tables["instructions"])
        first = operands.bounds(len(self.loops.block))
        counts = np.diff(first)[iterations.source]
        self.operand_source = expand(first[iterations.source], counts)
        self.operand_owner = np.repeat(np.arange(iterations.rows), counts)
        self.kept_references = np.ones(self.ir.count("references"), bool)
        self.worked = self.loops.looked_at[self.loops.block] & (iterations.repeats > 0)
        """Mask of the instructions whose operands and attributes are worked out."""

    def find(self) -> None:
        """Work everything out."""
        self._attributes()
        self._block_tensors()
        operands = self.ir.tables["operands"]
        worked = self.worked[operands["instruction_id"]]
        rows = np.flatnonzero(worked & np.isin(operands["kind"], SYMBOLIC))
        if len(rows):
            keeps = np.isin(self.loops.opcode[operands["instruction_id"][rows]], GENERIC)
            text = operands["extra"][rows[keeps]]
            keeps[keeps] = of_each(text, len(self.texts), lambda i: symbolic.is_generic(self.texts[i])) > 0
            self._generic(rows[keeps])
            self._physical(rows[~keeps])
        self._immediates(np.flatnonzero(worked & (operands["kind"] == vocab.OPERAND_SYMBOLIC_IMM_VALUE)))

    # -- attributes ------------------------------------------------------------------------------------------

    def _attributes(self) -> None:
        """Rule U6; `loopnest` goes too (U8)."""
        instructions, texts = self.ir.tables["instructions"], self.texts
        if not instructions.has("extra"):
            return
        text = np.where(self.worked, instructions["extra"], -1)
        templates: dict[int, Template] = {}

        def known(i: int) -> int:
            template = symbolic.instruction_template(texts[i])
            if template is not None:
                templates[i] = template
            return template is not None

        rows = np.flatnonzero(of_each(text, len(texts), known) > 0)
        if len(rows):
            self.keep_slots("instructions", rows, text, {i: t.kept for i, t in templates.items()})
            self._fill(self.instructions, "instructions", rows, text, templates)

    def _subjects(
        self, table: str, text: Array, programs: Mapping[int, Program], rows: Array, instruction: Array
    ) -> Subjects:
        """Return the rows of a table as subjects, numbered like the rows."""
        order = sorted(programs)
        number = np.zeros(len(self.texts) + 1, np.int64)
        number[order] = np.arange(len(order))
        block = np.zeros(len(text), np.int64)
        block[rows] = self.loops.block[instruction]
        return Subjects(table, rows, np.arange(len(text)), block, number[text], [programs[i] for i in order])

    def _fill(self, new: NewCells, table: str, rows: Array, text: Array, templates: dict[int, Template]) -> None:
        """Put the texts of templates into some rows of a table, those with holes into what comes of them."""
        simple = np.full(len(self.texts) + 1, -1, np.int32)
        for i, template in templates.items():
            if not template.program.results:
                simple[i] = self._intern(template.text(()))
        new.column("extra")[rows] = simple[text[rows]]
        runs = {i: t.program for i, t in templates.items() if t.program.steps}
        rows = rows[np.isin(text[rows], list(runs))]
        if not len(rows):
            return
        of_operands = table == "operands"
        instruction = self.ir.tables["operands"]["instruction_id"] if of_operands else np.arange(len(text))
        cells, subject, owner = self.cells_of(table, rows)
        subjects = self._subjects(table, text, runs, rows, instruction[rows])
        made = simple[text[subject]]
        for group, program, result in self.values.run(subjects, subject, self.iterations.instance[owner]):
            self.note(subjects, result, owner[group], subject[group])
            if program.results:
                holes = [result.whole(step) for step in program.results]
                made[group] = self.distinct(templates, text[subject[group]], holes)
        new.cells.append(("extra", cells, made))

    def cells_of(self, table: str, rows: Array) -> tuple[Array, Array, Array]:
        """Return what comes of some rows of a table: new rows, the source of each, the new instruction of each."""
        source = self.operand_source if table == "operands" else self.iterations.source
        mine = np.zeros(self.ir.count(table), bool)
        mine[rows] = True
        cells = np.arange(len(source)) if mine.all() else np.flatnonzero(mine[source])
        return cells, source[cells], self.operand_owner[cells] if table == "operands" else cells

    def distinct(self, templates: dict[int, Template], text: Array, holes: list[Array]) -> Array:
        """Return the texts of templates with their holes filled, each distinct one made once."""
        code = text
        for values in holes:
            distinct, place = np.unique(values, return_inverse=True)
            code = np.unique(code.astype(np.int64) * len(distinct) + place, return_inverse=True)[1]
        _, first, place = np.unique(code, return_index=True, return_inverse=True)
        rows = zip(text[first].tolist(), *(values[first].tolist() for values in holes), strict=True)
        return np.array([self._intern(templates[i].text(numbers)) for i, *numbers in rows], np.int32)[place]

    def _intern(self, text: str) -> int:
        return self.ir.pools.extras.intern(text) if text else -1

    def keep_slots(self, table: str, rows: Array, text: Array, kept: Mapping[int, tuple[int, ...]]) -> None:
        """Note which placeholders stay in rows whose text changes."""
        flags: list[bool] = []
        base = np.zeros(len(self.texts) + 1, np.int64)
        for i, numbers in kept.items():
            base[i] = len(flags)
            slots = self.texts[i].count(extras.PLACEHOLDER) if i >= 0 else 0
            flags.extend(number in numbers for number in range(slots))
        if all(flags):
            return
        references = self.ir.tables["references"]
        mine = np.flatnonzero(references["table"] == TABLE_CODES[table])
        row = references["row"][mine]
        number = np.arange(len(mine)) - np.searchsorted(row, row)
        changes = np.zeros(len(text), bool)
        changes[rows] = True
        some = changes[row]
        self.kept_references[mine[some]] = np.array(flags)[base[text[row[some]]] + number[some]]

    # -- operands --------------------------------------------------------------------------------------------

    def _set_of(self, rows: Array) -> Array:
        """Return the set that operands name: that of the location, and only without one the set itself (rule R2)."""
        operands, locations = self.ir.tables["operands"], self.ir.tables["locations"]
        location = operands["location_id"][rows]
        named = np.where(operands["name"][rows] >= 0, -1, operands["set_id"][rows])
        return np.where(location >= 0, take(locations["set_id"], location), named)

    def _block_tensors(self) -> None:
        """Rule U2: a loop must not address a tensor that has a block for each iteration."""
        sets, pools = self.ir.tables["sets"], self.ir.pools
        if not len(sets):
            return
        classes = pools.codes["tensor_class"].texts
        blocked = of_each(sets["tensor_class"], len(classes), lambda i: "Block" in classes[i]) > 0
        blocked |= of_each(sets["extra"], len(self.texts), lambda i: symbolic.has_blocks(self.texts[i])) > 0
        if not blocked.any():
            return
        owner = self.ir.tables["operands"]["instruction_id"]
        rows = np.flatnonzero(self.worked[owner] & (self.iterations.depth[self.loops.block[owner]] > 0))
        of = self._set_of(rows)
        bad = (of >= 0) & blocked[np.maximum(of, 0)]
        for row, named in zip(rows[bad].tolist(), of[bad].tolist(), strict=True):
            message = (
                f"set `{sets.text()[named]}` has a block for each iteration of a loop; make it a plain tensor first"
            )
            self.operand_fault(row, 0, "block_tensor", message)

    def operand_fault(
        self, row: int, rank: int, code: str, message: str, location: int = -1, place: int | None = None
    ) -> None:
        """Note a fault of an operand; without a place, one that each instance has: it is met in the first."""
        operands = self.ir.tables["operands"]
        owner = int(operands["instruction_id"][row])
        if place is None:
            place = int(self.iterations.place(np.array([owner]), self.iterations.first[self.loops.block[[owner]]])[0])
        key = vocab.ROLE_MEMBERS[int(operands["role"][row])]
        what = f"operand {row - int(np.searchsorted(operands['instruction_id'], owner))}"
        order = (0, place, self._rank(owner, key), row, rank)
        self.faults.add(Fault(order, code, f"{what} (`{key}`): {message}", owner, location))

    def _rank(self, instruction: int, key: str) -> int:
        """Return the place of a key among those of an instruction."""
        layout = self.ir.pools.layouts[int(self.ir.tables["instructions"]["layout"][instruction])]
        return next((place for place, (_, name) in enumerate(layouts.entries(layout)) if name == key), -1)

    def note(self, subjects: Subjects, result: expressions.Run, owner: Array, subject: Array) -> None:
        """Note the first fault of each function among results; `owner` has the instructions in the result."""
        bad = np.flatnonzero(result.fault)
        if not len(bad):
            return
        function = self.ir.array("instructions", "function_id")[self.iterations.source[owner[bad]]]
        for k in bad[first_places(function, owner[bad], subject[bad])].tolist():
            row, place = int(subject[k]), int(owner[k])
            code = expressions.FAULTS[int(result.fault[k])]
            message = expressions.EXPLAINED[code]
            if subjects.table == "operands":
                self.operand_fault(row, 5, code, f"an expression cannot be worked out: {message}", place=place)
                continue
            key = subjects.programs[int(subjects.program[row])].places[int(result.at[k])]
            order = (0, place, self._rank(row, key), 0, int(result.at[k]))
            self.faults.add(Fault(order, code, f"the expression in `{key}` cannot be worked out: {message}", row))

    def _generic(self, rows: Array) -> None:
        """Rule U4: an operand of a generic access keeps its kind; its addresses are worked out as far as they go."""
        if not len(rows):
            return
        text = self.ir.tables["operands"]["extra"]
        templates = {i: symbolic.generic_template(self.texts[i]) for i in np.unique(text[rows]).tolist()}
        self.keep_slots("operands", rows, text, {i: t.kept for i, t in templates.items()})
        self._fill(self.operands, "operands", rows, text, templates)

    def _physical(self, rows: Array) -> None:
        """Rule U4: a symbolic access becomes a physical one."""
        operands, texts = self.ir.tables["operands"], self.texts
        sound, location, limit, given = self._places(rows)
        rows, location = rows[sound], location[sound]
        if self.iterations.has_lowered and len(rows):
            moved = of_each(operands["extra"][rows], len(texts), lambda i: symbolic.moves(texts[i])) > 0
            if moved.any():
                MovedOperands(self, rows[moved], location[moved], limit, given).find()
            rows, location = rows[~moved], location[~moved]
        if not len(rows):
            return
        text = operands["extra"]
        known = {i: texts[i] if i >= 0 else "" for i in np.unique(text[rows]).tolist()}
        programs = {i: symbolic.offset_program(t) for i, t in known.items()}
        cells, subject, owner = self.cells_of("operands", rows)
        subjects = self._subjects("operands", text, programs, rows, operands["instruction_id"][rows])
        offset = np.empty(len(cells), np.int64)
        instance = self.iterations.instance[owner]
        for group, program, result in self.values.run(subjects, subject, instance, given):
            self.note(subjects, result, owner[group], subject[group])
            value = result.whole(program.results[0])
            outside = (result.fault == 0) & ((value < 0) | (value >= limit[subject[group]]))
            if outside.any():
                self.out_of_bounds(
                    owner[group][outside], subject[group][outside], value[outside], limit, rows, location
                )
            offset[group] = value
        self.operands.cells.append(("offset", cells, offset))
        self.operands.column("offset")
        self.operands.column("kind")[rows] = vocab.OPERAND_PHYSICAL_AP
        self.operands.column("location_id")[rows] = location
        self.operands.column("layout")[rows] = self.ir.pools.layouts.map(
            operands["layout"][rows],
            lambda old: symbolic.edited_layout(old, {"memref": "c", "offset": "c"}, ("addrs",)),
            name="physical",
        )
        new_text = np.full(len(texts) + 1, -1, np.int32)
        for i, old in known.items():
            new_text[i] = self._intern(symbolic.addresses(old)[1])
        self.operands.column("extra")[rows] = new_text[text[rows]]
        self.keep_slots("operands", rows, text, {i: symbolic.addresses(old)[2] for i, old in known.items()})

    def out_of_bounds(
        self, owner: Array, subject: Array, offset: Array, limit: Array, rows: Array, location: Array
    ) -> None:
        """Note the first operand of each function whose offset is not inside its location."""
        function = self.ir.array("instructions", "function_id")[self.iterations.source[owner]]
        for k in first_places(function, owner, subject).tolist():
            row = int(subject[k])
            at = int(location[np.searchsorted(rows, row)])
            name = self.ir.tables["locations"].text()[at]
            message = f"offset {int(offset[k])} is not inside location `{name}` of {int(limit[row])} elements"
            self.operand_fault(row, 6, "address_out_of_bounds", message, at, int(owner[k]))

    def _places(self, rows: Array) -> tuple[Array, Array, Array, list[tuple[Array, Array | None]]]:
        """Look at what symbolic operands address (rule U4).

        Returns
        -------
        sound, location, limit, given
            Mask of the operands that can be placed, and the location of each; then for all operands of the batch how
            many elements the location has, and the strides by dimension, each with a mask of those beyond 64 bits.
        """
        operands, sets, locations = (self.ir.tables[name] for name in ("operands", "sets", "locations"))
        of = self._set_of(rows)
        number = np.diff(locations.bounds(len(sets)))
        first = starts(number)[:-1]
        text = operands["extra"][rows]
        ranks = of_each(text, len(self.texts), lambda i: len(symbolic.addresses(self.texts[i])[0]))
        shapes = self.ir.pools.shapes.texts
        shape = take(sets["tensor_shape"], of)
        dims = of_each(shape, len(shapes), lambda i: len(extras.parse(shapes[i])))
        dtype = operands["dtype"][rows].astype(np.int64)
        item = _ITEM_BYTES[np.where((dtype >= 0) & (dtype < len(vocab.DTYPE_BYTES)), dtype, -1)]
        sound = (of >= 0) & (ranks == dims) & (take(number, of) == 1) & (item > 0)
        for k in np.flatnonzero(~sound).tolist():
            self._unplaced(int(rows[k]), int(of[k]), int(ranks[k]), int(dims[k]), number)
        location = np.where(sound, take(first, of), -1)
        extent = locations["bytes"][np.maximum(location, 0)] if len(locations) else np.zeros(len(rows), np.int64)
        size = np.maximum(item, 1)
        limit = np.zeros(len(operands), np.int64)
        most = int(dims[sound].max(initial=0))
        given = [(np.zeros(len(operands), np.int64), np.zeros(len(operands), bool)) for _ in range(most)]
        if sound.any():
            at = location[sound]
            partitions = locations["partitions"][at]
            limit[rows[sound]] = _elements(partitions, extent[sound], size[sound])
            pitched = np.isin(locations["type"][at], (vocab.MEM_SB, vocab.MEM_PSUM))
            for dimension in range(most):
                stride, wide = _strides(shapes, shape[sound], dimension)
                if dimension == 0:
                    stride = np.where(pitched, extent[sound] // size[sound], stride)
                    wide &= ~pitched
                given[dimension][0][rows[sound]] = stride
                given[dimension][1][rows[sound]] = wide
        return sound, location, limit, [(values, bad if bad.any() else None) for values, bad in given]

    def _unplaced(self, row: int, of: int, rank: int, dims: int, number: Array) -> None:
        """Say why a symbolic operand cannot be placed."""
        operands, sets, pools = self.ir.tables["operands"], self.ir.tables["sets"], self.ir.pools
        if of < 0:
            name = next((int(operands[key][row]) for key in ("name", "set_name") if operands[key][row] >= 0), -1)
            what = (
                f"`{pools.names[name]}`, which the function does not have"
                if name >= 0
                else "no set; give it `memsetref`"
            )
            self.operand_fault(row, 1, "unresolved_name", f"it names {what}")
            return
        name = sets.text()[of]
        if rank != dims:
            message = f"it has {rank} addresses for set `{name}` of {dims} dimensions; give one for each"
            self.operand_fault(row, 2, "address_rank_mismatch", message)
        elif number[of] != 1:
            message = f"set `{name}` has {int(number[of])} locations; an address needs exactly one"
            self.operand_fault(row, 3, "symbolic_location_count", message)
        else:
            code = int(operands["dtype"][row])
            what = f"dtype `{pools.codes['dtype'][code]}` has no known size" if code >= 0 else "it has no `dtype`"
            self.operand_fault(row, 4, "unknown_dtype", f"{what}, so that its offset cannot be worked out")

    def _immediates(self, rows: Array) -> None:
        """Rule U6: a symbolic immediate becomes the value that its expression selects."""
        if not len(rows):
            return
        operands, texts = self.ir.tables["operands"], self.texts
        text = operands["extra"]
        known = {i: symbolic.immediate(texts[i] if i >= 0 else "") for i in np.unique(text[rows]).tolist()}
        cells, subject, owner = self.cells_of("operands", rows)
        programs = {i: program for i, (_, program, _) in known.items()}
        subjects = self._subjects("operands", text, programs, rows, operands["instruction_id"][rows])
        chosen = np.zeros(len(cells), np.int64)
        for group, program, result in self.values.run(subjects, subject, self.iterations.instance[owner]):
            self.note(subjects, result, owner[group], subject[group])
            # One that failed is noted already: -2 keeps it from being looked at again.
            chosen[group] = np.where(result.fault > 0, -2, result.whole(program.results[0]))
        count = of_each(text[subject], len(texts), lambda i: len(known[i][0]), absent=0)
        outside = np.flatnonzero((chosen != -2) & ((chosen < 0) | (chosen >= count)))
        function = self.ir.array("instructions", "function_id")[self.iterations.source[owner[outside]]]
        for k in outside[first_places(function, owner[outside], subject[outside])].tolist():
            message = f"its expression selects element {int(chosen[k])} of a list of {int(count[k])} values"
            self.operand_fault(int(subject[k]), 6, "immediate_out_of_range", message, place=int(owner[k]))
        chosen[(chosen < 0) | (chosen >= count)] = -1
        layout, extra = self._immediate_text(operands["layout"][subject], text[subject], chosen, known)
        self.operands.column("kind")[rows] = vocab.OPERAND_IMM_VALUE
        self.operands.cells += [("layout", cells, layout), ("extra", cells, extra)]
        for name in ("layout", "extra"):
            self.operands.column(name)
        self.keep_slots("operands", rows, text, {i: kept for i, (_, _, kept) in known.items()})

    def _immediate_text(self, layout: Array, text: Array, chosen: Array, known: dict[int, Any]) -> tuple[Array, Array]:
        """Return the new layouts and texts of immediates, each distinct one made once."""
        key = np.stack((layout, text, chosen), 1)
        distinct, place = np.unique(key, axis=0, return_inverse=True)
        pools = self.ir.pools
        made: list[tuple[int, int]] = []
        for old, i, number in distinct.tolist():
            new = symbolic.edited_layout(pools.layouts[old], {"kind": "c", "value": "r"}, ("value_list", "expr"))
            members = dict(extras.members(self.texts[i])) if i >= 0 else {}
            members["value"] = known[i][0][number] if number >= 0 else "null"
            parts = [(name, members[name]) for where, name in layouts.entries(new) if where == layouts.RAW]
            made.append((pools.layouts.intern(new), self._intern(extras.join(parts))))
        pairs = np.array(made, np.int32).reshape(-1, 2)[place.reshape(-1)]
        return pairs[:, 0], pairs[:, 1]


def _elements(partitions: Array, extent: Array, size: Array) -> Array:
    """Return how many elements locations have, at most what 64 bits hold."""
    total = partitions.astype(np.float64) * extent
    if total.max(initial=0) < 2**62:
        return partitions * extent // size
    exact = [
        min(p * e // s, 2**63 - 1) for p, e, s in zip(partitions.tolist(), extent.tolist(), size.tolist(), strict=True)
    ]
    return np.array(exact, np.int64)


def _strides(shapes: list[str], shape: Array, dimension: int) -> tuple[Array, Array]:
    """Return the row-major stride of a dimension of each shape, and a mask of those beyond 64 bits."""

    def stride(i: int) -> int:
        product = 1
        for size in extras.parse(shapes[i])[dimension + 1 :]:
            product *= size
            if not expressions.SMALLEST <= product <= expressions.LARGEST:
                return expressions.SMALLEST  # no product of sizes: stands for one that is too wide
        return product

    values = of_each(shape, len(shapes), stride, absent=1)
    wide = values == expressions.SMALLEST
    return np.where(wide, 0, values), wide
