"""Keys and members of any type: nothing but a `SimulationError` comes of them, and it names the instruction."""

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import pytest

import arrowir as air
from arrowir import simulate
from arrowir.diagnostics import FormatError, SimulationError
from arrowir.ir import IR
from arrowir.simulate.readings import READINGS
from arrowir.simulate.registry import declared_keys, handlers
from tests.simulated import Bench

Path: TypeAlias = tuple[str | int, ...]

f32, i32, u32 = np.float32, np.int32, np.uint32
FULL = np.arange(1, 33, dtype=f32).reshape(4, 8)
COLUMN = np.arange(4, dtype=f32).reshape(4, 1)
WIDE = np.arange(1024, dtype=f32).reshape(32, 32)
SCALES = np.full((32, 8), 127, np.uint8)
EIGHT = np.ones((32, 32), ml_dtypes.float8_e4m3fn)
ADD = {"op0": "add", "const0": 1.0, "reverse0": False, "op1": "mult", "const1": 2.0, "reverse1": False}
TWO = {"op0": "add", "reverse0": False, "op1": "mult", "reverse1": False}
AFFINE = {"base": 0, "pattern": [[1, 8]], "channel_multiplier": 8}
GROUPS = {"replica_groups": [[0]], "op": "add"}

WRONG: tuple[Any, ...] = (
    *("word", "", "nan", "@0", -1, 0, 7, 2.5, -1e300, 10**30, -(2**63), 2**63, True, False, None),
    *([], [1], ["word"], [[1]], [[1, 2]], [None], [[]], [{}], [[2.5, 4]], [["a", "b"]], [[10**30, 1]], [10**30] * 32),
    *({}, {"a": 1}, {"kind": 3}, {"kind": "word"}, {"kind": "AffExprKind"}, {"kind": "AffExprKind", "terms": 3}),
    *({"kind": "AffExprKind", "terms": [3]}, {"kind": "AffExprKind", "terms": [], "c": "x"}),
    *({"kind": "AffExprKind", "terms": [{"idx": {"kind": "ShardIDKind"}, "coeff": [1]}]},),
    *({"kind": "AffExprKind", "terms": [{"idx": 3}]}, {"kind": "AffExprKind", "terms": [], "c": 10**30}),
    *({"kind": "SumKind", "terms": {"a": 1}}, {"kind": "SumKind", "terms": "abc"}, {"kind": "MultKind", "var": 1}),
    *({"kind": "FloorDivKind", "numer": [], "denom": 0}, {"kind": "ModuloKind", "numer": 4, "denom": "x"}),
    *({"kind": "AffIVKind", "axis": 3}, {"kind": "AffIVKind", "axis": "nowhere"}, {"kind": "AffIVKind"}),
    *({"kind": "IntRuntimeValueKind", "regref": None}, {"kind": "IntRuntimeValueKind", "regref": {}}),
    *({"terms": [{"AxisLabel": 1}]}, {"terms": [2]}, {"terms": [], "op": "Div"}, {"terms": [], "op": [], "c": 1}),
    *({"terms": {}}, {"kind": "IndirectArgId", "arg_id": "x"}, {"kind": "IndirectArgId"}, {"step": 1, "num": "x"}),
)
"""What a key may hold in a file that somebody made; few of these are right anywhere."""


Out = tuple[tuple[int, ...], str]
ONE: Out = ((4, 8), "float32")
NARROW: Out = ((4, 1), "float32")
IN_PSUM: Out = ((8, 8), "float32")

PLAIN: dict[str, tuple[list[Any], list[Out], dict[str, Any]]] = {
    **dict.fromkeys(
        ("Load", "Save", "TensorCopy", "GenericCopy", "AbstractCopy", "DMADescriptorCopy"), ([FULL], [ONE], {})
    ),
    **dict.fromkeys(("DMADescriptorReplicate", "Reciprocal"), ([FULL], [ONE], {})),
    "Activation": ([FULL], [ONE], {"func": "Exp", "scale": 1.0, "alpha": 1.0, "acc": "ZeroAccumulate"}),
    "Exponential": ([FULL, COLUMN], [ONE], {"reduce_cmd": "Idle"}),
    "CollectiveCompute": ([FULL], [ONE], {"kind": "AllReduce", **GROUPS}),
    "GetGlobalRankId": ([], [((1, 1), "int32")], {"world_size": 1}),
    "GetCurProcessingRankID": ([], [((1, 1), "int32")], {"iter_id": 0, "channel_id": 0, **GROUPS}),
    "Memset": ([], [ONE], {"mode": "Const", "constant": 3}),
    "DMACopy": ([FULL], [ONE], {"mode": "Copy"}),
    "DMADescriptorTranspose": ([FULL], [ONE], {"transpose_op": "None"}),
    "DMADescriptorCCE": ([FULL, FULL + 1], [ONE], {"op": "add", "constants": [1.0, 2.0]}),
    "TensorTensor": ([FULL, FULL], [ONE], {"op": "add", "acc": "ZeroAccumulate"}),
    "TensorScalar": ([FULL], [ONE], ADD),
    "Gather": ([FULL, np.ones((4, 2), u32)], [((4, 2), "float32")], {}),
    "IndirectCopy": ([FULL, np.ones((4, 2), u32)], [((4, 2), "float32")], {"num_valid_indices": 2}),
    **dict.fromkeys(
        ("TensorCopyDynamicSrc", "TensorCopyDynamicDst"), ([FULL, np.zeros((1, 1), i32)], [ONE], {"scale": 1})
    ),
    "Max": ([FULL], [ONE], {}),
    "MaxIndex": ([FULL, FULL], [((4, 8), "uint32")], {}),
    "MatchReplace": ([FULL, FULL[:, :2]], [ONE], {"imm_value": 0.0}),
    "MaxIndexAndMatchReplace": ([FULL, FULL[:, :2]], [ONE, ((4, 2), "uint32")], {"imm_value": 0.0}),
    "MatmultMx": ([EIGHT, EIGHT, SCALES, SCALES], [IN_PSUM], {"accumulation_flag": 1}),
    "QuantizeMx": ([WIDE], [((32, 32), "float8_e4m3fn"), ((32, 8), "uint8")], {}),
    "Matmult": ([FULL, FULL], [IN_PSUM], {"accumulation_flag": 1}),
    "BNStats": ([FULL], [((4, 6), "float32")], {"apply_transpose": False}),
    "BNStatsAggregate": ([FULL[:, :6]], [((4, 2), "float32")], {}),
    "BNGradients": ([FULL, FULL, FULL[:, :2]], [((4, 3), "float32")], {}),
    **dict.fromkeys(("BNBackprop", "BNBackprop2"), ([FULL, FULL, FULL[:, :4]], [ONE], {"total_elements": 8.0})),
    "DevicePrint": ([FULL], [], {"prefix": "x", "output_buffer": "stdout"}),
    "TensorReduce": ([FULL], [NARROW], {"op": "add", "axis": "X", "negate": True}),
    "Pool": ([FULL], [NARROW], {"func": "Max"}),
    "TensorScalarPtr": ([FULL, COLUMN, COLUMN], [ONE], {**TWO, "acc": "ZeroAccumulate"}),
    "TensorScalarCache": ([FULL, 1.0], [ONE], {**TWO, "op0": "bypass", "mode": "Cumulative", "acc": "ZeroAccumulate"}),
    "Select": ([(FULL > 3).astype(u32), FULL, FULL], [ONE], {}),
    "CopyPredicated": (
        [(FULL > 0).astype(u32), FULL, 1.0],
        [ONE],
        {"reduce_op": "max", "accumulator_cmd": "ZeroAccumulate"},
    ),
    "Iota": ([], [((4, 8), "int32")], AFFINE),
    "TensorScalarAffineSelect": ([FULL], [ONE], {**AFFINE, "compare_op": "is_gt", "fill_value": 0.0}),
    "RangeSelect": (
        [FULL, COLUMN, COLUMN],
        [ONE],
        {"base": 0, "compare_op0": "is_ge", "compare_op1": "is_lt", "fill_value": 0.0, "reduce_cmd": "ZeroAccumulate"},
    ),
    "StreamShuffle": ([WIDE], [((32, 32), "float32")], {"mask": list(range(32))}),
    "StreamTranspose": ([WIDE], [((32, 32), "float32")], {}),
    "ReadVarAddr": ([FULL], [((1, 1), "int64")], {}),
    "IndirectLoad": ([FULL, np.zeros((4, 1), i32)], [((4, 2), "float32")], {}),
    "IndirectSave": ([FULL[:, :2], np.zeros((4, 1), i32)], [ONE], {}),
    "IndirectSaveAccumulate": (
        [FULL[:, :2], np.zeros((4, 1), i32)],
        [ONE],
        {"num_indices": 4, "entry_step_elements": 2, "op": "add"},
    ),
    "GenericIndirectLoad": ([FULL, np.zeros((4, 1), i32)], [((4, 8), "float32")], {"indirect_dims": ["W"]}),
    "GenericIndirectSave": ([FULL, np.zeros((4, 1), i32)], [ONE], {"indirect_dims": ["W"], "op": "add"}),
    "BIRKernel": ([FULL], [ONE], {"kernel_name": "test_same", "srcs_shape": [[8, 4]], "sb_buf_shape": [0, 0]}),
    "CustomOp": ([FULL], [ONE], {"opFunctionName": "test_same", "srcsShape": [[8, 4]]}),
    "InlineASMBytes": ([FULL], [ONE], {"asm_bytes": "test_same"}),
    **dict.fromkeys(
        ("NoOp", "EventSemaphore", "AllEngineBarrier", "Drain", "GroupResetSemaphores", "CoreBarrier", "BranchHint"),
        ([], [], {}),
    ),
    **dict.fromkeys(("LoadActFuncSet", "Return", "Exit", "Halt", "TensorCompletion"), ([], [], {})),
}
"""Of opcodes without control flow inputs, outputs and keys with which they can be executed."""

DRAM = frozenset(("ReadVarAddr", "IndirectLoad", "IndirectSave", "IndirectSaveAccumulate", "GenericIndirectLoad"))


def plain(bench: Bench, opcode: str) -> None:
    ins, outs, keys = PLAIN[opcode]
    dram = opcode in DRAM or opcode == "GenericIndirectSave"
    given = [
        bench.given(f"in{n}", array, memory="DRAM" if dram else "SB") if isinstance(array, np.ndarray) else array
        for n, array in enumerate(ins)
    ]
    memory = "PSUM" if outs == [IN_PSUM] else "DRAM" if dram else "SB"
    targets = [bench.output(f"out{n}", shape, dtype, memory, fill=0) for n, (shape, dtype) in enumerate(outs)]
    if opcode == "DMADescriptorTranspose":
        four = [(8, 4), (4, 2), (2, 2), (1, 2)]
        given, targets = [given[0].access(four)], [targets[0].access(four)]
    bench.add(opcode, given, targets, **{"name": "tried", "engine": "DVE", **keys})


def accumulated(bench: Bench, opcode: str) -> None:
    bench.add(
        "TensorTensor",
        [bench.given("a", FULL)] * 2,
        [bench.output("b", (4, 8))],
        op="add",
        acc="ZeroAccumulate",
        engine="DVE",
    )
    bench.add(opcode, [], [bench.output("sums", (4, 1))], name="tried", engine="DVE")


def on_registers(bench: Bench, opcode: str) -> None:
    register, cell = bench.register("r", 1), bench.given("cell", np.zeros((1, 1), i32))
    ins, outs = {
        "RegisterMove": ([7], [register]),
        "RegisterAlu": ([register, 3], [register]),
        "TensorLoad": ([cell], [register]),
        "TensorSave": ([register], [cell]),
    }[opcode]
    bench.add(opcode, ins, outs, name="tried", **({"op": "add"} if opcode == "RegisterAlu" else {}))


def branches(bench: Bench, opcode: str) -> None:
    if opcode == "UnconditionalBranch":
        bench.function.branch("end", name="tried")
    elif opcode == "CompareAndBranch":
        bench.function.compare(bench.register("r", 1), "IS_LTIMM", 3, "end", "end", name="tried")
    else:
        with bench.function.loop(0, 2):
            bench.add("Break", name="tried")
    bench.function.block("end")


def loops(bench: Bench, opcode: str) -> None:
    register = bench.register("r", 2)
    if opcode == "DoWhile":
        with bench.function.nested("DoWhile", name="tried", cond=register.value):
            bench.add("RegisterAlu", [register, -1], [register], op="add")
        return
    with bench.function.loop(0, register.value if opcode == "DynamicForLoop" else 2, opcode=opcode, name="tried"):
        bench.add("NoOp")


def calls(bench: Bench, opcode: str) -> None:
    x, y = bench.given("x", FULL), bench.output("y", (4, 8), fill=0)
    callee = bench.module.kernel("k") if opcode == "NKIKernel" else bench.module.function("k")
    a, b = callee.input("a", (4, 8)), callee.output("b", (4, 8))
    callee.add("TensorCopy", [a], [b])
    maps = {"a": x.name}, {"b": y.name}
    if opcode == "NKIKernel":
        bench.function.call(callee, {a: x}, {b: y}, name="tried")
    else:
        bench.add("Call", [], [], name="tried", target="k", arguments={**maps[0], **maps[1]})


def queues(bench: Bench, opcode: str) -> None:
    a, out, queue = bench.given("a", FULL, memory="DRAM"), bench.output("out", (4, 8), fill=0), bench.module.queue("q")
    with queue.nested("DMABlock", engine="DMA", name="tried" if opcode == "DMABlock" else "block"):
        queue.add("DMADescriptorCopy", [a], [out], engine="DMA")
    bench.add("DMATrigger", dma_blocks=["tried" if opcode == "DMABlock" else "block"], queue="q", name="tried")
    if opcode not in ("DMATrigger", "DMABlock"):
        bench.add(opcode, queue="q", instance="i", name="tried")


FAMILIES: dict[Callable[[Bench, str], None], tuple[str, ...]] = {
    plain: tuple(PLAIN),
    accumulated: ("ReadActivationAccumulator", "ActivationReadAccumulator", "DveReadAccumulator"),
    on_registers: ("RegisterMove", "RegisterAlu", "TensorLoad", "TensorSave"),
    branches: ("UnconditionalBranch", "CompareAndBranch", "Break"),
    loops: ("Loop", "DynamicForLoop", "DoWhile"),
    calls: ("NKIKernel", "Call"),
    queues: ("DMATrigger", "DMABlock", "SwitchQueueInstance", "ResetQueueInstance"),
}
BUILT = {opcode: family for family, opcodes in FAMILIES.items() for opcode in opcodes}


def base(opcode: str) -> Bench:
    """Return a module in which an instruction `tried` of an opcode can be executed."""
    bench = Bench()
    BUILT[opcode](bench, opcode)
    return bench


# -- what the operands of an instruction may be ----


def by_register(bench: Bench) -> None:
    tile, out = bench.given("tile", FULL), bench.output("out", (4, 8))
    place = tile.via(bench.register("r", 0), const_ap_offset=0, is_regloc_offset=True, const_sub_tensor_id=-1)
    bench.add("TensorCopy", [{**place, "reg_ap_offset": "r"}], [out], name="tried")


def by_expression(bench: Bench) -> None:
    tile, out, register = bench.given("tile", FULL), bench.output("out", (4, 8)), bench.register("r", 1)
    with bench.function.loop(0, 2) as i:
        place = tile.at(0, 2 * i // 3 - i % 2 + register.value, pattern=[[8, 4], [0, 8]])
        bench.add("TensorCopy", [place], [out], name="tried")


def by_offset(bench: Bench) -> None:
    tile, out = bench.given("tile", FULL), bench.output("out", (4, 8))
    term = {"coef": 0, "offset_expr": bench.register("r", 1).value}
    info = {"aff_expr": [term], "c": 0, "indirect_dim": 3, "indirect_dim_max_index": 4, "actual_ap": None}
    bench.add("TensorCopy", [tile.access(dynamic_ap_info=info)], [out], name="tried")


def by_indices(bench: Bench) -> None:
    table, rows = bench.given("table", FULL, memory="DRAM"), bench.given("rows", np.zeros((4, 1), i32))
    term = {"coef": 8, "offset_expr": {"kind": "IndirectArgId", "arg_id": 1}}
    info = {"aff_expr": [term], "c": 0, "indirect_dim": 0, "indirect_dim_max_index": 4, "actual_ap": [[8, 4], [1, 8]]}
    source = table.access(dynamic_ap_info={**info, "num_tensor_indirect_indices": 4})
    bench.add("DMACopy", [source, rows], [bench.output("out", (4, 8))], name="tried")


def by_symbols(bench: Bench) -> None:
    table, rows = bench.given("table", FULL, memory="DRAM"), bench.given("rows", np.zeros((4, 1), i32))
    index = {"kind": "IndirectArgId", "arg_id": 1}
    whole = {"kind": "AffExprKind", "c": 0, "terms": [{"idx": index, "coeff": 1}]}
    part: dict[str, Any] = {"kind": "MultKind", "scale": 2, "var": {"kind": "FloorDivKind", "numer": whole, "denom": 3}}
    both = {"kind": "SumKind", "terms": [part, {"kind": "ModuloKind", "numer": index, "denom": 2}]}
    source = {**table.at(0, 0), "addrs": [both, 0], "tensor_indirect_arg_id": -1, "num_tensor_indirect_indices": 4}
    bench.add("DMACopy", [source, rows], [bench.output("out", (4, 8))], name="tried")


def immediates(bench: Bench) -> None:
    listed = {"kind": "imm_array", "dtype": "float32", "value_array": [1.0, 2, "inf", -4.5]}
    number: dict[str, Any] = {"kind": "imm_value", "dtype": "float32", "value": 3.0}
    chosen = {"kind": "symbolic_imm_value", "dtype": "float32", "value_list": [{"value": 1.0}, {"value": 2}]}
    with bench.function.loop(0, 2) as i:
        ins = [bench.given("x", FULL), listed, {**chosen, "expr": i.json()}]
        bench.add("TensorScalarPtr", ins, [bench.output("y", (4, 8))], **TWO, name="tried")
        bench.add("Activation", [ins[0], number], [bench.output("z", (4, 8))], func="Exp", scale=1.0, name="tried")


OPERANDS = (by_register, by_expression, by_offset, by_indices, by_symbols, immediates)

# -- trying it ----

FIRST = {name: next(iter(reading.choices)) for name, reading in READINGS.items()}
AT_A_TIME = 40


class Tried:
    """A module of which one instruction is varied."""

    def __init__(self, bench: Bench) -> None:
        self.document, self.content = bench.module.json(), bench.content
        self.function = self.document["functions"][0]
        assert run(self.document, self.content, "sg0000") == ""

    def paths(self, *, keys: Iterable[str] | None = None) -> list[Path]:
        """Return where a value may be put: at some keys of the instruction, or anywhere in it."""
        [*rows] = found(self.document, ())
        return [
            path for at, row in rows for path in ([(*at, key) for key in keys] if keys is not None else within(row, at))
        ]

    def check(self, changes: Sequence[tuple[Path, Any]]) -> None:
        """Run the module with each change: as functions of one module where only that function differs."""
        apart = [change for change in changes if change[0][:2] != ("functions", 0)]
        for change in apart:
            self.alone(change)
        together = [change for change in changes if change[0][:2] == ("functions", 0)]
        for first in range(0, len(together), AT_A_TIME):
            self.together(together[first : first + AT_A_TIME])

    def alone(self, change: tuple[Path, Any]) -> None:
        document = copy.deepcopy(self.document)
        put(document, *change)
        checked(document, self.content, "sg0000", change)

    def together(self, changes: Sequence[tuple[Path, Any]]) -> None:
        functions = []
        for number, (path, value) in enumerate(changes):
            changed = {**copy.deepcopy(self.function), "name": f"v{number}"}
            put(changed, path[2:], value)
            functions.append(changed)
        document = {**self.document, "functions": [*functions, *self.document["functions"][1:]]}
        try:
            ir = air.read_json(json.dumps(document).encode(), name="m")
        except FormatError:  # the reader refuses one of them
            for change in changes:
                self.alone(change)
            return
        for number, change in enumerate(changes):
            checked(ir, self.content, f"v{number}", change)


def run(module: Any, content: dict[str, Any], function: str) -> str:
    """Run a module, and return why it cannot be read or run."""
    try:
        ir = module if isinstance(module, IR) else air.read_json(json.dumps(module).encode(), name="m")
        simulate.simulate(ir, content, function=function, readings=FIRST, max_steps=1000)
    except FormatError as error:
        return f"the reader: {error}"
    except SimulationError as error:
        return f"{error.instruction if error.module == 'm' else error.module}: {error.reason}"
    return ""


def checked(module: Any, content: dict[str, Any], function: str, change: tuple[Path, Any]) -> None:
    try:
        run(module, content, function)
    except Exception as error:
        where = ".".join(map(str, change[0]))
        raise AssertionError(f"{change[1]!r:.80} at {where} gives {type(error).__name__}: {error}") from error


def found(value: Any, at: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Return the instructions `tried` of a document, and where they stand."""
    if isinstance(value, dict) and value.get("name") == "tried" and "opcode" in value:
        yield at, value
    for key, item in items(value):
        yield from found(item, (*at, key))


def within(value: Any, at: Path) -> Iterator[Path]:
    """Return every place in a value."""
    for key, item in items(value):
        if key not in ("name", "opcode", "engine"):
            yield (*at, key)
            yield from within(item, (*at, key))


def items(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def put(document: Any, path: Path, value: Any) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


@pytest.fixture(autouse=True)
def same() -> Iterator[None]:
    simulate.define_kernel("test_same", lambda inputs, options: [inputs[0]])
    yield
    simulate.undefine_kernel("test_same")


def some(paths: Sequence[Path], number: int) -> list[tuple[Path, Any]]:
    """Return a few of the wrong values for each place, in turn all of them."""
    values = [WRONG[k * 29 % len(WRONG)] for k in range(number * len(paths))]  # 29 is prime to their number
    return [(path, values[number * k + n]) for k, path in enumerate(paths) for n in range(number)]


def test_every_opcode_is_tried() -> None:
    assert sorted(BUILT) == sorted(handlers())
    assert gcd(29, len(WRONG)) == 1


@pytest.mark.parametrize("opcode", BUILT)
def test_keys_of_any_type(opcode: str) -> None:
    tried = Tried(base(opcode))
    tried.check(some(tried.paths(keys=declared_keys(opcode)), 4))


@pytest.mark.parametrize("operands", OPERANDS)
def test_operands_of_any_type(operands: Callable[[Bench], None]) -> None:
    bench = Bench()
    operands(bench)
    tried = Tried(bench)
    tried.check(some(tried.paths(), 3))


@pytest.mark.slow
@pytest.mark.parametrize("opcode", BUILT)
def test_anything_anywhere(opcode: str) -> None:
    tried = Tried(base(opcode))
    paths = {*tried.paths(keys=declared_keys(opcode)), *tried.paths()}
    tried.check(some(sorted(paths, key=str), 12))


@pytest.mark.slow
@pytest.mark.parametrize("operands", OPERANDS)
def test_anything_anywhere_in_operands(operands: Callable[[Bench], None]) -> None:
    bench = Bench()
    operands(bench)
    tried = Tried(bench)
    tried.check(some(tried.paths(), 20))


def test_the_error_names_the_instruction_and_the_key() -> None:
    tried = Tried(base("TensorReduce"))
    document = copy.deepcopy(tried.document)
    [(path, _)] = found(document, ())
    put(document, (*path, "negate"), {"kind": "AffExprKind", "terms": 3})
    reason = run(document, tried.content, "sg0000")
    assert reason == "tried: `terms` in an expression is 3; expected a list"
