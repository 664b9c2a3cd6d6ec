"""A batch with the canonical copies of kernel functions behind it (rule N3).

Copies stand in tables of their own whose ids count on where the batch's end, so that edits can take rows of either.
A copy has blocks and instructions, and storage of its own where call-sites were inlined into it; its `function_id` is
that of the function it is a copy of.
"""

import numpy as np

from arrowir import schema
from arrowir.derived import take
from arrowir.ir import IR
from arrowir.names import picked
from arrowir.runs import Runs, concat_tables, join_text
from arrowir.store import Array, Strings, Table, first_of, starts

STORAGE = ("sets", "locations", "registers", "aliases", "call_chains")
"""Tables of which a copy has rows only where call-sites were inlined into it."""

_CODE = (
    "blocks", "instructions", "operands", "dependencies", "branches", "loops", "calls", "call_arguments", "semaphores",
)  # fmt: skip


class Extended:
    """Rows of a batch, and behind them those of copies.

    Parameters
    ----------
    ir
        The batch.
    """

    def __init__(self, ir: IR) -> None:
        self.ir = ir
        self.added: dict[str, Table] = {}
        self.made = np.zeros(0, np.int64)
        """Instructions that closing bodies made: no clones for the rules of edges, and without provenance."""
        self.branching = np.zeros(0, np.int64)
        """Instructions that were Returns."""

    def of(self, table: str) -> Table:
        """Return the added rows of a table."""
        return self.added.get(table) or Table.empty(table)

    def count(self, table: str) -> int:
        """Return the number of rows of a table, old and added."""
        return self.ir.count(table) + len(self.of(table))

    def column(self, table: str, name: str) -> Array:
        """Return a column of old and added rows."""
        added = self.of(table)
        return np.concatenate((self.ir.tables[table][name], added[name])) if len(added) else self.ir.tables[table][name]

    def present(self, table: str, name: str) -> bool:
        """Tell whether some cell of a column of numbers is present."""
        return self.ir.tables[table].present(name) or self.of(table).present(name)

    def text(self, table: str, row: int) -> str:
        """Return the name of an old or added row."""
        old = self.ir.tables[table]
        return old.text()[row] if row < len(old) else self.of(table).text()[row - len(old)]

    def texts(self, table: str, rows: Array, name: str = "name") -> Strings:
        """Return the texts of old or added rows."""
        return picked(join_text([self.ir.tables[table].text(name), self.of(table).text(name)]), rows)

    def find(self, table: str, key: str, value: Array) -> Array:
        """Return the first row whose key is not below a value, among the old rows or the added ones.

        The key rises; a value past the batch's own rows of the table that it points at is looked for among added rows.
        """
        above = schema.BY_NAME[table].column(key).of
        assert above is not None
        old, new = self.ir.tables[table][key], self.of(table)[key]
        split = self.ir.count(above)
        return np.where(value < split, first_of(old, value), len(old) + first_of(new, value))

    def children(self, table: str, first: Array, count: Array | int = 1) -> tuple[Array, Array]:
        """Return where the children of runs of rows begin, and how many there are."""
        key = schema.BY_NAME[table].parent
        assert key is not None
        begin = self.find(table, key, first)
        above = schema.BY_NAME[table].column(key).of or ""
        old, new = self.ir.tables[table][key], self.of(table)[key]
        last = first + count
        end = np.where(first < self.ir.count(above), first_of(old, last), len(old) + first_of(new, last))
        return begin, end - begin

    def append(
        self, source: IR, functions: Array, home: dict[str, Array], chains: Array | None = None
    ) -> dict[str, Array]:
        """Put functions of a batch that was made from this one behind all rows.

        Parameters
        ----------
        source
            The batch. It has the functions of this one, under the same ids.
        functions
            The functions, in rising order.
        home
            For the tables whose rows moved: the row here of each row there, -1 for new ones.
        chains
            The call chains of these functions, in the order in which they are to stand.

        Returns
        -------
        dict of numpy.ndarray
            By table the row here of each row there, -1 for rows that were not taken.
        """
        tables = (*(t for t in STORAGE if t in home), *_CODE)
        wanted = np.zeros(source.count("functions") + 1, bool)
        wanted[functions] = True
        rows: dict[str, Array] = {}
        places: dict[str, Array] = dict(home)
        for table in tables:
            if table == "call_chains":
                taken = np.flatnonzero(home[table] < 0) if chains is None else chains
            else:
                taken = np.flatnonzero(wanted[source.array(table, "function_id")])
            rows[table] = taken
            places[table] = home[table].copy() if table in home else np.full(source.count(table), -1, np.int64)
            places[table][taken] = self.count(table) + np.arange(len(taken))
        for table in tables:
            self._put(_moved(source.tables[table], rows[table], places))
        references = source.tables["references"]
        if len(references):
            self._put(_references(references, rows, places))
        return places

    def _put(self, table: Table) -> None:
        name = table.schema.name
        self.added[name] = concat_tables([self.added[name], table]) if name in self.added else table


def _moved(table: Table, rows: Array, places: dict[str, Array]) -> Table:
    """Take rows of a table, with keys moved to their new places."""
    columns: dict[str, Array | Strings | None] = {}
    for column in table.schema.stored:
        if column.kind == "text":
            columns[column.name] = None if table.columns[column.name] is None else picked(table.text(column.name), rows)
        elif not table.has(column.name):
            columns[column.name] = None
        else:
            values = table[column.name][rows]
            if column.kind == "id" and column.of in places:
                values = take(places[column.of], values).astype(np.int32)
            columns[column.name] = values
    return Table(table.schema.name, columns, len(rows))


def _references(table: Table, rows: dict[str, Array], places: dict[str, Array]) -> Table:
    """Take the references of the rows taken."""
    codes = schema.STRUCTURAL["table"]
    mine = np.zeros(len(table), bool)
    for name, taken in rows.items():
        of = np.flatnonzero(table["table"] == codes.index(name))
        mine[of[np.isin(table["row"][of], taken)]] = True
    picked = np.flatnonzero(mine)
    columns = {n: None if not table.has(n) else table[n][picked] for n in table.columns}
    moved = Table("references", columns, len(picked))
    for key, kind in (("row", "table"), ("target_id", "target")):
        values = moved[key].copy()
        for code in np.unique(moved[kind]).tolist():
            which = (moved[kind] == code) & (values >= 0)
            if codes[code] in places:
                values[which] = places[codes[code]][values[which]]
        moved = moved.replace(**{key: values})
    return moved


def kept_blocks(ir: IR, functions: Array) -> Array:
    """Return a mask of the blocks of some functions (a mask): what is cut out with its code, storage aside."""
    owner = ir.tables["blocks"]["function_id"]
    return (owner >= 0) & functions[owner]


def stretches(mask: Array) -> Runs:
    """Return the rows of a mask as runs."""
    edge = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return Runs.of(edge[::2], edge[1::2] - edge[::2])


def groups(count: Array) -> tuple[Array, Array]:
    """Return the group and the number within it of each item of groups of some sizes."""
    group = np.repeat(np.arange(len(count)), count)
    return group, np.arange(len(group)) - starts(count)[group]
