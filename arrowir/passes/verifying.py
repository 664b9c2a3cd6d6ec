"""Whether passes bring in what the verifier refuses (rule P2)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from arrowir import batches
from arrowir import diagnostics as diag
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.base import FAILED, PassResult, moved
from arrowir.store import Array

Identity = tuple[str, str, str, str]
"""Code, kernel, original name and operand of a finding."""


@dataclass(frozen=True, slots=True)
class New:
    """An error that a module did not have before."""

    module: int
    code: str
    message: str
    count: int
    """How many such errors the module has."""
    about: dict[str, str]


def introduced(before: IR, after: IR, modules: Array) -> list[New]:
    """Return for each of some modules the first error that it has after passes and did not have before.

    Modules without any error are only looked at once.
    """
    found = _errors(after, modules)
    if not found:
        return []
    had = _errors(before, np.array(sorted(found)))
    made: list[New] = []
    for module, rows in sorted(found.items()):
        known = {identity for identity, _ in had.get(module, [])}
        new = [text for identity, text in rows if not _was(identity, known)]
        if new:
            code, message, about = new[0]
            made.append(New(module, code, message, len(new), about))
    return made


def _was(identity: Identity, known: set[Identity]) -> bool:
    """Tell whether a finding was there; an instance of an unrolled instruction has its name and a number."""
    code, kernel, name, slot = identity
    stem, dash, number = name.rpartition("-")
    return identity in known or bool(dash and number.isdigit() and (code, kernel, stem, slot) in known)


Row = tuple[Identity, tuple[str, str, dict[str, str]]]


def _errors(ir: IR, modules: Array) -> dict[int, list[Row]]:
    """Return the errors of some modules."""
    from arrowir.verify import checking

    part, number = ir, np.arange(len(ir))
    if len(modules) < len(ir):
        part, number = ir.select(modules), modules
    found = checking.find(part)
    rows = np.flatnonzero(found.errors)
    if not len(rows):
        return {}
    table = checking.table(found)[rows.tolist()]
    every: dict[int, list[Row]] = {}
    identities = checking.identities(found, rows)
    for identity, row in zip(identities, table.iter_rows(named=True), strict=True):
        names = ("function", "block", "instruction", "set", "location")
        about = {what: row[what] for what in names if row[what] is not None}
        operand = f" in `{row['slot']}`" if row["slot"] is not None else ""
        text = f"{row['message']}{operand}; {row['advice']}"
        every.setdefault(int(number[row["module_id"]]), []).append((identity, (row["rule"], text, about)))
    return every


def refused(new: New, ir: IR, name: str) -> Diagnostic:
    """Return the row about a module that a pass fails with an error."""
    rest = new.count - 1
    more = f" (and {rest:,} more error{'' if rest == 1 else 's'})" if rest else ""
    about = cast("dict[str, Any]", new.about)
    made = diag.make(
        "introduced_error", f"the pass brings in an error: {new.message}{more}", module_id=new.module, **about
    )
    module = ir.tables["modules"].text()[new.module]
    return replace(made, pass_name=name, module=module, compiler_code=new.code)


def checked(result: PassResult, before: IR, name: str, changed: Array) -> PassResult:
    """Fail the modules that a pass has brought an error into: they come out as they went in."""
    new = introduced(before, result.ir, changed)
    if not new:
        return result
    bad = np.array([each.module for each in new])
    codes = result.codes.copy()
    codes[bad] = FAILED
    gone = set(bad.tolist())
    kept = [m for m in result.messages if m.module_id not in gone]
    rows = sorted(
        (*kept, *(refused(each, before, name) for each in new)), key=lambda m: (m.module_id is None, m.module_id)
    )
    return PassResult(restored(result.ir, before.select(bad), bad), tuple(rows), codes)


def restored(ir: IR, part: IR, modules: Array) -> IR:
    """Put modules of another batch in place of some."""
    order = np.arange(len(ir))
    order[modules] = len(ir) + np.arange(len(modules))
    made = batches.select_modules(batches.concat([ir, part]), order)
    return IR(made.tables, made.pools, diagnostics=ir.messages, history=ir.history)


Moved = Callable[[Diagnostic], Diagnostic]


def lifted(part: IR, whole: IR, modules: Array) -> Moved:
    """Return what expresses messages about a part of a batch in the ids of the whole."""
    return lambda message: moved(message, part, whole, modules)
