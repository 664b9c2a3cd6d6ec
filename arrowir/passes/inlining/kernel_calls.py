"""Call-sites of NKI kernels: which there are, which the pass takes, what they ask for (rules N1, N2, N6, N9)."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from arrowir import diagnostics as diag
from arrowir import extras, vocabulary
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.base import whereabouts
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.runs import expand
from arrowir.store import Array, first_of

SKIPPED = (
    "Skip lowering {} because the allocation status of the kernel is not consistent "
    "with the current location of the pass"
)
NO_CALLEE = "NKI Kernel Instruction does not have a valid function"

CALLEE, CYCLE, SIZE, ARGUMENTS, BODY, MEMORY = range(6)
"""The stages in which a module's call-sites are checked, one after the other."""


@dataclass(frozen=True)
class Sites:
    """Call-sites by function and program order: one item each in every array."""

    row: Array
    """The instruction."""
    module: Array
    function: Array
    """The function that it stands in."""
    ordinary: Array
    """Whether that is no kernel function."""
    callee: Array
    """The function that it names, or -1."""
    candidates: Array
    recorded: Array
    """Allocation status written on the call-site: 1, 0, or -1 for none."""
    source: Array
    """Code of the kernel source, or -1 when it is none that is known."""
    sb_pads: Array
    """Number of SB scratchpads: 0 or 1."""
    psum_pads: Array
    predicated: Array

    def pick(self, which: Array) -> "Sites":
        """Return some of the call-sites."""
        return Sites(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    def __len__(self) -> int:
        return len(self.row)


def find_sites(ir: IR, active: Array, allocated_key: str, opcode: int = vocabulary.OP_NKI_KERNEL) -> Sites:
    """Find all call-sites of some modules, in functions of either kind, at any nesting depth."""
    instructions, calls = ir.tables["instructions"], ir.tables["calls"]
    row = np.flatnonzero(instructions["opcode"] == opcode)
    function = ir.array("instructions", "function_id")[row]
    row, function = row[function >= 0], function[function >= 0]
    module = ir.tables["functions"]["module_id"][function]
    mine = active[module]
    row, function, module = row[mine], function[mine], module[mine]
    if (ir.tables["blocks"]["instruction_id"] >= 0).any():  # else rows stand in program order
        order = np.lexsort((ir.array("instructions", "position")[row], function))
        row, function, module = row[order], function[order], module[order]
    callee, candidates = np.full(len(row), -1, np.int64), np.zeros(len(row), np.int64)
    if len(calls):
        at = np.minimum(first_of(calls["instruction_id"], row), len(calls) - 1)
        has = calls["instruction_id"][at] == row
        callee[has], candidates[has] = calls["callee_id"][at[has]], calls["candidates"][at[has]]
    ordinary = ir.array("functions", "is_kernel")[function] == 0
    facts = _facts(ir, instructions["extra"][row], allocated_key)
    return Sites(row, module, function, ordinary, callee, candidates, *facts.T)


def _facts(ir: IR, extra: Array, allocated_key: str) -> Array:
    """Return (recorded, source, sb_pads, psum_pads, predicated) of each call-site, read once per distinct text."""
    distinct, place = np.unique(extra, return_inverse=True)
    found = [_read(extras.parse(ir.pools.extras[i]) if i >= 0 else {}, allocated_key) for i in distinct.tolist()]
    return np.array(found, np.int64).reshape(-1, 5)[place]


def _read(members: dict[str, Any], allocated_key: str) -> tuple[int, int, int, int, int]:
    status = members.get(allocated_key)
    sb_shape, psum_shape = members.get("sb_buf_shape") or [], members.get("psum_buf_shape") or []
    banks = (psum_shape[0] or 0) if isinstance(psum_shape, list) and psum_shape else 0
    return (
        int(status) if isinstance(status, bool) else -1,
        kernel_source(members.get("kernel_source_val")),
        int(isinstance(sb_shape, list) and any(sb_shape)),
        max(0, min(banks, 1 << 40)) if isinstance(banks, int) else 0,
        int(bool(members.get("predicates"))),
    )


def kernel_source(written: object) -> int:
    """Return the code of a `kernel_source_val`; the first when absent or null, -1 when unknown (rule N9)."""
    if written is None:
        return 0
    if isinstance(written, str):
        return vocabulary.KERNEL_SOURCES.code(written)
    known = isinstance(written, int) and not isinstance(written, bool) and 0 <= written < len(vocabulary.KERNEL_SOURCES)
    return int(written) if known else -1  # type: ignore[call-overload]


def allocated_functions(ir: IR) -> Array:
    """Return a mask of the functions that have an allocated SB or PSUM location (rule N2)."""
    locations = ir.tables["locations"]
    on_chip = (locations["type"] == vocabulary.MEM_SB) | (locations["type"] == vocabulary.MEM_PSUM)
    mask = np.zeros(ir.count("functions"), bool)
    mask[ir.array("locations", "function_id")[on_chip & (locations["allocated"] == 1)]] = True
    return mask


@dataclass(frozen=True)
class Choice:
    """What the gate says: which call-sites the pass looks at, and which of them it takes (rules N1, N2)."""

    looked: Sites
    """Those of ordinary functions, and of the functions that call-sites looked at and taken name."""
    sites: Sites
    """Those taken."""
    status: Array
    """Of each one taken whether its kernel counts as allocated."""
    notes: list[Diagnostic]
    """One for each call-site that is skipped."""


def choose(ir: IR, found: Sites, allocated: bool | None, errors: FirstErrors) -> Choice:
    """Put call-sites through the gate, from ordinary functions inwards (rules N1, N2)."""
    known = found.callee >= 0
    status = found.recorded.copy()
    own = known & (found.recorded < 0)
    status[own] = allocated_functions(ir)[found.callee[own]]
    takes = np.ones(len(found), bool) if allocated is None else (status == int(allocated)) | (status < 0)
    seen = _reached(ir, found, takes & known)
    sites, status, takes, known = found.pick(seen), status[seen], takes[seen], known[seen]

    missing = np.flatnonzero(takes & ~known)
    errors.add(CALLEE, 0, missing, sites.module[missing], lambda s: about(ir, sites, s, "no_callee", NO_CALLEE))
    by_status = known & (sites.recorded >= 0) & ~takes
    several = np.flatnonzero((sites.candidates > 1) & ~by_status)
    errors.add(
        CALLEE,
        0,
        several,
        sites.module[several],
        lambda s: about(
            ir,
            sites,
            s,
            "ambiguous_callee",
            f"{sites.candidates[s]} functions are named `{ir.tables['functions'].text()[sites.callee[s]]}`; "
            "give them different names",
        ),
    )
    names = ir.tables["instructions"].text()
    notes = [
        about(ir, sites, s, "call_site_skipped", SKIPPED.format(names[sites.row[s]]))
        for s in np.flatnonzero(~takes).tolist()
    ]
    takes &= known
    return Choice(sites, sites.pick(takes), status[takes], notes)


def _reached(ir: IR, found: Sites, inlined: Array) -> Array:
    """Return a mask of the call-sites in ordinary functions and in the kernels that are inlined there."""
    reached = np.zeros(ir.count("functions"), bool)
    seen = found.ordinary.copy()
    if seen.all():
        return seen
    begin = np.searchsorted(found.function, np.arange(ir.count("functions") + 1))
    reached[found.function[seen]] = True
    at = np.flatnonzero(seen & inlined)
    while len(at):
        new = np.unique(found.callee[at])
        new = new[~reached[new]]
        reached[new] = True
        at = expand(begin[new], begin[new + 1] - begin[new])
        seen[at] = True
        at = at[inlined[at]]
    return seen


def levels(ir: IR, sites: Sites) -> "list[Array]":
    """Return the functions that call-sites name, level by level: each after all that its own call-sites name.

    Functions on a cycle are on no level.
    """
    count = ir.count("functions")
    named = np.zeros(count, bool)
    named[sites.callee] = True
    inner = named[sites.function]
    if not inner.any():
        return [np.flatnonzero(named)]
    caller, callee = sites.function[inner], sites.callee[inner]
    waits = np.bincount(caller, minlength=count)
    order = np.argsort(callee, kind="stable")
    begin = np.searchsorted(callee[order], np.arange(count + 1))
    found = [np.flatnonzero(named & (waits == 0))]
    while len(found[-1]):
        done = found[-1]
        freed = caller[order[expand(begin[done], begin[done + 1] - begin[done])]]
        np.subtract.at(waits, freed, 1)
        freed = np.unique(freed)
        found.append(freed[waits[freed] == 0])
    return found[:-1]


def post_order(ir: IR, sites: Sites) -> Array:
    """Rank functions: each after those that its call-sites name, by the first call-site of an ordinary function.

    Plain Python over the call-sites inside kernels: a walk in depth is one step after the other.
    """
    rank = np.full(ir.count("functions"), -1, np.int64)
    outer = np.flatnonzero(sites.ordinary)
    roots, first = np.unique(sites.callee[outer], return_index=True)
    roots = roots[np.argsort(first, kind="stable")]
    if not np.isin(sites.function, roots).any() or sites.ordinary.all():
        rank[roots] = np.arange(len(roots))
        return rank
    begin = np.searchsorted(sites.function, np.arange(ir.count("functions") + 1)).tolist()
    callee, place = sites.callee.tolist(), {}
    for root in roots.tolist():
        path = [] if root in place else [[root, begin[root]]]
        opened = {root}
        while path:
            function, at = path[-1]
            if at == begin[function + 1]:
                place[function] = len(place)
                path.pop()
                continue
            path[-1][1] += 1
            if callee[at] not in place and callee[at] not in opened:
                opened.add(callee[at])
                path.append([callee[at], begin[callee[at]]])
    rank[list(place)] = list(place.values())
    return rank


def find_cycles(ir: IR, sites: Sites, errors: FirstErrors) -> None:
    """Fail the modules in which call-sites of ordinary functions reach a cycle, in linear time (rule N1)."""
    calls = ir.tables["calls"]
    if not len(calls):
        return
    nki = (ir.tables["instructions"]["opcode"][calls["instruction_id"]] == vocabulary.OP_NKI_KERNEL) & (
        calls["callee_id"] >= 0
    )
    row, callee = calls["instruction_id"][nki], calls["callee_id"][nki]
    caller = ir.array("instructions", "function_id")[row]
    if not np.isin(callee, caller).any():
        return  # no function that is called calls another
    order = np.lexsort((ir.array("instructions", "position")[row], caller))
    begin = np.searchsorted(caller[order], np.arange(ir.count("functions") + 1))
    callees = callee[order]
    finished = np.zeros(ir.count("functions"), bool)
    outer = np.flatnonzero(sites.ordinary)
    starts, first = np.unique(sites.function[outer], return_index=True)
    for function, site in zip(starts.tolist(), outer[first].tolist(), strict=True):
        cycle = _walk(function, begin, callees, finished)
        if cycle:
            names = ir.tables["functions"].text()
            path = " -> ".join(names[f] for f in cycle)
            errors.add(
                CYCLE,
                0,
                np.array([site]),
                sites.module[[site]],
                lambda s, path=path: diag.make(
                    "recursive_kernel",
                    f"kernel functions call each other: {path}; a kernel cannot be inlined into itself",
                    module_id=int(sites.module[s]),
                ),
            )


def _walk(start: int, begin: Array, callees: Array, finished: Array) -> list[int]:
    """Walk depth first without recursion; return the first cycle met, or nothing."""
    if finished[start]:
        return []
    path, place, on_path = [start], [int(begin[start])], {start: 0}
    while path:
        function = path[-1]
        if place[-1] == begin[function + 1]:
            finished[function] = True
            on_path.pop(path.pop())
            place.pop()
            continue
        callee = int(callees[place[-1]])
        place[-1] += 1
        if callee in on_path:
            return [*path[on_path[callee] :], callee]
        if not finished[callee]:
            on_path[callee] = len(path)
            path.append(callee)
            place.append(int(begin[callee]))
    return []


def places_of_checks(ir: IR, sites: Sites) -> tuple[tuple[Array, Array], Array]:
    """Return stage and place of the checks of each call-site's memory, and the place of those of each function's body.

    Those of an inner call-site come with those of the kernel that it stands in, before them; kernels in `post_order`.
    """
    rank = post_order(ir, sites)
    width = np.bincount(sites.function, minlength=1).max(initial=0) + 1
    inner = ~sites.ordinary & (rank[sites.function] >= 0)
    within = np.arange(len(sites)) - np.searchsorted(sites.function, sites.function)
    order = np.where(inner, rank[sites.function] * width + within, np.arange(len(sites)))
    return (np.where(inner, BODY, MEMORY), order), np.maximum(rank, 0) * width + width - 1


def removable(ir: IR, sites: Sites, cloned_calls: Array) -> Array:
    """Return a mask of the kernel functions that go: expanded, and named by no call that stays (rule N15).

    `cloned_calls` are the functions that calls in bodies name: their clones stay in the callers. A kernel function
    that stays keeps all its call-sites.
    """
    goes = np.zeros(ir.count("functions"), bool)
    goes[sites.callee] = True
    goes &= ir.array("functions", "is_kernel") == 1
    goes[cloned_calls] = False
    calls = ir.tables["calls"]
    stays = np.ones(ir.count("instructions"), bool)
    stays[sites.row[sites.ordinary]] = False
    caller, callee = ir.array("calls", "function_id"), calls["callee_id"]
    remaining = stays[calls["instruction_id"]] & (callee >= 0)
    while True:
        named = remaining & ((caller < 0) | ~goes[np.maximum(caller, 0)])
        rescued = np.unique(callee[named & goes[np.maximum(callee, 0)]])
        if not len(rescued):
            return goes
        goes[rescued] = False


def called_by(ir: IR, sites: Sites) -> Array:
    """Return the functions that calls in the callees name, the call-sites that are inlined aside."""
    mask = np.zeros(ir.count("functions") + 1, bool)
    mask[sites.callee] = True
    stays = np.ones(ir.count("instructions"), bool)
    stays[sites.row] = False
    calls = ir.tables["calls"]
    callee = calls["callee_id"]
    return np.unique(callee[mask[ir.array("calls", "function_id")] & (callee >= 0) & stays[calls["instruction_id"]]])


def about(ir: IR, sites: Sites, site: int, code: str, message: str, **more: Any) -> Diagnostic:
    """Make a diagnostic about a call-site."""
    return diag.make(code, message, **whereabouts(ir, int(sites.row[site])), **more)
