"""Rows that unrolling must refuse, each with exactly one fault."""

from collections.abc import Callable
from dataclasses import dataclass, field

from arrowir.testing import bir
from arrowir.testing.bir import Json
from arrowir.testing.drawing import Source
from arrowir.testing.expressions import affine, affine_old, loop, modulo, symbolic

SHAPE = (4, 8)


@dataclass(slots=True)
class FaultContext:
    """Where a fault is put.

    Parameters
    ----------
    source : Source
        What it draws from.
    version : int
        The version of expressions.
    sets : list of dict
        Sets that the rows need; the caller adds them to the function.
    name : str
        What the names of rows and sets begin with.

    Examples
    --------
    >>> from arrowir.testing.drawing import Simplest
    >>> FaultContext(Simplest(), 2).row()["opcode"]
    'NoOp'
    """

    source: Source
    version: int
    sets: list[Json] = field(default_factory=list[Json])
    name: str = "faulty"

    def constant(self, value: int) -> Json:
        """Return the expression of a constant."""
        return affine_old({}, value) if self.version == 1 else affine({}, value)

    def row(self, opcode: str = "NoOp", **members: object) -> Json:
        """Return an instruction."""
        plain: Json = {"engine": "DVE", "ins": [], "name": self.name, "opcode": opcode, "outs": []}
        plain |= members
        return {key: plain[key] for key in sorted(plain)}

    def looped(self, rows: list[Json]) -> Json:
        """Return the rows in a loop of two trips, or in one around that."""
        inner = loop("f", 0, 2, 1, rows)
        return loop("g", 0, 2, 1, [inner]) if self.source.chance(30) else inner

    def anywhere(self, row: Json) -> Json:
        """Return the row, in a loop or not."""
        return self.looped([row]) if self.source.chance(60) else row

    def new_set(self, **members: object) -> Json:
        """Add a set of one location in the state buffer and return it."""
        item = bir.tensor(f"{self.name}_t", "SB", SHAPE, "float32", full_keys=False)
        item |= members
        self.sets.append(item)
        return item

    def read(self, addresses: list[Json]) -> Json:
        """Return an instruction that reads a new set at symbolic addresses."""
        item = self.sets[-1] if self.sets else self.new_set()
        return self.row("CustomOp", ins=[symbolic(item["name"], addresses, [[8, 1], [1, 1]], "float32")])


def _dynamic_loop(c: FaultContext) -> Json:
    runtime = {"kind": "IntRuntimeValueKind", "regref": f"{c.name}_r"}
    c.sets.append(bir.register(f"{c.name}_r"))
    form = c.source.digit(3)
    if form == 0 and c.version == 2:
        return loop("d", 0, runtime, 1, [c.row()])
    third = {"denom": 3, "kind": "FloorDivKind", "numer": runtime}
    blocks = [bir.block("block0", [c.row()])]
    if form == 1:
        wrong = c.source.of(((0, runtime, runtime), (0, third, c.constant(1))))
        axis = dict(zip(("lb", "ub", "stride"), wrong, strict=True)) | {"name": "d"}
        axis = {key: axis[key] for key in sorted(axis)}
        return c.row("DynamicForLoop", DynamicForLoopAxis=axis, blocks=blocks, name=f"{c.name}_loop")
    return c.row("DoWhile", cond=third, blocks=blocks, name=f"{c.name}_loop")


def _zero_stride(c: FaultContext) -> Json:
    found = loop("f", 0, 3, 0, [c.row()])
    if c.source.chance(40):
        del found["LoopAxis"]["stride"]
    return found


def _block_tensor(c: FaultContext) -> Json:
    if c.source.chance(50):
        c.new_set(tensor_class="NeuronBlockTensor")
    else:
        c.new_set(NBlocks=2)
    return c.looped([c.read([c.constant(0), c.constant(1)])])


def _rank(c: FaultContext) -> Json:
    return c.anywhere(c.read([c.constant(0)] * c.source.of((1, 3, 0))))


def _location_count(c: FaultContext) -> Json:
    item = c.new_set()
    if c.source.chance(50):
        item["memorylocations"] = []
    else:
        item["memorylocations"].append({**item["memorylocations"][0], "name": f"{c.name}_t2", "tensor_id": 1})
    return c.anywhere(c.read([c.constant(0), c.constant(1)]))


def _out_of_bounds(c: FaultContext) -> Json:
    addresses = c.source.of(((4, 0), (3, 8), (0, -1), (-1, 0), (0, 2**40)))
    return c.anywhere(c.read([c.constant(value) for value in addresses]))


def _overflow(c: FaultContext) -> Json:
    return c.anywhere(c.read([c.constant(2**62), c.constant(0)]))


def _runtime_address(c: FaultContext) -> Json:
    c.new_set()
    row = c.read([c.constant(0), {"kind": "IntRuntimeValueKind", "regref": f"{c.name}_r"}])
    c.sets.append(bir.register(f"{c.name}_r"))
    return c.anywhere(row)


def _division(c: FaultContext) -> Json:
    bad = modulo(affine({}, 3), 0)
    if c.version == 1:
        bad = affine_old({}, 3, op=c.source.of(("Mod", "Div")), op_param=0)
    if c.source.chance(50):
        return c.anywhere(c.row("Iota", base=bad, pattern=[[1, 4]]))
    return c.anywhere(c.read([c.constant(0), bad]))


def _unknown_axis(c: FaultContext) -> Json:
    bad = affine_old({"nowhere": 1}) if c.version == 1 else affine({"nowhere": 1})
    if c.source.chance(50):
        return c.anywhere(c.row("Iota", base=bad, pattern=[[1, 4]]))
    return c.anywhere(c.read([c.constant(0), bad]))


def _bad_expression(c: FaultContext) -> Json:
    bad = {"kind": "BrandNewKind", "value": 1}
    return c.anywhere(c.read([c.constant(0), bad]))


def _predicated(c: FaultContext) -> Json:
    return c.anywhere(c.row(predicates=[{"expr": 1}]))


def _predicated_edge(c: FaultContext) -> Json:
    first = c.row(name=f"{c.name}_first")
    second = c.row(unroll_dependencies=[[f"{c.name}_first", "Flow", [c.constant(0)], [{"expr": 1}]]])
    return loop("f", 0, 2, 1, [first, second])


def _index_rank(c: FaultContext) -> Json:
    first = c.row(name=f"{c.name}_first")
    indices = [c.constant(0)] * c.source.of((0, 2))
    return loop("f", 0, 2, 1, [first, c.row(unroll_dependencies=[[f"{c.name}_first", "Flow", indices, []]])])


def _immediate(c: FaultContext) -> Json:
    bad: Json = {"dtype": "float32", "kind": "symbolic_imm_value", "value_list": [{"value": 1.0}, {"value": 2.0}]}
    bad["expr"] = c.constant(c.source.of((2, -1, 9)))
    return c.anywhere(c.row("CustomOp", ins=[bad]))


def _too_many(c: FaultContext) -> Json:
    return loop("f", 0, 10_000, 1, [loop("g", 0, 10_000, 1, [c.row()])])


LOOP_FAULTS: dict[str, Callable[[FaultContext], Json]] = {
    "dynamic_loop": _dynamic_loop,
    "zero_stride": _zero_stride,
    "block_tensor": _block_tensor,
    "address_rank_mismatch": _rank,
    "symbolic_location_count": _location_count,
    "address_out_of_bounds": _out_of_bounds,
    "integer_overflow": _overflow,
    "runtime_address": _runtime_address,
    "division_by_zero": _division,
    "unresolved_name": _unknown_axis,
    "bad_expression": _bad_expression,
    "predicated_instruction": _predicated,
    "predicated_dependency": _predicated_edge,
    "index_rank_mismatch": _index_rank,
    "immediate_out_of_range": _immediate,
    "too_many_instructions": _too_many,
}
"""What makes a row that unrolling refuses, by the code of the error."""
