"""Transformer layers as callers see them: which kernel is called with what, and what stands between."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from arrowir.testing.bir import Json
from arrowir.testing.callers import CallerBuilder, KernelPlan
from arrowir.testing.recipes import Formal
from arrowir.testing.tiles import Tile

NextKernel = Callable[[str], KernelPlan]
"""Gives the plan for the next call of the kernel of a name."""

DECODE_WEIGHTS = (
    Formal("attn_gamma", (128, 32), "float32"),
    Formal("wqkv", (4096, 1536)),
    Formal("k_cache", (8192, 128)),
    Formal("v_cache", (8192, 128)),
    Formal("wo", (1024, 4096)),
    Formal("mlp_gamma", (128, 32), "float32"),
    Formal("w_gate_up", (4096, 3584)),
    Formal("w_down", (1792, 4096)),
)
PREFILL_WEIGHTS = (
    Formal("attn_gamma", (128, 32), "float32"),
    Formal("wqkv", (4096, 1536)),
    Formal("wo", (4096, 4096)),
    Formal("mlp_gamma", (128, 32), "float32"),
    Formal("w_gate_up", (4096, 3584)),
    Formal("w_down", (1792, 4096)),
)
HEAD_GROUPS = 8


@dataclass(frozen=True, slots=True)
class Extras:
    """Instructions that a megakernel's caller holds besides its call-sites, per layer.

    Parameters
    ----------
    transposes, all_reduces, table_loads : int
        How many of each.

    Examples
    --------
    >>> Extras().table_loads
    1
    """

    transposes: int = 0
    all_reduces: int = 0
    table_loads: int = 1


def _all_reduce(builder: CallerBuilder, tensor: Tile) -> None:
    keys: Json = {"kind": "AllReduce", "op": "add", "replica_groups": [[0, 1, 2, 3]], "cc_dim": "Free"}
    builder.glue("CollectiveCompute", "Pool", [tensor], [tensor], keys)


def _table_loads(builder: CallerBuilder, count: int) -> None:
    for number in range(count):
        builder.glue("LoadActFuncSet", "Activation", [], [], {"act_func_set_id": number % 4})


def decode_layer(
    builder: CallerBuilder,
    kernel: NextKernel,
    weights: Mapping[str, Tile],
    hidden: Tile,
    position: Tile,
    kv_new: Tile,
    out: Tile | None,
    suffix: str,
    extras: Extras,
) -> Tile:
    """Append one decode layer: four calls, whose activations stay in the state buffer.

    Parameters
    ----------
    builder : CallerBuilder
        The function that calls.
    kernel : callable
        Gives the plan for each call.
    weights : mapping of str to Tile
        The weights of the layer, by the names in `DECODE_WEIGHTS`.
    hidden, position, kv_new : Tile
        The activations that come in, the token positions, the new cache entries.
    out : Tile, optional
        Where the activations go; a new tile by default.
    suffix : str
        What the names of the tiles end in.
    extras : Extras
        What stands between the calls.

    Returns
    -------
    Tile
        The activations that go out.

    Examples
    --------
    >>> from arrowir.testing.workloads import module
    >>> rows = module("decode", layers=1, scale=0.01)["functions"][0]["blocks"][0]["instructions"]
    >>> [row["func"] for row in rows if row["opcode"] == "NKIKernel"]
    ['qkv_tkg', 'attention_tkg', 'output_projection_tkg', 'mlp_tkg']
    """
    _table_loads(builder, extras.table_loads)
    qkv = builder.tile(f"qkv{suffix}", (128, 48))
    attn = builder.tile(f"attn{suffix}", (128, 32))
    proj = builder.tile(f"proj{suffix}", (128, 128))
    resid = builder.tile(f"resid{suffix}", (128, 128))
    if extras.transposes:
        _transposes(builder, hidden, suffix, extras.transposes)
    builder.call(kernel("qkv_tkg"), [hidden, weights["attn_gamma"], weights["wqkv"]], [qkv])
    caches = [weights["k_cache"], weights["v_cache"]]
    builder.call(kernel("attention_tkg"), [qkv, *caches, position], [attn, kv_new])
    builder.call(kernel("output_projection_tkg"), [attn, weights["wo"]], [proj])
    for _ in range(extras.all_reduces):
        _all_reduce(builder, proj)
    builder.glue("TensorTensor", "DVE", [hidden, proj], [resid], {"acc": "Idle", "op": "add"})
    if out is None:
        out = builder.tile(f"hidden{suffix}", (128, 128))
    dense = [weights["mlp_gamma"], weights["w_gate_up"], weights["w_down"]]
    builder.call(kernel("mlp_tkg"), [resid, *dense], [out])
    return out


def _transposes(builder: CallerBuilder, hidden: Tile, suffix: str, count: int) -> None:
    full = builder.style.full_keys
    target = builder.tile(f"hidden_t{suffix}", (128, 128), memory="PSUM")
    keys: Json = {
        "accumulation_flag": 1,
        "is_transpose": True,
        "tile_position": [0, 0],
        "tile_size": [128, 128],
    }
    for _ in range(count):
        ins = [(hidden, hidden.access(full_keys=full)), (hidden, hidden.access(full_keys=full))]
        builder.emitter.emit("Matmult", "PE", ins, [(target, target.access(full_keys=full))], keys)


def prefill_layer(
    builder: CallerBuilder,
    kernel: NextKernel,
    weights: Mapping[str, Tile],
    hidden: Tile,
    out: Tile | None,
    suffix: str,
) -> Tile:
    """Append one prefill layer: eleven calls, whose activations go through DRAM.

    Parameters
    ----------
    builder : CallerBuilder
        The function that calls.
    kernel : callable
        Gives the plan for each call.
    weights : mapping of str to Tile
        The weights of the layer, by the names in `PREFILL_WEIGHTS`.
    hidden : Tile
        The activations that come in.
    out : Tile, optional
        Where the activations go; a new tensor by default.
    suffix : str
        What the names of the tensors end in.

    Returns
    -------
    Tile
        The activations that go out.

    Examples
    --------
    >>> from arrowir.testing.workloads import module
    >>> len(module("prefill", layers=1, scale=0.01)["nki_functions"]["functions"])
    4
    """
    _table_loads(builder, 1)
    qkv = builder.dram(f"qkv{suffix}", (2048, 1536))
    builder.call(kernel("rmsnorm_qkv_cte"), [hidden, weights["attn_gamma"], weights["wqkv"]], [qkv])
    groups: list[Tile] = []
    for group in range(HEAD_GROUPS):
        attn = builder.dram(f"attn{group}{suffix}", (2048, 512))
        builder.call(kernel("attention_cte"), [qkv], [attn])
        groups.append(attn)
    proj = builder.dram(f"proj{suffix}", (2048, 4096))
    builder.call(kernel("output_projection_cte"), [*groups, weights["wo"]], [proj])
    resid = builder.dram(f"resid{suffix}", (2048, 4096))
    keys: Json = {"cce_op": "add", "constants": [1.0, 1.0], "mode": "CCE"}
    builder.glue("DMACopy", "SP", [hidden, proj], [resid], keys)
    if out is None:
        out = builder.dram(f"hidden{suffix}", (2048, 4096))
    dense = [weights["mlp_gamma"], weights["w_gate_up"], weights["w_down"]]
    builder.call(kernel("mlp_cte"), [resid, *dense], [out])
    return out
