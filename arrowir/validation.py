"""Running a pipeline and proving by execution that it has kept what the modules compute: what `air.run` does."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from arrowir import arguments
from arrowir import diagnostics as diag
from arrowir.diagnostics import Diagnostic, OptionError
from arrowir.ir import IR
from arrowir.passes import base, pipeline, verifying
from arrowir.passes.pipeline import Item, RunResult, Step

if TYPE_CHECKING:
    from arrowir.simulate.equivalence import Comparison, Equivalence

PASS = "check"
"""What the rows about a check name as their pass."""


@dataclass(frozen=True, repr=False)
class CheckedRunResult(RunResult):
    """What a run did to a batch, and what came of executing the modules before and after it."""

    checks: "Equivalence" = field(kw_only=True)
    """A row per module and trial."""


@overload
def run(
    ir: IR,
    passes: "Item | Iterable[Item | tuple[int, Item]] | None" = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    strict: bool = False,
    verify: Literal["none", "ends", "each"] = "ends",
    enable_bir_kernel: bool = False,
    tensor_map: bool | None = None,
    check: Literal[0] = 0,
    progress: Callable[[str, int, int], None] | None = None,
) -> RunResult: ...
@overload
def run(
    ir: IR,
    passes: "Item | Iterable[Item | tuple[int, Item]] | None" = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    strict: bool = False,
    verify: Literal["none", "ends", "each"] = "ends",
    enable_bir_kernel: bool = False,
    tensor_map: bool | None = None,
    check: int,
    check_tolerance: float = 0.0,
    progress: Callable[[str, int, int], None] | None = None,
) -> CheckedRunResult: ...
def run(
    ir: IR,
    passes: "Item | Iterable[Item | tuple[int, Item]] | None" = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    strict: bool = False,
    verify: Literal["none", "ends", "each"] = "ends",
    enable_bir_kernel: bool = False,
    tensor_map: bool | None = None,
    check: int = 0,
    check_tolerance: float = 0.0,
    progress: Callable[[str, int, int], None] | None = None,
) -> RunResult:
    """Run a pipeline of passes over a batch.

    A module that a pass fails keeps what it was when it went in, and takes no further pass; the others go on (rule O2).

    Parameters
    ----------
    ir
        The batch; it is not changed.
    passes
        The whole pipeline, in order; by default the compiler's order around its allocators (`default_steps`, rule P1).
        An item is a registered name, a pass, a plain function from `IR` to `IR` with the same modules, or a pair of an
        order number and one of these. Items are sorted by their numbers; one without a number stands behind the one
        before it.
    options
        Options by pass name, for every step of that name: ``{"inline_nki_kernel": {"allocated": None}}``.
    strict
        Raise on the first error row, non-fatal ones included (rule O4).
    verify
        Whether the verifier looks for errors that passes bring in (rule P2): ``"each"``, after every pass; ``"ends"``,
        after the last, and then after every pass for the modules that have a new error; ``"none"``, never. Such an
        error fails its module in the pass that brings it in.
    enable_bir_kernel
        Where the default pipeline has `inline_bir_kernel`: before the allocators of SBUF, or behind them.
    tensor_map
        Whether the tensor maps beside the modules' files are read, renamed along and kept for writing (rule N17); by
        default where there is one. With True a module without one is an error row.
    check
        Execute each module before and after the run, on so many random inputs, and compare what they write (see
        `equivalent`). A difference is an error row (`not_equivalent`), and a module that cannot be executed a note
        (`not_executable`); `checks` of the result has all that was compared. A module that names kernel files is
        compared from `translate_nki_ast_to_bir` on, which brings these in: before, it does not say what it computes.
    check_tolerance
        How far apart floats may be in that comparison, relative to their size and at least to 1. With 0 every byte has
        to be the same, which the bodies of library kernels do not promise (rule B5).
    progress
        Called before each pass with its name, its number from 0, and the number of passes; and so for modules that are
        checked.

    Returns
    -------
    RunResult
        The new batch, the diagnostics, and a row per module and pass; with `check` a `CheckedRunResult`.

    Raises
    ------
    OptionError
        For a pass that is not registered, a wrong option, or an argument of another type.
    PassError
        With `strict`, on an error row.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> result = air.run(ir, passes=["unroll"])
    >>> result.ok, result.status.to_list()
    (True, ['unchanged'])
    >>> air.run(ir, check=2).checks
    <arrowir.Equivalence: modules: 1 equal>
    """
    base.check_batch(ir, "`run`")
    if type(check) is not int or check < 0:
        raise arguments.wrong("`check`", "a number of random inputs, 0 for none", check)
    if type(check_tolerance) not in (int, float) or not check_tolerance >= 0:
        raise arguments.wrong("`check_tolerance`", "a number of at least 0", check_tolerance)
    steps = pipeline.plan_steps(passes, options, enable_bir_kernel=enable_bir_kernel)
    if not check:
        return pipeline.run(ir, steps, strict=strict, verify=verify, tensor_map=tensor_map, progress=progress)
    shard_id = shard_of(steps)
    result = pipeline.run(ir, steps, strict=strict, verify=verify, tensor_map=tensor_map, progress=progress)
    return checked(
        ir, result, check, steps, tolerance=check_tolerance, shard_id=shard_id, strict=strict, progress=progress
    )


def shard_of(steps: Iterable[Step]) -> int:
    """Return the shard that passes work out expressions for: the value of their option `shard_id`.

    Raises
    ------
    OptionError
        If passes have different ones: no execution before the run is like one after it.
    """
    shards: set[int] = {getattr(step.made, "shard_id") for step in steps if hasattr(step.made, "shard_id")}  # noqa: B009
    if len(shards) > 1:
        listed = ", ".join(map(str, sorted(shards)))
        raise OptionError(f"passes have different shards ({listed}), so that the run cannot be checked; give one")
    return next(iter(shards), 0)


def checked(
    ir: IR,
    result: RunResult,
    trials: int,
    steps: Sequence[Step] = (),
    *,
    tolerance: float = 0.0,
    shard_id: int = 0,
    strict: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> CheckedRunResult:
    """Execute the modules of a run before and after it, and add what comes of that to its result.

    Parameters
    ----------
    ir
        The batch before the run.
    result
        What the run did.
    trials
        How many random inputs each module is executed on.
    steps
        The steps of the run: modules that name kernel files are compared from behind those that bring these in.
    tolerance
        How far apart floats may be, as in `equivalent`.
    shard_id
        The value of the shard, as the passes had it.
    strict
        Raise on the first difference.
    progress
        Called before each module.

    Raises
    ------
    PassError
        With `strict`, if a module is different.
    """
    from arrowir.simulate.equivalence import equivalent

    def at(done: int, total: int) -> None:
        if progress is not None:
            progress("checking", done, total)

    ir = _with_kernels(ir, steps)
    found = equivalent(ir, result.ir, trials=trials, tolerance=tolerance, shard_id=shard_id, progress=at)
    rows = messages(found)
    if strict:
        base.raise_first_error(rows)
    return CheckedRunResult(result.ir, (*result.messages, *rows), result.codes, result.taken, checks=found)


def _with_kernels(ir: IR, steps: Sequence[Step]) -> IR:
    """Return the batch with the kernels of files in those modules that name some, as the run brought them in."""
    mine = np.flatnonzero(pipeline.has_opcode(ir, "NKIKLIRKernel"))
    bringing = [step for step in steps if step.name == "translate_nki_ast_to_bir"]
    if not len(mine) or not bringing:
        return ir
    made = pipeline.run(ir.select(mine), bringing, verify="none", tensor_map=False)
    return verifying.restored(ir, made.ir, mine)


def messages(found: "Equivalence") -> list[Diagnostic]:
    """Return a row for each module that is different or cannot be executed; ids are those of the second batch."""
    rows: list[Diagnostic] = []
    for module_id, status in found.statuses.items():
        if status == "equal":
            continue
        mine = [c for c in found.comparisons if c.module_id == module_id]
        rows.append(_message([c for c in mine if c.status == status], len(mine)))
    return rows


def _message(bad: "list[Comparison]", trials: int) -> Diagnostic:
    first = bad[0]
    about: dict[str, Any] = {
        "module": first.module,
        "module_id": first.module_id,
        "pass_name": PASS,
        "function": first.function,
        "instruction": first.instruction,
    }
    if first.status == "not_executable":
        return diag.make("not_executable", f"not checked: {first.reason}", **about)
    inputs = f"on {len(bad)} of {trials} random inputs" if trials > 1 else "on a random input"
    text = f"it does not compute what it did before the run, {inputs}: {first.reason}"
    row = diag.make("not_equivalent", text, **about)
    return replace(row, instruction_id=first.instruction_id, location=first.output)
