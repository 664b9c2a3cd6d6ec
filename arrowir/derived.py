"""Columns that are computed from stored ones: keys of enclosing things, program order, facts out of pooled text."""

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import extras, schema, vocabulary
from arrowir.schema import NULL_INT
from arrowir.store import Array, Strings, starts

if TYPE_CHECKING:
    from arrowir.ir import IR

Derivation = Callable[["IR"], Array | Strings]

# The column that leads from a row towards its module: (column, table).
_UP: dict[str, tuple[str, str]] = {
    "functions": ("module_id", "modules"),
    "queues": ("module_id", "modules"),
    "sets": ("function_id", "functions"),
    "registers": ("function_id", "functions"),
    "locations": ("set_id", "sets"),
    "aliases": ("location_id", "locations"),
    "instructions": ("block_id", "blocks"),
} | {table.name: ("instruction_id", "instructions") for table in schema.OWNED["instructions"]}


def column(ir: "IR", table: str, name: str) -> Array | Strings:
    """Compute a derived column."""
    if name == "id":
        return np.arange(ir.count(table), dtype=np.int32)
    if name in ("module_id", "function_id") and table not in ("blocks", "references"):
        key, above = _UP[table]
        return take(ir.array(above, name), ir.tables[table][key])
    return _DERIVED[table, name](ir)


def cells(ir: "IR", table: str, declared: schema.Column) -> Array | Strings | None:
    """Return a column with what absent cells mean, where that is not null; text that is absent everywhere is None."""
    values = ir.column(table, declared.name)
    if isinstance(values, Strings) or declared.kind == "text":
        return values
    if values is None:
        values = ir.array(table, declared.name)
    if declared.default is not None:
        values = np.where(values == schema.NULLS[declared.kind], declared.default, values)
    return values


def take(values: Array, ids: Array) -> Array:
    """Gather by id; an absent id gives -1."""
    if not len(ids):
        return np.empty(0, values.dtype)
    if not len(values):
        return np.full(len(ids), -1, values.dtype)
    if len(values) <= len(ids):
        return np.append(values, values.dtype.type(-1))[ids]
    if ids.min() >= 0:
        return values[ids]
    return np.where(ids < 0, values.dtype.type(-1), values[np.maximum(ids, 0)])


def zeroed(values: Array) -> Array:
    """Return whole numbers with 0 in place of absent ones."""
    return np.where(values == schema.NULL_INT, 0, values)


def bank_start(bank: Array, addr: Array, bank_bytes: Array | int = vocabulary.PSUM_BANK_BYTES) -> Array:
    """Return the byte of a partition that the addresses of PSUM locations count from.

    That is the first one of their bank. Files that give the place in the partition instead are told by the address,
    which lies in the bank that is named.

    Parameters
    ----------
    bank, addr
        Bank and address of each location, int64; of a negative bank the number without its sign counts.
    bank_bytes
        Bytes of a bank in a partition.

    Examples
    --------
    >>> bank_start(np.array([3, 3, 0, -3]), np.array([0, 6400, 6400, 512])).tolist()
    [6144, 0, 0, 6144]
    """
    first = np.abs(bank) * bank_bytes
    return np.where((addr >= first) & (addr < first + bank_bytes), 0, first)


def _block_module(ir: "IR") -> Array:
    blocks = ir.tables["blocks"]
    in_function = take(ir.tables["functions"]["module_id"], blocks["function_id"])
    in_queue = take(ir.tables["queues"]["module_id"], blocks["queue_id"])
    return np.where(in_function < 0, in_queue, in_function)


def _reference_module(ir: "IR") -> Array:
    references = ir.tables["references"]
    module = np.full(len(references), -1, np.int32)
    for code in np.flatnonzero(np.bincount(references["table"])).tolist():
        mine = references["table"] == code
        name = schema.STRUCTURAL["table"][code]
        module[mine] = ir.array(name, "module_id")[references["row"][mine]]
    return module


def _position(ir: "IR") -> Array:
    """Pre-order rank: sizes of subtrees from the leaves up, then places from the root down, one level at a time."""
    owner = ir.tables["blocks"]["instruction_id"]
    block = ir.tables["instructions"]["block_id"]
    rows = len(block)
    parent = take(owner, block)
    scope = _scope(ir)[block] if rows else np.empty(0, np.int64)
    levels = [np.flatnonzero(parent < 0)] if (parent >= 0).any() else []
    if not levels:
        return np.arange(rows) - first_of_run(scope)
    level_of = np.full(rows, -1, np.int32)
    level_of[levels[0]] = 0
    rest = np.flatnonzero(parent >= 0)
    while len(rest):
        ready = level_of[parent[rest]] >= 0
        level_of[rest[ready]] = len(levels)
        levels.append(rest[ready])
        rest = rest[~ready]
    size = np.ones(rows, np.int64)
    for level in reversed(levels[1:]):
        np.add.at(size, parent[level], size[level])
    place = np.zeros(rows, np.int64)
    for number, level in enumerate(levels):
        before = starts(size[level])[:-1]
        run = parent[level] if number else scope[level]
        place[level] = before - before[first_of_run(run)] + (place[parent[level]] + 1 if number else 0)
    return place


def _scope(ir: "IR") -> Array:
    """Number the functions and queues that blocks belong to: equal for blocks of one."""
    blocks = ir.tables["blocks"]
    return np.where(blocks["function_id"] < 0, -2 - blocks["queue_id"].astype(np.int64), blocks["function_id"])


def first_of_run(values: Array) -> Array:
    """Return for each row the first row of the run of equal values that it is in."""
    if not len(values):
        return np.empty(0, np.int64)
    begins = np.concatenate(([True], values[1:] != values[:-1]))
    return np.flatnonzero(begins)[np.cumsum(begins) - 1]


def _is_kernel(ir: "IR") -> Array:
    """R4: under `nki_functions`, or named by a call-site of another function; never main nor the first."""
    functions, calls = ir.tables["functions"], ir.tables["calls"]
    named = np.zeros(len(functions), bool)
    if len(calls) and len(functions):
        opcode = ir.tables["instructions"]["opcode"][calls["instruction_id"]]
        callee, caller = calls["callee_id"], ir.array("calls", "function_id")
        named[callee[(opcode == vocabulary.OP_NKI_KERNEL) & (callee >= 0) & (callee != caller)]] = True
    module = functions["module_id"]
    named[first_of_run(module)] = False
    named &= ~functions.text().equal("main")
    return ((functions["in_nki_functions"] == 1) | named).astype(np.int8)


def _arch_level(ir: "IR") -> Array:
    def level(text: str) -> int:
        arch = vocabulary.arch(text)
        return NULL_INT if arch is None else arch.level

    return _from_pool(ir.pools.names.texts, ir.tables["modules"]["arch"], level)


def _neuron_core(ir: "IR") -> Array:
    def core(text: str) -> int:
        attributes = extras.parse(text).get("attributes") if '"attributes"' in text else None
        found = attributes.get("neuron_core_id") if isinstance(attributes, dict) else None
        return found if isinstance(found, int) and abs(found) < 2**63 else NULL_INT

    return _from_pool(ir.pools.extras.texts, ir.tables["modules"]["extra"], core)


def _parse_debug(ir: "IR") -> None:
    """Find (filename, lineno) of each distinct debug text; they are kept in the pool."""
    pool = ir.pools.extras
    for number in np.unique(ir.tables["instructions"]["debug"]).tolist():
        if number >= 0 and ("debug", number) not in pool.parsed:
            value: Any = json.loads(pool[number])
            value = value if isinstance(value, dict) else {}
            file, line = value.get("filename"), value.get("lineno")
            pool.parsed["debug", number] = (
                ir.pools.names.intern(file) if isinstance(file, str) else -1,
                line if isinstance(line, int) and not isinstance(line, bool) and abs(line) < 2**63 else NULL_INT,
            )


def _from_debug(ir: "IR", part: int, absent: int, dtype: type[np.generic]) -> Array:
    if not ir.tables["instructions"].has("debug"):
        return np.full(ir.count("instructions"), absent, dtype)
    _parse_debug(ir)
    ids = ir.tables["instructions"]["debug"]
    distinct, place = np.unique(ids, return_inverse=True)
    parsed = ir.pools.extras.parsed
    values = [parsed["debug", i][part] if i >= 0 else absent for i in distinct.tolist()]
    return np.array(values, dtype)[place]


def _from_pool(texts: list[str], ids: Array, fact: Callable[[str], int]) -> Array:
    """Gather an integer fact of pooled texts; absent stays absent."""
    distinct, place = np.unique(ids, return_inverse=True)
    return np.array([NULL_INT if i < 0 else fact(texts[i]) for i in distinct.tolist()], np.int64)[place]


def _chain(ir: "IR", name: str, absent: int) -> Array:
    values = ir.tables["call_chains"][name]
    ids = ir.tables["instructions"]["call_chain_id"]
    if not len(values):
        return np.full(len(ids), absent, values.dtype)
    return np.where(ids < 0, values.dtype.type(absent), values[np.maximum(ids, 0)])


def pattern_elements(ir: "IR") -> Array:
    """Return the number of elements of each pattern of the batch."""
    parsed = ir.pools.patterns.parsed
    texts = ir.pools.patterns.texts
    for number in range(ir.pattern_count):
        if number not in parsed:
            parsed[number] = math.prod(num for _, num in json.loads(texts[number]))
    return np.array([min(parsed[i], 2**63 - 1) for i in range(ir.pattern_count)], np.int64)


def _elements(ir: "IR") -> Array:
    ids = ir.tables["operands"]["pattern_id"]
    values = ir.array("patterns", "elements")
    if not len(values):
        return np.full(len(ids), NULL_INT, np.int64)
    return np.where(ids < 0, NULL_INT, values[np.maximum(ids, 0)])


def _actual(ir: "IR") -> Array:
    rows = ir.tables["call_arguments"]
    names = rows["name"].copy()
    intern = ir.pools.names.intern
    for table, key in (
        ("locations", "actual_location_id"),
        ("sets", "actual_set_id"),
        ("registers", "actual_register_id"),
    ):
        texts = ir.tables[table].text()
        for row in np.flatnonzero(rows[key] >= 0).tolist():
            names[row] = intern(texts[rows[key][row]])
    return names


_DERIVED: dict[tuple[str, str], Derivation] = {
    ("modules", "arch_level"): _arch_level,
    ("modules", "neuron_core_id"): _neuron_core,
    ("functions", "is_kernel"): _is_kernel,
    ("blocks", "module_id"): _block_module,
    ("references", "module_id"): _reference_module,
    ("instructions", "position"): _position,
    ("instructions", "filename"): lambda ir: _from_debug(ir, 0, -1, np.int32),
    ("instructions", "lineno"): lambda ir: _from_debug(ir, 1, NULL_INT, np.int64),
    ("instructions", "kernel"): lambda ir: _chain(ir, "kernel", -1),
    ("instructions", "kernel_source"): lambda ir: _chain(ir, "kernel_source", -1),
    ("instructions", "depth"): lambda ir: _chain(ir, "depth", 0),
    ("operands", "elements"): _elements,
    ("patterns", "elements"): pattern_elements,
    ("call_arguments", "actual"): _actual,
}
