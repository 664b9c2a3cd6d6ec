"""Runs of rows, and what is done with them: the pieces that edits are made of.

A new table is a list of runs of old rows. Columns are copied run by run, text in two passes (sizes, then bytes).
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Generic, TypeVar, cast

import numpy as np

from arrowir import schema
from arrowir.ir import IR
from arrowir.store import Array, Ids, Strings, Table, starts
from arrowir_kernels import fill_names, measure_names

T = TypeVar("T")

THREADS = 2
"""Threads that columns are spread over; kernels release the interpreter's lock."""

PARALLEL_ROWS = 100_000
"""Rows of a table below which threads cost more than they bring."""

POOLED_BYTES = 4 << 20
"""Size from which memory comes from Arrow's pool."""


@dataclass(frozen=True)
class Runs:
    """Runs of source rows, in the order of the new table."""

    start: Array
    """First source row; rows past the end of the old table are those of the added one."""
    length: Array
    copy: Array
    """The copy each run belongs to; 0 for the rows themselves."""
    shift: Array | None = None
    """What to add to the key of the parent, where the runs follow from the parent's."""

    @classmethod
    def of(cls, start: Array, length: Array, copy: Array | int = 0, shift: Array | None = None) -> "Runs":
        """Make runs, leaving out empty ones."""
        start, length = np.asarray(start, np.int64), np.asarray(length, np.int64)
        copies = np.asarray(copy, np.int64) if np.ndim(copy) else np.full(start.shape, copy, np.int64)
        some = length > 0
        if some.all():
            return cls(start, length, copies, shift)
        return cls(start[some], length[some], copies[some], None if shift is None else shift[some])

    @classmethod
    def whole(cls, rows: int) -> "Runs":
        """Return the one run of all rows of a table."""
        return cls.of(np.zeros(1, np.int64), np.array([rows]))

    @classmethod
    def inserting(cls, rows: int, at: Array, added: Array | None = None) -> "Runs":
        """Return all rows of a table with added row k put before row `at[k]` (in rising order)."""
        added = np.arange(len(at)) if added is None else added
        bounds = np.concatenate((np.zeros(1, np.int64), at, np.array([rows])))
        start = np.empty(2 * len(at) + 1, np.int64)
        length = np.ones(2 * len(at) + 1, np.int64)
        start[0::2], length[0::2] = bounds[:-1], np.diff(bounds)
        start[1::2] = rows + added
        return cls.of(start, length)

    @classmethod
    def picking(cls, rows: Array) -> "Runs":
        """Return some rows, in the order given; those that follow each other make one run."""
        begins = np.flatnonzero(np.diff(rows, prepend=-2) != 1)
        return cls.of(rows[begins], np.diff(begins, append=len(rows)))

    @cached_property
    def begins(self) -> Array:
        """Place of each run in the new table, and its length as last item."""
        return starts(self.length)

    @property
    def total(self) -> int:
        """Rows of the new table."""
        return int(self.begins[-1])

    def spread(self, values: Array) -> Array:
        """Repeat a value per run for each of its rows."""
        return np.repeat(values, self.length)

    def source(self) -> Array:
        """Return the source row of each new row."""
        return np.arange(self.total) + self.spread(self.start - self.begins[:-1])


def expand(start: Array, length: Array) -> Array:
    """Return the concatenated ranges `start[i], ..., start[i] + length[i] - 1`."""
    begins = starts(length)
    return np.arange(begins[-1]) + np.repeat(start - begins[:-1], length)


def sort_references(references: Table, ir: IR) -> Table:
    """Put references in their order: by module, owner table, owner row; those of one row keep theirs."""
    codes, table, row = schema.STRUCTURAL["table"], references["table"], references["row"]
    rank, module = np.zeros(len(row), np.int64), np.zeros(len(row), np.int64)
    for number, name in enumerate(schema.REFERRING):
        mine = table == codes.index(name)
        if mine.any():
            rank[mine] = number
            module[mine] = ir.array(name, "module_id")[row[mine]]
    order = np.lexsort((row, rank, module))
    return take_rows(references, order)


def take_rows(table: Table, rows: Array) -> Table:
    """Return some rows of a table that has no text columns; keys are not changed."""
    columns = {name: None if not table.has(name) else table[name][rows] for name in table.columns}
    return Table(table.schema.name, columns, len(rows))


def concat_tables(parts: Sequence[Table]) -> Table:
    """Put rows of one table behind each other; ids and keys are taken as they are."""
    some = [p for p in parts if len(p)]
    if len(some) < 2:
        return some[0] if some else parts[0]
    columns: dict[str, Array | Strings | None] = {}
    for column in some[0].schema.stored:
        if all(p.columns[column.name] is None for p in some):
            columns[column.name] = None
        elif column.kind == "text":
            columns[column.name] = join_text([p.text(column.name) for p in some])
        else:
            columns[column.name] = np.concatenate([p[column.name] for p in some])
    return Table(some[0].schema.name, columns, sum(map(len, some)))


def lookup(places: Array, keys: Ids) -> Ids:
    """Replace keys by their new ids; absent ones stay absent."""
    if not len(keys) or not len(places):
        return keys
    return np.where(keys < 0, np.int32(-1), places[np.maximum(keys, 0)])


class Work(Generic[T]):
    """Independent pieces of work: other threads begin with them at once when there is much to do.

    Parameters
    ----------
    pieces
        What to do.
    rows
        Rows of the largest table concerned.

    Examples
    --------
    >>> Work([lambda: 1, lambda: 2], 0).done()
    [1, 2]
    """

    def __init__(self, pieces: "Sequence[Callable[[], T]]", rows: int) -> None:
        self._pieces = pieces
        self._made: list[T | None] = [None] * len(pieces)
        self._left = iter(range(len(pieces)))
        helpers = 0 if rows < PARALLEL_ROWS else THREADS - 1
        self._helpers = [_workers(helpers).submit(self._take) for _ in range(helpers)]

    def _take(self) -> None:
        """Take pieces in turn; handing out each by itself would cost as much as a column."""
        for number in self._left:
            self._made[number] = self._pieces[number]()

    def done(self) -> "list[T]":
        """Do what is left, and return what all pieces returned, in their order."""
        self._take()
        for helper in self._helpers:
            helper.result()
        return cast("list[T]", self._made)


@cache
def _workers(threads: int) -> ThreadPoolExecutor:
    """Return the threads that columns are spread over; making new ones for every table costs as much as a column."""
    return ThreadPoolExecutor(threads, thread_name_prefix="arrowir")


def slab(columns: Sequence[tuple[type[np.generic], int]]) -> list[Array]:
    """Allocate arrays in one piece, a large one from Arrow's memory pool.

    The pool keeps pages that were freed; pages fresh from the system cost several times what it takes to fill them.
    """
    sizes = np.array([(np.dtype(dtype).itemsize * rows + 63) // 64 * 64 for dtype, rows in columns], np.int64)
    begins = starts(sizes)
    piece = _bytes(int(begins[-1]))
    return [
        piece[begins[k] : begins[k] + np.dtype(dtype).itemsize * rows].view(dtype)
        for k, (dtype, rows) in enumerate(columns)
    ]


def _bytes(size: int) -> Array:
    if size < POOLED_BYTES:
        return np.empty(size, np.uint8)
    import pyarrow as pa  # not for small work: it takes long to load

    return np.frombuffer(pa.allocate_buffer(size), np.uint8)


def blank(rows: int) -> Strings:
    """Return empty strings."""
    return Strings(np.zeros(rows + 1, np.int64), np.empty(0, np.uint8))


def join_text(parts: Sequence[Strings]) -> Strings:
    """Put text columns behind each other."""
    some = [part for part in parts if len(part)]
    if len(some) < 2:
        return some[0] if some else parts[0]
    base = starts(np.array([part.offsets[-1] for part in some]))
    offsets = [part.offsets[1:] + base[k] for k, part in enumerate(some)]
    return Strings(
        np.concatenate((np.zeros(1, np.int64), *offsets)),
        np.concatenate([part.data[: part.offsets[-1]] for part in some]),
    )


def copy_text(
    first: Strings,
    second: Strings,
    runs: Runs,
    number: Array | None = None,
    prefixes: Strings | None = None,
    into: "tuple[Array, Array] | None" = None,
) -> Strings:
    """Copy runs of a text column that stands in two parts, with the run's numbered prefix before each name.

    `into` gives the arrays for offsets and bytes, the latter as long as `text_bytes` says.
    """
    number = np.full(len(runs.start), -1, np.int64) if number is None else number.astype(np.int64)
    prefixes = prefixes or blank(0)
    extra = _prefix_bytes(number, prefixes)
    offsets = np.empty(runs.total + 1, np.int64) if into is None else into[0]
    measure_names(first.offsets, second.offsets, runs.start, runs.length, extra, offsets)
    data = np.empty(int(offsets[-1]), np.uint8) if into is None else into[1]
    fill_names(
        first.offsets,
        first.data,
        second.offsets,
        second.data,
        runs.start,
        runs.length,
        number,
        prefixes.offsets,
        prefixes.data,
        offsets,
        data,
    )
    return Strings(offsets, data)


def text_bytes(
    first: Strings, second: Strings, runs: Runs, number: Array | None = None, prefixes: Strings | None = None
) -> int:
    """Return how many bytes `copy_text` writes."""
    ends, split = runs.start + runs.length, len(first)
    total = 0
    for offsets, base, mine in ((first.offsets, 0, runs.start < split), (second.offsets, split, runs.start >= split)):
        if mine.any():
            total += int((offsets[ends[mine] - base] - offsets[runs.start[mine] - base]).sum())
    if number is not None and prefixes is not None:
        total += int((runs.length * _prefix_bytes(number, prefixes)).sum())
    return total


def _prefix_bytes(number: Array, prefixes: Strings) -> Array:
    """Return how many bytes each run puts before its names."""
    sizes = np.diff(prefixes.offsets)
    return np.where(number < 0, 0, sizes[np.maximum(number, 0)]) if len(sizes) else np.zeros(len(number), np.int64)
