"""Calls: kernels run on the caller's storage as if they were inlined; functions run on their own."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.build import FunctionBuilder, ModuleBuilder, Tensor
from arrowir.diagnostics import SimulationError

f32 = np.float32
SHAPE = (2, 4)
rng = np.random.default_rng(4)


def scalar(body: FunctionBuilder, source: Any, target: Any, op: str, by: float) -> None:
    keys = {"op0": op, "const0": by, "reverse0": False, "op1": "bypass", "const1": 0, "reverse1": False}
    body.add("TensorScalar", [source], [target], **keys)


def affine_kernel(module: ModuleBuilder, name: str = "kernel", by: float = 2) -> tuple[FunctionBuilder, Tensor, Tensor]:
    """Add a kernel: ``c = by * a + 1``, by way of a tile of its own."""
    kernel = module.kernel(name)
    a, c, tile = kernel.input("a", SHAPE), kernel.output("c", SHAPE), kernel.sb("tile", SHAPE)
    kernel.add("Load", [a], [tile])
    scalar(kernel, tile, tile, "mult", by)
    scalar(kernel, tile, tile, "add", 1)
    kernel.add("Save", [tile], [c])
    return kernel, a, c


def both(module: ModuleBuilder, inputs: dict[str, np.ndarray], **options: Any) -> dict[str, np.ndarray]:
    """Run a module as it is and after inlining; the outputs have to be equal, byte for byte."""
    ir = module.ir()
    found = air.simulate(ir, inputs, **options)
    result = air.passes.inline_nki_kernel(ir, strict=True)
    assert result.status.to_list() == ["changed"]
    after = air.simulate(result.ir, inputs, **options)
    assert found.keys() == after.keys()
    for name, array in found.items():
        assert array.tobytes() == after[name].tobytes(), name
    return found


def given() -> np.ndarray:
    return rng.standard_normal(SHAPE).astype(f32)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_kernel_works_on_what_its_parameters_are_bound_to(by_name: bool) -> None:
    module = build.module()
    kernel, a, c = affine_kernel(module)
    main = module.function()
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    main.call(kernel, {a: x} if by_name else [x], {c: y} if by_name else [y])
    assert module.ir().instructions["opcode"].to_list()[0] == "NKIKernel"
    value = given()
    assert np.array_equal(both(module, {"x": value})["y"], value * f32(2) + f32(1))


def test_names_of_the_caller_are_not_captured() -> None:
    module = build.module()
    kernel, _, _ = affine_kernel(module)
    main = module.function()
    c, tile = main.input("c", SHAPE), main.sb("tile", SHAPE)
    main.output("a", SHAPE)
    main.add("Load", [c], [tile])
    main.call(kernel, {"a": "c"}, {"c": "a"})
    scalar(main, tile, tile, "mult", 0)
    value = given()
    assert np.array_equal(both(module, {"c": value})["a"], value * f32(2) + f32(1))


def test_formal_and_actual_may_be_shaped_differently() -> None:
    module = build.module()
    kernel, a, c = affine_kernel(module)
    main = module.function()
    x, y = main.input("x", (4, 2)), main.output("y", (8, 1))
    main.call(kernel, {a: x}, {c: y})
    value = rng.standard_normal((4, 2)).astype(f32)
    assert np.array_equal(both(module, {"x": value})["y"], (value * f32(2) + f32(1)).reshape(8, 1))


def test_a_parameter_in_sb_is_accessed_by_the_actuals_partitions() -> None:
    module = build.module()
    kernel = module.kernel("kernel")
    a, c = kernel.sb("a", (2, 4), kind="ExternalInput"), kernel.output("c", SHAPE)
    kernel.add("Save", [a], [c])
    main = module.function()
    x, y, tile = main.input("x", (4, 2)), main.output("y", SHAPE), main.sb("tile", (4, 2))
    main.add("Load", [x], [tile])
    main.call(kernel, {a: tile}, {c: y})
    value = rng.standard_normal((4, 2)).astype(f32)
    for ir in (module.ir(), air.passes.inline_nki_kernel(module.ir()).ir):
        with pytest.raises(SimulationError, match="runs over the end of a partition"):
            air.simulate(ir, {"x": value})
        linear = air.simulate(ir, {"x": value}, readings={"partition_crossing": "linear"})
        assert np.array_equal(linear["y"], value.reshape(SHAPE))


def counting_kernel(module: ModuleBuilder) -> FunctionBuilder:
    """Add a kernel that counts its own executions in its own memory: it clears that when `first` is not 0."""
    kernel = module.kernel("count")
    first, c = kernel.input("first", (1, 1), "int32"), kernel.output("c", (1, 1))
    own, r = kernel.sb("own", (1, 1)), kernel.register("r")
    kernel.add("TensorLoad", [first], [r])
    kernel.compare(r, "IS_EQIMM", 0, "go", "clear")
    kernel.block("clear")
    kernel.add("Memset", [], [own], mode="Const", constant=0)
    kernel.block("go")
    scalar(kernel, own, own, "add", 1)
    kernel.add("Save", [own], [c])
    return kernel


def test_a_kernels_memory_exists_once_for_each_call_site_and_stays() -> None:
    module = build.module()
    kernel = counting_kernel(module)
    main = module.function()
    one, two = main.output("one", (1, 1)), main.output("two", (1, 1))
    first = main.tensor("flag", "DRAM", (1, 1), "int32")
    main.add("Memset", [], [first], mode="Const", constant=1)
    with main.loop(0, 3):
        main.call(kernel, {"first": "flag"}, {"c": "one"})
        main.call(kernel, {"first": "flag"}, {"c": "two"})
        main.call(kernel, {"first": "flag"}, {"c": "two"}, name="late")
        main.add("Memset", [], [first], mode="Const", constant=0)
    found = air.simulate(module.ir())
    assert (found["one"].tolist(), found["two"].tolist()) == ([[3]], [[3]])
    assert one.name != two.name


def test_what_a_kernel_never_wrote_is_unwritten_for_each_call_site() -> None:
    module = build.module()
    kernel = counting_kernel(module)
    main = module.function()
    main.output("one", (1, 1))
    main.tensor("flag", "DRAM", (1, 1), "int32")
    main.tensor("zero", "DRAM", (1, 1), "int32")
    main.call(kernel, {"first": "flag"}, {"c": "one"})
    main.call(kernel, {"first": "zero"}, {"c": "one"}, name="second")
    values = {"flag": np.ones((1, 1), np.int32), "zero": np.zeros((1, 1), np.int32)}
    with pytest.raises(SimulationError, match="of `own` that were never written"):
        air.simulate(module.ir(), values)


def nested(module: ModuleBuilder) -> FunctionBuilder:
    """Add a kernel that calls another one twice."""
    inner, a, c = affine_kernel(module, "inner", 3)
    outer = module.kernel("outer")
    p, q, middle = outer.input("p", SHAPE), outer.output("q", SHAPE), outer.tensor("middle", "DRAM", SHAPE)
    outer.call(inner, {a: p}, {c: middle})
    outer.call(inner, {a: middle}, {c: q}, name="again")
    return outer


def test_kernels_call_kernels() -> None:
    module = build.module()
    outer = nested(module)
    main = module.function()
    x, y, z = main.input("x", SHAPE), main.output("y", SHAPE), main.output("z", SHAPE)
    main.call(outer, {"p": x}, {"q": y})
    main.call(outer, {"p": y}, {"q": z}, name="second")
    value = given()

    def inner(v: np.ndarray) -> np.ndarray:
        return v * f32(3) + f32(1)

    found = air.simulate(module.ir(), {"x": value})
    assert np.array_equal(found["y"], inner(inner(value)))
    assert np.array_equal(found["z"], inner(inner(inner(inner(value)))))


def test_a_kernel_with_loops_in_a_loop() -> None:
    module = build.module()
    kernel = module.kernel("kernel")
    a, c = kernel.input("a", (4, 8)), kernel.output("c", (4, 8))
    tile = kernel.sb("tile", (4, 2))
    with kernel.loop(0, 4) as i:
        kernel.add("Load", [a.at(0, 2 * i, pattern=[[8, 4], [1, 2]])], [tile])
        scalar(kernel, tile, tile, "mult", -2)
        kernel.add("Save", [tile], [c.at(0, 6 - 2 * i, pattern=[[8, 4], [1, 2]])])
    main = module.function()
    x, y = main.input("x", (4, 8)), main.output("y", (4, 8))
    main.call(kernel, {a: x}, {c: y})
    value = rng.standard_normal((4, 8)).astype(f32)
    wanted = -2 * value.reshape(4, 4, 2)[:, ::-1].reshape(4, 8)
    assert np.array_equal(both(module, {"x": value})["y"], wanted)


def test_registers_are_bound_too() -> None:
    module = build.module()
    kernel = module.kernel("kernel")
    c, n, own = kernel.output("c", (1, 8)), kernel.register("n"), kernel.register("own")
    kernel.add("RegisterAlu", [n, 1], [own], op="add")
    kernel.add("RegisterAlu", [n, 2], [n], op="add")
    one = c.at(0, own.value, pattern=[[8, 1], [1, 1]])
    kernel.add("Memset", [], [one], mode="Const", constant=1065353216)
    main = module.function()
    y, m = main.output("y", (1, 8)), main.register("m")
    main.add("Memset", [], [y], mode="Const", constant=0)
    main.add("RegisterMove", [0], [m])
    main.call(kernel, {n: m}, {c: y})
    main.call(kernel, {n: m}, {c: y}, name="second")
    assert air.simulate(module.ir())["y"].tolist() == [[0, 1, 0, 1, 0, 0, 0, 0]]


def test_return_leaves_the_kernel_and_exit_the_program() -> None:
    for opcode, wanted in (("Return", [[1, 1]]), ("Exit", [[1, 0]])):
        module = build.module()
        kernel = module.kernel("kernel")
        c = kernel.output("c", (1, 2))
        with kernel.loop(0, 3):
            scalar(kernel, c[:, :1], c[:, :1], "add", 1)
            kernel.add(opcode)
        main = module.function()
        y = main.output("y", (1, 2))
        main.add("Memset", [], [y], mode="Const", constant=0)
        main.call(kernel, {}, {c: y})
        scalar(main, y[:, 1:], y[:, 1:], "add", 1)
        assert air.simulate(module.ir())["y"].tolist() == wanted


def test_scratchpads_bind_to_nothing() -> None:
    module = build.module()
    kernel, _, _ = affine_kernel(module)
    main = module.function()
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    sb, psum = main.sb("pad", (128, 16), addr=0), main.tensor("bank", "PSUM", (128, 4), addr=0)
    main.call(kernel, [x], [y], scratch=[sb, psum])
    value = given()
    assert np.array_equal(both(module, {"x": value})["y"], value * f32(2) + f32(1))


# -- functions that are called ----


def test_a_called_function_has_its_storage_once() -> None:
    module = build.module()
    main = module.function("main")
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    main.add("Call", target="helper", arguments={"a": "x", "c": "y"})
    main.add("Call", target="helper", arguments={"a": "y", "c": "y"})
    helper = module.function("helper")
    a, c, total = helper.input("a", SHAPE), helper.output("c", SHAPE), helper.tensor("total", "DRAM", SHAPE)
    helper.add("TensorTensor", [a, total], [total], op="add")
    helper.add("Save", [total], [c])
    value = given()
    ir = module.ir()
    with pytest.raises(SimulationError, match="`total` that were never written"):
        air.simulate(ir, {"x": value})
    # A function that clears its own memory the first time.
    again = build.module()
    main = again.function("main")
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    main.add("Call", target="clear", arguments={})
    main.add("Call", target="helper", arguments={"a": x.name, "c": y.name})
    main.add("Call", target="helper", arguments={"a": y.name, "c": y.name})
    helper = again.function("helper")
    helper.allocations.extend(module.json()["functions"][1]["allocations"])
    total = Tensor("total", "total_set", "DRAM", SHAPE, "float32")
    helper.add("TensorTensor", [a, a], [total], op="add")
    helper.add("Save", [total], [c])
    again.function("clear")
    assert np.array_equal(air.simulate(again.ir(), {"x": value})["y"], 4 * value)


# -- what is wrong ----


def failing(change: Any, match: str) -> None:
    module = build.module()
    kernel, _, _ = affine_kernel(module)
    main = module.function()
    main.input("x", SHAPE)
    main.output("y", SHAPE)
    change(module, kernel, main)
    with pytest.raises(SimulationError, match=match):
        air.simulate(module.ir(), {"x": given()})


@pytest.mark.parametrize(
    ("args", "outs", "reason"),
    [
        ({}, {"c": "y"}, "parameter `a_set` is bound to nothing"),
        ({"a": "x"}, {}, "parameter `c_set` is bound to nothing"),
        ({"a": "x", "tile": "x"}, {"c": "y"}, "names `tile`, which is no parameter"),
        ({"a": "nothing"}, {"c": "y"}, "`a` is bound to what is no location"),
    ],
)
def test_faulty_bindings(args: dict[str, str], outs: dict[str, str], reason: str) -> None:
    failing(lambda module, kernel, main: main.call(kernel, args, outs), reason)


def test_sizes_must_agree() -> None:
    def change(module: ModuleBuilder, kernel: FunctionBuilder, main: FunctionBuilder) -> None:
        main.output("z", (2, 5))
        main.call(kernel, {"a": "x"}, {"c": "z"})

    failing(change, "`c` has 2x16 bytes and is bound to `z` of 2x20")


def test_a_kernel_that_is_not_there() -> None:
    failing(lambda module, kernel, main: main.call("other", {}, {}), "it calls `other`, which is not there")


def test_kernels_that_call_each_other() -> None:
    module = build.module()
    one, two = module.kernel("one"), module.kernel("two")
    one.call(two)
    two.call(one)
    module.function().call(one)
    with pytest.raises(SimulationError, match="the function calls itself: sg0000 -> one -> two -> one"):
        air.simulate(module.ir())


def test_the_callers_storage_is_reached_by_its_owner() -> None:
    module = build.module()
    kernel = module.kernel("kernel")
    c = kernel.output("c", SHAPE)
    kernel.add(
        "Save", [{**Tensor("x", "x_set", "DRAM", SHAPE, "float32").access(), "memref_owner_func": "sg0000"}], [c]
    )
    main = module.function()
    x, y = main.input("x", SHAPE), main.output("y", SHAPE)
    main.call(kernel, {}, {c: y})
    value = given()
    assert np.array_equal(both(module, {x.name: value})["y"], value)


# -- kernels in the shape of real ones ----


def loops_inputs(dtype: Any) -> dict[str, np.ndarray]:
    return {
        name: rng.standard_normal(shape).astype(dtype) for name, shape in (("lhs_t", (256, 256)), ("rhs", (256, 1024)))
    }


def test_a_tiled_product_before_and_after_unrolling() -> None:
    ir = air.read(str(Path(__file__).parents[3] / "data" / "generated" / "loops.json"))
    inputs = loops_inputs(ml_dtypes.bfloat16)
    before = air.simulate(ir, inputs, function="matmul_tiled")
    after = air.simulate(air.passes.unroll(ir).ir, inputs, function="matmul_tiled")
    wanted = inputs["lhs_t"].astype(np.float64).T @ inputs["rhs"].astype(np.float64)
    assert np.allclose(before["out"], wanted, rtol=1e-4, atol=1e-3)
    assert before["out"].tobytes() == after["out"].tobytes()
    assert after.steps < before.steps


def test_rows_by_a_loop_that_counts_down() -> None:
    ir = air.read(str(Path(__file__).parents[3] / "data" / "generated" / "loops.json"))
    x, gamma = rng.standard_normal((1024, 512)).astype(f32), rng.standard_normal((128, 512)).astype(f32)
    found = air.simulate(ir, {"x": x, "gamma": gamma}, function="rows_norm")["out"]
    assert np.array_equal(found, (x.reshape(8, 128, 512) * gamma).reshape(1024, 512))
