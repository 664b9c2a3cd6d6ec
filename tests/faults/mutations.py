"""Deliberate faults of the passes, each put in by patching the implementation.

`tests/faults/test_pass_mutations.py` shows that each is caught, and by what; the table in the documentation is made of
this list.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from importlib import import_module
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

from arrowir import schema
from arrowir import vocabulary as vocab
from arrowir.ir import IR
from arrowir.store import Array

Catcher = Literal["execution", "refusal", "assert_valid", "oracle"]
Pass = Literal[
    "inline_nki_kernel", "unroll", "runtime_memory_reservation", "constant_propagate", "coalesce_multichannel_cc_ops",
    "lower_generic_indirect", "translate_nki_ast_to_bir",
]  # fmt: skip
Change = Callable[..., Any]
"""From what a function returned, and its arguments, what it returns with the fault."""

INLINING = "arrowir.passes.inlining"
UNROLLING = "arrowir.passes.unrolling"
CONSTANTS = "arrowir.passes.constants"
PROPAGATION = "arrowir.passes.constant_propagate"


@dataclass(frozen=True)
class Mutation:
    """One fault."""

    name: str
    of: Pass
    rule: str
    fault: str
    """What the pass does wrong, in words."""
    patches: tuple[tuple[str, str, "Change | Given"], ...]
    """Module, or module and class, and the name in it; what is made of its results."""
    caught: Catcher = "execution"
    options: tuple[tuple[str, Any], ...] = ()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the fault in."""
        with ExitStack() as stack:
            for place, name, change in self.patches:
                module, _, owner = place.partition(":")
                holder = import_module(module)
                holder = getattr(holder, owner) if owner else holder
                stack.enter_context(patch.object(holder, name, _changed(getattr(holder, name), change)))
            yield


@dataclass(frozen=True)
class Given:
    """A change of what a function is given."""

    change: Callable[..., tuple[Any, ...]]


def _changed(original: Callable[..., Any], change: "Change | Given") -> Callable[..., Any]:
    @wraps(original)
    def faulty(*arguments: Any, **options: Any) -> Any:
        if isinstance(change, Given):
            return original(*change.change(*arguments), **options)
        return change(original(*arguments, **options), *arguments)

    return faulty


# -- bindings -----------------------------------------------------------------------------------------------------


def _sizes(ir: IR) -> Array:
    return ir.tables["locations"]["partitions"] * ir.tables["locations"]["bytes"]


def _actuals_swapped(binding: Any, ir: IR, *_: Any) -> Any:
    actual, size = binding.actual.copy(), _sizes(ir)
    for one in range(len(actual) - 1):
        two = one + 1
        alike = binding.site[one] == binding.site[two] and size[actual[one]] == size[actual[two]]
        if alike and binding.actual[one] == actual[one]:
            actual[one], actual[two] = actual[two], actual[one]
    return replace(binding, actual=actual)


def _one_after_the_other(binding: Any, ir: IR, *_: Any) -> Any:
    """An actual that has the name of a later parameter is replaced by what that is bound to."""
    names, size, actual = ir.tables["locations"].text(), _sizes(ir), binding.actual.copy()
    for one in range(len(actual)):
        for two in np.flatnonzero(binding.site == binding.site[one]).tolist():
            same = names[int(actual[one])] == names[int(binding.formal_location[two])]
            if two > one and same and size[actual[one]] == size[binding.actual[two]]:
                actual[one] = binding.actual[two]
    return replace(binding, actual=actual)


def _next_call_site(binding: Any, ir: IR, *_: Any) -> Any:
    """What a parameter is bound to at the next call-site of the same kernel."""
    size, actual = _sizes(ir), binding.actual.copy()
    for one in range(len(actual)):
        later = np.flatnonzero((binding.formal == binding.formal[one]) & (binding.site > binding.site[one]))
        if len(later) and size[actual[one]] == size[binding.actual[later[0]]]:
            actual[one] = binding.actual[later[0]]
    return replace(binding, actual=actual)


def _no_registers(binding: Any, *_: Any) -> Any:
    nothing = binding.register_site[:0]
    return replace(binding, register_site=nothing, register_formal=nothing, register_actual=nothing)


def _registers_rolled(binding: Any, *_: Any) -> Any:
    return replace(binding, register_actual=np.roll(binding.register_actual, 1))


def _first_entry_counts(entries: Any, *_: Any) -> Any:
    order = np.lexsort((-np.arange(len(entries.site)), entries.site))
    columns = {name: getattr(entries, name)[order] for name in ("site", "row", "direction", "storage")}
    return type(entries)(**columns)


def _base_twice(binding: Any, *_: Any) -> Any:
    return replace(binding, base=2 * binding.base)


# -- bodies and where they stand ----------------------------------------------------------------------------------


def _last_dropped(_: None, bodies: Any, opcode: Array) -> None:
    bodies.returns = ((bodies.rows > 0) & ~bodies.split).astype(np.int64)


def _return_kept(_: None, bodies: Any, opcode: Array) -> None:
    bodies.returns = np.zeros_like(bodies.returns)


def _entry_lost(found: Any, *_: Any) -> Any:
    return replace(found, own_entry=np.zeros_like(found.own_entry))


def _early_return_ignored(found: Any, *_: Any) -> Any:
    return replace(found, split=(found.blocks > 1) | found.own_entry)


def _back_to_the_start(closed: Any, *_: Any) -> Any:
    """Every `Return` goes to the last block of the body, not behind it."""
    branches = closed.ir.tables["branches"]
    target = branches["block_id"].copy()
    target[closed.returns[branches["instruction_id"]]] -= 1
    return replace(closed, ir=closed.ir.replace(branches=branches.replace(block_id=target)))


def _clones(ir: IR, table: str) -> Array:
    """Tell which rows of a table belong to instructions that are clones."""
    chain = ir.tables["instructions"]["call_chain_id"]
    return chain[ir.tables[table]["instruction_id"]] >= 0


def _with(spliced: Any, **tables: Any) -> Any:
    return replace(spliced, ir=spliced.ir.replace(**tables))


def _slots_swapped(spliced: Any, *_: Any) -> Any:
    branches = spliced.ir.tables["branches"]
    target, mine = branches["block_id"].copy(), _clones(spliced.ir, "branches")
    for row in np.flatnonzero(mine & (branches["slot"] == vocab.BRANCH_SLOTS.code("on_true"))).tolist():
        same = np.flatnonzero(branches["instruction_id"] == branches["instruction_id"][row])
        target[same] = branches["block_id"][same[::-1]]
    return _with(spliced, branches=branches.replace(block_id=target))


def _to_the_first_copy(spliced: Any, *_: Any) -> Any:
    """A branch of a later copy of a body goes to the block of the first copy."""
    ir = spliced.ir
    branches, blocks = ir.tables["branches"], ir.tables["blocks"]
    kernel, chain = ir.tables["call_chains"]["kernel"], blocks["call_chain_id"]
    target, names = branches["block_id"].copy(), blocks.text("original_name")
    for row in np.flatnonzero(_clones(ir, "branches") & (target >= 0)).tolist():
        at = int(target[row])
        if chain[at] < 0:
            continue
        same = (blocks["function_id"] == blocks["function_id"][at]) & (blocks["instruction_id"] == -1) & (chain >= 0)
        for other in np.flatnonzero(same).tolist():
            if kernel[chain[other]] == kernel[chain[at]] and names[other] == names[at]:
                target[row] = other
                break
    return _with(spliced, branches=branches.replace(block_id=target))


def _captured(spliced: Any, *_: Any) -> Any:
    """An operand of a clone means the caller's location of the name that it had in the kernel."""
    ir = spliced.ir
    operands, locations = ir.tables["operands"], ir.tables["locations"]
    names, function, size = locations.text(), ir.array("locations", "function_id"), _sizes(ir)
    was = locations.text("original_name")
    chain = locations["call_chain_id"]
    location, owner = operands["location_id"].copy(), operands["set_id"].copy()
    own = {(int(function[k]), names[k]): k for k in reversed(np.flatnonzero(chain < 0).tolist())}
    for row in np.flatnonzero(_clones(ir, "operands") & (location >= 0)).tolist():
        at = int(location[row])
        other = own.get((int(function[at]), was[at])) if chain[at] >= 0 else None
        if other is not None and size[other] == size[at]:
            location[row] = other
            owner[row] = locations["set_id"][other] if owner[row] >= 0 else -1
    return _with(spliced, operands=operands.replace(location_id=location, set_id=owner))


def _storage_merged(spliced: Any, *_: Any) -> Any:
    """Two locations of one copy of a body become one."""
    ir = spliced.ir
    operands, locations, sets = ir.tables["operands"], ir.tables["locations"], ir.tables["sets"]
    chain, size, of = locations["call_chain_id"], _sizes(ir), locations["set_id"]
    kind = sets["dtype"][of]
    instead = np.arange(len(chain))
    for row in range(1, len(chain)):
        before = np.flatnonzero((chain[:row] >= 0) & (chain[:row] == chain[row]))
        before = before[(size[before] == size[row]) & (kind[before] == kind[row])]
        before = before[locations["type"][before] == locations["type"][row]]
        if len(before):
            instead[row] = before[0]
    return _with(spliced, operands=_moved(operands, of, instead))


def _moved(operands: Any, set_of: Array, instead: Array) -> Any:
    """Let operands mean other locations."""
    location, owner = operands["location_id"], operands["set_id"].copy()
    known = location >= 0
    owner[known & (owner >= 0)] = set_of[instead[location[known & (owner >= 0)]]]
    return operands.replace(location_id=np.where(known, instead[location], -1).astype(np.int32), set_id=owner)


def _storage_shared(spliced: Any, *_: Any) -> Any:
    """All copies of a body have the storage of the first one."""
    ir = spliced.ir
    locations, chains = ir.tables["locations"], ir.tables["call_chains"]
    chain, of, names = locations["call_chain_id"], locations["set_id"], locations.text("original_name")
    function = ir.array("locations", "function_id")
    instead, first = np.arange(len(chain)), dict[Any, int]()
    for row in np.flatnonzero(chain >= 0).tolist():
        key = (int(function[row]), int(chains["kernel"][chain[row]]), names[row])
        instead[row] = first.setdefault(key, row)
    return _with(spliced, operands=_moved(ir.tables["operands"], of, instead))


def _formals_left(spliced: Any, *_: Any) -> Any:
    """Operands of clones point behind all locations: at none."""
    operands = spliced.ir.tables["operands"]
    location = operands["location_id"].copy()
    mine = _clones(spliced.ir, "operands") & (location >= 0)
    location[mine] += len(spliced.ir.tables["locations"])
    return _with(spliced, operands=operands.replace(location_id=location))


def _registers_in_text(spliced: Any, *_: Any) -> Any:
    """Registers inside expressions of clones are those of the row before."""
    ir = spliced.ir
    references, codes = ir.tables["references"], schema.STRUCTURAL["table"]
    of_operands = references["table"] == codes.index("operands")
    mine = of_operands & (references["target"] == codes.index("registers")) & (references["target_id"] >= 0)
    target = references["target_id"].copy()
    clones = _clones(ir, "operands")
    function = ir.tables["registers"]["function_id"]
    for row in np.flatnonzero(mine).tolist():
        at = int(target[row])
        if clones[references["row"][row]]:
            own = np.flatnonzero(function == function[at])
            target[row] = own[(np.flatnonzero(own == at)[0] + 1) % len(own)]
    return _with(spliced, references=references.replace(target_id=target))


def _offsets_lost(spliced: Any, *_: Any) -> Any:
    operands = spliced.ir.tables["operands"]
    offset = operands["offset"].copy()
    offset[_clones(spliced.ir, "operands") & (offset > 0)] = 0
    return _with(spliced, operands=operands.replace(offset=offset))


def _roles_lost(spliced: Any, *_: Any) -> Any:
    """The first operand of a clone is taken for its second one, where both have a location of the same size."""
    operands, size = spliced.ir.tables["operands"], _sizes(spliced.ir)
    location, owner = operands["location_id"].copy(), operands["instruction_id"]
    own = operands["set_id"].copy()
    mine = _clones(spliced.ir, "operands")
    for row in range(1, len(location)):
        pair = mine[row] and owner[row] == owner[row - 1] and operands["role"][row] == operands["role"][row - 1]
        if pair and min(location[row], location[row - 1]) >= 0 and size[location[row]] == size[location[row - 1]]:
            location[row], own[row] = operands["location_id"][row - 1], operands["set_id"][row - 1]
    return _with(spliced, operands=operands.replace(location_id=location, set_id=own))


def _edges_lost(spliced: Any, *_: Any) -> Any:
    edges = spliced.ir.tables["dependencies"]
    on = edges["on_instruction_id"].copy()
    chain = spliced.ir.tables["instructions"]["call_chain_id"]
    crossing = (
        (edges["relation"] == vocab.RELATION_PLAIN)
        & (on >= 0)
        & (chain[edges["instruction_id"]] != chain[np.maximum(on, 0)])
    )
    on[crossing] = edges["instruction_id"][crossing]
    return _with(spliced, dependencies=edges.replace(on_instruction_id=on))


def _places_swapped(row: Array, stays: Any, bodies: Any, body: Array, layout: Any, *rest: Any) -> tuple[Any, ...]:
    """Two bodies that stand in a block, one behind the other, change places."""
    row, segment = row.copy(), layout.segments.of_site
    for one in range(len(row) - 1):
        if segment[one] == segment[one + 1] and not bodies.split[body[[one, one + 1]]].any():
            row[one], row[one + 1] = row[one + 1], row[one]
    return row, stays, bodies, body, layout, *rest


# -- loops --------------------------------------------------------------------------------------------------------


def _fewer(trips: Array, *_: Array) -> Array:
    return np.maximum(trips - 1, 0)


def _at_least_once(trips: Array, *_: Array) -> Array:
    return np.maximum(trips, 1)


def _upper_included(trips: Array, lower: Array, upper: Array, stride: Array) -> Array:
    exact = (upper - lower) % np.where(stride == 0, 1, stride) == 0
    return trips + (exact & (trips > 0))


def _no_stride(_: None, iterations: Any) -> None:
    iterations.value = iterations.value - _step(iterations) * iterations.iteration + iterations.iteration


def _step(iterations: Any) -> Array:
    """Return the stride of the loop that each instance is an iteration of."""
    loops = iterations.loops
    loop = loops.owning_loop[iterations.block]
    return np.where(loop >= 0, loops.stride[np.maximum(loop, 0)] if len(loops.stride) else 0, 0)


def _first(iterations: Any) -> Array:
    loops = iterations.loops
    loop = loops.owning_loop[iterations.block]
    return np.where(loop >= 0, loops.lower[np.maximum(loop, 0)] if len(loops.lower) else 0, 0)


def _from_zero(_: None, iterations: Any) -> None:
    iterations.value = iterations.value - _first(iterations)


def _always_up(_: None, iterations: Any) -> None:
    step = _step(iterations)
    iterations.value = np.where(step < 0, iterations.value - 2 * step * iterations.iteration, iterations.value)


def _backwards(_: None, iterations: Any) -> None:
    loops = iterations.loops
    loop = loops.owning_loop[iterations.block]
    last = np.where(loop >= 0, iterations.trips[np.maximum(loop, 0)] - 1 if len(iterations.trips) else 0, 0)
    iterations.value = iterations.value + _step(iterations) * (last - 2 * iterations.iteration)


def _by_instruction(_: None, iterations: Any) -> None:
    """All instances of an instruction stand together: within each block that stays, rows are sorted by their source."""
    kept = np.repeat(np.arange(int(iterations.kept.sum())), iterations.sizes[iterations.kept])
    order = np.lexsort((iterations.source, kept))
    iterations.source, iterations.instance = iterations.source[order], iterations.instance[order]


def _innermost(value: Array, values: Any, depth: int) -> Array:
    return values.iterations.value


def _first_immediate(result: Any, text: str) -> Any:
    from arrowir.expressions import Compiler

    compiler = Compiler()
    return result[0], compiler.program((compiler.constant(0),)), result[2]


def _strides_turned(result: Any, shapes: list[str], shape: Array, dimension: int) -> Any:
    values, wide = result
    return np.where(values > 1, values - 1, values), wide


def _to_the_next_block(made: Any, tables: Any, name: str) -> Any:
    if name != "branches" or not len(made):
        return made
    blocks = tables.ir.tables["blocks"]
    count = int(tables.iterations.kept.sum())
    function = blocks["function_id"][tables.iterations.kept]
    target = made["block_id"]
    after = np.minimum(target + 1, count - 1)
    return made.replace(block_id=np.where((target >= 0) & (function[after] == function[target]), after, target))


def _names_kept(names: Any, tables: Any, *_: Any) -> Any:
    from arrowir.names import picked

    return picked(tables.ir.tables["instructions"].text(), tables.iterations.source)


# -- reservation --------------------------------------------------------------------------------------------------


def _address_wrong(made: IR, *_: Any) -> IR:
    locations = made.tables["locations"]
    reserved = locations["runtime_reserved"] == 1
    return made.replace(locations=locations.replace(addr=np.where(reserved, locations["addr"] - 8, locations["addr"])))


def _not_moved(made: IR, step: Any, ir: IR, plan: Any) -> IR:
    """Operands of the modules behind the first one are not moved by the location that it gets."""
    return made.replace(operands=ir.tables["operands"])


INLINE, SPLICE = "arrowir.passes.inline_nki_kernel", f"{INLINING}.splice"
BODIES, ITERATIONS = f"{INLINING}.kernel_bodies:Bodies", f"{UNROLLING}.iterations:Iterations"


def _spliced(change: Change) -> tuple[str, str, Change]:
    """Change what comes of putting bodies in place of the call-sites of ordinary functions."""
    return INLINE, "splice", change


def _inline(name: str, rule: str, fault: str, *patches: Any, caught: Catcher = "execution") -> Mutation:
    return Mutation(name, "inline_nki_kernel", rule, fault, patches, caught)


def _unroll(name: str, rule: str, fault: str, *patches: Any, caught: Catcher = "execution") -> Mutation:
    return Mutation(name, "unroll", rule, fault, patches, caught)


# -- constants ----------------------------------------------------------------------------------------------------


def _turned(found: Array, *_: Any) -> Array:
    return ~found


def _zeros(state: Any, instructions: Array, bits: Array) -> tuple[Any, ...]:
    return state, instructions, np.zeros_like(bits)


def _first_operand(state: Any, instructions: Array, _: Array) -> tuple[Any, ...]:
    return state, instructions, state.code.first[instructions]


def _unread(propagation: Any) -> tuple[Any, ...]:
    propagation.state.readers[:] = 0
    return (propagation,)


def _all_pure(found: Array, *_: Any) -> Array:
    return np.ones_like(found)


def _none_bridged(edges: Any, *_: Any) -> Any:
    return edges.pick(np.flatnonzero(edges.row >= 0))


def _none_go(*_: Any) -> frozenset[str]:
    return frozenset()


def _propagate(name: str, rule: str, fault: str, *patches: Any, caught: Catcher = "execution") -> Mutation:
    return Mutation(name, "constant_propagate", rule, fault, patches, caught)


MUTATIONS: tuple[Mutation, ...] = (
    _inline("actuals_swapped", "N4", "two parameters of one size are bound to each other's actual",
            (INLINE, "bind", _actuals_swapped)),
    _inline("next_call_site", "N4", "a parameter gets the actual of the next call-site of its kernel",
            (INLINE, "bind", _next_call_site)),
    _inline("first_entry_counts", "N4", "of several entries for a parameter the first one counts, not the last",
            (f"{INLINING}.binding", "_entries", _first_entry_counts)),
    _inline("no_registers", "N4", "registers are not bound", (INLINE, "bind", _no_registers)),
    _inline("registers_rolled", "N4", "registers are bound to those of the entry before",
            (INLINE, "bind", _registers_rolled)),
    _inline("one_after_the_other", "N5", "parameters are replaced one after the other, so that names are captured",
            (INLINE, "bind", _one_after_the_other)),
    _inline("captured", "N11", "an operand of a clone means the caller's location of that name",
            _spliced(_captured)),
    _inline("storage_merged", "N8", "two locations of a body become one", _spliced(_storage_merged)),
    _inline("registers_in_text", "N11", "registers in the expressions of a clone are mixed up",
            _spliced(_registers_in_text)),
    _inline("offsets_lost", "N10", "accesses of clones begin at 0", _spliced(_offsets_lost)),
    _inline("roles_lost", "N11", "the second operand of a clone is the first one", _spliced(_roles_lost)),
    _inline("last_dropped", "N12", "the last instruction of a body is dropped like a `Return`",
            (BODIES, "drop_returns", _last_dropped)),
    _inline("return_kept", "N12", "a final `Return` stays", (BODIES, "drop_returns", _return_kept)),
    _inline("early_return_ignored", "N13", "a `Return` before the end of the only block is taken for no branch",
            (f"{INLINING}.canonical", "shape", _early_return_ignored)),
    _inline("entry_lost", "N13", "a branch to the entry goes to the caller's block",
            (f"{INLINING}.canonical", "shape", _entry_lost)),
    _inline("back_to_the_start", "N13", "a `Return` goes to the last block of the body, not behind it",
            (f"{INLINING}.canonical", "close", _back_to_the_start)),
    _inline("slots_swapped", "N13", "the targets of branches in clones are swapped", _spliced(_slots_swapped)),
    _inline("to_the_first_copy", "N13", "branches of all copies of a body go to the blocks of the first one",
            _spliced(_to_the_first_copy)),
    _inline("places_swapped", "N20", "two bodies that stand one behind the other change places",
            (f"{INLINING}.layout", "place", Given(_places_swapped))),
    _inline("formals_left", "N11", "operands of clones point at locations that are not there",
            _spliced(_formals_left), caught="assert_valid"),
    _inline("storage_shared", "N8", "all copies of a body share the storage of the first one",
            _spliced(_storage_shared)),
    _inline("base_twice", "N7", "the base of the scratchpad is added to addresses twice",
            (INLINE, "bind", _base_twice), caught="oracle"),
    _inline("edges_lost", "N14", "edges between a body and what is around it are lost",
            _spliced(_edges_lost), caught="oracle"),
    _unroll("fewer", "U1", "the last iteration of each loop is lost", (f"{UNROLLING}.loops", "_trip_counts", _fewer)),
    _unroll("upper_included", "U1", "the upper bound is taken to be included",
            (f"{UNROLLING}.loops", "_trip_counts", _upper_included)),
    _unroll("at_least_once", "U1", "a loop without trips runs once",
            (f"{UNROLLING}.loops", "_trip_counts", _at_least_once)),
    _unroll("no_stride", "U1", "the stride is taken to be 1", (ITERATIONS, "_number", _no_stride)),
    _unroll("from_zero", "U1", "the lower bound is taken to be 0", (ITERATIONS, "_number", _from_zero)),
    _unroll("always_up", "U1", "a negative stride counts up", (ITERATIONS, "_number", _always_up)),
    _unroll("backwards", "U1", "iterations come in the other order", (ITERATIONS, "_number", _backwards)),
    _unroll("by_instruction", "U1", "all copies of an instruction stand together, not those of an iteration",
            (ITERATIONS, "_place", _by_instruction)),
    _unroll("innermost", "U5", "every axis has the value of the innermost loop",
            (f"{UNROLLING}.values:LoopValues", "at_depth", _innermost)),
    _unroll("first_immediate", "U6", "a symbolic immediate is the first of its values",
            (f"{UNROLLING}.symbolic", "immediate", _first_immediate)),
    _unroll("strides_turned", "U4", "the stride of a dimension is one element too small",
            (f"{UNROLLING}.text", "_strides", _strides_turned)),
    _unroll("to_the_next_block", "U2", "branches go to the block behind the one that they name",
            (f"{UNROLLING}.tables:UnrolledTables", "_children", _to_the_next_block)),
    _unroll("names_kept", "U3", "all copies of an instruction keep its name",
            (f"{UNROLLING}.tables:UnrolledTables", "_names", _names_kept), caught="oracle"),
    _propagate("select_turned", "C2", "a Select by 1 becomes a copy of what it does not choose, one by 0 too",
               (PROPAGATION, "is_one", _turned), (PROPAGATION, "is_zero", _turned)),
    _propagate("filled_with_zeros", "C2", "every Memset that a copy becomes is one of zeros",
               (f"{CONSTANTS}.state:State", "fill", Given(_zeros))),
    _propagate("predicate_copied", "C2", "a Select becomes a copy of its predicate",
               (f"{CONSTANTS}.state:State", "copy", Given(_first_operand))),
    _propagate("removed_though_read", "C3", "what is read goes like what is not",
               (f"{PROPAGATION}:Propagation", "_sweep", Given(_unread))),
    _propagate("effects_ignored", "C3", "what has an effect beside its outputs goes too",
               (f"{CONSTANTS}.effects:Effects", "none", _all_pure), caught="oracle"),
    _propagate("bridges_lost", "C3", "edges over what is removed are lost",
               (f"{CONSTANTS}.bridging", "bridge", _none_bridged), caught="oracle"),
    _propagate("keys_left", "C2", "the keys of the old opcode stay",
               (f"{CONSTANTS}.tables", "keys_that_go", _none_go), caught="oracle"),
    Mutation("not_moved", "runtime_memory_reservation", "M5",
             "operands of later modules of a batch are not moved behind the new location",
             (("arrowir.passes.runtime_memory_reservation:RuntimeMemoryReservation", "apply", _not_moved),)),
    Mutation("address_wrong", "runtime_memory_reservation", "M3", "the region begins 8 bytes too low",
             (("arrowir.passes.runtime_memory_reservation:RuntimeMemoryReservation", "apply", _address_wrong),),
             "oracle"),
)  # fmt: skip
"""All faults."""
