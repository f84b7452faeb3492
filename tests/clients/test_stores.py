"""Every file that a daemon writes has a row in the table of stores, which says what a power loss takes."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import paho.mqtt.publish as publish
import pika
from confluent_kafka import Producer

from treecast.middleware.daemon.process import DaemonProcess

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ordering.md"
# The lock; SQLite's own files beside a database; a log of blocks names its last forced segment.
PARTS = {"lock", "*.sqlite-wal", "*.sqlite-shm", "*.db-wal", "*.db-shm"}


def stores() -> set[str]:
    """Returns the patterns in the first column of the table."""
    table = PAGE.read_text(encoding="utf-8").split("## The stores")[1].split("## The turn")[0]
    rows = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| `")]
    return {name.replace("T-N", "*") for row in rows for name in re.findall(r"`([^`]+)`", row)}


def known(file: str, patterns: set[str]) -> bool:
    name = file.rsplit("/", 1)[-1]
    return any(
        file.startswith(pattern)
        if pattern.endswith("/")
        else fnmatch(file, pattern) or fnmatch(name, pattern)
        for pattern in patterns
    )


def test_every_file_of_a_data_directory_has_a_row(tmp_path: Path) -> None:
    flags = ["--fsync", "interval", "--fabric", "127.0.0.1:0"]
    with DaemonProcess(tmp_path / "data", flags) as daemon:
        producer = Producer({"bootstrap.servers": daemon.kafka, "transactional.id": "tx"})
        producer.init_transactions(45)
        for commits in (True, False):
            producer.begin_transaction()
            producer.produce("orders", b"x")
            producer.flush(45)
            (producer.commit_transaction if commits else producer.abort_transaction)(45)
        connection = pika.BlockingConnection(pika.ConnectionParameters(*daemon.address("amqp")))
        connection.channel().queue_declare("jobs", durable=True)
        connection.close()
        host, port = daemon.address("mqtt")
        publish.single("a/b", b"x", 1, True, host, port)
        served = {str(path.relative_to(daemon.data)) for path in daemon.data.rglob("*") if path.is_file()}
        daemon.stop()
    left = {str(path.relative_to(daemon.data)) for path in daemon.data.rglob("*") if path.is_file()}
    patterns = stores() | PARTS
    assert [file for file in sorted(served | left) if not known(file, patterns)] == []
    for pattern in (
        "tables.sqlite",
        "coordinator.db",
        "pubsub/",
        "queues/",
        "logs/*/*.log",
        "meta.json",
        "run",
    ):
        assert any(known(file, {pattern}) for file in served), pattern
