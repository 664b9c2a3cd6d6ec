"""Expressions in text, worked out in every iteration (rule U5): programs meet the values of the loops' axes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arrowir import schema
from arrowir.derived import take
from arrowir.expressions import Program, Run, run
from arrowir.passes.unrolling.iterations import Iterations
from arrowir.store import Array

TABLE_CODES = {name: code for code, name in enumerate(schema.STRUCTURAL["table"])}


CHUNK = 1 << 15
"""Cells that are worked on at a time: what is computed on the way stays in the processor's cache."""


@dataclass
class Subjects:
    """Rows whose text computes something; a cell is one of them in one instance."""

    table: str
    """The table of the rows."""
    chosen: Array
    """The subjects that cells are of."""
    row: Array
    """For each subject the row whose placeholders its text has."""
    block: Array
    """For each subject the block that its instruction stands in."""
    program: Array
    """For each subject the number of its program."""
    programs: Sequence[Program]
    by_name: Array | None = None
    """Mask of the subjects that stand elsewhere than their text did, so that axes are looked up by name."""


Given = Sequence[tuple[Array, Array | None]]
"""Numbers that programs ask for: each with a value per subject, and a mask of subjects where it leaves 64 bits."""


class LoopValues:
    """Runs programs over instances.

    Parameters
    ----------
    iterations
        The instances.
    shard_id
        The value of the shard.
    """

    def __init__(self, iterations: Iterations, shard_id: int) -> None:
        self.iterations = iterations
        self.ir = iterations.loops.ir
        self.shard_id = shard_id
        self._at_depth: dict[int, Array] = {}

    def run(
        self, subjects: Subjects, subject: Array, instance: Array, given: Given = ()
    ) -> Iterator[tuple[Array | slice, Program, Run]]:
        """Run the programs of some cells.

        Parameters
        ----------
        subjects
            The rows.
        subject, instance
            The cells.
        given
            Further numbers.

        Yields
        ------
        cells, program, run
            Which cells, all of programs of one form; that form; its results, in the order of the cells.
        """
        forms: dict[object, int] = {}
        form_of = np.array([forms.setdefault((p.steps, p.results), len(forms)) for p in subjects.programs], np.int16)
        if len(forms) == 1:
            form = _Form(self, subjects, np.arange(len(form_of)), subjects.chosen, given)
            for begin in range(0, len(subject), CHUNK):
                cells = slice(begin, begin + CHUNK)
                yield cells, form.program, form.run(subject[cells], instance[cells])
            return
        form = form_of[subjects.program[subject]]
        order = np.argsort(form, kind="stable")
        begins = np.searchsorted(form[order], np.arange(len(forms) + 1))
        of_chosen = form_of[subjects.program[subjects.chosen]]
        for number in range(len(forms)):
            form = _Form(self, subjects, np.flatnonzero(form_of == number), subjects.chosen[of_chosen == number], given)
            for begin in range(int(begins[number]), int(begins[number + 1]), CHUNK):
                cells = order[begin : min(begin + CHUNK, int(begins[number + 1]))]
                yield cells, form.program, form.run(subject[cells], instance[cells])

    def at_depth(self, depth: int) -> Array:
        """Return for each instance the value of the axis of the loop around it whose body is so deep."""
        if depth not in self._at_depth:
            around = self.iterations.at_depth(depth)
            self._at_depth[depth] = np.where(around >= 0, self.iterations.value[around], 0)
        return self._at_depth[depth]


class _Form:
    """Programs of one form, ready to run: what does not depend on the instance is looked up once."""

    def __init__(self, values: LoopValues, subjects: Subjects, members: Array, rows: Array, given: Given) -> None:
        self.values, self.subjects, self.rows = values, subjects, rows
        self.program = subjects.programs[int(members[0])]
        self.constants = [self._constant(members, place) for place in range(len(self.program.constants))]
        self.given = [
            (_common(numbers, rows), bad if bad is not None and bad[rows].any() else None) for numbers, bad in given
        ]
        axes = {step[1] for step in self.program.steps if step[0] in ("axis", "named")}
        self.depths = {axis: _common(self._spread(self._depths(axis)), rows) for axis in axes}

    def _constant(self, members: Array, place: int) -> Array | int:
        numbers = [self.subjects.programs[k].constants[place] for k in members.tolist()]
        if numbers.count(numbers[0]) == len(numbers):
            return numbers[0]
        table = np.zeros(len(self.subjects.programs), np.int64)
        table[members] = numbers
        return self._spread(table[self.subjects.program[self.rows]])

    def _spread(self, numbers: Array) -> Array:
        """Return numbers of the rows as an array over all subjects."""
        table = np.zeros(len(self.subjects.row), np.int64)
        table[self.rows] = numbers
        return table

    def _depths(self, axis: int | str) -> Array:
        """Return how deep the body of the loop is whose axis each row means; -1 where it is not around the row."""
        values, subjects, rows = self.values, self.subjects, self.rows
        iterations, ir, block = values.iterations, values.ir, subjects.block[rows]
        if isinstance(axis, str):
            return iterations.named_depth(block, np.full(len(rows), ir.pools.names.find(axis)))
        references, loops = ir.tables["references"], ir.tables["loops"]
        mine = np.flatnonzero(references["table"] == TABLE_CODES[subjects.table])
        at = mine[np.searchsorted(references["row"][mine], subjects.row[rows]) + axis]
        target = references["target_id"][at]
        depth = iterations.axis_depth(block, take(loops["instruction_id"], target))
        moved = None if subjects.by_name is None else subjects.by_name[rows]
        if moved is not None and moved.any():
            named = np.where(target >= 0, take(loops["axis"], target), references["name"][at])
            depth[moved] = iterations.named_depth(block[moved], named[moved])
        return depth

    def run(self, subject: Array, instance: Array) -> Run:
        """Run the program in some cells."""

        def axis(which: int | str) -> tuple[Array, Array | None]:
            depth = self.depths[which]
            if isinstance(depth, int):
                if depth > 0:
                    return self.values.at_depth(depth)[instance], None
                return np.zeros(len(subject), np.int64), np.ones(len(subject), bool)
            of_cell = depth[subject]
            out = np.zeros(len(subject), np.int64)
            for each in np.unique(of_cell[of_cell > 0]).tolist():
                out = np.where(of_cell == each, self.values.at_depth(each)[instance], out)
            return out, of_cell <= 0

        constants = [c if isinstance(c, int) else c[subject] for c in self.constants]
        given = [(n if isinstance(n, int) else n[subject], None if b is None else b[subject]) for n, b in self.given]
        return run(
            self.program, len(subject), axis=axis, shard_id=self.values.shard_id, constants=constants, given=given
        )


def _common(numbers: Array, rows: Array) -> Array | int:
    """Return the number that all of some rows have, or all numbers."""
    some = numbers[rows]
    return int(some[0]) if len(some) and (some == some[0]).all() else numbers
