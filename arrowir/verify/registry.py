"""What a rule is, the levels that a caller chooses among, and the list of the compiler's rules."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from arrowir.diagnostics import Severity
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.verify.facts import Facts

Level = Literal["references", "structure", "control_flow", "memory", "operands", "call_sites", "unrolled", "allocated"]

LEVELS: dict[str, str] = {
    "references": "what a name refers to exists",
    "structure": "members, enums, sets, locations and dependencies are well formed",
    "control_flow": "blocks, terminators and the control flow graph; loops, branches and registers",
    "memory": "patterns, addresses and placements fit the memories of the architecture, and each other",
    "operands": "counts, kinds, dtypes and shapes of operands, per opcode",
    "call_sites": "call-sites of kernels, and what they bind",
    "unrolled": "what unrolling leaves nothing of; of functions that say that they are unrolled, or of all when chosen",
    "allocated": "what an allocator leaves nothing of; only when chosen",
}
"""The levels, each with what its rules are about."""

DEFAULT: tuple[str, ...] = tuple(level for level in LEVELS if level != "allocated")
"""The levels that are looked at when none is chosen."""

FAMILIES = (
    "references",
    "structure",
    "consistency",
    "dependencies",
    "control_flow",
    "branches",
    "loops",
    "patterns",
    "placements",
    "contents",
    "matmult",
    "microscaling",
    "activation",
    "elementwise",
    "tensor_scalar_cache",
    "selections",
    "gathers",
    "dma",
    "transposes",
    "indirection",
    "collectives",
    "miscellaneous",
    "call_sites",
    "unrolled",
)
"""Modules of this package that hold rules, each a list `RULES`."""


@dataclass(frozen=True)
class Found:
    """What a rule found: rows of a table, and what to fill into its text for each."""

    table: str
    rows: Array
    fill: "dict[str, Fill]"
    slot: Array | None = None
    """The operand that each row is about, where the rows are not operands themselves; -1 for none."""


Fill = Callable[[Array], "list[Any]"] | Array | list[Any] | str | int
"""Values for a placeholder: one for all, one per row of the rule's group, or a function of places in that group."""

Query = Callable[["Facts"], "Found | list[Found] | None"]


@dataclass(frozen=True)
class Rule:
    """One rule: what it is called, what it says, and the query that finds where it is broken."""

    code: str
    """The compiler's code; in small letters where it has none."""
    level: Level
    text: str
    """The message, with placeholders."""
    meaning: str
    """What has to hold."""
    advice: str
    """What to do about a finding."""
    query: Query
    severity: Severity = "error"
    opcodes: tuple[str, ...] = ()
    """Opcodes without which there is nothing to look at."""
    same: tuple[str, ...] = ()
    """Other codes of the compiler for the same condition."""


@dataclass(frozen=True)
class Listed:
    """A row of the compiler's list of rules."""

    code: str
    about: str
    """The opcode, or what else the rule is about."""
    text: str
    state: str
    """Empty for a rule that is done; else one of `STATES`."""
    why: str


STATES: dict[str, str] = {
    "machine": "not applicable: it takes the machine, its runtime, or options of a compilation",
    "reader": "done when a file is read: it is a `format_error`, or no such value can be held",
    "passes": "done by a pass, as a diagnostic",
    "simulator": "not applicable: it is about values, which the simulator looks at when a module is executed",
    "misuse": "not applicable: it guards functions of the compiler against wrong calls",
    "follows": "follows from another rule, which is done",
    "open": "not done",
}
"""Why a rule of the compiler's list has no query here."""


@cache
def catalogue() -> dict[str, Listed]:
    """Return the compiler's list of rules, by code."""
    import csv
    from importlib.resources import files

    text = files("arrowir.verify").joinpath("catalogue.csv").read_text(encoding="utf-8")
    return {row["code"]: Listed(**row) for row in csv.DictReader(text.splitlines())}


@cache
def rules() -> dict[str, Rule]:
    """Return all rules by code, in the order of the families.

    Raises
    ------
    ValueError
        If a code stands twice, or the text of one does not come from the compiler's list.
    """
    found: dict[str, Rule] = {}
    for family in FAMILIES:
        listed: Iterable[Rule] = import_module(f"arrowir.verify.{family}").RULES
        for rule in listed:
            if rule.code in found:
                raise ValueError(f"two rules have the code `{rule.code}`")
            found[rule.code] = rule
    return found


def rule(
    code: str,
    level: Level,
    meaning: str,
    advice: str,
    query: Query,
    *,
    text: str | None = None,
    severity: Severity = "error",
    opcodes: Iterable[str] = (),
    same: Iterable[str] = (),
) -> Rule:
    """Make a rule; the text is that of the compiler's list, unless it has none of that code.

    Raises
    ------
    ValueError
        If there is neither a text nor a row of the list.
    """
    if text is None:
        known = catalogue().get(code)
        if known is None:
            raise ValueError(f"the compiler's list has no rule `{code}`; give it a text")
        text = known.text
    return Rule(code, level, text, meaning, advice, query, severity, tuple(opcodes), tuple(same))
