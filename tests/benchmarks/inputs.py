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


def _modules(inputs: Inputs, path: Path) -> None:
    """Write modules of one call-site each; they are alike, so the one is read and repeated."""
    import arrowir as air
    from arrowir.testing.workloads import call_sites

    one = air.read_json(_encode(call_sites(1, body(inputs), operands=3)), name="call_site")
    one.select(modules=[0] * sites(inputs, 1000)).write_parquet(path)


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


def _dataset(inputs: Inputs, path: Path) -> None:
    import arrowir as air

    air.read_json(inputs.path("document.json")).write_parquet(path)


MAKERS: dict[str, Callable[[Inputs, Path], None]] = {
    "sites_1000": _call_sites(1000),
    "sites_10000": _call_sites(10_000),
    "sites_no_edges": _call_sites(1000, edges=False),
    "sites_distinct": _call_sites(1000, distinct=True),
    "sites_10000.ll": _assembly,
    "sites_nested": _nested,
    "sites_blocks": _blocks,
    "modules_1000": _modules,
    "document.json": _document,
    "document": _dataset,
    "nest.json": _nest,
}
"""The inputs by name, which is that of the file or folder. One that needs another comes after it."""

ABOVE: dict[str, tuple[str, ...]] = {"document": ("document.json",)}
"""Inputs that others are made from."""


def wanted(names: set[str]) -> list[str]:
    """Return inputs with those they are made from, in the order in which they can be made."""
    every = names | {above for name in names for above in ABOVE.get(name, ())}
    return [name for name in MAKERS if name in every]
