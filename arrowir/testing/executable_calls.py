"""Drawing call-sites of kernels that can be executed: every parameter is bound to what its kernel can work with."""

from dataclasses import dataclass, field
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawing import Source
from arrowir.testing.drawn_bodies import Storage, pitch_bytes, storage_set
from arrowir.testing.executable_bodies import ExecutableDrawer, Tensor

SOURCES: tuple[Any, ...] = ("Beta1", "Beta2", "Beta3", 0, 1, 2, None)


@dataclass(slots=True)
class Kernel:
    """A drawn kernel, and what its call-sites have to bind.

    Parameters
    ----------
    name : str
        The function's name.
    inputs, outputs : list of Tensor
        Its parameters.
    registers : list of str
        Registers that are parameters, and hold less than `INDICES`.
    counter : str, optional
        A register that is a parameter, and counts.
    allocated, has_sb : bool
        Whether any of its locations has an address, and whether any is in the state buffer.
    split : bool
        Whether inlining splits the block around a call-site.

    Examples
    --------
    >>> Kernel("k0").split
    False
    """

    name: str
    function: Json = field(default_factory=dict[str, Any])
    inputs: list[Tensor] = field(default_factory=list[Tensor])
    outputs: list[Tensor] = field(default_factory=list[Tensor])
    registers: list[str] = field(default_factory=list[str])
    counter: str | None = None
    allocated: bool = False
    has_sb: bool = False
    split: bool = False


class CallDrawer:
    """Draws the call-sites of one function, and adds to its storage what they bind.

    Parameters
    ----------
    source : Source
        What it draws from.
    kernels : list of Kernel
        What can be called.
    drawer : ExecutableDrawer
        Draws the rest of the function.
    allocations : list of dict
        The function's storage.
    most : int
        How many call-sites there are at most.
    in_kernel : bool
        Whether the function is a kernel.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> CallDrawer(Simplest(), [Kernel("k0")], ExecutableDrawer(Simplest(), 2, "b"), [], 1, in_kernel=False).draw()
    {'engine': 'Unassigned', 'func': 'k0', 'ins': [], 'name': 'call0', 'opcode': 'NKIKernel', 'outs': []}
    """

    def __init__(
        self,
        source: Source,
        kernels: list[Kernel],
        drawer: ExecutableDrawer,
        allocations: list[Json],
        most: int,
        *,
        in_kernel: bool,
    ) -> None:
        self.source, self.kernels, self.drawer = source, kernels, drawer
        self.allocations, self.left, self.in_kernel = allocations, most, in_kernel
        self.counters: list[str] = []
        """Registers that call-sites bind, and that have to be 0 at the start."""
        self.indices: list[str] = []
        """Registers that call-sites bind, and that have to hold an index at the start."""
        self.sites: list[tuple[Json, Kernel]] = []

    @property
    def registers(self) -> list[str]:
        """The registers that were added."""
        return [*self.counters, *self.indices]

    def draw(self, in_loop: bool = False) -> Json | None:
        """Return a call-site, or nothing when there are enough, or none can stand here."""
        if self.left <= 0:
            return None
        s = self.source
        # a kernel's loops are unrolled, which takes bodies of one block
        able = [kernel for kernel in self.kernels if not (in_loop and self.in_kernel and kernel.split)]
        if not able:
            return None
        self.left -= 1
        kernel = s.of(able)
        name = f"call{len(self.sites)}" if not s.chance(10) else s.of((f"inst__{kernel.name}", "call0", "a.b"))
        row: Json = {"engine": s.of(("Unassigned", "Pool")), "func": kernel.name, "name": name}
        row |= {"opcode": "NKIKernel", "ins": [], "outs": []}
        outputs = self._actuals(kernel.outputs, [])
        inputs = self._actuals(kernel.inputs, outputs)
        self._bind(row, "ins", kernel.inputs, inputs)
        self._bind(row, "outs", kernel.outputs, outputs)
        self._bind_registers(row, kernel)
        self._scratchpads(row, kernel)
        if s.chance(60):
            row["kernel_source_val"] = s.of(SOURCES)
        ordered = {key: row[key] for key in sorted(row)}
        self.sites.append((ordered, kernel))
        return ordered

    def rest(self) -> list[Json]:
        """Return call-sites that have found no place, at least one if there is none."""
        found: list[Json] = []
        while (not self.sites and not self.in_kernel) or self.source.chance(60):
            row = self.draw()
            if row is None:
                break
            found.append(row)
        return found

    def clashes(self, blocks: list[Json]) -> None:
        """Take some of the names that inlining would give."""
        s = self.source
        for row, kernel in self.sites:
            if not s.chance(20):
                continue
            made = [item["name"] for item in kernel.function["allocations"]]
            name = f"{row['name']}:{s.of(made)}" if made else f"{row['name']}:x"
            storage = Storage(f"{row['name']}:u0", name, "DRAM", (1, 8), "int32", 32)
            self.allocations.append(storage_set(s, storage, "Internal"))
            noop = bir.instruction(f"{row['name']}_b{s.digit(3)}", "NoOp", "SP", [], [], full_keys=False)
            blocks[0]["instructions"].insert(0, noop)

    # -- parameters ---------------------------------------------------------------------------------------------------

    def _actuals(self, formals: list[Tensor], taken: list[Tensor]) -> list[Tensor]:
        """Return what parameters are bound to; those that a kernel writes share no memory with others."""
        s = self.source
        found: list[Tensor] = []
        names = {formal.storage.name for formal in formals}
        for formal in formals:
            known = [t for t in self.drawer.tensors if _fits(t, formal) and t not in taken]
            if formal.writable:
                known = [t for t in known if t.writable and t not in found]
            # one with the name of another parameter must not be taken for that
            alike = [t for t in known if t.storage.name in names - {formal.storage.name}]
            known = alike if alike and s.chance(60) else known
            found.append(s.of(known) if known and s.chance(80) else self._new(formal))
        return found

    def _new(self, formal: Tensor) -> Tensor:
        """Add a tensor to the function."""
        s, of = self.source, formal.storage
        count = len(self.allocations)
        name = f"x{count + 2}" if not s.chance(15) else f"{'abc'[s.digit(3)]}{'_' * count}"
        shape, pitch = of.shape, of.pitch_bytes
        if s.chance(20) and of.memory == "DRAM":
            # the product of the dims counts, not the dims
            elements = of.size // bir.ITEM_BYTES[of.dtype]
            shape, pitch = (1, elements), of.size
        storage = Storage(name, f"{name}_set", of.memory, shape, of.dtype, pitch)
        self.allocations.append(storage_set(s, storage, "Internal"))
        self.drawer.tensors.append(Tensor(storage, formal.holds))
        return self.drawer.tensors[-1]

    def _bind(self, row: Json, role: str, formals: list[Tensor], actuals: list[Tensor]) -> None:
        """Bind by name or by position; a location that is bound by name must not be bound by position."""
        s, key = self.source, {"ins": "func_args", "outs": "func_outs"}[role]
        by_name = [s.chance(60) for _ in formals]
        named = {actual.storage.name for actual, name in zip(actuals, by_name, strict=True) if name}
        entries: list[list[str]] = []
        sizes: list[int] = []
        operands: list[Json] = []
        for formal, actual in zip(formals, actuals, strict=True):
            one, other = formal.storage, actual.storage
            if other.name in named:
                left = one.set_name if s.chance(25) else one.name
                entries.append([left, other.set_name if s.chance(25) else other.name])
                sizes.append(other.size)
            if other.name not in named or s.chance(60):
                if role == "ins" and s.chance(8):
                    operands.append(bir.immediate(1, "int32"))
                operands.append(self.drawer.whole(actual))
        row[role] = operands
        if entries and s.chance(25):
            # the last entry of a parameter counts
            alike = [entry[1] for entry, size in zip(entries, sizes, strict=True) if size == sizes[-1]]
            entries.insert(0, [entries[-1][0], s.of(alike)])
        pairs = s.chance(30) or len({entry[0] for entry in entries}) < len(entries)
        if entries or s.chance(20):
            row[key] = entries if pairs else dict(entries)

    def _bind_registers(self, row: Json, kernel: Kernel) -> None:
        s = self.source
        entries: list[list[str]] = []
        for formal in kernel.registers:
            if not self.drawer.registers:
                self.indices.append(s.fresh("q"))
                self.drawer.registers.append(self.indices[-1])
            entries.append([formal, s.of(self.drawer.registers)])
        if kernel.counter is not None:
            if not self.counters or s.chance(50):
                self.counters.append(s.fresh("n"))
            entries.append([kernel.counter, s.of(self.counters)])
        if not entries:
            return
        known = row.setdefault(s.of(("func_args", "func_args", "func_outs")), {})
        if isinstance(known, dict):
            known.update(dict(entries))
        else:
            known += entries

    def _scratchpads(self, row: Json, kernel: Kernel) -> None:
        s = self.source
        outs: list[Json] = row["outs"]
        if s.chance(60 if kernel.allocated else 25):
            row["sb_buf_shape"] = [128, 4096]
            allocated = (kernel.allocated and kernel.has_sb) or s.chance(50)
            outs.append(self._scratch("SB", {"addr": 16384 + 64 * s.digit(64), "allocated": allocated}))
        elif s.chance(40):
            row["sb_buf_shape"] = [0, 0]
        banks = s.digit(3) if s.chance(30) else 0
        if banks:
            row["psum_buf_shape"] = [banks, 128, 2048]
            outs += [self._scratch("PSUM", {"bank": bank}) for bank in range(banks)]

    def _scratch(self, memory: str, place: Json) -> Json:
        name, shape = f"scratch{len(self.allocations)}", (128, 16)
        storage = Storage(name, f"{name}_set", memory, shape, "float32", pitch_bytes(shape, "float32"))
        self.allocations.append(storage_set(self.source, storage, "Internal", **place))
        return self.drawer.whole(Tensor(storage, "float"))


def _fits(actual: Tensor, formal: Tensor) -> bool:
    """Tell whether a parameter can be bound to a tensor."""
    one, other = actual.storage, formal.storage
    if (actual.holds, one.dtype, one.memory) != (formal.holds, other.dtype, other.memory):
        return False
    return one.size == other.size if one.memory == "DRAM" else one.shape == other.shape
