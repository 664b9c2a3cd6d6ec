"""Parquet data sets: what stands in the files, that it comes back, that any tool reads it (rules F1, N16, O5)."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrowir import arrow, batches, schema
from arrowir.diagnostics import COLUMNS, ArrowIRError, Diagnostic, SchemaError
from arrowir.formats import bir_json, dataset, parquet
from arrowir.formats import parquet_columns as columns
from arrowir.formats.dataset import TABLES
from arrowir.ir import IR
from tests import tables

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "data" / "samples").rglob("*.json"))
HISTORY = ('{"pass":"unroll"}', '{"pass":"inline_nki_kernel"}')


@pytest.fixture(scope="module")
def batch() -> IR:
    return tables.build(tables.random_rows(9, modules=6), history=HISTORY)


@pytest.fixture(scope="module")
def folder(batch: IR, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of several parts, each of several row groups and modules."""
    where = tmp_path_factory.mktemp("set") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "PART_INSTRUCTIONS", 60)
        patch.setattr(parquet, "GROUP_ROWS", 7)
        parquet.write_parquet(batch, where)
    return where


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def glob(folder: Path, table: str) -> str:
    return str(folder / table / "*.parquet")


# -- coming back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_f1_every_cell_comes_back(seed: int, tmp_path: Path) -> None:
    ir = tables.build(tables.random_rows(seed, modules=seed % 4), history=HISTORY[: seed % 3], used_pools=("x", "Load"))
    parquet.write_parquet(ir, tmp_path / "out")
    back = parquet.read_parquet(tmp_path / "out")
    assert tables.contents(back) == tables.contents(ir)
    assert back.history == ir.history
    assert back.diagnostics.equals(ir.diagnostics)


def test_f1_parts_and_row_groups_are_put_together(batch: IR, folder: Path) -> None:
    manifest = dataset.load(folder)
    assert len(manifest.parts) > 2
    assert any(len(part.modules) > 1 for part in manifest.parts)
    assert pq.ParquetFile(folder / "instructions" / "part-00000.parquet").num_row_groups > 2
    assert tables.contents(parquet.read_parquet(folder)) == tables.contents(batch)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_f1_documents_come_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    ir = bir_json.read_json(path)
    parquet.write_parquet(ir, tmp_path / "out")
    assert parquet.read_parquet(tmp_path / "out").to_json() == ir.to_json()


def test_f1_many_documents_come_back_from_one_data_set(tmp_path: Path) -> None:
    ir = batches.concat([bir_json.read_json(path) for path in SAMPLES])
    parquet.write_parquet(ir, tmp_path / "out")
    back = parquet.read_parquet(tmp_path / "out")
    assert [back.to_json(m) for m in range(len(back))] == [ir.to_json(m) for m in range(len(ir))]
    assert back.modules["source"].to_list() == ir.modules["source"].to_list()
    assert back.diagnostics.drop("message").equals(ir.diagnostics.drop("message"))


def test_n16_provenance_comes_back(folder: Path, batch: IR) -> None:
    back = parquet.read_parquet(folder)
    wanted = ["original_name", "kernel", "kernel_source", "call_chain_id", "depth"]
    assert back.instructions.select(wanted).equals(batch.instructions.select(wanted))
    assert back.instructions["original_name"].null_count() < len(back.instructions)
    assert back.call_chains.equals(batch.call_chains)


def test_placeholders_stay_in_the_text_and_references_beside_it(folder: Path, batch: IR) -> None:
    rows = tables.contents(batch)
    found = sum(text.count("\x01") for table in schema.REFERRING for text in _texts(folder, table))
    assert found == tables.placeholders(rows) == len(pl.read_parquet(glob(folder, "references")))
    assert found > 50


def _texts(folder: Path, table: str) -> list[str]:
    return pl.read_parquet(glob(folder, table))["extra"].drop_nulls().to_list()


def test_absent_everywhere_is_held_as_no_array(tmp_path: Path) -> None:
    rows = {"modules": [{"name": "m"}], "functions": [{"module_id": 0, "name": "f"}]}
    parquet.write_parquet(tables.build(rows), tmp_path / "out")
    back = parquet.read_parquet(tmp_path / "out")
    assert back.tables["modules"].columns["source"] is None
    assert back.tables["functions"].columns["in_nki_functions"] is None
    assert back.tables["functions"].columns["module_id"] is not None


def test_a_batch_without_modules(tmp_path: Path) -> None:
    parquet.write_parquet(tables.build({}), tmp_path / "out")
    back = parquet.read_parquet(tmp_path / "out")
    assert len(back) == 0
    assert tables.contents(back) == tables.contents(tables.build({}))
    assert pl.read_parquet(glob(tmp_path / "out", "instructions")).is_empty()
    assert duckdb.sql(f"select count(*) from '{glob(tmp_path / 'out', 'operands')}'").fetchall() == [(0,)]


def test_diagnostics_of_reading_come_back_with_keys_of_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "PART_INSTRUCTIONS", 1)
    rows = tables.random_rows(1, modules=3)
    first = next(i for i, row in enumerate(tables.build(rows).functions["module_id"].to_list()) if row == 2)
    messages = [
        Diagnostic("error", "format_error", "an empty file", module="bad"),
        Diagnostic("warning", "unresolved_name", "ü", module="m2", module_id=2, function="f1", function_id=first + 1),
    ]
    parquet.write_parquet(tables.build(rows, diagnostics=messages), tmp_path / "out")
    stored = pl.read_parquet(glob(tmp_path / "out", "diagnostics"))
    assert stored.columns == list(COLUMNS)
    assert stored["function_id"].to_list() == [None, 1]
    assert parquet.read_parquet(tmp_path / "out").messages == tuple(messages)


def test_diagnostics_about_modules_that_are_not_in_the_batch_lose_their_keys(tmp_path: Path) -> None:
    rows = tables.random_rows(1, modules=1)
    message = Diagnostic("note", "ambiguous_name", "x", module="gone", module_id=5, function_id=40, set_id=3)
    parquet.write_parquet(tables.build(rows, diagnostics=[message]), tmp_path / "out")
    assert parquet.read_parquet(tmp_path / "out").messages == (
        Diagnostic("note", "ambiguous_name", "x", module="gone"),
    )


# -- what stands in the files --------------------------------------------------------------------------------


def test_ids_and_keys_count_within_the_module(folder: Path, batch: IR) -> None:
    for table in schema.STORED:
        if table == "modules":
            continue
        counted = pl.read_parquet(glob(folder, table)).group_by("module_id", maintain_order=True).agg("id")
        for ids in counted["id"].to_list():
            assert ids == list(range(len(ids))), table
    joined = duckdb.sql(
        f"""select o.module_id, o.id, i.id, i.opcode, l.name, s.tensor_shape
        from '{glob(folder, "operands")}' o
        join '{glob(folder, "instructions")}' i on i.module_id = o.module_id and i.id = o.instruction_id
        join '{glob(folder, "locations")}' l on l.module_id = o.module_id and l.id = o.location_id
        join '{glob(folder, "sets")}' s on s.module_id = l.module_id and s.id = l.set_id
        order by 1, 2"""
    ).fetchall()
    instructions, locations, sets = batch.instructions, batch.locations, batch.sets
    expected = [
        (instructions["opcode"][i], locations["name"][place], _listed(sets["tensor_shape"][locations["set_id"][place]]))
        for i, place in batch.operands.select("instruction_id", "location_id").iter_rows()
        if place is not None
    ]
    assert [row[3:] for row in joined] == expected
    assert len(expected) > 20


def _listed(value: Any) -> Any:
    return value.to_list() if isinstance(value, pl.Series) else value


def test_patterns_are_numbered_within_the_module_in_order_of_first_use(folder: Path, batch: IR) -> None:
    stored = pl.read_parquet(glob(folder, "patterns"))
    seen: dict[int, list[str]] = {}
    for module, row in zip(batch.operands["module_id"], tables.contents(batch)["operands"], strict=True):
        pattern = row["pattern_id"]
        if pattern is not None and pattern not in seen.setdefault(module, []):
            seen[module].append(pattern)
    found: dict[int, list[str]] = {}
    for module, number, pattern, elements in stored.select("module_id", "id", "pattern", "elements").iter_rows():
        assert number == len(found.setdefault(module, []))
        found[module].append("[" + ",".join(f"[{p['step']},{p['num']}]" for p in pattern) + "]")
        assert elements == np.prod([p["num"] for p in pattern], dtype=np.int64)
    assert found == {module: texts for module, texts in seen.items() if texts}
    assert sum(map(len, found.values())) > 10


def test_p21_p22_files_have_the_full_schema_whatever_they_hold(folder: Path, tmp_path: Path) -> None:
    parquet.write_parquet(tables.build({"modules": [{"name": "bare"}]}), tmp_path / "bare")
    for table in TABLES:
        wanted = columns.file_schema(table, written=False)
        for file in [*(folder / table).iterdir(), *(tmp_path / "bare" / table).iterdir()]:
            assert pq.read_schema(file).equals(wanted), file
        assert not any(pa.types.is_null(t) for t in wanted.types)
    # The module without anything first in the list: no type may be taken from it.
    for table in TABLES:
        both = [glob(tmp_path / "bare", table), glob(folder, table)]
        assert len(pl.read_parquet(both)) == len(pl.read_parquet(both[0])) + len(pl.read_parquet(both[1]))
        assert duckdb.sql(f"select count(*) from read_parquet({both})").fetchall() == [(len(pl.read_parquet(both)),)]


def test_types_are_those_that_other_tools_take() -> None:
    shown = columns.file_schema("instructions", written=False)
    assert shown.field("opcode").type == pa.dictionary(pa.int32(), pa.string())
    assert shown.field("extra").type == shown.field("name").type == shown.field("kernel").type == pa.large_string()
    assert shown.field("id").type == pa.int32()
    assert shown.field("optin_mask").type == pa.int64()
    assert columns.file_schema("sets", written=False).field("tensor_shape").type == pa.large_list(pa.int64())
    assert "module_id" in columns.file_schema("modules", written=False).names


def test_derived_columns_are_those_of_the_frames(folder: Path, batch: IR) -> None:
    wanted = {
        "instructions": ["position", "function_id", "kernel", "depth", "filename", "lineno", "optin_mask", "opcode"],
        "operands": ["elements", "name", "dtype", "offset"],
        "modules": ["arch_level", "neuron_core_id", "arch", "version"],
        "functions": ["is_kernel", "in_nki_functions"],
        "call_arguments": ["actual", "formal", "direction"],
    }
    first = np.searchsorted(batch.functions["module_id"].to_numpy(), np.arange(len(batch)))
    for table, names in wanted.items():
        stored = pl.read_parquet(glob(folder, table))
        frame = batch.frame(table)
        if "function_id" in names:
            shift = pl.Series(first)[stored["module_id"]]
            stored = stored.with_columns(function_id=(stored["function_id"] + shift).cast(pl.Int32))
        kinds = [n for n, t in frame.select(names).schema.items() if isinstance(t, pl.Enum)]
        texts = [pl.col(n).cast(pl.String) for n in kinds]
        assert stored.select(names).with_columns(texts).equals(frame.select(names).with_columns(texts)), table


def test_an_absent_mask_shows_its_default_and_stays_absent(tmp_path: Path) -> None:
    layout = '["cname","coptin_passes"]'
    cases = ((None, None), (None, '["cname"]'), (15, layout), (3, '["cname"]'), (None, '["noptin_passes"]'))
    shown = [{"block_id": 0, "optin_mask": mask, "layout": text} for mask, text in cases]
    rows = {
        "modules": [{"name": "m"}],
        "functions": [{"module_id": 0, "name": "f"}],
        "blocks": [{"function_id": 0, "owner": "function"}],
        "instructions": shown,
    }
    parquet.write_parquet(tables.build(rows), tmp_path / "out")
    assert pl.read_parquet(glob(tmp_path / "out", "instructions"))["optin_mask"].to_list() == [15, 15, 15, 3, 15]
    back = tables.contents(parquet.read_parquet(tmp_path / "out"))["instructions"]
    assert [row["optin_mask"] for row in back] == [None, None, 15, 3, None]


def test_footers_say_what_wrote_them(folder: Path) -> None:
    for table in TABLES:
        metadata = pq.read_metadata(folder / table / "part-00000.parquet").metadata
        assert metadata[b"arrowir.schema_version"].decode() == schema.SCHEMA_VERSION
        assert metadata[b"arrowir.table"].decode() == table
        assert metadata[b"arrowir.version"].decode() == parquet.version() == dataset.load(folder).version
        assert "inline_nki_kernel" in metadata[b"arrowir.history"].decode()
    names = [name for part in dataset.load(folder).parts for name in part.modules]
    assert names == parquet.read_parquet(folder).modules["name"].to_list()


def test_files_are_compressed_with_statistics_and_dictionaries(folder: Path) -> None:
    group = pq.read_metadata(folder / "instructions" / "part-00000.parquet").row_group(0)
    chunks = {group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)}
    assert {chunk.compression for chunk in chunks.values()} == {"ZSTD"}
    assert "RLE_DICTIONARY" in chunks["extra"].encodings
    assert "RLE_DICTIONARY" in chunks["opcode"].encodings
    assert "DELTA_BINARY_PACKED" in chunks["block_id"].encodings
    assert chunks["block_id"].statistics.min == 0
    assert chunks["name"].statistics is not None


def test_large_dictionaries_are_cut_by_rows(batch: IR, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet.write_parquet(batch, tmp_path / "whole")
    monkeypatch.setattr(parquet, "GROUP_TEXT", 400)
    parquet.write_parquet(batch, tmp_path / "cut")
    groups = [pq.ParquetFile(tmp_path / n / "operands" / "part-00000.parquet").num_row_groups for n in ("whole", "cut")]
    assert groups[0] == 1
    assert groups[1] > 2
    assert tables.contents(parquet.read_parquet(tmp_path / "cut")) == tables.contents(batch)


@pytest.mark.parametrize(
    ("counts", "parts"),
    [
        ([], [(0, 0)]),
        ([0, 0, 0], [(0, 3)]),
        ([5, 5, 5, 5], [(0, 2), (2, 4)]),
        ([99, 1, 99], [(0, 1), (1, 2), (2, 3)]),
        ([3, 4, 5, 99, 1], [(0, 2), (2, 3), (3, 4), (4, 5)]),
    ],
)
def test_parts_hold_many_modules_up_to_a_number_of_instructions(
    counts: list[int], parts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "PART_INSTRUCTIONS", 10)
    assert parquet._cut(np.array(counts, np.int64)) == parts


# -- other tools ---------------------------------------------------------------------------------------------


def _with_pyarrow(folder: Path, table: str) -> list[tuple[Any, ...]]:
    read = pq.read_table(folder / table, page_checksum_verification=True)
    return [tuple(row.values()) for row in read.to_pylist()]


def _with_polars(folder: Path, table: str) -> list[tuple[Any, ...]]:
    return pl.scan_parquet(glob(folder, table)).collect().rows()


def _with_duckdb(folder: Path, table: str) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select * from read_parquet('{glob(folder, table)}')").fetchall()


def _with_pandas(folder: Path, table: str) -> list[tuple[Any, ...]]:
    read = pd.read_parquet(folder / table, dtype_backend="pyarrow")
    return [tuple(row.values()) for row in pa.Table.from_pandas(read, preserve_index=False).to_pylist()]


@pytest.mark.parametrize("read", [_with_pyarrow, _with_polars, _with_duckdb, _with_pandas])
def test_p13_every_tool_reads_the_same(
    read: Callable[[Path, str], list[tuple[Any, ...]]], folder: Path, batch: IR
) -> None:
    """Every cell is what pyarrow reads, and every cell that is no key is what the tables in memory hold."""
    for table in schema.STORED:
        fields = columns.fields(table)
        rows = read(folder, table)
        assert rows == _with_pyarrow(folder, table)
        assert len(rows) == batch.count(table)
        expected = tables.contents(batch)[table]
        for place, field in enumerate(fields):
            if field.name not in (expected[0] if expected else ()) or field.column is None:
                continue
            cells = [row[place] for row in rows]
            if field.column.kind in ("code", "pooled", "text") and field.column.of != "shapes":
                assert [cell or "" for cell in cells] == [row[field.name] or "" for row in expected], field.name
            elif field.column.of == "shapes":
                texts = [None if c is None else "[" + ",".join(map(str, c)) + "]" for c in cells]
                assert texts == [row[field.name] for row in expected]
            elif field.column.kind == "flag":
                assert [None if c is None else int(c) for c in cells] == [row[field.name] for row in expected]
            elif field.column.kind == "int" and field.column.default is None:
                assert cells == [row[field.name] for row in expected], field.name


def test_p14_plain_pandas_takes_every_table(folder: Path) -> None:
    for table in TABLES:
        frame = pd.read_parquet(folder / table)
        assert len(frame) == pq.read_table(folder / table).to_pandas().shape[0]
    opcodes = pd.read_parquet(folder / "instructions")["opcode"]
    assert opcodes.dtype == "category"
    assert set(opcodes.dropna()) == {"Load", "never seen before", "Save", "SB", "Unassigned"}


def test_to_arrow_agrees_with_the_files(folder: Path, batch: IR) -> None:
    for table in ("instructions", "sets", "modules"):
        held = arrow.table(batch, table)
        read = pq.read_table(folder / table)
        for name in held.column_names:
            if not name.endswith("id"):
                assert read[name].to_pylist() == held[name].to_pylist(), name


# -- the same bytes ------------------------------------------------------------------------------------------


def test_o5_bytes_do_not_depend_on_what_pools_held_before(tmp_path: Path) -> None:
    rows = tables.random_rows(3)
    parquet.write_parquet(tables.build(rows), tmp_path / "fresh")
    parquet.write_parquet(tables.build(rows, used_pools=("Save", "Load", '{"x":1}', "name")), tmp_path / "used")
    assert files_of(tmp_path / "fresh") == files_of(tmp_path / "used")


def test_o5_reading_and_writing_gives_the_same_bytes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "PART_INSTRUCTIONS", 60)
    monkeypatch.setattr(parquet, "GROUP_ROWS", 7)
    parquet.write_parquet(parquet.read_parquet(folder), tmp_path / "again")
    assert files_of(folder) == files_of(tmp_path / "again")


def test_o5_a_module_looks_the_same_in_any_batch(tmp_path: Path) -> None:
    ir = tables.build(tables.random_rows(5, modules=3))
    parquet.write_parquet(ir, tmp_path / "all")
    parquet.write_parquet(ir.select([2]), tmp_path / "one")
    for table in schema.STORED:
        whole = pl.read_parquet(glob(tmp_path / "all", table)).filter(pl.col("module_id") == 2)
        alone = pl.read_parquet(glob(tmp_path / "one", table))
        keys = ["module_id"] + (["id"] if table == "modules" else [])
        assert whole.drop(keys).equals(alone.drop(keys)), table


_WRITE = """
import sys
import pyarrow
from arrowir.formats import parquet
from tests import tables
parquet.THREADS = int(sys.argv[2])
parquet.GROUP_ROWS = 10
parquet.PART_INSTRUCTIONS = 60
pyarrow.set_cpu_count(int(sys.argv[2]))
parquet.write_parquet(tables.build(tables.random_rows(9, modules=5), history=["x"]), sys.argv[1])
"""


def test_o5_bytes_do_not_depend_on_hash_seed_and_threads(tmp_path: Path) -> None:
    found: list[dict[str, bytes]] = []
    for seed, threads in (("0", "1"), ("1", "5")):
        out = tmp_path / seed
        environment = os.environ | {
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "kernels"))),
        }
        command = [sys.executable, "-c", _WRITE, str(out), threads]
        subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=120)
        found.append(files_of(out))
    assert found[0] == found[1]
    assert len(found[0]) > 2 * len(TABLES)


# -- what is refused when writing ----------------------------------------------------------------------------


def test_rows_of_modules_that_are_not_together_are_refused(tmp_path: Path) -> None:
    rows = {"modules": [{"name": "a"}, {"name": "b"}], "functions": [{"module_id": m, "name": "f"} for m in (0, 1, 0)]}
    with pytest.raises(SchemaError, match="`functions`: rows are not grouped by module"):
        parquet.write_parquet(tables.build(rows), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_key_into_another_module_is_refused(tmp_path: Path) -> None:
    rows = tables.random_rows(4, modules=2)
    first, last = rows["branches"][0], rows["branches"][-1]
    ir = tables.build(rows)
    assert ir.branches["module_id"][0] < ir.branches["module_id"][-1]
    first["block_id"] = rows["instructions"][last["instruction_id"]]["block_id"]
    with pytest.raises(SchemaError, match="table `branches`, column `block_id`: a key names no row of table `blocks`"):
        parquet.write_parquet(tables.build(rows), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_key_is_refused(tmp_path: Path) -> None:
    rows = {
        "modules": [{"name": "a"}],
        "functions": [{"module_id": 0}],
        "sets": [{"function_id": 0}],
        "references": [{"table": "sets", "row": None, "target": "sets", "target_id": 0}],
    }
    with pytest.raises(SchemaError, match="table `references`, column `row`: row 0 is null, and must not be"):
        parquet.write_parquet(tables.build(rows), tmp_path / "out")


# -- single files --------------------------------------------------------------------------------------------


def test_write_frame_makes_a_file_that_every_tool_reads(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"status": ["changed", None], "rows": [1, 2], "kind": ["a", "b"]},
        schema_overrides={"status": pl.Enum(["changed", "failed"]), "kind": pl.Categorical},
    )
    path = tmp_path / "new" / "steps.parquet"
    parquet.write_frame(frame, path)
    parquet.write_frame(frame, path)
    assert [p.name for p in path.parent.iterdir()] == ["steps.parquet"]
    expected = [("changed", 1, "a"), (None, 2, "b")]
    assert pl.read_parquet(path).rows() == expected
    assert duckdb.sql(f"select * from '{path}'").fetchall() == expected
    assert pd.read_parquet(path)["status"].to_list()[0] == "changed"
    assert pa.types.is_large_string(pq.read_schema(path).field("status").type)


def test_write_frame_keeps_the_old_file_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "steps.parquet"
    parquet.write_frame(pl.DataFrame({"a": [1]}), path)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ArrowIRError, match=r"steps\.parquet` cannot be written: No space left on device"):
        parquet.write_frame(pl.DataFrame({"a": [2]}), path)
    assert pl.read_parquet(path).item() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["steps.parquet"]
