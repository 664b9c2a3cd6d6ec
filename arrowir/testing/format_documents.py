"""Drawing documents that exercise the format: all kinds of operands, storage and expressions, odd names and values."""

from dataclasses import dataclass, field
from typing import Any

from arrowir.testing.bir import Json
from arrowir.testing.drawing import ODD_NAMES, Source
from arrowir.testing.expressions import affine_old
from arrowir.testing.format_values import (
    CLASSES,
    DMA_BLOCK_RARE,
    DTYPES,
    EDGE_KINDS,
    ENGINES,
    FLOATS,
    HEADER_RARE,
    INDIRECT_RARE,
    KINDS,
    LOCATION_RARE,
    LOOP_RARE,
    MEMORIES,
    MODULE_RARE,
    OPCODES,
    ORIGINS,
    PLACEMENT,
    SET_RARE,
    STEPS,
)
from arrowir.testing.opcode_keys import ENUMS, keys_of


@dataclass(slots=True)
class _Names:
    """The names that references of one function can resolve to."""

    locations: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    sets: list[str] = field(default_factory=list[str])
    registers: list[str] = field(default_factory=list[str])
    instructions: list[str] = field(default_factory=list[str])
    blocks: list[str] = field(default_factory=list[str])
    axes: list[str] = field(default_factory=list[str])


class DocumentDrawer:
    """Draws one document.

    Parameters
    ----------
    source : Source
        What it draws from.
    bare_nonfinite : bool
        Floats may be infinite or no number.
    odd_names : bool
        Names may be awkward.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> sorted(DocumentDrawer(Simplest()).document())
    ['functions', 'version']
    """

    def __init__(self, source: Source, *, bare_nonfinite: bool = True, odd_names: bool = True) -> None:
        self.source = source
        self.bare_nonfinite = bare_nonfinite
        self.odd_names = odd_names
        self.version = 2
        self.functions: list[str] = []
        self.queues: list[str] = []
        self.dma_blocks: list[str] = []

    def document(self) -> Json:
        """Return the document."""
        s = self.source
        self.version = s.of((2, 1))
        document: Json = {"version": self.version}
        if s.chance(80):
            document["arch"] = s.of(("gen3", "sunda", "core_v4", "inferentia", "core_v5", "gen9"))
        if s.chance(60):
            document["attributes"] = self._module_attributes()
        self.functions = [self._name("sg000", 15) for _ in range(s.count(2))]
        kernels = [self._name("kernel", 15) for _ in range(s.between(0, 2))]
        self.functions += kernels
        self.queues = [self._name("q", 10) for _ in range(s.digit(3))] if s.chance(30) else []
        self.dma_blocks = [s.fresh("dmab") for _ in range(2)] if self.queues else []
        count = len(self.functions) - len(kernels)
        made = [self._function(name) for name in self.functions]
        document["functions"] = made[:count]
        self._kernels(document, made[count:])
        if self.queues or s.chance(10):
            document["queues"] = [self._queue(name) for name in self.queues]
        s.sprinkle(document, MODULE_RARE, 15)
        s.unknown(document)
        return s.order({name: document[name] for name in sorted(document)})

    def _kernels(self, document: Json, made: list[Json]) -> None:
        s = self.source
        if made:
            document["nki_functions"] = made if s.chance(20) else {"functions": made}
        elif s.chance(60):
            document["nki_functions"] = s.of(({"functions": []}, None, {}, []))

    def _module_attributes(self) -> Json:
        s = self.source
        attributes: Json = {}
        for name, value in s.some(
            (
                ("neuron_core_id", 1),
                ("previous_pass", "unroll"),
                ("neff_has_functions", True),
                ("loops_on_chip", [1, {"a": None}]),
            )
        ):
            attributes[name] = value
        return s.unknown(attributes, 20)

    def _name(self, prefix: str, odd: int = 10) -> str:
        """Return a name: mostly fresh, sometimes awkward, sometimes one that was used."""
        s = self.source
        if self.odd_names and s.chance(odd):
            return s.of(ODD_NAMES)
        if s.chance(8):
            return f"{prefix}0"
        return s.fresh(prefix)

    # functions

    def _function(self, name: str) -> Json:
        s = self.source
        names = _Names()
        function: Json = {"name": name}
        form = s.digit(5)
        if form < 3:
            function["attributes"] = ([], ["need_dce", "need_unroll"], {"need_unroll": True, "new": [1]})[form]
        function["allocations"] = [self._allocation(names) for _ in range(s.count(4))]
        for item in function["allocations"]:
            self._aliases(item, names)
        names.blocks = [self._name("Block", 5) for _ in range(s.count(3))]
        # references may point forward, so names come first
        names.instructions = [self._name("I-") for _ in range(4)]
        names.axes = []
        function["blocks"] = [self._block(block, names, 2) for block in names.blocks]
        if s.chance(20):
            function["origin"] = s.of(ORIGINS)
        if s.chance(10):
            function["optin_passes"] = s.of(([], ["pass_a"]))
        return s.unknown(function)

    def _allocation(self, names: _Names) -> Json:
        s = self.source
        s.begin()
        form = s.digit(10)
        if form == 8:
            name = self._name("r")
            names.registers.append(name)
            return s.unknown({"Skind": "register", "name": name, **({"dtype": "int32"} if s.chance(30) else {})})
        if form == 9 and s.chance(30):
            return s.unknown({"Skind": "brand_new_kind", "name": self._name("n")}, 50)
        name = self._name("t")
        item: Json = {"Skind": "memory_location_set", "name": f"{name}_set", "kind": s.of(KINDS)}
        if s.chance(70):
            item["tensor_class"] = s.of(CLASSES)
            if "Block" in item["tensor_class"] and s.chance(50):
                item |= {"NBlocks": 1 + s.digit(4), "isBlock": True}
        count = s.of((1, 1, 1, 2, 0))
        if count or s.chance(50):
            item["dtype"] = s.of(DTYPES)
        elif s.chance(50):
            item["dtype"] = None
        item["tensor_shape"] = [s.of((128, 1, 0, 32)), *[1 + s.digit(64) for _ in range(s.digit(3))]]
        item["memorylocations"] = [self._location(name, number, names, item) for number in range(count)]
        names.sets.append(item["name"])
        s.sprinkle(item, SET_RARE, 60)
        if s.chance(50):
            item["tensorId2MemLocSize"] = count
        return s.unknown(item)

    def _location(self, base: str, number: int, names: _Names, item: Json) -> Json:
        s = self.source
        name = base if number == 0 else f"{base}.{number}"
        place: Json = {"name": name, "type": s.of(MEMORIES), "addr": s.of((0, 0, 64, 2**40, 2**63 - 1))}
        place["dims"] = [s.of((128, 4, 0)), s.of((64, 2048, 1, 0))]
        if s.chance(70):
            place["Skind"] = "memory_location"
        for key in s.some(tuple(PLACEMENT)):
            place[key] = s.of(PLACEMENT[key])
        s.sprinkle(place, LOCATION_RARE, 25)
        names.locations.append((name, item["name"]))
        return s.unknown(place)

    def _aliases(self, item: Json, names: _Names) -> None:
        s = self.source
        for place in item.get("memorylocations", []):
            if place["type"] == "DRAM" and s.chance(20):
                entries = [self._location_name(names) for _ in range(s.digit(3))]
                place["alias"] = [
                    [set_name, name, s.of((3, 1))] if s.chance(70) else [name, s.of((3, 1))]
                    for name, set_name in entries
                ]
            if item["kind"] == "Pointer" and s.chance(70):
                place["pointer_ref_memloc"] = self._location_name(names)[0]

    # references

    def _location_name(self, names: _Names) -> tuple[str, str]:
        if names.locations and not self.source.chance(8):
            return self.source.of(names.locations)
        return "missing", "missing_set"

    def _set_name(self, names: _Names) -> str:
        return self.source.of(names.sets) if names.sets and not self.source.chance(8) else "missing_set"

    def _register(self, names: _Names) -> str:
        return self.source.of(names.registers) if names.registers and not self.source.chance(8) else "missing_r"

    def _instruction_name(self, names: _Names) -> str:
        return self.source.of(names.instructions) if not self.source.chance(8) else "missing_inst"

    # blocks

    def _block(self, name: str, names: _Names, depth: int) -> Json:
        s = self.source
        block: Json = {"name": name}
        block["instructions"] = [self._instruction(names, depth) for _ in range(s.count(4))]
        if s.chance(5):
            block["origin"] = "Penguin"
        return s.unknown(block, 5)

    def _loop(self, names: _Names, depth: int) -> Json:
        s = self.source
        axis = s.of(("i", "j", "k"))
        bounds: Json = {"name": axis}
        for key in ("lb", "ub", "stride"):
            if s.chance(85):
                bounds[key] = s.digit(7) - 2 if s.chance(85) else self._expression(names, 1)
        row: Json = {"opcode": "Loop", "LoopAxis": bounds}
        kind = s.digit(10)
        if kind == 8:
            row = {"opcode": "DynamicForLoop", "DynamicForLoopAxis": {"name": axis, "lb": 0, "stride": 1}}
            row["DynamicForLoopAxis"]["ub"] = {"kind": "IntRuntimeValueKind", "regref": self._register(names)}
        elif kind == 9:
            row = {"opcode": "DoWhile", "cond": self._expression(names, 1)}
        names.axes.append(axis)
        row["blocks"] = [self._block(f"block{number}", names, depth - 1) for number in range(s.digit(3))]
        names.axes.pop()
        if s.chance(50):
            row["name"] = self._instruction_name(names)
            self._header(row, names)
        s.sprinkle(row, LOOP_RARE, 15)
        return s.unknown(row)

    def _instruction(self, names: _Names, depth: int) -> Json:
        s = self.source
        s.begin()
        if depth and s.chance(12):
            return self._loop(names, depth)
        opcode = s.of(OPCODES)
        row: Json = {"name": self._instruction_name(names), "opcode": opcode, "engine": s.of(ENGINES)}
        row["ins"] = [self._operand(names, "ins") for _ in range(s.digit(3))]
        row["outs"] = [self._operand(names, "outs") for _ in range(s.digit(2))]
        if s.chance(8):
            row["indirection_ins"] = [self._operand(names, "ins") for _ in range(s.digit(2))]
        if s.chance(4):
            del row[s.of(("ins", "outs"))]
        for key, kind in s.some(keys_of(opcode)):
            row[key] = self._value(kind, names)
        self._header(row, names)
        return s.unknown(row)

    def _header(self, row: Json, names: _Names) -> None:
        s = self.source
        if s.chance(25):
            for key in s.some(("dependencies", "loop_carried_dependencies", "unroll_dependencies")):
                row[key] = [self._edge(key, names) for _ in range(s.digit(3))]
        s.sprinkle(row, HEADER_RARE, 40)
        if s.chance(10):
            row["sync_info"] = self._sync(names)
        if s.chance(8):
            row["loopnest"] = list(names.axes)
        if s.chance(5):
            row["order"] = [self._expression(names, 1) for _ in range(s.digit(3))]

    def _edge(self, relation: str, names: _Names) -> Any:
        s = self.source
        name = self._instruction_name(names)
        kind = s.of((*EDGE_KINDS, 4, 1))
        if relation == "unroll_dependencies":
            return [name, kind, [self._expression(names, 1) for _ in range(s.digit(2))], []]
        form = s.digit(4)
        if form == 0:
            return name
        if form >= 2 and relation == "loop_carried_dependencies":
            return [name, kind, [1 + s.digit(3)] if form == 2 else 1 + s.digit(3)]
        return [name, kind]

    def _sync(self, names: _Names) -> Json:
        s = self.source
        sync: Json = {}
        if s.chance(60):
            wait: Json = {"from": self._instruction_name(names), "id": s.digit(10), "wait_value": s.digit(10)}
            if s.chance(20):
                wait["wait_mode"] = "semaphore"
            sync["on_wait"] = [wait] * s.digit(3)
        if s.chance(60):
            sync["on_update"] = [s.unknown({"id": s.digit(10), "update_value": 1})]
        return s.unknown(sync, 5)

    # operands

    def _operand(self, names: _Names, role: str) -> Json:
        s = self.source
        dtype = s.of(("float32", "bfloat16", *DTYPES))
        kind = s.of(
            (
                "physical_ap",
                "physical_ap",
                "imm_value",
                "register_access",
                "symbolic_ap",
                "register_ap",
                "imm_array",
                "symbolic_imm_value",
                "symbolic_pwap",
            )
        )
        operand: Json = {"kind": kind, "dtype": dtype}
        if kind == "imm_value":
            operand["value"] = s.of((*self._floats(), 7, 2**64 - 1, -(2**63), True))
        elif kind == "imm_array":
            operand["value_array"] = [s.of((*self._floats(), 3)) for _ in range(s.digit(4))]
        elif kind == "symbolic_imm_value":
            values = [s.of((*self._floats(), 3)) for _ in range(s.digit(3))]
            operand["value_list"] = [{"value": value} if s.chance(80) else value for value in values]
            operand["expr"] = self._expression(names, 1)
        elif kind == "register_access":
            operand["regref"] = self._register(names)
        else:
            self._pattern(operand, kind, names)
        return s.unknown(operand, 5)

    def _pattern(self, operand: Json, kind: str, names: _Names) -> None:
        s = self.source
        operand["ap"] = [[s.of(STEPS), 1 + s.digit(128)] for _ in range(s.of((2, 2, 1, 3, 4, 5)))]
        if s.chance(30):
            operand["access_shape"] = [pair[1] for pair in operand["ap"]]
        if kind == "physical_ap":
            name, set_name = self._location_name(names)
            operand |= {"offset": s.of((0, 0, 64, 2**40)), "memref": name}
            if s.chance(80):
                operand["memsetref"] = set_name
            if s.chance(12):
                operand["dynamic_ap_info"] = self._dynamic(names) if s.chance(90) else None
            if s.chance(4):
                operand["memref_owner_func"] = s.of(self.functions) if self.functions else "missing"
        elif kind == "register_ap":
            operand |= {"memsetref": self._set_name(names), "regref": self._register(names)}
            for key in s.some(("reg_ap_offset", "reg_sub_tensor_id")):
                operand[key] = self._register(names) if s.chance(90) else None
            if s.chance(30):
                operand["memref"] = self._location_name(names)[0]
            for key, value in s.some((("is_regloc_offset", True), ("const_ap_offset", 4), ("const_sub_tensor_id", -1))):
                operand[key] = value
        else:
            operand["memsetref"] = self._set_name(names)
            operand["addrs"] = [self._expression(names, 2) for _ in range(s.digit(4))]
            s.sprinkle(operand, INDIRECT_RARE, 15)

    def _dynamic(self, names: _Names) -> Json:
        s = self.source
        info: Json = {"c": s.digit(10), "aff_expr": []}
        for _ in range(s.digit(3)):
            leaf: Json = {"kind": "IntRuntimeValueKind", "regref": self._register(names)}
            if s.chance(30):
                leaf = {"kind": "IndirectArgId", "arg_id": 0}
            info["aff_expr"].append({"offset_expr": leaf, "coef": 1 + s.digit(64)})
        for key in s.some(("indirect_dim", "indirect_dim_max_index", "num_tensor_indirect_indices")):
            info[key] = 1 + s.digit(3)
        if s.chance(50):
            info["actual_ap"] = [[1, 4]]
        return s.unknown(info, 5)

    # expressions

    def _expression(self, names: _Names, depth: int) -> Json:
        """Return an expression of the document's version."""
        return self._old_expression(names) if self.version == 1 else self._new_expression(names, depth)

    def _axis(self, names: _Names) -> str:
        return self.source.of(names.axes) if names.axes and not self.source.chance(5) else "missing_axis"

    def _old_expression(self, names: _Names) -> Json:
        s = self.source
        if s.chance(5):
            return {"kind": "ShardIDKind", "ub": 2}
        terms = {self._axis(names): s.digit(69) - 4 for _ in range(s.digit(3))} if names.axes else {}
        more: Json = {}
        if s.chance(25):
            more = {"op": s.of(("Mod", "Div", "CCGetRank", "IndirectArgId")), "op_param": 1 + s.digit(8)}
        return affine_old(terms, s.digit(69) - 4, **more)

    def _leaf(self, names: _Names) -> Json:
        s = self.source
        if names.axes and s.chance(60):
            return {"kind": "AffIVKind", "axis": self._axis(names)}
        form = s.digit(4)
        if form == 0:
            return {"kind": "ShardIDKind", "ub": 2}
        if form == 1:
            return {"kind": "IntRuntimeValueKind", "regref": self._register(names)}
        if form == 2:
            return {"kind": "IndirectArgId", "arg_id": s.digit(3)}
        return {"kind": "CCGetRankKind", "iteration_id": 0, "channel_id": s.digit(3)}

    def _new_expression(self, names: _Names, depth: int) -> Json:
        s = self.source
        form = s.digit(8 if depth else 2)
        if form <= 1:
            terms = [{"idx": self._leaf(names), "coeff": s.digit(69) - 4} for _ in range(form)]
            return s.unknown({"kind": "AffExprKind", "terms": terms, "c": s.digit(69) - 4}, 3)
        if form == 2:
            terms = [self._new_expression(names, depth - 1) for _ in range(s.digit(3))]
            return {"kind": "SumKind", "n_terms": len(terms), "terms": terms}
        if form == 3:
            return {"kind": "MultKind", "var": self._new_expression(names, depth - 1), "scale": s.digit(7) - 3}
        if form in (4, 5):
            kind = s.of(("FloorDivKind", "ModuloKind", "CCModKind"))
            return {"kind": kind, "numer": self._new_expression(names, depth - 1), "denom": 1 + s.digit(8)}
        if form == 6:
            numerator = self._new_expression(names, depth - 1)
            return {"kind": "CCDivKind", "numer": numerator, "denom": 2, "replica_groups_id": 0}
        return self._leaf(names)

    # members of opcodes

    def _floats(self) -> tuple[Any, ...]:
        return FLOATS if self.bare_nonfinite else FLOATS[:-3]

    def _value(self, kind: str, names: _Names) -> Any:
        """Return a value of the kind, or null, or an expression in its place."""
        s = self.source
        if s.chance(4):
            return None
        if kind.startswith("*"):
            if kind not in ("*pair", "*uints") and s.chance(15):
                return self._expression(names, 2)
            kind = kind[1:]
        if kind in ENUMS:
            return s.of(ENUMS[kind])
        simple: dict[str, tuple[Any, ...]] = {
            "bool": (False, True),
            "int": (0, -1, 7, 2**31),
            "uint": (0, 1, 255, 2**32 - 1),
            "float": (1.0, 0, 0.5, -2.5e-07, 1e30),
            "serfloat": self._floats(),
            "string": ("", "text", *ODD_NAMES[:6]),
            "source": ("Beta1", "Beta2", "Beta3", 0, 2),
            "uints": ([], [0], [3, 1, 2]),
            "pair": ([-1, -1], [0, 0], [128, {"kind": "AffExprKind", "terms": [], "c": 64}]),
            "uints2": ([0, 0], [128, 1024]),
            "uints3": ([0, 0, 0], [2, 128, 2048]),
            "floats": ([], [1.0], [0.5, 2, "inf"]),
            "groups": ([], [[0, 1]], [[0], [1, 2], []]),
            "dims": ([], ["W"], ["X", "Y"]),
            "pattern": ([[1, 4]], [{"step": 1, "num": 4}], []),
            "attributes": ([], [["a", "b"]], {"a": 1}),
            "strings": ({}, {"a": "b"}),
            "bytes": ("00ff", [0, 255]),
            "axis_names": ([], ["i"]),
        }
        if kind in simple:
            return s.of(simple[kind])
        return self._reference(kind, names)

    def _reference(self, kind: str, names: _Names) -> Any:
        s = self.source
        if kind == "queue":
            return s.of(self.queues) if self.queues else None
        if kind == "dma_blocks":
            return s.some(self.dma_blocks)
        if kind == "block":
            return s.of((*names.blocks, "missing_block", None))
        if kind == "function":
            return s.of((*self.functions, "missing_function"))
        if kind == "instruction":
            return self._instruction_name(names)
        if kind == "arguments":
            entries = [
                ("formal", self._location_name(names)[s.digit(2)]),
                ("other_set", self._set_name(names)),
            ][: s.digit(3)]
            return dict(entries) if s.chance(60) else [list(entry) for entry in entries]
        if kind == "channel":
            return s.of((0, self._expression(names, 1), {"kind": "AllReduce", "replica_groups": []}))
        if kind == "expressions":
            return [self._expression(names, 1)]
        if kind == "expression":
            return self._expression(names, 1)
        return s.junk()

    # queues

    def _queue(self, name: str) -> Json:
        s = self.source
        queue: Json = {"name": name, "blocks": []}
        if s.chance(50):
            queue["num_dma_engines"] = 16
        for _ in range(s.digit(3)):
            rows = [self._dma_block() for _ in range(s.digit(3))]
            queue["blocks"].append({"name": s.fresh("qblock"), "instructions": rows})
        return s.unknown(queue, 5)

    def _dma_block(self) -> Json:
        s = self.source
        names = _Names(instructions=["I-0", "I-1"])
        descriptors = [
            {
                "name": s.fresh("desc"),
                "opcode": s.of(("DMADescriptorCopy", "DMADescriptorCCE", "DMADescriptorReplicate")),
                "engine": "DMA",
                "ins": [self._operand(names, "ins")],
                "outs": [self._operand(names, "outs")],
            }
            for _ in range(s.digit(3))
        ]
        row: Json = {"name": s.of(self.dma_blocks), "opcode": "DMABlock", "engine": "DMA", "ins": [], "outs": []}
        row["blocks"] = [{"name": "b", "instructions": descriptors}]
        if s.chance(60):
            row["dma_trigger"] = self._instruction_name(names)
        for key, value in s.some(DMA_BLOCK_RARE):
            row[key] = value
        if s.chance(30):
            row["sync_info"] = self._sync(names)
        return s.unknown(row, 5)
