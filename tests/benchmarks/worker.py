"""The process of one row: sets it up, then runs it once for each line that it is sent.

    python -m tests.benchmarks.worker make NAME FOLDER [--quick]     make an input
    python -m tests.benchmarks.worker row NAME FOLDER [--quick]      measure a row
    python -m tests.benchmarks.worker profile NAME FOLDER [--quick]  say where the time of a row goes

The answers about a row are lines of JSON on standard output; what the row itself prints goes to standard error.
"""

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from tests.benchmarks.registry import Case, Inputs, rows
from tests.benchmarks.usage import Peak, of_children, processor_seconds, settle

RUN = "run"


def once(case: Case) -> dict[str, Any]:
    """Run a case and return wall and processor seconds; memory of the run before may serve again."""
    given = case.fresh()
    gc.collect()
    used, start = processor_seconds(children=case.child), time.perf_counter()
    made = _run(case, given)
    seconds, used = time.perf_counter() - start, processor_seconds(children=case.child) - used
    del made  # not before, so that giving memory back is no part of the time
    return {"seconds": seconds, "processor_seconds": used}


def warm_up(case: Case) -> int | None:
    """Run a case untimed, so that loops are compiled and files are in the cache, and check what it makes.

    Returns
    -------
    int or None
        The peak bytes of one more run, which begins without any memory that nothing uses.

    Raises
    ------
    AssertionError
        If the result is not what it should be.
    """
    case.check(_run(case, case.fresh()))
    given = case.fresh()
    settle()
    peak = Peak()
    made = _run(case, given)
    top = of_children() if case.child else peak.bytes()
    del made
    return top


def _run(case: Case, given: Any) -> Any:
    collecting = gc.isenabled()
    if not case.collect:
        gc.disable()
    try:
        return case.run(given)
    finally:
        if collecting:
            gc.enable()


def serve(case: Case, requests: Iterable[str], answers: TextIO) -> None:
    """Say what the case is, then run it for each request."""
    peak = warm_up(case)
    _answer(answers, {"amount": case.amount, "unit": case.unit, "facts": case.facts, "peak_bytes": peak})
    for request in requests:
        if request.strip() != RUN:
            return
        _answer(answers, once(case))


def _answer(answers: TextIO, what: dict[str, Any]) -> None:
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.worker")
    parser.add_argument("work", choices=("make", "row", "profile"))
    parser.add_argument("name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args(arguments)
    inputs = Inputs(given.folder, given.quick)
    if given.work == "make":
        from tests.benchmarks.inputs import MAKERS

        MAKERS[given.name](inputs, inputs.path(given.name))
        return 0
    row = rows()[given.name]
    if given.work == "profile":
        from tests.benchmarks import profile

        case = row.set_up(inputs)
        warm_up(case)
        print(profile.text(case))
        return 0
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        serve(row.set_up(inputs), sys.stdin, answers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
