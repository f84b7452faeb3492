"""The floor of micro-batches in Python: a source and a sink that do only what Spark requires.

Rows are created once in each worker, nothing is requested, and written rows are counted. Workers acknowledge
their tasks at once and settle after them, as ours do; otherwise the floor would be slower than necessary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from treecast.spark_connectors.source.arrow import schema_of
from treecast.spark_connectors.workers import Sent, settle

NAME = "floor"
_SIZE = 100


@cache
def _rows(count: int) -> pa.RecordBatch:
    """Returns `count` rows in our source's form."""
    schema = to_arrow_schema(schema_of(include_headers=False), timezone="UTC")
    values = {
        "value": [bytes(_SIZE)] * count,
        "topic": ["rows"] * count,
        "partition": [0] * count,
        "offset": list(range(count)),
        "timestamp": [0] * count,
        "timestampType": [0] * count,
    }
    columns = [pa.array(values.get(field.name, [None] * count), type=field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class BareReader(Sent, DataSourceStreamReader):
    """Batches of `rows` rows in `partitions` tasks; an offset is a number of rows."""

    def __init__(self, rows: int, partitions: int) -> None:
        self._rows = rows
        self._partitions = partitions

    def initialOffset(self) -> dict[str, Any]:
        return {"rows": 0}

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        return {"rows": int(start["rows"]) + self._rows}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(self._rows // self._partitions) for _ in range(self._partitions)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield _rows(partition.value)
        settle()


class BareWriter(Sent, DataSourceStreamArrowWriter):
    """Accepts and counts rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        settle()
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        settle()


class BareSource(DataSource):
    """`format("floor")`, which a session has to register. Options: rows of a batch, tasks."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return schema_of(include_headers=False)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BareReader(int(self.options["rows"]), int(self.options["tasks"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        settle()
        return BareWriter()
