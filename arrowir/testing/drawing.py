"""How strategies draw: short calls over cached strategies, plain choices first so that examples shrink to them."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from hypothesis import strategies as st

from arrowir.testing.bir import Json

Item = TypeVar("Item")

ODD_NAMES = (
    "load.2.6",
    "Conv2d_16/aten__convolution/Conv2D:0",
    "a b",
    "x.1",
    "ß_µ_バッファ",
    "🙂",
    'quote"back\\slash',
    "tab\tline\n",
    "nul\u0000",
    "n" * 300,
    "",
    "#-{}[],",
    "\u2028e\u0301",
)
"""Names that are legal and awkward."""


@lru_cache(maxsize=4096)
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


_WORD = st.binary(min_size=12, max_size=12)


class Source:
    """What a strategy draws from.

    Counts are drawn one by one. Details (`chance`, `of`, `some`, `digit`) take a byte each of drawn strings of bytes,
    which is several times as quick as drawing them one by one, and shrinks as well: bytes shrink to 0 one by one.

    Parameters
    ----------
    draw : callable
        The drawing function of a composite strategy.

    Examples
    --------
    >>> Simplest().between(1, 9)
    1
    """

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw = draw
        self._word = b""
        self._at = 0
        self._numbers: dict[str, int] = {}

    def between(self, low: int, high: int) -> int:
        """Return an integer of the range, both ends included; it shrinks to the low one."""
        return low if low == high else self.draw(_integers(low, high))

    def count(self, high: int) -> int:
        """Return how many of something there are; it shrinks to one, though none is as likely as any other."""
        return (self.between(0, high) + 1) % (high + 1)

    def begin(self) -> None:
        """Start an object: its details do not share a word with those of the one before."""
        self._at = len(self._word)

    def digit(self, base: int) -> int:
        """Return an integer of 0 up to but not including the base, a detail."""
        if base > 256:
            return self.between(0, base - 1)
        if self._at >= len(self._word):
            self._word = self.draw(_WORD)
            self._at = 0
        value = self._word[self._at] * base >> 8
        self._at += 1
        return value

    def chance(self, percent: int) -> bool:
        """Return true in about so many of a hundred cases; it shrinks to false."""
        return self.digit(100) >= 100 - percent

    def of(self, items: Sequence[Item]) -> Item:
        """Return one of the items; it shrinks to the first."""
        return items[self.digit(len(items))]

    def some(self, items: Sequence[Item]) -> list[Item]:
        """Return some of the items, in their order; it shrinks to none."""
        masks = [self.digit(2 ** min(8, len(items) - start)) for start in range(0, len(items), 8)]
        return [item for number, item in enumerate(items) if masks[number // 8] >> number % 8 & 1]

    def sprinkle(self, target: Json, rare: Sequence[tuple[str, Sequence[Any]]], percent: int) -> None:
        """Give an object one or two of the rare members, sometimes; each comes with the values that it may have."""
        if not self.chance(percent):
            return
        for _ in range(1 + self.digit(2)):
            key, values = self.of(rare)
            target[key] = self.of(values)

    def number(self, prefix: str) -> int:
        """Return 0, 1, 2, ... for each prefix in turn; nothing is drawn."""
        self._numbers[prefix] = self._numbers.get(prefix, -1) + 1
        return self._numbers[prefix]

    def fresh(self, prefix: str) -> str:
        """Return a name with the prefix that was not given before; nothing is drawn."""
        return f"{prefix}{self.number(prefix)}"

    def junk(self, depth: int = 2) -> Any:
        """Return a value for a member that nobody knows."""
        kinds = 9 if depth else 7
        kind = self.digit(kinds)
        if kind == 0:
            return None
        if kind == 1:
            return self.chance(50)
        if kind == 2:
            return self.digit(100) - 5
        if kind == 3:
            return self.of((2**63, -(2**63) - 1, 2**64, -80241446968629135069, 10**40))
        if kind == 4:
            return self.of((0.0, -0.0, 0.1, 1e300, 5e-324, 1.0, -2.5e-07))
        if kind in (5, 6):
            return self.of(("", "text", *ODD_NAMES[:8]))
        if kind == 7:
            return [self.junk(depth - 1) for _ in range(self.digit(3))]
        return {self.of(("k", "name", "kind", "ü")): self.junk(depth - 1) for _ in range(self.digit(3))}

    def unknown(self, target: Json, percent: int = 10) -> Json:
        """Give an object a member that nobody knows, sometimes; return the object."""
        if self.chance(percent):
            target[self.of(("zz_new", "A_new", "unknown key", "ключ"))] = self.junk()
        return target

    def order(self, document: Json, percent: int = 40) -> Json:
        """Return the document with its members in an order that means nothing, sometimes."""
        if not self.chance(percent):
            return document
        salt = 1 + self.digit(250)
        return _reordered(document, salt)


class Simplest(Source):
    """A source of what everything shrinks to; nothing is drawn.

    Examples
    --------
    >>> Simplest().of("abc")
    'a'
    """

    def __init__(self) -> None:
        def refuse(strategy: st.SearchStrategy[Any]) -> Any:
            raise TypeError(f"the simplest choice is not drawn, found {strategy}")

        super().__init__(refuse)

    def between(self, low: int, high: int) -> int:
        """Return the low end."""
        return low

    def digit(self, base: int) -> int:
        """Return 0."""
        return 0


def _reordered(value: Any, salt: int) -> Any:
    """Return the value with the members of some objects moved, in a way that depends on the salt alone."""
    if isinstance(value, list):
        return [_reordered(item, salt) for item in value]
    if not isinstance(value, dict):
        return value
    names = list(value)
    turn = (salt * 31 + len(names) * 7) % (len(names) + 1)
    names = names[turn:] + names[:turn]
    if (salt + len(names)) % 3 == 0:
        names.reverse()
    return {name: _reordered(value[name], salt) for name in names}
