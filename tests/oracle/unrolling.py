"""Unrolling of loops, and symbolic operands made physical (rules U0 to U8)."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracle.arch import itemsize_of
from tests.oracle.edit import edge_changes, edited, give_fresh_names, sorted_object, taken_names
from tests.oracle.expressions import (
    RUNTIME_KINDS,
    Scope,
    evaluate,
    exact,
    fold,
    fold_attribute,
    fold_expression,
    holds,
    is_integer,
)
from tests.oracle.graph import (
    OPERAND_LISTS,
    RELATIONS,
    STRUCTURED,
    Block,
    Function,
    Instruction,
    Location,
    MemorySet,
    Ref,
    map_refs,
    refs_in,
    walk,
)
from tests.oracle.lowering import Lowered, Mark, check_count, cut, lowered_loops, parts_of, to_branch
from tests.oracle.outcome import Outcome, PassFailure, same_document
from tests.oracle.resolve import load
from tests.oracle.unrolled_edges import Instance, UnrolledEdges

MAX_INSTRUCTIONS = 25_000_000
SYMBOLIC_KINDS = ("symbolic_ap", "symbolic_pwap")
GENERIC_INDIRECT = ("GenericIndirectLoad", "GenericIndirectSave")
# U6: what is no attribute.
NOT_ATTRIBUTES = {
    "name",
    "opcode",
    "sync_info",
    "debug",
    "loopnest",
    "predicates",
    "blocks",
    "LoopAxis",
    "DynamicForLoopAxis",
    "func_args",
    "func_outs",
    "arguments",
    *OPERAND_LISTS,
    *RELATIONS,
}


def run_unroll(doc: dict[str, Any], *, shard_id: int = 0) -> Outcome:
    """U0: unroll all functions, `functions` first."""
    module = load(doc)
    try:
        plans = [LoopPlan(function, shard_id) for function in module.all_functions]
        check_size(sum(plan.rows for plan in plans))
        for plan in plans:
            unroll_function(plan)
    except PassFailure as failure:
        return Outcome("failed", doc, [failure.diagnostic])
    after = module.render()
    return Outcome("unchanged" if same_document(doc, after) else "changed", after, [])


def check_size(rows: int, max_instructions: int = MAX_INSTRUCTIONS) -> None:
    """O6: the size is checked before it is produced."""
    if rows > max_instructions:
        raise PassFailure(
            "too_many_instructions",
            f"{rows} instructions would result; at most {max_instructions} are allowed",
        )


@dataclass(eq=False)
class LoopPlan:
    """What can be said of a function's loops before anything is unrolled (O9): trips, nesting, size.

    `trips` has the loops that are seen: a loop without trips is in it, what is inside that loop is not.
    `loops_of` has the enclosing loops, outermost first, of every instruction that is seen.
    """

    function: Function
    shard_id: int = 0
    trips: dict[Instruction, range] = field(default_factory=dict)
    loops_of: dict[Instruction, tuple[Instruction, ...]] = field(default_factory=dict)
    lowered: dict[Instruction, Lowered] = field(default_factory=dict)
    """U2: the loops that become branches; as far as instances go they run once."""
    also: set[Instruction] = field(default_factory=set)
    """Loops that become branches whatever they hold."""

    def __post_init__(self) -> None:
        self.counts = known_trips(self.function.blocks, self.shard_id)
        self.branching = lowered_loops(self.function, self.counts) | self.also
        for block in self.function.blocks:
            self.look_at(block, (), block.name, Scope(shard_id=self.shard_id))

    @property
    def rows(self) -> int:
        return sum(self.size(block) for block in self.function.blocks)

    def look_at(self, block: Block, enclosing: tuple[Instruction, ...], top: str, scope: Scope) -> None:
        for instruction in block.instructions:
            self.loops_of[instruction] = enclosing
            inner = scope
            with located(self.function, instruction):
                if instruction.obj.get("predicates"):
                    raise PassFailure("predicated_instruction", "an instruction with predicates cannot be unrolled")
                if instruction.opcode not in STRUCTURED:
                    continue
                if instruction.opcode == "Loop":
                    self.trips[instruction] = loop_range(instruction, self.shard_id)
                    if not self.trips[instruction]:
                        continue
                if instruction in self.branching:
                    inner = self.lower(instruction, top, scope)
            for body in instruction.blocks:
                self.look_at(body, (*enclosing, instruction), top, inner)

    def lower(self, loop: Instruction, top: str, scope: Scope) -> Scope:
        """U2: what becomes of a loop that becomes branches; return what is known inside."""
        lowered = Lowered(loop, top, len(self.lowered) + 1)
        if loop.opcode == "Loop":
            check_count(self.trips[loop])
        lowered.parts = parts_of(lowered, self.counts[loop], scope)
        self.lowered[loop] = lowered
        self.trips[loop] = range(1)
        axis = axis_of(loop)
        return scope if axis is None else scope.inside(axis, lowered.register("LoopAxis"))

    def size(self, block: Block) -> int:
        """O6: the rows that a block has when it is flat; what lowered loops get beside is little."""
        rows = 0
        for instruction in block.instructions:
            if instruction in self.trips:
                rows += trip_count(self.trips[instruction]) * self.body_size(instruction)
            else:
                rows += 1
        return rows

    def body_size(self, loop: Instruction) -> int:
        return sum(self.size(body) for body in loop.blocks) if self.trips[loop] else 0

    def is_empty(self, loop: Instruction) -> bool:
        """U7: nothing comes of the loop, for want of trips or of a body."""
        return self.body_size(loop) == 0

    def is_repeated(self, instruction: Instruction) -> bool:
        """Whether some loop around is unrolled."""
        return any(loop not in self.lowered for loop in self.loops_of[instruction])


def known_trips(blocks: list[Block], shard_id: int) -> dict[Instruction, range | None]:
    """The trips of all loops whose bounds are right; None for loops of run time."""
    known: dict[Instruction, range | None] = {}
    for instruction in walk(blocks):
        if instruction.opcode == "Loop":
            with suppress(PassFailure):
                known[instruction] = loop_range(instruction, shard_id)
        elif instruction.opcode in STRUCTURED:
            known[instruction] = None
    return known


def axis_of(loop: Instruction) -> Any:
    return (loop.obj.get("LoopAxis") or loop.obj.get("DynamicForLoopAxis") or {}).get("name")


@contextmanager
def located(function: Function, instruction: Instruction) -> Iterator[None]:
    """Say of a failure that happens inside in which instruction it did."""
    try:
        yield
    except PassFailure as failure:
        if failure.diagnostic.instruction is None:
            failure.diagnostic = replace(
                failure.diagnostic,
                function=function.name,
                block=instruction.block.name,
                instruction=instruction.name,
            )
        raise


def trip_count(trips: range) -> int:
    """The length of a range of any size."""
    return max(0, (trips.stop - trips.start + trips.step - (1 if trips.step > 0 else -1)) // trips.step)


def loop_range(loop: Instruction, shard_id: int) -> range:
    """U1: constant bounds, absent is 0; stride 0 is an error."""
    axis = loop.obj.get("LoopAxis") or {}
    lower, upper, stride = (loop_bound(axis.get(key), shard_id) for key in ("lb", "ub", "stride"))
    if stride == 0:
        raise PassFailure("zero_stride", f"loop axis `{axis.get('name')}` has stride 0; give it another stride")
    return range(lower, upper, stride)


def loop_bound(bound: Any, shard_id: int) -> int:
    if bound is None:
        return 0
    if holds(bound, "AffIVKind") or (isinstance(bound, dict) and any("AxisLabel" in t for t in terms_of(bound))):
        raise PassFailure("dynamic_loop", "a loop bound depends on another loop's axis; make it a constant")
    return evaluate(bound, Scope(shard_id=shard_id), "dynamic_loop")


def terms_of(expression: dict[str, Any]) -> list[Any]:
    terms = expression.get("terms")
    return [term for term in terms if isinstance(term, dict)] if isinstance(terms, list) else []


def unroll_function(plan: LoopPlan) -> None:
    """U1 to U8 on one function whose loops have been looked at."""
    function = plan.function
    taken = taken_names(function)
    scope = Scope(shard_id=plan.shard_id)
    items = [(block, instances_of(plan, block, (), (), scope)) for block in function.blocks]
    instances = [item for _, made in items for item in made if isinstance(item, Instance)]
    UnrolledEdges(plan, instances).give()
    wanted: dict[Any, str] = {}
    for block, made in items:
        for item in made:
            if not isinstance(item, Instance):
                continue
            finish(item)
            item.node.block = block
            if item.node.opcode == "Break" and plan.loops_of[item.source]:
                item.break_out = plan.lowered[plan.loops_of[item.source][-1]]
            if plan.is_repeated(item.source) and item.source.name is not None:
                wanted[item.node] = f"{item.source.name}-{flat_number(plan, item)}"
    place_in_blocks(plan, items)
    for lowered in plan.lowered.values():
        wanted |= lowered.wanted
    give_fresh_names(function, taken, wanted)
    remove_need_unroll(function)


def place_in_blocks(plan: LoopPlan, items: list[tuple[Block, list[Any]]]) -> None:
    """U2: lowered loops cut blocks; their registers stand behind the function's allocations."""
    function = plan.function
    blocks: list[Block] = []
    for block, made in items:
        rows = [item.node if isinstance(item, Instance) else item for item in made]
        if any(isinstance(row, Mark) for row in rows):
            blocks += cut(block, rows)
        else:
            if block.instructions:
                block.obj["instructions"] = rows
            blocks.append(block)
    for _, made in items:
        for item in made:
            if isinstance(item, Instance) and item.break_out is not None:
                to_branch(item.node, item.break_out)
    if not plan.lowered:
        return
    function.obj["blocks"] = blocks
    registers = [register for lowered in plan.lowered.values() for register in lowered.in_order()]
    if registers:
        function.obj = edited(function.obj, {"allocations": [*function.storages, *registers]})


def instances_of(
    plan: LoopPlan, block: Block, loops: tuple[Instruction, ...], index: tuple[int, ...], scope: Scope
) -> list[Any]:
    """U1: the flat result, nests row-major; marks where lowered loops begin and end."""
    made: list[Any] = []
    for instruction in block.instructions:
        if instruction not in plan.trips:
            with located(plan.function, instruction):
                made.append(instance_of(instruction, loops, index, scope))
            continue
        axis = axis_of(instruction)
        lowered = plan.lowered.get(instruction)
        if lowered is not None:
            inner = scope if axis is None else scope.inside(axis, lowered.register("LoopAxis"))
            made.append(Mark(lowered, lowered.parts, begins=lowered.body))
            for body in instruction.blocks:
                if body is not lowered.body:
                    made.append(Mark(lowered, lowered.parts, begins=body))
                made += instances_of(plan, body, (*loops, instruction), (*index, 0), inner)
            made.append(Mark(lowered, lowered.parts, ends=True))
            continue
        if plan.is_empty(instruction):
            continue
        for number, value in enumerate(plan.trips[instruction]):
            for body in instruction.blocks:
                inner = scope.inside(axis, value)
                made += instances_of(plan, body, (*loops, instruction), (*index, number), inner)
    return made


def instance_of(source: Instruction, loops: tuple[Instruction, ...], index: tuple[int, ...], scope: Scope) -> Instance:
    """One instruction of the result; its edges come later."""
    obj = map_refs(source.obj, lambda ref: Ref(ref.raw, ref.target))
    changes: dict[str, Any] = {}
    for key, value in obj.items():
        if key in OPERAND_LISTS and value:
            changes[key] = [unroll_operand(source, operand, scope, in_loop=bool(loops)) for operand in value]
        elif key not in NOT_ATTRIBUTES:
            changes[key] = fold_attribute(value, scope)
    node = source if not index else Instruction({}, source.block)
    node.obj = edited(obj, changes)
    node.original_name = source.original_name
    node.provenance = source.provenance
    return Instance(source, index, scope, node)


def finish(instance: Instance) -> None:
    """Put the edges in place and drop `loopnest` (U7, U8), both at once for F6."""
    changes, drop = edge_changes(instance.node.obj, instance.edges)
    changes |= instance.renamed
    instance.node.obj = edited(instance.node.obj, changes, {*drop, "loopnest"})


def flat_number(plan: LoopPlan, instance: Instance) -> int:
    """U3: the number of the iteration over the whole nest."""
    number = 0
    for loop, iteration in zip(plan.loops_of[instance.source], instance.index, strict=True):
        number = number * trip_count(plan.trips[loop]) + iteration
    return number


def remove_need_unroll(function: Function) -> None:
    """U8: from the list or from the object of attributes."""
    attributes = function.obj.get("attributes")
    if isinstance(attributes, list):
        function.obj["attributes"] = [each for each in attributes if each != "need_unroll"]
    elif isinstance(attributes, dict):
        attributes.pop("need_unroll", None)


def set_named_by(operand: dict[str, Any]) -> MemorySet | None:
    """R2: the set of the location, and only without one the set that is named."""
    for key in ("memref", "memsetref"):
        ref = operand.get(key)
        if isinstance(ref, Ref):
            if isinstance(ref.target, Location):
                return ref.target.set
            return ref.target if isinstance(ref.target, MemorySet) else None
    return None


def is_block_tensor(memory_set: MemorySet) -> bool:
    """U2: by its class or by its blocks."""
    return "Block" in str(memory_set.obj.get("tensor_class")) or memory_set.obj.get("NBlocks") is not None


def unroll_operand(source: Instruction, operand: Any, scope: Scope, *, in_loop: bool) -> Any:
    if not isinstance(operand, dict):
        return operand
    memory_set = set_named_by(operand)
    if in_loop and memory_set is not None and is_block_tensor(memory_set):
        raise PassFailure("block_tensor", f"`{memory_set.name}` has a block for each iteration; that is not lowered")
    if operand.get("kind") == "symbolic_imm_value":
        return immediate(operand, scope)
    if operand.get("kind") not in SYMBOLIC_KINDS:
        return operand
    addresses = operand.get("addrs") or []
    if source.opcode in GENERIC_INDIRECT and holds(addresses, "IndirectArgId"):
        return edited(operand, {"addrs": [fold_expression(each, scope) for each in addresses]})
    return physical(operand, memory_set, addresses, scope)


def physical(operand: dict[str, Any], memory_set: MemorySet | None, addresses: list[Any], scope: Scope) -> Any:
    """U4: a symbolic access with its offset worked out."""
    if memory_set is None:
        named = next((str(ref.raw) for ref in refs_in(operand)), "")
        raise PassFailure("unresolved_name", f"operand names set `{named}`, which the function does not have")
    shape = memory_set.obj.get("tensor_shape") or []
    if len(addresses) != len(shape):
        raise PassFailure(
            "address_rank_mismatch",
            f"{len(addresses)} addresses for `{memory_set.name}` of {len(shape)} dimensions",
        )
    if len(memory_set.locations) != 1:
        raise PassFailure(
            "symbolic_location_count",
            f"`{memory_set.name}` has {len(memory_set.locations)} locations; one is needed",
        )
    location = memory_set.locations[0]
    itemsize = itemsize_of(operand.get("dtype"))
    offset = 0
    moving: list[tuple[int, int, Any]] = []
    for dimension, address in enumerate(addresses):
        stride = stride_of(location, shape, dimension, itemsize)
        value = fold(address, scope)
        if not is_integer(value) and not any(holds(address, kind) for kind in (*RUNTIME_KINDS, "CCDivKind")):
            moving.append((dimension, stride, value))
            continue
        value = evaluate(address, scope, "runtime_address")
        offset = exact(offset + exact(value * stride))
    if not 0 <= offset < location.total_bytes // itemsize:
        raise PassFailure(
            "address_out_of_bounds",
            f"offset {offset} is not inside `{location.name}` of {location.total_bytes // itemsize} elements",
            location=location.name,
        )
    changes: dict[str, Any] = {"kind": "physical_ap", "memref": Ref(location.name, location), "offset": offset}
    if moving:
        changes["dynamic_ap_info"] = dynamic(moving, shape)
    return edited(operand, changes, {"addrs"})


def dynamic(moving: list[tuple[int, int, Any]], shape: list[int]) -> dict[str, Any]:
    """U4: what a register adds to an offset. The letters W, Z, Y, X have numbers from 0; X is the last dimension."""
    first = moving[0][0]
    return sorted_object(
        aff_expr=[sorted_object(coef=stride, offset_expr=value) for _, stride, value in moving],
        c=0,
        indirect_dim=0 if first == 0 else max(1, 4 - (len(shape) - first)),
        indirect_dim_max_index=shape[first],
    )


def stride_of(location: Location, shape: list[int], dimension: int, itemsize: int) -> int:
    """U4: row-major over the shape, but the first dimension of SB and PSUM steps by whole partitions."""
    if dimension == 0 and location.memory in ("SB", "PSUM"):
        return location.partition_bytes // itemsize
    stride = 1
    for size in shape[dimension + 1 :]:
        stride = exact(stride * size)
    return stride


def immediate(operand: dict[str, Any], scope: Scope) -> dict[str, Any]:
    """U6: a symbolic immediate becomes the element that its expression selects."""
    values = operand.get("value_list") or []
    if len(values) == 1:
        chosen = values[0]
    else:
        number = fold(operand["expr"], scope) if operand.get("expr") is not None else -1
        if not is_integer(number):
            raise PassFailure("runtime_address", "an immediate is selected by a value known only at run time")
        if not 0 <= number < len(values):
            raise PassFailure("immediate_out_of_range", f"element {number} of a list of {len(values)} values")
        chosen = values[number]
    value = chosen["value"] if isinstance(chosen, dict) and "value" in chosen else chosen
    return edited(operand, {"kind": "imm_value", "value": value}, {"value_list", "expr"})
