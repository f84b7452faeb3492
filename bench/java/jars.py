"""The stock client libraries, fetched once by Maven, and the load that is compiled against each of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.peers.kafka.tools import java
from bench.peers.maven import Jars, compiled

HERE = Path(__file__).resolve().parent
_COMMON = ("Stock", "Driver")
# A heap that no client fills, so that its collections do not grow the heap during a measurement.
MACHINE = ("-Xms512M", "-Xmx512M", "-XX:+UseG1GC", "-Djava.awt.headless=true")


def _jars(name: str, what: str) -> Jars:
    return Jars(what, f"stock-{name}", HERE / name / "pom.xml", "client.version")


# The library -> its jars, and the driver that uses it.
CLIENTS = {
    "kafka": (_jars("kafka", "Kafka's client"), "KafkaDriver"),
    "kafka36": (_jars("kafka36", "Kafka's older client"), "KafkaDriver"),
    "amqp": (_jars("amqp", "RabbitMQ's client"), "AmqpDriver"),
    "mqtt": (_jars("mqtt", "HiveMQ's client"), "MqttDriver"),
}


def missing_tools(client: str) -> list[str]:
    """Returns which programs are not here: `java`, `javac`, and `mvn` while jars are missing."""
    return CLIENTS[client][0].missing_tools("javac")


def command(client: str, arguments: Sequence[str]) -> list[str]:
    """Returns the command of one load, `arguments` being those behind the driver; the first call fetches jars
    and compiles. Raises RuntimeError if the jars are not available.
    """
    jars, driver = CLIENTS[client]
    classes = compiled(jars, [HERE / f"{name}.java" for name in (*_COMMON, driver)])
    path = ":".join(map(str, [classes, *jars.ensure()]))
    return [java(), *MACHINE, "-cp", path, "Stock", driver, *arguments]
