"""Drawn modules with generic indirect loads and saves that can be executed, and indices that lie in their tables."""

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from arrowir.testing import bir

Json = dict[str, Any]

DTYPES = ("float32", "bfloat16", "float16", "int32", "uint8", "float8e4")
ADDABLE = ("float32", "bfloat16", "float16", "int32")
BIAS = 1 << 32


def argument(number: int) -> Json:
    return {"arg_id": number, "kind": "IndirectArgId"}


@dataclass
class IndirectDrawer:
    """Draws the instructions of one function.

    Parameters
    ----------
    random : random.Random
        Where choices come from.
    """

    random: Random
    sets: list[Json] = field(default_factory=list)
    rows: list[Json] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    """Contents of the inputs that hold indices."""

    def document(self, accesses: int) -> Json:
        """Return a module with so many generic accesses."""
        for number in range(accesses):
            self.access(number)
        for number, row in enumerate(self.rows):
            self.decorate(row, number)
        function = bir.function("main", self.sets, [bir.block("b0", self.rows)])
        return bir.module([function])

    def tensor(self, name: str, memory: str, shape: list[int], dtype: str, kind: str = "Internal") -> None:
        self.sets.append(bir.tensor(name, memory, shape, dtype, kind=kind))

    def add(self, name: str, opcode: str, ins: list[Json], outs: list[Json], **keys: Any) -> Json:
        row = bir.instruction(name, opcode, "Pool", ins, outs, keys=keys)
        self.rows.append(row)
        return row

    @staticmethod
    def whole(name: str, shape: list[int], dtype: str) -> Json:
        return bir.access(name, [[shape[1], shape[0]], [1, shape[1]]], dtype)

    def index(self, name: str, rows: int, below: int) -> Json:
        """Return an operand of indices below a bound, and what brings them there."""
        random = self.random
        dtype = random.choice(["int32", "int32", "int64", "uint64"])
        width, column = random.randint(1, 2), 0
        column = random.randint(0, width - 1)
        values = np.array([[random.randrange(below) for _ in range(width)] for _ in range(rows)], dtype)
        if dtype == "int32":
            self.inputs[name] = values
        else:
            self.inputs[name] = values + np.array(BIAS, dtype)
        self.tensor(name, "DRAM", [rows, width], dtype, "ExternalInput")
        self.tensor(f"{name}_sb", "SB", [rows, width], dtype)
        self.add(
            f"load_{name}",
            "Load",
            [self.whole(name, [rows, width], dtype)],
            [self.whole(f"{name}_sb", [rows, width], dtype)],
        )
        return bir.access(f"{name}_sb", [[width, rows], [1, 1]], dtype, offset=column)

    def access(self, number: int) -> None:
        """Add a generic access with all that belongs to it."""
        random = self.random
        save = random.random() < 0.5
        op = random.choice(["add", "bypass"]) if save else ""
        dtype = random.choice(ADDABLE if op == "add" else DTYPES)
        name, rows = f"t{number}", random.choice([1, 2, 3, 8, 17])
        form = random.choice(["symbolic", "symbolic", "plain", "deep", "dynamic"])
        table, dims, bounds, entry = getattr(self, f"_{form}")(name, rows, dtype)
        kind = "ExternalOutput" if save else "ExternalInput"
        self.sets.append(table["set"](kind))
        indices = [self.index(f"{name}_i{k}", rows, bound) for k, bound in enumerate(bounds)]
        behind = table["list"] is False
        data = f"{name}_data"
        self.tensor(data, "SB", [rows, entry], dtype)
        self.tensor(f"{data}_d", "DRAM", [rows, entry], dtype, "ExternalInput" if save else "ExternalOutput")
        far, near = (self.whole(n, [rows, entry], dtype) for n in (f"{data}_d", data))
        head = near if save else table["operand"]
        ins = [head, *indices] if behind else [head]
        keys: Json = {"indirect_dims": dims}
        if save and not (op == "add" and random.random() < 0.5):
            keys["op"] = op
        if random.random() < 0.3:
            keys["queue"] = "q"
        if save:
            self.add(f"{data}_load", "Load", [far], [near])
        row = self.add(
            f"g{number}" if random.random() < 0.8 else "g",
            "GenericIndirectSave" if save else "GenericIndirectLoad",
            ins,
            [table["operand"] if save else near],
            **keys,
        )
        if not behind:
            row["indirection_ins"] = indices
            row.update(dict(sorted(row.items())))
        if not save:
            self.add(f"{data}_save", "Save", [near], [far])

    # -- tables ----

    def _set(self, name: str, dims: list[int], shape: list[int], dtype: str) -> Any:
        def made(kind: str) -> Json:
            found = bir.tensor(name, "DRAM", dims, dtype, kind=kind)
            found["tensor_shape"] = shape
            return found

        return made

    def _symbolic(self, name: str, rows: int, dtype: str) -> tuple[Json, list[str], list[int], int]:
        random = self.random
        count = random.randint(1, 3)
        shape = [random.randint(2, 6) for _ in range(count)] + [random.randint(2, 9)]
        constant = random.choice([0, 0, random.randint(0, shape[-1] - 1)])
        entry = random.randint(1, shape[-1] - constant)
        in_list = count == 1 and random.random() < 0.5
        bounds, addresses = [], []
        for k in range(count):
            shift = random.choice([0, 0, 1])
            bounds.append(shape[k] - shift)
            number: Any = argument(0 if in_list else k + 1)
            forms = [
                {"c": shift, "kind": "AffExprKind", "terms": [{"coeff": 1, "idx": number}]},
                {"kind": "SumKind", "n_terms": 2, "terms": [number, {"c": shift, "kind": "AffExprKind", "terms": []}]},
            ]
            addresses.append(random.choice([number, *forms] if not shift else forms))
        addresses.append({"c": constant, "kind": "AffExprKind", "terms": []})
        total = math.prod(shape[:-1])
        operand = {
            "access_shape": [rows, entry], "addrs": addresses, "ap": [[shape[-1], rows], [1, entry]], "dtype": dtype,
            "kind": "symbolic_ap", "memsetref": f"{name}_set",
        }  # fmt: skip
        table = {"set": self._set(name, [total, shape[-1]], shape, dtype), "operand": operand, "list": in_list}
        return table, random.sample("WZYX", count), bounds, entry

    def _plain(self, name: str, rows: int, dtype: str) -> tuple[Json, list[Any], list[int], int]:
        random = self.random
        count, length, before = random.randint(1, 9), random.randint(1, 7), random.choice([0, 0, 1])
        shape = [count + before, length]
        operand = bir.access(name, [[length, count], [1, length]], dtype, offset=before * length)
        table = {"set": self._set(name, shape, shape, dtype), "operand": operand, "list": random.random() < 0.5}
        return table, [random.choice(["W", 0])], [count], length

    def _deep(self, name: str, rows: int, dtype: str) -> tuple[Json, list[Any], list[int], int]:
        random = self.random
        nums = [random.randint(1, 5) for _ in range(4)]
        count = random.randint(1, 3)
        steps = [math.prod(nums[d + 1 :]) for d in range(4)]
        operand = bir.access(name, [[step, num] for step, num in zip(steps, nums, strict=True)], dtype)
        dims = list("WZYX"[:count])
        random.shuffle(dims)
        bounds = [nums["WZYX".index(dim)] for dim in dims]
        table = {
            "set": self._set(name, [nums[0], steps[0]], nums, dtype),
            "operand": operand,
            "list": random.random() < 0.5,
        }
        return table, dims, bounds, math.prod(nums[count:])

    def _dynamic(self, name: str, rows: int, dtype: str) -> tuple[Json, list[Any], list[int], int]:
        random = self.random
        count, length, constant = random.randint(1, 9), random.randint(1, 7), random.choice([0, 2])
        by_offset = random.random() < 0.5
        term: Json = {"offset_expr": argument(1)}
        if rows == 1 or random.random() < 0.5:
            term["coef"] = length
        info = {
            "aff_expr": [term], "c": 0 if by_offset else constant, "indirect_dim": "W", "indirect_dim_max_index": count,
        }  # fmt: skip
        operand = bir.access(
            name, [[length, rows], [1, length]], dtype, offset=constant if by_offset else 0, dynamic_ap_info=info
        )
        shape = [count + 2, length]
        table = {"set": self._set(name, shape, shape, dtype), "operand": operand, "list": False}
        return table, ["W"], [count], length

    # -- around the accesses ----

    def decorate(self, row: Json, number: int) -> None:
        """Give an instruction edges, waits and keys that have nothing to do with what it computes."""
        random = self.random
        names = [each["name"] for each in self.rows[:number]]
        for key in ("dependencies", "loop_carried_dependencies"):
            row.pop(key, None)
            if names and random.random() < 0.6:
                entries = [
                    random.choice([n, [n, "Flow"]]) for n in random.sample(names, min(len(names), random.randint(0, 2)))
                ]
                row[key] = entries
        generic = row["opcode"].startswith("Generic")
        if generic and random.random() < 0.4:
            row["sync_info"] = {
                key: [{"id": 3, word: 1}]
                for key, word in (("on_wait", "wait_value"), ("on_update", "update_value"))
                if random.random() < 0.6
            }
        if random.random() < 0.3:
            row["debug"] = {"lineno": number}
        if random.random() < 0.3:
            row["unknown"] = 1.5
        if random.random() < 0.6:
            members = dict(sorted(row.items()))
            row.clear()
            row.update(members)


def indirect_module(random: Random) -> tuple[Json, dict[str, Any]]:
    """Return a module with generic accesses, and the inputs that hold their indices."""
    drawer = IndirectDrawer(random)
    document = drawer.document(random.randint(1, 3))
    return document, drawer.inputs
