"""The page that lists the compiler's rules: what is checked, at which level, or why not."""

import ast
import json
from collections import Counter
from pathlib import Path

from arrowir.verify.registry import DEFAULT, LEVELS, STATES, Listed, Rule, catalogue, rules

ROOT = Path(__file__).parents[2]

ABOUT = """\
The compiler's verifier and simulator have {total} rules. `air.verify(ir)` checks {done} of them, {same} more are the
same condition under another name, and it has {own} of its own. The other {rest} are listed with the reason. Each rule
that is done has a test that breaks it, and no other, by one change of a sound module.

*Level* is what a caller chooses by: `air.verify(ir, "memory")`, `arrowir verify --level memory`."""

ABOUT_REST = """\
Reasons: {states}."""


def page() -> str:
    """Return the page that lists every rule."""
    known, listed = rules(), catalogue()
    same = {code: rule for rule in known.values() for code in rule.same if code in listed}
    done = [code for code in listed if code in known]
    own = [rule for code, rule in known.items() if code not in listed]
    rest = [row for row in listed.values() if row.state]
    parts = [
        "# Verifier rules",
        ABOUT.format(total=len(listed), done=len(done), same=len(same), own=len(own), rest=len(rest)),
        "## Levels",
        levels(),
        "## Rules that are done",
        _done(listed),
        "## The same under another name",
        _same(same, listed),
        "## How each is broken in the tests",
        "The sound module has no finding, and the changed one that of the rule alone.",
        cases(),
        "## Rules that are not done",
        ABOUT_REST.format(states="; ".join(f"*{name}*, {text}" for name, text in STATES.items())),
        _rest(rest),
    ]
    return "\n\n".join(parts) + "\n"


def levels() -> str:
    """Return the levels as a table: what each is about, how many rules it has, whether it is looked at by default."""
    count = Counter(rule.level for rule in rules().values())
    lines = ["| level | about | rules | by default |", "|---|---|---|---|"]
    for level, about in LEVELS.items():
        chosen = "yes" if level in DEFAULT else "no"
        lines.append(f"| `{level}` | {about} | {count[level]} | {chosen} |")
    return "\n".join(lines)


def _done(listed: dict[str, Listed]) -> str:
    lines = ["| rule | about | level | severity | holds when | otherwise | message |", "|---|---|---|---|---|---|---|"]
    every: list[Rule] = list(rules().values())
    for rule in sorted(every, key=lambda rule: list(LEVELS).index(rule.level)):
        about = listed[rule.code].about if rule.code in listed else ", ".join(rule.opcodes)
        cells = (f"`{rule.code}`", about, rule.level, rule.severity, rule.meaning, rule.advice, rule.text)
        lines.append(_row(cells))
    return "\n".join(lines)


def _same(same: dict[str, Rule], listed: dict[str, Listed]) -> str:
    lines = ["| rule | is | message |", "|---|---|---|"]
    lines += [_row((f"`{code}`", f"`{rule.code}`", listed[code].text)) for code, rule in same.items()]
    return "\n".join(lines)


def _rest(rest: list[Listed]) -> str:
    lines = ["| rule | about | message | reason | why |", "|---|---|---|---|---|"]
    ordered = sorted(rest, key=lambda row: list(STATES).index(row.state))
    lines += [_row((f"`{row.code}`", row.about, row.text, row.state, row.why)) for row in ordered]
    return "\n".join(lines)


def _row(cells: tuple[str, ...]) -> str:
    escaped = (cell.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"


# -- how it is tested ----

_CASE_FILES = ("call_sites", "control_flow", "dma", "memory", "operands", "products", "structure")


def cases() -> str:
    """Return the changes of sound modules that break one rule each, as the tests have them."""
    lines = ["| rule | sound module | change |", "|---|---|---|"]
    found: dict[str, tuple[str, str]] = {}
    for name in _CASE_FILES:
        tree = ast.parse((ROOT / f"tests/rules/test_verify_{name}.py").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Case" and len(node.args) > 2:
                code, base, change = (ast.unparse(argument) for argument in node.args[:3])
                found[ast.literal_eval(code)] = base, change.removeprefix("lambda d: ")
    named = [code for code in rules() if code in found]
    lines += [_row((f"`{code}`", f"`{found[code][0]}`", f"`{found[code][1]}`")) for code in named]
    return "\n".join(lines)


MISSED: dict[str, str] = {
    "actual_location_id": "another tensor of the same size",
    "addr_space": "meaningful for DRAM alone, and never compared",
    "axis": "an axis whose uses were resolved before",
    "bank": "another bank, where nothing is in its way",
    "block_id": "a branch to another block that is a legal graph, too",
    "bytes": "a tensor with room to spare, or nothing behind it",
    "candidates": "a count that passes look at",
    "extra": "what follows the name in an entry, or other keys of the same form",
    "formal": "the name as written; what it stands for was resolved before",
    "layout": "the order of members",
    "lb": "another number of trips",
    "ub": "another number of trips",
    "path": "where in a text a name stands",
    "runtime_reserved": "a tensor that is reserved, or no longer is, where nothing is in its way",
    "tensor_id": "another number for a location",
    "tensor_id_size": "a table larger than it has to be",
    "tensor_shape": "a smaller tensor in the same place",
    "type": "a tensor in another memory that may be there, too",
    "addr": "the tensor lies elsewhere, where nothing is in its way",
    "attributes": "attributes of a function, any of which is legal",
    "debug": "another source position",
    "dtype": "a tensor's or an operand's elements are of another type, and nothing compares it",
    "edge": "an edge of another kind is an edge",
    "engine": "which engines an opcode may be on is not known",
    "engine_id": "a number without a meaning to the rules",
    "from_instruction_id": "whom a wait is for is informative",
    "kind": "a parameter of another kind, or a tensor that is one now",
    "offset": "the access is elsewhere in its tensor",
    "on_instruction_id": "a dependency on another instruction before",
    "optin_mask": "any mask of four bits is legal",
    "origin": "who made a tensor changes nothing",
    "pattern_id": "another access that stays in the tensor",
    "pinned": "a tensor that is pinned, or no longer is, where nothing is in its way",
    "scheduled_end": "an estimate",
    "scheduled_start": "an estimate",
    "semaphore": "waits and updates are not compared",
    "set_id": "the set beside a location, which wins",
    "tensor_class": "a class that nothing depends on",
    "value": "waits and updates are not compared",
}
"""Why a corruption of a column may go unnoticed."""


def corruption() -> str:
    """Return how many corruptions of single cells are noticed, and why others are not."""
    rows = json.loads((ROOT / "tests/faults/corruptions.json").read_text(encoding="utf-8"))
    names = ("tables", "error", "warning or note", "nothing")
    total = {name: sum(row[name] for row in rows) for name in names}
    count = sum(total.values())
    share = f"{100 * (count - total['nothing']) / count:.0f} %"
    about = (
        f"Of {count:,} random corruptions of single cells in sound tables {total['tables']} are no tables any more "
        f"(`assert_valid`), {total['error']} are errors of the verifier, {total['warning or note']} a warning or note, "
        f"and {total['nothing']} go unnoticed: {share} are caught. Unnoticed are:"
    )
    lines = [
        about,
        "",
        "| column | unnoticed | of | because |",
        "|---|---|---|---|",
    ]
    for row in sorted(rows, key=lambda row: (-row["nothing"], row["table"], row["column"])):
        if row["nothing"]:
            every = sum(row[name] for name in names)
            why = MISSED.get(row["column"], "another legal value")
            lines.append(f"| `{row['table']}.{row['column']}` | {row['nothing']} | {every} | {why} |")
    return "\n".join(lines)
