"""Cells as text: what rows hold and what they name, for people."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from arrowir import extras, layouts, schema
from arrowir.analyse.children import bases, owners
from arrowir.analyse.matching import Match
from arrowir.analyse.naming import gathered
from arrowir.analyse.sides import pool_of
from arrowir.ir import IR
from arrowir.store import Array, Strings

if TYPE_CHECKING:
    import polars as pl

Spelled = Callable[[Array], "pl.Series"]
"""Makes the texts of some cells, given by their places, when they are wanted."""

UNRESOLVED: dict[tuple[str, str], str] = {
    ("operands", "location_id"): "name",
    ("operands", "set_id"): "set_name",
    ("operands", "register_id"): "register_name",
    ("branches", "block_id"): "name",
    ("calls", "callee_id"): "name",
    ("call_arguments", "actual_location_id"): "name",
    ("call_arguments", "actual_set_id"): "name",
    ("call_arguments", "actual_register_id"): "name",
    ("semaphores", "from_instruction_id"): "name",
    ("aliases", "target_location_id"): "name",
    ("aliases", "target_set_id"): "set_name",
    ("dependencies", "on_instruction_id"): "name",
    ("references", "target_id"): "name",
}
"""Columns that name other rows, and the column that has the name as written where it did not resolve."""

ALTERNATIVES: dict[tuple[str, str], tuple[str, ...]] = {
    ("operands", "location_id"): ("location_id", "set_id"),
    ("call_arguments", "actual"): ("actual_location_id", "actual_set_id", "actual_register_id"),
}
"""What is told as one column although it stands in several: the first that is there."""


class Cells:
    """Texts of the cells of two batches.

    Parameters
    ----------
    match
        The batches.
    """

    def __init__(self, match: Match) -> None:
        self.match = match

    def of(self, is_after: bool, table: str, column: str, rows: Array) -> "pl.Series":
        """Return the texts of one column of some rows; null where a cell is absent, or a row is (-1)."""
        import polars as pl

        found = self._of(is_after, table, column, np.maximum(rows, 0)) if len(rows) else []
        texts = pl.Series(found, dtype=pl.String)
        if len(rows) and rows.min() < 0:
            texts = texts.zip_with(pl.Series(rows >= 0), _nulls(len(rows)))
        return texts

    def _of(self, is_after: bool, table: str, column: str, rows: Array) -> "pl.Series":
        ir = self.match.sides.after if is_after else self.match.sides.before
        if not ir.count(table):
            return _nulls(len(rows))
        several = ALTERNATIVES.get((table, column))
        if several is not None:
            found = self._named(is_after, ir, table, several[0], rows)
            for other in several[1:]:
                found = found.fill_null(self._named(is_after, ir, table, other, rows))
            return found
        declared = schema.BY_NAME[table].column(column)
        if (table, column) in UNRESOLVED or (declared.kind == "id" and declared.of != "patterns"):
            return self._named(is_after, ir, table, column, rows)
        return _plain(self, is_after, ir, table, column, rows)

    def _named(self, is_after: bool, ir: IR, table: str, column: str, rows: Array) -> "pl.Series":
        """Return the names of the rows that a column names."""
        ids = ir.array(table, column)[rows]
        if column == "target_id":
            found = _nulls(len(rows))
            code = ir.tables[table]["target"][rows]
            for number in np.unique(code[code >= 0]).tolist():
                name = schema.STRUCTURAL["table"][number]
                found = found.fill_null(self._names(is_after, ir, name, np.where(code == number, ids, -1)))
        else:
            found = self._names(is_after, ir, schema.BY_NAME[table].column(column).of or "", ids)
        written = UNRESOLVED.get((table, column))
        return found if written is None else found.fill_null(_plain(self, is_after, ir, table, written, rows))

    def _names(self, is_after: bool, ir: IR, table: str, ids: Array) -> "pl.Series":
        """Return the names of rows, null for -1; of loops, those of their axes."""
        import polars as pl

        if table == "loops":
            return self.of(is_after, "loops", "axis", ids)
        return gathered(self.match.sides.text(is_after, table), ids) if ir.count(table) else pl.Series(_nulls(len(ids)))

    def members(
        self, is_after: bool, table: str, rows: Array, texts: list[str | None], which: Array, member: str
    ) -> "pl.Series":
        """Return the JSON text of a member of rows.

        Parameters
        ----------
        is_after
            Side of the rows.
        table, rows
            The rows whose `extra` has the member.
        texts, which
            The distinct texts of the member, and which of them each row has.
        member
            The member.
        """
        import polars as pl

        found = pl.Series(texts, dtype=pl.String).gather(which)
        open_ = [k for k, text in enumerate(texts) if text is not None and extras.PLACEHOLDER in text]
        place = np.flatnonzero(np.isin(which, open_))
        if not len(place):  # the rows may be some of those that the texts are of
            return found
        ir = self.match.sides.after if is_after else self.match.sides.before
        width = len(ir.pools.extras) + 1
        key = which[place].astype(np.int64) * width + ir.tables[table]["extra"][rows[place]]
        filled: list[pl.Series] = []
        at: list[Array] = []
        for one in np.unique(key).tolist():
            mine = place[key == one]
            parts = (texts[one // width] or "").split(extras.PLACEHOLDER)
            before = _placeholders_before(ir.pools.extras[one % width], member)
            names = self._hidden_names(is_after, table, rows[mine], before, len(parts) - 1)
            pieces: list[pl.Expr] = [pl.lit(parts[0])]
            for name, part in zip(names, parts[1:], strict=True):
                pieces += [pl.lit('"'), pl.lit(name).fill_null(""), pl.lit('"' + part)]
            filled.append(pl.select(pl.concat_str(pieces)).to_series())
            at.append(mine)
        return found.scatter(np.concatenate(at), pl.concat(filled))

    def _hidden_names(self, is_after: bool, table: str, rows: Array, first: int, count: int) -> "list[pl.Series]":
        """Return what some placeholders in the text of rows stand for; the first one is number `first` in it."""
        if table == "aliases":
            columns = ("target_set_id", "target_location_id")[-count:]
            return [self.of(is_after, table, column, rows) for column in columns]
        own = owners(self.match, "references")[is_after]
        order = np.argsort(own, kind="stable")
        base = bases(self.match)[is_after][schema.STRUCTURAL["table"].index(table)]
        begin = np.searchsorted(own[order], base + rows) + first
        return [self.of(is_after, "references", "target_id", order[begin + k]) for k in range(count)]


def _nulls(count: int) -> "pl.Series":
    import polars as pl

    return pl.Series([None], dtype=pl.String).new_from_index(0, count)


def _plain(cells: Cells, is_after: bool, ir: IR, table: str, column: str, rows: Array) -> "pl.Series":
    """Return the texts of a column that names nothing."""
    import polars as pl

    declared = schema.BY_NAME[table].column(column)
    if declared.kind == "text":
        return cells.match.sides.text(is_after, table, column).gather(rows)
    values = ir.array(table, column)[rows]
    assert not isinstance(values, Strings)
    if declared.kind in ("code", "pooled") or declared.of == "patterns":
        distinct, place = np.unique(values, return_inverse=True)
        pool = pool_of(ir, declared)
        spell = _keys if declared.of == "layouts" else str
        return pl.Series([None if i < 0 else spell(pool[i]) for i in distinct.tolist()], dtype=pl.String).gather(place)
    null = schema.NULLS[declared.kind]
    if declared.default is not None:
        values = np.where(values == null, declared.default, values)
    made = pl.Series(values == 1) if declared.kind == "flag" else pl.Series(values)
    return made.cast(pl.String).zip_with(pl.Series(values != null), _nulls(len(rows)))


def _keys(layout: str) -> str:
    """Return the members that a layout lists; those that are an explicit null are said to be."""
    return ", ".join(key + (": null" if where == layouts.NULL else "") for where, key in layouts.entries(layout))


def _placeholders_before(text: str, member: str) -> int:
    """Count the placeholders in an object's text that stand before the value of a member."""
    count = 0
    for key, value in extras.members(text) if text.startswith("{") else ():
        if key == member:
            break
        count += value.count(extras.PLACEHOLDER)
    return count
