"""From the INPUTs of a command to one batch."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arrowir.cli.console import Progress, UsageError
from arrowir.diagnostics import Diagnostic, FormatError
from arrowir.formats import reading
from arrowir.formats.reading import Failure, Source
from arrowir.ir import IR


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a command works on."""

    ir: IR
    sources: tuple[Source, ...]
    failures: tuple[Failure, ...]

    @property
    def messages(self) -> tuple[Diagnostic, ...]:
        """What reading noticed, failures included."""
        return self.ir.messages


def find(paths: Sequence[str]) -> tuple[Source, ...]:
    """Return what the INPUTs stand for; what is named twice is taken once.

    Raises
    ------
    UsageError
        If one of them names nothing.
    """
    try:
        sources = reading.find(list(paths))
    except FormatError as error:
        raise UsageError(str(error)) from None
    once: dict[str, Source] = {}
    for source in sources:
        once.setdefault(str(Path(source.path).absolute()), source)
    return tuple(once.values())


def load(sources: Sequence[Source], progress: Progress, *, strict: bool = False) -> Inputs:
    """Read sources into one batch; those that cannot be read are among the failures.

    Raises
    ------
    FormatError
        With `strict`, if one cannot be read.
    """

    def at(done: int) -> None:
        progress.at("reading", done, len(sources))

    gathered = reading.gather(sources, strict=strict, progress=at)
    return Inputs(gathered.ir, tuple(sources), gathered.failures)


def interleaved(inputs: Inputs, rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    """Put rows for the sources that could not be read between those of the modules, where they stand in the input."""
    out: list[dict[str, object]] = []
    failures = list(inputs.failures)
    for place, row in enumerate([*rows, None]):
        while failures and failures[0].place == place:
            failed = failures.pop(0)
            out.append({"name": failed.name, "source": failed.source.path, "status": "failed"})
        if row is not None:
            out.append(row)
    return out
