"""Rules about names that nothing has, and values outside of closed lists."""

from typing import Any

import numpy as np

from arrowir import extras, schema
from arrowir import vocabulary as vocab
from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Facts, Group, distinct, found
from arrowir.verify.registry import Found, rule

_CODES = schema.STRUCTURAL["table"]
_HELD = frozenset((*schema.BY_NAME["instructions"].children, "DynamicForLoopAxis"))
"""Members that stand in tables of their own."""
_TOLD = frozenset((("DoWhile", "cond"),))
"""Keys that have a rule of their own."""


def _unresolved(
    facts: Facts, table: str, column: str, mask: Array | bool = True, nameless: Array | bool = False, **fill: Any
) -> Found | None:
    """Return the rows that kept a name because nothing has it, and the `nameless`; `name` is that name, or `none`."""
    numbers = facts.ir.tables[table][column]
    texts = facts.ir.pools.names.texts
    word = fill.pop("word", "name")

    def names(rows: Array) -> list[Any]:
        return [texts[n] if n >= 0 else "none" for n in numbers[rows].tolist()]

    return found(table, ((numbers >= 0) & mask) | nameless, **{word: names}, **fill)


def _locations(facts: Facts) -> list[Found]:
    operands = facts.ir.tables["operands"]
    by_set = (operands["location_id"] < 0) & (operands["name"] < 0)
    nameless = by_set & (operands["set_id"] < 0) & (operands["set_name"] < 0) & facts.footprints.addressed
    made = [
        _unresolved(facts, "operands", "name", nameless=nameless),
        _unresolved(facts, "operands", "set_name", by_set),
    ]
    return [m for m in made if m is not None]


def _registers(facts: Facts) -> list[Found]:
    references = facts.ir.tables["references"]
    inside = references["target"] == _CODES.index("registers")
    inside &= references["table"] != _CODES.index("loops")
    empty = inside & (references["target_id"] < 0) & (references["name"] < 0)
    operands = facts.ir.tables["operands"]
    nameless = (operands["register_id"] < 0) & (operands["register_name"] < 0)
    nameless &= operands["kind"] == vocab.OPERAND_REGISTER_ACCESS
    made = [
        _unresolved(facts, "operands", "register_name", nameless=nameless),
        _unresolved(facts, "references", "name", inside, empty),
    ]
    return [m for m in made if m is not None]


def _axes(facts: Facts) -> Found | None:
    references = facts.ir.tables["references"]
    mask = references["target"] == _CODES.index("loops")
    nameless = mask & (references["target_id"] < 0) & (references["name"] < 0)
    return _unresolved(facts, "references", "name", mask, nameless, word="axis")


def _edges(facts: Facts, *, unroll: bool) -> Found | None:
    edges = facts.ir.tables["dependencies"]
    mask = (edges["relation"] == vocab.RELATION_UNROLL) == unroll
    nameless = mask & (edges["on_instruction_id"] < 0) & (edges["name"] < 0)
    return _unresolved(facts, "dependencies", "name", mask, nameless)


def _slots(facts: Facts) -> Found | None:
    branches = facts.ir.tables["branches"]
    slots, words = branches["slot"], vocab.BRANCH_SLOTS.values
    nameless = (branches["block_id"] < 0) & (branches["name"] < 0)
    return _unresolved(
        facts, "branches", "name", nameless=nameless, slot=lambda rows: [words[s] for s in slots[rows].tolist()]
    )


def _alias_targets(facts: Facts) -> Found | None:
    """Return the aliases of a location, or of a set, that is not there."""
    aliases, texts = facts.ir.tables["aliases"], facts.ir.pools.names.texts
    lost = aliases["target_location_id"] < 0
    lost_set = (aliases["target_set_id"] < 0) & (aliases["set_name"] >= 0)
    names = np.where(lost, aliases["name"], aliases["set_name"])
    return found("aliases", lost | lost_set, name=lambda rows: [_text(texts, n) for n in names[rows].tolist()])


def _text(texts: list[str], number: int) -> str:
    return texts[number] if number >= 0 else "none"


def _actuals(facts: Facts) -> Found | None:
    """Return the arguments of calls that name nothing of the caller which the parameter could be."""
    rows, texts = facts.ir.tables["call_arguments"], facts.ir.pools.names.texts
    no_tensor = (rows["actual_location_id"] < 0) & (rows["actual_set_id"] < 0)
    register = rows["actual_register_id"]
    of_tensor, of_register = rows["formal_set_id"] >= 0, rows["formal_register_id"] >= 0
    bad = (no_tensor | of_register) & ((register < 0) | of_tensor)

    def wanted(hits: Array) -> list[str]:
        kinds = np.where(of_register, 2, np.where(of_tensor, 1, 0))
        return [("tensor or register", "tensor", "register")[kind] for kind in kinds[hits].tolist()]

    def actual(hits: Array) -> list[Any]:
        named = facts.names("registers", register[hits])
        return [name or _text(texts, n) for name, n in zip(named, rows["name"][hits].tolist(), strict=True)]

    return found(
        "call_arguments",
        bad,
        formal=lambda hits: [_text(texts, n) for n in rows["formal"][hits].tolist()],
        actual=actual,
        wanted=wanted,
    )


def _called(facts: Facts) -> Found | None:
    """Return the plain calls of a function that is not there; those of kernels have a rule of their own."""
    calls = facts.ir.tables["calls"]
    plain = facts.ir.tables["instructions"]["opcode"][calls["instruction_id"]] == vocab.OP_CALL
    return _unresolved(facts, "calls", "name", plain)


def _others(facts: Facts) -> Found | None:
    """Return the references of other kinds: to locations, instructions, and owners of locations that are there."""
    references, operands = facts.ir.tables["references"], facts.ir.tables["operands"]
    target, row = references["target"], references["row"]
    lost = (references["target_id"] < 0) & ~np.isin(target, [_CODES.index(name) for name in ("registers", "loops")])
    owner = np.flatnonzero(lost & (target == _CODES.index("functions")))
    told = operands["location_id"][row[owner]] < 0  # of an unknown function no location is found: that is told
    lost[owner[told]] = False
    texts = facts.ir.pools.names.texts
    return found(
        "references",
        lost,
        key=lambda rows: [_text(texts, n) for n in references["path"][rows].tolist()],
        name=lambda rows: [_text(texts, n) for n in references["name"][rows].tolist()],
    )


# -- queues ----


def _queue(group: Group, *, only_with_queues: bool) -> Found | None:
    """Return the instructions that name a queue that their module does not have."""
    facts = group.facts
    queues = facts.ir.tables["queues"]
    module = facts.module[group.rows]
    known = {(m, name) for m, name in zip(queues["module_id"].tolist(), queues.text().tolist(), strict=True)}
    having = np.bincount(queues["module_id"], minlength=len(facts.ir)) > 0
    names = group.key("queue")
    count = len(names.values)
    pairs, place = np.unique(module.astype(np.int64) * count + names.place, return_inverse=True)
    named = [(pair // count, names.values[pair % count]) for pair in pairs.tolist()]
    bad = np.array([isinstance(name, str) and (m, name) not in known for m, name in named], bool)[place]
    if only_with_queues:
        bad &= having[module]
    return group.on(bad, queue=names.text)


_DMA = ("DMA", "Load", "Save", "DMACopy", "DMATrigger", "IndirectLoad", "IndirectSave", "IndirectSaveAccumulate")


# -- closed lists ----


def _unknown(facts: Facts, table: str, column: str, vocabulary: vocab.Vocabulary, word: str) -> Found | None:
    """Return the rows whose code is behind the closed list."""
    codes = facts.ir.tables[table][column]
    return found(table, codes >= len(vocabulary), **{word: lambda rows: facts.names(table, rows, column)})


def _kinds_of_operands(facts: Facts) -> Found | None:
    """Return the operands of a kind that is not known, or of none."""
    codes = facts.ir.tables["operands"]["kind"]
    bad = (codes < 0) | (codes >= len(vocab.OPERAND_KINDS))

    def kinds(rows: Array) -> list[Any]:
        return ["none" if kind is None else kind for kind in facts.names("operands", rows, "kind")]

    return found("operands", bad, kind=kinds)


def _dtypes(facts: Facts) -> list[Found]:
    made = [_unknown(facts, table, "dtype", vocab.DTYPES, "dtype") for table in ("operands", "sets")]
    return [m for m in made if m is not None]


def _keys(facts: Facts, *, enums: bool) -> list[Found]:
    """Return the instructions that lack a key which the compiler's reader demands."""
    made: list[Found] = []
    for opcode in facts.ir.pools.codes["opcode"].texts:
        group = facts.group(opcode)
        if not len(group):
            continue
        older = {key.name for key in vocab.opcode_keys(opcode, older=True)}
        for key in vocab.opcode_keys(opcode):
            # Files of older builds lack what those did not have.
            wanted = key.required and key.default is None and (not older or key.name in older)
            if (
                not wanted
                or key.name in _HELD
                or (opcode, key.name) in _TOLD
                or (key.type in vocab.VOCABULARIES) != enums
            ):
                continue
            absent = ~group.key(key.name).present & ~_is_null(facts, group, key.name)
            fill = {"enumType": key.type} if enums else {"name": key.name}
            if (one := group.on(absent, **fill)) is not None:
                made.append(one)
    return made


def _is_null(facts: Facts, group: Group, key: str) -> Array:
    """Return which instructions have a key as an explicit null, as files of older builds do."""
    layouts = facts.ir.tables["instructions"]["layout"][group.rows]
    texts = facts.ir.pools.layouts.texts
    known = np.zeros(len(texts) + 1, bool)
    for number in distinct(layouts):
        known[number] = f'"n{key}"' in texts[number]
    return known[layouts]


def _values(facts: Facts) -> list[Found]:
    """Return the instructions with a value that the list of their key does not have."""
    made: list[Found] = []
    for opcode in facts.ir.pools.codes["opcode"].texts:
        group = facts.group(opcode)
        if not len(group):
            continue
        every = {key.name: key for older in (True, False) for key in vocab.opcode_keys(opcode, older=older)}
        for key in every.values():
            known = vocab.VOCABULARIES.get(key.type)
            if known is None:
                continue
            held = group.key(key.name)
            bad = held.test(lambda value, known=known: isinstance(value, str) and known.code(value) < 0)
            if (one := group.on(bad, enumVal=held.text, fieldName=key.name)) is not None:
                made.append(one)
    return made


_FLOATS_WITHOUT = ("float8e3", "float8e4", "float8_e4m3fn", "float8_e8m0fnu", "float8e5", "float4_e2m1fn_x4",
                   "float8_e4m3fn_x4", "float8_e5m2_x4", "float32r")  # fmt: skip


def _immediates(facts: Facts, kind: int) -> Found | None:
    operands = facts.ir.tables["operands"]
    codes = [vocab.DTYPES.code(name) for name in _FLOATS_WITHOUT]
    bad = (operands["kind"] == kind) & np.isin(operands["dtype"], codes)
    return found("operands", bad, dtype=lambda rows: facts.names("operands", rows, "dtype"))


# -- expressions ----


def _kinds(value: Any) -> list[str]:
    """Return the kinds of nodes of an expression that are not known."""
    if isinstance(value, list):
        return [kind for item in value for kind in _kinds(item)]
    if not isinstance(value, dict):
        return []
    inner = [kind for item in value.values() for kind in _kinds(item)]
    kind = value.get("kind")
    unknown = isinstance(kind, str) and vocab.EXPRESSION_KINDS.code(kind) < 0
    return [kind, *inner] if unknown and isinstance(kind, str) else inner


def _expressions(facts: Facts) -> Found | None:
    """Return the operands whose address has a node of an unknown kind."""
    numbers, texts = facts.ir.tables["operands"]["extra"], facts.ir.pools.extras.texts
    bad: dict[int, str] = {}
    for number in distinct(numbers):
        if '"kind"' in texts[number]:
            value = extras.parse(texts[number])
            parts = (value.get("addrs"), value.get("expr"), value.get("dynamic_ap_info"))
            if kinds := _kinds(list(parts)):
                bad[number] = kinds[0]
    mask = np.isin(numbers, list(bad))
    return found("operands", mask, kind=lambda rows: [bad[n] for n in numbers[rows].tolist()])


def _argument_ids(value: Any) -> list[int]:
    if isinstance(value, list):
        return [n for item in value for n in _argument_ids(item)]
    if not isinstance(value, dict):
        return []
    mine = value.get("arg_id") if value.get("kind") == "IndirectArgId" else None
    own = [mine] if isinstance(mine, int) and not isinstance(mine, bool) else []
    return own + [n for item in value.values() for n in _argument_ids(item)]


def _indirect_arguments(facts: Facts) -> Found | None:
    """Return the operands whose indices no operand of the instruction holds."""
    ids = facts.measure("operands", lambda value: 1 + max(_argument_ids(value), default=-1), '"IndirectArgId"') - 1
    low = facts.measure("operands", lambda value: min([0, *_argument_ids(value)]), '"IndirectArgId"')
    owner = facts.ir.tables["operands"]["instruction_id"]
    _, ins, inner, _ = facts.counts
    bad = (ids >= np.maximum(ins[owner] + inner[owner], 1)) | (low < 0)
    return found(
        "operands",
        bad,
        argId=np.where(low < 0, low, ids),
        parent=lambda rows: facts.names("instructions", owner[rows]),
        location=lambda rows: facts.names("locations", facts.footprints.location[rows]),
        additionalInfo="",
    )


def _max_index(facts: Facts) -> Found | None:
    def wrong(value: Any) -> bool:
        info = value.get("dynamic_ap_info")
        most = info.get("indirect_dim_max_index") if isinstance(info, dict) else None
        return isinstance(most, int) and not isinstance(most, bool) and most <= 0

    return found("operands", facts.test("operands", wrong, '"indirect_dim_max_index"'))


RULES = [
    rule("BIR036", "references", "an operand names a location, or else a set, of its function",
         "add the memory location, or correct `memref` or `memsetref`", _locations),
    rule("BIR016", "references", "an operand, or an expression in it, names a register of its function",
         "add the register to the allocations, or correct the name", _registers, same=("BIR017",)),
    rule("BIR014", "references", "a dependency names an instruction of the function",
         "remove the dependency, or correct the name", lambda f: _edges(f, unroll=False)),
    rule("BIR048", "references", "an unroll dependency names an instruction of the function",
         "remove the dependency, or correct the name", lambda f: _edges(f, unroll=True),
         text="Cannot find unrolled dependency (`{name}`)"),
    rule("BIR227", "references", "an axis in an expression is that of a loop around it",
         "use the name of a loop around the instruction", _axes),
    rule("unresolved_block", "references", "a branch names a block in its list of blocks, or in a list around it",
         "add the block, or correct the branch", _slots, text="{slot} && BasicBlock does not exist! (`{name}`)"),
    rule("unresolved_alias", "references", "an alias names a location of the function",
         "add the memory location, or remove the alias", _alias_targets, text="Unknown alias destination (`{name}`)"),
    rule("unresolved_argument", "references", "an argument of a call names a tensor or register of the caller",
         "add what it names to the caller, or correct the entry", _actuals,
         text="the argument `{formal}` is bound to `{actual}`, and the caller has no such {wanted}"),
    rule("unresolved_callee", "references", "a `Call` names a function of the module",
         "add the function, or correct `target`", _called, severity="warning",
         text="there is no function `{name}`"),
    rule("unresolved_reference", "references", "what a pointer, a branch or an owner of a location names is there",
         "add what it names, or correct the name", _others, text="`{key}` names `{name}`, and there is no such thing"),
    of(_DMA, "unresolved_queue", "a DMA names a queue of its module, if the module has queues",
       "add the queue, or correct `queue`", lambda g: _queue(g, only_with_queues=True), level="references",
       text="Queue does not exist! (`{queue}`)"),
    of("SwitchQueueInstance", "SQI002", "the queue that is switched is one of the module",
       "add the queue, or correct `queue`", lambda g: _queue(g, only_with_queues=False), level="references",
       text="SQI switches to a queue that does not exist (`{queue}`)"),
    of("ResetQueueInstance", "SQI005", "the queue that is reset is one of the module",
       "add the queue, or correct `queue`", lambda g: _queue(g, only_with_queues=False), level="references",
       text="RQI resets to a queue that does not exist (`{queue}`)"),
    rule("BIR298", "references", "an indirect access counts an input or index operand of its instruction",
         "correct `arg_id`, or add the operand that holds the indices", _indirect_arguments, same=("BIR406", "BIR407")),
    rule("BIR091", "structure", "the kind of an operand is a known one", "correct `kind`", _kinds_of_operands,
         text="Unknown ArgumentKind (`{kind}`)"),
    rule("BIR024", "structure", "the dtype of an operand or a set is a known one", "correct `dtype`", _dtypes),
    rule("BIR015", "structure", "the keys that an opcode cannot do without are there", "add the key",
         lambda f: _keys(f, enums=False)),
    rule("BIR532", "structure", "the enums that an opcode cannot do without are there", "add the key",
         lambda f: _keys(f, enums=True)),
    rule("BIR533", "structure", "the value of an enum is one of its list", "correct the value", _values),
    rule("BIR115", "structure", "an immediate has a dtype that immediates can have",
         "use an integer type, float16, bfloat16 or float32", lambda f: _immediates(f, vocab.OPERAND_IMM_VALUE),
         same=("BIR114", "BIR116", "BIR117")),
    rule("BIR118", "structure", "a symbolic immediate has a dtype that immediates can have",
         "use an integer type, float16, bfloat16 or float32",
         lambda f: _immediates(f, vocab.OPERAND_SYMBOLIC_IMM_VALUE), same=("BIR119",)),
    rule("BIR120", "structure", "an array of immediates has a dtype that immediates can have",
         "use an integer type, float16, bfloat16 or float32", lambda f: _immediates(f, vocab.OPERAND_IMM_ARRAY),
         same=("BIR121",)),
    rule("BIR132", "structure", "every node of an address is of a known kind", "correct `kind` in the expression",
         _expressions, same=("IBIR356",)),
    rule("BIR030", "structure", "the bound of an index is above 0", "correct `indirect_dim_max_index`", _max_index),
]  # fmt: skip
