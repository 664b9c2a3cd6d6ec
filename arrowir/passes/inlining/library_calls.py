"""Call-sites of library kernels: which there are, which ask for the same, and what that is (rules B1 to B3).

Call-sites that differ in name and place alone get one body. Which do is found with columns, for all of them at once;
what they ask for is then read of one of each kind.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from arrowir import extras, vocabulary
from arrowir.attributes import COMMON
from arrowir.derived import first_of_run
from arrowir.ir import IR
from arrowir.library.call import Argument, Call, Pad
from arrowir.library.status import KernelError
from arrowir.passes.inlining.binding import NOTHING, Operands, Storages, has_sync, operands_of
from arrowir.passes.inlining.kernel_calls import Sites, find_sites
from arrowir.schema import NULL_INT
from arrowir.store import Array

_LOOKED_AT = frozenset(("access_shape",))
"""Members of an operand, beside the columns, that a kernel may do without."""


@dataclass(frozen=True)
class Calls:
    """The call-sites of library kernels in some modules, and what each asks for."""

    ir: IR
    sites: Sites
    operands: Operands
    pads: Array
    """Number of scratchpads of each call-site."""
    outputs: Array
    """Number of outputs of each, scratchpads included."""
    synced: Array
    """Mask of those with a `sync_info` that is more than `{}`."""
    kind: Array
    """Number of what each asks for."""
    example: Array
    """For each kind the first call-site of it."""

    def rows(self, site: int) -> range:
        """Return the operands of a call-site."""
        first, last = np.searchsorted(self.operands.site, [site, site + 1]).tolist()
        return range(first, last)

    def sb_pad(self, site: Array) -> Array:
        """Return the location of the SB scratchpad of call-sites that have one."""
        ops = self.operands
        is_pad = (ops.role == vocabulary.ROLE_OUT) & (ops.place == (self.outputs - self.pads)[ops.site])
        found = np.full(len(self.sites), NOTHING, np.int64)
        at = np.flatnonzero(is_pad & (self.sites.sb_pads[ops.site] == 1))
        found[ops.site[at]] = ops.storage[at]
        return found[site]


def find_calls(ir: IR, active: Array) -> Calls | None:
    """Find the call-sites of every function, kernels included (rule B1), and which are alike; None for none."""
    if not (ir.tables["instructions"]["opcode"] == vocabulary.OP_BIR_KERNEL).any():
        return None
    sites = find_sites(ir, active, "", vocabulary.OP_BIR_KERNEL)
    operands = operands_of(ir, sites, Storages(ir))
    pads = sites.sb_pads + sites.psum_pads
    outputs = np.bincount(operands.site[operands.role == vocabulary.ROLE_OUT], minlength=len(sites))
    synced = has_sync(ir, sites)
    found = Calls(ir, sites, operands, pads, outputs, synced, np.empty(0, np.int64), np.empty(0, np.int64))
    kind, example = _alike(found)
    return Calls(ir, sites, operands, pads, outputs, synced, kind, example)


def _alike(calls: Calls) -> tuple[Array, Array]:
    """Number what call-sites ask for, in the order of the first of each; return that and the first ones."""
    ir, sites, ops = calls.ir, calls.sites, calls.operands
    if not len(sites):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    _, operand_kind = _distinct(_operand_facts(calls))
    number = np.arange(len(ops.site)) - first_of_run(ops.site)
    facts = np.full((len(sites), 3 + int(number.max(initial=-1)) + 1), -1, np.int64)
    facts[:, 0] = ir.tables["instructions"]["extra"][sites.row]
    facts[:, 1] = ir.tables["modules"]["arch"][sites.module]
    facts[:, 2] = calls.synced
    facts[ops.site, 3 + number] = operand_kind
    first, kind = _distinct(facts)
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return rank[kind], first[order]


def _distinct(facts: Array) -> tuple[Array, Array]:
    """Return the first row of each distinct one, and the number of each."""
    _, first, number = np.unique(facts, axis=0, return_index=True, return_inverse=True)
    return first, number.reshape(-1)


def _operand_facts(calls: Calls) -> Array:
    """Return what of each operand a body depends on: one row of integers."""
    ir, ops = calls.ir, calls.operands
    table, locations = ir.tables["operands"], ir.tables["locations"]
    columns = [table[name][ops.row].astype(np.int64) for name in ("role", "kind", "dtype", "offset", "pattern_id")]
    columns += [table[name][ops.row].astype(np.int64) for name in ("extra", "name", "set_name")]
    known = ops.storage >= 0
    at = np.where(known, ops.storage, 0)
    is_out = ops.role == vocabulary.ROLE_OUT
    is_pad = is_out & (ops.place >= (calls.outputs - calls.pads)[ops.site])
    is_sb_pad = is_pad & (ops.place == (calls.outputs - calls.pads)[ops.site]) & (calls.sites.sb_pads[ops.site] == 1)
    columns += [np.minimum(ops.storage, 0), _shares(ops)]
    for name in ("type", "partitions", "bytes", "base", "allocated", "bank", "addr"):
        values = locations[name][at].astype(np.int64) if len(locations) else np.zeros(len(at), np.int64)
        wanted = known & (is_pad if name in ("allocated", "bank", "addr") else True)
        if name in ("bank", "addr"):
            wanted &= ~is_sb_pad
        columns.append(np.where(wanted, values, 0))
    return np.stack(columns, axis=1) if len(ops.row) else np.empty((0, len(columns)), np.int64)


def _shares(ops: Operands) -> Array:
    """Return for each operand the number, within its call-site, of the first one in the same location."""
    number = np.arange(len(ops.site)) - first_of_run(ops.site)
    order = np.lexsort((number, ops.storage, ops.site))
    site, storage = ops.site[order], ops.storage[order]
    begins = np.ones(len(order), bool)
    begins[1:] = (site[1:] != site[:-1]) | (storage[1:] != storage[:-1])
    first = np.empty_like(number)
    if len(order):
        first[order] = number[order][np.flatnonzero(begins)[np.cumsum(begins) - 1]]
    return first


# -- what a call-site asks for ----------------------------------------------------------------------------------------


def read_call(calls: Calls, site: int, **flags: Any) -> Call:
    """Return what a call-site asks for.

    Parameters
    ----------
    calls, site
        The call-site.
    flags
        Flags of the pass, and the limit of instructions, as fields of `Call`.

    Raises
    ------
    KernelError
        If it is none that a kernel can be made for: the first thing that is wrong with it.
    """
    ir, sites = calls.ir, calls.sites
    row = int(sites.row[site])
    number = int(ir.tables["instructions"]["extra"][row])
    members: dict[str, Any] = dict(extras.parse(ir.pools.extras[number])) if number >= 0 else {}
    if calls.synced[site] or sites.predicated[site]:
        what = "sync_info" if calls.synced[site] else "predicates"
        raise KernelError(
            "call_site_not_plain",
            f"the call-site has `{what}`, which its body cannot take over; inline before instructions are synchronised",
        )
    name = members.get("kernel_name")
    if not isinstance(name, str):
        raise KernelError("bad_kernel_option", f"`kernel_name` takes the name of a kernel, got {name!r:.60}")
    for key, count in (("sb_buf_shape", 2), ("psum_buf_shape", 3)):
        sizes = members.get(key) or [0] * count
        if not (isinstance(sizes, list) and len(sizes) == count and all(type(n) is int and n >= 0 for n in sizes)):
            raise KernelError("bad_kernel_option", f"`{key}` takes {count} sizes, got {sizes!r:.60}")
    inputs, outputs, pads = _split(calls, site)
    arch = int(ir.tables["modules"]["arch"][sites.module[site]])
    sb = int(sites.sb_pads[site])
    return Call(
        name,
        tuple(inputs),
        tuple(outputs),
        {key: value for key, value in members.items() if key not in COMMON},
        ir.pools.names[arch] if arch >= 0 else None,
        sb_pad=pads[0] if sb else None,
        psum_pads=tuple(pads[sb:]),
        **flags,
    )


def _split(calls: Calls, site: int) -> tuple[list[Argument], list[Argument], list[Pad]]:
    """Return inputs, outputs and scratchpads."""
    ops, pads, outputs = calls.operands, int(calls.pads[site]), int(calls.outputs[site])
    if outputs < pads:
        raise KernelError(
            "scratchpad_count",
            f"Insufficient number of outputs param, expect {calls.sites.sb_pads[site]} SB buffers and "
            f"{calls.sites.psum_pads[site]} PSUM buffers, but only got {outputs} outputs",
        )
    found: tuple[list[Argument], list[Argument]] = ([], [])
    scratch: list[Pad] = []
    names: dict[int, str] = {}
    for k in calls.rows(site):
        role = int(ops.role[k])
        if role == vocabulary.ROLE_INDIRECTION:
            raise KernelError("not_supported", "the call-site has `indirection_ins`, which kernels do not take")
        if role == vocabulary.ROLE_OUT and ops.place[k] >= outputs - pads:
            scratch.append(_pad(calls, k, len(scratch), bool(calls.sites.sb_pads[site])))
        elif ops.named[k]:
            place = 0 if role == vocabulary.ROLE_IN else 1
            name = f"{'in' if place == 0 else 'out'}{len(found[place])}"
            found[place].append(_argument(calls, k, name, names, _shape(calls, site, place, len(found[place]))))
    return *found, scratch


def _shape(calls: Calls, site: int, place: int, number: int) -> tuple[int, ...] | None:
    """Return a shape of `srcs_shape` or `dsts_shape`, where it is one."""
    extra = int(calls.ir.tables["instructions"]["extra"][calls.sites.row[site]])
    members = extras.parse(calls.ir.pools.extras[extra]) if extra >= 0 else {}
    shapes = members.get(("srcs_shape", "dsts_shape")[place])
    shape = shapes[number] if isinstance(shapes, list) and number < len(shapes) else None
    good = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
    return tuple(shape) if good and shape is not None else None


def _location(calls: Calls, k: int, what: str) -> int:
    """Return the location that an operand names."""
    ir, ops = calls.ir, calls.operands
    storage, row = int(ops.storage[k]), int(ops.row[k])
    if storage == NOTHING:
        table = ir.tables["operands"]
        written = max(int(table["name"][row]), int(table["set_name"][row]))
        name = ir.pools.names[written] if written >= 0 else ""
        raise KernelError("unresolved_name", f"{what} names `{name}`, which is not in the function")
    if storage < 0:
        raise KernelError(
            "parameter_location_count", f"{what} names a set that has not exactly one location; name a location"
        )
    return storage


def _argument(calls: Calls, k: int, name: str, names: dict[int, str], shape: tuple[int, ...] | None) -> Argument:
    ir, row = calls.ir, int(calls.operands.row[k])
    table, locations, codes = ir.tables["operands"], ir.tables["locations"], ir.pools.codes
    at = _location(calls, k, f"`{name}`")
    kind, extra = int(table["kind"][row]), int(table["extra"][row])
    more = set(extras.parse(ir.pools.extras[extra])) - _LOOKED_AT if extra >= 0 else set[str]()
    pattern = int(table["pattern_id"][row])
    if kind != vocabulary.OPERAND_PHYSICAL_AP or pattern < 0 or more & {"dynamic_ap_info", "memref_owner_func"}:
        held = codes["operand_kind"][kind] if kind >= 0 else "none"
        reason = f" with `{'`, `'.join(sorted(more))}`" if more else ""
        raise KernelError(
            "not_supported",
            f"`{name}` is of the kind `{held}`{reason}; kernels take plain accesses (`physical_ap`), as unrolling "
            "makes them",
        )
    pairs = tuple((int(step), int(num)) for step, num in extras.parse(ir.pools.patterns[pattern]))
    shares = names.setdefault(at, name)
    return Argument(
        name,
        tuple(num for _, num in pairs) if shape is None else shape,
        codes["dtype"][int(table["dtype"][row])] if table["dtype"][row] >= 0 else "",
        codes["memory_type"][int(locations["type"][at])] if locations["type"][at] >= 0 else "",
        _or_zero(locations["partitions"][at]),
        _or_zero(locations["bytes"][at]),
        _or_zero(locations["base"][at]),
        pairs,
        _or_zero(table["offset"][row]),
        shares,
    )


def _pad(calls: Calls, k: int, number: int, first_is_sb: bool) -> Pad:
    locations = calls.ir.tables["locations"]
    in_sb = first_is_sb and number == 0
    what = f"the {'SB' if in_sb else 'PSUM'} scratchpad"
    at = _location(calls, k, what)
    expected = vocabulary.MEM_SB if in_sb else vocabulary.MEM_PSUM
    if locations["type"][at] != expected:
        held = calls.ir.pools.codes["memory_type"][int(locations["type"][at])] if locations["type"][at] >= 0 else ""
        raise KernelError("scratchpad_count", f"{what} is of the type `{held}`; the outputs must end in scratchpads")
    name = calls.ir.tables["locations"].text()[at]
    if base := _or_zero(locations["base"][at]):
        raise KernelError("scratchpad_base", f"scratchpad `{name}` begins at partition {base}, not 0")
    return Pad(
        _or_zero(locations["partitions"][at]),
        _or_zero(locations["bytes"][at]),
        0 if in_sb else _or_zero(locations["bank"][at]),
        0 if in_sb else _or_zero(locations["addr"][at]),
        bool(locations["allocated"][at] == 1),
    )


def _or_zero(value: Any) -> int:
    return 0 if value == NULL_INT else int(value)
