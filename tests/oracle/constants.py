"""Constants and dead code (rules C1 to C5), one instruction after the other."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tests.oracle.arch import itemsize_of
from tests.oracle.edit import edge_changes, edited, give_fresh_names, lists_of, sorted_object, taken_names
from tests.oracle.graph import (
    OPERAND_LISTS,
    Block,
    Function,
    Instruction,
    Location,
    MemorySet,
    Module,
    Node,
    Ref,
    map_refs,
    refs_in,
)
from tests.oracle.joins import join_over_gaps
from tests.oracle.names import find_location, find_set, preferred_kinds
from tests.oracle.outcome import Diagnostic, Outcome, PassFailure, same_document
from tests.oracle.resolve import ARGUMENT_MAPS, load
from tests.oracle.unrolling import located

COPIES = ("TensorCopy", "GenericCopy", "Load", "Save", "DMACopy")
CALLS = ("NKIKernel", "BIRKernel", "NKIKLIRKernel", "Call")
TAKES_ADDRESS = ("ReadVarAddr", "CalcVarAddr", "CalcVarAddrSymbolic")
USED_BY_OTHERS = (
    "written_by_another_core",
    "is_shared_post_dram_alloc",
    "remote_local_target",
    "remote_writer_func",
    "device_print_metadata",
)
NUMBERS = {
    **{name: np.dtype(name) for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")},
    **{name: np.dtype(name) for name in ("float16", "float32")},
    "float32r": np.dtype("float32"),
    "bool": np.dtype("uint8"),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8e3": np.dtype(ml_dtypes.float8_e3m4),
    "float8e4": np.dtype(ml_dtypes.float8_e4m3),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8e5": np.dtype(ml_dtypes.float8_e5m2),
}
"""The dtypes whose 1 is known."""

# What each opcode has for itself, in older builds and in newer ones (reference, 5.6).
DMA = {"queue", "dge_type", "duplicate"}
OWN_KEYS = {
    "TensorCopy": {"can_read_uninit"},
    "GenericCopy": {"can_read_uninit"},
    "Load": {*DMA, "can_read_uninit", "dma_qos"},
    "Save": {*DMA, "can_read_uninit", "dma_qos"},
    "DMACopy": {
        *DMA, "mode", "oob_is_err", "transpose_op", "constants", "cce_op", "replica_groups", "remote_notification",
        "can_read_uninit", "dma_qos", "use_gpsimd_dma",
    },
    "Select": set(),
    "TensorTensor": {"op", "acc"},
    "Matmult": {
        "accumulation_flag", "psum_zero_region", "replication_resolution", "replication_shift_amnt",
        "replication_num_rows", "is_transpose", "is_fmap_onezero", "is_weight_onezero", "tile_size", "tile_position",
        "ifmap_quant_offset", "weights_quant_offset", "perf_mode", "start_tensor_calc", "stop_tensor_calc",
    },
}  # fmt: skip

COMPUTES = (
    *("GenericCopy", "GenericRelu", "AbstractCopy", "Activation", "Matmult", "MatmultSparse", "Memset"),
    *("GetGlobalRankId", "Load", "Pool", "Reciprocal", "Save", "TensorCopy", "TensorCopyDynamicSrc"),
    *("TensorCopyDynamicDst", "IndirectCopy", "TensorReduce", "TensorScalar", "TensorScalarPtr"),
    *("TensorScalarCache", "TensorTensor", "DMACopy", "BNStats", "BNStatsAggregate", "BNGradients"),
    *("BNBackprop", "BNBackprop2", "StreamShuffle", "StreamTranspose", "ReadVarAddr", "GenericIndirectLoad"),
    *("IndirectLoad", "GenericIndirectSave", "IndirectSave", "IndirectSaveAccumulate", "Select"),
    *("CopyPredicated", "Iota", "TensorScalarAffineSelect", "RangeSelect", "GetSequenceBounds", "Max"),
    *("MaxIndex", "MatchReplace", "MaxIndexAndMatchReplace", "Gather", "MatmultMx", "QuantizeMx"),
    *("Exponential", "NonzeroWithCount"),
)
"""Opcodes that do nothing but write their outputs, unless a key says so; unknown ones are not among them."""


def run_constants(doc: dict[str, Any], *, assume_finite: bool = False) -> Outcome:
    """C1 to C5 on all functions of one module."""
    module = load(doc)
    owners = {location: function for function in module.all_functions for location in function.locations}
    used = set(used_elsewhere(module, owners))
    try:
        changed = [Propagation(function, assume_finite, used).run(noops=True) for function in module.all_functions]
    except PassFailure as failure:
        return Outcome("failed", doc, [failure.diagnostic])
    notes = [Diagnostic("note", "constants_propagated", "")] if any(changed) else []
    after = module.render()
    return Outcome("unchanged" if same_document(doc, after) else "changed", after, notes)


def propagate_copy(copy: Function, assume_finite: bool) -> bool:
    """N3: on a canonical copy, which nothing else knows; tell whether something was done."""
    return Propagation(copy, assume_finite, set()).run(noops=False)


# -- what others use ----


def used_elsewhere(module: Module, owners: dict[Location, Function]) -> Iterator[Location]:
    """The locations that operands of other functions, and those of queues, name."""
    for function in module.all_functions:
        for instruction in function.instructions():
            for role in OPERAND_LISTS:
                for operand in instruction.operands(role):
                    yield from (each for each in mentioned(operand) if owners[each] is not function)
    home = next((f for f in module.functions if f.name == "main"), module.functions[0] if module.functions else None)
    if home is not None:
        yield from raw_mentions(home, module.tree.get("queues") or [])


def raw_mentions(function: Function, value: Any) -> Iterator[Location]:
    """What operands name that stand in instructions which are data."""
    if isinstance(value, list):
        for item in value:
            yield from raw_mentions(function, item)
    elif isinstance(value, dict):
        for key, member in value.items():
            if key not in OPERAND_LISTS:
                if key in ("blocks", "instructions"):
                    yield from raw_mentions(function, member)
                continue
            for operand in member or []:
                location = find_location(function, operand.get("memref"), preferred_kinds(key))
                named = find_set(function, operand.get("memsetref"), preferred_kinds(key))
                if location is not None:
                    yield location
                elif named is not None:
                    yield from named.locations


def mentioned(operand: dict[str, Any]) -> list[Location]:
    """The location of an operand, else all those of its set."""
    location, named = (operand.get(key) for key in ("memref", "memsetref"))
    if isinstance(location, Ref) and isinstance(location.target, Location):
        return [location.target]
    if isinstance(named, Ref) and isinstance(named.target, MemorySet):
        return named.target.locations
    return []


def is_plain(operand: dict[str, Any]) -> bool:
    """An access to memory of which no register and no tensor of indices says where it is."""
    if operand.get("dynamic_ap_info") is not None or operand.get("tensor_indirect_arg_id") not in (None, -1):
        return False
    return operand.get("kind") in ("physical_ap", "symbolic_ap", "symbolic_pwap") and "IndirectArgId" not in str(
        operand
    )


@dataclass(eq=False)
class Propagation:
    """One function on its way."""

    function: Function
    assume_finite: bool
    used: set[Location]
    suffixes: dict[Instruction, str] = field(default_factory=dict)
    removed: list[Instruction] = field(default_factory=list)
    dropped_keys: dict[Instruction, set[str]] = field(default_factory=dict)
    new_keys: dict[Instruction, dict[str, Any]] = field(default_factory=dict)
    opcodes: dict[Instruction, str] = field(default_factory=dict)
    inputs: dict[Instruction, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.live = list(self.function.instructions())
        self.own = set(self.function.locations)
        self.known: dict[Location, tuple[int, str] | None] = {}
        self.place = {instruction: place for place, instruction in enumerate(self.live)}
        self.closed = {location for location in self.function.locations if self.is_closed(location)} | self.used
        for location in self.function.locations:
            self.close_aliases(location)
        for instruction in self.live:
            self.close_what_is_handed_over(instruction)

    def run(self, *, noops: bool) -> bool:
        """C4: C2 to its fixpoint, C3 to its fixpoint, again until nothing changes."""
        going = True
        while going:
            going = False
            while self.rewrite_round():
                going = True
            while self.sweep_round():
                going = True
        if not self.suffixes and not self.removed:
            return False
        self.finish(noops)
        return True

    # -- what is known ----

    def opcode(self, instruction: Instruction) -> Any:
        return self.opcodes.get(instruction, instruction.opcode)

    def ins(self, instruction: Instruction) -> list[dict[str, Any]]:
        return self.inputs.get(instruction, instruction.operands("ins"))

    def reads(self, instruction: Instruction) -> list[Location]:
        indirect = [] if instruction in self.inputs else instruction.operands("indirection_ins")
        return [each for operand in [*self.ins(instruction), *indirect] for each in mentioned(operand)]

    def is_closed(self, location: Location) -> bool:
        """C1: not an Internal location of the function's own."""
        memory_set, obj = location.set.obj, location.obj
        if (
            memory_set.get("kind") != "Internal"
            or memory_set.get("addr_space") == "Debug"
            or memory_set.get("volatile")
        ):
            return True
        return any(obj.get(key) for key in ("pinned", "runtime_reserved", *USED_BY_OTHERS))

    def close_aliases(self, location: Location) -> None:
        pointed = location.obj.get("pointer_ref_memloc")
        if isinstance(pointed, Ref):
            self.closed |= {location, *([pointed.target] if isinstance(pointed.target, Location) else [])}
        for entry in location.obj.get("alias") or []:
            targets = [ref.target for ref in refs_in(entry)]
            ends = [each for each in targets if isinstance(each, Location)]
            sets = [each for each in targets if isinstance(each, MemorySet)]
            self.closed |= {location, *(ends or [each for named in sets for each in named.locations])}

    def close_what_is_handed_over(self, instruction: Instruction) -> None:
        obj = instruction.obj
        if obj.get("blocks") and not instruction.blocks:
            self.closed |= set(raw_mentions(self.function, obj["blocks"]))
        roles = OPERAND_LISTS if instruction.opcode in CALLS else ("ins", "indirection_ins")
        if instruction.opcode in CALLS or instruction.opcode in TAKES_ADDRESS:
            self.closed |= {
                each for role in roles for operand in instruction.operands(role) for each in mentioned(operand)
            }
        for key in ARGUMENT_MAPS.get(instruction.opcode, ()):
            for ref in refs_in(obj.get(key)):
                if isinstance(ref.target, Location):
                    self.closed.add(ref.target)
                elif isinstance(ref.target, MemorySet):
                    self.closed |= set(ref.target.locations)

    def constant(self, location: Location) -> tuple[int, str] | None:
        """C1: the bits that a location holds, with their dtype; None where it is not constant."""
        if location not in self.known:
            self.known[location] = self.find_constant(location)
        return self.known[location]

    def find_constant(self, location: Location) -> tuple[int, str] | None:
        if location in self.closed or location not in self.own:
            return None
        writes = [
            (instruction, operand)
            for instruction in self.live
            for operand in instruction.operands("outs")
            if location in mentioned(operand)
        ]
        if len(writes) != 1:
            return None
        ((writer, operand),) = writes
        bits = self.fills(writer)
        if bits is None or writer.obj.get("predicates") or not covers(operand, location):
            return None
        if not bits < 1 << 8 * itemsize_of(operand["dtype"]):
            return None
        if any(location in self.reads(each) for each in self.live if self.place[each] < self.place[writer]):
            return None
        return bits, operand["dtype"]

    def fills(self, instruction: Instruction) -> int | None:
        """What a Memset writes."""
        if self.opcode(instruction) != "Memset" or self.ins(instruction) or len(instruction.operands("outs")) != 1:
            return None
        if instruction not in self.inputs and instruction.operands("indirection_ins"):
            return None
        keys = {**instruction.obj, **self.new_keys.get(instruction, {})}
        bits = keys.get("constant")
        if keys.get("mode") != "Const" or not isinstance(bits, int) or isinstance(bits, bool):
            return None
        return bits if 0 <= bits < 1 << 64 else None

    def value(self, operand: dict[str, Any]) -> tuple[int, str] | None:
        """The bits that an operand reads, where that is a constant in its own dtype."""
        if operand.get("kind") != "physical_ap" or not is_plain(operand):
            return None
        if not isinstance(operand.get("memref"), Ref) or not isinstance(operand["memref"].target, Location):
            return None
        location = operand["memref"].target
        found = self.constant(location)
        if found is None or found[1] != operand.get("dtype") or not is_inside(operand, location):
            return None
        return found

    def number(self, operand: dict[str, Any]) -> float | None:
        """The number that an operand reads, where it is a constant of a dtype whose numbers are known."""
        found = self.value(operand)
        if found is None or found[1] not in NUMBERS:
            return None
        held = NUMBERS[found[1]]
        return float(np.array(found[0], f"u{held.itemsize}").view(held).astype(np.float64))

    # -- C2 ----

    def rewrite_round(self) -> bool:
        """Decide all rewrites by what is constant now, then make them."""
        decided = []
        self.known = {}
        for instruction in self.live:
            with located(self.function, instruction):
                change = self.decide(instruction)
            if change is not None:
                decided.append((instruction, change))
        for instruction, change in decided:
            if change == "remove":
                self.remove(instruction)
            elif isinstance(change, int):
                self.become(instruction, "Memset", [], {"mode": "Const", "constant": change})
            else:
                self.become(instruction, "GenericCopy", [change], {})
        return bool(decided)

    def become(self, instruction: Instruction, opcode: str, ins: list[dict[str, Any]], keys: dict[str, Any]) -> None:
        own = OWN_KEYS[self.opcode(instruction)]
        self.dropped_keys[instruction] = self.dropped_keys.get(instruction, set()) | own
        self.new_keys[instruction] = keys
        self.opcodes[instruction] = opcode
        self.inputs[instruction] = ins
        more = "_constant_propagate_memset" if opcode == "Memset" else "_ConstantPropagate_copy"
        self.suffixes[instruction] = self.suffixes.get(instruction, "") + more

    def remove(self, instruction: Instruction) -> None:
        self.live.remove(instruction)
        self.removed.append(instruction)
        self.suffixes.pop(instruction, None)

    def decide(self, instruction: Instruction) -> Any:
        """What an instruction becomes: bits for a Memset, an operand for a copy of it, `remove`, None."""
        opcode, ins, outs, obj = (
            self.opcode(instruction),
            self.ins(instruction),
            instruction.operands("outs"),
            instruction.obj,
        )
        if instruction not in self.inputs and instruction.operands("indirection_ins"):
            return None
        if len(outs) != 1 or not is_plain(outs[0]):
            return None
        (out,) = outs
        if opcode in COPIES and len(ins) == 1:
            found = self.value(ins[0])
            if opcode == "DMACopy" and not just_copies(obj):
                return None
            return found[0] if found is not None and ins[0]["dtype"] == out.get("dtype") else None
        if opcode == "Select" and len(ins) == 3:
            return self.decide_select(instruction, *ins)
        if opcode == "TensorTensor" and len(ins) == 2 and obj.get("acc") in (None, "Idle"):
            return self.decide_logical(obj.get("op"), ins, out)
        if opcode == "Matmult" and len(ins) == 2 and self.assume_finite and 0 in map(self.number, ins):
            return self.decide_product(instruction)
        return None

    def decide_select(self, instruction: Instruction, predicate: Any, on_true: Any, on_false: Any) -> Any:
        number = self.number(predicate)
        if number is None:
            return None
        if number not in (0, 1):
            raise PassFailure("invalid_select_predicate", f"Invalid predicate value for Select {instruction.name}")
        chosen = on_true if number == 1 else on_false
        return chosen if is_plain(chosen) else None

    def decide_logical(self, op: Any, ins: list[dict[str, Any]], out: dict[str, Any]) -> Any:
        if op not in ("logical_and", "logical_or"):
            return None
        decides = 0 if op == "logical_and" else 1
        numbers = [self.number(operand) for operand in ins]
        if decides in numbers and out.get("dtype") in NUMBERS:
            held = NUMBERS[out["dtype"]]
            return int(np.array(decides).astype(held).view(f"u{held.itemsize}"))
        if self.assume_finite and 1 - decides in numbers:
            other = ins[1] if numbers[0] == 1 - decides else ins[0]
            return other if is_plain(other) else None
        return None

    def decide_product(self, instruction: Instruction) -> Any:
        obj = instruction.obj
        if obj.get("ifmap_quant_offset") or obj.get("weights_quant_offset") or obj.get("is_transpose"):
            return None
        if obj.get("start_tensor_calc") is not None:
            mode = {True: "start", False: "accumulate"}.get(obj["start_tensor_calc"])
        else:
            flag = obj.get("accumulation_flag") or 0
            mode = (
                None
                if not isinstance(flag, int)
                else "start"
                if flag & 1
                else "accumulate"
                if flag & 2
                else "overwrite"
            )
        if mode == "start":
            return None if obj.get("psum_zero_region") else 0
        return "remove" if mode == "accumulate" and not is_tied(instruction) else None

    # -- C3 ----

    def sweep_round(self) -> bool:
        """Remove what has outputs that nothing reads."""
        read = {location for instruction in self.live for location in self.reads(instruction)} | self.closed
        for instruction in self.live:
            if instruction not in self.inputs and adds(instruction) and self.stays(instruction):
                read |= {each for operand in instruction.operands("outs") for each in mentioned(operand)}
        dead = [each for each in self.live if self.is_dead(each, read)]
        for instruction in dead:
            self.remove(instruction)
        return bool(dead)

    def is_dead(self, instruction: Instruction, read: set[Location]) -> bool:
        outs = instruction.operands("outs")
        if not outs or is_tied(instruction) or self.has_effect(instruction):
            return False
        for operand in outs:
            own = [each for each in mentioned(operand) if each in self.own]
            if not own or any(each in read for each in own):
                return False
        return True

    def stays(self, instruction: Instruction) -> bool:
        """Whether it stays for another reason than that one location is read."""
        outs = [mentioned(operand) for operand in instruction.operands("outs")]
        return (
            is_tied(instruction)
            or self.has_effect(instruction)
            or len(outs) != 1
            or len(outs[0]) != 1
            or outs[0][0] not in self.own
        )

    def has_effect(self, instruction: Instruction) -> bool:
        """C3: anything else than writing outputs."""
        opcode, obj = self.opcode(instruction), instruction.obj
        if instruction in self.inputs:
            return False
        if opcode not in COMPUTES:
            return True
        defaults = {"RangeSelect": {"reduce_cmd": "ZeroAccumulate"}}.get(opcode, {})
        for key in ("acc", "reduce_cmd", "accumulator_cmd"):
            command = defaults.get(key) if obj.get(key) is None else obj[key]
            if command not in (None, "Idle"):
                return True
        if opcode == "Memset" and obj.get("mode") != "Const":
            return True
        return any(obj.get(key) for key in ("remote_notification", "replica_groups", "runtime_semaphore_wait_value"))

    # -- the new function ----

    def finish(self, noops: bool) -> None:
        """Put everything in place: rows, keys, edges, names."""
        taken = taken_names(self.function)
        gone = set(self.removed)
        for instruction in self.live:
            lists = join_over_gaps(lists_of(instruction), lambda t: lists_of(t) if t in gone else None)
            changes, drop = edge_changes(instruction.obj, lists)
            if instruction in self.opcodes:
                new = self.new_keys[instruction]
                changes |= {"opcode": self.opcodes[instruction], "ins": self.inputs[instruction], **new}
                drop |= self.dropped_keys[instruction] - new.keys()
            instruction.obj = edited(instruction.obj, changes, drop)
            for key in {"sync_info", "associate_branch"} & instruction.obj.keys():  # R5: what named one that goes
                instruction.obj[key] = map_refs(
                    instruction.obj[key], lambda ref: Ref(ref.name) if ref.target in gone else ref
                )
        wanted: dict[Node, str] = {each: f"{each.name}{more}" for each, more in self.suffixes.items()}
        for block in {id(each.block): each.block for each in self.removed}.values():
            kept = [each for each in block.instructions if each not in gone]
            if not kept and noops:
                kept = [noop(block)]
                wanted[kept[0]] = f"{block.obj.get('name') or ''}_noop"
            block.obj["instructions"] = kept
        give_fresh_names(self.function, taken, wanted)


def noop(block: Block) -> Instruction:
    """C4: what an emptied block gets."""
    return Instruction(sorted_object(engine="Unassigned", ins=[], name="", opcode="NoOp", outs=[]), block)


def is_tied(instruction: Instruction) -> bool:
    """C3: semaphores, nested code, control flow, calls."""
    obj = instruction.obj
    branches = any(isinstance(obj.get(key), Ref | str) for key in ("target", "on_true", "on_false"))
    return bool(obj.get("sync_info")) or bool(obj.get("blocks")) or branches


def adds(instruction: Instruction) -> bool:
    """C3: it adds to what its outputs hold, or may."""
    obj, opcode = instruction.obj, instruction.opcode
    if opcode in ("Matmult", "MatmultSparse", "MatmultMx"):
        if obj.get("start_tensor_calc") is not None:
            return obj["start_tensor_calc"] is not True
        flag = obj.get("accumulation_flag")
        return flag % 4 == 2 if type(flag) is int else flag is not None
    if opcode == "DMACopy":
        return obj.get("cce_op") not in (None, "bypass")
    return opcode in ("GenericIndirectSave", "IndirectSaveAccumulate") and obj.get("op") != "bypass"


def just_copies(obj: dict[str, Any]) -> bool:
    """Whether a DMACopy does nothing but copy."""
    if obj.get("mode") not in (None, "Copy") or obj.get("cce_op") not in (None, "bypass"):
        return False
    if obj.get("transpose_op") not in (None, "None"):
        return False
    return not any(obj.get(key) for key in ("constants", "remote_notification", "replica_groups"))


def elements(operand: dict[str, Any], location: Location) -> tuple[np.ndarray, int]:
    """The elements that an access has, and how many its location has in that dtype; none where that is not clear."""
    size = sizes(operand.get("dtype"))
    if not size or operand.get("offset") is None or not location.dims:
        return np.zeros(0, np.int64), 0
    return distinct_elements(tuple(map(tuple, operand["ap"])), operand["offset"], size, tuple(location.dims))


@lru_cache(4096)
def distinct_elements(
    pattern: tuple[tuple[int, int], ...], offset: int, size: int, dims: tuple[int, ...]
) -> tuple[np.ndarray, int]:
    rest = 1
    for number in dims[1:]:
        rest *= number
    if rest % size:
        return np.zeros(0, np.int64), 0
    found = np.array([offset])
    for step, number in pattern:
        found = np.unique(found[:, None] + step * np.arange(number))
    return found, dims[0] * (rest // size)


def sizes(dtype: Any) -> int:
    try:
        return itemsize_of(dtype)
    except PassFailure:
        return 0


def covers(operand: dict[str, Any], location: Location) -> bool:
    """C1: every element of a location, by a physical access without dynamic parts that names it."""
    if operand.get("kind") != "physical_ap" or not is_plain(operand) or not isinstance(operand.get("memref"), Ref):
        return False
    if operand["memref"].target is not location:
        return False
    found, total = elements(operand, location)
    return len(found) > 0 and found.tolist() == list(range(total))


def is_inside(operand: dict[str, Any], location: Location) -> bool:
    found, total = elements(operand, location)
    return len(found) > 0 and found[0] >= 0 and found[-1] < total
