"""Pieces of BIR documents as plain dicts, as little in them as a reader demands."""

import json
from typing import Any

from arrowir.formats.bir_json import read_json, to_json
from arrowir.ir import IR
from arrowir.testing.assertions import assert_valid

Json = dict[str, Any]


def module(*functions: Json, **more: Any) -> Json:
    return {"version": 2, "arch": "gen3", "functions": list(functions), **more}


def function(name: str = "main", allocations: list[Json] = (), instructions: list[Json] = (), **more: Any) -> Json:  # type: ignore[assignment]
    blocks = [block("b0", *instructions)]
    return {"name": name, "allocations": list(allocations), "blocks": blocks, **more}


def block(name: str, *instructions: Json, **more: Any) -> Json:
    return {"name": name, "instructions": list(instructions), **more}


def instruction(name: str, opcode: str = "NoOp", ins: list[Json] = (), outs: list[Json] = (), **more: Any) -> Json:  # type: ignore[assignment]
    return {"name": name, "opcode": opcode, "engine": "DVE", "ins": list(ins), "outs": list(outs), **more}


def loop(axis: str, *blocks: Json, name: str | None = None, **more: Any) -> Json:
    head = {} if name is None else {"name": name}
    return {
        **head,
        "opcode": "Loop",
        "LoopAxis": {"name": axis, "lb": 0, "ub": 4, "stride": 1},
        "blocks": list(blocks),
        **more,
    }


def storage(name: str, kind: str = "Internal", memory: Any = "SB", *, set_name: str | None = None, **more: Any) -> Json:
    """Return a set with one location; `more` are members of the location."""
    location = {"name": name, "type": memory, "addr": 0, "dims": [128, 64], **more}
    return {
        "Skind": "memory_location_set",
        "name": set_name or f"{name}_set",
        "kind": kind,
        "dtype": "float32",
        "tensor_shape": [128, 16],
        "memorylocations": [location],
    }


def register(name: str) -> Json:
    return {"Skind": "register", "name": name}


def operand(memref: str | None = None, **more: Any) -> Json:
    head = {} if memref is None else {"memref": memref}
    return {"kind": "physical_ap", "dtype": "float32", "ap": [[16, 128], [1, 16]], "offset": 0, **head, **more}


def compact(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def load(document: Json) -> IR:
    """Read a document; the batch is valid, and is written as it was read."""
    text = compact(document)
    ir = read_json(text.encode())
    assert_valid(ir)
    assert to_json(ir).decode() == text
    return ir


def codes(ir: IR) -> list[str]:
    return [message.code for message in ir.messages]
