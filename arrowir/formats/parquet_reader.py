"""From the files of a Parquet data set to a batch: check, add the offsets of the modules, put the parts together."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from arrowir import layouts, schema
from arrowir.diagnostics import FIELDS, Diagnostic, FormatError, SchemaError
from arrowir.formats import dataset
from arrowir.formats import parquet_columns as columns
from arrowir.formats.dataset import DIAGNOSTICS, TABLES, Part
from arrowir.ir import IR
from arrowir.runs import concat_tables
from arrowir.store import Array, Pools, Strings, Table

THREADS = 2
"""Files that are read at the same time."""

Values = Array | Strings | None


class Reader:
    """Puts the parts of a data set together; they have to be added in order.

    Parameters
    ----------
    folder
        The data set.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pools = Pools()
        self.rows = dict.fromkeys(schema.STORED, 0)
        """Rows of the parts so far, which is where ids of the next part begin."""
        self.messages: list[Diagnostic] = []
        self._parts: dict[str, list[Table]] = {table: [] for table in schema.STORED}

    def add(self, part: Part) -> None:
        """Read the files of a part.

        Raises
        ------
        FormatError
            If a file is not the one that was written.
        SchemaError
            If its tables do not fit the schema.
        """
        with ThreadPoolExecutor(THREADS) as pool:
            read = pool.map(lambda table: read_file(self.folder, part.files[table], table), TABLES)
            tables = dict(zip(TABLES, read, strict=True))
        rows = _PartRows(self, part, tables)
        for table in schema.STORED:
            self._parts[table].append(Table(table, rows.columns(table), len(rows.module[table])))
        self.messages += rows.diagnostics(tables[DIAGNOSTICS])
        for table in schema.STORED:
            self.rows[table] += len(rows.module[table])

    def finish(self, history: Sequence[str]) -> IR:
        """Return the batch of all parts."""
        # One table after the other, so that the rows of no more than one are there twice.
        made = {table: concat_tables(self._parts.pop(table)) for table in schema.STORED if self._parts[table]}
        return IR(made, self.pools, diagnostics=self.messages, history=history)


def read_file(folder: Path, file: dataset.File, table: str) -> pa.Table:
    """Read the stored columns of one file: digest, checksums, metadata and types are checked.

    Parameters
    ----------
    folder
        The data set.
    file
        The manifest's entry.
    table
        The table that it has to hold.

    Returns
    -------
    pyarrow.Table
        The columns; those in which every cell is null may be left out.

    Raises
    ------
    FormatError
        If it is not the file that was written.
    SchemaError
        If a column is missing or has another type.
    """
    path = folder / file.path
    # The digest comes first: a damaged footer can make Parquet's own reader end the process.
    data = dataset.content_of(folder, file)
    wanted = [f for f in columns.fields(table) if f.is_read]
    try:
        footer = pq.read_metadata(pa.BufferReader(data))
        metadata = footer.metadata or {}
        if metadata.get(columns.TABLE_KEY.encode()) != table.encode() or footer.num_rows != file.rows:
            raise FormatError(
                f"does not hold the {file.rows:,} rows of table `{table}`; write the data set again", path=str(path)
            )
        dataset.check_version(metadata[columns.VERSION_KEY.encode()].decode(), path)
        names = footer.schema.to_arrow_schema().names
        for field in wanted:
            if field.name not in names:
                raise SchemaError(f"{path}: table `{table}` has no column `{field.name}`; write the data set again")
        empty = _empty_columns(footer)
        present = [f for f in wanted if f.name not in empty or not f.nullable]
        opened = pq.ParquetFile(
            pa.BufferReader(data),
            metadata=footer,
            read_dictionary=[f.name for f in wanted if f.is_text],
            page_checksum_verification=True,
        )
        read = opened.read(columns=[f.name for f in present])
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        text = str(error).partition("\n")[0]
        raise FormatError(f"the Parquet file is damaged ({text}); write the data set again", path=str(path)) from error
    return pa.table([_fitting(read[f.name], f, table, path) for f in present], [f.name for f in present])


def _empty_columns(footer: pq.FileMetaData) -> set[str]:
    """Return the columns of which the statistics say that every cell is null."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    empty: set[str] = set()
    for place in range(footer.num_columns if footer.num_rows else 0):
        chunks = [group.column(place) for group in groups]
        if all(c.is_stats_set and c.statistics.null_count == c.num_values for c in chunks):
            empty.add(chunks[0].path_in_schema)
    return empty


def _fitting(column: pa.ChunkedArray, field: columns.Field, table: str, path: Path) -> pa.ChunkedArray:
    """Return a column of the type that belongs there; another spelling of strings or lists will do."""
    there = column.type
    if not field.nullable and column.null_count:
        raise SchemaError(f"{path}: table `{table}`, column `{field.name}`: a cell is null, and must not be")
    if field.is_text:
        if pa.types.is_dictionary(there) and pa.types.is_string(there.value_type):
            return column
        if pa.types.is_string(there) or pa.types.is_large_string(there):
            return column.dictionary_encode()
    elif there == field.shown:
        return column
    is_list = pa.types.is_list(there) or pa.types.is_large_list(there)
    listed = is_list and field.shown in (columns.SHAPE, columns.PATTERN)
    if listed or (pa.types.is_string(there) and pa.types.is_large_string(field.shown)):
        return column.cast(field.shown)
    raise SchemaError(f"{path}: table `{table}`, column `{field.name}` is `{there}`, and must be `{field.shown}`")


class _PartRows:
    """The rows of one part, with ids of the whole batch."""

    def __init__(self, reader: Reader, part: Part, tables: dict[str, pa.Table]) -> None:
        self.base, self.pools, self.part = reader.rows, reader.pools, part
        self.tables = tables
        self.first_module = reader.rows["modules"]
        self.module: dict[str, Array] = {}
        """Per table the module of each row, counted within the part."""
        self.first: dict[str, Array] = {}
        """Per table the first row of each module within the part, and the number of rows as last item."""
        for table in schema.BY_NAME:
            self._place(table)
        if (np.diff(self.first["modules"]) != 1).any():
            raise self._wrong("modules", "module_id", "there is not one row a module")
        texts = columns.pattern_texts(tables["patterns"]["pattern"])
        self.patterns = columns.ids(texts, self.pools.patterns)

    def _wrong(self, table: str, column: str, what: str) -> SchemaError:
        return SchemaError(f"{self.part.files[table].path}: table `{table}`, column `{column}`: {what}")

    def _place(self, table: str) -> None:
        count = len(self.part.modules)
        module = columns.numbers(self.tables[table]["module_id"], "id") - np.int32(self.first_module)
        if len(module) and (module[0] < 0 or module[-1] >= count or (module[1:] < module[:-1]).any()):
            last = self.first_module + count - 1
            modules = f"{self.first_module} to {last}"
            raise self._wrong(table, "module_id", f"rows must be in the order of their modules, {modules}")
        first = columns.first_rows(module, count)
        shift = first[:1] if count == 1 else first[module]
        own = columns.numbers(self.tables[table]["id"], "id") if "id" in self.tables[table].column_names else None
        if table != "modules" and own is not None and (own != np.arange(len(own), dtype=np.int32) - shift).any():
            raise self._wrong(table, "id", "ids must count the rows of their module from 0")
        self.module[table], self.first[table] = module, first

    def columns(self, table: str) -> dict[str, Values]:
        """Return the stored columns of a table."""
        made = {c.name: self._column(table, c) for c in schema.BY_NAME[table].stored}
        self._check_groups(table, made)
        if table == "references":
            for key, kind in (("row", "table"), ("target_id", "target")):
                made[key] = self._references(key, made[key], made[kind])
        for column in schema.BY_NAME[table].stored:
            if column.default is not None and column.key is not None:
                made[column.name] = self._without_default(column, made[column.name], made["layout"])
        return made

    def _column(self, table: str, column: schema.Column) -> Values:
        if column.name not in self.tables[table].column_names:
            return None
        there = self.tables[table][column.name]
        if len(there) and there.null_count == len(there):
            return None
        if column.kind == "text":
            return columns.text(there)
        if column.of == "shapes":
            return columns.ids(columns.shape_texts(there), self.pools.shapes)
        if column.kind in ("code", "pooled"):
            return columns.ids(there, self.pools.of(column), column.kind)
        values = columns.numbers(there, column.kind)
        if column.name == "module_id" or column.kind != "id" or table == "references":
            return values
        assert column.of is not None
        if column.of == "patterns":
            local = self._keys(table, column.name, values, "patterns", self.module[table], 0)
            return np.where(local < 0, np.int32(-1), self.patterns[local]) if len(self.patterns) else local
        return self._keys(table, column.name, values, column.of, self.module[table], self.base[column.of])

    def _keys(self, table: str, name: str, values: Array, target: str, module: Array, base: int) -> Array:
        """Turn row numbers within modules into row numbers of the batch."""
        if not len(values):
            return values
        shift, rows = columns.window(self.first[target], module)
        where = f"{self.part.files[table].path}: table `{table}`, column `{name}`"
        return columns.moved(values, shift + base, 0, rows, where, target)

    def _references(self, key: str, values: Values, codes: Values) -> Array:
        """Globalise the keys of references, whose table stands in another column."""
        module = self.module["references"]
        out = np.full(len(module), -1, np.int32)
        if values is None or codes is None:
            return out
        assert not isinstance(values, Strings)
        assert not isinstance(codes, Strings)
        names = self.pools.codes["table"].texts
        for code in np.unique(codes[values >= 0]).tolist():
            if code < 0 or names[code] not in schema.STORED:
                raise self._wrong("references", "table" if key == "row" else "target", "a cell names no table")
            mine = (codes == code) & (values >= 0)
            table = names[code]
            out[mine] = self._keys("references", key, values[mine], table, module[mine], self.base[table])
        return out

    def _check_groups(self, table: str, made: dict[str, Values]) -> None:
        """See that the children of a row stand together, in the order of their parents."""
        parent = schema.BY_NAME[table].parent
        keys: Values = made[parent] if parent is not None else None
        if table == "blocks":
            parent = "function_id"
            rows = len(self.module[table])
            function, queue = (
                np.full(rows, -1, np.int32) if v is None else v for v in (made["function_id"], made["queue_id"])
            )
            assert not isinstance(function, Strings)
            assert not isinstance(queue, Strings)
            # Queues come after the functions of their module.
            scope = np.where(function < 0, queue.astype(np.int64) + 2**31, function)
            keys = scope + self.module[table] * np.int64(2**33)
        if parent is not None and keys is not None and not isinstance(keys, Strings) and (keys[1:] < keys[:-1]).any():
            raise self._wrong(table, parent, "rows must be grouped by it, in order")

    def _without_default(self, column: schema.Column, values: Values, layout: Values) -> Values:
        """Make cells absent again that show what an absent cell means."""
        assert column.key is not None
        assert not isinstance(values, Strings)
        assert not isinstance(layout, Strings)
        if values is None:
            return None
        if layout is None:
            without = np.ones(len(values), bool)
        else:
            texts = self.pools.layouts.texts
            lacks = np.array([*(layouts.source(text, column.key) in (None, layouts.NULL) for text in texts), True])
            without = lacks[layout]
        absent = without & (values == column.default)
        if absent.all():
            return None if len(values) else values
        return np.where(absent, schema.NULLS[column.kind], values)

    def diagnostics(self, table: pa.Table) -> list[Diagnostic]:
        """Return the diagnostics of a part, with ids of the batch."""
        found: list[Diagnostic] = []
        for row in table.to_pylist():
            row["pass_name"] = row.pop("pass", "")
            module = row.get("module_id")
            if module is not None:
                if not 0 <= module - self.first_module < len(self.part.modules):
                    raise self._wrong(DIAGNOSTICS, "module_id", "a key names no module of the part")
                for key, target in columns.ABOUT.items():
                    if row.get(key) is not None:
                        row[key] += int(self.first[target][module - self.first_module]) + self.base[target]
            found.append(Diagnostic(**{name: row.get(name) for name in FIELDS}))
        return found
