"""SQL over the tables: the same memory, no writes, errors in our own class."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from arrowir import IR, ArrowIRError, build, concat, read_json, schema, sql
from arrowir.store import Pools

SAMPLES = Path(__file__).parents[2] / "data" / "samples"


@pytest.fixture(scope="module")
def ir() -> IR:
    return read_json(SAMPLES / "bir_json_example.json")


def test_every_table_is_a_view_with_the_columns_of_its_frame(ir: IR) -> None:
    for table in schema.TABLES:
        answer = ir.sql(f'select * from "{table.name}"')
        frame = ir.frame(table.name)
        assert answer.columns == frame.columns
        assert answer.height == frame.height
        for name in frame.columns:
            plain = pl.String if isinstance(frame[name].dtype, pl.Enum) else frame[name].dtype
            assert answer[name].dtype == plain, (table.name, name)
            if name != "extra":  # there names are filled in
                assert answer[name].to_list() == frame[name].cast(plain).to_list(), (table.name, name)


def test_tables_without_rows_are_typed() -> None:
    empty = IR({}, Pools())
    for name in sql.VIEWS:
        answer = empty.sql(f'select * from "{name}"')
        assert answer.height == 0
        assert pl.Null not in answer.dtypes
    assert empty.sql("select sum(bytes) as s, count(*) as n from locations").rows() == [(None, 0)]


def test_p26_views_are_not_slices_and_share_the_storage(ir: IR) -> None:
    for part in (ir, concat([ir, ir]).select([1])):
        for table in schema.TABLES:
            for column in sql.view(part, table.name).columns:
                assert all(chunk.offset == 0 for chunk in column.chunks)
    offsets = sql.view(ir, "operands")["offset"].chunk(0)
    assert offsets.buffers()[1].address == ir.tables["operands"]["offset"].ctypes.data


def test_p26_nulls_of_a_selected_module_are_right(ir: IR) -> None:
    part = concat([ir, ir, ir]).select([2])
    query = "select id, location_id, register_id, name from operands order by id"
    assert part.sql(query).equals(ir.sql(query))


def test_joins_follow_the_keys(ir: IR) -> None:
    rows = ir.sql(
        """
        select i.name, o.role, l.name as location from operands o
        join instructions i on i.id = o.instruction_id join locations l on l.id = o.location_id
        where i.name = 'I-1' order by o.id
        """
    ).rows()
    assert rows == [("I-1", "in", "input0"), ("I-1", "out", "stage")]


def test_columns_of_one_name_get_numbers(ir: IR) -> None:
    answer = ir.sql("select 1 as a, 2 as a, 3 as a_1, 4 as b, 5 as a")
    assert answer.row(0, named=True) == {"a": 1, "a_2": 2, "a_1": 3, "b": 4, "a_3": 5}
    everything = ir.sql("select * from operands o join instructions i on i.id = o.instruction_id")
    assert {"id", "id_1", "name", "name_1"} <= set(everything.columns)


def test_names_are_filled_in_where_json_text_refers_to_something() -> None:
    main = (module := build.module()).function()
    r, tile = main.register("r"), main.sb("t", [128, 4])
    main.add("NoOp", [tile.via(r, reg_ap_offset="r"), tile], key=[r.value, "x"], plain=1)
    main.add("NoOp", [tile.at(build.Register("lost").value, 0)], plain=2)
    ir = module.ir()
    rows = ir.sql("select extra->>'$.key[0].terms[0].idx.regref' as r, extra->'plain' as n from instructions").rows()
    assert rows == [("r", "1"), (None, "2")]
    places = "extra->>'reg_ap_offset' as a, extra->>'$.addrs[0].terms[0].idx.regref' as b"
    assert ir.sql(f"select {places} from operands order by id").rows() == [("r", None), (None, None), (None, "lost")]


def test_patterns_are_lists(ir: IR) -> None:
    rows = ir.sql("select pattern, elements from patterns order by id limit 1").rows()
    assert rows == [([{"step": 512, "num": 128}, {"step": 1, "num": 512}], 65536)]


def test_sums_of_integers_are_integers(ir: IR) -> None:
    answer = ir.sql("select sum(bytes) as total, sum(bytes)::double as real from locations")
    assert answer.schema == {"total": pl.Int64, "real": pl.Float64}
    assert answer["total"].item() == ir.locations["bytes"].sum()
    with pytest.raises(ArrowIRError, match="`big` is beyond 64 bits; cast it to varchar or double"):
        ir.sql("select sum(n) as big from (values (9223372036854775807), (1)) t(n)")


def test_only_the_tables_that_are_named_are_made(ir: IR, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    view = sql.view
    monkeypatch.setattr(sql, "view", lambda ir, name: (made.append(name), view(ir, name))[1])
    ir.sql("select count(*) from Instructions join OPERANDS on true")
    assert sorted(made) == ["instructions", "operands"]
    made.clear()
    ir.sql("select 1")
    assert made == []
    ir.sql("show tables")
    assert set(made) == set(sql.VIEWS)


def test_frames_are_not_made(ir: IR) -> None:
    part = ir.select([0])
    part.sql("select count(*) from instructions join operands on instructions.id = operands.instruction_id")
    assert part._frames == {}


def test_what_reading_noticed_is_a_view() -> None:
    main = (module := build.module()).function()
    main.add("NoOp", after=["nowhere"])
    ir = module.ir("m")
    assert ir.sql("select module, code from diagnostics").rows() == [("m", "unresolved_name")]


def test_several_statements_give_the_last_answer(ir: IR) -> None:
    answer = ir.sql("create temp table t as select opcode from instructions; select count(*) as n from t")
    assert answer["n"].item() == ir.count("instructions")


def test_nothing_is_left_for_the_next_call(ir: IR) -> None:
    ir.sql("create table mine as select 1 as x; set threads = 1; select 1")
    ir.sql("select count(*) from operands")
    for name in ("mine", "operands_", "memory.operands"):
        with pytest.raises(ArrowIRError, match="Catalog Error"):
            ir.sql(f"select * from {name}")
    small = IR({}, Pools())
    assert ir.sql("select count(*) from operands").item() == 13
    assert small.sql("select count(*) from operands").item() == 0


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("selec 1", "the query was refused: Parser Error"),
        ("select nothing from instructions", 'the query was refused: Binder Error.*"nothing"'),
        (
            "select * from nowhere",
            "the query was refused: Catalog Error.*nowhere.*Tables are modules, functions, .*, diagnostics$",
        ),
        ("select * from references", 'the query was refused: Parser Error.*needs quotes: "references"$'),
        ("select error('boom') from instructions", "the query was refused.*boom"),
        ("select ?", "the query was refused"),
        ("", "holds no statement"),
        ("-- nothing", "holds no statement"),
    ],
)
def test_errors_are_ours_and_say_what_duckdb_says(ir: IR, query: str, message: str) -> None:
    with pytest.raises(ArrowIRError, match=f"(?s){message}"):
        ir.sql(query)


@pytest.mark.parametrize(
    "query",
    [
        "insert into instructions select * from instructions",
        "update instructions set opcode = 'NoOp'",
        "delete from instructions",
        "truncate instructions",
        "alter table instructions add column x integer",
    ],
)
def test_the_tables_cannot_be_written(ir: IR, query: str) -> None:
    before = ir.tables["instructions"]["opcode"].copy()
    with pytest.raises(ArrowIRError):
        ir.sql(query)
    assert (ir.tables["instructions"]["opcode"] == before).all()


def test_python_variables_are_out_of_reach_and_files_are_not(ir: IR, tmp_path: Path) -> None:
    mine = pl.DataFrame({"x": [1]})
    with pytest.raises(ArrowIRError, match="mine"):
        ir.sql("select * from mine")
    mine.write_parquet(tmp_path / "profile.parquet")
    assert ir.sql(f"select x from '{tmp_path / 'profile.parquet'}'").rows() == [(1,)]


def test_v03_threads_do_not_disturb_each_other(ir: IR) -> None:
    batches = [concat([ir] * n) for n in (1, 2, 3, 4)]
    start = threading.Barrier(8)

    def ask(number: int) -> list[tuple[Any, ...]]:
        batch = batches[number % 4]
        start.wait()
        answers = [batch.sql("select count(*) as n, count(distinct module_id) as m from operands") for _ in range(5)]
        assert all(a.equals(answers[0]) for a in answers)
        return answers[0].rows()

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(ask, range(8)))
    assert rows == [[(13 * n, n)] for n in (1, 2, 3, 4, 1, 2, 3, 4)]


def test_a_missing_duckdb_is_explained(ir: IR, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(ArrowIRError, match=r'run `pip install "arrowir\[sql\]"`'):
        ir.sql("select 1")
