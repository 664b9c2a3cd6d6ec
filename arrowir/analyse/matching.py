"""Which rows of two batches are the same thing, and which are clones of what.

From the outside in: modules, functions, storage, blocks, instructions. Things that have names are paired by enclosing
thing and name, then by function and name, then by content (a new name). Rows whose call chain is new are looked up in
the kernel function that they were cloned from. All steps are sorts and gathers over whole tables.
"""

import numpy as np

from arrowir import schema
from arrowir.analyse.children import CHILDREN, match_children, owners
from arrowir.analyse.sides import Sides, Twins, find, hashed, hashed_pool, mixed, rank, repeats, zipped
from arrowir.derived import take
from arrowir.store import Array

NAMED: tuple[str, ...] = ("modules", "functions", "queues", "sets", "locations", "registers", "blocks", "instructions")
"""Tables whose rows are things with a name."""

CLONED: tuple[str, ...] = ("sets", "locations", "registers", "blocks", "instructions")
"""Tables whose rows have provenance."""


REFERRING_IN_ORDER = tuple(name for name in schema.STRUCTURAL["table"] if name in schema.REFERRING)
"""Tables whose rows may hold references, in the order of their codes."""


class Match:
    """The rows of two batches, matched.

    Parameters
    ----------
    sides
        The batches.
    """

    def __init__(self, sides: Sides) -> None:
        self.sides = sides
        self.twins = {table: Twins(sides.count(table)) for table in NAMED}
        self.origin: dict[str, Array] = {}
        """For each row after the row before that it is, or is a clone of; -1 for new ones."""
        self._modules()
        self._functions()
        self._chains()
        self._storage()
        self._code()
        for table in NAMED:
            self.origin[table] = self._with_clones(table)
        self.kin = {table: match_children(self, table) for table in CHILDREN}
        """The rows that have no name, paired."""

    def chains(self, table: str) -> Array:
        """Return the call chain of each row after, that of its owner for rows without a name; -1 for none."""
        if table in CLONED:
            return self.sides.after.tables[table]["call_chain_id"]
        if table not in CHILDREN:
            return np.full(self.sides.after.count(table), -1, np.int32)
        owner = owners(self, table)[1]
        if CHILDREN[table].owner:
            return take(self.chains(CHILDREN[table].owner), owner)
        return take(np.concatenate([self.chains(t) for t in REFERRING_IN_ORDER]), owner)

    def image(self, table: str, ids: Array, chain: Array) -> Array:
        """Return what ids of rows after are in the numbers of the rows before.

        That is the row itself if it was there, the row that it is a clone of if it came with the same call chain, and
        else a number that no row before has.

        Parameters
        ----------
        table
            Table of the rows.
        ids
            Their ids, -1 for none.
        chain
            Call chain of the rows that name them.
        """
        if not len(self.origin[table]):
            return np.full(len(ids), -1, np.int64)
        at = np.maximum(ids, 0)
        same = self.kept(table)[at] | ((self.origin[table][at] >= 0) & (self.chains(table)[at] == chain))
        return np.where(ids < 0, -1, np.where(same, self.origin[table][at], self.sides.before.count(table) + at))

    def kept(self, table: str) -> Array:
        """Return a mask of the rows after that were there before."""
        return self.twins[table].source >= 0

    # -- modules, functions -------------------------------------------------------------------------------------------

    def _modules(self) -> None:
        """Pair modules by name, and the rest in order."""
        twins = self.twins["modules"]
        twins.join(self.sides.hashes("modules"))
        twins.join((np.zeros(twins.before, np.int64), np.zeros(twins.after, np.int64)))

    def _functions(self) -> None:
        sides, twins = self.sides, self.twins["functions"]
        names = sides.hashes("functions")
        module = self._scopes("functions", "module_id", "modules")
        nki = sides.arrays("functions", "in_nki_functions")
        twins.join(zipped(module, nki, names))
        twins.join(zipped(module, names))
        if (twins.twin < 0).any() and (twins.source < 0).any():
            twins.join(zipped(module, nki, _codes_of(sides, "functions")))
        module, twins = self._scopes("queues", "module_id", "modules"), self.twins["queues"]
        self._by_name("queues", module)
        if (twins.twin < 0).any() and (twins.source < 0).any():
            twins.join(zipped(module, _codes_of(sides, "queues")))

    def _scopes(self, table: str, key: str, above: str) -> tuple[Array, Array]:
        """Return of each row the thing that encloses it, in common numbers."""
        before, after = self.sides.arrays(table, key)
        return before, take(self.twins[above].image, after)

    # -- provenance ---------------------------------------------------------------------------------------------------

    def _chains(self) -> None:
        """Find the call chains that are new, and the kernel function before that each went into."""
        sides = self.sides
        twins = Twins(sides.count("call_chains"))
        rows = sides.before.tables["call_chains"], sides.after.tables["call_chains"]
        names = sides.hashes("call_chains")
        kernel = sides.cells("call_chains", "kernel")
        module = self._scopes("call_chains", "module_id", "modules")
        depth = rows[0]["depth"], rows[1]["depth"]
        for level in np.unique(depth[1]).tolist() if len(rows[0]) else ():
            parent = rows[0]["parent_id"], take(twins.image, rows[1]["parent_id"])
            twins.join(zipped(module, parent, names, kernel), (depth[0] == level, depth[1] == level))
        self.kernel_of_chain = np.full(twins.after, -1, np.int64)
        """For each new chain the kernel function before; -1 where there is none of its name, and for old chains."""
        new = np.flatnonzero(twins.source < 0)
        if not len(new) or not sides.before.count("functions"):
            return
        functions = np.argsort(-sides.before.array("functions", "is_kernel"), kind="stable")
        owner = sides.before.array("functions", "module_id")[functions]
        known = mixed(owner, hashed(sides.text(False, "functions"))[functions])
        called = hashed_pool(sides.after.pools.names, rows[1]["kernel"][new])
        wanted = mixed(self.twins["modules"].source[rows[1]["module_id"][new]], called)
        order, first, number = find(known, wanted)
        has = number > 0
        self.kernel_of_chain[new[has]] = functions[order[first[has]]]

    def fresh(self, table: str) -> Array:
        """Return a mask of the rows after that are clones of rows of a kernel function that is there before."""
        chain = self.sides.after.tables[table]["call_chain_id"]
        return take(self.kernel_of_chain, chain) >= 0 if len(self.kernel_of_chain) else np.zeros(len(chain), bool)

    def _with_clones(self, table: str) -> Array:
        """Return the row before that each row after is, or is a clone of."""
        origin = self.twins[table].source.copy()
        if table not in CLONED or not len(self.kernel_of_chain):
            return origin
        sides = self.sides
        rows = np.flatnonzero(self.fresh(table) & (origin < 0))
        if not len(rows):
            return origin
        chain = sides.after.tables[table]["call_chain_id"][rows]
        names = sides.text(True, table, "original_name").gather(rows)
        wanted = mixed(self.kernel_of_chain[chain], hashed(names))
        known = mixed(sides.before.array(table, "function_id"), hashed(sides.text(False, table)))
        kinds = self._kinds_of(table)
        _, _, number = find(known, wanted)
        several = np.flatnonzero(number > 1)
        alone = np.flatnonzero(number == 1)
        origin[rows[alone]] = _looked_up(known, wanted[alone], chain[alone])
        # Where names repeat in the kernel, what else cloning leaves as it is tells the rows apart.
        closer = _looked_up(mixed(known, kinds[0]), mixed(wanted, kinds[1][rows])[several], chain[several])
        rest = several[closer < 0]
        origin[rows[several]] = closer
        origin[rows[rest]] = _looked_up(known, wanted[rest], chain[rest])
        return origin

    def _kinds_of(self, table: str) -> tuple[Array, Array]:
        """Return a hash of what a clone has in common with its original, beside the name."""
        cells = self.sides.cells
        if table == "instructions":
            return zipped(cells(table, "opcode"), cells(table, "engine"), cells(table, "debug"))
        if table == "sets":
            return zipped(cells(table, "kind"), cells(table, "tensor_class"))
        if table == "locations":
            kind, owner = cells("sets", "kind"), self.sides.arrays(table, "set_id")
            return zipped(cells(table, "type"), _gathered(kind, owner))
        before, after = self.sides.count(table)
        return np.zeros(before, np.int64), np.zeros(after, np.int64)

    # -- storage ------------------------------------------------------------------------------------------------------

    def _storage(self) -> None:
        sides, sets, locations = self.sides, self.twins["sets"], self.twins["locations"]
        function = self._scopes("sets", "function_id", "functions")
        free = {table: ~self.fresh(table) for table in ("sets", "locations", "registers")}
        columns = ("kind", "tensor_class", "dtype", "addr_space", "tensor_shape", "extra")
        alike = zipped(*(sides.cells("sets", c) for c in columns))
        self._by_name("sets", function, alike)
        names = sides.hashes("locations")
        columns = ("type", "partitions", "bytes", "addr", "base", "bank", "extra")
        content = zipped(*(sides.cells("locations", c) for c in columns))
        self._by_name("locations", self._scopes("locations", "set_id", "sets"), content)
        around = self._scopes("locations", "function_id", "functions")
        locations.join(zipped(around, names), (True, free["locations"]))
        pairs = np.flatnonzero(locations.twin >= 0)
        owner = sides.arrays("locations", "set_id")
        sets.vote(owner[0][pairs], owner[1][locations.twin[pairs]])
        sets.join(zipped(function, alike), (True, free["sets"]))
        in_kept = (sets.twin[owner[0]] >= 0, (sets.source[owner[1]] >= 0) & free["locations"])
        locations.join(self._scopes("locations", "set_id", "sets"), in_kept)
        self._by_name("registers", self._scopes("registers", "function_id", "functions"))
        alike = zipped(*(sides.cells("registers", c) for c in ("storage", "extra")))
        function = self._scopes("registers", "function_id", "functions")
        self.twins["registers"].join(zipped(function, alike), (True, free["registers"]))

    def _by_name(self, table: str, scope: tuple[Array, Array], content: tuple[Array, Array] | None = None) -> None:
        """Pair rows by enclosing thing and name; where names repeat, those of equal content first."""
        keys = zipped(scope, self.sides.hashes(table))
        if content is not None and (repeats(keys[0]) or repeats(keys[1])):
            self.twins[table].join(zipped(keys, content))
        self.twins[table].join(keys)

    # -- code ---------------------------------------------------------------------------------------------------------

    def _code(self) -> None:
        sides, blocks, instructions = self.sides, self.twins["blocks"], self.twins["instructions"]
        scope = self._block_scopes()
        names, of_instructions = sides.hashes("blocks"), sides.hashes("instructions")
        loop = sides.arrays("blocks", "instruction_id")
        owner = _gathered(of_instructions, loop)
        owner = np.where(loop[0] < 0, 0, owner[0]), np.where(loop[1] < 0, 0, owner[1])
        blocks.join(zipped(scope, owner, names))
        blocks.join(zipped(scope, names), (True, ~self.fresh("blocks")))
        block = sides.arrays("instructions", "block_id")
        free = ~self.fresh("instructions")
        key = block[0], take(blocks.image, block[1])
        keys = zipped(key, of_instructions)
        content: tuple[Array, Array] | None = None
        if repeats(keys[0]) or repeats(keys[1]):
            content = self._contents()
            instructions.join(zipped(keys, content))
        instructions.join(keys)
        keys = zipped(_gathered(scope, block), of_instructions)
        if content is not None:
            instructions.join(zipped(keys, content), (True, free))
        instructions.join(keys, (True, free))
        pairs = np.flatnonzero(instructions.twin >= 0)
        blocks.vote(block[0][pairs], block[1][instructions.twin[pairs]])
        if (instructions.twin < 0).any() and ((instructions.source < 0) & free).any():
            key = block[0], take(blocks.image, block[1])
            instructions.join(zipped(key, content or self._contents()), (True, free))

    def _block_scopes(self) -> tuple[Array, Array]:
        """Return of each block the function or queue that it is in, in common numbers."""
        function, queue = (self.sides.arrays("blocks", column) for column in ("function_id", "queue_id"))
        images = take(self.twins["functions"].image, function[1]), take(self.twins["queues"].image, queue[1])
        return (
            np.where(function[0] < 0, -2 - queue[0].astype(np.int64), function[0]),
            np.where(function[1] < 0, -2 - images[1], images[0]),
        )

    def _contents(self) -> tuple[Array, Array]:
        """Return a hash of what each instruction is, its name, edges and targets aside."""
        sides = self.sides
        columns = ("opcode", "engine", "engine_id", "debug", "extra")
        own = [sides.cells("instructions", column) for column in columns]
        columns = ("role", "kind", "dtype", "offset", "pattern_id", "extra", "name", "set_name", "register_name")
        cells = [sides.cells("operands", column) for column in columns]
        for column in ("location_id", "set_id", "register_id"):
            ids = sides.arrays("operands", column)
            image = self.twins[schema.BY_NAME["operands"].column(column).of or ""].image
            cells.append((ids[0], take(image, ids[1])))
        operands = zipped(*cells)
        owner, count = sides.arrays("operands", "instruction_id"), sides.count("instructions")
        before, after = (_summed(operands[side], owner[side], count[side]) for side in (0, 1))
        return zipped(*own, (before, after))


def _gathered(values: tuple[Array, Array], ids: tuple[Array, Array]) -> tuple[Array, Array]:
    """Gather by id on each side; where an id is absent, anything."""
    found = [
        column[np.maximum(at, 0)] if len(column) else np.zeros(len(at), column.dtype)
        for column, at in zip(values, ids, strict=True)
    ]
    return found[0], found[1]


def _summed(hashes: Array, owner: Array, count: int) -> Array:
    """Return a hash of the children of each row, in their order."""
    total = np.zeros(count, np.uint64)
    np.add.at(total, owner, mixed(hashes, rank(owner)))
    return total


def _codes_of(sides: Sides, table: str) -> tuple[Array, Array]:
    """Return a hash of the opcodes of each function or queue, in order."""
    opcode, block = sides.cells("instructions", "opcode"), sides.arrays("instructions", "block_id")
    of_block = sides.arrays("blocks", "function_id" if table == "functions" else "queue_id")
    out: list[Array] = []
    for side in (0, 1):
        owner = of_block[side][block[side]]
        mine = owner >= 0
        out.append(_summed(mixed(opcode[side][mine]), owner[mine], sides.count(table)[side]))
    return out[0], out[1]


def _looked_up(known: Array, wanted: Array, chain: Array) -> Array:
    """Return the row of each wanted key, -1 where there is none; of several rows each clone gets one in its turn.

    Parameters
    ----------
    known
        Key of each row of the kernels.
    wanted, chain
        Key and call chain of each clone.
    """
    order, first, number = find(known, wanted)
    place = np.zeros(len(wanted), np.int64)
    several = np.flatnonzero(number > 1)
    if len(several):
        place[several] = _turns(mixed(chain[several], wanted[several]), number[several])
    has = np.flatnonzero(number)
    found = np.full(len(wanted), -1, np.int64)
    found[has] = order[first[has] + place[has]]
    return found


def _turns(keys: Array, number: Array) -> Array:
    """Say which of several rows of one name each clone is of: they come in order, over and over when unrolled.

    Parameters
    ----------
    keys
        Equal for the clones of one name at one call-site.
    number
        How many rows have that name.
    """
    nth = rank(keys)
    _, inverse, total = np.unique(keys, return_inverse=True, return_counts=True)
    return np.where(total[inverse] % number == 0, nth % number, np.minimum(nth, number - 1))
