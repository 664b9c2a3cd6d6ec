"""Inlining of NKI kernels: every call-site becomes its kernel's body (rules N1 to N20).

The stages of a call-site, and the table operation that does each for all call-sites at once:

1. find call-sites, gate, cycles, size (`kernel_calls`, `size`);
2. bind parameters to actuals (`binding`);
3. canonicalise, inner kernels first: inline into them, unroll, propagate constants, close bodies of several blocks
   (`canonical`); the copies stand behind the batch's own rows;
4. lay out blocks and instructions: callers' rows, clones of bodies, helpers, as runs (`layout`);
5. keys: clones point at clones, parameters at actuals (`splice`);
6. edges around the call-sites (`call_edges`);
7. columns that change in a clone: SB addresses, origin, opt-in mask, names (`splice`, `free_names`).
"""

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arrowir import vocabulary
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, MAX_INSTRUCTIONS, UNCHANGED, Pass, Plan
from arrowir.passes.inlining.binding import bind, check_memory
from arrowir.passes.inlining.canonical import canonicalise
from arrowir.passes.inlining.closing import shape
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_bodies import outputs_not_written
from arrowir.passes.inlining.kernel_calls import BODY, choose, find_cycles, find_sites, places_of_checks, removable
from arrowir.passes.inlining.size import check_size
from arrowir.passes.inlining.splice import Inlining, Spliced, splice
from arrowir.passes.inlining.tensor_names import rename, tensor_names
from arrowir.passes.unroll import all_loops
from arrowir.store import Array


@dataclass(frozen=True)
class InlineNkiKernel(Pass):
    """Replace every `NKIKernel` call-site by the body of the kernel function that it names.

    Memory of the kernel is made again in the caller with SB addresses rebased on the call-site's scratchpad, operands
    that name parameters are pointed at the actuals, edges around the call-site are re-made, and functions that nothing
    calls any more are removed.

    Parameters
    ----------
    allocated
        The pass's position: take only call-sites whose kernel is allocated (True) or is not (False); None takes both.
    allocated_key
        Member of a call-site that, as a boolean, records the status and wins over what the kernel's locations say.
    shard_id
        Value of shard ids while kernels are unrolled.
    assume_finite
        Take it that kernels meet neither NaN nor infinity, as `constant_propagate` does.
    max_instructions
        Limit of the instructions of a module after the pass.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> after = air.passes.inline_nki_kernel(ir).ir
    >>> after.instructions["name"].to_list()[:4]
    ['I-1', 'I-2', 'inst__nki_add_one_K-1-0', 'inst__nki_add_one_K-2-0']
    """

    name: ClassVar[str] = "inline_nki_kernel"

    allocated: bool | None = None
    allocated_key: str = "is_allocated"
    shard_id: int = 0
    assume_finite: bool = False
    max_instructions: int = MAX_INSTRUCTIONS

    def plan(self, ir: IR, active: Array) -> Plan:
        """Make every check, bind every parameter, and make the bodies."""
        errors = FirstErrors(len(ir))
        found = find_sites(ir, active, self.allocated_key)
        choice = choose(ir, found, self.allocated, errors)
        if self.log.isEnabledFor(logging.INFO):
            for name in ir.tables["instructions"].text().take(choice.looked.row):
                self.log.info("Found InstNKIKernel: %s", name)
        for note in choice.notes:
            self.log.info(note.message)
        find_cycles(ir, found, errors)
        loops = all_loops(ir, self.shard_id)
        blocks = shape(ir)
        check_size(ir, choice.sites, loops, blocks, self.max_instructions, errors)
        memory, body_order = places_of_checks(ir, choice.sites)
        binding = bind(ir, choice.sites, choice.status, memory, errors)
        good = ~errors.failed_before(BODY)[choice.sites.module]
        sites, binding, memory = choice.sites.pick(good), binding.pick(good), (memory[0][good], memory[1][good])
        canonical = canonicalise(ir, sites, binding, loops, blocks, body_order, errors, self.assume_finite)
        batch, bodies = canonical.batch, canonical.bodies
        check_memory(batch, bodies, sites, np.searchsorted(bodies.callee, sites.callee), binding.base, memory, errors)

        good = ~errors.failed
        outcome = np.where(errors.failed, FAILED, UNCHANGED).astype(np.int8)
        outcome[np.unique(sites.module[good[sites.module] & sites.ordinary])] = CHANGED
        messages = [*errors.diagnostics(), *(n for n in choice.notes if good[n.module_id or 0])]
        messages += [n for n in canonical.notes if good[n.module_id or 0]]
        messages += outputs_not_written(batch, bodies, good)
        messages.sort(key=lambda m: m.module_id or 0)
        kept = good[sites.module]
        outer = kept & sites.ordinary
        chosen = sites.pick(outer)
        bodies = bodies.pick(np.isin(bodies.callee, chosen.callee))
        removed = removable(ir, sites.pick(kept), bodies.calls(batch))
        function = ir.tables["blocks"]["function_id"]
        todo = Inlining(
            batch, chosen, binding.pick(outer), bodies, np.searchsorted(bodies.callee, chosen.callee),
            dropped=removed, blocks=(function < 0) | ~removed[function],
            tensor_names=tensor_names(ir, sites.pick(kept), binding.pick(kept), removed),
        )  # fmt: skip
        return Plan(outcome, messages, todo)

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Make the new tables."""
        todo: Inlining = plan.edit
        made = splice(todo)
        if self.log.isEnabledFor(logging.INFO):
            for name in ir.tables["functions"].text().take(np.flatnonzero(todo.dropped)):
                self.log.info("dropping func %s", name)
            self._log_unroll_dependencies(made)
        return rename(made.ir, todo.tensor_names) if todo.tensor_names else made.ir

    def _log_unroll_dependencies(self, made: Spliced) -> None:
        """Say which unroll edges were re-made: those between a body and what is around it."""
        edges, names = made.ir.tables["dependencies"], made.ir.tables["instructions"].text()
        runs = made.edit.runs["instructions"]
        of = runs.spread(
            np.where(runs.copy > 0, runs.copy, -(runs.start >= made.edit.ir.count("instructions")).astype(int))
        )
        moved = (edges["relation"] == vocabulary.RELATION_UNROLL) & np.isin(edges["instruction_id"], made.owners)
        moved &= edges["on_instruction_id"] >= 0
        for row in np.flatnonzero(moved).tolist():
            waits, on = edges["instruction_id"][row], edges["on_instruction_id"][row]
            if of[waits] != of[on]:
                self.log.info("adding unroll dep from %s to %s", names[waits], names[on])
