"""Faults that are put into the library kernels and their inlining show when modules are executed before and after.

What execution cannot show, since it follows program order and names: uses of the same scratch are ordered by edges, and
scratch with addresses lies in the scratchpad, each piece in bytes of its own.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.library import bodies, rmsnorm
from arrowir.library.activation import FUNCTIONS, Activation
from arrowir.library.bodies import BodyBuilder
from arrowir.library.rmsnorm import RMSNorm
from arrowir.library.views import Grid
from arrowir.passes import inline_bir_kernel as driver
from arrowir.passes.inlining import library_bodies, library_calls
from tests.bir_kernels import call

Patch = pytest.MonkeyPatch


def batch() -> air.IR:
    """Return modules in which every part of the machinery matters: several tiles, kernels, options and call-sites."""
    modules: list[air.IR] = []
    for number in range(2):
        module = build.module()
        main = module.function()
        x, y = main.input("x", (300, 40), "float32"), main.output("y", (300, 40), "float32")
        t, gamma, beta = main.dram("t", (300, 40)), main.input("gamma", (40,)), main.input("beta", (40,))
        attrs = {"tile_size": "16", "eps": "0.5"}
        call(main, [x, gamma], [t], "RMSNorm", attrs=attrs, name="norm")
        call(main, [t], [y], attrs={"act_fn": "ReLU" if number else "SiLU", "tile_size": "24"}, name="act")
        call(main, [y, gamma, beta], [t], "RMSNorm", attrs=attrs, norm_type=2, name="layer")
        part = t.access([[80, 150], [1, 40]], offset=40)
        call(
            main, [part], [part], attrs={"act_fn": "GELU"}, srcs_shape=[[150, 40]], dsts_shape=[[150, 40]], name="half"
        )
        call(main, [t, gamma], [y], "RMSNorm", name="wide")
        call(main, [t], [y], name="last")
        modules.append(module.ir(f"m{number}"))
    return air.concat(modules)


def different() -> bool:
    ir = batch()
    result = air.passes.inline_bir_kernel(ir)
    if not result.ok:
        return True
    return "different" in air.equivalent(ir, result.ir, trials=2, tolerance=1e-4).statuses.values()


def misplaced() -> bool:
    """Tell whether scratch that is placed lies outside of its scratchpad, or in the same bytes as other scratch."""
    first, size = 160, 2048
    main = (module := build.module()).function()
    x, y = main.input("x", (128, 40)), main.output("y", (128, 40))
    pad = main.sb("pad", (128, size), "uint8", addr=first)
    call(main, [x], [y], attrs={"tile_size": "24"}, scratch=[pad], name="act")
    result = air.passes.inline_bir_kernel(module.ir(), sb_allocation=True)
    assert result.ok
    held = result.ir.locations
    taken = sorted(held.filter(held["name"].str.contains(":")).select("addr", "bytes").rows())
    assert len(taken) > 1
    ends = [first, *(addr + count for addr, count in taken)]
    return ends[-1] > first + size or any(at < end for (at, _), end in zip(taken, ends, strict=False))


def unordered() -> list[tuple[str, str]]:
    """Return pairs of instructions of bodies that use the same scratch, one of them writing, without an edge between.

    Each body has one block, so that edges along which one waits for the other lead back in the list.
    """
    document = json.loads(air.passes.inline_bir_kernel(batch().select([0])).ir.to_json(0))
    function = document["functions"][0]
    scratch = {at["name"] for held in function["allocations"] for at in held["memorylocations"] if ":" in at["name"]}
    waits: dict[str, set[str]] = {}
    uses: list[tuple[str, set[str], set[str]]] = []
    found: list[tuple[str, str]] = []
    for row in function["blocks"][0]["instructions"]:
        name = row["name"]
        waits[name] = set()
        for on, *_ in row.get("dependencies", []):
            waits[name] |= {on, *waits[on]}
        read, written = ({o["memref"] for o in row[k] if o.get("memref") in scratch} for k in ("ins", "outs"))
        found += [
            (other, name)
            for other, old_read, old_written in uses
            if (written & (old_read | old_written) or read & old_written) and other not in waits[name]
        ]
        uses.append((name, read, written))
    return found


def test_without_a_fault_nothing_shows() -> None:
    assert not different()
    assert unordered() == []
    assert not misplaced()


def _no_row_offset(patch: Patch) -> None:
    original = Grid.tile
    patch.setattr(Grid, "tile", lambda self, row, *rest: original(self, 0, *rest))


def _no_column_offset(patch: Patch) -> None:
    original = Grid.tile
    patch.setattr(Grid, "tile", lambda self, row, rows, column, columns: original(self, row, rows, 0, columns))


def _access_begins_at_0(patch: Patch) -> None:
    original = library_calls._argument
    patch.setattr(library_calls, "_argument", lambda *given: replace(original(*given), offset=0))


def _bound_backwards(patch: Patch) -> None:
    original = driver.bind

    def bind(*given: Any) -> Any:
        sites, binding = original(*given)
        return sites, replace(binding, actual=binding.actual[::-1].copy())

    patch.setattr(driver, "bind", bind)


def _one_body_for_all_of_a_kernel(patch: Patch) -> None:
    original = library_calls._operand_facts

    def alike(calls: Any) -> tuple[Any, Any]:
        names = [calls.ir.pools.extras[e] for e in calls.ir.tables["instructions"]["extra"][calls.sites.row].tolist()]
        kernels = np.array(["RMSNorm" in name for name in names], np.int64)
        counts = np.bincount(calls.operands.site, minlength=len(kernels))
        facts = np.stack((kernels, counts), axis=1)
        assert original(calls) is not None
        first, kind = library_calls._distinct(facts)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return rank[kind], first[order]

    patch.setattr(library_calls, "_alike", alike)


def _another_function(patch: Patch) -> None:
    number, _, define = FUNCTIONS["SiLU"]
    patch.setitem(FUNCTIONS, "SiLU", (number, "Gelu_apprx_sigmoid", define))


def _eps_ignored(patch: Patch) -> None:
    original = RMSNorm._root

    def root(self: Any, *given: Any) -> None:
        patched = {**self.values, "eps": 0.0}
        kept, self.values = self.values, patched
        original(self, *given)
        self.values = kept

    patch.setattr(RMSNorm, "_root", root)


def _only_the_first_sum(patch: Patch) -> None:
    original = rmsnorm._sum

    def total(body: BodyBuilder, source: Any, out: Any) -> None:
        original(body, {**source, "ap": [source["ap"][0], [1, 1]]}, out)

    patch.setattr(rmsnorm, "_sum", total)


def _no_remainder(patch: Patch) -> None:
    from arrowir.library import activation

    original = activation.pieces
    patch.setattr(
        activation, "pieces", lambda *given: tuple(part[:-1] if len(part) > 1 else part for part in original(*given))
    )
    patch.setattr(Activation, "size", lambda self: 0)


def _one_gain_for_all(patch: Patch) -> None:
    original = Grid.spread

    def spread(self: Grid, *given: Any) -> Any:
        found = original(self, *given)
        return {**found, "ap": [found["ap"][0], [0, found["ap"][1][1]]]}

    patch.setattr(Grid, "spread", spread)


def _options_ignored(patch: Patch) -> None:
    def read(kernel: str, options: Any, members: Any) -> Any:
        return {option.name: option.default for option in options}

    patch.setattr("arrowir.library.kernel.read_options", read)


def _inputs_turned(patch: Patch) -> None:
    original = library_bodies.Place.splice

    def splice(self: Any, body: Any) -> None:
        original(self, body)
        self.taken = replace(self.taken, inputs=self.taken.inputs[::-1])

    patch.setattr(library_bodies.Place, "splice", splice)


def _mean_of_a_tile(patch: Patch) -> None:
    original = RMSNorm._root
    patch.setattr(
        RMSNorm, "_root", lambda self, body, source, scale, out: original(self, body, source, min(1.0, 2 * scale), out)
    )


def _scratch_at_one_place(patch: Patch) -> None:
    original = BodyBuilder.sb

    def sb(self: Any, *given: Any, **more: Any) -> Any:
        self._sb = 0
        return original(self, *given, **more)

    patch.setattr(BodyBuilder, "sb", sb)


def _scratchpad_forgotten(patch: Patch) -> None:
    patch.setattr(driver.InlineBirKernel, "_bases", lambda self, calls, sites: np.zeros(len(sites), np.int64))


def _edges_lost(kind: str) -> Callable[[Patch], None]:
    def fault(patch: Patch) -> None:
        original = bodies._note
        patch.setattr(bodies, "_note", lambda *given: None if given[2] == kind else original(*given))

    fault.__name__ = f"_{kind.lower()}_edges_lost"
    return fault


def _first_reader_awaited(patch: Patch) -> None:
    original = BodyBuilder._scratch

    def scratch(self: Any, operands: Any) -> Any:
        found = original(self, operands)
        for use in found:
            del use.readers[1:]
        return found

    patch.setattr(BodyBuilder, "_scratch", scratch)


MISPLACED = (_scratch_at_one_place, _scratchpad_forgotten)
UNORDERED = (_edges_lost("Flow"), _edges_lost("Anti"), _first_reader_awaited)

FAULTS = (
    _options_ignored,
    _inputs_turned,
    _mean_of_a_tile,
    _no_row_offset,
    _no_column_offset,
    _access_begins_at_0,
    _bound_backwards,
    _one_body_for_all_of_a_kernel,
    _another_function,
    _eps_ignored,
    _only_the_first_sum,
    _no_remainder,
    _one_gain_for_all,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__[1:])
def test_b5_execution_shows_the_fault(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        fault(patch)
        assert different()


@pytest.mark.parametrize("fault", UNORDERED, ids=lambda f: f.__name__[1:])
def test_b2_lost_edges_of_a_body_show(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        fault(patch)
        assert unordered() != []


@pytest.mark.parametrize("fault", MISPLACED, ids=lambda f: f.__name__[1:])
def test_b4_wrong_addresses_show(fault: Callable[[Patch], None], monkeypatch: Patch) -> None:
    with monkeypatch.context() as patch:
        fault(patch)
        assert misplaced()
