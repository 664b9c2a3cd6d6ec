"""Small modules in which constants decide something, and what the pass makes of them."""

from typing import Any

from arrowir.testing.checking import difference
from tests.oracle import run_constants
from tests.oracle.builders import access, function, memory_set, module, op
from tests.single_pass import Json, Passed, run_pass

ONE = 0x3F800000
COPY, MEMSET = "_ConstantPropagate_copy", "_constant_propagate_memset"


def propagate(document: Json, **options: Any) -> Passed:
    """Run the pass; the slow second implementation agrees."""
    outcome = run_pass("constant_propagate", document, **options)
    wanted = run_constants(document, **options)
    assert outcome.status == wanted.status
    assert difference(outcome.doc, wanted.doc) is None
    return outcome


def fill(name: str, memref: str, constant: Any = 0, *, out: Json | None = None, **more: Any) -> Json:
    return op(name, "Memset", outs=[out or access(memref)], constant=constant, mode="Const", **more)


def copy(name: str, source: str, target: str, opcode: str = "TensorCopy", **more: Any) -> Json:
    return op(name, opcode, ins=[access(source)], outs=[access(target)], **more)


def tensors(*names: str, **more: Any) -> list[Json]:
    """Internal tensors, an input `x` and an output `y`."""
    own = [memory_set(f"{name}_set", **more) for name in names]
    return [memory_set("x_set", "ExternalInput"), memory_set("y_set", "ExternalOutput"), *own]


def main(*rows: Json, names: tuple[str, ...] = ("c", "d", "e"), more: list[Json] | None = None) -> Json:
    return module(function("main", [*tensors(*names), *(more or [])], *rows))


def rows_of(outcome: Passed) -> list[str]:
    """Name and opcode of the first function's instructions, in program order."""
    frame = outcome.ir.instructions.filter(air_function(outcome)).sort("position")
    return [f"{name}: {opcode}" for name, opcode in frame.select("name", "opcode").rows()]


def air_function(outcome: Passed) -> Any:
    return outcome.ir.instructions["function_id"] == 0


def select(*ins: str, name: str = "s", out: str = "y") -> Json:
    return op(name, "Select", ins=[access(each) for each in ins], outs=[access(out)])


def logical(which: str, *ins: str, **more: Any) -> Json:
    return op(
        "t", "TensorTensor", ins=[access(each) for each in ins], outs=[access("y")], op=f"logical_{which}", **more
    )
