"""The rules that the passes, the reader and the writer follow: what each says in short, and which tests pin it."""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

GROUPS: dict[str, str] = {
    "O": "Outcomes of passes",
    "P": "The pipeline",
    "R": "References and names",
    "F": "Files",
    "M": "`runtime_memory_reservation`",
    "U": "`unroll`",
    "T": "`translate_nki_ast_to_bir`",
    "N": "`inline_nki_kernel`",
    "B": "`inline_bir_kernel`",
    "G": "`lower_generic_indirect`",
    "K": "`coalesce_multichannel_cc_ops`",
    "C": "`constant_propagate`",
}
"""Families of rules, by the letter that their names begin with."""

RULES: dict[str, str] = {
    "O1": "a pass maps a batch to a batch and leaves its input alone",
    "O2": "each module ends a pass changed, unchanged or failed; a failed one comes out as it went in",
    "O3": "every failure and every surprise is a row: severity, stable code, message, what it is about",
    "O4": "diagnostics are collected; `strict` raises the first error instead; exit codes 0, 1, 2",
    "O5": "equal input, options and version give equal bytes, whatever else is in the batch",
    "O6": "the size of the result is checked before any of it is made",
    "O7": "the compiler's log lines go to `arrowir.passes.<pass>` and cost nothing when they are off",
    "O8": "a non-fatal error is an error row that leaves its module in the pipeline",
    "O9": "all decisions stand before any change; an unexpected exception fails only the module that causes it",
    "P1": "the order of the default pipeline; steps can be added, dropped, replaced",
    "P2": "when the verifier runs",
    "P3": "a run gives the modules, the diagnostics, and a row per module and pass",
    "P4": "passes are called as the compiler calls them",
    "R0": "which members are references; every other name is data",
    "R1": "names may repeat; rows are known by their ids",
    "R2": "which of several locations, sets or registers of one name an operand means",
    "R3": "which instruction of a name a dependency means: the nearest earlier one first",
    "R4": "which block a branch means and which function a call does",
    "R5": "what does not resolve keeps its name; a pass that needs it fails the module",
    "R6": "names that a pass makes are free in their function: `.1`, `.2`, ... where one is taken",
    "R7": "a note where a written name would mean another row when it is read back",
    "F1": "what no pass changed is written as it was read, through JSON and Parquet",
    "F2": "what is no module is a short error that says what it is instead; the rest of a batch goes on",
    "F3": "members that must be there, their types, and the unions that are legal",
    "F4": "deep nesting gives a result or an error, never a crash",
    "F5": "a killed writer leaves the old file or the new one; damaged data sets are noticed",
    "F6": "where a pass puts a key that it adds to an object",
    "M1": "the module has exactly one ordinary function, else a non-fatal error",
    "M2": "architectures above level 29 get a region; lower ones a note, unknown ones an error",
    "M3": "two ways to size the region: capacity less what is usable, or up to the highest pinned byte",
    "M4": "sizes on the second way are rounded up to 8",
    "M5": "what is recorded, where it stands, and when the location joins a set that is there",
    "M6": "a second run changes nothing; the name without the flag is an error",
    "M7": "a region outside of SBUF is an error, one of size 0 is not",
    "M8": "allocated locations under the region are a warning; nothing moves",
    "U0": "a pass over all functions, and a step of inlining on copies of kernels",
    "U1": "which loops are unrolled, and in which order their iterations stand",
    "U2": "bodies of one block are spliced; loops of run time and with control flow become branches",
    "U3": "instruction `x` becomes `x-0`, `x-1`, ... over its whole nest",
    "U4": "symbolic addresses become offsets, checked for rank, range and 64 bits",
    "U5": "expressions of both versions; what is known only at run time stays",
    "U6": "attributes that are expressions become integers, symbolic immediates plain ones",
    "U7": "which instances the edges between instances join",
    "U8": "`loopnest` and `need_unroll` go",
    "T1": "every `NKIKLIRKernel` whose `kernel_format` is `bir`; other formats are refused",
    "T2": "kernel files lie in the artefact directory or the module's own folder; nothing leads out of these",
    "T3": "a file is read once in a run; one that cannot be read fails the modules that name it",
    "T4": "the function of the module's core; without a core only where there is but one",
    "T5": "what comes into the module, under which names, in the spelling of the module's version",
    "T6": "the instruction becomes a call-site where it stands",
    "T7": "what the argument maps name, and what happens when it is not there",
    "T8": "scratchpads of allocated kernels: which, how large, where",
    "T9": "files of constants are named from the module's folder",
    "N1": "which call-sites are taken; cycles of kernels fail the module",
    "N2": "the gate: call-sites whose allocation status is not the pass's are left for later",
    "N3": "a kernel is unrolled once, on a copy, however many call-sites it has",
    "N4": "how parameters are bound: by the maps, then by position; sizes must agree",
    "N5": "all parameters are replaced at once, so that no name is captured",
    "N6": "which outputs are scratchpads; they bind to nothing and stay in the caller",
    "N7": "where the base of SB addresses comes from",
    "N8": "the kernel's memory is made again in the caller; addresses in SB are moved and checked",
    "N9": "which kernel sources are known",
    "N10": "names, attributes and opt-in masks of clones",
    "N11": "whatever a clone names is the bound actual or a clone",
    "N12": "a body of one block takes the place of the call-site",
    "N13": "a body of several blocks splits the caller's block",
    "N14": "edges around the call-site; `_start` and `_done` keep their number linear",
    "N15": "call-sites go, and kernels that no call names any more",
    "N16": "tables keep where every inlined row came from",
    "N17": "the tensor map beside a module is renamed along",
    "N18": "nothing else changes",
    "N19": "a warning for an output that the kernel never writes",
    "N20": "several call-sites in one block split it one after the other",
    "G1": "which instructions take the place of an access, in all functions and on copies of kernels",
    "G2": "what is asked of indices and their tensors",
    "G3": "the chain computes what the access did; what cannot be computed that way is refused",
    "G4": "edges and waits go to the first of a chain, those on the access stay with its last",
    "G5": "names of instructions, and the two locations that a chain computes in",
    "K1": "which collectives make a run: adjacent ones whose constant channels count up from 0",
    "K2": "what a run agrees in; a neighbour that does not fit a run that has begun fails the module",
    "K3": "the first row stays, with the operands, waits and updates of all",
    "K4": "edges are merged, those inside a run go, edges on members go to the first",
    "C1": "which locations are constant: the function's own, filled by one Memset before all readers, used by no other",
    "C2": "copies of constants become Memsets, selections by them copies, operations that they decide Memsets",
    "C3": "what has no effect and writes nothing that is read goes, and edges over it are bridged",
    "C4": "again and again until nothing changes; a note with counts; emptied blocks get a NoOp",
    "C5": "nothing that NaN or infinity could tell is rewritten, unless asked for",
    "B1": "every call-site of every function, kernel functions included; nothing is unrolled, lowered or folded",
    "B2": "the factory picks a kernel by name; four steps in order, the last one always; a bad status fails the module",
    "B3": "unknown names and options, values of a wrong type, shapes that do not fit, base partitions",
    "B4": "two flags: the pass's position, and whether scratch gets addresses from the scratchpads",
    "B5": "a body computes what the kernel's definition says, to the tolerance that it states",
}
"""What each rule says, in short."""

LIMITS: dict[str, str] = {}
"""Where this version falls short of a rule, and what it does instead."""

_FOLDERS = ("rules", "properties", "unit", "faults", "oracle")
_TEST = re.compile(r"^ *def test((?:_[a-z]\d+)+)_", re.MULTILINE)


ABOUT = """\
What arrowir does is fixed by short rules, which docstrings, tests and these pages call by name. This page has each of
them in a line. A test whose name begins with a rule's, like `test_m3_...` in the files below `tests/`, pins it."""


@cache
def files_by_rule(root: Path = ROOT) -> dict[str, list[str]]:
    """Return for each rule the files with tests named after it, those in `tests/rules` alone if there are any."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for folder in _FOLDERS:
        for path in sorted((root / "tests" / folder).glob("test_*.py")):
            names = {n.upper() for match in _TEST.findall(path.read_text(encoding="utf-8")) for n in match.split("_")}
            for rule in sorted(names & RULES.keys()):
                found[rule][folder].append(f"{folder}/{path.name}")
    return {rule: next(files[f] for f in _FOLDERS if f in files) for rule, files in found.items()}


def table(rules: Iterable[str]) -> str:
    """Return a table of some rules: what each says, and the tests that are named after it."""
    tests = files_by_rule()
    lines = ["| rule | what | tests |", "|---|---|---|"]
    for rule in rules:
        what = RULES[rule] + (f"; *{LIMITS[rule]}*" if rule in LIMITS else "")
        files = ", ".join(f"`{file}`" for file in tests.get(rule, ())) or "none by name"
        lines.append(f"| {rule} | {what} | {files} |")
    return "\n".join(lines)


def of_group(letter: str) -> list[str]:
    """Return the rules of a family, in order of their numbers."""
    return sorted((r for r in RULES if r[0] == letter), key=lambda r: int(r[1:]))


def page() -> str:
    """Return the page that lists all rules."""
    parts = [
        "# Rules",
        ABOUT,
    ]
    for letter, title in GROUPS.items():
        parts += [f"## {letter}: {title}", table(of_group(letter))]
    return "\n\n".join(parts) + "\n"
