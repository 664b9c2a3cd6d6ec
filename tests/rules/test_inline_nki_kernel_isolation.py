"""Rules O2 and O9: modules that fail do not touch the others of a batch, whatever is wrong with them."""

from typing import Any

import pytest

import arrowir as air
from arrowir.ir import IR
from arrowir.passes import inline_nki_kernel as implementation
from tests.block_bodies import many
from tests.oracle.builders import access, axis, block, call, function, jump, loop, memory_set, module, op, rows, sb_set
from tests.oracle.calls import bare, one_call
from tests.oracle.nested_calls import bound, nested, scratch
from tests.single_pass import Json, read, written

SPLIT = function("k2", [], blocks=[block("b1", op("K1")), block("b2", jump("J", "b1")), block("b3")])


def good(number: int) -> Json:
    """A module that can be inlined, of one of 30 kinds."""
    kinds: list[Json] = [
        bound(),
        scratch(),
        nested(op("A"), call("D", "k2"), call("E", "k2", dependencies=["D"])),
        nested(call("D", "k2"), op("A", dependencies=["D"]), inner=SPLIT),
        nested(loop("L", "i", (0, 3, 1), call("D", "k2")), inner=function("k2", [sb_set("t_set", 64)], *many(9))),
        nested(call("D", "k2", is_allocated=True), op("R", "Return"), op("A")),
        nested(op("A"), call("D", "k2", dependencies=["A"]), op("B", dependencies=["D"]), inner=function("k2", [])),
        bare(op("K"), jump("J", "Block1")),
        one_call(op("p")),
        module(function("main", [memory_set("t_set")], op("w", outs=[access("t")]))),
    ]
    document = kinds[number % 10]
    rows(document).insert(0, op(f"first{number // 10 % 3}"))
    return document


def spoilt() -> dict[str, Json]:
    """Ten modules that fail, each in a way of its own, at every stage of the checks; by their codes."""
    gone = op("K", ins=[access("gone")])
    zero = loop("L", "i", (0, 1, 0), op("K"))
    wide = loop("L", "i", (0, 10**9, 1), op("K"))
    return {
        "no_callee": nested(call("D", "nobody")),
        "ambiguous_callee": module(function("main", [], call("C")), kernels=[function("k", []), function("k", [])]),
        "recursive_kernel": nested(call("D", "k2"), inner=function("k2", [], call("X", "k1"))),
        "too_many_instructions": nested(call("D", "k2"), inner=function("k2", [], wide)),
        "unknown_kernel_source": nested(call("D", "k2", kernel_source_val="no")),
        "unbound_parameter": bound(func_args={}),
        "unresolved_name": nested(call("D", "k2"), inner=function("k2", [], op("J"), gone)),
        "zero_stride": nested(call("D", "k2"), zero),
        "dynamic_loop": nested(loop("L", "i", (0, axis("L"), 1), call("D", "k2")), inner=SPLIT),
        "sb_overflow": nested(call("D", "k2"), inner=function("k2", [sb_set("t_set", 229_376, allocated=False)])),
    }


def batch_of(count: int, bad: dict[str, Json]) -> tuple[list[Json], dict[int, str]]:
    """So many modules, bad ones spread among them; and the code of each bad one by its number."""
    documents = [good(number) for number in range(count)]
    places = {(3 + 97 * n) % count: code for n, code in enumerate(bad)}
    assert len(places) == len(bad)
    for place, code in places.items():
        documents[place] = bad[code]
    return documents, places


def read_all(documents: list[Json], named: dict[int, str] | None = None) -> IR:
    """One batch, in which equal documents are read once; some modules have names of their own."""
    names = [(named or {}).get(n, "m") for n in range(len(documents))]
    wanted = list(zip(map(written, documents), names, strict=True))
    parts = {key: air.read_json(key[0], name=key[1]) for key in dict.fromkeys(wanted)}
    return air.concat([parts[key] for key in wanted])


def alone(documents: list[Json], places: dict[int, str], **options: Any) -> dict[bytes, tuple[bytes, str, list[str]]]:
    """What becomes of each distinct good module by itself: its text, its status, and the codes of its messages."""
    found: dict[bytes, tuple[bytes, str, list[str]]] = {}
    for number, document in enumerate(documents):
        if number not in places and written(document) not in found:
            result = air.passes.inline_nki_kernel(read(document), **options)
            codes = [message.code for message in result.messages]
            found[written(document)] = result.ir.to_json(0), result.status[0], codes
    return found


@pytest.mark.parametrize("allocated", [None, False])
def test_o2_o9_990_modules_come_out_as_if_the_10_bad_ones_were_not_there(allocated: bool | None) -> None:
    documents, places = batch_of(1000, spoilt())
    expected = alone(documents, places, allocated=allocated)
    assert len(expected) == 30
    result = air.passes.inline_nki_kernel(read_all(documents), allocated=allocated)
    codes: dict[int, list[str]] = {}
    for message in result.messages:
        codes.setdefault(message.module_id or 0, []).append(message.code)
    for number, document in enumerate(documents):
        if number in places:
            assert (result.status[number], codes[number]) == ("failed", [places[number]])
            assert result.ir.to_json(number) == written(document)
        else:
            text, status, messages = expected[written(document)]
            assert result.ir.to_json(number) == text
            assert (result.status[number], codes.get(number, [])) == (status, messages)
    assert result.status.value_counts(sort=True)["status"].to_list()[:1] == ["changed"]


def test_o9_a_defect_in_the_midst_of_inlining_fails_only_the_module_that_meets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = implementation.canonicalise

    def canonicalise(ir: IR, *rest: Any) -> Any:
        if not ir.modules.filter(name="cursed").is_empty():
            raise ZeroDivisionError("a defect")
        return make(ir, *rest)

    monkeypatch.setattr(implementation, "canonicalise", canonicalise)
    documents = [good(number) for number in range(200)]
    documents[150] = spoilt()["zero_stride"]
    result = air.passes.inline_nki_kernel(read_all(documents, {3: "cursed", 100: "cursed"}))
    failed = [n for n, status in enumerate(result.status.to_list()) if status == "failed"]
    assert failed == [3, 100, 150]
    errors = [(m.module_id, m.code) for m in result.messages if m.severity == "error"]
    assert errors == [(3, "internal_error"), (100, "internal_error"), (150, "zero_stride")]
    assert all(result.ir.to_json(n) == written(documents[n]) for n in failed)
    expected = alone(documents, dict.fromkeys(failed, ""))
    for number, document in enumerate(documents):
        if number not in failed:
            assert result.ir.to_json(number) == expected[written(document)][0]


def test_o9_modules_that_raise_only_together_do_not_touch_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect that two modules have in common, beside one that raises alone."""
    make = implementation.canonicalise

    def canonicalise(ir: IR, *rest: Any) -> Any:
        names = set(ir.modules["name"])
        if "cursed" in names or {"one", "other"} <= names:
            raise MemoryError("a defect")
        return make(ir, *rest)

    monkeypatch.setattr(implementation, "canonicalise", canonicalise)
    documents = [good(number) for number in range(24)]
    names = {3: "one", 10: "cursed", 20: "other"}
    result = air.passes.inline_nki_kernel(read_all(documents, names))
    assert [n for n, status in enumerate(result.status.to_list()) if status == "failed"] == [10]
    (error,) = [m for m in result.messages if m.severity == "error"]
    assert (error.module_id, error.module, error.code) == (10, "cursed", "internal_error")
    assert result.ir.modules["name"].to_list() == [names.get(n, "m") for n in range(24)]
    expected = alone(documents, {10: ""})
    for number, document in enumerate(documents):
        if number != 10:
            text, status, messages = expected[written(document)]
            assert (result.ir.to_json(number), result.status[number]) == (text, status)
            assert [m.code for m in result.messages if m.module_id == number] == messages
