"""What tests of the command line share: running it, and small modules to run it on."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from arrowir import build

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "data/samples/klr009"
SCALE_ADD = SAMPLES / "scale_add.bir.json"
TINY = ROOT / "data/generated/tiny.json"

Command = Callable[..., tuple[int, str, str]]
"""The fixture `command`: exit code, standard output and standard error of the command, run in this process."""


def environment(**more: str) -> dict[str, str]:
    """Variables for a process that finds the package where it stands."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]), **more}


def command_line(*arguments: object) -> list[str]:
    """The command as a process of its own; warnings are errors there too."""
    return [sys.executable, "-W", "error", "-m", "arrowir", *map(str, arguments)]


def spawn(*arguments: object, **more: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process of its own."""
    return subprocess.run(
        command_line(*arguments), capture_output=True, env=environment(**more), timeout=120, check=False
    )


def document(name: str = "noop", functions: int = 1, arch: str = "gen3") -> bytes:
    built = build.module(arch=arch)
    for number in range(functions):
        built.function(f"f{number}").add("NoOp", [], [], name=name)
    return json.dumps(built.json()).encode()


def put(folder: Path, **files: bytes) -> Path:
    """Write JSON files into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / f"{name}.json").write_bytes(data)
    return folder


def listing(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())
