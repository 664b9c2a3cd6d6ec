"""Expressions over loop axes, registers and the shard, made into functions of a frame once for each place (rule U5)."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from arrowir.diagnostics import SimulationError
from arrowir.exact import LARGEST, SMALLEST
from arrowir.extras import PLACEHOLDER
from arrowir.simulate.program import Reference

if TYPE_CHECKING:
    from arrowir.simulate.frames import Frame

Formula: TypeAlias = "Callable[[Frame], int]"
"""The value of an expression in a frame."""


def formula(value: Any, references: Sequence[Reference]) -> Formula:
    """Return the function that evaluates an expression, or a plain integer.

    Parameters
    ----------
    value
        Parsed text.
    references
        What its placeholders stand for.

    Returns
    -------
    callable
        It raises `SimulationError` where the expression cannot be evaluated, or leaves 64 bits.
    """
    try:
        return _Maker(references).make(value)
    except SimulationError as error:
        return _failing(error.reason)


def _failing(reason: str) -> Formula:
    def fail(frame: "Frame") -> int:
        raise SimulationError(reason)

    return fail


class _Maker:
    def __init__(self, references: Sequence[Reference]) -> None:
        self.references = references

    def make(self, value: Any) -> Formula:
        if isinstance(value, int) and not isinstance(value, bool):
            return _constant(checked(value))
        if not isinstance(value, dict):
            raise SimulationError(f"{value!r:.60} is no integer and no expression")
        kind = value.get("kind")
        if kind is None and isinstance(value.get("terms"), list):
            return self._version_1(value)
        match kind:
            case "AffExprKind":
                terms = [(self.make(member(t, "idx")), _integer(member(t, "coeff"))) for t in terms_of(value)]
                return _linear(_integer(value.get("c") or 0), terms)
            case "AffIVKind":
                return self._named(member(value, "axis"))
            case "IntRuntimeValueKind":
                return self._named(member(value, "regref"))
            case "ShardIDKind":
                return lambda frame: frame.shard_id
            case "SumKind":
                return _linear(0, [(self.make(term), 1) for term in terms_of(value)])
            case "MultKind":
                return _linear(0, [(self.make(member(value, "var")), _integer(member(value, "scale")))])
            case "FloorDivKind":
                return _divided(self.make(member(value, "numer")), member(value, "denom"))
            case "ModuloKind" | "CCModKind":
                return _remainder(self.make(member(value, "numer")), member(value, "denom"))
            case _:
                raise SimulationError(f"an expression of the kind `{kind!s:.60}` is not modelled")

    def _version_1(self, value: Mapping[str, Any]) -> Formula:
        terms = [(self._named(member(t, "AxisLabel")), _integer(member(t, "coef"))) for t in terms_of(value)]
        total = _linear(_integer(value.get("c") or 0), terms)
        match value.get("op"):
            case None:
                return total
            case "Div":
                return _divided(total, value.get("op_param") or 0)
            case "Mod":
                return _remainder(total, value.get("op_param") or 0)
            case other:
                raise SimulationError(f"an expression with the operation `{other!s:.60}` is not modelled")

    def _named(self, name: Any) -> Formula:
        """Return the value of an axis or a register."""
        if not (isinstance(name, str) and name.startswith(PLACEHOLDER)):
            raise SimulationError(f"{name!r:.60} in an expression names nothing")
        reference = self.references[int(name[1:])]
        row = reference.row
        if row < 0:
            raise SimulationError(f"`{reference.name}` in an expression is no enclosing loop's axis and no register")
        if reference.table == "registers":
            return lambda frame: frame.register(row).read()

        def axis(frame: "Frame") -> int:
            if row not in frame.axes:
                raise SimulationError("an expression names the axis of a loop that is not being executed")
            return frame.axes[row]

        return axis


def terms_of(value: Mapping[str, Any]) -> list[Any]:
    """Return the terms of an expression, which may be absent."""
    terms = value.get("terms")
    if terms is not None and not isinstance(terms, list):
        raise SimulationError(f"`terms` in an expression is {terms!r:.60}; expected a list")
    return terms or []


def member(value: Any, name: str) -> Any:
    """Return a member of an expression, or of a term of one."""
    if not isinstance(value, Mapping):
        raise SimulationError(f"{value!r:.60} in an expression is no object with a member `{name}`")
    if name not in value:
        raise SimulationError(f"an expression lacks the member `{name}`: {dict(value)!r:.80}")
    return value[name]


def _constant(value: int) -> Formula:
    return lambda frame: value


def _linear(constant: int, terms: Sequence[tuple[Formula, int]]) -> Formula:
    """Return a sum of multiples; every product and partial sum has to fit 64 bits."""
    if not terms:
        return _constant(checked(constant))

    def total(frame: "Frame") -> int:
        value = constant
        for term, factor in terms:
            value = checked(value + checked(term(frame) * factor))
        return value

    return total


def _divided(numerator: Formula, denominator: Any) -> Formula:
    by = _divisor(denominator)
    return lambda frame: checked(numerator(frame) // by)


def _remainder(numerator: Formula, denominator: Any) -> Formula:
    by = _divisor(denominator)
    return lambda frame: numerator(frame) % by


def _integer(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise SimulationError(f"{value!r:.60} in an expression is no integer")


def _divisor(value: Any) -> int:
    number = _integer(value)
    if number == 0:
        raise SimulationError("an expression divides by 0")
    return number


def checked(value: int) -> int:
    """Return an integer that fits 64 bits; others are refused."""
    if not SMALLEST <= value <= LARGEST:
        raise SimulationError("an expression leaves 64 bits")
    return value
