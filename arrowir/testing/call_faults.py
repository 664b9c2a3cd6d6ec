"""Faults of call-sites and of the kernels that they reach, each put into a module that is otherwise sound."""

import copy
from collections.abc import Callable
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawn_modules import Caller, Kernel, ModuleDrawer
from arrowir.testing.loop_faults import LOOP_FAULTS, FaultContext


class FaultPlace:
    """A call-site to spoil, with its kernel and its caller, which may be a kernel that is itself called.

    Parameters
    ----------
    module : ModuleDrawer
        The module, whose functions are drawn, and which has a call-site.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> module = ModuleDrawer(Simplest(), call_sites=1)
    >>> module.draw_functions()
    >>> FaultPlace(module).row["opcode"]
    'NKIKernel'
    """

    def __init__(self, module: ModuleDrawer) -> None:
        self.module = module
        self.source = module.source
        self.caller: Caller = module.callers[0]
        self.row: Json
        self.kernel: Kernel
        self.row, self.kernel = self.source.of(self.caller.sites)
        inner = next((one for one in module.inner if one.function is self.kernel.function), None)
        if inner is not None and inner.sites and self.source.chance(50):
            self.caller = inner
            self.row, self.kernel = self.source.of(inner.sites)

    @property
    def rows(self) -> list[Json]:
        """The instructions of the kernel."""
        return self.kernel.function["blocks"][0]["instructions"]

    def add_set(self, function: Json, item: Json) -> str:
        """Add a set to a function and return the name of its location."""
        function["allocations"].append(item)
        return item["memorylocations"][0]["name"]

    def entry(self, key: str, formal: str, actual: str) -> None:
        """Add an entry to one of the maps of the call-site."""
        entries: Any = self.row.get(key)
        if isinstance(entries, list):
            entries.append([formal, actual])
        else:
            self.set(key, {**(entries or {}), formal: actual})

    def set(self, key: str, value: Any) -> None:
        """Give the call-site a member, in its sorted place."""
        members = {**self.row, key: value}
        self.row.clear()
        self.row.update({name: members[name] for name in sorted(members)})

    def new_formal(self, kind: str = "ExternalInput") -> str:
        """Add a parameter to the kernel that nothing binds, and return its name."""
        item = bir.tensor("unbound", "DRAM", (1, 12), "int32", kind=kind, full_keys=False)
        return self.add_set(self.kernel.function, item)

    def new_actual(self, elements: int = 12) -> str:
        """Add a tensor to the caller and return its name."""
        item = bir.tensor("spare", "DRAM", (1, elements), "int32", full_keys=False)
        return self.add_set(self.caller.function, item)

    def new_tile(self, **place: Any) -> None:
        """Add a tile in the state buffer to the kernel."""
        self.add_set(self.kernel.function, bir.tensor("wide_u", "SB", (4, 8), "float32", full_keys=False, **place))

    def scratchpad(self, row: Json, *, base: int | None = None, allocated: bool = True) -> None:
        """Give a call-site an SB scratchpad, in place of the one that it has."""
        banks = (row.get("psum_buf_shape") or [0])[0]
        outs: list[Json] = row["outs"]
        where = len(outs) - banks
        if any(row.get("sb_buf_shape") or []):
            where -= 1
            del outs[where]
        name = f"pad{len(self.caller.function['allocations'])}"
        place: Json = {"addr": 16384, "allocated": allocated, "base": base}
        self.add_set(self.caller.function, bir.tensor(name, "SB", (128, 16), "float32", full_keys=False, **place))
        outs.insert(where, bir.access(name, [[16, 128], [1, 16]], "float32", full_keys=False))
        members = {**row, "sb_buf_shape": [128, 4096]}
        row.clear()
        row.update({key: members[key] for key in sorted(members)})


def _no_callee(p: FaultPlace) -> None:
    p.set("func", "nowhere")


def _ambiguous(p: FaultPlace) -> None:
    p.module.kernels.append(Kernel(copy.deepcopy(p.kernel.function)))
    # a copy among the ordinary functions would not count beside one among the kernels
    p.module.older_form = False


def _recursive(p: FaultPlace) -> None:
    def call(kernel: Kernel, target: Kernel) -> None:
        row = bir.instruction("again", "NKIKernel", "Pool", [], [], full_keys=False)
        kernel.function["blocks"][0]["instructions"].insert(0, bir.record(**row, func=target.function["name"]))

    others = [kernel for kernel in p.module.kernels if kernel is not p.kernel]
    if others and p.source.chance(60):
        other = p.source.of(others)
        call(p.kernel, other)
        call(other, p.kernel)
    else:
        call(p.kernel, p.kernel)


def _not_plain(p: FaultPlace) -> None:
    if p.source.chance(50):
        p.set("sync_info", {"on_update": [{"id": 1, "update_value": 1}]})
    else:
        p.set("predicates", [{"expr": 1}])


def _kernel_source(p: FaultPlace) -> None:
    p.set("kernel_source_val", p.source.of(("Beta4", 3, -1, "beta1", "")))


def _unbound(p: FaultPlace) -> None:
    p.new_formal(p.source.of(("ExternalInput", "Input", "ExternalOutput")))


def _unknown_parameter(p: FaultPlace) -> None:
    formal = "nowhere"
    if p.source.chance(50):
        item = bir.tensor("inner", "DRAM", (1, 12), "int32", full_keys=False)
        formal = p.add_set(p.kernel.function, item)
    p.entry(p.source.of(("func_args", "func_outs")), formal, p.new_actual())


def _unresolved(p: FaultPlace) -> None:
    form = p.source.digit(3)
    row = bir.instruction("lost", "CustomOp", "Pool", [], [], full_keys=False)
    if form == 0:
        p.entry("func_args", p.new_formal(), "nowhere")
        _bind_elsewhere(p)
        return
    if form == 1:
        row["ins"] = [bir.access("nowhere", [[1, 1], [1, 1]], "int32", full_keys=False)]
    else:
        row = bir.record(**row, dependencies=["nowhere"])
    p.rows.insert(0, row)


def _bind_elsewhere(p: FaultPlace) -> None:
    """Bind the new parameter at the other call-sites of the kernel, so that this one alone is at fault."""
    for caller in p.module.all_callers:
        for row, kernel in caller.sites:
            if kernel is p.kernel and row is not p.row:
                _bind(p, row, "unbound")


def _bind(p: FaultPlace, row: Json, formal: str) -> None:
    """Bind a parameter that was added, by an entry of another call-site."""
    caller = next(one for one in p.module.all_callers if any(site is row for site, _ in one.sites))
    name = f"late{len(caller.function['allocations'])}"
    p.add_set(caller.function, bir.tensor(name, "DRAM", (1, 12), "int32", full_keys=False))
    entries: Any = row.get("func_args")
    if isinstance(entries, list):
        entries.append([formal, name])
        return
    members = {**row, "func_args": {**(entries or {}), formal: name}}
    row.clear()
    row.update({key: members[key] for key in sorted(members)})


def _size(p: FaultPlace) -> None:
    p.entry("func_args", p.new_formal(), p.new_actual(13))
    _bind_elsewhere(p)


def _location_count(p: FaultPlace) -> None:
    formal = p.new_formal()
    item = p.kernel.function["allocations"][-1]
    item["memorylocations"].append({**item["memorylocations"][0], "name": "unbound.b", "tensor_id": 1})
    p.entry("func_args", formal, p.new_actual())
    _bind_elsewhere(p)


def _scratchpad_count(p: FaultPlace) -> None:
    p.set("psum_buf_shape", [len(p.row["outs"]) + 1, 128, 2048])


def _sb_overflow(p: FaultPlace) -> None:
    _without_any_scratchpads(p)
    p.new_tile(addr=p.source.of((2**20, 262_144, 2**40)))


def _scratchpad_unallocated(p: FaultPlace) -> None:
    # a status that the call-site records would count for more than the kernel's
    p.row.pop("is_allocated", None)
    p.new_tile(allocated=True)
    p.scratchpad(p.row, allocated=False)


def _scratchpad_base(p: FaultPlace) -> None:
    p.new_tile(allocated=True)
    for other, kernel in p.caller.sites:
        if kernel is p.kernel and other is not p.row:
            p.scratchpad(other)
    for caller in p.module.all_callers:
        if caller is not p.caller:
            _without_scratchpads(caller, p.kernel)
    p.scratchpad(p.row, base=p.source.of((32, 64)))


def _without_any_scratchpads(p: FaultPlace) -> None:
    """Take away what had to be allocated if the kernel, allocated in PSUM alone, got its first tile."""
    for caller in p.module.all_callers:
        _without_scratchpads(caller, p.kernel)


def _without_scratchpads(caller: Caller, kernel: Kernel) -> None:
    """Take the SB scratchpads of a kernel's call-sites away."""
    for row, called in caller.sites:
        if called is kernel and any(row.get("sb_buf_shape") or []):
            del row["outs"][len(row["outs"]) - 1 - (row.get("psum_buf_shape") or [0])[0]]
            row["sb_buf_shape"] = [0, 0]


def _unknown_arch(p: FaultPlace) -> None:
    _without_any_scratchpads(p)
    p.new_tile()
    p.module.arch = p.source.of(("gen9", "core_v5", "GEN3"))


def _loop_fault(code: str) -> Callable[[FaultPlace], None]:
    def spoil(p: FaultPlace) -> None:
        context = FaultContext(p.source, p.module.version)
        row = LOOP_FAULTS[code](context)
        p.rows.insert(0, row)
        p.kernel.function["allocations"].extend(context.sets)

    return spoil


CALL_FAULTS: dict[str, Callable[[FaultPlace], None]] = {
    "no_callee": _no_callee,
    "ambiguous_callee": _ambiguous,
    "recursive_kernel": _recursive,
    "call_site_not_plain": _not_plain,
    "unknown_kernel_source": _kernel_source,
    "unbound_parameter": _unbound,
    "unknown_parameter": _unknown_parameter,
    "unresolved_name": _unresolved,
    "parameter_size_mismatch": _size,
    "parameter_location_count": _location_count,
    "scratchpad_count": _scratchpad_count,
    "sb_overflow": _sb_overflow,
    "scratchpad_unallocated": _scratchpad_unallocated,
    "scratchpad_base": _scratchpad_base,
    "unknown_arch": _unknown_arch,
    **{code: _loop_fault(code) for code in LOOP_FAULTS if code != "unresolved_name"},
}
"""What spoils a module so that inlining refuses it, by the code of the error."""

NEW_EXPRESSIONS = ("runtime_address", "bad_expression")
"""Faults that need expressions of version 2."""

HUGE = ("too_many_instructions",)
"""Faults whose unrolled form would not fit into memory if they were not refused."""
