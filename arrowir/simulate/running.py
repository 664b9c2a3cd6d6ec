"""Running a module's function on named inputs: what `air.simulate` does."""

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from arrowir import arguments
from arrowir import vocabulary as vocab
from arrowir.diagnostics import OptionError, SimulationError
from arrowir.ir import IR
from arrowir.simulate import readings as readings_
from arrowir.simulate.dtypes import Dtype
from arrowir.simulate.machine import MAX_STEPS, Machine, held_dtype, shaped
from arrowir.simulate.memory import Memory
from arrowir.simulate.program import Program
from arrowir.simulate.trace import Trace, Watched
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl


class Simulation(dict[str, Array]):
    """The outputs of a simulation by name, and what else there is to know about it; made by `simulate`."""

    def __init__(self, machine: Machine, outputs: Mapping[str, Array], *, finished: bool) -> None:
        super().__init__(outputs)
        self._machine = machine
        self.finished = finished
        """Whether the function came to its end; False when `until` stopped it before."""

    @property
    def steps(self) -> int:
        """The number of executed instructions."""
        return self._machine.steps

    @property
    def trace(self) -> "pl.DataFrame":
        """One row per executed instruction, control flow aside: bytes read and written, minimum, maximum and NaNs of
        what it wrote. Empty without ``trace=True``.
        """  # noqa: D205
        trace = self._machine.trace
        return (trace if trace is not None else Trace(rows=False)).frame()

    @property
    def watched(self) -> dict[str, list[Watched]]:
        """For each watched location its content after every instruction that wrote to it."""
        trace = self._machine.trace
        return {} if trace is None else trace.watched

    def content(self, name: str) -> Array:
        """Return the content of a location of the function itself or, if it has none of the name, of a kernel.

        Parameters
        ----------
        name
            Of the location.

        Returns
        -------
        numpy.ndarray
            In dtype and shape of its set; bytes that were never written have all bits set.

        Raises
        ------
        OptionError
            If no location of the name has been touched.
        """
        machine = self._machine
        for frame in machine.frames:
            for memory in frame.touched:
                if memory.name == name:
                    return machine.content(memory)
        raise OptionError(f"no location `{name}` has been read or written")

    def __repr__(self) -> str:
        shown = ", ".join(f"`{name}` {array.dtype}{list(array.shape)}" for name, array in self.items())
        return f"<arrowir.Simulation: {shown or 'no outputs'}, {self.steps:,} steps>"


def simulate(
    ir: IR,
    inputs: Mapping[str, Any] | None = None,
    module_id: int = 0,
    *,
    function: str | None = None,
    shard_id: int = 0,
    readings: Mapping[str, str] | None = None,
    nan: Literal["allow", "raise"] = "allow",
    max_steps: int = MAX_STEPS,
    trace: bool = False,
    until: str | int | Iterable[str | int] | None = (),
    watch: str | Iterable[str] | None = (),
) -> Simulation:
    """Run a module's function on some inputs.

    Each memory location is an array of bytes with a record of which have been written. Instructions are executed in
    program order, and nothing is guessed: reading what was never written, leaving a location, an operand kind or an
    opcode that is not modelled, and values for which the known semantics leave the result open end in an error that
    names the instruction.

    Parameters
    ----------
    ir
        The batch.
    inputs
        Arrays by the name of a location or of its set. Parameters of an input kind are meant, else any location of the
        function, whose content they are at the start. An array has the dtype of the set, and its shape or as many
        elements.
    module_id
        The module.
    function
        The function to run; by default `main`, else the first one that is no kernel.
    shard_id
        The value of the shard in expressions.
    readings
        Choices for cases that the known semantics leave open, by name: see `arrowir.simulate.undecided_cases`.
    nan
        ``"raise"`` to stop with an error where an instruction writes a NaN.
    max_steps
        Stop with an error after so many executed instructions.
    trace
        Keep a row for each executed instruction: `Simulation.trace`.
    until
        Stop after the first execution of an instruction of this name or id, or of one of several. Outputs that are not
        complete by then are left out.
    watch
        Names of locations whose content is kept after each instruction that writes to them: `Simulation.watched`.

    Returns
    -------
    Simulation
        The outputs by name, in a dictionary; of locations that share a name, the first of an output kind.

    Raises
    ------
    SimulationError
        If something cannot be executed, or an output is not written completely.
    OptionError
        If an input does not fit, or an option is unknown.

    Examples
    --------
    >>> import arrowir as air
    >>> import numpy as np
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> outputs = air.simulate(ir, {"a": np.full((128, 512), 2, np.float32)})
    >>> outputs["out"][0, :3]
    array([6., 6., 6.], dtype=float32)
    """
    arguments.typed(ir, IR, "`simulate`", "an `arrowir.IR`")
    ir._check_module(module_id)  # pyright: ignore[reportPrivateUsage]
    arrays = arguments.typed({} if inputs is None else inputs, Mapping, "`inputs`", "arrays by name")
    if nan not in ("allow", "raise"):
        raise OptionError(f'`nan` is "allow" or "raise", not {nan!r}')
    chosen = readings_.check(readings, shard_id, max_steps)
    program = Program(ir, module_id)
    if function is not None:
        arguments.text(function, "`function`")
    stops = _stops(program, until)
    notes = Trace(rows=bool(trace), watch=_watched(program, watch))
    noted = trace or bool(notes.watch)
    machine = Machine(
        program,
        program.entry(function),
        readings=chosen,
        shard_id=shard_id,
        nan=nan,
        max_steps=max_steps,
        trace=notes if noted else None,
    )
    try:
        _load(machine, arrays)
        finished = machine.run(stops)
        outputs = _outputs(machine, finished=finished)
    except SimulationError as error:
        if error.module is not None:
            raise
        raise SimulationError(error.reason, module=program.name) from error
    return Simulation(machine, outputs, finished=finished)


def input_names(program: Program, function: int) -> set[str]:
    """Return the names by which an input of a function may be given: those of locations and of their sets."""
    names: set[str] = set()
    for owner in program.sets(function):
        names.add(owner.name)
        names.update(program.placement(location).name for location in owner.locations)
    return names


def _several(given: Any, what: str, takes: str) -> frozenset[Any]:
    if given is None:
        return frozenset()
    items = [given] if isinstance(given, str | int) else arguments.listed(given, what, takes)
    for item in items:
        if not isinstance(item, str | int) or isinstance(item, bool):
            raise arguments.wrong(what, takes, item)
    return frozenset(items)


def _stops(program: Program, until: Any) -> frozenset[str | int]:
    """Return the instructions to stop behind, which have to be there."""
    found = _several(until, "`until`", "the name or the id of an instruction, or several")
    rows = program.children("instructions", "module_id", program.module_id)
    names = {program.text("instructions", row) for row in rows} if found else set[str]()
    for stop in found:
        if stop not in (rows if isinstance(stop, int) else names):
            spelled = f"has the id {stop}" if isinstance(stop, int) else f"is named `{stop}`{_near(stop, names)}"
            raise OptionError(f"`until`: no instruction of `{program.name}` {spelled}")
    return found


def _watched(program: Program, watch: Any) -> frozenset[str]:
    """Return the names of locations to watch, which have to be there."""
    found = _several(watch, "`watch`", "the name of a location, or several")
    names = {program.text("locations", row) for row in program.children("locations", "module_id", program.module_id)}
    for name in found:
        if name not in names:
            raise OptionError(f"`watch`: no location of `{program.name}` is named `{name}`{_near(str(name), names)}")
    return found


def _near(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _of_kinds(machine: Machine, kinds: Collection[int]) -> dict[str, int]:
    """Return the locations of the function whose sets are of some kinds by name; of several the first."""
    program = machine.program
    found: dict[str, int] = {}
    for owner in program.sets(machine.frame.function):
        if owner.kind in kinds:
            for location in owner.locations:
                found.setdefault(program.placement(location).name, location)
    return found


def _load(machine: Machine, inputs: Mapping[str, Any]) -> None:
    """Give locations their content at the start."""
    program, frame = machine.program, machine.frame
    formals = _of_kinds(machine, vocab.INPUT_KINDS)
    places = _of_kinds(machine, range(len(vocab.TENSOR_KINDS))) | formals
    by_set: dict[str, int] = {}
    for owner in program.sets(frame.function):
        if len(owner.locations) == 1 and owner.name not in by_set | places:
            by_set[owner.name] = owner.locations[0]
    given: set[int] = set()
    for name, array in inputs.items():
        location = places.get(name, by_set.get(name))
        if location is None:
            known = ", ".join(f"`{n}`" for n in formals) or "none"
            raise OptionError(
                f"`{name}` is no location of `{program.text('functions', frame.function)}`; inputs: {known}"
            )
        if location in given:
            raise OptionError(f"`{name}` and another of the inputs are one location; give it once")
        memory = machine.touch(frame, location)
        memory.fill(_bytes(program, location, name, array))
        given.add(location)
    for name, location in formals.items():
        if location not in given:
            machine.touch(frame, location).why = f"; the input `{name}` was not given"
    for owner in program.sets(frame.function):
        if owner.kind == vocab.KIND_CONST and not given & set(owner.locations):
            _load_constant(machine, owner.locations, owner.members.get("file"))


def _bytes(program: Program, location: int, name: str, given: Any) -> Array:
    """Return the bytes of an input."""
    try:
        array = np.asarray(given)
    except Exception as error:  # whatever another library's arrays raise
        raise OptionError(f"`{name}` is no array: {error}") from error
    if np.ma.is_masked(given):
        raise OptionError(f"`{name}` has masked elements; fill them first")
    placement = program.placement(location)
    held = held_dtype(program, location)
    if array.dtype.byteorder not in "=|" and array.dtype.newbyteorder("=") == held.numpy:
        array = array.astype(held.numpy)
    if array.dtype != held.numpy and not _is_raw(array, held):
        raise OptionError(f"`{name}` holds `{held.name}`, and was given {array.dtype}; convert it to {held.numpy}")
    shape = shaped(program, location, np.empty(placement.partitions * placement.pitch, np.uint8)).shape
    size = int(np.prod(shape))
    flat = array.ndim == 1 and array.size == size
    if array.shape not in (shape, (placement.partitions, placement.pitch // held.size)) and not flat:
        raise OptionError(f"`{name}` has the shape {shape}, and was given {array.shape}")
    return np.frombuffer(bytearray(np.ascontiguousarray(array).tobytes()), np.uint8)


def _is_raw(array: Array, held: Dtype) -> bool:
    """Tell whether an array holds the bits of a type that files of numpy do not know."""
    return array.dtype.kind == "V" and array.dtype.itemsize == held.size and held.numpy.kind == "V"


def _load_constant(machine: Machine, locations: tuple[int, ...], file: Any) -> None:
    """Read the data of a constant from the file that it names, when that is there."""
    program = machine.program
    source = program.pooled("modules", "source", program.module_id)
    if not isinstance(file, str) or not file or not source or len(locations) != 1:
        return
    path = Path(source).parent / file
    memory = machine.touch(machine.frame, locations[0])
    if not path.is_file():
        memory.why = f"; it is a constant, and its file `{file}` is not beside the module: give it as an input"
        return
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise OptionError(f"the constant `{memory.name}` cannot be read from `{path}`: {error}") from None
    memory.fill(_bytes(program, locations[0], memory.name, array))


def _outputs(machine: Machine, *, finished: bool) -> dict[str, Array]:
    """Return the content of the output parameters."""
    found: dict[str, Array] = {}
    for name, location in _of_kinds(machine, vocab.OUTPUT_KINDS).items():
        memory: Memory = machine.touch(machine.frame, location)
        if memory.complete:
            found[name] = shaped(machine.program, location, memory.data)
        elif finished:
            raise SimulationError(
                f"{memory.unwritten} of {memory.size} bytes of the output `{name}` were never written; give its "
                "content at the start as an input if that is meant"
            )
    return found
