"""Whether the locations of a module fit into the on-chip memories of its architecture."""

from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.derived import bank_start, take, zeroed
from arrowir.store import Array
from arrowir.vocabulary import PSUM_BANK_BYTES

if TYPE_CHECKING:
    from arrowir.ir import IR

LANES = 128
BANKS = 8
"""Most banks of any PSUM."""
LARGEST = 1 << 40
"""Larger sizes are cut to this: no memory comes near, and sums stay in 64 bits."""

VERDICTS = ("fits", "only with reuse", "too large", "out of bounds", "unknown")
"""`fits`: all do, side by side, or as they are placed; `only with reuse`: they do not side by side, so that some have
to take each other's place; `too large`: one alone does not; `out of bounds`: one is placed beyond the end, or below 0;
`unknown`: the architecture is not known."""


def fit(ir: "IR") -> list[dict[str, dict[str, Any]]]:
    """Return for each module how its SBUF and PSUM are filled; kernel functions do not count.

    What is in kernel functions lies in the scratchpads of those who call them.

    Parameters
    ----------
    ir
        The batch.

    Returns
    -------
    list of dict
        Per module an entry for each of ``"SB"`` and ``"PSUM"`` that has locations: `capacity_bytes` of a partition,
        `reserved_bytes` kept from tensors, `usable_bytes`; of PSUM also `banks`, `bank_bytes` and `bank_highest_bytes`,
        the end of the highest allocated location in each bank, from the bank's start on. `allocated_bytes` and
        `unallocated_bytes` are sums over the fullest partition, of all locations whenever they are in use;
        `highest_byte` is the end of the highest allocated one, and `largest_bytes` the size of the largest of all;
        `fit` is one of `VERDICTS`. Null where the architecture does not tell.

    Examples
    --------
    >>> import arrowir as air
    >>> (module,) = fit(air.read("data/generated/tiny.json"))
    >>> module["SB"]["usable_bytes"], module["SB"]["fit"]
    (212984, 'fits')
    """
    locations = ir.tables["locations"]
    module = ir.array("locations", "module_id")
    ordinary = take(ir.array("functions", "is_kernel"), ir.array("locations", "function_id")) == 0
    sized = ordinary & (locations["partitions"] >= 0) & (locations["bytes"] >= 0)
    names = ir.pools.names.texts
    arches = [vocab.arch(names[n]) if n >= 0 else None for n in ir.tables["modules"]["arch"].tolist()]
    found: list[dict[str, dict[str, Any]]] = [{} for _ in range(len(ir))]
    for memory, name in ((vocab.MEM_SB, "SB"), (vocab.MEM_PSUM, "PSUM")):
        rows = np.flatnonzero(sized & (locations["type"] == memory))
        if not len(rows):
            continue
        held, banks = _filled(ir, rows, module[rows]), _banks(ir, rows, module[rows])
        for m in np.unique(module[rows]).tolist():
            counts = {key: int(values[m]) for key, values in held.items()}
            found[m][name] = _entry(memory, arches[m], counts, banks[m].tolist())
    return found


def _filled(ir: "IR", rows: Array, module: Array) -> dict[str, Array]:
    """Return per module the bytes of the fullest partition, of the highest end, and of the largest location."""
    locations = ir.tables["locations"]
    final = locations["allocated"][rows] == 1
    size, addr = np.minimum(locations["bytes"][rows], LARGEST), zeroed(locations["addr"][rows])
    end = np.minimum(addr, LARGEST) + size
    return {
        "allocated_bytes": _fullest(ir, rows[final], module[final], size[final]),
        "unallocated_bytes": _fullest(ir, rows[~final], module[~final], size[~final]),
        "highest_byte": _largest(len(ir), module[final], end[final]),
        "largest_bytes": _largest(len(ir), module, size),
        "below": np.bincount(module[final & (addr < 0)], minlength=len(ir)),
        "unallocated": np.bincount(module[~final], minlength=len(ir)),
    }


def _fullest(ir: "IR", rows: Array, module: Array, size: Array) -> Array:
    """Return the largest sum over the locations that have a partition, per module."""
    locations = ir.tables["locations"]
    first = np.clip(zeroed(locations["base"][rows]), 0, LANES)
    last = np.clip(first + np.minimum(locations["partitions"][rows], LANES), 0, LANES)
    change = np.zeros((len(ir), LANES + 1), np.int64)
    np.add.at(change, (module, first), size)
    np.add.at(change, (module, last), -size)
    return change.cumsum(axis=1).max(axis=1) if len(ir) else np.empty(0, np.int64)


def _largest(modules: int, module: Array, values: Array) -> Array:
    most = np.zeros(modules, np.int64)
    np.maximum.at(most, module, values)
    return most


def _banks(ir: "IR", rows: Array, module: Array) -> Array:
    """Return the end of the highest allocated location in each bank, counted from the bank's start, per module."""
    locations = ir.tables["locations"]
    final = locations["allocated"][rows] == 1
    rows, module = rows[final], module[final]
    bank = np.clip(np.abs(zeroed(locations["bank"][rows])), 0, BANKS - 1)
    addr = np.minimum(zeroed(locations["addr"][rows]), LARGEST)
    end = bank_start(bank, addr) - bank * PSUM_BANK_BYTES + addr + np.minimum(locations["bytes"][rows], LARGEST)
    most = np.zeros((len(ir), BANKS), np.int64)
    np.maximum.at(most, (module, bank), end)
    return most


def _entry(memory: int, arch: vocab.Arch | None, held: dict[str, int], held_banks: list[int]) -> dict[str, Any]:
    capacity = reserved = banks = bank_bytes = None
    if arch is not None and arch.sbuf_bytes is not None and arch.psum_banks is not None:
        assert arch.psum_bank_bytes is not None
        if memory == vocab.MEM_SB:
            capacity, reserved = arch.sbuf_bytes, arch.reserved_bytes
        else:
            banks, bank_bytes = arch.psum_banks, arch.psum_bank_bytes
            capacity, reserved = banks * bank_bytes, 0
    usable = None if capacity is None else capacity - (reserved or 0)
    entry: dict[str, Any] = {"capacity_bytes": capacity, "reserved_bytes": reserved, "usable_bytes": usable}
    if memory == vocab.MEM_PSUM:
        ends = held_banks[: banks or BANKS]
        entry |= {"banks": banks, "bank_bytes": bank_bytes, "bank_highest_bytes": ends}
    counts = ("allocated_bytes", "unallocated_bytes", "highest_byte", "largest_bytes")
    beyond = bank_bytes is not None and any(
        end + number * bank_bytes > (capacity or 0) for number, end in enumerate(held_banks) if end
    )
    verdict = "out of bounds" if beyond else _verdict(capacity, usable, held)
    return {**entry, **{key: held[key] for key in counts}, "fit": verdict}


def _verdict(capacity: int | None, usable: int | None, held: dict[str, int]) -> str:
    if capacity is None or usable is None:
        return "unknown"
    if held["largest_bytes"] > capacity:
        return "too large"
    if held["highest_byte"] > capacity or held["below"]:
        return "out of bounds"
    if not held["unallocated"] or held["allocated_bytes"] + held["unallocated_bytes"] <= usable:
        return "fits"
    return "only with reuse"
