"""Drawn modules can be executed, and reach when they are what they are there for."""

import json
from collections import Counter

import pytest

import arrowir as air
from arrowir.testing import executed
from arrowir.testing.bir import Json
from arrowir.testing.checking import problems
from arrowir.testing.drawing import Simplest
from arrowir.testing.executable import ExecutableModule, Shape, document
from arrowir.testing.executed import Reached, reached

MODULES = 200

LEAST = {
    # control flow
    "branch:back": 25,
    "branch:forward": 60,
    "branch:on_false": 35,
    "branch:on_true": 45,
    "branch:out of a loop": 1,
    "branch:to the entry": 6,
    "return:early": 25,
    "loop:no trips": 35,
    "loop:several blocks": 20,
    "in a loop of depth 2": 20,
    "opcode:Break": 5,
    "opcode:DoWhile": 8,
    "opcode:DynamicForLoop": 6,
    "opcode:Loop": 90,
    # calls
    "opcode:NKIKernel": 120,
    "in a kernel of a kernel": 15,
    "call:in a loop": 10,
    "call:again from elsewhere": 40,
    "call:again from the same place": 12,
    # operands
    "operand:dynamic": 60,
    "operand:imm_value": 100,
    "operand:register_access": 100,
    "operand:register_ap": 35,
    "operand:symbolic_ap": 120,
    "operand:symbolic_imm_value": 20,
    "operand:symbolic_pwap": 50,
    # what is computed
    **dict.fromkeys(("opcode:TensorScalar", "opcode:TensorTensor", "opcode:Memset", "opcode:RegisterMove"), 90),
    **dict.fromkeys(("opcode:Activation", "opcode:DMACopy", "opcode:Load", "opcode:Save", "opcode:TensorCopy"), 50),
    **dict.fromkeys(("opcode:RegisterAlu", "opcode:TensorReduce", "opcode:TensorScalarPtr", "opcode:Matmult"), 20),
    **dict.fromkeys(("opcode:CopyPredicated", "opcode:Iota", "opcode:TensorLoad"), 8),
    **dict.fromkeys(("opcode:Select", "opcode:IndirectLoad"), 4),
}
"""In how many of so many modules a feature has to be executed at least."""


@pytest.fixture(scope="module")
def found() -> Reached:
    reach = reached((document(seed) for seed in range(MODULES)), every=3)
    print(f"\n{reach}")
    return reach


def test_all_of_them_can_be_executed(found: Reached) -> None:
    assert found.failures == []
    assert found.executed == MODULES


def test_what_most_compute_depends_on_inputs(found: Reached) -> None:
    assert found.compared > 50
    assert found.dependent >= 0.8 * found.compared


def test_they_reach_what_they_are_there_for(found: Reached) -> None:
    assert {name: found.shares[name] for name, least in LEAST.items() if found.shares[name] < least} == {}


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
    for seed in range(40):
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
