"""Accesses of arguments as tiles of rows and columns.

A call-site may name any part of a tensor by an access pattern. Its elements, in their linear order, are cut into rows
of a number of columns; a tile is a run of rows and a run of columns, and becomes an access pattern again: the first
pair over partitions, the second along each.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from arrowir import vocabulary
from arrowir.library.call import MOST_IN_A_BODY, Argument
from arrowir.library.status import KernelError, too_large

Dim: TypeAlias = tuple[int, int]
Pieces: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int64]]


def merged(dims: Iterable[Dim]) -> tuple[Dim, ...]:
    """Return dimensions (step, num) with those of one element left out, and those joined that follow each other.

    Examples
    --------
    >>> merged([(512, 128), (256, 2), (7, 1), (1, 256)])
    ((1, 65536),)
    """
    found: list[Dim] = []
    for step, num in dims:
        if num == 1:
            continue
        if found and found[-1][0] == step * num:
            found[-1] = step, found[-1][1] * num
        else:
            found.append((step, num))
    return tuple(found)


def split(dims: Sequence[Dim], columns: int) -> tuple[tuple[Dim, ...], tuple[Dim, ...]] | None:
    """Cut dimensions into those of the rows and those of the columns; None where no cut gives so many columns.

    Examples
    --------
    >>> split([(1, 65536)], 512), split([(1024, 128), (1, 512)], 768)
    ((((512, 128),), ((1, 512),)), None)
    """
    rest, columns_ = list(dims), list[Dim]()
    left = columns
    while left > 1:
        if not rest:
            return None
        step, num = rest.pop()
        if left % num == 0:
            columns_.insert(0, (step, num))
            left //= num
        elif num % left == 0:
            columns_.insert(0, (step, left))
            rest.append((step * left, num // left))
            left = 1
        else:
            return None
    return tuple(rest), tuple(columns_)


@dataclass(frozen=True)
class Grid:
    """An argument as rows and columns.

    Examples
    --------
    >>> x = Argument("in0", (256, 512), "float32", "DRAM", 256, 2048, 0, ((512, 256), (1, 512)), 0, "in0")
    >>> grid = Grid.of(x, 512)
    >>> grid.height, grid.width, grid.tile(128, 128, 0, 256)["ap"], grid.tile(128, 128, 0, 256)["offset"]
    (256, 512, [[512, 128], [1, 256]], 65536)
    """

    argument: Argument
    rows: tuple[Dim, ...]
    columns: tuple[Dim, ...]
    pitch: int
    """Elements of a partition; 0 where there are no partitions."""

    @classmethod
    def of(cls, argument: Argument, columns: int) -> "Grid":
        """Cut an argument into rows of so many columns.

        Raises
        ------
        KernelError
            If its access pattern does not allow it (`kernel_shape_mismatch`).
        """
        found = split(merged(argument.pattern), columns)
        if found is None:
            pattern = [list(pair) for pair in argument.pattern]
            raise KernelError(
                "kernel_shape_mismatch",
                f"`{argument.name}` of {list(argument.shape)} is accessed by {pattern}, which is no rows of {columns} "
                "elements at one distance; expected an access that is",
            )
        size = item_bytes(argument.dtype)
        return cls(argument, *found, argument.bytes // size if argument.on_chip else 0)

    @property
    def height(self) -> int:
        """Number of rows."""
        return int(np.prod([num for _, num in self.rows], dtype=np.int64))

    @property
    def width(self) -> int:
        """Number of columns."""
        return int(np.prod([num for _, num in self.columns], dtype=np.int64))

    @property
    def in_place(self) -> bool:
        """Whether engines can work on its tiles where they are: in SBUF or PSUM, each row in a partition of its own."""
        if not self.argument.on_chip:
            return False
        step = self.rows[-1][0] if self.rows else self.pitch
        if self.pitch <= 0 or step <= 0 or step % self.pitch or any(along < 0 for along, _ in self.columns):
            return False
        return self.argument.offset % self.pitch + sum(s * (n - 1) for s, n in self.columns) < self.pitch

    def tile(self, row: int, rows: int, column: int, columns: int) -> dict[str, Any]:
        """Return an operand that accesses a tile; it must not go over the breaks of the grid."""
        offset = self.argument.offset + _at(self.rows, row) + _at(self.columns, column)
        across = self.rows[-1][0] if self.rows and rows > 1 else self.pitch or columns
        along = self.columns[-1][0] if self.columns else 1
        ap = [[across, rows], [along, columns]]
        if across < 0 or (self.argument.on_chip and rows > 1 and not self.in_place):
            ap.insert(0, [self.pitch or 1, 1])  # rows are no partitions here: a DMA takes them one by one
        return self._operand(ap, offset)

    def spread(self, rows: int, column: int, columns: int) -> dict[str, Any]:
        """Return an operand that accesses the first row again and again."""
        along = self.columns[-1][0] if self.columns else 1
        return self._operand([[0, rows], [along, columns]], self.argument.offset + _at(self.columns, column))

    def _operand(self, ap: list[list[int]], offset: int) -> dict[str, Any]:
        return {
            "ap": ap,
            "dtype": self.argument.dtype,
            "kind": "physical_ap",
            "memref": self.argument.name,
            "memsetref": f"{self.argument.name}_set",
            "offset": offset,
        }


def _at(dims: Sequence[Dim], number: int) -> int:
    """Return the element at which row or column `number` begins."""
    offset = 0
    for step, num in reversed(dims):
        number, place = divmod(number, num)
        offset += place * step
    return offset


def pieces(total: int, most: int, grids: Iterable[Sequence[Dim]]) -> Pieces:
    """Cut rows or columns into pieces: of at most so many, and within one dimension of every grid.

    Parameters
    ----------
    total
        How many there are.
    most
        The most of a piece.
    grids
        The dimensions of the rows, or of the columns, of the grids concerned.

    Returns
    -------
    tuple of numpy.ndarray
        Where each piece begins, and how many it has; int64.

    Raises
    ------
    KernelError
        If there would be more pieces than a body can have instructions (`too_many_instructions`).

    Examples
    --------
    >>> [part.tolist() for part in pieces(300, 128, [[(512, 300)]])]
    [[0, 128, 256], [128, 128, 44]]
    >>> [part.tolist() for part in pieces(12, 128, [[(100, 3), (1, 4)], [(9, 2), (1, 6)]])]
    [[0, 4, 6, 8], [4, 2, 2, 4]]
    """
    most = min(most, max(total, 1))
    runs = [dims[-1][1] for dims in grids if len(dims) > 1]
    least = max(-(-total // length) for length in (most, *runs))
    if least > MOST_IN_A_BODY:
        raise too_large(f"{least:,} tiles", MOST_IN_A_BODY)
    cuts = [np.zeros(1, np.int64), *(np.arange(0, total, length, dtype=np.int64) for length in runs)]
    begin = np.unique(np.concatenate(cuts))
    length = np.diff(np.append(begin, total))
    count = -(-length // most)
    number = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    start = np.repeat(begin, count) + number * most
    return start, np.minimum(most, np.repeat(begin + length, count) - start)


def item_bytes(dtype: str) -> int:
    """Return the bytes of an element; 1 where the dtype is not known."""
    code = vocabulary.DTYPES.code(dtype)
    return vocabulary.DTYPE_BYTES[code] if code >= 0 else 1
