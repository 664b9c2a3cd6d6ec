"""Memory: the bytes of each location, which of them have been written, and strided views of them.

There is one array of bytes for each memory location, whatever its address is: two locations share bytes only where one
must alias the other, or where a call binds one to the other.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arrowir.diagnostics import SimulationError
from arrowir.simulate.dtypes import Dtype
from arrowir.store import Array

UNWRITTEN = 0xFF
"""What unwritten bytes hold."""
_MOST = 1 << 34
"""Elements of an access."""


class Memory:
    """The bytes of one memory location.

    Parameters
    ----------
    name
        Of the location, for messages.
    partitions, pitch
        Its size: partitions, and bytes of each.
    flat
        Whether partitions mean nothing, as in DRAM: then it is one run of bytes.
    base
        Its first partition.
    location
        Its row in `locations`; -1 when it has none.
    """

    __slots__ = (
        "_data",
        "_shadow",
        "_unwritten",
        "base",
        "flat",
        "location",
        "name",
        "partitions",
        "pitch",
        "size",
        "why",
    )

    def __init__(
        self, name: str, partitions: int, pitch: int, *, flat: bool, base: int = 0, location: int = -1
    ) -> None:
        self.name, self.location = name, location
        self.partitions, self.pitch, self.flat, self.base = partitions, pitch, flat, base
        self.size = partitions * pitch
        self._data: NDArray[np.uint8] | None = None
        self._shadow: NDArray[np.uint8] | None = None
        self._unwritten = self.size
        self.why = ""
        """Why it starts unwritten, where there is more to say."""

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes."""
        if self._data is None:
            self._data = np.full(self.size, UNWRITTEN, np.uint8)
        return self._data

    @property
    def complete(self) -> bool:
        """Whether every byte has been written."""
        return self._unwritten == 0

    @property
    def unwritten(self) -> int:
        """How many bytes have not been written."""
        return self._unwritten

    @property
    def shadow(self) -> NDArray[np.uint8]:
        """For each byte 0xFF where it has been written, 0 elsewhere."""
        if self._shadow is None:
            self._shadow = np.full(self.size, 0xFF if self.complete else 0, np.uint8)
        return self._shadow

    def fill(self, data: NDArray[np.uint8]) -> None:
        """Take over bytes as the whole content."""
        self._data, self._shadow, self._unwritten = data, None, 0

    def complete_by_writing(self) -> None:
        """Count every byte as written, since all are about to be."""
        if self._data is None:
            self._data = np.empty(self.size, np.uint8)
        self._shadow, self._unwritten = None, 0

    def set_shadow(self, view: NDArray[np.unsignedinteger], written: Array | bool) -> None:
        """Change the shadow through a view of it, and count again."""
        ones = np.iinfo(view.dtype).max
        view[...] = np.where(written, ones, 0) if isinstance(written, np.ndarray) else ones
        self._unwritten = self.size - int(np.count_nonzero(self.shadow))
        if self.complete:
            self._shadow = None

    def mark(self, view: NDArray[np.unsignedinteger], *, unique: bool) -> None:
        """Mark what a view of the shadow shows as written."""
        if not unique:
            self.set_shadow(view, True)
            return
        ones = np.iinfo(view.dtype).max
        nothing = view.size - int(np.count_nonzero(view))
        if nothing + int(np.count_nonzero(view == ones)) < view.size:  # some elements have been written in part
            self.set_shadow(view, True)
            return
        self._unwritten -= nothing * view.itemsize
        view[...] = ones
        if self.complete:
            self._shadow = None


class Access:
    """An access pattern on a location, checked: the elements that an operand means, in their logical order.

    Element ``(i0, i1, ...)`` is number ``offset + i0 * steps[0] + i1 * steps[1] + ...`` of the location, the bytes of
    which are taken as elements of the dtype, partition after partition.

    Parameters
    ----------
    memory
        The location.
    dtype
        The type by which it is accessed.
    offset
        The first element.
    pattern
        Pairs of step and num, partitions first.
    linear
        Whether an access may run from one partition into the next.

    Raises
    ------
    SimulationError
        If it leaves the location; with `linear` false also if it leaves its partitions.
    """

    __slots__ = ("count", "dtype", "memory", "offset", "shape", "span", "steps", "unique")

    def __init__(
        self, memory: Memory, dtype: Dtype, offset: int, pattern: Sequence[tuple[int, int]], *, linear: bool = False
    ) -> None:
        self.memory, self.dtype, self.offset = memory, dtype, offset
        self.shape = tuple(num for _, num in pattern)
        self.steps = tuple(step for step, _ in pattern)
        if not pattern or min(self.shape) < 1:
            raise SimulationError(f"the access pattern {shown(pattern)} has no elements")
        self.count = math.prod(self.shape)
        if self.count > _MOST:
            raise SimulationError(f"the access pattern {shown(pattern)} has {self.count:,} elements: too many")
        low, high = self._extent(0)
        if offset + low < 0 or (offset + high + 1) * dtype.size > memory.size:
            raise SimulationError(
                f"out of bounds: {shown(pattern)}+{offset}:{dtype.name} is elements {offset + low} to {offset + high} "
                f"of `{memory.name}`, which has {memory.size // dtype.size}"
            )
        self.span = (offset + low) * dtype.size, (offset + high + 1) * dtype.size
        """The first byte of the location that it touches, and the one behind the last."""
        if not memory.flat:
            if self.steps[0] < 0:
                raise SimulationError(f"the partition step {self.steps[0]} of `{memory.name}` is negative")
            problem = self._crossing()
            if problem and not linear:
                raise CrossingError(f"{shown(pattern)}+{offset}:{dtype.name} on `{memory.name}` {problem}")
            if memory.base + memory.partitions > 128:
                raise SimulationError(
                    f"out of bounds: `{memory.name}` has {memory.partitions} partitions from partition {memory.base} "
                    "on, there are 128"
                )
        self.unique = self._is_unique()

    def _extent(self, first: int) -> tuple[int, int]:
        """Return the lowest and highest number that the dimensions from one on add."""
        spans = [step * (num - 1) for step, num in zip(self.steps[first:], self.shape[first:], strict=True)]
        return sum(s for s in spans if s < 0), sum(s for s in spans if s > 0)

    def _crossing(self) -> str:
        """Say how the access leaves its partitions; nothing when it does not."""
        size, pitch = self.dtype.size, self.memory.pitch
        if pitch % size:
            return f"has elements of {size} bytes, and partitions of {pitch}"
        row = pitch // size
        low, high = self._extent(1)
        column = self.offset % row
        if column + low < 0 or column + high >= row:
            return f"runs over the end of a partition, which has {row} elements"
        if self.shape[0] > 1 and self.steps[0] % row:
            return f"steps from partition to partition by {self.steps[0]} elements, a partition has {row}"
        return ""

    def _is_unique(self) -> bool:
        """Tell whether no element occurs twice."""
        reach = 0
        for step, num in sorted((abs(s), n) for s, n in zip(self.steps, self.shape, strict=True) if n > 1):
            if step <= reach:
                return len(np.unique(self.numbers())) == self.count
            reach += step * (num - 1)
        return True

    def numbers(self) -> NDArray[np.int64]:
        """Return the number of each element, in logical order."""
        total = np.full((1,) * len(self.shape), self.offset, np.int64)
        for axis, (step, num) in enumerate(zip(self.steps, self.shape, strict=True)):
            form = [1] * len(self.shape)
            form[axis] = num
            total = total + (np.arange(num, dtype=np.int64) * step).reshape(form)
        return total.reshape(-1)

    def bytes(self) -> NDArray[np.int64]:
        """Return the bytes of each element, by their place in the location."""
        return np.add.outer(self.numbers() * self.dtype.size, np.arange(self.dtype.size))

    def _on(self, buffer: NDArray[np.uint8], dtype: "np.dtype[np.generic]") -> Array:
        size = self.dtype.size
        strides = tuple(step * size if num > 1 else 0 for step, num in zip(self.steps, self.shape, strict=True))
        return np.ndarray(self.shape, dtype, buffer, self.offset * size, strides)

    def bits(self) -> Array:
        """Return the bit patterns of the elements as they lie in memory; writing to it passes the shadow by."""
        return self._on(self.memory.data, self.dtype.unsigned)

    def shadow(self) -> Array:
        """Return the shadow of the elements: all bits of a written byte are set."""
        return self._on(self.memory.shadow, self.dtype.unsigned)

    def written(self) -> Array | None:
        """Return which elements have been written wholly; None when all have."""
        if self.memory.complete:
            return None
        mask = self.shadow() == np.iinfo(self.dtype.unsigned).max
        return None if mask.all() else mask

    def store(self, values: Array, written: Array | None = None) -> None:
        """Write elements; where one stands twice in the pattern, the last one stays.

        Parameters
        ----------
        values
            Bit patterns of the elements, in the shape of the pattern.
        written
            Which of them count as written; all by default.
        """
        whole = self.unique and self.count * self.dtype.size == self.memory.size
        if whole and written is None and not self.memory.complete:
            self.memory.complete_by_writing()
        if self.unique:
            self.bits()[...] = values
        else:
            end = self.memory.size // self.dtype.size * self.dtype.size
            self.memory.data[:end].view(self.dtype.unsigned)[self.numbers()] = values.reshape(-1)
        if written is None and self.memory.complete:
            return
        shadow = self.shadow()
        if written is not None:
            self.memory.set_shadow(shadow, written)
        else:
            self.memory.mark(shadow, unique=self.unique)


def reads_after_write(source: Access, target: Access) -> bool:
    """Tell whether some byte of one location is written by an element before the one that reads it."""
    start = min(source.span[0], target.span[0])
    first = np.full(max(source.span[1], target.span[1]) - start, np.iinfo(np.int64).max, np.int64)
    number = np.arange(target.count)[::-1]  # of several writes to a byte the first one counts
    first[target.bytes()[::-1] - start] = number[:, None]
    return bool((first[source.bytes() - start] < np.arange(source.count)[:, None]).any())


class CrossingError(SimulationError):
    """An access that runs from one partition into the next."""


def shown(pattern: Sequence[tuple[int, int]]) -> str:
    """Write a pattern as files do."""
    return "[" + ",".join(f"[{step},{num}]" for step, num in pattern) + "]"
