"""Checks for tests: a batch holds together."""

import numpy as np

from arrowir import layouts, schema
from arrowir import vocabulary as vocab
from arrowir.extras import PLACEHOLDER
from arrowir.formats.json_text import members_of
from arrowir.ir import IR
from arrowir.schema import Column
from arrowir.store import Array, Strings, Table

_OWNERS = schema.STRUCTURAL["block_owner"]
_CODES = schema.STRUCTURAL["table"]

# Child rows by the members that hold them: table, code column, codes and members.
_MEMBERS: dict[str, tuple[str, dict[int, str]]] = {
    "operands": (
        "role",
        {vocab.ROLE_IN: "ins", vocab.ROLE_INDIRECTION: "indirection_ins", vocab.ROLE_OUT: "outs"},
    ),
    "dependencies": (
        "relation",
        {
            vocab.RELATION_PLAIN: "dependencies",
            vocab.RELATION_LOOP_CARRIED: "loop_carried_dependencies",
            vocab.RELATION_UNROLL: "unroll_dependencies",
        },
    ),
    "branches": (
        "slot",
        {vocab.SLOT_TARGET: "target", vocab.SLOT_ON_TRUE: "on_true", vocab.SLOT_ON_FALSE: "on_false"},
    ),
    "call_arguments": (
        "direction",
        {
            vocab.DIRECTION_IN: "func_args",
            vocab.DIRECTION_OUT: "func_outs",
            vocab.DIRECTION_ARGUMENT: "arguments",
        },
    ),
    "semaphores": ("side", {vocab.SIDE_WAIT: "on_wait", vocab.SIDE_UPDATE: "on_update"}),
}


def assert_valid(ir: IR) -> None:
    """Assert that a batch holds together: what every reader must make and every pass must leave.

    Columns have the declared dtype and the length of their table; ids, codes and pool numbers are in range; rows are
    grouped by their parent, in order; layouts and texts agree; placeholders and `references` agree; child rows stand
    under members that the parent's layout has.

    Parameters
    ----------
    ir : IR
        The batch.

    Raises
    ------
    AssertionError
        Naming table, column and row of the first fault.

    Examples
    --------
    >>> import arrowir as air
    >>> assert_valid(air.read("data/samples/bir_json_example.json"))
    """
    missing = set(schema.STORED) ^ set(ir.tables)
    assert not missing, f"the tables of the batch differ from those declared in {sorted(missing)}"
    for name in schema.STORED:
        _check_columns(ir, name, ir.tables[name])
    for name in schema.STORED:
        _check_grouping(ir, name)
    _check_blocks(ir)
    for name in schema.STORED:
        _check_objects(ir, name)
    _check_references(ir)
    _check_members(ir)


def _fail(table: str, column: str, rows: Array, what: str) -> None:
    bad = np.flatnonzero(rows)
    more = f" (and {len(bad) - 1:,} more rows)" if len(bad) > 1 else ""
    assert not len(bad), f"`{table}.{column}` row {bad[0]}{more}: {what}"


# -- columns ----


def _check_columns(ir: IR, name: str, table: Table) -> None:
    declared = {column.name: column for column in schema.BY_NAME[name].stored}
    assert set(table.columns) == set(declared), (
        f"`{name}` has other columns than declared: {set(table.columns) ^ set(declared)}"
    )
    for column in declared.values():
        values = table.columns[column.name]
        if values is None:
            assert column.nullable or not len(table), (
                f"`{name}.{column.name}` is absent throughout, but may not be null"
            )
            continue
        assert len(values) == len(table), f"`{name}.{column.name}` has {len(values)} rows, the table {len(table)}"
        if column.kind == "text":
            assert isinstance(values, Strings), f"`{name}.{column.name}` is no text column"
            _check_text(name, column.name, values)
        else:
            assert isinstance(values, np.ndarray), f"`{name}.{column.name}` is no array"
            _check_cells(ir, name, column, values)


def _check_text(table: str, name: str, values: Strings) -> None:
    offsets = values.offsets
    assert offsets.dtype == np.int64, f"`{table}.{name}` has offsets of {offsets.dtype}"
    assert values.data.dtype == np.uint8, f"`{table}.{name}` has data of {values.data.dtype}"
    assert offsets[0] >= 0, f"`{table}.{name}` begins before its data"
    assert offsets[-1] <= len(values.data), f"`{table}.{name}` ends after its data"
    _fail(table, name, np.diff(offsets) < 0, "the text has a negative length")
    data = values.data.tobytes()
    if not data.isascii():
        starts_inside = np.zeros(len(values), bool)
        places = np.minimum(offsets[:-1], max(len(data) - 1, 0))
        starts_inside[:] = (values.data[places] & 0xC0 == 0x80) & (np.diff(offsets) > 0)
        _fail(table, name, starts_inside, "the text starts inside a character")
        data[offsets[0] : offsets[-1]].decode()


def _check_cells(ir: IR, table: str, column: Column, values: Array) -> None:
    wanted = np.dtype(schema.DTYPES[column.kind])
    assert values.dtype == wanted, f"`{table}.{column.name}` has dtype {values.dtype}, declared is {wanted}"
    assert values.ndim == 1, f"`{table}.{column.name}` has {values.ndim} dimensions"
    if not column.nullable:
        _fail(table, column.name, values == schema.NULLS[column.kind], "the cell may not be null")
    if column.kind == "flag":
        _fail(table, column.name, (values < -1) | (values > 1), "a flag is 0, 1 or -1")
    if column.kind in ("code", "pooled"):
        size = len(ir.pools.of(column))
        _fail(
            table, column.name, (values < -1) | (values >= size), f"the number is not in `{column.of}` ({size} values)"
        )
    if column.kind == "id" and column.of is not None and not (table == "references" and column.name != "module_id"):
        size = ir.count(column.of)
        _fail(table, column.name, (values < -1) | (values >= size), f"the id is not in `{column.of}` ({size} rows)")


# -- order ----


def _check_grouping(ir: IR, name: str) -> None:
    parent = schema.BY_NAME[name].parent
    table = ir.tables[name]
    if parent is not None and len(table):
        _fail(name, parent, np.append(False, np.diff(table[parent]) < 0), "rows are not grouped by their parent")
    if name == "functions" and len(table):
        apart = np.diff(table["in_nki_functions"]) < 0
        same = np.diff(table["module_id"]) == 0
        _fail(
            name,
            "in_nki_functions",
            np.append(False, apart & same),
            "functions stand before those under `nki_functions`",
        )
    if name in _MEMBERS and len(table):
        column = _MEMBERS[name][0]
        falls = (np.diff(table[column]) < 0) & (np.diff(table["instruction_id"]) == 0)
        _fail(name, column, np.append(False, falls), "the rows of an instruction are not in the order of their members")
    if name in ("sets", "registers") and len(table):
        repeats = (np.diff(table["ordinal"]) <= 0) & (np.diff(table["function_id"]) == 0)
        _fail(name, "ordinal", np.append(False, repeats), "ordinals of a function do not rise")


def _check_blocks(ir: IR) -> None:
    blocks = ir.tables["blocks"]
    if not len(blocks):
        return
    function, queue, owner = blocks["function_id"], blocks["queue_id"], blocks["instruction_id"]
    code = blocks["owner"]
    _fail("blocks", "function_id", (function < 0) == (queue < 0), "a block is in a function or in a queue")
    _fail("blocks", "owner", (owner >= 0) != (code == _OWNERS.index("instruction")), "the owner is another")
    in_queue = (owner < 0) & (queue >= 0)
    _fail("blocks", "owner", in_queue != (code == _OWNERS.index("queue")), "the owner is another")
    modules = ir.array("blocks", "module_id").astype(np.int64)
    place = np.where(queue < 0, function, queue)
    changes = [np.diff(modules), np.diff((queue >= 0).astype(np.int8)), np.diff(place)]
    falls, tied = np.zeros(len(blocks) - 1, bool), np.ones(len(blocks) - 1, bool)
    for change in (*changes, np.diff(owner)):
        falls |= tied & (change < 0)
        tied &= change == 0
    _fail("blocks", "function_id", np.append(False, falls), "blocks do not go function by function, breadth first")
    nested = np.flatnonzero(owner >= 0)
    around = ir.tables["instructions"]["block_id"][owner[nested]]
    late = np.zeros(len(blocks), bool)
    late[nested] = around >= nested
    _fail("blocks", "instruction_id", late, "the block stands before the instruction that owns it")
    other = np.zeros(len(blocks), bool)
    other[nested] = (function[around] != function[nested]) | (queue[around] != queue[nested])
    _fail("blocks", "function_id", other, "the block is not in the function of the instruction that owns it")


# -- layouts and text ----


def _check_objects(ir: IR, name: str) -> None:
    pairs = {"layout": "extra", "nki_layout": "nki_extra", "sync_layout": "sync_extra"}
    table = ir.tables[name]
    for layout, extra in pairs.items():
        if layout not in table.columns or not len(table):
            continue
        both = np.stack([table[layout], table[extra]], 1)
        distinct, places = np.unique(both, axis=0, return_inverse=True)
        wrong = [_disagree(ir, int(a), int(b)) for a, b in distinct]
        for number, what in enumerate(wrong):
            if what:
                _fail(name, extra, places.reshape(-1) == number, what)
        if layout == "layout":
            _fail(name, layout, table[layout] < 0, "the row has no layout")


def _disagree(ir: IR, layout: int, extra: int) -> str:
    """Say how a layout and an extra disagree; empty if they do not."""
    raw = (
        [key for where, key in layouts.entries(ir.pools.layouts[layout]) if where == layouts.RAW] if layout >= 0 else []
    )
    kept = list(members_of(ir.pools.extras[extra])) if extra >= 0 else []
    if extra >= 0 and not kept:
        return "an empty object is kept as text; it must be absent"
    return "" if raw == kept else f"the layout has the raw members {raw}, the text {kept}"


def _check_references(ir: IR) -> None:
    rows = ir.tables["references"]
    counts = {name: np.zeros(ir.count(name), np.int64) for name in schema.REFERRING}
    codes, owners, targets, found = (rows[column] for column in ("table", "row", "target", "target_id"))
    known = np.isin(codes, [_CODES.index(name) for name in schema.REFERRING])
    _fail("references", "table", ~known, f"the table is none of {schema.REFERRING}")
    sizes = np.array([ir.count(name) for name in _CODES])
    _fail("references", "row", (owners < 0) | (owners >= sizes[codes]), "there is no such row")
    _fail("references", "target", targets < 0, "there is no such table")
    _fail("references", "target_id", (found < -1) | (found >= sizes[targets]), "there is no such row")
    _fail("references", "name", (found < 0) != (rows["name"] >= 0), "a name is kept exactly where it did not resolve")
    for name in schema.REFERRING:
        mine = owners[codes == _CODES.index(name)]
        np.add.at(counts[name], mine, 1)
        table = ir.tables[name]
        texts = ir.pools.extras
        distinct, places = np.unique(table["extra"], return_inverse=True)
        holes = np.array([texts[i].count(PLACEHOLDER) if i >= 0 else 0 for i in distinct.tolist()], np.int64)[places]
        _fail(
            name, "extra", holes != counts[name], "placeholders in the text and rows of `references` differ in number"
        )
    order = np.array([schema.REFERRING.index(n) if n in schema.REFERRING else -1 for n in _CODES])[codes]
    falls, tied = np.zeros(max(len(rows) - 1, 0), bool), np.ones(max(len(rows) - 1, 0), bool)
    for key in (ir.array("references", "module_id"), order, owners):
        change = np.diff(key.astype(np.int64))
        falls |= tied & (change < 0)
        tied &= change == 0
    if len(rows):
        _fail("references", "row", np.append(False, falls), "references are not grouped by module, table and row")


# -- members ----


def _check_members(ir: IR) -> None:
    """Child rows stand under members that the layout of their instruction has."""
    instructions = ir.tables["instructions"]
    opcodes = instructions["opcode"]
    for name, (column, members) in _MEMBERS.items():
        rows = ir.tables[name]
        if not len(rows):
            continue
        of = rows["instruction_id"]
        layout = instructions["sync_layout" if name == "semaphores" else "layout"]
        for code, member in members.items():
            mine = np.flatnonzero(rows[column] == code)
            _holds(ir, name, column, len(rows), mine, layout[of[mine]], (member,))
    for name, own in (("loops", ("LoopAxis", "DynamicForLoopAxis")), ("calls", ("func", "target"))):
        rows = ir.tables[name]
        of = rows["instruction_id"]
        _holds(ir, name, "instruction_id", len(rows), np.arange(len(rows)), instructions["layout"][of], own)
    called = np.isin(opcodes, (vocab.OP_NKI_KERNEL, vocab.OP_CALL))
    calls = ir.tables["calls"]
    _fail("calls", "instruction_id", ~called[calls["instruction_id"]], "the instruction is no call")
    blocks = ir.tables["blocks"]
    nested = np.flatnonzero(blocks["instruction_id"] >= 0)
    layout = instructions["layout"][blocks["instruction_id"][nested]]
    _holds(ir, "blocks", "instruction_id", len(blocks), nested, layout, ("blocks",))
    for name, parent, member in (("locations", "sets", "memorylocations"), ("aliases", "locations", "alias")):
        rows = ir.tables[name]
        of = rows[schema.BY_NAME[name].parent or ""]
        _holds(
            ir,
            name,
            "layout" if name == "locations" else "extra",
            len(rows),
            np.arange(len(rows)),
            ir.tables[parent]["layout"][of],
            (member,),
        )


def _holds(ir: IR, table: str, column: str, total: int, rows: Array, layout: Array, members: tuple[str, ...]) -> None:
    """Assert that the layouts of the owners of some rows have one of some members in child rows."""
    if not len(rows):
        return
    distinct, places = np.unique(layout, return_inverse=True)
    entries = [
        {key: where for where, key in layouts.entries(ir.pools.layouts[i])} if i >= 0 else {} for i in distinct.tolist()
    ]
    kept = np.array([any(e.get(m) in (layouts.COLUMN, layouts.PAIRS) for m in members) for e in entries])[places]
    wrong = np.zeros(total, bool)
    wrong[rows] = ~kept
    _fail(table, column, wrong, f"the owner's layout keeps no child rows under `{'`, `'.join(members)}`")
