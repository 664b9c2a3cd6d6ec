"""The verifier takes whatever a file may hold: it finds fault, and raises nothing."""

from typing import Any

import polars as pl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import arrowir as air
from arrowir.testing.strategies import documents, inlinable_documents, reservable_documents, unrollable_documents
from tests.single_pass import frozen, read

relaxed = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
anything = st.one_of(
    documents(), inlinable_documents(multi_block=True, nested=True), unrollable_documents(), reservable_documents()
)


@settings(relaxed, max_examples=60)
@given(anything)
def test_any_module_can_be_verified(document: Any) -> None:
    ir = read(document)
    held = frozen(ir)
    found = air.verify(ir, "all")
    assert frozen(ir) == held
    assert found["message"].null_count() == 0
    assert found["module_id"].null_count() == 0
    assert found.equals(air.verify(read(document), "all"))
    for call in (air.footprints, air.overlaps, air.live_ranges):
        assert call(ir)["module_id"].null_count() == 0


@settings(relaxed, max_examples=15)
@given(st.lists(anything, min_size=2, max_size=3))
def test_a_batch_gives_what_its_modules_give(drawn: list[Any]) -> None:
    columns = (
        "rule",
        "message",
        "function",
        "block",
        "instruction",
        "slot",
        "set",
        "location",
        "kernel",
        "original_name",
    )
    modules = [read(document) for document in drawn]
    every = air.verify(air.concat(modules), "all").select("module_id", *columns)
    single = [
        air.verify(ir, "all").select(pl.lit(k, pl.Int32).alias("module_id"), *columns) for k, ir in enumerate(modules)
    ]
    assert every.equals(pl.concat(single))
