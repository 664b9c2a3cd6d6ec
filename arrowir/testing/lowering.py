"""The form of a body after synchronisation was lowered: semaphores, DMA queues, device loops, final addresses.

Instructions of one engine run in order; what crosses engines waits for a semaphore that the producer's engine (or
queue, for DMA) counts up. Blocks end in a barrier that resets the semaphores.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.emitting import Body, Style

ENGINES = ("Pool", "Activation", "PE", "DVE", "SP")
QUEUES = {"SP": "qSPDynamicHW", "Activation": "qActDynamicHW", "Pool": "qPoolDynamic"}
STATIC_QUEUE = "qSPSpillReload0"
FIRST_SEMAPHORE = 2
TRIPS = 4

SOURCES = (*ENGINES, *QUEUES.values(), STATIC_QUEUE)
SEMAPHORES = {source: FIRST_SEMAPHORE + number for number, source in enumerate(SOURCES)}


@dataclass(slots=True)
class _Producer:
    """Whose semaphore shows that an instruction is done, the row that counts it up, and the waits for it."""

    source: str
    row: Json
    name: str
    entries: list[Json] = field(default_factory=list[Json])


def lower(allocations: list[Json], body: Body, style: Style, *, arch: str) -> Json:
    """Return the module of a flat body, as after `lower_sync`.

    The body is cut in three: what runs before a device loop, the loop, and what runs after it.

    Parameters
    ----------
    allocations : list of dict
        The sets of the function; they get their final members.
    body : Body
        The body.
    style : Style
        How it is written.
    arch : str
        The architecture.

    Returns
    -------
    dict
        The document.

    Examples
    --------
    >>> document = lower([], Body(), Style(), arch="gen3")
    >>> [block["name"] for block in document["functions"][0]["blocks"]]
    ['Block1', 'Block1_LoopBody_1', 'Block1_LoopExit_1']
    """
    lowering = _Lowering(body, style)
    blocks = lowering.blocks()
    registers = [bir.register(name) for name in lowering.registers]
    sets = [*map(_final_set, allocations), _reserved(arch), *registers]
    function = bir.function("sg0000", sets, blocks)
    return bir.module([function], arch=arch, queues=lowering.queues())


def _reserved(arch: str) -> Json:
    return bir.tensor(
        "EvalAccelReservedLoc",
        "SB",
        (128, bir.TAIL_BYTES),
        "uint8",
        addr=bir.SBUF_BYTES[arch] - bir.TAIL_BYTES,
        allocated=True,
        runtime_reserved=True,
        set_keys={"allocated": True},
    )


def _final_set(item: Json) -> Json:
    if "memorylocations" not in item:
        return item
    first = item["memorylocations"][0]
    places: list[Json] = []
    for number, place in enumerate(item["memorylocations"]):
        more: Json = {"allocated": True}
        if place["type"] == "DRAM":
            more["table_entry_id"] = number
        places.append(bir.record(**{**place, **more}))
    debug = {"shape": item["tensor_shape"], "tensor_name": first["name"]}
    return bir.record(**{**item, "debug": debug, "memorylocations": places})


class _Lowering:
    def __init__(self, body: Body, style: Style) -> None:
        self.style = style
        self.rows = body.instructions
        self.registers = [*body.registers, *(f"scf.for-iv-<{engine}>0" for engine in ENGINES)]
        self._dma_blocks: list[Json] = []
        self._in_loop = 0
        self._counts = dict.fromkeys(SOURCES, 0)
        self._waited: dict[tuple[str, int], int] = {}

    def blocks(self) -> list[Json]:
        count = len(self.rows)
        cuts = [0, count // 5, count * 4 // 5, count]
        parts = [self._block(number, self.rows[cuts[number] : cuts[number + 1]]) for number in range(len(cuts) - 1)]
        names = ("Block1", "Block1_LoopBody_1", "Block1_LoopExit_1")
        start = [
            self._control("RegisterMove", "scf.for-Init", engine, [bir.immediate(0, "int32")], [self._axis(engine)])
            for engine in ENGINES
        ]
        parts[0] = [*start, *parts[0]]
        parts[1] += self._next_trip(names[1], names[2])
        return [bir.block(name, rows) for name, rows in zip(names, parts, strict=True)]

    def _axis(self, engine: str) -> Json:
        return bir.register_access(f"scf.for-iv-<{engine}>0")

    def _control(self, opcode: str, name: str, engine: str, ins: list[Json], outs: list[Json], **keys: Any) -> Json:
        # one name for all engines: lowered dumps repeat the names of such instructions
        full = self.style.full_keys
        return bir.instruction(f"{name}_inst__I-0", opcode, engine, ins, outs, full_keys=full, keys=keys)

    def _next_trip(self, body: str, leave: str) -> list[Json]:
        """Return, for each engine, the step of the loop's counter and the branch back."""
        rows: list[Json] = []
        for engine in ENGINES:
            axis = self._axis(engine)
            step, trips = bir.immediate(1, "int32"), bir.immediate(TRIPS, "int32")
            rows.append(self._control("RegisterAlu", "scf.for-Inc", engine, [axis, step], [axis], op="add"))
            branch = {"comp_op": "IS_LTIMM", "on_true": body, "on_false": leave}
            rows.append(self._control("CompareAndBranch", "scf.for-Br", engine, [axis, trips], [], **branch))
        return rows

    def _block(self, number: int, rows: list[Json]) -> list[Json]:
        """Return the rows of one block, synchronised, with the barrier that closes it."""
        for source in self._counts:
            self._counts[source] = 0
        self._waited.clear()
        known: dict[str, _Producer] = {}
        lowered: list[Json] = []
        for index, row in enumerate(rows):
            producer, new = self._lowered(number, index, row)
            edges = [edge for edge in row.get("dependencies") or [] if edge[0] in known]
            waits = [known[name] for name, _ in edges if known[name].source != row["engine"]]
            self._wait(new, waits)
            if edges:
                new["dependencies"] = [
                    name if kind == "Flow" and index % 3 == 0 else [name, kind] for name, kind in edges
                ]
            else:
                new.pop("dependencies", None)
            known[row["name"]] = producer
            lowered.append(new)
        if number == 1:
            _carry(rows, lowered)
        self._close(number, lowered, known.values())
        return [bir.record(**row) for row in lowered]

    def _lowered(self, block: int, index: int, row: Json) -> tuple[_Producer, Json]:
        """Return what signals an instruction's end, and its new row: DMA by descriptors or by the engine itself."""
        new = dict(row)
        if row["opcode"] != "DMACopy":
            return _Producer(row["engine"], new, row["name"]), new
        dynamic = index % 2 == 0 or row["mode"] != "Copy" or "dynamic_ap_info" in row["ins"][0] | row["outs"][0]
        if dynamic:
            new["queue"] = QUEUES[row["engine"]]
            self._in_loop += block == 1
            if block == 1 and self._in_loop % 4 == 1:
                new["ins"] = [_by_register(row["ins"][0], f"scf.for-iv-<{row['engine']}>0")]
            return _Producer(new["queue"], new, row["name"]), new
        name = f"dma_{row['name']}"
        descriptor = {"name": f"{name}_desc0", "opcode": "DMADescriptorCopy", "engine": "DMA"}
        descriptor |= {"ins": row["ins"], "outs": row["outs"], "num_tiling_dimensions": 0}
        dma_block: Json = {
            "block_id": len(self._dma_blocks),
            "blocks": [bir.block("block0", [bir.record(**descriptor)])],
            "dma_trigger": row["name"],
            "engine": "DMA",
            "ins": [],
            "name": name,
            "opcode": "DMABlock",
            "outs": [],
            "section_start": True,
        }
        self._dma_blocks.append(dma_block)
        trigger = {key: new[key] for key in new if key not in ("mode", "cce_op", "oob_is_err", "transpose_op")}
        trigger |= {"opcode": "DMATrigger", "ins": [], "outs": [], "queue": STATIC_QUEUE, "dma_blocks": [name]}
        return _Producer(STATIC_QUEUE, dma_block, name), trigger

    def _wait(self, row: Json, producers: Iterable[_Producer]) -> None:
        waits: list[Json] = []
        for producer in producers:
            entry: Json = {"from": producer.name, "id": SEMAPHORES[producer.source], "wait_value": 0}
            producer.entries.append(entry)
            waits.append(entry)
        if waits:
            row["sync_info"] = {"on_wait": waits}

    def _close(self, number: int, lowered: list[Json], producers: Iterable[_Producer]) -> None:
        """Count the semaphores, keep the strictest wait for each, and add the barrier."""
        for producer in producers:
            if not producer.entries and producer.source in ENGINES:
                continue
            self._counts[producer.source] += 1
            for entry in producer.entries:
                entry["wait_value"] = self._counts[producer.source]
            update = {"id": SEMAPHORES[producer.source], "update_value": 1}
            sync = producer.row.setdefault("sync_info", {})
            sync["on_update"] = [update]
        for row in lowered:
            waits = row.get("sync_info", {}).get("on_wait")
            if waits:
                row["sync_info"]["on_wait"] = self._needed(row["engine"], waits) or None
            if "sync_info" in row:
                row["sync_info"] = bir.record(**row["sync_info"])
                if not row["sync_info"]:
                    del row["sync_info"]
        pending = [source for source in (*QUEUES.values(), STATIC_QUEUE) if self._counts[source]]
        waits = [{"id": SEMAPHORES[source], "wait_value": self._counts[source]} for source in pending]
        full = self.style.full_keys
        name = f"Block1-barrier{number}"
        barrier = bir.instruction(name, "AllEngineBarrier", "ALL", [], [], full_keys=full)
        if waits:
            barrier["sync_info"] = {"on_wait": waits}
        group = {"mode": "SemaphoreZero", "sema_group": list(SEMAPHORES.values())}
        reset = bir.instruction(name, "GroupResetSemaphores", "ALL", [], [], full_keys=full, keys=group)
        lowered += [barrier, reset]

    def _needed(self, engine: str, waits: list[Json]) -> list[Json]:
        """Return the strictest wait for each semaphore, without those that the engine has been through."""
        strictest: dict[int, Json] = {}
        for entry in waits:
            seen = self._waited.get((engine, entry["id"]), 0)
            if entry["wait_value"] > seen:
                self._waited[engine, entry["id"]] = entry["wait_value"]
                strictest[entry["id"]] = entry
        return list(strictest.values())

    def queues(self) -> list[Json]:
        rows = [bir.record(**block) for block in self._dma_blocks]
        static = {"name": STATIC_QUEUE, "num_dma_engines": 16, "blocks": [bir.block("block0", rows)]}
        dynamic = [{"name": name, "num_dma_engines": 16, "blocks": []} for name in QUEUES.values()]
        return [bir.record(**queue) for queue in (*dynamic, static)]


def _by_register(operand: Json, name: str) -> Json:
    """Return the access with a start that a register gives."""
    return bir.record(
        kind="register_ap",
        ap=operand["ap"],
        const_ap_offset=operand["offset"],
        dtype=operand["dtype"],
        is_regloc_offset=True,
        memref=operand["memref"],
        memsetref=operand["memsetref"],
        regref=name,
        reg_ap_offset=name,
    )


def _carry(rows: list[Json], lowered: list[Json]) -> None:
    """Add edges to the previous trip: the first to write a tile in the loop waits for the last to touch it."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for index, row in enumerate(rows):
        touched = [operand.get("memref") for operand in (*row["ins"], *row["outs"])]
        for name in filter(None, touched):
            last[name] = index
        for operand in row["outs"]:
            if "memref" in operand:
                first.setdefault(operand["memref"], index)
    for name, index in first.items():
        if last[name] > index:
            entries = lowered[index].setdefault("loop_carried_dependencies", [])
            entries.append([rows[last[name]]["name"], "Anti", [1]])
