"""The bodies of library kernels: taken over from kernels, checked, and put behind the batch (rules B2, B4).

Behind the batch they are what canonical copies of NKI kernels are, so that `splice` puts them in place of call-sites
like any other.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arrowir import vocabulary
from arrowir.batches import behind, concat
from arrowir.derived import zeroed
from arrowir.ir import IR
from arrowir.library.call import Call
from arrowir.library.status import KernelError
from arrowir.passes.inlining.binding import Binding, is_parameter, of_kind
from arrowir.passes.inlining.closing import close, shape
from arrowir.passes.inlining.extended import Extended
from arrowir.passes.inlining.kernel_bodies import Bodies
from arrowir.passes.inlining.kernel_calls import Sites
from arrowir.passes.inlining.library_calls import Calls
from arrowir.runs import expand
from arrowir.store import Array, children

if TYPE_CHECKING:
    from arrowir.library.bodies import Body


@dataclass(frozen=True)
class Taken:
    """A body that fits its call-sites."""

    ir: IR
    inputs: Array
    """Sets of the inputs, in order."""
    outputs: Array
    instructions: int
    sb_bytes: int
    """Bytes of SBUF that it needs in a partition, from the begin of the scratchpad on."""


class Place:
    """The place of a call's body: what a kernel commits to. It takes a body over if it fits.

    Parameters
    ----------
    call
        What the body is for.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.taken: Taken | None = None

    def splice(self, body: "Body") -> None:
        """Take a body over.

        Raises
        ------
        KernelError
            If it is not what the call-sites can have.
        """
        ir = body.ir
        if len(ir) != 1 or ir.count("functions") < 1:
            raise KernelError("kernel_failed", "the body is no batch of one module with a function")
        self._check_code(ir)
        owner, kind = ir.tables["sets"]["function_id"], ir.tables["sets"]["kind"]
        inputs, outputs = (
            np.flatnonzero(of_kind(kind, kinds) & (owner == 0))
            for kinds in (vocabulary.INPUT_KINDS, vocabulary.OUTPUT_KINDS)
        )
        for what, rows, given in (("inputs", inputs, self.call.inputs), ("outputs", outputs, self.call.outputs)):
            if len(rows) != len(given):
                raise KernelError(
                    "kernel_failed", f"the body has {len(rows)} {what}, and the call-site has {len(given)}"
                )
        counts = np.bincount(ir.tables["locations"]["set_id"], minlength=ir.count("sets"))
        if (counts[np.concatenate((inputs, outputs))] != 1).any():
            raise KernelError("kernel_failed", "a parameter of the body has not exactly one location")
        sb_bytes = self._check_memory(ir)
        in_function = ir.array("instructions", "function_id") == 0
        self.taken = Taken(ir, inputs, outputs, int(in_function.sum()), sb_bytes)

    def _check_code(self, ir: IR) -> None:
        blocks, opcode = ir.tables["blocks"], ir.tables["instructions"]["opcode"]
        if ((blocks["instruction_id"] >= 0) & (blocks["function_id"] == 0)).any():
            raise KernelError("kernel_failed", "the body has blocks inside an instruction; unroll its loops")
        if np.isin(opcode, (vocabulary.OP_NKI_KERNEL, vocabulary.OP_CALL)).any():
            raise KernelError("kernel_failed", "the body calls functions, which callers do not have")
        unknown = np.flatnonzero(opcode >= len(vocabulary.OPCODES))
        if len(unknown):
            name = ir.tables["instructions"].text()[int(unknown[0])]
            held = ir.pools.codes["opcode"][int(opcode[unknown[0]])]
            raise KernelError(
                "kernel_failed", f"instruction `{name}` of the body has the opcode `{held}`, which there is none of"
            )
        lost = [m for m in ir.messages if m.code == "unresolved_name"]
        if lost:
            raise KernelError("kernel_failed", f"the body names what is not there: {lost[0].message}")

    def _check_memory(self, ir: IR) -> int:
        """Check that scratch is placed as the pass says, and fits into the scratchpads; return the bytes of SBUF."""
        call, locations = self.call, ir.tables["locations"]
        own = ~is_parameter(ir.tables["sets"]["kind"][locations["set_id"]])
        sb, psum = (own & (locations["type"] == kind) for kind in (vocabulary.MEM_SB, vocabulary.MEM_PSUM))
        placed = locations["allocated"] == 1
        if (placed[sb | psum] != call.sb_allocation).any():
            wanted = "addresses" if call.sb_allocation else "no addresses"
            raise KernelError("kernel_failed", f"scratch of the body must have {wanted}, as `sb_allocation` says")
        addr, size, partitions = (zeroed(locations[name]) for name in ("addr", "bytes", "partitions"))
        needed = int((addr + size)[sb].max(initial=0))
        if not call.sb_allocation:
            return needed
        if sb.any():
            pad = call.sb_pad
            if pad is None:
                raise KernelError(
                    "scratchpad_too_small",
                    f"the body needs {needed} bytes of SBUF in a partition, and the call-site has no SB scratchpad; "
                    "append one to the outputs and write `sb_buf_shape`",
                )
            lanes = int((zeroed(locations["base"]) + partitions)[sb].max())
            if needed > pad.bytes or lanes > pad.partitions:
                raise KernelError(
                    "scratchpad_too_small",
                    f"the body needs {lanes} partitions of {needed} bytes of SBUF, and the scratchpad has "
                    f"{pad.partitions} of {pad.bytes}",
                )
            if not pad.allocated:
                raise KernelError(
                    "scratchpad_unallocated",
                    "the scratchpad has no address yet, but the body's memory is to have one; allocate the caller "
                    "first",
                )
        self._check_banks(zeroed(locations["bank"])[psum], addr[psum], size[psum])
        return needed

    def _check_banks(self, bank: Array, addr: Array, size: Array) -> None:
        for b, a, s in zip(bank.tolist(), addr.tolist(), size.tolist(), strict=True):
            pads = [p for p in self.call.psum_pads if p.bank == b and p.addr <= a and a + s <= p.addr + p.bytes]
            if not pads:
                raise KernelError(
                    "scratchpad_too_small",
                    f"the body needs {s} bytes at {a} in bank {b} of PSUM, and no PSUM scratchpad has them",
                )
            if not pads[0].allocated:
                raise KernelError("scratchpad_unallocated", "a PSUM scratchpad has no address yet; allocate it first")


@dataclass(frozen=True)
class Library:
    """The batch with the bodies behind it."""

    batch: Extended
    bodies: Bodies
    parameters: list[Array]
    """By body the sets of its parameters, inputs first, as rows of the extended batch."""
    locations: list[Array]
    """The location of each."""


def put_behind(ir: IR, taken: list[Taken]) -> Library:
    """Put bodies behind a batch, in this order."""
    batch = Extended(ir)
    library = concat([t.ir for t in taken])
    first = np.searchsorted(library.tables["functions"]["module_id"], np.arange(len(taken)))
    found = shape(library)
    closed = close(library, first[found.split[first]])
    library = closed.ir
    sets = np.searchsorted(library.tables["sets"]["function_id"], first)
    parameters = [sets[k] + np.concatenate((t.inputs, t.outputs)) for k, t in enumerate(taken)]
    owner = library.tables["locations"]["set_id"]
    locations = [ir.count("locations") + np.searchsorted(owner, rows) for rows in parameters]
    bodies = Bodies.of(library, first, shape(library))
    batch.added = {name: rows for name, rows in behind(ir, library).items() if name != "modules" and len(rows)}
    rows = ir.count("instructions")
    batch.made = rows + np.flatnonzero(closed.made)
    batch.branching = rows + np.flatnonzero(closed.returns)
    bodies.callee += ir.count("functions")
    bodies.start += rows
    bodies.block[bodies.block >= 0] += ir.count("blocks")
    for table, (begin, _) in bodies.windows.items():
        begin += ir.count(table)
    bodies.drop_returns(batch.column("instructions", "opcode"))
    return Library(batch, bodies, [ir.count("sets") + rows for rows in parameters], locations)


def bind(calls: Calls, sites: Array, body: Array, library: Library, base: Array) -> tuple[Sites, Binding]:
    """Bind the parameters of bodies to the operands of call-sites, in order.

    Parameters
    ----------
    calls, sites
        The call-sites, by number.
    body
        The body of each.
    library
        The bodies.
    base
        What each call-site adds to SB addresses.
    """
    ops = calls.operands
    last = (calls.outputs - calls.pads)[ops.site]
    own = ops.named & ~((ops.role == vocabulary.ROLE_OUT) & (ops.place >= last))
    item = np.flatnonzero(own)
    item = item[np.lexsort((item, ops.role[item], ops.site[item]))]  # inputs first
    begin, count = children(ops.site[item], sites)
    sizes = np.array([len(rows) for rows in library.parameters], np.int64)
    assert (sizes[body] == count).all()
    ends = np.cumsum(sizes) - sizes
    at = expand(ends[body], count)
    empty = np.empty(0, np.int64)
    formal = np.concatenate([*library.parameters, empty])[at]
    location = np.concatenate([*library.locations, empty])[at]
    chosen = calls.sites.pick(sites)
    chosen.callee[:] = library.bodies.callee[body]
    chosen.source[:] = -1
    which = np.repeat(np.arange(len(sites)), count)
    return chosen, Binding(which, formal, location, ops.storage[item[expand(begin, count)]], empty, empty, empty, base)
