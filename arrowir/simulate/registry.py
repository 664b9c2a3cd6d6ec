"""The registry: which function executes an opcode.

Each file in `arrowir/simulate/opcodes` registers the opcodes of one family; they are imported when the first
instruction is looked up.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from arrowir import vocabulary

if TYPE_CHECKING:
    from arrowir.simulate.step import Step

Basis: TypeAlias = Literal["certain", "strong", "inferred"]
"""How well the semantics are known."""

Count: TypeAlias = int | tuple[int, int | None]
"""A number of operands, or the least and the most; None for any number."""

NEUTRAL = frozenset(
    (
        *("queue", "dge_type", "duplicate", "dma_qos", "use_gpsimd_dma", "remote_notification", "can_read_uninit"),
        *("runtime_semaphore_wait_value", "num_tiling_dimensions"),
    )
)
"""Keys that say how an instruction is carried out and not what it computes, or that are handled for all opcodes."""

_SPELLED = {"in": "ins", "out": "outs", "indirection": "indirection_ins"}


@dataclass(frozen=True)
class Handler:
    """How an opcode is executed."""

    run: "Callable[[Step], None]"
    opcodes: tuple[str, ...]
    counts: Mapping[str, tuple[int, int | None]]
    """Least and most operands by role."""
    keys: frozenset[str]
    """Op-specific keys that it takes into account."""
    elementwise: bool
    """Whether element number i of each output depends on elements number i of the inputs alone."""
    control: bool
    """Whether it changes where execution goes on; it is not traced."""
    basis: Basis

    def problem(self, opcode: str, counts: Mapping[str, int], members: Mapping[str, Any]) -> str:
        """Say why an instruction is not one that this models; nothing when it is."""
        for role, (least, most) in self.counts.items():
            if counts[role] < least or (most is not None and counts[role] > most):
                expected = f"{least}" if least == most else f"{least} or more" if most is None else f"{least} to {most}"
                return f"expected {expected} operands in `{_SPELLED[role]}`, found {counts[role]}"
        for name, default in declared_keys(opcode).items():
            if name in self.keys or name in NEUTRAL or name not in members:
                continue
            value = members[name]
            if value not in (None, default, [], {}):
                return f"`{name}` of {value!r:.60} is not modelled for `{opcode}`"
        return ""


_handlers: dict[str, Handler] = {}
_refused: dict[str, str] = {}
"""Why opcodes that are known are not modelled."""


@cache
def declared_keys(opcode: str) -> dict[str, Any]:
    """Return the op-specific keys of an opcode in all builds, with what absence stands for."""
    older = {key.name: key.default for key in vocabulary.opcode_keys(opcode, older=True)}
    newer = {key.name: key.default for key in vocabulary.opcode_keys(opcode)}
    return older | newer


def opcode(
    *opcodes: str,
    ins: Count = 0,
    outs: Count = 0,
    indirection: Count = 0,
    keys: str = "",
    elementwise: bool = False,
    control: bool = False,
    basis: Basis = "certain",
) -> "Callable[[Callable[[Step], None]], Callable[[Step], None]]":
    """Register the function that executes some opcodes.

    Parameters
    ----------
    opcodes
        As files spell them.
    ins, outs, indirection
        How many operands of each role an instruction must have: a number, or the least and the most (None: any number).
    keys
        The op-specific keys that the function takes into account, in one text. An instruction with another declared
        key that is not at its default is refused before the function is called.
    elementwise
        Whether element number i of each output depends on elements number i of the inputs alone. Then unwritten
        elements that may be read (`can_read_uninit`) give unwritten elements, and overlaps of inputs and outputs are
        checked.
    control
        Whether the function changes where execution goes on.
    basis
        How well the semantics are known.

    Returns
    -------
    callable
        A decorator; it returns the function as it is.
    """

    def register(run: "Callable[[Step], None]") -> "Callable[[Step], None]":
        counts = {role: _range(count) for role, count in (("in", ins), ("out", outs), ("indirection", indirection))}
        handler = Handler(run, opcodes, counts, frozenset(keys.split()), elementwise, control, basis)
        if unknown := handler.keys - {key for name in opcodes for key in declared_keys(name)}:
            raise ValueError(f"{opcodes} have no key {sorted(unknown)}")
        for name in opcodes:
            if name in _handlers:
                raise ValueError(f"opcode `{name}` has two handlers")
            _handlers[name] = handler
        return run

    return register


def refuse(*opcodes: str, why: str) -> None:
    """Say why some opcodes are not modelled, for the error that executing one gives."""
    _refused.update(dict.fromkeys(opcodes, why))


def _range(count: Count) -> tuple[int, int | None]:
    return (count, count) if isinstance(count, int) else count


@cache
def _load() -> None:
    from arrowir.simulate import opcodes

    for family in sorted(found.name for found in iter_modules(opcodes.__path__)):
        import_module(f"{opcodes.__name__}.{family}")


def handlers() -> dict[str, Handler]:
    """Return the handler of every opcode that is modelled."""
    _load()
    return dict(_handlers)


def reasons() -> dict[str, str]:
    """Return for opcodes that are known and not modelled why not."""
    _load()
    return {name: why for name, why in _refused.items() if name not in _handlers}


def _refuse(step: "Step") -> None:
    raise AssertionError(step)


def find_handler(name: str) -> Handler:
    """Return the handler of an opcode; of one that is not modelled, a handler that refuses it."""
    _load()
    return _handlers.get(name) or _Unknown(_refuse, (name,), {}, frozenset(), False, False, "certain")


class _Unknown(Handler):
    def problem(self, opcode: str, counts: Mapping[str, int], members: Mapping[str, Any]) -> str:
        why = _refused.get(opcode)
        return f"the opcode `{opcode}` is not modelled{f': {why}' if why else ''}"
