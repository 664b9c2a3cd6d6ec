"""Loops, branches, registers and expressions: which instructions are executed, and how often."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.build import FunctionBuilder, Tensor
from arrowir.diagnostics import SimulationError

f32 = np.float32


def counter(body: Callable[[FunctionBuilder, Tensor], None], slots: int = 8, **options: Any) -> list[int]:
    """Run a function on a row of counters, which begin at 0, and return them."""
    module = build.module()
    main = module.function()
    out = main.tensor("out", "SB", [1, slots], kind="ExternalOutput")
    main.add("Memset", [], [out], mode="Const", constant=0)
    body(main, out)
    found = air.simulate(module.ir(), **options)["out"][0]
    assert np.array_equal(found, found.astype(np.int64))
    return found.astype(np.int64).tolist()


def increase(main: FunctionBuilder, where: Any, by: float = 1, **more: Any) -> None:
    keys = {"op0": "add", "const0": by, "reverse0": False, "op1": "bypass", "const1": 0, "reverse1": False}
    main.add("TensorScalar", [where], [where], **keys, **more)


def cell(out: Tensor, *addresses: Any) -> Any:
    return out.at(*addresses, pattern=[[out.shape[1], 1], [1, 1]])


# -- loops ----


@pytest.mark.parametrize(
    "bounds", [(0, 5, 1), (1, 8, 3), (7, -1, -1), (6, 0, -2), (3, 3, 1), (4, 2, 1), (0, 5, -1), (-2, 3, 2)]
)
def test_a_loop_takes_the_values_of_range(bounds: tuple[int, int, int]) -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        with main.loop(*bounds) as i:
            increase(main, cell(out, 0, i + 2))

    wanted = [0] * 12
    for i in range(*bounds):
        wanted[i + 2] += 1
    assert counter(body, 12) == wanted


def test_nests_are_row_major() -> None:
    order: list[tuple[int, int]] = []

    def body(main: FunctionBuilder, out: Tensor) -> None:
        keys = {"op0": "mult", "const0": 2, "reverse0": False, "op1": "add", "const1": 1, "reverse1": False}
        with main.loop(0, 3) as i, main.loop(0, 2) as j:
            increase(main, cell(out, 0, 2 * i + j))
            # Each cell takes in what the one before it had: the order shows.
            main.add("TensorTensor", [cell(out, 0, 2 * i + j), cell(out, 0, 6)], [cell(out, 0, 6)], op="add")
            main.add("TensorScalar", [cell(out, 0, 6)], [cell(out, 0, 6)], **keys)

    value = 0
    for i in range(3):
        for j in range(2):
            order.append((i, j))
            value = (value + 1) * 2 + 1
    assert counter(body) == [1] * 6 + [value, 0]


def test_inner_axes_hide_outer_ones_and_bounds_may_be_expressions() -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        with main.loop(0, 3, axis="i") as i, main.loop(i, 2 * i + 1, axis="j") as j:
            increase(main, cell(out, 0, j))
            with main.loop(5, 6, axis="i") as inner:
                increase(main, cell(out, 0, inner))

    wanted = [0] * 8
    for i in range(3):
        for j in range(i, 2 * i + 1):
            wanted[j] += 1
            wanted[5] += 1
    assert counter(body) == wanted


@pytest.mark.parametrize(
    ("address", "of"),
    [
        (lambda i, j: i // 2 + 3 * (j % 2), lambda i, j: i // 2 + 3 * (j % 2)),
        (lambda i, j: (i + 2 * j) % 7, lambda i, j: (i + 2 * j) % 7),
        (lambda i, j: 7 - i - j, lambda i, j: 7 - i - j),
        (lambda i, j: (i - 3) // 2 + 2, lambda i, j: (i - 3) // 2 + 2),
        (lambda i, j: (j - 3) % 4 + build.shard_id(2), lambda i, j: (j - 3) % 4 + 1),
    ],
)
def test_expressions(address: Any, of: Callable[[int, int], int]) -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        with main.loop(0, 4) as i, main.loop(0, 4) as j:
            increase(main, cell(out, 0, address(i, j)))

    wanted = [0] * 8
    for i in range(4):
        for j in range(4):
            wanted[of(i, j)] += 1
    assert counter(body, shard_id=1) == wanted


def test_version_1_expressions() -> None:
    module = build.module(version=1)
    main = module.function()
    out = main.tensor("out", "SB", [1, 8], kind="ExternalOutput")
    main.add("Memset", [], [out], mode="Const", constant=0)
    terms = [{"AxisLabel": "i", "coef": 3}]
    with main.loop(0, 6):
        increase(main, cell(out, 0, 0))
        place = cell(out, 0, 0)
        place["addrs"] = [{"terms": [], "c": 0}, {"terms": terms, "c": 1, "op": "Mod", "op_param": 8}]
        increase(main, place, by=10)
        place = cell(out, 0, 0)
        place["addrs"] = [{"terms": [], "c": 0}, {"terms": terms, "c": 1, "op": "Div", "op_param": 3}]
        increase(main, place, by=100)
    wanted = [0] * 8
    for i in range(6):
        wanted[0] += 1
        wanted[(3 * i + 1) % 8] += 10
        wanted[(3 * i + 1) // 3] += 100
    assert air.simulate(module.ir())["out"][0].tolist() == wanted


def test_the_first_stride_of_a_partitioned_location_is_its_pitch() -> None:
    module = build.module()
    main = module.function()
    out = main.tensor("out", "SB", [4, 2, 3], kind="ExternalOutput")
    main.add("Memset", [], [out], mode="Const", constant=0)
    with main.loop(0, 4) as p, main.loop(0, 2) as i:
        place = out.at(p, i, (p + i) % 3, pattern=[[6, 1], [1, 1]])
        increase(main, place)
    wanted = np.zeros((4, 2, 3))
    for p in range(4):
        for i in range(2):
            wanted[p, i, (p + i) % 3] += 1
    assert np.array_equal(air.simulate(module.ir())["out"], wanted)


def test_expressions_in_keys_are_worked_out() -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        with main.loop(0, 4) as i:
            main.add("Memset", [], [out.access([[8, 1], [1, 1]])], mode="Const", constant=1082130432 + 8388608 * i)

    assert counter(body)[0] == 32  # 4.0 and three times the exponent up


@pytest.mark.parametrize(("bounds", "reason"), [((0, 4, 0), "stride of the loop is 0")])
def test_faulty_loops(bounds: tuple[int, int, int], reason: str) -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        with main.loop(*bounds):
            increase(main, out)

    with pytest.raises(SimulationError, match=reason):
        counter(body)


def test_200_nested_loops() -> None:
    document = build.module()
    main = document.function()
    out = main.tensor("out", "SB", [1, 1], kind="ExternalOutput")
    main.add("Memset", [], [out], mode="Const", constant=0)
    from contextlib import ExitStack

    with ExitStack() as stack:
        for number in range(200):
            stack.enter_context(main.loop(0, 1 + (number == 7), axis=f"a{number}"))
        increase(main, out)
    assert air.simulate(document.ir())["out"].tolist() == [[2]]


# -- loops that are not counted before ----


@pytest.mark.parametrize("trips", [0, 1, 5])
def test_a_loop_with_its_end_in_a_register(trips: int) -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        n = main.register("n")
        main.add("RegisterMove", [trips], [n])
        with main.loop(0, n.value + 1, opcode="DynamicForLoop") as i:
            increase(main, cell(out, 0, i))

    assert counter(body) == [1] * (trips + 1) + [0] * (7 - trips)


def test_a_body_that_changes_the_end_of_its_loop_is_undecided() -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        n = main.register("n")
        main.add("RegisterMove", [3], [n])
        with main.loop(0, n.value, opcode="DynamicForLoop"):
            main.add("RegisterAlu", [n, 1], [n], op="add")

    with pytest.raises(SimulationError, match="changes the loop's own bounds"):
        counter(body)


@pytest.mark.parametrize(("start", "times"), [(3, 3), (1, 1), (0, 1)])
def test_do_while(start: int, times: int) -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        n = main.register("n")
        main.add("RegisterMove", [start if start else 1], [n])
        with main.nested("DoWhile", cond=n.value):
            increase(main, out.access([[8, 1], [1, 1]]))
            main.add("RegisterAlu", [n, 1], [n], op="subtract")

    assert counter(body)[0] == times


def test_a_loop_without_end_is_stopped() -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        n = main.register("n")
        main.add("RegisterMove", [1], [n])
        with main.nested("DoWhile", cond=n.value):
            main.add("NoOp")

    with pytest.raises(SimulationError, match="500 instructions have been executed; give a higher `max_steps`"):
        counter(body, max_steps=500)


def test_an_empty_loop_without_end_is_stopped() -> None:
    module = build.module()
    main = module.function()
    n = main.register("n")
    main.add("RegisterMove", [1], [n])
    with main.nested("DoWhile", cond=n.value):
        pass
    with pytest.raises(SimulationError, match="give a higher `max_steps`"):
        air.simulate(module.ir(), max_steps=100)


# -- branches ----

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b, "GE": lambda a, b: a >= b, "GT": lambda a, b: a > b,
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("other", ["IMM", "REG"])
@pytest.mark.parametrize("left", [-3, 4, 9])
def test_a_comparison_chooses_the_block(name: str, other: str, left: int) -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        a, b = main.register("a"), main.register("b")
        main.add("RegisterMove", [left], [a])
        main.add("RegisterMove", [4], [b])
        main.compare(a, f"IS_{name}{other}", 4 if other == "IMM" else b, "yes", "no")
        main.block("no")
        increase(main, cell(out, 0, 0))
        main.branch("end")
        main.block("yes")
        increase(main, cell(out, 0, 1))
        main.block("end")
        increase(main, cell(out, 0, 2))

    taken = COMPARISONS[name](left, 4)
    assert counter(body) == [int(not taken), int(taken), 1, 0, 0, 0, 0, 0]


def test_a_block_may_branch_to_itself() -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        n = main.register("n")
        main.add("RegisterMove", [0], [n])
        main.block("again")
        increase(main, cell(out, 0, n.value))
        main.add("RegisterAlu", [n, 1], [n], op="add")
        main.compare(n, "IS_LTIMM", 5, "again", "end")
        main.block("end")

    assert counter(body) == [1] * 5 + [0] * 3


def test_a_branch_out_of_loops_and_one_within_a_loop() -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        n = main.register("n")
        main.add("RegisterMove", [0], [n])
        with main.loop(0, 4) as i, main.loop(0, 4):
            main.add("RegisterAlu", [n, 1], [n], op="add")
            main.compare(n, "IS_EQIMM", 7, "out", "on")
            main.block("on")
            increase(main, cell(out, 0, i))
        main.block("middle")
        increase(main, cell(out, 0, 6))  # jumped over
        main.block("out")
        increase(main, cell(out, 0, 7))

    assert counter(body) == [4, 2, 0, 0, 0, 0, 0, 1]


def test_break_leaves_the_innermost_loop() -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        with main.loop(0, 3) as i:
            with main.loop(0, 4):
                increase(main, cell(out, 0, i))
                main.add("Break")
            increase(main, cell(out, 0, i), 10)

    assert counter(body) == [11] * 3 + [0] * 5


@pytest.mark.parametrize("opcode", ["Return", "Exit"])
def test_return_and_exit_end_the_function(opcode: str) -> None:
    def body(main: FunctionBuilder, out: Tensor) -> None:
        with main.loop(0, 3) as i:
            increase(main, cell(out, 0, i))
            main.add(opcode)
        increase(main, cell(out, 0, 7))

    assert counter(body) == [1, 0, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(
    ("faulty", "reason"),
    [
        (lambda main: main.branch("nowhere"), "`target` names `nowhere`, which is no block in reach"),
        (lambda main: main.branch(None), "`target` names no block"),
        (lambda main: main.add("Break"), "no loop to leave"),
        (lambda main: main.compare(main.register("r"), "IS_EQIMM", 0, "Block1", "Block1"), "`r` is read and was never"),
        (lambda main: main.compare(main.register("r"), "IS_EQREG", 0, "Block1", "Block1"), "second operand is a `imm_"),
        (lambda main: main.compare(main.register("r"), "Unsupported", 0, "Block1", "Block1"), "`Unsupported` is not"),
    ],
)
def test_faulty_branches(faulty: Callable[[FunctionBuilder], Any], reason: str) -> None:
    with pytest.raises(SimulationError, match=reason):
        counter(lambda main, out: faulty(main))


# -- registers ----


def computed(op: str, a: int, b: int, dtype: str = "int32", **keys: Any) -> int:
    module = build.module()
    main = module.function()
    out = main.tensor("out", "SB", [1, 1], dtype, kind="ExternalOutput")
    left, right, result = (main.register(name) for name in ("a", "b", "c"))
    main.add("RegisterMove", [build.imm(a, dtype)], [left.access(dtype)])
    main.add("RegisterMove", [build.imm(b, dtype)], [right.access(dtype)])
    ins, outs = [left.access(dtype), right.access(dtype)], [result.access(dtype)]
    main.add("RegisterAlu", ins, outs, op=op, **keys)
    main.add("TensorSave", [result.access(dtype)], [out])
    return int(air.simulate(module.ir())["out"][0, 0])


@pytest.mark.parametrize("a", [7, -9, 0, 2**31 - 1])
@pytest.mark.parametrize("b", [3, 31, 0])
def test_register_arithmetic(a: int, b: int) -> None:
    wanted = {
        "add": a + b, "subtract": a - b, "mult": a * b, "max": max(a, b), "min": min(a, b),
        "bitwise_and": a & b, "bitwise_or": a | b, "bitwise_xor": a ^ b, "bitwise_not": ~a,
        "logical_shift_left": a * 2**b, "arith_shift_left": a * 2**b, "arith_shift_right": a // 2**b,
        "logical_shift_right": a % 2**32 // 2**b, "is_equal": a == b, "is_lt": a < b, "is_ge": a >= b,
        "logical_and": bool(a and b), "logical_or": bool(a or b), "logical_xor": bool(a) != bool(b), "bypass": a,
    }  # fmt: skip
    module = build.module()
    main = module.function()
    out = main.tensor("out", "SB", [1, len(wanted)], "int32", kind="ExternalOutput")
    left, right, result = (main.register(name) for name in ("a", "b", "c"))
    main.add("RegisterMove", [build.imm(a, "int32")], [left])
    main.add("RegisterMove", [build.imm(b, "int32")], [right])
    for place, op in enumerate(wanted):
        main.add("RegisterAlu", [left, right], [result], op=op)
        main.add("TensorSave", [result], [out[:, place : place + 1]])
    found = air.simulate(module.ir())["out"][0].tolist()
    expected = [(int(value) + 2**31) % 2**32 - 2**31 for value in wanted.values()]
    assert dict(zip(wanted, found, strict=True)) == dict(zip(wanted, expected, strict=True))


def test_registers_of_64_bits() -> None:
    assert computed("mult", 2**33, 3, "int64", is_64bit=True) == 3 * 2**33
    assert computed("add", 2**63 - 1, 1, "int64", is_64bit=True) == -(2**63)
    with pytest.raises(SimulationError, match="`max` on registers of 64 bits"):
        computed("max", 1, 2, "int64", is_64bit=True)
    with pytest.raises(SimulationError, match="`is_64bit` is False, and the result is `int64`"):
        computed("add", 1, 2, "int64")


def test_wide_values_read_through_a_narrow_type_are_undecided() -> None:
    module = build.module()
    main = module.function()
    out = main.tensor("out", "SB", [1, 1], "int32", kind="ExternalOutput")
    r = main.register("r")
    main.add("RegisterMove", [build.imm(2**32 - 2, "uint32")], [r.access("uint32")])
    main.add("TensorSave", [r], [out])
    with pytest.raises(SimulationError, match="holds 4294967294, which does not fit `int32`"):
        air.simulate(module.ir())
    assert air.simulate(module.ir(), readings={"register_width": "wrap"})["out"].tolist() == [[-2]]


def test_values_come_from_memory() -> None:
    module = build.module()
    main = module.function()
    table = main.tensor("table", "DRAM", [1, 4], "int32")
    out = main.tensor("out", "DRAM", [1, 4], "int32", kind="ExternalOutput")
    r, s = main.register("r"), main.register("s")
    main.add("RegisterMove", [0], [s])
    with main.loop(0, 4) as i:
        main.add("TensorLoad", [table.at(0, i, pattern=[[4, 1], [1, 1]])], [r])
        main.add("RegisterAlu", [s, r], [s], op="add")
        main.add("TensorSave", [s], [out.at(0, i, pattern=[[4, 1], [1, 1]])])
    given = np.array([[5, -7, 11, 100]], np.int32)
    assert air.simulate(module.ir(), {"table": given})["out"].tolist() == [[5, -2, 9, 109]]


# -- addresses from registers ----


def through_register(value: int, readings: dict[str, str] | None = None, **members: Any) -> list[float]:
    module = build.module()
    main = module.function()
    a = main.tensor("a", "DRAM", [1, 8], addr=64)
    out = main.tensor("out", "SB", [1, 2], kind="ExternalOutput")
    r = main.register("r")
    main.add("RegisterMove", [value], [r])
    main.add("TensorCopy", [a.via(r, [[8, 1], [1, 2]], **members)], [out])
    given = np.arange(8, dtype=f32)[None]
    return air.simulate(module.ir(), {"a": given}, readings=readings)["out"][0].tolist()


def test_an_offset_in_a_register() -> None:
    assert through_register(3, is_regloc_offset=True) == [3, 4]
    assert through_register(3, is_regloc_offset=True, const_ap_offset=2) == [5, 6]
    assert through_register(3, is_regloc_offset=True, reg_ap_offset="r") == [6, 7]
    with pytest.raises(SimulationError, match="out of bounds"):
        through_register(7, is_regloc_offset=True)
    with pytest.raises(SimulationError, match="sub-tensor"):
        through_register(0, is_regloc_offset=True, const_sub_tensor_id=1)


def test_an_address_in_a_register_is_a_choice() -> None:
    with pytest.raises(SimulationError, match="takes its address from a register"):
        through_register(3)
    assert through_register(3, {"register_address": "offset"}) == [3, 4]
    assert through_register(64 + 12, {"register_address": "address"}) == [3, 4]
    with pytest.raises(SimulationError, match="lies within an element"):
        through_register(65, {"register_address": "address"})


def test_a_dynamic_offset() -> None:
    module = build.module()
    main = module.function()
    a, out = main.tensor("a", "SB", [2, 12]), main.tensor("out", "SB", [2, 3], kind="ExternalOutput")
    r = main.register("r")
    main.add("RegisterMove", [2], [r])
    info = {"aff_expr": [{"offset_expr": r.value.json(), "coef": 4}], "c": 1}
    main.add("TensorCopy", [a.access([[12, 2], [1, 3]], dynamic_ap_info=info)], [out])
    given = np.arange(24, dtype=f32).reshape(2, 12)
    assert np.array_equal(air.simulate(module.ir(), {"a": given})["out"], given[:, 9:12])


# -- immediates ----


def test_immediates_of_every_kind() -> None:
    def added(immediate: dict[str, Any], readings: dict[str, str] | None = None) -> float:
        module = build.module()
        main = module.function()
        a, out = main.tensor("a", "SB", [1, 1]), main.tensor("out", "SB", [1, 1], kind="ExternalOutput")
        with main.loop(0, 2, axis="i"):
            main.add("TensorTensor", [a, immediate], [out], op="add")
        return float(air.simulate(module.ir(), {"a": np.zeros((1, 1), f32)}, readings=readings)["out"][0, 0])

    axis = {"kind": "AffIVKind", "axis": "i"}
    assert added(build.imm(2.5)) == 2.5
    assert added(build.imm([7])) == 7
    assert added({"kind": "imm_value", "dtype": "float32", "value": "inf"}) == np.inf
    assert (
        added(
            {"kind": "symbolic_imm_value", "dtype": "int32", "value_list": [{"value": 4}, {"value": 9}], "expr": axis}
        )
        == 9
    )
    assert added({"kind": "imm_value", "dtype": "bfloat16", "value": 1.5}) == 1.5
    half = {"kind": "imm_value", "dtype": "float16", "value": 0x3C00}
    assert added(half, {"half_immediate": "bits"}) == 1
    assert added(half, {"half_immediate": "number"}) == 0x3C00
    for faulty, reason in (
        (half, "is a number or the bits of a `float16`"),
        ({"kind": "imm_value", "dtype": "uint8", "value": 256}, "does not fit `uint8`"),
        ({"kind": "imm_value", "dtype": "float8e4", "value": 1.0}, "is no value of `float8e4`"),
        ({"kind": "imm_value", "dtype": "float32", "value": "five"}, "is .five.; expected a number"),
        (
            {
                "kind": "symbolic_imm_value",
                "dtype": "int32",
                "value_list": [{"value": 4}, {"value": 9}],
                "expr": {"kind": "AffExprKind", "terms": [], "c": 2},
            },
            "element 2 of 2",
        ),
    ):
        with pytest.raises(SimulationError, match=reason):
            added(faulty)


# -- nothing ----


@pytest.mark.parametrize(
    ("opcode", "members"),
    [
        ("NoOp", {}),
        ("EventSemaphore", {}),
        ("AllEngineBarrier", {}),
        ("Drain", {"is_reset_sema": True}),
        ("GroupResetSemaphores", {"mode": "SemaphoreZero", "sema_group": [1, 2]}),
        ("CoreBarrier", {"id": 3, "cores": [0, 1]}),
        ("BranchHint", {"hint": "LikelyTaken"}),
        ("SwitchQueueInstance", {"queue": "q", "instance": "i"}),
        ("ResetQueueInstance", {"queue": "q", "instance": "i"}),
        ("LoadActFuncSet", {"act_func_set_id": 0}),
    ],
)
def test_what_computes_nothing(opcode: str, members: dict[str, Any]) -> None:
    assert counter(lambda main, out: main.add(opcode, [out], [out], **members)) == [0] * 8


def test_an_activation_table_has_a_number() -> None:
    with pytest.raises(SimulationError, match="`act_func_set_id` is -1; expected a number from 0 on"):
        counter(lambda main, out: main.add("LoadActFuncSet", act_func_set_id=-1))


def test_control_flow_is_not_traced() -> None:
    module = build.module()
    main = module.function()
    r = main.register("r")
    with main.loop(0, 2):
        main.add("RegisterMove", [1], [r])
    main.compare(r, "IS_EQIMM", 1, "end", "end")
    main.block("end")
    main.branch("last")
    main.block("last")
    ir = module.ir()
    found = air.simulate(ir, trace=True)
    assert found.trace["opcode"].to_list() == ["RegisterMove"] * 2
    assert found.steps == 5
    kinds = set(ir.instructions["opcode"].to_list())
    assert kinds == {"Loop", "RegisterMove", "CompareAndBranch", "UnconditionalBranch"}
