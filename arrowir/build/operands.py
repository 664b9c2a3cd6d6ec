"""What instructions are built of: affine expressions, registers, tensors and accesses to them, immediates."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from arrowir import arguments, vocabulary
from arrowir.diagnostics import OptionError

Json: TypeAlias = dict[str, Any]
Pattern: TypeAlias = Sequence[Sequence[int]]


def record(members: Mapping[str, Any]) -> Json:
    """Return the members that have a value, in the compiler's order."""
    return {key: members[key] for key in sorted(members) if members[key] is not None}


def _item_bytes(dtype: str) -> int:
    arguments.text(dtype, "a dtype")
    code = vocabulary.DTYPES.code(dtype)
    if code < 0:
        known = ", ".join(vocabulary.DTYPES.values)
        raise OptionError(f"`{dtype}` is no dtype; use one of {known}")
    return vocabulary.DTYPE_BYTES[code]


class Expression:
    """An affine expression over loop axes, registers and the shard id: the result of ``2 * i + 1``.

    Axes come from `Body.loop`, registers from `FunctionBuilder.register` (as `Register.value`), the shard id from
    `shard_id`. Supported are ``+``, ``-``, multiplication by an integer, and ``//`` and ``%`` by an integer.

    Examples
    --------
    >>> Expression.axis("i").json()
    {'c': 0, 'kind': 'AffExprKind', 'terms': [{'coeff': 1, 'idx': {'axis': 'i', 'kind': 'AffIVKind'}}]}
    >>> (Expression.axis("i") // 4 + 1).json()["kind"]
    'SumKind'
    """

    def __init__(self, terms: Iterable[tuple[Json, int]] = (), c: int = 0) -> None:
        self.terms, self.c = tuple(terms), c

    @classmethod
    def axis(cls, name: str) -> "Expression":
        """Return the value of a loop axis."""
        return cls([({"axis": name, "kind": "AffIVKind"}, 1)])

    @classmethod
    def of(cls, value: "Expression | int") -> "Expression":
        """Return an integer as an expression, and an expression as it is."""
        return value if isinstance(value, Expression) else cls(c=value)

    def json(self) -> Json:
        """Return the expression in version 2 form."""
        leaves = [term for term in self.terms if term[0]["kind"] in _LEAVES]
        others = [term for term in self.terms if term[0]["kind"] not in _LEAVES]
        affine: Json = {
            "c": self.c,
            "kind": "AffExprKind",
            "terms": [{"coeff": coefficient, "idx": leaf} for leaf, coefficient in leaves],
        }
        if not others:
            return affine
        parts = [v if n == 1 else {"kind": "MultKind", "scale": n, "var": v} for v, n in others]
        if leaves or self.c:
            parts.append(affine)
        return parts[0] if len(parts) == 1 else {"kind": "SumKind", "n_terms": len(parts), "terms": parts}

    def __add__(self, other: "Expression | int") -> "Expression":
        other = Expression.of(other)
        return Expression(self.terms + other.terms, self.c + other.c)

    __radd__ = __add__

    def __mul__(self, factor: int) -> "Expression":
        return Expression([(leaf, n * factor) for leaf, n in self.terms], self.c * factor)

    __rmul__ = __mul__

    def __neg__(self) -> "Expression":
        return self * -1

    def __sub__(self, other: "Expression | int") -> "Expression":
        return self + -Expression.of(other)

    def __rsub__(self, other: int) -> "Expression":
        return -self + other

    def __floordiv__(self, divisor: int) -> "Expression":
        return Expression([({"denom": divisor, "kind": "FloorDivKind", "numer": self.json()}, 1)])

    def __mod__(self, divisor: int) -> "Expression":
        return Expression([({"denom": divisor, "kind": "ModuloKind", "numer": self.json()}, 1)])


_LEAVES = ("AffIVKind", "ShardIDKind", "IntRuntimeValueKind")


def shard_id(ub: int) -> Expression:
    """Return the number of the shard, below `ub`, as an expression."""
    return Expression([({"kind": "ShardIDKind", "ub": ub}, 1)])


@dataclass(frozen=True)
class Register:
    """A register of a function; as an operand it is a `register_access`."""

    name: str

    @property
    def value(self) -> Expression:
        """What it holds at run time, for use in an expression."""
        return Expression([({"kind": "IntRuntimeValueKind", "regref": self.name}, 1)])

    def access(self, dtype: str = "int32") -> Json:
        """Return an operand that reads or writes it."""
        return {"dtype": dtype, "kind": "register_access", "regref": self.name}


@dataclass(frozen=True)
class Tensor:
    """A memory location in a set of its own; as an operand it is an access to all of it.

    A slice of it is an access to a part: one index or slice for each dimension of its shape; the last ones may be
    left out.

    Examples
    --------
    >>> from arrowir import build
    >>> tile = build.module().function().sb("tile", [128, 512])
    >>> tile.access()["ap"], tile[32:64, ::2]["ap"], tile[32:64, ::2]["offset"]
    ([[512, 128], [1, 512]], [[512, 32], [2, 256]], 16384)
    """

    name: str
    set_name: str
    memory: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        """Bytes per partition."""
        return math.prod(self.shape[1:]) * _item_bytes(self.dtype)

    def access(self, pattern: Pattern | None = None, offset: int = 0, dtype: str | None = None, **members: Any) -> Json:
        """Return an operand that accesses it (`physical_ap`).

        Parameters
        ----------
        pattern
            Pairs of step and num, partitions first, in elements of `dtype`; the whole tensor by default.
        offset
            The first element.
        dtype
            The type by which it is accessed; its own by default.
        members
            Further members, `dynamic_ap_info` for instance.
        """
        dtype = dtype or self.dtype
        return record(
            {
                "ap": self._pattern(pattern, dtype),
                "dtype": dtype,
                "kind": "physical_ap",
                "memref": self.name,
                "memsetref": self.set_name,
                "offset": offset,
                **plain(members),
            }
        )

    def at(
        self, *addrs: Expression | int, pattern: Pattern | None = None, dtype: str | None = None, **members: Any
    ) -> Json:
        """Return an operand with a symbolic address (`symbolic_ap`): one expression per dimension of the shape."""
        dtype = dtype or self.dtype
        return record(
            {
                "addrs": [Expression.of(address).json() for address in addrs],
                "ap": self._pattern(pattern, dtype),
                "dtype": dtype,
                "kind": "symbolic_ap",
                "memsetref": self.set_name,
                **plain(members),
            }
        )

    def via(self, register: Register, pattern: Pattern | None = None, dtype: str | None = None, **members: Any) -> Json:
        """Return an operand whose address stands in a register (`register_ap`)."""
        arguments.typed(register, Register, "`via`", "a register")
        dtype = dtype or self.dtype
        return record(
            {
                "ap": self._pattern(pattern, dtype),
                "dtype": dtype,
                "kind": "register_ap",
                "memsetref": self.set_name,
                "regref": register.name,
                **plain(members),
            }
        )

    def _pattern(self, pattern: Pattern | None, dtype: str) -> list[list[int]]:
        if pattern is not None:
            takes = "pairs of step and num"
            return [
                arguments.listed(pair, "a pattern", takes) for pair in arguments.listed(pattern, "a pattern", takes)
            ]
        pitch = self.bytes // _item_bytes(dtype)
        return [[pitch, self.shape[0]], [1, pitch]]

    def __getitem__(self, key: "int | slice | tuple[int | slice, ...]") -> Json:
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > len(self.shape):
            raise OptionError(f"`{self.name}` has {len(self.shape)} dimensions, it was given {len(keys)} indices")
        pattern: list[list[int]] = []
        offset = 0
        for place, extent in enumerate(self.shape):
            k: Any = keys[place] if place < len(keys) else slice(None)
            if any(
                type(n) is not int for n in ((k.start or 0, k.stop or 0, k.step or 1) if isinstance(k, slice) else (k,))
            ):
                raise arguments.wrong(f"index {place} of `{self.name}`", "an integer or a slice of integers", k)
            chosen = range(extent)[k] if isinstance(k, slice) else range(extent)[k % extent : k % extent + 1]
            if not chosen or not (isinstance(k, slice) or -extent <= k < extent):
                raise OptionError(f"index {place} of `{self.name}` is outside of its {extent} elements")
            step = math.prod(self.shape[place + 1 :])
            pattern.append([step * chosen.step, len(chosen)])
            offset += step * chosen[0]
        return self.access(pattern if len(pattern) > 1 else [*pattern, [1, 1]], offset)


@dataclass(frozen=True)
class Instruction:
    """An instruction that was added; `members` is its JSON object, which may still be changed."""

    name: str
    members: Json


class Axis(Expression):
    """The value of a loop's induction variable; `instruction` is the loop."""

    def __init__(self, name: str, instruction: Instruction) -> None:
        super().__init__(Expression.axis(name).terms)
        self.name, self.instruction = name, instruction


class Named(Protocol):
    """Anything with a name: tensors, registers, instructions, functions."""

    @property
    def name(self) -> str:
        """The name."""
        ...


Operand: TypeAlias = Tensor | Register | Mapping[str, Any] | int | float
Target: TypeAlias = str | Named
Edge: TypeAlias = Target | Sequence[Any]


def imm(value: float | Sequence[float], dtype: str | None = None) -> Json:
    """Return an immediate operand: `imm_value`, or `imm_array` for a sequence.

    Parameters
    ----------
    value
        The value.
    dtype
        By default `int32` for integers, `float32` otherwise.

    Examples
    --------
    >>> imm(3)
    {'dtype': 'int32', 'kind': 'imm_value', 'value': 3}
    """
    values = list(value) if isinstance(value, Sequence) else [value]
    dtype = dtype or ("int32" if all(isinstance(v, int) for v in values) else "float32")
    if isinstance(value, Sequence):
        return {"dtype": dtype, "kind": "imm_array", "value_array": values}
    return {"dtype": dtype, "kind": "imm_value", "value": value}


def operand(value: Operand) -> Json:
    """Return the JSON object of an operand."""
    if isinstance(value, Tensor | Register):
        return value.access()
    return dict(value) if isinstance(value, Mapping) else imm(value)


def name_of(value: Target) -> str:
    """Return the name of a thing, and a name as it is."""
    name = getattr(value, "name", value)
    return arguments.typed(name, str, "a reference", "a name, or something that has one")


def edge(entry: Edge) -> Any:
    """Return an edge: a bare name, or the list that begins with one."""
    if isinstance(entry, Sequence) and not isinstance(entry, str):
        if not entry:
            raise arguments.wrong("an edge", "a name, or a list that begins with one", entry)
        return [name_of(entry[0]), *plain(entry[1:])]
    return name_of(entry)


def plain(value: Any) -> Any:
    """Replace expressions by their JSON, at any depth."""
    if isinstance(value, Expression):
        return value.json()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
