"""`RelayCluster`: the cluster as a joined host's faces, control service and transactions see it.

It only passes look-ups on to its collaborators, one for each kind of thing that is owned. What each needs
is a Protocol here, so that each can be built and tested by itself; `composition` puts them together.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Protocol, TypeVar

from treecast.middleware.broker.cluster import Definitions, Kind, PartitionLeader
from treecast.middleware.broker.pubsub import Reach
from treecast.middleware.broker.values import GroupListing, TransactionListing
from treecast.middleware.model.identity import Host, ProducerIdentity
from treecast.middleware.storage.tables import Tables

from .events.events import Events
from .neighbours import Neighbours
from .partitions.operator import Operator
from .sharing import Sharing

T = TypeVar("T")


class Life(Protocol):
    """What is opened with the cluster, and closed in reverse."""

    async def start(self) -> None: ...

    async def close(self) -> None: ...


class Partitions(Protocol):
    """Who leads, and how to reach it."""

    def partition(self, topic: str, index: int) -> PartitionLeader:
        """UNKNOWN_TOPIC where there is none. Never waits: what cannot be reached says so when it is used."""


class AllHomes(Protocol):
    """Homes of every kind, and the ids of producers that have none."""

    def home(self, kind: Kind[T], id: str) -> T: ...

    def list_groups(self) -> Awaitable[Sequence[GroupListing]]:
        """Of all hosts that can be reached."""

    def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Awaitable[Sequence[TransactionListing]]:
        """Of all hosts that can be reached."""

    def new_producer(self) -> Awaitable[ProducerIdentity]: ...


class RelayCluster:
    """Implements `broker.parts.JoinedCluster`."""

    def __init__(
        self,
        cluster_id: str,
        host: Host,
        definitions: Definitions,
        partitions: Partitions,
        homes: AllHomes,
        lives: Sequence[Life],
        neighbours: Neighbours,
        sharing: Sharing,
        events: Events,
        tables: Tables,
        operator: Operator,
    ) -> None:
        """`lives`: what is started in this order, and closed in reverse. `neighbours`: for looking.

        `events` join `sharing` when faces have taken up their sessions. `tables`: where the view is kept.
        `operator`: what operators decide about partitions.
        """
        self.neighbours = neighbours
        self.sharing = sharing
        self.tables = tables
        self.operator = operator
        self._events = events
        self._cluster_id = cluster_id
        self._host = host
        self._definitions = definitions
        self._partitions = partitions
        self._homes = homes
        self._lives = lives
        self._started: list[Life] = []

    async def start(self) -> None:
        """Opens what this host leads; what failed to start is closed by `close` all the same."""
        for life in self._lives:
            self._started.append(life)
            await life.start()

    async def close(self) -> None:
        """Safe to call twice."""
        while self._started:
            await self._started.pop().close()

    @property
    def cluster_id(self) -> str:
        return self._cluster_id

    @property
    def host(self) -> Host:
        return self._host

    @property
    def definitions(self) -> Definitions:
        return self._definitions

    def partition(self, topic: str, index: int) -> PartitionLeader:
        return self._partitions.partition(topic, index)

    def home(self, kind: Kind[T], id: str) -> T:
        return self._homes.home(kind, id)

    async def list_groups(self) -> Sequence[GroupListing]:
        return await self._homes.list_groups()

    async def list_transactions(
        self, transactional_ids: Collection[str] | None = None
    ) -> Sequence[TransactionListing]:
        return await self._homes.list_transactions(transactional_ids)

    @property
    def events(self) -> Reach:
        return self._events

    async def begin_events(self) -> None:
        self.sharing.join_events(self._events)

    async def end_events(self) -> None:
        await self.sharing.leave_events()

    async def new_producer(self) -> ProducerIdentity:
        return await self._homes.new_producer()
