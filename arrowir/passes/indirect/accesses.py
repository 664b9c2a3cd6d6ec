"""Generic indirect accesses of a batch: what each means, and what keeps one from being lowered (rules G1 to G3)."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.derived import take
from arrowir.diagnostics import Diagnostic
from arrowir.ir import IR
from arrowir.passes.indirect import forms
from arrowir.passes.indirect.forms import Case, Meaning, Problem
from arrowir.passes.unrolling.faults import Fault, Faults
from arrowir.passes.unrolling.loops import STRUCTURED
from arrowir.runs import expand
from arrowir.schema import NULL_INT
from arrowir.store import Array, children

GENERIC = (vocab.OP_GENERIC_INDIRECT_LOAD, vocab.OP_GENERIC_INDIRECT_SAVE)
WIDE = tuple(vocab.DTYPES.code(name) for name in ("int64", "uint64"))
NARROW = vocab.DTYPES.code("int32")
HELD = 128
"""Partitions of an engine's memory: so many indices an access can have."""
_SYMBOLIC = (vocab.OPERAND_SYMBOLIC_AP, vocab.OPERAND_SYMBOLIC_PWAP)


def generic_rows(ir: IR, functions: Array | None = None) -> Array:
    """Return the generic indirect accesses of some functions (a mask), of all by default."""
    instructions = ir.tables["instructions"]
    row = instructions.holding("opcode", GENERIC)
    function = ir.array("instructions", "function_id")[row]
    wanted = function >= 0
    if functions is not None:
        wanted[wanted] = functions[function[wanted]]
    row = row[wanted]
    # Blocks of what is no loop are data of it.
    block, owner = instructions["block_id"], ir.tables["blocks"]["instruction_id"]
    code, at = np.ones(len(row), bool), block[row]
    while (inside := np.flatnonzero(owner[at] >= 0)).size:
        around = owner[at[inside]]
        code[inside] &= np.isin(instructions["opcode"][around], STRUCTURED)
        at[inside] = block[around]
    return row[code]


@dataclass
class Accesses:
    """The accesses of some functions, an item each; `index` arrays have an item for each operand of indices."""

    ir: IR
    functions: Array | None = None
    """Mask of the functions that are looked at; all by default."""
    row: Array = field(init=False)
    """The instruction."""
    save: Array = field(init=False)
    """Whether it is a save."""
    adds: Array = field(init=False)
    """Whether a save adds to what is there."""
    first: Array = field(init=False)
    """Its first operand."""
    operands: Array = field(init=False)
    """How many it has."""
    table: Array = field(init=False)
    """The operand that is addressed."""
    location: Array = field(init=False)
    """Where that lies."""
    elements: Array = field(init=False)
    """Elements of that location."""
    count: Array = field(init=False)
    """Operands of indices."""
    indices: Array = field(init=False)
    """Elements of each of those."""
    owner: Array = field(init=False)
    """Access of each operand of indices."""
    index: Array = field(init=False)
    """Row of each operand of indices."""
    wide: Array = field(init=False)
    """Whether that has 64 bits."""
    step: Array = field(init=False)
    """What that index is multiplied by before the sum is scaled."""
    scale: Array = field(init=False)
    offset: Array = field(init=False)
    """What is added to the scaled sum: then it counts elements of the location."""

    def __post_init__(self) -> None:
        ir = self.ir
        self.row = generic_rows(ir, self.functions)
        self.problem = np.full(len(self.row), -1, np.int64)
        self.problems: list[Problem] = []
        if not len(self.row):
            return
        operands, opcode = ir.tables["operands"], ir.tables["instructions"]["opcode"][self.row]
        self.save = opcode == vocab.OP_GENERIC_INDIRECT_SAVE
        self.first, self.operands = children(operands["instruction_id"], self.row)
        self._keys()
        self._indices()
        self._table()
        self._meanings()

    def _blame(self, mask: Array, code: str, message: str) -> None:
        """Note a problem of accesses that have none yet."""
        fresh = mask & (self.problem < 0)
        if fresh.any():
            self.problem[fresh] = len(self.problems)
            self.problems.append((code, message))

    def _blame_each(self, which: Array, problems: list[Problem | None]) -> None:
        """Note problems by number; where there is none, or a negative number, nothing is."""
        for number, problem in enumerate(problems):
            if problem is not None:
                self._blame(which == number, *problem)

    # -- the instruction ----

    def _keys(self) -> None:
        """Its own keys, and how many operands it has."""
        ir = self.ir
        operands = ir.tables["operands"]
        owner = np.repeat(np.arange(len(self.row)), self.operands)
        role = operands["role"][expand(self.first, self.operands)]
        ins, indirection, outs = (np.bincount(owner[role == r], minlength=len(self.row)) for r in range(3))
        self.ins, self.indirection = ins - 1, indirection
        self.count = np.maximum(ins - 1, 0) + indirection
        extra = ir.tables["instructions"]["extra"][self.row]
        keys, number = np.unique(np.column_stack((extra, self.save)), axis=0, return_inverse=True)
        number = number.reshape(-1)
        texts = [forms.instruction(_text(ir, i), bool(save)) for i, save in keys.tolist()]
        self._blame_each(number, [text.problem for text in texts])
        dims = np.array([-1 if text.dims is None else len(text.dims) for text in texts])[number]
        self._blame(dims != self.count, "generic_indirect_invariant", forms.COUNT)
        self._blame((ins < 1) | (outs != 1), "not_supported", "it takes the data, the indices, and one output")
        self._blame(self.count < 1, "not_supported", "it has no operand of indices")
        self.adds = self.save & np.array([text.op == "add" for text in texts])[number]
        self._dims, self._dims_number = [text.dims or () for text in texts], number
        # What is missing is taken to be the first operand, so that all can be looked at.
        last = self.first + np.maximum(self.operands - 1, 0)
        self.table = np.where(self.save, last, self.first)
        self.data = np.where(self.save, self.first, last)

    # -- indices ----

    def _indices(self) -> None:
        """The invariants of the operands of indices."""
        ir = self.ir
        operands = ir.tables["operands"]
        usable = self.problem < 0
        self.count = np.where(usable, self.count, 0)
        self.owner = np.repeat(np.arange(len(self.row)), self.count)
        self.index = expand(self.first + 1, self.count)
        row = self.index
        dynamic = self._of_pool(ir.pools.extras.texts, operands["extra"][row], _is_dynamic) > 0
        plain = (operands["kind"][row] == vocab.OPERAND_PHYSICAL_AP) & ~dynamic
        self._blame_any(~plain, "generic_indirect_invariant", forms.FLATTENED)
        dims, first, rest = self._pattern_facts(operands["pattern_id"][row])
        self._blame_any(rest != 1, "generic_indirect_invariant", forms.ONE_ELEMENT)
        self._blame_any(dims != 2, "generic_indirect_invariant", forms.TWO_DIMENSIONS)
        location = operands["location_id"][row]
        self._blame_any(location < 0, "unresolved_name", "an operand of indices names a location that is not there")
        shape = take(ir.tables["sets"]["tensor_shape"], take(ir.tables["locations"]["set_id"], location))
        partitions = self._of_pool(ir.pools.shapes.texts, shape, lambda text: (_json(text) or [0])[0])
        self._blame_any(first != partitions, "generic_indirect_invariant", forms.PARTITIONS)
        dtype = operands["dtype"][row]
        self.wide = np.isin(dtype, WIDE)
        text = "the indices of an indirect access are `int32`, `int64` or `uint64`"
        self._blame_any(~self.wide & (dtype != NARROW), "not_supported", text)
        self.indices = np.ones(len(self.row), np.int64)
        self.indices[self.owner[::-1]] = first[::-1]
        self._blame_any(
            first != self.indices[self.owner], "not_supported", "its operands of indices differ in their elements"
        )
        self._blame(self.indices > HELD, "not_supported", f"it has more than {HELD} indices; split it first")

    def _blame_any(self, mask: Array, code: str, message: str) -> None:
        """Note a problem of accesses of which some operand of indices has it."""
        bad = np.zeros(len(self.row), bool)
        bad[self.owner[mask]] = True
        self._blame(bad, code, message)

    def _pattern_facts(self, ids: Array) -> tuple[Array, Array, Array]:
        """Return of patterns the number of dimensions, the first num, and the product of the others."""
        patterns = self.ir.pools.patterns.texts
        dims = self._of_pool(patterns, ids, lambda text: len(_pattern(text)))
        first = self._of_pool(patterns, ids, lambda text: (_pattern(text) or ((0, 0),))[0][1])
        rest = self._of_pool(patterns, ids, lambda text: min(_product(_pattern(text)[1:]), NULL_INT * -1 - 1))
        return dims, first, rest

    @staticmethod
    def _of_pool(texts: list[str], ids: Array, fact: Callable[[str], int]) -> Array:
        """Return a fact about pooled texts, asked once for each; 0 where there is none."""
        distinct, place = np.unique(ids, return_inverse=True)
        return np.array([fact(texts[i]) if i >= 0 else 0 for i in distinct.tolist()], np.int64)[place.reshape(-1)]

    # -- the table ----

    def _table(self) -> None:
        """Where the addressed operand lies."""
        ir = self.ir
        operands, sets, locations = (ir.tables[name] for name in ("operands", "sets", "locations"))
        kind, location = operands["kind"][self.table], operands["location_id"][self.table]
        named = operands["set_id"][self.table]
        symbolic = np.isin(kind, _SYMBOLIC)
        bounds = locations.bounds(len(sets))
        sole = np.full(len(sets), -1, np.int64)
        some = np.flatnonzero(np.diff(bounds) == 1)
        sole[some] = bounds[some]
        unresolved = np.where(symbolic, named, location) < 0
        self._blame(unresolved, "unresolved_name", "the table is a location or set that is not there")
        several = symbolic & ~unresolved & (take(sole, named) < 0)
        self._blame(several, "symbolic_location_count", "the set of the table has not exactly one location")
        self.location = np.where(symbolic, take(sole, named), location)
        self.set = take(locations["set_id"], self.location)
        in_dram = take(locations["type"], self.location) == vocab.MEM_DRAM
        self._blame(~in_dram, "not_supported", "the table of an indirect access has to lie in DRAM")
        dtype = operands["dtype"][self.table]
        size = np.array((*vocab.DTYPE_BYTES, 0), np.int64)[np.where(dtype < len(vocab.DTYPE_BYTES), dtype, -1)]
        self._blame(size == 0, "unknown_dtype", "the size of the table's dtype is not known")
        dims = [take(locations[name], self.location) for name in ("partitions", "bytes")]
        total = np.prod([np.where(d == NULL_INT, 0, d).astype(np.float64) for d in dims], axis=0)
        self._blame(total >= forms.FARTHEST, "not_supported", "the table is larger than any memory")
        self.elements = (np.minimum(total, forms.FARTHEST) // np.maximum(size, 1)).astype(np.int64)
        self._blame(self.elements < 1, "address_out_of_bounds", "the table has no element")

    def _meanings(self) -> None:
        """What is read or written for which index: once for each kind of access, and a constant for each access."""
        ir = self.ir
        operands = ir.tables["operands"]
        texts, number = np.unique(
            np.column_stack((operands["extra"][self.table], operands["kind"][self.table])), axis=0, return_inverse=True
        )
        number = number.reshape(-1)
        kinds = vocab.OPERAND_KINDS.values
        tables = [forms.table(_text(ir, i), kinds[k] if 0 <= k < len(kinds) else "") for i, k in texts.tolist()]
        self._blame_each(number, [table.form.problem for table in tables])
        known: dict[forms.Form, int] = {}
        form = np.array([known.setdefault(table.form, len(known)) for table in tables], np.int64)[number]
        accessed = np.where(operands["pattern_id"][self.data] < 0, -1, ir.array("operands", "elements")[self.data])
        self._last_steps()
        bits = np.zeros(len(self.row), np.int64)
        place = np.arange(len(self.owner)) - np.searchsorted(self.owner, self.owner)
        self._blame(self.count > 60, "not_supported", "it has too many operands of indices")
        np.bitwise_or.at(bits, self.owner, self.wide.astype(np.int64) << np.minimum(place, 60))
        keys = (
            form, self._dims_number, self.ins, self.indirection, take(ir.tables["sets"]["tensor_shape"], self.set),
            operands["pattern_id"][self.table], self.elements, self.indices, accessed, bits,
        )  # fmt: skip
        sound = np.flatnonzero(self.problem < 0)
        cases, case = np.unique(np.column_stack(keys)[sound], axis=0, return_inverse=True)
        self._form_list = list(known)
        found = [forms.meaning(self._case(*key)) for key in cases.tolist()]
        which = np.full(len(self.row), -1, np.int64)
        which[sound] = case.reshape(-1)
        self._blame_each(which, [each.problem for each in found])
        self._constants(tables, number, found, which)

    def _last_steps(self) -> None:
        """What is loaded must be written to elements that follow each other."""
        operands = self.ir.tables["operands"]
        patterns = self.ir.pools.patterns.texts
        last = self._of_pool(
            patterns, operands["pattern_id"][self.data], lambda text: (_pattern(text) or ((0, 0),))[-1][0]
        )
        self._blame(
            ~self.save & (last != 1), "not_supported", "Must have step 1 in final dim of IndirectLoad output AP"
        )

    def _case(self, form: int, dims: int, ins: int, indirection: int, shape: int, pattern: int, *rest: int) -> Case:
        pools = self.ir.pools
        elements, indices, accessed, bits = rest
        return Case(
            self._form_list[form],
            self._dims[dims],
            ins,
            indirection,
            tuple(_json(pools.shapes[shape])) if shape >= 0 else (),
            _pattern(pools.patterns[pattern]) if pattern >= 0 else (),
            elements,
            indices,
            accessed,
            tuple(bool(bits >> k & 1) for k in range(ins + indirection)),
        )

    def _constants(self, tables: list[forms.Table], number: Array, found: list[Meaning], which: Array) -> None:
        """Put steps, scales and offsets together."""
        operands = self.ir.tables["operands"]
        offset = operands["offset"][self.table]
        self.offset = np.where((offset == NULL_INT) | np.isin(operands["kind"][self.table], _SYMBOLIC), 0, offset)
        width = max((len(table.constants) for table in tables), default=0)
        constants, strides = np.zeros((len(tables), width), np.int64), np.zeros((len(found) + 1, width), np.int64)
        for k, table in enumerate(tables):
            constants[k, : len(table.constants)] = table.constants
        for k, each in enumerate(found):
            strides[k, : len(each.strides)] = [min(stride, forms.FARTHEST) for stride in each.strides]
        dynamic = np.array([table.form.kind == "dynamic" for table in tables], bool)[number]
        both = dynamic & (self.offset != 0) & (constants[number, :1].sum(axis=1) != 0)
        self._blame(
            both, "not_supported", "the table has an `offset` and a `c` in its dynamic offset; add them up first"
        )
        by_constants = (constants[number].astype(np.float64) * strides[which]).sum(axis=1)
        far = np.abs(by_constants) + np.abs(self.offset.astype(np.float64)) >= forms.FARTHEST
        self._blame(far, "address_out_of_bounds", "the constant in the table's address is larger than any location")
        self.offset = np.where(far, 0, self.offset)
        self.offset += np.where(far[:, None], 0, constants[number] * strides[which]).sum(axis=1)
        self.scale = np.array([each.scale for each in found] + [1], np.int64)[which]
        place = np.arange(len(self.owner)) - np.searchsorted(self.owner, self.owner)
        most = max((len(each.steps) for each in found), default=0)
        steps = np.zeros((len(found) + 1, most + 1), np.int64)
        for k, each in enumerate(found):
            steps[k, : len(each.steps)] = each.steps
        self.step = steps[which[self.owner], np.minimum(place, most)]

    # -- what is left ----

    def failures(self) -> dict[int, Diagnostic]:
        """Return by function the first problem, in program order."""
        faults = Faults(self.ir)
        position = self.ir.array("instructions", "position") if (self.problem >= 0).any() else self.row
        for k in np.flatnonzero(self.problem >= 0).tolist():
            code, message = self.problems[int(self.problem[k])]
            row = int(self.row[k])
            faults.add(Fault((int(position[row]),), code, message, row))
        return {function: faults.diagnostic(function) for function in sorted(faults.first)}

    def pick(self, which: Array) -> "Accesses":
        """Return some of the accesses (a mask)."""
        made = object.__new__(Accesses)
        made.ir, made.functions, made.problems = self.ir, self.functions, self.problems
        of_index = which[self.owner] if len(self.row) else np.zeros(0, bool)
        for name, values in vars(self).items():
            if name in ("index", "wide", "step"):
                setattr(made, name, values[of_index])
            elif isinstance(values, np.ndarray) and name not in ("functions", "owner"):
                setattr(made, name, values[which])
        if len(self.row):
            made.owner = (np.cumsum(which) - 1)[self.owner[of_index]]
        return made


def _text(ir: IR, number: int) -> str:
    return ir.pools.extras[number] if number >= 0 else ""


def _is_dynamic(text: str) -> bool:
    return "dynamic_ap_info" in text and extras.parse(text).get("dynamic_ap_info") is not None


def _json(text: str) -> Any:
    import json

    return json.loads(text)


def _pattern(text: str) -> forms.Pattern:
    return tuple((step, num) for step, num in _json(text))


def _product(pattern: forms.Pattern) -> int:
    total = 1
    for _, num in pattern:
        total *= num
    return total
