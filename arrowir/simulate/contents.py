"""What the parameters of a function hold at the start of a comparison: arrays that are given, else random values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from arrowir import vocabulary as vocab
from arrowir.simulate import running
from arrowir.simulate.dtypes import Dtype
from arrowir.simulate.machine import Machine, held_dtype
from arrowir.simulate.program import Program
from arrowir.store import Array

Key: TypeAlias = tuple[str, str, int]
"""A parameter: `input`, `output` or `constant`, the location's name, and its number among those of that name."""

_EXPONENTS = -4, 2
LARGEST, SMALLEST = 4.0, 1 / 16
"""Random floats are between these in size, so that products of a few of them stay finite."""
INTEGERS = (128, 8, 2)
"""Random integers are below the first of these; where a module cannot run on them, below the next one."""

_SAFE_BYTES = {"float8_e8m0fnu": (0x7C, 0x84), "bool": (0, 2)}
"""Lowest byte, and the one behind the highest, of types whose bits are held; for others see `_BYTES`."""
_BYTES = (0x38, 0x44)
_FLOATS = 4096
"""How many different floats a parameter holds at most."""
"""Finite values in every packed type."""


def parameters(program: Program, function: int) -> dict[Key, int]:
    """Return the locations of a function that a caller sees, and its constants, in file order.

    Parameters
    ----------
    program, function
        The function.
    """
    found: dict[Key, int] = {}
    seen: dict[tuple[str, str], int] = {}
    for owner in program.sets(function):
        if owner.kind in vocab.INPUT_KINDS:
            role = "input"
        elif owner.kind in vocab.OUTPUT_KINDS:
            role = "output"
        elif owner.kind == vocab.KIND_CONST:
            role = "constant"
        else:
            continue
        for location in owner.locations:
            name = program.placement(location).name
            number = seen[role, name] = seen.get((role, name), -1) + 1
            found[role, name, number] = location
    return found


@dataclass
class Contents:
    """What parameters hold at the start, drawn when first asked for; the same for both modules of a pair.

    Parameters
    ----------
    seed, trial
        What random values are made of, beside the parameter's name.
    ceiling
        Integers are below it.
    nonfinite
        Whether floats may be infinite or no number.
    """

    seed: int
    trial: int
    ceiling: int = INTEGERS[0]
    nonfinite: bool = False
    drawn: dict[Key, NDArray[np.uint8]] = field(default_factory=dict[Key, NDArray[np.uint8]])
    integers: set[Key] = field(default_factory=set[Key])
    """Those that hold integers."""

    def fill(self, machine: Machine, given: Mapping[str, Any]) -> None:
        """Give the parameters of a machine's function their content.

        Parameters
        ----------
        machine
            A machine that has not run.
        given
            Arrays by name, as `simulate` takes them.
        """
        program, frame = machine.program, machine.frame
        running._load(machine, given)  # pyright: ignore[reportPrivateUsage]
        for key, location in parameters(program, frame.function).items():
            memory = machine.touch(frame, location)
            if memory.complete:
                continue
            held = held_dtype(program, location)
            if held.kind == "int":
                self.integers.add(key)
            if key not in self.drawn or self.drawn[key].size != memory.size:
                self.drawn[key] = self._draw(key, held, memory.size)
            memory.fill(self.drawn[key].copy())

    def smaller(self, ceiling: int) -> None:
        """Draw integers anew, below a ceiling."""
        self.ceiling = ceiling
        for key in self.integers:
            self.drawn.pop(key, None)

    def _draw(self, key: Key, held: Dtype, size: int) -> NDArray[np.uint8]:
        random = np.random.default_rng([self.seed, self.trial, crc32(repr(key).encode())])
        count = size // held.size
        out = np.zeros(size, np.uint8)
        if held.kind == "float":
            # Drawing a place in a table is many times as quick as drawing a float.
            places = random.integers(0, _FLOATS, count, np.uint16)
            values: Array = self._floats(random).astype(held.numpy).view(held.unsigned)[places]
        elif held.kind == "int":
            values = random.integers(0, min(self.ceiling, held.highest + 1), count).astype(held.numpy)
        else:
            low, high = _SAFE_BYTES.get(held.name, _BYTES)
            values = random.integers(low, high, count * held.size).astype(np.uint8)
        out[: count * held.size] = values.view(np.uint8)
        return out

    def _floats(self, random: np.random.Generator) -> Array:
        """Return floats of different sizes; in every second trial they are positive, as roots and logarithms want."""
        # From fraction and exponent, which gives the same bits everywhere.
        fraction = 1 + random.integers(0, 1 << 23, _FLOATS) / (1 << 23)
        values = np.ldexp(fraction, random.integers(*_EXPONENTS, _FLOATS))
        if self.trial % 2 == 0:
            values[::2] *= -1
        if self.nonfinite:
            values[: _FLOATS // 16] = np.resize((np.nan, np.inf, -np.inf), _FLOATS // 16)
        return values.astype(np.float32)
