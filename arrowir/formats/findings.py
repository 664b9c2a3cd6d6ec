"""What a reader notices: names that mean nothing or too much, values never seen, members that stand twice."""

from dataclasses import dataclass, field
from typing import Any

from arrowir import diagnostics, vocabulary
from arrowir.diagnostics import Diagnostic
from arrowir.formats.json_text import Document, paths_of

_SHOWN = 3


@dataclass(slots=True)
class _Use:
    """How often a name was looked for, and where."""

    kinds: list[str] = field(default_factory=list[str])
    count: int = 0
    places: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])


@dataclass(slots=True)
class Findings:
    """Collects what is to be said about one module; ids are those within it."""

    unresolved: dict[tuple[int, str], _Use] = field(default_factory=dict[tuple[int, str], _Use])
    miscounts: dict[int, tuple[int, str, int]] = field(default_factory=dict[int, tuple[int, str, int]])
    """By function: an instruction, what is wrong in it, and how many more there are."""
    ambiguous: dict[tuple[int, str], tuple[str, int]] = field(default_factory=dict[tuple[int, str], tuple[str, int]])

    def add_unresolved(self, function: int, kind: str, name: str, place: tuple[str, int]) -> None:
        """Count a name that nothing in reach has (rule R5); `place` is the table and row that names it."""
        use = self.unresolved.setdefault((function, name), _Use())
        use.count += 1
        if kind not in use.kinds:
            use.kinds.append(kind)
        if place not in use.places[-1:]:
            use.places.append(place)

    def add_miscounts(self, function: int, instruction: int, found: list[str]) -> None:
        """Keep the first wrong number of terms of a function, and count the others."""
        first, text, more = self.miscounts.get(function, (instruction, found[0], -1))
        self.miscounts[function] = first, text, more + len(found)

    def add_ambiguous(self, function: int, kind: str, name: str, row: int) -> None:
        """Note that one of several was chosen (rule R2)."""
        self.ambiguous.setdefault((function, name), (kind, row))


@dataclass(frozen=True, slots=True)
class About:
    """The module that diagnostics are about: name, id, where its rows begin in the batch, names of rows by table."""

    module: str
    module_id: int
    begins: dict[str, int]
    names: dict[str, list[str]]

    def make(self, code: str, message: str, function: int = -1, *place: tuple[str, int]) -> Diagnostic:
        """Make a diagnostic about a function and, if one is given, a row."""
        about: dict[str, Any] = {}
        for table, row in (*([("functions", function)] if function >= 0 else []), *place):
            thing = table.removesuffix("s")
            about[thing] = self.names[table][row]
            about[f"{thing}_id"] = row + self.begins[table]
        return diagnostics.make(code, message, module=self.module, module_id=self.module_id, **about)


def report(findings: Findings, about: About) -> list[Diagnostic]:
    """Return one row per name and function: unresolved ones as warnings, ambiguous ones as notes.

    Of wrong numbers of terms there is one row per function, a warning.
    """
    rows: list[Diagnostic] = []
    for (function, name), use in findings.unresolved.items():
        times = "once" if use.count == 1 else f"{use.count:,} times"
        message = (
            f"no {' or '.join(use.kinds)} in reach is named `{name}`, which is referred to {times}"
            f"{_where(use.places, about)}; the name is kept as it is written"
        )
        only = use.places[:1] if len(use.places) == 1 else []
        rows.append(about.make("unresolved_name", message, function, *only))
    for function, (instruction, text, more) in findings.miscounts.items():
        others = f" (and in {more:,} more {'expression' if more == 1 else 'expressions'})" if more else ""
        message = f"Number of terms don't match: {text}{others}; the terms count, and both are kept as they are written"
        rows.append(about.make("term_count_mismatch", message, function, ("instructions", instruction)))
    for (function, name), (kind, row) in findings.ambiguous.items():
        if kind == "register":
            message = f"more than one register is named `{name}`; the first is meant"
            rows.append(about.make("ambiguous_name", message, function))
        else:
            message = (
                f"more than one {kind} is named `{name}`; inputs mean the first of an input kind, outputs the first of"
                " an output kind, and where there is none of that kind the first in the file"
            )
            rows.append(about.make("ambiguous_name", message, function, (f"{kind}s", row)))
    return rows


def _where(places: list[tuple[str, int]], about: About) -> str:
    """List the things that hold the references: some by name, the rest as a number."""
    text = ""
    for table in dict.fromkeys(table for table, _ in places):
        rows = [row for at, row in places if at == table]
        shown = ", ".join(f"`{about.names[table][row]}`" for row in rows[:_SHOWN])
        more = f" and {len(rows) - _SHOWN:,} more" if len(rows) > _SHOWN else ""
        what = table.removesuffix("s") if len(rows) == 1 else table
        text += f"{' and' if text else ''} in {what} {shown}{more}"
    return f",{text}" if text else ""


def report_values(
    unknown: dict[str, list[str]], arch: str | None, version: int | None, about: About
) -> list[Diagnostic]:
    """Return a warning for each value that is in no vocabulary."""
    rows = [
        about.make("unknown_value", f"`{text}` is not a known {name.replace('_', ' ')}; it is kept as it is")
        for name, texts in unknown.items()
        for text in texts
    ]
    if arch is not None and vocabulary.arch(arch) is None:
        known = ", ".join(f"`{entry.name}`" for entry in vocabulary.ARCHES)
        rows.append(about.make("unknown_value", f"`{arch}` is not a known architecture (those are {known})"))
    if version not in (1, 2):
        found = "no `version`" if version is None else f"version {version}"
        rows.append(
            about.make(
                "unknown_value", f"the module has {found}; known are 1 and 2, expressions are read by their form"
            )
        )
    return rows


def report_duplicates(document: Document, about: About) -> list[Diagnostic]:
    """Return a warning for each member that stands twice in some object, with the first object's path."""
    if not document.duplicates:
        return []
    paths = paths_of(document.value, {id(members) for members, _ in document.duplicates})
    places: dict[str, list[str]] = {}
    for members, keys in document.duplicates:
        # An object that itself was replaced by a later member is nowhere.
        if id(members) in paths:
            for key in keys:
                places.setdefault(key, []).append(paths[id(members)] or "$")
    return [
        about.make(
            "duplicate_key",
            f"the member `{key}` stands more than once in {_objects(len(found))} `{found[0]}`; the last value is kept",
        )
        for key, found in places.items()
    ]


def _objects(count: int) -> str:
    return "the object" if count == 1 else f"{count:,} objects, first in"
