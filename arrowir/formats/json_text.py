"""JSON text to Python values and back, exact: numbers as written, members in order, any depth without a crash."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from json.encoder import encode_basestring
from typing import Any

from arrowir.diagnostics import FormatError

MAX_DEPTH = 10_000
"""Levels of brackets that a document may have (rule F4)."""
MAX_VALUE_DEPTH = 200
"""Levels that a value kept as text may have."""

_SAFE_DIGITS = 640
"""Digits that `int` takes however low the interpreter's limit has been set."""

Pairs = list[tuple[str, Any]]

_space = re.compile(r"[ \t\n\r]*").match
_surrogate = re.compile("[\ud800-\udfff]")
_name = re.compile(r"[A-Za-z_][A-Za-z_0-9]*").fullmatch
# An integer -0 counts in a float's place. Text before it may be part of a string: then care is merely wasted.
_negative_zero = re.compile(r"-0[ \t\n\r,\]}]").search
_encode = json.JSONEncoder().encode


class Number:
    """A number that a Python value would not spell as the file does: `1e400`, `1.50`, `-0`, 5,000 digits."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Number({self.text})"


@dataclass
class Document:
    """A parsed document."""

    value: Any
    duplicates: list[tuple[dict[str, Any], list[str]]] = field(default_factory=list[tuple[dict[str, Any], list[str]]])
    """Objects in which members stand twice, and which."""


def parse(text: str, path: str | None = None) -> Document:
    """Parse JSON text.

    Integers are exact; a number that `repr` would spell differently becomes a `Number`; `NaN`, `Infinity` and
    `-Infinity` are floats. Of members that stand twice the place of the first and the value of the last count
    (rule F3).

    Parameters
    ----------
    text : str
        The whole document.
    path : str, optional
        Name of the source in messages.

    Returns
    -------
    Document
        The value, and what stood twice.

    Raises
    ------
    FormatError
        If the text is no JSON, ends early, or nests deeper than `MAX_DEPTH`, with the byte offset.

    Examples
    --------
    >>> parse('{"a": 1.0, "b": 1.50, "a": 2}').value
    {'a': 2, 'b': Number(1.50)}
    """
    document = Document(None)

    def keep(pairs: Pairs) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) != len(pairs):
            seen: set[str] = set()
            twice = [key for key, _ in pairs if key in seen or seen.add(key)]
            document.duplicates.append((members, list(dict.fromkeys(twice))))
        return members

    def decoder(parse_int: Callable[[str], Any]) -> json.JSONDecoder:
        return json.JSONDecoder(object_pairs_hook=keep, parse_float=_float, parse_int=parse_int)

    try:
        try:
            document.value = decoder(_integer if _negative_zero(text) else int).decode(text)
        except json.JSONDecodeError:
            raise
        except ValueError:  # more digits than `int` takes
            document.duplicates.clear()
            document.value = decoder(_integer).decode(text)
    except json.JSONDecodeError as error:
        raise _explained(error, path) from None
    except RecursionError:
        document.duplicates.clear()
        try:
            document.value = _parse_deep(text, decoder(_integer), keep)
        except json.JSONDecodeError as error:
            raise _explained(error, path) from None
    return document


def _float(literal: str) -> float | Number:
    value = float(literal)
    return value if repr(value) == literal else Number(literal)


def _integer(literal: str) -> int | Number:
    return Number(literal) if literal == "-0" or len(literal) > _SAFE_DIGITS else int(literal)


def _parse_deep(text: str, scalars: json.JSONDecoder, keep: Callable[[Pairs], dict[str, Any]]) -> Any:
    """Parse with a stack of our own; slower by an order of magnitude."""
    stack: list[list[Any] | Pairs] = []
    keys: list[str | None] = []  # the pending key of each open object, None for lists
    raw_decode = scalars.raw_decode

    def skip(place: int) -> int:
        found = _space(text, place)
        return place if found is None else found.end()

    def key_at(place: int) -> tuple[str, int]:
        if text[place : place + 1] != '"':
            raise json.JSONDecodeError("Expecting property name enclosed in double quotes", text, place)
        key, place = raw_decode(text, place)
        place = skip(place)
        if text[place : place + 1] != ":":
            raise json.JSONDecodeError("Expecting ':' delimiter", text, place)
        return key, skip(place + 1)

    place = skip(0)
    while True:
        opening = text[place : place + 1]
        value: Any
        if opening in ("{", "["):
            if len(stack) == MAX_DEPTH:
                raise json.JSONDecodeError("Too deep", text, place)
            inside = skip(place + 1)
            if text[inside : inside + 1] == ("}" if opening == "{" else "]"):
                value, place = keep([]) if opening == "{" else [], inside + 1
            else:
                stack.append([])
                key, place = key_at(inside) if opening == "{" else (None, inside)
                keys.append(key)
                continue
        else:
            value, place = raw_decode(text, place)
        while stack:
            key = keys[-1]
            stack[-1].append(value if key is None else (key, value))
            place = skip(place)
            after = text[place : place + 1]
            if after == ",":
                place = skip(place + 1)
                if key is not None:
                    keys[-1], place = key_at(place)
                break
            if after != ("]" if key is None else "}"):
                raise json.JSONDecodeError("Expecting ',' delimiter", text, place)
            done = stack.pop()
            value = done if keys.pop() is None else keep(done)
            place += 1
        else:
            end = skip(place)
            if end != len(text):
                raise json.JSONDecodeError("Extra data", text, end)
            return value


def _explained(error: json.JSONDecodeError, path: str | None) -> FormatError:
    text, place = error.doc, error.pos
    offset = len(text[:place].encode(errors="surrogatepass"))
    rest = text[place:].strip()
    if error.msg == "Too deep":
        message = f"the document nests deeper than {MAX_DEPTH:,} levels"
    elif error.msg == "Extra data":
        message = f"the document ends here, but more text follows: {_excerpt(rest)}"
    elif not rest or error.msg.startswith("Unterminated string") or _is_cut(rest):
        message = "the text ends within the document: the file is truncated"
    elif error.msg.startswith("Invalid control character"):
        message = f"a string holds the control character U+{ord(text[place]):04X} as it is; it must be escaped"
    elif place == len(text) - len(text.lstrip()):
        message = f"this is not JSON: it starts with {_excerpt(rest)}"
    else:
        message = (
            f"this is not valid JSON: {error.msg[0].lower()}{error.msg[1:].removesuffix(' at')}, found {_excerpt(rest)}"
        )
    return FormatError(message, path=path, offset=offset)


def _is_cut(rest: str) -> bool:
    """Tell whether what could not be parsed is the beginning of something that could, up to the end of the text."""
    return any(word.startswith(rest) for word in ("true", "false", "null", "NaN", "-Infinity", "Infinity"))


def _excerpt(text: str) -> str:
    shown = text.split("\n", 1)[0][:20]
    return f"`{shown}`" if shown.isprintable() else ascii(shown)


def quote(text: str) -> str:
    """Return a JSON string: characters as they are, lone surrogates (which UTF-8 has not) escaped."""
    quoted = encode_basestring(text)
    if quoted.isascii():
        return quoted
    return _surrogate.sub(_escaped, quoted)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def scalar(value: Any) -> str:
    """Return the JSON text of a parsed value that is neither object nor list."""
    if value.__class__ is str:
        return quote(value)
    if value.__class__ is int:
        return str(value)
    if isinstance(value, Number):
        return value.text
    return _encode(value)


def dump(value: Any, depth: int = 0) -> str:
    """Return compact JSON text of a parsed value, numbers as they were written.

    Parameters
    ----------
    value : object
        A value as `parse` gives it.
    depth : int
        Levels around it.

    Returns
    -------
    str
        The text.

    Raises
    ------
    FormatError
        If it nests deeper than `MAX_VALUE_DEPTH` (rule F4).

    Examples
    --------
    >>> dump(parse('{"a": [1.50, -0, NaN, "x"]}').value)
    '{"a":[1.50,-0,NaN,"x"]}'
    """
    if depth > MAX_VALUE_DEPTH:
        raise too_deep()
    if isinstance(value, dict):
        return "{" + ",".join(f"{quote(key)}:{dump(item, depth + 1)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join([dump(item, depth + 1) for item in value]) + "]"
    return scalar(value)


_encode_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def compact(value: Any) -> str | None:
    """Return compact JSON text of a value that holds no `Number`, or None where it may nest too deep for that."""
    try:
        text = _encode_compact(value)
    except RecursionError:
        return None
    if not text.isascii():
        text = _surrogate.sub(_escaped, text)
    return text if text.count("[") + text.count("{") < MAX_VALUE_DEPTH else None


def too_deep() -> FormatError:
    """Return the error for a value that is kept as text but nests too deep."""
    return FormatError(f"the value nests deeper than {MAX_VALUE_DEPTH} levels")


def member_path(path: str, key: str | int) -> str:
    """Return the JSON path of a member or item, like `functions[0].name`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if _name(key) is None:
        return f"{path}[{quote(key)}]"
    return f"{path}.{key}" if path else key


def paths_of(value: Any, wanted: set[int]) -> dict[int, str]:
    """Return the JSON paths of some objects inside a value, by their `id`."""
    found: dict[int, str] = {}
    stack: list[tuple[Any, str]] = [(value, "")]
    while stack and len(found) < len(wanted):
        value, path = stack.pop()
        if id(value) in wanted:
            found[id(value)] = path
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        stack.extend((item, member_path(path, key)) for key, item in reversed(items) if isinstance(item, dict | list))
    return found


scan_value = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str).raw_decode
"""Parse the JSON value at a place of a text, and return where it ends too; numbers come as text, so any will do."""


def members_of(text: str) -> dict[str, str]:
    """Cut the compact text of an object into its members, the texts of their values as they are.

    The character U+0001 may stand for values.

    Examples
    --------
    >>> members_of('{"a":[1,2.50],"b":{"c":null}}')
    {'a': '[1,2.50]', 'b': '{"c":null}'}
    """
    legal = text.replace("\x01", "0")
    found: dict[str, str] = {}
    place = 1
    while legal[place] != "}":
        key, place = scan_value(legal, place)
        _, end = scan_value(legal, place + 1)
        found[key] = text[place + 1 : end]
        place = end + (legal[end] == ",")
    return found


# A string with the colon behind it where it is a key, an empty list or object, a bracket or comma, another scalar.
_piece = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*":?|\[\]|\{\}|[\[\]{},]|[^"\[\]{},:]+').findall


def indented(text: str, indent: int) -> str:
    """Lay compact JSON text out in lines, as `json.dumps` would, without touching any value.

    Parameters
    ----------
    text : str
        JSON without white space between its parts.
    indent : int
        Spaces per level.

    Returns
    -------
    str
        The same document in lines.

    Examples
    --------
    >>> print(indented('{"a":[1,2],"b":{}}', 1))
    {
     "a": [
      1,
      2
     ],
     "b": {}
    }
    """
    breaks = ["\n"]
    out: list[str] = []
    level = 0
    for piece in _piece(text):
        first = piece[0]
        if first in "[{" and len(piece) == 1:
            level += 1
            if level == len(breaks):
                breaks.append("\n" + " " * (indent * level))
            out.append(piece + breaks[level])
        elif first in "]}":
            level -= 1
            out.append(breaks[level] + piece)
        elif first == ",":
            out.append(piece + breaks[level])
        elif piece[-1] == ":":
            out.append(piece + " ")
        else:
            out.append(piece)
    return "".join(out)
