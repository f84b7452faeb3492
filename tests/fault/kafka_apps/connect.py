"""Connect in distributed mode: an exactly-once source copies a file into a topic, a sink the topic into a
file."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from bench.core.ports import free_port

from .records import Reader
from .site import Account, App, Worker, account, properties

WORKERS = 2
TOPIC = "lines"
PATIENCE_S = 180.0
FILES = "org.apache.kafka.connect.file.FileStream"
SETTINGS = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    "config.storage.topic": "connect-configs",
    "offset.storage.topic": "connect-offsets",
    "status.storage.topic": "connect-status",
    "plugin.discovery": "service_load",
    # so that a dead worker is replaced soon
    "session.timeout.ms": "6000",
    "heartbeat.interval.ms": "1000",
    "scheduled.rebalance.max.delay.ms": "2000",
    "offset.flush.interval.ms": "1000",
    "consumer.isolation.level": "read_committed",
    "consumer.session.timeout.ms": "6000",
    "consumer.heartbeat.interval.ms": "1000",
}


class FileFeeder:
    """Appends numbers to a file at a steady rate, each as "#number;" on a line of its own."""

    def __init__(self, path: Path, rate: int) -> None:
        self._path, self._rate = path, rate
        self.written = 0
        self.problems: list[str] = []  # always empty: a file is always available
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="file feeder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        begun = time.monotonic()
        with self._path.open("w") as file:
            while not self._stop.wait(0.02):
                due = int((time.monotonic() - begun) * self._rate)
                file.writelines(f"#{number};\n" for number in range(self.written, due))
                file.flush()
                self.written = max(self.written, due)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    @property
    def values(self) -> set[bytes]:
        return {b"#%d;" % number for number in range(self.written)}


@dataclass
class Connect(App):
    """Two workers, a FileStreamSource and a FileStreamSink."""

    name = "Connect"

    def start(self) -> None:
        address = self.daemon("daemon").kafka
        self._ports = [free_port() for _ in range(WORKERS)]
        for number, port in enumerate(self._ports):
            own = {
                "bootstrap.servers": address,
                "listeners": f"http://127.0.0.1:{port}",
                "exactly.once.source.support": "enabled" if self.once else "disabled",
            }
            path = properties(self.folder / f"worker-{number}.properties", SETTINGS | own)
            words = ["org.apache.kafka.connect.cli.ConnectDistributed", str(path)]
            self.workers.append(Worker(f"worker-{number}", words, self.folder))
            self.workers[-1].start()
        self._from, self._to = self.folder / "from", self.folder / "to"
        self.feeder = FileFeeder(self._from, self.rate)
        self.reader = Reader(address, TOPIC)
        source = {
            "connector.class": FILES + "SourceConnector",
            "file": str(self._from),
            "topic": TOPIC,
            "exactly.once.support": "required" if self.once else "requested",
        }
        sink = {"connector.class": FILES + "SinkConnector", "file": str(self._to), "topics": TOPIC}
        self._configure("source", source)
        self._configure("sink", sink)

    def _configure(self, name: str, config: dict[str, str]) -> None:
        """Configures a connector by Connect's REST interface, once the workers serve it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._ports[0]}/connectors/{name}/config",
            json.dumps({"tasks.max": "1", **config}).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=60):
                    return
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)  # only an answer shows that its REST server is up

    def out(self) -> int:
        """Returns the records that have passed both connectors, so that a stall of either is seen."""
        return min(self.reader.look(), len(self._in_file()))

    def _in_file(self) -> list[bytes]:
        """Returns the complete lines; a killed worker may have left part of a line."""
        return re.findall(rb"#\d+;", self._to.read_bytes()) if self._to.exists() else []

    def accounts(self) -> list[Account]:
        self.reader.look()
        sent = self.feeder.values
        return [
            account("file to topic", sent, [value for _, value in self.reader.records], exact=True),
            account("topic to file", sent, self._in_file(), exact=False),  # a sink promises at least once
        ]
