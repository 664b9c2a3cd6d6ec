"""Loads and saves of table rows by index: one after the other, in the order of the indices."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arrowir.diagnostics import SimulationError
from arrowir.simulate import indices
from arrowir.simulate.opcodes.dma import DIMENSIONS
from arrowir.simulate.registry import opcode
from arrowir.simulate.scattered import Numbers, Scattered, refuse_overlap
from arrowir.simulate.step import Operand, Step

_REDUCTIONS = ("bypass", "add")


@opcode("ReadVarAddr", ins=1, outs=1, basis="inferred")
def read_address(step: Step) -> None:
    """The address of a location as indirect loads and saves take it: 2**32, since each location begins at 0."""
    memory, out = step.ins[0].access.memory, step.out
    if not memory.flat:
        raise SimulationError(f"`{memory.name}` has partitions; expected a location in DRAM")
    if out.dtype.name not in ("int64", "uint64"):
        raise SimulationError(f"an address of 64 bits is written to `{out.dtype.name}`")
    out.write(np.full(out.shape, indices.BIAS, out.dtype.numpy))


@opcode("IndirectLoad", ins=(1, 2), outs=1, indirection=(0, 1), basis="strong")
def indirect_load(step: Step) -> None:
    """For each index a run of elements of the table, which begins at that element."""
    table, out = step.ins[0], step.out
    if out.access.steps[-1] != 1:
        raise SimulationError("Must have step 1 in final dim of IndirectLoad output AP")
    found = _entries(table, *_decoded(step), out.count)
    _load(step, found)


@opcode("IndirectSave", ins=(1, 2), outs=1, indirection=(0, 1), basis="strong")
def indirect_save(step: Step) -> None:
    """For each index a run of elements is written to the table, from that element on."""
    _save(step, _entries(step.out, *_decoded(step), step.ins[0].count), "bypass")


@opcode(
    "IndirectSaveAccumulate", ins=(1, 2), outs=1, indirection=(0, 1), keys="num_indices entry_step_elements op",
    basis="strong",
)  # fmt: skip
def indirect_save_accumulate(step: Step) -> None:
    """For each of the first `num_indices` indices a run of elements is added to the table, by default, or written."""
    data, table = step.ins[0], step.out
    operand = _index_operand(step)
    index = operand.int64().reshape(-1)
    number = step.integer("num_indices")
    if number > len(index):
        raise SimulationError(f"IndirectSaveAccumulate: insufficient indices; {number} of {len(index)} are asked for")
    used = _used(step, operand, len(index), number)
    entry = _length(data.count, len(index))
    numbers = _start(table) + indices.times(index, step.integer("entry_step_elements"))
    _refuse_psum(table, write=True)
    target = Scattered(table, table.access.memory, table.access.dtype, numbers[:, None] + np.arange(entry), used)
    _save(step, target, step.word("op"))


def _used(step: Step, operand: Operand, count: int, number: int) -> NDArray[np.bool_]:
    """Return which indices count, when so many do."""
    flat = np.arange(count) < number
    partition = np.arange(count) % (count // operand.partitions) < number
    if (flat == partition).all():
        return flat
    met = f"{number} of {count} indices in {operand.partitions} partitions count"
    return flat if step.decide("num_indices", met) == "flat" else partition


# -- several indices for each element ---------------------------------------------------------------------------------


@opcode("GenericIndirectLoad", ins=(1, None), outs=1, indirection=(0, None), keys="indirect_dims")
def generic_load(step: Step) -> None:
    """Rows of a table by several indices, each of which counts along a dimension of it."""
    _load(step, _generic(step, step.ins[0]))


@opcode("GenericIndirectSave", ins=(1, None), outs=1, indirection=(0, None), keys="indirect_dims op")
def generic_save(step: Step) -> None:
    """Rows are added to those of a table, by default, or written; several indices count along its dimensions."""
    _save(step, _generic(step, step.out), step.word("op"))


def _generic(step: Step, table: Operand) -> Scattered:
    """Return the rows of the table that the indices mean."""
    dims = step.attribute("indirect_dims") if step.has("indirect_dims") else []
    if not isinstance(dims, list | tuple):
        raise SimulationError(f"`indirect_dims` is {dims!r:.60}; expected a list of dimensions")
    operands = [*step.ins[1:], *step.indirection]
    if indices.is_indirect(table.code):
        if dims and len(dims) != len(operands):
            raise SimulationError("Indirect dimensions must be one less than instruction argument number")
        found = indices.scattered(table, decode=indices.biased)
        _refuse_psum(table, write=table is step.out, name=found.memory.location)
        return found
    if len(dims) != len(operands) or not dims:
        raise SimulationError(
            f"Indirect dimensions must be one less than instruction argument number; found {len(dims)} for "
            f"{len(operands)} operands of indices"
        )
    access = table.access
    _refuse_psum(table, write=table is step.out)
    places = [_place(dim, len(access.shape)) for dim in dims]
    if sorted(places) != list(range(len(places))):
        raise SimulationError(f"`indirect_dims` is {list(dims)}; expected the outermost dimensions")
    inboard = [math.prod(access.shape[d + 1 :]) for d in range(len(access.shape))]
    if list(access.steps) != inboard:
        raise SimulationError(
            f"the table's elements do not lie one after the other: its steps are {list(access.steps)}"
        )
    numbers, kept = _summed(operands, [inboard[place] for place in places])
    entry = math.prod(access.shape[len(places) :])
    return Scattered(table, access.memory, access.dtype, access.offset + numbers[:, None] + np.arange(entry), kept)


def _place(dim: object, dimensions: int) -> int:
    """Return the dimension of a pattern that a letter or a number means."""
    number = DIMENSIONS.find(dim) if isinstance(dim, str) and len(dim) == 1 else dim
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(DIMENSIONS):
        raise SimulationError(f"`indirect_dims` holds {dim!r:.60}; expected W, Z, Y or X")
    if number and dimensions < len(DIMENSIONS):
        raise SimulationError(
            f"the dimension {DIMENSIONS[number]} of a pattern of {dimensions} is not modelled; only that of W is known"
        )
    return number


def _summed(operands: Sequence[Operand], factors: Sequence[int]) -> tuple[Numbers, NDArray[np.bool_]]:
    total, kept = np.zeros(1, np.int64), np.ones(1, bool)
    for operand, factor in zip(operands, factors, strict=True):
        index, counts = indices.biased(operand)
        if len(total) not in (1, len(index)):
            raise SimulationError(f"the index operands have {len(total)} and {len(index)} elements")
        total, kept = total + indices.times(np.where(counts, index, 0), factor), kept & counts
    return total, kept


# -- what they have in common -----------------------------------------------------------------------------------------


def _index_operand(step: Step) -> Operand:
    """Return the operand that holds the indices: that of `indirection_ins`, else the second input."""
    found = [*step.ins[1:], *step.indirection]
    if len(found) != 1:
        raise SimulationError(
            f"{len(found)} operands hold indices; expected one, in `indirection_ins` or second in `ins`"
        )
    return found[0]


def _decoded(step: Step) -> tuple[Numbers, NDArray[np.bool_]]:
    return indices.biased(_index_operand(step))


def _length(elements: int, rows: int) -> int:
    """Return how many elements each index means."""
    if elements % rows:
        raise SimulationError(f"{rows} indices mean {elements} elements, which are no whole number for each")
    return elements // rows


def _start(table: Operand) -> int:
    """Return the element of the location from which indices count."""
    offset = table.access.offset
    if not offset:
        return 0
    chosen = table.step.decide("indirect_offset", f"`{table.code.title}` has the offset {offset}")
    return offset if chosen == "added" else 0


def _entries(table: Operand, index: Numbers, kept: NDArray[np.bool_], elements: int) -> Scattered:
    """Return runs of elements of a table, each of which begins where an index says."""
    _refuse_psum(table, write=table is table.step.out)
    entry = _length(elements, len(index))
    access = table.access
    numbers = _start(table) + indices.times(np.where(kept, index, 0), access.steps[-1])
    return Scattered(table, access.memory, access.dtype, numbers[:, None] + np.arange(entry), kept)


def _refuse_psum(table: Operand, *, write: bool, name: int | None = None) -> None:
    program = table.step.machine.program
    location = table.access.memory.location if name is None else name
    if location >= 0 and program.placement(location).kind == "PSUM":
        raise SimulationError(
            "Indirect write should not write to Psum!" if write else "Indirect read should not read from Psum!"
        )


def _load(step: Step, found: Scattered) -> None:
    out = step.out
    _same(step, found, out)
    target = Scattered.of(out, found.shape[0], found.kept)
    refuse_overlap(found, target)
    target.write(found.read())


def _save(step: Step, target: Scattered, op: str) -> None:
    if op not in _REDUCTIONS:
        raise SimulationError(f"Invalid AluOpType '{op}' for MemoryReductionOp. Must be 'bypass' or 'add'")
    data = step.ins[0]
    _same(step, target, data)
    source = Scattered.of(data, target.shape[0], target.kept)
    refuse_overlap(source, target)
    bits = source.read()
    if op == "add":
        target.add(bits)
    else:
        target.write(bits)


def _same(step: Step, rows: Scattered, other: Operand) -> None:
    table = rows.operand
    if table.code.dtype != other.code.dtype:
        raise SimulationError(
            f"`{other.code.title}` is `{other.code.dtype}` and the table `{table.code.dtype}`; expected the same type"
        )
    if rows.count != other.count:
        raise SimulationError(
            f"{rows.shape[0]} indices mean {rows.count} elements, and `{other.code.title}` has {other.count}"
        )
