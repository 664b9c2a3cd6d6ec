"""Inlining of library kernels: every `BIRKernel` becomes the body that the library makes for it (rules B1 to B5).

The stages:

1. find call-sites, and which ask for the same (`inlining.library_calls`);
2. for each distinct call, in program order: the factory makes the kernel, which is driven through its four steps;
3. put the bodies behind the batch, bind parameters (`inlining.library_bodies`), check memory;
4. splice all bodies into all modules in one edit, as those of NKI kernels (`inlining.splice`).
"""

import heapq
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from arrowir import diagnostics as diag
from arrowir import extras, vocabulary
from arrowir.diagnostics import ArrowIRError, Diagnostic
from arrowir.ir import IR
from arrowir.library.call import MOST_IN_A_BODY
from arrowir.library.status import KernelError, Status
from arrowir.passes.base import CHANGED, FAILED, MAX_INSTRUCTIONS, UNCHANGED, Pass, Plan
from arrowir.passes.inlining.binding import check_memory
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_calls import about
from arrowir.passes.inlining.library_bodies import Place, Taken, bind, put_behind
from arrowir.passes.inlining.library_calls import Calls, find_calls, read_call
from arrowir.passes.inlining.splice import Inlining, splice
from arrowir.schema import NULL_INT
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.library.call import Call
    from arrowir.library.kernel import Kernel

STATUS, MEMORY = range(2)
"""Ranks of a call-site's checks: what its kernel says, then its memory."""


@dataclass(frozen=True)
class InlineBirKernel(Pass):
    """Replace every `BIRKernel` call-site by the body that the library's kernel of that name makes for it.

    Call-sites that differ in name and place alone get one body, which is built once. A body's scratch is made again in
    the caller like that of an NKI kernel, with origin `Internal`.

    Parameters
    ----------
    post_coloring
        The pass's position: behind the allocators (True) or before them; kernels are told.
    sb_allocation
        Whether scratch of bodies in SBUF and PSUM gets addresses, from the call-sites' scratchpads. Otherwise it is
        left to an allocator.
    max_instructions
        Limit of the instructions of a module after the pass.

    Examples
    --------
    >>> import arrowir as air
    >>> main = (module := air.build.module()).function()
    >>> x, y = main.input("x", [128, 64]), main.output("y", [128, 64])
    >>> call = main.add("BIRKernel", [x], [y], name="act", kernel_name="Activation")
    >>> air.passes.inline_bir_kernel(module.ir()).ir.instructions["name"].to_list()
    ['act_load0', 'act_act0', 'act_save0']
    """

    name: ClassVar[str] = "inline_bir_kernel"

    post_coloring: bool = True
    sb_allocation: bool = False
    max_instructions: int = MAX_INSTRUCTIONS

    def plan(self, ir: IR, active: Array) -> Plan:
        """Find call-sites, drive the kernels, check memory and sizes."""
        self.log.info("BIR SB coloring allocator is %s", "on" if self.sb_allocation else "off")
        started = time.perf_counter()
        calls = find_calls(ir, active)
        if calls is None:
            self.log.info("Scan BKs time (s): %f", time.perf_counter() - started)
            self.log.info("Lower BKs time (s): %f", 0.0)
            return Plan(np.zeros(len(ir), np.int8))
        if self.log.isEnabledFor(logging.INFO):
            self._log_found(calls)
        self.log.info("Scan BKs time (s): %f", time.perf_counter() - started)

        started = time.perf_counter()
        errors = FirstErrors(len(ir))
        taken = _Driver(self, calls, errors).drive()
        todo = self._prepare(calls, taken, errors)
        status = np.where(errors.failed, FAILED, UNCHANGED).astype(np.int8)
        status[np.unique(calls.sites.module[~errors.failed[calls.sites.module]])] = CHANGED
        if todo is None:
            self.log.info("Lower BKs time (s): %f", time.perf_counter() - started)
        return Plan(status, errors.diagnostics(), (todo, time.perf_counter() - started))

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Splice the bodies."""
        todo, seconds = plan.edit
        started = time.perf_counter()
        made = splice(todo).ir
        self.log.info("Lower BKs time (s): %f", seconds + time.perf_counter() - started)
        return made

    def _log_found(self, calls: Calls) -> None:
        names = calls.ir.tables["instructions"].text().take(calls.sites.row)
        for name, extra in zip(names, calls.ir.tables["instructions"]["extra"][calls.sites.row].tolist(), strict=True):
            members = extras.parse(calls.ir.pools.extras[extra]) if extra >= 0 else {}
            self.log.info("Found InstBIRKernel: [%s]%s", members.get("kernel_name"), name)

    def _prepare(self, calls: Calls, taken: "dict[int, Taken]", errors: FirstErrors) -> Inlining | None:
        """Bind call-sites to bodies, and check their memory; what is left is the edit."""
        ir, sites = calls.ir, calls.sites
        chosen = np.flatnonzero(~errors.failed[sites.module])
        kinds = np.unique(calls.kind[chosen])
        if not len(kinds):
            return None
        library = put_behind(ir, [taken[kind] for kind in kinds.tolist()])
        body = np.searchsorted(kinds, calls.kind[chosen])
        bound, binding = bind(calls, chosen, body, library, self._bases(calls, chosen))
        memory = np.zeros(len(chosen), np.int64), chosen
        check_memory(library.batch, library.bodies, bound, body, binding.base, memory, errors)
        kept = ~errors.failed[bound.module]
        if not kept.any():
            return None
        used, body = np.unique(body[kept], return_inverse=True)
        return Inlining(
            library.batch, bound.pick(kept), binding.pick(kept), library.bodies.pick(used), body.reshape(-1),
            dropped=np.zeros(ir.count("functions"), bool), blocks=np.ones(ir.count("blocks"), bool),
            origin=vocabulary.ORIGIN_INTERNAL,
        )  # fmt: skip

    def _bases(self, calls: Calls, sites: Array) -> Array:
        """Return the address of each call-site's SB scratchpad (rule N7); 0 where scratch gets none."""
        pad = calls.sb_pad(sites)
        addr = calls.ir.tables["locations"]["addr"]
        if not self.sb_allocation or not len(addr):
            return np.zeros(len(sites), np.int64)
        found = np.where(pad >= 0, addr[np.maximum(pad, 0)], 0)
        return np.where(found == NULL_INT, 0, found)


class _Driver:
    """Drives the kernels of distinct calls, in program order; a module stops at its first failing one (rule B2)."""

    def __init__(self, step: InlineBirKernel, calls: Calls, errors: FirstErrors) -> None:
        self.step, self.calls, self.errors = step, calls, errors
        self.taken: dict[int, Taken] = {}
        modules = len(calls.ir)
        self.failed_at = np.full(modules, len(calls.sites), np.int64)
        """The first failing call-site of each module; past all of them where there is none."""
        of = calls.ir.array("instructions", "module_id")
        self.total = np.bincount(of, minlength=modules).astype(np.float64)
        """The instructions of each module, with the bodies made so far."""
        order = np.argsort(calls.kind, kind="stable")
        self.by_kind = np.split(order, np.searchsorted(calls.kind[order], np.arange(1, len(calls.example))))

    def drive(self) -> dict[int, Taken]:
        """Drive what call-sites need whose module has not failed before them; return the bodies by kind."""
        waiting = [(site, kind) for kind, site in enumerate(self.calls.example.tolist())]
        heapq.heapify(waiting)
        while waiting:
            site, kind = heapq.heappop(waiting)
            mine = self.by_kind[kind]
            wanted = mine[(mine >= site) & (mine < self.failed_at[self.calls.sites.module[mine]])]
            if not len(wanted):
                continue
            if wanted[0] > site:  # the module of the first one has failed
                heapq.heappush(waiting, (int(wanted[0]), kind))
                continue
            self._one(kind, mine)
        return self.taken

    def _one(self, kind: int, sites: Array) -> None:
        """Drive the kernel of one call."""
        module, count = np.unique(self.calls.sites.module[sites], return_counts=True)
        room = self.step.max_instructions - self.total[module]
        limit = min(int(max(0, (np.floor(room / count) + 1).max())), MOST_IN_A_BODY)
        flags = {"post_coloring": self.step.post_coloring, "sb_allocation": self.step.sb_allocation, "limit": limit}
        place: Place | None = None
        try:
            call = read_call(self.calls, int(self.calls.example[kind]), **flags)
            place = Place(call)
            status, size = self._driven(call, place)
        except ArrowIRError as error:
            status, size = _refusal(error), 0
        taken = place.taken if place is not None and status.ok else None
        if status.ok and taken is None:
            status = Status(False, "the kernel says that it is done, and has committed no body")
        if taken is not None:
            self.taken[kind] = taken
            size = taken.instructions
        after = self.total[module] + count * (size - 1.0)
        large = after > self.step.max_instructions
        if taken is None and not (large.all() and status.code == "too_many_instructions"):
            self._fail(sites, lambda s: about(self.calls.ir, self.calls.sites, s, _code(status), status.message))
            return
        self.total[module] = after
        predicted = dict(zip(module.tolist(), after.tolist(), strict=True))
        if large.any():
            self._fail(
                sites[np.isin(self.calls.sites.module[sites], module[large])], lambda s: self._too_large(s, predicted)
            )

    def _driven(self, call: "Call", place: Place) -> tuple[Status, int]:
        """Make a kernel and drive it; return its status and how many instructions its body has."""
        from arrowir.library import registry  # not for modules that call no kernel: it takes long to load

        try:
            kernel = registry.create(call)
            return _steps(kernel, place), kernel.instructions
        except ArrowIRError:
            raise
        except Exception as error:  # anybody may write a kernel: the row has to name it
            self.step.log.error("internal error in kernel %s", call.kernel_name, exc_info=error)
            text = f"kernel `{call.kernel_name}` raised {type(error).__name__}: {error}"
            return Status(False, text, "internal_error"), 0

    def _too_large(self, site: int, predicted: dict[int, float]) -> Diagnostic:
        module = int(self.calls.sites.module[site])
        return diag.make(
            "too_many_instructions",
            f"the module would have {int(predicted[module]):,} instructions, more than the "
            f"{self.step.max_instructions:,} allowed; raise `max_instructions`",
            module_id=module,
        )

    def _fail(self, sites: Array, message: Any) -> None:
        module = self.calls.sites.module[sites]
        np.minimum.at(self.failed_at, module, sites)
        self.errors.add(0, STATUS, sites, module, message)


def _refusal(error: ArrowIRError) -> Status:
    """Return the status of a kernel that was refused something, by the builder of its body for instance."""
    return error.status if isinstance(error, KernelError) else Status(False, str(error))


def _code(status: Status) -> str:
    """Return the code of a status; a kernel of a user may write one that is not registered."""
    return status.code if status.code in diag.CODES else "kernel_failed"


def _steps(kernel: "Kernel", place: Place) -> Status:
    """Drive a kernel through its four steps; the last one is taken whatever happens (rule B2)."""
    try:
        kernel.build()
        kernel.commit(place)
        status = cast("Any", kernel.result())
        return status if isinstance(status, Status) else Status(False, f"`result` returned {status!r}, no `Status`")
    except ArrowIRError as error:
        return _refusal(error)
    finally:
        kernel.cleanup()
