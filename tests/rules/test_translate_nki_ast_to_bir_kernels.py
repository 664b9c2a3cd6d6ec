"""Rules T5 to T9, `translate_nki_ast_to_bir`, clause by clause: functions, call-sites, arguments, memory."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.testing.front_end import carrier, kernel_file, old
from tests.kernel_files import SHAPE, add_file, caller, document, kernels, module, put, refused, rows, translated

DROPPED = {"klir_binary", "kernel_format", "nki_binary_version_identifier", "enable_device_dump"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An artefact directory with one kernel file."""
    put(tmp_path / "k.json", add_file())
    return tmp_path


# T5: the functions


def test_t5_the_function_stands_last_under_nki_functions_as_it_was(folder: Path) -> None:
    made = caller("k.json")
    made.kernel("there")
    result = translated(module(folder, made))
    assert [f["name"] for f in kernels(document(result))] == ["there", "add"]
    assert kernels(document(result))[1] == add_file()["functions"][0]
    assert result.ir.functions["is_kernel"].to_list() == [False, True, True]


@pytest.mark.parametrize(
    "held", ["absent", None, {}, [], {"functions": None}, {"functions": []}, {"more": 1, "functions": []}]
)
def test_t5_every_form_of_nki_functions_takes_the_function(folder: Path, held: Any) -> None:
    doc = caller("k.json").json()
    del doc["nki_functions"]
    if held != "absent":
        doc["nki_functions"] = held
    out = document(translated(module(folder, doc)))
    assert [f["name"] for f in kernels(out)] == ["add"]
    assert isinstance(out["nki_functions"], list) == isinstance(held, list)
    assert out["nki_functions"] == [*kernels(out)] or set(out["nki_functions"]) - {"functions"} <= {"more"}


def test_t5_a_file_that_two_call_sites_name_gives_one_function(folder: Path) -> None:
    out = document(translated(module(folder, caller("k.json", "../k.json", str(folder / "k.json")))))
    assert [f["name"] for f in kernels(out)] == ["add"]
    assert [row["func"] for row in rows(out)] == ["add"] * 3


def test_t5_names_are_free_in_the_module(folder: Path) -> None:
    put(folder / "other.json", add_file("add", 5.0))
    made = caller("k.json", "other.json", name="add")
    made.kernel("add.1")
    out = document(translated(module(folder, made)))
    assert [f["name"] for f in kernels(out)] == ["add.1", "add.2", "add.3"]
    assert [row["func"] for row in rows(out)] == ["add.2", "add.3"]


def test_t5_o5_files_come_in_the_order_in_which_the_module_names_them(folder: Path) -> None:
    put(folder / "b.json", add_file("same", 5.0))
    put(folder / "a.json", add_file("same", 2.0))
    paths = [
        module(folder, caller(*binaries), f"sg0{number}/m{number}.json")
        for number, binaries in enumerate([["k.json", "a.json"], ["b.json", "a.json"], ["k.json", "b.json", "a.json"]])
    ]
    together = translated(air.read(paths))
    for number, path in enumerate(paths):
        assert together.ir.to_json(number) == translated(path).ir.to_json(0)
    out = document(together, 1)
    assert [row["func"] for row in rows(out)] == ["same", "same.1"]
    consts = [k["blocks"][0]["instructions"][1]["const0"] for k in kernels(out)]
    assert consts == [5.0, 2.0]


def test_t5_functions_that_the_kernel_calls_come_along(folder: Path) -> None:
    made = build.module(arch="gen3")
    for number in range(2):
        outer = made.function(f"core{number}")
        a, c = outer.input("a", SHAPE), outer.output("c", SHAPE)
        outer.call(f"inner{number}", {"a": a}, {"c": c})
    for number in range(3):
        inner = made.kernel(f"inner{number}")
        a, c = inner.input("a", SHAPE), inner.output("c", SHAPE)
        inner.add("Save", [a], [c])
    put(folder / "k.json", made.json())
    result = translated(module(folder, caller("k.json", attributes={"neuron_core_id": 1})))
    assert [f["name"] for f in kernels(document(result))] == ["core1", "inner1"]
    inlined = air.passes.inline_nki_kernel(result.ir)
    assert inlined.ok
    assert air.equivalent(result.ir, inlined.ir).ok


def test_t5_o5_functions_that_kernels_call_come_along_in_a_batch(folder: Path) -> None:
    made = build.module(arch="gen3")
    outer, inner = made.function("outer"), made.kernel("inner")
    a, c = outer.input("a", SHAPE), outer.output("c", SHAPE)
    outer.call("inner", {"a": a}, {"c": c})
    a, c = inner.input("a", SHAPE), inner.output("c", SHAPE)
    inner.add("Save", [a], [c])
    put(folder / "calls.json", made.json())
    binaries = (["calls.json"], ["k.json"], ["k.json", "calls.json"])
    paths = [module(folder, caller(*each), f"sg0{number}/m{number}.json") for number, each in enumerate(binaries)]
    together = translated(air.read(paths))
    for number, path in enumerate(paths):
        assert together.ir.to_json(number) == translated(path).ir.to_json(0)
    assert air.passes.inline_nki_kernel(together.ir).ok


def test_t5_a_kernel_file_that_names_a_kernel_file_is_refused(folder: Path) -> None:
    put(folder / "outer.json", kernel_file(caller("k.json")))
    message = refused(module(folder, caller("outer.json")))
    assert (message.code, "`K-0`" in message.message) == ("not_supported", True)


def test_t5_a_kernel_file_with_queues_is_refused(folder: Path) -> None:
    put(folder / "k.json", {**add_file(), "queues": [{"name": "q", "blocks": []}]})
    assert refused(module(folder, caller("k.json"))).code == "not_supported"


def looped(place: Any) -> dict[str, Any]:
    """Return a kernel file that copies `a` to `c` part by part; `place` gives the column of a loop's value."""
    made = build.module(arch="gen3")
    kernel = made.function("looped")
    a, c, tile = kernel.input("a", SHAPE), kernel.output("c", SHAPE), kernel.sb("tile", [128, 4])
    with kernel.loop(0, 4) as i:
        part = {"pattern": [[16, 128], [1, 4]]}
        load = kernel.add("Load", [a.at(0, place(i), **part)], [tile])
        kernel.add("Save", [tile], [c.at(0, place(i), **part)], after=[load])
    return kernel_file(made)


PLACES = [lambda i: 4 * i, lambda i: 12 - 4 * i, lambda i: (4 * i + 8) % 16, lambda i: (8 * i + 1) // 2]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("file_version", [1, 2])
@pytest.mark.parametrize("version", [1, 2])
def test_t5_expressions_are_spelt_as_the_modules_version_has_them(
    folder: Path, place: Any, file_version: int, version: int
) -> None:
    new, older = looped(place), old(looped(place))
    put(folder / "k.json", new if file_version == 2 else older)
    result = translated(module(folder, caller("k.json", version=version)))
    taken = kernels(document(result))[0]
    assert taken == (older if version == 1 else new)["functions"][0]
    inlined = air.passes.inline_nki_kernel(result.ir)
    given = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
    assert np.array_equal(air.simulate(inlined.ir, {"x": given})["y"], given)


def test_t5_an_expression_without_a_spelling_is_refused_with_its_place(folder: Path) -> None:
    put(folder / "k.json", looped(lambda i: 4 * (i // 1) + 0 * (i % 2)))
    message = refused(module(folder, caller("k.json", version=1)))
    assert message.code == "not_supported"
    assert "`functions[0].blocks[0].instructions[0].blocks[0].instructions[0].ins[0].addrs[1]`" in message.message


# T6: the call-site


def test_t6_the_instruction_is_rewritten_where_it_stands(folder: Path) -> None:
    made = caller("k.json", "k.json", debug={"lineno": 7}, mine=[1.50], address_rotation_scope_val="Kernel")
    before = rows(made.json())
    after = rows(document(translated(module(folder, made))))
    assert [row["name"] for row in after] == ["inst__add", "inst__add.1"]
    for old_row, row in zip(before, after, strict=True):
        assert row["opcode"] == "NKIKernel"
        assert row["func"] == "add"
        assert row["kernel_source_val"] == "Beta3"
        assert not DROPPED & set(row)
        same = ("engine", "ins", "outs", "debug", "mine", "func_args", "func_outs", "address_rotation_scope_val")
        assert [row[key] for key in same] == [old_row[key] for key in same]
        assert list(row) == sorted(row)
    assert after[1]["dependencies"] == ["inst__add"]


def test_t6_new_members_stand_last_where_members_are_not_sorted(folder: Path) -> None:
    doc = caller("k.json").json()
    row = rows(doc)[0]
    rows(doc)[0] = {key: row[key] for key in ("opcode", "name", *(k for k in row if k not in ("opcode", "name")))}
    after = rows(document(translated(module(folder, doc))))[0]
    assert list(after)[:2] == ["opcode", "name"]
    assert list(after)[-4:] == ["func", "kernel_source_val", "psum_buf_shape", "sb_buf_shape"]


def test_t6_names_in_dropped_members_go_with_them(folder: Path) -> None:
    made = build.module(arch="gen3")
    main = made.function("main")
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    with main.loop(0, 2) as i:
        members = carrier("k.json", enable_device_dump=i)
        main.add("NKIKLIRKernel", [x], [y], func_args={"a": "x"}, func_outs={"c": "y"}, order=[i], **members)
    result = translated(module(folder, made))
    assert result.ir.references.select("table", "target").rows() == [("instructions", "loops")]


def test_t6_the_name_is_free_in_its_function(folder: Path) -> None:
    doc = caller("k.json", "k.json").json()
    rows(doc)[1]["name"] = "inst__add"
    rows(doc)[1].pop("dependencies")
    assert [row["name"] for row in rows(document(translated(module(folder, doc))))] == ["inst__add.1", "inst__add.2"]


def test_t6_the_limit_of_instructions_counts_what_comes_in(folder: Path) -> None:
    path = module(folder, caller("k.json", "k.json"))
    assert translated(path, max_instructions=5).status.to_list() == ["changed"]
    message = refused(path, max_instructions=4)
    assert (message.code, "5 instructions" in message.message) == ("too_many_instructions", True)


# T7: the argument maps


def test_t7_names_may_be_those_of_locations_and_of_sets(folder: Path) -> None:
    doc = caller("k.json").json()
    rows(doc)[0] |= {"func_args": {"a_set": "x_set"}, "func_outs": {"c": "y_set"}}
    result = translated(module(folder, doc))
    entries = result.ir.call_arguments.select("direction", "formal", "actual").rows()
    assert entries == [("in", "a_set", "x_set"), ("out", "c", "y_set")]
    inlined = air.passes.inline_nki_kernel(result.ir)
    assert inlined.ok
    assert air.equivalent(result.ir, inlined.ir).ok


def test_t7_a_list_of_pairs_stays_one(folder: Path) -> None:
    doc = caller("k.json").json()
    rows(doc)[0] |= {"func_args": [["a", "x"]], "func_outs": [["c", "y"]]}
    after = rows(document(translated(module(folder, doc))))[0]
    assert (after["func_args"], after["func_outs"]) == ([["a", "x"]], [["c", "y"]])


@pytest.mark.parametrize("maps", [{}, {"func_args": None, "func_outs": None}, {"func_args": {}, "func_outs": {}}])
def test_t7_what_no_map_names_binds_by_position_later(folder: Path, maps: Any) -> None:
    doc = caller("k.json").json()
    for key in ("func_args", "func_outs"):
        rows(doc)[0].pop(key)
    rows(doc)[0] |= maps
    result = translated(module(folder, doc))
    assert {k: v for k, v in rows(document(result))[0].items() if k in ("func_args", "func_outs")} == maps
    inlined = air.passes.inline_nki_kernel(result.ir)
    assert inlined.ok
    assert air.equivalent(result.ir, inlined.ir).ok


def test_t7_registers_bind_too(folder: Path) -> None:
    file = build.module(arch="gen3")
    kernel = file.function("k")
    a, c, number = kernel.input("a", SHAPE), kernel.output("c", SHAPE), kernel.register("n")
    kernel.add("RegisterMove", [number], [kernel.register("own")])
    kernel.add("Save", [a], [c])
    put(folder / "k.json", kernel_file(file))
    made = build.module(arch="gen3")
    main = made.function("main")
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    main.register("mine")
    main.dram("mine", SHAPE)  # a parameter that is a register is bound to one
    maps = {"func_args": {"a": "x", "n": "mine"}, "func_outs": {"c": "y"}}
    main.add("NKIKLIRKernel", [x], [y], **carrier("k.json"), **maps)
    result = translated(module(folder, made))
    assert result.ir.call_arguments["actual_register_id"].to_list() == [None, 0, None]
    assert result.ir.call_arguments["formal_register_id"].to_list() == [None, 1, None]
    inlined = air.passes.inline_nki_kernel(result.ir)
    assert inlined.ok
    assert inlined.ir.registers["name"].to_list() == ["mine", "inst__k:own"]


@pytest.mark.parametrize(
    ("maps", "code", "text"),
    [
        ({"func_args": {"zz": "x"}}, "unknown_parameter", "zz input cannot be found "),
        ({"func_outs": {"tile": "y"}}, "unknown_parameter", "tile output cannot be found "),
        ({"func_args": {"a": "zz"}}, "unresolved_name", "zz input cannot be found "),
        ({"func_outs": {"c": "zz"}}, "unresolved_name", "zz output cannot be found "),
    ],
)
def test_t7_a_name_that_is_not_there_is_the_compilers_error(folder: Path, maps: Any, code: str, text: str) -> None:
    message = refused(module(folder, caller("k.json", **maps)))
    assert (message.code, message.message, message.instruction) == (code, text, "K-0")


@pytest.mark.parametrize("wrong", [3, "x", {"a": 3}, [["a"]], [["a", 3]], ["ab"], [["a", "\ud800"]]])
def test_t7_a_map_of_another_form_is_refused(folder: Path, wrong: Any) -> None:
    message = refused(module(folder, caller("k.json", func_args=wrong)))
    assert (message.code, "`func_args`" in message.message) == ("bad_kernel_option", True)


def test_t7_r2_of_several_locations_one_of_the_maps_kind_is_meant(folder: Path) -> None:
    doc = caller("k.json").json()
    allocations = doc["functions"][0]["allocations"]
    allocations[0]["memorylocations"][0]["name"] = allocations[1]["memorylocations"][0]["name"] = "both"
    row = rows(doc)[0]
    row |= {"func_args": {"a": "both"}, "func_outs": {"c": "both"}}
    row["ins"][0]["memref"] = row["outs"][0]["memref"] = "both"
    result = translated(module(folder, doc))
    entries = result.ir.call_arguments.join(result.ir.sets, left_on="actual_location_id", right_on="id", suffix="_")
    assert entries.select("direction", "name_").rows() == [("in", "x_set"), ("out", "y_set")]
    assert [(m.severity, m.code) for m in result.messages] == [("note", "ambiguous_name")]


# T8: scratchpads


def tall(**psum: Any) -> dict[str, Any]:
    """Return a kernel file with allocated memory: 4096 bytes of SB, and PSUM."""
    file = build.module(arch="gen3")
    kernel = file.function("tall")
    a, c = kernel.input("a", SHAPE), kernel.output("c", SHAPE)
    low, high = kernel.sb("low", SHAPE, addr=64), kernel.sb("high", SHAPE, addr=4032)
    bank = kernel.psum("bank", [64, 16], addr=0, **psum) if psum else None
    kernel.sb("free", [128, 4096])
    last = kernel.add("Load", [a], [low])
    last = kernel.add("TensorCopy", [low], [high], after=[last])
    if bank is not None:
        last = kernel.add("Memset", [], [bank], mode="Const", constant=0, after=[last])
    kernel.add("Save", [high], [c], after=[last])
    return kernel_file(file)


def test_t8_an_allocated_kernel_gets_scratchpads_as_last_outputs(folder: Path) -> None:
    put(folder / "k.json", tall(bank=2))
    out = document(translated(module(folder, caller("k.json", "k.json"))))
    first, second = rows(out)
    assert (first["sb_buf_shape"], first["psum_buf_shape"]) == ([128, 4096], [3, 64, 2048])
    names = [operand["memref"] for operand in first["outs"]]
    assert names == ["t0", "inst__tall_sb_scratch", *(f"inst__tall_psum_scratch_{bank}" for bank in range(3))]
    assert second["outs"][1]["memref"] == "inst__tall.1_sb_scratch"
    assert first["outs"][1] == {
        "ap": [[4096, 128], [1, 4096]], "dtype": "uint8", "kind": "physical_ap", "memref": "inst__tall_sb_scratch",
        "memsetref": "inst__tall_sb_scratch_set", "offset": 0,
    }  # fmt: skip
    made = out["functions"][0]["allocations"][3:]
    assert [s["memorylocations"][0]["dims"] for s in made] == 2 * [[128, 4096], *3 * [[64, 2048]]]
    assert [s["memorylocations"][0]["bank"] for s in made] == 2 * [0, 0, 1, 2]
    assert {s["memorylocations"][0]["allocated"] for s in made} == {False}
    assert [s["tensor_class"] for s in made[:2]] == ["NeuronSBTensor", "NeuronPSUMTensor"]


def test_t8_an_unallocated_kernel_gets_none(folder: Path) -> None:
    row = rows(document(translated(module(folder, caller("k.json")))))[0]
    assert (row["sb_buf_shape"], row["psum_buf_shape"], len(row["outs"])) == ([0, 0], [0, 0, 0], 1)


def test_t8_a_kernel_with_psum_alone_gets_no_scratchpad_in_sb(folder: Path) -> None:
    file = tall(bank=0)
    for held in file["functions"][0]["allocations"]:
        if held["name"] in ("low_set", "high_set"):
            held["memorylocations"][0]["allocated"] = False
    put(folder / "k.json", file)
    row = rows(document(translated(module(folder, caller("k.json")))))[0]
    assert (row["sb_buf_shape"], row["psum_buf_shape"], len(row["outs"])) == ([0, 0], [1, 64, 2048], 2)


def test_t8_scratchpads_that_are_there_stay(folder: Path) -> None:
    put(folder / "k.json", tall())
    doc = caller("k.json").json()
    pad = build.module().function("f")
    tensor = pad.sb("pad", [128, 8192], "uint8", addr=0)
    doc["functions"][0]["allocations"] += pad.allocations
    rows(doc)[0]["outs"].append(tensor.access())
    for shape in ([128, 8192], [8192, 128]):
        rows(doc)[0]["sb_buf_shape"] = shape
        row = rows(document(translated(module(folder, doc))))[0]
        assert (row["sb_buf_shape"], [o["memref"] for o in row["outs"]]) == (shape, ["y", "pad"])
    rows(doc)[0]["sb_buf_shape"] = [128, 4095]
    message = refused(module(folder, doc))
    assert (message.code, "4096" in message.message) == ("scratchpad_too_small", True)


def test_t8_memory_that_the_architecture_does_not_have_is_refused(folder: Path) -> None:
    put(folder / "k.json", add_file(addr=229_376 - 63))
    message = refused(module(folder, caller("k.json")))
    assert (message.code, "229376" in message.message) == ("sb_overflow", True)
    put(folder / "k.json", tall(bank=8))
    assert refused(module(folder, caller("k.json"))).code == "psum_overflow"
    put(folder / "k.json", tall(bank=2**62))
    assert refused(module(folder, caller("k.json"))).code == "psum_overflow"
    put(folder / "k.json", add_file(addr=2**63 - 1))
    assert refused(module(folder, caller("k.json"))).code == "sb_overflow"


def test_t8_names_of_scratchpads_are_free(folder: Path) -> None:
    put(folder / "k.json", add_file(addr=0))
    doc = caller("k.json").json()
    doc["functions"][0]["allocations"][0]["memorylocations"][0]["name"] = "inst__add_sb_scratch"
    row = rows(doc)[0]
    row["func_args"]["a"] = row["ins"][0]["memref"] = "inst__add_sb_scratch"
    after = rows(document(translated(module(folder, doc))))[0]
    pad = after["outs"][1]
    assert (pad["memref"], pad["memsetref"]) == ("inst__add_sb_scratch.1", "inst__add_sb_scratch_set")


def test_t8_an_option_places_them(folder: Path) -> None:
    put(folder / "k.json", tall(bank=1))
    result = translated(module(folder, caller("k.json", "k.json")), scratchpad_addr=16384)
    made = [s["memorylocations"][0] for s in document(result)["functions"][0]["allocations"][3:]]
    assert [(m["addr"], m["allocated"]) for m in made] == 2 * [(16384, True), (0, True), (0, True)]
    inlined = air.passes.inline_nki_kernel(result.ir)
    assert inlined.ok
    held = inlined.ir.locations.filter(name="inst__tall:high")
    assert held["addr"].to_list() == [16384 + 4032]
    assert air.equivalent(result.ir, inlined.ir).ok


def test_t8_p1_an_allocator_between_places_them(folder: Path) -> None:
    put(folder / "k.json", add_file(addr=0))
    ir = air.read(module(folder, caller("k.json")))
    assert not air.run(ir).ok  # nobody has placed the scratchpad

    def allocator(batch: air.IR) -> air.IR:
        doc = json.loads(batch.to_json(0))
        for held in doc["functions"][0]["allocations"]:
            for place in held["memorylocations"]:
                if place["name"].endswith("_sb_scratch"):
                    place |= {"allocated": True, "addr": 32768}
        return air.read_json(json.dumps(doc).encode(), name="bir")

    result = air.run(ir, [*air.passes.default_steps(), (50, allocator)])
    assert result.ok
    assert result.ir.locations.filter(name="inst__add:tile")["addr"].to_list() == [32768]


# T9: constants


def with_constant(file: str) -> dict[str, Any]:
    made = build.module(arch="gen3")
    kernel = made.function("with_constant")
    a, c, tile = kernel.input("a", SHAPE), kernel.output("c", SHAPE), kernel.sb("tile", SHAPE)
    constant = kernel.tensor("w", "DRAM", SHAPE, kind="Const", set_members={"file": file})
    other = kernel.sb("other", SHAPE)
    load = kernel.add("Load", [a], [tile])
    more = kernel.add("Load", [constant], [other])
    add = kernel.add("TensorTensor", [tile, other], [tile], op="add", after=[load, more])
    kernel.add("Save", [tile], [c], after=[add])
    return kernel_file(made)


def test_t9_constants_are_named_from_the_modules_folder(folder: Path) -> None:
    given = np.arange(128 * 16, dtype=np.float32).reshape(128, 16)
    (folder / "kernels").mkdir()
    np.save(folder / "kernels/w.npy", given)
    put(folder / "kernels/c.json", with_constant("w.npy"))
    result = translated(module(folder, caller("kernels/c.json")))
    files = [held.get("file") for held in kernels(document(result))[0]["allocations"]]
    assert [file for file in files if file] == ["../kernels/w.npy"]
    inlined = air.passes.inline_nki_kernel(result.ir)
    assert np.array_equal(air.simulate(inlined.ir, {"x": given})["y"], 2 * given)


def test_t9_a_constant_beside_the_module_keeps_its_name(folder: Path) -> None:
    put(folder / "sg00/c.json", with_constant("w.npy"))
    (folder / "sg00/w.npy").touch()
    result = translated(module(folder, caller("c.json")))
    assert kernels(document(result))[0] == with_constant("w.npy")["functions"][0]


def test_t9_a_constant_that_is_not_there_is_a_warning(folder: Path) -> None:
    put(folder / "c.json", with_constant("w.npy"))
    result = translated(module(folder, caller("c.json")))
    assert result.status.to_list() == ["changed"]
    assert [(m.severity, m.code, m.set) for m in result.messages] == [("warning", "constant_file_missing", "w_set")]


@pytest.mark.parametrize("file", ["../../w.npy", "/etc/hostname"])
def test_t9_a_constant_outside_is_refused(folder: Path, file: str) -> None:
    put(folder / "c.json", with_constant(file))
    message = refused(module(folder, caller("c.json")))
    assert (message.code, file in message.message) == ("kernel_file_outside", True)
