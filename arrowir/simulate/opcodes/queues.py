"""DMA queues: a trigger in a function starts blocks of descriptors, which stand in the module's queues.

Descriptors are executed where the trigger stands, one after the other: waiting for a DMA gives the same result.
"""

from weakref import WeakKeyDictionary

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.machine import Machine
from arrowir.simulate.program import Program
from arrowir.simulate.registry import opcode
from arrowir.simulate.step import Step

_ANY = (0, None)

_started: "WeakKeyDictionary[Machine, dict[int, tuple[str, int]]]" = WeakKeyDictionary()
"""For each trigger of several blocks its queue, and the number of the block that comes next."""

_known: "WeakKeyDictionary[Program, dict[str, dict[str, list[int]]]]" = WeakKeyDictionary()
"""The blocks of each queue by name."""


@opcode("DMATrigger", ins=_ANY, outs=_ANY, keys="dma_blocks", control=True, basis="strong")
def trigger(step: Step) -> None:
    """The descriptors of a block of its queue; of several blocks the next one each time, or all."""
    names = step.attribute("dma_blocks") if step.has("dma_blocks") else []
    queue = step.word("queue") if step.has("queue") else ""
    if not queue or not isinstance(names, list | tuple) or not names:
        raise SimulationError("DMATrigger must have queue and block set")
    rows = [_block(step, queue, name) for name in names]
    if len(rows) == 1 or step.decide("dma_trigger", f"the trigger names {len(rows)} blocks") == "all":
        chosen = rows
    else:
        counted = _started.setdefault(step.machine, {})
        _, at = counted.get(step.code.row, (queue, 0))
        chosen = [rows[at % len(rows)]]
        counted[step.code.row] = queue, (at + 1) % len(rows)
    for row in chosen:
        step.machine.execute(row, step.frame)


@opcode(
    "DMABlock", ins=_ANY, outs=_ANY, control=True,
    keys="dma_trigger block_id section_start priority_class remote_notifications blocks sync_info",
)  # fmt: skip
def block(step: Step) -> None:
    """The descriptors in it, in order."""
    program = step.machine.program
    for nested in step.code.blocks:
        for row in range(*program.instructions(nested)):
            step.machine.execute(row, step.frame)


@opcode(
    "SwitchQueueInstance", "ResetQueueInstance", ins=_ANY, outs=_ANY, keys="instance instance_name no_rearm",
    control=True, basis="strong",
)  # fmt: skip
def change_instance(step: Step) -> None:
    """Synchronisation, of which program order makes nothing; triggers must not be in the middle of their blocks."""
    if step.has("no_rearm") and step.flag("no_rearm"):
        return
    queue = step.word("queue") if step.has("queue") else ""
    midway = [row for row, (of, at) in _started.get(step.machine, {}).items() if of == queue and at]
    if midway:
        name = step.machine.program.text("instructions", midway[0])
        raise SimulationError(
            f"the trigger `{name}` is in the middle of its blocks; whether the instance rewinds it is not known"
        )


def _block(step: Step, queue: str, name: object) -> int:
    """Return the block of a name in a queue; of several the one that names the trigger."""
    program = step.machine.program
    named = _blocks(program, queue).get(str(name), [])
    if len(named) > 1:
        mine = [row for row in named if program.members("instructions", row).get("dma_trigger") == step.code.name]
        named = mine or named
    if not named:
        raise SimulationError(f"Block does not exist! `{name!s:.60}` in `{queue}`")
    if len(named) > 1:
        raise SimulationError(f"{len(named)} blocks are named `{name}` in `{queue}`")
    return named[0]


def _blocks(program: Program, queue: str) -> dict[str, list[int]]:
    """Return the DMA blocks of a queue by name."""
    known = _known.setdefault(program, {})
    if queue not in known:
        queues = program.children("queues", "module_id", program.module_id)
        mine = [row for row in queues if program.text("queues", row) == queue]
        if not mine:
            raise SimulationError(f"Queue does not exist! `{queue}`")
        inside = np.isin(program.column("blocks", "queue_id"), mine)
        inside &= program.column("blocks", "instruction_id") < 0
        known[queue] = {}
        for row in np.flatnonzero(inside).tolist():
            for number in range(*program.instructions(row)):
                if program.word("instructions", "opcode", number) == "DMABlock":
                    known[queue].setdefault(program.text("instructions", number), []).append(number)
    return known[queue]
