"""How rows are held: numpy arrays in Arrow's layout, strings behind offsets, and pools of interned text.

Every array here is the buffer of an Arrow column: `Table.to_arrow` wraps it without copying. Nothing is written to an
array once it stands in a table; a pass makes new arrays and shares the columns that it leaves alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arrowir import schema
from arrowir_kernels import find_children, select_pointing
from arrowir_kernels.jit import THRESHOLD

Array = NDArray[Any]
Ids = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Strings:
    """UTF-8 strings: string i is `data[offsets[i]:offsets[i + 1]]`, the layout of Arrow's large_string."""

    offsets: NDArray[np.int64]
    data: NDArray[np.uint8]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Strings":
        """Encode Python strings."""
        encoded = [text.encode() for text in texts]
        offsets = np.zeros(len(encoded) + 1, np.int64)
        np.cumsum([len(e) for e in encoded], out=offsets[1:])
        return cls(offsets, np.frombuffer(bytearray().join(encoded), np.uint8))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> str:
        return self.data[self.offsets[row] : self.offsets[row + 1]].tobytes().decode()

    def take(self, rows: Array) -> list[str]:
        """Decode some rows."""
        return [self[row] for row in rows.tolist()]

    def equal(self, text: str) -> Array:
        """Return a mask of the rows that hold this text."""
        wanted = np.frombuffer(text.encode(), np.uint8)
        mask = np.diff(self.offsets) == len(wanted)
        rows = np.flatnonzero(mask)
        mask[rows] = (self.data[self.offsets[rows, None] + np.arange(len(wanted))] == wanted).all(axis=1)
        return mask

    def tolist(self) -> list[str]:
        """Decode to Python strings."""
        data, ends = self.data.tobytes(), self.offsets.tolist()
        if data.isascii():
            text = data.decode()
            return [text[a:b] for a, b in pairwise(ends)]
        return [data[a:b].decode() for a, b in pairwise(ends)]


class Pool:
    """Interned text: each distinct text once, known by its place. It only grows, so ids stay good."""

    __slots__ = ("_index", "_lock", "_mapped", "parsed", "texts")

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts: list[str] = list(texts)
        self._index: dict[str, int] = {text: i for i, text in enumerate(self.texts)}
        self._lock = Lock()
        self._mapped: dict[object, dict[int, int]] = {}
        self.parsed: dict[Any, Any] = {}
        """Scratch space for readers of the pool: whatever a text parses to, by id."""

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, number: int) -> str:
        return self.texts[number]

    def find(self, text: str) -> int:
        """Return the id of a text, or -1."""
        return self._index.get(text, -1)

    def intern(self, text: str) -> int:
        """Return the id of a text, which is added if it is new."""
        number = self._index.get(text)
        if number is None:
            with self._lock:
                number = self._index.get(text)
                if number is None:
                    number = len(self.texts)
                    self.texts.append(text)
                    self._index[text] = number
        return number

    def intern_all(self, texts: Iterable[str]) -> Ids:
        """Return the ids of texts, which are added where they are new."""
        texts, known = list(texts), self._index
        with self._lock:
            new = [text for text in dict.fromkeys(texts) if text not in known]
            first = len(self.texts)
            self.texts += new  # before the index: an id that is known has its text
            known.update(zip(new, range(first, len(self.texts)), strict=True))
        return np.array([known[text] for text in texts], np.int32)

    def map(self, ids: Ids, change: Callable[[str], str], *, name: object = None) -> Ids:
        """Replace texts: `change` is called once for each distinct id, -1 stays.

        Parameters
        ----------
        ids
            Ids in this pool.
        change
            The new text of a text.
        name
            A hashable name of the change, under which answers are kept for the next call.
        """
        known = self._mapped.setdefault(name, {}) if name is not None else {}
        return self.map_ids(ids, lambda i: self.intern(change(self.texts[i])), known=known)

    @staticmethod
    def map_ids(ids: Ids, change: Callable[[int], int], *, known: dict[int, int] | None = None) -> Ids:
        """Replace ids by what `change` makes of each distinct one; -1 stays."""
        if not len(ids):
            return ids
        present = np.zeros(int(ids.max()) + 2, bool)
        present[ids] = True  # -1 marks the last
        distinct = np.flatnonzero(present[:-1])
        known = {} if known is None else known
        for i in distinct.tolist():
            if i not in known:
                known[i] = change(i)
        table = np.full(len(present), -1, ids.dtype)
        table[distinct] = [known[i] for i in distinct.tolist()]
        return table[ids]


class Pools:
    """The pools of a batch: interned text, and for each vocabulary its values followed by those never seen before."""

    __slots__ = ("codes", "extras", "layouts", "names", "patterns", "shapes")

    def __init__(self) -> None:
        from arrowir.vocabulary import VOCABULARIES

        self.layouts, self.extras, self.patterns, self.shapes, self.names = (Pool() for _ in range(5))
        known = {name: v.values for name, v in VOCABULARIES.items()} | schema.STRUCTURAL
        self.codes: dict[str, Pool] = {name: Pool(values) for name, values in known.items()}

    def copy(self) -> "Pools":
        """Return pools of the same content that grow on their own."""
        new = Pools.__new__(Pools)
        for name in schema.POOLS:
            setattr(new, name, Pool(getattr(self, name).texts))
        new.codes = {name: Pool(pool.texts) for name, pool in self.codes.items()}
        return new

    def of(self, column: schema.Column) -> Pool:
        """Return the pool behind a `pooled` or `code` column."""
        assert column.of is not None
        return self.codes[column.of] if column.kind == "code" else getattr(self, column.of)


class Table:
    """The rows of one table. A column that is absent everywhere holds `None` instead of an array."""

    __slots__ = ("_present", "columns", "length", "schema")

    def __init__(self, name: str, columns: Mapping[str, Array | Strings | None], length: int | None = None) -> None:
        self.schema = schema.BY_NAME[name]
        self.columns: dict[str, Array | Strings | None] = dict(columns)
        if length is None:
            length = next((len(c) for c in columns.values() if c is not None), 0)
        self.length = length
        self._present: dict[str, bool] = {}

    @staticmethod
    @cache
    def empty(name: str) -> "Table":
        """Return the table without rows."""
        return Table(name, {c.name: no_rows(c) if c.kind == "text" else None for c in schema.BY_NAME[name].stored}, 0)

    @classmethod
    def of(cls, name: str, length: int, /, **columns: Array | Strings | int | None) -> "Table":
        """Make a table of some rows from the columns given, a number for all rows alike; the others are absent."""
        made: dict[str, Array | Strings | None] = {c.name: None for c in schema.BY_NAME[name].stored}
        for column in schema.BY_NAME[name].stored:
            values = columns.get(column.name)
            if values is None or isinstance(values, Strings):
                made[column.name] = values
            elif isinstance(values, np.ndarray):
                made[column.name] = np.ascontiguousarray(values, schema.DTYPES[column.kind])
            else:
                made[column.name] = np.full(length, values, schema.DTYPES[column.kind])
        return cls(name, made, length)

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> Array:
        """Return a column as an array, absent cells as the kind's null value."""
        column = self.columns[name]
        if column is None:
            return self.absent(name, self.length)
        assert not isinstance(column, Strings), name
        return column

    def absent(self, name: str, rows: int) -> Array:
        """Return absent cells of a column of numbers."""
        kind = self.schema.column(name).kind
        return np.full(rows, schema.NULLS[kind], schema.DTYPES[kind])

    def at(self, name: str, rows: Array) -> Array:
        """Return the cells of a column of numbers in some rows; none is made for the others where all are absent."""
        column = self.columns[name]
        if column is None:
            return self.absent(name, len(rows))
        assert not isinstance(column, Strings), name
        return column[rows]

    def holding(self, name: str, values: Iterable[int]) -> NDArray[np.int64]:
        """Return the rows whose cell in a column of numbers is one of a few values.

        Examples
        --------
        >>> Table.of("branches", 4, slot=np.array([0, 2, 1, 0])).holding("slot", (0, 1))
        array([0, 2, 3])
        """
        column, mask = self.columns[name], np.zeros(self.length, bool)
        if column is not None:
            for value in values:
                mask |= column == value
        return np.flatnonzero(mask)

    def has(self, name: str) -> bool:
        """Tell whether a column has an array, so that cells may be present."""
        return self.columns[name] is not None

    def present(self, name: str) -> bool:
        """Tell whether some cell of a column of numbers is present."""
        if name not in self._present:
            column = self.columns[name]
            if isinstance(column, np.ndarray):
                null = schema.NULLS[self.schema.column(name).kind]
                self._present[name] = bool(np.any(column != null))
            else:
                self._present[name] = column is not None
        return self._present[name]

    def text(self, name: str = "name") -> Strings:
        """Return a text column; empty strings where it is absent."""
        column = self.columns[name]
        if column is None:
            return Strings(np.zeros(self.length + 1, np.int64), np.empty(0, np.uint8))
        assert isinstance(column, Strings), name
        return column

    def replace(self, **columns: Array | Strings | None) -> "Table":
        """Return the table with some columns replaced; the others are shared."""
        return Table(self.schema.name, {**self.columns, **columns}, self.length)

    def bounds(self, parent_rows: int, name: str | None = None) -> NDArray[np.int64]:
        """Return where each parent's children start: children of row i are `bounds[i]:bounds[i + 1]`."""
        name = name or self.schema.parent
        assert name is not None
        counts = np.bincount(self[name], minlength=parent_rows) if self.length else np.zeros(parent_rows, np.int64)
        return starts(counts)


def starts(counts: Array) -> NDArray[np.int64]:
    """Return the running sum of counts with a leading 0: where each run begins, and the total."""
    out = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=out[1:])
    return out


def distinct(rows: Array) -> Array:
    """Return the different ones of some rows, in rising order; quick where they are runs that rise."""
    ranked = np.sort(rows, kind="stable")
    begins = np.ones(len(ranked), bool)
    begins[1:] = ranked[1:] != ranked[:-1]
    return ranked[begins]


def first_of(keys: Array, values: Array) -> NDArray[np.int64]:
    """Return where each value begins, or would stand, in a column of rising keys."""
    return np.searchsorted(keys, np.asarray(values).astype(keys.dtype, copy=False))  # of two dtypes, both are copied


def children(keys: Array, rows: Array, count: "Array | int" = 1) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the first child and the number of children of rows, or of runs of `count` rows.

    Parameters
    ----------
    keys
        The key of the parent in the table of the children, which stand in its order.
    rows, count
        First row and number of rows of each run of parents.

    Examples
    --------
    >>> children(np.array([0, 0, 2], np.int32), np.arange(3))
    (array([0, 2, 2]), array([2, 0, 1]))
    """
    if len(keys) < THRESHOLD:
        first = first_of(keys, rows)
        return first, first_of(keys, rows + count) - first
    start, length = np.asarray(rows, np.int64), np.broadcast_to(np.asarray(count, np.int64), np.shape(rows))
    first, number = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    find_children(keys, start, np.ascontiguousarray(length), first, number)
    return first, number


def in_parts(first: Array, second: Array, rows: Array) -> Array:
    """Return the cells in some rows of a column that stands in two parts, one behind the other.

    Examples
    --------
    >>> in_parts(np.array([7, 8]), np.array([9]), np.array([2, 0]))
    array([9, 7])
    """
    behind = rows >= len(first)
    if not behind.any():
        return first[rows]
    found = second[np.where(behind, rows - len(first), 0)]
    found[~behind] = first[rows[~behind]]
    return found


def pointing(keys: Ids, marked: Array) -> NDArray[np.int64]:
    """Return the rows whose key points at a marked row; -1 points at none.

    Examples
    --------
    >>> pointing(np.array([1, -1, 0, 1], np.int32), np.array([False, True]))
    array([0, 3])
    """
    rows = np.empty(len(keys), np.int64)
    return rows[: select_pointing(keys, marked, rows)]


def no_rows(column: schema.Column) -> Array | Strings:
    """Return a column without cells."""
    if column.kind == "text":
        return Strings(np.zeros(1, np.int64), np.empty(0, np.uint8))
    return np.empty(0, schema.DTYPES[column.kind])
