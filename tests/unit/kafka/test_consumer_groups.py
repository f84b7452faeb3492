"""The new group protocol (KIP-848) on the wire: versions, refusals, descriptions of groups."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from treecast.middleware.broker import Broker
from treecast.shims.kafka import errors

JOIN: dict[str, Any] = {
    "group_id": "g",
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 60_000,
    "subscribed_topic_names": ["topic"],
    "topic_partitions": [],
}


async def beat(client: Any, version: int = 1, **more: Any) -> Any:
    return await client.call("ConsumerGroupHeartbeat", version, **{**JOIN, **more})


def assigned(answer: Any) -> list[tuple[Any, list[int]]]:
    return [(row.topic_id, list(row.partitions)) for row in answer.assignment.topic_partitions]


async def test_a_member_joins_is_heard_and_leaves(client: Any, broker: Broker) -> None:
    topic_id = broker.cluster.definitions.topics()["topic"].topic_id
    joined = await beat(client)
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "m", 1)
    assert joined.heartbeat_interval_ms == 5_000
    assert assigned(joined) == [(topic_id, [0, 1])]
    same = await client.call("ConsumerGroupHeartbeat", 1, group_id="g", member_id="m", member_epoch=1)
    assert (same.error_code, same.assignment) == (0, None)
    left = await client.call("ConsumerGroupHeartbeat", 1, group_id="g", member_id="m", member_epoch=-1)
    assert (left.error_code, left.member_epoch) == (0, -1)


async def test_the_first_version_gives_member_ids(client: Any) -> None:
    assert (await beat(client, 0, member_id="")).member_id
    refused = await beat(client, 1, member_id="", group_id="h")
    assert refused.error_code == errors.INVALID_REQUEST


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"member_epoch": 5, "topic_partitions": None}, errors.UNKNOWN_MEMBER_ID),
        ({"member_id": "m", "member_epoch": 7, "topic_partitions": None}, errors.UNKNOWN_MEMBER_ID),
        ({"server_assignor": "mine"}, errors.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, errors.INVALID_REGULAR_EXPRESSION),
        ({"group_id": ""}, errors.INVALID_GROUP_ID),
        ({"rebalance_timeout_ms": -1}, errors.INVALID_REQUEST),
    ],
)
async def test_what_is_refused(client: Any, how: dict[str, Any], code: int) -> None:
    refused = await beat(client, **how)
    assert refused.error_code == code
    assert refused.error_message
    assert refused.assignment is None


async def test_epochs_and_instances_that_are_not_the_members(client: Any) -> None:
    await beat(client, instance_id="i")
    fenced = await beat(client, member_epoch=9, instance_id="i", topic_partitions=None)
    assert fenced.error_code == errors.FENCED_MEMBER_EPOCH
    unreleased = await beat(client, member_id="other", instance_id="i")
    assert unreleased.error_code == errors.UNRELEASED_INSTANCE_ID


def commit(epoch: int, member: str = "m", group: str = "g") -> dict[str, Any]:
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    return {
        "group_id": group,
        "member_id": member,
        "generation_id_or_member_epoch": epoch,
        "topics": [{"name": "topic", "partitions": [row]}],
    }


async def codes(client: Any, api: str, version: int, **fields: Any) -> set[int]:
    answer = await client.call(api, version, **fields)
    return {row.error_code for topic in answer.topics for row in topic.partitions}


async def test_a_commit_in_another_epoch_is_stale(client: Any) -> None:
    await beat(client)
    assert await codes(client, "OffsetCommit", 9, **commit(1)) == {0}
    assert await codes(client, "OffsetCommit", 9, **commit(0)) == {errors.STALE_MEMBER_EPOCH}
    assert await codes(client, "OffsetCommit", 8, **commit(0)) == {errors.UNSUPPORTED_VERSION}
    assert await codes(client, "OffsetCommit", 9, **commit(1, "who")) == {errors.UNKNOWN_MEMBER_ID}


@pytest.mark.parametrize(
    ("member", "epoch", "code"),
    [
        ("m", 1, 0),
        (None, -1, 0),
        ("m", 3, errors.STALE_MEMBER_EPOCH),
        ("who", 1, errors.UNKNOWN_MEMBER_ID),
    ],
)
async def test_a_fetch_of_offsets_names_its_member(
    client: Any, member: str | None, epoch: int, code: int
) -> None:
    await beat(client)
    await client.call("OffsetCommit", 9, **commit(1))
    group = {
        "group_id": "g",
        "member_id": member,
        "member_epoch": epoch,
        "topics": [{"name": "topic", "partition_indexes": [0]}],
    }
    (answer,) = (await client.call("OffsetFetch", 9, groups=[group])).groups
    assert answer.error_code == code
    found = [row.committed_offset for topic in answer.topics for row in topic.partitions]
    assert found == ([5] if code == 0 else [])


async def test_a_group_as_admin_clients_see_it(client: Any, broker: Broker) -> None:
    topic_id = broker.cluster.definitions.topics()["topic"].topic_id
    await beat(client, rack_id="r", instance_id="i", server_assignor="range")
    (group,) = (await client.call("ConsumerGroupDescribe", 1, group_ids=["g"])).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "range")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    (member,) = group.members
    assert (member.member_id, member.instance_id, member.rack_id, member.member_epoch) == ("m", "i", "r", 1)
    assert (list(member.subscribed_topic_names), member.subscribed_topic_regex) == (["topic"], None)
    for assignment in (member.assignment, member.target_assignment):
        (row,) = assignment.topic_partitions
        assert (row.topic_id, row.topic_name, list(row.partitions)) == (topic_id, "topic", [0, 1])
    assert member.member_type == 1
    (old,) = (await client.call("DescribeGroups", 5, groups=["g"])).groups
    assert (old.error_code, old.group_state) == (0, "Dead")
    (new,) = (await client.call("DescribeGroups", 6, groups=["g"])).groups
    assert (new.error_code, new.group_state) == (errors.GROUP_ID_NOT_FOUND, "Dead")
    for types, known in ((["consumer"], True), (["Classic"], False), ([], True)):
        listed = await client.call("ListGroups", 5, states_filter=[], types_filter=types)
        assert [(row.group_id, row.group_type) for row in listed.groups] == [("g", "consumer")] * known


@pytest.mark.parametrize("name", [None, ""])
async def test_topics_are_asked_for_by_the_ids_of_an_assignment(client: Any, name: str | None) -> None:
    """The Java client leaves the name empty."""
    ((topic_id, _),) = assigned(await beat(client))
    unknown = uuid.UUID(int=topic_id.int ^ 1)
    wanted = [{"name": name, "topic_id": topic_id}, {"name": name, "topic_id": unknown}]
    known, missing = (await client.call("Metadata", 12, topics=wanted)).topics
    assert (known.error_code, known.name, known.topic_id) == (0, "topic", topic_id)
    assert (missing.error_code, missing.name, missing.topic_id) == (errors.UNKNOWN_TOPIC_ID, None, unknown)


async def test_a_classic_group_is_not_described(client: Any) -> None:
    await client.call("OffsetCommit", 9, **commit(-1, ""))
    (group,) = (await client.call("ConsumerGroupDescribe", 0, group_ids=["g"])).groups
    assert group.error_code == errors.GROUP_ID_NOT_FOUND


async def test_clients_are_told_that_it_is_served(client: Any) -> None:
    for version, least in ((3, 1), (4, 0)):
        answer = await client.call(
            "ApiVersions", version, client_software_name="a", client_software_version="1"
        )
        (supported,) = answer.supported_features
        (finalized,) = answer.finalized_features
        assert (supported.name, supported.min_version, supported.max_version) == ("group.version", least, 1)
        assert (finalized.name, finalized.max_version_level) == ("group.version", 1)
        assert answer.finalized_features_epoch >= 0


def resource(*configs: dict[str, Any]) -> dict[str, Any]:
    return {"resource_type": 32, "resource_name": "g", "configs": list(configs)}


async def group_configs(client: Any) -> dict[str, tuple[str, int]]:
    asked = {"resource_type": 32, "resource_name": "g", "configuration_keys": None}
    (found,) = (await client.call("DescribeConfigs", 4, resources=[asked])).results
    assert found.error_code == 0
    return {row.name: (row.value, row.config_source) for row in found.configs}


async def test_settings_of_a_group(client: Any) -> None:
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert await group_configs(client) == {session: ("45000", 4), interval: ("5000", 4)}
    change = {"name": interval, "config_operation": 0, "value": "9000"}
    (done,) = (await client.call("IncrementalAlterConfigs", 1, resources=[resource(change)])).responses
    assert done.error_code == 0
    assert await group_configs(client) == {session: ("45000", 4), interval: ("9000", 8)}
    assert (await beat(client)).heartbeat_interval_ms == 9_000
    wrong = {"name": session, "config_operation": 0, "value": "1"}
    (refused,) = (await client.call("IncrementalAlterConfigs", 1, resources=[resource(wrong)])).responses
    assert refused.error_code == errors.INVALID_CONFIG
    assert "between 45000 and 60000" in refused.error_message
