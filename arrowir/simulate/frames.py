"""Frames: the storage that a function runs on, and the values of expressions there.

A call-site of a kernel (`NKIKernel`) is executed as if the kernel had been inlined: parameters are the caller's own
locations and registers, and all else of the kernel's storage exists once for each call-site, where it keeps its content
from one execution of the call-site to the next. A function that is called (`Call`) has its storage once, whoever calls.
"""

from collections.abc import Sequence
from typing import Any

from arrowir import vocabulary as vocab
from arrowir.diagnostics import SimulationError
from arrowir.simulate.formulas import formula
from arrowir.simulate.memory import Access, Memory
from arrowir.simulate.program import FLAT_KINDS, PARTITIONED_KINDS, Program, Reference

Storage = dict[int, Memory]

_LARGEST = 1 << 34
"""Bytes that a location may have."""


class Register:
    """A register and the integer that it holds."""

    __slots__ = ("name", "value")

    def __init__(self, name: str) -> None:
        self.name = name
        self.value: int | None = None

    def read(self) -> int:
        """Return what it holds.

        Raises
        ------
        SimulationError
            If it was never written.
        """
        if self.value is None:
            raise SimulationError(f"register `{self.name}` is read and was never written")
        return self.value


class Frame:
    """The storage of one function as one call-site sees it.

    Parameters
    ----------
    program
        The module.
    function
        The function.
    chain
        The call-sites through which it is reached, outermost first.
    caller
        The frame of the caller.
    memories, registers
        What its parameters are bound to.
    locals_
        Its own storage, when that is there already.
    shard_id
        The value of the shard in expressions.
    """

    def __init__(
        self,
        program: Program,
        function: int,
        chain: tuple[int, ...] = (),
        caller: "Frame | None" = None,
        memories: Storage | None = None,
        registers: dict[int, Register] | None = None,
        *,
        locals_: "tuple[Storage, dict[int, Register]] | None" = None,
        shard_id: int = 0,
    ) -> None:
        self.program, self.function, self.chain, self.caller = program, function, chain, caller
        self.shard_id = shard_id
        self._memories = memories or {}
        self._registers = registers or {}
        self._locals = locals_ if locals_ is not None else ({}, {})
        self.axes: dict[int, int] = {}
        """Value of each loop axis, by its row."""
        self.accesses: dict[int, Access] = {}
        """Accesses that never change, by row of the operand."""
        self.moving: dict[tuple[int, int], Access] = {}
        """Accesses that change, by row of the operand and offset."""
        self.overlaps: dict[tuple[int, int], bool] = {}

    @property
    def kernels(self) -> list[int]:
        """The functions around it, itself included."""
        found, at = [self.function], self.caller
        while at is not None:
            found.append(at.function)
            at = at.caller
        return found

    def memory(self, location: int) -> Memory:
        """Return the memory of a location."""
        found = self._memories.get(location) or self._locals[0].get(location)
        return found if found is not None else self._make(location)

    def _make(self, location: int) -> Memory:
        placement = self.program.placement(location)
        if placement.function != self.function:
            frame: Frame | None = self
            while frame is not None and frame.function != placement.function:
                frame = frame.caller
            if frame is None:
                owner = self.program.text("functions", placement.function)
                raise SimulationError(f"`{placement.name}` is storage of `{owner}`, which is not being executed")
            return frame.memory(location)
        if placement.kind not in FLAT_KINDS | PARTITIONED_KINDS:
            raise SimulationError(f"`{placement.name}` is of the type `{placement.kind}`, which is not modelled")
        if self.program.tensor_set(placement.set).kind == vocab.KIND_POINTER:
            raise SimulationError(f"`{placement.name}` holds a pointer, which is not modelled")
        if placement.partitions * placement.pitch > _LARGEST:
            size = placement.partitions * placement.pitch
            raise SimulationError(f"`{placement.name}` has {size:,} bytes; the simulator holds {_LARGEST:,} at most")
        made = Memory(
            placement.name,
            placement.partitions,
            placement.pitch,
            flat=placement.kind in FLAT_KINDS,
            base=placement.base,
            location=location,
        )
        self._locals[0][location] = made
        return made

    @property
    def touched(self) -> list[Memory]:
        """The memories that there are, parameters included."""
        return [*self._memories.values(), *self._locals[0].values()]

    def register(self, row: int) -> Register:
        """Return a register."""
        found = self._registers.get(row) or self._locals[1].get(row)
        if found is None:
            found = self._locals[1][row] = Register(self.program.text("registers", row))
        return found

    def evaluate(self, value: Any, references: Sequence[Reference]) -> int:
        """Return the value of an expression, or of a plain integer.

        Raises
        ------
        SimulationError
            If it cannot be evaluated, or leaves 64 bits.
        """
        return value if type(value) is int else formula(value, references)(self)
