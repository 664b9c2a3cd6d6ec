"""What `make run` reads, and that all of it comes out right."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import arrowir as air
from arrowir.testing.checking import difference
from tests.oracle import run_inline, run_reservation

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "data" / "generated"


def inputs() -> list[str]:
    """The paths that the Makefile names."""
    found = re.search(r"^RUN_INPUTS \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split()


def by_rules(document: dict[str, Any]) -> dict[str, Any]:
    """The default pipeline by the second implementation of each pass."""
    for outcome in (
        run_reservation,
        lambda d: run_inline(d, allocated=False),
        lambda d: run_inline(d, allocated=True),
    ):
        document = outcome(document).doc
    return document


def test_the_pages_show_the_command_that_make_runs() -> None:
    command = f".venv/bin/arrowir run {' '.join(inputs())} -o out"
    for page in ("README.md", "docs/first-run.md"):
        assert command in (ROOT / page).read_text().splitlines()


def test_make_run_reads_every_generated_module() -> None:
    ir = air.read([ROOT / path for path in inputs()])
    names = set(ir.modules["name"].to_list())
    assert {path.name.split(".")[0] for path in GENERATED.iterdir() if path.is_file()} <= names
    assert "bir" in names  # what a front end left
    assert {"nested_mixed", "bir_json_example", "two_in"} <= names


def test_make_run_leaves_only_call_sites_that_it_skips() -> None:
    result = air.run(air.read([ROOT / path for path in inputs()]))
    assert result.ok, result.diagnostics
    left = result.ir.instructions.filter(opcode="NKIKernel").join(
        result.ir.modules, left_on="module_id", right_on="id", suffix="_of_module"
    )
    # An allocated kernel that calls one that is not: at neither position both can be taken.
    assert set(left["name_of_module"].to_list()) == {"nested_mixed"}
    assert (set(left["kernel"].to_list()), set(left["depth"].to_list())) == ({"decoder_layer"}, {1})
    skipped = {m.instruction for m in result.messages if m.code == "call_site_skipped"}
    assert set(left["original_name"].to_list()) <= skipped
    assert set(result.ir.functions.filter(is_kernel=True)["name"].to_list()) == {"attention_tkg", "mlp_tkg"}


def test_kernels_that_call_kernels_come_out_by_the_rules() -> None:
    path = GENERATED / "nested_mixed.json.gz"
    document = json.loads(gzip.decompress(path.read_bytes()))
    result = air.run(air.read(path))
    assert difference(json.loads(result.ir.to_json(0)), by_rules(document)) is None
    inner = result.ir.instructions.filter(depth=2)
    assert set(inner["kernel"].to_list()) == {"qkv_tkg", "output_projection_tkg"}


def test_kernels_that_call_kernels_are_inlined_whole_when_the_position_takes_both() -> None:
    path = GENERATED / "nested_mixed.json.gz"
    result = air.passes.inline_nki_kernel(air.read(path))
    expected = run_inline(json.loads(gzip.decompress(path.read_bytes()))).doc
    assert difference(json.loads(result.ir.to_json(0)), expected) is None
    assert result.ir.calls.is_empty()
    assert result.ir.functions["name"].to_list() == ["sg0000"]
    assert result.ir.call_chains["depth"].value_counts(sort=True).rows() == [(2, 16), (1, 4)]
