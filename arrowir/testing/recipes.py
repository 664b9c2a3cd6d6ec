"""What a generated kernel is made of: operation counts, tiles and parameters of usual transformer kernels.

The counts are those of public attention, projection and MLP kernels at common shapes, one instruction a call
of the instruction set. Where a kernel was not counted (decode attention) they fill the mix of its layer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Formal:
    """One parameter of a kernel.

    Parameters
    ----------
    name : str
        Its location's name in the kernel.
    shape : tuple of int
        Partitions (rows) and elements of each.
    dtype : str
        Its element type.
    memory : str
        `DRAM` or `SB`.

    Examples
    --------
    >>> Formal("hidden", (128, 128)).memory
    'DRAM'
    """

    name: str
    shape: tuple[int, int]
    dtype: str = "bfloat16"
    memory: str = "DRAM"


@dataclass(frozen=True, slots=True)
class Recipe:
    """The make-up of one kernel.

    Parameters
    ----------
    name : str
        The kernel's name.
    operations : mapping of str to int
        How many of each operation (`matmul`, `load`, ...) the body has.
    inputs, outputs : tuple of Formal
        Its parameters.
    sb_tiles, psum_tiles : int
        How many tiles it makes.
    sb_bytes : int
        The high-water mark of the state buffer, per partition.
    psum_banks : int
        How many banks its tiles rotate over.
    widths : tuple of int
        Bytes per partition of a working tile.
    load_bytes : int
        The largest loaded tile, per partition.
    columns : int
        The most columns that one matrix multiplication moves.

    Examples
    --------
    >>> RECIPES["qkv_tkg"].instructions
    122
    """

    name: str
    operations: Mapping[str, int]
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    sb_tiles: int
    psum_tiles: int
    sb_bytes: int
    psum_banks: int = 4
    widths: tuple[int, ...] = (256, 512, 1024, 2048, 2048, 2048, 4096)
    load_bytes: int = 4096
    columns: int = 512

    @property
    def instructions(self) -> int:
        """The number of instructions of the body."""
        return sum(self.operations.values())

    def scaled(self, factor: float) -> "Recipe":
        """Return the recipe with all counts multiplied.

        Parameters
        ----------
        factor : float
            The multiplier; no count that is above 0 becomes 0.

        Returns
        -------
        Recipe
            The scaled recipe.

        Examples
        --------
        >>> RECIPES["qkv_tkg"].scaled(0.5).operations["matmul"]
        48
        """
        if factor == 1.0:
            return self

        def scale(count: int) -> int:
            return max(1, int(count * factor)) if count else 0

        operations = {kind: scale(count) for kind, count in self.operations.items()}
        # every input is loaded and every output stored at least once
        operations["load"] = max(operations.get("load", 0), self.loaded_inputs)
        operations["store"] = max(operations.get("store", 0), len(self.outputs))
        return replace(
            self,
            operations=operations,
            sb_tiles=scale(self.sb_tiles),
            psum_tiles=scale(self.psum_tiles),
        )

    @property
    def loaded_inputs(self) -> int:
        """The number of inputs that have to be loaded from DRAM first."""
        return sum(formal.memory == "DRAM" for formal in self.inputs)


_TOKENS = Formal("hidden", (128, 128), memory="SB")
_PREFILL = Formal("hidden", (2048, 4096))

_ALL = (
    # decode, four tokens: activations stay in the state buffer
    Recipe(
        "qkv_tkg",
        {
            "load": 4,
            "store": 1,
            "matmul": 97,
            "tensor_tensor": 14,
            "memset": 3,
            "activation": 2,
            "reduce": 1,
        },
        (_TOKENS, Formal("gamma", (128, 32), "float32"), Formal("wqkv", (4096, 1536))),
        (Formal("qkv", (128, 48), memory="SB"),),
        26,
        100,
        98_816,
        widths=(64, 128, 256, 512),
        load_bytes=24_576,
        columns=48,
    ),
    Recipe(
        "attention_tkg",
        {
            "register_load": 2,
            "load": 12,
            "store": 5,
            "matmul": 230,
            "transpose": 7,
            "tensor_tensor": 19,
            "copy": 12,
            "activation": 7,
            "memset": 4,
            "reduce": 2,
        },
        (
            Formal("qkv", (128, 48), memory="SB"),
            Formal("k_cache", (8192, 128)),
            Formal("v_cache", (8192, 128)),
            Formal("position", (1, 8), "int32"),
        ),
        (Formal("attn", (128, 32), memory="SB"), Formal("kv_new", (128, 128))),
        34,
        40,
        140_288,
        psum_banks=2,
        widths=(64, 128, 256, 512, 1024),
        load_bytes=16_384,
        columns=32,
    ),
    Recipe(
        "output_projection_tkg",
        {"load": 8, "store": 2, "matmul": 32, "copy": 12},
        (Formal("attn", (128, 32), memory="SB"), Formal("wo", (1024, 4096))),
        (Formal("proj", (128, 128), memory="SB"),),
        11,
        40,
        90_112,
        widths=(128, 256, 512),
        load_bytes=8192,
        columns=128,
    ),
    Recipe(
        "mlp_tkg",
        {
            "load": 20,
            "store": 1,
            "matmul": 369,
            "transpose": 14,
            "tensor_tensor": 27,
            "copy": 18,
            "activation": 15,
            "memset": 2,
            "iota": 1,
        },
        (
            _TOKENS,
            Formal("gamma", (128, 32), "float32"),
            Formal("w_gate_up", (4096, 3584)),
            Formal("w_down", (1792, 4096)),
        ),
        (Formal("out", (128, 128), memory="SB"),),
        33,
        25,
        186_736,
        widths=(128, 256, 512),
        load_bytes=14_336,
        columns=128,
    ),
    # prefill, 2048 tokens: activations go through DRAM
    Recipe(
        "rmsnorm_qkv_cte",
        {
            "load": 48,
            "store": 48,
            "matmul": 1536,
            "transpose": 512,
            "tensor_scalar": 512,
            "tensor_scalar_ptr": 16,
            "copy": 48,
            "activation_reduce": 16,
            "activation_bias": 16,
            "memset": 2,
        },
        (_PREFILL, Formal("gamma", (128, 32), "float32"), Formal("wqkv", (4096, 1536))),
        (Formal("qkv", (2048, 1536)),),
        68,
        1072,
        120_976,
        load_bytes=32_768,
    ),
    Recipe(
        "attention_cte",
        {
            "load": 20,
            "store": 16,
            "dma_transpose": 42,
            "matmul": 176,
            "copy": 48,
            "tensor_scalar_ptr": 40,
            "scalar_tensor_tensor": 16,
            "activation_reduce": 40,
            "memset": 35,
            "reduce": 32,
            "affine_select": 16,
            "reciprocal": 16,
        },
        (Formal("qkv", (2048, 1536)),),
        (Formal("attn", (2048, 512)),),
        634,
        256,
        149_504,
        psum_banks=2,
    ),
    Recipe(
        "output_projection_cte",
        {"load": 20, "store": 16, "matmul": 512, "copy": 128},
        (*(Formal(f"attn{group}", (2048, 512)) for group in range(8)), Formal("wo", (4096, 4096))),
        (Formal("proj", (2048, 4096)),),
        164,
        640,
        131_072,
        psum_banks=2,
    ),
    Recipe(
        "mlp_cte",
        {
            "load": 512,
            "store": 64,
            "matmul": 5888,
            "transpose": 736,
            "tensor_scalar": 512,
            "copy": 192,
            "activation": 96,
            "tensor_tensor": 64,
            "activation_reduce": 16,
            "memset": 2,
        },
        (
            _PREFILL,
            Formal("gamma", (128, 32), "float32"),
            Formal("w_gate_up", (4096, 3584)),
            Formal("w_down", (1792, 4096)),
        ),
        (Formal("out", (2048, 4096)),),
        283,
        512,
        163_976,
        load_bytes=8192,
    ),
    # small ones
    Recipe(
        "cumsum",
        {"load": 16, "store": 16, "memset": 16, "scan": 16, "copy": 8},
        (Formal("source", (1024, 4096), "float32"),),
        (Formal("result", (1024, 4096), "float32"),),
        48,
        0,
        65_536,
        0,
    ),
    Recipe(
        "rope",
        {"load": 3, "store": 1, "tensor_tensor": 6, "copy": 1},
        (Formal("q", (1024, 2048)), Formal("cos", (128, 2048)), Formal("sin", (128, 2048))),
        (Formal("rotated", (1024, 2048)),),
        15,
        0,
        61_440,
        0,
    ),
    Recipe(
        "cascaded_max",
        {
            "load": 2,
            "store": 1,
            "reduce": 3,
            "tensor_tensor": 3,
            "memset": 2,
            "matmul": 2,
            "find_index": 1,
            "iota": 1,
            "affine_select": 1,
            "copy": 1,
        },
        (Formal("logits", (128, 2048), "float32"), Formal("identity", (128, 128))),
        (Formal("index", (128, 8), "uint32"),),
        11,
        2,
        40_960,
        2,
    ),
    Recipe(
        "cross_entropy",
        {
            "load": 280,
            "store": 8,
            "tensor_tensor": 48,
            "activation": 24,
            "memset": 16,
            "reduce": 16,
            "copy": 16,
            "tensor_scalar": 8,
        },
        (Formal("logits", (256, 32768)), Formal("targets", (256, 1), "int32")),
        (Formal("loss", (256, 8), "float32"),),
        16,
        0,
        131_072,
        0,
    ),
    Recipe(
        "rmsnorm_quant",
        {
            "load": 34,
            "store": 30,
            "matmul": 128,
            "scalar_tensor_tensor": 128,
            "tensor_scalar": 64,
            "activation": 32,
            "activation_reduce": 16,
            "tensor_scalar_ptr": 16,
            "reciprocal": 16,
            "memset": 3,
        },
        (_PREFILL, Formal("gamma", (128, 32), "float32")),
        (Formal("quantised", (2048, 4096), "float8e4"),),
        131,
        128,
        122_880,
    ),
)

RECIPES: dict[str, Recipe] = {recipe.name: recipe for recipe in _ALL}
"""The recipes by name."""

LAYER_KERNELS: dict[str, tuple[str, ...]] = {
    "decode": ("qkv_tkg", "attention_tkg", "output_projection_tkg", "mlp_tkg"),
    "prefill": ("rmsnorm_qkv_cte", "attention_cte", "output_projection_cte", "mlp_cte"),
}
"""The kernels of one transformer layer, in the order in which they run."""

TINY_KERNELS = ("cumsum", "rope", "cascaded_max")
"""Kernels of less than a hundred instructions."""

CAMPAIGN_KERNELS = ("attention_cte", "rmsnorm_quant", "mlp_tkg", "cross_entropy", "rmsnorm_qkv_cte")
"""Kernels after which the dumps of a campaign are made."""
