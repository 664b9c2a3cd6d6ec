"""Where the time of a pass goes: the steps of `plan`, `apply` and `build`, by Python's own profiler."""

import cProfile
import pstats
from collections.abc import Callable
from typing import Any

from tests.benchmarks.registry import Case
from tests.benchmarks.report import aligned, seconds

STEPS = ("_run", "plan", "apply", "build", "_column")
"""Functions whose calls are listed: those of a pass, and of an edit."""

LOOP = "__call__"
"""A compute kernel, as the profiler sees it."""

LEAST = 0.005
"""Share of the whole below which a call is left out."""


def text(case: Case) -> str:
    """Run a case under the profiler, columns one after the other, and return the steps that took longest."""
    from arrowir import runs

    threads, runs.THREADS = runs.THREADS, 1  # the profiler sees one thread alone
    try:
        whole, calls = spent(case.run, case.fresh())
    finally:
        runs.THREADS = threads
    rows: list[tuple[str, str, str]] = [("step", "time", "share"), ("all", seconds(whole), f"{1:.0%}")]
    for caller in STEPS:
        mine = {
            "compute kernels" if name == LOOP else name: took
            for (above, name), took in calls.items()
            if above == caller and took >= LEAST * whole and not name.startswith("<")
        }
        rows += [
            (f"{caller} > {name}", seconds(took), f"{took / whole:.0%}")
            for name, took in sorted(mine.items(), key=lambda pair: -pair[1])
        ]
    loops = sum(took for (_, name), took in calls.items() if name == LOOP)
    rows.append(("compute kernels, wherever called", seconds(loops), f"{loops / whole:.0%}"))
    return "\n".join(aligned(rows))


def spent(run: Callable[[Any], Any], given: Any) -> tuple[float, dict[tuple[str, str], float]]:
    """Run a function; return its seconds, and those of each pair of caller and function within arrowir.

    Examples
    --------
    >>> whole, calls = spent(sorted, [2, 1])
    >>> whole >= 0, calls
    (True, {})
    """
    profiler = cProfile.Profile()
    profiler.runcall(run, given)
    stats: dict[Any, Any] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    whole = max(took for _, _, _, took, _ in stats.values())
    calls: dict[tuple[str, str], float] = {}
    for (file, _, name), (_, _, _, _, callers) in stats.items():
        for (above_file, _, above), (_, _, _, took) in callers.items():
            if "arrowir" in file and "arrowir" in above_file:
                key = above, name
                calls[key] = calls.get(key, 0.0) + took
    return whole, calls
