"""Axes of lowered loops in text: nodes that name the register which holds the value (rule U5).

A text that is marked has as many placeholders as before, in the same order.
"""

from collections.abc import Container
from functools import lru_cache
from typing import Any

from arrowir import expressions, extras
from arrowir.expressions import LOWERED, Compiler, Slot, TextWriter


def marked(value: Any, slots: Container[int] | None) -> Any:
    """Return a parsed value with the axes of lowered loops marked.

    Expressions of version 1 that hold one become what they mean in version 2: the older form has no registers.

    Parameters
    ----------
    value
        What `expressions.read` gives.
    slots
        The numbers of the placeholders that are such axes; None for all.

    Examples
    --------
    >>> marked({"kind": "AffIVKind", "axis": Slot(0)}, None)
    {'kind': 'LoweredAxis', 'regref': Slot(number=0)}
    """
    if isinstance(value, list):
        return [marked(item, slots) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "AffIVKind" and _is_meant(value.get("axis"), slots):
        return _axis(value["axis"])
    if expressions.is_version_1(value) and any(_is_meant(_label(term), slots) for term in value["terms"]):
        return _newer(value, slots)
    return {key: marked(item, slots) for key, item in value.items()}


def _is_meant(name: Any, slots: Container[int] | None) -> bool:
    return isinstance(name, Slot) and (slots is None or name.number in slots)


def _label(term: Any) -> Any:
    return term.get("AxisLabel") if isinstance(term, dict) else None


def _axis(slot: Slot) -> dict[str, Any]:
    return {"kind": LOWERED, "regref": slot}


def _newer(value: dict[str, Any], slots: Container[int] | None) -> Any:
    """Return what an expression of version 1 is in version 2."""
    operation = value.get("op")
    if operation not in (None, "Div", "Mod"):
        return value
    terms: list[Any] = []
    for term in value["terms"]:
        name = _label(term)
        index = _axis(name) if _is_meant(name, slots) else {"axis": name, "kind": "AffIVKind"}
        terms.append({"coeff": term.get("coef"), "idx": index} if isinstance(term, dict) else term)
    sum_of = {"c": value.get("c") or 0, "kind": "AffExprKind", "terms": terms}
    if operation is None:
        return sum_of
    kind = "FloorDivKind" if operation == "Div" else "ModuloKind"
    return {"denom": value.get("op_param") or 0, "kind": kind, "numer": sum_of}


@lru_cache(65536)
def marked_text(text: str, slots: frozenset[int], excluded: frozenset[str] = frozenset()) -> tuple[str, frozenset[int]]:
    """Mark axes in the text of a row.

    Parameters
    ----------
    text
        An object, or the list of what follows the name in an edge.
    slots
        The numbers of the placeholders that are axes of lowered loops.
    excluded
        Members that are left alone.

    Returns
    -------
    text, slots
        The new text, and the placeholders that name registers now.
    """
    writer = TextWriter()
    if text.startswith("["):
        writer.put_value(marked(expressions.read(text), slots))
        return _written(writer), slots
    first, separator, found = 0, "{", set[int]()
    for key, value in extras.members(text):
        writer.put(f"{separator}{extras.dump(key)}:")
        separator = ","
        inside = slots.intersection(range(first, first + value.count(extras.PLACEHOLDER)))
        if inside and key not in excluded:
            writer.put_value(marked(expressions.read(value, first), inside))
            found |= inside
        else:
            writer.put(value, first)
        first += value.count(extras.PLACEHOLDER)
    writer.put("}")
    return _written(writer), frozenset(found)


def _written(writer: TextWriter) -> str:
    return writer.template(Compiler(), True).pieces[0]
