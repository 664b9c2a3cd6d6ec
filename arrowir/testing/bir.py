"""Plain constructors for pieces of a BIR JSON document.

They return dicts whose members stand in sorted order, as the compiler writes them, and know nothing of the
rest of the library.
"""

from collections.abc import Iterable, Sequence
from typing import Any

Json = dict[str, Any]
Pattern = list[list[int]]

PARTITIONS = 128
PSUM_BANKS = 8
PSUM_BANK_BYTES = 2048
DYNAMIC_DMA_BYTES = 16_384
"""Bytes per partition of the pinned `DynamicDMAScratchLoc` at address 0."""
TAIL_BYTES = 8
"""Bytes per partition kept free at the top of the state buffer."""

SBUF_BYTES: dict[str, int] = {
    **dict.fromkeys(("inferentia", "tonga", "inf1"), 98_304),
    **dict.fromkeys(("sunda", "gen2", "trainium", "trn1", "inf2"), 196_608),
    **dict.fromkeys(("gen3", "cayman", "trn2"), 229_376),
    **dict.fromkeys(("core_v4", "gen4", "mariana", "trn3"), 262_144),
}
"""State buffer bytes per partition of each architecture that has a hardware model."""

ITEM_BYTES: dict[str, int] = {
    **dict.fromkeys(
        ("uint8", "int8", "float8e3", "float8e4", "float8_e4m3fn", "float8_e8m0fnu", "float8e5"),
        1,
    ),
    **dict.fromkeys(("float4_e2m1fn_x4", "uint16", "int16", "bfloat16", "float16"), 2),
    **dict.fromkeys(("float8_e4m3fn_x4", "float8_e5m2_x4", "uint32", "int32", "float32", "float32r"), 4),
    **dict.fromkeys(("uint64", "int64"), 8),
}
"""Bytes of one element of each dtype."""


def record(**members: Any) -> Json:
    """Return the members as a dict in sorted order.

    Parameters
    ----------
    **members
        The members; those that are `None` are left out.

    Returns
    -------
    dict
        The members that have a value, sorted by name.

    Examples
    --------
    >>> record(b=1, a=2, c=None)
    {'a': 2, 'b': 1}
    """
    return {name: members[name] for name in sorted(members) if members[name] is not None}


def location(
    name: str,
    memory: str,
    dims: Sequence[int],
    *,
    addr: int = 0,
    bank: int = 0,
    base: int = 0,
    allocated: bool = False,
    tensor_id: int = 0,
    full_keys: bool = True,
    **more: Any,
) -> Json:
    """Return one memory location.

    Parameters
    ----------
    name : str
        The name that operands refer to.
    memory : str
        `DRAM`, `SB`, `PSUM` or another memory type.
    dims : sequence of int
        Partitions and bytes per partition; the product counts for DRAM.
    addr, bank, base : int
        The placement.
    allocated : bool
        Whether the placement is final.
    tensor_id : int
        The place in the table of the set.
    full_keys : bool
        Also write members that have their default value.
    **more
        Further members.

    Returns
    -------
    dict
        The location.

    Examples
    --------
    >>> location("x", "SB", [128, 512], full_keys=False)["dims"]
    [128, 512]
    """
    keep = full_keys
    return record(
        Skind="memory_location",
        name=name,
        type=memory,
        dims=list(dims),
        addr=addr,
        allocated=allocated,
        bank=bank if keep or bank else None,
        base=base if keep or base else None,
        pinned=more.pop("pinned", False if keep else None),
        tensor_id=tensor_id,
        **more,
    )


def memory_set(
    name: str,
    locations: Iterable[Json],
    *,
    dtype: str,
    shape: Sequence[int],
    kind: str = "Internal",
    tensor_class: str = "NeuronSBTensor",
    full_keys: bool = True,
    **more: Any,
) -> Json:
    """Return one memory location set.

    Parameters
    ----------
    name : str
        The name of the set, by convention that of its location and `_set`.
    locations : iterable of dict
        Its locations.
    dtype : str
        The element type.
    shape : sequence of int
        The logical shape, partitions first.
    kind, tensor_class : str
        What the tensor is for, and its class.
    full_keys : bool
        Also write members that have their default value.
    **more
        Further members.

    Returns
    -------
    dict
        The set.

    Examples
    --------
    >>> memory_set("x_set", [], dtype="int8", shape=[1, 1])["tensorId2MemLocSize"]
    0
    """
    members = list(locations)
    plain: Json = {"file": "", "no_spill": False, "virtual": False, "volatile": False} if full_keys else {}
    return record(
        **{
            "Skind": "memory_location_set",
            "name": name,
            "kind": kind,
            "tensor_class": tensor_class,
            "dtype": dtype,
            "partition_dim": 0 if full_keys else None,
            "tensor_shape": list(shape),
            "memorylocations": members,
            "tensorId2MemLocSize": len(members),
            **plain,
            **more,
        }
    )


TENSOR_CLASS = {"DRAM": "Tensor", "SB": "NeuronSBTensor", "PSUM": "NeuronPSUMTensor"}


def tensor(
    name: str,
    memory: str,
    shape: Sequence[int],
    dtype: str,
    *,
    kind: str = "Internal",
    set_name: str | None = None,
    full_keys: bool = True,
    set_keys: Json | None = None,
    **place: Any,
) -> Json:
    """Return a set that holds one location, both sized by shape and dtype.

    Parameters
    ----------
    name : str
        The name of the location.
    memory : str
        `DRAM`, `SB` or `PSUM`.
    shape : sequence of int
        Partitions (rows) and elements of each.
    dtype : str
        The element type.
    kind : str
        The kind of the tensor.
    set_name : str, optional
        The name of the set; `name` and `_set` by default.
    full_keys : bool
        Also write members that have their default value.
    set_keys : dict, optional
        Further members of the set.
    **place
        Placement and further members of the location.

    Returns
    -------
    dict
        The set.

    Examples
    --------
    >>> tensor("x", "SB", [128, 4], "float32")["memorylocations"][0]["dims"]
    [128, 16]
    """
    row_bytes = ITEM_BYTES[dtype]
    for extent in shape[1:]:
        row_bytes *= extent
    shared: Json = {"addr_space": "Shared" if kind != "Internal" else "Local"} if memory == "DRAM" else {}
    return memory_set(
        set_name if set_name is not None else f"{name}_set",
        [location(name, memory, [shape[0], row_bytes], full_keys=full_keys, **place)],
        dtype=dtype,
        shape=shape,
        kind=kind,
        tensor_class=TENSOR_CLASS[memory],
        full_keys=full_keys,
        **{**shared, **(set_keys or {})},
    )


def register(name: str, **more: Any) -> Json:
    """Return one register.

    Parameters
    ----------
    name : str
        The name that operands and expressions refer to.
    **more
        Further members.

    Returns
    -------
    dict
        The register.

    Examples
    --------
    >>> register("r0")
    {'Skind': 'register', 'name': 'r0'}
    """
    return record(Skind="register", name=name, **more)


def access(
    name: str,
    pattern: Pattern,
    dtype: str,
    *,
    offset: int = 0,
    set_name: str | None = None,
    full_keys: bool = True,
    **more: Any,
) -> Json:
    """Return a physical access to a location.

    Parameters
    ----------
    name : str
        The name of the location.
    pattern : list of [int, int]
        Pairs of step and count, partitions first, in elements.
    dtype : str
        The type by which it is accessed.
    offset : int
        The first element.
    set_name : str, optional
        The name of the set; `name` and `_set` by default.
    full_keys : bool
        Also write the access shape.
    **more
        Further members, `dynamic_ap_info` for instance.

    Returns
    -------
    dict
        The operand.

    Examples
    --------
    >>> access("x", [[4, 128], [1, 4]], "float32", full_keys=False)["memsetref"]
    'x_set'
    """
    return record(
        kind="physical_ap",
        ap=pattern,
        dtype=dtype,
        offset=offset,
        memref=name,
        memsetref=set_name if set_name is not None else f"{name}_set",
        access_shape=[pair[1] for pair in pattern] if full_keys else None,
        **more,
    )


def register_access(name: str, dtype: str = "int32") -> Json:
    """Return an operand that is a register.

    Parameters
    ----------
    name : str
        The name of the register.
    dtype : str
        The type by which it is accessed.

    Returns
    -------
    dict
        The operand.

    Examples
    --------
    >>> register_access("r0")
    {'dtype': 'int32', 'kind': 'register_access', 'regref': 'r0'}
    """
    return record(kind="register_access", dtype=dtype, regref=name)


def immediate(value: int | float, dtype: str) -> Json:
    """Return an immediate operand.

    Parameters
    ----------
    value : int or float
        The value.
    dtype : str
        Its type.

    Returns
    -------
    dict
        The operand.

    Examples
    --------
    >>> immediate(3, "int32")
    {'dtype': 'int32', 'kind': 'imm_value', 'value': 3}
    """
    return record(kind="imm_value", dtype=dtype, value=value)


def instruction(
    name: str,
    opcode: str,
    engine: str,
    ins: list[Json],
    outs: list[Json],
    *,
    edges: Sequence[Any] = (),
    full_keys: bool = True,
    keys: Json | None = None,
    **more: Any,
) -> Json:
    """Return one instruction.

    Parameters
    ----------
    name, opcode, engine : str
        What it is called, what it does, where it runs.
    ins, outs : list of dict
        Its operands.
    edges : sequence
        Entries of `dependencies`; an empty sequence leaves the member out.
    full_keys : bool
        Also write the header members that the compiler writes always.
    keys : dict, optional
        The members of its opcode.
    **more
        Further members.

    Returns
    -------
    dict
        The instruction.

    Examples
    --------
    >>> instruction("I-0", "NoOp", "SP", [], [], full_keys=False)
    {'engine': 'SP', 'ins': [], 'name': 'I-0', 'opcode': 'NoOp', 'outs': []}
    """
    header: Json = {}
    if full_keys:
        header = {"engine_id": 0, "origin": "NKI", "scheduled_end": -1, "scheduled_start": -1}
    return record(
        **{
            "name": name,
            "opcode": opcode,
            "engine": engine,
            "ins": ins,
            "outs": outs,
            "dependencies": list(edges) or None,
            **header,
            **(keys or {}),
            **more,
        }
    )


def block(name: str, instructions: list[Json], **more: Any) -> Json:
    """Return one block.

    Parameters
    ----------
    name : str
        Its name.
    instructions : list of dict
        Its instructions.
    **more
        Further members.

    Returns
    -------
    dict
        The block.

    Examples
    --------
    >>> block("Block1", [])
    {'instructions': [], 'name': 'Block1'}
    """
    return record(name=name, instructions=instructions, **more)


def function(name: str, allocations: list[Json], blocks: list[Json], **more: Any) -> Json:
    """Return one function.

    Parameters
    ----------
    name : str
        Its name.
    allocations : list of dict
        Its sets and registers.
    blocks : list of dict
        Its blocks.
    **more
        Further members; `attributes` is an empty list by default.

    Returns
    -------
    dict
        The function.

    Examples
    --------
    >>> function("sg0000", [], [])["attributes"]
    []
    """
    return record(**{"name": name, "attributes": [], "allocations": allocations, "blocks": blocks, **more})


def module(functions: list[Json], kernels: list[Json] | None = None, *, arch: str = "gen3", **more: Any) -> Json:
    """Return one module.

    Parameters
    ----------
    functions : list of dict
        The ordinary functions.
    kernels : list of dict, optional
        The kernel functions.
    arch : str
        The architecture.
    **more
        Further members.

    Returns
    -------
    dict
        The document.

    Examples
    --------
    >>> module([])["nki_functions"]
    {'functions': []}
    """
    return record(
        **{
            "arch": arch,
            "attributes": {"neuron_core_id": 0},
            "functions": functions,
            "nki_functions": {"functions": kernels or []},
            "version": 2,
            **more,
        }
    )
