"""A module decoded for execution: what each instruction is, read from the tables when it is first reached.

Nothing is made for the whole batch: an instruction's operands, references and branches are found by binary search,
since the rows of every table stand in the order of what owns them. Text of attributes is parsed once per distinct text.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from arrowir import extras, schema
from arrowir import vocabulary as vocab
from arrowir.diagnostics import SimulationError
from arrowir.ir import IR
from arrowir.schema import NULL_INT
from arrowir.simulate.registry import Handler, find_handler

NOTHING: Mapping[str, Any] = MappingProxyType({})

FLAT_KINDS = frozenset(("DRAM", "Input", "Output"))
"""Memory types without partitions."""
PARTITIONED_KINDS = frozenset(("SB", "PSUM"))
_FEW = 8
"""So many rows are counted one by one."""
_SHOWN = 8
"""Names that a message lists at most."""
LEAVING = ("UnconditionalBranch", "CompareAndBranch", "Break", "Return", "Exit")
"""Opcodes that leave a block."""


@dataclass(frozen=True, slots=True)
class Reference:
    """What a placeholder in text stands for."""

    table: str
    row: int
    """Row of the table; -1 when the name did not resolve."""
    name: str


@dataclass(frozen=True, slots=True)
class OperandCode:
    """One operand as the module has it."""

    row: int
    role: str
    place: int
    """Number in its list."""
    kind: str
    dtype: str
    location: int
    set: int
    register: int
    offset: int | None
    pattern: tuple[tuple[int, int], ...]
    members: Mapping[str, Any]
    references: tuple[Reference, ...]
    unresolved: str
    """A name that did not resolve, else empty."""

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"{self.role} {self.place}"


@dataclass(frozen=True, slots=True)
class Code:
    """One instruction as the module has it."""

    row: int
    name: str
    opcode: str
    engine: str
    function: int
    block: int
    ins: tuple[OperandCode, ...]
    outs: tuple[OperandCode, ...]
    indirection: tuple[OperandCode, ...]
    members: Mapping[str, Any]
    references: tuple[Reference, ...]
    handler: Handler
    problem: str
    """Why it cannot be executed, else empty."""
    branches: Mapping[str, tuple[int, str]] = field(default_factory=dict[str, tuple[int, str]])
    """Block and name as written, by slot."""
    blocks: tuple[int, ...] = ()
    """The blocks nested in it."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A memory location as the module has it."""

    row: int
    name: str
    set: int
    function: int
    kind: str
    partitions: int
    pitch: int
    base: int
    addr: int | None


@dataclass(frozen=True, slots=True)
class TensorSet:
    """A memory location set as the module has it."""

    row: int
    name: str
    kind: int
    """Code of its kind."""
    dtype: str
    shape: tuple[int, ...]
    locations: tuple[int, ...]
    members: Mapping[str, Any]


class Program:
    """One module of a batch, decoded bit by bit.

    Parameters
    ----------
    ir
        The batch.
    module_id
        The module.
    """

    def __init__(self, ir: IR, module_id: int) -> None:
        self.ir, self.module_id = ir, module_id
        self.name = ir.tables["modules"].text()[module_id]
        self._columns: dict[tuple[str, str], Any] = {}
        self._words: dict[tuple[str, str], tuple[Any, list[str]]] = {}
        self._codes: dict[int, Code] = {}
        self.formulas: dict[int, list[tuple[Any, int]]] = {}
        """Of symbolic operands the addresses as functions of a frame, each with its stride, by row."""
        self._placements: dict[int, Placement] = {}
        self._sets: dict[int, TensorSet] = {}
        self._blocks: dict[int, tuple[int, ...]] = {}
        self._rows: dict[int, tuple[int, int]] = {}
        self._leaving: dict[int, tuple[tuple[int, str], ...]] = {}

    # -- columns ------------------------------------------------------------------------------------------------------

    def column(self, table: str, name: str) -> Any:
        """Return a column as an array, kept."""
        key = table, name
        if key not in self._columns:
            self._columns[key] = self.ir.array(table, name)
        return self._columns[key]

    def text(self, table: str, row: int, column: str = "name") -> str:
        """Return a cell of text."""
        return self.ir.tables[table].text(column)[row]

    def integer(self, table: str, name: str, row: int) -> int | None:
        """Return a cell of an integer column, None where it is absent."""
        value = int(self.column(table, name)[row])
        return None if value == NULL_INT else value

    def pooled(self, table: str, name: str, row: int) -> str:
        """Return the name in a cell, empty where it is absent."""
        number = int(self.column(table, name)[row])
        return self.ir.pools.names[number] if number >= 0 else ""

    def word(self, table: str, name: str, row: int) -> str:
        """Return the spelling of a cell of a closed vocabulary, empty where it is absent."""
        key = table, name
        if key not in self._words:
            of = schema.BY_NAME[table].column(name).of
            assert of is not None
            self._words[key] = self.column(table, name), self.ir.pools.codes[of].texts
        numbers, texts = self._words[key]
        number = numbers[row]
        return texts[number] if number >= 0 else ""

    def members(self, table: str, row: int) -> Mapping[str, Any]:
        """Return the members of a row that no column models; they must not be changed."""
        number = int(self.column(table, "extra")[row])
        return extras.parse(self.ir.pools.extras[number]) if number >= 0 else NOTHING

    def children(self, table: str, parent: str, row: int) -> range:
        """Return the rows of a table that a row owns."""
        return range(*_run(self.column(table, parent), row))

    def references(self, table: str, row: int) -> tuple[Reference, ...]:
        """Return what the placeholders in a row's text stand for, in order."""
        if self.column(table, "extra")[row] < 0:
            return ()
        start, rows = self._referring.get(table, (0, np.empty(0, np.int32)))
        first, last = _run(rows, row)
        return tuple(self._reference(start + number) for number in range(first, last))

    @cached_property
    def _referring(self) -> dict[str, tuple[int, Any]]:
        """For each table where its rows in `references` begin, and the rows that refer."""
        own = self.children("references", "module_id", self.module_id)  # grouped by module, then by table
        part = slice(own.start, own.stop)
        tables, row = self.column("references", "table")[part], self.column("references", "row")[part]
        found: dict[str, tuple[int, Any]] = {}
        for name in schema.REFERRING:
            mine = np.flatnonzero(tables == schema.STRUCTURAL["table"].index(name))
            if len(mine):
                found[name] = own.start + int(mine[0]), row[mine[0] : mine[-1] + 1]
        return found

    def _reference(self, number: int) -> Reference:
        target = int(self.column("references", "target_id")[number])
        table = schema.STRUCTURAL["table"][int(self.column("references", "target")[number])]
        return Reference(table, target, "" if target >= 0 else self.pooled("references", "name", number))

    # -- functions ----------------------------------------------------------------------------------------------------

    @cached_property
    def functions(self) -> range:
        """The module's functions."""
        return self.children("functions", "module_id", self.module_id)

    def entry(self, name: str | None) -> int:
        """Return the function to run: that of a name, else `main`, else the first ordinary one.

        Raises
        ------
        SimulationError
            If there is none, or several of the name.
        """
        kernel = self.column("functions", "is_kernel")
        if name is not None:
            named = [row for row in self.functions if self.text("functions", row) == name]
            if not named:
                known = ", ".join(f"`{self.text('functions', row)}`" for row in self.functions[:_SHOWN])
                raise SimulationError(f"no function is named `{name}`; there are {known or 'none'}", module=self.name)
            if len(named) > 1:
                raise SimulationError(f"{len(named)} functions are named `{name}`", module=self.name)
            return named[0]
        ordinary = [row for row in self.functions if kernel[row] != 1]
        if not ordinary:
            raise SimulationError("the module has no ordinary function; name one with `function`", module=self.name)
        main = [row for row in ordinary if self.text("functions", row) == "main"]
        return (main or ordinary)[0]

    def blocks(self, function: int) -> tuple[int, ...]:
        """Return the blocks of a function, nested ones left out."""
        if function not in self._blocks:
            part = slice(self._all_blocks.start, self._all_blocks.stop)
            mine = self.column("blocks", "function_id")[part] == function
            mine &= self.column("blocks", "instruction_id")[part] < 0
            self._blocks[function] = tuple((part.start + np.flatnonzero(mine)).tolist())
        return self._blocks[function]

    def nested(self, instruction: int) -> tuple[int, ...]:
        """Return the blocks nested in an instruction."""
        rows = self._owned_blocks.get(instruction, ())
        return tuple(rows)

    @cached_property
    def _owned_blocks(self) -> dict[int, list[int]]:
        owner = self.column("blocks", "instruction_id")
        found: dict[int, list[int]] = {}
        for row in self._all_blocks:
            if owner[row] >= 0:
                found.setdefault(int(owner[row]), []).append(row)
        return found

    @cached_property
    def _all_blocks(self) -> range:
        """The module's blocks."""
        return self.children("blocks", "module_id", self.module_id)

    def instructions(self, block: int) -> tuple[int, int]:
        """Return the first instruction of a block, and the one behind its last."""
        if block not in self._rows:
            rows = self.children("instructions", "block_id", block)
            self._rows[block] = rows.start, rows.stop
        return self._rows[block]

    def leaving(self, block: int) -> tuple[tuple[int, str], ...]:
        """Return the instructions of a block that leave it, each with its engine."""
        if block not in self._leaving:
            first, end = self.instructions(block)
            numbers = [self.ir.pools.codes["opcode"].find(name) for name in LEAVING]
            rows = first + np.flatnonzero(np.isin(self.column("instructions", "opcode")[first:end], numbers))
            self._leaving[block] = tuple((row, self.word("instructions", "engine", row)) for row in rows.tolist())
        return self._leaving[block]

    # -- storage ------------------------------------------------------------------------------------------------------

    def placement(self, row: int) -> Placement:
        """Return a memory location."""
        if row not in self._placements:
            cell = self.integer
            name = self.text("locations", row)
            partitions, pitch = cell("locations", "partitions", row), cell("locations", "bytes", row)
            if partitions is None or pitch is None or min(partitions, pitch) < 0:
                raise SimulationError(f"`{name}` has no `dims`")
            self._placements[row] = Placement(
                row,
                name,
                int(self.column("locations", "set_id")[row]),
                int(self.column("locations", "function_id")[row]),
                self.word("locations", "type", row),
                partitions,
                pitch,
                cell("locations", "base", row) or 0,
                cell("locations", "addr", row),
            )
        return self._placements[row]

    def tensor_set(self, row: int) -> TensorSet:
        """Return a memory location set."""
        if row not in self._sets:
            shape = int(self.column("sets", "tensor_shape")[row])
            sizes = extras.parse(self.ir.pools.shapes[shape]) if shape >= 0 else ()
            self._sets[row] = TensorSet(
                row,
                self.text("sets", row),
                int(self.column("sets", "kind")[row]),
                self.word("sets", "dtype", row),
                tuple(sizes),
                tuple(self.children("locations", "set_id", row)),
                self.members("sets", row),
            )
        return self._sets[row]

    def sets(self, function: int) -> Iterator[TensorSet]:
        """Return the sets of a function, in file order."""
        return (self.tensor_set(row) for row in self.children("sets", "function_id", function))

    # -- instructions -------------------------------------------------------------------------------------------------

    def code(self, row: int) -> Code:
        """Return an instruction."""
        if row not in self._codes:
            self._codes[row] = self._decode(row)
        return self._codes[row]

    def _decode(self, row: int) -> Code:
        opcode = self.word("instructions", "opcode", row)
        members = self.members("instructions", row)
        lists: dict[str, list[OperandCode]] = {role: [] for role in vocab.ROLES.values}
        for number in self.children("operands", "instruction_id", row):
            role = self.word("operands", "role", number)
            kind = self.word("operands", "kind", number)
            if kind in ("imm_value", "symbolic_imm_value", "imm_array"):  # the role of an immediate means nothing
                role = "in"
            lists[role].append(self._operand(number, role, kind, len(lists[role])))
        handler = find_handler(opcode)
        branches: dict[str, tuple[int, str]] = {}
        if opcode in LEAVING:
            for number in self.children("branches", "instruction_id", row):
                block = int(self.column("branches", "block_id")[number])
                branches[self.word("branches", "slot", number)] = block, self.pooled("branches", "name", number)
        problem = ""
        if members.get("predicates"):
            problem = "it has predicates, which are not modelled"
        else:
            counts = {role: len(given) for role, given in lists.items()}
            problem = handler.problem(opcode, counts, members)
        return Code(
            row,
            self.text("instructions", row),
            opcode,
            self.word("instructions", "engine", row),
            int(self.column("instructions", "function_id")[row]),
            int(self.column("instructions", "block_id")[row]),
            tuple(lists["in"]),
            tuple(lists["out"]),
            tuple(lists["indirection"]),
            members,
            self.references("instructions", row),
            handler,
            problem,
            branches,
            self.nested(row),
        )

    def _operand(self, row: int, role: str, kind: str, place: int) -> OperandCode:
        pattern = int(self.column("operands", "pattern_id")[row])
        pairs = extras.parse(self.ir.pools.patterns[pattern]) if pattern >= 0 else ()
        names = [self.pooled("operands", column, row) for column in ("name", "set_name", "register_name")]
        return OperandCode(
            row,
            role,
            place,
            kind,
            self.word("operands", "dtype", row),
            int(self.column("operands", "location_id")[row]),
            int(self.column("operands", "set_id")[row]),
            int(self.column("operands", "register_id")[row]),
            self.integer("operands", "offset", row),
            tuple((step, num) for step, num in pairs),
            self.members("operands", row),
            self.references("operands", row),
            next((name for name in names if name), ""),
        )


def _run(owners: Any, row: int) -> tuple[int, int]:
    """Return where a row's run begins and ends in a column of owners."""
    key = owners.dtype.type(row)  # of another type, the whole column would be converted first
    first = int(owners.searchsorted(key))
    end = first
    while end < len(owners) and owners[end] == row:
        end += 1
        if end - first == _FEW:
            return first, int(owners.searchsorted(key, "right"))
    return first, end
