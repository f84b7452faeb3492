"""The same load by a real client: an idempotent librdkafka producer, and a group of two of its consumers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

from .oracle import Oracle
from .values import make_value
from .workers import PARTITIONS, Gate

QUIET = {"log_level": 0, "error_cb": lambda error: None}


class LibrdkafkaProducer(threading.Thread):
    """Survives all kills and retries by itself; callbacks are served only while the gate is open."""

    topic = "librdkafka"

    def __init__(self, address: str, oracle: Oracle, gate: Gate, seed: int) -> None:
        super().__init__(name="librdkafka", daemon=True)
        self.oracle = oracle
        self.gate = gate
        self.rng = random.Random(f"{seed}-librdkafka")
        settings = {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 2,
            "batch.num.messages": 50,
            "message.timeout.ms": 300_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "log_level": 0,
            "error_cb": self._on_error,
        }
        self.producer = Producer(settings)
        self.streams = [
            oracle.stream(f"librdkafka.{number}", (self.topic, number), gapless=True)
            for number in range(PARTITIONS)
        ]

    def _on_error(self, error: Any) -> None:
        if error.fatal():
            self.oracle.problem(f"librdkafka: fatal: {error}")

    def _delivered(self, error: Any, message: Any) -> None:
        stream = self.streams[message.partition()]
        if error is not None:
            self.oracle.problem(f"librdkafka: {error}")
            return
        sequence = int(message.value().split(b"|", 2)[1])
        self.oracle.ack(stream, sequence, 1, message.offset())

    def run(self) -> None:
        opening = 0
        while opening := self.gate.enter(opening):
            try:
                while self.gate.is_open:
                    self._burst()
            except Exception as error:
                self.oracle.problem(f"librdkafka: {type(error).__name__}: {error}")
            finally:
                self.gate.leave()

    def _burst(self) -> None:
        if len(self.producer) > 2000:
            self.producer.poll(0.01)
            return
        for _ in range(20):
            stream = self.rng.choice(self.streams)
            value = make_value(stream.name, stream.sent, self.rng)
            stream.sent += 1
            self.producer.produce(self.topic, value, partition=stream.place[1], on_delivery=self._delivered)
        self.producer.poll(0.01)

    def finish(self, timeout: float) -> int:
        """Waits until every record is answered; returns the number of records left."""
        return int(self.producer.flush(timeout))


@dataclass
class GroupLedger:
    """The offsets that the members committed and the records that they read, by partition."""

    acked: dict[int, int] = field(default_factory=dict)
    attempted: dict[int, int] = field(default_factory=dict)
    read: dict[int, set[int]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class GroupMember(threading.Thread):
    """A consumer that commits what it has read. It leaves and rejoins the group from time to time."""

    group = "group-members"
    topic = "plain"

    def __init__(self, address: str, number: int, ledger: GroupLedger, seed: int) -> None:
        super().__init__(name=f"member-{number}", daemon=True)
        self._ledger = ledger
        self._rng = random.Random(f"{seed}-{self.name}")
        self._ended = threading.Event()
        self._settings = {
            "bootstrap.servers": address,
            "group.id": self.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 300,
            "socket.timeout.ms": 10_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
            **QUIET,
        }

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            consumer = Consumer(self._settings)
            consumer.subscribe([self.topic])
            leaves_at = time.monotonic() + self._rng.uniform(5, 30)
            while not self._ended.is_set() and time.monotonic() < leaves_at:
                self._turn(consumer)
            consumer.close()

    def _turn(self, consumer: Consumer) -> None:
        reached: dict[int, Any] = {}
        for message in consumer.consume(500, 0.1):
            if message.error() is None:
                with self._ledger.lock:
                    self._ledger.read.setdefault(message.partition(), set()).add(message.offset())
                reached[message.partition()] = message
        for partition, message in reached.items():
            self._commit(consumer, partition, message)

    def _commit(self, consumer: Consumer, partition: int, message: Any) -> None:
        wanted = message.offset() + 1
        with self._ledger.lock:
            attempted = self._ledger.attempted
            attempted[partition] = max(attempted.get(partition, -1), wanted)
        try:
            [answer] = consumer.commit(message=message, asynchronous=False)
        except KafkaException:
            return  # the broker is away, or another member has the partition: the commit may have failed
        if answer.error is None:
            with self._ledger.lock:
                acked = self._ledger.acked
                acked[partition] = max(acked.get(partition, -1), wanted)


def read_partitions(
    address: str, starts: dict[tuple[str, int], int], isolation: str, show: Callable[..., None]
) -> dict[tuple[str, int], int]:
    """Calls show(place, offset, key, value) for each record from `starts` on; returns the end of each
    partition.

    The end is the high watermark, or the last stable offset for read_committed.
    """
    from confluent_kafka import TopicPartition

    settings = {
        "bootstrap.servers": address,
        "group.id": "reader",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "isolation.level": isolation,
        "check.crcs": True,
        "fetch.wait.max.ms": 10,
        **QUIET,
    }
    consumer = Consumer(settings)
    ends: dict[tuple[str, int], int] = {}
    deadline = time.monotonic() + 60
    try:
        consumer.assign([TopicPartition(topic, number, offset) for (topic, number), offset in starts.items()])
        while len(ends) < len(starts):
            if time.monotonic() > deadline:
                raise TimeoutError(f"no end of {sorted(set(starts) - set(ends))}")
            for message in consumer.consume(2000, 0.05):
                place = (message.topic(), message.partition())
                if message.error() is None:
                    show(place, message.offset(), message.key(), message.value())
                    # written after this partition's end was reached, while others were still being read
                    if place in ends:
                        ends[place] = message.offset() + 1
                elif message.error().code() == -191:  # _PARTITION_EOF
                    ends[place] = message.offset()
                else:
                    raise KafkaException(message.error())
    finally:
        consumer.close()
    return ends
