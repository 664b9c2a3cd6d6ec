"""Affine expressions of both versions: evaluation and folding (U5)."""

from dataclasses import dataclass, field
from typing import Any

from tests.oracle.edit import edited, sorted_object
from tests.oracle.graph import Ref, Register
from tests.oracle.outcome import PassFailure

# The forms whose value is known only when the program runs.
RUNTIME_KINDS = ("IntRuntimeValueKind", "IndirectArgId", "CCGetRankKind")
EXPRESSION_KINDS = (
    "AffExprKind",
    "AffIVKind",
    "ShardIDKind",
    "SumKind",
    "MultKind",
    "FloorDivKind",
    "ModuloKind",
    "CCModKind",
    "CCDivKind",
    *RUNTIME_KINDS,
)
SMALLEST, LARGEST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Scope:
    """What is known where an expression stands: the loops' current values and the shard.

    The value of a lowered loop's axis is a register (U2).
    """

    axes: dict[str, int | Register] = field(default_factory=dict)
    shard_id: int = 0

    def inside(self, axis: str, value: int | Register) -> "Scope":
        """U5: the nearest enclosing loop of a name hides the outer ones."""
        return Scope({**self.axes, axis: value}, self.shard_id)


def exact(value: int) -> int:
    """U4: what does not fit 64 bits is an error, never rounded."""
    if not SMALLEST <= value <= LARGEST:
        raise PassFailure("integer_overflow", f"{value} does not fit a signed 64-bit integer")
    return value


def is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_version_1(value: Any) -> bool:
    return isinstance(value, dict) and "kind" not in value and isinstance(value.get("terms"), list)


def is_expression(value: Any) -> bool:
    """Whether an attribute value is an expression, by its shape: `kind`, or the terms of version 1."""
    if not isinstance(value, dict):
        return False
    return value.get("kind") in EXPRESSION_KINDS if "kind" in value else is_version_1(value) and "c" in value


def bad(expression: Any) -> PassFailure:
    kind = expression.get("kind") if isinstance(expression, dict) else expression
    return PassFailure("bad_expression", f"`{kind}` is not a kind of expression; see the list of kinds")


def fold(expression: Any, scope: Scope) -> Any:
    """U5: the integer value of an expression, or what is left of it when it needs a runtime value."""
    if is_integer(expression):
        return exact(expression)
    if is_version_1(expression):
        return fold_version_1(expression, scope)
    if not is_expression(expression):
        raise bad(expression)
    kind = expression["kind"]
    try:
        if kind in RUNTIME_KINDS:
            return expression
        if kind == "AffExprKind":
            return fold_affine(expression, scope)
        if kind == "AffIVKind":
            return axis_value(expression["axis"], scope)
        if kind == "ShardIDKind":
            return exact(scope.shard_id)
        if kind == "SumKind":
            return fold_sum(expression, scope)
        if kind == "MultKind":
            return fold_child(expression, "var", scope, lambda value: value * expression["scale"])
        if kind == "FloorDivKind":
            return fold_child(expression, "numer", scope, lambda value: divide(value, expression["denom"]))
        if kind in ("ModuloKind", "CCModKind"):
            return fold_child(expression, "numer", scope, lambda value: modulo(value, expression["denom"]))
        # CCDivKind depends on the rank, whatever its numerator is.
        return fold_child(expression, "numer", scope, None)
    except KeyError as missing:
        raise PassFailure("bad_expression", f"`{kind}` lacks its member {missing}") from None


def axis_value(axis: str, scope: Scope) -> Any:
    if axis not in scope.axes:
        raise PassFailure("unresolved_name", f"axis `{axis}` is not an enclosing loop's")
    value = scope.axes[axis]
    if isinstance(value, Register):
        return sorted_object(kind="IntRuntimeValueKind", regref=Ref(value.name, value))
    return exact(value)


def divide(value: int, denominator: int) -> int:
    """U5: Python's `//`."""
    if denominator == 0:
        raise PassFailure("division_by_zero", f"{value} is divided by 0")
    return value // denominator


def modulo(value: int, denominator: int) -> int:
    """U5: Python's `%`."""
    if denominator == 0:
        raise PassFailure("division_by_zero", f"{value} modulo 0")
    return value % denominator


def fold_affine(expression: dict[str, Any], scope: Scope) -> Any:
    """U5: constant `idx` terms go into `c`."""
    constant = exact(expression.get("c") or 0)
    kept = []
    folded_any = False
    for term in expression.get("terms") or []:
        index = fold(term["idx"], scope)
        if is_integer(index):
            constant = exact(constant + exact(term["coeff"] * index))
            folded_any = True
        else:
            kept.append(edited(term, {"idx": index}))
    if not kept:
        return constant
    return edited(expression, {"terms": kept, "c": constant} if folded_any else {"terms": kept})


def fold_sum(expression: dict[str, Any], scope: Scope) -> Any:
    """U5: the constants become one constant where the first stood, `n_terms` follows."""
    written = expression.get("terms") or []
    folded = [fold(term, scope) for term in written]
    constants = [place for place, term in enumerate(folded) if is_integer(term)]
    total = 0
    for place in constants:
        total = exact(total + folded[place])
    if len(constants) == len(folded):
        return total
    terms = []
    for place, term in enumerate(folded):
        if place not in constants:
            terms.append(term)
        elif place == constants[0]:
            terms.append(constant_form(total, written[place] if len(constants) == 1 else None))
    changes: dict[str, Any] = {"terms": terms}
    if len(terms) != len(written) and "n_terms" in expression:
        changes["n_terms"] = len(terms)
    return edited(expression, changes)


def fold_child(expression: dict[str, Any], key: str, scope: Scope, value_of: Any) -> Any:
    """U5: the value of a node with one child, or the node with its child folded."""
    child = fold(expression[key], scope)
    if is_integer(child):
        if value_of is not None:
            return exact(value_of(child))
        child = constant_form(child, expression[key])
    return edited(expression, {key: child})


def fold_version_1(expression: dict[str, Any], scope: Scope) -> Any:
    """U5: `terms` by `AxisLabel`, `c`, and an optional `op`; what stays, stays version 1.

    An axis of a lowered loop needs version 2, which has registers.
    """
    labels = [term.get("AxisLabel") for term in expression["terms"] if isinstance(term, dict)]
    if expression.get("op") in (None, "Div", "Mod") and any(isinstance(scope.axes.get(a), Register) for a in labels):
        return fold(newer(expression), scope)
    total = exact(expression.get("c") or 0)
    for term in expression["terms"]:
        if "AxisLabel" not in term or "coef" not in term:
            raise PassFailure("bad_expression", "a term of version 1 needs `AxisLabel` and `coef`")
        total = exact(total + exact(term["coef"] * axis_value(term["AxisLabel"], scope)))
    op = expression.get("op")
    if op is None:
        return total
    if op == "Div":
        return exact(divide(total, expression.get("op_param") or 0))
    if op == "Mod":
        return exact(modulo(total, expression.get("op_param") or 0))
    if op not in ("CCGetRank", "IndirectArgId"):
        raise PassFailure("bad_expression", f"`{op}` is not an operation of a version 1 expression")
    if not expression["terms"]:
        return expression
    return edited(expression, {"terms": [], "c": total})


def newer(expression: dict[str, Any]) -> dict[str, Any]:
    """What an expression of version 1 is in version 2."""
    terms = [
        sorted_object(coeff=term["coef"], idx=sorted_object(kind="AffIVKind", axis=term["AxisLabel"]))
        for term in expression["terms"]
    ]
    total = sorted_object(kind="AffExprKind", terms=terms, c=expression.get("c") or 0)
    if expression.get("op") is None:
        return total
    kind = "FloorDivKind" if expression["op"] == "Div" else "ModuloKind"
    return sorted_object(kind=kind, numer=total, denom=expression.get("op_param") or 0)


def constant_form(value: int, written: Any) -> Any:
    """U5: a constant where an expression has to stand; an affine expression keeps its own members."""
    if is_integer(written):
        return written
    if isinstance(written, dict) and written.get("kind") == "AffExprKind":
        return edited(written, {"terms": [], "c": value}) if written.get("terms") else written
    if is_version_1(written):
        changes = {"terms": [], "c": value} if written["terms"] or written.get("op") else {}
        return edited(written, changes, ("op", "op_param"))
    return sorted_object(c=value, kind="AffExprKind", terms=[])


def fold_expression(expression: Any, scope: Scope) -> Any:
    """An expression that stays an expression (an address of a generic access), folded."""
    folded = fold(expression, scope)
    return constant_form(folded, expression) if is_integer(folded) else folded


def evaluate(expression: Any, scope: Scope, code: str) -> int:
    """The value of an expression where only an integer will do; `code` says what a runtime value is there."""
    value = fold(expression, scope)
    if not is_integer(value):
        raise PassFailure(code, "the value is known only at run time; give it a constant or a loop axis")
    return value


def holds(value: Any, kind: str) -> bool:
    """Whether an expression of this kind stands anywhere in a value (version 1 has it as `op`)."""
    if isinstance(value, list):
        return any(holds(item, kind) for item in value)
    if not isinstance(value, dict):
        return False
    return value.get("kind") == kind or value.get("op") == kind or any(holds(each, kind) for each in value.values())


def fold_attribute(value: Any, scope: Scope) -> Any:
    """U6: every expression in an attribute value, at any depth, is replaced by its integer."""
    if is_expression(value):
        return fold(value, scope)
    if isinstance(value, dict):
        return {key: fold_attribute(member, scope) for key, member in value.items()}
    if isinstance(value, list):
        return [fold_attribute(item, scope) for item in value]
    return value
