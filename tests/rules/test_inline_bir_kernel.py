"""Rules B1, B2, B4 and O6: which call-sites get a body, what stands in their place, and where its memory is."""

import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build, library
from arrowir.library import Kernel
from arrowir.library.rmsnorm import NORM_TYPES
from arrowir.testing.assertions import assert_valid
from tests.bir_kernels import Json, Product, Steps, call, changed, names, one_call, random, registered, steps
from tests.single_pass import read, refused, run_pass

inline = partial(run_pass, "inline_bir_kernel")
fault = partial(refused, "inline_bir_kernel")

ACT = ["load0", "act0", "save0"]


# B1: which call-sites


def test_b1_every_call_site_of_every_function() -> None:
    module = build.module()
    for name in ("main", "other"):
        function = module.function(name)
        x, y = function.input("x", (128, 8)), function.output("y", (128, 8))
        call(function, [x], [y], name="A")
        function.add("NoOp", name="between")
        call(function, [y], [y], name="B")
    kernel = module.kernel("k")
    a, b = kernel.input("a", (128, 8)), kernel.output("b", (128, 8))
    call(kernel, [a], [b], name="K")
    outcome = inline(module.json())
    expected = [f"A_{n}" for n in ACT] + ["between"] + [f"B_{n}" for n in ACT]
    assert names(outcome.doc) == names(outcome.doc, 1) == expected
    assert names(outcome.doc, 0, "nki_functions") == [f"K_{n}" for n in ACT]
    assert outcome.codes == []


def test_b1_call_sites_in_loops_are_taken_and_loops_stay() -> None:
    module = build.module()
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    with main.loop(0, 3, name="outer"), main.loop(0, 2, name="inner"):
        call(main, [x], [y], name="C")
    outcome = inline(module.json())
    (outer,) = outcome.doc["functions"][0]["blocks"][0]["instructions"]
    (inner,) = outer["blocks"][0]["instructions"]
    assert (outer["name"], inner["name"]) == ("outer", "inner")
    assert [row["name"] for row in inner["blocks"][0]["instructions"]] == [f"C_{n}" for n in ACT]
    assert air.equivalent(outcome.before, outcome.ir, tolerance=1e-5).ok


def test_b1_nothing_else_is_done() -> None:
    module = build.module()
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    with main.loop(0, 4, name="loop") as i:
        main.add("Memset", [], [y.at(0, 2 * i, pattern=[[8, 128], [1, 2]])], mode="Const", constant=0)
    document = module.json()
    assert inline(document).status == "unchanged"
    call(main, [x], [y], name="C")
    outcome = inline(module.json())
    before, after = (d["functions"][0] for d in (module.json(), outcome.doc))
    assert after["blocks"][0]["instructions"][0] == before["blocks"][0]["instructions"][0]
    assert after["allocations"][:2] == before["allocations"]


def test_b1_functions_that_call_a_kernel_with_a_call_site_keep_their_calls() -> None:
    module = build.module()
    kernel = module.kernel("k")
    a, b = kernel.input("a", (128, 8)), kernel.output("b", (128, 8))
    call(kernel, [a], [b], name="inner")
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    main.call(kernel, {a: x}, {b: y}, name="outer")
    ir = module.ir()
    result = air.run(ir)
    assert result.ok
    assert_valid(result.ir)
    assert result.ir.instructions["name"].to_list() == [f"outer_inner_{n}" for n in ACT]
    assert air.equivalent(ir, result.ir, tolerance=1e-5).ok


def test_b1_n16_bodies_in_kernels_keep_where_they_come_from_when_these_are_inlined() -> None:
    module = build.module()
    for name in ("k", "l"):
        kernel = module.kernel(name)
        a, b = kernel.input("a", (128, 8)), kernel.output("b", (128, 8))
        call(kernel, [a], [b], name="one")
        call(kernel, [b], [b], name="two")
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    call(main, [x], [y], name="own")
    for number, name in enumerate(("k", "l", "k")):
        main.call(name, {"a": x}, {"b": y}, name=f"call{number}")
    result = air.run(module.ir(), ["inline_bir_kernel", "inline_nki_kernel"])
    assert result.ok
    assert_valid(result.ir)
    chains = result.ir.call_chains.rows(named=True)
    for row in result.ir.instructions.filter(result.ir.instructions["opcode"] == "Activation").rows(named=True):
        chain = chains[row["call_chain_id"]]
        parent = chains[chain["parent_id"]]["name"] if chain["parent_id"] is not None else ""
        assert row["name"] == "_".join([*([parent] if parent else []), chain["name"], "act0"])
        assert (row["kernel"], row["depth"], row["original_name"]) == ("Activation", 2 if parent else 1, "act0")


def test_b1_n16_kernels_with_bodies_and_with_kernels_of_their_own() -> None:
    module = build.module()
    inner = module.kernel("inner")
    a, b = inner.input("a", (128, 8)), inner.output("b", (128, 8))
    call(inner, [a], [b], name="deep")
    for name in ("k", "l"):
        kernel = module.kernel(name)
        a, b = kernel.input("a", (128, 8)), kernel.output("b", (128, 8))
        call(kernel, [a], [b], name="lib")
        kernel.call(inner, {"a": b}, {"b": b}, name="mid")
        call(kernel, [b], [b], name="late")
        kernel.call(inner, {"a": b}, {"b": b}, name="end")
    main = module.function()
    x, y = main.input("x", (128, 8)), main.output("y", (128, 8))
    for number, name in enumerate(("l", "k", "l")):
        main.call(name, {"a": x}, {"b": y}, name=f"call{number}")
    ir = module.ir()
    result = air.run(air.concat([ir, ir]), ["inline_bir_kernel", "inline_nki_kernel"])
    assert result.ok
    assert_valid(result.ir)
    chains = result.ir.call_chains.rows(named=True)
    seen: set[int] = set()
    for row in result.ir.instructions.filter(result.ir.instructions["opcode"] == "Activation").rows(named=True):
        path: list[str] = []
        number = row["call_chain_id"]
        while number is not None:
            path.insert(0, chains[number]["name"])
            number = chains[number]["parent_id"]
        assert row["name"] == "_".join([*path, "act0"])
        assert (row["kernel"], row["depth"]) == ("Activation", len(path))
        seen.add(len(path))
    assert seen == {2, 3}


# B2: bodies in place of call-sites


def test_b2_a_batch_is_one_module_after_the_other() -> None:
    documents = [
        one_call(),
        one_call(attrs={"act_fn": "GELU"}),
        one_call(kernel="none"),
        several_kinds(),
        one_call((300, 40), ("bfloat16", "float16")),
    ]
    together = air.passes.inline_bir_kernel(air.concat([read(d, f"m{n}") for n, d in enumerate(documents)]))
    for number, document in enumerate(documents):
        alone = air.passes.inline_bir_kernel(read(document, f"m{number}"))
        assert together.ir.to_json(number) == alone.ir.to_json(0)
        assert together.status[number] == alone.status[0]


def several_kinds() -> Json:
    module = build.module()
    main = module.function()
    x, y, gamma = main.input("x", (200, 32)), main.output("y", (200, 32)), main.input("gamma", (32,))
    t = main.dram("t", (200, 32))
    first = call(main, [x], [t], name="first")
    norm = call(main, [t, gamma], [t], "RMSNorm", name="norm", after=[first])
    call(main, [t], [y], attrs={"act_fn": "ReLU"}, name="last", after=[norm, (first, "Ordered")])
    main.add("NoOp", name="end", after=["last", "norm"])
    return module.json()


def test_b2_names_origin_opt_in_passes_and_provenance() -> None:
    document = several_kinds()
    for row in document["functions"][0]["blocks"][0]["instructions"]:
        row["optin_passes"] = 15
    outcome = inline(document)
    sets = {s["name"]: s for s in outcome.doc["functions"][0]["allocations"]}
    made = [name for name in sets if ":" in name]
    assert {"first:x0_set", "norm:gamma_set", "last:y1_set"} <= set(made)
    assert {sets[name]["origin"] for name in made} == {"Internal"}
    assert all("origin" not in sets[name] for name in sets.keys() - set(made))
    assert sets["first:x0_set"]["memorylocations"][0]["name"] == "first:x0"
    frame = outcome.ir.instructions
    clones = frame.filter(frame["depth"] == 1)
    assert set(clones["kernel"]) == {"Activation", "RMSNorm"}
    assert clones["kernel_source"].null_count() == len(clones)
    assert set(clones["optin_mask"]) == {3}
    assert clones["name"].to_list() == [
        f"{site}_{name}"
        for site, name in zip(
            outcome.ir.call_chains["name"].gather(clones["call_chain_id"]), clones["original_name"], strict=True
        )
    ]


def test_b2_edges_around_a_call_site_go_to_its_ends() -> None:
    outcome = inline(several_kinds())
    rows = {r["name"]: r for b in outcome.doc["functions"][0]["blocks"] for r in b["instructions"]}
    assert ["first_save1", "Flow"] in [
        list(e) if isinstance(e, list) else [e, "Flow"] for e in rows["norm_load1"]["dependencies"]
    ]
    saves = [name for name in rows if name.startswith("last_save")]
    assert {e if isinstance(e, str) else e[0] for e in rows["end"]["dependencies"]} >= set(saves[-1:])


def test_b2_o7_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    def lines(document: Json, **options: Any) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.INFO, "arrowir.passes.inline_bir_kernel"):
            air.passes.inline_bir_kernel(read(document), **options)
        assert {r.name for r in caplog.records} == {"arrowir.passes.inline_bir_kernel"}
        return [r.getMessage() for r in caplog.records]

    found = lines(several_kinds())
    assert found[:4] == [
        "BIR SB coloring allocator is off",
        "Found InstBIRKernel: [Activation]first",
        "Found InstBIRKernel: [RMSNorm]norm",
        "Found InstBIRKernel: [Activation]last",
    ]
    times = [line.rpartition(": ") for line in found[4:]]
    assert [t[0] for t in times] == ["Scan BKs time (s)", "Lower BKs time (s)"]
    assert all(float(t[2]) >= 0 and len(t[2].partition(".")[2]) == 6 for t in times)
    assert lines(one_call(), sb_allocation=True)[0] == "BIR SB coloring allocator is on"
    assert len(lines(build.module().json())) == 3
    with caplog.at_level(logging.WARNING, "arrowir.passes.inline_bir_kernel"):
        caplog.clear()
        air.passes.inline_bir_kernel(read(several_kinds()))
    assert caplog.records == []


def test_b2_a_call_site_with_sync_info_or_predicates_is_refused() -> None:
    for member in ({"sync_info": {"on_wait": []}}, {"predicates": [{"a": 1}]}):
        assert fault(changed(one_call(), **member)).code == "call_site_not_plain"
    assert inline(changed(one_call(), sync_info={}, predicates=[])).status == "changed"


# O6: size


def test_o6_the_size_is_known_before_a_body_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    large = one_call((1 << 20, 64), attrs={"tile_size": "1"})
    monkeypatch.setattr("arrowir.library.activation.Activation.emit", lambda *_: pytest.fail("made"))
    found = fault(large, max_instructions=100_000)
    assert found.code == "too_many_instructions"
    assert found.compiler_code == "ELUR015"
    assert f"{(1 << 13) * 64 * 3:,} instructions, more than the 100,000 allowed" in found.message


@pytest.mark.parametrize("kernel", ["Activation", "RMSNorm"])
@pytest.mark.parametrize(
    ("shape", "tile", "text"),
    [
        ((128, 2**31), 2048, "the body would have 1,048,576 tiles, more than the 250,000 instructions"),
        ((128, 2**40), 2048, "the body would have 536,870,912 tiles"),
        ((128, 2**40), 1, "the body would have 1,099,511,627,776 tiles"),
        ((2**50, 2), 1, "the body would have 8,796,093,022,208 tiles"),
        ((128 * 2**16, 2), 1, "the body would have "),
    ],
)
def test_o6_a_body_that_would_take_minutes_is_refused_at_once(
    kernel: str, shape: tuple[int, int], tile: int, text: str
) -> None:
    module = build.module()
    main = module.function()
    x, y = main.input("x", shape, "float32"), main.output("y", shape, "float32")
    members: Json = {"norm_type": NORM_TYPES["RMS_NORM_SKIP_GAMMA"]} if kernel == "RMSNorm" else {}
    call(main, [x], [y], kernel, attrs={"tile_size": str(tile)}, name="C", **members)
    found = fault(module.json())
    assert (found.code, found.compiler_code, found.instruction) == ("too_many_instructions", "ELUR015", "C")
    assert text in found.message


def test_o6_a_kernel_that_does_not_know_its_size_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(Kernel):
        name = "Endless"

        def emit(self, body: library.BodyBuilder) -> None:
            while True:
                body.add("NoOp", what="idle")

    monkeypatch.setattr("arrowir.passes.inline_bir_kernel.MOST_IN_A_BODY", 100)
    with registered(Endless):
        found = fault(one_call(kernel="Endless"))
    assert found.code == "too_many_instructions"
    assert "101 instructions and more, more than the 100 instructions that it may have" in found.message


def test_o6_all_bodies_of_a_module_count() -> None:
    document = several_kinds()
    count = len(names(inline(document).doc))
    assert inline(document, max_instructions=count).status == "changed"
    found = fault(document, max_instructions=count - 1)
    assert f"{count:,} instructions" in found.message
    small = one_call()
    result = air.passes.inline_bir_kernel(
        air.concat([read(document, "a"), read(small, "b")]), max_instructions=count - 1
    )
    assert result.status.to_list() == ["failed", "changed"]


# B4: the two flags


@pytest.mark.parametrize("post_coloring", [True, False])
def test_b4_the_position_is_given_to_the_factory(post_coloring: bool) -> None:
    with steps():
        inline(one_call(kernel="Steps"), post_coloring=post_coloring)
        assert [c.post_coloring for c in Steps.calls] == [post_coloring]
        assert [c.sb_allocation for c in Steps.calls] == [False]


def padded(
    pad: int = 8192, *, addr: int | None = 4096, lanes: int = 128, base: int = 0, rows: int = 200, **more: Any
) -> Json:
    """Return a module with call-sites of two scratchpads, the second 1,000 bytes higher."""
    module = build.module()
    main = module.function("main")
    x, y = main.input("x", (rows, 64)), main.output("y", (rows, 64))
    for number in range(2):
        place = None if addr is None else addr + 1000 * number
        scratch = main.sb(f"pad{number}", (lanes, pad), "uint8", addr=place, base=base)
        call(main, [x], [y], **more, scratch=[scratch], name=f"C{number}")
    return module.json()


def test_b4_scratch_is_placed_in_the_scratchpad() -> None:
    outcome = inline(padded(), sb_allocation=True)
    made = {
        location["name"]: location
        for s in outcome.doc["functions"][0]["allocations"]
        for location in s["memorylocations"]
        if ":" in location["name"]
    }
    assert {name: at["addr"] for name, at in made.items() if name.startswith("C0")} == {
        "C0:x0": 4096, "C0:x1": 4352, "C0:y0": 4608, "C0:y1": 4864
    }  # fmt: skip
    assert made["C1:x1"]["addr"] == 5352
    assert all(at["allocated"] for at in made.values())
    assert air.equivalent(outcome.before, outcome.ir, tolerance=1e-5).ok


def test_b4_or_left_to_an_allocator() -> None:
    for document in (padded(), one_call((200, 64))):
        outcome = inline(document)
        made = outcome.ir.locations.filter(outcome.ir.locations["name"].str.contains(":"))
        assert len(made) in (4, 8)
        assert set(made["allocated"]) == {False}
        assert set(made["addr"]) == {0}


def test_b4_scratchpads_of_other_addresses_share_a_body() -> None:
    with steps() as seen:
        assert inline(padded(100_000, kernel="Steps", rows=128), sb_allocation=True).status == "changed"
        assert seen.count("build") == 1


@pytest.mark.parametrize(
    ("document", "code", "text"),
    [
        (padded(1023), "scratchpad_too_small", "of 1024 bytes of SBUF, and the scratchpad has 128 of 1023"),
        (padded(lanes=100), "scratchpad_too_small", "has 100 of 8192"),
        (one_call(), "scratchpad_too_small", "and the call-site has no SB scratchpad"),
        (padded(addr=None), "scratchpad_unallocated", "has no address yet"),
        (padded(base=32), "scratchpad_base", "scratchpad `pad0` begins at partition 32, not 0"),
        (padded(addr=229_376 - 1000 - 1023), "sb_overflow", "above the 229376 bytes of a partition"),
        (
            changed(one_call(), sb_buf_shape=[128, 8], psum_buf_shape=[4, 128, 8]),
            "scratchpad_count",
            "expect 1 SB buffers and 4 PSUM buffers, but only got 1 outputs",
        ),
        (changed(one_call(), sb_buf_shape=[128, 8]), "scratchpad_count", "the SB scratchpad is of the type `DRAM`"),
    ],
)  # fmt: skip
def test_b4_scratchpads_that_do_not_do(document: Json, code: str, text: str) -> None:
    found = fault(document, sb_allocation=True)
    assert found.code == code
    assert text in found.message


def test_b4_kernels_that_need_no_scratch_need_no_scratchpad() -> None:
    module = build.module()
    main = module.function()
    x, y = (main.tensor(n, "SB", (128, 64), kind=k) for n, k in (("x", "ExternalInput"), ("y", "ExternalOutput")))
    call(main, [x], [y], name="C")
    outcome = inline(module.json(), sb_allocation=True)
    assert names(outcome.doc) == ["C_act0"]
    assert not outcome.ir.locations["name"].str.contains(":").any()


def test_b4_an_unknown_arch_cannot_be_checked() -> None:
    document = one_call()
    document["arch"] = "gen9"
    assert fault(document).code == "unknown_arch"


def product(banks: int, **more: Any) -> Json:
    module = build.module()
    main = module.function("main")
    x, w, out = main.input("x", (300, 64)), main.input("w", (300, 32)), main.output("out", (32, 64))
    pads = [main.psum(f"bank{n}", (128, 512), addr=0, bank=3 + n, **more) for n in range(banks)]
    pad = main.sb("pad", (128, 4096), "uint8", addr=256)
    call(main, [x, w], [out], "Product", scratch=[pad, *pads], name="C")
    return module.json()


def test_b4_b5_a_kernel_with_sums_in_psum() -> None:
    with registered(Product):
        outcome = inline(product(1), sb_allocation=True)
        sums = outcome.ir.locations.filter(outcome.ir.locations["name"] == "C:sums").row(0, named=True)
        assert (sums["type"], sums["bank"], sums["addr"], sums["allocated"]) == ("PSUM", 3, 0, True)
        found = air.equivalent(outcome.before, outcome.ir, tolerance=Product.tolerance["float32"])
        assert found.ok, found
        loose = inline(product(0))
        assert air.equivalent(loose.before, loose.ir, tolerance=Product.tolerance["float32"]).ok
        inputs = {"x": random((300, 64), "float32", 1), "w": random((300, 32), "float32", 2)}
        result = air.simulate(loose.ir, inputs)["out"]
        assert np.allclose(result, inputs["w"].T @ inputs["x"], atol=1e-3)
        assert fault(product(0), sb_allocation=True).code == "scratchpad_too_small"
        assert "more than 0 banks" in fault(product(0), sb_allocation=True).message
        assert fault(product(1, allocated=False), sb_allocation=True).code == "scratchpad_unallocated"


def test_b4_the_flags_are_options_of_the_command(tmp_path: Path) -> None:
    from arrowir.cli import main

    source = tmp_path / "m.json"
    source.write_text(json.dumps(padded()))
    arguments = ["run", str(source), "-o", str(tmp_path / "out"), "--passes", "inline_bir_kernel", "--quiet"]
    assert main([*arguments, "--set", "inline_bir_kernel.sb_allocation=true"]) == 0
    ir = air.read(tmp_path / "out" / "m.json")
    assert ir.locations.filter(ir.locations["name"].str.contains(":"))["allocated"].all()


# B3 and B5 in short; files of their own go through them


def test_b3_a_module_is_refused_and_says_why() -> None:
    found = fault(one_call(kernel="activation"))
    assert (found.code, found.instruction) == ("unknown_bir_kernel", "C")
    assert "nearest is `Activation`" in found.message


@pytest.mark.parametrize("kernel", ["Activation", "RMSNorm"])
def test_b5_a_body_computes_what_the_call_site_does(kernel: str) -> None:
    members = {"norm_type": 3} if kernel == "RMSNorm" else {}
    outcome = inline(one_call((150, 40), kernel=kernel, **members))
    assert outcome.status == "changed"
    found = air.equivalent(outcome.before, outcome.ir, tolerance=library.get(kernel).tolerance["float32"])
    assert found.ok, found
