"""Whole programs for the simulator, instruction by instruction: a tiled product and an attention."""

from arrowir import build
from arrowir.build import FunctionBuilder, Tensor
from arrowir.ir import IR

TILE = 128
START, ADD = 1, 2
"""Of `accumulation_flag`."""


def tiled_product(size: int, width: int) -> IR:
    """Return a product of two square matrices in DRAM, the first one transposed, in tiles of 128 by `width`."""
    module = build.module()
    main = module.function()
    a, b, c = main.input("a", (size, size)), main.input("b", (size, size)), main.output("c", (size, size))
    left, right = main.sb("left", (TILE, TILE)), main.sb("right", (TILE, width))
    psum, tile = main.tensor("psum", "PSUM", (TILE, width)), main.sb("tile", (TILE, width))
    for m in range(0, size, TILE):
        for n in range(0, size, width):
            for k in range(0, size, TILE):
                main.add("Load", [a[k : k + TILE, m : m + TILE]], [left], engine="SP")
                main.add("Load", [b[k : k + TILE, n : n + width]], [right], engine="SP")
                main.add("Matmult", [right, left], [psum], engine="PE", accumulation_flag=ADD if k else START)
            main.add("TensorCopy", [psum], [tile], engine="DVE")
            main.add("Save", [tile], [c[m : m + TILE, n : n + width]], engine="SP")
    return module.ir("product")


class Attention:
    """A causal attention forward, head by head and 128 queries at a time.

    Keys and queries are transposed on PE, and scores are computed in blocks of `block` keys. Of each row the softmax is
    taken whole: its maximum, the exponentials of what is above that, their sum in the accumulator of the Activation
    engine, and its reciprocal. The exponentials are transposed in turn, and multiplied with the values.
    """

    def __init__(self, heads: int, length: int, depth: int, block: int) -> None:
        self.length, self.depth, self.block, self.scale = length, depth, block, depth**-0.5
        self.module = build.module()
        self.main = main = self.module.function()
        shape = heads * length, depth
        self.q, self.k, self.v = (main.input(name, shape) for name in "qkv")
        self.out = main.output("out", shape)
        self.identity = main.sb("identity", (TILE, TILE))
        self.keys, self.values = main.sb("keys", (depth, length)), main.sb("values", (TILE, length // TILE * depth))
        self.rows, self.queries = main.sb("rows", (TILE, depth)), main.sb("queries", (depth, TILE))
        self.scores, self.weights = main.sb("scores", (TILE, length)), main.sb("weights", (TILE, length))
        self.turned, self.result = main.sb("turned", (TILE, TILE)), main.sb("result", (TILE, depth))
        self.largest, self.bias = main.sb("largest", (TILE, 1)), main.sb("bias", (TILE, 1))
        self.total, self.share = main.sb("total", (TILE, 1)), main.sb("share", (TILE, 1))
        self.psum = main.tensor("psum", "PSUM", (TILE, max(block, TILE)))
        self.sums = main.tensor("sums", "PSUM", (TILE, depth))
        self.make_identity(main)
        for head in range(heads):
            self.load_keys(main, head * length)
            for first in range(0, length, TILE):
                self.attend(main, head * length, first)

    def ir(self) -> IR:
        return self.module.ir("attention")

    def make_identity(self, main: FunctionBuilder) -> None:
        main.add("Memset", [], [self.identity], mode="Const", constant=0x3F800000, engine="Pool")
        self.select(main, self.identity[:, :], 0, "is_equal", 0.0)

    def select(self, main: FunctionBuilder, where: build.operands.Json, base: int, compare: str, fill: float) -> None:
        """Keep elements for which `base + row - column` compares with 0, and fill the others."""
        more = {"base": base, "channel_multiplier": 1, "pattern": [[-1, where["ap"][1][1]]]}
        main.add(
            "TensorScalarAffineSelect", [where], [where], **more, compare_op=compare, fill_value=fill, engine="Pool"
        )

    def turn(self, main: FunctionBuilder, source: Tensor | build.operands.Json, target: build.operands.Json) -> None:
        """Transpose at most 128 by 128 elements, by way of PSUM."""
        rows, columns = target["ap"][0][1], target["ap"][1][1]
        psum = self.psum[:rows, :columns]
        main.add("Matmult", [self.identity, source], [psum], engine="PE", is_transpose=True, accumulation_flag=START)
        main.add("TensorCopy", [psum], [target], engine="Pool")

    def load_keys(self, main: FunctionBuilder, head: int) -> None:
        for number, first in enumerate(range(head, head + self.length, TILE)):
            main.add("DMACopy", [self.k[first : first + TILE, :]], [self.rows], engine="SP", mode="Copy")
            self.turn(main, self.rows, self.keys[:, number * TILE : (number + 1) * TILE])
            place = self.values[:, number * self.depth : (number + 1) * self.depth]
            main.add("DMACopy", [self.v[first : first + TILE, :]], [place], engine="SP", mode="Copy")

    def attend(self, main: FunctionBuilder, head: int, first: int) -> None:
        """Compute the results of 128 queries."""
        mine = slice(head + first, head + first + TILE)
        main.add("DMACopy", [self.q[mine, :]], [self.rows], engine="SP", mode="Copy")
        self.turn(main, self.rows, self.queries[:, :])
        blocks = [slice(at, at + self.block) for at in range(0, self.length, self.block)]
        for part in blocks:
            psum = self.psum[:, : self.block]
            main.add("Matmult", [self.keys[:, part], self.queries], [psum], engine="PE", accumulation_flag=START)
            main.add("TensorCopy", [psum], [self.scores[:, part]], engine="DVE")
            self.select(main, self.scores[:, part], first - part.start, "is_ge", -1e30)
        main.add("TensorReduce", [self.scores], [self.largest], engine="DVE", op="max", axis="X")
        scaled = {
            "op0": "mult",
            "const0": -self.scale,
            "reverse0": False,
            "op1": "bypass",
            "const1": 0,
            "reverse1": False,
        }
        main.add("TensorScalar", [self.largest], [self.bias], engine="DVE", **scaled)
        for number, part in enumerate(blocks):
            ins = [self.scores[:, part], self.scale, self.bias]
            more = {"func": "Exp", "scale": 1.0, "alpha": 0.0, "acc": "AddAccumulate" if number else "ZeroAccumulate"}
            main.add("Activation", ins, [self.weights[:, part]], engine="Activation", **more)
        main.add("ActivationReadAccumulator", [], [self.total], engine="Activation")
        main.add("Reciprocal", [self.total], [self.share], engine="DVE")
        for number in range(self.length // TILE):
            self.turn(main, self.weights[:, number * TILE : (number + 1) * TILE], self.turned[:, :])
            ins = [self.values[:, number * self.depth : (number + 1) * self.depth], self.turned]
            main.add("Matmult", ins, [self.sums], engine="PE", accumulation_flag=ADD if number else START)
        divided = {"op0": "mult", "reverse0": False, "op1": "bypass", "reverse1": False}
        main.add("TensorScalarPtr", [self.sums, self.share], [self.result], engine="DVE", **divided)
        main.add("DMACopy", [self.result], [self.out[mine, :]], engine="SP", mode="Copy")
