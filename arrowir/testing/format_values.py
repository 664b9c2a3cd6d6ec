"""Values of members that drawn documents choose from, and the members that are rare."""

from typing import Any

from arrowir.testing import bir
from arrowir.testing.opcode_keys import OPCODE_KEYS

DTYPES = (*bir.ITEM_BYTES, "bool")
KINDS = (
    "Internal",
    "ExternalInput",
    "ExternalOutput",
    "Input",
    "Output",
    "Const",
    "Pointer",
    "InternalInterface",
    "ExternalInputParameter",
    "ExternalOutputParameter",
)
CLASSES = (
    "NeuronSBTensor",
    "Tensor",
    "NeuronPSUMTensor",
    "NeuronBlockTensor",
    "DRAM2DBlockTensor",
    "NeuronLocalTensor",
    "LoopTensor",
    "ImmutableParameter",
)
MEMORIES = ("SB", "DRAM", "PSUM", "Input", "Output", "REG", "RNGSTATE", "Unallocated", 16, 8, 32)
ENGINES = ("Unassigned", "Pool", "Activation", "PE", "DMA", "DVE", "SP", "ALL", "NewEngine")
EDGE_KINDS = ("Flow", "Anti", "Output", "Ordered", "Invalid")
ORIGINS = ("Internal", "Penguin", "NKI")
FLOATS = (0.5, 1.0, 0, -1, 1e-06, 1e300, -0.0, "inf", "-inf", "nan", float("inf"), float("-inf"), float("nan"))
OPCODES = (
    "NoOp",
    "TensorCopy",
    "TensorTensor",
    "DMACopy",
    "Activation",
    "Matmult",
    "TensorScalar",
    "BrandNewOp",
    *(name for name in OPCODE_KEYS if name not in ("NoOp", "TensorCopy", "TensorTensor")),
    "IotaSymbolic",
)

STEPS = (1, 64, 512, 0, 2, -1, -64, 3)
MODULE_RARE = (
    ("revision", ("v1", "v2")),
    ("artifact_path", ("/artifacts",)),
    ("artifact_info", ({}, {"eng_dma": [1]})),
    ("call_to_physical_memlocs", ({}, {"I-0": ["t0"]})),
)
SET_RARE = (
    ("addr_space", ("Shared", "Local", "Debug", None)),
    ("partition_dim", (0, 1, None)),
    ("file", ("", "const_0.npy")),
    ("no_spill", (False, True)),
    ("do_not_spill", (True,)),
    ("do_not_rotate", (False,)),
    ("volatile", (False, True)),
    ("virtual", (False,)),
    ("allocated", (True, False)),
    ("user_allocated", (True,)),
    ("origin", ORIGINS),
    ("debug", ({"tensor_name": "x", "shape": [1]}, None)),
    ("optin_passes", ([],)),
)
PLACEMENT: dict[str, tuple[Any, ...]] = {
    "base": (0, 32, 64, 96),
    "bank": (0, 3, -1),
    "allocated": (True, False),
    "pinned": (True, False),
    "tensor_id": (0, 1, -1),
}
LOCATION_RARE = (
    ("runtime_reserved", (True,)),
    ("user_allocated", (False,)),
    ("table_entry_id", (0, 5)),
    ("var_id", (1,)),
    ("memLocSetId", (0,)),
    ("pack_id_hint", (-1,)),
    ("kind", KINDS[:3]),
    ("addr_space", ("Local", None)),
    ("alloced_func", ("sg0000",)),
    ("remote_writer_func", ("other",)),
    ("remote_local_target", ([True, "x", 1],)),
    ("location_alt", (False,)),
    ("written_by_another_core", (True,)),
    ("device_print_metadata", ({"a": 1},)),
    ("origin", ORIGINS),
)
HEADER_RARE = (
    ("origin", ORIGINS),
    ("engine_id", (0, 2**32 - 1)),
    ("scheduled_start", (-1, 2**62)),
    ("scheduled_end", (-1, 0)),
    ("optin_passes", (15, 3, [], ["pass_a", "pass_b"])),
    ("debug", ({"filename": "k.py", "lineno": 7, "op_name": "add"}, {}, None, {"lineno": 3, "new": [None]})),
    ("predicates", ([], [{"expr": {"new": 1}}])),
    ("dma_trigger_debug_update_semaphore_id", (4,)),
)
LOOP_RARE = (("isParallel", (True,)), ("isBasicBlock", (False,)), ("unroll", (1,)), ("registers", ([],)))
INDIRECT_RARE = (("tensor_indirect_arg_id", (0, 2)), ("num_tensor_indirect_indices", (1,)))
DMA_BLOCK_RARE = (("block_id", 0), ("section_start", True), ("priority_class", "P0"), ("remote_notifications", []))
