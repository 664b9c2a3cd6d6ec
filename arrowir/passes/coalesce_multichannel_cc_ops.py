"""Merging collectives of adjacent channels (rules K1 to K4): what unrolling took apart becomes one instruction again.

A run is found by comparing each instruction with the one before it, for all blocks at once. The edit keeps the first
row of each run; operands, edges, waits and updates of the others go to it.
"""

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from arrowir import diagnostics as diag
from arrowir import expressions, extras, layouts, schema, vocabulary
from arrowir.diagnostics import Diagnostic
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, UNCHANGED, Pass, Plan, whereabouts
from arrowir.passes.unrolling.loops import STRUCTURED
from arrowir.runs import Runs, expand
from arrowir.store import Array

KINDS = ("PermuteImplicit", "PermuteReduceImplicit")
"""Collectives that are merged."""

AGREE = ("op", "engine", "kind", "replica_groups", "order", "can_read_uninit", "is_local", "src_target_pairs")
"""What the members of a run agree in: place k has the compiler's code CCO00(k + 1)."""

_ENGINE, _GROUPS, _PAIRS = (AGREE.index(key) for key in ("engine", "replica_groups", "src_target_pairs"))
_DEFAULTS: dict[str, Any] = {"op": "bypass", "can_read_uninit": False, "is_local": False}

_OF = "Expected all consecutive CC compute ops to be of "
_SAME = f"{_OF}the same "
MESSAGES = (
    *(f"{_SAME}{what}, but got {{first}} != {{curr}}" for what in ("Op", "Engine", "Kind")),
    *(f"{_SAME}{what}" for what in ("ReplicaGroups", "HasOrder", "CanReadUninit", "IsLocal", "SrcTargetPairs")),
    f"{_OF}channel id starting at 0 and increasing by 1, but got first: {{first}}, curr: {{curr}}",
    "Expected CC op to not have both ReplicaGroups and SrcTargetPairs",
)
"""The compiler's texts, from CCO001 on."""

_SIDES = ("on_wait", "on_update")


@dataclass(frozen=True)
class Merging:
    """Runs of two and more instructions: first row and number of each."""

    first: Array
    count: Array


@dataclass(frozen=True)
class CoalesceMultichannelCcOps(Pass):
    """Merge adjacent collectives whose channels count up from 0 into one instruction with the operands of all.

    Only `PermuteImplicit` and `PermuteReduceImplicit` are looked at, in all functions (rules K1 to K4). Once a run has
    begun with channel 0, a neighbour that neither goes on with the next channel nor begins anew, or that differs in
    what the channels of one collective have in common, fails the module.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> air.passes.coalesce_multichannel_cc_ops(ir).status.to_list()
    ['unchanged']
    """

    name: ClassVar[str] = "coalesce_multichannel_cc_ops"

    def plan(self, ir: IR, active: Array) -> Plan:
        """Find the runs, and neighbours that do not fit; see `Pass.plan`."""
        status = np.full(len(ir), UNCHANGED, np.int8)
        found = _collectives(ir, active)
        row, channel = found.row, found.channel
        if not len(row):
            return Plan(status)
        module = ir.array("instructions", "module_id")[row]
        block = ir.tables["instructions"]["block_id"][row]
        apart = (np.diff(row, prepend=-2) != 1) | (np.diff(block, prepend=-2) != 0)
        stretch = np.cumsum(apart)
        number = np.arange(len(row))
        begun = np.maximum.accumulate(np.where(channel == 0, number, -1))
        # What stands before the first channel 0 of a stretch belongs to no run.
        begun[stretch[np.maximum(begun, 0)] != stretch] = -1

        later = np.flatnonzero((begun >= 0) & (channel != 0))
        wrong = np.column_stack(
            (
                found.facts[later] != found.facts[begun[later]],
                channel[later] - 1 != channel[later - 1],
                found.both[later],
            )
        )
        errors = self._errors(ir, found, begun, later, wrong)
        status[[error.module_id or 0 for error in errors]] = FAILED
        heads = np.flatnonzero(channel == 0)
        count = np.bincount(np.searchsorted(heads, begun[begun >= 0]), minlength=len(heads))
        merged = (count > 1) & (status[module[heads]] != FAILED)
        status[module[heads[merged]]] = CHANGED
        return Plan(status, errors, Merging(row[heads[merged]], count[merged]))

    def _errors(self, ir: IR, found: "Collectives", begun: Array, later: Array, wrong: Array) -> list[Diagnostic]:
        """Return the first error of each module, in program order; of one instruction the one with the lowest code."""
        bad = np.flatnonzero(wrong.any(axis=1))
        row = found.row[later[bad]]
        function, position = (ir.array("instructions", name)[row] for name in ("function_id", "position"))
        module = ir.array("instructions", "module_id")[row]
        order = np.lexsort((position, function))
        _, first = np.unique(module[order], return_index=True)
        errors: list[Diagnostic] = []
        for k in bad[order[first]].tolist():
            code = int(np.argmax(wrong[k]))
            member, head = int(later[k]), int(begun[later[k]])
            first_is, here_is = found.told(ir, code, head), found.told(ir, code, member)
            errors.append(_mismatch(ir, code, first_is, here_is, int(found.row[member])))
        return errors

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Make the new tables; see `Pass.apply`."""
        todo: Merging = plan.edit
        rows = np.arange(ir.count("instructions"))
        member, into = expand(todo.first, todo.count), np.repeat(todo.first, todo.count)
        owner = rows.copy()
        owner[member] = into
        goes = owner != rows
        edit = Edit(ir)
        edit.keep("instructions", Runs.picking(np.flatnonzero(~goes)))
        edit.unite("instructions", rows[goes], owner[goes])
        edit.hand_over("operands", owner, "role")
        edit.hand_over("semaphores", owner, "side")
        kept = _kept_edges(ir, todo.first, owner)
        edit.hand_over("dependencies", owner, "relation", kept)
        places = edit.places("instructions")
        assert places is not None
        heads = places[0][todo.first]
        edit.settle("instructions", "layout", heads, _layouts(ir, todo.first, owner, kept))
        sync = _sync_layouts(ir, todo.first, owner)
        if sync is not None:
            edit.settle("instructions", "sync_layout", heads, sync)
        return edit.build()


def _mismatch(ir: IR, code: int, first: object, curr: object, row: int) -> Diagnostic:
    """Say that an instruction does not fit the run before it; `code` counts from CCO001."""
    message = MESSAGES[code].format(first=first, curr=curr)
    found = diag.make("collective_run_mismatch", message, **whereabouts(ir, row))
    return replace(found, compiler_code=f"CCO{code + 1:03}")


# -- which instructions ----


@dataclass(frozen=True)
class Collectives:
    """The instructions that can be members of a run, in the order of rows."""

    row: Array
    channel: Array
    facts: Array
    """For each a code per item of `AGREE`: equal where they agree."""
    both: Array
    """Mask of those with groups and pairs."""

    def told(self, ir: IR, code: int, at: int) -> object:
        """Return what a message says of an instruction."""
        if code == _ENGINE:
            return ir.pools.codes["engine"][int(self.facts[at, code])]
        text = _Text.of(ir.pools.extras[int(ir.tables["instructions"]["extra"][self.row[at]])])
        return json.loads(text.facts[code]) if code < len(AGREE) else text.channel


@dataclass(frozen=True)
class _Text:
    """What the text of a collective says."""

    channel: int | None
    """None where it can be no member of a run."""
    facts: tuple[str, ...]
    """For each item of `AGREE` what it is, in one spelling; placeholders in it are not told apart."""
    slots: tuple[tuple[int, ...], ...]
    """The placeholders in each."""

    @classmethod
    @lru_cache(65536)
    def of(cls, text: str) -> "_Text":
        """Read a text."""
        first, values = 0, dict[str, Any]()
        for key, value in extras.members(text):
            values[key] = expressions.read(value, first)
            first += value.count(extras.PLACEHOLDER)
        eligible = values.get("kind") in KINDS and not values.get("predicates")
        channel = expressions.constant(values.get("cc_channel")) if eligible else None
        if channel is None:
            return cls(None, (), ())
        found = [_spelled(_value(key, values.get(key))) for key in AGREE]
        return cls(channel, tuple(text for text, _ in found), tuple(slots for _, slots in found))


def _value(key: str, value: Any) -> Any:
    """Return the value of a member with constants worked out; absent, null, empty and default are one."""
    value = _constants(value)
    if key not in _DEFAULTS:
        return value or []
    if isinstance(_DEFAULTS[key], bool):
        return bool(value) if not value or isinstance(value, int) else value
    return value or _DEFAULTS[key]


def _constants(value: Any) -> Any:
    """Replace constant expressions by their values, at any depth."""
    if isinstance(value, list):
        return [_constants(item) for item in value]
    if not isinstance(value, dict):
        return value
    number = expressions.constant(value) if expressions.is_expression(value) else None
    return {key: _constants(item) for key, item in value.items()} if number is None else number


def _spelled(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return text that is equal for equal values, and the numbers of the placeholders in it, in order."""
    slots: list[int] = []

    def plain(value: Any) -> Any:
        match value:
            case expressions.Slot():
                slots.append(value.number)
                return extras.PLACEHOLDER
            case dict():
                return {key: plain(value[key]) for key in sorted(value)}
            case list():
                return [plain(item) for item in value]
            case expressions.Literal():
                return {"": value}  # a number, which is not the string of its digits
            case _:
                return value

    return json.dumps(plain(value)), tuple(slots)


def _collectives(ir: IR, active: Array) -> Collectives:
    """Return what can be merged in some modules (a mask)."""
    instructions = ir.tables["instructions"]
    row = np.flatnonzero(instructions["opcode"] == vocabulary.OP_COLLECTIVE_COMPUTE)
    owners = ir.tables["blocks"]["instruction_id"]
    row = row[ir.array("instructions", "function_id")[row] >= 0]
    row = row[active[ir.array("instructions", "module_id")[row]] & ~np.isin(row, owners)]
    row = row[instructions["extra"][row] >= 0]
    row = row[~_inside_data(ir, row)]
    distinct, place = np.unique(instructions["extra"][row], return_inverse=True)
    texts = [_Text.of(ir.pools.extras[i]) for i in distinct.tolist()]
    some = np.array([text.channel is not None for text in texts], bool)[place]
    row, place = row[some], place[some]
    if not len(row):
        return Collectives(row, row, np.zeros((0, len(AGREE)), np.int64), np.zeros(0, bool))
    facts = np.empty((len(row), len(AGREE)), np.int64)
    given: dict[int, Array] = {}
    for k in range(len(AGREE)):
        if k == _ENGINE:
            engine = instructions["engine"][row]
            facts[:, k] = np.where(engine < 0, vocabulary.ENGINE_UNASSIGNED, engine)
            continue
        facts[:, k] = _codes([text.facts[k] if text.facts else "" for text in texts])[place]
        slots = [text.slots[k] if text.slots else () for text in texts]
        facts[:, k] = _with_targets(ir, "instructions", row, facts[:, k], place, slots)
        if k in (_GROUPS, _PAIRS):
            given[k] = np.array([bool(text.facts) and text.facts[k] != "[]" for text in texts], bool)[place]
    channel = np.array([text.channel or 0 for text in texts], np.int64)[place]
    return Collectives(row, channel, facts, given[_GROUPS] & given[_PAIRS])


def _inside_data(ir: IR, row: Array) -> Array:
    """Return a mask of the instructions that stand in blocks of something that is no loop: data of that."""
    block, owner = ir.tables["instructions"]["block_id"], ir.tables["blocks"]["instruction_id"]
    found = np.zeros(len(row), bool)
    at = block[row]
    while (inside := np.flatnonzero(owner[at] >= 0)).size:
        around = owner[at[inside]]
        found[inside] |= ~np.isin(ir.tables["instructions"]["opcode"][around], STRUCTURED)
        at[inside] = block[around]
    return found


def _codes(texts: list[str]) -> Array:
    """Number texts: equal ones alike."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(text, len(known)) for text in texts], np.int64)


def _with_targets(ir: IR, table: str, row: Array, code: Array, place: Array, slots: list[tuple[int, ...]]) -> Array:
    """Tell apart codes of equal text whose placeholders mean different things.

    Parameters
    ----------
    ir
        The batch.
    table
        The table that the text belongs to.
    row, code
        Rows of that table, and a code of the text of each.
    place, slots
        For each row the number of its text, and for each text the numbers of its placeholders.
    """
    width = max(map(len, slots), default=0)
    if not width:
        return code
    numbers = np.full((len(slots), width), -1, np.int64)
    for text, found in enumerate(slots):
        numbers[text, : len(found)] = found
    references = ir.tables["references"]
    mine = np.flatnonzero(references["table"] == schema.STRUCTURAL["table"].index(table))
    first = np.searchsorted(references["row"][mine], row)
    columns = [code]
    for k in range(width):
        at = np.flatnonzero(numbers[place, k] >= 0)
        reference = mine[first[at] + numbers[place[at], k]]
        for name in ("target", "target_id", "name"):
            meant = np.full(len(row), -2, np.int64)
            meant[at] = references[name][reference]
            columns.append(meant)
    return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].reshape(-1)


# -- what becomes of them ----


def _kept_edges(ir: IR, heads: Array, owner: Array) -> Array:
    """Return a mask of the edges that stay: those inside a run go, and of equal ones all but the first."""
    edges = ir.tables["dependencies"]
    merged = np.zeros(len(owner), bool)
    merged[heads] = True
    waits, written = owner[edges["instruction_id"]], edges["on_instruction_id"]
    on = np.where(written < 0, -1, owner[np.maximum(written, 0)])
    of_run, on_run = merged[waits], (on >= 0) & merged[np.maximum(on, 0)]
    kept = ~(of_run & (on == waits))
    row = np.flatnonzero(kept & (of_run | on_run))
    row = row[np.lexsort((row, edges["relation"][row], waits[row]))]
    distinct, place = np.unique(edges["extra"][row], return_inverse=True)
    tails = ["" if i < 0 else ",".join(extras.items(ir.pools.extras[i])[1:]) for i in distinct.tolist()]
    rest = _codes(tails)[place] if len(tails) else place
    slots = [tuple(range(tail.count(extras.PLACEHOLDER))) for tail in tails]
    rest = _with_targets(ir, "dependencies", row, rest, place, slots)
    named = np.where(on[row] < 0, edges["name"][row], -1)
    same = np.column_stack((waits[row], edges["relation"][row], on[row], named, edges["edge"][row], rest))
    again = np.ones(len(row), bool)
    again[np.unique(same, axis=0, return_index=True)[1]] = False
    kept[row[again]] = False
    return kept


def _marks(ir: IR, table: str, column: str, owner: Array, kept: Array | None = None) -> Array:
    """Return for each instruction a bit for each value of a column that a row has which it owns."""
    rows = ir.tables[table]
    of, value = owner[rows["instruction_id"]], rows[column].astype(np.int64)
    marks = np.zeros(len(owner), np.int64)
    np.bitwise_or.at(marks, of if kept is None else of[kept], 1 << (value if kept is None else value[kept]))
    return marks


def _layouts(ir: IR, heads: Array, owner: Array, kept: Array) -> Array:
    """Return the layouts of the merged instructions: a list that has entries now has a key, an emptied one loses it."""
    operands = _marks(ir, "operands", "role", owner)[heads]
    edges = _marks(ir, "dependencies", "relation", owner, kept)[heads]
    had = _marks(ir, "dependencies", "relation", np.arange(len(owner)))[heads]
    sync = _marks(ir, "semaphores", "side", owner)[heads] > 0
    roles, relations = vocabulary.ROLE_MEMBERS, vocabulary.RELATION_MEMBERS
    add = operands | edges << len(roles) | sync.astype(np.int64) << len(roles + relations)
    keys, gone = (*roles, *relations, "sync_info"), had & ~edges
    return _edited(ir, ir.tables["instructions"]["layout"][heads], add, keys, gone, relations)


def _sync_layouts(ir: IR, heads: Array, owner: Array) -> Array | None:
    """Return the layouts of `sync_info` of the merged instructions; None where no lists are put together."""
    sides = _marks(ir, "semaphores", "side", owner)[heads]
    if not sides.any():
        return None
    old = ir.tables["instructions"]["sync_layout"][heads]
    new = np.where((old < 0) & (sides > 0), ir.pools.layouts.intern("[]"), old)
    return _edited(ir, new, sides, _SIDES, np.zeros_like(sides), ())


def _edited(ir: IR, layout: Array, add: Array, keys: tuple[str, ...], gone: Array, removable: tuple[str, ...]) -> Array:
    """Add keys to layouts and remove some, given as bits; each distinct change is made once."""
    cases, place = np.unique(np.column_stack((layout, add, gone)), axis=0, return_inverse=True)
    made = np.empty(len(cases), np.int32)
    for k, (old, more, less) in enumerate(cases.tolist()):
        ids = np.array([old], np.int32)
        made[k] = layouts.edit_keys(ir.pools.layouts, ids, _of_bits(more, keys), _of_bits(less, removable))[0]
    return made[place.reshape(-1)]


def _of_bits(bits: int, keys: tuple[str, ...]) -> list[str]:
    return [key for k, key in enumerate(keys) if bits >> k & 1]
