"""Small batches are handed to Spark with their plan, as PySpark's own runner expects."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from treecast.spark_connectors.errors import OptionError
from treecast.spark_connectors.source.offsets import Partition
from treecast.spark_connectors.source.options import parse_options
from treecast.spark_connectors.source.planning import Range

pa = pytest.importorskip("pyarrow")
serializers = pytest.importorskip("pyspark.serializers")
datasource = pytest.importorskip("pyspark.sql.datasource")
arrow = pytest.importorskip("pyspark.sql.pandas.serializers")
runner = pytest.importorskip("pyspark.sql.streaming.python_streaming_source_runner")
t = pytest.importorskip("pyspark.sql.types")
worker_util = pytest.importorskip("pyspark.worker_util")
reader_of = pytest.importorskip("treecast.spark_connectors.source.reader")
small = pytest.importorskip("treecast.spark_connectors.source.small")

SCHEMA = t.StructType([t.StructField("value", t.BinaryType())])
ARROW = pa.schema([("value", pa.binary())])


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], schema=ARROW)


class Reader(small.Giving, datasource.DataSourceStreamReader):
    """Has `batches` for Spark with each plan; None: no batches."""

    def __init__(self, batches: list[pa.RecordBatch] | None) -> None:
        self.batches = batches

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Any]:
        self.offer(self.batches)
        return [datasource.InputPartition("whole")]

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        raise AssertionError("no task reads here")

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"t": {"0": 9}}


def asked(reader: Reader) -> list[bytes] | None:
    """Returns the rows' values that Spark gets with one partition, or None if tasks are to read."""
    given, said = io.BytesIO(), io.BytesIO()
    for offset in (b'{"t": {"0": 1}}', b'{"t": {"0": 3}}'):
        given.write(len(offset).to_bytes(4, "big") + offset)
    given.seek(0)
    runner.partitions_func(reader, None, SCHEMA, 1000, given, said)
    said.seek(0)
    assert serializers.read_int(said) == 1
    assert worker_util.pickleSer.loads(utf8_bytes(said)).value == "whole"
    match serializers.read_int(said):
        case runner.PREFETCHED_RECORDS_NOT_FOUND:
            return None
        case runner.EMPTY_PYARROW_RECORD_BATCHES:
            return []
    assert serializers.read_int(said) == serializers.SpecialLengths.START_ARROW_STREAM
    batches = list(arrow.ArrowStreamSerializer().load_stream(said))
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def utf8_bytes(said: io.BytesIO) -> bytes:
    return said.read(serializers.read_int(said))


def test_rows_go_with_the_plan_each_time_and_the_reader_is_itself_again() -> None:
    reader = Reader([rows(b"a", b"b"), rows(b"c")])
    for _ in range(2):
        assert asked(reader) == [b"a", b"b", b"c"]
        assert reader.__class__ is Reader
    told = io.BytesIO()
    runner.report_latest_offset_func(reader, told)
    assert told.getvalue().endswith(b'{"t": {"0": 9}}')
    reader.batches = []
    assert asked(reader) == []


def test_tasks_read_where_there_are_no_rows_or_pyspark_knows_no_such_thing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert asked(Reader(None)) is None
    monkeypatch.delattr(small.datasource_internal, "_SimpleStreamReaderWrapper")
    assert asked(Reader([rows(b"a")])) is None


def test_what_is_large_or_fails_is_left_to_tasks() -> None:
    large = rows(bytes(small.MOST_BYTES // 2))
    assert small.read_all(iter([large])) == [large]
    assert small.read_all(iter([large, large, large])) is None

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(b"a")
        raise OSError("the daemon has gone")

    assert small.read_all(failing()) is None


def test_how_many_rows_a_plan_has_at_most() -> None:
    parts = [reader_of.RangePartition(Range(Partition("t", n), 10, 10 + n), "h:1", "", "") for n in (1, 2)]
    assert reader_of.rows_of(parts) == 3
    assert reader_of.TogetherPartition(parts).value == tuple(parts)
    assert reader_of.rows_of([]) == 0


def test_the_option() -> None:
    given = {"subscribe": "t"}
    assert parse_options(given, streaming=True).driver_rows == 0
    assert parse_options(given | {"driverReadMaxRows": "500"}, streaming=True).driver_rows == 500
    with pytest.raises(OptionError, match="driverReadMaxRows is a whole number"):
        parse_options(given | {"driverReadMaxRows": "few"}, streaming=True)
    with pytest.raises(OptionError, match="option of streaming reads only"):
        parse_options(given | {"driverReadMaxRows": "500"}, streaming=False)
