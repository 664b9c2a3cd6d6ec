"""The machine: runs the instructions of a function one after the other.

Execution is in program order. What engines, queues and semaphores add in hardware is an order that agrees with it, so
they are not modelled. Loops, branches and calls are kept on a stack of levels, one for each list of blocks that is
being executed, so that nesting is not bounded by Python's own stack.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.diagnostics import SimulationError
from arrowir.simulate.binding import bind
from arrowir.simulate.dtypes import Dtype, dtype
from arrowir.simulate.frames import Frame, Register, Storage
from arrowir.simulate.memory import Access, Memory
from arrowir.simulate.program import Code, Program
from arrowir.simulate.step import Operand, Step
from arrowir.simulate.trace import Trace
from arrowir.store import Array

STREAMS = frozenset(vocab.ENGINES.values) - {"Unassigned", "ALL"}
"""Engines with a stream of instructions of their own."""

MAX_STEPS = 10_000_000
"""Executed instructions after which a simulation stops by default."""

Way: TypeAlias = "int | Literal['loop', 'function', 'program']"
"""How a block is left: for another block, or what ends."""


@dataclass(slots=True)
class Level:
    """A list of blocks that is being executed: of a function, or of a loop."""

    frame: Frame
    blocks: tuple[int, ...]
    again: Callable[[], bool] | None
    """Of a loop: begins the next iteration, or tells that there is none. None for a function."""
    block: int = -1
    """The block, by place in the list."""
    at: int = 0
    """The next instruction, and the end of the block."""
    end: int = 0
    left: dict[str, Way] = field(default_factory=dict[str, Way])
    """Engines that have left the block, while others have not."""


class Machine:
    """The state of a simulation: memories, registers, accumulators, and where execution stands.

    Parameters
    ----------
    program
        The module.
    function
        The function to run.
    readings
        Choices for undecided cases.
    shard_id
        The value of the shard in expressions.
    nan
        ``"raise"`` to stop where a NaN is written.
    max_steps
        Executed instructions after which it stops.
    trace
        What notes each executed instruction, if anything does.
    """

    def __init__(
        self,
        program: Program,
        function: int,
        *,
        readings: dict[str, str] | None = None,
        shard_id: int = 0,
        nan: str = "allow",
        max_steps: int = MAX_STEPS,
        trace: Trace | None = None,
    ) -> None:
        self.program, self.readings, self.shard_id = program, readings or {}, shard_id
        self.nan_raises, self.max_steps, self.trace = nan == "raise", max_steps, trace
        self.frame = Frame(program, function, shard_id=shard_id)
        self.accumulators: dict[str, Any] = {}
        """What the engines' accumulators hold, by engine."""
        self.steps = 0
        self.levels: list[Level] = []
        self._frames: dict[tuple[int, ...], Frame] = {(): self.frame}
        self._statics: dict[int, tuple[Storage, dict[int, Register]]] = {}
        self._aliased: dict[int, int] | None = None
        self._may_alias: dict[int, str] = {}

    # -- running ------------------------------------------------------------------------------------------------------

    def run(self, until: Collection[str | int] = ()) -> bool:
        """Run the function, and return whether it came to its end.

        Parameters
        ----------
        until
            Stop after an instruction of one of these names or ids.

        Raises
        ------
        SimulationError
            At the first thing that cannot be executed; it names the instruction.
        """
        self._push(self.frame, self.program.blocks(self.frame.function), None)
        while self.levels:
            level = self.levels[-1]
            if level.left and self._is_behind(level):
                continue
            if level.at >= level.end:
                self._next_block(level)
                continue
            row = level.at
            level.at += 1
            code = self.execute(row, level.frame)
            if until and (code.name in until or row in until):
                return False
        return True

    @property
    def frames(self) -> list[Frame]:
        """The frames that there are, that of the function itself first."""
        return list(self._frames.values())

    def execute(self, row: int, frame: Frame) -> Code:
        """Execute one instruction.

        Parameters
        ----------
        row
            The instruction.
        frame
            The storage that it works on.
        """
        try:
            code = self.program.code(row)
        except SimulationError as error:
            raise SimulationError(error.reason, **self._where(row)) from None
        self.steps += 1
        try:
            if self.steps > self.max_steps:
                raise SimulationError(f"{self.max_steps:,} instructions have been executed; give a higher `max_steps`")
            if code.problem:
                raise SimulationError(code.problem)
            step = Step(self, frame, code)
            if code.handler.elementwise:
                step.check_overlap()
            if self.trace is not None and not code.handler.control:
                self.trace.begin(step)
                code.handler.run(step)
                self.trace.end(step)
            else:
                code.handler.run(step)
        except SimulationError as error:
            if error.instruction is not None:
                raise
            raise SimulationError(error.reason, **self._where(row)) from error
        except RecursionError:
            raise SimulationError("an expression is nested too deeply", **self._where(row)) from None
        except MemoryError:
            raise SimulationError("it takes more memory than there is", **self._where(row)) from None
        return code

    def _where(self, row: int) -> dict[str, Any]:
        program = self.program
        function = int(program.column("instructions", "function_id")[row])
        return {
            "module": program.name,
            "function": program.text("functions", function) if function >= 0 else None,
            "block": program.text("blocks", int(program.column("instructions", "block_id")[row])),
            "instruction": program.text("instructions", row),
            "opcode": program.word("instructions", "opcode", row),
            "step": self.steps,
        }

    # -- control flow -------------------------------------------------------------------------------------------------

    def _push(self, frame: Frame, blocks: tuple[int, ...], again: Callable[[], bool] | None) -> None:
        level = Level(frame, blocks, again)
        self.levels.append(level)
        self._next_block(level)

    def _next_block(self, level: Level) -> None:
        """Go on with the next block of a list; behind its last one end the function or begin the next iteration."""
        if level.block + 1 < len(level.blocks):
            self._enter(level, level.block + 1)
        elif level.again is not None and level.again():
            if level.blocks:
                self._enter(level, 0)
            else:
                self._count_empty()
        else:
            self.levels.pop()

    def _count_empty(self) -> None:
        self.steps += 1
        if self.steps > self.max_steps:
            raise SimulationError(f"{self.max_steps:,} steps have been made; give a higher `max_steps`")

    def _enter(self, level: Level, place: int) -> None:
        level.block = place
        level.at, level.end = self.program.instructions(level.blocks[place])

    def branch(self, step: Step, slot: str) -> None:
        """Go on with the block that a branch names: in its own list of blocks, or in one around it."""
        target, name = step.code.branches.get(slot, (-1, ""))
        if target < 0:
            missing = f"`{slot}` names `{name}`, which is no block in reach" if name else f"`{slot}` names no block"
            raise SimulationError(missing)
        self._leave(step, target)

    def loop(self, step: Step, again: Callable[[], bool]) -> None:
        """Execute the blocks nested in an instruction for as long as `again` begins an iteration."""
        if again():
            self._push(step.frame, step.code.blocks, again)

    def leave_loop(self, step: Step) -> None:
        """Leave the innermost loop."""
        if self.levels[-1].again is None:
            raise SimulationError("there is no loop to leave")
        self._leave(step, "loop")

    def leave_function(self, step: Step) -> None:
        """Return from the function."""
        self._leave(step, "function")

    def leave_program(self, step: Step) -> None:
        """End the program."""
        self._leave(step, "program")

    def _leave(self, step: Step, way: Way) -> None:
        """Leave a block, when all engines that leave it by an instruction of their own have come to theirs.

        In lowered modules each engine has its own counters and its own branches; what stands behind the branch of one
        engine is still to be executed for the others.
        """
        level, engine = self.levels[-1], step.code.engine
        if level.left or (engine in STREAMS and self._others_leave(level, engine)):
            level.left[engine] = way
            return
        self._go(way)

    def _others_leave(self, level: Level, engine: str) -> bool:
        """Tell whether an instruction of another engine further on in the block leaves it."""
        return any(
            row >= level.at and other != engine for row, other in self.program.leaving(level.blocks[level.block])
        )

    def _is_behind(self, level: Level) -> bool:
        """Pass by what stands behind the branch of its engine; at the end of the block go where all engines go."""
        if level.at < level.end:
            engine = self.program.word("instructions", "engine", level.at)
            if engine not in STREAMS:
                first = next(iter(level.left))
                where: dict[str, Any] = {**self._where(level.at), "step": self.steps + 1}
                raise SimulationError(
                    f"it is assigned to no single engine (`{engine or 'none'}`), and stands where `{first}` has left "
                    "the block and other engines have not",
                    **where,
                )
            if engine in level.left:
                level.at += 1
            return engine in level.left
        ways = dict.fromkeys(level.left.values())
        if len(ways) > 1:
            spelled = ", ".join(f"`{engine}` {self._spelled(way)}" for engine, way in level.left.items())
            raise SimulationError(f"engines part ways, which is not modelled: {spelled}", **self._where(level.end - 1))
        self._go(next(iter(ways)))
        return True

    def _spelled(self, way: Way) -> str:
        return f"goes to `{self.program.text('blocks', way)}`" if isinstance(way, int) else f"leaves the {way}"

    def _go(self, way: Way) -> None:
        """Leave the block that is being executed."""
        self.levels[-1].left = {}
        if way == "program":
            self.levels.clear()
        elif way == "loop":
            self.levels.pop()
        elif way == "function":
            while self.levels[-1].again is not None:
                self.levels.pop()
            self.levels.pop()
        else:
            while self.levels[-1].again is not None and way not in self.levels[-1].blocks:
                self.levels.pop()
            level = self.levels[-1]
            if way not in level.blocks:
                raise SimulationError(f"`{self.program.text('blocks', way)}` is a block of another function")
            self._enter(level, level.blocks.index(way))

    def call(self, step: Step, *, positional: bool) -> None:
        """Execute a function: a kernel at its call-site, or a called function.

        Parameters
        ----------
        step
            The call.
        positional
            Whether parameters without an entry bind to operands (rule N4), and storage is made for each call-site
            (rule N8), as for kernels.
        """
        chained = (*step.frame.chain, step.code.row)
        frame = self._frames.get(chained)
        if frame is None:
            callee, memories, registers = bind(self, step, positional=positional)
            if callee in step.frame.kernels:
                names = " -> ".join(self.program.text("functions", f) for f in [*reversed(step.frame.kernels), callee])
                raise SimulationError(f"the function calls itself: {names}")
            storage = None if positional else self._statics.setdefault(callee, ({}, {}))
            frame = Frame(
                self.program, callee, chained, step.frame, memories, registers, locals_=storage, shard_id=self.shard_id
            )
            self._frames[chained] = frame
        self._push(frame, self.program.blocks(frame.function), None)

    # -- memory -------------------------------------------------------------------------------------------------------

    def touch(self, frame: Frame, location: int) -> Memory:
        """Return the memory of a location, after looking at what it may share bytes with."""
        if self._aliased is None:
            self._find_aliases()
        assert self._aliased is not None
        if location in self._may_alias:
            met = self._may_alias[location]
            choice = self.readings.get("may_alias")
            if choice is None:
                raise SimulationError(f'undecided: {met}; choose `readings={{\'may_alias\': "separate" or "shared"}}`')
        return frame.memory(self._aliased.get(location, location))

    def _find_aliases(self) -> None:
        """Find the locations that are the same bytes: edges of kind 3, and those of kind 1 where they are shared."""
        program = self.program
        parent: dict[int, int] = {}

        def root(row: int) -> int:
            while parent.get(row, row) != row:
                row = parent[row]
            return row

        table = program.ir.tables["aliases"]
        mine = np.flatnonzero(program.column("aliases", "module_id") == program.module_id) if len(table) else []
        for number in mine:
            one, other = (int(program.column("aliases", c)[number]) for c in ("location_id", "target_location_id"))
            kind = program.integer("aliases", "kind", int(number))
            if other < 0 or kind == 0:
                continue
            if kind != 3 and self.readings.get("may_alias") != "shared":
                names = [program.placement(row).name for row in (one, other)]
                for row in (one, other):
                    self._may_alias[row] = f"`{names[0]}` may share its bytes with `{names[1]}`"
                continue
            sizes = [p.partitions * p.pitch for p in map(program.placement, (one, other))]
            if sizes[0] != sizes[1]:
                names = [program.placement(row).name for row in (one, other)]
                raise SimulationError(f"`{names[0]}` and `{names[1]}` alias each other and differ in size: {sizes}")
            first, second = sorted((root(one), root(other)))
            parent[second] = first
        self._aliased = {row: root(row) for row in parent if root(row) != row}

    # -- what is watched ----------------------------------------------------------------------------------------------

    def count_read(self, access: Access) -> None:
        """Note that elements are read."""
        if self.trace is not None:
            self.trace.bytes_read += access.count * access.dtype.size

    def count_written(self, access: Access, values: Array) -> None:
        """Note that elements have been written."""
        if self.trace is not None:
            self.trace.written(access, values)

    def check_values(self, step: Step, operand: Operand, values: Array) -> None:
        """Refuse a NaN, when that is wanted."""
        if self.nan_raises and operand.dtype.kind == "float":
            nan = np.isnan(values)
            if nan.any():
                place = np.argwhere(nan)[0].tolist()
                raise SimulationError(f"a NaN is written to `{operand.code.title}`, at {place} of the access")

    def content(self, memory: Memory) -> Array:
        """Return a copy of a location's content, in dtype and shape of its set; unwritten bytes have all bits set."""
        return shaped(self.program, memory.location, memory.data.copy())


def held_dtype(program: Program, location: int) -> Dtype:
    """Return the element type of a location: that of its set."""
    placement = program.placement(location)
    try:
        return dtype(program.tensor_set(placement.set).dtype)
    except SimulationError as error:
        raise SimulationError(f"`{placement.name}`: {error.reason}") from None


def shaped(program: Program, location: int, data: Array) -> Array:
    """Return bytes of a location as elements of its set's dtype and shape; of other extent, partition by partition."""
    placement = program.placement(location)
    owner = program.tensor_set(placement.set)
    held = held_dtype(program, location)
    if data.size % held.size or placement.pitch % held.size:
        raise SimulationError(f"`{placement.name}` has no whole number of `{held.name}` elements")
    values = data.view(held.numpy)
    fits = bool(owner.shape) and math.prod(owner.shape) == values.size
    return values.reshape(owner.shape if fits else (placement.partitions, placement.pitch // held.size))
