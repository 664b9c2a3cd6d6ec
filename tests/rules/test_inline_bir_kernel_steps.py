"""Rule B2: the factory, the four steps of a kernel, one body for equal call-sites, plug-ins."""

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import arrowir as air
from arrowir import build, library
from arrowir.library import Kernel, registry
from arrowir.testing.assertions import assert_valid
from tests.bir_kernels import Json, call, names, one_call, registered, steps
from tests.single_pass import read, refused, run_pass, written

inline = partial(run_pass, "inline_bir_kernel")
fault = partial(refused, "inline_bir_kernel")


# B2: the factory and its steps


def test_b2_a_kernel_is_driven_through_four_steps() -> None:
    with steps() as seen:
        assert inline(one_call(kernel="Steps")).status == "changed"
        assert seen == ["build", "commit", "result", "cleanup"]


@pytest.mark.parametrize(
    ("at", "done", "code", "message"),
    [
        ("result", ["build", "commit", "result", "cleanup"], "kernel_failed", "it did not work out"),
        ("build refuses", ["build", "cleanup"], "kernel_shape_mismatch", "refused in build"),
        ("commit refuses", ["build", "commit", "cleanup"], "kernel_shape_mismatch", "refused in commit"),
        ("result refuses", ["build", "commit", "result", "cleanup"], "kernel_shape_mismatch", "refused in result"),
        ("nothing", ["build", "commit", "result", "cleanup"], "kernel_failed", "has committed no body"),
    ],
)
def test_b2_cleanup_comes_also_after_a_failure(at: str, done: list[str], code: str, message: str) -> None:
    with steps() as seen:
        found = fault(one_call(kernel="Steps", attrs={"at": at}))
        assert seen == done
    assert (found.code, found.function, found.block, found.instruction) == (code, "main", "Block1", "C")
    assert message in found.message
    assert found.compiler_code == ("NKI016" if code == "kernel_failed" else None)


def test_b2_the_message_of_a_status_is_the_rows() -> None:
    with steps():
        assert fault(one_call(kernel="Steps", attrs={"at": "result"})).message == "it did not work out"


@pytest.mark.parametrize("step", ["build", "commit", "result"])
def test_b2_an_exception_fails_only_its_module_and_cleanup_is_done(step: str) -> None:
    good, bad = one_call(kernel="Steps"), one_call(kernel="Steps", attrs={"at": f"{step} raises"})
    with steps() as seen:
        result = air.passes.inline_bir_kernel(air.concat([read(good, "good"), read(bad, "bad"), read(good, "also")]))
        assert seen.count("cleanup") == seen.count("build")
    assert result.status.to_list() == ["changed", "failed", "changed"]
    assert result.diagnostics.select("module", "code").rows() == [("bad", "internal_error")]


def test_b2_an_exception_of_a_kernel_names_it_and_its_call_site() -> None:
    class Broken(Kernel):
        name = "Broken"

        def emit(self, body: library.BodyBuilder) -> None:
            raise KeyError("tile")

    class Mute(Kernel):
        name = "Mute"

        def result(self) -> library.Status:
            return None  # type: ignore[return-value]

        def emit(self, body: library.BodyBuilder) -> None: ...

    with registered(Broken, Mute):
        found = fault(one_call(kernel="Broken"))
        assert (found.code, found.instruction) == ("internal_error", "C")
        assert found.message == "kernel `Broken` raised KeyError: 'tile'"
        found = fault(one_call(kernel="Mute"))
        assert (found.code, found.message) == ("kernel_failed", "`result` returned None, no `Status`")


def test_b2_what_the_library_refuses_a_kernel_is_its_status() -> None:
    class Careless(Kernel):
        name = "Careless"

        def emit(self, body: library.BodyBuilder) -> None:
            body.sb("tile", (128, 4), "float31")

    class Unmade(Kernel):
        name = "Unmade"

        def __init__(self, given: library.Call) -> None:
            raise air.OptionError("not today")

    with registered(Careless, Unmade):
        for kernel, text in (("Careless", "`float31` is no dtype"), ("Unmade", "not today")):
            found = fault(one_call(kernel=kernel))
            assert found.code == "kernel_failed"
            assert text in found.message


def several(*tags: tuple[str, str]) -> Json:
    """Return a module with a call-site for each tag, which fails where that says."""
    module = build.module()
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    for tag, at in tags:
        call(main, [x], [y], "Steps", attrs={"tag": tag, "at": at}, name=tag)
    return module.json()


def builds(seen: list[str]) -> list[str]:
    return [step.split()[1] for step in seen if step.startswith("build")]


def test_b2_a_module_stops_at_its_first_failing_kernel() -> None:
    with steps() as seen:
        found = fault(several(("a", ""), ("b", "result"), ("c", ""), ("b", "result"), ("d", "result")))
        assert builds(seen) == ["a", "b"]
        assert (found.instruction, found.message) == ("b", "it did not work out")


def test_b2_other_modules_go_on_and_each_stops_at_its_own_first_one() -> None:
    batch = [
        several(("a", ""), ("bad", "result"), ("never", "")),
        several(("c", ""), ("a", ""), ("bad", "result")),
        several(("worse", "result"), ("bad", "result"), ("c", "")),
        several(("c", ""), ("a", "")),
    ]
    with steps() as seen:
        result = air.passes.inline_bir_kernel(air.concat([read(d, f"m{n}") for n, d in enumerate(batch)]))
        assert sorted(builds(seen)) == ["a", "bad", "c", "worse"]
    assert result.status.to_list() == ["failed", "failed", "failed", "changed"]
    assert result.diagnostics["instruction"].to_list() == ["bad", "bad", "worse"]
    assert [result.ir.to_json(n) for n in range(3)] == [written(d) for d in batch[:3]]


def test_b2_a_kernel_that_only_failed_modules_name_is_not_built() -> None:
    batch = [several(("bad", "result"), ("later", "")), several(("bad", "result"), ("later", ""), ("more", ""))]
    with steps() as seen:
        air.passes.inline_bir_kernel(air.concat([read(d) for d in batch]))
        assert builds(seen) == ["bad"]


def test_b2_equal_call_sites_have_one_body() -> None:
    module = build.module()
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    first = None
    for number in range(250):
        first = call(main, [x], [y], "Steps", name=f"C{number}", after=[first] if first else [])
    ir = air.concat([module.ir(f"m{n}") for n in range(4)])
    with steps() as seen:
        result = air.passes.inline_bir_kernel(ir)
        assert seen == ["build", "commit", "result", "cleanup"]
    assert result.status.to_list() == ["changed"] * 4
    assert result.ir.count("instructions") == 4 * 250 * 2
    assert_valid(result.ir)


@pytest.mark.parametrize(
    "other",
    [
        {"attrs": {"tag": "other"}},
        {"shape": (64, 8)},
        {"dtypes": ("bfloat16", "bfloat16")},
        {"arch": "core_v4"},
        {"lnc_size": 1},
        {"memory": "SB"},
        {"rows": 64},
        {"begin": 3},
    ],
)
def test_b2_call_sites_that_ask_for_something_else_have_their_own(other: Json) -> None:
    def module(n: str, **more: Any) -> air.IR:
        made = build.module(arch=more.pop("arch", "gen3"))
        main = made.function()
        shape, dtypes = more.pop("shape", (128, 8)), more.pop("dtypes", ("float32", "float32"))
        memory, rows, begin = more.pop("memory", "DRAM"), more.pop("rows", None), more.pop("begin", 0)
        x = main.tensor("x", memory, shape, dtypes[0], kind="ExternalInput")
        y = main.output("y", shape, dtypes[1])
        if rows or begin:
            ap = [[8, (rows or 128) - bool(begin)], [1, 8]]
            source, target = x.access(ap, offset=8 * begin % 64), y.access(ap)
            call(main, [source], [target], "Steps", **more, name="C")
        else:
            call(main, [x], [y], "Steps", **more, name="C")
        return made.ir(n)

    ir = air.concat([module("a"), module("b", **other), module("c"), module("d", **other)])
    with steps() as seen:
        result = air.passes.inline_bir_kernel(ir)
        assert result.ok, result.diagnostics
        assert len(builds([s.replace("build", "build x") for s in seen])) == 2
    assert_valid(result.ir)


# plug-ins

PLUGIN = """
from arrowir.library import Kernel

class Twice(Kernel):
    name = "Twice"

    def emit(self, body):
        body.add("TensorTensor", ["in0", "in0"] and self.both(body), [self.out(body)], op="add")

    def both(self, body):
        from arrowir.library import Grid
        x = self.call.inputs[0]
        tile = body.sb("tile", x.shape, x.dtype)
        body.copy(Grid.of(x, x.shape[-1]).tile(0, x.shape[0], 0, x.shape[1]), tile)
        return [tile, tile]

    def out(self, body):
        from arrowir.library import Grid
        y = self.call.outputs[0]
        return Grid.of(y, y.shape[-1]).tile(0, y.shape[0], 0, y.shape[1])

    @staticmethod
    def define(inputs, options):
        return [2 * inputs[0]]

broken = 3
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put a package on the path as an installation does: with metadata that has entry points."""
    (tmp_path / "twice_plugin.py").write_text(PLUGIN)
    info = tmp_path / "twice_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: twice-plugin\nVersion: 1.0\n")
    points = "Twice = twice_plugin:Twice\nBroken = twice_plugin:broken\n"
    points += "Lost = no_such_module:x\nRMSNorm = twice_plugin:Twice\n"
    (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._installed.cache_clear()
    yield "twice_plugin"
    monkeypatch.undo()
    registry._installed.cache_clear()
    sys.modules.pop("twice_plugin", None)


def test_b2_a_plug_in_is_found_through_the_entry_points_and_loaded_when_asked_for(plugin: str) -> None:
    assert library.names() == ["Activation", "Broken", "Lost", "RMSNorm", "Twice"]
    assert plugin not in sys.modules
    outcome = inline(one_call(kernel="Twice"))
    assert plugin in sys.modules
    assert names(outcome.doc) == ["C_load0", "C_tensortensor0"]
    assert air.equivalent(outcome.before, outcome.ir).ok


def test_b2_plug_ins_that_cannot_be_used(plugin: str) -> None:
    for name, text in (
        ("Broken", "`twice_plugin:broken` is no subclass"),
        ("Lost", "cannot be loaded: ModuleNotFoundError"),
        ("RMSNorm", "several packages have a kernel"),
    ):
        found = fault(one_call(kernel=name))
        assert found.code == "kernel_failed"
        assert text in found.message


def test_b2_registering() -> None:
    class Small(Kernel):
        name = "Activation"

    class Nameless(Kernel):
        pass

    with pytest.raises(air.OptionError, match="there is a kernel `Activation` already"):
        library.register(Small)
    library.register(Small, replace=True)
    assert library.get("Activation") is Small
    library.unregister("Activation")
    assert library.get("Activation") is not Small
    for wrong in (3, int, Nameless):
        with pytest.raises(air.OptionError, match=r"is no subclass|has no `name`"):
            library.register(wrong)  # type: ignore[type-var]
