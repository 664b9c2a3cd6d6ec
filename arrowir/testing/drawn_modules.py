"""Drawing modules whose kernels can be inlined: every call-site binds all that its kernel needs."""

from dataclasses import dataclass, field
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawing import ODD_NAMES, Source
from arrowir.testing.drawn_bodies import BodyDrawer, Placed, Storage, draw_storage, pitch_bytes, storage_set

ARCHS = ("gen3", "sunda", "core_v4", "trn2", "cayman", "trn1")
SOURCES: tuple[Any, ...] = ("Beta1", "Beta2", "Beta3", 0, 1, 2, None)
INPUT_KINDS = ("ExternalInput", "Input", "ExternalInputParameter")
OUTPUT_KINDS = ("ExternalOutput", "Output", "ExternalOutputParameter")


@dataclass(slots=True)
class Kernel:
    """A drawn kernel function and what its call-sites have to bind.

    Parameters
    ----------
    function : dict
        The function.
    inputs, outputs : list of Storage
        Its parameters.
    registers : list of str
        Its registers.
    allocated, has_sb : bool
        Whether any of its locations has an address, and whether any is in the state buffer.
    splits : bool
        Whether its body, or that of a kernel that it calls, has several blocks.

    Examples
    --------
    >>> Kernel({"name": "k"}).allocated
    False
    """

    function: Json
    inputs: list[Storage] = field(default_factory=list[Storage])
    outputs: list[Storage] = field(default_factory=list[Storage])
    registers: list[str] = field(default_factory=list[str])
    allocated: bool = False
    has_sb: bool = False
    splits: bool = False


@dataclass(slots=True)
class Caller:
    """A drawn function with call-sites.

    Parameters
    ----------
    function : dict
        The function.
    sites : list of (dict, Kernel)
        Its call-sites with their kernels.

    Examples
    --------
    >>> Caller({"name": "f"}).sites
    []
    """

    function: Json
    sites: list[tuple[Json, Kernel]] = field(default_factory=list[tuple[Json, Kernel]])


class ModuleDrawer:
    """Draws one module.

    Parameters
    ----------
    source : Source
        What it draws from.
    multi_block : bool
        Kernels may have several blocks, with branches and returns among them.
    nested : bool
        Kernels may call kernels.
    call_sites : int
        The least number of call-sites.
    version : int, optional
        The version of expressions.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> ModuleDrawer(Simplest()).draw()["functions"][0]["name"]
    'sg0000'
    """

    def __init__(
        self,
        source: Source,
        *,
        multi_block: bool = False,
        nested: bool = False,
        call_sites: int = 0,
        version: int | None = None,
    ) -> None:
        self.source = source
        self.multi_block = multi_block
        self.nested = nested
        self.least = call_sites
        self.version = version or source.of((2, 2, 2, 1))
        self.arch = source.of(ARCHS)
        self.kernels: list[Kernel] = []
        self.callers: list[Caller] = []
        self.inner: list[Caller] = []
        self.older_form = source.chance(8)

    @property
    def all_callers(self) -> list[Caller]:
        """The ordinary functions and the kernels, each with its call-sites."""
        return [*self.callers, *self.inner]

    def draw(self) -> Json:
        """Return the document."""
        self.draw_functions()
        return self.document()

    def draw_functions(self) -> None:
        """Draw kernels and callers, which a fault may change before the document is put together."""
        s = self.source
        count = s.between(1, 3)
        # those drawn first can be called by those drawn later
        for number in reversed(range(count)):
            name = f"k{number}" if not s.chance(8) else s.of(ODD_NAMES[:6])
            while any(kernel.function["name"] == name for kernel in self.kernels):
                name += "x"
            self.kernels.insert(0, self._kernel(name))
        self.callers.append(self._caller("main" if s.chance(30) else "sg0000", self.least))
        if s.chance(15):
            self.callers.append(self._caller("aux", 0))

    def document(self) -> Json:
        """Put the document together."""
        s = self.source
        functions = [caller.function for caller in self.callers]
        kernels = [kernel.function for kernel in self.kernels]
        if self.older_form:
            # as in older files: a kernel among the functions, which is one because it is called
            called = {row["func"] for caller in self.callers for row, _ in caller.sites}
            if kernels[-1]["name"] in called and kernels[-1]["name"] != "main":
                functions.append(kernels.pop())
        document: Json = {"arch": self.arch, "functions": functions, "version": self.version}
        document["nki_functions"] = kernels if s.chance(15) else {"functions": kernels}
        s.sprinkle(document, (("queues", ([],)), ("attributes", ({"neuron_core_id": 0},)), ("zz", (None,))), 50)
        return s.order({key: document[key] for key in sorted(document)})

    # kernels

    def _kernel(self, name: str) -> Kernel:
        s = self.source
        s.begin()
        kernel = Kernel({})
        allocations: list[Json] = []
        formal_names = "abcd"
        for number in range(s.count(2)):
            formal = draw_storage(s, formal_names[number], ("DRAM", "DRAM", "SB"))
            kernel.inputs.append(formal)
            allocations.append(storage_set(s, formal, s.of(INPUT_KINDS)))
        for number in range(s.count(2)):
            formal = draw_storage(s, formal_names[2 + number], ("DRAM", "DRAM", "SB"))
            if kernel.inputs and number == 0 and s.chance(10):
                # a parameter that is read and written stands twice, under one name
                formal = kernel.inputs[0]
            kernel.outputs.append(formal)
            allocations.append(storage_set(s, formal, s.of(OUTPUT_KINDS)))
        placed = s.chance(50)
        internals = [self._internal(kernel, allocations, placed) for _ in range(s.count(3))]
        kernel.registers = [s.fresh("r") for _ in range(s.digit(3))]
        allocations += [s.unknown(bir.register(register), 10) for register in kernel.registers]
        if s.chance(5):
            allocations.append({"Skind": "brand_new_kind", "name": "odd_storage"})
        drawer = BodyDrawer(s, self.version, "b", internals + kernel.inputs + kernel.outputs, kernel.registers)
        inner = Caller({})
        if self.nested and self.kernels:
            drawer.call = _Calls(self, inner, allocations, drawer, s.between(0, 2)).draw
        blocks = self._blocks(drawer) if self.multi_block and s.chance(40) else [self._block(drawer)]
        function = bir.function(name, allocations, blocks)
        if s.chance(30):
            function["attributes"] = s.of((["need_unroll"], {"need_unroll": True}, ["need_dce"]))
        kernel.function = inner.function = s.unknown(function, 5)
        self.inner.append(inner)
        kernel.splits = len(blocks) > 1 or any(called.splits for _, called in inner.sites)
        # scratchpads of inner call-sites count as well
        for item in allocations:
            for place in item.get("memorylocations", []):
                kernel.allocated |= bool(place.get("allocated")) and place["type"] in ("SB", "PSUM")
                kernel.has_sb |= place["type"] == "SB"
        return kernel

    def _internal(self, kernel: Kernel, allocations: list[Json], placed: bool) -> Storage:
        s = self.source
        storage = draw_storage(s, s.fresh("x") if s.chance(20) else s.fresh("u"))
        if s.chance(15):
            storage = Storage(
                storage.name,
                storage.set_name,
                storage.memory,
                storage.shape,
                storage.dtype,
                storage.pitch_bytes,
                single=False,
            )
        place: Json = {}
        if storage.memory == "SB" and s.chance(70):
            place = {"addr": 64 * s.digit(32), "allocated": placed}
        elif storage.memory == "PSUM" and s.chance(60):
            place = {"bank": s.digit(8), "allocated": placed}
        elif storage.memory == "DRAM" and s.chance(30):
            place = {"addr": 4096 * s.digit(8)}
            others = [
                (item["name"], other["name"])
                for item in allocations
                for other in item["memorylocations"]
                if other["type"] == "DRAM"
            ]
            if others and s.chance(30):
                place["alias"] = [[*s.of(others), 3]]
        kind = "Const" if storage.memory == "DRAM" and s.chance(30) else "Internal"
        item = storage_set(s, storage, kind, **place)
        if kind == "Const":
            item["file"] = "const_0.npy"
            item = {key: item[key] for key in sorted(item)}
        allocations.append(item)
        return storage

    def _block(self, drawer: BodyDrawer) -> Json:
        s = self.source
        rows = drawer.rows(s.count(5), 2)
        if s.chance(8):
            # more sinks and roots than are joined one by one
            rows += [bir.instruction(s.fresh("wide"), "NoOp", "SP", [], [], full_keys=False) for _ in range(10)]
        drawer.add_edges()
        if s.chance(25):
            rows.append(self._return(rows))
        return bir.block("Block1", rows)

    def _return(self, rows: list[Json]) -> Json:
        s = self.source
        row = bir.instruction(s.fresh("ret"), "Return", "SP", [], [], full_keys=False)
        named = [item["name"] for item in rows if "name" in item]
        if named and s.chance(40):
            row = bir.record(**row, dependencies=[[s.of(named), "Ordered"]])
        return row

    def _blocks(self, drawer: BodyDrawer) -> list[Json]:
        """Return two or three blocks that end in branches, a return or nothing."""
        s = self.source
        names = [f"B{number}" for number in range(2 + s.digit(2))]
        blocks = [bir.block(name, drawer.rows(s.count(2), 1)) for name in names]
        drawer.add_edges()
        for number, block in enumerate(blocks):
            rows: list[Json] = block["instructions"]
            # branching to the first block is left to the last one
            targets = names if number == len(blocks) - 1 else names[1:]
            form = s.digit(5)
            if form == 1:
                rows.append(self._return(rows))
            elif form == 2:
                keys: Json = {"target": s.of(targets)}
                rows.append(
                    bir.instruction(s.fresh("br"), "UnconditionalBranch", "SP", [], [], full_keys=False, keys=keys)
                )
            elif form == 3:
                keys = {"comp_op": "IS_LTIMM", "on_true": s.of(targets), "on_false": s.of(targets)}
                ins = [bir.register_access(drawer.registers[0])] if drawer.registers else []
                rows.append(
                    bir.instruction(s.fresh("br"), "CompareAndBranch", "SP", ins, [], full_keys=False, keys=keys)
                )
        return blocks

    # callers

    def _caller(self, name: str, least: int) -> Caller:
        s = self.source
        s.begin()
        caller = Caller({})
        allocations: list[Json] = []
        registers = [s.of(("r0", "r1", f"q{number}")) for number in range(s.digit(3))]
        registers = list(dict.fromkeys(registers))
        allocations += [bir.register(register) for register in registers]
        drawer = BodyDrawer(s, self.version, "I-", [], registers)
        for number in range(s.between(0, 2)):
            # names of formals, of kernels' own locations, or others
            own = s.of((f"x{number}", "abc"[number], f"u{number}"))
            storage = draw_storage(s, own)
            allocations.append(storage_set(s, storage, s.of(("Internal", "ExternalInput", "ExternalOutput"))))
            drawer.storages.append(storage)
            if s.chance(8):
                # read and written under one name
                allocations.append(storage_set(s, storage, "ExternalOutput"))
        if not least and not s.chance(8):
            least = 1 + s.digit(3)
        calls = _Calls(self, caller, allocations, drawer, s.between(least, 6))
        drawer.call = calls.draw
        blocks = [bir.block("Block1", drawer.rows(s.count(5), 2))]
        # what is not placed by chance stands at the end
        while len(caller.sites) < least or (calls.left and s.chance(70)):
            row = calls.draw()
            if row is None:
                break
            drawer.placed.append(Placed(row, (), ()))
            blocks[-1]["instructions"].append(row)
        if s.chance(15):
            blocks.append(bir.block("Block2", drawer.rows(s.count(2), 1)))
        drawer.add_edges(60)
        self._clashes(caller, allocations, blocks)
        caller.function = bir.function(name, allocations, blocks)
        return caller

    def _clashes(self, caller: Caller, allocations: list[Json], blocks: list[Json]) -> None:
        """Take some of the names that inlining would give."""
        s = self.source
        for row, kernel in caller.sites:
            if not s.chance(15):
                continue
            site = row["name"]
            made = [item["name"] for item in kernel.function["allocations"]]
            name = f"{site}:{s.of(made)}" if made else f"{site}:x"
            storage = Storage(f"{site}:u0", name, "DRAM", (1, 8), "int32", 32)
            allocations.append(storage_set(s, storage, "Internal"))
            blocks[-1]["instructions"].append(
                bir.instruction(f"{site}_b{s.digit(3)}", "NoOp", "SP", [], [], full_keys=False)
            )


class _Calls:
    """Draws the call-sites of one function, and adds to its storage what they bind."""

    def __init__(
        self, module: ModuleDrawer, caller: Caller, allocations: list[Json], drawer: BodyDrawer, most: int
    ) -> None:
        self.module = module
        self.source = module.source
        self.caller = caller
        self.allocations = allocations
        self.drawer = drawer
        self.left = most
        self.in_kernel = not caller.function and drawer.prefix == "b"

    def draw(self, in_loop: bool = False) -> Json | None:
        """Return a call-site, or nothing when there are enough or no kernel fits."""
        # a loop of a kernel is unrolled, and has to have one block then
        kernels = [one for one in self.module.kernels if not (in_loop and self.in_kernel and one.splits)]
        if self.left <= 0 or not kernels:
            return None
        self.left -= 1
        s = self.source
        s.begin()
        kernel = s.of(kernels)
        number = len(self.caller.sites)
        name = f"call{number}" if not s.chance(10) else s.of((f"inst__{kernel.function['name']}", "call0", "a.b"))
        row: Json = {"engine": s.of(("Unassigned", "Pool")), "func": kernel.function["name"], "name": name}
        row |= {"opcode": "NKIKernel", "ins": [], "outs": []}
        self._bind(row, kernel, "ins")
        self._bind(row, kernel, "outs")
        self._bind_registers(row, kernel)
        if s.chance(8):
            row["is_allocated"] = s.chance(50)
        self._scratchpads(row, kernel)
        s.sprinkle(row, _RARE, 50)
        if s.chance(60):
            row["kernel_source_val"] = s.of(SOURCES)
        s.unknown(row, 5)
        ordered = {key: row[key] for key in sorted(row)}
        self.caller.sites.append((ordered, kernel))
        return ordered

    def _actual(self, formal: Storage) -> Storage:
        """Return a storage of the caller of the size of the formal, one that exists or a new one."""
        s = self.source
        known = [item for item in self.drawer.storages if item.size == formal.size and item.single]
        if known and s.chance(50):
            return s.of(known)
        count = len(self.allocations)
        name = f"x{count + 2}" if not s.chance(15) else f"{'abc'[s.digit(3)]}{'_' * count}"
        shape: tuple[int, ...] = formal.shape
        pitch = formal.pitch_bytes
        if s.chance(20) and formal.memory == "DRAM":
            # the product of the dims counts, not the dims
            shape, pitch = (1, formal.size // bir.ITEM_BYTES[formal.dtype]), formal.size
        storage = Storage(name, f"{name}_set", formal.memory, shape, formal.dtype, pitch)
        kinds = ("Internal", "ExternalInput", "ExternalOutput", "Const")
        place: Json = {"addr": 64 * s.digit(16), "allocated": True} if s.chance(30) else {}
        if storage.memory == "SB" and self.in_kernel:
            place = {}
        if storage.memory == "DRAM":
            place = {}
        kind = "Internal" if self.in_kernel else s.of(kinds)
        self.allocations.append(storage_set(s, storage, kind, **place))
        self.drawer.storages.append(storage)
        return storage

    def _bind(self, row: Json, kernel: Kernel, role: str) -> None:
        """Bind formals by name or by position; a location that is bound by name must not be bound by position."""
        s = self.source
        formals, key = (kernel.inputs, "func_args") if role == "ins" else (kernel.outputs, "func_outs")
        by_position = [not s.chance(60) for _ in formals]
        actuals = [self._actual(formal) for formal in formals]
        named = {actual.name for actual, place in zip(actuals, by_position, strict=True) if not place}
        entries: list[list[str]] = []
        operands: list[Json] = []
        for formal, actual in zip(formals, actuals, strict=True):
            if actual.name in named:
                left = formal.set_name if s.chance(25) else formal.name
                right = actual.set_name if s.chance(25) else actual.name
                entries.append([left, right])
            if actual.name not in named or s.chance(70):
                if role == "ins" and s.chance(8):
                    operands.append(bir.immediate(1, "int32"))
                operands.append(self._operand(actual))
        row[role] = operands
        if role == "outs" and entries and not operands and self._may_move(row, kernel, named):
            # either map may name any parameter
            key = "func_args"
            known = row.get(key, {})
            entries = [*(known if isinstance(known, list) else map(list, known.items())), *entries]
        if entries and s.chance(8):
            # the last entry of a formal counts
            entries.insert(0, list(entries[-1]))
        pairs = s.chance(30) or len({entry[0] for entry in entries}) < len(entries)
        if entries or s.chance(20):
            row[key] = entries if pairs else dict(entries)

    def _may_move(self, row: Json, kernel: Kernel, named: set[str]) -> bool:
        """Tell whether entries of outputs may stand among those of inputs without changing what they bind."""
        read = {operand.get("memref") for operand in row["ins"]}
        shared = {formal.name for formal in kernel.outputs} & {formal.name for formal in kernel.inputs}
        return not read & named and not shared and self.source.chance(50)

    def _operand(self, actual: Storage) -> Json:
        pattern = [[actual.pitch, actual.shape[0]], [1, actual.pitch]]
        full = self.source.chance(20)
        return bir.access(actual.name, pattern, actual.dtype, set_name=actual.set_name, full_keys=full)

    def _bind_registers(self, row: Json, kernel: Kernel) -> None:
        s = self.source
        if not (kernel.registers and self.drawer.registers and s.chance(30)):
            return
        entry = [s.of(kernel.registers), s.of(self.drawer.registers)]
        entries = row.setdefault("func_args", {})
        if isinstance(entries, dict):
            entries[entry[0]] = entry[1]
        else:
            entries.append(entry)

    def _scratchpads(self, row: Json, kernel: Kernel) -> None:
        s = self.source
        outs: list[Json] = row["outs"]
        if s.chance(60 if kernel.allocated else 25):
            row["sb_buf_shape"] = [128, 4096]
            memory = "DRAM" if s.chance(6) else "SB"
            # a status that the call-site records counts for more than the kernel's
            counts = row.get("is_allocated", kernel.allocated)
            allocated = (counts and kernel.has_sb) or s.chance(50)
            place: Json = {"addr": 16384 + 64 * s.digit(64), "allocated": allocated} if memory == "SB" else {}
            outs.append(self._operand(self._scratch(memory, place)))
        elif s.chance(40):
            row["sb_buf_shape"] = [0, 0]
        banks = s.digit(3) if s.chance(30) else 0
        if banks:
            row["psum_buf_shape"] = [banks, 128, 2048]
            outs += [self._operand(self._scratch("PSUM", {"bank": bank})) for bank in range(banks)]
        elif s.chance(40):
            row["psum_buf_shape"] = [0, 0, 0]

    def _scratch(self, memory: str, place: Json) -> Storage:
        count = len(self.allocations)
        name = f"scratch{count}"
        shape = (128, 16)
        storage = Storage(name, f"{name}_set", memory, shape, "float32", pitch_bytes(shape, "float32"))
        self.allocations.append(storage_set(self.source, storage, "Internal", **place))
        return storage


_RARE: tuple[tuple[str, tuple[Any, ...]], ...] = (
    ("address_rotation_scope_val", ("None", "Kernel")),
    ("debug", ({"filename": "model.py", "lineno": 42},)),
    ("loopnest", ([],)),
    ("sync_info", ({},)),
    ("predicates", ([],)),
    ("optin_passes", (15, [])),
)
