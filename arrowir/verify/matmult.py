"""Rules about matrix products: operands, shapes, tiles of the array, what they write."""

from typing import Any

import numpy as np

from arrowir.store import Array
from arrowir.verify.definitions import of
from arrowir.verify.facts import Group
from arrowir.verify.operands import MX, Operands
from arrowir.verify.registry import Found

_MM = ("Matmult", "MatmultSparse")
_ALL = (*_MM, "MatmultMx")
ROWS, COLUMNS, WIDTH = 128, 128, 512
BANK = 2048
"""Bytes of a PSUM bank in each partition."""
POSITIONS = (0, 32, 64, 96)
_SIZES = {0: (32, 64, 128), 32: (32,), 64: (32, 64), 96: (32,)}
"""Sizes of a tile by its position: it stays in the array, at a multiple of its size."""


def _moving(g: Group) -> Operands:
    return g.arg(0)


def _stationary(g: Group) -> Operands:
    return g.arg(1)


def _transposing(g: Group) -> Array:
    return g.key("is_transpose").among(True)


def _same_as_output(g: Group, operand: Operands, word: str) -> Found | None:
    out = g.out(0)
    bad = (g.level >= 30) & _transposing(g) & operand.is_ap & out.is_ap & (operand.dtype != out.dtype)
    return g.at(operand, bad, **{word: operand.dtype_text, "outtype": out.dtype_text})


def _pair(g: Group, bad: Array) -> Found | None:
    one, other = _moving(g), _stationary(g)
    both = one.is_ap & other.is_ap
    return g.on(bad & both, intype1=one.dtype_text, intype2=other.dtype_text)


def _mixed(g: Group) -> Found | None:
    one, other = _moving(g), _stationary(g)
    bad = (one.size == 4) != (other.size == 4)
    return _pair(
        g, bad & (one.size > 0) & (other.size > 0) & ~one.is_dtype(*MX) & ~other.is_dtype(*MX) & ~_transposing(g)
    )


def _plain_mode(g: Group) -> Array:
    return g.key("perf_mode").among("None", None)


def _moving_size(g: Group) -> Found | None:
    o = _moving(g)
    bad = o.is_ap & _plain_mode(g) & (o.each > WIDTH)
    return g.at(o, bad, sbufMaxRows=ROWS, psumMaxCols=WIDTH, ifmapRows=o.lanes, ifmapCols=o.each)


def _stationary_size(g: Group) -> Found | None:
    o = _stationary(g)
    bad = o.is_ap & _plain_mode(g) & (o.each > COLUMNS)
    return g.at(o, bad, sbufMaxRows=ROWS, psumMaxRows=COLUMNS, weightRows=o.lanes, weightCols=o.each)


def _output_size(g: Group) -> Found | None:
    o = g.out(0)
    bad = o.is_ap & (o.each > WIDTH)
    return g.at(o, bad, psumMaxRows=ROWS, psumMaxCols=WIDTH, outputRows=o.lanes, outputCols=o.each)


def _banks(g: Group) -> Found | None:
    o = g.out(0)
    bad = o.in_psum & o.decided & (o.each <= WIDTH) & (o.start // BANK != (o.end - 1) // BANK)
    return g.at(o, bad)


# -- tiles of the array ----


class Tiles:
    """The tile of the array that each product takes, and whether it is given."""

    def __init__(self, g: Group) -> None:
        size, position = g.key("tile_size"), g.key("tile_position")
        self.rows, self.columns = size.item(0), size.item(1)
        self.row, self.column = position.item(0), position.item(1)
        self.sized, self.placed = (self.rows >= 0) & (self.columns >= 0), (self.row >= 0) & (self.column >= 0)
        self.given = self.sized & self.placed
        self.source, self.target = _moving(g), g.out(0)
        self.known = self.given & self.source.decided & self.target.decided
        self.legal = np.isin(self.row, POSITIONS) & np.isin(self.column, POSITIONS)

    def fits(self, size: Array, position: Array) -> Array:
        """Tell whether a size is legal at a position."""
        good = np.zeros(len(size), bool)
        for place, sizes in _SIZES.items():
            good |= (position == place) & np.isin(size, sizes)
        return good


def _half_given(g: Group) -> Found | None:
    t = Tiles(g)
    return g.on(t.sized != t.placed)


def _position(g: Group, *, column: bool) -> Found | None:
    t = Tiles(g)
    value = t.column if column else t.row
    word = "tileGroupColPosition" if column else "tileGroupRowPosition"
    return g.on(t.given & ~np.isin(value, POSITIONS), **{word: value})


def _tile(g: Group, *, column: bool) -> Found | None:
    t = Tiles(g)
    size, position = (t.columns, t.column) if column else (t.rows, t.row)
    bad = t.given & np.isin(position, POSITIONS) & ~t.fits(size, position)
    name = "Col" if column else "Row"
    fill: dict[str, Any] = {f"tileGroup{name}Position": position, f"tileGroup{name}Size": size}
    return g.on(bad, possibleTileSizes=lambda hits: [str(_SIZES[p]) for p in position[hits].tolist()], **fill)


def _before(g: Group) -> Found | None:
    t = Tiles(g)
    bad = t.known & t.legal & ((t.row < t.source.partition) | (t.column < t.target.partition))
    return g.on(bad, row_tile_pos=t.row, col_tile_pos=t.column, ap_row_pos=t.source.partition,
                ap_col_pos=t.target.partition)  # fmt: skip


def _too_small(g: Group) -> Found | None:
    t = Tiles(g)
    bad = t.known & t.legal & ((t.rows < t.source.lanes) | (t.columns < t.target.lanes))
    return g.on(bad, row_tile_size=t.rows, col_tile_size=t.columns, ap_row_partitions=t.source.lanes,
                ap_col_partitions=t.target.lanes)  # fmt: skip


def _old_column(g: Group) -> Found | None:
    t = Tiles(g)
    return g.on((g.level == 20) & t.given & (t.column == 96))


def _old_output(g: Group) -> Found | None:
    o, t = g.out(0), Tiles(g)
    return g.at(o, (g.level == 20) & o.decided & (o.partition == 96) & ~(t.given & (t.column == 96)))


def _old_tile(g: Group) -> Found | None:
    t = Tiles(g)
    return g.on((g.level == 20) & t.given & (t.rows == 32) & (t.columns == 32) & (t.column != 96))


# -- what is written ----


def _accumulating(g: Group) -> Array:
    return (g.key("accumulation_flag").number(0) & 2) > 0


def _memory(g: Group) -> Found | None:
    o = g.out(0)
    bad = o.is_ap & (o.memory >= 0) & ~o.in_psum & ~_accumulating(g)
    return g.at(o, bad, actual_type=o.memory_text, expected_type="PSUM")


def _accumulates_in(g: Group, *, dram: bool) -> Found | None:
    o = g.out(0)
    return g.at(o, (o.in_dram if dram else o.in_sb) & _accumulating(g))


def _transposed_start(g: Group) -> Found | None:
    o, t = g.out(0), Tiles(g)
    return g.at(o, _transposing(g) & o.decided & (o.partition != 0) & ~t.given, partition=o.partition)


def _ratio(g: Group) -> Found | None:
    ratio = g.key("compress_ratio")
    return g.on(ratio.other_than(2, 3, 4), compress_ratio=ratio.text)


def _sparse_dimension(g: Group) -> Found | None:
    o, ratio = _moving(g), g.key("compress_ratio")
    number = ratio.number()
    bad = o.is_ap & np.isin(number, (2, 3, 4)) & (o.num(1) != number)
    return g.at(o, bad, ifmap_1_num=o.num(1), compress_ratio=number)


def _replicated(g: Group) -> Found | None:
    names = ("replication_resolution", "replication_shift_amnt", "replication_num_rows")
    bad = np.zeros(len(g), bool)
    for name in names:
        bad |= g.key(name).number(0) > 0
    return g.on(bad)


_CONVERT, _SPLIT = "convert one of them", "split the product"
_TILE = "correct `tile_size` and `tile_position`"

RULES = [
    of(_MM, "BIR031", "a transpose keeps the dtype of the moving operand, from gen3 on", _CONVERT,
       lambda g: _same_as_output(g, _moving(g), "intype")),
    of(_MM, "BIR032", "a transpose keeps the dtype of the stationary operand, from gen3 on", _CONVERT,
       lambda g: _same_as_output(g, _stationary(g), "intype")),
    of(_MM, "BIR034", "both operands have 32 bits, or neither", _CONVERT, _mixed),
    of(_MM, "BIR035", "the operands of a transpose have one dtype", _CONVERT,
       lambda g: _pair(g, (g.level < 30) & _transposing(g) & (_moving(g).dtype != _stationary(g).dtype))),
    of("Matmult", "BIR039", "the moving operand has up to 512 columns", _SPLIT, _moving_size),
    of("Matmult", "BIR040", "the stationary operand has up to 128 columns", _SPLIT, _stationary_size),
    of("Matmult", "BIR041", "the output has up to 512 columns", _SPLIT, _output_size),
    of(_ALL, "BIR110", "a product writes one bank of PSUM", "place the output within a bank", _banks),
    of(_ALL, "BIR050", "a tile of the array has a position and a size", _TILE, _half_given, same=("IBIR291",)),
    of(_ALL, "IBIR302", "a tile starts at row 0, 32, 64 or 96", _TILE, lambda g: _position(g, column=False)),
    of(_ALL, "IBIR303", "a tile starts at column 0, 32, 64 or 96", _TILE, lambda g: _position(g, column=True)),
    of(_ALL, "IBIR304", "the rows of a tile are as many as may start there", _TILE, lambda g: _tile(g, column=False)),
    of(_ALL, "IBIR305", "the columns of a tile are as many as may start there", _TILE, lambda g: _tile(g, column=True)),
    of(_ALL, "BIR051", "no tile starts at column 96 on CoreV2", _TILE, _old_column),
    of(_ALL, "BIR057", "no output starts at partition 96 on CoreV2", "place the output elsewhere", _old_output),
    of(_ALL, "BIR058", "no tile has 32 rows and columns on CoreV2", _TILE, _old_tile),
    of(_ALL, "BIR052", "a tile starts where its operands do, or behind", _TILE, _before),
    of(_ALL, "BIR054", "a tile is as large as its operands", _TILE, _too_small),
    of(_ALL, "BIR412", "a product is written to PSUM", "write it to PSUM, and copy it", _memory),
    of(_ALL, "SIM069", "a sum is kept in PSUM, not in SB", "write it to PSUM, and copy it",
       lambda g: _accumulates_in(g, dram=False)),
    of(_ALL, "SIM070", "a sum is kept in PSUM, not in DRAM", "write it to PSUM, and copy it",
       lambda g: _accumulates_in(g, dram=True)),
    of(_ALL, "BIR150", "a product is written to memory", "give it an access pattern as output",
       lambda g: g.at(g.out(0), _transposing(g) & ~g.out(0).is_ap)),
    of(_MM, "BIR151", "a transpose is written from partition 0 on", "place the output at partition 0",
       _transposed_start),
    of("MatmultSparse", "BIR028", "a compression ratio is 2, 3 or 4", "correct `compress_ratio`", _ratio),
    of("MatmultSparse", "BIR029", "the moving operand has a dimension of the compression ratio", "correct its pattern",
       _sparse_dimension),
    of("MatmultMx", "BIR157", "a scaled product replicates nothing", "leave the replication keys out", _replicated,
       same=("ERP001",)),
]  # fmt: skip
