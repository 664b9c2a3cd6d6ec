"""Seeded modules after real workloads: transformer layers that call kernels, kernel dumps, benchmark shapes.

The same options give the same bytes, on every machine. Documents are plain dicts whose members are sorted.
From the command line:

    python -m arrowir.testing.workloads decode --layers 8 -o decode.json
"""

import argparse
import gzip
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, overload

from arrowir.testing import bir, expert_modules, front_end, library_modules
from arrowir.testing.bir import Json
from arrowir.testing.bodies import BodyBuilder
from arrowir.testing.callers import CallerBuilder, KernelPlan, kernel_function, parameter_sets
from arrowir.testing.emitting import Body, Emitter, Style, tile_allocations
from arrowir.testing.lowering import lower
from arrowir.testing.planning import Allocation, Generated, generate
from arrowir.testing.recipes import CAMPAIGN_KERNELS, RECIPES, Formal, Recipe
from arrowir.testing.tiles import Choice, Tile, parameter_tile


def module(
    kind: str = "decode",
    *,
    layers: int = 4,
    seed: int = 0,
    arch: str = "gen3",
    allocated: Allocation = True,
    distinct: bool = False,
    clashes: float = 0.0,
    nested: bool = False,
    edges: bool = True,
    debug: bool = False,
    duplicate_names: float = 0.0,
    loops: bool = False,
    scale: float = 1.0,
    full_keys: bool = True,
) -> Json:
    """Return a module whose caller runs transformer layers by calling kernels.

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

    Returns
    -------
    dict
        The document.

    Raises
    ------
    ValueError
        The kind or the architecture is unknown.

    Examples
    --------
    >>> document = module("decode", layers=2, scale=0.1)
    >>> [function["name"] for function in document["nki_functions"]["functions"]]
    ['qkv_tkg', 'attention_tkg', 'output_projection_tkg', 'mlp_tkg']
    """
    return generate(
        kind,
        layers=layers,
        seed=seed,
        arch=arch,
        allocated=allocated,
        distinct=distinct,
        clashes=clashes,
        nested=nested,
        edges=edges,
        debug=debug,
        duplicate_names=duplicate_names,
        loops=loops,
        scale=scale,
        full_keys=full_keys,
    ).document()


SHAPE = (128, 512)
RING = 32
"""How many tiles of a benchmark kernel lie side by side before addresses come again."""


def _plain_kernel(name: str, instructions: int, operands: int, *, allocated: bool, style: Style) -> KernelPlan:
    """Return a kernel of the benchmark shape: one output and `operands - 1` inputs an instruction."""
    inputs = (Formal("a", SHAPE, "float32"), Formal("b", SHAPE, "float32"))
    outputs = (Formal("c", SHAPE, "float32"),)
    tiles = max(1, instructions // 5)
    size = SHAPE[1] * 4

    def make() -> Json:
        choice = Choice(name)
        emitter = Emitter(style, choice, "plain.py")
        known = [parameter_tile(formal) for formal in inputs]
        result = parameter_tile(outputs[0])
        made: list[Tile] = []
        recent: list[Tile] = list(known)
        for number in range(instructions):
            ins = [recent[-1 - choice.below(min(4, len(recent)))] for _ in range(operands - 1)]
            if number == instructions - 1:
                ins[:1] = recent[-1:] if ins else []  # what is made is read, so that none of it is dead code
                target = result
            elif len(made) < tiles and number * tiles >= len(made) * instructions:
                ins[:1] = recent[-1:] if ins else []
                place = len(made) % RING * size
                base = f"tile_i{len(made)}"
                target = Tile(base, "SB", *SHAPE, "float32", size, addr=place, set_name=f"{base}_set")
                made.append(target)
                recent.append(target)
            else:
                target = made[-1]
            opcode, engine, keys = _OPERATIONS[min(operands, 5)]
            if opcode == "DMACopy" and operands > 2:
                keys = {**keys, "constants": [1.0] * (operands - 1)}
            emitter.emit(
                opcode,
                engine,
                [(tile, tile.access(full_keys=style.full_keys)) for tile in ins],
                [(target, target.access(full_keys=style.full_keys))],
                keys,
            )
        body = Body(emitter.instructions, made)
        return kernel_function(name, inputs, outputs, body, allocated=allocated, full_keys=style.full_keys)

    scratch = min(tiles, RING) * size
    return KernelPlan(name, inputs, outputs, allocated, scratch, 0, make, "tile_i0")


_OPERATIONS: dict[int, tuple[str, str, Json]] = {
    1: ("Memset", "Pool", {"constant": 0, "mode": "Const"}),
    2: ("TensorCopy", "DVE", {"can_read_uninit": False}),
    3: ("TensorTensor", "DVE", {"acc": "Idle", "op": "add"}),
    4: (
        "TensorScalarPtr",
        "DVE",
        {"is_tensor_tensor_scan": True, "op0": "mult", "op1": "add", "reverse0": False, "reverse1": False},
    ),
    5: ("DMACopy", "SP", {"cce_op": "add", "mode": "CCE"}),
}


@overload
def call_sites(
    n_sites: int,
    n_instructions: int,
    operands: int = 3,
    edges: bool = True,
    distinct: bool = False,
    modules: Literal[1] = 1,
    *,
    allocated: bool = True,
    full_keys: bool = False,
) -> Json: ...


@overload
def call_sites(
    n_sites: int,
    n_instructions: int,
    operands: int = 3,
    edges: bool = True,
    distinct: bool = False,
    modules: int = ...,
    *,
    allocated: bool = True,
    full_keys: bool = False,
) -> Json | list[Json]: ...


def call_sites(
    n_sites: int,
    n_instructions: int,
    operands: int = 3,
    edges: bool = True,
    distinct: bool = False,
    modules: int = 1,
    *,
    allocated: bool = True,
    full_keys: bool = False,
) -> Json | list[Json]:
    """Return a module of the benchmark shape: call-sites of one kernel of equal instructions.

    The kernel has two inputs, one output, and four tiles of its own for every twenty instructions. Each call
    reads what the one before it wrote.

    Parameters
    ----------
    n_sites : int
        How many call-sites.
    n_instructions : int
        How many instructions the kernel has.
    operands : int
        How many operands each of them has, at least 1.
    edges : bool
        Whether kernel and caller have dependencies.
    distinct : bool
        Every call-site has its own kernel.
    modules : int
        How many modules.
    allocated : bool
        Whether the tiles have addresses, relative to a scratchpad.
    full_keys : bool
        Write members that have their default value.

    Returns
    -------
    dict or list of dict
        The document; a list of them when `modules` is not 1.

    Raises
    ------
    ValueError
        There is nothing to generate.

    Examples
    --------
    >>> document = call_sites(3, 20)
    >>> len(document["nki_functions"]["functions"][0]["blocks"][0]["instructions"])
    20
    """
    if n_instructions < 1 or operands < 1:
        raise ValueError("`n_instructions` and `operands` must be at least 1")
    made = [_sites(n_sites, n_instructions, operands, edges, distinct, allocated, full_keys) for _ in range(modules)]
    return made[0] if modules == 1 else made


def _sites(
    count: int,
    instructions: int,
    operands: int,
    edges: bool,
    distinct: bool,
    allocated: bool,
    full_keys: bool,
) -> Json:
    style = Style(edges=edges, full_keys=full_keys)
    builder = CallerBuilder("sg0000", style, "call_sites", allocated=True)
    first = builder.dram("in0", SHAPE, "float32", kind="ExternalInput")
    second = builder.dram("in1", SHAPE, "float32", kind="ExternalInput")
    plans: list[KernelPlan] = []
    for number in range(count):
        if distinct or not plans:
            name = f"plain_{number}" if distinct else "plain"
            plans.append(_plain_kernel(name, instructions, operands, allocated=allocated, style=style))
        last = number == count - 1
        kind = "ExternalOutput" if last else "Internal"
        result = builder.dram("out0" if last else f"t{number}", SHAPE, "float32", kind=kind)
        builder.call(plans[-1], [first, second], [result])
        first = result
    return bir.module([builder.function()], [plan.make() for plan in plans])


def _campaign_recipe(instructions: int, seed: int) -> Recipe:
    recipe = RECIPES[CAMPAIGN_KERNELS[seed % len(CAMPAIGN_KERNELS)]]
    recipe = recipe.scaled(instructions / recipe.instructions)
    operations = dict(recipe.operations)
    largest = max(operations, key=lambda kind: operations[kind])
    operations[largest] = max(1, operations[largest] + instructions - recipe.instructions)
    return replace(recipe, operations=operations)


def kernel(
    instructions: int = 1000,
    seed: int = 0,
    *,
    arch: str = "gen3",
    lowered: bool = False,
    allocated: bool | None = None,
    edges: bool = True,
    debug: bool | None = None,
    duplicate_names: float = 0.0,
    full_keys: bool = True,
) -> Json:
    """Return one dump of a kernel campaign: a flat body in the module's only function.

    Parameters
    ----------
    instructions : int
        How many instructions, before lowering; at least as many as the kernel has parameters.
    seed : int
        Chooses the kernel and its body.
    arch : str
        The architecture; one that has a hardware model.
    lowered : bool
        As after `lower_sync`: with semaphores, DMA queues and their descriptors, a device loop, final
        addresses, source positions and repeated names.
    allocated : bool, optional
        Whether the tiles have addresses; as `lowered` by default, and always when lowered.
    edges : bool
        Whether there are dependencies.
    debug : bool, optional
        Whether instructions have source positions; as `lowered` by default.
    duplicate_names : float
        The share of instructions that repeat a name.
    full_keys : bool
        Write members that have their default value.

    Returns
    -------
    dict
        The document.

    Examples
    --------
    >>> document = kernel(100)
    >>> len(document["functions"][0]["blocks"][0]["instructions"])
    100
    """
    recipe = _campaign_recipe(instructions, seed)
    placed = lowered if allocated is None else allocated or lowered
    style = Style(edges, lowered if debug is None else debug, full_keys, duplicate_names, reuse_edges=placed)
    room = bir.SBUF_BYTES[arch] - bir.DYNAMIC_DMA_BYTES - bir.TAIL_BYTES
    body = BodyBuilder(recipe, f"{seed}/{recipe.name}", room, style).build()
    for tile in body.tiles:
        tile.addr += bir.DYNAMIC_DMA_BYTES if tile.memory == "SB" else 0
    builder = CallerBuilder("sg0000", style, "kernel")
    builder.dma_scratch()
    allocations = [
        *builder.allocations,
        *parameter_sets(recipe.inputs, "Input", full_keys=full_keys),
        *parameter_sets(recipe.outputs, "Output", full_keys=full_keys),
        *tile_allocations(body, allocated=placed, full_keys=full_keys),
    ]
    if lowered:
        return lower(allocations, body, style, arch=arch)
    return bir.module([bir.function("sg0000", allocations, [bir.block("Block1", body.instructions)])], arch=arch)


FRONT_END = "front-end"
"""The workload that is a folder: a module that names kernel files, and these (`arrowir.testing.front_end`)."""

PRESETS: dict[str, Json] = {
    "tiny": {"kind": "tiny"},
    "kernel": {"kind": "kernel"},
    "decode-32": {"kind": "decode", "layers": 32},
    "mega-40": {"kind": "mega", "layers": 40},
    "decode-80": {"kind": "decode", "layers": 80},
    "prefill-4": {"kind": "prefill", "layers": 4},
    "prefill-32": {"kind": "prefill", "layers": 32},
    "prefill-80": {"kind": "prefill", "layers": 80},
}
"""Named workloads, from a unit test to the upper end of what is normal, with the options that give them."""


def _generated(kind: str, options: Json) -> Generated:
    if kind == "library":
        return library_modules.layers(options.pop("layers", 2), **options)
    if kind == "experts":
        return expert_modules.layers(options.pop("layers", 2), **options)
    if kind != "kernel":
        return generate(kind, **options)
    document = kernel(**options)
    more = {"queues": document["queues"]} if "queues" in document else None
    return Generated(document["arch"], lambda: iter(document["functions"]), lambda: iter(()), more)


def preset(name: str, seed: int = 0, **options: Any) -> Json:
    """Return a named workload.

    The instructions that the name stands for come out when the module's calls are inlined.

    Parameters
    ----------
    name : str
        One of `PRESETS`.
    seed : int
        The seed.
    **options
        Other options of `module` (of `kernel` for that preset).

    Returns
    -------
    dict
        The document.

    Raises
    ------
    ValueError
        The name is unknown.

    Examples
    --------
    >>> len(preset("decode-32", scale=0.05)["functions"][0]["blocks"][0]["instructions"])
    194
    """
    if name not in PRESETS:
        known = ", ".join(f"`{known}`" for known in PRESETS)
        raise ValueError(f"preset `{name}` is unknown, choose one of {known}")
    chosen: Json = {**PRESETS[name], "seed": seed, **options}
    return _generated(chosen.pop("kind"), chosen).document()


def write(pieces: Iterable[str], path: Path) -> None:
    """Write pieces of text to a file, compressed as its suffix says.

    Parameters
    ----------
    pieces : iterable of str
        The text.
    path : Path
        The file; `.gz` and `.zst` compress.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     target = Path(folder, "x.json")
    ...     write(["{", "}"], target)
    ...     target.read_text()
    '{}'
    """
    encoded = (piece.encode() for piece in pieces)
    if path.suffix == ".zst":
        import pyarrow as pa

        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            for piece in encoded:
                stream.write(piece)
        return
    with path.open("wb") as file:
        if path.suffix != ".gz":
            file.writelines(encoded)
            return
        # no name and no time in the header: the same options give the same bytes
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as stream:
            for piece in encoded:
                stream.write(piece)


def _allocation(text: str) -> Allocation:
    values: dict[str, Allocation] = {"true": True, "false": False, "mixed": "mixed"}
    if text not in values:
        raise argparse.ArgumentTypeError(f"`{text}` is not `true`, `false` or `mixed`")
    return values[text]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m arrowir.testing.workloads",
        description="Write a generated module as compact JSON.",
    )
    kinds = ("decode", "prefill", "mega", "tiny", "loops", "kernel", "library", "experts")
    names = [*dict.fromkeys([*PRESETS, *kinds]), FRONT_END]
    parser.add_argument("workload", choices=names, metavar="WORKLOAD", help=f"one of {', '.join(names)}")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help=".gz and .zst compress")
    parser.add_argument("--seed", type=int, default=0)
    for name, kind in (
        ("layers", int),
        ("instructions", int),
        ("scale", float),
        ("clashes", float),
        ("arch", str),
    ):
        parser.add_argument(f"--{name}", type=kind)
    parser.add_argument("--duplicate-names", type=float)
    parser.add_argument("--allocated", type=_allocation, metavar="true|false|mixed")
    for name in ("distinct", "nested", "debug", "loops", "lowered"):
        parser.add_argument(f"--{name}", action="store_true", default=None)
    parser.add_argument("--no-edges", dest="edges", action="store_false", default=None)
    parser.add_argument("--short", dest="full_keys", action="store_false", default=None, help="leave defaults out")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command.

    Parameters
    ----------
    arguments : list of str, optional
        The command line; that of the process by default.

    Returns
    -------
    int
        The exit code: 0, or 2 for options that do not go together.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     main(["tiny", "-o", f"{folder}/tiny.json.gz"])
    0
    """
    parser = _parser()
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    path: Path = given.pop("output")
    workload: str = given.pop("workload")
    if workload == FRONT_END:
        front_end.write(path, allocated=given.get("allocated", False) is True)
        return 0
    options = {**PRESETS.get(workload, {"kind": workload}), **given}
    kind = options.pop("kind")
    try:
        generated = _generated(kind, options)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    write(generated.chunks(), path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
