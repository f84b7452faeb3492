"""`format("treecast")`: the data source that Spark finds by the module `pyspark_treecast`."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from .errors import OptionError
from .source.arrow import schema_of
from .source.options import parse_options
from .source.reader import TreecastReader, TreecastStreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType


class TreecastDataSource(DataSource):
    """Topics as tables and streams, with the options and the schema of Spark's Kafka source."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        self.options = options

    @classmethod
    def name(cls) -> str:
        return "treecast"

    def schema(self) -> StructType:
        include = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return schema_of(include_headers=include)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._check(schema)
        return TreecastReader(parse_options(dict(self.options), streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._check(schema)
        return TreecastStreamReader(parse_options(dict(self.options), streaming=True), schema)

    def _check(self, schema: StructType) -> None:
        own = self.schema()
        if _columns(schema) != _columns(own):
            raise OptionError(f"the schema is always {own.simpleString()}; leave .schema(...) out")


def _columns(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema]
