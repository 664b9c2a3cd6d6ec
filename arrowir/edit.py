"""Segments in, tables out: the one place where rows move and ids change.

A new table is a list of *runs* of old rows. Each run belongs to a *copy*: copy 0 is the rows themselves, moved; the
others are clones (an inlined body is one). From the runs of a table follow those of the tables whose rows it owns,
since the children of a run of rows are a run too. Keys follow from the runs as well: the rows themselves have one new
place each; inside a clone a key points at the clone of what it pointed at, or at what the clone binds it to. All of
that is in one array per table, `places`: the new id of each old row, then for each clone the new ids of its window of
old rows. Copying a key column is one lookup a row.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from arrowir import schema
from arrowir.ir import IR
from arrowir.names import picked, put
from arrowir.runs import (
    Runs,
    Work,
    blank,
    copy_text,
    expand,
    join_text,
    lookup,
    slab,
    sort_references,
    text_bytes,
)
from arrowir.store import Array, Strings, Table, children, in_parts, starts
from arrowir_kernels import copy_runs, fill_runs, increase_runs, map_runs, number_runs, place_clones, shift_runs

_NAMES = {
    "operands": {"location_id": "name", "set_id": "set_name", "register_id": "register_name"},
    "aliases": {"target_location_id": "name", "target_set_id": "set_name"},
    "dependencies": {"on_instruction_id": "name"},
    "branches": {"block_id": "name"},
    "calls": {"callee_id": "name"},
    "call_arguments": {"actual_location_id": "name", "actual_set_id": "name", "actual_register_id": "name"},
    "semaphores": {"from_instruction_id": "name"},
}
"""Keys whose target may go, by table, with the column that then holds its name (rule R5)."""

_MARKED = ("call_chain_id", "parent_id")
"""Keys on the call chain of a row: where a row has none, that of the clone it is in."""

_OF_CALLEES = {("calls", "callee_id"), ("call_arguments", "formal_set_id"), ("call_arguments", "formal_register_id")}
"""Keys of a call on the function that it names, which a clone of the call shares."""


@dataclass
class Window:
    """The source rows that each copy looks into, for one table: from `first`, `rows` many (copy 0 has none)."""

    first: Array
    rows: Array


@dataclass(frozen=True)
class _Piece:
    """A new column: the arrays that it needs (dtype, length), and what fills them."""

    column: str
    arrays: "tuple[tuple[type[np.generic], int], ...]"
    make: Callable[..., Array | Strings | None]


class Edit:
    """An edit of a batch: say what the new tables are, then `build` them.

    Parameters
    ----------
    ir
        The batch.
    added
        New rows by table, with ids as if they stood behind the batch's own rows. Their pools are the batch's.
    copies
        Number of copies, the rows themselves (0) included.
    """

    def __init__(self, ir: IR, added: dict[str, Table] | None = None, copies: int = 1) -> None:
        self.ir = ir
        self.copies = copies
        self.added = {name: (added or {}).get(name) or Table.empty(name) for name in schema.STORED}
        self.runs: dict[str, Runs] = {}
        self.windows: dict[str, Window] = {}
        self.bound: dict[str, tuple[Array, ...]] = {}
        self.prefixes: dict[str, Strings] = {}
        self.chains: Array | None = None
        self.settled: dict[tuple[str, str], tuple[Array, Array]] = {}
        self.replaced: dict[tuple[str, str], Array | int] = {}
        self.increased: dict[tuple[str, str], tuple[Array, Array]] = {}
        self.forgotten: dict[str, Array] = {}
        self._places: dict[str, tuple[Array, Array] | None] = {}
        self._losing: set[tuple[str, str]] = set()
        self._begun: list[tuple[list[tuple[str, str]], Work[Array | Strings | None]]] = []
        self._first_copy = np.zeros(copies, np.int64)

    # -- saying what ---------------------------------------------------------------------------------------------------

    def keep(self, table: str, runs: Runs) -> None:
        """Say which runs make up a table. Tables that are not mentioned follow their parent, or stay."""
        self.runs[table] = runs

    def look_into(self, table: str, first: Array, rows: Array) -> None:
        """Say which source rows of a table each clone refers to (arrays over copies; item 0 is ignored)."""
        self.windows[table] = Window(np.asarray(first, np.int64), np.asarray(rows, np.int64))

    def bind(self, table: str, copy: Array, row: Array, target: Array, of: Array | int = 0) -> None:
        """Say that in a clone a key on `row` becomes one on the new place of `target`: a bound parameter, say.

        `of` is the copy whose place of `target` is meant. Copy 0, the rows themselves, has bound keys too (`unite`).
        """
        copies = of if np.ndim(of) else np.full(np.shape(target), of)
        new = tuple(np.asarray(a, np.int64) for a in (copy, row, target, copies))
        old = self.bound.get(table, tuple(a[:0] for a in new))
        self.bound[table] = tuple(np.concatenate(pair) for pair in zip(old, new, strict=True))

    def unite(self, table: str, rows: Array, into: Array) -> None:
        """Merge rows into others: they go, and what points at them points at those.

        `keep` says which rows stay; `hand_over` says which of the children stay with those that they go to.
        """
        self.bind(table, np.zeros_like(rows), rows, into)

    def hand_over(self, table: str, owner: Array, rank: str, kept: Array | None = None) -> None:
        """Give the children of merged rows to those that they were merged into.

        Parameters
        ----------
        table
            The table of the children.
        owner
            For each old row of the parent the one that gets its children, which stands before it with no row between
            them whose children stay.
        rank
            The column that children of one row are in order of: that of their JSON member.
        kept
            Mask of the children that stay; all by default.
        """
        old = self.ir.tables[table]
        parent = old[schema.BY_NAME[table].parent or ""]
        united = np.zeros(len(owner), bool)
        united[owner[owner != np.arange(len(owner))]] = True
        moved = np.flatnonzero(united[owner[parent]])
        order = np.arange(len(old))
        order[moved] = moved[np.lexsort((old[rank][moved], owner[parent[moved]]))]
        self.keep(table, Runs.picking(order if kept is None else order[kept[order]]))

    def prefix(self, table: str, names: Strings) -> None:
        """Say what clones put before names, one text per copy."""
        self.prefixes[table] = names

    def mark(self, chains: Array) -> None:
        """Say which call chain rows of each clone get that have none (ids as if behind the old ones; -1 for copy 0)."""
        self.chains = np.asarray(chains, np.int64)

    def settle(self, table: str, column: str, rows: Array, values: Array) -> None:
        """Give the final values of some rows of the new table, where no rule of copies yields them."""
        self.settled[table, column] = rows, values

    def instead(self, table: str, column: str, values: Array | int) -> None:
        """Say what clones copy in place of a column of numbers: one value for each old and added row, or for all."""
        self.replaced[table, column] = values

    def increase(self, table: str, column: str, by: Array, chosen: Array | None = None) -> None:
        """Say what is added to a column of numbers in clones.

        Parameters
        ----------
        table, column
            The column; it is present in all rows concerned.
        by
            What is added, per copy; 0 for copy 0.
        chosen
            Mask of the old and added rows whose clones are concerned; all by default.
        """
        self.increased[table, column] = by, np.ones(self.rows(table), bool) if chosen is None else chosen

    def forget(self, table: str, rows: Array) -> None:
        """Say that clones of some rows do not remember a name that they had: they are no clones of what was read."""
        self.forgotten[table] = rows

    # -- what follows --------------------------------------------------------------------------------------------------

    def rows(self, table: str) -> int:
        """Return the number of old and added rows of a table."""
        return self.ir.count(table) + len(self.added[table])

    def at(self, table: str, column: str, rows: Array) -> Array:
        """Return the cells of a column of numbers in some old and added rows."""
        return in_parts(self.ir.tables[table][column], self.added[table][column], rows)

    def follow(self, tables: Iterable[str] = schema.STORED) -> None:
        """Derive the runs of tables whose parents have runs, top down; new rows alone are appended."""
        for table in schema.TABLES:
            if table.name not in tables or table.name in self.runs or table.name == "references":
                continue
            parent = table.column(table.parent).of if table.parent else None
            if parent is not None and parent in self.runs:
                self.runs[table.name] = self._children(table.name, self.runs[parent])
            elif len(self.added[table.name]):
                old = self.ir.count(table.name)
                self.runs[table.name] = Runs.of(np.array([0, old]), np.array([old, self.rows(table.name) - old]))

    def _children(self, table: str, parents: Runs) -> Runs:
        parent = schema.BY_NAME[table].parent
        assert parent is not None
        if not self.rows(table):
            return Runs.of(np.empty(0), np.empty(0))
        above = schema.BY_NAME[table].column(parent).of
        assert above is not None
        old, new = self.ir.tables[table][parent], self.added[table][parent]
        first = np.empty(len(parents.start), np.int64)
        number = np.empty(len(parents.start), np.int64)
        inside = parents.start < self.ir.count(above)
        for keys, which, base in ((old, inside, 0), (new, ~inside, len(old))):
            if which.any():
                first[which], number[which] = children(keys, parents.start[which], parents.length[which])
                first[which] += base
        return Runs.of(first, number, parents.copy, parents.begins[:-1] - parents.start)

    def places(self, table: str) -> tuple[Array, Array] | None:
        """Return (new id of each old row and of each window, shift per copy), or None when ids stay.

        `places[row + shift[copy]]` is the new id of what a key of that copy points at.
        """
        if table not in self._places:
            self._places[table] = self._find_places(table)
        return self._places[table]

    def _find_places(self, table: str) -> tuple[Array, Array] | None:
        runs, window, bound = self.runs.get(table), self.windows.get(table), self.bound.get(table)
        if runs is None and bound is None:
            return None
        rows = self.rows(table)
        own = np.arange(rows, dtype=np.int32)
        if runs is not None and bound is None and not runs.copy.any() and (runs.start == runs.begins[:-1]).all():
            return None if runs.total >= self.ir.count(table) else (_cut(own, runs.total), self._first_copy)
        if runs is not None:
            own[:] = -1
            mine = runs.copy == 0
            number_runs(runs.start[mine], runs.length[mine], runs.begins[:-1][mine], own)
        if bound is not None and not bound[0].all():
            copy, row, target, _ = bound
            mine = copy == 0
            own[row[mine]] = own[target[mine]]
        if window is None or self.copies == 1:
            return own, np.zeros(self.copies, np.int64)
        sizes = window.rows.copy()
        sizes[0] = rows
        base = starts(sizes)[:-1]
        places = np.empty(int(base[-1] + sizes[-1]), np.int32)
        shift = base - window.first
        shift[0] = 0
        runs = runs or Runs.whole(0)
        clones = np.flatnonzero(runs.copy)
        clones = clones[np.argsort(runs.copy[clones], kind="stable")]
        begin, length, value = runs.start[clones], runs.length[clones], runs.begins[clones]
        place_clones(own, base, shift, runs.copy[clones], begin, length, value, places)
        if bound is not None:
            copy, row, target, of = bound
            places[row + shift[copy]] = places[target + shift[of]]
        return places, shift

    # -- building ------------------------------------------------------------------------------------------------------

    def begin(self, *tables: str) -> None:
        """Begin to make tables of which all is said: their columns are copied while more is said of others."""
        self.follow(tables)
        pieces = [(name, piece) for name in tables for piece in self._pieces(name)]
        # Large ones first: threads end together.
        pieces.sort(key=lambda named: -sum(size for _, size in named[1].arrays))
        outs = iter(slab([array for _, piece in pieces for array in piece.arrays]))
        work = [partial(piece.make, *[next(outs) for _ in piece.arrays]) for _, piece in pieces]
        rows = max((self.runs[name].total for name in tables if name in self.runs), default=0)
        self._begun.append(([(name, piece.column) for name, piece in pieces], Work(work, rows)))

    def build(self) -> IR:
        """Make the new tables. Tables and columns that nothing touches are shared with the old batch."""
        names = [name for name in schema.STORED if name != "references"]
        begun = {name for pieces, _ in self._begun for name, _ in pieces}
        self.begin(*[name for name in names if name not in begun])
        columns: dict[str, dict[str, Array | Strings | None]] = {name: {} for name in names}
        while self._begun:  # the last first: others are at work on the first; what is done holds nothing any more
            pieces, work = self._begun.pop()
            for (name, column), values in zip(pieces, work.done(), strict=True):
                columns[name][column] = values
        made = IR(
            {name: self._table(name, columns[name]) for name in names},
            self.ir.pools,
            diagnostics=self.ir.messages,
            history=self.ir.history,
        )
        return made.replace(references=self._references(made))

    def _pieces(self, name: str) -> "list[_Piece]":
        """Return the columns of a table that are new."""
        runs, old = self.runs.get(name), self.ir.tables[name]
        places = {c.name: self._places_of(c) for c in old.schema.stored}  # kept, before threads start
        if runs is None:
            moved = [(column, found[0]) for column, found in places.items() if found is not None and old.has(column)]
            return [_Piece(column, (), partial(lookup, found, old[column])) for column, found in moved]
        pieces: list[_Piece] = []
        for c in old.schema.stored:
            if c.kind == "text":
                pieces += self._text_piece(name, c, runs)
            elif self._fills(name, c):
                pieces.append(
                    _Piece(c.name, ((schema.DTYPES[c.kind], runs.total),), partial(self._column, name, c, runs))
                )
        return pieces

    def _table(self, name: str, made: dict[str, Array | Strings | None]) -> Table:
        """Put a table together from its new columns."""
        runs, old = self.runs.get(name), self.ir.tables[name]
        self._keep_names(name, runs, made)
        if runs is None:
            return old.replace(**made) if made else old
        return Table(name, {c.name: made.get(c.name) for c in old.schema.stored}, runs.total)

    def _keep_names(self, table: str, runs: Runs | None, made: dict[str, Array | Strings | None]) -> None:
        """Write the name of what is gone in place of its id: nothing that was written is lost."""
        old, new = self.ir.tables[table], self.added[table]
        for key, name in _NAMES.get(table, {}).items():
            now, target = made.get(key), old.schema.column(key).of
            if not isinstance(now, np.ndarray) or target is None:
                continue
            if runs is None:
                runs = Runs.whole(len(old))
            elif (table, key) not in self._losing:
                continue
            before = np.empty(runs.total, np.int32)
            copy_runs(old[key], new[key], runs.start, runs.length, before)
            lost = np.flatnonzero((before >= 0) & (now < 0))
            if len(lost):
                kept = made.get(name)
                names = kept if isinstance(kept, np.ndarray) else np.empty(runs.total, np.int32)
                if kept is None:
                    copy_runs(old[name], new[name], runs.start, runs.length, names)
                names[lost] = self._interned(target, before[lost])
                made[name] = names

    def _interned(self, table: str, rows: Array) -> Array:
        """Return names of old or added rows, as ids in the pool of names."""
        if table == "loops":
            return np.concatenate([t["axis"] for t in (self.ir.tables[table], self.added[table])])[rows]
        texts = join_text([t.text() for t in (self.ir.tables[table], self.added[table])])
        return self.ir.pools.names.intern_all(texts.take(rows))

    def _fills(self, table: str, column: schema.Column) -> bool:
        """Tell whether a column of numbers has anything in it."""
        if self.ir.tables[table].present(column.name) or self.added[table].present(column.name):
            return True
        marked = column.name in _MARKED and self.chains is not None and (self.runs[table].copy > 0).any()
        return bool(marked) or (table, column.name) in self.replaced or (table, column.name) in self.settled

    def _places_of(self, column: schema.Column) -> tuple[Array, Array] | None:
        return self.places(column.of) if column.kind == "id" and column.of in schema.STORED else None

    def _column(self, table: str, column: schema.Column, runs: Runs, out: Array) -> Array:
        first, second, start = self._sources(table, column, runs)
        lost = 0
        if column.name == schema.BY_NAME[table].parent and runs.shift is not None:
            shift_runs(first, second, start, runs.length, runs.shift, out)
        elif (places := self._places_of(column)) is not None:
            copy = np.zeros_like(runs.copy) if (table, column.name) in _OF_CALLEES else runs.copy
            lost = map_runs(first, second, start, runs.length, places[1][copy], places[0], out)
        else:
            copy_runs(first, second, start, runs.length, out)
        if column.name in _MARKED and self.chains is not None:
            chain = self.chains.astype(np.int32)
            found = self.places("call_chains")
            fill_runs(runs.length, runs.copy > 0, (chain if found is None else lookup(found[0], chain))[runs.copy], out)
        if (table, column.name) in self.increased:
            by, chosen = self.increased[table, column.name]
            increase_runs(runs.start, runs.length, by[runs.copy], chosen, out)
        if (table, column.name) in self.settled:
            rows, values = self.settled[table, column.name]
            out[rows] = values
            lost += (np.asarray(values) < 0).any()
        if lost and out.min(initial=0) < 0:
            self._losing.add((table, column.name))
        return out

    def _sources(self, table: str, column: schema.Column, runs: Runs) -> tuple[Array, Array, Array]:
        """Return the two parts that a column of numbers is copied from, and where in them each run begins.

        Cells that are all alike, absent ones or a number in their place, are one run, as long as the longest.
        """
        old, new = self.ir.tables[table], self.added[table]
        start = runs.start
        longest, dtype = int(runs.length.max(initial=0)), schema.DTYPES[column.kind]
        if old.has(column.name) or new.has(column.name):
            first, second = old[column.name], new[column.name]
        else:
            first, second, start = old.absent(column.name, longest), old.absent(column.name, 0), start * 0
        if (instead := self.replaced.get((table, column.name))) is None:
            return first, second, start
        first = np.concatenate((first, second))
        if isinstance(instead, int):
            return first, np.full(longest, instead, dtype), np.where(runs.copy > 0, len(first), start)
        return first, instead.astype(dtype, copy=False), np.where(runs.copy > 0, len(first) + runs.start, start)

    def _text_piece(self, table: str, column: schema.Column, runs: Runs) -> "list[_Piece]":
        """Return the piece of work for a text column, or none where it is absent everywhere."""
        old, new = self.ir.tables[table], self.added[table]
        number = prefixes = None
        if column.name == "original_name":
            first, second, runs = self._original_names(table, runs)
            if first is None:
                return []
        else:
            first, second = old.text(column.name), new.text(column.name)
            if table in self.prefixes:
                number, prefixes = np.where(runs.copy > 0, runs.copy, -1), self.prefixes[table]
        size = text_bytes(first, second, runs, number, prefixes)

        def make(offsets: Array, data: Array) -> Strings:
            return copy_text(first, second, runs, number, prefixes, (offsets, data))

        return [_Piece(column.name, ((np.int64, runs.total + 1), (np.uint8, size)), make)]

    def _original_names(self, table: str, runs: Runs) -> "tuple[Strings | None, Strings, Runs]":
        """Return what the names that rows had in their kernel are copied from; the rows themselves keep theirs."""
        old, new = self.ir.tables[table], self.added[table]
        kept, more = old.text("original_name"), new.text("original_name")
        if self.chains is None or not (self.chains[runs.copy] >= 0).any():
            return (kept if kept.offsets[-1] or more.offsets[-1] else None), more, runs
        kept = join_text([kept, more])
        names = join_text([t.text("name") for t in (old, new)])
        if kept.offsets[-1]:  # unrolled ones, whose name in the kernel is another
            known = np.flatnonzero(np.diff(kept.offsets))
            names = put(names, known, picked(kept, known))
        gone = self.forgotten.get(table, ())
        if len(gone):
            names = put(names, np.unique(gone), blank(len(np.unique(gone))))
        return kept, names, Runs(runs.start + np.where(runs.copy > 0, len(kept), 0), runs.length, runs.copy)

    def _references(self, made: IR) -> Table:
        """Carry references along with the rows whose text holds the placeholders."""
        if not self.rows("references"):
            return self.ir.tables["references"]
        old, new = self.ir.tables["references"], self.added["references"]
        source = {c.name: np.concatenate((old[c.name], new[c.name])) for c in old.schema.stored}
        if all(not old.has(c) and not new.has(c) for c in ("name",)):
            source.pop("name")
        codes = schema.STRUCTURAL["table"]
        picked: list[Array] = []
        owner: list[Array] = []
        copy: list[Array] = []
        for table in schema.REFERRING:
            mine = np.flatnonzero(source["table"] == codes.index(table))
            mine = mine[np.argsort(source["row"][mine], kind="stable")]
            if not len(mine):
                continue
            runs = self.runs.get(table) or Runs.whole(self.rows(table))
            rows = source["row"][mine]
            first, count = children(rows, runs.start, runs.length)
            places = expand(first, count)
            picked.append(mine[places])
            owner.append(rows[places] + np.repeat(runs.begins[:-1] - runs.start, count))
            copy.append(np.repeat(runs.copy, count))
        if not picked:
            return Table.empty("references")
        pick, row, copies = np.concatenate(picked), np.concatenate(owner), np.concatenate(copy)
        columns: dict[str, Array | Strings | None] = {name: values[pick] for name, values in source.items()}
        names = source["name"][pick] if "name" in source else np.full(len(pick), -1, np.int32)
        target, kind = source["target_id"][pick].copy(), source["target"][pick]
        for code in np.unique(kind).tolist():
            found = self.places(codes[code])
            if found is not None:
                which = np.flatnonzero((kind == code) & (target >= 0))
                before, of = target[which], copies[which]
                at = before + found[1][of]
                if (window := self.windows.get(codes[code])) is not None:  # what lies outside moves as the rows do
                    outside = (of > 0) & ((before < window.first[of]) | (before >= (window.first + window.rows)[of]))
                    at[outside] = before[outside]
                target[which] = found[0][at]
                lost = target[which] < 0
                names[which[lost]] = self._interned(codes[code], before[lost])
        columns |= {"row": row.astype(np.int32), "target_id": target, "name": names if (names >= 0).any() else None}
        return sort_references(Table("references", columns, len(pick)), made)


def _cut(own: Array, rows: int) -> Array:
    own[rows:] = -1
    return own
