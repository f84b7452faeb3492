"""The jars of Spark's Kafka connector, fetched once by Maven."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.peers.maven import Jars

JARS = Jars(
    "Spark's Kafka connector", "spark-kafka", Path(__file__).resolve().with_name("pom.xml"), "spark.version"
)


def missing_tools() -> list[str]:
    """Returns which programs are not here that Spark takes."""
    return [name for name in ("java",) if shutil.which(name) is None]


def connector_jars() -> list[Path]:
    """Returns the jars; the first call fetches them. Raises RuntimeError if they are not available."""
    return JARS.ensure()
