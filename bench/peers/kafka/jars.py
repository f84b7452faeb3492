"""The jars of Kafka's server and tools, fetched once by Maven."""

from __future__ import annotations

from pathlib import Path

from bench.peers.maven import Jars

HERE = Path(__file__).resolve().parent
POM = HERE / "pom.xml"
JARS = Jars("Apache Kafka", "kafka", POM, "kafka.version")


def kafka_version() -> str:
    """Returns the version that pom.xml names."""
    return JARS.version


def missing_tools() -> list[str]:
    """Returns which programs are not here: running Kafka takes `java`, and `mvn` while jars are missing."""
    return JARS.missing_tools()


def ensure_jars() -> Path:
    """Returns the folder with all jars; the first call fetches them."""
    JARS.ensure()
    return JARS.folder


def class_path() -> str:
    """Returns all jars in the order in which Kafka's own scripts list them: by name."""
    return ":".join(map(str, JARS.ensure()))
