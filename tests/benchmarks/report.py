"""What came out, as text and as JSON, with the machine and the versions it was measured with."""

import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.registry import Row

PACKAGES = ("arrowir", "numpy", "polars", "pyarrow", "numba", "llvmlite", "orjson")
HEADER = ("row", "median", "min", "max", "processor", "rate", "peak memory", "compared with", "ratio", "target")
LEFT = (0, 7)
"""Columns that hold words."""


@dataclass
class Measured:
    """The measurements of a row."""

    row: Row
    amount: int = 0
    unit: str = "runs"
    facts: dict[str, int] = field(default_factory=dict[str, int])
    error: str = ""
    """Why there are none."""
    seconds: list[float] = field(default_factory=list[float])
    processor_seconds: list[float] = field(default_factory=list[float])
    peak_bytes: int | None = None
    """The most memory that a run took."""

    def add(self, seconds: float, processor_seconds: float) -> None:
        """Add a run."""
        self.seconds.append(seconds)
        self.processor_seconds.append(processor_seconds)

    @property
    def median(self) -> float:
        """The median of the runs in seconds."""
        return median(self.seconds)

    @property
    def processor(self) -> float:
        """The median of the processor time, on all threads together."""
        return median(self.processor_seconds)


@dataclass(frozen=True)
class Comparison:
    """A row beside one of its peers."""

    peer: str
    ratio: float
    at_most: float | None


def comparisons(one: Measured, by_name: dict[str, Measured]) -> list[Comparison]:
    """Return the ratios of the medians of a row and its peers, as far as both were measured."""
    found: list[Comparison] = []
    for peer in one.row.peers:
        other = by_name.get(peer.name)
        if other is not None and other.seconds and one.seconds:
            found.append(Comparison(peer.name, one.median / other.median, peer.at_most))
    return found


# -- text ------------------------------------------------------------------------------------------------------------


def text(about: dict[str, Any], found: Sequence[Measured], *, quick: bool = False) -> str:
    """Return the report as plain text."""
    by_name = {one.row.name: one for one in found}
    rows: list[Sequence[str]] = [HEADER]
    for one in found:
        rows += _lines(one, by_name, quick=quick)
    notes = [f"{one.row.name}: {value:,} {key.replace('_', ' ')}" for one in found for key, value in one.facts.items()]
    notes += ["quick sizes: the figures say nothing"] if quick else []
    return "\n".join([*setting(about), "", *aligned(rows), *([""] if notes else []), *notes])


def _lines(one: Measured, by_name: dict[str, Measured], *, quick: bool) -> list[Sequence[str]]:
    """Return the lines of a row: one, and one more for each further peer."""
    if one.error:
        return [(one.row.name, "failed", "", "", "", "", "", one.error, "", "")]
    times = (seconds(one.median), seconds(min(one.seconds)), seconds(max(one.seconds)))
    first = [one.row.name, *times, seconds(one.processor), rate(one), size(one.peak_bytes)]
    goals = [] if one.row.seconds is None else [("", "", _goal(one.median, one.row.seconds, seconds, quick))]
    goals += [
        (c.peer, f"{ratio(c.ratio)}", "" if c.at_most is None else _goal(c.ratio, c.at_most, "{:g}".format, quick))
        for c in comparisons(one, by_name)
    ]
    begins = [first, *([""] * len(first) for _ in goals[1:])]
    return [[*begin, *goal] for begin, goal in zip(begins, goals or [("", "", "")], strict=True)]


def markdown(found: Sequence[Measured], *, quick: bool = False) -> str:
    """Return the measurements as a table in Markdown, for the documentation.

    Examples
    --------
    >>> print(markdown([]))
    | row | median (min to max) | processor | rate | peak memory | compared with | target |
    |---|---|---|---|---|---|---|
    """
    by_name = {one.row.name: one for one in found}
    lines = [
        "| row | median (min to max) | processor | rate | peak memory | compared with | target |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found:
        if one.error:
            lines.append(f"| `{one.row.name}` | failed: {one.error} | | | | | |")
            continue
        times = f"{seconds(one.median)} ({seconds(min(one.seconds))} to {seconds(max(one.seconds))})"
        compared = comparisons(one, by_name)
        ratios = ", ".join(f"{ratio(c.ratio)} of `{c.peer}`" for c in compared)
        goals = [] if one.row.seconds is None else [_goal(one.median, one.row.seconds, seconds, quick)]
        goals += [
            f"{_goal(c.ratio, c.at_most, '{:g}'.format, quick)} (of `{c.peer}`)"
            for c in compared
            if c.at_most is not None
        ]
        cells = (
            f"`{one.row.name}`",
            times,
            seconds(one.processor),
            rate(one),
            size(one.peak_bytes),
            ratios,
            "; ".join(goals),
        )
        lines.append(" ".join(f"| {cell}".rstrip() for cell in cells) + " |")
    return "\n".join(lines)


def ratio(value: float) -> str:
    """Return a ratio to two places, a small one to two digits.

    Examples
    --------
    >>> ratio(1.637), ratio(0.0389)
    ('1.64', '0.039')
    """
    return f"{value:.{2 if value >= 0.1 else 3}f}"


def _goal(value: float, at_most: float, shown: Any, quick: bool) -> str:
    verdict = "" if quick else ", met" if value <= at_most else ", missed"
    return f"at most {shown(at_most)}{verdict}"


def aligned(rows: Sequence[Sequence[str]], left: Sequence[int] = LEFT) -> list[str]:
    """Return rows of cells as lines of equal columns, numbers to the right.

    Examples
    --------
    >>> aligned([("row", "median"), ("a", "12 ms")])
    ['row  median', 'a     12 ms']
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if k in left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def seconds(value: float) -> str:
    """Return a time for reading.

    Examples
    --------
    >>> seconds(0.01234), seconds(0.5), seconds(2.5)
    ('12.3 ms', '500 ms', '2.50 s')
    """
    milliseconds = value * 1000
    if milliseconds >= 1000:
        return f"{value:.2f} s"
    return f"{milliseconds:.{0 if milliseconds >= 100 else 1 if milliseconds >= 10 else 2}f} ms"


def size(value: int | None) -> str:
    """Return a number of bytes for reading.

    Examples
    --------
    >>> size(45_200_000), size(None)
    ('45 MB', '')
    """
    return "" if value is None else f"{value / 1e6:,.0f} MB"


def rate(one: Measured) -> str:
    """Return how much a row does in a second."""
    if one.unit == "runs":
        return ""
    each = one.amount / one.median
    if one.unit == "bytes":
        return f"{each / 1e6:,.0f} MB/s"
    return f"{each / 1e6:,.2f} M {one.unit}/s" if each >= 1e6 else f"{each / 1e3:,.1f} k {one.unit}/s"


def listing(rows: Iterable[Row]) -> str:
    """Return the names of rows and what they measure."""
    return "\n".join(aligned([(row.name, row.what) for row in rows], left=(0, 1)))


# -- machine ---------------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Return what the measurements depend on."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": _memory(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "llvm": llvm(),
        "load_before": load(),
    }


def llvm() -> str:
    """Return the version of the LLVM in llvmlite, and whether it checks itself as it runs, which costs time."""
    try:
        from llvmlite.binding import config, llvm_version_info
    except ImportError:
        return "missing"
    return f"{'.'.join(map(str, llvm_version_info))}, assertions {config.llvm_assertions_state}"


def load() -> float | None:
    """Return how many processes wanted to run in the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _memory() -> int | None:
    names = getattr(os, "sysconf_names", {})
    if "SC_PHYS_PAGES" not in names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def setting(about: dict[str, Any]) -> list[str]:
    """Return the machine and the versions as lines of text."""
    memory = about["memory_bytes"]
    room = f", {memory / 1e9:.0f} GB" if memory else ""
    versions = ", ".join(f"{name} {version or 'missing'}" for name, version in about["packages"].items())
    lines = [
        f"{about['cpu']}, {about['cores']} cores{room}, {about['system']}",
        f"python {about['python']}, {versions}",
        f"LLVM {about['llvm']}",
    ]
    if about["load_before"] is not None:
        lines.append(f"load average {about['load_before']:.2f} before, {about['load_after']:.2f} after")
    return lines


# -- JSON ------------------------------------------------------------------------------------------------------------


def document(about: dict[str, Any], found: Sequence[Measured], *, quick: bool = False) -> dict[str, Any]:
    """Return the report as an object for JSON."""
    by_name = {one.row.name: one for one in found}
    return {"machine": about, "quick": quick, "rows": [_object(one, by_name) for one in found]}


def _object(one: Measured, by_name: dict[str, Measured]) -> dict[str, Any]:
    about: dict[str, Any] = {"name": one.row.name, "what": one.row.what}
    if one.error:
        return {**about, "error": one.error}
    return {
        **about,
        "amount": one.amount,
        "unit": one.unit,
        "median": one.median,
        "min": min(one.seconds),
        "max": max(one.seconds),
        "seconds": one.seconds,
        "processor_seconds": one.processor_seconds,
        "peak_bytes": one.peak_bytes,
        "target_seconds": one.row.seconds,
        "peers": [{"name": c.peer, "ratio": c.ratio, "target": c.at_most} for c in comparisons(one, by_name)],
        "facts": one.facts,
    }
