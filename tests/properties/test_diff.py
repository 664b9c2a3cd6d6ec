"""`air.diff` on generated modules: nothing where nothing differs, known edits exactly, and every row accounted for."""

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir import IR, Diff, FormatError, schema
from arrowir.analyse.comparing import TABLES, out_of_order
from arrowir.formats.rebinding import rebinding_names
from arrowir.store import Array
from arrowir.testing.strategies import documents, inlinable_documents, unrollable_documents
from arrowir.testing.workloads import module as workload

Json = dict[str, Any]
few = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
many = settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow])

calls = inlinable_documents(multi_block=True, nested=True)
anything = st.one_of(documents(), documents(), calls, unrollable_documents())
randoms = st.randoms(use_true_random=False)


def read(document: Json) -> IR | None:
    """Read a document; one that is refused is no matter here."""
    try:
        return air.read_json(json.dumps(document).encode(), name="m")
    except FormatError:
        return None


def accounts(found: Diff) -> None:
    """Check that each row was there before or is added, and on the other side stays or is removed."""
    rows = found.rows
    assert found.summary["count"].sum() == rows.height
    for table in TABLES:
        kept = found.matches(table).filter(~pl.col("clone"))
        mine = rows.filter(table=table)
        for side, ir, what in (("id_before", found.before, "removed"), ("id_after", found.after, "added")):
            ids = [*kept[side].to_list(), *mine.filter(what=what)[side].to_list()]
            assert sorted(ids) == list(range(ir.count(table))), (table, what)


# -- any edit ----------------------------------------------------------------------------------------------------------


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the place of everything in a document."""
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


def mutated(document: Json, random: Random) -> Json:
    """Return a document with one place of it changed, somehow."""
    new = copy.deepcopy(document)
    *way, last = random.choice(list(paths(new)))
    parent: Any = new
    for key in way:
        parent = parent[key]
    value = parent[last]
    match random.choice(["value", "value", "delete", "copy", "swap", "key"]):
        case "value":
            scalar = {bool: lambda: not value, int: lambda: value + 1, str: lambda: f"{value}x", float: lambda: 0.25}
            parent[last] = scalar.get(type(value), lambda: 0)()
        case "delete":
            del parent[last]
        case "copy" if isinstance(parent, list):
            parent.insert(random.randrange(len(parent) + 1), copy.deepcopy(value))
        case "swap" if isinstance(parent, list):
            other = random.randrange(len(parent))
            parent[last], parent[other] = parent[other], parent[last]
        case _ if isinstance(parent, dict):
            items = [(f"{k}_x" if k == last else k, v) for k, v in parent.items()]
            random.shuffle(items)
            parent.clear()
            parent.update(items)
        case _:
            pass
    return new


def check_edits(document: Json, random: Random) -> None:
    """Compare a document with itself and with edited ones: there is a difference exactly if the JSON differs."""
    before = read(document)
    assume(before is not None)
    assert before is not None
    again = read(document)
    assert again is not None
    for other in (before, again):
        found = air.diff(before, other)
        assert not found
        accounts(found)
    for _ in range(2):
        after = read(mutated(document, random))
        if after is not None:
            there, back = air.diff(before, after), air.diff(after, before)
            assert bool(there) == bool(back) == (before.to_json() != after.to_json())
            accounts(there)
            accounts(back)
            assert (str(there) == "1 module: no difference") == (not there)


@given(anything, randoms)
@few
def test_there_is_a_difference_exactly_if_documents_differ(document: Json, random: Random) -> None:
    check_edits(document, random)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@given(anything, randoms)
@many
def test_there_is_a_difference_exactly_if_documents_differ_at_length(document: Json, random: Random) -> None:
    check_edits(document, random)


@given(calls, documents(), randoms)
@few
def test_modules_of_a_batch_differ_as_they_do_alone(first: Json, second: Json, random: Random) -> None:
    before = [ir for ir in (read(first), read(second)) if ir is not None]
    after = [ir for ir in (read(mutated(first, random)), read(mutated(second, random))) if ir is not None]
    assume(len(before) == len(after) == 2)
    alone = [air.diff(a, b).rows.drop("id_before", "id_after") for a, b in zip(before, after, strict=True)]
    together = air.diff(air.concat(before), air.concat(after)).rows.drop("id_before", "id_after")
    assert together.equals(pl.concat(alone))


# -- known edits -------------------------------------------------------------------------------------------------------


PLAIN = workload("decode", layers=2, scale=0.1)
"""A module whose names are unique in each function."""


def functions(document: Json) -> list[Json]:
    return [*document["functions"], *document["nki_functions"]["functions"]]


def rows_of(function: Json) -> list[Json]:
    return [row for block in function["blocks"] for row in block["instructions"]]


def edges_on(function: Json, name: str) -> Iterator[tuple[Json, int]]:
    """Yield the instructions with an edge on one, and the place of the edge."""
    for row in rows_of(function):
        for place, entry in enumerate(row.get("dependencies", ())):
            if target_of(entry) == name:
                yield row, place


def rename_instruction(function: Json, random: Random) -> list[tuple[Any, ...]]:
    row = random.choice(rows_of(function))
    old, row["name"] = row["name"], "a new name"
    for other, place in list(edges_on(function, old)):
        entry = other["dependencies"][place]
        other["dependencies"][place] = "a new name" if isinstance(entry, str) else ["a new name", *entry[1:]]
    return [("instructions", "renamed", old, "a new name", "name", old, "a new name")]


def locations_of(function: Json) -> list[Json]:
    return [place for s in function["allocations"] for place in s.get("memorylocations", ())]


def rename_location(function: Json, random: Random) -> list[tuple[Any, ...]]:
    place = random.choice(locations_of(function))
    old, place["name"] = place["name"], "a new name"
    for row in rows_of(function):
        for operand in [*row["ins"], *row["outs"]]:
            if operand.get("memref") == old:
                operand["memref"] = "a new name"
        for bound in (row.get("func_args") or {}, row.get("func_outs") or {}):
            bound.update({formal: "a new name" for formal, actual in bound.items() if actual == old})
    return [("locations", "renamed", old, "a new name", "name", old, "a new name")]


def move_location(function: Json, random: Random) -> list[tuple[Any, ...]]:
    place = random.choice(locations_of(function))
    old, name = place.get("addr"), place["name"]
    place["addr"] = 123_456
    return [("locations", "readdressed", name, name, "addr", None if old is None else str(old), "123456")]


def add_instruction(function: Json, random: Random) -> list[tuple[Any, ...]]:
    block = random.choice(function["blocks"])["instructions"]
    place = random.randrange(len(block) + 1)
    edges = [[row["name"], "Flow"] for row in block[:place][-2:]]
    new = {"engine": "Pool", "ins": [], "name": "a new one", "opcode": "NoOp", "outs": []}
    block.insert(place, {"dependencies": edges, **new} if edges else new)
    told: list[tuple[Any, ...]] = [("instructions", "added", None, "a new one", None, None, "NoOp")]
    return [*told, *(("dependencies", "added", None, "a new one", None, None, on) for on, _ in edges)]


def target_of(entry: str | list[Any]) -> str:
    """Return what an edge names."""
    return entry if isinstance(entry, str) else entry[0]


def remove_instruction(function: Json, random: Random) -> list[tuple[Any, ...]]:
    row = random.choice([row for row in rows_of(function) if row["opcode"] != "NKIKernel"])
    name = row["name"]
    memory = [operand.get("memref", operand.get("memsetref")) for operand in [*row["ins"], *row["outs"]]]
    gone = [("instructions", name, row["opcode"])]
    gone += [("operands", name, location) for location in memory]
    gone += [("dependencies", name, target_of(entry)) for entry in row.get("dependencies", ())]
    for other, place in reversed(list(edges_on(function, name))):
        del other["dependencies"][place]
        if not other["dependencies"]:
            del other["dependencies"]
        gone.append(("dependencies", other["name"], name))
    for block in function["blocks"]:
        block["instructions"] = [other for other in block["instructions"] if other is not row]
    return [(table, "removed", owner, None, None, what, None) for table, owner, what in gone]


def rewire_operand(function: Json, random: Random) -> list[tuple[Any, ...]]:
    choices = [(row, o) for row in rows_of(function) for o in [*row["ins"], *row["outs"]] if "memref" in o]
    row, operand = random.choice(choices)
    sets = [s for s in function["allocations"] if s.get("memorylocations")]
    new = random.choice([s for s in sets if s["memorylocations"][0]["name"] != operand["memref"]])
    old, operand["memref"] = operand["memref"], new["memorylocations"][0]["name"]
    if "memsetref" in operand:
        operand["memsetref"] = new["name"]
    return [("operands", "rewired", row["name"], row["name"], "location_id", old, operand["memref"])]


def change_engine(function: Json, random: Random) -> list[tuple[Any, ...]]:
    row = random.choice(rows_of(function))
    old, row["engine"] = row["engine"], "Activation" if row["engine"] != "Activation" else "Pool"
    return [("instructions", "changed", row["name"], row["name"], "engine", old, row["engine"])]


EDITS = (
    rename_instruction,
    rename_location,
    move_location,
    add_instruction,
    remove_instruction,
    rewire_operand,
    change_engine,
)


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
@given(randoms)
@settings(max_examples=15)
def test_a_known_edit_is_told_exactly(edit: Any, random: Random) -> None:
    before, after = read(PLAIN), copy.deepcopy(PLAIN)
    function = random.choice(functions(after))
    expected = edit(function, random)
    changed = read(after)
    assert before is not None
    assert changed is not None
    found = air.diff(before, changed)
    columns = ["table", "what", "name_before", "name_after", "column", "before", "after"]
    assert sorted(found.rows.select(columns).rows(), key=repr) == sorted(expected, key=repr)
    assert set(found.rows["function"]) == {function["name"]}
    accounts(found)


@given(randoms, st.lists(st.sampled_from(EDITS), min_size=2, max_size=5, unique=True))
@settings(max_examples=15)
def test_edits_of_different_functions_are_told_side_by_side(random: Random, edits: list[Any]) -> None:
    """Each of several modules of a batch gets an edit of its own."""
    before = [read(PLAIN) for _ in edits]
    after: list[IR] = []
    expected: list[tuple[Any, ...]] = []
    for number, edit in enumerate(edits):
        document = copy.deepcopy(PLAIN)
        expected += [(f"m{number}", *row) for row in edit(random.choice(functions(document)), random)]
        after.append(air.read_json(json.dumps(document).encode(), name=f"m{number}"))
    names = [air.read_json(json.dumps(PLAIN).encode(), name=f"m{n}") for n in range(len(before))]
    found = air.diff(air.concat(names), air.concat(after))
    columns = ["module", "table", "what", "name_before", "name_after", "column", "before", "after"]
    assert sorted(found.rows.select(columns).rows(), key=repr) == sorted(expected, key=repr)


# -- inlining ----------------------------------------------------------------------------------------------------------


def targets(ir: IR) -> dict[int, tuple[str, int] | None]:
    """Return the location or set that each operand names."""
    found: dict[int, tuple[str, int] | None] = {}
    for row in ir.operands.select("id", "location_id", "set_id").iter_rows(named=True):
        if row["location_id"] is not None:
            found[row["id"]] = ("locations", row["location_id"])
        else:
            found[row["id"]] = None if row["set_id"] is None else ("sets", row["set_id"])
    return found


def check_inlining(document: Json) -> None:
    before = read(document)
    assert before is not None
    result = air.passes.inline_nki_kernel(before)
    assume(result.status.to_list() == ["changed"])
    after = result.ir
    found = air.diff(before, after)
    accounts(found)

    # Every inlined row is a clone of the row of its kernel that has its original name.
    chains = after.call_chains.select(pl.col("id").alias("call_chain_id"), pl.col("kernel").alias("of"))
    functions_before = before.functions.select(pl.col("id").alias("function_id"), pl.col("name").alias("of"))
    for table in ("instructions", "blocks", "sets", "locations", "registers"):
        rows = after.frame(table).filter(pl.col("call_chain_id").is_not_null()).join(chains, on="call_chain_id")
        clones = found.matches(table).filter("clone")
        joined = (
            rows.select(pl.col("id").alias("id_after"), "original_name", "of")
            .join(clones, on="id_after")
            .join(before.frame(table).select(pl.col("id").alias("id_before"), "name", "function_id"), on="id_before")
            .join(functions_before, on="function_id", suffix="_before")
        )
        assert joined.height == clones.height
        assert joined.filter(
            (pl.col("name") != pl.col("original_name")) | (pl.col("of") != pl.col("of_before"))
        ).is_empty()
        # What an inner call-site brought into a kernel, like a continuation, is a clone of nothing that was there.
        made = rows.join(clones, left_on="id", right_on="id_after", how="anti")
        named = before.frame(table).join(functions_before, on="function_id").select("of", pl.col("name").alias("was"))
        assert made.join(named, left_on=["of", "original_name"], right_on=["of", "was"], how="semi").is_empty()
        assert table in ("blocks", "instructions") or made.is_empty()

    # An operand of a clone is rewired exactly if it names something else than a clone of what the original names.
    origin = dict(found.matches("operands").filter("clone").select("id_after", "id_before").rows())
    things = {t: {a: (b, clone) for b, a, clone in found.matches(t).rows()} for t in ("locations", "sets")}
    chain_of = {
        t: dict(after.frame(t).select("id", "call_chain_id").rows()) for t in ("locations", "sets", "instructions")
    }
    owner = dict(after.operands.select("id", "instruction_id").rows())
    home = [dict(ir.locations.select("id", "set_id").rows()) for ir in (before, after)]
    old, new = targets(before), targets(after)
    expected: set[int] = set()
    for operand, original in origin.items():
        one, other = old[original], new[operand]
        if one is not None and other is not None and one[0] == "sets" and other[0] == "locations":
            other = ("sets", home[1][other[1]])  # unrolling has made an address of it
        if one is None or other is None:
            same = one is other
        else:
            was, clone = things[other[0]].get(other[1], (None, False))
            chain = chain_of["instructions"][owner[operand]]
            same = one == (other[0], was) and (not clone or chain_of[other[0]][other[1]] == chain)
        if not same:
            expected.add(operand)
    rewired = found.rows.filter(table="operands", what="rewired", column="location_id")
    assert set(rewired["id_after"]) & set(origin) == expected
    assert rewired.filter(pl.col("call_chain").is_not_null())["before"].null_count() == 0

    # Through Parquet nothing is lost, and without provenance what came and what went is counted all the same.
    plain = air.diff(before, air.read_json(after.to_json(), name="m"))
    accounts(plain)
    assert plain.rows["kernel"].drop_nulls().is_in(before.functions.filter("is_kernel")["name"].implode()).all()
    if not rebinding_names(after):  # of two things of one name a file can mean the other one (rule R7)
        assert not air.diff(after, air.read_json(after.to_json(), name="m"))


@given(calls)
@few
def test_inlining_is_accounted_for_row_by_row(document: Json) -> None:
    check_inlining(document)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@given(calls)
@many
def test_inlining_is_accounted_for_row_by_row_at_length(document: Json) -> None:
    check_inlining(document)


@given(unrollable_documents())
@few
def test_unrolling_is_accounted_for(document: Json) -> None:
    before = read(document)
    assert before is not None
    accounts(air.diff(before, air.passes.unroll(before).ir))


# -- orders ------------------------------------------------------------------------------------------------------------


def rising(values: list[int]) -> int:
    """Return the length of a longest rising subsequence."""
    best: list[int] = []
    for place, value in enumerate(values):
        best.append(1 + max((best[k] for k in range(place) if values[k] < value), default=0))
    return max(best, default=0)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), max_size=40, unique_by=lambda pair: pair[1]))
def test_as_few_rows_move_as_can_be(pairs: list[tuple[int, int]]) -> None:
    import numpy as np

    group: Array = np.array([g for g, _ in pairs], np.int64)
    value: Array = np.array([v for _, v in pairs], np.int64)
    moved = out_of_order(group, value)
    for one in range(4):
        mine = value[group == one].tolist()
        stays = value[(group == one) & ~moved].tolist()
        assert stays == sorted(stays)
        assert len(stays) == rising(mine)


def test_every_table_of_a_document_is_compared() -> None:
    assert set(TABLES) == set(schema.STORED) - {"call_chains"}
