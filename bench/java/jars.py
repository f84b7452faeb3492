"""The stock client libraries, fetched once by Maven, and the load that is compiled against them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.peers.kafka.tools import java
from bench.peers.maven import Jars, compiled

HERE = Path(__file__).resolve().parent
JARS = Jars("the stock clients", "stock-clients", HERE / "pom.xml", "kafka.version")
OLDER = Jars("the older client of Kafka", "stock-clients-older", HERE / "older" / "pom.xml", "kafka.version")
# A heap that no client fills, so that its collections do not grow the heap during a measurement.
MACHINE = ("-Xms512M", "-Xmx512M", "-XX:+UseG1GC", "-Djava.awt.headless=true")


def missing_tools() -> list[str]:
    """Returns which programs are not here: `java`, `javac`, and `mvn` while jars are missing."""
    return JARS.missing_tools("javac")


def command(arguments: Sequence[str], *, older: bool = False) -> list[str]:
    """Returns the command of one load; the first call fetches jars and compiles.

    `older`: with the older client of Kafka. Raises RuntimeError if the jars are not available.
    """
    newest = JARS.ensure()
    classes = compiled(JARS, sorted(HERE.glob("*.java")))
    first = OLDER.ensure() if older else []  # the first of two libraries on a class path is loaded
    path = ":".join(map(str, [classes, *first, *newest]))
    return [java(), *MACHINE, "-cp", path, "Stock", *arguments]
