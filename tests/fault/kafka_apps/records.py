"""Inputs and outputs: numbered records, and committed records read back."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

SAME_BROKERS = {"metadata.recovery.strategy": "none"}  # the daemon comes back at the same address
CALL_S = 60.0


def make_topics(address: str, partitions: dict[str, int]) -> None:
    """Makes topics; `partitions`: the number of partitions by topic."""
    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(name, count) for name, count in partitions.items()]).values():
        made.result(CALL_S)


class Feeder:
    """Produces ascending numbers from 0 as text, at a steady rate; `values`: the acknowledged ones."""

    def __init__(self, address: str, topic: str, partitions: int, rate: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 300_000,
                **SAME_BROKERS,
            }
        )
        self._topic, self._partitions, self._rate = topic, partitions, rate
        self.values: set[bytes] = set()
        self.problems: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number, begun = 0, time.monotonic()
        while not self._stop.wait(0.01):
            due = int((time.monotonic() - begun) * self._rate)
            while number < due:
                self._send(number)
                number += 1
            self._producer.poll(0)
        left = self._producer.flush(300)
        if left:
            self.problems.append(f"{left} records were never answered")

    def _send(self, number: int) -> None:
        try:
            partition = number % self._partitions
            self._producer.produce(
                self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
            )
        except BufferError:  # while the daemon is away; this number is skipped
            self._producer.poll(0.1)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.problems.append(str(error))
        else:
            self.values.add(message.value())

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(330)


class Reader:
    """Reads all committed records of a topic from its beginning; each look continues after the last one."""

    def __init__(self, address: str, topic: str) -> None:
        self._address, self._topic = address, topic
        self._positions: dict[int, int] = {}
        self.records: list[tuple[bytes | None, bytes]] = []  # (key, value)

    def look(self) -> int:
        """Reads to the end and returns the number of records so far. Unreachable partitions are left to the
        next look."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                **SAME_BROKERS,
            }
        )
        try:
            self._read(consumer)
        except KafkaException:
            pass  # the daemon or the topic does not exist yet
        finally:
            consumer.close()
        return len(self.records)

    def _read(self, consumer: Consumer) -> None:
        known = consumer.list_topics(self._topic, 5).topics[self._topic]
        if known.error is not None or not known.partitions:
            return
        places = [TopicPartition(self._topic, n, self._positions.get(n, 0)) for n in known.partitions]
        consumer.assign(places)
        ended: set[int] = set()
        silent = 0
        while len(ended) < len(places) and silent < 10:
            messages = consumer.consume(5_000, 0.3)
            silent = 0 if messages else silent + 1
            for message in messages:
                if message.error() is None:
                    self.records.append((message.key(), message.value()))
                    self._positions[message.partition()] = message.offset() + 1
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
