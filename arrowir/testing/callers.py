"""Functions that call kernels: the caller of a module, and kernels that call kernels."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.bodies import BodyBuilder, sb_bytes_of
from arrowir.testing.emitting import Body, Emitter, Style, tile_allocations
from arrowir.testing.recipes import Formal, Recipe
from arrowir.testing.tiles import Choice, Tile, parameter_tile

TILE_ROOM = 4096
"""Bytes per partition that a caller keeps for tiles of its own."""


@dataclass(frozen=True, slots=True)
class KernelPlan:
    """A kernel function to be made, and all that its call-sites have to know of it.

    Parameters
    ----------
    name : str
        The function's name.
    inputs, outputs : tuple of Formal
        Its parameters.
    allocated : bool
        Whether its tiles have addresses, relative to a scratchpad.
    sb_bytes, psum_banks : int
        The scratchpads that it needs when allocated.
    make : callable
        Returns the function.
    first_tile, first_instruction : str
        The names of the first location that it makes and of its first instruction, as inlined.

    Examples
    --------
    >>> KernelPlan("k", (), (), False, 0, 0, dict).make()
    {}
    """

    name: str
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    allocated: bool
    sb_bytes: int
    psum_banks: int
    make: Callable[[], Json]
    first_tile: str = ""
    first_instruction: str = "I-0"


def parameter_sets(
    formals: Iterable[Formal],
    direction: str,
    *,
    external: bool = True,
    full_keys: bool = True,
) -> list[Json]:
    """Return the sets of parameters.

    Parameters
    ----------
    formals : iterable of Formal
        The parameters.
    direction : str
        `Input` or `Output`.
    external : bool
        Whether those in DRAM are external.
    full_keys : bool
        Also write members that have their default value.

    Returns
    -------
    list of dict
        One set each.

    Examples
    --------
    >>> parameter_sets([Formal("x", (1, 4), memory="SB")], "Output")[0]["kind"]
    'Output'
    """
    return [
        bir.tensor(
            formal.name,
            formal.memory,
            formal.shape,
            formal.dtype,
            kind=f"External{direction}" if external and formal.memory == "DRAM" else direction,
            full_keys=full_keys,
        )
        for formal in formals
    ]


def kernel_function(
    name: str,
    inputs: Sequence[Formal],
    outputs: Sequence[Formal],
    body: Body,
    *,
    allocated: bool,
    full_keys: bool = True,
) -> Json:
    """Return a kernel function of one flat block.

    Parameters
    ----------
    name : str
        Its name.
    inputs, outputs : sequence of Formal
        Its parameters.
    body : Body
        Its body.
    allocated : bool
        Whether its tiles have addresses.
    full_keys : bool
        Also write members that have their default value.

    Returns
    -------
    dict
        The function.

    Examples
    --------
    >>> kernel_function("k", [], [], Body(), allocated=False)["origin"]
    'NKI'
    """
    allocations = [
        *parameter_sets(inputs, "Input", full_keys=full_keys),
        *parameter_sets(outputs, "Output", full_keys=full_keys),
        *tile_allocations(body, allocated=allocated, full_keys=full_keys),
    ]
    return bir.function(name, allocations, [bir.block("Block1", body.instructions)], origin="NKI")


def plan_kernel(name: str, recipe: Recipe, seed: str, *, allocated: bool, sb_limit: int, style: Style) -> KernelPlan:
    """Return the plan of a kernel after a recipe.

    Parameters
    ----------
    name : str
        The function's name.
    recipe : Recipe
        What it is made of.
    seed : str
        What names its sequence of choices.
    allocated : bool
        Whether its tiles have addresses.
    sb_limit : int
        The most state buffer bytes per partition that it may take.
    style : Style
        How it is written.

    Returns
    -------
    KernelPlan
        The plan; the body is made when it is asked for.

    Examples
    --------
    >>> from arrowir.testing.recipes import RECIPES
    >>> plan_kernel("k", RECIPES["rope"], "a", allocated=True, sb_limit=65536, style=Style()).sb_bytes
    61440
    """

    def make() -> Json:
        body = BodyBuilder(recipe, seed, sb_limit, replace(style, reuse_edges=allocated)).build()
        full = style.full_keys
        return kernel_function(name, recipe.inputs, recipe.outputs, body, allocated=allocated, full_keys=full)

    first = next((formal.name for formal in recipe.inputs if formal.memory == "DRAM"), "tile")
    banks = min(recipe.psum_banks, recipe.psum_tiles)
    bytes_ = sb_bytes_of(recipe, sb_limit)
    return KernelPlan(name, recipe.inputs, recipe.outputs, allocated, bytes_, banks, make, f"{first}_tile_i0")


def _bound(formals: Iterable[Formal], actuals: Iterable[Tile]) -> dict[str, str]:
    return dict(sorted((formal.name, tile.name) for formal, tile in zip(formals, actuals, strict=True)))


class CallerBuilder:
    """Makes a function that calls kernels.

    Parameters
    ----------
    name : str
        The function's name.
    style : Style
        How it is written.
    seed : str
        What names its sequence of choices.
    allocated : bool
        Whether its tiles have addresses.
    first_addr : int
        Where its tiles begin.

    Examples
    --------
    >>> builder = CallerBuilder("sg0000", Style(), "a")
    >>> builder.dram("x", (8, 4), kind="ExternalInput").name
    'x'
    """

    def __init__(
        self,
        name: str,
        style: Style,
        seed: str,
        *,
        allocated: bool = False,
        first_addr: int = bir.DYNAMIC_DMA_BYTES,
    ) -> None:
        self.name = name
        self.style = style
        self.allocated = allocated
        self.emitter = Emitter(style, Choice(seed), f"{name}.py", whole_dram=True)
        self.allocations: list[Json] = []
        self._addr = first_addr
        self._scratch: dict[tuple[str, int], Tile] = {}
        self.scratch_addr = first_addr + TILE_ROOM
        self.scratch_end = 0
        self.banks = 0
        self.sites: list[tuple[str, KernelPlan]] = []
        # other names for tensors, so that an actual can bear the name of a formal
        self.rename: dict[str, str] = {}

    def dma_scratch(self) -> None:
        """Add the pinned location that dynamic DMA uses."""
        self.allocations.append(
            bir.tensor(
                "DynamicDMAScratchLoc",
                "SB",
                (128, bir.DYNAMIC_DMA_BYTES),
                "uint8",
                full_keys=self.style.full_keys,
                allocated=True,
                pinned=True,
            )
        )

    def dram(self, name: str, shape: tuple[int, int], dtype: str = "bfloat16", *, kind: str = "Internal") -> Tile:
        """Add a tensor in DRAM and return it."""
        name = self.rename.get(name, name)
        formal = Formal(name, shape, dtype)
        self.allocations.append(bir.tensor(name, "DRAM", shape, dtype, kind=kind, full_keys=self.style.full_keys))
        return parameter_tile(formal)

    def parameter(self, formal: Formal, direction: str) -> Tile:
        """Add a parameter of this function and return it."""
        self.allocations += parameter_sets([formal], direction, full_keys=self.style.full_keys)
        return parameter_tile(formal)

    def tile(self, name: str, shape: tuple[int, int], dtype: str = "bfloat16", memory: str = "SB") -> Tile:
        """Add a tile and return it."""
        name = self.rename.get(name, name)
        tile = parameter_tile(Formal(name, shape, dtype, memory))
        if memory == "SB":
            tile.addr = self._addr
            self._addr += -(-tile.pitch_bytes // 64) * 64
            if self._addr > self.scratch_addr:
                raise ValueError(f"the tiles of `{self.name}` take more than {TILE_ROOM} bytes, make fewer of them")
        self.allocations.append(
            bir.tensor(
                name,
                memory,
                shape,
                dtype,
                full_keys=self.style.full_keys,
                addr=tile.addr if self.allocated else 0,
                bank=bir.PSUM_BANKS - 1 if memory == "PSUM" and self.allocated else 0,
                allocated=self.allocated,
            )
        )
        return tile

    def mark(self) -> int:
        """Return where the next tile will be placed, for `rewind`."""
        return self._addr

    def rewind(self, mark: int) -> None:
        """Place the next tiles at a mark, over those that were made since."""
        self._addr = mark

    def _scratch_tile(self, memory: str, number: int, size: int) -> Tile:
        """Return a scratchpad; equal ones are shared by all call-sites, which run one after the other."""
        key = (memory, number if memory == "PSUM" else size)
        tile = self._scratch.get(key)
        if tile is None:
            name = f"{memory.lower()}_scratch{number if memory == 'PSUM' else f'_{size}'}"
            tile = Tile(name, memory, 128, size // 4, "float32", size, set_name=f"{name}_set")
            self._scratch[key] = tile
            place: Json = {"addr": self.scratch_addr} if memory == "SB" else {"bank": number}
            self.allocations.append(
                bir.tensor(
                    name,
                    memory,
                    (128, size // 4),
                    "float32",
                    full_keys=self.style.full_keys,
                    allocated=True,
                    **place,
                )
            )
        return tile

    def call(self, plan: KernelPlan, inputs: Sequence[Tile], outputs: Sequence[Tile], *, name: str = "") -> None:
        """Append a call-site."""
        full = self.style.full_keys
        name = name or f"inst__{plan.name}_{len(self.sites)}"
        if self.style.duplicate_names >= 1:
            name = f"inst__{plan.name}"
        outs = list(outputs)
        sb_shape, psum_shape = [0, 0], [0, 0, 0]
        if plan.allocated:
            sb_shape = [bir.PARTITIONS, plan.sb_bytes]
            outs.append(self._scratch_tile("SB", 0, plan.sb_bytes))
            self.scratch_end = max(self.scratch_end, self.scratch_addr + plan.sb_bytes)
            if plan.psum_banks:
                psum_shape = [plan.psum_banks, bir.PARTITIONS, bir.PSUM_BANK_BYTES]
                banks = range(plan.psum_banks)
                outs += [self._scratch_tile("PSUM", bank, bir.PSUM_BANK_BYTES) for bank in banks]
                self.banks = max(self.banks, plan.psum_banks)
        keys: Json = {
            "func": plan.name,
            "func_args": _bound(plan.inputs, inputs),
            "func_outs": _bound(plan.outputs, outputs),
            "kernel_source_val": "Beta3",
            "psum_buf_shape": psum_shape,
            "sb_buf_shape": sb_shape,
        }
        if full:
            keys["address_rotation_scope_val"] = "None"
        self.emitter.emit(
            "NKIKernel",
            "Unassigned",
            [(tile, tile.access(full_keys=full)) for tile in inputs],
            [(tile, tile.access(full_keys=full)) for tile in outs],
            keys,
            name=name,
        )
        self.sites.append((name, plan))

    def glue(self, opcode: str, engine: str, ins: Sequence[Tile], outs: Sequence[Tile], keys: Json) -> None:
        """Append an instruction of the function itself, on whole tensors."""
        full = self.style.full_keys
        self.emitter.emit(
            opcode,
            engine,
            [(tile, tile.access(full_keys=full)) for tile in ins],
            [(tile, tile.access(full_keys=full)) for tile in outs],
            keys,
        )

    def clash(self, site: str, plan: KernelPlan) -> None:
        """Add a location and an instruction whose names inlining of the call-site would give."""
        self.allocations.append(
            bir.tensor(f"{site}:{plan.first_tile}", "DRAM", (1, 64), "uint8", full_keys=self.style.full_keys)
        )
        self.emitter.emit("NoOp", "SP", [], [], name=f"{site}_{plan.first_instruction}")

    def function(self, **more: str) -> Json:
        """Return the function."""
        block = bir.block("Block1", self.emitter.instructions)
        return bir.function(self.name, self.allocations, [block], **more)
