"""The module of mixture-of-experts layers: its loops of run time inline, by the rules and with the same results."""

import json
from pathlib import Path

import pytest

import arrowir as air
from arrowir.ir import IR
from arrowir.testing import expert_modules
from arrowir.testing.assertions import assert_valid
from arrowir.testing.checking import problems
from tests.oracle import run_inline

COMMITTED = Path(__file__).parents[2] / "data" / "generated" / "experts.json"


@pytest.fixture(scope="module")
def ir() -> IR:
    return air.read(COMMITTED)


def test_the_module_is_sound() -> None:
    assert problems(json.loads(COMMITTED.read_text())) == []
    with pytest.raises(ValueError, match="at least 1"):
        expert_modules.layers(0)


def test_its_kernels_are_inlined_by_the_default_order_and_compute_what_they_did(ir: IR) -> None:
    result = air.run(ir, check=3)
    assert result.ok
    assert result.checks.statuses == {0: "equal"}
    assert_valid(result.ir)
    assert result.ir.calls.is_empty()
    left = set(result.ir.instructions["opcode"].to_list())
    assert not left & {"Loop", "DynamicForLoop", "DoWhile"}
    assert {"RegisterMove", "RegisterAlu", "CompareAndBranch", "UnconditionalBranch"} <= left
    names = result.ir.blocks["name"].to_list()
    assert names[1:5] == [f"router0_Block1_{what}_1" for what in ("LoopEntry", "LoopBody", "LoopExit", "Resume")]
    assert set(result.ir.instructions.filter(name="experts1_times-1")["original_name"].to_list()) == {"times"}


def test_it_comes_out_by_the_rules(ir: IR) -> None:
    after = air.passes.inline_nki_kernel(ir).ir
    assert json.loads(after.to_json(0)) == run_inline(json.loads(COMMITTED.read_text())).doc
