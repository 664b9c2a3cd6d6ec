"""What all tests share: Hypothesis profiles and golden text."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

GOLDEN = Path(__file__).parent / "golden"

# No deadlines: the first example of a test may compile a loop. A continuous-integration run always tries the
# same examples, so that a red one can be repeated and a change is not blamed for a find of chance.
settings.register_profile("default", deadline=None, max_examples=50)
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=400)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write the texts that golden tests produce to tests/golden/ instead of comparing them",
    )


REACHED = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return `report(text)`: the text is shown when all tests have run, whether they pass or not."""
    return request.config.stash.setdefault(REACHED, []).append


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what was told in a process of its own to the one that has the terminal."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["reached"] = session.config.stash.get(REACHED, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take it over there."""
    node.config.stash.setdefault(REACHED, []).extend(getattr(node, "workeroutput", {}).get("reached", []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what generators have reached, so that one that tests nothing is seen."""
    told = dict.fromkeys(config.stash.get(REACHED, []))
    if told:
        terminalreporter.section("what drawn modules reached")
        for text in told:
            terminalreporter.write_line(textwrap.fill(text, 118, subsequent_indent="  ", break_on_hyphens=False))


def check_golden(path: Path, text: str, *, update: bool) -> None:
    """Compare `text` with the file, or write it there when `update`."""
    if update:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        return
    hint = "when the new text is right, run pytest with `--update-golden`"
    if not path.exists():
        pytest.fail(f"no golden file `{path.name}`; {hint}; the text is:\n{text}")
    assert text == path.read_text(encoding="utf-8"), f"the text differs from `{path.name}`; {hint}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Return `golden(name, text)`: the text must equal `tests/golden/<name>.txt`."""
    update = bool(request.config.getoption("--update-golden"))
    return lambda name, text: check_golden(GOLDEN / f"{name}.txt", text, update=update)
