"""Small batches are handed to Spark with their plan, as PySpark's own runner asks for them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths, read_int
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.serializers import ArrowStreamSerializer
from pyspark.sql.streaming import python_streaming_source_runner as runner
from pyspark.sql.types import BinaryType, StructField, StructType
from pyspark.worker_util import pickleSer

from treecast.spark_connectors.errors import OptionError
from treecast.spark_connectors.source import small
from treecast.spark_connectors.source.offsets import Partition
from treecast.spark_connectors.source.options import parse_options
from treecast.spark_connectors.source.planning import Range
from treecast.spark_connectors.source.reader import RangePartition, TogetherPartition, rows_of
from treecast.spark_connectors.source.small import Giving, read_all

SCHEMA = StructType([StructField("value", BinaryType())])
ARROW = pa.schema([("value", pa.binary())])


def rows(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], schema=ARROW)


class Reader(Giving, DataSourceStreamReader):
    """Has `batches` for Spark with each plan; None: nothing."""

    def __init__(self, batches: list[pa.RecordBatch] | None) -> None:
        self.batches = batches

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        self.offer(self.batches)
        return [InputPartition("whole")]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise AssertionError("no task reads here")

    def reportLatestOffset(self) -> dict[str, Any]:
        return {"t": {"0": 9}}


def asked(reader: Reader) -> list[bytes] | None:
    """What Spark is told besides one partition: the rows' values, or None where tasks are to read."""
    given, said = io.BytesIO(), io.BytesIO()
    for offset in (b'{"t": {"0": 1}}', b'{"t": {"0": 3}}'):
        given.write(len(offset).to_bytes(4, "big") + offset)
    given.seek(0)
    runner.partitions_func(reader, None, SCHEMA, 1000, given, said)
    said.seek(0)
    assert read_int(said) == 1
    assert pickleSer.loads(utf8_bytes(said)).value == "whole"
    match read_int(said):
        case runner.PREFETCHED_RECORDS_NOT_FOUND:
            return None
        case runner.EMPTY_PYARROW_RECORD_BATCHES:
            return []
    assert read_int(said) == SpecialLengths.START_ARROW_STREAM
    batches = list(ArrowStreamSerializer().load_stream(said))
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def utf8_bytes(said: io.BytesIO) -> bytes:
    return said.read(read_int(said))


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
    assert read_all(iter([large])) == [large]
    assert read_all(iter([large, large, large])) is None

    def failing() -> Iterator[pa.RecordBatch]:
        yield rows(b"a")
        raise OSError("the daemon has gone")

    assert read_all(failing()) is None


def test_how_many_rows_a_plan_has_at_most() -> None:
    parts = [RangePartition(Range(Partition("t", n), 10, 10 + n), "h:1", "") for n in (1, 2)]
    assert rows_of(parts) == 3
    assert TogetherPartition(parts).value == tuple(parts)
    assert rows_of([]) == 0


def test_the_option() -> None:
    given = {"subscribe": "t"}
    assert parse_options(given, streaming=True).driver_rows == 0
    assert parse_options(given | {"driverReadMaxRows": "500"}, streaming=True).driver_rows == 500
    with pytest.raises(OptionError, match="driverReadMaxRows is a whole number"):
        parse_options(given | {"driverReadMaxRows": "few"}, streaming=True)
    with pytest.raises(OptionError, match="option of streaming reads only"):
        parse_options(given | {"driverReadMaxRows": "500"}, streaming=False)
