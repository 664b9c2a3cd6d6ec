"""`arrowir run`: a pipeline over modules, and what came of it."""

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from arrowir import validation
from arrowir.cli import console, inputs, outputs
from arrowir.cli.console import UsageError
from arrowir.cli.inputs import Inputs
from arrowir.cli.outputs import Output
from arrowir.diagnostics import OptionError, table
from arrowir.formats import bir_json
from arrowir.ir import IR
from arrowir.passes import pipeline
from arrowir.passes.base import FAILED, STATUS
from arrowir.passes.pipeline import RunResult
from arrowir.store import Array

ROWS = 40
"""Modules that the closing table shows on a terminal; those that failed are shown in any case."""


def run(arguments: argparse.Namespace) -> int:
    """Run the pipeline, write its results, print the closing table."""
    _refuse_unavailable(arguments)
    options = _options(arguments.set)
    steps = pipeline.plan_steps(_chosen(arguments.passes), options, enable_bir_kernel=arguments.enable_bir_kernel)
    shard_id = validation.shard_of(steps) if arguments.check else 0
    sources = inputs.find(arguments.inputs)
    output = Output.for_run(arguments.output, sources, arguments.format)
    output.check_place()
    with console.Progress(quiet=arguments.quiet) as progress:
        given = inputs.load(sources, progress, strict=arguments.strict)
        output.check_inputs(given)
        result = pipeline.run(
            given.ir,
            steps,
            strict=arguments.strict,
            verify=arguments.verify,
            tensor_map=arguments.tensor_map,
            progress=progress.at,
        )
        checks: dict[int, str] = {}
        if arguments.check:
            checked = validation.checked(
                given.ir,
                result,
                arguments.check,
                steps,
                tolerance=arguments.check_tolerance,
                shard_id=shard_id,
                strict=arguments.strict,
                progress=progress.at,
            )
            result = checked
            checks.update(checked.checks.statuses)
        messages = (*given.messages, *result.messages)
        diagnostics, rows = table(messages), result.steps
        progress.at("writing", 0, 1)
        with outputs.writing(arguments.output):
            stale = output.write(result.ir, given, diagnostics=diagnostics, steps=rows)
    modules = inputs.interleaved(given, summary(given, result, checks))
    if arguments.json:
        console.answer(
            console.dump({"modules": modules, "diagnostics": diagnostics.to_dicts(), "steps": rows.to_dicts()})
        )
    elif not arguments.quiet:
        show(modules)
    if not arguments.quiet:
        outputs.report_stale(stale)
    console.report(messages, quiet=arguments.quiet, details=str(output.root / "diagnostics.parquet"))
    return 1 if any(m.severity == "error" for m in messages) or (result.codes == FAILED).any() else 0


def _refuse_unavailable(arguments: argparse.Namespace) -> None:
    """Refuse what the interface has and this version does not."""
    if arguments.jobs > 1:
        raise UsageError(f"`--jobs {arguments.jobs}` is not available in this version: it has one worker; leave it out")
    if arguments.engine != "local":
        raise UsageError(f"`--engine {arguments.engine}` is not available in this version; leave it out")
    if arguments.scheduler is not None:
        raise UsageError("`--scheduler` is not available in this version; leave it out")
    if arguments.resume:
        raise UsageError("`--resume` is not available in this version; leave it out")


def _chosen(passes: list[list[str]] | None) -> list[str] | None:
    return None if passes is None else [name for names in passes for name in names]


def _options(settings: list[tuple[str, str, object]]) -> dict[str, dict[str, Any]]:
    options: dict[str, dict[str, Any]] = {}
    for name, option, value in settings:
        chosen = options.setdefault(name, {})
        if option in chosen:
            raise OptionError(f"`{name}.{option}` is set twice, to {chosen[option]!r} and to {value!r}; leave one out")
        chosen[option] = value
    return options


def summary(given: Inputs, result: RunResult, checks: Mapping[int, str] | None = None) -> list[dict[str, Any]]:
    """Return what the closing table says of each module that was read; `checks` is what came of executing it."""
    before, after = pipeline.rows_per_module(given.ir), pipeline.rows_per_module(result.ir)
    inlined = after["call_chains"] - before["call_chains"]
    reserved = reserved_bytes(result.ir) - reserved_bytes(given.ir)
    names, sources = bir_json.names_and_sources(given.ir)
    return [
        {
            "name": name,
            "source": sources[m],
            "status": STATUS[int(result.codes[m])],
            "instructions_before": int(before["instructions"][m]),
            "instructions_after": int(after["instructions"][m]),
            "kernels_inlined": int(inlined[m]),
            "bytes_reserved": int(reserved[m]),
            **({"check": checks[m]} if checks else {}),
        }
        for m, name in enumerate(names)
    ]


def reserved_bytes(ir: IR) -> Array:
    """Return the bytes per partition that each module's SBUF holds for the runtime."""
    locations = ir.tables["locations"]
    mine = (locations["runtime_reserved"] == 1) & (locations["bytes"] > 0)
    mine &= locations["type"] == ir.pools.codes["memory_type"].find("SB")
    total = np.zeros(len(ir), np.int64)
    np.add.at(total, ir.array("locations", "module_id")[mine], locations["bytes"][mine])
    return total


def show(modules: list[dict[str, Any]]) -> None:
    """Print the closing table."""
    shown = modules
    if console.is_terminal(console.sys.stdout) and len(modules) > ROWS:
        bad = ("failed", "different")
        shown = [m for place, m in enumerate(modules) if place < ROWS or m["status"] in bad or m.get("check") in bad]
    columns = ["instructions_before", "instructions_after", "kernels_inlined", "bytes_reserved"]
    titles = ["module", "status", "instructions before", "after", "kernels inlined", "bytes reserved"]
    if any("check" in m for m in modules):
        columns.append("check")
        titles.append("executed")
    rows = [(m["name"], m["status"], *(m.get(c) for c in columns)) for m in shown]
    console.table(titles, [tuple(c.replace("_", " ") if c == "not_executable" else c for c in row) for row in rows])
    if (rest := len(modules) - len(shown)) > 0:
        console.answer(f"... and {console.counted(rest, 'more module')}\n")
    counts = {status: sum(m["status"] == status for m in modules) for status in STATUS}
    listed = ", ".join(f"{number:,} {status}" for status, number in counts.items() if number)
    console.answer(f"{console.counted(len(modules), 'module')}: {listed or 'none'}\n")
