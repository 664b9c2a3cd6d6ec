"""`arrowir simulate`: modules run on arrays from files."""

import argparse
import io
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

from arrowir.cli import console, inputs, outputs
from arrowir.cli.console import UsageError
from arrowir.diagnostics import OptionError, SimulationError
from arrowir.formats import bir_json, targets
from arrowir.ir import IR


def simulate(arguments: argparse.Namespace) -> int:
    """Run each module on the same inputs, and write its outputs as files of numpy."""
    from arrowir.simulate.running import simulate as run

    arrays = _arrays(arguments.input)
    sources = inputs.find(arguments.inputs)
    root = Path(arguments.output)
    if root.exists() and not root.is_dir():
        raise UsageError(f"cannot write to `{root}`: it is a file, and a folder is needed there")
    options: dict[str, Any] = {
        "function": arguments.function,
        "shard_id": arguments.shard_id,
        "nan": arguments.nan,
        "readings": dict(arguments.reading),
        "trace": arguments.trace,
    }
    if arguments.max_steps is not None:
        options["max_steps"] = arguments.max_steps
    rows: list[dict[str, object]] = []
    modules: list[dict[str, object]] = []
    with console.Progress(quiet=arguments.quiet) as progress:
        given = inputs.load(sources, progress)
        names, read_from = bir_json.names_and_sources(given.ir)
        chosen = _of_modules(given.ir, arrays, arguments.function)
        folders = (
            [root] if len(sources) == 1 and len(names) == 1 else [root / s for s in targets.stems(names, read_from)]
        )
        for module, (name, folder) in enumerate(zip(names, folders, strict=True)):
            progress.at("simulating", module, len(names))
            status = "simulated"
            try:
                found = run(given.ir, chosen[module], module, **options)
            except SimulationError as error:
                console.line(f"error[simulation_error]: {error}", severity="error")
                status = "failed"
            except OptionError as error:
                raise UsageError(f"{name}: {error}") from None
            else:
                with outputs.writing(arguments.output):
                    rows += [_write(name, folder, output, array) for output, array in found.items()]
                    if arguments.trace:
                        targets.write_frame(found.trace, folder / "trace.parquet")
            modules.append({"name": name, "source": read_from[module], "status": status})
    failed = bool(given.failures) or any(row["status"] == "failed" for row in modules)
    if arguments.json:
        console.answer(console.dump({"modules": inputs.interleaved(given, modules), "outputs": rows}))
    elif rows and not arguments.quiet:
        columns = ("module", "output", "dtype", "shape", "file")
        console.table(columns, [tuple(row[column] for column in columns) for row in rows])
    console.report(given.messages, quiet=arguments.quiet)
    return 1 if failed else 0


def _arrays(given: list[list[tuple[str, str]]]) -> dict[str, Any]:
    """Read the inputs."""
    import numpy as np

    found: dict[str, Any] = {}
    for name, path in (pair for pairs in given for pair in pairs):
        if name in found:
            raise UsageError(f"the input `{name}` is given twice")
        try:
            array: Any = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            if isinstance(error, ValueError) and not _is_npy(path):
                reason = "it is no .npy file"  # NumPy takes it for pickled objects, and says how to load these
            raise UsageError(f"the input `{name}` cannot be read from `{path}`: {reason}") from None
        if not isinstance(array, np.ndarray):
            array.close()
            raise UsageError(
                f"the input `{name}` cannot be read from `{path}`: it is an archive; give a file of one array"
            )
        found[name] = array
    return found


def _is_npy(path: str) -> bool:
    """Tell whether a file begins as an array of NumPy does."""
    with Path(path).open("rb") as file:
        return file.read(6) == b"\x93NUMPY"


def _of_modules(ir: IR, arrays: dict[str, Any], function: str | None) -> list[dict[str, Any]]:
    """Return the inputs of each module: of several modules each one takes those that it has."""
    from arrowir.simulate.program import Program
    from arrowir.simulate.running import input_names

    if len(ir) == 1 or not arrays:
        return [arrays] * len(ir)
    known: list[set[str]] = []
    for module_id in range(len(ir)):
        program = Program(ir, module_id)
        try:
            known.append(input_names(program, program.entry(function)))
        except SimulationError:  # it says why when it is run
            known.append(set())
    for name in arrays:
        if not any(name in names for names in known):
            raise UsageError(f"`{name}` is no location of any of the {len(ir)} modules")
    return [{name: array for name, array in arrays.items() if name in names} for names in known]


def _write(module: str, folder: Path, name: str, array: Any) -> dict[str, object]:
    """Write an output, and return the row about it."""
    import numpy as np

    # Names come out of files: what is no letter, digit or one of a few signs is escaped.
    path = folder / f"{quote(name, safe=' !#$&()+,;=@[]')}.npy"
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    targets.write_whole(path, buffer.getvalue())
    shape = "x".join(map(str, array.shape))
    return {"module": module, "output": name, "dtype": str(array.dtype), "shape": shape, "file": str(path)}
