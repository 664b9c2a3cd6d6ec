"""What the text of a generic indirect access says: the form of its table, and where each index counts (rules G2, G3).

Indices are numbered from 0: first those in `ins` behind table or data, then those of `indirection_ins`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from arrowir import expressions, extras

DIMENSIONS = "WZYX"
FARTHEST = 1 << 40
"""No constant is larger than this: no location is that large."""
EXACT = 1 << 24
"""Integers up to this are exact in the float32 arithmetic of an engine."""

COUNT = "Indirect dimensions must be one less than instruction argument number"
FLATTENED = "Compiler middle end must have already flattened IndexAP to be only one AP"
ONE_ELEMENT = "GenericIndirectLoad/Save must have 1 element per partition for IndexAP"
TWO_DIMENSIONS = "indirect DMA's AddrAP should be 2D"
PARTITIONS = "Addr Tensor partition dim must match its tensor shape"

Pattern = tuple[tuple[int, int], ...]
Problem = tuple[str, str]
"""Code and message."""


class ProblemError(Exception):
    """What keeps an access from being lowered."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.problem: Problem = (code, message)


@dataclass(frozen=True)
class Instruction:
    """What an instruction's own keys say."""

    dims: tuple[Any, ...] | None
    """`indirect_dims`; None where it is no list."""
    op: str
    problem: Problem | None = None


@lru_cache(65536)
def instruction(text: str, save: bool) -> Instruction:
    """Read the text of an instruction."""
    members: dict[str, Any] = extras.parse(text) if text else {}
    dims: Any = members.get("indirect_dims") or []
    op: Any = members.get("op") or "add"
    problem = None
    if members.get("predicates"):
        problem = ("predicated_instruction", "an instruction with predicates cannot be lowered; lower them first")
    elif save and op not in ("add", "bypass"):
        problem = (
            "not_supported",
            f"`op` is {op!r:.60}; rows of an indirect save are added (`add`) or written (`bypass`)",
        )
    listed = isinstance(dims, list) and all(isinstance(each, str | int) for each in dims)
    return Instruction(tuple(dims) if listed else None, op if isinstance(op, str) else "", problem)


@dataclass(frozen=True)
class Form:
    """How a table is addressed, constants aside."""

    kind: str
    """`symbolic`: by expressions; `dynamic`: by `dynamic_ap_info`; `plain`: by `indirect_dims` alone."""
    rank: int = 0
    """Number of addresses."""
    coefficients: tuple[tuple[int, int, int], ...] = ()
    """Dimension, `arg_id`, and what the index is multiplied by there, of each term with an index."""
    stride: int | None = None
    """The stated distance of rows."""
    pattern: Pattern | None = None
    """The actual pattern, where it is another than `ap`."""
    problem: Problem | None = None


@dataclass(frozen=True)
class Table:
    """What the text of a table says."""

    form: Form
    constants: tuple[int, ...] = field(default=())
    """The constant in each address; of a dynamic access what is added to the offset."""


@lru_cache(65536)
def table(text: str, kind: str) -> Table:
    """Read the text of a table, an operand of some kind."""
    members: dict[str, Any] = {}
    first = 0
    for key, value in extras.members(text) if text else ():
        members[key] = expressions.read(value, first)
        first += value.count(extras.PLACEHOLDER)
    try:
        if members.get("memref_owner_func") is not None:
            raise ProblemError("not_supported", "the table belongs to another function; lower the access there")
        if kind == "physical_ap":
            return _physical(members)
        if kind in ("symbolic_ap", "symbolic_pwap"):
            return _symbolic(members)
        raise ProblemError(
            "not_supported", f"the table is a `{kind}`; expected an access with fixed or symbolic address"
        )
    except ProblemError as error:
        return Table(Form("plain", problem=error.problem))


def _symbolic(members: dict[str, Any]) -> Table:
    if members.get("tensor_indirect_arg_id") not in (None, -1):
        raise ProblemError(
            "not_supported", "the table has a `tensor_indirect_arg_id`; write its `addrs` with `IndirectArgId`"
        )
    written = members.get("addrs") or []
    if not isinstance(written, list):
        raise ProblemError("bad_expression", f"`addrs` is {written!r:.60}; expected a list of expressions")
    terms = [linear(each) for each in written]
    found = tuple((d, arg, n) for d, (_, by) in enumerate(terms) for arg, n in sorted(by.items()))
    return Table(Form("symbolic", len(written), found), tuple(constant for constant, _ in terms))


def _physical(members: dict[str, Any]) -> Table:
    info: Any = members.get("dynamic_ap_info")
    if info is None:
        return Table(Form("plain"))
    info = info if isinstance(info, dict) else {}
    terms: Any = info.get("aff_expr")
    term = terms[0] if isinstance(terms, list) and len(terms) == 1 else None
    index: Any = term.get("offset_expr") if isinstance(term, dict) else None
    if not isinstance(index, dict) or not isinstance(term, dict) or index.get("kind") != "IndirectArgId":
        raise ProblemError(
            "not_supported", "the dynamic offset of the table is something else than one tensor of indices"
        )
    if info.get("indirect_dim") not in (None, 0, "W"):
        raise ProblemError(
            "not_supported", f"`indirect_dim` is {info['indirect_dim']!r:.60}; expected the outermost, W"
        )
    stated, constant = term.get("coef"), info.get("c") or 0
    if not expressions.is_integer(constant) or not (stated is None or expressions.is_integer(stated)):
        raise ProblemError("bad_expression", "`c` or `coef` of the dynamic offset is no integer")
    actual = info.get("actual_ap")
    pattern = None if actual is None else tuple((int(step), int(num)) for step, num in actual)
    return Table(Form("dynamic", 1, ((0, _argument(index), 1),), stated, pattern), (_near(constant),))


def _argument(node: dict[str, Any]) -> int:
    number: Any = node.get("arg_id")
    if not expressions.is_integer(number):
        raise ProblemError("bad_expression", f"`arg_id` is {number!r:.60}; expected a number")
    return number


def _near(value: int) -> int:
    if abs(value) >= FARTHEST:
        raise ProblemError("address_out_of_bounds", f"{value} in the address of the table is larger than any location")
    return value


def linear(expression: Any) -> tuple[int, dict[int, int]]:
    """Return an expression as a constant and what each index is multiplied by.

    Raises
    ------
    ProblemError
        If it is something else.

    Examples
    --------
    >>> index = {"kind": "IndirectArgId", "arg_id": 1}
    >>> linear({"kind": "AffExprKind", "terms": [{"idx": index, "coeff": 4}], "c": 3})
    (3, {1: 4})
    """
    number = expressions.constant(expression)
    if number is not None:
        return _near(number), {}
    node: dict[str, Any] = expression if isinstance(expression, dict) else {}
    match node.get("kind"):
        case "IndirectArgId":
            return 0, {_argument(node): 1}
        case "AffExprKind":
            terms = node.get("terms") or []
            parts = [_times(linear(each.get("idx")), each.get("coeff")) for each in terms]
            return _sum([(_integer(node.get("c") or 0), {}), *parts])
        case "SumKind":
            return _sum([linear(each) for each in node.get("terms") or []])
        case "MultKind":
            return _times(linear(node.get("var")), node.get("scale"))
        case "AffIVKind" | "ShardIDKind" | "IntRuntimeValueKind" | "CCGetRankKind" | "CCDivKind":
            raise ProblemError(
                "runtime_address",
                f"the address of the table holds a `{node['kind']}`; give it a constant, or unroll first",
            )
        case kind:
            raise ProblemError("not_supported", f"an index in an expression of the kind `{kind}` cannot be lowered")


def _integer(value: Any) -> int:
    """Return a number of the text."""
    if not expressions.is_integer(value):
        raise ProblemError("bad_expression", f"{value!r:.60} in the address of the table is no integer")
    return _near(value)


def _times(term: tuple[int, dict[int, int]], factor: Any) -> tuple[int, dict[int, int]]:
    by = _integer(factor)
    return _near(term[0] * by), {arg: _near(n * by) for arg, n in term[1].items()}


def _sum(terms: Sequence[tuple[int, dict[int, int]]]) -> tuple[int, dict[int, int]]:
    by: dict[int, int] = {}
    for _, more in terms:
        for arg, n in more.items():
            by[arg] = by.get(arg, 0) + n
    return _near(sum(constant for constant, _ in terms)), by


# -- one kind of access ----


@dataclass(frozen=True)
class Case:
    """What accesses of one kind have in common; all that a row adds is a constant."""

    form: Form
    dims: tuple[Any, ...]
    ins: int
    """Indices in `ins`."""
    indirection: int
    """Indices in `indirection_ins`."""
    shape: tuple[int, ...]
    """Of the table's set."""
    pattern: Pattern
    """Of the table."""
    elements: int
    """Of the table's location."""
    indices: int
    """How many elements each operand of indices has."""
    accessed: int
    """Elements of the data that is loaded or saved."""
    wide: tuple[bool, ...]
    """For each index whether it has 64 bits."""


@dataclass(frozen=True)
class Meaning:
    """Where the rows of an access begin: ``scale * sum(steps[k] * index[k]) + sum(strides[d] * constant[d])``."""

    steps: tuple[int, ...] = ()
    scale: int = 1
    strides: tuple[int, ...] = ()
    """In elements, of each constant in the table's text."""
    problem: Problem | None = None


@lru_cache(65536)
def meaning(case: Case) -> Meaning:
    """Work out what accesses of a kind mean."""
    try:
        factors, strides, entry = _factors(case)
    except ProblemError as error:
        return Meaning(problem=error.problem)
    if case.indices * entry != case.accessed:
        text = f"{case.indices} indices mean {case.indices * entry} elements, and {case.accessed} are loaded or saved"
        return Meaning(problem=("not_supported", text))
    scale = math.gcd(*factors) or 1
    steps = tuple(factor // scale for factor in factors)
    rows = case.elements // scale
    # Engines add and multiply indices of 32 bits in float32.
    if not all(case.wide) and steps != (1,) and (min(steps) < 0 or rows > EXACT):
        text = (
            f"rows are counted up to {rows} by several indices, of which one is `int32`; beyond {EXACT} that is not "
            "exact: give the indices 64 bits"
        )
        return Meaning(problem=("not_supported", text))
    return Meaning(steps, scale, strides)


def _factors(case: Case) -> tuple[list[int], tuple[int, ...], int]:
    """Return what each index counts, in elements; what each constant counts; and how many elements each row has."""
    if case.form.kind == "symbolic":
        return _by_expressions(case)
    if case.form.kind == "dynamic":
        return _by_rows(case)
    return _by_dimensions(case)


def _by_expressions(case: Case) -> tuple[list[int], tuple[int, ...], int]:
    if case.form.rank != len(case.shape):
        text = f"the table has {case.form.rank} addresses for {len(case.shape)} dimensions"
        raise ProblemError("address_rank_mismatch", text)
    strides = tuple(math.prod(case.shape[d + 1 :]) for d in range(len(case.shape)))
    if not case.form.coefficients:
        factors, _, entry = _by_dimensions(case)
        return factors, strides, entry
    factors = [0] * (case.ins + case.indirection)
    for dimension, arg, coefficient in case.form.coefficients:
        factors[_index(case, arg)] += coefficient * strides[dimension]
    if case.pattern and case.pattern[0][1] == case.indices:
        return factors, strides, _run(case.pattern[1:])
    if math.prod(num for _, num in case.pattern) == case.indices:
        return factors, strides, 1
    raise ProblemError("not_supported", _rows(case, case.pattern))


def _rows(case: Case, pattern: Pattern) -> str:
    rows = pattern[0][1] if pattern else 0
    return f"the table's pattern has {rows} rows, and there are {case.indices} indices"


def _by_rows(case: Case) -> tuple[list[int], tuple[int, ...], int]:
    pattern = case.form.pattern or case.pattern
    if not pattern or pattern[0][1] != case.indices:
        raise ProblemError("not_supported", _rows(case, pattern))
    if case.form.stride not in (None, pattern[0][0]):
        text = f"rows are {pattern[0][0]} elements apart by the pattern, and {case.form.stride} by `coef`"
        raise ProblemError("not_supported", text)
    factors = [0] * (case.ins + case.indirection)
    factors[_index(case, case.form.coefficients[0][1])] = pattern[0][0]
    return factors, (1,), _run(pattern[1:])


def _by_dimensions(case: Case) -> tuple[list[int], tuple[int, ...], int]:
    nums = [num for _, num in case.pattern]
    inboard = [math.prod(nums[d + 1 :]) for d in range(len(nums))]
    if [step for step, _ in case.pattern] != inboard:
        raise ProblemError(
            "not_supported", "the table's elements do not lie one after the other; flatten its pattern first"
        )
    places = [_place(dim) for dim in case.dims]
    if sorted(places) != list(range(len(places))) or len(places) > len(nums):
        raise ProblemError("not_supported", f"`indirect_dims` is {list(case.dims)}; expected the outermost dimensions")
    if len(places) > 1 and len(nums) < len(DIMENSIONS):
        text = f"`indirect_dims` is {list(case.dims)}; of a pattern of {len(nums)} dimensions only W is known"
        raise ProblemError("not_supported", text)
    return [inboard[place] for place in places], (), math.prod(nums[len(places) :])


def _place(dim: Any) -> int:
    """Return the dimension that a letter or a number means, -1 for others."""
    if isinstance(dim, str):
        return DIMENSIONS.find(dim) if len(dim) == 1 else -1
    return dim if expressions.is_integer(dim) else -1


def _index(case: Case, arg: int) -> int:
    """Return the index that an `arg_id` means: a number among all inputs, or among those of `indirection_ins`."""
    by_all = arg - 1 if 1 <= arg <= case.ins + case.indirection else None
    by_list = case.ins + arg if 0 <= arg < case.indirection else None
    if by_all is None and by_list is None:
        raise ProblemError("bad_expression", f"`arg_id` {arg} names no operand of indices")
    if by_all is not None and by_list is not None and by_all != by_list:
        text = f"`arg_id` {arg} may mean two operands of indices; write them behind the others in `ins`"
        raise ProblemError("not_supported", text)
    found = by_all if by_all is not None else by_list
    assert found is not None
    return found


def _run(pattern: Pattern) -> int:
    """Return how many elements a pattern has, which must follow each other."""
    expected = 1
    for step, num in reversed(pattern):
        if num != 1 and step != expected:
            raise ProblemError("not_supported", "the elements of a row of the table do not follow each other")
        expected *= num
    return expected
