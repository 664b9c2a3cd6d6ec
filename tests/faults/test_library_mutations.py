"""Faults that are put into the library kernels and their inlining show when modules are executed before and after."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import arrowir as air
from arrowir import build
from arrowir.library import rmsnorm
from arrowir.library.activation import FUNCTIONS, Activation
from arrowir.library.bodies import BodyBuilder
from arrowir.library.rmsnorm import RMSNorm
from arrowir.library.views import Grid
from arrowir.passes import inline_bir_kernel as driver
from arrowir.passes.inlining import library_calls
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
        call(main, [t], [y], name="last")
        modules.append(module.ir(f"m{number}"))
    return air.concat(modules)


def different() -> bool:
    ir = batch()
    result = air.passes.inline_bir_kernel(ir)
    if not result.ok:
        return True
    return "different" in air.equivalent(ir, result.ir, trials=2, tolerance=1e-4).statuses.values()


def test_without_a_fault_nothing_shows() -> None:
    assert not different()


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


FAULTS = (
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
