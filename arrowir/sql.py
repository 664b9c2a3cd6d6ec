"""SQL over a batch: DuckDB reads the tables where they are in memory."""

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from arrowir import arrow, extras, schema
from arrowir.attributes import reference_names
from arrowir.diagnostics import ArrowIRError, OptionError
from arrowir.store import Pool

if TYPE_CHECKING:
    import polars as pl
    from duckdb import DuckDBPyConnection

    from arrowir.ir import IR

DIAGNOSTICS = "diagnostics"
"""The view of what was noticed when the batch was read."""

VIEWS: tuple[str, ...] = (*(table.name for table in schema.TABLES), DIAGNOSTICS)
"""Names that a query can use."""

_CATALOGUE = re.compile(r"\b(show|describe|information_schema|duckdb_\w+|pg_\w+)\b", re.IGNORECASE)


def query(ir: "IR", query: str) -> "pl.DataFrame":
    """Run a DuckDB query over the tables of a batch.

    The tables are read-only views that belong to the call: calls may run side by side in threads, and nothing is left
    of one for the next. A query may read files (``from 'profile.parquet'``), but no Python variables.

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
        The answer of the last statement. Sums of integers are Int64. Columns of one name, as a join gives them, have
        ``_1``, ``_2``, ... appended from the second on.

    Raises
    ------
    ArrowIRError
        If DuckDB is not installed, or it refuses the query.

    Examples
    --------
    >>> from arrowir import build
    >>> module = build.module()
    >>> main = module.function()
    >>> tile = main.sb("tile", [128, 4])
    >>> memset = main.add("Memset", [], [tile], mode="Const", constant=0)
    >>> query(module.ir(), "select opcode, count(*) as n from instructions group by all").rows()
    [('Memset', 1)]
    """
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise OptionError(f"a query is text, got {type(query).__name__}")
    try:
        import duckdb
    except ImportError:
        raise ArrowIRError('DuckDB is not installed; run `pip install "arrowir[sql]"`') from None
    try:
        statements = [statement.type for statement in _database().extract_statements(query)]
        alone = statements != [duckdb.StatementType.SELECT]
        with _open() if alone else _database().cursor() as connection:
            connection.execute("set enable_progress_bar = false")
            for name in named_views(query):
                connection.register(name, view(ir, name))
            answer: Any = connection.sql(query)  # None when there is no statement
            if answer is None:
                raise ArrowIRError("the query holds no statement; write one, like `select * from instructions`")
            return _frame(answer.to_arrow_table(), [str(kind) for kind in answer.types])
    except ArrowIRError:
        raise
    except duckdb.Error as error:
        raise ArrowIRError(f"the query was refused: {_refusal(str(error))}") from error
    except Exception as error:
        raise ArrowIRError(f"the answer cannot be made a frame ({error}); cast such columns to varchar") from error


def _refusal(text: str) -> str:
    """Return what DuckDB says, with the names of tables where it does not know them."""
    if re.match(r"Catalog Error: Table with name \S+ does not exist", text):
        # What it suggests instead are tables of its own: of ours it knows those alone that the query names.
        return f"{text.splitlines()[0]} Tables are {', '.join(VIEWS)}"
    if 'syntax error at or near "references"' in text:
        return f'{text}\nThe table `references` needs quotes: "references"'
    return text


def _open() -> "DuckDBPyConnection":
    """Open a database of its own, for statements that may leave something behind."""
    import duckdb

    return duckdb.connect(":memory:", config={"python_enable_replacements": False})


@cache
def _database() -> "DuckDBPyConnection":
    """Return the database that plain queries share: opening one takes forty times as long as a cursor.

    Views belong to the cursor that registers them, and a `select` leaves nothing behind.
    """
    return _open()


def named_views(query: str) -> list[str]:
    """Return the views that a query may use: those whose names occur in it; all when it asks for the catalogue."""
    if _CATALOGUE.search(query):
        return list(VIEWS)
    words = set(re.findall(r"\w+", query.lower()))
    return [name for name in VIEWS if name in words]


def view(ir: "IR", name: str) -> pa.Table:
    """Return the Arrow table behind a view: no slice, and no copy but for JSON text with references in it.

    Layouts, which only the writer needs, are left out. In `extra` the names of references are filled in, so that it is
    JSON for DuckDB.
    """
    if name == DIAGNOSTICS:
        return ir.diagnostics.to_arrow()
    columns = [c for c in schema.BY_NAME[name].columns if c.of != "layouts"]
    refers = name in schema.REFERRING
    arrays = [_filled(ir, name) if refers and c.name == "extra" else arrow.column(ir, name, c) for c in columns]
    return pa.table(arrays, [c.name for c in columns])


def _filled(ir: "IR", table: str) -> pa.Array:
    """Return the `extra` column of a table with names in place of the placeholders."""
    texts, ids = ir.pools.extras.texts, ir.tables[table]["extra"]
    refers = np.zeros(len(texts) + 1, bool)  # the last one is for absent text, -1
    distinct = np.unique(ids).tolist()
    refers[[i for i in distinct if i >= 0 and extras.PLACEHOLDER in texts[i]]] = True
    rows = np.flatnonzero(refers[ids])
    if not len(rows):
        return arrow.column(ir, table, schema.BY_NAME[table].column("extra"))
    names = reference_names(ir, table, rows)
    new = Pool(texts)
    ids = ids.copy()
    ids[rows] = [new.intern(extras.fill(texts[ids[row]], names[row])) for row in rows.tolist()]
    return pa.DictionaryArray.from_arrays(arrow.array(ids, "pooled"), arrow.texts(new.texts))


def _frame(answer: pa.Table, types: list[str]) -> "pl.DataFrame":
    import polars as pl

    names = _unique(answer.column_names)
    frame = pl.from_arrow(answer.rename_columns(names))
    assert isinstance(frame, pl.DataFrame)
    sums = [name for name, kind in zip(names, types, strict=True) if kind == "HUGEINT"]
    try:
        return frame.with_columns(pl.col(name).cast(pl.Int64) for name in sums)
    except pl.exceptions.InvalidOperationError:
        listed = ", ".join(f"`{name}`" for name in sums)
        raise ArrowIRError(f"an integer in {listed} is beyond 64 bits; cast it to varchar or double") from None


def _unique(names: list[str]) -> list[str]:
    """Append a number to names that stand for several columns, as DuckDB does for data frames."""
    made: list[str] = []
    for name in names:
        number, free = 0, name
        while free in made or (number and free in names):
            number += 1
            free = f"{name}_{number}"
        made.append(free)
    return made
