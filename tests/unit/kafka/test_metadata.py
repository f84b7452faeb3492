"""Metadata, DescribeCluster, FindCoordinator: a single broker and its topics."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

from treecast.middleware.broker import Broker, NewTopic
from treecast.shims.kafka import errors
from treecast.shims.kafka.handlers.base import (
    AT_MOST,
    BURST,
    RATE,
    AutoCreations,
)

ZERO = uuid.UUID(int=0)
MakeBatch = Callable[..., bytes]


def named(*names: str) -> list[dict[str, Any]]:
    return [{"name": name, "topic_id": ZERO} for name in names]


# --- Metadata, DescribeCluster, FindCoordinator


async def test_one_broker_at_the_address_that_was_reached(client: Any) -> None:
    for version in range(13):
        answer = await client.call("Metadata", version, topics=named("topic"))
        (broker,) = answer.brokers
        assert (broker.node_id, broker.host, broker.port) == (7, "10.9.8.7", 9092)
        (topic,) = answer.topics
        assert [p.leader_id for p in topic.partitions] == [7, 7]
        assert [p.isr_nodes for p in topic.partitions] == [[7], [7]]
    assert topic.topic_id not in (None, ZERO)
    assert [p.leader_epoch for p in topic.partitions] == [0, 0]


async def test_all_topics_or_none(client: Any) -> None:
    every = ["topic", "__consumer_offsets", "__transaction_state"]
    assert [t.name for t in (await client.call("Metadata", 0, topics=[])).topics] == every
    assert (await client.call("Metadata", 1, topics=[])).topics == []
    assert [t.name for t in (await client.call("Metadata", 1, topics=None)).topics] == every


async def test_topics_come_by_being_asked_for(client: Any, broker: Broker) -> None:
    off = await client.call("Metadata", 4, topics=named("new"), allow_auto_topic_creation=False)
    assert off.topics[0].error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    on = await client.call("Metadata", 4, topics=named("new", "new"), allow_auto_topic_creation=True)
    assert [(t.error_code, len(t.partitions)) for t in on.topics] == [(0, 1)]
    assert (await client.call("Metadata", 0, topics=named("other"))).topics[0].error_code == 0
    wrong = await client.call("Metadata", 4, topics=named("no spaces"), allow_auto_topic_creation=True)
    assert wrong.topics[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    assert set(broker.cluster.definitions.topics()) == {"topic", "new", "other"}


async def test_topics_by_id(client: Any, broker: Broker) -> None:
    topic_id = broker.cluster.definitions.topics()["topic"].topic_id
    asked = [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": uuid.UUID(int=5)}]
    found, missing = (await client.call("Metadata", 12, topics=asked)).topics
    assert (found.name, found.error_code) == ("topic", 0)
    assert (missing.name, missing.error_code, missing.topic_id) == (
        None,
        errors.UNKNOWN_TOPIC_ID,
        uuid.UUID(int=5),
    )


async def test_operations_are_told_where_asked_for(client: Any) -> None:
    fields = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    answer = await client.call("Metadata", 8, topics=named("topic"), **fields)
    assert answer.topics[0].authorized_operations == {3, 4, 5, 6, 7, 8, 10, 11}
    assert answer.authorized_operations == {5, 7, 8, 9, 10, 11, 12}
    silent = await client.call("Metadata", 8, topics=named("topic"))
    assert silent.topics[0].authorized_operations is None


async def test_the_cluster_is_the_answering_daemon(client: Any, broker: Broker) -> None:
    answer = await client.call(
        "DescribeCluster", 1, include_cluster_authorized_operations=True, endpoint_type=1
    )
    assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, broker.cluster.cluster_id, 7)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(7, "10.9.8.7", 9092)]
    controllers = await client.call("DescribeCluster", 1, endpoint_type=2)
    assert controllers.error_code == errors.UNSUPPORTED_ENDPOINT_TYPE


async def test_every_coordinator_is_here(client: Any) -> None:
    one = await client.call("FindCoordinator", 2, key="g", key_type=0)
    assert (one.error_code, one.node_id, one.host, one.port) == (0, 7, "10.9.8.7", 9092)
    many = await client.call("FindCoordinator", 4, coordinator_keys=["a", "b"], key_type=1)
    assert [(c.key, c.error_code, c.node_id) for c in many.coordinators] == [("a", 0, 7), ("b", 0, 7)]
    wrong = await client.call("FindCoordinator", 2, key="g", key_type=9)
    assert (wrong.error_code, wrong.node_id) == (errors.INVALID_REQUEST, -1)


# --- requests of many names


async def test_many_new_topics_come_a_few_at_a_time(client: Any, broker: Broker) -> None:
    names = named(*(f"new-{number}" for number in range(AT_MOST + 20)))
    first = await client.call("Metadata", 4, topics=names, allow_auto_topic_creation=True)
    assert [t.name for t in first.topics] == [one["name"] for one in names]
    codes = Counter(t.error_code for t in first.topics)
    assert codes == {0: AT_MOST, errors.LEADER_NOT_AVAILABLE: 20}
    assert len(broker.cluster.definitions.topics()) == 1 + AT_MOST
    again = await client.call("Metadata", 4, topics=names, allow_auto_topic_creation=True)
    assert {t.error_code for t in again.topics} == {0}


async def test_new_names_that_differ_in_dots_collide(client: Any, broker: Broker) -> None:
    found = await client.call("Metadata", 4, topics=named("a.b", "a_b"), allow_auto_topic_creation=True)
    assert [t.error_code for t in found.topics] == [0, errors.INVALID_TOPIC_EXCEPTION]
    assert set(broker.cluster.definitions.topics()) == {"topic", "a.b"}


def test_creations_of_all_clients_are_bounded_in_time() -> None:
    now = 100.0
    creations = AutoCreations(lambda: now)
    assert sum(creations.take(1000) for _ in range(50)) == BURST
    now += 1.0
    assert creations.take(1000) == RATE
    assert creations.take(1000) == 0
    now += 1000.0
    assert creations.take(3) == 3
    assert creations.take(1000) == AT_MOST


async def test_large_requests_and_answers_keep_their_place(client: Any, broker: Broker) -> None:
    names = named("topic", *(f"missing-{number:06d}" for number in range(6000)))
    client.send("ApiVersions", 0)
    client.send("Metadata", 4, topics=names, allow_auto_topic_creation=False)
    client.send("ApiVersions", 0)
    await client.receive("ApiVersions", 0)
    found = (await client.receive("Metadata", 4)).topics
    assert [t.name for t in found] == [one["name"] for one in names]
    assert [t.error_code for t in found[:2]] == [0, errors.UNKNOWN_TOPIC_OR_PARTITION]
    await client.receive("ApiVersions", 0)


async def test_a_small_request_may_have_a_large_answer(client: Any, broker: Broker) -> None:
    await broker.cluster.definitions.create_topic(NewTopic("wide", 3000))
    client.send("Metadata", 4, topics=named("wide"), allow_auto_topic_creation=False)
    client.send("ApiVersions", 0)
    (topic,) = (await client.receive("Metadata", 4)).topics
    assert len(topic.partitions) == 3000
    await client.receive("ApiVersions", 0)


async def test_a_large_malformed_request_ends_its_connection(client: Any) -> None:
    frame = bytearray(client.request("Metadata", 4, topics=named(*("a" * 200 for _ in range(400)))))
    frame[-2:] = b"\xff\xff"
    frame[22:26] = (1_000_000).to_bytes(4, "big")  # the number of topics
    client.feed(bytes(frame))
    for _ in range(200):
        if client.transport.closed:
            break
        await asyncio.sleep(0.01)
    assert client.transport.closed
