"""Inlining of NKI kernels: which call-sites, in which order what is checked, and what is removed.

The order of checks, each over the whole module before the next, the first error being the one reported:

1. the callee of every call-site of an ordinary function (N4, R4);
2. cycles among the functions that call-sites reach, whether or not the gate passes (N1);
3. the size (O6);
4. per call-site that passes the gate, in program order: the checks of `binding.check_call_site`;
5. per distinct callee, in the order of its first such call-site: canonicalisation (N3), which is also where
   what is not supported yet is refused, in this order: a call-site inside the callee, several blocks, then
   (after unrolling) a `Return` before the end, a branch to the entry block; after that unresolved names (R5);
6. per call-site in program order: `scratchpad_base`, `scratchpad_unallocated`, `unknown_arch`, `sb_overflow`.
"""

from typing import Any

from tests.oracle.arch import capacity_of
from tests.oracle.binding import Site, check_call_site, sb_base, sb_scratchpad
from tests.oracle.canonical import Canonical, canonicalise, surviving, unrolled_rows
from tests.oracle.edit import taken_names
from tests.oracle.graph import Function, Instruction, Module, Ref
from tests.oracle.names import call_sites, find_callees, kernel_functions, ordinary_functions
from tests.oracle.outcome import Diagnostic, Outcome, PassFailure, Provenance, same_document
from tests.oracle.resolve import CALLEE_KEYS, load
from tests.oracle.splicing import splice
from tests.oracle.unrolling import check_size

SKIPPED = (
    "Skip lowering {} because the allocation status of the kernel is not consistent "
    "with the current location of the pass"
)


def run_inline(
    doc: dict[str, Any],
    *,
    allocated: bool | None = None,
    allocated_key: str = "is_allocated",
    shard_id: int = 0,
    max_instructions: int = 25_000_000,
) -> Outcome:
    """N1 to N19 on one module."""
    module = load(doc)
    try:
        diagnostics = inline(module, Gate(allocated, allocated_key), shard_id, max_instructions)
    except PassFailure as failure:
        return Outcome("failed", doc, [failure.diagnostic], provenance_of(load(doc)))
    after = module.render()
    status = "unchanged" if same_document(doc, after) else "changed"
    return Outcome(status, after, diagnostics, provenance_of(module))


def provenance_of(module: Module) -> list[Provenance]:
    """N16: one record per instruction row in document order."""
    return [row.provenance for function in module.all_functions for row in function.instructions()]


class Gate:
    """N2: which call-sites the pass takes at its position."""

    def __init__(self, allocated: bool | None, key: str) -> None:
        self.allocated = allocated
        self.key = key

    def recorded(self, call_site: Instruction) -> bool | None:
        """A status that stands on the call-site wins over what the callee says."""
        written = call_site.obj.get(self.key)
        return written if isinstance(written, bool) else None

    def status(self, call_site: Instruction, callee: Function) -> bool:
        recorded = self.recorded(call_site)
        if recorded is not None:
            return recorded
        return any(each.obj.get("allocated") and each.memory in ("SB", "PSUM") for each in callee.locations)

    def passes(self, status: bool) -> bool:
        return self.allocated is None or status == self.allocated


def inline(module: Module, gate: Gate, shard_id: int, max_instructions: int) -> list[Diagnostic]:
    """All checks, then the change (O9)."""
    diagnostics: list[Diagnostic] = []
    sites: list[Site] = []
    for function in ordinary_functions(module):
        for call_site in call_sites(function):
            site = site_of(module, gate, function, call_site)
            if site is None:
                diagnostics.append(skipped(function, call_site))
            else:
                sites.append(site)
    check_cycles(module)
    removed = removed_functions(module, sites, shard_id)
    check_size(predicted_rows(module, sites, removed, shard_id), max_instructions)
    for site in sites:
        check_call_site(site)
    bodies: dict[Function, Canonical] = {}
    for site in sites:
        if site.callee not in bodies:
            bodies[site.callee] = canonicalise(module, site.callee, shard_id)
    for site in sites:
        check_memory(module, gate, site, bodies[site.callee])
    for callee, body in bodies.items():
        diagnostics += outputs_not_written(callee, body)

    for function in ordinary_functions(module):
        own = [site for site in sites if site.caller is function]
        if own:
            splice(function, own, bodies, taken_names(function))
    for function in removed:
        module.remove(function)
    return diagnostics


def site_of(module: Module, gate: Gate, function: Function, call_site: Instruction) -> Site | None:
    """The call-site with its callee; None when the gate skips it (N2)."""
    recorded = gate.recorded(call_site)
    if recorded is not None and not gate.passes(recorded):
        return None
    where = {"function": function.name, "block": call_site.block.name, "instruction": call_site.name}
    func = call_site.obj.get("func")
    candidates = find_callees(module, func.raw) if isinstance(func, Ref) else []
    if not candidates:
        raise PassFailure("no_callee", "NKI Kernel Instruction does not have a valid function", **where)
    if len(candidates) > 1:
        raise PassFailure("ambiguous_callee", f"{len(candidates)} functions are named `{func.raw}`", **where)
    if not gate.passes(gate.status(call_site, candidates[0])):
        return None
    return Site(function, call_site, candidates[0])


def skipped(function: Function, call_site: Instruction) -> Diagnostic:
    return Diagnostic(
        "note",
        "call_site_skipped",
        SKIPPED.format(call_site.name),
        function=function.name,
        block=call_site.block.name,
        instruction=call_site.name,
    )


def callees_of(function: Function) -> list[Function]:
    """The functions that the call-sites of a function name, in program order."""
    named = [call_site.obj.get("func") for call_site in call_sites(function)]
    return [ref.target for ref in named if isinstance(ref, Ref) and isinstance(ref.target, Function)]


def check_cycles(module: Module) -> None:
    """N1: walk from the ordinary functions in program order; a cycle is named from where it was met first."""
    finished: set[Function] = set()
    for start in ordinary_functions(module):
        if start in finished:
            continue
        path = [start]
        ahead = [iter(callees_of(start))]
        while path:
            callee = next(ahead[-1], None)
            if callee is None:
                finished.add(path.pop())
                ahead.pop()
            elif callee in path:
                cycle = [*path[path.index(callee) :], callee]
                names = " -> ".join(str(function.name) for function in cycle)
                raise PassFailure("recursive_kernel", f"kernel functions call each other: {names}")
            elif callee not in finished:
                path.append(callee)
                ahead.append(iter(callees_of(callee)))


def removed_functions(module: Module, sites: list[Site], shard_id: int) -> list[Function]:
    """N15: expanded kernel functions that no call that stays, of whatever function stays, names."""
    kernels = kernel_functions(module)
    expanded = {site.instruction: surviving(site.callee.blocks, shard_id) for site in sites}
    candidates = [function for function in kernels if any(site.callee is function for site in sites)]
    staying = [function for function in module.all_functions if function not in candidates]
    while True:
        named = [callee for function in staying for callee in remaining_callees(function, expanded)]
        rescued = [function for function in candidates if function in named]
        if not rescued:
            return candidates
        candidates = [function for function in candidates if function not in rescued]
        staying += rescued


def remaining_callees(function: Function, expanded: dict[Instruction, list[Instruction]]) -> list[Any]:
    """What the call-sites and `Call`s of a function name, bodies in the place of expanded call-sites."""
    found: list[Any] = []
    for instruction in function.instructions():
        for each in expanded.get(instruction, [instruction]):
            ref = each.obj.get(CALLEE_KEYS.get(each.opcode, ""))
            if isinstance(ref, Ref):
                found.append(ref.target)
    return found


def predicted_rows(module: Module, sites: list[Site], removed: list[Function], shard_id: int) -> int:
    """O6: all rows after the pass, and each unrolled body once; the `_start` and `_done` NoOps left out."""
    rows = 0
    for function in module.all_functions:
        if function not in removed:
            rows += len(list(function.instructions()))
    for site in sites:
        rows += unrolled_rows(site.callee, shard_id, without_return=True) - 1
    distinct: list[Function] = []
    for site in sites:
        if site.callee not in distinct:
            distinct.append(site.callee)
            rows += unrolled_rows(site.callee, shard_id, without_return=False)
    return rows


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
