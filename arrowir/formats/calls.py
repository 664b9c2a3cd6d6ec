"""Calls and their argument maps: which function is called, and what each entry binds (rules R4, N4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from arrowir import vocabulary as vocab
from arrowir.formats.values import Json, Wrong, check_name, expect, kind_of

if TYPE_CHECKING:
    from arrowir.formats.bir_reader import BirReader, Unit

_CALLEE = {"NKIKernel": "func", "Call": "target"}
_MAPS = {
    "NKIKernel": (("func_args", vocab.DIRECTION_IN), ("func_outs", vocab.DIRECTION_OUT)),
    "Call": (("arguments", vocab.DIRECTION_ARGUMENT),),
}
_ANY = "location, set or register"


@dataclass(slots=True)
class _Call:
    """A call as it is written."""

    instruction: int
    unit: "Unit"
    opcode: str
    name: str | None
    entries: list[tuple[int, str, str, str]]
    """Direction, formal, actual, JSON path."""


class Calls:
    """The calls of a module. They are resolved when all functions are there."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._callers: dict[str, set[int]] = {}
        """Functions with call-sites, by the name that these give."""

    def add(self, obj: Json, opcode: Any, instruction: int, unit: "Unit", *, surrogates: bool) -> None:
        """Keep the call that an instruction is."""
        key = _CALLEE[opcode]
        name = obj.get(key)
        if name is not None:
            expect(name, str, key)
        entries = [
            (direction, formal, actual, f"{key}.{formal}")
            for key, direction in _MAPS[opcode]
            for formal, actual in _pairs(obj.get(key), key)
        ]
        if surrogates:
            check_name(name or "", key)
            for _, formal, actual, path in entries:
                check_name(formal + actual, path)
        self._calls.append(_Call(instruction, unit, opcode, name, entries))

    def finish(self, reader: "BirReader") -> None:
        """Make the rows."""
        for call in self._calls:
            if call.opcode == "NKIKernel" and call.name is not None and call.unit.queue < 0:
                self._callers.setdefault(call.name, set()).add(call.unit.function)
        for call in self._calls:
            callees = [] if call.name is None else self._callees(reader, call.name)
            callee = callees[0] if callees else -1
            if call.name is not None:
                name = -1
                if callee < 0:
                    name = reader.members.name_id(call.name, _CALLEE[call.opcode])
                    self._unresolved(reader, call, "function", call.name)
                reader.append("calls", (call.instruction, callee, len(callees), name))
            for entry in call.entries:
                self._argument(reader, call, callee, *entry)

    def _callees(self, reader: "BirReader", name: str) -> list[int]:
        """Return the functions that a call may mean: kernel functions, else others (rule R4)."""
        named = reader.functions_named(name)
        apart = [row for row in named if reader.functions[row].apart]
        callers = self._callers.get(name, set())
        kernels = [row for row in named if row > 0 and name != "main" and callers - {row}]
        return apart or kernels or named

    def _argument(
        self, reader: "BirReader", call: _Call, callee: int, direction: int, formal: str, actual: str, path: str
    ) -> None:
        formal_set = formal_register = location = own = register = name = -1
        if callee >= 0:
            storage = reader.functions[callee].storage
            side = storage.outputs if direction == vocab.DIRECTION_OUT else storage.inputs
            formal_set = side.parameters.get(formal, -1)
            if formal_set < 0:
                formal_register = storage.registers.get(formal, -1)
                if formal_register < 0:
                    self._unresolved(reader, call, "parameter of the callee", formal)
        storage = call.unit.storage
        side = storage.outputs if direction == vocab.DIRECTION_OUT else storage.inputs
        ambiguous = ""
        if formal_register < 0:
            location = side.locations.get(actual, -1)
            if location >= 0:
                ambiguous = "location" if actual in storage.repeated_locations else ""
            elif (own := side.sets.get(actual, -1)) >= 0:
                ambiguous = "set" if actual in storage.repeated_sets else ""
                inside = storage.inside.get(own, ())
                location = inside[0] if len(inside) == 1 else -1
        if location < 0 and own < 0:
            register = storage.registers.get(actual, -1)
            ambiguous = "register" if actual in storage.repeated_registers else ""
        if location < 0 and own < 0 and register < 0:
            name = reader.members.name_id(actual, path)
            self._unresolved(reader, call, "register" if formal_register >= 0 else _ANY, actual)
        elif ambiguous:
            row = {"location": location, "set": own, "register": register}[ambiguous]
            reader.findings.add_ambiguous(call.unit.function, ambiguous, actual, row)
        reader.append(
            "call_arguments",
            (
                call.instruction,
                direction,
                reader.members.name_id(formal, path),
                formal_set,
                formal_register,
                location,
                own,
                register,
                name,
            ),
        )

    def _unresolved(self, reader: "BirReader", call: _Call, kind: str, name: str) -> None:
        reader.findings.add_unresolved(call.unit.function, kind, name, ("instructions", call.instruction))


def _pairs(value: Any, key: str) -> list[tuple[str, str]]:
    """Return the entries of an argument map, an object or a list of pairs."""
    if value is None:
        return []
    if isinstance(value, dict):
        return [(formal, expect(actual, str, f"{key}.{formal}")) for formal, actual in value.items()]
    if not isinstance(value, list):
        raise Wrong(key, f"expected an object or a list of pairs, found {kind_of(value)}")
    pairs: list[tuple[str, str]] = []
    for place, pair in enumerate(value):
        path = f"{key}[{place}]"
        if len(expect(pair, list, path)) != 2:
            raise Wrong(path, f"expected a pair of names, found {len(pair)} item{'s' * (len(pair) != 1)}")
        pairs.append((expect(pair[0], str, f"{path}[0]"), expect(pair[1], str, f"{path}[1]")))
    return pairs
