"""What inputs stand for, and how they become one batch."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import arrowir as air
from arrowir.formats import reading
from tests.command_line import (
    SAMPLES,
    SCALE_ADD,
    TINY,
    Command,
    document,
    listing,
    put,
)


@pytest.mark.parametrize("arguments", [["info"], ["print"], ["run", "-o", "out"], ["convert", "-o", "out"]])
def test_an_input_that_names_nothing_is_a_usage_error(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    for missing, why in (("nothing.json", "no such file"), ("no*.json", "no file matches"), ("empty", "no `*.json`")):
        code, out, err = command(arguments[0], missing, *arguments[1:])
        assert (code, out) == (2, "")
        assert missing in err
        assert why in err
    assert not (tmp_path / "out").exists()


def test_a_directory_is_read_for_its_modules_alone(tmp_path: Path) -> None:
    folder = put(tmp_path / "in", b=document(), a=document())
    (folder / "c.json.gz").write_bytes(gzip.compress(document()))
    (folder / "d.bir.json").write_bytes(document())
    for name in ("tensor_map.json", "a.tensor_map.json", "a.debuginfo.json", ".hidden.json", "notes.txt", "e.jsonl"):
        (folder / name).write_bytes(b"{}")
    (folder / "sub.json").mkdir()
    ir = air.read(folder)
    assert ir.modules["name"].to_list() == ["a", "b", "c", "d"]
    assert ir.diagnostics.is_empty()
    for pattern in ("in/*.json*", "**/in/?.*json*", "i[n]"):
        found = [Path(source.path).name for source in reading.find(tmp_path / pattern)]
        assert [name for name in found if name != "e.jsonl"] == ["a.json", "b.json", "c.json.gz", "d.bir.json"]
    with pytest.raises(
        air.FormatError, match=r"no file matches that could be a module; `.*/a\.tensor_map\.json` stands"
    ):
        reading.find(folder / "*tensor_map.json")
    # By its name a file is read whatever it is called.
    assert [source.path for source in reading.find(folder / "tensor_map.json")] == [str(folder / "tensor_map.json")]


def test_a_folder_of_a_run_names_what_can_be_read(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=document(), b=document())
    assert command("run", files, "-o", tmp_path / "out")[0] == 0
    code, _, err = command("info", tmp_path / "out")
    assert code == 2
    assert f"did you mean `{tmp_path / 'out/json'}`?" in err


def test_mixed_inputs_make_one_batch_in_the_order_given(tmp_path: Path) -> None:
    files = put(tmp_path / "in", z=document(), broken=b"{", a=document())
    air.read(SCALE_ADD).write_parquet(tmp_path / "set")
    wanted = [files / "z.json", tmp_path / "set", files / "broken.json", TINY, files]
    ir = air.read(wanted)
    assert ir.modules["name"].to_list() == ["z", "scale_add", "tiny", "a", "z"]
    errors = ir.diagnostics.filter(code="format_error")
    assert errors["module"].to_list() == ["broken", "broken"]
    gathered = reading.gather(reading.find(wanted))
    assert [(f.name, f.place, f.source.path) for f in gathered.failures] == [
        ("broken", 2, str(files / "broken.json")),
        ("broken", 4, str(files / "broken.json")),
    ]
    with pytest.raises(air.FormatError, match=r"broken\.json"):
        air.read(wanted, strict=True)


def test_messages_about_a_batch_count_in_the_batch(tmp_path: Path) -> None:
    air.read(SCALE_ADD).write_parquet(tmp_path / "set")
    ir = air.read([tmp_path / "set", SAMPLES / "chain4.bir.json", tmp_path / "set"])
    notes = ir.diagnostics.filter(code="ambiguous_name")
    locations = ir.locations
    assert not notes.is_empty()
    for module, module_id, name, row in notes.select("module", "module_id", "location", "location_id").rows():
        assert ir.modules["name"][module_id] == module
        if row is not None:
            assert locations.row(row, named=True)["name"] == name
            assert locations.row(row, named=True)["module_id"] == module_id


def test_one_file_that_cannot_be_read_raises(tmp_path: Path) -> None:
    files = put(tmp_path / "in", a=b"[]")
    with pytest.raises(air.FormatError) as caught:
        air.read(files / "a.json")
    assert caught.value.path == str(files / "a.json")
    for batch in (files, [files / "a.json"], str(files / "*.json")):
        ir = air.read(batch)
        assert len(ir) == 0
        assert ir.diagnostics["code"].to_list() == ["format_error"]
        with pytest.raises(air.FormatError):
            air.read(batch, strict=True)


@pytest.mark.parametrize("wrong", [3, None, b"{}", [3], [b"x"], []])
def test_what_names_no_file_is_refused(wrong: Any) -> None:
    with pytest.raises(air.OptionError):
        air.read(wrong)


def test_odd_paths_are_format_errors() -> None:
    for path in ("", "a\0b", "x" * 5000, "no/such/file", "no[thing]*"):
        with pytest.raises(air.FormatError):
            air.read(path)


def test_a_damaged_data_set_among_others(command: Command, tmp_path: Path) -> None:
    air.read(SCALE_ADD).write_parquet(tmp_path / "set")
    (tmp_path / "set/_manifest.json").write_text("{}")
    code, out, err = command("info", TINY, tmp_path / "set", "--json")
    assert code == 1
    assert [m.get("status") for m in json.loads(out)["modules"]] == [None, "failed"]
    assert "_manifest.json" in err
    with pytest.raises(air.FormatError):
        air.read(tmp_path / "set")


def test_names_that_are_no_text(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", good=document())
    strange = os.fsdecode(b"bad\xff")
    (files / f"{strange}.json").write_bytes(b"[]")
    (files / f"fine{strange}.json").write_bytes(document())
    air.read(SCALE_ADD).write_parquet(files / "set")
    (files / "set/_manifest.json").write_text("{}")
    (files / "set").rename(files / f"{strange}.set")
    code, out, err = command("run", files, files / f"{strange}.set", "-o", tmp_path / "out", "--json")
    assert code == 1
    assert [m["status"] for m in json.loads(out)["modules"]] == ["failed", "changed", "changed", "failed"]
    assert "Traceback" not in err
    assert len(pl.read_parquet(tmp_path / "out/diagnostics.parquet").filter(code="format_error")) == 2


def test_three_hundred_files(command: Command, tmp_path: Path) -> None:
    files = put(tmp_path / "in", **{f"m{n:03}": document(f"i{n}") for n in range(300)})
    code, out, err = command("run", files, "-o", tmp_path / "out")
    assert code == 0, err
    assert out.splitlines()[-1] == "300 modules: 300 changed"
    assert len(listing(tmp_path / "out/json")) == 300
    assert len([f for f in listing(tmp_path / "out/parquet") if f.startswith("instructions")]) == 1
    code, out, _ = command("info", tmp_path / "out/parquet", "--json")
    assert [m["name"] for m in json.loads(out)["modules"]] == [f"m{n:03}" for n in range(300)]
