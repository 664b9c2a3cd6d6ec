"""What a call-site of a library kernel asks for, without its name and place: equal calls have one body."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MOST_IN_A_BODY = 250_000
"""The most instructions of one body: kernels make some ten thousand in a second."""


@dataclass(frozen=True, slots=True)
class Argument:
    """An input or output: storage of the caller, and the part of it that the call-site names.

    Parameters
    ----------
    name
        The name of the parameter in the body: ``in0``, ``in1``, ..., ``out0``, ...
    shape
        The logical shape: that of `srcs_shape` or `dsts_shape`, else the nums of the access pattern.
    dtype
        Type of the elements.
    memory
        Memory type of the location: ``"DRAM"``, ``"SB"``, ``"PSUM"``, ...
    partitions, bytes
        The location's `dims`: partitions, and bytes of each.
    base
        The location's first partition.
    pattern, offset
        The access: pairs of step and num, and the first element; in elements of `dtype`.
    shares
        The name of the first argument that is in the same location; its own name if there is none before it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    memory: str
    partitions: int
    bytes: int
    base: int
    pattern: tuple[tuple[int, int], ...]
    offset: int
    shares: str

    @property
    def on_chip(self) -> bool:
        """Whether it is in SBUF or PSUM, where engines reach it without DMA."""
        return self.memory in ("SB", "PSUM")


@dataclass(frozen=True, slots=True)
class Pad:
    """A scratchpad that a call-site brings.

    Parameters
    ----------
    partitions, bytes
        Its size: partitions, and bytes of each.
    bank, addr
        Where it is: PSUM bank, and byte in the partition. Those of an SB scratchpad are not known to the body, whose
        addresses count from its begin.
    allocated
        Whether its place is final.
    """

    partitions: int
    bytes: int
    bank: int = 0
    addr: int = 0
    allocated: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """What a kernel is made for.

    Parameters
    ----------
    kernel_name
        The kernel.
    inputs, outputs
        The arguments in order, scratchpads left out.
    members
        The op-specific members of the call-site.
    arch
        The module's architecture; None where it says none.
    post_coloring, sb_allocation
        The flags of the pass (rule B4).
    sb_pad, psum_pads
        The scratchpads.
    limit
        The most instructions that the body may have (rule O6).
    """

    kernel_name: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    members: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arch: str | None = None
    post_coloring: bool = True
    sb_allocation: bool = False
    sb_pad: Pad | None = None
    psum_pads: tuple[Pad, ...] = ()
    limit: int = MOST_IN_A_BODY

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Inputs, then outputs."""
        return (*self.inputs, *self.outputs)
