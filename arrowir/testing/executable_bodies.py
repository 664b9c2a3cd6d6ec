"""Drawing instructions that can be executed: what they read is there, and what they compute stays in a range.

Each tensor holds values of one sort, and every instruction keeps its output's sort, so that no value overflows, is no
number, or falls under a case that the semantics leave open:

=======  ===========================================================================
`float`  -4 to 4
`int`    0 to 127
`flag`   0 or 1
`sum`    in PSUM, whatever some matrix products of floats add up to
=======  ===========================================================================
"""

import copy
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json, Pattern
from arrowir.testing.drawn_bodies import Axes, BodyDrawer, Storage
from arrowir.testing.expressions import added, floor_divided, modulo, multiplied, symbolic

FLOATS = ("float32", "float32", "bfloat16", "float16")
INTEGERS = ("int32", "int32", "uint8", "int16", "uint32")
FLAGS = ("int32", "int32", "uint8")
INDICES = 4
"""Registers that operands are addressed by hold less than this."""
COPIES = ("TensorCopy", "GenericCopy", "Load", "Save", "DMACopy")
COMPARISONS = ("is_gt", "is_ge", "is_lt", "is_le", "is_equal", "not_equal")
BOUNDED = ("Tanh", "Sigmoid", "Sin", "Arctan", "Erf", "Relu", "Abs", "Copy", "Gelu", "Silu")
"""Activation functions that keep -4 to 4."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A location that instructions read, and what it holds.

    Parameters
    ----------
    storage : Storage
        The location.
    holds : str
        `float`, `int`, `flag` or `sum`.
    writable : bool
        Whether instructions write it.

    Examples
    --------
    >>> Tensor(Storage("x", "x_set", "SB", (4, 8), "float32", 32), "float").width
    8
    """

    storage: Storage
    holds: str
    writable: bool = True

    @property
    def rows(self) -> int:
        """Its partitions."""
        return self.storage.shape[0]

    @property
    def width(self) -> int:
        """Elements of a partition."""
        return self.storage.pitch


@dataclass(slots=True)
class ExecutableDrawer(BodyDrawer):
    """Draws instructions of one function that can be executed.

    Parameters
    ----------
    tensors : list of Tensor
        What it reads and writes; all of it has to be written before.
    shape_loop : callable, optional
        Changes a loop that was drawn: its body may be cut into blocks.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> x = Tensor(Storage("x", "x_set", "SB", (4, 8), "float32", 32), "float")
    >>> [row["opcode"] for row in ExecutableDrawer(Simplest(), 2, "I-", tensors=[x]).rows(1, 0)]
    ['Memset']
    """

    tensors: list[Tensor] = field(default_factory=list[Tensor])
    shape_loop: Callable[[Json, Axes], None] | None = None
    trips: dict[str, int] = field(default_factory=dict[str, int])
    """Registers that say how often loops run, and what they may hold at most at the start."""
    arithmetic: bool = False
    """Whether bounds and conditions of loops of run time are expressions, some of them of several operations."""
    joined: set[int] = field(default_factory=set[int])
    """Rows, by `id`, that must not be parted from the one behind them."""

    def rows(self, count: int, depth: int, axes: Axes | None = None, path: tuple[Json, ...] = ()) -> list[Json]:
        """Return the rows of so many steps, with loops up to a depth."""
        axes, found = axes or {}, list[Json]()
        for _ in range(count):
            s = self.source
            s.begin()
            if depth and s.chance(40 if axes else 25):
                found += self._some_loop(depth, axes, path)
                continue
            call = self.call(bool(path)) if self.call is not None and s.chance(30) else None
            made = [call] if call is not None else self.step(axes)
            for row in made:
                self._place(row, axes, path)
            self.joined.update(map(id, made[:-1]))
            found += made
        return found

    def _some_loop(self, depth: int, axes: Axes, path: tuple[Json, ...]) -> list[Json]:
        """Return a loop, of several kinds where these may stand, and what has to stand before it."""
        s = self.source
        if self.shape_loop is None:
            return [self._loop(depth, axes, path)]
        if s.chance(12):
            return self._do_while(depth, axes, path)
        loop = self._loop(depth, axes, path)
        axis = loop["LoopAxis"]
        if axis.get("lb", 0) == 0 and axis["stride"] == 1 and isinstance(axis["ub"], int) and s.chance(40):
            # a register that nothing else changes says how often; no more than what the body allows for
            name = s.fresh("t")
            self.trips[name] = axis["ub"]
            loop["opcode"] = "DynamicForLoop"
            loop["DynamicForLoopAxis"] = {**axis, "ub": {"kind": "IntRuntimeValueKind", "regref": name}}
            if self.arithmetic:
                loop["DynamicForLoopAxis"] |= self._counted_by(name)
            del loop["LoopAxis"]
        else:
            self.shape_loop(loop, axes)
        return [loop]

    def _do_while(self, depth: int, axes: Axes, path: tuple[Json, ...]) -> list[Json]:
        """Return a loop that a register counts down, and the row that sets it."""
        s = self.source
        name = s.fresh("t")
        self.trips[name] = 0
        register = bir.register_access(name)
        times, one = bir.immediate(1 + s.digit(3), "int32"), bir.immediate(1, "int32")
        row = self.row("DoWhile", [], [], "Unassigned")
        row["cond"] = {"kind": "IntRuntimeValueKind", "regref": name}
        if self.arithmetic and s.chance(40):
            row["cond"] = s.of((multiplied(row["cond"], 3), added(row["cond"], _several(name, 0)), _several(name, -2)))
        self._place(row, axes, path)
        body = self.rows(s.count(3), depth - 1, axes, (*path, row))
        down = self.row("RegisterAlu", [register, one], [register], "SP", op="subtract")
        self._place(down, axes, (*path, row))
        row["blocks"] = [bir.block("block0", [*body, down])]
        before = self.row("RegisterMove", [times], [register], "SP")
        self._place(before, axes, path)
        self.joined.add(id(before))
        return [before, row]

    def _counted_by(self, name: str) -> Json:
        """Return bounds that give an axis the values from 0 to below what a register holds, in either order."""
        s = self.source
        value: Json = {"kind": "IntRuntimeValueKind", "regref": name}
        same = (
            value,
            _several(name, 1),
            floor_divided(added(_several(name, 2), {"c": 1, "kind": "AffExprKind", "terms": []}), 2),
            modulo(_several(name, 1), 64),
            added(multiplied(value, 3), _several(name, -2)),
        )
        if s.chance(30):
            # down from one less than that
            less = added({"c": -1, "kind": "AffExprKind", "terms": []}, s.of(same))
            return {"lb": less, "stride": -1, "ub": -1}
        if s.chance(30):
            return {"lb": added(_several(name, 1), _several(name, -1)), "ub": s.of(same)}
        return {"ub": s.of(same)}

    def places(self, rows: list[Json]) -> list[int]:
        """Return the places of a list of rows before which something else may stand, its end included."""
        return [at for at in range(len(rows) + 1) if not at or id(rows[at - 1]) not in self.joined]

    def row(self, opcode: str, ins: list[Json], outs: list[Json], engine: str = "DVE", **keys: Any) -> Json:
        """Return an instruction."""
        row = {"name": self.name(), "opcode": opcode, "engine": engine, "ins": ins, "outs": outs, **keys}
        return {key: row[key] for key in sorted(row)}

    def step(self, axes: Axes) -> list[Json]:
        """Return a step: one instruction, or a few that belong together."""
        s = self.source
        if self.registers and s.chance(12):
            return self.count(axes)
        targets = [tensor for tensor in self.tensors if tensor.writable]
        if not targets:
            return [self.row("NoOp", [], [])]
        return self.write(s.of(targets), axes)

    def write(self, target: Tensor, axes: Axes) -> list[Json]:
        """Return rows that write some elements of a tensor."""
        writers = {"float": self._float, "int": self._int, "flag": self._flag, "sum": self._sum}
        s = self.source
        rows, width = 1 + s.digit(target.rows), 1 + s.digit(target.width)
        return writers[target.holds](target, self.access(target, rows, width, axes, out=True), (rows, width), axes)

    # -- operands -----------------------------------------------------------------------------------------------------

    def sources(self, target: Tensor | None, *holds: str) -> list[Tensor]:
        """Return the tensors of some sorts, one of which is not the target."""
        return [tensor for tensor in self.tensors if tensor.holds in holds and tensor is not target]

    def read(self, tensors: Sequence[Tensor], size: tuple[int, int], axes: Axes) -> Json:
        """Return an access to so many elements of one of some tensors, repeated where it is smaller."""
        return self.access(self.source.of(tensors), *size, axes, out=False)

    def whole(self, tensor: Tensor) -> Json:
        """Return an access to all of a tensor."""
        pattern = [[tensor.width, tensor.rows], [1, tensor.width]]
        storage = tensor.storage
        return bir.access(storage.name, pattern, storage.dtype, set_name=storage.set_name, full_keys=False)

    def access(self, tensor: Tensor, rows: int, width: int, axes: Axes, *, out: bool) -> Json:
        """Return an access to so many partitions and elements of each, somewhere in a tensor."""
        s, pitch = self.source, tensor.width
        step, spread = (0, 0) if rows > tensor.rows else (1, rows - 1)
        if step and (rows - 1) * 2 < tensor.rows and s.chance(20):
            step, spread = 2, (rows - 1) * 2
        elif rows > 1 and not out and s.chance(8):
            step, spread = 0, 0
        free = self._free(pitch, width, out=out)
        spans = [n * (count - 1) for n, count in free]
        low, high = sum(n for n in spans if n < 0), sum(n for n in spans if n > 0)
        first_row, first = tensor.rows - spread, pitch - (high - low)  # how many places there are to begin at
        pattern = [[step * pitch, rows], *free]
        form = s.digit(16)
        if form >= 12 or (axes and form >= 6):
            return self._symbolic_at(tensor, pattern, first_row, first, -low, axes)
        if form >= 9 - 5 * bool(axes) and self.registers:
            made = self._moving(tensor, pattern, first_row, first, -low)
            if made is not None:
                return made
        offset = s.digit(first_row) * pitch + s.digit(first) - low
        return self._at(tensor, pattern, offset)

    def _free(self, pitch: int, width: int, *, out: bool) -> Pattern:
        """Return the dimensions of an access within a partition."""
        s = self.source
        if width > pitch:
            part = next(n for n in range(pitch, 0, -1) if width % n == 0)
            return [[0, width // part], [1, part]]
        forms: list[Pattern] = [[[1, width]], [[1, width]]]
        if width > 1 and (width - 1) * 2 < pitch:
            forms.append([[2, width]])
        forms.append([[-1, width]])
        for part in (2, 3):
            if width % part == 0 and width > part:
                inner = width // part
                room = (pitch - inner) // (part - 1)
                forms.append([[inner + s.digit(room - inner + 1), part], [1, inner]])
                if not out:
                    forms.append([[0, part], [1, inner]])
                    forms.append([[1, part], [part, inner]])
        return s.of(forms)

    def _at(self, tensor: Tensor, pattern: Pattern, offset: int, **more: Any) -> Json:
        s, storage = self.source, tensor.storage
        full = s.chance(20)
        made = bir.access(
            storage.name, pattern, storage.dtype, offset=offset, set_name=storage.set_name, full_keys=full, **more
        )
        if s.chance(20):
            del made["memsetref"]
        return made

    def _symbolic_at(
        self, tensor: Tensor, pattern: Pattern, first_row: int, first: int, least: int, axes: Axes
    ) -> Json:
        """Return an access whose place is given by an expression for each dimension of the tensor."""
        s, storage = self.source, tensor.storage
        inner = storage.shape[-1]
        at = [self.bounded(axes, first_row)]
        if least:  # steps that are negative: the place is fixed
            columns = least + s.digit(first)
            at += [self.constant(n) for n in self._split(columns, storage.shape[1:])]
        elif len(storage.shape) == 2:
            at.append(self.bounded(axes, first))
        else:
            most = (first - 1) // inner
            at += [self.bounded(axes, most + 1), self.bounded(axes, (first - 1) % inner + 1)]
        kind = "symbolic_pwap" if s.chance(10) else "symbolic_ap"
        return symbolic(storage.set_name, at, pattern, storage.dtype, kind=kind, full_keys=s.chance(20))

    def _split(self, column: int, shape: Sequence[int]) -> list[int]:
        """Return the indices of an element of a partition."""
        found: list[int] = []
        for extent in reversed(shape):
            column, index = divmod(column, extent)
            found.insert(0, index)
        return found

    def _moving(self, tensor: Tensor, pattern: Pattern, first_row: int, first: int, least: int) -> Json | None:
        """Return an access that registers move, where there is room for that."""
        s, storage = self.source, tensor.storage
        by_row = first_row >= INDICES and s.chance(50)
        if not by_row and first < INDICES:
            return None
        reach = INDICES - 1
        row = s.digit(first_row - (reach if by_row else 0))
        column = least + s.digit(first - (0 if by_row else reach))
        start, unit = row * tensor.width + column, tensor.width if by_row else 1
        register = s.of(self.registers)
        if not by_row and s.chance(40):
            return bir.record(
                kind="register_ap",
                ap=pattern,
                dtype=storage.dtype,
                memsetref=storage.set_name,
                regref=register,
                const_ap_offset=start,
                is_regloc_offset=True,
            )
        value: Json = {"kind": "IntRuntimeValueKind", "regref": register}
        if s.chance(40):
            value = {"kind": "AffExprKind", "terms": [{"coeff": 1, "idx": value}], "c": 0}
        where = {"aff_expr": [{"coef": unit, "offset_expr": value}], "c": 0}
        where |= {"indirect_dim": 0 if by_row else 3, "indirect_dim_max_index": INDICES}
        return self._at(tensor, pattern, start, dynamic_ap_info=where)

    def number(self, axes: Axes, values: Sequence[float]) -> Json:
        """Return an immediate of one of some values, perhaps by an expression."""
        s = self.source
        if not s.chance(40):
            return bir.immediate(s.of(values), "float32")
        listed = [{"value": value} if s.chance(70) else value for value in values]
        return bir.record(
            kind="symbolic_imm_value", dtype="float32", value_list=listed, expr=self.bounded(axes, len(values))
        )

    def small(self, axes: Axes, bound: int) -> Any:
        """Return a number below a bound for a member that may be an expression."""
        return self.bounded(axes, bound) if self.source.chance(50) else self.source.digit(bound)

    # -- instructions by what they write ------------------------------------------------------------------------------

    def _float(self, target: Tensor, out: Json, size: tuple[int, int], axes: Axes) -> list[Json]:
        s = self.source
        floats, ints = self.sources(target, "float"), self.sources(target, "int", "flag")
        flags, sums = self.sources(target, "flag"), self.sources(target, "sum")
        if sums and s.chance(20):
            engine = {"func": s.of(("Arctan", "Tanh", "Sin")), "scale": 0.015625, "acc": "Idle", "alpha": 0.0}
            return [self.row("Activation", [self.read(sums, size, axes)], [out], "Activation", **engine)]
        if ints and s.chance(20):
            scale = self._scalar("mult", 0.03125, "subtract" if s.chance(50) else "bypass", 1.0)
            return [self.row("TensorScalar", [self.read(ints, size, axes)], [out], **scale)]
        if not floats:
            return [self._fill(target, out)]
        x = self.read(floats, size, axes)
        form = s.digit(10)
        if form == 1:
            return [self.row("TensorScalar", [x], [out], **self._affine(axes))]
        if form == 2:
            return self._pair(out, x, self.read(floats, size, axes))
        if form == 3:
            return [self._activation(x, out, floats, size, axes)]
        if form == 4:
            return self._reduce(target, floats, size, axes)
        if form == 5 and flags:
            ins = [self.read(flags, size, axes), x, self.read(floats, size, axes)]
            return [self.row("Select", ins, [out])]
        if form == 6 and ints:
            keys: Json = {"accumulator_cmd": "Idle", "reduce_op": "bypass", "reverse_pred": s.chance(30)}
            return [self.row("CopyPredicated", [self.read(ints, size, axes), x], [out], **keys)]
        if form == 7:
            ins = [x, self.read(floats, (size[0], 1), axes), self.read(floats, (size[0], 1), axes)]
            keys = {"op0": s.of(("max", "min")), "op1": s.of(("min", "max")), "reverse0": s.chance(30)}
            return [self.row("TensorScalarPtr", ins, [out], **keys, reverse1=False)]
        if form in (8, 9):
            loaded = self._indirect(target, out, size, axes)
            if loaded is not None:
                return [loaded]
        return [self._copy(x, out)]

    def _indirect(self, target: Tensor, out: Json, size: tuple[int, int], axes: Axes) -> Json | None:
        """Return a load of rows that begin at the first or second element of a table, where there is one."""
        kind = target.storage.dtype
        tables = [t for t in self.sources(target, "float") if t.storage.memory == "DRAM" and t.storage.dtype == kind]
        tables = [t for t in tables if t.rows * t.width > size[1]]
        indices = [t for t in self.sources(target, "flag") if t.storage.dtype == "int32"]
        if not tables or not indices or out["ap"][-1][0] != 1:
            return None
        by = [self.read(indices, (size[0], 1), axes)]
        return self.row("IndirectLoad", [self.whole(self.source.of(tables))], [out], "Pool", indirection_ins=by)

    def _copy(self, source: Json, out: Json) -> Json:
        opcode = self.source.of(COPIES)
        more = {"mode": "Copy"} if opcode == "DMACopy" else {}
        return self.row(opcode, [source], [out], "SP" if opcode in ("Load", "Save", "DMACopy") else "Pool", **more)

    def _scalar(self, op0: str, const0: Any, op1: str, const1: Any, *, reverse1: bool = False) -> Json:
        return {"op0": op0, "const0": const0, "reverse0": False, "op1": op1, "const1": const1, "reverse1": reverse1}

    def _affine(self, axes: Axes) -> Json:
        s = self.source
        if s.chance(30):
            return self._scalar("max", s.of((-1.0, 0.5, -2.5)), "min", s.of((3.0, 1.25)))
        shift = self.small(axes, 3) if s.chance(40) else s.of((0.5, -1.5, 1.0))
        # half of at most 4, and at most 2
        return self._scalar("mult", s.of((0.5, -0.5, 0.25)), s.of(("add", "subtract")), shift, reverse1=s.chance(30))

    def _pair(self, out: Json, one: Json, other: Json) -> list[Json]:
        op = self.source.of(("max", "add", "subtract", "mult", "min", "abs_max"))
        row = self.row("TensorTensor", [one, other], [out], op=op)
        return [row] if op in ("max", "min", "abs_max") else [row, self._clamp(out)]

    def _clamp(self, out: Json) -> Json:
        limits = self._scalar("min", 4.0, "max", -4.0)
        return self.row("TensorScalar", [copy.deepcopy(out)], [copy.deepcopy(out)], "Pool", **limits)

    def _activation(self, x: Json, out: Json, floats: list[Tensor], size: tuple[int, int], axes: Axes) -> Json:
        s = self.source
        keys: Json = {"func": s.of(BOUNDED), "acc": "Idle", "alpha": 0.0, "scale": 1.0}
        ins = [x]
        if s.chance(40):
            # the bias is one value for each partition, or one for all
            ins.append(self.number(axes, (0.5, 1.0, -0.25)))
            ins.append(self.read(floats, (size[0], 1), axes) if s.chance(50) else bir.immediate(0.5, "float32"))
            keys["func"] = s.of(("Tanh", "Sigmoid", "Arctan", "Sin"))
        return self.row("Activation", ins, [out], "Activation", **keys)

    def _reduce(self, target: Tensor, floats: list[Tensor], size: tuple[int, int], axes: Axes) -> list[Json]:
        s = self.source
        out = self.access(target, size[0], 1, axes, out=True)
        x = self.read(floats, (size[0], 1 + s.digit(6)), axes)
        op = s.of(("max", "add", "min", "average"))
        axis = "X" if len(x["ap"]) == 2 else "XY"
        row = self.row("TensorReduce", [x], [out], op=op, axis=axis, negate=s.chance(20), apply_transpose=False)
        return [row, self._clamp(out)] if op == "add" else [row]

    def _int(self, target: Tensor, out: Json, size: tuple[int, int], axes: Axes) -> list[Json]:
        s = self.source
        ints = self.sources(target, "int", "flag")
        form = s.digit(6)
        if form == 0 and target.storage.dtype == "int32":
            keys = {"base": self.small(axes, 16), "channel_multiplier": self.small(axes, 4)}
            pattern = [[s.of((1, 2, 3)), size[1]]]
            keys["pattern"] = pattern if len(out["ap"]) == 2 else [[1, pair[1]] for pair in out["ap"][1:]]
            return [self.row("Iota", [], [out], "Pool", **keys)]
        if form == 1 and self.registers and size == (1, 1):
            return [self.row("TensorSave", [bir.register_access(s.of(self.registers))], [out], "SP")]
        if not ints or form == 2:
            return self._flag(target, out, size, axes)
        x = self.read(ints, size, axes)
        if form == 3:
            step = self._scalar(s.of(("add", "mult")), float(1 + s.digit(5)), "bitwise_and", 127.0)
            return [self.row("TensorScalar", [x], [out], "Pool", **step)]
        if form == 4:
            op = s.of(("bitwise_xor", "bitwise_and", "bitwise_or", "max", "min"))
            return [self.row("TensorTensor", [x, self.read(ints, size, axes)], [out], "Pool", op=op)]
        return [self._copy(x, out)]

    def _flag(self, target: Tensor, out: Json, size: tuple[int, int], axes: Axes) -> list[Json]:
        s = self.source
        floats, ints = self.sources(target, "float"), self.sources(target, "int", "flag")
        known = floats if floats and (s.chance(60) or not ints) else ints
        if not known:
            return [self._fill(target, out)]
        if s.chance(30):
            limit = float(s.digit(64)) if known is ints else s.of((0.5, -0.25, 1.0))
            test = self._scalar(s.of(COMPARISONS), limit, "bypass", 0.0)
            return [self.row("TensorScalar", [self.read(known, size, axes)], [out], **test)]
        ins = [self.read(known, size, axes), self.read(known, size, axes)]
        return [self.row("TensorTensor", ins, [out], op=s.of(COMPARISONS))]

    def _sum(self, target: Tensor, out: Json, size: tuple[int, int], axes: Axes) -> list[Json]:
        s = self.source
        floats = self.sources(target, "float")
        if not floats:
            return [self._fill(target, out)]
        depth = 1 + s.digit(6)
        ins = [self.read(floats, (depth, size[1]), axes), self.read(floats, (depth, size[0]), axes)]
        return [self.row("Matmult", ins, [out], "PE", accumulation_flag=self.small(axes, 3))]

    def fold(self, target: Tensor, source: Tensor) -> list[Json]:
        """Return rows that mix elements of one tensor into another, so that what it holds is seen there."""
        size = min(source.rows, target.rows), min(source.width, target.width)
        out, x = self.access(target, *size, {}, out=True), self.access(source, *size, {}, out=False)
        both = [copy.deepcopy(out), x]
        if target.holds == "int":
            return [self.row("TensorTensor", both, [out], "Pool", op="bitwise_xor")]
        if source.holds == "sum":
            keys = {"func": "Tanh", "scale": 0.0625, "acc": "Idle", "alpha": 0.0}
            return [self.row("Activation", [x], [out], "Activation", **keys)]
        # at most 8 or 131, and then 4
        factor = 0.5 if source.holds == "float" else 0.03
        half = self._scalar("mult", factor, "bypass", 0.0)
        mixed = self.row("TensorTensor", both, [out], op="subtract" if source.holds == "float" else "add")
        return [mixed, self.row("TensorScalar", [copy.deepcopy(out)], [copy.deepcopy(out)], **half)]

    # -- registers ----------------------------------------------------------------------------------------------------

    def count(self, axes: Axes) -> list[Json]:
        """Return rows that change a register; it stays below `INDICES`."""
        s = self.source
        register = bir.register_access(s.of(self.registers))
        ints = self.sources(None, "int", "flag")
        form = s.digit(4)
        if form == 0:
            return [self.row("RegisterMove", [bir.immediate(s.digit(INDICES), "int32")], [register], "SP")]
        if form == 1:
            values = [bir.immediate(1 + s.digit(5), "int32"), bir.register_access(s.of(self.registers))]
            change = self.row(
                "RegisterAlu", [register, s.of(values)], [register], "SP", op=s.of(("add", "bitwise_xor", "max"))
            )
        elif form == 2 and ints:
            change = self.row("TensorLoad", [self.read(ints, (1, 1), axes)], [register], "SP")
        else:
            given = bir.record(
                kind="symbolic_imm_value",
                dtype="int32",
                value_list=[{"value": n} for n in range(INDICES)],
                expr=self.bounded(axes, INDICES),
            )
            return [self.row("RegisterMove", [given], [register], "SP")]
        mask = bir.immediate(INDICES - 1, "int32")
        return [change, self.row("RegisterAlu", [register, mask], [register], "SP", op="bitwise_and")]

    # -- whole tensors ------------------------------------------------------------------------------------------------

    def begin(self, target: Tensor) -> Json:
        """Return a row that writes all of a tensor: a constant, or what an input holds."""
        s = self.source
        known = [tensor for tensor in self.tensors if not tensor.writable and tensor.holds == target.holds]
        if known and s.chance(80):
            source = self.access(s.of(known), target.rows, target.width, {}, out=False)
            return self._copy(source, self.whole(target))
        return self._fill(target, self.whole(target))

    def _fill(self, target: Tensor, out: Json) -> Json:
        s = self.source
        if target.holds in ("float", "sum"):
            bits = float_bits(s.of((0.5, 1.0, -2.0, 0.0)), target.storage.dtype)
        else:
            bits = s.digit(2 if target.holds == "flag" else 128)
        return self.row("Memset", [], [out], "Pool", mode="Const", constant=bits)


def _several(name: str, times: int) -> Json:
    """Return a multiple of what a register holds."""
    term = {"coeff": times, "idx": {"kind": "IntRuntimeValueKind", "regref": name}}
    return {"c": 0, "kind": "AffExprKind", "terms": [term]}


def float_bits(value: float, dtype: str) -> int:
    """Return the bit pattern of a number that the type holds exactly.

    Parameters
    ----------
    value : float
        The number.
    dtype : str
        `float32`, `bfloat16` or `float16`.

    Returns
    -------
    int
        The bits.

    Examples
    --------
    >>> hex(float_bits(1.0, "bfloat16"))
    '0x3f80'
    """
    if dtype == "float16":
        return int(struct.unpack("<H", struct.pack("<e", value))[0])
    bits = int(struct.unpack("<I", struct.pack("<f", value))[0])
    return bits >> 16 if dtype == "bfloat16" else bits
