"""`arrowir verify`: what it prints, its exit codes, and its JSON."""

import json
from pathlib import Path

import pytest

from tests.command_line import SCALE_ADD, TINY, Command
from tests.single_pass import written
from tests.verified import sb, sound

ZOO = Path(SCALE_ADD).parents[1] / "opcode_zoo.json"


def faulty(folder: Path, *, times: int = 1) -> Path:
    """Write a module with an access out of bounds, `times` over."""
    made = sound("TensorCopy", [sb(128, 64)], [sb(128, 64)], engine="DVE")
    for number in range(times):
        made.add(
            f"bad{number}", "TensorCopy", [{**made.x["ins"][0], "offset": 1}], [made.x["outs"][0]], can_read_uninit=True
        )
    path = folder / "faulty.json"
    path.write_bytes(written(made.doc))
    return path


def test_a_sound_module_gives_0_and_one_line(command: Command) -> None:
    code, out, err = command("verify", SCALE_ADD)
    assert (code, out, err) == (0, "1 module: nothing found\n", "")


def test_an_error_gives_1_and_says_where_and_what_to_do(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("verify", faulty(tmp_path), SCALE_ADD)
    assert code == 1
    first, second, last = out.splitlines()
    assert first == (
        "error[IBIR158] faulty: Access pattern out of bounds on instruction 'bad0'. Pattern: [[64,128],[1,64]] "
        "(function `f`, block `b`, instruction `bad0`, operand `ins[0]`, set `in0_set`, location `in0`)"
    )
    assert second.startswith("  error of level memory: a pattern stays in its location, and in its partitions; correct")
    assert last == "2 modules: 1 error"


def test_many_findings_of_a_rule_are_cut_and_counted(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("verify", faulty(tmp_path, times=25))
    assert code == 1
    assert out.count("error[IBIR158]") == 10
    assert "... and 15 more findings of `IBIR158`, in 1 module" in out
    assert out.endswith("1 module: 25 errors\n")


def test_json_has_the_modules_and_every_finding(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("verify", faulty(tmp_path, times=25), TINY, "--json")
    answer = json.loads(out)
    assert code == 1
    assert [(m["name"], m["errors"], m["warnings"]) for m in answer["modules"]] == [("faulty", 25, 0), ("tiny", 0, 0)]
    errors = [f for f in answer["findings"] if f["severity"] == "error"]
    assert len(errors) == 25
    assert errors[0]["module"] == "faulty"
    assert errors[0]["slot"] == "ins[0]"
    assert errors[0]["advice"].startswith("correct the pattern")


def test_warnings_and_notes_are_no_failure(command: Command) -> None:
    code, out, _ = command("verify", TINY)
    assert code == 0
    assert "note[GCA056] tiny: Illegal IR, encountered unused define" in out
    code, out, _ = command("verify", TINY, "--quiet")
    assert (code, out) == (0, "1 module: 16 notes\n")


def test_levels_are_chosen_and_checked(command: Command, tmp_path: Path) -> None:
    path = faulty(tmp_path)
    assert command("verify", path, "--level", "operands,structure")[0] == 0
    assert command("verify", path, "--level", "operands", "--level", "memory")[0] == 1
    assert command("verify", path, "--level", "all")[0] == 1
    assert command("verify", path, "--level", "operands,all")[0] == 1
    code, _, err = command("verify", path, "--level", "memories")
    assert code == 2
    assert "there is no level 'memories'; the levels are `references`, `structure`" in err


def test_a_file_that_cannot_be_read_is_a_failure_among_the_modules(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    code, out, err = command("verify", tmp_path / "broken.json", SCALE_ADD, "--json")
    answer = json.loads(out)
    assert code == 1
    assert [m["name"] for m in answer["modules"]] == ["broken", "scale_add"]
    assert answer["modules"][0]["status"] == "failed"
    assert "format_error" in err


def test_a_file_that_cannot_be_read_is_not_said_to_be_sound(command: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{")
    assert command("verify", tmp_path / "broken.json")[:2] == (1, "0 modules: nothing found; 1 file not read\n")
    _, out, _ = command("verify", tmp_path / "broken.json", SCALE_ADD)
    assert out == "1 module: nothing found; 1 file not read\n"


@pytest.mark.parametrize("member", ["error", "warning", "note"])
def test_the_worst_comes_first(command: Command, member: str) -> None:
    _, out, _ = command("verify", ZOO)
    order = [line.split("[")[0] for line in out.splitlines() if not line.startswith((" ", "...")) and "[" in line]
    assert order == sorted(order, key=["error", "warning", "note"].index)
    assert member in order or member == "warning"


def test_run_names_the_option(command: Command, tmp_path: Path) -> None:
    for when in ("none", "ends", "each"):
        assert command("run", TINY, "-o", tmp_path / when, "--verify", when)[0] == 0
