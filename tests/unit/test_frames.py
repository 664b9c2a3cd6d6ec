"""Frames of small tables are copied, those of large ones are views: both look alike."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import arrowir as air
from arrowir import frames, schema
from tests import tables
from tests.command_line import ROOT, TINY

FILES = [TINY, ROOT / "data/samples/bir_json_example.json", ROOT / "data/samples/klr009"]


def batches() -> list[air.IR]:
    read = [air.read(path) for path in FILES]
    inlined = air.run(read[0], passes=["inline_nki_kernel"]).ir
    empty = air.read_json(b'{"functions": []}')
    made = [tables.build(tables.random_rows(seed, modules=2, size=2)) for seed in range(5)]
    return [*read, inlined, empty, *made, air.concat([read[0], inlined, read[2]])]


@pytest.mark.parametrize("table", schema.BY_NAME)
def test_copied_and_viewed_frames_are_equal(table: str) -> None:
    seen = 0
    for ir in batches():
        columns = schema.BY_NAME[table].columns
        copied, viewed = (
            pl.DataFrame([make(ir, table, c) for c in columns]) for make in (frames.copied, frames.viewed)
        )
        assert_frame_equal(copied, viewed, check_exact=True)
        assert copied.schema == viewed.schema
        seen += len(copied)
    assert seen > 0


def test_a_table_is_copied_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    ir = air.read(TINY)
    rows = ir.count("instructions")
    taken: list[str] = []
    for name in ("copied", "viewed"):
        make = getattr(frames, name)
        monkeypatch.setattr(frames, name, lambda *args, make=make, name=name: (taken.append(name), make(*args))[1])
    for limit, name in ((rows, "copied"), (rows - 1, "viewed")):
        monkeypatch.setattr(frames, "COPIED", limit)
        taken.clear()
        assert len(frames.frame(ir, "instructions")) == rows
        assert set(taken) == {name}
