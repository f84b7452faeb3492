"""Options and columns of a write: their meaning; the error for each wrong one names the valid values."""

from __future__ import annotations

import pytest

from treecast.middleware.broker.transactions.parts import Part, part_of
from treecast.middleware.model.records import Compression
from treecast.spark_connectors.errors import OptionError
from treecast.spark_connectors.sink.naming import Batch
from treecast.spark_connectors.sink.options import MAX_BATCH, parse_options
from treecast.spark_connectors.sink.tables import check_schema

t = pytest.importorskip("pyspark.sql.types")


def test_defaults() -> None:
    read = parse_options({"Topic": "t", "checkpointLocation": "/x", "queryName": "q"}, streaming=True)
    assert (read.topic, read.query, read.transactional, read.lease_ms) == ("t", "q", True, 900_000)
    assert (read.compression, read.write_timeout, read.local_daemon) == (Compression.NONE, 60, True)


def test_options_of_kafkas_producer_that_change_nothing_are_taken() -> None:
    given = {
        "kafka.acks": "all",
        "kafka.linger.ms": "5",
        "kafka.compression.type": "LZ4",
        "delivery": "atleastonce",
    }
    read = parse_options(given, streaming=True)
    assert (read.compression, read.transactional, read.repeated) == (Compression.LZ4, False, "compare")
    assert read.without_effect == ("kafka.acks", "kafka.linger.ms")
    assert parse_options({"repeatedBatch": "Skip"}, streaming=True).repeated == "skip"


def test_a_batch_write_may_name_its_batch() -> None:
    read = parse_options({"topic": "t", "queryName": "daily", "batchId": "7"}, streaming=False)
    assert (read.query, read.batch) == ("daily", 7)
    large = {"topic": "t", "queryName": "daily", "batchId": "202611271245000"}
    assert parse_options(large, streaming=False).batch == 202611271245000


def test_the_largest_batch_number_is_one_for_the_home() -> None:
    largest = Batch("w", MAX_BATCH)
    assert part_of(largest.part("a")) == Part("w", MAX_BATCH, "a")
    assert part_of(Batch("w", MAX_BATCH + 1).part("a")) is None


@pytest.mark.parametrize(
    ("options", "streaming", "message"),
    [
        ({"topc": "t"}, True, "there is no option topc of a write; did you mean topic"),
        ({"colour": "t"}, True, "there is no option colour of a write; there are batchId, delivery"),
        ({"kafka.security.protocol": "SSL"}, True, "kafka.security.protocol: connections here have neither"),
        ({"kafka.compression.type": "best"}, True, "none or gzip or snappy or lz4 or zstd, not 'best'"),
        ({"delivery": "exactlyOnce"}, True, "delivery is effectivelyOnce or atLeastOnce, not 'exactlyOnce'"),
        ({"stagingLeaseMs": "0"}, True, "stagingLeaseMs is a whole number from 1 to 2147483647, not '0'"),
        (
            {"batchId": "1" * 19, "queryName": "q"},
            False,
            f"batchId is a whole number from 0 to {'9' * 18}, not",
        ),
        ({"batchId": "-1", "queryName": "q"}, False, "batchId is a whole number from 0 to"),
        ({"batchId": "1", "queryName": "q"}, True, "batchId is an option of batch writes only"),
        ({"batchId": "1"}, False, "queryName and batchId go together"),
        ({"queryName": "q"}, False, "queryName and batchId go together"),
        ({"localDaemon": "no"}, True, "localDaemon is true or false, not 'no'"),
        ({"repeatedBatch": "no"}, True, "repeatedBatch is compare or counts or skip, not 'no'"),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], streaming: bool, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(options, streaming=streaming)


def schema(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


def test_columns() -> None:
    header = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
    check_schema(schema(value=t.StringType(), other=t.DoubleType()), "t")
    check_schema(
        schema(
            key=t.BinaryType(),
            value=t.BinaryType(),
            topic=t.StringType(),
            partition=t.IntegerType(),
            headers=t.ArrayType(header),
            timestamp=t.TimestampType(),
        ),
        "",
    )


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ({"n": t.LongType()}, "t", "there is no column value to be written, only n"),
        ({"value": t.LongType()}, "t", "the column value is string or binary, not bigint"),
        ({"value": t.StringType()}, "", "the option topic or a column topic says where to write"),
        ({"value": t.StringType(), "partition": t.LongType()}, "t", "partition is int, not bigint"),
    ],
)
def test_columns_that_cannot_be_written(columns: dict[str, t.DataType], topic: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_schema(schema(**columns), topic)
