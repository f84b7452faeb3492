"""A broker in this process, as the admin interfaces see it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from treecast.middleware.broker import Broker, BrokerSettings, NewTopic
from treecast.middleware.daemon.settings import Settings
from treecast.middleware.daemon.status import Subject
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import Host
from treecast.middleware.model.records import Record
from treecast.middleware.wire.record_batch import build_batch
from treecast.shims.face import OpenListener


@pytest.fixture
async def subject(tmp_path: Path) -> AsyncIterator[Subject]:
    """A ready daemon's subject: topic `orders` with 2 partitions, 3 records in the first; no faces."""
    counters = Counters()
    broker = Broker(BrokerSettings(data=tmp_path / "data"), Host(1, "h1"), counters)
    await broker.start()
    settings = Settings(name="h1", data=str(tmp_path / "data"), topic_defaults={"retention.ms": "5000"})
    face = OpenListener("kafka", "127.0.0.1:9092", Path("/run/treecast/kafka.sock"))
    counters.face("kafka").connections_opened = 5
    counters.face("kafka").connections_closed = 3
    counters.face("kafka").requests.update(Produce=7, Fetch=8)
    await broker.cluster.definitions.create_topic(NewTopic("orders", 2, {"cleanup.policy": "delete"}))
    yield_subject = Subject(settings, counters, broker.cluster, {"kafka": face}, time.time(), ready=True)
    append(yield_subject, "orders", 0, 3)
    yield yield_subject
    await broker.close()


def append(subject: Subject, topic: str, partition: int, count: int) -> None:
    records = [Record(b"k", b"v", timestamp=1_700_000_000_000 + 1000 * n) for n in range(count)]
    batch = bytearray(build_batch(records))
    subject.cluster.partition(topic, partition).append(memoryview(batch), 1, None)


@pytest.fixture
def append_records(subject: Subject) -> Callable[[str, int, int], None]:
    """Returns `append_records(topic, partition, count)`: timestamps a second apart, from 1_700_000_000_000 ms
    on."""
    return lambda topic, partition, count: append(subject, topic, partition, count)
