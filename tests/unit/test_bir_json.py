"""Reading and writing BIR JSON: sources and names, rows and their order, files written."""

import gc
import gzip
import json
import sys
import weakref
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from arrowir import layouts
from arrowir.diagnostics import ArrowIRError, FormatError, OptionError
from arrowir.formats import json_text, targets
from arrowir.formats.bir_json import read_documents, read_json, stem, to_json, write_json
from arrowir.formats.bir_reader import BirReader
from arrowir.formats.json_text import Number, dump, indented, member_path, parse
from arrowir.store import Pools
from arrowir.testing.assertions import assert_valid
from tests.documents import block, compact, function, instruction, load, loop, module, operand, register, storage

ROOT = Path(__file__).parents[2]
EMPTY = b'{"version":2,"functions":[]}'


# -- sources ----


@pytest.mark.parametrize(
    ("path", "name"),
    [("a/bir.json", "bir"), ("x.bir.json", "x"), ("x.bir.json.gz", "x"), ("x.json.zst", "x"), ("x.gz", "x"), ("x", "x"),
     (".json", ".json"), ("a.b.json", "a.b"), ("x.bir", "x.bir"), ("x.json.json", "x.json")],
)  # fmt: skip
def test_a_module_is_named_after_its_file(path: str, name: str) -> None:
    assert stem(path) == name


def test_name_source_and_stage_of_a_module(tmp_path: Path) -> None:
    path = tmp_path / "bir_debug.f.after-lower_sync.before-next.json"
    path.write_bytes(EMPTY)
    row = read_json(path).modules.row(0, named=True)
    assert (row["name"], row["source"], row["stage"]) == (stem(path.name), str(path), "lower_sync")
    row = read_json(str(path), name="mine").modules.row(0, named=True)
    assert (row["name"], row["stage"]) == ("mine", "lower_sync")
    row = read_json(EMPTY).modules.row(0, named=True)
    assert (row["name"], row["source"], row["stage"]) == ("document", None, None)


def test_read_json_raises_with_and_without_strict(tmp_path: Path) -> None:
    for strict in (False, True):
        with pytest.raises(FormatError, match="the file is empty"):
            read_json(b"", strict=strict)
        with pytest.raises(FormatError, match="cannot be read: is a directory"):
            read_json(tmp_path, strict=strict)
        with pytest.raises(FormatError, match="cannot be read"):
            read_json("a\0b", strict=strict)


def test_no_documents_make_an_empty_batch() -> None:
    ir, found = read_documents([])
    assert_valid(ir)
    assert (len(ir), found) == (0, [])


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cyclic_collector_is_left_as_it_was(enabled: bool) -> None:
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        read_json(EMPTY)
        with pytest.raises(FormatError):
            read_json(b"[")
        assert gc.isenabled() is enabled
    finally:
        (gc.enable if was else gc.disable)()


# -- rows ----


def test_a_module_in_a_batch_has_the_rows_that_it_has_alone() -> None:
    paths = [
        *sorted((ROOT / "data/samples/klr009").glob("*4.bir.json")),
        *(ROOT / name for name in ("data/generated/tiny.json", "data/samples/bir_json_example.json")),
        ROOT / "data/generated/loops.json",
    ]
    ir, _ = read_documents(paths)
    assert_valid(ir)
    for module_id, path in enumerate(paths):
        alone = read_json(path)
        assert to_json(ir, module_id) == to_json(alone)
        for table in ("instructions", "operands", "locations", "dependencies", "references", "call_arguments"):
            part = ir.frame(table).filter(ir.frame(table)["module_id"] == module_id)
            columns = [c for c in part.columns if not c.endswith("_id") and c not in ("id", "row")]
            assert part.select(columns).rows() == alone.frame(table).select(columns).rows()


def test_blocks_go_breadth_first_and_position_is_program_order() -> None:
    deep = loop("k", block("d1", instruction("i5")), name="l3")
    first = loop("i", block("a1", instruction("i1"), deep), block("a2", instruction("i2")), name="l1")
    second = loop("j", block("c1", instruction("i3")), name="l2")
    queue = {"name": "q", "blocks": [block("q1", loop("z", block("q2", instruction("i7")), name="l4"))]}
    body = function("f", blocks=[block("b1", first, instruction("i4")), block("b2", second)])
    ir = load(module(body, function("g", instructions=[instruction("i6")]), queues=[queue]))
    assert ir.blocks["name"].to_list() == ["b1", "b2", "a1", "a2", "c1", "d1", "b0", "q1", "q2"]
    assert ir.blocks["owner"].to_list() == ["function"] * 2 + ["instruction"] * 4 + ["function", "queue", "instruction"]
    assert ir.blocks["function_id"].to_list() == [0] * 6 + [1, None, None]
    assert ir.blocks["queue_id"].to_list() == [None] * 7 + [0, 0]
    names = ["l1", "i4", "l2", "i1", "l3", "i2", "i3", "i5", "i6", "l4", "i7"]
    assert ir.instructions["name"].to_list() == names
    assert ir.instructions["position"].to_list() == [0, 5, 6, 1, 2, 4, 7, 3, 0, 0, 1]


def test_operands_go_in_indirection_out_whatever_the_order_of_members() -> None:
    row = {"outs": [operand("a", offset=3)], "name": "I", "indirection_ins": [operand("a", offset=2)], "opcode": "NoOp",
           "ins": [operand("a", offset=0), operand("a", offset=1)], "engine": "PE"}  # fmt: skip
    ir = load(module(function("f", [storage("a")], [row])))
    assert ir.operands.select("role", "offset").rows() == [("in", 0), ("in", 1), ("indirection", 2), ("out", 3)]


def test_layouts_say_where_values_are() -> None:
    row = instruction(
        "I", "TensorScalar", ins=[operand("a", memsetref=None)], const0=1.5, queue=None, op0="add", debug={"x": 1}
    )
    ir = load(module({**function("f", [storage("a")], [row]), "attributes": ["need_unroll"]}))
    table = ir.tables["instructions"]
    assert layouts.entries(ir.pools.layouts[table["layout"][0]]) == (
        ("c", "name"), ("c", "opcode"), ("c", "engine"), ("c", "ins"), ("c", "outs"), ("r", "const0"), ("n", "queue"),
        ("r", "op0"), ("c", "debug"))  # fmt: skip
    assert ir.pools.extras[table["extra"][0]] == '{"const0":1.5,"op0":"add"}'
    assert ir.pools.extras[table["debug"][0]] == '{"x":1}'
    operands = ir.tables["operands"]
    assert layouts.entries(ir.pools.layouts[operands["layout"][0]])[-1] == ("n", "memsetref")
    assert operands.columns["extra"] is None
    assert ir.functions["attributes"].to_list() == ['["need_unroll"]']


def test_equal_text_is_kept_once() -> None:
    rows = [instruction(f"I{n}", "Activation", ins=[operand("a")], func="Exp", scale=1.0) for n in range(50)]
    ir = load(module(function("f", [storage("a")], rows)))
    assert len(set(ir.tables["instructions"]["extra"].tolist())) == 1
    assert len(set(ir.tables["instructions"]["layout"].tolist())) == 1
    assert len(ir.pools.patterns) == 1


def test_columns_without_cells_are_absent() -> None:
    ir = load(module(function("f", [storage("a")], [instruction("I", ins=[operand("a")])])))
    absent = {name for name, column in ir.tables["instructions"].columns.items() if column is None}
    assert {"call_chain_id", "original_name", "sync_layout", "debug", "optin_mask", "extra"} <= absent
    assert ir.instructions["optin_mask"].to_list() == [15]


def test_storage_keeps_its_order() -> None:
    mixed = [register("r"), storage("a"), {"Skind": "odd", "name": "o", "memorylocations": [1]}, storage("b"),
             {"name": "plain"}, {"name": "s", "kind": "Const", "memorylocations": []}, {"Skind": None,
             "name": "n"}]  # fmt: skip
    ir = load(module(function("f", mixed)))
    assert ir.sets.select("name", "ordinal").rows() == [("a_set", 1), ("b_set", 3), ("s", 5)]
    stored = [("r", 0, "register"), ("o", 2, "odd"), ("plain", 4, None), ("n", 6, None)]
    assert ir.registers.select("name", "ordinal").rows() == [row[:2] for row in stored]
    codes = ir.tables["registers"]["storage"].tolist()
    assert [ir.pools.codes["storage_kind"][c] if c >= 0 else None for c in codes] == [row[2] for row in stored]


def test_aliases_keep_their_form_and_kind() -> None:
    alias = [["b_set", "b", True], ["b", 3.0], ["b", 1]]
    ir = load(module(function("f", [storage("a", alias=alias), storage("b", alias=[]), storage("c", alias=None)])))
    assert ir.aliases.select("location_id", "target_location_id", "kind").rows() == [(0, 1, 1), (0, 1, 3), (0, 1, 1)]


def test_loops_keep_bounds_that_are_expressions() -> None:
    bound = {"kind": "AffExprKind", "terms": [], "c": 4}
    row = {"opcode": "Loop", "LoopAxis": {"name": "i", "lb": None, "ub": bound}, "blocks": [], "isParallel": False}
    ir = load(module(function("f", [], [row])))
    assert ir.loops.select("axis", "lb", "ub", "stride").rows() == [("i", None, None, None)]


def test_fixed_columns_whatever_members_a_file_has() -> None:
    bare, full = (
        module(function("f")),
        module(function("f", [storage("a")], [instruction("I", "Load", dge_type="SWDGE")])),
    )
    frames = [read_json(compact(document).encode()).instructions for document in (bare, full)]
    assert frames[0].schema == frames[1].schema


# -- writing ----


def test_module_ids_out_of_range() -> None:
    ir = read_json(EMPTY)
    for module_id in (-1, 1):
        with pytest.raises(OptionError, match="from 0 to 0"):
            to_json(ir, module_id)


def test_write_json_to_a_file_or_a_folder(tmp_path: Path) -> None:
    ir = read_json(EMPTY, name="x")
    assert write_json(ir, tmp_path / "new/y.json") == [str(tmp_path / "new/y.json")]
    assert write_json(ir, tmp_path / "out") == [str(tmp_path / "out/x.json")]
    (tmp_path / "z.json").mkdir()
    assert write_json(ir, tmp_path / "z.json") == [str(tmp_path / "z.json/x.json")]
    write_json(ir, tmp_path / "y.json.gz")
    assert gzip.decompress((tmp_path / "y.json.gz").read_bytes()) == EMPTY
    first = (tmp_path / "y.json.gz").read_bytes()
    write_json(ir, tmp_path / "y.json.gz")
    assert (tmp_path / "y.json.gz").read_bytes() == first
    write_json(ir, tmp_path / "y.json.zst", indent=1)
    packed = pa.CompressedInputStream(pa.py_buffer((tmp_path / "y.json.zst").read_bytes()), "zstd").read()
    assert packed.decode() == json.dumps(json.loads(EMPTY), indent=1)
    assert read_json(tmp_path / "y.json.zst").modules["name"].to_list() == ["y"]
    two, _ = read_documents([("a", EMPTY), ("b", EMPTY)])
    assert write_json(two, tmp_path / "w.json") == [str(tmp_path / "w.json" / f"{name}.json") for name in "ab"]


def test_write_json_says_what_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ArrowIRError, match=r"`.*file/x.json` cannot be written: "):
        write_json(read_json(EMPTY, name="x"), tmp_path / "file")


@pytest.mark.parametrize(
    ("names", "sources", "expected"),
    [
        (["a", "b"], [None, None], ["a", "b"]),
        (["bir", "bir"], ["p/nc00/sg00/bir.json", "p/nc01/sg00/bir.json"], ["nc00-sg00-bir", "nc01-sg00-bir"]),
        (["bir", "bir"], ["a/bir.json", "b/bir.json"], ["a-bir", "b-bir"]),
        (["x", "X"], ["a/x.json", "b/X.json"], ["a-x", "b-X"]),
        (["x"] * 3, ["a/p/x.json", "b/p/x.json", "b/q/x.json"], ["a-p-x", "b-p-x", "b-q-x"]),
        (["x"] * 3, [None, None, "a/x.json"], ["x", "x-2", "a-x"]),
        (["x"] * 4, ["a/x.json", "a/x.json.gz", "a/x.bir.json", "b/x.json"], ["a-x", "a-x.json.gz", "a-x.bir", "b-x"]),
        (["x", "x"], ["a/x.json.gz", "a/x.json.zst"], ["x.json.gz", "x.json.zst"]),
        (["x", "x"], ["a/x.bir.json", "a/x.bir.json"], ["x", "x-2"]),
        (["x", "x"], ["a/y.json", "a/z.json"], ["x", "x-2"]),
        (["a-x", "x", "x"], [None, "a/x.json", "b/x.json"], ["a-x", "a-x-2", "b-x"]),
        (["", "..", "a/b", "c\0\n"], [None] * 4, ["module", "module__", "a_b", "c__"]),
    ],
)
def test_names_of_files_differ(names: list[str], sources: list[str | None], expected: list[str]) -> None:
    assert targets.stems(names, sources) == expected


def test_long_names_of_modules_become_names_that_files_can_have() -> None:
    made = targets.stems(["\u00e9" * 300, "\u00e9" * 300 + "x"], [None, None])
    assert len(set(made)) == 2
    assert all(len(name.encode()) < 230 for name in made)


# -- JSON text ----


def test_numbers_that_python_would_spell_otherwise_are_kept_as_text() -> None:
    value = parse("[1.0,1.50,1e5,1E400,-0,0,-0.0,12]").value
    assert [type(item) for item in value] == [float, Number, Number, Number, Number, int, float, int]
    assert dump(value) == "[1.0,1.50,1e5,1E400,-0,0,-0.0,12]"
    assert type(parse('["x-0, ",0]').value[1]) is int


@pytest.mark.parametrize(
    "text", ['[{"a":[1,{"b":[]}],"c":{}},-0,"x\\n",1e400,NaN]', "[]", "{}", " [ 1 , 2 ] ", '{"a":1,"a":2}']
)
def test_the_deep_parser_agrees_with_the_fast_one(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fast = parse(text)

    class Shallow(json.JSONDecoder):
        def decode(self, s: str, _w: object = None) -> object:
            raise RecursionError

    monkeypatch.setattr(json_text.json, "JSONDecoder", Shallow)
    slow = parse(text)
    assert dump(slow.value) == dump(fast.value)
    assert [keys for _, keys in slow.duplicates] == [keys for _, keys in fast.duplicates]


@pytest.mark.parametrize(
    "text", ["[1,]", '{"a" 1}', '{"a":1,}', "[1 2]", "{1:2}", "[1]]", "[tru]", "[", '{"a":', '["x']
)
def test_the_deep_parser_refuses_what_the_fast_one_refuses(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FormatError) as fast:
        parse(text)

    class Shallow(json.JSONDecoder):
        def decode(self, s: str, _w: object = None) -> object:
            raise RecursionError

    monkeypatch.setattr(json_text.json, "JSONDecoder", Shallow)
    with pytest.raises(FormatError) as slow:
        parse(text)
    assert slow.value.offset == fast.value.offset


def test_long_integers_do_not_hang_on_the_limit_of_the_interpreter() -> None:
    limit = sys.get_int_max_str_digits()
    text = f"[{'7' * 639},{'7' * 700},-{'7' * 5000},1]"
    try:
        for digits in (640, limit):
            sys.set_int_max_str_digits(digits)
            assert dump(parse(text).value) == text
    finally:
        sys.set_int_max_str_digits(limit)


def test_indented_text_is_that_of_the_standard_library() -> None:
    value = {"a": [1, [], {}, {"b": 'x"\\,:[]{}'}], "c": {"d": None}, "e": "\u00e9 \u2028", "": -1.5}
    for indent in (0, 1, 2, 8):
        assert indented(compact(value), indent) == json.dumps(value, indent=indent, ensure_ascii=False)


def test_json_paths() -> None:
    assert member_path(member_path(member_path("", "a"), 3), "b") == "a[3].b"
    assert member_path("a", "b c") == 'a["b c"]'
    assert member_path("", "1") == '["1"]'


def test_more_values_than_codes_can_count_are_refused() -> None:
    rows = [instruction("I", f"Op{n}") for n in range(33_000)]
    with pytest.raises(FormatError, match="32,767 distinct values of opcode"):
        read_json(compact(module(function("f", [], rows))).encode())


def test_dtypes_of_columns() -> None:
    ir = read_json(ROOT / "data/generated/tiny.json")
    table = ir.tables["operands"]
    assert (table["kind"].dtype, table["offset"].dtype, table["set_id"].dtype) == (np.int16, np.int64, np.int32)


def test_a_reader_is_freed_without_the_cyclic_collector() -> None:
    reader = BirReader(Pools())
    reader.read(
        parse(compact(module(function("f", [storage("a")], [instruction("I")])))).value,
        name="",
        source=None,
        stage=None,
    )
    gone = weakref.ref(reader), weakref.ref(reader.members)
    was = gc.isenabled()
    gc.disable()
    try:
        del reader
        assert [ref() for ref in gone] == [None, None]
    finally:
        (gc.enable if was else gc.disable)()
