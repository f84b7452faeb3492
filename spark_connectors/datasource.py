"""`format("treecast")`: the data source that Spark finds through the module `pyspark_treecast`."""

from __future__ import annotations

from collections.abc import MutableMapping
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

from treecast.middleware.model.logs import Log

from .errors import OptionError
from .sink.options import SinkOptions
from .sink.options import parse_options as parse_sink_options
from .sink.tables import check_schema
from .sink.writer import TreecastStreamWriter, TreecastWriter
from .source.arrow import schema_of
from .source.decoding import decoder
from .source.options import SourceOptions, parse_options
from .source.reader import TreecastReader, TreecastStreamReader
from .workers import settle

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


_log = Log("treecast.spark")


class TreecastDataSource(DataSource):
    """Topics as tables and streams, with the options and the schema of Spark's Kafka source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        return "treecast"

    def schema(self) -> StructType | str:
        if self.options.get("format"):
            given = self.options.get("schema", "")
            if not given:
                raise OptionError(
                    "format goes with a schema: .schema(...), or the option schema such as 'n int'"
                )
            return given
        return self._own_schema()

    def _own_schema(self) -> StructType:
        include = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return schema_of(include_headers=include)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TreecastReader(self._read(schema, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return TreecastStreamReader(self._read(schema, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        options = self._written(schema, overwrite, streaming=False)
        return TreecastWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = TreecastStreamWriter(self._written(schema, overwrite, streaming=True))
        settle()  # one is made for each batch
        return writer

    def _written(self, schema: StructType, overwrite: bool, *, streaming: bool) -> SinkOptions:
        if overwrite:
            raise OptionError(
                "topics are appended to: write with mode append or outputMode append. Of totals that change, "
                "each batch is written in foreachBatch with queryName and batchId; the query itself may have "
                "outputMode update or complete then"
            )
        options = parse_sink_options(dict(self.options), streaming=streaming)
        check_schema(schema, options.topic)
        _tell(options.without_effect)
        return options

    def _read(self, schema: StructType, *, streaming: bool) -> SourceOptions:
        options = parse_options(dict(self.options), streaming=streaming)
        _tell(options.without_effect)
        if options.format:
            decoder(schema, options.format, options.layout)
            return options
        own = self._own_schema()
        if _columns(schema) != _columns(own):
            raise OptionError(
                f"without the option format the schema is {own.simpleString()}; leave .schema(...) out, or "
                "say by format how values are decoded"
            )
        return options


@cache
def _tell(without_effect: tuple[str, ...]) -> None:
    """Logs options that change nothing; once, as readers and writers are made often."""
    if without_effect:
        _log.warning("options have no effect here", options=", ".join(without_effect))


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema]
