"""Rules F: files are read and written without loss, and what cannot be read is said clearly."""

import gzip
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arrowir.diagnostics import ArrowIRError, FormatError
from arrowir.formats import reading
from arrowir.formats.bir_json import read_documents, read_json, to_json, write_json
from arrowir.testing.assertions import assert_valid
from arrowir.testing.expressions import affine, induction
from tests.documents import Json, block, codes, compact, function, instruction, load, loop, module, operand, storage

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "data/samples").rglob("*.json")) + sorted((ROOT / "data/generated").glob("*.json"))
SMALL = compact(module()).encode()


def refused(source: Any) -> FormatError:
    with pytest.raises(FormatError) as caught:
        read_json(compact(source).encode() if isinstance(source, dict) else source)
    return caught.value


# -- F1 ----


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_f1_samples_come_back_as_they_were(path: Path) -> None:
    text = path.read_text()
    ir = read_json(path)
    assert_valid(ir)
    assert to_json(ir).decode() == compact(json.loads(text))
    assert json.loads(to_json(ir, indent=2)) == json.loads(text)


def test_f1_there_are_samples_of_both_kinds() -> None:
    names = {path.name for path in SAMPLES}
    assert len(names) >= 18
    assert {"opcode_zoo.json", "bir_json_example.json", "chain5000.bir.json", "kernel_lowered.json"} <= names


@pytest.mark.parametrize(
    "literal",
    ["1.0", "1", "-0.0", "-0", "1e-05", "1.50", "1E5", "1e400", "-1e400", "0.1", "5e-324", "1" + "0" * 300, "9" * 5000,
     "18446744073709551616", "NaN", "Infinity", "-Infinity", '"nan"', '"inf"', '"-inf"', "null", "true", '"\\ud800"',
     '"\\u0000\\u0001\\u001f"', '"\U0001f600\u00e9"', '"\\"\\\\"', "[]", "{}", '[[],{"a":[1.0,1e400]}]',
     '{"\\udfff":1}'],
)  # fmt: skip
@pytest.mark.parametrize("where", ["module", "operand", "attribute"])
def test_f1_values_of_unknown_members_keep_their_spelling(literal: str, where: str) -> None:
    inner = operand("a", zz=0) if where == "operand" else operand("a")
    made = instruction("I", ins=[inner], **({"zz": 0} if where == "attribute" else {}))
    document = module(
        function(allocations=[storage("a")], instructions=[made]), **({"zz": 0} if where == "module" else {})
    )
    text = compact(document).replace('"zz":0', f'"zz":{literal}')
    ir = read_json(text.encode())
    assert_valid(ir)
    assert to_json(ir).decode() == text


def test_f1_values_that_are_equal_to_python_but_not_in_json_are_kept_apart() -> None:
    values = [1, 1.0, True, 0, 0.0, -0.0, False, "1", None, [1], [1.0], [True], {"a": 1}, {"a": True}]
    load(module(function(instructions=[instruction(f"I{n}", zz=value) for n, value in enumerate(values)])))


def test_f1_order_presence_and_null_of_members_are_kept() -> None:
    load({"functions": [], "zz": None, "queues": None, "version": 1, "nki_functions": None, "arch": "gen3"})
    load({"version": 2, "functions": [{"blocks": [], "name": "f"}, {"name": "g", "allocations": None}]})
    for nki in ({}, {"functions": []}, {"more": 1, "functions": [function("k")], "a": None}, [], [function("k")], None):
        ir = load(module(function(), nki_functions=nki))
        assert ir.functions["in_nki_functions"].sum() == (ir.functions.height - 1)


def test_f1_operand_lists_absent_null_empty_and_filled_differ() -> None:
    rows: list[Json] = [{"name": f"I{n}", "opcode": "NoOp", "engine": "DVE"} for n in range(4)]
    rows[1]["ins"] = None
    rows[2]["ins"] = []
    rows[3]["ins"] = [operand("a")]
    ir = load(module(function(allocations=[storage("a")], instructions=rows)))
    assert ir.operands["instruction_id"].to_list() == [3]


def test_f1_unknown_things_are_kept_and_warned_of() -> None:
    made = instruction("I", "BrandNew", ins=[operand("a", kind="odd_ap", zz={"x": 1})], blocks=[block("inner", zz=1)])
    made["engine"] = "NewEngine"
    ir = load(
        module(function(allocations=[{**storage("a"), "dtype": "int3"}, {"Skind": "odd", "q": 1}], instructions=[made]))
    )
    assert sorted(m.message.split("`")[1] for m in ir.messages) == ["BrandNew", "NewEngine", "int3", "odd", "odd_ap"]
    assert set(codes(ir)) == {"unknown_value"}
    assert ir.instructions["opcode"].to_list() == ["BrandNew"]
    assert ir.blocks["name"].to_list() == ["b0", "inner"]


def test_f1_members_that_other_opcodes_use_otherwise_stay_text() -> None:
    rows = [
        instruction("a", "Activation", func="Exp", func_args=[1], arguments={"x": 1.5}),
        instruction("b", "BrandNew", target=5, on_true=["x"], LoopAxis=7, blocks=[1, {"instructions": 2}]),
        instruction("c", "NKIKernel", func=None, func_args={}, func_outs=[], arguments=3),
    ]
    ir = load(module(function(instructions=rows)))
    assert ir.branches.is_empty()
    assert ir.calls.is_empty()
    assert ir.loops.is_empty()


def test_f1_indentation_changes_no_value() -> None:
    document = module(function("f", instructions=[instruction('"[]{},:\\', zz=[[], {}, [1, {"a": [2]}]], n="a, b: c")]))
    ir = load(document)
    for indent in (0, 1, 4):
        assert to_json(ir, indent=indent).decode() == json.dumps(document, indent=indent, ensure_ascii=False)


# -- F2 ----

NOT_MODULES: dict[str, tuple[bytes, str, int | None]] = {
    "empty": (b"", "the file is empty", 0),
    "blank": (b" \r\n", "white space alone", 0),
    "nul": (b"\0\0", "NUL bytes alone", 0),
    "truncated": (SMALL[:-1], "truncated", len(SMALL) - 1),
    "truncated in a string": (SMALL[:8], "truncated", 1),
    "truncated in a word": (b'{"a":tru', "truncated", 5),
    "array": (b"[]", "expected a BIR module, found a list", None),
    "number": (b"12", "expected a BIR module, found an integer", None),
    "string": (b'"x"', "expected a BIR module, found a string", None),
    "other object": (b'{"a":1}', "without `functions`, not a BIR module", None),
    "wrapped": (b'{"module":' + SMALL + b"}", "stands under `module`", None),
    "CBOR": (b"\xa2\x67version\x02", "CBOR", 0),
    "tagged CBOR": (b"\xd9\xd9\xf7\xa0", "CBOR", 0),
    "COLZ": (b"COLZ\x01\x00", "NKI_USE_COLZ=0", 0),
    "gzip, cut": (gzip.compress(SMALL)[:-9], "gzip data ends early", None),
    "gzip, damaged": (b"\x1f\x8b\x08\x00garbage garbage garbage", "gzip data is damaged", None),
    "zstd, cut": (pa.compress(SMALL, "zstd", asbytes=True)[:-3], "zstd data ends early", None),
    "zstd, damaged": (b"\x28\xb5\x2f\xfd" + b"\xff" * 40, "zstd data is damaged", None),
    "gzip of COLZ": (gzip.compress(b"COLZ"), "NKI_USE_COLZ=0", 0),
    "BOM": (b"\xef\xbb\xbf" + SMALL, "byte order mark", 0),
    "UTF-16": (SMALL.decode().encode("utf-16"), "UTF-16", 0),
    "UTF-16 without BOM": (SMALL.decode().encode("utf-16-le"), "UTF-16", 0),
    "trailing NUL": (SMALL + b"\0\0", "NUL bytes (2) follow the document", len(SMALL)),
    "no UTF-8": (b'{"a":"\xff"}', "byte 0xff is not UTF-8", 6),
    "more text": (SMALL + b"\n{}", "more text follows", len(SMALL) + 1),
    "no JSON": (b"hello", "not JSON: it starts with `hello`", 0),
    "bad JSON": ('{"\u00e9":1 2}'.encode(), "expecting ',' delimiter, found `2}`", 8),
    "control character": (b'{"a":"x\r\ny"}', "U+000D", 7),
    "Parquet": (b"PAR1....", "Parquet", 0),
}  # fmt: skip


@pytest.mark.parametrize("case", NOT_MODULES)
def test_f2_what_is_no_module_is_a_clear_error(case: str) -> None:
    data, message, offset = NOT_MODULES[case]
    error = refused(data)
    assert message in error.message
    assert len(error.message) < 150
    if offset is not None:
        assert error.offset == offset


def test_f2_messages_are_distinct() -> None:
    kinds = ("empty", "truncated", "array", "other object", "CBOR", "COLZ", "gzip, cut", "zstd, cut", "BOM",
    "trailing NUL",
             "UTF-16", "no UTF-8", "no JSON", "bad JSON", "control character")  # fmt: skip
    assert len({refused(NOT_MODULES[kind][0]).message for kind in kinds}) == len(kinds)


def test_f2_line_ends_of_both_kinds_are_white_space() -> None:
    text = json.dumps(module(function()), indent=1).replace("\n", "\r\n") + "\r\n"
    assert to_json(read_json(text.encode())).decode() == compact(module(function()))


def test_f2_packed_files_are_known_by_content(tmp_path: Path) -> None:
    for number, data in enumerate([SMALL, gzip.compress(SMALL), pa.compress(SMALL, "zstd", asbytes=True)]):
        path = tmp_path / f"{number}.json"
        path.write_bytes(data)
        assert to_json(read_json(path)) == SMALL


def test_f2_a_bad_file_is_a_row_and_the_rest_goes_on(tmp_path: Path) -> None:
    for name, data in (
        ("a.json", SMALL),
        ("b.bir.json", SMALL[:-1]),
        ("c.json", SMALL),
        ("e.json", b'{"functions":[1]}'),
    ):
        (tmp_path / name).write_bytes(data)
    names = ("a.json", "b.bir.json", "c.json", "missing.json", "e.json")
    ir, found = read_documents([tmp_path / name for name in names])
    assert ir.modules["name"].to_list() == ["a", "c"]
    errors = [(row.module, row.severity, row.code, row.module_id) for row in found]
    assert errors == [(name, "error", "format_error", None) for name in ("b", "missing", "e")]
    assert f"{tmp_path / 'b.bir.json'} at byte {len(SMALL) - 1}: " in found[0].message
    assert "no such file" in found[1].message
    assert f"{tmp_path / 'e.json'} at `functions[0]`: expected a function" in found[2].message
    assert list(ir.messages) == found
    with pytest.raises(FormatError, match=r"b\.bir\.json"):
        read_documents([tmp_path / name for name in names], strict=True)


def test_f2_a_link_that_leads_nowhere_is_a_row_too(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(SMALL)
    (tmp_path / "b.json").symlink_to(tmp_path / "gone.json")
    (tmp_path / "c.json").mkdir()
    ir = reading.read(tmp_path)
    assert ir.modules["name"].to_list() == ["a"]
    (row,) = ir.messages
    assert (row.module, row.code) == ("b", "format_error")
    assert row.message.endswith("b.json: cannot be read: no such file or directory")


def test_f2_a_bad_document_leaves_nothing_behind() -> None:
    late = module(function(allocations=[storage("a")], instructions=[instruction("I", ins=[operand("a")]), 5]))
    good = module(function("g", allocations=[storage("b")], instructions=[instruction("J", outs=[operand("b")])]))
    ir, _ = read_documents([("bad", compact(late).encode()), ("good", compact(good).encode())])
    assert_valid(ir)
    assert (len(ir), ir.count("instructions"), ir.count("locations")) == (1, 1, 1)
    assert to_json(ir).decode() == compact(good)


# -- F3 ----


def full() -> Json:
    """A module with every modelled member, from which one is taken or spoilt."""
    made = instruction(
        "I-1",
        "CompareAndBranch",
        ins=[operand("a", memsetref="a_set", access_shape=[128])],
        outs=[{"kind": "register_access", "dtype": "int32", "regref": "r"}],
        indirection_ins=[operand("a")],
        on_true="b0",
        on_false=None,
        dependencies=["I-0", ["I-0", "Flow"]],
        loop_carried_dependencies=[["I-0", 4, [1]]],
        unroll_dependencies=[["I-0", "Anti", [], []]],
        sync_info={"on_wait": [{"from": "I-0", "id": 1, "wait_value": 2}], "on_update": [{"id": 1, "update_value": 1}]},
        engine_id=1,
        scheduled_start=-1,
        scheduled_end=-1,
        optin_passes=15,
        debug={"lineno": 3},
    )
    call = instruction("C", "NKIKernel", func="k", func_args={"a": "a"}, func_outs=[["c", "a"]])
    location = {"bank": 0, "base": 0, "allocated": True, "pinned": False, "runtime_reserved": False, "tensor_id": 0}
    more = {"addr_space": None, "tensor_class": "Tensor", "origin": "NKI", "tensorId2MemLocSize": 1, "allocated": True}
    sets = [{**storage("a", memory="DRAM", alias=[["a_set", "a", 1], ["a", 3]], **location), **more}]
    allocations = [*sets, {"Skind": "register", "name": "r"}]
    main = function(allocations=allocations, instructions=[instruction("I-0"), made, call, loop("i", block("in"))])
    return module(
        {**main, "attributes": []},
        attributes={},
        nki_functions={"functions": [function("k", [storage("a", "Input"), storage("c", "Output")])]},
        queues=[{"name": "q", "blocks": [block("qb")]}],
    )


def at(document: Any, path: str) -> tuple[Any, Any]:
    """Return what holds the member at a JSON path, and its key."""
    keys: list[Any] = [int(k) if k.isdigit() else k for k in path.replace("]", "").replace("[", ".").split(".")]
    for key in keys[:-1]:
        document = document[key]
    return document, keys[-1]


SET, LOCATION = "functions[0].allocations[0]", "functions[0].allocations[0].memorylocations[0]"
ROW = "functions[0].blocks[0].instructions[1]"


def test_f3_the_whole_module_is_legal() -> None:
    ir = load(full())
    assert codes(ir) == []
    assert [ir.count(t) for t in ("dependencies", "aliases", "semaphores", "call_arguments", "branches")] == [
        4,
        2,
        2,
        2,
        1,
    ]


@pytest.mark.parametrize(
    "path",
    ["functions", f"{SET}.name", f"{SET}.kind", f"{SET}.dtype", f"{LOCATION}.name", f"{LOCATION}.type",
     f"{LOCATION}.addr",
     f"{LOCATION}.dims", "functions[0].blocks[0].instructions", f"{ROW}.name", f"{ROW}.opcode", f"{ROW}.engine",
     "functions[0].blocks[0].instructions[3].opcode", f"{ROW}.ins[0].ap", f"{ROW}.ins[0].offset",
     f"{ROW}.ins[0].dtype"],
)  # fmt: skip
def test_f3_required_members(path: str) -> None:
    missing, null = full(), full()
    holder, key = at(missing, path)
    del holder[key]
    error = refused(missing)
    assert f"`{key}`" in error.message
    assert error.json_path == (path.rpartition(".")[0] or "$")
    holder, key = at(null, path)
    holder[key] = None
    assert refused(null).json_path is not None


def test_f3_the_documentation_lists_the_required_members() -> None:
    page = (ROOT / "docs/file-format.md").read_text().split("### What must be there\n")[1].split("\n###")[0]
    rows = [row.split("|") for row in page.splitlines() if row.startswith("|") and "`" in row]
    listed = {what.split()[0]: set(re.findall(r"`(\w+)`", members)) for _, what, members, _ in rows}
    places = {"function": "functions[0]", "block": "functions[0].blocks[0]", "instruction": ROW, "set": SET}
    places |= {"location": LOCATION, "operand": f"{ROW}.ins[0]"}
    needed: dict[str, set[str]] = {"module": {key for key in full() if fails_without(key)}}
    for what, path in places.items():
        holder, key = at(full(), path)
        needed[what] = {member for member in holder[key] if fails_without(f"{path}.{member}")}
    assert {what: members for what, members in needed.items() if members} == listed


def fails_without(path: str) -> bool:
    document = full()
    holder, key = at(document, path)
    del holder[key]
    try:
        read_json(compact(document).encode())
    except FormatError:
        return True
    return False


@pytest.mark.parametrize(("said", "shown"), [(3, "3"), (0, "0"), (2.0, "2.0"), ("2", '"2"'), ([2], "a list")])
@pytest.mark.parametrize("terms", [[induction("i"), affine()], [affine(), affine()]])
def test_f3_another_number_of_terms_is_a_warning(said: Any, shown: str, terms: list[Json]) -> None:
    wrong, right = ({"kind": "SumKind", "n_terms": n, "terms": terms} for n in (said, len(terms)))
    body = block("b", instruction("I", "Memset", zz=right), instruction("J", "Memset", zz=[wrong, wrong]))
    made = load(module(function(instructions=[loop("i", body)])))
    assert codes(made) == ["term_count_mismatch"]
    (message,) = made.messages
    wanted = f"Number of terms don't match: `n_terms` is {shown}, and there are 2 terms, in `zz[0]` (and in 1 more "
    assert message.message.startswith(wanted)
    assert (message.severity, message.function, message.instruction) == ("warning", "main", "J")
    assert made.instructions["name"][message.instruction_id] == "J"


def test_f3_numbers_of_terms_are_looked_at_wherever_expressions_stand() -> None:
    wrong = {"kind": "SumKind", "n_terms": 1, "terms": []}
    reads = operand("a", addrs=[wrong])
    bound = {**loop("i"), "LoopAxis": {"name": "i", "lb": 0, "ub": wrong, "stride": 1}}
    for made in (instruction("I", ins=[reads]), instruction("I", unroll_dependencies=[["I", "Flow", [wrong]]]), bound):
        ir = load(module(function(allocations=[storage("a")], instructions=[made])))
        assert codes(ir) == ["term_count_mismatch"]
    # Elsewhere it is data of somebody's, as it is without the kind.
    for value in (
        {"n_terms": 1, "terms": []},
        {"kind": "Sum", "n_terms": 1, "terms": []},
        {"kind": "SumKind", "n_terms": 1},
    ):
        assert codes(load(module(function(instructions=[instruction("I", zz=value)])))) == []
    assert codes(load(module(function(), zz=wrong))) == []


def test_f3_a_loop_needs_no_header_and_a_queue_nothing_but_its_form() -> None:
    descriptor = {"opcode": "DMADescriptorCopy", "ins": [operand("a")]}
    queue = {
        "name": "q",
        "blocks": [block("b", {"name": "d", "opcode": "DMABlock", "blocks": [{"instructions": [descriptor, {}]}]})],
    }
    ir = load(module(function(allocations=[storage("a")], instructions=[loop("i", block("x"))]), queues=[queue]))
    assert ir.instructions["name"].to_list() == ["", "d", "", ""]
    assert ir.operands["location_id"].to_list() == [0]


WRONG: list[tuple[str, Any]] = [
    ("version", "2"), ("arch", 30), ("attributes", []), ("functions", {}), ("functions[0]", []), ("queues", {}),
    ("nki_functions", "x"), ("nki_functions.functions", {}), ("functions[0].name", 5), ("functions[0].attributes", "x"),
    ("functions[0].allocations", {}), ("functions[0].blocks", {}), ("functions[0].blocks[0].name", 1),
    ("functions[0].blocks[0].instructions", {}), ("queues[0].blocks", 1), ("queues[0].name", []),
    (f"{SET}.Skind", 1), (f"{SET}.name", 1), (f"{SET}.kind", 7), (f"{SET}.tensor_class", {}),
    (f"{SET}.tensor_shape", [1.5]),
    (f"{SET}.tensor_shape", 4), (f"{SET}.tensorId2MemLocSize", "1"), (f"{SET}.allocated", 1),
    (f"{SET}.memorylocations", {}),
    (f"{LOCATION}.name", []), (f"{LOCATION}.type", 1.5), (f"{LOCATION}.addr", "0"), (f"{LOCATION}.addr", True),
    (f"{LOCATION}.addr", 1.0), (f"{LOCATION}.dims", [128, "64"]), (f"{LOCATION}.dims", 4), (f"{LOCATION}.bank", "x"),
    (f"{LOCATION}.pinned", 0), (f"{LOCATION}.alias", {}), (f"{LOCATION}.alias[0]", ["a"]),
    (f"{LOCATION}.alias[0][2]", "x"),
    (f"{ROW}.name", None), (f"{ROW}.opcode", 12), (f"{ROW}.engine", []), (f"{ROW}.ins", {}), (f"{ROW}.outs[0]", "x"),
    (f"{ROW}.optin_passes", "x"), (f"{ROW}.optin_passes", [1]), (f"{ROW}.engine_id", 1.5), (f"{ROW}.on_true", 1),
    (f"{ROW}.dependencies", {}), (f"{ROW}.dependencies[0]", 1), (f"{ROW}.dependencies[1][0]", 1),
    (f"{ROW}.dependencies[1][1]", 1.5), (f"{ROW}.dependencies[1][1]", None), (f"{ROW}.dependencies[1]", []),
    (f"{ROW}.sync_info", []), (f"{ROW}.sync_info.on_wait", {}), (f"{ROW}.sync_info.on_wait[0].wait_value", "x"),
    (f"{ROW}.ins[0].ap", [[1, 2, 3]]), (f"{ROW}.ins[0].ap", [[1, True]]), (f"{ROW}.ins[0].ap", "x"),
    (f"{ROW}.ins[0].offset", {}), (f"{ROW}.ins[0].memref", 1), (f"{ROW}.ins[0].memsetref", []),
    (f"{ROW}.ins[0].kind", 1),
    (f"{ROW}.outs[0].regref", 1), (f"{ROW}.ins[0].access_shape", 5), ("functions[0].blocks[0].instructions[2].func", 1),
    ("functions[0].blocks[0].instructions[2].func_args", "x"),
    ("functions[0].blocks[0].instructions[2].func_args.a", 1),
    ("functions[0].blocks[0].instructions[2].func_outs[0]", ["c"]),
    ("functions[0].blocks[0].instructions[3].LoopAxis", 5),
    ("functions[0].blocks[0].instructions[3].LoopAxis.lb", "0"),
    ("functions[0].blocks[0].instructions[3].LoopAxis.name", 1),
    ("functions[0].blocks[0].instructions[3].blocks", {}), ("functions[0].blocks[0].instructions[3].blocks[0]", 5),
]  # fmt: skip


@pytest.mark.parametrize(("path", "value"), WRONG, ids=[f"{path}={value!r:.12}" for path, value in WRONG])
def test_f3_wrong_types_of_known_members_are_errors_with_their_path(path: str, value: Any) -> None:
    document = full()
    holder, key = at(document, path)
    holder[key] = value
    found = refused(document).json_path
    assert found is not None
    assert found.startswith(path)


INTEGERS = ["version", f"{SET}.tensorId2MemLocSize", f"{LOCATION}.addr", f"{LOCATION}.dims[1]", f"{LOCATION}.bank",
            f"{ROW}.engine_id", f"{ROW}.scheduled_end", f"{ROW}.optin_passes", f"{ROW}.ins[0].offset",
            f"{ROW}.ins[0].ap[0][0]", f"{SET}.tensor_shape[0]", f"{ROW}.sync_info.on_wait[0].id",
            "functions[0].blocks[0].instructions[3].LoopAxis.ub"]  # fmt: skip


@pytest.mark.parametrize("path", INTEGERS)
@pytest.mark.parametrize(
    "digits", [str(2**63), str(2**64), str(-(2**63) - 1), "1" + "0" * 300, "1" + "0" * 5000], ids=len
)
def test_f3_known_integers_beyond_64_bits_are_errors(path: str, digits: str) -> None:
    document = full()
    holder, key = at(document, path)
    holder[key] = "@"
    error = refused(compact(document).replace('"@"', digits).encode())
    assert "does not fit 64 bits" in error.message
    assert len(error.message) < 500
    assert error.json_path == path


@pytest.mark.parametrize("path", INTEGERS)
@pytest.mark.parametrize("number", [2**63 - 1, -(2**63 - 1), -(2**63)])
def test_f3_known_integers_of_64_bits_are_exact(path: str, number: int) -> None:
    document = full()
    holder, key = at(document, path)
    holder[key] = number
    if path.endswith("dims[1]"):
        holder[0] = 1
    load(document)


def test_f3_the_smallest_integer_is_text_because_its_column_means_absence_by_it() -> None:
    ir = load(module(function(allocations=[storage("a", bank=-(2**63))])))
    assert ir.locations["bank"].to_list() == [None]
    assert '"bank":-9223372036854775808' in ir.locations["extra"][0]


def test_f3_legal_unions() -> None:
    for value, mask in ((["a", "b"], 0), ([], 0), (0, 0), (12, 12), (None, 15)):
        ir = load(module(function(instructions=[instruction("I", optin_passes=value)])))
        assert ir.instructions["optin_mask"].to_list() == [mask]
    for value in ("SB", 16, 8, "Odd", 77):
        ir = load(module(function(allocations=[storage("a", memory=value)])))
        assert ir.locations["type"].to_list() == [{16: "SB", 8: "DRAM", 77: None}.get(value, value)]
    for value in ([], ["need_unroll"], {"need_unroll": True}, {}, None):
        load(module({**function(), "attributes": value}))
    for value in ("Beta1", 0, None):
        load(module(function(instructions=[instruction("I", "NKIKernel", kernel_source_val=value)])))
    for value in ("I", ["I"], ["I", "Anti"], ["I", 2], ["I", "Flow", [1]], ["I", "Odd"], ["I", 9]):
        ir = load(module(function(instructions=[instruction("I", dependencies=[value])])))
        edge = value[1] if isinstance(value, list) and len(value) > 1 else "Flow"
        assert ir.dependencies["edge"].to_list() == [{2: "Anti", 9: None}.get(edge, edge)]
        assert ("unknown_value" in codes(ir)) == (edge in ("Odd", 9))


@pytest.mark.parametrize(
    ("dims", "partitions", "size"),
    [([4, 8], 4, 8), ([2, 3, 5], 2, 15), ([7], 1, 7), ([], None, None), ([0, 5], 0, 5), ([128, 0], 128, 0)],
)
def test_f3_dims_of_any_length(dims: list[int], partitions: int | None, size: int | None) -> None:
    ir = load(module(function(allocations=[storage("a", dims=dims)])))
    assert ir.locations.select("partitions", "bytes").row(0) == (partitions, size)


def test_f3_a_float_that_overflows_is_kept_as_it_is_written() -> None:
    text = compact(module(function(instructions=[instruction("I", "Activation", scale=0)]))).replace(
        '"scale":0', '"scale":1e400'
    )
    ir = read_json(text.encode())
    assert to_json(ir).decode() == text
    assert ir.attributes("Activation")["scale"].to_list() == [float("inf")]


def test_f3_members_that_stand_twice_have_the_first_place_and_the_last_value() -> None:
    text = '{"version":1,"functions":[{"name":"a","zz":1,"name":"b","zz":2}],"version":2,"more":[{"k":{"a":1,"a":2}}]}'
    ir = read_json(text.encode())
    assert to_json(ir).decode() == '{"version":2,"functions":[{"name":"b","zz":2}],"more":[{"k":{"a":2}}]}'
    assert [m.code for m in ir.messages] == ["duplicate_key"] * 4
    told = [m.message for m in ir.messages]
    assert any("`name`" in text and "`functions[0]`" in text for text in told)
    assert any("`a`" in text and "`more[0].k`" in text for text in told)
    assert any("`version`" in text and "`$`" in text for text in told)


@pytest.mark.parametrize(("version", "warned"), [(1, False), (2, False), (3, True), (0, True), (None, True)])
def test_f3_other_versions_are_read_with_a_warning(version: int | None, warned: bool) -> None:
    ir = load({"functions": [], "version": version})
    assert codes(ir) == (["unknown_value"] if warned else [])


def test_f3_lone_surrogates_are_kept_in_text_and_refused_in_names() -> None:
    for path in ("functions[0].name", f"{SET}.name", f"{ROW}.name", f"{ROW}.opcode", f"{ROW}.ins[0].memref", "arch",
                 f"{ROW}.dependencies[0]", "functions[0].blocks[0].instructions[3].LoopAxis.name"):  # fmt: skip
        document = full()
        holder, key = at(document, path)
        holder[key] = "@"
        error = refused(compact(document).replace('"@"', '"x\\ud83d"').encode())
        assert "half a surrogate pair" in error.message
        assert error.json_path is not None
        assert path.startswith(error.json_path)
    assert "half a surrogate pair" in refused(b'{"functions":[],"\\udc00":1}').message


# -- F4 ----


def nest(levels: int) -> str:
    """Return a module with loops in loops; made as text, since the writers of Python nest no deeper than its stack."""
    head = '{"opcode":"Loop","LoopAxis":{"name":"i%d","lb":0,"ub":2,"stride":1},"blocks":[{"name":"b","instructions":['
    inner = compact(instruction("I", zz={"kind": "AffIVKind", "axis": "i0"}))
    body = "".join(head % level for level in range(levels)) + inner + "]}]}" * levels
    return compact(module(function())).replace('"instructions":[]', f'"instructions":[{body}]')


@pytest.mark.parametrize("levels", [1, 100, 400, 1900])
def test_f4_nested_loops(levels: int) -> None:
    text = nest(levels)
    ir = read_json(text.encode())
    assert_valid(ir)
    assert ir.count("loops") == levels
    assert ir.references["target_id"].to_list() == [0]
    assert ir.instructions["position"].to_list() == list(range(levels + 1))
    assert to_json(ir).decode() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nest(2_100), "blocks nest deeper than 2,000 levels"),
        ("[" * 200_000, "nests deeper than 10,000 levels"),
        ('{"functions":' + "[" * 200_000 + "]" * 200_000 + "}", "nests deeper than 10,000 levels"),
        ('{"functions":[],"zz":' + '{"a":' * 300 + "1" + "}" * 300 + "}", "nests deeper than 200 levels"),
        ('{"functions":[],"zz":' + "[" * 5_000 + "]" * 5_000 + "}", "nests deeper than 200 levels"),
        ('{"functions":[],"arch":' + "[" * 5_000 + "]" * 5_000 + "}", "expected a string, found a list"),
    ],
)
def test_f4_what_is_too_deep_is_a_clear_error(text: str, message: str) -> None:
    assert message in refused(text.encode()).message


def test_f4_values_of_two_hundred_levels_are_kept() -> None:
    text = '{"functions":[],"version":2,"zz":' + "[" * 200 + "]" * 200 + "}"
    assert to_json(read_json(text.encode())).decode() == text


# -- F5 ----


def test_f5_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ir = read_json(SMALL, name="x")
    target = tmp_path / "x.json"
    target.write_bytes(b"old")

    def fail(self: Path, other: Path) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(ArrowIRError, match="cannot be written"):
        write_json(ir, target)
    monkeypatch.undo()
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]
    assert write_json(ir, target) == [str(target)]
    assert target.read_bytes() == SMALL
    assert list(tmp_path.iterdir()) == [target]
