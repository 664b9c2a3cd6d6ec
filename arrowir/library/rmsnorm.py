"""The kernel `RMSNorm`: rows divided by their root mean square, or normalised to mean 0 and variance 1."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from arrowir.build import Tensor
from arrowir.library.activation import LANES, activate
from arrowir.library.bodies import ALIGNMENT, BodyBuilder, Place
from arrowir.library.kernel import Kernel, sbuf_bytes
from arrowir.library.options import Option
from arrowir.library.views import Grid, Pieces, item_bytes, pieces
from arrowir.store import Array

NORM_TYPES = {"RMS_NORM": 1, "LAYER_NORM": 2, "RMS_NORM_SKIP_GAMMA": 3}

STATISTICS = 512
"""Most elements of one `BNStats`."""


class RMSNorm(Kernel):
    """Norms of rows: of the last dimension of the input.

    Parameters
    ----------
    in0
        The rows: any shape ``[..., H]``; float32, bfloat16 or float16; in DRAM, SBUF or PSUM.
    in1
        gamma, a factor for each of the H elements: shape ``[H]`` or ``[1, H]``. With RMS_NORM it must be there, with
        LAYER_NORM it may, with RMS_NORM_SKIP_GAMMA it must not.
    in2
        beta, which LAYER_NORM may have behind gamma: added to each of the H elements.
    out0
        The shape of the input; any of these dtypes.

    Notes
    -----
    `norm_type` RMS_NORM is ``x / sqrt(mean(x^2) + eps) * gamma``, RMS_NORM_SKIP_GAMMA the same without gamma, and
    LAYER_NORM ``(x - mean(x)) / sqrt(var(x) + eps) * gamma + beta`` with the variance of the population.

    Rows stand in partitions, 128 at a time; a row is cut into pieces of `tile_size`. gamma and beta are loaded once,
    for all partitions. The sum of squares is a `TensorTensor` and a `TensorReduce` for each piece; mean and variance
    are a `BNStats` for every 512 elements and a `BNStatsAggregate`. Of rows of several pieces each is loaded twice: for
    the sum, and to be scaled. Scratch is two tiles of the input and of the output where these are not used in place,
    one of float32, numbers for each row, and gamma and beta.

    Sums are in float32, in the order of the elements. An output differs from the definition in float64 by at most
    (float32) 2e-5, (float16) 1e-3, (bfloat16) 8e-3, times its size where that is above 1, for H up to 8192.
    """

    name: ClassVar[str] = "RMSNorm"
    options: ClassVar[tuple[Option, ...]] = (
        Option("norm_type", "int", "RMS_NORM", "which norm", choices=NORM_TYPES),
        Option("eps", "float", 1e-6, "what is added to the mean square, or to the variance", least=0.0),
        Option("tile_size", "int", 2048, "elements of a tile in each partition", least=1),
    )
    tolerance: ClassVar[Mapping[str, float]] = {"float32": 2e-5, "float16": 1e-3, "bfloat16": 8e-3}

    # -- what it takes ------------------------------------------------------------------------------------------------

    def verify(self) -> None:
        """Expect rows, factors of their length as the norm has them, and an output like the rows."""
        kind = self.values["norm_type"]
        inputs = {"RMS_NORM": (2, 2), "RMS_NORM_SKIP_GAMMA": (1, 1), "LAYER_NORM": (1, 3)}[kind]
        self.expect_counts(inputs, 1)
        self.expect_dtypes()
        x, *factors = self.call.inputs
        (out,) = self.call.outputs
        self.expect(len(x.shape) > 0 and 0 not in x.shape, "rows of at least one element")
        self.expect(out.shape == x.shape, "an output of the shape of the input")
        length = x.shape[len(x.shape) - 1]
        self.expect(
            all(f.shape in ((length,), (1, length)) for f in factors), f"gamma and beta of the shape [{length}]"
        )
        self.length = length
        self.x, self.out = Grid.of(x, length), Grid.of(out, length)
        self.factors = [Grid.of(f, length) for f in factors]
        self._expect_room()

    def _expect_room(self) -> None:
        capacity = sbuf_bytes(self.call.arch)
        if capacity is not None:
            needed = self._scratch_bytes()
            self.expect(
                needed <= capacity, f"rows whose scratch, {needed} bytes, fits into the {capacity} of a partition"
            )

    def _scratch_bytes(self) -> int:
        _, columns = self._pieces()
        tile = int(columns[1].max())
        tiles = [tile * item_bytes(g.argument.dtype) for g in (self.x, self.out) if not g.in_place for _ in range(2)]
        sums = _sums(columns, layer_norm=self._is_layer_norm())
        each = [*tiles, 4 * tile, 4 * sums, 2 * 4, 4]
        each += [self.length * item_bytes(f.argument.dtype) for f in self.factors]
        return sum(-(-size // ALIGNMENT) * ALIGNMENT for size in each)

    def _pieces(self) -> tuple[Pieces, Pieces]:
        """Return the pieces of all rows, and of each row."""
        return (
            pieces(self.x.height, LANES, (self.x.rows, self.out.rows)),
            pieces(self.length, self.values["tile_size"], (self.x.columns, self.out.columns)),
        )

    def _is_layer_norm(self) -> bool:
        return self.values["norm_type"] == "LAYER_NORM"

    def size(self) -> int:
        """Count instructions: for the factors, then for each run of rows."""
        rows, columns = self._pieces()
        several = len(columns[0]) > 1
        load, save = int(not self.x.in_place), int(not self.out.in_place)
        if self._is_layer_norm():
            statistics = sum(-(-width // STATISTICS) for width in columns[1].tolist()) + 1
        else:
            statistics = 2 * len(columns[0]) + several
        scaled = len(columns[0]) * ((several + 1) * load + 1 + save + self._more_steps())
        return len(self.factors) + len(rows[0]) * (statistics + 1 + scaled)

    def _more_steps(self) -> int:
        """Count what a tile takes beside one `TensorScalarPtr`."""
        return len(self.factors) if self._is_layer_norm() else 0

    # -- its body -----------------------------------------------------------------------------------------------------

    def emit(self, body: BodyBuilder) -> None:
        """Add the factors, then statistics and scaling of each run of rows."""
        rows, columns = self._pieces()
        height, width = int(rows[1].max()), int(columns[1].max())
        cuts = list(zip(*(part.tolist() for part in columns), strict=True))
        factors = [self._factor(body, name, grid, height) for name, grid in zip(("gamma", "beta"), self.factors)]  # noqa: B905
        scratch = _Scratch(body, (height, width), self.x, self.out, layer_norm=self._is_layer_norm(), pieces=columns)
        for row, rows_here in zip(*(part.tolist() for part in rows), strict=True):
            places = [(row, rows_here, column, columns_here) for column, columns_here in cuts]
            tiles = [body.fetched(self.x, places[0], scratch.x())] if len(places) == 1 else []
            self._scale(body, places, tiles, factors, scratch, self._statistics(body, places, tiles, scratch))

    def _factor(self, body: BodyBuilder, name: str, grid: Grid, height: int) -> Tensor:
        """Load gamma or beta into every partition."""
        tile = body.sb(name, (height, self.length), grid.argument.dtype)
        body.copy(grid.spread(height, 0, self.length), tile)
        return tile

    def _statistics(
        self, body: BodyBuilder, places: Sequence[Place], tiles: Sequence[Any], scratch: "_Scratch"
    ) -> list[Any]:
        """Add what gives the scalars of each row: the mean for LAYER_NORM, then the factor."""
        rows = places[0][1]
        number = 0
        for place in places:
            tile = tiles[0] if tiles else body.fetched(self.x, place, scratch.x())
            if self._is_layer_norm():
                for begin in range(0, place[3], STATISTICS):
                    part = _columns(tile, begin, min(STATISTICS, place[3] - begin))
                    found = scratch.sums[:rows, 6 * number : 6 * number + 6]
                    body.add("BNStats", [part], [found], what="stats", apply_transpose=False)
                    number += 1
            else:
                square = scratch.square[:rows, : place[3]]
                body.add("TensorTensor", [tile, tile], [square], what="square", op="mult")
                _sum(body, square, scratch.sums[:rows, number : number + 1])
                number += 1
        factor = scratch.factor[:rows, 0:1]
        if self._is_layer_norm():
            moments = scratch.moments[:rows, 0:2]
            body.add("BNStatsAggregate", [scratch.sums[:rows, : 6 * number]], [moments], what="moments")
            self._root(body, scratch.moments[:rows, 1:2], 1.0, factor)
            return [scratch.moments[:rows, 0:1], factor]
        total = scratch.sums[:rows, 0:1]
        if number > 1:
            total = scratch.moments[:rows, 0:1]
            _sum(body, scratch.sums[:rows, :number], total)
        self._root(body, total, 1 / self.length, factor)
        return [factor]

    def _root(self, body: BodyBuilder, source: Any, scale: float, out: Any) -> None:
        """Add ``1 / sqrt(source * scale + eps)``."""
        numbers = [{"dtype": "float32", "kind": "imm_value", "value": v} for v in (scale, self.values["eps"])]
        activate(body, "Rsqrt", [source, *numbers], out, what="root")

    def _scale(
        self,
        body: BodyBuilder,
        places: Sequence[Place],
        tiles: Sequence[Any],
        factors: Sequence[Tensor],
        scratch: "_Scratch",
        scalars: Sequence[Any],
    ) -> None:
        """Add the scaling of each piece, and its save."""
        for place in places:
            _, rows, column, width = place
            tile = tiles[0] if tiles else body.fetched(self.x, place, scratch.x())
            out = body.target(self.out, place, scratch.y())
            gains = [f[:rows, column : column + width] for f in factors]
            if self._is_layer_norm():
                steps = [scratch.centred[:rows, :width] for _ in gains]
                first = steps[0] if gains else out
                _scalars(body, [tile, *scalars], first, "subtract", "mult")
                for op, gain, source, target in zip(("mult", "add"), gains, steps, [*steps[1:], out]):  # noqa: B905
                    body.add("TensorTensor", [source, gain], [target], what="gain", op=op)
            elif gains:
                _scalars(body, [tile, *scalars, gains[0]], out, "mult", "mult", is_scalar_tensor_tensor=True)
            else:
                _scalars(body, [tile, *scalars], out, "mult", "bypass")
            body.store(self.out, place, out)

    # -- what it computes ---------------------------------------------------------------------------------------------

    @staticmethod
    def define(inputs: Sequence[Array], options: Mapping[str, Any]) -> Sequence[Array]:
        """Return the normalised rows."""
        x, *factors = inputs
        if options["norm_type"] == "LAYER_NORM":
            x = x - x.mean(axis=-1, keepdims=True)
        found = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + options["eps"])
        if factors:
            found = found * factors[0].reshape(-1)
        if len(factors) > 1:
            found = found + factors[1].reshape(-1)
        return [found]


class _Scratch:
    """The scratch of a norm; tiles of input and output take turns."""

    def __init__(
        self, body: BodyBuilder, shape: tuple[int, int], x: Grid, out: Grid, *, layer_norm: bool, pieces: Pieces
    ) -> None:
        height = shape[0]
        sums = _sums(pieces, layer_norm=layer_norm)
        self._x = _pair(body, "x", shape, x)
        self._y = _pair(body, "y", shape, out)
        self._turns = [0, 0]
        self.square = self.centred = body.sb("centred" if layer_norm else "square", shape)
        self.sums = body.sb("sums", (height, sums))
        if layer_norm or sums > 1:
            self.moments = body.sb("moments", (height, 2))
        self.factor = body.sb("factor", (height, 1))

    def x(self) -> Tensor | None:
        """Return the next tile for the input."""
        self._turns[0] += 1
        return self._x[(self._turns[0] - 1) % 2]

    def y(self) -> Tensor | None:
        """Return the next tile for the output."""
        self._turns[1] += 1
        return self._y[(self._turns[1] - 1) % 2]


def _sums(pieces: Pieces, *, layer_norm: bool) -> int:
    """Return how many numbers of statistics there are for each row."""
    widths = pieces[1].tolist()
    return sum(6 * -(-width // STATISTICS) for width in widths) if layer_norm else len(widths)


def _pair(body: BodyBuilder, name: str, shape: tuple[int, int], grid: Grid) -> list[Tensor] | list[None]:
    """Return two tiles for an argument; none where it is used in place."""
    if grid.in_place:
        return [None, None]
    return [body.sb(f"{name}{number}", shape, grid.argument.dtype) for number in range(2)]


def _sum(body: BodyBuilder, source: Any, out: Any) -> None:
    body.add("TensorReduce", [source], [out], what="sum", op="add", axis="X", apply_transpose=False, negate=False)


def _scalars(body: BodyBuilder, ins: Sequence[Any], out: Any, op0: str, op1: str, **members: Any) -> None:
    body.add(
        "TensorScalarPtr", ins, [out], what="scale", op0=op0, op1=op1, reverse0=False, reverse1=False, acc="Idle",
        **members,
    )  # fmt: skip


def _columns(tile: Mapping[str, Any], begin: int, count: int) -> dict[str, Any]:
    """Return some columns of an access to a tile."""
    *rows, (step, _) = tile["ap"]
    return {**tile, "ap": [*rows, [step, count]], "offset": tile["offset"] + begin * step}
