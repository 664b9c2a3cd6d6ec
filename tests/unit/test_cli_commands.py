"""`convert`, `info`, `print`, `sql` and `passes`, and the streams that they write to."""

import io
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import arrowir as air
from arrowir import build
from arrowir import diagnostics as diag
from arrowir.cli import console
from arrowir.cli.info import count
from tests.command_line import (
    SAMPLES,
    SCALE_ADD,
    TINY,
    Command,
    command_line,
    document,
    environment,
    listing,
    put,
    spawn,
)

# -- convert ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["y.json", "y.json.gz", "y.json.zst", "deep/y.bir.json"])
def test_convert_to_one_file(command: Command, tmp_path: Path, name: str) -> None:
    code, out, err = command("convert", SCALE_ADD, "-o", tmp_path / name)
    assert (code, out) == (0, "")
    assert err == f"wrote 1 module to {tmp_path / name}\n"
    assert air.read(tmp_path / name).to_json() == air.read(SCALE_ADD).to_json()
    assert listing(tmp_path) == [name]


def test_convert_there_and_back(command: Command, tmp_path: Path) -> None:
    assert command("convert", SAMPLES, "-o", tmp_path / "set")[0] == 0
    assert command("convert", tmp_path / "set", "-o", tmp_path / "json")[0] == 0
    assert len(listing(tmp_path / "json")) == 12
    for name in ("chain4", "alu_zoo"):
        assert (tmp_path / f"json/{name}.json").read_bytes() == air.read(SAMPLES / f"{name}.bir.json").to_json()
    code, out, _ = command("convert", tmp_path / "set", "-o", tmp_path / "again", "--format", "json", "--json")
    assert code == 0
    first = json.loads(out)["modules"][0]
    assert (first["name"], first["status"]) == ("alu_zoo", "converted")
    assert first["output"] == str(tmp_path / "again/alu_zoo.json")


def test_convert_of_many_modules_makes_a_folder_of_any_name(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document())
    assert command("convert", files, "-o", tmp_path / "y.json")[0] == 0
    assert listing(tmp_path / "y.json") == ["a.json", "b.json"]


def test_convert_with_an_unreadable_input_writes_the_rest(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=b"nonsense")
    code, _, err = command("convert", files, "-o", tmp_path / "out", "--format", "json")
    assert code == 1
    assert "error[format_error] b: " in err
    assert listing(tmp_path / "out") == ["a.json"]
    assert command("convert", files, "-o", tmp_path / "none", "--strict")[0] == 1
    assert not (tmp_path / "none").exists()


def test_convert_of_two_inputs_makes_a_folder_whatever_can_be_read(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=b"nonsense")
    assert command("convert", files, "-o", tmp_path / "y.json")[0] == 1
    assert listing(tmp_path / "y.json") == ["a.json"]
    # One input and one file, which the user named: it stays when there is nothing to put in its place.
    (tmp_path / "z.json").write_bytes(b"mine")
    assert command("convert", files / "b.json", "-o", tmp_path / "z.json")[0] == 1
    assert (tmp_path / "z.json").read_bytes() == b"mine"


def test_convert_refuses_what_would_lose_something(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document())
    for out in (files / "a.json", files):
        code, _, err = command("convert", files / "a.json", "-o", out, "--format", "json")
        assert code == 2
        assert "would overwrite the input" in err
    assert command("convert", files / "a.json", "-o", tmp_path / "x.json", "--format", "parquet")[0] == 2
    assert command("convert", files / "a.json", "-o", files, "--format", "parquet")[0] == 2
    assert listing(tmp_path) == ["in/a.json"]


# -- info, print, sql, passes ----------------------------------------------------------------------------------------


def counted_module() -> Any:
    """N08: 979 locations (528 SBUF, 299 PSUM, 152 DRAM), 1 block, 212 instructions, 1 function."""
    built = build.module()
    main = built.function("main")
    for number in range(528):
        main.sb(f"s{number}", [128, 2], allocated=True, addr=0)
    for number in range(299):
        main.psum(f"p{number}", [128, 2])
    for number in range(152):
        main.dram(f"d{number}", [128, 2])
    for number in range(212):
        main.add("NoOp" if number % 2 else "Memset", [], [], name=f"i{number}", engine="SP" if number else "PE")
    return built


def test_info_counts_the_five_numbers(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path, m=json.dumps(counted_module().json()).encode())
    code, out, err = command("info", files / "m.json")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "1 module, 1 function, 979 memory locations, 1 block, 212 instructions"
    rows = [line.split() for line in out.splitlines()]
    assert ["m", "NoOp", "106"] in rows
    assert ["m", "SP", "211"] in rows
    # One row in all, and one of the fullest partition with what it may hold.
    memory = {name: [row[:5] for row in rows if row[:2] == ["m", name]] for name in ("SBUF", "PSUM", "DRAM")}
    assert memory["SBUF"] == [["m", "SBUF", "528", "528", "allocated"], ["m", "SBUF", "allocated", "212984", "4224"]]
    assert memory["PSUM"] == [["m", "PSUM", "299", "0", "unallocated"], ["m", "PSUM", "unallocated", "16384", "0"]]
    assert memory["DRAM"] == [["m", "DRAM", "152", "0", "unallocated"]]


def test_info_in_json(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path, m=json.dumps(counted_module().json()).encode(), z=document())
    code, out, _ = command("info", files, "--json")
    assert code == 0
    first, second = json.loads(out)["modules"]
    assert {k: first[k] for k in ("functions", "locations", "blocks", "instructions")} == {
        "functions": 1,
        "locations": 979,
        "blocks": 1,
        "instructions": 212,
    }
    assert list(first["opcodes"].items()) == [("Memset", 106), ("NoOp", 106)]
    assert list(first["engines"].items()) == [("SP", 211), ("PE", 1)]
    assert {k: v["locations"] for k, v in first["memory"].items()} == {"DRAM": 152, "SBUF": 528, "PSUM": 299}
    assert (second["name"], second["instructions"], second["memory"]) == ("z", 1, {})


def test_info_agrees_with_the_tables() -> None:
    ir = air.read([SAMPLES, TINY])
    for module, row in enumerate(count(ir)):
        mine = ir.instructions.filter(module_id=module)
        assert row["instructions"] == len(mine) == sum(row["opcodes"].values()) == sum(row["engines"].values())
        locations = ir.locations.filter(module_id=module)
        for name, entry in row["memory"].items():
            kind = locations.filter(pl.col("type") == {"SBUF": "SB"}.get(name, name))
            assert entry["locations"] == len(kind)
            assert entry["bytes"] == (kind["partitions"] * kind["bytes"]).sum()
            assert entry["allocated"] == kind["allocated"].fill_null(False).sum()


def test_info_sums_what_no_memory_has(tmp_path: Path) -> None:
    """N01 and N18: sizes of zero and of 2^62, and a memory that is allocated in part."""
    built = build.module()
    main = built.function("main")
    main.sb("zero", [128, 0], allocated=True, addr=0)
    main.sb("one", [128, 4])
    document = built.json()
    for entry in document["functions"][0]["allocations"]:
        if entry["name"].startswith("one"):
            entry["memorylocations"][0]["dims"] = [128, 2**62]
    (row,) = count(air.read_json(json.dumps(document).encode()))
    sbuf = row["memory"]["SBUF"]
    assert (sbuf["status"], sbuf["bytes"], sbuf["bytes_per_partition"]) == ("mixed", 128 * 2**62, 2**62)


def test_print_writes_the_listing(command: Command, tmp_path: Path) -> None:
    code, out, err = command("print", SCALE_ADD)
    assert (code, err) == (0, "")
    assert out.rstrip("\n") == air.read(SCALE_ADD).text(0).rstrip("\n")
    files = put(tmp_path, a=document("only_a"), b=b"", c=document("only_c"))
    code, out, err = command("print", files)
    assert code == 1
    assert "only_a" in out
    assert "only_c" in out
    assert "error[format_error] b" in err


def test_sql(command: Command) -> None:
    query = (
        "select m.name, opcode, count(*) as n, null as nothing from instructions i join modules m on m.id = i.module_id"
    )
    query += " group by all order by opcode"
    code, out, err = command("sql", SCALE_ADD, query)
    assert (code, err) == (0, "")
    assert [line.split() for line in out.splitlines()] == [
        ["name", "opcode", "n", "nothing"],
        ["scale_add", "Load", "1", "null"],
        ["scale_add", "Save", "1", "null"],
        ["scale_add", "TensorScalar", "1", "null"],
    ]
    code, out, _ = command(
        "sql", SCALE_ADD, "--json", "select 1 as one, 'nan'::double as nan, date '2020-01-02' as day"
    )
    assert json.loads(out) == {
        "columns": ["one", "nan", "day"],
        "rows": [{"one": 1, "nan": "nan", "day": "2020-01-02"}],
    }
    code, out, err = command("sql", SCALE_ADD, "selec 1")
    assert (code, out) == (2, "")
    assert "refused" in err
    assert "Traceback" not in err


def test_sql_that_is_refused_is_shown_with_the_mark_below_the_place(command: Command) -> None:
    code, out, err = command("sql", SCALE_ADD, "selec \x1b 1")
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert lines[0].startswith("error: the query was refused: ")
    assert lines[1:] == ["LINE 1: selec \\x1b 1", "        ^^^^^"]
    assert "\\n" not in err


def test_kernels_lists_options_and_defaults(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    code, out, err = command("kernels")
    assert (code, err) == (0, "")
    assert any(line.split()[:2] == ["RMSNorm", "Norms"] for line in out.splitlines())
    assert any(line.split()[:2] == ["RMSNorm", "eps"] and " 1e-06 " in f"{line} " for line in out.splitlines())
    code, out, _ = command("kernels", "--json")
    kernels = {k["name"]: k for k in json.loads(out)["kernels"]}
    assert list(kernels) == air.library.names()
    option = kernels["Activation"]["options"][0]
    assert (option["name"], option["type"], option["default"]) == ("act_fn", "int", "SiLU")
    assert option["takes"].startswith("SiLU (0), GELU (1)")

    def refuse(name: str) -> None:
        raise air.library.KernelError("kernel_failed", f"kernel `{name}` cannot be loaded")

    monkeypatch.setattr(air.library, "get", refuse)
    code, out, _ = command("kernels")
    assert code == 0
    assert "kernel `RMSNorm` cannot be loaded" in out


def test_passes_lists_options_and_order(command: Command) -> None:
    code, out, err = command("passes")
    assert (code, err) == (0, "")
    rows = [line.split() for line in out.splitlines()]
    assert ["runtime_memory_reservation", "reserved_name", "str", "EvalAccelReservedLoc"] in rows
    assert ["41", "inline_nki_kernel", "allocated=false", "yes"] in rows
    assert ["42", "coalesce_multichannel_cc_ops", "yes"] in rows
    code, out, _ = command("passes", "--json")
    answer = json.loads(out)
    assert [p["name"] for p in answer["passes"]] == air.passes.names()
    options = {o["name"]: o for o in answer["passes"][1]["options"]}
    assert (options["allocated"]["type"], options["allocated"]["default"]) == ("bool | None", None)
    assert [s["order"] for s in answer["default_order"]] == [2, 39, 41, 42, 48, 60, 61, 62]


# -- streams ---------------------------------------------------------------------------------------------------------


def test_names_cannot_steer_the_terminal(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", **{"a\x1b[31m\nb": b"[]"})
    code, out, err = command("run", files, "-o", tmp_path / "out")
    assert code == 1
    assert "\x1b" not in out + err
    assert "a\\x1b[31m\\nb" in out


def test_a_stream_that_has_few_characters(tmp_path: Path) -> None:
    files = put(tmp_path / "in", **{"snow☃": document("é☃")})
    for arguments in (["print"], ["info"], ["run", "-o", tmp_path / "out"]):
        done = spawn(arguments[0], files, *arguments[1:], PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert done.returncode == 0, done.stderr
        assert b"\\u2603" in done.stdout


@pytest.mark.parametrize("arguments", [["print", SAMPLES / "chain5000.bir.json"], ["info", SAMPLES]])
def test_a_reader_that_has_seen_enough_is_no_error(arguments: Sequence[object]) -> None:
    with subprocess.Popen(
        command_line(*arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_answer_that_cannot_be_written_fails() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command_line("passes"),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
        )
    assert done.returncode == 1
    assert b"the answer cannot be written: No space left on device" in done.stderr
    assert b"Traceback" not in done.stderr


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        return True


def test_a_progress_bar_appears_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(seconds: float, **options: bool) -> str:
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(console, "PATIENCE", 0.05)
        with console.Progress(**options) as progress:
            progress.at("reading", 1, 7)
            time.sleep(seconds)
            progress.at("inline", 2, 7)
            time.sleep(seconds and 0.3)
        return screen.getvalue()

    monkeypatch.setenv("TERM", "xterm")
    assert "reading" in shown(1.0)
    assert shown(0) == ""
    assert shown(1.0, quiet=True) == ""


def test_without_a_terminal_there_is_no_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(console, "PATIENCE", 0.01)
    with console.Progress() as progress:
        progress.at("reading", 1, 7)
        time.sleep(0.2)
    assert screen.getvalue() == ""


def test_cells_are_never_cut_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "40")
    long, wide, markup = "a" * 150, "語" * 40, "[red]x[/red] :smile:"
    console.table(("name", "n"), [(long, 1), (wide, 22), (markup, None)])
    lines = screen.getvalue().splitlines()
    assert len(lines) == 5
    assert [any(text in line for line in lines) for text in (long, wide, markup)] == [True] * 3
    assert lines[2].endswith(" 1")


def test_severities_have_colours_on_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    row = diag.make("no_callee", "gone", module="m")
    for variable, coloured in (("", True), ("NO_COLOR", False)):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.delenv("NO_COLOR", raising=False)
        if variable:
            monkeypatch.setenv(variable, "1")
        console.report([row])
        assert ("\x1b[1;31merror\x1b[0m[no_callee, NKI001] m: gone" in screen.getvalue()) is coloured
        assert screen.getvalue().endswith("m: gone\n")
