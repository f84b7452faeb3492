"""One Apache Kafka node in KRaft mode, broker and controller in one process, on loopback."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path

from bench.core.peer import LocalServer
from bench.core.ports import free_port
from bench.core.process import ServerProcess
from treecast.middleware.load.connection import serves

from .jars import HERE, class_path, ensure_jars, kafka_version
from .tools import java, run_tool

HEAP = ("-Xmx1G", "-Xms1G")  # bin/kafka-server-start.sh
JVM = (  # bin/kafka-run-class.sh
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# config/server.properties of a distribution; ports and directories are added below.
PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}


class KafkaBroker(LocalServer):
    """A node. `properties` override or extend a distribution's server.properties."""

    def __init__(
        self,
        *,
        parent: Path | None = None,
        properties: Mapping[str, str] | None = None,
        start_timeout: float = 120,
    ) -> None:
        super().__init__("kafka-", parent)
        self.name = "Apache Kafka"
        self._extra = dict(properties or {})
        self._timeout = start_timeout

    def prepare(self) -> None:
        ensure_jars()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def data(self) -> Path:
        """The directory of the partitions."""
        return self.folder / "logs"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def launch(self, folder: Path) -> float:
        """Formats the storage, starts the node, and waits until it answers Metadata."""
        ensure_jars()
        config = folder / "server.properties"
        properties = self._properties(controller=free_port())
        config.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        run_tool("kafka-storage", "format", "--standalone", f"--cluster-id={cluster}", "-c", str(config))
        self._process = ServerProcess(self._command(config), self.log, cwd=folder)
        return self._process.wait_until(lambda: serves(*self.address), self._timeout)

    def settings(self) -> Mapping[str, str]:
        ours = {"version": kafka_version(), "jvm": " ".join((*HEAP, *JVM))}
        return {
            **ours,
            **PROPERTIES,
            **self._extra,
            "durability": "log.flush.* unset: no fsync, page cache (Kafka's default)",
        }

    def _properties(self, controller: int) -> dict[str, str]:
        listeners = f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{controller}"
        return {
            **PROPERTIES,
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(self.data),
            **self._extra,
        }

    def _command(self, config: Path) -> list[str]:
        log4j = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
        return [java(), *HEAP, *JVM, log4j, "-cp", class_path(), "kafka.Kafka", str(config)]
