"""Rule O6: the size that inlining predicts is that of the second implementation, loops of branches included."""

import re

import pytest

import arrowir as air
from arrowir.testing.executable import document
from tests.oracle import run_inline
from tests.oracle.builders import affine, call, function, loop, module, op, register, runtime
from tests.single_pass import Json, read

NAME = "inline_nki_kernel"


def sizes(made: Json) -> tuple[int, int]:
    """Return what the pass and the oracle say that a module would have."""
    (mine,) = air.passes.make(NAME, max_instructions=1)(read(made)).messages
    (other,) = run_inline(made, max_instructions=1).diagnostics
    assert mine.code == other.code == "too_many_instructions"
    found = [re.search(r"[\d,]{2,}|\d", each.message) for each in (mine, other)]
    one, two = (int(each[0].replace(",", "")) for each in found if each)
    return one, two


def lowered(*body: Json) -> Json:
    """A kernel in which a loop of run time stands, called twice."""
    dynamic = {
        "name": "W", "opcode": "DynamicForLoop", "engine": "Pool", "ins": [], "outs": [],
        "DynamicForLoopAxis": {"name": "w", "lb": 0, "ub": runtime("r"), "stride": 1},
        "blocks": [{"name": "W_body", "instructions": list(body)}],
    }  # fmt: skip
    kernel = function("k", [register("r")], op("a"), dynamic, op("b"))
    inner = function("i", [], op("x"), op("y"))
    return module(function("main", [], call("C"), op("m"), call("D")), kernels=[kernel, inner])


@pytest.mark.parametrize(
    "body",
    [
        [op("t")],
        [],
        [op("t", opcode="Break")],
        [op("t"), loop("L", "l", (0, 5, 1), op("u"), op("v"))],
        [call("E", "i"), op("t"), call("F", "i")],
        [loop("L", "l", (0, 3, 1), call("E", "i"), op("u", order=[affine("l")]))],
    ],
)
def test_o6_u2_what_loops_of_branches_get_counts(body: list[Json]) -> None:
    made = lowered(*body)
    mine, other = sizes(made)
    assert mine == other
    ir = air.passes.inline_nki_kernel(read(made)).ir
    clones = int((ir.tables["instructions"]["call_chain_id"] >= 0).sum())
    assert mine == clones + clones // 2 + 3  # the body once more; `m`, and the two of `i`


@pytest.mark.parametrize("lowerable", [False, True])
def test_o6_sizes_of_drawn_modules(lowerable: bool) -> None:
    for seed in range(10):
        mine, other = sizes(document(seed, lowerable=lowerable))
        assert mine == other, seed
