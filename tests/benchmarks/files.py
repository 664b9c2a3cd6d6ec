"""Rows about files: JSON beside other parsers, Parquet beside plain pyarrow, on one document of 45 MB."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from tests.benchmarks.inputs import anew
from tests.benchmarks.registry import Case, Inputs, Peer, Row

if TYPE_CHECKING:
    import pyarrow as pa

    from arrowir import IR


def _json_read(inputs: Inputs) -> Case:
    import arrowir as air

    data = inputs.path("document.json").read_bytes()
    facts = {"bytes_of_text": len(data)}
    return Case(air.read_json, len(data), "bytes", fresh=lambda: data, check=_has_instructions, facts=facts)


def _has_instructions(ir: "IR") -> None:
    assert ir.count("instructions") > 0, ir
    assert ir.messages == (), ir.messages


def _loads(library: str, *, collect: bool) -> Callable[[Inputs], Case]:
    """Return the set-up of a row that parses the document into Python objects."""

    def set_up(inputs: Inputs) -> Case:
        import orjson

        data = inputs.path("document.json").read_bytes()
        loads: Callable[[Any], Any] = orjson.loads if library == "orjson" else json.loads
        return Case(loads, len(data), "bytes", fresh=lambda: data, check=_is_document, collect=collect)

    return set_up


def _is_document(document: dict[str, Any]) -> None:
    assert document["functions"]


def _json_write(inputs: Inputs) -> Case:
    import arrowir as air

    data = inputs.path("document.json").read_bytes()
    ir = air.read_json(data)

    def check(written: bytes) -> None:
        import orjson

        assert orjson.loads(written) == orjson.loads(data)

    return Case(lambda one: one.to_json(), len(data), "bytes", fresh=partial(anew, ir), check=check)


def _dumps(inputs: Inputs) -> Case:
    import orjson

    data = inputs.path("document.json").read_bytes()
    document = orjson.loads(data)
    return Case(lambda _: orjson.dumps(document), len(data), "bytes")


class _Places:
    """New places for what is written, one after the other; the one before is removed."""

    def __init__(self, inputs: Inputs) -> None:
        self._folder = Path(mkdtemp(dir=inputs.folder))
        self._numbers = count()

    def next(self) -> Path:
        number = next(self._numbers)
        shutil.rmtree(self._folder / str(number - 1), ignore_errors=True)
        return self._folder / str(number)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.parquet"))


def _parquet_write(inputs: Inputs) -> Case:
    import arrowir as air

    ir = air.read_parquet(inputs.path("document"))
    places = _Places(inputs)

    def run(given: "tuple[IR, Path]") -> Path:
        one, place = given
        one.write_parquet(place)
        return place

    def check(place: Path) -> None:
        assert air.read_parquet(place).count("instructions") == ir.count("instructions")

    facts = {"bytes_in_files": _size(inputs.path("document"))}
    rows = ir.count("instructions")
    return Case(run, rows, "instructions", fresh=lambda: (anew(ir), places.next()), check=check, facts=facts)


def _plain_write(inputs: Inputs) -> Case:
    """Write the tables with pyarrow's own settings; deriving columns is not timed."""
    import arrowir as air

    ir = air.read_parquet(inputs.path("document"))
    tables = ir.to_arrow()
    places = _Places(inputs)

    def run(place: Path) -> Path:
        _write_plain(tables, place)
        return place

    facts = {"bytes_in_files": _size(run(places.next()))}
    return Case(run, ir.count("instructions"), "instructions", fresh=places.next, facts=facts)


def _write_plain(tables: "dict[str, pa.Table]", place: Path) -> None:
    import pyarrow.parquet as pq

    place.mkdir()
    for name, table in tables.items():
        pq.write_table(table, place / f"{name}.parquet")


def _parquet_read(inputs: Inputs) -> Case:
    import arrowir as air

    place = inputs.path("document")
    rows = air.read_parquet(place).count("instructions")
    return Case(lambda _: air.read_parquet(place), rows, "instructions", check=_has_instructions)


def _plain_read(inputs: Inputs) -> Case:
    """Read the same files into Arrow tables, each by itself."""
    import pyarrow.parquet as pq

    files = sorted(inputs.path("document").rglob("*.parquet"))
    rows = sum(pq.read_metadata(path).num_rows for path in files if path.parent.name == "instructions")

    def run(_: None) -> "list[pa.Table]":
        return [pq.read_table(path, partitioning=None) for path in files]

    return Case(run, rows, "instructions")


ROWS = (
    Row(
        "json_read",
        "JSON text of 45 MB to tables",
        _json_read,
        needs=("document.json",),
        peers=(
            Peer("orjson_loads"),
            Peer("orjson_loads_collected"),
            Peer("json_loads"),
            Peer("json_loads_collected"),
        ),
    ),
    *(
        Row(
            f"{library}_loads{'_collected' if collect else ''}",
            f"{library}.loads of the same text, cyclic collector {'on' if collect else 'off'}",
            _loads(library, collect=collect),
            needs=("document.json",),
        )
        for library in ("orjson", "json")
        for collect in (False, True)
    ),
    Row("json_write", "tables to JSON text", _json_write, needs=("document.json",), peers=(Peer("orjson_dumps"),)),
    Row("orjson_dumps", "orjson.dumps of the same document", _dumps, needs=("document.json",)),
    Row(
        "parquet_write",
        "tables of that document to a data set",
        _parquet_write,
        needs=("document",),
        peers=(Peer("pyarrow_write"),),
    ),
    Row("pyarrow_write", "pyarrow.parquet.write_table of the same tables", _plain_write, needs=("document",)),
    Row(
        "parquet_read",
        "data set of that document to tables",
        _parquet_read,
        needs=("document",),
        peers=(Peer("pyarrow_read"),),
    ),
    Row("pyarrow_read", "pyarrow.parquet.read_table of the same files", _plain_read, needs=("document",)),
)
