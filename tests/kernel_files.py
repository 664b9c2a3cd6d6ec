"""Artefact directories with modules that name kernel files, and what comes of them."""

import json
from pathlib import Path
from typing import Any

import arrowir as air
from arrowir import build
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.base import PassResult
from arrowir.testing.assertions import assert_valid
from arrowir.testing.front_end import carrier, kernel_file

Json = dict[str, Any]

SHAPE = [128, 16]
ADD: Json = {"op0": "add", "reverse0": False, "op1": "bypass", "const1": 0.0, "reverse1": False}


def add_file(name: str = "add", const: float = 1.0, *, addr: int | None = None, **members: Any) -> Json:
    """Return a kernel file of `c = a + const`."""
    made = build.module(**{"arch": "gen3", **members})
    kernel = made.function(name)
    a, c, tile = kernel.input("a", SHAPE), kernel.output("c", SHAPE), kernel.sb("tile", SHAPE, addr=addr)
    load = kernel.add("Load", [a], [tile])
    add = kernel.add("TensorScalar", [tile], [tile], after=[load], const0=const, **ADD)
    kernel.add("Save", [tile], [c], after=[add])
    return kernel_file(made)


def caller(*binaries: str, name: str = "main", **more: Any) -> build.ModuleBuilder:
    """Return a module that hands `x` through one kernel file after the other, into `y`."""
    members = {key: more.pop(key) for key in ("version", "attributes", "arch") if key in more}
    made = build.module(**{"arch": "gen3", **members})
    main = made.function(name)
    tensors = [main.input("x", SHAPE), *(main.dram(f"t{k}", SHAPE) for k in range(len(binaries) - 1))]
    tensors.append(main.output("y", SHAPE))
    before: list[build.Instruction] = []
    for k, binary in enumerate(binaries):
        source, result = tensors[k], tensors[k + 1]
        maps = {"func_args": {"a": source.name}, "func_outs": {"c": result.name}}
        members = {**carrier(binary), **maps, **more}
        before = [main.add("NKIKLIRKernel", [source], [result], name=f"K-{k}", after=before, **members)]
    return made


def put(path: Path, document: Any) -> Path:
    """Write a document, or text, to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(document, bytes):
        path.write_bytes(document)
    else:
        path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def module(folder: Path, made: Any, name: str = "sg00/bir.json") -> Path:
    """Write a module that is being built, or a document, to a file below a folder."""
    return put(folder / name, made.json() if isinstance(made, build.ModuleBuilder) else made)


def translated(source: Any, **options: Any) -> PassResult:
    """Run the pass on files or a batch; the result is coherent, and reads back as it is."""
    ir = source if isinstance(source, IR) else air.read(source)
    before = [ir.to_json(m) for m in range(len(ir))]
    result = air.passes.translate_nki_ast_to_bir(ir, **options)
    assert [ir.to_json(m) for m in range(len(ir))] == before
    assert_valid(result.ir)
    for module, status in enumerate(result.status.to_list()):
        text = result.ir.to_json(module)
        assert (text != before[module]) == (status == "changed")
        again = air.read_json(text, name="again")
        assert again.to_json(0) == text
        mine = result.ir.select([module])
        for table in ("calls", "call_arguments", "operands", "dependencies", "sets", "locations", "functions"):
            one, other = (ir.frame(table).drop("pattern_id", strict=False) for ir in (mine, again))
            assert one.equals(other), table
    return result


def document(result: PassResult, module: int = 0) -> Json:
    return json.loads(result.ir.to_json(module))


def kernels(doc: Json) -> list[Json]:
    held = doc["nki_functions"]
    return held if isinstance(held, list) else held["functions"]


def rows(doc: Json, function: int = 0) -> list[Json]:
    return doc["functions"][function]["blocks"][0]["instructions"]


def refused(source: Any, **options: Any) -> Diagnostic:
    """Run the pass on one module, which fails, and return the one row that says so."""
    result = translated(source, **options)
    assert result.status.to_list() == ["failed"]
    (message,) = result.messages
    assert message.severity == "error"
    return message
