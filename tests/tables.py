"""Batches made by hand from rows, and batches as rows: for tests of whatever moves tables."""

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from arrowir import schema
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.store import Pools, Strings, Table

Row = dict[str, Any]
Rows = dict[str, list[Row]]


def build(
    rows: Rows, *, diagnostics: Iterable[Diagnostic] = (), history: Iterable[str] = (), used_pools: Iterable[str] = ()
) -> IR:
    """Make a batch of rows with plain values: strings for codes and pooled text, None (or no item) where absent.

    `used_pools` are texts that all pools hold already, as if other batches had gone through them before.
    """
    pools = Pools()
    for text in used_pools:
        for pool in (pools.layouts, pools.extras, pools.names, *pools.codes.values()):
            pool.intern(text)
        for pool in (pools.patterns, pools.shapes):
            pool.intern("[]")
            pool.intern(f"[[{len(text)},7]]" if pool is pools.patterns else "[77]")
    tables: dict[str, Table] = {}
    for name in schema.STORED:
        listed = rows.get(name, [])
        made: dict[str, Any] = {}
        for column in schema.BY_NAME[name].stored:
            cells = [row.get(column.name) for row in listed]
            if column.kind == "text":
                made[column.name] = Strings.of([cell or "" for cell in cells])
                continue
            null = schema.NULLS[column.kind]
            if column.kind in ("code", "pooled"):
                intern = pools.of(column).intern
                cells = [None if cell is None else intern(cell) for cell in cells]
            elif column.of == "patterns":
                cells = [None if cell is None else pools.patterns.intern(cell) for cell in cells]
            numbers = [null if cell is None else int(cell) for cell in cells]
            absent = listed and all(number == null for number in numbers)
            made[column.name] = None if absent else np.array(numbers, schema.DTYPES[column.kind])
        tables[name] = Table(name, made, len(listed))
    return IR(tables, pools, diagnostics=diagnostics, history=history)


def contents(ir: IR) -> Rows:
    """Return all stored rows of a batch with plain values, every column, whatever its pools look like."""
    found: Rows = {}
    for name in schema.STORED:
        table = ir.tables[name]
        cells: dict[str, list[Any]] = {}
        for column in table.schema.stored:
            held = table.columns[column.name]
            if isinstance(held, Strings):
                cells[column.name] = held.tolist()
                continue
            if held is None and column.kind == "text":
                cells[column.name] = [""] * len(table)
                continue
            assert table[column.name].dtype == schema.DTYPES[column.kind], (name, column.name)
            numbers = table[column.name].tolist()
            texts: Any = None
            if column.kind in ("code", "pooled"):
                texts = ir.pools.of(column).texts
            elif column.of == "patterns":
                texts = ir.pools.patterns.texts
            null = schema.NULLS[column.kind]
            cells[column.name] = [None if n == null else texts[n] if texts is not None else n for n in numbers]
        found[name] = [dict(zip(cells, values, strict=True)) for values in zip(*cells.values(), strict=True)]
        assert len(found[name]) == len(table), name
    return found


class _Maker:
    """Makes rows that obey the rules of the tables: grouping, order, keys that stay in their module."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rows: Rows = {name: [] for name in schema.STORED}

    def some(self, what: str, kinds: int = 5) -> str:
        """Return one of a few texts, with letters that need more than a byte and signs that need care."""
        return f'{what} ü\U0001f600 "{self.random.randrange(kinds)}" /:-#'

    def maybe(self, value: Any) -> Any:
        return value if self.random.random() < 0.6 else None

    def number(self) -> int:
        return self.random.choice((0, 1, -1, 15, 2**31, 2**53 + 1, -(2**63) + 1, 2**63 - 1))

    def pick(self, table: str, first: int) -> int | None:
        """Return a row of a table from `first` on, or nothing."""
        count = len(self.rows[table]) - first
        return first + self.random.randrange(count) if count and self.random.random() < 0.8 else None

    def text(self, table: str) -> str:
        """Return an `extra` with none, one or two placeholders."""
        member = self.random.choice(
            ('"scale":1e400', '"a":\x01', '"a":[\x01,{"b":\x01}]', '"u":"\\u0001 is no placeholder"')
        )
        return "{" + f'"{table}":{self.random.randrange(4)},{member}' + "}"

    def fill(self, table: str, /, **known: Any) -> int:
        """Append a row; columns that are not given get values by their kind."""
        row: Row = {}
        for column in schema.BY_NAME[table].stored:
            if column.name in known:
                row[column.name] = known[column.name]
            elif column.kind == "text":
                row[column.name] = self.random.choice(("", self.some(column.name), self.some(column.name)))
            elif column.kind == "code":
                words = ("Load", "never seen before", "Save", "SB", "Unassigned")
                row[column.name] = self.maybe(self.random.choice(words))
            elif column.kind == "int":
                row[column.name] = self.maybe(self.number())
            elif column.kind == "flag":
                row[column.name] = self.maybe(self.random.randrange(2))
            elif column.of == "shapes":
                shapes = ("[]", "[128,512]", f"[1,-1,{2**62}]")
                row[column.name] = self.maybe(self.random.choice(shapes))
            elif column.of == "layouts":
                layouts = ('["cname"]', '["cname","coptin_passes","rx"]', '["cname","noptin_passes"]')
                row[column.name] = self.maybe(self.random.choice(layouts))
            elif column.of == "extras":
                row[column.name] = self.maybe(self.text(table))
            elif column.kind == "pooled":
                row[column.name] = self.maybe(self.some(column.name))
        if row.get("call_chain_id") is None and "original_name" in row:
            row["original_name"] = ""
        if table == "modules":
            row["arch"] = self.random.choice(("gen3", "inferentia", "gen9", None))
            row["extra"] = '{"attributes":{"neuron_core_id":1}}'
        if table == "instructions":
            if row["layout"] == '["cname","noptin_passes"]':
                row["optin_mask"] = None
            row["debug"] = self.maybe('{"filename":"k.py","lineno":7}')
            # A mask is there if the key is; without the key, 15 is what an absent mask means.
            if "coptin_passes" in (row["layout"] or ""):
                row["optin_mask"] = self.random.choice((3, 15))
            elif row["optin_mask"] == 15:
                row["optin_mask"] = None
        self.rows[table].append(row)
        return len(self.rows[table]) - 1

    def module(self, size: int) -> None:
        """Append a module with about `size` rows in every table."""
        first = {table: len(rows) for table, rows in self.rows.items()}
        number = self.fill("modules", name=f"m{len(self.rows['modules'])}")
        count = lambda: self.random.randrange(size + 1)  # noqa: E731
        chains = [self.fill("call_chains", module_id=number, parent_id=None) for _ in range(count())]
        chains += [self.fill("call_chains", module_id=number, parent_id=chain) for chain in chains]

        def chain() -> int | None:
            return self.pick("call_chains", first["call_chains"])

        functions = [self.fill("functions", module_id=number, name=f"f{n}") for n in range(size)]
        queues = [self.fill("queues", module_id=number) for _ in range(count())]
        owners = [("function_id", f) for f in functions] + [("queue_id", q) for q in queues]
        for key, owner in owners:
            scope = {"function_id": None, "queue_id": None, key: owner, "instruction_id": None}
            kind = "function" if key == "function_id" else "queue"
            own = [self.fill("blocks", **scope, owner=kind, call_chain_id=chain()) for _ in range(count())]
            level = [
                self.fill("instructions", block_id=block, call_chain_id=chain())
                for block in own
                for _ in range(count())
            ]
            for instruction in [i for i in level if self.random.random() < 0.3]:
                nested = scope | {"instruction_id": instruction}
                block = self.fill("blocks", **nested, owner="instruction", call_chain_id=chain())
                for _ in range(count()):
                    self.fill("instructions", block_id=block, call_chain_id=chain())
        for function in functions:
            for ordinal in range(count()):
                self.fill("sets", function_id=function, ordinal=ordinal, call_chain_id=chain())
        for set_id in range(first["sets"], len(self.rows["sets"])):
            for _ in range(self.random.randrange(3)):
                self.fill("locations", set_id=set_id, call_chain_id=chain())
        for function in functions:
            for ordinal in range(count()):
                self.fill("registers", function_id=function, ordinal=ordinal, call_chain_id=chain())
        self.below(first)

    def below(self, first: dict[str, int]) -> None:
        """Append the rows under the instructions and locations of a module, and its references."""
        patterns = ("[]", "[[1,1]]", "[[512,128],[1,512]]", f"[[-{2**62},2],[0,3]]")
        pointers = {
            "operands": ("location_id", "set_id", "register_id"),
            "dependencies": ("on_instruction_id",),
            "branches": ("block_id",),
            "loops": (),
            "calls": ("callee_id",),
            "call_arguments": ("formal_set_id", "formal_register_id", "actual_location_id", "actual_set_id",
                               "actual_register_id"),
            "semaphores": ("from_instruction_id",),
            "aliases": ("target_location_id", "target_set_id"),
        }  # fmt: skip
        for table, keys in pointers.items():
            parent = schema.BY_NAME[table].parent
            above = schema.BY_NAME[table].column(parent or "").of
            assert parent is not None
            assert above is not None
            for owner in range(first[above], len(self.rows[above])):
                for _ in range(self.random.randrange(3)):
                    known: Row = {parent: owner}
                    for key in keys:
                        target = schema.BY_NAME[table].column(key).of
                        known[key] = self.pick(target or "", first[target or ""])
                    if table == "operands":
                        known["pattern_id"] = self.maybe(self.random.choice(patterns))
                    self.fill(table, **known)
        for table in schema.REFERRING:
            for row in range(first[table], len(self.rows[table])):
                places = (self.rows[table][row].get("extra") or "").count("\x01")
                for place in range(places):
                    target = self.random.choice(("registers", "loops", "functions", "locations", "instructions"))
                    found = self.pick(target, first[target])
                    name = None if found is not None else self.some("name")
                    self.fill(
                        "references",
                        table=table,
                        row=row,
                        path=f"a[{place}]",
                        target=target,
                        target_id=found,
                        name=name,
                    )


def random_rows(seed: int, modules: int = 3, size: int = 3) -> Rows:
    """Return the rows of a batch that has a bit of everything."""
    maker = _Maker(seed)
    for _ in range(modules):
        maker.module(size)
    return maker.rows


def placeholders(rows: Rows) -> int:
    """Return the number of placeholders in the rows' texts."""
    return sum((row.get("extra") or "").count("\x01") for table in schema.REFERRING for row in rows[table])
