"""Operands that axes of lowered loops move: physical accesses with a dynamic offset (rule U4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from arrowir import extras
from arrowir import vocabulary as vocab
from arrowir.passes.unrolling import symbolic
from arrowir.passes.unrolling.loops import of_each
from arrowir.passes.unrolling.symbolic import Moving
from arrowir.passes.unrolling.values import TABLE_CODES, Given, Subjects
from arrowir.store import Array

if TYPE_CHECKING:
    from arrowir.passes.unrolling.text import UnrolledText


@dataclass
class MovedOperands:
    """Works out what becomes of some symbolic operands.

    Parameters
    ----------
    text
        All operands.
    rows, location
        Those that registers move, and their locations.
    limit, given
        For all operands how many elements the location has; by dimension the strides.
    """

    text: "UnrolledText"
    rows: Array
    location: Array
    limit: Array
    given: Given

    def find(self) -> None:
        """Work everything out."""
        text, rows = self.text, self.rows
        ir, new = text.ir, text.operands
        operands, pools = ir.tables["operands"], ir.pools
        layout = pools.layouts.map(operands["layout"][rows], symbolic.moving_layout, name="moving")
        keys = np.stack((operands["extra"][rows], layout), 1)
        distinct, form = np.unique(keys, axis=0, return_inverse=True)
        form = form.reshape(-1)
        made = [
            symbolic.moving(text.texts[i], symbolic.raw_keys(pools.layouts[number])) for i, number in distinct.tolist()
        ]
        self._refuse(operands["extra"], rows)
        cells, subject, owner = text.cells_of("operands", rows)
        number = np.zeros(len(operands), np.int64)
        number[rows] = form
        block = np.zeros(len(operands), np.int64)
        block[rows] = text.loops.block[operands["instruction_id"][rows]]
        programs = [each.template.program for each in made]
        subjects = Subjects("operands", rows, np.arange(len(operands)), block, number, programs)
        templates = {k: each.template for k, each in enumerate(made)}
        offset, extra = np.zeros(len(cells), np.int64), np.full(len(cells), -1, np.int32)
        instance = text.iterations.instance[owner]
        for group, program, result in text.values.run(
            subjects, subject, instance, (*self.given, self._extents(made, form))
        ):
            text.note(subjects, result, owner[group], subject[group])
            holes = [result.whole(step) for step in program.results]
            value = holes.pop()
            outside = (result.fault == 0) & ((value < 0) | (value >= self.limit[subject[group]]))
            if outside.any():
                at = owner[group][outside], subject[group][outside], value[outside]
                text.out_of_bounds(*at, self.limit, rows, self.location)
            offset[group] = value
            extra[group] = text.distinct(templates, number[subject[group]], holes)
        new.cells += [("offset", cells, offset), ("extra", cells, extra)]
        for name in ("offset", "extra"):
            new.column(name)
        new.column("kind")[rows] = vocab.OPERAND_PHYSICAL_AP
        new.column("location_id")[rows] = self.location
        new.column("layout")[rows] = layout
        kept = {int(i): each.template.kept for (i, _), each in zip(distinct.tolist(), made, strict=True)}
        text.keep_slots("operands", rows, operands["extra"], kept)
        self._order(form, made)

    def _refuse(self, extra: Array, rows: Array) -> None:
        """Refuse operands that are dynamic already."""
        texts = self.text.texts
        twice = of_each(
            extra[rows], len(texts), lambda i: any(k == "dynamic_ap_info" for k, _ in extras.members(texts[i]))
        )
        for row in rows[twice > 0].tolist():
            message = "its address depends on a loop of run time, and it has a `dynamic_ap_info` besides"
            self.text.operand_fault(row, 1, "not_supported", message)

    def _extents(self, made: list[Moving], form: Array) -> tuple[Array, None]:
        """Return for all operands the extent of the first dimension that a register moves."""
        ir = self.text.ir
        shapes = ir.pools.shapes.texts
        of = ir.tables["locations"]["set_id"][self.location]
        shape = ir.tables["sets"]["tensor_shape"][of]
        dimension = np.array([each.dimension for each in made])[form]
        found = np.zeros(ir.count("operands"), np.int64)
        for each in np.unique(dimension[dimension >= 0]).tolist():
            mine = dimension == each
            found[self.rows[mine]] = of_each(
                shape[mine], len(shapes), lambda i, d=each: int(extras.parse(shapes[i])[d])
            )
        return found, None

    def _order(self, form: Array, made: list[Moving]) -> None:
        """Note where placeholders stand in another order than before."""
        turned = [k for k, each in enumerate(made) if list(each.template.kept) != sorted(each.template.kept)]
        if not turned:
            return
        text, references = self.text, self.text.ir.tables["references"]
        if text.reference_order is None:
            text.reference_order = np.zeros(len(references), np.int64)
        mine = np.flatnonzero(references["table"] == TABLE_CODES["operands"])
        row = references["row"][mine]
        number = np.arange(len(mine)) - np.searchsorted(row, row)
        of = np.full(text.ir.count("operands"), -1, np.int64)
        of[self.rows] = form
        for k in turned:
            kept = made[k].template.kept
            place = np.zeros(max(kept) + 1, np.int64)
            place[list(kept)] = np.arange(len(kept))
            some = (of[row] == k) & (number < len(place))
            text.reference_order[mine[some]] = place[number[some]]
