"""Affine expressions in pooled text: what is constant in them is worked out, for many rows at once (rule U5).

A text is looked at once. What it computes becomes a `Program`: steps in the order in which a careful reader would take
them, each on the results of earlier ones. The numbers in the text are no part of the steps, so that texts of one form
share them. A program runs over arrays, with one cell for each row and loop iteration, and says where which step failed.
Integers are exact: what leaves 64 bits fails.

What is left when an expression needs a value of run time is a `Template`: text with holes for results of the program.
"""

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from arrowir import extras
from arrowir.exact import LARGEST, SMALLEST, Value, exactly, value_of
from arrowir.store import Array
from arrowir.vocabulary import VOCABULARIES

RUNTIME_KINDS = frozenset({"IntRuntimeValueKind", "IndirectArgId", "CCGetRankKind"})
"""Nodes whose value is known at run time only."""

LOWERED = "LoweredAxis"
"""The kind of a node that stands for the axis of a loop of branches, while loops are unrolled: its register holds it.

It is in no file: only a pass puts a placeholder where its register is named.
"""

KINDS = frozenset(VOCABULARIES["expression_kind"].values)

FAULTS = ("", "integer_overflow", "division_by_zero", "unresolved_name", "bad_expression", "runtime_address")
"""Codes of what can go wrong in a step, by number; 0 is nothing."""

EXPLAINED = {
    "integer_overflow": "a value does not fit a signed 64-bit integer",
    "division_by_zero": "it divides by 0",
    "unresolved_name": "it names an axis that is not an enclosing loop's",
    "bad_expression": "it is of an unknown kind, or lacks a member",
    "runtime_address": "its value is known only at run time; give it a constant or the axis of a loop that is unrolled",
}
"""What the faults mean, for messages."""

_MARK = "0.00000000000000010001e"
_LONGEST_INT = 4000


class Literal(str):
    """A number kept as it is written: one with a fraction, or an integer too long to be parsed."""


@dataclass(frozen=True, slots=True)
class Slot:
    """A placeholder in parsed text, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class Hole:
    """A place in parsed text that a result of the program fills: the number of the step."""

    step: int


def _decoder(first: int) -> json.JSONDecoder:
    def number(text: str) -> Literal | Slot:
        return Slot(first + int(text[len(_MARK) :])) if text.startswith(_MARK) else Literal(text)

    def integer(text: str) -> int | Literal:
        return int(text) if len(text) < _LONGEST_INT else Literal(text)

    return json.JSONDecoder(parse_float=number, parse_int=integer, parse_constant=Literal)


def read(text: str, first: int = 0) -> Any:
    """Parse pooled text: placeholders become `Slot`s, numbered from `first`; unusual numbers stay as written."""
    parts = text.split(extras.PLACEHOLDER)
    filled = parts[0] + "".join(f"{_MARK}{k}{part}" for k, part in enumerate(parts[1:]))
    return _decoder(first).decode(filled)


def edited(obj: Mapping[str, Any], changes: Mapping[str, Any], dropped: Container[str] = ()) -> dict[str, Any]:
    """Return an object with members changed, dropped and added (rule F6, by the order of the keys as they were)."""
    keys = list(obj)
    result = {key: changes.get(key, obj[key]) for key in keys if key not in dropped}
    result |= {key: changes[key] for key in sorted(changes) if key not in obj}
    return {key: result[key] for key in sorted(result)} if keys == sorted(keys) else result


def is_integer(value: Any) -> bool:
    """Tell whether a parsed value is an integer (true and false are none)."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_long(value: Any) -> bool:
    """Tell whether a value is an integer too long to be parsed."""
    return isinstance(value, Literal) and value.lstrip("-").isdigit()


def is_version_1(value: Any) -> bool:
    """Tell whether a parsed value has the form of a version 1 expression: terms, and no kind."""
    return isinstance(value, dict) and "kind" not in value and isinstance(value.get("terms"), list)


def is_expression(value: Any) -> bool:
    """Tell whether the value of an attribute is an expression, by its shape."""
    if not isinstance(value, dict):
        return False
    if "kind" in value:
        kind = value["kind"]
        return isinstance(kind, str) and (kind in KINDS or (kind == LOWERED and isinstance(value.get("regref"), Slot)))
    return is_version_1(value) and "c" in value


def holds(value: Any, kind: str) -> bool:
    """Tell whether an expression of a kind stands anywhere in a parsed value (version 1 has it as `op`)."""
    if isinstance(value, list):
        return any(holds(item, kind) for item in value)
    if not isinstance(value, dict):
        return False
    return kind in (value.get("kind"), value.get("op")) or any(holds(item, kind) for item in value.values())


# -- compiling -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Number:
    """An expression whose value is known: the step that computes it."""

    step: int


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of an expression that needs a value of run time."""

    tree: Any
    changed: bool


Step = tuple[Any, ...]
"""An operation and its arguments: `const k`, `given k`, `axis k`, `named text`, `shard`, `fail code`, or an
arithmetic one on two earlier steps; one with `_wide` has a number beyond 64 bits as second argument."""


@dataclass(frozen=True)
class Program:
    """What a text computes."""

    steps: tuple[Step, ...]
    constants: tuple[int, ...]
    places: tuple[str, ...] = ()
    """For each step the member of the object that it belongs to."""
    results: tuple[int, ...] = ()
    """Steps that the caller asked for."""


class Compiler:
    """Makes a program of parsed expressions, one after the other."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.constants: list[int] = []
        self.places: list[str] = []
        self.place = ""

    def program(self, results: Sequence[int] = ()) -> Program:
        """Return what has been compiled."""
        return Program(tuple(self.steps), tuple(self.constants), tuple(self.places), tuple(results))

    def add(self, *step: Any) -> int:
        """Add a step and return its number."""
        self.steps.append(step)
        self.places.append(self.place)
        return len(self.steps) - 1

    def fail(self, code: str) -> Number:
        """Add a step that always fails."""
        return Number(self.add("fail", FAULTS.index(code)))

    def constant(self, value: Any) -> int:
        """Add a number of the text, which must be an integer of 64 bits."""
        if _is_long(value):
            return self.fail("integer_overflow").step
        if not is_integer(value):
            return self.fail("bad_expression").step
        if not SMALLEST <= value <= LARGEST:
            return self.fail("integer_overflow").step
        self.constants.append(value)
        return self.add("const", len(self.constants) - 1)

    def arithmetic(self, op: str, left: int, right: Any) -> int:
        """Add an operation of a step and a number of the text."""
        if is_integer(right) and not SMALLEST <= right <= LARGEST:
            return self.add(f"{op}_wide", left, right)
        return self.add(op, left, self.constant(right))

    def value(self, expression: Any) -> int:
        """Compile an expression where an integer is needed; one of run time fails with `runtime_address`."""
        folded = self.fold(expression)
        return folded.step if isinstance(folded, Number) else self.fail("runtime_address").step

    def fold(self, expression: Any) -> Number | Rest:
        """Compile an expression as far as it is constant (rule U5)."""
        if is_integer(expression) or _is_long(expression):
            return Number(self.constant(expression))
        if is_version_1(expression):
            return self._version_1(expression)
        if not is_expression(expression):
            return self.fail("bad_expression")
        match expression["kind"]:
            case "AffExprKind":
                return self._affine(expression)
            case "AffIVKind":
                return Number(self._axis(expression["axis"])) if "axis" in expression else self.fail("bad_expression")
            case "ShardIDKind":
                return Number(self.add("shard"))
            case "SumKind":
                return self._sum(expression)
            case "MultKind":
                return self._child(expression, "var", "mul", "scale")
            case "FloorDivKind":
                return self._child(expression, "numer", "div", "denom")
            case "ModuloKind" | "CCModKind":
                return self._child(expression, "numer", "mod", "denom")
            case "CCDivKind":  # depends on the rank, whatever its numerator is
                return self._child(expression, "numer", None, "")
            case kind if kind == LOWERED:
                return Rest({"kind": "IntRuntimeValueKind", "regref": expression["regref"]}, True)
            case _:
                return Rest(expression, False)

    def fold_in_place(self, expression: Any) -> Rest:
        """Compile an expression that stays an expression, as far as it is constant."""
        folded = self.fold(expression)
        return folded if isinstance(folded, Rest) else _constant_form(folded.step, expression)

    def _axis(self, axis: Any) -> int:
        if isinstance(axis, Slot):
            return self.add("axis", axis.number)
        return self.add("named", axis) if isinstance(axis, str) else self.fail("unresolved_name").step

    def _affine(self, expression: dict[str, Any]) -> Number | Rest:
        """Constant `idx` terms go into `c`."""
        constant = self.constant(expression.get("c") or 0)
        kept: list[Any] = []
        folded_any = changed = False
        terms = expression.get("terms") or []
        if not isinstance(terms, list):
            return self.fail("bad_expression")
        for term in terms:
            if not isinstance(term, dict) or "idx" not in term:
                return self.fail("bad_expression")
            index = self.fold(term["idx"])
            if isinstance(index, Rest):
                kept.append(edited(term, {"idx": index.tree}) if index.changed else term)
                changed |= index.changed
                continue
            if "coeff" not in term:
                return self.fail("bad_expression")
            constant = self.add("add", constant, self.arithmetic("mul", index.step, term["coeff"]))
            folded_any = True
        if not kept:
            return Number(constant)
        if folded_any:
            return Rest(edited(expression, {"terms": kept, "c": Hole(constant)}), True)
        return Rest(edited(expression, {"terms": kept}) if changed else expression, changed)

    def _sum(self, expression: dict[str, Any]) -> Number | Rest:
        """The constants of a sum become one where the first stood; `n_terms` follows."""
        written = expression.get("terms") or []
        if not isinstance(written, list):
            return self.fail("bad_expression")
        folded = [self.fold(term) for term in written]
        numbers = [place for place, term in enumerate(folded) if isinstance(term, Number)]
        total = self.constant(0)
        for place in numbers:
            total = self.add("add", total, folded[place].step)  # type: ignore[union-attr]
        if len(numbers) == len(folded):
            return Number(total)
        terms: list[Any] = []
        changed = len(numbers) > 1
        for place, term in enumerate(folded):
            if isinstance(term, Rest):
                terms.append(term.tree)
                changed |= term.changed
            elif place == numbers[0]:
                form = _constant_form(total, written[place] if len(numbers) == 1 else None)
                terms.append(form.tree)
                changed |= form.changed
        changes: dict[str, Any] = {"terms": terms}
        if len(terms) != len(written) and "n_terms" in expression:
            changes["n_terms"] = len(terms)
        return Rest(edited(expression, changes) if changed else expression, changed)

    def _child(self, expression: dict[str, Any], key: str, op: str | None, operand: str) -> Number | Rest:
        """Compile a node with one child: its value, or the node with its child folded."""
        if key not in expression:
            return self.fail("bad_expression")
        child = self.fold(expression[key])
        if isinstance(child, Number):
            if op is not None:
                if operand not in expression:
                    return self.fail("bad_expression")
                return Number(self.arithmetic(op, child.step, expression[operand]))
            child = _constant_form(child.step, expression[key])
        return Rest(edited(expression, {key: child.tree}) if child.changed else expression, child.changed)

    def _version_1(self, expression: dict[str, Any]) -> Number | Rest:
        total = self.constant(expression.get("c") or 0)
        for term in expression["terms"]:
            if not isinstance(term, dict) or "AxisLabel" not in term or "coef" not in term:
                return self.fail("bad_expression")
            product = self.arithmetic("mul", self._axis(term["AxisLabel"]), term["coef"])
            total = self.add("add", total, product)
        match expression.get("op"):
            case None:
                return Number(total)
            case "Div":
                return Number(self.arithmetic("div", total, expression.get("op_param") or 0))
            case "Mod":
                return Number(self.arithmetic("mod", total, expression.get("op_param") or 0))
            case "CCGetRank" | "IndirectArgId":
                if not expression["terms"]:
                    return Rest(expression, False)
                return Rest(edited(expression, {"terms": [], "c": Hole(total)}), True)
            case _:
                return self.fail("bad_expression")


def _constant_form(step: int, written: Any) -> Rest:
    """Return a constant where an expression has to stand; one that was affine before keeps its own members."""
    if is_integer(written):
        return Rest(written, False)
    if isinstance(written, dict) and written.get("kind") == "AffExprKind":
        if not written.get("terms"):
            return Rest(written, False)
        return Rest(edited(written, {"terms": [], "c": Hole(step)}), True)
    if is_version_1(written):
        if not written["terms"] and not written.get("op"):
            dropped = edited(written, {}, ("op", "op_param"))
            return Rest(dropped, len(dropped) != len(written))
        return Rest(edited(written, {"terms": [], "c": Hole(step)}, ("op", "op_param")), True)
    return Rest({"c": Hole(step), "kind": "AffExprKind", "terms": []}, True)


# -- text with holes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Template:
    """New text of an object: pieces, and between them the results of a program's steps."""

    program: Program
    pieces: tuple[str, ...]
    kept: tuple[int, ...]
    """Numbers of the placeholders that are still in the text."""
    changed: bool
    """Whether the text differs from the old one."""

    def text(self, values: Sequence[int]) -> str:
        """Return the text with the holes filled; an object that became empty is the empty text."""
        out = self.pieces[0] + "".join(f"{value}{piece}" for value, piece in zip(values, self.pieces[1:], strict=True))
        return "" if out == "{}" else out


class TextWriter:
    """Writes text with holes: texts as they are, parsed values in compact form."""

    def __init__(self) -> None:
        self.pieces: list[list[str]] = [[]]
        self.holes: list[int] = []
        self.kept: list[int] = []

    def put(self, text: str, first: int = 0) -> None:
        """Write text as it is; `first` is the number of its first placeholder."""
        self.pieces[-1].append(text)
        self.kept.extend(range(first, first + text.count(extras.PLACEHOLDER)))

    def put_value(self, value: Any) -> None:
        """Write a parsed value."""
        match value:
            case Hole():
                self.holes.append(value.step)
                self.pieces.append([])
            case Slot():
                self.put(extras.PLACEHOLDER, value.number)
            case Literal():
                self.put(value)
            case dict():
                for place, (key, item) in enumerate(value.items()):
                    self.put(f"{',' if place else '{'}{quoted(key)}:")
                    self.put_value(item)
                self.put("}" if value else "{}")
            case list():
                for place, item in enumerate(value):
                    self.put("," if place else "[")
                    self.put_value(item)
                self.put("]" if value else "[]")
            case str():
                self.put(quoted(value))
            case _:
                self.put(extras.dump(value))

    def template(self, compiler: "Compiler", changed: bool) -> Template:
        """Return what has been written; the results of its program fill the holes."""
        pieces = tuple("".join(parts) for parts in self.pieces)
        return Template(compiler.program(self.holes), pieces, tuple(self.kept), changed)


def quoted(text: str) -> str:
    """Return a JSON string; lone surrogates, which UTF-8 does not have, stay escaped."""
    plain = extras.dump(text)
    return plain if plain.isascii() or plain.encode(errors="replace").decode() == plain else json.dumps(text)


def fold_attribute(compiler: Compiler, value: Any) -> Rest:
    """Compile every expression in the value of an attribute, at any depth; each becomes its integer (rule U6)."""
    if is_expression(value):
        folded = compiler.fold(value)
        return folded if isinstance(folded, Rest) else Rest(Hole(folded.step), True)
    if isinstance(value, dict):
        members = {key: fold_attribute(compiler, item) for key, item in value.items()}
        changed = any(rest.changed for rest in members.values())
        return Rest({key: rest.tree for key, rest in members.items()} if changed else value, changed)
    if isinstance(value, list):
        items = [fold_attribute(compiler, item) for item in value]
        changed = any(rest.changed for rest in items)
        return Rest([rest.tree for rest in items] if changed else value, changed)
    return Rest(value, False)


@lru_cache(65536)
def attributes(text: str, excluded: frozenset[str], dropped: frozenset[str]) -> Template:
    """Compile the text members of an instruction (rule U6).

    Parameters
    ----------
    text
        The members that no column models, as JSON with placeholders; empty for none.
    excluded
        Members that are no attributes and stay as they are.
    dropped
        Members that are left out.

    Returns
    -------
    Template
        The new text. Its program has no steps where there is nothing to compute.
    """
    compiler, writer = Compiler(), TextWriter()
    changed = False
    first, separator = 0, "{"
    for key, value in extras.members(text) if text else ():
        slots = value.count(extras.PLACEHOLDER)
        if key in dropped:
            changed = True
        else:
            writer.put(f"{separator}{extras.dump(key)}:")
            separator = ","
            # Quick look first: most values hold no expression.
            rest = Rest(None, False)
            if key not in excluded and ('"kind"' in value or '"terms"' in value):
                compiler.place = key
                rest = fold_attribute(compiler, read(value, first))
            if rest.changed:
                writer.put_value(rest.tree)
                changed = True
            else:
                writer.put(value, first)
        first += slots
    writer.put("{}" if separator == "{" else "}")
    return writer.template(compiler, changed)


# -- running -------------------------------------------------------------------------------------------------


Axis = Callable[[int | str], tuple[Array, Array | None]]
"""Gives the values of an axis, by placeholder number or by name, and where there is none."""


@dataclass
class Run:
    """The results of a program in some cells."""

    values: list[Value]
    fault: Array
    """For each cell the number of what went wrong first (`FAULTS`), 0 if nothing did."""
    at: Array
    """For each cell the step that failed, where one did."""

    def whole(self, step: int) -> Array:
        """Return the results of a step, one for each cell."""
        data = self.values[step].data
        return np.full(len(self.fault), data, np.int64) if isinstance(data, int) else data


def run(
    program: Program,
    cells: int,
    *,
    axis: Axis,
    shard_id: int,
    constants: Sequence[Array | int] | None = None,
    given: Sequence[tuple[Array | int, Array | None]] = (),
) -> Run:
    """Run a program for many cells at once.

    Parameters
    ----------
    program
        What to compute.
    cells
        How many results there are.
    axis
        Gives the values of the loops' axes.
    shard_id
        The value of the shard.
    constants
        The numbers of the text, for each cell or for all; those of the program itself by default.
    given
        Other numbers that the program asks for, each with a mask of the cells where it does not fit 64 bits.

    Returns
    -------
    Run
        Results, and what failed where. A cell that has failed keeps its first fault.
    """
    made = Run([], np.zeros(cells, np.int8), np.zeros(cells, np.int32))
    numbers = program.constants if constants is None else constants

    def blame(mask: Any, code: str) -> None:
        failed = (made.fault == 0) & mask
        made.fault[failed] = FAULTS.index(code)
        made.at[failed] = len(made.values)

    for step in program.steps:
        match step[0]:
            case "const":
                result = value_of(numbers[step[1]])
            case "given":
                data, bad = given[step[1]]
                if bad is not None:
                    blame(bad, "integer_overflow")
                result = value_of(data)
            case "axis" | "named":
                data, missing = axis(step[1])
                if missing is not None:
                    blame(missing, "unresolved_name")
                result = value_of(data)
            case "shard":
                result = value_of(shard_id)
                if not SMALLEST <= shard_id <= LARGEST:
                    blame(True, "integer_overflow")
                    result = value_of(0)
            case "fail":
                blame(True, FAULTS[step[1]])
                result = value_of(0)
            case op:
                left = made.values[step[1]]
                right = value_of(step[2]) if op.endswith("_wide") else made.values[step[2]]
                op = op.removesuffix("_wide")
                if op in ("div", "mod"):
                    zero = right.data == 0
                    if np.any(zero):
                        blame(zero, "division_by_zero")
                        right = value_of(1 if isinstance(right.data, int) else np.where(zero, 1, right.data))
                result, over = exactly(op, left, right)
                if over is not None:
                    blame(over, "integer_overflow")
        made.values.append(result)
    return made


def constant(expression: Any) -> int | None:
    """Return the value of an expression that no axis, shard or run time value has a part in; None for others.

    Examples
    --------
    >>> constant({"kind": "MultKind", "var": {"kind": "AffExprKind", "terms": [], "c": 2}, "scale": 3})
    6
    >>> constant({"kind": "ShardIDKind", "ub": 2}) is None
    True
    """
    compiler = Compiler()
    folded = compiler.fold(expression)
    if isinstance(folded, Rest) or any(step[0] in ("axis", "named", "shard") for step in compiler.steps):
        return None
    result = run(compiler.program(), 1, axis=lambda _: (np.zeros(1, np.int64), None), shard_id=0)
    return None if result.fault[0] else int(result.whole(folded.step)[0])
