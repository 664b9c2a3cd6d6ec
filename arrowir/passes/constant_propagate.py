"""The pass `constant_propagate`: what constants decide is decided, and what nothing reads goes (rules C1 to C5).

The rules are in the class `Propagation`; what they are told stands in `constants`:

1. which locations instructions read and write, and which ones others may touch (`code`);
2. what operands access, and what bits mean (`accesses`); what the text of instructions says (`attributes`);
3. what is constant, and who reads and writes it, while instructions change (`state`); what has effects (`effects`);
4. edges over what is gone (`bridging`), and the new tables (`tables`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from arrowir import diagnostics as diag
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, UNCHANGED, Pass, Plan, whereabouts
from arrowir.passes.constants import attributes
from arrowir.passes.constants.accesses import ONE, is_one, is_zero, known
from arrowir.passes.constants.code import Code, suspects
from arrowir.passes.constants.effects import Effects
from arrowir.passes.constants.state import COPY, KEPT, REMOVED, State
from arrowir.passes.constants.tables import Rewritten, rewritten_tables
from arrowir.runs import expand
from arrowir.store import Array, distinct


@dataclass(frozen=True)
class ConstantPropagate(Pass):
    """Rewrite instructions that constants decide, and remove those whose results nothing reads.

    A location of the function's own that one Memset fills is constant. Copies of it become Memsets, a Select by it a
    copy, a logical operation that it decides a Memset. Then instructions without side effects whose outputs nothing
    reads are removed. Works on all functions of a module.

    Parameters
    ----------
    assume_finite
        Take it that there is neither NaN nor infinity, and that logical operations have operands of 0 and 1: then
        products with zeros, and logical operations that leave one operand as it is, are rewritten too.

    Examples
    --------
    >>> import arrowir as air
    >>> module = air.build.module()
    >>> main = module.function("main")
    >>> zeros, tile, out = main.sb("zeros", [128, 4]), main.sb("tile", [128, 4]), main.output("out", [128, 4])
    >>> fill = main.add("Memset", [], [zeros], name="fill", mode="Const", constant=0)
    >>> copy = main.add("TensorCopy", [zeros], [tile], name="copy", after=[fill])
    >>> save = main.add("Save", [tile], [out], name="save", after=[copy])
    >>> after = air.passes.constant_propagate(module.ir()).ir
    >>> after.instructions.select("name", "opcode").rows()
    [('save_constant_propagate_memset', 'Memset')]
    """

    name: ClassVar[str] = "constant_propagate"

    assume_finite: bool = False

    def plan(self, ir: IR, active: Array) -> Plan:
        """Decide what becomes of every instruction; see `Pass.plan`."""
        module = ir.tables["functions"]["module_id"]
        found = Propagation(Code(ir, suspects(ir, active[module])), assume_finite=self.assume_finite)
        failures: dict[int, Diagnostic] = {}
        for function in sorted(found.failures):
            failures.setdefault(int(module[function]), found.failures[function])
        bad = np.isin(module, list(failures))
        changes = found.changes(~bad)
        status = np.full(len(ir), UNCHANGED, np.int8)
        status[list(failures)] = FAILED
        status[module[changes.functions]] = CHANGED
        messages = [*failures.values(), *changes.notes(ir, by_function=False)]
        return Plan(status, sorted(messages, key=lambda m: m.module_id or 0), changes)

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Make the new tables; see `Pass.apply`."""
        assert isinstance(plan.edit, Rewritten)
        return rewritten_tables(ir, plan.edit, noops=True)


@dataclass(frozen=True)
class Propagated:
    """A batch in which constants have been propagated through some functions."""

    ir: IR
    """The batch; functions that failed are as they were."""
    failures: dict[int, Diagnostic]
    """By function what kept it from that."""
    notes: tuple[Diagnostic, ...]
    """What was done, one row for each function that was changed."""


def propagate(ir: IR, functions: Array, *, assume_finite: bool = False) -> Propagated:
    """Propagate constants through some functions of a batch, each looked at by itself, and leave all else (rule N3).

    Parameters
    ----------
    ir
        The batch; it is not changed.
    functions
        Mask of the functions.
    assume_finite
        Whether there is neither NaN nor infinity (rule C2).

    Returns
    -------
    Propagated
        The new batch, and what went wrong. Functions, blocks and storage keep their ids; a block may lose all its
        instructions.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> propagate(ir, np.ones(ir.count("functions"), bool)).failures
    {}
    """
    some = suspects(ir, functions)
    if not some.any():
        return Propagated(ir, {}, ())
    found = Propagation(Code(ir, some, alone=True), assume_finite=assume_finite)
    good = np.ones(len(functions), bool)
    good[list(found.failures)] = False
    changes = found.changes(good)
    if not len(changes.rows):
        return Propagated(ir, found.failures, ())
    notes = changes.notes(ir, by_function=True)
    return Propagated(rewritten_tables(ir, changes, noops=False), found.failures, tuple(notes))


def needs_propagation(ir: IR, functions: Array, *, assume_finite: bool = False) -> Array:
    """Tell which of some functions `propagate` would change or fail.

    Parameters
    ----------
    ir
        The batch.
    functions
        Mask of the functions.
    assume_finite
        Whether there is neither NaN nor infinity.

    Returns
    -------
    numpy.ndarray
        A mask over functions.
    """
    needs = np.zeros(len(functions), bool)
    some = suspects(ir, functions)
    if not some.any():
        return needs
    found = Propagation(Code(ir, some, alone=True), assume_finite=assume_finite)
    needs[found.code.function[found.state.form != KEPT]] = True
    needs[list(found.failures)] = True
    return needs


class Propagation:
    """Rules C2 and C3, to the fixpoint (rule C4), for all functions at once.

    Parameters
    ----------
    code
        The instructions.
    assume_finite
        Whether there is neither NaN nor infinity (rule C5).
    """

    def __init__(self, code: Code, *, assume_finite: bool = False) -> None:
        self.code, self.assume_finite = code, assume_finite
        self.state = State(code, assume_finite=assume_finite)
        self.failures: dict[int, Diagnostic] = {}
        """By function the first Select whose predicate is no predicate."""
        concerned = np.flatnonzero(code.open) if self.state.has_constants else np.zeros(0, np.int64)
        while True:
            self._rewrite(concerned)
            concerned = self._sweep()
            if not len(concerned) or not self.state.has_constants:
                break

    # -- C2 -----------------------------------------------------------------------------------------------------------

    def _rewrite(self, concerned: Array) -> None:
        """Rule C2 to its fixpoint; `concerned` are the locations about which something has changed."""
        copied = np.zeros(0, np.int64)
        while len(concerned) or len(copied):
            readers = self.state.settle(concerned)
            look = distinct(np.concatenate((readers, copied)))
            kind, form = self.state.kind[look], self.state.form[look]
            done: list[_Change] = []
            for decide, kinds in (
                (self._copies, (attributes.COPY,)),
                (self._selects, (attributes.SELECT,)),
                (self._logical, (attributes.AND, attributes.OR)),
                (self._products, (attributes.START, attributes.ACCUMULATE)),
            ):
                rows = look[np.logical_or.reduce([kind == each for each in kinds])]
                done += decide(rows) if len(rows) else []
            touched = [np.zeros(0, np.int64), *(change() for change in done)]
            copied = look[(self.state.form[look] == COPY) & (form != COPY)]
            concerned = np.concatenate(touched)

    def _copies(self, copies: Array) -> "list[_Change]":
        """A copy of a constant becomes a Memset."""
        constant, bits = self.state.value(self.state.source[copies])
        return [_Change(self.state.fill, copies[constant], bits[constant])]

    def _selects(self, selects: Array) -> "list[_Change]":
        """A Select by a uniform predicate becomes a copy of the input that it chooses."""
        predicate = self.code.first[selects]
        constant, bits = self.state.value(predicate)
        dtype = self.state.accesses.dtype[predicate]
        one, zero = constant & is_one(bits, dtype), constant & is_zero(bits, dtype)
        self._refuse(selects[constant & ~one & ~zero & (ONE[known(dtype)] > 0)])
        chosen = predicate + np.where(one, 1, 2)
        able = (one | zero) & self.state.accesses.plain[np.minimum(chosen, len(self.code.operands) - 1)]
        return [_Change(self.state.copy, selects[able], chosen[able])]

    def _logical(self, rows: Array) -> "list[_Change]":
        """And with 0 is 0, or with 1 is 1; with finite operands and with 1, or with 0, is the other one."""
        state, first = self.state, self.code.first[rows]
        is_or = state.kind[rows] == attributes.OR
        decided, neutral = [], []
        for operand in (first, first + 1):
            constant, bits = state.value(operand)
            dtype = state.accesses.dtype[operand]
            one, zero = constant & is_one(bits, dtype), constant & is_zero(bits, dtype)
            decided.append(np.where(is_or, one, zero))
            neutral.append(np.where(is_or, zero, one))
        result = ONE[known(state.accesses.dtype[state.output[rows]])]
        fills = (decided[0] | decided[1]) & (result > 0)
        done = [_Change(state.fill, rows[fills], np.where(is_or, result, np.uint64(0))[fills])]
        if self.assume_finite:
            other = first + np.where(neutral[0], 1, 0)
            able = (neutral[0] | neutral[1]) & ~fills & state.accesses.plain[other]
            done.append(_Change(state.copy, rows[able], other[able]))
        return done

    def _products(self, products: Array) -> "list[_Change]":
        """With finite operands a product with zeros is zero: it begins a sum with 0, or adds nothing to one."""
        state, first = self.state, self.code.first[products]
        zero = np.zeros(len(products), bool)
        for operand in (first, first + 1):
            constant, bits = state.value(operand)
            zero |= constant & is_zero(bits, state.accesses.dtype[operand])
        begins = zero & (state.kind[products] == attributes.START)
        adds = zero & ~begins & ~self.effects.tied(products)
        nothing = np.zeros(int(begins.sum()), np.uint64)
        return [_Change(state.fill, products[begins], nothing), _Change(state.remove, products[adds])]

    def _refuse(self, selects: Array) -> None:
        """Note Selects by a constant that is neither 0 nor 1: the first of each function counts."""
        code, names = self.code, self.code.ir.tables["instructions"].text()
        for select in selects[np.argsort(code.position[selects], kind="stable")].tolist():
            function, row = int(code.function[select]), int(code.rows[select])
            if function not in self.failures:
                text = f"Invalid predicate value for Select {names[row]}"
                self.failures[function] = diag.make("invalid_select_predicate", text, **whereabouts(code.ir, row))

    # -- C3 -----------------------------------------------------------------------------------------------------------

    @cached_property
    def effects(self) -> Effects:
        """What instructions do beside writing their outputs."""
        return Effects(self.state)

    def _sweep(self) -> Array:
        """Rule C3 to its fixpoint: remove what has outputs, no effects, and no readers.

        Return the locations concerned.
        """
        code, state = self.code, self.state
        closed = ~code.open
        closed[self.effects.held()] = True
        read = closed | (state.readers > 0)
        writes = np.flatnonzero(code.writes & state.lives)
        awaited = np.bincount(code.user[writes[read[code.location[writes]]]], minlength=len(code))
        """How many outputs of each instruction somebody reads."""
        dead = np.flatnonzero((awaited == 0) & (state.outputs > 0) & (state.form != REMOVED))
        concerned: list[Array] = [np.zeros(0, np.int64)]
        while len(dead):
            dead = dead[self.effects.named_outputs[dead]]
            dead = dead[self.effects.none(dead)]
            touched = distinct(state.remove(dead))
            concerned.append(touched)
            unread = touched[~closed[touched] & (state.readers[touched] == 0)]
            order, first = code.by_location
            mention = order[expand(first[unread], first[unread + 1] - first[unread])]
            mention = mention[code.writes[mention] & state.lives[mention] & read[code.location[mention]]]
            read[unread] = False
            np.subtract.at(awaited, code.user[mention], 1)
            dead = distinct(code.user[mention])
            dead = dead[awaited[dead] == 0]
        return distinct(np.concatenate(concerned))

    # -- what came of it ----------------------------------------------------------------------------------------------

    def changes(self, functions: Array) -> Rewritten:
        """Return what becomes of the instructions of some functions (a mask)."""
        state, code = self.state, self.code
        mine = np.flatnonzero((state.form != KEPT) & functions[code.function])
        form = state.form[mine]
        return Rewritten(code, mine, form, state.bits[mine], np.where(form == COPY, state.source[mine], -1))


@dataclass(frozen=True)
class _Change:
    """A rewrite that is decided: all of a round are, before the first one is made."""

    make: Callable[..., Array]
    instructions: Array
    how: Array | None = None

    def __call__(self) -> Array:
        """Make it; return the locations concerned."""
        if not len(self.instructions):
            return np.zeros(0, np.int64)
        return self.make(self.instructions) if self.how is None else self.make(self.instructions, self.how)
