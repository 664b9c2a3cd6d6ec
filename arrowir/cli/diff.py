"""`arrowir diff`: how modules differ."""

import argparse
import json
import re
from typing import TYPE_CHECKING

from arrowir.cli import console, inputs
from arrowir.cli.inputs import Inputs

if TYPE_CHECKING:
    from arrowir.analyse.diff import Diff

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


def diff(arguments: argparse.Namespace) -> int:
    """Print how the modules of one input differ from those of another; exit 1 when they do."""
    from arrowir.analyse.diff import diff as compare

    with console.Progress(quiet=arguments.quiet) as progress:
        before = inputs.load(inputs.find([arguments.before]), progress)
        after = inputs.load(inputs.find([arguments.after]), progress)
        progress.at("comparing", 0, 1)
        found = compare(before.ir, after.ir)
        text = _json(found, before, after) if arguments.json else f"{found}\n"
    console.answer(text)
    console.report((*before.messages, *after.messages), quiet=arguments.quiet)
    if found and (before.failures or after.failures) and not arguments.quiet:
        console.line("what could not be read is not compared: its module on the other side counts as added or removed")
    return 1 if found or before.failures or after.failures else 0


def _json(found: "Diff", before: Inputs, after: Inputs) -> str:
    """Return the answer as JSON text: the modules, the differences counted, every difference."""
    unread = [
        {"name": f.name, "before": f.source.path if given is before else None,
         "after": f.source.path if given is after else None, "status": "failed"}
        for given in (before, after)
        for f in given.failures
    ]  # fmt: skip
    head = console.dump({"modules": [*found.modules.to_dicts(), *unread], "summary": found.summary.to_dicts()})
    # There may be millions of rows: they become text as a frame, not one by one.
    rows = _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], found.rows.write_json())
    return f'{head.rstrip().removesuffix("}").rstrip()},\n  "rows": {rows}\n}}\n'
