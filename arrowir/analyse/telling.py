"""A difference in a few lines."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from arrowir.analyse.children import CHILDREN, owners
from arrowir.analyse.comparing import ADDED, MOVED, REMOVED, RENAMED, TABLES, WHATS, Finding
from arrowir.analyse.matching import Match
from arrowir.derived import take
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.analyse.diff import Diff

MODULES, LINES, SHOWN = 10, 60, 4
"""Most modules, lines of each, and differences named in a line."""

LOOKED_AT = 100_000
"""Most rows of a kind among which the most frequent differences are sought."""

WIDEST = 48
"""A name or value of more characters is cut."""


def text(found: "Diff") -> str:
    """Return the most important of a difference, as text.

    Rows that come and go with what owns them - operands of a new instruction, say - are not told of.
    """
    parts = [title(found)]
    for name, lines in told(found):
        parts.append("\n".join([plain(name), *(f"  {table:<14} {line}" for table, line in lines)]))
    if (rest := found.differing - MODULES) > 0:
        parts.append(f"... and {rest:,} more module{'' if rest == 1 else 's'}")
    return "\n\n".join(parts)


def title(found: "Diff") -> str:
    """Return the line that says how many modules differ."""
    total = found.module_count
    modules = f"{total:,} module{'' if total == 1 else 's'}"
    if not found:
        return f"{modules}: no difference"
    return f"{modules}: {found.differing:,} differ{'s' if found.differing == 1 else ''}"


def told(found: "Diff") -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield name and lines of the first modules that differ; a line is a table and what is to be said of it."""
    order = sorted(range(len(found.findings)), key=lambda k: _rank(found.findings[k]))
    kinds = [_Kind(found, found.findings[k]) for k in order]
    names = found.facts.module_names
    for module in found.facts.counts["module"].unique().sort().head(MODULES).to_list():
        lines = [(kind.finding.table, line) for kind in kinds for line in kind.lines(module)]
        if (rest := len(lines) - LINES) > 0:
            lines = [*lines[:LINES], ("...", f"{rest:,} more lines; `summary` has all")]
        yield names[module], lines


def _rank(finding: Finding) -> tuple[int, int]:
    return TABLES.index(finding.table), WHATS.index(finding.what)


class _Kind:
    """One kind of difference."""

    def __init__(self, found: "Diff", finding: Finding) -> None:
        self.found, self.finding = found, finding
        of = found.facts.whereabouts(finding)
        worth = np.flatnonzero(_worth(found, finding))
        # Things that are added are told by kernel; of their cells, clones of all kernels are told together.
        self.by_kernel = finding.what == ADDED and finding.table not in CHILDREN
        group = of.kernel if self.by_kernel else np.minimum(of.chain, 0)
        order = np.lexsort((group[worth], of.module[worth]))
        self.rows = worth[order]
        self.module, self.group = of.module[self.rows], group[self.rows]
        self.kernel, self.chain = of.kernel, of.chain

    def lines(self, module: int) -> Iterator[str]:
        """Yield the lines about a module."""
        first, end = np.searchsorted(self.module, [module, module + 1])
        if first == end:
            return
        cuts = np.flatnonzero(np.diff(self.group[first:end])) + 1
        for rows in np.split(self.rows[first:end], cuts):
            yield self._line(rows)

    def _line(self, rows: Array) -> str:
        head = f"{len(rows):,} {self.finding.what}"
        if self.chain[rows[0]] < 0:
            return f"{head}: {self._examples(rows)}"
        kernels = np.unique(self.kernel[rows]).tolist()
        kernel = plain(self.found.facts.kernel_names[kernels[0]])
        if self.by_kernel:
            sites = len(np.unique(self.chain[rows]))
            each = f" x {len(rows) // sites:,}" if len(rows) % sites == 0 else ""
            return f"{head}: {sites:,} call-site{'' if sites == 1 else 's'}{each} of kernel {kernel}"
        clones = f"clones of {kernel}" if len(kernels) == 1 else f"clones of {len(kernels):,} kernels"
        return f"{head} in {clones}: {self._examples(rows)}"

    def _examples(self, rows: Array) -> str:
        """Name some rows, or the most frequent changes of cells."""
        import polars as pl

        finding = self.finding
        if finding.what in (ADDED, REMOVED, RENAMED) and finding.table not in CHILDREN:
            return ", ".join(self._named(rows[:SHOWN])) + (", ..." if len(rows) > SHOWN else "")
        some = rows[:LOOKED_AT]
        frame = pl.DataFrame({"before": finding.spelled[0](some), "after": finding.spelled[1](some)})
        counted = frame.group_by("before", "after", maintain_order=True).len()
        counted = counted.sort("len", descending=True, maintain_order=True)
        whole = len(counted) > 1 and len(some) == len(rows)
        listed = [self._change(*row, counted=whole) for row in counted.head(SHOWN).iter_rows()]
        more = ", ..." if len(counted) > SHOWN or len(some) < len(rows) else ""
        column = "" if finding.what in (ADDED, REMOVED) else f"{plain(finding.column).removesuffix('_id')} "
        return f"{column}{', '.join(listed)}{more}"

    def _named(self, places: Array) -> list[str]:
        """Return the names of rows, with what they are."""
        finding = self.finding
        names = [
            self.found.facts.names(is_after, finding.table, rows[places]).to_list()
            for is_after, rows in ((False, finding.before), (True, finding.after))
        ]
        if finding.what == RENAMED:
            return [f"{plain(old)} -> {plain(new)}" for old, new in zip(*names, strict=True)]
        is_after = finding.what == ADDED
        if finding.table == "functions":
            ir = self.found.after if is_after else self.found.before
            count = np.bincount(ir.array("instructions", "function_id") + 1, minlength=ir.count("functions") + 1)
            size = count[1 + (finding.after if is_after else finding.before)[places]].tolist()
            cells: list[str | None] = [f"{n:,} instruction{'' if n == 1 else 's'}" for n in size]
        else:
            cells = finding.spelled[is_after](places).to_list()
        shown = zip(names[is_after], cells, strict=True)
        return [plain(name) + (f" ({plain(cell)})" if cell else "") for name, cell in shown]

    def _change(self, before: str | None, after: str | None, count: int, *, counted: bool) -> str:
        what = self.finding.what
        if what in (ADDED, REMOVED):
            change = plain(after if what == ADDED else before)
        elif what == MOVED and self.finding.column == "order":
            change = f"behind {plain(before)} -> behind {plain(after)}"
        else:
            change = f"{plain(before)} -> {plain(after)}"
        return f"{change} ({count:,})" if counted and count > 1 else change


def _worth(found: "Diff", finding: Finding) -> Array:
    """Tell which rows are to be told of: not those that come and go with what they stand in."""
    table, match = finding.table, found.matched
    mine = np.ones(len(finding.before), bool)
    if finding.what not in (ADDED, REMOVED) or table in ("modules", "references"):
        # Where references are, the members that hold them are told of.
        return mine & ((table != "references") | (finding.what not in (ADDED, REMOVED)))
    gone = finding.what == REMOVED
    if table not in CHILDREN:
        rows = finding.before if gone else finding.after
        for above, ids in _around(match, table, not gone, rows):
            there = match.twins[above].twin if gone else match.twins[above].source
            mine &= (ids < 0) | (take(there, ids) >= 0)
        return mine
    kind = CHILDREN[table]
    own = owners(match, table)
    if gone:
        return take(match.twins[kind.owner].twin, own[0][finding.before]) >= 0
    owner = own[1][finding.after]
    return match.kept(kind.owner)[owner] | ((match.origin[kind.owner][owner] >= 0) & (finding.before < 0))


def _around(match: Match, table: str, is_after: bool, rows: Array) -> Iterator[tuple[str, Array]]:
    """Yield what named things stand in, from the outside: functions and queues, and for these modules."""
    arrays = match.sides.arrays
    if table in ("functions", "queues"):
        yield "modules", arrays(table, "module_id")[is_after][rows]
        return
    yield "functions", arrays(table, "function_id")[is_after][rows]
    block = rows
    if table == "instructions":
        block = arrays(table, "block_id")[is_after][rows]
    if table in ("blocks", "instructions"):
        yield "queues", arrays("blocks", "queue_id")[is_after][block]


def plain(text: str | None) -> str:
    r"""Return a name or value in one line, cut if it is long; nothing is `null`.

    Examples
    --------
    >>> print(plain("a\tb"), plain(None))
    a\tb null
    """
    if text is None:
        return "null"
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."
