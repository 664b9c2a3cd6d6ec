"""What a pass gives back, and how it says that it failed (rules O2, O3)."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# The compiler's own codes for some of ours (O3).
COMPILER_CODES = {
    "no_callee": "NKI001",
    "callee_lost": "NKI002",
    "scratchpad_count": "NKI003",
    "parameter_location_count": "NKI006",
    "too_many_instructions": "ELUR015",
}


@dataclass(frozen=True)
class Diagnostic:
    """One row of the diagnostics table (O3)."""

    severity: str
    code: str
    message: str
    compiler_code: str | None = None
    function: str | None = None
    block: str | None = None
    instruction: str | None = None
    location: str | None = None


class Provenance(NamedTuple):
    """Where an instruction row came from (N16); all empty for a row that was there before."""

    original_name: str | None = None
    kernel: str | None = None
    kernel_source: str | None = None
    chain: tuple[str, ...] = ()
    depth: int = 0


@dataclass
class Outcome:
    """The result of one pass on one module."""

    status: str
    doc: dict[str, Any]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    provenance: list[Provenance] = field(default_factory=list)

    def codes(self) -> set[tuple[str, str]]:
        """The set of (severity, code): what is compared with the other implementation."""
        return {(row.severity, row.code) for row in self.diagnostics}


class PassFailure(Exception):  # noqa: N818 (it carries a diagnostic, it is not itself an error report)
    """Raised where a rule fails the module; carries the one error row."""

    def __init__(self, code: str, message: str, **where: str | None) -> None:
        super().__init__(f"{code}: {message}")
        self.diagnostic = Diagnostic("error", code, message, COMPILER_CODES.get(code), **where)


def same_document(one: Any, other: Any) -> bool:
    """O2: the documents that would be written are equal, member order and number spelling included."""
    return json.dumps(one) == json.dumps(other)
