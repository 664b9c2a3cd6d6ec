"""The command `arrowir`. Nothing slow is imported before it is known what is to be done."""

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from arrowir.cli import console, parser

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
"""Exit codes: done; a module failed or there is an error row; wrong usage; stopped from the keyboard."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        The exit code: 0, 1 when a module failed or there is an error row, 2 for wrong usage (rule O4).
    """
    console.prepare()
    try:
        arguments = parser.parse(list(sys.argv[1:] if argv is None else argv))
    except SystemExit as stop:  # argparse has said what there is to say
        return stop.code if isinstance(stop.code, int) else USAGE
    # What imports and tables make stays: looking for garbage in it often is a tenth of the time of a small job.
    thresholds = gc.get_threshold()
    gc.set_threshold(100_000, *thresholds[1:])
    try:
        _set_up_logging()
        module, function = parser.COMMANDS[arguments.command].handler
        code: int = getattr(import_module(f"arrowir.cli.{module}"), function)(arguments)
    except KeyboardInterrupt:
        console.error("interrupted; no file was left half written")
        code = INTERRUPTED
    except BaseException as error:  # noqa: BLE001 - panics of Polars are no `Exception`
        code = _explain(error)
    finally:
        gc.set_threshold(*thresholds)
    return code


def _explain(error: BaseException) -> int:
    """Say what went wrong, without a traceback, and return the exit code."""
    from arrowir.diagnostics import ArrowIRError, FormatError, OptionError, PassError

    if isinstance(error, SystemExit | GeneratorExit):
        raise error
    if isinstance(error, console.AnswerError):
        console.error(f"{error}")
        return FAILED
    if isinstance(error, console.UsageError):
        console.error(*error.args)
        return USAGE
    if isinstance(error, PassError):
        console.line(f"{error.diagnostic}", severity="error")
        return FAILED
    if isinstance(error, OptionError):
        console.line(f"error[bad_option]: {error}", severity="error")
        return USAGE
    if isinstance(error, FormatError):
        console.line(f"error[format_error]: {error}", severity="error")
        return FAILED
    if isinstance(error, ArrowIRError):
        console.line(f"error: {error}", severity="error")
        return FAILED
    if isinstance(error, MemoryError):
        console.error("the memory does not suffice for all inputs at once; give fewer of them")
        return FAILED
    import logging

    logging.getLogger("arrowir").debug("unexpected exception", exc_info=error)
    console.error(
        f"internal error: {type(error).__name__}: {error}; this is a defect of the program, please report it"
        f" (`{_LOG}=debug` shows where it happened)"
    )
    return FAILED


_LOG = "ARROWIR_LOG"


def _set_up_logging() -> None:
    """Show log lines when the environment asks for them, and not otherwise."""
    import logging

    logger = logging.getLogger("arrowir")
    if logger.handlers:
        return
    level = os.environ.get(_LOG, "").upper()
    if level in logging.getLevelNamesMapping():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(level)
    else:
        logger.addHandler(logging.NullHandler())
