"""What is told of a row that differs beside the difference: module, function, names, kernel, call-sites."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from arrowir import schema
from arrowir.analyse.children import CHILDREN
from arrowir.analyse.comparing import Finding
from arrowir.analyse.matching import NAMED, Match
from arrowir.analyse.naming import gathered
from arrowir.derived import take
from arrowir.ir import IR
from arrowir.store import Array, starts

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Whereabouts:
    """Numbers of what rows belong to: one item a row."""

    module: Array
    """Number of the module, in `Facts.module_names`."""
    kernel: Array
    """Number of the kernel, in `Facts.kernel_names`; -1 for none."""
    chain: Array
    """Call chain of a clone, a row of the batch after; -1 for none."""


class Facts:
    """Knows of each row of two matched batches what it belongs to.

    Parameters
    ----------
    match
        The batches.
    findings
        How they differ.
    """

    def __init__(self, match: Match, findings: tuple[Finding, ...]) -> None:
        self.match, self.sides, self.findings = match, match.sides, findings

    @cached_property
    def counts(self) -> "pl.DataFrame":
        """The differences, counted: numbers of finding, module and kernel, how many call-sites and rows there are."""
        import polars as pl

        first: dict[tuple[str, str, str | None], int] = {}  # of several findings of one kind the first counts for all
        parts: list[pl.DataFrame] = []
        for number, found in enumerate(self.findings):
            of = self.whereabouts(found)
            kind = first.setdefault((found.table, found.what, found.column), number)
            rows = pl.DataFrame({"module": of.module, "kernel": of.kernel, "chain": of.chain})
            parts.append(rows.select(pl.lit(kind, pl.Int64).alias("finding"), pl.all()))
        columns: tuple[str, ...] = ("finding", "module", "kernel", "call_sites", "count")
        if not parts:
            return pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64))
        sites = pl.col("chain").filter(pl.col("chain") >= 0).n_unique().cast(pl.Int64)
        counted = pl.concat(parts).group_by("finding", "module", "kernel")
        return counted.agg(call_sites=sites, count=pl.len().cast(pl.Int64)).sort("finding", "module", "kernel")

    # -- modules ------------------------------------------------------------------------------------------------------

    @cached_property
    def module_names(self) -> list[str]:
        """Names of the modules: those of the batch after, by what they were called before, then those that are gone."""
        before, after = (texts.to_list() for texts in self.sides.texts("modules"))
        source = self.match.twins["modules"].source.tolist()
        return [after[m] if source[m] < 0 else before[source[m]] for m in range(len(after))] + before

    def modules(self, found: Finding) -> Array:
        """Return the module of each row of a finding."""
        before, after = self.sides.before, self.sides.after
        if found.owner is not None:
            return after.array(CHILDREN[found.table].owner, "module_id")[found.owner].astype(np.int64)
        twin = self.match.twins["modules"].twin
        number = np.where(twin < 0, len(after) + np.arange(len(before)), twin)
        one, other = (_own(ir, found.table) for ir in (before, after))
        return np.where(found.after < 0, take(number, take(one, found.before)), take(other, found.after))

    # -- kernels ------------------------------------------------------------------------------------------------------

    @cached_property
    def _kernels(self) -> tuple[list[str], Array, Array]:
        """Names of kernels; the number of each call chain's; that of each kernel function that is gone, else -1."""
        pool, chains = self.sides.after.pools.names, self.sides.after.tables["call_chains"]
        names = self.sides.text(False, "functions")
        gone = np.flatnonzero((self.match.twins["functions"].twin < 0) & (self._is_kernel == 1))
        of_chain, place = np.unique(chains["kernel"], return_inverse=True)
        texts = ["" if k < 0 else pool[k] for k in of_chain.tolist()] + names.gather(gone).to_list()
        # In the order of their functions, not of the pools: those are others in a data set.
        place_of = {text: number for number, text in enumerate(dict.fromkeys(names.filter(self._is_kernel == 1)))}
        listed = sorted(set(texts), key=lambda text: (place_of.get(text, len(place_of)), text))
        known = {text: number for number, text in enumerate(listed)}
        numbers = np.array([known[text] for text in texts], np.int64)
        of_function = np.full(len(names), -1, np.int64)
        of_function[gone] = numbers[len(of_chain) :]
        return list(known), numbers[: len(of_chain)][place], of_function

    @property
    def _is_kernel(self) -> Array:
        return self.sides.before.array("functions", "is_kernel")

    @property
    def kernel_names(self) -> list[str]:
        """Names of the kernels that rows were cloned from or have gone with."""
        return self._kernels[0]

    @cached_property
    def paths(self) -> "pl.Series":
        """For each call chain of the batch after its call-sites, from outermost to innermost."""
        import polars as pl

        chains = self.sides.after.tables["call_chains"]
        parent, names = chains["parent_id"], self.sides.text(True, "call_chains")
        depth, above = np.zeros(len(chains), np.int64), np.arange(len(chains))
        while (above >= 0).any():
            depth += above >= 0
            above = take(parent, above)
        begin = starts(depth)
        link, above = np.zeros(int(begin[-1]), np.int64), np.arange(len(chains))
        for step in range(int(depth.max(initial=0))):
            deep = np.flatnonzero(depth > step)
            link[begin[deep + 1] - 1 - step] = above[deep]
            above = take(parent, above)
        frame = pl.DataFrame({"chain": np.repeat(np.arange(len(chains)), depth), "name": gathered(names, link)})
        return frame.group_by("chain", maintain_order=True).agg("name")["name"].cast(pl.List(pl.String))

    def whereabouts(self, found: Finding) -> Whereabouts:
        """Return what each row of a finding belongs to."""
        table, match = found.table, self.match
        _, of_chain, of_function = self._kernels
        if found.owner is not None:
            chain = match.chains(CHILDREN[table].owner)[found.owner]
        else:
            kept = take(match.kept(table).astype(np.int8), found.after) == 1
            chain = np.where(kept, -1, take(match.chains(table), found.after))
        kernel = take(of_chain, chain)
        gone = found.after < 0
        if found.owner is None and gone.any():
            function = np.where(gone, self._functions(False, table, found.before), -1)
            kernel = np.where(gone, take(of_function, function), kernel)
        return Whereabouts(self.modules(found), kernel, chain.astype(np.int64))

    # -- functions and names ------------------------------------------------------------------------------------------

    def _functions(self, is_after: bool, table: str, rows: Array) -> Array:
        """Return the function of each row, -1 where there is none."""
        ir = self.sides.after if is_after else self.sides.before
        if table in ("modules", "queues"):
            return np.full(len(rows), -1, np.int64)
        if table == "functions":
            return rows
        if table != "references":
            return take(ir.array(table, "function_id"), rows)
        found = np.full(len(rows), -1, np.int64)
        for owner, mine, at in self._referring(is_after, rows):
            found[mine] = self._functions(is_after, owner, at)
        return found

    def function_names(self, found: Finding) -> "pl.Series":
        """Return the name of the function of each row: that after, for rows that are gone that before."""
        if found.owner is not None:
            rows = self._functions(True, CHILDREN[found.table].owner, found.owner)
            return gathered(self.sides.text(True, "functions"), rows)
        one, other = (
            gathered(self.sides.text(side, "functions"), self._functions(side, found.table, rows))
            for side, rows in ((False, np.where(found.after < 0, found.before, -1)), (True, found.after))
        )
        return other.fill_null(one)

    def names(self, is_after: bool, table: str, rows: Array) -> "pl.Series":
        """Return the names of rows, or of the named things that own them; null for -1."""
        import polars as pl

        ir = self.sides.after if is_after else self.sides.before
        if table in NAMED:
            return gathered(self.sides.text(is_after, table), rows)
        kind = CHILDREN[table]
        if kind.owner:
            return gathered(self.sides.text(is_after, kind.owner), take(ir.tables[table][kind.key], rows))
        found = pl.Series([None], dtype=pl.String).new_from_index(0, len(rows))
        for owner, mine, at in self._referring(is_after, rows):
            spread = np.full(len(rows), -1, np.int64)
            spread[mine] = at
            found = found.fill_null(self.names(is_after, owner, spread))
        return found

    def _referring(self, is_after: bool, rows: Array) -> list[tuple[str, Array, Array]]:
        """Return which references (places in `rows`) stand in the text of rows of which table, and these rows."""
        table = (self.sides.after if is_after else self.sides.before).tables["references"]
        code = take(table["table"], rows)
        found: list[tuple[str, Array, Array]] = []
        for number in np.unique(code[code >= 0]).tolist():
            mine = np.flatnonzero(code == number)
            found.append((schema.STRUCTURAL["table"][number], mine, table["row"][rows[mine]]))
        return found


def _own(ir: IR, table: str) -> Array:
    """Return the module of each row of a table, modules included."""
    return np.arange(len(ir)) if table == "modules" else ir.array(table, "module_id")
