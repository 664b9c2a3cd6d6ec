"""Drawn modules full of collectives of several channels, most of which can be merged."""

from random import Random
from typing import Any

Json = dict[str, Any]

SAME: dict[str, tuple[Any, ...]] = {
    "op": ("bypass", None),
    "replica_groups": (None, []),
    "order": (None, []),
    "can_read_uninit": (False, None, {"c": 0, "kind": "AffExprKind", "terms": []}, 0),
    "is_local": (False, None),
    "src_target_pairs": (None, []),
}
"""Spellings of the default, beside none at all."""

OTHER: dict[str, tuple[Any, ...]] = {
    "op": ("add", "max"),
    "engine": ("SP", "Activation"),
    "kind": ("PermuteReduceImplicit", "PermuteImplicit", "AllReduce", "Permute"),
    "replica_groups": ([[0, 1]], [[0], [1]]),
    "order": (
        [{"kind": "IntRuntimeValueKind", "regref": "r"}],
        [{"kind": "IntRuntimeValueKind", "regref": "s"}],
        [{"c": 1, "kind": "AffExprKind", "terms": []}, 2],
        [1, 2],
    ),
    "can_read_uninit": (True, 1),
    "is_local": (True,),
    "src_target_pairs": ([[0, 1], [1, 0]],),
}

KINDS_OF_EDGES = ("Flow", "Anti", 4, "Ordered")


class ChannelDrawer:
    """Draws the instructions of one module.

    Parameters
    ----------
    random : random.Random
        Where choices come from.
    """

    def __init__(self, random: Random) -> None:
        self.random = random
        self.faults = random.choice([0.0, 0.0, 0.0, 0.05])
        self.repeats = random.random() < 0.15
        self.ordered = random.random() < 0.5
        self.names: list[str] = []
        self.written: list[Json] = []

    def document(self) -> Json:
        """Return a module of one or two functions."""
        functions = [self.function(name) for name in ("main", "other")[: self.random.choice([1, 1, 2])]]
        return {"version": self.random.choice([1, 2, 2]), "arch": "gen3", "functions": functions}

    def function(self, name: str) -> Json:
        """Return a function."""
        self.names, self.written = [], []
        blocks = [{"name": f"B{n}", "instructions": self.rows(0)} for n in range(self.random.choice([1, 1, 2]))]
        for row in self.written:
            self.add_names(row)
        registers = [{"Skind": "register", "name": name} for name in ("r", "s")]
        return {"name": name, "allocations": registers, "blocks": blocks}

    def name(self) -> str:
        """Return a name, at times one that is there already."""
        if self.repeats and self.names and self.random.random() < 0.3:
            return self.random.choice(self.names)
        name = f"i{len(self.names)}"
        self.names.append(name)
        return name

    def rows(self, depth: int) -> list[Json]:
        """Return the instructions of a block."""
        rows: list[Json] = []
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.random()
            if kind < 0.6:
                rows += self.run()
            elif kind < 0.75 and depth < 2:
                axis = {"name": "x", "lb": 0, "ub": 2, "stride": 1}
                body = [{"name": self.name(), "instructions": self.rows(depth + 1)}]
                rows.append({"name": self.name(), "opcode": "Loop", "LoopAxis": axis, "blocks": body})
            else:
                rows.append(self.row("NoOp"))
        return rows

    def run(self) -> list[Json]:
        """Return collectives of one to five channels."""
        random = self.random
        channels = list(range(random.choice([0, 0, 0, 0, 1]), random.randint(1, 5)))
        members: Json = {
            "kind": random.choice(["PermuteImplicit", "PermuteReduceImplicit", "PermuteImplicit", "SendRecv"])
        }
        if random.random() < 0.5:
            key = random.choice(list(OTHER))
            members[key] = random.choice(OTHER[key])
        if random.random() < self.faults:
            members |= {"replica_groups": [[0, 1]], "src_target_pairs": [[0, 1], [1, 0]]}
        rows = []
        for channel in channels:
            row = self.row("CollectiveCompute")
            row.update(members)  # not another object: that of `written` gets edges and waits
            row["cc_channel"] = random.choice(
                [channel, channel, channel, {"c": channel, "kind": "AffExprKind", "terms": []}]
            )
            for key, spellings in SAME.items():
                if key not in row and random.random() < 0.3:
                    row[key] = random.choice(spellings)
            if random.random() < self.faults:
                row["cc_channel"] = random.choice(
                    [channel + 1, 7, -1, None, {"kind": "AffIVKind", "axis": "x"}, {"kind": "ShardIDKind", "ub": 4}]
                )
            if random.random() < self.faults:
                key = random.choice(list(OTHER))
                row[key] = random.choice(OTHER[key])
            if random.random() < self.faults:
                row |= {"predicates": [{"p": 1}]}
            rows.append(row)
        return rows

    def row(self, opcode: str) -> Json:
        """Return an instruction without names of others."""
        random = self.random
        row: Json = {"name": self.name(), "opcode": opcode, "engine": "Pool"}
        for key in ("ins", "outs", "indirection_ins"):
            if opcode == "CollectiveCompute" and random.random() < 0.7:
                count = random.randint(0, 2)
                row[key] = [
                    {"kind": "imm_value", "dtype": "int32", "value": random.randint(0, 99)} for _ in range(count)
                ]
                if random.random() < 0.2:
                    row[key].append({"kind": "register_access", "dtype": "int32", "regref": random.choice("rs")})
        row.setdefault("ins", [])
        row.setdefault("outs", [])
        self.written.append(row)
        return row

    def edge(self) -> Any:
        """Return an entry of a list of edges."""
        random = self.random
        name = random.choice([*self.names, "gone"])
        return random.choice([name, name, [name], [name, random.choice(KINDS_OF_EDGES)]])

    def add_names(self, row: Json) -> None:
        """Add what names other instructions, and put members in order."""
        random = self.random
        for key in ("dependencies", "loop_carried_dependencies"):
            if random.random() < 0.4:
                row[key] = [self.edge() for _ in range(random.randint(0, 3))]
        if random.random() < 0.2:
            value = {"kind": "IntRuntimeValueKind", "regref": random.choice("rs")}
            row["unroll_dependencies"] = [
                [random.choice(self.names), "Flow", [random.choice([value, 1])]] for _ in range(random.randint(1, 2))
            ]
        if random.random() < 0.3:
            row["sync_info"] = random.choice([None, {}, self.sync(), self.sync()])
        if random.random() < 0.2:
            row["debug"] = {"lineno": random.randint(0, 9)}
        keys = sorted(row) if self.ordered else random.sample(list(row), len(row))
        members = {key: row[key] for key in keys}
        row.clear()
        row.update(members)

    def sync(self) -> Json:
        """Return waits and updates."""
        random = self.random
        made: Json = {}
        if random.random() < 0.7:
            made["on_wait"] = [
                {"from": random.choice([*self.names, "queue"]), "id": n, "wait_value": 1}
                for n in range(random.randint(0, 2))
            ]
        if random.random() < 0.7:
            made["on_update"] = [{"id": n, "update_value": 1} for n in range(random.randint(0, 2))]
        if random.random() < 0.3:
            made["mode"] = "x"
        return made


def collectives(random: Random) -> Json:
    """Return a module with runs of collectives."""
    return ChannelDrawer(random).document()
