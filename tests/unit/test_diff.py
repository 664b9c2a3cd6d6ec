"""`air.diff`: each kind of difference, alone; what an inlining reads as; frames, text and matches."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import arrowir as air
from arrowir import Diff, OptionError, build
from arrowir.analyse.comparing import TABLES, WHATS
from arrowir.analyse.telling import plain

Json = dict[str, Any]
DATA = Path(__file__).parents[2] / "data"


def read(document: Json, name: str = "m") -> air.IR:
    return air.read_json(json.dumps(document).encode(), name=name)


def sample() -> Json:
    """A module with something of every kind, whose names are unique."""
    module = build.module()
    kernel = module.kernel("kernel")
    a, c = kernel.input("a", [128, 4]), kernel.output("c", [128, 4])
    kernel.add("Load", [a], [c], name="copy")
    other = module.kernel("other")
    other.input("a", [128, 4]), other.output("c", [128, 4])  # noqa: B018
    main = module.function("main")
    x, y, t = main.input("x", [128, 4]), main.output("y", [128, 4]), main.sb("t", [128, 4], addr=64, allocated=True)
    u = main.sb("u", [128, 4], addr=128, extra_key=7)
    main.dram("d", [128, 4], alias=[["x_set", "x", 3]])
    r, s = main.register("r"), main.register("s")
    main.block("B0")
    load = main.add("Load", [x], [t], name="load", engine="SP", update=[(3, 1)])
    twice = main.add("TensorScalar", [t, 2.0], [u], name="twice", engine="DVE", after=[load], op0="mult", reverse0=False)
    main.add("Save", [u], [y], name="save", engine="SP", after=[twice, load], wait=[(3, 1, load)])
    with main.loop(0, 4, name="loop") as i:
        main.add("Memset", [], [t.at(0, i)], name="set", mode="Const", constant=0, weight=2 * r.value + 1)
    main.add("RegisterMove", [r], [s], name="move")
    main.call(kernel, {a: x}, {c: y}, name="call")
    main.compare(r, 0, "eq", "B1", "B2") if False else main.branch("B1", name="jump")
    main.block("B1")
    main.add("NoOp", name="one")
    main.block("B2")
    main.add("NoOp", name="two")
    queue = module.queue("queue")
    queue.block("Q0")
    queue.add("DMADescriptorCopy", [], [], name="copy0")
    return module.json()


def function(document: Json, name: str = "main") -> Json:
    return next(f for f in document["functions"] + document["nki_functions"]["functions"] if f["name"] == name)


def instruction(document: Json, name: str, within: str = "main") -> Json:
    def found(blocks: list[Json]) -> Json | None:
        for block in blocks:
            for row in block["instructions"]:
                if row.get("name") == name:
                    return row
                if (inner := found(row.get("blocks", []))) is not None:
                    return inner
        return None

    row = found(function(document, within)["blocks"])
    assert row is not None, name
    return row


def storage(document: Json, name: str) -> Json:
    return next(a for a in function(document)["allocations"] if a["name"] == name)


def location(document: Json, name: str) -> Json:
    return storage(document, f"{name}_set")["memorylocations"][0]


def difference(change: Callable[[Json], object]) -> Diff:
    """Return how the sample differs from itself with one change; looked at from the other side, as much differs."""
    before = sample()
    after = copy.deepcopy(before)
    change(after)
    assert after != before or json.dumps(after) != json.dumps(before)
    found = air.diff(read(before), read(after))
    assert found
    assert len(air.diff(read(after), read(before)).rows) == len(found.rows)
    return found


def told(found: Diff) -> list[tuple[Any, ...]]:
    """Return table, kind, names, column, cells of each difference."""
    return found.rows.select("table", "what", "name_before", "name_after", "column", "before", "after").rows()


def rename(document: Json, old: str, new: str) -> None:
    """Rename a thing whose name occurs nowhere else, and what names it."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {new if k == old else k: walk(v) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(v) for v in value]
        return new if value == old else value

    changed = walk(document)
    document.clear()
    document.update(changed)


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


@pytest.mark.parametrize(("key", "value", "was"), [("addr", 4096, "64"), ("base", 32, "0"), ("bank", 1, None)])
def test_a_new_address(key: str, value: int, was: str | None) -> None:
    before = str(location(sample(), "t").get(key)) if key in location(sample(), "t") else None
    found = difference(lambda d: location(d, "t").update({key: value}))
    assert told(found) == [("locations", "readdressed", "t", "t", key, before if was is not None else before, str(value))]


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
        (lambda d: instruction(d, "twice")["ins"][0]["ap"].pop(), ("operands", "twice", "pattern_id", ..., "[[4,128]]")),
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
    found = difference(lambda d: function(d)["allocations"].insert(0, function(d)["allocations"].pop()))
    assert told(found) == [("registers", "moved", "s", "s", "ordinal", ..., "0")] or told(found)[0][:4] == (
        "registers",
        "moved",
        "s",
        "s",
    )


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


# -- inlining ----------------------------------------------------------------------------------------------------------


def calling(sites: int = 5, size: int = 100) -> air.IR:
    """A kernel of some instructions that is called from some sites, with edges between these."""
    module = build.module()
    kernel = module.kernel("k")
    a, c, tile = kernel.input("t", [128, 4]), kernel.output("c", [128, 4]), kernel.sb("tile", [128, 4], addr=64)
    last = kernel.add("Load", [a], [tile], name="I-0")
    for number in range(1, size - 1):
        last = kernel.add("TensorScalar", [tile], [tile], name=f"I-{number}", after=[last], op0="add")
    kernel.add("Save", [tile], [c], name=f"I-{size - 1}", after=[last])
    main = module.function("main")
    x, y, pad = main.input("x", [128, 4]), main.output("y", [128, 4]), main.sb("pad", [128, 64], addr=1024)
    site = main.add("Memset", [], [x], name="zero", mode="Const", constant=0)
    for number in range(sites):
        site = main.call(kernel, {a: x}, {c: y}, scratch=[pad], name=f"C{number}", after=[site])
    main.add("NoOp", name="end", after=[site])
    return module.ir("m")


def inlined(ir: air.IR) -> air.IR:
    result = air.passes.inline_nki_kernel(ir)
    assert result.status.to_list() == ["changed"] * len(ir)
    return result.ir


def test_an_inlining_reads_as_what_was_done() -> None:
    before = calling()
    found = air.diff(before, inlined(before))
    lines = {line.strip() for line in str(found).splitlines()}
    assert lines == {
        "1 module: 1 differs",
        "",
        "m",
        "functions      1 removed: k (100 instructions)",
        "sets           5 added: 5 call-sites x 1 of kernel k",
        "sets           5 changed in clones of k: origin null -> NKI",
        "locations      5 added: 5 call-sites x 1 of kernel k",
        "locations      5 readdressed in clones of k: addr 64 -> 1088",
        "instructions   5 removed: C0 (NKIKernel), C1 (NKIKernel), C2 (NKIKernel), C3 (NKIKernel), ...",
        "instructions   500 added: 5 call-sites x 100 of kernel k",
        "instructions   500 changed in clones of k: optin_mask 15 -> 3",
        "operands       10 rewired in clones of k: location t -> x (5), c -> y (5)",
        "dependencies   5 added in clones of k: zero, C0_I-99, C1_I-99, C2_I-99, ...",
        "dependencies   1 rewired: on_instruction C4 -> C4_I-99",
    }


def test_clones_are_matched_with_the_kernels_rows() -> None:
    before = calling(2, 3)
    after = inlined(before)
    found = air.diff(before, after)
    rows = found.rows.filter(table="instructions", what="added")
    assert rows.select("function", "name_before", "name_after", "kernel", "call_chain", "after").rows() == [
        ("main", name, f"{site}_{name}", "k", [site], opcode)
        for site in ("C0", "C1")
        for name, opcode in (("I-0", "Load"), ("I-1", "TensorScalar"), ("I-2", "Save"))
    ]
    matched = found.matches("instructions").filter("clone")
    originals = before.instructions.join(matched, left_on="id", right_on="id_before").sort("id_after")
    assert originals["name"].to_list() == ["I-0", "I-1", "I-2"] * 2
    assert originals["function_id"].unique().to_list() == [before.functions.filter(name="k")["id"].item()]
    assert found.rows.filter(what="removed", table="instructions").select("name_before", "function", "kernel").rows() == [
        ("C0", "main", None),
        ("C1", "main", None),
        ("I-0", "k", "k"),
        ("I-1", "k", "k"),
        ("I-2", "k", "k"),
    ]
    counted = found.summary.filter(table="instructions").drop("module").rows()
    assert counted == [
        ("instructions", "removed", None, None, 0, 2),
        ("instructions", "removed", None, "k", 0, 3),
        ("instructions", "added", None, "k", 2, 6),
        ("instructions", "changed", "optin_mask", "k", 2, 6),
    ]


def nested() -> air.IR:
    """Three kernels within each other, the outermost of two blocks."""
    module = build.module()
    inner = module.kernel("inner")
    a, c, t = inner.input("a", [128, 4]), inner.output("c", [128, 4]), inner.sb("t", [128, 4], addr=0)
    load = inner.add("Load", [a], [t], name="L")
    inner.add("Save", [t], [c], name="S", after=[load])
    middle = module.kernel("middle")
    b, d, pad = middle.input("b", [128, 4]), middle.output("d", [128, 4]), middle.sb("pad", [128, 8], addr=64)
    middle.call(inner, {a: b}, {c: d}, scratch=[pad], name="C")
    middle.add("NoOp", name="N")
    outer = module.kernel("outer")
    e, f, pad = outer.input("e", [128, 4]), outer.output("f", [128, 4]), outer.sb("pad", [128, 64], addr=128)
    outer.call(middle, {b: e}, {d: f}, scratch=[pad], name="B")
    outer.branch("Rest", name="go")
    outer.block("Rest")
    outer.add("Return", name="ret")
    main = module.function("main")
    x, y, pad = main.input("x", [128, 4]), main.output("y", [128, 4]), main.sb("pad", [128, 256], addr=1024)
    main.call(outer, {e: x}, {f: y}, scratch=[pad], name="A", engine="Pool")
    main.add("NoOp", name="end")
    return module.ir("m")


def test_nested_kernels_and_split_blocks() -> None:
    before = nested()
    found = air.diff(before, inlined(before))
    rows = found.rows
    chains = rows.filter(table="instructions", what="added").select("name_before", "kernel", "call_chain").rows()
    assert [c for c in chains if c[1] is not None] == [
        ("L", "inner", ["A", "B", "C"]),
        ("S", "inner", ["A", "B", "C"]),
        ("N", "middle", ["A", "B"]),
        ("go", "outer", ["A"]),
        ("ret", "outer", ["A"]),
    ]
    assert rows.filter(table="instructions", what="moved").select("name_after", "before", "after").rows() == [
        ("end", "Block1", "A_continuation")
    ]
    assert rows.filter(table="instructions", what="changed", column="opcode").select("before", "after").rows() == [
        ("Return", "UnconditionalBranch")
    ]
    assert rows.filter(table="operands", what="rewired").select("before", "after").rows() == [("a", "x"), ("c", "y")]
    # What a clone names inside of its body is no difference: neither the branch to `Rest` nor the edge on `L`.
    assert rows.filter(table="branches", what="rewired").height == 0
    assert rows.filter(table="locations", what="readdressed").select("before", "after").rows() == [
        ("128", "1152"),
        ("64", "1216"),
        ("0", "1216"),
    ]
    assert {"inner", "middle", "outer"} == set(rows.filter(table="functions", what="removed")["kernel"])


def test_unrolled_clones_are_matched_with_the_one_row_in_the_loop() -> None:
    before = air.read(DATA / "samples" / "bir_json_example.json")
    found = air.diff(before, inlined(before))
    matched = found.matches("instructions").filter("clone")
    names = dict(before.instructions.select("id", "name").rows())
    assert [names[i] for i in matched["id_before"]] == ["K-1", "K-2", "K-3"] * 4
    rewired = found.rows.filter(table="operands", what="rewired").group_by("before", "after").len().sort("before")
    assert rewired.rows() == [("input_tensor_set", "tmp0", 4), ("output_tensor_set", "output0", 4)] or rewired.rows() == [
        ("a_set", "tmp0", 4),
        ("c_set", "output0", 4),
    ]


def test_provenance_comes_through_parquet_and_not_through_json(tmp_path: Path) -> None:
    before = calling(2, 4)
    after = inlined(before)
    before.write_parquet(tmp_path / "before")
    after.write_parquet(tmp_path / "after")
    kept = air.diff(air.read_parquet(tmp_path / "before"), air.read_parquet(tmp_path / "after"))
    here = air.diff(before, after)
    assert kept.rows.equals(here.rows)
    assert kept.summary.equals(here.summary)
    lost = air.diff(before, air.read_json(after.to_json(), name="m"))
    assert lost.summary.filter(table="instructions", what="added").select("kernel", "call_sites", "count").rows() == [
        (None, 0, 8)
    ]
    assert lost.rows.filter(what="rewired").select("table", "name_after").rows() == [("dependencies", "end")]
    assert not air.diff(after, air.read_json(after.to_json(), name="m"))


def test_clones_that_were_there_before_are_things_like_others() -> None:
    before = inlined(calling(2, 4))
    document = json.loads(before.to_json())
    names = before.tables["instructions"].text()
    rename(document, "C0_I-1", "renamed")
    after = read(document)
    assert names[2] == "C0_I-1"
    assert told(air.diff(before, after)) == [
        ("instructions", "renamed", "C0_I-1", "renamed", "name", "C0_I-1", "renamed")
    ]
    assert not air.diff(before, before)


def test_two_positions_of_the_pass_are_told_one_after_the_other() -> None:
    before = calling(2, 4)
    middle = air.passes.inline_nki_kernel(before, allocated=False).ir
    assert not air.diff(before, middle)
    after = air.passes.inline_nki_kernel(middle, allocated=True).ir
    assert air.diff(middle, after).rows.equals(air.diff(before, after).rows)


def test_reserving_is_two_rows() -> None:
    before = air.read(DATA / "generated" / "tiny.json")
    found = air.diff(before, air.passes.runtime_memory_reservation(before).ir)
    assert found.summary.select("table", "what", "count").rows() == [("sets", "added", 1), ("locations", "added", 1)]


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
