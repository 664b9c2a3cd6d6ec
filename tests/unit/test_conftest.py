"""The golden fixture itself."""

from pathlib import Path

import pytest

from tests.conftest import check_golden


def test_golden_text_is_written_then_compared(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "listing.txt"
    check_golden(path, "one\ntwo\n", update=True)
    check_golden(path, "one\ntwo\n", update=False)
    with pytest.raises(AssertionError, match="update-golden"):
        check_golden(path, "one\n2\n", update=False)


def test_missing_golden_text_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="no golden file"):
        check_golden(tmp_path / "listing.txt", "one\n", update=False)
    assert not (tmp_path / "listing.txt").exists()
