"""Rule N17, tensor maps, clause by clause: read, renamed, written, and all else passed through."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arrowir as air
from arrowir import build
from arrowir.formats import tensor_map
from arrowir.formats.tensor_map import renamed
from arrowir.testing.assertions import assert_valid
from tests.kernel_files import SHAPE, put

Json = dict[str, Any]


def copier(made: build.ModuleBuilder, name: str, a: str = "a", c: str = "c", *calls: tuple[str, Json, Json]) -> None:
    """Add a kernel that copies its input to its output, itself or by calls: callee, arguments, results."""
    kernel = made.kernel(name)
    source, result = kernel.input(a, SHAPE), kernel.output(c, SHAPE)
    kernel.dram("inside", SHAPE)
    if not calls:
        kernel.add("Save", [source], [result])
    for number, (callee, args, outs) in enumerate(calls):
        kernel.call(callee, args, outs, name=f"inner{number}")


def caller(*calls: tuple[str, Json, Json], middle: tuple[str, ...] = ("t0", "t1")) -> build.ModuleBuilder:
    made = build.module(arch="gen3")
    main = made.function("main")
    main.input("x", SHAPE)
    main.output("y", SHAPE)
    for name in middle:
        main.dram(name, SHAPE)
    for number, (callee, args, outs) in enumerate(calls):
        main.call(callee, args, outs, name=f"call{number}")
    return made


def entries(*names: str) -> Json:
    return {
        "inputs": [{"name": name} for name in names],
        "outputs": [{"name": name, "shape": [1, 2]} for name in names],
        "alias_map": [{"input_name": name, "output_name": name, "must_alias": True} for name in names],
    }


def names_after(folder: Path, made: build.ModuleBuilder | Json, *names: str, **options: Any) -> list[str]:
    """Run the inliner on a module with a tensor map; all three lists agree. Return the names in it."""
    put(folder / "bir.json", made if isinstance(made, dict) else made.json())
    put(folder / "tensor_map.json", entries(*names))
    ir = air.read(folder / "bir.json")
    result = air.run(ir, ["inline_nki_kernel"], options={"inline_nki_kernel": options})
    assert result.ok, result.diagnostics
    assert_valid(result.ir)
    found = json.loads(result.ir.modules["tensor_map"].item())
    listed = [entry["name"] for entry in found["inputs"]]
    assert found == entries(*listed)
    return listed


# what is renamed


def test_n17_entries_that_name_a_bound_formal_are_renamed_to_the_actual(tmp_path: Path) -> None:
    made = caller(("k", {"a": "x"}, {"c": "y"}))
    copier(made, "k")
    assert names_after(tmp_path, made, "a", "c", "x", "other", "inside") == ["x", "y", "x", "other", "inside"]


def test_n17_names_of_sets_become_names_of_sets(tmp_path: Path) -> None:
    made = caller(("k", {"a": "x"}, {"c": "y"}))
    copier(made, "k")
    assert names_after(tmp_path, made, "a_set", "c_set") == ["x_set", "y_set"]


def test_n17_formals_bound_by_position_count_too(tmp_path: Path) -> None:
    made = build.module(arch="gen3")
    main = made.function("main")
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    main.call("k", [x], [y])
    copier(made, "k")
    assert names_after(tmp_path, made, "a", "c") == ["x", "y"]


def test_n17_the_first_call_site_in_program_order_counts(tmp_path: Path) -> None:
    calls = [("k", {"a": "x"}, {"c": "t0"}), ("k", {"a": "t0"}, {"c": "t1"}), ("l", {"a": "t1"}, {"c": "y"})]
    made = caller(*calls)
    copier(made, "l")
    copier(made, "k")
    assert names_after(tmp_path, made, "a", "c") == ["x", "t0"]
    made = caller(*reversed(calls))
    copier(made, "l")
    copier(made, "k")
    assert names_after(tmp_path, made, "a", "c") == ["t1", "y"]


def test_n17_all_are_renamed_at_once(tmp_path: Path) -> None:
    made = caller(("k", {"t0": "t1", "t1": "x"}, {"c": "y"}))
    kernel = made.kernel("k")
    kernel.input("t0", SHAPE)
    second, result = kernel.input("t1", SHAPE), kernel.output("c", SHAPE)
    kernel.add("Save", [second], [result])
    assert names_after(tmp_path, made, "t0", "t1") == ["t1", "x"]


def test_n17_a_parameter_of_an_ordinary_function_means_itself(tmp_path: Path) -> None:
    made = caller(("k", {"y": "x"}, {"x": "y"}))
    copier(made, "k", "y", "x")
    assert names_after(tmp_path, made, "x", "y", "x_set") == ["x", "y", "x_set"]


def test_n17_a_kernel_that_stays_keeps_its_names(tmp_path: Path) -> None:
    made = caller(("k", {"a": "x"}, {"c": "t0"}), ("l", {"b": "t0"}, {"d": "y"}))
    copier(made, "k")
    copier(made, "l", "b", "d")
    made.function("other").call("k", {"a": "x"}, {"c": "y"}, is_allocated=True)
    doc = made.json()
    doc["functions"][1]["allocations"] = json.loads(json.dumps(doc["functions"][0]["allocations"]))
    put(tmp_path / "bir.json", doc)
    put(tmp_path / "tensor_map.json", entries("a", "c", "b", "d"))
    result = air.run(air.read(tmp_path), ["inline_nki_kernel"], options={"inline_nki_kernel": {"allocated": False}})
    assert result.ok
    assert json.loads(result.ir.modules["tensor_map"].item()) == entries("a", "c", "t0", "y")


def test_n17_nested_formals_lead_to_the_ordinary_functions_storage(tmp_path: Path) -> None:
    made = caller(("outer", {"p": "x"}, {"q": "y"}))
    copier(made, "outer", "p", "q", ("inner", {"a": "p"}, {"c": "inside"}), ("last", {"e": "inside"}, {"f": "q"}))
    copier(made, "inner")
    copier(made, "last", "e", "f")
    names = names_after(tmp_path, made, "p", "q", "a", "c", "e", "f")
    assert names == ["x", "y", "x", "call0:inside", "call0:inside", "y"]
    ir = air.run(air.read(tmp_path / "bir.json"), ["inline_nki_kernel"]).ir
    assert set(names) <= set(ir.locations["name"].to_list())


def test_n17_r6_storage_of_kernels_is_called_as_it_is_in_the_end(tmp_path: Path) -> None:
    made = caller(("outer", {"p": "x"}, {"q": "y"}), middle=("call0:inside",))
    copier(made, "outer", "p", "q", ("inner", {"a": "p"}, {"c": "inside"}), ("last", {"e": "inside"}, {"f": "q"}))
    copier(made, "inner")
    copier(made, "last", "e", "f")
    names = names_after(tmp_path, made, "c", "e", "c_set", "call0:inside")
    assert names == ["call0:inside.1", "call0:inside.1", "call0:inside_set.1", "call0:inside"]
    ir = air.run(air.read(tmp_path / "bir.json"), ["inline_nki_kernel"]).ir
    (held,) = ir.locations.filter(name="call0:inside.1").rows(named=True)
    assert held["original_name"] == "inside"
    assert ir.sets.filter(id=held["set_id"])["name"].item() == "call0:inside_set.1"


def test_n17_r6_of_several_call_sites_and_levels_of_one_name(tmp_path: Path) -> None:
    calls = [("other", {"o": "x"}, {"r": "t1"}), ("outer", {"p": "x"}, {"q": "t0"}), ("outer", {"p": "x"}, {"q": "y"})]
    made = caller(*calls)
    copier(made, "outer", "p", "q", ("inner", {"a": "p"}, {"c": "inside"}), ("inner", {"a": "inside"}, {"c": "q"}))
    copier(made, "other", "o", "r", ("late", {"u": "o"}, {"v": "inside"}), ("late", {"u": "inside"}, {"v": "r"}))
    copier(made, "inner")
    copier(made, "late", "u", "v")
    document = made.json()
    for site in document["functions"][0]["blocks"][0]["instructions"]:
        site["name"] = "call"
    names = names_after(tmp_path, document, "c", "v")
    assert names == ["call:inside.1", "call:inside"]
    ir = air.run(air.read(tmp_path / "bir.json"), ["inline_nki_kernel"]).ir
    chain = ir.locations.join(ir.call_chains, left_on="call_chain_id", right_on="id", suffix="_of_chain")
    held = dict(chain.select("name", "kernel_of_chain" if "kernel_of_chain" in chain.columns else "kernel").rows())
    assert [held[name] for name in names] == ["outer", "other"]


def test_n17_an_inner_call_site_counts_where_its_body_stands(tmp_path: Path) -> None:
    made = caller(("outer", {"p": "x"}, {"q": "t0"}), ("inner", {"a": "t1"}, {"c": "y"}))
    copier(made, "inner")
    copier(made, "outer", "p", "q", ("inner", {"a": "p"}, {"c": "q"}))
    assert names_after(tmp_path, made, "a", "c") == ["x", "t0"]


def test_n17_modules_of_a_batch_have_their_own_names(tmp_path: Path) -> None:
    for number, actual in enumerate(("t0", "t1")):
        made = caller(("k", {"a": actual}, {"c": "y"}))
        copier(made, "k")
        put(tmp_path / f"m{number}.json", made.json())
        put(tmp_path / f"m{number}.tensor_map.json", entries("a"))
    result = air.run(air.read(tmp_path), ["inline_nki_kernel"])
    assert [json.loads(t) for t in result.ir.modules["tensor_map"]] == [entries("t0"), entries("t1")]


# what is passed through

ODD = (
    '\n{ "inputs" :\t[ {"name":"\\u0061" , "more":[1.50, -0, 1e400, NaN]}, {"name": 3}, "a", ["a"], {"n":"a"} ],\r\n'
    ' "outputs": {"name": "a"}, "a": [{"name": "a"}], "alias_map": [{"name": "a", "input_name": "a"}], "inputs": []}'
    "\n\n"
)


def test_n17_every_other_character_stays() -> None:
    assert renamed(ODD, {}) == ODD
    assert renamed(ODD, {"b": "c"}) == ODD
    changed = renamed(ODD, {"a": 'b"ä'})
    assert changed == ODD.replace('"\\u0061"', '"b\\"ä"').replace('"input_name": "a"', '"input_name": "b\\"ä"')


def naive(document: Any, names: dict[str, str]) -> Any:
    """Rename in a parsed document: the same in a dozen lines."""
    for key, members in (("inputs", ["name"]), ("outputs", ["name"]), ("alias_map", ["input_name", "output_name"])):
        held = document.get(key)
        for entry in held if isinstance(held, list) else []:
            for member in members if isinstance(entry, dict) else []:
                if isinstance(entry.get(member), str):
                    entry[member] = names.get(entry[member], entry[member])
    return document


NAMES = st.sampled_from(["a", "b", "x:y", 'q"', "ä", "\\", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.just("name"), inner, max_size=3),
    max_leaves=6,
)
ENTRY = st.dictionaries(st.sampled_from(["name", "input_name", "output_name", "shape"]), NAMES | VALUES, max_size=4)
MAPS = st.dictionaries(
    st.sampled_from(["inputs", "outputs", "alias_map", "more"]),
    st.lists(ENTRY | VALUES, max_size=4) | VALUES,
    max_size=4,
)


def between(text: str, spans: list[tuple[int, int]]) -> list[str]:
    """Return the pieces of a text around some stretches."""
    bounds = zip([0, *(end for _, end in spans)], [*(begin for begin, _ in spans), len(text)], strict=True)
    return [text[a:b] for a, b in bounds]


@given(
    document=MAPS,
    names=st.dictionaries(NAMES, NAMES, max_size=4),
    indent=st.sampled_from([None, 0, 3]),
    ascii_only=st.booleans(),
)
def test_n17_renaming_agrees_with_a_naive_one_and_keeps_the_layout(
    document: Json, names: dict[str, str], indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only)
    after = renamed(text, names)
    assert json.loads(after) == naive(json.loads(text), names)
    spans, then = tensor_map.name_spans(text), tensor_map.name_spans(after)
    assert between(text, spans) == between(after, then)
    for (begin, end), (first, last) in zip(spans, then, strict=True):
        if json.loads(text[begin:end]) not in names:
            assert text[begin:end] == after[first:last]
    assert renamed(text, {}) == text


def test_n17_a_module_without_kernels_has_its_map_back_byte_for_byte(tmp_path: Path) -> None:
    put(tmp_path / "in/m.json", caller().json())
    put(tmp_path / "in/tensor_map.json", ODD.encode())
    result = air.run(air.read(tmp_path / "in"))
    files = result.ir.write_json(tmp_path / "out")
    assert (tmp_path / "out/m.tensor_map.json").read_bytes() == ODD.encode()
    assert [Path(f).name for f in files] == ["m.json"]
    result.ir.write_parquet(tmp_path / "set")
    back = air.read(tmp_path / "set")
    assert back.modules["tensor_map"].item() == ODD
    back.write_json(tmp_path / "again.json")
    assert (tmp_path / "again.tensor_map.json").read_bytes() == ODD.encode()


# when it is read


def prepared(folder: Path) -> air.IR:
    made = caller(("k", {"a": "x"}, {"c": "y"}))
    copier(made, "k")
    put(folder / "bir.json", made.json())
    put(folder / "tensor_map.json", entries("a"))
    return air.read(folder / "bir.json")


def test_n17_reading_a_module_leaves_the_file_alone(tmp_path: Path) -> None:
    assert prepared(tmp_path).modules["tensor_map"].to_list() == [None]


def test_n17_the_option_is_on_when_the_file_exists(tmp_path: Path) -> None:
    ir = prepared(tmp_path)
    assert json.loads(air.run(ir).ir.modules["tensor_map"].item()) == entries("x")
    (tmp_path / "tensor_map.json").unlink()
    result = air.run(ir)
    assert (result.ok, result.ir.modules["tensor_map"].item()) == (True, None)


def test_n17_off_means_neither_read_nor_kept(tmp_path: Path) -> None:
    ir = prepared(tmp_path)
    assert air.run(ir, tensor_map=False).ir.modules["tensor_map"].item() is None
    assert air.run(air.run(ir).ir, tensor_map=False).ir.modules["tensor_map"].item() is None


def test_n17_on_needs_the_file(tmp_path: Path) -> None:
    ir = prepared(tmp_path)
    assert air.run(ir, tensor_map=True).ok
    (tmp_path / "tensor_map.json").unlink()
    result = air.run(ir, tensor_map=True)
    (message,) = [m for m in result.messages if m.severity == "error"]
    assert (message.code, message.module) == ("no_tensor_map", "bir")
    assert result.status.to_list() == ["changed"]
    with pytest.raises(air.PassError, match="no_tensor_map"):
        air.run(ir, tensor_map=True, strict=True)
    assert not air.run(caller().ir(), tensor_map=True).ok
    with pytest.raises(air.OptionError, match="tensor_map"):
        air.run(ir, tensor_map="yes")  # type: ignore[call-overload]


def test_n17_the_modules_own_file_comes_before_that_of_the_folder(tmp_path: Path) -> None:
    ir = prepared(tmp_path)
    put(tmp_path / "bir.tensor_map.json", entries("c"))
    assert json.loads(air.run(ir).ir.modules["tensor_map"].item()) == entries("y")


def test_n17_what_is_attached_is_not_read_again(tmp_path: Path) -> None:
    once = air.run(prepared(tmp_path)).ir
    assert air.run(once).ir.modules["tensor_map"].item() == once.modules["tensor_map"].item()
    plain = air.passes.inline_nki_kernel(prepared(tmp_path)).ir  # its file names parameters that are gone
    assert air.run(plain).ir.modules["tensor_map"].item() is None


@pytest.mark.parametrize("written", [b"", b"[]", b"{", b'{"a": "\xff"}', b"\xef\xbb\xbf{}", b"3"])
def test_n17_o8_a_damaged_file_is_an_error_that_does_not_fail_the_module(tmp_path: Path, written: bytes) -> None:
    ir = prepared(tmp_path)
    put(tmp_path / "tensor_map.json", written)
    result = air.run(ir)
    (message,) = [m for m in result.messages if m.severity == "error"]
    assert message.code == "bad_tensor_map"
    assert str(tmp_path / "tensor_map.json") in message.message
    assert (result.status.to_list(), result.ir.modules["tensor_map"].item()) == (["changed"], None)


def test_n17_f4_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    ir = prepared(tmp_path)
    put(tmp_path / "tensor_map.json", '{"more": ' + 5_000 * "[" + 5_000 * "]" + "}")
    assert [m.code for m in air.run(ir).messages if m.severity == "error"] in ([], ["bad_tensor_map"])
