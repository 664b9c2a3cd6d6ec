"""What becomes of the text of symbolic operands and of attributes, once for each distinct text (rules U4, U6)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from arrowir import expressions, extras, layouts
from arrowir.expressions import Compiler, Hole, Program, Rest, Template, TextWriter

NEED_UNROLL = '"need_unroll"'
"""The attribute of a function that asks for unrolling, as it stands in text."""

LOOPNEST = frozenset({"loopnest"})
NOT_ATTRIBUTES = frozenset(
    {
        "name", "opcode", "ins", "indirection_ins", "outs", "dependencies", "loop_carried_dependencies",
        "unroll_dependencies", "sync_info", "debug", "loopnest", "predicates", "blocks", "LoopAxis",
        "DynamicForLoopAxis", "func_args", "func_outs", "arguments",
    }
)  # fmt: skip
"""Members of an instruction in which expressions are not worked out (rule U6)."""


def edited_layout(text: str, added: dict[str, str], dropped: Iterable[str]) -> str:
    """Return a layout with keys added (or moved) and dropped, by the order of the keys as they were (rule F6)."""
    members = {key: where for where, key in layouts.entries(text)}
    return layouts.layout(
        [(where, key) for key, where in expressions.edited(members, added, frozenset(dropped)).items()]
    )


def instruction_template(text: str) -> Template | None:
    """Return what becomes of an instruction's text, None where nothing does."""
    if '"kind"' not in text and '"terms"' not in text and '"loopnest"' not in text:
        return None
    template = expressions.attributes(text, NOT_ATTRIBUTES, LOOPNEST)
    return template if template.changed or template.program.steps else None


@lru_cache(65536)
def addresses(text: str) -> tuple[Any, ...]:
    """Return the addresses of a symbolic operand, parsed; the text of its other members; the placeholders in that."""
    writer, first, separator, written = TextWriter(), 0, "{", []
    for key, value in extras.members(text) if text else ():
        if key == "addrs":
            written = expressions.read(value, first) or []
        elif key not in ("memref", "offset"):
            writer.put(f"{separator}{extras.dump(key)}:{value}", first)
            separator = ","
        first += value.count(extras.PLACEHOLDER)
    writer.put("{}" if separator == "{" else "}")
    rest = writer.template(Compiler(), True)
    return tuple(written if isinstance(written, list) else [written]), rest.text(()), rest.kept


def is_generic(text: str) -> bool:
    """Tell whether a symbolic operand of a generic access keeps its kind: it holds an argument of the access."""
    return expressions.holds(list(addresses(text)[0]), "IndirectArgId")


@lru_cache(65536)
def offset_program(text: str) -> Program:
    """Return what computes the offset of a symbolic operand: the sum of addresses times given strides (rule U4)."""
    compiler = Compiler()
    offset = compiler.constant(0)
    for dimension, address in enumerate(addresses(text)[0]):
        value = compiler.value(address)
        product = compiler.add("mul", value, compiler.add("given", dimension))
        offset = compiler.add("add", offset, product)
    return compiler.program((offset,))


EXTENT = -1
"""The given number that is the extent of the first dimension which a register moves."""
_DYNAMIC = "dynamic_ap_info"
_RUNTIME = (*expressions.RUNTIME_KINDS, "CCDivKind")


@dataclass(frozen=True)
class Moving:
    """What becomes of an operand whose addresses depend on axes of lowered loops."""

    template: Template
    """Its text; what is constant in the addresses is the last step that its program is asked for."""
    dimension: int
    """The first dimension that a register moves."""


def moves(text: str) -> bool:
    """Tell whether addresses depend on axes of lowered loops."""
    return expressions.LOWERED in text and expressions.holds(list(addresses(text)[0]), expressions.LOWERED)


@lru_cache(65536)
def moving(text: str, keys: tuple[str, ...]) -> Moving:
    """Return what becomes of a symbolic operand that registers move: a physical access with a dynamic offset (rule U4).

    Parameters
    ----------
    text
        Its text; axes of lowered loops are marked.
    keys
        Its members afterwards that stand in text, in order.
    """
    compiler, writer = Compiler(), TextWriter()
    offset, entries, first = compiler.constant(0), list[Any](), -1
    written = addresses(text)[0]
    for dimension, address in enumerate(written):
        folded = compiler.fold(address)
        stride = compiler.add("given", dimension)
        if any(expressions.holds(address, kind) for kind in _RUNTIME):
            folded = compiler.fail("runtime_address")
        if isinstance(folded, Rest):
            entries.append({"coef": Hole(stride), "offset_expr": folded.tree})
            first = dimension if first < 0 else first
        else:
            offset = compiler.add("add", offset, compiler.add("mul", folded.step, stride))
    where = 0 if first <= 0 else max(1, 4 - (len(written) - first))  # W, Z, Y, X: the last one is X
    extent = Hole(compiler.add("given", EXTENT))
    info = {"aff_expr": entries, "c": 0, "indirect_dim": where, "indirect_dim_max_index": extent}
    values: dict[str, tuple[str, int]] = {}
    slot = 0
    for key, value in extras.members(text):
        values[key] = value, slot
        slot += value.count(extras.PLACEHOLDER)
    for place, key in enumerate(keys):
        writer.put(f"{',' if place else '{'}{extras.dump(key)}:")
        if key == _DYNAMIC:
            writer.put_value(info)
        else:
            writer.put(*values[key])
    writer.put("}")
    writer.holes.append(offset)
    pieces = tuple("".join(parts) for parts in writer.pieces)
    return Moving(Template(compiler.program(writer.holes), pieces, tuple(writer.kept), True), first)


def moving_layout(text: str) -> str:
    """Return the layout of an operand that registers move."""
    return edited_layout(text, {"memref": "c", "offset": "c", _DYNAMIC: layouts.RAW}, ("addrs",))


def raw_keys(layout: str) -> tuple[str, ...]:
    """Return the members of a layout that stand in text."""
    return tuple(key for where, key in layouts.entries(layout) if where == layouts.RAW)


@lru_cache(65536)
def generic_template(text: str) -> Template:
    """Return what becomes of the text of an operand that keeps its kind: addresses are worked out as far as they go."""
    compiler, writer = Compiler(), TextWriter()
    first, changed = 0, False
    for place, (key, value) in enumerate(extras.members(text)):
        writer.put(f"{',' if place else '{'}{extras.dump(key)}:")
        folded = [Rest(None, False)]
        if key == "addrs":
            folded = [compiler.fold_in_place(each) for each in expressions.read(value, first) or []]
        if any(each.changed for each in folded):
            writer.put_value([each.tree for each in folded])
            changed = True
        else:
            writer.put(value, first)
        first += value.count(extras.PLACEHOLDER)
    writer.put("}")
    return writer.template(compiler, changed)


@lru_cache(65536)
def immediate(text: str) -> tuple[tuple[str, ...], Program, tuple[int, ...]]:
    """Return the values of a symbolic immediate as text, what computes which is meant, placeholders that stay."""
    values: tuple[str, ...] = ()
    expression: Any = None
    kept: list[int] = []
    first = 0
    for key, value in extras.members(text) if text else ():
        slots = value.count(extras.PLACEHOLDER)
        if key == "expr":
            expression = expressions.read(value, first)
        elif key == "value_list":
            values = tuple(_value_text(item) for item in extras.items(value)) if value.startswith("[") else ()
        elif key != "value":
            kept.extend(range(first, first + slots))
        first += slots
    compiler = Compiler()
    if any(extras.PLACEHOLDER in value for value in values):
        number = compiler.fail("bad_expression").step  # an expression among the values
    elif len(values) == 1:
        number = compiler.constant(0)
    elif expression is None:
        number = compiler.constant(-1)
    else:
        number = compiler.value(expression)
    return values, compiler.program((number,)), tuple(kept)


def _value_text(item: str) -> str:
    return dict(extras.members(item)).get("value", item) if item.startswith("{") else item


def has_blocks(text: str) -> bool:
    """Tell from a set's text whether it is a block tensor (rule U2)."""
    return '"NBlocks"' in text and extras.parse(text).get("NBlocks") is not None
