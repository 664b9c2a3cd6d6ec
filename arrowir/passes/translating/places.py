"""Where a kernel file is: inside the artefact directory or the module's own folder, and nowhere else."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_LEVEL = re.compile(r"sg[0-9]+|sgLnk|nc[0-9]+")
"""Folders of the layout under an artefact directory: `nc00/sg00/bir.json`."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no file to read."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders in which the kernel files of a module may be."""

    own: str | None
    """The module's own folder, its real path; None for a module that was not read from a file."""
    artefacts: str | None
    """The artefact directory, its real path."""

    @property
    def all(self) -> list[str]:
        """Those that there are, each once."""
        return list(dict.fromkeys(folder for folder in (self.own, self.artefacts) if folder is not None))

    def holds(self, path: str) -> bool:
        """Tell whether a real path lies in one of them."""
        return any(Path(path).is_relative_to(folder) for folder in self.all)


def folders_of(source: str | None, artefacts: str | None) -> Folders:
    """Return the folders of a module.

    Parameters
    ----------
    source
        The path that the module was read from.
    artefacts
        The artefact directory, where the caller names one; by default that which the module's path tells: its folder
        without the levels `sg00` and `nc00` at its end.

    Examples
    --------
    >>> folders_of("/a/nc00/sg00/bir.json", None).artefacts, folders_of("/a/kernels/x.json", None).artefacts
    ('/a', '/a/kernels')
    """
    try:
        own = None if source is None else os.path.realpath(Path(source).parent)
        given = None if artefacts is None else os.path.realpath(artefacts)
    except ValueError:  # a path that no file can have
        own = given = None
    if given is None and own is not None:
        place = Path(own)
        while _LEVEL.fullmatch(place.name):
            place = place.parent
        given = str(place)
    return Folders(own, given)


def locate(binary: str, folders: Folders) -> str | Fault:
    """Return the real path of a kernel file.

    It is looked for as it is written, from the module's own folder and from the artefact directory, then by its base
    name in both. What lies outside of them, as `..`, absolute paths and links can have it, is passed over.

    Parameters
    ----------
    binary
        The path in the module.
    folders
        Where the file may be.
    """
    if not folders.all:
        what = "the module was not read from a file, so that its kernel file `{}` cannot be looked for"
        return Fault("no_artefacts", f"{what.format(binary)}; name the folder that holds it with `artefacts`")
    base = Path(binary).name
    names = [binary, base] if base else [binary]
    first = [folder for folder in (folders.own, folders.artefacts) if folder is not None]
    candidates = [Path(folder, binary) for folder in first]
    candidates += [Path(folder, name) for name in names[1:] for folder in reversed(first)]
    outside: str | None = None
    for candidate in dict.fromkeys(candidates):
        try:
            real = os.path.realpath(candidate)
            if not folders.holds(real):
                outside = outside or real
            elif Path(real).exists():
                return real
        except (OSError, ValueError):  # a name that no file can have
            continue
    listed = " and ".join(f"`{folder}`" for folder in folders.all)
    if outside is not None:
        return Fault(
            "kernel_file_outside",
            f"the kernel file `{binary}` lies outside of {listed}, and files elsewhere are not read; "
            "move it there, or name its folder with `artefacts`",
        )
    text = f"NKI Kernel file {binary} does not exist, either in full path or in compiler artifacts directory"
    return Fault("kernel_file_missing", text)
