"""Programs and templates of affine expressions, and the exact arithmetic under them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowir import expressions
from arrowir.exact import LARGEST, SMALLEST, exactly, value_of
from arrowir.expressions import Compiler, Rest, fold_attribute, read, run

OPERATIONS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
}
wide = st.one_of(st.integers(-9, 9), st.integers(SMALLEST, LARGEST), st.sampled_from([SMALLEST, SMALLEST + 1, LARGEST]))


@given(st.sampled_from(sorted(OPERATIONS)), st.lists(st.tuples(wide, wide), max_size=8), st.booleans(), st.booleans())
def test_arithmetic_is_that_of_python(op: str, pairs: list[tuple[int, int]], one_left: bool, one_right: bool) -> None:
    pairs = [(a, b or 1) if op in ("div", "mod") else (a, b) for a, b in pairs]
    if pairs and one_left:
        pairs = [(pairs[0][0], b) for _, b in pairs]
    if pairs and one_right:
        pairs = [(a, pairs[0][1]) for a, _ in pairs]
    left = pairs[0][0] if pairs and one_left else np.array([a for a, _ in pairs], np.int64)
    right = pairs[0][1] if pairs and one_right else np.array([b for _, b in pairs], np.int64)
    made, over = exactly(op, value_of(left), value_of(right))
    data = np.broadcast_to(made.data, len(pairs)).tolist()
    wrong = np.broadcast_to(False if over is None else over, len(pairs)).tolist()
    for (a, b), value, failed in zip(pairs, data, wrong, strict=True):
        exact = OPERATIONS[op](a, b)
        assert failed == (not SMALLEST <= exact <= LARGEST)
        assert failed or value == exact
        assert failed or made.low <= value <= made.high


AXIS = '{"kind":"AffIVKind","axis":\x01}'


def axis_values(name: int | str) -> tuple[Any, Any]:
    return np.array([5, -7, 2**62]), None


@pytest.mark.parametrize(
    ("text", "values", "fault"),
    [
        ('{"kind":"MultKind","var":{"kind":"AffIVKind","axis":\x01},"scale":2}', [10, -14, 0], [0, 0, 1]),
        ('{"kind":"ModuloKind","numer":{"kind":"AffIVKind","axis":\x01},"denom":-4}', [-3, -3, 0], [0, 0, 0]),
        (f'{{"kind":"MultKind","var":{AXIS},"scale":{2**80}}}', [0, 0, 0], [1, 1, 1]),
        (
            f'{{"kind":"ModuloKind","numer":{AXIS},"denom":{2**63}}}',
            [5, 2**63 - 7, 2**62],
            [0, 0, 0],
        ),
        (
            f'{{"kind":"FloorDivKind","numer":{AXIS},"denom":{-(2**63) - 1}}}',
            [-1, 0, -1],
            [0, 0, 0],
        ),
        (f'{{"kind":"AffExprKind","terms":[],"c":{"9" * 5000}}}', [0, 0, 0], [1, 1, 1]),
    ],
)
def test_values_and_faults_of_cells(text: str, values: list[int], fault: list[int]) -> None:
    compiler = Compiler()
    step = compiler.value(read(text))
    made = run(compiler.program(), 3, axis=axis_values, shard_id=0)
    assert made.fault.tolist() == fault
    assert [v for v, f in zip(made.whole(step).tolist(), fault, strict=True) if not f] == [
        v for v, f in zip(values, fault, strict=True) if not f
    ]


def test_the_first_fault_of_a_cell_counts() -> None:
    text = '{"kind":"SumKind","terms":[{"kind":"FloorDivKind","numer":1,"denom":0},{"kind":"NoSuchKind"}]}'
    compiler = Compiler()
    compiler.value(read(text))
    made = run(compiler.program(), 2, axis=axis_values, shard_id=0)
    assert [expressions.FAULTS[f] for f in made.fault.tolist()] == ["division_by_zero"] * 2


def test_texts_of_one_form_share_their_steps() -> None:
    programs = []
    for c in (1, -5):
        compiler = Compiler()
        compiler.value(
            read(f'{{"kind":"AffExprKind","terms":[{{"idx":{{"kind":"AffIVKind","axis":\x01}},"coeff":{c}}}],"c":{c}}}')
        )
        programs.append(compiler.program())
    assert programs[0].steps == programs[1].steps
    assert [p.constants for p in programs] == [(1, 1), (-5, -5)]


def test_parsed_text_keeps_unusual_numbers_and_odd_strings() -> None:
    value = read('{"a":1.50,"b":[1e400,-0.0,NaN],"c":\x01,"d":"\\u00010"}', 3)
    assert [str(number) for number in (value["a"], *value["b"])] == ["1.50", "1e400", "-0.0", "NaN"]
    assert value["c"] == expressions.Slot(3)
    assert value["d"] == "\x010"


def template(text: str, dropped: frozenset[str] = frozenset()) -> expressions.Template:
    return expressions.attributes(text, frozenset({"debug"}), dropped)


def test_what_holds_no_expression_stays_as_it_is_written() -> None:
    text = '{"a":1.50,"b":{"kind":"AllReduce"},"debug":{"kind":"AffExprKind"},"c":\x01,"d":[]}'
    made = template(text)
    assert (made.changed, made.pieces, made.program.results, made.kept) == (False, (text,), (), (0,))


def test_holes_and_placeholders_that_stay() -> None:
    rest = '{"kind":"SumKind","n_terms":2,"terms":[{"kind":"IntRuntimeValueKind","regref":\x01},3]}],"y":1.50}'
    made = template(f'{{"x":\x01,"a":[{AXIS},{rest}')
    assert made.pieces == ('{"x":\x01,"a":[', f",{rest}")
    assert made.kept == (0, 2)
    assert made.text([7]) == f'{{"x":\x01,"a":[7,{rest}'


def test_an_object_that_becomes_empty_is_the_empty_text() -> None:
    assert template('{"loopnest":["i"]}', frozenset({"loopnest"})).text([]) == ""


def test_strings_with_lone_surrogates_stay_escaped() -> None:
    made = template('{"a":[{"kind":"AffExprKind","terms":[],"c":1},"\\ud800\u00e9"]}')
    assert made.text([1]) == '{"a":[1,"\\ud800\\u00e9"]}'


def test_folding_leaves_the_given_value_alone() -> None:
    value = read('{"a":{"kind":"AffExprKind","terms":[],"c":1}}')
    copy = read('{"a":{"kind":"AffExprKind","terms":[],"c":1}}')
    made = fold_attribute(Compiler(), value)
    assert isinstance(made, Rest)
    assert made.changed
    assert value == copy
