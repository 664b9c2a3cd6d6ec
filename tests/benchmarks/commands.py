"""Rows about what a user waits for at the command line: wall time of whole processes, files in the system's cache."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.registry import Case, Inputs, Peer, Row

SMALL = Path(__file__).parents[2] / "data/samples/bir_json_example.json"
"""The file that is read: one call of one small kernel."""

READ = "import sys, arrowir as air; print(len(air.read(sys.argv[1]).instructions))"


def arrowir() -> list[str]:
    """Return the command: the installed script, or the module where there is none beside the interpreter."""
    script = shutil.which("arrowir", path=str(Path(sys.executable).parent))
    return [script] if script else [sys.executable, "-m", "arrowir"]


def process(make: Callable[[Inputs], list[str]]) -> Callable[[Inputs], Case]:
    """Return the set-up of a row that runs a command."""

    def set_up(inputs: Inputs) -> Case:
        command = make(inputs)

        def run(_: None) -> bytes:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout

        def check(printed: bytes) -> None:
            assert printed, "nothing was printed"

        return Case(run, 1, "runs", check=check, child=True)

    return set_up


def _inline(inputs: Inputs, *options: str) -> list[str]:
    out = ["-o", str(inputs.path("inlined")), "--format", "parquet", "--passes", "inline_nki_kernel"]
    return [*arrowir(), "run", str(inputs.path("sites_10000")), *out, *options]


def _llvm(inputs: Inputs) -> list[str]:
    source, target = inputs.path("sites_10000.ll"), inputs.path("inlined.bc")
    return [sys.executable, "-m", "tests.benchmarks.llvm", str(source), str(target)]


ROWS = (
    Row("cli_help", "arrowir --help", process(lambda _: [*arrowir(), "--help"]), seconds=0.1),
    Row(
        "python_read",
        "import arrowir, read a small file, .instructions",
        process(lambda _: [sys.executable, "-c", READ, str(SMALL)]),
        seconds=0.6,
    ),
    Row(
        "cli_run",
        "arrowir run on a small file",
        process(lambda inputs: [*arrowir(), "run", str(SMALL), "-o", str(inputs.path("run"))]),
        seconds=1.2,
    ),
    Row(
        "cli_inline_10000",
        "arrowir run --verify none: 10,000 call-sites inlined, Parquet to Parquet",
        process(lambda inputs: _inline(inputs, "--verify", "none")),
        needs=("sites_10000",),
        peers=(Peer("llvm_command_10000", at_most=1),),
    ),
    Row(
        "cli_inline_verified",
        "arrowir run: the same, and the module is verified before and after, as by default",
        process(_inline),
        needs=("sites_10000",),
        peers=(Peer("cli_inline_10000"),),
    ),
    Row(
        "llvm_command_10000",
        "LLVM by llvmlite: the same shape, assembly to bitcode; what comes out is not verified",
        process(_llvm),
        needs=("sites_10000.ll",),
    ),
)
