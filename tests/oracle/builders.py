"""Small BIR documents for the tests of the oracle."""

from typing import Any

Obj = dict[str, Any]


def location(name: str, dims: list[int] | None = None, **more: Any) -> Obj:
    return {"name": name, "type": "DRAM", "addr": 0, "dims": dims or [128, 64]} | more


def memory_set(name: str, kind: str = "Internal", *locations: Obj, **more: Any) -> Obj:
    """A set; without locations given it has one, of its own name without the `_set`."""
    made = list(locations) or [location(name.removesuffix("_set"))]
    return {
        "Skind": "memory_location_set",
        "name": name,
        "kind": kind,
        "dtype": "float32",
        "tensor_shape": [128, 16],
        "memorylocations": made,
    } | more


def sb_set(name: str, addr: int = 0, *, allocated: bool = True, **more: Any) -> Obj:
    place = location(name.removesuffix("_set"), type="SB", addr=addr, allocated=allocated, **more)
    return memory_set(name, "Internal", place)


def register(name: str) -> Obj:
    return {"Skind": "register", "name": name}


def access(memref: str, **more: Any) -> Obj:
    return {"kind": "physical_ap", "ap": [[16, 128], [1, 16]], "offset": 0, "dtype": "float32", "memref": memref} | more


def symbolic(memsetref: str, *addrs: Any, **more: Any) -> Obj:
    return {
        "kind": "symbolic_ap",
        "ap": [[16, 128], [1, 1]],
        "dtype": "float32",
        "memsetref": memsetref,
        "addrs": list(addrs),
    } | more


def constant(value: int) -> Obj:
    return {"kind": "AffExprKind", "terms": [], "c": value}


def axis(name: str) -> Obj:
    return {"kind": "AffIVKind", "axis": name}


def affine(name: str, coefficient: int = 1, c: int = 0) -> Obj:
    return {"kind": "AffExprKind", "terms": [{"idx": axis(name), "coeff": coefficient}], "c": c}


def runtime(name: str) -> Obj:
    return {"kind": "IntRuntimeValueKind", "regref": name}


def op(name: str, opcode: str = "NoOp", **more: Any) -> Obj:
    return {"name": name, "opcode": opcode, "engine": "Pool", "ins": [], "outs": []} | more


def loop(name: str, axis_name: str, bounds: tuple[Any, Any, Any], *body: Obj, **more: Any) -> Obj:
    lower, upper, stride = bounds
    return {
        "name": name,
        "opcode": "Loop",
        "LoopAxis": {"name": axis_name, "lb": lower, "ub": upper, "stride": stride},
        "blocks": [{"name": f"{name}_body", "instructions": list(body)}],
    } | more


def call(name: str, func: str | None = "k", **more: Any) -> Obj:
    return op(name, "NKIKernel", engine="DVE", func=func) | more


def jump(name: str, target: str, **more: Any) -> Obj:
    return op(name, "UnconditionalBranch", target=target) | more


def block(name: str, *instructions: Obj, **more: Any) -> Obj:
    return {"name": name, "instructions": list(instructions)} | more


def function(name: str, allocations: list[Obj], *instructions: Obj, **more: Any) -> Obj:
    blocks = [{"name": "Block1", "instructions": list(instructions)}]
    return {"name": name, "attributes": [], "allocations": allocations, "blocks": blocks} | more


def module(*functions: Obj, kernels: list[Obj] | None = None, arch: str | None = "gen3", **more: Any) -> Obj:
    doc: Obj = {"version": 2, "arch": arch, "functions": list(functions)}
    if kernels is not None:
        doc["nki_functions"] = {"functions": kernels}
    return doc | more


def rows(doc: Obj, index: int = 0, block: int = 0) -> list[Obj]:
    """The instructions of one block of one function."""
    return doc["functions"][index]["blocks"][block]["instructions"]


def names(doc: Obj, index: int = 0, block: int = 0) -> list[str]:
    return [row["name"] for row in rows(doc, index, block)]


def row(doc: Obj, name: str, index: int = 0) -> Obj:
    """The instruction of that name, in whatever block of the function, nested ones aside."""
    found = [each for block in doc["functions"][index]["blocks"] for each in block["instructions"]]
    return next(each for each in found if each["name"] == name)


def flow(doc: Obj, index: int = 0) -> dict[str, list[str]]:
    """The blocks of a function with the names of what stands in them, in order."""
    blocks = doc["functions"][index]["blocks"]
    return {each["name"]: [found["name"] for found in each["instructions"]] for each in blocks}


def allocations(doc: Obj, index: int = 0) -> dict[str, Obj]:
    return {each["name"]: each for each in doc["functions"][index]["allocations"]}
