"""What a pass is: options, a plan that decides everything, an edit that cannot fail (rules O1 to O9).

A pass is a frozen dataclass whose fields are its options. `plan` reads the tables, makes every check, and says which
modules fail, which change, and how; `apply` carries that out. The code here does what all passes share: it leaves
failed modules as they were, keeps the history, and finds the module behind an unexpected exception.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from arrowir import diagnostics as diag
from arrowir import schema
from arrowir.arguments import wrong
from arrowir.diagnostics import Diagnostic, OptionError, PassError
from arrowir.ir import IR
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

UNCHANGED, CHANGED, FAILED = 0, 1, 2
STATUS = ("unchanged", "changed", "failed")
"""How a module ends a pass (rule O2)."""

MAX_INSTRUCTIONS = 25_000_000
"""Default limit of rule O6, per module."""


@dataclass
class Plan:
    """What a pass will do: a status per module, what it has to say, and the edit for `apply`."""

    status: Array
    """int8 per module: UNCHANGED, CHANGED or FAILED. `apply` changes the modules that are CHANGED, and no other."""
    diagnostics: list[Diagnostic] = field(default_factory=list)
    edit: Any = None
    """Whatever `apply` needs."""


@dataclass(frozen=True)
class PassResult:
    """What one pass did to a batch."""

    ir: IR
    messages: tuple[Diagnostic, ...]
    codes: Array
    """Status per module as a code, an index in `STATUS`."""

    @property
    def diagnostics(self) -> "pl.DataFrame":
        """One row per error, warning and note (rule O3)."""
        return diag.table(self.messages)

    @property
    def status(self) -> "pl.Series":
        """Per module: ``"changed"``, ``"unchanged"`` or ``"failed"`` (rule O2)."""
        import polars as pl

        return pl.Series("status", [STATUS[code] for code in self.codes.tolist()], dtype=pl.String)

    @property
    def ok(self) -> bool:
        """Tell whether there is no error row."""
        return not any(m.severity == "error" for m in self.messages)

    def _repr_html_(self) -> str:
        from arrowir.display import html

        return html.pass_result(self)


@dataclass(frozen=True)
class Pass:
    """Base of all passes. A subclass is a frozen dataclass: its fields are the options, with types and defaults."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        from arrowir.passes.options import check

        check(self)

    def plan(self, ir: IR, active: Array) -> Plan:
        """Decide what to do, changing nothing.

        Parameters
        ----------
        ir
            The batch.
        active
            Mask of the modules to work on. Others must come out as they are, with status UNCHANGED.
        """
        raise NotImplementedError

    def apply(self, ir: IR, plan: Plan) -> IR:
        """Carry out a plan; cannot fail. Called only when the plan changes some module."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Return the options by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def with_options(self, **options: Any) -> "Pass":
        """Return the pass with some options changed.

        Raises
        ------
        OptionError
            If the pass has no such option.
        """
        known = [f.name for f in fields(self)]
        for name in options:
            if name not in known:
                raise OptionError(f"pass `{self.name}` has no option `{name}`; it has {', '.join(known) or 'none'}")
        return replace(self, **options)

    @property
    def log(self) -> logging.Logger:
        """The logger of the pass (rule O7)."""
        return logging.getLogger(f"arrowir.passes.{self.name}")

    def __call__(self, ir: IR, *, strict: bool = False) -> PassResult:
        """Run the pass over every module of a batch.

        Parameters
        ----------
        ir
            The batch; it is not changed.
        strict
            Raise on the first error row, non-fatal ones included.

        Returns
        -------
        PassResult
            The new batch, the diagnostics, a status per module.

        Raises
        ------
        PassError
            With `strict`, on an error row.
        OptionError
            If `ir` is no batch.
        """
        check_batch(ir, f"pass `{self.name}`")
        result = run_pass(self, ir, np.ones(len(ir), bool))
        if strict:
            raise_first_error(result.messages)
        return result


def check_batch(ir: object, what: str) -> None:
    """Refuse what is no batch.

    Raises
    ------
    OptionError
        If it is none.
    """
    if not isinstance(ir, IR):
        raise wrong(what, "an `arrowir.IR` (`arrowir.read` makes one of files)", ir)


def raise_first_error(messages: Iterable[Diagnostic]) -> None:
    """Raise the first error row, if there is one (rule O4)."""
    for message in messages:
        if message.severity == "error":
            raise PassError(message)


def whereabouts(ir: IR, row: int) -> dict[str, Any]:
    """Return the fields of a diagnostic that say where an instruction stands."""
    tables = ir.tables
    function = int(ir.array("instructions", "function_id")[row])
    block = int(tables["instructions"]["block_id"][row])
    return {
        "module_id": int(tables["functions"]["module_id"][function]),
        "function": tables["functions"].text()[function],
        "function_id": function,
        "block": tables["blocks"].text()[block],
        "block_id": block,
        "instruction": tables["instructions"].text()[row],
        "instruction_id": row,
    }


def run_pass(step: Pass, ir: IR, active: Array) -> PassResult:
    """Run a pass over the active modules; an unexpected exception fails only the module that causes it (rule O9)."""
    try:
        return _run(step, ir, active)
    except diag.ArrowIRError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a defect raises becomes a row
        return _isolate(step, ir, active, error)


def _run(step: Pass, ir: IR, active: Array) -> PassResult:
    plan = step.plan(ir, active)
    out = step.apply(ir, plan) if (plan.status == CHANGED).any() else ir
    return PassResult(out.after(step.name, step.options()), _signed(step, ir, plan.diagnostics), plan.status)


def _signed(step: Pass, ir: IR, messages: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Fill in the pass and the module's name."""
    rows = list(messages)
    names = ir.tables["modules"].text() if rows else None
    return tuple(
        replace(m, pass_name=step.name, module=names[m.module_id] if names and m.module_id is not None else m.module)
        for m in rows
    )


def _isolate(step: Pass, ir: IR, active: Array, error: Exception) -> PassResult:
    """Run ever smaller halves of a batch that raises; a module that raises alone fails, the others go on."""
    from arrowir import batches

    done: list[tuple[Array, IR, PassResult]] = []
    bad: dict[int, Exception] = {}

    def divide(modules: Array, raised: Exception) -> None:
        if len(modules) == 1:
            bad[int(modules[0])] = raised
            return
        for half in np.array_split(modules, 2):
            part = ir.select(half)
            try:
                done.append((half, part, _run(step, part, np.ones(len(part), bool))))
            except Exception as again:  # noqa: BLE001
                divide(half, again)

    divide(np.flatnonzero(active), error)
    step.log.error("internal error in %s", step.name, exc_info=error)
    status = np.zeros(len(ir), np.int8)
    status[list(bad)] = FAILED
    failed = [
        diag.make(
            "internal_error",
            f"{type(e).__name__}: {e}; this is a defect of the library, please report it with the module",
            module_id=m,
        )
        for m, e in sorted(bad.items())
    ]
    messages = [*_signed(step, ir, failed)]
    rest = ~active
    rest[list(bad)] = True
    for modules, part, result in done:
        status[modules] = result.codes
        messages += [moved(m, part, ir, modules) for m in result.messages]
    untouched = np.flatnonzero(rest)
    order = np.argsort(np.concatenate([*(modules for modules, _, _ in done), untouched]))
    out = batches.select_modules(batches.concat([*(result.ir for _, _, result in done), ir.select(untouched)]), order)
    out = IR(out.tables, out.pools, diagnostics=ir.messages, history=ir.after(step.name, step.options()).history)
    return PassResult(out, tuple(sorted(messages, key=lambda m: (m.module_id is None, m.module_id))), status)


def moved(message: Diagnostic, part: IR, whole: IR, modules: Array) -> Diagnostic:
    """Express the ids of a message about a part of a batch in the ids of the whole."""
    if message.module_id is None:
        return message
    there, here = message.module_id, int(modules[message.module_id])
    changes: dict[str, int] = {"module_id": here}
    for name in ("function", "block", "instruction", "set", "location"):
        number = getattr(message, f"{name}_id")
        if number is not None:
            first = [np.searchsorted(ir.array(f"{name}s", "module_id"), m) for ir, m in ((part, there), (whole, here))]
            changes[f"{name}_id"] = int(number - first[0] + first[1])
    return replace(message, **changes)


def counts(ir: IR) -> dict[str, Array]:
    """Return the number of rows per module, for each table that has modules."""
    found: dict[str, Array] = {}
    for table in schema.STORED:
        if table != "modules":
            found[table] = np.bincount(ir.array(table, "module_id"), minlength=len(ir))
    return found
