"""What callers pass to public functions: a value of another type is an `OptionError` that says what is taken."""

import os
from collections.abc import Callable, Iterable, Mapping
from reprlib import repr
from typing import Any, TypeVar

from arrowir.diagnostics import OptionError

T = TypeVar("T")

MAX_INDENT = 100
"""Most spaces per level of an indented document."""


def wrong(what: str, takes: str, value: object) -> OptionError:
    """Return the error for an argument of another type.

    Examples
    --------
    >>> print(wrong("`indent`", "a number of spaces", "x"))
    `indent` takes a number of spaces, got 'x' (str)
    """
    return OptionError(f"{what} takes {takes}, got {repr(value)} ({type(value).__name__})")


def typed(value: object, kind: "type[T]", what: str, takes: str) -> T:
    """Return a value if it is of a type.

    Raises
    ------
    OptionError
        If it is not.
    """
    if not isinstance(value, kind):
        raise wrong(what, takes, value)
    return value


def text(value: object, what: str) -> str:
    """Return a text that UTF-8 has.

    Raises
    ------
    OptionError
        If it is another type, or holds half of a surrogate pair.
    """
    found = typed(value, str, what, "text")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise OptionError(f"{what} takes text, got {repr(found)}, which UTF-8 does not have") from None
    return found


def path(value: object, what: str) -> str:
    """Return a path as text.

    Raises
    ------
    OptionError
        If it is none.
    """
    found: object = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(found, str):
        raise wrong(what, "a path", value)
    return found


def indent(value: object) -> int | None:
    """Return a number of spaces per level, or None.

    Raises
    ------
    OptionError
        If it is neither.
    """
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_INDENT:
        raise wrong("`indent`", f"a number of spaces from 0 to {MAX_INDENT}, or None", value)
    return value


def count(value: object, what: str, least: int = 0) -> int:
    """Return an integer of at least some size.

    Raises
    ------
    OptionError
        If it is another type, or smaller.

    Examples
    --------
    >>> count(3, "`trials`", 1)
    3
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise wrong(what, f"a number of at least {least}", value)
    return value


def listed(value: object, what: str, takes: str) -> list[Any]:
    """Return the items of a list or another iterable; text is none.

    Raises
    ------
    OptionError
        If it is no iterable.
    """
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise wrong(what, takes, value)
    return list(value)


def function(value: "Callable[..., Any] | None", what: str) -> None:
    """Check that a value is None or can be called.

    Raises
    ------
    OptionError
        If it is not.
    """
    if value is not None and not callable(value):
        raise wrong(what, "a function or None", value)
