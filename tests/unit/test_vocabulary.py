"""Closed lists: spellings, codes, numbers, sizes, and the keys of every opcode."""

import csv
import doctest
import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from arrowir import vocabulary
from arrowir.vocabulary import (
    ABSTRACT_OPCODES,
    ARCHES,
    DTYPE_BYTES,
    DTYPES,
    DYNAMIC_DMA_SCRATCH_BYTES,
    EVAL_RESERVED_ABOVE_LEVEL,
    EVAL_RESERVED_BYTES,
    INPUT_KINDS,
    OPCODES,
    OUTPUT_KINDS,
    TENSOR_KINDS,
    VOCABULARIES,
    Arch,
    Key,
    Vocabulary,
    arch,
    family,
    opcode_keys,
)

CSV = Path(vocabulary.__file__).with_name("opcodes.csv")

# Written out apart from the code: spelling and number of every value, `-` where no number is known.
FACTS = {
    "engine": "Unassigned 0 Pool 1 Activation 2 PE 3 DMA 4 DVE 5 SP 6 ALL 7",
    "dtype": """
        uint8 0 int8 1 float4_e2m1fn_x4 2 float8e3 3 float8e4 4 float8_e4m3fn 5 float8_e8m0fnu 6 float8e5 7
        float8_e4m3fn_x4 8 float8_e5m2_x4 9 uint16 10 int16 11 bfloat16 12 float16 13 uint32 14 int32 15
        float32 16 float32r 17 uint64 18 int64 19 bool - float8_e4m3 -""",
    "memory_type": "Unallocated 1 Input 2 Output 4 DRAM 8 SB 16 PSUM 32 RNGSTATE 64 REG 128",
    "tensor_kind": """
        ExternalInput 0 ExternalInputParameter 1 Input 2 ExternalOutput 3 ExternalOutputParameter 4 Output 5
        Const 6 Internal 7 Pointer 8 InternalInterface 9""",
    "tensor_class": """
        Tensor 0 SingleValueTensor 1 NeuronTensor 2 NeuronWeightTensor 3 IdentityWeightTensor 4
        NeuronBlockTensor 5 DRAM2DBlockTensor 6 Neuron3DBlockTensor 7 DRAM3DBlockTensor 8 NeuronLocalTensor 9
        NeuronSBTensor 10 NeuronPSUMTensor 11 ImmutableParameter 12 LoopTensor -""",
    "addr_space": "Local 0 Shared 1 Debug 2",
    "storage_kind": "memory_location_set - register - memory_location -",
    "origin": "Internal 0 Penguin 1 NKI 2",
    "kernel_source": "Beta1 0 Beta2 1 Beta3 2",
    "rotation_scope": "None 0 Kernel 1 Global 2",
    "role": "in - indirection - out -",
    "operand_kind": """
        physical_ap 1 symbolic_ap 2 symbolic_pwap 2 register_ap 3 imm_value 6 symbolic_imm_value 7 imm_array 8
        register_access 11""",
    "edge_kind": "Invalid 0 Ordered 1 Anti 2 Output 3 Flow 4",
    "relation": "plain - loop_carried - unroll -",
    "branch_slot": "target - on_true - on_false -",
    "semaphore_side": "wait - update -",
    "direction": "in - out - argument -",
    "expression_kind": """
        AffExprKind - AffIVKind - ShardIDKind - IntRuntimeValueKind - SumKind - MultKind - FloorDivKind -
        ModuloKind - CCDivKind - CCGetRankKind - IndirectArgId - CCModKind -""",
    "compare_op": """
        IS_LTIMM 0 IS_LEIMM 1 IS_EQIMM 2 IS_NEIMM 3 IS_GEIMM 4 IS_GTIMM 5 IS_LTREG 6 IS_LEREG 7 IS_EQREG 8
        IS_NEREG 9 IS_GEREG 10 IS_GTREG 11 Unsupported 12""",
    "alu_op": """
        bypass 0 bitwise_not 1 arith_shift_left 2 arith_shift_right 3 add 4 subtract 5 mult 6 divide 7 max 8
        min 9 bitwise_and 10 bitwise_or 11 bitwise_xor 12 logical_and 13 logical_or 14 logical_xor 15
        logical_shift_left 16 logical_shift_right 17 is_equal 18 not_equal 19 is_gt 20 is_ge 21 is_lt 22
        is_le 23 average 24 elemwise_mul 25 pow 26 mod 27 rsqrt 28 abs 29 abs_max 30 abs_min 31 mod_int 32""",
    "activation_function": """
        Identity 0 Square 1 Relu 2 Lrelu 3 Prelu 4 Sigmoid 5 Tanh 6 Exp 7 Softplus 8 Sqrt 9 Rsqrt 10 Ln 11
        Erf 12 Sin 13 Arctan 14 Sign 15 Gelu 16 Mish 17 Gelu_apprx_tanh 18 Gelu_apprx_sigmoid 19
        Derivative_Gelu_apprx_sigmoid 20 Derivative_Gelu 21 Derivative_Erf 22 Copy 23 Abs 24 Reciprocal 25
        Abs_reciprocal_sqrt 26 Silu 27 Derivative_silu 28 Is_finite 29 Unknown 30 Dsqrt - Ln_prime -
        MemsetZero -""",
    "engine_accumulation": """
        Idle 0 Zero 1 Accumulate 2 ZeroAccumulate 3 AddAccumulate 4 LoadAccumulate 5""",
    "matmult_perf_mode": "None - DoubleRow - DoubleColumn - DoublePixel - DoubleRowSwInterleave -",
    "axis_list": "X 0 XY 1 XYZ 2 XYZW 3 XYZWC 4 C 5",
    "pool_function": "Max 0 Avg 1",
    "memset_mode": "Const - Random -",
    "tsc_mode": "Reduce 0 Cumulative 1 TensorScan 2",
    "dge_type": "None 0 SWDGE 1 HWDGE 2 Unassigned 3",
    "copy_mode": "Copy 0 Transpose 1 CCE 2 Replicate 3 Dynamic -",
    "dma_qos_class": """
        Unassigned - Default - P0 - P1 - P2 - P3 - P4 - P5 - P6 - P7 - P8 - P9 - P10 - P11 - P12 - P13 -
        P14 -""",
    "indirect_dim": "W - Z - Y - X -",
    "transpose_op": """
        None 0 WZXY 1 WXZY 2 WYXZ 3 ZWYX 4 ZYWX 5 ZYXW 6 YXWZ 7 YXZW 8 YWZX 9 XWZY 10 XZYW 11 XYZW 12
        XYWZ 13""",
    "collective_kind": """
        SendRecv 0 SendRecvCCE 1 AllReduce 2 ReduceScatter 3 AllGather 4 AllToAll 5 AllToAllV 6 Permute 7
        PermuteReduce 8 PermuteImplicit 9 PermuteReduceImplicit 10""",
    "collective_dimension": "Partition - Free -",
    "collective_type_hint": "TP - FSDP - None -",
    "unique_tensors": "Unknown - No - Yes -",
    "random_algorithm": "LFSR - PCG32 - PHILOX_1 -",
    "random_distribution": "Raw - Uniform - Normal - Binomial -",
    "semaphore_clear_mode": "SemaphoreZero - SemaphoreZeroBitmask -",
    "debug_device_buffer": "stdout - stderr -",
    "tensor_completion_mode": "Default - DebugTensorRead -",
    "branch_hint": "LikelyTaken - LikelyNotTaken -",
    "inst_sync_type": "datapath 0 sequencer 1 dma 2 DataPathType - SequencerType - DMAType -",
}

DTYPE_SIZES = {
    1: "uint8 int8 float8e3 float8e4 float8_e4m3fn float8_e8m0fnu float8e5 bool float8_e4m3",
    2: "float4_e2m1fn_x4 uint16 int16 bfloat16 float16",
    4: "float8_e4m3fn_x4 float8_e5m2_x4 uint32 int32 float32 float32r",
    8: "uint64 int64",
}

# Some numbers apart from the CSV, which pins the order of all.
OPCODE_NUMBERS = {
    "Generic": 0,
    "MatmultBase": 7,
    "NoOp": 12,
    "DMA": 18,
    "TensorCopy": 23,
    "TensorTensor": 31,
    "DMACopy": 32,
    "GenericIndirectLoad": 42,
    "GenericIndirectSave": 44,
    "Collective": 47,
    "CollectiveCompute": 48,
    "BIRKernel": 54,
    "NKIKernel": 55,
    "NKIKLIRKernel": 56,
    "DMADescriptor": 68,
    "Terminator": 77,
    "CompareAndBranch": 78,
    "UnconditionalBranch": 79,
    "BranchHint": 80,
    "Return": 81,
    "Exit": 82,
    "Break": 83,
    "Call": 84,
    "MatmultMx": 95,
    "Loop": 105,
    "DynamicForLoop": 106,
    "DMABlock": 107,
    "DoWhile": 108,
    "TongaReduceMacroSymbolic": 109,
}

# Words of the keys' types that name no vocabulary.
PLAIN_WORDS = """
    any bool bool-or-int float i32 int string string-or-[u8] u16 u32 u64 u8 uint SerFloat QAE QAE-or-object
    APPair Block FunctionArgumentMap LoopAxis OpDebugInfo SyncInfo name axis-name block-name dma-block-name
    function-name inst-name queue-name
"""
PLAIN_TYPES = frozenset(PLAIN_WORDS.split())

# Vocabularies of columns and expressions, which no op-specific key uses.
NOT_OF_KEYS = """
    opcode dtype memory_type tensor_kind tensor_class addr_space storage_kind origin role operand_kind
    edge_kind relation branch_slot semaphore_side direction expression_kind
"""
FAMILIES = "control copy act matmul tensor collective sync dma indirect bn kernel rng misc older"

BY_NAME = pytest.mark.parametrize("listed", VOCABULARIES.values(), ids=VOCABULARIES)


def csv_rows() -> list[dict[str, str]]:
    with CSV.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def type_words(type_text: str) -> list[str]:
    """Split a type into the words it is made of; the member names of an object are none."""
    if type_text in PLAIN_TYPES:
        return [type_text]
    if type_text.startswith("{"):
        members = type_text.strip("{}").split(",")
        return [member.partition(":")[2].partition("=")[0] for member in members if ":" in member]
    return re.findall(r"[\w-]+", type_text)


def all_keys() -> list[tuple[str, Key]]:
    return [
        (opcode, key)
        for opcode in OPCODES.values
        for older in (False, True)
        for key in opcode_keys(opcode, older=older)
    ]


@BY_NAME
def test_codes_are_positions(listed: Vocabulary) -> None:
    assert [listed.code(text) for text in listed.values] == list(range(len(listed)))
    assert VOCABULARIES[listed.name] is listed
    assert re.fullmatch(r"[a-z_]+", listed.name)
    assert listed.meaning


@BY_NAME
def test_an_unknown_value_is_minus_one(listed: Vocabulary) -> None:
    assert listed.code("") == -1
    assert listed.code(listed.values[0] + " ") == -1
    assert listed.code(listed.values[0].swapcase()) == -1
    assert listed.code_of_number(-1) == -1
    assert listed.code_of_number(1 << 70) == -1


@BY_NAME
def test_values_are_unique_and_so_are_numbers(listed: Vocabulary) -> None:
    assert len(set(listed.values)) == len(listed)
    numbers = [number for number in listed.numbers if number is not None]
    # Two spellings of one operand class are the only values that share a number.
    assert len(numbers) - len(set(numbers)) == (1 if listed.name == "operand_kind" else 0)


def test_every_vocabulary_has_its_facts_written_out() -> None:
    assert set(VOCABULARIES) == {*FACTS, "opcode"}


@pytest.mark.parametrize("name", FACTS)
def test_spellings_and_numbers(name: str) -> None:
    words = FACTS[name].split()
    expected = [
        (text, None if number == "-" else int(number)) for text, number in zip(words[::2], words[1::2], strict=True)
    ]
    listed = VOCABULARIES[name]
    assert list(zip(listed.values, listed.numbers, strict=True)) == expected
    for text, number in expected:
        if number is not None and (name, text) != ("operand_kind", "symbolic_pwap"):
            assert listed.values[listed.code_of_number(number)] == text


def test_spellings_that_share_a_number_read_as_the_first() -> None:
    kinds = VOCABULARIES["operand_kind"]
    assert kinds.values[kinds.code_of_number(2)] == "symbolic_ap"


@pytest.mark.parametrize("flag", [True, False])
def test_a_boolean_is_no_number(flag: bool) -> None:
    assert VOCABULARIES["edge_kind"].code_of_number(flag) == -1


def test_a_vocabulary_refuses_repetition_and_missing_numbers() -> None:
    with pytest.raises(ValueError, match="`twice` repeats a value or lacks a number"):
        Vocabulary("twice", ("a", "a"), (0, 1), "")
    with pytest.raises(ValueError, match="`short` repeats a value or lacks a number"):
        Vocabulary("short", ("a", "b"), (0,), "")


def test_opcode_numbers() -> None:
    assert len(OPCODES) == 120
    assert OPCODES.numbers == (*range(110), *[None] * 10)
    assert {text: OPCODES.code(text) for text in OPCODE_NUMBERS} == OPCODE_NUMBERS
    assert OPCODES.values[110:] == (
        "Shuffle",
        "CalcVarAddr",
        "MatmultSymbolic",
        "RangeSelectSymbolic",
        "ShuffleSymbolic",
        "StreamShuffleSymbolic",
        "TensorScalarSymbolic",
        "CalcVarAddrSymbolic",
        "IotaSymbolic",
        "TensorScalarAffineSelectSymbolic",
    )


def test_dtype_sizes() -> None:
    expected = {text: size for size, texts in DTYPE_SIZES.items() for text in texts.split()}
    assert dict(zip(DTYPES.values, DTYPE_BYTES, strict=True)) == expected


def test_parameter_kinds() -> None:
    assert {TENSOR_KINDS.values[code] for code in INPUT_KINDS} == {
        "ExternalInput",
        "ExternalInputParameter",
        "Input",
    }
    assert {TENSOR_KINDS.values[code] for code in OUTPUT_KINDS} == {
        "ExternalOutput",
        "ExternalOutputParameter",
        "Output",
    }


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("OP_", "opcode"),
        ("ENGINE_", "engine"),
        ("MEM_", "memory_type"),
        ("KIND_", "tensor_kind"),
        ("ORIGIN_", "origin"),
        ("ROLE_", "role"),
        ("OPERAND_", "operand_kind"),
        ("EDGE_", "edge_kind"),
        ("RELATION_", "relation"),
        ("SLOT_", "branch_slot"),
        ("SIDE_", "semaphore_side"),
        ("DIRECTION_", "direction"),
    ],
)
def test_named_codes(prefix: str, name: str) -> None:
    named = {key: code for key, code in vars(vocabulary).items() if key.startswith(prefix)}
    codes = {key.removeprefix(prefix): code for key, code in named.items() if type(code) is int}
    assert codes
    for key, code in codes.items():
        assert VOCABULARIES[name].values[code].replace("_", "").upper() == key.replace("_", "")


def test_named_storage_codes() -> None:
    codes = (vocabulary.STORAGE_SET, vocabulary.STORAGE_REGISTER, vocabulary.STORAGE_LOCATION)
    assert [VOCABULARIES["storage_kind"].values[code] for code in codes] == [
        "memory_location_set",
        "register",
        "memory_location",
    ]


def test_a_misspelt_constant_is_refused() -> None:
    with pytest.raises(ValueError, match="`Lop` is not in vocabulary `opcode`"):
        vocabulary._known(OPCODES, "Lop")


# ---- architectures


@pytest.mark.parametrize(
    ("level", "generation", "names"),
    [
        (10, "gen1", "inferentia tonga inf1"),
        (20, "gen2", "sunda gen2 trainium trn1 inf2"),
        (30, "gen3", "gen3 cayman trn2"),
        (40, "gen4", "core_v4 gen4 mariana trn3"),
        (50, "gen5", "core_v5 trn4"),
    ],
)
def test_m2_levels_and_aliases(level: int, generation: str, names: str) -> None:
    found = [arch(name) for name in names.split()]
    assert [entry and (entry.name, entry.level, entry.generation) for entry in found] == [
        (names.split()[0], level, generation)
    ] * len(found)
    assert found[0] is not None
    assert (found[0].name, *found[0].aliases) == tuple(names.split())


@pytest.mark.parametrize("name", [None, "", "Gen3", "TRN2", "gen3 ", "gen1", "gen5", "trainium2"])
def test_m2_unknown_arch(name: str | None) -> None:
    assert arch(name) is None


def test_arch_sizes() -> None:
    quadrants = (0, 32, 64, 96)
    sizes = {
        entry.name: (
            *(entry.sbuf_partitions, entry.sbuf_bytes, entry.reserved_bytes),
            *(entry.psum_banks, entry.psum_bank_bytes, entry.psum_partitions, entry.partition_starts),
        )
        for entry in ARCHES
    }
    assert sizes == {
        "inferentia": (128, 96 * 1024, 16384, 4, 2048, 64, (0, 64)),
        "sunda": (128, 192 * 1024, 16384, 8, 2048, 128, quadrants),
        "gen3": (128, 224 * 1024, 16392, 8, 2048, 128, quadrants),
        "core_v4": (128, 256 * 1024, 16392, 8, 2048, 128, quadrants),
        "core_v5": (None,) * 7,
    }


def test_reservation_constants() -> None:
    assert (DYNAMIC_DMA_SCRATCH_BYTES, EVAL_RESERVED_BYTES, EVAL_RESERVED_ABOVE_LEVEL) == (16384, 8, 29)


@pytest.mark.parametrize(
    ("name", "usable"), [("inferentia", 81920), ("sunda", 180224), ("gen3", 212984), ("core_v4", 245752)]
)
def test_r05_reserved_regions_are_disjoint_and_fit(name: str, usable: int) -> None:
    """Case R05: on every generation what is reserved and what is usable lie apart, inside the SBUF."""
    entry = arch(name)
    assert isinstance(entry, Arch)
    assert entry.sbuf_bytes is not None
    assert entry.reserved_bytes is not None
    # Usable bytes start behind the scratch: their own base, not address 0.
    start = DYNAMIC_DMA_SCRATCH_BYTES
    regions = [(0, DYNAMIC_DMA_SCRATCH_BYTES), (start, start + usable)]
    if entry.level > EVAL_RESERVED_ABOVE_LEVEL:
        regions.append((entry.sbuf_bytes - EVAL_RESERVED_BYTES, entry.sbuf_bytes))
    assert all(end <= following for (_, end), (following, _) in pairwise(regions))
    assert regions[-1][1] <= entry.sbuf_bytes
    assert entry.reserved_bytes + usable <= entry.sbuf_bytes
    assert entry.reserved_bytes == sum(end - begin for begin, end in regions) - usable


# ---- op-specific keys


def test_csv_agrees_with_the_opcodes() -> None:
    rows = csv_rows()
    assert list(rows[0]) == ["opcode", "number", "family", "abstract", "keys", "older_keys", "note"]
    assert [row["opcode"] for row in rows] == list(OPCODES.values)
    assert [int(row["number"]) if row["number"] else None for row in rows] == list(OPCODES.numbers)
    assert {row["abstract"] for row in rows} == {"0", "1"}
    abstract = {row["opcode"] for row in rows if row["abstract"] == "1"}
    assert abstract == {"Generic", "MatmultBase", "DMA", "Collective", "DMADescriptor", "Terminator"}
    assert abstract == {OPCODES.values[code] for code in ABSTRACT_OPCODES}


def test_every_opcode_has_keys_in_some_build() -> None:
    for row in csv_rows():
        assert row["keys"] or row["older_keys"], row["opcode"]
        # Only opcodes without a number are older builds' alone.
        assert (row["keys"] == "") == (row["number"] == ""), row["opcode"]


def test_families() -> None:
    assert {row["family"] for row in csv_rows()} == set(FAMILIES.split())
    assert [family(opcode) for opcode in ("Loop", "NKIKernel", "Load", "Shuffle", "Nonsense")] == [
        *("control", "kernel", "dma", "older", None)
    ]


def test_every_type_is_a_vocabulary_or_a_plain_word() -> None:
    assert not PLAIN_TYPES & set(VOCABULARIES)
    words = {word for _, key in all_keys() for word in type_words(key.type)}
    assert words <= PLAIN_TYPES | set(VOCABULARIES), words - PLAIN_TYPES - set(VOCABULARIES)
    # Both kinds are used up: a vocabulary for values of keys that no key uses would be a slip.
    assert words >= PLAIN_TYPES
    of_keys = set(VOCABULARIES) - set(NOT_OF_KEYS.split())
    assert words >= of_keys, of_keys - words


def test_every_enum_default_is_in_its_vocabulary() -> None:
    checked = 0
    for opcode, key in all_keys():
        if key.type in VOCABULARIES and key.default is not None:
            assert isinstance(key.default, str)
            assert VOCABULARIES[key.type].code(key.default) >= 0, (opcode, key.name)
            checked += 1
    assert checked > 50


def test_keys_of_an_opcode_are_unique() -> None:
    for opcode in OPCODES.values:
        for older in (False, True):
            names = [key.name for key in opcode_keys(opcode, older=older)]
            assert len(set(names)) == len(names), opcode


def test_keys_as_the_notation_says() -> None:
    assert opcode_keys("Iota") == (
        Key("base", "int", True, None, False, True),
        Key("pattern", "[APPair]", True, None, False, False),
        Key("channel_multiplier", "int", False, 0, False, True),
    )
    assert opcode_keys("BNStats") == (Key("apply_transpose", "bool", True, False, False, True),)
    assert opcode_keys("DMACopy")[3] == Key("mode", "copy_mode", None, "Copy", False, False)
    by_name = {key.name: key for key in opcode_keys("Matmult")}
    assert by_name["tile_size"] == Key("tile_size", "[int,int]", False, (-1, -1), True, True)
    assert by_name["perf_mode"] == Key("perf_mode", "matmult_perf_mode", False, "None", True, False)
    assert by_name["accumulation_flag"] == Key("accumulation_flag", "u8", False, 0, True, True)
    assert len(by_name) == 13
    assert [key.name for key in opcode_keys("MatmultMx")] == list(by_name)
    assert [key.name for key in opcode_keys("MatmultSparse")] == [*by_name, "compress_ratio"]


def test_defaults_have_the_type_of_their_key() -> None:
    fill = next(key for key in opcode_keys("TensorScalarAffineSelect") if key.name == "fill_value")
    assert fill == Key("fill_value", "SerFloat", False, 0.0, False, False)
    assert type(fill.default) is float
    constants = next(key for key in opcode_keys("DMACopy") if key.name == "constants")
    assert constants.default == ()
    assert all(type(key.default) is bool for _, key in all_keys() if key.type == "bool" and key.default is not None)


def test_keys_that_hold_expressions() -> None:
    assert opcode_keys("DoWhile")[0] == Key("cond", "QAE", True, None, False, True)
    assert opcode_keys("StreamShuffle") == (Key("mask", "[uint]", True, None, False, True),)
    assert opcode_keys("DynamicForLoop")[0].expression_allowed
    assert next(key for key in opcode_keys("CollectiveCompute") if key.name == "cc_channel").expression_allowed
    assert not any(key.expression_allowed for key in opcode_keys("NKIKernel"))


def test_keys_of_older_builds() -> None:
    # An opcode that only older builds have gives their keys.
    assert opcode_keys("Shuffle") == (Key("indices", "[uint]", None, None, False, False),)
    assert opcode_keys("Shuffle") == opcode_keys("Shuffle", older=True)
    assert [key.name for key in opcode_keys("NKIKernel", older=True)] == [
        "func",
        "sb_buf_shape",
        "psum_buf_shape",
    ]
    assert all(key.required for key in opcode_keys("NKIKernel", older=True))
    assert opcode_keys("Matmult", older=True)[0] == Key("start_tensor_calc", "bool", True, None, False, False)
    # Known to current builds alone; known to both but without keys in the older; without keys in both.
    assert opcode_keys("QuantizeMx", older=True) == ()
    assert opcode_keys("Drain", older=True) == ()
    assert opcode_keys("Drain") != ()
    assert opcode_keys("NoOp") == opcode_keys("NoOp", older=True) == ()


def test_an_unknown_opcode_has_no_keys() -> None:
    assert opcode_keys("Nonsense") == ()
    assert opcode_keys("loop") == ()


@pytest.mark.parametrize("text", ["", "op", "op:", ":alu_op", "op:alu_op!!", "op alu_op", "op:{}!"])
def test_a_malformed_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"`{text}` in opcodes.csv is no key")):
        vocabulary._parse_key(text)


# ---- the module


def test_import_reads_nothing_and_needs_the_standard_library_only() -> None:
    program = """
import json, sys
import arrowir
before = set(sys.modules)
import arrowir.vocabulary as v
print(json.dumps([sorted(set(sys.modules) - before), v._opcode_rows.cache_info().currsize]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=CSV.parents[1]
    )
    imported, rows_read = json.loads(done.stdout)
    assert "csv" not in imported
    assert rows_read == 0
    roots = {module.partition(".")[0] for module in imported} - {"arrowir"}
    assert roots <= sys.stdlib_module_names


def test_examples_in_the_documentation() -> None:
    results = doctest.testmod(vocabulary)
    assert results.attempted >= 6
    assert results.failed == 0
