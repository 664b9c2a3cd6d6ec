"""Elements whose places depend on data: what gathers read and scatters write.

The elements are a table of element numbers, one row for each index. Rows may be left out (`kept`), as indices out of
range are on request. Writing is in the order of the rows, so that of several that hit one element the last one stays.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arrowir.diagnostics import SimulationError
from arrowir.simulate import dtypes
from arrowir.simulate.dtypes import Dtype
from arrowir.simulate.memory import Access, Memory
from arrowir.simulate.step import Operand
from arrowir.store import Array

Numbers = NDArray[np.int64]

ACCUMULATED = frozenset(
    ("float8e3", "float8e4", "float8e5", "bfloat16", "float16", "int32", "float32", "int64"),
)
"""Types that can be added to in memory."""


class Scattered:
    """Elements of a location by their numbers.

    Parameters
    ----------
    operand
        The operand that means them.
    memory, dtype
        The location, and the type by which it is accessed.
    numbers
        For each index a row of element numbers.
    kept
        Which rows count; all by default.
    checked
        Whether it is known that they lie within the location and its partitions.

    Raises
    ------
    SimulationError
        If an element lies outside of the location, or a row of them runs from one partition into the next.
    """

    def __init__(
        self,
        operand: Operand,
        memory: Memory,
        dtype: Dtype,
        numbers: Numbers,
        kept: NDArray[np.bool_] | None = None,
        *,
        checked: bool = False,
    ) -> None:
        self.operand, self.memory, self.dtype = operand, memory, dtype
        self.kept = np.ones(len(numbers), bool) if kept is None else kept
        self.numbers = np.where(self.kept[:, None], numbers, 0)
        if not checked:
            self._check()

    @classmethod
    def of(cls, operand: Operand, rows: int, kept: NDArray[np.bool_] | None = None) -> "Scattered":
        """Return the elements of an ordinary access in so many rows of equal length."""
        access = operand.access
        if rows < 1 or access.count % rows:
            raise SimulationError(f"`{operand.code.title}` has {access.count} elements, which make no {rows} rows")
        return cls(operand, access.memory, access.dtype, access.numbers().reshape(rows, -1), kept, checked=True)

    @property
    def shape(self) -> tuple[int, int]:
        """How many rows there are, and elements in each."""
        rows, length = self.numbers.shape
        return rows, length

    @property
    def count(self) -> int:
        """How many elements there are, those of rows that are left out included."""
        return self.numbers.size

    def _check(self) -> None:
        used = self.numbers[self.kept]
        held = self.memory.size // self.dtype.size
        bad = (used < 0) | (used >= held)
        if bad.any():
            raise SimulationError(
                f"out of bounds: `{self.operand.code.title}` means element {int(used[bad][0])} of "
                f"`{self.memory.name}`, which has {held}"
            )
        if self.memory.flat or not used.size:
            return
        partition = used * self.dtype.size // self.memory.pitch
        last = (used * self.dtype.size + self.dtype.size - 1) // self.memory.pitch
        if (partition != partition[:, :1]).any() or (last != partition).any():
            what = f"`{self.operand.code.title}` runs over the end of a partition of `{self.memory.name}`"
            self.operand.step.decide("partition_crossing", what)

    def _view(self, data: NDArray[np.uint8]) -> Array:
        whole = self.memory.size // self.dtype.size * self.dtype.size
        return data[:whole].view(self.dtype.unsigned)

    def read(self) -> Array:
        """Return the bit patterns, in rows; those of rows that are left out mean nothing.

        Raises
        ------
        SimulationError
            If some were never written.
        """
        numbers = self.numbers
        if not self.kept.any():
            return np.zeros(numbers.shape, self.dtype.unsigned)
        machine = self.operand.step.machine
        if machine.trace is not None:
            machine.count_read(self._as_access(int(self.kept.sum()) * self.shape[1]))
        bits = self._view(self.memory.data)[numbers]
        if self.memory.complete:
            return bits
        shadow = self._view(self.memory.shadow)[numbers]
        written = (shadow == np.iinfo(self.dtype.unsigned).max) | ~self.kept[:, None]
        if written.all():
            return bits
        what = (
            f"`{self.operand.code.title}` reads {int((~written).sum())} elements of `{self.memory.name}` that were "
            f"never written, the first for index number {int(np.argwhere(~written)[0][0])}{self.memory.why}"
        )
        if not self.operand.step.may_read_unwritten():
            raise SimulationError(what)
        return bits & shadow if self.operand.step.decide("uninitialized", what) == "zeros" else bits | ~shadow

    def write(self, bits: Array) -> None:
        """Write bit patterns, in rows, one row after the other."""
        if bits.shape != self.numbers.shape or bits.dtype != self.dtype.unsigned:
            raise SimulationError(
                f"`{self.operand.code.title}` takes {self.count} elements of {self.dtype.size} bytes, and {bits.size} "
                f"of {bits.dtype.itemsize} are written to it"
            )
        if not self.kept.any():
            return
        values = np.ascontiguousarray(bits[self.kept])
        self._store(values.reshape(-1), self.numbers[self.kept].reshape(-1))

    def add(self, bits: Array) -> None:
        """Add elements of the same type, one row after the other; each sum is rounded to the type.

        Raises
        ------
        SimulationError
            If the type cannot be accumulated.
        """
        of = self.dtype
        if of.name not in ACCUMULATED:
            raise SimulationError(f"cast_accumulate: unsupported dtype {of.name}")
        if not self.kept.any():
            return
        before = self.read()[self.kept].reshape(-1).view(of.numpy)
        numbers = self.numbers[self.kept].reshape(-1)
        added = np.ascontiguousarray(bits[self.kept]).reshape(-1).view(of.numpy)
        first, place = np.unique(numbers, return_inverse=True)
        held = np.empty(len(first), of.numpy)
        held[place] = before
        for at in _rounds(place):
            held[place[at]] = self._sum(held[place[at]], added[at])
        self._store(held.view(of.unsigned), first)

    def _sum(self, held: Array, added: Array) -> Array:
        of = self.dtype
        with np.errstate(all="ignore"):
            if of.kind == "int":
                return held + added  # integers wrap
            decide = self.operand.step.decide
            total = dtypes.to_float32(held, of, decide) + dtypes.to_float32(added, of, decide)
        return dtypes.convert(total, of, decide)

    def _store(self, bits: Array, numbers: Numbers) -> None:
        step, memory = self.operand.step, self.memory
        values = bits.view(self.dtype.numpy)
        step.machine.check_values(step, self.operand, values)
        self._view(memory.data)[numbers] = bits
        if not memory.complete:
            shadow = self._view(memory.shadow)
            shadow[numbers] = np.iinfo(self.dtype.unsigned).max
            memory.set_shadow(shadow[:0], True)  # counts again
        if step.machine.trace is not None:
            step.machine.count_written(self._as_access(bits.size), values)

    def _as_access(self, count: int) -> Access:
        """Return an access of so many elements, for what is noted about the run."""
        return Access(self.memory, self.dtype, 0, [(0, count)], linear=True)


def _rounds(place: Numbers) -> Sequence[Numbers]:
    """Divide positions so that no place occurs twice in a round, and that each place's come in order."""
    order = np.argsort(place, kind="stable")
    ordered = place[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]]
    first = np.maximum.accumulate(np.where(starts, np.arange(len(place)), 0))
    rank = np.empty(len(place), np.int64)
    rank[order] = np.arange(len(place)) - first
    by_rank = np.argsort(rank, kind="stable")
    return np.split(by_rank, np.cumsum(np.bincount(rank))[:-1])


def refuse_overlap(one: Scattered, other: Scattered) -> None:
    """Refuse a copy between elements of one location that share some, since its order is not known."""
    if one.memory is not other.memory:
        return
    mine, others = ((s.numbers[s.kept][..., None] * s.dtype.size + np.arange(s.dtype.size)) for s in (one, other))
    if np.intersect1d(mine, others).size:
        titles = " and ".join(f"`{s.operand.code.title}`" for s in (one, other))
        one.operand.step.decide("overlap", f"{titles} share elements of `{one.memory.name}`")
