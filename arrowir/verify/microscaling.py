"""Rules about microscaled numbers: elements that have scales in common."""

import numpy as np

from arrowir import vocabulary as vocab
from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Facts, Group, found
from arrowir.verify.matmult import BANK, Tiles
from arrowir.verify.operands import MX, Operands
from arrowir.verify.registry import Found, rule

QUADRANT = 32
_WEIGHTS = 512
_X, _S = "MatmultMx", "QuantizeMx"


def _operands(g: Group) -> tuple[Operands, Operands, Operands, Operands]:
    """Return moving and stationary elements, and the scales of each."""
    return g.arg(0), g.arg(1), g.arg(2), g.arg(3)


def _all(*operands: Operands) -> Array:
    return np.all([o.is_ap for o in operands], axis=0)


def _known(*operands: Operands) -> Array:
    return np.all([o.decided for o in operands], axis=0)


def _quadrants(g: Group, data: Operands, scales: Operands, names: tuple[str, str]) -> Found | None:
    one, other = data.partition // QUADRANT, scales.partition // QUADRANT
    return g.on(_known(data, scales) & (one != other), **{names[0]: one, names[1]: other})


def _start(g: Group) -> Found | None:
    _, _, one, other = _operands(g)
    bad = _known(one, other) & ((one.partition % 4 != 0) | (other.partition % 4 != 0))
    return g.on(bad, if_start=one.partition, w_start=other.partition)


def _low(g: Group, scales: Operands) -> Found | None:
    bad = scales.decided & (scales.partition % QUADRANT >= 16) & (scales.partition % 4 == 0)
    return g.at(scales, bad, part=scales.partition)


def _ratio(g: Group, data: Operands, scales: Operands) -> Found | None:
    bad = _all(data, scales) & (data.values != 4 * scales.each)
    return g.at(scales, bad, num=data.values, scales_num=scales.each)


def _widest(g: Group) -> Array:
    """Return how many values a partition of the moving operand may have."""
    return BANK // np.maximum(g.out(0).size, 1) * 4 * 8


def _moving_size(g: Group) -> Found | None:
    data, out = g.arg(0), g.out(0)
    most = _widest(g)
    return g.at(data, _all(data, out) & (data.values > most), num=data.values, max_ifmap_elements=most,
                max_elements_per_psum_bank=most // 32, output_dtype_name=out.dtype_text)  # fmt: skip


def _weight_size(g: Group) -> Found | None:
    weights = g.arg(1)
    return g.at(weights, weights.is_ap & (weights.values > _WEIGHTS), num=weights.values)


def _rows(g: Group) -> Found | None:
    data = g.arg(0)
    return g.at(data, data.is_ap & ~np.isin(data.lanes, (32, 64, 128)), numRows=data.lanes)


def _lanes(g: Group, one: Operands, other: Operands, names: tuple[str, str]) -> Found | None:
    bad = _all(one, other) & (one.lanes != other.lanes)
    return g.on(bad, **{names[0]: one.lanes, names[1]: other.lanes})


def _weights_differ(g: Group) -> Found | None:
    moving, weights, _, scales = _operands(g)
    bad = _all(moving, weights) & (moving.lanes != weights.lanes) & (weights.lanes == scales.lanes)
    return g.on(bad, ifmap=moving.lanes, weights=weights.lanes)


def _output_rows(g: Group) -> Found | None:
    weights, out = g.arg(1), g.out(0)
    bad = _all(weights, out) & (weights.values <= _WEIGHTS) & (weights.values != 4 * out.lanes)
    return g.on(bad, weights=weights.values, op=out.lanes)


def _output_columns(g: Group) -> Found | None:
    data, out = g.arg(0), g.out(0)
    bad = _all(data, out) & (data.values <= _widest(g)) & (data.values != 4 * out.each)
    return g.on(bad, ifmap=data.values, op=out.each)


def _row_tile(g: Group) -> Found | None:
    tiles, data = Tiles(g), g.arg(0)
    bad = tiles.given & data.is_ap & (tiles.rows > data.lanes)
    return g.on(bad, row_tile_size=tiles.rows, num_partitions=data.lanes)


def _column_tile(g: Group) -> Found | None:
    tiles = Tiles(g)
    return g.on(tiles.given & (tiles.columns != 128))


def _odd(g: Group) -> Found | None:
    weights = g.arg(1)
    bad = weights.is_ap & (weights.values <= _WEIGHTS) & (weights.values // 4 % 2 != 0)
    return g.at(weights, bad, num=weights.values // 4)


# -- quantising ----


def _inner(g: Group) -> Found | None:
    data = g.arg(0)
    bad = data.is_ap & ((data.last_step != 1) | (data.last_num % 4 != 0))
    return g.at(data, bad, iap=data.pattern_text)


def _outer(g: Group) -> Found | None:
    data = g.arg(0)
    odd = np.zeros(len(g), bool)
    for dimension in range(5):
        odd |= (data.dims > dimension + 1) & (data.step(dimension) % 2 != 0)
    return g.at(data, data.is_ap & odd, iap=data.pattern_text)


def _counts(g: Group) -> Found | None:
    data, out = g.arg(0), g.out(0)
    bad = _all(data, out) & (data.lanes * data.each != out.lanes * out.values)
    return g.on(bad, numIap=data.lanes * data.each, numOap=out.lanes * out.values)


def _scale_start(g: Group) -> Found | None:
    scales = g.out(1)
    bad = scales.decided & ~np.isin(scales.partition % QUADRANT, (0, 4, 8, 12))
    return g.at(scales, bad, start_partition=scales.partition)


def _scale_lanes(g: Group) -> Found | None:
    out, scales = g.out(0), g.out(1)
    return g.on(_all(out, scales) & (out.lanes != scales.lanes), op=out.lanes, scales=scales.lanes)


def _scale_counts(g: Group) -> Found | None:
    data, scales = g.arg(0), g.out(1)
    bad = _all(data, scales) & (data.each != 4 * scales.each)
    return g.on(bad, inp_elts=data.each, scales=scales.each)


# -- elsewhere ----

_TAKING = (
    "MatmultMx",
    "QuantizeMx",
    "Memset",
    "NKIKernel",
    "BIRKernel",
    "NKIKLIRKernel",
    "Call",
    "CustomOp",
    "StreamShuffle",
)
_TAKING_FAMILIES = ("dma", "copy", "indirect", "collective", "kernel", "misc")


def _elsewhere(facts: Facts) -> Found | None:
    """Return packed operands of instructions that compute with plain numbers."""
    operands = facts.ir.tables["operands"]
    packed = np.isin(operands["dtype"], [vocab.DTYPES.code(name) for name in MX])
    if not packed.any():
        return None
    texts = facts.ir.pools.codes["opcode"].texts
    taking = [t in _TAKING or (vocab.family(t) or "misc") in _TAKING_FAMILIES for t in texts]
    opcode = facts.ir.tables["instructions"]["opcode"][operands["instruction_id"]]
    packed &= ~facts.keys("func", operands["instruction_id"]).among("Copy")  # told by BIR221
    return found("operands", packed & facts.footprints.addressed & ~np.append(np.array(taking, bool), True)[opcode])


_PARTITIONS, _COUNT = "use as many partitions in both", "correct the patterns"
_PLACE = "place the scales in the quarter of their elements, at partition 0, 4, 8 or 12 of it"

RULES = [
    of((_X, _S), "BIR530", "scaled numbers are known from core_v4 on", "compile for core_v4", lambda g: g.on(
        (g.level >= 0) & (g.level < 40), min_arch="core_v4")),
    of(_X, "BIR167", "moving elements and their scales start in the same quarter", _PLACE,
       lambda g: _quadrants(g, g.arg(0), g.arg(2), ("if_quad", "iscales_quad"))),
    of(_X, "BIR168", "stationary elements and their scales start in the same quarter", _PLACE,
       lambda g: _quadrants(g, g.arg(1), g.arg(3), ("w_quad", "wscales_quad"))),
    of(_X, "BIR169", "scales start at a multiple of 4 partitions", _PLACE, _start),
    of(_X, "BIR185", "scales of the moving operand start in the lower half of a quarter", _PLACE,
       lambda g: _low(g, g.arg(2))),
    of(_X, "BIR186", "scales of the stationary operand start in the lower half of a quarter", _PLACE,
       lambda g: _low(g, g.arg(3))),
    of(_X, "BIR183", "moving elements are four for each scale", _COUNT, lambda g: _ratio(g, g.arg(0), g.arg(2))),
    of(_X, "BIR184", "stationary elements are four for each scale", _COUNT, lambda g: _ratio(g, g.arg(1), g.arg(3))),
    of(_X, "BIR187", "moving elements fill the banks of PSUM at most", "split the product", _moving_size),
    of(_X, "BIR188", "stationary elements are 512 at most", "split the product", _weight_size),
    of(_X, "BIR189", "32, 64 or 128 partitions are summed over", _PARTITIONS, _rows),
    of(_X, "BIR190", "both operands have as many partitions", _PARTITIONS, _weights_differ),
    of(_X, "BIR191", "the output has a partition for four stationary elements", _COUNT, _output_rows),
    of(_X, "BIR192", "the output has an element for four moving elements", _COUNT, _output_columns),
    of(_X, "BIR193", "moving elements and their scales have as many partitions", _PARTITIONS,
       lambda g: _lanes(g, g.arg(0), g.arg(2), ("ifmap", "scales"))),
    of(_X, "BIR194", "stationary elements and their scales have as many partitions", _PARTITIONS,
       lambda g: _lanes(g, g.arg(1), g.arg(3), ("weights", "scales"))),
    of(_X, "BIR195", "a tile has as many rows as the operands have partitions", "correct `tile_size`", _row_tile),
    of(_X, "BIR196", "a scaled product takes all columns of the array", "correct `tile_size`", _column_tile),
    of(_X, "BIR259", "packed stationary elements are even in number", _COUNT, _odd),
    of(_S, "BIR164", "the innermost elements stand four by four beside each other", _COUNT, _inner),
    of(_S, "BIR165", "steps but the innermost are even", _COUNT, _outer),
    of(_S, "BIR166", "input and output have as many elements", _COUNT, _counts),
    of(_S, "BIR219", "scales start at partition 0, 4, 8 or 12 of a quarter", _PLACE, _scale_start),
    of(_S, "BIR220", "elements and scales have as many partitions", _PARTITIONS, _scale_lanes),
    of(_S, "BIR225", "an input has four elements for each scale", _COUNT, _scale_counts),
    rule("IBIR286", "operands", "scaled numbers are copied, quantised and multiplied, nothing else",
         "dequantise them first", _elsewhere),
]  # fmt: skip
