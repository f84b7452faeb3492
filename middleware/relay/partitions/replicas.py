"""`Replicas`: access to the partitions of the cluster from a host that leads none of them.

Partitions that are read here have local replicas. Writes are calls to the leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from treecast.middleware.api.entries import HostEntry, PartitionEntry, TopicEntry
from treecast.middleware.broker.cluster import PartitionLeader
from treecast.middleware.broker.long_poll import LongPolls
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.fabric.channel import Channels, Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import Host, TopicPartition
from treecast.middleware.model.runs import DirectoryState
from treecast.middleware.relay.view import ClusterView
from treecast.middleware.storage.tables import Tables

from .copies import Copies
from .following import Following
from .leading import Leading
from .ports import PartitionSettings, Topics


class OwnParts(Protocol):
    """The local parts of a host, a subset of `broker.parts.LocalParts`."""

    @property
    def host(self) -> Host: ...

    @property
    def tables(self) -> Tables: ...

    @property
    def partitions(self) -> LocalPartitions: ...

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds since the Unix epoch."""

    @property
    def run(self) -> int: ...

    @property
    def polls(self) -> LongPolls: ...


class Replicas:
    """Replicas of, and calls to, partitions that other hosts lead.

    Create it before the channels start, because it registers methods; call `start` once topics are known. The
    owner of the channels calls `host_up` and `host_down`.
    """

    leading: Leading | None = None

    def __init__(
        self,
        parts: OwnParts,
        topics: Topics,
        view: ClusterView,
        channels: Channels,
        methods: Methods,
        fabric: Fabric,
        settings: PartitionSettings,
        counters: RelayCounters,
        directory: DirectoryState,
    ) -> None:
        """`directory`: this host's data directory."""
        self.host_id = parts.host.host_id
        self._local = parts.partitions
        self._topics = topics
        self._view = view
        self.following = Following(
            parts.partitions,
            topics,
            parts.tables,
            channels,
            methods,
            fabric,
            settings,
            counters,
            parts.clock,
            parts.polls,
            directory,
        )
        self.copies = Copies(parts.partitions, topics, self.following, methods)
        view.topics.subscribe(self._topic_changed)
        view.hosts.subscribe(self._host_changed)

    def partition(self, topic: str, index: int) -> PartitionLeader:
        found = self._local.find(topic, index)
        if found is not None:
            return found
        known = self.following.find(topic, index)
        if known is not None:
            return known
        leader = self._view.leader(topic, index)
        defined = self._topics.topics().get(topic)
        if leader is None or defined is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {topic}-{index}")
        if leader.leader == self.host_id and not leader.waits:
            raise TreecastError(Fault.LEADER_UNAVAILABLE, f"{topic}-{index} is being opened: try again")
        return self.following.partition(defined, index, leader)

    # --- life

    async def start(self) -> None:
        self.following.start(self._view.leader)

    async def close(self) -> None:
        await self.following.close()

    # --- notifications

    def host_up(self, host: int, incarnation: int) -> None:
        self.following.host_up(host)

    def host_down(self, host: int) -> None:
        self.following.host_down(host)

    def _topic_changed(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        if before is not None and (after is None or after.topic_id != before.topic_id):
            self.following.topic_changed(before.name, after.topic_id if after is not None else None)
        if after is not None:
            for index, entry in enumerate(after.partitions):
                self._entry_changed(after, TopicPartition(after.name, index), entry)

    def _entry_changed(self, topic: TopicEntry, name: TopicPartition, entry: PartitionEntry) -> None:
        defined = self._topics.topics().get(topic.name)
        if entry.leader == self.host_id and not entry.waits:
            self.following.led_here(name)
        elif defined is not None and defined.topic_id == topic.topic_id:
            self.following.leader_changed(defined, name, entry)

    def _host_changed(self, before: HostEntry | None, after: HostEntry | None) -> None:
        """Handles a change of a host; nothing to do here. Leaders remove hosts that have left."""
