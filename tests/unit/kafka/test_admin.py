"""Topics, configurations, log offsets and internal topics: the face's decisions on admin requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from treecast.middleware.broker import Broker, NewTopic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import WISHED_COPIES
from treecast.shims.kafka import errors
from treecast.shims.kafka.handlers.config_rows import broker_key

ZERO = uuid.UUID(int=0)
MakeBatch = Callable[..., bytes]

# --- topics


def new_topic(name: str, partitions: int = -1, replicas: int = -1, **more: Any) -> dict[str, Any]:
    row = {"name": name, "num_partitions": partitions, "replication_factor": replicas}
    return row | {"assignments": [], "configs": []} | more


def assignment(*replicas: list[int], first: int = 0) -> list[dict[str, Any]]:
    return [{"partition_index": first + n, "broker_ids": ids} for n, ids in enumerate(replicas)]


async def create(client: Any, *topics: dict[str, Any], **more: Any) -> dict[str, Any]:
    answer = await client.call("CreateTopics", 7, topics=list(topics), **more)
    return {topic.name: topic for topic in answer.topics}


async def test_topics_are_created(client: Any, broker: Broker) -> None:
    made = await create(
        client,
        new_topic("a", 3, 1, configs=[{"name": "cleanup.policy", "value": "compact"}]),
        new_topic("b"),
        new_topic("c", assignments=assignment([7], [7])),
    )
    assert {name: (t.error_code, t.num_partitions, t.replication_factor) for name, t in made.items()} == {
        "a": (0, 3, 1),
        "b": (0, 1, 1),
        "c": (0, 2, 1),
    }
    topics = broker.cluster.definitions.topics()
    assert made["a"].topic_id == topics["a"].topic_id
    configs = {row.name: (row.value, row.config_source) for row in made["a"].configs}
    assert configs["cleanup.policy"] == ("compact", 1)
    assert configs["retention.ms"] == ("1000000000000", 4)
    assert configs["segment.ms"] == ("604800000", 5)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic("topic", 1, 1), errors.TOPIC_ALREADY_EXISTS),
        (new_topic("no spaces", 1, 1), errors.INVALID_TOPIC_EXCEPTION),
        (new_topic("x", 0, 1), errors.INVALID_PARTITIONS),
        (new_topic("x", 1, 0), errors.INVALID_REPLICATION_FACTOR),
        (new_topic("x", 1, -2), errors.INVALID_REPLICATION_FACTOR),
        (new_topic("x", 2, 1, assignments=assignment([7], [7])), errors.INVALID_REQUEST),
        (new_topic("x", assignments=assignment([7, 8])), errors.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("x", assignments=assignment([8])), errors.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("x", assignments=assignment([7], first=1)), errors.INVALID_REPLICA_ASSIGNMENT),
        (new_topic("x", 1, 1, configs=[{"name": "no.such.key", "value": "1"}]), errors.INVALID_CONFIG),
        (new_topic("x", 1, 1, configs=[{"name": "retention.ms", "value": "soon"}]), errors.INVALID_CONFIG),
    ],
)
async def test_topics_that_are_refused(topic: dict[str, Any], code: int, client: Any, broker: Broker) -> None:
    (answer,) = (await create(client, topic)).values()
    assert answer.error_code == code
    assert answer.error_message
    assert set(broker.cluster.definitions.topics()) == {"topic"}


async def test_a_name_that_stands_twice(client: Any) -> None:
    made = await create(client, new_topic("x", 1, 1), new_topic("x", 2, 1), new_topic("y", 1, 1))
    assert {name: t.error_code for name, t in made.items()} == {"x": errors.INVALID_REQUEST, "y": 0}


async def test_validate_only_creates_nothing(client: Any, broker: Broker) -> None:
    made = await create(client, new_topic("x", 4, 1), validate_only=True)
    assert (made["x"].error_code, made["x"].num_partitions) == (0, 4)
    grown = {"topics": [{"name": "topic", "count": 5, "assignments": None}], "validate_only": True}
    assert (await client.call("CreatePartitions", 3, **grown)).results[0].error_code == 0
    assert {t.name: t.partitions for t in broker.cluster.definitions.topics().values()} == {"topic": 2}


async def test_topics_are_deleted_by_name_or_id(client: Any, broker: Broker) -> None:
    made = await create(client, new_topic("a"), new_topic("b"), new_topic("c"))
    answer = await client.call("DeleteTopics", 5, topic_names=["a", "none"], timeout_ms=1)
    assert [(r.name, r.error_code) for r in answer.responses] == [("a", 0), ("none", 3)]
    topics = [
        {"name": "b", "topic_id": ZERO},
        {"name": None, "topic_id": made["c"].topic_id},
        {"name": None, "topic_id": uuid.UUID(int=9)},
    ]
    answer = await client.call("DeleteTopics", 6, topics=topics, timeout_ms=1)
    assert [(r.name, r.error_code) for r in answer.responses] == [("b", 0), ("c", 0), (None, 100)]
    assert set(broker.cluster.definitions.topics()) == {"topic"}


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ({"name": "topic", "count": 4, "assignments": None}, 0),
        ({"name": "topic", "count": 3, "assignments": [{"broker_ids": [7]}]}, 0),
        (
            {"name": "topic", "count": 4, "assignments": [{"broker_ids": [7]}]},
            errors.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            {"name": "topic", "count": 3, "assignments": [{"broker_ids": [7, 8]}]},
            errors.INVALID_REPLICA_ASSIGNMENT,
        ),
        ({"name": "topic", "count": 2, "assignments": None}, errors.INVALID_PARTITIONS),
        ({"name": "none", "count": 2, "assignments": None}, errors.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
async def test_partitions_are_added(row: dict[str, Any], code: int, client: Any) -> None:
    (answer,) = (await client.call("CreatePartitions", 3, topics=[row])).results
    assert answer.error_code == code


# --- configurations


async def describe(client: Any, kind: int, name: str, keys: list[str] | None = None, **more: Any) -> Any:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return (await client.call("DescribeConfigs", 4, resources=[resource], **more)).results[0]


async def test_a_value_and_where_it_comes_from(client: Any) -> None:
    answer = await describe(
        client, 2, "topic", ["max.message.bytes"], include_synonyms=True, include_documentation=True
    )
    (row,) = answer.configs
    assert (row.name, row.value, row.config_source, row.config_type) == ("max.message.bytes", "5000", 1, 3)
    assert (row.read_only, row.is_sensitive) == (False, False)
    assert row.documentation
    assert [(s.name, s.value, s.source) for s in row.synonyms] == [
        ("max.message.bytes", "5000", 1),
        ("message.max.bytes", "1048588", 5),
    ]
    plain = await describe(client, 2, "topic", ["retention.ms"])
    assert (plain.configs[0].config_source, plain.configs[0].synonyms) == (4, [])
    assert plain.configs[0].documentation is None


async def test_what_cannot_be_described(client: Any) -> None:
    assert (await describe(client, 2, "none")).error_code == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert (await describe(client, 4, "8")).error_code == errors.INVALID_REQUEST
    assert (await describe(client, 16, "x")).error_code == errors.INVALID_REQUEST


async def test_the_broker_is_described_read_only(client: Any) -> None:
    answer = await describe(client, 4, "7")
    rows = {row.name: row for row in answer.configs}
    assert len(rows) == len(answer.configs)
    assert all(row.read_only for row in answer.configs)
    assert rows["advertised.listeners"].value == "PLAINTEXT://10.9.8.7:9092"
    assert rows["log.retention.ms"].value == "1000000000000"
    assert rows["broker.id"].value == "7"
    assert (await describe(client, 4, "")).configs == []


def test_synonyms_of_topic_keys() -> None:
    assert broker_key("retention.ms") == "log.retention.ms"
    assert broker_key("max.message.bytes") == "message.max.bytes"
    assert broker_key("treecast.replica") is None


async def alter(
    client: Any, api: str, configs: list[dict[str, Any]], kind: int = 2, name: str = "topic"
) -> int:
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    answer = await client.call(api, 0, resources=[resource], validate_only=False)
    return int(answer.responses[0].error_code)


def overrides(broker: Broker) -> dict[str, str]:
    return dict(broker.cluster.definitions.topics()["topic"].config.overrides)


async def test_single_keys_are_altered(client: Any, broker: Broker) -> None:
    steps = [("cleanup.policy", 2, "compact"), ("max.message.bytes", 1, None), ("retention.ms", 0, "5")]
    rows = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in steps]
    assert await alter(client, "IncrementalAlterConfigs", rows) == 0
    changed = overrides(broker)
    assert set(changed.pop("cleanup.policy").split(",")) == {"delete", "compact"}
    assert changed == {"retention.ms": "5"}


async def test_all_keys_are_replaced(client: Any, broker: Broker) -> None:
    assert await alter(client, "AlterConfigs", [{"name": "retention.ms", "value": "5"}]) == 0
    assert overrides(broker) == {"retention.ms": "5"}


async def test_alterations_that_are_refused(client: Any, broker: Broker) -> None:
    row = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    api = "IncrementalAlterConfigs"
    assert await alter(client, api, [row, row]) == errors.INVALID_REQUEST
    assert await alter(client, api, [row | {"config_operation": 9}]) == errors.INVALID_REQUEST
    assert await alter(client, api, [row | {"value": None}]) == errors.INVALID_REQUEST
    assert await alter(client, api, [row | {"value": "soon"}]) == errors.INVALID_CONFIG
    assert await alter(client, api, [row], name="none") == errors.UNKNOWN_TOPIC_OR_PARTITION
    assert await alter(client, api, [row], kind=4, name="7") == errors.POLICY_VIOLATION
    assert await alter(client, api, [row], kind=4, name="8") == errors.INVALID_REQUEST
    assert await alter(client, api, [row], kind=8, name="7") == errors.INVALID_REQUEST
    assert (
        await alter(client, "AlterConfigs", [{"name": "retention.ms", "value": None}])
        == errors.INVALID_REQUEST
    )
    assert overrides(broker) == {"max.message.bytes": "5000"}


# --- log offsets


@pytest.fixture
def filled(broker: Broker, make_batch: MakeBatch) -> Broker:
    """Fills partition 0 with one batch: offsets 0 to 2 with times NOW to NOW + 2."""
    batch = bytearray(make_batch(b"a", b"b", b"c"))
    broker.cluster.partition("topic", 0).append(memoryview(batch), -1, None)
    return broker


NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (-1, (0, -1, 3)),
        (-2, (0, -1, 0)),
        (-3, (0, NOW_MS + 2, 2)),
        (NOW_MS + 1, (0, NOW_MS + 1, 1)),
        (NOW_MS + 9, (0, -1, -1)),
        (-4, (errors.UNSUPPORTED_VERSION, -1, -1)),
    ],
)
async def test_offsets_by_time(
    timestamp: int, expected: tuple[int, int, int], client: Any, filled: Broker
) -> None:
    topics = [{"name": "topic", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    row = (await client.call("ListOffsets", 7, topics=topics)).topics[0].partitions[0]
    assert (row.error_code, row.timestamp, row.offset) == expected


@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [(-4, 8, (0, -1, 0, 0)), (-5, 9, (0, -1, -1, -1)), (-6, 11, (0, -1, -1, -1)), (-7, 12, (35, -1, -1, -1))],
)
async def test_offsets_of_tiers_that_are_not_there(
    timestamp: int, since: int, expected: tuple[int, ...], client: Any, filled: Broker
) -> None:
    topics = [{"name": "topic", "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    for version in range(7, 12):
        row = (await client.call("ListOffsets", version, topics=topics)).topics[0].partitions[0]
        found = (row.error_code, row.timestamp, row.offset, row.leader_epoch)
        assert found == (expected if version >= since else (errors.UNSUPPORTED_VERSION, -1, -1, -1))


async def test_what_is_not_kept_is_listed_as_empty(client: Any) -> None:
    quotas = await client.call("DescribeClientQuotas", 1, components=[], strict=False)
    assert (quotas.error_code, quotas.entries) == (0, [])
    users = await client.call("DescribeUserScramCredentials", 0, users=None)
    assert (users.error_code, users.results) == (0, [])
    users = await client.call("DescribeUserScramCredentials", 0, users=[{"name": "bob"}])
    assert [(row.user, row.error_code) for row in users.results] == [("bob", errors.RESOURCE_NOT_FOUND)]


async def test_share_groups_say_that_they_are_not_served(client: Any) -> None:
    beat = await client.call(
        "ShareGroupHeartbeat",
        1,
        group_id="g",
        member_id="m",
        member_epoch=0,
        subscribed_topic_names=["topic"],
    )
    assert (beat.error_code, beat.error_message) == (35, "this broker has no share groups")
    (group,) = (await client.call("ShareGroupDescribe", 1, group_ids=["g"])).groups
    assert (group.group_id, group.error_code) == ("g", 35)


async def test_offsets_that_are_refused(client: Any, filled: Broker) -> None:
    rows = [
        {"partition_index": 0, "timestamp": -3},
        {"partition_index": 9, "timestamp": -1},
        {"partition_index": 0, "timestamp": -1, "current_leader_epoch": 5},
    ]
    answer = await client.call("ListOffsets", 6, topics=[{"name": "topic", "partitions": rows}])
    assert [row.error_code for row in answer.topics[0].partitions] == [35, 3, 75]


async def test_where_leader_epochs_end(client: Any, filled: Broker) -> None:
    rows = [
        {"partition": 0, "leader_epoch": 0},
        {"partition": 0, "leader_epoch": 9},
        {"partition": 9, "leader_epoch": 0},
        {"partition": 0, "leader_epoch": 0, "current_leader_epoch": 9},
    ]
    answer = await client.call("OffsetForLeaderEpoch", 4, topics=[{"topic": "topic", "partitions": rows}])
    found = [(row.error_code, row.leader_epoch, row.end_offset) for row in answer.topics[0].partitions]
    assert found[0] == (0, 0, 3)
    assert [row[0] for row in found[2:]] == [3, 75]


async def test_the_leader_epoch_of_an_empty_partition_ends_at_its_start(client: Any) -> None:
    rows = [{"partition": 0, "leader_epoch": 0}, {"partition": 0, "leader_epoch": 1}]
    answer = await client.call("OffsetForLeaderEpoch", 4, topics=[{"topic": "topic", "partitions": rows}])
    found = [(row.leader_epoch, row.end_offset) for row in answer.topics[0].partitions]
    assert found == [(0, 0), (-1, -1)]


async def test_a_topic_setting_needs_a_value(client: Any) -> None:
    topic = {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": []}
    topic["configs"] = [{"name": "cleanup.policy", "value": None}]
    answer = await client.call("CreateTopics", 5, topics=[topic], timeout_ms=1000)
    assert answer.topics[0].error_code == errors.INVALID_CONFIG
    assert "cleanup.policy" in answer.topics[0].error_message


async def test_records_are_deleted(client: Any, filled: Broker) -> None:
    rows = [
        {"partition_index": 0, "offset": 2},
        {"partition_index": 0, "offset": 99},
        {"partition_index": 9, "offset": 0},
        {"partition_index": 0, "offset": -1},
    ]
    answer = await client.call("DeleteRecords", 2, topics=[{"name": "topic", "partitions": rows}])
    found = [(row.error_code, row.low_watermark) for row in answer.topics[0].partitions]
    assert found == [(0, 2), (1, -1), (3, -1), (0, 3)]


async def test_sizes_of_logs(client: Any, filled: Broker, make_batch: MakeBatch) -> None:
    answer = await client.call("DescribeLogDirs", 4, topics=None)
    (directory,) = answer.results
    sizes = {(t.name, p.partition_index): p.partition_size for t in directory.topics for p in t.partitions}
    assert sizes == {("topic", 0): len(make_batch(b"a", b"b", b"c")), ("topic", 1): 0}
    asked = [{"topic": "topic", "partitions": [1, 5]}, {"topic": "none", "partitions": [0]}]
    (directory,) = (await client.call("DescribeLogDirs", 1, topics=asked)).results
    assert [p.partition_index for t in directory.topics for p in t.partitions] == [1]


# --- requests that need more than one host, or ask for unknown things


async def test_a_replication_factor_is_kept_as_a_wish(client: Any, broker: Broker) -> None:
    """Connect, Streams and the OpenMessaging benchmark ask for 3 by default."""
    (made,) = (await create(client, new_topic("x", 1, 3))).values()
    assert (made.error_code, made.replication_factor) == (0, 1)
    topic = broker.cluster.definitions.topics()["x"]
    assert dict(topic.config.overrides) == {WISHED_COPIES: "3"}
    configs = {row.name: row.value for row in made.configs}
    assert configs[WISHED_COPIES] == "3"


@pytest.mark.parametrize("broker", [{"accept_replication_factor": False}], indirect=True)
async def test_wishes_may_be_refused(client: Any) -> None:
    (refused,) = (await create(client, new_topic("x", 1, 3))).values()
    assert refused.error_code == errors.INVALID_REPLICATION_FACTOR
    assert "accept_replication_factor is off" in refused.error_message
    (made,) = (await create(client, new_topic("x", 1, 1))).values()
    assert made.error_code == 0


async def test_topic_keys_that_tools_set(client: Any) -> None:
    keys = {
        "compression.gzip.level": "6",
        "compression.lz4.level": "9",
        "compression.zstd.level": "-7",
        "local.retention.ms": "-2",
        "local.retention.bytes": "1000",
        "leader.replication.throttled.replicas": "0:1,1:2",
        "follower.replication.throttled.replicas": "*",
    }
    configs = [{"name": name, "value": value} for name, value in keys.items()]
    (made,) = (await create(client, new_topic("x", 1, 1, configs=configs))).values()
    assert made.error_code == 0
    shown = {row.name: row.value for row in made.configs}
    assert {name: shown[name] for name in keys} == keys


async def test_elections_are_not_needed(client: Any) -> None:
    asked = [{"topic": "topic", "partitions": [0, 9]}]
    for version in range(3):
        answer = await client.call("ElectLeaders", version, election_type=0, topic_partitions=asked)
        (topic,) = answer.replica_election_results
        assert [(p.partition_id, p.error_code) for p in topic.partition_result] == [
            (0, errors.ELECTION_NOT_NEEDED),
            (9, errors.UNKNOWN_TOPIC_OR_PARTITION),
        ]
    every = await client.call("ElectLeaders", 2, election_type=1, topic_partitions=None)
    assert (every.error_code, every.replica_election_results) == (0, [])
    wrong = await client.call("ElectLeaders", 2, election_type=7, topic_partitions=asked)
    assert wrong.error_code == errors.INVALID_REQUEST


async def test_no_reassignment_is_under_way(client: Any) -> None:
    asked = [{"name": "topic", "partition_indexes": [0]}]
    for topics in (None, asked):
        answer = await client.call("ListPartitionReassignments", 0, topics=topics)
        assert (answer.error_code, answer.topics) == (0, [])


async def test_resources_with_configurations_are_listed(client: Any) -> None:
    metrics = await client.call("ListConfigResources", 0)
    assert (metrics.error_code, metrics.config_resources) == (0, [])
    every = await client.call("ListConfigResources", 1, resource_types=[])
    assert [(r.resource_type, r.resource_name) for r in every.config_resources] == [
        (2, "topic"),
        (2, "__consumer_offsets"),
        (2, "__transaction_state"),
        (4, "7"),
    ]
    brokers = await client.call("ListConfigResources", 1, resource_types=[4])
    assert [(r.resource_type, r.resource_name) for r in brokers.config_resources] == [(4, "7")]
    wrong = await client.call("ListConfigResources", 1, resource_types=[2, 3])
    assert wrong.error_code == errors.UNSUPPORTED_VERSION


# --- internal topics

OFFSETS = "__consumer_offsets"


async def test_internal_topics_are_listed_as_such(client: Any, broker: Broker) -> None:
    answer = await client.call("Metadata", 12, topics=None)
    found = {t.name: (t.is_internal, len(t.partitions)) for t in answer.topics}
    assert found == {"topic": (False, 2), OFFSETS: (True, 50), "__transaction_state": (True, 50)}
    (one,) = (await client.call("Metadata", 12, topics=[{"name": OFFSETS, "topic_id": ZERO}])).topics
    assert (one.error_code, one.is_internal, one.partitions[49].leader_id) == (0, True, 7)
    by_id = [{"name": None, "topic_id": one.topic_id}]
    assert (await client.call("Metadata", 12, topics=by_id)).topics[0].name == OFFSETS
    resources = [{"resource_type": 2, "resource_name": OFFSETS, "configuration_keys": ["cleanup.policy"]}]
    (described,) = (await client.call("DescribeConfigs", 4, resources=resources)).results
    assert [row.value for row in described.configs] == ["compact"]
    assert set(broker.cluster.definitions.topics()) == {"topic"}


async def test_internal_topics_are_read_as_empty(client: Any) -> None:
    for at, offset in ((-1, 0), (-2, 0), (5, -1)):
        asked = [{"partition_index": 7, "timestamp": at}]
        answer = await client.call("ListOffsets", 5, topics=[{"name": OFFSETS, "partitions": asked}])
        assert [(p.error_code, p.offset) for p in answer.topics[0].partitions] == [(0, offset)]
    partitions = [
        {"partition": index, "fetch_offset": offset, "partition_max_bytes": 100}
        for index, offset in ((7, 0), (7, 5), (50, 0))
    ]
    topics = [{"topic": OFFSETS, "partitions": partitions}]
    answer = await client.call(
        "Fetch", 11, max_wait_ms=0, min_bytes=1, max_bytes=1000, session_epoch=-1, topics=topics
    )
    assert [(p.error_code, p.high_watermark) for p in answer.responses[0].partitions] == [
        (0, 0),
        (errors.OFFSET_OUT_OF_RANGE, -1),
        (errors.UNKNOWN_TOPIC_OR_PARTITION, -1),
    ]


async def test_nobody_changes_internal_topics(client: Any, broker: Broker, make_batch: MakeBatch) -> None:
    invalid = errors.INVALID_TOPIC_EXCEPTION
    (made,) = (await create(client, new_topic(OFFSETS, 1, 1))).values()
    assert made.error_code == errors.TOPIC_ALREADY_EXISTS
    data = [{"name": OFFSETS, "partition_data": [{"index": 7, "records": make_batch(b"x")}]}]
    produced = await client.call("Produce", 9, acks=-1, timeout_ms=1000, topic_data=data)
    (row,) = produced.responses[0].partition_responses
    assert (row.error_code, row.error_message) == (
        invalid,
        f"{OFFSETS} is internal: the cluster alone writes to it",
    )
    gone = await client.call("DeleteTopics", 5, topic_names=[OFFSETS], timeout_ms=1)
    grown = await client.call(
        "CreatePartitions", 3, topics=[{"name": OFFSETS, "count": 60, "assignments": None}]
    )
    resource = {"resource_type": 2, "resource_name": OFFSETS, "configs": []}
    altered = await client.call("IncrementalAlterConfigs", 1, resources=[resource])
    codes = [gone.responses[0].error_code, grown.results[0].error_code, altered.responses[0].error_code]
    assert codes == [invalid] * 3
    before = [{"partition_index": 0, "offset": 0}]
    cut = await client.call("DeleteRecords", 2, topics=[{"name": OFFSETS, "partitions": before}])
    assert cut.topics[0].partitions[0].error_code == invalid
    assert set(broker.cluster.definitions.topics()) == {"topic"}


@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_no_face_creates_a_topic_of_an_internal_name(broker: Broker, name: str) -> None:
    with pytest.raises(TreecastError) as refused:
        await broker.cluster.definitions.create_topic(NewTopic(name))
    assert refused.value.fault is Fault.TOPIC_EXISTS


# --- names that collide in Kafka


@pytest.mark.parametrize(
    ("first", "second"),
    [("a.b", "a_b"), ("a_b.c", "a.b_c"), ("a.b.c.d.e.f.g.h", "a.b_c.d.e_f.g.h")],
)
async def test_names_that_differ_by_dots_and_underscores_collide(
    client: Any, broker: Broker, first: str, second: str
) -> None:
    assert (await create(client, new_topic(first, 1, 1)))[first].error_code == 0
    refused = (await create(client, new_topic(second, 1, 1)))[second]
    assert refused.error_code == errors.INVALID_TOPIC_EXCEPTION
    assert f"collides with topic {first}" in refused.error_message
    asked = [{"name": second, "topic_id": ZERO}]
    (row,) = (await client.call("Metadata", 4, topics=asked, allow_auto_topic_creation=True)).topics
    assert row.error_code == errors.INVALID_TOPIC_EXCEPTION
    assert (await create(client, new_topic(first, 1, 1)))[first].error_code == errors.TOPIC_ALREADY_EXISTS
    await broker.cluster.definitions.create_topic(NewTopic(second))  # an operator may do so
    (row,) = (await client.call("Metadata", 4, topics=asked)).topics
    assert row.error_code == 0
