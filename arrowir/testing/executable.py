"""Drawing whole modules that can be executed: a caller, kernels that it calls, and kernels that these call."""

import random
from dataclasses import dataclass
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawing import Source
from arrowir.testing.drawn_bodies import Placed, Storage, pitch_bytes, storage_set
from arrowir.testing.executable_bodies import FLAGS, FLOATS, INTEGERS, ExecutableDrawer, Tensor
from arrowir.testing.executable_calls import CallDrawer, Kernel
from arrowir.testing.executable_flow import FlowDrawer
from arrowir.testing.lowerable import lowerable

SHAPES = ((4, 8), (2, 6), (3, 12), (1, 16), (2, 3, 4), (6, 4), (5, 9))
PSUM_SHAPES = ((4, 8), (6, 6), (3, 12))
ARCHS = ("gen3", "trn2", "core_v4", "sunda")
INPUT_KINDS = ("ExternalInput", "Input", "ExternalInputParameter")
OUTPUT_KINDS = ("ExternalOutput", "Output", "ExternalOutputParameter")


@dataclass(frozen=True, slots=True)
class Shape:
    """What drawn modules may have.

    Parameters
    ----------
    calls, nested : bool
        Kernels that are called, and kernels that call kernels.
    blocks : bool
        Several blocks with branches.
    unrollable : bool
        Loops have one block, and nothing else than constant bounds.
    lowerable : bool
        Kernels have loops of all kinds, too, and all of these can become branches.

    Examples
    --------
    >>> Shape().unrollable
    False
    """

    calls: bool = True
    nested: bool = True
    blocks: bool = True
    unrollable: bool = False
    lowerable: bool = False


class ExecutableModule:
    """Draws one module.

    Parameters
    ----------
    source : Source
        What it draws from.
    shape : Shape
        What it may have.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> ExecutableModule(Simplest(), Shape()).draw()["functions"][0]["name"]
    'sg0000'
    """

    def __init__(self, source: Source, shape: Shape) -> None:
        self.source, self.shape = source, shape
        self.version = source.of((2, 2, 2, 1))
        # few of each, so that parameters fit many tensors
        self.shapes = [source.of(SHAPES) for _ in range(1 + source.digit(3))]
        self.dtypes = {
            "float": [source.of(FLOATS) for _ in range(1 + source.digit(2))],
            "int": [source.of(INTEGERS)],
            "flag": [source.of(FLAGS)],
            "sum": ["float32"],
        }
        self.kernels: list[Kernel] = []
        self.called: set[str] = set()
        """The kernels that the caller calls."""

    def draw(self) -> Json:
        """Return the document."""
        s = self.source
        for number in range(s.between(1, 3) if self.shape.calls else 0):
            self.kernels.append(self._kernel(f"k{number}"))
        functions, calls = [self._caller("main" if s.chance(30) else "sg0000")], self.called
        kernels = [kernel.function for kernel in self.kernels]
        if kernels and kernels[-1]["name"] in calls and s.chance(8):
            # as in older files: a kernel among the functions, which is one because it is called
            functions.append(kernels.pop())
        document: Json = {"arch": s.of(ARCHS), "functions": functions, "version": self.version}
        document["nki_functions"] = kernels if s.chance(15) else {"functions": kernels}
        if self.shape.lowerable:
            document = lowerable(document)
        return s.order({key: document[key] for key in sorted(document)})

    def _kernel(self, name: str) -> Kernel:
        s = self.source
        s.begin()
        made = _FunctionDrawer(self, "b", in_kernel=True)
        kernel = Kernel(name)
        for number in range(1 + s.digit(2)):
            kernel.inputs.append(made.tensor("abcd"[number], s.of(INPUT_KINDS), writable=False))
        for number in range(1 + s.digit(2)):
            kernel.outputs.append(made.tensor("cdef"[number], s.of(OUTPUT_KINDS)))
        several = self.shape.blocks and s.chance(45)
        kernel.registers = [s.fresh("r") for _ in range(s.digit(2))]
        if several and s.chance(30):
            kernel.counter = s.fresh("n")
        place = s.chance(50)
        for _ in range(s.count(3)):
            made.internal(s.fresh("x") if s.chance(20) else s.fresh("u"), allocated=place)
        made.registers(kernel.registers, s.digit(2))
        calls = None
        if self.shape.nested and self.kernels:
            calls = CallDrawer(s, self.kernels, made.drawer, made.allocations, s.between(0, 2), in_kernel=True)
        blocks = made.blocks(several, calls, [], kernel.counter)
        kernel.split = len(blocks) > 1 or made.returns_early(blocks)
        kernel.split |= calls is not None and any(inner.split for _, inner in calls.sites)
        function = bir.function(name, made.allocations, blocks)
        if s.chance(30):
            function["attributes"] = s.of((["need_unroll"], {"need_unroll": True}, ["need_dce"]))
        kernel.function = function
        for item in made.allocations:
            for location in item.get("memorylocations", []):
                kernel.allocated |= bool(location.get("allocated")) and location["type"] in ("SB", "PSUM")
                kernel.has_sb |= location["type"] == "SB"
        return kernel

    def _caller(self, name: str) -> Json:
        s = self.source
        made = _FunctionDrawer(self, "I-", in_kernel=False)
        names = list("abcxyu")
        for _ in range(1 + s.digit(3)):
            made.tensor(names.pop(s.digit(len(names))), s.of(INPUT_KINDS), writable=False)
        for number in range(1 + s.digit(2)):
            made.tensor(s.of((f"out{number}", f"u{number}", f"call0:u{number}")), s.of(OUTPUT_KINDS))
        for number in range(s.count(3)):
            made.internal(f"u{number + 2}" if s.chance(50) else f"t{number}", allocated=s.chance(20))
        made.registers([], s.digit(4))
        calls = None
        if self.kernels:
            calls = CallDrawer(s, self.kernels, made.drawer, made.allocations, s.between(1, 5), in_kernel=False)
        names = [f"{s.of(('Block', 'B', 'call0_B'))}{number}" for number in range(1 + s.digit(5))]
        blocks = made.blocks(self.shape.blocks and s.chance(60), calls, names, None)
        if calls is not None:
            calls.clashes(blocks)
            self.called = {kernel.name for _, kernel in calls.sites}
        return bir.function(name, made.allocations, blocks)


class _FunctionDrawer:
    """Draws the storage and the blocks of one function."""

    def __init__(self, module: ExecutableModule, prefix: str, *, in_kernel: bool) -> None:
        self.module, self.source, self.in_kernel = module, module.source, in_kernel
        self.allocations: list[Json] = []
        self.drawer = ExecutableDrawer(module.source, module.version, prefix)
        self.own: list[str] = []

    def tensor(self, name: str, kind: str, *, writable: bool = True, holds: str | None = None, **place: Any) -> Tensor:
        """Add a tensor."""
        s = self.source
        sort = holds or s.of(("float", "float", "float", "int"))
        dtype = s.of(self.module.dtypes[sort])
        memory = "PSUM" if sort == "sum" else s.of(("DRAM", "SB")) if "addr" not in place else "SB"
        shape = s.of(PSUM_SHAPES if sort == "sum" else self.module.shapes)
        storage = Storage(name, f"{name}_set", memory, shape, dtype, pitch_bytes(shape, dtype))
        self.allocations.append(storage_set(s, storage, kind, **place))
        self.drawer.tensors.append(Tensor(storage, sort, writable))
        return self.drawer.tensors[-1]

    def internal(self, name: str, *, allocated: bool) -> None:
        """Add a tensor of the function's own."""
        s = self.source
        holds = s.of(("float", "float", "flag", "int", "flag", "sum"))
        place: Json = {"bank": s.digit(8), "allocated": allocated} if holds == "sum" else {}
        if holds != "sum" and s.chance(60):
            place = {"addr": 64 * s.digit(32), "allocated": allocated}
        self.tensor(name, "Internal", holds=holds, **place)

    def registers(self, bound: list[str], count: int) -> None:
        """Add registers: parameters, and the function's own."""
        self.own = [self.source.fresh("q") for _ in range(count)]
        self.drawer.registers += [*bound, *self.own]

    def blocks(
        self, several: bool, calls: CallDrawer | None, names: list[str], entry_counter: str | None
    ) -> list[Json]:
        """Draw the blocks."""
        s, drawer = self.source, self.drawer
        if not names:
            names = [f"B{number}" for number in range(2 + s.digit(4))]
        names = list(dict.fromkeys(names)) if several else names[:1]
        if entry_counter is not None and len(names) < 2:
            names.append("B9")
        flow = FlowDrawer(drawer, names, self.in_kernel, entry_counter=entry_counter)
        shape = self.module.shape
        drawer.arithmetic = shape.lowerable
        if (shape.lowerable or not self.in_kernel) and shape.blocks and not shape.unrollable:
            drawer.shape_loop = flow.cut_loop
        if calls is not None:
            drawer.call = calls.draw
        found = flow.draw()
        end = next(block for block in found if block["name"] == names[-1])["instructions"]
        if calls is not None:
            at = s.of(drawer.places(end)[:1])
            for row in calls.rest():
                drawer.placed.append(Placed(row, (), ()))
                end.insert(at, row)
        self._results(end)
        entry, begin = found[0]["instructions"], self._begin(calls, flow.counters)
        entry[:0] = begin
        drawer.placed += [Placed(row, (), ()) for row in begin]
        if self.in_kernel and len(found) == 1 and s.chance(25):
            self._return_early(entry)
        drawer.add_edges()
        known = [*drawer.registers, *drawer.trips, *flow.counters, *([entry_counter] if entry_counter else [])]
        known += calls.registers if calls is not None else []
        self.allocations += [bir.register(name) for name in dict.fromkeys(known)]
        return found

    def _results(self, end: list[Json]) -> None:
        """Write outputs of what the function has computed, before the end."""
        s, drawer = self.source, self.drawer
        kinds = {item["name"]: item.get("kind") for item in self.allocations}
        at = len(end) - bool(end and end[-1]["opcode"] == "Return")
        outputs = [t for t in drawer.tensors if kinds.get(t.storage.set_name) in OUTPUT_KINDS]
        steps = [drawer.write(target, {}) for target in outputs if s.chance(50)]
        for source in drawer.tensors:
            able = [t for t in outputs if t.holds == "float" or source.holds in ("int", "flag")]
            if source.writable and source not in outputs and able and s.chance(85):
                steps.append(drawer.fold(s.of(able), source))
        for rows in steps:
            drawer.placed += [Placed(row, (), ()) for row in rows]
            drawer.joined.update(map(id, rows[:-1]))
            end[at:at] = rows
            at += len(rows)

    def _begin(self, calls: CallDrawer | None, counters: list[str]) -> list[Json]:
        """Return rows that write all that the function reads and that its caller has not written."""
        s, drawer = self.source, self.drawer
        bound = INPUT_KINDS if not self.in_kernel else (*INPUT_KINDS, *OUTPUT_KINDS)
        kinds = {item["name"]: item.get("kind") for item in self.allocations}
        zeros = [*counters, *(calls.counters if calls is not None else [])]
        values = [(name, 0) for name in dict.fromkeys(zeros)]
        values += [(name, s.digit(4)) for name in self.own]
        values += [(name, s.digit(most + 1)) for name, most in drawer.trips.items()]
        values += [(name, s.digit(4)) for name in (calls.indices if calls is not None else [])]
        rows = [
            drawer.row("RegisterMove", [bir.immediate(value, "int32")], [bir.register_access(name)], "SP")
            for name, value in values
        ]
        return rows + [drawer.begin(t) for t in drawer.tensors if kinds.get(t.storage.set_name) not in bound]

    def _return_early(self, rows: list[Json]) -> None:
        """Put a `Return` before the end of the only block."""
        places = [at for at in self.drawer.places(rows) if at > len(rows) // 2]
        name = self.source.fresh("ret")
        rows.insert(self.source.of(places), bir.instruction(name, "Return", "SP", [], [], full_keys=False))

    def returns_early(self, blocks: list[Json]) -> bool:
        """Tell whether a `Return` stands before the end of a block."""
        return any(row["opcode"] == "Return" for block in blocks for row in block["instructions"][:-1])


class Seeded(Source):
    """A source of random choices that a seed tells, many times as quick as one of Hypothesis.

    Parameters
    ----------
    seed : int or str
        The seed.

    Examples
    --------
    >>> Seeded(7).between(1, 9) == Seeded(7).between(1, 9)
    True
    """

    def __init__(self, seed: int | str) -> None:
        super().__init__(_refuse)
        self._random = random.Random(seed)

    def between(self, low: int, high: int) -> int:
        """Return an integer of the range."""
        return self._random.randint(low, high)

    def digit(self, base: int) -> int:
        """Return an integer of 0 up to but not including the base."""
        return int(self._random.random() * base)


def _refuse(strategy: Any) -> Any:
    raise TypeError(f"a seeded choice is not drawn, found {strategy}")


def document(seed: int | str, **shape: bool) -> Json:
    """Return a module that can be executed, the same for the same seed.

    Parameters
    ----------
    seed : int or str
        The seed.
    **shape
        Fields of `Shape`.

    Returns
    -------
    dict
        The document.

    Examples
    --------
    >>> document(1) == document(1)
    True
    """
    return ExecutableModule(Seeded(seed), Shape(**shape)).draw()
