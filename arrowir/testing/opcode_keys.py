"""The members of each opcode, as the format describes them, with the kind of value that each holds.

A kind is a name of `VALUE_KINDS`. `*` before it: a plain value or an expression in its place.
"""

ENUMS: dict[str, tuple[str, ...]] = {
    "alu": (
        "bypass",
        "bitwise_not",
        "arith_shift_left",
        "arith_shift_right",
        "add",
        "subtract",
        "mult",
        "divide",
        "max",
        "min",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "logical_and",
        "logical_or",
        "logical_xor",
        "logical_shift_left",
        "logical_shift_right",
        "is_equal",
        "not_equal",
        "is_gt",
        "is_ge",
        "is_lt",
        "is_le",
        "average",
        "elemwise_mul",
        "pow",
        "mod",
        "rsqrt",
        "abs",
        "abs_max",
        "abs_min",
        "mod_int",
    ),
    "activation": ("Identity", "Square", "Relu", "Exp", "Gelu", "Silu", "Is_finite", "Unknown", "MemsetZero"),
    "acc": ("Idle", "Zero", "Accumulate", "ZeroAccumulate", "AddAccumulate", "LoadAccumulate"),
    "perf": ("None", "DoubleRow", "DoubleColumn", "DoublePixel", "DoubleRowSwInterleave"),
    "axes": ("X", "XY", "XYZ", "XYZW", "XYZWC", "C"),
    "pool": ("Max", "Avg"),
    "memset": ("Const", "Random"),
    "cache": ("Reduce", "Cumulative", "TensorScan"),
    "dge": ("Unassigned", "None", "SWDGE", "HWDGE"),
    "copy": ("Copy", "Transpose", "CCE", "Replicate", "Dynamic"),
    "qos": ("Unassigned", "Default", "P0", "P14"),
    "transpose": ("None", "WZXY", "XYZW", "XYWZ"),
    "collective": ("AllReduce", "SendRecv", "AllGather", "Permute", "PermuteImplicit", "PermuteReduceImplicit"),
    "dimension": ("Free", "Partition"),
    "hint": ("None", "TP", "FSDP"),
    "unique": ("Unknown", "No", "Yes"),
    "random": ("LFSR", "PCG32", "PHILOX_1"),
    "distribution": ("Raw", "Uniform", "Normal", "Binomial"),
    "clear": ("SemaphoreZero", "SemaphoreZeroBitmask"),
    "device": ("stdout", "stderr"),
    "completion": ("Default", "DebugTensorRead"),
    "sync": ("DataPathType", "SequencerType", "DMAType", "datapath"),
    "engine": ("Pool", "Activation", "PE", "DVE", "SP"),
    "compare": ("IS_LTIMM", "IS_LEIMM", "IS_EQIMM", "IS_GTREG", "Unsupported"),
    "likely": ("LikelyTaken", "LikelyNotTaken"),
    "scope": ("None", "Kernel", "Global"),
}
"""Values that are written as one of several strings."""

_DMA = "queue:queue dge_type:dge duplicate:*bool"
_MATMULT = (
    "accumulation_flag:*uint psum_zero_region:*uint replication_resolution:*uint replication_shift_amnt:*uint "
    "replication_num_rows:*uint is_transpose:*bool is_fmap_onezero:*bool is_weight_onezero:*bool tile_size:*pair "
    "tile_position:*pair ifmap_quant_offset:*uint weights_quant_offset:*uint perf_mode:perf "
    "start_tensor_calc:bool stop_tensor_calc:bool"
)
_SCALAR = "op0:alu reverse0:*bool op1:alu reverse1:*bool"
_DESCRIPTOR = "num_tiling_dimensions:*uint"
_UNINIT = "can_read_uninit:*bool"

OPCODE_KEYS: dict[str, str] = {
    "GenericCopy": _UNINIT,
    "GenericRelu": "",
    "AbstractCopy": "dma_qos:qos",
    "Activation": f"scale:float alpha:float {_UNINIT} func:activation acc:acc is_activate2:*bool op0:alu op1:alu "
    "reverse0:*bool reverse1:*bool reduce_op:alu",
    "ReadActivationAccumulator": "",
    "LoadActFuncSet": "act_func_set_id:*int",
    "Matmult": _MATMULT,
    "MatmultSparse": f"{_MATMULT} compress_ratio:*int",
    "Memset": "mode:memset constant:*uint",
    "GetGlobalRankId": "world_size:*uint",
    "NoOp": "",
    "EventSemaphore": "",
    "GroupResetSemaphores": "mode:clear sema_group:uints",
    "AllEngineBarrier": "",
    "Drain": "is_reset_sema:*bool",
    "Halt": "",
    "Load": f"{_DMA} {_UNINIT} dma_qos:qos",
    "Pool": "func:pool",
    "Reciprocal": "",
    "Save": f"{_DMA} {_UNINIT} dma_qos:qos",
    "TensorCopy": _UNINIT,
    "TensorCopyDynamicSrc": f"scale:*uint {_UNINIT}",
    "TensorCopyDynamicDst": f"scale:*uint {_UNINIT}",
    "IndirectCopy": "num_valid_indices:*uint",
    "TensorReduce": "op:alu axis:axes apply_transpose:*bool negate:*bool",
    "TensorScalar": f"{_SCALAR} const0:serfloat const1:serfloat",
    "TensorScalarPtr": f"{_SCALAR} apply_transpose:*bool is_tensor_scalar_addr:*bool is_scalar_tensor_tensor:*bool "
    "is_tensor_tensor_scan:*bool negate_second_output:*bool acc:acc",
    "TensorScalarCache": f"{_SCALAR} mode:cache acc:acc",
    "TensorTensor": "op:alu acc:acc",
    "DMACopy": f"{_DMA} mode:copy oob_is_err:*bool transpose_op:transpose constants:floats cce_op:alu "
    f"replica_groups:groups remote_notification:uints {_UNINIT} dma_qos:qos use_gpsimd_dma:bool",
    "GPSIMDSB2SB": "",
    "BNStats": "apply_transpose:*bool",
    "BNStatsAggregate": "",
    "BNGradients": "",
    "BNBackprop": "total_elements:float",
    "BNBackprop2": "total_elements:float",
    "StreamShuffle": "mask:*uints",
    "StreamTranspose": "",
    "ReadVarAddr": _DMA,
    "GenericIndirectLoad": f"{_DMA} indirect_dims:dims",
    "IndirectLoad": f"{_DMA} runtime_semaphore_wait_value:*uint",
    "GenericIndirectSave": f"{_DMA} indirect_dims:dims op:alu",
    "IndirectSave": f"{_DMA} runtime_semaphore_wait_value:*uint",
    "IndirectSaveAccumulate": f"{_DMA} num_indices:*uint entry_step_elements:*uint op:alu",
    "CollectiveCompute": "queue:queue kind:collective replica_groups:groups op:alu cc_channel:channel "
    f"cc_dim:dimension cc_type_hint:hint stream_id:*int src_target_pairs:groups {_UNINIT} is_local:*bool "
    "pipe_id:uint recv_from_rank:expressions send_to_rank:expression initial_corebarrier:*bool permute_chain:junk "
    "src1_bitmap:junk unique_tensors:unique use_gpsimd_dma:bool dma_qos:qos",
    "CollectiveSend": f"queue:queue peer_id:*uint {_UNINIT}",
    "CollectiveRecv": "queue:queue peer_id:*uint",
    "Select": "",
    "CopyPredicated": f"{_UNINIT} reverse_pred:*bool reduce_op:alu accumulator_cmd:acc",
    "CustomOp": "opFunctionName:string opLibFile:string ulib_to_ucode_version:string ulib_to_isa_version:string "
    "is_builtin:*bool srcsShape:groups dstsShape:groups",
    "BIRKernel": "kernel_name:string srcs_shape:groups dsts_shape:groups kernel_attrs:attributes sb_buf_shape:uints2 "
    "psum_buf_shape:uints3 auto_cast:string auto_cast_type:string is_causal:*bool fused_rmsnorm:*bool "
    "norm_type:*int lnc_size:*int lower_bound:float store_add:*bool quant_kernel:*bool output_layout:*int",
    "NKIKernel": "func:function func_args:arguments func_outs:arguments sb_buf_shape:uints2 psum_buf_shape:uints3 "
    "address_rotation_scope_val:scope kernel_source_val:source",
    "NKIKLIRKernel": "klir_binary:string kernel_format:string nki_binary_version_identifier:string "
    "enable_device_dump:*bool func_args:strings func_outs:strings sb_buf_shape:uints2 psum_buf_shape:uints3 "
    "address_rotation_scope_val:scope",
    "DevicePrint": "prefix:string output_buffer:device",
    "GetRandState": "",
    "SetRandState": "rng_engine:engine",
    "Rand": "random_algorithm:random rand_num_steps:*uint distribution:distribution params:floats",
    "Iota": "base:*int pattern:pattern channel_multiplier:*int",
    "TensorScalarAffineSelect": "base:*int pattern:pattern channel_multiplier:*int compare_op:alu fill_value:serfloat",
    "RangeSelect": "base:*int compare_op0:alu compare_op1:alu reduce_op:alu reduce_cmd:acc fill_value:serfloat "
    "num_active_channels:*int",
    "GetSequenceBounds": "",
    "Dropout": "is_keep_threshold:*bool",
    "GetCurProcessingRankID": "iter_id:*uint channel_id:*uint stream_id:*int replica_groups:groups",
    "DMATrigger": f"{_DMA} dma_blocks:dma_blocks",
    "DMADescriptorCopy": f"{_DESCRIPTOR} {_UNINIT}",
    "DMADescriptorCCE": f"{_DESCRIPTOR} constants:floats op:alu",
    "DMADescriptorTranspose": f"{_DESCRIPTOR} transpose_op:transpose {_UNINIT}",
    "DMADescriptorReplicate": _DESCRIPTOR,
    "RegisterAlu": "op:alu is_64bit:*bool",
    "RegisterMove": "",
    "TensorLoad": "",
    "TensorSave": "",
    "CompareAndBranch": "comp_op:compare on_true:block on_false:block",
    "UnconditionalBranch": "target:block",
    "BranchHint": "hint:likely associate_branch:instruction",
    "Return": "",
    "Exit": "",
    "Break": "",
    "Call": "target:function arguments:arguments table_id:*int",
    "SwitchQueueInstance": "queue:queue instance:string no_rearm:*bool",
    "ResetQueueInstance": "queue:queue instance:string",
    "CoreBarrier": "runtime_semaphore:*uint id:*uint cores:uints",
    "Max": "",
    "MaxIndex": "",
    "MatchReplace": "imm_value:serfloat",
    "MaxIndexAndMatchReplace": "imm_value:serfloat",
    "Gather": "",
    "InlineASMBytes": "asm_bytes:bytes sync_type:sync latency_estimate:*int",
    "TensorCompletion": "mode:completion",
    "MatmultMx": _MATMULT,
    "QuantizeMx": "",
    "Rand2": "",
    "RandSetState": "",
    "RandGetState": "",
    "Rng": "",
    "ActivationReadAccumulator": "",
    "DveReadAccumulator": "negated:*bool",
    "Exponential": "reduce_cmd:acc",
    "NonzeroWithCount": "",
    "TongaReduceMacroSymbolic": "op:alu is_first_reduce:bool reduce_axes:axis_names",
}
"""The members of the opcodes that can stand in a block, loops apart."""


def keys_of(opcode: str) -> list[tuple[str, str]]:
    """Return the members of an opcode with the kind of value of each.

    Parameters
    ----------
    opcode : str
        The opcode.

    Returns
    -------
    list of (str, str)
        Member and kind; empty for an unknown opcode.

    Examples
    --------
    >>> keys_of("Drain")
    [('is_reset_sema', '*bool')]
    """
    return [(key, kind) for key, _, kind in (item.partition(":") for item in OPCODE_KEYS.get(opcode, "").split())]
