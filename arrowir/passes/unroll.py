"""The pass `unroll`: loops with constant trip counts become straight-line code (rules U0 to U8)."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from arrowir import diagnostics as diag
from arrowir import layouts
from arrowir import vocabulary as vocab
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, MAX_INSTRUCTIONS, UNCHANGED, Pass, Plan
from arrowir.passes.unrolling import symbolic
from arrowir.passes.unrolling.cutting import Cut
from arrowir.passes.unrolling.edges import TooManyEdges, UnrolledEdges
from arrowir.passes.unrolling.faults import Fault, Faults
from arrowir.passes.unrolling.iterations import Iterations
from arrowir.passes.unrolling.loops import Loops, of_each, rows_of
from arrowir.passes.unrolling.lowering import Lowering
from arrowir.passes.unrolling.tables import UnrolledTables, without_need_unroll
from arrowir.passes.unrolling.text import GENERIC, SYMBOLIC, UnrolledText
from arrowir.store import Array


@dataclass(frozen=True)
class Unroll(Pass):
    """Unroll every loop, and work out what depends on loop axes: addresses, immediates, attributes, edges.

    Works on all functions of a module. Instructions in loops are repeated for each iteration, with its number behind
    their name; symbolic operands become physical, also outside loops. Loops that are counted at run time, or have
    control flow in them, become branches and register arithmetic. A module fails when an expression cannot be worked
    out.

    Parameters
    ----------
    shard_id
        The value of the shard in expressions (rule U5).
    max_instructions
        The largest number of instructions that a module may have afterwards (rule O6).

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> air.passes.unroll(ir).status.to_list()
    ['changed']
    """

    name: ClassVar[str] = "unroll"

    shard_id: int = 0
    max_instructions: int = MAX_INSTRUCTIONS

    def plan(self, ir: IR, active: Array) -> Plan:
        """Decide what becomes of every row; see `Pass.plan`."""
        status = np.full(len(ir), UNCHANGED, np.int8)
        module = ir.tables["functions"]["module_id"]
        every = all_loops(ir, self.shard_id)
        work, changes = unroll_needs(ir, every)
        found: dict[int, Diagnostic] = {}

        def fail(functions: dict[int, Diagnostic]) -> None:
            for function in sorted(functions):
                found.setdefault(int(module[function]), functions[function])

        wanted = work & active[module]
        loops = _loops_of(every, wanted)
        faults = loops.check()
        fail({function: faults.diagnostic(function) for function in faults.first})
        for m, message in self._too_large(ir, active, loops, wanted).items():
            found.setdefault(m, message)
        prepared = None
        while True:
            wanted &= ~np.isin(module, list(found))
            if not wanted.any():
                break
            prepared = _prepare(_loops_of(loops, wanted))
            if isinstance(prepared, Prepared):
                break
            fail(prepared)
        status[module[wanted & changes]] = CHANGED
        status[list(found)] = FAILED
        return Plan(status, [found[m] for m in sorted(found)], prepared)

    def _too_large(self, ir: IR, active: Array, loops: Loops, wanted: Array) -> dict[int, Diagnostic]:
        """Return the modules that would become too large (rule O6): that is known before anything is made."""
        rows = np.where(wanted, loops.function_rows(), loops.rows_now())
        total = np.zeros(len(ir), rows.dtype)
        np.add.at(total, ir.tables["functions"]["module_id"], rows)
        limit = self.max_instructions
        found: dict[int, Diagnostic] = {}
        for m in np.flatnonzero(active & (total > limit).astype(bool)).tolist():
            message = f"{total[m]} instructions would result, more than the {limit} of `max_instructions`"
            found[m] = diag.make("too_many_instructions", message, module_id=m)
        return found

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Make the new tables; see `Pass.apply`."""
        assert isinstance(plan.edit, Prepared)
        return plan.edit.build()


@dataclass(frozen=True)
class Prepared:
    """All that was decided, ready to be carried out."""

    tables: UnrolledTables
    lowering: Lowering | None
    """The loops that become branches, if there are any."""

    def build(self) -> IR:
        """Make the new batch."""
        flat = self.tables.build()
        if self.lowering is None:
            return flat
        return Cut(self.lowering, self.tables.iterations, flat, self.tables.origin["branches"][0]).build()


@dataclass(frozen=True)
class Expansion:
    """A batch with some functions unrolled."""

    ir: IR
    """The batch; functions that failed are as they were."""
    failures: dict[int, Diagnostic]
    """By function what kept it from being unrolled."""
    registers: Array | None = None
    """For each register the row that it was, -1 for new ones; None where there are no new ones."""


def expand(ir: IR, functions: Array, shard_id: int = 0, *, max_instructions: int = MAX_INSTRUCTIONS) -> Expansion:
    """Unroll some functions of a batch and leave all else as it is (rule N3).

    Parameters
    ----------
    ir
        The batch; it is not changed.
    functions
        Mask of the functions.
    shard_id
        The value of the shard in expressions.
    max_instructions
        The largest number of instructions that a function may have afterwards.

    Returns
    -------
    Expansion
        The new batch, and what went wrong. Functions keep their ids; those of instructions and what they own change.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> expand(ir, np.ones(ir.count("functions"), bool)).failures
    {}
    """
    every = all_loops(ir, shard_id)
    wanted = np.asarray(functions, bool) & unroll_needs(ir, every)[0]
    loops = _loops_of(every, wanted)
    faults = loops.check()
    found = {function: faults.diagnostic(function) for function in sorted(faults.first)}
    rows = loops.function_rows()
    for function in np.flatnonzero(wanted & (rows > max_instructions).astype(bool)).tolist():
        name = ir.tables["functions"].text()[function]
        message = (
            f"{rows[function]} instructions would come of `{name}`, more than the {max_instructions} that are allowed"
        )
        about: dict[str, Any] = {"module_id": int(ir.tables["functions"]["module_id"][function]), "function": name}
        found.setdefault(function, diag.make("too_many_instructions", message, function_id=function, **about))
    while True:
        wanted[list(found)] = False
        if not wanted.any():
            return Expansion(ir, found)
        prepared = _prepare(_loops_of(loops, wanted))
        if isinstance(prepared, Prepared):
            lowering = prepared.lowering
            return Expansion(prepared.build(), found, None if lowering is None else lowering.registers)
        found |= prepared


def predicted_rows(ir: IR, shard_id: int = 0) -> Array:
    """Return how many instructions each function would have after unrolling, without unrolling it (rule O6).

    A loop that cannot be unrolled counts as it stands. Numbers beyond 64 bits are given as the largest that fits.

    Parameters
    ----------
    ir
        The batch.
    shard_id
        The value of the shard in loop bounds.

    Returns
    -------
    numpy.ndarray
        int64, one for each function.
    """
    rows = all_loops(ir, shard_id).function_rows()
    return np.array([min(n, 2**63 - 1) for n in rows.tolist()], np.int64) if rows.dtype == object else rows


def all_loops(ir: IR, shard_id: int = 0) -> Loops:
    """Return the loops of all functions of a batch."""
    return Loops(ir, np.ones(ir.count("functions"), bool), shard_id)


def needs_unroll(ir: IR, loops: Loops | None = None) -> Array:
    """Tell for each function whether unrolling would change its document, or could fail.

    Parameters
    ----------
    ir
        The batch.
    loops
        The loops of all its functions, where they are known.

    Returns
    -------
    numpy.ndarray
        A mask over functions.
    """
    return unroll_needs(ir, loops)[0]


def unroll_needs(ir: IR, loops: Loops | None = None) -> tuple[Array, Array]:
    """Return for each function whether there is work to do, and whether the work changes the document."""
    instructions, operands, dependencies = (ir.tables[t] for t in ("instructions", "operands", "dependencies"))
    loops, texts = loops or all_loops(ir), ir.pools.extras.texts
    pool = ir.pools.layouts.texts
    nests, _ = rows_of(instructions["layout"], len(pool), lambda i: layouts.source(pool[i], "loopnest") is not None)
    told, kind = rows_of(instructions["extra"], len(texts), lambda i: _instruction_needs(texts[i]))
    symbolic_ones = operands.holding("kind", (*SYMBOLIC, vocab.OPERAND_SYMBOLIC_IMM_VALUE))
    owner, text = operands.at("instruction_id", symbolic_ones), operands.at("extra", symbolic_ones)
    stays = np.isin(loops.opcode[owner], GENERIC) & np.isin(operands.at("kind", symbolic_ones), SYMBOLIC)
    stays[stays] = of_each(text[stays], len(texts), lambda i: _operand_stays(texts[i])) > 0
    indexed = dependencies.holding("relation", [vocab.RELATION_UNROLL])
    waits, on = dependencies.at("instruction_id", indexed), dependencies.at("on_instruction_id", indexed)
    changes = np.concatenate((loops.rows, nests, told[kind == 2], owner[~stays], waits[on >= 0]))
    work = np.concatenate((changes, told, owner, waits))
    function = ir.array("instructions", "function_id")
    found: list[Array] = []
    for rows in (work, changes):
        of_function = np.zeros(ir.count("functions"), bool)
        of_function[function[rows[loops.looked_at[loops.block[rows]]]]] = True
        found.append(of_function)
    attributes = of_each(
        ir.tables["functions"]["attributes"], len(texts), lambda i: without_need_unroll(texts[i]) != texts[i]
    )
    return found[0] | (attributes > 0), found[1] | (attributes > 0)


def _instruction_needs(text: str) -> int:
    """Tell from an instruction's text whether unrolling looks at it (1) or changes it (2)."""
    template = symbolic.instruction_template(text)
    if template is not None:
        return 2 if template.changed else 1
    return int('"predicates"' in text)


def _operand_stays(text: str) -> bool:
    """Tell whether a symbolic operand of a generic access stays as it is."""
    return symbolic.is_generic(text) and not symbolic.generic_template(text).changed


def _loops_of(loops: Loops, functions: Array) -> Loops:
    """Return the loops of some functions, which may be those that are known."""
    if (loops.functions == functions).all():
        return loops
    return Loops(loops.ir, functions.copy(), loops.shard_id)


def _prepare(loops: Loops) -> Prepared | dict[int, Diagnostic]:
    """Decide everything about the functions of some loops; return what makes the tables, or the faults."""
    shard_id = loops.shard_id
    lowering = None
    if loops.lowered.any():
        lowering = Lowering(loops)
        loops = lowering.loops
    iterations = Iterations(loops)
    faults = Faults(loops.ir)
    text = UnrolledText(iterations, shard_id, faults)
    text.find()
    edges = UnrolledEdges(iterations, shard_id, faults)
    try:
        found = edges.find()
    except TooManyEdges as many:
        instruction, count = many.args
        message = f"{count} edges would come of the edges of this loop and on it; depend on single instructions instead"
        faults.add(Fault((2,), "not_supported", message, instruction))
        found = None
    if faults.first or found is None:
        return {function: faults.diagnostic(function) for function in sorted(faults.first)}
    return Prepared(UnrolledTables(iterations, text, edges, found), lowering)
