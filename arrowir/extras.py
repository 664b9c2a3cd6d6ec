"""Extras: the members of a JSON object that no column models, as one compact JSON text with placeholders.

A reference in the text is the character U+0001 standing alone. It cannot occur in JSON otherwise, so the text is cut
at it and filled with names in order. Texts are interned, so each function here runs once for each distinct text.
"""

import json
from functools import lru_cache
from itertools import chain
from typing import Any

PLACEHOLDER = "\x01"
"""Stands for a reference, in the text of a row."""

_SCANNER = json.JSONDecoder(parse_int=str, parse_float=str)  # numbers of any size: their values are not wanted


def dump(value: Any) -> str:
    """Return compact JSON text of a value; halves of surrogate pairs, which are no text, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if text.isascii() or _is_text(text) else json.dumps(value, separators=(",", ":"))


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def fill(text: str, names: list[str]) -> str:
    """Put names in place of the placeholders, in order."""
    parts = text.split(PLACEHOLDER)
    return "".join(chain(parts[:1], *((dump(n), p) for n, p in zip(names, parts[1:], strict=True))))


@lru_cache(65536)
def members(text: str) -> tuple[tuple[str, str], ...]:
    """Cut an object's text into its members: (key, text of the value), in order; placeholders stay in place."""
    scan = _SCANNER.raw_decode
    # Placeholders become 1-character legal JSON values of the same length, so that places stay the same.
    legal = text.replace(PLACEHOLDER, "0")
    found: list[tuple[str, str]] = []
    place = 1
    while legal[place] != "}":
        key, place = scan(legal, place)
        _, end = scan(legal, place + 1)
        found.append((key, text[place + 1 : end]))
        place = end + (legal[end] == ",")
    return tuple(found)


def join(parts: tuple[tuple[str, str], ...] | list[tuple[str, str]]) -> str:
    """Put members back together: the opposite of `members`."""
    return "{" + ",".join(f"{dump(key)}:{value}" for key, value in parts) + "}"


def without(text: str, key: str) -> str:
    """Remove a member; an object that becomes empty is the empty text, to be stored as absent."""
    rest = [(k, v) for k, v in members(text) if k != key]
    return join(rest) if rest else ""


@lru_cache(65536)
def parse(text: str) -> Any:
    """Parse a text; placeholder number k becomes the string U+0001 followed by k.

    The answer is shared by all callers: it must not be changed.
    """
    parts = text.split(PLACEHOLDER)
    numbered = parts[0] + "".join(f'"\\u0001{k}"{part}' for k, part in enumerate(parts[1:]))
    try:
        return json.loads(numbered)
    except ValueError:  # an integer of more digits than Python converts: it stays text, nothing computes with it
        return json.loads(numbered, parse_int=_integer)


def _integer(digits: str) -> int | str:
    return int(digits) if len(digits) < 4000 else digits


@lru_cache(65536)
def items(text: str) -> tuple[str, ...]:
    """Cut a list's text into the texts of its items; placeholders stay in place."""
    scan = _SCANNER.raw_decode
    legal = text.replace(PLACEHOLDER, "0")
    found: list[str] = []
    place = 1
    while legal[place] != "]":
        _, end = scan(legal, place)
        found.append(text[place:end])
        place = end + (legal[end] == ",")
    return tuple(found)
