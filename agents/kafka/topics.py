"""Which topics to bring, change and withdraw: the difference between the Kafka cluster and what hosts know.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import TopicId
from treecast.middleware.model.topic_config import TOPIC_CONFIG_KEYS

from .cluster import TopicFound

# of a broker's own disk and of replication inside the cluster: they say nothing to readers elsewhere
_NOT_FOLLOWED: Final = (
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.replicas",
    "file.delete.delay.ms",
    "preallocate",
    "flush.messages",
    "flush.ms",
)


class Known(Struct, frozen=True):
    """A topic as the hosts know it. `ours`: this agent leads it."""

    name: str
    topic_id: TopicId
    partitions: int
    config: Mapping[str, str]
    ours: bool


class Bring(Struct, frozen=True):
    name: str
    topic_id: TopicId
    partitions: int


class Grow(Struct, frozen=True):
    name: str
    total: int


class Withdraw(Struct, frozen=True):
    """The topic is gone from the cluster, another one has its name, or is not followed any more."""

    name: str
    why: str


class InTheWay(Struct, frozen=True):
    """A topic of the same name exists, which the hosts lead themselves."""

    name: str


Change = Bring | Grow | Withdraw | InTheWay


def changes(
    found: Mapping[str, TopicFound], known: Iterable[Known], follows: Callable[[str], bool]
) -> Iterator[Change]:
    """Yields what makes the hosts know the topics that are followed; what is withdrawn comes first."""
    by_name = {one.name: one for one in known}
    wanted = {name: one for name, one in found.items() if follows(name) and not one.internal}
    for one in by_name.values():
        if not one.ours:
            continue
        there = wanted.get(one.name)
        if there is None:
            yield Withdraw(one.name, "it was deleted" if follows(one.name) else "it is not followed any more")
        elif there.topic_id != one.topic_id or len(there.partitions) < one.partitions:
            yield Withdraw(one.name, "it was deleted and made anew")
    for name, there in sorted(wanted.items()):
        one_known = by_name.get(name)
        if one_known is not None and not one_known.ours:
            yield InTheWay(name)
        elif one_known is None or one_known.topic_id != there.topic_id:
            yield Bring(name, there.topic_id, len(there.partitions))
        elif len(there.partitions) > one_known.partitions:
            yield Grow(name, len(there.partitions))


def followed_config(described: Mapping[str, str | None]) -> dict[str, str]:
    """Returns the settings of a topic that hosts follow, without those that are as by default.

    `described`: what DescribeConfigs answers, also what the cluster's own defaults give.
    """
    config: dict[str, str] = {}
    for name, value in described.items():
        key = TOPIC_CONFIG_KEYS.get(name)
        if key is None or value is None or value == key.default or name in _NOT_FOLLOWED:
            continue
        try:
            key.parse(value)
        except TreecastError:
            continue  # a value that a newer Kafka allows
        config[name] = value
    return config
