"""The table of deliberate faults that the tests of the passes catch."""

from tests.faults.branch_mutations import BRANCH_MUTATIONS
from tests.faults.further_mutations import FURTHER_MUTATIONS
from tests.faults.mutations import MUTATIONS

CAUGHT = {
    "execution": "execution before and after",
    "assert_valid": "`assert_valid`, the check of tables",
    "oracle": "the second implementation in `tests/oracle`; execution cannot see it",
}
"""What catches a fault, in words."""


def table() -> str:
    """Return the faults pass by pass: what is wrong, the rule that it breaks, and what catches it."""
    lines = ["| pass | fault | rule | caught by |", "|---|---|---|---|"]
    for mutation in (*MUTATIONS, *BRANCH_MUTATIONS, *FURTHER_MUTATIONS):
        cells = (f"`{mutation.of}`", mutation.fault, mutation.rule, CAUGHT[mutation.caught])
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
