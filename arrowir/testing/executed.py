"""What modules reach when they are executed, so that a generator that tests nothing is seen.

`python -m arrowir.testing.executed --count 300` prints it for modules of `arrowir.testing.executable`.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.formats import bir_json
from arrowir.ir import IR
from arrowir.simulate.contents import Contents, parameters
from arrowir.simulate.frames import Frame
from arrowir.simulate.machine import Machine
from arrowir.simulate.program import Code, Program
from arrowir.testing.bir import Json
from arrowir.testing.executable import document

BRANCHES = ("CompareAndBranch", "UnconditionalBranch")


class CountingMachine(Machine):
    """A machine that counts what it executes.

    Parameters
    ----------
    program
        The module.
    function
        The function to run.

    Examples
    --------
    >>> import arrowir as air
    >>> program = Program(air.read("data/samples/klr009/scale_add.bir.json"), 0)
    >>> machine = CountingMachine(program, program.entry(None))
    >>> Contents(0, 0).fill(machine, {})
    >>> machine.run(), machine.counts["opcode:TensorScalar"]
    (True, 1)
    """

    def __init__(self, program: Program, function: int) -> None:
        super().__init__(program, function)
        self.counts: Counter[str] = Counter()
        self._sites: dict[int, set[tuple[int, ...]]] = {}

    def execute(self, row: int, frame: Frame) -> Code:
        """Execute an instruction, and count what it does."""
        level = self.levels[-1]
        block, at, end = level.block, level.at, level.end
        code = super().execute(row, frame)
        counts = self.counts
        counts[f"opcode:{code.opcode}"] += 1
        counts["in a loop of depth 2"] += len(frame.axes) > 1
        counts["in a kernel"] += len(frame.chain) == 1
        counts["in a kernel of a kernel"] += len(frame.chain) > 1
        for operand in (*code.ins, *code.outs):
            counts[f"operand:{operand.kind}"] += 1
            counts["operand:dynamic"] += "dynamic_ap_info" in operand.members
        if code.opcode in BRANCHES:
            self._branch(code, level.block if self.levels[-1] is level else None, block)
        elif code.opcode == "Return":
            counts["return:early"] += at < end or block + 1 < len(level.blocks)
        elif code.opcode == "NKIKernel":
            counts["call:in a loop"] += bool(frame.axes)
            callee = self.levels[-1].frame.function
            sites = self._sites.setdefault(callee, set())
            counts["call:again from the same place"] += (*frame.chain, row) in sites
            counts["call:again from elsewhere"] += bool(sites - {(*frame.chain, row)})
            sites.add((*frame.chain, row))
        elif code.opcode == "Loop":
            counts["loop:no trips"] += self.levels[-1] is level
            counts["loop:several blocks"] += len(code.blocks) > 1
        return code

    def _branch(self, code: Code, after: int | None, block: int) -> None:
        """Count where a branch goes; `after` is the place of the block, None for one in a list around it."""
        counts = self.counts
        if after is None:
            counts["branch:out of a loop"] += 1
        else:
            counts["branch:back"] += after <= block
            counts["branch:forward"] += after > block
            counts["branch:to the entry"] += after == 0 and len(self.levels[-1].frame.chain) > 0
        if code.opcode == "CompareAndBranch" and after is not None:
            target = self.levels[-1].blocks[after]
            for slot in ("on_true", "on_false"):
                counts[f"branch:{slot}"] += code.branches[slot][0] == target


@dataclass(slots=True)
class Reached:
    """What some modules reach when they are executed.

    Parameters
    ----------
    modules, executed : int
        How many there are, and how many of them can be executed.
    compared, dependent : int
        How many were executed on two inputs, and how many of these compute something else on the other one.
    counts : Counter
        How often each feature occurs in all of them.
    shares : Counter
        In how many modules it occurs.
    failures : list of str
        Why modules cannot be executed.

    Examples
    --------
    >>> Reached().modules
    0
    """

    modules: int = 0
    executed: int = 0
    compared: int = 0
    dependent: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    shares: Counter[str] = field(default_factory=Counter[str])
    failures: list[str] = field(default_factory=list[str])

    def add(self, ir: IR, module_id: int, *, twice: bool = True) -> None:
        """Execute a module.

        Parameters
        ----------
        ir : IR
            The batch.
        module_id : int
            The module.
        twice : bool
            Execute it on other inputs as well.
        """
        self.modules += 1
        program = Program(ir, module_id)
        results: list[list[Any]] = []
        machine = None
        for trial in (0, 1) if twice else (0,):
            machine = CountingMachine(program, program.entry(None))
            contents = Contents(0, trial)
            try:
                contents.fill(machine, {})
                for key in list(contents.drawn):  # outputs begin with the same content, so that inputs alone differ
                    if key[0] == "output":
                        location = parameters(program, machine.frame.function)[key]
                        machine.touch(machine.frame, location).data[:] = 0
                machine.run()
            except SimulationError as error:
                self.failures.append(str(error))
                return
            results.append([machine.touch(machine.frame, where).data for where in _outputs(program, machine)])
        assert machine is not None
        self.executed += 1
        if twice:
            self.compared += 1
            self.dependent += any(not np.array_equal(a, b) for a, b in zip(*results, strict=True))
        self.counts += machine.counts
        self.shares.update(name for name, n in machine.counts.items() if n)

    def __str__(self) -> str:
        lines = [
            f"{self.modules} modules, {self.executed} executed; {self.dependent} of {self.compared} depend on inputs",
            f"{'reached':42} {'times':>8} {'modules':>8}",
        ]
        lines += [f"{name:42} {n:8,} {self.shares[name]:8,}" for name, n in sorted(self.counts.items()) if n]
        return "\n".join([*lines, *self.failures[:5]])

    @property
    def brief(self) -> str:
        """The same in one line, with the number of modules alone."""
        counts = ", ".join(f"{name} {n:,}" for name, n in sorted(self.shares.items()))
        first = str(self).splitlines()[0]
        return f"{first}; modules that reach a feature: {counts}"


def _outputs(program: Program, machine: Machine) -> list[int]:
    return [where for key, where in parameters(program, machine.frame.function).items() if key[0] == "output"]


def reached(documents: Iterable[Json], *, every: int = 1) -> Reached:
    """Execute documents and count what they reach.

    Parameters
    ----------
    documents : iterable of dict
        Parsed modules.
    every : int
        One of so many is executed on two inputs, to see whether it depends on them.

    Returns
    -------
    Reached
        The counts.

    Examples
    --------
    >>> reached([document(3)]).executed
    1
    """
    found = Reached()
    for number, each in enumerate(documents):
        found.add(bir_json.read_json(json.dumps(each).encode(), name=f"m{number}"), 0, twice=number % every == 0)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Print what drawn modules reach.

    Parameters
    ----------
    arguments : list of str, optional
        The command line.

    Returns
    -------
    int
        The exit code: 1 when one cannot be executed.

    Examples
    --------
    >>> main(["--count", "0"])
    0 modules, 0 executed; 0 of 0 depend on inputs
    reached                                       times  modules
    0
    """
    parser = argparse.ArgumentParser(prog="python -m arrowir.testing.executed", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="how many modules")
    parser.add_argument("--seed", type=int, default=0, help="the number of the first one")
    for name in ("calls", "nested", "blocks"):
        parser.add_argument(f"--no-{name}", dest=name, action="store_false", help=f"without {name}")
    parser.add_argument("--unrollable", action="store_true", help="loops have one block")
    chosen = vars(parser.parse_args(arguments))
    first, count = chosen.pop("seed"), chosen.pop("count")
    found = reached(document(seed, **chosen) for seed in range(first, first + count))
    sys.stdout.write(f"{found}\n")
    return int(bool(found.failures))


if __name__ == "__main__":
    sys.exit(main())
