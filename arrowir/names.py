"""Text columns of new rows: names picked from others, names with a number behind them, names that are free."""

import numpy as np

from arrowir.runs import Runs, copy_text, join_text
from arrowir.store import Array, Strings
from arrowir_kernels import free_suffixes, hash_names, prefix_hits, repeated_names
from arrowir_kernels.numbered import fill_numbered, measure_numbered


def numbered(names: Strings, source: Array, number: Array, separator: str) -> Strings:
    """Pick names and put a number behind some of them.

    Parameters
    ----------
    names
        The names to pick from.
    source
        For each new name the row of the one that it is made from.
    number
        What is put behind it; nothing where it is negative.
    separator
        One ASCII character between name and number.

    Returns
    -------
    Strings
        The new names.

    Examples
    --------
    >>> numbered(Strings.of(["a", "b"]), np.array([0, 1, 1]), np.array([-1, 0, 10]), "-").tolist()
    ['a', 'b-0', 'b-10']
    """
    source, number = source.astype(np.int64, copy=False), number.astype(np.int64, copy=False)
    offsets = np.empty(len(source) + 1, np.int64)
    measure_numbered(names.offsets, source, number, offsets)
    data = np.empty(int(offsets[-1]), np.uint8)
    fill_numbered(names.offsets, names.data, source, number, ord(separator), offsets, data)
    return Strings(offsets, data)


def picked(names: Strings, source: Array) -> Strings:
    """Pick names by row.

    Examples
    --------
    >>> picked(Strings.of(["a", "b"]), np.array([1, 0, 1])).tolist()
    ['b', 'a', 'b']
    """
    return numbered(names, source, np.full(len(source), -1), "-")


def fresh_names(taken: Strings, taken_scope: Array, wanted: Strings, scope: Array) -> Strings:
    """Make names free (rule R6): one that is taken gets `.1`, `.2`, ... behind it, the first that is free.

    Parameters
    ----------
    taken
        Names that are taken, of one kind of thing.
    taken_scope
        The function of each of them: names of different functions do not meet.
    wanted
        Names for new rows, in the order of the result; each one is taken for those after it.
    scope
        The function of each new row.

    Returns
    -------
    Strings
        The names to give; `wanted` itself where all are free.

    Examples
    --------
    >>> here = np.zeros(3, np.int32)
    >>> fresh_names(Strings.of(["a", "b"]), here[:2], Strings.of(["a", "c", "a"]), here).tolist()
    ['a.1', 'c', 'a.2']
    """
    rows = len(taken) + len(wanted)
    if not len(wanted):
        return wanted
    size = 1 << (2 * rows).bit_length()
    names = join_text([taken, wanted])
    scopes = np.concatenate((taken_scope, scope)).astype(np.int32)
    fresh = np.zeros(rows, np.int8)
    fresh[len(taken) :] = 1
    suffix = np.empty(rows, np.int32)
    free_suffixes(
        names.offsets, names.data, scopes, fresh,
        np.zeros(size, np.uint64), np.zeros(size, np.int32), np.zeros(size, np.int32), suffix,
    )  # fmt: skip
    number = suffix[len(taken) :]
    if not number.any():
        return wanted
    return numbered(wanted, np.arange(len(wanted)), np.where(number > 0, number, -1), ".")


def suffixed(texts: Strings, suffix: str) -> Strings:
    """Return texts with the same text behind each.

    Examples
    --------
    >>> suffixed(Strings.of(["a", "bc"]), "_x").tolist()
    ['a_x', 'bc_x']
    """
    more = np.frombuffer(suffix.encode(), np.uint8)
    data = np.insert(texts.data, np.repeat(texts.offsets[1:], len(more)), np.tile(more, len(texts)))
    return Strings(texts.offsets + np.arange(len(texts) + 1) * len(more), data)


def put(texts: Strings, rows: Array, new: Strings) -> Strings:
    """Return texts in which some rows, in rising order, hold new ones."""
    begin, end = np.append(0, rows + 1), np.append(rows, len(texts))
    start, length = np.empty(2 * len(rows) + 1, np.int64), np.ones(2 * len(rows) + 1, np.int64)
    start[0::2], length[0::2] = begin, end - begin
    start[1::2] = len(texts) + np.arange(len(rows))
    return copy_text(texts, new, Runs.of(start, length))


def repeated_runs(names: Strings, start: Array, length: Array) -> Array:
    """Return a mask of the runs of names in which one stands more than once."""
    size = 1 << (2 * int(length.max(initial=0))).bit_length()
    found = np.zeros(len(start), np.int8)
    repeated_names(names.offsets, names.data, start, length, np.zeros(size, np.uint64), np.zeros(size, np.int64), found)
    return found == 1


class Prefixes:
    """What stands before the names of clones: a clone is called prefix, mark, name in the kernel.

    It cannot meet a name that does not begin with prefix and mark, nor a clone of another prefix, unless one prefix is
    equal to the other or begins with the other and the mark.

    Parameters
    ----------
    prefixes, scope
        The prefixes (names of call-sites) and their scopes.
    mark
        One ASCII character.
    """

    def __init__(self, prefixes: Strings, scope: Array, mark: str) -> None:
        self.mark = ord(mark)
        hashes = np.empty(len(prefixes), np.uint64)
        hash_names(prefixes.offsets, prefixes.data, scope.astype(np.int64), self.mark, hashes)
        self.ranked = np.sort(hashes)
        equal = self.ranked[1:][self.ranked[1:] == self.ranked[:-1]]
        twice = scope[np.isin(hashes, equal)] if len(equal) else scope[:0]
        self.meeting = np.concatenate((twice, self.met_by(prefixes, scope)))
        """The scopes in which clones of two prefixes could meet; empty in the usual case."""

    def met_by(self, names: Strings, scope: Array) -> Array:
        """Return the scopes in which clones could meet names that are taken there."""
        hit = np.zeros(len(names), np.int8)
        prefix_hits(names.offsets, names.data, scope.astype(np.int64), self.mark, self.ranked, hit)
        return scope[hit == 1]
