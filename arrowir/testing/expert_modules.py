"""Modules in the shape of mixture-of-experts layers: loops that are counted at run time, in kernels."""

from arrowir import build
from arrowir.build import FunctionBuilder, ModuleBuilder
from arrowir.testing.planning import Generated

EXPERTS, HIDDEN, TOKENS, CHOSEN = 8, 64, 128, 4
"""Experts of a layer, partitions of an activation, tokens, and how many experts a token has at most."""

PAD_BYTES = 4_096
"""Bytes of a layer's scratchpad in each partition."""

_HALF = TOKENS // 2


def layers(layers: int = 2, *, seed: int = 0, arch: str = "gen3") -> Generated:
    """Return a module with one call of the expert kernel, and one of the router's, for each layer.

    The expert kernel goes over the experts that were chosen, as many as a register says, loads the weights of each from
    where another register points, and has a loop over halves of the tokens inside. The router's kernel halves values
    until a register has counted down.

    Parameters
    ----------
    layers : int
        How many there are.
    seed : int
        Without effect: layers are alike.
    arch : str
        The architecture.

    Returns
    -------
    Generated
        The module.

    Examples
    --------
    >>> document = layers(1).document()
    >>> [kernel["name"] for kernel in document["nki_functions"]["functions"]]
    ['experts_tkg', 'router_tkg']
    """
    if layers < 1:
        raise ValueError("`layers` must be at least 1")
    module = build.module(arch=arch)
    main = module.function("sg0000")
    experts, router = _experts(module), _router(module)
    held = main.input("x", (HIDDEN, TOKENS))
    given = main.input("counts", (layers, 1), "int32")
    counts = main.dram("held_counts", (layers, 1), "int32")
    after = main.add("DMACopy", [given], [counts], name="hold", engine="SP", mode="Copy")
    for layer in range(layers):
        last = layer == layers - 1
        weights = main.input(f"w{layer}", (EXPERTS * HIDDEN, HIDDEN))
        chosen = main.input(f"chosen{layer}", (1, CHOSEN), "int32")
        routed = main.dram(f"routed{layer}", (HIDDEN, TOKENS))
        out = main.output("y", (HIDDEN, TOKENS)) if last else main.dram(f"x{layer + 1}", (HIDDEN, TOKENS))
        pad = main.sb(f"pad{layer}", (128, PAD_BYTES), "uint8", addr=16_384 + PAD_BYTES * (layer % 2), allocated=True)
        steps = main.register(f"steps{layer}")
        load = main.add(
            "TensorLoad", [counts.access([[1, 1], [1, 1]], layer)], [steps], name=f"count{layer}", engine="ALL",
            after=[after],
        )  # fmt: skip
        first = main.call(
            router, {"h": held, "left": steps}, {"r": routed}, scratch=[pad], name=f"router{layer}",
            after=[load], engine="Pool",
        )  # fmt: skip
        after = main.call(
            experts, {"a": routed, "w": weights, "e": chosen, "n": steps}, {"c": out}, scratch=[pad],
            name=f"experts{layer}", after=[first], engine="Pool",
        )  # fmt: skip
        held = out
    document = module.json()
    kernels = document["nki_functions"]["functions"]
    return Generated(arch, lambda: iter(document["functions"]), lambda: iter(kernels))


def _masked(f: FunctionBuilder, name: str, register: build.Register, most: int, mask: build.Register) -> None:
    """Keep what a register holds below a power of 2, whatever the input is."""
    f.add("RegisterMove", [most - 1], [mask], name=f"{name}_most", engine="ALL")
    f.add("RegisterAlu", [register, mask], [register], name=f"{name}_kept", op="bitwise_and", engine="ALL")


def _experts(module: ModuleBuilder) -> FunctionBuilder:
    f = module.kernel("experts_tkg")
    a, w = f.input("a", (HIDDEN, TOKENS)), f.input("w", (EXPERTS * HIDDEN, HIDDEN))
    chosen, c = f.input("e", (1, CHOSEN), "int32"), f.output("c", (HIDDEN, TOKENS))
    count, expert, mask = f.register("n"), f.register("expert"), f.register("mask")
    tokens = f.sb("tokens", (HIDDEN, TOKENS), addr=0, allocated=True)
    total = f.sb("total", (HIDDEN, TOKENS), addr=512, allocated=True)
    weight = f.sb("weight", (HIDDEN, HIDDEN), addr=1024, allocated=True)
    which = f.sb("which", (1, 1), "int32", addr=1280, allocated=True)
    product = f.psum("product", (HIDDEN, TOKENS), bank=0, allocated=True)
    _masked(f, "count", count, CHOSEN, mask)
    load = f.add("Load", [a], [tokens], name="load", engine="SP")
    clear = f.add("Memset", [], [total], name="clear", mode="Const", constant=0, engine="Pool")
    with f.loop(0, count.value, axis="k", opcode="DynamicForLoop", name="each", after=[load]) as k:
        find = f.add("Load", [chosen.at(0, k, pattern=[[1, 1], [1, 1]])], [which], name="find", engine="SP")
        f.add("TensorLoad", [which], [expert], name="take", engine="ALL", after=[find])
        _masked(f, "expert", expert, EXPERTS, mask)
        where = {
            "aff_expr": [{"coef": HIDDEN * HIDDEN, "offset_expr": {"kind": "IntRuntimeValueKind", "regref": "expert"}}],
            "c": 0, "indirect_dim": 0, "indirect_dim_max_index": EXPERTS,
        }  # fmt: skip
        rows = w.access([[HIDDEN, HIDDEN], [1, HIDDEN]], dynamic_ap_info=where)
        fetch = f.add("DMACopy", [rows], [weight], name="fetch", engine="SP", mode="Copy")
        with f.loop(0, 2, axis="half") as half:
            part = [[TOKENS, HIDDEN], [1, _HALF]]
            at = [tensor.at(0, _HALF * half, pattern=part) for tensor in (tokens, product, total)]
            times = f.add(
                "Matmult", [at[0], weight], [at[1]], name="times", engine="PE", accumulation_flag=1, after=[fetch]
            )
            f.add(
                "TensorTensor", [at[2], at[1]], [at[2]], name="sum", engine="DVE", op="add", after=[times, clear],
                loop_carried_dependencies=[["sum", "Flow"]],
            )  # fmt: skip
    f.add("Save", [total], [c], name="save", engine="SP", dependencies=[["each", "Flow"], ["clear", "Flow"]])
    return f


def _router(module: ModuleBuilder) -> FunctionBuilder:
    f = module.kernel("router_tkg")
    h, r = f.input("h", (HIDDEN, TOKENS)), f.output("r", (HIDDEN, TOKENS))
    steps, left, one = f.register("left"), f.register("now"), f.register("one")
    tile = f.sb("tile", (HIDDEN, TOKENS), addr=0, allocated=True)
    f.add("RegisterMove", [steps], [left], name="begin", engine="ALL")
    _masked(f, "left", left, CHOSEN, one)
    f.add("RegisterMove", [1], [one], name="one", engine="ALL")
    f.add("RegisterAlu", [left, one], [left], name="more", op="add", engine="ALL")
    load = f.add("Load", [h], [tile], name="load", engine="SP")
    with f.nested("DoWhile", cond=left.value, name="halving", after=[load]):
        f.add(
            "TensorScalar", [tile], [tile], name="halve", engine="DVE", op0="mult", const0=0.5, reverse0=False,
            op1="bypass", const1=0.0, reverse1=False,
        )  # fmt: skip
        f.add("RegisterAlu", [left, one], [left], name="less", op="subtract", engine="ALL")
    f.add("Save", [tile], [r], name="save", engine="SP", dependencies=[["halving", "Flow"]])
    return f
