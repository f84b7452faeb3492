"""Stand-ins for parts of a host in a test's world: its link to the coordinator, and what that records."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from treecast.middleware.api.entries import (
    PartitionEnd,
    PartitionEntry,
)
from treecast.middleware.broker.values import Topic
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import ProducerIdentity, TopicId, TopicPartition
from treecast.middleware.relay.partitions.lost_disk import Recorded
from treecast.middleware.relay.partitions.ports import Claim
from treecast.middleware.relay.view import ClusterView

if TYPE_CHECKING:
    from .world import World


class FakeRecord:
    """The coordinator's record of log ends. Implements `partitions.ports.Record`."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number

    def _here(self) -> None:
        if self.world.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE, "the coordinator is away")

    async def put_ends(self, ends: Sequence[PartitionEnd]) -> None:
        self._here()
        for one in ends:
            self.world.ends[one.topic_id, one.partition] = Recorded(one.leader_epoch, one.end, one.quiet)

    async def ends_of(self, topic_id: TopicId) -> Mapping[int, Recorded]:
        self._here()
        return {index: ended for (one, index), ended in self.world.ends.items() if one == topic_id}

    async def all_ends(self, topic_ids: Sequence[TopicId]) -> Mapping[TopicId, Mapping[int, Recorded]]:
        return {topic_id: await self.ends_of(topic_id) for topic_id in topic_ids}

    async def accept_losses(self, topic_id: TopicId, partition: int) -> None:
        (entry,) = [topic for topic in self.world.topics.values() if topic.topic_id == topic_id]
        leaders = list(entry.partitions)
        known = tuple(replace(lost, accepted=True) for lost in leaders[partition].lost)
        leaders[partition] = replace(leaders[partition], lost=known)
        self.world.topics[entry.name] = replace(entry, partitions=tuple(leaders))
        await self.world.tell()

    async def give_up(self, topic_id: TopicId, partitions: Sequence[int]) -> None:
        raise AssertionError("hosts of this world start without doubts about their logs")

    async def take_lead(self, claim: Claim) -> None:
        self._here()
        (entry,) = [topic for topic in self.world.topics.values() if topic.topic_id == claim.topic_id]
        before = entry.partitions[claim.partition]
        if before.leader_epoch != claim.known_epoch:
            raise TreecastError(Fault.FENCED_LEADER_EPOCH, "somebody was quicker")
        assert claim.leader_epoch > before.leader_epoch
        lost = (*before.lost, claim.lost) if claim.lost is not None else before.lost
        leaders = list(entry.partitions)
        leaders[claim.partition] = PartitionEntry(self.number, claim.leader_epoch, False, lost)
        self.world.topics[entry.name] = replace(entry, partitions=tuple(leaders))
        await self.world.tell()


class FakeLink:
    """The coordinator, as far as interest and carriers need it."""

    def __init__(self, world: World, number: int, view: ClusterView) -> None:
        self.world = world
        self.view = view
        self.session = number
        self.client = self

    def _here(self) -> None:
        if self.world.away:
            raise TreecastError(Fault.COORDINATOR_UNAVAILABLE)

    async def put_interest(self, session: int, version: int, patterns: list[str]) -> int:
        self._here()
        self.world.recorded[session] = (version, sorted(patterns))
        return version

    async def allot_state(self, session: int, levels: tuple[str, ...]) -> Any:
        self._here()
        state_id = self.world.states.setdefault(
            levels, 310_000 + os.getpid() % 10_000 + len(self.world.states)
        )
        return SimpleNamespace(state_id=state_id)

    async def release_state(self, session: int, state_id: int) -> None:
        self._here()


class Definitions:
    """The topics as one host knows them."""

    def __init__(self) -> None:
        self.known: dict[str, Topic] = {}

    def topics(self) -> Mapping[str, Topic]:
        return self.known

    def topic_by_id(self, topic_id: TopicId) -> Topic:
        for topic in self.known.values():
            if topic.topic_id == topic_id:
                return topic
        raise TreecastError(Fault.UNKNOWN_TOPIC_ID)


class OpenGuard:
    """All transactions are open."""

    def verify(self, transactional_id: str, producer: ProducerIdentity, partition: TopicPartition) -> None:
        return None
