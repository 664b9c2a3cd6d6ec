"""Inlining of NKI kernels: in which order what is checked, what is made canonical, and what is changed.

The order of checks, each over the whole module before the next, the first error being the one reported.
Call-sites are those of ordinary functions and of the functions that are expanded, in file order.

1. the callee of every call-site (N4, R4);
2. cycles among the functions that call-sites reach, whether or not the gate passes (N1);
3. the size (O6);
4. per call-site that passes the gate, in file order: the checks of `binding.check_call_site`;
5. per function that is expanded, after those that it calls itself: the memory of its own call-sites, then
   canonicalisation (N3), at the end of which unresolved names fail (R5);
6. per call-site of the ordinary functions: `scratchpad_base`, `scratchpad_unallocated`, `unknown_arch`,
   `sb_overflow`.
"""

from typing import Any

from tests.oracle.arch import capacity_of
from tests.oracle.binding import Site, check_call_site, sb_base, sb_scratchpad
from tests.oracle.call_sites import Calls, Gate, check_cycles, find_calls
from tests.oracle.canonical import Canonical, canonicalise
from tests.oracle.graph import Function, Module
from tests.oracle.outcome import Diagnostic, Outcome, PassFailure, Provenance, same_document
from tests.oracle.resolve import load
from tests.oracle.sizes import predicted_rows, removed_functions
from tests.oracle.splicing import splice
from tests.oracle.unrolling import check_size


def run_inline(
    doc: dict[str, Any],
    *,
    allocated: bool | None = None,
    allocated_key: str = "is_allocated",
    shard_id: int = 0,
    assume_finite: bool = False,
    max_instructions: int = 25_000_000,
) -> Outcome:
    """N1 to N20 on one module."""
    module = load(doc)
    try:
        inlining = Inlining(module, Gate(allocated, allocated_key), shard_id, assume_finite)
        diagnostics = inlining.run(max_instructions)
    except PassFailure as failure:
        return Outcome("failed", doc, [failure.diagnostic], provenance_of(load(doc)))
    after = module.render()
    status = "unchanged" if same_document(doc, after) else "changed"
    return Outcome(status, after, diagnostics, provenance_of(module))


def provenance_of(module: Module) -> list[Provenance]:
    """N16: one record per instruction row in document order."""
    return [row.provenance for function in module.all_functions for row in function.instructions()]


class Inlining:
    """One module on its way."""

    def __init__(self, module: Module, gate: Gate, shard_id: int, assume_finite: bool) -> None:
        self.module = module
        self.gate = gate
        self.shard_id = shard_id
        self.assume_finite = assume_finite
        self.calls: Calls = find_calls(module, gate)
        self.bodies: dict[Function, Canonical] = {}

    def run(self, max_instructions: int) -> list[Diagnostic]:
        """All checks, then the change (O9)."""
        calls, bodies = self.calls, self.bodies
        check_cycles(calls.outermost)
        removed = removed_functions(self.module, calls, self.shard_id)
        if calls.all_sites:  # O6: else nothing is made
            check_size(predicted_rows(self.module, calls, removed, self.shard_id), max_instructions)
        for site in calls.all_sites:
            check_call_site(site)
        for callee in calls.callees():
            bodies[callee] = canonicalise(
                self.module, callee, self.shard_id, self.expand_inner_call_sites, assume_finite=self.assume_finite
            )
        for function in calls.outermost:
            self.check_memory(calls.sites[function])
        diagnostics = list(calls.skipped)
        for callee, body in bodies.items():
            diagnostics += outputs_not_written(callee, body)
            if body.is_propagated:
                diagnostics.append(Diagnostic("note", "constants_propagated", "", function=callee.name))

        for function in calls.outermost:
            self.expand(function, calls.sites[function])
        for function in removed:
            self.module.remove(function)
        return diagnostics

    def expand(self, function: Function, sites: list[Site]) -> None:
        if sites:
            splice(function, sites, self.bodies)

    def check_memory(self, sites: list[Site]) -> None:
        """N7 and N8, for the call-sites of one function."""
        for site in sites:
            check_memory(self.module, self.gate, site, self.bodies[site.callee])

    def expand_inner_call_sites(self, function: Function, copy: Function) -> None:
        """N1, N3: what is done to an ordinary function, on the copy of a kernel function."""
        twin = dict(zip(function.instructions(), copy.instructions(), strict=True))
        sites = [Site(copy, twin[site.instruction], site.callee) for site in self.calls.sites[function]]
        for site in sites:
            # It has passed already, on the function itself.
            check_call_site(site)
        self.check_memory(sites)
        self.expand(copy, sites)


def check_memory(module: Module, gate: Gate, site: Site, body: Canonical) -> None:
    """N7 and N8: the scratchpad, and that the rebased SB locations fit."""
    scratchpad = sb_scratchpad(site)
    if scratchpad is not None and scratchpad.number("base") != 0:
        raise site.failure(
            "scratchpad_base",
            f"scratchpad `{scratchpad.name}` begins at partition {scratchpad.number('base')}, not 0",
        )
    uses_sb = any(location.memory == "SB" for location in site.callee.locations)
    is_allocated = gate.status(site.instruction, site.callee)
    if scratchpad is not None and is_allocated and uses_sb and not scratchpad.obj.get("allocated"):
        raise site.failure(
            "scratchpad_unallocated",
            f"scratchpad `{scratchpad.name}` has no address yet, the kernel's memory has",
        )
    base = sb_base(site)
    formals = [body.twin[memory_set] for memory_set in site.sets]
    for memory_set in body.function.sets:
        if memory_set in formals:
            continue
        for location in memory_set.locations:
            if location.memory != "SB":
                continue
            capacity = capacity_of(module.tree.get("arch"))
            end = base + location.number("addr") + location.partition_bytes
            if base + location.number("addr") <= -(2**63):
                raise site.failure("sb_overflow", f"`{location.name}` would begin below what 64 bits hold")
            if end > capacity:
                raise site.failure(
                    "sb_overflow",
                    f"`{location.name}` would end at {base} + {location.number('addr')} + "
                    f"{location.partition_bytes} = {end}, above the {capacity} bytes of a partition",
                )


def outputs_not_written(callee: Function, body: Canonical) -> list[Diagnostic]:
    """N19: output formals that nothing in the canonical body writes."""
    written = body.written()
    return [
        Diagnostic(
            "warning",
            "output_not_written",
            f"`{callee.name}` never writes its output `{formal.name}`",
            function=callee.name,
            location=formal.name,
        )
        for formal in body.output_formals()
        if formal not in written
    ]
