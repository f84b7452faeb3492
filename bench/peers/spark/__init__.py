"""Spark with its own Kafka connector or with ours, on a daemon or on Apache Kafka."""

from .bare import Bare
from .combination import Combination
from .jars import connector_jars

__all__ = ["Bare", "Combination", "connector_jars"]
