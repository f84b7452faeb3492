"""The checks of `treecast agent doctor` at a Kafka cluster: log-in, versions, topics."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from treecast.middleware.wire.kafka_primitives import CodecError
from treecast.shims.kafka import versions as v
from treecast.shims.kafka.codec_client import shared_version

from .cluster import Found as ClusterFound
from .cluster import KafkaCluster
from .connection import ConnectionLost, KafkaConnection
from .settings import KafkaSettings

Found = tuple[str, str, str]  # what was checked; ok, slow or bad; the detail

# The agent asks for these: it follows by the first row, and hosts do by the others what these name.
_NEEDS = (
    ("following", (v.METADATA, v.FETCH, v.LIST_OFFSETS, v.DESCRIBE_CONFIGS, v.OFFSET_FOR_LEADER_EPOCH)),
    ("producing", (v.PRODUCE,)),
    (
        "groups",
        (v.FIND_COORDINATOR, v.JOIN_GROUP, v.SYNC_GROUP, v.HEARTBEAT, v.OFFSET_COMMIT, v.OFFSET_FETCH),
    ),
    ("groups of the new protocol", (v.CONSUMER_GROUP_HEARTBEAT,)),
    ("transactions", (v.INIT_PRODUCER_ID, v.ADD_PARTITIONS_TO_TXN, v.END_TXN, v.TXN_OFFSET_COMMIT)),
)
_PARTING_SINCE = 12  # the first Fetch in which a leader says where logs part


def check_cluster(settings: KafkaSettings) -> Iterator[Found]:
    """Yields what was found at the cluster."""
    yield from asyncio.run(_check(settings))


async def _check(settings: KafkaSettings) -> list[Found]:
    cluster = KafkaCluster(settings.brokers, settings.tls_context(), settings.log_in, "treecast-agent-doctor")
    try:
        found = await cluster.refresh()
    except ConnectionLost as error:
        return [("cluster", "bad", str(error))]
    try:
        return [*await check_brokers(cluster), *_topics(settings, found)]
    finally:
        cluster.close()


async def check_brokers(cluster: KafkaCluster) -> list[Found]:
    """Returns what was found at the brokers of a cluster that has answered."""
    found = cluster.found
    rows = [("cluster", "ok", f"Kafka cluster {found.cluster_id}, {len(found.brokers)} brokers")]
    for node in found.brokers:
        rows += await _broker(cluster, node)
    return rows


async def _broker(cluster: KafkaCluster, node: int) -> list[Found]:
    """Each broker has to be reached at the address that it advertises."""
    try:
        connection = await cluster.pool(node).connect()
    except ConnectionLost as error:
        return [(f"broker {node}", "bad", f"it cannot be reached where the cluster says: {error}")]
    try:
        return list(_versions(node, connection))
    finally:
        connection.abort()


def _versions(node: int, connection: KafkaConnection) -> Iterator[Found]:
    lacking = []
    for what, keys in _NEEDS:
        try:
            for key in keys:
                shared_version(key, connection.versions)
        except CodecError as error:
            lacking.append((what, str(error)))
    for what, reason in lacking:
        yield f"broker {node}", "bad" if what == "following" else "slow", f"{what}: {reason}"
    if not lacking and shared_version(v.FETCH, connection.versions) < _PARTING_SINCE:
        yield f"broker {node}", "slow", "it does not say where logs part: what it loses is noticed late"
    elif not lacking:
        yield f"broker {node}", "ok", "it serves all that is asked for"


def _topics(settings: KafkaSettings, found: ClusterFound) -> Iterator[Found]:
    wanted = [one for one in found.topics.values() if settings.follows(one.name) and not one.internal]
    leaderless = [one.name for one in wanted if any(row.leader < 0 for row in one.partitions)]
    if not wanted:
        yield "topics", "slow", "no topic has a name that kafka.topics matches; new ones are followed at once"
        return
    yield "topics", "ok", f"{len(wanted)} topics, {sum(len(one.partitions) for one in wanted)} partitions"
    if leaderless:
        yield "topics", "bad", f"partitions without a leader in {', '.join(sorted(leaderless))}"
