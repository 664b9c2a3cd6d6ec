"""Where files are written: names that differ, and writes that are whole or not at all (rule F5)."""

import io
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arrowir.diagnostics import ArrowIRError

if TYPE_CHECKING:
    import polars as pl

_MAX_BYTES = 200
_FILE_SUFFIXES = (".json", ".json.gz", ".json.zst")


def is_file_name(path: str | os.PathLike[str]) -> bool:
    """Tell whether a path names a JSON file, and not a folder that is there already.

    Examples
    --------
    >>> is_file_name("out/x.json.gz"), is_file_name("out")
    (True, False)
    """
    return os.fspath(path).endswith(_FILE_SUFFIXES) and not Path(path).is_dir()


def stems(names: Sequence[str], sources: Sequence[str | None]) -> list[str]:
    """Return file stems for modules: their names, behind as many folders of their sources as make equal names differ.

    Parameters
    ----------
    names : sequence of str
        Names of the modules.
    sources : sequence of (str or None)
        Paths that they were read from.

    Returns
    -------
    list of str
        Stems that differ from each other in more than upper and lower case.

    Examples
    --------
    >>> stems(["bir", "bir", "x"], ["a/nc00/sg00/bir.json", "a/nc01/sg00/bir.json", None])
    ['nc00-sg00-bir', 'nc01-sg00-bir', 'x']
    """
    groups: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        groups.setdefault(_legal(name).casefold(), []).append(place)
    found = [_legal(name) for name in names]
    for group in groups.values():
        if len(group) > 1:
            apart = _told_apart([names[p] for p in group], [sources[p] for p in group])
            for place, stem in zip(group, apart, strict=True):
                found[place] = stem
    taken: set[str] = set()
    for place, stem in enumerate(found):
        number = 1
        while found[place].casefold() in taken:
            number += 1
            found[place] = f"{stem}-{number}"
        taken.add(found[place].casefold())
    return found


def _told_apart(names: list[str], sources: list[str | None]) -> list[str]:
    """Return stems for modules of one name: with the fewest folders that tell most of them apart."""
    paths = [Path(source or "") for source in sources]

    def behind(depth: int, names: list[str]) -> list[str]:
        folders = [path.parent.parts[-depth:] if depth else () for path in paths]
        return [_legal("-".join([*above, name])) for above, name in zip(folders, names, strict=True)]

    deepest = max(len(path.parent.parts) for path in paths)
    depth = max(range(deepest + 1), key=lambda depth: (_distinct(behind(depth, names)), -depth))
    found = behind(depth, names)
    if _distinct(found) == len(found):
        return found
    # Of files in one folder only the endings differ, as those of `x.json` and `x.json.gz` do.
    shared = Counter(stem.casefold() for stem in found)
    whole = [
        path.name.removesuffix(".json") if shared[stem.casefold()] > 1 and path.name.startswith(name) else name
        for path, stem, name in zip(paths, found, names, strict=True)
    ]
    return max(found, behind(depth, whole), key=_distinct)


def _distinct(stems: list[str]) -> int:
    return len({stem.casefold() for stem in stems})


def _legal(name: str) -> str:
    """Return a name that a file can have."""
    stem = "".join("_" if char in "/\\\0:" or not char.isprintable() else char for char in name)
    if stem.strip(".") == "":
        stem = "module" + stem.replace(".", "_")
    if len(stem.encode()) > _MAX_BYTES:
        import hashlib

        digest = hashlib.sha256(stem.encode()).hexdigest()[:8]
        stem = f"{stem.encode()[:_MAX_BYTES].decode(errors='ignore')}-{digest}"
    return stem


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that at any time either its old content or all of the new one is there.

    Parameters
    ----------
    path : Path
        The file; its folder is made where it is missing.
    data : bytes
        Its content.

    Raises
    ------
    ArrowIRError
        If it cannot be written.

    Notes
    -----
    Implements rule F5: a temporary file in the same folder is renamed.
    """
    temporary = path.parent / f".{os.urandom(8).hex()}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # a name that has a NUL in it, or is not UTF-8
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ArrowIRError(f"`{path}` cannot be written: {reason}") from error


def write_frame(frame: "pl.DataFrame", path: str | os.PathLike[str]) -> None:
    """Write a Polars frame as one Parquet file, at once (rule F5).

    Categories are written as plain text, so that every tool reads them. Polars writes it: for these few rows pyarrow
    need not be loaded.

    Parameters
    ----------
    frame
        Like the diagnostics of a run.
    path
        The file; an old one is replaced.

    Raises
    ------
    ArrowIRError
        If it cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import polars as pl
    >>> folder = tempfile.mkdtemp()
    >>> write_frame(pl.DataFrame({"module": ["a"]}), f"{folder}/steps.parquet")
    >>> pl.read_parquet(f"{folder}/steps.parquet").item()
    'a'
    """
    import polars as pl

    categories = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Enum | pl.Categorical)]
    plain = frame.with_columns(pl.col(categories).cast(pl.String))
    buffer = io.BytesIO()
    plain.write_parquet(buffer, compression="zstd")
    write_whole(Path(path), buffer.getvalue())
