"""The topics `_treecast.*` for processes beside a daemon: made, written and read by its Kafka face.

Calls block, for seconds at most: call them in a thread. Each raises NotReached with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, TopicAlreadyExistsError
from kafka.structs import TopicPartition
from msgspec import Struct

from .quiet import quiet
from .telemetry import PARTITIONS, SETTINGS

SECONDS: Final = 15.0
_POLL_MS: Final = 500
_CLIENT: Final = "kafka"  # the name of its loggers


class NotReached(Exception):
    """The daemon's Kafka face did not do what was asked."""


class Found(Struct, frozen=True):
    """A record. `value` None: a tombstone."""

    offset: int
    key: bytes | None
    value: bytes | None


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Turns the client's errors into NotReached."""
    try:
        with quiet(_CLIENT):
            yield
    except (KafkaError, OSError) as error:
        raise NotReached(f"{address}: {str(error) or type(error).__name__}") from error


class OwnTopics:
    """The topics at the Kafka face at `address`. Connections are opened when they are needed."""

    def __init__(self, address: str, seconds: float = SECONDS) -> None:
        self.address = address
        self._ms = int(seconds * 1000)
        self._producer: Any = None
        self._consumer: Any = None
        self._lock = Lock()  # the thread of a call that was cancelled goes on

    def ensure(self, names: Iterable[str]) -> None:
        """Makes those topics that do not exist."""
        with self._lock, _told(self.address):
            admin = KafkaAdminClient(
                bootstrap_servers=self.address, request_timeout_ms=self._ms, bootstrap_timeout_ms=self._ms
            )
            try:
                present = set(admin.list_topics())
                for name in set(names) - present:
                    asked = {"num_partitions": PARTITIONS[name], "configs": dict(SETTINGS[name])}
                    try:
                        admin.create_topics({name: asked}, timeout_ms=self._ms, wait_for_metadata=True)
                    except TopicAlreadyExistsError:
                        pass  # another process was faster
            finally:
                admin.close()

    def put(self, topic: str, key: str, value: bytes | None, partition: int = 0) -> int:
        """Writes a record, and returns its offset once it is stored."""
        with self._lock, _told(self.address):
            if self._producer is None:
                self._producer = KafkaProducer(
                    bootstrap_servers=self.address,
                    acks="all",
                    max_block_ms=self._ms,
                    request_timeout_ms=self._ms,
                    bootstrap_timeout_ms=self._ms,
                )
            sent = self._producer.send(topic, key=key.encode(), value=value, partition=partition)
            return int(sent.get(timeout=self._ms / 1000).offset)

    def after(self, topic: str, offset: int) -> list[Found]:
        """Returns the committed records of partition 0 from `offset` on, up to its present end."""
        with self._lock, _told(self.address):
            consumer = self._reader(topic)
            place = TopicPartition(topic, 0)
            start = max(offset, consumer.beginning_offsets([place])[place])
            end = consumer.end_offsets([place])[place]
            consumer.seek(place, start)
            found: list[Found] = []
            while consumer.position(place) < end:
                polled = consumer.poll(timeout_ms=_POLL_MS).get(place, [])
                found += [Found(one.offset, one.key, one.value) for one in polled]
                if not polled and consumer.position(place) < end:
                    break  # an open transaction: what follows it is read next time
            return found

    def _reader(self, topic: str) -> Any:
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                bootstrap_servers=self.address,
                isolation_level="read_committed",
                enable_auto_commit=False,
                bootstrap_timeout_ms=self._ms,
            )
        place = TopicPartition(topic, 0)
        if self._consumer.assignment() != {place}:
            self._consumer.assign([place])
        return self._consumer

    def close(self) -> None:
        """Closes connections; later calls open them again."""
        with quiet(_CLIENT):
            for client in (self._producer, self._consumer):
                if client is not None:
                    client.close()
        self._producer = self._consumer = None
