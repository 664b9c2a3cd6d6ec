"""Random modules of kernels that branch and call each other, with names that never repeat in a function."""

from random import Random

from tests.oracle.builders import Obj, block, call, function, jump, loop, module, op


class CallMaker:
    """Makes a module: `main`, and kernels `k0`, `k1`, ... of which each calls only later ones."""

    def __init__(self, seed: int, kernels: int = 4) -> None:
        self.random = Random(seed)
        self.kernels = kernels
        self.rows = 0

    def module(self) -> Obj:
        callees = [self.function(f"k{number}", range(number + 1, self.kernels)) for number in range(self.kernels)]
        return module(self.function("main", range(self.kernels), sites=3), kernels=callees)

    def function(self, name: str, callees: range, sites: int = 1) -> Obj:
        in_main = name == "main"
        labels = [f"b{number}" for number in range(self.random.choice((1, 1, 2, 3)))]
        blocks = [block(label, *self.items(callees, labels, in_main=in_main, sites=sites)) for label in labels]
        self.add_edges([row for each in blocks for row in rows_of(each)])
        return function(name, [], blocks=blocks)

    def items(self, callees: range, labels: list[str], *, in_main: bool, sites: int, depth: int = 0) -> list[Obj]:
        """Rows of a block whose branches may go to these labels."""
        found: list[Obj] = []
        for _ in range(self.random.choice((0, 1, 2, 3, 3, 4, 4, 5))):
            kind = self.random.random()
            if kind < 0.4 or depth > 1:
                found.append(op(self.name("w"), "Load"))
            elif kind < 0.55 and callees:
                found.append(self.call_site(callees))
            elif kind < 0.67:
                found.append(self.loop(callees, labels, in_main=in_main, depth=depth))
            elif kind < 0.75:
                found.append(self.branch(labels))
            elif kind < 0.83:
                found.append(self.leave())
            elif kind < 0.85:
                found.append(op(self.name("x"), "Exit"))
        for _ in range(self.random.randrange(sites + 1) if callees and not depth else 0):
            found.insert(self.random.randrange(len(found) + 1), self.call_site(callees))
        if not depth and self.random.random() < 0.4:
            found.append(self.branch(labels) if self.random.random() < 0.5 else self.leave())
        return found

    def name(self, letter: str) -> str:
        self.rows += 1
        return f"{letter}{self.rows}"

    def call_site(self, callees: range) -> Obj:
        return call(self.name("s"), f"k{self.random.choice(callees)}")

    def leave(self) -> Obj:
        """A `Return` that can be told from new branches when it has become a branch itself."""
        return op(self.name("r"), "Return", was="Return")

    def branch(self, labels: list[str]) -> Obj:
        if self.random.random() < 0.5:
            return jump(self.name("j"), self.random.choice(labels))
        goes = {key: self.random.choice(labels) for key in ("on_true", "on_false")}
        return op(self.name("c"), "CompareAndBranch", **goes)

    def loop(self, callees: range, labels: list[str], *, in_main: bool, depth: int) -> Obj:
        """In `main` of any blocks; in a kernel of one, to which nothing branches."""
        name = self.name("l")
        own = [f"{name}_{letter}" for letter in "ab"[: self.random.choice((1, 2))]] if in_main else [f"{name}_a"]
        reachable = [*labels, *own] if in_main else labels
        made = loop(name, f"i{name}", (0, self.random.randrange(3), 1), ins=[], outs=[], engine="Pool")
        options = {"in_main": in_main, "sites": 1, "depth": depth + 1}
        made["blocks"] = [block(label, *self.items(callees, reachable, **options)) for label in own]
        return made

    def add_edges(self, rows: list[Obj]) -> None:
        for row in rows:
            for relation in ("dependencies", "loop_carried_dependencies"):
                if self.random.random() < 0.3:
                    named = self.random.sample(rows, min(len(rows), self.random.randrange(1, 3)))
                    row[relation] = [[each["name"], self.random.choice(("Flow", "Anti"))] for each in named]


def rows_of(one: Obj) -> list[Obj]:
    found = []
    for row in one["instructions"]:
        found.append(row)
        for inner in row.get("blocks", []):
            found += rows_of(inner)
    return found
