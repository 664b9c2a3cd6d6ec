"""The bodies that call-sites get: canonical copies of kernel functions, and what is refused there (rules N3, N12)."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from arrowir import diagnostics as diag
from arrowir import schema, vocabulary
from arrowir.derived import take
from arrowir.diagnostics import Diagnostic
from arrowir.edit import shifted
from arrowir.ir import IR
from arrowir.passes.inlining.binding import of_kind
from arrowir.passes.inlining.failures import FirstErrors
from arrowir.passes.inlining.kernel_calls import BODY, Sites
from arrowir.passes.unroll import expand, needs_unroll
from arrowir.runs import Runs
from arrowir.store import Array, Table

_TABLES = (
    "blocks",
    "instructions",
    "operands",
    "dependencies",
    "branches",
    "loops",
    "calls",
    "call_arguments",
    "semaphores",
    "references",
)


@dataclass
class Bodies:
    """The canonical bodies, one item per distinct callee. Rows are old ones or, past their end, added ones."""

    callee: Array
    start: Array
    """First instruction."""
    count: Array
    """Number of instructions, without a final Return."""
    returns: Array
    """1 where a final Return is dropped."""
    ends_block: Array
    """Whether the last instruction is a terminator, which stays last."""
    block: Array
    """The block, or -1."""
    added: dict[str, Table]
    """The rows of unrolled bodies, with ids as if they stood behind the batch's own."""
    root_begin: Array = field(init=False)
    roots: Array = field(init=False)
    """Numbers of the roots within their body, body after body (rule N14)."""
    sink_begin: Array = field(init=False)
    sinks: Array = field(init=False)
    thinned: tuple[Array, Array] = field(init=False)
    """(body, number) of instructions that lose an edge on the dropped Return."""

    def pick(self, which: Array) -> "Bodies":
        """Return some of the bodies."""
        names = ("callee", "start", "count", "returns", "ends_block", "block")
        return Bodies(**{name: getattr(self, name)[which] for name in names}, added=self.added)

    def added_table(self, name: str) -> Table:
        """Return the added rows of a table."""
        return self.added.get(name) or Table.empty(name)

    def column(self, ir: IR, table: str, name: str) -> Array:
        """Return a column of old and added rows."""
        added = self.added_table(table)
        return np.concatenate((ir.tables[table][name], added[name])) if len(added) else ir.tables[table][name]

    def text(self, ir: IR, table: str, row: int) -> str:
        """Return the name of an old or added row."""
        old = ir.tables[table]
        return old.text()[row] if row < len(old) else self.added_table(table).text()[row - len(old)]

    def calls(self, ir: IR) -> Array:
        """Return the functions that calls in the bodies name."""
        callee = self.column(ir, "calls", "callee_id")
        return np.unique(callee[(self.of_rows(self.column(ir, "calls", "instruction_id")) >= 0) & (callee >= 0)])

    def span(self, ir: IR, table: str, first: Array, rows: Array) -> tuple[Array, Array]:
        """Widen per body a range of rows of `table` to all that the body refers to.

        A body refers to its own storage, save where an operand says `memref_owner_func`.
        """
        codes = schema.STRUCTURAL["table"]
        target, of = self.column(ir, "references", "target"), self.column(ir, "references", "table")
        foreign = target == codes.index("functions")
        found: list[tuple[Array, Array]] = []
        if foreign.any():
            instruction = self.column(ir, "operands", "instruction_id")
            mine = foreign & (of == codes.index("operands"))
            operand = self.column(ir, "references", "row")[mine]
            if table == "functions":
                found.append((instruction[operand], self.column(ir, "references", "target_id")[mine]))
            else:
                key = {"locations": "location_id", "sets": "set_id", "registers": "register_id"}[table]
                found.append((instruction[operand], self.column(ir, "operands", key)[operand]))
        last = first + rows
        for at, key in found:
            body = self.of_rows(at)
            known = (body >= 0) & (key >= 0)
            first, last = first.copy(), last.copy()
            np.minimum.at(first, body[known], key[known])
            np.maximum.at(last, body[known], key[known] + 1)
        return first, last - first

    def of_rows(self, rows: Array) -> Array:
        """Return the body that each instruction row is in (a dropped Return included), or -1."""
        order = np.argsort(self.start, kind="stable")
        order = order[(self.count + self.returns)[order] > 0]
        place = np.searchsorted(self.start[order], rows, side="right") - 1
        body = order[np.maximum(place, 0)] if len(order) else np.zeros(len(rows), np.int64)
        inside = (place >= 0) & (rows < (self.start + self.count + self.returns)[body]) if len(order) else rows < 0
        return np.where(inside, body, -1)


def ends_in_return(ir: IR, functions: Array) -> Array:
    """Tell for each function whether its last own instruction is a Return."""
    start, count, _ = _rows(ir, functions)
    opcode = ir.tables["instructions"]["opcode"]
    if not len(opcode):
        return np.zeros(len(functions), bool)
    return (count > 0) & (opcode[np.maximum(start + count - 1, 0)] == vocabulary.OP_RETURN)


def canonicalise(ir: IR, sites: Sites, shard_id: int, errors: FirstErrors) -> tuple[Bodies, Array]:
    """Return the bodies, and the body of each call-site. Bodies of failing modules may be anything."""
    callees, first, body = np.unique(sites.callee, return_index=True, return_inverse=True)
    fail = _BodyErrors(ir, sites, callees, first, errors)
    fail.shapes()
    wanted = np.zeros(ir.count("functions"), bool)
    wanted[callees] = True
    wanted &= needs_unroll(ir)
    added: dict[str, Table] = {}
    start, count, block = _rows(ir, callees)
    if wanted.any():
        expansion = expand(ir, wanted, shard_id)
        fail.unrolling(expansion.failures)
        fail.lost(expansion.ir, wanted[callees])
        moved = np.flatnonzero(wanted[callees] & fail.kept(expansion.ir))
        added, runs = _take(ir, expansion.ir, callees[moved])
        _, count[moved], block[moved] = _rows(expansion.ir, callees[moved])
        start[moved] = ir.count("instructions") + runs["instructions"].begins[:-1]
        block[moved] = np.where(block[moved] < 0, -1, ir.count("blocks") + runs["blocks"].begins[:-1])
    bodies = Bodies(callees, start, count, np.zeros_like(count), np.zeros(len(count), bool), block, added)
    opcode = bodies.column(ir, "instructions", "opcode")
    for back in (1, 2):  # the last instruction, and the one before a dropped Return
        at = start + count - back
        code = np.where(
            (count >= back) & (at >= 0), opcode[np.clip(at, 0, max(len(opcode) - 1, 0))] if len(opcode) else -1, -1
        )
        if back == 1:
            bodies.returns = (code == vocabulary.OP_RETURN).astype(np.int64)
            bodies.ends_block = np.isin(code, vocabulary.TERMINATORS)
        else:
            bodies.ends_block = np.where(bodies.returns == 1, np.isin(code, vocabulary.TERMINATORS), bodies.ends_block)
    bodies.count = count - bodies.returns
    fail.control_flow(bodies)
    fail.names(bodies)
    return bodies, body


def _rows(ir: IR, functions: Array) -> tuple[Array, Array, Array]:
    """Return first instruction, number of instructions and first block of the functions' own block lists.

    For a body of one block these are all its instructions.
    """
    blocks = ir.tables["blocks"]
    owner = np.where(blocks["instruction_id"] < 0, blocks["function_id"], -1)
    own = np.flatnonzero(owner >= 0)
    first = np.searchsorted(owner[own], functions)
    has = first < np.searchsorted(owner[own], functions + 1)
    block = np.where(has, own[np.minimum(first, max(len(own) - 1, 0))] if len(own) else -1, -1)
    of_block = ir.tables["instructions"]["block_id"]
    start = np.where(has, np.searchsorted(of_block, block), 0)
    end = np.where(has, np.searchsorted(of_block, block + 1), 0)
    return start, end - start, block


def _take(ir: IR, source: IR, functions: Array) -> tuple[dict[str, Table], dict[str, Runs]]:
    """Cut blocks and instructions of functions out of a batch, with ids as if they stood behind another's rows.

    The runs, one per function, are those in the batch that they are cut out of.
    """
    runs: dict[str, Runs] = {}
    shifts: dict[str, Array] = {name: np.zeros(len(functions), np.int64) for name in schema.STORED}
    for name in _TABLES:
        if name == "references":
            continue
        function = source.array(name, "function_id")
        rows = np.flatnonzero(function >= 0)  # those of queues stand between
        first = np.searchsorted(function[rows], functions)
        last = np.searchsorted(function[rows], functions + 1)
        begin = np.where(last > first, rows[np.minimum(first, max(len(rows) - 1, 0))] if len(rows) else 0, 0)
        runs[name] = Runs(begin, last - first, np.zeros(len(functions), np.int64))
        shifts[name] = ir.count(name) + runs[name].begins[:-1] - begin
    taken = {name: shifted(source.tables[name], run, shifts) for name, run in runs.items()}
    taken["references"] = _take_references(source, runs, shifts)
    return taken, runs


def _take_references(source: IR, runs: dict[str, Runs], shifts: dict[str, Array]) -> Table:
    """Cut out the references of the rows taken."""
    table, codes = source.tables["references"], schema.STRUCTURAL["table"]
    part = np.full(len(table), -1, np.int64)
    for name, run in runs.items():
        mine = np.flatnonzero(table["table"] == codes.index(name))
        row = table["row"][mine]
        order = np.flatnonzero(run.length > 0)
        k = order[np.maximum(np.searchsorted(run.start[order], row, side="right") - 1, 0)] if len(order) else row[:0]
        inside = (row >= run.start[k]) & (row < (run.start + run.length)[k]) if len(order) else np.zeros(len(row), bool)
        part[mine[inside]] = k[inside] if len(order) else 0
    rows = np.flatnonzero(part >= 0)
    columns = {n: None if not table.has(n) else table[n][rows] for n in table.columns}
    moved = Table("references", columns, len(rows))
    for key, kind in (("row", "table"), ("target_id", "target")):
        values = moved[key].copy()
        for code in np.unique(moved[kind]).tolist():
            mine = (moved[kind] == code) & (values >= 0)
            values[mine] += shifts[codes[code]][part[rows][mine]].astype(np.int32)
        moved = moved.replace(**{key: values})
    return moved


Text = Callable[[int], str]


class _BodyErrors:
    """Checks of bodies. The first call-site of a callee gives the place of its error in the order of checks."""

    def __init__(self, ir: IR, sites: Sites, callees: Array, first: Array, errors: FirstErrors) -> None:
        self.ir, self.sites, self.callees, self.first, self.errors = ir, sites, callees, first, errors
        self.body_of_site = dict(zip(first.tolist(), range(len(first)), strict=True))

    def fail(self, rank: int, bad: Array, code: str, text: Text, instruction: Text | None = None) -> None:
        """Fail bodies (a mask or numbers); `text` makes the message of one."""
        bad = np.flatnonzero(bad) if bad.dtype == bool else np.unique(bad)
        if not len(bad):
            return
        sites = self.first[bad]

        def message(site: int) -> Diagnostic:
            body = self.body_of_site[site]
            function = int(self.callees[body])
            name = self.ir.tables["functions"].text()[function]
            about = None if instruction is None else instruction(body)
            module = int(self.sites.module[site])
            return diag.make(code, text(body), module_id=module, function=name, function_id=function, instruction=about)

        self.errors.add(BODY, rank, sites, self.sites.module[sites], message)

    def name(self, body: int) -> str:
        """Return the name of a callee."""
        return self.ir.tables["functions"].text()[int(self.callees[body])]

    def shapes(self) -> None:
        """Refuse call-sites inside a kernel, and several blocks."""
        ir = self.ir
        opcode = ir.tables["instructions"]["opcode"]
        function = ir.array("instructions", "function_id")
        nested = np.isin(self.callees, function[opcode == vocabulary.OP_NKI_KERNEL])
        self.fail(
            0,
            nested,
            "not_supported",
            lambda b: (
                f"`{self.name(b)}` has a call-site of its own; this version inlines kernels that call no other kernel"
            ),
        )
        blocks = ir.tables["blocks"]
        own = blocks["function_id"][(blocks["instruction_id"] < 0) & (blocks["function_id"] >= 0)]
        count = np.bincount(own, minlength=ir.count("functions"))[self.callees]
        self.fail(
            1,
            count > 1,
            "not_supported",
            lambda b: f"`{self.name(b)}` has {count[b]} blocks; this version inlines kernels of one block",
        )

    def unrolling(self, failures: dict[int, Diagnostic]) -> None:
        """Pass on what unrolling refuses."""
        body = {int(f): b for b, f in enumerate(self.callees.tolist())}
        for function, found in failures.items():
            site = int(self.first[body[function]])
            self.errors.add(BODY, 2, np.array([site]), self.sites.module[[site]], lambda _, found=found: found)

    def kept(self, canonical: IR) -> Array:
        """Tell which callees are still there after canonicalisation; functions keep their places."""
        return self.callees < canonical.count("functions")

    def lost(self, canonical: IR, wanted: Array) -> None:
        """Fail callees that canonicalisation took away."""
        self.fail(
            2,
            wanted & ~self.kept(canonical),
            "callee_lost",
            lambda b: f"Cannot find lowering function {self.name(b)} after unroll",
        )

    def control_flow(self, bodies: Bodies) -> None:
        """Refuse a Return before the end, a branch to the entry block, and blocks inside instructions."""
        ir = self.ir
        opcode = bodies.column(ir, "instructions", "opcode")
        at = np.flatnonzero(opcode == vocabulary.OP_RETURN)
        body = bodies.of_rows(at)
        at, body = at[body >= 0], body[body >= 0]
        early = body[at < (bodies.start + bodies.count)[body]]
        self.fail(
            3,
            early,
            "not_supported",
            lambda b: (
                f"`{self.name(b)}` has a `Return` before its end; this version inlines kernels that return at the end"
            ),
        )
        branch = bodies.column(ir, "branches", "instruction_id")
        inside = bodies.of_rows(branch)
        resolved = (inside >= 0) & (bodies.column(ir, "branches", "block_id") >= 0)
        self.fail(
            3,
            inside[resolved],
            "not_supported",
            lambda b: f"`{self.name(b)}` has a branch to its entry block; this version inlines straight-line kernels",
        )
        owner = bodies.column(ir, "blocks", "instruction_id")
        nested = bodies.of_rows(owner[owner >= 0])
        self.fail(
            3,
            nested[nested >= 0],
            "not_supported",
            lambda b: f"`{self.name(b)}` has blocks inside an instruction that is no loop",
        )

    def names(self, bodies: Bodies) -> None:
        """Fail bodies in which a name that is needed did not resolve (rules N3, R5)."""
        ir = self.ir
        rows: list[Array] = []
        names: list[Array] = []
        for row, name, needed in _unresolved(ir, bodies):
            at = np.flatnonzero(needed)
            rows.append(row[at])
            names.append(name[at])
        row, name = np.concatenate(rows), np.concatenate(names)
        order = np.argsort(row, kind="stable")
        row, name = row[order], name[order]
        body = bodies.of_rows(row)
        inside = np.flatnonzero(body >= 0)
        failing, first = np.unique(body[inside], return_index=True)
        item = dict(zip(failing.tolist(), inside[first].tolist(), strict=True))

        def text(b: int) -> str:
            missing = ir.pools.names[int(name[item[b]])]
            return f"`{missing}` is not in `{self.name(b)}`; a kernel's body has to name what exists"

        def instruction(b: int) -> str:
            return bodies.text(ir, "instructions", int(row[item[b]]))

        self.fail(4, failing, "unresolved_name", text, instruction=instruction)


def _unresolved(ir: IR, bodies: Bodies) -> list[tuple[Array, Array, Array]]:
    """Return (instruction, name, mask of the rows whose name is needed and did not resolve)."""
    get = lambda t, c: bodies.column(ir, t, c)  # noqa: E731
    found: list[tuple[Array, Array, Array]] = []
    instruction = get("operands", "instruction_id")
    for column in ("name", "register_name", "set_name"):
        name = get("operands", column)
        needed = name >= 0
        if column == "set_name":
            needed &= get("operands", "location_id") < 0
        found.append((instruction, name, needed))
    for table in ("dependencies", "branches"):
        name = get(table, "name")
        found.append((get(table, "instruction_id"), name, name >= 0))
    codes = schema.STRUCTURAL["table"]
    name, table, row, path = (get("references", c) for c in ("name", "table", "row", "path"))
    spared = ir.pools.names.find("associate_branch")
    for owner in ("instructions", "operands", "dependencies"):
        mine = (table == codes.index(owner)) & (name >= 0) & (path != spared)
        at = np.where(mine, row, 0)
        of = at if owner == "instructions" else (get(owner, "instruction_id")[at] if mine.any() else at)
        found.append((of, name, mine))
    return found


def outputs_not_written(ir: IR, bodies: Bodies, good: Array) -> list[Diagnostic]:
    """Warn of output parameters that a canonical body never writes (rule N19)."""
    sets = ir.tables["sets"]
    called = np.zeros(ir.count("functions"), bool)
    called[bodies.callee] = True
    outputs = of_kind(sets["kind"], vocabulary.OUTPUT_KINDS) & called[sets["function_id"]]
    written = np.zeros(len(sets), bool)
    of_location = ir.tables["locations"]["set_id"]
    for table, role, code, location, named in (
        ("operands", "role", vocabulary.ROLE_OUT, "location_id", "set_id"),
        ("call_arguments", "direction", vocabulary.DIRECTION_ARGUMENT, "actual_location_id", "actual_set_id"),
    ):
        where = bodies.column(ir, table, location)
        target = np.where(where >= 0, take(of_location, where), bodies.column(ir, table, named))
        rows = np.flatnonzero((bodies.column(ir, table, role) == code) & (target >= 0))
        rows = rows[outputs[target[rows]]]
        rows = rows[bodies.of_rows(bodies.column(ir, table, "instruction_id")[rows]) >= 0]
        written[target[rows]] = True
    functions, locations = ir.tables["functions"], ir.tables["locations"]
    found: list[Diagnostic] = []
    for row in np.flatnonzero(outputs & ~written).tolist():
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
