"""A slow and plain second implementation of the passes, over BIR JSON documents.

It is written straight from the rules and shares no code with the package: the two are compared with each
other. Every function names the rule that it follows.
"""

from tests.oracle.collectives import run_coalesce
from tests.oracle.constants import run_constants
from tests.oracle.indirect import run_lower
from tests.oracle.inlining import run_inline
from tests.oracle.outcome import Diagnostic, Outcome, Provenance
from tests.oracle.reservation import run_reservation
from tests.oracle.unrolling import run_unroll

__all__ = [
    "Diagnostic",
    "Outcome",
    "Provenance",
    "run_coalesce",
    "run_constants",
    "run_inline",
    "run_lower",
    "run_reservation",
    "run_unroll",
]
