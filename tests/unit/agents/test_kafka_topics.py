"""Which topics the Kafka follower brings and withdraws, and their settings."""

from __future__ import annotations

import uuid

from treecast.agents.kafka.cluster import PartitionFound, TopicFound
from treecast.agents.kafka.settings import KafkaSettings
from treecast.agents.kafka.topics import (
    Bring,
    Change,
    Grow,
    InTheWay,
    Known,
    Withdraw,
    changes,
    followed_config,
)

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
SETTINGS = KafkaSettings(topics=("orders*",), not_topics=("orders.private",))


def found(name: str, topic_id: uuid.UUID = A, partitions: int = 2, internal: bool = False) -> TopicFound:
    return TopicFound(name, topic_id, internal, (PartitionFound(1, 0),) * partitions)


def known(name: str, topic_id: uuid.UUID = A, partitions: int = 2, ours: bool = True) -> Known:
    return Known(name, topic_id, partitions, {}, ours)


def steps(there: list[TopicFound], here: list[Known]) -> list[Change]:
    return list(changes({one.name: one for one in there}, here, SETTINGS.follows))


def test_topics_are_chosen_by_name() -> None:
    there = [found("orders"), found("orders.private"), found("other"), found("orders-x", internal=True)]
    assert steps(there, []) == [Bring("orders", A, 2)]


def test_what_is_known_is_left_alone() -> None:
    assert steps([found("orders")], [known("orders"), known("local", B, ours=False)]) == []


def test_more_partitions_are_added() -> None:
    assert steps([found("orders", partitions=5)], [known("orders")]) == [Grow("orders", 5)]


def test_a_topic_made_anew_is_withdrawn_first() -> None:
    for anew in (found("orders", B), found("orders", A, 1)):
        gone, *brought = steps([anew], [known("orders")])
        assert isinstance(gone, Withdraw)
        assert brought in ([], [Bring("orders", B, 2)])


def test_a_topic_that_is_gone_or_not_followed_is_withdrawn() -> None:
    assert steps([], [known("orders")]) == [Withdraw("orders", "it was deleted")]
    assert steps([found("other")], [known("other")]) == [Withdraw("other", "it is not followed any more")]


def test_a_topic_that_hosts_lead_is_in_the_way() -> None:
    assert steps([found("orders")], [known("orders", B, ours=False)]) == [InTheWay("orders")]


def test_settings_that_differ_from_the_default_are_followed() -> None:
    described = {
        "cleanup.policy": "compact",
        "retention.ms": "604800000",
        "max.message.bytes": "2000000",
        "leader.replication.throttled.replicas": "0:1",
        "remote.storage.enable": "false",
        "segment.bytes": None,
        "compression.type": "a-new-one",
    }
    assert followed_config(described) == {"cleanup.policy": "compact", "max.message.bytes": "2000000"}
