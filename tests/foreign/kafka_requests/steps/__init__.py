"""Random sequences of valid and invalid requests about a few topics, producers and groups."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import Any, Final

from . import consumers, groups, records, topics, transactions
from .base import GROUPS, Maker, Named, Step

MAKERS: Final[Mapping[Maker, int]] = {
    topics.create_topic: 5,
    topics.delete_topic: 2,
    topics.create_partitions: 2,
    topics.metadata: 2,
    topics.alter_configs: 3,
    topics.replace_configs: 1,
    topics.describe_configs: 3,
    records.produce: 12,
    records.produce_in_order: 10,
    records.produce_in_transaction: 8,
    records.fetch: 14,
    records.list_offsets: 8,
    records.delete_records: 3,
    records.end_of_epoch: 2,
    records.describe_producers: 1,
    transactions.init_producer: 6,
    transactions.commit_in_transaction: 3,
    transactions.end_transaction: 6,
    transactions.describe_transaction: 1,
    groups.commit: 6,
    groups.fetch_committed: 5,
    groups.delete_offsets: 2,
    groups.join: 4,
    groups.synchronize: 4,
    groups.heartbeat: 3,
    groups.leave: 2,
    groups.describe_group: 2,
    groups.delete_group: 1,
    groups.find_coordinator: 1,
    consumers.consumer_heartbeat: 12,
    consumers.describe_consumer_group: 2,
    consumers.commit_as_consumer: 2,
    consumers.fetch_committed_as_consumer: 1,
    consumers.share: 3,
}


def sequence(seed: int, count: int, *, far: bool) -> Iterator[Step]:
    """Yields about `count` steps after the creation of a topic and of groups.

    `far`: leaves leader epochs out of the requests. Another host knows the epoch from the leader's first
    answer on, and compares then.
    """
    rng = random.Random(seed)
    for name, partitions in (*consumers.SUBSCRIBED.items(), ("t0", 2)):
        topic = {"name": Named(name), "num_partitions": partitions, "replication_factor": 1}
        topic |= {"assignments": [], "configs": []}
        yield Step("CreateTopics", 7, {"topics": [topic], "timeout_ms": 10_000, "validate_only": False})
    for group in GROUPS:
        yield Step("OffsetCommit", 8, groups.commits(Named(group)))
    for make in rng.choices(list(MAKERS), list(MAKERS.values()), k=count):
        made = make(rng)
        for step in made if isinstance(made, list) else [made]:
            yield step._replace(fields=_without_epochs(step.fields)) if far else step


def _without_epochs(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_epochs(part) for part in value]
    if not isinstance(value, dict):
        return value
    fields = {name: _without_epochs(part) for name, part in value.items()}
    return fields | {"current_leader_epoch": -1} if "current_leader_epoch" in fields else fields
