"""The clients of `bench.idle`: `make` creates the topics of its standard input, `read` reads them all.

`read` prints `read` once it has had a record of each topic, and stays until it is ended.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_AT_ONCE = 100  # topics of one request
_PATIENCE = 600.0  # seconds


def make(address: str, names: Sequence[str]) -> None:
    """Creates the topics, and puts a record into each."""
    admin = AdminClient({"bootstrap.servers": address})
    for at in range(0, len(names), _AT_ONCE):
        made = admin.create_topics([NewTopic(name, 1, 1) for name in names[at : at + _AT_ONCE]])
        for future in made.values():
            future.result(_PATIENCE)
    producer = Producer({"bootstrap.servers": address})
    for name in names:
        producer.produce(name, b"one")
        producer.poll(0)
    if producer.flush(_PATIENCE):
        raise SystemExit("not all records were accepted")


def read(address: str, names: Sequence[str]) -> None:
    """Reads all topics. Its fetches wait long, so that they cost nothing while it is idle."""
    settings: dict[str, Any] = {
        "bootstrap.servers": address,
        "group.id": "idle",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100_000,
        "socket.timeout.ms": 200_000,
        "topic.metadata.refresh.interval.ms": -1,
        "queued.max.messages.kbytes": 1024,
    }
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(name, 0, OFFSET_BEGINNING) for name in names])
    lacking = set(names)
    while lacking:
        message = consumer.poll(_PATIENCE)
        if message is None:
            raise SystemExit(f"{len(lacking)} topics cannot be read")
        if message.error() is None:
            lacking.discard(message.topic() or "")
        elif message.error().code() != KafkaError._PARTITION_EOF:
            raise SystemExit(message.error().str())
    print("read", flush=True)
    while True:
        consumer.poll(3600)


if __name__ == "__main__":
    {"make": make, "read": read}[sys.argv[1]](sys.argv[2], sys.stdin.read().split())
