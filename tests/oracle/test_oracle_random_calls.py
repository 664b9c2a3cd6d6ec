"""The oracle on random modules: what is executed stays the same, and levels come one by one to the same."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from random import Random
from typing import Any

from tests.oracle import Outcome, run_unroll
from tests.oracle.builders import Obj, function, module
from tests.oracle.calls import inlined
from tests.oracle.random_calls import CallMaker, rows_of

SEEDS = range(80)
# What is compared of an execution: rows that do something, each with the call-sites that lead to it.
Event = tuple[tuple[str, ...], str]


class Stopped(Exception):  # noqa: N818 (the end of an execution is no error)
    """The program is over, or has run for long enough."""


class Machine:
    """Executes a module, call-sites as calls; conditions fall as a seed has it."""

    def __init__(self, doc: Obj, seed: int, sources: dict[int, Any] | None = None) -> None:
        self.kernels: dict[str, Obj] = {each["name"]: each for each in doc["nki_functions"]["functions"]}
        self.main: Obj = doc["functions"][0]
        self.conditions = Random(seed)
        self.sources = sources
        self.trace: list[Event] = []
        self.steps = 0

    def run(self) -> list[Event]:
        with suppress(Stopped):
            self.blocks(self.main["blocks"], ())
        return self.trace

    def blocks(self, blocks: list[Obj], chain: tuple[str, ...]) -> str | None:
        """Execute blocks; None at their end, "" for a return, or a block elsewhere that is branched to."""
        places = {each["name"]: place for place, each in enumerate(blocks)}
        place = 0
        while place < len(blocks):
            goes = self.rows(blocks[place]["instructions"], chain)
            if goes is None:
                place += 1
            elif goes in places:
                place = places[goes]
            else:
                return goes
        return None

    def rows(self, rows: list[Obj], chain: tuple[str, ...]) -> str | None:
        for row in rows:
            goes = self.row(row, chain)
            if goes is not None:
                return goes
        return None

    def row(self, row: Obj, chain: tuple[str, ...]) -> str | None:
        self.steps += 1
        if self.steps > 4000 or len(self.trace) > 200:
            raise Stopped
        opcode = row["opcode"]
        if opcode in ("Load", "CompareAndBranch", "Exit"):
            self.trace.append(self.event(row, chain))
        if opcode == "Exit":
            raise Stopped
        if opcode == "Return":
            return ""
        if opcode == "UnconditionalBranch":
            return row["target"]
        if opcode == "CompareAndBranch":
            return row["on_true"] if self.conditions.random() < 0.5 else row["on_false"]
        if opcode == "NKIKernel":
            self.blocks(self.kernels[row["func"]]["blocks"], (*chain, row["name"]))
        if opcode == "Loop":
            for _ in range(row["LoopAxis"]["ub"]):
                goes = self.blocks(row["blocks"], chain)
                if goes is not None:
                    return goes
        return None

    def event(self, row: Obj, chain: tuple[str, ...]) -> Event:
        """The row by its provenance, in a module that has it."""
        source = None if self.sources is None else self.sources[id(row)]
        if source is not None and source.depth:
            return source.chain, source.original_name
        return chain, row["name"]


@cache
def outcomes() -> list[tuple[int, Obj, Outcome]]:
    docs = [(seed, CallMaker(seed).module()) for seed in SEEDS]
    return [(seed, doc, inlined(doc)) for seed, doc in docs]


def test_n13_n20_what_is_executed_stays_the_same() -> None:
    seen: Counter[str] = Counter()
    for seed, doc, outcome in outcomes():
        seen[outcome.status] += 1
        assert outcome.status != "failed"
        if has_lowered_loops(outcome):  # its branches do not fall by chance: the simulator executes such modules
            seen["lowered"] += 1
            continue
        # Functions of `nki_functions` come after; their records are not needed.
        sources = {
            id(row): source
            for row, source in zip(rows_in(outcome.doc["functions"][0]), outcome.provenance, strict=False)
        }
        for conditions in range(5):
            before = Machine(doc, conditions)
            after = Machine(outcome.doc, conditions, sources)
            wanted, found = before.run(), after.run()
            # A jump in circles ends at the bound, in one of them earlier.
            if max(before.steps, after.steps) > 4000:
                shorter = min(len(wanted), len(found))
                wanted, found = wanted[:shorter], found[:shorter]
            assert found == wanted, f"seed {seed}, conditions {conditions}"
            seen["compared"] += len(wanted)
    assert seen["lowered"] > 5
    assert seen["compared"] > 10_000


def test_n13_no_block_is_left_empty_and_no_name_repeats() -> None:
    for _, doc, outcome in outcomes():
        if outcome.status != "changed":
            continue
        empty_before = {
            each["name"]
            for blocks in nested_lists(doc["functions"][0]["blocks"])
            for each in blocks
            if not each["instructions"]
        }
        lists = list(nested_lists(outcome.doc["functions"][0]["blocks"]))
        assert {each["name"] for blocks in lists for each in blocks if not each["instructions"]} <= empty_before
        named = Counter(each["name"] for blocks in lists for each in blocks)
        assert max(named.values()) == 1
        rows = Counter(row["name"] for row in rows_in(outcome.doc["functions"][0]))
        assert max(rows.values(), default=1) == 1


def nested_lists(blocks: list[Obj]) -> Iterator[list[Obj]]:
    yield blocks
    for each in blocks:
        for row in each["instructions"]:
            if "blocks" in row:
                yield from nested_lists(row["blocks"])


def one_level_at_a_time(doc: Obj) -> tuple[Outcome, dict[str, Obj]]:
    """Each kernel, the last one first, is inlined into as if it were ordinary, and unrolled; `main` comes last.

    Gives the kernels in that form too.
    """
    done: dict[str, Obj] = {}
    for kernel in reversed(doc["nki_functions"]["functions"]):
        stand_in = inlined(module(function("main", []), kernel, kernels=list(done.values())))
        alone = {key: value for key, value in stand_in.doc.items() if key != "nki_functions"}
        unrolled = run_unroll(alone)
        done[kernel["name"]] = unrolled.doc["functions"][1] if unrolled.status != "failed" else kernel
    return inlined(module(doc["functions"][0], kernels=list(done.values()))), done


def test_n3_o6_nesting_is_repeated_application() -> None:
    compared, counted = 0, 0
    for seed, doc, outcome in outcomes():
        if outcome.status != "changed":
            continue
        stepwise, bodies = one_level_at_a_time(doc)
        assert stepwise.doc["functions"] == outcome.doc["functions"], f"seed {seed}"
        compared += 1
        kept = outcome.doc["nki_functions"]["functions"]
        expanded = [bodies[name] for name in reached(doc)]
        after = [row for each in [*outcome.doc["functions"], *kept, *expanded] for row in rows_in(each)]
        if any(row["name"].endswith("_noop") for row in after) or has_lowered_loops(outcome):
            continue
        rows = sum(not is_new(row) for row in after)
        assert inlined(doc, max_instructions=rows).status == "changed"
        [found] = inlined(doc, max_instructions=rows - 1).diagnostics
        assert (found.code, found.message.split()[0]) == ("too_many_instructions", str(rows)), f"seed {seed}"
        counted += 1
    assert compared > len(SEEDS) // 2
    assert counted > len(SEEDS) // 10, counted


def has_lowered_loops(outcome: Outcome) -> bool:
    return any("_LoopEntry_" in row["name"] for each in outcome.doc["functions"] for row in rows_in(each))


def reached(doc: Obj) -> set[str]:
    """The kernels that `main` calls, by way of others too: they are expanded, even where a kernel stays."""
    kernels = {each["name"]: each for each in doc["nki_functions"]["functions"]}
    found: set[str] = set()
    waiting = [doc["functions"][0]]
    while waiting:
        called = {row["func"] for row in rows_in(waiting.pop()) if row["opcode"] == "NKIKernel"}
        waiting += [kernels[name] for name in called - found]
        found |= called
    return found


def rows_in(one: Obj) -> list[Obj]:
    return [row for each in one["blocks"] for row in rows_of(each)]


def is_new(row: Obj) -> bool:
    """N13's new branches and N14's NoOps: they have the engine of the call-sites, as a `Return`'s clone has."""
    return row["opcode"] in ("NoOp", "UnconditionalBranch") and row["engine"] == "DVE" and "was" not in row
