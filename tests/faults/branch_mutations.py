"""Deliberate faults in how loops become branches, put in like those of `tests.faults.mutations`."""

from dataclasses import replace
from typing import Any

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.store import Array
from tests.faults.mutations import UNROLLING, Catcher, Mutation

FORMS, CUT, SHAPES = f"{UNROLLING}.runtime_loops", f"{UNROLLING}.cutting:Cut", f"{UNROLLING}.lowered_shapes"


def _unroll(name: str, rule: str, fault: str, *patches: Any, caught: Catcher = "execution") -> Mutation:
    return Mutation(name, "unroll", rule, fault, patches, caught)


def _without_guard(form: Any, *_: Any) -> Any:
    """The first iteration comes whatever the bounds are."""
    *entry, last = form.entry
    jump = replace(last, opcode=vocab.OP_UNCONDITIONAL_BRANCH, ins=(), op="", on_false="")
    return replace(form, entry=(*entry, jump))


def _end_included(form: Any, *_: Any) -> Any:
    turned = {"IS_LTREG": "IS_LEREG", "IS_GTREG": "IS_GEREG", "IS_LTIMM": "IS_LEIMM", "IS_GTIMM": "IS_GEIMM"}
    return replace(form, latch=tuple(replace(row, op=turned.get(row.op, row.op)) for row in form.latch))


def _while_zero(form: Any, *_: Any) -> Any:
    return replace(form, latch=tuple(replace(row, op=row.op.replace("NEIMM", "EQIMM")) for row in form.latch))


def _once(_: None, shapes: Any) -> None:
    from arrowir.passes.unrolling.lowered_shapes import NO_LATCH

    shapes.latch[:] = NO_LATCH


def _flat(_: Any, cut: Any, flat: Any) -> Any:
    return flat


def _axis_of_the_first(found: Array, lowering: Any, loops: Array, name: str) -> Array:
    """All lowered loops of a function share the register of the first one's axis."""
    if name != "LoopAxis":
        return found
    made = found.copy()
    for number, loop in enumerate(loops.tolist()):
        same = np.flatnonzero((lowering.function[loops] == lowering.function[loop]) & (found >= 0))
        made[number] = found[same[0]] if found[number] >= 0 else -1
    return made


def _named_otherwise(names: Any, *_: Any) -> Any:
    from arrowir.names import suffixed

    return suffixed(names, "x")


def _constants_of_addresses_lost(moving: Any, *_: Any) -> Any:
    """What is constant in an address that a register moves is taken to be 0."""
    program = moving.template.program
    results = (*program.results[:-1], 0)  # the first step of every such program is the constant 0
    return replace(moving, template=replace(moving.template, program=replace(program, results=results)))


def _plain(_: None, edges: Any) -> None:
    edges.relation = np.zeros_like(edges.relation)


BRANCH_MUTATIONS = (
    _unroll("guard_lost", "U2", "a loop that is counted at run time runs once at least",
            (FORMS, "counted_form", _without_guard)),
    _unroll("end_included", "U2", "a loop that is counted at run time runs once too often",
            (FORMS, "counted_form", _end_included)),
    _unroll("while_zero", "U2", "a loop goes on while its condition is 0", (FORMS, "tested_form", _while_zero)),
    _unroll("next_lost", "U2", "loops of branches run once", (f"{SHAPES}:LoweredShapes", "_ends", _once)),
    _unroll("break_kept", "U2", "a `Break` in a loop of branches stays", (CUT, "_breaks", _flat)),
    _unroll("body_branches_lost", "U2", "branches between the blocks of a body go nowhere",
            (CUT, "_branches_in_bodies", _flat)),
    _unroll("axis_shared", "U5", "loops of branches of one function share the register of their axis",
            (f"{UNROLLING}.lowering:Lowering", "register", _axis_of_the_first)),
    _unroll("moved_from_zero", "U4", "the constant part of an address that a register moves is lost",
            (f"{UNROLLING}.symbolic", "moving", _constants_of_addresses_lost)),
    _unroll("lowered_names", "R6", "what is made for loops of branches is named otherwise",
            (f"{UNROLLING}.lowering:Names", "of", _named_otherwise), caught="oracle"),
    _unroll("carried_as_plain", "U7", "edges over iterations of run time become plain ones",
            (f"{UNROLLING}.edges:UnrolledEdges", "_look_at_edges", _plain), caught="oracle"),
)  # fmt: skip
