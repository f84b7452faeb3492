"""Columns as Arrow, in the schema of Spark's Kafka source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .columns import Columns
from .packed import Blobs, Packed

if TYPE_CHECKING:
    import pyarrow
    from librt.strings import BytesWriter
    from pyspark.sql.types import StructType


def schema_of(*, include_headers: bool) -> StructType:
    """Returns key, value, topic, partition, offset, timestamp, timestampType, and optionally headers.

    Built here rather than parsed from DDL, which needs a session, and workers have none.
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

    def make(self, columns: Columns | Packed) -> pyarrow.RecordBatch:
        return self._of_packed(columns) if isinstance(columns, Packed) else self._of_lists(columns)

    def _of_packed(self, packed: Packed) -> pyarrow.RecordBatch:
        """Builds a batch without access to single rows. The schema has no headers."""
        pa, schema, count = self._pa, self._schema, len(packed)
        times = self._numbers(packed.timestamps, pa.timestamp("ms", "UTC"), count)
        arrays = [
            self._blobs(packed.keys),
            self._blobs(packed.values),
            pa.repeat(self._topic, count),
            pa.repeat(self._partition, count),
            self._numbers(packed.offsets, pa.int64(), count),
            times.cast(schema.field("timestamp").type),
            self._numbers(packed.timestamp_types, pa.int32(), count),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _numbers(self, numbers: BytesWriter, kind: pyarrow.DataType, count: int) -> pyarrow.Array:
        return self._pa.Array.from_buffers(kind, count, [None, self._pa.py_buffer(numbers.getvalue())])

    def _blobs(self, blobs: Blobs) -> pyarrow.Array:
        import numpy as np

        pa = self._pa
        if blobs.nulls == blobs.count:
            return pa.nulls(blobs.count, pa.binary())
        buffers = [None, pa.py_buffer(blobs.ends.getvalue()), pa.py_buffer(blobs.data.getvalue())]
        if blobs.nulls:
            present = np.frombuffer(blobs.present.getvalue(), np.uint8)
            buffers[0] = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), blobs.count, buffers, blobs.nulls)

    def _of_lists(self, columns: Columns) -> pyarrow.RecordBatch:
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
