"""The page about what the simulator covers: every opcode, how well it is known, and where it is tested."""

from functools import cache
from pathlib import Path

from arrowir import simulate, vocabulary

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests" / "unit" / "simulate"
OF_ALL = ("test_malformed.py",)
"""Test files that name every opcode, and say nothing about what it computes."""

ABOUT = """\
`air.simulate(ir, inputs)` runs a module in numpy. Of the {opcodes} opcodes it models {modelled}. One that is not
modelled, a key with a value that is not, and values for which the semantics leave the result open end in a
`SimulationError` that names the instruction: nothing is guessed.

*Basis* says how well the semantics of an opcode are known. *Certain*: several accounts agree, or one is exact.
*Strong*: one good account. *Inferred*: it follows from what is known about other opcodes or from how it is used.
The table is `air.simulate.coverage()`."""

ABOUT_CASES = """\
Where the semantics are open, a caller may choose: `simulate(ir, inputs, readings={"case": "choice"})`. Without a
choice, the simulator stops at the first instruction for which the choices give different results. The table is
`air.simulate.undecided_cases()`."""


def page() -> str:
    """Return the page that lists every opcode and every undecided case."""
    table = simulate.coverage()
    modelled = int(table["modelled"].sum())
    parts = [
        "# Simulator coverage",
        ABOUT.format(opcodes=len(table), modelled=modelled),
        "## Opcodes",
        opcodes(),
        "## Undecided cases",
        ABOUT_CASES,
        cases(),
    ]
    return "\n\n".join(parts) + "\n"


def opcodes() -> str:
    """Return every opcode: whether it is modelled, what it computes or why not, and the file of its tests."""
    lines = ["| number | opcode | basis | computes | tests |", "|---|---|---|---|---|"]
    for row in simulate.coverage().iter_rows(named=True):
        code = vocabulary.OPCODES.code(row["opcode"])
        number = vocabulary.OPCODES.numbers[code] if code >= 0 else None
        if row["modelled"]:
            basis, text, tests = row["basis"], row["computes"], f"`{test_file(row['opcode'], row['family'])}`"
        else:
            basis, text, tests = "not modelled", row["why_not"] or "", ""
        cells = ("" if number is None else number, f"`{row['opcode']}`", basis, _escaped(text), tests)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def cases() -> str:
    """Return every undecided case with its choices."""
    lines = ["| case | when | choice | means |", "|---|---|---|---|"]
    before = None
    for row in simulate.undecided_cases().iter_rows(named=True):
        first = row["case"] != before
        before = row["case"]
        name, when = (f"`{row['case']}`", row["when"]) if first else ("", "")
        lines.append(f"| {name} | {_escaped(when)} | `{row['choice']}` | {_escaped(row['means'])} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


@cache
def _sources() -> dict[str, str]:
    paths = (path for path in sorted(TESTS.glob("test_*.py")) if path.name not in OF_ALL)
    return {path.name: path.read_text(encoding="utf-8") for path in paths}


def test_file(opcode: str, family: str) -> str:
    """Return the name of the test file of an opcode: that of its family if it names it, else the one that does most.

    Raises
    ------
    LookupError
        If no test file names the opcode.
    """
    named = {name: source.count(f'"{opcode}"') for name, source in _sources().items()}
    if named.get(f"test_{family}.py"):
        return f"test_{family}.py"
    best = max(named, key=named.__getitem__)
    if not named[best]:
        raise LookupError(f"no test of the simulator names `{opcode}`")
    return best
