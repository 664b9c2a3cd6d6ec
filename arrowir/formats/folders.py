"""What a folder is: a data set, or what is left of one. Apart from `dataset`, since whoever reads has to ask."""

import os
from pathlib import Path

MANIFEST = "_manifest.json"
"""Name of the manifest within the folder."""


def is_dataset(path: Path) -> bool:
    """Tell whether a path is a data set, or what is left of one."""
    folder = locate(path)
    return (folder / MANIFEST).is_file() or next((folder / "modules").glob("part-*.parquet"), None) is not None


def locate(directory: Path) -> Path:
    """Return the folder, or where an interrupted replacement set it aside while nothing stands in its place."""
    try:
        there = aside(Path(os.path.realpath(directory)))
        return there if not directory.exists() and (there / MANIFEST).is_file() else directory
    except ValueError:  # a name that no folder can have
        return directory


def aside(target: Path) -> Path:
    """Return where a data set stands while another takes its place in two steps."""
    return target.parent / f".{target.name}.aside"
