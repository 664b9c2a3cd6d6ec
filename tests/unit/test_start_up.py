"""What starting costs: small work imports what it needs and no more."""

import gc
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import arrowir as air
from arrowir.cli import main
from tests.command_line import ROOT, SCALE_ADD, TINY, environment

SLOW = ("numpy", "polars", "pyarrow", "pyarrow.parquet", "numba", "duckdb", "rich", "pandas")
"""Modules by what they cost, or more often."""


def loaded(code: str) -> set[str]:
    """Run code in a process of its own, and return which of the slow modules it has loaded."""
    code += f"\nprint('loaded', *(name for name in {SLOW!r} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def command(*arguments: object) -> str:
    return f"from arrowir.cli import main\nassert main({[str(a) for a in arguments]!r}) == 0"


@pytest.mark.parametrize(
    ("code", "needed"),
    [
        ("import arrowir", set()),
        (command("--version"), set()),
        (f"import arrowir as air\nassert len(air.read({str(SCALE_ADD)!r})) == 1", {"numpy"}),
        (f"import arrowir as air\nassert len(air.read({str(SCALE_ADD)!r}).instructions) == 3", {"numpy", "polars"}),
        (command("info", SCALE_ADD), {"numpy"}),
        (command("print", SCALE_ADD), {"numpy"}),
    ],
)
def test_looking_at_a_small_file_loads_what_it_needs(code: str, needed: set[str]) -> None:
    assert loaded(code) == needed


def test_converting_a_small_file_loads_what_it_needs(tmp_path: Path) -> None:
    assert loaded(command("convert", TINY, "-o", tmp_path / "x.json")) == {"numpy"}
    assert loaded(command("convert", TINY, "-o", tmp_path / "set")) >= {"pyarrow", "pyarrow.parquet"}


def test_running_a_small_file_loads_neither_pyarrow_nor_numba(tmp_path: Path) -> None:
    assert loaded(command("run", TINY, "-o", tmp_path)) == {"numpy", "polars"}


def test_listing_the_passes_reads_no_files() -> None:
    assert loaded(command("passes")) <= {"numpy", "polars"}
    code = command("passes") + "\nassert not {m for m in sys.modules if m.startswith('arrowir.formats')}"
    assert loaded(code)


def test_the_command_leaves_the_collector_as_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    before = gc.get_threshold()
    for arguments in (["passes"], ["info", str(ROOT / "no such file")]):
        main(arguments)
        assert gc.get_threshold() == before
    assert "no such file" in capsys.readouterr().err


def test_help_loads_nothing_that_it_does_not_show() -> None:
    slow = ("dataclasses", "inspect", "json", "logging", "pathlib", "threading", "typing")
    code = (
        "import sys\nbefore = set(sys.modules)\nfrom arrowir.cli import main\n"
        "assert main(['--help']) == 0\n"
        f"print(*sorted(set({slow!r}) & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), cwd=ROOT, check=True
    )
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize(("name", "home"), [("simulate", "running"), ("verify", "checking")])
def test_packages_that_can_be_called_show_the_signature_of_their_function(name: str, home: str) -> None:
    package = getattr(air, name)
    assert inspect.signature(package) == inspect.signature(getattr(package, name))
    code = f"import arrowir\narrowir.{name}\nassert 'arrowir.{name}.{home}' not in sys.modules"
    assert loaded(code) == set()
