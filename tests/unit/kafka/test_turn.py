"""Requests of one turn of the loop: served as they are read, with one notification at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.broker import Broker, Isolation, NewTopic
from treecast.middleware.broker.partition import LocalPartition
from treecast.shims.kafka import session

Connect = Callable[[], Any]


def produce(records: bytes, *, topic: str = "topic", acks: int = 1) -> dict[str, Any]:
    part = {"index": 0, "records": records}
    topics = [{"name": topic, "partition_data": [part]}]
    return {"transactional_id": None, "acks": acks, "timeout_ms": 1000, "topic_data": topics}


def fetch(offset: int = 0) -> dict[str, Any]:
    part = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": offset, "log_start_offset": -1}
    part |= {"last_fetched_epoch": -1, "partition_max_bytes": 1 << 20}
    asked = {
        "replica_id": -1,
        "max_wait_ms": 30_000,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
    }
    asked |= {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": [], "rack_id": ""}
    return asked | {"topics": [{"topic": "topic", "partitions": [part]}]}


async def test_who_waits_is_answered_once_for_all_connections(
    connect: Connect, make_batch: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []
    read = LocalPartition.read

    def counting(self: LocalPartition, offset: int, size: int, isolation: Isolation, **asked: bool) -> Any:
        reads.append(offset)
        return read(self, offset, size, isolation, **asked)

    consumer, producers = connect(), [connect() for _ in range(3)]
    consumer.send("Fetch", 12, **fetch())
    await consumer.nothing()
    monkeypatch.setattr(LocalPartition, "read", counting)
    for producer in producers:
        producer.send("Produce", 9, **produce(make_batch(b"x")))
        assert producer.transport.sent  # at once
    assert not consumer.transport.sent
    answer = await consumer.receive("Fetch", 12)
    assert answer.responses[0].partitions[0].high_watermark == 3
    assert reads == [0]


@pytest.mark.parametrize("length", [1, 1000, 30_000])
async def test_a_client_of_small_requests_is_read_in_small_parts(length: int, client: Any) -> None:
    request = client.request("Metadata", 1, topics=[{"name": "t" * length}])
    assert len(client.connection.get_buffer(-1)) == session.SCRATCH_BYTES
    client.feed(request)
    share = max(session.SHARE * len(request), session.LEAST_SCRATCH)
    assert len(client.connection.get_buffer(-1)) == min(share, session.SCRATCH_BYTES)


async def test_many_small_requests_of_one_connection_leave_others_their_turn(connect: Connect) -> None:
    """Requests beyond the connection's share wait for the loop's next pass."""
    flood = connect()
    request = flood.request("Metadata", 1, topics=[])
    flood.feed(request * 100)
    assert flood.transport.reading
    await asyncio.sleep(0)
    flood.feed(request * 200)
    assert not flood.transport.reading
    for _ in range(3):
        await asyncio.sleep(0)
    assert flood.transport.reading


@pytest.fixture
async def large(broker: Broker) -> str:
    """A topic for batches that are served after others."""
    await broker.cluster.definitions.create_topic(
        NewTopic("topic-large", 1, {"max.message.bytes": "2000000"})
    )
    return "topic-large"


async def test_large_requests_are_served_after_small_ones_of_others(
    connect: Connect, make_batch: Callable[..., bytes], large: str
) -> None:
    """One at a time, each in the order of its connection."""
    heavy, other, light = connect(), connect(), connect()
    for client in (heavy, other):
        client.feed(
            client.request("Produce", 9, **produce(make_batch(bytes(300_000)), topic=large))
            + client.request("Metadata", 1, topics=[])
        )
        assert not client.transport.sent
        assert not client.transport.reading
    light.send("Produce", 9, **produce(make_batch(b"x")))
    assert light.transport.sent
    for _ in range(10):
        await asyncio.sleep(0)
        if heavy.transport.sent:
            break
    assert heavy.transport.sent
    assert not other.transport.sent
    for client in (heavy, other):
        assert not (await client.receive("Produce", 9)).responses[0].partition_responses[0].error_code
        assert (await client.receive("Metadata", 1)).brokers
        assert client.transport.reading


async def test_a_large_request_of_a_client_that_left_is_served(
    connect: Connect, make_batch: Callable[..., bytes], large: str, broker: Broker
) -> None:
    client = connect()
    client.send("Produce", 9, **produce(make_batch(bytes(300_000)), topic=large, acks=0))
    client.transport.close()
    await asyncio.sleep(0)
    assert broker.cluster.partition(large, 0).log.end_offset == 1
    await asyncio.sleep(0.01)
    assert broker.cluster.partition(large, 0).log.end_offset == 1


async def test_a_large_request_is_served_before_the_face_closes(
    connect: Connect, make_batch: Callable[..., bytes], large: str
) -> None:
    client = connect()
    client.send("Produce", 9, **produce(make_batch(bytes(300_000)), topic=large))
    client.connection.finish()
    assert not (await client.receive("Produce", 9)).responses[0].partition_responses[0].error_code
    assert client.transport.is_closing()
