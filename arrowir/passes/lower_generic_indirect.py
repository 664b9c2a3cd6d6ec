"""The pass `lower_generic_indirect`: rows by several indices become rows by one address (rules G1 to G5)."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from arrowir import diagnostics as diag
from arrowir.diagnostics import Diagnostic
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, MAX_INSTRUCTIONS, UNCHANGED, Pass, Plan
from arrowir.passes.indirect.accesses import Accesses, generic_rows
from arrowir.passes.indirect.chains import SUFFIXES, Chains
from arrowir.store import Array


@dataclass(frozen=True)
class LowerGenericIndirect(Pass):
    """Replace `GenericIndirectLoad` and `GenericIndirectSave` by chains that work out one address for each row.

    Works on all functions of a module. A chain multiplies and adds up the indices, adds the address of the table and a
    constant, and ends in an indirect load or save. It computes in two new locations of each access.

    Parameters
    ----------
    max_instructions
        The largest number of instructions that a module may have afterwards (rule O6).

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> air.passes.lower_generic_indirect(ir).status.to_list()
    ['unchanged']
    """

    name: ClassVar[str] = "lower_generic_indirect"

    max_instructions: int = MAX_INSTRUCTIONS

    def plan(self, ir: IR, active: Array) -> Plan:
        """Look at every access; see `Pass.plan`."""
        status = np.full(len(ir), UNCHANGED, np.int8)
        accesses = Accesses(ir, active[ir.tables["functions"]["module_id"]])
        module = ir.array("instructions", "module_id")
        of = module[accesses.row]
        found: dict[int, Diagnostic] = {}
        for _, failure in sorted(accesses.failures().items()):
            assert failure.module_id is not None
            found.setdefault(failure.module_id, failure)
        total = np.bincount(module, minlength=len(ir))
        if len(of):
            total += np.bincount(of, accesses.count + len(SUFFIXES) - 1, minlength=len(ir)).astype(np.int64)
        for m in np.flatnonzero(active & (total > self.max_instructions)).tolist():
            message = (
                f"{total[m]} instructions would result, more than the {self.max_instructions} of `max_instructions`"
            )
            found.setdefault(m, diag.make("too_many_instructions", message, module_id=m))
        status[of] = CHANGED
        status[list(found)] = FAILED
        return Plan(status, [found[m] for m in sorted(found)], accesses.pick(status[of] == CHANGED))

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Make the new tables; see `Pass.apply`."""
        return Chains(plan.edit).build()[0]


@dataclass(frozen=True)
class Lowered:
    """A batch in some of whose functions generic accesses are lowered."""

    ir: IR
    """The batch; functions that failed are as they were."""
    failures: dict[int, Diagnostic]
    """By function what kept it from being lowered."""
    edit: Edit | None
    """How rows moved; None where nothing was lowered."""


def lower(ir: IR, functions: Array) -> Lowered:
    """Lower the generic accesses of some functions of a batch and leave all else as it is (rule N3).

    Parameters
    ----------
    ir
        The batch; it is not changed.
    functions
        Mask of the functions.

    Returns
    -------
    Lowered
        The new batch, and what went wrong. Functions keep their ids; those of what stands in them change.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/bir_json_example.json")
    >>> lower(ir, np.ones(ir.count("functions"), bool)).failures
    {}
    """
    accesses = Accesses(ir, np.asarray(functions, bool))
    failures = accesses.failures()
    function = ir.array("instructions", "function_id")[accesses.row]
    accesses = accesses.pick(~np.isin(function, list(failures)))
    if not len(accesses.row):
        return Lowered(ir, failures, None)
    made, edit = Chains(accesses).build()
    return Lowered(made, failures, edit)


def needs_lowering(ir: IR) -> Array:
    """Tell for each function whether it has generic accesses."""
    found = np.zeros(ir.count("functions"), bool)
    found[ir.array("instructions", "function_id")[generic_rows(ir)]] = True
    return found


def more_rows(ir: IR) -> tuple[Array, Array]:
    """Return the generic accesses of a batch, and how many instructions lowering each adds (rule O6)."""
    row = generic_rows(ir)
    if not len(row):
        return row, row
    return row, Accesses(ir).count + len(SUFFIXES) - 1
