"""What the parameters of a kernel are bound to at each call-site (rules N4 to N7).

Every step is made for all call-sites at once. A parameter is a set of the callee; what is bound to it is a *storage*:
a location, written as its id, or a set that has not exactly one location, written as `-2 - id`. `NOTHING` is a name
that did not resolve.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from arrowir import exact, vocabulary
from arrowir.derived import first_of_run, zeroed
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_calls import ARGUMENTS, Sites, about
from arrowir.runs import expand
from arrowir.schema import NULL_INT
from arrowir.store import Array, children, starts

if TYPE_CHECKING:
    from arrowir.passes.inlining.kernel_bodies import Bodies, Extended

NOTHING = -1
_UNBOUND = np.iinfo(np.int64).min


def of_kind(kind: Array, codes: Iterable[int]) -> Array:
    """Tell which sets are of some kinds."""
    table = np.zeros(len(vocabulary.TENSOR_KINDS) + 2, bool)
    table[[code + 1 for code in codes]] = True
    return table.take(kind.astype(np.intp) + 1, mode="clip")


def is_parameter(kind: Array) -> Array:
    """Tell which sets are parameters: of an input or output kind (rule N4)."""
    return of_kind(kind, vocabulary.INPUT_KINDS | vocabulary.OUTPUT_KINDS)


@dataclass(frozen=True)
class Binding:
    """The bindings of all call-sites: one item per call-site and parameter, grouped by call-site."""

    site: Array
    formal: Array
    """The parameter: a set of the callee."""
    formal_location: Array
    actual: Array
    """The location that is bound to it."""
    register_site: Array
    register_formal: Array
    register_actual: Array
    base: Array
    """Per call-site: what is added to SB addresses (rule N7)."""

    def pick(self, kept: Array) -> "Binding":
        """Return the bindings of some call-sites (a mask), which are numbered anew."""
        number = np.cumsum(kept) - 1
        columns = {f.name: getattr(self, f.name) for f in fields(self)}
        for group in (
            ("site", "formal", "formal_location", "actual"),
            ("register_site", "register_formal", "register_actual"),
        ):
            mine = kept[columns[group[0]]]
            columns |= {name: columns[name][mine] for name in group}
            columns[group[0]] = number[columns[group[0]]]
        columns["base"] = self.base[kept]
        return Binding(**columns)


class Storages:
    """The sets and locations of a batch, and which of them stand for one another."""

    def __init__(self, ir: IR) -> None:
        self.ir = ir
        owner = ir.tables["locations"]["set_id"]
        self.count = np.bincount(owner, minlength=ir.count("sets")).astype(np.int64)
        self.first = starts(self.count)[:-1]

    def of(self, location: Array, set_id: Array) -> Array:
        """Return the storage that a location, or else a set, stands for."""
        out = np.where(location >= 0, location, NOTHING).astype(np.int64)
        by_set = np.flatnonzero((location < 0) & (set_id >= 0))
        sets = set_id[by_set]
        out[by_set] = np.where(self.count[sets] == 1, self.first[sets], -2 - sets)
        return out


Place = tuple[Array, Array]
"""Stage and place among its checks, for each call-site, of what is said about its memory."""


def bind(ir: IR, sites: Sites, status: Array, memory: Place, errors: FirstErrors) -> Binding:
    """Bind every parameter of every call-site, making the checks of a call-site in their order.

    `status` says of each call-site whether its kernel counts as allocated.
    """
    storages = Storages(ir)
    fail = _Fail(ir, sites, memory, errors)
    fail.where(
        0,
        np.flatnonzero(sites.source < 0),
        "unknown_kernel_source",
        lambda s: "Unrecognized kernel source encountered.",
    )
    synced = has_sync(ir, sites)
    not_plain = np.flatnonzero(synced | (sites.predicated == 1))
    fail.where(
        1,
        not_plain,
        "call_site_not_plain",
        lambda s: (
            f"the call-site has `{'sync_info' if synced[s] else 'predicates'}`, which its body cannot take over; "
            "inline before instructions are synchronised"
        ),
    )

    site, formal, begin, formals = _parameters(ir, sites)
    bound = np.full(len(site), _UNBOUND, np.int64)
    entries = _entries(ir, sites, storages)
    registers = _bind_entries(ir, sites, storages, entries, bound, begin, formals, fail)

    operands = operands_of(ir, sites, storages)
    pads = sites.sb_pads + sites.psum_pads
    outputs = np.bincount(operands.site[operands.role == vocabulary.ROLE_OUT], minlength=len(sites))
    fail.where(
        3,
        np.flatnonzero(outputs < pads),
        "scratchpad_count",
        lambda s: (
            f"Insufficient number of outputs param, expect {sites.sb_pads[s]} SB buffers and "
            f"{sites.psum_pads[s]} PSUM buffers, but only got {outputs[s]} outputs"
        ),
    )
    place = operands.place
    kind = ir.tables["sets"]["kind"][formal]
    for rank, role, kinds, direction in (
        (4, vocabulary.ROLE_IN, vocabulary.INPUT_KINDS, vocabulary.DIRECTION_IN),
        (5, vocabulary.ROLE_OUT, vocabulary.OUTPUT_KINDS, vocabulary.DIRECTION_OUT),
    ):
        waiting = np.flatnonzero((bound == _UNBOUND) & of_kind(kind, kinds))
        if not len(waiting):
            continue
        own = operands.named & (operands.role == role)
        if role == vocabulary.ROLE_OUT:
            own &= place < (outputs - pads)[operands.site]
        taken = (entries.direction == direction) & (entries.storage != NOTHING)
        own = np.flatnonzero(own)
        named = _pairs_in(operands.site[own], operands.storage[own], entries.site[taken], entries.storage[taken])
        own = own[~named]
        _bind_by_position(ir, sites, bound, site, formal, waiting, operands, own, rank, fail)

    _check_counts(ir, sites, storages, site, formal, bound, fail)
    formal_location = storages.first[formal]
    _check_sizes(ir, sites, site, formal_location, bound, fail)
    base = _sb_base(ir, sites, status, operands, outputs, pads, fail)
    actual = np.where(bound >= 0, bound, 0)
    return Binding(site, formal, formal_location, actual, *registers, base)


class _Fail:
    """Adds errors about call-sites, with the text made when it is wanted."""

    def __init__(self, ir: IR, sites: Sites, memory: Place, errors: FirstErrors) -> None:
        self.ir, self.sites, self.memory, self.errors = ir, sites, memory, errors

    def where(self, rank: int, items: Array, code: str, text: Callable[[int], str], memory: bool = False) -> None:
        """Fail call-sites; `text` makes the message of one."""
        if not len(items):
            return
        items = np.unique(items)
        message = lambda s: about(self.ir, self.sites, s, code, text(s))  # noqa: E731
        stage, order = (self.memory[0][items], self.memory[1][items]) if memory else (ARGUMENTS, None)
        self.errors.add(stage, rank, items, self.sites.module[items], message, order)

    def first(self, rank: int, site: Array, code: Callable[[int], str], text: Callable[[int], str]) -> None:
        """Fail call-sites by failing items: the first of each counts. `site` is -1 for items that do not fail."""
        bad = np.flatnonzero(site >= 0)
        if not len(bad):
            return
        items, place = np.unique(site[bad], return_index=True)
        item = dict(zip(items.tolist(), bad[place].tolist(), strict=True))
        message = lambda s: about(self.ir, self.sites, s, code(item[s]), text(item[s]))  # noqa: E731
        self.errors.add(ARGUMENTS, rank, items, self.sites.module[items], message)


def has_sync(ir: IR, sites: Sites) -> Array:
    """Tell which call-sites have a `sync_info` that is more than `{}` (rule N14)."""
    layout = ir.tables["instructions"].at("sync_layout", sites.row)
    empty = ir.pools.layouts.find("[]")
    return (layout >= 0) & (layout != empty)


def _parameters(ir: IR, sites: Sites) -> tuple[Array, Array, Array, Array]:
    """Return call-site and set of each parameter, where each call-site's begin, and all parameter sets."""
    kind, function = ir.tables["sets"]["kind"], ir.tables["sets"]["function_id"]
    formals = np.flatnonzero(is_parameter(kind))
    first, count = children(function[formals], sites.callee)
    return np.repeat(np.arange(len(sites)), count), formals[expand(first, count)], starts(count), formals


@dataclass(frozen=True)
class _Entries:
    site: Array
    row: Array
    direction: Array
    storage: Array


def _entries(ir: IR, sites: Sites, storages: Storages) -> _Entries:
    """Return the argument map entries of the call-sites, in order."""
    table = ir.tables["call_arguments"]
    first, count = children(table["instruction_id"], sites.row)
    row = expand(first, count)
    storage = storages.of(table.at("actual_location_id", row), table.at("actual_set_id", row))
    return _Entries(np.repeat(np.arange(len(sites)), count), row, table.at("direction", row), storage)


def _bind_entries(
    ir: IR, sites: Sites, storages: Storages, entries: _Entries, bound: Array, begin: Array, formals: Array, fail: _Fail
) -> tuple[Array, Array, Array]:
    """Bind by name: the last entry for a parameter wins, over both maps."""
    table = ir.tables["call_arguments"]
    formal, register = table.at("formal_set_id", entries.row), table.at("formal_register_id", entries.row)
    actual_register = table.at("actual_register_id", entries.row)
    is_set = formal >= 0
    is_set[is_set] = is_parameter(ir.tables["sets"]["kind"][formal[is_set]])
    unknown = ~is_set & (register < 0)
    missing = np.where(is_set, entries.storage == NOTHING, actual_register < 0) & ~unknown
    names = ir.pools.names

    def text(k: int) -> str:
        row = int(entries.row[k])
        side = "func_args" if entries.direction[k] == vocabulary.DIRECTION_IN else "func_outs"
        formal_name = names[table["formal"][row]]
        functions = ir.tables["functions"].text()
        callee, caller = functions[int(sites.callee[entries.site[k]])], functions[int(sites.function[entries.site[k]])]
        if unknown[k]:
            return f"`{side}` names `{formal_name}`, which is no parameter of `{callee}`"
        written = names[ir.array("call_arguments", "actual")[row]]
        return f"`{side}` binds `{formal_name}` to `{written}`, which is not in `{caller}`"

    fail.first(
        2,
        np.where(unknown | missing, entries.site, -1),
        lambda k: "unknown_parameter" if unknown[k] else "unresolved_name",
        text,
    )
    good = is_set & ~missing
    number = np.searchsorted(formals, formal[good])
    own = np.searchsorted(ir.tables["sets"]["function_id"][formals], sites.callee[entries.site[good]])
    bound[begin[entries.site[good]] + number - own] = entries.storage[good]

    good = ~is_set & ~unknown & ~missing
    if not good.any():
        return entries.site[good], register[good], actual_register[good]
    key = np.stack((entries.site[good], register[good], actual_register[good]), axis=1)
    _, last = np.unique(key[::-1, :2], axis=0, return_index=True)
    chosen = key[::-1][last]
    return chosen[:, 0], chosen[:, 1], chosen[:, 2]


@dataclass(frozen=True)
class Operands:
    """The operands of call-sites: one item each in every array."""

    site: Array
    row: Array
    role: Array
    place: Array
    """Number among the operands of its role."""
    named: Array
    """Whether it names storage, resolved or not."""
    storage: Array


def operands_of(ir: IR, sites: Sites, storages: Storages) -> Operands:
    """Return the operands of the call-sites, in order."""
    table = ir.tables["operands"]
    first, count = children(table["instruction_id"], sites.row)
    row, site = expand(first, count), np.repeat(np.arange(len(sites)), count)
    role = table.at("role", row)
    place = np.arange(len(row)) - first_of_run(site * 4 + role)
    location, set_id = table.at("location_id", row), table.at("set_id", row)
    unresolved = table.at("name", row) >= 0
    storage = np.where(unresolved, NOTHING, storages.of(location, set_id))
    named = (location >= 0) | unresolved | (set_id >= 0) | (table.at("set_name", row) >= 0)
    return Operands(site, row, role, place, named, storage)


def _pairs_in(site: Array, storage: Array, other_site: Array, other_storage: Array) -> Array:
    """Tell which (call-site, storage) pairs are among others."""
    if not len(other_site) or not len(site):
        return np.zeros(len(site), bool)
    low = min(storage.min(initial=0), other_storage.min(initial=0))
    width = max(storage.max(initial=0), other_storage.max(initial=0)) - low + 1
    wanted, known = site * width + storage - low, np.sort(other_site * width + other_storage - low)
    return known[np.minimum(np.searchsorted(known, wanted), len(known) - 1)] == wanted


def _bind_by_position(
    ir: IR,
    sites: Sites,
    bound: Array,
    site: Array,
    formal: Array,
    waiting: Array,
    operands: Operands,
    own: Array,
    rank: int,
    fail: _Fail,
) -> None:
    """Bind the i-th waiting parameter to the i-th operand left."""
    number = np.arange(len(waiting)) - first_of_run(site[waiting])
    begin = np.searchsorted(operands.site[own], site[waiting])
    has = number < np.searchsorted(operands.site[own], site[waiting] + 1) - begin
    taken = np.zeros(len(waiting), np.int64)
    taken[has] = own[begin[has] + number[has]]
    storage = np.where(has, operands.storage[taken] if len(operands.site) else NOTHING, NOTHING)
    at, caller = np.flatnonzero(storage >= 0), sites.function[site[waiting]]
    foreign = np.zeros(len(waiting), bool)  # named by way of `memref_owner_func`
    foreign[at] = ir.array("locations", "function_id")[storage[at]] != caller[at]
    missing = (storage == NOTHING) | foreign
    sets, names = ir.tables["sets"].text(), ir.pools.names

    def text(k: int) -> str:
        item = waiting[k]
        name, callee = sets[int(formal[item])], ir.tables["functions"].text()[int(sites.callee[site[item]])]
        if not has[k]:
            return (
                f"parameter `{name}` of `{callee}` is bound to nothing: name it in the argument map or add an operand"
            )
        if foreign[k]:
            there, here = ir.tables["locations"].text()[int(storage[k])], ir.tables["functions"].text()[int(caller[k])]
            return f"parameter `{name}` of `{callee}` would be bound to `{there}`, which is not in `{here}`"
        row = operands.row[taken[k]]
        written = max(ir.tables["operands"]["name"][row], ir.tables["operands"]["set_name"][row])
        return f"parameter `{name}` of `{callee}` would be bound to `{names[int(written)]}`, which is not there"

    fail.first(
        rank, np.where(missing, site[waiting], -1), lambda k: "unresolved_name" if has[k] else "unbound_parameter", text
    )
    bound[waiting[~missing]] = storage[~missing]


def _check_counts(
    ir: IR, sites: Sites, storages: Storages, site: Array, formal: Array, bound: Array, fail: _Fail
) -> None:
    """Check that a parameter's set, and an actual given by set name, have exactly one location."""
    of_formal = storages.count[formal]
    by_set = (bound < NOTHING) & (bound != _UNBOUND)
    bad = (of_formal != 1) | by_set

    def text(k: int) -> str:
        count = of_formal[k] if of_formal[k] != 1 else storages.count[-2 - bound[k]]
        return f"Input/Output DRAM memory location set should only has one location, but got {count} locations"

    fail.first(6, np.where(bad, site, -1), lambda k: "parameter_location_count", text)


def _check_sizes(ir: IR, sites: Sites, site: Array, formal_location: Array, bound: Array, fail: _Fail) -> None:
    """Check that actual and parameter have the same number of bytes."""
    partitions, bytes_ = ir.tables["locations"]["partitions"], ir.tables["locations"]["bytes"]
    known = np.flatnonzero((bound >= 0) & (formal_location < len(partitions)))
    one, other = formal_location[known], bound[known]
    differ = (partitions[one] != partitions[other]) | (bytes_[one] != bytes_[other])
    maybe = np.flatnonzero(differ)
    # Python's integers: a product may leave 64 bits.
    a, b = (partitions[x[maybe]].astype(object) * bytes_[x[maybe]].astype(object) for x in (one, other))
    bad = np.full(len(bound), -1, np.int64)
    wrong = known[maybe[(a != b).astype(bool)]]
    bad[wrong] = site[wrong]
    names = ir.tables["locations"].text()

    def text(k: int) -> str:
        (f, c) = (int(formal_location[k]), int(bound[k]))
        shapes = [f"[{partitions[x]}, {bytes_[x]}]" for x in (c, f)]
        return f"`{names[c]}` {shapes[0]} is bound to `{names[f]}` {shapes[1]}: their bytes must be equal"

    fail.first(7, bad, lambda k: "parameter_size_mismatch", text)


def _sb_base(
    ir: IR, sites: Sites, status: Array, operands: Operands, outputs: Array, pads: Array, fail: _Fail
) -> Array:
    """Return the base of SB addresses: the scratchpad's, else the first SB output's, else 0 (rule N7)."""
    locations = ir.tables["locations"]
    pad = np.full(len(sites), NOTHING, np.int64)
    at = np.flatnonzero(
        (operands.role == vocabulary.ROLE_OUT)
        & (sites.sb_pads[operands.site] == 1)
        & (operands.place == (outputs - pads)[operands.site])
    )
    lost = at[operands.named[at] & (operands.storage[at] == NOTHING)]
    fail.where(
        0,
        operands.site[lost],
        "unresolved_name",
        lambda s: "the SB scratchpad names a location that is not there",
        memory=True,
    )
    is_sb = operands.storage >= 0
    is_sb[is_sb] = locations["type"][operands.storage[is_sb]] == vocabulary.MEM_SB
    at = at[is_sb[at]]
    pad[operands.site[at]] = operands.storage[at]
    padded = np.flatnonzero(pad >= 0)
    moved = padded[zeroed(locations.at("base", pad[padded])) != 0]
    names = locations.text()
    fail.where(
        1,
        moved,
        "scratchpad_base",
        lambda s: f"scratchpad `{names[pad[s]]}` begins at partition {locations['base'][pad[s]]}, not 0",
        memory=True,
    )
    unallocated = padded[locations.at("allocated", pad[padded]) != 1]
    uses_sb = np.zeros(ir.count("functions"), bool)
    uses_sb[ir.array("locations", "function_id")[locations.holding("type", [vocabulary.MEM_SB])]] = True
    needs = (status == 1) & uses_sb[sites.callee]
    fail.where(
        2,
        unallocated[needs[unallocated]],
        "scratchpad_unallocated",
        lambda s: (
            f"scratchpad `{names[pad[s]]}` has no address yet, but the kernel's memory has; allocate the caller first"
        ),
        memory=True,
    )
    first = np.flatnonzero(is_sb & (operands.role == vocabulary.ROLE_OUT))[::-1]
    chosen = np.full(len(sites), NOTHING, np.int64)
    chosen[operands.site[first]] = operands.storage[first]
    chosen[padded] = pad[padded]
    base = np.zeros(len(sites), np.int64)
    found = np.flatnonzero(chosen >= 0)
    base[found] = zeroed(locations.at("addr", chosen[found]))
    return base


def check_memory(
    batch: "Extended", bodies: "Bodies", sites: Sites, body: Array, base: Array, memory: Place, errors: FirstErrors
) -> None:
    """Check that rebased SB locations lie within the partition (rule N8).

    `base` is what each call-site adds to addresses, `body` the body that it gets.
    """
    ir = batch.ir
    first, count = bodies.windows["locations"]
    row, owner = expand(first, count), np.repeat(np.arange(len(count)), count)
    kind = batch.column("sets", "kind")[batch.column("locations", "set_id")[row]]
    mine = (batch.column("locations", "type")[row] == vocabulary.MEM_SB) & ~is_parameter(kind)
    row, owner = row[mine], owner[mine]
    addr, size = zeroed(batch.column("locations", "addr")[row]), zeroed(batch.column("locations", "bytes")[row])
    ends = exact.total(addr, size)
    highest, has = np.zeros(len(count), ends.dtype), np.zeros(len(count), bool)
    lowest = np.zeros(len(count), np.int64)
    begins = np.flatnonzero(np.diff(owner, prepend=-1))
    if len(begins):
        has[owner[begins]], highest[owner[begins]] = True, np.maximum.reduceat(ends, begins)
        lowest[owner[begins]] = np.minimum.reduceat(addr, begins)
    names, of_name = np.unique(ir.tables["modules"]["arch"], return_inverse=True)
    archs = [vocabulary.arch(ir.pools.names[name]) if name >= 0 else None for name in names.tolist()]
    capacity = np.array([-1 if a is None or a.sbuf_bytes is None else a.sbuf_bytes for a in archs], np.int64)[of_name]
    limit_of = capacity[sites.module]
    wrong = (limit_of < 0) | (exact.total(base, highest[body]) > limit_of)
    if base.min(initial=0) < 0:  # else no sum is below 64 bits
        wrong |= exact.total(base, lowest[body]) <= NULL_INT
    over = np.flatnonzero(has[body] & wrong)

    def message(s: int) -> Diagnostic:
        limit = capacity[sites.module[s]]
        if limit < 0:
            return about(
                ir,
                sites,
                s,
                "unknown_arch",
                "the architecture is unknown or absent, so that the kernel's SB memory "
                "cannot be checked against its capacity",
            )
        too_high = exact.total(np.broadcast_to(base[[s]], len(ends)), ends) > limit
        too_low = exact.total(np.broadcast_to(base[[s]], len(addr)), addr) <= NULL_INT
        k = np.flatnonzero((owner == body[s]) & (too_high | too_low))[0]
        where, start, width = int(base[s]), int(addr[k]), int(size[k])
        name = batch.text("locations", int(row[k]))
        text = (
            f"`{name}` would end at {where} + {start} + {width} = {where + start + width}, "
            f"above the {limit} bytes of a partition"
            if too_high[k]
            else f"`{name}` would begin at {where} + {start} = {where + start}, below what 64 bits hold"
        )
        known = int(row[k]) if row[k] < ir.count("locations") else None
        return about(ir, sites, s, "sb_overflow", text, location=name, location_id=known)

    errors.add(memory[0][over], 3, over, sites.module[over], message, memory[1][over])
