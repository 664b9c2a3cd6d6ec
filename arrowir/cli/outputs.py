"""Where a command writes: formats, names, and what must not be overwritten."""

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from arrowir.cli import console
from arrowir.cli.console import UsageError
from arrowir.cli.inputs import Inputs
from arrowir.diagnostics import ArrowIRError
from arrowir.formats import bir_json, targets, tensor_map
from arrowir.formats.folders import is_dataset
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
    single: bool = False
    """The JSON place may be a file."""
    maps: bool = False
    """Tensor maps beside the inputs are read and written: those of an earlier run, and of inputs, are looked after."""

    @classmethod
    def for_run(cls, out: str, sources: Sequence[Source], formats: tuple[str, ...] | None) -> "Output":
        """Say where `arrowir run -o OUT` writes: both formats have sub-folders, one alone has OUT itself."""
        if formats is None:
            single = len(sources) == 1 and sources[0].kind == "json"
            formats = ("json",) if single else ("json", "parquet")
        root = Path(out)
        if len(formats) > 1:
            return cls(root, root / "json", root / "parquet", maps=True)
        return cls(root, root, None, maps=True) if "json" in formats else cls(root, None, root)

    @classmethod
    def for_convert(cls, out: str, sources: Sequence[Source], chosen: str | None) -> "Output":
        """Say where `arrowir convert -o OUT` writes."""
        named = out.endswith(SUFFIXES)
        if chosen is None:
            chosen = "json" if named or all(source.kind == "parquet" for source in sources) else "parquet"
        elif chosen == "parquet" and named:
            raise UsageError(f"OUT `{out}` names a JSON file, and `--format parquet` writes a folder")
        root = Path(out)
        return cls(root, root, None, single=True) if chosen == "json" else cls(root, None, root)

    def check_place(self) -> None:
        """Refuse an OUT that cannot be written to, before any work is done.

        Raises
        ------
        UsageError
            If OUT is in the way or cannot be made.
        """
        for folder in {self.root, self.json or self.root, self.parquet or self.root}:
            if folder.exists() and not folder.is_dir() and not (self.single and targets.is_file_name(folder)):
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
        read = _real(given)
        found = [tensor_map.find(source.path) for source in given.sources if self.maps and source.kind == "json"]
        maps = {os.path.realpath(path) for path in found if path is not None}
        for path in self.json_files(given)[0] if self.json is not None else []:
            source = read.get(os.path.realpath(path))
            if source is not None:
                raise UsageError(f"`{path}` would overwrite the input `{source.path}`; choose another OUT")
            if os.path.realpath(tensor_map.beside(path)) in maps:
                raise UsageError(f"`{tensor_map.beside(path)}` would overwrite that of an input; choose another OUT")
        for place, source in read.items():
            out = self.parquet if source.kind == "json" else self.root
            if out is None:
                continue
            there, where = Path(os.path.realpath(out)), Path(place)
            if there == where or (source.kind == "parquet" and there.is_relative_to(where)):
                raise UsageError(f"OUT `{self.root}` is the input `{source.path}`, or within it; choose another OUT")

    def json_files(self, given: Inputs) -> tuple[list[Path], list[Path]]:
        """Return the JSON file of each module, and those that inputs which could not be read would have had.

        All are named together: what a module's file is called does not depend on which of the others could be read.
        """
        assert self.json is not None
        names, sources = bir_json.names_and_sources(given.ir)
        if self.is_file(given):
            return [self.json] * len(names), []
        unread = [failure for failure in given.failures if failure.source.kind == "json"]
        for failure in reversed(unread):
            names.insert(failure.place, failure.name)
            sources.insert(failure.place, failure.source.path)
        failed = {failure.place + number for number, failure in enumerate(unread)}
        files: tuple[list[Path], list[Path]] = [], []
        for place, stem in enumerate(targets.stems(names, sources)):
            files[place in failed].append(self.json / f"{stem}.json")
        return files

    def is_file(self, given: Inputs) -> bool:
        """Tell whether the JSON place is the file of the one module."""
        alone = len(given.sources) == 1 and len(given.ir) <= 1
        return self.single and self.json is not None and alone and targets.is_file_name(self.json)

    def write(self, ir: IR, given: Inputs, **about: "pl.DataFrame") -> list[Path]:
        """Write the modules, and tables about a run beside them.

        Parameters
        ----------
        ir
            What became of the modules that were given.
        given
            What was read. Where an earlier run wrote a file for an input that cannot be read now, the file is set
            aside, with `.stale` behind its name: it is not what this run made. So is a tensor map whose module has
            none any more.
        about
            Tables by the name of their file.

        Returns
        -------
        list of Path
            The files of an earlier run that were set aside.
        """
        stale: list[Path] = []
        if self.json is not None:
            files, lost = self.json_files(given)
            if files and not self.is_file(given):  # a folder, whatever its name looks like
                self.json.mkdir(parents=True, exist_ok=True)
            bir_json.write_files(ir, files)
            inputs = _real(given)
            stale = [path for path in lost if path.is_file() and os.path.realpath(path) not in inputs]
            if self.maps:
                without = ir.tables["modules"]["tensor_map"] < 0
                unmapped = [file for file, lacks in zip(files, without.tolist(), strict=True) if lacks]
                stale += [path for file in [*unmapped, *lost] if (path := tensor_map.beside(file)).is_file()]
            for path in stale:
                path.replace(_aside(path))
        within = self.parquet is not None and (len(ir) > 0 or is_dataset(self.parquet))
        if self.parquet is not None and within:
            from arrowir.formats.parquet import write_parquet

            write_parquet(ir, self.parquet, **(about if self.parquet == self.root else {}))
        if not (within and self.parquet == self.root):
            for name, frame in about.items():
                targets.write_frame(frame, self.root / f"{name}.parquet")
        return stale


def report_stale(paths: Sequence[Path]) -> None:
    """Say which files of an earlier run were set aside."""
    for path in paths:
        why = "its module has none now" if path.name.endswith(tensor_map.NAME) else "its input cannot be read now"
        console.line(f"moved `{path}` of an earlier run to `{_aside(path).name}`: {why}")


def _aside(path: Path) -> Path:
    return path.with_name(f"{path.name}.stale")


def _real(given: Inputs) -> dict[str, Source]:
    """Return the inputs by their real paths."""
    return {os.path.realpath(source.path): source for source in given.sources}


@contextmanager
def writing(out: str) -> Generator[None]:
    """Turn what goes wrong when files are written into a message that names OUT."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        where = f" (`{error.filename}`)" if error.filename else ""
        raise UsageError(f"cannot write to `{out}`: {reason[:1].lower()}{reason[1:]}{where}") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"cannot write to `{out}`: its name is not UTF-8") from error
    except ArrowIRError as error:
        raise UsageError(f"cannot write to `{out}`: {error}") from error
