"""The edit that brings kernel functions into modules, and makes call-sites of what named their files."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from arrowir import extras, layouts, schema, vocabulary
from arrowir.batches import behind
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import fresh_names, picked, put
from arrowir.passes.inlining.kernel_calls import Sites
from arrowir.passes.translating.arguments import Arguments
from arrowir.passes.translating.kernels import Constants, Uses, names_of
from arrowir.passes.translating.scratch import PARTITIONS, Pads, tables_of
from arrowir.runs import Runs, concat_tables, take_rows
from arrowir.store import Array, Strings, Table, children
from arrowir.vocabulary import PSUM_BANK_BYTES

DROPPED = ("enable_device_dump", "kernel_format", "klir_binary", "nki_binary_version_identifier")
"""Members of the file's carrier that a call-site does not have."""

_OF_INSTRUCTIONS = ("operands", "calls", "call_arguments")
"""Tables that get rows under instructions which are there already."""


@dataclass(frozen=True)
class Translation:
    """What a batch gets."""

    sites: Sites
    """The instructions that become call-sites."""
    use: Array
    """The use of each."""
    uses: Uses
    taken: Array
    """Mask of the functions of `uses.batch` that are taken over."""
    arguments: Arguments
    """With numbers of `sites`."""
    constants: Constants
    pads: Pads
    """With numbers of `sites`."""
    sb_bytes: Array
    """Per call-site: the SB scratchpad's bytes to write into its shape; 0 leaves what it has."""
    banks: Array
    partitions: Array
    addr: int | None


def translate(ir: IR, todo: Translation) -> IR:
    """Make the batch with kernel functions and call-sites."""
    names, call_names = _names(ir, todo)
    added = _added(ir, todo, names, call_names)
    edit = Edit(ir, added)
    _lay_out(edit, todo)
    layout, extra = _members(ir, todo)
    edit.follow()
    places = edit.places("instructions")
    rows = todo.sites.row if places is None else places[0][todo.sites.row]
    edit.settle("instructions", "opcode", rows, np.full(len(rows), vocabulary.OP_NKI_KERNEL))
    edit.settle("instructions", "layout", rows, layout)
    edit.settle("instructions", "extra", rows, extra)
    out = edit.build()
    order = np.argsort(rows)
    text = put(out.tables["instructions"].text(), rows[order], picked(call_names, order))
    out = out.replace(instructions=out.tables["instructions"].replace(name=text))
    return _without_dropped(_with_nki_functions(out, np.unique(todo.sites.module)), rows)


def _names(ir: IR, todo: Translation) -> tuple[Strings, Strings]:
    """Return the names of the functions taken over, and those of call-sites: `inst__<function>`."""
    names = names_of(ir, todo.uses, todo.taken)
    number = np.cumsum(todo.taken) - 1
    called = picked(names, number[todo.uses.callee][todo.use])
    head = np.frombuffer(b"inst__", np.uint8)
    at = np.repeat(called.offsets[:-1], len(head))
    wanted = Strings(
        called.offsets + len(head) * np.arange(len(called) + 1), np.insert(called.data, at, np.tile(head, len(called)))
    )
    instructions = ir.tables["instructions"]
    order = np.argsort(todo.sites.row, kind="stable")
    fresh = fresh_names(
        instructions.text(),
        ir.array("instructions", "function_id"),
        picked(wanted, order),
        todo.sites.function[order].astype(np.int32),
    )
    return names, picked(fresh, np.argsort(order, kind="stable"))


def _added(ir: IR, todo: Translation, names: Strings, call_names: Strings) -> dict[str, Table]:
    """Return the new rows: the kernel files' own, and what call-sites get."""
    uses, sites, arguments = todo.uses, todo.sites, todo.arguments
    added = behind(ir, uses.batch)
    for table in ("modules", "queues", "call_chains"):
        added[table] = Table.empty(table)
    functions = added["functions"]
    taken = np.flatnonzero(todo.taken)
    added["functions"] = functions.replace(
        module_id=uses.module[uses.batch.tables["functions"]["module_id"]].astype(np.int32),
        in_nki_functions=np.ones(len(functions), np.int8),
        name=put(functions.text(), taken, names),
    )
    if len(todo.constants.rows):
        extra = added["sets"]["extra"].copy()
        extra[todo.constants.rows] = todo.constants.extra
        added["sets"] = added["sets"].replace(extra=extra)
    first = {table: ir.count(table) for table in schema.STORED}
    calls = Table.of(
        "calls",
        len(sites),
        instruction_id=sites.row,
        callee_id=first["functions"] + uses.callee[todo.use],
        candidates=1,
    )
    intern = ir.pools.names.intern
    formals = np.array([intern(name) for name in arguments.names], np.int32)
    entries = Table.of(
        "call_arguments",
        len(arguments.site),
        instruction_id=sites.row[arguments.site],
        direction=arguments.direction,
        formal=formals[arguments.formal],
        formal_set_id=_behind(arguments.formal_set, first["sets"]),
        formal_register_id=_behind(arguments.formal_register, first["registers"]),
        actual_location_id=arguments.location,
        actual_set_id=arguments.set_id,
        actual_register_id=arguments.register,
    )
    new = {"calls": calls, "call_arguments": entries}
    if len(todo.pads.site):
        begins = [ir.count(table) + len(added[table]) for table in ("sets", "locations")]
        pads = Pads(**{**vars(todo.pads), "site": sites.row[todo.pads.site]})
        new |= tables_of(ir, pads, picked(call_names, todo.pads.site), begins[0], begins[1], todo.addr)
    for table, rows in new.items():
        added[table] = concat_tables([added[table], rows])
    return added


def _behind(rows: Array, first: int) -> Array:
    return np.where(rows >= 0, rows + first, -1)


def _lay_out(edit: Edit, todo: Translation) -> None:
    """Put functions behind those of their modules, and what call-sites get behind what they have."""
    ir, uses, batch = edit.ir, todo.uses, todo.uses.batch
    chosen = np.flatnonzero(todo.taken)
    module = uses.module[batch.tables["functions"]["module_id"][chosen]]
    one = np.ones(len(chosen), np.int64)
    count = {table: ir.count(table) for table in schema.STORED}

    at = np.searchsorted(ir.tables["functions"]["module_id"], module + 1)
    edit.keep("functions", inserting(count["functions"], at, count["functions"] + chosen, one))
    in_queue = ir.tables["blocks"]["function_id"] < 0
    block_at = np.searchsorted(ir.array("blocks", "module_id").astype(np.int64) * 2 + in_queue, module * 2 + 1)
    # Blocks of queues, which have no function, stand behind a module's others: there are none in kernel files.
    block, blocks = children(batch.tables["blocks"]["function_id"], chosen)
    edit.keep("blocks", inserting(count["blocks"], block_at, count["blocks"] + block, blocks))

    pads = len(todo.pads.site)
    own = edit.rows("sets") - pads + np.arange(pads)
    sets, length = children(batch.tables["sets"]["function_id"], chosen)
    function = ir.tables["sets"]["function_id"]
    ends = np.concatenate((np.searchsorted(function, todo.pads.function + 1), np.searchsorted(function, at)))
    edit.keep(
        "sets",
        inserting(
            count["sets"],
            ends,
            np.concatenate((own, count["sets"] + sets)),
            np.concatenate((np.ones(pads, np.int64), length)),
        ),
    )

    instruction, instructions = children(batch.tables["instructions"]["block_id"], block, blocks)
    instruction_at = np.searchsorted(ir.tables["instructions"]["block_id"], block_at)
    for table in _OF_INSTRUCTIONS:
        key = ir.tables[table]["instruction_id"]
        row, rows = children(batch.tables[table]["instruction_id"], instruction, instructions)
        of_sites = len(edit.added[table]) - batch.count(table)
        new = edit.rows(table) - of_sites + np.arange(of_sites)
        owner = edit.added[table]["instruction_id"][batch.count(table) :]
        place = np.concatenate((np.searchsorted(key, owner + 1), np.searchsorted(key, instruction_at)))
        edit.keep(
            table,
            inserting(
                count[table],
                place,
                np.concatenate((new, count[table] + row)),
                np.concatenate((np.ones(of_sites, np.int64), rows)),
                # What is taken over stands before row `instruction_at`: before what that row gets itself.
                np.concatenate((2 * owner.astype(np.int64) + 1, 2 * instruction_at)),
            ),
        )


def inserting(rows: int, at: Array, start: Array, length: Array, rank: Array | None = None) -> Runs:
    """Return all rows of a table with other runs put before row `at` of it.

    Parameters
    ----------
    rows
        Rows of the table.
    at, start, length
        Of each run: the row that it comes before, its first row, its length. Runs before the same row keep their order.
    rank
        Order of runs before the same row.

    Examples
    --------
    >>> inserting(3, np.array([3, 1]), np.array([3, 5]), np.array([2, 1])).source().tolist()
    [0, 5, 1, 2, 3, 4]
    """
    order = np.lexsort((np.zeros_like(at) if rank is None else rank, at))
    bounds = np.concatenate(([0], at[order], [rows]))
    starts, lengths = np.empty(2 * len(at) + 1, np.int64), np.empty(2 * len(at) + 1, np.int64)
    starts[0::2], lengths[0::2] = bounds[:-1], np.diff(bounds)
    starts[1::2], lengths[1::2] = start[order], length[order]
    return Runs.of(starts, lengths)


# -- members -----------------------------------------------------------------------------------------------------------


def _members(ir: IR, todo: Translation) -> tuple[Array, Array]:
    """Return layout and text of the call-sites, made once for each distinct one."""
    instructions, row = ir.tables["instructions"], todo.sites.row
    pads = np.bincount(todo.pads.site, minlength=len(row)) > 0
    columns = (
        instructions["layout"][row], instructions["extra"][row], todo.sb_bytes, todo.banks, todo.partitions, pads,
    )  # fmt: skip
    key = np.stack(columns, axis=1).astype(np.int64)
    distinct, place = np.unique(key, axis=0, return_inverse=True)
    made = np.array([_rewritten(ir, *values) for values in distinct.tolist()], np.int64).reshape(-1, 2)
    found = made[place.reshape(-1)]
    return found[:, 0], found[:, 1]


def _rewritten(
    ir: IR, layout: int, extra: int, sb_bytes: int, banks: int, partitions: int, pads: int
) -> tuple[int, int]:
    members = list(layouts.entries(ir.pools.layouts[layout]))
    texts = dict(extras.members(ir.pools.extras[extra])) if extra >= 0 else {}
    keys = [key for _, key in members]
    new: dict[str, tuple[str, str]] = {
        "func": (layouts.COLUMN, ""),
        "kernel_source_val": (layouts.RAW, '"Beta3"'),
    }
    for name, shape, none in (
        ("sb_buf_shape", [PARTITIONS, sb_bytes] if sb_bytes else None, [0, 0]),
        ("psum_buf_shape", [banks, partitions, PSUM_BANK_BYTES] if banks else None, [0, 0, 0]),
    ):
        if shape is not None or name not in keys:
            new[name] = layouts.RAW, extras.dump(shape or none)
    for name in ("func_args", "func_outs"):
        if name in texts:
            new[name] = layouts.COLUMN if texts[name].startswith("{") else layouts.PAIRS, ""
    if pads:
        new["outs"] = layouts.COLUMN, ""
    kept = [(new[key][0] if key in new else where, key) for where, key in members if key not in DROPPED]
    kept += [(new[key][0], key) for key in sorted(new) if key not in keys]
    if keys == sorted(keys):
        kept.sort(key=lambda member: member[1])
    raw = [(key, new[key][1] if key in new else texts[key]) for where, key in kept if where == layouts.RAW]
    text = ir.pools.extras.intern(extras.join(raw)) if raw else -1
    return ir.pools.layouts.intern(layouts.layout(kept)), text


def _without_dropped(ir: IR, rows: Array) -> IR:
    """Drop the references in members that are no longer there."""
    references, codes = ir.tables["references"], schema.STRUCTURAL["table"]
    mine = (references["table"] == codes.index("instructions")) & np.isin(references["row"], rows)
    if not mine.any():
        return ir
    heads = (*DROPPED, "func_args", "func_outs")
    texts = ir.pools.names.texts
    paths = np.unique(references["path"][mine])
    gone = [p for p in paths.tolist() if texts[p].split(".")[0].split("[")[0] in heads]
    kept = ~(mine & np.isin(references["path"], gone))
    return ir if kept.all() else ir.replace(references=take_rows(references, np.flatnonzero(kept)))


def _with_nki_functions(ir: IR, modules: Array) -> IR:
    """See that modules have the member under which kernel functions stand."""
    table, pool = ir.tables["modules"], ir.pools.layouts
    layout, inner = table["layout"].copy(), table["nki_layout"].copy()
    key = "nki_functions"
    of_module = {i: layouts.source(pool[i], key) for i in np.unique(layout[modules]).tolist()}
    lacks = np.array([of_module[i] in (None, layouts.NULL) for i in layout[modules].tolist()], bool)
    layout[modules[lacks]] = layouts.add_key(pool, layout[modules[lacks]], key)
    inner[modules[lacks]] = pool.intern(layouts.of(["functions"]))
    held = modules[~lacks]
    held = held[inner[held] >= 0]  # a bare list of functions has no members
    inner[held] = layouts.add_key(pool, inner[held], "functions")
    changes: dict[str, Any] = {"layout": layout, "nki_layout": inner}
    return ir.replace(modules=table.replace(**changes))
