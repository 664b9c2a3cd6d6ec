"""The page about diagnostics: from the registry of codes, with what to do about each."""

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

from arrowir import passes
from arrowir.diagnostics import CODES, Code

ROOT = Path(__file__).parents[2]

ADVICE: dict[str, tuple[str, str]] = {
    "format_error": ("F2, F3, F4", "look at the byte offset or the JSON path in the message"),
    "duplicate_key": ("F3", "harmless where both values agree; else mend the program that wrote the file"),
    "unresolved_name": ("R5", "a warning when read; if a pass needs the name, mend the reference or add what it names"),
    "ambiguous_name": ("R2", "give the things different names if the wrong one was chosen"),
    "unknown_value": ("F1", "nothing: the value is kept; a newer compiler may have added it"),
    "term_count_mismatch": ("F3, U5", "correct `n_terms`: the compiler refuses the module"),
    "rebinding_name": ("R7", "rename one of the two if the JSON is read again; ids and Parquet are not affected"),
    "internal_error": (
        "O9",
        "report it, with the module, or mend your own kernel that it names; the other modules of the batch are done",
    ),
    "too_many_instructions": ("O6", "raise `max_instructions`, or split the module"),
    "introduced_error": ("P2", "mend the pass; if it is one of this library, report it, with the module"),
    "not_supported": ("N1, N3, U2, U7", "see the limits of the pass on its page"),
    "unknown_arch": ("M2, N8", "write a known `arch`; see the list of architectures"),
    "single_function_required": ("M1, O8", "run the pass before modules are linked, or leave it out"),
    "arch_below_30": ("M2", "nothing: these architectures need no region"),
    "already_reserved": ("M6", "nothing: the pass has run before"),
    "name_taken": ("M6", "rename the location, or set its `runtime_reserved`"),
    "reservation_exceeds_sbuf": ("M7", "choose another `usable_sbuf_bytes`, or unpin what is too high"),
    "reservation_overlaps": ("M8", "reserve before memory is allocated, or move the locations that are named"),
    "unassigned_tensor_id": ("M5", "give every location of the set a `tensor_id` of 0 or more"),
    "no_callee": ("N4", "let `func` name a function of the module"),
    "callee_lost": ("N3", "report it: unrolling took the kernel function away"),
    "ambiguous_callee": ("R4", "give the functions different names"),
    "recursive_kernel": ("N1", "break the cycle that the message names"),
    "call_site_skipped": ("N2", "nothing: a later run with the other `allocated`, or with null, takes it"),
    "unknown_kernel_source": ("N9", "write `Beta1`, `Beta2` or `Beta3`"),
    "call_site_not_plain": ("N14", "move `sync_info` and predicates to instructions before and after the call-site"),
    "unbound_parameter": ("N4", "name the parameter in `func_args` or `func_outs`, or add the operand"),
    "unknown_parameter": ("N4", "let the entry name an input or output of the kernel"),
    "parameter_location_count": ("N4", "bind a location instead of its set, or split the set"),
    "parameter_size_mismatch": ("N4", "bind storage of the same number of bytes"),
    "scratchpad_count": ("N6", "add the scratchpads to the outputs, or correct `sb_buf_shape` and `psum_buf_shape`"),
    "scratchpad_unallocated": ("N7", "allocate the caller first, or inline with `allocated=False`"),
    "scratchpad_base": ("N7", "place the scratchpad at partition 0"),
    "sb_overflow": ("N8", "place the scratchpad lower, or make the kernel's memory smaller"),
    "output_not_written": ("N19", "look whether the kernel is right: its result is what was there before"),
    "dynamic_loop": (
        "U1, U2, U7",
        "give a `Loop` constant bounds, a `DynamicForLoop` a constant stride and bounds of sums and powers of 2",
    ),
    "zero_stride": ("U1", "give the loop a stride that is not 0"),
    "block_tensor": ("U2", "lower block tensors before"),
    "address_rank_mismatch": ("U4", "give as many addresses as the tensor has dimensions"),
    "symbolic_location_count": ("U4", "let the set have one location"),
    "address_out_of_bounds": ("U4", "correct the address, the loop's bounds or the tensor's shape"),
    "integer_overflow": ("U4, U5", "correct the expression: it leaves 64 bits"),
    "runtime_address": ("U4, U5", "lower the address to a register access before"),
    "division_by_zero": ("U5", "correct the expression"),
    "bad_expression": ("U5", "correct the expression: its kind or a member of it is unknown"),
    "immediate_out_of_range": ("U6", "correct the index, or add to `value_list`"),
    "predicated_instruction": ("U6", "lower predicates before"),
    "predicated_dependency": ("U7", "lower predicates before"),
    "index_rank_mismatch": ("U7", "give one index for each loop around the producer"),
    "bad_distance": ("U7", "give a distance of 1 or more"),
    "unknown_dtype": ("U4", "use a dtype whose size is known"),
    "unknown_bir_kernel": ("B3", "correct `kernel_name`, or install the package that has the kernel"),
    "bad_kernel_option": ("B3", "write an option that `arrowir kernels` lists, with a value of its type"),
    "kernel_shape_mismatch": ("B3", "give the kernel what the message says it expected"),
    "kernel_base_partition": ("B3", "place the storage at partition 0"),
    "scratchpad_too_small": ("B4", "make the scratchpad larger, or inline with `sb_allocation=False`"),
    "kernel_failed": ("B2", "see the message: it is the kernel's own"),
    "generic_indirect_invariant": (
        "G2",
        "flatten the indices: one access each, one element in each partition of its tensor",
    ),
    "invalid_select_predicate": ("C2", "let the predicate hold 0 or 1: the compiler refuses the module as well"),
    "constants_propagated": ("C4", "nothing: it says what was done"),
    "collective_run_mismatch": ("K2", "let the channels count up from 0 and agree in all else, or leave the pass out"),
    "unknown_kernel_format": ("T1", "have the kernel compiled to BIR JSON"),
    "no_artefacts": ("T2", "give the option `artefacts`, or read the module from its file"),
    "kernel_file_missing": ("T1, T2", "put the file into the artefact directory, or name its folder with `artefacts`"),
    "kernel_file_outside": ("T2, T9", "put the file into the artefact directory, or name its folder with `artefacts`"),
    "kernel_file_damaged": ("T3", "compile the kernel again; the message has path and reason"),
    "core_id_required": ("T4", "write the module attribute `neuron_core_id`"),
    "kernel_file_skipped": ("T4", "nothing: the kernel does not run on this core"),
    "kernel_arch_differs": ("T3", "compile the kernel for the module's architecture"),
    "constant_file_missing": ("T9", "put the file beside the kernel file"),
    "bad_tensor_map": ("N17, O8", "write the file again, or leave it out with `tensor_map=False`"),
    "no_tensor_map": ("N17, O8", "put `tensor_map.json` beside the module, or leave the option out"),
    "psum_overflow": ("T8", "compile the kernel for the module's architecture"),
    "not_equivalent": (
        "O8",
        "look at the instruction named; library kernels are compared to a tolerance by `--check-tolerance 0.01`",
    ),
    "not_executable": ("O3", "give what the reason asks for, a reading for instance, or check it by other means"),
}
"""For each code the rules that speak of it, and what a user can do."""


ABOUT = """\
Every failure and every surprise is a row of a diagnostics table: module, pass, severity, code, message, the
compiler's own code where it has one, and what the row is about, by name and id. `ir.diagnostics` has the rows of
reading, `result.diagnostics` those of passes; a run of the command writes both to `diagnostics.parquet`.

An *error* fails its module, and the command ends with exit code 1. So it does after one that is *not fatal*, which
leaves its module in the pipeline. A *warning* was survived, a *note* is for the curious. Codes are stable: filter
by them."""


CHECKS = "a run that is checked"
"""What makes the rows of `--check`."""


@cache
def makers() -> dict[str, list[str]]:
    """Return for each code which parts of arrowir name it: `reading` or passes."""
    found: dict[str, set[str]] = defaultdict(set)
    homes = {
        "inlining": "inline_nki_kernel",
        "unrolling": "unroll",
        "indirect": "lower_generic_indirect",
        "constants": "constant_propagate",
    }
    for path in sorted((ROOT / "arrowir").rglob("*.py")):
        parts = path.relative_to(ROOT / "arrowir").with_suffix("").parts
        if parts[0] == "formats" or parts == ("expressions",):
            home = "reading" if parts[0] == "formats" else "unroll"
        elif parts[0] == "library" or parts[-1].startswith("library_"):
            home = "inline_bir_kernel"
        elif parts[0] == "passes":
            home = homes.get(parts[1], parts[1])
        elif parts == ("validation",):
            home = CHECKS
        else:
            continue
        home = home if home in ("reading", CHECKS, *passes.BUILT_IN) else "any pass"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in CODES:
                found[node.value].add(home)
    for code in ("sb_overflow", "unknown_arch"):  # of memory that any body brings
        found[code].add("inline_bir_kernel")
    found["rebinding_name"] = {"any run"}  # made by the reader's code, of the result
    order = ("reading", *passes.BUILT_IN, "any pass", "any run", CHECKS)
    return {code: sorted(homes, key=order.index) for code, homes in found.items()}


def rows_of(home: str) -> list[Code]:
    """Return the codes that a part of arrowir makes."""
    made = makers()
    return [code for code in CODES.values() if home in made.get(code.name, ())]


def table(home: str) -> str:
    """Return the codes of a pass as a table: code, what it means, what to do."""
    lines = ["| code | meaning | what to do |", "|---|---|---|"]
    for code in rows_of(home):
        advice = ADVICE.get(code.name, ("", ""))[1]
        mark = "" if code.severity == "error" else f" ({code.severity})"
        lines.append(f"| [`{code.name}`](../reference/diagnostics.md#{code.name}){mark} | {code.meaning} | {advice} |")
    return "\n".join(lines)


def page() -> str:
    """Return the page that lists every code."""
    made = makers()
    lines = [
        "# Diagnostics",
        "",
        ABOUT,
        "",
        "| code | severity | meaning | what to do | made by | rules | compiler code |",
        "|---|---|---|---|---|---|---|",
    ]
    for code in CODES.values():
        rules, advice = ADVICE.get(code.name, ("", ""))
        severity = code.severity if code.fatal else f"{code.severity}, not fatal"
        by = ", ".join(made.get(code.name, ())) or "nothing yet"
        name = f'<span id="{code.name}"></span>`{code.name}`'
        cells = (name, severity, code.meaning, advice, by, rules, code.compiler_code or "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
