"""Spark looks for data sources in modules named `pyspark_*`: this makes `format("treecast")` known to it."""

from treecast.spark_connectors.datasource import TreecastDataSource as DefaultSource

__all__ = ["DefaultSource"]
