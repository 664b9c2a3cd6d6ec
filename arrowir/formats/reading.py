"""The one way in: files, globs, directories and data sets become one batch (rules F2, O4)."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from arrowir import diagnostics
from arrowir.diagnostics import Diagnostic, FormatError, OptionError, SchemaError
from arrowir.formats import bir_json, content
from arrowir.formats.folders import is_dataset
from arrowir.ir import IR
from arrowir.store import Pools

Pathish = str | PathLike[str]

SUFFIXES = (".json", ".json.gz", ".json.zst")
"""Endings of the files that a directory is read for."""

COMPANIONS = ("tensor_map.json", ".debuginfo.json")
"""Endings of JSON files that stand beside modules and are none themselves; directories and globs are read without."""


@dataclass(frozen=True, slots=True)
class Source:
    """One thing to read."""

    path: str
    kind: Literal["json", "parquet"]
    """One document, or a data set of many modules."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A source that could not be read."""

    source: Source
    place: int
    """Number of modules of the batch that stand before it."""
    diagnostic: Diagnostic

    @property
    def name(self) -> str:
        """Name that the module would have had."""
        return self.diagnostic.module


@dataclass(frozen=True, slots=True)
class Gathered:
    """What came of reading some sources."""

    ir: IR
    """The modules that could be read, in order; `ir.diagnostics` has the failures as rows too."""
    failures: tuple[Failure, ...]


def read(source: "Pathish | Iterable[Pathish]", *, strict: bool = False) -> IR:
    """Read modules into one batch.

    Parameters
    ----------
    source
        A file, a glob, a directory (its `*.json`, also `.gz` and `.zst`), a data set that `write_parquet` wrote, or a
        list of these. What a glob or a directory stands for is read in alphabetical order, a list in its own.
    strict
        Raise on the first file that cannot be read.

    Returns
    -------
    IR
        All modules. A file of many that cannot be read is a `format_error` row of `ir.diagnostics`, and the rest goes
        on (rule F2).

    Raises
    ------
    FormatError
        If a path names nothing; if the one file asked for cannot be read; with `strict`, if any file cannot.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/chain4*.json")
    >>> ir.modules["name"].to_list()
    ['chain4']
    """
    sources = find(source)
    # One file or data set asked for by its name is no batch in which the rest could go on.
    alone = isinstance(source, str | PathLike) and [s.path for s in sources] == [os.fspath(source)]
    return gather(sources, strict=strict or alone).ir


def find(source: "Pathish | Iterable[Pathish]") -> list[Source]:
    """Return what a path, a glob, a directory or a list of them stands for.

    Parameters
    ----------
    source
        As in `read`.

    Returns
    -------
    list of Source
        At least one.

    Raises
    ------
    FormatError
        If a path names nothing.
    """
    if isinstance(source, str | PathLike):
        return _of_path(os.fspath(source))
    given: Any = source
    if isinstance(given, bytes) or not isinstance(given, Iterable):
        hint = "; `read_json` reads bytes" if isinstance(given, bytes) else ""
        raise OptionError(f"`read` takes a path or a list of paths, got {type(given).__name__}{hint}")
    paths = list(source)
    for path in paths:
        if not isinstance(path, str | PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"`read` takes a path or a list of paths, got a list with {type(path).__name__}")
    if not paths:
        raise OptionError("the list of inputs is empty; give at least one path")
    return [found for path in paths for found in _of_path(os.fspath(path))]


def _of_path(path: str) -> list[Source]:
    if not path:
        raise FormatError("the path is empty", path="input")
    place = Path(path)
    try:
        if is_dataset(place):
            return [Source(path, "parquet")]
        if place.is_dir():
            return _of_directory(place)
        if place.exists():
            return [Source(path, "json")]
    except (OSError, ValueError) as error:  # a name that is too long, or has a NUL in it
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise FormatError(f"cannot be read: {reason[:1].lower()}{reason[1:]}", path=path) from None
    if not glob.has_magic(path):
        raise FormatError("no such file or directory", path=path)
    matches = sorted(glob.glob(path, recursive=True))  # noqa: PTH207 - keeps the path as the user wrote it
    found: list[Source] = []
    for match in matches:
        if not Path(match).is_dir():
            if not _is_companion(Path(match).name):
                found.append(Source(match, "json"))
        elif is_dataset(Path(match)):
            found.append(Source(match, "parquet"))
        elif documents(Path(match)):
            found += _of_directory(Path(match))
    if not found:
        passed = next((match for match in matches if _is_companion(Path(match).name)), None)
        hint = f" that could be a module; `{passed}` stands beside one" if passed is not None else ""
        raise FormatError(f"no file matches{hint}", path=path)
    return found


def documents(directory: Path) -> list[str]:
    """Return the BIR files right inside a directory, sorted; hidden ones and companions of modules are left out."""
    names = sorted(
        entry.name
        for entry in directory.iterdir()
        if entry.name.endswith(SUFFIXES) and not entry.name.startswith(".") and not _is_companion(entry.name)
    )
    paths = [directory / name for name in names]
    # A link that leads nowhere is a module that cannot be read; to leave it out would hide that it is missing.
    return [str(path) for path in paths if path.is_file() or not path.exists()]


def _is_companion(name: str) -> bool:
    bare = name.removesuffix(".gz").removesuffix(".zst")
    return any(bare == ending or bare.endswith("." + ending.removeprefix(".")) for ending in COMPANIONS)


def _of_directory(directory: Path) -> list[Source]:
    found = documents(directory)
    if found:
        return [Source(path, "json") for path in found]
    below = sorted(p for p in directory.iterdir() if p.is_dir() and (is_dataset(p) or documents(p)))
    hint = f"; did you mean `{below[0]}`?" if below else ""
    raise FormatError(f"the directory has no `*.json` file and is no data set{hint}", path=str(directory))


def gather(
    sources: Sequence[Source], *, strict: bool = False, progress: Callable[[int], None] | None = None
) -> Gathered:
    """Read sources into one batch, in order.

    Parameters
    ----------
    sources
        What to read.
    strict
        Raise on the first source that cannot be read.
    progress
        Called with the number of sources that are done, before each one.

    Returns
    -------
    Gathered
        The batch, and what could not be read.

    Raises
    ------
    FormatError
        With `strict`, if a source cannot be read.
    """
    batches: list[IR] = []
    failures: list[Failure] = []
    modules = 0
    for first, last in _stretches(sources):
        stretch = sources[first:last]
        if stretch[0].kind == "json":
            batch, failed = _read_documents(stretch, strict, _told(stretch, progress, first))
        else:
            batch, failed = _read_dataset(stretch[0], strict, _told(stretch, progress, first))
        failures += [replace(f, place=f.place + modules) for f in failed]
        batches.append(batch)
        modules += len(batch)
    return Gathered(_together(batches), tuple(failures))


def _together(parts: list[IR]) -> IR:
    if len(parts) > 1:
        from arrowir import batches

        return batches.concat(parts)
    return parts[0] if parts else IR({}, Pools())


def _stretches(sources: Sequence[Source]) -> list[tuple[int, int]]:
    """Cut sources into stretches of documents, and data sets one by one."""
    cuts = [i for i in range(1, len(sources)) if "parquet" in (sources[i].kind, sources[i - 1].kind)]
    return list(pairwise([0, *cuts, len(sources)])) if sources else []


def _told(stretch: Sequence[Source], progress: Callable[[int], None] | None, first: int) -> Iterator[Source]:
    for number, source in enumerate(stretch):
        if progress is not None:
            progress(first + number)
        yield source


def _read_documents(stretch: Sequence[Source], strict: bool, told: Iterator[Source]) -> tuple[IR, list[Failure]]:
    ir, found = bir_json.read_documents((source.path for source in told), strict=strict)
    errors = [d for d in found if d.code == "format_error"]
    pool, sources = ir.pools.names.texts, ir.tables["modules"]["source"].tolist()
    failures: list[Failure] = []
    module = 0
    for source in stretch:
        # What could be read stands in the batch in order; a file between two of those could not.
        if module < len(sources) and pool[sources[module]] == content.shown(source.path):
            module += 1
        else:
            failures.append(Failure(source, module, errors[len(failures)]))
    return ir, failures


def _read_dataset(source: Source, strict: bool, told: Iterator[Source]) -> tuple[IR, list[Failure]]:
    from arrowir.formats.parquet import read_parquet

    for _ in told:
        try:
            return read_parquet(source.path), []
        except (FormatError, SchemaError) as error:
            if strict:
                raise
            name = bir_json.stem(content.shown(source.path).rstrip(os.sep))
            row = diagnostics.make("format_error", content.shown(str(error)), module=name)
            return IR({}, Pools(), diagnostics=[row]), [Failure(source, 0, row)]
    raise AssertionError(source)
