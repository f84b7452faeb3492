"""Consumers that record what they read, and commit before they give up a partition."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

Account = Counter[tuple[int, int]]  # (partition, offset) -> number of reads


class Reader:
    """One consumer in its own thread. All readers of a test share `account`.

    It commits every `every` records and before a partition is revoked. A refused commit counts as a failure
    of the test, except for the periodic ones, which are repeated.
    """

    def __init__(
        self,
        address: str,
        group: str,
        topics: Sequence[str],
        account: Account,
        lock: threading.Lock,
        **how: object,
    ) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if how.get("group.protocol") != "consumer":
            settings |= {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
        self.faults: list[str] = []
        self.assigned: set[tuple[str, int]] = set()
        self.read = 0
        self.address = address
        self._account, self._lock = account, lock
        self._positions: dict[tuple[str, int], int] = {}
        self._stop = threading.Event()
        self._leave = True
        self._cooperative = (
            how.get("group.protocol") == "consumer"
            or how.get("partition.assignment.strategy") == "cooperative-sticky"
        )
        self._consumer = Consumer(settings | how)
        self._topics = list(topics)
        self._thread = threading.Thread(target=self._run, name=f"reader of {group}", daemon=True)
        self._thread.start()

    # --- the thread

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
            while not self._stop.is_set():
                message = self._consumer.poll(0.05)
                if message is not None:
                    self._take(message)
            self._consumer.close()
        except Exception as error:
            self.faults.append(f"{type(error).__name__}: {error}")

    def _take(self, message: Message) -> None:
        if message.error() is not None:
            if (
                message.error().code() > 0 or message.error().code() == KafkaError._FATAL
            ):  # the other errors are about connections
                self.faults.append(str(message.error()))
            return
        where = message.partition(), message.offset()
        with self._lock:
            self._account[where] += 1
        self.read += 1
        self._positions[message.topic(), message.partition()] = message.offset() + 1
        if self.read % 50 == 0:
            self._commit(self._positions, must=False)

    def _commit(self, positions: Mapping[tuple[str, int], int], *, must: bool) -> None:
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in positions.items()]
        if not offsets:
            return
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            if must:
                self.faults.append(f"commit before revocation: {error}")

    def _on_assign(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.assigned |= {(one.topic, one.partition) for one in partitions}
        if self._cooperative:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)

    def _on_revoke(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        gone = {(one.topic, one.partition) for one in partitions}
        self._commit({place: at for place, at in self._positions.items() if place in gone}, must=True)
        self._forget(consumer, partitions)

    def _on_lost(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.faults.append(f"lost {[(one.topic, one.partition) for one in partitions]}")
        self._forget(consumer, partitions)

    def _forget(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        gone = {(one.topic, one.partition) for one in partitions}
        self.assigned -= gone
        self._positions = {place: at for place, at in self._positions.items() if place not in gone}
        if self._cooperative:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()

    # --- calls of its owner

    def stop(self) -> None:
        """Leaves the group."""
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive(), "the consumer does not close"


class Source:
    """Produces numbered records to all partitions of a topic until it is stopped."""

    def __init__(self, address: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 5, "enable.idempotence": True})
        self._topic, self._partitions = topic, partitions
        self._stop = threading.Event()
        self.sent: dict[tuple[int, int], bytes] = {}
        self.faults: list[str] = []
        self._thread = threading.Thread(target=self._run, name="source", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(0.002):
            partition = number % self._partitions
            self._producer.produce(
                self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered
            )
            self._producer.poll(0)
            number += 1
        self._producer.flush(30)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.faults.append(str(error))
        else:
            self.sent[message.partition(), message.offset()] = message.value()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(40)
