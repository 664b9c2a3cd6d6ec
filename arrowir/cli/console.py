"""What the command prints: answers to standard output, everything else to standard error.

`arrowir --help` imports this, and so nothing here imports more than it needs.
"""

import io
import math
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, TextIO

    from arrowir.diagnostics import Diagnostic

SHOWN = 10
"""Diagnostics of one code that are printed; the rest is counted."""

PATIENCE = 1.0
"""Seconds before a progress bar appears."""

_COLOURS = {"error": "1;31", "warning": "1;33", "note": "1;36"}
_SEVERITIES = ("error", "warning", "note")


class UsageError(Exception):
    """The command cannot do what it is asked for: exit code 2; the arguments are the lines that say why."""


class AnswerError(Exception):
    """The answer cannot be written to standard output."""


def prepare() -> None:
    """Make the streams take any character: what an encoding does not have is escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def answer(text: str = "") -> None:
    """Write text to standard output, at once. A reader that has seen enough (`| head`) is no error.

    Raises
    ------
    AnswerError
        If the disk or device behind it does not take it.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    except OSError as problem:
        _drop_output()
        raise AnswerError(f"the answer cannot be written: {problem.strerror or problem}") from None


def _drop_output() -> None:
    """Let what is still in the buffer go nowhere, so that closing it at exit does not complain."""
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, sys.stdout.fileno())
    except (OSError, ValueError):  # no file behind the stream
        pass
    finally:
        os.close(sink)


def line(text: str, *, severity: str = "") -> None:
    """Write one line to standard error; its first word is coloured on a terminal."""
    text = plain(text)
    if severity and is_terminal(sys.stderr) and "NO_COLOR" not in os.environ:
        first, rest = text[: len(severity)], text[len(severity) :]
        text = f"\x1b[{_COLOURS[severity]}m{first}\x1b[0m{rest}"
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        pass


def error(text: str, *more: str) -> None:
    """Write an error that is about no module, in one line or several."""
    line(f"error: {text}", severity="error")
    for following in more:
        line(following)


def is_terminal(stream: "TextIO") -> bool:
    """Tell whether people look at a stream."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def plain(text: str) -> str:
    r"""Escape control characters: names come out of files, and must not steer the terminal.

    Examples
    --------
    >>> print(plain("a\tb\x1b[31m é"))
    a\tb\x1b[31m é
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def dump(value: object) -> str:
    """Return an answer as JSON text: ASCII, and strings for numbers that JSON does not have."""
    import json

    return json.dumps(_finite(value), indent=2, default=str) + "\n"


def _finite(value: "Any") -> "Any":
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


# -- tables ----------------------------------------------------------------------------------------------------------


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, absent: str = "") -> None:
    """Write a table to standard output: ruled on a terminal, aligned plain text otherwise; `absent` stands for None."""
    listed = list(rows)
    cells = [[absent if cell is None else plain(str(cell)) for cell in row] for row in listed]
    right = [all(row[k] is None or _is_number(row[k]) for row in listed) and bool(listed) for k in range(len(columns))]
    if is_terminal(sys.stdout) and _ruled(columns, cells, right):
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    lines: list[str] = []
    for row in (columns, *cells):
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        lines.append("  ".join(padded).rstrip())
    answer("\n".join(lines) + "\n")


def _is_number(cell: object) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool)


def _ruled(columns: Sequence[str], cells: list[list[str]], right: list[bool]) -> bool:
    """Write a table with rich, where it is installed."""
    try:
        from rich import box
        from rich.cells import cell_len
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        return False
    ruled = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name, numeric in zip(columns, right, strict=True):
        ruled.add_column(Text(name), justify="right" if numeric else "left", no_wrap=True)
    for row in cells:
        ruled.add_row(*map(Text, row))
    text = io.StringIO()
    # Wide enough for every cell: a name that is cut or folded cannot be copied, and terminals wrap lines themselves.
    width = sum(max(map(cell_len, column)) + 2 for column in zip(columns, *cells, strict=True))
    screen = Console(file=text, force_terminal=True, no_color="NO_COLOR" in os.environ, width=max(width, 20))
    screen.print(ruled)
    answer(text.getvalue())
    return True


# -- diagnostics -----------------------------------------------------------------------------------------------------


def report(messages: "Sequence[Diagnostic]", *, quiet: bool = False, details: str = "") -> None:
    """Write diagnostics to standard error: a line each, grouped by code, errors first, long groups cut, notes counted.

    Parameters
    ----------
    messages
        What there is to say.
    quiet
        Say nothing of warnings and notes.
    details
        Where all of them can be read.
    """
    shown = _SEVERITIES[:1] if quiet else _SEVERITIES[:2]
    groups: dict[tuple[int, str], list[Diagnostic]] = {}
    for message in messages:
        if message.severity in shown:
            groups.setdefault((_SEVERITIES.index(message.severity), message.code), []).append(message)
    for (_, code), members in sorted(groups.items(), key=lambda item: item[0]):
        for message in members[:SHOWN]:
            line(str(message), severity=message.severity)
        if (rest := len(members) - SHOWN) > 0:
            modules = len({m.module for m in members})
            line(f"... and {counted(rest, 'more row')} of `{code}`, in {counted(modules, 'module')}")
    totals = Counter(message.severity for message in messages)
    # What stands above in full needs no total, and notes alone are worth a line only where they can be read.
    if (groups and len(messages) > 1) or (messages and details and not quiet):
        listed = ", ".join(counted(totals[s], s) for s in _SEVERITIES if totals[s])
        line(f"{listed}{f'; all of them: {details}' if details else ''}")


def counted(number: int, what: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "module"), counted(12000, "module")
    ('1 module', '12,000 modules')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


# -- progress --------------------------------------------------------------------------------------------------------


class Progress:
    """A progress bar on standard error, if that is a terminal, rich is installed, and the work lasts over a second."""

    def __init__(self, *, quiet: bool = False) -> None:
        import threading

        self._wanted = not quiet and is_terminal(sys.stderr)
        self._bar: Any = None
        self._task: Any = None
        self._state = ("", 0, 1)
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> "Progress":
        if self._wanted:
            import threading

            self._timer = threading.Timer(PATIENCE, self._start)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self, kind: "type[BaseException] | None", error: BaseException | None, where: "TracebackType | None"
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._wanted = False
            if self._bar is not None:
                self._bar.stop()

    def at(self, what: str, done: int, total: int) -> None:
        """Say what is being done, and how much of it is done."""
        with self._lock:
            self._state = what, done, total
            if self._bar is not None:
                self._bar.update(self._task, description=what, completed=done, total=total)

    def _start(self) -> None:
        try:
            from rich.console import Console
            from rich.progress import Progress as Bar
        except ImportError:
            return
        with self._lock:
            if not self._wanted:
                return
            what, done, total = self._state
            self._bar = Bar(console=Console(file=sys.stderr), transient=True)
            self._task = self._bar.add_task(what, completed=done, total=total)
            self._bar.start()
