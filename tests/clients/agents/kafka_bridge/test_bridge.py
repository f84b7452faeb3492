"""Topics of one cluster at the other one: once each, with all that a record has, and no loops."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata
from tests.clients.agents.kafka_bridge.clusters import PATIENCE, BridgeAgent, Found, records, way, write

Clusters = dict[str, str]
Start = Callable[..., BridgeAgent]
_numbers = itertools.count()


@pytest.fixture
def topic(clusters: Clusters) -> Callable[..., str]:
    def make(alias: str, partitions: int = 1, **config: str) -> str:
        name = f"orders-{next(_numbers)}"
        admin = KafkaAdminClient(bootstrap_servers=clusters[alias])
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, topic_configs=settings)])
        admin.close()
        return name

    return make


def fields(found: list[Any]) -> list[tuple[Any, ...]]:
    return [(one.partition, one.key, one.value, tuple(one.headers), one.timestamp) for one in found]


def test_all_that_a_record_has_is_kept(
    clusters: Clusters, topic: Callable[..., str], start: Start, tmp_path: Path
) -> None:
    name = topic("lisbon", 3, retention_ms="86400000")
    start(BridgeAgent("one", tmp_path, clusters, way("lisbon", "oslo", name)))
    producer = KafkaProducer(bootstrap_servers=clusters["lisbon"], compression_type="gzip")
    for number in range(300):
        key = None if number % 3 == 0 else b"k%d" % number
        value = None if number % 7 == 1 and key else b"v%d" % number
        headers = [("h", b"%d" % number), ("empty", b"")]
        producer.send(
            name, value, key, headers, partition=number % 3, timestamp_ms=1_700_000_000_000 + number
        )
    producer.flush(PATIENCE)
    producer.close()
    sent = records(clusters["lisbon"], name, 300, 3)
    there = records(clusters["oslo"], f"lisbon.{name}", 300, 3)
    assert len(sent) == 300
    assert sorted(fields(sent), key=repr) == sorted(fields(there), key=repr)
    admin = KafkaAdminClient(bootstrap_servers=clusters["oslo"])
    assert f"lisbon.{name}" in admin.list_topics()
    admin.close()


def test_both_ways_under_one_name_without_a_loop(
    clusters: Clusters, topic: Callable[..., str], start: Start, tmp_path: Path
) -> None:
    name = topic("lisbon")
    ways = way("lisbon", "oslo", name, 'names = "same"') + way("oslo", "lisbon", name, 'names = "same"')
    agent = start(BridgeAgent("both", tmp_path, clusters, ways))
    write(clusters["lisbon"], name, [b"l%d" % number for number in range(50)])
    records(clusters["oslo"], name, 50)
    write(clusters["oslo"], name, [b"o%d" % number for number in range(50)])
    for bootstrap in clusters.values():
        found = records(bootstrap, name, 100)
        assert sorted(one.value for one in found) == sorted(
            b"%c%d" % (c, n) for c in b"lo" for n in range(50)
        )
    agent.until(lambda found: found["counters"]["looped"] == 100, "what came back is not seen")
    agent.kill()
    agent.start()  # it knows its producers of before, and goes on at its commits
    write(clusters["lisbon"], name, [b"last"])
    for bootstrap in clusters.values():
        assert len(records(bootstrap, name, 101)) == 101


def test_a_kill_loses_nothing_and_repeats_nothing(
    clusters: Clusters, topic: Callable[..., str], start: Start, tmp_path: Path
) -> None:
    name = topic("lisbon", 2)
    agent = start(BridgeAgent("killed", tmp_path, clusters, way("lisbon", "oslo", name)))
    producer = KafkaProducer(bootstrap_servers=clusters["lisbon"], batch_size=200)
    found, sent = Found(clusters["oslo"], f"lisbon.{name}", 2), 0
    for _ in range(2):
        for _ in range(2000):
            producer.send(name, b"%d" % sent, partition=sent % 2)
            sent += 1
        found.read(sent - 1900)  # some of these are carried, others are on their way
        agent.kill()
        agent.start()
    producer.flush(PATIENCE)
    producer.close()
    found.read(sent)
    came = [int(one.value) for one in found.read(sent + 1, 1.0)]
    found.close()
    assert sorted(came) == list(range(sent))
    for parity in range(2):
        own = [number for number in came if number % 2 == parity]
        assert own == sorted(own)


def test_groups_go_on_at_the_other_cluster(
    clusters: Clusters, topic: Callable[..., str], start: Start, tmp_path: Path
) -> None:
    name = topic("lisbon")
    agent = start(
        BridgeAgent("groups", tmp_path, clusters, way("lisbon", "oslo", name, "sync_groups = true"))
    )
    for batch in range(4):  # each one a transaction at the other end, whose marker takes an offset there
        write(clusters["lisbon"], name, [b"%d" % number for number in range(batch * 10, batch * 10 + 10)])
        agent.until(
            lambda found, batch=batch: found["counters"]["published"] >= 10 * batch + 10, "not carried"
        )
    reader = KafkaConsumer(bootstrap_servers=clusters["lisbon"], group_id="readers", enable_auto_commit=False)
    reader.assign([TopicPartition(name, 0)])
    reader.commit({TopicPartition(name, 0): OffsetAndMetadata(25, "", -1)})
    reader.close()
    there = TopicPartition(f"lisbon.{name}", 0)
    other = KafkaConsumer(
        bootstrap_servers=clusters["oslo"],
        group_id="readers",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    other.assign([there])
    agent.until(lambda _: other.committed(there) is not None, "the group is not synced")
    assert other.position(there) == other.committed(there)
    first = next(iter(other.poll(timeout_ms=10_000).values()))[0]
    assert first.value == b"25"
    other.close()


def test_a_record_that_is_too_large_is_left_out_and_counted(
    clusters: Clusters, topic: Callable[..., str], start: Start, tmp_path: Path
) -> None:
    name = topic("lisbon")
    admin = KafkaAdminClient(bootstrap_servers=clusters["oslo"])
    admin.create_topics([NewTopic(f"lisbon.{name}", 1, 1, topic_configs={"max.message.bytes": "10000"})])
    admin.close()
    agent = start(BridgeAgent("large", tmp_path, clusters, way("lisbon", "oslo", name)))
    producer = KafkaProducer(bootstrap_servers=clusters["lisbon"], linger_ms=500, batch_size=100_000)
    for number in range(20):
        producer.send(name, b"%d" % number + bytes(20_000 if number == 7 else 2000))
    producer.flush(PATIENCE)
    producer.close()
    there = records(clusters["oslo"], f"lisbon.{name}", 19)
    assert [int(one.value.rstrip(b"\0")) for one in there] == [n for n in range(20) if n != 7]
    status = agent.until(lambda found: found["counters"]["refused_there"], "it is not counted")
    assert sum(status["counters"]["refused_there"].values()) == 1
    assert f"{name}-0@7" in agent.log.read_text()


def test_a_second_agent_refuses(
    clusters: Clusters, topic: Callable[..., str], start: Start, tmp_path: Path
) -> None:
    name = topic("lisbon")
    first = start(BridgeAgent("first", tmp_path, clusters, way("lisbon", "oslo", name)))
    second = start(BridgeAgent("second", tmp_path, clusters, way("lisbon", "oslo", name)), wait=False)
    assert second.process is not None
    assert second.process.wait(PATIENCE) == 1
    write(clusters["lisbon"], name, [b"x"])
    assert len(records(clusters["oslo"], f"lisbon.{name}", 1)) == 1
    assert first.status()["troubles"] == []
