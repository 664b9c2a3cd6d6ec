"""Which call-sites are expanded, and in which order their callees become canonical (N1, N2, R4)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.oracle.binding import Site
from tests.oracle.graph import Function, Instruction, Module, Ref
from tests.oracle.names import call_sites, find_callees, ordinary_functions
from tests.oracle.outcome import Diagnostic, PassFailure

SKIPPED = (
    "Skip lowering {} because the allocation status of the kernel is not consistent "
    "with the current location of the pass"
)


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


@dataclass(eq=False)
class Calls:
    """The call-sites that are looked at: those of ordinary functions and of all functions that are expanded.

    `sites` has those that the gate passes, by the function that they stand in, functions in file order.
    """

    sites: dict[Function, list[Site]]
    skipped: list[Diagnostic]
    outermost: list[Function]

    @property
    def all_sites(self) -> list[Site]:
        return [site for sites in self.sites.values() for site in sites]

    @property
    def by_instruction(self) -> dict[Instruction, Site]:
        return {site.instruction: site for site in self.all_sites}

    def callees(self) -> list[Function]:
        """N1: every function that is expanded, after all functions that it calls itself."""
        finished: dict[Function, None] = {}
        for start in self.outermost:
            path: list[tuple[Function, Iterator[Function]]] = [(start, self.called_in(start))]
            while path:
                function, ahead = path[-1]
                callee = next(ahead, None)
                if callee is not None:
                    if callee not in finished:
                        path.append((callee, self.called_in(callee)))
                    continue
                path.pop()
                if path:
                    finished[function] = None
        return list(finished)

    def called_in(self, function: Function) -> Iterator[Function]:
        return iter([site.callee for site in self.sites.get(function, [])])


def find_calls(module: Module, gate: Gate) -> Calls:
    """N1, N2: look at the call-sites; the first in file order without a callee fails the module (N4, R4)."""
    outermost = ordinary_functions(module)
    found: dict[Function, list[Site | Diagnostic | PassFailure]] = {}
    waiting = list(outermost)
    while waiting:
        function = waiting.pop()
        if function in found:
            continue
        found[function] = [look_at(module, gate, function, each) for each in call_sites(function)]
        waiting += [each.callee for each in found[function] if isinstance(each, Site)]
    sites: dict[Function, list[Site]] = {}
    skipped: list[Diagnostic] = []
    for function in module.all_functions:
        sites[function] = []
        for each in found.get(function, []):
            if isinstance(each, PassFailure):
                raise each
            if isinstance(each, Site):
                sites[function].append(each)
            else:
                skipped.append(each)
    return Calls(sites, skipped, outermost)


def look_at(module: Module, gate: Gate, function: Function, call_site: Instruction) -> Site | Diagnostic | PassFailure:
    """The call-site with its callee, a note when the gate skips it, or why it has no callee."""
    recorded = gate.recorded(call_site)
    if recorded is not None and not gate.passes(recorded):
        return skipped_note(function, call_site)
    where = {"function": function.name, "block": call_site.block.name, "instruction": call_site.name}
    func = call_site.obj.get("func")
    candidates = find_callees(module, func.raw) if isinstance(func, Ref) else []
    if not candidates:
        return PassFailure("no_callee", "NKI Kernel Instruction does not have a valid function", **where)
    if len(candidates) > 1:
        return PassFailure("ambiguous_callee", f"{len(candidates)} functions are named `{func.raw}`", **where)
    if not gate.passes(gate.status(call_site, candidates[0])):
        return skipped_note(function, call_site)
    return Site(function, call_site, candidates[0])


def skipped_note(function: Function, call_site: Instruction) -> Diagnostic:
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


def check_cycles(starts: Iterable[Function]) -> None:
    """N1: walk from the ordinary functions in program order; a cycle is named from where it was met first."""
    finished: set[Function] = set()
    for start in starts:
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
