"""Modules whose callers run transformer layers, planned first and made function by function."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.callers import TILE_ROOM, CallerBuilder, KernelPlan, plan_kernel
from arrowir.testing.emitting import Style
from arrowir.testing.layers import DECODE_WEIGHTS, PREFILL_WEIGHTS, Extras, decode_layer, prefill_layer
from arrowir.testing.loop_kernels import LOOP_KERNELS, STAND_ALONE, loop_kernel
from arrowir.testing.recipes import RECIPES, TINY_KERNELS, Formal

Allocation = Literal["mixed"] | bool


@dataclass(frozen=True, slots=True)
class Options:
    """What a generated module looks like.

    Parameters
    ----------
    kind : str
        `decode` (4 calls a layer), `prefill` (11 calls a layer), `mega` (decode with what else stands in a
        megakernel's caller), `tiny` (one call of a small kernel) or `loops` (kernels that are loop nests).
    layers : int
        How many layers; for `loops` how often each kernel is called.
    seed : int
        Another seed gives other bodies of the same make-up.
    arch : str
        The architecture; one that has a hardware model.
    allocated : bool or "mixed"
        Whether the kernels' tiles have addresses, relative to scratchpads; `mixed` alternates.
    distinct : bool
        Every call has its own kernel.
    clashes : float
        The share of tiles that bear a name of the caller, and of calls whose fresh names are taken.
    nested : bool
        Each layer is a kernel that calls the kernels.
    edges : bool
        Bodies and callers have dependencies.
    debug : bool
        Instructions have source positions.
    duplicate_names : float
        The share of instructions that repeat a name; 1 gives all one name.
    loops : bool
        Output projection is a loop nest.
    scale : float
        Multiplies the size of every kernel.
    full_keys : bool
        Write members that have their default value, as the compiler does.

    Examples
    --------
    >>> Options("tiny").layers
    4
    """

    kind: str = "decode"
    layers: int = 4
    seed: int = 0
    arch: str = "gen3"
    allocated: Allocation = True
    distinct: bool = False
    clashes: float = 0.0
    nested: bool = False
    edges: bool = True
    debug: bool = False
    duplicate_names: float = 0.0
    loops: bool = False
    scale: float = 1.0
    full_keys: bool = True

    @property
    def style(self) -> Style:
        """How bodies are written."""
        borrowed: tuple[str, ...] = ()
        if self.clashes:
            names = ("proj", "resid", "wo", "w_down", "w_gate_up", "mlp_gamma", "hidden", "attn_gamma")
            borrowed = tuple(f"{name}_l{layer}" for layer in range(1, self.layers) for name in names)
        return Style(self.edges, self.debug, self.full_keys, self.duplicate_names, borrowed, self.clashes)


@dataclass(frozen=True, slots=True)
class Generated:
    """A module whose functions are made one by one.

    Parameters
    ----------
    arch : str
        Its architecture.
    functions, kernels : callable
        Return iterators over its functions and its kernel functions.
    more : dict, optional
        Further members of the module.

    Examples
    --------
    >>> Generated("gen3", lambda: iter([]), lambda: iter([])).document()["version"]
    2
    """

    arch: str
    functions: Callable[[], Iterator[Json]]
    kernels: Callable[[], Iterator[Json]]
    more: Json | None = None

    def document(self) -> Json:
        """Return the module as one dict."""
        return bir.module(list(self.functions()), list(self.kernels()), arch=self.arch, **(self.more or {}))

    def chunks(self) -> Iterator[str]:
        """Yield the module's compact JSON text in pieces, holding one function at a time."""
        frame = bir.module([], [], arch=self.arch, **(self.more or {}))
        opening = "{"
        for name, value in frame.items():
            yield f"{opening}{_compact(name)}:"
            opening = ","
            if name == "functions":
                yield from _array(self.functions())
            elif name == "nki_functions":
                yield '{"functions":'
                yield from _array(self.kernels())
                yield "}"
            else:
                yield _compact(value)
        yield "}"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _array(items: Iterator[Json]) -> Iterator[str]:
    yield "["
    for number, item in enumerate(items):
        yield ("," if number else "") + _compact(item)
    yield "]"


class _Kernels:
    """The kernels of a module, planned as calls ask for them."""

    def __init__(self, options: Options, sb_limit: int) -> None:
        self.options = options
        self.sb_limit = sb_limit
        self.plans: dict[str, KernelPlan] = {}

    def next(self, name: str) -> KernelPlan:
        options = self.options
        full_name = f"{name}_{len(self.plans)}" if options.distinct else name
        plan = self.plans.get(full_name)
        if plan is None:
            allocated = len(self.plans) % 2 == 0 if options.allocated == "mixed" else bool(options.allocated)
            seed = f"{options.seed}/{full_name}"
            if name in LOOP_KERNELS:
                plan = loop_kernel(name, full_name, allocated=allocated, style=options.style)
            else:
                recipe = RECIPES[name].scaled(options.scale)
                plan = plan_kernel(
                    full_name, recipe, seed, allocated=allocated, sb_limit=self.sb_limit, style=options.style
                )
            self.plans[full_name] = plan
        return plan


def generate(kind: str = "decode", **options: Any) -> Generated:
    """Return a module that is made piece by piece.

    Parameters
    ----------
    kind : str
        What kind of module, see `Options`.
    **options
        The other options of `Options`.

    Returns
    -------
    Generated
        The module.

    Raises
    ------
    ValueError
        The kind or the architecture is unknown.

    Examples
    --------
    >>> len("".join(generate("tiny").chunks())) > 10_000
    True
    """
    chosen = Options(kind, **options)
    if chosen.arch not in bir.SBUF_BYTES:
        known = ", ".join(f"`{arch}`" for arch in bir.SBUF_BYTES)
        raise ValueError(f"arch `{chosen.arch}` has no hardware model, choose one of {known}")
    if chosen.kind not in _CALLERS:
        known = ", ".join(f"`{kind}`" for kind in _CALLERS)
        raise ValueError(f"kind `{chosen.kind}` is unknown, choose one of {known}")
    room = bir.SBUF_BYTES[chosen.arch] - bir.DYNAMIC_DMA_BYTES - bir.TAIL_BYTES
    kernels = _Kernels(chosen, room - TILE_ROOM * (1 + chosen.nested))
    builder = CallerBuilder("sg0000", chosen.style, f"{chosen.seed}/sg0000", allocated=bool(chosen.allocated))
    builder.dma_scratch()
    _CALLERS[chosen.kind](builder, chosen, kernels)
    _add_clashes(builder, chosen)
    caller = builder.function()
    plans = list(kernels.plans.values())
    return Generated(chosen.arch, lambda: iter([caller]), lambda: (plan.make() for plan in plans))


def _add_clashes(builder: CallerBuilder, options: Options) -> None:
    if not options.clashes:
        return
    every = max(1, round(1 / options.clashes))
    for number, (site, plan) in enumerate(list(builder.sites)):
        if number % every == 0:
            builder.clash(site, plan)


def _decode(builder: CallerBuilder, options: Options, kernels: _Kernels) -> None:
    """Layers as kernels if they are to be nested, else as calls of the caller."""
    hidden = builder.tile("hidden_in", (128, 128))
    source = builder.dram("input0", (128, 128), kind="ExternalInput")
    position = builder.dram("input1", (1, 8), "int32", kind="ExternalInput")
    result = builder.dram("output0", (128, 128), kind="ExternalOutput")
    builder.glue("DMACopy", "SP", [source], [hidden], {"mode": "Copy"})
    first_free = builder.mark()
    for layer in range(options.layers):
        # activations of a layer die with the next one, so two layers' worth of tiles is enough
        if layer % 2 == 0 and layer:
            builder.rewind(first_free)
        suffix = f"_l{layer}"
        builder.rename = _swapped(options, layer, f"qkv{suffix}", f"attn{suffix}")
        weights = {
            formal.name: builder.dram(f"{formal.name}{suffix}", formal.shape, formal.dtype, kind=_WEIGHT)
            for formal in DECODE_WEIGHTS
        }
        kv_new = builder.dram(f"kv_new{suffix}", (128, 128), kind="ExternalOutput")
        kernel = _projection(options, kernels)
        if options.nested:
            plan = _decode_layer_kernel(options, kernels, kernel, layer)
            out = builder.tile(f"hidden{suffix}", (128, 128))
            builder.call(plan, [hidden, position, *weights.values()], [out, kv_new])
            hidden = out
        else:
            extras = _extras(options, layer)
            hidden = decode_layer(builder, kernel, weights, hidden, position, kv_new, None, suffix, extras)
    builder.rename = {}
    builder.glue("DMACopy", "SP", [hidden], [result], {"mode": "Copy"})


_WEIGHT = "ExternalInputParameter"


def _swapped(options: Options, layer: int, qkv: str, attn: str) -> dict[str, str]:
    """With clashes, two tensors of the first layer bear names of formals, each that of the other's formal."""
    return {} if not options.clashes or layer else {qkv: "attn", attn: "qkv"}


def _projection(options: Options, kernels: _Kernels) -> Callable[[str], KernelPlan]:
    if not options.loops:
        return kernels.next
    return lambda name: kernels.next(LOOP_FORMS.get(name, name))


LOOP_FORMS = {
    "output_projection_tkg": "output_projection_tkg_loops",
    "output_projection_cte": "output_projection_cte_loops",
}


def _extras(options: Options, layer: int) -> Extras:
    if options.kind != "mega":
        return Extras()

    def share(total: int) -> int:
        return total * (layer + 1) // 40 - total * layer // 40

    return Extras(share(7584), share(80), share(1060))


def _decode_layer_kernel(
    options: Options, kernels: _Kernels, kernel: Callable[[str], KernelPlan], layer: int
) -> KernelPlan:
    name = f"decoder_layer_{layer}" if options.distinct else "decoder_layer"
    if name in kernels.plans:
        return kernels.plans[name]
    allocated = bool(options.allocated)
    builder = CallerBuilder(name, options.style, f"{options.seed}/{name}", allocated=allocated, first_addr=0)
    inputs = (Formal("hidden", (128, 128), memory="SB"), Formal("position", (1, 8), "int32"), *DECODE_WEIGHTS)
    outputs = (Formal("out", (128, 128), memory="SB"), Formal("kv_new", (128, 128)))
    hidden, position, *weights = [builder.parameter(formal, "Input") for formal in inputs]
    out, kv_new = [builder.parameter(formal, "Output") for formal in outputs]
    by_name = {tile.name: tile for tile in weights}
    decode_layer(builder, kernel, by_name, hidden, position, kv_new, out, "", _extras(options, layer))
    return _outer_plan(kernels, builder, inputs, outputs)


def _outer_plan(
    kernels: _Kernels, builder: CallerBuilder, inputs: tuple[Formal, ...], outputs: tuple[Formal, ...]
) -> KernelPlan:
    function = builder.function(origin="NKI")
    scratch = builder.scratch_end > 0
    plan = KernelPlan(
        builder.name,
        inputs,
        outputs,
        builder.allocated or scratch,
        max(builder.scratch_end, TILE_ROOM),
        builder.banks,
        lambda: function,
        "qkv",
    )
    kernels.plans[builder.name] = plan
    return plan


def _prefill(builder: CallerBuilder, options: Options, kernels: _Kernels) -> None:
    hidden = builder.dram("input0", (2048, 4096), kind="ExternalInput")
    result = builder.dram("output0", (2048, 4096), kind="ExternalOutput")
    for layer in range(options.layers):
        suffix = f"_l{layer}"
        builder.rename = _swapped(options, layer, f"qkv{suffix}", f"attn0{suffix}")
        weights = {
            formal.name: builder.dram(f"{formal.name}{suffix}", formal.shape, formal.dtype, kind=_WEIGHT)
            for formal in PREFILL_WEIGHTS
        }
        out = result if layer == options.layers - 1 else None
        kernel = _projection(options, kernels)
        if options.nested:
            plan = _prefill_layer_kernel(options, kernels, kernel, layer)
            out = out or builder.dram(f"hidden{suffix}", (2048, 4096))
            builder.call(plan, [hidden, *weights.values()], [out])
            hidden = out
        else:
            hidden = prefill_layer(builder, kernel, weights, hidden, out, suffix)


def _prefill_layer_kernel(
    options: Options, kernels: _Kernels, kernel: Callable[[str], KernelPlan], layer: int
) -> KernelPlan:
    name = f"decoder_layer_{layer}" if options.distinct else "decoder_layer"
    if name in kernels.plans:
        return kernels.plans[name]
    allocated = bool(options.allocated)
    builder = CallerBuilder(name, options.style, f"{options.seed}/{name}", allocated=allocated, first_addr=0)
    inputs = (Formal("hidden", (2048, 4096)), *PREFILL_WEIGHTS)
    outputs = (Formal("out", (2048, 4096)),)
    hidden, *weights = [builder.parameter(formal, "Input") for formal in inputs]
    out = builder.parameter(outputs[0], "Output")
    prefill_layer(builder, kernel, {tile.name: tile for tile in weights}, hidden, out, "")
    return _outer_plan(kernels, builder, inputs, outputs)


def _call_once(builder: CallerBuilder, plan: KernelPlan, number: int) -> None:
    """Call a kernel on external tensors of its own."""
    inputs = [
        builder.dram(f"input{number}_{formal.name}", formal.shape, formal.dtype, kind="ExternalInput")
        for formal in plan.inputs
    ]
    outputs = [
        builder.dram(f"output{number}_{formal.name}", formal.shape, formal.dtype, kind="ExternalOutput")
        for formal in plan.outputs
    ]
    builder.call(plan, inputs, outputs)


def _tiny(builder: CallerBuilder, options: Options, kernels: _Kernels) -> None:
    _call_once(builder, kernels.next(TINY_KERNELS[options.seed % len(TINY_KERNELS)]), 0)


def _loops(builder: CallerBuilder, options: Options, kernels: _Kernels) -> None:
    for number in range(options.layers * len(STAND_ALONE)):
        _call_once(builder, kernels.next(STAND_ALONE[number % len(STAND_ALONE)]), number)


_CALLERS: dict[str, Callable[[CallerBuilder, Options, _Kernels], None]] = {
    "decode": _decode,
    "mega": _decode,
    "prefill": _prefill,
    "tiny": _tiny,
    "loops": _loops,
}
