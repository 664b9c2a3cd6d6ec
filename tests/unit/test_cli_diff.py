"""`arrowir diff` and `arrowir print --provenance`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import arrowir as air
from arrowir import build
from tests.command_line import SAMPLES, SCALE_ADD, TINY, Command, document, environment, put

EXAMPLE = SAMPLES.parent / "bir_json_example.json"


@pytest.fixture
def inlined(tmp_path: Path, command: Command) -> Path:
    """The sample with a kernel, inlined; JSON and a data set."""
    assert command("run", EXAMPLE, "-o", tmp_path, "--passes", "inline_nki_kernel", "--format", "json,parquet")[0] == 0
    return tmp_path


def test_equal_files_do_not_differ(command: Command, tmp_path: Path) -> None:
    assert command("diff", SCALE_ADD, SCALE_ADD) == (0, "1 module: no difference\n", "")
    assert command("diff", SAMPLES, SAMPLES)[:2] == (0, "12 modules: no difference\n")
    assert command("convert", SAMPLES, "-o", tmp_path / "set", "--format", "parquet")[0] == 0
    assert command("diff", SAMPLES, tmp_path / "set")[:2] == (0, "12 modules: no difference\n")


def test_files_of_other_names_are_compared(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path, one=document(), other=document(), third=document("x"))
    assert command("diff", files / "one.json", files / "other.json") == (0, "1 module: no difference\n", "")
    code, out, err = command("diff", files / "one.json", files / "third.json")
    assert (code, err) == (1, "")
    assert out == "1 module: 1 differs\n\none\n  instructions   1 renamed: noop -> x\n"


def test_what_a_pass_did(command: Command, inlined: Path) -> None:
    code, out, err = command("diff", EXAMPLE, inlined / "parquet")
    assert (code, err) == (1, "")
    assert "  instructions   12 added: 1 call-site x 12 of kernel nki_add_one\n" in out
    assert "  instructions   1 removed: inst__nki_add_one (NKIKernel)\n" in out
    # JSON has no provenance: the same rows are plainly new.
    code, out, _ = command("diff", EXAMPLE, inlined / "json" / "bir_json_example.json")
    assert code == 1
    assert "  instructions   12 added: inst__nki_add_one_K-1-0 (Load), " in out
    assert "call-site x" not in out
    assert command("diff", inlined / "json", inlined / "parquet")[0] == 0


def test_json_answer(command: Command, tmp_path: Path, inlined: Path) -> None:
    code, out, err = command("diff", EXAMPLE, inlined / "parquet", "--json")
    assert (code, err) == (1, "")
    assert out.isascii()
    answer: dict[str, Any] = json.loads(out)
    assert list(answer) == ["modules", "summary", "rows"]
    (module,) = answer["modules"]
    found = air.diff(air.read(EXAMPLE), air.read(inlined / "parquet"))
    assert module["status"] == "different"
    assert module["count"] == len(answer["rows"]) == found.rows.height
    assert answer["summary"] == found.summary.to_dicts()
    assert answer["rows"] == found.rows.to_dicts()
    code, out, _ = command("diff", EXAMPLE, EXAMPLE, "--json")
    answer = json.loads(out)
    assert (code, answer["modules"][0]["status"], answer["summary"], answer["rows"]) == (0, "same", [], [])


def test_json_answer_with_odd_names(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path, a=document("x"), b=document('é"\n\x01😀'))
    code, out, _ = command("diff", files / "a.json", files / "b.json", "--json")
    assert code == 1
    assert out.isascii()
    assert json.loads(out)["rows"][0]["name_after"] == 'é"\n\x01😀'
    code, out, _ = command("diff", files / "a.json", files / "b.json")
    assert len(out.splitlines()) == 4


def test_batches_and_files_that_cannot_be_read(command: Command, tmp_path: Path) -> None:
    before = put(tmp_path / "before", a=document(), b=document(), c=document())
    after = put(tmp_path / "after", a=document(), b=document("x"), c=b"nonsense")
    code, out, err = command("diff", before, after)
    assert code == 1
    assert "error[format_error] c: " in err
    assert err.splitlines()[-1].startswith("what could not be read is not compared: ")
    assert out.startswith("3 modules: 2 differ\n\nb\n")
    assert out.endswith("c\n  modules        1 removed: c\n")
    code, out, _ = command("diff", before, after, "--json")
    listed = [(m["name"], m["status"]) for m in json.loads(out)["modules"]]
    assert listed == [("a", "same"), ("b", "different"), ("c", "removed"), ("c", "failed")]
    # Nothing differs, and yet something is wrong.
    good = put(tmp_path / "good", a=document(), z=b"nonsense")
    assert command("diff", put(tmp_path / "alone", a=document()), good)[0] == 1


@pytest.mark.parametrize("words", [[], [SCALE_ADD], [SCALE_ADD, "nowhere.json"], [SCALE_ADD, SCALE_ADD, SCALE_ADD]])
def test_wrong_usage(command: Command, words: list[object]) -> None:
    code, out, err = command("diff", *words)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


def test_a_small_comparison_loads_neither_pyarrow_nor_numba() -> None:
    code = (
        "import sys\nfrom arrowir.cli import main\n"
        f"assert main(['diff', {str(TINY)!r}, {str(SCALE_ADD)!r}]) == 1\n"
        "assert not {'pyarrow', 'numba', 'duckdb', 'pandas'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr.decode()


# -- print -------------------------------------------------------------------------------------------------------------


def test_print_shows_provenance_on_request(command: Command, inlined: Path) -> None:
    code, plain, _ = command("print", inlined / "parquet")
    assert code == 0
    code, shown, _ = command("print", inlined / "parquet", "--provenance")
    assert code == 0
    assert shown == air.read(inlined / "parquet").text(provenance=True)
    more = [(a, b) for a, b in zip(plain.splitlines(), shown.splitlines(), strict=True) if a != b]
    assert len(more) == 14  # instructions and locations
    assert all(b.startswith(f"{a}  ; nki_add_one @ inst__nki_add_one, was ") for a, b in more)
    assert "; nki_add_one" not in command("print", inlined / "json", "--provenance")[1]


def test_the_text_of_a_module_that_nothing_was_inlined_into_is_the_same() -> None:
    module = build.module()
    module.function().add("NoOp")
    ir = module.ir("m")
    assert ir.text(0, provenance=True) == ir.text(0)
