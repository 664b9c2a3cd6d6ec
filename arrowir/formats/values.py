"""Values of parsed JSON: what type they are, whether it is the right one, what is wrong (rule F3)."""

import marshal
from typing import Any, NoReturn

from arrowir.formats.json_text import Number, quote, too_deep

Json = dict[str, Any]

MAX_INT = 2**63 - 1


class Wrong(Exception):  # noqa: N818
    """A value that a member cannot have; `path` leads to it from the object at hand."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path, self.message = path, message

    def inside(self, path: str) -> "Wrong":
        """Return the same error as seen from further out."""
        between = "." if path and self.path and not self.path.startswith("[") else ""
        return Wrong(f"{path}{between}{self.path}", self.message)


def kind_of(value: Any) -> str:
    """Name the JSON type of a value, for messages."""
    if isinstance(value, Number):
        return "a number"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    names: dict[type, str] = {dict: "an object", list: "a list", str: "a string", int: "an integer", float: "a number"}
    return names[type(value)]


def check_name(text: str, path: str = "") -> None:
    """Refuse a name that UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Wrong(path, f"the name {quote(text)} holds half a surrogate pair, which no name can have") from None


def expect(value: Any, kind: type, path: str) -> Any:
    """Return a value if it is of a type; an integer must also fit 64 bits."""
    if kind is int:
        return expect_int(value, path)
    if value.__class__ is not kind:
        wanted = {dict: "an object", list: "a list", str: "a string", bool: "true or false"}[kind]
        raise Wrong(path, f"expected {wanted}, found {kind_of(value)}")
    return value


def expect_int(value: Any, path: str) -> int:
    """Return an integer of 64 bits, or say what is wrong (rule F3)."""
    if isinstance(value, Number):
        if value.text == "-0":
            return 0
        if value.text.lstrip("-").isdigit():
            too_wide(value.text, path)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Wrong(path, f"expected an integer, found {kind_of(value)}")
    if not -MAX_INT - 1 <= value <= MAX_INT:
        too_wide(str(value), path)
    return value


def too_wide(digits: str, path: str) -> NoReturn:
    """Refuse an integer."""
    shown = digits if len(digits) <= 40 else f"{digits[:20]}... ({len(digits):,} characters)"
    raise Wrong(path, f"the integer {shown} does not fit 64 bits")


def items_of(obj: Json, key: str) -> list[Any]:
    """Return the list under a key; absent and null are empty."""
    value = obj.get(key)
    return [] if value is None else expect(value, list, key)


def content_of(value: Any, path: str) -> bytes | str:
    """Return what two values share only if they are spelled alike: a key for what is made of them.

    Bytes say that the value is all plain Python, a string that a `Number` is inside.
    """
    try:
        return marshal.dumps(value, 2)  # from version 3 on equal values may give different bytes
    except ValueError:
        try:
            return repr(value)
        except RecursionError:
            raise Wrong(path, too_deep().message) from None
