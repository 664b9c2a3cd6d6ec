"""`arrowir simulate`: arrays from files in, files of arrays out."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import ml_dtypes
import numpy as np
import polars as pl
import pytest

from arrowir import build
from tests.command_line import Command

f32 = np.float32


class Done(NamedTuple):
    code: int
    out: str
    error: str


Run = Callable[..., Done]


@pytest.fixture
def run(command: Command) -> Run:
    return lambda *words: Done(*command(*words))


def module(path: Path, name: str = "m", factor: float = 2, dtype: str = "float32") -> Path:
    made = build.module()
    main = made.function()
    x, y, tile = main.input("x", (2, 3), dtype), main.output("y", (2, 3), dtype), main.sb("tile", (2, 3))
    keys = {"op0": "mult", "const0": factor, "reverse0": False, "op1": "bypass", "const1": 0, "reverse1": False}
    main.add("Load", [x], [tile])
    main.add("TensorScalar", [tile], [tile], **keys)
    main.add("Save", [tile], [y])
    target = path / f"{name}.json"
    made.ir(name).write_json(target)
    return target


@pytest.fixture
def values(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.arange(6, dtype=f32).reshape(2, 3))
    return tmp_path / "x.npy"


def test_outputs_are_files(tmp_path: Path, values: Path, run: Run) -> None:
    done = run("simulate", module(tmp_path), "--input", f"x={values}", "-o", tmp_path / "out")
    assert done.code == 0, done.error
    assert np.load(tmp_path / "out" / "y.npy").tolist() == [[0, 2, 4], [6, 8, 10]]
    header, row = done.out.splitlines()
    assert header.split() == ["module", "output", "dtype", "shape", "file"]
    assert row.split() == ["m", "y", "float32", "2x3", str(tmp_path / "out" / "y.npy")]


def test_a_batch_has_a_folder_for_each_module(tmp_path: Path, values: Path, run: Run) -> None:
    files = [module(tmp_path, "one", 2), module(tmp_path, "two", 3)]
    done = run("simulate", *files, "--input", f"x={values}", "-o", tmp_path / "out", "--json")
    assert done.code == 0, done.error
    answer = json.loads(done.out)
    assert [m["status"] for m in answer["modules"]] == ["simulated", "simulated"]
    assert [(o["module"], o["output"], o["shape"]) for o in answer["outputs"]] == [
        ("one", "y", "2x3"),
        ("two", "y", "2x3"),
    ]
    assert [np.load(o["file"])[1, 2] for o in answer["outputs"]] == [10, 15]


def test_each_module_takes_the_inputs_that_it_has(tmp_path: Path, values: Path, run: Run) -> None:
    made = build.module()
    main = made.function()
    main.add("Load", [main.input("z", (2, 3))], [main.output("y", (2, 3))])
    made.ir().write_json(tmp_path / "other.json")
    base = ["simulate", module(tmp_path), tmp_path / "other.json", "-o", tmp_path / "out", "--input"]
    assert run(*base, f"x={values}", f"z={values}").code == 0
    assert np.load(tmp_path / "out" / "other" / "y.npy").tolist() == [[0, 1, 2], [3, 4, 5]]
    done = run(*base, f"x={values}", f"w={values}")
    assert (done.code, done.out) == (2, "")
    assert "`w` is no location of any of the 2 modules" in done.error
    done = run(*base, f"x={values}")
    assert done.code == 1
    assert "the input `z` was not given" in done.error


def test_bfloat16_goes_through_files(tmp_path: Path, run: Run) -> None:
    given = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16)
    np.save(tmp_path / "x.npy", given)
    path = module(tmp_path, dtype="bfloat16")
    done = run("simulate", path, "--input", f"x={tmp_path / 'x.npy'}", "-o", tmp_path, "--quiet")
    assert (done.code, done.out) == (0, "")
    found = np.load(tmp_path / "y.npy").view(ml_dtypes.bfloat16)
    assert np.array_equal(found, given * ml_dtypes.bfloat16(2))


def test_a_trace_on_request(tmp_path: Path, values: Path, run: Run) -> None:
    done = run("simulate", module(tmp_path), "--input", f"x={values}", "-o", tmp_path / "out", "--trace")
    assert done.code == 0, done.error
    assert pl.read_parquet(tmp_path / "out" / "trace.parquet")["opcode"].to_list() == ["Load", "TensorScalar", "Save"]


def test_a_module_that_cannot_be_executed_fails_alone(tmp_path: Path, values: Path, run: Run) -> None:
    made = build.module()
    main = made.function()
    main.input("x", (2, 3))
    main.add("Dropout", name="odd")
    made.ir().write_json(tmp_path / "bad.json")
    good = module(tmp_path, "good")
    done = run("simulate", tmp_path / "bad.json", good, "--input", f"x={values}", "-o", tmp_path / "out", "--json")
    assert done.code == 1
    assert [m["status"] for m in json.loads(done.out)["modules"]] == ["failed", "simulated"]
    assert "error[simulation_error]: bad: the opcode `Dropout` is not modelled" in done.error


def test_names_of_outputs_stay_within_the_folder(tmp_path: Path, run: Run) -> None:
    made = build.module()
    main = made.function()
    main.add("Memset", [], [main.output("../../k:y%", (1, 1), "uint8")], mode="Const", constant=7)
    made.ir().write_json(tmp_path / "m.json")
    done = run("simulate", tmp_path / "m.json", "-o", tmp_path / "out", "--json")
    (row,) = json.loads(done.out)["outputs"]
    assert row["file"] == str(tmp_path / "out" / "..%2F..%2Fk%3Ay%25.npy")
    assert np.load(row["file"]).tolist() == [[7]]


def test_options_reach_the_simulator(tmp_path: Path, values: Path, run: Run) -> None:
    path, out = module(tmp_path, factor=float("nan")), tmp_path / "out"
    base = ["simulate", path, "--input", f"x={values}", "-o", out]
    assert "a NaN is written" in run(*base, "--nan", "raise").error
    assert "2 instructions have been executed" in run(*base, "--max-steps", "2").error
    assert "no function is named `other`; there are `sg0000`" in run(*base, "--function", "other").error
    assert run(*base, "--reading", "mod=floor").code == 0


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        (["--input", "x"], "`x` is no input: write NAME=FILE.npy"),
        (["--shard-id", "-1"], "`-1` is no shard: it must be at least 0"),
        (["--shard-id", "x"], "`x` is no shard: it must be at least 0"),
        (["--input", "x=none.npy"], "the input `x` cannot be read from `none.npy`: No such file or directory"),
        (["--input", "z={values}"], "`z` is no location of `sg0000`; inputs: `x`"),
        (["--input", "x={values}", "x={values}"], "the input `x` is given twice"),
        (["--input", "x={text}"], "text`: it is no .npy file"),
        (["--input", "x={archive}"], "it is an archive; give a file of one array"),
        (["--reading", "mod"], "`mod` is no reading: write CASE=CHOICE"),
        (["--reading", "mod=up"], "`up` is no reading of `mod`"),
        (["--max-steps", "0"], "`0` is no number of instructions"),
    ],
)
def test_wrong_usage(tmp_path: Path, values: Path, run: Run, more: list[str], reason: str) -> None:
    (tmp_path / "text").write_text("text")
    np.savez(tmp_path / "archive.npz", x=np.zeros((2, 3), f32))
    paths = {"values": values, "text": tmp_path / "text", "archive": tmp_path / "archive.npz"}
    filled = [word.format(**paths) for word in more]
    done = run("simulate", module(tmp_path), "-o", tmp_path / "out", *filled)
    assert done.code == 2
    assert reason in done.error


def test_a_file_in_place_of_the_folder(tmp_path: Path, values: Path, run: Run) -> None:
    done = run("simulate", module(tmp_path), "--input", f"x={values}", "-o", values)
    assert done.code == 2
    assert "it is a file, and a folder is needed there" in done.error
