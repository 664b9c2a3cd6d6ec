"""Library kernels, by definitions in numpy."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from arrowir import simulate
from arrowir.diagnostics import OptionError, SimulationError
from tests.simulated import Bench

f32 = np.float32
seen: list[tuple[list[tuple[int, ...]], dict[str, Any]]] = []


@pytest.fixture
def norm() -> Iterator[str]:
    def define(inputs: Sequence[np.ndarray], options: Mapping[str, Any]) -> list[np.ndarray]:
        seen.append(([array.shape for array in inputs], dict(options)))
        x, gamma = (array.astype(f32) for array in inputs)
        return [x * gamma + f32(options.get("lower_bound", 0)), x.sum(axis=1)]

    simulate.define_kernel("test_norm", define)
    yield "test_norm"
    simulate.undefine_kernel("test_norm")
    seen.clear()


def call(name: str, **members: Any) -> Bench:
    bench = Bench()
    x, gamma = bench.given("x", np.ones((4, 6), np.float16)), bench.given("gamma", np.full((1, 6), 3, f32))
    pad = bench.scratch("pad", (128, 4))
    outs = [bench.output("y", (4, 6), "bfloat16"), bench.output("total", (4, 1)), pad]
    bench.add("BIRKernel", [x, gamma, 1.0], outs, kernel_name=name, sb_buf_shape=[128, 16], **members)
    return bench


def test_a_kernel_computes_what_its_definition_says(norm: str) -> None:
    found = call(norm, lower_bound=0.5, srcs_shape=[[4, 6], [6]]).run()
    assert (found["y"].astype(f32) == 3.5).all()
    assert found["total"].tolist() == [[6]] * 4
    shapes, options = seen[-1]
    assert shapes == [(4, 6), (6,)]
    assert options == {
        "kernel_name": norm, "sb_buf_shape": [128, 16], "lower_bound": 0.5, "srcs_shape": [[4, 6], [6]]
    }  # fmt: skip


def test_shapes_are_those_of_the_accesses_by_default(norm: str) -> None:
    call(norm).run()
    assert seen[-1][0] == [(4, 6), (1, 6)]


def test_what_is_wrong(norm: str) -> None:
    with pytest.raises(SimulationError, match="the library kernel `none` has no definition"):
        call("none").run()
    with pytest.raises(OptionError, match="`test_norm` is defined already"):
        simulate.define_kernel(norm, lambda inputs, options: [])
    for given, reason in ((None, "gives None; expected a list of arrays"), ([["a"], 0], "gives <U1 for `out 0`")):
        simulate.define_kernel(norm, lambda inputs, options, given=given: given, replace=True)
        with pytest.raises(SimulationError, match=reason):
            call(norm).run()
    simulate.define_kernel(norm, lambda inputs, options: [options["missing"]], replace=True)
    with pytest.raises(SimulationError, match="the definition of `test_norm` fails: KeyError: 'missing'") as e:
        call(norm).run()
    assert isinstance(e.value.__cause__.__cause__, KeyError)  # type: ignore[union-attr]
    for shapes in ([["a", 6]], [[2.5, 4]], 3, "xy"):  # what is no shape is none
        simulate.define_kernel(norm, lambda inputs, options: [inputs[0], np.zeros(inputs[0].shape[0])], replace=True)
        assert call(norm, srcs_shape=shapes).run()["total"].shape == (4, 1)
    simulate.define_kernel(norm, lambda inputs, options: [inputs[0]], replace=True)
    with pytest.raises(SimulationError, match="gives 1 outputs, the call-site has 2"):
        call(norm).run()


# -- custom operations and machine code ----


@pytest.fixture
def total() -> Iterator[str]:
    def define(inputs: Sequence[np.ndarray], options: Mapping[str, Any]) -> list[np.ndarray]:
        seen.append(([array.shape for array in inputs], dict(options)))
        return [np.sum([array.astype(f32) for array in inputs], axis=0)]

    simulate.define_kernel("test_total", define)
    yield "test_total"
    simulate.undefine_kernel("test_total")
    seen.clear()


def custom(opcode: str, **members: Any) -> np.ndarray:
    bench = Bench()
    a, b = bench.given("a", np.full((2, 6), 2, np.float16)), bench.given("b", np.full((2, 6), 3, f32))
    bench.add(opcode, [a, b[:, ::-1]], [bench.output("out", (2, 6), "bfloat16")], **members)
    return bench.run()["out"]


@pytest.mark.parametrize("shapes", [None, [[3, 4], [3, 4]]])
def test_a_custom_operation_computes_what_its_definition_says(total: str, shapes: list[list[int]] | None) -> None:
    more = {} if shapes is None else {"srcsShape": shapes}
    found = custom("CustomOp", opFunctionName=total, opLibFile="lib.so", dstsShape=[[2, 6]], **more)
    assert (found.astype(f32) == 5).all()
    assert seen[-1][0] == ([(2, 6)] * 2 if shapes is None else [(3, 4)] * 2)
    assert seen[-1][1]["opLibFile"] == "lib.so"


@pytest.mark.parametrize("code", ["test_total", list(b"\x01\xff")])
def test_machine_code_computes_what_its_definition_says(total: str, code: str | list[int]) -> None:
    simulate.define_kernel("01ff", lambda inputs, options: [inputs[0] * 0 + 5])
    try:
        found = custom("InlineASMBytes", asm_bytes=code, sync_type="DMAType", latency_estimate=1)
    finally:
        simulate.undefine_kernel("01ff")
    assert (found.astype(f32) == 5).all()


@pytest.mark.parametrize(
    ("opcode", "members", "message"),
    [
        ("CustomOp", {"opFunctionName": "none"}, "the custom operation `none` has no definition"),
        ("InlineASMBytes", {"asm_bytes": "none"}, "the machine code `none` has no definition"),
        ("InlineASMBytes", {"asm_bytes": [256]}, r"`asm_bytes` is \[256\]; expected text or a list of bytes"),
        ("CustomOp", {}, "the key `opFunctionName` is missing"),
        ("InlineASMBytes", {}, "the key `asm_bytes` is missing"),
    ],
)
def test_what_is_wrong_with_custom_code(opcode: str, members: dict[str, Any], message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        custom(opcode, **members)
