"""What a row of the report is, and the list of all rows."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

MODULES = ("inlining", "files", "passes", "pipelines", "analyses", "commands")
"""Modules of this package that hold rows, in the order of the report."""


def _nothing() -> None:
    return None


def _accept(made: Any) -> None:
    del made


@dataclass(frozen=True)
class Case:
    """A row that is set up: what to time, and what belongs around it but is not timed."""

    run: Callable[[Any], Any]
    """What is timed; it gets what `fresh` made."""
    amount: int
    """How much one run does."""
    unit: str
    """What `amount` counts: `instructions` or `bytes` say; `runs` where nothing is counted."""
    fresh: Callable[[], Any] = _nothing
    """Makes the input of one run."""
    check: Callable[[Any], None] = _accept
    """Raises when a result is not what it should be; called once."""
    facts: dict[str, int] = field(default_factory=dict[str, int])
    """What else belongs in the report: numbers, and what they count."""
    collect: bool = True
    """Whether the cyclic collector is on while the row runs."""
    child: bool = False
    """Whether the work is done by child processes, whose memory counts then."""


@dataclass(frozen=True)
class Inputs:
    """Where the prepared inputs lie, and which size is asked for."""

    folder: Path
    quick: bool

    def path(self, name: str) -> Path:
        """Return the place of an input."""
        return self.folder / name

    def size(self, full: int, quick: int) -> int:
        """Return a size: the full one, or the one of a smoke test."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Peer:
    """Another row of the same run that a row is compared with."""

    name: str
    at_most: float | None = None
    """Target of the ratio of the medians: row by peer."""


@dataclass(frozen=True)
class Row:
    """A row of the report."""

    name: str
    what: str
    set_up: Callable[[Inputs], Case]
    needs: tuple[str, ...] = ()
    """Inputs to prepare, by their names in `inputs.py`."""
    peers: tuple[Peer, ...] = ()
    seconds: float | None = None
    """Target of the median."""


def rows() -> dict[str, Row]:
    """Return all rows by name, in the order of the report."""
    found: dict[str, Row] = {}
    for module in MODULES:
        for row in import_module(f"tests.benchmarks.{module}").ROWS:
            assert row.name not in found, f"two rows are named `{row.name}`"
            found[row.name] = row
    return found


def chosen(names: Iterable[str], known: dict[str, Row]) -> list[Row]:
    """Return some rows and those they are compared with, in the order of the report.

    Raises
    ------
    KeyError
        If there is no row of a name.
    """
    wanted: set[str] = set()
    for name in names:
        wanted |= {name, *(peer.name for peer in known[name].peers)}
    return [row for row in known.values() if row.name in wanted]


def groups(some: list[Row]) -> list[list[Row]]:
    """Put rows that are compared with each other, directly or by way of others, into one group.

    The rows of a group take turns, so that what else the machine does falls on all of them alike.
    """
    names = {row.name for row in some}
    group = {row.name: row.name for row in some}
    for row in some:
        for peer in row.peers:
            if peer.name in names:
                old, new = group[peer.name], group[row.name]
                group = {name: new if mine == old else mine for name, mine in group.items()}
    return [[row for row in some if group[row.name] == one] for one in dict.fromkeys(group.values())]
