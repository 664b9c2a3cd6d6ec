"""`air.diff` of batches before and after inlining: clones and their originals."""

import json
from pathlib import Path

import polars as pl

import arrowir as air
from arrowir import build
from tests.differences import DATA, read, rename, told


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
    assert found.rows.filter(what="removed", table="instructions").select(
        "name_before", "function", "kernel"
    ).rows() == [
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


def test_edges_on_call_sites_go_to_what_each_of_them_brought() -> None:
    module = build.module()
    inner = module.kernel("inner")
    inner.add("NoOp", name="one")
    inner.add("NoOp", name="two")
    outer = module.kernel("outer")
    sites = [outer.call(inner, {}, {}, name=name) for name in ("A", "B")]
    outer.add("NoOp", name="join", after=sites)
    main = module.function("main")
    sites = [main.call(kernel, {}, {}, name=name) for kernel, name in ((inner, "C"), (outer, "D"), (inner, "E"))]
    main.add("NoOp", name="end", after=[*sites[::-1], main.add("NoOp", name="plain")])
    before = module.ir("m")
    rows = air.diff(before, inlined(before)).rows.filter(table="dependencies")
    assert rows.filter(what="rewired").select("name_after", "before", "after").rows() == [
        ("D_join", "A", "D_A_one"),
        ("D_join", "B", "D_B_one"),
        ("end", "E", "E_one"),
        ("end", "D", "D_join"),
        ("end", "C", "C_one"),
    ]
    more = rows.filter(pl.col("id_before").is_null(), what="added")
    assert more["after"].to_list() == ["D_A_two", "D_B_two", "E_two", "C_two"]


def test_unrolled_clones_are_matched_with_the_one_row_in_the_loop() -> None:
    before = air.read(DATA / "samples" / "bir_json_example.json")
    found = air.diff(before, inlined(before))
    matched = found.matches("instructions").filter("clone")
    names = dict(before.instructions.select("id", "name").rows())
    assert [names[i] for i in matched["id_before"]] == ["K-1", "K-2", "K-3"] * 4
    rewired = found.rows.filter(table="operands", what="rewired").group_by("before", "after").len().sort("before")
    assert rewired.rows() == [("a_set", "tmp0", 4), ("c_set", "output0", 4)]


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


def test_kernels_are_told_in_the_order_of_their_functions(tmp_path: Path) -> None:
    module = build.module()
    kernels = [module.kernel(name) for name in "zyx"]
    for kernel in kernels:
        kernel.add("NoOp", name="n")
    main = module.function("main")
    for kernel in kernels[::-1]:
        main.call(kernel, {}, {})
    before = module.ir("m")
    after = inlined(before)
    after.write_parquet(tmp_path / "after")
    for other in (after, air.read_parquet(tmp_path / "after")):
        found = air.diff(before, other)
        counted = found.summary.filter(table="instructions", what="added")
        assert counted["kernel"].to_list() == ["z", "y", "x"]
        lines = [line for line in str(found).splitlines() if " of kernel " in line]
        assert [line[-1] for line in lines] == ["z", "y", "x"]


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
