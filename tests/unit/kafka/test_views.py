"""Views: read-only topics with the base topic's offsets, made by a setting of the base topic."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.kafka.conftest import NODE_ID, NOW_MS
from tests.unit.kafka.test_fetch_filter import answered, batches, fetch, fill, prices
from tests.unit.kafka.test_rights import close, log_in
from tests.unit.refusals import refusal

from treecast.middleware.broker import (
    Broker,
    BrokerSettings,
    ConfigChange,
    ConfigOperation,
    NewTopic,
    Topic,
    view_of,
)
from treecast.middleware.broker.access import Operation, Pattern, Permission, ResourceKind, Rule
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.errors import Fault
from treecast.middleware.model.identity import Host
from treecast.shims.kafka import errors
from treecast.shims.kafka.server import KafkaFace

HIGH = "topic.view.high"
TOPIC, SET, DELETE = 2, ConfigOperation.SET, ConfigOperation.DELETE
NO_ID = "00000000-0000-0000-0000-000000000000"


async def make(broker: Broker, name: str = "high", text: str = "price > 5", topic: str = "topic") -> Topic:
    change = ConfigChange(f"treecast.view.{name}", SET, text)
    return await broker.cluster.definitions.alter_topic(topic, [change])


async def drop(broker: Broker, name: str = "high") -> Topic:
    change = ConfigChange(f"treecast.view.{name}", DELETE, None)
    return await broker.cluster.definitions.alter_topic("topic", [change])


async def offset_of(client: Any, topic: str, timestamp: int) -> int:
    partitions = [{"partition_index": 0, "timestamp": timestamp}]
    topics = [{"name": topic, "partitions": partitions}]
    answer = await client.call("ListOffsets", 5, replica_id=-1, isolation_level=0, topics=topics)
    return answer.topics[0].partitions[0].offset


async def commit(client: Any, offset: int, topic: str = HIGH) -> int:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    topics = [{"name": topic, "partitions": [row]}]
    answer = await client.call(
        "OffsetCommit", 2, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    return answer.topics[0].partitions[0].error_code


async def committed(client: Any) -> int:
    topics = [{"name": HIGH, "partition_indexes": [0]}]
    answer = await client.call("OffsetFetch", 2, group_id="g", topics=topics)
    return answer.topics[0].partitions[0].committed_offset


async def test_a_view_shows_what_passes_at_the_topics_offsets(client: Any, broker: Broker) -> None:
    await make(broker)
    fill(broker, prices(1, 9, 2, 8), prices(1, 2), prices(9, 9))
    fetch(client, None, topic=HIGH)
    row = await answered(client)
    assert (row.error_code, row.high_watermark) == (0, 8)
    assert batches(bytes(row.records)) == [(0, 3, [1, 3]), (4, 5, []), (6, 7, [6, 7])]
    assert [await offset_of(client, HIGH, time) for time in (-2, -1)] == [0, 8]


async def test_a_filter_of_the_reader_is_applied_to_what_the_view_shows(client: Any, broker: Broker) -> None:
    await make(broker)
    fill(broker, prices(1, 9, 7))
    fetch(client, "price < 8", topic=HIGH)
    assert batches(bytes((await answered(client)).records)) == [(0, 2, [2])]


async def test_a_reader_at_the_end_waits_for_the_topic(client: Any, broker: Broker, face: KafkaFace) -> None:
    await make(broker)
    fetch(client, None, topic=HIGH, max_wait_ms=60_000)
    await client.nothing()
    fill(broker, prices(1, 9))
    assert batches(bytes((await answered(client)).records)) == [(0, 1, [1])]
    assert face.counters.filtered_records == 1


async def test_clients_see_a_topic_by_name_and_id(client: Any, broker: Broker) -> None:
    await make(broker)
    asked = [{"name": HIGH, "topic_id": NO_ID}]
    (row,) = (await client.call("Metadata", 12, topics=asked)).topics
    assert (row.error_code, len(row.partitions), row.is_internal) == (0, 2, False)
    by_id = [{"name": None, "topic_id": row.topic_id}]
    assert (await client.call("Metadata", 12, topics=by_id)).topics[0].name == HIGH
    every = {topic.name for topic in (await client.call("Metadata", 12, topics=None)).topics}
    assert {"topic", HIGH} <= every
    await broker.cluster.definitions.create_partitions("topic", 5)
    assert len((await client.call("Metadata", 12, topics=asked)).topics[0].partitions) == 5


async def test_a_changed_filter_makes_another_topic_id(broker: Broker) -> None:
    await make(broker)
    topics = broker.cluster.definitions.topics()
    first = view_of(topics, HIGH)
    await make(broker, text="price > 6")
    second = view_of(topics, HIGH)
    assert first is not None
    assert second is not None
    assert first.topic_id != second.topic_id


async def test_it_cannot_be_written_or_changed(client: Any, broker: Broker) -> None:
    await make(broker)
    fill(broker, prices(9))
    data = [{"name": HIGH, "partition_data": [{"index": 0, "records": prices(9)}]}]
    produced = await client.call(
        "Produce", 9, transactional_id=None, acks=-1, timeout_ms=100, topic_data=data
    )
    assert produced.responses[0].partition_responses[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    gone = await client.call("DeleteTopics", 5, topic_names=[HIGH], timeout_ms=100)
    assert gone.responses[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    grown = [{"name": HIGH, "count": 9, "assignments": None}]
    answer = await client.call("CreatePartitions", 2, topics=grown, timeout_ms=100, validate_only=False)
    assert answer.results[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "5"}]
    resources = [{"resource_type": TOPIC, "resource_name": HIGH, "configs": configs}]
    altered = await client.call("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
    assert altered.responses[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    cut = [{"name": HIGH, "partitions": [{"partition_index": 0, "offset": 1}]}]
    deleted = await client.call("DeleteRecords", 2, topics=cut, timeout_ms=100)
    assert deleted.topics[0].partitions[0].error_code == errors.INVALID_TOPIC_EXCEPTION
    assert [await offset_of(client, "topic", time) for time in (-2, -1)] == [0, 1]


async def test_no_transaction_takes_it(client: Any, broker: Broker) -> None:
    await make(broker)
    init = await client.call("InitProducerId", 4, transactional_id="tx", transaction_timeout_ms=60_000)
    answer = await client.call(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=init.producer_id,
        v3_and_below_producer_epoch=init.producer_epoch,
        v3_and_below_topics=[{"name": HIGH, "partitions": [0]}],
    )
    ((row,),) = [topic.results_by_partition for topic in answer.results_by_topic_v3_and_below]
    assert row.partition_error_code == errors.INVALID_TOPIC_EXCEPTION


async def test_kafkas_own_configuration_calls_make_and_show_views(client: Any, broker: Broker) -> None:
    async def alter(key: str, value: str) -> int:
        configs = [{"name": key, "config_operation": 0, "value": value}]
        resources = [{"resource_type": TOPIC, "resource_name": "topic", "configs": configs}]
        answer = await client.call("IncrementalAlterConfigs", 1, resources=resources, validate_only=False)
        return answer.responses[0].error_code

    assert await alter("treecast.view.high", "price > 5") == 0
    assert await alter("treecast.view.bad", "price >") == errors.INVALID_CONFIG
    assert await alter("treecast.view.state", "avg(price) > 5") == errors.INVALID_CONFIG
    assert await alter("treecast.view.with.dots", "price > 5") == errors.INVALID_CONFIG
    assert await alter("treecast.view.empty", " ") == errors.INVALID_CONFIG
    assert await alter("treecast.view.long", "true or " * 200 + "true") == errors.INVALID_CONFIG
    shown = {}
    for name in ("topic", HIGH):
        resources = [{"resource_type": TOPIC, "resource_name": name, "configuration_keys": None}]
        (described,) = (await client.call("DescribeConfigs", 4, resources=resources)).results
        shown[name] = {row.name: row.value for row in described.configs}
    assert shown["topic"]["treecast.view.high"] == "price > 5"
    assert "treecast.view.high" not in shown[HIGH]
    assert shown[HIGH]["max.message.bytes"] == "5000"


async def test_a_name_is_a_topics_or_a_views(broker: Broker) -> None:
    definitions = broker.cluster.definitions
    await make(broker)
    with refusal(Fault.TOPIC_EXISTS):
        await definitions.create_topic(NewTopic(HIGH))
    await definitions.create_topic(NewTopic("topic.view.other"))
    with refusal(Fault.TOPIC_EXISTS):
        await make(broker, "other")
    with refusal(Fault.INVALID_TOPIC):
        await definitions.create_topic(NewTopic("t" * 240, config={"treecast.view.high": "true"}))
    with refusal(Fault.INVALID_CONFIG):
        await definitions.create_topic(NewTopic("bad", config={"treecast.view.high": "price >"}))


async def test_offsets_that_groups_commit_go_with_the_view(client: Any, broker: Broker) -> None:
    await make(broker)
    assert await commit(client, 3) == 0
    assert await committed(client) == 3
    await drop(broker)
    assert await commit(client, 3) == errors.UNKNOWN_TOPIC_OR_PARTITION
    await make(broker)
    assert await committed(client) == -1
    assert await commit(client, 4) == 0
    await broker.cluster.definitions.delete_topic("topic")
    await broker.cluster.definitions.create_topic(NewTopic("topic", 2, {"treecast.view.high": "true"}))
    assert await committed(client) == -1


async def test_a_deleted_view_is_an_unknown_topic(client: Any, broker: Broker) -> None:
    await make(broker)
    await drop(broker)
    fetch(client, None, topic=HIGH)
    assert (await answered(client)).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_right_on_the_view_is_none_on_the_topic(
    connect: Callable[[], Any], broker: Broker, face: KafkaFace
) -> None:
    await make(broker)
    fill(broker, prices(1, 9))
    read = Rule("bob", Permission.ALLOW, Operation.READ, ResourceKind.TOPIC, Pattern.LITERAL, HIGH)
    close(face, read)
    client = connect()
    assert await log_in(client) == 0
    fetch(client, None, topic=HIGH)
    row = await answered(client)
    assert (row.error_code, batches(bytes(row.records))) == (0, [(0, 1, [1])])
    fetch(client, None)
    assert (await answered(client)).error_code == errors.TOPIC_AUTHORIZATION_FAILED


async def test_a_group_of_type_consumer_gets_its_partitions(client: Any, broker: Broker) -> None:
    await make(broker)
    asked = {
        "group_id": "new",
        "member_id": "a" * 22,
        "member_epoch": 0,
        "rebalance_timeout_ms": 1000,
        "topic_partitions": [],
    }
    answer = await client.call("ConsumerGroupHeartbeat", 0, subscribed_topic_names=[HIGH], **asked)
    view = view_of(broker.cluster.definitions.topics(), HIGH)
    assert view is not None
    (row,) = answer.assignment.topic_partitions
    assert (row.topic_id, sorted(row.partitions)) == (view.topic_id, [0, 1])


async def test_views_outlast_a_restart(tmp_path: Path) -> None:
    def clock() -> float:
        return NOW_MS / 1000

    def opened() -> Broker:
        settings = BrokerSettings(tmp_path / "data")
        return Broker(settings, Host(NODE_ID, "host"), Counters(), clock=clock, rng=random.Random(1))

    broker = opened()
    await broker.start()
    await broker.cluster.definitions.create_topic(NewTopic("topic", 2))
    await make(broker)
    before = view_of(broker.cluster.definitions.topics(), HIGH)
    await broker.close()
    broker = opened()
    await broker.start()
    assert view_of(broker.cluster.definitions.topics(), HIGH) == before
    assert broker.cluster.partition(HIGH, 1).leader_epoch == broker.cluster.partition("topic", 1).leader_epoch
    with refusal(Fault.UNKNOWN_TOPIC):
        broker.cluster.partition(HIGH, 2)
    await broker.close()


@pytest.mark.parametrize("name", ["topic.view.", ".view.high", "topic.view.low", "other.view.high", "topic"])
async def test_other_names_are_no_views(broker: Broker, name: str) -> None:
    await make(broker)
    assert view_of(broker.cluster.definitions.topics(), name) is None
