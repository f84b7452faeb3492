"""Records of other faces' messages: refused before they are spooled, or recorded."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.loops import holds

from treecast.middleware.broker import Broker, BrokerSettings, NewTopic
from treecast.middleware.broker.batch_sizes import stored_codec
from treecast.middleware.broker.bridge.recording import bound_of, refusal_of
from treecast.middleware.broker.values import Isolation, PartitionRead
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault
from treecast.middleware.model.identity import Host
from treecast.middleware.model.records import Compression, Record
from treecast.middleware.model.topic_config import TopicConfig
from treecast.middleware.wire.batch import check_batches
from treecast.middleware.wire.record_batch import build_batch, read_header, read_records

LIMIT = 1000


class World:
    """A host with one topic `t`."""

    def __init__(self, path: Path) -> None:
        self.counters = Counters()
        self.time = 1_700_000_000.0
        self.broker = Broker(BrokerSettings(path), Host(1, "h"), self.counters, clock=lambda: self.time)

    async def begin(self, **config: str) -> None:
        await self.broker.start()
        await self.broker.begin_events()
        await self.broker.pubsub.identify()
        given = {name.replace("_", "."): value for name, value in config.items()}
        await self.broker.cluster.definitions.create_topic(NewTopic("t", 1, given))

    def record(self, size: int, key: bytes | None = None) -> bool:
        return self.broker.pubsub.record("t", Record(key, bytes(size), (), int(self.time * 1000)))

    def recorded(self) -> list[Record]:
        found = self.broker.cluster.partition("t", 0).read(
            0, 1 << 20, Isolation.READ_UNCOMMITTED, at_least_one=True
        )
        assert isinstance(found, PartitionRead)
        data, at, records = b"".join(bytes(memoryview(one)) for one in found.chunks), 0, []
        while at < len(data):
            header = read_header(data, at)
            records += read_records(data, at, header)
            at += header.size
        return records


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.broker.close()


@given(
    st.integers(0, 1500),
    st.integers(500, 1500),
    st.integers(500, 1500),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
)
def test_refused_is_what_the_leader_would_refuse(
    size: int, message_bytes: int, segment_bytes: int, compact: bool, keyed: bool, compression: str
) -> None:
    given = {"max.message.bytes": str(message_bytes), "segment.bytes": str(segment_bytes)}
    given["compression.type"] = compression
    config = TopicConfig.of({**given, "cleanup.policy": "compact" if compact else "delete"})
    value = random.Random(size).randbytes(size)  # which no compression makes smaller
    record = Record(b"k" if keyed else None, value, (("h", b"v"),), 5)
    most = min(message_bytes, segment_bytes)
    batch = build_batch([record])
    stored = build_batch([record], compression=stored_codec(config) or Compression.NONE)
    taken = max(len(batch), len(stored)) <= most and (keyed or not compact)
    assert (refusal_of(config, record, bound_of(record)) is None) == taken
    if taken:
        check_batches(memoryview(batch), message_bytes)


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_a_turns_batch_is_not_too_large_in_the_topics_compression(
    world: World, compression: str
) -> None:
    """All of it was acknowledged, and a batch that is refused is dropped."""
    await world.begin(max_message_bytes=str(LIMIT), compression_type=compression)
    rng, count = random.Random(1), 200
    for _ in range(count):
        record = Record(None, rng.randbytes(rng.randrange(LIMIT // 9)), (), int(world.time * 1000))
        assert world.broker.pubsub.record("t", record)
    await holds(lambda: world.counters.bridge.recorded == count)
    assert world.counters.bridge.refused == {}


async def test_a_record_that_the_topic_refuses_is_refused_at_once(world: World) -> None:
    await world.begin(max_message_bytes=str(LIMIT))
    assert not world.record(LIMIT)
    assert world.record(LIMIT // 2)
    await holds(lambda: len(world.recorded()) == 1)
    assert world.counters.bridge.refused == {Fault.BATCH_TOO_LARGE.name: 1}


async def test_what_waited_for_longer_than_the_topic_allows_is_recorded_with_a_later_time(
    world: World,
) -> None:
    """It was acknowledged, and so must not be dropped."""
    await world.begin(message_timestamp_before_max_ms="60000")
    assert world.record(1)
    world.time += 3600
    world.broker.pubsub.hub.clock.wall = world.time
    await holds(lambda: len(world.recorded()) == 1)
    assert world.recorded()[0].timestamp == int(world.time * 1000)
    assert world.record(2)
    await holds(lambda: len(world.recorded()) == 2)
    assert world.counters.bridge.refused == {}
