"""Loops that become branches and registers (U2), in plain Python: which ones, and what is made of them."""

from dataclasses import dataclass, field
from typing import Any

from tests.oracle.edit import edited, sorted_object
from tests.oracle.expressions import Scope, fold, is_integer
from tests.oracle.graph import STRUCTURED, Block, Function, Instruction, Ref, Register
from tests.oracle.outcome import PassFailure

JUMPS = {"UnconditionalBranch": ("target",), "CompareAndBranch": ("on_true", "on_false")}
TERMINATORS = ("Terminator", "CompareAndBranch", "UnconditionalBranch", "Return", "Exit", "Break")
SMALLEST_COUNT, LARGEST_COUNT = -(2**31), 2**31 - 1


# which


def lowered_loops(function: Function, trips: dict[Instruction, range | None]) -> set[Instruction]:
    """U2: loops of run time, with several blocks, a `Break` or a branch to a block of their own; and those around.

    `trips` has all loops; None is a loop of run time, and a loop whose bounds are wrong is not in it.
    """
    seen = list(seen_instructions(function.blocks, trips))
    found = {each for each in seen if each.opcode in STRUCTURED and each in trips and needs_branches(each, trips, seen)}
    for instruction in seen:
        if instruction in found:
            found.update(loops_around(instruction))
    return {each for each in found if each in trips}


def seen_instructions(blocks: list[Block], trips: dict[Instruction, range | None]) -> Any:
    for block in blocks:
        for instruction in block.instructions:
            yield instruction
            if runs(instruction, trips):
                yield from seen_instructions(instruction.blocks, trips)


def runs(loop: Instruction, trips: dict[Instruction, range | None]) -> bool:
    known = trips.get(loop)
    return known is None or bool(known)


def needs_branches(loop: Instruction, trips: dict[Instruction, range | None], seen: list[Instruction]) -> bool:
    if trips[loop] is None:
        return True
    if not trips[loop]:
        return False
    if len(loop.blocks) > 1:
        return True
    own = [instruction for block in loop.blocks for instruction in block.instructions]
    if any(instruction.opcode == "Break" for instruction in own):
        return True
    targets = [instruction.obj.get(key) for instruction in seen for key in JUMPS.get(str(instruction.opcode), ())]
    return any(isinstance(ref, Ref) and ref.target in loop.blocks for ref in targets)


def loops_around(instruction: Instruction) -> list[Instruction]:
    found = []
    owner = instruction.block.owner
    while isinstance(owner, Instruction):
        found.append(owner)
        owner = owner.block.owner
    return found


def check_count(trips: range) -> None:
    """A register holds each value, and the one behind the last."""
    behind = (
        trips.start
        + max(0, (trips.stop - trips.start + trips.step - (1 if trips.step > 0 else -1)) // trips.step) * trips.step
    )
    for value in (trips.start, trips.stop, trips.step, behind):
        check_number(value)


def check_number(value: Any) -> int:
    if not is_integer(value):
        raise PassFailure("bad_expression", f"{value} is no integer")
    if not SMALLEST_COUNT <= value <= LARGEST_COUNT:
        raise PassFailure("integer_overflow", f"{value} does not fit a register of 32 bits")
    return value


# what


@dataclass(eq=False)
class Lowered:
    """One loop that becomes branches."""

    loop: Instruction
    name: str
    """The name of the function's block that it stands in."""
    number: int
    registers: dict[str, Register] = field(default_factory=dict)
    parts: Any = None
    entry: Block = field(init=False)
    body: Block = field(init=False)
    exit: Block = field(init=False)
    resume: Block = field(init=False)
    wanted: dict[Any, str] = field(default_factory=dict)
    """Names of what is new."""

    def __post_init__(self) -> None:
        self.entry, self.exit, self.resume = (self.block(what) for what in ("LoopEntry", "LoopExit", "Resume"))
        for place, block in enumerate(self.loop.blocks):
            self.wanted[block] = self.called("LoopBody", f"_{block.name or ''}" if place else "")
            if "name" not in block.obj:
                block.obj = edited(block.obj, {"name": None})
        self.body = self.loop.blocks[0] if self.loop.blocks else self.block("LoopBody")

    def called(self, what: str, behind: str = "") -> str:
        return f"{self.name}_{what}_{self.number}{behind}"

    def block(self, what: str) -> Block:
        made = Block(sorted_object(name=self.called(what), instructions=[]), [], self.loop)
        self.wanted[made] = self.called(what)
        return made

    def register(self, what: str) -> Register:
        if what not in self.registers:
            self.registers[what] = Register(sorted_object(Skind="register", name=self.called(what)))
            self.wanted[self.registers[what]] = self.called(what)
        return self.registers[what]

    def in_order(self) -> list[Register]:
        """The registers; those that hold what is computed on the way come last."""
        terms = [what for what in self.registers if what.startswith("LoopTerm")]
        kinds = ["LoopAxis", "LoopStep", "LoopEnd", "LoopCondition", *sorted(terms, key=lambda what: int(what[8:]))]
        return [self.registers[what] for what in kinds if what in self.registers]

    def row(self, where: str, what: str, opcode: str, **members: Any) -> Instruction:
        name = self.called(where, f"_{what}" if what else "")
        obj = sorted_object(**{"engine": "ALL", "ins": [], "outs": [], **members}, name=name, opcode=opcode)
        made = Instruction(obj, self.entry)
        self.wanted[made] = name
        return made

    def jump(self, where: str, what: str, target: Block) -> Instruction:
        return self.row(where, what, "UnconditionalBranch", target=Ref(target.name, target))

    def compare(self, where: str, op: str, left: Any, right: Any) -> Instruction:
        ways = {"on_true": Ref("", self.body), "on_false": Ref("", self.exit)}
        return self.row(where, "branch", "CompareAndBranch", comp_op=op, ins=[operand(left), operand(right)], **ways)


def operand(value: Any) -> Any:
    if is_integer(value):
        return sorted_object(dtype="int32", kind="imm_value", value=value)
    return sorted_object(dtype="int32", kind="register_access", regref=Ref("", value))


@dataclass(eq=False)
class Parts:
    """The instructions of a lowered loop."""

    before: list[Instruction]
    latch: list[Instruction]


def parts_of(lowered: Lowered, trips: range | None, scope: Scope) -> Parts:
    if lowered.loop.opcode == "DoWhile":
        return tested(lowered, scope)
    if trips is not None:
        return counted(lowered, trips.start, trips.stop, trips.step, guarded=False)
    axis = lowered.loop.obj.get("DynamicForLoopAxis") or {}
    lower, upper, stride = (bound(axis.get(key), scope) for key in ("lb", "ub", "stride"))
    if not is_integer(stride):
        raise PassFailure("dynamic_loop", "the stride is known only at run time")
    for value in (lower, upper, stride):
        if is_integer(value):
            check_number(value)
    if is_integer(upper) and stride:
        check_number(upper - (1 if stride > 0 else -1) + stride)
    for value in (lower, upper):
        check_resolved(value)
    if stride == 0:
        raise PassFailure("zero_stride", "the loop has stride 0")
    return counted(lowered, lower, upper, stride, guarded=True)


def bound(written: Any, scope: Scope) -> Any:
    if written is None:
        return 0
    value = fold(written, scope)
    if not is_integer(value):
        Arithmetic(None, "", "").put(value, 0)
    return value


def check_resolved(value: Any) -> None:
    if isinstance(value, Ref) and value.target is None:
        raise PassFailure("unresolved_name", f"`{value.raw}` is not there")
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in items:
        check_resolved(item)


def counted(lowered: Lowered, lower: Any, upper: Any, stride: int, *, guarded: bool) -> Parts:
    axis, step = lowered.register("LoopAxis"), lowered.register("LoopStep")
    start = Arithmetic(lowered, "LoopEntry", "LoopAxis")
    start.put(lower, 0)
    before = [
        *start.rows,
        lowered.row("LoopEntry", "step", "RegisterMove", ins=[operand(stride)], outs=[operand(step)]),
    ]
    end, kind = upper, "IMM"
    if not is_integer(upper):
        end, kind = lowered.register("LoopEnd"), "REG"
        stop = Arithmetic(lowered, "LoopEntry", "LoopEnd")
        stop.put(upper, 0)
        before += stop.rows
    op = f"IS_{'LT' if stride > 0 else 'GT'}{kind}"
    if guarded:
        before.append(lowered.compare("LoopEntry", op, axis, end))
    else:
        before.append(lowered.jump("LoopEntry", "branch", lowered.body))
    adds = lowered.row(
        "LoopBody", "next", "RegisterAlu", ins=[operand(axis), operand(step)], outs=[operand(axis)], op="add"
    )
    return Parts(before, [adds, lowered.compare("LoopBody", op, axis, end)])


def tested(lowered: Lowered, scope: Scope) -> Parts:
    written = lowered.loop.obj.get("cond")
    if "cond" not in lowered.loop.obj:
        raise PassFailure("bad_expression", "the loop has no `cond`")
    condition = bound(written, scope)
    check_resolved(condition)
    before = [lowered.jump("LoopEntry", "branch", lowered.body)]
    leaf = leaf_of(condition)
    if leaf is not None:
        return Parts(before, [lowered.compare("LoopBody", "IS_NEIMM", leaf, 0)])
    test = Arithmetic(lowered, "LoopBody", "LoopCondition")
    test.put(condition, 0)
    compare = lowered.compare("LoopBody", "IS_NEIMM", lowered.register("LoopCondition"), 0)
    return Parts(before, [*test.rows, compare])


def leaf_of(value: Any) -> Any:
    """The register whose value an expression is."""
    if not isinstance(value, dict):
        return None
    if value.get("kind") == "IntRuntimeValueKind" and isinstance(value.get("regref"), Ref):
        return value["regref"].target or value["regref"]
    terms = value.get("terms") or []
    if value.get("kind") == "AffExprKind" and not value.get("c") and len(terms) == 1 and terms[0]["coeff"] == 1:
        return leaf_of(terms[0]["idx"])
    return None


class Arithmetic:
    """The rows that leave the value of an expression in a register. Without a loop it only looks whether it can."""

    def __init__(self, lowered: Lowered | None, where: str, target: str) -> None:
        self.lowered, self.where, self.target = lowered, where, target
        self.rows: list[Any] = []

    def register(self, level: int) -> Any:
        if self.lowered is None:
            return None
        return self.lowered.register(f"LoopTerm{level}" if level else self.target)

    def add(self, opcode: str, level: int, ins: list[Any], **members: Any) -> None:
        register = self.register(level)
        if self.lowered is None:
            return
        name = self.target.removeprefix("Loop").lower() + (str(len(self.rows)) if self.rows else "")
        ins = [operand(each) for each in ins]
        self.rows.append(self.lowered.row(self.where, name, opcode, ins=ins, outs=[operand(register)], **members))

    def alu(self, op: str, level: int, other: Any) -> None:
        self.add("RegisterAlu", level, [self.register(level), other], op=op)

    def with_number(self, op: str, level: int, number: Any) -> None:
        self.add("RegisterMove", level + 1, [check_number(number)])
        self.alu(op, level, self.register(level + 1))

    def put(self, value: Any, level: int) -> None:
        if is_integer(value):
            self.add("RegisterMove", level, [check_number(value)])
        elif (leaf := leaf_of(value)) is not None:
            self.add("RegisterMove", level, [leaf])
        elif not isinstance(value, dict):
            raise PassFailure("bad_expression", "no expression")
        elif value.get("kind") == "AffExprKind":
            terms = [(term["idx"], term["coeff"]) for term in value.get("terms") or []]
            self.sum(terms, value.get("c") or 0, level)
        elif value.get("kind") == "SumKind":
            self.sum([(term, 1) for term in value.get("terms") or []], 0, level)
        elif value.get("kind") == "MultKind":
            self.times(value["var"], value.get("scale"), level)
        elif value.get("kind") in ("FloorDivKind", "ModuloKind", "CCModKind"):
            by = value.get("denom")
            if not is_integer(by):
                raise PassFailure("bad_expression", "no divisor")
            if by not in [2**n for n in range(64)]:
                raise PassFailure("dynamic_loop", f"registers do not divide by {by}")
            self.put(value["numer"], level)
            if value["kind"] == "FloorDivKind":
                self.with_number("arith_shift_right", level, by.bit_length() - 1)
            else:
                self.with_number("bitwise_and", level, by - 1)
        else:
            raise PassFailure("dynamic_loop", f"no register holds a `{value.get('kind')}`")

    def times(self, value: Any, factor: Any, level: int) -> None:
        self.put(value, level)
        if factor != 1:
            self.with_number("mult", level, factor)

    def sum(self, terms: list[tuple[Any, Any]], constant: int, level: int) -> None:
        constant += sum(value * factor for value, factor in terms if is_integer(value))
        terms = [(value, factor) for value, factor in terms if not is_integer(value)]
        begun = bool(constant) or not terms
        if begun:
            self.put(constant, level)
        for value, factor in terms:
            if not begun:
                self.times(value, factor, level)
                begun = True
            elif factor == 1 and leaf_of(value) is not None:
                self.alu("add", level, leaf_of(value))
            else:
                self.times(value, factor, level + 1)
                self.alu("add", level, self.register(level + 1))


# where


@dataclass(eq=False)
class Mark:
    """A place in the flat code where blocks begin and end."""

    lowered: Lowered
    parts: Parts
    ends: bool = False
    begins: Block | None = None
    """The block of the body that begins; at the beginning the first one."""


def cut(block: Block, items: list[Any]) -> list[Block]:
    """Return the blocks that the flat code of a block becomes."""
    found: list[tuple[Block, list[Instruction]]] = [(block, [])]
    resumes = []
    for item in items:
        rows = found[-1][1]
        if isinstance(item, Instruction):
            rows.append(item)
            continue
        lowered, parts = item.lowered, item.parts
        leaves = any(row.opcode in TERMINATORS for row in rows)
        if item.ends:
            if not (rows and rows[-1].opcode in TERMINATORS):
                if leaves:
                    found.append((lowered.block("LoopNext"), []))
                found[-1][1].extend(parts.latch)
            found.append((lowered.exit, [lowered.jump("LoopExit", "branch", lowered.resume)]))
            found.append((lowered.resume, []))
            resumes.append(lowered)
        elif item.begins is lowered.body:
            if not leaves:
                rows.append(lowered.jump("br_to_LoopEntry", "", lowered.entry))
            found.append((lowered.entry, parts.before))
            found.append((lowered.body, []))
        else:
            found.append((item.begins, []))
    for lowered in resumes:
        for made, rows in found:
            if made is lowered.resume and not rows:
                rows.append(lowered.row("Resume", "noop", "NoOp"))
    for made, rows in found:
        if rows or made.obj.get("instructions"):
            made.obj = edited(made.obj, {"instructions": rows})
        for row in rows:
            row.block = made
    return [made for made, _ in found]


def to_branch(row: Instruction, lowered: Lowered) -> None:
    """A `Break` goes to the exit of its loop."""
    row.obj = edited(row.obj, {"opcode": "UnconditionalBranch", "target": Ref("", lowered.exit)})
