"""The difference of two batches: what a pass did, as data frames."""

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arrowir import schema
from arrowir.analyse.cells import Cells
from arrowir.analyse.children import CHILDREN, slots
from arrowir.analyse.comparing import TABLES, WHATS, Comparison, Finding
from arrowir.analyse.facts import Facts
from arrowir.analyse.matching import Match
from arrowir.analyse.naming import gathered
from arrowir.analyse.sides import Sides
from arrowir.arguments import wrong
from arrowir.derived import take
from arrowir.diagnostics import OptionError
from arrowir.ir import IR
from arrowir.store import Array

if TYPE_CHECKING:
    import polars as pl


def diff(before: IR, after: IR) -> "Diff":
    """Compare two batches and say what is different, as what a pass did.

    Modules are matched by name, and those left over in order. In a module, things are matched by name within what they
    stand in, so that one that moves or gets a new address is told as that. A thing whose name is gone is matched by
    its content, and told as renamed. Inlined rows are matched with the row of the kernel function that they are a
    clone of, by their provenance (rule N16): they are told as added, with kernel and call-sites, and of their cells
    only those that are not what cloning gives: parameters that are bound, addresses that are moved. That an operand
    of a clone names the clone of what it named is no difference.

    Provenance is in memory and in Parquet. A module that was read from JSON has none; there, the rows of an inlined
    kernel are plainly new, since names like ``<call-site>_<name>`` are not taken apart.

    What is compared is what documents say: two batches differ if the JSON that would be written of them does. Names
    and sources of modules and provenance itself are not compared.

    Parameters
    ----------
    before, after
        The batches, in any order in time.

    Returns
    -------
    Diff
        False where nothing is different; `summary` counts, `rows` has every difference.

    Raises
    ------
    OptionError
        If one of them is no batch.

    Examples
    --------
    >>> import arrowir as air
    >>> before = air.read("data/samples/bir_json_example.json")
    >>> found = air.diff(before, air.passes.inline_nki_kernel(before).ir)
    >>> bool(found), bool(air.diff(before, before))
    (True, False)
    >>> found.summary.filter(table="instructions", what="added").select("kernel", "call_sites", "count").rows()
    [('nki_add_one', 1, 12)]
    >>> rewired = found.rows.filter(table="operands", what="rewired")
    >>> rewired.select("before", "after").unique(maintain_order=True).rows()
    [('a_set', 'tmp0'), ('c_set', 'output0')]
    """
    for what, given in (("`before`", before), ("`after`", after)):
        if not isinstance(given, IR):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise wrong(what, "an `arrowir.IR` (`arrowir.read` makes one of files)", given)
    return Diff(before, after)


class Diff:
    """How two batches differ; made by `diff`.

    It is true where there is a difference. Printed, it says the most important in a few lines.

    Parameters
    ----------
    before, after
        The batches.

    Examples
    --------
    >>> import arrowir as air
    >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
    >>> print(air.diff(ir, ir))
    1 module: no difference
    """

    def __init__(self, before: IR, after: IR) -> None:
        self.before, self.after = before, after
        self.matched = Match(Sides(before, after))
        self.findings: tuple[Finding, ...] = tuple(Comparison(self.matched).findings)
        self.facts = Facts(self.matched, self.findings)

    def __bool__(self) -> bool:
        return bool(self.findings)

    def __repr__(self) -> str:
        count = sum(len(found.before) for found in self.findings)
        return f"<arrowir.Diff: {self.differing:,} of {self.module_count:,} modules differ, {count:,} differences>"

    def __str__(self) -> str:
        from arrowir.analyse import telling

        return telling.text(self)

    def _repr_html_(self) -> str:
        from arrowir.display import html

        return html.diff(self)

    @property
    def module_count(self) -> int:
        """Number of modules that were compared, those that are on one side alone included."""
        return len(self.after) + int((self.matched.twins["modules"].twin < 0).sum())

    @cached_property
    def differing(self) -> int:
        """Number of modules with a difference."""
        return len(self.facts.counts["module"].unique())

    # -- frames -------------------------------------------------------------------------------------------------------

    @cached_property
    def modules(self) -> "pl.DataFrame":
        """The modules that were compared, a row each.

        Columns: `name` (that before, where there is one), `before` and `after` (sources; null where it is not there),
        `status` (``"same"``, ``"different"``, ``"added"``, ``"removed"``), `count` (differences).
        """
        import polars as pl

        twins = self.matched.twins["modules"]
        gone = np.flatnonzero(twins.twin < 0)
        rows = np.concatenate((twins.source, gone)), np.concatenate((np.arange(len(self.after)), gone * 0 - 1))
        counted = dict(self.facts.counts.group_by("module").agg(pl.col("count").sum()).iter_rows())
        numbers = [*range(len(self.after)), *(len(self.after) + gone).tolist()]
        sources = [Cells(self.matched).of(side, "modules", "source", rows[side]) for side in (False, True)]
        count = [counted.get(number, 0) for number in numbers]
        status = np.where(rows[1] < 0, "removed", np.where(rows[0] < 0, "added", np.where(count, "different", "same")))
        return pl.DataFrame(
            {
                "name": pl.Series([self.facts.module_names[number] for number in numbers], dtype=pl.String),
                "before": sources[0],
                "after": sources[1],
                "status": pl.Series(status.tolist(), dtype=pl.String),
                "count": pl.Series(count, dtype=pl.Int64),
            }
        )

    @cached_property
    def summary(self) -> "pl.DataFrame":
        """The differences, counted: a row for each module, table, kind of difference, column and kernel.

        Columns: `module`, `table`, `what` (removed, added, renamed, moved, readdressed, rewired, changed), `column`
        (null for rows that came or went), `kernel` (the kernel function that rows are clones of, or went with),
        `call_sites` (how many call-sites, each with those around it, the rows came in by), `count`.
        """
        import polars as pl

        facts, found = self.facts, self.findings
        counts = self.facts.counts.with_columns(
            pl.Series("table", [f.table for f in found], dtype=pl.Enum(TABLES)).gather(self.facts.counts["finding"]),
            pl.Series("what", [f.what for f in found], dtype=pl.Enum(WHATS)).gather(self.facts.counts["finding"]),
            pl.Series("column", [f.column for f in found], dtype=pl.String).gather(self.facts.counts["finding"]),
        ).sort("module", "table", "what", "column", "kernel", maintain_order=True)
        return counts.select(
            pl.Series("module", facts.module_names, dtype=pl.String).gather(counts["module"]),
            "table",
            "what",
            "column",
            gathered(pl.Series(facts.kernel_names, dtype=pl.String), counts["kernel"].to_numpy()).alias("kernel"),
            "call_sites",
            "count",
        )

    @cached_property
    def rows(self) -> "pl.DataFrame":
        """Every difference, a row each, by module, table and kind; made when it is first asked for.

        Columns: `module`, `table`, `what`; `function`; `name_before`, `name_after` (of the thing, or of the one that
        owns the row; of an inlined row the first is the name in its kernel); `column` and `slot` (the list that a row
        is in and its place there, like ``in 0``); `before`, `after` (the cell as text; of rows that came or went what
        they are: opcode, or what they name); `kernel`, `call_chain` (call-sites, outermost first); `id_before`,
        `id_after` (row numbers in the frames of the two batches).
        """
        import polars as pl

        parts = [self._told(found) for found in self.findings]
        if not parts:
            return pl.DataFrame(schema=_row_schema())
        keys = ("number", "table", "what", "id_after", "id_before")
        return pl.concat(parts).sort(keys, maintain_order=True).drop("number")

    def _told(self, found: Finding) -> "pl.DataFrame":
        """Return the rows of a finding, with the number of the module in front."""
        import polars as pl

        of, facts = self.facts.whereabouts(found), self.facts
        rows = len(found.before)
        names = pl.Series(facts.module_names, dtype=pl.String)
        if found.owner is None:
            name_after = facts.names(True, found.table, found.after)
        else:
            name_after = gathered(self.matched.sides.text(True, CHILDREN[found.table].owner), found.owner)
        return pl.DataFrame(
            {
                "number": of.module,
                "module": names.gather(of.module),
                "table": pl.Series([found.table], dtype=pl.Enum(TABLES)).new_from_index(0, rows),
                "what": pl.Series([found.what], dtype=pl.Enum(WHATS)).new_from_index(0, rows),
                "function": facts.function_names(found),
                "name_before": facts.names(False, found.table, found.before),
                "name_after": name_after,
                "column": pl.Series([found.column], dtype=pl.String).new_from_index(0, rows),
                "slot": self._slots(found),
                "before": found.spelled[0](np.arange(rows)),
                "after": found.spelled[1](np.arange(rows)),
                "kernel": gathered(pl.Series(facts.kernel_names, dtype=pl.String), of.kernel),
                "call_chain": gathered(facts.paths, of.chain),
                "id_before": _ids(found.before),
                "id_after": _ids(found.after),
            }
        )

    def _slots(self, found: Finding) -> "pl.Series":
        """Return the list and the place there of rows without a name; those after, else those before."""
        import polars as pl

        nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(found.before))
        if found.table not in CHILDREN:
            return nothing
        slot = CHILDREN[found.table].slot
        texts: list[pl.Series] = []
        for is_after, at in ((True, found.after), (False, np.where(found.after < 0, found.before, -1))):
            code, place = (take(column, at) for column in slots(self.matched, found.table, is_after))
            frame = pl.DataFrame({"place": place}).with_columns(pl.when(pl.col("place") >= 0).then(pl.col("place")))
            if slot is not None:
                pool = (self.after if is_after else self.before).pools.of(schema.BY_NAME[found.table].column(slot))
                words = pl.Series(pool.texts, dtype=pl.String)
                frame = frame.select(pl.format("{} {}", gathered(words, code), "place"))
            texts.append(frame[:, 0].cast(pl.String))
        return texts[0].fill_null(texts[1])

    def matches(self, table: str) -> "pl.DataFrame":
        """Return which rows of a table belong together.

        Parameters
        ----------
        table
            Like ``"instructions"``.

        Returns
        -------
        polars.DataFrame
            `id_before`, `id_after` and `clone`, a row for each row after that was there before (`clone` is false) or
            is a clone of one that was, in the order of the batch after.

        Raises
        ------
        OptionError
            If there is no such table, or it is not compared.

        Examples
        --------
        >>> import arrowir as air
        >>> ir = air.read("data/samples/klr009/scale_add.bir.json")
        >>> air.diff(ir, ir).matches("instructions").rows()
        [(0, 0, False), (1, 1, False), (2, 2, False)]
        """
        import polars as pl

        if table not in TABLES:
            raise OptionError(f"no rows of {table!r:.60} are matched; tables are {', '.join(f'`{t}`' for t in TABLES)}")
        origin = self.matched.origin[table]
        after = np.flatnonzero(origin >= 0)
        return pl.DataFrame(
            {
                "id_before": pl.Series(origin[after], dtype=pl.Int32),
                "id_after": pl.Series(after, dtype=pl.Int32),
                "clone": ~self.matched.kept(table)[after],
            }
        )


def _ids(rows: Array) -> "pl.Series":
    """Return row numbers as a column, null where there is none."""
    import polars as pl

    found = pl.Series("id", rows, dtype=pl.Int32).to_frame()
    return found.select(pl.when(pl.col("id") >= 0).then(pl.col("id")))[:, 0]


def _row_schema() -> dict[str, "pl.DataType | type[pl.DataType]"]:
    """Return the columns of `Diff.rows`."""
    import polars as pl

    texts = ("function", "name_before", "name_after", "column", "slot", "before", "after", "kernel")
    return {
        "module": pl.String,
        "table": pl.Enum(TABLES),
        "what": pl.Enum(WHATS),
        **dict.fromkeys(texts, pl.String),
        "call_chain": pl.List(pl.String),
        "id_before": pl.Int32,
        "id_after": pl.Int32,
    }
