"""`arrowir verify`: what is wrong with modules, and where."""

import argparse
from typing import Any

import numpy as np

from arrowir.cli import console, inputs
from arrowir.cli.inputs import Inputs
from arrowir.formats import bir_json
from arrowir.store import Array
from arrowir.verify import checking
from arrowir.verify.checking import Findings

SEVERITIES = ("error", "warning", "note")

Counts = dict[str, Any]


def verify(arguments: argparse.Namespace) -> int:
    """Print what the rules find; exit 1 when there is an error among it."""
    with console.Progress(quiet=arguments.quiet) as progress:
        given = inputs.load(inputs.find(arguments.inputs), progress)
        progress.at("verifying", 0, 1)
        levels = [level for names in arguments.level for level in names] or None
        found = checking.find(given.ir, levels)
    modules = inputs.interleaved(given, count(given, found))
    if arguments.json:
        rows = checking.table(found).to_dicts()
        console.answer(console.dump({"modules": modules, "findings": rows}))
    else:
        show(found, quiet=arguments.quiet)
        summarise(modules)
    console.report(given.messages, quiet=arguments.quiet)
    return 1 if given.failures or found.errors.any() else 0


def count(given: Inputs, found: Findings) -> list[Counts]:
    """Return the number of findings of each severity, per module."""
    names, sources = bir_json.names_and_sources(given.ir)
    module = found.ids["module"]
    numbers = {s: np.bincount(module[severities(found) == k], minlength=len(names)) for k, s in enumerate(SEVERITIES)}
    return [
        {"name": name, "source": sources[m], **{f"{s}s": int(numbers[s][m]) for s in SEVERITIES}}
        for m, name in enumerate(names)
    ]


def severities(found: Findings) -> Array:
    """Return the severity of each finding as an index in `SEVERITIES`."""
    return np.array([SEVERITIES.index(rule.severity) for rule in found.chosen], np.int64)[found.rule]


def show(found: Findings, *, quiet: bool = False) -> None:
    """Print findings, the worst first, those of a rule together: the first ones in full, the others counted."""
    number = severities(found)
    texts = checking.table(found)
    for severity, name in enumerate(SEVERITIES[:1] if quiet else SEVERITIES):
        for rule in dict.fromkeys(found.rule[number == severity].tolist()):
            rows = np.flatnonzero(found.rule == rule)
            for row in texts[rows[: console.SHOWN].tolist()].iter_rows(named=True):
                console.answer(f"{line(row)}\n")
            chosen = found.chosen[rule]
            if (rest := len(rows) - console.SHOWN) > 0:
                modules = len(np.unique(found.ids["module"][rows]))
                where = console.counted(modules, "module")
                console.answer(f"... and {console.counted(rest, 'more finding')} of `{chosen.code}`, in {where}\n")
            console.answer(f"  {name} of level {chosen.level}: {chosen.meaning}; {chosen.advice}\n")


def line(row: dict[str, Any]) -> str:
    """Return a finding as one line: the module, the message, and what it is about."""
    about = ", ".join(
        f"{what} `{row[key]}`"
        for what, key in (
            ("function", "function"),
            ("block", "block"),
            ("instruction", "instruction"),
            ("operand", "slot"),
            ("set", "set"),
            ("location", "location"),
        )
        if row[key] is not None
    )
    where = f" ({about})" if about else ""
    return console.plain(f"{row['severity']}[{row['rule']}] {row['module']}: {row['message']}{where}")


def summarise(modules: list[dict[str, Any]]) -> None:
    """Print how many findings there are, in how many modules."""
    totals = {s: sum(m.get(f"{s}s", 0) for m in modules) for s in SEVERITIES}
    listed = ", ".join(console.counted(totals[s], s) for s in SEVERITIES if totals[s])
    unread = sum(m.get("status") == "failed" for m in modules)
    more = f"; {console.counted(unread, 'file')} not read" if unread else ""
    console.answer(f"{console.counted(len(modules) - unread, 'module')}: {listed or 'nothing found'}{more}\n")
