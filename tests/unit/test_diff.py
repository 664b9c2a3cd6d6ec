"""`air.diff`: each kind of difference, alone; batches; frames, text and matches."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import arrowir as air
from arrowir import OptionError, build
from arrowir.analyse.comparing import TABLES, WHATS
from arrowir.analyse.telling import plain
from tests.differences import (
    DATA,
    Json,
    difference,
    function,
    instruction,
    location,
    read,
    rename,
    sample,
    storage,
    told,
)

# -- nothing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [DATA / "generated", DATA / "samples" / "klr009", None])
def test_equal_batches_do_not_differ(path: Path | None) -> None:
    one, other = (read(sample()) if path is None else air.read(path) for _ in range(2))
    for found in (air.diff(one, one), air.diff(one, other)):
        assert not found
        assert found.rows.height == found.summary.height == 0
        assert str(found) == f"{len(one)} module{'s' if len(one) > 1 else ''}: no difference"
        assert found.modules["status"].unique().to_list() == ["same"]
        for table in TABLES:
            ids = list(range(one.count(table)))
            assert found.matches(table).rows() == [(i, i, False) for i in ids]


def test_empty_frames_have_the_columns_of_full_ones() -> None:
    empty = air.diff(read(sample()), read(sample()))
    full = difference(lambda d: rename(d, "twice", "double"))
    assert (empty.rows.schema, empty.summary.schema) == (full.rows.schema, full.summary.schema)


def test_batches_without_rows() -> None:
    nothing = air.read("data/samples/bir_json_example.json").select([])
    assert not air.diff(nothing, nothing)
    assert str(air.diff(nothing, nothing)) == "0 modules: no difference"
    empty = build.module(arch=None).ir("m")
    assert not air.diff(empty, empty)
    assert air.diff(nothing, empty).modules.rows() == [("m", None, None, "added", 1)]


def test_what_is_no_batch_is_refused() -> None:
    for given in (None, "x.json", [read(sample())]):
        with pytest.raises(OptionError, match=r"`after` takes an `arrowir.IR`"):
            air.diff(read(sample()), given)  # type: ignore[arg-type]


# -- one thing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "old", "new"),
    [
        ("instructions", "twice", "double"),
        ("instructions", "loop", "loop2"),
        ("instructions", "set", "put"),
        ("locations", "t", "tile"),
        ("sets", "t_set", "tiles"),
        ("registers", "r", "reg"),
        ("blocks", "B1", "Next"),
        ("functions", "other", "unused"),
        ("functions", "main", "sg0000"),
        ("queues", "queue", "q0"),
    ],
)
def test_a_new_name_is_told_as_that_and_nothing_else(table: str, old: str, new: str) -> None:
    found = difference(lambda d: rename(d, old, new))
    assert told(found) == [(table, "renamed", old, new, "name", old, new)]


def test_a_thing_that_has_a_new_name_and_other_cells_is_recognised_where_it_stands() -> None:
    def change(document: Json) -> None:
        rename(document, "t", "tile")
        location(document, "t")["addr"] = 4096

    assert told(difference(change)) == [
        ("locations", "renamed", "t", "tile", "name", "t", "tile"),
        ("locations", "readdressed", "t", "tile", "addr", "64", "4096"),
    ]


@pytest.mark.parametrize(("key", "value", "was"), [("addr", 4096, "64"), ("base", 32, None), ("bank", 1, None)])
def test_a_new_address(key: str, value: int, was: str | None) -> None:
    found = difference(lambda d: location(d, "t").update({key: value}))
    assert told(found) == [("locations", "readdressed", "t", "t", key, was, str(value))]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda d: d.update(arch="gen4"), ("modules", "m", "arch", "gen3", "gen4")),
        (lambda d: d.update(zebra=[1]), ("modules", "m", "zebra", None, "[1]")),
        (lambda d: instruction(d, "twice").update(engine="Pool"), ("instructions", "twice", "engine", "DVE", "Pool")),
        (lambda d: instruction(d, "twice").update(op0="add"), ("instructions", "twice", "op0", '"mult"', '"add"')),
        (lambda d: instruction(d, "twice").update(new=None), ("instructions", "twice", "layout", ..., ...)),
        (lambda d: instruction(d, "twice").pop("op0"), ("instructions", "twice", "op0", '"mult"', None)),
        (lambda d: instruction(d, "one").update(optin_passes=7), ("instructions", "one", "optin_mask", "15", "7")),
        (lambda d: instruction(d, "load").update(debug={"lineno": 3}), ("instructions", "load", "debug", None, ...)),
        (lambda d: instruction(d, "twice")["ins"][0].update(offset=4), ("operands", "twice", "offset", "0", "4")),
        (lambda d: instruction(d, "twice")["ins"][0].update(dtype="int8"), ("operands", "twice", "dtype", ..., "int8")),
        (
            lambda d: instruction(d, "twice")["ins"][0]["ap"].pop(),
            ("operands", "twice", "pattern_id", ..., "[[4,128]]"),
        ),
        (lambda d: instruction(d, "twice")["ins"][1].update(value=3.0), ("operands", "twice", "value", "2.0", "3.0")),
        (lambda d: storage(d, "t_set").update(dtype="int32"), ("sets", "t_set", "dtype", "float32", "int32")),
        (lambda d: storage(d, "t_set").update(tensor_shape=[4]), ("sets", "t_set", "tensor_shape", "[128,4]", "[4]")),
        (lambda d: location(d, "t").update(allocated=False), ("locations", "t", "allocated", "true", "false")),
        (lambda d: location(d, "u").update(extra_key=8), ("locations", "u", "extra_key", "7", "8")),
        (lambda d: location(d, "d")["alias"][0].__setitem__(2, 1), ("aliases", "d", "kind", "3", "1")),
        (lambda d: instruction(d, "loop")["LoopAxis"].update(ub=8), ("loops", "loop", "ub", "4", "8")),
        (lambda d: function(d).update(attributes=["x"]), ("functions", "main", "attributes", "[]", '["x"]')),
        (lambda d: d["queues"][0].update(depth=2), ("queues", "queue", "depth", None, "2")),
    ],
)
def test_a_cell(change: Callable[[Json], object], expected: tuple[Any, ...]) -> None:
    table, name, column, before, after = expected
    ((found_table, what, *names, found_column, was, now),) = told(difference(change))
    assert (found_table, what, names, found_column) == (table, "changed", [name, name], column)
    assert before is ... or was == before
    assert after is ... or now == after


def test_the_order_of_members_is_a_difference() -> None:
    def change(document: Json) -> None:
        members = instruction(document, "twice")
        items = sorted(members.items(), reverse=True)
        members.clear()
        members.update(items)

    ((table, what, _, name, column, before, after),) = told(difference(change))
    assert (table, what, name, column) == ("instructions", "changed", "twice", "layout")
    assert sorted(before.split(", ")) == sorted(after.split(", "))
    assert before.startswith("dependencies, ")
    assert after.startswith("reverse0, ")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda d: instruction(d, "save")["ins"][0].update(memref="t", memsetref="t_set"),
            ("operands", "save", "location_id", "u", "t"),
        ),
        (
            lambda d: instruction(d, "save")["ins"][0].update(memref="nowhere"),
            ("operands", "save", "location_id", "u", "nowhere"),
        ),
        (lambda d: instruction(d, "move")["ins"][0].update(regref="s"), ("operands", "move", "register_id", "r", "s")),
        (
            lambda d: instruction(d, "twice")["dependencies"].__setitem__(0, "save"),
            ("dependencies", "twice", "on_instruction_id", "load", "save"),
        ),
        (lambda d: instruction(d, "jump").update(target="B2"), ("branches", "jump", "block_id", "B1", "B2")),
        (lambda d: instruction(d, "call").update(func="other"), ("calls", "call", "callee_id", "kernel", "other")),
        (
            lambda d: instruction(d, "call").update(func_args={"a": "y"}),
            ("call_arguments", "call", "actual", "x", "y"),
        ),
        (
            lambda d: instruction(d, "save")["sync_info"]["on_wait"][0].update({"from": "twice"}),
            ("semaphores", "save", "from_instruction_id", "load", "twice"),
        ),
        (
            lambda d: location(d, "d")["alias"].__setitem__(0, ["x_set", "y", 3]),
            ("aliases", "d", "target_location_id", "x", "y"),
        ),
    ],
)
def test_what_rows_name(change: Callable[[Json], object], expected: tuple[str, ...]) -> None:
    table, name, column, before, after = expected
    assert told(difference(change)) == [(table, "rewired", name, name, column, before, after)]


def test_a_register_in_an_expression() -> None:
    def change(document: Json) -> None:
        weight = instruction(document, "set")["weight"]
        text = json.dumps(weight)
        assert text.count('"r"') == 1
        instruction(document, "set")["weight"] = json.loads(text.replace('"r"', '"s"'))

    assert told(difference(change)) == [("references", "rewired", "set", "set", "target_id", "r", "s")]


def test_members_with_references_are_shown_with_names() -> None:
    def change(document: Json) -> None:
        instruction(document, "set")["weight"]["unknown"] = 1

    ((_, what, _, name, column, before, after),) = told(difference(change))
    assert (what, name, column) == ("changed", "set", "weight")
    assert '"regref":"r"' in before
    assert json.loads(after) == {**json.loads(before), "unknown": 1}


# -- rows that come, go and move ---------------------------------------------------------------------------------------


def test_a_new_instruction_brings_what_it_owns() -> None:
    def change(document: Json) -> None:
        new = {**copy.deepcopy(instruction(document, "save")), "name": "again", "dependencies": ["twice"]}
        function(document)["blocks"][1]["instructions"].append(new)

    found = difference(change)
    assert found.rows.filter(what="added").group_by("table").len().sort("table").rows() == [
        ("instructions", 1),
        ("operands", 2),
        ("semaphores", 1),
        ("dependencies", 1),
    ]
    assert found.rows["what"].unique().to_list() == ["added"]
    assert found.rows.filter(table="operands").select("slot", "after").rows() == [("in 0", "u"), ("out 0", "y")]
    assert "instructions   1 added: again (Save)" in str(found)
    assert "operands" not in str(found)


def test_an_instruction_that_goes() -> None:
    def change(document: Json) -> None:
        function(document)["blocks"][1]["instructions"].clear()

    found = difference(change)
    assert told(found) == [("instructions", "removed", "one", None, None, "NoOp", None)]
    assert found.rows.select("id_before", "id_after").rows()[0][1] is None


def test_an_edge_that_comes_and_one_that_goes() -> None:
    found = difference(lambda d: instruction(d, "save")["dependencies"].pop(0))
    assert told(found) == [("dependencies", "removed", "save", None, None, "twice", None)]
    found = difference(lambda d: instruction(d, "twice").update(dependencies=["load", "save"]))
    assert told(found) == [("dependencies", "added", None, "twice", None, None, "save")]


def test_order_of_edges() -> None:
    found = difference(lambda d: instruction(d, "save")["dependencies"].reverse())
    assert [row[:4] for row in told(found)] == [("dependencies", "moved", "save", "save")]


def test_one_instruction_that_moves_is_one_difference() -> None:
    def to_the_end(document: Json) -> None:
        rows = function(document)["blocks"][0]["instructions"]
        rows.append(rows.pop(0))

    assert told(difference(to_the_end)) == [("instructions", "moved", "load", "load", "order", None, "jump")]

    def to_another_block(document: Json) -> None:
        blocks = function(document)["blocks"]
        blocks[2]["instructions"].append(blocks[1]["instructions"].pop(0))

    found = difference(to_another_block)
    assert told(found) == [("instructions", "moved", "one", "one", "block_id", "B1", "B2")]
    assert "1 moved: block B1 -> B2" in str(found)


def test_order_of_blocks_functions_and_allocations() -> None:
    def blocks(document: Json) -> None:
        listed = function(document)["blocks"]
        listed[1], listed[2] = listed[2], listed[1]

    assert [row[:2] for row in told(difference(blocks))] == [("blocks", "moved")]
    found = difference(lambda d: d["nki_functions"]["functions"].reverse())
    assert [row[:2] for row in told(found)] == [("functions", "moved")]
    count = len(function(sample())["allocations"])
    found = difference(lambda d: function(d)["allocations"].insert(0, function(d)["allocations"].pop()))
    assert told(found) == [("registers", "moved", "s", "s", "ordinal", str(count - 1), "0")]
    found = difference(lambda d: function(d)["allocations"].append(function(d)["allocations"].pop(0)))
    assert told(found) == [("sets", "moved", "x_set", "x_set", "ordinal", "0", str(count - 1))]


def test_names_that_repeat_are_told_apart_by_what_they_stand_for() -> None:
    module = build.module()
    main = module.function("main")
    t = main.sb("t", [128, 4])
    for number in range(5):
        main.add("Memset", [], [t], name="same", mode="Const", constant=number)
    before = module.json()
    after = copy.deepcopy(before)
    rows = function(after)["blocks"][0]["instructions"]
    del rows[2]
    found = air.diff(read(before), read(after))
    removed = found.rows.filter(table="instructions")
    assert removed.select("what", "name_before", "id_before").rows() == [("removed", "same", 2)]
    assert found.rows["table"].to_list() == ["instructions", "operands"]
    rows[0]["constant"] = 9
    found = air.diff(read(before), read(after))
    assert found.rows.filter(what="changed").select("id_before", "column", "before", "after").rows() == [
        (0, "constant", "0", "9")
    ]


# -- batches -----------------------------------------------------------------------------------------------------------


def named(*names: str) -> air.IR:
    return air.concat([read(sample(), name) for name in names])


def test_modules_are_matched_by_name_and_then_in_order() -> None:
    found = air.diff(named("a", "b", "c"), named("c", "x", "a"))
    assert not found
    assert found.modules.select("name", "status").rows() == [("c", "same"), ("b", "same"), ("a", "same")]
    found = air.diff(named("a", "b", "a"), named("a", "b"))
    assert found.modules.select("name", "status").rows() == [("a", "same"), ("b", "same"), ("a", "removed")]
    assert found.rows["what"].unique().to_list() == ["removed"]
    assert found.rows.filter(table="instructions").height == read(sample()).count("instructions")
    assert str(found) == "3 modules: 1 differs\n\na\n  modules        1 removed: a"
    found = air.diff(named("a"), named("z", "a"))
    assert found.modules.select("name", "status").rows() == [("z", "added"), ("a", "same")]
    assert str(found).endswith("z\n  modules        1 added: z")


def test_every_row_names_its_module() -> None:
    changed = sample()
    rename(changed, "twice", "double")
    after = air.concat([read(sample(), "a"), read(changed, "b"), read(changed, "c")])
    found = air.diff(named("a", "b", "c"), after)
    assert found.rows.select("module", "name_after").rows() == [("b", "double"), ("c", "double")]
    assert found.summary.select("module", "count").rows() == [("b", 1), ("c", 1)]
    assert repr(found) == "<arrowir.Diff: 2 of 3 modules differ, 2 differences>"


def test_a_member_that_names_something_in_one_module_and_nothing_in_another() -> None:
    before, after = [], []
    for name in "ab":
        document = sample()
        instruction(document, "set")["weight"] = 1
        before.append(read(document, name))
        instruction(document, "set")["weight"] = 2
        after.append(read(document if name == "a" else sample(), name))
    found = air.diff(air.concat(before), air.concat(after))
    told_of = found.rows.filter(module="b", column="weight")
    assert told_of["after"].str.contains('"r"').to_list() == [True]
    assert "weight 1 -> 2" in str(found)


def test_members_are_told_in_the_same_order_whatever_stands_beside_the_module() -> None:
    def document(**members: object) -> Json:
        made = sample()
        instruction(made, "load").update(members)
        return made

    before, after = document(b=1, a=1), document(b=2, a=2)
    alone = air.diff(read(before), read(after))
    assert alone.rows["column"].to_list() == ["a", "b"]
    others = read(document(a=1), "x"), read(document(a=2), "x")
    beside = air.diff(air.concat([others[0], read(before)]), air.concat([others[1], read(after)]))
    assert beside.rows.filter(module="m")["column"].to_list() == ["a", "b"]
    assert beside.rows.filter(module="m").drop("id_before", "id_after").equals(alone.rows.drop("id_before", "id_after"))


def test_text_and_html_of_many_modules_are_cut() -> None:
    changed = sample()
    rename(changed, "twice", "<double>")
    after = air.concat([read(changed, f"m{n}") for n in range(12)])
    found = air.diff(named(*(f"m{n}" for n in range(12))), after)
    lines = str(found).splitlines()
    assert lines[0] == "12 modules: 12 differ"
    assert lines.count("  instructions   1 renamed: twice -> <double>") == 10
    assert lines[-1] == "... and 2 more modules"
    html = found._repr_html_()
    assert "12 modules: 12 differ" in html
    assert "twice -&gt; &lt;double&gt;" in html
    assert html.count("<table>") == html.count("</table>") == 10


def test_texts_are_cut_and_escaped() -> None:
    assert plain("a\x1b[31mb") == "a\\x1b[31mb"
    assert len(plain("x" * 1000)) == 48
    found = difference(lambda d: rename(d, "twice", "line\nbreak" + "x" * 500))
    assert len(str(found).splitlines()) == 4
    assert found.rows["name_after"].item() == "line\nbreak" + "x" * 500


# -- frames ------------------------------------------------------------------------------------------------------------


def test_rows_are_in_order_and_add_up() -> None:
    before = air.read(DATA / "generated")
    found = air.diff(before, air.run(before).ir)
    rows = found.rows.with_row_index()
    assert found.summary["count"].sum() == rows.height == found.modules["count"].sum()
    numbers = rows.select(pl.col("table").to_physical().alias("t"), pl.col("what").to_physical().alias("w"), "module")
    for _, part in numbers.group_by("module", maintain_order=True):
        assert part.select("t", "w").rows() == sorted(part.select("t", "w").rows())
    assert (rows.schema["table"], rows.schema["what"]) == (pl.Enum(TABLES), pl.Enum(WHATS))
    counted = rows.group_by("module", "table", "what", "column", "kernel").len()
    assert counted.height == found.summary.height


def test_matches_of_a_table_that_is_not_there() -> None:
    found = air.diff(read(sample()), read(sample()))
    for table in ("frobs", "call_chains", "patterns"):
        with pytest.raises(OptionError, match=f"no rows of '{table}' are matched"):
            found.matches(table)
