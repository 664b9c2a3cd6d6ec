"""Operands that a tensor of indices addresses: `IndirectArgId` in expressions, and accesses with dynamic offsets."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arrowir import expressions
from arrowir.diagnostics import SimulationError
from arrowir.simulate.dtypes import dtype
from arrowir.simulate.formulas import member, terms_of
from arrowir.simulate.memory import shown
from arrowir.simulate.program import PARTITIONED_KINDS, OperandCode
from arrowir.simulate.scattered import Numbers, Scattered
from arrowir.simulate.step import Operand, Step

BIAS = 1 << 32
"""What addresses of 64 bits carry."""

_FARTHEST = 1 << 40
"""No index is farther from 0 than this: no location is that large."""

_LIMIT = 1 << 62
"""No address is as far from 0 as this."""

Decode = Callable[[Operand], tuple[Numbers, NDArray[np.bool_]]]
"""Gives the indices that an operand holds, in linear order, and which of them count."""


# -- reading indices --------------------------------------------------------------------------------------------------


def plain(operand: Operand) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return indices of any integer type; negative ones are a choice."""
    values = operand.int64().reshape(-1)
    negative = values < 0
    if not negative.any():
        return values, ~negative
    met = int(values[negative][0])
    if operand.step.decide("negative_index", f"`{operand.code.title}` holds the index {met}") == "skip":
        return values, ~negative
    past = _FARTHEST if operand.dtype.size == 8 else 1 << 8 * operand.dtype.size
    return np.where(negative, values + past, values), np.ones(len(values), bool)


def biased(operand: Operand) -> tuple[Numbers, NDArray[np.bool_]]:
    """Return indices of the indirect loads and saves: int32 without sign, or of 64 bits with a bias of 2**32.

    Raises
    ------
    SimulationError
        If they are of another type.
    """
    name = operand.dtype.name
    if name not in ("int32", "int64", "uint64"):
        raise SimulationError(f"loading mem addr, which must be uint64: `{operand.code.title}` is `{name}`")
    bits = operand.read().reshape(-1)
    if name == "int32":
        values = bits.view(np.uint32).astype(np.int64)
        last = values == BIAS - 1
        if last.any() and operand.step.decide("negative_index", f"`{operand.code.title}` holds the index -1") == "skip":
            return values, ~last
        return values, np.ones(len(values), bool)
    with np.errstate(all="ignore"):
        values = (bits.view(np.uint64) - np.uint64(BIAS)).view(np.int64)
    return values, values != -1


def find_indices(step: Step, arg_id: Any) -> Operand:
    """Return the operand that an `IndirectArgId` names.

    It counts the inputs, of which number 0 is the data; where an instruction has `indirection_ins`, it may also count
    those.

    Raises
    ------
    SimulationError
        If there is none of that number.
    """
    if not expressions.is_integer(arg_id):
        raise SimulationError(f"`arg_id` is {arg_id!r:.60}; expected a number")
    every = [*step.ins, *step.indirection]
    by_all = every[arg_id] if 1 <= arg_id < len(every) else None
    by_list = step.indirection[arg_id] if 0 <= arg_id < len(step.indirection) else None
    if by_all is None and by_list is None:
        raise SimulationError(f"Requested Indirect Argument index {arg_id} out of bounds ({len(every)})")
    if by_all is None or by_list is None or by_all is by_list:
        found = by_all or by_list
        assert found is not None
        return found
    how = step.decide("indirect_argument", f"`arg_id` {arg_id} may mean {by_all.code.title} or {by_list.code.title}")
    return by_list if how == "indirection" else by_all


# -- which operands are indirect --------------------------------------------------------------------------------------


def mentions_indices(value: Any) -> bool:
    """Tell whether an expression holds an `IndirectArgId`."""
    if isinstance(value, dict):
        return value.get("kind") == "IndirectArgId" or any(map(mentions_indices, value.values()))
    return isinstance(value, list) and any(map(mentions_indices, value))


def is_indirect(code: OperandCode) -> bool:
    """Tell whether a tensor of indices addresses an operand."""
    if code.kind == "physical_ap":
        info = code.members.get("dynamic_ap_info")
        return isinstance(info, dict) and bool(
            info.get("num_tensor_indirect_indices") or mentions_indices(info.get("aff_expr"))
        )
    if code.kind in ("symbolic_ap", "symbolic_pwap"):
        return mentions_indices(code.members.get("addrs")) or _has_argument(code)
    return False


def _has_argument(code: OperandCode) -> bool:
    return code.members.get("tensor_indirect_arg_id") not in (None, -1)


# -- addresses --------------------------------------------------------------------------------------------------------


def scattered(operand: Operand, *, decode: Decode = plain, oob_is_err: bool = True) -> Scattered:
    """Return the elements that an operand means which a tensor of indices addresses.

    Parameters
    ----------
    operand
        The operand.
    decode
        How the indices are read.
    oob_is_err
        Whether an index beyond `indirect_dim_max_index` is an error; else its row is left out.
    """
    if operand.code.unresolved:
        raise SimulationError(f"`{operand.code.title}` names `{operand.code.unresolved}`, which is not there")
    if operand.kind == "physical_ap":
        return _physical(operand, decode, oob_is_err=oob_is_err)
    return _symbolic(operand, decode)


def _inner(pattern: Sequence[Sequence[int]]) -> Numbers:
    """Return what the dimensions of a pattern add to an element's number, in order."""
    reach = sum(abs(step) * num for step, num in pattern)
    if reach >= _LIMIT or math.prod(num for _, num in pattern) >= 1 << 31:
        raise SimulationError(f"the access pattern {shown([(step, num) for step, num in pattern])} is too large")
    total = np.zeros(1, np.int64)
    for step, num in pattern:
        total = (total[:, None] + np.arange(num, dtype=np.int64) * step).reshape(-1)
    return total


def times(values: Numbers, factor: Any) -> Numbers:
    """Multiply numbers of elements by an integer, after looking whether that leaves 64 bits."""
    if not expressions.is_integer(factor):
        raise SimulationError(f"{factor!r:.60} in an expression is no integer")
    largest = max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0
    if max(largest, 1) * abs(factor) >= _LIMIT:
        raise SimulationError("an address that depends on indices leaves 64 bits")
    return values * factor


def _pattern(operand: Operand, info: Mapping[str, Any]) -> Sequence[Sequence[int]]:
    actual = info.get("actual_ap")
    if actual is None:
        return operand.code.pattern
    if not isinstance(actual, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(map(expressions.is_integer, pair)) for pair in actual
    ):
        raise SimulationError(f"`actual_ap` is {actual!r:.60}; expected pairs of step and num")
    return actual


def _physical(operand: Operand, decode: Decode, *, oob_is_err: bool) -> Scattered:
    step, code = operand.step, operand.code
    info: Mapping[str, Any] = code.members["dynamic_ap_info"]
    if code.location < 0 or code.offset is None:
        raise SimulationError(f"`{code.title}` has no `memref` or no `offset`")
    term = _term(info)
    if info.get("indirect_dim") not in (None, 0, "W"):
        raise SimulationError(
            f"When using vector offset, the only supported indirectDim is 0; found {info['indirect_dim']!r}"
        )
    pattern = _pattern(operand, info)
    if not pattern:
        raise SimulationError(f"`{code.title}` has no access pattern")
    index, kept = decode(find_indices(step, term["offset_expr"].get("arg_id")))
    _check_number(info, len(index))
    start = _start(step, code.offset, info.get("c") or 0)
    memory = step.machine.touch(step.frame, code.location)
    held = dtype(code.dtype)
    if len(index) == 1 and pattern[0][1] != 1:  # one offset for all of the access
        if term.get("coef") is None:
            raise SimulationError("the offset has no `coef`, so that it is not known what it counts")
        kept = np.repeat(_in_range(operand, info, index, kept, oob_is_err=oob_is_err), pattern[0][1])
        numbers = (start + times(np.where(kept[:1], index, 0), term["coef"])) + _inner(pattern)
        return Scattered(operand, memory, held, numbers.reshape(pattern[0][1], -1), kept)
    if len(index) != pattern[0][1]:
        raise SimulationError(f"`{code.title}` has {pattern[0][1]} rows, and there are {len(index)} indices")
    kept = _in_range(operand, info, index, kept, oob_is_err=oob_is_err)
    numbers = start + times(np.where(kept, index, 0), _stride(step, pattern[0][0], term, index[kept]))
    return Scattered(operand, memory, held, numbers[:, None] + _inner(pattern[1:]), kept)


def _term(info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the one term of a dynamic offset: an operand of indices, and what they are multiplied by."""
    terms = info.get("aff_expr")
    term = terms[0] if isinstance(terms, list) and len(terms) == 1 else None
    expression = term.get("offset_expr") if isinstance(term, dict) else None
    if not isinstance(expression, dict) or expression.get("kind") != "IndirectArgId":
        raise SimulationError("Vector DGE instruction must have Indirect Arg ID as a top level expression!")
    assert isinstance(term, dict)
    return term


def _check_number(info: Mapping[str, Any], found: int) -> None:
    stated = info.get("num_tensor_indirect_indices")
    if stated and stated is not True and stated != found:
        raise SimulationError(f"`num_tensor_indirect_indices` is {stated!r:.60}, and there are {found} indices")


def _start(step: Step, offset: int, static: Any) -> int:
    if not expressions.is_integer(static):
        raise SimulationError(f"`c` is {static!r:.60}; expected an integer")
    if offset and static and step.decide("dynamic_offset", f"`offset` is {offset}, and `c` is {static}") == "static":
        return static
    if not -_FARTHEST < offset + static < _FARTHEST:
        raise SimulationError(f"the offset {offset + static} is out of bounds")
    return offset + static


def _stride(step: Step, by_pattern: int, term: Mapping[str, Any], index: Numbers) -> int:
    stated = term.get("coef")
    if stated in (None, by_pattern) or not index.any():
        return by_pattern
    what = f"rows are {by_pattern} elements apart by the pattern, and {stated!r:.60} by `coef`"
    return by_pattern if step.decide("dynamic_stride", what) == "pattern" else stated


def _in_range(
    operand: Operand, info: Mapping[str, Any], index: Numbers, kept: NDArray[np.bool_], *, oob_is_err: bool
) -> NDArray[np.bool_]:
    """Return which indices are below the stated limit."""
    limit = info.get("indirect_dim_max_index")
    if limit is None:
        limit = _FARTHEST
    elif not expressions.is_integer(limit) or limit <= 0:
        raise SimulationError(f"DynamicAPINFO::IndirectDimMaxIndex must be > 0; `{operand.code.title}` has {limit!r}")
    beyond = kept & (index >= limit)
    if beyond.any() and (oob_is_err or limit == _FARTHEST):
        raise SimulationError(
            f"Indirect index ({int(index[beyond][0])}) must be less than IndirectDimMaxIndex ({limit})"
        )
    return kept & ~beyond


def _symbolic(operand: Operand, decode: Decode) -> Scattered:
    step, code = operand.step, operand.code
    if _has_argument(code):
        raise SimulationError(f"`{code.title}` has a `tensor_indirect_arg_id`, which is not modelled")
    location = step.location_of_set(code)
    owner, placement = step.machine.program.tensor_set(code.set), step.machine.program.placement(location)
    addresses: Any = code.members.get("addrs")
    if not isinstance(addresses, list) or len(addresses) != len(owner.shape):
        found = len(addresses) if isinstance(addresses, list) else 0
        raise SimulationError(
            f"`{code.title}` has {found} addresses for the {len(owner.shape)} dimensions of `{owner.name}`"
        )
    held = dtype(code.dtype)
    strides = [math.prod(owner.shape[d + 1 :]) for d in range(len(owner.shape))]
    if placement.kind in PARTITIONED_KINDS:
        strides[0] = placement.pitch // held.size
    terms = _Terms(operand, decode)
    start: Numbers = np.zeros(1, np.int64)
    for address, stride in zip(addresses, strides, strict=True):
        start = start + times(terms.of(address), stride)
    if not code.pattern:
        raise SimulationError(f"`{code.title}` has no access pattern")
    _check_number(code.members, len(start))
    memory = step.machine.touch(step.frame, location)
    rows = code.pattern[0][1]
    if len(start) == rows:
        numbers = start[:, None] + _inner(code.pattern[1:])
    elif len(start) == math.prod(num for _, num in code.pattern):
        numbers = start[:, None]
    else:
        raise SimulationError(f"`{code.title}` has {rows} rows, and there are {len(start)} indices")
    return Scattered(operand, memory, held, numbers, terms.kept)


class _Terms:
    """Works out expressions of indices: a number for each index."""

    def __init__(self, operand: Operand, decode: Decode) -> None:
        self.operand, self.decode = operand, decode
        self.kept: NDArray[np.bool_] | None = None
        """Which rows count."""

    def of(self, value: Any) -> Numbers:
        """Return the values of an expression."""
        if not mentions_indices(value):
            return self._plain(value)
        return self._node(str(value.get("kind") if isinstance(value, dict) else None), value)

    def _plain(self, value: Any) -> Numbers:
        found = self.operand.step.evaluate(value, self.operand.code.references)
        if abs(found) >= _FARTHEST:
            raise SimulationError(f"the address {found} is out of bounds")
        return np.array([found], np.int64)

    def _node(self, kind: str, value: Mapping[str, Any]) -> Numbers:
        if kind == "IndirectArgId":
            return self._indices(member(value, "arg_id"))
        if kind == "AffExprKind":
            total = self._plain(value.get("c") or 0)
            for term in terms_of(value):
                total = total + times(self.of(member(term, "idx")), member(term, "coeff"))
            return total
        if kind == "SumKind":
            total = np.zeros(1, np.int64)
            for term in terms_of(value):
                total = total + self.of(term)
            return total
        if kind == "MultKind":
            return times(self.of(member(value, "var")), member(value, "scale"))
        if kind in ("FloorDivKind", "ModuloKind"):
            numerator, denominator = self.of(member(value, "numer")), member(value, "denom")
            if not expressions.is_integer(denominator) or not 0 < abs(denominator) < _LIMIT:
                raise SimulationError(f"an expression divides by {denominator!r:.60}")
            return numerator // denominator if kind == "FloorDivKind" else numerator % denominator
        raise SimulationError(f"an index in an expression of the kind `{kind}` is not modelled")

    def _indices(self, arg_id: Any) -> Numbers:
        index, kept = self.decode(find_indices(self.operand.step, arg_id))
        if self.kept is not None and len(self.kept) != len(kept):
            raise SimulationError(f"the index operands have {len(self.kept)} and {len(kept)} elements")
        self.kept = kept if self.kept is None else self.kept & kept
        far = kept & ((index >= _FARTHEST) | (index <= -_FARTHEST))
        if far.any():
            raise SimulationError(f"the index {int(index[far][0])} is out of bounds")
        return np.where(kept, index, 0)
