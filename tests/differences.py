"""What tests of differences share: a module with something of everything, ways to change it, what is told of it."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import arrowir as air
from arrowir import Diff, build

Json = dict[str, Any]
DATA = Path(__file__).parents[1] / "data"


def read(document: Json, name: str = "m") -> air.IR:
    return air.read_json(json.dumps(document).encode(), name=name)


def sample() -> Json:
    """A module with something of every kind, whose names are unique."""
    module = build.module()
    kernel = module.kernel("kernel")
    a, c = kernel.input("a", [128, 4]), kernel.output("c", [128, 4])
    kernel.add("Load", [a], [c], name="copy")
    other = module.kernel("other")
    other.input("a", [128, 4])
    other.output("c", [128, 4])
    main = module.function("main")
    x, y, t = main.input("x", [128, 4]), main.output("y", [128, 4]), main.sb("t", [128, 4], addr=64, allocated=True)
    u = main.sb("u", [128, 4], addr=128, extra_key=7)
    main.dram("d", [128, 4], alias=[["x_set", "x", 3]])
    r, s = main.register("r"), main.register("s")
    main.block("B0")
    load = main.add("Load", [x], [t], name="load", engine="SP", update=[(3, 1)])
    twice = main.add(
        "TensorScalar", [t, 2.0], [u], name="twice", engine="DVE", after=[load], op0="mult", reverse0=False
    )
    main.add("Save", [u], [y], name="save", engine="SP", after=[twice, load], wait=[(3, 1, load)])
    with main.loop(0, 4, name="loop") as i:
        main.add("Memset", [], [t.at(0, i)], name="set", mode="Const", constant=0, weight=2 * r.value + 1)
    main.add("RegisterMove", [r], [s], name="move")
    main.call(kernel, {a: x}, {c: y}, name="call")
    main.branch("B1", name="jump")
    main.block("B1")
    main.add("NoOp", name="one")
    main.block("B2")
    main.add("NoOp", name="two")
    queue = module.queue("queue")
    queue.block("Q0")
    queue.add("DMADescriptorCopy", [], [], name="copy0")
    return module.json()


def function(document: Json, name: str = "main") -> Json:
    return next(f for f in document["functions"] + document["nki_functions"]["functions"] if f["name"] == name)


def instruction(document: Json, name: str, within: str = "main") -> Json:
    def found(blocks: list[Json]) -> Json | None:
        for block in blocks:
            for row in block["instructions"]:
                if row.get("name") == name:
                    return row
                if (inner := found(row.get("blocks", []))) is not None:
                    return inner
        return None

    row = found(function(document, within)["blocks"])
    assert row is not None, name
    return row


def storage(document: Json, name: str) -> Json:
    return next(a for a in function(document)["allocations"] if a["name"] == name)


def location(document: Json, name: str) -> Json:
    return storage(document, f"{name}_set")["memorylocations"][0]


def difference(change: Callable[[Json], object]) -> Diff:
    """Return how the sample differs from itself with one change; looked at from the other side, as much differs."""
    before = sample()
    after = copy.deepcopy(before)
    change(after)
    assert after != before or json.dumps(after) != json.dumps(before)
    found = air.diff(read(before), read(after))
    assert found
    assert len(air.diff(read(after), read(before)).rows) == len(found.rows)
    return found


def told(found: Diff) -> list[tuple[Any, ...]]:
    """Return table, kind, names, column, cells of each difference."""
    return found.rows.select("table", "what", "name_before", "name_after", "column", "before", "after").rows()


def rename(document: Json, old: str, new: str) -> None:
    """Rename a thing whose name occurs nowhere else, and what names it."""

    def walk(value: Any) -> Any:
        if isinstance(value, dict):
            return {new if k == old else k: walk(v) for k, v in value.items()}
        if isinstance(value, list):
            return [walk(v) for v in value]
        return new if value == old else value

    changed = walk(document)
    document.clear()
    document.update(changed)
