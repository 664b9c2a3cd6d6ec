"""The page of library kernels: from their docstrings and options."""

import inspect
import re

from arrowir import library
from arrowir.library import Kernel

ABOUT = """\
What a `BIRKernel` call-site can name, and what it gets. Options stand under `kernel_attrs`, as pairs of text, or are
members of the call-site. A number or a name chooses one of several.
[`inline_bir_kernel`](../passes/inline_bir_kernel.md) puts the bodies in place; `arrowir kernels` prints this list with
whatever else is installed."""


def page() -> str:
    """Return the page of the package's own kernels."""
    parts = ["# Library kernels", ABOUT]
    for name in library.names():
        cls = library.get(name)
        if cls.__module__.startswith("arrowir."):
            parts += [f"## {name}", *_kernel(cls)]
    return "\n\n".join(parts) + "\n"


def _kernel(cls: type[Kernel]) -> list[str]:
    """Return what its docstring says, its arguments and options as tables."""
    sections = re.split(r"\n\n(\w+)\n-+\n", inspect.cleandoc(cls.__doc__ or ""))
    titled = dict(zip(sections[1::2], sections[2::2], strict=True))
    arguments = ["| argument | what it is |", "|---|---|"]
    for entry in re.split(r"\n(?=\w)", titled["Parameters"]):
        head, _, text = entry.partition("\n")
        arguments.append(f"| `{head}` | {_plain(' '.join(text.split()))} |")
    options = ["| option | takes | default | meaning |", "|---|---|---|---|"]
    options += [f"| `{o.name}` | {o.takes} | `{o.default}` | {o.meaning} |" for o in cls.options]
    tolerance = ", ".join(f"{allowed:g} ({dtype})" for dtype, allowed in cls.tolerance.items())
    return [
        _plain(sections[0]),
        "\n".join(arguments),
        "\n".join(options),
        _plain(titled["Notes"]),
        f"Tolerance by the dtype of the output: {tolerance}; times the value where that is above 1.",
    ]


def _plain(text: str) -> str:
    """Return text in Markdown: double back-quotes become single ones."""
    return text.replace("``", "`")
