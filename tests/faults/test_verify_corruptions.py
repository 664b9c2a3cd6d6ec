"""A thousand corruptions of single cells: how many are noticed is as recorded, and most are."""

import json

import pytest

from tests.faults import corruptions


def test_the_recorded_counts_are_of_a_thousand_and_most_are_noticed() -> None:
    rows = json.loads(corruptions.RECORDED.read_text())
    missed = sum(row["nothing"] for row in rows)
    assert sum(sum(v for v in row.values() if isinstance(v, int)) for row in rows) == corruptions.TOTAL
    assert missed < corruptions.TOTAL // 2


@pytest.mark.slow
def test_the_counts_are_as_recorded() -> None:
    assert corruptions.measured() == json.loads(corruptions.RECORDED.read_text())
