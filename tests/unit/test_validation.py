"""`air.run(check=N)` and `arrowir run --check N`: runs that are proved by execution."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import arrowir as air
from arrowir import build
from arrowir.diagnostics import CODES
from arrowir.ir import IR
from arrowir.passes.base import Pass, Plan
from arrowir.testing import front_end as workload
from arrowir.validation import CheckedRunResult
from tests.command_line import SAMPLES, TINY, Command, put


def module(opcode: str = "TensorCopy", source: str = "Beta1") -> air.build.ModuleBuilder:
    made = build.module()
    kernel = made.kernel("k")
    a, b = kernel.input("a", (2, 3), kind="Input"), kernel.output("b", (2, 3), kind="Output")
    kernel.add(opcode, [a], [b], name="move")
    f = made.function()
    f.call(kernel, {a: f.input("x", (2, 3))}, {b: f.output("y", (2, 3))}, name="call", kernel_source_val=source)
    return made


def batch() -> IR:
    """A module that can be executed, one that cannot, and another that can."""
    return air.concat([module().ir("first"), module("BrandNewOp").ir("second"), module().ir("third")])


def spoiled(ir: IR) -> IR:
    """Let all accesses of the last module begin one element later."""
    operands = ir.tables["operands"]
    last = ir.array("operands", "module_id") == len(ir) - 1
    pattern = ir.pools.patterns.intern("[[3,2],[1,2]]")
    changed = operands.replace(
        offset=np.where(last, operands["offset"] + 1, operands["offset"]),
        pattern_id=np.where(last, pattern, operands["pattern_id"]),
    )
    return ir.replace(operands=changed)


def front_end(folder: Path) -> Path:
    """Write a module that names kernel files, and these."""
    workload.write(folder)
    return folder / "sg00/bir.json"


class TestKernelFiles:
    """What a module that names kernel files computes is known once these are brought in: the check begins there."""

    def test_it_is_compared_from_there_on(self, tmp_path: Path) -> None:
        ir = air.concat([module().ir("first"), air.read(front_end(tmp_path))])
        result = air.run(ir, check=1)
        assert result.checks.statuses == {0: "equal", 1: "equal"}
        assert [m.code for m in result.messages if m.pass_name == "check"] == []

    def test_a_difference_shows(self, tmp_path: Path) -> None:
        ir = air.concat([module().ir("first"), air.read(front_end(tmp_path))])
        result = air.run(ir, [*air.passes.default_steps(), (70, spoiled)], check=1, verify="none")
        assert result.checks.statuses == {0: "equal", 1: "different"}

    def test_where_nothing_brings_them_in_the_note_says_what_does(self, tmp_path: Path) -> None:
        result = air.run(air.read(front_end(tmp_path)), ["unroll"], check=1)
        (row,) = result.messages
        assert row.code == "not_executable"
        assert "let `translate_nki_ast_to_bir` make a function of the module of it" in row.message

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        path = front_end(tmp_path)
        (tmp_path / "kernels/add_bias.json").unlink()
        result = air.run(air.read(path), check=1)
        assert [m.code for m in result.messages] == ["kernel_file_missing", "not_executable"]

    def test_the_command_does_the_same(self, command: Command, tmp_path: Path) -> None:
        path = front_end(tmp_path)
        code, out, _ = command("run", path, "-o", tmp_path / "out", "--check", "1")
        assert code == 0
        assert out.splitlines()[1].endswith("equal")


class TestPython:
    def test_without_a_check_nothing_is_executed(self) -> None:
        result = air.run(batch())
        assert not isinstance(result, CheckedRunResult)
        assert "not_executable" not in [m.code for m in result.messages]

    def test_each_module_is_executed_before_and_after(self) -> None:
        result = air.run(batch(), check=2)
        assert isinstance(result, air.CheckedRunResult)
        assert result.ok
        assert result.checks.statuses == {0: "equal", 1: "not_executable", 2: "equal"}
        assert result.checks.frame.height == 6
        notes = result.diagnostics.filter(code="not_executable")
        assert notes.select("module", "pass", "severity", "module_id", "instruction").rows() == [
            ("second", "check", "note", 1, "move")
        ]
        assert notes["message"].to_list() == ["not checked: the opcode `BrandNewOp` is not modelled"]

    def test_it_looks_like_the_result_of_a_run(self) -> None:
        assert repr(air.run(batch(), check=1)) == "<arrowir.RunResult: 6 passes, modules: 3 changed>"

    def test_the_rest_of_the_result_is_that_of_a_run(self) -> None:
        plain, result = air.run(batch()), air.run(batch(), check=1)
        assert result.status.equals(plain.status)
        assert result.steps.drop("seconds").equals(plain.steps.drop("seconds"))
        assert [result.ir.to_json(m) for m in range(3)] == [plain.ir.to_json(m) for m in range(3)]
        assert result.messages[: len(plain.messages)] == plain.messages

    def test_a_difference_is_an_error_row(self) -> None:
        result = air.run(batch(), ["inline_nki_kernel", spoiled], check=2)
        assert not result.ok
        assert result.checks.statuses == {0: "equal", 1: "not_executable", 2: "different"}
        row = result.diagnostics.filter(code="not_equivalent").row(0, named=True)
        assert (row["module"], row["module_id"], row["pass"], row["severity"]) == ("third", 2, "check", "error")
        assert (row["instruction"], row["location"]) == (None, "y")
        assert result.ir.instructions["name"].to_list().count("call_move") == 3
        assert row["message"].startswith(
            "it does not compute what it did before the run, on 2 of 2 random inputs: `y` differs first at [0, 0]: "
        )
        # the module is not failed: the passes are done with it
        assert result.status.to_list() == ["changed"] * 3

    def test_the_instruction_is_a_row_of_the_result(self) -> None:
        def doubled(ir: IR) -> IR:
            made = build.module()
            f = made.function()
            x, y = f.input("x", (2, 3)), f.output("y", (2, 3))
            f.add("TensorTensor", [x, x], [y], name="sum", op="add")
            return made.ir("m")

        plain = build.module()
        f = plain.function()
        f.add("TensorCopy", [f.input("x", (2, 3))], [f.output("y", (2, 3))])
        result = air.run(plain.ir("m"), [doubled], check=1)
        row = result.diagnostics.filter(code="not_equivalent").row(0, named=True)
        assert result.ir.instructions["name"][row["instruction_id"]] == row["instruction"] == "sum"
        assert "on a random input: `y` differs first at [0, 0]" in row["message"]

    def test_strict_raises_on_a_difference(self) -> None:
        with pytest.raises(air.PassError, match="not_equivalent"):
            air.run(batch(), [spoiled], check=1, strict=True)
        assert air.run(batch(), check=1, strict=True).checks.statuses[1] == "not_executable"

    def test_failed_and_unchanged_modules_are_executed_too(self) -> None:
        plain = build.module()
        f = plain.function()
        f.add("TensorCopy", [f.input("x", (2, 3))], [f.output("y", (2, 3))])
        ir = air.concat([module().ir(), module(source="Beta9").ir(), plain.ir()])
        result = air.run(ir, ["inline_nki_kernel"], check=1)
        assert result.status.to_list() == ["changed", "failed", "unchanged"]
        assert result.checks.statuses == dict.fromkeys(range(3), "equal")

    def test_progress_goes_on_with_the_modules(self) -> None:
        told: list[tuple[str, int, int]] = []
        air.run(batch(), ["unroll"], check=1, progress=lambda *state: told.append(state))
        assert told == [("unroll", 0, 1), *(("checking", m, 3) for m in range(3))]

    def test_the_shard_is_that_of_the_passes(self) -> None:
        assert air.run(batch(), check=1, options={"inline_nki_kernel": {"shard_id": 2}}).ok
        passes = [air.passes.Unroll(shard_id=1), air.passes.InlineNkiKernel(shard_id=2)]
        with pytest.raises(air.OptionError, match=r"different shards \(1, 2\)"):
            air.run(batch(), passes, check=1)

    @pytest.mark.parametrize("check", [-1, 1.0, "2", None, True])
    def test_a_wrong_number_is_told(self, check: Any) -> None:
        with pytest.raises(air.OptionError, match="`check` takes a number of random inputs"):
            air.run(batch(), check=check)

    def test_codes_are_registered(self) -> None:
        assert (CODES["not_equivalent"].severity, CODES["not_equivalent"].fatal) == ("error", False)
        assert CODES["not_executable"].severity == "note"


class Offsets(Pass):
    """A pass with a fault, for the command."""

    name = "spoil"

    def plan(self, ir: IR, active: Any) -> Plan:
        return Plan(np.ones(len(ir), np.int8) * 1, [], None)

    def apply(self, ir: IR, plan: Plan) -> IR:
        return spoiled(ir)


@pytest.fixture
def spoil() -> Iterator[None]:
    air.passes.register(Offsets)
    yield
    air.passes.unregister("spoil")


def texts(*modules: air.build.ModuleBuilder) -> dict[str, bytes]:
    return {name: json.dumps(made.json()).encode() for name, made in zip("abc", modules, strict=False)}


class TestCommand:
    def test_the_closing_table_says_what_came_of_it(self, command: Command, tmp_path: Path) -> None:
        put(tmp_path / "in", **texts(module(), module("BrandNewOp")))
        code, out, err = command("run", tmp_path / "in", "-o", tmp_path / "out", "--check", 2)
        lines = out.splitlines()
        assert code == 0
        assert lines[0].endswith("  executed")
        assert lines[1].startswith("a ")
        assert lines[1].endswith("equal")
        assert lines[2].endswith("not executable")
        assert "1 note" in err
        noted = pl.read_parquet(tmp_path / "out/diagnostics.parquet").filter(code="not_executable")
        assert noted["module"].to_list() == ["b"]

    def test_without_it_there_is_no_column(self, command: Command, tmp_path: Path) -> None:
        put(tmp_path / "in", **texts(module()))
        assert "executed" not in command("run", tmp_path / "in", "-o", tmp_path / "out")[1]
        answer = json.loads(command("run", tmp_path / "in", "-o", tmp_path / "out", "--json")[1])
        assert "check" not in answer["modules"][0]

    @pytest.mark.usefixtures("spoil")
    def test_a_difference_is_an_error_and_exit_code_1(self, command: Command, tmp_path: Path) -> None:
        put(tmp_path / "in", **texts(module(), module()))
        words = ("run", tmp_path / "in", "-o", tmp_path / "out", "--passes", "inline_nki_kernel,spoil", "--check", 1)
        code, out, err = command(*words)
        assert code == 1
        assert out.splitlines()[2].endswith("different")
        assert "error[not_equivalent] b: it does not compute what it did before the run, on a random input: `y`" in err
        code, out, _ = command(*words, "--json")
        answer = json.loads(out)
        assert code == 1
        assert [m["check"] for m in answer["modules"]] == ["equal", "different"]
        (row,) = [d for d in answer["diagnostics"] if d["code"] == "not_equivalent"]
        assert (row["module"], row["location"], row["pass"]) == ("b", "y", "check")
        code, _, err = command(*words, "--strict")
        assert code == 1
        assert "not_equivalent" in err

    def test_samples_compute_what_they_did(self, command: Command, tmp_path: Path) -> None:
        code, out, _ = command("run", SAMPLES, "-o", tmp_path / "out", "--check", 1, "--json")
        assert code == 0
        assert {m["check"] for m in json.loads(out)["modules"]} == {"equal"}

    @pytest.mark.parametrize("number", ["0", "-1", "x", "1.5"])
    def test_a_wrong_number_is_a_usage_error(self, command: Command, tmp_path: Path, number: str) -> None:
        put(tmp_path / "in", **texts(module()))
        code, _, err = command("run", tmp_path / "in", "-o", tmp_path / "out", f"--check={number}")
        assert code == 2
        assert f"`{number}` is no number of random inputs: it must be at least 1" in err


def test_library_kernels_are_checked_to_a_tolerance() -> None:
    ir = air.read(TINY.with_name("library.json"))
    exact = air.run(ir, check=1)
    close = air.run(ir, check=1, check_tolerance=0.01)
    assert (exact.checks.statuses, close.checks.statuses) == ({0: "different"}, {0: "equal"})
    assert "not_equivalent" in exact.diagnostics["code"].to_list()
    assert "not_equivalent" not in close.diagnostics["code"].to_list()
