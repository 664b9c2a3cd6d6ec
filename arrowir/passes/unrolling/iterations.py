"""Where every row goes when loops are unrolled (rule U1).

A block that stays has one *instance*, a loop's body one for each iteration of its whole nest, row-major. Instances are
numbered: those of one block follow each other, so that `instance - first[block]` is the flat iteration number. Since
trip counts are constants, all instances of a block look alike: the place of a row in the result is where its instance
begins, plus a constant of the row. So the place of any (row, instance), and the row and instance of any place, are
array lookups.

The blocks of a lowered loop have one instance each and stand one behind the other, with *markers* before the first and
behind each: rows that are none of the result, where the result is cut into blocks later (`cutting`).
"""

from functools import cached_property
from itertools import pairwise

import numpy as np

from arrowir.derived import take
from arrowir.passes.unrolling.loops import Loops
from arrowir.runs import expand
from arrowir.store import Array, starts

NONE, BEGIN, BETWEEN, END = range(4)
"""Kinds of markers."""


class Iterations:
    """The instances of all blocks of a batch, and the rows of the result.

    Parameters
    ----------
    loops
        The loops to unroll; they have no faults, and what would come of them is of a size that can be made.
    """

    def __init__(self, loops: Loops) -> None:
        self.loops = loops
        self.is_loop = loops.number >= 0
        """Mask of the instructions that go: the loops."""
        self.is_body = loops.owning_loop >= 0
        """Mask of the blocks that go: the loops' bodies."""
        self.has_lowered = bool(loops.lowered.any())
        self.of_lowered = np.append(loops.lowered, False)[loops.owning_loop]
        """Mask of the blocks of lowered loops."""
        self._measure()
        self._number()
        self._place()

    def _measure(self) -> None:
        """Work out how many rows come of each block and instruction, and how many instances each block has."""
        loops = self.loops
        block = loops.block
        sizes = np.bincount(block[~self.is_loop], minlength=len(loops.owner))
        real = sizes.copy() if self.has_lowered else sizes
        if self.has_lowered:
            np.add.at(sizes, block[loops.shapes.row], loops.shapes.markers)
        trips = np.zeros(len(loops.rows), np.int64)
        for level in reversed(loops.levels[1:]):
            level = level[self.is_body[level]]
            loop = loops.owning_loop[level]
            trips[loop] = np.where((sizes[level] > 0) | loops.lowered[loop], loops.trips[loop], 0)
            np.add.at(sizes, loops.parent[level], trips[loop] * sizes[level])
            if self.has_lowered:
                np.add.at(real, loops.parent[level], trips[loop] * real[level])
        trips[loops.lowered] = 1
        self.trips = trips
        """Trips of each loop; 0 for one of which nothing comes, for want of trips or of a body."""
        self.sizes = sizes
        """Rows that come of one instance of each block."""
        count = np.ones(len(loops.owner), np.int64)
        depth = np.zeros(len(loops.owner), np.int32)
        lowered_depth = np.zeros(len(loops.owner), np.int32)
        for level in loops.levels[1:]:
            loop, parent = loops.owning_loop[level], loops.parent[level]
            body = loop >= 0
            count[level] = count[parent]
            count[level[body]] *= trips[loop[body]]
            depth[level] = np.where(body, depth[parent] + 1, 0)
            if self.has_lowered:
                lowered_depth[level] = np.where(body, lowered_depth[parent] + self.of_lowered[level], 0)
        self.count = count
        """Instances of each block."""
        self.depth = depth
        """Loops around each block; 0 for blocks that stay."""
        self.lowered_depth = lowered_depth
        """Lowered loops among them, which are the outer ones."""
        self.repeated = depth > lowered_depth
        """Mask of the blocks that loops are unrolled around."""
        self.kept = ~self.is_body & (count == 1)
        """Mask of the blocks that stay."""
        of_row = np.ones(len(block), np.int64)
        bodies = np.flatnonzero(self.is_body)
        of_row[loops.rows] = trips * self._in_bodies(sizes, bodies)
        if self.has_lowered:
            of_row[loops.shapes.row] += loops.shapes.markers
        self.of_row = of_row
        """Rows that come of each row in one instance of its block, markers included."""
        self.leaves_nothing = (
            of_row[loops.rows] if not self.has_lowered else self._in_bodies(real, bodies) * trips
        ) == 0
        """Mask of the loops of which no instruction comes."""
        before = starts(of_row)[:-1]
        first_row = np.searchsorted(block, np.arange(len(loops.owner)))
        self.within = before - before[first_row[block]] if len(block) else before
        """Place of each row within one instance of its block."""

    def _in_bodies(self, sizes: Array, bodies: Array) -> Array:
        """Return how many rows all blocks of each loop have."""
        found = np.zeros(len(self.loops.rows), np.int64)
        np.add.at(found, self.loops.owning_loop[bodies], sizes[bodies])
        return found

    def _offsets(self) -> Array:
        """Return for each block of a lowered loop how far behind the first marker it begins; 0 for others."""
        found = np.zeros(len(self.loops.owner), np.int64)
        if self.has_lowered:
            shapes = self.loops.shapes
            before = starts(self.sizes[shapes.bodies] + 1)[:-1]
            found[shapes.bodies] = 1 + before - before[np.searchsorted(shapes.of_body, shapes.of_body)]
        return found

    def _number(self) -> None:
        """Number the instances: blocks that stay first, then bodies, level by level."""
        loops = self.loops
        kept = np.flatnonzero(self.kept)
        first = np.full(len(loops.owner), -1, np.int64)
        first[kept] = np.arange(len(kept))
        begin = [starts(self.sizes[kept])[:-1]]
        block, parent, iteration, value = (
            [kept],
            [np.full(len(kept), -1)],
            [np.zeros(len(kept), np.int64)],
            [np.zeros(len(kept), np.int64)],
        )
        total = len(kept)
        offset = self._offsets()
        self._offset = offset
        for level in loops.levels[1:]:
            bodies = level[self.is_body[level] & (self.count[level] > 0)]
            if not len(bodies):
                continue
            loop, around = loops.owning_loop[bodies], loops.parent[bodies]
            counts, trips = self.count[bodies], self.trips[loop]
            first[bodies] = total + starts(counts)[:-1]
            outer = np.repeat(expand(first[around], self.count[around]), np.repeat(trips, self.count[around]))
            which = np.repeat(np.arange(len(bodies)), counts)
            number = (np.arange(len(which)) - (first[bodies] - total)[which]) % trips[which]
            known = np.concatenate(begin)
            inside = self.within[loops.rows[loop]] + offset[bodies]
            begin.append(known[outer] + inside[which] + number * self.sizes[bodies][which])
            block.append(bodies[which])
            parent.append(outer)
            iteration.append(number)
            value.append(loops.lower[loop][which] + number * loops.stride[loop][which])
            total += len(which)
        self.first = first
        """First instance of each block."""
        self.block = np.concatenate(block)
        """Block of each instance."""
        self.parent = np.concatenate(parent)
        """The instance that each instance stands in, -1 for blocks that stay."""
        self.iteration = np.concatenate(iteration)
        """Iteration number in the innermost loop."""
        self.value = np.concatenate(value)
        """Value of the innermost loop's axis."""
        self.begin = np.concatenate(begin)
        """First row of each instance in the result."""
        self.instance_depth = self.depth[self.block]
        self._ancestors: dict[int, Array] = {}

    def _place(self) -> None:
        """Lay out the rows of the result."""
        block = self.loops.block
        self.repeats = np.where(self.is_loop, 0, self.count[block]) if len(block) else np.zeros(0, np.int64)
        """How many rows come of each row."""
        row = np.repeat(np.arange(len(block)), self.repeats)
        instance = expand(self.first[block], self.repeats)
        place = self.begin[instance] + self.within[row]
        marker = np.zeros(len(row), np.int8)
        if self.has_lowered:
            marks = self._markers()
            row, instance, place, marker = (
                np.concatenate(pair) for pair in zip((row, instance, place, marker), marks, strict=True)
            )
        self.source = np.empty(len(row), np.int64)
        """The row that each row of the result comes from."""
        self.source[place] = row
        self.instance = np.empty(len(row), np.int64)
        """The instance that each row of the result is in."""
        self.instance[place] = instance
        self.marker = np.zeros(len(row), np.int8)
        """What each row of the result stands for: `NONE` for an instruction, else where blocks begin and end."""
        self.marker[place] = marker

    def _markers(self) -> tuple[Array, Array, Array, Array]:
        """Return row, instance, place and kind of the markers: before lowered loops and behind each of their blocks."""
        shapes = self.loops.shapes
        around = self.first[self.loops.block[shapes.row]]
        begin = self.begin[around] + self.within[shapes.row]
        bodies, of_body = shapes.bodies, shapes.of_body
        behind = begin[of_body] + self._offset[bodies] + self.sizes[bodies]
        kind = np.where(shapes.last_body[of_body] == bodies, END, BETWEEN)
        bare = np.flatnonzero(shapes.blocks == 0)
        lowered = np.concatenate((np.arange(len(begin)), of_body, bare))
        kinds = np.concatenate((np.full(len(begin), BEGIN), kind, np.full(len(bare), END))).astype(np.int8)
        return shapes.row[lowered], around[lowered], np.concatenate((begin, behind, begin[bare] + 1)), kinds

    # -- looking up ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Number of instructions of the result."""
        return len(self.source)

    @cached_property
    def new_block(self) -> Array:
        """New number of each block, -1 for bodies."""
        return np.where(self.kept, np.cumsum(self.kept) - 1, -1).astype(np.int32)

    @cached_property
    def flat(self) -> Array:
        """Flat iteration number of each instance."""
        return np.arange(len(self.block)) - self.first[self.block]

    @cached_property
    def _by_depth(self) -> list[Array]:
        """The instances by depth."""
        order = np.argsort(self.instance_depth, kind="stable")
        begins = np.searchsorted(self.instance_depth[order], np.arange(int(self.instance_depth.max(initial=0)) + 2))
        return [order[begin:end] for begin, end in pairwise(begins.tolist())]

    def at_depth(self, depth: int) -> Array:
        """Return for each instance the one in so many loops that it is, or is inside of; -1 where it is less deep."""
        if depth not in self._ancestors:
            found = np.full(len(self.block), -1)
            found[self._by_depth[depth]] = self._by_depth[depth]
            for mine in self._by_depth[depth + 1 :]:
                found[mine] = found[self.parent[mine]]
            self._ancestors[depth] = found
        return self._ancestors[depth]

    def place(self, row: Array, instance: Array) -> Array:
        """Return the place of rows in instances of their blocks."""
        return self.begin[instance] + self.within[row]

    def first_together(self, instance: Array) -> Array:
        """Return the first instance that comes of the same loop in the same iterations of the loops around it."""
        found = instance - self.iteration[instance]
        if not self.has_lowered:
            return found
        shapes = self.loops.shapes
        head = np.arange(len(self.is_body))
        head[shapes.bodies] = shapes.bodies[np.searchsorted(shapes.of_body, shapes.of_body)]
        block = self.block[instance]
        return np.where(self.of_lowered[block], self.first[head[block]], found)

    def common_depth(self, one: Array, other: Array) -> Array:
        """Return how many loops pairs of blocks have in common."""
        one, other = one.copy(), other.copy()
        parent = self.loops.parent
        while True:
            deep_one, deep_other = self.depth[one], self.depth[other]
            apart = (one != other) & (deep_one + deep_other > 0)
            if not apart.any():
                return np.where(one == other, deep_one, 0)
            up_one = apart & (deep_one >= deep_other)
            up_other = apart & (deep_other >= deep_one)
            one[up_one] = parent[one[up_one]]
            other[up_other] = parent[other[up_other]]

    def axis_depth(self, block: Array, loop_row: Array) -> Array:
        """Return how deep the bodies of loop instructions are around blocks, -1 where they are not around them."""
        loops = self.loops
        has_body = np.zeros(len(self.is_loop), bool)
        has_body[loops.owner[self.is_body]] = True
        known = (loop_row >= 0) & np.append(has_body, False)[loop_row]
        depth = np.where(known, take(self.depth, take(loops.block, np.where(known, loop_row, -1))) + 1, -1)
        at = block.copy()
        while True:
            up = (depth >= 0) & (self.depth[at] > depth)
            if not up.any():
                return np.where(known & (loops.owner[at] == loop_row), depth, -1)
            at[up] = loops.parent[at[up]]

    def named_depth(self, block: Array, axis: Array) -> Array:
        """Return how deep the nearest loop around blocks is whose axis has some name (by pool id), -1 without one."""
        axes = self.loops.ir.tables["loops"]
        name = np.full(len(self.is_loop), -1, np.int64)
        name[axes["instruction_id"][::-1]] = axes["axis"][::-1]
        name = name[self.loops.rows]
        found = np.full(len(block), -1, np.int64)
        at = block.copy()
        open_ = (self.depth[at] > 0) & (axis >= 0)
        while open_.any():
            loop = self.loops.owning_loop[at]
            hit = open_ & (take(name, loop) == axis)
            found[hit] = self.depth[at[hit]]
            open_ &= ~hit
            at[open_] = self.loops.parent[at[open_]]
            open_ &= self.depth[at] > 0
        return found


class Links:
    """What instructions point at, in each iteration (rule U7).

    The same values of the loops around both, the last iteration of the others.

    Parameters
    ----------
    iterations
        The instances.
    from_block
        For each link the block that the pointing instruction stands in.
    to_row
        The instruction that it points at, which has instances (of a loop: those of the block that it stands in).
    """

    def __init__(self, iterations: Iterations, from_block: Array, to_row: Array) -> None:
        self.iterations = iterations
        self.to_row = to_row
        to_block = iterations.loops.block[to_row]
        self.depth = iterations.common_depth(from_block, to_block)
        self.first = iterations.first[to_block]
        around = np.ones(len(to_row), np.int64)
        for depth in np.unique(self.depth).tolist():
            if depth:
                mine = self.depth == depth
                shared = iterations.block[iterations.at_depth(depth)[self.first[mine]]]
                around[mine] = iterations.count[shared]
        self.inner = iterations.count[to_block] // around

    def shared(self, link: Array, instance: Array) -> Array:
        """Return the instance of the innermost loop around both ends; any where there is none."""
        depth = self.depth[link]
        found = instance.copy()
        climb = np.flatnonzero((self.iterations.instance_depth[instance] != depth) & (depth > 0))
        if len(climb):
            wanted = depth[climb]
            for each in np.unique(wanted).tolist():
                mine = climb[wanted == each]
                found[mine] = self.iterations.at_depth(each)[instance[mine]]
        return found

    def follow(self, link: Array, instance: Array, back: Array | None = None) -> Array:
        """Return the instance pointed at from each instance; -1 where it lies `back` iterations before the first."""
        shared = self.shared(link, instance)
        flat = self.iterations.flat[shared]
        flat[self.depth[link] == 0] = 0
        if back is not None:
            flat = flat - back
        found = self.first[link] + (flat + 1) * self.inner[link] - 1
        if back is not None:
            found[self.iterations.iteration[shared] < back] = -1
        return found
