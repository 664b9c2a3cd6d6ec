"""The op-specific keys of an opcode as typed columns."""

import json
from typing import Any

import polars as pl
import pytest

from arrowir import IR, build, read_json
from arrowir.attributes import reference_names


def made(*objects: dict[str, Any], opcode: str = "Activation") -> IR:
    """Return a module with one instruction for each set of keys, and another opcode among them."""
    module = build.module()
    main = module.function()
    for members in objects:
        main.add(opcode, **members)
        main.add("NoOp", noise=1)
    return module.ir()


def column(*cells: Any) -> pl.Series:
    """Return the column of a key that takes these values; None leaves the key out."""
    return made(*({} if cell is None else {"key": cell} for cell in cells)).attributes("Activation")["key"]


@pytest.mark.parametrize(
    ("cells", "dtype", "expected"),
    [
        ([True, None, False], pl.Boolean, [True, None, False]),
        ([3, None, -(2**63)], pl.Int64, [3, None, -(2**63)]),
        ([1, 2.5, None], pl.Float64, [1.0, 2.5, None]),
        ([1, "inf", "-inf"], pl.Float64, [1.0, float("inf"), float("-inf")]),
        ([2.5, 2**63], pl.Float64, [2.5, float(2**63)]),
        (["inf", "-inf"], pl.String, ["inf", "-inf"]),
        (["add", None, "two words"], pl.String, ["add", None, "two words"]),
        ([1, True], pl.String, ["1", "true"]),
        ([1, "one"], pl.String, ["1", '"one"']),
        ([2.5, "inf", True], pl.String, ["2.5", '"inf"', "true"]),
        ([[1, 2], None], pl.String, ["[1,2]", None]),
        ([{"a": None}, 3], pl.String, ['{"a":null}', "3"]),
        ([1, 2**63], pl.String, ["1", str(2**63)]),
        ([1.5, 10**400], pl.String, ["1.5", str(10**400)]),
        ([10**4000], pl.String, [str(10**4000)]),
    ],
)
def test_a_column_has_the_type_of_its_values(cells: list[Any], dtype: pl.DataType, expected: list[Any]) -> None:
    found = column(*cells)
    assert found.dtype == dtype
    assert found.to_list() == expected


def test_nan_is_a_float_in_both_spellings() -> None:
    for spelling in ("nan", float("nan")):
        found = column(1.5, spelling)
        assert found.dtype == pl.Float64
        assert found.is_nan().to_list() == [False, True]


def raw_module(*members: str) -> IR:
    """Return a module from JSON text of the op-specific members of its instructions."""
    listed = ",".join(
        f'{{"name":"I","opcode":"Activation","engine":"SP","ins":[],"outs":[],{text}}}' for text in members
    )
    text = (
        '{"version":2,"arch":"gen3","functions":[{"name":"f","attributes":[],"allocations":[],'
        f'"blocks":[{{"name":"b","instructions":[{listed}]}}]}}]}}'
    )
    return read_json(text.encode())


def test_literals_are_kept_in_json_text_and_read_as_numbers() -> None:
    frame = raw_module('"a":1.50,"b":1e400,"c":[1.50,1e400]', '"a":2,"b":1.0').attributes("Activation")
    assert frame["a"].to_list() == [1.5, 2.0]
    assert frame["b"].to_list() == [float("inf"), 1.0]
    assert frame["c"].to_list() == ["[1.50,1e400]", None]


def test_integers_of_thousands_of_digits_stay_text() -> None:
    digits = "9" * 5000
    assert raw_module(f'"a":{digits}').attributes("Activation")["a"].to_list() == [digits]


def test_lone_surrogates_stay_escaped() -> None:
    assert raw_module('"a":"\\ud800"', '"a":"x"').attributes("Activation")["a"].to_list() == ['"\\ud800"', '"x"']


def test_an_explicit_null_makes_a_column() -> None:
    frame = raw_module('"queue":null,"debug":null', '"scale":1').attributes("Activation")
    assert frame.columns == ["instruction_id", "module_id", "queue", "scale"]
    assert frame["queue"].to_list() == [None, None]
    assert frame["queue"].dtype == pl.String


def test_only_op_specific_keys_are_columns_in_order() -> None:
    ir = made(
        {"scale": 1.0, "alpha": 0.5, "origin": "NKI", "engine_id": 3, "order": [1], "loopnest": ["i"], "zebra": 1},
        {"func": "Exp", "debug": {"lineno": 3}, "optin_passes": ["a"], "sync_info": {}, "predicates": []},
    )
    frame = ir.attributes("Activation")
    assert frame.columns == ["instruction_id", "module_id", "alpha", "func", "scale", "zebra"]
    assert frame.rows() == [(0, 0, 0.5, None, 1.0, 1), (2, 0, None, "Exp", None, None)]


def test_ids_are_those_of_the_instructions_table() -> None:
    from arrowir import concat

    both = concat([made({"scale": 1}, {"scale": 2}), made({"scale": 3})])
    frame = both.attributes("Activation")
    joined = frame.join(both.instructions, left_on="instruction_id", right_on="id")
    assert joined["opcode"].unique().to_list() == ["Activation"]
    assert joined["module_id"].to_list() == joined["module_id_right"].to_list() == [0, 0, 1]
    assert frame["scale"].to_list() == [1, 2, 3]
    assert frame.schema["instruction_id"] == both.instructions.schema["id"]


@pytest.mark.parametrize("opcode", ["Matmult", "NoSuchOpcode"])
def test_an_opcode_that_is_not_there_gives_an_empty_frame(opcode: str) -> None:
    frame = made({"scale": 1}).attributes(opcode)
    assert frame.schema == {"instruction_id": pl.Int32, "module_id": pl.Int32}
    assert frame.height == 0


def test_an_opcode_without_keys_has_rows() -> None:
    assert made({}, {}).attributes("Activation").rows() == [(0, 0), (2, 0)]


def test_keys_with_the_names_of_the_first_columns_are_kept() -> None:
    frame = made({"module_id": 7, "instruction_id": 8}).attributes("Activation")
    assert frame.rows(named=True) == [{"instruction_id": 0, "module_id": 0, "instruction_id_": 8, "module_id_": 7}]


def test_references_are_filled_with_the_names_of_each_row() -> None:
    module = build.module()
    main = module.function()
    r = main.register("r")
    for axis in ("i", "j"):
        with main.loop(0, 4, axis=axis) as value:
            main.add("Memset", first=r.value, constant=2 * value + r.value, mode="Const", plain=1)
    main.add("Memset", constant=5, mode="Const")
    ir = module.ir()
    frame = ir.attributes("Memset")
    texts = frame["constant"].to_list()[1:]  # rows of nested blocks stand behind those of the function's own
    assert [[t["idx"] for t in json.loads(text)["terms"]] for text in texts] == [
        [{"axis": axis, "kind": "AffIVKind"}, {"kind": "IntRuntimeValueKind", "regref": "r"}] for axis in ("i", "j")
    ]
    assert frame["constant"][0] == "5"
    assert [json.loads(t)["terms"][0]["idx"]["regref"] for t in frame["first"].drop_nulls()] == ["r", "r"]
    assert frame["plain"].to_list() == [None, 1, 1]
    # The two texts differ in nothing but the reference, so they are one in the pool.
    pooled = ir.tables["instructions"]["extra"][frame["instruction_id"].to_numpy()]
    assert pooled[1] == pooled[2] != pooled[0]


def test_unresolved_references_are_filled_as_written() -> None:
    ir = made({"scale": build.Register("lost").value + 1})
    (text,) = ir.attributes("Activation")["scale"]
    assert json.loads(text)["terms"][0]["idx"]["regref"] == "lost"


def test_reference_names_of_some_rows_are_those_of_all() -> None:
    module = build.module()
    main = module.function()
    r, s = main.register("r"), main.register("s")
    tile = main.sb("t", [128, 4])
    main.add("NoOp", [tile.via(r, reg_ap_offset="s"), tile.at(r.value, s.value)])
    main.add("NoOp", [tile, tile.at(s.value, 0)])
    ir = module.ir()
    everything = reference_names(ir, "operands")
    assert everything == {0: ["s"], 1: ["r", "s"], 3: ["s"]}
    import numpy as np

    assert reference_names(ir, "operands", np.array([1, 2])) == {1: ["r", "s"]}
