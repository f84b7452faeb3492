"""Two Apache Kafka nodes and MirrorMaker 2 between them, in its dedicated mode: three processes."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from bench.chain.load import open_route
from bench.core.chain import Chain, Route
from bench.core.process import ServerProcess
from treecast.middleware.load.connection import Connection

from .broker import JVM, KafkaBroker
from .jars import HERE, class_path, ensure_jars, kafka_version, missing_tools
from .tools import java

TOPIC = "bench"
HEAP = ("-Xms256M", "-Xmx2G")  # bin/connect-mirror-maker.sh
# One node per side, so one copy of MirrorMaker's internal topics.
SINGLE = {
    "replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
}
# Records only: no heartbeats, no offsets for moving groups, no copies of settings and ACLs. Large batches as
# its manual advises, without waiting for them: under load a batch fills while the previous one is in flight
# (Connect allows one request in flight, which keeps the order; five took more CPU time per record when
# tried), and at a fixed rate a wait would only add latency.
TUNED = {
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "tasks.max": "1",  # the number of partitions
    "emit.heartbeats.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "emit.offset-syncs.enabled": "false",
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "refresh.groups.enabled": "false",
    "producer.override.linger.ms": "0",
    "producer.override.batch.size": "524288",
    "producer.override.buffer.memory": "134217728",
    "producer.override.acks": "all",
    "consumer.fetch.min.bytes": "1",
    "consumer.max.partition.fetch.bytes": "5242880",
    "consumer.max.poll.records": "10000",
}


def mirror_properties(near: str, far: str) -> dict[str, str]:
    """Returns connect-mirror-maker.sh's properties for two clusters at these bootstrap addresses."""
    return {
        "clusters": "a, b",
        "a.bootstrap.servers": near,
        "b.bootstrap.servers": far,
        "a->b.enabled": "true",
        "a->b.topics": TOPIC,
        "b->a.enabled": "false",
        "b->a.emit.heartbeats.enabled": "false",
        **SINGLE,
        **{f"a->b.{key}": value for key, value in TUNED.items()},
    }


class MirrorMaker(Chain):
    """Producer at the one node, consumer at the other; MirrorMaker keeps the topic's name."""

    def __init__(
        self, *, parent: Path | None = None, start_timeout: float = 180, committed: bool = False
    ) -> None:
        """`committed`: consumers read committed records only."""
        self._committed = committed
        self.name = "Kafka + MirrorMaker 2"
        self._parent = parent
        self._timeout = start_timeout
        self._near, self._far = KafkaBroker(parent=parent), KafkaBroker(parent=parent)
        self._folder: Path | None = None
        self._process: ServerProcess | None = None

    def missing(self) -> str:
        tools = missing_tools()
        return f"Apache Kafka needs {' and '.join(tools)} on the PATH" if tools else ""

    def prepare(self) -> None:
        ensure_jars()

    @property
    def route(self) -> Route:
        return Route("kafka", self._near.address, self._far.address, TOPIC, TOPIC, self._committed)

    def start(self) -> float:
        began = time.monotonic()
        try:
            self._near.start()
            self._far.start()
            with Connection(*self._near.address) as connection:
                connection.create_topic(TOPIC, 1)  # before it starts: it looks for topics every ten minutes
            self._start_mirror()
            came = open_route(self.route, self._timeout)
        except BaseException:
            self.stop()
            raise
        return came - began

    def _start_mirror(self) -> None:
        self._folder = folder = Path(tempfile.mkdtemp(prefix="mirror-", dir=self._parent))
        config = folder / "mm2.properties"
        properties = mirror_properties(self._near.bootstrap, self._far.bootstrap)
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        log4j = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        command = [java(), *HEAP, *JVM, log4j, "-cp", class_path(), main, str(config)]
        self._process = ServerProcess(command, folder / "mirror.log", cwd=folder)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop(10)
            self._process = None
        self._far.stop()
        self._near.stop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def hosts(self) -> list[list[int]]:
        """Returns each host's processes. MirrorMaker runs beside its target broker, as its manual advises."""
        return [self._near.pids(), [*self._far.pids(), *self.mirror_pids()]]

    def mirror_pids(self) -> list[int]:
        return [] if self._process is None else self._process.pids()

    def settings(self) -> Mapping[str, str]:
        broker = self._near.settings()
        return {
            "version": kafka_version(),
            "brokers": f"two KRaft nodes with the distribution's server.properties; JVM {broker['jvm']}",
            "mirror": f"dedicated mode; JVM {' '.join((*HEAP, *JVM))}",
            **SINGLE,
            **TUNED,
            "durability": broker["durability"],
        }
