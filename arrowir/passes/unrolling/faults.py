"""What keeps a function from being unrolled: the first fault of each, in the order in which rules are checked."""

from dataclasses import dataclass

import numpy as np

from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.base import whereabouts
from arrowir.store import Array


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong, at an instruction of the batch."""

    order: tuple[int, ...]
    """Where it is met within its function."""
    code: str
    message: str
    instruction: int
    location: int = -1


class Faults:
    """The first fault of each function."""

    def __init__(self, ir: IR) -> None:
        self.ir = ir
        self.first: dict[int, Fault] = {}

    def add(self, fault: Fault) -> None:
        """Take note of a fault, if it is met before those of its function that are known."""
        function = int(self.ir.array("instructions", "function_id")[fault.instruction])
        known = self.first.get(function)
        if known is None or fault.order < known.order:
            self.first[function] = fault

    def functions(self) -> Array:
        """Return a mask of the functions that have one."""
        mask = np.zeros(self.ir.count("functions"), bool)
        mask[list(self.first)] = True
        return mask

    def diagnostic(self, function: int) -> Diagnostic:
        """Return the error row of a function."""
        fault = self.first[function]
        about = whereabouts(self.ir, fault.instruction)
        if fault.location >= 0:
            about |= {"location": self.ir.tables["locations"].text()[fault.location], "location_id": fault.location}
        return Diagnostic("error", fault.code, fault.message, **about)


def first_places(function: Array, *keys: Array) -> Array:
    """Return for each function the place of its first item, by rising keys (the first key counts most)."""
    order = np.lexsort((*reversed(keys), function))
    ranked = function[order]
    begins = np.ones(len(order), bool)
    begins[1:] = ranked[1:] != ranked[:-1]
    return order[begins]
