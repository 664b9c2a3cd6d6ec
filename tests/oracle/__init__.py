"""A slow and plain second implementation of the passes, over BIR JSON documents.

It is written straight from the rules and shares no code with the package: the two are compared with each
other. Every function names the rule that it follows.
"""

from tests.oracle.inlining import run_inline
from tests.oracle.outcome import Diagnostic, Outcome, Provenance
from tests.oracle.reservation import run_reservation
from tests.oracle.unrolling import run_unroll

__all__ = ["Diagnostic", "Outcome", "Provenance", "run_inline", "run_reservation", "run_unroll"]
