"""What a handler works with: one execution of an instruction, and its operands."""

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from arrowir import expressions
from arrowir.diagnostics import SimulationError
from arrowir.exact import LARGEST, SMALLEST
from arrowir.simulate import dtypes
from arrowir.simulate.alu import Numbers
from arrowir.simulate.dtypes import F32, Dtype, dtype
from arrowir.simulate.formulas import Formula, formula, member
from arrowir.simulate.frames import Frame, Register
from arrowir.simulate.memory import Access, CrossingError, reads_after_write
from arrowir.simulate.program import PARTITIONED_KINDS, Code, OperandCode, Reference
from arrowir.simulate.readings import READINGS
from arrowir.simulate.registry import declared_keys
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.simulate.machine import Machine

ADDRESSED = frozenset(("physical_ap", "symbolic_ap", "symbolic_pwap", "register_ap"))
"""Kinds of operands that lie in memory."""
_KEPT = 100_000
"""Accesses of a frame that are kept for when their offset occurs again."""


class Step:
    """One execution of an instruction: what a handler is given."""

    __slots__ = ("__dict__", "code", "frame", "machine", "unwritten")

    def __init__(self, machine: "Machine", frame: Frame, code: Code) -> None:
        self.machine, self.frame, self.code = machine, frame, code
        self.unwritten: NDArray[np.bool_] | None = None
        """Elements, in linear order, that depend on unwritten memory."""
        self.elementwise = code.handler.elementwise
        """Whether unwritten elements that may be read give unwritten elements; a handler may decide it by itself."""

    @cached_property
    def ins(self) -> "list[Operand]":
        """The inputs, immediates included."""
        return [Operand(self, code) for code in self.code.ins]

    @cached_property
    def outs(self) -> "list[Operand]":
        """The outputs."""
        return [Operand(self, code) for code in self.code.outs]

    @cached_property
    def indirection(self) -> "list[Operand]":
        """The index operands (`indirection_ins`)."""
        return [Operand(self, code) for code in self.code.indirection]

    @property
    def out(self) -> "Operand":
        """The first output."""
        return self.outs[0]

    @property
    def opcode(self) -> str:
        """The opcode as files spell it."""
        return self.code.opcode

    # -- keys ---------------------------------------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Tell whether the instruction has a key, with a value other than null."""
        return self.code.members.get(key) is not None

    def attribute(self, key: str) -> Any:
        """Return the value of an op-specific key; expressions in it are worked out.

        An absent key has its declared default; `SimulationError` when it has none.
        """
        value = self.code.members.get(key)
        if value is None:
            value = declared_keys(self.opcode).get(key)
            if value is None:
                raise SimulationError(f"the key `{key}` is missing")
            return value
        return self._evaluated(value) if isinstance(value, dict | list) else value

    def _evaluated(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._evaluated(item) for item in value]
        if expressions.is_expression(value):
            return self.frame.evaluate(value, self.code.references)
        return value

    def integer(self, key: str, *, highest: int = LARGEST) -> int:
        """Return an integer key, of 64 bits with a sign unless `highest` says otherwise."""
        value = self.attribute(key)
        if not expressions.is_integer(value) or not SMALLEST <= value <= highest:
            raise SimulationError(f"`{key}` is {value!r:.60}; expected an integer of 64 bits")
        return value

    def number(self, key: str) -> float:
        """Return a key that is a number, which may be spelled `inf`, `-inf` or `nan`."""
        return dtypes.number(self.attribute(key), f"`{key}`")

    def flag(self, key: str) -> bool:
        """Return a key that is a boolean; 0 and 1, which an expression may give, count as one."""
        value = self.attribute(key)
        if value not in (False, True):
            raise SimulationError(f"`{key}` is {value!r:.60}; expected a boolean")
        return bool(value)

    def word(self, key: str) -> str:
        """Return a key of a closed vocabulary."""
        value = self.attribute(key)
        if not isinstance(value, str):
            raise SimulationError(f"`{key}` is {value!r:.60}; expected a word")
        return value

    def integers(self, key: str) -> list[int]:
        """Return a key that is a list of integers."""
        value = self.attribute(key)
        if not isinstance(value, list | tuple) or not all(
            expressions.is_integer(item) and SMALLEST <= item <= LARGEST for item in value
        ):
            raise SimulationError(f"`{key}` is {value!r:.60}; expected a list of integers")
        return list(value)

    # -- choices ------------------------------------------------------------------------------------------------------

    def decide(self, reading: str, met: str) -> str:
        """Return the chosen reading of an undecided case.

        Parameters
        ----------
        reading
            A name in `READINGS`.
        met
            What was met, for the message.

        Raises
        ------
        SimulationError
            If none is chosen.
        """
        chosen = self.machine.readings.get(reading)
        if chosen is None:
            known = " or ".join(f'"{choice}"' for choice in READINGS[reading].choices)
            raise SimulationError(f"undecided: {met}; choose `readings={{'{reading}': {known}}}`")
        return chosen

    # -- memory -------------------------------------------------------------------------------------------------------

    def access(self, code: OperandCode) -> Access:
        """Return the access that an operand in memory means now."""
        found = self.frame.accesses.get(code.row)
        if found is None:
            found = self._access(code)
        return found

    def _access(self, code: OperandCode) -> Access:
        if code.unresolved:
            raise SimulationError(f"`{code.title}` names `{code.unresolved}`, which is not there")
        location, offset, fixed = self._place(code)
        known = self.frame.moving.get((code.row, offset))
        if known is not None:
            return known
        memory = self.machine.touch(self.frame, location)
        kind = dtype(code.dtype)
        try:
            made = Access(memory, kind, offset, code.pattern)
        except CrossingError as error:
            self.decide("partition_crossing", error.reason)
            made = Access(memory, kind, offset, code.pattern, linear=True)
        if fixed:
            self.frame.accesses[code.row] = made
        else:
            if len(self.frame.moving) >= _KEPT:
                self.frame.moving.clear()
            self.frame.moving[code.row, offset] = made
        return made

    def _place(self, code: OperandCode) -> tuple[int, int, bool]:
        """Return location and offset of an operand, and whether they are the same each time."""
        if code.kind == "physical_ap":
            if code.location < 0 or code.offset is None:
                raise SimulationError(f"`{code.title}` has no `memref` or no `offset`")
            dynamic = code.members.get("dynamic_ap_info")
            if dynamic is None:
                return code.location, code.offset, True
            if not isinstance(dynamic, dict):
                raise SimulationError(f"`dynamic_ap_info` of `{code.title}` is {dynamic!r:.60}; expected an object")
            return code.location, code.offset + self._dynamic_offset(code, dynamic), False
        location = self.location_of_set(code)
        if code.kind == "register_ap":
            return location, self._register_offset(code, location), False
        return location, self._symbolic_offset(code, location), not code.references

    def location_of_set(self, code: OperandCode) -> int:
        """Return the one location of the set that an operand names."""
        if code.set < 0:
            raise SimulationError(f"`{code.title}` has no `memsetref`")
        owner = self.machine.program.tensor_set(code.set)
        if len(owner.locations) != 1:
            raise SimulationError(f"the set `{owner.name}` has {len(owner.locations)} locations, expected one")
        return owner.locations[0]

    def _symbolic_offset(self, code: OperandCode, location: int) -> int:
        """Work out an address of expressions (rule U4)."""
        formulas = self.machine.program.formulas
        terms = formulas.get(code.row)
        if terms is None:
            terms = formulas[code.row] = self._address(code, location)
        return sum(term(self.frame) * stride for term, stride in terms)

    def _address(self, code: OperandCode, location: int) -> list[tuple[Formula, int]]:
        """Return the addresses of a symbolic operand, each with its stride."""
        program = self.machine.program
        owner, placement = program.tensor_set(code.set), program.placement(location)
        addresses: Any = code.members.get("addrs") or []
        if not isinstance(addresses, list):
            raise SimulationError(f"`addrs` of `{code.title}` is {addresses!r:.60}; expected a list")
        if len(addresses) != len(owner.shape):
            raise SimulationError(
                f"`{code.title}` has {len(addresses)} addresses for the {len(owner.shape)} dimensions of `{owner.name}`"
            )
        strides = [math.prod(owner.shape[d + 1 :]) for d in range(len(owner.shape))]
        if strides and placement.kind in PARTITIONED_KINDS:
            strides[0] = placement.pitch // dtype(code.dtype).size
        return [(formula(a, code.references), s) for a, s in zip(addresses, strides, strict=True)]

    def _register_offset(self, code: OperandCode, location: int) -> int:
        """Work out the offset of an operand whose address stands in a register."""
        members = code.members
        if members.get("reg_sub_tensor_id") is not None or members.get("const_sub_tensor_id") not in (None, -1):
            raise SimulationError(f"`{code.title}` chooses a location by a sub-tensor number, which is not modelled")
        if code.register < 0:
            raise SimulationError(f"`{code.title}` has no `regref`")
        value = self.frame.register(code.register).read()
        offset = whole(members.get("const_ap_offset") or 0, "`const_ap_offset`")
        if members.get("reg_ap_offset") is not None:
            found = [r for r in code.references if r.table == "registers" and r.row >= 0]
            if len(found) != 1:
                raise SimulationError(f"`reg_ap_offset` of `{code.title}` names {len(found)} registers; expected one")
            offset += self.frame.register(found[0].row).read()
        if members.get("is_regloc_offset") is True:
            return value + offset
        reading = self.decide("register_address", f"`{code.title}` takes its address from a register")
        if reading == "offset":
            return value + offset
        placement, size = self.machine.program.placement(location), dtype(code.dtype).size
        start = value - (placement.addr or 0)
        if start % size:
            raise SimulationError(f"the address {value} lies within an element of `{placement.name}`")
        return start // size + offset

    def _dynamic_offset(self, code: OperandCode, info: Mapping[str, Any]) -> int:
        """Work out what a dynamic access adds to the offset, when it needs registers and axes alone."""
        if info.get("num_tensor_indirect_indices"):
            raise SimulationError(f"`{code.title}` is indexed by a tensor, which is not modelled for `{self.opcode}`")
        total, terms = whole(info.get("c") or 0, "`c`"), info.get("aff_expr") or []
        if not isinstance(terms, list):
            raise SimulationError(f"`aff_expr` of `{code.title}` is {terms!r:.60}; expected a list")
        for term in terms:
            value = self.evaluate(member(term, "offset_expr"), code.references)
            total += value * whole(term.get("coef", 1), "`coef`")
        return total

    def evaluate(self, value: Any, references: Sequence[Reference]) -> int:
        """Return the value of an expression in an operand."""
        return self.frame.evaluate(value, references)

    def may_read_unwritten(self) -> bool:
        """Tell whether the instruction may read what was never written."""
        return self.has("can_read_uninit") and self.flag("can_read_uninit")

    def check_overlap(self) -> None:
        """Refuse an elementwise instruction that reads an element after having written it."""
        inputs = [o for o in self.ins if o.in_memory]
        for out in self.outs:
            if not out.in_memory:
                continue
            target = out.access
            for operand in inputs:
                if operand.access.memory is target.memory and _hazard(self.frame, operand, out):
                    self.decide(
                        "overlap",
                        f"`{out.code.title}` and `{operand.code.title}` share elements of `{target.memory.name}`, of "
                        "which some would be read after they are written",
                    )


def _hazard(frame: Frame, source: "Operand", target: "Operand") -> bool:
    key = source.code.row, target.code.row
    a, b = source.access, target.access
    fixed = key[0] in frame.accesses and key[1] in frame.accesses
    if fixed and key in frame.overlaps:
        return frame.overlaps[key]
    same = (a.dtype.size, a.offset, a.steps, a.shape) == (b.dtype.size, b.offset, b.steps, b.shape)
    apart = a.span[1] <= b.span[0] or b.span[1] <= a.span[0]
    found = not apart and not (same and a.unique) and reads_after_write(a, b)
    if fixed:
        frame.overlaps[key] = found
    return found


class Operand:
    """An operand of an instruction that is being executed.

    Values are in the operand's logical element order, partitions first: an array of the shape of the access pattern.
    Reading gives a new array, which the handler may change; writing casts, and may be given any shape with as many
    elements.
    """

    __slots__ = ("_access", "code", "step")

    def __init__(self, step: Step, code: OperandCode) -> None:
        self.step, self.code = step, code
        self._access: Access | None = None

    # -- what it is ---------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        """The operand kind."""
        return self.code.kind

    @property
    def in_memory(self) -> bool:
        """Whether it is an access to memory, not an immediate or a register."""
        return self.code.kind in ADDRESSED

    @property
    def dtype(self) -> Dtype:
        """The element type."""
        if not self.code.dtype:
            raise SimulationError(f"`{self.code.title}` has no `dtype`")
        return dtype(self.code.dtype)

    @property
    def access(self) -> Access:
        """The access to memory.

        Raises
        ------
        SimulationError
            If it is none, or out of bounds.
        """
        if self._access is None:
            if not self.in_memory:
                raise SimulationError(f"`{self.code.title}` is of the kind `{self.kind}`; expected an access to memory")
            self._access = self.step.access(self.code)
        return self._access

    def move(self, access: Access) -> None:
        """Let the operand mean another access, for as long as this execution lasts."""
        self._access = access

    @property
    def shape(self) -> tuple[int, ...]:
        """The nums of the access pattern; empty for a single value, (n,) for an array of immediates."""
        if self.in_memory:
            return self.access.shape
        return (len(self._immediates()),) if self.kind == "imm_array" else ()

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def partitions(self) -> int:
        """The number of partitions: the first num of the pattern."""
        return self.shape[0] if self.in_memory else 1

    @property
    def first_partition(self) -> int:
        """The partition of the first element, that of the location included."""
        access = self.access
        memory = access.memory
        return memory.base + (0 if memory.flat else access.offset * access.dtype.size // memory.pitch)

    @property
    def register(self) -> Register:
        """The register of a `register_access`."""
        if self.kind != "register_access" or self.code.register < 0:
            raise SimulationError(f"`{self.code.title}` is no register that is there")
        return self.step.frame.register(self.code.register)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self) -> Array:
        """Return the elements in the numpy dtype of their type."""
        if not self.in_memory:
            return self._constant()
        access = self.access
        self._check_written(access)
        self.step.machine.count_read(access)
        # Copied as integers: numpy moves elements of foreign dtypes one by one.
        values = np.array(access.bits(), order="C", copy=True)
        return self._fill_unwritten(access, values).view(access.dtype.numpy)

    def read_bits(self) -> Array:
        """Return the bit patterns of the elements, as unsigned integers."""
        return self.read().view(self.dtype.unsigned)

    def float32(self) -> F32:
        """Return the elements as float32.

        Raises
        ------
        SimulationError
            If an integer is no value of float32 (reading `integer_arithmetic`).
        """
        return dtypes.to_float32(self.read(), self.dtype, self.step.decide)

    def rows(self) -> F32:
        """Return the elements as float32 in two dimensions: partitions, and all else."""
        return self.float32().reshape(self.partitions, -1)

    def int64(self) -> NDArray[np.int64]:
        """Return the elements of an integer operand; those above 63 bits are refused."""
        if self.dtype.kind != "int":
            raise SimulationError(f"`{self.code.title}` is `{self.code.dtype}`; expected an integer dtype")
        values = self.read()
        if self.dtype.name == "uint64" and values.size and int(values.max()) > np.iinfo(np.int64).max:
            raise SimulationError(f"`{self.code.title}` holds an integer of 64 bits and no sign, which is not modelled")
        return values.astype(np.int64)

    def numbers(self) -> Numbers:
        """Return the elements for arithmetic: float32, and for an integer type also whole numbers."""
        return Numbers(None, self.int64()) if self.dtype.kind == "int" else Numbers(self.float32())

    def scalar(self) -> int | float:
        """Return the value of an operand of one element: an immediate, a register, or an access to one element."""
        if self.kind == "register_access":
            return self.integer()
        if self.count != 1:
            raise SimulationError(f"`{self.code.title}` has {self.count} elements; expected one")
        return self.read().reshape(-1)[0].item() if self.dtype.kind == "int" else float(self.float32().reshape(-1)[0])

    def integer(self) -> int:
        """Return the value of an operand of one integer."""
        if self.kind == "register_access":
            value, held = self.register.read(), self.dtype
            if held.kind != "int":
                raise SimulationError(f"`{self.code.title}` reads a register as `{held.name}`, which is not modelled")
            if not held.lowest <= value <= held.highest:
                what = f"register `{self.register.name}` holds {value}, which does not fit `{held.name}`"
                self.step.decide("register_width", what)
                value = wrapped(value, held)
            return value
        value = self.scalar()
        if not isinstance(value, int):
            raise SimulationError(f"`{self.code.title}` is `{self.code.dtype}`; expected an integer")
        return value

    def _constant(self) -> Array:
        """Return immediates, or the value of a register, as an array."""
        if self.kind == "register_access":
            return np.array(self.integer()).astype(self.dtype.numpy)
        values = self._immediates()
        made = np.array([self._immediate(value) for value in values], self.dtype.numpy)
        return made if self.kind == "imm_array" else made.reshape(())

    def _immediates(self) -> list[Any]:
        members = self.code.members
        if self.kind == "imm_value" and "value" in members:
            return [members["value"]]
        if self.kind == "imm_array" and isinstance(members.get("value_array"), list):
            return members["value_array"]
        if self.kind == "symbolic_imm_value" and isinstance(members.get("value_list"), list):
            values = [v["value"] if isinstance(v, dict) and "value" in v else v for v in members["value_list"]]
            if len(values) == 1:
                return values
            number = self.step.evaluate(members.get("expr"), self.code.references)
            if not 0 <= number < len(values):
                raise SimulationError(f"`{self.code.title}` names element {number} of {len(values)} immediates")
            return [values[number]]
        raise SimulationError(f"`{self.code.title}` is of the kind `{self.kind or 'none'}`; expected an immediate")

    def _immediate(self, value: Any) -> Any:
        of = self.dtype
        if of.kind == "int" and expressions.is_integer(value):
            if not of.lowest <= value <= of.highest:
                raise SimulationError(f"the immediate {value} of `{self.code.title}` does not fit `{of.name}`")
            return value
        if of.name not in ("float16", "bfloat16", "float32"):
            raise SimulationError(f"the immediate {value!r:.60} of `{self.code.title}` is no value of `{of.name}`")
        single = np.float32(dtypes.number(value, f"the immediate of `{self.code.title}`"))
        if isinstance(value, int) and of.size == 2 and value != 0:
            what = f"the immediate {value} of `{self.code.title}` is a number or the bits of a `{of.name}`"
            if self.step.decide("half_immediate", what) == "bits":
                return np.array(value & 0xFFFF, np.uint16).view(of.numpy)
        return single

    def _check_written(self, access: Access) -> None:
        written = access.written()
        if written is None:
            return
        step = self.step
        if not step.may_read_unwritten():
            first = np.argwhere(~written)[0].tolist()
            memory = access.memory
            raise SimulationError(
                f"`{self.code.title}` reads {int((~written).sum())} of {access.count} elements of `{memory.name}` that "
                f"were never written, first {first}{memory.why}"
            )
        if "uninitialized" in step.machine.readings:
            return
        if not step.elementwise:
            step.decide("uninitialized", f"`{self.code.title}` reads unwritten memory of `{access.memory.name}`")
        mask = ~written.reshape(-1)
        step.unwritten = mask if step.unwritten is None else _merged(step.unwritten, mask)

    def _fill_unwritten(self, access: Access, values: Array) -> Array:
        """Put what unwritten bytes are taken to hold where there are any."""
        choice = self.step.machine.readings.get("uninitialized")
        if access.memory.complete or choice is None:
            return values
        shadow = access.shadow()
        return values & shadow if choice == "zeros" else values | ~shadow

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, values: Array | float) -> None:
        """Write elements, cast to the operand's type.

        Parameters
        ----------
        values
            As many numbers as the operand has elements, in linear order. Arrays of the operand's own numpy dtype are
            moved as they are; others are rounded to nearest even on the way to a narrower float.
        """
        access, given = self.access, np.asarray(values)
        if given.size != access.count:
            raise SimulationError(
                f"`{self.code.title}` has {access.count} elements, and {given.size} values are written to it"
            )
        cast = np.ascontiguousarray(dtypes.convert(given, access.dtype, self.step.decide)).reshape(access.shape)
        self._store(access, cast)

    def write_bits(self, bits: Array) -> None:
        """Write bit patterns, given as unsigned integers of the operand's size."""
        access = self.access
        if bits.size != access.count or bits.dtype != access.dtype.unsigned:
            raise SimulationError(
                f"`{self.code.title}` has {access.count} elements of {access.dtype.size} bytes, and {bits.size} of "
                f"{bits.dtype.itemsize} are written to it"
            )
        self._store(access, np.ascontiguousarray(bits).reshape(access.shape).view(access.dtype.numpy))

    def write_integer(self, value: int) -> None:
        """Write one integer to a register, wrapped to the width of its type."""
        held = self.dtype
        if held.kind != "int":
            raise SimulationError(f"`{self.code.title}` writes a register as `{held.name}`, which is not modelled")
        self.register.value = wrapped(value, held)

    def _store(self, access: Access, values: Array) -> None:
        step = self.step
        written = None
        if step.unwritten is not None:
            if step.unwritten.size != access.count:
                step.decide("uninitialized", "an instruction reads unwritten memory and changes the number of elements")
            written = ~step.unwritten.reshape(access.shape)
        step.machine.check_values(step, self, values)
        access.store(values.view(access.dtype.unsigned), written)
        step.machine.count_written(access, values)


def whole(value: Any, what: str) -> int:
    """Return an integer; anything else is refused."""
    if not expressions.is_integer(value):
        raise SimulationError(f"{what} is {value!r:.60}; expected an integer")
    return value


def _merged(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> NDArray[np.bool_]:
    if one.size == other.size:
        return one | other
    return np.ones(max(one.size, other.size), bool)


def wrapped(value: int, held: Dtype) -> int:
    """Return an integer modulo the range of an integer type."""
    span = held.highest - held.lowest + 1
    return (value - held.lowest) % span + held.lowest
