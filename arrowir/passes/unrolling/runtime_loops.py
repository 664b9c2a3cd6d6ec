"""Loops that are counted while they run: their bounds and conditions as register arithmetic (rule U2).

A *form* says which registers and instructions a lowered loop gets. Bounds of run time are worked out once for each
distinct text; loops whose texts are alike have the same form and differ in numbers alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from arrowir import expressions, extras, schema
from arrowir import vocabulary as vocab
from arrowir.expressions import Hole, Rest, Slot
from arrowir.ir import IR
from arrowir.passes.unrolling.marking import marked
from arrowir.schema import NULL_INT
from arrowir.store import Array, children

SMALLEST_COUNT, LARGEST_COUNT = -(2**31), 2**31 - 1
"""What registers that count hold."""

AXIS, STEP, END, CONDITION, TERM = "LoopAxis", "LoopStep", "LoopEnd", "LoopCondition", "LoopTerm"
"""Registers of a lowered loop, by what their names have in them."""

LOWER, UPPER, STRIDE = "lb", "ub", "stride"
BODY, EXIT = "body", "exit"


@dataclass(frozen=True, slots=True)
class Use:
    """What an operand of a new instruction is."""

    what: str
    """``"register"``, ``"slot"``, ``"number"``, or ``"bound"``."""
    value: str | int
    """Name of a register of the loop; number of a placeholder; a number, or the place of one that is left open; which
    bound.
    """


@dataclass(frozen=True, slots=True)
class Row:
    """A new instruction."""

    name: str
    """What its name ends in."""
    opcode: int
    ins: tuple[Use, ...] = ()
    out: Use | None = None
    op: str = ""
    """``op`` of register arithmetic, ``comp_op`` of a comparison."""
    on_true: str = ""
    """Where it goes: alone, or where the comparison holds."""
    on_false: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """What a lowered loop is made of."""

    registers: tuple[str, ...]
    entry: tuple[Row, ...]
    """Instructions before the first iteration."""
    latch: tuple[Row, ...]
    """Instructions behind each iteration."""

    def opened(self) -> "tuple[Form, list[int]]":
        """Return the form with numbers left open, known by place, and these: loops that differ in them share it."""
        numbers = list[int]()

        def opened(row: Row) -> Row:
            ins = list[Use]()
            for use in row.ins:
                if use.what == "number":
                    numbers.append(int(use.value))
                    use = Use("number", len(numbers) - 1)
                ins.append(use)
            return replace(row, ins=tuple(ins))

        return Form(self.registers, tuple(map(opened, self.entry)), tuple(map(opened, self.latch))), numbers

    def slots(self) -> set[int]:
        """Return the placeholders that it uses."""
        uses = [use for row in (*self.entry, *self.latch) for use in row.ins]
        return {int(use.value) for use in uses if use.what == "slot"}


TABLE_CODES = {name: code for code, name in enumerate(schema.STRUCTURAL["table"])}


def axis_rows(ir: IR, instructions: Array) -> Array:
    """Return the row of `loops` of some instructions, the first of several; -1 where one has none."""
    first, count = children(ir.tables["loops"]["instruction_id"], instructions)
    return np.where(count > 0, first, -1)


def slot_references(ir: IR, rows: Array, slot: int) -> Array:
    """Return the references that a placeholder in the bounds or the condition of loops of run time stands for.

    Parameters
    ----------
    ir
        The batch.
    rows
        The loops.
    slot
        Number of the placeholder, in the text of the axis or, for a `DoWhile`, of the instruction.
    """
    references = ir.tables["references"]
    found = np.empty(len(rows), np.int64)
    tested = ir.tables["instructions"]["opcode"][rows] == vocab.OP_DO_WHILE
    for table, which, owner in (("instructions", tested, rows), ("loops", ~tested, axis_rows(ir, rows))):
        mine = np.flatnonzero(references["table"] == TABLE_CODES[table])
        first = np.searchsorted(references["row"][mine], owner[which])
        found[which] = mine[first + slot] if which.any() else 0
    return found


class Unlowerable(Exception):  # noqa: N818
    """An expression that registers cannot work out; the arguments are a code and a message."""


class RuntimeLoops:
    """The loops of run time among some instructions.

    Parameters
    ----------
    ir
        The batch.
    rows
        The instructions, each a `DynamicForLoop` or a `DoWhile`.
    shard_id
        The value of the shard.
    """

    def __init__(self, ir: IR, rows: Array, shard_id: int) -> None:
        self.ir, self.shard_id = ir, shard_id
        count = len(rows)
        self.bounds = np.zeros(count, np.int64), np.zeros(count, np.int64), np.ones(count, np.int64)
        """Lower and upper bound and stride of each loop; 0 where it is known at run time only."""
        self.faults: dict[int, tuple[str, str]] = {}
        """By place among the rows what is wrong: code and message."""
        self.forms: list[Form] = []
        self.form = np.zeros(count, np.int64)
        """For each loop the number of its form."""
        self.numbers = np.zeros((count, 0), np.int64)
        """For each loop the numbers that its form leaves open."""
        self._number_of: dict[Form, int] = {}
        self._of_places: list[tuple[Array, list[int]]] = []
        if count:
            self._look(rows)

    def _give(self, places: Array, form: Form) -> None:
        """Give loops a form; its numbers are theirs."""
        general, numbers = form.opened()
        if general not in self._number_of:
            self._number_of[general] = len(self.forms)
            self.forms.append(general)
        self.form[places] = self._number_of[general]
        self._of_places.append((places, numbers))

    def _look(self, rows: Array) -> None:
        axes, opcode = self.ir.tables["loops"], self.ir.tables["instructions"]["opcode"][rows]
        counted = np.flatnonzero(opcode == vocab.OP_DYNAMIC_FOR_LOOP)
        row = axis_rows(self.ir, rows[counted])
        columns: list[Array] = []
        for key in (LOWER, UPPER, STRIDE):
            values = np.append(axes[key], NULL_INT)[row]
            columns.append(np.where(values == NULL_INT, 0, values))
        text = np.append(axes["extra"], np.int32(-1))[row]
        for mine in _alike(2 * text.astype(np.int64) + (columns[2] > 0)):
            up = bool(columns[2][mine[0]] > 0)
            self._counted(int(text[mine[0]]), up, counted[mine], [column[mine] for column in columns])
        tested = np.flatnonzero(opcode == vocab.OP_DO_WHILE)
        text = self.ir.tables["instructions"]["extra"][rows[tested]]
        for mine in _alike(text):
            self._tested(int(text[mine[0]]), tested[mine])
        self.numbers = np.zeros((len(rows), max((len(n) for _, n in self._of_places), default=0)), np.int64)
        for places, numbers in self._of_places:
            self.numbers[places, : len(numbers)] = numbers
        for number, form in enumerate(self.forms):
            places = np.flatnonzero(self.form == number)
            for slot in sorted(form.slots()):
                self._resolved(rows, places, slot)

    def _resolved(self, rows: Array, places: Array, slot: int) -> None:
        """Refuse loops whose bounds name what is not there."""
        places = places[~np.isin(places, list(self.faults))]
        if not len(places):
            return
        references, names = self.ir.tables["references"], self.ir.pools.names
        found = slot_references(self.ir, rows[places], slot)
        bad = references["target_id"][found] < 0
        for place, row in zip(places[bad].tolist(), found[bad].tolist(), strict=True):
            what = names[int(references["name"][row])]
            self.faults[place] = "unresolved_name", f"the loop depends on `{what}`, which the function does not have"

    def _text(self, number: int) -> str:
        return self.ir.pools.extras[number] if number >= 0 else "{}"

    def _counted(self, text: int, up: bool, places: Array, plain: list[Array]) -> None:
        """Look at `DynamicForLoop`s of one text."""
        trees: dict[str, Any] = {}
        written: dict[str, Any] = {}
        first = 0
        for key, value in extras.members(self._text(text)):
            if key in (LOWER, UPPER, STRIDE):
                written[key] = expressions.read(value, first)
            first += value.count(extras.PLACEHOLDER)
        try:
            for key in (LOWER, UPPER, STRIDE):
                if key in written:
                    trees[key] = self._tree(written[key], f"bound `{key}` of the loop")
            for column, key in zip(plain, (LOWER, UPPER, STRIDE), strict=True):
                if isinstance(trees.get(key), int):
                    column[:] = trees.pop(key)
            if STRIDE in trees:
                message = "`stride` of the loop is known only at run time; make it a constant"
                raise Unlowerable("dynamic_loop", message)
            up = up if not len(places) or not plain[2].any() else bool(plain[2][0] > 0)
            form = counted_form(trees.get(LOWER), trees.get(UPPER), up=up)
        except Unlowerable as problem:
            self.faults.update(dict.fromkeys(places.tolist(), problem.args))
            plain[2][:] = 1
            form = None
        for bound, column in zip(self.bounds, plain, strict=True):
            bound[places] = column
        if form is None:
            return
        self._give(places, form)
        wide = np.zeros(len(places), bool)
        last = plain[1] - np.sign(plain[2]) if UPPER not in trees else np.zeros_like(plain[1])
        for column in plain:
            wide |= (column < SMALLEST_COUNT) | (column > LARGEST_COUNT)
        behind = last[~wide] + plain[2][~wide]
        wide[~wide] = (behind < SMALLEST_COUNT) | (behind > LARGEST_COUNT)
        problem = ("integer_overflow", "a bound of the loop does not fit a register of 32 bits")
        self.faults.update(dict.fromkeys(places[wide].tolist(), problem))

    def _tested(self, text: int, places: Array) -> None:
        """Look at `DoWhile`s of one text."""
        first, tree = 0, None
        try:
            for key, value in extras.members(self._text(text)):
                if key == "cond":
                    tree = self._tree(expressions.read(value, first), "`cond` of the loop")
                first += value.count(extras.PLACEHOLDER)
            if tree is None:
                raise Unlowerable("bad_expression", "the loop has no `cond`")
            self._give(places, tested_form(tree))
        except Unlowerable as problem:
            self.faults.update(dict.fromkeys(places.tolist(), problem.args))

    def _tree(self, written: Any, what: str) -> Any:
        """Return an expression with what is constant in it worked out: an integer, or what is left of it."""
        if written is None:
            return 0
        compiler = expressions.Compiler()
        folded = compiler.fold(marked(written, None))
        nowhere = (np.zeros(1, np.int64), np.ones(1, bool))
        result = expressions.run(compiler.program(), 1, axis=lambda _: nowhere, shard_id=self.shard_id)
        if result.fault[0]:
            code = expressions.FAULTS[result.fault[0]]
            raise Unlowerable(code, f"{what}: {expressions.EXPLAINED[code]}")
        values = [int(result.whole(step)[0]) for step in range(len(result.values))]
        if not isinstance(folded, Rest):
            return values[folded.step]
        tree = _filled(folded.tree, values)
        try:
            _Arithmetic(END).put(tree, 0)  # looks whether registers can work it out
        except Unlowerable as problem:
            raise Unlowerable(problem.args[0], f"{what} {problem.args[1]}") from None
        return tree


def _alike(keys: Array) -> Iterator[Array]:
    """Yield the places of equal keys, one group after the other."""
    order = np.argsort(keys, kind="stable")
    begins = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] - 1))
    yield from np.split(order, begins[1:]) if len(order) else ()


def _filled(tree: Any, values: list[int]) -> Any:
    """Return an expression with results in place of its holes."""
    if isinstance(tree, Hole):
        return values[tree.step]
    if isinstance(tree, dict):
        return {key: _filled(item, values) for key, item in tree.items()}
    return [_filled(item, values) for item in tree] if isinstance(tree, list) else tree


# -- forms ---------------------------------------------------------------------------------------------------


def counted_form(lower: Any, upper: Any, *, up: bool) -> Form:
    """Return the form of a loop over an axis.

    Parameters
    ----------
    lower, upper
        Bounds of run time, as `RuntimeLoops` leaves them; None for constants.
    up
        Whether the stride is positive.
    """
    axis, step = Use("register", AXIS), Use("register", STEP)
    start = _Arithmetic(AXIS)
    start.put(Use("bound", LOWER) if lower is None else lower, 0)
    entry = [*start.rows, _move("step", step, Use("bound", STRIDE))]
    registers = [AXIS, STEP]
    end, kind = Use("bound", UPPER), "IMM"
    terms = start.terms
    if upper is not None:
        end, kind = Use("register", END), "REG"
        registers.append(END)
        stop = _Arithmetic(END)
        stop.put(upper, 0)
        entry += stop.rows
        terms = max(terms, stop.terms)
    registers += [f"{TERM}{number}" for number in range(1, terms + 1)]
    again = _compare(f"IS_{'LT' if up else 'GT'}{kind}", axis, end)
    count = Row("next", vocab.OP_REGISTER_ALU, (axis, step), axis, "add")
    return Form(tuple(registers), (*entry, again), (count, again))


def constant_form(*, up: bool) -> Form:
    """Return the form of a `Loop`, whose bounds are constants and which runs once at least."""
    form = counted_form(None, None, up=up)
    return Form(form.registers, (*form.entry[:-1], _GO), form.latch)


def tested_form(condition: Any) -> Form:
    """Return the form of a loop that goes on as long as something is not 0."""
    if isinstance(condition, int):
        made = _Arithmetic(CONDITION)
        made.put(condition, 0)
    else:
        found = _leaf(condition)
        if found is not None:
            return Form((), (_GO,), (_compare("IS_NEIMM", found, Use("number", 0)),))
        made = _Arithmetic(CONDITION)
        made.put(condition, 0)
    registers = (CONDITION, *(f"{TERM}{number}" for number in range(1, made.terms + 1)))
    test = _compare("IS_NEIMM", Use("register", CONDITION), Use("number", 0))
    return Form(registers, (_GO,), (*made.rows, test))


_GO = Row("branch", vocab.OP_UNCONDITIONAL_BRANCH, on_true=BODY)


def _move(name: str, register: Use, value: Use) -> Row:
    return Row(name, vocab.OP_REGISTER_MOVE, (value,), register)


def _compare(op: str, one: Use, other: Use) -> Row:
    return Row("branch", vocab.OP_COMPARE_AND_BRANCH, (one, other), None, op, BODY, EXIT)


def _leaf(tree: Any) -> Use | None:
    """Return the register whose value an expression is, if it is that of one."""
    if isinstance(tree, Use):
        return tree if tree.what != "bound" else None
    if isinstance(tree, dict):
        kind = tree.get("kind")
        if kind == "IntRuntimeValueKind" and isinstance(tree.get("regref"), Slot):
            return Use("slot", tree["regref"].number)
        terms = tree.get("terms")
        if kind == "AffExprKind" and not tree.get("c") and isinstance(terms, list) and len(terms) == 1:
            return _leaf(terms[0].get("idx")) if terms[0].get("coeff") == 1 else None
    return None


class _Arithmetic:
    """Instructions that leave the value of an expression in a register; others hold what is computed on the way."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.rows: list[Row] = []
        self.terms = 0
        """Number of other registers."""

    def put(self, tree: Any, level: int) -> None:
        """Leave a value in the register of a level."""
        known = _leaf(tree)
        if isinstance(tree, int):
            self._move(level, self._number(tree))
        elif isinstance(tree, Use):
            self._move(level, tree)
        elif known is not None:
            self._move(level, known)
        elif not isinstance(tree, dict):
            raise Unlowerable("bad_expression", "is no expression")
        else:
            self._node(tree, level)

    def _node(self, tree: dict[str, Any], level: int) -> None:
        match tree.get("kind"):
            case "AffExprKind":
                self._sum([(term["idx"], term["coeff"]) for term in tree.get("terms") or ()], tree.get("c") or 0, level)
            case "SumKind":
                self._sum([(term, 1) for term in tree.get("terms") or ()], 0, level)
            case "MultKind":
                self._times(tree["var"], tree.get("scale"), level)
            case "FloorDivKind" | "ModuloKind" | "CCModKind" as kind:
                self._divided(tree["numer"], tree.get("denom"), level, quotient=kind == "FloorDivKind")
            case kind:
                raise Unlowerable("dynamic_loop", f"needs a `{kind}`, which no register holds")

    def _sum(self, terms: list[tuple[Any, Any]], constant: int, level: int) -> None:
        numbers = [tree * factor for tree, factor in terms if isinstance(tree, int)]
        terms = [(tree, factor) for tree, factor in terms if not isinstance(tree, int)]
        constant += sum(numbers)
        begun = bool(constant) or not terms
        if begun:
            self.put(constant, level)
        for tree, factor in terms:
            if not begun:
                self._times(tree, factor, level)
                begun = True
                continue
            value = _leaf(tree) if factor == 1 else None
            if value is None:
                self._times(tree, factor, level + 1)
                value = self._register(level + 1)
            self._alu("add", level, value)

    def _times(self, tree: Any, factor: Any, level: int) -> None:
        self.put(tree, level)
        if factor != 1:
            self._with_number("mult", level, factor)

    def _divided(self, tree: Any, by: Any, level: int, *, quotient: bool) -> None:
        """Divide by a power of 2: of others the rounding in registers is not known."""
        if not expressions.is_integer(by):
            raise Unlowerable("bad_expression", "divides by what is no integer")
        if by <= 0 or by & (by - 1):
            raise Unlowerable("dynamic_loop", f"divides by {by}; registers divide by powers of 2 alone")
        self.put(tree, level)
        if quotient:
            self._with_number("arith_shift_right", level, by.bit_length() - 1)
        else:
            self._with_number("bitwise_and", level, by - 1)

    def _with_number(self, op: str, level: int, number: Any) -> None:
        self._move(level + 1, self._number(number))
        self._alu(op, level, self._register(level + 1))

    def _number(self, number: Any) -> Use:
        if not expressions.is_integer(number):
            raise Unlowerable("bad_expression", "holds what is no integer")
        if not SMALLEST_COUNT <= number <= LARGEST_COUNT:
            raise Unlowerable("integer_overflow", f"holds {number}, which does not fit a register of 32 bits")
        return Use("number", number)

    def _register(self, level: int) -> Use:
        self.terms = max(self.terms, level)
        return Use("register", f"{TERM}{level}" if level else self.target)

    def _named(self) -> str:
        name = self.target.removeprefix("Loop").lower()
        return f"{name}{len(self.rows)}" if self.rows else name

    def _move(self, level: int, value: Use) -> None:
        self.rows.append(_move(self._named(), self._register(level), value))

    def _alu(self, op: str, level: int, value: Use) -> None:
        register = self._register(level)
        self.rows.append(Row(self._named(), vocab.OP_REGISTER_ALU, (register, value), register, op))
