"""Reference pages about what is held: tables with their columns, and vocabularies."""

from arrowir import schema, vocabulary
from arrowir.schema import Column

POOLED = {"names": "string", "shapes": "list of int64", "extras": "JSON text", "layouts": "layout"}
"""What readers see of pooled text, by pool."""

ABOUT_TABLES = """\
Each table is a Polars frame under its name (`ir.instructions`), an Arrow table in `ir.to_arrow()`, and a view of
`ir.sql`. Frames and views leave out columns of type *layout*, which only the JSON writer needs. *Derived* columns
are worked out from others when they are first asked for. An *id* is a row number: see the
[data model](../data-model.md)."""

ABOUT_LISTS = """\
Closed lists of BIR. Tables hold a value's *code*, its place in the list; *number* is what the compiler counts, where
that is known. A value that is not in its list is kept: it gets the next free code of the batch, and reading notes it
(`unknown_value`)."""

ABOUT_KEYS = """\
A key with `!` must be there, as far as is known; what stands behind `=` is meant where the key is absent. Keys are in
`ir.attributes(opcode)` as typed columns. Abstract opcodes are classes of others: no instruction should have one."""


def type_of(column: Column) -> str:
    """Return the type of a column as a reader wants it: what it holds, and of what."""
    if column.kind == "id" and not column.of:
        text = "id"
    elif column.kind == "id":
        text = f"id of [`{column.of}`](#{column.of})"
    elif column.kind == "code":
        text = f"code, [`{column.of}`](vocabularies.md#{column.of})" if column.of in vocabulary.VOCABULARIES else "code"
    elif column.kind == "pooled":
        text = POOLED[column.of or ""]
    else:
        text = {"int": "int64", "flag": "bool", "text": "string", "list": "list of {step, num}"}[column.kind]
    return text if column.nullable else f"{text}, never null"


def meaning_of(column: Column) -> str:
    """Return what a column means, with the JSON member that it holds."""
    text = column.meaning
    if column.key is not None and column.key != column.name:
        text += f" (member `{column.key}`)"
    if column.derived and column.name not in ("id", "module_id", "function_id"):
        text += "; *derived*"
    return text


def tables_page() -> str:
    """Return the page of all tables."""
    parts = [
        "# Tables",
        ABOUT_TABLES,
        f"Schema version {schema.SCHEMA_VERSION}.",
    ]
    for table in schema.TABLES:
        about = f"{table.meaning[0].upper()}{table.meaning[1:]}."
        if table.parent is not None:
            owner = table.column(table.parent).of
            about += f" Rows are grouped by `{table.parent}`: those of one row of [`{owner}`](#{owner}) stand together."
        if table.children:
            about += f" JSON members that other tables hold: {', '.join(f'`{c}`' for c in table.children)}."
        rows = ["| name | type | meaning |", "|---|---|---|"]
        rows += [f"| `{c.name}` | {type_of(c)} | {meaning_of(c)} |" for c in table.columns]
        parts += [f"## {table.name}", about, "\n".join(rows)]
    return "\n\n".join(parts) + "\n"


def members_table() -> str:
    """Return where the members of JSON objects stand: one row per member that a column or a table holds."""
    lines = ["| JSON object | member | where |", "|---|---|---|"]
    objects = {
        "modules": "module",
        "functions": "function",
        "queues": "queue",
        "blocks": "block",
        "instructions": "instruction",
        "operands": "operand",
        "sets": "set",
        "locations": "location",
        "registers": "register",
        "loops": "`LoopAxis`, `DynamicForLoopAxis`",
        "semaphores": "wait or update of `sync_info`",
    }
    for name, what in objects.items():
        table = schema.BY_NAME[name]
        held = [(c.key, f"`{name}.{c.name}`") for c in table.stored if c.key is not None]
        held += MORE.get(name, [])
        for number, (member, where) in enumerate(held):
            lines.append(f"| {what if number == 0 else ''} | `{member}` | {where} |")
    return "\n".join(lines)


MORE: dict[str, list[tuple[str, str]]] = {
    "modules": [
        ("functions", "rows of `functions`"),
        ("nki_functions", "rows of `functions` with `in_nki_functions`"),
        ("queues", "rows of `queues`"),
    ],
    "functions": [("allocations", "rows of `sets` and `registers`, by `Skind`"), ("blocks", "rows of `blocks`")],
    "queues": [("blocks", "rows of `blocks`")],
    "blocks": [("instructions", "rows of `instructions`")],
    "instructions": [
        ("ins", "rows of `operands`, role `in`"),
        ("indirection_ins", "rows of `operands`, role `indirection`"),
        ("outs", "rows of `operands`, role `out`"),
        ("dependencies", "rows of `dependencies`, relation `plain`"),
        ("loop_carried_dependencies", "rows of `dependencies`, relation `loop_carried`"),
        ("unroll_dependencies", "rows of `dependencies`, relation `unroll`"),
        ("sync_info", "rows of `semaphores`"),
        ("LoopAxis", "a row of `loops`"),
        ("blocks", "rows of `blocks`, owner `instruction`"),
        ("target", "a row of `branches`; of a `Call`, of `calls`"),
        ("on_true", "a row of `branches`"),
        ("on_false", "a row of `branches`"),
        ("func", "a row of `calls` (`NKIKernel`)"),
        ("func_args", "rows of `call_arguments`, direction `in`"),
        ("func_outs", "rows of `call_arguments`, direction `out`"),
        ("arguments", "rows of `call_arguments`, direction `argument` (`Call`)"),
    ],
    "operands": [
        ("memref", "`operands.location_id`, or `operands.name`"),
        ("memsetref", "`operands.set_id`, or `operands.set_name`"),
        ("regref", "`operands.register_id`, or `operands.register_name`"),
        ("ap", "`operands.pattern_id`"),
    ],
    "sets": [("memorylocations", "rows of `locations`")],
    "locations": [("dims", "`locations.partitions`, `locations.bytes`"), ("alias", "rows of `aliases`")],
    "semaphores": [
        ("wait_value, update_value", "`semaphores.value`"),
        ("from", "`semaphores.from_instruction_id`, or `semaphores.name`"),
    ],
}
"""Members that no single column holds under its own name."""


# -- vocabularies ------------------------------------------------------------------------------------------------------


def _escaped(text: object) -> str:
    return str(text).replace("|", "\\|")


def _key_text(key: vocabulary.Key) -> str:
    mark = "!" if key.required else ""
    value = str(key.default).lower() if isinstance(key.default, bool) else key.default
    default = "" if key.default is None else f" = {value}"
    return f"`{_escaped(key.name)}{mark}: {_escaped(key.type)}{_escaped(default)}`"


def _opcodes() -> str:
    lines = ["| code | number | opcode | family | keys of its own |", "|---|---|---|---|---|"]
    for code, name in enumerate(vocabulary.OPCODES.values):
        number = vocabulary.OPCODES.numbers[code]
        keys = vocabulary.opcode_keys(name)
        listed = "<br>".join(map(_key_text, keys))
        mark = " (abstract)" if code in vocabulary.ABSTRACT_OPCODES else ""
        shown = "" if number is None else number
        lines.append(f"| {code} | {shown} | `{name}`{mark} | {vocabulary.family(name) or ''} | {listed} |")
    return "\n".join(lines)


def _archs() -> str:
    lines = [
        "| name | level | also called | SBUF bytes per partition | kept from tensors | PSUM banks | bytes per bank |",
        "|---|---|---|---|---|---|---|",
    ]
    for arch in vocabulary.ARCHES:
        numbers = (arch.sbuf_bytes, arch.reserved_bytes, arch.psum_banks, arch.psum_bank_bytes)
        shown = " | ".join("no model" if n is None else f"{n:,}" for n in numbers)
        lines.append(f"| `{arch.name}` | {arch.level} | {', '.join(f'`{a}`' for a in arch.aliases)} | {shown} |")
    return "\n".join(lines)


def _values(name: str) -> str:
    listed = vocabulary.VOCABULARIES[name]
    sizes = vocabulary.DTYPE_BYTES if name == "dtype" else None
    lines = ["| code | number | value |" + (" bytes |" if sizes else ""), "|---|---|---|" + ("---|" if sizes else "")]
    for code, (value, number) in enumerate(zip(listed.values, listed.numbers, strict=True)):
        size = f" {sizes[code]} |" if sizes else ""
        lines.append(f"| {code} | {'' if number is None else number} | `{value}` |{size}")
    return "\n".join(lines)


_CODES = [c.of for t in schema.TABLES for c in t.columns if c.kind == "code" and c.of in vocabulary.VOCABULARIES]
STORED_LISTS: tuple[str, ...] = tuple(dict.fromkeys(_CODES))
"""Vocabularies of columns, in the order of the tables."""


def vocabularies_page() -> str:
    """Return the page of all vocabularies."""
    parts = [
        "# Vocabularies",
        ABOUT_LISTS,
        "## arch",
        "Architectures, lowest level first. Names are matched in exact case.",
        _archs(),
        "## opcode",
        ABOUT_KEYS,
        _opcodes(),
    ]
    others = [name for name in STORED_LISTS if name != "opcode"]
    others += [name for name in vocabulary.VOCABULARIES if name not in (*others, "opcode")]
    for name in others:
        meaning = vocabulary.VOCABULARIES[name].meaning
        parts += [f"## {name}", f"{meaning[0].upper()}{meaning[1:]}.", _values(name)]
    return "\n\n".join(parts) + "\n"
