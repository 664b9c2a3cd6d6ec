"""Tables to BIR JSON text: members in the order of the row's layout, each value from where the layout says."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from arrowir import extras, layouts, schema
from arrowir import vocabulary as vocab
from arrowir.diagnostics import SchemaError
from arrowir.formats.json_text import quote, scan_value
from arrowir.ir import IR
from arrowir.schema import NULL_INT
from arrowir.store import Array, starts

_REFERENCE = "\x01"
"""Slot of a name in kept text."""
_needs_escape = re.compile(rb'["\\\x00-\x1f]').search

Texts = list[str]


class Template:
    """Text of the objects of one layout and one extra: literals, each but the last with a slot behind it.

    A slot is a member whose value stands in a column or in child rows (with its mark in front where that is not the
    plain one), or a name in kept text.
    """

    __slots__ = ("last", "pieces", "references")

    def __init__(self, members: "Members", extra: str) -> None:
        self.pieces: list[tuple[str, str]] = []
        self.references = 0
        text, place = "{", 1
        legal = extra.replace(extras.PLACEHOLDER, "0") if extras.PLACEHOLDER in extra else extra
        for where, slot, head, separator in members:
            text += separator
            if where == layouts.RAW:
                # The members of the extra stand in the order of the layout, so its text is copied run by run.
                if not legal.startswith(head, place):
                    raise SchemaError(
                        f"the text of a row has not the member `{slot}` where its layout says: {extra[:80]}"
                    )
                _, end = scan_value(legal, place + len(head))
                first, *more = extra[place:end].split(extras.PLACEHOLDER) if extra is not legal else (extra[place:end],)
                text += first
                for part in more:
                    self.pieces.append((text, _REFERENCE))
                    self.references += 1
                    text = part
                place = end + 1
            elif where == layouts.NULL:
                text += head + "null"
            else:
                self.pieces.append((text + head, slot))
                text = ""
        self.last = text + "}"


Members = list[tuple[str, str, str, str]]
"""What a layout says of each member: where its value is, its slot, its key with the colon, and the comma in front."""


def members_of(layout: str) -> Members:
    """Return what a layout says of its members."""
    return [
        (
            where,
            key if where in (layouts.COLUMN, layouts.RAW) else f"{where}\0{key}",
            f"{quote(key)}:",
            "," if place else "",
        )
        for place, (where, key) in enumerate(layouts.entries(layout))
    ]


class JsonWriter:
    """Writes modules of one batch.

    Parameters
    ----------
    ir : IR
        The batch.
    """

    def __init__(self, ir: IR) -> None:
        self.ir = ir
        self._members: dict[int, Members] = {}
        self._templates: dict[tuple[int, int], Template] = {}
        self._codes = {name: [quote(text) for text in pool.texts] for name, pool in ir.pools.codes.items()}

    def template(self, layout: int, extra: int) -> Template:
        """Return the template of a layout and an extra, by their ids."""
        found = self._templates.get((layout, extra))
        if found is None:
            pools = self.ir.pools
            if layout not in self._members:
                self._members[layout] = members_of(pools.layouts[layout])
            found = Template(self._members[layout], pools.extras[extra] if extra >= 0 else "{}")
            self._templates[layout, extra] = found
        return found

    @cached_property
    def begins(self) -> dict[str, Array]:
        """Where the rows of each module begin, by table."""
        modules = np.arange(len(self.ir) + 1)
        return {
            table.name: modules
            if table.name == "modules"
            else np.searchsorted(self.ir.array(table.name, "module_id"), modules)
            for table in schema.TABLES
            if table.stored
        }

    def text(self, module_id: int) -> str:
        """Return a module as compact JSON text."""
        return _Module(self, module_id).text()

    def code(self, vocabulary: str, code: int) -> str:
        """Return the text of a code; absent is null."""
        return "null" if code < 0 else self._codes[vocabulary][code]

    def name(self, number: int) -> str:
        """Return the text of a name in the pool."""
        return "null" if number < 0 else quote(self.ir.pools.names[number])


def _integer(value: int) -> str:
    return "null" if value == NULL_INT else str(value)


def _flag(value: int) -> str:
    return "null" if value < 0 else "true" if value else "false"


def _list(items: Iterable[str]) -> str:
    return f"[{','.join(items)}]"


class _Rows:
    """The rows of one module in one table, as Python lists; ids stay those of the batch."""

    def __init__(self, writer: JsonWriter, table: str, module_id: int) -> None:
        self.writer, self.name = writer, table
        self.table = writer.ir.tables[table]
        self.schema = schema.BY_NAME[table]
        self.first, self.end = (int(n) for n in writer.begins[table][module_id : module_id + 2])
        self._lists: dict[str, list[int]] = {}
        self._texts: dict[str, Texts] = {}
        self.references: dict[int, Texts] = {}

    def __len__(self) -> int:
        return self.end - self.first

    def array(self, column: str) -> Array:
        """Return the module's part of a column."""
        return self.table[column][self.first : self.end]

    def cells(self, column: str) -> list[int]:
        """Return the module's part of a column as a list."""
        if column not in self._lists:
            self._lists[column] = self.array(column).tolist()
        return self._lists[column]

    def bounds(self, parent: "_Rows", column: str) -> list[int]:
        """Return where the children of each row of a parent begin, counted within the module."""
        counts = (
            np.bincount(self.array(column) - parent.first, minlength=len(parent))
            if len(self)
            else np.zeros(len(parent))
        )
        return starts(counts.astype(np.int64)).tolist()

    @cached_property
    def names(self) -> Texts:
        """The names, as JSON strings."""
        strings = self.table.text()
        offsets = strings.offsets[self.first : self.end + 1]
        if not len(self):
            return []
        data = strings.data[offsets[0] : offsets[-1]].tobytes()
        places = (offsets - offsets[0]).tolist()
        plain = _needs_escape(data) is None
        if plain and data.isascii():
            text = data.decode()
            return [f'"{text[a:b]}"' for a, b in pairwise(places)]
        parts = [data[a:b].decode() for a, b in pairwise(places)]
        return [f'"{part}"' for part in parts] if plain else [quote(part) for part in parts]

    def put(self, slot: str, texts: Texts) -> None:
        """Give the texts of a slot, one per row."""
        self._texts[slot] = texts

    def slot(self, slot: str) -> Texts:
        """Return the texts of a slot, one per row; those of columns are made when they are first asked for."""
        if slot not in self._texts:
            self._texts[slot] = self._column(slot)
        return self._texts[slot]

    def _column(self, key: str) -> Texts:
        for column in self.schema.stored:
            if column.key == key:
                break
        else:
            raise SchemaError(
                f"a layout in table `{self.name}` says that `{key}` stands in a column; there is none for it"
            )
        if column.kind == "text":
            return self.names
        writer, values = self.writer, self.cells(column.name)
        if column.kind == "code":
            return _mapped(values, lambda code: writer.code(column.of or "", code))
        if column.kind == "int":
            return _mapped(values, _integer)
        if column.kind == "flag":
            return _mapped(values, _flag)
        if column.of == "names":
            return _mapped(values, writer.name)
        texts = writer.ir.pools.of(column).texts
        return ["null" if number < 0 else texts[number] for number in values]

    def row(self, row: int) -> str:
        """Return the text of a row, counted within the module."""
        template = self.writer.template(self.cells("layout")[row], self.cells("extra")[row])
        out = ""
        texts = self._texts
        if template.references:
            names = iter(self.references.get(row, ()))
            for literal, slot in template.pieces:
                out += literal + (next(names) if slot == _REFERENCE else self.slot(slot)[row])
        else:
            for literal, slot in template.pieces:
                out += literal + (texts[slot] if slot in texts else self.slot(slot))[row]
        return out + template.last

    def rows(self) -> Texts:
        """Return the texts of all rows."""
        return [self.row(row) for row in range(len(self))]


def _mapped(values: Sequence[int], change: Callable[[int], str]) -> Texts:
    """Apply a function to each distinct value."""
    known = {value: change(value) for value in set(values)}
    return [known[value] for value in values]


class _Module:
    """One module on its way to text."""

    def __init__(self, writer: JsonWriter, module_id: int) -> None:
        self.writer, self.id = writer, module_id
        self.tables = {name: _Rows(writer, name, module_id) for name in schema.STORED}
        self.pools = writer.ir.pools
        self._references()

    def text(self) -> str:
        """Return the document."""
        functions, queues, blocks = (self.tables[name] for name in ("functions", "queues", "blocks"))
        functions.put("allocations", self._allocations())
        self._instruction_slots()
        texts = self._block_texts()
        for rows, column in ((functions, "function_id"), (queues, "queue_id")):
            owned: list[Texts] = [[] for _ in range(len(rows))]
            owners, nested = blocks.cells(column), blocks.cells("instruction_id")
            for row, text in enumerate(texts):
                if owners[row] >= 0 and nested[row] < 0:
                    owned[owners[row] - rows.first].append(text)
            rows.put("blocks", [_list(items) for items in owned])
        apart = functions.cells("in_nki_functions")
        all_functions = functions.rows()
        kernels = [text for text, flag in zip(all_functions, apart, strict=True) if flag == 1]
        module = self.tables["modules"]
        module.put("functions", [_list(text for text, flag in zip(all_functions, apart, strict=True) if flag != 1)])
        module.put("nki_functions", [self._nki(module, _list(kernels))])
        module.put(f"{layouts.LIST}\0nki_functions", [_list(kernels)])
        module.put("queues", [_list(queues.rows())])
        return module.row(0)

    def _nki(self, module: _Rows, kernels: str) -> str:
        layout = module.cells("nki_layout")[0]
        return "" if layout < 0 else self._object(layout, module.cells("nki_extra")[0], {"functions": kernels})

    def _object(self, layout: int, extra: int, slots: dict[str, str]) -> str:
        """Return the text of an object that is no row of its own."""
        template = self.writer.template(layout, extra)
        out = ""
        for literal, slot in template.pieces:
            out += literal + slots[slot]
        return out + template.last

    def _named(self, table: str, ids: Sequence[int], raw: Sequence[int]) -> Texts:
        """Return the names of rows, or what was written where there is no row."""
        rows = self.tables[table]
        names, first, pooled = rows.names, rows.first, self.writer.name
        return [names[row - first] if row >= 0 else pooled(name) for row, name in zip(ids, raw, strict=True)]

    def _references(self) -> None:
        """Give each row the names in its text."""
        rows = self.tables["references"]
        if not len(rows):
            return
        tables = schema.STRUCTURAL["table"]
        axes = self.tables["loops"]
        for code, row, target, found, name in zip(
            *(rows.cells(column) for column in ("table", "row", "target", "target_id", "name")), strict=True
        ):
            owner = self.tables[tables[code]]
            if found < 0:
                text = self.writer.name(name)
            elif tables[target] == "loops":
                text = self.writer.name(axes.cells("axis")[found - axes.first])
            else:
                text = self.tables[tables[target]].names[found - self.tables[tables[target]].first]
            owner.references.setdefault(row - owner.first, []).append(text)

    # -- storage ----

    def _allocations(self) -> Texts:
        functions, sets, locations, registers = (
            self.tables[name] for name in ("functions", "sets", "locations", "registers")
        )
        dims = zip(locations.cells("partitions"), locations.cells("bytes"), strict=True)
        locations.put("dims", [f"[{_integer(partitions)},{_integer(size)}]" for partitions, size in dims])
        locations.put("alias", self._aliases(locations))
        texts, bounds = locations.rows(), locations.bounds(sets, "set_id")
        sets.put("memorylocations", [_list(texts[a:b]) for a, b in pairwise(bounds)])
        entries: list[list[tuple[int, str]]] = [[] for _ in range(len(functions))]
        for rows in (sets, registers):
            for text, owner, ordinal in zip(rows.rows(), rows.cells("function_id"), rows.cells("ordinal"), strict=True):
                entries[owner - functions.first].append((ordinal, text))
        return [_list(text for _, text in sorted(items, key=lambda item: item[0])) for items in entries]

    def _aliases(self, locations: _Rows) -> Texts:
        aliases = self.tables["aliases"]
        targets = self._named("locations", aliases.cells("target_location_id"), aliases.cells("name"))
        owners = self._named("sets", aliases.cells("target_set_id"), aliases.cells("set_name"))
        texts: Texts = []
        for extra, target, owner in zip(aliases.cells("extra"), targets, owners, strict=True):
            parts = self.pools.extras[extra].split(extras.PLACEHOLDER)
            names = [target] if len(parts) == 2 else [owner, target]
            texts.append(parts[0] + "".join(name + part for name, part in zip(names, parts[1:], strict=True)))
        bounds = aliases.bounds(locations, "location_id")
        return [_list(texts[a:b]) for a, b in pairwise(bounds)]

    # -- instructions ----

    def _block_texts(self) -> Texts:
        """Return the texts of all blocks; from the last to the first, since nested blocks stand behind their owners."""
        blocks, instructions = self.tables["blocks"], self.tables["instructions"]
        owner = blocks.array("instruction_id")
        nested = np.flatnonzero(owner >= 0)
        if (instructions.table["block_id"][owner[nested]] - blocks.first >= nested).any():
            raise SchemaError(
                "a block stands before the instruction that owns it; rows of blocks must go breadth first"
            )
        owners = owner.tolist()
        inside: list[str] = ["[]"] * len(instructions)
        collected: dict[int, Texts] = {}
        instructions.put("blocks", inside)
        blocks.put("instructions", [""] * len(blocks))
        bounds = instructions.bounds(blocks, "block_id")
        texts = [""] * len(blocks)
        row = instructions.row
        for block in range(len(blocks) - 1, -1, -1):
            items: Texts = []
            for number in range(bounds[block], bounds[block + 1]):
                if number in collected:
                    inside[number] = _list(reversed(collected.pop(number)))
                items.append(row(number))
                inside[number] = ""
            blocks.slot("instructions")[block] = _list(items)
            text = blocks.row(block)
            if owners[block] >= 0:
                collected.setdefault(owners[block] - instructions.first, []).append(text)
            else:
                texts[block] = text
        return texts

    def _instruction_slots(self) -> None:
        instructions = self.tables["instructions"]
        instructions.put("optin_passes", _mapped(instructions.cells("optin_mask"), _integer))
        self._operands()
        self._edges()
        self._axes()
        self._targets()
        self._sync_infos()

    def _split(self, table: str, texts: Texts, by: str, keys: Sequence[str]) -> None:
        """Put lists of child rows under members; a code column says which member a row belongs to."""
        instructions, rows = self.tables["instructions"], self.tables[table]
        owners, codes = rows.cells("instruction_id"), rows.cells(by)
        items: list[dict[int, Texts]] = [{} for _ in keys]
        for owner, code, text in zip(owners, codes, texts, strict=True):
            items[code].setdefault(owner - instructions.first, []).append(text)
        for key, lists in zip(keys, items, strict=True):
            column = ["[]"] * len(instructions)
            for row, listed in lists.items():
                column[row] = _list(listed)
            instructions.put(key, column)

    def _operands(self) -> None:
        operands = self.tables["operands"]
        columns = ("layout", "extra", "kind", "dtype", "location_id", "set_id", "register_id", "name", "set_name",
                   "register_name", "offset", "pattern_id")  # fmt: skip
        known: dict[tuple[int, ...], str] = {}
        texts: Texts = []
        for row, cells in enumerate(zip(*(operands.cells(column) for column in columns), strict=True)):
            text = known.get(cells)
            if text is None:
                text = self._operand(row, cells)
                if not self.writer.template(cells[0], cells[1]).references:
                    known[cells] = text
            texts.append(text)
        self._split("operands", texts, "role", _keys_by_code(_ROLE_KEYS))

    def _operand(self, row: int, cells: tuple[int, ...]) -> str:
        layout, extra, kind, dtype, location, own, register, name, set_name, register_name, offset, pattern = cells
        writer = self.writer
        template = writer.template(layout, extra)
        names = iter(self.tables["operands"].references.get(row, ()))
        out = ""
        for literal, slot in template.pieces:
            match slot:
                case "memref":
                    text = self._one("locations", location, name)
                case "memsetref":
                    text = self._one("sets", own, set_name)
                case "ap":
                    text = "null" if pattern < 0 else self.pools.patterns[pattern]
                case "offset":
                    text = _integer(offset)
                case "dtype":
                    text = writer.code("dtype", dtype)
                case "kind":
                    text = writer.code("operand_kind", kind)
                case "regref":
                    text = self._one("registers", register, register_name)
                case "\x01":
                    text = next(names)
                case _:
                    raise SchemaError(
                        f"a layout of an operand says that `{slot}` stands in a column; there is none for it"
                    )
            out += literal + text
        return out + template.last

    def _one(self, table: str, row: int, name: int) -> str:
        rows = self.tables[table]
        return rows.names[row - rows.first] if row >= 0 else self.writer.name(name)

    def _edges(self) -> None:
        rows = self.tables["dependencies"]
        names = self._named("instructions", rows.cells("on_instruction_id"), rows.cells("name"))
        texts: Texts = []
        for row, (name, extra) in enumerate(zip(names, rows.cells("extra"), strict=True)):
            if extra < 0:
                texts.append(name)
                continue
            rest = self.pools.extras[extra]
            if row in rows.references:
                first, *parts = rest.split(extras.PLACEHOLDER)
                rest = first + "".join(t + p for t, p in zip(rows.references[row], parts, strict=True))
            texts.append(f"[{name}]" if rest == "[]" else f"[{name},{rest[1:]}")
        self._split("dependencies", texts, "relation", _keys_by_code(_RELATION_KEYS))

    def _axes(self) -> None:
        loops, instructions = self.tables["loops"], self.tables["instructions"]
        texts, bounds = loops.rows(), loops.bounds(instructions, "instruction_id")
        first = [texts[a] if b > a else "{}" for a, b in pairwise(bounds)]
        # An instruction with both members has both rows, in this order.
        last = [texts[b - 1] if b > a else "{}" for a, b in pairwise(bounds)]
        instructions.put("LoopAxis", first)
        instructions.put("DynamicForLoopAxis", last)

    def _targets(self) -> None:
        """Put branch targets, callees and argument maps in place."""
        instructions, branches, calls = (self.tables[name] for name in ("instructions", "branches", "calls"))
        columns = {key: ["null"] * len(instructions) for key in ("target", "on_true", "on_false", "func")}
        keys = _keys_by_code(_SLOT_KEYS)
        blocks = self._named("blocks", branches.cells("block_id"), branches.cells("name"))
        for owner, slot, text in zip(branches.cells("instruction_id"), branches.cells("slot"), blocks, strict=True):
            columns[keys[slot]][owner - instructions.first] = text
        callees = self._named("functions", calls.cells("callee_id"), calls.cells("name"))
        opcodes = instructions.cells("opcode")
        for owner, text in zip(calls.cells("instruction_id"), callees, strict=True):
            row = owner - instructions.first
            columns["target" if opcodes[row] == vocab.OP_CALL else "func"][row] = text
        for key, texts in columns.items():
            instructions.put(key, texts)
        self._arguments()

    def _arguments(self) -> None:
        instructions, rows = self.tables["instructions"], self.tables["call_arguments"]
        keys = _keys_by_code(_DIRECTION_KEYS)
        maps: dict[str, dict[int, list[tuple[str, str]]]] = {key: {} for key in keys}
        formals = _mapped(rows.cells("formal"), self.writer.name)
        columns = ("instruction_id", "direction", "actual_location_id", "actual_set_id", "actual_register_id", "name")
        for formal, (owner, direction, location, own, register, name) in zip(
            formals, zip(*(rows.cells(column) for column in columns), strict=True), strict=True
        ):
            if own >= 0:
                actual = self._one("sets", own, name)
            elif location >= 0:
                actual = self._one("locations", location, name)
            else:
                actual = self._one("registers", register, name)
            maps[keys[direction]].setdefault(owner - instructions.first, []).append((formal, actual))
        for key, entries in maps.items():
            objects, lists = ["{}"] * len(instructions), ["[]"] * len(instructions)
            for row, pairs in entries.items():
                objects[row] = "{" + ",".join(f"{formal}:{actual}" for formal, actual in pairs) + "}"
                lists[row] = _list(f"[{formal},{actual}]" for formal, actual in pairs)
            instructions.put(key, objects)
            instructions.put(f"{layouts.PAIRS}\0{key}", lists)

    def _sync_infos(self) -> None:
        instructions, rows = self.tables["instructions"], self.tables["semaphores"]
        rows.put("from", self._named("instructions", rows.cells("from_instruction_id"), rows.cells("name")))
        values = _mapped(rows.cells("value"), _integer)
        rows.put("wait_value", values)
        rows.put("update_value", values)
        sides = _keys_by_code(_SIDE_KEYS)
        items: dict[str, dict[int, Texts]] = {key: {} for key in sides}
        for owner, side, text in zip(rows.cells("instruction_id"), rows.cells("side"), rows.rows(), strict=True):
            items[sides[side]].setdefault(owner - instructions.first, []).append(text)
        texts = [""] * len(instructions)
        for row, (layout, extra) in enumerate(
            zip(instructions.cells("sync_layout"), instructions.cells("sync_extra"), strict=True)
        ):
            if layout >= 0:
                slots = {key: _list(items[key].get(row, ())) for key in sides}
                texts[row] = self._object(layout, extra, slots)
        instructions.put("sync_info", texts)


_ROLE_KEYS = {key: code for code, key in enumerate(vocab.ROLE_MEMBERS)}
_RELATION_KEYS = {key: code for code, key in enumerate(vocab.RELATION_MEMBERS)}
_SLOT_KEYS = {"target": vocab.SLOT_TARGET, "on_true": vocab.SLOT_ON_TRUE, "on_false": vocab.SLOT_ON_FALSE}
_SIDE_KEYS = {"on_wait": vocab.SIDE_WAIT, "on_update": vocab.SIDE_UPDATE}
_DIRECTION_KEYS = {
    "func_args": vocab.DIRECTION_IN,
    "func_outs": vocab.DIRECTION_OUT,
    "arguments": vocab.DIRECTION_ARGUMENT,
}


def _keys_by_code(codes: dict[str, int]) -> list[str]:
    return sorted(codes, key=lambda key: codes[key])
