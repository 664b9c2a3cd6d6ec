"""`arrowir print`, `sql`, `passes` and `kernels`: commands that show something and write no file."""

import argparse
from dataclasses import MISSING
from typing import Any

from arrowir.cli import console
from arrowir.cli.console import UsageError
from arrowir.diagnostics import ArrowIRError


def print_text(arguments: argparse.Namespace) -> int:
    """Print the readable listing of each module."""
    from arrowir.cli import inputs

    with console.Progress(quiet=arguments.quiet) as progress:
        given = inputs.load(inputs.find(arguments.inputs), progress)
    for module in range(len(given.ir)):
        text = given.ir.text(module, provenance=arguments.provenance)
        console.answer(text if text.endswith("\n") else text + "\n")
    console.report(given.messages, quiet=arguments.quiet)
    return 1 if given.failures else 0


def sql(arguments: argparse.Namespace) -> int:
    """Print the answer to a query over all modules."""
    from arrowir.cli import inputs

    with console.Progress(quiet=arguments.quiet) as progress:
        given = inputs.load(inputs.find(arguments.inputs), progress)
        progress.at("query", 0, 1)
        try:
            frame = given.ir.sql(arguments.query)
        except ArrowIRError as error:
            # Lines of the query, and a mark below what is wrong in them.
            raise UsageError(*filter(str.strip, str(error).split("\n"))) from None
    if arguments.json:
        console.answer(console.dump({"columns": frame.columns, "rows": frame.to_dicts()}))
    else:
        console.table(frame.columns, frame.rows(), absent="null")
    console.report(given.messages, quiet=arguments.quiet)
    return 1 if given.failures else 0


def passes(arguments: argparse.Namespace) -> int:
    """Print the registered passes with their options, and the default order."""
    from arrowir.passes import pipeline

    listed = describe()
    order: list[dict[str, Any]] = [
        {
            "order": step.order,
            "pass": step.name,
            "options": dict(step.options),
            "condition": step.condition,
            "available": step.available,
        }
        for step in pipeline.DEFAULT
    ]
    if arguments.json:
        console.answer(console.dump({"passes": listed, "default_order": order}))
        return 0
    console.table(("pass", "what it does"), [(p["name"], p["summary"]) for p in listed])
    console.answer("\n")
    console.table(
        ("pass", "option", "type", "default"),
        [(p["name"], o["name"], o["type"], _shown(o["default"])) for p in listed for o in p["options"]],
    )
    console.answer("\ndefault order; what this version does not have is left out of a run\n\n")
    console.table(
        ("order", "pass", "options", "available"),
        [
            (s["order"], s["pass"], _settings(s["options"], s["condition"]), "yes" if s["available"] else "no")
            for s in order
        ],
    )
    return 0


def describe() -> list[dict[str, Any]]:
    """Return name, summary and options of each registered pass."""
    from arrowir import passes
    from arrowir.passes.options import options_of

    listed: list[dict[str, Any]] = []
    for name in passes.names():
        cls = passes.get(name)
        doc = (cls.__doc__ or "").strip().partition("\n")[0]
        options = [
            {"name": o.name, "type": o.type_text, "default": None if o.default is MISSING else o.default}
            for o in options_of(cls)
        ]
        listed.append({"name": name, "summary": doc, "options": options})
    return listed


def kernels(arguments: argparse.Namespace) -> int:
    """Print the library kernels with their options; one that cannot be loaded is said to be so."""
    listed = describe_kernels()
    if arguments.json:
        console.answer(console.dump({"kernels": listed}))
        return 0
    console.table(("kernel", "what it computes"), [(k["name"], k["summary"]) for k in listed])
    console.answer("\n")
    console.table(
        ("kernel", "option", "takes", "default", "meaning"),
        [(k["name"], o["name"], o["takes"], _shown(o["default"]), o["meaning"]) for k in listed for o in k["options"]],
    )
    return 0


def describe_kernels() -> list[dict[str, Any]]:
    """Return name, summary and options of each library kernel."""
    from arrowir.library import KernelError, get, names

    listed: list[dict[str, Any]] = []
    for name in names():
        try:
            cls = get(name)
        except KernelError as error:
            listed.append({"name": name, "summary": str(error), "options": []})
            continue
        doc = (cls.__doc__ or "").strip().partition("\n")[0].replace("``", "`")
        options = [
            {"name": o.name, "type": o.kind, "takes": o.takes, "default": o.default, "meaning": o.meaning}
            for o in cls.options
        ]
        listed.append({"name": name, "summary": doc, "options": options})
    return listed


def _shown(value: object) -> str:
    """Write a default as `--set` takes it."""
    return value if isinstance(value, str) and value != "none" else console.dump(value).strip()


def _settings(options: dict[str, object], condition: str | None) -> str:
    parts = [f"{name}={_shown(value)}" for name, value in options.items()]
    return ", ".join([*parts, f"if {condition}"] if condition else parts)
