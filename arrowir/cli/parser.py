"""What the command line accepts. Nothing is imported that `--help` does not need."""

import argparse
import sys
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

HELP = """\
Neuron backend IR as Arrow tables: read modules, transform them, query them.

INPUT is a BIR JSON file (also .gz or .zst), a glob, a directory of such files, or a Parquet data set directory.
Exit codes: 0 done, 1 a module failed, there is an error, or `diff` found a difference, 2 wrong usage.
"""

EPILOG = "ARROWIR_LOG=info in the environment shows the log lines of the passes."


class Command:
    """One command.

    Parameters
    ----------
    summary
        What it does, in a line.
    handler
        Module below `arrowir.cli`, and function.
    build
        Adds its arguments to a parser.
    """

    def __init__(
        self, summary: str, handler: tuple[str, str], build: Callable[[argparse.ArgumentParser], None]
    ) -> None:
        self.summary, self.handler, self.build = summary, handler, build


class _Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line and a hint."""

    def error(self, message: str) -> "NoReturn":
        self.exit(2, f"{self.prog}: error: {message}\nsee `{self.prog} --help`\n")


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the arguments; wrong ones end in `SystemExit` with code 2."""
    if not argv or argv[0] not in COMMANDS:
        _explain(argv)
    command = COMMANDS[argv[0]]
    parser = _Parser(prog=f"arrowir {argv[0]}", description=command.summary, epilog=EPILOG, allow_abbrev=False)
    command.build(parser)
    arguments = parser.parse_intermixed_args(argv[1:])
    arguments.command = argv[0]
    return arguments


def _explain(argv: list[str]) -> "NoReturn":
    """Answer arguments that do not begin with a command: help, the version, or a complaint."""
    listed = "\n".join(f"  {name:10} {command.summary}" for name, command in COMMANDS.items())
    top = _Parser(
        prog="arrowir",
        usage="arrowir COMMAND ...",
        description=f"{HELP}\ncommands:\n{listed}\n\n`arrowir COMMAND --help` lists the options of a command.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=_version())
    top.add_argument("command", choices=COMMANDS, metavar="COMMAND", help=argparse.SUPPRESS)
    if not argv:
        top.print_help(sys.stderr)
        raise SystemExit(2)
    top.parse_known_args(argv)
    # Something like `arrowir --option run`: the command has to come first.
    top.error(f"the command comes first: arrowir COMMAND ..., not {argv[0]}")


def _version() -> str:
    # The package is there, since this module is part of it; it states its version and nothing below it needs one.
    return f"arrowir {sys.modules['arrowir'].__version__}"


def _inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="file, glob, directory or data set")


def _json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the answer as one JSON object")


def _quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")


def _strict(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="stop at the first error; nothing is written then")


def _run(parser: argparse.ArgumentParser) -> None:
    _inputs(parser)
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="OUT", help="folder for the modules and the tables about the run")
    add("--passes", action="append", type=_names, metavar="NAME[,NAME...]", help="the whole pipeline, in this order")
    add(
        "--set",
        action="append",
        default=[],
        type=_setting,
        metavar="PASS.OPTION=VALUE",
        help="option of a pass: JSON, or a bare word for a string; `none` is null",
    )
    add(
        "--enable-bir-kernel",
        action="store_true",
        help="inline library kernels before memory is allocated (order 48), not behind it (60)",
    )
    add(
        "--tensor-map",
        action=argparse.BooleanOptionalAction,
        help="read, rename and write the tensor maps beside the modules (default: where there is one)",
    )
    add("--format", type=_formats, metavar="json,parquet", help="default: json for one JSON input, else both")
    add("--jobs", type=_jobs, default=1, metavar="N", help="workers; this version has 1")
    add("--engine", choices=("local", "dask"), default="local", help="who works; this version has `local`")
    add("--scheduler", metavar="ADDRESS", help="not available in this version")
    add("--resume", action="store_true", help="not available in this version")
    add(
        "--check",
        type=_checks,
        default=0,
        metavar="N",
        help="execute each module before and after, on N random inputs, and compare what it computes",
    )
    add(
        "--check-tolerance",
        type=_tolerance,
        default=0.0,
        metavar="X",
        help="how far apart floats may be there, relative to their size and at least to 1 (default: 0, the same bytes)",
    )
    add(
        "--verify",
        choices=("none", "ends", "each"),
        default="ends",
        help="look for errors that passes bring in: after the last pass (default), after each, or never",
    )
    _strict(parser)
    _quiet(parser)
    _json(parser)


def _convert(parser: argparse.ArgumentParser) -> None:
    _inputs(parser)
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="OUT",
        help="a file, for one module and a name ending in `.json`; else a folder",
    )
    parser.add_argument(
        "--format",
        choices=("json", "parquet"),
        help="default: json when OUT ends in `.json` or the inputs are data sets, else parquet",
    )
    _strict(parser)
    _quiet(parser)
    _json(parser)


def _info(parser: argparse.ArgumentParser) -> None:
    _inputs(parser)
    _quiet(parser)
    _json(parser)


def _print(parser: argparse.ArgumentParser) -> None:
    _inputs(parser)
    parser.add_argument(
        "--provenance",
        action="store_true",
        help="say of inlined rows which kernel and call-sites they come from; JSON files do not know",
    )
    _quiet(parser)


def _diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="BEFORE", help="file, glob, directory or data set")
    parser.add_argument("after", metavar="AFTER", help="what is compared with it: modules by name, others in order")
    _quiet(parser)
    _json(parser)


def _verify(parser: argparse.ArgumentParser) -> None:
    _inputs(parser)
    parser.add_argument(
        "--level",
        action="append",
        type=_names,
        default=[],
        metavar="NAME[,NAME...]",
        help="rules of: references, structure, control_flow, memory, operands, call_sites, unrolled, allocated; or all",
    )
    _quiet(parser)
    _json(parser)


def _passes(parser: argparse.ArgumentParser) -> None:
    _json(parser)


def _sql(parser: argparse.ArgumentParser) -> None:
    _inputs(parser)
    parser.add_argument("query", metavar="QUERY", help="DuckDB SQL; each table is a view of its name")
    _quiet(parser)
    _json(parser)


def _simulate(parser: argparse.ArgumentParser) -> None:
    _inputs(parser)
    add = parser.add_argument
    add(
        "--input",
        action="append",
        nargs="+",
        default=[],
        type=_input,
        metavar="NAME=FILE.npy",
        help="content of an input, or of another location, at the start; INPUT has to stand before it",
    )
    add("-o", "--output", required=True, metavar="DIR", help="folder for the outputs, a .npy file each")
    add("--function", metavar="NAME", help="default: `main`, else the first function that is no kernel")
    add("--shard-id", type=_shard, default=0, metavar="N", help="value of the shard in expressions")
    add("--nan", choices=("allow", "raise"), default="allow", help="`raise`: writing a NaN is an error")
    add("--max-steps", type=_steps, metavar="N", help="stop with an error after so many instructions")
    add(
        "--reading",
        action="append",
        default=[],
        type=_reading,
        metavar="CASE=CHOICE",
        help="what to do in a case that the semantics leave open; the error about it names case and choices",
    )
    add("--trace", action="store_true", help="write `trace.parquet` too: a row for each executed instruction")
    _quiet(parser)
    _json(parser)


COMMANDS: dict[str, Command] = {
    "run": Command("run a pipeline of passes over modules", ("run", "run"), _run),
    "convert": Command("write modules in another format", ("convert", "convert"), _convert),
    "print": Command("print a readable listing", ("show", "print_text"), _print),
    "info": Command("count what is in each module", ("info", "info"), _info),
    "diff": Command("say how modules differ; exit code 1 when they do", ("diff", "diff"), _diff),
    "verify": Command("say what is wrong; exit code 1 when there is an error", ("verify", "verify"), _verify),
    "sql": Command("query the tables with DuckDB", ("show", "sql"), _sql),
    "simulate": Command("run modules on arrays", ("simulate", "simulate"), _simulate),
    "passes": Command("list the registered passes, their options and defaults", ("show", "passes"), _passes),
    "kernels": Command("list the library kernels, their options and defaults", ("show", "kernels"), _passes),
}


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"`{text}` is no list of names: write NAME[,NAME...]")
    return names


def _formats(text: str) -> tuple[str, ...]:
    chosen = [name.strip() for name in text.split(",")]
    for name in chosen:
        if name not in ("json", "parquet"):
            raise argparse.ArgumentTypeError(f"`{name}` is no format: take json, parquet, or json,parquet")
    return tuple(name for name in ("json", "parquet") if name in chosen)


def _jobs(text: str) -> int:
    return _at_least(text, "number of workers")


def _shard(text: str) -> int:
    return _at_least(text, "shard", 0)


def _checks(text: str) -> int:
    return _at_least(text, "number of random inputs")


def _tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"`{text}` is no tolerance: it must be a number of at least 0")
    return number


def _steps(text: str) -> int:
    return _at_least(text, "number of instructions")


def _at_least(text: str, what: str, least: int = 1) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise argparse.ArgumentTypeError(f"`{text}` is no {what}: it must be at least {least}")
    return number


def _setting(text: str) -> tuple[str, str, object]:
    """Take a setting apart.

    Examples
    --------
    >>> _setting("inline_nki_kernel.allocated=null"), _setting("p.name=word"), _setting("p.n=[1, 2]")
    (('inline_nki_kernel', 'allocated', None), ('p', 'name', 'word'), ('p', 'n', [1, 2]))
    """
    target, equals, value = text.partition("=")
    name, dot, option = target.strip().partition(".")
    if not (equals and dot and name and option):
        raise argparse.ArgumentTypeError(f"`{text}` is no setting: write PASS.OPTION=VALUE")
    return name, option, setting_value(value.strip())


def _input(text: str) -> tuple[str, str]:
    """Take an input apart.

    Examples
    --------
    >>> _input("a=x/a=b.npy")
    ('a', 'x/a=b.npy')
    """
    name, equals, path = text.partition("=")
    if not (name and equals and path):
        raise argparse.ArgumentTypeError(f"`{text}` is no input: write NAME=FILE.npy")
    return name, path


def _reading(text: str) -> tuple[str, str]:
    name, equals, choice = text.partition("=")
    if not (name and equals and choice):
        raise argparse.ArgumentTypeError(f"`{text}` is no reading: write CASE=CHOICE")
    return name, choice


def setting_value(text: str) -> object:
    """Return the value of a setting: JSON, or else the text itself; `none` is null."""
    import json

    if text == "none":
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
