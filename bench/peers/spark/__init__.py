"""Spark with its own Kafka connector or with ours, on a daemon or on Apache Kafka."""

from .combination import Combination
from .jars import connector_jars

__all__ = ["Combination", "connector_jars"]
