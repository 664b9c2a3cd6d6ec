"""Rules about loops whose trips are known only at run time."""

from collections.abc import Callable
from typing import Any

import numpy as np

from arrowir import extras, schema
from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.schema import NULL_INT
from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Facts, Group, distinct, found
from arrowir.verify.registry import Found, rule

_DYNAMIC = ("DynamicForLoop",)
_RUNTIME = ("DynamicForLoop", "DoWhile")


def _bounds(facts: Facts, key: str, wrong: Callable[[Any], Any]) -> Found | None:
    """Return the dynamic loops with a bound that is wrong; the answer of `wrong` is filled in as `kind`."""
    loops = facts.ir.tables["loops"]
    opcode = facts.ir.tables["instructions"]["opcode"][loops["instruction_id"]]
    numbers, texts = loops["extra"], facts.ir.pools.extras.texts
    plain = loops[key]
    kinds: list[Any] = []
    for row in np.flatnonzero(opcode == vocab.OP_DYNAMIC_FOR_LOOP).tolist():
        number = int(numbers[row])
        value: Any = extras.parse(texts[number]).get(key) if number >= 0 else None
        value = {"terms": [], "c": int(plain[row])} if plain[row] != NULL_INT else value
        kind = None if value is None else wrong(value)
        if kind is not None:
            kinds.append((row, kind))
    mask = np.zeros(len(loops), bool)
    mask[[row for row, _ in kinds]] = True
    return found("loops", mask, kind=[kind for _, kind in kinds])


def _affine(value: Any) -> bool:
    return isinstance(value, dict) and value.get("kind", "AffExprKind") == "AffExprKind"


def _kind(value: Any) -> Any:
    """Return the kind of a bound that is no affine expression."""
    return None if _affine(value) else value.get("kind") if isinstance(value, dict) else type(value).__name__


def _not_constant(value: Any) -> Any:
    return True if _affine(value) and value.get("terms") else None


def _upper(value: Any) -> Any:
    runtime = isinstance(value, dict) and value.get("kind") == "IntRuntimeValueKind"
    return None if runtime else _kind(value)


def _terms(value: Any) -> Any:
    return True if _affine(value) and len(value.get("terms") or ()) != 1 else None


def _no_runtime(value: Any) -> Any:
    terms = value.get("terms") if _affine(value) else None
    if not terms or len(terms) != 1:
        return None
    index = terms[0].get("idx") if isinstance(terms[0], dict) else None
    return None if isinstance(index, dict) and index.get("kind") == "IntRuntimeValueKind" else True


def _undefined_register(facts: Facts) -> Found | None:
    codes = schema.STRUCTURAL["table"]
    references = facts.ir.tables["references"]
    bad = (references["table"] == codes.index("loops")) & (references["target"] == codes.index("registers"))
    return found("references", bad & (references["name"] >= 0))


def _nested(group: Group) -> Found | None:
    """Return the loops that do not stand in a block of a function."""
    ir = group.facts.ir
    owner = ir.tables["blocks"]["instruction_id"][ir.tables["instructions"]["block_id"][group.rows]]
    return group.on(owner >= 0)


def _same_axis(facts: Facts) -> Found | None:
    """Return the dynamic loops whose axis has the name of that of a dynamic loop around them."""
    ir = facts.ir
    loops, instructions = ir.tables["loops"], ir.tables["instructions"]
    axis = np.full(len(instructions), -1, np.int64)
    axis[loops["instruction_id"]] = loops["axis"]
    axis[instructions["opcode"] != vocab.OP_DYNAMIC_FOR_LOOP] = -1
    parent = take(ir.tables["blocks"]["instruction_id"], instructions["block_id"])
    above = parent.copy()
    bad = np.zeros(len(axis), bool)
    while (above >= 0).any():
        bad |= (axis >= 0) & (above >= 0) & (axis == axis[np.maximum(above, 0)])
        above = np.where(above >= 0, parent[np.maximum(above, 0)], -1)
    return found("instructions", bad)


def inside(facts: Facts, opcodes: tuple[str, ...]) -> Array:
    """Return a mask of the instructions with an instruction of some opcodes around them."""
    ir = facts.ir
    parent = take(ir.tables["blocks"]["instruction_id"], ir.tables["instructions"]["block_id"])
    mine = np.zeros(len(parent), bool)
    if not facts.has(opcodes):
        return mine
    codes = [ir.pools.codes["opcode"].find(opcode) for opcode in opcodes]
    wanted = np.isin(ir.tables["instructions"]["opcode"], codes)
    above = parent
    while (above >= 0).any():
        mine |= (above >= 0) & wanted[np.maximum(above, 0)]
        above = np.where(above >= 0, parent[np.maximum(above, 0)], -1)
    return mine


def _missing_condition(group: Group) -> Found | None:
    return group.on(~group.key("cond").present)


def _condition(group: Group) -> Found | None:
    """Return the loops whose condition is no value of the run; expressions are looked at here."""
    facts = group.facts
    numbers, texts = facts.ir.tables["instructions"]["extra"][group.rows], facts.ir.pools.extras.texts
    bad = np.zeros(len(texts) + 1, bool)
    for number in distinct(numbers):
        value = extras.parse(texts[number]).get("cond")
        bad[number] = value is not None and not _is_runtime(value)
    return group.on(bad[numbers])


def _is_runtime(value: Any) -> bool:
    """Tell whether an expression is one value of the run."""
    if not isinstance(value, dict):
        return False
    if _affine(value) and len(value.get("terms") or ()) != 1:
        return False
    return value.get("kind") == "IntRuntimeValueKind" or _no_runtime(value) is None


def _legacy(group: Group) -> Found | None:
    attributes = group.facts.module_attributes()
    old = np.array([bool(a.get("loops_on_chip") or a.get("loops_in_backend")) for a in attributes], bool)
    return group.on(old[group.facts.module[group.rows]])


def _collectives(group: Group) -> Found | None:
    return group.on(inside(group.facts, ("DoWhile",))[group.rows])


_COPIES = ("DMACopy", "Load", "Save")


def _static(group: Group, *, outs: bool) -> Found | None:
    """Return the static copies in a loop of the run that touch what is no internal tensor."""
    operand = group.out(0) if outs else group.arg(0)
    looped = inside(group.facts, _RUNTIME)[group.rows]
    static = ~group.arg(0).dynamic & ~group.out(0).dynamic & group.arg(0).is_physical & group.out(0).is_physical
    bad = looped & static & (operand.tensor_kind >= 0) & (operand.tensor_kind != vocab.KIND_INTERNAL)
    return group.at(operand, bad, actual=operand.tensor_kind_text)


_CONSTANT, _TERM = "write a constant", "write one register as the bound"

RULES = [
    of("DoWhile", "BIR070", "a `DoWhile` has a condition", "add `cond`", _missing_condition, level="control_flow"),
    of("DoWhile", "BIR071", "the condition of a `DoWhile` is one value of the run", "name a register in `cond`",
       _condition, level="control_flow"),
    of("DoWhile", "BIR093", "a module with a `DoWhile` has none of the older kinds of loops",
       "remove the module's attribute", _legacy, level="control_flow"),
    of("CollectiveCompute", "BIR075", "no collective is in a `DoWhile`", "move it out of the loop", _collectives,
       level="control_flow"),
    rule("BIR135", "control_flow", "the lower bound of a dynamic loop is an affine expression", _CONSTANT,
         lambda f: _bounds(f, "lb", _kind), opcodes=_DYNAMIC),
    rule("BIR136", "control_flow", "the lower bound of a dynamic loop is constant", _CONSTANT,
         lambda f: _bounds(f, "lb", _not_constant), opcodes=_DYNAMIC),
    rule("BIR137", "control_flow", "the upper bound of a dynamic loop is affine, or a value of the run", _TERM,
         lambda f: _bounds(f, "ub", _upper), opcodes=_DYNAMIC),
    rule("BIR138", "control_flow", "the upper bound of a dynamic loop has one term", _TERM,
         lambda f: _bounds(f, "ub", _terms), opcodes=_DYNAMIC),
    rule("BIR139", "control_flow", "the upper bound of a dynamic loop is one value of the run", _TERM,
         lambda f: _bounds(f, "ub", _no_runtime), opcodes=_DYNAMIC),
    rule("BIR140", "control_flow", "the stride of a dynamic loop is an affine expression", _CONSTANT,
         lambda f: _bounds(f, "stride", _kind), opcodes=_DYNAMIC),
    rule("BIR141", "control_flow", "the stride of a dynamic loop is constant", _CONSTANT,
         lambda f: _bounds(f, "stride", _not_constant), opcodes=_DYNAMIC),
    rule("BIR148", "control_flow", "the upper bound of a dynamic loop names a register of the function",
         "add the register to the allocations", _undefined_register, opcodes=_DYNAMIC),
    of("DynamicForLoop", "BIR149", "a dynamic loop stands in a block of the function", "move it out of the block",
       _nested, level="control_flow"),
    rule("LUR005", "control_flow", "dynamic loops in each other have different axes", "rename the axis", _same_axis,
         opcodes=_DYNAMIC),
    of(_COPIES, "BIR251", "a static copy in a loop of the run reads an internal tensor",
       "copy the tensor to an internal one before the loop", lambda g: _static(g, outs=False), level="control_flow"),
    of(_COPIES, "BIR252", "a static copy in a loop of the run writes an internal tensor",
       "copy the tensor from an internal one behind the loop", lambda g: _static(g, outs=True), level="control_flow"),
]  # fmt: skip
