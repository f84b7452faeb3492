"""Columns as Arrow, in the schema of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .columns import Columns

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql.types import StructType


def schema_of(*, include_headers: bool) -> StructType:
    """Key, value, topic, partition, offset, timestamp, timestampType, and headers if they are wanted.

    Built here and not read from DDL, which takes a session, and workers have none.
    """
    from pyspark.sql import types as t

    schema = (
        t.StructType()
        .add("key", t.BinaryType())
        .add("value", t.BinaryType())
        .add("topic", t.StringType())
        .add("partition", t.IntegerType())
        .add("offset", t.LongType())
        .add("timestamp", t.TimestampType())
        .add("timestampType", t.IntegerType())
    )
    if include_headers:
        header = t.StructType().add("key", t.StringType()).add("value", t.BinaryType())
        schema.add("headers", t.ArrayType(header))
    return schema


class ArrowMaker:
    """Makes record batches in the one form that Spark takes for `schema` (a StructType)."""

    def __init__(self, schema: StructType, topic: str, partition: int) -> None:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_schema

        self._pa = pa
        self._schema = to_arrow_schema(schema, timezone="UTC")
        self._topic = pa.scalar(topic, self._schema.field("topic").type)
        self._partition = pa.scalar(partition, pa.int32())

    def make(self, columns: Columns) -> pyarrow.RecordBatch:
        pa, schema = self._pa, self._schema
        count = len(columns)
        times = pa.array(columns.timestamps, pa.timestamp("ms", "UTC"))
        arrays = [
            pa.array(columns.keys, schema.field("key").type),
            pa.array(columns.values, schema.field("value").type),
            pa.repeat(self._topic, count),
            pa.repeat(self._partition, count),
            pa.array(columns.offsets, pa.int64()),
            times.cast(schema.field("timestamp").type),
            pa.array(columns.timestamp_types, pa.int32()),
        ]
        if "headers" in schema.names:
            listed = [
                None if headers is None else [{"key": key, "value": value} for key, value in headers]
                for headers in columns.headers
            ]
            arrays.append(pa.array(listed, schema.field("headers").type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
