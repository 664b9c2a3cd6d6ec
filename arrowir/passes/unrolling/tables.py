"""The tables of an unrolled batch, from what was decided about its rows (rules U1, U3, U4, U7, U8)."""

from dataclasses import dataclass

import numpy as np

from arrowir import extras, layouts, schema
from arrowir.derived import take
from arrowir.ir import IR
from arrowir.names import Prefixes, fresh_names, numbered, picked, put
from arrowir.passes.unrolling import symbolic
from arrowir.passes.unrolling.edges import Edges, UnrolledEdges, cut_extra
from arrowir.passes.unrolling.iterations import Iterations, Links
from arrowir.passes.unrolling.loops import of_each
from arrowir.passes.unrolling.text import NewCells, UnrolledText
from arrowir.passes.unrolling.values import TABLE_CODES
from arrowir.runs import Work, expand, join_text, lookup, sort_references
from arrowir.store import Array, Ids, Strings, Table

RELATION_KEYS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")
_CHILDREN = ("branches", "loops", "calls", "call_arguments", "semaphores")


@dataclass
class UnrolledTables:
    """Builds the new tables.

    Parameters
    ----------
    iterations
        Where rows go.
    text
        What becomes of operands and attributes.
    edges
        The edges as written, and what becomes of them.
    found
        The edges of the result.
    """

    iterations: Iterations
    text: UnrolledText
    edges: UnrolledEdges
    found: Edges

    def __post_init__(self) -> None:
        self.loops = self.iterations.loops
        self.ir = self.loops.ir
        self.origin: dict[str, tuple[Array, Array]] = {}
        """For tables made anew: for each row the one that it comes from, and its instruction in the result."""

    def build(self) -> IR:
        """Make the new batch; tables that nothing touches are shared."""
        tables = {
            "instructions": self._instructions(),
            "operands": self._operands(),
            "dependencies": self._dependencies(),
            "blocks": self._blocks(),
            "functions": self._functions(),
        }
        tables |= {name: self._children(name) for name in _CHILDREN}
        made = self.ir.replace(**tables)
        return made.replace(references=self._references(made))

    # -- instructions ----------------------------------------------------------------------------------------

    def _instructions(self) -> Table:
        iterations, old = self.iterations, self.ir.tables["instructions"]
        source = iterations.source
        self.origin["instructions"] = source, np.arange(len(source))
        repeated = iterations.repeated[iterations.block]
        number = np.where(repeated, iterations.flat, -1)[iterations.instance]
        texts = self.ir.pools.layouts.texts
        named = of_each(old["layout"], len(texts), lambda i: layouts.source(texts[i], "name") == layouts.COLUMN)
        number[named[source] == 0] = -1
        columns = {
            "block_id": np.repeat(
                np.arange(int(iterations.kept.sum()), dtype=np.int32), iterations.sizes[iterations.kept]
            ),
            "layout": self._layouts(old["layout"]),
        }
        made = self._taken(old, source, columns, self.text.instructions)
        renamed = number >= 0
        if not renamed.any():
            names = picked(old.text(), source)
            original = None if old.columns["original_name"] is None else picked(old.text("original_name"), source)
        else:
            names = self._names(old.text(), number)
            original = self._original_names(old, renamed)
        return made.replace(name=names, original_name=original)

    def _names(self, names: Strings, number: Array) -> Strings:
        """Rule U3; fresh names are free ones (R6)."""
        source = self.iterations.source
        new = numbered(names, source, number, "-")
        function = self.ir.array("instructions", "function_id")
        looped = np.flatnonzero((self.iterations.repeats > 0) & self.iterations.repeated[self.loops.block])
        touched = np.zeros(self.ir.count("functions"), bool)
        touched[function[looped]] = True
        taken = np.flatnonzero((function >= 0) & touched[np.maximum(function, 0)])
        # `<name>-<n>` can meet another name only if that begins with `<name>-`, or if `<name>` repeats.
        prefixes = Prefixes(picked(names, looped), function[looped], "-")
        met = prefixes.met_by(picked(names, taken), function[taken])
        close = np.concatenate((prefixes.meeting, met))
        if not len(close):
            return new
        taken = taken[np.isin(function[taken], close)]
        rows = np.flatnonzero(number >= 0)
        rows = rows[np.isin(function[source[rows]], close)]
        wanted = picked(new, rows)
        free = fresh_names(picked(names, taken), function[taken], wanted, function[source[rows]])
        return new if free is wanted else put(new, rows, free)

    def _original_names(self, old: Table, renamed: Array) -> Strings:
        """Rows that get a new name remember the old one, or what it was before that."""
        source = self.iterations.source
        if old.columns["original_name"] is None:
            empty = Strings(np.append(old.text().offsets, old.text().offsets[-1]), old.text().data)
            return picked(empty, np.where(renamed, source, len(old)))
        first = old.text("original_name")
        known = np.diff(first.offsets)[source] > 0
        return picked(join_text([first, old.text()]), np.where(renamed & ~known, source + len(old), source))

    def _layouts(self, old: Ids) -> Ids:
        """Keys of edge lists that appear or become empty, and `loopnest`, which goes (rules U8, N14, F6)."""
        iterations, pools = self.iterations, self.ir.pools
        source = iterations.source
        dependencies = self.ir.tables["dependencies"]
        code = np.zeros(len(source), np.int64)
        for relation in range(len(RELATION_KEYS)):
            mine = dependencies["relation"] == relation
            before = np.bincount(dependencies["instruction_id"][mine], minlength=len(old))[source] > 0
            now = np.zeros(len(source), bool)
            now[self.found.owner[self.edges.relation[self.found.source] == relation]] = True
            code += np.where(now & ~before, 1, np.where(before & ~now, 2, 0)) * 3**relation
        looked_at = self.text.worked[source]
        code = np.where(looked_at, code, 27)
        key = old[source].astype(np.int64) * 28 + code
        distinct = np.flatnonzero(np.bincount(key)) if len(key) and key.max() < 2**24 else np.unique(key)
        new: list[int] = []
        for layout, change in zip((distinct // 28).tolist(), (distinct % 28).tolist(), strict=True):
            new.append(layout if change == 27 else pools.layouts.intern(_with_lists(pools.layouts[layout], change)))
        return np.array(new, np.int32)[np.searchsorted(distinct, key)] if len(key) else old[:0]

    # -- what instructions own -------------------------------------------------------------------------------

    def _operands(self) -> Table:
        source, owner = self.text.operand_source, self.text.operand_owner
        self.origin["operands"] = source, owner
        old = self.ir.tables["operands"]
        return self._taken(old, source, {"instruction_id": owner.astype(np.int32)}, self.text.operands)

    def _taken(self, old: Table, source: Array, columns: dict[str, Array], new: NewCells | None = None) -> Table:
        """Gather the rows of a table; some columns are given, some cells are new."""
        new = new or NewCells(old)

        def column(name: str) -> Array | None:
            if name in columns:
                return columns[name]
            if not old.has(name) and name not in new.columns:
                return None
            values = np.take(new.columns[name] if name in new.columns else old[name], source)
            for changed, rows, cells in new.cells:
                if changed == name:
                    values[rows] = cells
            return values

        names = [c.name for c in old.schema.stored if c.kind != "text"]
        made = Work([lambda name=name: column(name) for name in names], len(source)).done()
        texts = {c.name: None for c in old.schema.stored if c.kind == "text"}
        return Table(old.schema.name, {**texts, **dict(zip(names, made, strict=True))}, len(source))

    def _children(self, name: str) -> Table:
        old, iterations = self.ir.tables[name], self.iterations
        if not len(old):
            self.origin[name] = np.zeros(0, np.int64), np.zeros(0, np.int64)
            return old
        first = old.bounds(len(self.loops.block))
        counts = np.diff(first)[iterations.source]
        source, owner = expand(first[iterations.source], counts), np.repeat(np.arange(len(counts)), counts)
        self.origin[name] = source, owner
        columns: dict[str, Array] = {"instruction_id": owner.astype(np.int32)}
        if name == "branches":
            columns["block_id"] = lookup(iterations.new_block, old["block_id"])[source]
        if name == "semaphores" and old.has("from_instruction_id"):
            columns["from_instruction_id"], columns["name"] = self._followed(
                old["from_instruction_id"], old["name"], old["instruction_id"], source, owner
            )
        return self._taken(old, source, columns)

    def _followed(self, on: Ids, name: Ids, instruction: Ids, source: Array, owner: Array) -> tuple[Ids, Ids]:
        """Follow keys on instructions by the plain rule (U7, R0); where nothing comes of a target its name is left."""
        iterations = self.iterations
        gone = (on >= 0) & ~take_mask(self.edges.has_instances & ~iterations.is_loop, on)
        names = name.copy()
        texts = self.ir.tables["instructions"].text()
        names[gone] = [self.ir.pools.names.intern(texts[row]) for row in on[gone].tolist()]
        followed = np.flatnonzero((on >= 0) & ~gone)
        links = Links(iterations, self.loops.block[instruction[followed]], on[followed])
        link = np.full(len(on), -1, np.int64)
        link[followed] = np.arange(len(followed))
        new = np.full(len(source), -1, np.int32)
        some = np.flatnonzero(link[source] >= 0)
        target = links.follow(link[source[some]], iterations.instance[owner[some]])
        new[some] = iterations.place(on[source[some]], target)
        return new, names[source]

    def _dependencies(self) -> Table:
        edges, found = self.edges.edges, self.found
        source = found.source
        self.origin["dependencies"] = np.where(self.edges.cut[source], -1, edges.carrier[source]), found.owner
        pool = self.ir.pools.extras
        cut = pool.map(edges.extra[self.edges.cut], cut_extra, name="cut edge")
        extra = edges.extra.copy()
        extra[self.edges.cut] = cut
        columns = {
            "instruction_id": found.owner.astype(np.int32),
            "relation": self.edges.relation.astype(np.int16)[source],
            "on_instruction_id": found.on.astype(np.int32),
            "edge": edges.edge[source],
            "name": edges.name[source],
            "extra": extra[source],
        }
        return Table("dependencies", columns, len(source))

    # -- blocks, functions, references -----------------------------------------------------------------------

    def _blocks(self) -> Table:
        iterations, old = self.iterations, self.ir.tables["blocks"]
        kept = np.flatnonzero(iterations.kept)
        owner = old["instruction_id"][kept]
        inside = np.flatnonzero(owner >= 0)
        if len(inside):
            # A block that stays stands in an instruction that does, whose block has one instance.
            rows = owner[inside]
            owner = owner.copy()
            owner[inside] = iterations.place(rows, iterations.first[self.loops.block[rows]])
        made = self._taken(old, kept, {"instruction_id": owner.astype(np.int32)})
        original = None if old.columns["original_name"] is None else picked(old.text("original_name"), kept)
        return made.replace(name=picked(old.text(), kept), original_name=original)

    def _functions(self) -> Table:
        """Rule U8: `need_unroll` leaves the attributes."""
        old = self.ir.tables["functions"]
        if not old.has("attributes"):
            return old
        ids = old["attributes"].copy()
        wanted = self.loops.functions
        ids[wanted] = self.ir.pools.extras.map(ids[wanted], without_need_unroll, name="need_unroll")
        return old.replace(attributes=ids)

    def _references(self, made: IR) -> Table:
        """Carry references along with the rows whose text still holds the placeholders."""
        old = self.ir.tables["references"]
        if not len(old):
            return old
        keeps = self.text.kept_references
        picks: list[Array] = []
        rows: list[Array] = []
        owners: list[Array] = []
        for table in schema.REFERRING:
            mine = np.flatnonzero((old["table"] == TABLE_CODES[table]) & keeps)
            if not len(mine):
                continue
            row = old["row"][mine]
            if self.text.reference_order is not None:
                mine = mine[np.lexsort((self.text.reference_order[mine], row))]
            if table in self.origin:
                source, owner = self.origin[table]
                first = np.searchsorted(row, np.arange(self.ir.count(table) + 1))
                counts = np.where(source >= 0, np.diff(first)[source], 0)
                picks.append(mine[expand(first[source], counts)])
                rows.append(np.repeat(np.arange(len(source)), counts))
                owners.append(np.repeat(owner, counts))
                continue
            new = self.iterations.new_block[row] if table == "blocks" else row
            picks.append(mine[new >= 0])
            rows.append(new[new >= 0])
            owners.append(np.full(len(picks[-1]), -1))
        if not picks:
            return Table.empty("references")
        pick, row, owner = np.concatenate(picks), np.concatenate(rows), np.concatenate(owners)
        target, name = self._targets(pick, owner)
        columns = {c: old[c][pick] for c in ("table", "path", "target")}
        columns |= {"row": row.astype(np.int32), "target_id": target, "name": name}
        return sort_references(Table("references", columns, len(pick)), made)

    def _targets(self, pick: Array, owner: Array) -> tuple[Ids, Ids]:
        """Return what references of the result point at; an axis whose loop is gone is left by name."""
        old = self.ir.tables["references"]
        target, name, kind = old["target_id"][pick].copy(), old["name"][pick].copy(), old["target"][pick]
        axis = np.flatnonzero((kind == TABLE_CODES["loops"]) & (target >= 0))
        if len(axis):
            source = self.origin["loops"][0]
            place = np.full(self.ir.count("loops"), -1, np.int32)
            place[source[::-1]] = np.arange(len(source), dtype=np.int32)[::-1]
            gone = axis[place[target[axis]] < 0]
            name[gone] = self.ir.tables["loops"]["axis"][target[gone]]
            target[axis] = place[target[axis]]
        block = np.flatnonzero((kind == TABLE_CODES["blocks"]) & (target >= 0))
        target[block] = self.iterations.new_block[target[block]]
        on = np.flatnonzero((kind == TABLE_CODES["instructions"]) & (target >= 0))
        if len(on):
            inside = owner[on]
            instruction = np.where(inside >= 0, self.iterations.source[inside], 0).astype(np.int32)
            new, names = self._followed(target[on], name[on], instruction, np.arange(len(on)), np.maximum(inside, 0))
            target[on], name[on] = new, names
        return target, name


def take_mask(mask: Array, ids: Array) -> Array:
    """Gather from a mask; false where an id is absent."""
    return (ids >= 0) & take(mask, np.maximum(ids, 0)) if len(mask) else np.zeros(len(ids), bool)


def _with_lists(text: str, change: int) -> str:
    """Return a layout with keys of edge lists added (digit 1 in base 3) or dropped (2), and without `loopnest`."""
    digits = [change // 3**relation % 3 for relation in range(len(RELATION_KEYS))]
    added = {key: layouts.COLUMN for key, digit in zip(RELATION_KEYS, digits, strict=True) if digit == 1}
    dropped = [key for key, digit in zip(RELATION_KEYS, digits, strict=True) if digit == 2]
    return symbolic.edited_layout(text, added, ("loopnest", *dropped))


def without_need_unroll(text: str) -> str:
    """Return the attributes of a function without `need_unroll` (rule U8)."""
    if "need_unroll" not in text:
        return text
    if text.startswith("["):
        return f"[{','.join(item for item in extras.items(text) if item != symbolic.NEED_UNROLL)}]"
    return extras.without(text, "need_unroll") or "{}" if text.startswith("{") else text
