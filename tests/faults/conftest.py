"""What the tests of deliberate faults share."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def quiet() -> Iterator[None]:
    """Passes log the tracebacks of defects, which faults are."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
