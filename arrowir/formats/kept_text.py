"""Members that no column models, as compact JSON text in which the names of rows are placeholders."""

from dataclasses import dataclass
from typing import Any

from arrowir.extras import PLACEHOLDER
from arrowir.formats.json_text import MAX_VALUE_DEPTH, member_path, quote, scalar, too_deep
from arrowir.formats.values import Json, Wrong, kind_of


@dataclass(frozen=True)
class Reference:
    """A name in text: the table that it points into, the name, and where it stands in the row's text."""

    table: str
    name: str
    path: str


def may_refer(content: bytes) -> bool:
    """Tell whether a value may hold an expression with a name or a number of terms in it, by its content."""
    return b"regref" in content or b"axis" in content or b"AxisLabel" in content or b"n_terms" in content


class Text:
    """Compact JSON text in the making, names in expressions replaced by placeholders."""

    def __init__(self, *, expressions: bool = False) -> None:
        self.parts: list[str] = []
        self.references: list[Reference] = []
        self.miscounts: list[str] = []
        """What is said of sums whose `n_terms` is not the number of their terms."""
        self.expressions = expressions

    def refer(self, table: str, name: str, path: str) -> None:
        """Add a placeholder for a name."""
        self.parts.append(PLACEHOLDER)
        self.references.append(Reference(table, name, path))

    def add(self, value: Any, path: str, depth: int = 1, *, term: bool = False) -> None:
        """Add a value; `term` says that it is a term of a version 1 expression."""
        if depth > MAX_VALUE_DEPTH:
            raise Wrong(path[:200], too_deep().message)
        if isinstance(value, list):
            self.parts.append("[")
            for place, item in enumerate(value):
                if place:
                    self.parts.append(",")
                self.add(item, f"{path}[{place}]", depth + 1, term=term)
            self.parts.append("]")
        elif isinstance(value, dict):
            names = self._names(value, term=term)
            if self.expressions and "n_terms" in value:
                self._count_terms(value, path)
            older = "kind" not in value and "terms" in value and "c" in value
            for place, (key, item) in enumerate(value.items()):
                self.parts.append(f"{',' if place else '{'}{quote(key)}:")
                inside = member_path(path, key)
                if key == names[0] and isinstance(item, str):
                    self.refer(names[1], item, inside)
                else:
                    self.add(item, inside, depth + 1, term=older and key == "terms")
            self.parts.append("}" if value else "{}")
        else:
            self.parts.append(scalar(value))

    def _count_terms(self, value: Json, path: str) -> None:
        """Compare what a sum says of the number of its terms with what it has."""
        said, terms = value["n_terms"], value.get("terms")
        if value.get("kind") == "SumKind" and isinstance(terms, list) and (type(said) is not int or said != len(terms)):
            shown = kind_of(said) if isinstance(said, list | dict) else scalar(said)
            self.miscounts.append(f"`n_terms` is {shown[:40]}, and there are {len(terms)} terms, in `{path[:200]}`")

    def _names(self, value: Json, *, term: bool) -> tuple[str, str]:
        """Return which member of an expression is a name, and of what."""
        if not self.expressions:
            return "", ""
        if term:
            return "AxisLabel", "loops"
        match value.get("kind"):
            case "IntRuntimeValueKind":
                return "regref", "registers"
            case "AffIVKind":
                return "axis", "loops"
            case _:
                return "", ""
