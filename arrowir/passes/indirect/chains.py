"""The chains that take the place of generic indirect accesses (rules G1, G4, G5).

All chains are laid out at once. A chain has a step for each operand of indices, four more, and the access itself, which
keeps its row: what points at it points at the last of the chain.
"""

from dataclasses import dataclass, field

import numpy as np

from arrowir import extras, layouts
from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.edit import Edit
from arrowir.ir import IR
from arrowir.names import fresh_names, picked, put, suffixed
from arrowir.passes.indirect.accesses import Accesses
from arrowir.passes.indirect.members import (
    ADDRESS,
    CONSTANT,
    LOCATION,
    OFFSET,
    READ,
    SET,
    SET_TEXT,
    STEP,
    changed_layout,
    in_chain,
    own_members,
    unsigned,
    whole_table,
    without,
)
from arrowir.runs import Runs, expand, join_text
from arrowir.store import Array, Strings, Table, children, starts

BIAS = 1 << 32
"""What addresses of 64 bits carry."""

SUFFIXES = ("_TSPAddGenericAddr", "_ReadVarAddr", "_TSPAddAddr", "_MemsetTileOffset", "_TSPAddOffset")
FINAL = ("_IndirectLoad", "_IndirectSave")
HELPERS = ("_DstTensor", "_ScratchSpaceTensor")
_OPCODES = tuple(
    vocab.OPCODES.code(name)
    for name in ("TensorScalarPtr", "ReadVarAddr", "TensorScalarPtr", "Memset", "TensorScalarPtr")
)
LOAD, SAVE, ADD = (vocab.OPCODES.code(n) for n in ("IndirectLoad", "IndirectSave", "IndirectSaveAccumulate"))
_INT64, _INT32 = vocab.DTYPES.code("int64"), vocab.DTYPES.code("int32")
_SIZE = 8
"""Bytes of an address."""
_GONE = ("indirect_dims", "op")
_OF_TABLES = ("addrs", "dynamic_ap_info", "tensor_indirect_arg_id", "num_tensor_indirect_indices", "access_shape")


@dataclass
class _Operands:
    """New operands, one array a column, an item each."""

    owner: list[Array] = field(default_factory=list[Array])
    """Instruction, counted as if new ones stood behind the old ones."""
    chain: list[Array] = field(default_factory=list[Array])
    rank: list[Array] = field(default_factory=list[Array])
    """Place among the operands of the chain."""
    cells: list[dict[str, Array]] = field(default_factory=list[dict[str, Array]])

    def add(self, owner: Array, chain: Array, rank: Array, **cells: Array | int) -> None:
        """Add one operand for each owner."""
        self.owner.append(owner)
        self.chain.append(chain)
        self.rank.append(rank)
        self.cells.append({name: np.broadcast_to(np.asarray(v), len(owner)) for name, v in cells.items()})

    def column(self, name: str, absent: int) -> Array:
        """Return a column of all."""
        return np.concatenate(
            [c.get(name, np.full(len(o), absent)) for c, o in zip(self.cells, self.owner, strict=True)]
        )


class Chains:
    """Makes the new tables of a batch.

    Parameters
    ----------
    accesses
        What is lowered; none of it has a problem.
    """

    def __init__(self, accesses: Accesses) -> None:
        self.accesses, self.ir = accesses, accesses.ir
        self.old = self.ir.count("instructions")
        count = len(accesses.row)
        # Indices of 32 bits come first: what they add up to is exact in float32.
        self.order = np.lexsort((np.arange(len(accesses.owner)), accesses.wide, accesses.owner))
        self.length = accesses.count + len(SUFFIXES) - 1
        """New instructions of each chain."""
        self.begin = starts(self.length)
        self.chain = np.repeat(np.arange(count), self.length)
        within = np.arange(len(self.chain)) - self.begin[self.chain]
        self.kind = np.maximum(within - accesses.count[self.chain] + 1, 0)
        self.within = within

    def build(self) -> tuple[IR, Edit]:
        """Make the batch, and return it with the edit that made it."""
        ir = self._changed()
        edit = Edit(ir, {**self._helpers(), "instructions": self._instructions()})
        row, old = self.accesses.row, self.old
        added = np.arange(len(self.chain))
        edit.keep("instructions", Runs.inserting(old, np.repeat(row, self.length), added))
        function = self.ir.array("instructions", "function_id")[row]
        sets, locations = ir.tables["sets"], ir.tables["locations"]
        order = np.argsort(function, kind="stable")
        place = np.searchsorted(sets["function_id"], function[order] + 1)
        both = np.repeat(order * 2, 2) + np.tile([0, 1], len(order))
        edit.keep("sets", Runs.inserting(len(sets), np.repeat(place, 2), both))
        place = np.searchsorted(locations["set_id"], place)
        edit.keep("locations", Runs.inserting(len(locations), np.repeat(place, 2), both))
        self._edges(edit)
        self._waits(edit)
        self._operands(edit)
        return edit.build(), edit

    # -- instructions ----

    def _names(self, kind: str, wanted: Strings, function: Array) -> Strings:
        """Make names free among those of a kind in the functions concerned (rule R6)."""
        table = self.ir.tables[kind]
        of = self.ir.array(kind, "function_id")
        concerned = np.zeros(self.ir.count("functions"), bool)
        concerned[function] = True
        taken = np.flatnonzero((of >= 0) & concerned[np.maximum(of, 0)])
        return fresh_names(picked(table.text(), taken), of[taken], wanted, function)

    def _all_names(self) -> tuple[Strings, Strings]:
        """Return the names of the new instructions, and those of the accesses."""
        a, names = self.accesses, self.ir.tables["instructions"].text()
        written = picked(names, a.row)
        parts = [suffixed(written, suffix) for suffix in (*SUFFIXES, *FINAL)]
        count = len(a.row)
        last = (len(SUFFIXES) + a.save) * count + np.arange(count)
        source = np.insert(self.kind * count + self.chain, self.begin[1:], last)
        chain = np.insert(self.chain, self.begin[1:], np.arange(count))
        function = self.ir.array("instructions", "function_id")[a.row][chain]
        found = self._names("instructions", picked(join_text(parts), source), function)
        ends = self.begin[1:] + np.arange(count)
        new = np.ones(len(source), bool)
        new[ends] = False
        return picked(found, np.flatnonzero(new)), picked(found, ends)

    def _original_names(self) -> Strings:
        """Return what the accesses were called before any pass gave them another name."""
        table, row = self.ir.tables["instructions"], self.accesses.row
        known = table.text("original_name")
        remembered = np.diff(known.offsets)[row] > 0
        return picked(join_text([known, table.text()]), np.where(remembered, row, row + len(table)))

    def _changed(self) -> IR:
        """Return the batch with the accesses as they end their chains, and their tables addressed as wholes."""
        ir, a = self.ir, self.accesses
        table = ir.tables["instructions"]
        self.new_names, names = self._all_names()
        self.originals = self._original_names()
        opcode, layout, extra = (table[name].copy() for name in ("opcode", "layout", "extra"))
        opcode[a.row] = np.where(a.save, np.where(a.adds, ADD, SAVE), LOAD)
        layout[a.row], extra[a.row] = self._last_members(layout[a.row], extra[a.row])
        rows = a.row
        changed = table.replace(
            name=put(table.text(), rows, names),
            original_name=put(table.text("original_name"), rows, self.originals),
            opcode=opcode,
            layout=layout,
            extra=extra,
        )
        return self._split_sync(ir.replace(instructions=changed, operands=self._old_operands()))

    def _last_members(self, layout: Array, extra: Array) -> tuple[Array, Array]:
        """Return layouts and texts of the accesses: own keys and edges go, but for those inside the chain."""
        a, pools = self.accesses, self.ir.pools
        case = np.column_stack((layout, extra, self._relations(), np.where(a.adds, a.indices, 0)))
        cases, place = np.unique(case, axis=0, return_inverse=True)
        made: list[tuple[int, int]] = []
        for old, text, relations, added in cases.tolist():
            gone = [key for k, key in enumerate(vocab.RELATION_MEMBERS) if k and relations >> k & 1]
            raw = {"entry_step_elements": "1", "num_indices": str(added), "op": '"add"'} if added else {}
            new = changed_layout(pools.layouts[old], ("dependencies", "indirection_ins"), (*_GONE, *gone), tuple(raw))
            values = {**dict(extras.members(pools.extras[text]) if text >= 0 else ()), **raw}
            members = [(key, values[key]) for where, key in layouts.entries(new) if where == layouts.RAW]
            made.append((pools.layouts.intern(new), pools.extras.intern(extras.join(members)) if members else -1))
        found = np.array(made, np.int32).reshape(-1, 2)[place.reshape(-1)]
        return found[:, 0], found[:, 1]

    def _relations(self) -> Array:
        """Return as bits which lists of edges each access has entries in."""
        edges = self.ir.tables["dependencies"]
        first, count = self._edges_of()
        found = np.zeros(len(self.accesses.row), np.int64)
        owner = np.repeat(np.arange(len(found)), count)
        np.bitwise_or.at(found, owner, 1 << edges["relation"][expand(first, count)].astype(np.int64))
        return found

    def _edges_of(self) -> tuple[Array, Array]:
        return children(self.ir.tables["dependencies"]["instruction_id"], self.accesses.row)

    def _instructions(self) -> Table:
        """Return the new instructions."""
        ir, a, old = self.ir, self.accesses, self.ir.tables["instructions"]
        row = a.row[self.chain]
        debug = old["debug"][row]
        narrow = np.zeros(len(self.chain), bool)
        step_of = np.flatnonzero(self.kind == STEP)
        sorted_index = self.order
        narrow[step_of] = ~a.wide[sorted_index]
        one = np.zeros(len(self.chain), bool)
        one[step_of] = a.step[sorted_index] == 1
        first = self.within == 0
        relations = np.where(first, self._relations()[self.chain], 1)
        waits = first & self._has_waits()[self.chain]
        # One number for what the keys of an instruction depend on; constants come later.
        case, parts = np.zeros(len(self.chain), np.int64), (8, 2, 2, 2, 2, 8, 2, 2)
        facts = (self.kind, narrow, one, first, a.adds[self.chain], relations, waits, debug >= 0)
        for base, fact in zip(parts, facts, strict=True):
            case = case * base + fact
        distinct, at = np.unique(case, return_index=True)
        texts, shapes = np.empty(len(distinct), np.int32), np.empty(len(distinct), np.int32)
        for k, one_of in enumerate(at.tolist()):
            members = own_members(*(int(fact[one_of]) for fact in facts[:5]))
            keys = [key for r, key in enumerate(vocab.RELATION_MEMBERS) if relations[one_of] >> r & 1]
            keys += ["sync_info"] * bool(waits[one_of]) + ["debug"] * bool(debug[one_of] >= 0)
            columns = [(layouts.COLUMN, each) for each in ("engine", "ins", "name", "opcode", "outs", *keys)]
            written = [(layouts.RAW, each) for each in members]
            shapes[k] = ir.pools.layouts.intern(layouts.layout(sorted(columns + written, key=lambda m: m[1])))
            texts[k] = ir.pools.extras.intern(extras.dump(members)) if members else -1
        place = np.searchsorted(distinct, case)
        extra, layout = texts[place], shapes[place]
        extra[self.kind == CONSTANT] = self._constant_texts()
        sync = np.full(len(self.chain), -1, np.int32)
        sync[waits] = ir.pools.layouts.intern(layouts.of(["on_wait"]))
        return Table.of(
            "instructions",
            len(self.chain),
            block_id=old["block_id"][row],
            name=self.new_names,
            opcode=np.array(_OPCODES)[self.kind],
            engine=vocab.ENGINE_UNASSIGNED,
            debug=debug,
            call_chain_id=old["call_chain_id"][row],
            original_name=picked(self.originals, self.chain),
            sync_layout=sync,
            layout=layout,
            extra=extra,
        )

    def _constant_texts(self) -> Array:
        """Return the texts of the Memsets."""
        distinct, place = np.unique(unsigned(self._constants()), return_inverse=True)
        intern = self.ir.pools.extras.intern
        texts = [intern(f'{{"constant":{number},"mode":"Const"}}') for number in distinct.tolist()]
        return np.array(texts, np.int32)[place.reshape(-1)]

    def _constants(self) -> Array:
        """Return the constant of each chain: the offset, less what addresses of 64 bits carry beside the index."""
        a = self.accesses
        carried = np.zeros(len(a.row), np.int64)
        np.add.at(carried, a.owner, np.where(a.wide, a.step, 0))
        whole = self._by_rows()
        scale = np.where(whole, 1, a.scale)
        with np.errstate(over="ignore"):
            return np.where(whole, 0, a.offset) - carried * scale * np.int64(BIAS)

    def _by_rows(self) -> Array:
        """Tell which tables are addressed by row number: then an index of -1, which is left out, stays -1."""
        a = self.accesses
        return (a.count == 1) & (a.offset == 0) & ~a.adds & (a.elements % a.scale == 0)

    # -- edges, waits ----

    def _edges(self, edit: Edit) -> None:
        """The edges of an access go to the first of its chain; each of the chain waits for the one before it (G4)."""
        a, old, dependencies = self.accesses, self.old, self.ir.tables["dependencies"]
        new = old + np.arange(len(self.chain))
        last = a.row
        parts: list[tuple[Array, Array, Array, bool]] = []
        later = np.flatnonzero(self.within > 0)
        flows = np.isin(self.kind[later], (STEP, ADDRESS, OFFSET))
        parts.append((self.chain[later], new[later], new[later] - 1, True))
        kinds = [np.where(flows, vocab.EDGE_FLOW, vocab.EDGE_ORDERED)]
        # What is read besides what the one before it wrote.
        for kind, back in ((ADDRESS, 2), (OFFSET, 2)):
            mine = np.flatnonzero(self.kind == kind)
            parts.append((self.chain[mine], new[mine], new[mine] - back, True))
            kinds.append(np.full(len(mine), vocab.EDGE_FLOW))
        adds = np.flatnonzero(a.adds)
        of_offset = old + self.begin[1:] - 1
        parts.append((adds, of_offset[adds], of_offset[adds] - 3, True))
        kinds.append(np.full(len(adds), vocab.EDGE_FLOW))
        parts.append((np.arange(len(last)), last, of_offset, True))
        kinds.append(np.full(len(last), vocab.EDGE_FLOW))
        chain, owner, on = (np.concatenate([part[k] for part in parts]) for k in range(3))
        kind = np.concatenate(kinds)
        # The access comes last in its chain; among the edges of one instruction the farthest comes first.
        order = np.lexsort((on, np.where(owner < old, len(self.chain) + old, owner), chain))
        chain, owner, on, kind = chain[order], owner[order], on[order], kind[order]
        pool = self.ir.pools.extras
        text = np.array([pool.intern(extras.dump([name])) for name in vocab.EDGE_KINDS.values], np.int32)
        edit.added["dependencies"] = Table.of(
            "dependencies", len(owner), instruction_id=owner, relation=vocab.RELATION_PLAIN, on_instruction_id=on,
            edge=kind, extra=text[kind],
        )  # fmt: skip
        first, count = self._edges_of()
        edit.keep("dependencies", Runs.inserting(len(dependencies), (first + count)[chain]))
        added = starts(np.bincount(chain, minlength=len(last)))[:-1]
        moved = expand(first, count) + np.repeat(added, count)
        edit.settle("dependencies", "instruction_id", moved, np.repeat(self._first_rows(), count))

    def _first_rows(self) -> Array:
        """Return the row of the result of the first of each chain."""
        return self.accesses.row + self.begin[:-1]

    def _has_waits(self) -> Array:
        return self._waits_of()[2] > 0

    def _waits_of(self) -> tuple[Array, Array, Array]:
        """Return where the waits and updates of each access begin, how many there are, and how many are waits."""
        semaphores = self.ir.tables["semaphores"]
        first, count = children(semaphores["instruction_id"], self.accesses.row)
        owner = np.repeat(np.arange(len(first)), count)
        side = semaphores["side"][expand(first, count)]
        return first, count, np.bincount(owner[side == vocab.SIDE_WAIT], minlength=len(first))

    def _waits(self, edit: Edit) -> None:
        """What an access waits for, the first of its chain waits for; what it updates, it still does."""
        first, _, waits = self._waits_of()
        edit.keep("semaphores", Runs.whole(self.ir.count("semaphores")))
        edit.settle("semaphores", "instruction_id", expand(first, waits), np.repeat(self._first_rows(), waits))

    def _split_sync(self, ir: IR) -> IR:
        """Take waits out of the `sync_info` of the accesses; one that becomes empty goes."""
        rows = self.accesses.row[self._has_waits()]
        if not len(rows):
            return ir
        table, pool = ir.tables["instructions"], ir.pools.layouts
        sync, layout = table["sync_layout"].copy(), table["layout"].copy()
        sync[rows] = layouts.remove_key(pool, sync[rows], "on_wait")
        empty = rows[sync[rows] == pool.find("[]")]
        sync[empty] = -1
        layout[empty] = layouts.remove_key(pool, layout[empty], "sync_info")
        return ir.replace(instructions=table.replace(sync_layout=sync, layout=layout))

    # -- storage ----

    def _helpers(self) -> dict[str, Table]:
        """Return the sets and locations that chains compute in: for each the address, and what it is added to."""
        ir, a, pools = self.ir, self.accesses, self.ir.pools
        count = len(a.row)
        function = np.repeat(ir.array("instructions", "function_id")[a.row], 2)
        written = picked(ir.tables["instructions"].text(), a.row)
        parts = join_text([suffixed(written, helper) for helper in HELPERS])
        each = np.repeat(np.arange(count), 2) + np.tile([0, count], count)
        names = picked(parts, each)
        order = np.argsort(function, kind="stable")
        back = np.argsort(order)

        def free(kind: str, wanted: Strings) -> Strings:
            return picked(self._names(kind, picked(wanted, order), function[order]), back)

        width = np.tile([1, 2], count)
        indices = np.repeat(a.indices, 2)
        shape = np.array(
            [pools.shapes.intern(f"[{p},{w}]") for p, w in zip(indices.tolist(), width.tolist(), strict=True)]
        )
        allocations = sum(
            np.bincount(ir.tables[t]["function_id"], minlength=ir.count("functions")) for t in ("sets", "registers")
        )
        number = np.empty(2 * count, np.int64)
        number[order] = np.arange(2 * count) - np.searchsorted(function[order], function[order])
        sets = Table.of(
            "sets", 2 * count, function_id=function, ordinal=np.asarray(allocations)[function] + number,
            name=free("sets", suffixed(names, "_set")), kind=vocab.KIND_INTERNAL,
            tensor_class=vocab.TENSOR_CLASSES.code("NeuronSBTensor"), dtype=_INT64, tensor_shape=shape,
            tensor_id_size=1, layout=pools.layouts.intern(SET), extra=pools.extras.intern(SET_TEXT),
        )  # fmt: skip
        first = ir.count("sets") + np.arange(2 * count)
        locations = Table.of(
            "locations", 2 * count, set_id=first, name=free("locations", names), type=vocab.MEM_SB, addr=0,
            partitions=indices, bytes=width * _SIZE, bank=0, base=0, allocated=0, tensor_id=0,
            layout=pools.layouts.intern(LOCATION), extra=pools.extras.intern('{"Skind":"memory_location"}'),
        )  # fmt: skip
        return {"sets": sets, "locations": locations}

    # -- operands ----

    def _old_operands(self) -> Table:
        """Return the operands with tables addressed as wholes, and indices as inputs."""
        ir, a, table = self.ir, self.accesses, self.ir.tables["operands"]
        names = ("role", "kind", "location_id", "set_id", "offset", "pattern_id", "layout", "extra")
        new = {name: table[name].copy() for name in names}
        new["role"][a.index] = vocab.ROLE_IN
        new["kind"][a.table] = vocab.OPERAND_PHYSICAL_AP
        new["location_id"][a.table], new["offset"][a.table] = a.location, 0
        named = table["set_id"][a.table] >= 0
        new["set_id"][a.table] = np.where(named, take(ir.tables["locations"]["set_id"], a.location), -1)
        self.table_pattern = self._table_patterns()
        new["pattern_id"][a.table] = self.table_pattern
        new["extra"][a.table] = ir.pools.extras.map_ids(table["extra"][a.table], lambda i: without(ir, i, _OF_TABLES))
        new["layout"][a.table] = ir.pools.layouts.map(
            table["layout"][a.table], lambda text: changed_layout(text, ("ap", "kind", "memref", "offset"), _OF_TABLES)
        )
        return table.replace(**new)

    def _table_patterns(self) -> Array:
        """Return patterns of all elements of the tables, of which the last step is what an index counts."""
        a, pool = self.accesses, self.ir.pools.patterns
        by_rows = self._by_rows()
        cases, place = np.unique(np.column_stack((a.elements, a.scale, by_rows)), axis=0, return_inverse=True)
        found = [pool.intern(whole_table(elements, scale, bool(rows))) for elements, scale, rows in cases.tolist()]
        return np.array(found, np.int32)[place.reshape(-1)]

    def _operands(self, edit: Edit) -> None:
        """Lay out the operands of all chains: those of the accesses, moved to where they are used, and new ones."""
        ir, a, old = self.ir, self.accesses, self.old
        made = self._new_operands()
        count = ir.count("operands")
        owner, chain, rank = (np.concatenate(parts) for parts in (made.owner, made.chain, made.rank))
        edit.added["operands"] = Table.of(
            "operands", len(owner), instruction_id=owner,
            **{name: made.column(name, absent) for name, absent in _CELLS.items()},
        )  # fmt: skip
        # Old ones: indices, table, data.
        step = old + np.flatnonzero(self.kind == STEP)
        every = np.arange(len(a.row))
        place = a.count + len(SUFFIXES) - 1
        index_row = a.index[self.order]
        within = self.within[self.kind == STEP]
        old_rows = np.concatenate((index_row, a.table, a.data))
        old_chain = np.concatenate((a.owner[self.order], every, every))
        old_rank = np.concatenate(
            (in_chain(within, 0), in_chain(place, np.where(a.save, 4, 0)), in_chain(place, np.where(a.save, 0, 4)))
        )
        source = np.concatenate((old_rows, count + np.arange(len(owner))))
        chain, rank = np.concatenate((old_chain, chain)), np.concatenate((old_rank, rank))
        order = np.lexsort((rank, chain))
        source, chain = source[order], chain[order]
        # Between the chains' operands stand runs of all others.
        sizes = np.bincount(chain, minlength=len(a.row))
        gap = np.append(0, a.first + a.operands)
        until = np.append(a.first, count)
        at = np.append(0, np.cumsum(sizes)) + np.arange(len(a.row) + 1)
        start, length = np.empty(len(source) + len(gap), np.int64), np.ones(len(source) + len(gap), np.int64)
        mine = np.ones(len(start), bool)
        mine[at] = False
        start[at], length[at] = gap, until - gap
        start[mine] = source
        runs = Runs(start, length, np.zeros(len(start), np.int64))
        edit.keep("operands", runs)
        new_row = np.empty(len(source), np.int64)
        new_row[order] = runs.begins[:-1][mine]
        moved = new_row[: len(index_row)]
        places = edit.places("instructions")
        assert places is not None
        edit.settle("operands", "instruction_id", moved, places[0][step])

    def _new_operands(self) -> _Operands:
        """Return the new operands of all chains."""
        ir, a, old = self.ir, self.accesses, self.old
        pools = ir.pools
        made = _Operands()
        first = ir.count("locations"), ir.count("sets")
        access = pools.layouts.intern(layouts.of(["ap", "dtype", "kind", "memref", "memsetref", "offset"]))
        immediate = pools.layouts.intern(
            layouts.layout([(layouts.COLUMN, "dtype"), (layouts.COLUMN, "kind"), (layouts.RAW, "value")])
        )
        cases, place = np.unique(a.indices, return_inverse=True)
        narrow_ap, wide_ap = (
            np.array([pools.patterns.intern(f"[[{pitch},{p}],[1,1]]") for p in cases.tolist()], np.int32)[place]
            for pitch in (1, 2)
        )

        def helper(number: int, offset: int, chain: Array) -> dict[str, Array | int]:
            return {
                "kind": vocab.OPERAND_PHYSICAL_AP, "dtype": _INT64, "layout": access, "offset": offset,
                "location_id": first[0] + 2 * chain + number, "set_id": first[1] + 2 * chain + number,
                "pattern_id": (wide_ap if number else narrow_ap)[chain],
            }  # fmt: skip

        def value(numbers: Array, dtype: Array | int = _INT64) -> dict[str, Array | int]:
            distinct, where = np.unique(numbers, return_inverse=True)
            texts = np.array([pools.extras.intern(f'{{"value":{n}}}') for n in distinct.tolist()], np.int32)
            return {
                "kind": vocab.OPERAND_IMM_VALUE,
                "dtype": dtype,
                "layout": immediate,
                "extra": texts[where.reshape(-1)],
            }

        every = np.arange(len(a.row))
        ins, outs = {"role": vocab.ROLE_IN}, {"role": vocab.ROLE_OUT}
        row, chain, within = (
            old + np.flatnonzero(self.kind == STEP),
            a.owner[self.order],
            self.within[self.kind == STEP],
        )
        dtype = np.where(a.wide[self.order], _INT64, _INT32)
        made.add(row, chain, in_chain(within, 1), **ins, **value(a.step[self.order], dtype))
        start = within == 0
        none = np.zeros(int(start.sum()), np.int64)
        made.add(row[start], chain[start], in_chain(within[start], 2), **ins, **value(none, dtype[start]))
        made.add(row[~start], chain[~start], in_chain(within[~start], 2), **ins, **helper(1, 0, chain[~start]))
        made.add(row, chain, in_chain(within, 3), **outs, **helper(1, 0, chain))

        def of(kind: int) -> tuple[Array, Array]:
            at = a.count + kind - 1
            return old + self.begin[:-1] + at, at

        row, at = of(READ)
        table = {
            "kind": vocab.OPERAND_PHYSICAL_AP, "dtype": ir.tables["operands"]["dtype"][a.table], "layout": access,
            "offset": 0, "location_id": a.location, "set_id": take(ir.tables["locations"]["set_id"], a.location),
            "pattern_id": self.table_pattern,
        }  # fmt: skip
        made.add(row, every, in_chain(at, 0), **ins, **table)
        made.add(row, every, in_chain(at, 3), **outs, **helper(0, 0, every))
        row, at = of(ADDRESS)
        made.add(row, every, in_chain(at, 0), **ins, **helper(1, 0, every))
        made.add(row, every, in_chain(at, 1), **ins, **value(np.where(self._by_rows(), 1, a.scale)))
        made.add(row, every, in_chain(at, 2), **ins, **helper(0, 0, every))
        made.add(row, every, in_chain(at, 3), **outs, **helper(1, 0, every))
        row, at = of(CONSTANT)
        made.add(row, every, in_chain(at, 3), **outs, **helper(1, 1, every))
        row, at = of(OFFSET)
        made.add(row, every, in_chain(at, 0), **ins, **helper(1, 0, every))
        made.add(row, every, in_chain(at, 1), **ins, **helper(1, 1, every))
        plain = every[~a.adds]
        made.add(row[~a.adds], plain, in_chain(at[~a.adds], 2), **ins, **value(np.zeros(len(plain), np.int64)))
        adds = every[a.adds]
        made.add(row[a.adds], adds, in_chain(at[a.adds], 2), **ins, **helper(0, 0, adds))
        made.add(row, every, in_chain(at, 3), **outs, **helper(1, 0, every))
        at = a.count + len(SUFFIXES) - 1
        made.add(a.row, every, in_chain(at, 3), role=vocab.ROLE_INDIRECTION, **helper(1, 0, every))
        return made


_CELLS = {
    "role": -1, "kind": -1, "dtype": -1, "location_id": -1, "set_id": -1, "offset": -(2**63), "pattern_id": -1,
    "layout": -1, "extra": -1,
}  # fmt: skip
