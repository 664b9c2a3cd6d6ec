"""`arrowir run` and the command line as a whole: answers, files, exit codes, and what happens when things go wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import arrowir as air
from arrowir import diagnostics as diag
from arrowir.cli import console, outputs, parser
from arrowir.formats import reading
from tests.command_line import SAMPLES, SCALE_ADD, TINY, Command, document, environment, listing, put, spawn

# -- getting help ----------------------------------------------------------------------------------------------------


def test_help_imports_nothing_slow() -> None:
    code = (
        f"import sys; sys.path[:] = {sys.path!r}\n"
        "from arrowir.cli import main\n"
        "for arguments in (['--help'], ['run', '--help'], ['--version'], ['frob'], []):\n"
        "    main(arguments)\n"
        "print(*(m for m in ('numpy', 'polars', 'pyarrow', 'rich', 'logging', 'dataclasses') if m in sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == ""


def test_help_lists_the_commands(command: Command) -> None:
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    for name, one in parser.COMMANDS.items():
        assert name in out
        assert one.summary in out
        code, text, _ = command(name, "--help")
        assert code == 0
        assert text.startswith(f"usage: arrowir {name}")


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["frob"],
        ["--json", "run"],
        ["run"],
        ["run", SCALE_ADD],
        ["run", "-o", "out"],
        ["run", SCALE_ADD, "-o", "out", "--frob"],
        ["run", SCALE_ADD, "-o", "out", "--jobs", "0"],
        ["run", SCALE_ADD, "-o", "out", "--jobs", "many"],
        ["run", SCALE_ADD, "-o", "out", "--format", "csv"],
        ["run", SCALE_ADD, "-o", "out", "--passes", "unroll,,unroll"],
        ["run", SCALE_ADD, "-o", "out", "--set", "allocated=1"],
        ["run", SCALE_ADD, "-o", "out", "--set", "unroll.shard_id"],
        ["run", SCALE_ADD, "-o", "out", "--verify", "often"],
        ["sql", SCALE_ADD],
    ],
)
def test_wrong_arguments_are_usage_errors(command: Command, arguments: list[object]) -> None:
    code, out, err = command(*arguments)
    assert code == 2
    assert out == ""
    assert err != ""
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--jobs", "2"], "--jobs 2"),
        (["--engine", "dask"], "--engine dask"),
        (["--scheduler", "tcp://h:1"], "--scheduler"),
        (["--resume"], "--resume"),
    ],
)
def test_what_this_version_does_not_have_is_refused(
    command: Command, tmp_path: Path, arguments: list[str], named: str
) -> None:
    code, _, err = command("run", SCALE_ADD, "-o", tmp_path / "out", *arguments)
    assert code == 2
    assert f"`{named}` is not available in this version" in err
    assert not (tmp_path / "out").exists()


def test_options_may_stand_among_the_inputs(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document())
    code, out, _ = command("run", files / "a.json", "-o", tmp_path / "out", "--json", files / "b.json")
    assert code == 0
    assert [m["name"] for m in json.loads(out)["modules"]] == ["a", "b"]


def test_the_module_can_be_run() -> None:
    done = spawn("--version")
    assert (done.returncode, done.stdout.decode()) == (0, f"arrowir {air.__version__}\n")


# -- run: answers ----------------------------------------------------------------------------------------------------


def test_run_prints_a_closing_table(command: Command, tmp_path: Path) -> None:
    code, out, err = command("run", TINY, "-o", tmp_path / "out")
    assert code == 0
    header, row, total = out.splitlines()
    assert header.split() == [
        "module",
        "status",
        "instructions",
        "before",
        "after",
        "kernels",
        "inlined",
        "bytes",
        "reserved",
    ]
    assert total == "1 module: 1 changed"
    after = len(air.read(tmp_path / "out/tiny.json").instructions)
    before = len(air.read(TINY).instructions)
    assert row.split() == ["tiny", "changed", str(before), str(after), "1", "8"]
    assert "error" not in err


def test_run_answers_in_json(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(functions=2), b=b"[]", c=document())
    code, out, err = command("run", files, "-o", tmp_path / "out", "--json")
    answer = json.loads(out)
    assert code == 1
    assert set(answer) == {"modules", "diagnostics", "steps"}
    named = [(m["name"], m["source"], m["status"]) for m in answer["modules"]]
    assert named == [
        ("a", str(files / "a.json"), "unchanged"),
        ("b", str(files / "b.json"), "failed"),
        ("c", str(files / "c.json"), "changed"),
    ]
    rows = [(d["module"], d["pass"], d["severity"], d["code"]) for d in answer["diagnostics"]]
    assert rows == [
        ("b", "", "error", "format_error"),
        ("a", "runtime_memory_reservation", "error", "single_function_required"),
    ]
    assert all(tuple(d) == diag.COLUMNS for d in answer["diagnostics"])
    steps = [(s["module"], s["pass"], s["order"], s["status"]) for s in answer["steps"]]
    assert steps[0] == ("a", "runtime_memory_reservation", 39, "unchanged")
    assert {s[0] for s in steps} == {"a", "c"}
    assert "error[format_error] b: " in err
    assert "Traceback" not in err


def test_errors_come_first_and_are_grouped_and_cut(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", **{f"m{n:02}": document(functions=2) for n in range(25)}, zero=b"")
    code, _, err = command("run", files, "-o", tmp_path / "out", "--passes", "runtime_memory_reservation")
    lines = err.splitlines()
    assert code == 1
    assert lines[0].startswith("error[format_error] zero: ")
    assert [line.startswith("error[single_function_required] m0") for line in lines[1:11]] == [True] * 10
    assert lines[11] == "... and 15 more rows of `single_function_required`, in 25 modules"
    assert lines[12].startswith("26 errors; all of them: ")
    assert lines[12].endswith(str(tmp_path / "out/diagnostics.parquet"))
    assert len(lines) == 13


def test_quiet_says_errors_alone(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(arch="gen2"), b=document(functions=2))
    code, out, err = command("run", files / "a.json", "-o", tmp_path / "out", "--quiet")
    assert (code, out, err) == (0, "", "")
    code, out, err = command("run", files, "-o", tmp_path / "out", "--quiet")
    assert (code, out) == (1, "")
    assert "error[single_function_required] b" in err
    assert "arch_below_30" not in err


def test_notes_are_counted_only(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(arch="gen2"))
    code, _, err = command("run", files, "-o", tmp_path / "out")
    assert code == 0
    assert err == f"1 note; all of them: {tmp_path / 'out/diagnostics.parquet'}\n"


def test_a_terminal_gets_the_failed_modules_of_a_long_list(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from arrowir.cli import run as command

    monkeypatch.setattr(console, "is_terminal", lambda stream: True)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    modules = [{"name": f"m{n}", "status": "failed" if n == 99 else "unchanged"} for n in range(100)]
    command.show(modules)
    out = capsys.readouterr().out
    assert "m39 " in out
    assert "m40 " not in out
    assert "m99 " in out
    assert "... and 59 more modules" in out
    assert out.endswith("100 modules: 99 unchanged, 1 failed\n")


# -- run: files ------------------------------------------------------------------------------------------------------


def test_one_json_input_gives_one_json_file(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    assert command("run", SCALE_ADD, "-o", out)[0] == 0
    assert listing(out) == ["diagnostics.parquet", "scale_add.json", "steps.parquet"]
    assert (out / "scale_add.json").read_bytes() == air.run(air.read(SCALE_ADD)).ir.to_json(0)


def test_more_inputs_give_both_formats(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert command("run", SAMPLES / "chain4.bir.json", SCALE_ADD, "-o", out)[0] == 0
    files = listing(out)
    assert [f for f in files if not f.startswith("parquet/")] == [
        "diagnostics.parquet",
        "json/chain4.json",
        "json/scale_add.json",
        "steps.parquet",
    ]
    back = air.read(out / "parquet")
    assert [back.to_json(m) for m in range(2)] == [
        (out / f"json/{name}.json").read_bytes() for name in ("chain4", "scale_add")
    ]
    steps = pl.read_parquet(out / "steps.parquet")
    assert steps["module"].unique(maintain_order=True).to_list() == ["chain4", "scale_add"]
    assert steps["pass"].to_list() == 2 * [s.name for s in air.passes.default_steps() if s.where is None]
    assert pl.read_parquet(out / "diagnostics.parquet").columns == list(diag.COLUMNS)


def test_a_data_set_alone_gives_both_formats(command: Command, tmp_path: Path) -> None:
    air.read(SCALE_ADD).write_parquet(tmp_path / "set")
    assert command("run", tmp_path / "set", "-o", tmp_path / "out")[0] == 0
    assert (tmp_path / "out/json/scale_add.json").exists()
    assert len(air.read(tmp_path / "out/parquet")) == 1


def test_one_format_alone_has_the_folder_to_itself(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document())
    assert command("run", files, "-o", tmp_path / "j", "--format", "json")[0] == 0
    assert listing(tmp_path / "j") == ["a.json", "b.json", "diagnostics.parquet", "steps.parquet"]
    for _ in range(2):  # the second time over the first
        assert command("run", files, "-o", tmp_path / "p", "--format", "parquet")[0] == 0
    assert len(air.read(tmp_path / "p")) == 2
    assert {"diagnostics.parquet", "steps.parquet", "_manifest.json"} <= set(listing(tmp_path / "p"))
    assert command("run", files / "a.json", "-o", tmp_path / "b", "--format", "parquet,json")[0] == 0
    assert (tmp_path / "b/json/a.json").exists()
    assert len(air.read(tmp_path / "b/parquet")) == 1


def test_inputs_of_one_stem_keep_enough_of_their_path(command: Command, tmp_path: Path) -> None:
    cores = [tmp_path / f"nc0{n}" / "sg00" for n in range(2)]
    for number, folder in enumerate(cores):
        put(folder, bir=document(f"core{number}"))
    code, out, _ = command(
        "run", *(c / "bir.json" for c in cores), "-o", tmp_path / "out", "--format", "json", "--json"
    )
    assert code == 0
    assert [m["name"] for m in json.loads(out)["modules"]] == ["bir", "bir"]
    written = [f for f in listing(tmp_path / "out") if f.endswith(".json")]
    assert len(written) == 2
    for number in range(2):
        (mine,) = [f for f in written if f"nc0{number}" in f]
        assert f'"core{number}"' in (tmp_path / "out" / mine).read_text()


def test_names_of_outputs_do_not_depend_on_what_could_be_read(command: Command, tmp_path: Path) -> None:
    for number, content in enumerate((b"nonsense", document())):
        put(tmp_path / f"nc0{number}" / "sg00", bir=content)
    inputs = [tmp_path / f"nc0{number}/sg00/bir.json" for number in range(2)]
    assert command("run", *inputs, "-o", tmp_path / "out", "--format", "json")[0] == 1
    assert [f for f in listing(tmp_path / "out") if f.endswith(".json")] == ["nc01-sg00-bir.json"]


@pytest.mark.parametrize("name", ["run", "convert"])
def test_no_output_of_an_earlier_run_stands_for_an_input_that_cannot_be_read(
    command: Command, tmp_path: Path, name: str
) -> None:
    files, out = put(tmp_path / "in", a=document(), b=document(), c=document()), tmp_path / "out"
    arguments = (name, files, "-o", out, "--format", "json")
    assert command(*arguments)[0] == 0
    before = (out / "b.json").read_bytes()
    (out / "of_mine.json").write_bytes(b"{}")
    put(files, b=b"nonsense")
    code, _, err = command(*arguments)
    assert code == 1
    assert [f for f in listing(out) if f.endswith(".json")] == ["a.json", "c.json", "of_mine.json"]
    told = f"moved `{out / 'b.json'}` of an earlier run to `b.json.stale`: its input cannot be read now\n"
    assert told in err
    assert (out / "b.json.stale").read_bytes() == before
    assert told not in command(*arguments)[2]
    assert (out / "b.json.stale").exists()


def test_an_input_that_cannot_be_read_stays_where_it_is(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", b=b"nonsense")
    (files / "a.bir.json").write_bytes(document())
    (files / "link.json").symlink_to(files / "b.json")
    assert command("run", files, "-o", files, "--format", "json")[0] == 1
    assert {"a.bir.json", "a.json", "b.json", "link.json"} <= set(listing(files))
    assert (files / "b.json").read_bytes() == b"nonsense"


def test_a_data_set_of_an_earlier_run_does_not_stay_when_nothing_can_be_read(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document())
    for formats, place in (("parquet", "."), ("json,parquet", "parquet")):
        arguments = ("run", files, "-o", tmp_path / formats, "--format", formats)
        put(files, a=document(), b=document())
        assert command(*arguments)[0] == 0
        assert len(air.read(tmp_path / formats / place)) == 2
        put(files, a=b"", b=b"")
        assert command(*arguments)[0] == 1
        assert len(air.read(tmp_path / formats / place)) == 0
        assert len(pl.read_parquet(tmp_path / formats / "diagnostics.parquet")) == 2


def test_an_input_named_twice_is_taken_once(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document())
    for inputs in ([files / "a.json", files, files / "*.json"], [files / "a.json", files / "b.json", files / "a.json"]):
        code, out, _ = command("run", *inputs, "-o", tmp_path / "out", "--json")
        assert code == 0
        assert [m["name"] for m in json.loads(out)["modules"]] == ["a", "b"]


def test_an_out_of_any_name_is_a_folder(command: Command, tmp_path: Path) -> None:
    assert command("run", SCALE_ADD, "-o", tmp_path / "out.json")[0] == 0
    assert listing(tmp_path / "out.json") == ["diagnostics.parquet", "scale_add.json", "steps.parquet"]


def test_failed_modules_are_written_like_the_others(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(arch="gen9"), b=document())
    code, out, _ = command("run", files, "-o", tmp_path / "out", "--json")
    assert code == 1
    assert [m["status"] for m in json.loads(out)["modules"]] == ["failed", "changed"]
    assert json.loads((tmp_path / "out/json/a.json").read_bytes()) == json.loads(document(arch="gen9"))


def test_nothing_readable_is_a_run_without_modules(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=b"", b=b"{")
    code, out, _ = command("run", files, "-o", tmp_path / "out", "--json")
    assert code == 1
    assert [m["status"] for m in json.loads(out)["modules"]] == ["failed", "failed"]
    assert listing(tmp_path / "out") == ["diagnostics.parquet", "steps.parquet"]
    assert len(pl.read_parquet(tmp_path / "out/diagnostics.parquet")) == 2


def test_strict_stops_at_the_first_error_and_writes_nothing(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document(functions=2))
    code, out, err = command("run", files, "-o", tmp_path / "out", "--strict")
    assert (code, out) == (1, "")
    assert "error[single_function_required] b" in err
    assert not (tmp_path / "out").exists()
    put(files, c=b"[]")
    code, out, err = command("run", files, "-o", tmp_path / "out", "--strict")
    assert (code, out) == (1, "")
    assert "c.json" in err
    assert not (tmp_path / "out").exists()


def test_passes_and_settings(command: Command, tmp_path: Path) -> None:
    arguments = ["run", TINY, "-o", tmp_path / "out", "--json"]
    code, out, _ = command(
        *arguments, "--passes", "inline_nki_kernel", "--passes", "unroll", "--set", "inline_nki_kernel.allocated=none"
    )
    assert code == 0
    assert [(s["pass"], s["order"]) for s in json.loads(out)["steps"]] == [("inline_nki_kernel", 1), ("unroll", 2)]
    assert json.loads(out)["modules"][0]["kernels_inlined"] == 1
    code, out, _ = command(*arguments, "--set", "runtime_memory_reservation.usable_sbuf_bytes=229000")
    assert code == 0
    assert json.loads(out)["modules"][0]["bytes_reserved"] == 376


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (["--passes", "inline_nki_kernl"], "Backend pass: inline_nki_kernl is not registered! did you mean"),
        (["--set", "unrol.shard_id=1"], "Backend pass: unrol is not registered!"),
        (["--set", "unroll.shard_id=1"], "not part of this run"),
        (
            ["--set", "inline_nki_kernel.allocated=true", "--set", "inline_nki_kernel.allocated=none"],
            "`inline_nki_kernel.allocated` is set twice, to True and to None",
        ),
        (
            ["--set", "translate_nki_ast_to_bir.artefacts=/nonexistent"],
            "option `artefacts` of pass `translate_nki_ast_to_bir` names no folder: `/nonexistent` does not exist",
        ),
        (
            ["--set", "unroll.shard_id=1", "--passes", "inline_nki_kernel,inline_nki_kernel"],
            "has `inline_nki_kernel`\n",
        ),
        (["--set", "inline_nki_kernel.allocatd=true"], "no option `allocatd`"),
        (["--set", "inline_nki_kernel.allocated=maybe"], "takes bool | None, got 'maybe' (str)"),
        (["--set", "inline_nki_kernel.allocated=1"], "takes bool | None, got 1 (int)"),
        (["--set", "inline_nki_kernel.max_instructions=0"], "takes int of at least 1, got 0 (int)"),
        (["--passes", "unroll", "--set", "unroll.shard_id=-1"], "takes int of at least 0, got -1 (int)"),
    ],
)
def test_wrong_passes_and_settings_are_usage_errors(
    command: Command, tmp_path: Path, settings: list[str], complaint: str
) -> None:
    code, out, err = command("run", SCALE_ADD, "-o", tmp_path / "out", *settings)
    assert (code, out) == (2, "")
    assert err.startswith("error[bad_option]: ")
    assert complaint in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None),
        ("none", None),
        ('"none"', "none"),
        ("true", True),
        ("7", 7),
        ("1.5", 1.5),
        ("[1, 2]", [1, 2]),
        ("word", "word"),
        ("two words", "two words"),
        ("", ""),
        ("a=b", "a=b"),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_values_of_settings(text: str, value: object) -> None:
    assert parser.setting_value(text) == value
    assert parser.parse(["run", "x", "-o", "y", "--set", f"p.o={text}"]).set == [("p", "o", value)]


# -- run: what must not happen ---------------------------------------------------------------------------------------


def test_an_input_is_never_overwritten(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document())
    for out in (files, tmp_path / "in" / ".." / "in"):
        code, _, err = command("run", files, "-o", out, "--format", "json")
        assert code == 2
        assert "would overwrite the input" in err
    assert command("run", files / "a.json", "-o", files)[0] == 2
    assert listing(files) == ["a.json", "b.json"]
    assert (files / "a.json").read_bytes() == document()


def test_a_data_set_is_never_overwritten_by_what_was_read_from_it(command: Command, tmp_path: Path) -> None:
    air.read(SCALE_ADD).write_parquet(tmp_path / "set")
    before = listing(tmp_path / "set")
    for out in (tmp_path / "set", tmp_path / "set/more"):
        for formats in ("parquet", "json", "json,parquet"):
            code, _, err = command("run", tmp_path / "set", "-o", out, "--format", formats)
            assert code == 2
            assert "is the input" in err
    assert listing(tmp_path / "set") == before


def test_an_output_of_another_name_may_stand_beside_the_input(command: Command, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.bir.json").write_bytes(document())
    assert command("run", folder / "a.bir.json", "-o", folder)[0] == 0
    assert listing(folder) == ["a.bir.json", "a.json", "diagnostics.parquet", "steps.parquet"]
    assert (folder / "a.bir.json").read_bytes() == document()


def test_an_out_that_is_in_the_way(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file/deeper"):
        code, _, err = command("run", SCALE_ADD, "-o", out)
        assert code == 2
        assert "cannot write to" in err
    assert (tmp_path / "file").read_text() == "mine"
    put(tmp_path / "other", strange=b"{}")
    code, _, err = command("run", SCALE_ADD, "-o", tmp_path / "other", "--format", "parquet")
    assert code == 2
    assert "strange.json" in err
    assert listing(tmp_path / "other") == ["strange.json"]


def test_an_out_without_permission(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs.os, "access", lambda path, mode: False)
    code, _, err = command("run", SCALE_ADD, "-o", tmp_path / "out")
    assert code == 2
    assert "no permission" in err


def test_a_full_disk_is_said_and_leaves_the_old_files(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, out = put(tmp_path / "in", a=document()), tmp_path / "out"
    assert command("run", files, "-o", out)[0] == 0
    before = {f: (out / f).read_bytes() for f in listing(out)}
    put(files, a=document("other"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr(Path, "replace", full)
    code, answer, err = command("run", files, "-o", out)
    assert (code, answer) == (2, "")
    assert "no space left on device" in err.lower()
    assert "Traceback" not in err
    assert {f: (out / f).read_bytes() for f in listing(out)} == before


def test_an_interrupt_leaves_no_half_files(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    monkeypatch.setattr(Path, "replace", stop)
    code, _, err = command("run", SCALE_ADD, "-o", tmp_path / "out")
    assert code == 130
    assert err.splitlines()[-1].startswith("error: interrupted")
    assert listing(tmp_path / "out") == []


def test_a_defect_is_one_line(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Panic(BaseException):
        pass

    def broken(*_: object, **__: object) -> None:
        raise Panic("a panic")

    monkeypatch.setattr(reading, "gather", broken)
    code, out, err = command("info", SCALE_ADD)
    assert (code, out) == (1, "")
    assert err.startswith("error: internal error: Panic: a panic; ")
    assert len(err.splitlines()) == 1


def test_a_pass_with_a_defect_shows_no_traceback(tmp_path: Path) -> None:
    code = (
        "import sys, arrowir as air\n"
        "class Bad(air.Pass):\n"
        "    name = 'bad'\n"
        "    def plan(self, ir, active): raise IndexError('of mine')\n"
        "air.passes.register(Bad)\n"
        "from arrowir.cli import main\n"
        f"sys.exit(main(['run', {str(SCALE_ADD)!r}, '-o', {str(tmp_path / 'out')!r}, '--passes', 'bad']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error[internal_error] scale_add: IndexError: of mine; ")
    assert "Traceback" not in done.stderr
    assert (tmp_path / "out/scale_add.json").exists()
