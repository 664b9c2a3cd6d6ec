"""The verifier as a whole: every rule has a case, the list of the compiler's rules, samples, and what one asks for."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arrowir as air
from arrowir import extras
from arrowir.testing import workloads
from arrowir.verify import checking, registry
from tests.rules import (
    test_verify_call_sites,
    test_verify_control_flow,
    test_verify_dma,
    test_verify_memory,
    test_verify_operands,
    test_verify_products,
    test_verify_structure,
)
from tests.single_pass import read

FILES = (
    test_verify_call_sites,
    test_verify_control_flow,
    test_verify_dma,
    test_verify_memory,
    test_verify_operands,
    test_verify_products,
    test_verify_structure,
)
APART = frozenset({"BIR087", "BIR088", "LUR005", "ambiguous_callee"})
"""Rules that cannot be broken alone, or whose test stands by itself."""


def test_every_rule_is_broken_by_a_case() -> None:
    cases = {case.code for file in FILES for case in file.CASES}
    assert cases | APART == registry.rules().keys()
    assert not cases & APART
    for code in APART:
        assert any(code in Path(str(file.__file__)).read_text() for file in FILES)


def test_a_hundred_and_fifty_rules_of_the_list_are_done() -> None:
    assert len(registry.rules().keys() & registry.catalogue().keys()) >= 150


def test_every_rule_of_the_list_is_done_or_has_a_reason() -> None:
    done = set(registry.rules()) | {code for rule in registry.rules().values() for code in rule.same}
    assert len(registry.catalogue()) == 628
    for listed in registry.catalogue().values():
        if listed.code in done:
            assert not listed.state, listed.code
        else:
            assert listed.state in registry.STATES, listed.code
            assert listed.why, listed.code


@pytest.mark.parametrize("rule", registry.rules().values(), ids=lambda rule: rule.code)
def test_a_rule_says_what_it_means_and_what_to_do(rule: registry.Rule) -> None:
    assert rule.level in registry.LEVELS
    assert rule.meaning and rule.advice  # noqa: PT018
    assert not rule.meaning.endswith(".")
    assert rule.code in registry.catalogue() or re.fullmatch(r"[a-z_]+|INLA001|SEED-source|KERN-base0", rule.code)


# -- samples and generated modules ----


def errors(ir: air.IR) -> list[Any]:
    return air.verify(ir).filter(severity="error").select("module", "rule", "message", "instruction").rows()


@pytest.mark.parametrize("path", ["data/samples/klr009", "data/samples/bir_json_example.json", "data/generated"])
def test_samples_have_no_errors(path: str) -> None:
    assert errors(air.read(path)) == []


def test_the_zoo_holds_values_that_mean_nothing() -> None:
    found = air.verify(air.read("data/samples/opcode_zoo.json")).filter(severity="error")
    # Each was looked at: one value of a closed list after the other, operands of one shape, names of nothing.
    assert set(found["rule"]) == ZOO


ZOO = {
    *("BIR015", "BIR028", "BIR067", "BIR072", "BIR080", "BIR084", "BIR107", "BIR113", "BIR131", "BIR226", "BIR253"),
    *("BIR254", "BIR255", "BIR412", "EAE008", "EAE009", "EAE010", "EAE015", "EAE020", "EAE028", "EAE029", "EBIR014"),
    *("EBIR015", "EBIR019", "EBIR025", "EIL004", "IBIR302", "IBIR303", "SIM098", "SIM099", "SIM100", "SQI002"),
    "unresolved_block",
}


@pytest.mark.parametrize(
    ("kind", "allocated"),
    [*product(("decode", "prefill", "mega", "tiny"), (True, False, "mixed")), ("loops", True)],  # these are placed
)
def test_generated_modules_have_no_errors_before_and_after_the_passes(kind: str, allocated: Any) -> None:
    ir = read(workloads.module(kind, layers=1, scale=0.1, allocated=allocated))
    assert errors(ir) == []
    result = air.run(ir, options={"inline_nki_kernel": {"allocated": None}})
    assert result.ok, result.diagnostics
    assert errors(result.ir) == []


def test_generated_call_sites_and_kernels_have_no_errors() -> None:
    for operands in range(1, 6):
        ir = read(workloads.call_sites(3, 20, operands=operands))
        assert errors(ir) == []
        assert errors(air.passes.inline_nki_kernel(ir).ir) == []
    assert errors(read(workloads.kernel(100))) == []
    assert errors(read(workloads.kernel(100, lowered=True))) == []


# -- what a caller chooses ----


def test_levels_are_checked() -> None:
    ir = air.read("data/generated/tiny.json")
    for wrong in ("memories", ["memory", "x"], [3]):
        with pytest.raises(air.OptionError, match="there is no level"):
            air.verify(ir, wrong)  # type: ignore[arg-type]
    with pytest.raises(air.OptionError, match=r"`arrowir\.IR`"):
        air.verify("x.json")  # type: ignore[arg-type]


def test_levels_choose_rules() -> None:
    ir = air.read("data/samples/opcode_zoo.json")
    every = air.verify(ir)
    for level in registry.DEFAULT:
        if level != "unrolled":
            assert air.verify(ir, level).equals(every.filter(level=level)), level
    assert set(air.verify(ir, ["operands", "memory"])["level"]) <= {"operands", "memory"}


def test_the_table_is_typed_when_nothing_is_found() -> None:
    found = air.verify(air.build.module().ir())
    assert found.is_empty()
    assert found.columns == list(checking.COLUMNS)
    assert found.schema == air.verify(air.read("data/samples/opcode_zoo.json")).schema


def test_members_of_each_instruction_are_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members that are another for each instruction make each text another: time grows with them, not by rules."""
    document = json.loads(read(workloads.kernel(200)).to_json(0))
    rows = [row for f in document["functions"] for block in f["blocks"] for row in block["instructions"]]
    for number, row in enumerate(rows):
        row["predicted_latency_ns"] = number
    ir = read(document)
    wanted = air.verify(ir)
    parse, parsed = extras.parse.__wrapped__, 0

    def counted(text: str) -> Any:
        nonlocal parsed
        parsed += 1
        return parse(text)

    counted.__wrapped__ = counted  # type: ignore[attr-defined]
    monkeypatch.setattr(extras, "parse", counted)
    assert air.verify(ir).equals(wanted)
    assert len(rows) <= parsed < 2 * len(rows)


def test_a_batch_gives_what_each_module_gives() -> None:
    batch = air.read(["data/generated", "data/samples"])
    every = air.verify(batch).select("module", "rule", "message", "function", "instruction", "slot", "location")
    single = [air.verify(batch.select([m])).select(every.columns) for m in range(len(batch))]
    assert every.equals(pl.concat(single))


def test_what_comes_from_a_kernel_has_its_names() -> None:
    """P2: code, kernel, original name and slot of a finding are the same before and after inlining."""
    ir = air.read("data/generated/decode_8_layers.json")
    first = ir.instructions.filter(opcode="Matmult", function_id=1).row(0, named=True)
    assert first["function_id"] == 1
    documents = json.loads(ir.to_json(0))
    for row in documents["nki_functions"]["functions"][0]["blocks"][0]["instructions"]:
        if row["opcode"] == "Matmult":
            row["ins"][0]["offset"] += 1_000_000
            break
    ir = read(documents)
    before, after = (checking.find(each, "memory") for each in (ir, air.passes.inline_nki_kernel(ir).ir))
    assert before.errors.sum() == 1
    assert after.errors.sum() == 8  # one in each layer
    assert set(named(after)) == set(named(before))


def named(found: checking.Findings) -> list[tuple[str, str, str, str]]:
    return checking.identities(found, np.flatnonzero(found.errors))
