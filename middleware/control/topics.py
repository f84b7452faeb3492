"""Topics and the leaders of their partitions. Leadership is given once and never moves by itself (see
`leads`).
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from msgspec.structs import replace

from treecast.middleware.api.entries import Change, Kind, PartitionEntry, Presence, TopicEntry, put
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.topic_config import TopicConfig, longest_value
from treecast.middleware.model.topics import check_kafka_name

from .cluster_state import ClusterState
from .commands import AlterTopic, CreatePartitions, CreateTopic, DeleteTopic
from .decision import Decision, check_room
from .values import ItemWrite, ends_home

FIRST_LEADER_EPOCH = 0


def create(state: ClusterState, command: CreateTopic) -> Decision[TopicEntry]:
    check_kafka_name(command.name)
    known = state.topic(command.name)
    if known is not None:
        if command.brought and known.topic_id == command.topic_id:
            return Decision(known)
        raise TreecastError(Fault.TOPIC_EXISTS, f"topic {command.name} exists already")
    if command.brought and state.topic_by_id(command.topic_id) is not None:
        raise TreecastError(
            Fault.INVALID_REQUEST, f"another topic than {command.name} has the id {command.topic_id}"
        )
    check_room("topics", state.size(Kind.TOPIC), 1, state.settings.limits.topics)
    _check_partitions(state, command.partitions, command.partitions)
    _check_config(command.config)
    leaders = _leaders(state, command.partitions, command.pinned, brought=command.brought)
    topic = TopicEntry(command.name, command.topic_id, leaders, dict(command.config))
    return Decision(topic, (put(topic),))


def delete(state: ClusterState, command: DeleteTopic) -> Decision[TopicEntry]:
    topic = _existing(state, command.name)
    ends = ItemWrite(ends_home(topic.topic_id), None, None)
    return Decision(topic, (Change(Kind.TOPIC, topic.name, None),), (ends,))


def alter(state: ClusterState, command: AlterTopic) -> Decision[TopicEntry]:
    topic = _existing(state, command.name)
    twice = sorted(set(command.set) & set(command.unset))
    if twice:
        raise TreecastError(Fault.INVALID_REQUEST, f"{twice[0]} is both set and unset: do only one of these")
    kept = {name: value for name, value in topic.config.items() if name not in command.unset}
    config: Mapping[str, str] = {**kept, **command.set}
    _check_config(config)
    changed = replace(topic, config=config)
    return Decision(changed, (put(changed),) if changed != topic else ())


def create_partitions(state: ClusterState, command: CreatePartitions) -> Decision[TopicEntry]:
    topic = _existing(state, command.name)
    more = command.total - len(topic.partitions)
    if more <= 0:
        raise TreecastError(
            Fault.INVALID_PARTITIONS,
            f"topic {topic.name} has {len(topic.partitions)} partitions already; their number can only grow",
        )
    _check_partitions(state, command.total, more)
    brought = _brought_by(state, topic)
    if brought is not None and command.pinned != (brought,):
        raise TreecastError(
            Fault.POLICY_VIOLATION,
            f"topic {topic.name} is led by {brought} for another system: change it there",
        )
    partitions = (*topic.partitions, *_leaders(state, more, command.pinned, brought=brought is not None))
    grown = replace(topic, partitions=partitions)
    return Decision(grown, (put(grown),))


def _existing(state: ClusterState, name: str) -> TopicEntry:
    topic = state.topic(name)
    if topic is None:
        raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no topic {name[:300]!r}")
    return topic


def _check_config(config: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG for a value that is too long (a number may be padded without limit) or
    invalid.
    """
    for name, value in config.items():
        if len(value) > longest_value(name):
            raise TreecastError(Fault.INVALID_CONFIG, f"the value of {name[:100]!r} is too long")
    TopicConfig.of(config)


def _check_partitions(state: ClusterState, total: int, more: int) -> None:
    limit = state.settings.limits.partitions_per_topic
    if not 1 <= total <= limit:
        raise TreecastError(Fault.INVALID_PARTITIONS, f"a topic has 1 to {limit} partitions, not {total}")
    check_room("partitions", state.partitions, more, state.settings.limits.partitions)


def _brought_by(state: ClusterState, topic: TopicEntry) -> str | None:
    """Returns the name of the host without a broker that leads a topic on behalf of another system."""
    leaders = {one.leader for one in topic.partitions}
    names = [host.name for host in state.hosts() if host.host_id in leaders and host.leads_nothing]
    return names[0] if names else None


def _leaders(
    state: ClusterState, count: int, pinned: tuple[str, ...], *, brought: bool
) -> tuple[PartitionEntry, ...]:
    ids = _pinned(state, count, pinned, brought=brought) if pinned else _spread(state, count)
    return tuple(PartitionEntry(host_id, FIRST_LEADER_EPOCH) for host_id in ids)


def _pinned(state: ClusterState, count: int, names: tuple[str, ...], *, brought: bool) -> list[int]:
    """`brought`: the topic is another system's, and a host without a broker may lead it on its behalf."""
    if len(names) not in (1, count):
        raise TreecastError(
            Fault.INVALID_ASSIGNMENT,
            f"{len(names)} hosts are named for {count} partitions: name one for all, or one for each",
        )
    ids = []
    for name in names:
        host = state.host(name)
        if host is None:
            raise TreecastError(Fault.INVALID_ASSIGNMENT, f"no host is named {name[:300]!r}")
        if host.leads_nothing and not brought:
            raise TreecastError(Fault.INVALID_ASSIGNMENT, f"host {name} has no broker: it cannot lead")
        ids.append(host.host_id)
    return ids * count if len(ids) == 1 else ids


def _spread(state: ClusterState, count: int) -> list[int]:
    """Returns a leader per partition: the attached host that leads the fewest; among equals the lowest id."""
    heap = [
        (state.led(host.host_id), host.host_id)
        for host in state.hosts()
        if host.presence is Presence.ATTACHED and not host.leads_nothing
    ]
    if not heap:
        raise TreecastError(
            Fault.LEADER_UNAVAILABLE, "no host is attached that could lead: attach one, or pin the leader"
        )
    heapq.heapify(heap)
    chosen = []
    for _ in range(count):
        led, host_id = heap[0]
        heapq.heapreplace(heap, (led + 1, host_id))
        chosen.append(host_id)
    return chosen
