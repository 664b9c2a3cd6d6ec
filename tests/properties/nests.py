"""Drawn loop nests with many edges of every kind between instructions and loops, denser than documents tend to be."""

from collections.abc import Sequence
from random import Random
from typing import Any

Json = dict[str, Any]

AXES = ("i", "j", "k")
BOUNDS: tuple[Json, ...] = (
    {"lb": 0, "ub": 2, "stride": 1},
    {"ub": 3, "stride": 1},
    {"lb": 5, "ub": -1, "stride": -2},
    {"lb": 0, "ub": 0, "stride": 1},
    {"lb": 3, "ub": 3, "stride": -1},
    {"lb": 1, "ub": {"c": 4, "kind": "AffExprKind", "terms": []}, "stride": 2},
    {"lb": 0, "ub": 1, "stride": 1},
)
STORAGE: list[Json] = [
    {
        "Skind": "memory_location_set",
        "name": f"{name}_set",
        "kind": "Internal",
        "dtype": "float32",
        "tensor_shape": shape,
        "memorylocations": [{"name": name, "type": memory, "addr": 0, "dims": [128, 256]}],
    }
    for name, memory, shape in (("a", "SB", [128, 64]), ("b", "DRAM", [4, 64]))
] + [{"Skind": "register", "name": "r"}]


class NestDrawer:
    """Draws the instructions of one function.

    Parameters
    ----------
    random : random.Random
        Where choices come from.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.depth = random.randint(1, 4)
        self.repeats = random.random() < 0.2
        self.density = random.choice([0.2, 0.5, 0.7])
        self.names: list[str] = []
        self.written: list[tuple[Json, tuple[str, ...]]] = []
        self.loops_of: dict[str, int] = {}

    def document(self) -> Json:
        """Return a module of one function."""
        random = self.random
        blocks = [{"name": f"B{n}", "instructions": self.rows((), 1)} for n in range(random.choice([1, 1, 2]))]
        for instruction, axes in self.written:
            self.add_names(instruction, axes)
        attributes: Any = random.choice([[], ["need_unroll", "x"], {"need_unroll": True}])
        function = {"name": "main", "attributes": attributes, "allocations": STORAGE, "blocks": blocks}
        return {"version": 2, "arch": "gen3", "functions": [function]}

    def rows(self, axes: tuple[str, ...], least: int) -> list[Json]:
        """Draw the instructions of a block inside loops over some axes."""
        return [self.row(axes) for _ in range(self.random.randint(least, 3))]

    def row(self, axes: tuple[str, ...]) -> Json:
        """Draw an instruction or a loop."""
        random = self.random
        if len(axes) == self.depth or random.random() < 0.55:
            instruction = self.instruction(axes)
            self.written.append((instruction, axes))
            return instruction
        axis = random.choice(AXES)
        nest: Json = {"opcode": "Loop", "LoopAxis": {"name": axis, **random.choice(BOUNDS)}}
        if random.random() < 0.9:
            nest |= {"name": self.name("L", axes), "engine": "SP", "ins": [], "outs": []}
        self.written.append((nest, axes))
        nest["blocks"] = [{"name": "b", "instructions": self.rows((*axes, axis), 0)}]
        return nest

    def name(self, start: str, axes: tuple[str, ...]) -> str:
        """Draw a name: a new one, one that others have, or one that unrolling may want."""
        random = self.random
        name = f"{start}{len(self.names)}"
        if self.repeats and random.random() < 0.4:
            name = f"{start}{random.randint(0, 2)}"
        elif self.names and random.random() < 0.05:
            name = f"{random.choice(self.names)}-{random.randint(0, 2)}"
        self.names.append(name)
        self.loops_of.setdefault(name, len(axes))
        return name

    def instruction(self, axes: tuple[str, ...]) -> Json:
        """Draw an instruction without edges."""
        random = self.random
        made: Json = {
            "name": self.name("I", axes),
            "opcode": random.choice(["NoOp", "GenericIndirectLoad"]),
            "engine": "PE",
        }
        made |= {"ins": [], "outs": []}
        if random.random() < 0.3:
            made[random.choice(["ins", "outs"])].append(self.operand(axes, made["opcode"]))
        if random.random() < 0.3:
            made["attr"] = self.affine(axes)
        if random.random() < 0.1:
            made["deep"] = {"x": [self.expression(axes, 2), 1.5]}
        if random.random() < 0.3:
            made["loopnest"] = list(axes)
        return made

    def operand(self, axes: tuple[str, ...], opcode: str) -> Json:
        """Draw an operand that unrolling changes."""
        random = self.random
        if random.random() < 0.3:
            immediate = {"kind": "symbolic_imm_value", "dtype": "float32", "expr": self.affine(axes)}
            return immediate | {"value_list": random.choice([[{"value": n} for n in range(20)], [{"value": "inf"}]])}
        addresses = [self.affine(axes), self.affine(axes)]
        if opcode == "GenericIndirectLoad":
            addresses[random.randint(0, 1)] = {"kind": "IndirectArgId", "arg_id": 1}
        made = {"kind": "symbolic_ap", "ap": [[1, 1]], "dtype": random.choice(["float32", "bfloat16"])}
        return made | {"memsetref": random.choice(["a_set", "b_set"]), "addrs": addresses}

    def affine(self, axes: Sequence[str]) -> Json:
        """Draw an expression with a small value."""
        chosen = [axis for axis in axes if self.random.random() < 0.4]
        terms = [
            {"idx": {"kind": "AffIVKind", "axis": axis}, "coeff": self.random.randint(0, 1)} for axis in chosen[:2]
        ]
        return {"kind": "AffExprKind", "terms": terms, "c": self.random.randint(0, 1)}

    def expression(self, axes: Sequence[str], depth: int) -> Any:
        """Draw any expression."""
        random = self.random
        inner = self.expression(axes, depth - 1) if depth else self.affine(axes)
        return random.choice(
            [
                self.affine(axes),
                random.randint(-9, 9),
                {"terms": [{"AxisLabel": axis, "coef": 2} for axis in axes], "c": 1},
                {"terms": [], "c": 9, "op": random.choice(["Div", "Mod", "CCGetRank"]), "op_param": 4},
                {"kind": "ShardIDKind", "ub": 2},
                {"kind": "IntRuntimeValueKind", "regref": random.choice(["r", "gone"])},
                {"kind": "SumKind", "n_terms": 2, "terms": [inner, self.affine(axes)]},
                {"kind": "MultKind", "var": inner, "scale": -3},
                {"kind": random.choice(["FloorDivKind", "ModuloKind", "CCDivKind"]), "numer": inner, "denom": 3},
                {"kind": "AffExprKind", "terms": [{"idx": inner, "coeff": 2}], "c": 1},
            ]
        )

    def add_names(self, instruction: Json, axes: tuple[str, ...]) -> None:
        """Give an instruction edges, and other members that name instructions."""
        random = self.random
        for key in ("dependencies", "loop_carried_dependencies", "unroll_dependencies"):
            entries: list[Any] = []
            while random.random() < (self.density if key == "dependencies" else self.density / 2):
                entries.append(self.entry(key, axes))
            if entries or random.random() < 0.05:
                instruction[key] = entries
        if instruction["opcode"] == "NoOp" and random.random() < 0.1:
            instruction["sync_info"] = {"on_wait": [{"from": self.target(), "id": 1, "wait_value": 1}]}
        if instruction["opcode"] == "NoOp" and random.random() < 0.05:
            instruction |= {"opcode": "BranchHint", "associate_branch": self.target()}
        if random.random() < 0.5:
            ordered = dict(sorted(instruction.items()))
            instruction.clear()
            instruction.update(ordered)

    def target(self) -> str:
        """Draw the name of an instruction or loop, seldom of nothing."""
        return self.random.choice(self.names) if self.names and self.random.random() < 0.97 else "gone"

    def entry(self, key: str, axes: tuple[str, ...]) -> Any:
        """Draw an edge."""
        random, name, kind = self.random, self.target(), self.random.choice(["Flow", "Anti", 4])
        if key == "dependencies":
            return random.choice([name, [name], [name, kind], [name, kind, "x"]])
        if key == "loop_carried_dependencies":
            return random.choice([name, [name, kind], [name, kind, 2], [name, kind, [1]]])
        return [name, kind, [self.affine(axes) for _ in range(self.loops_of.get(name, 0))], []]


def nest(random: Random) -> Json:
    """Draw a module."""
    return NestDrawer(random).document()
