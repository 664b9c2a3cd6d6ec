"""Data sets that were damaged, and writers that died: a clear error or the right data, never wrong data (rule F5)."""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrowir.diagnostics import ArrowIRError, FormatError, SchemaError
from arrowir.formats import dataset, parquet, reading
from arrowir.formats.dataset import MANIFEST, TABLES
from tests import tables

ROOT = Path(__file__).parents[2]
ROWS = tables.random_rows(7, modules=2, size=2)
CONTENTS = tables.contents(tables.build(ROWS))
OTHER = tables.random_rows(5, modules=1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    parquet.write_parquet(tables.build(ROWS), tmp_path / "out")
    return tmp_path / "out"


def sign(folder: Path, **changes: Any) -> None:
    """Write the manifest anew to fit the files, as a careless tool would: only Parquet's own checks are left."""
    manifest = dataset.load(folder)
    parts = [
        dataset.Part(part.modules, {t: dataset.describe(folder, f.path, f.rows) for t, f in part.files.items()})
        for part in manifest.parts
    ]
    fields = {"schema_version": manifest.schema_version, "version": "x", "history": (), "parts": tuple(parts)} | changes
    (folder / MANIFEST).write_bytes(dataset.Manifest(**fields).dump())


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def rewrite(folder: Path, table: str, change: Callable[[pa.Table], pa.Table], *, metadata: bool = True) -> None:
    """Change the rows of a table with another tool, and sign."""
    path = folder / table / "part-00000.parquet"
    held = pq.ParquetFile(path).metadata.metadata or {}
    with pq.ParquetWriter(path, (changed := change(pq.read_table(path))).schema) as writer:
        writer.write_table(changed)
        if metadata:
            writer.add_key_value_metadata({k: v for k, v in held.items() if k != b"ARROW:schema"})
    sign(folder)


# -- damaged bits --------------------------------------------------------------------------------------------


def _flips(folder: Path, count: int) -> list[tuple[Path, int]]:
    """Choose bits over all files, more of them in the manifest, the footers and the first pages."""
    chance = random.Random(0)
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    chosen: list[tuple[Path, int]] = []
    for number in range(count):
        file = folder / MANIFEST if number % 10 == 0 else files[number % len(files)]
        size = file.stat().st_size
        low, high = (0, size) if number % 3 else (max(size - 900, 0), size)
        chosen.append((file, 8 * chance.randrange(low, high) + chance.randrange(8)))
    return chosen


def _read(folder: Path) -> tables.Rows | str:
    """Return the rows of a data set, or the message of the error."""
    try:
        return tables.contents(parquet.read_parquet(folder))
    except ArrowIRError as error:
        return str(error)


def _check_flip(folder: Path, file: Path, bit: int) -> str:
    flip(file, bit)
    found = _read(folder)
    flip(file, bit)
    if isinstance(found, str):
        assert f"{file.relative_to(folder)}: " in found
        return "error"
    assert found == CONTENTS, f"bit {bit} of {file} gave other data"
    return "equal"


def test_f5_no_flipped_bit_gives_other_data(folder: Path) -> None:
    outcomes = [_check_flip(folder, file, bit) for file, bit in _flips(folder, 300)]
    assert outcomes.count("error") > 280
    assert tables.contents(parquet.read_parquet(folder)) == CONTENTS


@pytest.mark.slow
def test_f5_no_flipped_bit_of_the_manifest_or_a_file_gives_other_data(folder: Path) -> None:
    for file in (folder / MANIFEST, folder / "blocks" / "part-00000.parquet"):
        for byte in range(file.stat().st_size):
            _check_flip(folder, file, 8 * byte + byte % 8)


@pytest.mark.parametrize("column", ["name", "block_id", "opcode", "extra", "optin_mask"])
def test_f5_page_checksums_are_written_and_verified(folder: Path, column: str) -> None:
    """With digests that fit, a bit in a page is still noticed."""
    path = folder / "instructions" / "part-00000.parquet"
    group = pq.read_metadata(path).row_group(0)
    place = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    start = place.dictionary_page_offset if place.has_dictionary_page else place.data_page_offset
    flip(path, 8 * (start + place.total_compressed_size - 1))
    sign(folder)
    with pytest.raises(FormatError, match=r"instructions/part-00000\.parquet: the Parquet file is damaged .*CRC"):
        parquet.read_parquet(folder)


# -- files cut, swapped, edited, lost ------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_f5_a_missing_file_is_named(folder: Path, table: str) -> None:
    (folder / table / "part-00000.parquet").unlink()
    with pytest.raises(FormatError, match=rf"{table}/part-00000\.parquet: is missing, though the manifest lists it"):
        parquet.read_parquet(folder)


@pytest.mark.parametrize("name", ["part-00001.parquet", "of_mine.parquet"])
def test_f5_a_part_that_the_manifest_does_not_name_is_named(folder: Path, name: str) -> None:
    shutil.copy(folder / "operands/part-00000.parquet", folder / "operands" / name)
    for read in (parquet.read_parquet, reading.read):
        with pytest.raises(FormatError, match=rf"operands/{name}: is no part of the data set: `{MANIFEST}` does not"):
            read(folder)
    (folder / "operands" / name).unlink()
    # What other tools do not read either is no matter.
    for other in (".part-00001.parquet", "part-00000.parquet.crc", "_SUCCESS"):
        (folder / "operands" / other).write_bytes(b"")
    assert tables.contents(parquet.read_parquet(folder)) == CONTENTS


@pytest.mark.parametrize("keep", [0, 3, 4, 200, -1, -4, -8])
def test_f5_a_truncated_file_is_named(folder: Path, keep: int) -> None:
    path = folder / "operands" / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FormatError, match=r"operands/part-00000\.parquet: has [\d,]+ bytes, and the manifest says"):
        parquet.read_parquet(folder)


def test_f5_swapped_files_are_named(folder: Path) -> None:
    one, other = (folder / t / "part-00000.parquet" for t in ("loops", "branches"))
    one.rename(folder / "x")
    other.rename(one)
    (folder / "x").rename(other)
    with pytest.raises(FormatError, match=r"(loops|branches)/part-00000\.parquet: (has|is not)"):
        parquet.read_parquet(folder)
    sign(folder)
    with pytest.raises(
        FormatError, match=r"part-00000\.parquet: does not hold the [\d,]+ rows of table `(loops|branches)`"
    ):
        parquet.read_parquet(folder)


def test_f5_files_of_another_data_set_are_named(folder: Path, tmp_path: Path) -> None:
    parquet.write_parquet(tables.build(OTHER), tmp_path / "other")
    shutil.copy(tmp_path / "other" / "sets" / "part-00000.parquet", folder / "sets")
    with pytest.raises(FormatError, match=r"sets/part-00000\.parquet"):
        parquet.read_parquet(folder)
    shutil.copy(tmp_path / "other" / MANIFEST, folder)
    with pytest.raises(FormatError, match=r"part-00000\.parquet"):
        parquet.read_parquet(folder)


def test_f5_an_edited_file_is_named(folder: Path) -> None:
    path = folder / "locations" / "part-00000.parquet"
    size = path.stat().st_size
    pl.read_parquet(path).with_columns(addr=pl.lit(0, pl.Int64)).write_parquet(path)
    path.write_bytes(path.read_bytes()[:size].ljust(size, b"x"))
    with pytest.raises(FormatError, match=r"locations/part-00000\.parquet: is not the file that was written"):
        parquet.read_parquet(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: b"", "the manifest is damaged"),
        (lambda text: text[:-3], "the manifest is damaged"),
        (lambda text: b"[]", "the manifest is damaged"),
        (lambda text: b"\xff\xfe", "the manifest is damaged"),
        (lambda text: b"[" * 200_000, "the manifest is damaged"),
        (lambda text: b'{"format": "something else"}', "not the manifest of a data set"),
        (lambda text: text.replace(b'"name', b'"mame'), "damaged|digest"),
        (lambda text: text.replace(b'"rows": ', b'"rows": 1', 1), "the manifest is not as it was written"),
    ],
)
def test_f5_a_bad_manifest_is_named(folder: Path, change: Callable[[bytes], bytes], message: str) -> None:
    path = folder / MANIFEST
    path.write_bytes(change(path.read_bytes().replace(b'"m0"', b'"name0"')))
    with pytest.raises(FormatError, match=message) as caught:
        parquet.read_parquet(folder)
    assert caught.value.path == str(path)


def test_f5_a_missing_manifest_is_an_error_of_a_data_set(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    assert parquet.is_dataset(folder)
    with pytest.raises(FormatError, match=r"out: no data set: `_manifest\.json` is missing"):
        parquet.read_parquet(folder)


def test_what_is_a_data_set(folder: Path, tmp_path: Path) -> None:
    assert parquet.is_dataset(folder)
    assert parquet.is_dataset(str(folder))
    assert not parquet.is_dataset(tmp_path)
    assert not parquet.is_dataset(tmp_path / "nothing")
    assert not parquet.is_dataset(folder / MANIFEST)
    for path in (tmp_path, tmp_path / "nothing", folder / MANIFEST):
        with pytest.raises(FormatError, match=r"no data set|cannot be read"):
            parquet.read_parquet(path)


@pytest.mark.parametrize(
    ("version", "hint"), [("2.0", "install a newer arrowir"), ("0.9", "with the version that wrote it")]
)
def test_f5_another_major_version_is_refused(folder: Path, version: str, hint: str) -> None:
    sign(folder, schema_version=version)
    with pytest.raises(FormatError, match=rf"has schema version `{version}`, and this version reads 1\.x; .*{hint}"):
        parquet.read_parquet(folder)


def test_a_newer_minor_version_with_more_columns_is_read(folder: Path) -> None:
    rewrite(folder, "loops", lambda table: table.append_column("new", pa.array(range(len(table)))))
    sign(folder, schema_version="1.7")
    assert tables.contents(parquet.read_parquet(folder)) == CONTENTS


# -- tables that do not fit the schema -----------------------------------------------------------------------


def _set(name: str, row: int, value: Any) -> Callable[[pa.Table], pa.Table]:
    def change(table: pa.Table) -> pa.Table:
        place = table.column_names.index(name)
        cells = table[name].to_pylist()
        cells[row] = value
        return table.set_column(place, name, pa.array(cells, table[name].type))

    return change


@pytest.mark.parametrize(
    ("table", "change", "message"),
    [
        ("operands", lambda t: t.drop_columns(["offset"]), "table `operands` has no column `offset`"),
        ("operands", lambda t: t.drop_columns(["dtype"]), "table `operands` has no column `dtype`"),
        ("modules", lambda t: t.drop_columns(["module_id"]), "table `modules` has no column `module_id`"),
        (
            "operands",
            lambda t: t.set_column(t.column_names.index("offset"), "offset", pa.array([0.5] * len(t))),
            "table `operands`, column `offset` is `double`, and must be `int64`",
        ),
        ("sets", _set("function_id", 0, 99), "column `function_id`: a key names no row of table `functions`"),
        ("operands", _set("pattern_id", 0, 99), "column `pattern_id`: a key names no row of table `patterns`"),
        ("branches", _set("block_id", 0, -7), "column `block_id`: a key names no row of table `blocks`"),
        ("references", _set("row", 0, 10**6), "column `row`: a key names no row of table"),
        ("operands", lambda t: t.slice(1), "table `operands`, column `id`: ids must count the rows of their module"),
        ("sets", _set("module_id", 0, 1), "table `sets`, column `module_id`: rows must be in the order"),
        ("sets", _set("module_id", -1, 2), "table `sets`, column `module_id`: rows must be in the order"),
        ("modules", _set("module_id", 0, 1), "table `modules`, column `module_id`: there is not one row a module"),
    ],
)  # fmt: skip
def test_tables_that_do_not_fit_are_named(
    folder: Path, table: str, change: Callable[[pa.Table], pa.Table], message: str
) -> None:
    rewrite(folder, table, change)
    manifest = dataset.load(folder)
    rows = pq.read_metadata(folder / table / "part-00000.parquet").num_rows
    (part,) = manifest.parts
    files = part.files | {table: dataset.describe(folder, part.files[table].path, rows)}
    sign(folder, parts=(dataset.Part(part.modules, files),))
    with pytest.raises(SchemaError, match=message) as caught:
        parquet.read_parquet(folder)
    assert f"{table}/part-00000.parquet" in str(caught.value)


def test_rows_that_are_not_grouped_by_their_parent_are_named(folder: Path) -> None:
    def turn(table: pa.Table) -> pa.Table:
        module = table["module_id"].to_pylist()
        last = module.count(0) - 1
        parents = table["function_id"].to_pylist()
        assert parents[0] != parents[last]
        parents[0], parents[last] = parents[last], parents[0]
        return table.set_column(table.column_names.index("function_id"), "function_id", pa.array(parents, pa.int32()))

    for table in ("sets", "blocks"):
        parquet.write_parquet(tables.build(tables.random_rows(12, modules=2)), folder)
        rewrite(folder, table, turn)
        with pytest.raises(
            SchemaError, match=f"table `{table}`, column `function_id`: rows must be grouped by it, in order"
        ):
            parquet.read_parquet(folder)


def test_rows_written_by_another_tool_are_read(folder: Path) -> None:
    """Other spellings of strings and lists are taken, when manifest and footer are right."""

    def plain(table: pa.Table) -> pa.Table:
        types = {pa.large_string(): pa.string(), pa.dictionary(pa.int32(), pa.string()): pa.string()}
        lists = {pa.large_list(pa.int64()): pa.list_(pa.int64())}
        kinds = [(types | lists).get(field.type, field.type) for field in table.schema]
        return pa.table([c.cast(k) for c, k in zip(table.columns, kinds, strict=True)], table.column_names)

    for table in TABLES:
        rewrite(folder, table, plain)
    assert tables.contents(parquet.read_parquet(folder)) == CONTENTS


def test_a_file_without_our_metadata_is_refused(folder: Path) -> None:
    rewrite(folder, "loops", lambda table: table, metadata=False)
    with pytest.raises(FormatError, match=r"loops/part-00000\.parquet: does not hold the [\d,]+ rows of table `loops`"):
        parquet.read_parquet(folder)


# -- what stands there already -------------------------------------------------------------------------------


def test_f5_another_data_set_is_replaced(folder: Path) -> None:
    (folder.parent / "neighbour").write_text("x")
    for name in ("part-00001.parquet", "part-00007.parquet"):  # more parts than the new one has
        shutil.copy(folder / "sets" / "part-00000.parquet", folder / "sets" / name)
    folder.chmod(0o750)
    parquet.write_parquet(tables.build(OTHER), folder)
    assert tables.contents(parquet.read_parquet(folder)) == tables.contents(tables.build(OTHER))
    assert [p.name for p in (folder / "sets").iterdir()] == ["part-00000.parquet"]
    assert folder.stat().st_mode & 0o777 == 0o750
    assert sorted(p.name for p in folder.parent.iterdir()) == ["neighbour", "out"]


def test_files_of_a_run_are_written_with_the_data_set_and_stay(folder: Path) -> None:
    parquet.write_parquet(
        tables.build(ROWS), folder, diagnostics=pl.DataFrame({"code": ["x"]}), steps=pl.DataFrame({"pass": ["p"]})
    )
    parquet.write_parquet(tables.build(OTHER), folder, steps=pl.DataFrame({"pass": ["q"]}))
    assert pl.read_parquet(folder / "diagnostics.parquet").rows() == [("x",)]
    assert pl.read_parquet(folder / "steps.parquet").rows() == [("q",)]
    assert tables.contents(parquet.read_parquet(folder)) == tables.contents(tables.build(OTHER))


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "strange", ["notes.txt", "sets/notes.txt", "sets/part-1.parquet", "more/part-00000.parquet", "diagnostics.txt"]
)
def test_f5_what_is_no_data_set_is_left_alone(folder: Path, strange: str) -> None:
    (folder / strange).parent.mkdir(exist_ok=True)
    (folder / strange).write_text("precious")
    before = _snapshot(folder.parent)
    with pytest.raises(
        FormatError, match=rf"out: holds what is no data set of this library: `{strange.split('/')[0]}`"
    ):
        parquet.write_parquet(tables.build(OTHER), folder)
    assert _snapshot(folder.parent) == before


def test_f5_tables_without_a_manifest_are_left_alone(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    before = _snapshot(folder.parent)
    with pytest.raises(FormatError, match=r"no data set of this library: .* and 15 more; nothing was written"):
        parquet.write_parquet(tables.build(OTHER), folder)
    assert _snapshot(folder.parent) == before


def test_f5_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")
    with pytest.raises(FormatError, match="out: is a file, and a data set is a folder"):
        parquet.write_parquet(tables.build(OTHER), tmp_path / "out")
    assert _snapshot(tmp_path) == {"out": b"precious"}


def test_an_empty_folder_and_folders_above_are_fine(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for where in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        parquet.write_parquet(tables.build(ROWS), where)
        assert tables.contents(parquet.read_parquet(where)) == CONTENTS


def test_a_link_to_a_data_set_stays_a_link(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to("out")
    parquet.write_parquet(tables.build(OTHER), link)
    assert link.is_symlink()
    assert tables.contents(parquet.read_parquet(folder)) == tables.contents(tables.build(OTHER))


def test_the_current_directory_is_filled_where_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    node = tmp_path.stat().st_ino
    (tmp_path / "steps.parquet").write_text("of a run")
    parquet.write_parquet(tables.build(ROWS), ".")
    assert tmp_path.stat().st_ino == node
    assert tables.contents(parquet.read_parquet(".")) == CONTENTS
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*TABLES, MANIFEST, "steps.parquet"])
    with pytest.raises(FormatError, match="cannot be replaced at once, because it is the current directory"):
        parquet.write_parquet(tables.build(OTHER), ".")
    assert tables.contents(parquet.read_parquet(".")) == CONTENTS


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FormatError, match=r"file/out: cannot be written: (not a directory|file exists)"):
        parquet.write_parquet(tables.build(ROWS), tmp_path / "file" / "out")


def test_an_error_leaves_nothing_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _snapshot(folder.parent)

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dataset, "describe", fail)
    with pytest.raises(FormatError, match="out: cannot be written: no space left on device"):
        parquet.write_parquet(tables.build(OTHER), folder)
    assert _snapshot(folder.parent) == before
    monkeypatch.setattr(dataset, "_is_movable", lambda target: False)
    (folder.parent / "empty").mkdir()
    with pytest.raises(FormatError, match="no space left on device"):
        parquet.write_parquet(tables.build(OTHER), folder.parent / "empty")
    assert list((folder.parent / "empty").iterdir()) == []


# -- writers that die ----------------------------------------------------------------------------------------

_WRITER = """
import os, resource, sys
from pathlib import Path
from arrowir.formats import dataset, parquet, reading
from tests import tables
where, how, number = sys.argv[1], sys.argv[2], int(sys.argv[3])

calls = 0
def dying(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == number:
            os._exit(77)
        return function(*arguments, **options)
    return call

parquet.THREADS = 1
Path.rename, Path.replace, Path.mkdir, Path.write_bytes, Path.rmdir = map(
    dying, (Path.rename, Path.replace, Path.mkdir, Path.write_bytes, Path.rmdir))
dataset.describe = dying(dataset.describe)
dataset.shutil.rmtree = dying(dataset.shutil.rmtree)
dataset.exchange = (lambda one, other: False) if how == "aside" else dying(dataset.exchange)
if how == "inside":
    dataset._is_movable = lambda target: False
if how == "full":
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
parquet.write_parquet(tables.build(tables.random_rows(5, modules=1)), where)
print(calls)
"""


def run_writer(where: Path, how: str = "swap", number: int = 0) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "kernels")))}
    command = [sys.executable, "-c", _WRITER, str(where), how, str(number)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=120, check=False)


def _check_killed(where: Path, how: str, number: int, old: Any) -> bool:
    """Kill a writer at one of its steps; return whether it got past the last one."""
    done = run_writer(where, how, number)
    assert done.returncode in (0, 77), done.stderr
    if old is None and not (where / MANIFEST).exists():
        with pytest.raises(FormatError, match="no data set"):
            parquet.read_parquet(where)
    else:
        assert tables.contents(parquet.read_parquet(where)) in (old, tables.contents(tables.build(OTHER)))
        assert parquet.is_dataset(where)
    # Whatever was left behind, the next write works and clears it away.
    parquet.write_parquet(tables.build(ROWS), where)
    assert tables.contents(parquet.read_parquet(where)) == CONTENTS
    # (An empty folder that got no lock yet is kept for a while: it may be a live writer's.)
    for path in where.parent.glob(".out.*.new"):
        os.utime(path, (0, 0))
    parquet.write_parquet(tables.build(ROWS), where)
    assert [p.name for p in where.parent.iterdir()] == [where.name]
    return done.returncode == 0


def _steps(tmp_path: Path, how: str, *, existing: bool) -> int:
    where = tmp_path / "count" / "out"
    where.parent.mkdir()
    if existing:
        parquet.write_parquet(tables.build(ROWS), where)
    elif how == "inside":
        where.mkdir()
    done = run_writer(where, how)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize(
    ("how", "existing"), [("swap", True), ("swap", False), ("aside", True), ("inside", False)], ids=str
)
def test_f5_a_killed_writer_leaves_the_old_or_the_new(how: str, existing: bool, tmp_path: Path) -> None:
    last = _steps(tmp_path, how, existing=existing)
    assert last > 40
    (tmp_path / "w").mkdir()
    where = tmp_path / "w" / "out"
    # The steps at the end are those of the replacement; some of the others stand for all.
    for number in (30, last - 1, last):
        shutil.rmtree(where, ignore_errors=True)
        if existing:
            parquet.write_parquet(tables.build(ROWS), where)
        elif how == "inside":
            where.mkdir()
        assert not _check_killed(where, how, number, CONTENTS if existing else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "existing"), [("swap", True), ("swap", False), ("aside", True), ("inside", False)], ids=str
)
def test_f5_a_writer_killed_at_any_step_leaves_the_old_or_the_new(how: str, existing: bool, tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    where = tmp_path / "w" / "out"
    for number in range(1, _steps(tmp_path, how, existing=existing) + 1):
        shutil.rmtree(where, ignore_errors=True)
        if existing:
            parquet.write_parquet(tables.build(ROWS), where)
        elif how == "inside":
            where.mkdir()
        assert not _check_killed(where, how, number, CONTENTS if existing else None)


def test_a_full_disk_leaves_the_old(folder: Path) -> None:
    before = _snapshot(folder.parent)
    done = run_writer(folder, "full")
    assert "FormatError" in done.stderr
    assert "cannot be written: file too large" in done.stderr
    assert _snapshot(folder.parent) == before


def test_what_a_live_writer_is_filling_is_not_cleared_away(folder: Path) -> None:
    with dataset._scratch(folder) as alive:
        (alive / "half").write_text("x")
        dead = alive.with_name(f".{folder.name}.0123abcd.tmp")
        dead.mkdir()
        parquet.write_parquet(tables.build(OTHER), folder)
        assert (alive / "half").exists()
        assert not dead.exists()


def test_an_interrupted_replacement_in_two_steps_is_read_and_mended(folder: Path) -> None:
    """Where folders cannot be swapped, a writer may die when the old one is aside and the new one not yet there."""
    folder.rename(folder.with_name(".out.aside"))
    assert parquet.is_dataset(folder)
    assert tables.contents(parquet.read_parquet(folder)) == CONTENTS
    parquet.write_parquet(tables.build(OTHER), folder)
    assert tables.contents(parquet.read_parquet(folder)) == tables.contents(tables.build(OTHER))
    assert [p.name for p in folder.parent.iterdir()] == ["out"]
