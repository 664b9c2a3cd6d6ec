"""What can be wrong: the registry of codes, the diagnostics table, the exceptions.

A diagnostic is one row: which module, which pass, how bad, a stable code, a message, and what it is about (rule O3).
The registry below is the only place that says what codes there are; the documentation is made from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import polars as pl

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Code:
    """One kind of diagnostic."""

    name: str
    severity: Severity
    meaning: str
    fatal: bool = True
    """An error that fails the module; rule O8 has errors that do not."""
    compiler_code: str | None = None


def _codes(*codes: Code) -> dict[str, Code]:
    return {code.name: code for code in codes}


CODES: dict[str, Code] = _codes(
    # reading
    Code("format_error", "error", "the file is not a BIR module, or a known member has a wrong type"),
    Code("duplicate_key", "warning", "a member stands twice in one JSON object; the last value is kept"),
    Code("unresolved_name", "warning", "a name that nothing in reach has; an error in a pass that needs it"),
    Code("ambiguous_name", "note", "several things have the name; one was chosen by rule R2"),
    Code("unknown_value", "warning", "a value outside a closed vocabulary; kept"),
    Code("term_count_mismatch", "warning", "a `SumKind` says another number of terms than it has; its terms count"),
    Code("rebinding_name", "note", "a written name would resolve to another row when read back"),
    # any pass
    Code("internal_error", "error", "an unexpected exception: a defect of this library"),
    Code(
        "too_many_instructions",
        "error",
        "the pass would produce more instructions than allowed",
        compiler_code="ELUR015",
    ),
    Code("introduced_error", "error", "the pass brought in what the verifier refuses; the compiler code is the rule's"),
    Code("not_supported", "error", "legal BIR that this version cannot transform"),
    Code("unknown_arch", "error", "the architecture is unknown, or has no hardware model"),
    # runtime_memory_reservation
    Code("single_function_required", "error", "the module has not exactly one ordinary function", fatal=False),
    Code("arch_below_30", "note", "the architecture gets no reservation"),
    Code("already_reserved", "note", "the reservation is there already"),
    Code("name_taken", "error", "a location has the reserved name but not the flag"),
    Code("reservation_exceeds_sbuf", "error", "the region does not fit into SBUF"),
    Code("reservation_overlaps", "warning", "allocated locations share bytes with the region"),
    Code("unassigned_tensor_id", "error", "a location of the set has a negative tensor_id"),
    # inline_nki_kernel
    Code("no_callee", "error", "the call-site names no function", compiler_code="NKI001"),
    Code("callee_lost", "error", "the callee is gone after canonicalisation", compiler_code="NKI002"),
    Code("ambiguous_callee", "error", "several functions have the callee's name"),
    Code("recursive_kernel", "error", "kernel functions call each other in a cycle"),
    Code("call_site_skipped", "note", "the call-site's allocation status is not that of the pass"),
    Code("unknown_kernel_source", "error", "kernel_source_val is none of Beta1, Beta2, Beta3"),
    Code("call_site_not_plain", "error", "the call-site has sync_info or predicates"),
    Code("unbound_parameter", "error", "a parameter of the callee has no actual"),
    Code("unknown_parameter", "error", "an argument map names something that is no parameter"),
    Code("parameter_location_count", "error", "a bound set has not exactly one location", compiler_code="NKI006"),
    Code("parameter_size_mismatch", "error", "actual and formal differ in bytes"),
    Code("scratchpad_count", "error", "fewer outputs than scratchpads", compiler_code="NKI003"),
    Code("scratchpad_unallocated", "error", "an allocated kernel needs an allocated scratchpad"),
    Code("scratchpad_base", "error", "the SB scratchpad does not start at partition 0"),
    Code("sb_overflow", "error", "a rebased SB location ends past the capacity"),
    Code("output_not_written", "warning", "the kernel never writes an output parameter"),
    # unroll
    Code("dynamic_loop", "error", "a loop depends on something that neither constants nor registers give"),
    Code("zero_stride", "error", "a loop's stride is 0"),
    Code("block_tensor", "error", "a loop addresses a tensor that has one block per iteration"),
    Code("address_rank_mismatch", "error", "addrs and tensor_shape differ in length"),
    Code("symbolic_location_count", "error", "the set of a symbolic operand has not exactly one location"),
    Code("address_out_of_bounds", "error", "a symbolic address lies outside its location"),
    Code("integer_overflow", "error", "an expression leaves 64 bits"),
    Code("runtime_address", "error", "an address depends on a value known only at run time"),
    Code("division_by_zero", "error", "an expression divides by zero"),
    Code("bad_expression", "error", "an expression of an unknown kind or form"),
    Code("immediate_out_of_range", "error", "a symbolic immediate names no element of its list"),
    Code("predicated_instruction", "error", "an instruction has predicates"),
    Code("predicated_dependency", "error", "an unroll dependency has predicates"),
    Code("bad_distance", "error", "a loop-carried dependency has a distance that is no integer of at least 1"),
    Code("unknown_dtype", "error", "the size of a symbolic operand's dtype is not known"),
    Code("index_rank_mismatch", "error", "an unroll dependency has not one index per loop"),
    # inline_bir_kernel
    Code("unknown_bir_kernel", "error", "the library has no kernel of that name"),
    Code("bad_kernel_option", "error", "an option that the kernel does not have, or a value of the wrong type"),
    Code("kernel_shape_mismatch", "error", "arguments that the kernel cannot take"),
    Code("kernel_base_partition", "error", "an input or output of a kernel does not start at partition 0"),
    Code("scratchpad_too_small", "error", "the body's scratch does not fit into the call-site's scratchpads"),
    Code("kernel_failed", "error", "the kernel's status is not ok", compiler_code="NKI016"),
    # lower_generic_indirect
    Code("generic_indirect_invariant", "error", "a generic indirect access is not of the form that can be lowered"),
    # coalesce_multichannel_cc_ops
    Code("collective_run_mismatch", "error", "collectives of adjacent channels do not fit together"),
    # constant_propagate
    Code(
        "invalid_select_predicate",
        "error",
        "a `Select` has a constant predicate other than 0 and 1",
        compiler_code="SCP001",
    ),
    Code("constants_propagated", "note", "how many instructions were rewritten and removed"),
    # translate_nki_ast_to_bir
    Code("unknown_kernel_format", "error", "the kernel file is of another format than BIR JSON"),
    Code("no_artefacts", "error", "there is no folder in which the kernel file could be looked for"),
    Code("kernel_file_missing", "error", "the kernel file is not there"),
    Code("kernel_file_outside", "error", "a kernel file, or a constant's, lies where files are not read from"),
    Code("kernel_file_damaged", "error", "the kernel file cannot be read, or is no BIR module"),
    Code("core_id_required", "error", "the kernel file has a function per core, and the module does not say its core"),
    Code("kernel_file_skipped", "note", "the kernel file has no function for the module's core"),
    Code("kernel_arch_differs", "warning", "kernel file and module are for different architectures"),
    Code("constant_file_missing", "warning", "the file of a kernel's constant is not beside the kernel file"),
    Code("bad_tensor_map", "error", "the tensor map beside a module cannot be read, and is left out", fatal=False),
    Code("no_tensor_map", "error", "a tensor map was asked for, and none lies beside the module", fatal=False),
    Code("psum_overflow", "error", "the kernel uses a PSUM bank that the architecture does not have"),
    # checking a run by execution
    Code("not_equivalent", "error", "executed before and after the run, the module differs", fatal=False),
    Code("not_executable", "note", "the module could not be executed, and was not checked"),
)


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One row of the diagnostics table; ids are those of the batch that the pass was given."""

    severity: Severity
    code: str
    message: str
    module: str = ""
    module_id: int | None = None
    pass_name: str = ""
    compiler_code: str | None = None
    function: str | None = None
    function_id: int | None = None
    block: str | None = None
    block_id: int | None = None
    instruction: str | None = None
    instruction_id: int | None = None
    set: str | None = None
    set_id: int | None = None
    location: str | None = None
    location_id: int | None = None

    def moved(self, by: Mapping[str, int]) -> "Diagnostic":
        """Return the same with ids moved by so many rows per table, as rows are when batches are put together."""
        things = ("module", "function", "block", "instruction", "set", "location")
        ids = {f"{thing}_id": getattr(self, f"{thing}_id") for thing in things}
        changed: dict[str, Any] = {k: v + by[k[:-3] + "s"] for k, v in ids.items() if v is not None}
        return replace(self, **changed)

    def __str__(self) -> str:
        about = ", ".join(
            f"{what} `{name}`"
            for what in ("function", "block", "instruction", "set", "location")
            if (name := getattr(self, what)) is not None
        )
        code = f"{self.code}, {self.compiler_code}" if self.compiler_code else self.code
        where = f" ({about})" if about else ""
        return f"{self.severity}[{code}] {self.module}: {self.message}{where}"


COLUMNS: tuple[str, ...] = (
    "module",
    "pass",
    "severity",
    "code",
    "message",
    "compiler_code",
    "function",
    "block",
    "instruction",
    "set",
    "location",
    "module_id",
    "function_id",
    "block_id",
    "instruction_id",
    "set_id",
    "location_id",
)
"""Columns of the diagnostics table, in order."""


def make(code: str, message: str, *, severity: Severity | None = None, **about: Any) -> Diagnostic:
    """Make a diagnostic with the registered severity and compiler code of its code.

    Parameters
    ----------
    code
        A name in `CODES`.
    message
        What was found, and what to do.
    severity
        Only where it differs from the registered one.
    about
        Other fields of `Diagnostic`.
    """
    known = CODES[code]
    return Diagnostic(severity or known.severity, code, message, compiler_code=known.compiler_code, **about)


def table(rows: Iterable[Diagnostic]) -> "pl.DataFrame":
    """Return the diagnostics table of some rows, typed even when it is empty."""
    import polars as pl

    names = {"pass": "pass_name"}
    listed = list(rows)
    return pl.DataFrame(
        {c: [getattr(row, names.get(c, c)) for row in listed] for c in COLUMNS},
        schema={c: pl.Int64 if c.endswith("_id") else pl.String for c in COLUMNS},
    )


class ArrowIRError(Exception):
    """Base of every exception that this library raises on purpose."""


class FormatError(ArrowIRError):
    """A file or document that cannot be read.

    Parameters
    ----------
    message
        What is wrong.
    path
        The file, or a name for the bytes.
    offset
        Byte offset in the (decompressed) text, where the text itself is broken.
    json_path
        Path of the member, like `functions[0].blocks[1].name`, where its value is wrong.

    Attributes
    ----------
    place : str
        File and place in it, as the message begins.
    """

    def __init__(
        self, message: str, *, path: str | None = None, offset: int | None = None, json_path: str | None = None
    ) -> None:
        if json_path is not None and len(json_path) > 300:  # deep nesting
            json_path = f"{json_path[:140]} ... {json_path[-140:]}"
        self.message, self.path, self.offset, self.json_path = message, path, offset, json_path
        at = f" at byte {offset}" if offset is not None else f" at `{json_path}`" if json_path is not None else ""
        self.place = f"{path or 'document'}{at}"
        super().__init__(f"{self.place}: {message}")

    def __reduce__(self) -> tuple[object, ...]:
        return _format_error, tuple(getattr(self, f) for f in ("message", "path", "offset", "json_path"))


def _format_error(message: str, path: str | None, offset: int | None, json_path: str | None) -> FormatError:
    return FormatError(message, path=path, offset=offset, json_path=json_path)


class PassError(ArrowIRError):
    """A pass met an error and was asked to be strict; `diagnostic` is the row."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        self.diagnostic = diagnostic
        super().__init__(str(diagnostic))


class OptionError(ArrowIRError):
    """A wrong pass name, option or argument: a usage error (`bad_option`)."""


class SchemaError(ArrowIRError):
    """Tables that do not fit the schema: a missing table or column, a wrong dtype, a dangling key."""


class SimulationError(ArrowIRError):
    """The simulator met something that it cannot execute, or must not.

    Parameters
    ----------
    reason
        What was met.
    module, function, block, instruction, opcode
        Where, by name.
    step
        The number of the executed instruction, from 1.
    """

    def __init__(
        self,
        reason: str,
        *,
        module: str | None = None,
        function: str | None = None,
        block: str | None = None,
        instruction: str | None = None,
        opcode: str | None = None,
        step: int | None = None,
    ) -> None:
        self.reason, self.module, self.function, self.block = reason, module, function, block
        self.instruction, self.opcode, self.step = instruction, opcode, step
        about = [f"instruction `{instruction}` ({opcode})"] if instruction is not None else []
        about += [f"{what} `{name}`" for what, name in (("block", block), ("function", function)) if name is not None]
        about += [f"step {step}"] if step is not None else []
        where = f" ({', '.join(about)})" if about else ""
        super().__init__(f"{module}: {reason}{where}" if module else f"{reason}{where}")

    def __reduce__(self) -> tuple[object, ...]:
        return _simulation_error, tuple(getattr(self, f) for f in _WHERE)


_WHERE = ("reason", "module", "function", "block", "instruction", "opcode", "step")


def _simulation_error(reason: str, *where: Any) -> SimulationError:
    return SimulationError(reason, **dict(zip(_WHERE[1:], where, strict=True)))


FIELDS: tuple[str, ...] = tuple(f.name for f in fields(Diagnostic))
"""Names of the fields of a diagnostic."""
