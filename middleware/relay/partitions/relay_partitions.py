"""`RelayPartitions`: every partition of the cluster, as one host can reach it."""

from __future__ import annotations

import itertools

from treecast.middleware.broker.cluster import PartitionLeader
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.fabric.channel import Channels, Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.relay.entries import HostEntry, TopicEntry
from treecast.middleware.relay.view import ClusterView

from .accounts import Accounts
from .following import Following
from .leading import Leading, Led
from .ports import Topics
from .serving import Serving
from .settings import PartitionSettings


class RelayPartitions:
    """Implements `relay.cluster.Partitions` and `relay.cluster.Life`.

    It is made before the channels start, as it registers its methods; `start` comes when the topics are
    known, and the partitions that this host leads are open. Whoever owns the channels calls `host_up` and
    `host_down`.
    """

    def __init__(
        self,
        parts: LocalParts,
        topics: Topics,
        view: ClusterView,
        channels: Channels,
        methods: Methods,
        fabric: Fabric,
        settings: PartitionSettings,
        counters: RelayCounters,
    ) -> None:
        self._parts = parts
        self._topics = topics
        self._view = view
        led = Led(parts.partitions, topics)
        self.accounts = Accounts(parts.tables, settings.accounts_every)
        self.leading = Leading(parts.run, led, fabric, methods, itertools.count(1), self.accounts)
        self.serving = Serving(led, methods)
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
        )
        view.topics.subscribe(self._topic_changed)
        view.hosts.subscribe(self._host_changed)

    def partition(self, topic: str, index: int) -> PartitionLeader:
        found = self._parts.partitions.find(topic, index)
        if found is not None:
            return found
        known = self.following.find(topic, index)
        if known is not None:
            return known
        leader = self._view.leader(topic, index)
        defined = self._topics.topics().get(topic)
        if leader is None or defined is None:
            raise TreecastError(Fault.UNKNOWN_TOPIC, f"there is no partition {topic}-{index}")
        return self.following.partition(defined, index, leader)

    # --- life

    async def start(self) -> None:
        self.leading.start()
        self.following.start(self._view.leader)

    async def close(self) -> None:
        await self.following.close()
        await self.accounts.write()
        self.leading.close()

    # --- what is told

    def host_up(self, host: int, incarnation: int) -> None:
        self.following.host_up(host)

    def host_down(self, host: int) -> None:
        self.following.host_down(host)

    def _topic_changed(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        if before is not None and (after is None or after.topic_id != before.topic_id):
            self.following.topic_changed(before.name, after.topic_id if after is not None else None)
        if after is not None:
            own = self._parts.host.host_id
            for index, leader in enumerate(after.leaders):
                if leader.host_id == own:
                    self.following.led_here(TopicPartition(after.name, index))

    def _host_changed(self, before: HostEntry | None, after: HostEntry | None) -> None:
        if after is None and before is not None:
            self.leading.host_left(before.host_id)
