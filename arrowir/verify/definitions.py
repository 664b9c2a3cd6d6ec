"""How rules of one opcode are written down: the query gets the instructions of it as a group."""

from collections.abc import Callable, Sequence

from arrowir.diagnostics import Severity
from arrowir.verify.facts import Facts, Group
from arrowir.verify.registry import Found, Level, Rule, rule

OfGroup = Callable[[Group], "Found | list[Found] | None"]


def of(
    opcodes: "str | Sequence[str]",
    code: str,
    meaning: str,
    advice: str,
    query: OfGroup,
    *,
    level: Level = "operands",
    text: str | None = None,
    severity: Severity = "error",
    same: Sequence[str] = (),
) -> Rule:
    """Make a rule about the instructions of some opcodes."""
    names = (opcodes,) if isinstance(opcodes, str) else tuple(opcodes)

    def ask(facts: Facts) -> "Found | list[Found] | None":
        return query(facts.group(*names))

    return rule(code, level, meaning, advice, ask, text=text, severity=severity, opcodes=names, same=same)
