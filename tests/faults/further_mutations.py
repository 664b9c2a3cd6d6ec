"""Deliberate faults in the smaller passes, put in like those of `tests.faults.mutations`."""

from dataclasses import replace
from typing import Any

import numpy as np

from arrowir.passes.constants.attributes import ACCUMULATE, AND, OR, START
from arrowir.store import Array
from tests.faults.mutations import CONSTANTS, PROPAGATION, Catcher, Given, Mutation, Pass

COALESCING = "arrowir.passes.coalesce_multichannel_cc_ops"
INDIRECT = "arrowir.passes.indirect"
TRANSLATING = "arrowir.passes.translating"
TRANSLATION = "arrowir.passes.translate_nki_ast_to_bir"
CHAINS = f"{INDIRECT}.chains:Chains"


def _of(name: Pass) -> Any:
    def made(
        fault: str, rule: str, what: str, *patches: Any, caught: Catcher = "execution", **options: Any
    ) -> Mutation:
        return Mutation(fault, name, rule, what, patches, caught, tuple(options.items()))

    return made


# -- collectives --------------------------------------------------------------------------------------------------


def _any_later_channel(found: Any, *_: Any) -> Any:
    """A run goes on with any channel that is larger than the one before."""
    channel = found.channel.copy()
    for k in range(1, len(channel)):
        if found.row[k] == found.row[k - 1] + 1 and found.channel[k] > found.channel[k - 1]:
            channel[k] = channel[k - 1] + 1
    return replace(found, channel=channel)


def _from_any_channel(found: Any, *_: Any) -> Any:
    """What stands first of its stretch begins a run, whatever its channel is."""
    channel, first = found.channel.copy(), 0
    for k in range(len(channel)):
        if k == 0 or found.row[k] != found.row[k - 1] + 1:
            first = max(int(channel[k]), 0)
        channel[k] -= first
    return replace(found, channel=channel)


def _agreeing_in(key: str) -> Any:
    """Members need not agree in something."""

    def change(found: Any, *_: Any) -> Any:
        from arrowir.passes.coalesce_multichannel_cc_ops import AGREE

        facts = found.facts.copy()
        facts[:, AGREE.index(key)] = 0
        return replace(found, facts=facts)

    return change


def _groups_and_pairs(found: Any, *_: Any) -> Any:
    return replace(found, both=np.zeros_like(found.both))


def _inside(kept: Array, ir: Any, heads: Array, owner: Array) -> Array:
    """Return a mask of the edges between members of a run."""
    edges = ir.tables["dependencies"]
    on = edges["on_instruction_id"]
    waits = owner[edges["instruction_id"]]
    return np.isin(waits, heads) & (on >= 0) & (owner[np.maximum(on, 0)] == waits)


def _edges_inside_stay(kept: Array, *given: Any) -> Array:
    return kept | _inside(kept, *given)


def _equal_edges_stay(kept: Array, *given: Any) -> Array:
    return ~_inside(kept, *given)


def _not_handed_over(table: str) -> Given:
    """Of a table the rows of other members than the first go with these."""

    def change(edit: Any, of: str, owner: Array, rank: str, kept: Array | None = None) -> tuple[Any, ...]:
        if of == table:
            all_kept = np.ones(edit.ir.count(of), bool) if kept is None else kept
            instruction = edit.ir.tables[of]["instruction_id"]
            kept = all_kept & (owner[instruction] == instruction)
        return edit, of, owner, rank, kept

    return Given(change)


# -- indirect accesses --------------------------------------------------------------------------------------------


def _bias_forgotten(found: Array, chains: Any) -> Array:
    return np.where(chains._by_rows(), 0, chains.accesses.offset)


def _offset_forgotten(found: Array, chains: Any) -> Array:
    return found - np.where(chains._by_rows(), 0, chains.accesses.offset)


def _steps_turned(found: Any, *_: Any) -> Any:
    return replace(found, steps=found.steps[::-1])


def _strides_turned(found: Any, *_: Any) -> Any:
    return replace(found, strides=found.strides[::-1])


def _not_subtracted(kind: int, narrow: int, one: int, first: int, adds: int) -> tuple[int, ...]:
    return kind, narrow, one, first, 0


def _one_scratch(made: Any, *_: Any) -> Any:
    """The constant is written over the sum that it is added to."""
    for cells in made.cells:
        if "offset" in cells:
            cells["offset"] = np.zeros_like(cells["offset"])
    return made


def _not_by_rows(found: Array, *_: Any) -> Array:
    return np.zeros_like(found)


def _no_waits(found: tuple[Array, Array, Array], *_: Any) -> tuple[Array, Array, Array]:
    first, count, waits = found
    return first, count, np.zeros_like(waits)


def _edges_stay(found: Array, chains: Any) -> Array:
    """What the access waited for the second of the chain waits for."""
    return found + (chains.length > 1)


# -- constants ----------------------------------------------------------------------------------------------------


def _part_is_whole(_: None, accesses: Any, *__: Any) -> None:
    accesses.covers = accesses.inside.copy()


def _at_any_time(state: Any, locations: Array) -> tuple[Any, ...]:
    state.code.__dict__["position"] = np.zeros(len(state.code), np.int64)
    return state, locations


def _and_is_or(kind: int, *_: Any) -> int:
    return {AND: OR, OR: AND}.get(kind, kind)


def _start_adds(kind: int, *_: Any) -> int:
    return {START: ACCUMULATE, ACCUMULATE: START}.get(kind, kind)


def _none(found: Array, *_: Any) -> Array:
    return found[:0]


def _integers_only(_: Array, bits: Array, dtype: Array) -> Array:
    return bits == 1


def _dropped_by_name(found: Array, *_: Any) -> Array:
    return np.zeros_like(found)


# -- kernel files -------------------------------------------------------------------------------------------------


def _first_core(found: tuple[Any, ...], *_: Any) -> tuple[Any, ...]:
    cores, notes, taken = found
    return np.zeros_like(cores), notes, taken


def _one_actual_further(found: Any, *_: Any) -> Any:
    """An input gets what the input before it is given."""
    location, sets = found.location.copy(), found.set_id.copy()
    for k in range(1, len(location)):
        if found.site[k] == found.site[k - 1] and found.direction[k] == found.direction[k - 1]:
            location[k], sets[k] = found.location[k - 1], found.set_id[k - 1]
    return replace(found, location=location, set_id=sets)


def _formals_turned(found: Any, *_: Any) -> Any:
    formal, sets = found.formal.copy(), found.formal_set.copy()
    for k in range(1, len(formal)):
        if found.site[k] == found.site[k - 1] and found.direction[k] == found.direction[k - 1]:
            formal[[k - 1, k]], sets[[k - 1, k]] = formal[[k, k - 1]], sets[[k, k - 1]]
    return replace(found, formal=formal, formal_set=sets)


def _first_file(ir: Any, todo: Any) -> tuple[Any, ...]:
    """All call-sites of a module call what its first one calls."""
    first = np.unique(todo.sites.module, return_index=True)[1]
    return ir, replace(todo, use=todo.use[first][np.searchsorted(todo.sites.module[first], todo.sites.module)])


def _callee_alone(taken: Array, uses: Any) -> Array:
    found = np.zeros_like(taken)
    found[uses.callee] = True
    return found


def _constants_by_old_names(found: Any, *_: Any) -> Any:
    return replace(found, rows=found.rows[:0], extra=found.extra[:0])


_k, _g = _of("coalesce_multichannel_cc_ops"), _of("lower_generic_indirect")
_c, _t = _of("constant_propagate"), _of("translate_nki_ast_to_bir")

FURTHER_MUTATIONS: tuple[Mutation, ...] = (
    _k("any_later_channel", "K2", "a run goes on with any channel above the one before",
       (COALESCING, "_collectives", _any_later_channel), caught="oracle"),
    _k("from_any_channel", "K1", "a run begins with any channel, not with 0",
       (COALESCING, "_collectives", _from_any_channel), caught="oracle"),
    _k("other_engines", "K2", "members of a run may be on different engines",
       (COALESCING, "_collectives", _agreeing_in("engine")), caught="oracle"),
    _k("other_orders", "K2", "members of a run may differ in `order`",
       (COALESCING, "_collectives", _agreeing_in("order")), caught="oracle"),
    _k("groups_and_pairs", "K2", "groups and pairs together are let pass",
       (COALESCING, "_collectives", _groups_and_pairs), caught="oracle"),
    _k("edges_inside_stay", "K4", "edges inside a run stay, as edges of an instruction on itself",
       (COALESCING, "_kept_edges", _edges_inside_stay), caught="oracle"),
    _k("equal_edges_stay", "K4", "of equal edges of a merged instruction all stay",
       (COALESCING, "_kept_edges", _equal_edges_stay), caught="oracle"),
    _k("waits_of_the_first", "K3", "waits and updates of all members but the first are lost",
       ("arrowir.edit:Edit", "hand_over", _not_handed_over("semaphores")), caught="oracle"),
    _k("operands_of_the_first", "K3", "operands of all members but the first are lost",
       ("arrowir.edit:Edit", "hand_over", _not_handed_over("operands")), caught="oracle"),
    _g("bias_forgotten", "G3", "what indices of 64 bits carry beside the index is not taken off",
       (CHAINS, "_constants", _bias_forgotten)),
    _g("offset_forgotten", "G3", "the constant part of an address is lost", (CHAINS, "_constants", _offset_forgotten)),
    _g("steps_turned", "G3", "of several indices the first counts what the last one should",
       (f"{INDIRECT}.forms", "meaning", _steps_turned)),
    _g("constants_turned", "G3", "constants of an address are multiplied by the stride of another dimension",
       (f"{INDIRECT}.forms", "meaning", _strides_turned)),
    _g("not_subtracted", "G3", "a save that adds has the table's address added to its own",
       (f"{INDIRECT}.chains", "own_members", Given(_not_subtracted))),
    _g("one_scratch", "G5", "the constant is written over the sum that it is to be added to",
       (CHAINS, "_new_operands", _one_scratch)),
    _g("not_by_rows", "G3", "an index of -1 is a row before the table, and not left out",
       (CHAINS, "_by_rows", _not_by_rows), caught="oracle"),
    _g("waits_at_the_end", "G4", "what the access waited for it still waits for itself, at the end of its chain",
       (CHAINS, "_waits_of", _no_waits), caught="oracle"),
    _g("edges_of_the_second", "G4", "edges of the access go to the second of its chain",
       (CHAINS, "_first_rows", _edges_stay), caught="assert_valid"),
    _c("part_is_whole", "C1", "a Memset of a part of a location makes all of it constant",
       (f"{CONSTANTS}.accesses:Accesses", "_reach", _part_is_whole), caught="oracle"),
    _c("at_any_time", "C1", "a Memset behind a reader makes the location constant",
       (f"{CONSTANTS}.state:State", "settle", Given(_at_any_time)), caught="oracle"),
    _c("calls_forgotten", "C1", "call-sites do not read or write what they name",
       (f"{CONSTANTS}.code:Code", "_called", _none), caught="oracle"),
    _c("shared_forgotten", "C1", "what others may use, by its members, counts as used by nobody",
       (f"{CONSTANTS}.code", "_says", _dropped_by_name), caught="oracle"),
    _c("and_is_or", "C2", "`logical_and` and `logical_or` are taken for each other",
       (f"{CONSTANTS}.attributes", "_logical_kind", _and_is_or)),
    _c("integers_only", "C2", "the 1 of floats is not known: its bits are compared with 1",
       (PROPAGATION, "is_one", _integers_only), caught="oracle"),
    _c("start_adds", "C2", "a product with zeros that begins a sum goes, one that adds becomes a Memset",
       (f"{CONSTANTS}.attributes", "_matmult_kind", _start_adds), assume_finite=True),
    _c("addends_removed", "C3", "the Memset of what a product adds to goes, though the product stays",
       (f"{CONSTANTS}.effects:Effects", "held", _none), caught="oracle"),
    _c("once_only", "C4", "after dead code nothing is looked at again", (f"{PROPAGATION}:Propagation", "_sweep", _none),
       caught="oracle"),
    _t("first_core", "T4", "the function of the first core is taken, whatever the module's core is",
       (f"{TRANSLATION}:TranslateNkiAstToBir", "_choose", _first_core)),
    _t("callee_alone", "T5", "what the kernel calls is left behind",
       (f"{TRANSLATING}.kernels:Uses", "functions", _callee_alone)),
    _t("first_file", "T5", "all call-sites of a module call the kernel of the first file",
       (TRANSLATION, "translate", Given(_first_file))),
    _t("one_actual_further", "T7", "a parameter is given what the one before it is given",
       (TRANSLATION, "resolve", _one_actual_further)),
    _t("formals_turned", "T7", "two parameters are given what is meant for the other one",
       (TRANSLATION, "resolve", _formals_turned)),
    _t("constants_by_old_names", "T9", "files of constants are named as from the kernel file, not from the module",
       (TRANSLATION, "constants_of", _constants_by_old_names)),
)  # fmt: skip
"""All of them."""
