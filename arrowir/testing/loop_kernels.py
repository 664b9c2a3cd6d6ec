"""Kernels in the old style: loop nests, symbolic addresses, loop-carried edges, expressions as attributes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json, Pattern
from arrowir.testing.bodies import MATMULT_DEFAULTS
from arrowir.testing.callers import KernelPlan, parameter_sets
from arrowir.testing.emitting import Style
from arrowir.testing.expressions import affine, floor_divided, induction, loop, modulo, multiplied, symbolic
from arrowir.testing.recipes import RECIPES, Formal

HALF, FULL = "bfloat16", "float32"


class _Writer:
    """Writes the pieces of one loop kernel in the wanted style."""

    def __init__(self, style: Style, formals: tuple[Formal, ...], allocated: bool) -> None:
        self.style = style
        self.allocated = allocated
        self.shapes = {formal.name: formal.shape for formal in formals}
        self.dtypes = {formal.name: formal.dtype for formal in formals}
        self.sets: list[Json] = []
        self.sb_bytes = self.psum_banks = 0
        self._nest: list[str] = []
        self._count = 0

    def tile(self, name: str, elements: int, dtype: str = HALF, *, memory: str = "SB") -> str:
        size = elements * bir.ITEM_BYTES[dtype]
        place: dict[str, Any] = {"allocated": self.allocated}
        if memory == "SB":
            place["addr"] = self.sb_bytes if self.allocated else 0
            self.sb_bytes += -(-size // 64) * 64
        else:
            place["bank"] = self.psum_banks if self.allocated else 0
            self.psum_banks += 1
        shape = (128, elements)
        self.sets.append(bir.tensor(name, memory, shape, dtype, full_keys=self.style.full_keys, **place))
        self.shapes[name], self.dtypes[name] = shape, dtype
        return name

    def at(self, name: str, rows: int, columns: int, row: Json | None = None, column: Json | None = None) -> Json:
        """Return an access to a part of a tensor: symbolic if a place is given, else to its beginning."""
        pattern: Pattern = [[self.shapes[name][1], rows], [1, columns]]
        dtype, full = self.dtypes[name], self.style.full_keys
        if row is None and column is None:
            return bir.access(name, pattern, dtype, full_keys=full)
        return symbolic(f"{name}_set", [row or affine(), column or affine()], pattern, dtype, full_keys=full)

    def add(
        self,
        opcode: str,
        engine: str,
        ins: list[Json],
        outs: list[Json],
        *,
        edges: tuple[tuple[str, str], ...] = (),
        carried: tuple[Any, ...] = (),
        keys: Json | None = None,
    ) -> Json:
        name = f"K-{self._count}"
        self._count += 1
        kept = self.style.edges
        return bir.instruction(
            name,
            opcode,
            engine,
            ins,
            outs,
            edges=[list(edge) for edge in edges] if kept else [],
            full_keys=self.style.full_keys,
            keys=keys,
            loopnest=list(self._nest) or None,
            loop_carried_dependencies=[list(entry) for entry in carried] if kept and carried else None,
        )

    def matmult(self, moving: Json, stationary: Json, out: Json, flag: int | Json, **edges: Any) -> Json:
        keys = {**(MATMULT_DEFAULTS if self.style.full_keys else {}), "accumulation_flag": flag}
        keys |= {"is_transpose": False, "tile_position": [0, 0], "tile_size": [128, 128]}
        return self.add("Matmult", "PE", [moving, stationary], [out], keys=keys, **edges)

    def nest(self, axis: str, lower: int, upper: int, stride: int, body: Callable[[], list[Json]]) -> Json:
        self._nest.append(axis)
        rows = body()
        self._nest.pop()
        return loop(axis, lower, upper, stride, rows, name=f"loop_{axis}")


COPY: Json = {"mode": "Copy"}


def _matmul_tiled(w: _Writer) -> list[Json]:
    a, b = w.tile("a_tile", 128), w.tile("b_tile", 512)
    c = w.tile("c_tile", 512, FULL)
    acc = w.tile("acc", 512, FULL, memory="PSUM")

    def inner() -> list[Json]:
        k, m, n = affine({"k": 128}), affine({"m": 128}), affine({"n": 512})
        carried = (("K-2", "Anti"),)
        return [
            w.add(
                "DMACopy",
                "SP",
                [w.at("lhs_t", 128, 128, k, m)],
                [w.at(a, 128, 128)],
                carried=carried,
                keys=COPY,
            ),
            w.add(
                "DMACopy",
                "SP",
                [w.at("rhs", 128, 512, k, n)],
                [w.at(b, 128, 512)],
                carried=carried,
                keys=COPY,
            ),
            w.matmult(
                w.at(b, 128, 512),
                w.at(a, 128, 128),
                w.at(acc, 128, 512),
                # 1 starts the accumulation, 2 goes on with it
                affine({"k": 1}, 1),
                edges=(("K-0", "Flow"), ("K-1", "Flow")),
                carried=(("K-2", "Output"),),
            ),
        ]

    def columns() -> list[Json]:
        m, n = affine({"m": 128}), affine({"n": 512})
        return [
            w.nest("k", 0, 2, 1, inner),
            w.add("TensorCopy", "DVE", [w.at(acc, 128, 512)], [w.at(c, 128, 512)], edges=(("K-2", "Flow"),)),
            w.add(
                "DMACopy",
                "SP",
                [w.at(c, 128, 512)],
                [w.at("out", 128, 512, m, n)],
                edges=(("K-3", "Flow"),),
                keys=COPY,
            ),
        ]

    return [w.nest("m", 0, 2, 1, lambda: [w.nest("n", 0, 2, 1, columns)])]


def _rows_norm(w: _Writer) -> list[Json]:
    buffers, scale = w.tile("buffers", 1024, FULL), w.tile("scale", 512, FULL)
    total = w.tile("total", 1, FULL)
    first = w.add("DMACopy", "SP", [w.at("gamma", 128, 512)], [w.at(scale, 128, 512)], keys=COPY)

    def body() -> list[Json]:
        rows = affine({"i": 128})
        # two buffers that alternate
        half = multiplied(modulo(induction("i"), 2), 512)
        acc: Json = {"acc": "Idle"}
        return [
            w.add(
                "DMACopy",
                "SP",
                [w.at("x", 128, 512, rows)],
                [w.at(buffers, 128, 512, None, half)],
                carried=(["K-4", "Anti", [2]],),
                keys=COPY,
            ),
            w.add(
                "TensorReduce",
                "DVE",
                [w.at(buffers, 128, 512, None, half)],
                [w.at(total, 128, 1)],
                edges=(("K-1", "Flow"),),
                carried=(["K-2", "Output", 1],),
                keys={"axis": "X", "op": "add"},
            ),
            w.add(
                "TensorTensor",
                "DVE",
                [w.at(buffers, 128, 512, None, half), w.at(scale, 128, 512)],
                [w.at(buffers, 128, 512, None, half)],
                edges=(("K-0", "Flow"), ("K-1", "Flow"), ("K-2", "Anti")),
                keys={"op": "mult", **acc},
            ),
            w.add(
                "DMACopy",
                "SP",
                [w.at(buffers, 128, 512, None, half)],
                [w.at("out", 128, 512, rows)],
                edges=(("K-3", "Flow"),),
                keys=COPY,
            ),
        ]

    return [first, w.nest("i", 7, -1, -1, body)]


def _causal_blocks(w: _Writer) -> list[Json]:
    scores, masked = w.tile("scores", 128, FULL), w.tile("masked", 128, FULL)

    def body() -> list[Json]:
        i, j = affine({"i": 128}), affine({"j": 128})
        select: Json = {
            "base": affine({"i": 128, "j": -128}),
            "channel_multiplier": 1,
            "compare_op": "is_ge",
            "fill_value": "-inf",
            "pattern": [[-1, 128]],
        }
        wave: Json = {"order": [floor_divided(affine({"i": 4, "j": 1}), 2), induction("j")], **select}
        return [
            w.add(
                "DMACopy",
                "SP",
                [w.at("qk", 128, 128, i, j)],
                [w.at(scores, 128, 128)],
                carried=(("K-1", "Anti"),),
                keys=COPY,
            ),
            w.add(
                "TensorScalarAffineSelect",
                "Pool",
                [w.at(scores, 128, 128)],
                [w.at(masked, 128, 128)],
                edges=(("K-0", "Flow"),),
                carried=(("K-2", "Anti"),),
                keys=wave,
            ),
            w.add(
                "DMACopy",
                "SP",
                [w.at(masked, 128, 128)],
                [w.at("out", 128, 128, i, j)],
                edges=(("K-1", "Flow"),),
                keys=COPY,
            ),
        ]

    return [w.nest("i", 0, 4, 1, lambda: [w.nest("j", 0, 4, 2, body)])]


def _output_projection_tkg(w: _Writer) -> list[Json]:
    weights, acc = w.tile("w_tile", 128), w.tile("acc", 4, FULL, memory="PSUM")

    def inner() -> list[Json]:
        i, o = affine({"i": 128}), affine({"o": 128})
        return [
            w.add(
                "DMACopy",
                "SP",
                [w.at("wo", 128, 128, i, o)],
                [w.at(weights, 128, 128)],
                carried=(("K-1", "Anti"),),
                keys=COPY,
            ),
            w.matmult(
                w.at("attn", 128, 4, None, affine({"i": 4})),
                w.at(weights, 128, 128),
                w.at(acc, 128, 4),
                2,
                edges=(("K-0", "Flow"),),
                carried=(("K-1", "Output"),),
            ),
        ]

    def outer() -> list[Json]:
        return [
            w.nest("i", 0, 8, 1, inner),
            w.add(
                "TensorCopy",
                "DVE",
                [w.at(acc, 128, 4)],
                [w.at("proj", 128, 4, None, affine({"o": 4}))],
                edges=(("K-1", "Flow"),),
            ),
        ]

    return [w.nest("o", 0, 32, 1, outer)]


def _output_projection_cte(w: _Writer) -> list[Json]:
    left, right = w.tile("attn_tile", 128), w.tile("w_tile", 512)
    acc, out = w.tile("acc", 512, FULL, memory="PSUM"), w.tile("out_tile", 512)

    def body() -> list[Json]:
        m, n = affine({"m": 128}), affine({"n": 512})
        rows: list[Json] = []
        for group in range(8):
            source = w.at(f"attn{group}", 128, 128, m, affine({}, 128 * (group % 4)))
            before = ((f"K-{3 * group - 1}", "Anti"),) if group else ()
            carried = () if group else (("K-23", "Anti"),)
            rows += [
                w.add(
                    "DMACopy",
                    "SP",
                    [source],
                    [w.at(left, 128, 128)],
                    edges=before,
                    carried=carried,
                    keys=COPY,
                ),
                w.add(
                    "DMACopy",
                    "SP",
                    [w.at("wo", 128, 512, affine({}, 512 * group), n)],
                    [w.at(right, 128, 512)],
                    edges=before,
                    carried=carried,
                    keys=COPY,
                ),
                w.matmult(
                    w.at(right, 128, 512),
                    w.at(left, 128, 128),
                    w.at(acc, 128, 512),
                    1 if group == 0 else 2,
                    edges=((f"K-{3 * group}", "Flow"), (f"K-{3 * group + 1}", "Flow")),
                ),
            ]
        return [
            *rows,
            w.add("TensorCopy", "DVE", [w.at(acc, 128, 512)], [w.at(out, 128, 512)], edges=(("K-23", "Flow"),)),
            w.add(
                "DMACopy",
                "SP",
                [w.at(out, 128, 512)],
                [w.at("proj", 128, 512, m, n)],
                edges=(("K-24", "Flow"),),
                keys=COPY,
            ),
        ]

    return [w.nest("m", 0, 16, 1, lambda: [w.nest("n", 0, 2, 1, body)])]


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """A kernel that is a loop nest.

    Parameters
    ----------
    inputs, outputs : tuple of Formal
        Its parameters.
    write : callable
        Writes its body.

    Examples
    --------
    >>> LOOP_KERNELS["matmul_tiled"].outputs[0].shape
    (256, 1024)
    """

    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    write: Callable[[_Writer], list[Json]]


_TKG, _CTE = RECIPES["output_projection_tkg"], RECIPES["output_projection_cte"]

LOOP_KERNELS: dict[str, LoopKernel] = {
    "matmul_tiled": LoopKernel(
        (Formal("lhs_t", (256, 256)), Formal("rhs", (256, 1024))),
        (Formal("out", (256, 1024), FULL),),
        _matmul_tiled,
    ),
    "rows_norm": LoopKernel(
        (Formal("x", (1024, 512), FULL), Formal("gamma", (128, 512), FULL)),
        (Formal("out", (1024, 512), FULL),),
        _rows_norm,
    ),
    "causal_blocks": LoopKernel((Formal("qk", (512, 512), FULL),), (Formal("out", (512, 512), FULL),), _causal_blocks),
    "output_projection_tkg_loops": LoopKernel(_TKG.inputs, _TKG.outputs, _output_projection_tkg),
    "output_projection_cte_loops": LoopKernel(_CTE.inputs, _CTE.outputs, _output_projection_cte),
}
"""The loop kernels by name."""

STAND_ALONE = ("matmul_tiled", "rows_norm", "causal_blocks")
"""Those that are no part of a transformer layer."""


def loop_kernel(name: str, function_name: str, *, allocated: bool, style: Style) -> KernelPlan:
    """Return the plan of a loop kernel.

    Parameters
    ----------
    name : str
        Which one.
    function_name : str
        The name of the function.
    allocated : bool
        Whether its tiles have addresses.
    style : Style
        How it is written.

    Returns
    -------
    KernelPlan
        The plan.

    Examples
    --------
    >>> loop_kernel("rows_norm", "k", allocated=True, style=Style()).sb_bytes
    6208
    """
    made = LOOP_KERNELS[name]
    writer = _Writer(style, made.inputs + made.outputs, allocated)
    rows = made.write(writer)
    full = style.full_keys
    allocations = [
        *parameter_sets(made.inputs, "Input", full_keys=full),
        *parameter_sets(made.outputs, "Output", full_keys=full),
        *writer.sets,
    ]
    function = bir.function(
        function_name, allocations, [bir.block("Block1", rows)], attributes=["need_unroll"], origin="NKI"
    )
    first = next(item["memorylocations"][0]["name"] for item in writer.sets)
    plan = (made.inputs, made.outputs, allocated, writer.sb_bytes, writer.psum_banks)
    return KernelPlan(function_name, *plan, lambda: function, first, "K-0-0")
