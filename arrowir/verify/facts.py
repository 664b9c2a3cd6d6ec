"""What rules ask of a batch: arrays that are worked out once, and instructions grouped by opcode."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from arrowir import extras, schema, vocabulary
from arrowir import vocabulary as vocab
from arrowir.analyse import footprints, live_ranges, naming, overlaps
from arrowir.analyse.footprints import Footprints, has_member
from arrowir.ir import IR
from arrowir.store import Array
from arrowir.verify.operands import Operands
from arrowir.verify.registry import Fill, Found

EXPRESSION = object()
"""Stands for a value of a member that is an expression, about which rules say nothing."""


class Facts:
    """A batch, and what has been found out about it.

    Parameters
    ----------
    ir
        The batch.
    unrolled
        Whether every function counts as unrolled.
    """

    def __init__(self, ir: IR, *, unrolled: bool = False) -> None:
        self.ir, self.all_unrolled = ir, unrolled
        self._groups: dict[tuple[str, ...], Group] = {}
        self._members: dict[str, Member] = {}

    # -- instructions ----

    @cached_property
    def by_opcode(self) -> tuple[Array, Array]:
        """The instructions sorted by opcode, and where each opcode starts."""
        opcode = self.ir.tables["instructions"]["opcode"]
        order = np.argsort(opcode, kind="stable")
        bounds = np.searchsorted(opcode[order], np.arange(len(self.ir.pools.codes["opcode"].texts) + 1))
        return order, bounds

    def has(self, opcodes: Iterable[str]) -> bool:
        """Tell whether an instruction has one of these opcodes."""
        _, bounds = self.by_opcode
        codes = (self.ir.pools.codes["opcode"].find(opcode) for opcode in opcodes)
        return any(code >= 0 and bounds[code] < bounds[code + 1] for code in codes)

    def rows(self, opcodes: Iterable[str]) -> Array:
        """Return the instructions of some opcodes, in order."""
        order, bounds = self.by_opcode
        codes = [self.ir.pools.codes["opcode"].find(opcode) for opcode in opcodes]
        parts = [order[bounds[c] : bounds[c + 1]] for c in codes if c >= 0]
        return np.sort(np.concatenate(parts)) if parts else np.empty(0, np.int64)

    def group(self, *opcodes: str) -> "Group":
        """Return the instructions of some opcodes as a group."""
        if opcodes not in self._groups:
            self._groups[opcodes] = Group(self, opcodes)
        return self._groups[opcodes]

    @cached_property
    def counts(self) -> tuple[Array, Array, Array, Array]:
        """For each instruction the row of its first operand, and the number of inputs, index operands and outputs."""
        operands, rows = self.ir.tables["operands"], self.ir.count("instructions")
        owner, role = operands["instruction_id"], operands["role"]
        every = [np.bincount(owner[role == r], minlength=rows) for r in range(len(vocab.ROLES))]
        first = operands.bounds(rows)[:-1]
        return first, every[vocab.ROLE_IN], every[vocab.ROLE_INDIRECTION], every[vocab.ROLE_OUT]

    @cached_property
    def levels(self) -> Array:
        """Level of the architecture of each module; -1 where it is not known."""
        level = self.ir.array("modules", "arch_level")
        return np.where(level == schema.NULL_INT, -1, level)

    @cached_property
    def module(self) -> Array:
        """The module of each instruction."""
        return self.ir.array("instructions", "module_id")

    def arch(self, what: str, absent: int) -> Array:
        """Return a number of the architecture of each module."""
        found = {a.level: getattr(a, what) for a in vocabulary.ARCHES}
        return np.array([absent if (n := found.get(level)) is None else n for level in self.levels.tolist()], np.int64)

    # -- operands ----

    @cached_property
    def footprints(self) -> Footprints:
        """What each operand touches."""
        return footprints.measure(self.ir)

    @cached_property
    def places(self) -> Array:
        """The number of each operand in its list."""
        return naming.slots(self.ir)

    @cached_property
    def live(self) -> live_ranges.LiveRanges:
        """Live ranges of the locations."""
        return live_ranges.measure(self.ir)

    @cached_property
    def uses(self) -> live_ranges.Uses:
        """Who uses which location."""
        return live_ranges.uses(self.ir)

    @cached_property
    def pairs(self) -> overlaps.Pairs:
        """Locations that share bytes while both are live."""
        return overlaps.measure(self.ir, ranges=self.live)

    @cached_property
    def dynamic(self) -> Array:
        """Which operands have a dynamic access."""
        return has_member(self.ir, "operands", "dynamic_ap_info")

    @cached_property
    def indirect(self) -> Array:
        """Which operands a tensor of indices addresses."""
        return self.test("operands", _is_indirect, '"IndirectArgId"', '"num_tensor_indirect_indices"')

    def operands(self, ids: Array) -> Operands:
        """Return operands by their rows; -1 stands for none."""
        return Operands(self, ids)

    # -- members ----

    def test(self, table: str, test: "Callable[[Any], bool]", *words: str) -> Array:
        """Return for which rows of a table the members that no column models pass a test.

        A text that has none of the words is not looked at; each distinct text is parsed once.
        """
        return self.measure(table, lambda value: int(test(value)), *words) > 0

    def measure(self, table: str, fact: "Callable[[Any], int]", *words: str) -> Array:
        """Return a number for each row of a table from the members that no column models; 0 without the words."""
        numbers = self.ir.tables[table]["extra"]
        texts = self.ir.pools.extras.texts
        found = np.zeros(len(texts) + 1, np.int64)
        for number in distinct(numbers):
            text = texts[number]
            if any(word in text for word in words):
                found[number] = fact(extras.parse(text))
        return found[numbers]

    def keys(self, name: str, rows: Array, default: Any = None) -> "Keys":
        """Return the value of an op-specific key for some instructions; where it is absent, or null, the default."""
        member = self._member(name)
        code = member.table[self.ir.tables["instructions"]["extra"][rows]]
        used = np.flatnonzero(np.bincount(code))
        rank = np.zeros(len(member.values) + 1, np.int64)
        rank[used] = np.arange(len(used))
        return Keys([member.values[c - 1] if c else default for c in used.tolist()], rank[code])

    def _member(self, name: str) -> "Member":
        """Return a member of the texts of instructions; all keys of the batch's opcodes are looked at together."""
        if not self._members:
            opcodes = self.ir.pools.codes["opcode"].texts
            keys = [vocab.opcode_keys(opcode, older=older) for opcode in opcodes for older in (True, False)]
            self._collect({key.name for each in keys for key in each})
        if name not in self._members:
            self._collect({name})
        return self._members[name]

    def _collect(self, names: set[str]) -> None:
        """Look some members up in the texts of instructions: each distinct text is parsed once."""
        texts = self.ir.pools.extras.texts
        made = {name: _Collected() for name in names}
        parse = extras.parse.__wrapped__  # each once: none is worth keeping
        for number in distinct(self.ir.tables["instructions"]["extra"]):
            for name, value in parse(texts[number]).items():
                if value is None or name not in made:
                    continue
                collected = made[name]
                kind = type(value)
                same = (kind, value) if kind in _PLAIN else repr(value)
                code = collected.known.get(same)
                if code is None:
                    code = collected.add(same, value)
                collected.texts.append(number)
                collected.codes.append(code)
        for name, collected in made.items():
            self._members[name] = collected.member(len(texts))

    # -- names ----

    def names(self, table: str, ids: Array, column: str = "name") -> list[Any]:
        """Return names of rows; None where an id is negative."""
        made = self.ir.column(table, column)
        if made is None or not len(ids):
            return [None] * len(ids)
        if isinstance(made, np.ndarray):
            texts = self.ir.pools.of(schema.BY_NAME[table].column(column)).texts
            return [texts[n] if i >= 0 and (n := int(made[i])) >= 0 else None for i in ids.tolist()]
        return [made[i] if i >= 0 else None for i in ids.tolist()]

    def function_attribute(self, name: str) -> Array:
        """Return which functions have an attribute, in a list or as a member that is not false."""

        def holds(value: Any) -> bool:
            if isinstance(value, dict):
                return value.get(name) not in (None, False)
            return isinstance(value, list) and name in value

        texts, numbers = self.ir.pools.extras.texts, self.ir.tables["functions"]["attributes"]
        found = np.zeros(len(texts) + 1, bool)
        for number in distinct(numbers):
            found[number] = name in texts[number] and holds(extras.parse(texts[number]))
        return found[numbers]

    def module_attributes(self) -> list[dict[str, Any]]:
        """Return the attributes of each module."""
        texts = self.ir.pools.extras.texts
        found: list[dict[str, Any]] = []
        for number in self.ir.tables["modules"]["extra"].tolist():
            value = extras.parse(texts[number]).get("attributes") if number >= 0 else None
            found.append(value if isinstance(value, dict) else {})
        return found

    @cached_property
    def unrolled(self) -> Array:
        """Which functions are unrolled: those that say so, or all."""
        if self.all_unrolled:
            return np.ones(self.ir.count("functions"), bool)
        return self.function_attribute("stage_unroll_completed")


def _is_indirect(value: Any) -> bool:
    if isinstance(value, dict):
        if value.get("kind") == "IndirectArgId":
            return True
        info = value.get("dynamic_ap_info")
        if isinstance(info, dict) and info.get("num_tensor_indirect_indices"):
            return True
        return any(map(_is_indirect, value.values()))
    return isinstance(value, list) and any(map(_is_indirect, value))


def distinct(numbers: Array) -> list[int]:
    """Return the distinct pool numbers among some, absent ones left out."""
    if not len(numbers):
        return []
    some = numbers[numbers >= 0]
    return np.flatnonzero(np.bincount(some)).tolist() if len(some) else []


@dataclass(frozen=True)
class Member:
    """A member of the texts of instructions."""

    values: list[Any]
    """Its distinct values."""
    table: Array
    """For each text 1 + the number of the value, 0 where it has none; the last item is for no text."""


_PLAIN = frozenset((str, int, float, bool))


class _Collected:
    """The values of a member so far: numbers of texts, and codes of the values that these have."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.known: dict[Any, int] = {}
        self.texts: list[int] = []
        self.codes: list[int] = []

    def add(self, same: Any, value: Any) -> int:
        """Give a value, known by what is the `same` for equal ones, a code."""
        self.values.append(EXPRESSION if _is_expression(value) else value)
        self.known[same] = len(self.values)
        return len(self.values)

    def member(self, texts: int) -> Member:
        """Return the member; `texts` is how many there are."""
        table = np.zeros(texts + 1, np.int64)
        table[self.texts] = self.codes
        return Member(self.values, table)


class Keys:
    """The value of one op-specific key for each instruction of a group."""

    def __init__(self, values: list[Any], place: Array) -> None:
        self.values, self.place = values, place

    def test(self, fact: "Callable[[Any], bool]") -> Array:
        """Return for which instructions the value passes a test; an expression never does."""
        found = [value is not EXPRESSION and fact(value) for value in self.values]
        return np.array(found, bool)[self.place]

    def among(self, *wanted: Any) -> Array:
        """Return which values are one of these."""
        return self.test(lambda value: any(value == w and type(value) is type(w) for w in wanted))

    def other_than(self, *wanted: Any) -> Array:
        """Return which values are there, and none of these."""
        return self.test(lambda value: value is not None and value not in wanted)

    @cached_property
    def present(self) -> Array:
        """Which instructions have the key, an expression included."""
        return np.array([value is not None for value in self.values], bool)[self.place]

    def number(self, absent: int = -1) -> Array:
        """Return the values as integers; `absent` for what is none."""
        found = [value if _is_small(value) else absent for value in self.values]
        return np.array(found, np.int64)[self.place]

    def item(self, index: int, absent: int = -1) -> Array:
        """Return an item of lists of integers; `absent` where there is none."""
        found = [
            value[index]
            if isinstance(value, list | tuple) and len(value) > index and _is_small(value[index])
            else absent
            for value in self.values
        ]
        return np.array(found, np.int64)[self.place]

    def length(self) -> Array:
        """Return the lengths of lists; 0 for what is none."""
        return np.array([len(v) if isinstance(v, list | tuple) else 0 for v in self.values], np.int64)[self.place]

    def text(self, hits: Array) -> list[Any]:
        """Return the values of some instructions, for a message."""
        return [_shown(self.values[self.place[h]]) for h in hits.tolist()]


def _is_small(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62


def _shown(value: Any) -> Any:
    return "an expression" if value is EXPRESSION else value


class Group:
    """The instructions of some opcodes: their operands and keys as arrays, one item per instruction."""

    def __init__(self, facts: Facts, opcodes: Sequence[str]) -> None:
        self.facts, self.opcodes = facts, opcodes
        self.rows = facts.rows(opcodes)
        first, ins, inner, outs = facts.counts
        self._first = first[self.rows]
        self.n_in, self.n_inner, self.n_out = ins[self.rows], inner[self.rows], outs[self.rows]
        self._operands: dict[tuple[str, int], Operands] = {}
        self._keys: dict[str, Keys] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def arg(self, place: int) -> Operands:
        """Return an input of each."""
        return self._operand("in", place, self._first, self.n_in)

    def inner(self, place: int) -> Operands:
        """Return an index operand of each."""
        return self._operand("indirection", place, self._first + self.n_in, self.n_inner)

    def out(self, place: int) -> Operands:
        """Return an output of each."""
        return self._operand("out", place, self._first + self.n_in + self.n_inner, self.n_out)

    def _operand(self, role: str, place: int, first: Array, count: Array) -> Operands:
        if (role, place) not in self._operands:
            ids = np.where(place < count, first + place, -1)
            self._operands[role, place] = self.facts.operands(ids)
        return self._operands[role, place]

    def args(self) -> "list[Operands]":
        """Return the inputs of all, place by place."""
        return [self.arg(k) for k in range(int(self.n_in.max()) if len(self) else 0)]

    def outs(self) -> "list[Operands]":
        """Return the outputs of all, place by place."""
        return [self.out(k) for k in range(int(self.n_out.max()) if len(self) else 0)]

    @cached_property
    def level(self) -> Array:
        """Level of the architecture; -1 where it is not known."""
        return self.facts.levels[self.facts.module[self.rows]]

    def engine(self, *names: str) -> Array:
        """Return which instructions are on one of some engines."""
        codes = [vocab.ENGINES.code(name) for name in names]
        return np.isin(self.facts.ir.tables["instructions"]["engine"][self.rows], codes)

    @cached_property
    def assigned(self) -> Array:
        """Which instructions have an engine of their own: not none, nor `Unassigned`."""
        return self.facts.ir.tables["instructions"]["engine"][self.rows] > vocab.ENGINE_UNASSIGNED

    def engine_text(self, hits: Array) -> list[Any]:
        """Return the engines of some instructions, for a message."""
        return self.facts.names("instructions", self.rows[hits], "engine")

    def key(self, name: str) -> Keys:
        """Return an op-specific key; one that is absent, or null, has its declared default."""
        if name not in self._keys:
            self._keys[name] = self.facts.keys(name, self.rows, self._default(name))
        return self._keys[name]

    def _default(self, name: str) -> Any:
        for opcode in self.opcodes:
            for key in vocab.opcode_keys(opcode):
                if key.name == name:
                    return list(key.default) if isinstance(key.default, tuple) else key.default
        return None

    def on(self, mask: Array, **fill: Fill) -> Found | None:
        """Return the instructions that a mask has as found."""
        hits = np.flatnonzero(mask)
        return Found("instructions", self.rows[hits], _filled(fill, hits)) if len(hits) else None

    def at(self, operand: Operands, mask: Array, **fill: Fill) -> Found | None:
        """Return an operand of the instructions that a mask has as found, where it is there."""
        hits = np.flatnonzero(mask & operand.there)
        return Found("operands", operand.ids[hits], _filled(fill, hits)) if len(hits) else None

    def each(
        self, operands: "Iterable[Operands]", bad: "Callable[[Operands], Array]", **fill: "Callable[[Operands], Fill]"
    ) -> list[Found]:
        """Look at several operands of each instruction in turn."""
        found = [self.at(o, bad(o), **{name: make(o) for name, make in fill.items()}) for o in operands]
        return [f for f in found if f is not None]


def _is_expression(value: Any) -> bool:
    return isinstance(value, dict) and ("terms" in value or "kind" in value)


def _filled(fill: dict[str, Fill], hits: Array) -> dict[str, Fill]:
    """Reduce values of a group to those of some of its rows."""
    return {
        name: list(value(hits)) if callable(value) else value[hits] if isinstance(value, np.ndarray) else value
        for name, value in fill.items()
    }


def found(table: str, mask: Array, **fill: Fill) -> Found | None:
    """Return the rows of a whole table that a mask has as found; functions among the values get the rows."""
    rows = np.flatnonzero(mask)
    return Found(table, rows, _filled(fill, rows)) if len(rows) else None
