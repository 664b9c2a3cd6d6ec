"""Notebook representations: what they say, and that they cost little."""

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import polars as pl
import pytest

from arrowir import IR, build, concat, run
from arrowir import diagnostics as diag
from arrowir.display import html
from arrowir.passes import runtime_memory_reservation
from arrowir.passes.base import CHANGED, FAILED, UNCHANGED, PassResult
from arrowir.store import Pools, Strings, Table


class Document(HTMLParser):
    """Checks that tags are balanced, and collects the cells of each table by its caption."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.links: list[str] = []
        self.text = ""
        self._caption = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "onclick")]
        if tag == "tr":
            self.tables[self._caption].append([])
        if tag in ("td", "th"):
            self.tables[self._caption][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "caption":
            self._caption = data
            self.tables[data] = []
        elif self.open and self.open[-1] in ("td", "th"):
            self.tables[self._caption][-1][-1] += data
        elif "style" not in self.open:
            self.text += data


def named(name: str, instructions: int = 1) -> IR:
    module = build.module()
    main = module.function()
    tile = main.sb("tile", [128, 4], addr=0)
    main.input("x", [128, 4])
    for _ in range(instructions):
        main.add("Memset", [], [tile], mode="Const", constant=0)
    main.add("NoOp")
    return module.ir(name)


def test_a_batch_shows_modules_tables_opcodes_and_memory() -> None:
    shown = Document(concat([named("first", 2), named("second", 5)])._repr_html_())
    assert shown.text.startswith("arrowir: 2 modules, 9 instructions")
    assert shown.tables["modules"] == [
        ["", "module", "arch", "functions", "blocks", "instructions", "operands", "locations"],
        ["0", "first", "gen3", "1", "1", "3", "2", "2"],
        ["1", "second", "gen3", "1", "1", "6", "5", "2"],
        ["", "all", "", "2", "2", "9", "7", "4"],
    ]
    assert shown.tables["opcodes"][1:] == [["Memset", "7"], ["NoOp", "2"]]
    assert shown.tables["locations by memory"][1:] == [["DRAM", "2"], ["SB", "2"]]
    sizes = {row[0]: row[1:] for row in shown.tables["tables"][1:]}
    assert sizes["instructions"][0] == "9"
    assert re.fullmatch(r"\d+ B", sizes["instructions"][1])
    assert "registers" not in sizes
    assert shown.links == []


def test_head_and_tail_of_many_modules_are_shown() -> None:
    shown = Document(html.batch(concat([named(f"m{i}", i % 3) for i in range(40)])))
    rows = shown.tables["modules"][1:]
    assert [row[1] for row in rows if len(row) > 1] == [*(f"m{i}" for i in (0, 1, 2, 3, 4, 35, 36, 37, 38, 39)), "all"]
    assert rows[5] == ["... 30 more"]
    assert [row[5] for row in rows[:5]] == ["1", "2", "3", "1", "2"]
    assert rows[-1][5] == "79"


@pytest.mark.parametrize("total", [0, 1, 10, 11])
def test_few_modules_are_all_shown(total: int) -> None:
    batch = concat([named(f"m{i}") for i in range(total)]) if total else IR({}, Pools())
    rows = Document(html.batch(batch)).tables["modules"][1:]
    assert [row[1] for row in rows][:total] == [f"m{i}" for i in range(total)]
    assert len(rows) == total + (total > 1)


def test_modules_without_rows_count_nothing() -> None:
    empty = build.module().ir("empty")
    shown = Document(html.batch(concat([empty, named("full", 2), empty])))
    assert [row[3:] for row in shown.tables["modules"][1:4]] == [["0"] * 5, ["1", "1", "3", "2", "2"], ["0"] * 5]


def test_counts_of_modules_agree_with_the_frames() -> None:
    module = build.module()
    main = module.function()
    with main.loop(0, 2), main.loop(0, 3):
        main.add("NoOp")
    queue = module.queue("q")
    with queue.nested("DMABlock"):
        queue.add("DMADescriptorCopy", [1], [])
    batch = concat([module.ir("a"), named("b", 3), module.ir("c")])
    for table in ("functions", "blocks", "instructions", "operands", "locations", "sets", "queues"):
        counts = [html.first_row(batch, table, m + 1) - html.first_row(batch, table, m) for m in range(3)]
        modules = batch.frame(table)["module_id"].to_list()
        assert counts == [modules.count(m) for m in range(3)], table


def test_v01_showing_millions_of_rows_makes_no_frame_and_derives_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = 5_000_000
    small = named("m")
    tables = dict(small.tables)
    for name, parent in (("instructions", "block_id"), ("operands", "instruction_id")):
        columns: dict[str, Any] = dict.fromkeys(tables[name].columns)
        columns[parent] = np.zeros(rows, np.int32)
        if name == "instructions":
            columns["name"] = Strings(np.zeros(rows + 1, np.int64), np.empty(0, np.uint8))
            columns["opcode"] = np.full(rows, small.tables[name]["opcode"][0], np.int16)
        tables[name] = Table(name, columns, rows)
    big = IR(tables, small.pools)
    from arrowir import arrow, derived, frames

    for module, function in ((frames, "frame"), (arrow, "table"), (arrow, "column"), (derived, "column")):
        monkeypatch.setattr(module, function, lambda *_: pytest.fail("a repr asked for columns"))
    looked_at: list[int] = []
    module_of = html._module_of
    monkeypatch.setattr(html, "_module_of", lambda *a: (looked_at.append(1), module_of(*a))[1])
    shown = Document(big._repr_html_())
    assert shown.tables["opcodes"][1:] == [["Memset", "5,000,000"]]
    assert shown.tables["modules"][1][5:7] == ["5,000,000", "5,000,000"]
    assert len(looked_at) < 300
    assert big._frames == {}
    assert big._computed == {}


def test_many_opcodes_and_long_names_are_capped() -> None:
    module = build.module()
    main = module.function()
    for i in range(30):
        main.add(f"Op{i:02d}")
    shown = Document(html.batch(module.ir("n" * 500)))
    assert shown.tables["opcodes"][-1] == ["... 18 more"]
    assert len(shown.tables["opcodes"]) == 1 + html.TOP + 1
    assert shown.tables["modules"][1][1] == "n" * html.WIDEST + "..."


def test_text_is_escaped() -> None:
    name = "<script>alert('x')</script>&\""
    text = html.batch(named(name))
    assert "<script" not in text
    assert Document(text).tables["modules"][1][1] == name


def test_no_colour_is_fixed() -> None:
    style = html.batch(named("m")).partition("</style>")[0]
    assert "color: inherit" in style
    assert re.findall(r"#[0-9a-fA-F]{3,6}|\b(?:white|black)\b", style) == []
    assert set(re.findall(r"rgba?\(([^)]*)\)", style)) == {"128, 128, 128, 0.35"}


def test_a_pass_shows_how_modules_ended_and_what_was_said() -> None:
    bad = build.module(arch="trn9")
    bad.function()
    batch = concat([named("ok"), bad.ir("bad")])
    result = runtime_memory_reservation(batch)
    shown = Document(result._repr_html_())
    assert shown.text.startswith("runtime_memory_reservation: 1 changed, 1 failed")
    assert [row[:4] for row in shown.tables["diagnostics"][1:]] == [
        [m.severity, m.code, m.module, "runtime_memory_reservation"] for m in result.messages
    ]
    assert "ok" in [row[1] for row in shown.tables["modules"][1:]]


def test_a_pass_without_messages_shows_no_table_of_them() -> None:
    result = PassResult(named("m").after("quiet", {}), (), np.array([UNCHANGED], np.int8))
    shown = Document(html.pass_result(result))
    assert shown.text.startswith("quiet: 1 unchanged")
    assert "diagnostics" not in shown.tables


def test_a_run_shows_its_passes_without_times() -> None:
    result = run(concat([named("a"), named("b")]), passes=["runtime_memory_reservation", "unroll"])
    shown = Document(html.run_result(result))
    assert shown.tables["passes"] == [
        ["order", "pass", "unchanged", "changed", "failed", "instructions"],
        ["1", "runtime_memory_reservation", "0", "2", "0", "0"],
        ["2", "unroll", "2", "0", "0", "0"],
    ]
    assert shown.text.startswith("run: 2 changed")
    assert html.run_result(result) == html.run_result(result)


def test_statuses_are_counted() -> None:
    codes = np.array([CHANGED, FAILED, CHANGED, UNCHANGED], np.int8)
    assert html.pass_result(PassResult(named("m").after("p", {}), (), codes)).count("1 unchanged, 2 changed, 1 failed")


def test_diagnostics_are_capped() -> None:
    rows = [diag.make("no_callee", f"message {i} <b>", module="m", instruction=f"I-{i}") for i in range(50)]
    shown = Document(html.diagnostics(diag.table(rows)))
    assert shown.text.startswith("50 diagnostics")
    table = shown.tables["diagnostics"]
    assert table[1] == ["error", "no_callee", "m", "", "message 0 <b>", "instruction I-0"]
    assert len(table) == 1 + html.MESSAGES + 1
    assert table[-1] == ["... 30 more"]
    assert Document(html.diagnostics(diag.table([]))).text.startswith("0 diagnostics")


def test_a_table_of_diagnostics_of_another_source_is_shown_alike() -> None:
    frame = diag.table([diag.make("no_callee", "lost", module="m", function="f", block="b")])
    assert isinstance(frame, pl.DataFrame)
    assert Document(html.diagnostics(frame)).tables["diagnostics"][1][-1] == "function f, block b"
