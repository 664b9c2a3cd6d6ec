"""Rules T1 to T4, `translate_nki_ast_to_bir`, clause by clause: which instructions, which files; and the pipeline."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.formats import content
from arrowir.passes import pipeline
from arrowir.testing import front_end, workloads
from arrowir.testing.front_end import carrier
from tests.kernel_files import SHAPE, add_file, caller, document, kernels, module, put, refused, rows, translated

NAME = "translate_nki_ast_to_bir"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artefact directory with one kernel file."""
    put(tmp_path / "k.json", add_file())
    return tmp_path


# T1: which instructions


def test_t1_every_carrier_of_every_function_becomes_a_call_site(folder: Path) -> None:
    made = caller("k.json", "k.json")
    other = made.kernel("outer")
    a, c = other.input("a", SHAPE), other.output("c", SHAPE)
    with other.loop(0, 2):
        other.add("NKIKLIRKernel", [a], [c], func_args={"a": "a"}, func_outs={"c": "c"}, **carrier("k.json"))
    result = translated(module(folder, made))
    assert result.status.to_list() == ["changed"]
    assert result.ir.instructions.filter(opcode="NKIKLIRKernel").is_empty()
    calls = result.ir.instructions.filter(opcode="NKIKernel").join(
        result.ir.functions, left_on="function_id", right_on="id", suffix="_of_function"
    )
    assert calls.select("name_of_function", "name").rows() == [
        ("main", "inst__add"), ("main", "inst__add.1"), ("outer", "inst__add"),
    ]  # fmt: skip


def test_t1_a_module_without_carriers_is_unchanged(folder: Path) -> None:
    result = translated(module(folder, caller()))
    assert (result.status.to_list(), result.messages) == (["unchanged"], ())


@pytest.mark.parametrize(
    ("written", "what"), [("klir", "`klir`"), (None, "absent"), (3, "no text"), ("BIR", "`BIR`"), ("", "``")]
)
def test_t1_another_format_is_refused(folder: Path, written: Any, what: str) -> None:
    message = refused(module(folder, caller("k.json", kernel_format=written)))
    assert message.code == "unknown_kernel_format"
    assert what in message.message
    assert "`bir`" in message.message
    assert (message.function, message.instruction) == ("main", "K-0")


@pytest.mark.parametrize("written", [None, 3, "", []])
def test_t1_a_carrier_without_a_path_is_refused(folder: Path, written: Any) -> None:
    message = refused(module(folder, caller("k.json", klir_binary=written)))
    assert (message.code, "`klir_binary`" in message.message) == ("kernel_file_missing", True)


def test_t1_the_first_fault_in_program_order_counts(folder: Path) -> None:
    made = caller("gone.json", "k.json", "nowhere.json")
    made.json()["functions"][0]["blocks"][0]["instructions"][1]["kernel_format"] = "klir"
    assert refused(module(folder, made)).instruction == "K-0"


# T2: where files are


def test_t2_a_relative_path_is_seen_from_the_modules_folder_then_from_the_artefact_directory(folder: Path) -> None:
    put(folder / "sg00/k.json", add_file("near"))
    put(folder / "sub/k.json", add_file("sub"))
    found = [
        kernels(document(translated(module(folder, caller(binary)))))[0]["name"]
        for binary in ("k.json", "./k.json", "sub/k.json", "../k.json", "sub/../sub/k.json")
    ]
    assert found == ["near", "near", "sub", "add", "sub"]


def test_t2_the_artefact_directory_is_above_the_levels_of_the_layout(folder: Path) -> None:
    for place in ("nc00/sg00/bir.json", "sgLnk/sg00/bir.json", "bir.json", "sg01/bir.json"):
        assert translated(module(folder, caller("k.json"), place)).status.to_list() == ["changed"]
    assert refused(module(folder, caller("k.json"), "other/bir.json")).code == "kernel_file_missing"


def test_t2_an_absolute_path_inside_is_taken(folder: Path) -> None:
    assert translated(module(folder, caller(str(folder / "k.json")))).status.to_list() == ["changed"]


def test_t2_a_file_that_is_not_where_it_says_is_looked_for_by_its_base_name(folder: Path) -> None:
    for binary in ("/build/machine/k.json", "some/where/k.json"):
        assert translated(module(folder, caller(binary))).status.to_list() == ["changed"]


@pytest.mark.parametrize("how", ["absolute", "dots", "link", "folder link"])
def test_t2_what_lies_outside_is_refused(tmp_path: Path, how: str) -> None:
    inside = tmp_path / "a"
    secret = put(tmp_path / "elsewhere/secret.json", add_file())
    (inside / "sg00").mkdir(parents=True)
    binary = {"absolute": str(secret), "dots": "../../elsewhere/secret.json"}.get(how, "link.json")
    if how == "link":
        (inside / "link.json").symlink_to(secret)
    elif how == "folder link":
        (inside / "out").symlink_to(secret.parent)
        binary = "out/secret.json"
    message = refused(module(inside, caller(binary)))
    assert message.code == "kernel_file_outside"
    assert binary in message.message
    assert str(inside) in message.message


def test_t2_a_link_that_stays_inside_is_followed(folder: Path) -> None:
    (folder / "link.json").symlink_to("k.json")
    assert translated(module(folder, caller("link.json"))).status.to_list() == ["changed"]


def test_t2_a_file_that_is_nowhere_is_the_compilers_error(folder: Path) -> None:
    message = refused(module(folder, caller("gone.json")))
    text = "NKI Kernel file gone.json does not exist, either in full path or in compiler artifacts directory"
    assert (message.code, message.message) == ("kernel_file_missing", text)


@pytest.mark.parametrize("binary", ["a\0b", "x" * 5000, "/", "..", "\ud800.json"])
def test_t2_a_name_that_no_file_can_have_is_an_error_like_others(folder: Path, binary: str) -> None:
    message = refused(module(folder, caller(binary)))
    assert message.code in ("kernel_file_missing", "kernel_file_outside", "kernel_file_damaged")


def test_t2_the_option_names_the_artefact_directory(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    away = tmp_path_factory.mktemp("away")
    path = module(away, caller("k.json"), "bir.json")
    assert refused(path).code == "kernel_file_missing"
    assert translated(path, artefacts=str(folder)).status.to_list() == ["changed"]
    put(away / "own.json", add_file())
    assert translated(module(away, caller("own.json"), "bir.json"), artefacts=str(folder)).status[0] == "changed"


def test_t2_a_module_that_is_not_from_a_file_needs_the_option(folder: Path) -> None:
    ir = caller("k.json").ir()
    message = refused(ir)
    assert (message.code, "`artefacts`" in message.message) == ("no_artefacts", True)
    assert translated(ir, artefacts=str(folder)).status.to_list() == ["changed"]


def test_t2_a_data_set_keeps_where_its_modules_are_from(folder: Path) -> None:
    air.read(module(folder, caller("k.json"))).write_parquet(folder / "set")
    assert translated(folder / "set").status.to_list() == ["changed"]


@pytest.mark.parametrize(
    "options",
    [
        {"artefacts": ""}, {"artefacts": 3}, {"artefacts": "/nonexistent"}, {"artefacts": __file__},
        {"artefacts": "a\0b"}, {"artefacts": "x" * 5000}, {"scratchpad_addr": -1},
    ],
)  # fmt: skip
def test_t2_wrong_options_are_usage_errors(options: Any) -> None:
    with pytest.raises(air.OptionError, match=next(iter(options))):
        air.passes.make(NAME, **options)


# T3: reading


def test_t3_a_file_is_read_once_however_many_modules_name_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        path = ("k.json", "./k.json", str(folder / "k.json"))[number % 3]
        module(folder, caller(path, path, version=1 + number % 2), f"sg{number:02}/bir.json")
    ir = air.read(sorted(folder.glob("sg*/bir.json")))
    read: list[str] = []
    original = content.read_bytes
    monkeypatch.setattr(
        content, "read_bytes", lambda source, path=None: read.append(str(source)) or original(source, path)
    )
    result = translated(ir)
    assert read.count(str(folder / "k.json")) == 1
    assert result.status.to_list() == ["changed"] * 20


def test_t3_a_file_that_changes_is_read_again_in_the_next_run(folder: Path) -> None:
    ir = air.read(module(folder, caller("k.json")))
    assert kernels(document(translated(ir)))[0]["name"] == "add"
    put(folder / "k.json", add_file("other_name"))
    assert kernels(document(translated(ir)))[0]["name"] == "other_name"


@pytest.mark.parametrize(
    ("written", "what"),
    [
        (b"", "empty"),
        (b'{"version": 2, "functions": [', "truncated"),
        (b"[]", "expected a BIR module"),
        (b"{}", "without `functions`"),
        (b"COLZ....", "COLZ"),
        (b'{"version": 2, "functions": []}', "no function"),
        (b'{"version": 2, "functions": [], "nki_functions": {"functions": [{"name": "k"}]}}', "under `functions`"),
        (b'{"version": 2, "functions": [{"name": 3}]}', "`functions[0].name`"),
        (b'{"version": 2, "functions": [{}]}', "a function has no name"),
    ],
)
def test_t3_a_damaged_file_fails_the_module_with_path_and_reason(folder: Path, written: bytes, what: str) -> None:
    put(folder / "bad.json", written)
    message = refused(module(folder, caller("bad.json")))
    assert message.code == "kernel_file_damaged"
    assert str(folder / "bad.json") in message.message
    assert what in message.message


def test_t3_a_folder_is_no_kernel_file(folder: Path) -> None:
    (folder / "sub").mkdir()
    message = refused(module(folder, caller("sub")))
    assert message.code == "kernel_file_damaged"
    assert re.fullmatch(r"the kernel file \S+ cannot be read: it is no file", message.message)


def test_t3_packed_files_are_read_by_content(folder: Path) -> None:
    put(folder / "packed.json", content.pack(json.dumps(add_file()).encode(), "x.gz"))
    assert translated(module(folder, caller("packed.json"))).status.to_list() == ["changed"]


def test_t3_the_rest_of_the_batch_goes_on(folder: Path) -> None:
    put(folder / "bad.json", b"{")
    binaries = ["k.json", "bad.json", "gone.json", "k.json"]
    for number, binary in enumerate(binaries):
        module(folder, caller(binary), f"sg0{number}/m{number}.json")
    ir = air.read(sorted(folder.glob("sg*/*.json")))
    result = translated(ir)
    assert result.status.to_list() == ["changed", "failed", "failed", "changed"]
    assert [(m.module, m.code) for m in result.messages] == [
        ("m1", "kernel_file_damaged"),
        ("m2", "kernel_file_missing"),
    ]
    alone = translated(folder / "sg00/m0.json")
    assert result.ir.to_json(0) == alone.ir.to_json(0)


def test_t3_what_is_noticed_in_a_kernel_file_is_said_of_the_modules_that_take_it(folder: Path) -> None:
    file = add_file()
    file["functions"][0]["blocks"][0]["instructions"][0]["ins"][0]["memref"] = "lost"
    put(folder / "k.json", file)
    result = translated(module(folder, caller("k.json")))
    assert result.status.to_list() == ["changed"]
    assert [(m.severity, m.code, m.module_id) for m in result.messages] == [("warning", "unresolved_name", 0)]
    assert "k.json" in result.messages[0].message


def test_t3_another_architecture_is_a_warning(folder: Path) -> None:
    put(folder / "k.json", add_file(arch="gen2"))
    result = translated(module(folder, caller("k.json")))
    assert [(m.severity, m.code) for m in result.messages] == [("warning", "kernel_arch_differs")]
    assert result.status.to_list() == ["changed"]


# T4: the core


def two_cores() -> dict[str, Any]:
    file = add_file("core0")
    return {**file, "functions": [*file["functions"], *add_file("core1", 5.0)["functions"]]}


@pytest.mark.parametrize(("core", "name"), [(0, "core0"), (1, "core1")])
def test_t4_the_function_of_the_modules_core_is_taken_and_no_other(folder: Path, core: int, name: str) -> None:
    put(folder / "k.json", two_cores())
    result = translated(module(folder, caller("k.json", attributes={"neuron_core_id": core})))
    assert [f["name"] for f in kernels(document(result))] == [name]


def test_t4_several_functions_need_a_core(folder: Path) -> None:
    put(folder / "k.json", two_cores())
    message = refused(module(folder, caller("k.json")))
    text = "NeuronCoreId must be set when the LNC count is greater than 1"
    assert (message.code, message.message) == ("core_id_required", text)


def test_t4_one_function_needs_none(folder: Path) -> None:
    assert translated(module(folder, caller("k.json"))).status.to_list() == ["changed"]


def test_t4_a_kernel_for_fewer_cores_is_skipped_on_this_one(folder: Path) -> None:
    put(folder / "two.json", two_cores())
    result = translated(module(folder, caller("k.json", "two.json", attributes={"neuron_core_id": 1})))
    assert [(m.severity, m.code, m.instruction) for m in result.messages] == [("note", "kernel_file_skipped", "K-0")]
    assert "current core_id 1 skip lowering" in result.messages[0].message
    assert [row["opcode"] for row in rows(document(result))] == ["NKIKLIRKernel", "NKIKernel"]
    alone = translated(module(folder, caller("k.json", attributes={"neuron_core_id": 7}), "sg01/bir.json"))
    assert alone.status.to_list() == ["unchanged"]


# The pipeline


def test_p1_the_step_is_taken_by_modules_with_carriers_alone(folder: Path) -> None:
    module(folder, caller("k.json"), "sg00/a.json")
    module(folder, caller(), "sg01/b.json")
    result = air.run(air.read(sorted(folder.glob("sg*/*.json"))))
    taken = result.steps.filter(result.steps["pass"] == NAME)
    assert taken.select("module", "order", "status").rows() == [("a", 2, "changed")]
    assert result.ok
    assert result.ir.instructions.filter(opcode="NKIKLIRKernel").is_empty()
    assert air.run(air.read(folder / "sg01/b.json")).steps["pass"].to_list()[0] == "runtime_memory_reservation"
    assert NAME in [step.name for step in pipeline.default_steps()]


def test_p1_what_a_front_end_leaves_runs_unprepared(folder: Path) -> None:
    front_end.write(folder)
    ir = air.read(folder / "sg00/bir.json")
    result = air.run(ir)
    assert result.ok, result.diagnostics
    assert result.ir.functions["name"].to_list() == ["sg0000"]
    x, bias = (np.random.default_rng(k).normal(size=front_end.SHAPE).astype(np.float32) for k in range(2))
    found = air.simulate(result.ir, {"input0": x, "input1": bias})["output0"]
    assert np.array_equal(found, 2 * (x + bias))


@pytest.mark.parametrize("allocated", [False, True])
def test_p1_the_result_computes_what_the_module_with_the_kernels_in_place_does(folder: Path, allocated: bool) -> None:
    made = build.module(arch="gen3")
    main = made.function("sg0000")
    x, bias, y = (
        main.input("input0", front_end.SHAPE),
        main.input("input1", front_end.SHAPE),
        main.output("output0", front_end.SHAPE),
    )
    middle = main.dram("t0", front_end.SHAPE)
    first = main.call("add_bias", {"x": x, "bias": bias}, {"out": middle})
    main.call("row_scale", {"x": middle}, {"scaled": y}, after=[first])
    in_place = made.json()
    kernel_files = (front_end.add_bias(), front_end.row_scale())
    in_place["nki_functions"]["functions"] = [file["functions"][0] for file in kernel_files]
    front_end.write(folder, allocated=allocated)
    options = {NAME: {"scratchpad_addr": 16384 if allocated else None}}
    result = air.run(air.read(folder / "sg00/bir.json"), options=options)
    assert result.ok
    assert air.equivalent(air.read_json(json.dumps(in_place).encode()), result.ir).ok


def test_p1_the_batch_of_a_hundred_modules_comes_out_like_each_alone(folder: Path) -> None:
    front_end.write(folder)
    doc = json.loads((folder / "sg00/bir.json").read_text())
    for number in range(30):
        doc["functions"][0]["name"] = f"f{number}"
        put(folder / f"sg{number:02}/m{number}.json", doc)
    paths = sorted(folder.glob("sg*/m*.json"))
    together = translated(air.read(paths))
    assert set(together.status.to_list()) == {"changed"}
    for number in (0, 7, 29):
        assert together.ir.to_json(number) == translated(paths[number]).ir.to_json(0)


def test_o7_log_lines_are_the_compilers(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = module(folder, caller("k.json", attributes={"neuron_core_id": 0}))
    with caplog.at_level(logging.INFO, logger=f"arrowir.passes.{NAME}"):
        translated(path)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Started running Lower KLIR Kernel into NKI kernel instruction"
    assert "Start of KLIR kernel lowering pass, number of insts: 1, number of allocs: 2" in lines
    assert "Found InstKLIRKernel: K-0" in lines
    assert f"BIR JSON file has been loaded from disk: {folder / 'k.json'}" in lines
    assert "Creating NKI function from BIR JSON: add and core id: 0" in lines


def test_o9_a_defect_fails_its_own_module_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "odd.json", add_file("odd"))
    for number, binary in enumerate(["k.json", "odd.json", "k.json"]):
        module(folder, caller(binary), f"sg0{number}/m{number}.json")
    from arrowir.formats import kernel_files

    original = kernel_files.read_text

    def text(path: str, shown: str) -> Any:
        if path.endswith("odd.json"):
            raise ZeroDivisionError
        return original(path, shown)

    monkeypatch.setattr(kernel_files, "read_text", text)
    result = translated(air.read(sorted(folder.glob("sg*/*.json"))))
    assert result.status.to_list() == ["changed", "failed", "changed"]
    assert [m.code for m in result.messages] == ["internal_error"]


def test_the_committed_front_end_comes_from_its_command(tmp_path: Path) -> None:
    committed = Path(__file__).parents[2] / "data/generated/front_end"
    assert workloads.main(["front-end", "-o", str(tmp_path / "front_end")]) == 0
    made = {p.relative_to(tmp_path / "front_end"): p.read_bytes() for p in tmp_path.rglob("*.json")}
    assert made == {p.relative_to(committed): p.read_bytes() for p in committed.rglob("*") if p.is_file()}
