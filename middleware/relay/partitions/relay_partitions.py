"""`RelayPartitions`: every partition of the cluster, as one host can reach it."""

from __future__ import annotations

import itertools

from treecast.middleware.api.entries import HostEntry, TopicEntry
from treecast.middleware.broker.cluster import PartitionLeader
from treecast.middleware.broker.parts import LocalParts
from treecast.middleware.fabric.channel import Channels, Methods
from treecast.middleware.fabric.fabric import Fabric
from treecast.middleware.model.counters import RelayCounters
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition
from treecast.middleware.relay.view import ClusterView

from .accounts import Accounts
from .copies import Copier, Copies, Survey
from .ends import Ends
from .following import Following
from .leading import Leading, Led
from .operator import Operator
from .ports import Record, Topics
from .rebuilding import Rebuilding
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
        record: Record,
        directory: str,
    ) -> None:
        """`directory`: the id of this host's data directory. `record`: what the coordinator knows of logs."""
        self._parts = parts
        self._topics = topics
        self._view = view
        led = Led(parts.partitions, topics)
        self.accounts = Accounts(parts.tables, settings.accounts_every)
        self.leading = Leading(parts.run, led, fabric, methods, itertools.count(1), self.accounts, directory)
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
            directory,
        )
        host_id, partitions = parts.host.host_id, parts.partitions
        self.copies = Copies(partitions, topics, self.following, methods)
        survey = Survey(host_id, self.copies, view, methods, channels.is_up, record, settings)
        copier = Copier(partitions, self.following, methods, settings, counters, parts.clock)
        self.rebuilding = Rebuilding(
            host_id,
            parts.run,
            partitions,
            topics,
            parts.tables,
            view,
            survey,
            copier,
            record,
            settings,
            counters,
            parts.clock,
        )
        self.operator = Operator(
            host_id,
            partitions,
            topics,
            view,
            self.following,
            self.rebuilding,
            survey,
            methods,
            channels.is_up,
            record,
            parts.clock,
        )
        self.ends = Ends(partitions, topics, record, self._history, settings.ends_every)
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
        if leader.leader == self._parts.host.host_id and not leader.waits:
            raise TreecastError(Fault.LEADER_UNAVAILABLE, f"{topic}-{index} is being opened")
        return self.following.partition(defined, index, leader)

    # --- life

    async def start(self) -> None:
        self.leading.start()
        self.following.start(self._view.leader)
        self.rebuilding.start()
        self.ends.start()

    async def close(self) -> None:
        await self.ends.close()
        await self.rebuilding.close()
        await self.following.close()
        await self.accounts.write()
        self.leading.close()

    def _history(self) -> str:
        """The coordinator's, as far as it is known."""
        return self._view.position.history

    # --- what is told

    def host_up(self, host: int, incarnation: int) -> None:
        self.following.host_up(host)
        self.rebuilding.look_again()

    def host_down(self, host: int) -> None:
        self.following.host_down(host)

    def _topic_changed(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        if before is not None and (after is None or after.topic_id != before.topic_id):
            self.following.topic_changed(before.name, after.topic_id if after is not None else None)
        if after is not None:
            own = self._parts.host.host_id
            defined = self._topics.topics().get(after.name)
            for index, leader in enumerate(after.partitions):
                name = TopicPartition(after.name, index)
                if leader.leader == own and not leader.waits:
                    self.following.led_here(name)
                elif defined is not None and defined.topic_id == after.topic_id:
                    self.following.leader_changed(defined, name, leader)
        self.rebuilding.topic_changed(before, after)

    def _host_changed(self, before: HostEntry | None, after: HostEntry | None) -> None:
        if after is None and before is not None:
            self.leading.host_left(before.host_id)
