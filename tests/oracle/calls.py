"""Modules with call-sites, and what running the pass on them must hold of every outcome."""

import copy
from typing import Any

from tests.oracle import Outcome, run_inline
from tests.oracle.builders import Obj, access, call, function, memory_set, module, op, row

MAPS: Obj = {"func_args": {"a": "x"}, "func_outs": {"c": "y"}}


def formals() -> list[Obj]:
    return [memory_set("a_set", "ExternalInput"), memory_set("c_set", "ExternalOutput")]


def actuals() -> list[Obj]:
    return [memory_set("x_set", "ExternalInput"), memory_set("y_set", "ExternalOutput"), memory_set("w_set")]


def body() -> list[Obj]:
    """Read `a`, write `c`: K1 -> K2."""
    return [
        op("K1", "Load", ins=[access("a", memsetref="a_set")], outs=[access("t")]),
        op("K2", "Save", ins=[access("t")], outs=[access("c")], dependencies=[["K1", "Flow"]]),
    ]


def kernel(*instructions: Obj, storage: list[Obj] | None = None, name: str = "k") -> Obj:
    own = [memory_set("t_set")] if storage is None else storage
    return function(name, [*formals(), *own], *(instructions or body()))


def one_call(*around: Obj, callee: Obj | None = None, sets: list[Obj] | None = None, **site: Any) -> Obj:
    """A caller with one call-site `C` after the instructions `around`."""
    caller = function("main", actuals() if sets is None else sets, *around, call("C", **(MAPS | site)))
    return module(caller, kernels=[callee or kernel()])


def inlined(doc: Obj, **options: Any) -> Outcome:
    """What the pass makes of a module, by all rules of N."""
    before = copy.deepcopy(doc)
    outcome = run_inline(doc, **options)
    assert doc == before
    if outcome.status != "changed":
        assert outcome.doc == before
    after_rows = [each for f in all_functions(outcome.doc) for b in f["blocks"] for each in walk(b)]
    assert len(outcome.provenance) == len(after_rows)
    return outcome


def all_functions(doc: Obj) -> list[Obj]:
    apart = doc.get("nki_functions") or []
    return [*doc["functions"], *(apart if isinstance(apart, list) else apart["functions"])]


def walk(block: Obj) -> list[Obj]:
    found = []
    for each in block["instructions"]:
        found.append(each)
        for inner in each.get("blocks", []):
            found += walk(inner)
    return found


def failure(doc: Obj, **options: Any) -> str:
    outcome = inlined(doc, **options)
    assert outcome.status == "failed"
    [found] = outcome.diagnostics
    assert found.severity == "error"
    return found.code


def bare(*instructions: Obj, **site: Any) -> Obj:
    """A kernel without parameters, called once between `p` and `z`, each depending on the one before."""
    dependent = {"dependencies": [["p", "Flow"]]} | site
    caller = function(
        "main", [], op("p"), call("C", **dependent), op("z", dependencies=[["p", "Flow"], ["C", "Anti"], ["p", "Anti"]])
    )
    return module(caller, kernels=[function("k", [], *instructions)])


def in_blocks(*blocks: Obj, **site: Any) -> Obj:
    """`bare` with a kernel of several blocks."""
    doc = bare(**site)
    doc["nki_functions"]["functions"] = [function("k", [], blocks=list(blocks))]
    return doc


def edges(outcome: Outcome, name: str, key: str = "dependencies") -> Any:
    return row(outcome.doc, name).get(key)
