"""Where a command writes: formats, names, and what must not be overwritten."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arrowir.cli.console import UsageError
from arrowir.cli.inputs import Inputs
from arrowir.diagnostics import FormatError
from arrowir.formats.reading import SUFFIXES, Source
from arrowir.ir import IR

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Output:
    """The places that a command writes to."""

    root: Path
    json: Path | None
    """Folder of the JSON files, or the one file."""
    parquet: Path | None
    """Folder of the data set."""

    @property
    def tables(self) -> Path:
        """Folder of the tables about a run."""
        return self.root

    @classmethod
    def for_run(cls, out: str, sources: Sequence[Source], formats: tuple[str, ...] | None) -> "Output":
        """Say where `arrowir run -o OUT` writes: both formats have sub-folders, one alone has OUT itself."""
        if formats is None:
            single = len(sources) == 1 and sources[0].kind == "json"
            formats = ("json",) if single else ("json", "parquet")
        root = Path(out)
        if len(formats) > 1:
            return cls(root, root / "json", root / "parquet")
        return cls(root, root, None) if "json" in formats else cls(root, None, root)

    @classmethod
    def for_convert(cls, out: str, sources: Sequence[Source], chosen: str | None) -> "Output":
        """Say where `arrowir convert -o OUT` writes."""
        named = out.endswith(SUFFIXES)
        if chosen is None:
            chosen = "json" if named or all(source.kind == "parquet" for source in sources) else "parquet"
        root = Path(out)
        return cls(root, root, None) if chosen == "json" else cls(root, None, root)

    def check_place(self) -> None:
        """Refuse an OUT that cannot be written to, before any work is done.

        Raises
        ------
        UsageError
            If OUT is in the way or cannot be made.
        """
        for folder in {self.root, self.json or self.root, self.parquet or self.root}:
            if folder.exists() and not folder.is_dir() and not (folder == self.json and is_file_name(folder)):
                raise UsageError(f"cannot write to `{folder}`: it is a file, and a folder is needed there")
            place = folder
            while not place.exists() and place != place.parent:
                place = place.parent
            if place.is_file() and place != folder:
                raise UsageError(f"cannot write to `{folder}`: `{place}` is a file")
            if not os.access(place, os.W_OK):
                raise UsageError(f"cannot write to `{folder}`: no permission to write in `{place}`")

    def check_inputs(self, given: Inputs) -> None:
        """Refuse to overwrite what was read.

        Raises
        ------
        UsageError
            If a file to write is an input, or one of the data sets, read or written, lies within the other.
        """
        read = {os.path.realpath(source.path): source for source in given.sources}
        for path in self.json_paths(given.ir) if self.json is not None else []:
            source = read.get(os.path.realpath(path))
            if source is not None:
                raise UsageError(f"`{path}` would overwrite the input `{source.path}`; choose another OUT")
        for place, source in read.items():
            out = self.parquet if source.kind == "json" else self.root
            if out is None:
                continue
            there, where = Path(os.path.realpath(out)), Path(place)
            if there == where or (source.kind == "parquet" and there.is_relative_to(where)):
                raise UsageError(f"OUT `{self.root}` is the input `{source.path}`, or within it; choose another OUT")

    def json_paths(self, ir: IR) -> list[Path]:
        """Return the JSON file of each module."""
        from arrowir.formats import bir_json

        assert self.json is not None
        if is_file_name(self.json) and len(ir) == 1 and not self.json.is_dir():
            return [self.json]
        return [self.json / name for name in bir_json.file_names(ir)]

    def write(self, ir: IR) -> None:
        """Write the modules."""
        if not len(ir):
            return
        if self.json is not None:
            ir.write_json(self.json)
        if self.parquet is not None:
            ir.write_parquet(self.parquet)

    def write_tables(self, *, diagnostics: "pl.DataFrame", steps: "pl.DataFrame") -> None:
        """Write the tables about a run beside the modules."""
        from arrowir.formats.parquet import write_frame

        write_frame(diagnostics, self.tables / "diagnostics.parquet")
        write_frame(steps, self.tables / "steps.parquet")


def is_file_name(path: Path) -> bool:
    """Tell whether a name is that of a BIR file."""
    return path.name.endswith(SUFFIXES)


@contextmanager
def writing(out: str) -> Iterator[None]:
    """Turn what goes wrong when files are written into a message that names OUT."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        where = f" (`{error.filename}`)" if error.filename else ""
        raise UsageError(f"cannot write to `{out}`: {reason[:1].lower()}{reason[1:]}{where}") from error
    except FormatError as error:
        raise UsageError(f"cannot write to `{out}`: {error}") from error
