"""Text of what chains are made of: keys of instructions, layouts, patterns."""

import numpy as np

from arrowir import extras, layouts
from arrowir.ir import IR
from arrowir.store import Array

STEP, READ, ADDRESS, CONSTANT, OFFSET = range(5)
"""Kinds of new instructions, in their order."""

SET_TEXT = '{"Skind":"memory_location_set","partition_dim":0}'
SET = layouts.layout(
    sorted(
        [(layouts.RAW, key) for key in ("Skind", "partition_dim")]
        + [
            (layouts.COLUMN, key)
            for key in (
                "dtype",
                "kind",
                "memorylocations",
                "name",
                "tensorId2MemLocSize",
                "tensor_class",
                "tensor_shape",
            )
        ],
        key=lambda member: member[1],
    )
)
LOCATION = layouts.layout(
    [
        (layouts.RAW, "Skind"),
        *((layouts.COLUMN, key) for key in ("addr", "allocated", "bank", "base", "dims", "name", "tensor_id", "type")),
    ]
)


def in_chain(place: Array, number: Array | int) -> Array:
    """Return the place of an operand among those of its chain, from the instruction's place and its own."""
    return place * 8 + number


def unsigned(values: Array) -> Array:
    """Return integers as the unsigned ones of the same 64 bits."""
    return values.astype(np.int64).view(np.uint64)


def whole_table(elements: int, scale: int, by_rows: bool) -> str:
    """Return a pattern of all elements of a table whose last step is that of its rows, or 1."""
    if by_rows:
        return f"[[1,{scale}],[{scale},{elements // scale}]]"
    if elements % scale:
        return f"[[{elements},1],[1,{elements}]]"
    return f"[[{scale},{elements // scale}],[1,{scale}]]"


def own_members(kind: int, narrow: int, one: int, first: int, adds: int) -> dict[str, object]:
    """Return the own keys of a new instruction, with any constant."""
    if kind == READ:
        return {}
    if kind == CONSTANT:
        return {"constant": 0, "mode": "Const"}
    if kind == STEP:
        ops = ("bypass" if one else "mult", "bypass" if first else "add")
    else:
        ops = ("mult", "add") if kind == ADDRESS else ("add", "subtract" if adds else "bypass")
    wide = {} if narrow else {"is_tensor_scalar_addr": True}
    return {**wide, "op0": ops[0], "op1": ops[1], "reverse0": False, "reverse1": False}


def without(ir: IR, number: int, keys: tuple[str, ...]) -> int:
    """Return the number of a text without some members, -1 for none."""
    rest = [(key, value) for key, value in extras.members(ir.pools.extras[number]) if key not in keys]
    return ir.pools.extras.intern(extras.join(rest)) if rest else -1


def changed_layout(text: str, columns: tuple[str, ...], gone: tuple[str, ...], raw: tuple[str, ...] = ()) -> str:
    """Return a layout with keys added and removed; whether keys are sorted is judged before (rule F6)."""
    members = layouts.entries(text)
    keys = [key for _, key in members]
    wanted = dict.fromkeys(columns, layouts.COLUMN) | dict.fromkeys(raw, layouts.RAW)
    added = [(wanted[key], key) for key in sorted(wanted) if key not in keys]
    kept = [(wanted.get(key, where), key) for where, key in members if key not in gone or key in wanted]
    return layouts.layout(sorted(kept + added, key=lambda m: m[1]) if keys == sorted(keys) else kept + added)
