"""Examples in the pages: they are run, and what they print stands below them.

A ```` ```python ```` block is run, all of a page in one namespace; as in a notebook, the value of a last expression
is printed. A ```` ```console ```` block holds shell commands. A ```` ```text ```` block right below either is the
output, which the generator writes; a console block is only run when it has one.
"""

import ast
import contextlib
import io
import re
import shlex
import tempfile
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arrowir import passes

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    body: str
    start: int
    end: int
    line: int


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page that name a language."""
    return [Block(m[1], m[2], m.start(), m.end(), page.count("\n", 0, m.start()) + 1) for m in _FENCE.finditer(page)]


def output_of(page: str, known: list[Block], number: int) -> Block | None:
    """Return the block with the output of a block, if it has one: the next one, with blank lines alone between."""
    if number + 1 < len(known):
        after = known[number + 1]
        if after.language == "text" and not page[known[number].end : after.start].strip():
            return after
    return None


def refreshed(page: str, name: str) -> str:
    """Run the examples of a page and return the page with their outputs.

    Parameters
    ----------
    page
        The text.
    name
        What the page is called in tracebacks.

    Raises
    ------
    Exception
        Whatever an example raises.
    """
    known = blocks(page)
    pieces: list[str] = []
    place = 0
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as folder, _registry():
        (Path(folder) / "data").symlink_to(ROOT / "data")
        with contextlib.chdir(folder):
            for number, block in enumerate(known):
                output = output_of(page, known, number)
                if block.language == "python":
                    said = run_python(block, name, namespace)
                elif block.language == "console" and output is not None:
                    said = run_commands(block.body)
                else:
                    continue
                if output is not None:
                    pieces += [page[place : output.start], f"```text\n{tidied(said)}```\n"]
                    place = output.end
    return "".join([*pieces, page[place:]])


@contextlib.contextmanager
def _registry() -> Generator[None]:
    """Take back what is registered inside: pages must not know of each other's passes."""
    before = passes.names()
    try:
        yield
    finally:
        for name in set(passes.names()).difference(before):
            passes.unregister(name)


def tidied(text: str) -> str:
    """Return an output without spaces at the ends of lines and blank lines at its end."""
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())


def run_python(block: Block, name: str, namespace: dict[str, Any]) -> str:
    """Run a block and return what it prints."""
    # Lines of the page, so that a traceback leads there.
    tree = ast.parse("\n" * block.line + block.body, name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(tree, name, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), namespace)
            if value is not None:
                said.write(f"{value}\n")
    return said.getvalue()


def commands(body: str) -> list[list[str]]:
    """Return the commands of a console block as words; comments and line continuations are understood."""
    lines = body.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_commands(body: str) -> str:
    """Run the `arrowir` commands of a block in this process and return what they print, standard error last."""
    from arrowir.cli import main

    said = io.StringIO()
    for words in commands(body):
        if words[0] != "arrowir":
            raise ValueError(f"only `arrowir` can be run for its output, not `{words[0]}`")
        complaints = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaints):
            main(words[1:])
        said.write(complaints.getvalue())
    return said.getvalue()
