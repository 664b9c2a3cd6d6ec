"""JSON objects to rows: which member stands in which column, which stays text, what is wrong with a value.

Objects repeat endlessly in their members, so all that follows from the members alone is worked out once for each
distinct tuple of keys (a `Plan`), and what follows from the text members once for each distinct content.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from arrowir import layouts, schema, vocabulary
from arrowir.formats.json_text import Number, compact, quote
from arrowir.formats.kept_text import Reference, Text, may_refer
from arrowir.formats.values import MAX_INT, Json, Wrong, check_name, content_of, expect, expect_int, kind_of
from arrowir.schema import NULL_INT
from arrowir.store import Pool, Pools

Row = list[int]

_MAX_CODES = 2**15 - 1


@dataclass(frozen=True)
class Variant:
    """Objects of the same members whose values stand in the same places."""

    layout: int
    raw: tuple[str, ...]
    """Members that are kept as text."""
    pick: Callable[[Json], Any]
    """Gets their values."""
    known: tuple[tuple[str, type], ...]
    """Types of raw members, where they are known."""
    refers: bool
    """Whether a raw member is itself a name."""
    texts: dict[bytes | str, tuple[int, tuple[Reference, ...]]] = field(default_factory=dict[bytes | str, Any])


@dataclass(frozen=True)
class Plan:
    """What follows from the keys of an object."""

    keys: tuple[str, ...]
    codes: tuple[tuple[str, int, "Codes"], ...]
    """Members that are codes: key, place in the row, codes; likewise integers, and others with how they are read."""
    integers: tuple[tuple[str, int], ...]
    cells: tuple[tuple[str, int, Callable[[Any, str], int]], ...]
    missing: tuple[str, ...]
    """Required members that are not there."""
    children: frozenset[str]
    base: Variant
    """Where no value is null or text for once."""
    variants: dict[tuple[tuple[str, str], ...], Variant] = field(default_factory=dict[Any, Variant])


class Codes(dict[str, int]):
    """The codes of one vocabulary by spelling; a spelling never seen before gets the next code."""

    def __init__(self, name: str, pool: Pool) -> None:
        super().__init__((text, code) for code, text in enumerate(pool.texts))
        self.name, self.pool = name, pool
        self.vocabulary = vocabulary.VOCABULARIES[name]
        for text in pool.texts[len(self.vocabulary) :]:
            del self[text]
        self.unknown: list[str] = []

    def of(self, value: Any, key: str, *, numbers: bool = False) -> int:
        """Return the code of a value, which may be new, or no string at all."""
        if value.__class__ is str:
            return self[value] if value in self else self._add(value, key)
        if numbers and value.__class__ is int:
            code = self.vocabulary.code_of_number(value)
            if code < 0 and str(value) not in self.unknown:
                self.unknown.append(str(value))
            return code
        raise Wrong(key, f"expected a string{' or an integer' if numbers else ''}, found {kind_of(value)}")

    def _add(self, text: str, key: str) -> int:
        check_name(text, key)
        code = self.pool.intern(text)
        if code > _MAX_CODES:
            raise Wrong(key, f"the batch has more than {_MAX_CODES:,} distinct values of {self.name}; read it in parts")
        self.unknown.append(text)
        self[text] = code
        return code


@dataclass(frozen=True)
class Shape:
    """How objects of one kind are read."""

    what: str
    slots: tuple[str, ...]
    """The columns of a row, in order: those that are one number per row."""
    columns: Mapping[str, tuple[str, str]]
    """Member to (column, how its value is read); a vocabulary's name stands for its codes."""
    children: frozenset[str] = frozenset()
    """Members that the caller reads."""
    required: tuple[str, ...] = ()
    known: Mapping[str, type] = field(default_factory=dict[str, type])
    """Types of members that are kept as text."""
    references: Mapping[str, str] = field(default_factory=dict[str, str])
    """Members kept as text that name a row, and the table that it is in."""
    expressions: bool = False
    """Whether expressions in the text name registers and axes."""
    named: bool = False
    """Whether `name` is the text of the row."""


def nulls_of(table: str) -> Row:
    """Return a row of a table without values."""
    return [schema.NULLS[schema.BY_NAME[table].column(name).kind] for name in slots_of(table)]


def slots_of(table: str) -> tuple[str, ...]:
    """Return the columns of a table that a reader fills, those that are one number per row: layout and extra last."""
    names = [c.name for c in schema.BY_NAME[table].stored if c.kind != "text" and c.name != "call_chain_id"]
    return tuple(sorted(names, key=("layout", "extra").__contains__)) if "layout" in names else tuple(names)


# Members whose reading does not follow from the kind of their column.
_SPECIAL = {
    ("instructions", "optin_passes"): "optin",
    ("locations", "type"): "memory",
    ("loops", "lb"): "bound",
    ("loops", "ub"): "bound",
    ("loops", "stride"): "bound",
    ("functions", "attributes"): "attributes",
}
_READERS = {"names": "pooled_name", "extras": "json", "shapes": "shape"}


def table_shape(
    table: str,
    what: str,
    *,
    more: Mapping[str, tuple[str, str]] | None = None,
    children: frozenset[str] | None = None,
    required: tuple[str, ...] = (),
    known: Mapping[str, type] | None = None,
    references: Mapping[str, str] | None = None,
    expressions: bool = False,
) -> Shape:
    """Return the shape of the objects that stand in a table, from its declaration."""
    declared = schema.BY_NAME[table]
    columns: dict[str, tuple[str, str]] = {}
    for column in declared.stored:
        if column.key is None or column.kind == "text":
            continue
        if (table, column.key) in _SPECIAL:
            how = _SPECIAL[table, column.key]
        elif column.kind == "pooled":
            how = _READERS[column.of or ""]
        else:
            how = column.of or column.kind
        columns[column.key] = (column.name, how)
    return Shape(
        what=what,
        slots=slots_of(table),
        columns={**columns, **(more or {})},
        children=frozenset(declared.children) if children is None else children,
        required=required,
        known=known or {},
        references=references or {},
        expressions=expressions,
        named=any(c.key == "name" and c.kind == "text" for c in declared.stored),
    )


class Members:
    """Reads the objects of one document into rows.

    Parameters
    ----------
    pools : Pools
        Where text is interned.
    surrogates : bool
        Whether the document may hold lone surrogates, so that names have to be looked at.
    """

    def __init__(self, pools: Pools, *, surrogates: bool = False) -> None:
        self.pools = pools
        self.surrogates = surrogates
        self.marks: dict[str, str] = {}
        """Where values of the object at hand stand, where that is not what its keys suggest."""
        self.miscounts: list[str] = []
        """What was found of wrong numbers of terms; the caller says where it stands."""
        self.codes: dict[str, Codes] = {}
        self._plans: dict[str, dict[tuple[str, ...], Plan]] = {}
        self._texts: dict[bytes | str, int] = {}
        self._patterns: dict[bytes | str, int] = {}
        self._shapes: dict[bytes | str, int] = {}

    def forget_plans(self) -> None:
        """Drop the plans, whose methods point back here: without that, only the cyclic collector could free this."""
        self._plans.clear()

    def codes_of(self, name: str) -> Codes:
        """Return the codes of a vocabulary."""
        if name not in self.codes:
            self.codes[name] = Codes(name, self.pools.codes[name])
        return self.codes[name]

    def plan(self, shape: Shape, obj: Any) -> Plan:
        """Return what follows from the keys of an object.

        Raises
        ------
        Wrong
            If it is no object.
        """
        if obj.__class__ is not dict:
            raise Wrong("", f"expected {shape.what}, found {kind_of(obj)}")
        plans = self._plans.get(shape.what)
        if plans is None:
            plans = self._plans[shape.what] = {}
        return plans.get(tuple(obj)) or self._plan(shape, obj, plans)

    def fill(
        self, shape: Shape, nulls: Row, obj: Any, plan: Plan | None = None, *, strict: bool = True
    ) -> tuple[Row, tuple[Reference, ...]]:
        """Read an object into a new row.

        Parameters
        ----------
        shape : Shape
            What the object is.
        nulls : list of int
            A row without values, which is copied.
        obj : object
            The parsed value.
        plan : Plan, optional
            Its plan, where the caller has it.
        strict : bool
            Whether required members must be there.

        Returns
        -------
        row, references
            The row with its own columns, layout and extra; the names in its text.

        Raises
        ------
        Wrong
            If a required member is missing or a known one has a wrong type.
        """
        if plan is None:
            plan = self.plan(shape, obj)
        if strict and plan.missing:
            raise Wrong("", f"{shape.what} must have the member `{plan.missing[0]}`")
        row = nulls[:]
        marks = self.marks
        if None in obj.values():
            for key, value in obj.items():
                if value is None:
                    if strict and key in shape.required:
                        raise Wrong(key, "expected a value, found null")
                    marks[key] = layouts.NULL
        for key, slot, codes in plan.codes:
            try:
                row[slot] = codes[obj[key]]
            except (KeyError, TypeError):
                if obj[key] is not None:
                    row[slot] = codes.of(obj[key], key)
        for key, slot in plan.integers:
            value = obj[key]
            if value.__class__ is int and -MAX_INT <= value <= MAX_INT:
                row[slot] = value
            elif value is not None:
                row[slot] = self.read_int(value, key)
        for key, slot, convert in plan.cells:
            value = obj[key]
            if value is not None:
                row[slot] = convert(value, key)
        variant = plan.base
        if marks:
            variant = plan.variants.get(tuple(marks.items())) or self._variant(shape, plan)
            marks.clear()
        row[-2] = variant.layout
        if not variant.raw:
            return row, ()
        content = content_of(variant.pick(obj), variant.raw[0])
        found = variant.texts.get(content)
        if found is None:
            found = variant.texts[content] = self._text(shape, variant, obj, content)
        row[-1] = found[0]
        return row, found[1]

    def _plan(self, shape: Shape, obj: Json, plans: dict[tuple[str, ...], Plan]) -> Plan:
        keys = tuple(obj)
        for key in keys:
            check_name(key)
        codes: list[tuple[str, int, Codes]] = []
        integers: list[tuple[str, int]] = []
        cells: list[tuple[str, int, Callable[[Any, str], int]]] = []
        for key in keys:
            if key in shape.columns:
                column, how = shape.columns[key]
                slot = shape.slots.index(column)
                if how in vocabulary.VOCABULARIES:
                    codes.append((key, slot, self.codes_of(how)))
                elif how == "int":
                    integers.append((key, slot))
                else:
                    cells.append((key, slot, getattr(self, f"read_{how}")))
        plan = Plan(
            keys=keys,
            codes=tuple(codes),
            integers=tuple(integers),
            cells=tuple(cells),
            missing=tuple(key for key in shape.required if key not in obj),
            children=shape.children.intersection(keys),
            base=self._make_variant(shape, keys, {}),
        )
        plans[keys] = plan
        return plan

    def _variant(self, shape: Shape, plan: Plan) -> Variant:
        variant = self._make_variant(shape, plan.keys, self.marks)
        plan.variants[tuple(self.marks.items())] = variant
        return variant

    def _make_variant(self, shape: Shape, keys: tuple[str, ...], marks: Mapping[str, str]) -> Variant:
        places = {
            key: layouts.COLUMN
            if key in shape.columns or key in shape.children or (key == "name" and shape.named)
            else layouts.RAW
            for key in keys
        } | dict(marks)
        layout = self.pools.layouts.intern(layouts.layout([(places[key], key) for key in keys]))
        raw = tuple(key for key in keys if places[key] == layouts.RAW)
        return Variant(
            layout=layout,
            raw=raw,
            pick=itemgetter(*raw) if raw else tuple,
            known=tuple((key, shape.known[key]) for key in raw if key in shape.known),
            refers=not shape.references.keys().isdisjoint(raw),
        )

    # -- text ----

    def _text(
        self, shape: Shape, variant: Variant, obj: Json, content: bytes | str
    ) -> tuple[int, tuple[Reference, ...]]:
        raw = variant.raw
        for key, kind in variant.known:
            expect(obj[key], kind, key)
        if isinstance(content, bytes) and not variant.refers and not (shape.expressions and may_refer(content)):
            text = compact({key: obj[key] for key in raw})
            if text is not None:
                return self.pools.extras.intern(text), ()
        made = Text(expressions=shape.expressions)
        for key in raw:
            made.parts.append(f"{',' if made.parts else '{'}{quote(key)}:")
            if key in shape.references:
                made.refer(shape.references[key], expect(obj[key], str, key), key)
            else:
                made.add(obj[key], key)
        made.parts.append("}")
        self.miscounts += made.miscounts
        return self.pools.extras.intern("".join(made.parts)), tuple(made.references)

    def read_json(self, value: Any, key: str) -> int:
        """Keep a value as text."""
        content = content_of(value, key)
        found = self._texts.get(content)
        if found is None:
            text = compact(value) if content.__class__ is bytes else None
            if text is None:
                made = Text()
                made.add(value, key)
                text = "".join(made.parts)
            found = self._texts[content] = self.pools.extras.intern(text)
        return found

    def read_attributes(self, value: Any, key: str) -> int:
        """Read a function's attributes, a list or an object."""
        if not isinstance(value, list | dict):
            raise Wrong(key, f"expected a list or an object, found {kind_of(value)}")
        return self.read_json(value, key)

    # -- cells ----

    def read_int(self, value: Any, key: str) -> int:
        """Read an integer."""
        if value.__class__ is int and -MAX_INT <= value <= MAX_INT:
            return value
        number = expect_int(value, key)
        if number == NULL_INT:  # the column has no room for this one value
            self.marks[key] = layouts.RAW
        return number

    def read_bound(self, value: Any, key: str) -> int:
        """Read a loop's bound: an integer, or an expression, which stays text."""
        if isinstance(value, dict):
            self.marks[key] = layouts.RAW
            return NULL_INT
        return self.read_int(value, key)

    def read_optin(self, value: Any, key: str) -> int:
        """Read `optin_passes`: a mask, or a list of names, which stays text."""
        if isinstance(value, list):
            self.marks[key] = layouts.RAW
            mask = 0
            for place, name in enumerate(value):
                bit = vocabulary.OPTIN_PASS_BITS.get(expect(name, str, f"{key}[{place}]"))
                mask |= 0 if bit is None else 1 << bit
            return mask
        if value.__class__ is not int and not isinstance(value, Number):
            raise Wrong(key, f"expected a list of names or an integer, found {kind_of(value)}")
        return self.read_int(value, key)

    def read_memory(self, value: Any, key: str) -> int:
        """Read a memory type: its name, or its number, which stays text."""
        if value.__class__ is not str:
            self.marks[key] = layouts.RAW
        return self.codes_of("memory_type").of(value, key, numbers=True)

    def read_flag(self, value: Any, key: str) -> int:
        """Read a boolean."""
        if value is True or value is False:
            return int(value)
        raise Wrong(key, f"expected true or false, found {kind_of(value)}")

    def read_pooled_name(self, value: Any, key: str) -> int:
        """Read a string into the pool of names."""
        return self.name_id(expect(value, str, key), key)

    def name_id(self, name: str, key: str) -> int:
        """Return the id of a name in the pool of names."""
        if self.surrogates:
            check_name(name, key)
        return self.pools.names.intern(name)

    def read_shape(self, value: Any, key: str) -> int:
        """Read a list of integers into the pool of shapes."""
        content = content_of(value, key)
        found = self._shapes.get(content)
        if found is None:
            items = [expect_int(item, f"{key}[{place}]") for place, item in enumerate(expect(value, list, key))]
            found = self._shapes[content] = self.pools.shapes.intern(f"[{','.join(map(str, items))}]")
        return found

    def read_pattern(self, value: Any, key: str) -> int:
        """Read a list of [step, num] pairs into the pool of access patterns."""
        content = content_of(value, key)
        found = self._patterns.get(content)
        if found is None:
            pairs: list[str] = []
            for place, pair in enumerate(expect(value, list, key)):
                path = f"{key}[{place}]"
                if len(expect(pair, list, path)) != 2:
                    raise Wrong(
                        path, f"expected a pair of step and num, found {len(pair)} item{'s' * (len(pair) != 1)}"
                    )
                pairs.append(f"[{expect_int(pair[0], f'{path}[0]')},{expect_int(pair[1], f'{path}[1]')}]")
            found = self._patterns[content] = self.pools.patterns.intern(f"[{','.join(pairs)}]")
        return found
