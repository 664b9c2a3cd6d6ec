"""Fewer cases by default: of a test over many parameters those in which any two of their values meet."""

from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

import pytest

FEW = 12
"""Tests of no more cases run all of them."""
SIZES = ("partitions", "rows", "columns", "count")
"""Parameters that need not meet every value of the others."""


def values(case: pytest.Function) -> Iterator[object]:
    """Return what a case shows: the value of each parameter, and which of them meet, those of sizes aside."""
    known = sorted((name, repr(value)) for name, value in case.callspec.params.items())
    yield from known
    yield from combinations([(name, value) for name, value in known if name not in SIZES], 2)


def left_out(cases: Sequence[pytest.Function]) -> Iterator[pytest.Function]:
    """Return the cases of a test that show nothing that others do not."""
    shown = {case: set(values(case)) for case in cases}
    missing = set[object]().union(*shown.values())
    while missing:
        best = max(shown, key=lambda case: len(shown[case] & missing))
        missing -= shown.pop(best)
    yield from shown


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the others as slow."""
    tests: dict[object, list[pytest.Function]] = {}
    mine = [item for item in items if isinstance(item, pytest.Function) and item.path.parent == Path(__file__).parent]
    for item in mine:
        if hasattr(item, "callspec"):
            tests.setdefault((item.path, item.originalname), []).append(item)
    for cases in tests.values():
        if len(cases) > FEW:
            for case in left_out(cases):
                case.add_marker(pytest.mark.slow)
