"""A plain check of a document: every name resolves, every access stays inside its location, every call fits.

It reads parsed JSON with nothing but loops and dicts, so generated modules are checked independently of the
library's own verifier.
"""

import itertools
import math
from collections.abc import Iterator
from typing import Any, cast

from arrowir.testing import bir
from arrowir.testing.bir import Json

INPUTS = ("ExternalInput", "ExternalInputParameter", "Input")
OUTPUTS = ("ExternalOutput", "ExternalOutputParameter", "Output")
EDGE_LISTS = ("dependencies", "loop_carried_dependencies", "unroll_dependencies")
Axes = dict[str, range]


def problems(document: Json) -> list[str]:
    """Return what is wrong with a document, in words.

    Parameters
    ----------
    document : dict
        A parsed module.

    Returns
    -------
    list of str
        One line for each name that does not resolve, access out of its location, or call that does not fit.

    Examples
    --------
    >>> from arrowir.testing.workloads import module
    >>> problems(module("tiny"))
    []
    """
    checker = _ModuleChecker(document)
    for function in checker.functions:
        _FunctionChecker(checker, function).check()
    return checker.found


def difference(left: Any, right: Any, path: str = "$") -> str | None:
    """Return where two parsed documents differ first, if they do.

    Members must stand in the same order. Numbers must be of one type and have one value; no number equals itself.

    Parameters
    ----------
    left, right : dict, list or scalar
        What to compare.
    path : str
        The JSON path of both.

    Returns
    -------
    str or None
        The JSON path and what stands there; `None` when there is no difference.

    Examples
    --------
    >>> difference({"a": [1]}, {"a": [1.0]})
    '$.a[0]: 1 is not 1.0'
    """
    if type(left) is not type(right):
        return f"{path}: {left!r} is not {right!r}"
    if isinstance(left, dict):
        one, other = cast(Json, left), cast(Json, right)
        if list(one) != list(other):
            return f"{path}: members {list(one)} are not {list(other)}"
        found = (difference(one[name], other[name], f"{path}.{name}") for name in one)
        return next(filter(None, found), None)
    if isinstance(left, list):
        first, second = cast(list[Any], left), cast(list[Any], right)
        if len(first) != len(second):
            return f"{path}: {len(first)} items are not {len(second)}"
        found = (difference(first[number], second[number], f"{path}[{number}]") for number in range(len(first)))
        return next(filter(None, found), None)
    same = left == right or (left != left and right != right)
    return None if same else f"{path}: {left!r} is not {right!r}"


def kernels_of(document: Json) -> list[Json]:
    """Return the kernel functions of a document, however they are wrapped.

    Parameters
    ----------
    document : dict
        A parsed module.

    Returns
    -------
    list of dict
        The functions.

    Examples
    --------
    >>> kernels_of({"nki_functions": None})
    []
    """
    wrapped = document.get("nki_functions") or []
    return wrapped.get("functions", []) if isinstance(wrapped, dict) else wrapped


def instructions_of(blocks: list[Json]) -> Iterator[Json]:
    """Yield the instructions of blocks and of the loops in them, in program order.

    Parameters
    ----------
    blocks : list of dict
        The blocks.

    Yields
    ------
    dict
        An instruction.

    Examples
    --------
    >>> [row["name"] for row in instructions_of([bir.block("b", [{"name": "x"}])])]
    ['x']
    """
    for block in blocks:
        for row in block["instructions"]:
            yield row
            yield from instructions_of(row.get("blocks") or [])


class _ModuleChecker:
    def __init__(self, document: Json) -> None:
        self.document = document
        self.found: list[str] = []
        self.kernels = {function["name"]: function for function in kernels_of(document)}
        self.functions: list[Json] = [*document["functions"], *self.kernels.values()]
        self.callees = {function["name"]: function for function in document["functions"]} | self.kernels
        queues = document.get("queues") or []
        self.queues = {queue["name"] for queue in queues}
        self.dma_blocks = {
            row["name"] for queue in queues for block in queue["blocks"] for row in block["instructions"]
        }
        self._room: dict[str, int] = {}

    def sb_bytes(self, function: Json) -> int:
        """Return the state buffer bytes that a body and all that it calls take up."""
        name = function["name"]
        if name not in self._room:
            self._room[name] = 0
            rooms = [
                place.get("addr", 0) + place["dims"][1]
                for item in function["allocations"]
                if item.get("kind") not in INPUTS + OUTPUTS
                for place in item.get("memorylocations", [])
                if place["type"] == "SB"
            ]
            checker = _FunctionChecker(self, function)
            rooms += [
                checker.sb_base(row) + self.sb_bytes(self.callees[row["func"]])
                for row in instructions_of(function["blocks"])
                if row["opcode"] == "NKIKernel" and row["func"] in self.callees
            ]
            self._room[name] = max(rooms, default=0)
        return self._room[name]


class _FunctionChecker:
    def __init__(self, module: _ModuleChecker, function: Json) -> None:
        self.module = module
        self.function = function
        self.locations: dict[str, list[tuple[Json, Json]]] = {}
        self.sets: dict[str, list[Json]] = {}
        self.registers: set[str] = set()
        for item in function["allocations"]:
            if item.get("Skind") == "register":
                self.registers.add(item["name"])
                continue
            self.sets.setdefault(item["name"], []).append(item)
            for place in item.get("memorylocations", []):
                self.locations.setdefault(place["name"], []).append((item, place))
        self.names = {row["name"] for row in instructions_of(function["blocks"]) if "name" in row}

    def report(self, where: str, what: str) -> None:
        self.module.found.append(f"`{self.function['name']}`, `{where}`: {what}")

    def check(self) -> None:
        self._blocks(self.function["blocks"], {}, [])
        for item in self.function["allocations"]:
            for place in item.get("memorylocations", []):
                self._placed(place)

    def _placed(self, place: Json) -> None:
        if place["type"] == "SB":
            limit = bir.SBUF_BYTES.get(self.module.document.get("arch", ""), math.inf)
            if place.get("addr", 0) + place["dims"][1] > limit:
                self.report(place["name"], "ends above the state buffer")
            if place.get("base", 0) + place["dims"][0] > bir.PARTITIONS:
                self.report(place["name"], "has more partitions than there are")
        if place["type"] == "PSUM" and place["dims"][1] > bir.PSUM_BANK_BYTES:
            self.report(place["name"], "is larger than a bank")

    def _blocks(self, blocks: list[Json], axes: Axes, outer: list[set[str]]) -> None:
        levels = [{block["name"] for block in blocks}, *outer]
        for block in blocks:
            for row in block["instructions"]:
                self._instruction(row, axes, levels)
                if row.get("blocks"):
                    axis: Json = row.get("LoopAxis") or {"name": "", "lb": 0, "ub": 1, "stride": 1}
                    lower, upper, stride = (evaluate(axis.get(key, 0), {}) for key in ("lb", "ub", "stride"))
                    values = range(lower, upper, stride or 1)
                    inner = {**axes, axis["name"]: values}
                    if "DynamicForLoopAxis" in row:  # what is not known has no values that could be checked
                        inner[row["DynamicForLoopAxis"]["name"]] = range(0)
                    self._blocks(row["blocks"], inner, levels)

    def _instruction(self, row: Json, axes: Axes, levels: list[set[str]]) -> None:
        where = row.get("name", row["opcode"])
        for role in ("ins", "indirection_ins", "outs"):
            for operand in row.get(role) or []:
                self._operand(where, operand, axes, role)
        for key in EDGE_LISTS:
            for entry in row.get(key) or []:
                name = entry if isinstance(entry, str) else entry[0]
                if name not in self.names:
                    self.report(where, f"`{key}` names `{name}`, which is no instruction")
        for slot in ("on_true", "on_false", *(["target"] if row["opcode"] == "UnconditionalBranch" else [])):
            if row.get(slot) is not None and not any(row[slot] in level for level in levels):
                self.report(where, f"`{slot}` names `{row[slot]}`, which is no block")
        if row.get("queue") is not None and row["queue"] not in self.module.queues:
            self.report(where, f"`{row['queue']}` is no queue")
        for name in row.get("dma_blocks") or []:
            if name not in self.module.dma_blocks:
                self.report(where, f"`{name}` is no DMA block")
        if row["opcode"] == "NKIKernel":
            self._call(row)

    def _operand(self, where: str, operand: Json, axes: Axes, role: str) -> None:
        for name in _members(operand, ("regref", "reg_ap_offset", "reg_sub_tensor_id")):
            if name not in self.registers:
                self.report(where, f"`{name}` is no register")
        for name in _members(operand, ("axis", "AxisLabel")):
            if name not in axes:
                self.report(where, f"`{name}` is no axis of an enclosing loop")
        if operand["kind"] == "physical_ap":
            found = self.locations.get(operand["memref"])
            if not found:
                self.report(where, f"`{operand['memref']}` is no location")
                return
            kinds = OUTPUTS if role == "outs" else INPUTS
            item, place = next((pair for pair in found if pair[0].get("kind") in kinds), found[0])
            if operand.get("memsetref", item["name"]) != item["name"]:
                self.report(where, f"`{operand['memsetref']}` is not the set of `{operand['memref']}`")
            self._bounds(where, operand, place, [operand["offset"]])
        elif operand["kind"] in ("symbolic_ap", "symbolic_pwap"):
            found = self.sets.get(operand["memsetref"])
            if not found or len(found[0]["memorylocations"]) != 1:
                self.report(where, f"`{operand['memsetref']}` is no set of one location")
                return
            item = found[0]
            offsets = list(_symbolic_offsets(operand, item, axes))
            if offsets:
                self._bounds(where, operand, item["memorylocations"][0], offsets)

    def _bounds(self, where: str, operand: Json, place: Json, offsets: list[int]) -> None:
        item = bir.ITEM_BYTES.get(operand["dtype"])
        if item is None:
            return
        pattern: list[list[int]] = operand["ap"]
        spans = [sorted((0, step * (count - 1))) for step, count in pattern]
        low, high = sum(span[0] for span in spans), sum(span[1] for span in spans)
        if place["type"] not in ("SB", "PSUM"):
            total = math.prod(place["dims"]) // item
            if min(offsets) + low < 0 or max(offsets) + high >= total:
                self.report(where, f"leaves `{place['name']}`")
            return
        pitch = place["dims"][1] // item
        step, lanes = pattern[0]
        free_low, free_high = low - spans[0][0], high - spans[0][1]
        for offset in offsets:
            first, column = divmod(offset, pitch) if pitch else (0, offset)
            last = (offset + step * (lanes - 1)) // pitch if pitch else 0
            if not 0 <= first <= last < place["dims"][0] or column + free_low < 0 or column + free_high >= pitch:
                self.report(where, f"leaves `{place['name']}`")
                return

    # calls

    def sb_base(self, row: Json) -> int:
        """Return the address that the callee's state buffer addresses are relative to."""
        outs = [self.locations[operand["memref"]][0][1] for operand in row["outs"] if "memref" in operand]
        banks = row.get("psum_buf_shape", [0])[0]
        if any(row.get("sb_buf_shape", [])) and len(outs) > banks:
            return outs[-1 - banks].get("addr", 0)
        return next((place.get("addr", 0) for place in outs if place["type"] == "SB"), 0)

    def _call(self, row: Json) -> None:
        where = row["name"]
        callee = self.module.callees.get(row["func"])
        if callee is None:
            self.report(where, f"`{row['func']}` is no function")
            return
        formals = {
            name: (item, place)
            for item in callee["allocations"]
            if item.get("kind") in INPUTS + OUTPUTS
            for place in item["memorylocations"]
            for name in (item["name"], place["name"])
        }
        bound: set[int] = set()
        registers = {item["name"] for item in callee["allocations"] if item.get("Skind") == "register"}
        for key in ("func_args", "func_outs"):
            entries = row.get(key) or {}
            for formal, actual in entries.items() if isinstance(entries, dict) else entries:
                if formal in registers:
                    if actual not in self.registers:
                        self.report(where, f"`{actual}` is no register")
                    continue
                if formal not in formals:
                    self.report(where, f"`{formal}` is no parameter of `{row['func']}`")
                    continue
                bound.add(id(formals[formal][0]))
                place = self._actual(actual)
                if place is None:
                    self.report(where, f"`{actual}` is no location")
                elif math.prod(place["dims"]) != math.prod(formals[formal][1]["dims"]):
                    self.report(where, f"`{actual}` has not the size of `{formal}`")
        unnamed = [item for item, _ in formals.values() if id(item) not in bound]
        if len(set(map(id, unnamed))) > sum("memref" in operand for operand in [*row["ins"], *row["outs"]]):
            self.report(where, "has fewer operands than parameters that are not bound by name")
        limit = bir.SBUF_BYTES.get(self.module.document.get("arch", ""), math.inf)
        if self.sb_base(row) + self.module.sb_bytes(callee) > limit:
            self.report(where, f"`{row['func']}` does not fit into the state buffer")

    def _actual(self, name: str) -> Json | None:
        if name in self.locations:
            return self.locations[name][0][1]
        if name in self.sets:
            return self.sets[name][0]["memorylocations"][0]
        return None


def _members(value: Any, keys: tuple[str, ...]) -> Iterator[str]:
    """Yield the strings under the given keys, at any depth."""
    if isinstance(value, dict):
        for key, item in cast(Json, value).items():
            if key in keys and isinstance(item, str):
                yield item
            else:
                yield from _members(item, keys)
    elif isinstance(value, list):
        for item in cast(list[Any], value):
            yield from _members(item, keys)


def evaluate(expression: Json | int, axes: dict[str, int]) -> int:
    """Return the value of an expression over loop axes.

    Parameters
    ----------
    expression : dict or int
        The expression, in the form of either version.
    axes : dict of str to int
        The value of each axis.

    Returns
    -------
    int
        The value.

    Raises
    ------
    ValueError
        The expression depends on something else.

    Examples
    --------
    >>> evaluate({"c": 1, "kind": "AffExprKind", "terms": []}, {})
    1
    """
    if isinstance(expression, int):
        return expression
    kind = expression.get("kind")
    if kind is None:
        terms = sum(term["coef"] * axes[term["AxisLabel"]] for term in expression["terms"]) + expression["c"]
        operation, operand = expression.get("op"), expression.get("op_param", 1)
        return {"Div": terms // operand, "Mod": terms % operand}.get(str(operation), terms)
    if kind == "AffExprKind":
        terms = expression["terms"]
        return sum(term["coeff"] * evaluate(term["idx"], axes) for term in terms) + expression["c"]
    if kind == "AffIVKind":
        return axes[expression["axis"]]
    if kind == "SumKind":
        return sum(evaluate(term, axes) for term in expression["terms"])
    if kind == "MultKind":
        return evaluate(expression["var"], axes) * expression["scale"]
    if kind in ("FloorDivKind", "ModuloKind"):
        quotient, rest = divmod(evaluate(expression["numer"], axes), expression["denom"])
        return quotient if kind == "FloorDivKind" else rest
    if kind == "ShardIDKind":
        return 0
    raise ValueError(f"`{kind}` has no value before the program runs")


def _symbolic_offsets(operand: Json, item: Json, axes: Axes) -> Iterator[int]:
    shape: list[int] = item["tensor_shape"]
    place = item["memorylocations"][0]
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if place["type"] in ("SB", "PSUM"):
        strides[0] = place["dims"][1] // bir.ITEM_BYTES[operand["dtype"]]
    used = {name: axes[name] for name in _members(operand, ("axis", "AxisLabel")) if name in axes}
    for values in itertools.product(*used.values()):
        known = dict(zip(used, values, strict=True))
        yield sum(evaluate(address, known) * stride for address, stride in zip(operand["addrs"], strides, strict=True))
