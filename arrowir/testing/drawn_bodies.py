"""Drawing function bodies that mean something: names resolve, loops run a few times, accesses stay in bounds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawing import Source
from arrowir.testing.expressions import (
    added,
    affine,
    affine_old,
    floor_divided,
    induction,
    modulo,
    multiplied,
    symbolic,
)

SHAPES = ((4, 8), (128, 16), (1, 32), (2, 3, 8))
DTYPES = ("float32", "bfloat16", "int32")
EDGE_KINDS = ("Flow", "Anti", "Output", "Ordered")
ENGINES = ("DVE", "Pool", "Activation", "PE", "SP", "Unassigned")
BOUNDS = (
    (0, 2, 1),
    (0, 3, 1),
    (0, 1, 1),
    (1, 4, 2),
    (3, -1, -1),
    (5, 0, -2),
    (0, 0, 1),
    (4, 2, 1),
    (-2, 1, 1),
    (2, 5, -1),
)
"""Lower bound, upper bound and stride of drawn loops: none runs more than four times, some not at all."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A set of one location, or of several, that operands can name.

    Parameters
    ----------
    name, set_name : str
        The names of the first location and of the set.
    memory : str
        The type of the location.
    shape : tuple of int
        The logical shape.
    dtype : str
        The element type.
    pitch_bytes : int
        Bytes per partition.
    single : bool
        Whether the set holds this location alone.

    Examples
    --------
    >>> Storage("x", "x_set", "SB", (4, 8), "float32", 32).size
    128
    """

    name: str
    set_name: str
    memory: str
    shape: tuple[int, ...]
    dtype: str
    pitch_bytes: int
    single: bool = True

    @property
    def size(self) -> int:
        """Bytes of the location over all partitions."""
        return self.shape[0] * self.pitch_bytes

    @property
    def pitch(self) -> int:
        """Elements from one partition to the next."""
        return self.pitch_bytes // bir.ITEM_BYTES[self.dtype]


@dataclass(slots=True)
class Placed:
    """A drawn row and the loops around it, outermost first.

    Parameters
    ----------
    row : dict
        The instruction.
    path : tuple of dict
        The loops that hold it.
    axes : tuple of str
        Their axes.

    Examples
    --------
    >>> Placed({"name": "x"}, (), ()).row["name"]
    'x'
    """

    row: Json
    path: tuple[Json, ...]
    axes: tuple[str, ...]


Axes = dict[str, range]


def pitch_bytes(shape: Sequence[int], dtype: str) -> int:
    """Return the bytes of everything but the first dimension.

    Parameters
    ----------
    shape : sequence of int
        A shape.
    dtype : str
        The element type.

    Returns
    -------
    int
        The bytes.

    Examples
    --------
    >>> pitch_bytes((2, 3, 8), "bfloat16")
    48
    """
    total = bir.ITEM_BYTES[dtype]
    for extent in shape[1:]:
        total *= extent
    return total


@dataclass(slots=True)
class BodyDrawer:
    """Draws the blocks of one function.

    Parameters
    ----------
    source : Source
        What it draws from.
    version : int
        The version of expressions.
    prefix : str
        What names of instructions begin with.
    storages : list of Storage
        What operands can name.
    registers : list of str
        What register operands can name.
    call : callable, optional
        Draws a call-site, or `None` when there is none to draw.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> BodyDrawer(Simplest(), 2, "I-").rows(2, 0)
    [{'engine': 'DVE', 'ins': [...], 'name': 'I-0', 'opcode': 'TensorCopy', 'outs': [...]}, ...]
    """

    source: Source
    version: int
    prefix: str
    storages: list[Storage] = field(default_factory=list[Storage])
    registers: list[str] = field(default_factory=list[str])
    call: Callable[[bool], Json | None] | None = None
    placed: list[Placed] = field(default_factory=list[Placed])
    _loops: int = 0

    def rows(self, count: int, depth: int, axes: Axes | None = None, path: tuple[Json, ...] = ()) -> list[Json]:
        """Return so many rows, with loops up to a depth; edges are added by `add_edges` when all rows are drawn."""
        axes = axes or {}
        return [self._row(depth, axes, path) for _ in range(count)]

    def _row(self, depth: int, axes: Axes, path: tuple[Json, ...]) -> Json:
        s = self.source
        s.begin()
        if depth and s.chance(30):
            return self._loop(depth, axes, path)
        row = self.call(bool(path)) if self.call is not None and s.chance(30) else None
        if row is None:
            row = self._plain(axes)
        self._place(row, axes, path)
        return row

    def _place(self, row: Json, axes: Axes, path: tuple[Json, ...]) -> None:
        self.placed.append(Placed(row, path, tuple(axes)))
        if axes and row["opcode"] != "Loop" and self.source.chance(30):
            row["loopnest"] = list(axes)

    def name(self) -> str:
        """Return a name for an instruction, sometimes one that was used."""
        s = self.source
        return f"{self.prefix}0" if s.chance(6) else s.fresh(self.prefix)

    def _plain(self, axes: Axes) -> Json:
        s = self.source
        opcode, ins, outs = s.of(
            (
                ("TensorCopy", 1, 1),
                ("NoOp", 0, 0),
                ("TensorTensor", 2, 1),
                ("DMACopy", 1, 1),
                ("Activation", 1, 1),
                ("Iota", 0, 1),
                ("Matmult", 2, 1),
                ("RegisterAlu", 0, 0),
                ("CustomOp", 1, 1),
                ("BrandNewOp", 1, 1),
            )
        )
        row: Json = {"name": self.name(), "opcode": opcode, "engine": s.of(ENGINES)}
        row["ins"] = [self.operand(axes, "ins") for _ in range(ins)]
        row["outs"] = [self.operand(axes, "outs") for _ in range(outs)]
        if opcode == "RegisterAlu" and self.registers:
            row["ins"] = [self._register_access(), bir.immediate(1, "int32")]
            row["outs"] = [self._register_access()]
        self._keys(row, opcode, axes)
        s.sprinkle(row, _HEADER, 20)
        s.unknown(row, 5)
        return {key: row[key] for key in sorted(row)}

    def _keys(self, row: Json, opcode: str, axes: Axes) -> None:
        s = self.source
        if opcode == "TensorTensor":
            row["op"] = s.of(("add", "mult", "max"))
        elif opcode == "DMACopy":
            row["mode"] = "Copy"
        elif opcode == "Activation":
            row |= {"func": s.of(("Exp", "Copy")), "scale": s.of((1.0, 0.5, 1)), "acc": "Idle", "alpha": 0.0}
        elif opcode == "Iota":
            row |= {"base": self.value(axes), "pattern": [[1, 8]], "channel_multiplier": self.value(axes)}
        elif opcode == "Matmult":
            row |= {"accumulation_flag": self.value(axes), "tile_position": [self.value(axes), 0]}
        if axes and s.chance(8):
            row["order"] = [self.expression(axes) for _ in range(s.digit(3))]

    # operands

    def operand(self, axes: Axes, role: str) -> Json:
        """Return an operand that names something, or an immediate."""
        s = self.source
        form = s.digit(16)
        if role == "ins" and form == 12:
            return bir.immediate(s.of((3, -1)), "int32")
        if role == "ins" and form == 13:
            return self._symbolic_immediate(axes)
        if form == 14 and self.registers:
            return self._register_access()
        if not self.storages:
            return {"dtype": "int32", "kind": "imm_array", "value_array": [1, 2]}
        storage = s.of(self.storages)
        if form == 15 and self.registers:
            return self._register_pattern(storage)
        if storage.single and s.chance(60 if axes else 10):
            return self._symbolic(storage, axes)
        return self._physical(storage)

    def _register_access(self) -> Json:
        return bir.register_access(self.source.of(self.registers))

    def _register_pattern(self, storage: Storage) -> Json:
        s = self.source
        more: Json = {"reg_ap_offset": s.of(self.registers)} if s.chance(50) else {}
        return bir.record(
            kind="register_ap",
            ap=[[storage.pitch, storage.shape[0]], [1, 1]],
            dtype=storage.dtype,
            memsetref=storage.set_name,
            memref=storage.name if s.chance(30) else None,
            regref=s.of(self.registers),
            **more,
        )

    def _physical(self, storage: Storage) -> Json:
        s = self.source
        columns = 1 + s.digit(storage.pitch)
        free, offset = [1, columns], s.digit(storage.pitch - columns + 1)
        if s.chance(10):
            free, offset = [-1, columns], columns - 1
        more: Json = {}
        if self.registers and s.chance(10):
            term = {"coef": storage.pitch, "offset_expr": self._runtime()}
            more = {"dynamic_ap_info": {"aff_expr": [term], "c": 0, "indirect_dim": 0, "indirect_dim_max_index": 4}}
        operand = bir.access(
            storage.name,
            [[storage.pitch, storage.shape[0]], free],
            storage.dtype,
            offset=offset,
            set_name=storage.set_name,
            full_keys=s.chance(20),
            **more,
        )
        if s.chance(20):
            del operand["memsetref"]
        return operand

    def _runtime(self) -> Json:
        return {"kind": "IntRuntimeValueKind", "regref": self.source.of(self.registers)}

    def _symbolic(self, storage: Storage, axes: Axes) -> Json:
        addresses = [self.bounded(axes, extent) for extent in storage.shape]
        kind = "symbolic_pwap" if self.source.chance(10) else "symbolic_ap"
        pattern = [[storage.pitch, 1], [1, 1]]
        return symbolic(storage.set_name, addresses, pattern, storage.dtype, kind=kind, full_keys=False)

    def _symbolic_immediate(self, axes: Axes) -> Json:
        s = self.source
        values = [1.5, 2, "inf", 4][: 1 + s.digit(4)]
        listed = [{"value": value} if s.chance(70) else value for value in values]
        return bir.record(
            kind="symbolic_imm_value", dtype="float32", value_list=listed, expr=self.bounded(axes, len(values))
        )

    # expressions

    def constant(self, value: int) -> Json:
        """Return the expression of a constant."""
        return affine_old({}, value) if self.version == 1 else affine({}, value)

    def bounded(self, axes: Axes, bound: int) -> Json:
        """Return an expression that is at least 0 and less than the bound in every iteration."""
        s = self.source
        if not axes or s.chance(30):
            return self.constant(s.digit(bound))
        axis = s.of(list(axes))
        factor = s.of((1, 2, -1, 3))
        reached = [factor * value for value in axes[axis]] or [0]
        low, high = min(reached), max(reached)
        if high - low < bound and s.chance(70):
            shift = s.digit(bound - (high - low)) - low
            return affine_old({axis: factor}, shift) if self.version == 1 else self._spelled(axis, factor, shift)
        if self.version == 1:
            return affine_old({axis: factor}, s.digit(8), op="Mod", op_param=bound)
        return modulo(self.expression(axes), bound)

    def _spelled(self, axis: str, factor: int, shift: int) -> Json:
        """Return `factor * axis + shift` in one of its spellings."""
        form = self.source.digit(3)
        if form == 0:
            return affine({axis: factor}, shift)
        if form == 1:
            return added(multiplied(induction(axis), factor), affine({}, shift))
        return added(affine({}, shift - 2), affine({axis: factor}), affine({}, 2))

    def expression(self, axes: Axes, depth: int = 2) -> Json:
        """Return any expression that has a value in every iteration."""
        s = self.source
        names = list(axes)
        if self.version == 1:
            terms = {s.of(names): s.digit(9) - 3} if names and s.chance(80) else {}
            operation: Json = {"op": s.of(("Mod", "Div")), "op_param": 1 + s.digit(4)} if s.chance(30) else {}
            return {"kind": "ShardIDKind", "ub": 2} if s.chance(5) else affine_old(terms, s.digit(9) - 3, **operation)
        form = s.digit(8 if depth else 3)
        if form == 0 or not names:
            return affine({}, s.digit(9) - 3)
        if form == 1:
            return affine({name: s.digit(7) - 2 for name in s.some(names)}, s.digit(9) - 3)
        if form == 2:
            return induction(s.of(names))
        if form == 3:
            return {"kind": "ShardIDKind", "ub": 2}
        inner = self.expression(axes, depth - 1)
        if form == 4:
            return added(inner, self.expression(axes, depth - 1))
        if form == 5:
            return multiplied(inner, s.digit(5) - 2)
        return (floor_divided if form == 6 else modulo)(inner, 1 + s.digit(4))

    def value(self, axes: Axes) -> Any:
        """Return the value of a member that may be an expression."""
        s = self.source
        if not s.chance(50):
            return s.digit(4)
        if self.version == 2 and self.registers and s.chance(20):
            # known only at run time: what can be folded is folded
            folded = affine(dict.fromkeys(axes, 2), 3)
            if s.chance(50):
                return {**folded, "terms": [*folded["terms"], {"coeff": 4, "idx": self._runtime()}]}
            return added(affine({}, 1), self._runtime(), folded)
        return self.expression(axes)

    # loops

    def _loop(self, depth: int, axes: Axes, path: tuple[Json, ...]) -> Json:
        s = self.source
        lower, upper, stride = s.of(BOUNDS)
        # an inner loop may hide the axis of an outer one
        axis = s.of(("i", "j", "k"))
        bounds: Json = {"name": axis, "stride": stride, "ub": upper}
        if lower or s.chance(70):
            bounds["lb"] = lower
        for key in ("lb", "ub", "stride"):
            if key in bounds and s.chance(6):
                bounds[key] = self.constant(bounds[key])
        row: Json = {"LoopAxis": {key: bounds[key] for key in sorted(bounds)}, "opcode": "Loop"}
        if s.chance(70):
            # unlike those of other instructions, names of loops are not given twice
            row |= {"engine": "Unassigned", "ins": [], "outs": [], "name": f"loop{self.prefix}{self._loops}"}
            self._loops += 1
        s.sprinkle(row, (("isParallel", (True,)), ("loopnest", (list(axes),)), ("unroll", (1,))), 20)
        self._place(row, axes, path)
        inner = {name: values for name, values in axes.items() if name != axis}
        inner[axis] = range(lower, upper, stride)
        body = self.rows(s.count(3), depth - 1, inner, (*path, row))
        row["blocks"] = [bir.block("block0", body)]
        ordered = {key: row[key] for key in sorted(row)}
        row.clear()
        row.update(ordered)
        return row

    # edges

    def add_edges(self, percent: int = 45) -> None:
        """Give drawn rows edges of all three relations on each other, and waits for each other."""
        s = self.source
        named = [item for item in self.placed if "name" in item.row]
        for index, item in enumerate(named):
            if not s.chance(percent):
                continue
            s.begin()
            for relation in s.some(("dependencies", "loop_carried_dependencies", "unroll_dependencies")):
                entries = [self._edge(relation, item, index, named) for _ in range(1 + s.digit(2))]
                entries = [entry for entry in entries if entry is not None]
                if entries:
                    _insert(item.row, relation, entries)
            if item.row["opcode"] not in ("NKIKernel", "Loop") and s.chance(15):
                _insert(item.row, "sync_info", self._sync(named))

    def _edge(self, relation: str, item: Placed, index: int, named: list[Placed]) -> Any:
        s = self.source
        kind = s.of((*EDGE_KINDS, 4))
        if relation == "loop_carried_dependencies":
            other = named[s.digit(len(named))]
            form = s.digit(4)
            entry: list[Any] = [other.row["name"], kind]
            if other is not item and not _apart(item, other):
                return None
            return (other.row["name"], entry, [*entry, [1 + s.digit(2)]], [*entry, 1 + s.digit(2)])[form]
        # mostly what stands earlier, sometimes what is to come
        reach = len(named) if s.chance(20) else index
        if not reach:
            return None
        other = named[s.digit(reach)]
        if other is item or not _apart(item, other):
            return None
        name = other.row["name"]
        if relation == "dependencies":
            return name if s.chance(40) else [name, kind]
        loops = "Loop" in (item.row["opcode"], other.row["opcode"])
        if loops or sum(known.row["name"] == name for known in named) > 1:
            return None
        axes = dict.fromkeys(item.axes, range(1))
        return [name, kind, [self.expression(axes, 1) for _ in other.path], []]

    def _sync(self, named: list[Placed]) -> Json:
        s = self.source
        wait = {"from": s.of(named).row["name"] if s.chance(80) else "dma0", "id": s.digit(9), "wait_value": 1}
        update = {"id": s.digit(9), "update_value": 1}
        form = s.digit(3)
        return ({"on_wait": [wait]}, {"on_update": [update]}, {"on_update": [update], "on_wait": [wait]})[form]


def _apart(one: Placed, other: Placed) -> bool:
    """Tell whether neither row holds the other."""
    return not any(holder is other.row for holder in one.path) and not any(holder is one.row for holder in other.path)


def _insert(row: Json, key: str, value: Any) -> None:
    """Add a member in its sorted place."""
    row[key] = value
    ordered = {name: row[name] for name in sorted(row)}
    row.clear()
    row.update(ordered)


_HEADER = (
    ("optin_passes", (15, 3, 12, [], ["pass_a"])),
    ("origin", ("NKI", "Internal")),
    ("debug", ({"filename": "k.py", "lineno": 7}, {})),
    ("engine_id", (0,)),
    ("predicates", ([],)),
    ("sync_info", ({},)),
    ("scheduled_start", (-1, 2**40)),
)


def storage_set(source: Source, storage: Storage, kind: str, **place: Any) -> Json:
    """Return the set of a storage, with what varies in it.

    Parameters
    ----------
    source : Source
        What it draws from.
    storage : Storage
        The storage.
    kind : str
        The kind of the tensor.
    **place
        Members of its location.

    Returns
    -------
    dict
        The set.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> storage_set(Simplest(), Storage("x", "x_set", "SB", (4, 8), "float32", 32), "Internal")["name"]
    'x_set'
    """
    dims = [storage.shape[0], storage.pitch_bytes]
    first = bir.location(storage.name, storage.memory, dims, full_keys=source.chance(30), **place)
    places = [first]
    if not storage.single:
        places.append({**first, "name": f"{storage.name}.b", "tensor_id": 1})
    item = bir.memory_set(
        storage.set_name,
        [source.unknown(one, 4) for one in places],
        dtype=storage.dtype,
        shape=storage.shape,
        kind=kind,
        tensor_class=bir.TENSOR_CLASS[storage.memory],
        full_keys=source.chance(30),
    )
    return source.unknown(item, 4)


def draw_storage(source: Source, name: str, memories: Sequence[str] = ("SB", "DRAM", "PSUM")) -> Storage:
    """Return a storage of any shape.

    Parameters
    ----------
    source : Source
        What it draws from.
    name : str
        The location's name.
    memories : sequence of str
        The memory types to choose from.

    Returns
    -------
    Storage
        The storage.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> draw_storage(Simplest(), "x").memory
    'SB'
    """
    shape, dtype = source.of(SHAPES), source.of(DTYPES)
    return Storage(name, f"{name}_set", source.of(memories), shape, dtype, pitch_bytes(shape, dtype))
