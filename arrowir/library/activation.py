"""The kernel `Activation`: a function of every element."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from arrowir.library.bodies import BodyBuilder, Place
from arrowir.library.call import Argument
from arrowir.library.kernel import Kernel
from arrowir.library.options import Option
from arrowir.library.status import KernelError
from arrowir.library.views import Grid, Pieces, merged, pieces
from arrowir.store import Array

LANES = 128
"""Partitions of a tile."""

FUNCTIONS: dict[str, tuple[int, str, Callable[[Array], Array]]] = {
    "SiLU": (0, "Silu", lambda x: x / (1 + np.exp(-x))),
    "GELU": (1, "Gelu", lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2)))),
    "GELU_Tanh_Approx": (
        2,
        "Gelu_apprx_tanh",
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    ),
    "Swish": (3, "Gelu_apprx_sigmoid", lambda x: x / (1 + np.exp(-1.702 * x))),
    "ReLU": (4, "Relu", lambda x: np.fmax(x, 0.0)),
}
"""The functions by name: number, function of the opcode `Activation`, definition."""


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.reshape(-1).tolist()], np.float64).reshape(x.shape)


class Activation(Kernel):
    """A function of every element: ``out[i] = act_fn(in0[i])``.

    Parameters
    ----------
    in0
        Any shape; float32, bfloat16 or float16; in DRAM, SBUF or PSUM.
    out0
        As many elements, in the same linear order; of any of these dtypes.

    Notes
    -----
    `act_fn` is SiLU ``x sigmoid(x)``, GELU ``x (1 + erf(x / sqrt 2)) / 2``, GELU_Tanh_Approx
    ``x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2``, Swish ``x sigmoid(1.702 x)``, or ReLU ``max(x, 0)``.

    Elements are spread over up to 128 partitions and cut into tiles of `tile_size`; each tile is one DMA in, one
    `Activation`, one DMA out. What is in SBUF or PSUM with a partition for each row is read or written in place. Two
    tiles are in flight, so that scratch is twice `tile_size` elements of each dtype that is not in place.

    Computation is in float32. An output differs from the definition in float64 by at most 2e-6 (float32), 1e-3
    (float16) or 8e-3 (bfloat16), times its size where that is above 1.
    """

    name: ClassVar[str] = "Activation"
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "act_fn", "int", "SiLU", "the function", choices={name: number for name, (number, *_) in FUNCTIONS.items()}
        ),
        Option("tile_size", "int", 2048, "elements of a tile in each partition", least=1),
    )
    tolerance: ClassVar[Mapping[str, float]] = {"float32": 2e-6, "float16": 1e-3, "bfloat16": 8e-3}

    def verify(self) -> None:
        """Expect one input, and an output of as many elements."""
        self.expect_counts((1, 1), 1)
        self.expect_dtypes()
        source, target = self.call.arguments
        self.expect(
            math.prod(source.shape) == math.prod(target.shape), "as many elements in the output as in the input"
        )
        self.grids = _common_grids(source, target)

    def size(self) -> int:
        """Return a DMA for each tile that is not in place, and an `Activation`."""
        rows, columns = self._pieces()
        return len(rows[0]) * len(columns[0]) * (1 + sum(not grid.in_place for grid in self.grids))

    def _pieces(self) -> tuple[Pieces, Pieces]:
        source, target = self.grids
        return (
            pieces(source.height, LANES, (source.rows, target.rows)),
            pieces(source.width, self.values["tile_size"], (source.columns, target.columns)),
        )

    def emit(self, body: BodyBuilder) -> None:
        """Add load, activation and save of each tile; two pairs of scratch take turns."""
        source, target = self.grids
        rows, columns = self._pieces()
        shape = (int(rows[1].max(initial=1)), int(columns[1].max(initial=1)))
        turns = min(2, len(rows[0]) * len(columns[0]))
        x = [] if source.in_place else [body.sb(f"x{n}", shape, source.argument.dtype) for n in range(turns)]
        y = [] if target.in_place else [body.sb(f"y{n}", shape, target.argument.dtype) for n in range(turns)]
        for number, place in enumerate(_places(rows, columns)):
            turn = number % turns
            tile = body.fetched(source, place, x[turn] if x else None)
            out = body.target(target, place, y[turn] if y else None)
            activate(body, FUNCTIONS[self.values["act_fn"]][1], [tile], out)
            body.store(target, place, out)

    @staticmethod
    def define(inputs: Sequence[Array], options: Mapping[str, Any]) -> Sequence[Array]:
        """Return the function of the input."""
        return [FUNCTIONS[options["act_fn"]][2](inputs[0])]


def activate(body: BodyBuilder, function: str, ins: Sequence[Any], out: Any, what: str = "act") -> None:
    """Add an `Activation` that accumulates nothing; scale and bias may follow the input as operands."""
    body.add(
        "Activation", ins, [out], what=what, func=function, scale=1.0, alpha=0.0, acc="Idle", op0="bypass",
        op1="bypass", reduce_op="bypass",
    )  # fmt: skip


def _places(rows: Pieces, columns: Pieces) -> Iterator[Place]:
    for row, height in zip(*(part.tolist() for part in rows), strict=True):
        for column, width in zip(*(part.tolist() for part in columns), strict=True):
            yield row, height, column, width


def _common_grids(source: Argument, target: Argument) -> tuple[Grid, Grid]:
    """Cut both arguments into the same rows: those of partitions where one is on chip, else as many lanes as go."""
    total = math.prod(source.shape)
    widths = [math.prod(num for _, num in a.pattern[1:]) for a in (source, target) if a.on_chip]
    if not widths:
        whole = all(len(merged(a.pattern)) == 1 for a in (source, target))
        last = source.shape[-1] if source.shape else 1
        widths = [total // _lanes(total)] if whole and total // max(last, 1) < LANES else [last]
        widths += [math.prod(num for _, num in a.pattern[1:]) for a in (target, source)]
    problem: KernelError | None = None
    for width in dict.fromkeys([*widths, total]):
        try:
            return Grid.of(source, width), Grid.of(target, width)
        except KernelError as error:
            problem = problem or error
    assert problem is not None
    raise problem


def _lanes(total: int) -> int:
    """Return the largest number of lanes that divides a number of elements."""
    return next(lanes for lanes in range(LANES, 0, -1) if total % lanes == 0)
