"""Columns of a batch as columns of Parquet files, and back.

In a file, ids are row numbers within their module, so the rows of a module are the same whatever batch it is written
with. Codes are dictionaries of strings, interned text is plain strings (with Parquet's own dictionaries underneath),
shapes and patterns are lists. Dictionaries hold what a row group uses, in order of first use: nothing of a pool's
history shows.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from arrowir import arrow, diagnostics, schema
from arrowir.diagnostics import Diagnostic, SchemaError
from arrowir.formats.dataset import DIAGNOSTICS
from arrowir.runs import sort_references
from arrowir.store import Array, Pool, Strings, starts

if TYPE_CHECKING:
    from arrowir.ir import IR

INDEX = pa.int32()
"""Type of dictionary indices; signed, since pandas takes no others."""

VERSION_KEY, TABLE_KEY = "arrowir.schema_version", "arrowir.table"
"""Keys in the metadata of each file."""

PATTERN = pa.large_list(pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("step", "num")]))
SHAPE = pa.large_list(pa.int64())

ABOUT = {f"{what}_id": f"{what}s" for what in ("function", "block", "instruction", "set", "location")}
"""Keys of a diagnostic below its module, and their tables."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column of the files of a table."""

    name: str
    shown: pa.DataType
    """Type that readers see."""
    written: pa.DataType
    """Type that is given to the Parquet writer."""
    column: schema.Column | None
    """Its declaration; None for a key that is not one in memory, and for diagnostics."""

    @property
    def nullable(self) -> bool:
        """Tell whether cells may be null."""
        return self.column is None or self.column.nullable

    @property
    def is_read(self) -> bool:
        """Tell whether it is more than a derived column, which would be computed again."""
        return self.column is None or not self.column.derived or self.name in ("id", "module_id", "pattern")

    @property
    def is_text(self) -> bool:
        """Tell whether it is written as a dictionary."""
        return pa.types.is_dictionary(self.written)


_MODULE_KEY = schema.Column("module_id", "id", "number of the module in the data set", of="modules", nullable=False)


@cache
def fields(table: str) -> tuple[Field, ...]:
    """Return the columns of the files of a table, in order."""
    if table == DIAGNOSTICS:
        kinds = {c: pa.int32() if c.endswith("_id") else pa.large_string() for c in diagnostics.COLUMNS}
        return tuple(Field(name, kind, kind, None) for name, kind in kinds.items())
    columns = list(schema.BY_NAME[table].columns)
    if all(column.name != "module_id" for column in columns):
        columns.insert(1, _MODULE_KEY)
    return tuple(_field(column) for column in columns)


def _field(column: schema.Column) -> Field:
    interned = pa.dictionary(INDEX, pa.large_string())
    if column.of == "shapes":
        return Field(column.name, SHAPE, SHAPE, column)
    if column.kind == "code":
        return Field(column.name, pa.dictionary(INDEX, pa.string()), interned, column)
    if column.kind == "pooled":
        return Field(column.name, pa.large_string(), interned, column)
    kinds = {"id": pa.int32(), "int": pa.int64(), "flag": pa.bool_(), "text": pa.large_string(), "list": PATTERN}
    return Field(column.name, kinds[column.kind], kinds[column.kind], column)


@cache
def file_schema(table: str, *, written: bool) -> pa.Schema:
    """Return the schema of the files of a table: as readers see it, or as it is written."""
    return pa.schema([pa.field(f.name, f.written if written else f.shown, f.nullable) for f in fields(table)])


# -- out -----------------------------------------------------------------------------------------------------


class Source:
    """A batch that is being written: where the rows of each module are, and columns of any run of rows."""

    def __init__(self, ir: "IR") -> None:
        if len(ir.tables["references"]):
            ir = ir.replace(references=sort_references(ir.tables["references"], ir))
        self.ir = ir
        self.first: dict[str, Array] = {}
        """Per table the first row of each module, and the number of rows as last item."""
        for table in schema.STORED:
            module = self._module(table)
            if len(module) and (module.min() < 0 or (module[1:] < module[:-1]).any()):
                raise SchemaError(f"table `{table}`: rows are not grouped by module, in order; `concat` does that")
            self.first[table] = first_rows(module, len(ir))

    def _module(self, table: str) -> Array:
        return np.arange(len(self.ir), dtype=np.int32) if table == "modules" else self.ir.array(table, "module_id")

    def prepare(self) -> None:
        """Compute the derived columns, so that threads find them made."""
        for table in schema.TABLES:
            for column in table.columns:
                if column.derived and column.kind != "list":
                    self.ir.column(table.name, column.name)

    def column(self, table: str, field: Field, low: int, high: int, patterns: "Patterns") -> pa.Array:
        """Return rows `low:high` of a column as it is written."""
        declared = field.column
        assert declared is not None
        module = self._module(table)[low:high]
        if field.name == "module_id":
            return arrow.array(module, "id")
        if field.name == "id":
            own = np.arange(low, high, dtype=np.int32)
            return arrow.array(own if table == "modules" else self._local(own, table, module, table, "id"), "id")
        if declared.kind == "text":
            return self._text(table, field.name, low, high)
        values = self.ir.column(table, field.name)
        assert not isinstance(values, Strings)
        if values is None and declared.default is None and declared.nullable:
            return pa.nulls(high - low, field.written)
        if values is None:
            values = np.full(high - low, schema.NULLS[declared.kind], schema.DTYPES[declared.kind])
        else:
            values = values[low:high]
        if not declared.nullable:
            absent = np.flatnonzero(values == schema.NULLS[declared.kind])
            if len(absent):
                row = low + int(absent[0])
                raise SchemaError(f"table `{table}`, column `{field.name}`: row {row} is null, and must not be")
        if declared.default is not None:
            values = np.where(values == schema.NULLS[declared.kind], declared.default, values)
        if field.name == "pattern_id":
            return arrow.array(patterns.local[low - patterns.low : high - patterns.low], "id")
        if table == "references" and field.name in ("row", "target_id"):
            return self._reference(field.name, values, low, high)
        if declared.kind == "id":
            assert declared.of is not None
            return arrow.array(self._local(values, declared.of, module, table, field.name), "id")
        if declared.kind in ("code", "pooled"):
            pool = self.ir.pools.of(declared)
            return shapes(values, pool) if declared.of == "shapes" else interned(values, declared.kind, pool)
        return arrow.array(values, declared.kind)

    def _local(self, values: Array, target: str, module: Array, table: str, name: str) -> Array:
        """Turn row numbers of the batch into row numbers within the module."""
        if not len(values):
            return values
        shift, rows = window(self.first[target], module)
        return moved(values, -shift, shift, shift + rows, f"table `{table}`, column `{name}`", target)

    def _reference(self, name: str, values: Array, low: int, high: int) -> pa.Array:
        """Localise the keys of references, whose table stands in another column."""
        codes = self.ir.tables["references"]["table" if name == "row" else "target"][low:high]
        module = self._module("references")[low:high]
        out = np.full(high - low, -1, np.int32)
        for code in np.unique(codes[values >= 0]).tolist():
            mine = (codes == code) & (values >= 0)
            out[mine] = self._local(values[mine], schema.STRUCTURAL["table"][code], module[mine], "references", name)
        return arrow.array(out, "id")

    def _text(self, table: str, name: str, low: int, high: int) -> pa.Array:
        text = self.ir.tables[table].columns[name]
        if text is None:
            return pa.nulls(high - low, pa.large_string())
        assert isinstance(text, Strings)
        part = Strings(text.offsets[low : high + 1], text.data)
        absent = self.ir.tables[table]["call_chain_id"][low:high] < 0 if name == "original_name" else None
        return arrow.strings(part, absent)


def first_rows(module: Array, count: int) -> Array:
    """Return the first row of each module, given the module of each row, and the number of rows as last item."""
    return starts(np.bincount(module, minlength=count)).astype(np.int32)


def window(first: Array, module: Array) -> "tuple[Array | int, Array | int]":
    """Return where the modules of some rows begin in another table, and how many rows they have there.

    For one large module, the usual case of many rows, these are one number for all of them.
    """
    if module[0] == module[-1]:
        begin, end = first[module[0] : module[0] + 2].tolist()
        return begin, end - begin
    return first[module], np.diff(first)[module]


def moved(values: Array, by: "Array | int", low: "Array | int", high: "Array | int", where: str, target: str) -> Array:
    """Add a number to keys, absent ones left absent, when all are at least `low` and below `high`.

    Raises
    ------
    SchemaError
        If a key lies outside; `where` says whose it is, `target` into which table it points.
    """
    absent = values == -1 if values.min() < 0 else None
    outside = (values < low) | (values >= high)
    if (outside if absent is None else outside & ~absent).any():
        raise SchemaError(f"{where}: a key names no row of table `{target}` in its module")
    if isinstance(by, int) and by == 0:
        return values
    out = values + by
    if absent is not None:
        out[absent] = -1
    return out


def interned(values: Array, kind: schema.Kind, pool: Pool) -> pa.DictionaryArray:
    """Return interned text as a dictionary of what is used, in order of first use."""
    encoded = arrow.array(values, kind).dictionary_encode()
    texts = arrow.texts([pool.texts[i] for i in encoded.dictionary.to_pylist()])
    return pa.DictionaryArray.from_arrays(encoded.indices, texts)


def shapes(values: Array, pool: Pool) -> pa.Array:
    """Return interned shapes as lists of integers."""
    encoded = arrow.array(values, "pooled").dictionary_encode()
    parsed = [json.loads(pool.texts[i]) for i in encoded.dictionary.to_pylist()]
    return _lists(parsed, arrow.array(_flat(parsed), "int")).take(encoded.indices)


def _flat(lists: list[list[int]]) -> Array:
    return np.array([number for numbers in lists for number in numbers], np.int64)


def _lists(lists: list[list[Any]], items: pa.Array) -> pa.Array:
    """Return lists as an array, given the items of all of them in a row."""
    ends = starts(np.array([len(numbers) for numbers in lists], np.int64))
    return pa.LargeListArray.from_arrays(arrow.array(ends, "int"), items)


class Patterns:
    """The access patterns that a run of modules uses, numbered within each module in order of first use (rule O5)."""

    def __init__(self, source: Source, modules: tuple[int, int]) -> None:
        first, last = modules
        self.low, high = (int(source.first["operands"][m]) for m in modules)
        ids = source.ir.tables["operands"]["pattern_id"][self.low : high]
        module = source.ir.array("operands", "module_id")[self.low : high]
        count = max(len(source.ir.pools.patterns), 1)
        key = np.where(ids < 0, schema.NULL_INT, module.astype(np.int64) * count + ids)
        encoded = arrow.array(key, "int").dictionary_encode()
        distinct = cells(encoded.dictionary)
        self.module = (distinct // count).astype(np.int32)
        self.pattern = (distinct % count).astype(np.int32)
        begins = starts(np.bincount(self.module - first, minlength=last - first))
        self.id = (np.arange(len(distinct)) - begins[self.module - first]).astype(np.int32)
        self.local = np.append(self.id, np.int32(-1))[cells(encoded.indices)]
        self._source = source

    def table(self) -> pa.Table:
        """Return the rows of the table `patterns`."""
        elements = self._source.ir.array("patterns", "elements")
        used = np.unique(self.pattern)
        parsed = [json.loads(self._source.ir.pools.patterns.texts[i]) for i in used.tolist()]
        items = _flat([pair for pattern in parsed for pair in pattern]).reshape(-1, 2)
        pairs = [arrow.array(np.ascontiguousarray(items[:, side]), "int") for side in (0, 1)]
        lists = _lists(parsed, pa.StructArray.from_arrays(pairs, fields=list(PATTERN.value_type)))
        place = arrow.array(np.searchsorted(used, self.pattern), "int")
        columns = {
            "id": arrow.array(self.id, "id"),
            "module_id": arrow.array(self.module, "id"),
            "pattern": lists.take(place),
            "elements": arrow.array(elements[self.pattern], "int"),
        }
        return pa.table(columns, schema=file_schema("patterns", written=True))


def messages(source: Source, rows: Sequence[Diagnostic], modules: tuple[int, int], *, rest: bool) -> pa.Table:
    """Return the diagnostics of a run of modules as rows; with `rest` also those about no module of the batch."""
    first, last = modules
    total = len(source.ir)
    picked: list[Diagnostic] = []
    for row in rows:
        number = row.module_id
        if number is None or not 0 <= number < total:
            if rest:
                picked.append(replace(row, module_id=None, **dict.fromkeys(ABOUT)))
        elif first <= number < last:
            picked.append(replace(row, **{key: _within(source, row, key, number) for key in ABOUT}))
    picked.sort(key=lambda row: -1 if row.module_id is None else row.module_id)
    columns: list[pa.Array] = []
    for field in fields(DIAGNOSTICS):
        held = [getattr(row, "pass_name" if field.name == "pass" else field.name) for row in picked]
        absent = np.array([cell is None for cell in held], bool)
        if pa.types.is_integer(field.written):
            columns.append(arrow.array(np.array([-1 if cell is None else cell for cell in held], np.int32), "id"))
        else:
            columns.append(arrow.strings(Strings.of([cell or "" for cell in held]), absent))
    return pa.table(columns, schema=file_schema(DIAGNOSTICS, written=True))


def _within(source: Source, row: Diagnostic, key: str, module: int) -> int | None:
    """Return a key of a diagnostic as a row number within the module; nothing when it is another module's."""
    number, first = getattr(row, key), source.first[ABOUT[key]]
    return None if number is None or not first[module] <= number < first[module + 1] else int(number - first[module])


# -- in ------------------------------------------------------------------------------------------------------


def cells(chunk: pa.Array, null: int = -1) -> Array:
    """Return an array of integers, with `null` where cells are absent.

    (Arrow's own way to fill cells imports pandas where it is installed: longer than reading a small data set takes.)
    """
    valid, data = chunk.buffers()
    place = slice(chunk.offset, chunk.offset + len(chunk))
    values = np.frombuffer(data, chunk.type.to_pandas_dtype())[place] if data is not None else np.zeros(0, np.int64)
    if not chunk.null_count:
        return values
    present = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")[place]
    return np.where(present, values, values.dtype.type(null))


def numbers(column: pa.ChunkedArray, kind: schema.Kind) -> Array:
    """Return a column of numbers, absent cells as the kind's null value."""
    dtype = schema.DTYPES[kind]
    if kind == "flag":
        column = column.cast(pa.int8())
    parts = [cells(chunk, schema.NULLS[kind]) for chunk in column.chunks if len(chunk)]
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])


def text(column: pa.ChunkedArray) -> Strings:
    """Return a column of text, absent cells as empty strings."""
    parts = [_strings(chunk) for chunk in column.chunks if len(chunk)]
    if len(parts) == 1:
        return parts[0]
    base = starts(np.array([part.offsets[-1] for part in parts], np.int64))
    offsets = [part.offsets[1:] + base[k] for k, part in enumerate(parts)]
    data = [part.data for part in parts]
    return Strings(np.concatenate((np.zeros(1, np.int64), *offsets)), np.concatenate((np.empty(0, np.uint8), *data)))


def _strings(chunk: pa.Array) -> Strings:
    if chunk.null_count:
        chunk = pc.call_function("if_else", [chunk.is_valid(), chunk, _scalar("")])
    _, offsets, data = chunk.buffers()
    places = np.frombuffer(offsets, np.int64)[chunk.offset : chunk.offset + len(chunk) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Strings(places - places[0], content[places[0] : places[-1]])


def ids(column: pa.ChunkedArray, pool: Pool, kind: schema.Kind = "pooled") -> Array:
    """Return a dictionary column as ids of a pool; -1 where absent."""
    dtype = schema.DTYPES[kind]
    largest = 2 ** (8 * np.dtype(dtype).itemsize - 1) - 1
    parts = [np.empty(0, dtype)]
    for chunk in column.chunks:
        numbered = [pool.intern(word) for word in chunk.dictionary.to_pylist()]
        # The last item answers -1, an absent cell.
        lookup = np.array([*numbered, -1], np.int64)
        if lookup.max() > largest:
            raise SchemaError(f"more than {largest:,} distinct values of one vocabulary")
        parts.append(lookup.astype(dtype)[cells(chunk.indices)])
    return np.concatenate(parts)


def shape_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists of integers as compact JSON text, dictionary-encoded."""
    made = [_as_json(chunk, chunk.flatten().cast(pa.large_string())) for chunk in column.chunks]
    return pa.chunked_array(made, pa.large_string()).dictionary_encode()


def pattern_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return lists of {step, num} as compact JSON text, dictionary-encoded."""
    made: list[pa.Array] = []
    for chunk in column.chunks:
        step, num = (numbers.cast(pa.large_string()) for numbers in chunk.flatten().flatten())
        made.append(_as_json(chunk, _glue("[", step, ",", num, "]")))
    return pa.chunked_array(made, pa.large_string()).dictionary_encode()


def _as_json(lists: pa.Array, items: pa.Array) -> pa.Array:
    """Write each list as JSON, given the texts of the items of all lists in a row."""
    lengths = cells(pc.call_function("list_value_length", [lists]), 0)
    grouped = pa.LargeListArray.from_arrays(arrow.array(starts(lengths), "int"), items)
    joined = _glue("[", pc.call_function("binary_join", [grouped, _scalar(",")]), "]")
    if not lists.null_count:
        return joined
    return pc.call_function("if_else", [lists.is_valid(), joined, pa.nulls(1, pa.large_string())[0]])


def _glue(*parts: "pa.Array | str") -> pa.Array:
    """Put texts behind each other, row by row."""
    texts = [_scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.call_function("binary_join_element_wise", [*texts, _scalar("")])


def _scalar(text: str) -> pa.Scalar:
    return arrow.texts([text])[0]
