"""Modules in which a kernel calls a kernel."""

from typing import Any

from tests.oracle.builders import Obj, access, call, function, module, op, sb_set
from tests.oracle.calls import MAPS, actuals, kernel


def nested(*instructions: Obj, inner: Obj | None = None, site: Obj | None = None, outer: Obj | None = None) -> Obj:
    """`main` calls `k1` at `C` between `p` and `z`; `k1` has these instructions, one of which calls `k2` at `D`."""
    main = function(
        "main", [], op("p"), call("C", "k1", dependencies=["p"], **(site or {})), op("z", dependencies=["C"])
    )
    callee = function("k1", [], *instructions) if outer is None else outer
    return module(main, kernels=[callee, inner or function("k2", [], op("K1"), op("K2", dependencies=["K1"]))])


def kernel_names(doc: Obj) -> list[str]:
    return [each["name"] for each in doc["nki_functions"]["functions"]]


def bound(*inner_rows: Obj, **site: Any) -> Obj:
    """`main` binds x, y to `k1`'s a, c; `k1` binds its a, c to those of `k2`."""
    maps = {"func_args": {"a": "a"}, "func_outs": {"c": "c"}} | site
    outer = kernel(call("D", "k2", **maps), name="k1")
    return module(function("main", actuals(), call("C", "k1", **MAPS)), kernels=[outer, kernel(*inner_rows, name="k2")])


def scratch(inner_addr: int = 16, pad: Obj | None = None, **inner_site: Any) -> Obj:
    """Scratchpads at 1000 in `main` and at 200 in `k1`; `k1` has `o` at 8, `k2` has `i`."""
    inner = function("k2", [sb_set("i_set", inner_addr)], op("K"))
    inner_site = {"outs": [access("pad")], "sb_buf_shape": [128, 64]} | inner_site
    outer = function("k1", [sb_set("o_set", 8), pad or sb_set("pad_set", 200)], call("D", "k2", **inner_site))
    main = function("main", [sb_set("m_set", 1000)], call("C", "k1", outs=[access("m")], sb_buf_shape=[128, 64]))
    return module(main, kernels=[outer, inner])
