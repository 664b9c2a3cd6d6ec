"""Drawing modules in which constants, copies, selections by constants and dead code are frequent."""

from dataclasses import dataclass
from typing import Any

from arrowir.testing.bir import Json
from arrowir.testing.drawing import Source

ROWS, COLUMNS = 4, 8
BYTES = {"float32": 4, "bfloat16": 2, "uint8": 1, "int32": 4, "float8e4": 1}
ONES = {"float32": 0x3F800000, "bfloat16": 0x3F80, "uint8": 1, "int32": 1, "float8e4": 0x38}
EDGE_KINDS = ("Flow", "Anti", "Output", "Ordered")
DMA_KEYS = ("queue", "dge_type", "dma_qos", "duplicate")


@dataclass
class Tensor:
    """A location in a set of its own, of 4 partitions of 8 elements."""

    name: str
    dtype: str
    memory: str
    kind: str
    constant: bool = False
    """Whether it is meant to be written once."""

    @property
    def set_name(self) -> str:
        """The name of its set."""
        return f"{self.name}_set"


class FoldableModule:
    """Draws one module for the pass `constant_propagate`.

    Parameters
    ----------
    source : Source
        What it draws from.
    executable : bool
        Only what the simulator executes: all that is read has been written, and computes without a choice.
    booleans : bool
        Operands of logical operations hold 0 or 1, as `assume_finite` takes it.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> FoldableModule(Simplest(), executable=True).draw()["functions"][0]["name"]
    'main'
    """

    def __init__(self, source: Source, *, executable: bool, booleans: bool = False) -> None:
        self.source, self.executable, self.booleans = source, executable, booleans

    def draw(self) -> Json:
        """Return the document."""
        s = self.source
        names = ["main"] if self.executable else ["main", "other"][: s.between(1, 2)]
        functions = [_Function(self, name).draw() for name in names]
        kernels: list[Json] = []
        if s.chance(40) or self.executable:
            kernels.append(_Function(self, "k", in_kernel=True).draw())
            for function in functions:
                self._call(function, kernels[0])
        document: Json = {"arch": "gen3", "functions": functions, "version": 2, "nki_functions": {"functions": kernels}}
        if not self.executable and s.chance(15):
            operand = _access(Tensor(f"t{s.digit(4)}", "float32", "DRAM", "Internal"))
            row = {"ins": [operand], "name": "d", "opcode": "DMADescriptorCopy", "outs": []}
            block: Json = {"instructions": [{"blocks": [{"instructions": [row]}], "name": "db", "opcode": "DMABlock"}]}
            document["queues"] = [{"blocks": [block], "name": "q"}]
        return document

    def _call(self, function: Json, kernel: Json) -> None:
        """Put a call-site at the end of a function, with storage of its own."""
        s = self.source
        binding: dict[str, dict[str, str]] = {"func_args": {}, "func_outs": {}}
        operands: dict[str, list[Json]] = {"ins": [], "outs": []}
        for formal in kernel["allocations"]:
            if formal.get("kind") in ("Internal", None):
                continue
            is_input = formal["kind"] == "ExternalInput"
            actual = Tensor(f"{formal['name']}_actual", formal["dtype"], "DRAM", formal["kind"])
            place = formal["memorylocations"][0]
            function["allocations"].append(_storage(actual))
            binding["func_args" if is_input else "func_outs"][place["name"]] = actual.name
            operands["ins" if is_input else "outs"].append(_access(actual))
        call: Json = {
            "engine": "DVE",
            "name": "call",
            "opcode": "NKIKernel",
            "func": kernel["name"],
            **operands,
            **binding,
        }
        if not self.executable and s.chance(30):
            call["dependencies"] = ["i0"]
        at = function["blocks"][-1]["instructions"]
        at.insert(len(at) - bool(at and at[-1]["opcode"] == "Return"), call)


class _Function:
    """Draws one function."""

    def __init__(self, module: FoldableModule, name: str, *, in_kernel: bool = False) -> None:
        self.source, self.executable, self.booleans = module.source, module.executable, module.booleans
        self.name, self.in_kernel = name, in_kernel
        self.tensors: list[Tensor] = []
        self.rows: list[Json] = []
        self.names: list[str] = []

    def draw(self) -> Json:
        s = self.source
        self._tensors()
        self._begin()
        for _ in range(s.between(1, 8)):
            self.rows += self._step()
        self._results()
        for row in self.rows:
            self._finish(row)
        names = ["B0", "B1", "B1_noop"][: 1 + s.digit(3)] if not self.in_kernel or s.chance(20) else ["B0"]
        cuts = sorted(s.digit(len(self.rows) + 1) for _ in names[1:])
        bounds = [0, *cuts, len(self.rows)]
        blocks: list[Json] = [
            {"instructions": self.rows[a:b], "name": name}
            for name, a, b in zip(names, bounds, bounds[1:], strict=False)
        ]
        if not self.executable and not self.in_kernel:
            self._nest(blocks[-1]["instructions"])
        if self.in_kernel and s.chance(20):
            blocks[-1]["instructions"].append(
                {"engine": "SP", "ins": [], "name": "ret", "opcode": "Return", "outs": []}
            )
        return {"allocations": self._allocations(), "attributes": [], "blocks": blocks, "name": self.name}

    # -- storage ----

    def _tensors(self) -> None:
        s = self.source
        for number in range(s.between(2, 5)):
            dtype = s.of(
                ("float32", "uint8", "bfloat16", "float32", "float8e4") if not self.executable else ("float32", "uint8")
            )
            self.tensors.append(
                Tensor(f"t{number}", dtype, s.of(("SB", "DRAM", "SB")), "Internal", constant=s.chance(60))
            )
        self.tensors.append(Tensor("sum", "float32", "PSUM", "Internal"))
        for number in range(1 + s.digit(2)):
            self.tensors.append(Tensor(f"a{number}", "float32", s.of(("DRAM", "SB")), "ExternalInput"))
        self.tensors.append(Tensor("y", "float32", "DRAM", "ExternalOutput"))

    def _allocations(self) -> list[Json]:
        s, found = self.source, []
        for tensor in self.tensors:
            item = _storage(tensor)
            place = item["memorylocations"][0]
            if not self.executable and tensor.kind == "Internal" and s.chance(12):
                key, value = s.of(
                    (
                        ("pinned", True),
                        ("runtime_reserved", True),
                        ("pinned", False),
                        ("alias", [["a0", 1]]),
                        ("written_by_another_core", True),
                    )
                )
                place[key] = value
            if not self.executable and s.chance(4):
                item[s.of(("volatile", "no_spill"))] = True
            if not self.executable and tensor.name == "a0" and s.chance(15):
                place["alias"] = [["t1_set", "t1", 1]] if s.chance(50) else [["t0", 3]]
            found.append(item)
        return found if self.executable else [*found, {"Skind": "register", "name": "r"}]

    def _begin(self) -> None:
        """Write everything once; what is constant is not written again."""
        s = self.source
        for tensor in self.tensors:
            if tensor.kind == "ExternalInput" or (tensor.kind != "Internal" and self.in_kernel and not self.executable):
                continue
            if not self.executable and s.chance(20):
                continue
            copied = [t for t in self.tensors if t.dtype == tensor.dtype and t.kind == "ExternalInput"]
            before = [t for t in self.tensors[: self.tensors.index(tensor)] if t.dtype == tensor.dtype]
            if before and s.chance(30):
                self.rows.append(self._copy(s.of(before), tensor, whole=True))
            elif copied and not tensor.constant and s.chance(60):
                self.rows.append(self._copy(s.of(copied), tensor, whole=True))
            else:
                self.rows.append(self._memset(tensor))

    def _memset(self, tensor: Tensor) -> Json:
        s = self.source
        values = [0, 0, ONES[tensor.dtype], ONES[tensor.dtype]]
        if not self.executable:
            values += [3, 1 << (8 * BYTES[tensor.dtype] - 1), 1 << (8 * BYTES[tensor.dtype])]
        elif tensor.dtype != "uint8":
            values.append(ONES[tensor.dtype] + 0x40)
        out = _access(tensor)
        if not self.executable and s.chance(12):
            out = s.of((_access(tensor, rows=2), _access(tensor, width=4), _turned(tensor), _twice(tensor)))
        return self._row("Memset", [], [out], constant=s.of(values), mode="Const")

    # -- instructions ----

    def _row(self, opcode: str, ins: list[Json], outs: list[Json], **keys: Any) -> Json:
        s = self.source
        name = f"i{len(self.names)}"
        if not self.executable and self.names and s.chance(8):
            name = s.of((s.of(self.names), f"{s.of(self.names)}_constant_propagate_memset"))
        self.names.append(name)
        engine = {"Matmult": "PE", "Load": "SP", "Save": "SP", "DMACopy": "SP"}.get(opcode, "DVE")
        return {"engine": engine, "ins": ins, "name": name, "opcode": opcode, "outs": outs, **keys}

    def _copy(self, source: Tensor, target: Tensor, *, whole: bool = False) -> Json:
        s = self.source
        memories = source.memory, target.memory
        dma = {"Load": ("DRAM", "SB"), "Save": ("SB", "DRAM")}
        able = ["TensorCopy", "GenericCopy", "DMACopy", *(name for name, pair in dma.items() if pair == memories)]
        opcode = s.of(able)
        keys: Json = {"mode": "Copy"} if opcode == "DMACopy" and s.chance(70) else {}
        if opcode in ("Load", "Save", "DMACopy") and s.chance(40):
            keys["queue"] = "q"
            keys["dge_type"] = "None"
        if not self.executable and opcode == "DMACopy" and s.chance(15):
            keys[s.of(("cce_op", "transpose_op", "mode"))] = s.of(("add", "XZYW", None))
        part = ROWS if whole and self.executable else s.of((ROWS, ROWS, 2))
        ins, out = _access(source, rows=part), _access(target, rows=part)
        if not self.executable and s.chance(5):
            ins = s.of(
                (_turned(source), {**ins, "offset": 40}, {**ins, "dynamic_ap_info": {"c": 0}}, _symbolic(source))
            )
        return self._row(opcode, [ins], [out], **keys)

    def _step(self) -> list[Json]:
        s = self.source
        able = [t for t in self.tensors if t.kind == "Internal" and not t.constant and t.memory != "PSUM"]
        if not self.executable:
            able = [t for t in self.tensors if t.kind != "ExternalInput" or s.chance(5)]
        if not able:
            able = [t for t in self.tensors if t.name == "y"]
        target = s.of(able)
        alike = [t for t in self.tensors if t.dtype == target.dtype]
        flags = [t for t in self.tensors if t.dtype == "uint8"] or ([] if self.booleans else alike)
        what = s.of(("copy", "select", "logical", "copy", "select", "logical", "matmult", "add", "odd"))
        out = _access(target)
        if what == "copy":
            return [self._copy(s.of(alike), target)]
        if what == "select" and flags and (not self.executable or flags[0].dtype == "uint8"):
            ins = [s.of(flags), s.of(alike), s.of(alike)]
            return [self._row("Select", [_access(t) for t in ins], [out])]
        if what == "logical" and flags:
            op = s.of(("logical_and", "logical_or", "logical_and", "logical_or", "logical_xor"))
            read = flags if self.booleans else self.tensors
            ins = [_access(s.of(read)), _access(s.of(read))]
            keys = {"acc": s.of(("Idle", "ZeroAccumulate"))} if s.chance(20) else {}
            return [self._row("TensorTensor", ins, [out], op=op, **keys)]
        if what == "matmult":
            return self._product()
        if what == "odd" and not self.executable:
            return [self._odd(target)]
        return [self._row("TensorScalar", [_access(s.of(alike))], [out], op0="bypass", const0=1.0, reverse0=False,
                          op1="bypass", const1=0.0, reverse1=False)]  # fmt: skip

    def _product(self) -> list[Json]:
        s = self.source
        floats = [t for t in self.tensors if t.dtype == "float32" and t.memory != "PSUM" and t.kind != "ExternalOutput"]
        if not floats:
            return []
        total, rows = next(t for t in self.tensors if t.memory == "PSUM"), []
        for number in range(1 + s.digit(3)):
            keys: Json = {"accumulation_flag": 1 if number == 0 else s.of((2, 2, 3, 0))}
            if s.chance(30):
                keys = {"start_tensor_calc": number == 0, "stop_tensor_calc": False}
            if not self.executable and s.chance(15):
                keys[s.of(("ifmap_quant_offset", "psum_zero_region", "is_transpose", "accumulation_flag"))] = 1
            moving, stationary = _access(s.of(floats)), _access(s.of(floats), width=ROWS)
            rows.append(self._row("Matmult", [moving, stationary], [_access(total)], **keys))
        return rows

    def _odd(self, target: Tensor) -> Json:
        """Return an instruction with an effect, or of an opcode that nobody knows."""
        s = self.source
        source, out = _access(s.of(self.tensors)), _access(target)
        return s.of(
            (
                self._row("Activation", [source], [out], func="Copy", acc=s.of(("Idle", "ZeroAccumulate"))),
                self._row("NewOpcode", [source], [out]),
                self._row("DevicePrint", [source], [], prefix="p"),
                self._row("ReadVarAddr", [source], [out]),
                self._row("Memset", [], [out], mode="Random", constant=0),
                self._row("RangeSelect", [source], [out], **s.of(({}, {"reduce_cmd": "Idle"}))),
                self._row("Iota", [], [out, _access(s.of(self.tensors))], base=0, pattern=[[1, 8]]),
                self._row("DMACopy", [source], [out], remote_notification=s.of(([], [1]))),
                self._row(
                    "TensorTensor", [source, source], [{"dtype": "int32", "kind": "register_access", "regref": "r"}]
                ),
                self._row("TensorTensor", [out, source], [out], op="add"),
            )
        )

    def _results(self) -> None:
        s = self.source
        result = self.tensors[-1]
        able = [t for t in self.tensors if t.dtype == result.dtype and t.kind == "Internal"]
        for _ in range(s.between(0, 2)):
            if able:
                self.rows.append(self._copy(s.of(able), result))

    # -- what instructions have beside ----

    def _finish(self, row: Json) -> None:
        """Give an instruction edges and rare keys, and its keys an order."""
        s = self.source
        here = self.rows.index(row)
        for relation, percent in (("dependencies", 60), ("loop_carried_dependencies", 4), ("unroll_dependencies", 3)):
            if not s.chance(percent) or (self.executable and relation != "dependencies") or here == 0:
                continue
            entries: list[Any] = []
            for _ in range(1 + s.digit(3)):
                on = s.of(self.rows[:here]) if self.executable or s.chance(90) else s.of(self.rows)
                entries.append([on["name"], s.of(EDGE_KINDS)] if s.chance(70) else on["name"])
                if relation == "unroll_dependencies":
                    entries[-1] = [on["name"], "Flow", s.of(([], [{"kind": "IntRuntimeValueKind", "regref": "r"}]))]
            row[relation] = entries
        if not self.executable:
            rare = [("sync_info", ({}, {"on_update": []})), ("predicates", ([], [{}])), ("note", ({"a": 1},))]
            rare += [("can_read_uninit", (False, True)), ("indirection_ins", ([],)), ("optin_passes", (3,))]
            rare += [("debug", ({"lineno": 1},)), ("order", ([{"kind": "IntRuntimeValueKind", "regref": "r"}],))]
            rare += [("can_read_uninit", ({"kind": "IntRuntimeValueKind", "regref": "r"},)), ("queue", (None,))]
            s.sprinkle(row, rare, 20)
        elif s.chance(10):
            row["sync_info"] = {"on_update": []}  # it stays, whether its results are read or not
        if s.chance(50):
            ordered = {key: row[key] for key in sorted(row)}
            row.clear()
            row.update(ordered)

    def _nest(self, rows: list[Json]) -> None:
        """Put some instructions into a loop, or into an instruction of which they are data."""
        s = self.source
        if len(rows) < 2 or not s.chance(25):
            return
        at = s.digit(len(rows) - 1)
        opcode = s.of(("Loop", "Loop", "Strange"))
        axis = {"LoopAxis": {"lb": 0, "name": "i", "stride": 1, "ub": 2}} if opcode == "Loop" else {}
        block = {"instructions": rows[at : at + 2], "name": "inner"}
        if opcode == "Strange":  # data: nothing there is a name of code
            kept = ("engine", "ins", "name", "opcode", "outs")
            inside = [{key: row[key] for key in kept if key in row} for row in rows[at : at + 2]]
            block["instructions"] = [row | {"name": f"{row['name']} of nest"} for row in inside]
        rows[at : at + 2] = [
            {"blocks": [block], "engine": "SP", "ins": [], "name": "nest", "opcode": opcode, "outs": [], **axis}
        ]


def _storage(tensor: Tensor) -> Json:
    pitch = COLUMNS * BYTES[tensor.dtype]
    location: Json = {"addr": 0, "dims": [ROWS, pitch], "name": tensor.name, "type": tensor.memory}
    return {
        "Skind": "memory_location_set", "dtype": tensor.dtype, "kind": tensor.kind, "memorylocations": [location],
        "name": tensor.set_name, "tensor_shape": [ROWS, COLUMNS],
    }  # fmt: skip


def _access(tensor: Tensor, rows: int = ROWS, width: int = COLUMNS) -> Json:
    return {
        "ap": [[COLUMNS, rows], [1, width]], "dtype": tensor.dtype, "kind": "physical_ap", "memref": tensor.name,
        "memsetref": tensor.set_name, "offset": 0,
    }  # fmt: skip


def _turned(tensor: Tensor) -> Json:
    """Return an access to everything, columns from last to first."""
    return {**_access(tensor), "ap": [[COLUMNS, ROWS], [-1, COLUMNS]], "offset": COLUMNS - 1}


def _twice(tensor: Tensor) -> Json:
    """Return an access to everything in which some elements come twice."""
    return {**_access(tensor), "ap": [[COLUMNS, ROWS], [2, 3], [1, 4]]}


def _symbolic(tensor: Tensor) -> Json:
    zero = {"c": 0, "kind": "AffExprKind", "terms": []}
    access = {key: value for key, value in _access(tensor).items() if key not in ("memref", "offset")}
    return {**access, "addrs": [zero, zero], "kind": "symbolic_ap"}
