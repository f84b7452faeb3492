"""`Checkpoints`: where each group of the source would go on at the target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from treecast.agents.kafka.cluster import KafkaCluster
from treecast.agents.kafka.groups import KafkaGroups
from treecast.agents.kafka.settings import matches
from treecast.middleware.broker.values import NOBODY, CommittedOffset
from treecast.middleware.model.errors import Fault, TreecastError
from treecast.middleware.model.identity import TopicPartition

from .mirror import Checkpoint
from .settings import WaySettings


class Translates(Protocol):
    def place_of(self, name: TopicPartition, offset: int) -> tuple[TopicPartition, int] | None:
        """Returns the place at the target for one of the source; None: it is not known, or not carried."""
        ...


class Checkpoints:
    def __init__(
        self, way: WaySettings, source: KafkaCluster, target: KafkaCluster, translates: Translates
    ) -> None:
        self.groups = 0  # that were translated the last time
        self.synced = 0  # commits at the target
        self._way = way
        self._source = KafkaGroups(source)
        self._target = KafkaGroups(target)
        self._translates = translates
        self._said: dict[tuple[str, TopicPartition], Checkpoint] = {}

    async def look(self) -> list[Checkpoint]:
        """Returns the checkpoints that have changed; commits at the target if that is asked for. Raises
        TreecastError."""
        groups = [one.group_id for one in await self._source.list_groups() if self._wanted(one.group_id)]
        changed: list[Checkpoint] = []
        self.groups = 0
        for group in groups:
            found = dict(await self._of_group(group))
            self.groups += bool(found)
            changed += [one for one in found if self._said.get((group, found[one])) != one]
            if self._way.sync_groups and found:
                await self._sync(group, {place: one.downstream for one, place in found.items()})
        return changed

    def said(self, written: list[Checkpoint]) -> None:
        """These are in the topic now."""
        for one in written:
            self._said[one.group, TopicPartition(one.topic, one.partition)] = one

    def _wanted(self, group: str) -> bool:
        return matches(group, self._way.groups) and not matches(group, self._way.not_groups)

    async def _of_group(self, group: str) -> list[tuple[Checkpoint, TopicPartition]]:
        committed = await self._source.fetch_offsets(group, None, require_stable=False)
        return list(self._translated(group, committed))

    def _translated(
        self, group: str, committed: Mapping[TopicPartition, CommittedOffset | TreecastError]
    ) -> Iterator[tuple[Checkpoint, TopicPartition]]:
        for name, found in committed.items():
            place = None
            if isinstance(found, CommittedOffset):
                place = self._translates.place_of(name, found.offset)
            if place is not None and isinstance(found, CommittedOffset):
                target, offset = place
                yield (
                    Checkpoint(group, target.topic, target.partition, found.offset, offset, found.metadata),
                    target,
                )

    async def _sync(self, group: str, places: Mapping[TopicPartition, int]) -> None:
        """Commits at the target what is further on than the group is there, if it has no member."""
        try:
            if (await self._target.describe(group)).members:
                return
        except TreecastError as error:
            if error.fault is not Fault.GROUP_NOT_FOUND:
                raise
        present = await self._target.fetch_offsets(group, list(places), require_stable=False)
        further: dict[TopicPartition, CommittedOffset] = {}
        for name, offset in places.items():
            there = present.get(name)
            if there is None or (isinstance(there, CommittedOffset) and there.offset < offset):
                further[name] = CommittedOffset(offset)
        if further:
            await self._target.commit_offsets(group, NOBODY, further)
            self.synced += 1
