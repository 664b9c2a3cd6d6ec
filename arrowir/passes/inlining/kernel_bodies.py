"""The bodies that call-sites get: where they stand, and what is refused in them (rules N3, N12, N13)."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from arrowir import diagnostics as diag
from arrowir import schema, vocabulary
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.inlining.binding import of_kind
from arrowir.passes.inlining.closing import Shape
from arrowir.passes.inlining.extended import Extended
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_calls import BODY
from arrowir.store import Array, children, pointing


@dataclass
class Bodies:
    """Canonical bodies, one item per distinct callee in rising order. Rows are those of the extended batch."""

    callee: Array
    start: Array
    """First instruction."""
    rows: Array
    """Number of instructions, a final Return that is dropped included."""
    returns: Array
    """1 where a final Return is dropped."""
    block: Array
    """First block, -1 for none."""
    blocks: Array
    split: Array
    """Whether the block around the call-site is split."""
    own_entry: Array
    """Whether the entry becomes a block of its own."""
    moved: dict[str, Array]
    """What is added to ids of the callee's own storage to get those of the body's, by table."""
    windows: dict[str, tuple[Array, Array]]
    """First row and number of rows of storage, by table."""

    @classmethod
    def of(cls, ir: IR, callee: Array, found: Shape) -> "Bodies":
        """Return bodies as they stand in the batch."""
        of_block = ir.tables["instructions"]["block_id"]
        block, blocks = found.first[callee], found.blocks[callee]
        start, rows = children(of_block, block, blocks)
        zero = np.zeros(len(callee), np.int64)
        empty = block < 0
        start, rows = np.where(empty, 0, start), np.where(empty, 0, rows)
        windows: dict[str, tuple[Array, Array]] = {}
        for table in ("sets", "locations", "registers"):
            windows[table] = children(ir.array(table, "function_id"), callee)
        windows["call_chains"] = _own_chains(ir, callee)
        moved = {table: zero.copy() for table in ("sets", "locations", "registers")}
        return cls(
            callee, start, rows, zero.copy(), block.copy(), blocks, found.split[callee], found.own_entry[callee],
            moved, windows,
        )  # fmt: skip

    @property
    def count(self) -> Array:
        """Number of instructions that a call-site gets, those included that are made beside the clones."""
        return self.rows - self.returns

    def drop_returns(self, opcode: Array) -> None:
        """Find the final Returns that are dropped: those of bodies that are spliced into one block."""
        last = self.start + self.rows - 1
        found = (self.rows > 0) & ~self.split
        found[found] = opcode[last[found]] == vocabulary.OP_RETURN
        self.returns = found.astype(np.int64)

    def pick(self, which: Array) -> "Bodies":
        """Return some of the bodies."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, values in plain.items():
            if isinstance(values, dict):
                plain[name] = {
                    table: tuple(v[which] for v in value) if isinstance(value, tuple) else value[which]
                    for table, value in values.items()
                }
            else:
                plain[name] = values[which]
        return Bodies(**plain)

    def of_rows(self, rows: Array) -> Array:
        """Return the body that each instruction row is in (a dropped Return included), or -1."""
        order = np.argsort(self.start, kind="stable")
        order = order[self.rows[order] > 0]
        if not len(order):
            return np.full(len(rows), -1, np.int64)
        place = np.searchsorted(self.start[order], rows, side="right") - 1
        body = order[np.maximum(place, 0)]
        return np.where((place >= 0) & (rows < (self.start + self.rows)[body]), body, -1)

    def calls(self, batch: Extended) -> Array:
        """Return the functions that calls in the bodies name."""
        callee = batch.column("calls", "callee_id")
        return np.unique(callee[(self.of_rows(batch.column("calls", "instruction_id")) >= 0) & (callee >= 0)])

    def foreign(self, batch: Extended, table: str) -> Array:
        """Return the operands of bodies that name a row of `table` which another function owns.

        A body refers to its own storage, save where an operand says `memref_owner_func`.
        """
        codes = schema.STRUCTURAL["table"]
        mine = batch.column("references", "target") == codes.index("functions")
        mine &= batch.column("references", "table") == codes.index("operands")
        operand = batch.column("references", "row")[mine]
        body = self.of_rows(batch.column("operands", "instruction_id")[operand])
        key = batch.column("operands", f"{table[:-1]}_id")[operand]
        first, rows = (column[body] for column in self.windows[table])
        return operand[(body >= 0) & (key >= 0) & ((key < first) | (key >= first + rows))]


def _own_chains(ir: IR, callee: Array) -> tuple[Array, Array]:
    """Return first row and number of the call chains of functions into which library kernels were inlined (N16)."""
    function, chain = chains_in(ir, callee)
    first, last = np.full(ir.count("functions"), ir.count("call_chains")), np.zeros(ir.count("functions"), np.int64)
    np.minimum.at(first, function, chain)
    np.maximum.at(last, function, chain + 1)
    rows = np.maximum(last - first, 0)[callee]
    return np.where(rows > 0, first[callee], 0), rows


def chains_in(ir: IR, functions: Array) -> tuple[Array, Array]:
    """Return the call chains that rows of some functions have, those around them too: pairs of function and chain."""
    parent, width = ir.tables["call_chains"]["parent_id"], ir.count("call_chains") + 1
    found = [np.empty(0, np.int64)]
    if width > 1:
        wanted = np.zeros(ir.count("functions") + 1, bool)
        wanted[functions] = True
        for table in ("instructions", "blocks", "sets", "locations", "registers"):
            chain, function = ir.tables[table]["call_chain_id"], ir.array(table, "function_id")
            at = np.flatnonzero((chain >= 0) & wanted[function])
            found.append(np.unique(function[at].astype(np.int64) * width + chain[at]))
        last = np.unique(np.concatenate(found))
        while len(last):
            found.append(last)
            around = parent[last % width]
            last = np.unique((last // width * width + around)[around >= 0])
    pairs = np.unique(np.concatenate(found))
    return pairs // width, pairs % width


Text = Callable[[int], str]


class BodyErrors:
    """Checks of bodies; `order` places those of a body among all checks."""

    def __init__(self, batch: Extended, bodies: Bodies, order: Array, errors: FirstErrors) -> None:
        self.batch, self.bodies, self.order, self.errors = batch, bodies, order, errors
        self.functions = batch.ir.tables["functions"]

    def name(self, body: int) -> str:
        """Return the name of a callee."""
        return self.functions.text()[int(self.bodies.callee[body])]

    def fail(self, rank: int, bad: Array, code: str, text: Text, row: Callable[[int], int] | None = None) -> None:
        """Fail bodies (numbers); `text` makes the message of one, `row` finds the instruction that it is about."""
        bad = np.unique(bad)

        def message(body: int) -> Diagnostic:
            function = int(self.bodies.callee[body])
            about = {} if row is None else self._about(row(body))
            module = int(self.functions["module_id"][function])
            return diag.make(
                code, text(body), module_id=module, function=self.name(body), function_id=function, **about
            )

        module = self.functions["module_id"][self.bodies.callee[bad]]
        self.errors.add(BODY, rank, bad, module, message, self.order[bad])

    def _about(self, row: int) -> dict[str, Any]:
        """Name an instruction and its block; what is new in a copy has no id."""
        batch = self.batch
        about: dict[str, Any] = {"instruction": batch.text("instructions", row)}
        block = int(batch.column("instructions", "block_id")[row])
        about["block"] = batch.text("blocks", block)
        if row < batch.ir.count("instructions"):
            about |= {"instruction_id": row, "block_id": block}
        return about

    def passed_on(self, rank: int, failures: dict[int, Diagnostic]) -> None:
        """Fail bodies for what a pass on them found; by function."""
        for function, found in failures.items():
            body = np.searchsorted(self.bodies.callee, [function])
            module = self.functions["module_id"][[function]]
            self.errors.add(BODY, rank, body, module, lambda _, found=found: found, self.order[body])

    def nested(self) -> None:
        """Refuse blocks inside instructions that are no loops."""
        owner = self.batch.column("blocks", "instruction_id")
        nested = self.bodies.of_rows(owner[owner >= 0])
        self.fail(
            3,
            nested[nested >= 0],
            "not_supported",
            lambda b: f"`{self.name(b)}` has blocks inside an instruction that is no loop",
        )

    def names(self) -> None:
        """Fail bodies in which a name that is needed did not resolve (rules N3, R5)."""
        rows: list[Array] = []
        names: list[Array] = []
        for row, name, needed in _unresolved(self.batch):
            at = np.flatnonzero(needed)
            rows.append(row[at])
            names.append(name[at])
        row, name = np.concatenate(rows), np.concatenate(names)
        order = np.argsort(row, kind="stable")
        row, name = row[order], name[order]
        body = self.bodies.of_rows(row)
        inside = np.flatnonzero(body >= 0)
        if not len(inside):
            return
        failing, first = np.unique(body[inside], return_index=True)
        item = dict(zip(failing.tolist(), inside[first].tolist(), strict=True))

        def text(b: int) -> str:
            missing = self.batch.ir.pools.names[int(name[item[b]])]
            return f"`{missing}` is not in `{self.name(b)}`; a kernel's body has to name what exists"

        self.fail(4, failing, "unresolved_name", text, lambda b: int(row[item[b]]))


def _unresolved(batch: Extended) -> list[tuple[Array, Array, Array]]:
    """Return (instruction, name, mask of the rows whose name is needed and did not resolve)."""
    get = batch.column
    found: list[tuple[Array, Array, Array]] = []
    instruction = get("operands", "instruction_id")
    for column in ("name", "register_name", "set_name"):
        if not batch.present("operands", column):
            continue
        name = get("operands", column)
        needed = name >= 0
        if column == "set_name":
            needed &= get("operands", "location_id") < 0
        found.append((instruction, name, needed))
    for table in ("dependencies", "branches"):
        if not batch.present(table, "name"):
            continue
        name = get(table, "name")
        found.append((get(table, "instruction_id"), name, name >= 0))
    codes = schema.STRUCTURAL["table"]
    name, table, row, path = (get("references", c) for c in ("name", "table", "row", "path"))
    spared = batch.ir.pools.names.find("associate_branch")
    for owner in ("instructions", "operands", "dependencies"):
        mine = (table == codes.index(owner)) & (name >= 0) & (path != spared)
        at = np.where(mine, row, 0)
        of = at if owner == "instructions" else (get(owner, "instruction_id")[at] if mine.any() else at)
        found.append((of, name, mine))
    return found


def outputs_not_written(batch: Extended, bodies: Bodies, good: Array) -> list[Diagnostic]:
    """Warn of output parameters that a canonical body never writes (rule N19)."""
    ir = batch.ir
    sets, locations = ir.tables["sets"], ir.tables["locations"]
    called = np.zeros(ir.count("functions"), bool)
    called[bodies.callee] = True
    outputs = np.flatnonzero(of_kind(sets["kind"], vocabulary.OUTPUT_KINDS) & called[sets["function_id"]])
    body = np.searchsorted(bodies.callee, sets["function_id"][outputs])
    target_set = outputs + bodies.moved["sets"][body]
    written, is_output = np.zeros(batch.count("sets"), bool), np.zeros(batch.count("sets"), bool)
    is_output[target_set] = True
    of_location = batch.column("locations", "set_id")
    in_output = is_output[of_location]
    for table, location, named in (
        ("operands", "location_id", "set_id"),
        ("call_arguments", "actual_location_id", "actual_set_id"),
    ):
        if not batch.count(table):
            continue
        row, at = batch.column(table, "instruction_id"), batch.column(table, location)
        by_location, by_set = pointing(at, in_output), np.flatnonzero(at < 0)
        sets_ = batch.column(table, named)
        by_set = by_set[pointing(sets_[by_set], is_output)]
        rows = np.append(by_location, by_set)
        target = np.append(of_location[at[by_location]], sets_[by_set])
        if table == "operands":
            writes = batch.column(table, "role")[rows] == vocabulary.ROLE_OUT
        else:
            writes = batch.column(table, "direction")[rows] == vocabulary.DIRECTION_ARGUMENT
            writes |= batch.column("instructions", "opcode")[row[rows]] == vocabulary.OP_NKI_KERNEL
        written[target[writes & (bodies.of_rows(row[rows]) >= 0)]] = True
    functions = ir.tables["functions"]
    found: list[Diagnostic] = []
    for row in outputs[~written[target_set]].tolist():
        function = int(sets["function_id"][row])
        module = int(functions["module_id"][function])
        if good[module]:
            at = int(np.searchsorted(locations["set_id"], row))
            text = f"`{functions.text()[function]}` never writes its output `{sets.text()[row]}`"
            found.append(
                diag.make(
                    "output_not_written",
                    text,
                    module_id=module,
                    function=functions.text()[function],
                    function_id=function,
                    set=sets.text()[row],
                    set_id=row,
                    location=locations.text()[at],
                    location_id=at,
                )
            )
    return found
