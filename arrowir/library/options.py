"""Options of library kernels: what a kernel declares, and what a call-site says (rule B3).

A call-site gives options as members of its own (`norm_type`) and as pairs of text under `kernel_attrs`. Both are read
with the types that the kernel declares.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

from arrowir.attributes import COMMON
from arrowir.diagnostics import OptionError
from arrowir.library.status import KernelError

Kind: TypeAlias = Literal["bool", "int", "float", "str"]
Value: TypeAlias = bool | int | float | str | None

STRUCTURE = frozenset(("kernel_name", "srcs_shape", "dsts_shape", "kernel_attrs", "sb_buf_shape", "psum_buf_shape"))
"""The members that say which kernel it is and what it works on."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a kernel.

    Parameters
    ----------
    name
        What call-sites call it.
    kind
        The type of its values.
    default
        The value where a call-site gives none.
    meaning
        What it says, with the unit.
    choices
        For an option of kind ``"int"`` that is one of several: the number of each by name. A call-site may give either;
        the kernel gets the name.
    least
        The smallest number that is taken.

    Raises
    ------
    OptionError
        If the declaration says what no call-site could give: an unknown kind, a default that is no such value, numbers
        of choices for another kind than ``"int"``.

    Examples
    --------
    >>> Option("eps", "float", 1e-6, "what is added", least=0).read("1e-5")
    1e-05
    >>> Option("act_fn", "int", "SiLU", "the function", choices={"SiLU": 0, "GELU": 1}).read(1)
    'GELU'
    """

    name: str
    kind: Kind
    default: Value
    meaning: str
    choices: Mapping[str, int] | None = None
    least: float | None = None

    def __post_init__(self) -> None:
        """Check the declaration."""
        if problem := self._problem():
            raise OptionError(f"option {self.name!r:.60} of a library kernel {problem}")

    def _problem(self) -> str:
        """Say what is wrong with the declaration; nothing where it is sound."""
        name, choices, least = cast("Any", self.name), cast("Any", self.choices), cast("Any", self.least)
        if not isinstance(name, str) or not name:
            return "has no name: it takes text that is not empty"
        if name in STRUCTURE or name in COMMON:
            return "has the name of a member that every call-site has; choose another one"
        if self.kind not in get_args(Kind):
            return f"is of the kind {self.kind!r:.60}; there are {', '.join(f'`{kind}`' for kind in get_args(Kind))}"
        if choices is not None and (
            self.kind != "int"
            or not isinstance(choices, Mapping)
            or not choices
            or not all(isinstance(key, str) and type(number) is int for key, number in choices.items())  # type: ignore[reportUnknownVariableType]
        ):
            return f"has the choices {choices!r:.60}; expected an option of the kind `int`, and numbers by name"
        if least is not None and (self.kind not in ("int", "float") or type(least) not in (int, float)):
            return f"has the least value {least!r:.60}; expected a number, of an option of the kind `int` or `float`"
        return "" if self._holds_default() else f"has the default {self.default!r:.60}; expected {self.takes}"

    def _holds_default(self) -> bool:
        """Tell whether the default, where there is one, is a value in the option's own type, as kernels get it."""
        default = self.default
        if default is None:
            return True
        if self.choices is not None:
            return isinstance(default, str) and default in self.choices
        if isinstance(default, str) != (self.kind == "str"):
            return False
        try:
            self.read(default)
        except KernelError:
            return False
        return True

    @property
    def takes(self) -> str:
        """What values it takes, in words."""
        if self.choices is not None:
            return ", ".join(f"{name} ({number})" for name, number in self.choices.items())
        return f"{self.kind} of at least {self.least:g}" if self.least is not None else self.kind

    def read(self, value: object) -> Value:
        """Return a value as a call-site writes it, a JSON scalar or text, in the option's type.

        Raises
        ------
        KernelError
            If it is of another type, or out of range (`bad_kernel_option`).
        """
        found = self._choice(value) if self.choices is not None else _scalar(value, self.kind)
        small = self.least is not None and isinstance(found, int | float) and not found >= self.least
        if found is None or small:
            raise KernelError("bad_kernel_option", f"option `{self.name}` takes {self.takes}, got {value!r:.60}")
        return found

    def _choice(self, value: object) -> str | None:
        assert self.choices is not None
        if isinstance(value, str) and value in self.choices:
            return value
        number = _scalar(value, "int")
        return next((name for name, known in self.choices.items() if known == number and number is not None), None)


_SPELLED_BOOLS = {"true": True, "false": False, "True": True, "False": False, "1": True, "0": False}


def _scalar(value: object, kind: Kind) -> Value:
    """Return a JSON scalar, or what a text spells, in a type; None if it is of another one."""
    if kind == "str":
        return value if isinstance(value, str) else None
    if kind == "bool":
        return _SPELLED_BOOLS.get(value) if isinstance(value, str) else value if isinstance(value, bool) else None
    if isinstance(value, str):
        try:
            value = int(value) if kind == "int" else float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind == "int":
        return value if isinstance(value, int) else None
    return float(value) if math.isfinite(value) else None


@dataclass(frozen=True, slots=True)
class _Member:
    """A member that every call-site of a BIR kernel may have."""

    kinds: tuple[Kind, ...]
    neutral: tuple[object, ...] | None
    """Values that ask a kernel for nothing; None: any value does."""


MEMBERS: dict[str, _Member] = {
    "auto_cast": _Member(("str", "bool"), None),
    "auto_cast_type": _Member(("str",), None),
    "fused_rmsnorm": _Member(("bool",), None),
    "is_causal": _Member(("bool",), (False,)),
    "lnc_size": _Member(("int",), (1,)),
    "lower_bound": _Member(("float",), (0.0,)),
    "norm_type": _Member(("int",), (0,)),
    "output_layout": _Member(("int",), (0,)),
    "quant_kernel": _Member(("bool",), (False,)),
    "store_add": _Member(("bool",), (False,)),
}
"""The members of a call-site that say something to some kernels; a kernel that heeds one has an option of its name."""


def read_options(kernel: str, options: Sequence[Option], members: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values of a kernel's options at a call-site.

    Parameters
    ----------
    kernel
        The kernel's name, for messages.
    options
        What it declares.
    members
        The op-specific members of the call-site.

    Raises
    ------
    KernelError
        For an option that is not known, a value of the wrong type, or two that disagree (`bad_kernel_option`).

    Examples
    --------
    >>> eps = Option("eps", "float", 1e-6, "what is added")
    >>> read_options("K", [eps], {"kernel_name": "K", "kernel_attrs": [["eps", "0.5"]], "is_causal": False})
    {'eps': 0.5}
    """
    known = {option.name: option for option in options}
    found: dict[str, Value] = {}
    for where, name, value in (*_own(members), *_attributes(members.get("kernel_attrs"))):
        read = _read(kernel, known, where, name, value)
        if name not in known or value is None:
            continue
        if name in found and found[name] != read:
            raise KernelError("bad_kernel_option", f"option `{name}` is given twice, as {found[name]!r} and {read!r}")
        found[name] = read
    return {name: found.get(name, option.default) for name, option in known.items()}


def _own(members: Mapping[str, Any]) -> Iterable[tuple[str, str, Any]]:
    return [("the call-site", key, v) for key, v in members.items() if key not in STRUCTURE and key not in COMMON]


def _attributes(given: Any) -> Iterable[tuple[str, str, Any]]:
    """Return the pairs under `kernel_attrs`: a list of pairs of text, or an object."""
    pairs: Any = list(given.items()) if isinstance(given, dict) else [] if given is None else given
    good = isinstance(pairs, list) and all(
        isinstance(p, list | tuple) and len(p) == 2 and isinstance(p[0], str) for p in pairs
    )
    if not good:
        raise KernelError("bad_kernel_option", f"`kernel_attrs` takes pairs of name and value, got {given!r:.60}")
    return [("`kernel_attrs`", name, value) for name, value in pairs]


def _read(kernel: str, known: Mapping[str, Option], where: str, name: str, value: Any) -> Value:
    """Return one value in its type."""
    if name in known:
        return None if value is None else known[name].read(value)
    member = MEMBERS.get(name)
    if member is None:
        listed = ", ".join(f"`{n}`" for n in known) or "none"
        raise KernelError(
            "bad_kernel_option", f"{where} has the option `{name}`, kernel `{kernel}` has not; its options are {listed}"
        )
    if value is None:
        return None
    read = next((v for kind in member.kinds if (v := _scalar(value, kind)) is not None), None)
    if read is None:
        takes = " or ".join(member.kinds)
        raise KernelError("bad_kernel_option", f"option `{name}` takes {takes}, got {value!r:.60}")
    if member.neutral is not None and read not in member.neutral:
        raise KernelError(
            "bad_kernel_option", f"{where} asks for `{name}` = {read!r}, which kernel `{kernel}` does not do"
        )
    return read
