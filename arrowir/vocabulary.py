"""Closed lists of BIR: what a file may spell, the code that tables hold for it, and the compiler's number.

A `Vocabulary` is one such list. Its codes are positions, so they never depend on a file; numbers are the
compiler's, and None where no number is known. The module needs the standard library only and reads no file
when it is imported: the keys of each opcode stand in `opcodes.csv`, which is read on first use.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A closed list of spellings.

    Parameters
    ----------
    name : str
        Snake case, singular; the key in `VOCABULARIES`.
    values : tuple of str
        Wire spellings. The code of a value is its index.
    numbers : tuple of (int or None)
        The compiler's number of each value; None where no number is known.
    meaning : str
        What the list says, in a few words.

    Raises
    ------
    ValueError
        If a value stands twice, or the two tuples differ in length.

    Examples
    --------
    >>> MEMORY_TYPES.code("SB"), MEMORY_TYPES.code_of_number(16), MEMORY_TYPES.code("HBM")
    (4, 4, -1)
    """

    name: str
    values: tuple[str, ...]
    numbers: tuple[int | None, ...]
    meaning: str
    _codes: dict[str, int] = field(init=False, repr=False, compare=False)
    _codes_of_numbers: dict[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        codes = {text: code for code, text in enumerate(self.values)}
        if len(codes) != len(self.values) or len(self.numbers) != len(self.values):
            raise ValueError(f"vocabulary `{self.name}` repeats a value or lacks a number")
        of_numbers: dict[int, int] = {}
        for code, number in enumerate(self.numbers):
            if number is not None:
                of_numbers.setdefault(number, code)
        object.__setattr__(self, "_codes", codes)
        object.__setattr__(self, "_codes_of_numbers", of_numbers)

    def __len__(self) -> int:
        return len(self.values)

    def code(self, text: str) -> int:
        """Code of a spelling, exact case; -1 when the list does not have it.

        Parameters
        ----------
        text : str
            The spelling as it stands in a file.

        Returns
        -------
        int
            Index into `values`, or -1.

        Examples
        --------
        >>> ENGINES.code("PE"), ENGINES.code("pe")
        (3, -1)
        """
        return self._codes.get(text, -1)

    def code_of_number(self, number: int) -> int:
        """Code of the compiler's number; -1 when the list does not have it, and for a boolean.

        Where two spellings share a number the first is meant. Files may hold numbers for memory types, edge
        kinds and kernel sources (rule F3).

        Parameters
        ----------
        number : int
            The number as it stands in a file.

        Returns
        -------
        int
            Index into `values`, or -1.

        Examples
        --------
        >>> EDGE_KINDS.code_of_number(4) == EDGE_FLOW
        True
        """
        return -1 if isinstance(number, bool) else self._codes_of_numbers.get(number, -1)


VOCABULARIES: dict[str, Vocabulary] = {}
"""Every vocabulary of this module, by name."""


def _listed(name: str, meaning: str, values: str, numbers: Iterable[int | None]) -> Vocabulary:
    """Make a vocabulary of the words in `values`, and register it."""
    VOCABULARIES[name] = Vocabulary(name, tuple(values.split()), tuple(numbers), meaning)
    return VOCABULARIES[name]


def _numbered(name: str, meaning: str, values: str, more: str = "") -> Vocabulary:
    """List of values whose number is their position, then of `more` without known numbers."""
    numbers = (*range(len(values.split())), *(None for _ in more.split()))
    return _listed(name, meaning, f"{values} {more}", numbers)


def _spelled(name: str, meaning: str, values: str) -> Vocabulary:
    """List of values without known numbers."""
    return _numbered(name, meaning, "", values)


def _known(vocabulary: Vocabulary, text: str) -> int:
    """Code of a value that must be in the list, so that a misspelt constant cannot become -1."""
    code = vocabulary.code(text)
    if code < 0:
        raise ValueError(f"`{text}` is not in vocabulary `{vocabulary.name}`")
    return code


# ---- opcodes and engines

# The first 110 are in the compiler's order, so code and number are one. The others are older builds' alone.
OPCODES = _numbered(
    "opcode",
    "class of an instruction",
    """Generic GenericCopy GenericRelu AbstractCopy Activation ReadActivationAccumulator LoadActFuncSet
    MatmultBase Matmult MatmultSparse Memset GetGlobalRankId NoOp EventSemaphore GroupResetSemaphores
    AllEngineBarrier Drain Halt DMA Load Pool Reciprocal Save TensorCopy TensorCopyDynamicSrc
    TensorCopyDynamicDst IndirectCopy TensorReduce TensorScalar TensorScalarPtr TensorScalarCache
    TensorTensor DMACopy GPSIMDSB2SB BNStats BNStatsAggregate BNGradients BNBackprop BNBackprop2
    StreamShuffle StreamTranspose ReadVarAddr GenericIndirectLoad IndirectLoad GenericIndirectSave
    IndirectSave IndirectSaveAccumulate Collective CollectiveCompute CollectiveSend CollectiveRecv Select
    CopyPredicated CustomOp BIRKernel NKIKernel NKIKLIRKernel DevicePrint GetRandState SetRandState Rand
    Iota TensorScalarAffineSelect RangeSelect GetSequenceBounds Dropout GetCurProcessingRankID DMATrigger
    DMADescriptor DMADescriptorCopy DMADescriptorCCE DMADescriptorTranspose DMADescriptorReplicate
    RegisterAlu RegisterMove TensorLoad TensorSave Terminator CompareAndBranch UnconditionalBranch
    BranchHint Return Exit Break Call SwitchQueueInstance ResetQueueInstance CoreBarrier Max MaxIndex
    MatchReplace MaxIndexAndMatchReplace Gather InlineASMBytes TensorCompletion MatmultMx QuantizeMx Rand2
    RandSetState RandGetState Rng ActivationReadAccumulator DveReadAccumulator Exponential
    NonzeroWithCount Loop DynamicForLoop DMABlock DoWhile TongaReduceMacroSymbolic""",
    """Shuffle CalcVarAddr MatmultSymbolic RangeSelectSymbolic ShuffleSymbolic StreamShuffleSymbolic
    TensorScalarSymbolic CalcVarAddrSymbolic IotaSymbolic TensorScalarAffineSelectSymbolic""",
)
ABSTRACT_OPCODES: frozenset[int] = frozenset(
    _known(OPCODES, text) for text in ("Generic", "MatmultBase", "DMA", "Collective", "DMADescriptor", "Terminator")
)
"""Codes of the base classes, which no module should hold as instructions."""

ENGINES = _numbered("engine", "who executes an instruction", "Unassigned Pool Activation PE DMA DVE SP ALL")

# ---- storage

DTYPES = _numbered(
    "dtype",
    "element type; `_x4` types pack four values into one element",
    """uint8 int8 float4_e2m1fn_x4 float8e3 float8e4 float8_e4m3fn float8_e8m0fnu float8e5 float8_e4m3fn_x4
    float8_e5m2_x4 uint16 int16 bfloat16 float16 uint32 int32 float32 float32r uint64 int64""",
    "bool float8_e4m3",
)
DTYPE_BYTES: tuple[int, ...] = (1, 1, 2, 1, 1, 1, 1, 1, 4, 4, 2, 2, 2, 2, 4, 4, 4, 4, 8, 8, 1, 1)
"""Bytes of one element, by dtype code."""

# The numbers are flags. Only DRAM, SB and PSUM can be placed.
MEMORY_TYPES = _listed(
    "memory_type",
    "memory that a location is in",
    "Unallocated Input Output DRAM SB PSUM RNGSTATE REG",
    (1, 2, 4, 8, 16, 32, 64, 128),
)
TENSOR_KINDS = _numbered(
    "tensor_kind",
    "what a set is to its function",
    """ExternalInput ExternalInputParameter Input ExternalOutput ExternalOutputParameter Output Const Internal
    Pointer InternalInterface""",
)
INPUT_KINDS: frozenset[int] = frozenset({0, 1, 2})
"""Codes of the tensor kinds that are inputs of a function."""
OUTPUT_KINDS: frozenset[int] = frozenset({3, 4, 5})
"""Codes of the tensor kinds that are outputs of a function."""

TENSOR_CLASSES = _numbered(
    "tensor_class",
    "class of a set's tensor",
    """Tensor SingleValueTensor NeuronTensor NeuronWeightTensor IdentityWeightTensor NeuronBlockTensor
    DRAM2DBlockTensor Neuron3DBlockTensor DRAM3DBlockTensor NeuronLocalTensor NeuronSBTensor
    NeuronPSUMTensor ImmutableParameter""",
    "LoopTensor",
)
ADDR_SPACES = _numbered("addr_space", "address space of a DRAM set", "Local Shared Debug")
STORAGE_KINDS = _spelled("storage_kind", "class of a storage object", "memory_location_set register memory_location")
ORIGINS = _numbered("origin", "who made an object", "Internal Penguin NKI")

# ---- kernels

KERNEL_SOURCES = _numbered("kernel_source", "form that an NKI kernel came in", "Beta1 Beta2 Beta3")
# Reports differ on which of `Kernel` and `Global` is number 1; files hold the name.
ROTATION_SCOPES = _numbered("rotation_scope", "scope of address rotation", "None Kernel Global")

# ---- operands, edges, branches

ROLES = _spelled("role", "list of an instruction that an operand stands in", "in indirection out")
# `symbolic_ap` and `symbolic_pwap` are two spellings of one class, hence one number.
OPERAND_KINDS = _listed(
    "operand_kind",
    "form of an operand",
    "physical_ap symbolic_ap symbolic_pwap register_ap imm_value symbolic_imm_value imm_array register_access",
    (1, 2, 2, 3, 6, 7, 8, 11),
)
ROLE_MEMBERS = ("ins", "indirection_ins", "outs")
"""Members of an instruction that operands stand in, by the code of their role."""
EDGE_KINDS = _numbered("edge_kind", "kind of a dependency", "Invalid Ordered Anti Output Flow")
RELATIONS = _spelled("relation", "list that a dependency stands in", "plain loop_carried unroll")
RELATION_MEMBERS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")
"""Members of an instruction that dependencies stand in, by the code of their relation."""
BRANCH_SLOTS = _spelled("branch_slot", "key that names a block to branch to", "target on_true on_false")
SEMAPHORE_SIDES = _spelled("semaphore_side", "what an instruction does with a semaphore", "wait update")
DIRECTIONS = _spelled("direction", "argument map that an entry stands in", "in out argument")
# The compiler reads `CCModKind` but writes it back as `ModuloKind`.
EXPRESSION_KINDS = _spelled(
    "expression_kind",
    "node of an affine expression in version 2 form",
    """AffExprKind AffIVKind ShardIDKind IntRuntimeValueKind SumKind MultKind FloorDivKind ModuloKind
    CCDivKind CCGetRankKind IndirectArgId CCModKind""",
)
COMPARE_OPS = _numbered(
    "compare_op",
    "test of a conditional branch, against an immediate or a register",
    """IS_LTIMM IS_LEIMM IS_EQIMM IS_NEIMM IS_GEIMM IS_GTIMM IS_LTREG IS_LEREG IS_EQREG IS_NEREG IS_GEREG
    IS_GTREG Unsupported""",
)

# ---- values of op-specific keys

ALU_OPS = _numbered(
    "alu_op",
    "arithmetic or logical operation",
    """bypass bitwise_not arith_shift_left arith_shift_right add subtract mult divide max min bitwise_and
    bitwise_or bitwise_xor logical_and logical_or logical_xor logical_shift_left logical_shift_right is_equal
    not_equal is_gt is_ge is_lt is_le average elemwise_mul pow mod rsqrt abs abs_max abs_min mod_int""",
)
ACTIVATION_FUNCTIONS = _numbered(
    "activation_function",
    "function of an activation",
    """Identity Square Relu Lrelu Prelu Sigmoid Tanh Exp Softplus Sqrt Rsqrt Ln Erf Sin Arctan Sign Gelu Mish
    Gelu_apprx_tanh Gelu_apprx_sigmoid Derivative_Gelu_apprx_sigmoid Derivative_Gelu Derivative_Erf Copy Abs
    Reciprocal Abs_reciprocal_sqrt Silu Derivative_silu Is_finite Unknown""",
    "Dsqrt Ln_prime MemsetZero",
)
ENGINE_ACCUMULATIONS = _numbered(
    "engine_accumulation",
    "what an instruction does with its engine's accumulator",
    "Idle Zero Accumulate ZeroAccumulate AddAccumulate LoadAccumulate",
)
# Without numbers: those reported for two of these do not agree with the order in which all are listed.
MATMULT_PERF_MODES = _spelled(
    "matmult_perf_mode",
    "throughput mode of a matrix multiplication",
    "None DoubleRow DoubleColumn DoublePixel DoubleRowSwInterleave",
)
AXIS_LISTS = _numbered("axis_list", "axes that a reduction folds", "X XY XYZ XYZW XYZWC C")
POOL_FUNCTIONS = _numbered("pool_function", "function of a pooling", "Max Avg")
MEMSET_MODES = _spelled("memset_mode", "what a memset fills with", "Const Random")
TSC_MODES = _numbered("tsc_mode", "what a cached tensor-scalar writes", "Reduce Cumulative TensorScan")
DGE_TYPES = _numbered("dge_type", "who generates a DMA's descriptors", "None SWDGE HWDGE Unassigned")
COPY_MODES = _numbered("copy_mode", "what a DMA copy does on its way", "Copy Transpose CCE Replicate", "Dynamic")
DMA_QOS_CLASSES = _spelled(
    "dma_qos_class",
    "priority of a DMA",
    "Unassigned Default P0 P1 P2 P3 P4 P5 P6 P7 P8 P9 P10 P11 P12 P13 P14",
)
INDIRECT_DIMS = _spelled("indirect_dim", "dimension that an index addresses", "W Z Y X")
TRANSPOSE_OPS = _numbered(
    "transpose_op",
    "order of the dimensions W, Z, Y, X after a DMA transpose",
    "None WZXY WXZY WYXZ ZWYX ZYWX ZYXW YXWZ YXZW YWZX XWZY XZYW XYZW XYWZ",
)
COLLECTIVE_KINDS = _numbered(
    "collective_kind",
    "collective operation",
    """SendRecv SendRecvCCE AllReduce ReduceScatter AllGather AllToAll AllToAllV Permute PermuteReduce
    PermuteImplicit PermuteReduceImplicit""",
)
COLLECTIVE_DIMENSIONS = _spelled("collective_dimension", "dimension of a collective", "Partition Free")
COLLECTIVE_TYPE_HINTS = _spelled("collective_type_hint", "parallelism of a collective", "TP FSDP None")
UNIQUE_TENSORS = _spelled("unique_tensors", "whether a collective's tensors are unique", "Unknown No Yes")
RANDOM_ALGORITHMS = _spelled("random_algorithm", "generator of random numbers", "LFSR PCG32 PHILOX_1")
RANDOM_DISTRIBUTIONS = _spelled("random_distribution", "distribution of random numbers", "Raw Uniform Normal Binomial")
SEMAPHORE_CLEAR_MODES = _spelled(
    "semaphore_clear_mode", "how a group of semaphores is reset", "SemaphoreZero SemaphoreZeroBitmask"
)
DEBUG_DEVICE_BUFFERS = _spelled("debug_device_buffer", "where a device print goes", "stdout stderr")
TENSOR_COMPLETION_MODES = _spelled("tensor_completion_mode", "purpose of a completion", "Default DebugTensorRead")
BRANCH_HINTS = _spelled("branch_hint", "expected outcome of a branch", "LikelyTaken LikelyNotTaken")
# Builds spell these in two ways; numbers are known for the lower-case spellings.
INST_SYNC_TYPES = _numbered(
    "inst_sync_type",
    "unit that raw instruction bytes synchronise with",
    "datapath sequencer dma",
    "DataPathType SequencerType DMAType",
)

# Bit of each opt-in pass in an `optin_passes` mask. Empty: that the mask has four bits is known, the names of
# their passes are not, so a list of names is kept as it stands (rule N10).
OPTIN_PASS_BITS: dict[str, int] = {}

# ---- codes that passes name

OP_NOOP = _known(OPCODES, "NoOp")
OP_GENERIC_COPY = _known(OPCODES, "GenericCopy")
OP_MATMULT = _known(OPCODES, "Matmult")
OP_MEMSET = _known(OPCODES, "Memset")
OP_LOAD = _known(OPCODES, "Load")
OP_SAVE = _known(OPCODES, "Save")
OP_TENSOR_COPY = _known(OPCODES, "TensorCopy")
OP_TENSOR_TENSOR = _known(OPCODES, "TensorTensor")
OP_DMA_COPY = _known(OPCODES, "DMACopy")
OP_SELECT = _known(OPCODES, "Select")
OP_COLLECTIVE_COMPUTE = _known(OPCODES, "CollectiveCompute")
OP_GENERIC_INDIRECT_LOAD = _known(OPCODES, "GenericIndirectLoad")
OP_GENERIC_INDIRECT_SAVE = _known(OPCODES, "GenericIndirectSave")
OP_BIR_KERNEL = _known(OPCODES, "BIRKernel")
OP_NKI_KERNEL = _known(OPCODES, "NKIKernel")
OP_DMA_TRIGGER = _known(OPCODES, "DMATrigger")
OP_TERMINATOR = _known(OPCODES, "Terminator")
OP_COMPARE_AND_BRANCH = _known(OPCODES, "CompareAndBranch")
OP_UNCONDITIONAL_BRANCH = _known(OPCODES, "UnconditionalBranch")
OP_BRANCH_HINT = _known(OPCODES, "BranchHint")
OP_RETURN = _known(OPCODES, "Return")
OP_EXIT = _known(OPCODES, "Exit")
OP_BREAK = _known(OPCODES, "Break")
OP_CALL = _known(OPCODES, "Call")
OP_LOOP = _known(OPCODES, "Loop")
OP_DYNAMIC_FOR_LOOP = _known(OPCODES, "DynamicForLoop")
OP_DMA_BLOCK = _known(OPCODES, "DMABlock")
OP_DO_WHILE = _known(OPCODES, "DoWhile")
OP_REGISTER_ALU = _known(OPCODES, "RegisterAlu")
OP_REGISTER_MOVE = _known(OPCODES, "RegisterMove")

TERMINATORS: tuple[int, ...] = (
    OP_TERMINATOR, OP_COMPARE_AND_BRANCH, OP_UNCONDITIONAL_BRANCH, OP_RETURN, OP_EXIT, OP_BREAK,
)  # fmt: skip
"""Opcodes that end a block."""

ENGINE_UNASSIGNED = _known(ENGINES, "Unassigned")
ENGINE_ALL = _known(ENGINES, "ALL")
MEM_DRAM = _known(MEMORY_TYPES, "DRAM")
MEM_SB = _known(MEMORY_TYPES, "SB")
MEM_PSUM = _known(MEMORY_TYPES, "PSUM")
KIND_CONST = _known(TENSOR_KINDS, "Const")
KIND_INTERNAL = _known(TENSOR_KINDS, "Internal")
KIND_POINTER = _known(TENSOR_KINDS, "Pointer")

# Lists of which every value has a name here, in their order.
ORIGIN_INTERNAL, ORIGIN_PENGUIN, ORIGIN_NKI = range(len(ORIGINS))
STORAGE_SET, STORAGE_REGISTER, STORAGE_LOCATION = range(len(STORAGE_KINDS))
ROLE_IN, ROLE_INDIRECTION, ROLE_OUT = range(len(ROLES))
OPERAND_PHYSICAL_AP, OPERAND_SYMBOLIC_AP, OPERAND_SYMBOLIC_PWAP, OPERAND_REGISTER_AP = range(4)
OPERAND_IMM_VALUE, OPERAND_SYMBOLIC_IMM_VALUE, OPERAND_IMM_ARRAY, OPERAND_REGISTER_ACCESS = range(4, len(OPERAND_KINDS))
EDGE_INVALID, EDGE_ORDERED, EDGE_ANTI, EDGE_OUTPUT, EDGE_FLOW = range(len(EDGE_KINDS))
RELATION_PLAIN, RELATION_LOOP_CARRIED, RELATION_UNROLL = range(len(RELATIONS))
SLOT_TARGET, SLOT_ON_TRUE, SLOT_ON_FALSE = range(len(BRANCH_SLOTS))
SIDE_WAIT, SIDE_UPDATE = range(len(SEMAPHORE_SIDES))
DIRECTION_IN, DIRECTION_OUT, DIRECTION_ARGUMENT = range(len(DIRECTIONS))

# ---- architectures

DYNAMIC_DMA_SCRATCH_BYTES = 16384
"""SBUF bytes per partition, from address 0, of the scratch for dynamic DMA (`DynamicDMAScratchLoc`)."""
EVAL_RESERVED_BYTES = 8
"""SBUF bytes per partition that `EvalAccelReservedLoc` takes by default, at the top (rule M3)."""
EVAL_RESERVED_ABOVE_LEVEL = 29
"""Architectures above this level have `EvalAccelReservedLoc` (rule M2)."""


PSUM_BANK_BYTES = 2048
"""Bytes of a PSUM bank in each partition, of every architecture."""


@dataclass(frozen=True, slots=True)
class Arch:
    """An architecture and its on-chip memories; bytes are per partition.

    Sizes and `partition_starts` are None where there is no hardware model.

    Parameters
    ----------
    name : str
        Spelling that the compiler writes.
    level : int
        The compiler's architecture level.
    generation : str
        `gen1` to `gen5`.
    aliases : tuple of str
        Other spellings that are read.
    sbuf_partitions, sbuf_bytes : int or None
        Partitions of the SBUF, and bytes of each.
    reserved_bytes : int or None
        SBUF bytes that are kept from tensors: the scratch for dynamic DMA at the bottom and, from `gen3` on,
        the evaluation reservation at the top.
    psum_banks, psum_bank_bytes, psum_partitions : int or None
        Banks of the PSUM, bytes of one bank, and partitions.
    partition_starts : tuple of int or None
        Partitions that an access may start at.
    """

    name: str
    level: int
    generation: str
    aliases: tuple[str, ...]
    sbuf_partitions: int | None
    sbuf_bytes: int | None
    reserved_bytes: int | None
    psum_banks: int | None
    psum_bank_bytes: int | None
    psum_partitions: int | None
    partition_starts: tuple[int, ...] | None


_STARTS = (0, 32, 64, 96)

ARCHES: tuple[Arch, ...] = (
    Arch("inferentia", 10, "gen1", ("tonga", "inf1"), 128, 0x18000, 0x4000, 4, 2048, 64, (0, 64)),
    Arch("sunda", 20, "gen2", ("gen2", "trainium", "trn1", "inf2"), 128, 0x30000, 0x4000, 8, 2048, 128, _STARTS),
    Arch("gen3", 30, "gen3", ("cayman", "trn2"), 128, 0x38000, 0x4008, 8, 2048, 128, _STARTS),
    Arch("core_v4", 40, "gen4", ("gen4", "mariana", "trn3"), 128, 0x40000, 0x4008, 8, 2048, 128, _STARTS),
    Arch("core_v5", 50, "gen5", ("trn4",), None, None, None, None, None, None, None),
)
"""Every architecture, lowest level first."""

_ARCH_BY_NAME = {name: entry for entry in ARCHES for name in (entry.name, *entry.aliases)}


def arch(name: str | None) -> Arch | None:
    """Architecture of a module's `arch` (rule M2).

    Parameters
    ----------
    name : str or None
        Its name or an alias, exact case; None when the module has none.

    Returns
    -------
    Arch or None
        None when the name is not known.

    Examples
    --------
    >>> arch("trn2").name, arch("trn2").sbuf_bytes
    ('gen3', 229376)
    """
    return None if name is None else _ARCH_BY_NAME.get(name)


# ---- op-specific keys

DefaultValue = bool | int | float | str | tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Key:
    """One op-specific key of an opcode.

    Parameters
    ----------
    name : str
        The key as it stands in a file.
    type : str
        Type of the value: a plain word, a vocabulary's name, `[T]` for a list, `[T,U]` for one of that
        length, `{...}` for an object, `any` where it is not known. `QAE` is an affine expression, `SerFloat`
        a float that may be spelled `inf`, `-inf` or `nan`.
    required : bool or None
        Whether the compiler's reader demands the key; None where that is not known.
    default : bool, int, float, str, tuple of int, or None
        What absence stands for, or for a required key what the compiler starts from; an enum's as spelled.
        None where absence means unset, or nothing is known.
    always_written : bool
        Whether the compiler writes the key even when it holds the default.
    expression_allowed : bool
        Whether an affine expression may stand for the value, or for parts of a list or object.
    """

    name: str
    type: str
    required: bool | None
    default: DefaultValue
    always_written: bool
    expression_allowed: bool


@cache
def _opcode_rows() -> dict[str, dict[str, str]]:
    """Rows of `opcodes.csv` by opcode."""
    # Imported here because all programs import this module and few ask for keys.
    import csv
    from importlib.resources import files

    text = files("arrowir").joinpath("opcodes.csv").read_text(encoding="utf-8")
    return {row["opcode"]: row for row in csv.DictReader(text.splitlines())}


def _parse_key(text: str) -> Key:
    """Read one `name:type`, then `!` (required), `?` (may be absent) or `*` (always written), `=default`."""
    import re

    match = re.fullmatch(r"(\w+):(\{[^{}]+\}|[^!?*={}]+)([!?*]?)(?:=(.+))?", text)
    if match is None:
        raise ValueError(f"`{text}` in opcodes.csv is no key; write `name:type`, a mark and `=default`")
    name, written_type, mark, default = match.groups()
    plain_type = re.sub(r"MA<([^<>]*)>", r"\1", written_type)
    return Key(
        name=name,
        type=plain_type,
        # What is always written may still be absent from files of other builds.
        required={"!": True, "?": False, "*": False}.get(mark),
        default=_parse_default(plain_type, default),
        always_written=mark == "*",
        expression_allowed=written_type != plain_type or "QAE" in written_type,
    )


def _parse_default(plain_type: str, text: str | None) -> DefaultValue:
    """Read a default as its type says; an enum's `None` stays a string."""
    if text is None or text == "absent":
        return None
    if plain_type == "bool":
        return {"true": True, "false": False}[text]
    if plain_type in ("float", "SerFloat"):
        return float(text)
    if plain_type.startswith("["):
        return tuple(int(item) for item in text.strip("[]").split(",") if item)
    return text if plain_type in VOCABULARIES else int(text)


@cache
def opcode_keys(opcode: str, *, older: bool = False) -> tuple[Key, ...]:
    """Op-specific keys of an opcode.

    Parameters
    ----------
    opcode : str
        Wire spelling.
    older : bool
        Give the keys of older builds. An opcode that only those have gives them anyway.

    Returns
    -------
    tuple of Key
        Empty for an opcode without keys, one that those builds do not have, and an unknown one.

    Examples
    --------
    >>> [(key.name, key.required, key.default) for key in opcode_keys("TensorTensor")]
    [('op', True, None), ('acc', False, 'Idle')]
    """
    row = _opcode_rows().get(opcode)
    if row is None:
        return ()
    # An empty cell: those builds do not have the opcode. `-`: they do, and it has no keys.
    cell = row["older_keys"] if older or not row["keys"] else row["keys"]
    return tuple(_parse_key(part.strip()) for part in cell.split(";")) if cell not in ("", "-") else ()


def family(opcode: str) -> str | None:
    """Group that an opcode belongs to.

    Parameters
    ----------
    opcode : str
        Wire spelling.

    Returns
    -------
    str or None
        None for an unknown opcode.

    Examples
    --------
    >>> family("DMACopy")
    'dma'
    """
    row = _opcode_rows().get(opcode)
    return None if row is None else row["family"]
