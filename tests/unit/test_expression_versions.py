"""Expressions in the spelling of the other version of the format: the same values, or a refusal with its place."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arrowir.formats.expression_versions import NotConvertibleError, convert

Json = dict[str, Any]
AXES = ("i", "j", "k")


def value(expression: Any, at: dict[str, int]) -> int:
    """Return what an expression of either version is: plain Python, from the description of the format."""
    if isinstance(expression, int):
        return expression
    kind = expression.get("kind")
    if kind is None:
        total = sum(at[term["AxisLabel"]] * term["coef"] for term in expression["terms"]) + expression["c"]
        op, parameter = expression.get("op"), expression.get("op_param")
        return total if op is None else total // parameter if op == "Div" else total % parameter
    match kind:
        case "AffIVKind":
            return at[expression["axis"]]
        case "AffExprKind":
            return sum(value(t["idx"], at) * t["coeff"] for t in expression["terms"]) + expression["c"]
        case "SumKind":
            return sum(value(t, at) for t in expression["terms"])
        case "MultKind":
            return value(expression["var"], at) * expression["scale"]
        case "FloorDivKind":
            return value(expression["numer"], at) // expression["denom"]
        case _:
            return value(expression["numer"], at) % expression["denom"]


NUMBERS = st.integers(-9, 9)
AXIS = st.builds(lambda axis: {"axis": axis, "kind": "AffIVKind"}, st.sampled_from(AXES))
LINEAR = st.recursive(
    AXIS | st.builds(lambda c: {"c": c, "kind": "AffExprKind", "terms": []}, NUMBERS),
    lambda inner: (
        st.builds(
            lambda terms, c: {"c": c, "kind": "AffExprKind", "terms": [{"coeff": n, "idx": e} for e, n in terms]},
            st.lists(st.tuples(AXIS, NUMBERS), max_size=3),
            NUMBERS,
        )
        | st.builds(lambda t: {"kind": "SumKind", "n_terms": len(t), "terms": t}, st.lists(inner, max_size=3))
        | st.builds(lambda e, n: {"kind": "MultKind", "scale": n, "var": e}, inner, NUMBERS)
    ),
    max_leaves=5,
)
NEW = LINEAR | st.builds(
    lambda e, n, kind: {"denom": n, "kind": kind, "numer": e},
    LINEAR,
    st.integers(1, 9),
    st.sampled_from(["FloorDivKind", "ModuloKind", "CCModKind"]),
)


@given(expression=NEW, at=st.fixed_dictionaries(dict.fromkeys(AXES, NUMBERS)))
def test_the_old_spelling_has_the_value_of_the_new_one_and_back(expression: Json, at: dict[str, int]) -> None:
    expected = value(expression, at)
    held = {"addrs": [copy.deepcopy(expression)], "more": {"deep": [[copy.deepcopy(expression)]]}}
    convert(held, 1)
    older = held["addrs"][0]
    assert "kind" not in older
    assert held["more"] == {"deep": [[older]]}
    assert value(older, at) == expected
    again = {"addrs": [copy.deepcopy(older)]}
    convert(again, 2)
    assert "kind" in again["addrs"][0]
    assert value(again["addrs"][0], at) == expected
    convert(again, 1)
    assert again["addrs"][0] == older


def test_what_is_no_expression_of_the_other_version_stays() -> None:
    held: Json = {
        "kind": "physical_ap",
        "sets": [{"kind": "Internal", "terms": 3}],
        "shard": {"kind": "ShardIDKind", "ub": 2},
        "dynamic_ap_info": {"aff_expr": [{"coef": 1, "offset_expr": {"kind": "IntRuntimeValueKind", "regref": "r"}}]},
    }
    before = copy.deepcopy(held)
    for version in (1, 2, 1):
        convert(held, version)
        assert held == before


def test_indirect_arguments_have_a_spelling_in_both() -> None:
    held: Json = {"addrs": [{"arg_id": 1, "kind": "IndirectArgId"}]}
    convert(held, 1)
    assert held == {"addrs": [{"c": 0, "op": "IndirectArgId", "op_param": 1, "terms": []}]}
    convert(held, 2)
    assert held == {"addrs": [{"arg_id": 1, "kind": "IndirectArgId"}]}


TERM = {"AxisLabel": "i", "coef": 1}


@pytest.mark.parametrize(
    ("expression", "version", "what"),
    [
        ({"terms": [], "c": 0, "op": "CCGetRank", "op_param": 2}, 2, "`CCGetRank`"),
        ({"terms": [TERM], "c": 0, "op": "IndirectArgId", "op_param": 0}, 2, "`IndirectArgId`"),
        ({"terms": [TERM], "c": 0, "op": "Div"}, 2, "`op_param`"),
        ({"terms": [{"AxisLabel": "i"}], "c": 0}, 2, "`coef`"),
        ({"terms": [TERM], "c": 0, "mine": 1}, 2, "`mine`"),
        ({"kind": "IntRuntimeValueKind", "regref": "r"}, 1, "`IntRuntimeValueKind`"),
        ({"kind": "SumKind", "terms": [{"kind": "ModuloKind", "numer": 1, "denom": 2}]}, 1, "`ModuloKind`"),
        ({"kind": "FloorDivKind", "numer": 1}, 1, "`denom`"),
        ({"kind": "AffIVKind"}, 1, "`axis`"),
        ({"kind": "MultKind", "var": 1, "scale": 1.5}, 1, "no integer"),
    ],
)
def test_what_has_no_spelling_is_refused_with_its_place(expression: Json, version: int, what: str) -> None:
    held = {"functions": [{"addrs": [3, copy.deepcopy(expression)]}]}
    with pytest.raises(NotConvertibleError) as raised:
        convert(held, version)
    assert raised.value.path == "functions[0].addrs[1]"
    assert what in raised.value.reason
