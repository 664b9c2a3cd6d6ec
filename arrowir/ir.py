"""The batch: an immutable bundle of tables, and what can be asked of it."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from arrowir import arguments, derived, schema
from arrowir.diagnostics import Diagnostic, OptionError
from arrowir.store import Array, Pools, Strings, Table

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


def _table(name: str) -> schema.Table:
    """Return the declaration of a table."""
    try:
        return schema.BY_NAME[name]
    except (KeyError, TypeError):
        known = ", ".join(f"`{table}`" for table in schema.BY_NAME)
        raise OptionError(f"there is no table {name!r:.60}; the tables are {known}") from None


def _column(table: schema.Table, name: str) -> schema.Column:
    """Return the declaration of a column."""
    try:
        return table.column(name)
    except KeyError:
        known = ", ".join(f"`{column.name}`" for column in table.columns)
        raise OptionError(f"table `{table.name}` has no column {name!r:.60}; it has {known}") from None


class IR:
    """A batch of BIR modules as tables keyed by integer ids.

    An `IR` never changes: passes and edits return new ones, which share the columns that stay. Each table is a Polars
    frame under its name, made on first use and kept.

    Parameters
    ----------
    tables
        Every stored table (`schema.STORED`) by name; a missing one is taken to be empty.
    pools
        The interned text that the tables point into.
    diagnostics
        What was noticed when the batch was read.
    history
        The passes that made it, first to last, each as JSON text with name and options.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> ir.instructions["opcode"].to_list()
    ['Load', 'TensorScalar', 'Save']
    """

    def __init__(
        self,
        tables: dict[str, Table],
        pools: Pools,
        *,
        diagnostics: Iterable[Diagnostic] = (),
        history: Iterable[str] = (),
    ) -> None:
        self.tables = {name: tables.get(name) or Table.empty(name) for name in schema.STORED}
        self.pools = pools
        self.messages: tuple[Diagnostic, ...] = tuple(diagnostics)
        self.history: tuple[str, ...] = tuple(history)
        self.pattern_count = len(pools.patterns)
        self._computed: dict[tuple[str, str], Array | Strings] = {}
        self._frames: dict[str, pl.DataFrame] = {}

    # -- columns ------------------------------------------------------------------------------------------------------

    def count(self, table: str) -> int:
        """Return the number of rows of a table.

        Raises
        ------
        OptionError
            If there is no table of that name.
        """
        _table(table)
        return self.pattern_count if table == "patterns" else len(self.tables[table])

    def column(self, table: str, name: str) -> Array | Strings | None:
        """Return a stored or derived column as it is in memory; None when it is absent everywhere.

        Raises
        ------
        OptionError
            If there is no such table, or it has no such column.
        """
        declared = _column(_table(table), name)
        if not declared.derived:
            return self.tables[table].columns[name]
        if (table, name) not in self._computed:
            self._computed[table, name] = derived.column(self, table, name)
        return self._computed[table, name]

    def array(self, table: str, name: str) -> Array:
        """Return a stored or derived column as an array, absent cells as the kind's null value."""
        column = self.column(table, name)
        if column is None:
            return self.tables[table][name]
        assert not isinstance(column, Strings), f"{table}.{name} holds text"
        return column

    # -- tables -------------------------------------------------------------------------------------------------------

    def frame(self, table: str) -> "pl.DataFrame":
        """Return a table as a Polars frame, made on first use and kept.

        Raises
        ------
        OptionError
            If there is no table of that name.
        """
        name = _table(table).name
        if name not in self._frames:
            from arrowir import frames

            self._frames[name] = frames.frame(self, name)
        return self._frames[name].clone()

    modules = property(lambda self: self.frame("modules"), doc="One row per module.")
    functions = property(lambda self: self.frame("functions"), doc="One row per function.")
    blocks = property(lambda self: self.frame("blocks"), doc="One row per basic block.")
    instructions = property(lambda self: self.frame("instructions"), doc="One row per instruction.")
    operands = property(lambda self: self.frame("operands"), doc="One row per operand.")
    sets = property(lambda self: self.frame("sets"), doc="One row per memory location set.")
    locations = property(lambda self: self.frame("locations"), doc="One row per memory location.")
    registers = property(lambda self: self.frame("registers"), doc="One row per register.")
    dependencies = property(lambda self: self.frame("dependencies"), doc="One row per dependency edge.")
    branches = property(lambda self: self.frame("branches"), doc="One row per branch target.")
    loops = property(lambda self: self.frame("loops"), doc="One row per loop axis.")
    calls = property(lambda self: self.frame("calls"), doc="One row per call.")
    call_arguments = property(lambda self: self.frame("call_arguments"), doc="One row per argument of a call.")
    semaphores = property(lambda self: self.frame("semaphores"), doc="One row per semaphore wait or update.")
    queues = property(lambda self: self.frame("queues"), doc="One row per DMA queue.")
    aliases = property(lambda self: self.frame("aliases"), doc="One row per alias entry.")
    patterns = property(lambda self: self.frame("patterns"), doc="The distinct access patterns.")
    references = property(lambda self: self.frame("references"), doc="References inside pooled text.")
    call_chains = property(lambda self: self.frame("call_chains"), doc="The tree of inlined call-sites.")

    @property
    def diagnostics(self) -> "pl.DataFrame":
        """What was noticed when the batch was read, as a diagnostics table."""
        from arrowir import diagnostics

        return diagnostics.table(self.messages)

    @property
    def schema(self) -> tuple[schema.Table, ...]:
        """The declaration of the tables: columns, dtypes, keys, meaning."""
        return schema.TABLES

    def attributes(self, opcode: str) -> "pl.DataFrame":
        """Return the op-specific keys of one opcode as typed columns, one row per instruction.

        Parameters
        ----------
        opcode
            Like ``"Activation"``. An opcode that the batch does not have gives an empty frame.

        Returns
        -------
        polars.DataFrame
            `instruction_id`, `module_id`, then a column per key found, in alphabetical order: Boolean, Int64, Float64
            or String where all values are of that type (integers among floats count as floats, and the strings
            ``"inf"``, ``"-inf"`` and ``"nan"`` where other values are numbers), JSON text otherwise; null where a key
            is absent.

        Raises
        ------
        OptionError
            If the opcode is no text.
        """
        from arrowir import attributes

        arguments.text(opcode, "`attributes`")
        return attributes.frame(self, opcode)

    def to_arrow(self) -> "dict[str, pa.Table]":
        """Return every table as a pyarrow table: the storage itself, with derived columns added."""
        from arrowir import arrow

        return {table.name: arrow.table(self, table.name) for table in schema.TABLES}

    def sql(self, query: str) -> "pl.DataFrame":
        """Run a DuckDB query over the tables.

        Parameters
        ----------
        query
            SQL; each table is a view of its name.

        Returns
        -------
        polars.DataFrame
            The answer.

        Raises
        ------
        ArrowIRError
            If DuckDB is not installed (``pip install "arrowir[sql]"``), or it refuses the query.

        Examples
        --------
        >>> import arrowir as air
        >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
        >>> ir.sql("select count(*) as n from operands").item()  # doctest: +SKIP
        6
        """
        from arrowir import sql

        return sql.query(self, query)

    # -- batches ------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of modules."""
        return len(self.tables["modules"])

    def select(self, modules: Sequence[int] | Sequence[bool] | Array) -> "IR":
        """Return a batch of some modules, in the order asked for.

        Parameters
        ----------
        modules
            Module ids, or a mask with one boolean per module.

        Raises
        ------
        OptionError
            If an id names no module.
        """
        from arrowir import batches

        wanted = np.asarray(modules).reshape(-1)
        if wanted.dtype == bool and len(wanted) == len(self):
            wanted = np.flatnonzero(wanted)
        if len(wanted) and wanted.dtype.kind not in "iu":
            raise OptionError(
                f"modules are selected by ids, or by a mask of {len(self)} booleans, not by {modules!r:.60}; "
                "`module_id(name)` gives the id of a name"
            )
        wanted = wanted.astype(np.int64)
        if len(wanted) and not (wanted.min() >= 0 and wanted.max() < len(self)):
            raise OptionError(f"module ids go from 0 to {len(self) - 1}, got {wanted.tolist()[:10]}")
        return batches.select_modules(self, wanted)

    def module_id(self, name: str) -> int:
        """Return the id of the module of that name.

        Raises
        ------
        OptionError
            If there is none, or more than one.
        """
        names = self.tables["modules"].text().tolist()
        if names.count(name) != 1:
            raise OptionError(f"{names.count(name)} modules are named `{name}`")
        return names.index(name)

    def _check_module(self, module_id: int) -> None:
        known = isinstance(module_id, int | np.integer)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not known or not 0 <= module_id < len(self):
            raise OptionError(f"module ids go from 0 to {len(self) - 1}, got {module_id!r}")

    # -- out ----------------------------------------------------------------------------------------------------------

    def text(self, module_id: int | None = None, *, provenance: bool = False) -> str:
        """Return a readable listing, one line per instruction; of one module, or of all.

        With `provenance` inlined rows say which kernel and call-sites they come from (rule N16);
        `arrowir.listing.text` says how lines are to be read.
        """
        from arrowir import listing

        if module_id is not None:
            self._check_module(module_id)
        return listing.text(self, module_id, provenance=provenance)

    def to_json(self, module_id: int = 0, indent: int | None = None) -> bytes:
        """Return one module as a BIR JSON document (rule F1)."""
        from arrowir.formats import bir_json

        self._check_module(module_id)
        return bir_json.to_json(self, module_id, indent)

    def write_json(self, path: "str | PathLike[str]", indent: int | None = None) -> "list[str]":
        """Write each module as a JSON file: into a folder, or to one file when there is one module (rules F1, F5)."""
        from arrowir.formats import bir_json

        return bir_json.write_json(self, path, indent)

    def write_parquet(self, path: "str | PathLike[str]") -> None:
        """Write the batch as a Parquet data set (rules F1, F5)."""
        from arrowir.formats import parquet

        parquet.write_parquet(self, path)

    def __repr__(self) -> str:
        counts = ", ".join(f"{self.count(t):,} {t}" for t in ("functions", "instructions", "operands", "locations"))
        return f"<arrowir.IR: {len(self):,} modules, {counts}>"

    def _repr_html_(self) -> str:
        from arrowir.display import html

        return html.batch(self)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export the instructions through the Arrow C stream interface; other tables: their frames."""
        from arrowir import arrow

        return arrow.table(self, "instructions").__arrow_c_stream__(requested_schema)

    # -- for passes ---------------------------------------------------------------------------------------------------

    def replace(self, **tables: Table) -> "IR":
        """Return a batch with some tables replaced; all else is shared."""
        return IR({**self.tables, **tables}, self.pools, diagnostics=self.messages, history=self.history)

    def after(self, name: str, options: dict[str, Any]) -> "IR":
        """Return the same batch with one more pass in its history."""
        entry = json.dumps({"pass": name, "options": options}, sort_keys=True, default=str)
        return IR(self.tables, self.pools, diagnostics=self.messages, history=(*self.history, entry))

    @cached_property
    def memory_bytes(self) -> int:
        """Bytes held by the columns of all tables."""
        total = 0
        for table in self.tables.values():
            for column in table.columns.values():
                if isinstance(column, Strings):
                    total += column.offsets.nbytes + column.data.nbytes
                elif column is not None:
                    total += column.nbytes
        return total
