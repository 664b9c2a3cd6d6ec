"""One parsed BIR document to rows: the reference reader, plain Python over parsed JSON.

Rows are numbered within the module; `assemble` puts those of many modules together. Their order is that of every batch:
function after function, then queue after queue; blocks breadth first; the children of a row in one run.
"""

from dataclasses import dataclass, field
from typing import Any

from arrowir import layouts, schema
from arrowir import vocabulary as vocab
from arrowir.formats import shapes
from arrowir.formats.bir_storage import read_allocations
from arrowir.formats.calls import Calls
from arrowir.formats.findings import Findings
from arrowir.formats.kept_text import Reference, Text
from arrowir.formats.members import Members, Row, Shape, nulls_of, slots_of
from arrowir.formats.resolve import Axes, BlockList, Instructions, Storage, find_axis
from arrowir.formats.values import Json, Wrong, check_name, content_of, expect, items_of, kind_of
from arrowir.schema import NULL_INT
from arrowir.store import Pools

MAX_NESTED_BLOCKS = 2_000
"""Levels of blocks in blocks (rule F4)."""

_MAX_SEEN = 100_000

TABLE_CODE = {name: code for code, name in enumerate(schema.STRUCTURAL["table"])}
_OWNER = {name: code for code, name in enumerate(schema.STRUCTURAL["block_owner"])}
_NULLS = {table: nulls_of(table) for table in schema.STORED}
_STRUCTURED = frozenset({"Loop", "DynamicForLoop", "DoWhile", "DMABlock"})
_BRANCHES = frozenset({"UnconditionalBranch", "CompareAndBranch"})
_AXES = {"LoopAxis": "Loop", "DynamicForLoopAxis": "DynamicForLoop"}
_OPERANDS = tuple((key, code) for code, key in enumerate(vocab.ROLE_MEMBERS))
_RELATIONS = tuple((key, code) for code, key in enumerate(vocab.RELATION_MEMBERS))
_SLOTS = (("target", vocab.SLOT_TARGET), ("on_true", vocab.SLOT_ON_TRUE), ("on_false", vocab.SLOT_ON_FALSE))
_SIDES = (("on_wait", vocab.SIDE_WAIT, shapes.WAIT), ("on_update", vocab.SIDE_UPDATE, shapes.UPDATE))
_OPERAND_LISTS = frozenset(key for key, _ in _OPERANDS)
_EMPTY: Row = [-1, -1]


def _slots(table: str, *names: str) -> tuple[int, ...]:
    return tuple(slots_of(table).index(name) for name in names)


_KIND, _DTYPE, _LOCATION, _SET, _REGISTER, _NAME, _SET_NAME, _REGISTER_NAME, _OFFSET, _PATTERN = _slots(
    "operands",
    *("kind", "dtype", "location_id", "set_id", "register_id", "name", "set_name", "register_name"),
    *("offset", "pattern_id"),
)  # fmt: skip
_SYNC_LAYOUT, _SYNC_EXTRA = _slots("instructions", "sync_layout", "sync_extra")
_SOURCE, _STAGE, _NKI_LAYOUT, _NKI_EXTRA = _slots("modules", "source", "stage", "nki_layout", "nki_extra")
(_ON_INSTRUCTION, _ON_NAME) = _slots("dependencies", "on_instruction_id", "name")
(_FROM_INSTRUCTION, _FROM_NAME) = _slots("semaphores", "from_instruction_id", "name")
(_TARGET_ID, _TARGET_NAME) = _slots("references", "target_id", "name")


@dataclass(slots=True)
class Unit:
    """A function or a queue whose blocks are being read."""

    function: int
    """The function whose storage and kernels its names mean."""
    queue: int
    apart: bool
    """Whether it stands under `nki_functions`."""
    storage: Storage
    instructions: Instructions
    operands: tuple[dict[bytes | str, Row], ...] = field(default_factory=lambda: ({}, {}, {}))
    """Rows of operands that stood before, by role and content."""


@dataclass(slots=True)
class _Open:
    """A block that is to be read: the object, its list, its place there, the axes in sight, how deep it is."""

    obj: Json
    row: int
    siblings: BlockList
    place: int
    axes: Axes
    depth: int


class BirReader:
    """Reads one document.

    Parameters
    ----------
    pools : Pools
        Where text is interned.
    surrogates : bool
        Whether the text may hold lone surrogates.
    """

    def __init__(self, pools: Pools, *, surrogates: bool = False) -> None:
        self.pools = pools
        self.members = Members(pools, surrogates=surrogates)
        self.rows: dict[str, list[int]] = {name: [] for name in schema.STORED}
        self.texts: dict[str, list[str]] = {name: [] for name in schema.STORED}
        self.references: dict[str, list[int]] = {name: [] for name in schema.REFERRING}
        self.findings = Findings()
        self.functions: list[Unit] = []
        self.calls = Calls()
        self.set_of: list[int] = []
        self._rests: dict[bytes | str, tuple[int, int, tuple[Reference, ...]]] = {}
        self._functions: dict[str | None, list[int]] = {}
        self._block_of: list[int] = []
        self._names: dict[str | None, list[int]] = {}
        self._counts = dict.fromkeys(schema.STORED, 0)
        self._pending: list[tuple[list[int], int, int, int, str, bool]] = []
        """Names of instructions, to be resolved when all of a unit are there: rows, places of id and name in them, the
        instruction, the name, whether to warn of a name that means none."""

    # -- rows ----

    def append(self, table: str, row: Row | tuple[int, ...]) -> int:
        """Append a row and return its number."""
        self.rows[table].extend(row)
        number = self._counts[table]
        self._counts[table] = number + 1
        return number

    def count(self, table: str) -> int:
        """Return the number of rows of a table so far."""
        return self._counts[table]

    def named(self, table: str, obj: Json) -> str | None:
        """Keep the name of an object as the text of its row, and return it; without one the text is empty."""
        name: Any = obj.get("name")
        if name is None:
            self.texts[table].append("")
            return None
        if name.__class__ is not str:
            raise Wrong("name", f"expected a string, found {kind_of(name)}")
        if self.members.surrogates:
            check_name(name, "name")
        self.texts[table].append(name)
        return name

    # -- module ----

    def read(self, document: Any, *, name: str, source: str | None, stage: str | None) -> None:
        """Read a whole document.

        Raises
        ------
        Wrong
            Where a known member has a value that it cannot have, or a required one is missing (rule F3).
        """
        if not isinstance(document, dict):
            raise Wrong("", f"expected a BIR module, found {kind_of(document)}")
        if "functions" not in document:
            inner = document.get("module")
            wrapped = isinstance(inner, dict) and "functions" in inner
            hint = "; it stands under `module`, save that alone" if wrapped else ""
            raise Wrong("", f"this is a JSON object without `functions`, not a BIR module{hint}")
        nki = document.get("nki_functions")
        if isinstance(nki, list):
            self.members.marks["nki_functions"] = layouts.LIST
        row, _ = self.members.fill(shapes.MODULE, _NULLS["modules"], document)
        if isinstance(nki, dict):
            row[_NKI_LAYOUT], row[_NKI_EXTRA] = self.inside("nki_functions", self._nki, nki)
        kernels, kernel_path = (
            (nki.get("functions"), "nki_functions.functions") if isinstance(nki, dict) else (nki, "nki_functions")
        )
        row[_SOURCE] = -1 if source is None else self.pools.names.intern(source)
        row[_STAGE] = -1 if stage is None else self.pools.names.intern(stage)
        self.texts["modules"].append(name)
        self.append("modules", row)
        objects = [
            *self._listed(document["functions"], "functions", 0),
            *self._listed(kernels, kernel_path, 1),
        ]
        for obj, path, apart in objects:
            self.inside(path, self._function, obj, apart)
        for unit, (obj, path, _) in zip(self.functions, objects, strict=True):
            self._blocks(unit, obj.get("blocks"), f"{path}.blocks")
        self._queues(document.get("queues"))
        self.calls.finish(self)
        self.members.forget_plans()

    def inside(self, path: str, read: Any, *args: Any) -> Any:
        """Call a reader; an error in it is seen from here."""
        try:
            return read(*args)
        except Wrong as error:
            raise error.inside(path) from None

    def _listed(self, value: Any, path: str, apart: int) -> list[tuple[Any, str, int]]:
        if value is None:
            return []
        return [(obj, f"{path}[{place}]", apart) for place, obj in enumerate(expect(value, list, path))]

    def _nki(self, obj: Json) -> Row:
        return self.members.fill(shapes.NKI_FUNCTIONS, _EMPTY, obj)[0]

    def _function(self, obj: Any, apart: int) -> None:
        row, _ = self.members.fill(shapes.FUNCTION, _NULLS["functions"], obj)
        name = self.named("functions", obj)
        row[0], row[1] = 0, apart
        function = self.append("functions", row)
        self._functions.setdefault(name, []).append(function)
        storage = Storage()
        self.functions.append(Unit(function, -1, bool(apart), storage, Instructions({}, self._block_of.__getitem__)))
        read_allocations(self, function, storage, items_of(obj, "allocations"))

    # -- blocks ----

    def _queues(self, value: Any) -> None:
        for obj, path, _ in self._listed(value, "queues", 0):
            row, _ = self.inside(path, self.members.fill, shapes.QUEUE, _NULLS["queues"], obj)
            self.inside(path, self.named, "queues", obj)
            row[0] = 0
            queue = self.append("queues", row)
            names = self.texts["functions"]
            main = names.index("main") if "main" in names else 0
            storage = self.functions[main].storage if names else Storage()
            unit = Unit(main if names else -1, queue, False, storage, Instructions({}, self._block_of.__getitem__))
            self._blocks(unit, obj.get("blocks"), f"{path}.blocks")

    def _blocks(self, unit: Unit, value: Any, path: str) -> None:
        """Read the blocks of a function or queue, breadth first."""
        if value is None:
            return
        self._names = {}
        expect(value, list, path)
        work: list[_Open] = []
        first_block, first = self.count("blocks"), self.count("instructions")
        self._open(value, BlockList({}, None, path), unit, -1, None, 0, work)
        for block in work:
            for place, obj in enumerate(block.obj["instructions"]):
                try:
                    self._instruction(obj, unit, block, place, work)
                except Wrong as error:
                    at = f"{block.siblings.json_path(block.place)}.instructions[{place}]"
                    raise error.inside(at) from None
        unit.instructions = Instructions(self._names, self._block_of.__getitem__)
        if len(work) > len(value):
            unit.instructions.rank = self._program_order(first_block, first)
        self._resolve(unit)

    def _open(
        self, value: list[Any], siblings: BlockList, unit: Unit, owner: int, axes: Axes, depth: int, work: list[_Open]
    ) -> None:
        """Make rows of a list of blocks and put them in the queue."""
        code = _OWNER["instruction"] if owner >= 0 else _OWNER["queue"] if unit.queue >= 0 else _OWNER["function"]
        function = -1 if unit.queue >= 0 else unit.function
        for place, obj in enumerate(value):
            try:
                row, _ = self.members.fill(shapes.BLOCK, _NULLS["blocks"], obj)
                name = self.named("blocks", obj)
                expect(obj["instructions"], list, "instructions")
            except Wrong as error:
                raise error.inside(siblings.json_path(place)) from None
            row[:4] = function, owner, unit.queue, code
            number = self.append("blocks", row)
            siblings.names.setdefault(name, number)
            work.append(_Open(obj, number, siblings, place, axes, depth))

    def _instruction(self, obj: Any, unit: Unit, block: _Open, place: int, work: list[_Open]) -> None:
        opcode: Any = obj.get("opcode") if obj.__class__ is dict else None
        shape = shapes.KERNEL_CALL if opcode == "NKIKernel" else shapes.CALL if opcode == "Call" else shapes.INSTRUCTION
        plan = self.members.plan(shape, obj)
        children = plan.children
        more = not children <= _OPERAND_LISTS
        nested = self._look_at_unions(obj, opcode, children) if more else None
        row, references = self.members.fill(
            shape, _NULLS["instructions"], obj, plan, strict=nested is None and unit.queue < 0
        )
        if opcode is None and unit.queue < 0:
            raise Wrong("", "an instruction must have the member `opcode`")
        number = self.count("instructions")
        name = self.named("instructions", obj)
        rows = self._names.get(name)
        if rows is None:
            self._names[name] = [number]
        else:
            rows.append(number)
        self._block_of.append(block.row)
        row[0] = block.row
        for reference in references:
            self._refer_from("instructions", number, reference, unit, block.axes, number)
        for key, role in _OPERANDS:
            if key in children:
                self._operands(obj[key], key, role, number, unit, block.axes)
        axes = block.axes
        if more:
            if "sync_info" in children and obj["sync_info"] is not None:
                row[_SYNC_LAYOUT], row[_SYNC_EXTRA] = self.inside(
                    "sync_info", self._sync_info, obj["sync_info"], number
                )
            self._edges(obj, children, number, unit, block.axes)
            self._targets(obj, opcode, children, number, unit, block.siblings)
            if shape is not shapes.INSTRUCTION:
                self.calls.add(obj, opcode, number, unit, surrogates=self.members.surrogates)
            for key in _AXES:
                if key in children and isinstance(obj[key], dict):
                    axes = self.inside(key, self._axis, obj[key], number, unit, block.axes, axes)
        self.append("instructions", row)
        if self.members.miscounts:
            self.findings.add_miscounts(unit.function, number, self.members.miscounts)
            self.members.miscounts.clear()
        if nested:
            if block.depth == MAX_NESTED_BLOCKS:
                raise Wrong("blocks", f"blocks nest deeper than {MAX_NESTED_BLOCKS:,} levels")
            inner = BlockList({}, block.siblings, (block.siblings, block.place, place))
            self._open(nested, inner, unit, number, axes, block.depth + 1, work)

    def _look_at_unions(self, obj: Json, opcode: Any, children: frozenset[str]) -> list[Any] | None:
        """Mark members that are text here because of their value, or lists for objects; return nested blocks."""
        marks = self.members.marks
        for key, _ in _SLOTS:
            if (
                key in children
                and not isinstance(obj[key], str | None)
                and opcode not in _BRANCHES
                and opcode != "Call"
            ):
                marks[key] = layouts.RAW
        for key, owner in _AXES.items():
            if key in children and not isinstance(obj[key], dict | None):
                if opcode == owner:
                    raise Wrong(key, f"expected an object, found {kind_of(obj[key])}")
                marks[key] = layouts.RAW
        for key in ("func_args", "func_outs", "arguments"):
            if key in children and isinstance(obj[key], list):
                marks[key] = layouts.PAIRS
        if "blocks" in children and obj["blocks"] is not None:
            if _are_blocks(obj["blocks"], opcode):
                return obj["blocks"]
            marks["blocks"] = layouts.RAW
        return None

    def _operands(self, value: Any, key: str, role: int, instruction: int, unit: Unit, axes: Axes) -> None:
        if value is None:
            return
        seen = unit.operands[role]
        for place, obj in enumerate(expect(value, list, key)):
            try:
                content = content_of(obj, "")
                row = seen.get(content)
                if row is None:
                    self._operand(obj, role, instruction, unit, axes, content)
                else:
                    row[0] = instruction
                    self.append("operands", row)
            except Wrong as error:
                raise error.inside(f"{key}[{place}]") from None

    def _operand(self, obj: Any, role: int, instruction: int, unit: Unit, axes: Axes, content: bytes | str) -> None:
        row, references = self.members.fill(shapes.OPERAND, _NULLS["operands"], obj)
        row[0], row[1] = instruction, role
        if row[_KIND] == vocab.OPERAND_PHYSICAL_AP and (
            row[_PATTERN] < 0 or row[_OFFSET] == NULL_INT or row[_DTYPE] < 0
        ):
            for key in ("ap", "offset", "dtype"):
                if obj.get(key) is None:
                    raise Wrong("", f"an operand of kind `physical_ap` must have the member `{key}`")
        storage = unit.storage
        function = unit.function
        for reference in references:
            if reference.table == "functions":
                function = self._owner_named(reference.name, unit)
                storage = self.functions[function].storage if function >= 0 else Storage()
        side = storage.outputs if role == vocab.ROLE_OUT else storage.inputs
        place = ("instructions", instruction)
        location = -1
        name = obj.get("memref")
        if name is not None:
            expect(name, str, "memref")
            location = side.locations.get(name, -1)
            if location >= 0:
                row[_LOCATION] = location
                if name in storage.repeated_locations:
                    self.findings.add_ambiguous(function, "location", name, location)
            else:
                row[_NAME] = self.members.name_id(name, "memref")
                self.findings.add_unresolved(unit.function, "location", name, place)
        name = obj.get("memsetref")
        if name is not None:
            expect(name, str, "memsetref")
            if location >= 0 and self.texts["sets"][self.set_of[location]] == name:
                row[_SET] = self.set_of[location]
            elif (found := side.sets.get(name, -1)) >= 0:
                row[_SET] = found
                if name in storage.repeated_sets:
                    self.findings.add_ambiguous(function, "set", name, found)
            else:
                row[_SET_NAME] = self.members.name_id(name, "memsetref")
                self.findings.add_unresolved(unit.function, "set", name, place)
        name = obj.get("regref")
        if name is not None:
            row[_REGISTER] = self.register(expect(name, str, "regref"), unit, place)
            if row[_REGISTER] < 0:
                row[_REGISTER_NAME] = self.members.name_id(name, "regref")
        number = self.append("operands", row)
        for reference in references:
            self._refer_from("operands", number, reference, unit, axes, instruction)
        if not references and row[_NAME] < 0 and row[_SET_NAME] < 0 and row[_REGISTER_NAME] < 0:
            # Equal operands give equal rows; names that mean nothing are left out, since each use of them is counted.
            seen = unit.operands[role]
            if len(seen) < _MAX_SEEN:
                seen[content] = row

    # -- what instructions name ----

    def register(self, name: str, unit: Unit, place: tuple[str, int]) -> int:
        """Return the register that a name means, or -1 with a warning."""
        found = unit.storage.registers.get(name, -1)
        if found < 0:
            self.findings.add_unresolved(unit.function, "register", name, place)
        elif name in unit.storage.repeated_registers:
            self.findings.add_ambiguous(unit.function, "register", name, found)
        return found

    def functions_named(self, name: str) -> list[int]:
        """Return the functions of that name, once all are there."""
        return self._functions.get(name, [])

    def _owner_named(self, name: str, unit: Unit) -> int:
        """Return the function that `memref_owner_func` means: the unit's own, else the first of that name, or -1."""
        named = self.functions_named(name)
        return unit.function if unit.function in named else named[0] if named else -1

    def _refer_from(self, table: str, row: int, reference: Reference, unit: Unit, axes: Axes, instruction: int) -> None:
        """Add the row of a name in the text of an instruction or of something that it owns."""
        found = -1
        place = ("instructions", instruction)
        if reference.table == "registers":
            found = self.register(reference.name, unit, place)
        elif reference.table == "loops":
            found = find_axis(axes, reference.name)
            if found < 0:
                self.findings.add_unresolved(unit.function, "axis", reference.name, place)
        elif reference.table == "functions":
            found = self._owner_named(reference.name, unit)
            if found < 0:
                self.findings.add_unresolved(unit.function, "function", reference.name, place)
        rows = self.references[table]
        at = len(rows)
        self.refer(table, row, reference, found, -1)
        if reference.table == "instructions":
            self._pending.append((rows, at + _TARGET_ID, at + _TARGET_NAME, instruction, reference.name, True))

    def refer(self, table: str, row: int, reference: Reference, found: int, function: int) -> None:
        """Add a row to `references`; a function says that a location was looked for there."""
        if function >= 0:
            if found < 0:
                self.findings.add_unresolved(function, "location", reference.name, (table, row))
            elif reference.name in self.functions[function].storage.repeated_locations:
                self.findings.add_ambiguous(function, "location", reference.name, found)
        path = self.members.name_id(reference.path, reference.path)
        name = -1 if found >= 0 else self.members.name_id(reference.name, reference.path)
        self.references[table].extend((TABLE_CODE[table], row, path, TABLE_CODE[reference.table], found, name))

    def _edges(self, obj: Json, children: frozenset[str], instruction: int, unit: Unit, axes: Axes) -> None:
        rows = self.rows["dependencies"]
        for key, relation in _RELATIONS:
            if key not in children or obj[key] is None:
                continue
            for place, entry in enumerate(expect(obj[key], list, key)):
                extra, edge, references, name = -1, vocab.EDGE_FLOW, (), entry
                if entry.__class__ is not str:
                    try:
                        name, (extra, edge, references) = self._entry(entry)
                    except Wrong as error:
                        raise error.inside(f"{key}[{place}]") from None
                if self.members.surrogates:
                    check_name(name, f"{key}[{place}]")
                at = len(rows)
                number = self.append("dependencies", (instruction, relation, -1, edge, -1, extra))
                self._pending.append((rows, at + _ON_INSTRUCTION, at + _ON_NAME, instruction, name, True))
                for reference in references:
                    self._refer_from("dependencies", number, reference, unit, axes, instruction)

    def _entry(self, entry: Any) -> tuple[str, tuple[int, int, tuple[Reference, ...]]]:
        """Read an edge in list form: the name, and what follows it."""
        if not isinstance(entry, list) or not entry:
            raise Wrong("", f"expected a name or a list that starts with one, found {kind_of(entry)}")
        name = expect(entry[0], str, "[0]")
        rest = entry[1:]
        content = content_of(rest, "")
        found = self._rests.get(content)
        if found is None:
            edge = vocab.EDGE_FLOW
            if rest:
                edge = self.members.codes_of("edge_kind").of(rest[0], "[1]", numbers=True)
            text = Text(expressions=True)
            text.add(rest, "")
            self.members.miscounts += text.miscounts
            extra = self.pools.extras.intern("".join(text.parts))
            found = self._rests[content] = extra, edge, tuple(text.references)
        return name, found

    def _targets(
        self, obj: Json, opcode: Any, children: frozenset[str], instruction: int, unit: Unit, siblings: BlockList
    ) -> None:
        for key, slot in _SLOTS:
            if key not in children or (key == "target" and opcode == "Call"):
                continue
            name = obj[key]
            if name.__class__ is not str:
                if name is not None and opcode in _BRANCHES:
                    raise Wrong(key, f"expected a string or null, found {kind_of(name)}")
                continue
            found = siblings.find(name)
            raw = -1
            if found < 0:
                raw = self.members.name_id(name, key)
                self.findings.add_unresolved(unit.function, "block", name, ("instructions", instruction))
            self.append("branches", (instruction, slot, found, raw))

    def _axis(self, obj: Json, instruction: int, unit: Unit, around: Axes, axes: Axes) -> Axes:
        row, references = self.members.fill(shapes.LOOP, _NULLS["loops"], obj)
        row[0] = instruction
        number = self.append("loops", row)
        for reference in references:
            self._refer_from("loops", number, reference, unit, around, instruction)
        name = obj.get("name")
        return axes if name is None else (axes, name, number)

    def _sync_info(self, value: Any, instruction: int) -> Row:
        inner, _ = self.members.fill(shapes.SYNC_INFO, _EMPTY, value)
        for key, side, shape in _SIDES:
            for place, entry in enumerate(items_of(value, key)):
                self.inside(f"{key}[{place}]", self._semaphore, entry, side, shape, instruction)
        return inner

    def _semaphore(self, obj: Any, side: int, shape: Shape, instruction: int) -> None:
        producer = obj.get("from") if isinstance(obj, dict) else None
        if not isinstance(producer, str | None):
            self.members.marks["from"] = layouts.RAW
        row, _ = self.members.fill(shape, _NULLS["semaphores"], obj)
        row[0], row[1] = instruction, side
        rows = self.rows["semaphores"]
        at = len(rows)
        self.append("semaphores", row)
        if isinstance(producer, str):
            check_name(producer, "from")
            self._pending.append((rows, at + _FROM_INSTRUCTION, at + _FROM_NAME, instruction, producer, False))

    # -- names of instructions ----

    def _resolve(self, unit: Unit) -> None:
        """Find the instructions that names mean (rule R3); in a queue its own come before those of the function."""
        find = unit.instructions.find
        for rows, at, name_at, instruction, name, warn in self._pending:
            found = find(name, instruction)
            if found < 0 and unit.queue >= 0 and unit.function >= 0:
                found = self.functions[unit.function].instructions.first(name)
            rows[at] = found
            if found < 0:
                rows[name_at] = self.members.name_id(name, "from")
                if warn:
                    self.findings.add_unresolved(unit.function, "instruction", name, ("instructions", instruction))
            elif rows[name_at] >= 0:
                rows[name_at] = -1
        self._pending.clear()

    def _program_order(self, first_block: int, first: int) -> dict[int, int]:
        """Return the pre-order rank of a unit's instructions: a loop stands before its body."""
        owned: dict[int, list[int]] = {}
        width = len(slots_of("blocks"))
        blocks = self.rows["blocks"]
        for block in range(first_block, self.count("blocks")):
            owned.setdefault(blocks[block * width + 1], []).append(block)
        inside: dict[int, list[int]] = {}
        for row in range(first, self.count("instructions")):
            inside.setdefault(self._block_of[row], []).append(row)
        rank: dict[int, int] = {}
        stack = [row for block in reversed(owned[-1]) for row in reversed(inside.get(block, ()))]
        while stack:
            row = stack.pop()
            rank[row] = len(rank)
            stack.extend(r for block in reversed(owned.get(row, ())) for r in reversed(inside.get(block, ())))
        return rank


def _are_blocks(value: Any, opcode: Any) -> bool:
    """Tell whether the `blocks` of an instruction are blocks; of a loop they have to be."""
    if isinstance(value, list) and all(isinstance(b, dict) and isinstance(b.get("instructions"), list) for b in value):
        return True
    if opcode not in _STRUCTURED:
        return False
    for place, block in enumerate(expect(value, list, "blocks")):
        expect(block, dict, f"blocks[{place}]")
        if "instructions" not in block:
            raise Wrong(f"blocks[{place}]", "a block must have the member `instructions`")
        expect(block["instructions"], list, f"blocks[{place}].instructions")
    return True
