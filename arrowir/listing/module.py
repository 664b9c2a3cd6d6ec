"""The listing of one module: its rows, walked in program order."""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import extras, schema, vocabulary
from arrowir.attributes import reference_names
from arrowir.listing import values
from arrowir.listing.values import name as spelt
from arrowir.store import Strings

if TYPE_CHECKING:
    from arrowir.ir import IR


class Rows:
    """The rows of one module in one table, as Python lists; row numbers are those of the batch."""

    def __init__(self, ir: "IR", table: str, module_id: int) -> None:
        self.ir, self.table = ir, table
        if table == "modules":
            self.first, self.end = module_id, module_id + 1
        else:
            modules = ir.array(table, "module_id")
            self.first = int(np.searchsorted(modules, module_id))
            self.end = int(np.searchsorted(modules, module_id, side="right"))
        self._columns: dict[str, list[Any]] = {}

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, self.end))

    def get(self, row: int, column: str) -> Any:
        """Return a cell: codes and pooled text as strings, absent cells as None."""
        if column not in self._columns:
            self._columns[column] = self._read(column)
        return self._columns[column][row - self.first]

    def id(self, row: int, column: str) -> int:
        """Return a foreign key; -1 where it is absent."""
        found = self.get(row, column)
        return -1 if found is None else found

    def _read(self, column: str) -> list[Any]:
        found = self.ir.column(self.table, column)
        if found is None:
            return [None] * (self.end - self.first)
        if isinstance(found, Strings):
            start, stop = found.offsets[self.first], found.offsets[self.end]
            return Strings(found.offsets[self.first : self.end + 1] - start, found.data[start:stop]).tolist()
        declared = schema.BY_NAME[self.table].column(column)
        cells = found[self.first : self.end].tolist()
        if declared.kind in ("code", "pooled"):
            pool = self.ir.pools.of(declared)
            return [pool[cell] if cell >= 0 else None for cell in cells]
        absent = schema.NULLS[declared.kind]
        return [None if cell == absent else cell for cell in cells]

    @cached_property
    def references(self) -> dict[int, list[str]]:
        """Names that fill the placeholders, by row."""
        return reference_names(self.ir, self.table, np.arange(self.first, self.end))

    def text(self, row: int, column: str = "extra") -> str:
        """Return JSON text with names in place of the placeholders; an empty object where there is none."""
        found = self.get(row, column)
        if found is None:
            return "{}"
        return extras.fill(found, self.references[row]) if extras.PLACEHOLDER in found else found

    def spans(self, column: str) -> dict[int, list[int]]:
        """Return the rows by the value of a foreign key, in order."""
        found: dict[int, list[int]] = {}
        for row in self:
            found.setdefault(self.id(row, column), []).append(row)
        return found


class Listing:
    """Writes the lines of one module."""

    def __init__(self, ir: "IR", module_id: int, *, provenance: bool = False) -> None:
        self.ir, self.module_id, self.provenance = ir, module_id, provenance
        self.rows = {table: Rows(ir, table, module_id) for table in schema.STORED}
        self.children = {
            table: self.rows[table].spans("instruction_id")
            for table in ("operands", "dependencies", "branches", "loops", "calls", "call_arguments", "semaphores")
        }
        self.children["blocks"] = self.rows["blocks"].spans("instruction_id")
        self.instructions = self.rows["instructions"].spans("block_id")
        self._labels: dict[str, dict[int, str]] = {}
        self._chains: dict[int, str] = {}

    # -- names --------------------------------------------------------------------------------------------------------

    def label(self, table: str, row: int) -> str:
        """Return the name of a row; where it repeats in its function, with a number that tells the rows apart.

        The number of an instruction is its place in program order, that of other things counts those of the name.
        """
        if table not in self._labels:
            self._labels[table] = self._label_all(table)
        return self._labels[table][row]

    def _label_all(self, table: str) -> dict[int, str]:
        rows = self.rows[table]
        keys = {row: (self._scope(table, row), rows.get(row, "name")) for row in rows}
        total = Counter(keys.values())
        seen: Counter[tuple[object, str]] = Counter()
        labels: dict[int, str] = {}
        for row, key in keys.items():
            seen[key] += 1
            number = rows.get(row, "position") if table == "instructions" else seen[key]
            labels[row] = spelt(key[1]) if total[key] == 1 else f"{spelt(key[1])}#{number}"
        return labels

    def _scope(self, table: str, row: int) -> tuple[int, int]:
        """Return the function or queue that a row's name belongs to."""
        if table == "functions":
            return 0, 0
        if table == "instructions":
            table, row = "blocks", self.rows["instructions"].get(row, "block_id")
        function = self.rows[table].id(row, "function_id")
        return function, self.rows["blocks"].id(row, "queue_id") if table == "blocks" and function < 0 else -1

    def target(self, table: str, row: int, written: str | None) -> str:
        """Return the label of what a reference points at, or with a question mark what it could not be resolved to."""
        if row >= 0:
            return self.label(table, row)
        return f"?{spelt(written)}" if written is not None else "?"

    # -- module, functions, storage -----------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """Yield the lines of the module."""
        modules, functions, queues = (self.rows[t] for t in ("modules", "functions", "queues"))
        m = self.module_id
        facts = [f"arch {spelt(a)}" for a in [modules.get(m, "arch")] if a is not None]
        facts += [f"version {v}" for v in [modules.get(m, "version")] if v is not None]
        yield joined(f"module {spelt(modules.get(m, 'name'))}", ", ".join(facts), values.members(modules.text(m)))
        own = [b for b in self.rows["blocks"] if self.rows["blocks"].get(b, "instruction_id") is None]
        for f in functions:
            kind = "kernel" if functions.get(f, "is_kernel") else "function"
            attributes = functions.get(f, "attributes")
            shown = "" if attributes in (None, "[]", "{}") else values.value(attributes)
            yield ""
            yield joined(f"{kind} {spelt(functions.get(f, 'name'))}", shown, values.members(functions.text(f)))
            yield from self._storage(f)
            yield from self._code([b for b in own if self.rows["blocks"].get(b, "function_id") == f])
        for q in queues:
            yield ""
            yield joined(f"queue {spelt(queues.get(q, 'name'))}", values.members(queues.text(q)))
            yield from self._code([b for b in own if self.rows["blocks"].get(b, "queue_id") == q])

    def _storage(self, function: int) -> Iterator[str]:
        sets, registers = self.rows["sets"], self.rows["registers"]
        for s in self._sets.get(function, ()):
            locations = self._locations.get(s, [])
            facts = self._set_facts(s, locations)
            if len(locations) == 1:
                line = self._location(locations[0], sets.get(s, "kind"))
                yield "  " + joined(line, facts, self._marks(locations[0]), self._origin("locations", locations[0]))
                continue
            kind = sets.get(s, "kind")
            yield "  " + joined(f"set {self.label('sets', s)}#{spelt(kind or '?')}", facts, self._origin("sets", s))
            for location in locations:
                line = self._location(location, kind)
                yield "    " + joined(line, self._marks(location), self._origin("locations", location))
        for r in self._registers.get(function, ()):
            storage = registers.get(r, "storage") or "storage"
            name = f"{spelt(storage)} {self.label('registers', r)}"
            yield "  " + joined(name, values.members(registers.text(r)), self._origin("registers", r))

    @cached_property
    def _sets(self) -> dict[int, list[int]]:
        return self.rows["sets"].spans("function_id")

    @cached_property
    def _locations(self) -> dict[int, list[int]]:
        return self.rows["locations"].spans("set_id")

    @cached_property
    def _registers(self) -> dict[int, list[int]]:
        return self.rows["registers"].spans("function_id")

    @cached_property
    def _aliases(self) -> dict[int, list[int]]:
        return self.rows["aliases"].spans("location_id")

    def _set_facts(self, s: int, locations: list[int]) -> str:
        """Say what a set is: dtype and shape, and whatever is not usual for the memory that it is in."""
        sets, places = self.rows["sets"], self.rows["locations"]
        shape = sets.get(s, "tensor_shape")
        parts = [f"{spelt(sets.get(s, 'dtype') or '?')}{shape or ''}"]
        if sets.get(s, "addr_space") is not None:
            parts.append(spelt(sets.get(s, "addr_space")))
        memory = places.get(locations[0], "type") if locations else None
        if sets.get(s, "tensor_class") not in (None, _USUAL_CLASSES.get(memory or "", "Tensor")):
            parts.append(spelt(sets.get(s, "tensor_class")))
        if sets.get(s, "origin") not in (None, "Internal"):
            parts.append(f"origin={spelt(sets.get(s, 'origin'))}")
        if len(locations) == 1 and sets.get(s, "name") != f"{places.get(locations[0], 'name')}_set":
            parts.append(f"in {self.label('sets', s)}")
        return joined(" ".join(parts), self._rest("sets", s))

    def _rest(self, table: str, row: int) -> str:
        """Show the members of a set or location that no column models, and that say something."""
        text = self.rows[table].text(row)
        hidden = [key for key, usual in _USUAL_MEMBERS[table].items() if f'"{key}":"{usual}"' in text]
        return values.members(text, hidden=(*hidden, "debug"), falsy=False)

    def _location(self, row: int, kind: str | None) -> str:
        places = self.rows["locations"]
        memory = places.get(row, "type") or "?"
        address = places.get(row, "addr") or 0
        if memory in ("SB", "PSUM"):
            address = f"{places.get(row, 'base') or 0},{address}"
        partitions, size = places.get(row, "partitions"), places.get(row, "bytes")
        dims = f"({'?' if partitions is None else partitions}x{'?' if size is None else size})"
        return f"{self.label('locations', row)}@{spelt(memory)}<{address}>{dims}#{spelt(kind or '?')}"

    def _marks(self, row: int) -> str:
        places, aliases = self.rows["locations"], self.rows["aliases"]
        parts: list[str] = []
        if places.get(row, "type") == "PSUM":
            parts.append(f"bank={places.get(row, 'bank') or 0}")
        parts += [mark for mark in ("allocated", "pinned") if places.get(row, mark)]
        if places.get(row, "runtime_reserved"):
            parts.append("reserved")
        if places.get(row, "tensor_id"):
            parts.append(f"tensor_id={places.get(row, 'tensor_id')}")
        for a in self._aliases.get(row, ()):
            other = self.target("locations", aliases.id(a, "target_location_id"), aliases.get(a, "name"))
            kind = aliases.get(a, "kind")
            parts.append(f"alias={other}({_ALIAS_KINDS.get(kind, kind)})")
        return joined(" ".join(parts), self._rest("locations", row))

    # -- code ---------------------------------------------------------------------------------------------------------

    def _code(self, blocks: list[int]) -> Iterator[str]:
        """Yield blocks and what is nested in them; with a stack of its own, for nests may be deep."""
        names = self.rows["blocks"]
        todo = [("block", row, 1) for row in reversed(blocks)]
        while todo:
            what, row, depth = todo.pop()
            if what == "block":
                line = f"block {self.label('blocks', row)}"
                yield "  " * depth + joined(line, values.members(names.text(row)), self._origin("blocks", row))
                todo += [("instruction", i, depth + 1) for i in reversed(self.instructions.get(row, []))]
            else:
                yield "  " * depth + self._instruction(row)
                todo += [("block", b, depth + 1) for b in reversed(self.children["blocks"].get(row, []))]

    def _instruction(self, row: int) -> str:
        rows = self.rows["instructions"]
        opcode, engine = rows.get(row, "opcode"), rows.get(row, "engine")
        written = rows.get(row, "name")
        head = [f"{rows.get(row, 'position')}", *([spelt(written)] if written else []), spelt(opcode or "?")]
        if engine is not None:
            head.append(spelt(engine))
        mask = rows.get(row, "optin_mask")
        return joined(
            " ".join(head),
            self._loop(row),
            self._call(row),
            self._operands(row),
            values.members(rows.text(row), hidden=_HIDDEN, defaults=values.defaults(opcode or "")),
            "" if mask in (None, 15) else f"optin={mask}",
            self._branches(row),
            self._edges(row),
            self._sync(row),
            self._origin("instructions", row),
        )

    def _loop(self, row: int) -> str:
        loops = self.rows["loops"]
        texts: list[str] = []
        for loop in self.children["loops"].get(row, ()):
            raw = dict(extras.members(loops.text(loop)))
            lb, ub, stride = (
                values.value(raw.pop(key)) if key in raw else str(loops.get(loop, key) or 0)
                for key in ("lb", "ub", "stride")
            )
            step = "" if stride == "1" else f", {stride}"
            texts.append(f"{spelt(loops.get(loop, 'axis') or '')} in range({lb}, {ub}{step})")
            texts += [f"{spelt(key)}={values.value(text)}" for key, text in raw.items()]
        return " ".join(texts)

    def _call(self, row: int) -> str:
        calls, arguments = self.rows["calls"], self.rows["call_arguments"]
        texts = []
        for call in self.children["calls"].get(row, ()):
            callee = self.target("functions", calls.id(call, "callee_id"), calls.get(call, "name"))
            bound = [
                f"{'out ' if arguments.get(a, 'direction') == 'out' else ''}"
                f"{spelt(arguments.get(a, 'formal') or '')}={self._actual(a)}"
                for a in self.children["call_arguments"].get(row, ())
            ]
            texts.append(f"calls {callee}({', '.join(bound)})")
        return " ".join(texts)

    def _actual(self, row: int) -> str:
        arguments = self.rows["call_arguments"]
        if (s := arguments.id(row, "actual_set_id")) >= 0:
            return self.label("sets", s)
        if (r := arguments.id(row, "actual_register_id")) >= 0:
            return f"%{self.label('registers', r)}"
        return self.target("locations", arguments.id(row, "actual_location_id"), arguments.get(row, "name"))

    def _branches(self, row: int) -> str:
        branches = self.rows["branches"]
        return " ".join(
            f"{branches.get(b, 'slot')}={self.target('blocks', branches.id(b, 'block_id'), branches.get(b, 'name'))}"
            for b in self.children["branches"].get(row, ())
        )

    def _edges(self, row: int) -> str:
        edges = self.rows["dependencies"]
        by_relation: dict[str, list[str]] = {}
        for e in self.children["dependencies"].get(row, ()):
            other = self.target("instructions", edges.id(e, "on_instruction_id"), edges.get(e, "name"))
            rest = edges.get(e, "extra")
            items = [spelt(edges.get(e, "edge") or "?")]
            if rest is not None and rest.startswith("["):
                items += [values.value(item) for item in values.items(edges.text(e))[1:]]
            relation = edges.get(e, "relation") or "plain"
            by_relation.setdefault(relation, []).append(f"{other} ({', '.join(items)})")
        words = {"plain": "after", "loop_carried": "carried after", "unroll": "unroll after"}
        return "  ".join(f"{words.get(r, r)} {', '.join(listed)}" for r, listed in by_relation.items())

    def _sync(self, row: int) -> str:
        semaphores = self.rows["semaphores"]
        texts: list[str] = []
        for s in self.children["semaphores"].get(row, ()):
            number, amount = semaphores.get(s, "semaphore"), semaphores.get(s, "value")
            sign = ">=" if semaphores.get(s, "side") == "wait" else "+="
            text = f"{semaphores.get(s, 'side')} s{number}{sign}{amount}"
            producer, written = semaphores.id(s, "from_instruction_id"), semaphores.get(s, "name")
            if producer >= 0:
                text += f" from {self.label('instructions', producer)}"
            elif written is not None:
                text += f" from {spelt(written)}"  # no question mark: it may name a DMA block
            texts.append(joined(text, values.members(semaphores.text(s)), gap=" "))
        rest = self.rows["instructions"].get(row, "sync_extra")
        return joined(", ".join(texts), f"sync {values.members(rest)}" if rest else "")

    def _origin(self, table: str, row: int) -> str:
        """Say where an inlined row comes from: kernel, call-sites from outermost to innermost, old name."""
        link = self.rows[table].id(row, "call_chain_id") if self.provenance else -1
        if link < 0:
            return ""
        if link not in self._chains:
            chains, sites, kernel = self.rows["call_chains"], list[str](), self.rows["call_chains"].get(link, "kernel")
            above = link
            while above >= 0:
                sites.append(spelt(chains.get(above, "name")))
                above = chains.id(above, "parent_id")
            self._chains[link] = f"; {spelt(kernel or '?')} @ {' > '.join(reversed(sites))}"
        was = self.rows[table].get(row, "original_name")
        return self._chains[link] + (f", was {spelt(was)}" if was else "")

    # -- operands -----------------------------------------------------------------------------------------------------

    def _operands(self, row: int) -> str:
        operands = self.rows["operands"]
        by_role: dict[str, list[str]] = {"in": [], "indirection": [], "out": []}
        for o in self.children["operands"].get(row, ()):
            by_role.setdefault(operands.get(o, "role") or "in", []).append(self._operand(o))
        text = ", ".join(by_role["in"])
        if by_role["indirection"]:
            text = joined(text, f"by {', '.join(by_role['indirection'])}", gap=" ")
        if by_role["out"]:
            text = joined(text, f"-> {', '.join(by_role['out'])}", gap=" ")
        return text

    def _operand(self, row: int) -> str:
        operands = self.rows["operands"]
        raw = dict(extras.members(operands.text(row)))
        kind, dtype = operands.get(row, "kind"), operands.get(row, "dtype")
        register = self._operand_register(row)
        match kind:
            case "imm_value" if "value" in raw:
                text = values.value(raw.pop("value"))
            case "imm_array" if "value_array" in raw:
                text = values.value(raw.pop("value_array"))
            case "symbolic_imm_value" if "value_list" in raw:
                text = values.value(raw.pop("value_list")) + (
                    f"[{values.value(raw.pop('expr'))}]" if "expr" in raw else ""
                )
            case "register_access":
                text, register = register or "%?", ""
            case _:
                text = self._place(row)
        pattern = operands.get(row, "pattern_id")
        if pattern is not None:
            text += self.ir.pools.patterns[pattern]
        if "addrs" in raw:
            text += f"@{values.value(raw.pop('addrs'))}"
        if register:
            text += f"@{register}"
        offset = operands.get(row, "offset")
        if offset is not None:
            text += f"{offset:+d}"
        if dtype is not None:
            text += f":{spelt(dtype)}"
        if kind not in _USUAL_KINDS:
            text += f" kind={spelt(kind or '?')}"
        rest = [f"{spelt(key)}={values.value(v)}" for key, v in raw.items() if key not in _HIDDEN_OF_OPERANDS]
        return f"{text}{{{' '.join(rest)}}}" if rest else text

    def _operand_register(self, row: int) -> str:
        operands = self.rows["operands"]
        found, written = operands.id(row, "register_id"), operands.get(row, "register_name")
        return f"%{self.target('registers', found, written)}" if found >= 0 or written is not None else ""

    def _place(self, row: int) -> str:
        operands = self.rows["operands"]
        location, written = operands.id(row, "location_id"), operands.get(row, "name")
        if location >= 0 or written is not None:
            return self.target("locations", location, written)
        found, written = operands.id(row, "set_id"), operands.get(row, "set_name")
        return self.target("sets", found, written) if found >= 0 or written is not None else ""


_ALIAS_KINDS = {1: "may", 3: "must"}
_USUAL_CLASSES = {"SB": "NeuronSBTensor", "PSUM": "NeuronPSUMTensor"}
_USUAL_MEMBERS = {"sets": {"Skind": "memory_location_set"}, "locations": {"Skind": "memory_location"}}
_HIDDEN = frozenset(("origin", "loopnest"))
_HIDDEN_OF_OPERANDS = frozenset(("access_shape",))
# `symbolic_pwap` is the rare spelling of `symbolic_ap`.
_USUAL_KINDS = frozenset(vocabulary.OPERAND_KINDS.values) - {"symbolic_pwap"}


def joined(*parts: str, gap: str = "  ") -> str:
    """Join what is not empty."""
    return gap.join(part for part in parts if part)
