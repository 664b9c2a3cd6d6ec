"""Where files are written: names that differ, and writes that are whole or not at all (rule F5)."""

import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from arrowir.diagnostics import ArrowIRError

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
    found = [_legal(name) for name in names]
    groups: dict[str, list[int]] = {}
    for place, stem in enumerate(found):
        groups.setdefault(stem.casefold(), []).append(place)
    for group in groups.values():
        folders = [Path(sources[place] or "").parent.parts for place in group]
        for depth in range(1, 1 + max(map(len, folders))) if len(group) > 1 else ():
            longer = [_legal("-".join([*f[-depth:], names[p]])) for f, p in zip(folders, group, strict=True)]
            if len({stem.casefold() for stem in longer}) == len(group):
                for place, stem in zip(group, longer, strict=True):
                    found[place] = stem
                break
    taken: set[str] = set()
    for place, stem in enumerate(found):
        number = 1
        while found[place].casefold() in taken:
            number += 1
            found[place] = f"{stem}-{number}"
        taken.add(found[place].casefold())
    return found


def _legal(name: str) -> str:
    """Return a name that a file can have."""
    stem = "".join("_" if char in "/\\\0:" or not char.isprintable() else char for char in name)
    if stem.strip(".") == "":
        stem = "module" + stem.replace(".", "_")
    if len(stem.encode()) > _MAX_BYTES:
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
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("xb") as file:
                file.write(data)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise ArrowIRError(f"`{path}` cannot be written: {error.strerror or error}") from error
