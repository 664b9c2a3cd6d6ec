"""The verifier's rules about blocks, branches, loops and registers: each is broken by one change of a sound module."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.single_pass import Json
from tests.verified import (
    Broken,
    Case,
    Module,
    again,
    broken,
    imm,
    instead,
    keys,
    reg,
    replaced,
    sb,
    sound,
    without,
)


def row(name: str, opcode: str, engine: str = "Unassigned", **members: Any) -> Json:
    return {"name": name, "opcode": opcode, "engine": engine, "ins": [], "outs": [], **members}


def jump(target: str, name: str = "j", engine: str = "Unassigned") -> Json:
    return row(name, "UnconditionalBranch", engine, target=target)


def compare(true: str, false: str, name: str = "c", engine: str = "Unassigned") -> Json:
    return row(name, "CompareAndBranch", engine, ins=[reg(), imm(3, "int32")], comp_op="IS_LTIMM", on_true=true,
               on_false=false)  # fmt: skip


def end(name: str = "r", engine: str = "Unassigned") -> Json:
    return row(name, "Return", engine)


def flow(**blocks: list[Json]) -> Module:
    """A function of these blocks; `x` is the last instruction of the first."""
    made = Module()
    made.register()
    made.main["blocks"] = [{"name": name, "instructions": rows} for name, rows in blocks.items()]
    made.x = made.rows[-1]
    return made


def looped() -> Module:
    """Three blocks: one that goes on, one that branches to itself, one that ends."""
    return flow(a=[row("n", "NoOp"), jump("b")], b=[compare("b", "d")], d=[end()])


def diamond() -> Module:
    return flow(a=[compare("b", "d")], b=[jump("e", "j1")], d=[jump("e", "j2")], e=[end()])


def block(made: Module, name: str) -> list[Json]:
    return next(b["instructions"] for b in made.main["blocks"] if b["name"] == name)


def blocks(change: Callable[[Module], object]) -> Callable[[Module], object]:
    return change


def add_block(name: str, *rows: Json) -> Callable[[Module], object]:
    return lambda d: d.main["blocks"].append({"name": name, "instructions": list(rows)})


def nested_loop() -> Module:
    """An outer loop from b to e, an inner one of d."""
    return flow(a=[jump("b", "j0")], b=[jump("d", "j1")], d=[compare("d", "e", "c1")], e=[compare("b", "g", "c2")],
                g=[end()])  # fmt: skip


BLOCKS = [
    Case("BIR079", looped, lambda d: d.rows.pop()),
    Case("BIR080", looped, lambda d: d.rows.append(row("late", "NoOp"))),
    Case("SIM045", looped, lambda d: block(d, "d").append(end("r2"))),
    Case("BIR107", looped, lambda d: d.rows.append(jump("b", "j2"))),
    Case("BIR108", looped, lambda d: d.rows.append(jump("b", "j2", "DVE"))),
    Case("BIR109", looped, keys(engine="DVE")),
    Case("BIR082", diamond, lambda d: block(d, "d").__setitem__(0, end("r2"))),
    Case("BIR083", looped, lambda d: block(d, "d").__setitem__(0, jump("b", "j2"))),
    Case("BIR084", looped, add_block("z", jump("d", "j2"))),
    Case("BIR085", looped, lambda d: block(d, "b").__setitem__(0, compare("a", "d"))),
    Case("BIR097", looped, lambda d: (add_block("y", jump("z", "j2"))(d), add_block("z", jump("y", "j3"))(d))),
    Case("BIR086", nested_loop, lambda d: two_ways_back(d)),
    Case("BIR090", diamond, lambda d: d.main["blocks"].insert(2, d.main["blocks"].pop(3))),
    Case("CFG015", diamond, lambda d: crossed(d)),
]  # fmt: skip


def two_ways_back(d: Module) -> None:
    """Let one engine go back to the inner loop, and the others to the outer one."""
    targets = {"Pool": "d", "Activation": "b", "PE": "b", "DVE": "b", "SP": "b"}
    block(d, "e")[:] = [compare(target, "g", f"c{engine}", engine) for engine, target in targets.items()]


def crossed(d: Module) -> None:
    """Let b and d lead to each other, so that their loop has two entries."""
    block(d, "b")[0] = jump("d", "j1")
    block(d, "d")[0] = compare("b", "e", "c2")


def test_bir080_each_engine_has_an_order_of_its_own() -> None:
    made = flow(a=[row("n", "NoOp")], b=[end()])
    engines = ("Pool", "Activation", "PE", "DVE", "SP")
    for k, engine in enumerate(engines):
        made.rows.extend((row(f"n{k}", "NoOp", engine), jump("b", f"j{k}", engine)))
    assert made.codes() == set()
    made.rows.append(row("late", "NoOp", "DVE"))
    assert made.codes() == {"BIR080"}


def condition() -> Module:
    """A comparison of a value in memory."""
    made = sound("CompareAndBranch", [sb(1, 1, dtype="int32"), imm(3, "int32")], [], comp_op="IS_LTIMM", on_true="e",
                 on_false="e")  # fmt: skip
    made.main["blocks"].append({"name": "e", "instructions": [end()]})
    return made


def of_registers() -> Module:
    made = flow(a=[compare("b", "b")], b=[end()])
    made.x["ins"][1] = reg()
    return made


def long_condition(d: Module) -> None:
    d.place_of("in0")["dims"][1] = 8
    d.x["ins"][0]["ap"] = [[2, 1], [1, 1]]
    d.rows[0]["outs"][0]["ap"] = [[2, 1], [1, 2]]


def two_elements(d: Module) -> None:
    long_condition(d)
    d.x["ins"][0]["ap"] = [[2, 1], [1, 2]]


def second(dtype: str) -> Callable[[Module], object]:
    return replaced("ins", 1, reg(dtype))


BY_REGISTER = {"kind": "register_ap", "dtype": "int32", "regref": "r", "memsetref": "in0_set", "ap": [[1, 1], [1, 1]]}

BRANCHES = [
    Case("BIR072", of_registers, again("ins")),
    Case("BIR073", of_registers, second("float32")),
    Case("BIR111", of_registers, replaced("ins", 0, reg("int16"))),
    Case("BIR112", of_registers, second("int16")),
    Case("BIR142", lambda: flow(a=[jump("b", "j0")], b=[jump("d", "j1")], d=[compare("d", "e")], e=[end()]),
         lambda d: block(d, "d").__setitem__(0, compare("d", "d"))
         or d.main["blocks"][1]["instructions"].__setitem__(0, compare("d", "e", "c2"))),
    Case("EAE010", of_registers, lambda d: d.x["outs"].append(reg())),
    Case("EAE030", condition, replaced("ins", 0, BY_REGISTER)),
    Case("EAE031", condition, replaced("ins", 1, BY_REGISTER)),
    Case("EIL003", condition, long_condition),
    Case("EIL004", condition, two_elements),
    Case("EIL010", lambda: flow(a=[row("n", "NoOp"), compare("b", "b")], b=[end()]),
         keys(dependencies=[["n", "Flow"]])),
    Case("EAE008", looped, lambda d: d.x["ins"].append(reg())),
    Case("EAE009", looped, lambda d: d.x["outs"].append(reg())),
    Case("XCG004", partial(sound, "GroupResetSemaphores", engine="ALL", mode="SemaphoreZero"), keys(engine="SP")),
]  # fmt: skip

M = partial(sb, 1, 1, dtype="int32")


def load() -> Module:
    return sound("TensorLoad", [M()], [reg()])


def save() -> Module:
    return sound("TensorSave", [reg()], [M()])


def alu() -> Module:
    return sound("RegisterAlu", [reg(), reg()], [reg()], engine="ALL", op="add")


def move() -> Module:
    return sound("RegisterMove", [imm(1, "int32")], [reg()])


def parameter(d: Module) -> None:
    d.set_of("in0").update(kind="ExternalInput")
    d.place_of("in0").update(type="DRAM", allocated=False)


REGISTERS = [
    Case("BIR143", load, lambda d: (d.x["ins"].clear(), unused(d))),
    Case("BIR144", load, without("outs", 0)),
    Case("BIR145", load, parameter),
    Case("EAE012", load, again("ins")),
    Case("EAE013", load, again("outs")),
    Case("EAE014", load, instead("ins", 0, reg())),
    Case("EAE015", load, lambda d: d.x["outs"].__setitem__(0, {**d.x["ins"][0]})),
    Case("EBIR011", load, replaced("outs", 0, reg("int64"))),
    Case("EAE017", alu, without("ins", 1)),
    Case("EAE018", alu, again("outs")),
    Case("EAE019", alu, replaced("ins", 1, imm(1, "int32"))),
    Case("EAE020", alu, replaced("outs", 0, imm(1, "int32"))),
    Case("EBIR010", alu, replaced("ins", 1, reg("int64"))),
    Case("EBIR013", alu, keys(is_64bit=True, op="max")),
    Case("EAE026", move, again("ins")),
    Case("EAE027", move, again("outs")),
    Case("EAE028", move, replaced("ins", 0, {"kind": "imm_array", "dtype": "int32", "value_array": [1]})),
    Case("EAE029", move, replaced("outs", 0, imm(1, "int32"))),
    Case("EBIR012", move, replaced("outs", 0, reg("int64"))),
]  # fmt: skip


def unused(d: Module) -> None:
    """Take the tensor away that nobody reads any more."""
    d.rows[:] = [r for r in d.rows if r["name"] != "fill_in0"]
    d.main["allocations"].remove(d.set_of("in0"))


def of_count(lb: Any = 0, ub: Any = None, stride: Any = 1) -> Module:
    """A loop over as many trips as a register says."""
    made = Module()
    made.register()
    runtime = {"kind": "AffExprKind", "c": 0, "terms": [{"idx": {"kind": "IntRuntimeValueKind", "regref": "r"},
                                                         "coeff": 1}]}  # fmt: skip
    axis = {"name": "i", "lb": constant(lb), "ub": runtime if ub is None else ub, "stride": constant(stride)}
    body = [{"name": "body", "instructions": [row("n", "NoOp")]}]
    made.x = made.add("x", "DynamicForLoop", DynamicForLoopAxis=axis, blocks=body)
    return made


def constant(value: Any) -> Any:
    return {"kind": "AffExprKind", "c": value, "terms": []} if isinstance(value, int) else value


def bound(key: str, value: Any) -> Callable[[Module], object]:
    return lambda d: d.x["DynamicForLoopAxis"].update({key: constant(value)})


RUNTIME = {"kind": "IntRuntimeValueKind", "regref": "r"}
ROUNDED = {"kind": "FloorDivKind", "numer": RUNTIME, "denom": 2}
VARYING = {"kind": "AffExprKind", "c": 0, "terms": [{"idx": RUNTIME, "coeff": 1}]}


def until() -> Module:
    made = Module()
    made.register()
    body = [{"name": "body", "instructions": [row("n", "NoOp")]}]
    made.x = made.add("x", "DoWhile", cond=dict(RUNTIME), blocks=body)
    return made


def copies(source: Any, target: Any) -> Module:
    """A copy in a loop of the run."""
    made = sound("DMACopy", [source], [target], engine="SP")
    made.register()
    loop = row("loop", "DynamicForLoop", DynamicForLoopAxis=of_count().x["DynamicForLoopAxis"],
               blocks=[{"name": "body", "instructions": [made.x]}])  # fmt: skip
    made.rows[made.rows.index(made.x)] = loop
    return made


def internal(name: str) -> Callable[[Module], object]:
    return lambda d: d.set_of(name).update(kind="Internal")


def inner_loop(axis: str) -> Callable[[Module], object]:
    def change(d: Module) -> None:
        inner = of_count().x
        inner["name"] = "y"
        inner["DynamicForLoopAxis"]["name"] = axis
        d.x["blocks"][0]["instructions"].append(inner)

    return change


LOOPS = [
    Case("BIR070", until, keys(cond=None)),
    Case("BIR071", until, keys(cond={"kind": "AffExprKind", "c": 1, "terms": []})),
    Case("BIR093", until, lambda d: d.doc["attributes"].update(loops_on_chip=True)),
    Case("BIR075", until, lambda d: d.x["blocks"][0]["instructions"].append(
        row("cc", "CollectiveCompute", kind="AllReduce", op="add", replica_groups=[[0, 1]]))),
    Case("BIR135", of_count, bound("lb", {"kind": "FloorDivKind", "numer": constant(3), "denom": 2})),
    Case("BIR136", of_count, bound("lb", VARYING)),
    Case("BIR137", of_count, bound("ub", ROUNDED)),
    Case("BIR138", of_count, bound("ub", 4)),
    Case("BIR139", of_count, bound("ub", {"kind": "AffExprKind", "c": 0, "terms": [
        {"idx": {"kind": "ShardIDKind", "ub": 2}, "coeff": 1}]})),
    Case("BIR140", of_count, bound("stride", {"kind": "FloorDivKind", "numer": constant(3), "denom": 2})),
    Case("BIR141", of_count, bound("stride", VARYING)),
    Case("BIR148", of_count, bound("ub", {"kind": "AffExprKind", "c": 0, "terms": [
        {"idx": {"kind": "IntRuntimeValueKind", "regref": "gone"}, "coeff": 1}]})),
    Case("BIR149", of_count, inner_loop("j")),
    Case("BIR251", partial(copies, sb(8, 8), sb(8, 8)), lambda d: external(d, "in0")),
    Case("BIR252", partial(copies, sb(8, 8), sb(8, 8)), lambda d: external(d, "out0")),
]  # fmt: skip


def external(d: Module, name: str) -> None:
    """Make a tensor a parameter in DRAM."""
    kind = "ExternalInput" if name == "in0" else "ExternalOutput"
    d.set_of(name)["kind"] = kind
    d.place_of(name).update(type="DRAM", allocated=False)


CASES = [*BLOCKS, *BRANCHES, *REGISTERS, *LOOPS]


def test_lur005_dynamic_loops_in_each_other_have_different_axes() -> None:
    made = of_count()
    inner_loop("i")(made)
    assert made.codes() == {"LUR005", "BIR149"}  # a nested dynamic loop breaks both
    made.x["DynamicForLoopAxis"]["name"] = "k"
    assert made.codes() == {"BIR149"}


def test_sim045_each_engine_may_return() -> None:
    """Late in the compiler each engine has instructions, branches and returns of its own."""
    engines = ("Pool", "Activation", "PE", "DVE", "SP")
    loop = [compare("b", "d", f"c{e}", e) for e in engines]
    made = flow(a=[jump("b", f"j{e}", e) for e in engines], b=loop, d=[end(f"r{e}", e) for e in engines])
    assert made.codes() == set()
    block(made, "d").append(end("again", "SP"))
    assert made.codes() == {"SIM045"}
    block(made, "d")[-1:] = [end("common", "ALL")]
    assert made.codes() == {"BIR108"}


def affine(coeff: int) -> Json:
    terms = [{"idx": {"kind": "AffIVKind", "axis": "i"}, "coeff": coeff}] if coeff else []
    return {"kind": "AffExprKind", "c": 0, "terms": terms}


CELL: Json = {"kind": "symbolic_ap", "memsetref": "in0_set", "dtype": "int32", "ap": [[8, 1], [1, 1]],
              "addrs": [affine(0), affine(1)]}  # fmt: skip
NUMBER: Json = {"kind": "symbolic_imm_value", "dtype": "int32", "value_list": [{"value": k} for k in range(8)],
                "expr": affine(1)}  # fmt: skip


@pytest.mark.parametrize(
    ("code", "made"),
    [
        ("EAE014", lambda: sound("TensorLoad", [CELL], [reg()])),
        ("EAE028", lambda: sound("RegisterMove", [NUMBER], [reg()])),
        ("EAE030", lambda: sound("CompareAndBranch", [CELL, reg()], comp_op="IS_LTIMM")),
        ("EAE031", lambda: sound("CompareAndBranch", [reg(), CELL], comp_op="IS_LTIMM")),
        ("EDP002", lambda: sound("DevicePrint", [CELL])),
    ],
)
def test_in_a_loop_symbolic_operands_stand_for_what_they_become(code: str, made: Callable[[], Module]) -> None:
    module = made()
    cell = module.tensor("in0", sb(1, 8, dtype="int32"))
    fill = module.add("fill", "Memset", [], [cell], mode="Const", constant=0)
    axis = {"name": "i", "lb": 0, "ub": 8, "stride": 1}
    loop = row("loop", "Loop", LoopAxis=axis, blocks=[{"name": "body", "instructions": [module.x]}])
    module.rows[:] = [fill, loop]
    assert code not in module.codes()
    module.x["ins"] = [BY_REGISTER if o in (CELL, NUMBER) else o for o in module.x["ins"]]
    assert code in module.codes()


@pytest.fixture(scope="module")
def found() -> Broken:
    return broken(CASES)


@pytest.mark.parametrize("code", [case.code for case in CASES])
def test_a_rule_is_broken_by_one_change(code: str, found: Broken) -> None:
    assert found[code] == (set(), {code})
