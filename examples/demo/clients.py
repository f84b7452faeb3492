"""The demo's clients: a producer, a member of a group in its own process, and a reader of everything."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaProducer

ROOT = Path(__file__).resolve().parents[2]
TOPIC, GROUP, PARTITIONS = "text", "readers", 4
SOURCES = ("docs", "middleware", "shims", "tests", "examples")
SUFFIXES = {".md", ".py"}
PATIENCE_S = 60.0


class Amiss(Exception):
    """Something did not happen in time."""


def text_lines() -> Iterator[bytes]:
    """Yields the lines of the repository's files, over and over."""
    files = sorted(
        path for folder in SOURCES for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES
    )
    lines = [line.encode() for path in files for line in path.read_text().splitlines() if line.strip()]
    return itertools.cycle(lines)


class Member:
    """A group member in a separate process, and the records that it reported."""

    def __init__(self, address: str) -> None:
        self.read: Counter[int] = Counter()
        self.partitions: set[int] = set()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "examples.demo.member", address, TOPIC, GROUP],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, *rest = line.split()
            if not line.endswith("\n"):
                return  # killed in the middle of a line
            if word == "has":
                self.partitions = {int(partition) for partition in rest}
            else:
                for part in rest:
                    self.read.update(int(number) for number in part.split(":")[1].split(","))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._listener.join(5)

    def end(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._listener.join(5)


class Sender(threading.Thread):
    """kafka-python's producer, and its acknowledgements."""

    def __init__(self, address: str, records: int) -> None:
        super().__init__(daemon=True)
        self.records = records
        self.values: dict[int, bytes] = {}
        self.acknowledged: set[int] = set()
        self.refused: list[str] = []
        self.sent = 0
        self.seconds = 0.0
        self._producer = KafkaProducer(
            bootstrap_servers=address,
            acks="all",
            enable_idempotence=True,
            linger_ms=5,
            compression_type="lz4",
            retry_backoff_ms=50,
        )

    def run(self) -> None:
        begun = time.monotonic()
        lines = text_lines()
        for number in range(self.records):
            self.values[number] = value = next(lines)
            future = self._producer.send(TOPIC, value, key=b"%d" % number)
            future.add_callback(lambda _, number=number: self.acknowledged.add(number))
            future.add_errback(lambda error, number=number: self.refused.append(f"{number}: {error}"))
            self.sent += 1
        self._producer.flush(PATIENCE_S)
        self.seconds = time.monotonic() - begun
        self._producer.close(timeout=5)


def read_all(address: str) -> Iterator[tuple[tuple[int, int], bytes, bytes]]:
    """Yields ((partition, offset), key, value) of the whole topic."""
    settings = {"bootstrap.servers": address, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    ended: set[int] = set()
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(ended) < PARTITIONS:
            if time.monotonic() > deadline:
                raise Amiss("the topic could not be read to its end")
            for message in consumer.consume(5000, 0.1):
                if message.error() is None:
                    yield (message.partition(), message.offset()), message.key(), message.value()
                else:
                    ended.add(message.partition())
    finally:
        consumer.close()
