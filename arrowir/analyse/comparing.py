"""What is different between rows that are the same thing, and between clones and their originals."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from arrowir import extras, schema
from arrowir.analyse.cells import Cells, Spelled
from arrowir.analyse.children import CHILDREN
from arrowir.analyse.matching import NAMED, Match
from arrowir.derived import take
from arrowir.store import Array, Pool
from arrowir_kernels.order import mark_moved

WHATS: tuple[str, ...] = ("removed", "added", "renamed", "moved", "readdressed", "rewired", "changed")
"""What can be said of a row, in the order in which it is said."""

REMOVED, ADDED, RENAMED, MOVED, READDRESSED, REWIRED, CHANGED = WHATS

TABLES: tuple[str, ...] = (*NAMED, *CHILDREN)
"""Tables that are compared."""

_ADDRESS = ("addr", "bank", "base")
_LAYOUTS = ("layout", "nki_layout", "sync_layout")
# Names of modules come from their files, and what call chains say is in no document. Owners, and what follows from
# other columns, are looked at elsewhere.
_ASIDE: dict[str, tuple[str, ...]] = {
    "modules": ("source", "stage"),
    "sets": ("ordinal",),
    "registers": ("ordinal",),
    "blocks": ("owner",),
    "calls": ("candidates",),
    "references": ("table", "target", "path", "name"),
}

# What the text of these rows says of their kind stands in a column as well.
_KINDS = {"dependencies": "edge", "aliases": "kind"}

REFERENCES: dict[str, tuple[tuple[str, str, str], ...]] = {
    "branches": (("block_id", "blocks", "name"),),
    "calls": (("callee_id", "functions", "name"),),
    "semaphores": (("from_instruction_id", "instructions", "name"),),
    "aliases": (("target_location_id", "locations", "name"), ("target_set_id", "sets", "set_name")),
    "dependencies": (("on_instruction_id", "instructions", "name"),),
}
"""Columns that name rows, the tables of these, and the columns that hold names that did not resolve."""

OPERANDS = (
    ("location_id", "locations", "name"),
    ("set_id", "sets", "set_name"),
    ("register_id", "registers", "register_name"),
)
ACTUALS = (
    ("actual_location_id", "locations", "name"),
    ("actual_set_id", "sets", "name"),
    ("actual_register_id", "registers", "name"),
)

PARENTS: dict[str, tuple[str, str]] = {
    "functions": ("module_id", "modules"),
    "queues": ("module_id", "modules"),
    "sets": ("function_id", "functions"),
    "locations": ("set_id", "sets"),
    "registers": ("function_id", "functions"),
    "blocks": ("instruction_id", "instructions"),
    "instructions": ("block_id", "blocks"),
}
"""The thing that a row stands in: column and table."""

TOLD_BY: dict[str, str] = {
    "sets": "kind",
    "locations": "type",
    "registers": "storage",
    "instructions": "opcode",
    "operands": "location_id",
    "calls": "callee_id",
    "loops": "axis",
    "semaphores": "semaphore",
    "branches": "block_id",
    "aliases": "target_location_id",
    "call_arguments": "actual",
    "dependencies": "on_instruction_id",
    "references": "target_id",
}
"""The column that tells what a row is that came or went."""


@dataclass(frozen=True)
class Finding:
    """A difference in one column of one table, and the rows that have it."""

    table: str
    what: str
    column: str | None
    before: Array
    """Rows before: the row itself, or the original of a clone; -1 for none."""
    after: Array
    """Rows after, -1 for none."""
    spelled: tuple[Spelled, Spelled]
    """Makes the texts of the cells before and after."""
    owner: Array | None = None
    """For rows that clones lack: the clones that would own them."""


class Comparison:
    """Compares all rows of two batches that are matched.

    Parameters
    ----------
    match
        Which rows are the same, or clones.
    """

    def __init__(self, match: Match) -> None:
        self.match, self.sides, self.cells = match, match.sides, Cells(match)
        self.findings: list[Finding] = []
        for table in TABLES:
            self._come_and_gone(table)
            before, after = self._pairs(table)
            if len(before):
                self._names(table, before, after)
                self._references(table, before, after)
                self._columns(table, before, after)
            self._places(table)
        self._allocations()
        self._members()

    def _say(
        self,
        table: str,
        what: str,
        column: str | None,
        before: Array,
        after: Array,
        spelled: tuple[Spelled, Spelled] | None = None,
        owner: Array | None = None,
    ) -> None:
        if len(before):
            told = column or TOLD_BY.get(table)
            if spelled is None:
                one, other = before, after
                if what == REMOVED or owner is not None:
                    other = before * 0 - 1
                if what == ADDED:
                    one = before * 0 - 1
                spelled = self._spell(False, table, told, one), self._spell(True, table, told, other)
            self.findings.append(Finding(table, what, column, before, after, spelled, owner))

    def _spell(self, is_after: bool, table: str, column: str | None, rows: Array) -> Spelled:
        if column is None:
            return lambda places: self.cells.of(is_after, table, "layout", np.full(len(places), -1))
        return lambda places: self.cells.of(is_after, table, column, rows[places])

    def _pairs(self, table: str) -> tuple[Array, Array]:
        """Return the rows to compare: originals, and what became of them."""
        if table in CHILDREN:
            return self.match.kin[table].before, self.match.kin[table].after
        after = np.flatnonzero(self.match.origin[table] >= 0)
        return self.match.origin[table][after], after

    # -- rows ---------------------------------------------------------------------------------------------------------

    def _come_and_gone(self, table: str) -> None:
        """Find rows that are there on one side alone, and children of originals that clones lack."""
        match, twins = self.match, self.match.twins[table]
        gone, new = np.flatnonzero(twins.twin < 0), np.flatnonzero(twins.source < 0)
        self._say(table, REMOVED, None, gone, gone * 0 - 1)
        self._say(table, ADDED, None, match.origin[table][new], new)
        if table in CHILDREN and CHILDREN[table].owner:
            kin = match.kin[table]
            clones = ~match.kept(CHILDREN[table].owner)[kin.owner]
            lost = kin.lost[clones]
            self._say(table, REWIRED, TOLD_BY.get(table), lost, lost * 0 - 1, owner=kin.owner[clones])

    # -- cells --------------------------------------------------------------------------------------------------------

    def _names(self, table: str, before: Array, after: Array) -> None:
        """Compare the names of things that were there before; clones have new ones."""
        if table not in NAMED or table == "modules":
            return
        kept = self.match.kept(table)[after]
        before, after = before[kept], after[kept]
        one, other = self.sides.texts(table)
        differs = (one.gather(before) != other.gather(after)).to_numpy()
        self._say(table, RENAMED, "name", before[differs], after[differs])

    def _columns(self, table: str, before: Array, after: Array) -> None:
        """Compare plain columns; references are compared by what they name."""
        named = REFERENCES.get(table, OPERANDS if table == "operands" else ACTUALS if table == "call_arguments" else ())
        aside = {*_ASIDE.get(table, ()), *_LAYOUTS, *(reference[2] for reference in named)}
        for column in schema.BY_NAME[table].stored:
            if (column.kind in ("text", "id") and column.of != "patterns") or column.name in aside:
                continue
            one, other = self.sides.cells(table, column.name)
            differs = one[before] != other[after]
            if column.name == "optin_mask":
                differs &= self._written_masks(before, after)
            if not differs.any():
                continue
            if column.name == "extra":
                self._extras(table, before, after, differs)
            else:
                what = READDRESSED if table == "locations" and column.name in _ADDRESS else CHANGED
                self._say(table, what, column.name, before[differs], after[differs])

    def _written_masks(self, before: Array, after: Array) -> Array:
        """Tell for which pairs a mask counts: those of clones; else it must stand in a document (rule N10)."""
        counts = ~self.match.kept("instructions")[after]
        for ir, rows in ((self.sides.before, before), (self.sides.after, after)):
            has = np.array(['optin_passes"' in text for text in ir.pools.layouts.texts] + [False])
            counts |= has[ir.tables["instructions"]["layout"][rows]]
        return counts

    # -- references ---------------------------------------------------------------------------------------------------

    def _same(self, table: str, reference: tuple[str, str, str], before: Array, after: Array) -> Array:
        """Tell for which pairs of rows a reference names the same."""
        column, target, written = reference
        one, other = self.sides.arrays(table, column)
        name, name_after = self.sides.cells(table, written)
        image = self.match.image(target, other[after], self.match.chains(table)[after])
        return (one[before] == image) & ((image >= 0) | (name[before] == name_after[after]))

    def _references(self, table: str, before: Array, after: Array) -> None:
        """Compare what rows name."""
        if table == "references":
            self._hidden_references(before, after)
        elif table == "operands":
            self._operands(before, after)
        elif table == "call_arguments":
            same = np.ones(len(before), bool)
            for reference in ACTUALS:
                same &= self._same(table, reference, before, after)
            self._say(table, REWIRED, "actual", before[~same], after[~same])
        for reference in REFERENCES.get(table, ()):
            same = self._same(table, reference, before, after)
            self._say(table, REWIRED, reference[0], before[~same], after[~same])

    def _operands(self, before: Array, after: Array) -> None:
        """Compare the memory and the register that operands name.

        A set beside a location says nothing more when it is the location's; without a location it is the memory.
        """
        sides, rows = self.sides, (before, after)
        same, same_set, same_register = (self._same("operands", r, before, after) for r in OPERANDS)
        place = _picked(sides.arrays("operands", "location_id"), rows)
        around = _picked(sides.arrays("operands", "set_id"), rows)
        lost = _picked(sides.cells("operands", "name"), rows)
        home = [take(owner, at) for owner, at in zip(sides.arrays("locations", "set_id"), place, strict=True)]
        located = [(place[k] >= 0) | (lost[k] >= 0) for k in (0, 1)]
        # A location on one side, and the set that it is in on the other: the same memory, written otherwise.
        memory = [np.where(located[k], home[k], around[k]) for k in (0, 1)]
        image = self.match.image("sets", memory[1], self.match.chains("operands")[after])
        otherwise = (located[0] != located[1]) & (memory[0] >= 0) & (memory[0] == image)
        by_set = ~located[0] & ~located[1]
        differs = np.where(by_set, ~same_set, ~same & ~otherwise)
        self._say("operands", REWIRED, "location_id", before[differs], after[differs])
        beside = _picked(sides.cells("operands", "set_name"), rows)
        plain = [(beside[k] < 0) & ((around[k] < 0) | (around[k] == home[k]) | ~located[k]) for k in (0, 1)]
        differs = ~same_set & ~by_set & ~(plain[0] & plain[1])
        self._say("operands", REWIRED, "set_id", before[differs], after[differs])
        self._say("operands", REWIRED, "register_id", before[~same_register], after[~same_register])

    def _hidden_references(self, before: Array, after: Array) -> None:
        """Compare references inside pooled text."""
        sides, match, rows = self.sides, self.match, (before, after)
        target, name = (_picked(sides.cells("references", c), rows) for c in ("target", "name"))
        ids = _picked(sides.arrays("references", "target_id"), rows)
        chain = match.chains("references")[after]
        image = np.full(len(after), -1, np.int64)
        for code in np.unique(target[1][target[1] >= 0]).tolist():
            mine = target[1] == code
            image[mine] = match.image(schema.STRUCTURAL["table"][code], ids[1][mine], chain[mine])
        same = (ids[0] == image) & (target[0] == target[1])
        same &= (image >= 0) | (name[0] == name[1])
        self._say("references", REWIRED, "target_id", before[~same], after[~same])

    # -- members ------------------------------------------------------------------------------------------------------

    def _extras(self, table: str, before: Array, after: Array, differs: Array) -> None:
        """Find which members differ in JSON text; each pair of texts is read once."""
        if table in _KINDS:
            kind = self.sides.cells(table, _KINDS[table])
            differs = differs & (kind[0][before] == kind[1][after])
        rows = before[differs], after[differs]
        one, other = _picked(self.sides.arrays(table, "extra"), rows)
        pools = self.sides.before.pools.extras, self.sides.after.pools.extras
        width = len(pools[1]) + 1
        distinct, place = np.unique((one.astype(np.int64) + 1) * width + other + 1, return_inverse=True)
        by_member: dict[str, list[tuple[int, str | None, str | None]]] = {}
        for number, both in enumerate(distinct.tolist()):
            texts = _text(pools[0], both // width - 1), _text(pools[1], both % width - 1)
            for member, old, new in _changed_members(*texts):
                by_member.setdefault(member, []).append((number, old, new))
        for member, found in sorted(by_member.items()):  # not in the order of the pools: each batch has its own
            number = np.full(len(distinct), -1, np.int64)
            number[[n for n, _, _ in found]] = np.arange(len(found))
            mine = np.flatnonzero(number[place] >= 0)
            which = number[place[mine]]
            spelled = (
                self._spell_member(False, table, rows[0][mine], which, [f[1] for f in found], member),
                self._spell_member(True, table, rows[1][mine], which, [f[2] for f in found], member),
            )
            self._say(table, CHANGED, member, rows[0][mine], rows[1][mine], spelled)

    def _spell_member(
        self, is_after: bool, table: str, rows: Array, which: Array, texts: list[str | None], member: str
    ) -> Spelled:
        return lambda places: self.cells.members(is_after, table, rows[places], texts, which[places], member)

    def _members(self) -> None:
        """Find rows whose JSON has other members, or in another order, where nothing else tells of it."""
        touched = self._touched()
        for table in TABLES:
            before, after = self._pairs(table)
            columns = {c.name for c in schema.BY_NAME[table].stored}
            for name in _LAYOUTS if len(before) else ():
                if name in columns:
                    one, other = self.sides.cells(table, name)
                    differs = (one[before] != other[after]) & ~touched[table][after]
                    self._say(table, CHANGED, name, before[differs], after[differs])

    def _touched(self) -> dict[str, Array]:
        """Return masks of the rows after of which something has been said, or of what stands in them."""
        match = self.match
        touched = {table: np.zeros(self.sides.after.count(table), bool) for table in TABLES}
        for found in self.findings:
            here = found.after[found.after >= 0]
            if found.what != ADDED:  # of clones that are like their originals nothing has been said yet
                touched[found.table][here] = True
            if found.owner is not None:
                touched[CHILDREN[found.table].owner][found.owner] = True
            elif found.table in CHILDREN or found.what in (ADDED, REMOVED, MOVED):
                gone = found.before[found.after < 0]
                for above, key in _things_around(found.table):
                    one, other = self.sides.arrays(found.table, key)
                    owner = np.concatenate((other[here], take(match.twins[above].twin, one[gone])))
                    touched[above][owner[owner >= 0]] = True
        return touched

    # -- places -------------------------------------------------------------------------------------------------------

    def _places(self, table: str) -> None:
        """Find rows that are in another thing than before, or stand in another order."""
        match = self.match
        if table == "modules" or table == "references":
            return
        if table in CHILDREN:
            self._order_of_children(table)
            return
        after = np.flatnonzero(match.kept(table))
        before = match.twins[table].source[after]
        if not len(after):
            return
        key, above = PARENTS[table]
        parent, now = self.sides.arrays(table, key)
        image = take(match.twins[above].image, now[after])
        stays = parent[before] == image
        self._say(table, MOVED, key, before[~stays], after[~stays])
        if table in ("sets", "registers"):
            return
        before, after = before[stays], after[stays]
        scope = now[after].astype(np.int64)
        if table == "blocks":
            rows = self.sides.after.tables[table]
            outer = np.where(rows["function_id"] >= 0, -2 - 2 * rows["function_id"], -3 - 2 * rows["queue_id"])[after]
            scope = np.where(scope < 0, outer, scope)
        elif table == "functions":
            scope = 2 * scope + (self.sides.after.tables[table]["in_nki_functions"] == 1)[after]
        moved = out_of_order(scope, before)
        before, after = before[moved], after[moved]
        spelled = self._behind(False, table, before), self._behind(True, table, after)
        self._say(table, MOVED, "order", before, after, spelled)

    def _order_of_children(self, table: str) -> None:
        """Find rows of a list that stand in another order; most lists have no order apart from their places."""
        if table not in ("dependencies", "call_arguments"):
            return
        before, after = self._pairs(table)
        order = np.argsort(after)
        before, after = before[order], after[order]
        code = self.sides.cells(table, CHILDREN[table].slot or "")[1]
        owner = self.sides.after.tables[table][CHILDREN[table].key].astype(np.int64)
        moved = out_of_order((owner * (int(code.max(initial=0)) + 2) + code)[after], before)
        self._say(table, MOVED, TOLD_BY[table], before[moved], after[moved])

    def _allocations(self) -> None:
        """Find sets and registers that stand in another order: the two share one list in a file."""
        columns: list[tuple[Array, ...]] = []
        for number, table in enumerate(("sets", "registers")):
            after = np.flatnonzero(self.match.kept(table))
            before = self.match.twins[table].source[after]
            old, new = self.sides.arrays(table, "ordinal")
            function = self.sides.after.tables[table]["function_id"]
            columns.append((function[after], new[after], old[before], before, after, after * 0 + number))
        function, place, was, before, after, kind = (np.concatenate(c) for c in zip(*columns, strict=True))
        order = np.lexsort((place, function))
        moved = order[out_of_order(function[order], was[order])]
        for number, table in enumerate(("sets", "registers")):
            mine = moved[kind[moved] == number]
            self._say(table, MOVED, "ordinal", before[mine], after[mine])

    def _behind(self, is_after: bool, table: str, rows: Array) -> Spelled:
        """Return the names of what rows stand behind, null for the first."""
        parent = self.sides.arrays(table, PARENTS[table][0])[is_after]
        ahead = np.where(parent[rows - 1] == parent[rows], rows - 1, -1)
        return self._spell(is_after, table, "name", ahead)


def _things_around(table: str) -> Iterator[tuple[str, str]]:
    """Yield what a row can stand in: table and column."""
    if table in CHILDREN:
        if CHILDREN[table].owner:
            yield CHILDREN[table].owner, CHILDREN[table].key
    elif table == "blocks":
        yield from (("instructions", "instruction_id"), ("functions", "function_id"), ("queues", "queue_id"))
    elif table in PARENTS:
        yield PARENTS[table][1], PARENTS[table][0]


def _picked(columns: tuple[Array, Array], rows: tuple[Array, Array]) -> tuple[Array, Array]:
    return columns[0][rows[0]], columns[1][rows[1]]


def out_of_order(group: Array, value: Array) -> Array:
    """Return a mask of the fewest rows that have to move so that values rise within each group.

    Parameters
    ----------
    group
        Group of each row; those of one need not follow each other.
    value
        Values, distinct within a group.

    Examples
    --------
    >>> out_of_order(np.array([0, 0, 0, 1]), np.array([3, 1, 2, 0])).tolist()
    [True, False, False, False]
    """
    order = np.argsort(group, kind="stable") if (group[1:] < group[:-1]).any() else np.arange(len(group))
    group, value = group[order], value[order].astype(np.int64)
    falls = (group[1:] == group[:-1]) & (value[1:] < value[:-1])
    out = np.zeros(len(group), bool)
    if falls.any():
        mine = np.flatnonzero(np.isin(group, group[1:][falls]))
        marks, work = np.zeros(len(mine), np.int8), np.zeros((2, len(mine)), np.int64)
        mark_moved(group[mine].astype(np.int64), value[mine], work[0], work[1], marks)
        out[order[mine]] = marks == 1
    return out


def _text(pool: Pool, number: int) -> str | None:
    return None if number < 0 else pool[number]


def _changed_members(old: str | None, new: str | None) -> list[tuple[str, str | None, str | None]]:
    """Return the members that differ in two JSON texts: member, value before, value after."""
    if not all(text is None or text.startswith("{") for text in (old, new)):
        return [("extra", old, new)]
    before, after = dict(extras.members(old or "{}")), dict(extras.members(new or "{}"))
    return [(m, before.get(m), after.get(m)) for m in {**before, **after} if before.get(m) != after.get(m)]
