"""Rules about modules, functions, sets and locations by themselves."""

import json
from typing import Any

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.schema import NULL_INT
from arrowir.store import Array
from arrowir.verify.facts import Facts, distinct, found
from arrowir.verify.registry import Found, rule

LARGEST_SET = 1 << 32
"""Bytes that a set stays below."""


def _module_members(facts: Facts, key: str) -> list[Any]:
    numbers, texts = facts.ir.tables["modules"]["extra"], facts.ir.pools.extras.texts
    return [extras.parse(texts[n]).get(key) if n >= 0 else None for n in numbers.tolist()]


def _without_model(facts: Facts) -> Found | None:
    def names(rows: Array) -> list[Any]:
        return [name or "none" for name in facts.names("modules", rows, "arch")]

    return found("modules", facts.arch("sbuf_bytes", -1) < 0, arch=names)


def _revision(facts: Facts) -> Found | None:
    second = np.array([value == "v2" for value in _module_members(facts, "revision")], bool)
    return found("modules", second & (facts.levels >= 0) & (facts.levels != 40))


def _version(facts: Facts) -> Found | None:
    version = facts.ir.tables["modules"]["version"]
    return found("modules", ~np.isin(version, (1, 2, NULL_INT)), version=version)


def _kernels(facts: Facts) -> Found | None:
    return found("modules", facts.ir.tables["modules"]["nki_extra"] >= 0)


def _without_blocks(facts: Facts) -> Found | None:
    blocks = facts.ir.tables["blocks"]
    own = (blocks["instruction_id"] < 0) & (blocks["function_id"] >= 0)
    held = np.bincount(blocks["function_id"][own], minlength=facts.ir.count("functions"))
    return found("functions", held == 0, func=lambda rows: facts.names("functions", rows))


def _empty_blocks(facts: Facts) -> Found | None:
    blocks = facts.ir.tables["blocks"]
    held = np.bincount(facts.ir.tables["instructions"]["block_id"], minlength=len(blocks))
    return found("blocks", (held == 0) & (blocks["function_id"] >= 0))


def _split(facts: Facts) -> Found | None:
    return found("functions", facts.function_attribute("split_BB"))


def _stages(facts: Facts) -> Found | None:
    """Return the functions that say another thing of unrolling than the first one of their module."""
    said = facts.function_attribute("stage_unroll_completed")
    module = facts.ir.tables["functions"]["module_id"]
    if not said.any():
        return None
    first = np.searchsorted(module, module)

    def names(of: Array) -> list[Any]:
        return facts.names("functions", of)

    return found("functions", said != said[first], func1_name=lambda rows: names(first[rows]), func2_name=names)


def _optin(facts: Facts) -> Found | None:
    mask = facts.ir.tables["instructions"]["optin_mask"]
    bad = (mask != NULL_INT) & ((mask < 0) | (mask > 15))
    return found("instructions", bad, actual=lambda rows: [_highest(m) for m in mask[rows].tolist()], max=4)


def _highest(mask: int) -> int:
    return mask if mask < 0 else mask.bit_length() - 1


# -- sets and locations ----


def _large_sets(facts: Facts) -> Found | None:
    sets = facts.ir.tables["sets"]
    shape, texts = sets["tensor_shape"], facts.ir.pools.shapes.texts
    elements = np.zeros(len(texts) + 1)
    for number in distinct(shape):
        elements[number] = _product(json.loads(texts[number]))
    sizes = np.array([*vocab.DTYPE_BYTES, 0], np.float64)
    dtype = np.where(sets["dtype"] >= len(vocab.DTYPE_BYTES), -1, sets["dtype"])
    total = elements[shape] * sizes[dtype]
    return found("sets", total >= LARGEST_SET, actual=lambda rows: [int(t) for t in total[rows].tolist()])


def _product(shape: list[int]) -> float:
    total = 1.0
    for size in shape:
        total *= size
    return min(total, 1e300)


def _empty_locations(facts: Facts) -> Found | None:
    locations = facts.ir.tables["locations"]
    partitions, bytes_ = locations["partitions"], locations["bytes"]
    no_rows = partitions == 0
    no_rows &= (locations["type"] != vocab.MEM_PSUM) | (bytes_ <= 0)  # else told by GCA080
    empty = (bytes_ <= 0) | no_rows | (partitions < 0)
    owner = locations["set_id"]

    def sizes(rows: Array) -> list[Any]:
        pairs = zip(partitions[rows].tolist(), bytes_[rows].tolist(), strict=True)
        return [_size(*pair) for pair in pairs]

    return found("locations", empty, set=lambda rows: facts.names("sets", owner[rows]), size=sizes)


def _size(partitions: int, size: int) -> str:
    if NULL_INT in (partitions, size):
        return "no `dims`"
    return "size 0" if min(partitions, size) >= 0 else f"{partitions} partitions of {size} bytes"


def _aliases(facts: Facts) -> Found | None:
    aliases, memory = facts.ir.tables["aliases"], facts.ir.tables["locations"]["type"]
    source, target = aliases["location_id"], aliases["target_location_id"]
    flat = np.append(memory == vocab.MEM_DRAM, True)
    return found(
        "aliases",
        ~flat[source] | ~flat[target],
        src=lambda rows: facts.names("locations", source[rows]),
        dst=lambda rows: facts.names("locations", target[rows]),
    )


def _pack_ids(facts: Facts) -> Found | None:
    def hinted(value: Any) -> bool:
        return value.get("pack_id_hint") not in (None, -1)

    hint = facts.test("locations", hinted, '"pack_id_hint"')
    return found("locations", hint & (facts.ir.tables["locations"]["type"] != vocab.MEM_PSUM))


def _tensor_ids(facts: Facts) -> Found | None:
    number = facts.ir.tables["locations"]["tensor_id"]
    return found("locations", (number < 0) & (number != NULL_INT))


def _crossing(facts: Facts) -> Found | None:
    """Return the parameters of ordinary functions that are not in DRAM."""
    ir = facts.ir
    locations = ir.tables["locations"]
    kind = ir.tables["sets"]["kind"][locations["set_id"]]
    ordinary = take(ir.array("functions", "is_kernel"), ir.array("locations", "function_id")) == 0
    on_chip = np.isin(locations["type"], (vocab.MEM_SB, vocab.MEM_PSUM))
    return found("locations", ordinary & on_chip & np.isin(kind, sorted(vocab.INPUT_KINDS | vocab.OUTPUT_KINDS)))


_LEGACY = tuple(vocab.DTYPES.code(name) for name in ("float8e3", "float8e4", "float8e5"))
_OCP = tuple(vocab.DTYPES.code(name) for name in ("float8_e4m3fn", "float8_e4m3fn_x4", "float8_e5m2_x4"))


def _mixed_types(facts: Facts) -> Found | None:
    """Return the first set of the newer small floats in each module that has older ones, too."""
    sets = facts.ir.tables["sets"]
    module = facts.ir.array("sets", "module_id")
    first = [np.full(len(facts.ir) + 1, -1, np.int64) for _ in range(2)]
    for place, codes in zip(first, (_LEGACY, _OCP), strict=True):
        mine = np.flatnonzero(np.isin(sets["dtype"], codes))[::-1]
        place[module[mine]] = mine
    legacy, ocp = first
    rows = ocp[:-1][(ocp[:-1] >= 0) & (legacy[:-1] >= 0)]
    mask = np.zeros(len(sets), bool)
    mask[rows] = True

    def names(of: Array, column: str) -> list[Any]:
        return facts.names("sets", of, column)

    return found(
        "sets",
        mask,
        legacy_tensor=lambda r: names(legacy[module[r]], "name"),
        legacy_type=lambda r: names(legacy[module[r]], "dtype"),
        ocp_tensor=lambda r: names(r, "name"),
        ocp_type=lambda r: names(r, "dtype"),
    )


def _ambiguous(facts: Facts) -> Found | None:
    return found("calls", facts.ir.tables["calls"]["candidates"] > 1, name=lambda rows: _callees(facts, rows))


def _callees(facts: Facts, rows: Array) -> list[Any]:
    return facts.names("functions", facts.ir.tables["calls"]["callee_id"][rows])


RULES = [
    rule("BIR001", "structure", "the architecture has a hardware model", "write a known `arch`", _without_model,
         severity="warning", same=("BIR002",), text="No hardware model found (`{arch}`)"),
    rule("EBIR021", "structure", "revision v2 is one of core_v4", "remove `revision`, or correct `arch`", _revision),
    rule("unknown_version", "structure", "`version` is 1 or 2", "write 2, and expressions in their newer form",
         _version, severity="warning", text="Check the version of bir json file - should be 1 (old) or 2 (new), and is "
         "{version}"),
    rule("BIR025", "structure", "`nki_functions` holds `functions` and nothing else", "remove its other members",
         _kernels),
    rule("IBIR280", "structure", "a function has a block", "add a block, or remove the function", _without_blocks),
    rule("BIR078", "structure", "a block has an instruction", "remove the block, or add a `NoOp`", _empty_blocks),
    rule("BIR044", "structure", "no function has the attribute `split_BB`", "remove the attribute", _split),
    rule("BIR095", "structure", "all functions of a module are unrolled, or none is",
         "set `stage_unroll_completed` on all functions, or on none", _stages),
    rule("MLO003", "structure", "a mask of opt-in passes has four bits", "correct `optin_passes`", _optin),
    rule("BIR156", "structure", "a set is smaller than 4 GiB", "split the tensor", _large_sets),
    rule("empty_location", "structure", "a location has bytes", "remove the location, or correct `dims`",
         _empty_locations, severity="warning", text="memory location `{memloc}` of set `{set}` has {size}"),
    rule("MLOC-alias", "structure", "locations that may share bytes are in DRAM", "remove the alias", _aliases,
         text="{src} -> {dst}. Aliasing only permitted for DRAM locations."),
    rule("MLOC-packid", "structure", "a pack id is that of a PSUM location", "remove `pack_id_hint`", _pack_ids),
    rule("MLOC-tensorid", "structure", "a `tensor_id` is 0 or more", "number the locations of the set from 0",
         _tensor_ids),
    rule("BIR092", "structure", "parameters of a function are in DRAM",
         "pass the tensor through DRAM, or make the set `Internal`", _crossing),
    rule("EOCP001", "structure", "a module has small floats of the older kind, or of the newer, not both",
         "use one kind", _mixed_types),
    rule("ambiguous_callee", "call_sites", "one function has the name that a call names",
         "give the functions different names", _ambiguous, text="several functions are named `{name}`"),
]  # fmt: skip
