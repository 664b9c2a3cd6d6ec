"""Tensor maps and the command line: written beside modules, set aside, never over that of an input."""

import json
from pathlib import Path

import arrowir as air
from arrowir import build
from tests.command_line import Command
from tests.kernel_files import SHAPE, put


def entries(name: str) -> dict[str, object]:
    return {"inputs": [{"name": name}], "alias_map": [{"input_name": name, "output_name": "y"}]}


def prepared(folder: Path) -> None:
    """Write a module with one call of a kernel, and a tensor map that names the kernel's parameter."""
    made = build.module(arch="gen3")
    main, kernel = made.function("main"), made.kernel("k")
    a, c = kernel.input("a", SHAPE), kernel.output("c", SHAPE)
    kernel.add("Save", [a], [c])
    main.call(kernel, {a: main.input("x", SHAPE)}, {c: main.output("y", SHAPE)})
    put(folder / "bir.json", made.json())
    put(folder / "tensor_map.json", entries("a"))


def test_n17_the_command_writes_it_beside_the_modules_file(command: Command, tmp_path: Path) -> None:
    prepared(tmp_path / "in")
    assert command("run", tmp_path / "in", "-o", tmp_path / "out")[0] == 0
    assert json.loads((tmp_path / "out/bir.tensor_map.json").read_text()) == entries("x")
    assert [path.name for path in sorted((tmp_path / "out").glob("*.json"))] == ["bir.json", "bir.tensor_map.json"]
    assert air.read(tmp_path / "out").modules["name"].to_list() == ["bir"]
    assert command("run", tmp_path / "in", "-o", tmp_path / "set", "--format", "parquet")[0] == 0
    assert json.loads(air.read(tmp_path / "set").modules["tensor_map"].item()) == entries("x")


def test_n17_the_command_can_leave_it_out_or_demand_it(command: Command, tmp_path: Path) -> None:
    prepared(tmp_path / "in")
    assert command("run", tmp_path / "in", "-o", tmp_path / "out")[0] == 0
    code, _, said = command("run", tmp_path / "in", "-o", tmp_path / "out", "--no-tensor-map")
    assert (code, "its module has none now" in said) == (0, True)
    left = sorted(path.name for path in (tmp_path / "out").glob("*.json*"))
    assert left == ["bir.json", "bir.tensor_map.json.stale"]
    (tmp_path / "in/tensor_map.json").unlink()
    assert command("run", tmp_path / "in", "-o", tmp_path / "out", "--tensor-map")[0] == 1


def test_n17_the_command_does_not_overwrite_the_file_of_an_input(command: Command, tmp_path: Path) -> None:
    prepared(tmp_path)
    (tmp_path / "bir.json").rename(tmp_path / "bir.json.gz")
    (tmp_path / "tensor_map.json").rename(tmp_path / "bir.tensor_map.json")
    code, _, said = command("run", tmp_path / "bir.json.gz", "-o", tmp_path)
    assert (code, "bir.tensor_map.json" in said) == (2, True)
    assert json.loads((tmp_path / "bir.tensor_map.json").read_text()) == entries("a")


def test_n17_convert_leaves_tensor_maps_alone(command: Command, tmp_path: Path) -> None:
    prepared(tmp_path / "in")
    put(tmp_path / "out/bir.tensor_map.json", entries("mine"))
    assert command("convert", tmp_path / "in", "-o", tmp_path / "out", "--format", "json")[0] == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["bir.json", "bir.tensor_map.json"]
    assert json.loads((tmp_path / "out/bir.tensor_map.json").read_text()) == entries("mine")


def test_n17_converting_a_data_set_writes_what_it_keeps(command: Command, tmp_path: Path) -> None:
    prepared(tmp_path / "in")
    assert command("run", tmp_path / "in", "-o", tmp_path / "set", "--format", "parquet")[0] == 0
    assert command("convert", tmp_path / "set", "-o", tmp_path / "one.json")[0] == 0
    assert json.loads((tmp_path / "one.tensor_map.json").read_text()) == entries("x")
