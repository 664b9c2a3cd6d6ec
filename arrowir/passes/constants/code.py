"""The instructions of some functions, and which locations they read and write (rules C1, C3)."""

from functools import cached_property

import numpy as np

from arrowir import extras, schema
from arrowir import vocabulary as vocab
from arrowir.ir import IR
from arrowir.passes.unrolling.loops import STRUCTURED, of_each
from arrowir.runs import Runs, expand
from arrowir.store import Array, children, starts
from arrowir_kernels import count_uses

_CALLS = (vocab.OP_NKI_KERNEL, vocab.OP_BIR_KERNEL, vocab.OPCODES.code("NKIKLIRKernel"), vocab.OP_CALL)
"""Opcodes that read and write what they name."""
_ADDRESSING = tuple(vocab.OPCODES.code(name) for name in ("ReadVarAddr", "CalcVarAddr", "CalcVarAddrSymbolic"))
"""Opcodes that take the address of what they name: whatever has the address may read and write there."""
_SHARED = (
    *("written_by_another_core", "is_shared_post_dram_alloc", "remote_local_target", "remote_writer_func"),
    "device_print_metadata",
)
"""Members of a location that say that others than the function's instructions use it."""
_TABLE_CODES = {name: code for code, name in enumerate(schema.STRUCTURAL["table"])}


class Code:
    """The instructions of some functions.

    Instructions, operands and *mentions* are numbered from 0 in this order of rows. A mention is an operand together
    with a location of its own function that it names; an operand that names a set alone mentions all its locations.

    Parameters
    ----------
    ir
        The batch.
    functions
        Mask of the functions.
    alone
        Whether each function is looked at by itself, as a copy that nothing else of its module knows.
    """

    def __init__(self, ir: IR, functions: Array, *, alone: bool = False) -> None:
        self.ir, self.functions, self.alone = ir, functions, alone
        instructions, operands = ir.tables["instructions"], ir.tables["operands"]
        code, self._data_blocks = _blocks(ir, functions)
        self.rows = expand(*children(instructions["block_id"], code))
        """Rows of the instructions. Those in the blocks of an instruction that is no loop are data of it."""
        runs = Runs.picking(self.rows)
        first, count = children(operands["instruction_id"], runs.start, runs.length)
        self.operands = expand(first, count)
        self.owner = operands["instruction_id"][self.operands] + np.repeat(runs.begins[:-1] - runs.start, count)
        """The instruction of each operand."""
        self.role = operands["role"][self.operands]
        self.first = starts(np.bincount(self.owner, minlength=len(self.rows)))
        """First operand of each instruction: they stand as `ins`, `indirection_ins`, `outs`."""
        self.opcode = instructions["opcode"][self.rows]
        self._find_mentions()

    def __len__(self) -> int:
        return len(self.rows)

    def counts(self, role: int) -> Array:
        """Return how many operands of a role each instruction has."""
        return np.bincount(self.owner[self.role == role], minlength=len(self))

    @cached_property
    def position(self) -> Array:
        """Place of each instruction in program order."""
        return self.ir.array("instructions", "position")[self.rows]

    @cached_property
    def function(self) -> Array:
        """The function of each instruction."""
        blocks, block = self.ir.tables["blocks"], self.ir.tables["instructions"]["block_id"]
        return blocks["function_id"][block[self.rows]]

    def _find_mentions(self) -> None:
        ir, operands = self.ir, self.ir.tables["operands"]
        place, location = named_locations(ir, operands["location_id"][self.operands], operands["set_id"][self.operands])
        function = ir.array("locations", "function_id")
        own = function[location] == self.function[self.owner[place]] if len(location) else np.zeros(0, bool)
        self._foreign = location[~own]
        self.mention = place[own]
        """The operand of each mention."""
        self.location = location[own].astype(np.int64)
        """The location of each mention."""
        self.user = self.owner[self.mention]
        """The instruction of each mention."""
        self.writes = self.role[self.mention] == vocab.ROLE_OUT
        """Whether it is written there, or else read."""

    @cached_property
    def mentions_of(self) -> Array:
        """First mention of each instruction, and their number as last item."""
        return starts(np.bincount(self.user, minlength=len(self)))

    @cached_property
    def by_location(self) -> tuple[Array, Array]:
        """The mentions ordered by location, and where each location's begin."""
        count = np.bincount(self.location, minlength=self.ir.count("locations"))
        return np.argsort(self.location, kind="stable"), starts(count)

    # -- what others use ----------------------------------------------------------------------------------------------

    @cached_property
    def open(self) -> Array:
        """Mask of the Internal locations that the instructions of their function alone use, by operands that name them.

        Not those that something aliases, that are pinned or reserved, or that calls, addresses, queues, other functions
        or the runtime use.
        """
        ir = self.ir
        sets, locations = ir.tables["sets"], ir.tables["locations"]
        of_set = locations["set_id"]
        internal = sets["kind"] == vocab.KIND_INTERNAL
        internal &= sets["addr_space"] != vocab.ADDR_SPACES.code("Debug")
        if sets.has("extra"):
            internal &= ~_says(ir, sets["extra"], ("volatile",))
        found = internal[of_set] if len(of_set) else np.zeros(0, bool)
        found &= (locations["pinned"] != 1) & (locations["runtime_reserved"] != 1)
        if locations.has("extra"):
            found &= ~_says(ir, locations["extra"], _SHARED)
        for used in (self._aliased(), self._called(), self._foreign if not self.alone else None, self._outside()):
            if used is not None:
                found[used] = False
        return found

    def _aliased(self) -> Array:
        """Return the locations that take part in an alias, or in a pointer."""
        aliases, references = self.ir.tables["aliases"], self.ir.tables["references"]
        target = named_locations(self.ir, aliases["target_location_id"], aliases["target_set_id"])[1]
        pointers = (references["table"] == _TABLE_CODES["locations"]) & (
            references["target"] == _TABLE_CODES["locations"]
        )
        ends = references["target_id"][pointers]
        return np.concatenate((aliases["location_id"], target, references["row"][pointers], ends[ends >= 0]))

    def _called(self) -> Array:
        """Return the locations that calls are given, or whose address is taken."""
        ir, arguments = self.ir, self.ir.tables["call_arguments"]
        handed = np.isin(self.opcode, _CALLS)[self.user]
        handed |= np.isin(self.opcode, _ADDRESSING)[self.user] & ~self.writes
        mine = np.ones(len(arguments), bool)
        if self.alone and len(arguments):
            mine = self.functions[ir.array("call_arguments", "function_id")]
        actual = named_locations(ir, arguments["actual_location_id"][mine], arguments["actual_set_id"][mine])[1]
        return np.concatenate((self.location[handed], actual))

    def _outside(self) -> Array | None:
        """Return the locations that operands name which are no code of these functions: of queues and data."""
        ir, operands = self.ir, self.ir.tables["operands"]
        if self.alone:
            if not len(self._data_blocks):
                return None
            runs = Runs.picking(expand(*children(ir.tables["instructions"]["block_id"], self._data_blocks)))
            rest = expand(*children(operands["instruction_id"], runs.start, runs.length))
        elif len(self.operands) == len(operands):
            return None
        else:
            others = np.ones(len(operands), bool)
            others[self.operands] = False
            rest = np.flatnonzero(others)
        return named_locations(ir, operands["location_id"][rest], operands["set_id"][rest])[1]


def named_locations(ir: IR, location: Array, of_set: Array) -> tuple[Array, Array]:
    """Return what each item names, the location or else all of the set, as pairs of item and location in order."""
    own = np.flatnonzero(location >= 0)
    by_set = np.flatnonzero((location < 0) & (of_set >= 0))
    if not len(by_set):
        return own, location[own]
    first, count = children(ir.tables["locations"]["set_id"], of_set[by_set])
    item = np.concatenate((own, np.repeat(by_set, count)))
    named = np.concatenate((location[own], expand(first, count)))
    order = np.argsort(item, kind="stable")
    return item[order], named[order]


def _blocks(ir: IR, functions: Array) -> tuple[Array, Array]:
    """Return the blocks of some functions: those of code, and those that are data of an instruction, at any depth."""
    blocks = ir.tables["blocks"]
    function, owner = blocks["function_id"], blocks["instruction_id"]
    wanted = np.zeros(len(blocks), bool)
    inside = np.flatnonzero(function >= 0)
    wanted[inside] = functions[function[inside]]
    nested = np.flatnonzero(wanted & (owner >= 0))
    data = np.zeros(len(blocks), bool)
    if len(nested):
        instructions = ir.tables["instructions"]
        data[nested] = ~np.isin(instructions["opcode"][owner[nested]], STRUCTURED)
        parent = instructions["block_id"][owner[nested]]
        while (more := data[parent] & ~data[nested]).any():  # as often as blocks are nested
            data[nested[more]] = True
    return np.flatnonzero(wanted & ~data), np.flatnonzero(wanted & data)


def _says(ir: IR, extra: Array, keys: tuple[str, ...]) -> Array:
    """Tell for each row whether one of some members of its text is there, and is neither null nor false nor empty."""
    texts = ir.pools.extras.texts

    def fact(number: int) -> int:
        text = texts[number]
        if not any(f'"{key}"' in text for key in keys):
            return 0
        found = extras.parse(text)
        return any(found.get(key) not in (None, False, "", [], {}) for key in keys)

    return of_each(extra, len(texts), fact) > 0


def distinct_ids(ids: Array) -> tuple[Array, Array]:
    """Return the different ones of some ids, -1 among them where it is, and for each id its place among these."""
    mask = np.zeros(int(ids.max(initial=-1)) + 2, bool)
    mask[ids + 1] = True
    return np.flatnonzero(mask) - 1, (np.cumsum(mask) - 1)[ids + 1]


def suspects(ir: IR, functions: Array) -> Array:
    """Tell which of some functions may have anything to propagate or to remove, by a look at whole columns.

    Those with an Internal location that is written and never read, or written once, by a Memset; and those with outputs
    that name sets alone.
    """
    operands, instructions = ir.tables["operands"], ir.tables["instructions"]
    location, role = operands["location_id"], operands["role"]
    found = np.zeros(len(functions) + 1, bool)
    if not len(location) or not functions.any():
        return found[:-1]
    references = ir.tables["references"]
    named = (references["table"] == _TABLE_CODES["operands"]) & (references["target"] == _TABLE_CODES["functions"])
    if named.any():  # operands that name what another function owns: who reads what is not so easily said
        return functions.copy()
    of_location = ir.array("locations", "function_id")
    reads, writes = np.zeros((2, len(of_location)), np.int64)
    count_uses(location, role, vocab.ROLE_OUT, reads, writes)
    internal = (ir.tables["sets"]["kind"] == vocab.KIND_INTERNAL)[ir.tables["locations"]["set_id"]]
    writes[~internal] = 0
    found[of_location[(writes > 0) & (reads == 0)]] = True
    memsets = expand(*children(operands["instruction_id"], instructions.holding("opcode", [vocab.OP_MEMSET])))
    filled = location[memsets[(role[memsets] == vocab.ROLE_OUT) & (location[memsets] >= 0)]]
    found[of_location[filled[writes[filled] == 1]]] = True
    if operands.present("set_id"):
        rows = np.flatnonzero(location < 0)
        sets = operands.at("set_id", rows[role[rows] == vocab.ROLE_OUT])
        found[ir.array("sets", "function_id")[sets[sets >= 0]]] = True
    return found[:-1] & functions
