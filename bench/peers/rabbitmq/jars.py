"""The jars of RabbitMQ's Java client and of PerfTest, its load generator, fetched once by Maven."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.peers.maven import Jars

JARS = Jars(
    "RabbitMQ's PerfTest",
    "rabbitmq-perf-test",
    Path(__file__).resolve().with_name("pom.xml"),
    "perf-test.version",
)
# A short run spends most of its time on the start of the virtual machine.
_SHORT_LIVED = ("-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")


def missing_tools() -> list[str]:
    """Returns which programs are not here: running takes `java`, and `mvn` while jars are missing."""
    return JARS.missing_tools()


def class_path(*, logging: bool = True) -> str:
    """Returns the class path of the client and PerfTest; the first call fetches the jars.

    Without `logging` the client writes no log; PerfTest cannot run so.
    """
    return ":".join(str(jar) for jar in JARS.ensure() if logging or not jar.name.startswith("logback"))


def perf_test(options: Sequence[str], machine: Sequence[str] = _SHORT_LIVED) -> list[str]:
    """Returns the command that runs PerfTest with these options, `machine` being those of Java."""
    return ["java", *machine, "-cp", class_path(), "com.rabbitmq.perf.PerfTest", *options]
