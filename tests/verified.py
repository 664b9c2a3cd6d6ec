"""Sound modules around one instruction, and what the verifier says of them once they are spoilt."""

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import arrowir as air
from tests.single_pass import Json, read

SIZES = {
    **dict.fromkeys(("uint8", "int8", "float8e4", "float8_e4m3fn", "float8_e8m0fnu", "float8e3", "float8e5"), 1),
    **dict.fromkeys(("uint16", "int16", "bfloat16", "float16", "float4_e2m1fn_x4"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "float32r", "float8_e4m3fn_x4", "float8_e5m2_x4"), 4),
    **dict.fromkeys(("uint64", "int64"), 8),
}


@dataclass(frozen=True)
class Tile:
    """A tensor that the instruction reads or writes, and how."""

    memory: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    base: int = 0
    ap: tuple[tuple[int, int], ...] | None = None
    offset: int = 0
    more: Json = field(default_factory=dict)
    """Further members of the operand."""

    @property
    def row(self) -> int:
        """Elements of a partition."""
        return math.prod(self.shape[1:])

    def pattern(self) -> list[list[int]]:
        if self.ap is not None:
            return [list(pair) for pair in self.ap]
        pairs = [[self.row, self.shape[0]]]
        for k, size in enumerate(self.shape[1:], 1):
            pairs.append([math.prod(self.shape[k + 1 :]), size])
        return pairs


def sb(*shape: int, dtype: str = "float32", **how: Any) -> Tile:
    return Tile("SB", shape, dtype, **how)


def psum(*shape: int, dtype: str = "float32", **how: Any) -> Tile:
    return Tile("PSUM", shape, dtype, **how)


def dram(*shape: int, dtype: str = "float32", **how: Any) -> Tile:
    return Tile("DRAM", shape, dtype, **how)


def imm(value: float, dtype: str = "float32") -> Json:
    return {"kind": "imm_value", "dtype": dtype, "value": value}


def reg(dtype: str = "int32", name: str = "r") -> Json:
    return {"kind": "register_access", "dtype": dtype, "regref": name}


def by_index(argument: int, rows: int) -> Json:
    """Members of an operand of which a tensor of indices chooses the rows."""
    term = {"offset_expr": {"kind": "IndirectArgId", "arg_id": argument}, "coef": 1}
    return {"dynamic_ap_info": {"aff_expr": [term], "num_tensor_indirect_indices": rows, "c": 0}}


Operand = Tile | Json


class Module:
    """A document of one function, in which `x` is the instruction that a test is about."""

    def __init__(self, arch: str = "gen3") -> None:
        self.main: Json = {"name": "f", "allocations": [], "blocks": [{"name": "b", "instructions": []}]}
        self.doc: Json = {"version": 2, "arch": arch, "attributes": {}, "functions": [self.main]}
        self.x: Json = {}
        self._place = {"SB": 0, "PSUM": 0}

    @property
    def rows(self) -> list[Json]:
        """The instructions of the first block."""
        return self.main["blocks"][0]["instructions"]

    def set_of(self, name: str) -> Json:
        return next(a for a in self.main["allocations"] if a["name"] == f"{name}_set")

    def place_of(self, name: str) -> Json:
        return self.set_of(name)["memorylocations"][0]

    def register(self, name: str = "r") -> None:
        self.main["allocations"].append({"Skind": "register", "name": name})

    def tensor(self, name: str, tile: Tile, kind: str = "Internal") -> Json:
        """Add a tensor, and return an operand that accesses it as the tile says."""
        size = SIZES[tile.dtype]
        place: Json = {
            "name": name,
            "type": tile.memory,
            "dims": [tile.shape[0], tile.row * size],
            "addr": 0,
            "tensor_id": 0,
        }
        if tile.memory == "SB":
            place |= {"addr": self._place["SB"], "allocated": True, "base": tile.base}
            self._place["SB"] += -(-tile.row * size // 64) * 64
        elif tile.memory == "PSUM":
            place |= {"addr": 0, "allocated": True, "base": tile.base, "bank": self._place["PSUM"]}
            self._place["PSUM"] += -(-tile.row * size // 2048)
        self.main["allocations"].append(
            {
                "Skind": "memory_location_set",
                "name": f"{name}_set",
                "kind": kind,
                "dtype": tile.dtype,
                "tensor_shape": list(tile.shape),
                "memorylocations": [place],
            }
        )
        return {
            "kind": "physical_ap",
            "memref": name,
            "ap": tile.pattern(),
            "offset": tile.offset,
            "dtype": tile.dtype,
            **deepcopy(tile.more),
        }

    def add(self, name: str, opcode: str, ins: Sequence[Json] = (), outs: Sequence[Json] = (), **keys: Any) -> Json:
        row = {"name": name, "opcode": opcode, "engine": "Unassigned", "ins": [*ins], "outs": [*outs], **keys}
        self.rows.append(row)
        return row

    def ir(self) -> air.IR:
        return read(self.doc)

    def codes(self, levels: Any = None) -> set[str]:
        """The rules that the module breaks."""
        return set(air.verify(self.ir(), levels)["rule"])


def sound(
    opcode: str,
    ins: Sequence[Operand] = (),
    outs: Sequence[Operand] = (),
    *,
    inner: Sequence[Operand] = (),
    arch: str = "gen3",
    **keys: Any,
) -> Module:
    """Return a module with one instruction of an opcode; what it reads is written, and what it writes is read."""
    made = Module(arch)
    if any("regref" in o for o in (*ins, *outs) if isinstance(o, dict)):
        made.register()

    def operand(name: str, value: Operand, kind: str) -> Json:
        if isinstance(value, dict):
            return deepcopy(value)
        return made.tensor(name, value, kind if value.memory == "DRAM" else "Internal")

    sources = [operand(f"in{k}", v, "ExternalInput") for k, v in enumerate(ins)]
    indices = [operand(f"ix{k}", v, "ExternalInput") for k, v in enumerate(inner)]
    targets = [operand(f"out{k}", v, "ExternalOutput") for k, v in enumerate(outs)]
    for name in [*(f"in{k}" for k in range(len(ins))), *(f"ix{k}" for k in range(len(inner)))]:
        if any(a["name"] == f"{name}_set" and a["kind"] == "Internal" for a in made.main["allocations"]):
            _fill(made, name)
    made.x = made.add("x", opcode, sources, targets, **keys)
    if indices:
        made.x["indirection_ins"] = indices
    read_later = [whole(made, f"out{k}") for k, v in enumerate(outs) if isinstance(v, Tile) and v.memory != "DRAM"]
    if read_later:
        made.add("sink", "Sink", read_later)
    return made


def _fill(made: Module, name: str) -> None:
    made.add(f"fill_{name}", "Memset", [], [whole(made, name)], mode="Const", constant=0)


def whole(made: Module, name: str) -> Json:
    """Return an access to all of a tensor."""
    owner = made.set_of(name)
    partitions, size = owner["memorylocations"][0]["dims"]
    row = size // SIZES[owner["dtype"]]
    ap = [[row, partitions], [1, row]]
    return {"kind": "physical_ap", "memref": name, "ap": ap, "offset": 0, "dtype": owner["dtype"]}


Change = Callable[[Module], object]


@dataclass(frozen=True)
class Case:
    """A rule, a sound module, and what breaks that rule in it, and no other."""

    code: str
    base: Callable[[], Module]
    change: Change
    levels: Any = None

    def __repr__(self) -> str:
        return self.code


Broken = dict[str, tuple[set[str], set[str]]]
"""For each case the rules that the sound module breaks, and those that the spoilt one does."""


def broken(cases: Sequence[Case]) -> Broken:
    """Verify all modules of some cases, in one sweep for each choice of levels."""
    found: Broken = {}
    for levels in dict.fromkeys(case.levels for case in cases):
        mine = [case for case in cases if case.levels == levels]
        modules: list[air.IR] = []
        for case in mine:
            made = case.base()
            modules.append(read(made.doc))
            case.change(made)
            modules.append(read(made.doc))
        table = air.verify(air.concat(modules), levels)
        rules: list[set[str]] = [set() for _ in modules]
        for module, rule in table.select("module_id", "rule").iter_rows():
            rules[module].add(rule)
        found |= {case.code: (rules[2 * k], rules[2 * k + 1]) for k, case in enumerate(mine)}
    assert len(found) == len(cases), "a rule has two cases"
    return found


def keys(**changed: Any) -> Change:
    """Change members of the instruction; None removes one."""

    def change(made: Module) -> None:
        for key, value in changed.items():
            if value is None:
                made.x.pop(key, None)
            else:
                made.x[key] = value

    return change


def operand(member: str, place: int, **changed: Any) -> Change:
    """Change members of an operand of the instruction."""

    def change(made: Module) -> None:
        made.x[member][place].update(deepcopy(changed))

    return change


def replaced(member: str, place: int, value: Json) -> Change:
    """Put another operand in place of one."""

    def change(made: Module) -> None:
        made.x[member][place] = deepcopy(value)
        if "regref" in value and not any(a.get("Skind") == "register" for a in made.main["allocations"]):
            made.register(value["regref"])

    return change


def location(name: str, **changed: Any) -> Change:
    """Change members of a location."""
    return lambda made: made.place_of(name).update(deepcopy(changed))


def both(*changes: Change) -> Change:
    """Make several changes."""

    def change(made: Module) -> None:
        for each in changes:
            each(made)

    return change


def dropped(made: Module, name: str) -> None:
    """Take a tensor away, and what writes and reads it beside the instruction."""
    made.rows[:] = [row for row in made.rows if row["name"] != f"fill_{name}"]
    for row in made.rows:
        if row is not made.x:
            row["ins"] = [o for o in row["ins"] if o.get("memref") != name]
    made.main["allocations"].remove(made.set_of(name))


def retyped(member: str, place: int, dtype: str) -> Change:
    """Give the tensor of an operand another dtype, of the same size or a smaller one."""

    def change(made: Module) -> None:
        name = made.x[member][place]["memref"]
        held = made.set_of(name)
        held["memorylocations"][0]["dims"][1] *= SIZES[dtype] / SIZES[held["dtype"]]
        held["memorylocations"][0]["dims"][1] = int(held["memorylocations"][0]["dims"][1])
        held["dtype"] = dtype
        for row in made.rows:
            for o in (*row["ins"], *row["outs"], *row.get("indirection_ins", ())):
                if o.get("memref") == name:
                    o["dtype"] = dtype

    return change


def instead(member: str, place: int, value: Json) -> Change:
    """Put another operand in place of a tensor, which goes."""

    def change(made: Module) -> None:
        dropped(made, made.x[member][place]["memref"])
        replaced(member, place, value)(made)

    return change


def without(member: str, place: int) -> Change:
    """Take an operand away."""
    return lambda made: made.x[member].pop(place)


def again(member: str, place: int = 0) -> Change:
    """Repeat an operand."""
    return lambda made: made.x[member].append(deepcopy(made.x[member][place]))
