"""Arguments of a wrong type: an error of the library that says what is taken, and never a bare one of Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import arguments, build, passes
from arrowir.build import FunctionBuilder
from tests.command_line import SCALE_ADD, TINY

IR = air.read(TINY)
OBJECT = object()
WRONG: list[Any] = [
    *(None, True, 3, -1, 2**70, 2.5, float("nan"), "no", "", "\0", "\ud800", b"no", OBJECT, IR, len, int),
    *([], [3], [None], [[1]], (1, 2), [(1, "no")], [(1.5, "unroll")], [("a",)], range(3)),
    *({}, {"a": 1}, {3: {}}, {"unroll": 3}, {"unroll": {3: 3}}, np.array([1.5]), np.int64(99)),
]
Call = Callable[[Any], object]

LIBRARY: dict[str, Call] = {
    "read": air.read,
    "read_json": air.read_json,
    "read_json, name": lambda w: air.read_json(SCALE_ADD, name=w),
    "read_parquet": air.read_parquet,
    "run": air.run,
    "run, passes": lambda w: air.run(IR, w),
    "run, one pass": lambda w: air.run(IR, [w]),
    "run, a pass behind another": lambda w: air.run(IR, ["unroll", (3, w)]),
    "run, an order": lambda w: air.run(IR, [("unroll"), (w, "unroll")]),
    "run, options": lambda w: air.run(IR, ["unroll"], options=w),
    "run, options of a pass": lambda w: air.run(IR, ["unroll"], options={"unroll": w}),
    "run, an option": lambda w: air.run(IR, ["unroll"], options={"unroll": {"shard_id": w}}),
    "run, verify": lambda w: air.run(IR, ["unroll"], verify=w),
    "run, check_tolerance": lambda w: air.run(IR, ["unroll"], check_tolerance=w),
    "run, progress": lambda w: air.run(IR, ["unroll"], progress=w) if w not in (len, int) else None,
    "step, order": lambda w: air.run(IR, ["unroll", passes.Step(w, "unroll")]),
    "step, name": lambda w: air.run(IR, [passes.Step(1, w)]),
    "step, options": lambda w: air.run(IR, [passes.Step(1, "unroll", w)]),
    "a pass by name": passes.unroll,
    "a pass": passes.Unroll(),
    "an option by name": lambda w: passes.unroll(IR, max_instructions=w),
    "an option": lambda w: passes.Unroll(shard_id=w),
    "with_options": lambda w: passes.Unroll().with_options(shard_id=w),
    "get": passes.get,
    "make": passes.make,
    "register": passes.register,
    "run, enable_bir_kernel": lambda w: air.run(IR, enable_bir_kernel=w),
    "library, get": air.library.get,
    "library, register": air.library.register,
    "library, unregister": air.library.unregister,
    "concat": air.concat,
    "concat, an item": lambda w: air.concat([IR, w]) if w is not IR else None,
    "select": IR.select,
    "module_id": IR.module_id,
    "text": IR.text,
    "to_json": IR.to_json,
    "to_json, indent": lambda w: IR.to_json(0, indent=w),
    "write_json, indent": lambda w: IR.write_json("out", indent=w),
    "sql": IR.sql,
    "attributes": IR.attributes,
    "frame": IR.frame,
    "count": IR.count,
    "column, table": lambda w: IR.column(w, "id"),
    "column": lambda w: IR.column("instructions", w),
}
WRITING: dict[str, Call] = {"write_json": IR.write_json, "write_parquet": IR.write_parquet}


def built(change: Callable[[FunctionBuilder], object]) -> object:
    module = build.module()
    change(module.function())
    return module.ir()


def named(name: Any) -> object:
    module = build.module()
    module.function(name)
    return module.ir()


def accessed(access: Callable[[build.Tensor], Any]) -> object:
    return built(lambda main: main.add("X", [access(main.sb("t", [128, 4]))]))


def looped(**arguments: Any) -> object:
    def loop(main: FunctionBuilder) -> None:
        with main.loop(**{"lb": 0, "ub": 4, **arguments}):
            main.add("X")

    return built(loop)


BUILDER: dict[str, Call] = {
    "arch": lambda w: build.module(w).ir(),
    "a member": lambda w: build.module(zz=w).ir(),
    "name of a module": lambda w: build.module().ir(w),
    "name of a function": named,
    "name of a tensor": lambda w: built(lambda main: main.sb(w, [128, 4])),
    "shape": lambda w: built(lambda main: main.sb("t", w)),
    "dtype": lambda w: built(lambda main: main.sb("t", [128, 4], w)),
    "memory": lambda w: built(lambda main: main.tensor("t", w, [128, 4])),
    "addr": lambda w: built(lambda main: main.sb("t", [128, 4], addr=w)),
    "set_members": lambda w: built(lambda main: main.sb("t", [128, 4], set_members=w)),
    "place": lambda w: built(lambda main: main.place(w, "u")),
    "register": lambda w: built(lambda main: main.register(w)),
    "opcode": lambda w: built(lambda main: main.add(w)),
    "call": lambda w: built(lambda main: main.call(w)),
    "args": lambda w: built(lambda main: main.call("k", w)),
    "outs of a call": lambda w: built(lambda main: main.call("k", (), w)),
    "scratch": lambda w: built(lambda main: main.call("k", scratch=w)),
    "one scratchpad": lambda w: built(lambda main: main.call("k", scratch=[w])),
    "branch": lambda w: built(lambda main: main.branch(w)),
    "compare": lambda w: built(lambda main: main.compare(w, "IS_LT", 1, "a", "b")),
    "pattern": lambda w: accessed(lambda tensor: tensor.access(w)),
    "offset": lambda w: accessed(lambda tensor: tensor.access(offset=w)),
    "dtype of an access": lambda w: accessed(lambda tensor: tensor.access(dtype=w)),
    "a slice": lambda w: accessed(lambda tensor: tensor[w]),
    "at": lambda w: accessed(lambda tensor: tensor.at(w)),
    "via": lambda w: accessed(lambda tensor: tensor.via(w)),
    "imm": lambda w: accessed(lambda _: build.imm(w)),
    "shard_id": lambda w: accessed(lambda tensor: tensor.at(build.shard_id(w))),
    **{name: lambda w, name=name: looped(**{name: w}) for name in ("lb", "ub", "stride", "axis", "opcode")},
}
for _name in ("ins", "outs", "indirection", "after", "carried", "unroll", "wait", "update", "engine", "name", "zz"):
    BUILDER[_name] = lambda w, name=_name: built(lambda main: main.add("X", **{name: w}))
    BUILDER[f"one of {_name}"] = lambda w, name=_name: built(lambda main: main.add("X", **{name: [w]}))


CALLS = {**LIBRARY, **{f"build, {name}": call for name, call in BUILDER.items()}}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CALLS)
def test_no_bare_error_of_python_leaves_the_package(name: str) -> None:
    refused = 0
    for value in WRONG:
        try:
            CALLS[name](value)
        except air.ArrowIRError:
            refused += 1
    assert refused > 0


@pytest.mark.parametrize("name", WRITING)
def test_what_is_no_path_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    for value in WRONG:
        if not isinstance(value, str):
            with pytest.raises(air.OptionError, match=rf"`{name}` takes a path, got "):
                WRITING[name](value)
    for value in ("\0", "\ud800"):
        with pytest.raises(air.ArrowIRError, match="cannot be written"):
            WRITING[name](value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: air.read_json(3), "`read_json` takes a path, got 3 (int)"),
        (lambda: air.read_json(b"{}", name="\ud800"), "`name` takes text, got '\\ud800', which UTF-8 does not have"),
        (lambda: air.run("x"), "`run` takes an `arrowir.IR` (`arrowir.read` makes one of files), got 'x' (str)"),
        (
            lambda: passes.unroll(None),
            "pass `unroll` takes an `arrowir.IR` (`arrowir.read` makes one of files), got None",
        ),
        (
            lambda: air.run(IR, 3),
            "`passes` takes a pass, a registered name, a function, or a list of these, got 3 (int)",
        ),
        (lambda: air.run(IR, options=[]), "`options` takes options by pass name, got [] (list)"),
        (lambda: air.run(IR, progress=3), "`progress` takes a function or None, got 3 (int)"),
        (lambda: IR.to_json(0, indent=-1), "`indent` takes a number of spaces from 0 to 100, or None, got -1 (int)"),
        (lambda: IR.frame("rows"), "there is no table 'rows'; the tables are `modules`, "),
        (lambda: IR.column("modules", "size"), "table `modules` has no column 'size'; it has `id`, "),
        (lambda: build.module().function().add("X", 3), "`ins` takes a list of operands, got 3 (int)"),
        (
            lambda: build.module(zz={1}).ir(),
            "a member of a module takes text, numbers, true, false, None, and lists and",
        ),
    ],
)
def test_a_refusal_says_what_is_taken_and_what_was_given(call: Callable[[], object], message: str) -> None:
    with pytest.raises(air.OptionError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_numbers_of_numpy_are_numbers() -> None:
    built = build.module(attributes={"a": np.int64(3), "b": np.float32(0.5)})
    assert built.json()["attributes"] == {"a": 3, "b": 0.5}


def test_long_values_are_shown_short() -> None:
    assert len(str(arguments.wrong("this", "less", list(range(10_000))))) < 100
