"""Restarts from checkpoints that retention and compaction have overtaken; `reads.py` runs them itself.

Three topics of one partition get ten batches of ten records, one segment each. A query has read the first
batch. Then segments are deleted: in one topic by size, in one by time; the third is compacted. The daemon
must check often for segments to delete.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from writes import error_of

BATCHES, BATCH = 10, 10  # batches, and records of each
OLD = 5  # batches that are an hour old, for retention by time
HOUR_MS = 3_600_000
KEYS = 5
SEGMENT = {"segment.bytes": "1500", "retention.ms": "-1"}  # one batch, not two
CUTS = {
    "size": {"retention.bytes": "4500"},
    "time": {"retention.ms": str(HOUR_MS // 2)},
    "keys": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"},
}
PATIENCE_S = 120.0
NOW = {"availableNow": True}


class Cuts:
    """A test checks the result of each method."""

    def __init__(
        self,
        address: str,
        folder: str,
        stream: Callable[..., object],
        rows: Callable[[str], list[tuple[str, int]]],
    ) -> None:
        """`stream(name, trigger, **options)` runs a query into a table, `rows(name)`: (topic, offset)."""
        self._address, self._stream, self._rows = address, stream, rows
        run = Path(folder).name  # a repeated run has its own topics
        self._topics = {name: f"cut-{name}-{run}" for name in CUTS}
        self._admin = AdminClient({"bootstrap.servers": self._address})
        made = [NewTopic(topic, 1, 1, config=SEGMENT) for topic in self._topics.values()]
        for one in self._admin.create_topics(made).values():
            one.result(60)

    def cut(self) -> dict[str, Any]:
        everything = {"subscribe": ",".join(self._topics.values())}
        keys = {"subscribe": self._topics["keys"], "maxOffsetsPerTrigger": "31"}  # batches end inside the gap
        self._put(0)
        self._stream("cut", NOW, **everything)
        self._stream("cut-keys", NOW, **keys)
        for batch in range(1, BATCHES):
            self._put(batch)
        for name in CUTS:
            self._set(name)
        starts = {name: self._start_after(name, BATCH) for name in ("size", "time")}
        left = self._compacted()
        read = {name: len(self._rows(name)) for name in ("cut", "cut-keys")}
        error = error_of(lambda: self._stream("cut", NOW, **everything))
        gaps = error_of(lambda: self._stream("cut-keys", NOW, **keys))
        self._stream("cut", NOW, failOnDataLoss="false", **everything)
        return {
            "starts": starts,
            "left": left,
            "read": read,
            "error": error,
            "gaps": gaps,
            "after": {name: self._new("cut", name) for name in CUTS},
            "after gaps": self._new("cut-keys", "keys"),
        }

    def _new(self, written: str, name: str) -> list[int]:
        """Returns the offsets of a topic that a query has written since the first batch."""
        rows = self._rows(written)
        return [offset for topic, offset in rows if topic == self._topics[name] and offset >= BATCH]

    def _put(self, batch: int) -> None:
        """Writes one batch into each topic.

        A flush would send what is there, and on a loaded machine that can be part of a batch.
        """
        whole = {"linger.ms": PATIENCE_S * 1000, "batch.num.messages": BATCH}
        producer = Producer({"bootstrap.servers": self._address} | whole)
        now = int(time.time() * 1000)
        for name, topic in self._topics.items():
            at = now - HOUR_MS if name == "time" and batch < OLD else now
            for n in range(BATCH):
                key = b"k%d" % (n % KEYS)
                producer.produce(topic, b"%d" % n * 100, key, partition=0, timestamp=at)
        _until(
            lambda: True if producer.poll(0.1) >= 0 and not len(producer) else None, "batches are not sent"
        )

    def _set(self, name: str) -> None:
        resource = ConfigResource(ResourceType.TOPIC, self._topics[name])
        for key, value in CUTS[name].items():
            entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            resource.add_incremental_config(entry)
        self._admin.incremental_alter_configs([resource])[resource].result(60)

    def _start_after(self, name: str, offset: int) -> int:
        """Waits until the log starts beyond `offset`, and returns its start."""
        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "looks"})
        part = TopicPartition(self._topics[name], 0)
        try:
            return _until(lambda: low if (low := consumer.get_watermark_offsets(part)[0]) > offset else None)
        finally:
            consumer.close()

    def _compacted(self) -> list[int]:
        """Returns the offsets that remain once compaction has processed all segments but the last."""
        kept = BATCH * (BATCHES - 1) - KEYS
        return _until(lambda: left if (left := self._offsets("keys"))[0] >= kept else None)

    def _offsets(self, name: str) -> list[int]:
        """Returns all offsets that a consumer gets."""
        settings = {"bootstrap.servers": self._address, "group.id": "looks"}
        consumer = Consumer(settings | {"enable.auto.commit": False})
        found: list[int] = []
        try:
            consumer.assign([TopicPartition(self._topics[name], 0, 0)])
            while not found or found[-1] < BATCH * BATCHES - 1:
                for message in consumer.consume(100, 1.0):
                    assert message.error() is None, message.error()
                    found.append(message.offset())
        finally:
            consumer.close()
        return found


def _until(look: Callable[[], Any], late: str = "retention or compaction has not finished") -> Any:
    """Repeats `look` until it returns a result, and returns that; raises TimeoutError that says `late`."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(late)
        time.sleep(0.1)
    return found
