"""SQL over a batch: DuckDB reads the tables where they are in memory."""

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from arrowir import arrow, schema
from arrowir.diagnostics import ArrowIRError

if TYPE_CHECKING:
    import polars as pl

    from arrowir.ir import IR

DIAGNOSTICS = "diagnostics"
"""The view of what was noticed when the batch was read."""

VIEWS: tuple[str, ...] = (*(table.name for table in schema.TABLES), DIAGNOSTICS)
"""Names that a query can use."""

_CATALOGUE = re.compile(r"\b(show|describe|information_schema|duckdb_\w+|pg_\w+)\b", re.IGNORECASE)


def query(ir: "IR", query: str) -> "pl.DataFrame":
    """Run a DuckDB query over the tables of a batch.

    Each call has a database of its own, in which the tables are read-only views, so calls may run side by side in
    threads. A query may read files (``from 'profile.parquet'``), but no Python variables.

    Parameters
    ----------
    ir
        The batch.
    query
        One or more SQL statements. Every table and `diagnostics` is a view of its name; ``"references"`` needs the
        quotes, because SQL has a word of that name.

    Returns
    -------
    polars.DataFrame
        The answer of the last statement. Sums of integers are Int64.

    Raises
    ------
    ArrowIRError
        If DuckDB is not installed, or it refuses the query.

    Examples
    --------
    >>> from arrowir import build
    >>> main = build.module().function()
    >>> tile = main.sb("tile", [128, 4])
    >>> memset = main.add("Memset", [], [tile], mode="Const", constant=0)
    >>> query(main.ir(), "select opcode, count(*) as n from instructions group by all").rows()
    [('Memset', 1)]
    """
    try:
        import duckdb
    except ImportError:
        raise ArrowIRError('DuckDB is not installed; run `pip install "arrowir[sql]"`') from None
    with duckdb.connect(":memory:", config={"python_enable_replacements": False}) as connection:
        try:
            connection.execute("set enable_progress_bar = false")
            for name in named_views(query):
                connection.register(name, view(ir, name))
            answer: Any = connection.sql(query)  # None when there is no statement
            if answer is None:
                raise ArrowIRError("the query holds no statement; write one, like `select * from instructions`")
            types = [str(kind) for kind in answer.types]
            return _frame(answer.to_arrow_table(), types)
        except duckdb.Error as error:
            raise ArrowIRError(f"the query was refused: {error}") from error


def named_views(query: str) -> list[str]:
    """Return the views that a query may use: those whose names occur in it; all when it asks for the catalogue."""
    if _CATALOGUE.search(query):
        return list(VIEWS)
    words = set(re.findall(r"\w+", query.lower()))
    return [name for name in VIEWS if name in words]


def view(ir: "IR", name: str) -> pa.Table:
    """Return the Arrow table behind a view: no slice, no copy; layouts, which only the writer needs, are left out."""
    if name == DIAGNOSTICS:
        return ir.diagnostics.to_arrow()
    columns = [c for c in schema.BY_NAME[name].columns if c.of != "layouts"]
    return pa.table([arrow.column(ir, name, c) for c in columns], [c.name for c in columns])


def _frame(answer: pa.Table, types: list[str]) -> "pl.DataFrame":
    import polars as pl

    names = answer.column_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArrowIRError(f"the answer has several columns named `{twice}`; rename them with `as`")
    frame = pl.from_arrow(answer)
    assert isinstance(frame, pl.DataFrame)
    sums = [name for name, kind in zip(names, types, strict=True) if kind == "HUGEINT"]
    try:
        return frame.with_columns(pl.col(name).cast(pl.Int64) for name in sums)
    except pl.exceptions.InvalidOperationError:
        listed = ", ".join(f"`{name}`" for name in sums)
        raise ArrowIRError(f"an integer in {listed} is beyond 64 bits; cast it to varchar or double") from None
