"""Plain functions as passes: anything that maps a batch to a batch may be a step of a pipeline (rule P1)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from arrowir import batches, schema
from arrowir import diagnostics as diag
from arrowir.diagnostics import Diagnostic, OptionError, PassError
from arrowir.ir import IR
from arrowir.passes.base import CHANGED, FAILED, UNCHANGED, Pass, Plan
from arrowir.store import Array, Strings

Function = Callable[[IR], IR]


def of_function(function: Function) -> Pass:
    """Make a pass of a function.

    The function gets a batch of the modules that have not failed, and returns one with the same modules in the same
    order. When it raises, the batch is halved until the modules that it cannot take are found: they alone fail.

    Parameters
    ----------
    function
        Maps an `IR` to an `IR`.

    Returns
    -------
    Pass
        A pass without options, named after the function.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> def allocator(ir):
    ...     return ir
    >>> of_function(allocator)(ir).status.to_list()
    ['unchanged']
    """

    @dataclass(frozen=True)
    class FunctionPass(Pass):
        name: ClassVar[str] = getattr(function, "__name__", type(function).__name__)

        def plan(self, ir: IR, active: Array) -> Plan:
            work = _Attempt(self.name, function)
            parts = work.attempt(ir, np.flatnonzero(active))
            status = np.full(len(ir), UNCHANGED, np.int8)
            for modules, _, differs in parts:
                status[modules[differs]] = CHANGED
            status[list(work.failed)] = FAILED
            return Plan(status, list(work.failed.values()), [(m, after) for m, after, _ in parts])

        def apply(self, ir: IR, plan: Plan) -> IR:
            return put_together(ir, plan.edit)

    return FunctionPass()


Part = tuple[Array, IR, Array]
"""Modules of the batch, what they became, and the mask of those that have changed."""


class _Attempt:
    """One use of a function on a batch."""

    def __init__(self, name: str, function: Function) -> None:
        self.name, self.function = name, function
        self.failed: dict[int, Diagnostic] = {}

    def attempt(self, ir: IR, modules: Array) -> list[Part]:
        """Apply the function to some modules, to halves of them where it raises."""
        if not len(modules):
            return []
        part = ir if len(modules) == len(ir) else ir.select(modules)
        try:
            out: Any = self.function(part)
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises becomes a row
            return self._divided(ir, modules, self._row(error))
        if not isinstance(out, IR) or len(out) != len(part):
            got = f"{len(out)} modules for {len(part)}" if isinstance(out, IR) else type(out).__name__
            raise OptionError(
                f"step `{self.name}` returned {got}; a function in a pipeline takes an `arrowir.IR` and returns one"
                " with the same modules in the same order"
            )
        names, given = (made.tables["modules"].text().tolist() for made in (out, part))
        if names != given and set(names) <= set(given):
            raise OptionError(
                f"step `{self.name}` returned other modules than it got, or in another order; a function in a pipeline"
                " returns the same modules in the same order"
            )
        try:
            differs = changed(part, out)
        except Exception:
            if (fault := _fault(out)) is None:  # the tables are sound, so the function is not to blame
                raise
            what = f"step `{self.name}` returned tables that do not hold together: {fault}"
            return self._divided(ir, modules, diag.make("internal_error", what))
        return [(modules, out, differs)]

    def _divided(self, ir: IR, modules: Array, row: Diagnostic) -> list[Part]:
        """Fail the module with a row, if it is one; else apply the function to each half of them."""
        if len(modules) == 1:
            module = int(modules[0])
            self.failed[module] = replace(row, module_id=module)
            return []
        return [found for half in np.array_split(modules, 2) for found in self.attempt(ir, half)]

    def _row(self, error: Exception) -> Diagnostic:
        if isinstance(error, PassError) and error.diagnostic.code in diag.CODES:
            return diag.make(error.diagnostic.code, error.diagnostic.message, severity="error")
        return diag.make("internal_error", f"step `{self.name}` raised {type(error).__name__}: {error}")


def _fault(ir: IR) -> str | None:
    """Return what does not hold together in tables that cannot be written; None for sound ones."""
    from arrowir.testing.assertions import assert_valid

    try:
        assert_valid(ir)
    except Exception as error:  # noqa: BLE001 - broken tables may break the check, too
        return str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
    return None


def put_together(ir: IR, parts: list[tuple[Array, IR]]) -> IR:
    """Return the batch with some of its modules replaced."""
    if len(parts) == 1 and len(parts[0][0]) == len(ir):
        made = parts[0][1]
    else:
        new = np.concatenate([modules for modules, _ in parts])
        rest = np.setdiff1d(np.arange(len(ir)), new)
        changed = [part for _, part in parts] + ([ir.select(rest)] if len(rest) else [])
        made = batches.select_modules(batches.concat(changed), np.argsort(np.concatenate((new, rest))))
    return IR(made.tables, made.pools, diagnostics=ir.messages, history=ir.history)


def changed(before: IR, after: IR) -> Array:
    """Return the mask of the modules whose documents differ (rule O2).

    Two batches of the same modules. Tables that are shared cannot differ; where rows differ, the documents tell.
    """
    suspects = np.ones(len(before), bool)
    if before.pools is after.pools:
        suspects = _touched(before, after)
    for module in np.flatnonzero(suspects).tolist():
        suspects[module] = before.to_json(module) != after.to_json(module)
    return suspects


def _touched(before: IR, after: IR) -> Array:
    """Return the mask of the modules with a cell that differs, for batches that share their pools."""
    touched = np.zeros(len(before), bool)
    for name in schema.STORED:
        old, new = before.tables[name], after.tables[name]
        if old is new:
            continue
        if len(old) != len(new):
            return np.ones(len(before), bool)
        owners = [np.arange(len(ir)) if name == "modules" else ir.array(name, "module_id") for ir in (before, after)]
        for column in old.schema.stored:
            was, now = old.columns[column.name], new.columns[column.name]
            if was is now:
                continue
            if isinstance(was, Strings) or isinstance(now, Strings):
                differs = _texts_differ(was, now, len(old))
            else:
                differs = old[column.name] != new[column.name]
            for owner in owners:
                touched[owner[differs]] = True
    return touched


def _texts_differ(was: object, now: object, rows: int) -> Array:
    if not (isinstance(was, Strings) and isinstance(now, Strings)):
        return np.ones(rows, bool)
    return np.array([a != b for a, b in zip(was.tolist(), now.tolist(), strict=True)], bool)
