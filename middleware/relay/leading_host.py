"""`LeadingHost`: a host without a broker that leads partitions on behalf of another system, their owner.

The owner assigns offsets and epochs. This host has a copy of each partition, and serves the hosts of the
fabric from it as a leader does: one stream for all that follow. What only the owner can decide (appends,
offsets by time) is passed on by the partition itself. The topics are brought by this host: they have the
owner's ids, and the coordinator pins them to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from treecast.middleware.api.entries import HostEntry, TopicEntry
from treecast.middleware.api.v1 import coordinator_pb2 as pb
from treecast.middleware.broker.followed import FollowedPartition
from treecast.middleware.broker.partitions import LocalPartitions
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.counters import Counters
from treecast.middleware.model.identity import TopicId, TopicPartition

from .brokerless import BrokerlessHost, FabricHostSettings, OwnHost, ViewTopics
from .coordinator_link import called
from .homes.outside import OwnerHomes, register_homes
from .neighbours import Neighbours
from .partitions.accounts import Accounts
from .partitions.leading import Leading, Led
from .partitions.ports import LedPartition, PartitionSettings
from .partitions.replicas import Replicas
from .partitions.serving import Serving

Copies = Callable[[Topic, int, FollowedPartition], LedPartition]  # makes the partition over its stored copy


class CopyStore:
    """Implements `partitions.ports.LedLookUp`: the partitions that this host leads, each over a stored
    copy."""

    def __init__(self, partitions: LocalPartitions, made: Copies) -> None:
        self._partitions = partitions
        self._made = made
        self._led: dict[TopicPartition, LedPartition] = {}

    def __iter__(self) -> Iterator[LedPartition]:
        return iter(list(self._led.values()))

    def find(self, topic: str, index: int) -> LedPartition | None:
        return self._led.get(TopicPartition(topic, index))

    def open(self, topic: Topic, index: int) -> LedPartition:
        """Returns the partition; opens or makes its copy if it is new. Raises STORAGE."""
        name = TopicPartition(topic.name, index)
        led = self._led.get(name)
        if led is None:
            led = self._led[name] = self._made(topic, index, self._partitions.follow(topic, index))
        return led

    def drop(self, topic: Topic) -> list[LedPartition]:
        """Removes the copies of a deleted topic with their files; returns what was led."""
        gone = [self._led.pop(name) for name in list(self._led) if name.topic == topic.name]
        self._partitions.remove(topic)
        return gone


class LedReplicas(Replicas):
    """`Replicas` with partitions that this host leads."""

    leading: Leading

    def __init__(self, own: OwnHost, topics: ViewTopics, host: LeadingHost, neighbours: Neighbours) -> None:
        settings, link = PartitionSettings(), host.link
        self._own_id, self._own_run = own.host.host_id, own.run
        self._host = host
        super().__init__(
            own,
            topics,
            link.view,
            neighbours.channels,
            neighbours.methods,
            neighbours.fabric,
            settings,
            own.counters.relay,
            link.directory,
        )
        self.store = CopyStore(own.partitions, host.made)
        led = Led(self.store, topics)
        self.accounts = Accounts(own.tables, settings.accounts_every)
        self.leading = Leading(
            own.run,
            led,
            neighbours.fabric,
            neighbours.methods,
            itertools.count(1),
            self.accounts,
            link.directory,
        )
        self.serving = Serving(led, neighbours.methods)

    async def start(self) -> None:
        for topic in self.brought():
            self.open(topic)
        self.leading.start()
        await super().start()

    async def close(self) -> None:
        await super().close()
        await self.accounts.write()
        self.leading.close()

    def topics(self) -> Mapping[str, Topic]:
        """Returns the topics of the cluster."""
        return self._topics.topics()

    def brought(self) -> list[Topic]:
        """Returns the topics that this host leads, as the coordinator has told."""
        topics = self._topics.topics()
        own = [entry for entry in self._view.topics if leads(entry, self._own_id)]
        return [topics[entry.name] for entry in own if entry.name in topics]

    def open(self, topic: Topic) -> None:
        """Has a copy of each partition of a topic that was brought. Raises STORAGE."""
        for index in range(topic.partitions):
            self.store.open(topic, index)

    def _topic_changed(self, before: TopicEntry | None, after: TopicEntry | None) -> None:
        """Other hosts' topics only: this host's own change as it is told to."""
        entry = after or before
        if entry is not None and not leads(entry, self._own_id):
            super()._topic_changed(before, after)

    def _host_changed(self, before: HostEntry | None, after: HostEntry | None) -> None:
        if after is None and before is not None:
            self.leading.host_left(before.host_id)
        if after is not None and after.host_id == self._own_id and after.run > self._own_run:
            self._host.on_successor(after)


def leads(entry: TopicEntry, host_id: int) -> bool:
    """Whether a host leads all partitions of a topic."""
    return all(one.leader == host_id for one in entry.partitions)


class LeadingHost(BrokerlessHost):
    """A `BrokerlessHost` that leads partitions, and is the home of ids, which another system owns."""

    def __init__(
        self, settings: FabricHostSettings, counters: Counters, made: Copies, homes: OwnerHomes
    ) -> None:
        """`made`: makes a partition over its copy. `homes`: answers the calls to homes of other hosts."""
        super().__init__(settings, counters)
        self.made = made
        self._homes = homes
        self.led: LedReplicas
        # Called when another directory has been attached under this name: other hosts listen to that one.
        self.on_successor: Callable[[HostEntry], None] = lambda entry: None

    def _replicas(self, own: OwnHost, neighbours: Neighbours) -> Replicas:
        register_homes(neighbours.methods, self._homes)
        self.led = LedReplicas(own, ViewTopics(self.link.view), self, neighbours)
        return self.led

    # --- topics

    def leader_of(self, name: str) -> TopicEntry | None:
        """Returns a topic of the cluster, led here or not."""
        return self.link.view.topic(name)

    async def bring(self, name: str, topic_id: TopicId, partitions: int, config: Mapping[str, str]) -> Topic:
        """Makes a topic known to all hosts, led here. Raises the coordinator's refusal."""
        request = pb.CreateTopicEntryRequest(
            name=name,
            topic_id=topic_id.bytes,
            partitions=partitions,
            config=dict(config),
            pinned=[self._settings.name],
        )
        return await self._carried_out(name, await called(self.link.client.create_topic(request)))

    async def grow(self, name: str, total: int) -> Topic:
        """Adds partitions to a topic that was brought."""
        request = pb.CreatePartitionEntriesRequest(name=name, total=total, pinned=[self._settings.name])
        return await self._carried_out(name, await called(self.link.client.create_partitions(request)))

    async def configure(self, name: str, config: Mapping[str, str], before: Mapping[str, str]) -> Topic:
        """Gives a topic that was brought another configuration."""
        request = pb.AlterTopicEntryRequest(
            name=name,
            set={key: value for key, value in config.items() if before.get(key) != value},
            unset=sorted(before.keys() - config.keys()),
        )
        return await self._carried_out(name, await called(self.link.client.alter_topic(request)))

    async def withdraw(self, topic: Topic) -> list[LedPartition]:
        """Deletes a topic that was brought, at all hosts. Returns the partitions that were led."""
        answer = await called(self.link.client.delete_topic(topic.name))
        await self.link.seen(answer.revision)
        return self.led.store.drop(topic)

    def waiting(self) -> list[tuple[TopicPartition, TopicEntry]]:
        """Returns the partitions that this host leads from another data directory than before, with their
        topics: other hosts ask it for nothing of them until it has claimed them.
        """
        host_id = self.fabric_host.replicas.host_id
        return [
            (TopicPartition(entry.name, index), entry)
            for entry in self.link.view.topics
            for index, one in enumerate(entry.partitions)
            if one.waits and one.leader == host_id
        ]

    async def claim(self, name: TopicPartition, entry: TopicEntry) -> None:
        """Leads a partition that waits: its copy has all that the owner had. Raises the coordinator's
        refusal.
        """
        epoch = entry.partitions[name.partition].leader_epoch
        request = pb.TakeLeadRequest(
            session=self.link.session,
            topic_id=entry.topic_id.bytes,
            partition=name.partition,
            known_epoch=epoch,
            leader_epoch=epoch + 1,
        )
        answer = await called(self.link.client.take_lead(request))
        await self.link.seen(answer.revision)

    async def _carried_out(self, name: str, answer: pb.TopicEntryResponse) -> Topic:
        await self.link.seen(answer.revision)
        topic = self.led.topics()[name]
        self.led.open(topic)
        return topic

    async def keep_producer_ids_above(self, first: int) -> None:
        """Sees to it that the coordinator gives no producer id below `first` from now on."""
        await called(self.link.client.producer_ids(self.link.session, 1, at_least=first))
