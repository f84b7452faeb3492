"""The writer of the run's input, and the readers of its input and output."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

INPUT, OUTPUT = "in", "out"  # later outputs are `out-1` and so on
PARTITIONS = {INPUT: 3, OUTPUT: 2}
RATE = 100  # records a second
WRITE_SECONDS = 600
READ_SECONDS = 2.0  # maximum duration of one look at a topic

Take = Callable[[int, int, bytes], None]


def make_topic(address: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, _partitions(topic), 1)])[topic].result(60)


def make_topic_anew(address: str, topic: str) -> None:
    """Deletes the topic and creates another of the same name."""
    admin = AdminClient({"bootstrap.servers": address})
    admin.delete_topics([topic])[topic].result(60)
    make_topic(address, topic)


def _partitions(topic: str) -> int:
    return PARTITIONS[topic.split("-")[0]]


class Feeder(threading.Thread):
    """Writes numbers into the input, idempotently, until it is ended, and reads the input back."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._producer = self._connected()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._number = 0
        self.fed = 0  # in the current topic; while paused, all of them are stored

    def _connected(self) -> Producer:
        return Producer(
            {"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )

    def run(self) -> None:
        while not self._ended.wait(0.05):
            with self._lock:
                self._feed(RATE // 20)

    def _feed(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(INPUT, b"%d" % self._number, b"k%d" % (self._number % 50))
            self._number += 1
        self.fed += count
        self._producer.poll(0)

    def pause(self) -> None:
        """Returns when everything is written."""
        self._lock.acquire()
        self._flush()

    def go_on(self) -> None:
        self._lock.release()

    def fed_surely(self) -> int:
        """Returns the number of records that are in the current topic or will be."""
        with self._lock:
            return self.fed

    def begin_anew(self, count: int) -> None:
        """While paused: replaces the topic by another one that has `count` records at once."""
        self._producer, self.fed = self._connected(), 0
        self._feed(count)
        self._flush()

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._flush()

    def _flush(self) -> None:
        if self._producer.flush(WRITE_SECONDS):
            raise RuntimeError("the input could not be written")


class Reader:
    """Reads all committed records of a topic; each look continues after the last one."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._next = dict.fromkeys(range(_partitions(topic)), 0)
        self._consumer = self._begun()

    def _begun(self, **more: object) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **more,
            }
        )
        consumer.assign([TopicPartition(self._topic, *place) for place in self._next.items()])
        return consumer

    def read(self, take: Take) -> int:
        """Passes (partition, offset, value) of new records to `take` for a while; returns their number."""
        count, deadline = 0, time.monotonic() + READ_SECONDS
        while time.monotonic() < deadline and (message := self._consumer.poll(0.3)):
            count += self._taken(message, take)
        return count

    def _taken(self, message: Message, take: Take) -> bool:
        if message.error() is not None:
            return False
        take(message.partition(), message.offset(), message.value())
        self._next[message.partition()] = message.offset() + 1
        return True

    def read_all(self, take: Take) -> None:
        """Reads to the current end, however long the daemon takes to answer."""
        self._consumer.close()
        self._consumer = consumer = self._begun(**{"enable.partition.eof": True})
        open_, deadline = set(self._next), time.monotonic() + WRITE_SECONDS
        while open_:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the end of {self._topic} was not reached")
            message = consumer.poll(0.3)
            if message is None:
                continue
            if not self._taken(message, take) and message.error().code() == KafkaError._PARTITION_EOF:
                open_.discard(message.partition())

    def held_up(self) -> bool:
        """Returns whether an open transaction prevents reading some records."""
        ends = []
        for isolation in ("read_committed", "read_uncommitted"):
            consumer = self._begun(**{"isolation.level": isolation})
            places = [TopicPartition(self._topic, number) for number in self._next]
            ends.append([consumer.get_watermark_offsets(place, 60, cached=False)[1] for place in places])
            consumer.close()
        return ends[0] != ends[1]

    def close(self) -> None:
        self._consumer.close()
