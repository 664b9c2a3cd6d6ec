"""Running the rules over a batch, and what they found as a table."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import arguments, schema
from arrowir.analyse import naming
from arrowir.derived import take
from arrowir.diagnostics import OptionError
from arrowir.ir import IR
from arrowir.store import Array
from arrowir.verify.facts import Facts
from arrowir.verify.registry import DEFAULT, LEVELS, Fill, Found, Rule, rules

if TYPE_CHECKING:
    import polars as pl

KEYS = ("module", "function", "block", "instruction", "operand", "set", "location")
"""What a finding may be about; each has a column of ids."""


@dataclass(frozen=True)
class Findings:
    """Findings as arrays, in order of module, function, instruction and rule."""

    ir: IR
    rule: Array
    """Number of the rule in `chosen`."""
    chosen: tuple[Rule, ...]
    messages: list[str]
    ids: dict[str, Array]
    """Rows by `KEYS`, -1 for none."""

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def errors(self) -> Array:
        """Mask of the findings that are errors."""
        return np.array([rule.severity == "error" for rule in self.chosen], bool)[self.rule]


def chosen_levels(levels: "str | Iterable[str] | None") -> tuple[str, ...]:
    """Return levels by their names.

    Raises
    ------
    OptionError
        For a name that is none.
    """
    if levels is None:
        return DEFAULT
    if levels == "all":
        return tuple(LEVELS)
    wanted = [levels] if isinstance(levels, str) else arguments.listed(levels, "`levels`", "names of levels")
    for level in wanted:
        if level not in LEVELS and level != "all":
            known = ", ".join(f"`{name}`" for name in LEVELS)
            raise OptionError(f"there is no level {level!r:.60}; the levels are {known}, and `all` is all of them")
    return tuple(level for level in LEVELS if level in wanted or "all" in wanted)


def find(ir: IR, levels: "str | Iterable[str] | None" = None, *, only: "Sequence[str] | None" = None) -> Findings:
    """Run the rules of some levels, or `only` those of some codes, and return what they found."""
    names = chosen_levels(levels)
    explicit = levels is not None and "unrolled" in names
    facts = Facts(ir, unrolled=explicit)
    chosen = tuple(rule for rule in rules().values() if rule.level in names and (only is None or rule.code in only))
    numbers: list[Array] = []
    messages: list[str] = []
    ids: dict[str, list[Array]] = {key: [] for key in KEYS}
    for number, rule in enumerate(chosen):
        if rule.opcodes and not facts.has(rule.opcodes):
            continue
        made = rule.query(facts)
        for each in (made if isinstance(made, list) else [made]) if made is not None else []:
            if not len(each.rows):
                continue
            place = places(ir, each)
            numbers.append(np.full(len(each.rows), number))
            messages += written(facts, rule, each, place)
            for key in KEYS:
                ids[key].append(place[key])
    if not numbers:
        none = np.empty(0, np.int64)
        return Findings(ir, none, chosen, [], dict.fromkeys(KEYS, none))
    rule_of = np.concatenate(numbers)
    where = {key: np.concatenate(parts) for key, parts in ids.items()}
    position = take(ir.array("instructions", "position"), where["instruction"])
    order = np.lexsort(
        (rule_of, where["location"], where["set"], where["operand"], where["instruction"], where["block"], position,
         where["function"], where["module"])
    )  # fmt: skip
    return Findings(
        ir, rule_of[order], chosen, [messages[k] for k in order.tolist()], {k: v[order] for k, v in where.items()}
    )


def places(ir: IR, found: Found) -> dict[str, Array]:
    """Return what each row that was found stands in, by `KEYS`."""
    rows = np.asarray(found.rows, np.int64)
    none = np.full(len(rows), -1, np.int64)
    place: dict[str, Array] = dict.fromkeys(KEYS, none)
    table = found.table
    if table == "references":
        return _of_references(ir, rows)
    if table in ("operands", "locations", "sets", "instructions", "blocks", "functions", "modules"):
        place[table[:-1]] = rows
    names = {column.name for column in schema.BY_NAME[table].columns}
    for key in KEYS:
        if f"{key}_id" in names and key != table[:-1] and not (table == "branches" and key == "block"):
            place[key] = ir.array(table, f"{key}_id")[rows].astype(np.int64)
    if table == "operands":
        of_location = take(ir.tables["locations"]["set_id"], place["location"]).astype(np.int64)
        place["set"] = np.where(place["set"] < 0, of_location, place["set"])
    if found.slot is not None:
        place["operand"] = np.asarray(found.slot, np.int64)
    if (place["instruction"] >= 0).any() and table != "blocks":
        block = take(ir.tables["instructions"]["block_id"], place["instruction"]).astype(np.int64)
        place["block"] = np.where(place["instruction"] < 0, place["block"], block)
    return place


def _of_references(ir: IR, rows: Array) -> dict[str, Array]:
    references = ir.tables["references"]
    place = {key: np.full(len(rows), -1, np.int64) for key in KEYS}
    for code in np.unique(references["table"][rows]).tolist():
        mine = np.flatnonzero(references["table"][rows] == code)
        name = schema.STRUCTURAL["table"][code]
        inner = places(ir, Found(name, references["row"][rows[mine]], {}))
        for key in KEYS:
            place[key][mine] = inner[key]
    return place


@cache
def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(re.findall(r"\{(\w+)\}", text)))


_INSTRUCTION = frozenset(("inst", "instr", "inst_name", "instruction", "name", "cur_inst"))
_NAMED: dict[str, tuple[str, str, str]] = {
    "opcode": ("instruction", "instructions", "opcode"),
    "instruction_type_name": ("instruction", "instructions", "opcode"),
    "block_name": ("block", "blocks", "name"),
    "function_name": ("function", "functions", "name"),
    "func_name": ("function", "functions", "name"),
    "function": ("function", "functions", "name"),
    "mem": ("location", "locations", "name"),
    "memloc": ("location", "locations", "name"),
    "memloc_name": ("location", "locations", "name"),
    "loc": ("location", "locations", "name"),
    "mset": ("set", "sets", "name"),
    "arch": ("module", "modules", "arch"),
    "archlevel": ("module", "modules", "arch"),
}
"""Words of texts that are always filled with the same: what a finding is about, table and column."""


def written(facts: Facts, rule: Rule, found: Found, place: dict[str, Array]) -> list[str]:
    """Return the messages of what was found: the rule's text with its words filled in."""
    count = len(found.rows)
    filled: dict[str, list[Any]] = {}
    for word in _words(rule.text):
        if word in found.fill:
            filled[word] = _listed(found.fill[word], count)
        elif word in _INSTRUCTION:
            filled[word] = facts.names("instructions", place["instruction"])
        else:
            about, table, column = _NAMED[word]
            filled[word] = facts.names(table, place[about], column)
    if not filled:
        return [rule.text] * count
    words = list(filled)
    return [rule.text.format(**dict(zip(words, row, strict=True))) for row in zip(*filled.values(), strict=True)]


def _listed(value: Fill, count: int) -> list[Any]:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, list) else [value] * count


# -- as a frame ----


def identities(findings: Findings, rows: Array | None = None) -> list[tuple[str, str, str, str]]:
    """Return what makes each finding the same one after a pass: code, kernel, original name, operand slot (rule P2).

    What a kernel function holds has that function's name as kernel, as its clones have.
    """
    frame = _frame(findings, ("rule", "kernel", "original_name", "slot"), rows)
    return [tuple("" if cell is None else str(cell) for cell in row) for row in frame.iter_rows()]  # type: ignore[misc]


def table(findings: Findings) -> "pl.DataFrame":
    """Return findings as a frame; the columns are those of `verify`."""
    return _frame(findings, COLUMNS)


COLUMNS = (
    *("module", "severity", "rule", "level", "message", "advice", "function", "block", "instruction", "slot", "set"),
    *("location", "kernel", "original_name"),
    *(f"{key}_id" for key in KEYS),
)
"""Columns of the table of findings, in order."""


def _frame(findings: Findings, columns: Sequence[str], rows: Array | None = None) -> "pl.DataFrame":
    import polars as pl

    ir, ids = findings.ir, findings.ids
    number, messages = findings.rule, findings.messages
    if rows is not None:
        ids = {key: values[rows] for key, values in ids.items()}
        number, messages = number[rows], [messages[k] for k in rows.tolist()]

    def of_rule(name: str) -> pl.Series:
        texts = [str(getattr(rule, name)) for rule in findings.chosen]
        return pl.Series(texts, dtype=pl.String).gather(pl.Series(number.astype(np.int64)))

    def column(name: str) -> pl.Series:
        if name.endswith("_id"):
            return naming.ids(name, ids[name[:-3]])
        if name == "message":
            return pl.Series(messages, dtype=pl.String)
        if name == "slot":
            return _slots(ir, ids["operand"])
        if name in ("kernel", "original_name"):
            return _origin(ir, ids)[name]
        if name in KEYS:
            return naming.names(ir, f"{name}s", ids[name])
        return of_rule("code" if name == "rule" else name)

    return pl.DataFrame([column(name).alias(name) for name in columns])


def _slots(ir: IR, operand: Array) -> "pl.Series":
    if not (operand >= 0).any():
        return naming.slot_names(np.full(len(operand), -1), np.zeros(len(operand), np.int64))
    places_ = naming.slots(ir)
    role = np.where(operand < 0, -1, ir.tables["operands"]["role"][np.maximum(operand, 0)])
    return naming.slot_names(role, np.where(operand < 0, 0, places_[np.maximum(operand, 0)]))


def _origin(ir: IR, ids: dict[str, Array]) -> "dict[str, pl.Series]":
    """Return the kernel that each finding comes from and the name there of what it is about."""
    chain = np.full(len(ids["module"]), -1, np.int64)
    name = naming.names(ir, "modules", np.full(len(chain), -1)).alias("original_name")
    for key in ("function", "block", "set", "location", "instruction"):
        mine = ids[key]
        here = mine >= 0
        if not here.any():
            continue
        own = naming.names(ir, f"{key}s", mine)
        if key != "function":
            of = take(ir.tables[f"{key}s"]["call_chain_id"], mine)
            chain = np.where(here, of, chain)
            kept = naming.names(ir, f"{key}s", np.where(of >= 0, mine, -1), "original_name")
            own = kept.zip_with(_series(here & (of >= 0)), own)
        name = own.zip_with(_series(here), name)
    kernels = naming.names(ir, "call_chains", chain, "kernel")
    function = ids["function"]
    is_kernel = (function >= 0) & (take(ir.array("functions", "is_kernel"), function) == 1)
    home = naming.names(ir, "functions", np.where(is_kernel, function, -1))
    return {"kernel": kernels.zip_with(_series(chain >= 0), home), "original_name": name}


def _series(mask: Array) -> "pl.Series":
    import polars as pl

    return pl.Series(np.asarray(mask, bool))


def verify(ir: IR, levels: "str | Iterable[str] | None" = None) -> "pl.DataFrame":
    """Return what is wrong with the modules of a batch, by the compiler's rules.

    Every rule is a query over the whole batch. What depends on an address that is not final, or is known only at run
    time, is not reported.

    Parameters
    ----------
    ir
        The batch.
    levels
        Which rules: one or several of `LEVELS`, or ``"all"``; by default all that hold for any module (`DEFAULT`).

    Returns
    -------
    polars.DataFrame
        A row per finding, in order of the file: `module`; `severity`, ``"error"``, ``"warning"`` or ``"note"``; `rule`,
        the compiler's code, or one in small letters where it has none; `level`; `message`, the compiler's text with the
        names filled in; `advice`, what to do; what it is about, by name: `function`, `block`, `instruction`, `slot`
        (the operand, like ``ins[0]``), `set`, `location`; `kernel` and `original_name`, where it comes from, before it
        was inlined; then their ids. What does not apply is null.

    Raises
    ------
    OptionError
        If `ir` is no batch, or there is no such level.

    Examples
    --------
    >>> import arrowir as air
    >>> from arrowir import build
    >>> module = build.module()
    >>> main = module.function()
    >>> tile = main.sb("tile", [128, 512], "float32", addr=0)
    >>> memset = main.add("Memset", [], [tile.access(offset=1)], mode="Const", constant=0)
    >>> found = air.verify(module.ir()).filter(severity="error")
    >>> found.select("rule", "instruction", "slot").rows()
    [('IBIR158', 'I-1', 'outs[0]')]
    """
    arguments.typed(ir, IR, "`verify`", "an `arrowir.IR` (`arrowir.read` makes one of files)")
    return table(find(ir, levels))
