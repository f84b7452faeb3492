"""`LocalCluster`: the cluster of a standalone host, which owns everything."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar, cast

from treecast.middleware.model.errors import TreecastError
from treecast.middleware.model.identity import Host, ProducerIdentity

from .cluster import Definitions, GroupsAtOnce, Kind, PartitionLeader
from .parts import LocalParts
from .pubsub import NoReach, Reach
from .values import GroupListing, TransactionListing
from .views import Views

T = TypeVar("T")


class LocalCluster:
    """Implements `cluster.Cluster` with the local objects themselves."""

    def __init__(self, parts: LocalParts) -> None:
        self._parts = parts
        self._homes = parts.homes
        self._events = NoReach(parts.pubsub.hub.shares)
        self._at_once: GroupsAtOnce = parts.groups.at_once
        self._views = Views(parts.registry, self, parts.counters)

    @property
    def cluster_id(self) -> str:
        return self._parts.cluster_id

    @property
    def host(self) -> Host:
        return self._parts.host

    @property
    def definitions(self) -> Definitions:
        return self._parts.registry

    def partition(self, topic: str, index: int) -> PartitionLeader:
        try:
            return self._parts.partitions.get(topic, index)
        except TreecastError:
            found = self._views.partition(topic, index)
            if found is None:
                raise
            return found

    def home(self, kind: Kind[T], id: str) -> T:
        return cast(T, self._homes[kind.kind])

    def groups_at_once(self, group_id: str) -> GroupsAtOnce:
        return self._at_once

    async def list_groups(self) -> Sequence[GroupListing]:
        return self._parts.groups.list_groups()

    async def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Sequence[TransactionListing]:
        return self._parts.transactions.list_transactions(transactional_ids)

    @property
    def events(self) -> Reach:
        return self._events

    @property
    def queues(self) -> None:
        """There are no other hosts."""

    async def begin_events(self) -> None:
        """Does nothing: there are no other hosts."""

    async def end_events(self) -> None: ...

    async def new_producer(self) -> ProducerIdentity:
        return ProducerIdentity(await self._parts.producer_ids.take(), 0)
