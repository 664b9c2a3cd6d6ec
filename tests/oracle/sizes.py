"""What the pass leaves, found before anything is made: which functions go (N15), how many rows there will be (O6)."""

import json
from dataclasses import dataclass

from tests.oracle.binding import Site
from tests.oracle.call_sites import Calls
from tests.oracle.graph import Block, Function, Instruction, Module, Ref, parse_function, render, walk
from tests.oracle.lowering import loops_around, lowered_loops
from tests.oracle.names import kernel_functions
from tests.oracle.outcome import PassFailure
from tests.oracle.resolve import BRANCH_KEYS, CALLEE_KEYS, resolve_function
from tests.oracle.unrolling import LoopPlan, known_trips, loop_range, trip_count, unroll_function


def trips_of(instruction: Instruction, shard_id: int) -> range | None:
    """The trips of a loop; None of anything else, and of a loop that cannot be unrolled and fails later."""
    if instruction.opcode != "Loop":
        return None
    try:
        return loop_range(instruction, shard_id)
    except PassFailure:
        return None


def surviving(blocks: list[Block], shard_id: int) -> list[Instruction]:
    """The instructions of a body that have an instance when it is flat: none of a loop without trips."""
    found = []
    for block in blocks:
        for instruction in block.instructions:
            found.append(instruction)
            trips = trips_of(instruction, shard_id)
            if trips is None or trips:
                found += surviving(instruction.blocks, shard_id)
    return found


# N15


def removed_functions(module: Module, calls: Calls, shard_id: int) -> list[Function]:
    """N15: expanded kernel functions that no call that stays, of whatever function stays, names."""
    expanded = calls.callees()
    sites = calls.by_instruction
    # What the canonical body of each callee still names.
    left: dict[Function, set[Function]] = {}
    for callee in expanded:
        left[callee] = named_in(surviving(callee.blocks, shard_id), sites, left)
    candidates = [function for function in kernel_functions(module) if function in expanded]
    staying = [function for function in module.all_functions if function not in candidates]
    while True:
        named: set[Function] = set()
        for function in staying:
            # The module's own kernel functions keep their call-sites: only copies of them are expanded.
            replaced = sites if function in calls.outermost else {}
            named |= named_in(list(walk(function.blocks)), replaced, left)
        rescued = [function for function in candidates if function in named]
        if not rescued:
            return candidates
        candidates = [function for function in candidates if function not in rescued]
        staying += rescued


def named_in(
    instructions: list[Instruction], sites: dict[Instruction, Site], left: dict[Function, set[Function]]
) -> set[Function]:
    """The functions that call-sites and `Call`s name, with bodies in the place of expanded call-sites."""
    found: set[Function] = set()
    for instruction in instructions:
        if instruction in sites:
            found |= left[sites[instruction].callee]
            continue
        ref = instruction.obj.get(CALLEE_KEYS.get(instruction.opcode, ""))
        if isinstance(ref, Ref) and isinstance(ref.target, Function):
            found.add(ref.target)
    return found


# O6


@dataclass
class Run:
    """Rows one after the other: their number, the `Return`s among them, and whether the last is one."""

    rows: int = 0
    returns: int = 0
    ends_in_return: bool = False

    def add(self, other: "Run", times: int = 1) -> None:
        if other.rows and times:
            self.rows += times * other.rows
            self.returns += times * other.returns
            self.ends_in_return = other.ends_in_return


@dataclass(frozen=True)
class BodySize:
    """A canonical body: all its rows, whether it needs a split (N13), and the rows that a call-site becomes."""

    rows: int
    is_split: bool
    in_place: int


class Sizes:
    """O6: rows of bodies and of functions. Helpers of N13 and N14 are left out, but for a lone `_noop` (N12)."""

    def __init__(self, module: Module, calls: Calls, shard_id: int) -> None:
        self.module = module
        self.sites = calls.by_instruction
        self.shard_id = shard_id
        self.bodies: dict[Function, BodySize] = {}
        self.lowered: set[Instruction] = set()
        for callee in calls.callees():
            self.bodies[callee] = self.body_size(callee)

    def body_size(self, callee: Function) -> BodySize:
        lowered = self.lowered_in(callee)
        self.lowered |= lowered
        runs = [self.run_of(block, unrolled=True) for block in callee.blocks]
        rows = sum(run.rows for run in runs) + (self.rows_of_lowering(callee, lowered) if lowered else 0)
        is_split = len(runs) > 1 or self.has_split(callee) or self.branches_to_entry(callee)
        is_split = is_split or any(each in self.lowered for each in surviving(callee.blocks, self.shard_id))
        if not runs or is_split:
            return BodySize(rows, is_split, rows)
        [run] = runs
        returns_early = run.returns > 1 or (run.returns == 1 and not run.ends_in_return)
        return BodySize(rows, returns_early, rows - (run.ends_in_return and not returns_early))

    def lowered_in(self, callee: Function) -> set[Instruction]:
        """U2: the loops of the callee that become branches."""
        found = lowered_loops(callee, known_trips(callee.blocks, self.shard_id))
        for instruction in surviving(callee.blocks, self.shard_id):
            site = self.sites.get(instruction)
            if site is not None and self.bodies[site.callee].is_split:
                found |= set(loops_around(instruction))
        return found

    def rows_of_lowering(self, callee: Function, lowered: set[Instruction]) -> int:
        """U2: what lowered loops get beside their bodies, found by unrolling a copy that keeps its call-sites."""
        copy = parse_function(json.loads(json.dumps(render(callee))))
        resolve_function(self.module, copy)
        twins = zip(walk(callee.blocks), walk(copy.blocks), strict=True)
        try:
            plan = LoopPlan(copy, self.shard_id, also={twin for each, twin in twins if each in lowered})
            flat = plan.rows
            unroll_function(plan)
        except PassFailure:  # the module fails for that later
            return 0
        return len(list(copy.instructions())) - flat

    def has_split(self, callee: Function) -> bool:
        """Whether expanding the callee's own call-sites gives it several blocks."""
        direct = [self.sites.get(each) for block in callee.blocks for each in block.instructions]
        return any(site is not None and self.bodies[site.callee].is_split for site in direct)

    def branches_to_entry(self, callee: Function) -> bool:
        for instruction in surviving(callee.blocks, self.shard_id):
            for key in BRANCH_KEYS.get(instruction.opcode, ()):
                ref = instruction.obj.get(key)
                if isinstance(ref, Ref) and ref.target is callee.blocks[0]:
                    return True
        return False

    def run_of(self, block: Block, *, unrolled: bool) -> Run:
        """The rows of a block when its call-sites are expanded, and its loops if that is wanted."""
        run = Run()
        for instruction in block.instructions:
            site = self.sites.get(instruction)
            trips = trips_of(instruction, self.shard_id) if unrolled and instruction not in self.lowered else None
            if site is not None:
                run.add(Run(self.bodies[site.callee].in_place))
                continue
            if trips is None and not (unrolled and instruction in self.lowered):
                run.add(Run(1, int(instruction.opcode == "Return"), instruction.opcode == "Return"))
            for body in instruction.blocks:
                run.add(self.run_of(body, unrolled=unrolled), 1 if trips is None else trip_count(trips))
        return Run(1) if self.is_left_empty(block) else run

    def is_left_empty(self, block: Block) -> bool:
        """N13: a block of nothing but call-sites without rows gets one NoOp."""
        sites = [self.sites.get(each) for each in block.instructions]
        sizes = [None if site is None else self.bodies[site.callee] for site in sites]
        return bool(sizes) and all(size is not None and not size.is_split and not size.in_place for size in sizes)

    def rows_after(self, function: Function) -> int:
        """The rows of an ordinary function; its loops stay."""
        return sum(self.run_of(block, unrolled=False).rows for block in function.blocks)


def predicted_rows(module: Module, calls: Calls, removed: list[Function], shard_id: int) -> int:
    """O6: all rows after the pass, and each unrolled body once."""
    sizes = Sizes(module, calls, shard_id)
    rows = sum(size.rows for size in sizes.bodies.values())
    for function in module.all_functions:
        if function in calls.outermost:
            rows += sizes.rows_after(function)
        elif function not in removed:
            rows += len(list(function.instructions()))
    return rows
