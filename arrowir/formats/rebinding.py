"""Names that would mean another row when a written file is read back (rule R7)."""

from collections.abc import Iterable

import numpy as np

from arrowir import schema
from arrowir.diagnostics import Diagnostic
from arrowir.formats import assemble, json_text
from arrowir.formats.bir_reader import BirReader
from arrowir.formats.findings import About
from arrowir.formats.json_writer import JsonWriter
from arrowir.formats.values import Wrong
from arrowir.ir import IR
from arrowir.store import Array
from arrowir_kernels import hash_names

# Every key column that a reader finds by a name: (table, column, what it points at, name where it did not resolve).
_BY_NAME = (
    ("operands", "location_id", "locations", "name"),
    ("operands", "set_id", "sets", "set_name"),
    ("operands", "register_id", "registers", "register_name"),
    ("aliases", "target_location_id", "locations", "name"),
    ("aliases", "target_set_id", "sets", "set_name"),
    ("dependencies", "on_instruction_id", "instructions", "name"),
    ("branches", "block_id", "blocks", "name"),
    ("calls", "callee_id", "functions", "name"),
    ("call_arguments", "formal_set_id", "sets", None),
    ("call_arguments", "formal_register_id", "registers", None),
    ("call_arguments", "actual_location_id", "locations", "name"),
    ("call_arguments", "actual_set_id", "sets", "name"),
    ("call_arguments", "actual_register_id", "registers", "name"),
    ("semaphores", "from_instruction_id", "instructions", "name"),
    ("references", "target_id", "", "name"),
)
_SCOPED = ("locations", "sets", "registers", "instructions", "blocks", "functions", "loops")


def rebinding_names(ir: IR, module_ids: Iterable[int] | None = None) -> list[Diagnostic]:
    """Find names in the files that would be written which, read back, mean another row than they do now.

    That can be only where names repeat, or where one did not resolve; modules of other kinds cost one pass over the
    names. The others are written and read back in memory.

    Parameters
    ----------
    ir : IR
        The batch.
    module_ids : iterable of int, optional
        The modules to look at; by default all.

    Returns
    -------
    list of Diagnostic
        Notes `rebinding_name`, one per name and function.

    Notes
    -----
    Implements rule R7.

    Examples
    --------
    >>> import arrowir as air
    >>> rebinding_names(air.read("data/samples/bir_json_example.json"))
    []
    """
    wanted = np.zeros(len(ir), bool)
    wanted[list(range(len(ir)) if module_ids is None else module_ids)] = True
    wanted &= _repeats(ir, wanted) | _has_unresolved(ir)
    found: list[Diagnostic] = []
    writer = JsonWriter(ir)
    for module in np.flatnonzero(wanted).tolist():
        found.extend(_compare(ir, writer, module))
    return found


def _modules(ir: IR, table: str, rows: Array | None = None) -> Array:
    """Return which modules have a row in a table, or one of some rows."""
    out = np.zeros(len(ir), bool)
    modules = ir.array(table, "module_id")
    out[modules if rows is None else modules[rows]] = True
    return out


def _has_unresolved(ir: IR) -> Array:
    out = np.zeros(len(ir), bool)
    for table, _, _, name in _BY_NAME:
        if name is not None and ir.tables[table].has(name):
            out |= _modules(ir, table, ir.tables[table][name] >= 0)
    return out


def _repeats(ir: IR, wanted: Array) -> Array:
    """Return which modules have a name twice in one scope, or none, of a kind that something there refers to."""
    out = np.zeros(len(ir), bool)
    targets = ir.tables["references"]["target"]
    codes = schema.STRUCTURAL["table"]
    for table in _SCOPED:
        keys = _keys(ir, table)
        ranked = np.sort(keys)
        nameless = _nameless(ir, table)
        if not (len(nameless) or (ranked[1:] == ranked[:-1]).any()):  # mostly; finding out whose takes far longer
            continue
        used = _modules(ir, "references", targets == codes.index(table))
        for source, _, of, _ in _BY_NAME:
            if of == table:
                used |= _modules(ir, source)
        modules = ir.array(table, "module_id")
        kept = np.flatnonzero((used & wanted & ~out)[modules])
        order = kept[np.argsort(keys[kept], kind="stable")]
        twice = keys[order][1:] == keys[order][:-1]
        out[modules[order[1:][twice]]] = True
        out[modules[nameless]] |= (used & wanted)[modules[nameless]]
    return out


def _nameless(ir: IR, table: str) -> Array:
    """Return the rows whose name is empty: such a one may be none, by which nothing is found."""
    if table == "loops":
        return np.empty(0, np.int64)
    return np.flatnonzero(np.diff(ir.tables[table].text().offsets) == 0)


def _scopes(ir: IR, table: str) -> Array:
    """Return what names of a table are looked up in: a function, for queues the one that their names mean."""
    if table == "functions":
        return ir.tables["functions"]["module_id"]
    functions = ir.array(table, "function_id") if table != "blocks" else ir.tables["blocks"]["function_id"]
    if len(functions) and functions.min() >= 0:
        return functions
    modules = ir.array(table, "module_id")
    return np.where(functions < 0, _main_functions(ir)[modules], functions)


def _main_functions(ir: IR) -> Array:
    """Return each module's function `main`, else its first one, else -1."""
    owner = ir.tables["functions"]["module_id"].tolist()
    names = ir.tables["functions"].text().tolist()
    found = np.full(len(ir), -1, np.int64)
    for row in range(len(names) - 1, -1, -1):
        if names[row] == "main" or found[owner[row]] < 0 or names[found[owner[row]]] != "main":
            found[owner[row]] = row
    return found


def _keys(ir: IR, table: str) -> Array:
    """Return a number per name and scope, equal for equal ones; two that share one by chance cost a look in vain."""
    scopes = _scopes(ir, table).astype(np.int64) + 1
    if table == "loops":
        return scopes << 32 | ir.tables["loops"]["axis"]
    names = ir.tables[table].text()
    keys = np.empty(len(names), np.uint64)
    hash_names(names.offsets, names.data, scopes, 0, keys)
    return keys


def _compare(ir: IR, writer: JsonWriter, module: int) -> list[Diagnostic]:
    """Write one module, read it back, and compare what names mean."""
    reader = BirReader(ir.pools)
    document = json_text.parse(writer.text(module))
    try:
        reader.read(document.value, name="", source=None, stage=None)
    except Wrong:  # a null where a name has to be: nothing to read back, which the verifier tells
        return []
    again = assemble.part_of(reader)
    begins = {table: int(places[module]) for table, places in writer.begins.items()}
    about = About(ir.tables["modules"].text()[module], module, begins, reader.texts)
    counts: dict[tuple[int, str, str], int] = {}
    for table, column, of, raw in _BY_NAME:
        first, end = (int(n) for n in writer.begins[table][module : module + 2])
        now, then = ir.tables[table][column][first:end], again.columns[table][column]
        meant = _local(ir, table, of, first, end, now, begins)
        rows = np.arange(end - first)
        if then is not None and len(then) != len(rows):  # what means nothing is written as null, which makes no row
            rows = np.flatnonzero(_means(ir, table)[first:end])
        differs = rows[meant[rows] != (-1 if then is None else then)]
        for row in differs.tolist():
            kind, name = _name_of(ir, table, column, of, raw, first + row)
            key = _function_of(ir, table, first + row, begins), kind, name
            counts[key] = counts.get(key, 0) + 1
    return [
        about.make(
            "rebinding_name",
            f"`{name}`, written {'once' if count == 1 else f'{count:,} times'} for one {kind}, means another when the"
            " file is read back, because the name repeats",
            function,
        )
        for (function, kind, name), count in counts.items()
    ]


def _means(ir: IR, table: str) -> Array:
    """Return the mask of the rows of a table that mean something, or have a name for it."""
    columns = {name for of, column, _, raw in _BY_NAME if of == table for name in (column, raw) if name is not None}
    return np.logical_or.reduce([ir.tables[table][name] >= 0 for name in sorted(columns)])


def _local(ir: IR, table: str, of: str, first: int, end: int, ids: Array, begins: dict[str, int]) -> Array:
    """Return ids as counted within the module."""
    if of:
        shift: Array | int = begins[of]
    else:
        by_code = np.array([begins.get(name, 0) for name in schema.STRUCTURAL["table"]])
        shift = by_code[ir.tables[table]["target"][first:end]]
    return np.where(ids < 0, -1, ids - shift)


def _name_of(ir: IR, table: str, column: str, of: str, raw: str | None, row: int) -> tuple[str, str]:
    """Return the kind and the name of what a reference means now, or the name as written where it means nothing."""
    rows, names = ir.tables[table], ir.pools.names
    of = of or schema.STRUCTURAL["table"][rows["target"][row]]
    kind, target = of.removesuffix("s"), int(rows[column][row])
    if target < 0:
        written = int(rows[raw][row]) if raw is not None else -1
        return kind, names[written] if written >= 0 else ""
    if of == "loops":
        return "axis", names[int(ir.tables["loops"]["axis"][target])]
    return kind, ir.tables[of].text()[target]


def _function_of(ir: IR, table: str, row: int, begins: dict[str, int]) -> int:
    """Return the function that a row is in, as counted within the module; -1 in queues."""
    if table == "references":
        rows = ir.tables["references"]
        owner = schema.STRUCTURAL["table"][rows["table"][row]]
        function = int(ir.array(owner, "function_id")[rows["row"][row]])
    else:
        function = int(ir.array(table, "function_id")[row])
    return function - begins["functions"] if function >= 0 else -1
