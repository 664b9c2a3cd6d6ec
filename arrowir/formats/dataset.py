"""The folder of a Parquet data set: its manifest, the digests of its files, and how it replaces an older one at once.

A data set is a folder with one sub-folder a table, part files in them, and a manifest that lists every file with its
size and digest. Whoever reads takes the files from the manifest, so a file that was edited, swapped, cut short or lost
is noticed before anything in it is believed. The folder is filled under another name and takes its place in one step
(rule F5).
"""

import ctypes
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from arrowir import schema
from arrowir.diagnostics import FormatError
from arrowir.formats.folders import MANIFEST, aside

try:
    import fcntl
except ImportError:  # no such locks on Windows: leftovers stay
    fcntl = None

DIAGNOSTICS = "diagnostics"
"""The table of what was noticed when the batch was read; it has no columns in memory."""

TABLES: tuple[str, ...] = (*(table.name for table in schema.TABLES), DIAGNOSTICS)
"""Names of the tables of a data set, each a sub-folder."""

RUN_FILES = ("diagnostics.parquet", "steps.parquet")
"""Files of a run that may lie beside the tables."""

_FORMAT = "arrowir data set"
_PART = re.compile(r"part-\d{5,}\.parquet")
_INCOMING = ".incoming"
_STALE_SECONDS = 60
_AT_CWD = -100
_EXCHANGE = 2


@dataclass(frozen=True, slots=True)
class File:
    """One file of a part: one table of its modules."""

    path: str
    """Relative to the folder, with `/`."""
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Part:
    """A run of modules and the files with their rows."""

    modules: tuple[str, ...]
    files: dict[str, File]


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a data set consists of. Module numbers count through the parts, in order."""

    schema_version: str
    version: str
    """Of the library that wrote it."""
    history: tuple[str, ...]
    parts: tuple[Part, ...]

    def dump(self) -> bytes:
        """Return the text of the manifest: sorted keys, and its own digest."""
        content = {
            "format": _FORMAT,
            "schema_version": self.schema_version,
            "version": self.version,
            "history": list(self.history),
            "modules": sum(len(part.modules) for part in self.parts),
            "rows": {t: sum(part.files[t].rows for part in self.parts) for t in TABLES},
            "parts": [
                {"modules": list(part.modules), "files": {t: asdict(f) for t, f in part.files.items()}}
                for part in self.parts
            ],
        }
        signed = content | {"sha256": _digest(content)}
        return json.dumps(signed, indent=1, sort_keys=True, ensure_ascii=False).encode() + b"\n"


def part_path(table: str, number: int) -> str:
    """Return the path of a part file within the folder."""
    return f"{table}/part-{number:05d}.parquet"


def _digest(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def describe(folder: Path, path: str, rows: int) -> File:
    """Return the manifest's entry for a file that has been written."""
    with (folder / path).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return File(path, rows, (folder / path).stat().st_size, digest)


def load(folder: Path) -> Manifest:
    """Read the manifest of a data set.

    Parameters
    ----------
    folder
        The data set.

    Raises
    ------
    FormatError
        If there is none, it is damaged, or a newer version of the library wrote it.
    """
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        what = f"no data set: `{MANIFEST}` is missing, which a write puts there last; write the data set again"
        raise FormatError(what, path=str(folder)) from None
    except (OSError, ValueError) as error:
        raise FormatError(f"cannot be read: {reason(error)}", path=str(path)) from None
    try:
        content = json.loads(text)
        if content.get("format") != _FORMAT:
            raise FormatError(f"not the manifest of a data set: `format` is {content.get('format')!r}", path=str(path))
        check_version(str(content["schema_version"]), path)
        digest = content.pop("sha256")
        if digest != _digest(content):
            what = "the manifest is not as it was written: its digest differs; write the data set again"
            raise FormatError(what, path=str(path))
        return _manifest(content)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise FormatError("the manifest is damaged; write the data set again", path=str(path)) from None


def check_version(version: str, path: Path) -> None:
    """Refuse tables whose major version is not ours (rule F5)."""
    major = version.partition(".")[0]
    ours = schema.SCHEMA_VERSION.partition(".")[0]
    if major != ours:
        newer = major.isdecimal() and int(major) > int(ours)
        hint = "install a newer arrowir" if newer else "read it with the version that wrote it"
        raise FormatError(
            f"has schema version `{version}`, and this version reads {ours}.x; {hint}, or write the data set again",
            path=str(path),
        )


def _manifest(content: dict[str, Any]) -> Manifest:
    """Make the manifest of parsed JSON; anything odd is a ValueError, KeyError or TypeError."""
    parts: list[Part] = []
    for number, part in enumerate(content["parts"]):
        files = {table: File(**part["files"][table]) for table in TABLES}
        if any(file.path != part_path(table, number) for table, file in files.items()):
            raise ValueError(number)
        parts.append(Part(tuple(part["modules"]), files))
    return Manifest(content["schema_version"], content["version"], tuple(content["history"]), tuple(parts))


def check_parts(folder: Path, manifest: Manifest) -> None:
    """Refuse part files that the manifest does not name: other tools would read their rows, and this one would not.

    Parameters
    ----------
    folder
        The data set.
    manifest
        Its manifest.

    Raises
    ------
    FormatError
        If there is such a file.
    """
    named = {file.path for part in manifest.parts for file in part.files.values()}
    for table in TABLES:
        for path in sorted((folder / table).glob("*.parquet")):
            if f"{table}/{path.name}" not in named and not path.name.startswith("."):
                what = f"is no part of the data set: `{MANIFEST}` does not name it; move it away, or read it by itself"
                raise FormatError(what, path=str(path))


def content_of(folder: Path, file: File) -> bytes:
    """Return the bytes of a file of the data set, checked against the manifest.

    Parameters
    ----------
    folder
        The data set.
    file
        The manifest's entry.

    Raises
    ------
    FormatError
        If the file is missing, or not the one that was written.
    """
    path = folder / file.path
    try:
        data = path.read_bytes()
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        why = "is missing, though the manifest lists it" if missing else f"cannot be read: {reason(error)}"
        raise FormatError(f"{why}; write the data set again", path=str(path)) from None
    if len(data) != file.bytes:
        raise FormatError(
            f"has {len(data):,} bytes, and the manifest says {file.bytes:,}: it was cut short or replaced; "
            "write the data set again",
            path=str(path),
        )
    if hashlib.sha256(data).hexdigest() != file.sha256:
        raise FormatError(
            "is not the file that was written: its digest is not the manifest's; it was edited, swapped or damaged; "
            "write the data set again",
            path=str(path),
        )
    return data


# -- replacing a folder at once ------------------------------------------------------------------------------


def publish(directory: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder under another name, then let it take the place of what stood there before.

    Whoever looks at `directory`, whenever a writer is killed, finds the old data set or the new one, whole.

    Parameters
    ----------
    directory
        Where the data set shall stand: nothing yet, an empty folder, or a data set.
    fill
        Writes everything, the manifest included, into the folder that it is given.

    Raises
    ------
    FormatError
        If something else stands there (nothing is touched then), or it cannot be written.
    """
    with writing(directory):
        target = Path(os.path.realpath(directory))
        target.parent.mkdir(parents=True, exist_ok=True)
        _restore(target)
        holds_dataset = target.exists() and _inspect(target, str(directory))
        if not target.exists() or _is_movable(target):
            _publish_beside(target, fill)
        elif not holds_dataset:
            _publish_inside(target, fill)
        else:
            raise FormatError(
                "cannot be replaced at once, because it is the current directory, a mount point, or its parent is "
                "read-only; empty it first, or write to a folder inside it",
                path=str(directory),
            )


@contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn what the operating system refuses into an error that names the path."""
    try:
        yield
    except (OSError, ValueError) as error:  # a name that has a NUL in it, or is not UTF-8
        raise FormatError(f"cannot be written: {reason(error)}", path=str(path)) from error


def reason(error: OSError | ValueError) -> str:
    """Return why the operating system refused, in a few words."""
    text = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
    return text[:1].lower() + text[1:]


def _inspect(target: Path, shown: str) -> bool:
    """Tell whether a data set stands there; refuse whatever else would be lost."""
    if not target.is_dir():
        raise FormatError("is a file, and a data set is a folder; choose another name", path=shown)
    names = sorted(entry.name for entry in target.iterdir())
    complete = MANIFEST in names
    strange = [n for n in names if n not in (MANIFEST, _INCOMING, *RUN_FILES) and not _is_table(target / n)]
    if not strange and not complete:
        if _INCOMING in names:  # a writer was killed in here, see `_publish_inside`
            _remove_tables(target)
        else:
            strange = [n for n in names if n in TABLES]
    if strange:
        listed = ", ".join(f"`{n}`" for n in strange[:5])
        more = f" and {len(strange) - 5} more" if len(strange) > 5 else ""
        raise FormatError(
            f"holds what is no data set of this library: {listed}{more}; nothing was written; "
            "choose another folder, or empty this one",
            path=shown,
        )
    return complete


def _remove_tables(folder: Path) -> None:
    for name in (_INCOMING, *TABLES):
        shutil.rmtree(folder / name, ignore_errors=True)


def _is_table(path: Path) -> bool:
    """Tell whether a folder holds the parts of a table and nothing else."""
    return path.name in TABLES and path.is_dir() and all(_PART.fullmatch(entry.name) for entry in path.iterdir())


def _is_movable(target: Path) -> bool:
    """Tell whether another folder can take the place of this one without anybody being left in the old one."""
    try:
        inside = Path.cwd().is_relative_to(target)
    except OSError:  # the current directory is gone
        inside = False
    return not inside and not os.path.ismount(target) and os.access(target.parent, os.W_OK)


def _publish_inside(target: Path, fill: Callable[[Path], None]) -> None:
    """Fill an empty folder that cannot be moved: tables first, the manifest last."""
    incoming = target / _INCOMING
    incoming.mkdir()
    try:
        fill(incoming)
        names = sorted((entry.name for entry in incoming.iterdir()), key=lambda name: (name == MANIFEST, name))
        for name in names:
            (incoming / name).replace(target / name)
    except BaseException:
        _remove_tables(target)
        raise
    incoming.rmdir()


def _publish_beside(target: Path, fill: Callable[[Path], None]) -> None:
    """Fill a folder beside the target and swap the two."""
    _clear_leftovers(target)
    with _scratch(target) as scratch:
        fill(scratch)
        if not target.exists():
            scratch.rename(target)
            return
        shutil.copymode(target, scratch)
        for name in RUN_FILES:
            if (target / name).exists() and not (scratch / name).exists():
                shutil.copy2(target / name, scratch / name)
        if not exchange(scratch, target):
            old = aside(target)
            target.rename(old)
            scratch.rename(target)
            old.rename(scratch)


@contextmanager
def _scratch(target: Path) -> Generator[Path]:
    """Make a locked folder beside the target, and remove whatever has its name in the end."""
    token = os.urandom(4).hex()
    new = target.parent / f".{target.name}.{token}.new"
    scratch = target.parent / f".{target.name}.{token}.tmp"
    new.mkdir()
    lock = _lock(new)
    # Only now does it have the name of a leftover, which a writer may remove unless it is locked.
    new.rename(scratch)
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _clear_leftovers(target: Path) -> None:
    """Remove what killed writers of the same target left beside it; a live writer holds a lock on its folder."""
    pattern = re.compile(re.escape(f".{target.name}.") + r"[0-9a-f]{8}\.(tmp|new)")
    for entry in sorted(target.parent.iterdir()):
        if not pattern.fullmatch(entry.name) or not entry.is_dir():
            continue
        if entry.suffix == ".new":
            with suppress(OSError):
                if time.time() - entry.stat().st_mtime > _STALE_SECONDS:
                    entry.rmdir()
        else:
            lock = _lock(entry)
            if lock is not None:
                shutil.rmtree(entry, ignore_errors=True)
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder until the descriptor is closed or the process ends; None where it is locked or cannot be."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _restore(target: Path) -> None:
    """Finish or undo a replacement that was interrupted between its two steps."""
    old = aside(target)
    if (old / MANIFEST).is_file():
        if target.exists():
            shutil.rmtree(old)
        else:
            old.rename(target)


def exchange(one: Path, other: Path) -> bool:
    """Swap two folders in one step; False where the operating system or the file system cannot."""
    if not sys.platform.startswith("linux"):
        return False
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return rename(_AT_CWD, os.fsencode(one), _AT_CWD, os.fsencode(other), _EXCHANGE) == 0
