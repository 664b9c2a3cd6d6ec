"""Rules B1 and B2 on drawn modules: bodies of library kernels are spliced as the bodies of NKI kernels are.

The twin: each `BIRKernel` becomes an `NKIKernel` that calls the body as a kernel function, and the slow implementation
of `inline_nki_kernel` inlines these. What comes out must be the same but for the origin of sets.
"""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir import build, library
from arrowir.build import FunctionBuilder, Tensor
from arrowir.library import Kernel
from arrowir.passes.inlining.library_calls import find_calls, read_call
from arrowir.testing.assertions import assert_valid
from tests.bir_kernels import Json, Product, call, registered
from tests.oracle import run_inline
from tests.single_pass import read, written

SHAPES = ((40, 8), (130, 6), (3, 20))
NAMES = ("C", "D", "C_load0", "C:x0", "E")


class Drawer:
    """Draws a module with call-sites."""

    def __init__(self, data: st.DataObject, *, placed: bool) -> None:
        self.data, self.placed = data, placed
        self.module = build.module(arch=self.of(("gen3", "core_v4")))
        self.shape = self.of(SHAPES)
        self.count = 0

    def of(self, values: Any) -> Any:
        return self.data.draw(st.sampled_from(list(values)))

    def chance(self) -> bool:
        return self.data.draw(st.booleans())

    def draw(self) -> Json:
        for number in range(self.of((1, 1, 2))):
            self._function(f"f{number}")
        return self.module.json()

    def _function(self, name: str) -> None:
        main = self.module.function(name)
        dtype = self.of(("float32", "bfloat16"))
        tensors = [main.input("x", self.shape, dtype), *(main.dram(t, self.shape, dtype) for t in ("t", "C:x0"))]
        tensors.append(main.output("y", self.shape, dtype))
        if self.shape[0] <= 128:
            tensors.append(main.sb("s", self.shape, dtype, addr=65536 if self.placed else None))
        gamma = main.input("gamma", self.shape[-1:], "float32")
        pads = [main.sb(f"pad{n}", (128, 4096), "uint8", addr=2048 * (n + 1)) for n in range(2)] if self.placed else []
        made: list[Any] = []
        for _ in range(self.of(range(1, 7))):
            if self.of(range(5)) == 0 and made:
                main.block(f"B{self.count}")
            if self.of(range(4)) == 0:
                with main.loop(0, 2, name=f"L{self.count}"):
                    self._item(main, tensors, gamma, pads, [])
                self.count += 1
            else:
                made.append(self._item(main, tensors, gamma, pads, made))

    def _item(
        self, main: FunctionBuilder, tensors: list[Tensor], gamma: Tensor, pads: list[Tensor], made: list[Any]
    ) -> Any:
        self.count += 1
        after = [m if self.chance() else (m, self.of(("Ordered", "Anti"))) for m in made if self.chance()]
        name = self.of(NAMES) if self.chance() else f"I{self.count}"
        if self.of(range(4)) == 0:
            return main.add("NoOp", name=name, after=after, engine=self.of(("Pool", "SP")))
        source, target = self.of(tensors[:-1]), self.of(tensors[1:])
        scratch = [self.of(pads)] if pads else []
        more: Json = {"name": name, "after": after, "scratch": scratch, "engine": self.of(("Unassigned", "Pool"))}
        if self.chance():
            attrs = {"act_fn": self.of(("SiLU", "ReLU")), "tile_size": self.of(("3", "64"))}
            return call(main, [source], [target], attrs=attrs, **more)
        attrs = {"tile_size": self.of(("4", "64"))}
        return call(main, [source, gamma], [target], "RMSNorm", attrs=attrs, **more)


def as_nki(document: Json, *, sb_allocation: bool) -> Json:
    """Return the module with NKI kernels in place of library kernels."""
    calls = find_calls(read(document), np.ones(1, bool))
    made = json.loads(json.dumps(document))
    sites = [i for f in made["functions"] for b in f["blocks"] for i in _all(b) if i["opcode"] == "BIRKernel"]
    assert len(sites) == (0 if calls is None else len(calls.sites))
    kernels: list[Json] = []
    for number, site in enumerate(sites):
        assert calls is not None
        kernel = library.create(read_call(calls, number, sb_allocation=sb_allocation))
        kernel.build()
        assert kernel.result().ok, kernel.result()
        assert kernel.body is not None
        (function,) = json.loads(kernel.body.ir.to_json(0))["functions"]
        kernels.append({**function, "name": f"kernel{number}"})
        own = ("name", "engine", "ins", "outs", "dependencies", "sb_buf_shape", "psum_buf_shape")
        kept = {key: site[key] for key in own if key in site}
        site.clear()
        site.update({**kept, "opcode": "NKIKernel", "func": f"kernel{number}"})
    made["nki_functions"] = {"functions": kernels}
    return made


def _all(block: Json) -> list[Json]:
    return [row for i in block["instructions"] for row in (i, *(r for b in i.get("blocks", []) for r in _all(b)))]


def internal(document: Json) -> Json:
    """Let what the twin has made say `Internal`."""
    for function in document["functions"]:
        for item in function["allocations"]:
            if item.get("origin") == "NKI":
                item["origin"] = "Internal"
    return document


def compare(document: Json, *, sb_allocation: bool) -> air.PassResult:
    expected = run_inline(as_nki(document, sb_allocation=sb_allocation))
    ir = read(document)
    result = air.passes.inline_bir_kernel(ir, sb_allocation=sb_allocation)
    assert_valid(result.ir)
    if expected.status == "failed":
        assert result.status.to_list() == ["failed"]
        assert [(m.severity, m.code) for m in result.messages] == [(d.severity, d.code) for d in expected.diagnostics]
        return result
    assert result.ok, result.diagnostics["message"].to_list()
    assert result.ir.to_json(0) == written(internal(expected.doc))
    return result


@settings(max_examples=20, deadline=None)
@given(st.data(), st.booleans())
def test_b2_bodies_are_spliced_as_those_of_nki_kernels(data: st.DataObject, placed: bool) -> None:
    document = Drawer(data, placed=placed).draw()
    compare(document, sb_allocation=placed)


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_b2_modules_compute_what_they_did(data: st.DataObject) -> None:
    ir = read(Drawer(data, placed=False).draw())
    result = air.passes.inline_bir_kernel(ir)
    found = air.equivalent(ir, result.ir, trials=1, tolerance=0.05)  # of several kernels one behind the other
    assert "different" not in found.statuses.values(), found


@settings(max_examples=5, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=4), st.data())
def test_b2_a_batch_is_its_modules(placed: list[bool], data: st.DataObject) -> None:
    documents = [Drawer(data, placed=one).draw() for one in placed]
    together = air.passes.inline_bir_kernel(air.concat([read(d, f"m{n}") for n, d in enumerate(documents)]))
    for number, document in enumerate(documents):
        alone = air.passes.inline_bir_kernel(read(document, f"m{number}"))
        assert together.ir.to_json(number) == alone.ir.to_json(0)
        assert together.status[number] == alone.status[0]


def test_b2_a_body_with_sums_in_psum_and_with_many_ends() -> None:
    module = build.module()
    main = module.function()
    x, w, out = main.input("x", (300, 64)), main.input("w", (300, 32)), main.output("out", (32, 64))
    big, y = main.sb("big", (128, 64), addr=32768), main.sb("y", (128, 64), addr=40960)
    pad, bank = main.sb("pad", (128, 8192), "uint8", addr=64), main.psum("bank", (128, 512), addr=0, bank=2)
    first = main.add("NoOp", name="first")
    product = call(main, [x, w], [out], "Product", scratch=[pad, bank], name="P", after=[first])
    many = call(main, [big], [y], attrs={"tile_size": "4"}, name="many", after=[first, product])
    main.add("NoOp", name="last", after=[many, (product, "Ordered")])
    with registered(Product):
        result = compare(module.json(), sb_allocation=True)
    names = result.ir.instructions["name"].to_list()
    assert {"many_start", "many_act15", "many_done", "last"} <= set(names)


class Branching(Kernel):
    """A copy of several blocks, with a way out before the end and one back to the entry."""

    name = "Branching"

    def build(self) -> None:
        module = build.module()
        main = module.function("body")
        a, b = main.input("a", (128, 8)), main.output("b", (128, 8))
        left, tile = main.register("left"), main.sb("tile", (128, 8))
        main.block("entry")
        load = main.add("DMACopy", [a], [tile], name="load", mode="Copy")
        main.compare(left, "IS_EQIMM", 0, "done", "again", name="test", after=[load])
        main.block("again")
        main.add("RegisterMove", [0], [left], name="clear", engine="SP")
        main.branch("entry" if self.call.members.get("norm_type") else "done", name="jump")
        main.block("done")
        main.add("DMACopy", [tile], [b], name="save", mode="Copy", after=[load])
        main.add("Return", name="leave")
        self.body = library.Body(module.ir())


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_b2_bodies_of_several_blocks(back: bool, nested: bool) -> None:
    module = build.module()
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    first = main.add("NoOp", name="first")
    more: Json = {"norm_type": 1} if back else {}
    if nested:
        with main.loop(0, 2, name="loop"):
            call(main, [x], [y], "Branching", name="inside", engine="Pool", **more)
    one = call(main, [x], [y], "Branching", name="one", after=[first], engine="DVE", **more)
    main.add("NoOp", name="between", after=[one])
    call(main, [y], [y], "Branching", name="two", after=[one], **more)
    with registered(Branching):
        result = compare(module.json(), sb_allocation=False)
    assert result.ir.count("blocks") == 1 + nested + (2 + nested) * (4 if back else 3)
