"""Counts of what a document uses, by which a test shows that its generator reaches what it is meant to reach."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

from arrowir.testing.bir import Json
from arrowir.testing.checking import EDGE_LISTS, kernels_of

EXPRESSION_KINDS = (
    "AffExprKind",
    "AffIVKind",
    "ShardIDKind",
    "IntRuntimeValueKind",
    "SumKind",
    "MultKind",
    "FloorDivKind",
    "ModuloKind",
    "CCDivKind",
    "CCGetRankKind",
    "IndirectArgId",
    "CCModKind",
)
_KNOWN_ODD = ("zz_new", "A_new", "unknown key", "ключ")


def statistics(document: Json) -> Counter[str]:
    """Return how often a document uses each feature.

    Parameters
    ----------
    document : dict
        A parsed module.

    Returns
    -------
    Counter
        Counts by feature, such as `operand:physical_ap`, `edge:plain:bare`, `loop:depth 2` or `call:by position`.

    Examples
    --------
    >>> from arrowir.testing.workloads import module
    >>> statistics(module("tiny"))["call-site"]
    1
    """
    counts: Counter[str] = Counter()
    counts[f"version:{document.get('version')}"] += 1
    wrapped = document.get("nki_functions", "absent")
    counts[f"kernels:{type(wrapped).__name__ if wrapped != 'absent' else wrapped}"] += 1
    counts["queue"] += len(document.get("queues") or [])
    for function in document["functions"]:
        _function(function, counts, "function")
    for function in kernels_of(document):
        _function(function, counts, "kernel")
    for value in _objects(document):
        _anywhere(value, counts)
    return counts


def _objects(value: Any) -> Iterator[Json]:
    """Yield all objects of a document."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            known = cast(Json, item)
            yield known
            stack.extend(known.values())
        elif isinstance(item, list):
            stack.extend(cast(list[Any], item))


def _anywhere(value: Json, counts: Counter[str]) -> None:
    kind = value.get("kind")
    if kind in EXPRESSION_KINDS:
        counts[f"expression:{kind}"] += 1
    elif "terms" in value and "c" in value:
        counts[f"expression:version 1 {value.get('op', 'plain')}"] += 1
    if list(value) != sorted(value):
        counts["unsorted object"] += 1
    for key, item in value.items():
        if key in _KNOWN_ODD:
            counts["unknown member"] += 1
        if item is None:
            counts["null member"] += 1
        elif isinstance(item, float):
            counts["float"] += 1
            counts["bare non-finite float"] += item - item != 0
        elif isinstance(item, int) and not -(2**63) <= item < 2**63:
            counts["integer beyond 64 bits"] += 1
        elif isinstance(item, str):
            counts["non-finite float as text"] += item in ("inf", "-inf", "nan")
            counts["odd text"] += not item.isascii() or not item or len(item) > 100


def _function(function: Json, counts: Counter[str], kind: str) -> None:
    counts[kind] += 1
    attributes = function.get("attributes", "absent")
    counts[f"attributes:{type(attributes).__name__ if attributes != 'absent' else attributes}"] += 1
    names: list[str] = []
    for item in function["allocations"]:
        _storage(item, counts)
        names.append(item["name"])
        names += [place["name"] for place in item.get("memorylocations", [])]
    _repeated(names, counts, "storage name")
    rows = [row for row, _ in _rows(function["blocks"], 0)]
    _repeated([row["name"] for row in rows if "name" in row], counts, "instruction name")
    known = {row.get("name") for row in rows}
    places = set(names)
    if len(function["blocks"]) > 1:
        counts["several blocks"] += 1
    for block in function["blocks"]:
        counts["empty block"] += not block["instructions"]
    for row, depth in _rows(function["blocks"], 0):
        _instruction(row, depth, counts, known, places)


def _repeated(names: list[str], counts: Counter[str], what: str) -> None:
    counts[f"repeated {what}"] += len(names) - len(set(names))


def _rows(blocks: list[Json], depth: int) -> Iterator[tuple[Json, int]]:
    for block in blocks:
        for row in block["instructions"]:
            yield row, depth
            yield from _rows(row.get("blocks") or [], depth + 1)


def _storage(item: Json, counts: Counter[str]) -> None:
    counts[f"storage:{item.get('Skind', 'absent')}"] += 1
    if "NBlocks" in item or "Block" in (item.get("tensor_class") or ""):
        counts["storage:block tensor"] += 1
    places = item.get("memorylocations") or []
    counts["set of several locations"] += len(places) > 1
    counts["set of no location"] += "memorylocations" in item and not places
    for place in places:
        counts[f"location:{place['type']}"] += 1
        for key in ("alias", "pointer_ref_memloc", "pinned", "allocated", "runtime_reserved"):
            counts[f"location:{key}"] += bool(place.get(key))


def _instruction(row: Json, depth: int, counts: Counter[str], known: set[Any], places: set[str]) -> None:
    counts[f"opcode:{row['opcode']}"] += 1
    if "LoopAxis" in row:
        counts[f"loop:depth {depth + 1}"] += 1
        axis = row["LoopAxis"]
        stride, lower, upper = axis.get("stride", 0), axis.get("lb", 0), axis.get("ub", 0)
        if all(isinstance(bound, int) for bound in (stride, lower, upper)) and stride:
            counts["loop:no trips"] += not range(lower, upper, stride)
            counts["loop:descending"] += stride < 0
        else:
            counts["loop:other bounds"] += 1
    for role in ("ins", "outs", "indirection_ins"):
        counts[f"operands:{role} {'absent' if role not in row else 'empty' if not row[role] else 'some'}"] += 1
        for operand in row.get(role) or []:
            counts[f"operand:{operand['kind']}"] += 1
            counts["operand:dynamic"] += bool(operand.get("dynamic_ap_info"))
            named = operand.get("memref", operand.get("memsetref"))
            counts["unresolved storage name"] += named is not None and named not in places
    for key in EDGE_LISTS:
        for entry in row.get(key) or []:
            _edge(key, entry, counts, known)
    sync = row.get("sync_info")
    counts["sync_info"] += bool(sync)
    for key in ("on_true", "on_false", "target", "order", "loopnest", "debug", "predicates"):
        counts[f"member:{key}"] += bool(row.get(key))
    if row["opcode"] == "NKIKernel":
        _call_site(row, depth, counts)


def _edge(key: str, entry: Any, counts: Counter[str], known: set[Any]) -> None:
    relation = key.removesuffix("_dependencies").replace("dependencies", "plain")
    if isinstance(entry, str):
        form, name = "bare", entry
    else:
        name = entry[0]
        form = f"{len(entry)} items"
        counts["edge:kind as number"] += isinstance(entry[1], int)
    counts[f"edge:{relation}:{form}"] += 1
    counts["unresolved edge"] += name not in known


def _call_site(row: Json, depth: int, counts: Counter[str]) -> None:
    counts["call-site"] += 1
    counts["call:in a loop"] += depth > 0
    counts["call:SB scratchpad"] += any(row.get("sb_buf_shape") or [])
    counts["call:PSUM scratchpad"] += bool((row.get("psum_buf_shape") or [0])[0])
    counts[f"call:source {row.get('kernel_source_val', 'absent')}"] += 1
    bound = 0
    for key in ("func_args", "func_outs"):
        entries = row.get(key)
        counts[f"call:map {'absent' if key not in row else type(entries).__name__}"] += 1
        bound += len(entries or [])
    counts["call:by name"] += bound > 0
    counts["call:by position"] += bound < len(row.get("ins") or []) + len(row.get("outs") or [])
    for key in EDGE_LISTS:
        counts[f"call:{key}"] += bool(row.get(key))
