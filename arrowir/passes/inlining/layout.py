"""Where rows come to stand when bodies take the place of call-sites (rules N12, N13, N20).

The block around a call-site is cut into *segments*. A body that is spliced lies within one; after a body that splits
the block, what follows goes on in its continuation. All call-sites of a block are laid out at once: in row order, so
that those of one block follow each other.
"""

from dataclasses import dataclass

import numpy as np

from arrowir import layouts, vocabulary
from arrowir.names import picked, suffixed
from arrowir.passes.inlining.call_edges import CallEdges
from arrowir.passes.inlining.extended import Extended, groups
from arrowir.passes.inlining.kernel_bodies import Bodies
from arrowir.runs import Runs, blank, join_text
from arrowir.store import Array, Strings, Table, starts

HELPERS = ("noop", "br_to_entry", "start", "noop", "done", "continuation_noop")
"""What may be made beside the clones of a call-site, and what its name ends in, in the order in which they stand: a
NoOp for what would be empty, a branch to the entry, the gatherer of roots, a NoOp for an empty entry, the gatherer of
sinks, a NoOp for an empty continuation."""

ALONE, TO_ENTRY, START, ENTRY, DONE, CONTINUATION = range(len(HELPERS))
CLONES = -1


@dataclass
class Segments:
    """The segments around call-sites, and the one that each call-site is in."""

    of_site: Array
    """Segment in which each call-site stands; a body that splits ends it."""
    after: Array
    """Segment that begins behind each call-site that splits, else -1."""
    begin: Array
    """First row of each segment, and the row behind it."""
    end: Array
    opened_by: Array
    """The call-site that begins a segment, -1 where the block does."""
    last: Array
    """The last call-site in each segment, -1 for none."""

    @classmethod
    def of(cls, row: Array, block: Array, of_block: Array, split: Array) -> "Segments":
        """Cut blocks at call-sites.

        Parameters
        ----------
        row, block, split
            Instruction and block of each call-site, and whether its body splits the block.
        of_block
            Block of every instruction.
        """
        order = np.argsort(row)
        here, cuts = block[order], split[order]
        opens = np.ones(len(order), bool)  # a segment begins with the block, and behind a site that splits it
        opens[1:] = (here[1:] != here[:-1]) | cuts[:-1]
        number = np.cumsum(opens) - 1
        cut = np.flatnonzero(cuts)
        follows = np.append(here[1:] == here[:-1], False)[cut]  # whether another call-site stands behind it
        total = int(number[-1]) + 1 if len(number) else 0
        after = np.full(len(order), -1, np.int64)
        after[cut[follows]] = number[cut[follows] + 1]
        alone = cut[~follows]
        after[alone] = total + np.arange(len(alone))
        first = np.flatnonzero(opens)
        begin = np.concatenate((np.searchsorted(of_block, here[first]), row[order[alone]] + 1))
        opened = np.full(len(begin), -1, np.int64)
        opened[after[cut]] = order[cut]
        begin[after[cut]] = row[order[cut]] + 1
        end = np.searchsorted(of_block, np.concatenate((here[first], here[alone])), side="right")
        end[number[cut]] = row[order[cut]]
        last = np.full(len(begin), -1, np.int64)
        last[number] = order
        of_site, behind = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        of_site[order], behind[order] = number, after
        return cls(of_site, behind, begin, end, opened, last)


@dataclass
class Layout:
    """What stands at each call-site."""

    segments: Segments
    present: Array
    """Whether a call-site has each helper; (helpers, call-sites)."""
    head: Array
    """Clones before the gatherer of sinks."""
    exit_block: Array
    """Block, of the body, of the last clone."""


def lay_out(batch: Extended, row: Array, bodies: Bodies, body: Array, calls: CallEdges) -> Layout:
    """Decide what stands at each call-site."""
    of_block = batch.ir.tables["instructions"]["block_id"]
    split, own_entry = bodies.split[body], bodies.own_entry[body]
    segments = Segments.of(row, of_block[row], of_block, split)
    entry = np.where(split, _entry_rows(batch, bodies)[body], bodies.count[body])
    present = np.zeros((len(HELPERS), len(row)), bool)
    present[START], present[DONE], present[TO_ENTRY] = calls.start, calls.done, own_entry
    present[ENTRY] = own_entry & (entry == 0) & ~calls.start

    size = (segments.end - segments.begin).astype(np.int64)
    np.subtract.at(size, segments.of_site[~split], 1)
    np.add.at(size, segments.of_site, np.where(own_entry, 1, entry + calls.start))
    empty = np.flatnonzero(size == 0)
    last, opened = segments.last[empty], segments.opened_by[empty]
    present[ALONE, last[last >= 0]] = True
    present[CONTINUATION, opened[last < 0]] = True
    head, exit_block = _exits(batch, bodies)
    return Layout(segments, present, head[body], exit_block[body])


def _entry_rows(batch: Extended, bodies: Bodies) -> Array:
    """Return how many rows the entry block of each body has."""
    if not bodies.split.any():
        return bodies.count
    return batch.children("instructions", np.maximum(bodies.block, 0))[1]


def _exits(batch: Extended, bodies: Bodies) -> tuple[Array, Array]:
    """Return how many rows of each body stand before the gatherer of sinks, and the block of the last clone."""
    opcode, block = batch.column("instructions", "opcode"), batch.column("instructions", "block_id")
    last = bodies.count - 1
    which = np.flatnonzero(bodies.split)
    if len(which):
        body, number = groups(bodies.count[which])
        clones = ~np.isin(bodies.start[which][body] + number, batch.made)
        last[which] = -1
        np.maximum.at(last, which[body[clones]], number[clones])
    some = last >= 0
    at = bodies.start[some] + last[some]
    ends, exit_block = np.zeros(len(last), bool), np.full(len(last), -1, np.int64)
    ends[some], exit_block[some] = np.isin(opcode[at], vocabulary.TERMINATORS), block[at]
    return np.where(ends, last, last + 1), exit_block


def helpers(batch: Extended, row: Array, names: Strings, layout: Layout) -> Table:
    """Make the rows that stand beside clones, kind by kind and call-site by call-site; blocks are settled later."""
    instructions, pool = batch.ir.tables["instructions"], batch.ir.pools.layouts
    kind, site = np.nonzero(layout.present)
    keys = ["name", "opcode", "engine", "ins", "outs"]
    branch = kind == TO_ENTRY
    texts = [suffixed(picked(names, site[kind == k]), f"_{HELPERS[k]}") for k in np.unique(kind).tolist()]
    return Table.of(
        "instructions",
        len(site),
        block_id=instructions["block_id"][row[site]],
        name=join_text([blank(0), *texts]),
        opcode=np.where(branch, vocabulary.OP_UNCONDITIONAL_BRANCH, vocabulary.OP_NOOP),
        engine=instructions["engine"][row[site]],
        layout=np.where(branch, pool.intern(layouts.of([*keys, "target"])), pool.intern(layouts.of(keys))),
    )


@dataclass
class Placed:
    """The runs of instructions, and where the pieces at each call-site come to stand."""

    runs: Runs
    first: Array
    """New row of the first clone."""
    helper: Array
    """New row of each helper, -1 where there is none; (helpers, call-sites)."""


def place(row: Array, stays: Runs, bodies: Bodies, body: Array, layout: Layout, first_helper: int) -> Placed:
    """Put callers' rows, clones and helpers in order.

    Parameters
    ----------
    row, bodies, body, layout
        The call-sites, and what stands there.
    stays
        The callers' rows.
    first_helper
        Row of the first helper.
    """
    number = np.arange(len(row))
    start, head, count = bodies.start[body], layout.head, bodies.count[body]
    at = np.cumsum(layout.present.ravel()).reshape(layout.present.shape) - 1 + first_helper
    pieces = [(stays.start * 2, stays.start, stays.length, stays.copy)]
    place_of: dict[int, int] = {}  # of each kind of helper, and of clones, among the pieces of a call-site
    for kind in range(len(HELPERS)):
        if kind == DONE:
            place_of[CLONES] = len(pieces) - 1
            pieces.append((row * 2 + 1, start, head, number + 1))
        if layout.present[kind].any():
            place_of[kind] = len(pieces) - 1
            pieces.append((row * 2 + 1, at[kind], layout.present[kind].astype(np.int64), number * 0))
        if kind == DONE and (head < count).any():
            pieces.append((row * 2 + 1, start + head, count - head, number + 1))
    key, begin, length, copy = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(key, kind="stable")
    new = np.empty(len(order), np.int64)
    new[order] = starts(length[order])[:-1]
    of_piece = new[len(stays.start) :].reshape(-1, len(row))
    first, helper = of_piece[place_of.pop(CLONES)], np.full(layout.present.shape, -1, np.int64)
    for kind, piece in place_of.items():
        helper[kind] = np.where(layout.present[kind], of_piece[piece], -1)
    return Placed(Runs.of(begin[order], length[order], copy[order]), first, helper)
