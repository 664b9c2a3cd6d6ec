"""What is noted about each executed instruction, for looking at a run in a notebook."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir.simulate.memory import Access, Memory
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

    from arrowir.simulate.step import Step

COLUMNS = (
    "step",
    "instruction_id",
    "function",
    "block",
    "name",
    "opcode",
    "engine",
    "bytes_read",
    "bytes_written",
    "min",
    "max",
    "nan",
)
"""Columns of a trace, in order."""


@dataclass(frozen=True)
class Watched:
    """The content of a watched location after an instruction has written to it."""

    step: int
    instruction_id: int
    instruction: str
    values: Array
    """All of the location; what was never written has all bits set."""


class Trace:
    """Notes about executed instructions.

    Parameters
    ----------
    rows
        Whether each instruction gets a row.
    watch
        Names of locations whose content is kept after each instruction that writes to them.
    """

    def __init__(self, *, rows: bool, watch: frozenset[str] = frozenset()) -> None:
        self.rows, self.watch = rows, watch
        self.table: list[tuple[Any, ...]] = []
        self.watched: dict[str, list[Watched]] = {name: [] for name in sorted(watch)}
        self.bytes_read = self._bytes_written = 0
        self._low: float | None = None
        self._high: float | None = None
        self._nan = 0
        self._touched: list[Memory] = []

    def begin(self, step: "Step") -> None:
        """Begin with an instruction."""
        self.bytes_read = self._bytes_written = self._nan = 0
        self._low = self._high = None
        self._touched = []

    def written(self, access: Access, values: Array) -> None:
        """Note what an instruction writes."""
        self._bytes_written += access.count * access.dtype.size
        if access.memory.name in self.watch and access.memory not in self._touched:
            self._touched.append(access.memory)
        if not self.rows or access.dtype.kind == "bits":
            return
        numbers = values.astype(np.float64)
        nan = int(np.isnan(numbers).sum())
        self._nan += nan
        if nan < numbers.size:
            low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)

    def end(self, step: "Step") -> None:
        """Note an instruction that has been executed."""
        machine, code = step.machine, step.code
        program = machine.program
        if self.rows:
            self.table.append(
                (
                    machine.steps,
                    code.row,
                    program.text("functions", code.function) if code.function >= 0 else None,
                    program.text("blocks", code.block),
                    code.name,
                    code.opcode,
                    code.engine,
                    self.bytes_read,
                    self._bytes_written,
                    self._low,
                    self._high,
                    self._nan,
                )
            )
        for memory in self._touched:
            values = machine.content(memory)
            self.watched[memory.name].append(Watched(machine.steps, code.row, code.name, values))

    def frame(self) -> "pl.DataFrame":
        """Return the notes, one row per executed instruction that is no control flow."""
        import polars as pl

        types: dict[str, Any] = dict.fromkeys(COLUMNS, pl.Int64)
        types |= dict.fromkeys(("min", "max"), pl.Float64)
        types |= dict.fromkeys(("function", "block", "name", "opcode", "engine"), pl.String)
        columns = list(zip(*self.table, strict=True)) or [()] * len(COLUMNS)
        return pl.DataFrame(dict(zip(COLUMNS, columns, strict=True)), schema=types)
