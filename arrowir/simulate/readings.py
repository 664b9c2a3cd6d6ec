"""Undecided cases: what the reference semantics leave open, and how a caller chooses.

The simulator never guesses. Where an instruction meets one of these cases with values for which the readings differ,
it stops with a `SimulationError` that names the case; `simulate(..., readings={"case": "choice"})` decides it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from arrowir import arguments
from arrowir.diagnostics import OptionError


@dataclass(frozen=True, slots=True)
class Reading:
    """One undecided case."""

    name: str
    choices: Mapping[str, str]
    """What each choice means."""
    meaning: str


def _readings(*readings: Reading) -> dict[str, Reading]:
    return {reading.name: reading for reading in readings}


READINGS: dict[str, Reading] = _readings(
    Reading(
        "float_to_int",
        {"nearest": "round half to even, then saturate", "truncate": "drop the fraction, then saturate"},
        "a fraction, a value out of range or a NaN is written to an integer dtype (NaN gives 0)",
    ),
    Reading(
        "integer_overflow",
        {"wrap": "modulo the dtype's range", "saturate": "the nearest value of the dtype"},
        "an integer result does not fit its integer dtype",
    ),
    Reading(
        "integer_arithmetic",
        {"float32": "operands and results are rounded to float32", "exact": "whole numbers are exact"},
        "integers beyond the 24 bits of a float32 are computed with or converted",
    ),
    Reading(
        "mod",
        {"floor": "the sign of the divisor", "truncate": "the sign of the dividend"},
        "`mod` of operands of different signs",
    ),
    Reading(
        "nan_comparison",
        {"number": "the operand that is a number", "nan": "NaN"},
        "`max`, `min` and their like of a NaN and a number",
    ),
    Reading(
        "uninitialized",
        {"ones": "all bits are set, as memory starts", "zeros": "all bits are clear"},
        "unwritten bytes are read where `can_read_uninit` allows it, by more than an elementwise instruction",
    ),
    Reading(
        "half_immediate",
        {"number": "it is the value", "bits": "it is the bit pattern"},
        "an immediate of a 16-bit float dtype is written as an integer",
    ),
    Reading(
        "may_alias",
        {"separate": "they have bytes of their own", "shared": "they are the same bytes"},
        "a location is used that another one may, but need not, share bytes with",
    ),
    Reading(
        "register_address",
        {"offset": "an offset in elements", "address": "a byte address, by the location's `addr`"},
        "a `register_ap` operand without `is_regloc_offset`: what its register holds",
    ),
    Reading(
        "partition_crossing",
        {"linear": "elements run on into the next partition"},
        "an access in SB or PSUM steps over the end of a partition, or does not step by whole partitions",
    ),
    Reading(
        "overlap",
        {"snapshot": "all is read before anything is written"},
        "an elementwise instruction reads an element after it has written it",
    ),
    Reading(
        "accumulator_zero",
        {"clear": "the accumulator becomes 0 and takes nothing in"},
        "the engine accumulation `Zero`",
    ),
    Reading(
        "accumulator_accumulate",
        {"add": "as `AddAccumulate`"},
        "the engine accumulation `Accumulate`",
    ),
    Reading(
        "activation_scale",
        {"one": "it is 1", "zero": "it is 0, the default of older builds"},
        "an activation has neither the key `scale` nor an operand for it",
    ),
    Reading(
        "float32r",
        {
            "unrounded": "they are multiplied as they are",
            "tf32": "they are rounded to nearest even with a fraction of 10 bits",
        },
        "operands of `float32r`, which a product rounds in a way that is not known",
    ),
    Reading(
        "register_width",
        {"wrap": "the value modulo the width of the dtype"},
        "a register holds a value that does not fit the dtype by which it is read",
    ),
    Reading(
        "apply_transpose",
        {
            "input": "the input is transposed, in blocks of 32 partitions and 32 elements",
            "result": "the result is: as the input would be, or results of 32 partitions come out one after the other",
        },
        "`apply_transpose`: what it transposes",
    ),
    Reading(
        "second_output",
        {"accumulator": "what the accumulator of the engine holds then"},
        "a `TensorScalarPtr` has a second output",
    ),
    Reading(
        "scalar_cache",
        {
            "cache": "the first operation takes the running value, which begins with 0",
            "immediate": "the first operation takes the immediate; the running value begins with the identity of `op1`",
        },
        "`TensorScalarCache`: what its first operation takes besides the element, and with what it begins",
    ),
    Reading(
        "cache_continues",
        {"engine": "it begins with what the accumulator of the engine holds, and leaves its last value there"},
        "a `TensorScalarCache` goes on with `AddAccumulate`",
    ),
    Reading(
        "range_index",
        {"linear": "the number among all elements of the partition", "innermost": "the index of the last dimension"},
        "a `RangeSelect` of several free dimensions: which index it compares",
    ),
    Reading(
        "bn_gradients_operands",
        {"x first": "[x, dy, mean, factor]", "dy first": "[dy, x, mean, factor]"},
        "`BNGradients`: the order of its operands",
    ),
    Reading(
        "bn_backprop_operands",
        {"x first": "[x, dy, mean, B, A, scale]", "dy first": "[dy, x, mean, B, A, scale]"},
        "`BNBackprop`: the order of its operands, of which `(dy * N - ((x - mean) * B + A)) * scale` is made",
    ),
    Reading(
        "double_row",
        {
            "rows": "a partition holds the columns of one row of the sum, then those of another",
            "interleaved": "in the stationary operand the columns of the two rows alternate",
        },
        "a `Matmult` with the `perf_mode` `DoubleRow`: how partitions hold two rows of the sum",
    ),
    Reading(
        "double_pixel",
        {"rows": "a partition holds the columns of one row of the sum, then those of another"},
        "a `Matmult` with the `perf_mode` `DoublePixel`: how partitions hold two rows of the sum",
    ),
    Reading(
        "psum_zero_region",
        {
            "output": "what the product is written to is zeroed",
            "banks": "the location is zeroed in all banks of the region, in the partitions of the output",
        },
        "a `Matmult` starts with a `psum_zero_region` of several banks, in which its location holds more",
    ),
    Reading(
        "negative_index",
        {"skip": "its elements are left out", "unsigned": "the bits are a number without sign"},
        "an index is negative: -1 in indirect loads and saves, any in DMA",
    ),
    Reading(
        "indirect_argument",
        {"indirection": "a number in `indirection_ins`", "all": "a number in `ins` and then `indirection_ins`"},
        "`arg_id` of an `IndirectArgId` may mean two operands",
    ),
    Reading(
        "dynamic_stride",
        {"pattern": "the step of the pattern's first dimension", "coef": "`coef` of the term"},
        "how far apart the rows of an access with a tensor of indices are, where both are given and differ",
    ),
    Reading(
        "dynamic_offset",
        {"sum": "`offset` plus `c`", "static": "`c` alone"},
        "where an access with a tensor of indices starts: both `offset` and `c` are not 0",
    ),
    Reading(
        "indirect_offset",
        {"added": "indices count from there", "ignored": "indices count from the start of the location"},
        "the table of an indirect load or save has an offset",
    ),
    Reading(
        "num_indices",
        {"flat": "the first ones in linear order", "partition": "the first ones of each partition"},
        "`num_indices` leaves out some indices of several partitions",
    ),
    Reading(
        "indirect_copy",
        {
            "row": "each partition has its own indices",
            "core": "16 partitions share theirs, read partition by partition first",
        },
        "which indices an `IndirectCopy` uses for a partition",
    ),
    Reading(
        "dynamic_copy_offset",
        {"elements": "elements of the access", "bytes": "bytes"},
        "what the offset operand of a dynamic copy counts",
    ),
    Reading(
        "cce_constants",
        {"scaled": "inputs are multiplied by them first", "plain": "they are ignored"},
        "`constants` other than 1 where a DMA takes the maximum or minimum of its inputs",
    ),
    Reading(
        "replicate_rows",
        {"tile": "the rows as a whole, again and again", "repeat": "each row several times"},
        "how a DMA replicates several rows",
    ),
    Reading(
        "dma_trigger",
        {"next": "one each time, in turn", "all": "all of them each time"},
        "which of several blocks a DMA trigger starts",
    ),
    Reading(
        "collective",
        {"equal": "each core of the group holds what this one holds, and this one is the first"},
        "a collective operation needs what other cores hold",
    ),
    Reading(
        "rank",
        {"zero": "it is 0"},
        "the rank of the simulated core is asked for",
    ),
    Reading(
        "halt",
        {"stop": "the program ends", "ignore": "nothing happens"},
        "instructions follow a `Halt`",
    ),
)
"""The undecided cases by name."""


def check(chosen: object, shard_id: object = 0, max_steps: object = 1) -> dict[str, str]:
    """Return the chosen readings, after checking what executing a module takes besides.

    Parameters
    ----------
    chosen
        Choice by case, or None.
    shard_id, max_steps
        As in `arrowir.simulate.simulate`.

    Raises
    ------
    OptionError
        If a case or a choice is unknown, or something is of another type or too small.

    Examples
    --------
    >>> check({"mod": "floor"})
    {'mod': 'floor'}
    >>> check({"mood": "floor"})
    Traceback (most recent call last):
    arrowir.diagnostics.OptionError: `mood` is no undecided case; did you mean `mod`?
    """
    arguments.count(max_steps, "`max_steps`", 1)
    arguments.count(shard_id, "`shard_id`")
    given: Mapping[Any, Any] = arguments.typed(
        {} if chosen is None else chosen, Mapping, "`readings`", "choices by case"
    )
    for name, choice in given.items():
        arguments.text(name, "the name of a reading")
        arguments.text(choice, f"the reading {name!r:.60}")
        if name not in READINGS:
            near = get_close_matches(name, READINGS, 1)
            hint = f"did you mean `{near[0]}`?" if near else f"there are {', '.join(f'`{n}`' for n in READINGS)}"
            raise OptionError(f"`{name}` is no undecided case; {hint}")
        if choice not in READINGS[name].choices:
            known = ", ".join(f"`{c}`" for c in READINGS[name].choices)
            raise OptionError(f"`{choice}` is no reading of `{name}`; there are {known}")
    return dict(given)
