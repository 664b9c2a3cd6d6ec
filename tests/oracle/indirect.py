"""Lowering of generic indirect loads and saves (rules G1 to G5)."""

import math
from itertools import pairwise
from typing import Any

from tests.oracle.arch import itemsize_of
from tests.oracle.edit import edited, give_fresh_names, lists_of, sorted_object, taken_names
from tests.oracle.expressions import Scope, fold, holds, is_integer
from tests.oracle.graph import RELATIONS, Function, Instruction, Location, MemorySet, Node, Ref
from tests.oracle.outcome import Outcome, PassFailure, same_document
from tests.oracle.resolve import load
from tests.oracle.unrolling import check_size, located

LOADS, SAVES = "GenericIndirectLoad", "GenericIndirectSave"
BIAS = 1 << 32
FAR = 1 << 40
INVARIANTS = (
    "Indirect dimensions must be one less than instruction argument number",
    "Compiler middle end must have already flattened IndexAP to be only one AP",
    "GenericIndirectLoad/Save must have 1 element per partition for IndexAP",
    "indirect DMA's AddrAP should be 2D",
    "Addr Tensor partition dim must match its tensor shape",
)
EXPRESSIONS_OF_RUN_TIME = ("AffIVKind", "ShardIDKind", "IntRuntimeValueKind", "CCGetRankKind", "CCDivKind")


def run_lower(doc: dict[str, Any], *, max_instructions: int = 25_000_000) -> Outcome:
    """U0: lower the accesses of all functions."""
    module = load(doc)
    try:
        plans = [(function, accesses_of(function)) for function in module.all_functions]
        rows = sum(len(list(function.instructions())) for function, _ in plans)
        check_size(rows + sum(access.added for _, found in plans for access in found), max_instructions)
    except PassFailure as failure:
        return Outcome("failed", doc, [failure.diagnostic])
    for function, found in plans:
        lower_accesses(function, found)
    after = module.render()
    return Outcome("unchanged" if same_document(doc, after) else "changed", after, [])


def lower_function(function: Function) -> None:
    """N3: the step of canonicalisation."""
    lower_accesses(function, accesses_of(function))


def accesses_of(function: Function) -> list["Access"]:
    found = []
    for instruction in function.instructions():
        if instruction.opcode in (LOADS, SAVES):
            with located(function, instruction):
                found.append(Access(instruction))
    return found


def require(condition: Any, code: str, message: str = "") -> None:
    if not condition:
        raise PassFailure(code, message or code)


def invariant(number: int, holds_: Any) -> None:
    require(holds_, "generic_indirect_invariant", INVARIANTS[number])


class Access:
    """One access: its checks (G2, G3), and where its rows begin."""

    def __init__(self, instruction: Instruction) -> None:
        self.node = instruction
        self.save = instruction.opcode == SAVES
        obj = instruction.obj
        require(not obj.get("predicates"), "predicated_instruction")
        self.op = obj.get("op") or "add"
        require(not self.save or self.op in ("add", "bypass"), "not_supported")
        self.adds = self.save and self.op == "add"
        ins, indirection, outs = (instruction.operands(key) for key in ("ins", "indirection_ins", "outs"))
        self.dims = obj.get("indirect_dims") or []
        self.in_ins, self.in_list = len(ins) - 1, len(indirection)
        invariant(0, isinstance(self.dims, list) and len(self.dims) == len(ins) - 1 + len(indirection))
        require(ins and len(outs) == 1, "not_supported")
        self.indices = [*ins[1:], *indirection]
        require(self.indices, "not_supported")
        self.table, self.data = (outs[0], ins[0]) if self.save else (ins[0], outs[0])
        self.check_indices()
        self.find_table()
        self.work_out()

    @property
    def added(self) -> int:
        return len(self.indices) + 4

    def check_indices(self) -> None:
        """G2: the invariants, one after the other, each for all operands of indices."""
        for each in self.indices:
            invariant(1, each.get("kind") == "physical_ap" and each.get("dynamic_ap_info") is None)
        for each in self.indices:
            invariant(2, math.prod(num for _, num in each["ap"][1:]) == 1)
        for each in self.indices:
            invariant(3, len(each["ap"]) == 2)
        for each in self.indices:
            require(location_of(each) is not None, "unresolved_name")
        for each in self.indices:
            shape = location_of(each).set.obj.get("tensor_shape") or [0]
            invariant(4, each["ap"][0][1] == shape[0])
        for each in self.indices:
            require(each.get("dtype") in ("int32", "int64", "uint64"), "not_supported")
        self.count = self.indices[0]["ap"][0][1]
        require(all(each["ap"][0][1] == self.count for each in self.indices), "not_supported")
        require(self.count <= 128, "not_supported")

    def find_table(self) -> None:
        if self.table.get("kind") in ("symbolic_ap", "symbolic_pwap"):
            ref = self.table.get("memsetref")
            named = ref.target if isinstance(ref, Ref) else None
            require(named is not None, "unresolved_name")
            require(len(named.locations) == 1, "symbolic_location_count")
            self.location = named.locations[0]
        else:
            found = location_of(self.table)
            require(found is not None, "unresolved_name")
            self.location = found
        require(self.location.memory == "DRAM", "not_supported")
        size = itemsize_of(self.table.get("dtype"))
        self.elements = self.location.total_bytes // size
        require(self.elements >= 1, "address_out_of_bounds")

    # -- G3: where rows begin ----

    def work_out(self) -> None:
        require(self.table.get("memref_owner_func") is None, "not_supported")
        if not self.save:
            require(self.data["ap"][-1][0] == 1, "not_supported")
        kind = self.table.get("kind")
        if kind in ("symbolic_ap", "symbolic_pwap"):
            factors, constant, entry = self.by_expressions()
        elif kind == "physical_ap":
            by = self.by_dimensions if self.table.get("dynamic_ap_info") is None else self.by_rows
            factors, constant, entry = by(self.table["offset"])
        else:
            raise PassFailure("not_supported", "the table is no access")
        require(math.prod(num for _, num in self.data["ap"]) == self.count * entry, "not_supported")
        self.scale = math.gcd(*factors) or 1
        self.steps = [factor // self.scale for factor in factors]
        narrow = any(each["dtype"] == "int32" for each in self.indices)
        if narrow and self.steps != [1]:
            require(min(self.steps) >= 0 and self.elements // self.scale <= 1 << 24, "not_supported")
        require(abs(constant) < FAR, "address_out_of_bounds")
        self.constant = constant

    def by_expressions(self) -> tuple[list[int], int, int]:
        require(self.table.get("tensor_indirect_arg_id") in (None, -1), "not_supported")
        addresses = [linear(each) for each in self.table.get("addrs") or []]
        shape = self.location.set.obj.get("tensor_shape") or []
        require(len(addresses) == len(shape), "address_rank_mismatch")
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        constant = sum(stride * address.get(None, 0) for stride, address in zip(strides, addresses, strict=True))
        if not holds(self.table.get("addrs"), "IndirectArgId"):
            factors, _, entry = self.by_dimensions(0)
            return factors, constant, entry
        factors = [0] * len(self.indices)
        for stride, address in zip(strides, addresses, strict=True):
            for arg, coefficient in address.items():
                if arg is not None:
                    factors[self.index(arg)] += stride * coefficient
        pattern = self.table["ap"]
        if pattern[0][1] == self.count:
            return factors, constant, run_of(pattern[1:])
        require(math.prod(num for _, num in pattern) == self.count, "not_supported")
        return factors, constant, 1

    def by_rows(self, offset: int) -> tuple[list[int], int, int]:
        info = self.table["dynamic_ap_info"]
        terms = info.get("aff_expr")
        one = isinstance(terms, list) and len(terms) == 1
        require(one and (terms[0].get("offset_expr") or {}).get("kind") == "IndirectArgId", "not_supported")
        require(info.get("indirect_dim") in (None, 0, "W"), "not_supported")
        pattern = info.get("actual_ap") or self.table["ap"]
        require(pattern[0][1] == self.count, "not_supported")
        step = pattern[0][0]
        require(terms[0].get("coef") in (None, step), "not_supported")
        require(not (offset and info.get("c")), "not_supported")
        factors = [0] * len(self.indices)
        factors[self.index(terms[0]["offset_expr"]["arg_id"])] = step
        return factors, offset + (info.get("c") or 0), run_of(pattern[1:])

    def by_dimensions(self, offset: int) -> tuple[list[int], int, int]:
        pattern = self.table["ap"]
        nums = [num for _, num in pattern]
        inboard = [math.prod(nums[d + 1 :]) for d in range(len(nums))]
        require([step for step, _ in pattern] == inboard, "not_supported")
        places = ["WZYX".find(dim) if isinstance(dim, str) and len(dim) == 1 else dim for dim in self.dims]
        require(all(map(is_integer, places)), "not_supported")
        require(sorted(places) == list(range(len(places))) and len(places) <= len(nums), "not_supported")
        require(len(places) == 1 or len(nums) >= 4, "not_supported")
        return [inboard[place] for place in places], offset, math.prod(nums[len(places) :])

    def index(self, arg: int) -> int:
        """The operand of indices that an `arg_id` means, where it can mean one only."""
        found = set()
        if 1 <= arg <= len(self.indices):
            found.add(arg - 1)
        if 0 <= arg < self.in_list:
            found.add(self.in_ins + arg)
        require(found, "bad_expression")
        require(len(found) == 1, "not_supported")
        return found.pop()


def location_of(operand: dict[str, Any]) -> Location | None:
    ref = operand.get("memref")
    return ref.target if isinstance(ref, Ref) and isinstance(ref.target, Location) else None


def run_of(pattern: list[list[int]]) -> int:
    """Elements that follow each other."""
    expected = 1
    for step, num in reversed(pattern):
        require(num == 1 or step == expected, "not_supported")
        expected *= num
    return expected


def linear(expression: Any) -> dict[Any, int]:
    """An expression as what each index is multiplied by, and under None the constant."""
    kind = expression.get("kind") if isinstance(expression, dict) else None
    if not any(holds(expression, each) for each in (*EXPRESSIONS_OF_RUN_TIME, "IndirectArgId")):
        try:
            return {None: near(fold(expression, Scope()))}
        except PassFailure:
            pass
    if kind == "IndirectArgId":
        require(is_integer(expression.get("arg_id")), "bad_expression")
        return {expression["arg_id"]: 1}
    if kind == "AffExprKind":
        terms = [scaled(linear(term["idx"]), term.get("coeff")) for term in expression.get("terms") or []]
        return added([{None: near(expression.get("c") or 0)}, *terms])
    if kind == "SumKind":
        return added([linear(term) for term in expression.get("terms") or []])
    if kind == "MultKind":
        return scaled(linear(expression["var"]), expression.get("scale"))
    raise PassFailure("runtime_address" if kind in EXPRESSIONS_OF_RUN_TIME else "not_supported", "no index")


def near(value: Any) -> int:
    require(is_integer(value), "bad_expression")
    require(abs(value) < FAR, "address_out_of_bounds")
    return value


def scaled(terms: dict[Any, int], factor: Any) -> dict[Any, int]:
    by = near(factor)
    return {arg: near(value * by) for arg, value in terms.items()}


def added(parts: list[dict[Any, int]]) -> dict[Any, int]:
    total: dict[Any, int] = {}
    for part in parts:
        for arg, value in part.items():
            total[arg] = total.get(arg, 0) + value
    return {**total, None: near(total.get(None, 0))}


# -- G1, G4, G5: the chain ----


def lower_accesses(function: Function, accesses: list[Access]) -> None:
    taken = taken_names(function)
    wanted: dict[Node, str] = {}
    ranked = {node: place for place, node in enumerate(in_row_order(function))}
    for access in sorted(accesses, key=lambda each: ranked[each.node]):
        lower(function, access, wanted)
    give_fresh_names(function, taken, wanted)


def in_row_order(function: Function) -> list[Instruction]:
    """The instructions in the order of rows: a level of nested blocks after the one around it."""
    found, blocks = [], function.blocks
    while blocks:
        inner = []
        for block in blocks:
            for instruction in block.instructions:
                found.append(instruction)
                inner += instruction.blocks
        blocks = inner
    return found


def helper(function: Function, name: str, rows: int, width: int, wanted: dict[Node, str]) -> Location:
    """G5: a set with a location of integers of 64 bits, behind all storage of the function."""
    made = MemorySet(
        sorted_object(
            Skind="memory_location_set", dtype="int64", kind="Internal", memorylocations=[], name=f"{name}_set",
            partition_dim=0, tensorId2MemLocSize=1, tensor_class="NeuronSBTensor", tensor_shape=[rows, width],
        )
    )  # fmt: skip
    location = Location(
        sorted_object(
            Skind="memory_location", addr=0, allocated=False, bank=0, base=0, dims=[rows, width * 8], name=name,
            tensor_id=0, type="SB",
        ),
        made,
    )  # fmt: skip
    made.obj["memorylocations"].append(location)
    function.obj["allocations"] = [*function.storages, made]
    wanted[made], wanted[location] = f"{name}_set", name
    return location


def at(location: Location, pattern: list[list[int]], dtype: str = "int64", offset: int = 0) -> dict[str, Any]:
    return sorted_object(
        ap=pattern, dtype=dtype, kind="physical_ap", memref=Ref(location.name, location),
        memsetref=Ref(location.set.name, location.set), offset=offset,
    )  # fmt: skip


def value(number: int, dtype: str = "int64") -> dict[str, Any]:
    return sorted_object(dtype=dtype, kind="imm_value", value=number)


def lower(function: Function, access: Access, wanted: dict[Node, str]) -> None:
    node, rows = access.node, access.count
    name = node.name
    address = helper(function, f"{name}_DstTensor", rows, 1, wanted)
    scratch = helper(function, f"{name}_ScratchSpaceTensor", rows, 2, wanted)
    total, constant = (at(scratch, [[2, rows], [1, 1]], offset=k) for k in (0, 1))
    base = at(address, [[1, rows], [1, 1]])
    chain: list[Instruction] = []

    def add(suffix: str, opcode: str, ins: list[Any], out: Any, **keys: Any) -> Instruction:
        members = {"engine": "Unassigned", "ins": ins, "name": "", "opcode": opcode, "outs": [dict(out)], **keys}
        if "debug" in node.obj:
            members["debug"] = node.obj["debug"]
        made = Instruction(sorted_object(**members), node.block)
        made.original_name = node.original_name
        made.provenance = node.provenance
        wanted[made] = f"{name}{suffix}"
        chain.append(made)
        return made

    def scalars(op0: str, op1: str, *, wide: bool = True) -> dict[str, Any]:
        return {"op0": op0, "op1": op1, "reverse0": False, "reverse1": False} | (
            {"is_tensor_scalar_addr": True} if wide else {}
        )

    carried = 0
    pairs = list(zip(access.indices, access.steps, strict=True))
    # What is of 32 bits comes first: it has to stay small.
    for index, step in sorted(pairs, key=lambda pair: pair[0]["dtype"] != "int32"):
        wide = index["dtype"] != "int32"
        carried += step * BIAS if wide else 0
        kind = "int64" if wide else "int32"
        ins = [index, value(step, kind), dict(total) if chain else value(0, kind)]
        ops = scalars("bypass" if step == 1 else "mult", "add" if chain else "bypass", wide=wide)
        add("_TSPAddGenericAddr", "TensorScalarPtr", ins, total, **ops)
    # Addressed by row number where that does: so an index of -1, which is left out, stays -1.
    scale, elements, offset = access.scale, access.elements, access.constant
    by_rows = len(access.indices) == 1 and offset == 0 and not access.adds and elements % scale == 0
    if by_rows:
        whole, scale = [[1, scale], [scale, elements // scale]], 1
    elif elements % scale:
        whole = [[elements, 1], [1, elements]]
    else:
        whole = [[scale, elements // scale], [1, scale]]
    dtype = access.table["dtype"]
    add("_ReadVarAddr", "ReadVarAddr", [at(access.location, whole, dtype)], base)
    add("_TSPAddAddr", "TensorScalarPtr", [dict(total), value(scale), dict(base)], total, **scalars("mult", "add"))
    number = (offset - carried * scale) % (1 << 64)
    add("_MemsetTileOffset", "Memset", [], constant, mode="Const", constant=number)
    last = dict(base) if access.adds else value(0)
    ops = scalars("add", "subtract" if access.adds else "bypass")
    add("_TSPAddOffset", "TensorScalarPtr", [dict(total), dict(constant), last], total, **ops)
    finish(access, chain, whole, total)
    place = node.block.instructions.index(node)
    old = node.block.instructions
    node.block.obj["instructions"] = [*old[:place], *chain, *old[place:]]
    wanted[node] = f"{name}_Indirect{'Save' if access.save else 'Load'}"


def finish(access: Access, chain: list[Instruction], whole: Any, total: dict[str, Any]) -> None:
    """G1, G4: the access itself, and the edges and waits of the chain."""
    node = access.node
    gone = ("addrs", "dynamic_ap_info", "tensor_indirect_arg_id", "num_tensor_indirect_indices", "access_shape")
    place = {"ap": whole, "kind": "physical_ap", "memref": Ref(access.location.name, access.location), "offset": 0}
    if isinstance(access.table.get("memsetref"), Ref):
        place["memsetref"] = Ref(access.location.set.name, access.location.set)
    table = edited(access.table, place, gone)
    ins, outs = ([access.data], [table]) if access.save else ([table], [access.data])
    changes: dict[str, Any] = {"ins": ins, "indirection_ins": [dict(total)], "outs": outs}
    changes["opcode"] = (
        "IndirectLoad" if not access.save else "IndirectSaveAccumulate" if access.adds else "IndirectSave"
    )
    if access.adds:
        changes |= {"op": "add", "num_indices": access.count, "entry_step_elements": 1}
    drop = {"indirect_dims"} | (set() if access.adds else {"op"})
    # What it waited for the first of the chain waits for, and each waits for the one before it.
    lists = lists_of(node)
    first = chain[0]
    first.obj = sorted_object(**first.obj, **{r: entries for r, entries in lists.items() if entries})
    for before, here in pairwise(chain):
        flows = here.obj["opcode"] == "TensorScalarPtr"
        here.obj["dependencies"] = [[Ref("", before), "Flow" if flows else "Ordered"]]
    adding, reading, addressing, _, offsetting = chain[-5:]
    addressing.obj["dependencies"].insert(0, [Ref("", adding), "Flow"])
    offsetting.obj["dependencies"].insert(0, [Ref("", addressing), "Flow"])
    if access.adds:
        offsetting.obj["dependencies"].insert(0, [Ref("", reading), "Flow"])
    for each in chain[1:]:
        each.obj = sorted_object(**each.obj)
    changes["dependencies"] = [[Ref("", offsetting), "Flow"]]
    drop |= {relation for relation in RELATIONS[1:] if lists[relation]}
    waits = (node.obj.get("sync_info") or {}).get("on_wait")
    if waits:
        rest = {key: member for key, member in node.obj["sync_info"].items() if key != "on_wait"}
        first.obj = sorted_object(**first.obj, sync_info={"on_wait": waits})
        if rest:
            changes["sync_info"] = rest
        else:
            drop.add("sync_info")
    node.obj = edited(node.obj, changes, drop)
