"""Small modules whose kernels have several blocks or call kernels, and a look at what inlining makes of them."""

from collections.abc import Iterator
from typing import Any

from arrowir.ir import IR
from tests.oracle.builders import block, call, function, module, op, row
from tests.single_pass import Json, Passed

LISTS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")


def branch(name: str, target: str, engine: str = "DVE") -> Json:
    """A branch as rule N13 makes it."""
    return {"engine": engine, "ins": [], "name": name, "opcode": "UnconditionalBranch", "outs": [], "target": target}


def noop(name: str, engine: str = "DVE") -> Json:
    """A NoOp as rule N13 makes it."""
    return {"engine": engine, "ins": [], "name": name, "opcode": "NoOp", "outs": []}


def body_of(document: Json, name: str) -> Json:
    """The blocks of a loop of the first function, with the names of what stands in them."""
    return {b["name"]: [i["name"] for i in b["instructions"]] for b in row(document, name)["blocks"]}


def around(*blocks: Json, of: Json | None = None, on: Json | None = None) -> Json:
    """`p`, the call-site `C` with the edges `of`, and `z` with the edges `on`; the kernel `k` has these blocks."""
    main = function("main", [], op("p"), call("C", **(of or {})), op("z", **(on or {})))
    return module(main, kernels=[function("k", [], blocks=list(blocks))])


def three(*bodies: list[Json]) -> Json:
    """`main` has `a`, C, `b`, D, `c`; C and D call `k`."""
    return module(
        function("main", [], op("a"), call("C"), op("b"), call("D"), op("c")),
        kernels=[function("k", [], blocks=[block(f"b{n + 1}", *each) for n, each in enumerate(bodies)])],
    )


def kernel_names(document: Json) -> list[str]:
    return [each["name"] for each in document["nki_functions"]["functions"]]


def edges(outcome: Passed, name: str) -> Json:
    """The edge lists of one instruction, in the order of their keys."""
    assert outcome.status == "changed"
    return {key: value for key, value in row(outcome.doc, name).items() if key in LISTS}


def many(count: int, first: int = 0) -> list[Json]:
    """Instructions `K0`, `K1`, ... without edges."""
    return [op(f"K{n}") for n in range(first, first + count)]


def ordered(*on: str) -> Json:
    return {"dependencies": [[name, "Ordered"] for name in on]}


def provenance(ir: IR) -> dict[str, tuple[Any, ...]]:
    """Original name, kernel, source and chain of call-sites of the first function's inlined instructions."""
    chains = {each["id"]: each for each in ir.call_chains.rows(named=True)}

    def path(chain: int | None) -> Iterator[str]:
        if chain is not None:
            yield from path(chains[chain]["parent_id"])
            yield chains[chain]["name"]

    found: dict[str, tuple[Any, ...]] = {}
    for each in ir.instructions.rows(named=True):
        if each["function_id"] == 0 and each["call_chain_id"] is not None:
            sites = tuple(path(each["call_chain_id"]))
            assert each["depth"] == len(sites) == chains[each["call_chain_id"]]["depth"]
            found[each["name"]] = (each["original_name"], each["kernel"], each["kernel_source"], *sites)
    return found
