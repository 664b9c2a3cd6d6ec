"""One instruction at a time in the simulator: locations with given content, access patterns, and what comes out."""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

import arrowir as air
from arrowir import build
from arrowir.build import Register, Tensor

Array = NDArray[Any]
Pattern = Sequence[tuple[int, int]]

HELD: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "float8e3": ml_dtypes.float8_e3m4,
    "float8e4": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e5": ml_dtypes.float8_e5m2,
    **{
        name: np.dtype(name).type for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
    },
}
"""numpy dtype of each dtype of BIR."""

FLOATS = ("float32", "float16", "bfloat16", "float8e4", "float8e5")


def elements(array: Array, pattern: Pattern, offset: int = 0) -> Array:
    """Return what an access pattern means, element by element, in the shape of the pattern."""
    flat = array.reshape(-1)
    return flat[numbers(pattern, offset)]


def numbers(pattern: Pattern, offset: int = 0) -> Array:
    """Return the number of each element that a pattern names."""
    grid = np.indices([num for _, num in pattern])
    return offset + sum(index * step for index, (step, _) in zip(grid, pattern, strict=True))


def written(before: Array, pattern: Pattern, offset: int, values: Array) -> Array:
    """Return an array after elements that a pattern names have been written."""
    after = before.copy().reshape(-1)
    after[numbers(pattern, offset).reshape(-1)] = np.asarray(values).reshape(-1)
    return after.reshape(before.shape)


class Bench:
    """A module that is built around a few instructions, and the content of its locations.

    Examples
    --------
    >>> bench = Bench()
    >>> a, out = bench.given("a", np.ones((2, 3), np.float32)), bench.output("out", (2, 3))
    >>> bench.add("TensorCopy", [a], [out])
    >>> bench.run()["out"].tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, arch: str = "gen3") -> None:
        self.module = build.module(arch=arch)
        self.function = self.module.function()
        self.content: dict[str, Array] = {}

    def given(self, name: str, array: Array, dtype: str | None = None, memory: str = "SB", **members: Any) -> Tensor:
        """Add a location with some content; its partitions are the array's first dimension."""
        known = [n for n, held in HELD.items() if np.dtype(held) == array.dtype]
        self.content[name] = array
        return self.function.tensor(name, memory, array.shape, dtype or known[0], **members)

    def output(
        self, name: str, shape: Sequence[int], dtype: str = "float32", memory: str = "SB", fill: Any = None
    ) -> Tensor:
        """Add a location that `run` returns; with `fill` it has that content before."""
        if fill is not None:
            self.content[name] = np.broadcast_to(np.asarray(fill, HELD[dtype]), tuple(shape)).copy()
        return self.function.tensor(name, memory, shape, dtype, kind="ExternalOutput")

    def scratch(self, name: str, shape: Sequence[int], dtype: str = "float32", memory: str = "SB") -> Tensor:
        """Add a location that starts unwritten."""
        return self.function.tensor(name, memory, shape, dtype)

    def register(self, name: str, value: int | None = None) -> Register:
        """Add a register; with a value it is moved there."""
        made = self.function.register(name)
        if value is not None:
            self.add("RegisterMove", [value], [made])
        return made

    def add(self, opcode: str, ins: Sequence[Any] = (), outs: Sequence[Any] = (), **members: Any) -> None:
        """Add an instruction; see `arrowir.build.Body.add`."""
        self.function.add(opcode, ins, outs, **members)

    def run(self, **options: Any) -> "air.simulate.Simulation":
        """Simulate the module."""
        return air.simulate(self.module.ir(), self.content, **options)


def single(opcode: str, ins: Sequence[Array], shape: Sequence[int], dtype: str = "float32", **members: Any) -> Array:
    """Run one instruction on whole arrays, and return its one output."""
    bench = Bench()
    operands = [bench.given(f"in{place}", array) for place, array in enumerate(ins)]
    bench.add(opcode, operands, [bench.output("out", shape, dtype)], **members)
    return bench.run()["out"]
