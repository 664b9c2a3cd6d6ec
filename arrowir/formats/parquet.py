"""Parquet data sets: a batch as a folder of files that any tool reads, and back (rules F1, F5, O5).

A data set has one folder a table and in it one file a part. A part is a run of modules, together a few million
instructions::

    out/_manifest.json
    out/instructions/part-00000.parquet, part-00001.parquet, ...
    out/operands/part-00000.parquet, ...

Every file has the full schema of its table, so a glob like ``out/instructions/*.parquet`` is one table. The key of a
row is (`module_id`, `id`): ids and foreign keys count within the module, `module_id` counts the modules of the data
set. Columns that are derived from others are written for those who look at the files, and left out when they are read
back.
"""

import base64
import json
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from arrowir import arguments, schema
from arrowir.formats import dataset, folders
from arrowir.formats import parquet_columns as columns
from arrowir.formats.dataset import DIAGNOSTICS, TABLES, Manifest, Part
from arrowir.formats.parquet_reader import Reader
from arrowir.formats.targets import write_frame
from arrowir.ir import IR
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

PART_INSTRUCTIONS = 4_000_000
"""Most instructions of a part; a larger module is a part of its own."""

GROUP_ROWS = 1 << 19
"""Most rows of a row group."""

GROUP_TEXT = 1 << 28
"""Most bytes of distinct text of one column in a row group: Parquet's dictionaries end at 2 GiB."""

THREADS = 2
"""Files that are written at the same time."""

_LONG_TEXT = ("layouts", "extras")

# -- out -----------------------------------------------------------------------------------------------------


def write_parquet(
    ir: IR,
    directory: str | os.PathLike[str],
    *,
    diagnostics: "pl.DataFrame | None" = None,
    steps: "pl.DataFrame | None" = None,
) -> None:
    """Write a batch as a Parquet data set.

    The folder is filled beside its place and takes it in one step: whenever the process is killed, there is the old
    data set or the new one. Equal batches give equal bytes, whatever they went through before.

    Parameters
    ----------
    ir
        The batch.
    directory
        The data set's folder. A data set that stands there is replaced.
    diagnostics, steps
        Tables of a run, written beside the tables of the batch as `diagnostics.parquet` and `steps.parquet`. Where they
        are not given, such files of the old data set stay.

    Raises
    ------
    FormatError
        If the folder holds something else than a data set (nothing is touched then), or cannot be written.
    SchemaError
        If the tables do not fit the schema.
    OptionError
        If `directory` is no path.

    Examples
    --------
    >>> import tempfile
    >>> import arrowir as air
    >>> folder = tempfile.mkdtemp()
    >>> ir = air.read_json("data/samples/klr009/scale_add.bir.json")
    >>> ir.write_parquet(folder)
    >>> air.read_parquet(folder).instructions["opcode"].to_list()
    ['Load', 'TensorScalar', 'Save']

    Notes
    -----
    Implements rules F1, F5, N16 and O5.
    """
    target = Path(arguments.path(directory, "`write_parquet`"))
    source = columns.Source(ir)
    source.prepare()

    def fill(folder: Path) -> None:
        parts = _cut(np.diff(source.first["instructions"]))
        names = ir.tables["modules"].text().tolist()
        for table in TABLES:
            (folder / table).mkdir()
        written = [
            Part(tuple(names[first:last]), _write_part(source, folder, number, (first, last)))
            for number, (first, last) in enumerate(parts)
        ]
        for name, frame in zip(dataset.RUN_FILES, (diagnostics, steps), strict=True):
            if frame is not None:
                write_frame(frame, folder / name)
        manifest = Manifest(schema.SCHEMA_VERSION, version(), ir.history, tuple(written))
        (folder / dataset.MANIFEST).write_bytes(manifest.dump())

    dataset.publish(target, fill)


@cache
def version() -> str:
    """Return the version of the library."""
    try:
        return metadata.version("arrowir")
    except metadata.PackageNotFoundError:
        return "unknown"


def _cut(instructions: Array) -> list[tuple[int, int]]:
    """Cut the modules into parts, given the number of instructions of each."""
    parts: list[tuple[int, int]] = []
    first, total = 0, 0
    for module, count in enumerate(instructions.tolist()):
        if total + count > PART_INSTRUCTIONS and module > first:
            parts.append((first, module))
            first, total = module, 0
        total += count
    return [*parts, (first, len(instructions))]


def _write_part(source: columns.Source, folder: Path, number: int, modules: tuple[int, int]) -> dict[str, dataset.File]:
    """Write the files of a run of modules, several at a time."""
    patterns = columns.Patterns(source, modules)

    def write(table: str) -> dataset.File:
        path = dataset.part_path(table, number)
        rows = _write_table(source, table, folder / path, modules, patterns)
        return dataset.describe(folder, path, rows)

    with ThreadPoolExecutor(THREADS) as pool:
        order = sorted(TABLES, key=lambda table: -_rows(source, table, modules))  # the longest work first
        made = dict(zip(order, pool.map(write, order), strict=True))
    return {table: made[table] for table in TABLES}


def _rows(source: columns.Source, table: str, modules: tuple[int, int]) -> int:
    first = source.first.get(table)
    return int(first[modules[1]] - first[modules[0]]) if first is not None else 0


def _write_table(
    source: columns.Source, table: str, path: Path, modules: tuple[int, int], patterns: columns.Patterns
) -> int:
    """Write one table of a run of modules; return the number of rows."""
    rows = 0
    wanted = columns.file_schema(table, written=True)
    with pa.OSFile(str(path), "wb") as file, pq.ParquetWriter(file, wanted, **_options(table)) as writer:
        writer.add_key_value_metadata(_metadata(table, source.ir.history))
        for group in _groups(source, table, modules, patterns):
            writer.write_table(group, row_group_size=max(len(group), 1))
            rows += len(group)
    return rows


def _groups(
    source: columns.Source, table: str, modules: tuple[int, int], patterns: columns.Patterns
) -> Iterator[pa.Table]:
    """Yield the row groups of a file."""
    if table in ("patterns", DIAGNOSTICS):
        if table == "patterns":
            whole = patterns.table()
        else:
            whole = columns.messages(source, source.ir.messages, modules, rest=modules[0] == 0)
        for low in range(0, max(len(whole), 1), GROUP_ROWS):
            yield whole.slice(low, GROUP_ROWS)
        return
    begin, end = (int(source.first[table][m]) for m in modules)
    stack = [(low, min(low + GROUP_ROWS, end)) for low in range(begin, max(end, begin + 1), GROUP_ROWS)][::-1]
    while stack:
        low, high = stack.pop()
        made = [source.column(table, field, low, high, patterns) for field in columns.fields(table)]
        if high - low > 1 and any(_dictionary_bytes(column) > GROUP_TEXT for column in made):
            middle = (low + high) // 2
            stack += [(middle, high), (low, middle)]
            continue
        yield pa.table(made, schema=columns.file_schema(table, written=True))


def _dictionary_bytes(column: pa.Array) -> int:
    return column.dictionary.nbytes if pa.types.is_dictionary(column.type) else 0


@cache
def _options(table: str) -> dict[str, Any]:
    """Return how the files of a table are written."""
    encodings: dict[str, str] = {}
    for field in columns.fields(table):
        if field.shown in (columns.SHAPE, columns.PATTERN):
            inner = [".step", ".num"] if field.shown == columns.PATTERN else [""]
            encodings |= {f"{field.name}.list.element{end}": "DELTA_BINARY_PACKED" for end in inner}
        elif pa.types.is_integer(field.shown):
            encodings[field.name] = "DELTA_BINARY_PACKED"
        elif pa.types.is_large_string(field.written):
            encodings[field.name] = "DELTA_BYTE_ARRAY"
    short = [f.name for f in columns.fields(table) if f.column is None or f.column.of not in _LONG_TEXT]
    return {
        "compression": "zstd",
        "use_dictionary": [f.name for f in columns.fields(table) if f.is_text],
        # Dictionaries come ready made and hold each text once: nothing is gained by giving one up half-way.
        "dictionary_pagesize_limit": 1 << 30,
        "column_encoding": encodings,
        "write_statistics": short,
        "write_page_checksum": True,
        # Written by hand, as what readers shall see: see `_metadata`.
        "store_schema": False,
    }


def _metadata(table: str, history: Sequence[str]) -> dict[str, str]:
    """Return the metadata of a file.

    Its Arrow schema says that interned text is text, since dictionaries are Parquet's matter there.
    """
    shown = columns.file_schema(table, written=False).serialize().to_pybytes()
    return {
        columns.VERSION_KEY: schema.SCHEMA_VERSION,
        columns.TABLE_KEY: table,
        "arrowir.version": version(),
        "arrowir.history": json.dumps(list(history)),
        "ARROW:schema": base64.b64encode(shown).decode(),
    }


# -- in ------------------------------------------------------------------------------------------------------


def is_dataset(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path is a Parquet data set of this library, or what is left of one.

    Parameters
    ----------
    path
        Any path.

    Examples
    --------
    >>> is_dataset("data/samples")
    False
    """
    return folders.is_dataset(Path(path))


def read_parquet(directory: str | os.PathLike[str]) -> IR:
    """Read a Parquet data set that `write_parquet` wrote.

    Every file is compared with the manifest's digest before it is read, and Parquet's own checksums are verified.

    Parameters
    ----------
    directory
        The data set's folder.

    Returns
    -------
    IR
        The batch, with its history and provenance.

    Raises
    ------
    FormatError
        If a file is missing, was edited, swapped, cut short, damaged or added, or a newer version wrote it; the message
        names the file.
    SchemaError
        If the tables do not fit the schema; the message names table and column.
    OptionError
        If `directory` is no path.

    Examples
    --------
    >>> read_parquet("data/samples")
    Traceback (most recent call last):
    arrowir.diagnostics.FormatError: data/samples: no data set: `_manifest.json` is missing, ...

    Notes
    -----
    Implements rules F1 and F5.
    """
    folder = folders.locate(Path(arguments.path(directory, "`read_parquet`")))
    manifest = dataset.load(folder)
    dataset.check_parts(folder, manifest)
    reader = Reader(folder)
    for part in manifest.parts:
        reader.add(part)
    return reader.finish(manifest.history)
