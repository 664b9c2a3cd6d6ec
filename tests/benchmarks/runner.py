"""Runs the rows, each in a process of its own, and reports what came out."""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.inputs import wanted
from tests.benchmarks.registry import Inputs, Row, chosen, groups, rows
from tests.benchmarks.report import Measured
from tests.benchmarks.worker import RUN

ROOT = Path(__file__).parents[2]
REPEAT, REPEAT_QUICK = 5, 2


class RowError(Exception):
    """The process of a row ended before its time; it has said why on standard error."""


def _command(work: str, name: str, inputs: Inputs) -> list[str]:
    quick = ["--quick"] if inputs.quick else []
    return [sys.executable, "-m", "tests.benchmarks.worker", work, name, str(inputs.folder), *quick]


class Worker:
    """The process of a row, at work on request."""

    def __init__(self, row: Row, inputs: Inputs) -> None:
        self.process = subprocess.Popen(
            _command("row", row.name, inputs), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        try:
            self.measured = Measured(row, **self._answer())
        except BaseException:
            self.close()
            raise

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RowError(f"its process ended with code {self.process.wait()}")
        return json.loads(line)

    def once(self) -> None:
        """Run the row once more."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{RUN}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise RowError(f"its process ended with code {self.process.wait()}") from None
        self.measured.add(**self._answer())

    def close(self) -> None:
        """Let the process end; it does when there is nothing more to read."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait()


def measure(some: list[Row], inputs: Inputs, repeat: int) -> Iterator[Measured]:
    """Yield the measurements of rows; rows that are compared with each other take turns."""
    made: set[str] = set()
    for group in groups(some):
        broken = {row.name: reason for row in group if (reason := _prepare(row, inputs, made))}
        with ExitStack() as stack:
            workers: list[Worker] = []
            for row in group:
                if row.name in broken:
                    continue
                _say(f"setting up {row.name}")
                try:
                    worker = Worker(row, inputs)
                except RowError as error:
                    broken[row.name] = str(error)
                    continue
                stack.callback(worker.close)
                workers.append(worker)
            for turn in range(repeat):
                _say(f"run {turn + 1} of {repeat}")
                for worker in [w for w in workers if w.measured.row.name not in broken]:
                    try:
                        worker.once()
                    except RowError as error:
                        broken[worker.measured.row.name] = str(error)
        done = {worker.measured.row.name: worker.measured for worker in workers}
        for row in group:
            reason = broken.get(row.name, "")
            yield Measured(row, error=reason) if reason else done[row.name]


def _prepare(row: Row, inputs: Inputs, made: set[str]) -> str:
    """Make the inputs of a row that are not there yet; return what went wrong."""
    for name in wanted(set(row.needs)):
        if name not in made:
            _say(f"making {name}")
            done = subprocess.run(_command("make", name, inputs), stdin=subprocess.DEVNULL, cwd=ROOT, check=False)
            if done.returncode:
                return f"its input `{name}` could not be made"
            made.add(name)
    return ""


def profile(row: Row, *, quick: bool) -> int:
    """Print where the time of a row goes; return the exit code."""
    with TemporaryDirectory(prefix="arrowir-benchmarks-") as folder:
        inputs = Inputs(Path(folder), quick)
        reason = _prepare(row, inputs, set())
        if reason:
            _say(reason)
            return 1
        return subprocess.run(_command("profile", row.name, inputs), cwd=ROOT, check=False).returncode


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure arrowir.")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="measure this row, and those it is compared with; may be given several times",
    )
    parser.add_argument("--repeat", type=int, metavar="N", help=f"runs of each row (default {REPEAT})")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see whether everything works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measurements to a file as well")
    parser.add_argument("--markdown", action="store_true", help="print the table as it stands in the documentation")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--profile", metavar="NAME", help="say where the time of one row of a pass goes")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Returns
    -------
    int
        0, 1 when a row could not be measured, 2 for wrong options. A target that is missed is printed, and no error:
        how fast a machine is says nothing about whether the code is right.
    """
    parser = _parser()
    given = parser.parse_args(arguments)
    known = rows()
    if given.list:
        print(report.listing(known.values()))
        return 0
    for name in [*given.only, *([given.profile] if given.profile else [])]:
        if name not in known:
            parser.error(f"there is no row `{name}`; `--list` lists them")
    repeat = given.repeat if given.repeat is not None else REPEAT_QUICK if given.quick else REPEAT
    if repeat < 1:
        parser.error("`--repeat` must be at least 1")
    if given.profile is not None:
        return profile(known[given.profile], quick=given.quick)
    machine = report.machine()
    some = chosen(given.only, known) if given.only else list(known.values())
    with TemporaryDirectory(prefix="arrowir-benchmarks-") as folder:
        found = list(measure(some, Inputs(Path(folder), given.quick), repeat))
    machine |= {"load_after": report.load()}
    order = {name: place for place, name in enumerate(known)}
    found.sort(key=lambda one: order[one.row.name])
    if given.markdown:
        print("\n".join([*report.setting(machine), "", report.markdown(found, quick=given.quick)]))
    else:
        print(report.text(machine, found, quick=given.quick))
    if given.json is not None:
        given.json.write_text(json.dumps(report.document(machine, found, quick=given.quick), indent=1) + "\n")
    return 1 if any(one.error for one in found) else 0
