"""The benchmarks can be run, and report what they measured; how fast anything is, is no matter of tests."""

import io
import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from tests.benchmarks import inputs, pipelines, report, worker
from tests.benchmarks.registry import Case, Inputs, Peer, Row, chosen, groups, rows
from tests.benchmarks.report import Measured
from tests.benchmarks.runner import main
from tests.benchmarks.usage import Peak

ROWS = rows()


def nothing(_: Inputs) -> Case:
    return Case(lambda _: None, 1, "runs")


def row(name: str, *peers: Peer, seconds: float | None = None) -> Row:
    return Row(name, f"what {name} does", nothing, peers=peers, seconds=seconds)


def measured(one: Row, *times: float, amount: int = 1, unit: str = "runs") -> Measured:
    made = Measured(one, amount, unit, peak_bytes=1_000_000)
    for time in times:
        made.add(time, time)
    return made


# -- the registry -----------------------------------------------------------------------------------------------------


def test_peers_and_inputs_of_all_rows_exist() -> None:
    assert {peer.name for one in ROWS.values() for peer in one.peers} <= set(ROWS)
    assert {name for one in ROWS.values() for name in one.needs} <= set(inputs.MAKERS)


def test_no_row_is_its_own_peer() -> None:
    assert [one.name for one in ROWS.values() if one.name in {peer.name for peer in one.peers}] == []


def test_a_chosen_row_brings_its_peers() -> None:
    names = [one.name for one in chosen(["inline_10000"], ROWS)]
    assert names == ["inline_1000", "inline_10000", "llvm_inline_10000"]


def test_rows_that_are_compared_form_a_group() -> None:
    some = [row("a", Peer("b")), row("b"), row("c"), row("d", Peer("b"), Peer("missing"))]
    assert [[one.name for one in group] for group in groups(some)] == [["a", "b", "d"], ["c"]]


def test_inputs_come_behind_what_they_are_made_from() -> None:
    assert inputs.wanted({"document"}) == ["document.json", "document"]


# -- measuring --------------------------------------------------------------------------------------------------------


def test_a_worker_answers_each_request() -> None:
    given: list[int] = []
    case = Case(given.append, 7, "instructions", fresh=lambda: len(given), facts={"bytes": 3})
    answers = io.StringIO()
    worker.serve(case, ["run\n", "run\n", "stop\n", "run\n"], answers)
    first, *runs = map(json.loads, answers.getvalue().splitlines())
    peak = first.pop("peak_bytes")
    assert peak is None or peak >= 0
    assert first == {"amount": 7, "unit": "instructions", "facts": {"bytes": 3}}
    assert given == [0, 1, 2, 3], "one to warm up, one to weigh, two that were asked for; an input for each"
    assert [set(run) for run in runs] == [{"seconds", "processor_seconds"}] * 2


def test_a_wrong_result_ends_the_worker() -> None:
    def refuse(_: None) -> None:
        raise AssertionError("wrong")

    answers = io.StringIO()
    with pytest.raises(AssertionError, match="wrong"):
        worker.serve(Case(lambda _: None, 1, "runs", check=refuse), ["run\n"], answers)
    assert answers.getvalue() == ""


def test_the_collector_is_off_where_the_row_says_so_and_on_again_behind_it() -> None:
    import gc

    seen: list[bool] = []
    for collect in (True, False):
        worker.once(Case(lambda _: seen.append(gc.isenabled()), 1, "runs", collect=collect))
    assert seen == [True, False]
    assert gc.isenabled()


def test_peak_memory_is_that_of_what_was_held_for_a_while() -> None:
    peak = Peak()
    held = bytearray(b"x") * 60_000_000
    del held
    found = peak.bytes()
    assert found is None or found > 50_000_000


# -- the report -------------------------------------------------------------------------------------------------------


def test_a_ratio_is_that_of_the_medians() -> None:
    fast, slow = row("fast", Peer("slow", at_most=12), Peer("absent")), row("slow")
    found = [measured(fast, 1.0, 9.0, 3.0), measured(slow, 6.0)]
    (compared,) = report.comparisons(found[0], {one.row.name: one for one in found})
    assert (compared.peer, compared.ratio, compared.at_most) == ("slow", 0.5, 12)


def test_the_text_has_a_line_for_each_peer_and_says_whether_targets_are_met() -> None:
    one = row("one", Peer("two", at_most=2), Peer("three", at_most=0.1), seconds=0.001)
    found = [
        measured(one, 0.5, amount=1000, unit="instructions"),
        measured(row("two"), 1.0),
        measured(row("three"), 0.25),
    ]
    found.append(Measured(row("four"), error="its process ended with code 1"))
    lines = report.text(report.machine() | {"load_after": 1.0}, found).splitlines()
    begin = next(k for k, line in enumerate(lines) if line.startswith("row "))
    words = [" ".join(line.split()) for line in lines[begin + 1 :]]
    assert words == [
        "one 500 ms 500 ms 500 ms 500 ms 2.0 k instructions/s 1 MB at most 1.00 ms, missed",
        "two 0.50 at most 2, met",
        "three 2.00 at most 0.1, missed",
        "two 1.00 s 1.00 s 1.00 s 1.00 s 1 MB",
        "three 250 ms 250 ms 250 ms 250 ms 1 MB",
        "four failed its process ended with code 1",
    ]


def test_the_table_of_the_documentation_has_the_same_figures() -> None:
    one = row("one", Peer("two", at_most=2), seconds=0.001)
    found = [measured(one, 0.5, 0.25, 1.0, amount=1000, unit="modules"), measured(row("two"), 1.0)]
    first, second = report.markdown(found).splitlines()[2:]
    assert first.startswith("| `one` | 500 ms (250 ms to 1.00 s) | 500 ms | 2.0 k modules/s | 1 MB | 0.50 of `two` |")
    assert first.endswith("| at most 1.00 ms, missed; at most 2, met (of `two`) |")
    assert second == "| `two` | 1.00 s (1.00 s to 1.00 s) | 1.00 s | | 1 MB | | |"


def test_quick_sizes_meet_and_miss_no_target() -> None:
    found = [measured(row("one", seconds=0.001), 0.5)]
    text = report.text(report.machine() | {"load_after": 1.0}, found, quick=True)
    assert "at most 1.00 ms" in text
    assert "missed" not in text


def test_the_machine_is_named() -> None:
    about = report.machine()
    assert about["cores"] >= 1
    assert all(about["packages"].values()), about["packages"]
    assert "assertions o" in about["llvm"]


# -- all of it --------------------------------------------------------------------------------------------------------


def run_quick(path: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["--quick", "--json", str(path), *arguments])
    return code, json.loads(path.read_text())


def test_rows_are_measured_in_processes_of_their_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, made = run_quick(tmp_path / "report.json", "--only", "inline_1000", "--repeat", "3")
    assert code == 0, capfd.readouterr().err
    found = {one["name"]: one for one in made["rows"]}
    assert list(found) == ["inline_1000", "llvm_inline_1000", "llvm_inline_unnamed"]
    assert made["quick"]
    for one in found.values():
        assert len(one["seconds"]) == 3
        assert all(time > 0 for time in one["seconds"])
        assert one["min"] <= one["median"] == median(one["seconds"]) <= one["max"]
    # 20 call-sites of 20 instructions
    assert {one["amount"] for one in found.values()} == {400}
    for peer in found["inline_1000"]["peers"]:
        assert peer["ratio"] == found["inline_1000"]["median"] / found[peer["name"]]["median"]
    printed = capfd.readouterr().out
    assert all(name in printed for name in found)


def test_documents_are_read_and_written(tmp_path: Path) -> None:
    """Set-up, run and check of rows that need much memory at full size; in this process, to be quick."""
    given = Inputs(tmp_path, quick=True)
    names = (
        "json_read",
        "orjson_loads",
        "json_write",
        "parquet_write",
        "pyarrow_write",
        "parquet_read",
        "pyarrow_read",
    )
    for name in inputs.wanted({need for row in names for need in ROWS[row].needs}):
        inputs.MAKERS[name](given, given.path(name))
    for name in names:
        case = ROWS[name].set_up(given)
        worker.warm_up(case)
        assert worker.once(case)["seconds"] > 0


@pytest.mark.parametrize(
    "name",
    ["reservation_1000", "library_1000", "unroll_million", "inline_distinct", "inline_no_edges", "constants_100000"],
)
def test_passes_do_what_their_rows_say(name: str, tmp_path: Path) -> None:
    given = Inputs(tmp_path, quick=True)
    for need in ROWS[name].needs:
        inputs.MAKERS[need](given, given.path(need))
    worker.warm_up(ROWS[name].set_up(given))


def test_the_steps_of_the_pipeline_have_a_row_each() -> None:
    from arrowir.passes.pipeline import default_steps

    assert [step.name for step in default_steps()] == list(pipelines.PASSES)


def test_a_row_that_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # the process of the row knows no row of that name
    extra = row("unknown_to_workers")
    monkeypatch.setattr("tests.benchmarks.runner.rows", lambda: {"cli_help": ROWS["cli_help"], extra.name: extra})
    code, made = run_quick(tmp_path / "report.json", "--repeat", "1")
    assert code == 1
    assert [one["name"] for one in made["rows"]] == ["cli_help", extra.name]
    assert made["rows"][0]["seconds"]
    assert made["rows"][1]["error"] == "its process ended with code 1"
    assert "KeyError: 'unknown_to_workers'" in capfd.readouterr().err


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(["--only", "inline_100"])
    assert refused.value.code == 2
    assert "there is no row `inline_100`" in capsys.readouterr().err


def test_rows_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(ROWS)
