"""One operand of each instruction of a group: its facts as arrays, for rules to compare."""

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.analyse.footprints import dtype_bytes
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.verify.facts import Facts

MX = ("float4_e2m1fn_x4", "float8_e4m3fn_x4", "float8_e5m2_x4")
"""Dtypes of which an element packs four values with a scale elsewhere."""
FLOATS = (
    *("float8e3", "float8e4", "float8_e4m3fn", "float8e5", "float8_e4m3", "bfloat16", "float16", "float32", "float32r"),
)
INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bool")
BYTE_FLOATS = ("float8e3", "float8e4", "float8_e4m3fn", "float8e5", "float8_e4m3")

_PATTERNED = (0, 1, 2, 3)  # the operand kinds with an access pattern, from `physical_ap` to `register_ap`


class Operands:
    """Operands by their rows, -1 for one that is not there; what is said of that is false, zero or -1."""

    def __init__(self, facts: "Facts", ids: Array) -> None:
        self.facts, self.ids = facts, ids
        self.there = ids >= 0
        self._place = np.where(self.there, ids, 0)
        self._whole = len(ids) > 0 and bool(self.there.all())

    def _take(self, values: Array, absent: int) -> Array:
        if self._whole:
            return values[self.ids]
        if not len(values):
            return np.full(len(self.ids), absent, values.dtype)
        return np.where(self.there, values[self._place], absent)

    def _column(self, name: str) -> Array:
        return self._take(self.facts.ir.tables["operands"][name], -1)

    @cached_property
    def kind(self) -> Array:
        """Code of the kind."""
        return self._column("kind")

    @cached_property
    def dtype(self) -> Array:
        """Code of the dtype."""
        return self._column("dtype")

    @cached_property
    def size(self) -> Array:
        """Bytes of an element; 0 where that is not known."""
        return dtype_bytes(self.dtype)

    @cached_property
    def is_ap(self) -> Array:
        """Which have an access pattern."""
        return np.isin(self.kind, _PATTERNED)

    @cached_property
    def is_physical(self) -> Array:
        """Which are physical access patterns."""
        return self.kind == vocab.OPERAND_PHYSICAL_AP

    @cached_property
    def is_placed(self) -> Array:
        """Which are physical access patterns, or become such once loops are unrolled."""
        return np.isin(self.kind, (vocab.OPERAND_PHYSICAL_AP, vocab.OPERAND_SYMBOLIC_AP, vocab.OPERAND_SYMBOLIC_PWAP))

    @cached_property
    def is_imm(self) -> Array:
        """Which are immediates."""
        return np.isin(self.kind, (vocab.OPERAND_IMM_VALUE, vocab.OPERAND_SYMBOLIC_IMM_VALUE, vocab.OPERAND_IMM_ARRAY))

    @cached_property
    def is_register(self) -> Array:
        """Which are registers."""
        return self.kind == vocab.OPERAND_REGISTER_ACCESS

    @cached_property
    def dynamic(self) -> Array:
        """Which have a dynamic access."""
        return self._take(self.facts.dynamic, 0).astype(bool)

    @cached_property
    def indirect(self) -> Array:
        """Which a tensor of indices addresses."""
        return self._take(self.facts.indirect, 0).astype(bool)

    def is_dtype(self, *names: str) -> Array:
        """Return which have one of some dtypes."""
        return np.isin(self.dtype, [vocab.DTYPES.code(name) for name in names])

    # -- memory ----

    def _of(self, name: str, absent: int = 0) -> Array:
        return self._take(getattr(self.facts.footprints, name), absent)

    @cached_property
    def memory(self) -> Array:
        """Code of the type of the location."""
        return self._of("memory", -1)

    @cached_property
    def location(self) -> Array:
        """The location."""
        return self._of("location", -1)

    @cached_property
    def decided(self) -> Array:
        """Which have a known footprint."""
        return self._take(self.facts.footprints.decided, 0).astype(bool)

    @cached_property
    def partition(self) -> Array:
        """First partition."""
        return self._of("partition")

    @cached_property
    def start(self) -> Array:
        """First byte."""
        return self._of("start")

    @cached_property
    def end(self) -> Array:
        """The byte behind the last."""
        return self._of("end")

    @property
    def in_sb(self) -> Array:
        """Which are in SB."""
        return self.memory == vocab.MEM_SB

    @property
    def in_psum(self) -> Array:
        """Which are in PSUM."""
        return self.memory == vocab.MEM_PSUM

    @property
    def in_dram(self) -> Array:
        """Which are in DRAM, inputs and outputs of old files included."""
        return np.isin(self.memory, FLAT)

    def of_location(self, name: str, absent: int = -1) -> Array:
        """Return a column of the location."""
        values = self.facts.ir.tables["locations"][name]
        if not len(values):
            return np.full(len(self.ids), absent, np.int64)
        return np.where(self.location < 0, absent, values[np.maximum(self.location, 0)])

    @cached_property
    def tensor_kind(self) -> Array:
        """Code of the kind of the location's set."""
        sets = self.facts.ir.tables["sets"]["kind"]
        owner = self.of_location("set_id")
        return np.where(owner < 0, -1, sets[np.maximum(owner, 0)]) if len(sets) else owner

    # -- pattern ----

    @cached_property
    def _pattern(self) -> Array:
        return self._of("pattern", len(self.facts.footprints.patterns.dimensions) - 1)

    def _fact(self, name: str) -> Array:
        return getattr(self.facts.footprints.patterns, name)[self._pattern]

    @cached_property
    def dims(self) -> Array:
        """Number of pairs of the pattern."""
        return self._fact("dimensions")

    @cached_property
    def lanes(self) -> Array:
        """The first num: partitions in SB and PSUM."""
        return self._fact("lanes")

    @cached_property
    def each(self) -> Array:
        """Elements per partition."""
        return self._fact("each")

    @cached_property
    def elements(self) -> Array:
        """Elements altogether."""
        return self.lanes * self.each

    @cached_property
    def values(self) -> Array:
        """Values per partition: four for an element of a packed dtype."""
        return self.each * np.where(self.is_dtype(*MX), 4, 1)

    @cached_property
    def last_step(self) -> Array:
        """The step of the last pair."""
        return self._fact("last_step")

    @cached_property
    def last_num(self) -> Array:
        """The num of the last pair."""
        return self._fact("last_num")

    def num(self, dimension: int) -> Array:
        """Return the num of a pair; 1 where there is none."""
        return self.facts.footprints.patterns.nums[self._pattern, dimension]

    def step(self, dimension: int) -> Array:
        """Return the step of a pair; 0 where there is none."""
        return self.facts.footprints.patterns.steps[self._pattern, dimension]

    # -- for messages ----

    def kind_text(self, hits: Array) -> list[Any]:
        """Return kinds."""
        return self.facts.names("operands", self.ids[hits], "kind")

    def dtype_text(self, hits: Array) -> list[Any]:
        """Return dtypes."""
        return self.facts.names("operands", self.ids[hits], "dtype")

    def memory_text(self, hits: Array) -> list[Any]:
        """Return the types of the locations."""
        return self.facts.names("locations", self.location[hits], "type")

    def location_text(self, hits: Array) -> list[Any]:
        """Return the names of the locations."""
        return self.facts.names("locations", self.location[hits])

    def tensor_kind_text(self, hits: Array) -> list[Any]:
        """Return the kinds of the sets."""
        return self.facts.names("sets", self.of_location("set_id")[hits], "kind")

    def pattern_text(self, hits: Array) -> list[Any]:
        """Return the patterns as files have them."""
        texts = self.facts.ir.pools.patterns.texts
        numbers = self._column("pattern_id")[hits].tolist()
        return [texts[n] if n >= 0 else "none" for n in numbers]

    def immediate(self) -> "tuple[Array, Array]":
        """Return the values of plain immediates as float64, and where they are known."""
        texts, numbers = self.facts.ir.pools.extras.texts, self._column("extra")

        def value(number: int) -> float:
            found = extras.parse(texts[number]).get("value")
            if isinstance(found, str) and found in ("inf", "-inf", "nan"):
                return float(found)
            if isinstance(found, int | float) and not isinstance(found, bool) and abs(found) < 1e300:
                return float(found)
            return math.nan

        kept = np.where(self.kind == vocab.OPERAND_IMM_VALUE, numbers, -1)
        known = kept >= 0
        table = np.full(len(texts) + 1, np.nan)
        for number in np.unique(kept[known]).tolist():
            table[number] = value(number)
        values = table[kept]
        return values, known & ~np.isnan(values)


FLAT = tuple(vocab.MEMORY_TYPES.code(name) for name in ("DRAM", "Input", "Output"))
"""Codes of the memories without partitions."""
