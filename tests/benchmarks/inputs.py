"""What the rows work on: generated documents and data sets, each made once a run in a process of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.registry import Inputs

if TYPE_CHECKING:
    from arrowir import IR

BODY = 200
"""Instructions of a benchmark kernel."""

DOCUMENT_INSTRUCTIONS = 31_000
"""Instructions of the document that is read and written: 45 MB of compact JSON."""

Json = dict[str, Any]


def sites(inputs: Inputs, full: int) -> int:
    """Return the number of call-sites for a full number."""
    return inputs.size(full, full // 50)


def body(inputs: Inputs) -> int:
    """Return the number of instructions of a benchmark kernel."""
    return inputs.size(BODY, 20)


def anew(ir: "IR") -> "IR":
    """Return the batch as if just read: with no derived column, and none of what pools keep for the next pass."""
    from arrowir import IR

    return IR(ir.tables, ir.pools.copy(), diagnostics=ir.messages, history=ir.history)


def _encode(document: Json) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _call_sites(full: int, *, edges: bool = True, distinct: bool = False) -> Callable[[Inputs, Path], None]:
    def make(inputs: Inputs, path: Path) -> None:
        import arrowir as air
        from arrowir.testing.workloads import call_sites

        document = call_sites(sites(inputs, full), body(inputs), operands=3, edges=edges, distinct=distinct)
        air.read_json(_encode(document), name="call_sites").write_parquet(path)

    return make


STACK = 10
"""Call-sites in a kernel that calls kernels."""

BLOCKS = 4
"""Blocks of a kernel of several."""


def _nested(inputs: Inputs, path: Path) -> None:
    """Write a module whose call-sites name a kernel that is ten call-sites of another."""
    import arrowir as air
    from arrowir.testing.workloads import call_sites

    inner = call_sites(STACK, body(inputs), operands=3)
    outer = call_sites(max(1, sites(inputs, 1000) // STACK), body(inputs), operands=3)
    (stack,) = inner["functions"]
    stack["name"] = "stack"
    for site in outer["functions"][0]["blocks"][0]["instructions"]:
        (first, second), (result,) = site["func_args"].values(), site["func_outs"].values()
        site |= {"func": "stack", "func_args": {"in0": first, "in1": second}, "func_outs": {"out0": result}}
    outer["nki_functions"]["functions"] = [stack, *inner["nki_functions"]["functions"]]
    air.read_json(_encode(outer), name="nested").write_parquet(path)


def _blocks(inputs: Inputs, path: Path) -> None:
    """Write call-sites of a kernel of several blocks; with its branches it has as many instructions as the others."""
    import arrowir as air
    from arrowir.testing.workloads import call_sites

    document = call_sites(sites(inputs, 1000), body(inputs) - BLOCKS, operands=3)
    (kernel,) = document["nki_functions"]["functions"]
    rows = kernel["blocks"][0]["instructions"]
    size = -(-len(rows) // BLOCKS)
    kernel["blocks"] = [
        {"name": f"b{number}", "instructions": rows[number * size : (number + 1) * size]} for number in range(BLOCKS)
    ]
    for number, block in enumerate(kernel["blocks"][:-1]):
        branch = {"engine": "SP", "ins": [], "name": f"B-{number}", "opcode": "UnconditionalBranch", "outs": []}
        block["instructions"].append({**branch, "target": f"b{number + 1}"})
    air.read_json(_encode(document), name="blocks").write_parquet(path)


def _assembly(inputs: Inputs, path: Path) -> None:
    from tests.benchmarks.llvm import Shape, text

    path.write_text(text(Shape(sites(inputs, 10_000), body(inputs))))


def _modules(full: int, share: int = 1) -> Callable[[Inputs, Path], None]:
    """Write modules of one call-site each, of a body that is a share of the usual one.

    They are alike, so the one is read and repeated.
    """

    def make(inputs: Inputs, path: Path) -> None:
        import arrowir as air
        from arrowir.testing.workloads import call_sites

        one = air.read_json(_encode(call_sites(1, body(inputs) // share, operands=3)), name="call_site")
        one.select(modules=[0] * sites(inputs, full)).write_parquet(path)

    return make


TILES = 66
"""Tiles of the body of a library kernel, of three instructions each."""


def tiles(inputs: Inputs) -> int:
    """Return the number of tiles of a library kernel's body."""
    return inputs.size(TILES, 6)


def _library(inputs: Inputs, path: Path) -> None:
    """Write call-sites of a library kernel that all ask for the same."""
    import arrowir as air
    from arrowir.testing.library_modules import equal_sites

    document = equal_sites(sites(inputs, 1000), tiles(inputs))
    air.read_json(_encode(document), name="library").write_parquet(path)


def _document(inputs: Inputs, path: Path) -> None:
    from arrowir.testing.workloads import kernel

    path.write_bytes(_encode(kernel(inputs.size(DOCUMENT_INSTRUCTIONS, 100))))


def _nest(inputs: Inputs, path: Path) -> None:
    path.write_bytes(_encode(matmul_nest(*nest_trips(inputs))))


def nest_trips(inputs: Inputs) -> tuple[int, int, int]:
    """Return how often the axes of the loop nest run: 100 * 100 * (33 * 3 + 1) instructions are a million."""
    return (4, 4, 2) if inputs.quick else (100, 100, 33)


def nest_instructions(rows: int, columns: int, depth: int) -> int:
    """Return the number of instructions of the unrolled nest."""
    return rows * columns * (depth * 3 + 1)


def matmul_nest(rows: int, columns: int, depth: int) -> Json:
    """Return a module whose function is a tiled matrix product: three loops, symbolic addresses, loop-carried edges.

    Examples
    --------
    >>> document = matmul_nest(2, 2, 2)
    >>> [i["opcode"] for i in document["functions"][0]["blocks"][0]["instructions"]]
    ['Loop']
    """
    from arrowir.testing import bir
    from arrowir.testing.expressions import affine, loop, symbolic

    shapes = {"lhs": (128 * depth, 128 * rows), "rhs": (128 * depth, 512 * columns), "out": (128 * rows, 512 * columns)}
    kinds = {"lhs": "ExternalInput", "rhs": "ExternalInput", "out": "ExternalOutput"}
    sets = [bir.tensor(name, "DRAM", shape, "float32", kind=kinds[name]) for name, shape in shapes.items()]
    tiles = {"a": 128, "b": 512}
    sets += [bir.tensor(f"{name}_tile", "SB", (128, width), "float32") for name, width in tiles.items()]
    sets.append(bir.tensor("acc", "PSUM", (128, 512), "float32"))

    def whole(name: str, width: int) -> Json:
        return bir.access(name, [[width, 128], [1, width]], "float32")

    def part(name: str, width: int, row: Json, column: Json) -> Json:
        return symbolic(f"{name}_set", [row, column], [[shapes[name][1], 128], [1, width]], "float32")

    def load(name: str, number: int, tile: str, width: int, column: Json) -> Json:
        return bir.instruction(
            f"K-{number}",
            "DMACopy",
            "SP",
            [part(name, width, affine({"k": 128}), column)],
            [whole(tile, width)],
            loopnest=["m", "n", "k"],
            loop_carried_dependencies=[["K-2", "Anti"]],
            keys={"mode": "Copy"},
        )

    product = bir.instruction(
        "K-2",
        "Matmult",
        "PE",
        [whole("b_tile", 512), whole("a_tile", 128)],
        [whole("acc", 512)],
        edges=[["K-0", "Flow"], ["K-1", "Flow"]],
        loopnest=["m", "n", "k"],
        loop_carried_dependencies=[["K-2", "Output"]],
        # 1 starts the accumulation
        keys={"accumulation_flag": affine({"k": 1}, 1), "is_transpose": False},
    )
    store = bir.instruction(
        "K-3",
        "DMACopy",
        "SP",
        [whole("acc", 512)],
        [part("out", 512, affine({"m": 128}), affine({"n": 512}))],
        edges=[["K-2", "Flow"]],
        loopnest=["m", "n"],
        keys={"mode": "Copy"},
    )
    loads = [
        load("lhs", 0, "a_tile", 128, affine({"m": 128})),
        load("rhs", 1, "b_tile", 512, affine({"n": 512})),
    ]
    inner = [loop("k", 0, depth, 1, [*loads, product], name="loop_k"), store]
    nest = loop("m", 0, rows, 1, [loop("n", 0, columns, 1, inner, name="loop_n")], name="loop_m")
    return bir.module([bir.function("sg0000", sets, [bir.block("Block1", [nest])])])


def runtime_loops(inputs: Inputs) -> int:
    """Return how many loops are counted at run time."""
    return inputs.size(20_000, 20)


TRIPS = 8
"""Trips of the loop that is inside of each of them."""


def _runtime_loops(inputs: Inputs, path: Path) -> None:
    """Write a function of loops that a register counts, each with a loop of constant bounds inside."""
    from arrowir.testing import bir
    from arrowir.testing.expressions import affine, loop, symbolic

    sets = [bir.tensor("t", "SB", (128, 64), "float32"), bir.register("count")]
    rows: list[Json] = []
    for k in range(runtime_loops(inputs)):
        outer, inner = f"e{k}", f"j{k}"
        at, pattern = affine({outer: 1}), [[64, 1], [1, 4]]
        ins, outs = (symbolic("t_set", [at, affine({inner: 4}, n)], pattern, "float32") for n in (1, 0))
        copy = bir.instruction(f"I-{k}", "TensorCopy", "DVE", [ins], [outs], edges=[])
        axis = {"lb": 0, "name": outer, "stride": 1, "ub": {"kind": "IntRuntimeValueKind", "regref": "count"}}
        counted = bir.instruction(
            f"L-{k}",
            "DynamicForLoop",
            "Unassigned",
            [],
            [],
            edges=[],
            keys={"DynamicForLoopAxis": axis, "blocks": [bir.block("block0", [loop(inner, 0, TRIPS, 1, [copy])])]},
        )
        rows.append(counted)
    path.write_bytes(_encode(bir.module([bir.function("sg0000", sets, [bir.block("Block1", rows)])])))


CHANNELS = 8
"""Channels of a collective."""


def collective_runs(inputs: Inputs) -> int:
    """Return how many collectives there are, each of several channels."""
    return inputs.size(12_500, 20)


def _collectives(inputs: Inputs, path: Path) -> None:
    """Write a module of collectives of adjacent channels, as unrolling leaves them."""
    import arrowir as air
    from arrowir.testing import bir
    from arrowir.testing.expressions import loop

    sets = [bir.tensor(name, "DRAM", (128, 64 * CHANNELS), "float32") for name in ("x", "y")]
    rows = [
        bir.instruction(
            f"C-{channel}",
            "CollectiveCompute",
            "Pool",
            [bir.access("x", [[64 * CHANNELS, 128], [1, 64]], "float32", offset=64 * channel)],
            [bir.access("y", [[64 * CHANNELS, 128], [1, 64]], "float32", offset=64 * channel)],
            edges=[[f"C-{channel - 1}", "Ordered"]] if channel else [],
            keys={"kind": "PermuteImplicit", "cc_channel": channel, "replica_groups": [[0, 1]]},
        )
        for channel in range(CHANNELS)
    ]
    nest = loop("i", 0, collective_runs(inputs), 1, rows, name="loop_i")
    document = bir.module([bir.function("sg0000", sets, [bir.block("Block1", [nest])])])
    air.passes.unroll(air.read_json(_encode(document), name="collectives")).ir.write_parquet(path)


def constant_groups(inputs: Inputs) -> int:
    """Return how many constants a module has, each with a copy of it, its use, and an instruction that is dead."""
    return inputs.size(1000, 20)


def _constants(inputs: Inputs, path: Path) -> None:
    """Write modules in which half of the instructions are for nothing; they are alike."""
    import arrowir as air
    from arrowir.testing import bir

    kinds = {"x": "ExternalInput", "y": "ExternalOutput"}
    sets = [bir.tensor(name, "DRAM", (128, 64), "float32", kind=kind) for name, kind in kinds.items()]
    rows: list[Json] = []

    def add(name: str, opcode: str, ins: list[str], out: str, after: list[str], **keys: Json | str | int) -> None:
        reads, writes = ([bir.access(n, [[64, 128], [1, 64]], "float32") for n in names] for names in (ins, [out]))
        edges = [[on, "Flow"] for on in after]
        rows.append(bir.instruction(name, opcode, "DVE", reads, writes, edges=edges, keys=keys))

    for k in range(constant_groups(inputs)):
        fill, copied, dead = (f"{name}{k}" for name in "cde")
        sets += [bir.tensor(name, "SB", (128, 64), "float32") for name in (fill, copied, dead)]
        add(f"F-{k}", "Memset", [], fill, [], mode="Const", constant=k % 16)
        add(f"T-{k}", "TensorCopy", [fill], copied, [f"F-{k}", *([f"E-{k - 1}"] if k else [])])
        add(f"D-{k}", "TensorCopy", ["x"], dead, [f"T-{k}"])
        add(f"E-{k}", "TensorTensor", [copied, "x"], "y", [f"D-{k}"], op="add")
    document = bir.module([bir.function("sg0000", sets, [bir.block("Block1", rows)])])
    one = air.read_json(_encode(document), name="constants")
    one.select(modules=[0] * inputs.size(25, 2)).write_parquet(path)


def gathers(inputs: Inputs) -> int:
    """Return how many generic indirect loads there are."""
    return inputs.size(50_000, 20)


def _gathers(inputs: Inputs, path: Path) -> None:
    """Write a module of loads by index whose addresses are symbolic, each with a constant of its own."""
    import arrowir as air
    from arrowir.testing import bir
    from arrowir.testing.expressions import loop

    count = gathers(inputs)
    sets = [
        bir.tensor("table", "DRAM", (64 * count, 64), "float32", kind="ExternalInput"),
        bir.tensor("rows", "SB", (128, 64), "float32"),
        bir.tensor("index", "SB", (128, 1), "int32"),
    ]
    index, axis = {"arg_id": 1, "kind": "IndirectArgId"}, {"axis": "i", "kind": "AffIVKind"}
    terms = [{"coeff": 1, "idx": index}, {"coeff": 64, "idx": axis}]
    addresses = [{"c": 0, "kind": "AffExprKind", "terms": terms}, {"c": 0, "kind": "AffExprKind", "terms": []}]
    table = {"addrs": addresses, "ap": [[64, 128], [1, 64]], "dtype": "float32", "kind": "symbolic_ap"}
    load = bir.instruction(
        "G-0",
        "GenericIndirectLoad",
        "Pool",
        [table | {"memsetref": "table_set"}, bir.access("index", [[1, 128], [1, 1]], "int32")],
        [bir.access("rows", [[64, 128], [1, 64]], "float32")],
        loop_carried_dependencies=[["G-0", "Output"]],
        keys={"indirect_dims": ["W"]},
    )
    nest = loop("i", 0, count, 1, [load], name="loop_i")
    document = bir.module([bir.function("sg0000", sets, [bir.block("Block1", [nest])])])
    air.passes.unroll(air.read_json(_encode(document), name="gathers")).ir.write_parquet(path)


def _dataset(inputs: Inputs, path: Path) -> None:
    import arrowir as air

    air.read_json(inputs.path("document.json")).write_parquet(path)


def _prefill(inputs: Inputs, path: Path) -> None:
    import arrowir as air
    from arrowir.testing import workloads

    document = workloads.module("prefill", layers=inputs.size(32, 1), scale=inputs.size(100, 5) / 100)
    air.read_json(_encode(document), name="prefill_32").write_parquet(path)


SEEDS = 10
"""Different modules among many."""


def _many(inputs: Inputs, path: Path) -> None:
    """Write a batch of modules of 3 MB of JSON each, a few different ones again and again."""
    import arrowir as air
    from arrowir.testing import workloads

    seeds, scale = inputs.size(SEEDS, 2), inputs.size(25, 5) / 100
    some = [_encode(workloads.module("prefill", layers=1, scale=scale, seed=seed)) for seed in range(seeds)]
    batch = air.concat([air.read_json(document, name=f"prefill_{seed}") for seed, document in enumerate(some)])
    batch.select([number % seeds for number in range(inputs.size(300, 4))]).write_parquet(path)


MAKERS: dict[str, Callable[[Inputs, Path], None]] = {
    "sites_1000": _call_sites(1000),
    "sites_5000": _call_sites(5000),
    "sites_10000": _call_sites(10_000),
    "sites_50000": _call_sites(50_000),
    "sites_no_edges": _call_sites(1000, edges=False),
    "sites_distinct": _call_sites(1000, distinct=True),
    "sites_10000.ll": _assembly,
    "sites_nested": _nested,
    "sites_blocks": _blocks,
    "modules_1000": _modules(1000),
    "modules_10000": _modules(10_000, share=2),
    "library_1000": _library,
    "document.json": _document,
    "document": _dataset,
    "nest.json": _nest,
    "runtime_loops.json": _runtime_loops,
    "collectives": _collectives,
    "gathers": _gathers,
    "constants": _constants,
    "prefill_32": _prefill,
    "modules_300": _many,
}
"""The inputs by name, which is that of the file or folder. One that needs another comes after it."""

ABOVE: dict[str, tuple[str, ...]] = {"document": ("document.json",)}
"""Inputs that others are made from."""


def wanted(names: set[str]) -> list[str]:
    """Return inputs with those they are made from, in the order in which they can be made."""
    every = names | {above for name in names for above in ABOVE.get(name, ())}
    return [name for name in MAKERS if name in every]
