"""`arrowir convert`: modules in another format."""

import argparse

from arrowir.cli import console, inputs, outputs
from arrowir.cli.outputs import Output
from arrowir.formats import bir_json


def convert(arguments: argparse.Namespace) -> int:
    """Read modules and write them as JSON or as a data set."""
    sources = inputs.find(arguments.inputs)
    output = Output.for_convert(arguments.output, sources, arguments.format)
    with console.Progress(quiet=arguments.quiet) as progress:
        given = inputs.load(sources, progress, strict=arguments.strict)
        output.check_place()
        output.check_inputs(given)
        progress.at("writing", 0, 1)
        with outputs.writing(arguments.output):
            stale = output.write(given.ir, given)
    names, read_from = bir_json.names_and_sources(given.ir)
    written = list(map(str, output.json_files(given)[0])) if output.json is not None else []
    modules: list[dict[str, object]] = [
        {
            "name": name,
            "source": read_from[m],
            "status": "converted",
            "output": written[m] if written else str(output.root),
        }
        for m, name in enumerate(names)
    ]
    if arguments.json:
        console.answer(console.dump({"modules": inputs.interleaved(given, modules)}))
    elif not arguments.quiet:
        target = written[0] if len(written) == 1 else str(output.root)
        console.line(f"wrote {console.counted(len(names), 'module')} to {target}" if names else "wrote nothing")
    if not arguments.quiet:
        outputs.report_stale(stale)
    console.report(given.messages, quiet=arguments.quiet)
    return 1 if given.failures else 0
