"""One pass over one document, and what came of it; what every pass owes is checked on the way."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

import arrowir as air
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.base import STATUS
from arrowir.store import Strings
from arrowir.testing.assertions import assert_valid

Json = dict[str, Any]


@dataclass(frozen=True)
class Passed:
    """The outcome of a pass on the one module of a document."""

    status: str
    doc: Json
    messages: tuple[Diagnostic, ...]
    before: IR
    ir: IR

    @property
    def codes(self) -> list[tuple[str, str]]:
        """Severity and code of each row, in order."""
        return [(m.severity, m.code) for m in self.messages]


def written(document: Json) -> bytes:
    """Return a document as text, as the library writes it."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def read(document: Json, name: str = "m") -> IR:
    return air.read_json(written(document), name=name)


def frozen(ir: IR) -> dict[tuple[str, str], Any]:
    """Return all columns of a batch as bytes."""
    held: dict[tuple[str, str], Any] = {}
    for name, table in ir.tables.items():
        for column, values in table.columns.items():
            if isinstance(values, Strings):
                held[name, column] = values.offsets.tobytes(), values.data.tobytes()
            else:
                held[name, column] = None if values is None else np.asarray(values).tobytes()
    return held


def run_pass(name: str, document: Json, **options: Any) -> Passed:
    """Run a pass; rules O1, O2 and the coherence of the result are asserted."""
    ir = read(document)
    held = frozen(ir)
    result = air.passes.make(name, **options)(ir)
    assert frozen(ir) == held
    assert ir.to_json(0) == written(document)
    assert_valid(result.ir)
    text = result.ir.to_json(0)
    status = STATUS[int(result.codes[0])]
    assert (status == "changed") == (text != written(document))
    fatal = [m for m in result.messages if m.severity == "error" and air.diagnostics.CODES[m.code].fatal]
    assert (status == "failed") == bool(fatal)
    assert all(m.pass_name == name and m.module == "m" and m.module_id == 0 for m in result.messages)
    return Passed(status, json.loads(text), result.messages, ir, result.ir)


def refused(name: str, document: Json, **options: Any) -> Diagnostic:
    """Run a pass that fails the module, and return the one row that says so."""
    outcome = run_pass(name, document, **options)
    assert outcome.status == "failed"
    (message,) = outcome.messages
    assert message.severity == "error"
    return message
