"""The pipeline: which passes run in which order, and what comes of it (rules P1 to P3, O2, O4)."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from arrowir import arguments, schema
from arrowir import diagnostics as diag
from arrowir import passes as registry
from arrowir.diagnostics import Diagnostic, OptionError
from arrowir.ir import IR
from arrowir.passes import base, verifying
from arrowir.passes.base import CHANGED, FAILED, STATUS, UNCHANGED, Pass
from arrowir.passes.functions import of_function
from arrowir.passes.options import configured
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

COUNTED: tuple[str, ...] = tuple(name for name in schema.STORED if name != "modules")
"""Tables whose rows the steps table counts."""


@dataclass(frozen=True, slots=True)
class Step:
    """One place of a pipeline: an order number, and a pass by name with options, or a pass itself."""

    order: int
    name: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    only_if: str | None = None
    """The pipeline option that decides whether the step is taken, in words."""
    made: Pass | None = None
    """The pass itself, where it was given and not named."""
    where: str | None = None
    """An opcode: modules without such an instruction do not take the step."""

    @property
    def condition(self) -> str | None:
        """When the step is taken, in words; None for always."""
        return self.only_if if self.where is None else f"the module has `{self.where}`"

    @property
    def available(self) -> bool:
        """Tell whether a pass of that name is registered."""
        return self.made is not None or self.name in registry.names()

    def build(self) -> Pass:
        """Return the pass."""
        return self.made if self.made is not None else registry.make(self.name, **self.options)


Item = Step | Pass | type[Pass] | str | Callable[[IR], IR]
"""What may stand in a pipeline: a step, a pass, its class, its registered name, or a plain function."""

DEFAULT: tuple[Step, ...] = (
    Step(2, "translate_nki_ast_to_bir", where="NKIKLIRKernel"),
    Step(39, "runtime_memory_reservation"),
    Step(41, "inline_nki_kernel", {"allocated": False}),
    Step(42, "coalesce_multichannel_cc_ops"),
    Step(48, "inline_bir_kernel", {"post_coloring": False}, only_if="enable_bir_kernel"),
    Step(60, "inline_bir_kernel", {"post_coloring": True}, only_if="not enable_bir_kernel"),
    Step(61, "inline_nki_kernel", {"allocated": True}),
    Step(62, "coalesce_multichannel_cc_ops"),
)
"""The compiler's order around its allocators (rule P1). Steps whose pass is not registered are left out of a run."""


def default_steps(*, enable_bir_kernel: bool = False) -> list[Step]:
    """Return the steps of the default pipeline that can run, to add to, drop from, or replace in.

    Parameters
    ----------
    enable_bir_kernel
        Where `inline_bir_kernel` stands: before the allocators of SBUF (48), or behind them (60).

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> def allocator(ir):
    ...     return ir
    >>> result = air.run(ir, passes=[*air.passes.default_steps(), (40, allocator)])
    >>> result.steps["pass"].to_list()[:3]
    ['runtime_memory_reservation', 'allocator', 'inline_nki_kernel']
    """
    if type(enable_bir_kernel) is not bool:
        raise arguments.wrong("`enable_bir_kernel`", "true or false", enable_bir_kernel)
    taken = (None, "enable_bir_kernel" if enable_bir_kernel else "not enable_bir_kernel")
    return [step for step in DEFAULT if step.available and step.only_if in taken]


@dataclass(frozen=True)
class RunResult:
    """What a run did to a batch."""

    ir: IR
    """The modules, those that failed as they went into the pass that failed them."""
    messages: tuple[Diagnostic, ...]
    """One entry per error, warning and note, in the order of the passes; ids are those of the batch that a pass got."""
    codes: Array
    """Status per module over the whole run as a code, an index in `STATUS`."""
    taken: tuple["StepRows", ...] = ()
    """What each pass did, for `steps`."""

    @property
    def diagnostics(self) -> "pl.DataFrame":
        """One row per error, warning and note of the passes (rule O3); what reading noticed is in `ir.diagnostics`."""
        return diag.table(self.messages)

    @property
    def steps(self) -> "pl.DataFrame":
        """One row per module and pass that it took (rule P3).

        Columns are `module`, `module_id`, `pass`, `order`, `status`, `seconds` and for each table `<table>_before` and
        `<table>_after`. A pass sweeps all modules at once: its time is shared out among them by their instructions.
        """
        return steps_table(self.ir, self.taken)

    @property
    def status(self) -> "pl.Series":
        """Per module ``"failed"`` if a pass failed it, else ``"changed"`` if one changed it, else ``"unchanged"``."""
        import polars as pl

        return pl.Series("status", [STATUS[code] for code in self.codes.tolist()], dtype=pl.String)

    @property
    def ok(self) -> bool:
        """Tell whether there is no error row, non-fatal ones included."""
        return not any(m.severity == "error" for m in self.messages)

    def __repr__(self) -> str:
        counts = np.bincount(self.codes, minlength=len(STATUS)).tolist()
        listed = ", ".join(f"{n} {name}" for name, n in zip(STATUS, counts, strict=True) if n)
        return f"<arrowir.RunResult: {len(self.taken)} passes, modules: {listed or 'none'}>"

    def _repr_html_(self) -> str:
        from arrowir.display import html

        return html.run_result(self)


@dataclass(frozen=True, slots=True)
class StepRows:
    """What one pass did: arrays over the modules that took it."""

    name: str
    order: int
    modules: Array
    codes: Array
    seconds: float
    before: dict[str, Array]
    after: dict[str, Array]


def run(
    ir: IR,
    passes: "Item | Iterable[Item | tuple[int, Item]] | None" = None,
    *,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    strict: bool = False,
    verify: Literal["none", "ends", "each"] = "ends",
    enable_bir_kernel: bool = False,
    tensor_map: bool | None = None,
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
        As in `default_steps`; only with the default pipeline.
    tensor_map
        Whether the tensor maps beside the modules' files are read, renamed along and kept for writing (rule N17); by
        default where there is one. With True a module without one is an error row.
    progress
        Called before each pass with its name, its number from 0, and the number of passes.

    Returns
    -------
    RunResult
        The new batch, the diagnostics, and a row per module and pass.

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
    """
    base.check_batch(ir, "`run`")
    arguments.function(progress, "`progress`")
    _check_verify(verify)
    ir, found = with_tensor_maps(ir, tensor_map)
    if strict:
        base.raise_first_error(found)
    given = ir
    steps = plan_steps(passes, options, enable_bir_kernel=enable_bir_kernel)
    codes = np.full(len(ir), UNCHANGED, np.int8)
    messages: list[Diagnostic] = [*found]
    taken: list[StepRows] = []
    counts = rows_per_module(ir)
    for number, step in enumerate(steps):
        if progress is not None:
            progress(step.name, number, len(steps))
        started = time.perf_counter()
        made = step.build()
        active = codes != FAILED
        if not active.any():
            break
        if step.where is not None:
            active &= has_opcode(ir, step.where)
            if not active.any():
                continue
        result = base.run_pass(made, ir, active)
        if verify == "each":
            result = verifying.checked(result, ir, step.name, np.flatnonzero(active & (result.codes == CHANGED)))
        seconds = time.perf_counter() - started
        # Only what the pass says of modules that took it counts: the others are none of its business.
        codes = np.where(active, np.maximum(codes, result.codes), codes)
        before, counts = counts, counts if same_rows(ir, result.ir) else rows_per_module(result.ir)
        modules = np.flatnonzero(active)
        taken.append(
            StepRows(
                step.name,
                step.order,
                modules,
                result.codes[modules],
                seconds,
                {name: rows[modules] for name, rows in before.items()},
                {name: rows[modules] for name, rows in counts.items()},
            )
        )
        messages += result.messages
        ir = result.ir
        if strict:
            base.raise_first_error(result.messages)
    made_by = RunResult(ir, tuple(messages), codes, tuple(taken))
    if verify == "ends":
        made_by = _verified(given, made_by, steps)
        if strict:
            base.raise_first_error(made_by.messages)
    notes = rebinding_notes(made_by.ir, np.flatnonzero(made_by.codes == CHANGED))
    return replace(made_by, messages=(*made_by.messages, *notes))


def _check_verify(verify: str) -> None:
    if verify not in ("none", "ends", "each"):
        raise OptionError(f"`verify` takes none, ends or each, got `{verify}`")


def _verified(given: IR, result: RunResult, steps: Sequence[Step]) -> RunResult:
    """Run the modules that came out with a new error once more, with the verifier after each pass (rule P2)."""
    new = verifying.introduced(given, result.ir, np.flatnonzero(result.codes == CHANGED))
    if not new:
        return result
    bad = np.array([each.module for each in new])
    before = given.select(bad)
    part = run(before, steps, verify="each")
    # A pass after which nothing new is found, while the whole run has something, cannot be told: the last one is.
    missed = np.flatnonzero(part.codes != FAILED)
    codes = result.codes.copy()
    codes[bad] = FAILED
    ir = part.ir
    if len(missed):
        ir = verifying.restored(ir, before.select(missed), missed)
    rows = [verifying.refused(new[k], given, result.taken[-1].name) for k in missed.tolist()]
    gone = set(bad.tolist())
    kept = [m for m in result.messages if m.module_id not in gone]
    told = [base.moved(m, before, given, bad) for m in part.messages if m.code != "rebinding_name"]
    return RunResult(
        verifying.restored(result.ir, ir, bad), (*kept, *told, *rows), codes, _merged(result.taken, part.taken, bad)
    )


def _merged(taken: Sequence["StepRows"], again: Sequence["StepRows"], modules: Array) -> tuple["StepRows", ...]:
    """Put what a second run did to some modules in place of what the first did."""
    second = {(rows.order, rows.name): rows for rows in again}
    made: list[StepRows] = []
    for rows in taken:
        keep = ~np.isin(rows.modules, modules)
        other = second.get((rows.order, rows.name))
        columns: dict[str, Any] = {"modules": rows.modules[keep], "codes": rows.codes[keep]}
        for name in ("before", "after"):
            columns[name] = {table: values[keep] for table, values in getattr(rows, name).items()}
        if other is not None:
            columns["modules"] = np.concatenate((columns["modules"], modules[other.modules]))
            columns["codes"] = np.concatenate((columns["codes"], other.codes))
            for name in ("before", "after"):
                more = getattr(other, name)
                columns[name] = {t: np.concatenate((v, more[t])) for t, v in columns[name].items()}
        made.append(replace(rows, **columns))
    return tuple(made)


def plan_steps(
    passes: Any, options: Mapping[str, Mapping[str, Any]] | None = None, *, enable_bir_kernel: bool = False
) -> list[Step]:
    """Return the steps of a pipeline, each with its pass made, in the order in which they run.

    Parameters
    ----------
    passes, options, enable_bir_kernel
        As in `run`.

    Raises
    ------
    OptionError
        For a pass that is not registered, a wrong option, or options of a pass that is not among the steps.
    """
    if isinstance(passes, str | Pass | Step) or callable(passes):
        passes = [passes]
    if passes is None:
        chosen_steps = default_steps(enable_bir_kernel=enable_bir_kernel)
    elif enable_bir_kernel:
        raise OptionError(
            "`enable_bir_kernel` says where the default pipeline has `inline_bir_kernel`; with a pipeline of one's own "
            "put the pass where it belongs"
        )
    else:
        chosen_steps = _numbered(arguments.listed(passes, "`passes`", _PIPELINE))
    steps = [replace(s, made=s.build()) for s in chosen_steps]
    by_pass = arguments.typed({} if options is None else options, Mapping, "`options`", "options by pass name")
    for name, chosen in by_pass.items():
        _check_options(name, chosen)
        mine = [number for number, step in enumerate(steps) if step.name == name]
        if not mine:
            registry.get(name)  # complains when there is none at all
            listed = ", ".join(f"`{each}`" for each in dict.fromkeys(step.name for step in steps)) or "no pass"
            raise OptionError(f"options are given for pass `{name}`, which is not part of this run; it has {listed}")
        for number in mine:
            made = steps[number].made
            assert made is not None
            steps[number] = replace(steps[number], made=configured(made, dict(chosen)))
    return steps


_PIPELINE = "a pass, a registered name, a function, or a list of these"


def _check_options(name: str, options: object) -> None:
    """Refuse options of a pass that are no map from names to values."""
    held = arguments.typed(options, Mapping, f"pass `{name}`", "options by name")
    for option in held:
        arguments.text(option, f"the name of an option of pass `{name}`")


def _numbered(items: Iterable[Any]) -> list[Step]:
    """Give each item its order number, and sort by it."""
    pairs = [_pair(item) for item in items]
    given = [order for order, _ in pairs if order is not None]
    numbers: list[int] = []
    for place, (order, _) in enumerate(pairs):
        if order is not None:
            numbers.append(order)
        elif not given:
            numbers.append(place + 1)
        else:
            numbers.append(numbers[-1] if numbers else given[0])
    steps = [_step(order, thing) for order, (_, thing) in zip(numbers, pairs, strict=True)]
    return sorted(steps, key=lambda step: step.order)


def _pair(item: Any) -> tuple[int | None, Any]:
    if isinstance(item, Step):
        if type(item.order) is not int:
            raise arguments.wrong(f"step `{item.name}`", "an integer as its order number", item.order)
        if item.made is None:
            registry.get(item.name)
            _check_options(item.name, item.options)
        return item.order, item
    if not isinstance(item, tuple):
        return None, item
    if len(item) != 2 or isinstance(item[0], bool) or not isinstance(item[0], int):
        raise OptionError(f"a step of a pipeline is a pass or a pair (order number, pass), got {item!r}")
    return item


def _step(order: int, thing: Any) -> Step:
    if isinstance(thing, Step):
        return replace(thing, order=order)
    if isinstance(thing, str):
        registry.get(thing)
        return Step(order, thing)
    if isinstance(thing, type) and issubclass(thing, Pass):
        thing = thing()
    if isinstance(thing, Pass):
        return Step(order, thing.name, made=thing)
    name = getattr(thing, "__name__", "")
    if name.startswith("arrowir.passes."):  # `air.passes.unroll`, the name of a pass and its module
        return _step(order, name.rpartition(".")[2])
    if callable(thing):
        made = of_function(cast("Callable[[IR], IR]", thing))
        return Step(order, made.name, made=made)
    raise OptionError(
        f"a step of a pipeline is a registered name, a pass, or a function from `IR` to `IR`, got {thing!r}"
    )


def with_tensor_maps(ir: IR, wanted: object) -> tuple[IR, list[Diagnostic]]:
    """Return a batch with the tensor maps beside its modules' files, or without any; and rows about them (rule N17)."""
    if wanted is not None and type(wanted) is not bool:
        raise arguments.wrong("`tensor_map`", "true, false or None", wanted)
    from arrowir.formats import tensor_map

    return (tensor_map.detach(ir), []) if wanted is False else tensor_map.attach(ir, required=wanted is True)


def has_opcode(ir: IR, opcode: str) -> Array:
    """Return a mask of the modules with an instruction of some opcode in a function."""
    rows = np.flatnonzero(ir.tables["instructions"]["opcode"] == ir.pools.codes["opcode"].find(opcode))
    mask = np.zeros(len(ir), bool)
    if len(rows):
        function = ir.array("instructions", "function_id")[rows]
        mask[ir.array("instructions", "module_id")[rows[function >= 0]]] = True
    return mask


def rows_per_module(ir: IR) -> dict[str, Array]:
    """Return the number of rows per module for each counted table.

    A module's rows are one contiguous run, so for most tables two binary searches per module tell.
    """
    ends: dict[str, Array] = {}
    modules = np.arange(len(ir) + 1)
    for table in schema.TABLES:
        if table.name not in COUNTED:
            continue
        parent = table.column(table.parent) if table.parent is not None else None
        if parent is not None and parent.of in ends:
            ends[table.name] = np.searchsorted(ir.tables[table.name][parent.name], ends[parent.of])
        else:
            ends[table.name] = np.searchsorted(ir.array(table.name, "module_id"), modules)
    return {name: np.diff(ends[name]) for name in COUNTED}


def same_rows(one: IR, other: IR) -> bool:
    """Tell whether two batches share all tables."""
    return all(one.tables[name] is other.tables[name] for name in schema.STORED)


def steps_table(ir: IR, taken: Sequence[StepRows]) -> "pl.DataFrame":
    """Return the steps table of a run: module by module, each with its passes in order."""
    import polars as pl

    names = np.array(ir.tables["modules"].text().tolist(), object)
    rows = sum(len(step.modules) for step in taken)
    place = np.repeat(np.arange(len(taken)), [len(step.modules) for step in taken])
    module = np.concatenate([s.modules for s in taken]) if taken else np.empty(0, np.int64)
    sort = np.lexsort((place, module))

    def column(values: Iterable[Array], dtype: Any) -> Array:
        parts = list(values)
        return np.concatenate(parts).astype(dtype)[sort] if parts else np.empty(0, dtype)

    data: dict[str, pl.Series] = {
        "module": pl.Series(names[module[sort]].tolist(), dtype=pl.String),
        "module_id": pl.Series(module[sort].astype(np.int64)),
        "pass": pl.Series([taken[p].name for p in place[sort].tolist()], dtype=pl.String),
        "order": pl.Series([taken[p].order for p in place[sort].tolist()], dtype=pl.Int64),
        "status": pl.Series([STATUS[c] for c in column((s.codes for s in taken), np.int8).tolist()], dtype=pl.String),
        "seconds": pl.Series(column((_shared_out(s) for s in taken), np.float64)),
    }
    for name in COUNTED:
        data[f"{name}_before"] = pl.Series(column((s.before[name] for s in taken), np.int64))
        data[f"{name}_after"] = pl.Series(column((s.after[name] for s in taken), np.int64))
    frame = pl.DataFrame(data)
    assert len(frame) == rows
    return frame


def _shared_out(step: StepRows) -> Array:
    """Share the time of a sweep out among its modules, by the instructions that they had."""
    weight = step.before["instructions"] + 1.0
    return step.seconds * weight / weight.sum() if len(weight) else weight


def rebinding_notes(ir: IR, modules: Array) -> list[Diagnostic]:
    """Return a note for each written name of some modules that resolves to another row when read back (rule R7)."""
    if not len(modules):
        return []
    from arrowir.formats.rebinding import rebinding_names

    return rebinding_names(ir, modules.tolist())
