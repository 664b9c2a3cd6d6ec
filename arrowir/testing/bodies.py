"""Flat kernel bodies after a recipe: data flows from inputs through tiles to outputs, always in bounds."""

from collections.abc import Callable, Sequence
from typing import Any

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.emitting import Body, Emitter, Style
from arrowir.testing.recipes import Recipe
from arrowir.testing.tiles import Choice, Tile, TilePool, parameter_tile

ACTIVATIONS = ("Exp", "Silu", "Identity", "Copy", "Square", "Rsqrt", "Gelu_apprx_tanh")
ARITHMETIC = ("add", "mult", "subtract", "max", "min")
# 70 % bfloat16, 25 % float32, the rest narrow
TILE_DTYPES = ("bfloat16",) * 14 + ("float32",) * 5 + ("float8e4",)

MATMULT_DEFAULTS: Json = {
    "ifmap_quant_offset": 0,
    "is_fmap_onezero": False,
    "is_weight_onezero": False,
    "perf_mode": "None",
    "psum_zero_region": 0,
    "replication_num_rows": 0,
    "replication_resolution": 0,
    "replication_shift_amnt": 0,
    "weights_quant_offset": 0,
}


class BodyBuilder:
    """Makes one body.

    Parameters
    ----------
    recipe : Recipe
        What it is made of.
    seed : str
        What names its sequence of choices.
    sb_limit : int
        The most bytes per partition that it may take.
    style : Style
        How to write it.

    Examples
    --------
    >>> from arrowir.testing.recipes import RECIPES
    >>> len(BodyBuilder(RECIPES["rope"], "a", 200_000, Style()).build().instructions)
    11
    """

    def __init__(self, recipe: Recipe, seed: str, sb_limit: int, style: Style) -> None:
        self.recipe = recipe
        self.style = style
        self.choice = Choice(seed)
        self.emitter = Emitter(style, self.choice, f"{recipe.name}.py")
        counts = recipe.operations
        psum_writes = counts.get("matmul", 0) + counts.get("transpose", 0)
        elsewhere = ("matmul", "transpose", "store", "register_load")
        sb_writes = sum(count for kind, count in counts.items() if kind not in elsewhere)
        self.pool = TilePool(
            recipe,
            self.choice,
            sb_bytes_of(recipe, sb_limit),
            sb_writes + counts.get("activation_reduce", 0),
            psum_writes,
            counts.get("transpose", 0),
            borrowed=style.borrowed,
            borrow=style.borrow,
        )
        self.inputs = [parameter_tile(formal) for formal in recipe.inputs]
        self.outputs = [parameter_tile(formal) for formal in recipe.outputs]
        self.pool.staying.extend(tile for tile in self.inputs if tile.memory == "SB")
        self.registers: list[str] = []
        self._loads = self._stores = 0

    def build(self) -> Body:
        """Return the body."""
        operations: dict[str, Callable[[], None]] = {
            name.removeprefix("_op_"): getattr(self, name) for name in dir(self) if name.startswith("_op_")
        }
        for kind in self._schedule():
            operations[kind]()
        self._spare_tiles()
        return Body(
            self.emitter.instructions,
            self.pool.tiles,
            self.registers,
            self.pool.sb_bytes,
            self.pool.banks,
        )

    def _schedule(self) -> list[str]:
        counts = dict(self.recipe.operations)
        leading = min(self.recipe.loaded_inputs, counts.get("load", 0))
        counts["load"] = counts.get("load", 0) - leading
        closing = min(len(self.recipe.outputs), counts.get("store", 0))
        counts["store"] = counts.get("store", 0) - closing
        slots = sorted(
            ((index + self.choice.random()) / count, kind)
            for kind, count in counts.items()
            if kind != "register_load"
            for index in range(count)
        )
        return [
            *["load"] * leading,
            *["register_load"] * counts.get("register_load", 0),
            *(kind for _, kind in slots),
            *["store"] * closing,
        ]

    # operands

    def _read(
        self, tile: Tile, partitions: int, elements: int, offset: int = 0, folds: Sequence[int] = ()
    ) -> tuple[Tile, Json]:
        access = tile.access(partitions, elements, offset=offset, folds=folds, full_keys=self.style.full_keys)
        return tile, access

    def _whole(self, tile: Tile) -> tuple[Tile, Json]:
        return self._read(tile, tile.partitions, tile.elements)

    def _target(self, base: str, partitions: int, elements: int, avoid: Tile | None = None) -> Tile:
        """Return the tile for a result: a new one when it is due, otherwise an old one to overwrite."""
        if not self.pool.due("SB"):
            recent = [tile for tile in list(self.pool.live)[-12:] if tile is not avoid]
            old = [tile for tile in recent if tile.partitions >= partitions] or recent
            if old:
                return self.choice.of(old)
        dtype = self.choice.of(TILE_DTYPES)
        limit = self.choice.of(self.recipe.widths) // bir.ITEM_BYTES[dtype]
        return self.pool.new(base, partitions, min(elements, limit), dtype)

    def _source(self) -> Tile:
        """Return a tile to read: a finished accumulator if there is one."""
        finished = self.pool.finished()
        return finished if finished is not None else self.pool.pick(_wide)

    def _folds(self, elements: int) -> Sequence[int]:
        if elements % 16 or not self.choice.chance(0.1):
            return ()
        return self.choice.of(((2,), (4,), (4,), (2,), (2, 4), (2, 2, 4)))

    def _elementwise(
        self,
        opcode: str,
        engine: str,
        sources: list[Tile],
        base: str,
        keys: Json,
        *,
        scalars: int = 0,
        reduced: bool = False,
    ) -> None:
        """Emit an operation that maps equal parts of its sources to an equal part of its result."""
        partitions = min(tile.partitions for tile in sources)
        elements = min(tile.elements for tile in sources)
        target = self._target(base, partitions, elements)
        partitions = min(partitions, target.partitions)
        elements = min(elements, target.elements)
        folds = self._folds(elements)
        ins = [self._read(tile, partitions, elements, folds=folds) for tile in sources]
        for _ in range(scalars):
            column = self.pool.pick(lambda tile: tile.partitions >= partitions)
            ins.append(self._read(column, partitions, 1))
        outs = [self._read(target, partitions, elements, folds=folds)]
        if reduced:
            total = self._target(f"{base}_sum", partitions, 1, avoid=target)
            outs.append(self._read(total, min(partitions, total.partitions), 1))
        self.emitter.emit(opcode, engine, ins, outs, keys)

    # data movement

    def _dma_keys(self, mode: str = "Copy") -> Json:
        keys: Json = {"mode": mode}
        if mode == "Transpose":
            keys["transpose_op"] = "XYZW"
        if self.style.full_keys:
            keys |= {"cce_op": "bypass", "dge_type": "Unassigned", "oob_is_err": True}
        return keys

    def _dma_engine(self) -> str:
        return self.choice.of(("SP", "SP", "SP", "Activation", "Pool"))

    def _op_load(self) -> None:
        sources = [tile for tile in self.inputs if tile.memory == "DRAM"]
        source = sources[self._loads % len(sources)]
        leading = self._loads < len(sources)
        self._loads += 1
        item = bir.ITEM_BYTES[source.dtype]
        rows, columns = source.partitions, source.elements
        small = not leading and self.choice.chance(0.1)
        partitions = min(rows, self.choice.of((1, 4, 8, 32, 64)) if small else 128)
        width = min(columns, self.recipe.load_bytes // item)
        blocks = max(1, min(rows // partitions, self.recipe.load_bytes // (width * item)))
        row = partitions * self.choice.below(rows // partitions - blocks + 1)
        column = width * self.choice.below(columns // width)
        tile = self._load_target(source, partitions, width * blocks, leading)
        inner = [[1, width]]
        far = [[columns * partitions, blocks], *inner] if blocks > 1 else inner
        near = [[width, blocks], *inner] if blocks > 1 else inner
        full = self.style.full_keys
        ins = bir.access(
            source.name,
            [[columns, partitions], *far],
            source.dtype,
            offset=row * columns + column,
            full_keys=full,
            **self._dynamic([[columns, partitions], *far], columns, "cache" in source.name),
        )
        outs = bir.access(
            tile.name,
            [[tile.pitch, partitions], *near],
            tile.dtype,
            set_name=tile.set_name,
            full_keys=full,
        )
        self.emitter.emit("DMACopy", self._dma_engine(), [(source, ins)], [(tile, outs)], self._dma_keys())

    def _load_target(self, source: Tile, partitions: int, elements: int, leading: bool) -> Tile:
        if not self.pool.due("SB") and not leading:
            for tile in self.pool.live:
                if (tile.partitions, tile.elements, tile.dtype) == (partitions, elements, source.dtype):
                    return tile
        return self.pool.new(f"{source.name}_tile", partitions, elements, source.dtype, stay=leading)

    def _dynamic(self, pattern: bir.Pattern, stride: int, wanted: bool) -> dict[str, Any]:
        if not (wanted and self.registers and self.choice.chance(0.3)):
            return {}
        place = {"kind": "IntRuntimeValueKind", "regref": self.choice.of(self.registers)}
        term = {"coef": stride, "offset_expr": place}
        return {
            "dynamic_ap_info": {
                "actual_ap": pattern,
                "aff_expr": [term],
                "c": 0,
                "indirect_dim": 0,
                "indirect_dim_max_index": 8192,
            }
        }

    def _op_store(self) -> None:
        target = self.outputs[self._stores % len(self.outputs)]
        turn = self._stores // len(self.outputs)
        self._stores += 1
        source = self.pool.pick(lambda tile: tile.writer >= 0)
        partitions = min(source.partitions, target.partitions)
        elements = min(source.elements, target.elements)
        offset = 0
        if target.memory == "DRAM":
            across = target.elements // elements
            place = turn % (across * (target.partitions // partitions))
            offset = place // across * partitions * target.elements + place % across * elements
        dynamic = self._dynamic([[target.pitch, partitions], [1, elements]], target.pitch, "kv" in target.name)
        outs = target.access(partitions, elements, offset=offset, full_keys=self.style.full_keys, **dynamic)
        ins = self._read(source, partitions, elements)
        self.emitter.emit("DMACopy", self._dma_engine(), [ins], [(target, outs)], self._dma_keys())

    def _op_register_load(self) -> None:
        source = self.pool.pick(lambda tile: tile.dtype == "int32")
        name = f"pos_r{len(self.registers)}"
        offset = len(self.registers) % source.elements
        self.registers.append(name)
        ins = self._read(source, 1, 1, offset)
        self.emitter.emit("TensorLoad", "SP", [ins], [], registers_out=[bir.register_access(name)])

    def _op_dma_transpose(self) -> None:
        source = self.pool.pick(lambda tile: tile.partitions == 128)
        elements = min(source.elements, 128) // 16 * 16 or source.elements
        self.pool.due("SB")
        tile = self.pool.new(f"{source.name.split('_i')[0]}_t", elements, 128, source.dtype)
        ins = self._read(source, 128, elements)
        self.emitter.emit("DMACopy", self._dma_engine(), [ins], [self._whole(tile)], self._dma_keys("Transpose"))

    def _op_copy(self) -> None:
        source = self._source()
        engine = self.choice.of(("DVE", "Pool", "Activation"))
        if source.memory == "SB" and source.partitions == 128 and self.choice.chance(0.2):
            quadrant = 32 * self.choice.below(4)
            tile = self._target("part", 32, source.elements)
            elements = min(source.elements, tile.elements)
            partitions = min(32, tile.partitions)
            ins = self._read(source, partitions, elements, quadrant * source.pitch)
            self.emitter.emit("TensorCopy", engine, [ins], [self._read(tile, partitions, elements)], self._uninit())
            return
        self._elementwise("TensorCopy", engine, [source], "copy", self._uninit())

    def _uninit(self) -> Json:
        return {"can_read_uninit": False} if self.style.full_keys else {}

    # tensor engine

    def _matmult(self, kind: str, moving: Tile, stationary: Tile, rows: int, columns: int, dtype: str) -> None:
        shared = min(moving.partitions, stationary.partitions)
        tile, fresh = self.pool.accumulator(kind, rows, columns, dtype)
        rows, columns = min(rows, tile.partitions), min(columns, tile.elements)
        keys: Json = {
            **(MATMULT_DEFAULTS if self.style.full_keys else {}),
            "accumulation_flag": 1 if fresh or kind == "transpose" else 2,
            "is_transpose": kind == "transpose",
            "tile_position": [0, 0],
            "tile_size": [128, 128],
        }
        place = rows * self.choice.below(stationary.elements // rows)
        shift = columns * self.choice.below(moving.elements // columns)
        ins = [self._read(moving, shared, columns, shift), self._read(stationary, shared, rows, place)]
        self.emitter.emit("Matmult", "PE", ins, [self._read(tile, rows, columns)], keys)

    def _weights(self, elements: int) -> Tile:
        """Return a tile to multiply, of at least so many elements if there is one."""
        try:
            return self.pool.pick(lambda tile: _bf16(tile) and tile.elements >= elements)
        except LookupError:
            return self.pool.pick(_bf16)

    def _op_matmul(self) -> None:
        moving, stationary = self._weights(32), self._weights(128)
        rows = min(128, stationary.elements)
        self._matmult("matmul", moving, stationary, rows, min(self.recipe.columns, moving.elements), "float32")

    def _op_transpose(self) -> None:
        moving = self.pool.pick(_bf16)
        identity = self.pool.pick(lambda tile: _bf16(tile) and tile.elements >= 32)
        size = min(128, identity.elements, moving.elements)
        self._matmult("transpose", moving, identity, size, size, "bfloat16")

    # vector, scalar and pool engines

    def _op_tensor_tensor(self) -> None:
        first = self._source()
        second = self.pool.pick(_wide)
        keys: Json = {"op": self.choice.of(ARITHMETIC)} | ({"acc": "Idle"} if self.style.full_keys else {})
        self._elementwise("TensorTensor", self.choice.of(("DVE", "Pool")), [first, second], "sum", keys)

    def _op_tensor_scalar(self) -> None:
        keys = {
            **self._two_steps(),
            "const0": self.choice.of((1.0, 0.5, -1.0, 2.5, 1e-06, 0.08838834764831845)),
        }
        keys["const1"] = self.choice.of((0.0, 1.0, "-inf", 6.0)) if keys["op1"] != "bypass" else 0.0
        self._elementwise("TensorScalar", self.choice.of(("DVE", "Pool")), [self._source()], "scaled", keys)

    def _two_steps(self) -> Json:
        second = self.choice.of(("bypass", "bypass", "add", "max"))
        return {"op0": self.choice.of(ARITHMETIC), "op1": second, "reverse0": False, "reverse1": False}

    def _pointer_keys(self, **flags: bool) -> Json:
        keys: Json = {**self._two_steps(), **flags}
        return keys | ({"acc": "Idle", "apply_transpose": False} if self.style.full_keys else {})

    def _op_tensor_scalar_ptr(self) -> None:
        self._elementwise("TensorScalarPtr", "DVE", [self._source()], "scaled", self._pointer_keys(), scalars=1)

    def _op_scalar_tensor_tensor(self) -> None:
        second = self.pool.pick(_wide)
        keys = self._pointer_keys(is_scalar_tensor_tensor=True) | {"op1": "add"}
        self._elementwise("TensorScalarPtr", "DVE", [self._source(), second], "blend", keys)

    def _op_scan(self) -> None:
        second = self.pool.pick(_wide)
        keys = self._pointer_keys(is_tensor_tensor_scan=True) | {"op0": "mult", "op1": "add"}
        self._elementwise("TensorScalarPtr", "DVE", [self._source(), second], "scan", keys, scalars=1)

    def _activation(self, scalars: int, reduced: bool) -> None:
        keys: Json = {
            "func": self.choice.of(ACTIVATIONS),
            "scale": self.choice.of((1.0, 0.08838834764831845)),
            "alpha": 0.0,
            "acc": "ZeroAccumulate" if reduced else "Idle",
        }
        if self.style.full_keys:
            keys |= {"is_activate2": False, "op0": "bypass", "op1": "bypass", "reduce_op": "bypass"}
        self._elementwise(
            "Activation",
            "Activation",
            [self._source()],
            "act",
            keys,
            scalars=scalars,
            reduced=reduced,
        )

    def _op_activation(self) -> None:
        self._activation(0, reduced=False)

    def _op_activation_bias(self) -> None:
        self._activation(1, reduced=False)

    def _op_activation_reduce(self) -> None:
        self._activation(1, reduced=True)

    def _op_reciprocal(self) -> None:
        self._elementwise("Reciprocal", "DVE", [self._source()], "inverse", {})

    def _op_affine_select(self) -> None:
        keys: Json = {
            "base": 128 * self.choice.below(16),
            "channel_multiplier": 1,
            "compare_op": self.choice.of(("is_ge", "is_gt")),
            "fill_value": self.choice.of(("-inf", -9984.0)),
        }
        source = self.pool.pick(_wide)
        target = self._target("masked", source.partitions, source.elements)
        partitions, elements = (
            min(source.partitions, target.partitions),
            min(source.elements, target.elements),
        )
        keys["pattern"] = [[-1, elements]]
        ins, outs = self._read(source, partitions, elements), self._read(target, partitions, elements)
        self.emitter.emit("TensorScalarAffineSelect", "Pool", [ins], [outs], keys)

    def _op_reduce(self) -> None:
        source = self._source()
        target = self._target("total", source.partitions, 1)
        partitions = min(source.partitions, target.partitions)
        keys: Json = {"axis": "X", "op": self.choice.of(("add", "max"))}
        if self.style.full_keys:
            keys |= {"apply_transpose": False, "negate": False}
        ins = self._read(source, partitions, source.elements)
        self.emitter.emit("TensorReduce", "DVE", [ins], [self._read(target, partitions, 1)], keys)

    def _op_find_index(self) -> None:
        source = self.pool.pick(lambda tile: tile.elements >= 8)
        values = self.pool.pick(lambda tile: tile.elements >= 8)
        partitions = min(source.partitions, values.partitions)
        self.pool.due("SB")
        tile = self.pool.new("index", partitions, 8, "uint32")
        ins = [
            self._read(source, partitions, min(source.elements, 16_384)),
            self._read(values, partitions, 8),
        ]
        self.emitter.emit("MaxIndex", "DVE", ins, [self._whole(tile)])

    def _op_memset(self) -> None:
        small = self.choice.chance(0.1)
        target = self._target("zero", self.choice.of((1, 4, 8, 32, 64)) if small else 128, 2048)
        keys: Json = {"constant": 0, "mode": "Const"}
        self.emitter.emit("Memset", self.choice.of(("Pool", "DVE")), [], [self._whole(target)], keys)

    def _op_iota(self) -> None:
        self.pool.due("SB")
        tile = self.pool.new("iota", 128, self.choice.of((8, 32, 128)), "int32")
        keys: Json = {"base": 0, "channel_multiplier": 1, "pattern": [[1, tile.elements]]}
        self.emitter.emit("Iota", "Pool", [], [self._whole(tile)], keys)

    def _spare_tiles(self) -> None:
        """Add the tiles that the recipe makes beyond the written ones; real kernels leave some unused."""
        written = [tile.memory for tile in self.pool.tiles]
        for _ in range(written.count("SB"), self.recipe.sb_tiles):
            dtype = self.choice.of(TILE_DTYPES)
            width = self.choice.of(self.recipe.widths) // bir.ITEM_BYTES[dtype]
            tile = self.pool.new("spare", 128, width, dtype)
            earlier = self.pool.tiles[-2]
            # a set may hold several locations of one shape
            if (earlier.memory, earlier.pitch_bytes, earlier.dtype) == ("SB", tile.pitch_bytes, dtype):
                tile.set_name = earlier.set_name
        for _ in range(written.count("PSUM"), self.recipe.psum_tiles):
            self.pool.spare_accumulator()


def _wide(tile: Tile) -> bool:
    return tile.partitions >= 32


def _bf16(tile: Tile) -> bool:
    return tile.dtype == "bfloat16"


def sb_bytes_of(recipe: Recipe, sb_limit: int) -> int:
    """Return the state buffer bytes per partition that a body of the recipe takes.

    Parameters
    ----------
    recipe : Recipe
        What it is made of.
    sb_limit : int
        The most that it may take.

    Returns
    -------
    int
        The bytes, exactly the highest end of a tile.

    Examples
    --------
    >>> from arrowir.testing.recipes import RECIPES
    >>> sb_bytes_of(RECIPES["rope"], 50_000)
    49984
    """
    return min(recipe.sb_bytes, sb_limit) // 64 * 64
