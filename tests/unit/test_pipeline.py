"""The registry of passes, their options, pipelines, and the lazily bound public names."""

import importlib
import inspect
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import arrowir as air
from arrowir.ir import IR
from arrowir.passes import options, pipeline
from arrowir.passes.base import UNCHANGED, Pass, Plan
from arrowir.store import Array, Strings

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "data/samples/klr009/scale_add.bir.json"


@dataclass(frozen=True)
class Knobs(Pass):
    """Has options of many types.

    And more to say of itself.
    """

    name: ClassVar[str] = "knobs"

    flag: bool | None = None
    count: int = 1
    share: float = 0.5
    text: str = "x"
    choice: Literal["a", "b"] = "a"
    many: tuple[int, ...] = ()
    table: dict[str, int] | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise ValueError("count is below 0")

    def plan(self, ir: IR, active: Array) -> Plan:
        return Plan(np.full(len(ir), UNCHANGED, np.int8))


@pytest.fixture
def registered() -> Iterator[None]:
    air.passes.register(Knobs)
    yield
    air.passes.unregister("knobs")


@pytest.fixture(scope="module")
def ir() -> IR:
    return air.read(SAMPLE)


# -- public names ----------------------------------------------------------------------------------------------------


def fresh(code: str) -> str:
    """Run code in a new interpreter and return what it prints."""
    setup = f"import sys; sys.path[:] = {sys.path!r}\n"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", setup + code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_is_there_and_documented() -> None:
    for name in air.__all__:
        value = getattr(air, name)
        assert name == "__version__" or inspect.getdoc(value), name
    assert set(air.__all__) <= set(dir(air))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="`simulat`"):
        air.simulat  # type: ignore[attr-defined]  # noqa: B018


def test_names_that_do_not_exist_yet_are_not_offered() -> None:
    for name in ("occupancy", "hazards"):
        assert not hasattr(air, name)
        assert name not in dir(air)


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert air.__version__ == project["version"]


def test_importing_the_package_imports_no_part_of_it() -> None:
    code = "import arrowir; print(*(m for m in sys.modules if m.startswith('arrowir.') or m == 'numpy'))"
    assert fresh(code).split() == []


# -- registry --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import arrowir.passes.unroll",
        "from arrowir.passes.unroll import Unroll",
        "from arrowir.passes import pipeline; pipeline.default_steps()[0].build()",
        "air.passes.Unroll",
        "import arrowir.passes.inline_nki_kernel, arrowir.passes.unroll, arrowir.passes.runtime_memory_reservation",
    ],
)
def test_a_pass_can_be_called_whatever_was_imported_before(first: str) -> None:
    code = f"""
import arrowir as air
{first}
ir = air.read({str(SAMPLE)!r})
for name in ("runtime_memory_reservation", "inline_nki_kernel", "unroll"):
    print(getattr(air.passes, name)(ir).status.to_list())
from arrowir.passes import unroll
print(unroll(ir, shard_id=0).ok, unroll.Unroll is air.passes.Unroll)
"""
    assert fresh(code).splitlines() == ["['changed']", "['unchanged']", "['unchanged']", "True True"]


def test_a_pass_by_name_is_still_its_module() -> None:
    module = importlib.import_module("arrowir.passes.unroll")
    assert air.passes.unroll is module
    assert inspect.ismodule(module)
    assert pickle.loads(pickle.dumps(air.passes.unroll)) is module


def test_a_pass_by_name_takes_options_and_strict(ir: IR) -> None:
    result = air.passes.runtime_memory_reservation(ir, usable_sbuf_bytes=229_000)
    assert result.ir.locations.filter(name="EvalAccelReservedLoc")["addr"].to_list() == [229_000]
    with pytest.raises(air.OptionError, match="usable_sbuf_bytes"):
        air.passes.runtime_memory_reservation(ir, usable_sbuf_bytes="all")
    with pytest.raises(air.PassError):
        air.passes.runtime_memory_reservation(ir, usable_sbuf_bytes=10**9, strict=True)


def test_an_unknown_attribute_lists_the_passes() -> None:
    with pytest.raises(AttributeError, match="`unroll`"):
        air.passes.unrol  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.usefixtures("registered")
def test_a_registered_pass_is_one_like_the_others(ir: IR) -> None:
    assert air.passes.names()[-1] == "knobs"
    assert air.passes.get("knobs") is Knobs
    assert air.passes.make("knobs", count=3) == Knobs(count=3)
    assert air.passes.knobs(ir, count=3).status.to_list() == ["unchanged"]  # type: ignore[attr-defined]
    assert "knobs" in dir(air.passes)
    assert air.run(ir, ["knobs"]).steps["pass"].to_list() == ["knobs"]
    with pytest.raises(air.OptionError, match="did you mean `knobs`"):
        air.run(ir, ["knob"])


@pytest.mark.usefixtures("registered")
def test_a_name_is_taken_once() -> None:
    other = type("Other", (Knobs,), {})
    with pytest.raises(air.OptionError, match="registered already"):
        air.passes.register(other)
    again = type("Knobs", (Knobs,), {"__module__": Knobs.__module__, "__qualname__": Knobs.__qualname__})
    assert air.passes.register(again) is again
    assert air.passes.register(other, replace=True) is other
    assert air.passes.get("knobs") is other


def test_a_pass_of_the_package_can_be_replaced_and_comes_back(ir: IR) -> None:
    mine = type("Mine", (Knobs,), {"name": "unroll"})
    with pytest.raises(air.OptionError, match="`unroll`"):
        air.passes.register(mine)
    try:
        air.passes.register(mine, replace=True)
        assert isinstance(air.passes.make("unroll"), mine)
        assert air.passes.unroll(ir, count=2).status.to_list() == ["unchanged"]
        assert air.passes.names().count("unroll") == 1
    finally:
        air.passes.unregister("unroll")
    assert air.passes.get("unroll") is air.passes.Unroll


def test_a_planned_pass_of_the_users_own_joins_the_default_order(ir: IR, monkeypatch: pytest.MonkeyPatch) -> None:
    full = [s.order for s in pipeline.default_steps()]
    taken = [s.order for s in pipeline.default_steps() if s.where is None]
    monkeypatch.delitem(air.passes.BUILT_IN, "coalesce_multichannel_cc_ops")
    assert [s.order for s in pipeline.default_steps()] == [n for n in full if n not in (42, 62)]
    mine = type("Mine", (Knobs,), {"name": "coalesce_multichannel_cc_ops"})
    try:
        air.passes.register(mine)
        assert [s.order for s in pipeline.default_steps()] == full
        assert air.run(ir).steps["order"].to_list() == taken
    finally:
        air.passes.unregister("coalesce_multichannel_cc_ops")


def test_what_is_no_pass_cannot_be_registered() -> None:
    @dataclass(frozen=True)
    class Lacking(Pass):
        name: ClassVar[str] = "lacking"
        needed: int

    wrong: list[Any] = [int, "name", Knobs(), Pass, type("Odd", (Knobs,), {"name": "a b"}), Lacking]
    for cls in wrong:
        with pytest.raises(air.OptionError):
            air.passes.register(cls)
    assert air.passes.names() == list(air.passes.BUILT_IN)


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("flag", [None, True, False], [0, "true", "none"]),
        ("count", [0, 5], [True, 1.0, "1", None]),
        ("share", [0.1, 1], ["1", None, True]),
        ("text", ["", "y"], [1, None]),
        ("choice", ["a", "b"], ["c", None, 1]),
        ("many", [(), (1, 2)], [(1, "2"), 1, (True,)]),
        ("table", [None, {}, {"a": 1}], [{"a": "b"}, {1: 1}, []]),
    ],
)
def test_values_are_checked_against_the_type(name: str, good: list[object], bad: list[object]) -> None:
    for value in good:
        assert getattr(options.configured(Knobs(), {name: value}), name) == value
    for value in bad:
        with pytest.raises(air.OptionError, match=f"`{name}` of pass `knobs` takes"):
            options.configured(Knobs(), {name: value})


@pytest.mark.parametrize("name", ["unroll", "inline_nki_kernel"])
@pytest.mark.parametrize(
    ("option", "least", "small"), [("max_instructions", 1, [0, -1, -(2**70)]), ("shard_id", 0, [-1, -(2**70)])]
)
def test_numbers_that_are_too_small_are_refused(name: str, option: str, least: int, small: list[int]) -> None:
    assert getattr(air.passes.make(name, **{option: least}), option) == least
    for value in small:
        for make in (air.passes.make, lambda name, **chosen: air.passes.get(name)(**chosen)):
            with pytest.raises(air.OptionError) as caught:
                make(name, **{option: value})
            message = f"option `{option}` of pass `{name}` takes int of at least {least}, got {value} (int)"
            assert str(caught.value) == message


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(air.OptionError, match="no option `cuont`; it has flag, count"):
        options.configured(Knobs(), {"cuont": 1})


def test_what_the_pass_refuses_is_an_option_error() -> None:
    with pytest.raises(air.OptionError, match="count is below 0"):
        options.configured(Knobs(), {"count": -1})


def test_options_are_listed_with_types_and_defaults() -> None:
    listed = [(o.name, o.type_text, o.default) for o in options.options_of(Knobs)]
    assert listed[:3] == [("flag", "bool | None", None), ("count", "int", 1), ("share", "float", 0.5)]
    assert listed[4:6] == [("choice", "'a' | 'b'", "a"), ("many", "tuple[int, ...]", ())]


# -- pipelines -------------------------------------------------------------------------------------------------------


def test_items_of_all_kinds(ir: IR) -> None:
    steps = [Knobs(), Knobs, "unroll", air.passes.unroll, (3, lambda ir: ir), air.passes.default_steps()[1]]
    taken = air.run(ir, steps).steps["pass"].to_list()  # type: ignore[arg-type]
    assert taken == ["knobs", "knobs", "unroll", "unroll", "<lambda>", "runtime_memory_reservation"]


def test_a_single_item_needs_no_list(ir: IR) -> None:
    assert air.run(ir, "unroll").steps["pass"].to_list() == ["unroll"]
    assert air.run(ir, Knobs()).steps["pass"].to_list() == ["knobs"]  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [[3], [("unroll", 3)], [(1, 2, 3)], [(True, "unroll")], [None], [(1, None)]])
def test_what_is_no_step_is_refused(ir: IR, wrong: list[Any]) -> None:
    with pytest.raises(air.OptionError, match="step of a pipeline"):
        air.run(ir, wrong)


def test_running_what_is_no_batch_is_refused() -> None:
    with pytest.raises(air.OptionError, match=r"arrowir\.read"):
        air.run(str(SAMPLE))  # type: ignore[arg-type]


def test_nothing_runs_when_a_step_is_wrong(ir: IR) -> None:
    ran: list[str] = []

    def note(ir: IR) -> IR:
        ran.append("note")
        return ir

    with pytest.raises(air.OptionError):
        air.run(ir, [note, "unrol"])
    assert ran == []


def test_progress_is_told_before_each_pass(ir: IR) -> None:
    told: list[tuple[str, int, int]] = []
    air.run(ir, ["unroll", Knobs()], progress=lambda *state: told.append(state))
    assert told == [("unroll", 0, 2), ("knobs", 1, 2)]


def test_history_has_each_pass_with_its_options(ir: IR) -> None:
    history = air.run(ir, [Knobs(count=7)]).ir.history
    assert len(history) == len(ir.history) + 1
    assert '"count": 7' in history[-1]


def test_shares_of_the_time_add_up_to_the_time_of_the_sweep() -> None:
    step = pipeline.StepRows(
        "p", 1, np.arange(3), np.zeros(3, np.int8), 2.0, {"instructions": np.array([0, 9, 90])}, {}
    )
    shares = pipeline._shared_out(step)
    assert shares.sum() == pytest.approx(2.0)
    assert shares[2] > shares[1] > shares[0] > 0


def test_changed_rows_are_found_across_the_boundary_of_two_modules(ir: IR) -> None:
    """A row that moves from one module to the next changes both."""
    from arrowir.passes import functions

    both = air.concat([ir, ir])
    blocks = both.tables["instructions"]["block_id"].copy()
    per_module = len(blocks) // 2
    blocks[per_module - 1] = blocks[per_module]
    moved = both.replace(instructions=both.tables["instructions"].replace(block_id=blocks))
    assert functions._touched(both, moved).tolist() == [True, True]


def test_a_rebinding_name_is_a_note_of_the_run() -> None:
    """R7: two locations of one name; a function renames one away, so that operands of both name the same again."""
    built = air.build.module()
    main = built.function("main")
    first, second = main.sb("a", [128, 4]), main.sb("b", [128, 4])
    for tensor in (first, second):
        main.add("Memset", [], [tensor], mode="Const", constant=0)
    ir = built.ir("m")

    def same_name(ir: IR) -> IR:
        return ir.replace(locations=ir.tables["locations"].replace(name=Strings.of(["a", "a"])))

    result = air.run(ir, [same_name])
    assert result.status.to_list() == ["changed"]
    notes = result.diagnostics.filter(code="rebinding_name")
    assert notes["module"].to_list() == ["m"]
    assert notes["severity"].to_list() == ["note"]
    assert air.run(ir, [lambda ir: ir]).diagnostics.is_empty()


def test_tables_of_a_step_that_do_not_hold_together_are_told_as_its_fault() -> None:
    """O9: only the module that has them fails."""

    def careless(ir: IR) -> IR:
        ids = ir.tables["operands"]["location_id"].copy()
        faulty = np.array(ir.tables["modules"].text().tolist()) == "b"
        ids[(ids >= 0) & faulty[ir.array("operands", "module_id")]] = 1_000_000
        return ir.replace(operands=ir.tables["operands"].replace(location_id=ids))

    built = air.build.module()
    main = built.function("main")
    main.add("Memset", [], [main.sb("a", [128, 4])], mode="Const", constant=0)
    result = air.run(air.concat([built.ir(name) for name in "abc"]), [careless])
    assert result.status.to_list() == ["unchanged", "failed", "unchanged"]
    (row,) = result.diagnostics.rows(named=True)
    assert (row["module"], row["pass"], row["code"]) == ("b", "careless", "internal_error")
    assert row["message"].startswith(
        "step `careless` returned tables that do not hold together: `operands.location_id` row 0: the id is not in"
    )
