"""The declaration of every table: columns, types, keys, meaning. All else derives from it.

A table is a list of columns. A column has one of these kinds:

=========  ==============================  =====================================  ==================================
kind       in memory                       absent                                 in frames
=========  ==============================  =====================================  ==================================
``id``     int32, a row number             -1                                     Int32, null where absent
``code``   int16, index in a vocabulary    -1                                     Enum over what is known and seen
``int``    int64                           the smallest int64 (``NULL_INT``)      Int64
``flag``   int8, 0 or 1                    -1                                     Boolean
``text``   UTF-8 bytes behind offsets      empty (`original_name`: null)          String
``pooled`` int32, index in a pool          -1                                     String, or a list for shapes
=========  ==============================  =====================================  ==================================

Stored columns are in the tables of an :class:`arrowir.IR`; derived ones are computed from them when they are first
asked for.
"""

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

SCHEMA_VERSION = "1.1"
"""Version of the tables: the major number changes when older readers would misread them."""

NULL_INT = np.iinfo(np.int64).min
"""The value of an absent ``int`` in memory."""

Kind = Literal["id", "code", "int", "flag", "text", "pooled", "list"]

DTYPES: dict[str, type[np.generic]] = {
    "id": np.int32,
    "code": np.int16,
    "int": np.int64,
    "flag": np.int8,
    "pooled": np.int32,
}
"""numpy dtype of each kind that is one array."""

NULLS: dict[str, int] = {"id": -1, "code": -1, "int": NULL_INT, "flag": -1, "pooled": -1}
"""The value that stands for an absent cell, per kind."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    kind: Kind
    meaning: str
    of: str | None = None
    """``id``: the table it points at; ``code``: its vocabulary; ``pooled``: its pool; ``list``: its pool."""
    key: str | None = None
    """The JSON member that the column holds, where there is one."""
    nullable: bool = True
    derived: bool = False
    """Computed from other columns on demand, never stored."""
    default: int | None = None
    """What an absent cell means, where frames show that instead of null."""


@dataclass(frozen=True, slots=True)
class Table:
    """One table: its parent, its columns, what a row is."""

    name: str
    meaning: str
    columns: tuple[Column, ...]
    parent: str | None = None
    """The column that names the owning row. Rows are grouped by it, in order."""
    children: tuple[str, ...] = ()
    """JSON members that hold child rows, kept in other tables."""
    stored: tuple[Column, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stored", tuple(c for c in self.columns if not c.derived))

    def column(self, name: str) -> Column:
        """Return the column of that name; ``KeyError`` when there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def _id(name: str, of: str, meaning: str, *, nullable: bool = True, derived: bool = False) -> Column:
    return Column(name, "id", meaning, of=of, nullable=nullable, derived=derived)


def _code(name: str, of: str, meaning: str, key: str | None = None) -> Column:
    return Column(name, "code", meaning, of=of, key=key)


def _int(name: str, meaning: str, key: str | None = None, *, derived: bool = False) -> Column:
    return Column(name, "int", meaning, key=key, derived=derived)


def _flag(name: str, meaning: str, key: str | None = None, *, derived: bool = False) -> Column:
    return Column(name, "flag", meaning, key=key, derived=derived)


def _name(meaning: str = "name, as data: it need not be unique") -> Column:
    return Column("name", "text", meaning, key="name", nullable=False)


def _pooled(name: str, of: str, meaning: str, key: str | None = None, *, derived: bool = False) -> Column:
    return Column(name, "pooled", meaning, of=of, key=key, derived=derived)


_OWN_ID = _id("id", "", "number of the row", nullable=False, derived=True)
_MODULE = _id("module_id", "modules", "the module", nullable=False, derived=True)
_FUNCTION = _id("function_id", "functions", "the function; null in queues", derived=True)
_LAYOUT = _pooled("layout", "layouts", "ordered members of the JSON object, with where each value is")
_EXTRA = _pooled("extra", "extras", "members that no column models, as compact JSON; references in it are placeholders")
_PROVENANCE = (
    _id("call_chain_id", "call_chains", "the call-sites that brought the row here; null for rows of the caller"),
    Column("original_name", "text", "the name in the kernel function, for inlined rows"),
)

TABLES: tuple[Table, ...] = (
    Table(
        "modules",
        "one BIR module: one JSON document",
        (
            _OWN_ID,
            Column("name", "text", "stem of the file", nullable=False),
            _pooled("source", "names", "path that the module was read from"),
            _pooled("stage", "names", "the pass named by an `after-<pass>` file name"),
            _pooled("arch", "names", "architecture as written", key="arch"),
            _int("arch_level", "10 (inferentia) to 50 (core_v5); null when unknown", derived=True),
            _int("version", "1 or 2: spelling of affine expressions", key="version"),
            _int("neuron_core_id", "the core, from the module attributes", derived=True),
            _pooled("tensor_map", "extras", "the tensor map that lay beside the module, its text as it was"),
            _pooled("nki_layout", "layouts", "members of the object under `nki_functions`"),
            _pooled("nki_extra", "extras", "other members of the object under `nki_functions`"),
            _LAYOUT,
            _EXTRA,
        ),
        children=("functions", "nki_functions", "queues"),
    ),
    Table(
        "functions",
        "one function: ordinary ones and kernel functions",
        (
            _OWN_ID,
            _id("module_id", "modules", "the module", nullable=False),
            _name(),
            _flag("is_kernel", "a body that call-sites name", derived=True),
            _flag("in_nki_functions", "stands under `nki_functions`"),
            _pooled("attributes", "extras", "its attributes, a JSON list or object", key="attributes"),
            _LAYOUT,
            _EXTRA,
        ),
        parent="module_id",
        children=("allocations", "blocks"),
    ),
    Table(
        "queues",
        "one DMA queue of a module",
        (_OWN_ID, _id("module_id", "modules", "the module", nullable=False), _name(), _LAYOUT, _EXTRA),
        parent="module_id",
        children=("blocks",),
    ),
    Table(
        "blocks",
        "one basic block, of a function, of a loop instruction, or of a queue",
        (
            _OWN_ID,
            _MODULE,
            _id("function_id", "functions", "the function, for nested blocks too; null in queues"),
            _id("instruction_id", "instructions", "the loop (or DMA block) that owns it, if one does"),
            _id("queue_id", "queues", "the queue, for the blocks of a queue and those nested in them"),
            _code("owner", "block_owner", "what owns it: function, instruction or queue"),
            _name(),
            _LAYOUT,
            _EXTRA,
            *_PROVENANCE,
        ),
        children=("instructions",),
    ),
    Table(
        "instructions",
        "one instruction, loops included",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("block_id", "blocks", "the block", nullable=False),
            _int("position", "pre-order rank within the function (or queue): program order", derived=True),
            _name(),
            _code("opcode", "opcode", "what it does", key="opcode"),
            _code("engine", "engine", "who does it", key="engine"),
            Column("optin_mask", "int", "opt-in passes as a bit mask; 15 when absent", key="optin_passes", default=15),
            _int("engine_id", "engine instance", key="engine_id"),
            _int("scheduled_start", "scheduler's estimate", key="scheduled_start"),
            _int("scheduled_end", "scheduler's estimate", key="scheduled_end"),
            _pooled("debug", "extras", "debug object as JSON", key="debug"),
            _pooled("filename", "names", "source file, from debug", derived=True),
            _int("lineno", "source line, from debug", derived=True),
            *_PROVENANCE,
            _pooled("kernel", "names", "kernel function that it comes from", derived=True),
            Column("kernel_source", "code", "front end of that kernel", of="kernel_source", derived=True),
            _int("depth", "number of call-sites around it: 0 for the caller's own", derived=True),
            _pooled("sync_layout", "layouts", "members of `sync_info`; null when there is none"),
            _pooled("sync_extra", "extras", "other members of `sync_info`"),
            _LAYOUT,
            _EXTRA,
        ),
        parent="block_id",
        children=(
            "ins",
            "outs",
            "indirection_ins",
            "dependencies",
            "loop_carried_dependencies",
            "unroll_dependencies",
            "sync_info",
            "LoopAxis",
            "DynamicForLoopAxis",
            "blocks",
            "target",
            "on_true",
            "on_false",
            "func",
            "func_args",
            "func_outs",
            "arguments",
        ),
    ),
    Table(
        "operands",
        "one operand of an instruction, immediates and registers included",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("instruction_id", "instructions", "the instruction", nullable=False),
            _code("role", "role", "in, indirection or out"),
            _code("kind", "operand_kind", "access pattern, register or immediate", key="kind"),
            _code("dtype", "dtype", "dtype of the elements", key="dtype"),
            _id("location_id", "locations", "memory location it names"),
            _id("set_id", "sets", "set it names"),
            _id("register_id", "registers", "register it names"),
            _pooled("name", "names", "location as written, where it did not resolve"),
            _pooled("set_name", "names", "set as written, where it did not resolve"),
            _pooled("register_name", "names", "register as written, where it did not resolve"),
            _int("offset", "first element, in elements of the dtype", key="offset"),
            _id("pattern_id", "patterns", "access pattern"),
            _int("elements", "number of elements of the pattern", derived=True),
            _LAYOUT,
            _EXTRA,
        ),
        parent="instruction_id",
    ),
    Table(
        "patterns",
        "the distinct access patterns",
        (
            _OWN_ID,
            Column("pattern", "list", "list of {step, num}, partition axis first", of="patterns", derived=True),
            _int("elements", "product of the nums", derived=True),
        ),
    ),
    Table(
        "sets",
        "one memory location set: a logical tensor",
        (
            _OWN_ID,
            _MODULE,
            _id("function_id", "functions", "the function", nullable=False),
            _int("ordinal", "place among the function's allocations"),
            _name(),
            _code("kind", "tensor_kind", "input, output, constant, internal", key="kind"),
            _code("tensor_class", "tensor_class", "class of the tensor", key="tensor_class"),
            _code("dtype", "dtype", "dtype of the tensor", key="dtype"),
            _code("addr_space", "addr_space", "address space, for DRAM", key="addr_space"),
            _pooled("tensor_shape", "shapes", "logical shape, partition axis first", key="tensor_shape"),
            _code("origin", "origin", "who made it", key="origin"),
            _flag("allocated", "mirrors its locations", key="allocated"),
            _int("tensor_id_size", "size of the table indexed by tensor_id", key="tensorId2MemLocSize"),
            *_PROVENANCE,
            _LAYOUT,
            _EXTRA,
        ),
        parent="function_id",
        children=("memorylocations",),
    ),
    Table(
        "locations",
        "one memory location: a placement of a set",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("set_id", "sets", "the set", nullable=False),
            _name(),
            _code("type", "memory_type", "DRAM, SB, PSUM, ...", key="type"),
            _int("addr", "byte address: in its partition for SB and PSUM", key="addr"),
            _int("partitions", "number of partitions (first of `dims`)"),
            _int("bytes", "bytes per partition (product of the other `dims`)"),
            _int("bank", "PSUM bank", key="bank"),
            _int("base", "first partition", key="base"),
            _flag("allocated", "the address is final", key="allocated"),
            _flag("pinned", "an allocator must not move it", key="pinned"),
            _flag("runtime_reserved", "reserved for the runtime", key="runtime_reserved"),
            _int("tensor_id", "index in the table of its set", key="tensor_id"),
            *_PROVENANCE,
            _LAYOUT,
            _EXTRA,
        ),
        parent="set_id",
        children=("dims", "alias"),
    ),
    Table(
        "registers",
        "one register, or a storage object of a kind that has no table of its own",
        (
            _OWN_ID,
            _MODULE,
            _id("function_id", "functions", "the function", nullable=False),
            _int("ordinal", "place among the function's allocations"),
            _name(),
            _code("storage", "storage_kind", "`register`, or the kind as written", key="Skind"),
            *_PROVENANCE,
            _LAYOUT,
            _EXTRA,
        ),
        parent="function_id",
    ),
    Table(
        "aliases",
        "one alias entry of a DRAM location",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("location_id", "locations", "the location that lists it", nullable=False),
            _id("target_location_id", "locations", "the location it may share bytes with"),
            _id("target_set_id", "sets", "the set named beside it, in the three-item form"),
            _pooled("name", "names", "location as written, where it did not resolve"),
            _pooled("set_name", "names", "set as written, where it did not resolve"),
            _int("kind", "bit mask: 1 may, 3 must"),
            _pooled("extra", "extras", "the entry as JSON with placeholders"),
        ),
        parent="location_id",
    ),
    Table(
        "dependencies",
        "one dependency edge: an instruction waits for another",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("instruction_id", "instructions", "the instruction that waits", nullable=False),
            _code("relation", "relation", "plain, loop_carried or unroll"),
            _id("on_instruction_id", "instructions", "the instruction that it waits for"),
            _code("edge", "edge_kind", "Flow, Anti, Output, Ordered; Flow for a bare name"),
            _pooled("name", "names", "name as written, where it did not resolve"),
            _pooled("extra", "extras", "what follows the name in the entry, a JSON list; null for a bare name"),
        ),
        parent="instruction_id",
    ),
    Table(
        "branches",
        "one branch target",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("instruction_id", "instructions", "the branch", nullable=False),
            _code("slot", "branch_slot", "target, on_true or on_false"),
            _id("block_id", "blocks", "the block"),
            _pooled("name", "names", "name as written, where it did not resolve"),
        ),
        parent="instruction_id",
    ),
    Table(
        "loops",
        "the axis of a Loop or DynamicForLoop",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("instruction_id", "instructions", "the loop", nullable=False),
            _pooled("axis", "names", "name of the induction variable", key="name"),
            _int("lb", "first value; null when absent or no plain integer", key="lb"),
            _int("ub", "end, exclusive; null when absent or no plain integer", key="ub"),
            _int("stride", "step; null when absent or no plain integer", key="stride"),
            _LAYOUT,
            _EXTRA,
        ),
        parent="instruction_id",
    ),
    Table(
        "calls",
        "one call of a function: NKIKernel and Call",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("instruction_id", "instructions", "the call-site", nullable=False),
            _id("callee_id", "functions", "the function called"),
            _int("candidates", "number of functions that the name fits equally well"),
            _pooled("name", "names", "name as written, where it did not resolve"),
        ),
        parent="instruction_id",
    ),
    Table(
        "call_arguments",
        "one entry of an argument map",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("instruction_id", "instructions", "the call-site", nullable=False),
            _code("direction", "direction", "in (func_args), out (func_outs) or argument (arguments of a Call)"),
            _pooled("formal", "names", "parameter, as written"),
            _id("formal_set_id", "sets", "the parameter's set in the callee"),
            _id("formal_register_id", "registers", "the parameter, when it is a register"),
            _id("actual_location_id", "locations", "the caller's location"),
            _id("actual_set_id", "sets", "the caller's set, when the entry names a set"),
            _id("actual_register_id", "registers", "the caller's register"),
            _pooled("name", "names", "actual as written, where it did not resolve"),
            _pooled("actual", "names", "name of the actual", derived=True),
        ),
        parent="instruction_id",
    ),
    Table(
        "semaphores",
        "one wait or update of a `sync_info`",
        (
            _OWN_ID,
            _MODULE,
            _FUNCTION,
            _id("instruction_id", "instructions", "the instruction", nullable=False),
            _code("side", "semaphore_side", "wait or update"),
            _id("from_instruction_id", "instructions", "the producer, when `from` names an instruction"),
            _pooled("name", "names", "`from` as written, where it did not resolve"),
            _int("semaphore", "semaphore number", key="id"),
            _int("value", "wait_value or update_value"),
            _LAYOUT,
            _EXTRA,
        ),
        parent="instruction_id",
    ),
    Table(
        "references",
        "references inside pooled text: registers and axes in expressions, and the like",
        (
            _OWN_ID,
            _MODULE,
            _code("table", "table", "table of the row whose text holds the placeholder"),
            Column("row", "id", "the row, in that table", nullable=False),
            _pooled("path", "names", "JSON path of the name in the row's text"),
            _code("target", "table", "table that it points at"),
            Column("target_id", "id", "the row that it points at"),
            _pooled("name", "names", "name as written, where it did not resolve"),
        ),
    ),
    Table(
        "call_chains",
        "the tree of call-sites that inlining went through",
        (
            _OWN_ID,
            _id("module_id", "modules", "the module", nullable=False),
            _id("parent_id", "call_chains", "the call-site around it"),
            Column("name", "text", "name of the call-site", nullable=False),
            _pooled("kernel", "names", "kernel function"),
            Column("kernel_source", "code", "front end of the kernel", of="kernel_source"),
            _int("depth", "1 for a call-site of the caller"),
        ),
        parent="module_id",
    ),
)

BY_NAME: dict[str, Table] = {table.name: table for table in TABLES}
"""The tables by name."""

STORED: tuple[str, ...] = tuple(t.name for t in TABLES if t.stored)
"""Names of the tables that are stored; `patterns` is a view of a pool."""

OWNED: dict[str, tuple[Table, ...]] = {
    parent.name: tuple(
        t for t in TABLES if t.parent and t.column(t.parent).of == parent.name and not t.column(t.parent).derived
    )
    for parent in TABLES
}
"""For each table the tables whose rows it owns."""

REFERRING: tuple[str, ...] = (
    "instructions",
    "operands",
    "locations",
    "registers",
    "sets",
    "blocks",
    "functions",
    "queues",
    "loops",
    "dependencies",
    "semaphores",
)
"""Tables whose text may hold placeholders, in the order in which `references` is grouped."""

STRUCTURAL: dict[str, tuple[str, ...]] = {
    "table": tuple(t.name for t in TABLES),
    "block_owner": ("function", "instruction", "queue"),
}
"""Vocabularies of the tables themselves, beside those of BIR in `arrowir.vocabulary`."""

POOLS: tuple[str, ...] = ("layouts", "extras", "patterns", "shapes", "names")
"""Pools of interned text."""
