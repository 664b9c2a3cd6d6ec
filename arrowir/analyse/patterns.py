"""Facts of access patterns, one row per distinct pattern: extents, counts, and the bytes that one touches."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.ir import IR

DIMENSIONS = 6
"""Dimensions that are kept apart; a pattern of more is told by `dimensions` alone."""

FAR = 1 << 60
"""No element is farther away than this: larger numbers are cut to it, so that sums of a few stay in 64 bits."""

PIECES = 1 << 20
"""Separate intervals of one pattern, above which they are not listed."""


@dataclass(frozen=True)
class Patterns:
    """Arrays over the distinct patterns of a batch, with one more row at the end for operands without a pattern."""

    dimensions: Array
    """Number of pairs; 0 without a pattern."""
    lanes: Array
    """The first num: how many partitions an access in SB or PSUM has."""
    each: Array
    """Product of the other nums: elements per partition."""
    low: Array
    high: Array
    """Lowest and highest number that the pairs after the first add to an offset."""
    sound: Array
    """Whether there are pairs, and every num is at least 1."""
    near: Array
    """Whether every element that the pairs reach is nearer than `FAR`."""
    steps: Array
    nums: Array
    """Matrices of patterns by dimensions, first pair first, filled up with steps of 0 and nums of 1."""

    @cached_property
    def last_step(self) -> Array:
        """The step of the last pair."""
        return self._last(self.steps, 0)

    @cached_property
    def last_num(self) -> Array:
        """The num of the last pair."""
        return self._last(self.nums, 1)

    def _last(self, values: Array, absent: int) -> Array:
        place = np.clip(self.dimensions - 1, 0, DIMENSIONS - 1)
        return np.where(self.dimensions > 0, values[np.arange(len(values)), place], absent)


def patterns(ir: "IR") -> Patterns:
    """Return the facts of all distinct patterns of a batch; they are kept in the pool."""
    pool = ir.pools.patterns
    rows: list[tuple[int, ...]] = []
    for number in range(ir.pattern_count):
        known = pool.parsed.get(("facts", number))
        if known is None:
            known = pool.parsed["facts", number] = _facts(json.loads(pool.texts[number]))
        rows.append(known)
    rows.append(_facts([]))
    table = np.array(rows, np.int64)
    dimensions, lanes, each, low, high, sound, near = (table[:, k] for k in range(7))
    steps, nums = table[:, 7 : 7 + DIMENSIONS], table[:, 7 + DIMENSIONS :]
    return Patterns(dimensions, lanes, each, low, high, sound == 1, near == 1, steps, nums)


def _facts(pairs: list[list[int]]) -> tuple[int, ...]:
    sound = bool(pairs) and all(num >= 1 for _, num in pairs)
    near = sum((abs(step) + 1) * abs(num) for step, num in pairs) < FAR
    spans = [_cut(step * (num - 1)) for step, num in pairs[1:]]
    each = 1
    for _, num in pairs[1:]:
        each = _cut(each * num)
    steps = [_cut(step) for step, _ in pairs[:DIMENSIONS]]
    nums = [_cut(num) for _, num in pairs[:DIMENSIONS]]
    missing = DIMENSIONS - len(steps)
    return (
        len(pairs),
        nums[0] if nums else 0,
        each if pairs else 0,
        _cut(sum(s for s in spans if s < 0)),
        _cut(sum(s for s in spans if s > 0)),
        int(sound),
        int(near),
        *steps,
        *([0] * missing),
        *nums,
        *([1] * missing),
    )


def _cut(number: int) -> int:
    return max(-FAR, min(FAR, number))


def intervals(pairs: list[list[int]], size: int) -> Array | None:
    """Return the bytes that pairs of step and num reach from an element, as disjoint intervals in rising order.

    Parameters
    ----------
    pairs
        Steps in elements, signed, and nums of at least 1.
    size
        Bytes of an element.

    Returns
    -------
    numpy.ndarray or None
        int64, one row (start, end) per interval, in bytes from the element's first; intervals that touch are one. None
        where there are more than `PIECES`.

    Examples
    --------
    >>> intervals([[2, 3]], 4).tolist(), intervals([[-1, 4]], 2).tolist(), intervals([[0, 9]], 1).tolist()
    ([[0, 4], [8, 12], [16, 20]], [[-6, 2]], [[0, 1]])
    """
    low = sum(step * (num - 1) for step, num in pairs if step < 0)
    apart = sorted((abs(step), num) for step, num in pairs if step and num > 1)
    run = 1  # elements in a row
    while apart and apart[0][0] <= run:
        step, num = apart.pop(0)
        run += step * (num - 1)
    begins = np.zeros(1, np.int64)
    for step, num in apart:
        if len(begins) * num > PIECES:
            return None
        begins = (begins[:, None] + np.arange(num, dtype=np.int64) * step).reshape(-1)
    begins = np.sort(begins)
    ends = np.maximum.accumulate(begins + run)
    first = np.concatenate(([True], begins[1:] > ends[:-1]))
    last = np.concatenate((first[1:], [True]))
    return (np.stack((begins[first], ends[last]), axis=1) + low) * size
