"""Expressions in text, worked out in every iteration (rule U5): programs meet the values of the loops' axes."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from arrowir import schema
from arrowir.derived import take
from arrowir.expressions import Program, Run, run
from arrowir.passes.iterations import Iterations
from arrowir.store import Array

TABLE_CODES = {name: code for code, name in enumerate(schema.STRUCTURAL["table"])}


@dataclass
class Subjects:
    """Rows whose text computes something; a cell is one of them in one instance."""

    table: str
    """The table of the rows."""
    row: Array
    """For each subject the row whose placeholders its text has."""
    block: Array
    """For each subject the block that its instruction stands in."""
    program: Array
    """For each subject the number of its program."""
    programs: Sequence[Program]
    by_name: Array | None = None
    """Mask of the subjects that stand elsewhere than their text did, so that axes are looked up by name."""


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
        self._axis_values: dict[int, Array] = {}

    def run(
        self, subjects: Subjects, subject: Array, instance: Array, given: Sequence[tuple[Array, Array | None]] = ()
    ) -> Iterator[tuple[Array, Program, Run]]:
        """Run the programs of some cells.

        Parameters
        ----------
        subjects
            The rows.
        subject, instance
            The cells.
        given
            For each further number that programs ask for: its value for each subject, and a mask of subjects where it does not
            fit 64 bits.

        Yields
        ------
        cells, program, run
            The cells of programs of one form, that form, and its results, in the order of the cells.
        """
        forms: dict[object, int] = {}
        form_of = np.array([forms.setdefault((p.steps, p.results), len(forms)) for p in subjects.programs], np.int64)
        form = form_of[subjects.program[subject]]
        for number in range(len(forms)):
            cells = np.arange(len(subject)) if len(forms) == 1 else np.flatnonzero(form == number)
            if len(cells):
                of_form = np.flatnonzero(form_of == number)
                yield self._run_form(subjects, of_form, cells, subject[cells], instance[cells], given)

    def _run_form(
        self,
        subjects: Subjects,
        of_form: Array,
        cells: Array,
        subject: Array,
        instance: Array,
        given: Sequence[tuple[Array, Array | None]],
    ) -> tuple[Array, Program, Run]:
        program = subjects.programs[int(of_form[0])]
        which = subjects.program[subject]
        constants: list[Array | int] = []
        for place in range(len(program.constants)):
            values = [subjects.programs[k].constants[place] for k in of_form.tolist()]
            if values.count(values[0]) == len(values):
                constants.append(values[0])
            else:
                table = np.zeros(len(subjects.programs), np.int64)
                table[of_form] = values
                constants.append(table[which])
        numbers = [(_gathered(values, subject), None if bad is None else bad[subject]) for values, bad in given]
        axis = self._axis(subjects, subject, instance)
        result = run(program, len(cells), axis=axis, shard_id=self.shard_id, constants=constants, given=numbers)
        return cells, program, result

    def _axis(
        self, subjects: Subjects, subject: Array, instance: Array
    ) -> Callable[[int | str], tuple[Array, Array | None]]:
        present = np.zeros(len(subjects.row), bool)
        present[subject] = True
        rows = np.flatnonzero(present)

        def values(axis: int | str) -> tuple[Array, Array | None]:
            depths = np.full(len(present), -1, np.int64)
            depths[rows] = self._depths(subjects, rows, axis)
            depth = depths[subject]
            out = np.zeros(len(subject), np.int64)
            for each in np.unique(depths[rows]).tolist():
                if each > 0:
                    values = self._values_at(each)[instance]
                    out = values if (depths[rows] == each).all() else np.where(depth == each, values, out)
            missing = depth <= 0
            return out, missing if missing.any() else None

        return values

    def _depths(self, subjects: Subjects, rows: Array, axis: int | str) -> Array:
        """Return how deep the body of the loop is that an axis of some subjects means."""
        iterations, block = self.iterations, subjects.block[rows]
        if isinstance(axis, str):
            return iterations.named_depth(block, np.full(len(rows), self.ir.pools.names.find(axis)))
        references, loops = self.ir.tables["references"], self.ir.tables["loops"]
        mine = np.flatnonzero(references["table"] == TABLE_CODES[subjects.table])
        at = mine[np.searchsorted(references["row"][mine], subjects.row[rows]) + axis]
        target = references["target_id"][at]
        depth = iterations.axis_depth(block, take(loops["instruction_id"], target))
        moved = None if subjects.by_name is None else subjects.by_name[rows]
        if moved is not None and moved.any():
            named = np.where(target >= 0, take(loops["axis"], target), references["name"][at])
            depth[moved] = iterations.named_depth(block[moved], named[moved])
        return depth

    def _values_at(self, depth: int) -> Array:
        if depth not in self._axis_values:
            around = self.iterations.at_depth(depth)
            self._axis_values[depth] = np.where(around >= 0, self.iterations.value[around], 0)
        return self._axis_values[depth]


def _gathered(values: Array, subject: Array) -> Array | int:
    found = values[subject]
    return int(found[0]) if len(found) and (found == found[0]).all() else found
