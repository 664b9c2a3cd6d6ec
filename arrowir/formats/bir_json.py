"""Reading and writing BIR JSON: documents to a batch of tables, and back without loss (rules F1 to F6, R0 to R5).

This is the reference reader: plain Python over parsed JSON.
"""

import gc
import os
import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from arrowir import arguments, diagnostics
from arrowir.diagnostics import Diagnostic, FormatError, OptionError
from arrowir.formats import assemble, content, json_text, targets
from arrowir.formats.bir_reader import BirReader
from arrowir.formats.findings import About, report, report_duplicates, report_values
from arrowir.formats.values import Wrong
from arrowir.ir import IR
from arrowir.store import Pools

if TYPE_CHECKING:
    from arrowir.formats.json_writer import JsonWriter

Source = str | os.PathLike[str] | bytes

_after = re.compile(r"(?:^|\.)after-([^.]+)").search
_half_escape = re.compile(r"\\u[dD][89a-fA-F]").search
_suffix = re.compile(r"((\.bir)?\.json)?(\.gz|\.zst)?\Z").sub


def read_json(source: Source, *, name: str | None = None, strict: bool = False) -> IR:
    """Read one BIR JSON document.

    Parameters
    ----------
    source : path or bytes
        A file (plain, gzip or zstd, which is found by content), or its content.
    name : str, optional
        Name of the module; by default the stem of the file, ``document`` for bytes.
    strict : bool
        For the sake of `read_documents`: a single document that cannot be read raises in any case.

    Returns
    -------
    IR
        A batch of one module; its `diagnostics` say what was noticed.

    Raises
    ------
    FormatError
        If it is not a BIR module, or a known member has a wrong value, with byte offset or JSON path.
    OptionError
        If the source is neither a path nor bytes, or the name no text.

    Notes
    -----
    Implements rules F1 (lossless), F2, F3, F4 and R0 to R5.

    Examples
    --------
    >>> ir = read_json(b'{"version": 2, "arch": "gen3", "functions": []}', name="empty")
    >>> ir.modules["arch"].to_list()
    ['gen3']
    """
    if not isinstance(source, bytes):
        source = arguments.path(source, "`read_json`")
    item = source if name is None else (arguments.text(name, "`name`"), source)
    return read_documents([item], strict=True)[0]


def read_documents(
    sources: Iterable[Source | tuple[str, Source]], *, strict: bool = False
) -> tuple[IR, list[Diagnostic]]:
    """Read many BIR JSON documents into one batch.

    Parameters
    ----------
    sources : iterable
        Paths, bytes, or pairs of a module name and one of these.
    strict : bool
        Raise on the first document that cannot be read, instead of going on with the others.

    Returns
    -------
    ir, diagnostics
        The batch of the documents that could be read, in order; what was noticed in all of them. A document that could
        not be read is a `format_error` row (rule F2).

    Raises
    ------
    FormatError
        With `strict`, for the first document that cannot be read.

    Examples
    --------
    >>> ir, found = read_documents([("good", b'{"version": 2, "functions": []}'), ("bad", b"[]")])
    >>> len(ir), [(d.module, d.code) for d in found]
    (1, [('bad', 'format_error')])
    """
    pools = Pools()
    parts: list[assemble.Part] = []
    found: list[Diagnostic] = []
    begins = dict.fromkeys(assemble.schema.STORED, 0)
    for item in sources:
        name, source = item if isinstance(item, tuple) else (None, item)
        path = None if isinstance(source, bytes) else content.shown(os.fspath(source))
        module = name if name is not None else "document" if path is None else stem(path)
        try:
            # The parsed tree is gone when the collector comes back: it would walk all of it.
            with no_collector():
                part, rows = _read(pools, source, path, module, len(parts), begins)
        except FormatError as error:
            if strict:
                raise
            found.append(diagnostics.make("format_error", str(error), module=module))
            continue
        parts.append(part)
        found.extend(rows)
        for table, length in part.lengths.items():
            begins[table] += length
    return IR(assemble.tables_of(parts), pools, diagnostics=found), found


def _read(
    pools: Pools, source: Source, path: str | None, module: str, module_id: int, begins: dict[str, int]
) -> tuple[assemble.Part, list[Diagnostic]]:
    """Read one document."""
    label = path or module
    text = content.decode(content.read_bytes(source, label), label)
    surrogates = may_hold_surrogates(text)
    document = json_text.parse(text, label)
    del text
    return read_parsed(pools, document, path, module, module_id, begins, surrogates=surrogates)


def may_hold_surrogates(text: str) -> bool:
    """Tell whether strings of a JSON text may hold halves of surrogate pairs."""
    return _half_escape(text) is not None


def read_parsed(
    pools: Pools,
    document: json_text.Document,
    path: str | None,
    module: str,
    module_id: int,
    begins: dict[str, int],
    *,
    surrogates: bool,
) -> tuple[assemble.Part, list[Diagnostic]]:
    """Read one parsed document into the columns of a module.

    Parameters
    ----------
    pools
        Where text is interned.
    document, path, module
        The document, the file that it stands in (if it does), and the name of the module.
    module_id, begins
        Number of the module in its batch, and where its rows begin there, by table: for what is noticed.
    surrogates
        Whether strings may hold halves of surrogate pairs.

    Returns
    -------
    part, diagnostics
        The columns, and what was noticed.

    Raises
    ------
    FormatError
        If it is not a BIR module, or a known member has a wrong value.
    """
    label = path or module
    reader = BirReader(pools, surrogates=surrogates)
    try:
        reader.read(document.value, name=module, source=path, stage=_stage(label))
    except Wrong as error:
        raise FormatError(error.message, path=label, json_path=error.path or "$") from None
    about = About(module, module_id, dict(begins), reader.texts)
    unknown = {name: codes.unknown for name, codes in reader.members.codes.items()}
    value = document.value
    found = [
        *report_duplicates(document, about),
        *report_values(unknown, value.get("arch"), value.get("version"), about),
        *report(reader.findings, about),
    ]
    return assemble.part_of(reader), found


@contextmanager
def no_collector() -> Generator[None]:
    """Switch the cyclic collector off: it would walk the growing tree again and again, in which there are no cycles."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def stem(path: str) -> str:
    """Return the name of a module by its file: without folders and the suffixes of BIR JSON files.

    Examples
    --------
    >>> stem("nc00/sg00/bir.json"), stem("chain4.bir.json.gz")
    ('bir', 'chain4')
    """
    name = Path(path).name
    return _suffix("", name) or name


def _stage(path: str) -> str | None:
    found = _after(Path(path).name)
    return found[1].removesuffix(".json") if found else None


def to_json(ir: IR, module_id: int = 0, indent: int | None = None) -> bytes:
    """Return one module as a BIR JSON document.

    Parameters
    ----------
    ir : IR
        The batch.
    module_id : int
        The module.
    indent : int, optional
        Spaces per level; by default the document is compact.

    Returns
    -------
    bytes
        UTF-8 text, equal as a document to what was read where nothing was changed.

    Raises
    ------
    OptionError
        If there is no such module, or `indent` is no number of spaces.

    Notes
    -----
    Implements rules F1 and R1: a name is that of the row which the reference points at.

    Examples
    --------
    >>> to_json(read_json(b'{"version": 2, "functions": [], "more": 1.50}'))
    b'{"version":2,"functions":[],"more":1.50}'
    """
    if not 0 <= module_id < len(ir):
        raise OptionError(f"module ids go from 0 to {len(ir) - 1}, got {module_id}")
    return _encoded(_writer(ir), module_id, arguments.indent(indent))


def _writer(ir: IR) -> "JsonWriter":
    from arrowir.formats.json_writer import JsonWriter

    return JsonWriter(ir)


def _encoded(writer: "JsonWriter", module_id: int, indent: int | None) -> bytes:
    with no_collector():
        text = writer.text(module_id)
    return (text if indent is None else json_text.indented(text, indent)).encode()


def write_json(ir: IR, path: str | os.PathLike[str], indent: int | None = None) -> list[str]:
    """Write each module of a batch as a BIR JSON file.

    Parameters
    ----------
    ir : IR
        The batch.
    path : path
        A name that ends in ``.json``, ``.json.gz`` or ``.json.zst`` is the file of the one module; anything else is a
        folder, in which each module becomes ``<name>.json``. Modules of one name get folders of their sources in
        front.
    indent : int, optional
        Spaces per level; by default documents are compact.

    Returns
    -------
    list of str
        The files, one per module, in order.

    Raises
    ------
    ArrowIRError
        If a file cannot be written.
    OptionError
        If `path` is no path, or `indent` no number of spaces.

    Notes
    -----
    Implements rules F1 and F5: each file is written to a temporary name and renamed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     files = write_json(read_json(b'{"version": 2, "functions": []}', name="empty"), folder)
    >>> [Path(file).name for file in files]
    ['empty.json']
    """
    folder = Path(arguments.path(path, "`write_json`"))
    indent = arguments.indent(indent)
    if len(ir) == 1 and targets.is_file_name(folder):
        files = [folder]
    else:
        files = [folder / f"{stem}.json" for stem in targets.stems(*names_and_sources(ir))]
    write_files(ir, files, indent)
    return [str(file) for file in files]


def write_files(ir: IR, files: Sequence[Path], indent: int | None = None) -> None:
    """Write each module of a batch to the file of its place (rule F5), and its tensor map beside it (rule N17)."""
    writer = _writer(ir)
    for module_id, file in enumerate(files):
        targets.write_whole(file, content.pack(_encoded(writer, module_id, indent), file.name))
    if ir.tables["modules"].present("tensor_map"):
        from arrowir.formats import tensor_map  # which names files as this does

        tensor_map.write(ir, files)


def names_and_sources(ir: IR) -> tuple[list[str], list[str | None]]:
    """Return the name of each module, and the path that it was read from."""
    modules, pool = ir.tables["modules"], ir.pools.names.texts
    return modules.text().tolist(), [pool[i] if i >= 0 else None for i in modules["source"].tolist()]
