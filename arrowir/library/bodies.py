"""The bodies of kernels: what a kernel makes, and what it makes it with."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from arrowir import build
from arrowir.build import Instruction, Tensor
from arrowir.ir import IR
from arrowir.library.call import Argument, Call
from arrowir.library.status import KernelError, too_large
from arrowir.library.views import Grid

Place: TypeAlias = tuple[int, int, int, int]
"""Of a tile: first row, rows, first column, columns."""

ALIGNMENT = 32
"""SB addresses of scratch are multiples of this."""

_STRENGTH = ("Anti", "Output", "Flow")
"""Kinds of edges: of several between two instructions the last one stays."""


@dataclass(frozen=True)
class Body:
    """What a kernel puts in place of a call-site.

    Parameters
    ----------
    ir
        A batch of one module; its first function is the body. Sets of an input kind are the inputs in order, those of
        an output kind the outputs; all others are made again in the caller (rule N8).
    """

    ir: IR


@dataclass
class _Use:
    """Who wrote and read scratch last, by number."""

    writer: int = -1
    readers: list[int] = field(default_factory=list[int])


class BodyBuilder:
    """Makes a body, instruction by instruction: scratch, tiles of the arguments, edges.

    Edges between instructions that use the same scratch are made by itself. Accesses of arguments get none: a kernel
    that writes what it reads later has to say so by `after`.

    Parameters
    ----------
    call
        What the body is made for.

    Examples
    --------
    >>> x = Argument("in0", (128, 4), "float32", "DRAM", 128, 16, 0, ((4, 128), (1, 4)), 0, "in0")
    >>> y = Argument("out0", (128, 4), "float32", "DRAM", 128, 16, 0, ((4, 128), (1, 4)), 0, "out0")
    >>> body = BodyBuilder(Call("twice", (x,), (y,)))
    >>> tile = body.sb("tile", (128, 4))
    >>> load = body.copy(Grid.of(x, 4).tile(0, 128, 0, 4), tile)
    >>> add = body.add("TensorTensor", [tile, tile], [tile], what="add", op="add")
    >>> save = body.copy(tile, Grid.of(y, 4).tile(0, 128, 0, 4))
    >>> [m["dependencies"] for m in (add.members, save.members)]
    [[['load0', 'Flow']], [['add0', 'Flow']]]
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self._module = build.module(arch=call.arch)
        self._function = self._module.function(call.kernel_name)
        self._uses: dict[str, _Use] = {}
        self._names: list[str] = []
        self._counts: dict[str, int] = {}
        self._sb = 0
        self._banks = 0
        for kind, arguments in (("ExternalInput", call.inputs), ("ExternalOutput", call.outputs)):
            for argument in arguments:
                self._parameter(argument, kind)

    def _parameter(self, argument: Argument, kind: str) -> None:
        self._function.tensor(
            argument.name,
            argument.memory,
            argument.shape or (1,),
            argument.dtype,
            kind=kind,
            dims=[argument.partitions, argument.bytes],
        )

    # -- scratch ------------------------------------------------------------------------------------------------------

    def sb(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """Add scratch in SBUF, with an address in the scratchpad if memory is allocated (rule B4).

        Parameters
        ----------
        name
            A name of its own.
        shape
            Partitions, and elements of each.
        dtype
            Type of the elements.
        """
        addr = self._sb if self.call.sb_allocation else None
        tensor = self._function.sb(name, shape, dtype, addr=addr)
        self._sb += -(-tensor.bytes // ALIGNMENT) * ALIGNMENT
        self._uses[name] = _Use()
        return tensor

    def psum(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Tensor:
        """Add scratch in PSUM: a bank of its own, that of the next scratchpad if memory is allocated (rule B4).

        Raises
        ------
        KernelError
            If memory is allocated and there are not so many scratchpads (`scratchpad_too_small`).
        """
        addr, bank = None, 0
        if self.call.sb_allocation:
            if self._banks >= len(self.call.psum_pads):
                raise KernelError(
                    "scratchpad_too_small",
                    f"the body needs more than {len(self.call.psum_pads)} banks of PSUM; add scratchpads, and raise "
                    "`psum_buf_shape`",
                )
            pad = self.call.psum_pads[self._banks]
            addr, bank = pad.addr, pad.bank
        self._banks += 1
        tensor = self._function.psum(name, shape, dtype, addr=addr, bank=bank)
        self._uses[name] = _Use()
        return tensor

    # -- instructions -------------------------------------------------------------------------------------------------

    def add(
        self,
        opcode: str,
        ins: Iterable[Any] = (),
        outs: Iterable[Any] = (),
        *,
        what: str | None = None,
        after: Iterable[Instruction | str] = (),
        **members: Any,
    ) -> Instruction:
        """Add an instruction, with edges on those that used the same scratch before.

        Parameters
        ----------
        opcode
            What it does. The engine is left for the compiler to assign.
        ins, outs
            Operands: scratch (all of it, or a slice), tiles of arguments, numbers.
        what
            What its name begins with; a number follows.
        after
            More edges, of kind Flow.
        members
            Op-specific members.

        Raises
        ------
        KernelError
            If the body would have more instructions than the call allows (`too_many_instructions`).
        """
        sources, targets = list(ins), list(outs)
        number = len(self._names)
        if number >= self.call.limit:  # of a kernel that has not said how many
            raise too_large(f"{number + 1:,} instructions and more", self.call.limit)
        edges: dict[int, str] = {}
        read, written = self._scratch(sources), self._scratch(targets)
        for use in read:
            _note(edges, use.writer, "Flow")
        for use in written:
            for reader in use.readers:
                _note(edges, reader, "Anti")
            _note(edges, use.writer, "Output")
        for use in read:
            use.readers.append(number)
        for use in written:
            use.writer, use.readers = number, []
        name = self._name(what or opcode.lower())
        listed: list[Any] = [(self._names[n], edges[n]) for n in sorted(edges)]
        self._names.append(name)
        return self._function.add(opcode, sources, targets, name=name, after=[*listed, *after], **members)

    def copy(self, source: Any, target: Any) -> Instruction:
        """Add a DMA from one place to another, without a cast: both have one dtype."""
        scratch = isinstance(target, Tensor) or target["memref"] in self._uses
        return self.add("DMACopy", [source], [target], what="load" if scratch else "save", mode="Copy")

    def fetched(self, grid: Grid, place: Place, scratch: Tensor | None) -> dict[str, Any]:
        """Return a tile of an argument where engines reach it: in place, else loaded into scratch.

        Parameters
        ----------
        grid
            The argument.
        place
            First row, rows, first column, columns.
        scratch
            Where to load it; None will do where the argument is used in place.
        """
        if grid.in_place or scratch is None:
            return grid.tile(*place)
        tile = scratch[: place[1], : place[3]]
        self.copy(grid.tile(*place), tile)
        return tile

    def target(self, grid: Grid, place: Place, scratch: Tensor | None) -> dict[str, Any]:
        """Return where to compute a tile of an output: in place, or scratch that `store` saves."""
        return grid.tile(*place) if grid.in_place or scratch is None else scratch[: place[1], : place[3]]

    def store(self, grid: Grid, place: Place, tile: Mapping[str, Any]) -> None:
        """Save a tile that `target` has given, where it is not in place."""
        if not grid.in_place:
            self.copy(tile, grid.tile(*place))

    def finish(self) -> Body:
        """Return the body."""
        return Body(self._module.ir(self.call.kernel_name))

    def _scratch(self, operands: Iterable[Any]) -> list[_Use]:
        names = [o.name if isinstance(o, Tensor) else o.get("memref") for o in operands if isinstance(o, Tensor | dict)]
        return [self._uses[name] for name in dict.fromkeys(names) if name in self._uses]

    def _name(self, what: str) -> str:
        number = self._counts.get(what, 0)
        self._counts[what] = number + 1
        return f"{what}{number}"


def _note(edges: dict[int, str], number: int, kind: str) -> None:
    if number >= 0 and _STRENGTH.index(kind) >= _STRENGTH.index(edges.get(number, "Anti")):
        edges[number] = kind
