"""Topics and their settings."""

from __future__ import annotations

import random
from typing import Any, Final

from .base import Given, Named, Step, a_topic, one

TOPICS: Final = ("t0", "t1", "t2")
SETTINGS: Final = (
    *("cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes", "segment.bytes"),
    *("compression.type", "message.timestamp.type", "min.insync.replicas", "delete.retention.ms", "odd"),
)
VALUES: Final = (
    *("compact", "delete", "compact,delete", "delete,odd", "100000000", "-1", "-2", "0", "1.5", "x", ""),
    *("zstd", "producer", "odd", "CreateTime", None),
)


def create_topic(rng: random.Random) -> Step:
    """At most one thing is wrong, because servers look for faults in different orders."""
    topic = {
        "name": Named(rng.choice(TOPICS)),
        "num_partitions": rng.choice((1, 2, 2, 3)),
        "replication_factor": rng.choice((1, 1, -1)),
        "assignments": [],
        "configs": [],
    }
    special: dict[str, Any] = one(
        rng,
        ({},),
        (
            *({"name": Named(name)} for name in ("a b", "t.2", "t_2", "x" * 250)),
            *({"num_partitions": count} for count in (-1, 0, -2)),
            *({"replication_factor": factor} for factor in (0, 2, -2)),
            *({"configs": [_setting(rng)]} for _ in range(10)),
        ),
        0.5,
    )
    fields = {"topics": [topic | special], "timeout_ms": 10_000, "validate_only": rng.random() < 0.2}
    return Step("CreateTopics", rng.randint(4, 7), fields)


def _setting(rng: random.Random) -> dict[str, Any]:
    name, value = rng.choice(SETTINGS), rng.choice(VALUES)
    if name == "max.message.bytes" and value == "0":
        value = "1000000"  # or most batches would be refused for two reasons
    return {"name": name, "value": value}


def delete_topic(rng: random.Random) -> Step:
    name = Named(one(rng, ("t1", "t2"), ("none",)))
    return Step("DeleteTopics", rng.randint(1, 5), {"topic_names": [name], "timeout_ms": 10_000})


def create_partitions(rng: random.Random) -> Step:
    topic = {"name": a_topic(rng), "count": one(rng, (2, 3), (0, 1, -1)), "assignments": None}
    fields = {"topics": [topic], "timeout_ms": 10_000, "validate_only": rng.random() < 0.2}
    return Step("CreatePartitions", rng.randint(0, 3), fields)


def metadata(rng: random.Random) -> Step:
    version = rng.randint(4, 12)
    by_id = version >= 12 and rng.random() < 0.5
    name = Named(one(rng, TOPICS, ("a b", "none", "x" * 250)))
    given = Given("topic", name.name)
    topic: dict[str, Any] = {"topic_id": given, "name": None} if by_id else {"name": name}
    fields = {"topics": [topic], "allow_auto_topic_creation": False}
    return Step("Metadata", version, fields, needs=given if by_id else None)


def alter_configs(rng: random.Random) -> Step:
    configs = [_change(rng) for _ in range(rng.choice((1, 1, 2)))]
    resource = {"resource_type": 2, "resource_name": a_topic(rng), "configs": configs}
    fields = {"resources": [resource], "validate_only": rng.random() < 0.2}
    return Step("IncrementalAlterConfigs", rng.randint(0, 1), fields)


def _change(rng: random.Random) -> dict[str, Any]:
    """Sets, resets, appends or subtracts."""
    operation = rng.choice((0, 0, 1, 2, 3))
    setting = _setting(rng)
    if setting["name"] == "cleanup.policy" and operation >= 2:
        setting["value"] = rng.choice(("delete", "compact", "compact,delete"))
    return setting | {"config_operation": operation}


def replace_configs(rng: random.Random) -> Step:
    configs = [_setting(rng) for _ in range(rng.choice((0, 1)))]
    resource = {"resource_type": 2, "resource_name": a_topic(rng), "configs": configs}
    fields = {"resources": [resource], "validate_only": rng.random() < 0.2}
    return Step("AlterConfigs", rng.randint(0, 2), fields)


def describe_configs(rng: random.Random) -> Step:
    names = [rng.choice(SETTINGS) for _ in range(rng.choice((1, 1, 2)))]
    resource = {"resource_type": 2, "resource_name": a_topic(rng), "configuration_keys": names}
    return Step("DescribeConfigs", rng.randint(1, 4), {"resources": [resource]})
