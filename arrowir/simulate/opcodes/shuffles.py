"""Moves between partitions, in blocks of 32; bits stay as they are."""

import numpy as np

from arrowir.diagnostics import SimulationError
from arrowir.simulate.registry import opcode
from arrowir.simulate.rows import LANES, check_apart, transpose_blocks, write_where
from arrowir.simulate.step import Operand, Step
from arrowir.store import Array

_KEEP = 255
"""In a mask: the partition keeps what it holds."""


def _bits(step: Step) -> Array:
    """Return the input as rows of bit patterns, after checking that the output takes as many of that size."""
    source, out = step.ins[0], step.out
    if source.dtype.size != out.dtype.size:
        raise SimulationError(
            f"`{source.dtype.name}` is moved to `{out.dtype.name}`, and `{step.opcode}` casts nothing"
        )
    if source.count != out.count or source.partitions != out.partitions:
        raise SimulationError(
            f"{source.count} elements of {source.partitions} partitions are moved to {out.count} of {out.partitions}"
        )
    for operand in (source, out):
        _check_start(operand)
    return source.read_bits().reshape(source.partitions, -1)


def _check_start(operand: Operand) -> None:
    if operand.first_partition % LANES:
        raise SimulationError(
            f"`{operand.code.title}` starts at partition {operand.first_partition}; expected a multiple of {LANES}, "
            "as blocks of partitions do"
        )


@opcode("StreamShuffle", ins=1, outs=1, keys="mask")
def stream_shuffle(step: Step) -> None:
    """``out[i] = in[mask[i]]`` for the partitions i of each block of 32; 255 keeps what the output holds."""
    mask = np.array(step.integers("mask"), np.int64)
    if len(mask) != LANES or not np.all(((mask >= 0) & (mask < LANES)) | (mask == _KEEP)):
        raise SimulationError(f"`mask` is {mask.tolist()}; expected {LANES} numbers up to {LANES - 1}, or {_KEEP}")
    rows = _bits(step)
    check_apart(step, in_place=True)
    place = np.arange(len(rows))
    picked = mask[place % LANES]
    kept = picked == _KEEP
    source = np.where(kept, place, place // LANES * LANES + picked)
    if (source >= len(rows)).any():
        raise SimulationError(f"`mask` names partition {int(source.max())} of an input that has {len(rows)}")
    moved = np.ascontiguousarray(rows[source]).view(step.out.dtype.numpy)
    if kept.any():
        write_where(step, step.out, np.repeat(~kept, rows.shape[1]), moved)
    else:
        step.out.write_bits(moved.view(step.out.dtype.unsigned))


@opcode("StreamTranspose", ins=1, outs=1)
def stream_transpose(step: Step) -> None:
    """Every block of 32 partitions and 32 elements is transposed within itself."""
    rows = _bits(step)
    check_apart(step, in_place=True)
    step.out.write_bits(transpose_blocks(rows))
