"""How names, values and expressions are spelt in a listing."""

import json
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from arrowir import extras, vocabulary

LONGEST_VALUE = 160
"""A value of more characters is cut."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.$/:+-]+")


@lru_cache(65536)
def name(text: str) -> str:
    """Return a name as it is, or as a JSON string where it has other characters than letters, digits and ``_.$/:+-``.

    Examples
    --------
    >>> name("I-3:tile_i0"), name("two words")
    ('I-3:tile_i0', '"two words"')
    """
    return text if _PLAIN_NAME.fullmatch(text) else json.dumps(text)


@lru_cache(65536)
def value(text: str) -> str:
    """Return the JSON text of a value as a listing shows it: expressions as formulas, plain words without quotes.

    Examples
    --------
    >>> value('"add"'), value("1e-05"), value('{"c":1,"kind":"AffExprKind","terms":[]}'), value("[1,2]")
    ('add', '1e-05', '1', '[1,2]')
    """
    if text[0] in '{["':
        try:
            shown = _shown(json.loads(text))
        except (ValueError, RecursionError):
            shown = text
    else:
        shown = text
    if len(shown) > LONGEST_VALUE:
        shown = f"{shown[:LONGEST_VALUE]}...({len(shown)} characters)"
    return shown


def members(
    text: str, *, hidden: Collection[str] = (), defaults: Mapping[str, object] | None = None, falsy: bool = True
) -> str:
    """Return an object's members as ``key=value``, separated by blanks; a true flag is its key alone.

    Parameters
    ----------
    text
        JSON text of the object, names in place of the placeholders.
    hidden
        Keys to leave out.
    defaults
        Values to leave out, by key.
    falsy
        Show false, zero, empty and null values.

    Examples
    --------
    >>> members('{"op":"add","acc":"Idle","negate":true}', defaults={"acc": "Idle"})
    'op=add negate'
    """
    parts: list[str] = []
    for key, raw in extras.members(text):
        if key in hidden or (not falsy and raw in _FALSY):
            continue
        if defaults and key in defaults and _same(raw, defaults[key]):
            continue
        parts.append(name(key) if raw == "true" else f"{name(key)}={value(raw)}")
    return " ".join(parts)


@lru_cache(4096)
def items(text: str) -> tuple[str, ...]:
    """Cut the JSON text of a list into the texts of its items.

    Examples
    --------
    >>> items('["Flow",[1,2],{"c":0}]')
    ('"Flow"', '[1,2]', '{"c":0}')
    """
    scan = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode
    found: list[str] = []
    place = 1
    while text[place] != "]":
        _, end = scan(text, place)
        found.append(text[place:end])
        place = end + (text[end] == ",")
    return tuple(found)


_FALSY = frozenset(("false", "0", '""', "null", "[]", "{}"))


@lru_cache(1024)
def defaults(opcode: str) -> dict[str, object]:
    """Return the values that say no more than an absent key, for the keys of an opcode that may be absent."""
    known = vocabulary.opcode_keys(opcode)
    return {key.name: key.default for key in known if key.required is False and key.default is not None}


@lru_cache(4096)
def _same(raw: str, default: object) -> bool:
    try:
        found = json.loads(raw)
    except ValueError:
        return False
    if isinstance(default, tuple):
        return found == list(default)
    return found == default and isinstance(found, bool) == isinstance(default, bool)


def _shown(found: Any) -> str:
    formula = expression(found)
    if formula is not None:
        return formula
    if isinstance(found, str):
        return name(found)
    if isinstance(found, list):
        return f"[{','.join(_item(item) for item in found)}]"
    return _item(found)


def _item(found: Any) -> str:
    """Show a part of a list or an object."""
    if isinstance(found, dict):
        formula = expression(found)
        if formula is not None:
            return formula
        return "{" + ",".join(f"{name(key)}:{_item(part)}" for key, part in found.items()) + "}"
    if isinstance(found, list):
        return f"[{','.join(_item(part) for part in found)}]"
    return name(found) if isinstance(found, str) else json.dumps(found)


def expression(found: Any) -> str | None:
    """Return an expression as a formula, or None for what is no expression of a known form.

    Examples
    --------
    >>> i = {"kind": "AffIVKind", "axis": "i"}
    >>> expression({"kind": "AffExprKind", "terms": [{"idx": i, "coeff": 128}], "c": -1})
    '128*i-1'
    >>> expression({"kind": "FloorDivKind", "numer": {"terms": [{"AxisLabel": "j", "coef": 1}], "c": 2}, "denom": 4})
    '(j+2)//4'
    """
    if not isinstance(found, dict):
        return None
    try:
        return _formula(found)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _formula(e: Any) -> str:
    match e.get("kind"):
        case "AffExprKind":
            return _sum([(_formula(term["idx"]), term["coeff"]) for term in e["terms"]], e["c"])
        case "AffIVKind":
            return name(e["axis"])
        case "ShardIDKind":
            return "shard"
        case "IntRuntimeValueKind":
            return f"%{name(e['regref'])}"
        case "SumKind":
            return _sum([(_formula(term), 1) for term in e["terms"]], 0)
        case "MultKind":
            return _sum([(_formula(e["var"]), e["scale"])], 0)
        case "FloorDivKind":
            return f"{_grouped(_formula(e['numer']))}//{e['denom']}"
        case "ModuloKind" | "CCModKind":
            return f"{_grouped(_formula(e['numer']))}%{e['denom']}"
        case "CCDivKind":
            return f"ccdiv({_formula(e['numer'])},{e['denom']},{e['replica_groups_id']})"
        case "CCGetRankKind":
            return f"rank({e['iteration_id']},{e['channel_id']})"
        case "IndirectArgId":
            return f"index({e['arg_id']})"
        case None:
            return _old_formula(e)
        case other:
            raise KeyError(other)


def _old_formula(e: Any) -> str:
    """Return an expression of version 1 as a formula."""
    body = _sum([(name(term["AxisLabel"]), term["coef"]) for term in e["terms"]], e["c"])
    match e.get("op"):
        case None:
            return body
        case "Div":
            return f"{_grouped(body)}//{e['op_param']}"
        case "Mod":
            return f"{_grouped(body)}%{e['op_param']}"
        case other:
            return f"{name(other)}({body},{e.get('op_param')})"


def _grouped(formula: str) -> str:
    return formula if re.fullmatch(r"%?[\w.]+|\".*\"", formula) else f"({formula})"


def _sum(terms: list[tuple[str, Any]], constant: Any) -> str:
    text = ""
    for formula, factor in terms:
        part = formula if factor == 1 else f"{'-' if factor == -1 else f'{factor:d}*'}{_grouped(formula)}"
        text += part if not text or part.startswith("-") else f"+{part}"
    if constant or not text:
        text += f"{constant:+d}" if text else f"{constant:d}"
    return text
