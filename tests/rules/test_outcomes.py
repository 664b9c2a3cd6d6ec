"""Rules O1 to O9, P1, P3 and P4: how passes and pipelines end, shown with small passes made for the purpose."""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import polars as pl
import pytest

import arrowir as air
from arrowir import build
from arrowir import diagnostics as diag
from arrowir.ir import IR
from arrowir.passes import pipeline
from arrowir.passes.base import CHANGED, FAILED, UNCHANGED, Pass, Plan
from arrowir.store import Array, Strings


def module(name: str, instructions: int = 2, arch: str = "gen3") -> IR:
    """A module of some NoOps."""
    built = build.module(arch=arch)
    main = built.function("main")
    for number in range(instructions):
        main.add("NoOp", [], [], name=f"{name}-{number}")
    return built.ir(name)


def batch(*names: str) -> IR:
    return air.concat([module(name, 2 + place) for place, name in enumerate(names)])


def documents(ir: IR) -> list[bytes]:
    return [ir.to_json(m) for m in range(len(ir))]


def module_names(ir: IR) -> list[str]:
    return ir.tables["modules"].text().tolist()


def named(ir: IR, active: Array, names: str) -> Array:
    """Mask of the active modules of some names."""
    wanted = names.split(",")
    return active & np.array([n in wanted for n in module_names(ir)], bool)


@dataclass(frozen=True)
class Tag(Pass):
    """Append a text to the names of all instructions of some modules."""

    name: ClassVar[str] = "tag"

    text: str = "!"
    only: str = ""

    def plan(self, ir: IR, active: Array) -> Plan:
        chosen = named(ir, active, self.only) if self.only else active
        self.log.info("tagging %s", Spelled(self.text))
        return Plan(np.where(chosen, CHANGED, UNCHANGED).astype(np.int8), edit=chosen)

    def apply(self, ir: IR, plan: Plan) -> IR:
        instructions = ir.tables["instructions"]
        mine = plan.edit[ir.array("instructions", "module_id")].tolist()
        names = [n + self.text if m else n for n, m in zip(instructions.text().tolist(), mine, strict=True)]
        return ir.replace(instructions=instructions.replace(name=Strings.of(names)))


class Spelled:
    """Counts how often it is formatted."""

    times = 0

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        Spelled.times += 1
        return self.text


@dataclass(frozen=True)
class Refuse(Pass):
    """Fail some modules."""

    name: ClassVar[str] = "refuse"

    only: str = ""
    fatal: bool = True

    def plan(self, ir: IR, active: Array) -> Plan:
        bad = named(ir, active, self.only)
        code = "no_callee" if self.fatal else "single_function_required"
        first = np.searchsorted(ir.array("instructions", "module_id"), np.arange(len(ir)))
        rows = [
            diag.make(code, "refused", module_id=m, instruction_id=int(first[m])) for m in np.flatnonzero(bad).tolist()
        ]
        return Plan(np.where(bad & self.fatal, FAILED, UNCHANGED).astype(np.int8), rows)


@dataclass(frozen=True)
class Break(Pass):
    """Raise on some modules, and tag the others."""

    name: ClassVar[str] = "break"

    only: str = ""
    late: bool = False

    def plan(self, ir: IR, active: Array) -> Plan:
        bad = named(ir, active, self.only)
        if bad.any() and not self.late:
            raise ZeroDivisionError("a defect")
        first = np.searchsorted(ir.array("instructions", "module_id"), np.arange(len(ir)))
        notes = [
            diag.make("call_site_skipped", "seen", module_id=m, instruction_id=int(first[m]))
            for m in np.flatnonzero(active).tolist()
        ]
        return Plan(np.where(active, CHANGED, UNCHANGED).astype(np.int8), notes, edit=(active, bad))

    def apply(self, ir: IR, plan: Plan) -> IR:
        active, bad = plan.edit
        if bad.any():
            raise ZeroDivisionError("a late defect")
        return Tag().apply(ir, Plan(plan.status, edit=active))


def test_o1_a_pass_never_changes_its_input() -> None:
    ir = batch("a", "b")
    before, frame = documents(ir), ir.instructions
    result = Tag()(ir)
    assert documents(ir) == before
    assert ir.instructions.equals(frame)
    assert documents(result.ir) != before


def test_o2_modules_end_changed_unchanged_or_failed() -> None:
    ir = batch("a", "b", "c")
    result = air.run(ir, [Tag(only="a"), Refuse(only="c")])
    assert result.status.to_list() == ["changed", "unchanged", "failed"]


def test_o2_a_failed_module_comes_out_as_it_went_into_that_pass() -> None:
    ir = batch("a", "b", "c")
    result = air.run(ir, [Tag(text="-1"), Refuse(only="b"), Tag(text="-2")])
    assert result.status.to_list() == ["changed", "failed", "changed"]
    alone = air.run(ir, [Tag(text="-1")]).ir
    both = air.run(ir, [Tag(text="-1"), Tag(text="-2")]).ir
    assert documents(result.ir) == [both.to_json(0), alone.to_json(1), both.to_json(2)]


def test_o2_a_failed_module_takes_no_further_pass() -> None:
    result = air.run(batch("a", "b"), [Refuse(only="b"), Refuse(only="a,b"), Tag()])
    taken = result.steps.select("module", "pass", "order", "status").rows()
    assert taken == [("a", "refuse", 1, "unchanged"), ("a", "refuse", 2, "failed"), ("b", "refuse", 1, "failed")]
    assert result.diagnostics["module"].to_list() == ["b", "a"]


def test_o2_a_run_over_no_module_is_a_run() -> None:
    ir = batch("a").select([])
    result = air.run(ir)
    assert (len(result.ir), result.ok, len(result.steps), len(result.diagnostics)) == (0, True, 0, 0)
    assert result.steps.schema == air.run(batch("a")).steps.schema


def test_o3_every_failure_is_a_row() -> None:
    result = air.run(batch("a", "b"), [Refuse(only="b")])
    (row,) = result.diagnostics.rows(named=True)
    assert (row["module"], row["pass"], row["severity"], row["code"]) == ("b", "refuse", "error", "no_callee")
    assert (row["message"], row["compiler_code"], row["module_id"]) == ("refused", "NKI001", 1)
    assert tuple(result.diagnostics.columns) == diag.COLUMNS


def test_o4_library_calls_collect_by_default() -> None:
    result = air.run(batch("a", "b"), [Refuse(only="a,b")])
    assert not result.ok
    assert len(result.diagnostics) == 2


@pytest.mark.parametrize("fatal", [True, False])
def test_o4_strict_raises_on_the_first_error(fatal: bool) -> None:
    ir = batch("a", "b")
    with pytest.raises(air.PassError, match="refused") as caught:
        air.run(ir, [Refuse(only="b", fatal=fatal)], strict=True)
    assert caught.value.diagnostic.module == "b"
    with pytest.raises(air.PassError):
        Refuse(only="b", fatal=fatal)(ir, strict=True)


def test_o4_strict_passes_over_notes() -> None:
    assert air.run(batch("a"), [Break()], strict=True).ok


def test_o5_a_module_does_not_depend_on_the_batch_around_it() -> None:
    names = ("a", "b", "c", "d")
    steps = [Tag(only="a,b,d"), Refuse(only="b"), Break(only="c"), Tag(text="?")]
    together = air.run(batch(*names), steps)
    for place, name in enumerate(names):
        alone = air.run(module(name, 2 + place), steps)
        assert alone.ir.to_json(0) == together.ir.to_json(place)
        assert alone.status[0] == together.status[place]


def test_o7_log_lines_go_to_the_logger_of_the_pass(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "arrowir.passes.tag"):
        Tag(text="x")(batch("a"))
    assert [(r.name, r.getMessage()) for r in caplog.records] == [("arrowir.passes.tag", "tagging x")]


def test_o7_log_lines_that_are_off_are_never_made() -> None:
    Spelled.times = 0
    logging.getLogger("arrowir.passes.tag").setLevel(logging.WARNING)
    Tag()(batch("a"))
    assert Spelled.times == 0


def test_o7_the_passes_of_the_package_log_nothing_unless_asked(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    ir = air.read("data/generated/tiny.json")
    with monkeypatch.context() as patch:
        made: list[object] = []
        patch.setattr(logging.Logger, "makeRecord", lambda *arguments, **_: made.append(arguments))
        air.run(ir)
        assert made == []
    with caplog.at_level(logging.INFO, "arrowir.passes"):
        air.run(ir)
    (call,) = ir.instructions.filter(opcode="NKIKernel")["name"]
    assert f"Found InstNKIKernel: {call}" in [record.getMessage() for record in caplog.records]
    assert {record.name for record in caplog.records} == {
        "arrowir.passes.inline_nki_kernel",
        "arrowir.passes.inline_bir_kernel",
    }


def test_o8_a_non_fatal_error_leaves_the_module_in_the_pipeline() -> None:
    result = air.run(batch("a", "b"), [Refuse(only="a", fatal=False), Tag()])
    assert result.status.to_list() == ["changed", "changed"]
    assert result.diagnostics["severity"].to_list() == ["error"]
    assert not result.ok
    assert Refuse(only="a", fatal=False)(batch("a")).status.to_list() == ["unchanged"]


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("bad", ["a", "c", "e", "b,d", "a,b,c,d,e"])
def test_o9_a_defect_fails_only_the_modules_that_meet_it(bad: str, late: bool) -> None:
    names = ("a", "b", "c", "d", "e")
    ir = batch(*names)
    result = air.run(ir, [Break(only=bad, late=late), Tag(text="?")])
    for place, name in enumerate(names):
        failed = name in bad.split(",")
        assert result.status[place] == ("failed" if failed else "changed")
        expected = ir if failed else air.run(ir, [Tag(text="!"), Tag(text="?")]).ir
        assert result.ir.to_json(place) == expected.to_json(place)
    rows = result.diagnostics.filter(code="internal_error")
    assert rows["module"].to_list() == bad.split(",")
    assert all("ZeroDivisionError" in message and "defect" in message for message in rows["message"])


def test_o9_other_messages_keep_their_places_around_a_defect() -> None:
    ir = batch("a", "b", "c", "d")
    result = Break(only="b")(ir)
    notes = result.diagnostics.filter(code="call_site_skipped")
    assert notes["module"].to_list() == ["a", "c", "d"]
    assert notes["module_id"].to_list() == [0, 2, 3]
    firsts = ir.instructions.group_by("module_id", maintain_order=True).first()["id"].to_list()
    assert notes["instruction_id"].to_list() == [firsts[0], firsts[2], firsts[3]]


def test_p1_the_default_order_is_the_compilers() -> None:
    listed = [(s.order, s.name, dict(s.options)) for s in pipeline.DEFAULT]
    assert listed == [
        (2, "translate_nki_ast_to_bir", {}),
        (39, "runtime_memory_reservation", {}),
        (41, "inline_nki_kernel", {"allocated": False}),
        (42, "coalesce_multichannel_cc_ops", {}),
        (48, "inline_bir_kernel", {"post_coloring": False}),
        (60, "inline_bir_kernel", {"post_coloring": True}),
        (61, "inline_nki_kernel", {"allocated": True}),
        (62, "coalesce_multichannel_cc_ops", {}),
    ]
    assert [s.order for s in pipeline.default_steps()] == [2, 39, 41, 42, 60, 61, 62]
    assert [s.order for s in pipeline.default_steps(enable_bir_kernel=True)] == [2, 39, 41, 42, 48, 61, 62]


def test_p1_the_default_run_takes_what_is_there() -> None:
    steps = air.run(batch("a")).steps.select("pass", "order").rows()
    assert steps == [(s.name, s.order) for s in pipeline.default_steps() if s.where is None]
    moved = air.run(batch("a"), enable_bir_kernel=True).steps.select("pass", "order").rows()
    assert ("inline_bir_kernel", 48) in moved
    assert ("inline_bir_kernel", 60) not in moved


def test_p1_the_place_of_bir_kernels_is_that_of_the_default_pipeline() -> None:
    with pytest.raises(air.OptionError, match="a pipeline of one's own"):
        air.run(batch("a"), ["unroll"], enable_bir_kernel=True)
    with pytest.raises(air.OptionError, match="takes true or false"):
        air.run(batch("a"), enable_bir_kernel=1)  # type: ignore[call-overload]


def double(ir: IR) -> IR:
    return Tag(text="2")(ir).ir


def test_p1_a_function_at_any_order_number() -> None:
    steps = [(5, Tag(text="5")), (40, double), (-1, Tag(text="0")), (7, Tag(text="7"))]
    result = air.run(batch("a"), steps)
    assert result.ir.instructions["name"][0] == "a-0" + "0" + "5" + "7" + "2"
    assert result.steps.select("pass", "order").rows() == [("tag", -1), ("tag", 5), ("tag", 7), ("double", 40)]


def test_p1_an_item_without_number_stands_behind_the_one_before_it() -> None:
    def order(*steps: object) -> str:
        return str(air.run(batch("a"), list(steps)).ir.instructions["name"][0])  # type: ignore[arg-type]

    a, b, c = Tag(text="a"), Tag(text="b"), Tag(text="c")
    assert order(a, b, c) == "a-0abc"
    assert order((9, a), b, (3, c)) == "a-0cab"
    assert order(b, (9, a), (3, c)) == "a-0cba"


def test_p1_steps_can_be_added_dropped_and_replaced() -> None:
    steps = [s for s in air.passes.default_steps() if s.order != 61]
    result = air.run(batch("a"), [*steps, (40, double), (41, "unroll")])
    passes = result.steps["pass"].to_list()
    left = [s.name for s in steps if s.where is None]
    at = left.index("inline_nki_kernel")
    assert [name for name in passes if name in ("double", "unroll")] == ["double", "unroll"]
    assert [name for name in passes if name not in ("double", "unroll")] == left
    assert passes[at : at + 3] == ["double", "inline_nki_kernel", "unroll"]


def test_p1_a_function_gets_the_modules_that_have_not_failed() -> None:
    seen: list[list[str]] = []

    def look(ir: IR) -> IR:
        seen.append(module_names(ir))
        return Tag(only="c")(ir).ir

    ir = batch("a", "b", "c")
    result = air.run(ir, [Refuse(only="a"), look, Tag(text="?")])
    assert seen == [["b", "c"]]
    assert result.status.to_list() == ["failed", "changed", "changed"]
    assert result.steps.filter(pl.col("pass") == "look").select("module", "status").rows() == [
        ("b", "unchanged"),
        ("c", "changed"),
    ]
    assert module_names(result.ir) == ["a", "b", "c"]
    assert result.ir.to_json(0) == ir.to_json(0)


def test_o9_a_function_that_raises_fails_only_its_module() -> None:
    def picky(ir: IR) -> IR:
        if "b" in module_names(ir):
            raise KeyError("no b please")
        return Tag()(ir).ir

    ir = batch("a", "b", "c")
    result = air.run(ir, [picky])
    assert result.status.to_list() == ["changed", "failed", "changed"]
    (row,) = result.diagnostics.rows(named=True)
    assert (row["module"], row["code"], row["pass"]) == ("b", "internal_error", "picky")
    assert "`picky` raised KeyError" in row["message"]
    tagged = air.run(ir, [Tag()]).ir
    assert documents(result.ir) == [tagged.to_json(0), ir.to_json(1), tagged.to_json(2)]


@pytest.mark.parametrize("wrong", [lambda ir: None, lambda ir: ir.select([0])])
def test_p1_a_function_has_to_return_the_batch(wrong: Callable[[IR], IR]) -> None:
    with pytest.raises(air.OptionError, match="with the same modules"):
        air.run(batch("a", "b"), [wrong])


def test_o2_changed_means_that_the_document_differs() -> None:
    def rewrite(ir: IR) -> IR:
        names = ir.tables["instructions"].text().tolist()
        return ir.replace(instructions=ir.tables["instructions"].replace(name=Strings.of(names)))

    def reread(ir: IR) -> IR:
        return air.concat([air.read_json(d, name="m") for d in documents(ir)])

    ir = batch("a", "b")
    assert air.run(ir, [rewrite]).status.to_list() == ["unchanged", "unchanged"]
    assert air.run(ir, [reread]).status.to_list() == ["unchanged", "unchanged"]
    assert air.run(ir, [Tag(only="b"), reread]).status.to_list() == ["unchanged", "changed"]


def test_p1_unknown_pass() -> None:
    with pytest.raises(
        air.OptionError, match=r"^Backend pass: inline_nki_kernl is not registered! .*`inline_nki_kernel`"
    ):
        air.run(batch("a"), ["inline_nki_kernl"])


def test_p1_wrong_options_are_usage_errors() -> None:
    ir = batch("a")
    for options in ({"tag": {"txt": "x"}}, {"tag": {"text": 3}}, {"unroll": {}}, {"tga": {}}, {"tag": 3}):
        with pytest.raises(air.OptionError):
            air.run(ir, [Tag()], options=options)  # type: ignore[arg-type]


def test_p1_options_reach_every_step_of_that_name() -> None:
    result = air.run(batch("a"), [Tag(), Tag(text="b")], options={"tag": {"text": "x"}})
    assert result.ir.instructions["name"][0] == "a-0xx"


def test_p2_when_the_verifier_runs_is_checked() -> None:
    with pytest.raises(air.OptionError, match="`verify` takes none, ends or each, got `often`"):
        air.run(batch("a"), [], verify="often")  # type: ignore[arg-type]


def grow(ir: IR) -> IR:
    """Add one instruction to module b."""
    grown = []
    for number, name in enumerate(module_names(ir)):
        document = json.loads(ir.to_json(number))
        if name == "b":
            instructions = document["functions"][0]["blocks"][0]["instructions"]
            instructions.append({**instructions[0], "name": "more"})
        grown.append(air.read_json(json.dumps(document).encode(), name=name))
    return air.concat(grown)


def test_p3_one_row_per_module_and_pass() -> None:
    result = air.run(batch("a", "b"), [Tag(only="a"), grow])
    steps = result.steps
    assert steps.select("module", "module_id", "pass", "status").rows() == [
        ("a", 0, "tag", "changed"),
        ("a", 0, "grow", "unchanged"),
        ("b", 1, "tag", "unchanged"),
        ("b", 1, "grow", "changed"),
    ]
    assert steps.select("instructions_before", "instructions_after").rows() == [(2, 2), (2, 2), (3, 3), (3, 4)]
    assert steps.select("functions_before", "functions_after").rows() == [(1, 1)] * 4
    assert all(f"{t}_{when}" in steps.columns for t in pipeline.COUNTED for when in ("before", "after"))
    assert (steps["seconds"] >= 0).all()
    assert steps.filter(pl.col("pass") == "grow")["seconds"].sum() > 0


def test_p3_rows_per_module_are_those_of_the_tables() -> None:
    before = air.read(["data/samples/klr009", "data/generated", "data/samples"])
    for ir in (before, air.run(before).ir):
        counted = pipeline.rows_per_module(ir)
        for table in pipeline.COUNTED:
            expected = np.bincount(ir.array(table, "module_id"), minlength=len(ir))
            assert counted[table].tolist() == expected.tolist(), table


def test_p4_passes_are_known_by_the_compilers_names() -> None:
    assert air.passes.names()[:3] == ["runtime_memory_reservation", "inline_nki_kernel", "unroll"]
    for name, cls in (
        ("runtime_memory_reservation", air.passes.RuntimeMemoryReservation),
        ("inline_nki_kernel", air.passes.InlineNkiKernel),
        ("unroll", air.passes.Unroll),
    ):
        assert air.passes.get(name) is cls
        assert cls.name == name
