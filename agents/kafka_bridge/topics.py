"""Topics at the target: made where they are missing, with the source's settings, and grown with it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from treecast.agents.kafka.cluster import KafkaCluster, refusal
from treecast.agents.kafka.topics import followed_config
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.shims.kafka.messages import Row
from treecast.shims.kafka.versions import CREATE_PARTITIONS, CREATE_TOPICS, DESCRIBE_CONFIGS

_TOPIC: Final = 2  # the type of a config resource
_TIMEOUT_MS: Final = 15_000
# as MirrorMaker 2's `config.properties.exclude`: they belong to a cluster, not to its records
_NOT_COPIED: Final = frozenset(
    {
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    }
)
COMPACTED: Final = {"cleanup.policy": "compact"}


async def settings_of(cluster: KafkaCluster, name: str) -> dict[str, str]:
    """Returns the settings of a topic that its copy gets as well."""
    rows = [{"resource_type": _TOPIC, "resource_name": name}]
    answer = await cluster.at_any(DESCRIBE_CONFIGS, {"resources": rows})
    one = answer.results[0]
    if one.error_code:
        raise refusal(one.error_code, one.error_message)
    config = followed_config({row.name: row.value for row in one.configs})
    return {key: value for key, value in config.items() if key not in _NOT_COPIED}


async def make_topic(
    cluster: KafkaCluster, name: str, partitions: int, replicas: int, config: Mapping[str, str]
) -> None:
    """Makes a topic, or does nothing if there is one of this name."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": [{"name": key, "value": value} for key, value in config.items()],
    }
    await _administer(cluster, CREATE_TOPICS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS}, "topics")


async def grow_topic(cluster: KafkaCluster, name: str, partitions: int) -> None:
    topic = {"name": name, "count": partitions, "assignments": None}
    await _administer(cluster, CREATE_PARTITIONS, {"topics": [topic], "timeout_ms": _TIMEOUT_MS}, "results")


async def _administer(cluster: KafkaCluster, key: int, values: Mapping[str, object], results: str) -> None:
    controller = cluster.found.controller
    if controller in cluster.found.brokers:
        answer: Row = await cluster.at_node(controller, key, values)
    else:
        answer = await cluster.at_any(key, values)
    for one in getattr(answer, results):
        if (
            one.error_code
            and (error := refusal(one.error_code, one.error_message)).fault is not Fault.TOPIC_EXISTS
        ):
            raise TreecastError(error.fault, f"topic {one.name}: {error.detail}")
