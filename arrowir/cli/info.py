"""`arrowir info`: what is in each module, counted."""

import argparse
from typing import Any

import numpy as np

from arrowir import schema
from arrowir.analyse import fit
from arrowir.cli import console, inputs
from arrowir.ir import IR
from arrowir.store import Array

COUNTED = ("blocks", "instructions", "operands", "sets", "locations", "queues")
"""Tables whose rows are counted as they are."""

FIT = ("usable_bytes", "allocated_bytes", "unallocated_bytes", "highest_byte", "fit")
"""What is shown of how a memory is filled; bytes are those of a partition."""

MEMORY_LABELS = {"SB": "SBUF"}
"""Names of memories that people write otherwise than the files do."""


def info(arguments: argparse.Namespace) -> int:
    """Print the counts of each module."""
    with console.Progress(quiet=arguments.quiet) as progress:
        given = inputs.load(inputs.find(arguments.inputs), progress)
    modules = count(given.ir)
    if arguments.json:
        console.answer(console.dump({"modules": inputs.interleaved(given, modules)}))
    else:
        show(modules)
    console.report(given.messages, quiet=arguments.quiet)
    return 1 if given.failures else 0


def count(ir: IR) -> list[dict[str, Any]]:
    """Count what is in each module.

    Parameters
    ----------
    ir
        The batch.

    Returns
    -------
    list of dict
        Per module `name`, `source`, `arch`, `stage`, the numbers of `functions` (kernel functions among them are
        `kernel_functions`), `blocks`, `instructions`, `operands`, `sets`, `locations`, `queues`; `opcodes` and
        `engines` with the number of instructions of each, most frequent first; and `memory`: for each memory its
        `locations`, how many of them are `allocated`, the `status` (allocated, unallocated or mixed), the `bytes` of
        all partitions together, and for SBUF and PSUM `bytes_per_partition` and how they `fit` the architecture
        (see `arrowir.analyse.fit`).

    Examples
    --------
    >>> import arrowir as air
    >>> (module,) = count(air.read("data/samples/klr009/scale_add.bir.json"))
    >>> module["instructions"], module["opcodes"]
    (3, {'Load': 1, 'Save': 1, 'TensorScalar': 1})
    """
    names = ir.tables["modules"].text().tolist()
    pool = ir.pools.names.texts
    totals = {table: _per_module(ir, table) for table in ("functions", *COUNTED)}
    kernels = _per_module(ir, "functions", ir.array("functions", "is_kernel") == 1)
    opcodes = _by_code(ir, "instructions", "opcode")
    engines = _by_code(ir, "instructions", "engine")
    memory = _memory(ir)
    for module, held in enumerate(fit.fit(ir)):
        for name, entry in held.items():
            memory[module][MEMORY_LABELS.get(name, name)]["fit"] = entry

    def text(column: str, module: int) -> str | None:
        number = int(ir.tables["modules"][column][module])
        return pool[number] if number >= 0 else None

    return [
        {
            "name": name,
            "source": text("source", module),
            "arch": text("arch", module),
            "stage": text("stage", module),
            "functions": int(totals["functions"][module]),
            "kernel_functions": int(kernels[module]),
            **{table: int(totals[table][module]) for table in COUNTED},
            "opcodes": opcodes[module],
            "engines": engines[module],
            "memory": memory[module],
        }
        for module, name in enumerate(names)
    ]


def _per_module(ir: IR, table: str, mask: Array | None = None) -> Array:
    module = ir.array(table, "module_id")
    return np.bincount(module if mask is None else module[mask], minlength=len(ir))


def _by_code(ir: IR, table: str, column: str) -> list[dict[str, int]]:
    """Count the rows of each code, per module: most frequent first, then by name."""
    texts = ir.pools.of(schema.BY_NAME[table].column(column)).texts
    width = len(texts) + 1
    cells = ir.array(table, "module_id").astype(np.int64) * width + ir.tables[table][column] + 1
    counts = np.bincount(cells, minlength=len(ir) * width).reshape(len(ir), width)
    found: list[dict[str, int]] = []
    for row in counts:
        some = [("none" if c == 0 else texts[c - 1], int(row[c])) for c in np.flatnonzero(row).tolist()]
        found.append(dict(sorted(some, key=lambda pair: (-pair[1], pair[0]))))
    return found


def _memory(ir: IR) -> list[dict[str, dict[str, Any]]]:
    locations = ir.tables["locations"]
    texts = ir.pools.codes["memory_type"].texts
    module, kind = ir.array("locations", "module_id").astype(np.int64), locations["type"]
    partitions, each = locations["partitions"], locations["bytes"]
    known = (partitions >= 0) & (each >= 0)
    groups = module * (len(texts) + 1) + kind + 1
    order = np.argsort(groups, kind="stable")
    found: list[dict[str, dict[str, Any]]] = [{} for _ in range(len(ir))]
    distinct, first = np.unique(groups[order], return_index=True)
    for group, rows in zip(distinct.tolist(), np.split(order, first)[1:], strict=True):
        module_id, code = divmod(group, len(texts) + 1)
        name = "none" if code == 0 else texts[code - 1]
        allocated = int((locations["allocated"][rows] == 1).sum())
        sized = rows[known[rows]]
        entry: dict[str, Any] = {
            "locations": len(rows),
            "allocated": allocated,
            "status": "mixed" if 0 < allocated < len(rows) else "allocated" if allocated else "unallocated",
            "bytes": _exact_sum(partitions[sized], each[sized]),
        }
        if name in ("SB", "PSUM"):
            entry["bytes_per_partition"] = _exact_sum(np.ones(len(sized), np.int64), each[sized])
        found[module_id][MEMORY_LABELS.get(name, name)] = entry
    return found


def _exact_sum(one: Array, other: Array) -> int:
    """Return the sum of products, exact for sizes that no memory has as well."""
    if not len(one):
        return 0
    if int(one.max()) * int(other.max()) * len(one) < 2**63:
        return int((one * other).sum())
    return sum(a * b for a, b in zip(one.tolist(), other.tolist(), strict=True))


def show(modules: list[dict[str, Any]]) -> None:
    """Print counts as tables; every row names its module."""
    total = {t: sum(m[t] for m in modules) for t in ("functions", "locations", "blocks", "instructions")}
    console.answer(
        ", ".join(
            (
                console.counted(len(modules), "module"),
                console.counted(total["functions"], "function"),
                console.counted(total["locations"], "memory location"),
                console.counted(total["blocks"], "block"),
                console.counted(total["instructions"], "instruction"),
            )
        )
        + "\n"
    )
    if not modules:
        return
    columns = ("arch", "functions", "kernel_functions", "blocks", "instructions", "operands", "sets", "locations")
    console.answer("\n")
    console.table(
        ("module", *(c.replace("_", " ") for c in columns)), [(m["name"], *(m[c] for c in columns)) for m in modules]
    )
    for noun in ("opcode", "engine"):
        rows = [(m["name"], name, number) for m in modules for name, number in m[f"{noun}s"].items()]
        if rows:
            console.answer("\n")
            console.table(("module", noun, "instructions"), rows)
    rows = [
        (m["name"], name, e["locations"], e["allocated"], e["status"], e["bytes"], e.get("bytes_per_partition"))
        for m in modules
        for name, e in m["memory"].items()
    ]
    if rows:
        console.answer("\n")
        header = ("module", "memory", "locations", "allocated", "status", "bytes", "bytes per partition")
        console.table(header, rows)
    fits = [
        (m["name"], name, e["status"], *(e["fit"][key] for key in FIT))
        for m in modules
        for name, e in m["memory"].items()
        if "fit" in e
    ]
    if fits:
        console.answer("\n")
        console.table(("module", "memory", "status", *(key.replace("_", " ") for key in FIT)), fits, absent="unknown")
