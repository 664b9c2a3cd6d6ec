"""Drawn modules can be executed, and reach when they are what they are there for."""

import json
from collections import Counter
from collections.abc import Callable

import pytest

import arrowir as air
from arrowir.testing import executed
from arrowir.testing.bir import Json
from arrowir.testing.checking import problems
from arrowir.testing.drawing import Simplest
from arrowir.testing.executable import ExecutableModule, Shape, document
from arrowir.testing.executed import Reached, reached

MODULES = 100
AT_LENGTH = 1000

LEAST = {
    # control flow
    "branch:back": 12,
    "branch:forward": 30,
    "branch:on_false": 17,
    "branch:on_true": 22,
    "branch:out of a loop": 1,
    "branch:to the entry": 3,
    "return:early": 12,
    "loop:no trips": 17,
    "loop:several blocks": 10,
    "in a loop of depth 2": 10,
    "opcode:Break": 2,
    "opcode:DoWhile": 4,
    "opcode:DynamicForLoop": 3,
    "opcode:Loop": 45,
    # calls
    "opcode:NKIKernel": 60,
    "in a kernel of a kernel": 7,
    "call:in a loop": 5,
    "call:again from elsewhere": 20,
    "call:again from the same place": 6,
    # operands
    "operand:dynamic": 30,
    "operand:imm_value": 50,
    "operand:register_access": 50,
    "operand:register_ap": 17,
    "operand:symbolic_ap": 60,
    "operand:symbolic_imm_value": 10,
    "operand:symbolic_pwap": 25,
    # what is computed
    **dict.fromkeys(("opcode:TensorScalar", "opcode:TensorTensor", "opcode:Memset", "opcode:RegisterMove"), 45),
    **dict.fromkeys(("opcode:Activation", "opcode:DMACopy", "opcode:Load", "opcode:Save", "opcode:TensorCopy"), 25),
    **dict.fromkeys(("opcode:RegisterAlu", "opcode:TensorReduce", "opcode:TensorScalarPtr", "opcode:Matmult"), 10),
    **dict.fromkeys(("opcode:CopyPredicated", "opcode:Iota", "opcode:TensorLoad"), 4),
    **dict.fromkeys(("opcode:Select", "opcode:IndirectLoad"), 2),
}
"""In how many of so many modules a feature has to be executed at least."""


@pytest.fixture(scope="module")
def found(report: Callable[[str], None]) -> Reached:
    reach = reached((document(seed) for seed in range(MODULES)), every=3)
    report(reach.brief)
    return reach


def test_all_of_them_can_be_executed(found: Reached) -> None:
    assert found.failures == []
    assert found.executed == MODULES


def test_what_most_compute_depends_on_inputs(found: Reached) -> None:
    assert found.compared > 30
    assert found.dependent >= 0.8 * found.compared


def test_they_reach_what_they_are_there_for(found: Reached) -> None:
    assert {name: found.shares[name] for name, least in LEAST.items() if found.shares[name] < least} == {}


@pytest.mark.slow
def test_what_they_reach_at_length(report: Callable[[str], None]) -> None:
    many = reached((document(seed) for seed in range(10_000, 10_000 + AT_LENGTH)), every=10)
    report(many.brief)
    assert many.failures == []
    least = {name: number * AT_LENGTH // MODULES * 3 // 4 for name, number in LEAST.items()}
    assert {name: many.shares[name] for name, number in least.items() if many.shares[name] < number} == {}


def test_they_are_sound_documents() -> None:
    assert [(seed, problems(document(seed))) for seed in range(MODULES) if problems(document(seed))] == []


def opcodes(drawn: Json) -> Counter[str]:
    ir = air.read_json(json.dumps(drawn).encode())
    return Counter(ir.instructions["opcode"].to_list())


@pytest.mark.parametrize(
    ("shape", "without"),
    [
        ({"calls": False}, ["NKIKernel"]),
        ({"blocks": False}, ["CompareAndBranch", "UnconditionalBranch", "Break"]),
        ({"unrollable": True}, ["DoWhile", "DynamicForLoop", "Break"]),
    ],
)
def test_features_can_be_left_out(shape: dict[str, bool], without: list[str]) -> None:
    counts = Counter[str]()
    for seed in range(30):
        counts += opcodes(document(seed, **shape))
    assert {name: counts[name] for name in without} == dict.fromkeys(without, 0)
    assert counts["Loop"] > 20


def test_without_nesting_kernels_call_nothing() -> None:
    for seed in range(20):
        ir = air.read_json(json.dumps(document(seed, nested=False)).encode())
        calls = ir.instructions.filter(opcode="NKIKernel").join(ir.functions, left_on="function_id", right_on="id")
        assert not calls["is_kernel"].any()


def test_the_simplest_one_is_small() -> None:
    drawn = ExecutableModule(Simplest(), Shape()).draw()
    assert sum(opcodes(drawn).values()) < 12
    assert reached([drawn]).failures == []


def test_a_module_that_cannot_be_executed_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    broken = ExecutableModule(Simplest(), Shape()).draw()
    broken["functions"][0]["blocks"][0]["instructions"][0]["opcode"] = "BrandNewOp"
    assert "BrandNewOp" in str(reached([broken]))
    assert executed.main(["--count", "2", "--seed", "5", "--no-calls"]) == 0
    assert "2 modules, 2 executed; " in capsys.readouterr().out


def test_kernels_have_loops_of_all_kinds_where_these_can_become_branches() -> None:
    found: Counter[str] = Counter()
    for seed in range(60):
        kernels = document(seed, lowerable=True)["nki_functions"]
        text = json.dumps(kernels)
        found.update(word for word in ("DynamicForLoop", "DoWhile", "Break", "block1") if f'"{word}"' in text)
    assert min(found[word] for word in ("DynamicForLoop", "DoWhile", "Break", "block1")) >= 4, found
