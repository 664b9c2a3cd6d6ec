"""Which instruction wrote an element last, and through which call-sites it was reached."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from arrowir.simulate.memory import Access, Memory
from arrowir.simulate.program import Program
from arrowir.simulate.trace import Trace
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.simulate.step import Step


@dataclass(frozen=True, slots=True)
class Writer:
    """An executed instruction that wrote an element."""

    instruction: int
    """Its row."""
    sites: tuple[int, ...]
    """Rows of the call-sites that were being executed, outermost first."""
    step: int


class LastWriter(Trace):
    """Notes which instruction wrote some bytes of a location last.

    Parameters
    ----------
    memory
        The location.
    first, end
        The first byte, and the one behind the last.
    """

    def __init__(self, memory: Memory, first: int, end: int) -> None:
        super().__init__(rows=False)
        self.last: Writer | None = None
        """None when nothing has written them."""
        self._memory, self._first, self._end = memory, first, end
        self._held = b""
        self._written = False

    def begin(self, step: "Step") -> None:
        """Begin with an instruction."""
        self._written = False
        self._held = self._bytes()

    def written(self, access: Access, values: Array) -> None:
        """Look at what an instruction writes."""
        if access.memory is self._memory and not self._written:
            self._written = _covers(access, self._first, self._end)

    def end(self, step: "Step") -> None:
        """Note an instruction that has been executed."""
        held = self._bytes()
        if self._written or held != self._held:
            self.last = Writer(step.code.row, step.frame.chain, step.machine.steps)
        self._written, self._held = False, held

    def _bytes(self) -> bytes:
        return self._memory.data[self._first : self._end].tobytes()


def _covers(access: Access, first: int, end: int) -> bool:
    """Tell whether an access has one of some bytes."""
    if access.steps == (0,):  # elements by number are noted without their places: changes of content tell
        return False
    if access.span[1] <= first or access.span[0] >= end:
        return False
    begin = access.numbers() * access.dtype.size
    return bool(((begin < end) & (begin + access.dtype.size > first)).any())


def call_chain(program: Program, writer: Writer) -> list[str]:
    """Return the names of the call-sites around an instruction, outermost first.

    They are those that were being executed, and those from which inlining has made the rows.
    """
    names: list[str] = []
    for row in (*writer.sites, writer.instruction):
        inlined: list[str] = []
        chain = int(program.column("instructions", "call_chain_id")[row])
        while chain >= 0:
            inlined.append(program.text("call_chains", chain))
            chain = int(program.column("call_chains", "parent_id")[chain])
        names += reversed(inlined)
        if row in writer.sites:
            names.append(program.text("instructions", row))
    return names
