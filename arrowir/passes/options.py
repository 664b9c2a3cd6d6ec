"""Options of passes: what they are called, of which type they are, and whether a value fits."""

import inspect
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from arrowir.arguments import wrong
from arrowir.diagnostics import ArrowIRError, OptionError
from arrowir.passes.base import Pass

P = TypeVar("P", bound=Pass)

LEAST: Mapping[str, int] = {"max_instructions": 1, "shard_id": 0}
"""The smallest values of options that several passes have (rules O6, U5): one name means one thing in all of them."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a pass."""

    name: str
    type: Any
    """The annotation, resolved."""
    default: Any
    """`dataclasses.MISSING` where there is none."""

    @property
    def type_text(self) -> str:
        """The type as people write it, like ``bool | None``."""
        return spelled(self.type)


def options_of(cls: type[Pass]) -> list[Option]:
    """Return the options of a pass, in the order of its fields."""
    hints = get_type_hints(cls)
    found: list[Option] = []
    for f in fields(cls):
        if f.init:
            default = f.default_factory() if f.default_factory is not MISSING else f.default
            found.append(Option(f.name, hints.get(f.name, Any), default))
    return found


def configured(step: P, options: dict[str, Any]) -> P:
    """Return a pass with some options changed, after a check of their names and types.

    Parameters
    ----------
    step
        The pass.
    options
        New values by name.

    Raises
    ------
    OptionError
        If the pass has no such option, or a value is not of its type, or the pass refuses it.
    """
    if not options:
        return step
    check(step, options)
    try:
        return step.with_options(**options)  # type: ignore[return-value]
    except ArrowIRError:
        raise
    except (TypeError, ValueError) as error:
        raise OptionError(f"pass `{step.name}` refuses {_listed(options)}: {error}") from error


def check(step: Pass, values: Mapping[str, object] | None = None) -> None:
    """Check the types of a pass's options, and that those of `LEAST` are not too small.

    Parameters
    ----------
    step
        The pass.
    values
        Values to check instead of those that it has.

    Raises
    ------
    OptionError
        If a value is not of its type, or too small.
    """
    for option in options_of(type(step)):
        if values is None or option.name in values:
            value = getattr(step, option.name) if values is None else values[option.name]
            least = LEAST.get(option.name)
            small = least is not None and isinstance(value, int) and value < least
            if small or not fits(value, option.type):
                takes = f"{option.type_text} of at least {least}" if small else option.type_text
                raise wrong(f"option `{option.name}` of pass `{step.name}`", takes, value)


def fits(value: object, expected: Any) -> bool:
    """Tell whether a value is of an annotated type; true and false are no integers, integers are floats.

    Examples
    --------
    >>> fits(None, bool | None), fits(1, bool), fits(True, int), fits(1, float), fits("a", Literal["a", "b"])
    (True, False, False, True, True)
    """
    if expected is Any or isinstance(expected, TypeVar):
        return True
    origin, arguments = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in arguments)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in arguments)
    if origin in (tuple, list, set, frozenset, dict):
        return _container_fits(value, origin, arguments)
    if expected is None or expected is type(None):
        return value is None
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return not isinstance(expected, type) or isinstance(value, expected)


def _container_fits(value: object, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if not isinstance(value, origin):
        return False
    if isinstance(value, dict):
        return all(fits(k, arguments[0]) and fits(v, arguments[1]) for k, v in value.items())
    items: list[object] = list(value)  # type: ignore[call-overload]
    if origin is tuple and Ellipsis not in arguments:
        return len(items) == len(arguments) and all(map(fits, items, arguments))
    return all(fits(item, arguments[0]) for item in items)


def spelled(annotation: Any) -> str:
    """Return a type as people write it.

    Examples
    --------
    >>> spelled(bool | None), spelled(Literal["a", "b"])
    ('bool | None', "'a' | 'b'")
    """
    if annotation is None or annotation is type(None):
        return "None"
    if get_origin(annotation) in (Union, types.UnionType):
        return " | ".join(spelled(one) for one in get_args(annotation))
    if get_origin(annotation) is Literal:
        return " | ".join(repr(one) for one in get_args(annotation))
    return inspect.formatannotation(annotation)


def _listed(options: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in options.items())
