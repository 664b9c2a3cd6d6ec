"""Translation validation: what `air.equivalent` does. Two versions of a module are run on the same inputs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from arrowir import arguments
from arrowir.diagnostics import OptionError, SimulationError
from arrowir.ir import IR
from arrowir.simulate import readings as readings_
from arrowir.simulate.contents import INTEGERS, Contents, Key, parameters
from arrowir.simulate.dtypes import Dtype, dtype
from arrowir.simulate.machine import MAX_STEPS, Machine, held_dtype, shaped
from arrowir.simulate.program import Program
from arrowir.simulate.running import input_names
from arrowir.simulate.writers import LastWriter, call_chain
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl

Status = Literal["equal", "different", "not_executable"]

STATUS: tuple[Status, ...] = ("equal", "not_executable", "different")
"""How a comparison ends, from best to worst."""

_FAR = 10_000
"""A module may take this many more instructions than the one before it, and ten times as many, before it is stopped."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One trial of one module."""

    module: str
    module_id: int
    trial: int
    """From 0."""
    status: Status
    function: str | None = None
    """The function that was being compared, where not all are equal."""
    output: str | None = None
    """The first output that differs, or an input that is written and then differs."""
    element: tuple[int, ...] | None = None
    """Index of its first element that differs."""
    before: str | None = None
    """That element before, and after; as bits where the numbers look alike."""
    after: str | None = None
    instruction: str | None = None
    """The instruction of the second module that wrote the element last, or that could not be executed."""
    opcode: str | None = None
    instruction_id: int | None = None
    call_chain: tuple[str, ...] | None = None
    """Names of the call-sites around it, outermost first."""
    reason: str | None = None
    """What is different, or why the module cannot be executed, in words."""
    steps_before: int | None = None
    """Instructions executed."""
    steps_after: int | None = None


@dataclass(frozen=True)
class Equivalence:
    """What came of comparing two batches; made by `equivalent`."""

    comparisons: tuple[Comparison, ...]

    @property
    def ok(self) -> bool:
        """Tell whether every module is equal in every trial; one that cannot be executed is not."""
        return all(c.status == "equal" for c in self.comparisons)

    @cached_property
    def statuses(self) -> dict[int, Status]:
        """The worst status of each module by its id: different, else not executable, else equal."""
        worst: dict[int, int] = {}
        for c in self.comparisons:
            worst[c.module_id] = max(worst.get(c.module_id, 0), STATUS.index(c.status))
        return {module_id: STATUS[place] for module_id, place in worst.items()}

    @property
    def frame(self) -> "pl.DataFrame":
        """One row per module and trial; the columns are the fields of `Comparison`."""
        import polars as pl

        types: dict[str, Any] = dict.fromkeys((f.name for f in fields(Comparison)), pl.String)
        types |= dict.fromkeys(("module_id", "trial", "instruction_id", "steps_before", "steps_after"), pl.Int64)
        types |= {"element": pl.List(pl.Int64), "call_chain": pl.List(pl.String)}
        columns = list(zip(*map(_cells, self.comparisons), strict=True)) or [()] * len(types)
        return pl.DataFrame(dict(zip(types, columns, strict=True)), schema=types)

    def __repr__(self) -> str:
        found = list(self.statuses.values())
        listed = ", ".join(f"{found.count(s)} {s.replace('_', ' ')}" for s in STATUS if s in found)
        worst = next((c.reason for c in self.comparisons if c.status == "different"), None)
        return f"<arrowir.Equivalence: modules: {listed or 'none'}{f'; {worst}' if worst else ''}>"


def _cells(comparison: Comparison) -> tuple[Any, ...]:
    cells = (getattr(comparison, f.name) for f in fields(Comparison))
    return tuple(list(cell) if isinstance(cell, tuple) else cell for cell in cells)


def equivalent(
    before: IR,
    after: IR,
    inputs: "Mapping[str, Any] | Sequence[Mapping[str, Any]] | None" = None,
    trials: int = 3,
    seed: int = 0,
    *,
    tolerance: float = 0.0,
    nonfinite: bool = False,
    modules: Iterable[int] | None = None,
    shard_id: int = 0,
    readings: Mapping[str, str] | None = None,
    max_steps: int = MAX_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Equivalence:
    """Run the modules of two batches on the same inputs and compare what they write, byte for byte.

    Modules are paired by their place. Of each all functions are run that are no kernels and that nothing calls. What is
    compared is all that a caller sees: outputs, and inputs that are written. Outputs begin with random content too, so
    that an element that only one of the two writes is a difference.

    Parameters
    ----------
    before, after
        The two batches, with as many modules each.
    inputs
        Arrays by name, as `simulate` takes them, for all modules or a mapping for each. Inputs without one are drawn:
        floats are finite, between 1/16 and 4 in size, in every second trial all positive; integers are from 0 to 127,
        or fewer where the first module cannot be executed on these.
    trials
        How often each module is run; once where nothing is drawn.
    seed
        What random values are made of, together with the trial and the parameter's name.
    tolerance
        Floats may differ by so much, times the larger one's size where that is above 1: for kernels that say how exact
        they are. 0 compares bytes.
    nonfinite
        Whether random floats may be infinite or no number.
    modules
        The modules to compare, by id; all by default.
    shard_id, readings, max_steps
        As in `simulate`.
    progress
        Called before each module with how many have been compared, and their number.

    Returns
    -------
    Equivalence
        `ok`, and a frame with a row per module and trial. A module whose first version cannot be executed, or which
        writes nothing that a caller sees, has the status ``"not_executable"`` and counts as neither equal nor
        different. If only the second version fails, the two are different.

    Raises
    ------
    OptionError
        If the batches differ in size, or an argument does not fit.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> air.equivalent(ir, air.run(ir).ir)
    <arrowir.Equivalence: modules: 1 equal>
    """
    for what, batch in (("`before`", before), ("`after`", after)):
        arguments.typed(batch, IR, what, "an `arrowir.IR`")
    if len(before) != len(after):
        raise OptionError(f"`before` has {len(before)} modules and `after` has {len(after)}; they are paired by place")
    arguments.count(trials, "`trials`", 1)
    arguments.count(seed, "`seed`")
    if type(tolerance) not in (int, float) or not tolerance >= 0:
        raise arguments.wrong("`tolerance`", "a number of at least 0", tolerance)
    choices = readings_.check(readings, shard_id, max_steps)
    arguments.function(progress, "`progress`")
    chosen = list(range(len(before))) if modules is None else arguments.listed(modules, "`modules`", "ids of modules")
    for module_id in chosen:
        before._check_module(module_id)  # pyright: ignore[reportPrivateUsage]
    given = _inputs_of(inputs, len(before))
    options = _Options(trials, seed, float(tolerance), nonfinite, shard_id, choices, max_steps)
    found: list[Comparison] = []
    for number, module_id in enumerate(chosen):
        if progress is not None:
            progress(number, len(chosen))
        found += _Pair(Program(before, module_id), Program(after, module_id), given[module_id], options).compare()
    return Equivalence(tuple(found))


def _inputs_of(inputs: Any, modules: int) -> list[Mapping[str, Any]]:
    """Return the given inputs of each module."""
    if inputs is None or isinstance(inputs, Mapping):
        return [inputs or {}] * modules
    listed = arguments.listed(inputs, "`inputs`", "arrays by name, or a mapping of these for each module")
    if len(listed) != modules:
        raise OptionError(f"`inputs` holds {len(listed)} mappings for {modules} modules")
    return [arguments.typed(item, Mapping, "`inputs`", "a mapping for each module") for item in listed]


@dataclass(frozen=True, slots=True)
class _Options:
    trials: int
    seed: int
    tolerance: float
    nonfinite: bool
    shard_id: int
    readings: dict[str, str]
    max_steps: int


@dataclass(slots=True)
class _Difference:
    """A parameter whose content differs, and its first element that does."""

    key: Key
    element: tuple[int, ...]
    first_byte: int
    size: int
    before: str
    after: str


@dataclass
class _Pair:
    """The two versions of one module."""

    before: Program
    after: Program
    given: Mapping[str, Any]
    options: _Options
    drawn: bool = field(default=False, init=False)
    """Whether a trial has drawn anything."""

    def compare(self) -> list[Comparison]:
        """Return a row per trial."""
        functions = _entries(self.before)
        if not functions:
            reason = "it has no function that is no kernel"
            return [self._row(trial, "not_executable", reason=reason) for trial in range(self.options.trials)]
        taken: set[str] = set()
        for function in functions:
            taken |= input_names(self.before, function) & self.given.keys()
        for name in self.given:
            if name not in taken:
                raise OptionError(f"`{name}` is no location of a function of `{self.before.name}`")
        found: list[Comparison] = []
        for trial in range(self.options.trials):
            found.append(self._trial(functions, trial))
            if not self.drawn:
                break
        return found

    def _row(self, trial: int, status: Status, **more: Any) -> Comparison:
        return Comparison(self.before.name, self.before.module_id, trial, status, **more)

    def _trial(self, functions: list[int], trial: int) -> Comparison:
        """Compare all functions on one set of inputs; the worst one is the row."""
        worst = self._row(trial, "equal")
        steps_before = steps_after = 0
        for place, function in enumerate(functions):
            row = self._function(functions, place, trial)
            steps_before += row.steps_before or 0
            steps_after += row.steps_after or 0
            if STATUS.index(row.status) > STATUS.index(worst.status):
                worst = replace(row, function=self.before.text("functions", function))
            if row.status == "different":
                break
        return replace(worst, steps_before=steps_before or None, steps_after=steps_after or None)

    def _function(self, functions: list[int], place: int, trial: int) -> Comparison:
        """Compare one function."""
        function = functions[place]
        name = self.before.text("functions", function)
        given = {n: array for n, array in self.given.items() if n in input_names(self.before, function)}
        one, contents, error = self._first(function, given, trial)
        if one is None:
            assert error is not None
            return self._row(trial, "not_executable", reason=error.reason, **_about(error))
        others = [f for f in _entries(self.after) if self.after.text("functions", f) == name]
        number = sum(self.before.text("functions", f) == name for f in functions[:place])
        if number >= len(others):
            reason = f"the function `{name}` is not there any more"
            return self._row(trial, "different", reason=reason, steps_before=one.steps)
        other = Machine(
            self.after,
            others[number],
            readings=self.options.readings,
            shard_id=self.options.shard_id,
            max_steps=min(self.options.max_steps, 10 * one.steps + _FAR),
        )
        row = self._second(one, other, contents, given, trial)
        return replace(row, steps_before=one.steps, steps_after=other.steps)

    def _first(
        self, function: int, given: Mapping[str, Any], trial: int
    ) -> tuple[Machine | None, Contents, SimulationError | None]:
        """Run the first version, with smaller integers where it cannot be executed with larger ones."""
        problem: SimulationError | None = None
        contents = Contents(self.options.seed, trial, nonfinite=self.options.nonfinite)
        for ceiling in INTEGERS:
            contents.smaller(ceiling)
            machine = Machine(
                self.before,
                function,
                readings=self.options.readings,
                shard_id=self.options.shard_id,
                max_steps=self.options.max_steps,
            )
            try:
                contents.fill(machine, given)
                self.drawn |= bool(contents.drawn)
                machine.run()
            except SimulationError as error:
                problem = problem or error
                if not contents.integers or machine.steps > self.options.max_steps:
                    break
            else:
                return machine, contents, None
        return None, contents, problem

    def _second(
        self, one: Machine, other: Machine, contents: Contents, given: Mapping[str, Any], trial: int
    ) -> Comparison:
        """Run the second version and compare."""
        mine, theirs = parameters(self.before, one.frame.function), parameters(self.after, other.frame.function)
        for key in dict.fromkeys((*mine, *theirs)):
            if key[0] != "constant" and (key in mine) != (key in theirs):
                where = "after" if key in theirs else "before"
                return self._row(trial, "different", output=key[1], reason=f"the {key[0]} `{key[1]}` is only {where}")
        try:
            contents.fill(other, given)
            other.run()
            found = self._difference(one, other, mine, theirs)
        except SimulationError as error:
            reason = f"it cannot be executed any more: {error.reason}"
            return self._row(trial, "different", reason=reason, **_about(error))
        except OptionError as error:
            return self._row(trial, "different", reason=f"the parameters differ: {error}")
        if found is not None:
            return self._found(other, theirs[found.key], found, contents, given, trial)
        if not self._visible(one, mine, contents):
            reason = "it writes nothing that a caller sees: there is nothing to compare"
            return self._row(trial, "not_executable", reason=reason)
        return self._row(trial, "equal")

    def _difference(
        self, one: Machine, other: Machine, mine: dict[Key, int], theirs: dict[Key, int]
    ) -> _Difference | None:
        """Return the first difference, outputs before inputs."""
        for role in ("output", "input"):
            for key, location in mine.items():
                if key[0] != role:
                    continue
                a = one.touch(one.frame, location).data
                b = other.touch(other.frame, theirs[key]).data
                if np.array_equal(a, b):
                    continue
                held, other_held = held_dtype(self.before, location), held_dtype(self.after, theirs[key])
                if len(a) != len(b) or held is not other_held:
                    sizes = f"{len(a)} bytes of `{held.name}` before and {len(b)} of `{other_held.name}` after"
                    raise OptionError(f"`{key[1]}` has {sizes}")
                ragged = len(a) % held.size
                if ragged:
                    held = dtype("uint8")
                place = _first_difference(a, b, held, self.options.tolerance)
                if place is not None:
                    shape = a.shape if ragged else shaped(self.before, location, a).shape
                    element = tuple(int(n) for n in np.unravel_index(place, shape))
                    texts = _spelled(a, b, held, place)
                    return _Difference(key, element, place * held.size, held.size, *texts)
        return None

    def _visible(self, machine: Machine, mine: dict[Key, int], contents: Contents) -> bool:
        """Tell whether a run has changed anything that a caller sees; what was given counts as changed."""
        for key, location in mine.items():
            if key[0] == "constant":
                continue
            memory = machine.touch(machine.frame, location)
            drawn = contents.drawn.get(key)
            if drawn is None and key[0] == "output":
                return True
            if drawn is not None and not np.array_equal(drawn, memory.data):
                return True
        return False

    def _found(
        self,
        other: Machine,
        location: int,
        found: _Difference,
        contents: Contents,
        given: Mapping[str, Any],
        trial: int,
    ) -> Comparison:
        """Run the second version again to see which instruction wrote the element, and describe the difference."""
        program = self.after
        again = Machine(
            program,
            other.frame.function,
            readings=self.options.readings,
            shard_id=self.options.shard_id,
            max_steps=other.max_steps,
        )
        contents.fill(again, given)
        again.trace = LastWriter(again.touch(again.frame, location), found.first_byte, found.first_byte + found.size)
        again.run()
        writer = again.trace.last
        row = self._row(
            trial,
            "different",
            output=found.key[1],
            element=found.element,
            before=found.before,
            after=found.after,
        )
        what = f"`{found.key[1]}` differs first at {list(found.element)}: {found.before} before, {found.after} after"
        if writer is None:
            return replace(row, reason=f"{what}; nothing writes it after")
        name = program.text("instructions", writer.instruction)
        chain = call_chain(program, writer)
        reached = f" (reached through {' > '.join(f'`{site}`' for site in chain)})" if chain else ""
        return replace(
            row,
            instruction=name,
            opcode=program.word("instructions", "opcode", writer.instruction),
            instruction_id=writer.instruction,
            call_chain=tuple(chain),
            reason=f"{what}; written last by `{name}`{reached}",
        )


def _entries(program: Program) -> list[int]:
    """Return the functions of a module that are run: no kernels, and not called; `main` first."""
    kernel, called = program.column("functions", "is_kernel"), program.column("calls", "callee_id")
    found = [row for row in program.functions if kernel[row] != 1 and not (len(called) and (called == row).any())]
    return sorted(found, key=lambda row: program.text("functions", row) != "main")


def _about(error: SimulationError) -> dict[str, Any]:
    """Return what an error says about the instruction."""
    return {"instruction": error.instruction, "opcode": error.opcode}


def _first_difference(a: NDArray[np.uint8], b: NDArray[np.uint8], held: Dtype, tolerance: float) -> int | None:
    """Return the number of the first element that differs."""
    one, other = a.view(held.unsigned), b.view(held.unsigned)
    differ = one != other
    if tolerance and held.kind == "float":
        x, y = (bits.view(held.numpy).astype(np.float64) for bits in (one, other))
        with np.errstate(invalid="ignore"):
            allowed = tolerance * np.maximum(1, np.maximum(np.abs(x), np.abs(y)))
            close = (np.abs(x - y) <= allowed) & np.isfinite(x) & np.isfinite(y)
        differ &= ~(close | (np.isnan(x) & np.isnan(y)))
    places = np.flatnonzero(differ)
    return int(places[0]) if len(places) else None


def _spelled(a: NDArray[np.uint8], b: NDArray[np.uint8], held: Dtype, place: int) -> tuple[str, str]:
    """Write the values of an element, as bits where the numbers look alike."""
    where = slice(place * held.size, (place + 1) * held.size)
    bits = [f"0x{int(data[where].view(held.unsigned)[0]):0{2 * held.size}x}" for data in (a, b)]
    if held.kind == "bits":
        return bits[0], bits[1]
    values: list[Array] = [data[where].view(held.numpy) for data in (a, b)]
    texts = [str(float(v[0])) if held.kind == "float" else str(int(v[0])) for v in values]
    if texts[0] == texts[1]:
        texts = [f"{text} ({pattern})" for text, pattern in zip(texts, bits, strict=True)]
    return texts[0], texts[1]
