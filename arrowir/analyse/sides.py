"""Two batches side by side: their columns in common numbers, and keys by which rows are paired.

Keys are hashes of 64 bits. They only choose which rows are compared; what is then said about a pair is found by
comparing the cells themselves.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import frames, schema
from arrowir.derived import first_of_run
from arrowir.ir import IR
from arrowir.store import Array, Pool

if TYPE_CHECKING:
    import polars as pl


class Sides:
    """Two batches, with codes and pooled text of the second in the numbers of the first.

    Parameters
    ----------
    before, after
        The batches.
    """

    def __init__(self, before: IR, after: IR) -> None:
        self.before, self.after = before, after
        self._maps: dict[int, Array | None] = {}
        self._names: dict[tuple[bool, str, str], pl.Series] = {}

    def count(self, table: str) -> tuple[int, int]:
        """Return the number of rows of a table on each side."""
        return self.before.count(table), self.after.count(table)

    def arrays(self, table: str, column: str) -> tuple[Array, Array]:
        """Return a column of each side as it is."""
        return self.before.array(table, column), self.after.array(table, column)

    def cells(self, table: str, column: str) -> tuple[Array, Array]:
        """Return a column of each side in common numbers: equal cells are equal numbers."""
        declared = schema.BY_NAME[table].column(column)
        before, after = self.arrays(table, column)
        if declared.default is not None:
            null = schema.NULLS[declared.kind]
            before, after = (np.where(cells == null, declared.default, cells) for cells in (before, after))
        if declared.kind in ("code", "pooled") or declared.of == "patterns":
            after = self._mapped(pool_of(self.before, declared), pool_of(self.after, declared), after)
        return before, after

    def _mapped(self, one: Pool, other: Pool, ids: Array) -> Array:
        """Return ids in the second pool as ids in the first; texts that it does not have are numbered behind its."""
        if one is other:
            return ids
        if id(other) not in self._maps:
            known = np.fromiter(map(one.find, other.texts), np.int64, len(other))
            known = np.where(known < 0, len(one) + np.arange(len(known)), known)
            same = np.array_equal(known, np.arange(len(known)))
            self._maps[id(other)] = None if same else np.append(known, -1)
        table = self._maps[id(other)]
        return ids if table is None else table[ids]

    def texts(self, table: str, column: str = "name") -> "tuple[pl.Series, pl.Series]":
        """Return a text column of each side."""
        return self.text(False, table, column), self.text(True, table, column)

    def text(self, is_after: bool, table: str, column: str = "name") -> "pl.Series":
        """Return a text column of one side, made once."""
        key = (is_after, table, column)
        if key not in self._names:
            ir = self.after if is_after else self.before
            made = frames.copied if ir.count(table) <= frames.COPIED else frames.viewed
            self._names[key] = made(ir, table, schema.BY_NAME[table].column(column))
        return self._names[key]

    def hashes(self, table: str, column: str = "name") -> tuple[Array, Array]:
        """Return the hashes of a text column of each side."""
        before, after = self.texts(table, column)
        return hashed(before), hashed(after)


def pool_of(ir: IR, column: schema.Column) -> Pool:
    """Return the pool behind a column of codes, pooled text or access patterns."""
    return ir.pools.patterns if column.of == "patterns" else ir.pools.of(column)


def hashed(texts: "pl.Series") -> Array:
    """Return a hash of each text."""
    return texts.hash().to_numpy() if len(texts) else np.empty(0, np.uint64)


def hashed_pool(pool: Pool, ids: Array) -> Array:
    """Return a hash of each pooled text, 0 where there is none."""
    import polars as pl

    out = np.zeros(len(ids), np.uint64)
    some = np.flatnonzero(ids >= 0)
    distinct, place = np.unique(ids[some], return_inverse=True)
    out[some] = hashed(pl.Series([pool[i] for i in distinct.tolist()], dtype=pl.String))[place]
    return out


def mixed(*parts: Array) -> Array:
    """Return a hash of each row of some columns of integers.

    Examples
    --------
    >>> one = mixed(np.array([1, 1, 2]), np.array([5, 6, 5]))
    >>> len(set(one.tolist())), bool((one == mixed(np.array([1, 1, 2]), np.array([5, 6, 5]))).all())
    (3, True)
    """
    found: Array = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        found = (found + np.uint64(0x9E3779B97F4A7C15)) ^ part.astype(np.uint64)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found = found ^ (found >> np.uint64(31))
    return found


def zipped(*columns: tuple[Array, Array]) -> tuple[Array, Array]:
    """Return a hash of each row of some columns, on each side."""
    return mixed(*(before for before, _ in columns)), mixed(*(after for _, after in columns))


def rank(keys: Array) -> Array:
    """Return for each row how many rows of the same key stand before it.

    Examples
    --------
    >>> rank(np.array([7, 3, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    if (keys[1:] >= keys[:-1]).all():
        return np.arange(len(keys)) - first_of_run(keys)
    order = np.argsort(keys, kind="stable")
    out = np.empty(len(keys), np.int64)
    out[order] = np.arange(len(keys)) - first_of_run(keys[order])
    return out


def pair(before: Array, after: Array) -> tuple[Array, Array]:
    """Pair rows of equal keys: the k-th row of a key on one side with the k-th on the other.

    Returns
    -------
    tuple of numpy.ndarray
        Rows of either side, in the order of the second's keys.

    Examples
    --------
    >>> [rows.tolist() for rows in pair(np.array([5, 5, 1, 9]), np.array([5, 1, 5, 5]))]
    [[2, 0, 1], [1, 0, 2]]
    """
    if not len(before) or not len(after):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    first, second = np.argsort(before, kind="stable"), np.argsort(after, kind="stable")
    known, wanted = before[first], after[second]
    at = np.searchsorted(known, wanted) + np.arange(len(wanted)) - first_of_run(wanted)
    found = at < len(known)
    found[found] = known[at[found]] == wanted[found]
    return first[at[found]], second[found]


def find(keys: Array, wanted: Array) -> tuple[Array, Array, Array]:
    """Look keys up: return the order in which they are sorted, and first place and number of each wanted one in it."""
    order = np.argsort(keys, kind="stable")
    known = keys[order]
    first = np.searchsorted(known, wanted)
    return order, first, np.searchsorted(known, wanted, side="right") - first


class Twins:
    """Which rows of a table are the same thing on both sides; at most one each.

    Parameters
    ----------
    count
        Number of rows on each side.
    """

    def __init__(self, count: tuple[int, int]) -> None:
        self.before, self.after = count
        self.twin: Array = np.full(self.before, -1, np.int64)
        """For each row before the one after."""
        self.source: Array = np.full(self.after, -1, np.int64)
        """For each row after the one before."""

    @property
    def image(self) -> Array:
        """A number for each row after: the twin's row, or one that no row before has."""
        return np.where(self.source < 0, self.before + np.arange(self.after), self.source)

    def set(self, before: Array, after: Array) -> None:
        """Let rows be twins."""
        self.twin[before], self.source[after] = after, before

    def join(self, keys: tuple[Array, Array], allowed: "tuple[Any, Any]" = (True, True)) -> None:
        """Pair rows that have no twin yet by key; `allowed` are masks of the rows to take."""
        before = np.flatnonzero((self.twin < 0) & allowed[0])
        after = np.flatnonzero((self.source < 0) & allowed[1])
        first, second = pair(keys[0][before], keys[1][after])
        self.set(before[first], after[second])

    def vote(self, before: Array, after: Array) -> None:
        """Pair rows that have no twin yet by ballots: the first one that either side is in counts."""
        free = (before >= 0) & (after >= 0)
        free[free] = (self.twin[before[free]] < 0) & (self.source[after[free]] < 0)
        before, after = before[free], after[free]
        _, first = np.unique(before, return_index=True)
        before, after = before[first], after[first]
        _, first = np.unique(after, return_index=True)
        self.set(before[first], after[first])


def repeats(keys: Array) -> bool:
    """Tell whether a key stands twice."""
    ranked = np.sort(keys)
    return bool((ranked[1:] == ranked[:-1]).any())
