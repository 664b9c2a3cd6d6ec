"""What is known of operands: which elements they access, and what bits mean (rules C1, C2)."""

import json

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.passes.constants.code import Code, distinct_ids
from arrowir.passes.unrolling.loops import of_each
from arrowir.schema import NULL_INT
from arrowir.store import Array

_ONE = {
    **dict.fromkeys(("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bool"), 1),
    "float8e3": 0x30,
    "float8e4": 0x38,
    "float8_e4m3fn": 0x38,
    "float8e5": 0x3C,
    "bfloat16": 0x3F80,
    "float16": 0x3C00,
    "float32": 0x3F800000,
    "float32r": 0x3F800000,
}
"""The bit pattern of 1, for dtypes whose numbers are known."""
_SIGNED_ZERO = frozenset(name for name in _ONE if "float" in name)
_FAR = 2**40
"""Steps and numbers beyond this are no access to memory."""

SIZE = np.array([*vocab.DTYPE_BYTES, 0], np.int64)
ONE = np.array([*(_ONE.get(name, 0) for name in vocab.DTYPES.values), 0], np.uint64)
"""The bits of 1 by dtype code, 0 where they are not known."""
_MINUS_ZERO = np.array(
    [*(1 << (8 * SIZE[k] - 1) if n in _SIGNED_ZERO else 0 for k, n in enumerate(vocab.DTYPES.values)), 0], np.uint64
)


def known(dtype: Array) -> Array:
    """Return codes of dtypes, with the last place of the tables above for those that are not in the vocabulary."""
    return np.where((dtype >= 0) & (dtype < len(vocab.DTYPES)), dtype, len(vocab.DTYPES))


def is_zero(bits: Array, dtype: Array) -> Array:
    """Tell whether bits are the number 0, in a dtype whose numbers are known; -0.0 is one."""
    code = known(dtype)
    return (ONE[code] > 0) & ((bits == 0) | (bits == _MINUS_ZERO[code]))


def is_one(bits: Array, dtype: Array) -> Array:
    """Tell whether bits are the number 1, in a dtype whose numbers are known."""
    one = ONE[known(dtype)]
    return (one > 0) & (bits == one)


class Accesses:
    """Facts about the operands of some instructions, in their numbering.

    Parameters
    ----------
    code
        The instructions.
    """

    def __init__(self, code: Code) -> None:
        ir, rows = code.ir, code.operands
        operands = ir.tables["operands"]
        kind, pool = operands["kind"][rows], ir.pools.extras
        self.dtype = operands["dtype"][rows]
        moving = np.zeros(len(rows), bool)
        if operands.has("extra"):
            moving = of_each(operands["extra"][rows], len(pool), lambda i: _moves(pool[i])) > 0
        physical = kind == vocab.OPERAND_PHYSICAL_AP
        symbolic = (kind == vocab.OPERAND_SYMBOLIC_AP) | (kind == vocab.OPERAND_SYMBOLIC_PWAP)
        self.plain = (physical | symbolic) & ~moving
        """Accesses to memory at places that neither a register nor a tensor of indices says."""
        self.location = np.full(len(rows), -1, np.int64)
        fixed = physical[code.mention] & ~moving[code.mention]
        fixed &= operands["location_id"][rows][code.mention] >= 0
        self.location[code.mention[fixed]] = code.location[fixed]
        """The function's own location that a physical access of these names; -1 for other operands."""
        self._reach(code, operands["offset"][rows], operands["pattern_id"][rows])

    def _reach(self, code: Code, offset: Array, pattern: Array) -> None:
        """Find out which accesses stay inside of their location, and which cover all of it."""
        locations = code.ir.tables["locations"]
        self.inside = np.zeros(len(offset), bool)
        self.covers = np.zeros(len(offset), bool)
        at = np.flatnonzero((self.location >= 0) & (pattern >= 0) & (offset != NULL_INT))
        if not len(at):
            return
        low, high, solid = _pattern_facts(code, pattern[at])
        size = SIZE[known(self.dtype[at])]
        rows, bytes_ = locations["partitions"][self.location[at]], locations["bytes"][self.location[at]]
        sound = (size > 0) & (rows > 0) & (rows < _FAR) & (bytes_ > 0) & (bytes_ < _FAR) & (high >= low)
        sound &= (np.abs(offset[at]) < _FAR) & (bytes_ % np.maximum(size, 1) == 0)
        # Products of what is not sound may wrap: they are not looked at.
        with np.errstate(over="ignore"):
            elements = rows * (bytes_ // np.maximum(size, 1))
            first, last = offset[at] + low, offset[at] + high
        sound &= rows.astype(np.float64) * bytes_ < 2.0**62
        self.inside[at] = sound & (first >= 0) & (last < elements)
        self.covers[at] = sound & solid & (first == 0) & (last == elements - 1)


def _moves(text: str) -> int:
    """Tell from an operand's text whether something says at run time what it accesses."""
    if '"dynamic_ap_info"' not in text and "ndirect" not in text:
        return 0
    found = extras.parse(text)
    return (
        found.get("dynamic_ap_info") is not None
        or "IndirectArgId" in text
        or found.get("tensor_indirect_arg_id") not in (None, -1)
    )


def _pattern_facts(code: Code, ids: Array) -> tuple[Array, Array, Array]:
    """Return for each pattern the lowest and the highest element, and whether it has all those between them.

    The lowest is above the highest where there is none.
    """
    different, place = distinct_ids(ids)
    pool = code.ir.pools.patterns
    facts = [_extent(pool[i]) for i in different.tolist()]
    low, high, solid = (np.array(column) for column in zip(*facts, strict=True))
    return low[place], high[place], solid[place]


def _extent(text: str) -> tuple[int, int, bool]:
    """Return the lowest and highest element of a pattern, and whether it has all those between them."""
    pairs = [(step, number) for step, number in json.loads(text) if number != 1 and step != 0]
    if any(number < 1 or number > _FAR or abs(step) > _FAR for step, number in json.loads(text)):
        return 0, -1, False
    low = sum(step * (number - 1) for step, number in pairs if step < 0)
    high = sum(step * (number - 1) for step, number in pairs if step > 0)
    if high - low > _FAR:
        return 0, -1, False
    length = 1
    for step, number in sorted((abs(step), number) for step, number in pairs):
        if step > length:
            return low, high, False
        length += step * (number - 1)
    return low, high, True
