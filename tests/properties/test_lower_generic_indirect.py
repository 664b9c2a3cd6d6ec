"""The pass `lower_generic_indirect` against the oracle and by execution; batches against their modules one by one."""

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir.passes.base import STATUS
from arrowir.passes.lower_generic_indirect import LowerGenericIndirect, lower, needs_lowering
from arrowir.testing.assertions import assert_valid
from tests.oracle import run_inline, run_lower
from tests.properties.indirects import indirect_module
from tests.single_pass import frozen, read, written

# One number each: so many choices, drawn one by one, would be too much for Hypothesis.
seeds = st.integers(0, 2**32)
Json = dict[str, Any]


def generics(document: Json) -> list[Json]:
    rows = document["functions"][0]["blocks"][0]["instructions"]
    return [row for row in rows if row["opcode"].startswith("Generic")]


def operands(row: Json) -> list[Json]:
    """The operands of indices, those at least that may be some."""
    return [*row["ins"][1:], *row.get("indirection_ins", [])]


def table(row: Json) -> Json:
    return row["outs"][0] if row["opcode"] == "GenericIndirectSave" else row["ins"][0]


def storage(document: Json, name: str) -> Json:
    return next(a for a in document["functions"][0]["allocations"] if a["name"] == name)


FAULTS: list[Callable[[Json, Json, Random], Any]] = [
    lambda d, g, r: g.update(indirect_dims=g["indirect_dims"][1:]),
    lambda d, g, r: g.update(indirect_dims="W"),
    lambda d, g, r: g.update(indirect_dims=None),
    lambda d, g, r: g.update(indirect_dims=["Y", "?", "W"][: len(g["indirect_dims"])]),
    lambda d, g, r: g.update(predicates=[{}]),
    lambda d, g, r: g.update(op="max"),
    lambda d, g, r: g["outs"].append(copy.deepcopy(g["outs"][0])),
    lambda d, g, r: r.choice(operands(g)).update(kind="symbolic_ap"),
    lambda d, g, r: r.choice(operands(g)).update(dynamic_ap_info={"c": 0}),
    lambda d, g, r: r.choice(operands(g))["ap"][1].__setitem__(1, 2),
    lambda d, g, r: r.choice(operands(g))["ap"].append([1, 1]),
    lambda d, g, r: r.choice(operands(g))["ap"][0].__setitem__(1, 5),
    lambda d, g, r: r.choice(operands(g)).update(memref="gone"),
    lambda d, g, r: r.choice(operands(g)).update(dtype="int16"),
    lambda d, g, r: storage(d, r.choice(operands(g))["memsetref"]).update(tensor_shape=[4, 4]),
    lambda d, g, r: table(g).update(memsetref="gone", memref="gone"),
    lambda d, g, r: table(g).update(kind="register_ap", memsetref=table(g)["memsetref"]),
    lambda d, g, r: storage(d, table(g)["memsetref"])["memorylocations"][0].update(type="SB"),
    lambda d, g, r: storage(d, table(g)["memsetref"]).update(tensor_shape=[4]),
    lambda d, g, r: storage(d, table(g)["memsetref"])["memorylocations"].clear(),
    lambda d, g, r: table(g)["ap"][-1].__setitem__(0, 2),
    lambda d, g, r: table(g)["ap"][0].__setitem__(1, 7),
    lambda d, g, r: table(g).get("addrs", [{}])[-1].update(c=1 << 41),
    lambda d, g, r: table(g).get("addrs", [None]).__setitem__(-1, {"kind": "ShardIDKind", "ub": 2}),
    lambda d, g, r: table(g).get("addrs", [None]).__setitem__(0, {"kind": "IndirectArgId", "arg_id": 9}),
    lambda d, g, r: (
        table(g)
        .get("addrs", [None])
        .__setitem__(0, {"kind": "FloorDivKind", "numer": {"kind": "IndirectArgId", "arg_id": 1}, "denom": 2})
    ),
    lambda d, g, r: table(g).get("dynamic_ap_info", {}).update(c=1, indirect_dim="X"),
    lambda d, g, r: table(g).update(tensor_indirect_arg_id=1),
]


def drawn(seed: int, *, faulty: bool = False) -> Json:
    random = Random(seed)
    document, _ = indirect_module(random)
    if faulty:
        row = random.choice(generics(document))
        random.choice(FAULTS)(document, row, random)
    return document


def check_against_the_oracle(document: Json) -> list[str]:
    ir = read(document)
    held = frozen(ir)
    result = LowerGenericIndirect()(ir)
    outcome = run_lower(document)
    assert_valid(result.ir)
    assert frozen(ir) == held
    found, expected = (
        [(m.code, m.function, m.block, m.instruction) for m in rows] for rows in (result.messages, outcome.diagnostics)
    )
    assert found == expected
    if outcome.diagnostics and outcome.diagnostics[0].code == "generic_indirect_invariant":
        assert result.messages[0].message == outcome.diagnostics[0].message
    assert STATUS[int(result.codes[0])] == outcome.status
    after = result.ir.to_json(0)
    # Text, so that the order of members counts, and 1 is not 1.0.
    assert json.dumps(json.loads(after)) == json.dumps(outcome.doc)
    assert (outcome.status == "changed") == (after != written(document))
    return [m.code for m in result.messages] or [outcome.status]


@settings(max_examples=30)
@given(seeds)
def test_drawn_documents(seed: int) -> None:
    check_against_the_oracle(drawn(seed))


@settings(max_examples=50)
@given(seeds)
def test_faulty_documents(seed: int) -> None:
    check_against_the_oracle(drawn(seed, faulty=True))


@settings(max_examples=20)
@given(seeds)
def test_what_is_lowered_computes_what_it_did(seed: int) -> None:
    document, inputs = indirect_module(Random(seed))
    ir = read(document)
    result = LowerGenericIndirect()(ir)
    assert result.status.to_list() == ["changed"]
    compared = air.equivalent(ir, result.ir, inputs=inputs, trials=1)
    assert compared.ok, compared.frame["reason"].to_list()


def in_a_kernel(document: Json, calls: int = 1) -> Json:
    """Make a kernel of the function, which is called."""
    made = copy.deepcopy(document)
    main = made["functions"][0]
    kernel = {**copy.deepcopy(main), "name": "k"}
    outside = [each for each in main["allocations"] if each["kind"] != "Internal"]
    names = {
        key: {a["memorylocations"][0]["name"]: a["memorylocations"][0]["name"] for a in outside if a["kind"] == kind}
        for key, kind in (("func_args", "ExternalInput"), ("func_outs", "ExternalOutput"))
    }
    sites = [
        {"name": f"c{n}", "opcode": "NKIKernel", "engine": "Pool", "ins": [], "outs": [], "func": "k", **names}
        for n in range(calls)
    ]
    main |= {"allocations": outside, "blocks": [{"name": "b0", "instructions": sites}]}
    return made | {"nki_functions": {"functions": [kernel]}}


@settings(max_examples=12)
@given(seeds, st.integers(1, 2))
def test_kernels_are_lowered_when_they_are_inlined(seed: int, calls: int) -> None:
    plain, inputs = indirect_module(Random(seed))
    document = in_a_kernel(plain, calls)
    ir = read(document)
    result = air.passes.inline_nki_kernel(ir)
    assert result.status.to_list() == ["changed"]
    assert_valid(result.ir)
    assert not [opcode for opcode in result.ir.instructions["opcode"].to_list() if opcode.startswith("Generic")]
    assert json.dumps(json.loads(result.ir.to_json(0))) == json.dumps(run_inline(document).doc)
    compared = air.equivalent(ir, result.ir, inputs=inputs, trials=1)
    assert compared.ok, compared.frame["reason"].to_list()


@settings(max_examples=10)
@given(st.lists(st.tuples(seeds, st.booleans()), min_size=2, max_size=4))
def test_o5_a_batch_is_its_modules_one_by_one(batch: list[tuple[int, bool]]) -> None:
    documents = [drawn(seed, faulty=faulty) for seed, faulty in batch]
    ir = air.concat([read(document, f"m{n}") for n, document in enumerate(documents)])
    result = LowerGenericIndirect()(ir)
    assert_valid(result.ir)
    for module_id, document in enumerate(documents):
        alone = LowerGenericIndirect()(read(document))
        assert result.ir.to_json(module_id) == alone.ir.to_json(0)
        assert result.codes[module_id] == alone.codes[0]
        mine = [(m.code, m.message, m.instruction) for m in result.messages if m.module_id == module_id]
        assert mine == [(m.code, m.message, m.instruction) for m in alone.messages]


@settings(max_examples=10)
@given(st.lists(seeds, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_lower_does_to_some_functions_what_the_pass_does(batch: list[int], random: Random) -> None:
    ir = air.concat([read(in_a_kernel(drawn(seed)), f"m{n}") for n, seed in enumerate(batch)])
    assert needs_lowering(ir).tolist() == [False, True] * len(batch)
    chosen = np.array([random.random() < 0.5 for _ in range(ir.count("functions"))])
    some, every = lower(ir, chosen), lower(ir, np.ones(len(chosen), bool))
    assert not some.failures
    assert_valid(some.ir)
    for module_id in range(len(ir)):
        before, whole, part = (json.loads(each.to_json(module_id)) for each in (ir, every.ir, some.ir))
        assert part["functions"] == before["functions"]
        kernels = [each["nki_functions"]["functions"] for each in (before, whole, part)]
        assert kernels[2] == kernels[1 if chosen[2 * module_id + 1] else 0]


@pytest.mark.slow
def test_many_drawn_documents() -> None:
    codes = {code for seed in range(600) for code in check_against_the_oracle(drawn(seed, faulty=seed % 2 == 1))}
    assert codes >= {
        "changed", "address_out_of_bounds", "address_rank_mismatch", "bad_expression", "generic_indirect_invariant",
        "not_supported", "predicated_instruction", "runtime_address", "symbolic_location_count", "unresolved_name",
    }  # fmt: skip
