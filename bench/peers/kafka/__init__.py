"""Apache Kafka: one KRaft node, its command-line tools, and the jars of both.

The jars are the dependencies that `pom.xml` names; Maven fetches them once into `.cache/kafka-<version>/`.
"""

from .broker import KafkaBroker
from .jars import ensure_jars, kafka_version, missing_tools
from .tools import run_tool, start_tool

__all__ = ["KafkaBroker", "ensure_jars", "kafka_version", "missing_tools", "run_tool", "start_tool"]
