"""Modules that call library kernels, in the shape of transformer layers: a norm and an activation each."""

import math
from collections.abc import Iterator, Sequence

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.planning import Generated

NORMS = (1, 2, 3)
"""`norm_type`: with gamma, as a layer norm, without gamma."""

FUNCTIONS = ("SiLU", "GELU", "GELU_Tanh_Approx", "Swish", "ReLU")

ROWS, HIDDEN = 192, 256
"""Shape of what goes from layer to layer; the last tile of rows has 64."""

PAD_BYTES = 8_192
"""Bytes of a scratchpad in each partition; scratchpads of a layer and of the next one take turns."""


def call_site(
    name: str,
    kernel: str,
    ins: Sequence[tuple[str, tuple[int, ...]]],
    out: str,
    *,
    pad: str | None = None,
    edges: list[str] | None = None,
    attrs: dict[str, str] | None = None,
    dtype: str = "bfloat16",
    full_keys: bool = True,
    **members: object,
) -> Json:
    """Return a call-site of a library kernel on whole tensors.

    Parameters
    ----------
    name, kernel : str
        Its name, and that of the kernel.
    ins : list of (str, tuple of int)
        Location and shape of each input; the first one's is that of the output.
    out : str
        Location of the output.
    pad : str, optional
        Location of the SB scratchpad.
    edges : list of str, optional
        What it waits for.
    attrs : dict, optional
        What stands under `kernel_attrs`.
    dtype : str
        Type of all elements.
    full_keys : bool
        Write members that have their default value.
    **members
        Further members.

    Returns
    -------
    dict
        The instruction.

    Examples
    --------
    >>> call_site("C", "Activation", [("x", (128, 4))], "y", full_keys=False)["srcs_shape"]
    [[128, 4]]
    """

    def whole(location: str, shape: tuple[int, ...]) -> Json:
        rows, columns = (shape[0], shape[1]) if len(shape) > 1 else (1, math.prod(shape))
        pattern = [[columns if rows > 1 else 1, rows], [1, columns]]
        return bir.access(location, pattern, dtype, full_keys=full_keys)

    outs = [whole(out, ins[0][1])]
    if pad is not None:
        outs.append(bir.access(pad, [[PAD_BYTES, 128], [1, PAD_BYTES]], "uint8", full_keys=full_keys))
    keys: Json = {
        "auto_cast": "none",
        "auto_cast_type": "none",
        "dsts_shape": [list(ins[0][1])],
        "kernel_attrs": [[option, value] for option, value in (attrs or {}).items()],
        "kernel_name": kernel,
        "psum_buf_shape": [0, 0, 0],
        "sb_buf_shape": [0, 0] if pad is None else [128, PAD_BYTES],
        "srcs_shape": [list(shape) for _, shape in ins],
        **members,
    }
    waits = [[edge, "Flow"] for edge in edges or []]
    sources = [whole(location, shape) for location, shape in ins]
    return bir.instruction(name, "BIRKernel", "Unassigned", sources, outs, edges=waits, full_keys=full_keys, keys=keys)


def layers(
    count: int = 2, *, seed: int = 0, arch: str = "gen3", allocated: bool = False, full_keys: bool = True
) -> Generated:
    """Return a module of layers, each of which is a norm and an activation.

    Parameters
    ----------
    count : int
        How many layers.
    seed : int
        Chooses norms and functions.
    arch : str
        The architecture.
    allocated : bool
        Whether call-sites bring scratchpads with addresses.
    full_keys : bool
        Write members that have their default value.

    Returns
    -------
    Generated
        The module.

    Raises
    ------
    ValueError
        There is nothing to generate.

    Examples
    --------
    >>> document = layers(1).document()
    >>> [i["kernel_name"] for i in document["functions"][0]["blocks"][0]["instructions"]]
    ['RMSNorm', 'Activation']
    """
    if count < 1:
        raise ValueError("`layers` must be at least 1")

    def functions() -> Iterator[Json]:
        yield _function(count, seed, allocated, full_keys)

    return Generated(arch, functions, lambda: iter(()))


def _function(count: int, seed: int, allocated: bool, full_keys: bool) -> Json:
    shape = (ROWS, HIDDEN)

    def tensor(name: str, kind: str = "Internal", extents: tuple[int, ...] = shape) -> Json:
        return bir.tensor(name, "DRAM", extents, "bfloat16", kind=kind, full_keys=full_keys)

    allocations = [tensor("hidden0", "ExternalInput")]
    pads: list[str | None] = [None, None]
    if allocated:
        pads = ["pad0", "pad1"]
        for number, name in enumerate(("pad0", "pad1")):
            addr = bir.DYNAMIC_DMA_BYTES + number * PAD_BYTES
            allocations.append(
                bir.tensor(name, "SB", (128, PAD_BYTES), "uint8", addr=addr, allocated=True, full_keys=full_keys)
            )
    rows: list[Json] = []
    for number in range(count):
        kind = NORMS[(seed + number) % len(NORMS)]
        last = number == count - 1
        allocations += [
            tensor(f"normed{number}"),
            tensor(f"hidden{number + 1}", "ExternalOutput" if last else "Internal"),
        ]
        ins: list[tuple[str, tuple[int, ...]]] = [(f"hidden{number}", shape)]
        if kind != 3:
            allocations.append(tensor(f"gamma{number}", "ExternalInput", (HIDDEN,)))
            ins.append((f"gamma{number}", (HIDDEN,)))
        norm, act = f"norm{number}", f"act{number}"
        before = [f"act{number - 1}"] if number else []
        pad = pads[number % 2]
        rows.append(
            call_site(
                norm, "RMSNorm", ins, f"normed{number}", pad=pad, edges=before, full_keys=full_keys, norm_type=kind
            )
        )
        attrs = {"act_fn": FUNCTIONS[(seed + number) % len(FUNCTIONS)]}
        source = [(f"normed{number}", shape)]
        target = f"hidden{number + 1}"
        rows.append(
            call_site(act, "Activation", source, target, pad=pad, edges=[norm], attrs=attrs, full_keys=full_keys)
        )
    return bir.function("sg0000", allocations, [bir.block("Block1", rows)])


def equal_sites(count: int, tiles: int = 1) -> Json:
    """Return a module of call-sites that all ask for the same, in a chain.

    Parameters
    ----------
    count : int
        How many call-sites.
    tiles : int
        Tiles of each body, of three instructions each.

    Returns
    -------
    dict
        The document.

    Examples
    --------
    >>> len(equal_sites(3)["functions"][0]["blocks"][0]["instructions"])
    3
    """
    shape = (128 * tiles, 64)
    names = ["x", "t0", "t1"]
    kinds = ["ExternalInput", "Internal", "ExternalOutput"]
    sets = [bir.tensor(n, "DRAM", shape, "float32", kind=k, full_keys=False) for n, k in zip(names, kinds, strict=True)]
    rows: list[Json] = []
    for number in range(count):
        source, target = (names[1 + number % 2] if number else "x"), names[1 + (number + 1) % 2]
        before = [f"C{number - 1}"] if number else []
        rows.append(
            call_site(
                f"C{number}", "Activation", [(source, shape)], target, edges=before, dtype="float32", full_keys=False
            )
        )
    return bir.module([bir.function("sg0000", sets, [bir.block("Block1", rows)])])
