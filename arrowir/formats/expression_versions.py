"""Affine expressions of one version of the format in the spelling of the other (version 1 is old, 2 is new).

A module's `version` says how its expressions are to be read, so what is put into a module has to be spelt as it is.
Whatever has the form of an expression is one; `offset_expr`, which is new in files of both versions, is left alone.
"""

from collections.abc import Callable
from typing import Any

from arrowir.expressions import KINDS, is_expression, is_integer, is_version_1
from arrowir.formats.json_text import Number, member_path

Linear = tuple[list[tuple[str, int]], int]
"""Axes with their coefficients, and a constant."""

_ALWAYS_NEW = "offset_expr"
_OLD_KEYS = frozenset({"terms", "c", "op", "op_param"})


class NotConvertibleError(Exception):
    """An expression that the other version cannot spell; `path` leads to it."""

    def __init__(self, reason: str, path: str = "") -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path


def convert(document: Any, version: int) -> None:
    """Spell every expression of a parsed document, in place, as a version of the format does.

    Parameters
    ----------
    document
        An object or list as `json_text.parse` gives it.
    version
        1 or 2.

    Raises
    ------
    NotConvertibleError
        If the version has no spelling for an expression.

    Examples
    --------
    >>> loop = {"addrs": [{"terms": [{"AxisLabel": "i", "coef": 4}], "c": 1, "op": "Mod", "op_param": 8}]}
    >>> convert(loop, 2)
    >>> loop["addrs"][0]["kind"], loop["addrs"][0]["numer"]["terms"]
    ('ModuloKind', [{'coeff': 4, 'idx': {'axis': 'i', 'kind': 'AffIVKind'}}])
    >>> convert(loop, 1)
    >>> loop["addrs"]
    [{'c': 1, 'op': 'Mod', 'op_param': 8, 'terms': [{'AxisLabel': 'i', 'coef': 4}]}]
    """
    is_other: Callable[[Any], bool] = _is_new if version == 1 else _is_old
    spell: Callable[[Any], Any] = to_old if version == 1 else to_new
    stack: list[tuple[Any, Any, str]] = [({"": document}, "", "")]
    while stack:  # in the order of the document, without recursion
        holder, key, path = stack.pop()
        value = holder[key]
        if is_other(value):
            try:
                holder[key] = spell(value)
            except NotConvertibleError as error:
                raise NotConvertibleError(error.reason, path) from None
            except RecursionError:
                raise NotConvertibleError("it is nested too deeply", path) from None
            continue
        keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
        stack += [
            (value, inner, member_path(path, inner))
            for inner in reversed(keys)
            if isinstance(value[inner], dict | list) and inner != _ALWAYS_NEW
        ]


def _is_old(value: Any) -> bool:
    return is_version_1(value) and is_expression(value)


def _is_new(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("kind"), str) and value["kind"] in KINDS


def to_new(value: dict[str, Any]) -> dict[str, Any]:
    """Return a version 1 expression in the spelling of version 2."""
    if more := sorted(value.keys() - _OLD_KEYS):
        raise NotConvertibleError(f"it has a member `{more[0]}`, which means nothing in an expression")
    terms: list[dict[str, Any]] = []
    for term in value["terms"]:
        if not isinstance(term, dict) or term.keys() != {"AxisLabel", "coef"}:
            raise NotConvertibleError("a term of it has not `AxisLabel` and `coef`")
        terms.append({"coeff": term["coef"], "idx": {"axis": term["AxisLabel"], "kind": "AffIVKind"}})
    plain = {"c": value["c"], "kind": "AffExprKind", "terms": terms}
    match value.get("op"):
        case None:
            return plain
        case "Div" | "Mod" as op:
            kind = "FloorDivKind" if op == "Div" else "ModuloKind"
            return {"denom": _parameter(value), "kind": kind, "numer": plain}
        case "IndirectArgId" if not terms and value["c"] == 0:
            return {"arg_id": _parameter(value), "kind": "IndirectArgId"}
        case op:
            raise NotConvertibleError(f"version 2 has nothing that is known to be `{op}` of version 1")


def _parameter(value: dict[str, Any]) -> Any:
    if "op_param" not in value:
        raise NotConvertibleError("it has `op`, and no `op_param`")
    return value["op_param"]


def to_old(value: dict[str, Any]) -> dict[str, Any]:
    """Return a version 2 expression in the spelling of version 1; one of shard ids is the same in both."""
    match value["kind"]:
        case "ShardIDKind":
            return value
        case "IndirectArgId":
            return {"c": 0, "op": "IndirectArgId", "op_param": _member(value, "arg_id"), "terms": []}
        case "FloorDivKind" | "ModuloKind" | "CCModKind" as kind:
            op = "Div" if kind == "FloorDivKind" else "Mod"
            terms, constant = _linear(_member(value, "numer"))
            return {"c": constant, "op": op, "op_param": _member(value, "denom"), "terms": _old_terms(terms)}
        case _:
            terms, constant = _linear(value)
            return {"c": constant, "terms": _old_terms(terms)}


def _old_terms(terms: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [{"AxisLabel": axis, "coef": coefficient} for axis, coefficient in terms]


def _member(value: dict[str, Any], key: str) -> Any:
    if key not in value:
        raise NotConvertibleError(f"it has no `{key}`")
    return value[key]


def _linear(value: Any) -> Linear:
    """Return what a version 2 expression is as a sum over axes; version 1 has no other bodies."""
    if is_integer(value) or isinstance(value, Number):
        return [], _whole(value)
    kind = value.get("kind") if isinstance(value, dict) else None
    match kind:
        case "AffIVKind":
            axis = _member(value, "axis")
            if not isinstance(axis, str):
                raise NotConvertibleError("it has an axis that is no name")
            return [(axis, 1)], 0
        case "AffExprKind":
            parts = [
                _scaled(_linear(_member(term, "idx")), _whole(_member(term, "coeff")))
                for term in value.get("terms") or []
                if isinstance(term, dict)
            ]
            return _sum([*parts, ([], _whole(value.get("c") or 0))])
        case "SumKind":
            return _sum([_linear(term) for term in value.get("terms") or []])
        case "MultKind":
            return _scaled(_linear(_member(value, "var")), _whole(_member(value, "scale")))
        case _:
            raise NotConvertibleError(f"version 1 has no `{kind}` inside of an expression")


def _scaled(value: Linear, by: int) -> Linear:
    return [(axis, coefficient * by) for axis, coefficient in value[0]], value[1] * by


def _sum(parts: list[Linear]) -> Linear:
    return [term for terms, _ in parts for term in terms], sum(constant for _, constant in parts)


def _whole(value: Any) -> int:
    if isinstance(value, Number) and value.text.lstrip("-").isdigit() and len(value.text) < 100:
        return int(value.text)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise NotConvertibleError("it has a number that is no integer")
