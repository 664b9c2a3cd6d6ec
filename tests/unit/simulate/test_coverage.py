"""The table of what is modelled, and the page that shows it."""

import re
from pathlib import Path

import arrowir as air
from arrowir.simulate.registry import handlers
from arrowir.vocabulary import OPCODES
from docs.generator import coverage

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent


def rows() -> list[list[str]]:
    """Return the cells of the opcodes' table."""
    page = coverage.page()
    part = page.split("\n## Opcodes\n")[1].split("\n## ")[0]
    return [re.split(r"(?<!\\) \| ", line[2:-2]) for line in part.splitlines()[3:] if line.startswith("| ")]


def test_every_opcode_has_a_row_once() -> None:
    names = [row[1].strip("`") for row in rows()]
    assert names == [*OPCODES.values, *(name for name in handlers() if OPCODES.code(name) < 0)]
    numbers = [row[0] for row in rows()]
    assert set(map(str, range(110))) <= set(numbers)


def test_every_modelled_opcode_has_a_test_file_that_names_it() -> None:
    modelled = [row for row in rows() if row[2] != "not modelled"]
    assert {row[1].strip("`") for row in modelled} == set(handlers())
    for _, opcode, basis, computes, tests in modelled:
        assert basis in ("certain", "strong", "inferred")
        assert len(computes) > 3
        assert f'"{opcode.strip("`")}"' in (HERE / tests.strip("`")).read_text(encoding="utf-8")


def test_every_opcode_that_is_not_modelled_says_why() -> None:
    refused = [row for row in rows() if row[2] == "not modelled"]
    assert refused
    for row in refused:
        assert len(row[3]) > 10, row
        assert row[4] == ""
    table = air.simulate.coverage()
    assert table.filter("modelled")["why_not"].null_count() == table["modelled"].sum()
    assert table.filter(~table["modelled"])["why_not"].null_count() == 0


def test_every_undecided_case_is_on_the_page() -> None:
    part = coverage.page().split("\n## Undecided cases\n")[1]
    listed = re.findall(r"^\| (?:`(\w+)`)? \| .* \| `([^`]+)` \| .* \|$", part, re.MULTILINE)
    cases: dict[str, list[str]] = {}
    for case, choice in listed:
        cases.setdefault(case or list(cases)[-1], []).append(choice)
    table = air.simulate.undecided_cases()
    expected = {c: table.filter(table["case"] == c)["choice"].to_list() for c in table["case"].unique()}
    assert cases == expected


def test_the_page_is_current() -> None:
    held = (ROOT / "docs" / "reference" / "simulator-coverage.md").read_text(encoding="utf-8")
    assert held == coverage.page(), "run `make docs`, and read what it changed before you keep it"
