"""Rules K1 to K4, `coalesce_multichannel_cc_ops`, clause by clause."""

import json
from functools import partial
from typing import Any

import pytest

import arrowir as air
from arrowir import build
from tests.oracle.builders import (
    axis,
    block,
    constant,
    flow,
    function,
    loop,
    module,
    names,
    op,
    register,
    row,
    rows,
    runtime,
)
from tests.single_pass import Json, Passed, read, refused, run_pass

NAME = "coalesce_multichannel_cc_ops"
coalesce = partial(run_pass, NAME)
GROUPS = [[0, 1], [2, 3]]
PAIRS = [[0, 1], [1, 0]]


def number(value: int) -> Json:
    """An operand that is told apart by its value."""
    return {"kind": "imm_value", "dtype": "int32", "value": value}


def channel(name: str, value: Any, **more: Any) -> Json:
    return op(name, "CollectiveCompute", kind="PermuteImplicit", cc_channel=value) | more


def body(*instructions: Json, **more: Any) -> Json:
    return module(function("main", [register("r"), register("s")], *instructions), **more)


def coalesced(*instructions: Json) -> Passed:
    return coalesce(body(*instructions))


def left(*instructions: Json) -> list[str]:
    """Run the pass and return the names of what is there afterwards."""
    return names(coalesced(*instructions).doc)


def mismatch(*instructions: Json) -> tuple[str | None, str, str | None]:
    """Run the pass, which fails: the compiler's code, the text, the instruction."""
    found = refused(NAME, body(*instructions))
    assert found.code == "collective_run_mismatch"
    assert (found.function, found.block) == ("main", "Block1")
    return found.compiler_code, found.message, found.instruction


# K1: which collectives make a run


def test_k1_channels_that_count_from_0() -> None:
    outcome = coalesced(op("p"), channel("a", 0), channel("b", 1), channel("c", 2), op("z"))
    assert outcome.status == "changed"
    assert names(outcome.doc) == ["p", "a", "z"]


def test_k1_a_run_starts_at_channel_0() -> None:
    assert left(channel("a", 0), channel("b", 1), channel("c", 0), channel("d", 1), channel("e", 0)) == ["a", "c", "e"]


def test_k1_a_run_of_one_is_unchanged() -> None:
    assert coalesced(channel("a", 0), op("z"), channel("b", 0), channel("c", 0)).status == "unchanged"


def test_k1_what_stands_before_a_channel_0_is_left_alone() -> None:
    assert left(channel("x", 3, op="add"), channel("y", 1), channel("a", 0), channel("b", 1)) == ["x", "y", "a"]


def test_k1_members_stand_next_to_each_other() -> None:
    assert coalesced(channel("a", 0), op("x"), channel("b", 1)).status == "unchanged"


def test_k1_members_stand_in_one_block() -> None:
    document = body(channel("a", 0))
    document["functions"][0]["blocks"].append(block("Block2", channel("b", 1)))
    assert coalesce(document).status == "unchanged"


@pytest.mark.parametrize("kind", ["PermuteImplicit", "PermuteReduceImplicit"])
def test_k1_both_kinds(kind: str) -> None:
    assert left(channel("a", 0, kind=kind), channel("b", 1, kind=kind)) == ["a"]


@pytest.mark.parametrize("more", [{"kind": "Permute"}, {"kind": "AllReduce"}, {"kind": None}, {"opcode": "Collective"}])
def test_k1_others_are_no_members_and_end_a_run(more: Json) -> None:
    assert left(channel("a", 0), channel("b", 1), channel("c", 2, **more), channel("d", 3)) == ["a", "c", "d"]


@pytest.mark.parametrize(
    "one", [constant(1), {"terms": [], "c": 1}, {"kind": "MultKind", "var": constant(1), "scale": 1}]
)
def test_k1_constant_expressions_are_channels(one: Any) -> None:
    assert left(channel("a", constant(0)), channel("b", one), channel("c", 2)) == ["a"]


@pytest.mark.parametrize(
    "unknown",
    [
        None,
        runtime("r"),
        {"kind": "ShardIDKind", "ub": 2},
        {"kind": "FloorDivKind", "numer": constant(1), "denom": 0},
        {"kind": "PermuteImplicit", "replica_groups": GROUPS},
        "1",
        True,
        1.0,
    ],
)
def test_k1_other_channels_are_no_constants_and_end_a_run(unknown: Any) -> None:
    assert left(channel("a", 0), channel("b", 1), channel("x", unknown), channel("y", 2)) == ["a", "x", "y"]


def test_k1_without_a_channel() -> None:
    bare = channel("x", 0)
    del bare["cc_channel"]
    assert coalesced(bare, channel("y", 1)).status == "unchanged"


def test_k1_predicates_and_blocks_are_not_merged() -> None:
    for more in ({"predicates": [{"p": 1}]}, {"blocks": [block("inner")]}):
        assert left(channel("a", 0), channel("b", 1, **more), channel("c", 2)) == ["a", "b", "c"]
    assert left(channel("a", 0), channel("b", 1, predicates=[])) == ["a"]


def test_k1_all_functions_and_loop_bodies() -> None:
    pair = (channel("a", 0), channel("b", 1))
    nest = loop("L", "i", (0, 2, 1), *pair)
    document = module(function("main", [], nest, *pair), function("f", [], *pair), kernels=[function("k", [], *pair)])
    outcome = coalesce(document).doc
    assert names(outcome) == ["L", "a"]
    assert [each["name"] for each in rows(outcome)[0]["blocks"][0]["instructions"]] == ["a"]
    assert names(outcome, 1) == ["a"]
    assert [each["name"] for each in outcome["nki_functions"]["functions"][0]["blocks"][0]["instructions"]] == ["a"]


def test_k1_r4_blocks_of_what_is_no_loop_are_data() -> None:
    inner = op("x", "DevicePrint", blocks=[block("inner", channel("a", 0), channel("b", 1))])
    assert coalesced(inner).status == "unchanged"


def test_k1_a_loop_over_channels_comes_back_together_after_unrolling() -> None:
    nest = loop("L", "i", (0, 3, 1), channel("a", axis("i"), ins=[number(7)]))
    assert coalesced(nest).status == "unchanged"
    ir = read(body(nest))
    doc = json.loads(air.run(ir, ["unroll", NAME]).ir.to_json(0))
    assert names(doc) == ["a-0"]
    assert [each["value"] for each in rows(doc)[0]["ins"]] == [7, 7, 7]


# K2: what a run agrees in


@pytest.mark.parametrize(
    ("code", "first", "other", "text"),
    [
        ("CCO001", {"op": "add"}, {"op": "max"}, "of the same Op, but got add != max"),
        ("CCO001", {}, {"op": "max"}, "of the same Op, but got bypass != max"),
        ("CCO002", {}, {"engine": "SP"}, "of the same Engine, but got Pool != SP"),
        (
            "CCO003",
            {},
            {"kind": "PermuteReduceImplicit"},
            "of the same Kind, but got PermuteImplicit != PermuteReduceImplicit",
        ),
        ("CCO004", {"replica_groups": GROUPS}, {"replica_groups": [[0, 1, 2, 3]]}, "of the same ReplicaGroups"),
        ("CCO004", {"replica_groups": GROUPS}, {}, "of the same ReplicaGroups"),
        ("CCO005", {"order": [1]}, {"order": [2]}, "of the same HasOrder"),
        ("CCO005", {"order": [runtime("r")]}, {"order": [runtime("s")]}, "of the same HasOrder"),
        ("CCO006", {}, {"can_read_uninit": True}, "of the same CanReadUninit"),
        ("CCO007", {"is_local": True}, {"is_local": None}, "of the same IsLocal"),
        ("CCO008", {"src_target_pairs": PAIRS}, {"src_target_pairs": [[1, 0]]}, "of the same SrcTargetPairs"),
    ],
)
def test_k2_neighbours_that_disagree(code: str, first: Json, other: Json, text: str) -> None:
    found = mismatch(op("x"), channel("a", 0, **first), channel("b", 1, **other))
    assert found == (code, f"Expected all consecutive CC compute ops to be {text}", "b")


@pytest.mark.parametrize("wrong", [2, -1, 7])
def test_k2_channels_that_do_not_count_on(wrong: int) -> None:
    text = (
        "Expected all consecutive CC compute ops to be of channel id starting at 0 and increasing by 1, but got "
        f"first: 0, curr: {wrong}"
    )
    assert mismatch(channel("a", 0), channel("b", wrong)) == ("CCO009", text, "b")
    assert mismatch(channel("a", 0), channel("b", 1), channel("c", 2), channel("d", wrong))[0] == "CCO009"


def test_k2_groups_and_pairs_together() -> None:
    both = {"replica_groups": GROUPS, "src_target_pairs": PAIRS}
    text = "Expected CC op to not have both ReplicaGroups and SrcTargetPairs"
    assert mismatch(channel("a", 0, **both), channel("b", 1, **both)) == ("CCO010", text, "b")
    assert coalesced(channel("a", 0, **both)).status == "unchanged"


def test_k2_the_lowest_code_and_the_first_instruction_count() -> None:
    assert mismatch(channel("a", 0), channel("b", 5, is_local=True, op="add"))[0] == "CCO001"
    found = mismatch(channel("a", 0), channel("b", 3), channel("c", 0), channel("d", 1, op="add"))
    assert found[::2] == ("CCO009", "b")
    inside = loop("L", "i", (0, 1, 1), channel("c", 0), channel("d", 1, op="add"))
    document = body(inside, channel("a", 0), channel("b", 3))
    assert refused(NAME, document).instruction == "d"  # a loop stands before what comes after it


@pytest.mark.parametrize(
    ("key", "same"),
    [
        ("op", ["bypass", None, ""]),
        ("replica_groups", [None, []]),
        ("order", [None, []]),
        ("can_read_uninit", [False, None, 0, constant(0)]),
        ("is_local", [False, None, 0, constant(0)]),
        ("src_target_pairs", [None, []]),
    ],
)
def test_k2_absent_null_empty_and_default_agree(key: str, same: list[Any]) -> None:
    members = [channel(f"c{n}", n + 1, **{key: value}) for n, value in enumerate(same)]
    assert left(channel("a", 0), *members) == ["a"]


def test_k2_equal_values_agree_however_they_are_written() -> None:
    one = channel("a", 0, order=[constant(2), runtime("r")], can_read_uninit=True)
    other = channel("b", 1, order=[2, {"regref": "r", "kind": "IntRuntimeValueKind"}], can_read_uninit=1)
    assert left(one, other) == ["a"]
    # A register elsewhere in the text does not shift what the placeholders mean.
    assert left(one, other | {"alpha": runtime("s")}) == ["a"]


def test_k2_other_keys_may_differ() -> None:
    assert left(channel("a", 0, stream_id=1, queue="q"), channel("b", 1, stream_id=2)) == ["a"]


def test_k2_o2_a_module_that_fails_comes_out_as_it_was_and_others_go_on() -> None:
    good = body(channel("a", 0), channel("b", 1))
    bad = body(channel("a", 0), channel("b", 1), channel("c", 0), channel("d", 2))
    ir = air.concat([read(bad, "bad"), read(good, "good")])
    result = air.passes.coalesce_multichannel_cc_ops(ir)
    assert result.status.to_list() == ["failed", "changed"]
    assert result.ir.to_json(0) == ir.to_json(0)
    assert names(json.loads(result.ir.to_json(1))) == ["a"]


# K3: the instruction that is left


def test_k3_operands_of_all_in_order() -> None:
    lists = ("ins", "indirection_ins", "outs")
    members = [
        channel(f"c{n}", n, **{key: [number(100 * n + 10 * k + m) for m in (1, 2)] for k, key in enumerate(lists)})
        for n in range(3)
    ]
    merged = rows(coalesced(*members, op("z", ins=[number(5)])).doc)[0]
    for k, key in enumerate(lists):
        assert [each["value"] for each in merged[key]] == [100 * n + 10 * k + m for n in range(3) for m in (1, 2)]


def test_k3_the_firsts_row_stays() -> None:
    first = channel("a", 0, debug={"lineno": 3}, stream_id=1, unknown=[1.0], optin_passes=7, ins=[number(1)])
    second = channel("b", 1, debug={"lineno": 4}, stream_id=2, pipe_id=9, ins=[number(2)])
    assert rows(coalesced(first, second).doc) == [first | {"ins": [number(1), number(2)]}]


def test_k3_operands_keep_their_registers() -> None:
    held = {"kind": "register_access", "dtype": "int32", "regref": "s"}
    symbolic = {"kind": "symbolic_imm_value", "dtype": "int32", "value_list": [1], "expr": runtime("r")}
    merged = rows(coalesced(channel("a", 0), channel("b", 1, ins=[held, symbolic])).doc)[0]
    assert merged["ins"] == [held, symbolic]


def test_k3_f6_a_list_that_the_first_lacks() -> None:
    def keys(first: Json) -> list[str]:
        other = channel("b", 1, indirection_ins=[number(1)], dependencies=["p"], sync_info={"on_update": [{"id": 1}]})
        return list(row(coalesced(op("p"), first, other).doc, "a"))

    apart = channel("a", 0)
    assert keys(apart) == [*apart, "dependencies", "indirection_ins", "sync_info"]
    ordered = {key: apart[key] for key in sorted(apart)}
    assert keys(ordered) == sorted([*apart, "dependencies", "indirection_ins", "sync_info"])


def test_k3_waits_and_updates_of_all_in_order() -> None:
    def sync(n: int) -> Json:
        wait = {"from": "p", "id": n, "wait_value": 1}
        return {"on_wait": [wait], "on_update": [{"id": 10 + n, "update_value": 1}], "more": n}

    members = [channel(f"c{n}", n, sync_info=sync(n)) for n in range(3)]
    merged = row(coalesced(op("p"), *members).doc, "c0")["sync_info"]
    assert [each["id"] for each in merged["on_wait"]] == [0, 1, 2]
    assert [each["id"] for each in merged["on_update"]] == [10, 11, 12]
    assert merged["more"] == 0
    assert list(merged) == ["on_wait", "on_update", "more"]


@pytest.mark.parametrize("first", [None, {}, {"on_wait": []}, {"z": 1}])
def test_k3_waits_that_only_a_later_one_has(first: Any) -> None:
    later = {"on_wait": [{"id": 3, "from": "elsewhere", "wait_value": 1}], "more": 5}
    merged = rows(coalesced(channel("a", 0, sync_info=first), channel("b", 1, sync_info=later)).doc)[0]["sync_info"]
    assert merged == (first or {}) | {"on_wait": later["on_wait"]}


def test_k3_null_and_absent_stay_where_nothing_comes() -> None:
    first = channel("a", 0, sync_info=None, indirection_ins=None, dependencies=[])
    later = channel("b", 1, sync_info={"on_wait": []}, dependencies=["a"], indirection_ins=[])
    assert rows(coalesced(first, later).doc) == [first]


# K4: edges

PLAIN, CARRIED, UNROLL = "dependencies", "loop_carried_dependencies", "unroll_dependencies"


def test_k4_member_by_member() -> None:
    outcome = coalesced(
        op("p"),
        op("q"),
        channel("a", 0, **{PLAIN: [["q", "Anti"]], CARRIED: ["p"]}),
        channel("b", 1, **{PLAIN: ["p", ["gone", "Flow"]], CARRIED: [["q", "Flow", 2]], UNROLL: [["p", "Flow", []]]}),
    )
    merged = row(outcome.doc, "a")
    assert merged[PLAIN] == [["q", "Anti"], "p", ["gone", "Flow"]]
    assert merged[CARRIED] == ["p", ["q", "Flow", 2]]
    assert merged[UNROLL] == [["p", "Flow", []]]


def test_k4_edges_inside_the_run_go() -> None:
    first = channel("a", 0, dependencies=["a"])
    outcome = coalesced(op("p"), first, channel("b", 1, dependencies=["a", "c"]), channel("c", 2, dependencies=["b"]))
    assert PLAIN not in row(outcome.doc, "a")
    kept = coalesced(op("p"), channel("a", 0), channel("b", 1, dependencies=["a", "p"], **{CARRIED: ["b"]}))
    assert row(kept.doc, "a") == channel("a", 0) | {PLAIN: ["p"]}


def test_k4_equal_ones_are_kept_once() -> None:
    members = [
        channel("a", 0, dependencies=["p", ["p", "Flow"], ["p", "Anti"]]),
        channel("b", 1, dependencies=[["p", 4], ["p", "Anti"], ["p", "Flow", "x"], ["gone", "Flow"]]),
        channel("c", 2, dependencies=["gone", ["p", "Flow", "x"], ["other", "Flow"]]),
    ]
    merged = row(coalesced(op("p"), *members).doc, "a")
    assert merged[PLAIN] == ["p", ["p", "Anti"], ["p", "Flow", "x"], ["gone", "Flow"], ["other", "Flow"]]


def test_k4_registers_in_index_expressions_are_told_apart() -> None:
    members = [
        channel("a", 0, **{UNROLL: [["p", "Flow", [runtime("r")]]]}),
        channel("b", 1, **{UNROLL: [["p", "Flow", [runtime("s")]], ["p", "Flow", [runtime("r")]]]}),
    ]
    merged = row(coalesced(op("p"), *members).doc, "a")
    assert merged[UNROLL] == [["p", "Flow", [runtime("r")]], ["p", "Flow", [runtime("s")]]]


def test_k4_edges_on_members_go_to_the_first() -> None:
    outcome = coalesced(
        channel("a", 0),
        channel("b", 1),
        channel("c", 2),
        op("y", dependencies=["c"]),
        op("z", dependencies=["b", ["a", "Flow"], "y", "y", ["c", "Anti"], "c"], **{CARRIED: ["b"]}),
        op("h", "BranchHint", hint="LikelyTaken", associate_branch="c"),
        op("w", sync_info={"on_wait": [{"id": 1, "from": "b", "wait_value": 1}]}),
    )
    assert row(outcome.doc, "y")[PLAIN] == ["a"]
    # What is not on the run is left as it is, even where it stands twice.
    assert row(outcome.doc, "z")[PLAIN] == ["a", "y", "y", ["a", "Anti"]]
    assert row(outcome.doc, "z")[CARRIED] == ["a"]
    assert row(outcome.doc, "h")["associate_branch"] == "a"
    assert row(outcome.doc, "w")["sync_info"]["on_wait"][0]["from"] == "a"


def test_k4_between_runs() -> None:
    outcome = coalesced(
        channel("a", 0), channel("b", 1), channel("c", 0, dependencies=["a"]), channel("d", 1, dependencies=["b", "c"])
    )
    assert names(outcome.doc) == ["a", "c"]
    assert row(outcome.doc, "c")[PLAIN] == ["a"]


def test_k4_of_and_on_nested_code() -> None:
    inner = loop("L", "i", (0, 2, 1), op("x", dependencies=["b"]))
    outcome = coalesced(channel("a", 0), channel("b", 1), inner, channel("c", 0), channel("d", 1, dependencies=["x"]))
    assert flow(outcome.doc) == {"Block1": ["a", "L", "c"]}
    assert rows(outcome.doc)[1]["blocks"][0]["instructions"][0][PLAIN] == ["a"]
    assert row(outcome.doc, "c")[PLAIN] == ["x"]


# The pipeline, and what the module computes


def test_k1_p1_the_pass_runs_after_each_turn_of_inlining() -> None:
    steps = [(step.order, step.name) for step in air.passes.default_steps()]
    assert (42, NAME) in steps
    assert (62, NAME) in steps


def exchange(channels: int) -> air.IR:
    """Return a module that sends parts of an input to parts of an output, one collective each."""
    made = build.module(arch="gen3")
    main = made.function("main")
    x, y = main.input("x", [4, 8 * channels]), main.output("y", [4, 8 * channels])
    part = [[8 * channels, 4], [1, 8]]
    previous: list[Any] = []
    for n in range(channels):
        add = main.add(
            "CollectiveCompute",
            [x.at(0, 8 * n, pattern=part)],
            [y.at(0, 8 * n, pattern=part)],
            engine="Pool",
            after=previous,
            kind="PermuteImplicit",
            cc_channel=n,
            replica_groups=[[0]],
        )
        previous = [add]
    return made.ir("exchange")


@pytest.mark.parametrize("channels", [2, 5])
def test_k3_the_module_computes_what_it_did(channels: int) -> None:
    before = exchange(channels)
    unrolled = air.passes.unroll(before).ir
    after = air.passes.coalesce_multichannel_cc_ops(unrolled, strict=True).ir
    assert after.count("instructions") == 1
    assert after.count("operands") == 2 * channels
    compared = air.equivalent(before, after)
    assert compared.ok, compared.frame
