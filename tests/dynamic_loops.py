"""Loops that become branches and registers, and what is made of them, as plain dicts."""

from functools import partial
from typing import Any

from tests.oracle import run_unroll
from tests.oracle.builders import (
    block,
    function,
    loop,
    module,
    op,
    register,
)
from tests.single_pass import Json, Passed, refused, run_pass

unroll = partial(run_pass, "unroll")
inline = partial(run_pass, "inline_nki_kernel")


def body(*instructions: Json, sets: list[Json] = (), **more: Any) -> Json:  # type: ignore[assignment]
    """A module of one function with one block."""
    return module(function("main", [register("r"), register("s"), *sets], *instructions), **more)


def counted(name: str, axis_name: str, bounds: tuple[Any, Any, Any], *inside: Json, **more: Any) -> Json:
    lower, upper, stride = bounds
    made = {"lb": lower, "name": axis_name, "stride": stride, "ub": upper}
    return op(name, "DynamicForLoop", DynamicForLoopAxis=made, blocks=[block(f"{name}_body", *inside)], **more)


def repeated(name: str, condition: Any, *inside: Json, **more: Any) -> Json:
    return op(name, "DoWhile", cond=condition, blocks=[block(f"{name}_body", *inside)], **more)


def several(name: str, bounds: tuple[int, int, int], *blocks: Json, axis_name: str = "i") -> Json:
    return loop(name, axis_name, bounds) | {"blocks": list(blocks)}


def same_as_the_oracle(document: Json) -> Passed:
    outcome = unroll(document)
    assert outcome.doc == run_unroll(document).doc
    return outcome


def fault(*instructions: Json, sets: list[Json] = ()) -> str:  # type: ignore[assignment]
    document = body(*instructions, sets=sets)
    code = refused("unroll", document).code
    assert {("error", code)} == run_unroll(document).codes()
    return code


def number(value: int) -> Json:
    return {"dtype": "int32", "kind": "imm_value", "value": value}


def named(name: str) -> Json:
    return {"dtype": "int32", "kind": "register_access", "regref": name}


def moved(name: str, value: Json, to: str) -> Json:
    return {"engine": "ALL", "ins": [value], "name": name, "opcode": "RegisterMove", "outs": [named(to)]}


def worked(name: str, op_name: str, left: str, right: str) -> Json:
    ins, outs = [named(left), named(right)], [named(left)]
    return {"engine": "ALL", "ins": ins, "name": name, "op": op_name, "opcode": "RegisterAlu", "outs": outs}


def compared(name: str, comparison: str, left: str, right: Json, on_true: str, on_false: str) -> Json:
    return {
        "comp_op": comparison, "engine": "ALL", "ins": [named(left), right], "name": name, "on_false": on_false,
        "on_true": on_true, "opcode": "CompareAndBranch", "outs": [],
    }  # fmt: skip


def went(name: str, target: str) -> Json:
    return {
        "engine": "ALL", "ins": [], "name": name, "opcode": "UnconditionalBranch", "outs": [], "target": target,
    }  # fmt: skip


def registers(document: Json) -> list[str]:
    return [each["name"] for each in document["functions"][0]["allocations"] if each.get("Skind") == "register"]


OP = "op"


def arithmetic(outcome: Passed, block_name: str, target: str) -> list[str]:
    found = next(each for each in outcome.doc["functions"][0]["blocks"] if each["name"] == block_name)
    steps: list[str] = []
    for each in found["instructions"]:
        if target in each["name"]:
            ins = [str(i.get("value", i.get("regref"))).removeprefix("Block1_") for i in each["ins"]]
            out = each["outs"][0]["regref"].removeprefix("Block1_")
            steps.append(f"{out} = {f' {each.get(OP)} '.join(ins)}")
    return steps
