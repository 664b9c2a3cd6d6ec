"""Runtime memory reservation: one fixed SBUF region, carved out before an allocator runs (rules M1 to M8)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, SupportsInt

import numpy as np

from arrowir import diagnostics as diag
from arrowir import layouts, vocabulary
from arrowir.diagnostics import Diagnostic
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, UNCHANGED, Pass, Plan
from arrowir.runs import Runs
from arrowir.schema import NULL_INT
from arrowir.store import Array, Strings, Table

if TYPE_CHECKING:
    import polars as pl

RESERVED_NAME = "EvalAccelReservedLoc"
"""Name of the location; its set is this with `_set` behind."""

SINGLE_FUNCTION = "this pass should run in pre-linker phase, which should have only one Function per Module"

_SIZES = ("arch_capacity", "pinned_high_water_mark")


@dataclass(frozen=True)
class Reservation:
    """The regions to record: one item per module that changes."""

    module: Array
    function: Array
    addr: Array
    size: Array
    joined: Array
    """The existing set that the location joins, or -1."""
    tensor_id: Array


@dataclass(frozen=True)
class RuntimeMemoryReservation(Pass):
    """Reserve one SBUF region for the runtime, as the location `EvalAccelReservedLoc`.

    Each module must have one ordinary function and an arch level above 29. The region is recorded as an allocated,
    runtime-reserved location at the end of the function's allocations; nothing else moves.

    Parameters
    ----------
    reserved_name
        The literal `EvalAccelReservedLoc` takes the size from the architecture, any other name from what is pinned.
        The location is called by the literal in both cases.
    size_from
        ``"arch_capacity"`` or ``"pinned_high_water_mark"``: overrides the choice that `reserved_name` makes.
    usable_sbuf_bytes
        Bytes per partition below the region, for ``"arch_capacity"``; by default all but 8.

    Raises
    ------
    OptionError
        If `size_from` is neither of the two.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> after = air.passes.runtime_memory_reservation(ir).ir
    >>> after.locations.filter(name="EvalAccelReservedLoc").select("addr", "bytes").row(0)
    (229368, 8)
    """

    name: ClassVar[str] = "runtime_memory_reservation"

    reserved_name: str = RESERVED_NAME
    size_from: Literal["arch_capacity", "pinned_high_water_mark"] | None = None
    usable_sbuf_bytes: int | None = None

    @property
    def path(self) -> str:
        """Where the size comes from (rule M3)."""
        return self.size_from or _SIZES[self.reserved_name != RESERVED_NAME]

    def plan(self, ir: IR, active: Array) -> Plan:
        """Make every check and compute address and size per module."""
        status = np.full(len(ir), UNCHANGED, np.int8)
        found: list[Diagnostic] = []
        modules, functions = self._eligible(ir, active, status, found)
        capacity = np.array(
            [_capacity(level) for level in ir.array("modules", "arch_level")[modules].tolist()], np.int64
        )
        locations = _locations(ir, modules, functions)

        if self.path == "arch_capacity":
            usable = self.usable_sbuf_bytes
            # Python's integers: an option may be of any size.
            below = capacity - vocabulary.EVAL_RESERVED_BYTES if usable is None else np.full(len(modules), usable)
            addr = below.astype(object)
            size = capacity - addr
        else:
            addr = np.zeros(len(modules), object)
            size = _high_water_mark(locations, len(modules))

        failed = np.zeros(len(modules), bool)
        for k in np.flatnonzero((addr < 0) | (size < 0) | (addr + size > capacity)).tolist():
            failed[k] = True
            text = (
                f"a region of {size[k]} bytes at address {addr[k]} does not lie within the {capacity[k]} bytes of an "
                "SBUF partition; choose another `usable_sbuf_bytes`, or unpin what is too high"
            )
            found.append(_about("reservation_exceeds_sbuf", ir, modules[k], functions[k], text))
        joined, tensor_id = self._sets_to_join(ir, modules, functions, failed, found)
        kept = ~failed
        addr, size = (np.where(kept, a, 0).astype(np.int64) for a in (addr, size))
        found += _overlaps(ir, locations, modules, functions, addr, size, kept, self.path == _SIZES[1])
        status[modules[failed]] = FAILED
        status[modules[kept]] = CHANGED
        each = (modules, functions, addr, size, joined, tensor_id)
        return Plan(status, found, Reservation(*(a[kept] for a in each)))

    def _eligible(self, ir: IR, active: Array, status: Array, found: list[Diagnostic]) -> tuple[Array, Array]:
        """Return the modules that get a region, and the function of each (rules M1, M2, M6)."""
        module = ir.tables["functions"]["module_id"]
        ordinary = np.flatnonzero(ir.array("functions", "is_kernel") == 0)
        count = np.bincount(module[ordinary], minlength=len(ir))
        function = np.full(len(ir), -1, np.int64)
        function[module[ordinary][::-1]] = ordinary[::-1]
        several = np.flatnonzero(active & (count != 1)).tolist()
        found += [diag.make("single_function_required", SINGLE_FUNCTION, module_id=m) for m in several]
        active = active & (count == 1)

        level, arch = ir.array("modules", "arch_level"), ir.tables["modules"]["arch"]
        known = np.array([_capacity(x) >= 0 for x in level.tolist()], bool)
        for m in np.flatnonzero(active & ~known).tolist():
            status[m] = FAILED
            written = f"`{ir.pools.names[arch[m]]}`" if arch[m] >= 0 else "absent"
            found.append(
                diag.make("unknown_arch", f"the architecture is {written}: its SBUF capacity is not known", module_id=m)
            )
        low = active & known & (level <= vocabulary.EVAL_RESERVED_ABOVE_LEVEL)
        for m in np.flatnonzero(low).tolist():
            written = ir.pools.names[arch[m]]
            text = f"architecture `{written}` has level {level[m]}: a region is reserved above level 29 only"
            found.append(diag.make("arch_below_30", text, module_id=m))
        active = active & known & ~low

        locations = ir.tables["locations"]
        named = np.flatnonzero(locations.text().equal(RESERVED_NAME))
        owner = ir.array("locations", "function_id")[named]
        here = active[module[owner]] & (function[module[owner]] == owner) if len(named) else np.zeros(0, bool)
        flag = locations["runtime_reserved"][named] == 1
        for m in np.unique(module[owner[here]]).tolist():
            active[m] = False
            mine = here & (module[owner] == m)
            reserved = mine & flag
            row = int(named[reserved if reserved.any() else mine][0])
            about = {"location": RESERVED_NAME, "location_id": row}
            if reserved.any():
                text = f"location `{RESERVED_NAME}` is reserved already"
                found.append(_about("already_reserved", ir, m, function[m], text, **about))
            else:
                status[m] = FAILED
                text = f"a location `{RESERVED_NAME}` is not marked `runtime_reserved`; rename it or set the flag"
                found.append(_about("name_taken", ir, m, function[m], text, **about))
        modules = np.flatnonzero(active)
        return modules, function[modules]

    def _sets_to_join(
        self, ir: IR, modules: Array, functions: Array, failed: Array, found: list[Diagnostic]
    ) -> tuple[Array, Array]:
        """Return the set that each region joins (or -1) and its tensor id there (rule M5)."""
        sets, locations = ir.tables["sets"], ir.tables["locations"]
        joined = np.full(len(modules), -1, np.int64)
        tensor_id = np.zeros(len(modules), np.int64)
        named = np.flatnonzero(sets.text().equal(RESERVED_NAME + "_set"))
        place = {f: k for k, f in enumerate(functions.tolist())}
        for row in named[::-1].tolist():  # the first of several is kept
            k = place.get(int(sets["function_id"][row]))
            if k is not None:
                joined[k] = row
        for k in np.flatnonzero(joined >= 0).tolist():
            a, b = np.searchsorted(locations["set_id"], (joined[k], joined[k] + 1))
            ids = np.where(locations["tensor_id"][a:b] == NULL_INT, 0, locations["tensor_id"][a:b])
            largest = max(int(ids.max(initial=-1)), -1)
            if largest == np.iinfo(np.int64).max and not failed[k]:
                failed[k] = True
                text = f"the tensor_id after {largest} does not fit 64 bits; give the locations of the set smaller ones"
                found.append(_about("integer_overflow", ir, modules[k], functions[k], text, set_id=int(joined[k])))
            tensor_id[k] = 0 if failed[k] else 1 + largest
            if (ids < 0).any() and not failed[k]:
                failed[k] = True
                row = int(a + np.flatnonzero(ids < 0)[0])
                found.append(
                    _about(
                        "unassigned_tensor_id",
                        ir,
                        modules[k],
                        functions[k],
                        "Unassigned tensorId",
                        location=locations.text()[row],
                        location_id=row,
                    )
                )
        return joined, tensor_id

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Append a set with its location to each function, or the location to the set that is there."""
        todo: Reservation = plan.edit
        sets, locations = ir.tables["sets"], ir.tables["locations"]
        new = np.flatnonzero(todo.joined < 0)
        set_at = np.searchsorted(sets["function_id"], todo.function[new] + 1)
        set_id = todo.joined.copy()
        set_id[new] = len(sets) + np.arange(len(new))
        location_at = np.searchsorted(locations["set_id"], todo.joined + 1)
        location_at[new] = np.searchsorted(locations["set_id"], set_at)

        edit = Edit(ir, {"sets": _new_sets(ir, todo, new), "locations": _new_locations(ir, todo, set_id)})
        edit.keep("sets", Runs.inserting(len(sets), set_at))
        edit.keep("locations", Runs.inserting(len(locations), location_at))
        out = edit.build()

        old = np.flatnonzero(todo.joined >= 0)
        if len(old):
            places = edit.places("sets")
            rows = todo.joined[old] if places is None else places[0][todo.joined[old]]
            out = _mark_joined(out, rows, todo.tensor_id[old] + 1)
        return out


def _capacity(level: int) -> int:
    """Return SBUF bytes per partition at an arch level, or -1 where no hardware model is known."""
    for arch in vocabulary.ARCHES:
        if arch.level == level and arch.sbuf_bytes is not None:
            return arch.sbuf_bytes
    return -1


def _locations(ir: IR, modules: Array, functions: Array) -> "pl.DataFrame":
    """Return the SB locations of the functions concerned, with the place of their module in `modules`.

    Bytes and partitions are 128 bits wide, so that no sum of theirs wraps.
    """
    import polars as pl

    table = ir.tables["locations"]
    place = np.full(ir.count("functions") + 1, -1, np.int64)
    place[functions] = np.arange(len(modules))
    k = place[ir.array("locations", "function_id")]
    rows = np.flatnonzero((k >= 0) & (table["type"] == vocabulary.MEM_SB))
    numbers = {name: table[name][rows] for name in ("addr", "partitions", "bytes", "base", "pinned", "allocated")}
    absent = {"addr": 0, "partitions": 0, "bytes": 0, "base": 0}
    numbers |= {name: np.where(numbers[name] == NULL_INT, value, numbers[name]) for name, value in absent.items()}
    return pl.DataFrame({"row": rows, "k": k[rows], **numbers}).with_columns(pl.col(*absent).cast(pl.Int128))


def _high_water_mark(locations: "pl.DataFrame", count: int) -> Array:
    """Return per module the end of the highest pinned location, in multiples of 8; 0 without one (rules M3, M4)."""
    import polars as pl

    align8 = (pl.col("bytes") + 7) // 8 * 8
    ends = locations.filter(pl.col("pinned") == 1).group_by("k").agg((pl.col("addr") + align8).max().alias("end"))
    mark = np.zeros(count, object)
    mark[ends["k"].to_numpy()] = ends["end"].to_list()
    return mark


def _overlaps(
    ir: IR,
    locations: "pl.DataFrame",
    modules: Array,
    functions: Array,
    addr: Array,
    size: Array,
    kept: Array,
    covers: bool,
) -> list[Diagnostic]:
    """Warn of allocated locations that share bytes and partitions with the region (rule M8)."""
    import polars as pl

    first, end = pl.col("addr"), pl.col("addr") + pl.col("bytes")
    low, high = pl.lit(addr).gather(pl.col("k")), pl.lit(addr + size).gather(pl.col("k"))
    shares = (first < high) & (end > low) & (pl.col("base") < 128) & (pl.col("base") + pl.col("partitions") > 0)
    real = (pl.col("bytes") > 0) & (pl.col("partitions") > 0) & (high > low) & (pl.col("allocated") == 1)
    inside = (first >= low) & (end <= high) & (pl.col("base") + pl.col("partitions") <= 128)
    hits = locations.filter(shares & real & ~(inside & covers)).sort("row")
    found: list[Diagnostic] = []
    names = ir.tables["locations"].text()
    for (k,), rows in hits.group_by(["k"], maintain_order=True):
        if kept[k]:
            listed = ", ".join(f"`{names[row]}`" for row in rows["row"].head(10).to_list())
            more = f" and {len(rows) - 10} more" if len(rows) > 10 else ""
            text = (
                f"{len(rows)} allocated locations share bytes with the region "
                f"[{addr[k]}, {addr[k] + size[k]}): {listed}{more}; nothing is moved"
            )
            found.append(_about("reservation_overlaps", ir, modules[k], functions[k], text))
    return found


def _about(code: str, ir: IR, module: SupportsInt, function: SupportsInt, text: str, **more: Any) -> Diagnostic:
    name = ir.tables["functions"].text()[int(function)]
    return diag.make(code, text, module_id=int(module), function=name, function_id=int(function), **more)


def _new_sets(ir: IR, todo: Reservation, new: Array) -> Table:
    pools = ir.pools
    extra = '{"Skind":"memory_location_set","partition_dim":0}'
    keys = [
        "allocated",
        "dtype",
        "kind",
        "memorylocations",
        "name",
        "tensorId2MemLocSize",
        "tensor_class",
        "tensor_shape",
    ]
    members = [(layouts.COLUMN, k) for k in keys] + [(layouts.RAW, k) for k in ("Skind", "partition_dim")]
    layout = layouts.layout(sorted(members, key=lambda m: m[1]))
    allocations = sum(
        np.bincount(ir.tables[t]["function_id"], minlength=ir.count("functions")) for t in ("sets", "registers")
    )
    return Table.of(
        "sets",
        len(new),
        function_id=todo.function[new],
        ordinal=np.asarray(allocations)[todo.function[new]],
        name=Strings.of([RESERVED_NAME + "_set"] * len(new)),
        kind=vocabulary.KIND_INTERNAL,
        tensor_class=vocabulary.TENSOR_CLASSES.code("NeuronSBTensor"),
        dtype=vocabulary.DTYPES.code("uint8"),
        tensor_shape=np.array([pools.shapes.intern(f"[128,{size}]") for size in todo.size[new].tolist()], np.int32),
        allocated=1,
        tensor_id_size=todo.tensor_id[new] + 1,
        layout=pools.layouts.intern(layout),
        extra=pools.extras.intern(extra),
    )


def _new_locations(ir: IR, todo: Reservation, set_id: Array) -> Table:
    pools, count = ir.pools, len(todo.module)
    keys = ["addr", "allocated", "bank", "base", "dims", "name", "runtime_reserved", "tensor_id", "type"]
    layout = layouts.layout([(layouts.RAW, "Skind"), *((layouts.COLUMN, k) for k in keys)])
    return Table.of(
        "locations",
        count,
        set_id=set_id,
        name=Strings.of([RESERVED_NAME] * count),
        type=vocabulary.MEM_SB,
        addr=todo.addr,
        partitions=128,
        bytes=todo.size,
        bank=0,
        base=0,
        allocated=1,
        runtime_reserved=1,
        tensor_id=todo.tensor_id,
        layout=pools.layouts.intern(layout),
        extra=pools.extras.intern('{"Skind":"memory_location"}'),
    )


def _mark_joined(ir: IR, rows: Array, sizes: Array) -> IR:
    """Mirror the flag onto sets that were there, and renew the size of their tensor-id index."""
    sets = ir.tables["sets"]
    changed: dict[str, Array] = {name: sets[name].copy() for name in ("allocated", "tensor_id_size", "layout", "dtype")}
    changed["allocated"][rows], changed["tensor_id_size"][rows] = 1, sizes
    keys = ["allocated", "memorylocations", "tensorId2MemLocSize"]
    bare = rows[sets["dtype"][rows] < 0]  # a set with locations needs a dtype: that of the region's own set
    changed["layout"][rows] = layouts.edit_keys(ir.pools.layouts, sets["layout"][rows], keys, [])
    changed["layout"][bare] = layouts.edit_keys(ir.pools.layouts, sets["layout"][bare], [*keys, "dtype"], [])
    changed["dtype"][bare] = vocabulary.DTYPES.code("uint8")
    return ir.replace(sets=sets.replace(**changed))
