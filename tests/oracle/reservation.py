"""Runtime memory reservation (rules M1 to M8)."""

from typing import Any

from tests.oracle.arch import capacity_of, level_of
from tests.oracle.edit import edited, sorted_object
from tests.oracle.graph import Function, Location, MemorySet
from tests.oracle.names import ordinary_functions
from tests.oracle.outcome import Diagnostic, Outcome, PassFailure, same_document
from tests.oracle.resolve import load

# The recorded name, and the value of `reserved_name` that selects path 1.
RESERVED = "EvalAccelReservedLoc"
PATHS = ("arch_capacity", "pinned_high_water_mark")
PARTITIONS = 128
DEFAULT_BYTES = 8
SINGLE_FUNCTION = "this pass should run in pre-linker phase, which should have only one Function per Module"


def run_reservation(
    doc: dict[str, Any],
    *,
    reserved_name: str = RESERVED,
    size_from: str | None = None,
    usable_sbuf_bytes: int | None = None,
) -> Outcome:
    """M1 to M8 on one module."""
    if size_from is not None and size_from not in PATHS:
        raise ValueError(f"size_from is `{size_from}`; it must be one of {PATHS}")
    module = load(doc)
    functions = ordinary_functions(module)
    if len(functions) != 1:
        # M1, O8: an error row that does not fail the module.
        return Outcome("unchanged", doc, [Diagnostic("error", "single_function_required", SINGLE_FUNCTION)])
    function = functions[0]
    arch = module.tree.get("arch")
    try:
        note = reason_to_leave(function, arch)
        if note is not None:
            return Outcome("unchanged", doc, [note])
        path = size_from or (PATHS[0] if reserved_name == RESERVED else PATHS[1])
        address, size = region_of(path, function, capacity_of(arch), usable_sbuf_bytes)
        # M8 is about what was there before; it is looked at before anything is added.
        warnings = overlap_warnings(path, function, address, size)
        record(function, address, size)
    except PassFailure as failure:
        return Outcome("failed", doc, [failure.diagnostic])
    after = module.render()
    return Outcome("unchanged" if same_document(doc, after) else "changed", after, warnings)


def reason_to_leave(function: Function, arch: Any) -> Diagnostic | None:
    """M2 and M6: the arch gate, and what has the name already."""
    level = level_of(arch)
    if level is None:
        raise PassFailure("unknown_arch", f"arch `{arch}` is not known; set `arch` to a known name")
    if level <= 29:
        return Diagnostic("note", "arch_below_30", f"arch `{arch}` has level {level}: nothing is reserved")
    capacity_of(arch)
    named = [location for location in function.locations if location.name == RESERVED]
    if any(location.obj.get("runtime_reserved") for location in named):
        return Diagnostic(
            "note",
            "already_reserved",
            f"`{RESERVED}` is reserved already",
            function=function.name,
            location=RESERVED,
        )
    if named:
        raise PassFailure(
            "name_taken",
            f"a location `{RESERVED}` without `runtime_reserved` is there; rename it",
            function=function.name,
            location=RESERVED,
        )
    return None


def align8(size: int) -> int:
    """M4."""
    return (size + 7) // 8 * 8


def region_of(path: str, function: Function, capacity: int, usable: int | None) -> tuple[int, int]:
    """M3: address and size; M7: both must lie inside the SBUF."""
    if path == "arch_capacity":
        address = capacity - DEFAULT_BYTES if usable is None else usable
        size = capacity - address
    else:
        address = 0
        ends = [
            location.number("addr") + align8(location.partition_bytes)
            for location in function.locations
            if location.obj.get("pinned") and location.memory == "SB"
        ]
        size = max(ends, default=0)
    if address < 0 or size < 0 or address + size > capacity:
        raise PassFailure(
            "reservation_exceeds_sbuf",
            f"{size} bytes at address {address} do not fit the {capacity} bytes of a partition",
            function=function.name,
        )
    return address, size


def record(function: Function, address: int, size: int) -> None:
    """M5: the location, in a set of its own or in the first that has the set's name; then the set's index."""
    location = sorted_object(
        Skind="memory_location",
        addr=address,
        allocated=True,
        bank=0,
        base=0,
        dims=[PARTITIONS, size],
        name=RESERVED,
        runtime_reserved=True,
        tensor_id=0,
        type="SB",
    )
    joined = next((each for each in function.sets if each.name == f"{RESERVED}_set"), None)
    if joined is not None:
        join_set(joined, location)
        return
    memory_set = sorted_object(
        Skind="memory_location_set",
        allocated=True,
        dtype="uint8",
        kind="Internal",
        memorylocations=[location],
        name=f"{RESERVED}_set",
        partition_dim=0,
        tensorId2MemLocSize=1,
        tensor_class="NeuronSBTensor",
        tensor_shape=[PARTITIONS, size],
    )
    function.obj = edited(function.obj, {"allocations": [*function.storages, MemorySet(memory_set)]})


def join_set(memory_set: MemorySet, location: dict[str, Any]) -> None:
    ids = [each.number("tensor_id") for each in memory_set.locations]
    location["tensor_id"] = 1 + max(ids) if ids else 0
    locations = [*memory_set.locations, Location(location, memory_set)]
    if any(each.number("tensor_id") < 0 for each in locations):
        raise PassFailure("unassigned_tensor_id", "Unassigned tensorId", location=RESERVED)
    largest = max(each.number("tensor_id") for each in locations)
    # A set with locations needs a dtype (F3).
    bare = {} if "dtype" in memory_set.obj else {"dtype": "uint8"}
    memory_set.obj = edited(
        memory_set.obj,
        {"allocated": True, "memorylocations": locations, "tensorId2MemLocSize": 1 + largest, **bare},
    )


def overlap_warnings(path: str, function: Function, address: int, size: int) -> list[Diagnostic]:
    """M8: allocated locations that share bytes and partitions with the region."""
    named = []
    for location in function.locations:
        if not location.obj.get("allocated") or location.memory != "SB":
            continue
        first_byte, first_partition = location.number("addr"), location.number("base")
        last_byte, last_partition = first_byte + location.partition_bytes, first_partition + location.dims[0]
        shares_bytes = max(first_byte, address) < min(last_byte, address + size)
        shares_partitions = max(first_partition, 0) < min(last_partition, PARTITIONS)
        inside = (
            first_byte >= address
            and last_byte <= address + size
            and first_partition >= 0
            and last_partition <= PARTITIONS
        )
        if shares_bytes and shares_partitions and not (path == "pinned_high_water_mark" and inside):
            named.append(location.name)
    if not named:
        return []
    shown = ", ".join(f"`{name}`" for name in named[:10])
    message = f"{len(named)} allocated locations share bytes with the region: {shown}"
    return [Diagnostic("warning", "reservation_overlaps", message, function=function.name, location=named[0])]
